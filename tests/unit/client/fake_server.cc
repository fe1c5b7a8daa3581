#include "tests/unit/client/fake_server.h"

#include <grpcpp/health_check_service_interface.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "attend/v1/error.pb.h"
#include "core/base/reference.h"
#include "core/base/status.h"
#include "tests/support/requests.h"

namespace attend {

namespace {

constexpr const char* kServiceName = "attend.v1.AttentionService";

void Store(const std::vector<double>& values, const Dims& shape, DType dtype, v1::Tensor* tensor) {
  const std::vector<float> floats(values.begin(), values.end());
  *tensor = testing::ToProto(Tensor::FromFloats(dtype, shape, floats));
}

// As the real server puts an error into the trailers.
grpc::Status ToGrpc(const absl::Status& status) {
  v1::Error error;
  error.set_code(static_cast<int>(status.code()));
  error.set_message(std::string(status.message()));
  if (const auto violation = GetFieldViolation(status)) {
    v1::BadRequest bad_request;
    auto* field = bad_request.add_field_violations();
    field->set_field(violation->field);
    field->set_description(violation->description);
    auto* detail = error.add_details();
    detail->set_type_url("type.googleapis.com/google.rpc.BadRequest");
    detail->set_value(bad_request.SerializeAsString());
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      error.SerializeAsString());
}

grpc::Status Compute(const v1::AttendRequest& request, v1::AttendResponse* response) {
  const absl::StatusOr<AttentionProblem> problem =
      AttentionProblem::Create(testing::ToArgs(request));
  if (!problem.ok()) return ToGrpc(problem.status());
  const ReferenceResult result = ReferenceAttention(*problem);
  Store(result.output, problem->output_shape(), problem->output_dtype(),
        response->mutable_output());
  if (problem->wants_lse()) {
    Store(result.lse, problem->lse_shape(), DType::kFloat32, response->mutable_lse());
  }
  if (problem->wants_weights()) {
    Store(result.weights, problem->score_shape(), DType::kFloat32, response->mutable_weights());
  }
  if (problem->score_stage() != ScoreStage::kNone) {
    Store(result.scores, problem->score_shape(), DType::kFloat32, response->mutable_scores());
  }
  response->mutable_stats()->mutable_queue()->set_nanos(1500);
  response->mutable_stats()->mutable_compute()->set_nanos(2'000'000);
  response->mutable_stats()->set_batch_size(1);
  response->mutable_stats()->set_dot_products(problem->dot_products());
  response->mutable_stats()->set_flops(problem->flops());
  response->mutable_stats()->set_server("fake");
  return grpc::Status::OK;
}

// Ends only when the caller gives up.
class HeldCall final : public grpc::ServerUnaryReactor {
 public:
  void OnCancel() override { Finish(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }
};

}  // namespace

FakeService::~FakeService() {
  absl::MutexLock lock(&mutex_);
  const auto gone = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return streams_.empty(); };
  mutex_.Await(absl::Condition(&gone));
}

void FakeService::FailNext(int count, grpc::Status status,
                           std::vector<std::pair<std::string, std::string>> trailers) {
  absl::MutexLock lock(&mutex_);
  failures_left_ = count;
  failure_ = std::move(status);
  trailers_ = std::move(trailers);
}

void FakeService::HoldCalls() {
  absl::MutexLock lock(&mutex_);
  hold_ = true;
}

void FakeService::StopHolding() {
  absl::MutexLock lock(&mutex_);
  hold_ = false;
}

void FakeService::EndStreams(const grpc::Status& status) {
  absl::MutexLock lock(&mutex_);
  for (FakeStream* stream : streams_) stream->End(status);
}

void FakeService::RefuseStreams(const grpc::Status& status) {
  absl::MutexLock lock(&mutex_);
  refusal_ = status;
}

void FakeService::AnswerZeros(std::int64_t count) {
  v1::AttendResponse response;
  response.mutable_output()->set_dtype(v1::DATA_TYPE_FLOAT32);
  response.mutable_output()->add_shape(count);
  response.mutable_output()->set_data(std::string(static_cast<std::size_t>(count) * 4, '\0'));
  Answer(std::move(response));
}

void FakeService::Answer(v1::AttendResponse response) {
  absl::MutexLock lock(&mutex_);
  answer_ = std::make_unique<v1::AttendResponse>(std::move(response));
}

int FakeService::attempts() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(requests_.size());
}

int FakeService::streams() const {
  absl::MutexLock lock(&mutex_);
  return num_streams_;
}

int FakeService::peers() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(peers_.size());
}

std::vector<v1::AttendRequest> FakeService::requests() const {
  absl::MutexLock lock(&mutex_);
  return requests_;
}

std::string FakeService::metadata(const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, value] : metadata_) {
    if (key == name) return value;
  }
  return "";
}

void FakeService::WaitUntilHeld(int count) {
  absl::MutexLock lock(&mutex_);
  const auto reached = [this, count]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return held_ >= count; };
  mutex_.Await(absl::Condition(&reached));
}

void FakeService::WaitUntilCancelled(int count) {
  absl::MutexLock lock(&mutex_);
  const auto reached = [this, count]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return cancelled_ >= count; };
  mutex_.Await(absl::Condition(&reached));
}

void FakeService::Record(const grpc::CallbackServerContext& context,
                         const v1::AttendRequest& request) {
  v1::AttendRequest recorded = request;
  recorded.mutable_query()->clear_data();
  recorded.mutable_key()->clear_data();
  recorded.mutable_value()->clear_data();
  requests_.push_back(std::move(recorded));
  peers_.insert(context.peer());
  metadata_.clear();
  for (const auto& [name, value] : context.client_metadata()) {
    metadata_.emplace_back(std::string(name.data(), name.size()),
                           std::string(value.data(), value.size()));
  }
}

std::optional<grpc::Status> FakeService::Decide(const v1::AttendRequest& request,
                                                v1::AttendResponse* response) {
  if (hold_) {
    ++held_;
    return std::nullopt;
  }
  if (failures_left_ > 0) {
    --failures_left_;
    return failure_;
  }
  if (answer_ != nullptr) {
    *response = *answer_;
    return grpc::Status::OK;
  }
  return Compute(request, response);
}

grpc::ServerUnaryReactor* FakeService::Attend(grpc::CallbackServerContext* context,
                                              const v1::AttendRequest* request,
                                              v1::AttendResponse* response) {
  absl::MutexLock lock(&mutex_);
  Record(*context, *request);
  const bool fails = failures_left_ > 0;
  const std::optional<grpc::Status> status = Decide(*request, response);
  if (!status.has_value()) return new HeldCall;
  if (fails) {
    for (const auto& [name, value] : trailers_) context->AddTrailingMetadata(name, value);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(*status);
  return reactor;
}

grpc::ServerBidiReactor<v1::AttendStreamRequest, v1::AttendStreamResponse>*
FakeService::AttendStream(grpc::CallbackServerContext* context) {
  FakeStreamHooks hooks;
  hooks.decide = [this, context](const v1::AttendRequest& request, v1::AttendResponse* response) {
    absl::MutexLock lock(&mutex_);
    Record(*context, request);
    return Decide(request, response);
  };
  hooks.on_cancel = [this] {
    absl::MutexLock lock(&mutex_);
    ++cancelled_;
  };
  hooks.on_done = [this](FakeStream* stream) {
    absl::MutexLock lock(&mutex_);
    streams_.erase(stream);
  };
  absl::MutexLock lock(&mutex_);
  ++num_streams_;
  auto* stream = new FakeStream(std::move(hooks));
  streams_.insert(stream);
  if (refusal_.has_value()) stream->End(*refusal_);
  return stream;
}

grpc::ServerUnaryReactor* FakeService::GetServerInfo(grpc::CallbackServerContext* context,
                                                     const v1::GetServerInfoRequest* /*request*/,
                                                     v1::ServerInfo* response) {
  response->set_version("9.9.9");
  response->set_server("fake");
  response->set_cpu_target("SCALAR");
  response->add_dtypes(v1::DATA_TYPE_FLOAT32);
  response->add_dtypes(v1::DATA_TYPE_BFLOAT16);
  response->add_options("causal");
  response->set_compute_threads(3);
  response->mutable_limits()->set_max_head_dim(1024);
  response->mutable_limits()->set_max_message_bytes(123456);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

FakeServer::FakeServer(const std::string& address, int max_receive_bytes) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service_);
  builder.SetMaxReceiveMessageSize(max_receive_bytes);
  server_ = builder.BuildAndStart();
  target_ = absl::StartsWith(address, "unix:") ? address : absl::StrCat("127.0.0.1:", port);
  SetServing(true);
}

FakeServer::~FakeServer() { server_->Shutdown(std::chrono::system_clock::now()); }

void FakeServer::SetServing(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(kServiceName, serving);
  server_->GetHealthCheckService()->SetServingStatus("", serving);
}

}  // namespace attend
