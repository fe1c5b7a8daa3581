#include "client/cli/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/reference.h"

namespace attend::cli {

namespace {

constexpr double kRelativeBound = 2e-6;
constexpr double kScoreSizeCovered = 8;
constexpr double kScoreRounding = 0x1p-23;
constexpr double kBFloat16Rounding = 0x1p-8;
constexpr double kFloat16Rounding = 0x1p-11;
constexpr double kFloat16SmallestRounding = 0x1p-25;

// Errors against their bounds, gathered.
class ErrorMeter {
 public:
  // The difference of two numbers; infinite unless both are finite, or the same infinity, or NaN.
  static double Difference(double actual, double expected) {
    if (std::isnan(actual) && std::isnan(expected)) return 0;
    if (actual == expected) return 0;
    const double error = std::abs(actual - expected);
    return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
  }

  double Add(double actual, double expected, double bound) {
    const double error = Difference(actual, expected);
    ++report_.elements;
    if (error > 0) {
      const double share = error <= bound ? error / bound : ShareAbove(error, bound);
      report_.max_error_over_bound = std::max(report_.max_error_over_bound, share);
    }
    return error;
  }

  void AddOutput(double actual, double expected, double bound) {
    report_.max_error = std::max(report_.max_error, Add(actual, expected, bound));
  }

  const CheckReport& report() const { return report_; }

 private:
  static double ShareAbove(double error, double bound) {
    // A bound that is zero or NaN is broken by any error.
    return bound > 0 ? error / bound : std::numeric_limits<double>::infinity();
  }

  CheckReport report_;
};

// Largest magnitude of the finite scores of the keys that the row sees.
double ScoreSize(const ReferenceRow& row) {
  double size = 0;
  for (std::size_t j = 0; j < row.biased.size(); ++j) {
    if (!std::isfinite(row.biased[j])) continue;
    size = std::max({size, std::abs(row.biased[j]), std::abs(row.scaled[j])});
  }
  return size;
}

double RelativeBound(const AttentionProblem& problem, const ReferenceRow& row) {
  double bound = kRelativeBound;
  const double size = ScoreSize(row);
  if (size > kScoreSizeCovered) {
    const double growth = std::sqrt(static_cast<double>(problem.head_dim()));
    bound = std::max(bound, kScoreRounding * size * growth);
  }
  return problem.dtype() == DType::kBFloat16 ? bound + kBFloat16Rounding : bound;
}

double OutputRounding(DType dtype, double value) {
  switch (dtype) {
    case DType::kBFloat16:
      return kBFloat16Rounding * std::abs(value);
    case DType::kFloat16:
      return std::max(kFloat16Rounding * std::abs(value), kFloat16SmallestRounding);
    default:
      return 0;
  }
}

void CheckRow(const AttentionProblem& problem, std::int64_t item, std::int64_t head,
              std::int64_t row_index, std::span<const float> output, std::span<const float> lse,
              ErrorMeter* meter) {
  const ReferenceRow row = ReferenceAttentionRow(problem, item, head, row_index);
  const double relative = RelativeBound(problem, row);
  const auto offset = static_cast<std::size_t>(problem.OutputOffset(item, head, row_index));
  for (std::size_t i = 0; i < row.output.size(); ++i) {
    const double bound =
        relative * row.magnitude[i] + OutputRounding(problem.output_dtype(), row.output[i]);
    meter->AddOutput(output[offset + i], row.output[i], bound);
  }
  if (lse.empty()) return;
  const auto lse_offset = static_cast<std::size_t>(problem.LseOffset(item, head, row_index));
  meter->Add(lse[lse_offset], row.lse, relative * std::max(1.0, std::abs(row.lse)));
}

// A row past the item's query length: zeros, LSE -inf.
void CheckPaddedRow(const AttentionProblem& problem, std::int64_t item, std::int64_t head,
                    std::int64_t row_index, std::span<const float> output,
                    std::span<const float> lse, ErrorMeter* meter) {
  const auto offset = static_cast<std::size_t>(problem.OutputOffset(item, head, row_index));
  for (std::size_t i = 0; i < static_cast<std::size_t>(problem.value_dim()); ++i) {
    meter->AddOutput(output[offset + i], 0, 0);
  }
  if (lse.empty()) return;
  const auto lse_offset = static_cast<std::size_t>(problem.LseOffset(item, head, row_index));
  meter->Add(lse[lse_offset], -std::numeric_limits<double>::infinity(), 0);
}

// Rows of an item that an answer holds, of each head.
std::int64_t AnsweredRows(const AttentionProblem& problem, const AttentionItem& item) {
  return problem.layout() == Layout::kPacked ? item.query_len : problem.query_len();
}

// Says of row after row whether it is compared: `wanted` of `total`, evenly spread, the last among
// them.
class RowChoice {
 public:
  RowChoice(std::int64_t total, std::int64_t wanted) : total_(total), wanted_(wanted) {}

  bool TakeNext() {
    if (total_ <= wanted_) return true;
    due_ += wanted_;
    if (due_ < total_) return false;
    due_ -= total_;
    return true;
  }

 private:
  std::int64_t total_;
  std::int64_t wanted_;
  std::int64_t due_ = 0;
};

absl::Status CheckShape(absl::string_view name, const Dims& actual, const Dims& expected) {
  if (actual == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the answer's ", name, " has shape ",
                                                 ShapeString(actual), "; expected ",
                                                 ShapeString(expected)));
}

}  // namespace

absl::StatusOr<CheckReport> CheckAgainstReference(const AttentionArgs& args,
                                                  const AttendResult& result,
                                                  std::int64_t max_rows) {
  const absl::StatusOr<AttentionProblem> problem = AttentionProblem::Create(args);
  if (!problem.ok()) return problem.status();
  absl::Status status = CheckShape("output", result.output.shape, problem->output_shape());
  if (result.lse.has_value()) {
    status.Update(CheckShape("lse", result.lse->shape, problem->lse_shape()));
  }
  if (!status.ok()) return status;
  const std::vector<float> output = result.output.ToFloats();
  const std::vector<float> lse =
      result.lse.has_value() ? result.lse->ToFloats() : std::vector<float>();
  std::int64_t total = 0;
  for (const AttentionItem& item : problem->items()) {
    total += AnsweredRows(*problem, item) * problem->query_heads();
  }
  RowChoice choice(total, max_rows);
  ErrorMeter meter;
  for (std::int64_t item = 0; item < problem->batch(); ++item) {
    const AttentionItem& checked = problem->items()[static_cast<std::size_t>(item)];
    const std::int64_t own = checked.query_len;
    for (std::int64_t head = 0; head < problem->query_heads(); ++head) {
      for (std::int64_t row = 0; row < AnsweredRows(*problem, checked); ++row) {
        if (!choice.TakeNext()) continue;
        const auto check = row < own ? CheckRow : CheckPaddedRow;
        check(*problem, item, head, row, output, lse, &meter);
      }
    }
  }
  return meter.report();
}

std::string RenderCheck(const CheckReport& report) {
  return absl::StrFormat(
      "check against the float64 reference: %d elements, largest error %.3g, at most %.3g of the "
      "bound: %s",
      report.elements, report.max_error, report.max_error_over_bound,
      report.passed() ? "passed" : "FAILED");
}

Json ToJson(const CheckReport& report) {
  return {{"elements", report.elements},
          {"max_error", ToJson(report.max_error)},
          {"max_error_over_bound", ToJson(report.max_error_over_bound)},
          {"passed", report.passed()}};
}

}  // namespace attend::cli
