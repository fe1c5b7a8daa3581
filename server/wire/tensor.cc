#include "server/wire/tensor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "server/wire/unknown_fields.h"

namespace attend {

absl::StatusOr<DType> ToDType(v1::DataType dtype, absl::string_view field) {
  switch (dtype) {
    case v1::DATA_TYPE_FLOAT32:
      return DType::kFloat32;
    case v1::DATA_TYPE_BFLOAT16:
      return DType::kBFloat16;
    case v1::DATA_TYPE_FLOAT16:
      return DType::kFloat16;
    case v1::DATA_TYPE_BOOL:
      return DType::kBool;
    case v1::DATA_TYPE_INT8:
      return DType::kInt8;
    case v1::DATA_TYPE_INT64:
      return DType::kInt64;
    case v1::DATA_TYPE_UNSPECIFIED:
      return InvalidField(field, "is DATA_TYPE_UNSPECIFIED; expected a type");
    default:
      return InvalidField(
          field, absl::StrCat("is ", static_cast<int>(dtype), "; expected a value of DataType"));
  }
}

v1::DataType ToProto(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return v1::DATA_TYPE_FLOAT32;
    case DType::kBFloat16:
      return v1::DATA_TYPE_BFLOAT16;
    case DType::kFloat16:
      return v1::DATA_TYPE_FLOAT16;
    case DType::kBool:
      return v1::DATA_TYPE_BOOL;
    case DType::kInt8:
      return v1::DATA_TYPE_INT8;
    case DType::kInt64:
      return v1::DATA_TYPE_INT64;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

absl::StatusOr<TensorView> ToTensorView(const v1::Tensor& tensor, std::span<const std::byte> data,
                                        absl::string_view field) {
  if (absl::Status status = RefuseUnknownFields(tensor, field); !status.ok()) return status;
  absl::StatusOr<DType> dtype = ToDType(tensor.dtype(), absl::StrCat(field, ".dtype"));
  if (!dtype.ok()) return dtype.status();
  if (tensor.shape_size() > kMaxRank) {
    return InvalidField(
        absl::StrCat(field, ".shape"),
        absl::StrCat("has ", tensor.shape_size(), " dimensions; expected at most ", kMaxRank));
  }
  return CheckedTensorView(*dtype, Dims(tensor.shape().begin(), tensor.shape().end()), data, field,
                           tensor.has_shared_memory() ? "shared_memory.size_bytes" : "data");
}

}  // namespace attend
