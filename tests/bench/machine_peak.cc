#include "tests/bench/machine_peak.h"

#include <atomic>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/machine_peak.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attend::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

std::int64_t RunFmaLoop(std::int64_t rounds, float seed) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999f);
  const auto addend = hn::Set(d, seed);
  // Twelve chains hide the latency of two units of four cycles. Each begins with another value:
  // equal chains would be folded into one by the compiler, and the figure would be a fiction.
  auto a0 = hn::Iota(d, seed * 1), a1 = hn::Iota(d, seed * 2), a2 = hn::Iota(d, seed * 3);
  auto a3 = hn::Iota(d, seed * 4), a4 = hn::Iota(d, seed * 5), a5 = hn::Iota(d, seed * 6);
  auto a6 = hn::Iota(d, seed * 7), a7 = hn::Iota(d, seed * 8), a8 = hn::Iota(d, seed * 9);
  auto a9 = hn::Iota(d, seed * 10), a10 = hn::Iota(d, seed * 11), a11 = hn::Iota(d, seed * 12);
  for (std::int64_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, factor, addend);
    a1 = hn::MulAdd(a1, factor, addend);
    a2 = hn::MulAdd(a2, factor, addend);
    a3 = hn::MulAdd(a3, factor, addend);
    a4 = hn::MulAdd(a4, factor, addend);
    a5 = hn::MulAdd(a5, factor, addend);
    a6 = hn::MulAdd(a6, factor, addend);
    a7 = hn::MulAdd(a7, factor, addend);
    a8 = hn::MulAdd(a8, factor, addend);
    a9 = hn::MulAdd(a9, factor, addend);
    a10 = hn::MulAdd(a10, factor, addend);
    a11 = hn::MulAdd(a11, factor, addend);
  }
  a0 = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(a4, a5));
  a6 = hn::Add(hn::Add(hn::Add(a6, a7), hn::Add(a8, a9)), hn::Add(a10, a11));
  static std::atomic<float> sink;
  sink.store(hn::GetLane(hn::SumOfLanes(d, hn::Add(a0, a6))), std::memory_order_relaxed);
  return rounds * 12 * 2 * static_cast<std::int64_t>(hn::Lanes(d));
}

std::int64_t SumMemory(const float* HWY_RESTRICT data, std::int64_t count) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0;
  for (std::int64_t i = 0; i < count; i += 4 * lanes) {
    a0 = hn::Add(a0, hn::Load(d, data + i));
    a1 = hn::Add(a1, hn::Load(d, data + i + lanes));
    a2 = hn::Add(a2, hn::Load(d, data + i + 2 * lanes));
    a3 = hn::Add(a3, hn::Load(d, data + i + 3 * lanes));
  }
  static std::atomic<float> sink;
  sink.store(hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)))),
             std::memory_order_relaxed);
  return count * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace HWY_NAMESPACE
}  // namespace attend::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend::bench {

HWY_EXPORT(RunFmaLoop);
HWY_EXPORT(SumMemory);

std::int64_t RunFmaLoop(std::int64_t rounds) {
  static volatile float seed = 1e-8f;
  return HWY_DYNAMIC_DISPATCH(RunFmaLoop)(rounds, seed);
}

std::int64_t ReadMemory(const float* data, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(SumMemory)(data, count);
}

}  // namespace attend::bench
#endif  // HWY_ONCE
