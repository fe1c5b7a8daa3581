// Answers of the real server: equal to the float64 reference, over TCP and a Unix socket.
#include <cmath>
#include <limits>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/calls.h"
#include "tests/support/requests.h"
#include "tests/support/server_process.h"

namespace attend::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class AttendTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = ServerProcess::Start(); }
  static void TearDownTestSuite() {
    if (server_ != nullptr) server_->StopAndExpectSuccess();
    server_.reset();
  }

  void SetUp() override {
    ASSERT_NE(server_, nullptr);
    stub_ = v1::AttentionService::NewStub(NewChannel(server_->tcp_target()));
  }

  v1::AttendResponse Answer(const v1::AttendRequest& request) {
    CallResult result = Attend(*stub_, request);
    EXPECT_TRUE(result.status.ok()) << result.status.error_message();
    return result.response;
  }

  void ExpectRight(const v1::AttendRequest& request) {
    ExpectMatchesReference(request, Answer(request));
  }

  static std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<v1::AttentionService::Stub> stub_;
};

std::unique_ptr<ServerProcess> AttendTest::server_;

// Asks for everything that a response may carry.
void AskForAll(v1::AttendRequest& request, v1::ScoreStage stage = v1::SCORE_STAGE_BIASED) {
  request.mutable_output()->set_lse(true);
  request.mutable_output()->set_weights(true);
  request.mutable_output()->set_scores(stage);
}

TEST_F(AttendTest, AnswersOverTcpAndUnixSocketAreTheReferenceAndEachOther) {
  v1::AttendRequest request = RandomRequest({.query_len = 70, .kv_len = 90, .head_dim = 33});
  AskForAll(request);
  const v1::AttendResponse over_tcp = Answer(request);
  ExpectMatchesReference(request, over_tcp);

  const auto unix_stub = v1::AttentionService::NewStub(NewChannel(server_->unix_target()));
  const CallResult over_unix = Attend(*unix_stub, request);
  ASSERT_TRUE(over_unix.status.ok()) << over_unix.status.error_message();
  EXPECT_EQ(over_unix.response.output().data(), over_tcp.output().data());
  EXPECT_EQ(over_unix.response.lse().data(), over_tcp.lse().data());
}

TEST_F(AttendTest, EveryDTypeAndOutputDType) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    ExpectRight(RandomRequest({.dtype = dtype}));
    for (const DType output : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      v1::AttendRequest request = RandomRequest({.kv_len = 40, .dtype = dtype});
      request.mutable_output()->set_dtype(ToProto(output));
      ExpectRight(request);
    }
  }
}

TEST_F(AttendTest, EveryScoreStage) {
  for (const v1::ScoreStage stage :
       {v1::SCORE_STAGE_SCALED, v1::SCORE_STAGE_CAPPED, v1::SCORE_STAGE_BIASED}) {
    v1::AttendRequest request = RandomRequest();
    request.mutable_options()->set_causal(true);
    AskForAll(request, stage);
    ExpectRight(request);
  }
}

TEST_F(AttendTest, BatchLengthHeadsLayout) {
  v1::AttendRequest request;
  request.set_layout(v1::LAYOUT_BATCH_LENGTH_HEADS);
  *request.mutable_query() = RandomTensor({2, 7, 4, 5}, 1);  // length differs from heads
  *request.mutable_key() = RandomTensor({2, 9, 2, 5}, 2);
  *request.mutable_value() = RandomTensor({2, 9, 2, 3}, 3);
  AskForAll(request);
  ExpectRight(request);
}

TEST_F(AttendTest, PackedLayoutOfUnequalItemsOfWhichOneIsEmpty) {
  v1::AttendRequest request;
  request.set_layout(v1::LAYOUT_PACKED);
  for (const int length : {3, 0, 5}) request.add_query_lengths(length);
  for (const int length : {4, 2, 1}) request.add_kv_lengths(length);
  *request.mutable_query() = RandomTensor({8, 4, 16}, 1);
  *request.mutable_key() = RandomTensor({7, 2, 16}, 2);
  *request.mutable_value() = RandomTensor({7, 2, 16}, 3);
  request.mutable_options()->set_causal(true);
  request.mutable_options()->set_alignment(v1::ALIGNMENT_LAST);
  request.mutable_output()->set_lse(true);
  ExpectRight(request);
}

TEST_F(AttendTest, LengthsOffsetsAndAlignments) {
  v1::AttendRequest request = RandomRequest({.query_len = 6, .kv_len = 9});
  request.mutable_options()->set_causal(true);
  AskForAll(request);
  for (const int length : {6, 2}) request.add_query_lengths(length);
  for (const int length : {0, 8}) request.add_kv_lengths(length);
  ExpectRight(request);
  request.mutable_options()->set_alignment(v1::ALIGNMENT_LAST);
  ExpectRight(request);
  request.mutable_options()->set_alignment(v1::ALIGNMENT_OFFSETS);
  for (const int offset : {-3, 4}) request.mutable_options()->add_query_offsets(offset);
  ExpectRight(request);
}

TEST_F(AttendTest, MasksOfEveryBroadcastShape) {
  for (const Dims& shape : {Dims{}, Dims{5}, Dims{1}, Dims{3, 5}, Dims{3, 1}, Dims{4, 1, 5},
                            Dims{2, 1, 3, 5}, Dims{2, 4, 3, 5}}) {
    v1::AttendRequest request = RandomRequest();
    *request.mutable_additive_mask() = RandomTensor(shape, 9);
    std::vector<int> bits;
    for (std::int64_t i = 0; i < *CheckedElementCount(shape, "mask"); ++i) {
      bits.push_back(i % 3 != 1);
    }
    *request.mutable_boolean_mask() = BoolTensor(shape, bits);
    AskForAll(request);
    ExpectRight(request);
  }
}

TEST_F(AttendTest, SharedKeysAndValues) {
  v1::AttendRequest request = RandomRequest({.batch = 3});
  *request.mutable_key() = RandomTensor({1, 2, 5, 8}, 5);
  *request.mutable_value() = RandomTensor({1, 2, 5, 6}, 6);
  ExpectRight(request);
}

TEST_F(AttendTest, ScaleZeroIsNotTheDefaultScale) {
  v1::AttendRequest request = RandomRequest();
  for (const float scale : {0.0f, -1.0f, 2.5f}) {
    request.mutable_options()->set_scale(scale);
    AskForAll(request);
    ExpectRight(request);
  }
}

TEST_F(AttendTest, EmptyRequestsAreAnswered) {
  ExpectRight(RandomRequest({.query_len = 0}));
  ExpectRight(RandomRequest({.batch = 0}));
  v1::AttendRequest request = RandomRequest({.kv_len = 0});
  request.mutable_output()->set_lse(true);
  const v1::AttendResponse response = Answer(request);
  EXPECT_THAT(FloatsOf(response.output()), Each(0.0f));
  EXPECT_THAT(FloatsOf(response.lse()), Each(-kInfinity));
}

TEST_F(AttendTest, ExcludedNaNsChangeNoBit) {
  v1::AttendRequest clean = RandomRequest({.batch = 1, .query_len = 4, .kv_len = 6});
  const std::vector<int> seen = {1, 0, 1, 1, 0, 1};
  *clean.mutable_boolean_mask() = BoolTensor({6}, seen);
  v1::AttendRequest poisoned = clean;
  for (v1::Tensor* tensor : {poisoned.mutable_key(), poisoned.mutable_value()}) {
    std::vector<float> values = FloatsOf(*tensor);
    const std::size_t dim = values.size() / (2 * 6);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (seen[i / dim % 6] == 0) values[i] = i % 2 == 0 ? kNaN : kInfinity;
    }
    *tensor = FloatTensor(Dims(tensor->shape().begin(), tensor->shape().end()), values);
  }
  EXPECT_EQ(Answer(poisoned).output().data(), Answer(clean).output().data());
}

TEST_F(AttendTest, VisibleNaNStaysInTheRowsThatSeeIt) {
  v1::AttendRequest request = RandomRequest(
      {.batch = 1, .query_heads = 1, .kv_heads = 1, .query_len = 3, .kv_len = 3, .value_dim = 1});
  std::vector<float> key = FloatsOf(request.key());
  key[8] = kNaN;  // in key 1
  *request.mutable_key() = FloatTensor({1, 1, 3, 8}, key);
  request.mutable_options()->set_causal(true);
  const std::vector<float> output = FloatsOf(Answer(request).output());
  EXPECT_FALSE(std::isnan(output[0]));
  EXPECT_TRUE(std::isnan(output[1]));
  EXPECT_TRUE(std::isnan(output[2]));
}

// The worked example of one causal step: scores 1, 1 and 2 before scaling.
TEST_F(AttendTest, WorkedExampleOfOneCausalStep) {
  const std::vector<float> query = {1, 1};
  const std::vector<float> key = {1, 0, 0, 1, 1, 1};
  v1::AttendRequest request;
  *request.mutable_query() = FloatTensor({1, 1, 1, 2}, query);
  *request.mutable_key() = FloatTensor({1, 1, 3, 2}, key);
  *request.mutable_value() = FloatTensor({1, 1, 3, 2}, key);
  AskForAll(request, v1::SCORE_STAGE_SCALED);
  v1::AttendResponse response = Answer(request);
  EXPECT_THAT(
      FloatsOf(response.weights()),
      ElementsAre(FloatNear(0.2483f, 5e-5f), FloatNear(0.2483f, 5e-5f), FloatNear(0.5035f, 5e-5f)));
  EXPECT_THAT(
      FloatsOf(response.scores()),
      ElementsAre(FloatNear(0.7071f, 5e-5f), FloatNear(0.7071f, 5e-5f), FloatNear(1.4142f, 5e-5f)));
  request.mutable_options()->set_scale(1);
  EXPECT_THAT(
      FloatsOf(Answer(request).weights()),
      ElementsAre(FloatNear(0.2119f, 5e-5f), FloatNear(0.2119f, 5e-5f), FloatNear(0.5761f, 5e-5f)));
}

// The worked example of the simplest self-attention: query, key and value are the tokens.
TEST_F(AttendTest, WorkedExampleOfSelfAttention) {
  const std::vector<float> tokens = {1, .5f, .2f, .8f, .3f, 1.2f, .6f, .4f, .9f, .1f, 1.1f, .7f};
  v1::AttendRequest request;
  for (v1::Tensor* tensor :
       {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
    *tensor = FloatTensor({1, 1, 3, 4}, tokens);
  }
  request.mutable_options()->set_scale(1);
  request.mutable_options()->set_causal(true);
  const std::vector<float> want = {1,        .5f,      .2f,      .8f,      .530719f, .969281f,
                                   .468160f, .531840f, .821989f, .393607f, .781143f, .673902f};
  EXPECT_THAT(FloatsOf(Answer(request).output()), ::testing::Pointwise(FloatNear(1e-6f), want));
}

TEST_F(AttendTest, MessagesOfMoreThan4MiBBothWays) {  // B1
  const v1::AttendRequest request = RandomRequest({.batch = 1,
                                                   .query_heads = 64,
                                                   .query_len = 300,
                                                   .kv_len = 64,
                                                   .head_dim = 64,
                                                   .value_dim = 64});
  ASSERT_GT(request.ByteSizeLong(), std::size_t{4} << 20);
  const v1::AttendResponse response = Answer(request);
  EXPECT_GT(response.ByteSizeLong(), std::size_t{4} << 20);
  ExpectMatchesReference(request, response);
}

TEST_F(AttendTest, AnswersDoNotDependOnWhatElseRuns) {
  std::vector<v1::AttendRequest> requests;
  std::vector<std::string> alone;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(RandomRequest({.query_len = 1 + 17 * i, .kv_len = 130 - i}, 10 + i));
    alone.push_back(Answer(requests.back()).output().data());
  }
  const auto channel = NewChannel(server_->tcp_target());
  for (int round = 0; round < 10; ++round) {
    std::vector<std::unique_ptr<RunningCall>> calls;
    for (const auto& request : requests) {
      calls.push_back(std::make_unique<RunningCall>(channel, request));
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const CallResult result = calls[i]->Wait();
      ASSERT_TRUE(result.status.ok()) << result.status.error_message();
      EXPECT_EQ(result.response.output().data(), alone[i]);
    }
  }
}

TEST_F(AttendTest, ServerInfoTellsLimitsAndOptions) {
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(stub_->GetServerInfo(&context, {}, &info).ok());
  EXPECT_FALSE(info.version().empty());
  EXPECT_FALSE(info.cpu_target().empty());
  EXPECT_GE(info.compute_threads(), 1);
  EXPECT_THAT(info.dtypes(),
              ElementsAre(v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_FLOAT16));
  EXPECT_THAT(info.options(),
              ::testing::IsSupersetOf({"scale", "causal", "alignment", "boolean_mask",
                                       "additive_mask", "lse", "weights", "scores"}));
  EXPECT_EQ(info.limits().max_message_bytes(), std::int64_t{256} << 20);
  EXPECT_EQ(info.limits().max_head_dim(), 1024);
  for (const std::int64_t limit :
       {info.limits().max_value_dim(), info.limits().max_heads(), info.limits().max_batch(),
        info.limits().max_length(), info.limits().max_score_elements(),
        info.limits().max_queued_requests(), info.limits().max_streams_per_connection(),
        info.limits().max_queued_bytes(), info.limits().max_skeleton_bytes(),
        info.limits().max_stream_requests()}) {
    EXPECT_GT(limit, 0);
  }
}

}  // namespace
}  // namespace attend::testing
