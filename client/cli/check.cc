#include "client/cli/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/error_bound.h"
#include "core/base/reference.h"

namespace attend::cli {

namespace {

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
    report_.nan_elements += std::isnan(actual) && std::isnan(expected) ? 1 : 0;
    report_.nan_in_one += std::isnan(actual) != std::isnan(expected) ? 1 : 0;
    if (error > 0) {
      const double share =
          std::isfinite(error) && error <= bound ? error / bound : ShareAbove(error, bound);
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
    // An infinite error breaks every bound, and any error breaks a bound that is zero or NaN.
    const bool comparable = std::isfinite(error) && bound > 0;
    return comparable ? error / bound : std::numeric_limits<double>::infinity();
  }

  CheckReport report_;
};

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

void CheckRow(const AttentionProblem& problem, ErrorBound* error_bound, std::int64_t item,
              std::int64_t head, std::int64_t row_index, std::span<const float> output,
              std::span<const float> lse, ErrorMeter* meter) {
  const ReferenceRow row = ReferenceAttentionRow(problem, item, head, row_index);
  const RowBounds bounds = error_bound->Of(item, head, row_index, row);
  const auto offset = static_cast<std::size_t>(problem.OutputOffset(item, head, row_index));
  for (std::size_t i = 0; i < row.output.size(); ++i) {
    const double bound = bounds.output[i] + OutputRounding(problem.output_dtype(), row.output[i]);
    meter->AddOutput(output[offset + i], row.output[i], bound);
  }
  if (lse.empty()) return;
  const auto lse_offset = static_cast<std::size_t>(problem.LseOffset(item, head, row_index));
  meter->Add(lse[lse_offset], row.lse, bounds.lse);
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
  ErrorBound error_bound(*problem);
  for (std::int64_t item = 0; item < problem->batch(); ++item) {
    const AttentionItem& checked = problem->items()[static_cast<std::size_t>(item)];
    const std::int64_t own = checked.query_len;
    for (std::int64_t head = 0; head < problem->query_heads(); ++head) {
      for (std::int64_t row = 0; row < AnsweredRows(*problem, checked); ++row) {
        if (!choice.TakeNext()) continue;
        if (row < own) {
          CheckRow(*problem, &error_bound, item, head, row, output, lse, &meter);
        } else {
          CheckPaddedRow(*problem, item, head, row, output, lse, &meter);
        }
      }
    }
  }
  return meter.report();
}

std::string RenderCheck(const CheckReport& report) {
  std::string text =
      absl::StrFormat("check against the float64 reference: %d elements", report.elements);
  if (report.nan_elements > 0) {
    absl::StrAppend(&text, " (", report.nan_elements, " of them NaN in both)");
  }
  if (report.nan_in_one > 0) {
    absl::StrAppend(&text, " (", report.nan_in_one, " of them NaN in one alone)");
  }
  absl::StrAppendFormat(&text, ", largest error %.3g, at most %.3g of the bound: %s",
                        report.max_error, report.max_error_over_bound,
                        report.passed() ? "passed" : "FAILED");
  return text;
}

Json ToJson(const CheckReport& report) {
  return {{"elements", report.elements},
          {"nan_elements", report.nan_elements},
          {"nan_in_one", report.nan_in_one},
          {"max_error", ToJson(report.max_error)},
          {"max_error_over_bound", ToJson(report.max_error_over_bound)},
          {"passed", report.passed()}};
}

}  // namespace attend::cli
