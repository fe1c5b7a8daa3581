// A call of gRPC's for each attempt.
#ifndef ATTEND_CLIENT_CPP_UNARY_CARRIER_H_
#define ATTEND_CLIENT_CPP_UNARY_CARRIER_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <grpcpp/channel.h>
#include <memory>
#include <vector>

#include "attend/v1/attention.grpc.pb.h"
#include "client/cpp/carrier.h"

namespace attend::client_internal {

// Must outlive the attempts. Thread-safety: safe from any thread.
class UnaryCarrier final : public Carrier {
 public:
  // Spreads attempts over the channels.
  explicit UnaryCarrier(const std::vector<std::shared_ptr<grpc::Channel>>& channels);

  std::function<void()> Send(const std::shared_ptr<Attempt>& attempt) override;

 private:
  std::vector<std::unique_ptr<v1::AttentionService::Stub>> stubs_;
  std::atomic<std::size_t> next_{0};
};

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_UNARY_CARRIER_H_
