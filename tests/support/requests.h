// Requests to send, and what they mean.
#ifndef ATTEND_TESTS_SUPPORT_REQUESTS_H_
#define ATTEND_TESTS_SUPPORT_REQUESTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "attend/v1/attention.pb.h"
#include "core/base/attention_problem.h"
#include "core/base/tensor.h"

namespace attend::testing {

v1::DataType ToProto(DType dtype);
// FLOAT32 for what is no type: tests send such on purpose.
DType FromProto(v1::DataType dtype);

// A message with the tensor's elements.
v1::Tensor ToProto(const Tensor& tensor);
// A view of the message's elements, which must be as many as its shape says.
TensorView ViewOf(const v1::Tensor& tensor);
// The elements of a message of a float type.
std::vector<float> FloatsOf(const v1::Tensor& tensor);

v1::Tensor FloatTensor(const Dims& shape, std::span<const float> values,
                       DType dtype = DType::kFloat32);
v1::Tensor BoolTensor(const Dims& shape, std::span<const int> values);
// Normally distributed elements of unit variance.
v1::Tensor RandomTensor(const Dims& shape, std::uint32_t seed, DType dtype = DType::kFloat32);

struct Sizes {
  std::int64_t batch = 2;
  std::int64_t query_heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t query_len = 3;
  std::int64_t kv_len = 5;
  std::int64_t head_dim = 8;
  std::int64_t value_dim = 6;
  DType dtype = DType::kFloat32;
};

// Random query, key and value in BATCH_HEADS_LENGTH, no options.
v1::AttendRequest RandomRequest(const Sizes& sizes = {}, std::uint32_t seed = 1);

// A valid request whose computation takes many seconds on any machine: long enough to be
// overtaken, cancelled or cut off, of only a few MiB.
v1::AttendRequest SlowRequest();

// The request as core knows it; its views point into `request`.
AttentionArgs ToArgs(const v1::AttendRequest& request);

// Expects the response to hold exactly what `request` asks for, in the right shapes and dtypes,
// within the bounds of design.md of the float64 reference.
void ExpectMatchesReference(const v1::AttendRequest& request, const v1::AttendResponse& response);

}  // namespace attend::testing

#endif  // ATTEND_TESTS_SUPPORT_REQUESTS_H_
