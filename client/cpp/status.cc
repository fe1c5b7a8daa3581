#include "client/cpp/status.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "attend/v1/error.pb.h"
#include "client/cpp/errors.h"
#include "core/base/status.h"

namespace attend::client_internal {

namespace {

constexpr absl::string_view kDetailsUrl = "type.googleapis.com/google.rpc.Status";
constexpr absl::string_view kBadRequestName = "google.rpc.BadRequest";
constexpr absl::string_view kRetryInfoName = "google.rpc.RetryInfo";

std::optional<v1::Error> DetailsOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kDetailsUrl);
  v1::Error error;
  if (!payload.has_value() || !error.ParseFromString(std::string(*payload))) return std::nullopt;
  return error;
}

// The first detail of a type, parsed. The messages are wire-equal to those that the URL names.
template <typename Message>
std::optional<Message> FindDetail(const v1::Error& error, absl::string_view type_name) {
  for (const auto& detail : error.details()) {
    Message message;
    if (absl::EndsWith(detail.type_url(), absl::StrCat("/", type_name)) &&
        message.ParseFromString(detail.value())) {
      return message;
    }
  }
  return std::nullopt;
}

std::vector<FieldViolation> ViolationsOf(const v1::Error& error) {
  std::vector<FieldViolation> violations;
  const auto bad_request = FindDetail<v1::BadRequest>(error, kBadRequestName);
  if (!bad_request.has_value()) return violations;
  for (const auto& violation : bad_request->field_violations()) {
    violations.push_back({violation.field(), violation.description()});
  }
  return violations;
}

// Requests past the client's own limit never leave it, so a broken limit of the same size was
// broken by the answer.
std::string SizeLimitAdvice(std::int64_t limit, std::int64_t max_message_bytes) {
  if (limit == max_message_bytes) {
    return absl::StrCat(
        "; the answer is larger than this client accepts: raise its "
        "max_message_bytes (now ",
        max_message_bytes, "), or ask for less");
  }
  return absl::StrCat("; this is the server's limit: raise max_message_bytes there (now ", limit,
                      "), or send less in one request");
}

absl::Status Convert(absl::StatusCode code, const std::string& message,
                     const std::vector<FieldViolation>& violations) {
  if (!violations.empty() && code == absl::StatusCode::kInvalidArgument) {
    return InvalidField(violations.front().field, violations.front().description);
  }
  if (!violations.empty() && code == absl::StatusCode::kUnimplemented) {
    return UnimplementedField(violations.front().field, violations.front().description);
  }
  return absl::Status(code, message);
}

}  // namespace

// gRPC says it as "... message larger than max (SIZE vs. LIMIT)".
std::optional<std::int64_t> BrokenSizeLimit(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) return std::nullopt;
  constexpr absl::string_view kPhrase = "message larger than max (";
  constexpr absl::string_view kVersus = " vs. ";
  const std::string text = status.error_message();
  const absl::string_view message = text;
  const auto phrase = message.find(kPhrase);
  if (phrase == absl::string_view::npos) return std::nullopt;
  const auto begin = message.find(kVersus, phrase);
  if (begin == absl::string_view::npos) return std::nullopt;
  const absl::string_view digits = message.substr(begin + kVersus.size());
  std::int64_t limit = 0;
  if (!absl::SimpleAtoi(digits.substr(0, digits.find(')')), &limit)) return std::nullopt;
  return limit;
}

absl::Status ToAbslStatus(const grpc::Status& status, std::int64_t max_message_bytes) {
  if (status.ok()) return absl::OkStatus();
  std::string message = status.error_message();
  const std::optional<std::int64_t> limit = BrokenSizeLimit(status);
  if (limit.has_value()) absl::StrAppend(&message, SizeLimitAdvice(*limit, max_message_bytes));
  v1::Error error;
  const bool has_details =
      !status.error_details().empty() && error.ParseFromString(status.error_details());
  // The numbers of gRPC's codes and of Abseil's are the same.
  absl::Status result = Convert(static_cast<absl::StatusCode>(status.error_code()), message,
                                has_details ? ViolationsOf(error) : std::vector<FieldViolation>());
  if (has_details) result.SetPayload(kDetailsUrl, absl::Cord(status.error_details()));
  return result;
}

}  // namespace attend::client_internal

namespace attend {

std::vector<FieldViolation> GetFieldViolations(const absl::Status& status) {
  const std::optional<v1::Error> error = client_internal::DetailsOf(status);
  if (error.has_value()) return client_internal::ViolationsOf(*error);
  std::optional<FieldViolation> violation = GetFieldViolation(status);
  if (!violation.has_value()) return {};
  return {*std::move(violation)};
}

std::optional<std::chrono::milliseconds> GetRetryDelay(const absl::Status& status) {
  const std::optional<v1::Error> error = client_internal::DetailsOf(status);
  if (!error.has_value()) return std::nullopt;
  const auto info =
      client_internal::FindDetail<v1::RetryInfo>(*error, client_internal::kRetryInfoName);
  if (!info.has_value()) return std::nullopt;
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::seconds(info->retry_delay().seconds()) +
      std::chrono::nanoseconds(info->retry_delay().nanos()));
}

}  // namespace attend
