// Forms that gathered rows of keys and values are kept in.
#ifndef ATTEND_CORE_BASE_ROW_FORM_H_
#define ATTEND_CORE_BASE_ROW_FORM_H_

#include <cstdint>

namespace attend {

// Rows and columns of a block.
inline constexpr std::int64_t kRowBlock = 8;

// In every form, kRowBlock rows that begin at a multiple of it take kRowBlock * columns floats on
// end, and follow those before them: a range of whole blocks of rows lies dense. Rows and columns
// are multiples of kRowBlock in all forms but the first.
enum class RowForm {
  kDense,             // [rows, columns]
  kBlocks,            // [rows / 8, columns / 8, 8 rows, 8 columns]
  kTransposedBlocks,  // [rows / 8, columns / 8, 8 columns, 8 rows]
};

}  // namespace attend

#endif  // ATTEND_CORE_BASE_ROW_FORM_H_
