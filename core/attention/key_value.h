// Where the kernel reads keys and values from.
#ifndef ATTEND_CORE_ATTENTION_KEY_VALUE_H_
#define ATTEND_CORE_ATTENTION_KEY_VALUE_H_

#include <cstdint>
#include <vector>

#include "core/base/attention_problem.h"
#include "core/base/buffer_pool.h"
#include "core/base/row_form.h"
#include "core/simd/row_products.h"

namespace attend {

// Keys come in steps of this many rows: lengths are padded to it, tiles are multiples of it.
inline constexpr std::int64_t kKeyStep = 64;

// Head sizes are padded to this many floats.
inline constexpr std::int64_t kDimStep = 16;

constexpr std::int64_t RoundUp(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

// Rows of a KV head of an item: query row i of the group's head g is row i * group_size + g.
inline std::int64_t RowsOfItem(const AttentionProblem& problem, const AttentionItem& item) {
  return item.query_len * problem.group_size();
}

// Items of so few rows read keys and values as they came: for them, copying would be most of the
// work.
inline constexpr std::int64_t kFewRows = 16;
inline bool HasFewRows(const AttentionProblem& problem, const AttentionItem& item) {
  return RowsOfItem(problem, item) <= kFewRows;
}

// The rows of one tensor (keys or values) of all items, as the kernel reads them: float32, of
// padded_dim columns, in the form of their products' B, with zeros in the padding and in place of
// what is not finite. Whoever sees a row that is flagged asks for the row as it came.
// Thread-safety: readers may be used from any thread.
class RowReader {
 public:
  virtual ~RowReader() = default;

  virtual std::int64_t padded_dim() const = 0;

  // Of items that do not have few rows: rows [begin, begin + count), for begin a multiple of
  // kKeyStep and count up to the item's length rounded up to kKeyStep; rows past the length are
  // finite.
  virtual const float* Rows(std::int64_t item, std::int64_t head, std::int64_t begin) const = 0;

  // Of the same items: whether any of the rows [begin, begin + count) held something not finite.
  virtual bool AnyNonFinite(std::int64_t item, std::int64_t head, std::int64_t begin,
                            std::int64_t count) const = 0;

  // Rows [begin, begin + count) as they came, where they can be multiplied so: their columns are
  // padded_dim() elements side by side. No data otherwise.
  virtual SourceRows Source(std::int64_t item, std::int64_t head, std::int64_t begin,
                            std::int64_t count) const = 0;

  // One row as it came, padded_dim floats.
  virtual void LoadOriginal(std::int64_t item, std::int64_t head, std::int64_t row,
                            float* target) const = 0;
};

// The rows of a request's tensor: those of items that do not have few rows are gathered, in units
// that may run on any thread in any order.
// Memory: the sum over gathered sources of heads * padded length * padded_dim floats, where items
// that share a source (K and V of batch 1) share its rows.
class GatheredRows : public RowReader {
 public:
  // `which` is &AttentionItem::key or &AttentionItem::value. `problem` must outlive it.
  GatheredRows(const AttentionProblem& problem, TensorView AttentionItem::*which, RowForm form);

  // Bytes that the gathered rows of a problem take.
  static std::int64_t BytesNeeded(const AttentionProblem& problem,
                                  TensorView AttentionItem::*which);

  // False if memory could not be had.
  bool Allocate(BufferPool& memory);

  std::int64_t num_floats() const { return total_rows_ * padded_dim_; }
  std::int64_t num_units() const { return static_cast<std::int64_t>(units_.size()); }

  // `block`: scratch memory of kRowBlock * padded_dim() floats, aligned, for this call alone.
  void RunUnit(std::int64_t unit, float* block);

  std::int64_t padded_dim() const override { return padded_dim_; }
  const float* Rows(std::int64_t item, std::int64_t head, std::int64_t begin) const override;
  bool AnyNonFinite(std::int64_t item, std::int64_t head, std::int64_t begin,
                    std::int64_t count) const override;
  SourceRows Source(std::int64_t item, std::int64_t head, std::int64_t begin,
                    std::int64_t count) const override;
  void LoadOriginal(std::int64_t item, std::int64_t head, std::int64_t row,
                    float* target) const override;

 private:
  struct SourceTensor {
    TensorView view;  // [heads, length, dim]
    bool gathered = false;
    std::int64_t padded_length = 0;
    std::int64_t first_row = 0;  // in the buffer, of head 0
  };
  struct Unit {
    std::int64_t source;
    std::int64_t head;
    std::int64_t begin;
  };

  static std::vector<SourceTensor> Sources(const AttentionProblem& problem,
                                           TensorView AttentionItem::*which);
  const SourceTensor& SourceOf(std::int64_t item) const { return sources_[shared_ ? 0 : item]; }
  std::int64_t RowIndex(const SourceTensor& source, std::int64_t head, std::int64_t row) const {
    return source.first_row + head * source.padded_length + row;
  }

  float* RowAt(std::int64_t index) const {
    return reinterpret_cast<float*>(buffer_.data()) + index * padded_dim_;
  }
  bool PackInPlace(const SourceTensor& source, std::int64_t head, std::int64_t row,
                   float* target) const;
  void GatherRow(const SourceTensor& source, std::int64_t head, std::int64_t row, float* target);

  const RowForm form_;
  std::int64_t heads_ = 0;
  std::int64_t dim_ = 0;
  std::int64_t padded_dim_ = 0;
  std::int64_t total_rows_ = 0;
  bool shared_ = false;
  std::vector<SourceTensor> sources_;
  std::vector<Unit> units_;
  std::vector<std::uint8_t> non_finite_;  // one for each kKeyStep rows
  PooledBuffer buffer_;
};

// Reads `count` elements of a strided row as float32; returns whether all are finite.
bool LoadStridedRow(const TensorView& view, std::int64_t head, std::int64_t row, std::int64_t count,
                    float* target);

}  // namespace attend

#endif  // ATTEND_CORE_ATTENTION_KEY_VALUE_H_
