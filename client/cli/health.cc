#include <string>

#include "client/cli/commands.h"
#include "client/cli/json_output.h"

namespace attend::cli {

namespace {

void PrintStatus(const std::string& service, ServingStatus status, const Context& context) {
  if (context.global.json) {
    const Json json = {{"service", service}, {"status", std::string(Name(status))}};
    context.out << json.dump() << std::endl;
    return;
  }
  context.out << std::string(Name(status)) << std::endl;  // whoever watches sees it now
}

}  // namespace

void AddHealthFlags(CLI::App* app, HealthOptions* options) {
  app->add_option("service", options->service,
                  "Full name, such as attend.v1.AttentionService (default: the server as a whole)");
  app->add_flag("--watch", options->watch, "Print each change until interrupted");
}

int RunHealth(const HealthOptions& options, const Context& context) {
  const auto client = context.MakeClient();
  if (!client.ok()) return context.InputError(client.status());
  if (options.watch) {
    const auto print = [&](ServingStatus status) {
      PrintStatus(options.service, status, context);
      return true;
    };
    return context.CallError(
        (*client)->WatchHealth(options.service, print, context.MakeCallOptions()));
  }
  const absl::StatusOr<ServingStatus> status =
      (*client)->CheckHealth(options.service, context.MakeCallOptions());
  if (!status.ok()) return context.CallError(status.status());
  PrintStatus(options.service, *status, context);
  return *status == ServingStatus::kServing ? kOk : kCheckFailed;
}

}  // namespace attend::cli
