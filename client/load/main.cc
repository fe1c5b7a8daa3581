#include <atomic>
#include <csignal>
#include <iostream>
#include <unistd.h>

#include "client/load/app.h"
#include "core/base/freed_memory.h"

namespace {

std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // for the handler

// The first one ends the run with its report; a second one ends the program.
extern "C" void StopOnce(int signal) {
  stop = true;
  std::signal(signal, SIG_DFL);
}

}  // namespace

int main(int argc, char** argv) {
  attend::KeepFreedMemory();
  std::signal(SIGINT, StopOnce);
  std::signal(SIGTERM, StopOnce);
  return attend::load::Run(argc, argv,
                           {.out = std::cout,
                            .err = std::cerr,
                            .show_progress = isatty(STDERR_FILENO) == 1,
                            .stop = &stop});
}
