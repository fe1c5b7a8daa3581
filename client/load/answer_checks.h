// Verification of a sample of answers, after the load, so that it takes no time from the server.
#ifndef ATTEND_CLIENT_LOAD_ANSWER_CHECKS_H_
#define ATTEND_CLIENT_LOAD_ANSWER_CHECKS_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "client/load/request_mix.h"

namespace attend::load {

struct VerificationReport {
  std::int64_t checked = 0;
  std::int64_t failed = 0;
  std::int64_t elements = 0;        // of output, compared
  double max_error_over_bound = 0;  // of all that had the right shape
  std::string first_failure;        // empty if none failed
};

// Keeps a uniform random sample of the answers it is shown. Thread-safety: for one thread.
class AnswerSample {
 public:
  // Rows that are checked of each answer, spread over its items and heads.
  static constexpr std::int64_t kRowsChecked = 64;
  // Of the kept outputs; an answer that would take more is passed over.
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 29;

  AnswerSample(std::int64_t answers, std::uint64_t seed) : wanted_(answers), random_(seed) {}

  // May take the answer.
  void Offer(const Draw& draw, AttendResult& answer);

  // Compares what was kept with the float64 reference, within the bound of client/cli/check.h.
  VerificationReport Verify(const RequestMix& mix) const;

 private:
  struct Kept {
    Draw draw;
    AttendResult answer;
  };

  std::int64_t wanted_;
  std::mt19937_64 random_;
  std::int64_t offered_ = 0;
  std::size_t bytes_ = 0;
  std::vector<Kept> kept_;
};

}  // namespace attend::load

#endif  // ATTEND_CLIENT_LOAD_ANSWER_CHECKS_H_
