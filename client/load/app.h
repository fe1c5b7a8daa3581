// The `attend-load` command as a function.
#ifndef ATTEND_CLIENT_LOAD_APP_H_
#define ATTEND_CLIENT_LOAD_APP_H_

#include <atomic>
#include <ostream>

namespace attend::load {

struct AppStreams {
  std::ostream& out;
  std::ostream& err;
  bool show_progress = false;               // on `err`, on a line that is written over
  const std::atomic<bool>* stop = nullptr;  // once true, the run ends early, with its report
};

// Runs the command line and returns the exit code (see LoadHelp).
int Run(int argc, const char* const* argv, const AppStreams& streams);

}  // namespace attend::load

#endif  // ATTEND_CLIENT_LOAD_APP_H_
