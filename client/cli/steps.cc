#include "client/cli/steps.h"

#include <numeric>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/render.h"

namespace attend::cli {

namespace {

// The answers that the steps are read from.
struct Answers {
  Tensor products, scaled, capped, biased, weights, lse, output;
};

absl::StatusOr<Tensor> FetchScores(Client& client, AttentionArgs args, ScoreStage stage,
                                   const CallOptions& call_options) {
  args.output = {.scores = stage};
  absl::StatusOr<AttendResult> result = client.Attend(args, call_options);
  if (!result.ok()) return result.status();
  if (!result->scores.has_value()) return absl::InternalError("the answer has no scores");
  return *std::move(result->scores);
}

absl::Status FetchStage(Client& client, const AttentionArgs& args, ScoreStage stage,
                        const CallOptions& call_options, Tensor* target) {
  absl::StatusOr<Tensor> scores = FetchScores(client, args, stage, call_options);
  if (!scores.ok()) return scores.status();
  *target = *std::move(scores);
  return absl::OkStatus();
}

absl::Status FetchResult(Client& client, AttentionArgs args, const CallOptions& call_options,
                         Answers* answers) {
  args.output = {
      .dtype = DType::kFloat32, .lse = true, .weights = true, .scores = ScoreStage::kBiased};
  absl::StatusOr<AttendResult> result = client.Attend(args, call_options);
  if (!result.ok()) return result.status();
  if (!result->lse.has_value() || !result->weights.has_value() || !result->scores.has_value()) {
    return absl::InternalError("the answer lacks LSE, weights or scores");
  }
  answers->output = std::move(result->output);
  answers->lse = *std::move(result->lse);
  answers->weights = *std::move(result->weights);
  answers->biased = *std::move(result->scores);
  return absl::OkStatus();
}

absl::StatusOr<Answers> FetchAnswers(Client& client, const AttentionArgs& args,
                                     const CallOptions& call_options) {
  AttentionArgs unscaled = args;
  unscaled.options.scale = 1.0f;
  Answers answers;
  absl::Status status = FetchResult(client, args, call_options, &answers);
  if (status.ok()) {
    status = FetchStage(client, unscaled, ScoreStage::kScaled, call_options, &answers.products);
  }
  if (status.ok()) {
    status = FetchStage(client, args, ScoreStage::kScaled, call_options, &answers.scaled);
  }
  if (status.ok()) {
    status = FetchStage(client, args, ScoreStage::kCapped, call_options, &answers.capped);
  }
  if (!status.ok()) return status;
  return answers;
}

absl::Status CheckShapes(const AttentionProblem& problem, const Answers& answers) {
  const Dims scores = problem.score_shape();
  if (answers.products.shape == scores && answers.scaled.shape == scores &&
      answers.capped.shape == scores && answers.biased.shape == scores &&
      answers.weights.shape == scores && answers.lse.shape == problem.lse_shape() &&
      answers.output.shape == problem.output_shape()) {
    return absl::OkStatus();
  }
  return absl::InternalError("the server's answer has other shapes than asked for");
}

// `count` floats of a FLOAT32 tensor from an element on.
std::vector<float> Slice(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  const TensorView view = tensor.view();
  for (std::int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] = LoadFloat(view.dtype, view.at(begin + i));
  }
  return values;
}

// Row `row` of head `head` of a [heads, length, dim] view.
std::vector<float> RowOf(const TensorView& view, std::int64_t head, std::int64_t row) {
  std::vector<float> values;
  for (std::int64_t d = 0; d < view.shape[2]; ++d) {
    values.push_back(LoadFloat(
        view.dtype, view.at(head * view.strides[0] + row * view.strides[1] + d * view.strides[2])));
  }
  return values;
}

QuerySteps MakeQuerySteps(const AttentionProblem& problem, const Answers& answers,
                          std::int64_t item_index, std::int64_t head, std::int64_t row) {
  const AttentionItem& item = problem.items()[static_cast<std::size_t>(item_index)];
  const std::int64_t kv_head = head / problem.group_size();
  QuerySteps steps{.item = item_index,
                   .head = head,
                   .kv_head = kv_head,
                   .row = row,
                   .position = row + item.offset,
                   .query = RowOf(item.query, head, row)};
  for (std::int64_t key = 0; key < item.kv_len; ++key) {
    steps.keys.push_back(RowOf(item.key, kv_head, key));
    steps.values.push_back(RowOf(item.value, kv_head, key));
  }
  const std::int64_t begin =
      ((item_index * problem.query_heads() + head) * problem.query_len() + row) * problem.kv_len();
  steps.products = Slice(answers.products, begin, item.kv_len);
  steps.scaled = Slice(answers.scaled, begin, item.kv_len);
  steps.capped = Slice(answers.capped, begin, item.kv_len);
  steps.biased = Slice(answers.biased, begin, item.kv_len);
  steps.weights = Slice(answers.weights, begin, item.kv_len);
  steps.lse = Slice(answers.lse, problem.LseOffset(item_index, head, row), 1).front();
  steps.output =
      Slice(answers.output, problem.OutputOffset(item_index, head, row), problem.value_dim());
  return steps;
}

std::vector<std::string> Settings(const AttentionArgs& args, const AttentionProblem& problem) {
  const AttentionOptions& options = args.options;
  std::vector<std::string> settings = {absl::StrCat("scale ", FormatNumber(problem.scale()))};
  if (!options.scale.has_value()) settings.back() += " = 1/sqrt(head_dim)";
  if (options.softcap > 0) settings.push_back(absl::StrCat("softcap ", options.softcap));
  if (options.causal) settings.push_back("causal");
  if (options.alignment == Alignment::kLast) settings.push_back("alignment last");
  if (options.alignment == Alignment::kOffsets) settings.push_back("alignment offsets");
  if (options.window_left.has_value()) {
    settings.push_back(absl::StrCat("window left ", *options.window_left));
  }
  if (options.window_right.has_value()) {
    settings.push_back(absl::StrCat("window right ", *options.window_right));
  }
  if (options.alibi_slopes.has_value()) settings.push_back("ALiBi");
  if (options.block_mask.has_value()) settings.push_back("block mask");
  if (args.boolean_mask.has_value()) settings.push_back("boolean mask");
  if (args.additive_mask.has_value()) settings.push_back("additive mask");
  if (options.sinks.has_value()) settings.push_back("sinks");
  return settings;
}

std::string RenderQuery(const QuerySteps& steps, bool capped) {
  std::vector<std::string> header = {"key", "k", "q.k", "scaled"};
  if (capped) header.push_back("capped");
  header.insert(header.end(), {"biased", "weight", "v"});
  Table table(std::move(header));
  for (std::size_t key = 0; key < steps.keys.size(); ++key) {
    std::vector<std::string> cells = {absl::StrCat(key), FormatVector(steps.keys[key]),
                                      FormatNumber(steps.products[key]),
                                      FormatNumber(steps.scaled[key])};
    if (capped) cells.push_back(FormatNumber(steps.capped[key]));
    cells.push_back(FormatNumber(steps.biased[key]));
    cells.push_back(FormatNumber(steps.weights[key]));
    cells.push_back(FormatVector(steps.values[key]));
    table.AddRow(std::move(cells));
  }
  const float sum = std::accumulate(steps.weights.begin(), steps.weights.end(), 0.0f);
  return absl::StrCat("item ", steps.item, ", head ", steps.head, " (key/value head ",
                      steps.kv_head, "), query ", steps.row, " at position ", steps.position,
                      ": q = ", FormatVector(steps.query), "\n", table.ToString("  "),
                      "  weights sum to ", FormatNumber(sum), ", LSE ", FormatNumber(steps.lse),
                      "\n  output ", FormatVector(steps.output), "\n");
}

Json ToJson(const QuerySteps& steps) {
  Json keys = Json::array();
  for (const auto& key : steps.keys) keys.push_back(cli::ToJson(key));
  Json values = Json::array();
  for (const auto& value : steps.values) values.push_back(cli::ToJson(value));
  return {{"item", steps.item},
          {"head", steps.head},
          {"kv_head", steps.kv_head},
          {"query_index", steps.row},
          {"position", steps.position},
          {"query", cli::ToJson(steps.query)},
          {"keys", keys},
          {"values", values},
          {"products", cli::ToJson(steps.products)},
          {"scaled", cli::ToJson(steps.scaled)},
          {"capped", cli::ToJson(steps.capped)},
          {"biased", cli::ToJson(steps.biased)},
          {"weights", cli::ToJson(steps.weights)},
          {"lse", cli::ToJson(steps.lse)},
          {"output", cli::ToJson(steps.output)}};
}

}  // namespace

absl::StatusOr<Steps> FetchSteps(Client& client, const AttentionArgs& args,
                                 const CallOptions& call_options) {
  // The server is asked first: it is the judge of the request.
  const absl::StatusOr<Answers> answers = FetchAnswers(client, args, call_options);
  if (!answers.ok()) return answers.status();
  const absl::StatusOr<AttentionProblem> problem = AttentionProblem::Create(args);
  if (!problem.ok()) return problem.status();
  const absl::Status status = CheckShapes(*problem, *answers);
  if (!status.ok()) return status;
  Steps steps{.settings = Settings(args, *problem), .capped = problem->softcap() > 0};
  for (std::int64_t item = 0; item < problem->batch(); ++item) {
    for (std::int64_t head = 0; head < problem->query_heads(); ++head) {
      const std::int64_t rows = problem->items()[static_cast<std::size_t>(item)].query_len;
      for (std::int64_t row = 0; row < rows; ++row) {
        steps.queries.push_back(MakeQuerySteps(*problem, *answers, item, head, row));
      }
    }
  }
  return steps;
}

std::string RenderSteps(const Steps& steps) {
  std::string text = absl::StrCat(absl::StrJoin(steps.settings, ", "), "\n");
  for (const QuerySteps& query : steps.queries) {
    absl::StrAppend(&text, "\n", RenderQuery(query, steps.capped));
  }
  return text;
}

Json ToJson(const Steps& steps) {
  Json queries = Json::array();
  for (const QuerySteps& query : steps.queries) queries.push_back(ToJson(query));
  return {{"settings", steps.settings}, {"queries", queries}};
}

}  // namespace attend::cli
