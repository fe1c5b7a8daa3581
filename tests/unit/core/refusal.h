// What tests of refusals share: a legal draft is spoiled in one way, and the complaint must name
// the field, the value and what was expected.
#ifndef ATTEND_TESTS_UNIT_CORE_REFUSAL_H_
#define ATTEND_TESTS_UNIT_CORE_REFUSAL_H_

#include <functional>
#include <gtest/gtest.h>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status.h"
#include "core/base/tensor.h"

namespace attend::testing {

// Gives a view another shape, whose elements nobody may read.
inline void Reshape(TensorView& view, Dims shape) {
  view.strides = Dims(shape.size(), 0);
  view.shape = std::move(shape);
}

template <typename Draft>
struct Refusal {
  std::string name;
  std::function<void(Draft&)> spoil;
  std::string field;
  std::vector<std::string> says;  // the value, and what was expected

  friend std::ostream& operator<<(std::ostream& os, const Refusal& r) { return os << r.name; }
};

template <typename Draft>
void ExpectRefusal(const absl::Status& status, const Refusal<Draft>& refusal) {
  ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const auto violation = GetFieldViolation(status);
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(violation->field, refusal.field);
  EXPECT_EQ(status.message(), violation->field + ": " + violation->description);
  EXPECT_NE(violation->description.find("expected"), std::string::npos) << violation->description;
  for (const std::string& words : refusal.says) {
    EXPECT_NE(violation->description.find(words), std::string::npos)
        << violation->description << " lacks '" << words << "'";
  }
}

}  // namespace attend::testing

#endif  // ATTEND_TESTS_UNIT_CORE_REFUSAL_H_
