#include "core/simd/pack.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/simd/pack.cc"
// foreach_target.h includes this file again for each target, so it stands before what it repeats.
// clang-format off
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE void TransposeBlock(const float* HWY_RESTRICT rows, std::int64_t stride,
                               float* HWY_RESTRICT target) {
  for (std::int64_t c = 0; c < kRowBlock; ++c) {
    for (std::int64_t r = 0; r < kRowBlock; ++r) target[c * kRowBlock + r] = rows[r * stride + c];
  }
}

#else

// Vectors of four, which every target has, keep it free of the order of lanes in wider ones.
HWY_INLINE void TransposeQuarter(const float* HWY_RESTRICT rows, std::int64_t stride,
                                 float* HWY_RESTRICT target) {
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> dw;
  const auto r0 = hn::Load(d, rows);
  const auto r1 = hn::Load(d, rows + stride);
  const auto r2 = hn::Load(d, rows + 2 * stride);
  const auto r3 = hn::Load(d, rows + 3 * stride);
  const auto low01 = hn::BitCast(dw, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(dw, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(dw, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(dw, hn::InterleaveUpper(d, r2, r3));
  hn::Store(hn::BitCast(d, hn::InterleaveLower(dw, low01, low23)), d, target);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(dw, low01, low23)), d, target + kRowBlock);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(dw, high01, high23)), d, target + 2 * kRowBlock);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(dw, high01, high23)), d, target + 3 * kRowBlock);
}

HWY_INLINE void TransposeBlock(const float* HWY_RESTRICT rows, std::int64_t stride,
                               float* HWY_RESTRICT target) {
  constexpr std::int64_t kHalf = kRowBlock / 2;
  for (std::int64_t c = 0; c < kRowBlock; c += kHalf) {
    for (std::int64_t r = 0; r < kRowBlock; r += kHalf) {
      TransposeQuarter(rows + r * stride + c, stride, target + c * kRowBlock + r);
    }
  }
}

#endif

HWY_INLINE void CopyBlock(const float* HWY_RESTRICT rows, std::int64_t stride,
                          float* HWY_RESTRICT target) {
  const hn::CappedTag<float, kRowBlock> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < kRowBlock; ++r) {
    for (std::int64_t c = 0; c < kRowBlock; c += lanes) {
      hn::Store(hn::Load(d, rows + r * stride + c), d, target + r * kRowBlock + c);
    }
  }
}

void PackBlocks(bool transposed, std::int64_t columns, const float* HWY_RESTRICT rows,
                float* HWY_RESTRICT target) {
  for (std::int64_t c = 0; c < columns; c += kRowBlock) {
    float* const block = target + c * kRowBlock;
    if (transposed) {
      TransposeBlock(rows + c, columns, block);
    } else {
      CopyBlock(rows + c, columns, block);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {

HWY_EXPORT(PackBlocks);

void PackRows(RowForm form, std::int64_t columns, const float* rows, float* target) {
  if (form == RowForm::kDense) {
    std::copy_n(rows, kRowBlock * columns, target);
  } else {
    HWY_DYNAMIC_DISPATCH(PackBlocks)(form == RowForm::kTransposedBlocks, columns, rows, target);
  }
}

}  // namespace attend
#endif  // HWY_ONCE
