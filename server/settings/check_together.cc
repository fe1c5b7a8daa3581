// What can be said only once every setting is known, and of the machine as it is.
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "server/settings/address.h"
#include "server/settings/settings_table.h"
#include "server/settings/units.h"

namespace attend {
namespace {

absl::Status CheckRemote(absl::string_view name, const std::string& text) {
  const absl::StatusOr<Address> address = ParseAddress(text);
  if (!address.ok() || address->is_local()) return address.status();
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": \"", text,
      "\" can be reached from other hosts, and this server has no TLS; listen on ",
      "127.0.0.1, [::1] or a Unix socket, or set allow-insecure-remote if the network is trusted"));
}

// The file is written only once the server serves, after the kernels are warm: what will not work
// then is said now.
absl::Status CheckReadyFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const std::string folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat("ready-file: \"", path, "\" cannot be written, ",
                                                   folder,
                                                   " is not a folder; create it, or name a "
                                                   "file in another one"));
  }
  if (std::filesystem::is_directory(path, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ready-file: \"", path, "\" is a folder; name a file"));
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ready-file: \"", path, "\" cannot be written, ", folder, ": ",
                     std::generic_category().message(errno), "; name a file in a writable folder"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTogether(const Settings& settings) {
  if (!settings.allow_insecure_remote) {
    for (const std::string& address : settings.listen) {
      if (absl::Status status = CheckRemote("listen", address); !status.ok()) return status;
    }
    if (!settings.admin_listen.empty()) {
      absl::Status status = CheckRemote("admin-listen", settings.admin_listen);
      if (!status.ok()) return status;
    }
  }
  if (absl::Status status = CheckReadyFile(settings.ready_file); !status.ok()) return status;
  if (settings.memory_quota_bytes < settings.max_message_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory-quota-bytes: ", FormatSize(settings.memory_quota_bytes),
                     " cannot hold one message of ", FormatSize(settings.max_message_bytes),
                     "; raise it, or lower max-message-bytes"));
  }
  if (settings.max_queued_bytes < settings.max_message_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max-queued-bytes: ", FormatSize(settings.max_queued_bytes), " cannot hold one message of ",
        FormatSize(settings.max_message_bytes), "; raise it, or lower max-message-bytes"));
  }
  if (settings.drain_grace >= settings.drain_timeout) {
    return absl::InvalidArgumentError(absl::StrCat(
        "drain-grace: ", absl::FormatDuration(settings.drain_grace),
        " leaves nothing of drain-timeout (", absl::FormatDuration(settings.drain_timeout),
        "), which includes it; raise drain-timeout"));
  }
  return absl::OkStatus();
}

}  // namespace attend
