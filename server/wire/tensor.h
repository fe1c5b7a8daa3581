// Tensors of the API as views of core.
#ifndef ATTEND_SERVER_WIRE_TENSOR_H_
#define ATTEND_SERVER_WIRE_TENSOR_H_

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attend/v1/tensor.pb.h"
#include "core/base/dtype.h"
#include "core/base/tensor.h"

namespace attend {

// Dimensions that a tensor of any request may have.
inline constexpr int kMaxRank = 4;

// INVALID_ARGUMENT naming `field` for DATA_TYPE_UNSPECIFIED and for values that are none.
absl::StatusOr<DType> ToDType(v1::DataType dtype, absl::string_view field);

v1::DataType ToProto(DType dtype);

// A view of `data`, the bytes that stand for the tensor's own, and must outlive it. They are
// neither copied nor read. Errors: INVALID_ARGUMENT, naming `field` and what is below it, for a
// dtype that is unset or unknown, more than kMaxRank dimensions, and as CheckedTensorView.
absl::StatusOr<TensorView> ToTensorView(const v1::Tensor& tensor, std::span<const std::byte> data,
                                        absl::string_view field);

}  // namespace attend

#endif  // ATTEND_SERVER_WIRE_TENSOR_H_
