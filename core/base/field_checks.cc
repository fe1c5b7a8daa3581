#include "core/base/field_checks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace attend {

std::string Indexed(absl::string_view field, absl::string_view list, std::int64_t index) {
  return absl::StrCat(field, list, "[", index, "]");
}

std::string DimField(absl::string_view field, int axis) { return Indexed(field, ".shape", axis); }

absl::Status CheckRange(absl::string_view field, std::int64_t value, std::int64_t low,
                        std::int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidField(field,
                      absl::StrCat("is ", value, "; expected a value from ", low, " to ", high));
}

absl::Status CheckEqual(absl::string_view field, std::int64_t value, std::int64_t expected,
                        absl::string_view what) {
  if (value == expected) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; expected ", expected, " (", what, ")"));
}

absl::Status CheckFloatDType(absl::string_view field, DType dtype) {
  if (IsFloat(dtype)) return absl::OkStatus();
  return InvalidField(absl::StrCat(field, ".dtype"),
                      absl::StrCat("is ", Name(dtype), "; expected FLOAT32, BFLOAT16 or FLOAT16"));
}

absl::StatusOr<std::vector<float>> ReadFloats(const TensorView& tensor, absl::string_view field,
                                              std::span<const Dims> shapes,
                                              absl::string_view expected) {
  if (tensor.dtype != DType::kFloat32) {
    return InvalidField(absl::StrCat(field, ".dtype"),
                        absl::StrCat("is ", Name(tensor.dtype), "; expected FLOAT32"));
  }
  if (std::find(shapes.begin(), shapes.end(), tensor.shape) == shapes.end()) {
    return InvalidField(absl::StrCat(field, ".shape"),
                        absl::StrCat("is ", ShapeString(tensor.shape), "; expected ", expected));
  }
  const std::int64_t columns = tensor.shape.back();
  std::vector<float> values;
  values.reserve(tensor.num_elements());
  for (std::int64_t i = 0; i < tensor.num_elements(); ++i) {
    const std::int64_t row_stride = tensor.rank() == 2 ? tensor.strides[0] : 0;
    const std::int64_t offset = (i / columns) * row_stride + (i % columns) * tensor.strides.back();
    values.push_back(LoadUnaligned<float>(tensor.at(offset)));
  }
  return values;
}

absl::StatusOr<std::vector<float>> ReadSinks(const TensorView& tensor, absl::string_view field,
                                             std::int64_t query_heads) {
  const Dims shapes[] = {{query_heads}};
  absl::StatusOr<std::vector<float>> sinks =
      ReadFloats(tensor, field, shapes, ShapeString(shapes[0]));
  if (!sinks.ok()) return sinks;
  for (std::size_t head = 0; head < sinks->size(); ++head) {
    const float sink = (*sinks)[head];
    if (!std::isnan(sink) && sink < std::numeric_limits<float>::infinity()) continue;
    return InvalidField(Indexed(field, ".data", static_cast<std::int64_t>(head)),
                        absl::StrCat("is ", sink, "; expected a number or -inf"));
  }
  return sinks;
}

}  // namespace attend
