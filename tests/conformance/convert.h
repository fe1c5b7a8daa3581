// Says a conformance case in the words of our API.
#ifndef ATTEND_TESTS_CONFORMANCE_CONVERT_H_
#define ATTEND_TESTS_CONFORMANCE_CONVERT_H_

#include "absl/status/statusor.h"
#include "attend/v1/attention.pb.h"
#include "tests/conformance/case.h"

namespace attend::testing {

// The request that asks for the same as a case of Attention or com.microsoft.GroupQueryAttention:
//   - three-dimensional tensors are [batch, length, heads, dim] by another name;
//   - past keys and values are put before the new ones, and the queries stand behind them;
//   - nonpad_kv_seqlen are the items' lengths, with the last query at the last key;
//   - a mask shorter than the keys is continued with false or -inf;
//   - GroupQueryAttention is causal; its sink is `head_sink`, or 0 with `smooth_softmax`.
// FAILED_PRECONDITION, naming it, for an attribute or input that this does not know, so that none
// is ignored.
absl::StatusOr<v1::AttendRequest> ToRequest(const Case& test_case);

// past and new along the sequence axis of [batch, heads, length, dim], as present_key and
// present_value are. `past` may be null. `fresh` may be [batch, length, heads * dim].
Tensor JoinPast(const Tensor* past, const Tensor& fresh, std::int64_t heads);

}  // namespace attend::testing

#endif  // ATTEND_TESTS_CONFORMANCE_CONVERT_H_
