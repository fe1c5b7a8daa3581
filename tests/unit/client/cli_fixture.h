// Runs the attend command inside the test's process.
#ifndef ATTEND_TESTS_UNIT_CLIENT_CLI_FIXTURE_H_
#define ATTEND_TESTS_UNIT_CLIENT_CLI_FIXTURE_H_

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "client/cli/app.h"
#include "tests/support/temp_folder.h"

namespace attend::cli {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;

  nlohmann::json json() const { return nlohmann::json::parse(out); }
  nlohmann::json error() const { return nlohmann::json::parse(err)["error"]; }
};

inline Outcome RunCommandLine(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"attend"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  std::ostringstream out;
  std::ostringstream err;
  const int code = Run(static_cast<int>(argv.size()), argv.data(), out, err);
  return {code, out.str(), err.str()};
}

// A folder of its own for each test.
class TempFolderTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.PathOf(name); }

 private:
  const attend::testing::TempFolder folder_;
};

}  // namespace attend::cli

#endif  // ATTEND_TESTS_UNIT_CLIENT_CLI_FIXTURE_H_
