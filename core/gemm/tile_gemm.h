// Products of small float32 matrices, by oneDNN, in a bounded set of shapes.
//
// C = A * B, with A [m, k] and C [m, n] dense and row-major, and B [k, n] (or [n, k], transposed)
// in the form that is fastest on this CPU, which the cache tells. The rows of a product do not
// depend on each other, nor on where they stand, as long as the shape is the same: callers that
// promise the same bits for the same row use one m for it, padded with zero rows (measured: with
// another m, bits may differ on some CPUs).
#ifndef ATTEND_CORE_GEMM_TILE_GEMM_H_
#define ATTEND_CORE_GEMM_TILE_GEMM_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/row_form.h"

namespace attend {

struct TileGemmShape {
  std::int32_t m = 0;
  std::int32_t n = 0;
  std::int32_t k = 0;
  bool transpose_b = false;  // B is [n, k]

  bool operator==(const TileGemmShape&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const TileGemmShape& s) {
    return H::combine(std::move(h), s.m, s.n, s.k, s.transpose_b);
  }
};

// One product, compiled for its shape. Immutable.
class TileGemm;

// Makes products and keeps them. Thread-safety: safe from any thread.
class TileGemmCache {
 public:
  // `blocks`: keep B in blocks, rather than dense. Any value is right on any CPU.
  explicit TileGemmCache(bool blocks = PrefersBlocks());
  ~TileGemmCache();
  TileGemmCache(const TileGemmCache&) = delete;
  TileGemmCache& operator=(const TileGemmCache&) = delete;

  // Whether this CPU multiplies faster by a B in blocks.
  static bool PrefersBlocks();

  // The form of B's rows. In blocks, n and k of a shape must be multiples of kRowBlock.
  RowForm FormOfB(bool transpose_b) const;

  // The product of a shape, made on first use (0.1 ms). It lives as long as the cache.
  // INTERNAL if oneDNN refuses, RESOURCE_EXHAUSTED if memory cannot be had.
  absl::StatusOr<const TileGemm*> Get(const TileGemmShape& shape);

  // How many were ever made.
  std::int64_t created() const;

 private:
  friend class TileGemmRunner;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Runs products of one cache on the calling thread, single-threaded. Thread-safety: one thread at a
// time. Memory: a handle for each product that it has run, and the largest scratchpad among them.
class TileGemmRunner {
 public:
  explicit TileGemmRunner(TileGemmCache& cache);
  ~TileGemmRunner();
  TileGemmRunner(TileGemmRunner&&) noexcept;
  TileGemmRunner& operator=(TileGemmRunner&&) noexcept;

  // `c` must not overlap `a` or `b`. INTERNAL if oneDNN fails.
  absl::Status Run(const TileGemm& gemm, const float* a, const float* b, float* c);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend

#endif  // ATTEND_CORE_GEMM_TILE_GEMM_H_
