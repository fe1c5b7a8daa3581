// Looks for a message that the server reads in another way than protobuf does. libFuzzer calls this
// with bytes of its choice and keeps those that reach new code; `make fuzz` runs it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/escaping.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/wire_properties.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using attend::MessageType;
  attend::testing::ByteSource bytes({data, size});
  const MessageType type =
      bytes.Pick({MessageType::kAttendRequest, MessageType::kAttendStreamRequest});
  const std::size_t piece_bytes = bytes.Pick<std::size_t>({0, 1, 2, 3, 7, 16, 100});
  // Half of the messages are the input itself, half are made from it.
  const bool raw = bytes.Chance(50);
  const std::size_t header = size < 3 ? size : 3;
  const std::string message =
      raw ? std::string(reinterpret_cast<const char*>(data) + header, size - header)
          : attend::testing::RandomMessage(bytes, type);
  const std::string fault = attend::testing::WireFaultOf(message, type, piece_bytes);
  if (fault.empty()) return 0;
  std::cerr << fault << "\nmessage: " << absl::CHexEscape(message) << "\npieces of " << piece_bytes
            << " bytes" << std::endl;
  std::abort();
}
