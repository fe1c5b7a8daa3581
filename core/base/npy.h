// NumPy's .npy files (format versions 1, 2 and 3), C order.
#ifndef ATTEND_CORE_BASE_NPY_H_
#define ATTEND_CORE_BASE_NPY_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"

namespace attend {

// Parses the bytes of a .npy file. Accepts '<f4', '<f2', '|b1' (or '?'), '|i1', '<i8', and '<V2' or
// '|V2' as BFLOAT16 (NumPy has no name for it); '<f8' is narrowed to FLOAT32.
// INVALID_ARGUMENT says what is wrong: magic, header, dtype, Fortran order, or byte count (which
// must be exact). `narrowed`: as for ReadNpy.
absl::StatusOr<Tensor> ParseNpy(std::span<const std::byte> bytes, bool* narrowed = nullptr);

// The bytes of a version 1 file. BFLOAT16 is written as '<V2'.
std::vector<std::byte> FormatNpy(const TensorView& tensor);

// Whole files. NOT_FOUND or INVALID_ARGUMENT begin with the path.
// `narrowed`, unless null, is set to whether the file holds '<f8', which was rounded to FLOAT32.
absl::StatusOr<Tensor> ReadNpy(const std::string& path, bool* narrowed = nullptr);
absl::Status WriteNpy(const std::string& path, const TensorView& tensor);

}  // namespace attend

#endif  // ATTEND_CORE_BASE_NPY_H_
