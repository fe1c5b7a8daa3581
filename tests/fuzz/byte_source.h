// Choices made from a string of bytes.
#ifndef ATTEND_TESTS_FUZZ_BYTE_SOURCE_H_
#define ATTEND_TESTS_FUZZ_BYTE_SOURCE_H_

#include <cstdint>
#include <initializer_list>
#include <span>

namespace attend::testing {

// Reads bytes that somebody else owns, one after the other, and zeros after the last. A zero makes
// the plainest choice, so that short strings are plain.
class ByteSource {
 public:
  explicit ByteSource(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::uint8_t Byte() {
    if (next_ >= bytes_.size()) return 0;
    return bytes_[next_++];
  }

  bool Chance(int percent) { return Byte() * 100 >= (100 - percent) * 256; }

  // The plainest value stands first; one that stands twice is chosen twice as often.
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Byte() % values.size()];
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t next_ = 0;
};

}  // namespace attend::testing

#endif  // ATTEND_TESTS_FUZZ_BYTE_SOURCE_H_
