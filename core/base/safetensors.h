// The .safetensors format: an 8-byte little-endian header length N, N bytes of JSON, then data.
// Source: the format's public description. Every check of pitfalls about headers is made here:
// N at most 100 MB and within the file; no duplicate keys; offsets equal to shape times size;
// ranges that tile the data exactly, in any order; known dtypes only.
#ifndef ATTEND_CORE_BASE_SAFETENSORS_H_
#define ATTEND_CORE_BASE_SAFETENSORS_H_

#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"

namespace attend {

struct SafetensorsFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;  // "__metadata__"
  std::set<std::string> narrowed = {};          // names of what was read as F64; not written
};

// Parses the bytes of a file. F32, F16, BF16, BOOL, I8 and I64 keep their type; F64 is narrowed to
// FLOAT32, I32 widened to INT64. Anything malformed or of another dtype: INVALID_ARGUMENT that
// names the tensor.
absl::StatusOr<SafetensorsFile> ParseSafetensors(std::span<const std::byte> bytes);

// The bytes of a file that holds `file`.
std::vector<std::byte> FormatSafetensors(const SafetensorsFile& file);

// Whole files. NOT_FOUND or INVALID_ARGUMENT begin with the path.
absl::StatusOr<SafetensorsFile> ReadSafetensors(const std::string& path);
absl::Status WriteSafetensors(const std::string& path, const SafetensorsFile& file);

}  // namespace attend

#endif  // ATTEND_CORE_BASE_SAFETENSORS_H_
