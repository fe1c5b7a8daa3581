// Memory for vectors: aligned to 64 bytes, not initialised.
#ifndef ATTEND_CORE_BASE_ALIGNED_BUFFER_H_
#define ATTEND_CORE_BASE_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

namespace attend {

inline constexpr std::size_t kBufferAlignment = 64;

// Owns `size` floats, or nothing where memory could not be had: check with ok().
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::int64_t size) {
    const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(float);
    const std::size_t rounded =
        (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    data_.reset(static_cast<float*>(
        std::aligned_alloc(kBufferAlignment, rounded == 0 ? kBufferAlignment : rounded)));
  }

  bool ok() const { return data_ != nullptr; }
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  std::unique_ptr<float, Free> data_;
};

}  // namespace attend

#endif  // ATTEND_CORE_BASE_ALIGNED_BUFFER_H_
