// The caller's trace, as https://www.w3.org/TR/trace-context/ has it.
#ifndef ATTEND_SERVER_RPC_TRACE_CONTEXT_H_
#define ATTEND_SERVER_RPC_TRACE_CONTEXT_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace attend {

inline constexpr char kTraceMetadata[] = "traceparent";

struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits
  std::string parent_id;  // 16: the caller's span
  std::string flags;      // 2
};

// Reads the value of `traceparent`. Nothing for one that is malformed, which the standard says to
// ignore; of a version that is not known yet, what version 00 defines.
std::optional<TraceContext> ParseTraceParent(absl::string_view value);

// The value that answers it: the same trace, and a span of our own, chosen at random.
std::string AnswerTraceParent(const TraceContext& context);

}  // namespace attend

#endif  // ATTEND_SERVER_RPC_TRACE_CONTEXT_H_
