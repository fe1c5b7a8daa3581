// attend::Client: attention computed by an attend server.
//
//   auto client = attend::Client::Create({.target = "127.0.0.1:50051"});
//   attend::AttentionArgs args;
//   args.query = attend::FloatTensorView(query, {1, 12, 512, 64});  // std::span<const float>
//   args.key = attend::FloatTensorView(key, {1, 12, 512, 64});
//   args.value = attend::FloatTensorView(value, {1, 12, 512, 64});
//   args.options.causal = true;
//   absl::StatusOr<attend::AttendResult> result = (*client)->Attend(args);
//   std::vector<float> output = result->output.ToFloats();
//
// What a request may say is told in core/base/attention_problem.h; connections, timeouts and
// retries in client/cpp/client_options.h; how to read an error in client/cpp/errors.h; how to split
// keys over several servers and merge their answers in core/base/merge.h.
#ifndef ATTEND_CLIENT_CPP_CLIENT_H_
#define ATTEND_CLIENT_CPP_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/client_options.h"
#include "client/cpp/errors.h"
#include "core/base/attention_problem.h"
#include "core/base/tensor.h"

namespace attend {

namespace client_internal {
class Cancellable;
}  // namespace client_internal

// A dense FLOAT32 view of `values`, which must hold exactly the shape's elements and outlive the
// call that reads it. Of another number of elements: a view of nothing, which Attend refuses by
// name.
TensorView FloatTensorView(std::span<const float> values, Dims shape);

// What happened to a request on the server.
struct AttendStats {
  std::chrono::nanoseconds queue{};    // from arrival to the start of compute
  std::chrono::nanoseconds compute{};  // from the start of compute to its end
  std::int32_t batch_size = 0;         // requests in compute when this one started, itself included
  std::int64_t dot_products = 0;       // query-key pairs computed, times query_heads
  std::int64_t flops = 0;              // 2 * (head_dim + value_dim) * dot_products
  std::string server;                  // name of the server that answered
};

// The answer to an Attend call. It owns its memory.
struct AttendResult {
  // [batch, query_heads, query_len, value_dim], in the axis order and dtype asked for.
  Tensor output;
  // If asked for. FLOAT32 [batch, query_heads, query_len]; packed: [tokens, query_heads].
  std::optional<Tensor> lse;
  // If asked for. FLOAT32 [batch, query_heads, query_len, kv_len].
  std::optional<Tensor> weights;
  std::optional<Tensor> scores;
  AttendStats stats;
};

// Bounds of a server on what a caller may send; each is inclusive. 0: the server did not say.
struct ServerLimits {
  std::int64_t max_message_bytes = 0;
  std::int64_t max_head_dim = 0;
  std::int64_t max_value_dim = 0;
  std::int64_t max_heads = 0;
  std::int64_t max_batch = 0;
  std::int64_t max_length = 0;  // tokens
  std::int64_t max_score_elements = 0;
  std::int64_t max_queued_requests = 0;
  std::int64_t max_streams_per_connection = 0;
  std::int64_t max_queued_bytes = 0;     // messages and working memory, over all callers
  std::int64_t max_skeleton_bytes = 0;   // of a request without the data of its tensors
  std::int64_t max_stream_requests = 0;  // of one stream, without an answer that was sent
};

struct ServerInfo {
  std::string version;               // such as "0.1.0"
  std::string server;                // its name
  std::string cpu_target;            // such as "AVX3_ZEN4"
  std::vector<DType> dtypes;         // of query, key and value
  std::vector<std::string> options;  // field names of the options it computes
  std::int32_t compute_threads = 0;
  ServerLimits limits;
};

enum class ServingStatus : std::uint8_t { kUnknown, kServing, kNotServing, kServiceUnknown };

// "SERVING", "NOT_SERVING", ...: as the health protocol spells it.
absl::string_view Name(ServingStatus status);

// The service that ClientOptions.watch_health watches.
inline constexpr absl::string_view kAttentionServiceName = "attend.v1.AttentionService";

// One asynchronous call. Cheap to copy; letting it go does not end the call.
class CallHandle {
 public:
  CallHandle() = default;

  // Gives the call up: its callback gets CANCELLED, or the result where that was on its way. Does
  // nothing for a call that has finished. Thread-safety: safe from any thread.
  void Cancel() const;

 private:
  friend class Client;
  using Call = client_internal::Cancellable;
  explicit CallHandle(std::weak_ptr<Call> call) : call_(std::move(call)) {}
  std::weak_ptr<Call> call_;
};

// A connection (or several) to a server.
//
// Thread-safety: all methods are safe from any thread, at the same time.
// Errors: a code of the server is passed on as it is; see errors.h for what can be read from it.
// INVALID_ARGUMENT, made here, for views, metadata or options that no request can be made of.
// RESOURCE_EXHAUSTED, made here, for a message past max_message_bytes, and where the host has no
// room for shared_memory_bytes. INTERNAL for an answer that makes no sense. UNAVAILABLE where no
// server is reachable. UNIMPLEMENTED where the server offers no streams, or no shared memory, and
// the options ask for them.
class Client {
 public:
  // Called exactly once for a call, on a thread of gRPC's or the client's: do not block in it, and
  // do not throw.
  using AttendCallback = std::function<void(absl::StatusOr<AttendResult>)>;

  // Does no input or output: the first call connects. INVALID_ARGUMENT names the option that is
  // wrong.
  static absl::StatusOr<std::unique_ptr<Client>> Create(ClientOptions options = {});

  // Cancels asynchronous calls that are still running and waits for their callbacks, so it must not
  // run in a callback. Blocking calls must have returned before.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Computes attention and waits for the answer. Views may be strided: what is sent is dense.
  absl::StatusOr<AttendResult> Attend(const AttentionArgs& args,
                                      const CallOptions& call_options = {});

  // The same without waiting. `args` and its memory are read before it returns. A request that
  // cannot be made calls `callback` before it returns, on the caller's thread.
  CallHandle AttendAsync(const AttentionArgs& args, AttendCallback callback,
                         const CallOptions& call_options = {});

  absl::StatusOr<ServerInfo> GetServerInfo(const CallOptions& call_options = {});

  // The state of a service, by its full name; "" asks for the server as a whole. NOT_FOUND for a
  // name that the server does not know. Health is asked for even where watch_health has stopped
  // other calls.
  absl::StatusOr<ServingStatus> CheckHealth(absl::string_view service = "",
                                            const CallOptions& call_options = {});

  // Calls `on_change` with the state now and after each change, on the caller's thread, until it
  // returns false (OK) or the call ends (its error; DEADLINE_EXCEEDED at the timeout). Without a
  // timeout in `call_options` there is none.
  absl::Status WatchHealth(absl::string_view service,
                           const std::function<bool(ServingStatus)>& on_change,
                           const CallOptions& call_options = {});

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend

#endif  // ATTEND_CLIENT_CPP_CLIENT_H_
