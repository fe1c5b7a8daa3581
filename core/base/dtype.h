// Element types of tensors, and conversion of single elements.
#ifndef ATTEND_CORE_BASE_DTYPE_H_
#define ATTEND_CORE_BASE_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

namespace attend {

enum class DType : std::uint8_t { kFloat32, kBFloat16, kFloat16, kBool, kInt8, kInt64 };

// Bytes of one element.
constexpr std::size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kBool:
    case DType::kInt8:
      return 1;
    case DType::kInt64:
      return 8;
  }
  return 0;
}

// "FLOAT32", "BFLOAT16", ...: as the API spells it.
constexpr absl::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "FLOAT32";
    case DType::kBFloat16:
      return "BFLOAT16";
    case DType::kFloat16:
      return "FLOAT16";
    case DType::kBool:
      return "BOOL";
    case DType::kInt8:
      return "INT8";
    case DType::kInt64:
      return "INT64";
  }
  return "?";
}

// FLOAT32, BFLOAT16 and FLOAT16: what query, key and value may be.
constexpr bool IsFloat(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

// Reads a T at any address. Tensor bytes come from files and messages, which align nothing.
template <typename T>
T LoadUnaligned(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

template <typename T>
void StoreUnaligned(std::byte* address, T value) {
  std::memcpy(address, &value, sizeof(T));
}

// Exact.
inline float BFloat16ToFloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds to nearest, ties to even; overflow gives infinity; a NaN stays a NaN.
std::uint16_t FloatToBFloat16(float value);

// Exact, subnormals included.
float Float16ToFloat(std::uint16_t bits);

// Rounds to nearest, ties to even; overflow gives infinity; subnormals are kept; a NaN stays a NaN.
std::uint16_t FloatToFloat16(float value);

// Reads one element of a float dtype, exactly. `dtype` must satisfy IsFloat.
float LoadFloat(DType dtype, const std::byte* address);

// Writes one element of a float dtype, rounded as above. `dtype` must satisfy IsFloat.
void StoreFloat(DType dtype, std::byte* address, float value);

}  // namespace attend

#endif  // ATTEND_CORE_BASE_DTYPE_H_
