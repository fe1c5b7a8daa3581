#include "server/process/server_process.h"

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>
#include <unistd.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/base/freed_memory.h"
#include "server/process/listen_failure.h"
#include "server/process/self_test.h"
#include "server/rpc/server_info.h"
#include "server/settings/address.h"

namespace attend {
namespace {

// Time that the callers of failed calls get to receive the failure, before gRPC cuts them off.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(300);

// How often memory that nobody needs any more is looked for.
constexpr absl::Duration kTidyPeriod = absl::Seconds(2);

MetricsOptions MakeMetricsOptions(const Executor& executor, const AttentionEngine& engine,
                                  const SharedMemoryRegistry& shared_memory,
                                  const BufferPool& buffers, const BufferPool& working_memory) {
  return {.version = ATTEND_VERSION,
          .cpu_target = CpuTarget(),
          .compute_threads = executor.num_threads(),
          .gemm_primitives = [&engine] { return engine.primitives_created(); },
          .shared_memory_regions = [&shared_memory] { return shared_memory.num_regions(); },
          .lent_buffer_bytes = [&] { return buffers.lent_bytes() + working_memory.lent_bytes(); },
          .kept_buffer_bytes = [&] { return buffers.kept_bytes() + working_memory.kept_bytes(); }};
}

SchedulerOptions MakeSchedulerOptions(const Settings& settings) {
  return {.max_queued_requests = settings.max_queued_requests,
          .max_queued_bytes = settings.max_queued_bytes,
          .max_batch_requests = settings.max_batch_requests,
          .max_batch_flops = settings.max_batch_flops,
          .max_running_bytes = settings.max_running_bytes,
          .max_queue_delay = settings.max_queue_delay,
          .max_priority_wait = settings.max_priority_wait};
}

BufferPoolOptions MakePoolOptions(const Settings& settings) {
  // Those of the requests that are admitted, and as much again for answers on their way to callers
  // who are slow to read them.
  return {.max_kept_bytes = settings.buffer_pool_bytes,
          .max_lent_bytes = 2 * settings.max_queued_bytes};
}

nlohmann::ordered_json ToJson(const SchedulerLoad& load) {
  return {{"waiting",
           {{"high", load.waiting[0]}, {"normal", load.waiting[1]}, {"low", load.waiting[2]}}},
          {"running", load.running},
          {"admitted_requests", load.admitted_requests},
          {"admitted_bytes", load.admitted_bytes},
          {"working_bytes", load.working_bytes}};
}

nlohmann::ordered_json ToJson(const Activity& recent) {
  return {{"seconds", recent.seconds},
          {"requests_per_second", recent.requests_per_second},
          {"ok_per_second", recent.ok_per_second},
          {"tokens_per_second", recent.tokens_per_second},
          {"flops_per_second", recent.flops_per_second},
          {"received_bytes_per_second", recent.received_bytes_per_second},
          {"sent_bytes_per_second", recent.sent_bytes_per_second},
          {"p50_seconds", recent.p50_seconds},
          {"p90_seconds", recent.p90_seconds},
          {"p99_seconds", recent.p99_seconds}};
}

std::string AddressWithPort(const std::string& text, int port) {
  absl::StatusOr<Address> address = ParseAddress(text);
  if (!address.ok()) return text;
  address->port = port;
  return FormatAddress(*address);
}

// CivetWeb's own words, where the address is not what is wrong.
absl::Status AdminFailure(const std::string& text, const absl::Status& status) {
  std::string why(status.message());
  const absl::StatusOr<Address> address = ParseAddress(text);
  if (address.ok()) why = FindListenFailure(*address).value_or(why);
  return absl::UnavailableError(absl::StrCat("admin-listen: ", why));
}

}  // namespace

ServerProcess::ServerProcess(const LoadedSettings& loaded, Logger logger)
    : loaded_(loaded),
      logger_(std::move(logger)),
      start_time_(MonotonicClock().Now()),
      ready_file_(settings_.ready_file),
      executor_(ExecutorOptions{.threads = settings_.threads, .nice = settings_.compute_nice}),
      buffers_(MakePoolOptions(settings_)),
      // What a large job pays for its pages is little beside its computing.
      working_memory_({.max_kept_bytes = settings_.buffer_pool_bytes / 4}),
      engine_(executor_, working_memory_),
      shared_memory_({.max_regions = settings_.max_shared_memory_regions,
                      .idle_time = settings_.shared_memory_idle_time},
                     clock_),
      metrics_(MakeMetricsOptions(executor_, engine_, shared_memory_, buffers_, working_memory_)),
      health_({v1::AttentionService::service_full_name()}),
      shared_memory_service_(
          {.registry = OfferedSharedMemory(), .metrics = &metrics_, .clock = &clock_}),
      recent_activity_(start_time_) {}

ServerProcess::~ServerProcess() {
  if (grpc_.server != nullptr && state_ != State::kDraining) {
    Hurry();
    Drain(clock_.Now(), nullptr);
  }
}

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(const LoadedSettings& loaded,
                                                                    Logger logger) {
  std::unique_ptr<ServerProcess> process(new ServerProcess(loaded, std::move(logger)));
  for (const auto step : {&ServerProcess::StartAdmin, &ServerProcess::PrepareEngine,
                          &ServerProcess::StartServing, &ServerProcess::AnnounceReady}) {
    if (absl::Status status = (process.get()->*step)(); !status.ok()) return status;
  }
  return process;
}

absl::Status ServerProcess::StartAdmin() {
  if (settings_.admin_listen.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<AdminServer>> admin = AdminServer::Start(
      settings_.admin_listen, {.metrics = [this] { return metrics_.Exposition(); },
                               .not_ready = [this] { return NotReadyReason(); },
                               .status = [this] { return StatusJson(); }});
  if (!admin.ok()) return AdminFailure(settings_.admin_listen, admin.status());
  admin_ = *std::move(admin);
  admin_address_ = AddressWithPort(settings_.admin_listen, admin_->port());
  return absl::OkStatus();
}

absl::Status ServerProcess::PrepareEngine() {
  if (settings_.warm) engine_.Warm();
  return RunSelfTest(engine_, executor_);
}

absl::Status ServerProcess::StartServing() {
  absl::StatusOr<std::unique_ptr<Scheduler>> scheduler =
      Scheduler::Create(MakeSchedulerOptions(settings_), engine_, executor_, clock_, metrics_);
  if (!scheduler.ok()) return scheduler.status();
  scheduler_ = *std::move(scheduler);
  attention_service_ = std::make_unique<AttentionService>(
      AttentionServiceOptions{.scheduler = scheduler_.get(),
                              .metrics = &metrics_,
                              .clock = &clock_,
                              .buffers = &buffers_,
                              .logger = logger_,
                              .shared_memory = OfferedSharedMemory(),
                              .limits = settings_.limits,
                              .max_message_bytes = settings_.max_message_bytes,
                              .max_stream_requests = settings_.max_stream_requests,
                              .max_send_time = settings_.max_send_time,
                              .access_log_one_in = settings_.access_log_one_in,
                              .info = Info()});
  absl::StatusOr<GrpcServer> grpc =
      StartGrpcServer(settings_, {attention_service_.get(), &shared_memory_service_, &health_});
  if (!grpc.ok()) return grpc.status();
  grpc_ = *std::move(grpc);
  tidy_memory_.emplace(kTidyPeriod, [this] { TidyMemory(); });
  ready_file_.RemoveStale();  // nobody else listens where it says
  return absl::OkStatus();
}

void ServerProcess::TidyMemory() {
  shared_memory_.ForgetUnused();
  double requests = 0;
  try {
    requests = metrics_.Totals().requests;
  } catch (const std::bad_alloc&) {
    return;  // the next look tells
  }
  const bool idle = requests == tidied_.seen && scheduler_->Load().admitted_requests == 0;
  if (idle && requests != tidied_.trimmed) {
    // What gRPC took for many calls at once the C library would keep for good.
    GiveBackFreedMemory();
    tidied_.trimmed = requests;
  }
  tidied_.seen = requests;
}

void ServerProcess::WarnOfIdleSettings() const {
  const bool any_unix =
      std::any_of(settings_.listen.begin(), settings_.listen.end(),
                  [](const std::string& text) { return absl::StartsWith(text, "unix:"); });
  if (settings_.shared_memory && !any_unix) {
    logger_->warn("shared-memory: nobody can use it, since no Unix socket is listened on");
  }
}

absl::Status ServerProcess::AnnounceReady() {
  WarnOfIdleSettings();
  health_.SetServing(true);
  state_ = State::kServing;
  const nlohmann::ordered_json ready = {
      {"pid", getpid()}, {"grpc", grpc_.addresses}, {"admin", admin_address_}};
  if (absl::Status status = ready_file_.Write(absl::StrCat(ready.dump(), "\n")); !status.ok()) {
    return status;
  }
  logger_->info("serving on {}; admin on {}; {} compute threads, {}, version {}",
                absl::StrJoin(grpc_.addresses, ", "),
                admin_address_.empty() ? "no port" : admin_address_, executor_.num_threads(),
                CpuTarget(), ATTEND_VERSION);
  return absl::OkStatus();
}

void ServerProcess::Drain(absl::Time deadline, const std::function<void()>& on_answered) {
  state_ = State::kDraining;
  ready_file_.Remove();
  health_.SetServing(false);
  WaitForGrace(deadline);
  // Watches would keep gRPC waiting.
  health_.Shutdown();
  FinishCalls(deadline, on_answered);
  admin_.reset();
  logger_->info("drained");
}

void ServerProcess::WaitForGrace(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  clock_.AwaitUntil(mutex_, absl::Condition(&hurried_),
                    std::min(deadline, clock_.Now() + settings_.drain_grace));
}

void ServerProcess::FinishCalls(absl::Time deadline, const std::function<void()>& on_answered) {
  // A stream would stay open as long as its caller likes.
  attention_service_->Drain();
  // Refuses new calls at once, and returns when the last has been answered. It never returns while
  // a call has no answer, whatever its deadline: the scheduler sees to that below.
  std::thread closer([this, deadline] {
    grpc_.server->Shutdown(absl::ToChronoTime(absl::Now() + (deadline - clock_.Now())));
    absl::MutexLock lock(&mutex_);
    calls_done_ = true;
  });
  {
    absl::MutexLock lock(&mutex_);
    clock_.AwaitUntil(mutex_, absl::Condition(this, &ServerProcess::CallsDoneOrHurried),
                      deadline - kAnswerTime);
  }
  scheduler_->Shutdown(clock_.Now());
  if (on_answered) on_answered();
  closer.join();
}

void ServerProcess::Hurry() {
  absl::MutexLock lock(&mutex_);
  hurried_ = true;
}

std::string ServerProcess::NotReadyReason() const {
  switch (state_.load()) {
    case State::kStarting:
      return "starting";
    case State::kServing:
      return "";
    case State::kDraining:
      return "draining";
  }
  return "unknown";
}

std::string ServerProcess::StatusJson() {
  const std::string reason = NotReadyReason();
  nlohmann::ordered_json settings = nlohmann::ordered_json::array();
  for (const SettingReport& setting : loaded_.report) {
    settings.push_back(
        {{"name", setting.name}, {"value", setting.value}, {"origin", setting.origin}});
  }
  nlohmann::ordered_json queue;  // null until there is one
  if (state_ != State::kStarting) queue = ToJson(scheduler_->Load());
  const nlohmann::ordered_json status = {
      {"server", settings_.server_name},
      {"version", ATTEND_VERSION},
      {"state", reason.empty() ? "serving" : reason},
      {"uptime_seconds", absl::ToDoubleSeconds(clock_.Now() - start_time_)},
      {"cpu_target", CpuTarget()},
      {"compute_threads", executor_.num_threads()},
      {"queue", queue},
      {"recent", ToJson(recent_activity_.Look(clock_.Now(), metrics_.Totals()))},
      {"settings", settings}};
  // Paths and names from the command line may hold any bytes.
  return status.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

v1::ServerInfo ServerProcess::Info() const {
  return MakeServerInfo({.version = ATTEND_VERSION,
                         .server_name = settings_.server_name,
                         .compute_threads = executor_.num_threads(),
                         .limits = settings_.limits,
                         .max_message_bytes = settings_.max_message_bytes,
                         .max_queued_requests = settings_.max_queued_requests,
                         .max_streams_per_connection = settings_.max_streams_per_connection,
                         .max_queued_bytes = settings_.max_queued_bytes,
                         .max_stream_requests = settings_.max_stream_requests});
}

}  // namespace attend
