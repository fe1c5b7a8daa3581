// Memory that a client shares with its server.
#ifndef ATTEND_CLIENT_CPP_SHARED_MEMORY_H_
#define ATTEND_CLIENT_CPP_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "attend/v1/shared_memory.grpc.pb.h"
#include "client/cpp/calls_in_flight.h"
#include "client/cpp/shared_memory_object.h"
#include "client/cpp/slice_allocator.h"

namespace attend::client_internal {

class SharedMemory;

// An object that the server knows, or is to know.
struct SharedRegion {
  using OnHandle = std::function<void(const grpc::Status& status, const std::string& handle)>;

  explicit SharedRegion(std::unique_ptr<SharedMemoryObject> made)
      : object(std::move(made)), allocator(object->size_bytes()) {}

  const std::unique_ptr<SharedMemoryObject> object;
  SliceAllocator allocator;
  // All below: under the mutex of the SharedMemory.
  std::string handle;      // empty: the server does not know the region
  bool forgotten = false;  // the server knew it once; it cannot be registered again
  bool registering = false;
  std::vector<OnHandle> waiting;  // for the handle
  std::int64_t slices = 0;        // in use
  std::uint64_t retired_bytes = 0;
};

// A range of a region, which goes back when the object goes. Movable.
class SharedSlice {
 public:
  // No range.
  SharedSlice() = default;
  ~SharedSlice() { Release(); }
  SharedSlice(SharedSlice&& other) noexcept { *this = std::move(other); }
  SharedSlice& operator=(SharedSlice&& other) noexcept;

  bool present() const { return region_ != nullptr; }
  std::uint64_t offset() const { return offset_; }  // in the region
  std::uint64_t size_bytes() const { return size_bytes_; }
  std::byte* data() const { return region_->object->data() + offset_; }

  // The server may still use it: it is never given out again.
  void Retire() { retired_ = true; }

  // Leaves no range.
  void Release();

 private:
  friend class SharedMemory;
  SharedSlice(SharedMemory* memory, std::shared_ptr<SharedRegion> region, std::uint64_t offset,
              std::uint64_t size_bytes)
      : memory_(memory), region_(std::move(region)), offset_(offset), size_bytes_(size_bytes) {}

  SharedMemory* memory_ = nullptr;
  std::shared_ptr<SharedRegion> region_;
  std::uint64_t offset_ = 0;
  std::uint64_t size_bytes_ = 0;
  bool retired_ = false;
};

// Makes a region when it is first needed, and another one in its place when the server has
// forgotten it or too much of it is retired. A region that was replaced lives as long as its
// slices.
//
// Thread-safety: safe from any thread.
class SharedMemory {
 public:
  SharedMemory(const std::shared_ptr<grpc::Channel>& channel, std::uint64_t size_bytes);

  // A slice of at least 1 byte; none where there is no room for it. The memory must outlive it.
  // Errors: as SharedMemoryObject::Create.
  absl::StatusOr<SharedSlice> Take(std::uint64_t size_bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `done` exactly once with the handle of the slice's region, perhaps before it returns;
  // registers the region where need be. Errors are those of the server, and NOT_FOUND after Forget.
  void WithHandle(const SharedSlice& slice, SharedRegion::OnHandle done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The server does not know the slice's region any more: no slice of it is given out.
  void Forget(const SharedSlice& slice) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends what waits for a handle with CANCELLED, now and from now on.
  void StopRegistering() ABSL_LOCKS_EXCLUDED(mutex_);

  // Has the server forget what it knows; waits for that, but not for long. All slices must have
  // gone. Must have been called before the object goes.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class SharedSlice;
  struct Registration;

  void Register(const std::shared_ptr<SharedRegion>& region) ABSL_LOCKS_EXCLUDED(mutex_);
  void Registered(const std::shared_ptr<SharedRegion>& region, const grpc::Status& status,
                  const std::string& handle) ABSL_LOCKS_EXCLUDED(mutex_);
  // Begins to; Close waits for the end.
  void Unregister(const std::string& handle) ABSL_LOCKS_EXCLUDED(mutex_);
  void Release(const std::shared_ptr<SharedRegion>& region, std::uint64_t offset,
               std::uint64_t size_bytes, bool retired) ABSL_LOCKS_EXCLUDED(mutex_);
  // The handle to unregister, once nobody needs the region any more; else empty.
  std::string TakeUnneededHandle(SharedRegion& region) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeRegion() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::uint64_t size_bytes_;
  const std::unique_ptr<v1::SharedMemoryService::Stub> stub_;
  const std::shared_ptr<CallsInFlight> registering_ = std::make_shared<CallsInFlight>();
  const std::shared_ptr<CallsInFlight> unregistering_ = std::make_shared<CallsInFlight>();

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<SharedRegion> current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_SHARED_MEMORY_H_
