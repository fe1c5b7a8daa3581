// Results as JSON, for programs.
#ifndef ATTEND_CLIENT_CLI_JSON_OUTPUT_H_
#define ATTEND_CLIENT_CLI_JSON_OUTPUT_H_

#include <nlohmann/json.hpp>
#include <span>

#include "client/cpp/client.h"
#include "core/base/tensor.h"

namespace attend::cli {

// Keys stay in the order in which they were put in.
using Json = nlohmann::ordered_json;

// Exact. JSON has no infinities and no NaN: they become "inf", "-inf" and "nan".
Json ToJson(double value);
Json ToJson(std::span<const float> values);

// {"dtype": "FLOAT32", "shape": [...], "data": [...]}, data row-major and flat. A float tensor.
Json ToJson(const Tensor& tensor);

// Times in seconds.
Json ToJson(const AttendStats& stats);

}  // namespace attend::cli

#endif  // ATTEND_CLIENT_CLI_JSON_OUTPUT_H_
