// Asks the admin port of a server.
#ifndef ATTEND_TESTS_SUPPORT_HTTP_GET_H_
#define ATTEND_TESTS_SUPPORT_HTTP_GET_H_

#include <string>

namespace attend::testing {

struct HttpResponse {
  int status = 0;  // 0: no answer
  std::string head;
  std::string body;
};

// GET http://`address``path`, where `address` is "127.0.0.1:port".
HttpResponse HttpGet(const std::string& address, const std::string& path);

}  // namespace attend::testing

#endif  // ATTEND_TESTS_SUPPORT_HTTP_GET_H_
