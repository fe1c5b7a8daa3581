#include "server/process/grpc_server.h"

#include <algorithm>
#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/process/listen_failure.h"
#include "server/process/unix_socket.h"
#include "server/settings/address.h"

namespace attend {
namespace {

int ToMilliseconds(absl::Duration duration) {
  return static_cast<int>(
      std::min<std::int64_t>(absl::ToInt64Milliseconds(duration), std::numeric_limits<int>::max()));
}

// A small compressed message inflates past every limit before gRPC refuses it.
void RefuseCompression(grpc::ServerBuilder& builder) {
  for (int i = GRPC_COMPRESS_NONE + 1; i < GRPC_COMPRESS_ALGORITHMS_COUNT; ++i) {
    builder.SetCompressionAlgorithmSupportStatus(static_cast<grpc_compression_algorithm>(i), false);
  }
}

void SetLimits(const Settings& settings, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(settings.max_message_bytes));
  builder.SetMaxSendMessageSize(static_cast<int>(settings.max_message_bytes));
  grpc::ResourceQuota quota("attend");
  quota.Resize(static_cast<std::size_t>(settings.memory_quota_bytes));
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, settings.max_streams_per_connection);
  // gRPC's default of 300 s cuts off clients that keep their idle connections alive.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             ToMilliseconds(settings.keepalive_min_ping_interval));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Calls that run when a connection's time is over are not cut short: gRPC's default grace.
  if (settings.max_connection_age > absl::ZeroDuration()) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                               ToMilliseconds(settings.max_connection_age));
  }
  // A port that is taken is an error, not a port to share.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

// Why the server does not listen. gRPC takes the addresses in their order and stops at the first
// that it cannot have: that one's port stays at 0.
absl::Status NotListening(const std::vector<Address>& addresses, const std::vector<int>& ports) {
  const auto failed = std::find(ports.begin(), ports.end(), 0) - ports.begin();
  if (failed == std::ssize(ports)) return absl::UnavailableError("gRPC cannot start a server");
  const Address& address = addresses[static_cast<std::size_t>(failed)];
  const std::optional<std::string> why = FindListenFailure(address);
  if (why.has_value()) return absl::UnavailableError(absl::StrCat("listen: ", *why));
  return absl::UnavailableError(
      absl::StrCat("listen: cannot listen on ", FormatAddress(address),
                   ", for a reason that is gone by now; start the server again"));
}

absl::StatusOr<std::vector<Address>> PrepareAddresses(const Settings& settings) {
  std::vector<Address> addresses;
  for (const std::string& text : settings.listen) {
    absl::StatusOr<Address> address = ParseAddress(text);
    if (!address.ok()) return address.status();
    if (address->is_unix()) {
      if (absl::Status status = FreeUnixSocketPath(address->path); !status.ok()) return status;
    }
    addresses.push_back(*std::move(address));
  }
  return addresses;
}

}  // namespace

absl::StatusOr<GrpcServer> StartGrpcServer(const Settings& settings,
                                           const std::vector<grpc::Service*>& services) {
  absl::StatusOr<std::vector<Address>> addresses = PrepareAddresses(settings);
  if (!addresses.ok()) return addresses.status();
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  RefuseCompression(builder);
  SetLimits(settings, builder);
  std::vector<int> ports(addresses->size(), 0);
  for (std::size_t i = 0; i < ports.size(); ++i) {
    builder.AddListeningPort(FormatAddress((*addresses)[i]), grpc::InsecureServerCredentials(),
                             &ports[i]);
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  GrpcServer started;
  started.server = builder.BuildAndStart();
  if (started.server == nullptr) return NotListening(*addresses, ports);
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (!(*addresses)[i].is_unix()) (*addresses)[i].port = ports[i];
    started.addresses.push_back(FormatAddress((*addresses)[i]));
  }
  return started;
}

}  // namespace attend
