#include "server/shared_memory/shared_memory_registry.h"

#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/support/shared_memory_object.h"
#include "tests/unit/server/schedule/fake_clock.h"

namespace attend {
namespace {

class SharedMemoryRegistryTest : public ::testing::Test {
 protected:
  std::string RegisterOk(const testing::SharedMemoryObject& object) {
    const absl::StatusOr<std::string> handle = registry_.Register(object.name(), 100);
    EXPECT_TRUE(handle.ok()) << handle.status();
    return handle.value_or("");
  }

  FakeClock clock_;
  testing::SharedMemoryObject object_{100};
  testing::SharedMemoryObject others_[3] = {testing::SharedMemoryObject(100),
                                            testing::SharedMemoryObject(100),
                                            testing::SharedMemoryObject(100)};
  SharedMemoryRegistry registry_{{.max_regions = 3, .idle_time = absl::Minutes(10)}, clock_};
};

TEST_F(SharedMemoryRegistryTest, FindsARegionByItsHandleUntilItIsUnregistered) {
  const std::string handle = RegisterOk(object_);
  const auto region = registry_.Find(handle, "key");
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ((*region)->size_bytes(), 100);
  EXPECT_TRUE(registry_.Unregister(handle).ok());
  EXPECT_EQ(registry_.Find(handle, "key").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(registry_.Unregister(handle).code(), absl::StatusCode::kNotFound);
  // Who found it before may go on.
  std::vector<std::byte> bytes(100);
  EXPECT_TRUE((*region)->Read(0, bytes, "key").ok());
}

TEST_F(SharedMemoryRegistryTest, GivesHandlesThatNobodyGuesses) {
  std::set<std::string> handles;
  for (int i = 0; i < 100; ++i) {
    const std::string handle = RegisterOk(object_);
    EXPECT_EQ(handle.size(), 32);
    handles.insert(handle);
    EXPECT_TRUE(registry_.Unregister(handle).ok());
  }
  EXPECT_EQ(handles.size(), 100);
  for (const std::string& guess : {std::string(), object_.name(), std::string(32, '0')}) {
    EXPECT_EQ(registry_.Find(guess, "key").status().code(), absl::StatusCode::kNotFound);
  }
}

// Names can be read off the host by others who may not open the object, as the server may.
TEST_F(SharedMemoryRegistryTest, LetsNobodyRegisterWhatAnotherHasRegistered) {  // B19
  RegisterOk(object_);
  const absl::Status again = registry_.Register(object_.name(), 50).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(registry_.num_regions(), 1);
}

TEST_F(SharedMemoryRegistryTest, RefusesMoreRegionsThanItsBound) {
  for (const auto& object : others_) RegisterOk(object);
  EXPECT_EQ(registry_.num_regions(), 3);
  EXPECT_EQ(registry_.Register(object_.name(), 100).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(registry_.num_regions(), 3);
}

TEST_F(SharedMemoryRegistryTest, ForgetsWhatWasIdleWhenAnotherComes) {
  const std::string idle = RegisterOk(others_[0]);
  const std::string used = RegisterOk(others_[1]);
  clock_.Advance(absl::Minutes(5));
  EXPECT_TRUE(registry_.Find(used, "key").ok());
  clock_.Advance(absl::Minutes(5));
  EXPECT_EQ(registry_.num_regions(), 2);
  RegisterOk(others_[2]);
  EXPECT_EQ(registry_.num_regions(), 2);
  EXPECT_FALSE(registry_.Find(idle, "key").ok());
  EXPECT_TRUE(registry_.Find(used, "key").ok());
}

TEST_F(SharedMemoryRegistryTest, ForgetsWhatWasIdleWhenAsked) {
  const std::string idle = RegisterOk(others_[0]);
  const std::string used = RegisterOk(others_[1]);
  clock_.Advance(absl::Minutes(5));
  EXPECT_TRUE(registry_.Find(used, "key").ok());
  clock_.Advance(absl::Minutes(5));
  registry_.ForgetUnused();
  EXPECT_FALSE(registry_.Find(idle, "key").ok());
  EXPECT_TRUE(registry_.Find(used, "key").ok());
}

TEST_F(SharedMemoryRegistryTest, ForgetsWhatItsOwnerHasLetGo) {
  others_[0].Lock();
  others_[1].Lock();
  const std::string ended = RegisterOk(others_[0]);
  const std::string alive = RegisterOk(others_[1]);
  const std::string never_locked = RegisterOk(others_[2]);
  registry_.ForgetUnused();
  EXPECT_EQ(registry_.num_regions(), 3);
  others_[0].Unlock();
  registry_.ForgetUnused();
  EXPECT_FALSE(registry_.Find(ended, "key").ok());
  EXPECT_TRUE(registry_.Find(alive, "key").ok());
  EXPECT_TRUE(registry_.Find(never_locked, "key").ok());
}

// So that a client that was killed leaves room for its successor.
TEST_F(SharedMemoryRegistryTest, ARegionWithoutOwnerMakesRoomForAnother) {
  others_[0].Lock();
  for (const auto& object : others_) RegisterOk(object);
  EXPECT_FALSE(registry_.Register(object_.name(), 100).ok());
  others_[0].Unlock();
  RegisterOk(object_);
}

TEST_F(SharedMemoryRegistryTest, KeepsNothingOfARegistrationThatFails) {
  EXPECT_FALSE(registry_.Register("/attend-nobody-made-this-one", 1).ok());
  EXPECT_FALSE(registry_.Register(object_.name(), 101).ok());
  EXPECT_EQ(registry_.num_regions(), 0);
}

}  // namespace
}  // namespace attend
