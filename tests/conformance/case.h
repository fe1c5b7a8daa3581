// Outside conformance cases: one .safetensors file each, with inputs, expected outputs, attributes
// and tolerances.
#ifndef ATTEND_TESTS_CONFORMANCE_CASE_H_
#define ATTEND_TESTS_CONFORMANCE_CASE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/tensor.h"

namespace attend::testing {

struct Case {
  std::string op;  // "Attention", "RotaryEmbedding", "com.microsoft.GroupQueryAttention"
  int opset = 0;
  std::map<std::string, std::string> attributes;  // only those that are set
  std::map<std::string, Tensor> inputs;           // by formal name
  std::map<std::string, Tensor> outputs;
  double atol = 0;
  double rtol = 0;

  const Tensor* input(const std::string& name) const;
  std::int64_t integer(const std::string& attribute, std::int64_t fallback) const;
  std::optional<float> number(const std::string& attribute) const;
};

// The folder "cases" of ATTEND_TEST_SHARED_DIR in the environment, else of ATTEND_SHARED_DIR in the
// build; empty if neither is set.
std::string CaseFolder();

// Paths of all case files below CaseFolder(), sorted; empty if there is no such folder.
std::vector<std::string> ListCases();

// Errors as ReadSafetensors; INVALID_ARGUMENT for a file without the metadata of a case.
absl::StatusOr<Case> ReadCase(const std::string& path);

}  // namespace attend::testing

#endif  // ATTEND_TESTS_CONFORMANCE_CASE_H_
