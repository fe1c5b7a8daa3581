#include "server/settings/settings_table.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unistd.h>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/settings/address.h"
#include "server/settings/units.h"

namespace attend {
namespace {

constexpr std::int64_t kKiB = std::int64_t{1} << 10;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

// Finds a setting's place in Settings. Rows name the place once, for reading and for writing.
template <typename T>
using Place = std::function<T&(Settings&)>;

template <typename T>
Place<T> In(T Settings::*member) {
  return [member](Settings& settings) -> T& { return settings.*member; };
}

Place<std::int64_t> InLimits(std::int64_t AttentionLimits::*member) {
  return [member](Settings& settings) -> std::int64_t& { return settings.limits.*member; };
}

template <typename T>
T Read(const Place<T>& place, Settings settings) {
  return place(settings);
}

absl::Status OutOfRange(absl::string_view value, absl::string_view low, absl::string_view high) {
  return absl::InvalidArgumentError(
      absl::StrCat(value, " is out of range; write a value from ", low, " to ", high));
}

// The parts of a row that every kind of value shares.
template <typename T>
struct ValueKind {
  const char* type;
  absl::StatusOr<T> (*parse)(absl::string_view);
  std::string (*format)(T);
};

constexpr ValueKind<std::int64_t> kCount = {"COUNT", ParseInteger,
                                            [](std::int64_t value) { return absl::StrCat(value); }};
constexpr ValueKind<std::int64_t> kSize = {"SIZE", ParseSize, FormatSize};
constexpr ValueKind<absl::Duration> kDuration = {
    "DURATION", ParseDuration, [](absl::Duration value) { return absl::FormatDuration(value); }};

template <typename T>
struct Range {
  T low;
  T high;
};

// A number or a duration in [low, high]. Stored may be narrower than T, where the range fits it.
template <typename T, typename Stored>
SettingRow Ranged(std::string name, const ValueKind<T>& kind, Place<Stored> place, Range<T> range,
                  std::string help) {
  SettingRow row;
  row.name = std::move(name);
  row.type = kind.type;
  row.help = std::move(help);
  row.set = [kind, place, range](const std::vector<std::string>& values, Settings& settings) {
    const absl::StatusOr<T> value = kind.parse(values.front());
    if (!value.ok()) return value.status();
    if (*value < range.low || *value > range.high) {
      return OutOfRange(values.front(), kind.format(range.low), kind.format(range.high));
    }
    place(settings) = static_cast<Stored>(*value);
    return absl::OkStatus();
  };
  row.get = [kind, place](const Settings& settings) { return kind.format(Read(place, settings)); };
  return row;
}

SettingRow Switch(std::string name, bool Settings::*member, std::string help) {
  SettingRow row;
  row.name = std::move(name);
  row.kind = SettingKind::kSwitch;
  row.help = std::move(help);
  row.set = [member](const std::vector<std::string>& values, Settings& settings) {
    const absl::StatusOr<bool> value = ParseSwitch(values.front());
    if (value.ok()) settings.*member = *value;
    return value.status();
  };
  row.get = [member](const Settings& settings) {
    return std::string(settings.*member ? "true" : "false");
  };
  return row;
}

using TextCheck = absl::Status (*)(const std::string&);

SettingRow Text(std::string name, std::string type, std::string Settings::*member, TextCheck check,
                std::string help) {
  SettingRow row;
  row.name = std::move(name);
  row.type = std::move(type);
  row.help = std::move(help);
  row.set = [member, check](const std::vector<std::string>& values, Settings& settings) {
    absl::Status status = check(values.front());
    if (status.ok()) settings.*member = values.front();
    return status;
  };
  row.get = [member](const Settings& settings) { return settings.*member; };
  return row;
}

template <typename T>
using Choices = std::vector<std::pair<std::string, T>>;

template <typename T>
SettingRow Choice(std::string name, T Settings::*member, Choices<T> choices, std::string help) {
  SettingRow row;
  row.name = std::move(name);
  row.help = std::move(help);
  row.type = absl::StrJoin(choices, "|",
                           [](std::string* out, const auto& choice) { out->append(choice.first); });
  row.set = [member, choices, type = row.type](const std::vector<std::string>& values,
                                               Settings& settings) {
    for (const auto& [text, value] : choices) {
      if (text != values.front()) continue;
      settings.*member = value;
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("\"", values.front(), "\" is not a choice; write one of ", type));
  };
  row.get = [member, choices](const Settings& settings) {
    const auto found = std::find_if(choices.begin(), choices.end(), [&](const auto& choice) {
      return choice.second == settings.*member;
    });
    return found->first;
  };
  return row;
}

absl::Status CheckAdminAddress(const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  const absl::StatusOr<Address> address = ParseAddress(text);
  if (!address.ok()) return address.status();
  if (address->is_unix()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" is a Unix socket, and the admin port is TCP; write host:port"));
  }
  return absl::OkStatus();
}

absl::Status CheckServerName(const std::string& text) {
  constexpr std::size_t kMaxName = 253;
  const bool printable = std::all_of(text.begin(), text.end(), absl::ascii_isgraph);
  if (!text.empty() && text.size() <= kMaxName && printable) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a name; write 1 to ",
                                                 kMaxName, " ASCII characters without spaces"));
}

absl::Status CheckReadyFile(const std::string& text) {
  if (text.empty() || (text.front() == '/' && text.back() != '/')) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is not the absolute path of a file; begin it with /"));
}

SettingRow Listen(std::string help) {
  SettingRow row;
  row.name = "listen";
  row.kind = SettingKind::kList;
  row.type = "ADDRESS";
  row.help = std::move(help);
  row.set = [](const std::vector<std::string>& values, Settings& settings) {
    if (values.empty()) {
      return absl::InvalidArgumentError("is empty; write at least one address");
    }
    for (auto text = values.begin(); text != values.end(); ++text) {
      const absl::StatusOr<Address> address = ParseAddress(*text);
      if (!address.ok()) return address.status();
      const bool fixed = address->is_unix() || address->port != 0;
      if (fixed && std::find(values.begin(), text, *text) != text) {
        return absl::InvalidArgumentError(
            absl::StrCat("\"", *text, "\" is given twice; remove one of them"));
      }
    }
    settings.listen = values;
    return absl::OkStatus();
  };
  row.get = [](const Settings& settings) { return absl::StrJoin(settings.listen, ","); };
  return row;
}

std::vector<SettingRow> Grouped(const char* group, std::vector<SettingRow> rows) {
  for (SettingRow& row : rows) row.group = group;
  return rows;
}

std::vector<SettingRow> AddressRows() {
  return Grouped(
      "Addresses",
      {Listen(
           "Where to serve gRPC: host:port or unix:/path, repeated or with commas; port 0 takes a "
           "free one"),
       Text("admin-listen", "ADDRESS", &Settings::admin_listen, CheckAdminAddress,
            "Where to serve /metrics, /livez, /readyz and /statusz over HTTP; empty = nowhere"),
       Switch("allow-insecure-remote", &Settings::allow_insecure_remote,
              "Allow addresses that other hosts can reach, although there is no TLS"),
       Text("ready-file", "PATH", &Settings::ready_file, CheckReadyFile,
            "File to write once serving, as JSON: pid, grpc (addresses), admin; empty = none"),
       Text("server-name", "NAME", &Settings::server_name, CheckServerName,
            "Name of this server in responses; default: the host's name")});
}

std::vector<SettingRow> ComputeRows() {
  return Grouped(
      "Compute",
      {Ranged("threads", kCount, In(&Settings::threads), {0, 4096},
              "Threads that compute; 0 = the CPUs that this process may use"),
       Ranged("compute-nice", kCount, In(&Settings::compute_nice), {0, 19},
              "Added to the nice value of compute threads, so that small calls are answered first"),
       Switch("warm", &Settings::warm, "Create the kernels of common head sizes before serving")});
}

std::vector<SettingRow> ConnectionRows() {
  return Grouped(
      "Connections",
      {Ranged("max-message-bytes", kSize, In(&Settings::max_message_bytes), {kKiB, 2047 * kMiB},
              "Largest request or response message"),
       Ranged("memory-quota-bytes", kSize, In(&Settings::memory_quota_bytes),
              {16 * kMiB, kKiB * kGiB}, "Memory that gRPC may hold for messages in transit"),
       Ranged(
           "buffer-pool-bytes", kSize, In(&Settings::buffer_pool_bytes), {0, kKiB * kGiB},
           "Memory kept for the next messages while unused, and a quarter of that for computing; "
           "0 = none"),
       Ranged("max-streams-per-connection", kCount, In(&Settings::max_streams_per_connection),
              {1, 1'000'000}, "Calls at once on one connection; more wait in the client"),
       Ranged(
           "max-stream-requests", kCount, In(&Settings::max_stream_requests), {1, 1'000'000},
           "Requests of one AttendStream without an answer, or whose answer waits to be sent; past "
           "it the server reads no further"),
       Ranged("max-send-time", kDuration, In(&Settings::max_send_time),
              {absl::ZeroDuration(), absl::Hours(24 * 365)},
              "Time that a caller may take to take an answer off the wire; past it its call is "
              "ended; 0 = no limit"),
       Ranged("max-connection-age", kDuration, In(&Settings::max_connection_age),
              {absl::ZeroDuration(), absl::Hours(24 * 365)},
              "Age at which a connection is closed gracefully, so that clients spread over new "
              "servers; 0 = never"),
       Ranged("keepalive-min-ping-interval", kDuration, In(&Settings::keepalive_min_ping_interval),
              {absl::Milliseconds(100), absl::Hours(1)},
              "Clients that ping more often than this are disconnected")});
}

std::vector<SettingRow> ScheduleRows() {
  return Grouped(
      "Scheduling",
      {Ranged("max-queued-requests", kCount, In(&Settings::max_queued_requests), {1, 1'000'000},
              "Requests waiting or running at once; past it the least urgent are refused as "
              "RESOURCE_EXHAUSTED"),
       Ranged("max-queued-bytes", kSize, In(&Settings::max_queued_bytes), {kKiB, kKiB * kGiB},
              "Bytes that requests waiting or running may hold; more are refused likewise"),
       Ranged("max-batch-requests", kCount, In(&Settings::max_batch_requests), {1, 65536},
              "Small requests computed as one batch; 1 = each on its own"),
       Ranged("max-batch-flops", kCount, In(&Settings::max_batch_flops), {1, kMaxInt64},
              "Work of a batch of small requests, in floating-point operations; a larger request "
              "is cut into tiles of its own"),
       Ranged("max-running-bytes", kSize, In(&Settings::max_running_bytes), {kKiB, kKiB * kGiB},
              "Working memory of the large requests that run at once; one always runs"),
       Ranged("max-queue-delay", kDuration, In(&Settings::max_queue_delay),
              {absl::ZeroDuration(), absl::Minutes(1)},
              "Time that a small request waits for others to join its batch; 0 = takes what waits "
              "already"),
       Ranged("max-priority-wait", kDuration, In(&Settings::max_priority_wait),
              {absl::ZeroDuration(), absl::Hours(24)},
              "Time after which a waiting request goes before all later ones of any priority, and "
              "gives its place in a full queue to none")});
}

std::vector<SettingRow> SharedMemoryRows() {
  return Grouped(
      "Shared memory",
      {Switch("shared-memory", &Settings::shared_memory,
              "Let callers on a Unix socket pass tensors in POSIX shared memory"),
       Ranged("max-shared-memory-regions", kCount, In(&Settings::max_shared_memory_regions),
              {1, 65536}, "Regions that callers may have registered at once"),
       Ranged("shared-memory-idle-time", kDuration, In(&Settings::shared_memory_idle_time),
              {absl::ZeroDuration(), absl::Hours(24 * 365)},
              "A region that nobody used for this long gives way where there are too many")});
}

std::vector<SettingRow> DrainRows() {
  return Grouped(
      "Shutdown",
      {Ranged("drain-grace", kDuration, In(&Settings::drain_grace),
              {absl::ZeroDuration(), absl::Hours(24)},
              "After SIGTERM, time to go on serving while health says NOT_SERVING"),
       Ranged("drain-timeout", kDuration, In(&Settings::drain_timeout),
              {absl::Milliseconds(100), absl::Hours(24)},
              "After SIGTERM, time until calls still running are failed as UNAVAILABLE; includes "
              "drain-grace")});
}

std::vector<SettingRow> LogRows() {
  return Grouped(
      "Logs",
      {Choice("log-level", &Settings::log_level,
              Choices<LogLevel>{{"debug", LogLevel::kDebug},
                                {"info", LogLevel::kInfo},
                                {"warning", LogLevel::kWarning},
                                {"error", LogLevel::kError}},
              "Least severe lines to log; each request is a line at debug alone"),
       Ranged("access-log-one-in", kCount, In(&Settings::access_log_one_in), {0, 1'000'000'000},
              "One request in so many is a line at info; 0 = none, 1 = all"),
       Choice("log-format", &Settings::log_format,
              Choices<LogFormat>{{"text", LogFormat::kText}, {"json", LogFormat::kJson}},
              "Shape of the lines on stderr")});
}

std::vector<SettingRow> LimitRows() {
  const auto limit = [](std::string name, std::int64_t AttentionLimits::*member, std::int64_t high,
                        std::string help) {
    return Ranged(std::move(name), kCount, InLimits(member), {1, high}, std::move(help));
  };
  return Grouped(
      "Limits of a request",
      {limit("max-head-dim", &AttentionLimits::max_head_dim, 1024, "head_dim of query and key"),
       limit("max-value-dim", &AttentionLimits::max_value_dim, 1024, "value_dim of value"),
       limit("max-heads", &AttentionLimits::max_heads, 65536, "query_heads and kv_heads"),
       limit("max-batch", &AttentionLimits::max_batch, 1 << 24, "Items of a request"),
       limit("max-length", &AttentionLimits::max_length, std::int64_t{1} << 31,
             "query_len and kv_len, in tokens"),
       limit("max-score-elements", &AttentionLimits::max_score_elements, 1 << 29,
             "Elements of the weights or scores that a request may ask for")});
}

std::vector<SettingRow> AllRows() {
  std::vector<SettingRow> all;
  for (auto& group : {AddressRows(), ComputeRows(), ConnectionRows(), ScheduleRows(),
                      SharedMemoryRows(), DrainRows(), LogRows(), LimitRows()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

}  // namespace

const std::vector<SettingRow>& SettingRows() {
  static const auto* const rows = new std::vector<SettingRow>(AllRows());
  return *rows;
}

Settings DefaultSettings() {
  Settings settings;
  std::array<char, 256> name{};
  const bool named = gethostname(name.data(), name.size() - 1) == 0;
  settings.server_name = named && CheckServerName(name.data()).ok() ? name.data() : "attend-server";
  return settings;
}

}  // namespace attend
