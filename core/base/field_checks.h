// Checks of single fields of a request, and the paths of these fields.
//
// For the .cc files of this folder: what they say in common, they say in the same words.
#ifndef ATTEND_CORE_BASE_FIELD_CHECKS_H_
#define ATTEND_CORE_BASE_FIELD_CHECKS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/dtype.h"
#include "core/base/tensor.h"

namespace attend {

// "<field><list>[<index>]".
std::string Indexed(absl::string_view field, absl::string_view list, std::int64_t index);

// "<field>.shape[<axis>]".
std::string DimField(absl::string_view field, int axis);

// INVALID_ARGUMENT naming `field` unless low <= value <= high.
absl::Status CheckRange(absl::string_view field, std::int64_t value, std::int64_t low,
                        std::int64_t high);

// INVALID_ARGUMENT naming `field` unless value == expected; `what` tells where `expected` is from.
absl::Status CheckEqual(absl::string_view field, std::int64_t value, std::int64_t expected,
                        absl::string_view what);

// INVALID_ARGUMENT naming "<field>.dtype" unless IsFloat(dtype).
absl::Status CheckFloatDType(absl::string_view field, DType dtype);

// Reads a FLOAT32 tensor whose shape is one of `shapes`, which have one or two sizes; `expected`
// spells them. INVALID_ARGUMENT naming "<field>.dtype" or "<field>.shape" for any other.
absl::StatusOr<std::vector<float>> ReadFloats(const TensorView& tensor, absl::string_view field,
                                              std::span<const Dims> shapes,
                                              absl::string_view expected);

// Reads sinks: FLOAT32 [query_heads]. INVALID_ARGUMENT as ReadFloats, and naming
// "<field>.data[<head>]" for one that is NaN or +inf. -inf is no sink.
absl::StatusOr<std::vector<float>> ReadSinks(const TensorView& tensor, absl::string_view field,
                                             std::int64_t query_heads);

}  // namespace attend

#endif  // ATTEND_CORE_BASE_FIELD_CHECKS_H_
