// Dense rows to the forms that products read.
#ifndef ATTEND_CORE_SIMD_PACK_H_
#define ATTEND_CORE_SIMD_PACK_H_

#include <cstdint>

#include "core/base/row_form.h"

namespace attend {

// Writes kRowBlock rows of `columns` floats, `stride` floats apart, to `target` in `form`, and
// returns whether all are finite. `columns` is a multiple of kRowBlock; `rows` may begin at any
// address of a float, `target` at multiples of 64 bytes; they do not overlap. Thread-safety: pure.
bool PackRows(RowForm form, std::int64_t columns, std::int64_t stride, const float* rows,
              float* target);

}  // namespace attend

#endif  // ATTEND_CORE_SIMD_PACK_H_
