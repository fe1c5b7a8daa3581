#include "server/wire/status.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <google/protobuf/message_lite.h>
#include <optional>
#include <string>
#include <utility>

#include "attend/v1/error.pb.h"
#include "core/base/status.h"
#include "server/wire/duration.h"

namespace attend {

namespace {

// Sums up, base64 and percent encoding included, to well below 8 KiB.
constexpr std::size_t kMaxTextBytes = 768;
constexpr std::size_t kMaxFieldBytes = 256;

std::string Printable(absl::string_view text, std::size_t max_bytes) {
  std::string printable(text.substr(0, max_bytes));
  const auto is_control = [](char c) { return c < 0x20 || c > 0x7e; };
  std::replace_if(printable.begin(), printable.end(), is_control, '?');
  return printable;
}

// Packs a message under the name that standard clients know it by, which is not our package's.
void AddDetail(const char* type_url, const google::protobuf::MessageLite& detail,
               v1::Error& error) {
  google::protobuf::Any* packed = error.add_details();
  packed->set_type_url(type_url);
  packed->set_value(detail.SerializeAsString());
}

void AddBadRequest(const FieldViolation& violation, v1::Error& error) {
  v1::BadRequest bad_request;
  v1::BadRequest::FieldViolation* field = bad_request.add_field_violations();
  field->set_field(Printable(violation.field, kMaxFieldBytes));
  field->set_description(Printable(violation.description, kMaxTextBytes));
  AddDetail("type.googleapis.com/google.rpc.BadRequest", bad_request, error);
}

void AddRetryInfo(absl::Duration delay, v1::Error& error) {
  v1::RetryInfo retry;
  *retry.mutable_retry_delay() = ToProtoDuration(delay);
  AddDetail("type.googleapis.com/google.rpc.RetryInfo", retry, error);
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status, absl::Duration retry_delay) {
  if (status.ok()) return grpc::Status::OK;
  // Both enumerations are those of google.rpc.Code.
  const int code = static_cast<int>(status.code());
  v1::Error error;
  error.set_code(code);
  error.set_message(Printable(status.message(), kMaxTextBytes));
  if (const std::optional<FieldViolation> violation = GetFieldViolation(status)) {
    AddBadRequest(*violation, error);
  }
  if (status.code() == absl::StatusCode::kResourceExhausted) AddRetryInfo(retry_delay, error);
  return grpc::Status(static_cast<grpc::StatusCode>(code), error.message(),
                      error.SerializeAsString());
}

grpc::Status OutOfMemory() { return {grpc::StatusCode::RESOURCE_EXHAUSTED, "out of memory"}; }

}  // namespace attend
