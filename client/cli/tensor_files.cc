#include "client/cli/tensor_files.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
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

void NoteNarrowed(const std::string& what, Notes* notes) {
  if (notes == nullptr) return;
  notes->push_back(absl::StrCat(what, " holds float64 numbers, which were rounded to float32"));
}

// Takes a tensor out of its file.
Tensor Take(const std::string& path, SafetensorsFile* file, const std::string& name, Notes* notes) {
  if (file->narrowed.count(name) != 0) NoteNarrowed(absl::StrCat(path, ":", name), notes);
  return std::move(file->tensors.at(name));
}

absl::StatusOr<Tensor> ReadOnlyTensor(const std::string& path, Notes* notes) {
  absl::StatusOr<SafetensorsFile> file = ReadSafetensors(path);
  if (!file.ok()) return file.status();
  if (file->tensors.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": holds ", file->tensors.size(),
                                                   " tensors; name one, as in ", path,
                                                   ":NAME, of: ", TensorNames(*file)));
  }
  return Take(path, &*file, file->tensors.begin()->first, notes);
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
                                       const std::vector<std::string>& names, Notes* notes) {
  absl::StatusOr<SafetensorsFile> file = ReadSafetensors(path);
  if (!file.ok()) return file.status();
  for (const std::string& name : names) {
    if (file->tensors.count(name) != 0) return Take(path, &*file, name, notes);
  }
  return Missing(path, absl::StrJoin(names, " or "), *file);
}

absl::StatusOr<Tensor> ReadTensor(const std::string& spec, Notes* notes) {
  const auto name_mark = spec.rfind(std::string(kSafetensorsAndName));
  if (name_mark != std::string::npos) {
    return ReadNamedTensor(spec.substr(0, name_mark + kSafetensors.size()),
                           {spec.substr(name_mark + kSafetensorsAndName.size())}, notes);
  }
  if (absl::EndsWith(spec, kSafetensors)) return ReadOnlyTensor(spec, notes);
  if (absl::EndsWith(spec, kNpy)) {
    bool narrowed = false;
    absl::StatusOr<Tensor> tensor = ReadNpy(spec, &narrowed);
    if (narrowed) NoteNarrowed(spec, notes);
    return tensor;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(spec, ": expected FILE.npy, FILE.safetensors or FILE.safetensors:TENSOR"));
}

absl::StatusOr<Tensor> ReadTensorOrNumbers(const std::string& spec, Notes* notes) {
  std::optional<Tensor> numbers = ParseNumbers(spec);
  if (numbers.has_value()) return *std::move(numbers);
  return ReadTensor(spec, notes);
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

std::vector<std::pair<std::string, const Tensor*>> TensorsOf(const AttendResult& result) {
  std::vector<std::pair<std::string, const Tensor*>> tensors = {{"output", &result.output}};
  if (result.lse.has_value()) tensors.emplace_back("lse", &*result.lse);
  if (result.weights.has_value()) tensors.emplace_back("weights", &*result.weights);
  if (result.scores.has_value()) tensors.emplace_back("scores", &*result.scores);
  return tensors;
}

std::string ResultFile(const std::string& path, const std::string& name) {
  absl::string_view stem = path;
  if (name == "output" || !absl::ConsumeSuffix(&stem, kNpy)) return path;
  return absl::StrCat(stem, ".", name, kNpy);
}

absl::Status WriteResult(const std::string& path, const AttendResult& result) {
  if (!absl::EndsWith(path, kNpy)) {
    SafetensorsFile file;
    for (const auto& [name, tensor] : TensorsOf(result)) file.tensors[name] = *tensor;
    return WriteSafetensors(path, file);
  }
  for (const auto& [name, tensor] : TensorsOf(result)) {
    absl::Status status = WriteNpy(ResultFile(path, name), tensor->view());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace attend::cli
