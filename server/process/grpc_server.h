// The gRPC server: its limits, and the addresses that it listens on.
#ifndef ATTEND_SERVER_PROCESS_GRPC_SERVER_H_
#define ATTEND_SERVER_PROCESS_GRPC_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/settings/settings.h"

namespace attend {

struct GrpcServer {
  std::unique_ptr<grpc::Server> server;
  std::vector<std::string> addresses;  // as in settings.listen, with the ports that were taken
};

// Starts to listen and to serve `services`, which must outlive the server, and reflection.
// Messages that are compressed are refused before they are inflated.
// Errors: UNAVAILABLE, naming the address and why, where it cannot be listened on; those of
// FreeUnixSocketPath.
absl::StatusOr<GrpcServer> StartGrpcServer(const Settings& settings,
                                           const std::vector<grpc::Service*>& services);

}  // namespace attend

#endif  // ATTEND_SERVER_PROCESS_GRPC_SERVER_H_
