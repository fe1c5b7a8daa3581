// Closed loops over AttendStream.
#ifndef ATTEND_TESTS_BENCH_SERVE_STREAM_LOOP_H_
#define ATTEND_TESTS_BENCH_SERVE_STREAM_LOOP_H_

#include <chrono>
#include <string>

#include "tests/bench/serve/raw_client.h"

namespace attend::bench {

// Whether the server behind the client offers AttendStream. Dies where it cannot be asked.
bool OffersStreams(RawClient& client, const std::string& request);

// Requests a second of a stream on each connection of the cell, with so many requests in flight on
// each. `request`: a serialized AttendRequest. Counts as ClosedLoopRate does. Dies on an error,
// also of a single request.
double StreamLoopRate(RawClient& client, const std::string& request, const Cell& cell,
                      std::chrono::nanoseconds duration);

}  // namespace attend::bench

#endif  // ATTEND_TESTS_BENCH_SERVE_STREAM_LOOP_H_
