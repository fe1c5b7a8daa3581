#include "client/load/work.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/random/distributions.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "core/base/status.h"

namespace attend::load {

namespace {

constexpr std::int64_t kMaxLength = std::int64_t{1} << 22;
constexpr std::int64_t kMaxHeads = 1024;
constexpr std::int64_t kMaxDim = 1024;
constexpr std::int64_t kMaxBatch = 65536;
constexpr double kMaxShare = 1e6;
constexpr double kMaxSigma = 10;
constexpr double kMediansCovered = 8;  // where a log-normal length is cut unless told

constexpr char kLengthForms[] = "N, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA[:HIGHEST]";

absl::Status Unexpected(absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", expected));
}

absl::Status ParseCount(absl::string_view text, std::int64_t highest, std::int64_t* value) {
  std::int64_t parsed = 0;
  if (!absl::SimpleAtoi(text, &parsed) || parsed < 1 || parsed > highest) {
    return Unexpected(absl::StrCat("a whole number of 1 to ", highest));
  }
  *value = parsed;
  return absl::OkStatus();
}

absl::Status ParseShare(absl::string_view text, double* value) {
  double parsed = 0;
  if (!absl::SimpleAtod(text, &parsed) || !(parsed > 0 && parsed <= kMaxShare)) {
    return Unexpected(absl::StrCat("a number above 0, at most ", kMaxShare));
  }
  *value = parsed;
  return absl::OkStatus();
}

// One of a few names.
template <typename T>
absl::Status ParseName(absl::string_view text,
                       const std::vector<std::pair<absl::string_view, T>>& names, T* value) {
  std::string all;
  for (const auto& [name, named] : names) {
    if (text == name) {
      *value = named;
      return absl::OkStatus();
    }
    absl::StrAppend(&all, all.empty() ? "" : ", ", name);
  }
  return Unexpected(absl::StrCat("one of ", all));
}

absl::Status ParseDType(absl::string_view text, DType* value) {
  return ParseName<DType>(
      text,
      {{"float32", DType::kFloat32}, {"bfloat16", DType::kBFloat16}, {"float16", DType::kFloat16}},
      value);
}

// Which heads and dims were given; those left out follow their partners.
struct Given {
  bool kv_heads = false;
  bool value_dim = false;
  bool query_len = false;
};

absl::Status ApplySize(absl::string_view key, absl::string_view value, Work* work, Given* given) {
  if (key == "batch") return ParseCount(value, kMaxBatch, &work->batch);
  if (key == "query_heads") return ParseCount(value, kMaxHeads, &work->query_heads);
  if (key == "head_dim") return ParseCount(value, kMaxDim, &work->head_dim);
  if (key == "kv_heads") {
    given->kv_heads = true;
    return ParseCount(value, kMaxHeads, &work->kv_heads);
  }
  if (key == "value_dim") {
    given->value_dim = true;
    return ParseCount(value, kMaxDim, &work->value_dim);
  }
  if (key == "query_len") {
    given->query_len = true;
    return ParseCount(value, kMaxLength, &work->query_len);
  }
  return absl::NotFoundError("");
}

absl::Status ApplyMeaning(absl::string_view key, absl::string_view value, Work* work) {
  if (key == "share") return ParseShare(value, &work->share);
  if (key == "phase") {
    return ParseName<Phase>(value, {{"prefill", Phase::kPrefill}, {"decode", Phase::kDecode}},
                            &work->phase);
  }
  if (key == "dtype") return ParseDType(value, &work->dtype);
  if (key == "output_dtype") return ParseDType(value, &work->output_dtype.emplace());
  if (key == "causal") {
    return ParseName<bool>(value.empty() ? "true" : value, {{"true", true}, {"false", false}},
                           &work->causal);
  }
  if (key == "mask") {
    return ParseName<MaskKind>(value,
                               {{"none", MaskKind::kNone},
                                {"boolean", MaskKind::kBoolean},
                                {"additive", MaskKind::kAdditive}},
                               &work->mask);
  }
  if (key == "priority") {
    return ParseName<CallPriority>(value,
                                   {{"high", CallPriority::kHigh},
                                    {"normal", CallPriority::kNormal},
                                    {"low", CallPriority::kLow}},
                                   &work->priority);
  }
  return absl::NotFoundError("");
}

absl::Status Apply(absl::string_view key, absl::string_view value, Work* work, Given* given) {
  if (key == "length") {
    const absl::StatusOr<Lengths> lengths = ParseLengths(value);
    if (lengths.ok()) work->length = *lengths;
    return lengths.status();
  }
  if (key == "deadline") {
    const absl::StatusOr<std::chrono::nanoseconds> deadline = ParseDuration(value);
    if (!deadline.ok()) return deadline.status();
    if (deadline->count() == 0) return Unexpected("more than 0");
    work->deadline = *deadline;
    return absl::OkStatus();
  }
  const absl::Status status = ApplySize(key, value, work, given);
  return absl::IsNotFound(status) ? ApplyMeaning(key, value, work) : status;
}

absl::Status CheckWhole(const Work& work, const Given& given) {
  if (work.query_heads % work.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "query_heads=", work.query_heads, ": expected a multiple of kv_heads, ", work.kv_heads));
  }
  if (given.query_len && work.phase != Phase::kDecode) {
    return absl::InvalidArgumentError(
        "query_len: goes with phase=decode only; a prefill has as many queries as keys");
  }
  if (work.phase == Phase::kDecode && work.length.low < work.query_len) {
    return absl::InvalidArgumentError(absl::StrCat(
        "query_len=", work.query_len, ": expected at most the shortest length, ", work.length.low));
  }
  return absl::OkStatus();
}

absl::Status InvalidWork(absl::string_view text, absl::string_view problem) {
  return InvalidField("--work", absl::StrCat("\"", text, "\": ", problem));
}

}  // namespace

std::int64_t Lengths::Draw(std::mt19937_64& random) const {
  switch (kind) {
    case Kind::kFixed:
      break;
    case Kind::kUniform:
      return absl::Uniform<std::int64_t>(absl::IntervalClosed, random, low, high);
    case Kind::kLogNormal: {
      const double drawn = median * std::exp(absl::Gaussian<double>(random, 0, sigma));
      return std::llround(std::clamp(drawn, static_cast<double>(low), static_cast<double>(high)));
    }
  }
  return low;
}

absl::StatusOr<Lengths> ParseLengths(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  Lengths lengths;
  absl::Status status;
  if (parts.size() == 1) {
    status = ParseCount(text, kMaxLength, &lengths.low);
    lengths.high = lengths.low;
  } else if (parts[0] == "uniform" && parts.size() == 3) {
    lengths.kind = Lengths::Kind::kUniform;
    status = ParseCount(parts[1], kMaxLength, &lengths.low);
    status.Update(ParseCount(parts[2], kMaxLength, &lengths.high));
    if (status.ok() && lengths.low > lengths.high) status = Unexpected("LOW up to HIGH");
  } else if (parts[0] == "lognormal" && (parts.size() == 3 || parts.size() == 4)) {
    lengths.kind = Lengths::Kind::kLogNormal;
    lengths.low = 1;
    std::int64_t median = 0;
    status = ParseCount(parts[1], kMaxLength, &median);
    lengths.median = static_cast<double>(median);
    if (!absl::SimpleAtod(parts[2], &lengths.sigma) ||
        !(lengths.sigma >= 0 && lengths.sigma <= kMaxSigma)) {
      status.Update(Unexpected(absl::StrCat("a SIGMA of 0 to ", kMaxSigma)));
    }
    lengths.high = std::min(kMaxLength, static_cast<std::int64_t>(kMediansCovered) * median);
    if (parts.size() == 4) status.Update(ParseCount(parts[3], kMaxLength, &lengths.high));
  } else {
    status = Unexpected(kLengthForms);
  }
  if (!status.ok()) return status;
  return lengths;
}

absl::StatusOr<std::chrono::nanoseconds> ParseDuration(absl::string_view text) {
  absl::Duration duration;
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds)) {
    duration = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &duration)) {
    return Unexpected("a time such as 10, 1.5s or 20ms");
  }
  if (duration < absl::ZeroDuration() || duration > absl::FromChrono(kMaxTimeout)) {
    return Unexpected("0 to a year");
  }
  return absl::ToChronoNanoseconds(duration);
}

absl::StatusOr<Work> ParseWork(absl::string_view text) {
  Work work;
  work.text = std::string(text);
  Given given;
  for (const absl::string_view pair : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(pair, absl::MaxSplits('=', 1));
    // Without a "=" the view has no address, of which StrSplit would make no parts at all.
    const absl::string_view value = parts.second.data() == nullptr ? "" : parts.second;
    const absl::Status status = Apply(parts.first, value, &work, &given);
    if (absl::IsNotFound(status)) {
      return InvalidWork(text, absl::StrCat("no such key: ", parts.first, "; see --help"));
    }
    if (!status.ok()) return InvalidWork(text, absl::StrCat(pair, ": ", status.message()));
  }
  if (!given.kv_heads) work.kv_heads = work.query_heads;
  if (!given.value_dim) work.value_dim = work.head_dim;
  const absl::Status status = CheckWhole(work, given);
  if (!status.ok()) return InvalidWork(text, status.message());
  return work;
}

std::string WorkHelp() {
  return "Keys of --work (KEY=VALUE,KEY=VALUE,...) and their defaults:\n"
         "  share=1             of the calls, relative to the other kinds of work\n"
         "  phase=prefill       prefill: as many queries as keys; decode: query_len queries at\n"
         "                      the end of `length` keys\n"
         "  length=512          tokens: N, uniform:LOW:HIGH, or lognormal:MEDIAN:SIGMA[:HIGHEST]\n"
         "                      (SIGMA of the logarithm; HIGHEST: eight medians)\n"
         "  query_len=1         queries of a decode\n"
         "  query_heads=12      kv_heads=query_heads   batch=1\n"
         "  head_dim=64         value_dim=head_dim\n"
         "  dtype=float32       or bfloat16, float16; output_dtype=dtype\n"
         "  causal              only keys up to the query's own position (default: all)\n"
         "  mask=none           or boolean, additive: [query_len, kv_len], one key in eight "
         "hidden\n"
         "  priority=normal     or high, low\n"
         "  deadline=50ms       of the answer (default: none but --timeout)\n";
}

}  // namespace attend::load
