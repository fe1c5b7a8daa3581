// How the calls of a load reach the server.
#ifndef ATTEND_CLIENT_LOAD_TRANSPORT_H_
#define ATTEND_CLIENT_LOAD_TRANSPORT_H_

#include <functional>
#include <memory>
#include <utility>

#include "client/cpp/client.h"

namespace attend::load {

// Thread-safety: as Client.
class Transport {
 public:
  virtual ~Transport() = default;

  // Starts a call without waiting, as Client::AttendAsync: `args` are read before it returns, and
  // `callback` runs exactly once, on another thread. What it returns gives the call up, from any
  // thread, and does nothing for a call that has finished.
  virtual std::function<void()> Send(const AttentionArgs& args, const CallOptions& options,
                                     Client::AttendCallback callback) = 0;
};

// Calls of a client: unary, over streams or through shared memory, as its options say.
class ClientTransport : public Transport {
 public:
  explicit ClientTransport(std::unique_ptr<Client> client) : client_(std::move(client)) {}

  std::function<void()> Send(const AttentionArgs& args, const CallOptions& options,
                             Client::AttendCallback callback) override {
    const CallHandle handle = client_->AttendAsync(args, std::move(callback), options);
    return [handle] { handle.Cancel(); };
  }

 private:
  std::unique_ptr<Client> client_;
};

}  // namespace attend::load

#endif  // ATTEND_CLIENT_LOAD_TRANSPORT_H_
