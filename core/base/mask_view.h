// Masks as a caller sends them: checked, and broadcast without a copy.
#ifndef ATTEND_CORE_BASE_MASK_VIEW_H_
#define ATTEND_CORE_BASE_MASK_VIEW_H_

#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/attention_problem.h"
#include "core/base/tensor.h"

namespace attend {

// Broadcasts a BOOL mask, aligned at the right, to the four sizes of `target`.
// INVALID_ARGUMENT naming `field`: another dtype, a rank over 4, a size that is neither 1 nor the
// target's, a byte other than 0 and 1. Reads every byte of the mask.
absl::StatusOr<BroadcastView> BroadcastBooleanMask(const TensorView& mask,
                                                   std::span<const std::int64_t> target,
                                                   absl::string_view field);

// The same for a mask of a float dtype, whose elements must be finite or -inf.
absl::StatusOr<BroadcastView> BroadcastAdditiveMask(const TensorView& mask,
                                                    std::span<const std::int64_t> target,
                                                    absl::string_view field);

}  // namespace attend

#endif  // ATTEND_CORE_BASE_MASK_VIEW_H_
