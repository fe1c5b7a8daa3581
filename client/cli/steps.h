// Every step of a small attention, asked of a server and laid out to read.
#ifndef ATTEND_CLIENT_CLI_STEPS_H_
#define ATTEND_CLIENT_CLI_STEPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/json_output.h"
#include "client/cpp/client.h"
#include "core/base/attention_problem.h"

namespace attend::cli {

// One query row of one head. All numbers but query, keys and values are the server's.
struct QuerySteps {
  std::int64_t item = 0;
  std::int64_t head = 0;
  std::int64_t kv_head = 0;
  std::int64_t row = 0;
  std::int64_t position = 0;             // on the key axis: row + offset
  std::vector<float> query;              // [head_dim]
  std::vector<std::vector<float>> keys;  // [kv_len][head_dim]
  std::vector<std::vector<float>> values;
  std::vector<float> products;  // q . k, [kv_len], as those below
  std::vector<float> scaled;
  std::vector<float> capped;
  std::vector<float> biased;  // -inf where excluded
  std::vector<float> weights;
  float lse = 0;
  std::vector<float> output;  // [value_dim]
};

struct Steps {
  std::vector<std::string> settings;  // "scale 0.7071", "causal", ...: what was asked for
  bool capped = false;                // whether a softcap is on
  std::vector<QuerySteps> queries;
};

// Asks for one problem four times: products (a scale of 1), scaled, capped, and biased scores with
// weights, LSE and output.
//
// Errors: those of Client::Attend.
absl::StatusOr<Steps> FetchSteps(Client& client, const AttentionArgs& args,
                                 const CallOptions& call_options);

std::string RenderSteps(const Steps& steps);
Json ToJson(const Steps& steps);

}  // namespace attend::cli

#endif  // ATTEND_CLIENT_CLI_STEPS_H_
