// Merge: attention over all keys, from attention over some of them at a time.
//
// A caller whose keys lie on several servers has each compute attention over the keys that it holds
// and merges the answers. The result is exact: what one computation over all keys gives, but for
// rounding.
//
// A part over the keys [begin, end) is asked for as the whole would be, except:
// - key, value and the masks (a block mask between blocks) are cut to these keys, and kv_lengths to
//   what lies among them;
// - alignment is kOffsets, and query_offsets are those of the whole less `begin`, so that distances
//   stay the same for causality, windows and ALiBi;
// - sinks are left out, and given to Merge;
// - output.lse is set, and output.dtype is best kFloat32: parts need not be rounded to 16 bits.
// Key sets of any other form do as well, as long as no key is in two of them.
#ifndef ATTEND_CORE_BASE_MERGE_H_
#define ATTEND_CORE_BASE_MERGE_H_

#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "core/base/attention_problem.h"
#include "core/base/dtype.h"
#include "core/base/tensor.h"

namespace attend {

// Attention over some of the keys, computed without sinks: an output and the LSE that came with it.
// The views' memory belongs to the caller. Each part may have a dtype of its own.
struct AttentionPart {
  TensorView output;  // FLOAT32, BFLOAT16 or FLOAT16; the layout's shape, as of AttentionProblem
  TensorView lse;     // FLOAT32 [batch, query_heads, query_len]; kPacked: [tokens, query_heads]
};

struct MergeOptions {
  Layout layout = Layout::kBatchHeadsLength;  // of the parts and of the result
  std::optional<TensorView> sinks;            // FLOAT32 [query_heads]; -inf = no sink
  DType dtype = DType::kFloat32;              // of the merged output
};

// Dense, in the shapes of the parts.
struct MergeResult {
  Tensor output;
  Tensor lse;  // FLOAT32; natural logarithm, and the sinks are not part of it
};

// Merges parts over disjoint sets of keys. For each row, p running over the parts,
//   lse = ln sum_p exp(lse_p);  output = sum_p exp(lse_p - lse) output_p / (1 + exp(sink - lse)).
// A merged result without sinks is itself a part, and may be merged again.
//
// Edges: a part with LSE -inf saw no key in that row and adds nothing, whatever its output holds.
// If no part saw a key: zeros and LSE -inf, with a sink too. An LSE of NaN or +inf makes its row
// NaN, and its LSE. Otherwise an output that is not finite adds itself, since a weight is positive
// however small it is: Inf stays Inf, Inf less Inf is NaN, and other elements do not see it. One
// part without sinks comes back as it is, but for what its rows that saw no key hold.
//
// DType and accumulation: everything is computed in float64, the largest LSE subtracted before each
// exponential, so LSEs may be any distance apart. The output is rounded to float32, and from there
// to the dtype; nothing overflows but in this last rounding.
//
// Accuracy, per component, before the rounding to the output's dtype, for up to 3000 parts:
//   |o - o*| <= (exp(2 d) (1 + e) (1 + 2^-40) - 1) sum_j w_j |v_j|, which for small d is about
//   (2 d + e) sum_j w_j |v_j|, w_j being the weights of the whole.
// Here part p's output is within e sum_j w_pj |v_j| of the exact one, its rounding to a dtype
// included, and its LSE within d of the exact one: exp(lse_p), and with it the sum of all of them
// and the sink, is off by a factor of exp(d) at most, and their quotient by exp(2 d). Since LSE is
// FLOAT32, its rounding alone makes d |LSE| 2^-24: 6e-7 at 10, 6e-5 at 1000. The 2^-40 is Merge's
// own: a difference of LSEs up to 746, beyond which a weight is 0, can lose 746 units of 2^-53 in
// numerator and denominator each, the sums two for each part, the rest a few.
// The merged LSE is within d of the exact one, but for its own rounding to float32.
//
// Order: parts are added in the order given. Another order, or a merge in steps, may change the
// last bits, within the bound.
// Memory: the result, and a row of float64 and its parts' LSEs. Cost: O(parts * elements of the
// output), on the caller's thread; each element is read once. Thread-safety: pure.
//
// Errors: INVALID_ARGUMENT that names the field ("parts[1].lse.shape"), the value and what was
// expected, for: no parts; a wrong dtype or rank; sizes that are negative, disagree between parts
// or between an output and its LSE, or whose product overflows; elements at a null pointer, or
// strides that are not one for each size; sinks of another shape, NaN or +inf; an options.dtype
// that is no float.
absl::StatusOr<MergeResult> Merge(std::span<const AttentionPart> parts,
                                  const MergeOptions& options = {});

}  // namespace attend

#endif  // ATTEND_CORE_BASE_MERGE_H_
