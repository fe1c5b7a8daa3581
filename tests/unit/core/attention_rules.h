// Requests of shapes alone, and which key a query may see, as design.md says it.
#ifndef ATTEND_TESTS_UNIT_CORE_ATTENTION_RULES_H_
#define ATTEND_TESTS_UNIT_CORE_ATTENTION_RULES_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "tests/unit/core/attention_test_support.h"

namespace attend::testing {

// Arguments of which only the shapes count: views that broadcast one element.
inline AttentionArgs ShapesOnly(Dims query, Dims key, Dims value) {
  static const float kElement = 0;
  const auto view = [](Dims shape) {
    Dims strides(shape.size(), 0);
    return TensorView{DType::kFloat32, std::move(shape), std::move(strides),
                      reinterpret_cast<const std::byte*>(&kElement)};
  };
  AttentionArgs args;
  args.query = view(std::move(query));
  args.key = view(std::move(key));
  args.value = view(std::move(value));
  return args;
}

struct Rules {
  bool causal;
  std::optional<std::int64_t> left;
  std::optional<std::int64_t> right;
};

// Every combination of causality and windows, narrow, wide and none.
inline std::vector<Rules> AllRules() {
  std::vector<std::optional<std::int64_t>> windows = {
      std::nullopt, 0, 1, 3, 70, std::numeric_limits<std::int64_t>::max()};
  std::vector<Rules> rules;
  for (const bool causal : {false, true}) {
    for (const auto& left : windows) {
      for (const auto& right : windows) rules.push_back({causal, left, right});
    }
  }
  return rules;
}

// design.md's rule 4, word for word, for one key.
inline bool MaySee(const Rules& rules, std::int64_t position, std::int64_t kv_len,
                   std::int64_t key) {
  if (key >= kv_len) return false;
  if (rules.causal && key > position) return false;
  if (rules.left && position - key > *rules.left) return false;
  return !rules.right || key - position <= *rules.right;
}

}  // namespace attend::testing

#endif  // ATTEND_TESTS_UNIT_CORE_ATTENTION_RULES_H_
