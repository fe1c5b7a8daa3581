#include "server/observe/logging.h"

#include <atomic>
#include <grpc/support/log.h>
#include <nlohmann/json.hpp>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <string>
#include <utility>

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

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// Never destroyed: gRPC's threads may log while the process ends.
std::atomic<const Logger*> grpc_logger{nullptr};

void LogForGrpc(gpr_log_func_args* args) {
  spdlog::level::level_enum level = spdlog::level::debug;
  if (args->severity == GPR_LOG_SEVERITY_INFO) level = spdlog::level::info;
  if (args->severity == GPR_LOG_SEVERITY_ERROR) level = spdlog::level::err;
  (*grpc_logger.load())->log(level, "grpc: {}", args->message);
}

}  // namespace

Logger MakeLogger(LogLevel level, LogFormat format, spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("attend", std::move(sink));
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  formatter->add_flag<JsonMessage>('*').set_pattern(format == LogFormat::kJson ? kJsonPattern
                                                                               : kTextPattern);
  logger->set_formatter(std::move(formatter));
  logger->set_level(SpdlogLevel(level));
  logger->flush_on(spdlog::level::trace);
  return logger;
}

Logger MakeStderrLogger(LogLevel level, LogFormat format) {
  return MakeLogger(level, format, std::make_shared<spdlog::sinks::stderr_sink_mt>());
}

void RouteGrpcLogs(Logger logger) {
  grpc_logger.store(new Logger(std::move(logger)));
  gpr_set_log_function(LogForGrpc);
}

}  // namespace attend
