// The subcommands of `attend`. Each has options, flags that fill them, and a run that returns the
// exit code.
#ifndef ATTEND_CLIENT_CLI_COMMANDS_H_
#define ATTEND_CLIENT_CLI_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "client/cli/attention_flags.h"
#include "client/cli/context.h"

namespace attend::cli {

// Attention on tensors in files.
struct SdpaOptions {
  AttentionFlags attention;
  bool lse = false;
  bool weights = false;
  std::string scores;  // "scaled", "capped", "biased"; empty: none
  std::string output;  // file; empty: print
  std::string priority = "normal";
  bool check = false;
};
void AddSdpaFlags(CLI::App* app, SdpaOptions* options);
int RunSdpa(const SdpaOptions& options, const Context& context);

// Every step of a small attention.
struct ExplainOptions {
  AttentionFlags attention;
  std::string example;
  bool list = false;
};
void AddExplainFlags(CLI::App* app, ExplainOptions* options);
int RunExplain(const ExplainOptions& options, const Context& context);

// Whether a service serves.
struct HealthOptions {
  std::string service;  // empty: the server as a whole
  bool watch = false;
};
void AddHealthFlags(CLI::App* app, HealthOptions* options);
int RunHealth(const HealthOptions& options, const Context& context);

// What the server is and what it accepts.
int RunInfo(const Context& context);

// A worked step and a larger, checked request.
struct DemoOptions {
  std::uint64_t seed = 1;
  std::int64_t length = 512;  // tokens of the larger request
  std::string metrics_url;    // empty: no metrics
};
void AddDemoFlags(CLI::App* app, DemoOptions* options);
int RunDemo(const DemoOptions& options, const Context& context);

}  // namespace attend::cli

#endif  // ATTEND_CLIENT_CLI_COMMANDS_H_
