#include "core/simd/softmax_pass.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/simd/softmax_pass.cc"
// foreach_target.h includes these again for each target, so it stands before what it repeats.
// clang-format off
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "core/simd/load-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// 2^(factor * x) for x in [-inf, 0]: 0 where x is less than `least`, -126 / factor; NaN for NaN.
// Relative error at most 2^-23, beside that of factor * x where no fused multiply-add keeps it
// exact.
//
// factor * x = n + f with n an integer and |f| <= 1/2; 2^f by a polynomial of degree 6 (least
// maximum relative error on that range with 2^0 = 1, 2e-9 before rounding), 2^n by building the
// exponent. The product at the end, rather than an addition to the exponent, keeps a NaN a NaN
// whatever its bits.
HWY_INLINE FloatVector Exp2(FloatVector factor, FloatVector least, FloatVector x) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits, with the exponent's
  // bias of 127 added so that a shift alone makes 2^n.
  const FloatVector magic = hn::Set(d, 12582912.0f + 127.0f);
  const FloatVector shifted = hn::MulAdd(x, factor, magic);
  const FloatVector f = hn::MulSub(x, factor, hn::Sub(shifted, magic));
  const FloatVector power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  FloatVector p = hn::Set(d, 1.5353341795e-4f);
  p = hn::MulAdd(p, f, hn::Set(d, 1.3398875132e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 9.6184374247e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 5.5503324691e-2f));
  p = hn::MulAdd(p, f, hn::Set(d, 2.4022647913e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 6.9314720286e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  return hn::IfThenZeroElse(hn::Lt(x, least), hn::Mul(p, power));
}

HWY_INLINE std::int64_t RoundDown(std::int64_t value, std::int64_t step) {
  return value / step * step;
}

bool TransformScores(const ScoreTransform& transform, std::int64_t begin, std::int64_t end,
                     float* HWY_RESTRICT row) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const FloatVector scale = hn::Set(d, transform.scale);
  const FloatVector softcap = hn::Set(d, transform.softcap);
  const FloatVector slope = hn::Set(d, transform.alibi_slope);
  const FloatVector position = hn::Set(d, transform.position);
  const FloatVector excluded = hn::Set(d, kMinusInfinity);
  FloatVector any_visible = hn::Zero(d);
  for (std::int64_t j = RoundDown(begin, lanes); j < end; j += lanes) {
    FloatVector s = hn::Mul(hn::Load(d, row + j), scale);
    if (transform.softcap > 0) s = hn::Mul(softcap, hn::Tanh(d, hn::Div(s, softcap)));
    const FloatVector key = hn::Iota(d, static_cast<float>(j));
    if (transform.alibi_slope != 0) {
      s = hn::NegMulAdd(slope, hn::Abs(hn::Sub(position, key)), s);
    }
    if (transform.bias != nullptr) {
      const FloatVector bias = hn::Load(d, transform.bias + j);
      const auto is_excluded = hn::Eq(bias, excluded);
      s = hn::IfThenElse(is_excluded, excluded, hn::Add(s, bias));
      const auto in_range = hn::And(hn::Ge(key, hn::Set(d, static_cast<float>(begin))),
                                    hn::Lt(key, hn::Set(d, static_cast<float>(end))));
      any_visible =
          hn::IfThenElse(hn::AndNot(is_excluded, in_range), hn::Set(d, 1.0f), any_visible);
    }
    hn::Store(s, d, row + j);
  }
  if (transform.bias == nullptr) return end > begin;
  return !hn::AllTrue(d, hn::Eq(any_visible, hn::Zero(d)));
}

// Maximum of row[begin, end), both aligned; what NaN gives is unspecified.
HWY_INLINE float Maximum(const float* HWY_RESTRICT row, std::int64_t begin, std::int64_t end) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FloatVector m0 = hn::Set(d, kMinusInfinity);
  FloatVector m1 = m0;
  std::int64_t j = begin;
  for (; j + 2 * lanes <= end; j += 2 * lanes) {
    m0 = hn::Max(m0, hn::Load(d, row + j));
    m1 = hn::Max(m1, hn::Load(d, row + j + lanes));
  }
  if (j < end) m0 = hn::Max(m0, hn::Load(d, row + j));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1)));
}

// row[j] = 2^(factor * (row[j] - maximum)) over [begin, end), both aligned; returns their sum.
HWY_INLINE float Exponentials(float factor, float maximum, std::int64_t begin, std::int64_t end,
                              float* HWY_RESTRICT row) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const FloatVector f = hn::Set(d, factor);
  // Finite, so that -inf is below it whatever the factor is.
  const FloatVector least =
      hn::Set(d, std::max(-126.0f / factor, std::numeric_limits<float>::lowest()));
  const FloatVector m = hn::Set(d, maximum);
  FloatVector sum0 = hn::Zero(d);
  FloatVector sum1 = hn::Zero(d);
  std::int64_t j = begin;
  for (; j + 2 * lanes <= end; j += 2 * lanes) {
    const FloatVector p0 = Exp2(f, least, hn::Sub(hn::Load(d, row + j), m));
    const FloatVector p1 = Exp2(f, least, hn::Sub(hn::Load(d, row + j + lanes), m));
    hn::Store(p0, d, row + j);
    hn::Store(p1, d, row + j + lanes);
    sum0 = hn::Add(sum0, p0);
    sum1 = hn::Add(sum1, p1);
  }
  if (j < end) {
    const FloatVector p = Exp2(f, least, hn::Sub(hn::Load(d, row + j), m));
    hn::Store(p, d, row + j);
    sum0 = hn::Add(sum0, p);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

// Excludes what lies around the range up to whole vectors, which are the range that it returns, and
// gives all other columns their weight of 0.
HWY_INLINE ColumnRange CutRow(const ColumnRange& range, std::int64_t columns,
                              float* HWY_RESTRICT row) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  if (range.begin >= range.end) {
    std::fill(row, row + columns, 0.0f);
    return {};
  }
  const ColumnRange cut = {RoundDown(range.begin, lanes), RoundDown(range.end + lanes - 1, lanes)};
  std::fill(row, row + cut.begin, 0.0f);
  std::fill(row + cut.begin, row + range.begin, kMinusInfinity);
  std::fill(row + range.end, row + cut.end, kMinusInfinity);
  std::fill(row + cut.end, row + columns, 0.0f);
  return cut;
}

// Of a row that is cut to whole vectors, with its new maximum; returns its correction.
HWY_INLINE float StepRow(float factor, const ColumnRange& cut, float maximum,
                         float* HWY_RESTRICT row, SoftmaxRow& state) {
  if (cut.begin >= cut.end) return 1;
  // No score above -inf yet, or none that compares: a NaN must not be taken for an empty row.
  if (!(maximum > kMinusInfinity)) {
    float* const begin = row + cut.begin;
    float* const end = row + cut.end;
    const bool nan = std::any_of(begin, end, [](float s) { return std::isnan(s); });
    std::fill(begin, end, 0.0f);
    if (nan) state.sum = std::numeric_limits<float>::quiet_NaN();
    return 1;
  }
  const float tile_sum = Exponentials(factor, maximum, cut.begin, cut.end, row);
  const float correction =
      maximum == state.maximum ? 1.0f : std::exp2(factor * (state.maximum - maximum));
  state.sum = state.sum * correction + tile_sum;
  state.maximum = maximum;
  return correction;
}

void SoftmaxStep(float factor, std::int64_t rows, std::int64_t columns, const ColumnRange* ranges,
                 float* HWY_RESTRICT scores, SoftmaxRow* states, float* corrections) {
  // A few rows at a time, still in the first cache: the maxima of several do not wait for each
  // other, nor do their exponentials.
  constexpr std::int64_t kRowsAtOnce = 8;
  ColumnRange cuts[kRowsAtOnce];
  float maxima[kRowsAtOnce];
  for (std::int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, rows - first);
    float* const tile = scores + first * columns;
    for (std::int64_t r = 0; r < count; ++r) {
      cuts[r] = CutRow(ranges[first + r], columns, tile + r * columns);
      maxima[r] = std::max(states[first + r].maximum,
                           Maximum(tile + r * columns, cuts[r].begin, cuts[r].end));
    }
    for (std::int64_t r = 0; r < count; ++r) {
      corrections[first + r] =
          StepRow(factor, cuts[r], maxima[r], tile + r * columns, states[first + r]);
    }
  }
}

void AddToScaledRows(const float* factors, std::int64_t rows, std::int64_t columns,
                     const float* HWY_RESTRICT terms, float* HWY_RESTRICT sums) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < rows; ++r) {
    const FloatVector factor = hn::Set(d, factors[r]);
    for (std::int64_t j = r * columns; j < (r + 1) * columns; j += lanes) {
      const FloatVector sum = hn::Mul(hn::Load(d, sums + j), factor);
      hn::Store(hn::Add(sum, hn::Load(d, terms + j)), d, sums + j);
    }
  }
}

void ScaleRows(const float* factors, std::int64_t rows, std::int64_t columns,
               float* HWY_RESTRICT matrix) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < rows; ++r) {
    if (factors[r] == 1.0f) continue;
    const FloatVector factor = hn::Set(d, factors[r]);
    float* row = matrix + r * columns;
    for (std::int64_t j = 0; j < columns; j += lanes) {
      hn::Store(hn::Mul(hn::Load(d, row + j), factor), d, row + j);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {

HWY_EXPORT(TransformScores);
HWY_EXPORT(SoftmaxStep);
HWY_EXPORT(AddToScaledRows);
HWY_EXPORT(ScaleRows);

bool TransformScores(const ScoreTransform& transform, std::int64_t begin, std::int64_t end,
                     float* row) {
  return HWY_DYNAMIC_DISPATCH(TransformScores)(transform, begin, end, row);
}

void SoftmaxStep(float factor, std::int64_t rows, std::int64_t columns, const ColumnRange* ranges,
                 float* scores, SoftmaxRow* states, float* corrections) {
  HWY_DYNAMIC_DISPATCH(SoftmaxStep)(factor, rows, columns, ranges, scores, states, corrections);
}

void AddToScaledRows(const float* factors, std::int64_t rows, std::int64_t columns,
                     const float* terms, float* sums) {
  HWY_DYNAMIC_DISPATCH(AddToScaledRows)(factors, rows, columns, terms, sums);
}

void ScaleRows(const float* factors, std::int64_t rows, std::int64_t columns, float* matrix) {
  HWY_DYNAMIC_DISPATCH(ScaleRows)(factors, rows, columns, matrix);
}

}  // namespace attend
#endif  // HWY_ONCE
