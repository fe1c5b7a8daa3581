// What a server tells about itself.
#ifndef ATTEND_SERVER_RPC_SERVER_INFO_H_
#define ATTEND_SERVER_RPC_SERVER_INFO_H_

#include <cstdint>
#include <string>

#include "attend/v1/attention.pb.h"
#include "core/base/attention_problem.h"

namespace attend {

struct ServerFacts {
  std::string version;      // of the build
  std::string server_name;  // of this server among others
  int compute_threads = 0;
  AttentionLimits limits;
  std::int64_t max_message_bytes = 0;
  std::int64_t max_queued_requests = 0;
  std::int64_t max_streams_per_connection = 0;
  std::int64_t max_queued_bytes = 0;
  std::int64_t max_stream_requests = 0;
};

// The answer to GetServerInfo. The CPU target is the one that the kernels in this process use.
v1::ServerInfo MakeServerInfo(const ServerFacts& facts);

}  // namespace attend

#endif  // ATTEND_SERVER_RPC_SERVER_INFO_H_
