// Makes requests that take long, for a test that kills this process meanwhile.
//
//   attend_slow_caller TARGET           calls Attend
//   attend_slow_caller TARGET REQUESTS  has so many in flight on one AttendStream
#include <cstdint>
#include <string>

#include "tests/support/calls.h"
#include "tests/support/requests.h"
#include "tests/support/server_process.h"

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) return 2;
  using namespace attend::testing;
  const auto stub = attend::v1::AttentionService::NewStub(NewChannel(argv[1]));
  if (argc == 2) return Attend(*stub, SlowRequest()).status.ok() ? 0 : 1;
  grpc::ClientContext context;
  const auto stream = stub->AttendStream(&context);
  for (std::uint64_t id = std::stoull(argv[2]); id > 0; --id) {
    attend::v1::AttendStreamRequest message;
    message.set_id(id);
    *message.mutable_attend() = SlowRequest();
    stream->Write(message);
  }
  attend::v1::AttendStreamResponse answer;
  while (stream->Read(&answer)) {
  }
  return stream->Finish().ok() ? 0 : 1;
}
