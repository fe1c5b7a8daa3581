// Whole files, read and written in one go.
#ifndef ATTEND_CORE_BASE_FILE_IO_H_
#define ATTEND_CORE_BASE_FILE_IO_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attend {

// The bytes of a regular file. Never blocks on what is not one (a FIFO, a device).
// Errors begin with the path: NOT_FOUND, PERMISSION_DENIED and so on as the system says;
// INVALID_ARGUMENT for anything but a regular file; RESOURCE_EXHAUSTED where memory is short.
absl::StatusOr<std::vector<std::byte>> ReadFile(const std::string& path);

// Creates or replaces a file. Errors begin with the path, as the system says.
absl::Status WriteFile(const std::string& path, std::span<const std::byte> bytes);

// `status` with "<path>: " in front of its message; OK stays OK.
absl::Status WithPath(const std::string& path, const absl::Status& status);

}  // namespace attend

#endif  // ATTEND_CORE_BASE_FILE_IO_H_
