#include "server/process/ready_file.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

#include "tests/support/temp_folder.h"

namespace attend {
namespace {

using ::testing::HasSubstr;

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::size_t FilesIn(const std::string& folder) {
  const std::filesystem::directory_iterator files(folder);
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

class ReadyFileTest : public ::testing::Test {
 protected:
  const testing::TempFolder folder_;
  const std::string path_ = folder_.PathOf("ready.json");
};

TEST_F(ReadyFileTest, ExistsFromWriteToTheEnd) {
  {
    ReadyFile file(path_);
    EXPECT_FALSE(std::filesystem::exists(path_));
    ASSERT_TRUE(file.Write("text").ok());
    EXPECT_EQ(Read(path_), "text");
    EXPECT_EQ(FilesIn(std::filesystem::path(path_).parent_path()), 1u);  // no draft is left
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ReadyFileTest, RemovesWhatAnEarlierServerLeft) {
  std::ofstream(path_) << "stale";
  ReadyFile file(path_);
  file.RemoveStale();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ReadyFileTest, LeavesAFileThatItNeverWrote) {
  std::ofstream(path_) << "of another server";
  {
    ReadyFile file(path_);
    file.Remove();
  }
  EXPECT_EQ(Read(path_), "of another server");
}

TEST_F(ReadyFileTest, NamesAPathThatCannotBeWritten) {
  ReadyFile file(folder_.PathOf("missing/ready.json"));
  const absl::Status status = file.Write("text");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("missing/ready.json"));
}

TEST_F(ReadyFileTest, EmptyPathMeansNoFile) {
  ReadyFile file("");
  EXPECT_TRUE(file.Write("text").ok());
}

}  // namespace
}  // namespace attend
