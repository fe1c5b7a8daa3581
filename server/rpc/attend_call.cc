#include "server/rpc/attend_call.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <spdlog/logger.h>
#include <string>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/attention/attention.h"
#include "server/wire/attend_request.h"
#include "server/wire/attend_response.h"
#include "server/wire/priority.h"
#include "server/wire/status.h"

namespace attend {

namespace {

// When a refused caller should come back. Spread, since clients take a pushback to the letter, and
// those that were refused together should not return together.
absl::Duration RetryDelay() {
  thread_local absl::InsecureBitGen generator;
  return absl::Milliseconds(absl::Uniform(absl::IntervalClosed, generator, 50, 150));
}

std::int64_t QueryTokens(const AttentionProblem& problem) {
  std::int64_t tokens = 0;
  for (const AttentionItem& item : problem.items()) tokens += item.query_len;
  return tokens;
}

}  // namespace

AttendCall::AttendCall(const AttentionServiceOptions& options, grpc::CallbackServerContext* context,
                       const v1::AttendRequest* request, v1::AttendResponse* response)
    : options_(options),
      context_(context),
      request_(request),
      response_(response),
      arrival_(options.clock->Now()) {
  options_.metrics->RequestStarted(Method::kAttend);
}

void AttendCall::Start() {
  absl::Status status;
  try {
    status = Submit();
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("the server is short of memory; try again later");
  }
  if (!status.ok()) FinishWith(status, TaskStats(), nullptr);
}

absl::Status AttendCall::Submit() {
  absl::StatusOr<AttentionProblem> problem = MakeProblem();
  if (!problem.ok()) return problem.status();
  const absl::StatusOr<Priority> priority = GetPriority();
  if (!priority.ok()) return priority.status();
  const absl::StatusOr<absl::Time> deadline = GetDeadline();
  if (!deadline.ok()) return deadline.status();

  auto task = std::make_unique<AttentionTask>(AttentionTask{.problem = *std::move(problem)});
  const AttentionProblem* checked = &task->problem;  // lives until on_done has returned
  task->priority = *priority;
  task->arrival = arrival_;
  task->deadline = *deadline;
  task->message_bytes =
      static_cast<std::int64_t>(request_->ByteSizeLong()) + ResponseBytes(*checked);
  task->allocate_outputs = [this, checked] { return AllocateResponse(*checked, *response_); };
  task->on_done = [this, checked](const absl::Status& status, const TaskStats& stats) {
    FinishWith(status, stats, checked);
  };
  const absl::StatusOr<TaskId> id = options_.scheduler->Submit(task);
  if (id.ok()) task_id_ = *id;
  return id.status();
}

absl::StatusOr<AttentionProblem> AttendCall::MakeProblem() const {
  const absl::StatusOr<AttentionArgs> args = ToAttentionArgs(*request_, options_.limits);
  if (!args.ok()) return args.status();
  absl::StatusOr<AttentionProblem> problem = AttentionProblem::Create(*args, options_.limits);
  if (!problem.ok()) return problem;
  absl::Status status = CheckResponseSize(*problem, options_.max_message_bytes);
  if (!status.ok()) return status;
  return problem;
}

absl::StatusOr<Priority> AttendCall::GetPriority() const {
  const auto& metadata = context_->client_metadata();
  const auto found = metadata.find(kPriorityMetadata);
  if (found == metadata.end()) return ToPriority(request_->priority(), std::nullopt);
  const grpc::string_ref value = found->second;
  return ToPriority(request_->priority(), absl::string_view(value.data(), value.size()));
}

absl::StatusOr<absl::Time> AttendCall::GetDeadline() const {
  const absl::StatusOr<absl::Duration> timeout = ToTimeout(*request_);
  if (!timeout.ok()) return timeout.status();
  const absl::Time by_timeout = arrival_ + *timeout;
  const std::chrono::system_clock::time_point deadline = context_->deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return by_timeout;
  // The call's deadline is a time of day; what is left of it goes onto the scheduler's clock.
  const absl::Duration left = absl::FromChrono(deadline) - absl::Now();
  return std::min(by_timeout, options_.clock->Now() + left);
}

void AttendCall::OnCancel() {
  if (task_id_ != 0) options_.scheduler->Cancel(task_id_);
}

void AttendCall::FinishWith(const absl::Status& status, const TaskStats& stats,
                            const AttentionProblem* problem) {
  if (status.ok()) {
    FillStats(*problem, stats, options_.info.server(), *response_->mutable_stats());
  }
  const absl::Duration retry_delay = RetryDelay();
  grpc::Status answer = ToGrpcStatus(status, retry_delay);
  if (answer.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
    context_->AddTrailingMetadata("grpc-retry-pushback-ms",
                                  absl::StrCat(absl::ToInt64Milliseconds(retry_delay)));
  }
  if (answer.error_code() == grpc::StatusCode::INTERNAL) {
    options_.logger->error("Attend: {}", answer.error_message());
  }
  Record(answer.error_code(), stats, problem);
  Log(answer.error_code(), stats, problem);
  Finish(std::move(answer));  // gRPC may destroy this now
}

void AttendCall::Record(grpc::StatusCode code, const TaskStats& stats,
                        const AttentionProblem* problem) const {
  RequestRecord record;
  record.code = code;
  record.total_seconds = absl::ToDoubleSeconds(options_.clock->Now() - arrival_);
  if (problem != nullptr) record.queue_seconds = absl::ToDoubleSeconds(stats.queue);
  if (stats.batch_size > 0) record.compute_seconds = absl::ToDoubleSeconds(stats.compute);
  record.received_bytes = static_cast<std::int64_t>(request_->ByteSizeLong());
  if (code == grpc::StatusCode::OK) {
    record.sent_bytes = static_cast<std::int64_t>(response_->ByteSizeLong());
    record.tokens = QueryTokens(*problem);
    record.flops = problem->flops();
  }
  options_.metrics->RequestFinished(Method::kAttend, record);
}

void AttendCall::Log(grpc::StatusCode code, const TaskStats& stats,
                     const AttentionProblem* problem) const {
  if (!options_.logger->should_log(spdlog::level::debug)) return;
  options_.logger->debug("Attend: {}, batch of {}, queue {:.6f} s, compute {:.6f} s, {} flops",
                         absl::StatusCodeToString(static_cast<absl::StatusCode>(code)),
                         stats.batch_size, absl::ToDoubleSeconds(stats.queue),
                         absl::ToDoubleSeconds(stats.compute),
                         problem != nullptr ? problem->flops() : 0);
}

}  // namespace attend
