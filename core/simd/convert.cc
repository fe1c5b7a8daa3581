#include "core/simd/convert.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/simd/convert.cc"
// foreach_target.h includes these again for each target, so it stands before what it repeats.
// clang-format off
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "core/simd/load-inl.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if ATTEND_NATIVE_FLOAT16
HWY_INLINE void StoreFloat16s(FloatVector v, std::byte* target) {
  const hn::Rebind<hwy::float16_t, FloatTag> dh;
  hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(target));
}
#endif

HWY_INLINE void StoreFloats(FloatVector v, std::byte* target) {
  hn::StoreU(v, FloatTag(), reinterpret_cast<float*>(target));
}

// Rounds to nearest, ties to even. A NaN must be quiet with no bit set below, as OneNan's is.
HWY_INLINE void StoreBFloat16s(FloatVector v, std::byte* target) {
  const BitsTag du;
  const BitsVector bits = hn::BitCast(du, v);
  const BitsVector odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const BitsVector rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const BitsVector high = hn::ShiftRight<16>(rounded);
  hn::StoreU(hn::TruncateTo(HalfTag(), high), HalfTag(), reinterpret_cast<std::uint16_t*>(target));
}

// Converts whole vectors with `load` and the rest one by one; returns whether all are finite.
template <typename Load>
HWY_INLINE bool LoadWith(Load load, DType dtype, const std::byte* source, std::int64_t count,
                         float* HWY_RESTRICT target) {
  const FloatTag d;
  const BitsTag du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto size = static_cast<std::int64_t>(SizeOf(dtype));
  const BitsVector exponent = hn::Set(du, 0x7f800000u);
  BitsVector largest = hn::Zero(du);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const FloatVector v = load(source + i * size);
    hn::StoreU(v, d, target + i);
    largest = hn::Max(largest, hn::And(hn::BitCast(du, v), exponent));
  }
  bool finite = hn::AllFalse(du, hn::Eq(largest, exponent));
  for (; i < count; ++i) {
    target[i] = LoadFloat(dtype, source + i * size);
    finite = finite && std::isfinite(target[i]);
  }
  return finite;
}

template <typename Store>
HWY_INLINE void StoreWith(Store store, DType dtype, const float* HWY_RESTRICT source, float factor,
                          std::int64_t count, std::byte* target) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto size = static_cast<std::int64_t>(SizeOf(dtype));
  const FloatVector nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const FloatVector product = hn::Mul(hn::LoadU(d, source + i), hn::Set(d, factor));
    const FloatVector sum = hn::Add(product, hn::Zero(d));  // -0 + 0 is 0
    store(hn::IfThenElse(hn::Eq(sum, sum), sum, nan), target + i * size);
  }
  for (; i < count; ++i) StoreFloat(dtype, target + i * size, OneNan(source[i] * factor + 0.0f));
}

bool LoadRow(DType dtype, const std::byte* source, std::int64_t count, float* target) {
  bool finite = true;
  WithLoader(dtype, [&](auto load) { finite = LoadWith(load, dtype, source, count, target); });
  return finite;
}

void StoreRow(DType dtype, const float* source, float factor, std::int64_t count,
              std::byte* target) {
  if (dtype == DType::kFloat32) return StoreWith(StoreFloats, dtype, source, factor, count, target);
  if (dtype == DType::kBFloat16) {
    return StoreWith(StoreBFloat16s, dtype, source, factor, count, target);
  }
#if ATTEND_NATIVE_FLOAT16
  StoreWith(StoreFloat16s, dtype, source, factor, count, target);
#else
  for (std::int64_t i = 0; i < count; ++i) {
    StoreFloat(dtype, target + i * static_cast<std::int64_t>(SizeOf(dtype)),
               OneNan(source[i] * factor + 0.0f));
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {

HWY_EXPORT(LoadRow);
HWY_EXPORT(StoreRow);

bool LoadRow(DType dtype, const std::byte* source, std::int64_t count, float* target) {
  return HWY_DYNAMIC_DISPATCH(LoadRow)(dtype, source, count, target);
}

void StoreRow(DType dtype, const float* source, float factor, std::int64_t count,
              std::byte* target) {
  HWY_DYNAMIC_DISPATCH(StoreRow)(dtype, source, factor, count, target);
}

void ZeroNonFinite(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) values[i] = 0;
  }
}

}  // namespace attend
#endif  // HWY_ONCE
