// What the subcommands of `attend`, and `attend-load`, share: the server, the streams, exit codes
// and error texts.
#ifndef ATTEND_CLIENT_CLI_CONTEXT_H_
#define ATTEND_CLIENT_CLI_CONTEXT_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "client/cli/field_origins.h"
#include "client/cli/tensor_files.h"
#include "client/cpp/client.h"

namespace attend::cli {

// What the process answers its caller with.
enum ExitCode : int {
  kOk = 0,
  kCheckFailed = 1,  // the answer is not what was expected, or the server is not serving
  kUsage = 2,        // a flag, a file or its content
  kUnreachable = 3,  // no server there, or it is draining
  kRefused = 4,      // the server said no to the request
  kTimedOut = 5,     // no answer within --timeout
  kFailed = 6,       // anything else
};

// One line per code, for --help.
std::string ExitCodeHelp();

struct GlobalOptions {
  std::string program = "attend";  // how it names itself in errors and to the server
  std::string server = "127.0.0.1:50051";
  double timeout_seconds = 60;
  bool wait = false;  // for a server that is not there yet
  std::int64_t max_message_bytes = std::int64_t{256} << 20;
  bool stream = false;                   // requests go over an AttendStream
  std::int64_t shared_memory_bytes = 0;  // 0: tensors go through the socket
  bool json = false;
};

// The flags that say which server to call and how: --server, --timeout, --wait,
// --max-message-bytes, --stream, --shared-memory.
void AddConnectionFlags(CLI::App* app, GlobalOptions* global);

// Where a command writes and whom it calls. Results go to `out`, errors to `err`.
struct Context {
  const GlobalOptions& global;
  std::ostream& out;
  std::ostream& err;

  ClientOptions MakeClientOptions() const;
  // As Client::Create; an error names the flag instead of the option.
  absl::StatusOr<std::unique_ptr<Client>> MakeClient(ClientOptions options) const;
  absl::StatusOr<std::unique_ptr<Client>> MakeClient() const;
  CallOptions MakeCallOptions() const;

  // Say what is wrong and what to do about it, and return the exit code that goes with it: of the
  // caller's own flags or files, and of a call to the server. `origins` tells which flag gave a
  // field that the error names. Where --wait came to nothing, the server is asked once more how it
  // is, which takes a second at most.
  int InputError(const absl::Status& status) const;
  int CallError(const absl::Status& status, const FieldOrigins& origins = {}) const;

  // Tells them on standard error; with --json the result tells them.
  void PrintNotes(const Notes& notes) const;

 private:
  std::string LastState() const;
};

// The exit code for the status of a call.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace attend::cli

#endif  // ATTEND_CLIENT_CLI_CONTEXT_H_
