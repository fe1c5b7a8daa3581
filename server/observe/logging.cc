#include "server/observe/logging.h"

#include <atomic>
#include <cstdint>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/observe/line_limit.h"

namespace attend {
namespace {

constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%eZ %-7l %v";
constexpr char kJsonPattern[] = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","message":%*})";

// "%*": the message as a JSON string, in its quotes.
class JsonMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const nlohmann::json text(std::string(message.payload.data(), message.payload.size()));
    const std::string quoted = text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    out.append(quoted.data(), quoted.data() + quoted.size());
  }

  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonMessage>();
  }
};

Logger MakeLogger(spdlog::level::level_enum level, LogLines lines, spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("attend", std::move(sink));
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  formatter->add_flag<JsonMessage>('*').set_pattern(lines == LogLines::kJson ? kJsonPattern
                                                                             : kTextPattern);
  logger->set_formatter(std::move(formatter));
  logger->set_level(level);
  logger->flush_on(spdlog::level::trace);
  return logger;
}

// Where a library's lines go. Callers can trigger some of them, so their number is limited.
class LibraryRoute {
 public:
  LibraryRoute(const char* library, Logger logger)
      : library_(library), logger_(std::move(logger)) {}

  void Log(spdlog::level::level_enum level, std::string_view message) {
    if (!logger_->should_log(level)) return;
    const std::optional<std::int64_t> left_out = limit_.Take(absl::Now());
    if (!left_out.has_value()) return;
    if (*left_out > 0) logger_->warn("{}: {} lines were left out", library_, *left_out);
    logger_->log(level, "{}: {}", library_, message);
  }

 private:
  const char* const library_;
  const Logger logger_;
  LineLimit limit_{20, absl::Seconds(10)};
};

// Never destroyed: the libraries' threads may log while the process ends.
std::atomic<LibraryRoute*> grpc_route{nullptr};
std::atomic<LibraryRoute*> protobuf_route{nullptr};

void LogForGrpc(gpr_log_func_args* args) {
  spdlog::level::level_enum level = spdlog::level::debug;
  if (args->severity == GPR_LOG_SEVERITY_INFO) level = spdlog::level::info;
  if (args->severity == GPR_LOG_SEVERITY_ERROR) level = spdlog::level::err;
  grpc_route.load()->Log(level, args->message);
}

void LogForProtobuf(google::protobuf::LogLevel severity, const char* /*file*/, int /*line*/,
                    const std::string& message) {
  spdlog::level::level_enum level = spdlog::level::info;
  if (severity == google::protobuf::LOGLEVEL_WARNING) level = spdlog::level::warn;
  if (severity == google::protobuf::LOGLEVEL_ERROR) level = spdlog::level::err;
  if (severity == google::protobuf::LOGLEVEL_FATAL) level = spdlog::level::critical;
  protobuf_route.load()->Log(level, message);
}

}  // namespace

Logger MakeStderrLogger(spdlog::level::level_enum level, LogLines lines) {
  return MakeLogger(level, lines, std::make_shared<spdlog::sinks::stderr_sink_mt>());
}

Logger MakeStreamLogger(spdlog::level::level_enum level, LogLines lines, std::ostream& out) {
  return MakeLogger(level, lines, std::make_shared<spdlog::sinks::ostream_sink_mt>(out));
}

void RouteLibraryLogs(Logger logger) {
  grpc_route.store(new LibraryRoute("grpc", logger));
  gpr_set_log_function(LogForGrpc);
  protobuf_route.store(new LibraryRoute("protobuf", std::move(logger)));
  google::protobuf::SetLogHandler(LogForProtobuf);
}

}  // namespace attend
