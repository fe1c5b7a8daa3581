#include "server/rpc/attention_service.h"

#include <chrono>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>

#include "attend/v1/error.pb.h"
#include "core/base/reference.h"
#include "tests/unit/server/rpc/rpc_test_server.h"

namespace attend {
namespace {

using grpc::StatusCode;

class AttentionServiceTest : public RpcTest {};

// The first field that the details of a status blame.
std::string BlamedField(const grpc::Status& status) {
  v1::Error error;
  v1::BadRequest bad_request;
  if (!error.ParseFromString(status.error_details()) || error.details_size() == 0 ||
      !bad_request.ParseFromString(error.details(0).value()) ||
      bad_request.field_violations_size() == 0) {
    return "none";
  }
  return bad_request.field_violations(0).field();
}

TEST_F(AttentionServiceTest, AnswersWhatTheReferenceComputes) {
  Start();
  v1::AttendRequest request = Request(70);
  request.mutable_options()->set_causal(true);
  request.mutable_output()->set_lse(true);
  v1::AttendResponse response;
  const grpc::Status status = Attend(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();

  const Tensor input = TestRequest::RampTensor(70);
  AttentionArgs args;
  args.query = args.key = args.value = input.view();
  args.options.causal = true;
  const ReferenceResult expected = ReferenceAttention(*AttentionProblem::Create(args));
  ASSERT_EQ(response.output().data().size(), expected.output.size() * sizeof(float));
  const auto* output = reinterpret_cast<const std::byte*>(response.output().data().data());
  for (std::size_t i = 0; i < expected.output.size(); ++i) {
    EXPECT_NEAR(LoadUnaligned<float>(output + i * sizeof(float)), expected.output[i],
                2e-6 * expected.magnitude[i]);
  }
  ASSERT_EQ(response.lse().data().size(), 70 * sizeof(float));
  EXPECT_EQ(response.stats().server(), "test-server");
  EXPECT_EQ(response.stats().batch_size(), 1);
  EXPECT_EQ(response.stats().dot_products(), 70 * 71 / 2);
  EXPECT_EQ(response.stats().flops(), 2 * (4 + 4) * 70 * 71 / 2);
  EXPECT_EQ(Requests("OK"), "1");
}

TEST_F(AttentionServiceTest, BlamesTheFieldAndServesTheNextCall) {
  Start();
  v1::AttendRequest bad = Request();
  bad.mutable_key()->set_shape(2, -1);
  const grpc::Status wire = Attend(bad);
  EXPECT_EQ(wire.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(BlamedField(wire), "key.shape[2]");

  bad = Request();
  bad.mutable_options()->set_softcap(-1);
  const grpc::Status meaning = Attend(bad);
  EXPECT_EQ(meaning.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(BlamedField(meaning), "options.softcap");

  bad = Request();
  bad.mutable_timeout()->set_seconds(-1);
  EXPECT_EQ(BlamedField(Attend(bad)), "timeout");

  bad = Request();
  bad.set_priority(static_cast<v1::Priority>(9));
  EXPECT_EQ(BlamedField(Attend(bad)), "priority");

  EXPECT_TRUE(Attend(Request()).ok());
  EXPECT_EQ(Requests("INVALID_ARGUMENT"), "4");
}

TEST_F(AttentionServiceTest, LogsALineForEachCallAtDebugAlone) {
  Start();
  v1::AttendResponse response;
  ASSERT_TRUE(Attend(Request(), &response).ok());
  EXPECT_FALSE(Attend(v1::AttendRequest()).ok());
  EXPECT_THAT(log_.str(), testing::ContainsRegex(absl::StrCat(
                              "debug +Attend: OK, batch of 1, queue [0-9.]+ s, compute [0-9.]+ s, ",
                              response.stats().flops(),
                              " flops, [0-9]+ bytes received, "
                              "trace none\n")));
  EXPECT_THAT(log_.str(), testing::HasSubstr("Attend: INVALID_ARGUMENT, batch of 0, "));
  const std::string before = log_.str();
  logger_->set_level(spdlog::level::info);
  ASSERT_TRUE(Attend(Request()).ok());
  EXPECT_EQ(log_.str(), before);
}

TEST_F(AttentionServiceTest, LogsASampleAtInfo) {
  access_log_one_in_ = 1;
  Start();
  logger_->set_level(spdlog::level::info);
  ASSERT_TRUE(Attend(Request()).ok());
  EXPECT_THAT(log_.str(), testing::HasSubstr("Attend: OK, batch of 1, "));
}

TEST_F(AttentionServiceTest, AnswersAndLogsTheCallersTrace) {
  Start();
  constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
  grpc::ClientContext context;
  context.AddMetadata("traceparent", absl::StrCat("00-", kTrace, "-00f067aa0ba902b7-01"));
  v1::AttendResponse response;
  ASSERT_TRUE(stub_->Attend(&context, Request(), &response).ok());
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto answer = trailers.find("traceparent");
  ASSERT_NE(answer, trailers.end());
  const std::string value(answer->second.data(), answer->second.size());
  EXPECT_THAT(value, testing::MatchesRegex(absl::StrCat("00-", kTrace, "-[0-9a-f]{16}-01")));
  EXPECT_THAT(value, testing::Not(testing::HasSubstr("00f067aa0ba902b7")));
  EXPECT_THAT(log_.str(), testing::HasSubstr(absl::StrCat("trace ", kTrace, "\n")));
}

TEST_F(AttentionServiceTest, IgnoresATraceThatIsNone) {
  Start();
  grpc::ClientContext context;
  context.AddMetadata("traceparent", "not a trace");
  v1::AttendResponse response;
  ASSERT_TRUE(stub_->Attend(&context, Request(), &response).ok());
  EXPECT_EQ(context.GetServerTrailingMetadata().count("traceparent"), 0);
}

TEST_F(AttentionServiceTest, NamesWhatItDoesNotOffer) {
  Start();
  v1::AttendRequest request = Request();
  request.mutable_query()->mutable_shared_memory()->set_handle("h");
  const grpc::Status status = Attend(request);
  EXPECT_EQ(status.error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(BlamedField(status), "query.shared_memory");
  EXPECT_EQ(Requests("UNIMPLEMENTED"), "1");

  grpc::ClientContext estimate;
  v1::Cost cost;
  const grpc::Status no_estimate = stub_->Estimate(&estimate, Request(), &cost);
  EXPECT_EQ(no_estimate.error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(no_estimate.error_message(), testing::HasSubstr("Estimate is not offered"));
  EXPECT_EQ(Requests("UNIMPLEMENTED", "Estimate"), "1");
}

TEST_F(AttentionServiceTest, RefusesAnAnswerThatNoMessageCanHold) {
  Start({}, /*max_message_bytes=*/2000);
  v1::AttendRequest request = Request(30);
  request.mutable_output()->set_weights(true);
  const grpc::Status status = Attend(request);
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(BlamedField(status), "output.weights");
  request.mutable_output()->set_weights(false);
  EXPECT_TRUE(Attend(request).ok());
}

TEST_F(AttentionServiceTest, ReadsThePriorityOfTheMetadata) {
  Start();
  for (const auto& [value, code] :
       {std::pair("low", StatusCode::OK), std::pair("high", StatusCode::OK),
        std::pair("urgent", StatusCode::INVALID_ARGUMENT)}) {
    grpc::ClientContext context;
    context.AddMetadata("x-attend-priority", value);
    v1::AttendResponse response;
    const grpc::Status status = stub_->Attend(&context, Request(), &response);
    EXPECT_EQ(status.error_code(), code);
    EXPECT_EQ(BlamedField(status), status.ok() ? "none" : "x-attend-priority");
  }
}

TEST_F(AttentionServiceTest, TellsWhenToComeBackToAFullServer) {
  Start({.max_queued_requests = 1});
  Plug plug;
  Hold(plug);
  TestRequest waiting;
  std::unique_ptr<AttentionTask> task = waiting.Task(clock_);
  ASSERT_TRUE(scheduler_->Submit(task).ok());

  grpc::ClientContext context;
  v1::AttendResponse response;
  const grpc::Status status = stub_->Attend(&context, Request(), &response);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  v1::Error error;
  ASSERT_TRUE(error.ParseFromString(status.error_details()));
  ASSERT_EQ(error.details_size(), 1);
  EXPECT_EQ(error.details(0).type_url(), "type.googleapis.com/google.rpc.RetryInfo");
  v1::RetryInfo retry;
  ASSERT_TRUE(retry.ParseFromString(error.details(0).value()));
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto pushback = trailers.find("grpc-retry-pushback-ms");
  ASSERT_NE(pushback, trailers.end());
  EXPECT_EQ(std::string(pushback->second.data(), pushback->second.size()),
            std::to_string(retry.retry_delay().nanos() / 1'000'000));
  EXPECT_EQ(Requests("RESOURCE_EXHAUSTED"), "1");
  plug.LetGo();
  EXPECT_TRUE(waiting.status().ok());
}

TEST_F(AttentionServiceTest, HonoursTheTimeoutOfTheRequest) {
  Start();
  v1::AttendRequest request = Request();
  request.mutable_timeout()->set_nanos(1);
  EXPECT_EQ(Attend(request).error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(Requests("DEADLINE_EXCEEDED"), "1");
  request.mutable_timeout()->set_seconds(315'576'000'000);
  EXPECT_TRUE(Attend(request).ok());
}

TEST_F(AttentionServiceTest, DropsACallWhoseDeadlinePassesInTheQueue) {
  Start();
  Plug plug;
  Hold(plug);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  v1::AttendResponse response;
  EXPECT_EQ(stub_->Attend(&context, Request(), &response).error_code(),
            StatusCode::DEADLINE_EXCEEDED);
  WaitUntilPending(0);  // it leaves the queue though the plug is in
  plug.LetGo();
  Stop();
  // The server's own timer may see the call cancelled a moment before its deadline.
  EXPECT_EQ(Requests("OK"), "0");
  EXPECT_TRUE(Requests("DEADLINE_EXCEEDED") == "1" || Requests("CANCELLED") == "1");
  EXPECT_EQ(Metric("attend_in_flight_requests"), "0");
}

TEST_F(AttentionServiceTest, DropsACallWhoseCallerLeft) {
  Start();
  Plug plug;
  Hold(plug);
  grpc::ClientContext context;
  v1::AttendRequest request = Request();
  v1::AttendResponse response;
  std::promise<grpc::Status> answer;
  stub_->async()->Attend(&context, &request, &response,
                         [&answer](grpc::Status status) { answer.set_value(std::move(status)); });
  WaitUntilPending(1);
  context.TryCancel();
  EXPECT_EQ(answer.get_future().get().error_code(), StatusCode::CANCELLED);
  WaitUntilPending(0);
  plug.LetGo();
  Stop();
  EXPECT_EQ(Requests("CANCELLED"), "1");
}

TEST_F(AttentionServiceTest, RefusesCallsWhileItDrains) {
  Start();
  scheduler_->Shutdown(absl::InfiniteFuture());
  EXPECT_EQ(Attend(Request()).error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(Requests("UNAVAILABLE"), "1");
}

TEST_F(AttentionServiceTest, FinishesWaitingCallsWhenTheServerStops) {
  Start();
  Plug plug;
  Hold(plug);
  v1::AttendRequest request = Request();
  std::future<grpc::Status> answer =
      std::async(std::launch::async, [&] { return Attend(request); });
  WaitUntilPending(1);
  std::thread shutdown([this] { scheduler_->Shutdown(clock_.Now()); });
  EXPECT_EQ(answer.get().error_code(), StatusCode::UNAVAILABLE);
  plug.LetGo();
  shutdown.join();
}

TEST_F(AttentionServiceTest, TellsWhatItIs) {
  Start();
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(stub_->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.server(), "test-server");
  EXPECT_GT(info.options_size(), 0);
  EXPECT_EQ(Requests("OK", "GetServerInfo"), "1");
}

}  // namespace
}  // namespace attend
