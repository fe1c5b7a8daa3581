#include "core/simd/pack.h"

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

// Adds 0 * v, which is 0 for what is finite and NaN for what is not.
template <class D>
HWY_INLINE void Check(D d, hn::Vec<D> v, hn::Vec<D>& sum) {
  sum = hn::MulAdd(v, hn::Zero(d), sum);
}

#if HWY_TARGET == HWY_SCALAR

using TransposeTag = hn::CappedTag<float, 1>;

HWY_INLINE void TransposeBlock(const float* HWY_RESTRICT rows, std::int64_t stride,
                               float* HWY_RESTRICT target, hn::Vec<TransposeTag>& sum) {
  const TransposeTag d;
  for (std::int64_t c = 0; c < kRowBlock; ++c) {
    for (std::int64_t r = 0; r < kRowBlock; ++r) {
      const auto v = hn::LoadU(d, rows + r * stride + c);
      Check(d, v, sum);
      hn::StoreU(v, d, target + c * kRowBlock + r);
    }
  }
}

#else

// Vectors of four, which every target has, keep it free of the order of lanes in wider ones.
using TransposeTag = hn::FixedTag<float, 4>;

HWY_INLINE void TransposeQuarter(const float* HWY_RESTRICT rows, std::int64_t stride,
                                 float* HWY_RESTRICT target, hn::Vec<TransposeTag>& sum) {
  const TransposeTag d;
  const hn::RepartitionToWide<TransposeTag> dw;
  const auto r0 = hn::LoadU(d, rows);
  const auto r1 = hn::LoadU(d, rows + stride);
  const auto r2 = hn::LoadU(d, rows + 2 * stride);
  const auto r3 = hn::LoadU(d, rows + 3 * stride);
  Check(d, r0, sum);
  Check(d, r1, sum);
  Check(d, r2, sum);
  Check(d, r3, sum);
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
                               float* HWY_RESTRICT target, hn::Vec<TransposeTag>& sum) {
  constexpr std::int64_t kHalf = kRowBlock / 2;
  for (std::int64_t c = 0; c < kRowBlock; c += kHalf) {
    for (std::int64_t r = 0; r < kRowBlock; r += kHalf) {
      TransposeQuarter(rows + r * stride + c, stride, target + c * kRowBlock + r, sum);
    }
  }
}

#endif

bool TransposeRows(std::int64_t columns, std::int64_t stride, const float* HWY_RESTRICT rows,
                   float* HWY_RESTRICT target) {
  const TransposeTag d;
  auto sum = hn::Zero(d);
  for (std::int64_t c = 0; c < columns; c += kRowBlock) {
    TransposeBlock(rows + c, stride, target + c * kRowBlock, sum);
  }
  return hn::AllTrue(d, hn::Eq(sum, hn::Zero(d)));
}

// Blocks of kRowBlock columns, each row of a block row_step floats after the one before it, each
// block block_step after the one before it.
bool CopyRows(std::int64_t columns, std::int64_t stride, std::int64_t row_step,
              std::int64_t block_step, const float* HWY_RESTRICT rows, float* HWY_RESTRICT target) {
  const hn::CappedTag<float, kRowBlock> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  for (std::int64_t r = 0; r < kRowBlock; ++r) {
    for (std::int64_t c = 0; c < columns; c += kRowBlock) {
      float* const part = target + r * row_step + c / kRowBlock * block_step;
      for (std::int64_t i = 0; i < kRowBlock; i += lanes) {
        const auto v = hn::LoadU(d, rows + r * stride + c + i);
        Check(d, v, sum);
        hn::Store(v, d, part + i);
      }
    }
  }
  return hn::AllTrue(d, hn::Eq(sum, hn::Zero(d)));
}

}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {

HWY_EXPORT(TransposeRows);
HWY_EXPORT(CopyRows);

bool PackRows(RowForm form, std::int64_t columns, std::int64_t stride, const float* rows,
              float* target) {
  if (form == RowForm::kTransposedBlocks) {
    return HWY_DYNAMIC_DISPATCH(TransposeRows)(columns, stride, rows, target);
  }
  const bool dense = form == RowForm::kDense;
  return HWY_DYNAMIC_DISPATCH(CopyRows)(columns, stride, dense ? columns : kRowBlock,
                                        dense ? kRowBlock : kRowBlock * kRowBlock, rows, target);
}

}  // namespace attend
#endif  // HWY_ONCE
