// Random requests, every way to compute them: what the fuzzer does, for some seeds.
#include <cstdint>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/attention_properties.h"
#include "tests/fuzz/random_problem.h"

namespace attend::testing {
namespace {

constexpr std::size_t kBytes = 256;  // more than two requests choose by

class AttentionProperties : public ::testing::TestWithParam<int> {};

TEST_P(AttentionProperties, HoldOfRandomRequests) {
  constexpr int kSeeds = 25;
  for (int i = 0; i < kSeeds; ++i) {
    const auto seed = static_cast<std::uint32_t>(GetParam() * kSeeds + i);
    std::mt19937 random(seed);
    std::vector<std::uint8_t> bytes(kBytes);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random() >> 24);
    ByteSource source(bytes);
    const Request request = RandomProblem(source);
    const Request neighbour = RandomProblem(source);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\nrequest: " + Describe(request) +
                 "\nneighbour: " + Describe(neighbour));
    ASSERT_EQ(FaultOf(request, neighbour), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AttentionProperties, ::testing::Range(0, 20));

}  // namespace
}  // namespace attend::testing
