// Runs the attend command inside the test's process.
#ifndef ATTEND_TESTS_UNIT_CLIENT_CLI_FIXTURE_H_
#define ATTEND_TESTS_UNIT_CLIENT_CLI_FIXTURE_H_

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "client/cli/app.h"

namespace attend::cli {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;

  nlohmann::json json() const { return nlohmann::json::parse(out); }
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
  TempFolderTest() : path_(testing::TempDir() + "attend-cli-XXXXXX") {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~TempFolderTest() override { std::filesystem::remove_all(path_); }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace attend::cli

#endif  // ATTEND_TESTS_UNIT_CLIENT_CLI_FIXTURE_H_
