// What this machine can do at most, measured.
#ifndef ATTEND_TESTS_BENCH_MACHINE_PEAK_H_
#define ATTEND_TESTS_BENCH_MACHINE_PEAK_H_

#include <cstdint>

namespace attend::bench {

// Runs `rounds` rounds of independent float32 fused multiply-adds, as wide as the CPU can, and
// returns how many floating-point operations that were (two for each multiply-add and lane).
std::int64_t RunFmaLoop(std::int64_t rounds);

// Reads `count` floats, a multiple of 64 at a multiple of 64 bytes, from memory, as fast as one
// core can. Returns their bytes.
std::int64_t ReadMemory(const float* data, std::int64_t count);

}  // namespace attend::bench

#endif  // ATTEND_TESTS_BENCH_MACHINE_PEAK_H_
