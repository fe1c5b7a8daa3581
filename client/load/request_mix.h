// The requests of a load, drawn at random from kinds of work.
#ifndef ATTEND_CLIENT_LOAD_REQUEST_MIX_H_
#define ATTEND_CLIENT_LOAD_REQUEST_MIX_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "client/load/work.h"
#include "core/base/attention_problem.h"

namespace attend::load {

// One request, small enough to keep for each call.
struct Draw {
  std::size_t work = 0;  // index of its kind
  std::int64_t query_len = 0;
  std::int64_t kv_len = 0;
  std::uint32_t variant = 0;  // which numbers it carries
};

// Random numbers of unit variance, made once: tensors are views into them that start at one of many
// places, the variants, so that an answer given to another caller's request is noticed.
class NumberPool {
 public:
  // Room for views of up to `elements`, of every variant. `mask`: one element in eight is -inf, or
  // of a kBool pool false.
  NumberPool(DType dtype, bool mask, std::int64_t elements, std::uint64_t seed);

  // The same for the same variant and shape. The shape must fit.
  TensorView View(std::uint32_t variant, Dims shape) const;

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

// Draws requests; the sequence depends on the seed alone. Thread-safety: Next for one thread; the
// rest is safe from any.
class RequestMix {
 public:
  // `works`: at least one. INVALID_ARGUMENT for a kind whose largest request has more than
  // `max_message_bytes` of tensors. Memory: the largest query, key and value of each dtype, and
  // the largest mask of each kind.
  static absl::StatusOr<RequestMix> Create(std::vector<Work> works, std::int64_t max_message_bytes,
                                           std::uint64_t seed);

  Draw Next();

  // What to send. Its views live as long as this object.
  AttentionArgs Args(const Draw& draw) const;

  const std::vector<Work>& works() const { return works_; }
  const Work& work(const Draw& draw) const { return works_[draw.work]; }
  // Query tokens of a request, over its items.
  std::int64_t Tokens(const Draw& draw) const { return work(draw).batch * draw.query_len; }

 private:
  RequestMix(std::vector<Work> works, std::uint64_t seed);

  std::vector<Work> works_;
  std::discrete_distribution<std::size_t> choose_;
  std::mt19937_64 random_;
  // Independent numbers for each: where queries were keys, scores would be large.
  std::map<DType, NumberPool> queries_;
  std::map<DType, NumberPool> keys_;
  std::map<DType, NumberPool> values_;
  std::map<DType, NumberPool> masks_;  // kBool and kFloat32
};

}  // namespace attend::load

#endif  // ATTEND_CLIENT_LOAD_REQUEST_MIX_H_
