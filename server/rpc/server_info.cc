#include "server/rpc/server_info.h"

#include <array>
#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/attention/attention.h"
#include "core/base/dtype.h"
#include "core/base/tensor.h"
#include "server/wire/tensor.h"

namespace attend {

namespace {

// All zeros: legal as a tensor of any dtype.
constexpr std::array<std::byte, 64> kZeros{};

TensorView Zeros(DType dtype, Dims shape) {
  return TensorView::Dense(dtype, std::move(shape), kZeros.data());
}

// A problem of one query and one key that uses no option.
AttentionArgs PlainArgs(DType dtype) {
  AttentionArgs args;
  args.query = Zeros(dtype, {1, 1, 1, 1});
  args.key = Zeros(dtype, {1, 1, 1, 1});
  args.value = Zeros(dtype, {1, 1, 1, 1});
  return args;
}

bool IsComputed(const AttentionArgs& args) {
  const absl::StatusOr<AttentionProblem> problem = AttentionProblem::Create(args);
  return problem.ok() && CheckSupported(*problem).ok();
}

// An option by the name of its field in the API, and how to ask for it.
struct Option {
  absl::string_view name;
  void (*use)(AttentionArgs& args);
};

constexpr Option kOptions[] = {
    {"scale", [](AttentionArgs& args) { args.options.scale = 0.5f; }},
    {"softcap", [](AttentionArgs& args) { args.options.softcap = 1.0f; }},
    {"causal", [](AttentionArgs& args) { args.options.causal = true; }},
    {"alignment", [](AttentionArgs& args) { args.options.alignment = Alignment::kLast; }},
    {"query_offsets",
     [](AttentionArgs& args) {
       args.options.alignment = Alignment::kOffsets;
       args.options.query_offsets = {0};
     }},
    {"window_left", [](AttentionArgs& args) { args.options.window_left = 0; }},
    {"window_right", [](AttentionArgs& args) { args.options.window_right = 0; }},
    {"alibi_slopes",
     [](AttentionArgs& args) { args.options.alibi_slopes = Zeros(DType::kFloat32, {1}); }},
    {"sinks", [](AttentionArgs& args) { args.options.sinks = Zeros(DType::kFloat32, {1}); }},
    {"block_mask",
     [](AttentionArgs& args) {
       args.options.block_mask.emplace().blocks = Zeros(DType::kBool, {1, 1});
     }},
    {"layout", [](AttentionArgs& args) { args.layout = Layout::kBatchLengthHeads; }},
    {"query_lengths", [](AttentionArgs& args) { args.query_lengths = {0}; }},
    {"kv_lengths", [](AttentionArgs& args) { args.kv_lengths = {0}; }},
    {"boolean_mask",
     [](AttentionArgs& args) {
       args.boolean_mask = Zeros(DType::kBool, {1, 1});
     }},
    {"additive_mask",
     [](AttentionArgs& args) {
       args.additive_mask = Zeros(DType::kFloat32, {1, 1});
     }},
    {"dtype", [](AttentionArgs& args) { args.output.dtype = DType::kBFloat16; }},
    {"lse", [](AttentionArgs& args) { args.output.lse = true; }},
    {"weights", [](AttentionArgs& args) { args.output.weights = true; }},
    {"scores", [](AttentionArgs& args) { args.output.scores = ScoreStage::kBiased; }},
};

void AddOptions(v1::ServerInfo& info) {
  for (const Option& option : kOptions) {
    AttentionArgs args = PlainArgs(DType::kFloat32);
    option.use(args);
    if (IsComputed(args)) info.add_options(std::string(option.name));
  }
  // What the server itself does, whatever the kernels offer.
  info.add_options("priority");
  info.add_options("timeout");
}

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
}

}  // namespace

v1::ServerInfo MakeServerInfo(const ServerFacts& facts) {
  v1::ServerInfo info;
  info.set_version(facts.version);
  info.set_server(facts.server_name);
  info.set_cpu_target(CpuTarget());
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (IsComputed(PlainArgs(dtype))) info.add_dtypes(ToProto(dtype));
  }
  AddOptions(info);
  info.set_compute_threads(facts.compute_threads);
  FillLimits(facts, *info.mutable_limits());
  return info;
}

}  // namespace attend
