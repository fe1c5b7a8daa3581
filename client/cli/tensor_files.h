// Tensors from and to the files that a command line names.
#ifndef ATTEND_CLIENT_CLI_TENSOR_FILES_H_
#define ATTEND_CLIENT_CLI_TENSOR_FILES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "core/base/tensor.h"

namespace attend::cli {

// Sentences about what was read that the caller may want to know: that float64 numbers were rounded
// to float32. Null where nobody does.
using Notes = std::vector<std::string>;

// Reads "FILE.npy", "FILE.safetensors:TENSOR", or "FILE.safetensors" where that file holds one
// tensor alone. Errors name the file, and the tensors that it does hold.
absl::StatusOr<Tensor> ReadTensor(const std::string& spec, Notes* notes = nullptr);

// Reads the first of `names` that FILE.safetensors holds.
absl::StatusOr<Tensor> ReadNamedTensor(const std::string& path,
                                       const std::vector<std::string>& names,
                                       Notes* notes = nullptr);

// Numbers such as "0.5,0.25,-inf" as FLOAT32 [count]; anything else is read as a file.
absl::StatusOr<Tensor> ReadTensorOrNumbers(const std::string& spec, Notes* notes = nullptr);

// Rounds a float tensor to another float dtype. INVALID_ARGUMENT that names `field` for a tensor of
// another kind.
absl::StatusOr<Tensor> ConvertFloats(const Tensor& tensor, DType dtype, const std::string& field);

// INVALID_ARGUMENT unless a result can be written to a file of this name.
absl::Status CheckResultPath(const std::string& path);

// The tensors of a result that are there, by their names: "output", "lse", "weights", "scores".
std::vector<std::pair<std::string, const Tensor*>> TensorsOf(const AttendResult& result);

// The file that a tensor of a result goes to. A .npy file holds one tensor: FILE.npy gets the
// output, and FILE.lse.npy beside it the tensor "lse". FILE.safetensors gets all of them.
std::string ResultFile(const std::string& path, const std::string& name);

// Writes every tensor of the result to its file.
absl::Status WriteResult(const std::string& path, const AttendResult& result);

}  // namespace attend::cli

#endif  // ATTEND_CLIENT_CLI_TENSOR_FILES_H_
