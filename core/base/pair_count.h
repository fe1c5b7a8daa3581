// How many query-key pairs a request has, without looking at each.
#ifndef ATTEND_CORE_BASE_PAIR_COUNT_H_
#define ATTEND_CORE_BASE_PAIR_COUNT_H_

#include <cstdint>
#include <optional>

#include "core/base/attention_problem.h"

namespace attend {

// Query-key pairs not excluded by length, causality, window or blocks, times query_heads; nothing
// where an int64 cannot count them. `problem` may lack its own count yet, but nothing else.
// Cost: O(batch), and with a block mask O(batch * query_heads * blocks), without the heads where
// the mask does not tell them apart.
std::optional<std::int64_t> CountDotProducts(const AttentionProblem& problem);

}  // namespace attend

#endif  // ATTEND_CORE_BASE_PAIR_COUNT_H_
