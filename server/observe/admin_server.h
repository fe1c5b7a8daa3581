// Operators' HTTP port: metrics, probes and status.
#ifndef ATTEND_SERVER_OBSERVE_ADMIN_SERVER_H_
#define ATTEND_SERVER_OBSERVE_ADMIN_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace attend {

// Called for each request, from any thread, also while the server is being constructed or
// destroyed.
struct AdminPages {
  std::function<std::string()> metrics;    // Prometheus' text format
  std::function<std::string()> not_ready;  // why traffic should stay away; empty = it may come
  std::function<std::string()> status;     // JSON
};

// GET (and HEAD) /metrics, /livez (200 while the process answers), /readyz (200 or 503 with the
// reason) and /statusz. 404 for other paths, 405 for other methods.
// Thread-safety: safe from any thread. Its threads are named attend-admin.
class AdminServer {
 public:
  // Listens on `address`, "host:port" or "[v6]:port"; port 0 takes a free one.
  // Errors: UNAVAILABLE, naming the address, where it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const std::string& address,
                                                            AdminPages pages);
  // Waits for requests that are being answered.
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  // That it listens on.
  int port() const;

 private:
  class Impl;
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend

#endif  // ATTEND_SERVER_OBSERVE_ADMIN_SERVER_H_
