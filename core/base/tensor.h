// Tensors: non-owning strided views, and an owning dense one.
#ifndef ATTEND_CORE_BASE_TENSOR_H_
#define ATTEND_CORE_BASE_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/dtype.h"

namespace attend {

// Sizes or strides, outermost first.
using Dims = absl::InlinedVector<std::int64_t, 4>;

// The number of elements of a shape (1 for a scalar). INVALID_ARGUMENT that names
// "<field>.shape[i]" for a negative size, and "<field>.shape" where the product, or the product
// with 8 bytes an element, overflows an int64. Zero sizes do not hide an overflow of the others.
absl::StatusOr<std::int64_t> CheckedElementCount(std::span<const std::int64_t> shape,
                                                 absl::string_view field);

// Strides of a dense row-major tensor. `shape` must have passed CheckedElementCount.
Dims DenseStrides(std::span<const std::int64_t> shape);

// "[2, 12, 512, 64]".
std::string ShapeString(std::span<const std::int64_t> shape);

// A strided view of elements that somebody else owns. Elements may lie at any alignment: read
// them with LoadUnaligned or LoadFloat. Cheap to copy.
template <typename Byte>
struct BasicTensorView {
  DType dtype = DType::kFloat32;
  Dims shape;
  Dims strides;  // in elements; 0 broadcasts
  Byte* data = nullptr;

  static BasicTensorView Dense(DType dtype, Dims shape, Byte* data) {
    Dims strides = DenseStrides(shape);
    return {dtype, std::move(shape), std::move(strides), data};
  }

  std::int64_t rank() const { return static_cast<std::int64_t>(shape.size()); }

  // Product of the sizes, which must have passed CheckedElementCount.
  std::int64_t num_elements() const {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return count;
  }

  // Address of an element `offset` elements (a sum of index times stride) from the first.
  Byte* at(std::int64_t offset) const {
    return data + offset * static_cast<std::int64_t>(SizeOf(dtype));
  }
};

using TensorView = BasicTensorView<const std::byte>;
using MutableTensorView = BasicTensorView<std::byte>;

// A dense view of bytes that came from outside. INVALID_ARGUMENT as CheckedElementCount, and
// "<field>.<bytes_field>" unless `bytes` holds exactly the shape's elements.
absl::StatusOr<TensorView> CheckedTensorView(DType dtype, Dims shape,
                                             std::span<const std::byte> bytes,
                                             absl::string_view field,
                                             absl::string_view bytes_field = "data");

// A dense row-major tensor that owns its elements. Copyable; a copy copies the elements.
struct Tensor {
  DType dtype = DType::kFloat32;
  Dims shape;
  std::vector<std::byte> data;  // exactly num_elements * SizeOf(dtype) bytes

  // Zeros. INVALID_ARGUMENT as CheckedElementCount, naming `field`.
  static absl::StatusOr<Tensor> Zeros(DType dtype, Dims shape, absl::string_view field = "tensor");

  // Rounds `values` to `dtype` (a float dtype). `values` must hold exactly the shape's elements.
  static Tensor FromFloats(DType dtype, Dims shape, std::span<const float> values);

  TensorView view() const { return TensorView::Dense(dtype, shape, data.data()); }
  MutableTensorView mutable_view() { return MutableTensorView::Dense(dtype, shape, data.data()); }
  std::int64_t num_elements() const { return view().num_elements(); }

  // The elements as float32. `dtype` must be a float dtype.
  std::vector<float> ToFloats() const;
};

}  // namespace attend

#endif  // ATTEND_CORE_BASE_TENSOR_H_
