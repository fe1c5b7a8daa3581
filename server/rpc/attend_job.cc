#include "server/rpc/attend_job.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <spdlog/logger.h>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/string_view.h"
#include "core/attention/attention.h"
#include "server/rpc/retry_delay.h"
#include "server/rpc/shared_memory_service.h"
#include "server/wire/attend_request.h"
#include "server/wire/priority.h"
#include "server/wire/status.h"

namespace attend {

namespace {

std::int64_t QueryTokens(const AttentionProblem& problem) {
  std::int64_t tokens = 0;
  for (const AttentionItem& item : problem.items()) tokens += item.query_len;
  return tokens;
}

bool IsOneIn(std::int64_t requests) {
  if (requests == 0) return false;
  thread_local absl::InsecureBitGen generator;
  return absl::Uniform<std::int64_t>(generator, 0, requests) == 0;
}

const char* NameOf(Method method) {
  return method == Method::kAttendStream ? "AttendStream" : "Attend";
}

}  // namespace

absl::Status BareNoMemory() { return {absl::StatusCode::kResourceExhausted, ""}; }

CallFacts CallFacts::Of(const grpc::CallbackServerContext& context,
                        const AttentionServiceOptions& options) {
  CallFacts facts;
  const std::chrono::system_clock::time_point deadline = context.deadline();
  if (deadline != std::chrono::system_clock::time_point::max()) {
    // The call's deadline is a time of day; what is left of it goes onto the scheduler's clock.
    facts.deadline = options.clock->Now() + (absl::FromChrono(deadline) - absl::Now());
  }
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kPriorityMetadata);
  if (found != metadata.end()) facts.priority.emplace(found->second.data(), found->second.size());
  const auto trace = metadata.find(kTraceMetadata);
  if (trace != metadata.end()) {
    facts.trace = ParseTraceParent(absl::string_view(trace->second.data(), trace->second.size()));
  }
  if (options.shared_memory != nullptr) {
    facts.shared_memory = {.registry = options.shared_memory,
                           .over_unix_socket = IsOverUnixSocket(context)};
  }
  return facts;
}

AttendJob::AttendJob(const AttentionServiceOptions& options, Method method)
    : options_(options),
      method_(method),
      arrival_(options.clock->Now()),
      received_(*options.buffers) {}

absl::Status AttendJob::Read(grpc::ByteBuffer& message) {
  const MessageType type = method_ == Method::kAttendStream ? MessageType::kAttendStreamRequest
                                                            : MessageType::kAttendRequest;
  try {
    return received_.Read(message, type, options_.limits);
  } catch (const std::bad_alloc&) {
    return BareNoMemory();
  }
}

void AttendJob::Start(const absl::Status& so_far, const CallFacts& facts) {
  options_.metrics->RequestStarted(method_);
  absl::Status status = so_far;
  // What could not be read has no priority of its own.
  if (absl::IsResourceExhausted(status)) CountNoMemory(v1::PRIORITY_UNSPECIFIED, facts);
  try {
    if (facts.trace.has_value()) trace_id_ = facts.trace->trace_id;
    if (status.ok()) status = Submit(facts);
  } catch (const std::bad_alloc&) {
    CountNoMemory(received_.request().priority(), facts);
    status = BareNoMemory();
  }
  if (!status.ok()) FinishWith(status, TaskStats(), nullptr);
}

void AttendJob::CountNoMemory(v1::Priority requested, const CallFacts& facts) const {
  Priority priority = Priority::kNormal;
  try {
    priority = ToPriority(requested, facts.priority).value_or(priority);
  } catch (const std::bad_alloc&) {
    // Of a priority that there is not, no words can be made now.
  }
  options_.metrics->RequestDropped(DropReason::kNoMemory, static_cast<PriorityLabel>(priority));
}

absl::Status AttendJob::Submit(const CallFacts& facts) {
  absl::StatusOr<AttentionProblem> problem = MakeProblem(facts.shared_memory);
  if (!problem.ok()) {
    if (absl::IsResourceExhausted(problem.status())) {
      CountNoMemory(received_.request().priority(), facts);
    }
    return problem.status();
  }
  const absl::StatusOr<Priority> priority =
      ToPriority(received_.request().priority(), facts.priority);
  if (!priority.ok()) return priority.status();
  const absl::StatusOr<absl::Time> deadline = GetDeadline(facts);
  if (!deadline.ok()) return deadline.status();

  auto task = std::make_unique<AttentionTask>(AttentionTask{.problem = *std::move(problem)});
  const AttentionProblem* checked = &task->problem;  // lives until on_done has returned
  task->priority = *priority;
  task->arrival = arrival_;
  task->deadline = *deadline;
  task->message_bytes = received_.held_bytes() + ResponseBytes(*checked);
  task->allocate_outputs = [this, checked] {
    absl::Status gathered = received_.Gather();
    if (!gathered.ok()) return absl::StatusOr<AttentionOutputs>(std::move(gathered));
    return response_.Allocate(*checked, *options_.buffers, options_.info.server().size());
  };
  task->on_done = [this, checked](const absl::Status& status, const TaskStats& stats) {
    FinishWith(status, stats, checked);
  };
  const absl::StatusOr<TaskId> id = options_.scheduler->Submit(task);
  if (!id.ok()) return id.status();
  task_id_ = *id;
  if (cancelled_) options_.scheduler->Cancel(*id);
  return absl::OkStatus();
}

absl::StatusOr<AttentionProblem> AttendJob::MakeProblem(const SharedMemoryAccess& access) {
  const absl::StatusOr<AttentionArgs> args = received_.Args(options_.limits, access);
  if (!args.ok()) return args.status();
  absl::StatusOr<AttentionProblem> problem = AttentionProblem::Create(*args, options_.limits);
  if (!problem.ok()) return problem;
  const v1::OutputOptions& output = received_.request().output();
  absl::StatusOr<ResultTargets> targets = FindTargets(output, *problem, access);
  if (!targets.ok()) return targets.status();
  absl::Status status = CheckResponseSize(*problem, *targets, options_.max_message_bytes);
  if (!status.ok()) return status;
  response_.SetTargets(*std::move(targets), output);
  return problem;
}

absl::StatusOr<absl::Time> AttendJob::GetDeadline(const CallFacts& facts) const {
  const absl::StatusOr<absl::Duration> timeout = ToTimeout(received_.request());
  if (!timeout.ok()) return timeout.status();
  return std::min(arrival_ + *timeout, facts.deadline);
}

void AttendJob::Cancel() {
  cancelled_ = true;
  const TaskId id = task_id_;
  if (id != 0) options_.scheduler->Cancel(id);
}

void AttendJob::FinishWith(const absl::Status& computed, const TaskStats& stats,
                           const AttentionProblem* problem) {
  AttendAnswer answer;
  answer.retry_delay = RetryDelay();
  try {
    MakeAnswer(computed, stats, problem, answer);
  } catch (const std::bad_alloc&) {
    answer.status = OutOfMemory();
  }
  received_.Release();
  Record(answer, stats, problem);
  Log(answer.status.error_code(), stats, problem);
  OnAnswer(answer);
}

void AttendJob::MakeAnswer(const absl::Status& computed, const TaskStats& stats,
                           const AttentionProblem* problem, AttendAnswer& answer) {
  absl::Status status = computed == BareNoMemory() ? NoMemory() : computed;
  if (status.ok()) status = response_.WriteTargets();
  answer.status = ToGrpcStatus(status, answer.retry_delay);
  if (status.ok()) {
    grpc::ByteBuffer message = MakeMessage(stats, *problem);
    answer.message.Swap(&message);  // assigning would copy
  }
  if (answer.status.error_code() == grpc::StatusCode::INTERNAL) {
    options_.logger->error("{}: {}", NameOf(method_), answer.status.error_message());
  }
}

grpc::ByteBuffer AttendJob::MakeMessage(const TaskStats& stats, const AttentionProblem& problem) {
  v1::Stats message;
  FillStats(problem, stats, options_.info.server(), message);
  if (method_ == Method::kAttend) return response_.Finish(message);
  return response_.FinishOnStream(message, received_.stream_request().id());
}

void AttendJob::Record(const AttendAnswer& answer, const TaskStats& stats,
                       const AttentionProblem* problem) const {
  RequestRecord record;
  record.code = answer.status.error_code();
  record.total_seconds = absl::ToDoubleSeconds(options_.clock->Now() - arrival_);
  if (problem != nullptr) record.queue_seconds = absl::ToDoubleSeconds(stats.queue);
  if (stats.batch_size > 0) record.compute_seconds = absl::ToDoubleSeconds(stats.compute);
  record.received_bytes = received_.message_bytes();
  record.copied_bytes = received_.copied_bytes();
  if (record.code == grpc::StatusCode::OK) {
    record.sent_bytes = static_cast<std::int64_t>(answer.message.Length());
    record.tokens = QueryTokens(*problem);
    record.flops = problem->flops();
  }
  options_.metrics->RequestFinished(method_, record);
}

void AttendJob::Log(grpc::StatusCode code, const TaskStats& stats,
                    const AttentionProblem* problem) const {
  const bool sampled = IsOneIn(options_.access_log_one_in);
  const auto level = sampled ? spdlog::level::info : spdlog::level::debug;
  if (!options_.logger->should_log(level)) return;
  try {
    options_.logger->log(
        level,
        "{}: {}, batch of {}, queue {:.6f} s, compute {:.6f} s, {} flops, {} bytes received, "
        "trace {}",
        NameOf(method_), absl::StatusCodeToString(static_cast<absl::StatusCode>(code)),
        stats.batch_size, absl::ToDoubleSeconds(stats.queue), absl::ToDoubleSeconds(stats.compute),
        code == grpc::StatusCode::OK ? problem->flops() : 0, received_.message_bytes(),
        trace_id_.empty() ? "none" : trace_id_.c_str());
  } catch (const std::bad_alloc&) {
    // The answer matters more than its line.
  }
}

}  // namespace attend
