#include "core/base/tensor.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"

namespace attend {

absl::StatusOr<std::int64_t> CheckedElementCount(std::span<const std::int64_t> shape,
                                                 absl::string_view field) {
  constexpr std::int64_t kMaxBytesPerElement = 8;
  std::int64_t bytes = kMaxBytesPerElement;
  bool empty = false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) {
      return InvalidField(absl::StrCat(field, ".shape[", i, "]"),
                          absl::StrCat("is ", shape[i], "; expected a size of at least 0"));
    }
    if (shape[i] == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, shape[i], &bytes)) {
      return InvalidField(
          absl::StrCat(field, ".shape"),
          absl::StrCat("is ", ShapeString(shape), "; expected sizes whose product fits an int64"));
    }
  }
  return empty ? 0 : bytes / kMaxBytesPerElement;
}

Dims DenseStrides(std::span<const std::int64_t> shape) {
  Dims strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    // Empty tensors have no elements to reach; their strides only must not overflow.
    if (shape[i] > 0) stride *= shape[i];
  }
  return strides;
}

std::string ShapeString(std::span<const std::int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<TensorView> CheckedTensorView(DType dtype, Dims shape,
                                             std::span<const std::byte> bytes,
                                             absl::string_view field,
                                             absl::string_view bytes_field) {
  const absl::StatusOr<std::int64_t> count = CheckedElementCount(shape, field);
  if (!count.ok()) return count.status();
  const std::size_t expected = static_cast<std::size_t>(*count) * SizeOf(dtype);
  if (bytes.size() != expected) {
    return InvalidField(absl::StrCat(field, ".", bytes_field),
                        absl::StrCat("has ", bytes.size(), " bytes; expected ", expected, " for ",
                                     Name(dtype), " ", ShapeString(shape)));
  }
  return TensorView::Dense(dtype, std::move(shape), bytes.data());
}

absl::StatusOr<Tensor> Tensor::Zeros(DType dtype, Dims shape, absl::string_view field) {
  absl::StatusOr<std::int64_t> count = CheckedElementCount(shape, field);
  if (!count.ok()) return count.status();
  Tensor tensor{dtype, std::move(shape), {}};
  tensor.data.resize(static_cast<std::size_t>(*count) * SizeOf(dtype));
  return tensor;
}

Tensor Tensor::FromFloats(DType dtype, Dims shape, std::span<const float> values) {
  Tensor tensor{dtype, std::move(shape), {}};
  tensor.data.resize(values.size() * SizeOf(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    StoreFloat(dtype, tensor.data.data() + i * SizeOf(dtype), values[i]);
  }
  return tensor;
}

std::vector<float> Tensor::ToFloats() const {
  std::vector<float> values(data.size() / SizeOf(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = LoadFloat(dtype, data.data() + i * SizeOf(dtype));
  }
  return values;
}

}  // namespace attend
