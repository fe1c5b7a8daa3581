// A kind of request that a load is made of, as the command line spells it.
#ifndef ATTEND_CLIENT_LOAD_WORK_H_
#define ATTEND_CLIENT_LOAD_WORK_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/client_options.h"
#include "core/base/dtype.h"

namespace attend::load {

// A distribution of lengths in tokens, all of them within [low, high].
struct Lengths {
  enum class Kind : std::uint8_t { kFixed, kUniform, kLogNormal };
  Kind kind = Kind::kFixed;
  std::int64_t low = 512;
  std::int64_t high = 512;
  double median = 0;  // kLogNormal: of the distribution before it is cut at `low` and `high`
  double sigma = 0;   // kLogNormal: standard deviation of the logarithm

  std::int64_t Draw(std::mt19937_64& random) const;
};

// "N", "uniform:LOW:HIGH" or "lognormal:MEDIAN:SIGMA[:HIGHEST]" (HIGHEST: eight medians). Lengths
// of 1 to 2^22. INVALID_ARGUMENT that says what was expected.
absl::StatusOr<Lengths> ParseLengths(absl::string_view text);

enum class Phase : std::uint8_t {
  kPrefill,  // as many queries as keys
  kDecode,   // a few queries at the end of `length` keys
};

enum class MaskKind : std::uint8_t { kNone, kBoolean, kAdditive };

struct Work {
  std::string text;  // as given
  double share = 1;  // of the calls, relative to the other kinds
  Phase phase = Phase::kPrefill;
  Lengths length;
  std::int64_t query_len = 1;  // kDecode only
  std::int64_t batch = 1;
  std::int64_t query_heads = 12;
  std::int64_t kv_heads = 12;
  std::int64_t head_dim = 64;
  std::int64_t value_dim = 64;
  DType dtype = DType::kFloat32;
  std::optional<DType> output_dtype;
  bool causal = false;
  MaskKind mask = MaskKind::kNone;
  CallPriority priority = CallPriority::kNormal;
  std::optional<std::chrono::nanoseconds> deadline;
};

// "KEY=VALUE,KEY=VALUE,...", as WorkHelp says; what is not named keeps its default.
// INVALID_ARGUMENT that names the key, its value and what was expected.
absl::StatusOr<Work> ParseWork(absl::string_view text);

// The keys, one a line, for --help.
std::string WorkHelp();

// "10", "1.5s", "20ms": a number alone is seconds. Not negative, at most a year.
absl::StatusOr<std::chrono::nanoseconds> ParseDuration(absl::string_view text);

}  // namespace attend::load

#endif  // ATTEND_CLIENT_LOAD_WORK_H_
