// A child process whose output is kept in a file.
#ifndef ATTEND_TESTS_SUPPORT_CHILD_PROCESS_H_
#define ATTEND_TESTS_SUPPORT_CHILD_PROCESS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "tests/support/temp_folder.h"
#include "tests/support/wait.h"

namespace attend::testing {

// Killed when the object or the test goes. Thread-safety: for one thread.
class ChildProcess {
 public:
  // Runs command[0] with the rest as arguments. `environment`: "NAME=value", on top of the test's
  // own, of which names that begin with ATTEND_ are not passed on.
  explicit ChildProcess(const std::vector<std::string>& command,
                        const std::vector<std::string>& environment = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool Running();
  void Signal(int signal);

  // The exit code, or 128 plus the signal that ended it; nothing if it still runs after `limit`.
  std::optional<int> WaitForExit(std::chrono::milliseconds limit = kPatience);

  std::string Stdout() const;
  std::string Stderr() const;

  // The largest resident set so far, in bytes; 0 if the process has gone.
  std::int64_t PeakResidentBytes() const;

 private:
  TempFolder folder_;
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

}  // namespace attend::testing

#endif  // ATTEND_TESTS_SUPPORT_CHILD_PROCESS_H_
