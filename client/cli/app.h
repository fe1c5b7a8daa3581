// The `attend` command as a function.
#ifndef ATTEND_CLIENT_CLI_APP_H_
#define ATTEND_CLIENT_CLI_APP_H_

#include <ostream>

namespace attend::cli {

// Runs the command line and returns the exit code (context.h). Results go to `out`, errors to
// `err`.
int Run(int argc, const char* const* argv, std::ostream& out, std::ostream& err);

}  // namespace attend::cli

#endif  // ATTEND_CLIENT_CLI_APP_H_
