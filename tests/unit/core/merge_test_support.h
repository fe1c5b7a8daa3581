// Requests split by their keys, and merged parts held against the whole.
#ifndef ATTEND_TESTS_UNIT_CORE_MERGE_TEST_SUPPORT_H_
#define ATTEND_TESTS_UNIT_CORE_MERGE_TEST_SUPPORT_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <vector>

#include "core/base/merge.h"
#include "tests/unit/core/attention_test_support.h"

namespace attend::testing {

inline constexpr Layout kLayouts[] = {Layout::kBatchHeadsLength, Layout::kBatchLengthHeads,
                                      Layout::kPacked};

// The elements of a tensor that stand at `indices` on one axis.
inline Tensor Taken(const Tensor& tensor, std::size_t axis,
                    const std::vector<std::int64_t>& indices) {
  std::size_t outer = 1;
  for (std::size_t i = 0; i < axis; ++i) outer *= tensor.shape[i];
  std::size_t bytes = SizeOf(tensor.dtype);
  for (std::size_t i = axis + 1; i < tensor.shape.size(); ++i) bytes *= tensor.shape[i];
  Tensor result{tensor.dtype, tensor.shape, {}};
  result.shape[axis] = static_cast<std::int64_t>(indices.size());
  for (std::size_t i = 0; i < outer; ++i) {
    for (const std::int64_t index : indices) {
      const auto begin = tensor.data.begin() + (i * tensor.shape[axis] + index) * bytes;
      result.data.insert(result.data.end(), begin, begin + bytes);
    }
  }
  return result;
}

// How many of `keys` an item has.
inline std::int64_t KeysOf(const AttentionItem& item, KeyRange keys) {
  return std::min(item.kv_len, keys.end) - std::min(item.kv_len, keys.begin);
}

// Indices of `keys`, cut from each item, on the length axis of keys and values.
inline std::vector<std::int64_t> IndicesOf(const AttentionProblem& problem, KeyRange keys) {
  std::vector<std::int64_t> indices;
  if (problem.layout() != Layout::kPacked) {
    for (std::int64_t key = keys.begin; key < keys.end; ++key) indices.push_back(key);
    return indices;
  }
  std::int64_t first = 0;
  for (const AttentionItem& item : problem.items()) {
    for (std::int64_t i = 0; i < KeysOf(item, keys); ++i) indices.push_back(first + keys.begin + i);
    first += item.kv_len;
  }
  return indices;
}

// The request for a part that holds `keys`, made as merge.h says.
inline Request PartOf(const Request& whole, KeyRange keys) {
  const AttentionProblem problem = *AttentionProblem::Create(whole.Args());
  Request part = whole;
  const std::size_t axis = whole.args.layout == Layout::kPacked             ? 0
                           : whole.args.layout == Layout::kBatchLengthHeads ? 1
                                                                            : 2;
  part.key = Taken(whole.key, axis, IndicesOf(problem, keys));
  part.value = Taken(whole.value, axis, IndicesOf(problem, keys));
  for (std::optional<Tensor>* mask : {&part.boolean_mask, &part.additive_mask}) {
    if (!mask->has_value() || (*mask)->shape.back() == 1) continue;
    *mask = Taken(**mask, (*mask)->shape.size() - 1, IndicesOf(problem, keys));
  }
  part.sinks.reset();
  part.args.kv_lengths.clear();
  part.args.options.alignment = Alignment::kOffsets;
  part.args.options.query_offsets.clear();
  for (const AttentionItem& item : problem.items()) {
    part.args.kv_lengths.push_back(KeysOf(item, keys));
    part.args.options.query_offsets.push_back(item.offset - keys.begin);
  }
  part.args.output = {.dtype = DType::kFloat32, .lse = true};
  return part;
}

// Between each two neighbours of `cuts`, a part.
inline std::vector<KeyRange> RangesBetween(const std::vector<std::int64_t>& cuts) {
  std::vector<KeyRange> ranges;
  for (std::size_t i = 1; i < cuts.size(); ++i) ranges.push_back({cuts[i - 1], cuts[i]});
  return ranges;
}

// Answers as parts: a merged one is one too.
inline std::vector<AttentionPart> PartsOf(const std::vector<MergeResult>& answers) {
  std::vector<AttentionPart> parts;
  parts.reserve(answers.size());
  for (const MergeResult& answer : answers) {
    parts.push_back({.output = answer.output.view(), .lse = answer.lse.view()});
  }
  return parts;
}

// What merge.h's bound speaks of: e, and d.
struct PartErrors {
  double output;
  double lse;
};

// Of parts that were exact before they were rounded.
inline PartErrors RoundingErrors(const std::vector<MergeResult>& answers) {
  PartErrors errors{0, 0};
  for (const MergeResult& answer : answers) {
    errors.output = std::max(errors.output, 0x1p-24 + RoundingOf(answer.output.dtype));
    for (const float lse : answer.lse.ToFloats()) {
      if (std::isfinite(lse)) errors.lse = std::max(errors.lse, 0x1p-24 * std::abs(lse));
    }
  }
  return errors;
}

// Holds a merged answer to merge.h's bound. `magnitude`: sum_j w_j |v_j|; `step`: what rounding
// near zero cost the parts.
inline void ExpectMerged(const MergeResult& merged, const ReferenceResult& whole,
                         const PartErrors& errors, double step = 0) {
  const double factor = std::exp(2 * errors.lse) * (1 + errors.output) * (1 + 0x1p-40) - 1;
  const DType dtype = merged.output.dtype;
  const std::vector<float> output = merged.output.ToFloats();
  ASSERT_EQ(output.size(), whole.output.size());
  for (std::size_t i = 0; i < output.size(); ++i) {
    const double want = whole.output[i];
    ASSERT_TRUE(SameKind(output[i], want)) << "output[" << i << "] " << output[i] << " " << want;
    if (!std::isfinite(want)) continue;
    const double error = factor * whole.magnitude[i] + step;
    const double rounding = (0x1p-24 + RoundingOf(dtype)) * (std::abs(want) + error);
    ASSERT_NEAR(output[i], want, (error + rounding + StepOf(dtype)) * 1.001 + 1e-38)
        << "output[" << i << "]";
  }
  const std::vector<float> lse = merged.lse.ToFloats();
  ASSERT_EQ(lse.size(), whole.lse.size());
  for (std::size_t i = 0; i < lse.size(); ++i) {
    ASSERT_TRUE(SameKind(lse[i], whole.lse[i])) << "lse[" << i << "] " << lse[i];
    if (!std::isfinite(lse[i])) continue;
    ASSERT_NEAR(lse[i], whole.lse[i], (errors.lse + 0x1p-24 * std::abs(whole.lse[i])) * 1.001)
        << "lse[" << i << "]";
  }
}

}  // namespace attend::testing

#endif  // ATTEND_TESTS_UNIT_CORE_MERGE_TEST_SUPPORT_H_
