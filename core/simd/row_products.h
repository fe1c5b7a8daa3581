// Products of a few query rows with many rows of keys or values, which are read once, as they lie
// in a request or a cache: for few rows memory is the limit, and a copy would cost more than the
// products.
#ifndef ATTEND_CORE_SIMD_ROW_PRODUCTS_H_
#define ATTEND_CORE_SIMD_ROW_PRODUCTS_H_

#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"

namespace attend {

// Columns are multiples of this.
inline constexpr std::int64_t kRowProductStep = 16;

// `count` rows of keys or values, at any alignment.
struct SourceRows {
  const std::byte* data = nullptr;
  std::int64_t stride = 0;  // bytes from a row to the next
  std::int64_t count = 0;
  DType dtype = DType::kFloat32;  // IsFloat
};

// scores[r * score_stride + j] = sum_d queries[r, d] * keys[j, d], for dense queries [rows,
// columns] at a multiple of 64 bytes.
//
// A row's score with a key has the same bits whatever the other keys are and wherever they lie;
// with another number of rows, or another dtype that holds the same keys, it may have others. Both
// functions ask for memory somewhat ahead of the rows, past their end too: that reads nothing.
// Thread-safety: pure.
void ScoreRows(const SourceRows& keys, std::int64_t columns, std::int64_t rows,
               const float* queries, std::int64_t score_stride, float* scores);

// terms[r, d] += sum_j weights[r * weight_stride + j] * values[j, d], for dense terms [rows,
// columns] at a multiple of 64 bytes. In the same order of j for all dtypes, and however the rows
// are cut into calls, one after the other. Thread-safety: pure.
void WeighRows(const SourceRows& values, std::int64_t columns, std::int64_t rows,
               std::int64_t weight_stride, const float* weights, float* terms);

// Whether all of `values` are finite. Aligned to 64 bytes, a multiple of kRowProductStep.
bool AllFinite(const float* values, std::int64_t count);

}  // namespace attend

#endif  // ATTEND_CORE_SIMD_ROW_PRODUCTS_H_
