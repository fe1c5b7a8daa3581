#include "client/cli/render.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace attend::cli {

namespace {

constexpr double kExponentFrom = 1e6;
constexpr std::size_t kMaxVector = 8;     // longer vectors are cut
constexpr std::size_t kCutVector = 4;     // to so many
constexpr std::int64_t kMaxShown = 512;   // elements of a tensor that is shown whole
constexpr std::int64_t kMaxColumns = 16;  // of a tensor that is shown whole
constexpr absl::string_view kGap = "  ";

bool IsNumber(const std::string& cell) {
  if (cell.empty()) return false;
  char* end = nullptr;
  std::strtod(cell.c_str(), &end);
  return *end == '\0';
}

std::string Pad(const std::string& cell, std::size_t width, bool right) {
  const std::string blanks(width - std::min(width, cell.size()), ' ');
  return right ? blanks + cell : cell + blanks;
}

// A column is one of numbers if its first cell below the header is.
bool IsNumberColumn(const std::vector<std::vector<std::string>>& rows, std::size_t column) {
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (column < rows[i].size() && !rows[i][column].empty()) return IsNumber(rows[i][column]);
  }
  return false;
}

// "[0, 3]" of the row-th row in a tensor of these sizes before its last.
std::string RowIndex(std::span<const std::int64_t> outer, std::int64_t row) {
  std::vector<std::int64_t> index(outer.size());
  for (std::size_t i = outer.size(); i-- > 0;) {
    index[i] = row % outer[i];
    row /= outer[i];
  }
  return ShapeString(index);
}

std::string RenderRows(const Tensor& tensor, const std::vector<float>& values) {
  const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  Table table({});
  for (std::int64_t row = 0; row * columns < static_cast<std::int64_t>(values.size()); ++row) {
    std::vector<std::string> cells;
    if (tensor.shape.size() > 1) {
      cells.push_back(RowIndex({tensor.shape.data(), tensor.shape.size() - 1}, row));
    }
    for (std::int64_t i = 0; i < columns; ++i) {
      cells.push_back(FormatNumber(values[static_cast<std::size_t>(row * columns + i)]));
    }
    table.AddRow(std::move(cells));
  }
  return std::string(absl::StripPrefix(table.ToString("  "), "\n"));
}

std::string RenderSummary(const std::vector<float>& values) {
  double sum = 0;
  std::int64_t finite = 0;
  float low = INFINITY;
  float high = -INFINITY;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    sum += value;
    ++finite;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const auto others = static_cast<std::int64_t>(values.size()) - finite;
  std::string text = "  no finite elements";
  if (finite > 0) {
    text = absl::StrCat("  smallest ", FormatNumber(low), ", largest ", FormatNumber(high),
                        ", mean ", FormatNumber(sum / static_cast<double>(finite)));
  }
  if (others > 0) absl::StrAppend(&text, ", not finite: ", others, " elements");
  return absl::StrCat(text, "\n  ", FormatVector(values), "\n");
}

}  // namespace

std::string FormatNumber(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (std::abs(value) >= kExponentFrom) return absl::StrFormat("%.4e", value);
  const std::string text = absl::StrFormat("%.4f", value);
  return text == "-0.0000" ? "0.0000" : text;
}

std::string FormatVector(std::span<const float> values) {
  const std::size_t shown = values.size() > kMaxVector ? kCutVector : values.size();
  const std::string text = absl::StrJoin(
      values.begin(), values.begin() + static_cast<std::ptrdiff_t>(shown), ", ",
      [](std::string* out, float value) { absl::StrAppend(out, FormatNumber(value)); });
  if (shown == values.size()) return absl::StrCat("(", text, ")");
  return absl::StrCat("(", text, ", ... ", values.size(), " in all)");
}

std::string Table::ToString(absl::string_view indent) const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::vector<bool> right(widths.size());
  for (std::size_t i = 0; i < widths.size(); ++i) right[i] = IsNumberColumn(rows_, i);
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, i == 0 ? indent : kGap, Pad(row[i], widths[i], right[i]));
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return text;
}

std::string RenderTensor(absl::string_view name, const Tensor& tensor) {
  std::string text =
      absl::StrCat(name, " ", Name(tensor.dtype), " ", ShapeString(tensor.shape), "\n");
  const std::vector<float> values = tensor.ToFloats();
  if (values.empty()) return text;
  const bool narrow = tensor.shape.empty() || tensor.shape.back() <= kMaxColumns;
  const bool small = narrow && static_cast<std::int64_t>(values.size()) <= kMaxShown;
  return absl::StrCat(text, small ? RenderRows(tensor, values) : RenderSummary(values));
}

std::string FormatDuration(std::chrono::nanoseconds duration) {
  const auto count = static_cast<double>(duration.count());
  if (count < 1e6) return absl::StrFormat("%.1f us", count / 1e3);
  if (count < 1e9) return absl::StrFormat("%.1f ms", count / 1e6);
  return absl::StrFormat("%.2f s", count / 1e9);
}

std::string RenderStats(const AttendStats& stats) {
  const auto flops = static_cast<double>(stats.flops);
  std::string text = absl::StrFormat(
      "queue %s, compute %s, batch of %d, %d dot products, %.6g MFLOP", FormatDuration(stats.queue),
      FormatDuration(stats.compute), stats.batch_size, stats.dot_products, flops / 1e6);
  if (stats.compute.count() > 0) {
    absl::StrAppendFormat(&text, ", %.1f GFLOP/s",
                          flops / static_cast<double>(stats.compute.count()));
  }
  if (!stats.server.empty()) absl::StrAppend(&text, ", by ", stats.server);
  return text;
}

}  // namespace attend::cli
