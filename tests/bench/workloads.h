// Workloads that are more than one request again and again.
#ifndef ATTEND_TESTS_BENCH_WORKLOADS_H_
#define ATTEND_TESTS_BENCH_WORKLOADS_H_

#include <cstdint>
#include <vector>

#include "tests/bench/report.h"

namespace attend::bench {

// 2,000 requests of one head and head_dim 64, of lengths uniform in 1..2048, against requests of
// 1,024 tokens, FLOP for FLOP, taken in turns so that both meet the same machine. Beside the ratio:
// how many primitives were made in all, also by 100 requests of other head sizes than are warm.
std::vector<Figure> RaggedTraffic();

// One causal head of 131,072 tokens and head_dim 64: what it takes beyond the gathered keys and
// values, the request and the output, and how far sampled rows are from the float64 reference, in
// units of their bound.
std::vector<Figure> LongContext();

}  // namespace attend::bench

#endif  // ATTEND_TESTS_BENCH_WORKLOADS_H_
