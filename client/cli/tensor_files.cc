#include "client/cli/tensor_files.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/npy.h"
#include "core/base/safetensors.h"
#include "core/base/status.h"

namespace attend::cli {

namespace {

constexpr absl::string_view kNpy = ".npy";
constexpr absl::string_view kSafetensors = ".safetensors";
constexpr absl::string_view kSafetensorsAndName = ".safetensors:";

std::string TensorNames(const SafetensorsFile& file) {
  return absl::StrJoin(file.tensors, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.first, " ", Name(entry.second.dtype), " ",
                    ShapeString(entry.second.shape));
  });
}

absl::Status Missing(const std::string& path, const std::string& wanted,
                     const SafetensorsFile& file) {
  return absl::NotFoundError(
      absl::StrCat(path, ": has no tensor ", wanted, "; it holds: ", TensorNames(file)));
}

absl::StatusOr<Tensor> ReadOnlyTensor(const std::string& path) {
  absl::StatusOr<SafetensorsFile> file = ReadSafetensors(path);
  if (!file.ok()) return file.status();
  if (file->tensors.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": holds ", file->tensors.size(),
                                                   " tensors; name one, as in ", path,
                                                   ":NAME, of: ", TensorNames(*file)));
  }
  return std::move(file->tensors.begin()->second);
}

std::optional<Tensor> ParseNumbers(const std::string& text) {
  std::vector<float> values;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    float value = 0;
    if (!absl::SimpleAtof(part, &value)) return std::nullopt;
    values.push_back(value);
  }
  return Tensor::FromFloats(DType::kFloat32, {static_cast<std::int64_t>(values.size())}, values);
}

}  // namespace

absl::StatusOr<Tensor> ReadNamedTensor(const std::string& path,
                                       const std::vector<std::string>& names) {
  absl::StatusOr<SafetensorsFile> file = ReadSafetensors(path);
  if (!file.ok()) return file.status();
  for (const std::string& name : names) {
    const auto found = file->tensors.find(name);
    if (found != file->tensors.end()) return std::move(found->second);
  }
  return Missing(path, absl::StrJoin(names, " or "), *file);
}

absl::StatusOr<Tensor> ReadTensor(const std::string& spec) {
  const auto name_mark = spec.rfind(std::string(kSafetensorsAndName));
  if (name_mark != std::string::npos) {
    return ReadNamedTensor(spec.substr(0, name_mark + kSafetensors.size()),
                           {spec.substr(name_mark + kSafetensorsAndName.size())});
  }
  if (absl::EndsWith(spec, kSafetensors)) return ReadOnlyTensor(spec);
  if (absl::EndsWith(spec, kNpy)) return ReadNpy(spec);
  return absl::InvalidArgumentError(
      absl::StrCat(spec, ": expected FILE.npy, FILE.safetensors or FILE.safetensors:TENSOR"));
}

absl::StatusOr<Tensor> ReadTensorOrNumbers(const std::string& spec) {
  std::optional<Tensor> numbers = ParseNumbers(spec);
  if (numbers.has_value()) return *std::move(numbers);
  return ReadTensor(spec);
}

absl::StatusOr<Tensor> ConvertFloats(const Tensor& tensor, DType dtype, const std::string& field) {
  if (tensor.dtype == dtype) return tensor;
  if (!IsFloat(tensor.dtype)) {
    return InvalidField(field, absl::StrCat("is ", Name(tensor.dtype), " and can't be made ",
                                            Name(dtype), "; expected floating-point numbers"));
  }
  return Tensor::FromFloats(dtype, tensor.shape, tensor.ToFloats());
}

absl::Status CheckResultPath(const std::string& path) {
  if (absl::EndsWith(path, kNpy) || absl::EndsWith(path, kSafetensors)) return absl::OkStatus();
  return InvalidField("--output",
                      absl::StrCat("is ", path, "; expected a name in .npy or .safetensors"));
}

absl::Status WriteResult(const std::string& path, const AttendResult& result) {
  if (absl::EndsWith(path, kNpy)) return WriteNpy(path, result.output.view());
  SafetensorsFile file;
  file.tensors["output"] = result.output;
  if (result.lse.has_value()) file.tensors["lse"] = *result.lse;
  if (result.weights.has_value()) file.tensors["weights"] = *result.weights;
  if (result.scores.has_value()) file.tensors["scores"] = *result.scores;
  return WriteSafetensors(path, file);
}

}  // namespace attend::cli
