// What is done to a request of which parts lie in shared memory.
#ifndef ATTEND_CLIENT_CPP_SHARED_REQUEST_H_
#define ATTEND_CLIENT_CPP_SHARED_REQUEST_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "attend/v1/attention.pb.h"
#include "client/cpp/shared_memory.h"

namespace attend::client_internal {

// Says which region the parts lie in.
void SetHandle(const std::string& handle, v1::AttendRequest* request);

// Moves the parts, which lie in `slice`, into a new slice of the memory, which `slice` becomes; or
// into the message where there is no room, and then `slice` becomes none. What was the slice is
// given back, or stays away where it was retired.
// Errors: RESOURCE_EXHAUSTED where the message would be larger than `max_message_bytes`; those of
// SharedMemory::Take.
absl::Status MoveParts(SharedMemory& memory, std::int64_t max_message_bytes, SharedSlice* slice,
                       v1::AttendRequest* request);

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_SHARED_REQUEST_H_
