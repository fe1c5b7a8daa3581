// The float vectors that the passes of this folder work on, and loads of them from each dtype.
// Included once for each target.
#if defined(ATTEND_CORE_SIMD_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEND_CORE_SIMD_LOAD_INL_H_
#undef ATTEND_CORE_SIMD_LOAD_INL_H_
#else
#define ATTEND_CORE_SIMD_LOAD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
using HalfTag = hn::Rebind<std::uint16_t, FloatTag>;
using FloatVector = hn::Vec<FloatTag>;
using BitsVector = hn::Vec<BitsTag>;

// Targets that convert float16 in hardware, as IEEE 754 says. The portable conversions of
// core/base/dtype.h are as exact, and serve the others.
#undef ATTEND_NATIVE_FLOAT16
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2  // the lower, the better
#define ATTEND_NATIVE_FLOAT16 1
#else
#define ATTEND_NATIVE_FLOAT16 0
#endif

// Each loads a vector of elements as they lie at any address, as floats. kSize: bytes of an
// element.
struct LoadFloats {
  static constexpr std::int64_t kSize = 4;
  HWY_INLINE FloatVector operator()(const std::byte* source) const {
    return hn::LoadU(FloatTag(), reinterpret_cast<const float*>(source));
  }
};

struct LoadBFloat16s {
  static constexpr std::int64_t kSize = 2;
  HWY_INLINE FloatVector operator()(const std::byte* source) const {
    const auto bits = hn::LoadU(HalfTag(), reinterpret_cast<const std::uint16_t*>(source));
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(BitsTag(), bits)));
  }
};

struct LoadFloat16s {
  static constexpr std::int64_t kSize = 2;
  HWY_INLINE FloatVector operator()(const std::byte* source) const {
#if ATTEND_NATIVE_FLOAT16
    const hn::Rebind<hwy::float16_t, FloatTag> dh;
    const auto halves = hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(source));
    return hn::PromoteTo(FloatTag(), halves);
#else
    const FloatTag d;
    alignas(64) float values[HWY_MAX_BYTES / sizeof(float)];
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
      values[i] = LoadFloat(DType::kFloat16, source + i * kSize);
    }
    return hn::Load(d, values);
#endif
  }
};

// Calls body(load) with the loader of a dtype.
template <typename Body>
HWY_INLINE void WithLoader(DType dtype, Body body) {
  if (dtype == DType::kFloat32) return body(LoadFloats());
  if (dtype == DType::kBFloat16) return body(LoadBFloat16s());
  body(LoadFloat16s());
}

}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#endif  // ATTEND_CORE_SIMD_LOAD_INL_H_
