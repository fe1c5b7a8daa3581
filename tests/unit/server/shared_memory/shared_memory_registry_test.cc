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
  std::string RegisterOk() {
    const absl::StatusOr<std::string> handle = registry_.Register(object_.name(), 100);
    EXPECT_TRUE(handle.ok()) << handle.status();
    return handle.value_or("");
  }

  FakeClock clock_;
  testing::SharedMemoryObject object_{100};
  SharedMemoryRegistry registry_{{.max_regions = 3, .idle_time = absl::Minutes(10)}, clock_};
};

TEST_F(SharedMemoryRegistryTest, FindsARegionByItsHandleUntilItIsUnregistered) {
  const std::string handle = RegisterOk();
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
    const std::string handle = RegisterOk();
    EXPECT_EQ(handle.size(), 32);
    handles.insert(handle);
    EXPECT_TRUE(registry_.Unregister(handle).ok());
  }
  EXPECT_EQ(handles.size(), 100);
  for (const std::string& guess : {std::string(), object_.name(), std::string(32, '0')}) {
    EXPECT_EQ(registry_.Find(guess, "key").status().code(), absl::StatusCode::kNotFound);
  }
}

TEST_F(SharedMemoryRegistryTest, RefusesMoreRegionsThanItsBound) {
  for (int i = 0; i < 3; ++i) RegisterOk();
  EXPECT_EQ(registry_.num_regions(), 3);
  EXPECT_EQ(registry_.Register(object_.name(), 100).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(registry_.num_regions(), 3);
}

TEST_F(SharedMemoryRegistryTest, LetsTheOneThatWasIdleLongestGiveWay) {
  const std::string idle = RegisterOk();
  const std::string used = RegisterOk();
  const std::string fresh = RegisterOk();
  clock_.Advance(absl::Minutes(5));
  EXPECT_TRUE(registry_.Find(used, "key").ok());
  EXPECT_TRUE(registry_.Find(fresh, "key").ok());
  clock_.Advance(absl::Minutes(5));
  RegisterOk();
  EXPECT_FALSE(registry_.Find(idle, "key").ok());
  EXPECT_TRUE(registry_.Find(used, "key").ok());
  EXPECT_TRUE(registry_.Find(fresh, "key").ok());
  EXPECT_EQ(registry_.Register(object_.name(), 100).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(SharedMemoryRegistryTest, KeepsNothingOfARegistrationThatFails) {
  EXPECT_FALSE(registry_.Register("/attend-nobody-made-this-one", 1).ok());
  EXPECT_FALSE(registry_.Register(object_.name(), 101).ok());
  EXPECT_EQ(registry_.num_regions(), 0);
}

}  // namespace
}  // namespace attend
