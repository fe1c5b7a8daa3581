// What is wrong with a command line, in words that help.
#ifndef ATTEND_CLIENT_CLI_USAGE_ERROR_H_
#define ATTEND_CLIENT_CLI_USAGE_ERROR_H_

#include <CLI/CLI.hpp>
#include <string>

namespace attend::cli {

// One line: what the program that CLI11 parsed for stumbled over, what was meant perhaps, and where
// to read more.
std::string UsageErrorText(const CLI::App& app, const CLI::ParseError& error);

}  // namespace attend::cli

#endif  // ATTEND_CLIENT_CLI_USAGE_ERROR_H_
