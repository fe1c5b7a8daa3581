#include "core/base/pair_count.h"

#include <algorithm>
#include <limits>

#include "absl/numeric/int128.h"

namespace attend {

namespace {

// Half-open.
struct Range {
  std::int64_t begin;
  std::int64_t end;
};

// The sum of x, held between low and high, over the integers of `xs`.
absl::int128 SumOfClamped(Range xs, std::int64_t low, std::int64_t high) {
  const std::int64_t count = xs.end - xs.begin;
  const std::int64_t below = std::clamp<std::int64_t>(low - xs.begin, 0, count);
  const std::int64_t above = std::clamp<std::int64_t>(xs.end - 1 - high, 0, count);
  const absl::int128 between = count - below - above;
  return absl::int128(below) * low + absl::int128(above) * high + between * (xs.begin + below) +
         between * (between - 1) / 2;
}

// Pairs of `rows` and `keys` of an item that causality and the window leave. The keys of a row at
// position p end at p + reach + 1 and begin at p - left, held inside `keys`; since neither reach
// nor left is negative, the end is never before the beginning.
absl::int128 VisiblePairs(const AttentionProblem& problem, const AttentionItem& item, Range rows,
                          Range keys) {
  if (rows.begin >= rows.end || keys.begin >= keys.end) return 0;
  const auto shifted = [&](std::int64_t by) {
    return Range{rows.begin + item.offset + by, rows.end + item.offset + by};
  };
  const absl::int128 num_rows = rows.end - rows.begin;
  absl::int128 ends = num_rows * keys.end;
  absl::int128 begins = num_rows * keys.begin;
  if (problem.causal()) {
    ends = SumOfClamped(shifted(1), keys.begin, keys.end);  // a window to the right hides nothing
  } else if (problem.window_right().has_value()) {
    ends = SumOfClamped(shifted(*problem.window_right() + 1), keys.begin, keys.end);
  }
  if (problem.window_left().has_value()) {
    begins = SumOfClamped(shifted(-*problem.window_left()), keys.begin, keys.end);
  }
  return ends - begins;
}

// The same for one head of a block mask.
absl::int128 PairsInBlocks(const AttentionProblem& problem, std::int64_t b, std::int64_t head) {
  const BlockMaskView& mask = *problem.block_mask();
  const AttentionItem& item = problem.items()[b];
  // Blocks that share one element are one block.
  const std::int64_t all = std::numeric_limits<std::int64_t>::max();
  const std::int64_t row_step = mask.blocks.strides[2] == 0 ? all : mask.query_block_size;
  const std::int64_t key_step = mask.blocks.strides[3] == 0 ? all : mask.key_block_size;
  const auto next = [](std::int64_t begin, std::int64_t step, std::int64_t length) {
    return begin + std::min(step, length - begin);
  };
  absl::int128 pairs = 0;
  for (std::int64_t row = 0; row < item.query_len; row = next(row, row_step, item.query_len)) {
    for (std::int64_t key = 0; key < item.kv_len; key = next(key, key_step, item.kv_len)) {
      if (*mask.blocks.at(b, head, row / row_step, key / key_step) == std::byte{0}) continue;
      pairs += VisiblePairs(problem, item, {row, next(row, row_step, item.query_len)},
                            {key, next(key, key_step, item.kv_len)});
    }
  }
  return pairs;
}

absl::int128 PairsOfItem(const AttentionProblem& problem, std::int64_t b) {
  if (!problem.block_mask().has_value()) {
    const AttentionItem& item = problem.items()[b];
    return problem.query_heads() *
           VisiblePairs(problem, item, {0, item.query_len}, {0, item.kv_len});
  }
  if (problem.block_mask()->blocks.strides[1] == 0) {
    return problem.query_heads() * PairsInBlocks(problem, b, 0);
  }
  absl::int128 pairs = 0;
  for (std::int64_t h = 0; h < problem.query_heads(); ++h) pairs += PairsInBlocks(problem, b, h);
  return pairs;
}

}  // namespace

std::optional<std::int64_t> CountDotProducts(const AttentionProblem& problem) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  absl::int128 total = 0;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    total += PairsOfItem(problem, b);
    if (total > kMax) return std::nullopt;
  }
  return static_cast<std::int64_t>(total);
}

}  // namespace attend
