// Memory for messages and tensors that is used again.
//
// A server that carries large tensors asks for the same few sizes again and again. Memory that went
// back to the system each time would cost a page fault for every 4 KiB of every request, and memory
// that a general allocator keeps in pieces makes the process grow. The pool keeps what comes back,
// by size class, and gives it out again.
#ifndef ATTEND_CORE_BASE_BUFFER_POOL_H_
#define ATTEND_CORE_BASE_BUFFER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "core/base/tsan_handover.h"

namespace attend {

struct BufferPoolOptions {
  // Unused memory that is kept for the next buffers; past it, what has been unused for longest goes
  // back to the system. 0 = keep nothing. Unit: bytes.
  std::int64_t max_kept_bytes = std::int64_t{256} << 20;
  // Memory that buffers in use may take together; past it, Acquire has none. Unit: bytes.
  std::int64_t max_lent_bytes = std::numeric_limits<std::int64_t>::max();
};

// Memory from a pool: goes back when the object does. Movable. Not initialised: whoever hands it on
// must have written all of it, or another request's bytes are in it.
class PooledBuffer {
 public:
  PooledBuffer() = default;
  PooledBuffer(PooledBuffer&& other) noexcept { *this = std::move(other); }
  PooledBuffer& operator=(PooledBuffer&& other) noexcept;
  ~PooledBuffer() { Reset(); }

  // False where memory could not be had, and after Reset or Release.
  bool ok() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }  // aligned to 64 bytes
  std::int64_t capacity() const;             // at least what was asked for; 0 if not ok

  void Reset();

  // Gives up ownership, for owners that know a pointer and a function alone: the memory goes back
  // by BufferPool::Return(pointer).
  std::byte* Release() {
    HandOver(data_);
    return Take();
  }

 private:
  friend class BufferPool;
  explicit PooledBuffer(std::byte* data) : data_(data) {}
  std::byte* Take() { return std::exchange(data_, nullptr); }

  std::byte* data_ = nullptr;
};

// Thread-safety: safe from any thread. Buffers may outlive the pool; they are freed then.
// Cost: a lock for some tens of nanoseconds; the system is asked only where no buffer is kept.
class BufferPool {
 public:
  explicit BufferPool(const BufferPoolOptions& options = {});
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // At least `bytes` bytes, which must not be negative; not ok() where memory or max_lent_bytes has
  // run out. A buffer takes up to a quarter more of address space than was asked for; pages that
  // are never touched take no memory.
  PooledBuffer Acquire(std::int64_t bytes);

  // Takes back what Release gave out. Null is ignored. As a function of C: for grpc_slice.
  static void Return(void* data);

  std::int64_t kept_bytes() const;
  std::int64_t lent_bytes() const;
  std::int64_t max_lent_bytes() const { return max_lent_bytes_; }

 private:
  friend class PooledBuffer;
  class State;
  struct Header;

  std::shared_ptr<State> state_;
  const std::int64_t max_lent_bytes_;
};

}  // namespace attend

#endif  // ATTEND_CORE_BASE_BUFFER_POOL_H_
