#include "client/cli/context.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/cpp/errors.h"
#include "core/base/status.h"

namespace attend::cli {

namespace {

constexpr std::int64_t kLargestMessage = 2147483647;
constexpr std::int64_t kMostSharedMemory = std::int64_t{1} << 40;
constexpr double kLongestTimeout = 1e6;
constexpr std::chrono::milliseconds kLastLook{1000};

// The flags that set options of the client, by the options' names in its errors.
constexpr std::pair<const char*, const char*> kFlagOfOption[] = {
    {"target", "--server"},
    {"default_timeout", "--timeout"},
    {"max_message_bytes", "--max-message-bytes"},
    {"shared_memory_bytes", "--shared-memory"}};

// An error of the client about one of its options, with the flag's name in the option's place.
absl::Status NameFlag(const absl::Status& status) {
  for (const auto& [option, flag] : kFlagOfOption) {
    absl::string_view description = status.message();
    if (!absl::ConsumePrefix(&description, absl::StrCat(option, ": "))) continue;
    if (absl::IsInvalidArgument(status)) return InvalidField(flag, description);
    return absl::Status(status.code(), absl::StrCat(flag, ": ", description));
  }
  return status;
}

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
      if (global.wait) return "Allow more time with --timeout.";  // the rest is told with its state
      return absl::StrFormat("No answer from %s. Allow more time with --timeout (now %g seconds).",
                             global.server, global.timeout_seconds);
    default:
      break;
  }
  const auto delay = GetRetryDelay(status);
  if (!delay.has_value()) return "";
  return absl::StrFormat("The server asks to try again in %.3f seconds.",
                         std::chrono::duration<double>(*delay).count());
}

nlohmann::json ErrorJson(const absl::Status& status, const FieldOrigins& origins) {
  nlohmann::json error = {{"code", absl::StatusCodeToString(status.code())},
                          {"message", std::string(status.message())}};
  for (const FieldViolation& violation : GetFieldViolations(status)) {
    nlohmann::json field = {{"field", violation.field}, {"description", violation.description}};
    const std::string origin = origins.Of(violation.field);
    if (!origin.empty()) field["given_by"] = origin;
    error["fields"].push_back(std::move(field));
  }
  const auto delay = GetRetryDelay(status);
  if (delay.has_value()) {
    error["retry_after_seconds"] = std::chrono::duration<double>(*delay).count();
  }
  return {{"error", error}};
}

// What was typed may hold any bytes.
std::string OneLine(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string CallErrorText(const absl::Status& status, const GlobalOptions& global,
                          const FieldOrigins& origins) {
  const std::string code = absl::StatusCodeToString(status.code());
  const absl::string_view what = ExitCodeOf(status) == kRefused ? "the request was refused: " : "";
  std::string text = absl::StrCat(global.program, ": ", what, code, ": ", status.message(), "\n");
  const std::vector<FieldViolation> violations = GetFieldViolations(status);
  for (std::size_t i = 0; i < violations.size(); ++i) {
    const FieldViolation& violation = violations[i];
    if (i > 0) {  // the first one is in the message
      absl::StrAppend(&text, "  ", violation.field, ": ", violation.description, "\n");
    }
    const std::string origin = origins.Of(violation.field);
    if (!origin.empty()) {
      absl::StrAppend(&text, "  ", violation.field, " was given by ", origin, "\n");
    }
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
                  "Largest request to send and answer to accept, such as 64MiB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
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

absl::StatusOr<std::unique_ptr<Client>> Context::MakeClient(ClientOptions options) const {
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(std::move(options));
  if (!client.ok()) return NameFlag(client.status());
  return client;
}

absl::StatusOr<std::unique_ptr<Client>> Context::MakeClient() const {
  return MakeClient(MakeClientOptions());
}

CallOptions Context::MakeCallOptions() const { return {.wait_for_ready = global.wait}; }

int Context::InputError(const absl::Status& status) const {
  if (global.json) {
    err << OneLine(ErrorJson(status, {})) << "\n";
  } else {
    err << global.program << ": " << std::string(status.message()) << "\n";
  }
  return kUsage;
}

void Context::PrintNotes(const Notes& notes) const {
  if (global.json) return;
  for (const std::string& note : notes) err << global.program << ": note: " << note << "\n";
}

// Over a connection of its own and without retries: what stands in the way now.
std::string Context::LastState() const {
  ClientOptions options = MakeClientOptions();
  options.retry.max_attempts = 1;
  options.use_stream = false;
  options.shared_memory_bytes = 0;
  const auto client = Client::Create(std::move(options));
  if (!client.ok()) return std::string(client.status().message());
  const absl::StatusOr<ServingStatus> health = (*client)->CheckHealth("", {.timeout = kLastLook});
  if (health.ok()) return absl::StrCat("reachable, health ", Name(*health));
  if (absl::IsDeadlineExceeded(health.status())) return "no connection, or no answer over it";
  return std::string(health.status().message());
}

int Context::CallError(const absl::Status& status, const FieldOrigins& origins) const {
  const absl::Status named = NameFlag(status);
  const bool waited = global.wait && absl::IsDeadlineExceeded(status);
  const std::string last_state = waited ? LastState() : "";
  if (global.json) {
    nlohmann::json json = ErrorJson(named, origins);
    json["error"]["server"] = global.server;
    if (waited) json["error"]["waited_seconds"] = global.timeout_seconds;
    if (waited) json["error"]["last_state"] = last_state;
    err << OneLine(json) << "\n";
    return ExitCodeOf(status);
  }
  err << CallErrorText(named, global, origins);
  if (waited) {
    err << absl::StrFormat("  Waited %g seconds for %s. Its last state: %s\n",
                           global.timeout_seconds, global.server, last_state);
  }
  return ExitCodeOf(status);
}

}  // namespace attend::cli
