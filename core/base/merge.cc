#include "core/base/merge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/field_checks.h"
#include "core/base/status.h"

namespace attend {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Sizes, strides or an index on the axes (item, query head, row).
using RowDims = std::array<std::int64_t, 3>;

// The row axes of an output, from `dims` in the order of a layout. Packed tokens are the rows of
// one item, whose axis is not there: `item` stands for it.
RowDims OutputRows(const Dims& dims, Layout layout, std::int64_t item) {
  switch (layout) {
    case Layout::kBatchHeadsLength:
      return {dims[0], dims[1], dims[2]};
    case Layout::kBatchLengthHeads:
      return {dims[0], dims[2], dims[1]};
    case Layout::kPacked:
      return {item, dims[1], dims[0]};
  }
  return {};
}

// The same of an LSE, in which heads come before rows unless tokens are packed.
RowDims LseRows(const Dims& dims, Layout layout, std::int64_t item) {
  const bool packed = layout == Layout::kPacked;
  return OutputRows(dims, packed ? layout : Layout::kBatchHeadsLength, item);
}

Dims LseShape(const Dims& output_shape, Layout layout) {
  if (layout == Layout::kPacked) return {output_shape[0], output_shape[1]};
  const RowDims rows = OutputRows(output_shape, layout, 1);
  return {rows[0], rows[1], rows[2]};
}

absl::string_view OutputAxes(Layout layout) {
  switch (layout) {
    case Layout::kBatchHeadsLength:
      return "[batch, query_heads, query_len, value_dim]";
    case Layout::kBatchLengthHeads:
      return "[batch, query_len, query_heads, value_dim]";
    case Layout::kPacked:
      return "[tokens, query_heads, value_dim]";
  }
  return "";
}

// --- Checks -------------------------------------------------------------------------------------

// Checks that every element of a view has an address.
absl::Status CheckElements(const TensorView& view, absl::string_view field) {
  if (view.strides.size() != view.shape.size()) {
    return InvalidField(absl::StrCat(field, ".strides"),
                        absl::StrCat("are ", ShapeString(view.strides),
                                     "; expected one for each of ", ShapeString(view.shape)));
  }
  const bool empty = std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end();
  if (view.data != nullptr || empty) return absl::OkStatus();
  return InvalidField(absl::StrCat(field, ".data"),
                      absl::StrCat("is null; expected the elements of ", ShapeString(view.shape)));
}

absl::Status CheckOutput(const TensorView& output, absl::string_view field, const Dims& first,
                         Layout layout) {
  absl::Status status = CheckFloatDType(field, output.dtype);
  if (!status.ok()) return status;
  const std::string shape = absl::StrCat(field, ".shape");
  if (output.rank() != (layout == Layout::kPacked ? 3 : 4)) {
    return InvalidField(
        shape, absl::StrCat("is ", ShapeString(output.shape), "; expected ", OutputAxes(layout)));
  }
  const absl::StatusOr<std::int64_t> count = CheckedElementCount(output.shape, field);
  if (!count.ok()) return count.status();
  if (output.shape != first) {
    return InvalidField(shape, absl::StrCat("is ", ShapeString(output.shape), "; expected ",
                                            ShapeString(first), ", the shape of parts[0].output"));
  }
  return CheckElements(output, field);
}

absl::Status CheckLse(const TensorView& lse, absl::string_view field, const Dims& expected) {
  if (lse.dtype != DType::kFloat32) {
    return InvalidField(absl::StrCat(field, ".dtype"),
                        absl::StrCat("is ", Name(lse.dtype), "; expected FLOAT32"));
  }
  if (lse.shape != expected) {
    return InvalidField(absl::StrCat(field, ".shape"),
                        absl::StrCat("is ", ShapeString(lse.shape), "; expected ",
                                     ShapeString(expected), ", the rows of parts[0].output"));
  }
  return CheckElements(lse, field);
}

absl::Status CheckParts(std::span<const AttentionPart> parts, Layout layout) {
  if (parts.empty()) return InvalidField("parts", "has 0 parts; expected at least 1");
  const Dims& shape = parts[0].output.shape;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const std::string field = Indexed("parts", "", static_cast<std::int64_t>(p));
    absl::Status status =
        CheckOutput(parts[p].output, absl::StrCat(field, ".output"), shape, layout);
    if (status.ok()) {
      status = CheckLse(parts[p].lse, absl::StrCat(field, ".lse"), LseShape(shape, layout));
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// A sink for each head; empty where none are given.
absl::StatusOr<std::vector<float>> SinksOf(const MergeOptions& options, std::int64_t query_heads) {
  if (!options.sinks.has_value()) return std::vector<float>();
  absl::Status status = CheckElements(*options.sinks, "options.sinks");
  if (!status.ok()) return status;
  return ReadSinks(*options.sinks, "options.sinks", query_heads);
}

// --- Rows ---------------------------------------------------------------------------------------

// Turns the LSEs of one row's parts into the parts' weights, and returns the LSE of all of them:
// -inf if no part saw a key, NaN if one has no meaning. Weights have none in either case.
double WeighParts(std::span<const double> lses, double sink, std::span<double> weights) {
  double maximum = -kInfinity;
  for (const double lse : lses) maximum = std::max(maximum, lse);  // passes over NaN
  double sum = 0;
  for (std::size_t p = 0; p < lses.size(); ++p) {
    // Said apart, since -inf less a maximum of -inf is NaN.
    weights[p] = lses[p] == -kInfinity ? 0 : std::exp(lses[p] - maximum);
    sum += weights[p];
  }
  const double denominator = sum + std::exp(sink - maximum);
  for (double& weight : weights) weight /= denominator;
  return maximum + std::log(sum);
}

// What Merge reads and writes, all of it checked.
class Merger {
 public:
  Merger(std::span<const AttentionPart> parts, Layout layout, MergeResult& result)
      : parts_(parts),
        layout_(layout),
        output_(result.output.mutable_view()),
        lse_(result.lse.mutable_view()),
        lses_(parts.size()),
        weights_(parts.size()),
        sums_(output_.shape.back()) {}

  void Run(std::span<const float> sinks) {
    const RowDims sizes = OutputRows(output_.shape, layout_, 1);
    for (std::int64_t item = 0; item < sizes[0]; ++item) {
      for (std::int64_t head = 0; head < sizes[1]; ++head) {
        for (std::int64_t row = 0; row < sizes[2]; ++row) {
          MergeRow({item, head, row}, sinks.empty() ? -kInfinity : sinks[head]);
        }
      }
    }
  }

 private:
  // Addresses of a row's first element, and of its LSE.
  template <typename View>
  auto OutputAt(const View& output, const RowDims& index) const {
    return output.at(Offset(OutputRows(output.strides, layout_, 0), index));
  }
  template <typename View>
  auto LseAt(const View& lse, const RowDims& index) const {
    return lse.at(Offset(LseRows(lse.strides, layout_, 0), index));
  }
  static std::int64_t Offset(const RowDims& strides, const RowDims& index) {
    return strides[0] * index[0] + strides[1] * index[1] + strides[2] * index[2];
  }

  void MergeRow(const RowDims& index, double sink) {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      lses_[p] = LoadUnaligned<float>(LseAt(parts_[p].lse, index));
    }
    const double lse = WeighParts(lses_, sink, weights_);
    SumParts(index, lse);
    std::byte* target = OutputAt(output_, index);
    for (const double sum : sums_) {
      StoreFloat(output_.dtype, target, static_cast<float>(sum));
      target += SizeOf(output_.dtype);
    }
    StoreUnaligned(LseAt(lse_, index), static_cast<float>(lse));
  }

  void SumParts(const RowDims& index, double lse) {
    if (!std::isfinite(lse)) {
      std::fill(sums_.begin(), sums_.end(), std::isnan(lse) ? lse : 0.0);
      return;
    }
    // The one number that can be added to -0 without changing it.
    std::fill(sums_.begin(), sums_.end(), -0.0);
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (lses_[p] == -kInfinity) continue;
      AddPart(parts_[p].output, OutputAt(parts_[p].output, index), weights_[p]);
    }
  }

  void AddPart(const TensorView& output, const std::byte* source, double weight) {
    const auto step = output.strides.back() * static_cast<std::int64_t>(SizeOf(output.dtype));
    for (double& sum : sums_) {
      const double value = LoadFloat(output.dtype, source);
      sum += std::isfinite(value) ? weight * value : value;
      source += step;
    }
  }

  const std::span<const AttentionPart> parts_;
  const Layout layout_;
  const MutableTensorView output_;
  const MutableTensorView lse_;
  // Of the row being merged.
  std::vector<double> lses_;
  std::vector<double> weights_;
  std::vector<double> sums_;
};

}  // namespace

absl::StatusOr<MergeResult> Merge(std::span<const AttentionPart> parts,
                                  const MergeOptions& options) {
  absl::Status status = CheckFloatDType("options", options.dtype);
  if (status.ok()) status = CheckParts(parts, options.layout);
  if (!status.ok()) return status;
  const Dims& shape = parts[0].output.shape;
  const std::int64_t query_heads = OutputRows(shape, options.layout, 1)[1];
  const absl::StatusOr<std::vector<float>> sinks = SinksOf(options, query_heads);
  if (!sinks.ok()) return sinks.status();
  absl::StatusOr<Tensor> output = Tensor::Zeros(options.dtype, shape);
  if (!output.ok()) return output.status();
  absl::StatusOr<Tensor> lse = Tensor::Zeros(DType::kFloat32, LseShape(shape, options.layout));
  if (!lse.ok()) return lse.status();
  MergeResult result{*std::move(output), *std::move(lse)};
  // Without rows the other sizes may be of any size: nothing is to be allocated or counted by them.
  if (result.lse.num_elements() > 0) Merger(parts, options.layout, result).Run(*sinks);
  return result;
}

}  // namespace attend
