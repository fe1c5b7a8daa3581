// The parts of the benchmark of the server. Each measures by itself, on servers of its own.
#ifndef ATTEND_TESTS_BENCH_SERVE_PARTS_H_
#define ATTEND_TESTS_BENCH_SERVE_PARTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attend/v1/attention.pb.h"
#include "tests/bench/report.h"
#include "tests/support/requests.h"
#include "tests/support/server_process.h"

namespace attend::bench {

// Requests/s of 12 heads x 64, f32 and bf16, at 128, 512 and 2048 tokens: a raw echo of the same
// message sizes over TCP (E), the core in this process (C), attend-server over TCP (S), over a
// Unix socket (U) and through shared memory (M). What a server could reach at best, if carrying and
// computing cost what they cost alone, is 1 / (1/E + 1/C).
std::vector<Figure> Throughput();

// One head x 16 tokens x 64: unary against the raw echo, streamed against unary.
std::vector<Figure> SmallRequests();

// The same requests, 64 in flight, with batches and with none.
std::vector<Figure> Batching();

// 100 of the same requests a second, alone and while one of 12 heads x 32k tokens is computed.
std::vector<Figure> HeadOfLine();

// More load than the server can do: 12 heads x 512 tokens at twice, and one head x 16k tokens at
// five times what a closed loop reaches.
std::vector<Figure> Overload();

inline constexpr testing::Sizes kSmall{.batch = 1,
                                       .query_heads = 1,
                                       .kv_heads = 1,
                                       .query_len = 16,
                                       .kv_len = 16,
                                       .head_dim = 64,
                                       .value_dim = 64};

// A random request of these sizes, serialized.
std::string RequestBytes(const testing::Sizes& sizes);
grpc::ByteBuffer ToBuffer(const std::string& bytes);

// attend-server with these arguments. Dies where it does not start.
std::unique_ptr<testing::ServerProcess> StartServer(const std::vector<std::string>& arguments = {});

}  // namespace attend::bench

#endif  // ATTEND_TESTS_BENCH_SERVE_PARTS_H_
