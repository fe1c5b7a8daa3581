#include "server/rpc/trace_context.h"

#include <algorithm>
#include <cstdint>

#include "absl/random/random.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace attend {

namespace {

// "00-" trace "-" parent "-" flags.
constexpr std::size_t kTraceAt = 3;
constexpr std::size_t kParentAt = 36;
constexpr std::size_t kFlagsAt = 53;
constexpr std::size_t kLength = 55;

bool IsLowerHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsZero(absl::string_view digits) {
  return std::all_of(digits.begin(), digits.end(), [](char c) { return c == '0'; });
}

}  // namespace

std::optional<TraceContext> ParseTraceParent(absl::string_view value) {
  if (value.size() < kLength) return std::nullopt;
  const absl::string_view version = value.substr(0, 2);
  const absl::string_view trace = value.substr(kTraceAt, 32);
  const absl::string_view parent = value.substr(kParentAt, 16);
  const absl::string_view flags = value.substr(kFlagsAt, 2);
  for (const absl::string_view digits : {version, trace, parent, flags}) {
    if (!IsLowerHex(digits)) return std::nullopt;
  }
  for (const std::size_t dash : {kTraceAt - 1, kParentAt - 1, kFlagsAt - 1}) {
    if (value[dash] != '-') return std::nullopt;
  }
  const bool longer = value.size() > kLength;
  const bool may_be_longer = version != "00" && longer && value[kLength] == '-';
  if (version == "ff" || (longer && !may_be_longer) || IsZero(trace) || IsZero(parent)) {
    return std::nullopt;
  }
  return TraceContext{std::string(trace), std::string(parent), std::string(flags)};
}

std::string AnswerTraceParent(const TraceContext& context) {
  thread_local absl::InsecureBitGen generator;
  const auto span = absl::Uniform<std::uint64_t>(absl::IntervalClosed, generator, 1, ~0ull);
  return absl::StrCat("00-", context.trace_id, "-", absl::Hex(span, absl::kZeroPad16), "-",
                      context.flags);
}

}  // namespace attend
