#include "client/cli/context.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/errors.h"

namespace attend::cli {

namespace {

constexpr std::int64_t kLargestMessage = 2147483647;
constexpr std::int64_t kMostSharedMemory = std::int64_t{1} << 40;
constexpr double kLongestTimeout = 1e6;

std::chrono::milliseconds ToMilliseconds(double seconds) {
  return std::chrono::milliseconds(std::llround(std::ceil(seconds * 1000)));
}

// What the caller can do about a failed call; empty where nothing general can be said.
std::string Advice(const absl::Status& status, const GlobalOptions& global) {
  switch (ExitCodeOf(status)) {
    case kUnreachable:
      return absl::StrCat("Is attend-server running at ", global.server,
                          ", and not shutting down? Start it with `attend-server`, name another "
                          "server with --server or ATTEND_SERVER, or wait for it with --wait.");
    case kTimedOut:
      return absl::StrFormat("Allow more time with --timeout (now %g seconds).",
                             global.timeout_seconds);
    default:
      break;
  }
  const auto delay = GetRetryDelay(status);
  if (!delay.has_value()) return "";
  return absl::StrFormat("The server asks to try again in %.3f seconds.",
                         std::chrono::duration<double>(*delay).count());
}

nlohmann::json ErrorJson(const absl::Status& status) {
  nlohmann::json error = {{"code", absl::StatusCodeToString(status.code())},
                          {"message", std::string(status.message())}};
  for (const FieldViolation& violation : GetFieldViolations(status)) {
    error["fields"].push_back({{"field", violation.field}, {"description", violation.description}});
  }
  const auto delay = GetRetryDelay(status);
  if (delay.has_value()) {
    error["retry_after_seconds"] = std::chrono::duration<double>(*delay).count();
  }
  return {{"error", error}};
}

std::string CallErrorText(const absl::Status& status, const GlobalOptions& global) {
  const std::string code = absl::StatusCodeToString(status.code());
  const absl::string_view what = ExitCodeOf(status) == kRefused ? "the request was refused: " : "";
  std::string text = absl::StrCat(global.program, ": ", what, code, ": ", status.message(), "\n");
  const std::vector<FieldViolation> violations = GetFieldViolations(status);
  // The first one is in the message.
  for (std::size_t i = 1; i < violations.size(); ++i) {
    absl::StrAppend(&text, "  ", violations[i].field, ": ", violations[i].description, "\n");
  }
  const std::string advice = Advice(status, global);
  if (!advice.empty()) absl::StrAppend(&text, "  ", advice, "\n");
  return text;
}

}  // namespace

void AddConnectionFlags(CLI::App* app, GlobalOptions* global) {
  app->add_option("--server", global->server, "HOST:PORT, or unix:/PATH")
      ->envname("ATTEND_SERVER")
      ->capture_default_str();
  app->add_option("--timeout", global->timeout_seconds,
                  "For each call to the server, in seconds; 0 waits for ever")
      ->check(CLI::Range(0.0, kLongestTimeout))
      ->capture_default_str();
  app->add_flag("--wait", global->wait,
                "Wait, up to --timeout, for a server that is not there yet");
  app->add_option("--max-message-bytes", global->max_message_bytes,
                  "Largest request to send and answer to accept")
      ->check(CLI::Range(std::int64_t{1}, kLargestMessage))
      ->capture_default_str();
  app->add_flag("--stream", global->stream,
                "Send requests over a stream, rather than each as a call of its own");
  app->add_option("--shared-memory", global->shared_memory_bytes,
                  "Move tensors through so much shared memory, such as 64MiB; for a server at "
                  "unix:/PATH that runs with --shared-memory; 0: none")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::Range(std::int64_t{0}, kMostSharedMemory))
      ->capture_default_str();
}

std::string ExitCodeHelp() {
  return "Exit codes:\n"
         "  0  done\n"
         "  1  the check failed: the answer is not as expected, or the server is not serving\n"
         "  2  a flag, a file or its content is wrong\n"
         "  3  the server is unreachable, or shutting down\n"
         "  4  the server refused the request\n"
         "  5  no answer within --timeout\n"
         "  6  any other failure\n";
}

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kUnavailable:
      return kUnreachable;
    case absl::StatusCode::kDeadlineExceeded:
      return kTimedOut;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return kRefused;
    default:
      return kFailed;
  }
}

ClientOptions Context::MakeClientOptions() const {
  return {.target = global.server,
          .default_timeout = ToMilliseconds(global.timeout_seconds),
          .max_message_bytes = global.max_message_bytes,
          .use_stream = global.stream,
          .shared_memory_bytes = global.shared_memory_bytes,
          .user_agent = global.program};
}

absl::StatusOr<std::unique_ptr<Client>> Context::MakeClient() const {
  return Client::Create(MakeClientOptions());
}

CallOptions Context::MakeCallOptions() const { return {.wait_for_ready = global.wait}; }

int Context::InputError(const absl::Status& status) const {
  if (global.json) {
    err << ErrorJson(status).dump() << "\n";
  } else {
    err << global.program << ": " << std::string(status.message()) << "\n";
  }
  return kUsage;
}

int Context::CallError(const absl::Status& status) const {
  if (global.json) {
    err << ErrorJson(status).dump() << "\n";
  } else {
    err << CallErrorText(status, global);
  }
  return ExitCodeOf(status);
}

}  // namespace attend::cli
