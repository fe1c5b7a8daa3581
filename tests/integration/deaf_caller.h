// A caller of Attend that opens no window for its answer, as no gRPC library lets one be.
#ifndef ATTEND_TESTS_INTEGRATION_DEAF_CALLER_H_
#define ATTEND_TESTS_INTEGRATION_DEAF_CALLER_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace attend::testing {

// Speaks bare HTTP/2 over one connection: its settings give the server no room to send data in.
class DeafCaller {
 public:
  // `target`: "127.0.0.1:port".
  explicit DeafCaller(const std::string& target);
  ~DeafCaller();
  DeafCaller(const DeafCaller&) = delete;
  DeafCaller& operator=(const DeafCaller&) = delete;

  // Calls with a request message of less than 16 KiB. To be called once.
  void Call(const std::string& message);

  // Waits until the server has reset the call. False where the connection ends before.
  bool WaitForReset();

 private:
  void Send(const std::string& bytes) const;
  bool Receive(std::size_t size, std::string& bytes) const;

  int socket_ = -1;
};

}  // namespace attend::testing

#endif  // ATTEND_TESTS_INTEGRATION_DEAF_CALLER_H_
