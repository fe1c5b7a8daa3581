#include "core/base/attention_problem_builder.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/field_checks.h"
#include "core/base/pair_count.h"
#include "core/base/status.h"

namespace attend {

AttentionProblemBuilder::Axes AttentionProblemBuilder::AxesOf(Layout layout) {
  switch (layout) {
    case Layout::kBatchHeadsLength:
      return {0, 1, 2, 3, 4};
    case Layout::kBatchLengthHeads:
      return {0, 2, 1, 3, 4};
    case Layout::kPacked:
      return {-1, 1, 0, 2, 3};
  }
  return {0, 1, 2, 3, 4};
}

AttentionProblemBuilder::AttentionProblemBuilder(const AttentionArgs& args,
                                                 const AttentionLimits& limits)
    : args_(args), limits_(limits), axes_(AxesOf(args.layout)) {}

absl::StatusOr<AttentionProblem> AttentionProblemBuilder::Build() {
  using Step = absl::Status (AttentionProblemBuilder::*)();
  for (const Step step :
       {&AttentionProblemBuilder::CheckTensors, &AttentionProblemBuilder::CheckHeads,
        &AttentionProblemBuilder::CheckLengths, &AttentionProblemBuilder::CheckScalars,
        &AttentionProblemBuilder::CheckPositions, &AttentionProblemBuilder::CheckSlopes,
        &AttentionProblemBuilder::CheckSinks, &AttentionProblemBuilder::CheckMasks,
        &AttentionProblemBuilder::CheckBlocks, &AttentionProblemBuilder::CheckOutput,
        &AttentionProblemBuilder::CountPairs}) {
    absl::Status status = (this->*step)();
    if (!status.ok()) return status;
  }
  return std::move(problem_);
}

absl::Status AttentionProblemBuilder::CheckOutput() {
  problem_.output_ = args_.output;
  const absl::Status status = CheckFloatDType("output", problem_.output_dtype());
  if (!status.ok()) return status;
  absl::StatusOr<std::int64_t> count = CheckedElementCount(problem_.output_shape(), "output");
  if (!count.ok()) return count.status();
  if (!args_.output.weights && args_.output.scores == ScoreStage::kNone) return absl::OkStatus();
  const std::string field = args_.output.weights ? "output.weights" : "output.scores";
  count = CheckedElementCount(problem_.score_shape(), field);
  if (!count.ok()) return count.status();
  if (*count <= limits_.max_score_elements) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("would have ", *count, " elements; expected at most ",
                                          limits_.max_score_elements));
}

absl::Status AttentionProblemBuilder::CountPairs() {
  const std::optional<std::int64_t> count = CountDotProducts(problem_);
  if (!count.has_value()) {
    return InvalidField("query.shape",
                        absl::StrCat("is ", ShapeString(args_.query.shape), "; expected at most ",
                                     std::numeric_limits<std::int64_t>::max(), " query-key pairs"));
  }
  problem_.dot_products_ = *count;
  return absl::OkStatus();
}

absl::StatusOr<AttentionProblem> AttentionProblem::Create(const AttentionArgs& args,
                                                          const AttentionLimits& limits) {
  return AttentionProblemBuilder(args, limits).Build();
}

}  // namespace attend
