#include "core/simd/row_products.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/simd/row_products.cc"
// foreach_target.h includes these again for each target, so it stands before what it repeats.
// clang-format off
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "core/simd/load-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Rows whose sums are kept in registers together.
constexpr int kRowGroup = 4;
// Sums that are kept in registers: fewer would wait for each other's additions.
constexpr int kSums = 8;
// Rows of a source that are worked on while they stay in the first cache.
constexpr std::int64_t kSourceGroup = 32;
// How far ahead of what is worked on memory is asked for: compute and reading overlap only if the
// reading is asked for in time.
constexpr std::int64_t kKeysAhead = 24;
constexpr std::int64_t kValuesAhead = 48;
// Keys whose sums are kept in registers together: AVX-512 has twice as many of those.
constexpr int kKeyGroup = hn::MaxLanes(FloatTag()) >= 16 ? 4 : 2;

// Loads kCount vectors of neighbouring elements, in the order in which they lie. Some dtypes have
// an order of their own below; LoadTerms brings floats into it and StoreTerms out of it.
template <typename Load, int kCount>
struct Loads {
  static constexpr std::int64_t kSize = Load::kSize;
  static constexpr int kVectors = kCount;
  static constexpr std::int64_t kColumns = kCount * hn::MaxLanes(FloatTag());
  static constexpr bool kInOrder = true;

  static HWY_INLINE void LoadRow(const std::byte* source, FloatVector* row) {
    constexpr std::int64_t kVectorBytes = hn::MaxLanes(FloatTag()) * Load::kSize;
    for (int v = 0; v < kCount; ++v) row[v] = Load()(source + v * kVectorBytes);
  }
  static HWY_INLINE void LoadTerms(const float* source, FloatVector* terms) {
    const FloatTag d;
    for (int v = 0; v < kCount; ++v) terms[v] = hn::Load(d, source + v * hn::MaxLanes(d));
  }
  static HWY_INLINE void StoreTerms(const FloatVector* terms, float* to) {
    const FloatTag d;
    for (int v = 0; v < kCount; ++v) hn::Store(terms[v], d, to + v * hn::MaxLanes(d));
  }
};

// Pairs of bfloat16 as the vector of their first ones and that of their second ones: one operation
// for each, where widening takes two, and all compete with the products.
template <>
struct Loads<LoadBFloat16s, 2> {
  static constexpr std::int64_t kSize = 2;
  static constexpr int kVectors = 2;
  static constexpr std::int64_t kColumns = 2 * hn::MaxLanes(FloatTag());
  static constexpr bool kInOrder = false;

  static HWY_INLINE void LoadRow(const std::byte* source, FloatVector* row) {
    const FloatTag d;
    const BitsTag db;
    const BitsVector pairs = hn::LoadU(db, reinterpret_cast<const std::uint32_t*>(source));
    row[0] = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
    row[1] = hn::BitCast(d, hn::And(pairs, hn::Set(db, 0xFFFF0000u)));
  }
  static HWY_INLINE void LoadTerms(const float* source, FloatVector* terms) {
    hn::LoadInterleaved2(FloatTag(), source, terms[0], terms[1]);
  }
  static HWY_INLINE void StoreTerms(const FloatVector* terms, float* to) {
    hn::StoreInterleaved2(terms[0], terms[1], FloatTag(), to);
  }
};

// Calls body(Loads of dtype) for rows of so many columns.
template <typename Body>
HWY_INLINE void WithLoads(DType dtype, std::int64_t columns, Body body) {
  WithLoader(dtype, [&]<typename Load>(Load /*load*/) {
    if (columns % Loads<Load, 2>::kColumns == 0) {
      body(Loads<Load, 2>());
    } else {
      body(Loads<Load, 1>());
    }
  });
}

// Into the second cache: the first one's few pending reads are for what is worked on.
HWY_INLINE void PrefetchRow(const std::byte* row, std::int64_t bytes) {
  constexpr int kSecondCache = 2;
  for (std::int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(row + b, /*rw=*/0, kSecondCache);
}

// The sum of the lanes of each of kRows vectors.
template <int kRows>
HWY_INLINE void SumLanes(const FloatVector* sums, float* HWY_RESTRICT totals) {
  const FloatTag d;
#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
  if constexpr (kRows == 4) {
    // Within each block of four lanes, then over the blocks: all four rows at once.
    const hn::RepartitionToWide<FloatTag> dw;
    const FloatVector s01 =
        hn::Add(hn::InterleaveLower(d, sums[0], sums[1]), hn::InterleaveUpper(d, sums[0], sums[1]));
    const FloatVector s23 =
        hn::Add(hn::InterleaveLower(d, sums[2], sums[3]), hn::InterleaveUpper(d, sums[2], sums[3]));
    const auto low = hn::BitCast(dw, s01);
    const auto high = hn::BitCast(dw, s23);
    const FloatVector s = hn::Add(hn::BitCast(d, hn::InterleaveLower(dw, low, high)),
                                  hn::BitCast(d, hn::InterleaveUpper(dw, low, high)));
    alignas(64) float blocks[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(s, d, blocks);
    const hn::FixedTag<float, 4> d4;
    auto total = hn::Load(d4, blocks);
    for (std::size_t i = 4; i < hn::Lanes(d); i += 4) {
      total = hn::Add(total, hn::Load(d4, blocks + i));
    }
    hn::StoreU(total, d4, totals);
    return;
  }
#endif
  for (int r = 0; r < kRows; ++r) totals[r] = hn::GetLane(hn::SumOfLanes(d, sums[r]));
}

// Scores of kRows rows with kKeys neighbouring keys.
template <int kRows, int kKeys, typename Load>
HWY_INLINE void ScoreBlock(const std::byte* key, std::int64_t stride, std::int64_t columns,
                           const float* HWY_RESTRICT queries, std::int64_t score_stride,
                           float* HWY_RESTRICT scores) {
  const FloatTag d;
  FloatVector sums[kKeys][kRows];
  for (int k = 0; k < kKeys; ++k) {
    for (int r = 0; r < kRows; ++r) sums[k][r] = hn::Zero(d);
  }
  for (std::int64_t c = 0; c < columns; c += Load::kColumns) {
    FloatVector keys[kKeys][Load::kVectors];
    for (int k = 0; k < kKeys; ++k) {
      Load::LoadRow(key + k * stride + c * Load::kSize, keys[k]);
    }
    for (int v = 0; v < Load::kVectors; ++v) {
      for (int r = 0; r < kRows; ++r) {
        const FloatVector query = hn::Load(d, queries + r * columns + c + v * hn::MaxLanes(d));
        for (int k = 0; k < kKeys; ++k) sums[k][r] = hn::MulAdd(query, keys[k][v], sums[k][r]);
      }
    }
  }
  for (int k = 0; k < kKeys; ++k) {
    float totals[kRows];
    SumLanes<kRows>(sums[k], totals);
    for (int r = 0; r < kRows; ++r) scores[r * score_stride + k] = totals[r];
  }
}

template <int kRows, typename Load>
HWY_INLINE void ScoreGroup(const SourceRows& keys, std::int64_t columns,
                           const float* HWY_RESTRICT queries, std::int64_t score_stride,
                           float* HWY_RESTRICT scores) {
  std::int64_t j = 0;
  for (; j + kKeyGroup <= keys.count; j += kKeyGroup) {
    const std::byte* key = keys.data + j * keys.stride;
    for (int k = 0; k < kKeyGroup; ++k) {
      PrefetchRow(key + (kKeysAhead + k) * keys.stride, columns * Load::kSize);
    }
    ScoreBlock<kRows, kKeyGroup, Load>(key, keys.stride, columns, queries, score_stride,
                                       scores + j);
  }
  for (; j < keys.count; ++j) {
    ScoreBlock<kRows, 1, Load>(keys.data + j * keys.stride, keys.stride, columns, queries,
                               score_stride, scores + j);
  }
}

// Asks for rows that are worked on later, a piece at a time and in the order in which they lie.
// Many at once, or in the order of the work, which takes some columns of all rows before the next
// ones, memory gives them at half its speed.
class RowsAhead {
 public:
  HWY_INLINE RowsAhead(const std::byte* row, std::int64_t stride, std::int64_t row_bytes)
      : next_(row), stride_(stride), row_bytes_(row_bytes), left_(row_bytes) {}

  template <std::int64_t kBytes>
  HWY_INLINE void Ask() {
    for (std::int64_t b = 0; b < kBytes; b += 64) hwy::Prefetch(next_ + b);
    next_ += kBytes;
    left_ -= kBytes;
    if (left_ <= 0) {
      next_ += stride_ - row_bytes_ + left_;
      left_ = row_bytes_;
    }
  }

 private:
  const std::byte* next_;
  const std::int64_t stride_;
  const std::int64_t row_bytes_;
  std::int64_t left_;  // of this row
};

// Adds to kRows rows of terms, in kSteps times Load::kColumns columns from `begin`.
template <int kRows, int kSteps, typename Load>
HWY_INLINE void WeighColumns(const SourceRows& values, std::int64_t begin, std::int64_t columns,
                             std::int64_t weight_stride, const float* HWY_RESTRICT weights,
                             RowsAhead& ahead, float* HWY_RESTRICT terms) {
  const FloatTag d;
  FloatVector sums[kRows][kSteps][Load::kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int s = 0; s < kSteps; ++s) {
      Load::LoadTerms(terms + r * columns + begin + s * Load::kColumns, sums[r][s]);
    }
  }
  const std::byte* value = values.data + begin * Load::kSize;
  for (std::int64_t j = 0; j < values.count; ++j, value += values.stride) {
    ahead.Ask<kSteps * Load::kColumns * Load::kSize>();
    FloatVector row[kSteps][Load::kVectors];
    for (int s = 0; s < kSteps; ++s) {
      Load::LoadRow(value + s * Load::kColumns * Load::kSize, row[s]);
    }
    for (int r = 0; r < kRows; ++r) {
      const FloatVector weight = hn::Set(d, weights[r * weight_stride + j]);
      for (int s = 0; s < kSteps; ++s) {
        for (int v = 0; v < Load::kVectors; ++v) {
          sums[r][s][v] = hn::MulAdd(weight, row[s][v], sums[r][s][v]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int s = 0; s < kSteps; ++s) {
      Load::StoreTerms(sums[r][s], terms + r * columns + begin + s * Load::kColumns);
    }
  }
}

template <int kRows, typename Load>
HWY_INLINE void WeighGroup(const SourceRows& values, std::int64_t columns,
                           std::int64_t weight_stride, const float* HWY_RESTRICT weights,
                           float* HWY_RESTRICT terms) {
  constexpr int kSteps = kSums / kRows / Load::kVectors;
  constexpr std::int64_t step = kSteps * Load::kColumns;
  RowsAhead ahead(values.data + kValuesAhead * values.stride, values.stride, columns * Load::kSize);
  std::int64_t c = 0;
  for (; c + step <= columns; c += step) {
    WeighColumns<kRows, kSteps, Load>(values, c, columns, weight_stride, weights, ahead, terms);
  }
  for (; c < columns; c += Load::kColumns) {
    WeighColumns<kRows, 1, Load>(values, c, columns, weight_stride, weights, ahead, terms);
  }
}

// Calls body<kRows>(first row) for groups of rows: of four, and for the rest of one.
template <typename Body>
HWY_INLINE void ForRowGroups(std::int64_t rows, Body body) {
  std::int64_t r = 0;
  for (; r + kRowGroup <= rows; r += kRowGroup) body.template operator()<kRowGroup>(r);
  for (; r < rows; ++r) body.template operator()<1>(r);
}

// Calls body(first row, those rows) for groups of kSourceGroup rows.
template <typename Body>
HWY_INLINE void ForSourceGroups(const SourceRows& rows, Body body) {
  for (std::int64_t j = 0; j < rows.count; j += kSourceGroup) {
    body(j, SourceRows{rows.data + j * rows.stride, rows.stride,
                       std::min(kSourceGroup, rows.count - j), rows.dtype});
  }
}

template <typename Load>
HWY_INLINE void ScoreInOrder(const SourceRows& keys, std::int64_t columns, std::int64_t rows,
                             const float* HWY_RESTRICT queries, std::int64_t score_stride,
                             float* HWY_RESTRICT scores) {
  ForSourceGroups(keys, [&](std::int64_t j, const SourceRows& group) {
    ForRowGroups(rows, [&]<int kRows>(std::int64_t r) {
      ScoreGroup<kRows, Load>(group, columns, queries + r * columns, score_stride,
                              scores + r * score_stride + j);
    });
  });
}

// The same with queries brought into the order of the loads first.
template <typename Load>
HWY_INLINE void ScoreReordered(const SourceRows& keys, std::int64_t columns, std::int64_t rows,
                               const float* HWY_RESTRICT queries, std::int64_t score_stride,
                               float* HWY_RESTRICT scores) {
  constexpr std::int64_t kMaxFloats = 16384;
  HWY_ALIGN float ordered[kMaxFloats];
  const std::int64_t rows_at_once = std::max<std::int64_t>(kMaxFloats / columns, 1);
  for (std::int64_t begin = 0; begin < rows; begin += rows_at_once) {
    const std::int64_t num_rows = std::min(rows_at_once, rows - begin);
    for (std::int64_t i = 0; i < num_rows * columns; i += Load::kColumns) {
      FloatVector terms[Load::kVectors];
      Load::LoadTerms(queries + begin * columns + i, terms);
      for (int v = 0; v < Load::kVectors; ++v) {
        hn::Store(terms[v], FloatTag(), ordered + i + v * hn::MaxLanes(FloatTag()));
      }
    }
    ScoreInOrder<Load>(keys, columns, num_rows, ordered, score_stride,
                       scores + begin * score_stride);
  }
}

void ScoreRows(const SourceRows& keys, std::int64_t columns, std::int64_t rows,
               const float* HWY_RESTRICT queries, std::int64_t score_stride,
               float* HWY_RESTRICT scores) {
  WithLoads(keys.dtype, columns, [&](auto load) {
    using Load = decltype(load);
    if constexpr (Load::kInOrder) {
      ScoreInOrder<Load>(keys, columns, rows, queries, score_stride, scores);
    } else {
      ScoreReordered<Load>(keys, columns, rows, queries, score_stride, scores);
    }
  });
}

void WeighRows(const SourceRows& values, std::int64_t columns, std::int64_t rows,
               std::int64_t weight_stride, const float* HWY_RESTRICT weights,
               float* HWY_RESTRICT terms) {
  WithLoads(values.dtype, columns, [&](auto load) {
    ForSourceGroups(values, [&](std::int64_t j, const SourceRows& group) {
      ForRowGroups(rows, [&]<int kRows>(std::int64_t r) {
        WeighGroup<kRows, decltype(load)>(group, columns, weight_stride,
                                          weights + r * weight_stride + j, terms + r * columns);
      });
    });
  });
}

bool AllFinite(const float* HWY_RESTRICT values, std::int64_t count) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // 0 * v is 0 for what is finite, and NaN for what is not.
  FloatVector sum = hn::Zero(d);
  for (std::int64_t i = 0; i < count; i += lanes) {
    sum = hn::MulAdd(hn::Zero(d), hn::Load(d, values + i), sum);
  }
  return hn::AllTrue(d, hn::Eq(sum, hn::Zero(d)));
}

}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {

HWY_EXPORT(ScoreRows);
HWY_EXPORT(WeighRows);
HWY_EXPORT(AllFinite);

void ScoreRows(const SourceRows& keys, std::int64_t columns, std::int64_t rows,
               const float* queries, std::int64_t score_stride, float* scores) {
  HWY_DYNAMIC_DISPATCH(ScoreRows)(keys, columns, rows, queries, score_stride, scores);
}

void WeighRows(const SourceRows& values, std::int64_t columns, std::int64_t rows,
               std::int64_t weight_stride, const float* weights, float* terms) {
  HWY_DYNAMIC_DISPATCH(WeighRows)(values, columns, rows, weight_stride, weights, terms);
}

bool AllFinite(const float* values, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(AllFinite)(values, count);
}

}  // namespace attend
#endif  // HWY_ONCE
