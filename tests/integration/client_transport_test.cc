// The C++ client over streams and through shared memory, with the real server.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <signal.h>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "client/cpp/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/requests.h"
#include "tests/support/server_fixture.h"

namespace attend::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr char kRegions[] = "attend_shared_memory_regions";
constexpr char kInFlight[] = "attend_in_flight_requests";

struct Way {
  const char* name;
  bool stream;
  bool shared;
};

std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }

ClientOptions OptionsFor(const Way& way, const std::string& target) {
  ClientOptions options{.target = target, .use_stream = way.stream};
  if (way.shared) options.shared_memory_bytes = 4 << 20;
  return options;
}

// A request that may be sent again and again, and what it must be answered with.
struct Question {
  v1::AttendRequest request;
  AttentionArgs args;
  std::optional<AttendResult> right;

  void Make(const v1::AttendRequest& made) {
    request = made;
    args = ToArgs(request);
  }
};

void ExpectSameBits(const AttendResult& a, const AttendResult& b) {
  EXPECT_EQ(a.output.shape, b.output.shape);
  EXPECT_EQ(a.output.dtype, b.output.dtype);
  EXPECT_EQ(a.output.data, b.output.data);
  const auto expect_same = [](const std::optional<Tensor>& x, const std::optional<Tensor>& y) {
    ASSERT_EQ(x.has_value(), y.has_value());
    if (!x.has_value()) return;
    EXPECT_EQ(x->shape, y->shape);
    EXPECT_EQ(x->data, y->data);
  };
  expect_same(a.lse, b.lse);
  expect_same(a.weights, b.weights);
  expect_same(a.scores, b.scores);
}

class ClientTransportTest : public ServerTest, public ::testing::WithParamInterface<Way> {
 protected:
  void Start(std::vector<std::string> arguments = {}) {
    arguments.push_back("--shared-memory");
    StartServer(arguments);
    plain_ = Connect({.target = server_->unix_target()});
    client_ = Connect(OptionsFor(GetParam(), server_->unix_target()));
  }

  static std::unique_ptr<Client> Connect(const ClientOptions& options) {
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  void TearDown() override {
    client_ = nullptr;
    plain_ = nullptr;
    if (server_ != nullptr && GetParam().shared) {
      EXPECT_TRUE(WaitForMetric(kRegions, 0));
    }
    ServerTest::TearDown();
  }

  // Questions of all sizes, from none that goes into shared memory to ones that fill much of it.
  std::vector<std::unique_ptr<Question>> Questions() {
    std::vector<std::unique_ptr<Question>> questions;
    for (int i = 0; i < 12; ++i) {
      const Sizes sizes = {.query_len = 1 + 13 * i,
                           .kv_len = i % 4 == 0 ? 900 : 2 + 31 * i,
                           .head_dim = 32,
                           .value_dim = 24,
                           .dtype = static_cast<DType>(i % 3)};
      questions.push_back(std::make_unique<Question>());
      Question& question = *questions.back();
      v1::AttendRequest request = RandomRequest(sizes, 1 + i);
      request.mutable_output()->set_lse(i % 2 == 0);
      if (i % 5 == 1) {
        *request.mutable_additive_mask() = RandomTensor({sizes.query_len, sizes.kv_len}, 99);
      }
      question.Make(request);
      const absl::StatusOr<AttendResult> right = plain_->Attend(question.args);
      EXPECT_TRUE(right.ok()) << right.status();
      if (right.ok()) question.right = *right;
    }
    return questions;
  }

  std::unique_ptr<Client> plain_;
  std::unique_ptr<Client> client_;
};

INSTANTIATE_TEST_SUITE_P(All, ClientTransportTest,
                         ::testing::Values(Way{"Stream", true, false},
                                           Way{"SharedMemory", false, true},
                                           Way{"StreamAndSharedMemory", true, true}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(ClientTransportTest, AnswersHaveTheBitsOfPlainCalls) {
  Start();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    Question question;
    v1::AttendRequest request = RandomRequest(
        {.query_len = 70, .kv_len = 90, .head_dim = 64, .value_dim = 32, .dtype = dtype});
    *request.mutable_additive_mask() = RandomTensor({70, 90}, 5);
    *request.mutable_boolean_mask() = BoolTensor({70, 90}, std::vector<int>(70 * 90, 1));
    request.mutable_output()->set_lse(true);
    request.mutable_output()->set_weights(true);
    request.mutable_output()->set_scores(v1::SCORE_STAGE_BIASED);
    request.mutable_output()->set_dtype(v1::DATA_TYPE_FLOAT32);
    question.Make(request);
    const absl::StatusOr<AttendResult> expected = plain_->Attend(question.args);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const absl::StatusOr<AttendResult> result = client_->Attend(question.args);
    ASSERT_TRUE(result.ok()) << result.status();
    ExpectSameBits(*result, *expected);
  }
  EXPECT_EQ(server_->Metric(kRegions), GetParam().shared ? 1 : 0);
  EXPECT_EQ(server_->Metric("attend_open_streams"), GetParam().stream ? 1 : 0);
}

// More than the shared memory has room for: what finds none is sent whole.
TEST_P(ClientTransportTest, AThousandCallsInFlightAreAnsweredRight) {
  Start({"--max-queued-requests", "2000"});
  const auto questions = Questions();
  constexpr int kCalls = 1000;
  absl::BlockingCounter answered(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    const Question& question = *questions[i % questions.size()];
    client_->AttendAsync(question.args, [&](absl::StatusOr<AttendResult> result) {
      EXPECT_TRUE(result.ok()) << result.status();
      if (result.ok()) ExpectSameBits(*result, *question.right);
      answered.DecrementCount();
    });
  }
  answered.Wait();
}

// What was given up must not reach the memory of what comes after it.
TEST_P(ClientTransportTest, CallsThatAreGivenUpSpoilNoOther) {
  Start();
  const auto questions = Questions();
  Question slow;
  slow.Make(SlowRequest());
  std::vector<std::thread> callers;
  for (int t = 0; t < 3; ++t) {
    callers.emplace_back([&, t] {
      std::mt19937 random(static_cast<std::uint32_t>(t));
      for (int i = 0; i < 60; ++i) {
        const Question& question = *questions[random() % questions.size()];
        const CallHandle handle = client_->AttendAsync(
            i % 20 == 0 ? slow.args : question.args, [](const absl::StatusOr<AttendResult>&) {},
            {.timeout = milliseconds(1 + random() % 20)});
        if (i % 3 == 0) handle.Cancel();
        const absl::StatusOr<AttendResult> result = client_->Attend(question.args);
        ASSERT_TRUE(result.ok()) << result.status();
        ExpectSameBits(*result, *question.right);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(WaitForMetric(kInFlight, 0));
}

TEST_P(ClientTransportTest, CancelAndTimeoutReachTheServer) {
  Start();
  Question slow;
  slow.Make(SlowRequest());
  absl::Notification ended;
  absl::Status status;
  const CallHandle handle =
      client_->AttendAsync(slow.args, [&](const absl::StatusOr<AttendResult>& result) {
        status = result.status();
        ended.Notify();
      });
  ASSERT_TRUE(WaitForMetric(kInFlight, 1));
  handle.Cancel();
  ended.WaitForNotification();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_TRUE(WaitForMetric(kInFlight, 0));
  EXPECT_EQ(client_->Attend(slow.args, {.timeout = milliseconds(50)}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(WaitForMetric(kInFlight, 0));
}

TEST_P(ClientTransportTest, ErrorsNameTheirFields) {
  Start();
  Question wrong;
  wrong.Make(RandomRequest({.kv_len = 2000}));
  wrong.args.options.softcap = -1;
  const absl::Status status = client_->Attend(wrong.args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(GetFieldViolations(status).size(), 1u) << status;
  EXPECT_EQ(GetFieldViolations(status)[0].field, "options.softcap");
}

TEST_P(ClientTransportTest, GoesOnWithAServerThatWasKilledAndStartedAgain) {
  Start();
  const auto questions = Questions();
  const std::string target = server_->unix_target();
  ASSERT_TRUE(client_->Attend(questions[0]->args).ok());
  std::atomic<bool> stop{false};
  std::atomic<int> answered{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 2; ++t) {
    callers.emplace_back([&, t] {
      for (std::size_t i = static_cast<std::size_t>(t); !stop; ++i) {
        const Question& question = *questions[i % questions.size()];
        const absl::StatusOr<AttendResult> result =
            client_->Attend(question.args, {.wait_for_ready = true});
        // A server that goes without a word can take several attempts with it.
        EXPECT_TRUE(result.ok() || absl::IsUnavailable(result.status())) << result.status();
        if (!result.ok()) continue;
        ExpectSameBits(*result, *question.right);
        ++answered;
      }
    });
  }
  ASSERT_TRUE(WaitUntil([&] { return answered > 20; }));
  server_->process().Signal(SIGKILL);
  server_->process().WaitForExit();
  const int before = answered;
  const auto successor = ServerProcess::Start({"--shared-memory", "--listen", target});
  ASSERT_NE(successor, nullptr);
  EXPECT_TRUE(WaitUntil([&] { return answered > before + 20; }));
  stop = true;
  for (std::thread& caller : callers) caller.join();
  if (GetParam().shared) {
    EXPECT_EQ(successor->Metric(kRegions), 1);
  }
  client_ = nullptr;
  plain_ = nullptr;
  channel_ = nullptr;
  stub_ = nullptr;
  server_ = nullptr;
  successor->StopAndExpectSuccess();
}

TEST_P(ClientTransportTest, DestructionEndsWhatIsInFlight) {
  Start();
  Question slow;
  slow.Make(SlowRequest());
  std::atomic<int> cancelled{0};
  for (int i = 0; i < 3; ++i) {
    client_->AttendAsync(slow.args, [&](const absl::StatusOr<AttendResult>& result) {
      if (absl::IsCancelled(result.status())) ++cancelled;
    });
  }
  ASSERT_TRUE(WaitForMetric(kInFlight, 3));
  client_ = nullptr;
  EXPECT_EQ(cancelled, 3);
  EXPECT_TRUE(WaitForMetric(kInFlight, 0));
}

// The last thing that holds the channel must not be a thread of gRPC's.
TEST_P(ClientTransportTest, ClientsGoAsSoonAsTheirLastCallHasEnded) {
  Start();
  const auto questions = Questions();
  for (int i = 0; i < 20; ++i) {
    const auto client = Connect(OptionsFor(GetParam(), server_->unix_target()));
    absl::BlockingCounter answered(4);
    for (int call = 0; call < 4; ++call) {
      client->AttendAsync(questions[static_cast<std::size_t>(call)]->args,
                          [&answered](const absl::StatusOr<AttendResult>& result) {
                            EXPECT_TRUE(result.ok()) << result.status();
                            answered.DecrementCount();
                          });
    }
    answered.Wait();
  }
}

class ClientSharedMemoryTest : public ServerTest {};

TEST_F(ClientSharedMemoryTest, SaysThatTheServerDoesNotOfferIt) {
  StartServer();
  Question question;
  question.Make(RandomRequest({.kv_len = 2000}));
  const auto client =
      *Client::Create({.target = server_->unix_target(), .shared_memory_bytes = 1 << 20});
  const absl::Status status = client->Attend(question.args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("start it with --shared-memory"));
  // What is too small for it never asks for it.
  question.Make(RandomRequest());
  EXPECT_TRUE(client->Attend(question.args).ok());
}

TEST_F(ClientSharedMemoryTest, MovesWhatNoMessageMayHold) {
  StartServer({"--shared-memory"});
  Question question;
  question.Make(RandomRequest({.query_len = 500, .kv_len = 500, .head_dim = 64, .value_dim = 64}));
  ClientOptions options{.target = server_->unix_target(), .max_message_bytes = 10'000};
  EXPECT_EQ((*Client::Create(options))->Attend(question.args).status().code(),
            absl::StatusCode::kResourceExhausted);
  options.shared_memory_bytes = 16 << 20;
  const absl::StatusOr<AttendResult> result = (*Client::Create(options))->Attend(question.args);
  EXPECT_TRUE(result.ok()) << result.status();
}

}  // namespace
}  // namespace attend::testing
