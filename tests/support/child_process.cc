#include "tests/support/child_process.h"

#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace attend::testing {

namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(const std::vector<std::string>& added) {
  std::vector<std::string> environment = added;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (text.rfind("ATTEND_", 0) != 0) environment.push_back(text);
  }
  return environment;
}

int OpenForWriting(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command,
                           const std::vector<std::string>& environment) {
  const int out = OpenForWriting(folder_.PathOf("stdout"));
  const int err = OpenForWriting(folder_.PathOf("stderr"));
  const std::vector<std::string> variables = Environment(environment);
  const std::vector<char*> argv = Pointers(command);
  const std::vector<char*> envp = Pointers(variables);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    // Only async-signal-safe calls from here on.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(out);
  close(err);
  if (pid_ < 0) std::abort();
}

ChildProcess::~ChildProcess() {
  if (!Running()) return;
  kill(pid_, SIGKILL);
  WaitForExit();
}

bool ChildProcess::Running() {
  if (exit_code_.has_value()) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return false;
}

void ChildProcess::Signal(int signal) {
  if (Running()) kill(pid_, signal);
}

std::optional<int> ChildProcess::WaitForExit(std::chrono::milliseconds limit) {
  WaitUntil([this] { return !Running(); }, limit);
  return exit_code_;
}

std::string ChildProcess::Stdout() const { return ReadText(folder_.PathOf("stdout")); }

std::string ChildProcess::Stderr() const { return ReadText(folder_.PathOf("stderr")); }

std::int64_t ChildProcess::PeakResidentBytes() const {
  const std::string status = ReadText("/proc/" + std::to_string(pid_) + "/status");
  const std::string key = "VmHWM:";
  const std::size_t found = status.find(key);
  if (found == std::string::npos) return 0;
  return std::strtoll(status.c_str() + found + key.size(), nullptr, 10) * 1024;
}

}  // namespace attend::testing
