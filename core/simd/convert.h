// Rows of tensor elements to float32 and back.
#ifndef ATTEND_CORE_SIMD_CONVERT_H_
#define ATTEND_CORE_SIMD_CONVERT_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/base/dtype.h"

namespace attend {

// target[i] = source[i], exactly, for i in [0, count). Returns whether all are finite.
// `dtype` must satisfy IsFloat; `source` may lie at any alignment. Thread-safety: pure.
bool LoadRow(DType dtype, const std::byte* source, std::int64_t count, float* target);

// target[i] = the float32 product source[i] * factor, rounded to `dtype` as FloatToBFloat16 and
// FloatToFloat16 do. A zero is stored as +0 and every NaN as OneNan's: their signs may come from an
// operand that should decide nothing. `dtype` must satisfy IsFloat; `target` may lie at any
// alignment. Thread-safety: pure.
void StoreRow(DType dtype, const float* source, float factor, std::int64_t count,
              std::byte* target);

// `value`, or for every NaN the same one.
inline float OneNan(float value) {
  return std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value;
}

// Sets what is not finite to 0.
void ZeroNonFinite(float* values, std::int64_t count);

}  // namespace attend

#endif  // ATTEND_CORE_SIMD_CONVERT_H_
