// Looks for a request whose answer is wrong. libFuzzer calls this with bytes of its choice and
// keeps those that reach new code; `make fuzz` runs it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/fuzz/attention_properties.h"
#include "tests/fuzz/random_problem.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attend::testing::ByteSource bytes({data, size});
  const attend::testing::Request request = attend::testing::RandomProblem(bytes);
  const attend::testing::Request neighbour = attend::testing::RandomProblem(bytes);
  const std::string fault = attend::testing::FaultOf(request, neighbour);
  if (fault.empty()) return 0;
  std::cerr << fault << "\nrequest: " << Describe(request) << "\nneighbour: " << Describe(neighbour)
            << std::endl;
  std::abort();
}
