#include "tests/bench/serve/echo_server.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <grpcpp/grpcpp.h>
#include <vector>

#include "attend/v1/attention.grpc.pb.h"
#include "tests/bench/serve/raw_client.h"
#include "tests/support/wait.h"

namespace attend::bench {

namespace {

// A request begins with the size of its answer, in this machine's byte order.
constexpr std::size_t kHeaderBytes = sizeof(std::int64_t);

// Of a message that may be cut anywhere.
std::int64_t ReadHeader(const std::vector<grpc::Slice>& slices) {
  unsigned char header[kHeaderBytes] = {};
  std::size_t done = 0;
  for (const grpc::Slice& slice : slices) {
    const std::size_t taken = std::min(slice.size(), kHeaderBytes - done);
    std::memcpy(header + done, slice.begin(), taken);
    done += taken;
    if (done == kHeaderBytes) break;
  }
  std::int64_t size = 0;
  std::memcpy(&size, header, kHeaderBytes);
  return size;
}

class EchoService final
    : public v1::AttentionService::WithRawCallbackMethod_Attend<v1::AttentionService::Service> {
 public:
  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    std::vector<grpc::Slice> slices;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (!request->Dump(&slices).ok()) {
      reactor->Finish(grpc::Status(grpc::StatusCode::INTERNAL, "cannot read the message"));
      return reactor;
    }
    auto left = static_cast<std::size_t>(ReadHeader(slices));
    std::vector<grpc::Slice> answer;
    for (const grpc::Slice& slice : slices) {
      if (left == 0) break;
      const std::size_t taken = std::min(left, slice.size());
      answer.push_back(slice.sub(0, taken));
      left -= taken;
    }
    *response = grpc::ByteBuffer(answer.data(), answer.size());
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

}  // namespace

grpc::ByteBuffer EchoRequest(std::int64_t request_bytes, std::int64_t answer_bytes) {
  std::string bytes(static_cast<std::size_t>(request_bytes), '\x5a');
  std::memcpy(bytes.data(), &answer_bytes, kHeaderBytes);
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

void RunEchoServer(const std::string& port_file) {
  EchoService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) Die("the echo server cannot listen on 127.0.0.1");
  const std::string temporary = port_file + ".tmp";
  std::ofstream(temporary) << port << "\n";
  std::rename(temporary.c_str(), port_file.c_str());  // so that who sees it sees all of it
  server->Wait();
  std::exit(0);
}

EchoServer::EchoServer() {
  const std::string port_file = folder_.PathOf("port");
  process_ = std::make_unique<testing::ChildProcess>(
      std::vector<std::string>{"/proc/self/exe", "--echo-server", port_file});
  int port = 0;
  testing::WaitUntil(
      [&] { return bool(std::ifstream(port_file) >> port) || !process_->Running(); });
  if (port == 0) Die("the echo server does not start:\n" + process_->Stderr());
  tcp_target_ = "127.0.0.1:" + std::to_string(port);
}

}  // namespace attend::bench
