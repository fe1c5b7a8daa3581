#include "tests/conformance/case.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/safetensors.h"

namespace attend::testing {

const Tensor* Case::input(const std::string& name) const {
  const auto found = inputs.find(name);
  return found == inputs.end() ? nullptr : &found->second;
}

std::int64_t Case::integer(const std::string& attribute, std::int64_t fallback) const {
  const auto found = attributes.find(attribute);
  return found == attributes.end() ? fallback : std::strtoll(found->second.c_str(), nullptr, 10);
}

std::optional<float> Case::number(const std::string& attribute) const {
  const auto found = attributes.find(attribute);
  if (found == attributes.end()) return std::nullopt;
  return std::strtof(found->second.c_str(), nullptr);
}

std::string CaseFolder() {
  const char* of_environment = std::getenv("ATTEND_TEST_SHARED_DIR");
  const std::string shared = of_environment != nullptr ? of_environment : ATTEND_SHARED_DIR;
  return shared.empty() ? "" : shared + "/cases";
}

std::vector<std::string> ListCases() {
  std::vector<std::string> paths;
  const std::string folder = CaseFolder();
  if (!std::filesystem::is_directory(folder)) return paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::StatusOr<Case> ReadCase(const std::string& path) {
  absl::StatusOr<SafetensorsFile> file = ReadSafetensors(path);
  if (!file.ok()) return file.status();
  Case result;
  result.op = file->metadata["op"];
  const bool complete = absl::SimpleAtoi(file->metadata["opset"], &result.opset) &&
                        absl::SimpleAtod(file->metadata["tol.atol"], &result.atol) &&
                        absl::SimpleAtod(file->metadata["tol.rtol"], &result.rtol);
  if (result.op.empty() || !complete) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": lacks op, opset or tolerances"));
  }
  for (const auto& [key, value] : file->metadata) {
    absl::string_view name = key;
    if (absl::ConsumePrefix(&name, "attr.")) result.attributes[std::string(name)] = value;
  }
  for (auto& [key, tensor] : file->tensors) {
    absl::string_view name = key;
    if (absl::ConsumePrefix(&name, "in.")) result.inputs[std::string(name)] = std::move(tensor);
    if (absl::ConsumePrefix(&name, "out.")) result.outputs[std::string(name)] = std::move(tensor);
  }
  return result;
}

}  // namespace attend::testing
