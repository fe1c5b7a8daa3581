#include "core/executor/cpu_limits.h"

#include <cmath>
#include <gtest/gtest.h>
#include <sched.h>
#include <thread>

namespace attend {
namespace {

TEST(ParseCpuMax, ReadsQuotaAndPeriod) {
  EXPECT_EQ(ParseCpuMax("150000 100000"), 1.5);
  EXPECT_EQ(ParseCpuMax("150000 100000\n"), 1.5);
  EXPECT_EQ(ParseCpuMax("50000 100000\n"), 0.5);
  EXPECT_EQ(ParseCpuMax("400000 50000"), 8.0);
  EXPECT_EQ(ParseCpuMax("1000 1000000"), 0.001);
}

TEST(ParseCpuMax, FindsNoQuotaWhereThereIsNone) {
  EXPECT_EQ(ParseCpuMax("max 100000\n"), std::nullopt);
  EXPECT_EQ(ParseCpuMax("-1\n 100000\n"), std::nullopt);  // as cgroup v1 says it
}

TEST(ParseCpuMax, ReadsNothingFromOtherTexts) {
  for (const char* text : {"", "\n", "100000", "1 2 3", "a b", "100000 0", "0 100000", "nan 1",
                           "1 nan", "-5 100000", "100000 -5", "max", "1e5x 10", "0x10 16 "}) {
    const auto quota = ParseCpuMax(text);
    // What strtod reads as a number, such as hexadecimal, is one.
    if (quota.has_value()) {
      EXPECT_GT(*quota, 0) << text;
      EXPECT_STREQ(text, "0x10 16 ");
    }
  }
}

TEST(UsableCpus, IsWithinAffinityAndQuota) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  const int cpus = UsableCpus();
  EXPECT_GE(cpus, 1);
  EXPECT_LE(cpus, CPU_COUNT(&set));
  const auto quota = CgroupCpuQuota();
  if (quota.has_value()) {
    EXPECT_GT(*quota, 0);
    EXPECT_LE(cpus, std::max(1.0, std::ceil(*quota)));
  } else {
    EXPECT_EQ(cpus, CPU_COUNT(&set));
  }
}

TEST(UsableCpus, IsOneWhereTheAffinityMaskHasOneCpu) {  // pitfalls B66, B67
  int cpus = 0;
  // Affinity is a thread's: a thread of its own leaves the others as they are.
  std::thread([&cpus] {
    cpu_set_t set;
    ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    int first = 0;
    while (!CPU_ISSET(first, &set)) ++first;
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
    cpus = UsableCpus();
  }).join();
  EXPECT_EQ(cpus, 1);
}

}  // namespace
}  // namespace attend
