// Where on the command line the fields of a request came from.
#ifndef ATTEND_CLIENT_CLI_FIELD_ORIGINS_H_
#define ATTEND_CLIENT_CLI_FIELD_ORIGINS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace attend::cli {

// Errors of the server, and of the definition in core, name the fields of a request; whoever typed
// the command knows flags and files. This tells the one from the other.
class FieldOrigins {
 public:
  // Of nothing.
  FieldOrigins() = default;

  // Of the attention flags (attention_flags.h) that `app` has read.
  explicit FieldOrigins(const CLI::App& app);

  // What the caller gave for a field, such as "--query q.npy" for "query.shape[3]"; empty where no
  // flag speaks of it.
  std::string Of(absl::string_view field) const;

 private:
  std::map<std::string, std::string, std::less<>> given_;  // by the paths of whole fields
};

}  // namespace attend::cli

#endif  // ATTEND_CLIENT_CLI_FIELD_ORIGINS_H_
