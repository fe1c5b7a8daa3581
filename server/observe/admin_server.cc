#include "server/observe/admin_server.h"

#include <array>
#include <civetweb.h>
#include <sys/prctl.h>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace attend {
namespace {

constexpr unsigned kFeatureIpv6 = 8;  // of mg_check_feature

struct Page {
  int code = 200;
  const char* type = "text/plain; charset=utf-8";
  std::string body;
};

const char* ReasonPhrase(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

Page RenderPage(const AdminPages& pages, absl::string_view path) {
  if (path == "/metrics") return {200, "text/plain; version=0.0.4; charset=utf-8", pages.metrics()};
  if (path == "/statusz") return {200, "application/json", pages.status()};
  if (path == "/livez") return {.body = "ok\n"};
  if (path == "/readyz") {
    const std::string reason = pages.not_ready();
    if (reason.empty()) return {.body = "ok\n"};
    return {.code = 503, .body = absl::StrCat(reason, "\n")};
  }
  return {.code = 404, .body = "no such page; see /metrics, /livez, /readyz, /statusz\n"};
}

void SendPage(mg_connection* connection, const Page& page, bool with_body) {
  const std::string head = absl::StrCat(
      "HTTP/1.1 ", page.code, " ", ReasonPhrase(page.code), "\r\nContent-Type: ", page.type,
      "\r\nContent-Length: ", page.body.size(), page.code == 405 ? "\r\nAllow: GET, HEAD" : "",
      "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n");
  // A caller that went away is no error of ours.
  mg_write(connection, head.data(), head.size());
  if (with_body) mg_write(connection, page.body.data(), page.body.size());
}

// CivetWeb's request handler; the code that it returns goes to an access log that is off.
int HandleRequest(mg_connection* connection, void* pages) {
  const mg_request_info* const request = mg_get_request_info(connection);
  const absl::string_view method = request->request_method;
  Page page{.code = 405, .body = "only GET and HEAD\n"};
  if (method == "GET" || method == "HEAD") {
    page = RenderPage(*static_cast<const AdminPages*>(pages), request->local_uri);
  }
  SendPage(connection, page, method != "HEAD");
  return page.code;
}

void* NameThread(const mg_context*, int /*thread_type*/) {
  prctl(PR_SET_NAME, "attend-admin");
  return nullptr;
}

// CivetWeb would write to stderr past our log; what matters to an operator is returned by Start.
int DropMessage(const mg_connection*, const char*) { return 1; }

}  // namespace

class AdminServer::Impl {
 public:
  explicit Impl(AdminPages pages) : pages_(std::move(pages)) {}
  ~Impl() {
    if (context_ != nullptr) Stop();
  }

  absl::Status Start(const std::string& address) {
    if (absl::StartsWith(address, "[") && mg_check_feature(kFeatureIpv6) == 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address, ": the HTTP library was built without IPv6"));
    }
    // Features stay off: no TLS, CGI or Lua behind this port.
    static const unsigned features = mg_init_library(0);
    static_cast<void>(features);
    mg_callbacks callbacks{};
    callbacks.init_thread = NameThread;
    callbacks.log_message = DropMessage;
    // Many threads and a short patience, so that idle connections do not keep a probe waiting. No
    // document root: files are not served.
    std::array<const char*, 9> options = {
        "listening_ports",  address.c_str(), "num_threads", "16", "request_timeout_ms", "1000",
        "max_request_size", "16384",         nullptr};
    mg_init_data init{&callbacks, nullptr, options.data()};
    std::array<char, 256> text{};
    // By name: CivetWeb 1.15 and 1.16 differ in the other members, which may stay empty.
    mg_error_data error{};
    error.text = text.data();
    error.text_buffer_size = text.size();
    context_ = mg_start2(&init, &error);
    if (context_ == nullptr) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": ", text.data()));
    }
    mg_set_request_handler(context_, "**", HandleRequest, &pages_);
    host_ = address.substr(0, address.rfind(':'));
    return FindPort();
  }

  int port() const { return port_; }

 private:
  absl::Status FindPort() {
    mg_server_port port{};
    if (mg_get_server_ports(context_, 1, &port) != 1) {
      return absl::UnavailableError("cannot find the admin port");
    }
    port_ = port.port;
    return absl::OkStatus();
  }

  // CivetWeb's accepting thread sees that it should stop only when its poll of 2 s ends, so
  // connections end it until it has seen it.
  void Stop() {
    absl::Notification stopped;
    std::thread stopper([this, &stopped] {
      mg_stop(context_);
      stopped.Notify();
    });
    do {
      std::array<char, 64> ignored{};
      mg_connection* const wake_up =
          mg_connect_client(host_.c_str(), port_, 0, ignored.data(), ignored.size());
      if (wake_up != nullptr) mg_close_connection(wake_up);
    } while (!stopped.WaitForNotificationWithTimeout(absl::Milliseconds(5)));
    stopper.join();
  }

  AdminPages pages_;
  std::string host_;
  mg_context* context_ = nullptr;
  int port_ = 0;
};

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() = default;

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(const std::string& address,
                                                                AdminPages pages) {
  auto impl = std::make_unique<Impl>(std::move(pages));
  if (absl::Status status = impl->Start(address); !status.ok()) return status;
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

int AdminServer::port() const { return impl_->port(); }

}  // namespace attend
