// The server as a whole: what it is made of, and its life from start to drain.
#ifndef ATTEND_SERVER_PROCESS_SERVER_PROCESS_H_
#define ATTEND_SERVER_PROCESS_SERVER_PROCESS_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/attention/attention.h"
#include "core/base/buffer_pool.h"
#include "core/executor/executor.h"
#include "server/health/health_service.h"
#include "server/observe/admin_server.h"
#include "server/observe/logging.h"
#include "server/observe/metrics.h"
#include "server/observe/recent_activity.h"
#include "server/process/grpc_server.h"
#include "server/process/ready_file.h"
#include "server/rpc/attention_service.h"
#include "server/rpc/periodic_alarm.h"
#include "server/rpc/shared_memory_service.h"
#include "server/schedule/clock.h"
#include "server/schedule/scheduler.h"
#include "server/settings/settings.h"
#include "server/shared_memory/shared_memory_registry.h"

namespace attend {

// Thread-safety: Start and Drain from one thread; Hurry from any.
class ServerProcess {
 public:
  // Returns once the server serves: kernels are warm, the self-test has passed, health says SERVING
  // and the ready file is written. The admin port answers from early on.
  // Errors: those of StartGrpcServer, AdminServer, RunSelfTest, Scheduler and ReadyFile.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(const LoadedSettings& loaded,
                                                              Logger logger);
  // As a drain that is out of time.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // In this order: /readyz and health say no while everything is still served for drain_grace; gRPC
  // takes no new calls and those that run come to their end; what has not by `deadline` is failed
  // with UNAVAILABLE; the admin port closes. `deadline` is on MonotonicClock. `on_answered`, which
  // may be empty, is called once every request has its answer, whoever reads it. To be called at
  // most once.
  void Drain(absl::Time deadline, const std::function<void()>& on_answered)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Moves the drain's deadline to now.
  void Hurry() ABSL_LOCKS_EXCLUDED(mutex_);

  // That the server listens on, with the ports that were taken.
  const std::vector<std::string>& grpc_addresses() const { return grpc_.addresses; }
  // Empty if the admin port is off.
  const std::string& admin_address() const { return admin_address_; }

 private:
  enum class State : std::uint8_t { kStarting, kServing, kDraining };

  ServerProcess(const LoadedSettings& loaded, Logger logger);

  // The parts of Start, in order.
  absl::Status StartAdmin();
  absl::Status PrepareEngine();
  absl::Status StartServing();
  absl::Status AnnounceReady();
  // Says which settings do nothing beside the others.
  void WarnOfIdleSettings() const;

  // Lets go of shared memory that nobody needs any more and, where nothing has come for a while, of
  // what the C library keeps.
  void TidyMemory();

  void WaitForGrace(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  void FinishCalls(absl::Time deadline, const std::function<void()>& on_answered)
      ABSL_LOCKS_EXCLUDED(mutex_);
  bool CallsDoneOrHurried() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return calls_done_ || hurried_;
  }

  // Null where the server does not offer shared memory.
  SharedMemoryRegistry* OfferedSharedMemory() {
    return settings_.shared_memory ? &shared_memory_ : nullptr;
  }

  std::string NotReadyReason() const;
  std::string StatusJson();
  v1::ServerInfo Info() const;

  const LoadedSettings loaded_;
  const Settings& settings_ = loaded_.settings;
  const Logger logger_;
  const absl::Time start_time_;
  std::atomic<State> state_{State::kStarting};
  ReadyFile ready_file_;

  absl::Mutex mutex_;
  bool calls_done_ ABSL_GUARDED_BY(mutex_) = false;
  bool hurried_ ABSL_GUARDED_BY(mutex_) = false;

  // Each uses those above it.
  MonotonicClock clock_;
  Executor executor_;
  BufferPool buffers_;         // for messages
  BufferPool working_memory_;  // bounded by what is admitted
  AttentionEngine engine_;
  SharedMemoryRegistry shared_memory_;
  Metrics metrics_;
  std::unique_ptr<Scheduler> scheduler_;
  HealthService health_;
  std::unique_ptr<AttentionService> attention_service_;
  SharedMemoryService shared_memory_service_;
  GrpcServer grpc_;
  std::string admin_address_;
  RecentActivity recent_activity_;
  std::unique_ptr<AdminServer> admin_;
  // Requests that had been answered at the last look, and when memory went back last. For the alarm
  // alone.
  struct {
    double seen = 0;
    double trimmed = 0;
  } tidied_;
  std::optional<PeriodicAlarm> tidy_memory_;
};

}  // namespace attend

#endif  // ATTEND_SERVER_PROCESS_SERVER_PROCESS_H_
