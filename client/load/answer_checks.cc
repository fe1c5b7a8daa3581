#include "client/load/answer_checks.h"

#include <algorithm>
#include <utility>

#include "absl/random/distributions.h"
#include "absl/strings/str_cat.h"
#include "client/cli/check.h"

namespace attend::load {

void AnswerSample::Offer(const Draw& draw, AttendResult& answer) {
  if (wanted_ == 0) return;
  // Reservoir sampling: of n answers each is kept with probability wanted / n.
  const std::int64_t place = absl::Uniform<std::int64_t>(random_, 0, ++offered_);
  const bool grows = static_cast<std::int64_t>(kept_.size()) < wanted_;
  if (!grows && place >= wanted_) return;
  const auto index = static_cast<std::size_t>(place);
  const std::size_t freed = grows ? 0 : kept_[index].answer.output.data.size();
  const std::size_t bytes = bytes_ - freed + answer.output.data.size();
  if (bytes > kMaxBytes) return;
  bytes_ = bytes;
  if (grows) {
    kept_.push_back({draw, std::move(answer)});
  } else {
    kept_[index] = {draw, std::move(answer)};
  }
}

VerificationReport AnswerSample::Verify(const RequestMix& mix) const {
  VerificationReport report;
  for (const Kept& kept : kept_) {
    ++report.checked;
    const absl::StatusOr<cli::CheckReport> check =
        cli::CheckAgainstReference(mix.Args(kept.draw), kept.answer, kRowsChecked);
    if (check.ok()) {
      report.elements += check->elements;
      report.max_error_over_bound =
          std::max(report.max_error_over_bound, check->max_error_over_bound);
      if (check->passed()) continue;
    }
    if (report.failed++ == 0) {
      report.first_failure = absl::StrCat(
          "--work \"", mix.work(kept.draw).text, "\", query_len ", kept.draw.query_len, ", kv_len ",
          kept.draw.kv_len, ": ", check.ok() ? cli::RenderCheck(*check) : check.status().message());
    }
  }
  return report;
}

}  // namespace attend::load
