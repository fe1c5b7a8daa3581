// The flags that say what to compute, shared by `attend sdpa` and `attend explain`.
#ifndef ATTEND_CLIENT_CLI_ATTENTION_FLAGS_H_
#define ATTEND_CLIENT_CLI_ATTENTION_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/field_origins.h"
#include "client/cli/tensor_files.h"
#include "core/base/attention_problem.h"
#include "core/base/tensor.h"

namespace attend::cli {

// As given; what was not given is empty.
struct AttentionFlags {
  std::string input, query, key, value;
  std::string boolean_mask, additive_mask, block_mask;
  std::optional<std::int64_t> block_size;  // both of the next two, unless they are given
  std::optional<std::int64_t> query_block_size, key_block_size;
  std::string alibi_slopes, sinks;
  std::optional<float> scale;
  std::optional<float> softcap;
  std::optional<bool> causal;
  std::string alignment;
  std::vector<std::int64_t> query_offsets;
  std::optional<std::int64_t> window_left, window_right;
  std::string layout;
  std::vector<std::int64_t> query_lengths, kv_lengths;
  std::string dtype, output_dtype;

  FieldOrigins Origins() const { return app == nullptr ? FieldOrigins() : FieldOrigins(*app); }
  const CLI::App* app = nullptr;  // whose flags these are
};

void AddAttentionFlags(CLI::App* app, AttentionFlags* flags);

// A request together with the memory that its views point into.
struct AttentionInput {
  AttentionInput() = default;
  AttentionInput(const AttentionInput&) = delete;
  AttentionInput& operator=(const AttentionInput&) = delete;

  // Keeps a tensor for as long as this lives.
  TensorView Keep(Tensor tensor) { return tensors.emplace_back(std::move(tensor)).view(); }

  std::deque<Tensor> tensors;  // addresses stay
  Notes notes;
  AttentionArgs args;
};

// Reads the files into `input`: query, key and value where they are named, masks, slopes and sinks,
// and settles the options. What no flag speaks of stays as it is. Errors name the flag or the file.
absl::Status ApplyFlags(const AttentionFlags& flags, AttentionInput* input);

// INVALID_ARGUMENT that names the flag that is missing, unless query, key and value are all given.
absl::Status CheckInputsGiven(const AttentionFlags& flags);

// "scaled", "capped" or "biased"; anything else is none.
ScoreStage ParseScoreStage(const std::string& name);

}  // namespace attend::cli

#endif  // ATTEND_CLIENT_CLI_ATTENTION_FLAGS_H_
