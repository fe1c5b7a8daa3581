// attend-server.
//
// Exit codes: 0 after a drain; 1 where it cannot start or the drain hangs; 2 for settings that are
// wrong.
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

#include "core/base/freed_memory.h"
#include "server/observe/logging.h"
#include "server/process/server_process.h"
#include "server/process/stop_signals.h"
#include "server/settings/settings.h"

namespace attend {
namespace {

constexpr int kBadSettings = 2;

std::map<std::string, std::string> Environment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return environment;
}

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

int Serve(const LoadedSettings& loaded) {
  const Settings& settings = loaded.settings;
  const Logger logger =
      MakeStderrLogger(SpdlogLevel(settings.log_level),
                       settings.log_format == LogFormat::kJson ? LogLines::kJson : LogLines::kText);
  RouteLibraryLogs(logger);
  StopSignals signals(settings.drain_timeout, logger);
  absl::StatusOr<std::unique_ptr<ServerProcess>> process = ServerProcess::Start(loaded, logger);
  if (!process.ok()) {
    logger->error("cannot start: {}", std::string(process.status().message()));
    return EXIT_FAILURE;
  }
  signals.OnSecond([&process] { (*process)->Hurry(); });
  const absl::Time signalled = signals.WaitForFirst();
  (*process)->Drain(signalled + settings.drain_timeout, [&signals] { signals.Answered(); });
  signals.OnSecond([] {});
  process->reset();
  return EXIT_SUCCESS;
}

int Main(int argc, char** argv) {
  KeepFreedMemory();
  StopSignals::Block();
  const std::vector<std::string> args(argv + 1, argv + argc);
  const absl::StatusOr<LoadedSettings> loaded = LoadSettings(args, Environment());
  if (!loaded.ok()) {
    std::cerr << "attend-server: " << loaded.status().message() << "\n";
    return kBadSettings;
  }
  if (!loaded->print.empty()) {
    std::cout << loaded->print;
    return std::cout.flush() ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  return Serve(*loaded);
}

}  // namespace
}  // namespace attend

int main(int argc, char** argv) {
  try {
    return attend::Main(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "attend-server: " << error.what() << "\n";
    return EXIT_FAILURE;
  }
}
