#include "client/cli/field_origins.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attend::cli {

namespace {

struct FlagOfField {
  const char* flag;
  const char* field;
};

// Where a field has several flags the last one that is given wins, as it does in the request.
constexpr FlagOfField kFlags[] = {
    {"--input", "query"},
    {"--input", "key"},
    {"--input", "value"},
    {"--query", "query"},
    {"--key", "key"},
    {"--value", "value"},
    {"--layout", "layout"},
    {"--query-lengths", "query_lengths"},
    {"--kv-lengths", "kv_lengths"},
    {"--output-dtype", "output.dtype"},
    {"--causal", "options.causal"},
    {"--alignment", "options.alignment"},
    {"--query-offsets", "options.query_offsets"},
    {"--window-left", "options.window_left"},
    {"--window-right", "options.window_right"},
    {"--boolean-mask", "boolean_mask"},
    {"--block-mask", "options.block_mask"},
    {"--block-mask", "options.block_mask.blocks"},
    {"--block-size", "options.block_mask.query_block_size"},
    {"--block-size", "options.block_mask.key_block_size"},
    {"--query-block-size", "options.block_mask.query_block_size"},
    {"--key-block-size", "options.block_mask.key_block_size"},
    {"--scale", "options.scale"},
    {"--softcap", "options.softcap"},
    {"--additive-mask", "additive_mask"},
    {"--alibi-slopes", "options.alibi_slopes"},
    {"--sinks", "options.sinks"},
    {"--lse", "output.lse"},
    {"--weights", "output.weights"},
    {"--scores", "output.scores"},
    {"--priority", "priority"},
};

// As it was typed: "--query q.npy", "--query-lengths 3,4", "--weights".
std::string AsGiven(const CLI::Option& option, const char* flag) {
  if (option.get_items_expected_max() == 0) return flag;
  return absl::StrCat(flag, " ", absl::StrJoin(option.results(), ","));
}

}  // namespace

FieldOrigins::FieldOrigins(const CLI::App& app) {
  for (const FlagOfField& entry : kFlags) {
    const CLI::Option* option = app.get_option_no_throw(entry.flag);
    if (option == nullptr || option->count() == 0) continue;
    given_[entry.field] = AsGiven(*option, entry.flag);
  }
}

std::string FieldOrigins::Of(absl::string_view field) const {
  while (!field.empty()) {
    const auto found = given_.find(field);
    if (found != given_.end()) return found->second;
    const auto end = field.find_last_of(".[");
    if (end == absl::string_view::npos) break;
    field = field.substr(0, end);
  }
  return "";
}

}  // namespace attend::cli
