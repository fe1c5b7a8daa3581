#include "tests/bench/serve/raw_client.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/support/server_process.h"

namespace attend::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr char kAttendMethod[] = "/attend.v1.AttentionService/Attend";

// What gRPC needs until it has called back.
struct Call {
  std::unique_ptr<grpc::ClientContext> context = std::make_unique<grpc::ClientContext>();
  grpc::ByteBuffer answer;
  RawClient::Done done;
};

class ClosedLoopRun {
 public:
  ClosedLoopRun(RawClient& client, const grpc::ByteBuffer& request,
                std::chrono::nanoseconds duration)
      : client_(client), request_(request), begin_(Clock::now()), end_(begin_ + duration) {}

  double Run(const Cell& cell) {
    running_ = cell.connections * cell.in_flight;
    for (int i = 0; i < cell.in_flight; ++i) {
      for (int connection = 0; connection < cell.connections; ++connection) Start(connection);
    }
    all_ended_.WaitForNotification();
    if (failed_) Die("Attend failed in a closed loop: " + error_.error_message());
    return static_cast<double>(calls_) / std::chrono::duration<double>(last_ - begin_).count();
  }

 private:
  void Start(int connection) {
    client_.Attend(connection, request_, std::chrono::milliseconds(0),
                   [this, connection](const grpc::Status& status, const grpc::ByteBuffer&) {
                     OnAnswer(connection, status);
                   });
  }

  void OnAnswer(int connection, const grpc::Status& status) {
    calls_.fetch_add(1, std::memory_order_relaxed);
    const Clock::time_point now = Clock::now();
    if (status.ok() && now < end_) {
      Start(connection);
      return;
    }
    bool last = false;
    {
      absl::MutexLock lock(&mutex_);
      if (!status.ok() && !failed_) {
        failed_ = true;
        error_ = status;
      }
      last_ = now;
      last = --running_ == 0;
    }
    if (last) all_ended_.Notify();
  }

  RawClient& client_;
  const grpc::ByteBuffer& request_;
  const Clock::time_point begin_;
  const Clock::time_point end_;
  std::atomic<std::int64_t> calls_{0};
  absl::Mutex mutex_;
  int running_ = 0;  // calls that go on; this and what follows change under the mutex
  bool failed_ = false;
  grpc::Status error_;
  Clock::time_point last_;
  absl::Notification all_ended_;
};

struct Ended {
  grpc::Status status;
  grpc::ByteBuffer answer;
};

Ended Wait(RawClient& client, const grpc::ByteBuffer& request) {
  Ended result;
  absl::Notification ended;
  client.Attend(0, request, std::chrono::milliseconds(0),
                [&](const grpc::Status& status, const grpc::ByteBuffer& answer) {
                  result = {status, answer};
                  ended.Notify();
                });
  ended.WaitForNotification();
  return result;
}

}  // namespace

void Die(const std::string& what) {
  std::fprintf(stderr, "attend-serve-bench: %s\n", what.c_str());
  std::exit(1);
}

RawClient::RawClient(const std::string& target, int connections) {
  for (int i = 0; i < connections; ++i) {
    stubs_.push_back(std::make_unique<grpc::GenericStub>(testing::NewChannel(target)));
  }
}

void RawClient::Attend(int connection, const grpc::ByteBuffer& request,
                       std::chrono::milliseconds timeout, Done done) {
  auto call = std::make_shared<Call>();
  call->done = std::move(done);
  if (timeout.count() > 0) call->context->set_deadline(std::chrono::system_clock::now() + timeout);
  stub(connection)
      .UnaryCall(call->context.get(), kAttendMethod, {}, &request, &call->answer,
                 [call](const grpc::Status& status) {
                   call->context.reset();  // it holds the channel, which may go once this is done
                   call->done(status, call->answer);
                 });
}

grpc::ByteBuffer RawClient::AttendAndWait(const grpc::ByteBuffer& request) {
  const Ended ended = Wait(*this, request);
  if (!ended.status.ok()) Die("Attend failed: " + ended.status.error_message());
  return ended.answer;
}

bool RawClient::TryAttend(const grpc::ByteBuffer& request) {
  return Wait(*this, request).status.ok();
}

double ClosedLoopRate(RawClient& client, const grpc::ByteBuffer& request, const Cell& cell,
                      std::chrono::nanoseconds duration) {
  return ClosedLoopRun(client, request, duration).Run(cell);
}

std::function<void()> RawTransport::Send(const AttentionArgs& /*args*/, const CallOptions& options,
                                         Client::AttendCallback callback) {
  client_.Attend(
      0, request_, options.timeout.value_or(std::chrono::milliseconds(0)),
      [callback = std::move(callback)](const grpc::Status& status, const grpc::ByteBuffer&) {
        if (status.ok()) {
          callback(AttendResult());
        } else {
          callback(absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                                status.error_message()));
        }
      });
  return [] {};
}

}  // namespace attend::bench
