#include "client/cpp/shared_memory.h"

#include <chrono>
#include <utility>

namespace attend::client_internal {

namespace {

constexpr std::chrono::seconds kRegisterTimeout{10};
constexpr std::chrono::seconds kUnregisterTimeout{1};

// A full region is replaced where so large a share of it is retired.
constexpr std::uint64_t kRetiredShare = 4;  // one in so many

}  // namespace

SharedSlice& SharedSlice::operator=(SharedSlice&& other) noexcept {
  if (this == &other) return *this;
  Release();
  memory_ = other.memory_;
  region_ = std::move(other.region_);
  offset_ = other.offset_;
  size_bytes_ = other.size_bytes_;
  retired_ = std::exchange(other.retired_, false);
  return *this;
}

void SharedSlice::Release() {
  if (!present()) return;
  memory_->Release(std::exchange(region_, nullptr), offset_, size_bytes_,
                   std::exchange(retired_, false));
}

SharedMemory::SharedMemory(const std::shared_ptr<grpc::Channel>& channel, std::uint64_t size_bytes)
    : size_bytes_(size_bytes), stub_(v1::SharedMemoryService::NewStub(channel)) {}

absl::Status SharedMemory::MakeRegion() {
  absl::StatusOr<std::unique_ptr<SharedMemoryObject>> object =
      SharedMemoryObject::Create(size_bytes_);
  if (!object.ok()) return object.status();
  current_ = std::make_shared<SharedRegion>(*std::move(object));
  return absl::OkStatus();
}

absl::StatusOr<SharedSlice> SharedMemory::Take(std::uint64_t size_bytes) {
  std::string unneeded;
  std::shared_ptr<SharedRegion> region;
  std::optional<std::uint64_t> offset;
  {
    absl::MutexLock lock(&mutex_);
    if (current_ == nullptr) {
      absl::Status status = MakeRegion();
      if (!status.ok()) return status;
    }
    offset = current_->allocator.Take(size_bytes);
    if (!offset.has_value() && size_bytes <= size_bytes_ &&
        current_->retired_bytes >= size_bytes_ / kRetiredShare) {
      const std::shared_ptr<SharedRegion> worn = current_;
      // Without memory for another one, this one goes on.
      if (MakeRegion().ok()) {
        unneeded = TakeUnneededHandle(*worn);
        offset = current_->allocator.Take(size_bytes);
      }
    }
    region = current_;
    if (offset.has_value()) ++region->slices;
  }
  if (!unneeded.empty()) Unregister(unneeded);
  if (!offset.has_value()) return SharedSlice();
  return SharedSlice(this, std::move(region), *offset, size_bytes);
}

void SharedMemory::Release(const std::shared_ptr<SharedRegion>& region, std::uint64_t offset,
                           std::uint64_t size_bytes, bool retired) {
  std::string unneeded;
  {
    absl::MutexLock lock(&mutex_);
    if (retired) {
      region->retired_bytes += size_bytes;
    } else {
      region->allocator.Free(offset);
    }
    --region->slices;
    unneeded = TakeUnneededHandle(*region);
  }
  if (!unneeded.empty()) Unregister(unneeded);
}

std::string SharedMemory::TakeUnneededHandle(SharedRegion& region) {
  if (&region == current_.get() || region.slices > 0) return "";
  return std::exchange(region.handle, "");
}

void SharedMemory::WithHandle(const SharedSlice& slice, SharedRegion::OnHandle done) {
  const std::shared_ptr<SharedRegion> region = slice.region_;
  std::string handle;
  grpc::Status status;
  bool wait = false;
  bool begin = false;
  {
    absl::MutexLock lock(&mutex_);
    handle = region->handle;
    if (stopped_) {
      status = grpc::Status::CANCELLED;
    } else if (region->forgotten) {
      status = {grpc::StatusCode::NOT_FOUND, "the server has forgotten the shared memory"};
    } else if (handle.empty()) {
      wait = true;
      region->waiting.push_back(std::move(done));
      begin = !std::exchange(region->registering, true);
    }
  }
  if (!wait) done(status, handle);
  if (begin) Register(region);
}

// What gRPC needs until it has called back.
struct SharedMemory::Registration {
  CallContext context;
  v1::RegisterSharedMemoryRequest request;
  v1::RegisterSharedMemoryResponse response;
};

void SharedMemory::Register(const std::shared_ptr<SharedRegion>& region) {
  if (const absl::Status status = region->object->Link(); !status.ok()) {
    Registered(region, {grpc::StatusCode::INTERNAL, std::string(status.message())}, "");
    return;
  }
  const auto call = std::make_shared<Registration>();
  call->context.get()->set_deadline(std::chrono::system_clock::now() + kRegisterTimeout);
  call->request.set_name(region->object->name());
  call->request.set_size_bytes(region->object->size_bytes());
  registering_->Add(&call->context);
  stub_->async()->Register(call->context.get(), &call->request, &call->response,
                           [this, call, region, calls = registering_](const grpc::Status& status) {
                             call->context.Release();
                             Registered(region, status, call->response.handle());
                             calls->Remove(&call->context);
                           });
  absl::MutexLock lock(&mutex_);
  if (stopped_) call->context.Cancel();  // StopRegistering may have missed it
}

void SharedMemory::Registered(const std::shared_ptr<SharedRegion>& region,
                              const grpc::Status& status, const std::string& handle) {
  if (status.ok()) region->object->Unlink();  // the server has it open
  std::vector<SharedRegion::OnHandle> waiting;
  {
    absl::MutexLock lock(&mutex_);
    region->registering = false;
    if (status.ok()) region->handle = handle;
    waiting.swap(region->waiting);
  }
  for (const SharedRegion::OnHandle& done : waiting) done(status, handle);
}

void SharedMemory::Forget(const SharedSlice& slice) {
  absl::MutexLock lock(&mutex_);
  slice.region_->handle.clear();
  slice.region_->forgotten = true;
  if (current_ == slice.region_) current_.reset();
}

void SharedMemory::Unregister(const std::string& handle) {
  struct Call {
    CallContext context;
    v1::UnregisterSharedMemoryRequest request;
    v1::UnregisterSharedMemoryResponse response;
  };
  const auto call = std::make_shared<Call>();
  call->context.get()->set_deadline(std::chrono::system_clock::now() + kUnregisterTimeout);
  call->request.set_handle(handle);
  unregistering_->Add(&call->context);
  stub_->async()->Unregister(call->context.get(), &call->request, &call->response,
                             [call, calls = unregistering_](const grpc::Status& /*status*/) {
                               // A server that does not answer forgets it when it needs the room.
                               call->context.Release();
                               calls->Remove(&call->context);
                             });
}

void SharedMemory::StopRegistering() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  registering_->CancelAll();
}

void SharedMemory::Close() {
  registering_->CancelAndWait();
  std::string unneeded;
  {
    absl::MutexLock lock(&mutex_);
    const std::shared_ptr<SharedRegion> last = std::exchange(current_, nullptr);
    if (last != nullptr) unneeded = TakeUnneededHandle(*last);
  }
  if (!unneeded.empty()) Unregister(unneeded);
  unregistering_->Wait();
}

}  // namespace attend::client_internal
