#include "client/cli/attention_flags.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/tensor_files.h"
#include "core/base/status.h"

namespace attend::cli {

namespace {

CLI::IsMember IsDType() { return CLI::IsMember({"float32", "bfloat16", "float16"}); }

DType ParseDType(const std::string& name) {
  if (name == "bfloat16") return DType::kBFloat16;
  return name == "float16" ? DType::kFloat16 : DType::kFloat32;
}

Layout ParseLayout(const std::string& name) {
  if (name == "packed") return Layout::kPacked;
  return name == "batch-length-heads" ? Layout::kBatchLengthHeads : Layout::kBatchHeadsLength;
}

Alignment ParseAlignment(const std::string& name) {
  if (name == "last") return Alignment::kLast;
  return name == "offsets" ? Alignment::kOffsets : Alignment::kFirst;
}

// One of query, key and value: from its own flag, else from --input, else left alone.
absl::Status ApplyInput(const AttentionFlags& flags, const std::string& own,
                        const std::string& name, AttentionInput* input, TensorView* view) {
  if (own.empty() && flags.input.empty()) return absl::OkStatus();
  absl::StatusOr<Tensor> tensor =
      own.empty() ? ReadNamedTensor(flags.input, {name, name.substr(0, 1)}, &input->notes)
                  : ReadTensor(own, &input->notes);
  if (tensor.ok() && !flags.dtype.empty()) {
    tensor = ConvertFloats(*tensor, ParseDType(flags.dtype), "--" + name);
  }
  if (!tensor.ok()) return tensor.status();
  *view = input->Keep(*std::move(tensor));
  return absl::OkStatus();
}

absl::Status ApplyOptional(absl::StatusOr<Tensor> tensor, AttentionInput* input,
                           std::optional<TensorView>* view) {
  if (!tensor.ok()) return tensor.status();
  *view = input->Keep(*std::move(tensor));
  return absl::OkStatus();
}

// A file for an option, unless none is named.
absl::Status ApplyFile(const std::string& spec, AttentionInput* input,
                       std::optional<TensorView>* view) {
  if (spec.empty()) return absl::OkStatus();
  return ApplyOptional(ReadTensor(spec, &input->notes), input, view);
}

absl::Status ApplyNumbers(const std::string& spec, AttentionInput* input,
                          std::optional<TensorView>* view) {
  if (spec.empty()) return absl::OkStatus();
  return ApplyOptional(ReadTensorOrNumbers(spec, &input->notes), input, view);
}

absl::Status ApplyBlockMask(const AttentionFlags& flags, AttentionInput* input) {
  const std::pair<const char*, std::optional<std::int64_t>> sizes[] = {
      {"--block-size", flags.block_size},
      {"--query-block-size", flags.query_block_size},
      {"--key-block-size", flags.key_block_size}};
  if (flags.block_mask.empty()) {
    for (const auto& [flag, size] : sizes) {
      if (size.has_value()) return InvalidField(flag, "does nothing without --block-mask");
    }
    return absl::OkStatus();
  }
  absl::StatusOr<Tensor> blocks = ReadTensor(flags.block_mask, &input->notes);
  if (!blocks.ok()) return blocks.status();
  BlockMask& mask = input->args.options.block_mask.emplace();
  const std::int64_t both = flags.block_size.value_or(mask.query_block_size);
  mask.query_block_size = flags.query_block_size.value_or(both);
  mask.key_block_size = flags.key_block_size.value_or(both);
  mask.blocks = input->Keep(*std::move(blocks));
  return absl::OkStatus();
}

absl::Status ApplyTensors(const AttentionFlags& flags, AttentionInput* input) {
  AttentionArgs& args = input->args;
  absl::Status status = ApplyInput(flags, flags.query, "query", input, &args.query);
  status.Update(ApplyInput(flags, flags.key, "key", input, &args.key));
  status.Update(ApplyInput(flags, flags.value, "value", input, &args.value));
  status.Update(ApplyFile(flags.boolean_mask, input, &args.boolean_mask));
  status.Update(ApplyFile(flags.additive_mask, input, &args.additive_mask));
  status.Update(ApplyBlockMask(flags, input));
  status.Update(ApplyNumbers(flags.alibi_slopes, input, &args.options.alibi_slopes));
  status.Update(ApplyNumbers(flags.sinks, input, &args.options.sinks));
  return status;
}

void AddInputFlags(CLI::App* app, AttentionFlags* flags) {
  constexpr const char* kGroup =
      "Inputs (FILE.npy, FILE.safetensors or FILE.safetensors:TENSOR; float64 is rounded to "
      "float32, with a note on standard error, or in \"notes\" with --json)";
  app->add_option("--query", flags->query, "Queries")->group(kGroup);
  app->add_option("--key", flags->key, "Keys")->group(kGroup);
  app->add_option("--value", flags->value, "Values")->group(kGroup);
  app->add_option("--input", flags->input,
                  "FILE.safetensors that holds query, key and value (or q, k and v)")
      ->group(kGroup);
  app->add_option("--layout", flags->layout,
                  "Axis order of query, key, value and output; packed is [tokens, heads, dim] "
                  "(default: batch-heads-length)")
      ->check(CLI::IsMember({"batch-heads-length", "batch-length-heads", "packed"}))
      ->group(kGroup);
  app->add_option("--query-lengths", flags->query_lengths,
                  "Queries of each item, as N,N,...; required with --layout packed")
      ->delimiter(',')
      ->group(kGroup);
  app->add_option("--kv-lengths", flags->kv_lengths, "Keys of each item, likewise")
      ->delimiter(',')
      ->group(kGroup);
  app->add_option("--dtype", flags->dtype, "Round query, key and value to this type first")
      ->check(IsDType())
      ->group(kGroup);
  app->add_option("--output-dtype", flags->output_dtype, "Of the output (default: the query's)")
      ->check(IsDType())
      ->group(kGroup);
}

void AddMaskFlags(CLI::App* app, AttentionFlags* flags) {
  constexpr const char* kGroup = "Which keys a query sees";
  // A bound std::optional<bool> would be set to false where the flag is not given, and a function
  // of a count is called by CLI11 in a way that throws past it for what is no number.
  CLI::Option* causal = app->add_flag_callback(
      "--causal", [flags] { flags->causal = true; }, "Only keys up to the query's own position");
  CLI::Option* not_causal = app->add_flag_callback(
      "--no-causal", [flags] { flags->causal = false; },
      "All keys, where an example says --causal");
  not_causal->excludes(causal);
  causal->group(kGroup);
  not_causal->group(kGroup);
  app->add_option("--alignment", flags->alignment,
                  "Where query 0 stands on the key axis: first (at key 0, the default), last (the "
                  "last query at the last key), or offsets")
      ->check(CLI::IsMember({"first", "last", "offsets"}))
      ->group(kGroup);
  app->add_option("--query-offsets", flags->query_offsets,
                  "One for all items or one for each, as N,N,...; means --alignment offsets")
      ->delimiter(',')
      ->group(kGroup);
  app->add_option("--window-left", flags->window_left,
                  "Keys seen to the left of the query's own (default: no limit)")
      ->group(kGroup);
  app->add_option("--window-right", flags->window_right, "Keys seen to the right, likewise")
      ->group(kGroup);
  app->add_option("--boolean-mask", flags->boolean_mask, "File of a BOOL mask; true = may attend")
      ->group(kGroup);
  app->add_option("--block-mask", flags->block_mask,
                  "File of a BOOL mask over blocks of queries and keys, [..., query blocks, key "
                  "blocks]; true = computed")
      ->group(kGroup);
  app->add_option("--block-size", flags->block_size,
                  "Queries, and keys, of a block: a positive multiple of 64 (default: 64)")
      ->group(kGroup);
  app->add_option("--query-block-size", flags->query_block_size,
                  "Queries of a block, where --block-size is for keys alone")
      ->group(kGroup);
  app->add_option("--key-block-size", flags->key_block_size, "Keys of a block, likewise")
      ->group(kGroup);
}

void AddScoreFlags(CLI::App* app, AttentionFlags* flags) {
  constexpr const char* kGroup = "How keys are scored";
  app->add_option("--scale", flags->scale, "Factor on q.k (default: 1/sqrt(head_dim))")
      ->group(kGroup);
  app->add_option("--softcap", flags->softcap,
                  "Scores become softcap * tanh(score / softcap); 0 is off")
      ->group(kGroup);
  app->add_option("--additive-mask", flags->additive_mask,
                  "File of a mask that is added to the scores; -inf excludes the key")
      ->group(kGroup);
  app->add_option("--alibi-slopes", flags->alibi_slopes, "A file, or one number a head, as X,X,...")
      ->group(kGroup);
  app->add_option("--sinks", flags->sinks,
                  "A file, or one logit a head, as X,X,...: joins the softmax's denominator")
      ->group(kGroup);
}

}  // namespace

ScoreStage ParseScoreStage(const std::string& name) {
  if (name == "scaled") return ScoreStage::kScaled;
  if (name == "capped") return ScoreStage::kCapped;
  return name == "biased" ? ScoreStage::kBiased : ScoreStage::kNone;
}

void AddAttentionFlags(CLI::App* app, AttentionFlags* flags) {
  flags->app = app;
  AddInputFlags(app, flags);
  AddMaskFlags(app, flags);
  AddScoreFlags(app, flags);
}

absl::Status CheckInputsGiven(const AttentionFlags& flags) {
  if (!flags.input.empty()) return absl::OkStatus();
  const std::pair<const char*, const std::string*> inputs[] = {
      {"--query", &flags.query}, {"--key", &flags.key}, {"--value", &flags.value}};
  for (const auto& [flag, given] : inputs) {
    if (given->empty()) {
      return InvalidField(flag,
                          "is missing; give --query, --key and --value, or --input with all "
                          "three in one file");
    }
  }
  return absl::OkStatus();
}

absl::Status ApplyFlags(const AttentionFlags& flags, AttentionInput* input) {
  absl::Status status = ApplyTensors(flags, input);
  if (!status.ok()) return status;
  AttentionArgs& args = input->args;
  AttentionOptions& options = args.options;
  if (flags.scale.has_value()) options.scale = flags.scale;
  if (flags.softcap.has_value()) options.softcap = *flags.softcap;
  if (flags.causal.has_value()) options.causal = *flags.causal;
  if (!flags.query_offsets.empty()) {
    options.query_offsets = flags.query_offsets;
    options.alignment = Alignment::kOffsets;
  }
  if (!flags.alignment.empty()) options.alignment = ParseAlignment(flags.alignment);
  if (flags.window_left.has_value()) options.window_left = flags.window_left;
  if (flags.window_right.has_value()) options.window_right = flags.window_right;
  if (!flags.layout.empty()) args.layout = ParseLayout(flags.layout);
  if (!flags.query_lengths.empty()) args.query_lengths = flags.query_lengths;
  if (!flags.kv_lengths.empty()) args.kv_lengths = flags.kv_lengths;
  if (!flags.output_dtype.empty()) args.output.dtype = ParseDType(flags.output_dtype);
  return absl::OkStatus();
}

}  // namespace attend::cli
