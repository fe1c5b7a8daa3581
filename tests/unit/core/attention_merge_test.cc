// Merge of what the fast path gives for some of the keys at a time, against the whole.
#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "tests/unit/core/merge_test_support.h"

namespace attend::testing {
namespace {

// The fast path's own bound for unit-variance inputs, and what attention_accuracy.cc allows an LSE.
PartErrors FastPathErrors(const std::vector<MergeResult>& answers) {
  const PartErrors rounding = RoundingErrors(answers);
  return {2e-6 + rounding.output, 2e-6 * (1 + rounding.lse / 0x1p-24)};
}

TEST(AttentionMerge, OfTheFastPathsPartsIsTheWhole) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(::testing::Message() << Name(dtype) << " causal " << causal);
      Request whole = MakeRequest({2, 4, 2, 17, 700, 32, 24, dtype});
      whole.args.kv_lengths = {700, 390};
      whole.args.options.causal = causal;
      whole.args.options.alignment = Alignment::kLast;
      whole.args.options.window_left = 650;
      whole.sinks = Normal(DType::kFloat32, {4}, 9, 3);
      std::vector<MergeResult> answers;
      for (const KeyRange& keys : RangesBetween({0, 3, 130, 380, 380, 611, 700})) {
        const Request part = PartOf(whole, keys);
        const auto problem = AttentionProblem::Create(part.Args());
        ASSERT_TRUE(problem.ok()) << problem.status();
        auto outputs = Compute(*problem);
        ASSERT_TRUE(outputs.ok()) << outputs.status();
        answers.push_back({std::move(outputs->output), std::move(outputs->lse)});
      }
      const auto merged = Merge(PartsOf(answers), {.sinks = whole.sinks->view()});
      ASSERT_TRUE(merged.ok()) << merged.status();
      const auto problem = AttentionProblem::Create(whole.Args());
      ASSERT_TRUE(problem.ok()) << problem.status();
      ExpectMerged(*merged, ReferenceAttention(*problem), FastPathErrors(answers));
    }
  }
}

}  // namespace
}  // namespace attend::testing
