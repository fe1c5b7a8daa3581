// Every setting of attend-server, and where its value came from.
//
// Each setting is a flag (--max-queue-delay), an environment variable (ATTEND_MAX_QUEUE_DELAY) and
// a key of the file that --config or ATTEND_CONFIG names (max-queue-delay = "2ms"). Flag beats
// environment beats file beats default. The list itself is one table in settings_table.cc.
#ifndef ATTEND_SERVER_SETTINGS_SETTINGS_H_
#define ATTEND_SERVER_SETTINGS_SETTINGS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/attention_problem.h"

namespace attend {

enum class LogFormat : std::uint8_t { kText, kJson };
enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError };

// Checked values. --help says what each one means.
struct Settings {
  std::vector<std::string> listen = {"127.0.0.1:50051"};  // "host:port" or "unix:/path"
  std::string admin_listen = "127.0.0.1:9090";            // "host:port"; empty = off
  bool allow_insecure_remote = false;
  std::string ready_file;  // empty = none

  std::string server_name;  // default: the host's name
  int threads = 0;          // that compute; 0 = the CPUs this process may use
  int compute_nice = 5;
  bool warm = true;

  std::int64_t max_message_bytes = std::int64_t{256} << 20;
  std::int64_t memory_quota_bytes = std::int64_t{2} << 30;
  std::int64_t buffer_pool_bytes = std::int64_t{256} << 20;
  int max_streams_per_connection = 128;
  int max_stream_requests = 256;
  absl::Duration max_send_time = absl::Seconds(60);          // 0 = no limit
  absl::Duration max_connection_age = absl::ZeroDuration();  // 0 = no limit
  absl::Duration keepalive_min_ping_interval = absl::Seconds(10);

  std::int64_t max_queued_requests = 1024;
  std::int64_t max_queued_bytes = std::int64_t{1} << 30;
  int max_batch_requests = 64;
  std::int64_t max_batch_flops = 64'000'000;
  std::int64_t max_running_bytes = std::int64_t{512} << 20;
  absl::Duration max_queue_delay = absl::ZeroDuration();
  absl::Duration max_priority_wait = absl::Seconds(1);

  bool shared_memory = false;
  std::int64_t max_shared_memory_regions = 256;
  absl::Duration shared_memory_idle_time = absl::Minutes(10);

  absl::Duration drain_grace = absl::Milliseconds(700);
  absl::Duration drain_timeout = absl::Seconds(10);

  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
  std::int64_t access_log_one_in = 0;  // 0 = none

  AttentionLimits limits;
};

// One setting as the server uses it.
struct SettingReport {
  std::string name;    // as the flag, without dashes
  std::string value;   // as it would be written on the command line
  std::string origin;  // "flag", "environment", "file" or "default"
};

struct LoadedSettings {
  Settings settings;
  std::vector<SettingReport> report;  // every setting, in the order of --help
  // What --help, --version or --print-config asked for: print it to stdout and exit 0. Empty
  // otherwise.
  std::string print;
};

// Resolves and checks every setting. `args`: the command line without the program's name.
// `environment`: name to value; only names that begin with ATTEND_ are looked at.
// Errors: INVALID_ARGUMENT with a sentence that names the setting, the value and what to change:
// for an unknown flag, ATTEND_ variable (other than ATTEND_TEST_*) or key, a value that does not
// parse or is out of range, settings that contradict each other, and a file that cannot be read.
absl::StatusOr<LoadedSettings> LoadSettings(const std::vector<std::string>& args,
                                            const std::map<std::string, std::string>& environment);

}  // namespace attend

#endif  // ATTEND_SERVER_SETTINGS_SETTINGS_H_
