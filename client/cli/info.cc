#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/json_output.h"
#include "client/cli/render.h"

namespace attend::cli {

namespace {

std::vector<std::pair<std::string, std::int64_t>> LimitsOf(const ServerLimits& limits) {
  return {{"max_message_bytes", limits.max_message_bytes},
          {"max_head_dim", limits.max_head_dim},
          {"max_value_dim", limits.max_value_dim},
          {"max_heads", limits.max_heads},
          {"max_batch", limits.max_batch},
          {"max_length", limits.max_length},
          {"max_score_elements", limits.max_score_elements},
          {"max_queued_requests", limits.max_queued_requests},
          {"max_streams_per_connection", limits.max_streams_per_connection},
          {"max_queued_bytes", limits.max_queued_bytes},
          {"max_skeleton_bytes", limits.max_skeleton_bytes},
          {"max_stream_requests", limits.max_stream_requests}};
}

std::vector<std::string> DTypeNames(const ServerInfo& info) {
  std::vector<std::string> names;
  for (const DType dtype : info.dtypes) names.emplace_back(Name(dtype));
  return names;
}

std::string ToText(const ServerInfo& info) {
  Table table({"server", info.server});
  table.AddRow({"version", info.version});
  table.AddRow({"cpu_target", info.cpu_target});
  table.AddRow({"compute_threads", absl::StrCat(info.compute_threads)});
  table.AddRow({"dtypes", absl::StrJoin(DTypeNames(info), ", ")});
  table.AddRow({"options", absl::StrJoin(info.options, ", ")});
  for (const auto& [name, value] : LimitsOf(info.limits)) table.AddRow({name, absl::StrCat(value)});
  return table.ToString();
}

Json ToJson(const ServerInfo& info) {
  Json limits = Json::object();
  for (const auto& [name, value] : LimitsOf(info.limits)) limits[name] = value;
  return {{"server", info.server},
          {"version", info.version},
          {"cpu_target", info.cpu_target},
          {"compute_threads", info.compute_threads},
          {"dtypes", DTypeNames(info)},
          {"options", info.options},
          {"limits", limits}};
}

}  // namespace

int RunInfo(const Context& context) {
  const auto client = context.MakeClient();
  if (!client.ok()) return context.InputError(client.status());
  const absl::StatusOr<ServerInfo> info = (*client)->GetServerInfo(context.MakeCallOptions());
  if (!info.ok()) return context.CallError(info.status());
  if (context.global.json) {
    context.out << ToJson(*info).dump() << "\n";
  } else {
    context.out << ToText(*info);
  }
  return kOk;
}

}  // namespace attend::cli
