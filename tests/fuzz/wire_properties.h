// What holds of every message that a caller may send.
#ifndef ATTEND_TESTS_FUZZ_WIRE_PROPERTIES_H_
#define ATTEND_TESTS_FUZZ_WIRE_PROPERTIES_H_

#include <cstddef>
#include <string>

#include "server/wire/message_cutter.h"
#include "tests/fuzz/byte_source.h"

namespace attend::testing {

// Bytes of a message of the type, made from the choices: valid or nearly so, in any encoding that
// the wire format allows, and now and then spoiled.
std::string RandomMessage(ByteSource& bytes, MessageType type);

// Reads `message`, cut into pieces of `piece_bytes` bytes (0: one), in the server's way and in that
// of the generated parser, and tells the first thing in which they differ, or nothing:
//   - what we take, protobuf takes; what it takes, we take, unless a tensor occurs twice;
//   - both find the same fields, and the same bytes in every tensor;
//   - both make the same arguments of it, or the same complaint.
std::string WireFaultOf(const std::string& message, MessageType type, std::size_t piece_bytes);

}  // namespace attend::testing

#endif  // ATTEND_TESTS_FUZZ_WIRE_PROPERTIES_H_
