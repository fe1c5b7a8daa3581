// Numbers, tables and tensors as text for people.
#ifndef ATTEND_CLIENT_CLI_RENDER_H_
#define ATTEND_CLIENT_CLI_RENDER_H_

#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/cpp/client.h"
#include "core/base/tensor.h"

namespace attend::cli {

// Four decimals; "-inf", "inf" and "nan"; an exponent from 1e6 on.
std::string FormatNumber(double value);

// "(0.5000, 0.8000)"; of more than eight values the first four and how many there are.
std::string FormatVector(std::span<const float> values);

// Rows of cells in columns of equal width. Cells of text stand to the left, of numbers to the
// right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { AddRow(std::move(header)); }

  // Rows may be shorter than the header.
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  // Each row on its own line behind `indent`; no blanks at the ends of lines.
  std::string ToString(absl::string_view indent = "") const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the first is the header
};

// "output FLOAT32 [1, 1, 3, 4]" and every number below it where there are few; else smallest,
// largest, mean and the first numbers.
std::string RenderTensor(absl::string_view name, const Tensor& tensor);

// "1.2 us", "3.4 ms", "5.6 s".
std::string FormatDuration(std::chrono::nanoseconds duration);

// "queue 1.2 us, compute 3.4 ms, batch of 1, 8 dot products, 0.001 MFLOP, 12.3 GFLOP/s, by NAME".
std::string RenderStats(const AttendStats& stats);

}  // namespace attend::cli

#endif  // ATTEND_CLIENT_CLI_RENDER_H_
