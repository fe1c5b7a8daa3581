// The attend command against the real server.
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/npy.h"
#include "tests/support/server_process.h"
#include "tests/unit/client/cli_fixture.h"

namespace attend::cli {
namespace {

class CliTest : public TempFolderTest {
 protected:
  void SetUp() override {
    server_ = attend::testing::ServerProcess::Start();
    ASSERT_NE(server_, nullptr);
  }
  void TearDown() override {
    if (server_ != nullptr) server_->StopAndExpectSuccess();
  }

  // [1, 2, 200, 32], of its own numbers.
  std::string RandomFile(const std::string& name, std::uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(2 * 200 * 32);
    for (float& value : values) value = normal(random);
    const Tensor tensor = Tensor::FromFloats(DType::kFloat32, {1, 2, 200, 32}, values);
    EXPECT_TRUE(WriteNpy(Path(name), tensor.view()).ok());
    return Path(name);
  }
  Outcome Sdpa(const std::vector<std::string>& flags) const {
    std::vector<std::string> arguments = {"sdpa",
                                          "--server",
                                          server_->tcp_target(),
                                          "--check",
                                          "--json",
                                          "--query",
                                          RandomFile("q.npy", 1),
                                          "--key",
                                          RandomFile("k.npy", 2),
                                          "--value",
                                          RandomFile("v.npy", 3)};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunCommandLine(arguments);
  }

  std::unique_ptr<attend::testing::ServerProcess> server_;
};

// 200 queries and keys are 4 blocks of 64 and 2 of 128.
TEST_F(CliTest, SwitchesBlocksOff) {
  const std::vector<std::byte> blocks = {std::byte{1}, std::byte{0}, std::byte{0}, std::byte{1},
                                         std::byte{1}, std::byte{1}, std::byte{0}, std::byte{0}};
  ASSERT_TRUE(
      WriteNpy(Path("blocks.npy"), TensorView::Dense(DType::kBool, {4, 2}, blocks.data())).ok());
  const Outcome outcome = Sdpa(
      {"--block-mask", Path("blocks.npy"), "--query-block-size", "64", "--key-block-size", "128"});
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_TRUE(outcome.json()["check"]["passed"]);
  // 64 queries see 128 keys, 64 see 72, 64 see 200, and the last 8 none.
  EXPECT_EQ(outcome.json()["stats"]["dot_products"], 2 * 64 * (128 + 72 + 200));
}

TEST_F(CliTest, NamesTheFlagOfWhatIsRefused) {
  const Outcome size = Sdpa({"--block-mask", RandomFile("wrong.npy", 4)});
  EXPECT_EQ(size.code, 4);
  EXPECT_EQ(size.error()["fields"][0]["given_by"], "--block-mask " + Path("wrong.npy"));
  const Outcome window = Sdpa({"--window-left", "-3"});
  EXPECT_EQ(window.error()["fields"][0]["field"], "options.window_left");
  EXPECT_EQ(window.error()["fields"][0]["given_by"], "--window-left -3");
}

}  // namespace
}  // namespace attend::cli
