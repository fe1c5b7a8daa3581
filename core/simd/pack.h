// Dense rows to the forms that products read.
#ifndef ATTEND_CORE_SIMD_PACK_H_
#define ATTEND_CORE_SIMD_PACK_H_

#include <cstdint>

#include "core/base/row_form.h"

namespace attend {

// Writes kRowBlock rows, dense [kRowBlock, columns], to `target` in `form`. `columns` is a multiple
// of kRowBlock; both begin at multiples of 64 bytes and do not overlap. Thread-safety: pure.
void PackRows(RowForm form, std::int64_t columns, const float* rows, float* target);

}  // namespace attend

#endif  // ATTEND_CORE_SIMD_PACK_H_
