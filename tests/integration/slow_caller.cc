// Calls Attend with a request that takes long, for a test that kills this process meanwhile.
//
//   attend_slow_caller TARGET
#include "tests/support/calls.h"
#include "tests/support/requests.h"
#include "tests/support/server_process.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  using namespace attend::testing;
  const auto stub = attend::v1::AttentionService::NewStub(NewChannel(argv[1]));
  return Attend(*stub, SlowRequest()).status.ok() ? 0 : 1;
}
