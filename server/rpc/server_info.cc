#include "server/rpc/server_info.h"

#include <string>

#include "absl/strings/string_view.h"
#include "core/attention/attention.h"
#include "core/base/dtype.h"
#include "server/wire/received_request.h"
#include "server/wire/tensor.h"

namespace attend {

namespace {

// What an Attend request may ask for, by the names of the API's fields.
constexpr absl::string_view kOptions[] = {
    "scale",        "softcap",      "causal",        "alignment",  "query_offsets", "window_left",
    "window_right", "alibi_slopes", "sinks",         "block_mask", "layout",        "query_lengths",
    "kv_lengths",   "boolean_mask", "additive_mask", "dtype",      "lse",           "weights",
    "scores",       "priority",     "timeout",
};

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

void FillLimits(const ServerFacts& facts, v1::Limits& limits) {
  limits.set_max_message_bytes(facts.max_message_bytes);
  limits.set_max_head_dim(facts.limits.max_head_dim);
  limits.set_max_value_dim(facts.limits.max_value_dim);
  limits.set_max_heads(facts.limits.max_heads);
  limits.set_max_batch(facts.limits.max_batch);
  limits.set_max_length(facts.limits.max_length);
  limits.set_max_score_elements(facts.limits.max_score_elements);
  limits.set_max_queued_requests(facts.max_queued_requests);
  limits.set_max_streams_per_connection(facts.max_streams_per_connection);
  limits.set_max_queued_bytes(facts.max_queued_bytes);
  limits.set_max_stream_requests(facts.max_stream_requests);
  limits.set_max_skeleton_bytes(MaxSkeletonBytes(facts.limits));
}

}  // namespace

v1::ServerInfo MakeServerInfo(const ServerFacts& facts) {
  v1::ServerInfo info;
  info.set_version(facts.version);
  info.set_server(facts.server_name);
  info.set_cpu_target(CpuTarget());
  for (const DType dtype : kDTypes) info.add_dtypes(ToProto(dtype));
  for (const absl::string_view option : kOptions) info.add_options(std::string(option));
  info.set_compute_threads(facts.compute_threads);
  FillLimits(facts, *info.mutable_limits());
  return info;
}

}  // namespace attend
