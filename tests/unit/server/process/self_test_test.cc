#include "server/process/self_test.h"

#include <gtest/gtest.h>

namespace attend {
namespace {

TEST(SelfTestTest, PassesForEveryNumberOfThreads) {
  for (const int threads : {1, 2}) {
    Executor executor(ExecutorOptions{.threads = threads});
    BufferPool memory;
    AttentionEngine engine(executor, memory);
    const absl::Status status = RunSelfTest(engine, executor);
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace attend
