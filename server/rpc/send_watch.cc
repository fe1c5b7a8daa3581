#include "server/rpc/send_watch.h"

#include <algorithm>
#include <utility>

namespace attend {

namespace {

// Looks within the limit: what has seen one more is late.
constexpr int kLooks = 4;
constexpr absl::Duration kShortestPeriod = absl::Milliseconds(10);

}  // namespace

SendWatch::SendWatch(absl::Duration limit, OnLate on_late)
    : on_late_(std::move(on_late)), has_limit_(limit > absl::ZeroDuration()) {
  if (!has_limit_) return;
  alarm_.emplace(std::max(limit / kLooks, kShortestPeriod), [this] { Look(); });
}

void SendWatch::Begin(Sending& sending) {
  if (!has_limit_) return;
  const absl::MutexLock lock(&mutex_);
  sending.look_ = num_looks_;
  sending.watched_ = true;
  sending.newer_ = nullptr;
  sending.older_ = newest_;
  (newest_ != nullptr ? newest_->newer_ : oldest_) = &sending;
  newest_ = &sending;
}

void SendWatch::End(Sending& sending) {
  if (!has_limit_) return;
  const absl::MutexLock lock(&mutex_);
  if (sending.watched_) {
    Unlink(sending);
    return;
  }
  if (ending_ != &sending) return;
  // gRPC may say from within TryCancel that it is through.
  if (ender_ == std::this_thread::get_id()) return;
  const auto is_over = [this, &sending]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ != &sending; };
  mutex_.Await(absl::Condition(&is_over));
}

void SendWatch::Unlink(Sending& sending) {
  (sending.newer_ != nullptr ? sending.newer_->older_ : newest_) = sending.older_;
  (sending.older_ != nullptr ? sending.older_->newer_ : oldest_) = sending.newer_;
  sending.watched_ = false;
}

void SendWatch::Look() {
  {
    const absl::MutexLock lock(&mutex_);
    ++num_looks_;
  }
  while (Sending* late = TakeLate()) {
    // No lock: gRPC may call End meanwhile, which waits, or from within, which does not.
    if (on_late_) on_late_(late->context_);
    late->context_.TryCancel();
    const absl::MutexLock lock(&mutex_);
    ending_ = nullptr;
  }
}

SendWatch::Sending* SendWatch::TakeLate() {
  const absl::MutexLock lock(&mutex_);
  Sending* late = oldest_;
  if (late == nullptr || num_looks_ - late->look_ <= kLooks) return nullptr;
  Unlink(*late);
  ending_ = late;
  ender_ = std::this_thread::get_id();
  return late;
}

}  // namespace attend
