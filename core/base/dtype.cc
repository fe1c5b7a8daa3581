#include "core/base/dtype.h"

namespace attend {

namespace {

constexpr std::uint32_t kFloatExponentMask = 0x7f800000u;
constexpr std::uint32_t kFloatMagnitudeMask = 0x7fffffffu;

}  // namespace

std::uint16_t FloatToBFloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & kFloatMagnitudeMask) > kFloatExponentMask) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x0040u);  // quiet, so that it stays a NaN
  }
  const std::uint32_t rounding = 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>((bits + rounding) >> 16);
}

float Float16ToFloat(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) {
    return std::bit_cast<float>(sign | kFloatExponentMask | (mantissa << 13));
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

std::uint16_t FloatToFloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & kFloatMagnitudeMask;
  if (magnitude > kFloatExponentMask) {
    return static_cast<std::uint16_t>(sign | 0x7e00u);
  }
  if (magnitude >= 0x477ff000u) {  // 65520 and above round to infinity
    return static_cast<std::uint16_t>(sign | 0x7c00u);
  }
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal, in units of 2^-24
    // Adding 0.5 puts the unit of the sum at 2^-24, so the addition itself rounds to even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t rounding = 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + rounding) >> 13));
}

float LoadFloat(DType dtype, const std::byte* address) {
  switch (dtype) {
    case DType::kBFloat16:
      return BFloat16ToFloat(LoadUnaligned<std::uint16_t>(address));
    case DType::kFloat16:
      return Float16ToFloat(LoadUnaligned<std::uint16_t>(address));
    default:
      return LoadUnaligned<float>(address);
  }
}

void StoreFloat(DType dtype, std::byte* address, float value) {
  switch (dtype) {
    case DType::kBFloat16:
      return StoreUnaligned(address, FloatToBFloat16(value));
    case DType::kFloat16:
      return StoreUnaligned(address, FloatToFloat16(value));
    default:
      return StoreUnaligned(address, value);
  }
}

}  // namespace attend
