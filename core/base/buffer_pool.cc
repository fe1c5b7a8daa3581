#include "core/base/buffer_pool.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <new>
#include <sys/mman.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/aligned_buffer.h"

namespace attend {

namespace {

// Sizes are rounded up to a quarter of a power of two, from 1 KiB on.
constexpr int kMinLog = 10;
constexpr int kMaxLog = 40;
constexpr std::size_t kNumClasses = 4 * (kMaxLog - kMinLog) + 1;

// From here on memory comes in pages of its own, so that freeing one gives it back to the system
// whatever lies beside it.
constexpr std::size_t kMapBytes = std::size_t{64} << 10;

struct SizeClass {
  std::size_t index;
  std::size_t bytes;
};

// `bytes`: from 1 to 2^kMaxLog.
SizeClass ClassOf(std::size_t bytes) {
  constexpr std::size_t kSmallest = std::size_t{1} << kMinLog;
  if (bytes <= kSmallest) return {0, kSmallest};
  const int log = static_cast<int>(std::bit_width(bytes - 1)) - 1;
  const std::size_t power = std::size_t{1} << log;
  const std::size_t quarter = (bytes - 1 - power) / (power / 4);
  return {static_cast<std::size_t>(log - kMinLog) * 4 + quarter + 1,
          power + (quarter + 1) * (power / 4)};
}

void* AllocateBytes(std::size_t bytes) {
  if (bytes < kMapBytes) return std::aligned_alloc(kBufferAlignment, bytes);
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

void FreeBytes(void* address, std::size_t bytes) {
  if (bytes < kMapBytes) {
    std::free(address);
  } else {
    munmap(address, bytes);
  }
}

}  // namespace

// Lies before each buffer's bytes. While a buffer is lent, `state` keeps the pool's state alive;
// while it is kept, it hangs in the list of its class and in that of all kept buffers.
struct alignas(kBufferAlignment) BufferPool::Header {
  struct Link {
    Header* newer = nullptr;
    Header* older = nullptr;
  };
  std::shared_ptr<State> state;
  SizeClass size{};
  Link all;
  Link same_class;

  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
  static Header* Of(void* data) { return static_cast<Header*>(data) - 1; }
};

class BufferPool::State {
 public:
  explicit State(const BufferPoolOptions& options) : options_(options) {}

  // A buffer of the class that was kept; null if there is none. `admitted` tells whether there may
  // be another one.
  Header* Take(const SizeClass& size, bool& admitted) {
    absl::MutexLock lock(&mutex_);
    const auto bytes = static_cast<std::int64_t>(size.bytes);
    admitted = bytes <= options_.max_lent_bytes - lent_bytes_;
    if (!admitted) return nullptr;
    lent_bytes_ += bytes;
    Header* header = classes_[size.index].newest;
    if (header != nullptr) Unlink(header);
    return header;
  }

  // Undoes what Take did for a buffer that could not be made.
  void GiveUp(const SizeClass& size) {
    absl::MutexLock lock(&mutex_);
    lent_bytes_ -= static_cast<std::int64_t>(size.bytes);
  }

  void Put(Header* header) {
    Header* surplus = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      lent_bytes_ -= static_cast<std::int64_t>(header->size.bytes);
      Link(header);
      surplus = TakeSurplus();
    }
    FreeList(surplus);
  }

  void Close() {
    Header* surplus = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      options_.max_kept_bytes = 0;
      surplus = TakeSurplus();
    }
    FreeList(surplus);
  }

  std::int64_t kept_bytes() const {
    absl::MutexLock lock(&mutex_);
    return kept_bytes_;
  }
  std::int64_t lent_bytes() const {
    absl::MutexLock lock(&mutex_);
    return lent_bytes_;
  }

 private:
  struct List {
    Header* newest = nullptr;
    Header* oldest = nullptr;
  };

  static void Push(List& list, Header::Link Header::*link, Header* header) {
    header->*link = {.newer = nullptr, .older = list.newest};
    if (list.newest != nullptr) (list.newest->*link).newer = header;
    list.newest = header;
    if (list.oldest == nullptr) list.oldest = header;
  }

  static void Remove(List& list, Header::Link Header::*link, Header* header) {
    const Header::Link& around = header->*link;
    (around.newer != nullptr ? (around.newer->*link).older : list.newest) = around.older;
    (around.older != nullptr ? (around.older->*link).newer : list.oldest) = around.newer;
  }

  void Link(Header* header) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Push(all_, &Header::all, header);
    Push(classes_[header->size.index], &Header::same_class, header);
    kept_bytes_ += static_cast<std::int64_t>(header->size.bytes);
  }

  void Unlink(Header* header) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Remove(all_, &Header::all, header);
    Remove(classes_[header->size.index], &Header::same_class, header);
    kept_bytes_ -= static_cast<std::int64_t>(header->size.bytes);
  }

  // What is kept in excess, the oldest first, as a list over all.older.
  Header* TakeSurplus() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Header* surplus = nullptr;
    while (kept_bytes_ > options_.max_kept_bytes) {
      Header* oldest = all_.oldest;
      Unlink(oldest);
      oldest->all.older = surplus;
      surplus = oldest;
    }
    return surplus;
  }

  // Without the lock: giving pages back takes the system a while.
  static void FreeList(Header* surplus) {
    while (surplus != nullptr) {
      Header* next = surplus->all.older;
      const std::size_t bytes = surplus->size.bytes;
      surplus->~Header();
      FreeBytes(surplus, bytes);
      surplus = next;
    }
  }

  mutable absl::Mutex mutex_;
  BufferPoolOptions options_ ABSL_GUARDED_BY(mutex_);
  std::int64_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t lent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  List all_ ABSL_GUARDED_BY(mutex_);
  std::array<List, kNumClasses> classes_ ABSL_GUARDED_BY(mutex_);
};

PooledBuffer& PooledBuffer::operator=(PooledBuffer&& other) noexcept {
  if (this != &other) {
    Reset();
    data_ = other.Take();
  }
  return *this;
}

std::int64_t PooledBuffer::capacity() const {
  if (data_ == nullptr) return 0;
  return static_cast<std::int64_t>(BufferPool::Header::Of(data_)->size.bytes -
                                   sizeof(BufferPool::Header));
}

void PooledBuffer::Reset() { BufferPool::Return(Take()); }

BufferPool::BufferPool(const BufferPoolOptions& options)
    : state_(std::make_shared<State>(options)), max_lent_bytes_(options.max_lent_bytes) {}

BufferPool::~BufferPool() { state_->Close(); }

PooledBuffer BufferPool::Acquire(std::int64_t bytes) {
  constexpr std::size_t kMaxBytes = (std::size_t{1} << kMaxLog) - sizeof(Header);
  if (static_cast<std::size_t>(bytes) > kMaxBytes) return {};
  const SizeClass size = ClassOf(static_cast<std::size_t>(bytes) + sizeof(Header));
  bool admitted = false;
  Header* header = state_->Take(size, admitted);
  if (!admitted) return {};
  if (header == nullptr) {
    void* memory = AllocateBytes(size.bytes);
    if (memory == nullptr) {
      state_->GiveUp(size);
      return {};
    }
    header = new (memory) Header{.state = nullptr, .size = size, .all = {}, .same_class = {}};
  }
  header->state = state_;
  return PooledBuffer(header->data());
}

void BufferPool::Return(void* data) {
  if (data == nullptr) return;
  TakeOver(data);
  Header* header = Header::Of(data);
  const std::shared_ptr<State> state = std::move(header->state);
  state->Put(header);
}

std::int64_t BufferPool::kept_bytes() const { return state_->kept_bytes(); }
std::int64_t BufferPool::lent_bytes() const { return state_->lent_bytes(); }

}  // namespace attend
