#include "server/shared_memory/shared_memory_region.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "tests/support/shared_memory_object.h"

namespace attend {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

std::shared_ptr<SharedMemoryRegion> OpenOk(const testing::SharedMemoryObject& object,
                                           std::uint64_t size) {
  const auto region = SharedMemoryRegion::Open(object.name(), size);
  EXPECT_TRUE(region.ok()) << region.status();
  return region.ok() ? *region : nullptr;
}

std::string FieldOf(const absl::Status& status) {
  const auto violation = GetFieldViolation(status);
  return violation.has_value() ? violation->field : "none";
}

TEST(SharedMemoryRegion, ReadsAndWritesTheCallersBytes) {
  testing::SharedMemoryObject object(100);
  const std::vector<std::byte> sent(30, std::byte{7});
  object.Write(10, sent);
  const auto region = OpenOk(object, 100);
  std::vector<std::byte> got(30);
  ASSERT_TRUE(region->Read(10, got, "key").ok());
  EXPECT_EQ(got, sent);
  const std::vector<std::byte> answer(5, std::byte{9});
  ASSERT_TRUE(region->Write(95, answer, "output").ok());
  EXPECT_EQ(object.Read(95, 5), answer);
  EXPECT_EQ(region->read_bytes(), 30);
  EXPECT_EQ(region->written_bytes(), 5);
}

TEST(SharedMemoryRegion, RefusesNamesOfOtherForms) {
  for (const std::string& name :
       {std::string(), std::string("/attend-short"), std::string("attend-0123456789abcdef"),
        std::string("/other-0123456789abcdef"), std::string("/attend-../../etc/passwd-and-more"),
        std::string("/attend-with space 0123456789"),
        std::string("/attend-zero\0zero0123456789", 27),
        absl::StrCat("/attend-", std::string(201, 'a')),
        std::string("/dev/shm/attend-0123456789abcdef")}) {
    const auto region = SharedMemoryRegion::Open(name, 1);
    EXPECT_EQ(region.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(FieldOf(region.status()), "name");
  }
}

TEST(SharedMemoryRegion, SaysWhereToLookForAnObjectThatItDoesNotSee) {  // B22
  const auto region = SharedMemoryRegion::Open("/attend-nobody-made-this-one", 1);
  EXPECT_EQ(region.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(region.status().message()), HasSubstr("--ipc"));
}

TEST(SharedMemoryRegion, RefusesMoreBytesThanTheObjectHas) {  // B18
  testing::SharedMemoryObject object(100);
  for (const std::uint64_t size : {std::uint64_t{101}, kHuge, std::uint64_t{0}}) {
    const auto region = SharedMemoryRegion::Open(object.name(), size);
    EXPECT_EQ(region.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(FieldOf(region.status()), "size_bytes");
  }
}

TEST(SharedMemoryRegion, RefusesAnObjectThatMayNotBeOpened) {
  testing::SharedMemoryObject object(100, 0000);
  const auto open_as_nobody = [&] {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && seteuid(kNobody) != 0) std::_Exit(2);  // root may open everything
    const absl::Status status = SharedMemoryRegion::Open(object.name(), 100).status();
    std::_Exit(absl::IsPermissionDenied(status) ? 0 : 1);
  };
  EXPECT_EXIT(open_as_nobody(), ::testing::ExitedWithCode(0), "");
}

TEST(SharedMemoryRegion, DoesNotWaitForAnOwnerWhoHoldsALease) {
  testing::SharedMemoryObject object(100);
  ASSERT_TRUE(object.Lease());
  EXPECT_EQ(SharedMemoryRegion::Open(object.name(), 100).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(SharedMemoryRegion, ChecksRangesWithoutOverflow) {  // B16
  testing::SharedMemoryObject object(100);
  const auto region = OpenOk(object, 64);
  EXPECT_TRUE(region->CheckRange(0, 64, "key").ok());
  EXPECT_TRUE(region->CheckRange(64, 0, "key").ok());
  EXPECT_TRUE(region->CheckRange(63, 1, "key").ok());
  EXPECT_EQ(FieldOf(region->CheckRange(0, 65, "key")), "key.size_bytes");
  EXPECT_EQ(FieldOf(region->CheckRange(1, 64, "key")), "key.size_bytes");
  EXPECT_EQ(FieldOf(region->CheckRange(65, 0, "key")), "key.offset");
  EXPECT_EQ(FieldOf(region->CheckRange(kHuge - 63, 128, "key")), "key.offset");
  EXPECT_EQ(FieldOf(region->CheckRange(1, kHuge, "key")), "key.size_bytes");
  EXPECT_EQ(FieldOf(region->CheckRange(kHuge, kHuge, "key")), "key.offset");
}

TEST(SharedMemoryRegion, AnswersWithAnErrorWhenTheObjectIsCutOff) {  // B18
  testing::SharedMemoryObject object(100);
  const auto region = OpenOk(object, 100);
  object.Resize(50);
  std::vector<std::byte> bytes(20);
  EXPECT_TRUE(region->Read(10, bytes, "key").ok());
  for (const std::uint64_t offset : {40, 50, 80}) {
    EXPECT_EQ(FieldOf(region->Read(offset, bytes, "key")), "key") << offset;
    EXPECT_EQ(FieldOf(region->Write(offset, bytes, "output.output_target")),
              "output.output_target");
  }
  EXPECT_EQ(object.size(), 50);  // and does not grow at the host's expense
}

TEST(SharedMemoryRegion, SurvivesAnObjectThatIsCutOffAndGrownWhileItReads) {
  constexpr std::size_t kSize = 1 << 20;
  testing::SharedMemoryObject object(kSize);
  const auto region = OpenOk(object, kSize);
  std::atomic<bool> stop{false};
  std::thread vandal([&] {
    while (!stop) {
      object.Resize(0);
      object.Resize(kSize);
    }
  });
  std::vector<std::byte> bytes(kSize);
  for (int i = 0; i < 200; ++i) {
    const absl::Status read = region->Read(0, bytes, "key");
    const absl::Status write = region->Write(0, bytes, "output");
    for (const absl::Status& status : {read, write}) {
      EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    }
  }
  stop = true;
  vandal.join();
}

TEST(SharedMemoryRegion, NamesNothingOfTheHostInItsErrors) {  // B19
  testing::SharedMemoryObject object(100);
  const auto region = OpenOk(object, 100);
  object.Resize(1);
  std::vector<std::byte> bytes(20);
  for (const absl::Status& status :
       {region->Read(50, bytes, "key"), region->CheckRange(200, 1, "key"),
        SharedMemoryRegion::Open("/attend-nobody-made-this-one", 1).status()}) {
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("attend-")));
  }
}

}  // namespace
}  // namespace attend
