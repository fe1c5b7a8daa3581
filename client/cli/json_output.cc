#include "client/cli/json_output.h"

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

namespace attend::cli {

namespace {

double Seconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Json ToJson(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json ToJson(std::span<const float> values) {
  Json array = Json::array();
  for (const float value : values) array.push_back(ToJson(value));
  return array;
}

Json ToJson(const Tensor& tensor) {
  return {{"dtype", std::string(Name(tensor.dtype))},
          {"shape", std::vector<std::int64_t>(tensor.shape.begin(), tensor.shape.end())},
          {"data", ToJson(tensor.ToFloats())}};
}

Json ToJson(const AttendStats& stats) {
  return {{"queue_seconds", Seconds(stats.queue)},
          {"compute_seconds", Seconds(stats.compute)},
          {"batch_size", stats.batch_size},
          {"dot_products", stats.dot_products},
          {"flops", stats.flops},
          {"server", stats.server}};
}

}  // namespace attend::cli
