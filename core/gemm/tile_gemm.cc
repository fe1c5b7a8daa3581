#include "core/gemm/tile_gemm.h"

#include <new>
#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>
#include <oneapi/dnnl/dnnl_version.h>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/aligned_buffer.h"

namespace attend {

class TileGemm {
 public:
  TileGemm(dnnl::memory::desc a, dnnl::memory::desc b, dnnl::memory::desc c,
           const dnnl::matmul::primitive_desc& primitive_desc)
      : a_(std::move(a)),
        b_(std::move(b)),
        c_(std::move(c)),
        scratchpad_(primitive_desc.scratchpad_desc()),
        primitive_(primitive_desc) {}

  const dnnl::memory::desc& a() const { return a_; }
  const dnnl::memory::desc& b() const { return b_; }
  const dnnl::memory::desc& c() const { return c_; }
  const dnnl::memory::desc& scratchpad() const { return scratchpad_; }
  const dnnl::matmul& primitive() const { return primitive_; }

 private:
  dnnl::memory::desc a_;
  dnnl::memory::desc b_;
  dnnl::memory::desc c_;
  dnnl::memory::desc scratchpad_;
  dnnl::matmul primitive_;
};

namespace {

// Makes OpenMP, on which Debian's oneDNN runs, use one thread for calls from this thread: our own
// workers are the threads. What a primitive does may also depend on the number at its creation.
class SingleOpenMpThread {
 public:
  SingleOpenMpThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~SingleOpenMpThread() { omp_set_num_threads(before_); }
  SingleOpenMpThread(const SingleOpenMpThread&) = delete;
  SingleOpenMpThread& operator=(const SingleOpenMpThread&) = delete;

 private:
  const int before_;
};

dnnl::memory::desc DenseDesc(std::int64_t rows, std::int64_t columns, bool transposed) {
  using Strides = dnnl::memory::dims;
  return {{rows, columns},
          dnnl::memory::data_type::f32,
          transposed ? Strides{1, rows} : Strides{columns, 1}};
}

dnnl::matmul::primitive_desc MakePrimitiveDesc(const dnnl::engine& engine,
                                               const dnnl::memory::desc& a,
                                               const dnnl::memory::desc& b,
                                               const dnnl::memory::desc& c,
                                               const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, c), attributes, engine};
#endif
}

std::unique_ptr<TileGemm> MakeTileGemm(const dnnl::engine& engine, const TileGemmShape& shape) {
  const SingleOpenMpThread single;
  const dnnl::memory::desc a = DenseDesc(shape.m, shape.k, false);
  const dnnl::memory::desc b = DenseDesc(shape.k, shape.n, shape.transpose_b);
  const dnnl::memory::desc c = DenseDesc(shape.m, shape.n, false);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.accumulate) {
    dnnl::post_ops post_ops;
    post_ops.append_sum(1.0f);
    attributes.set_post_ops(post_ops);
  }
  return std::make_unique<TileGemm>(a, b, c, MakePrimitiveDesc(engine, a, b, c, attributes));
}

absl::Status StatusOf(const dnnl::error& error) {
  if (error.status == dnnl_out_of_memory) {
    return absl::ResourceExhaustedError("oneDNN could not allocate memory");
  }
  return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
}

}  // namespace

class TileGemmCache::Impl {
 public:
  const dnnl::engine& engine() const { return engine_; }

  absl::StatusOr<const TileGemm*> Get(const TileGemmShape& shape) {
    {
      const absl::ReaderMutexLock lock(&mutex_);
      const auto found = gemms_.find(shape);
      if (found != gemms_.end()) return found->second.get();
    }
    // Made without the lock, so that nobody else waits. Two threads may meet here for one shape:
    // the first to come back wins.
    try {
      std::unique_ptr<TileGemm> made = MakeTileGemm(engine_, shape);
      const absl::MutexLock lock(&mutex_);
      return gemms_.try_emplace(shape, std::move(made)).first->second.get();
    } catch (const dnnl::error& error) {
      return StatusOf(error);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("no memory for a matrix product");
    }
  }

  std::int64_t created() const {
    const absl::ReaderMutexLock lock(&mutex_);
    return static_cast<std::int64_t>(gemms_.size());
  }

 private:
  const dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<TileGemmShape, std::unique_ptr<TileGemm>> gemms_ ABSL_GUARDED_BY(mutex_);
};

TileGemmCache::TileGemmCache() : impl_(std::make_unique<Impl>()) {}
TileGemmCache::~TileGemmCache() = default;

absl::StatusOr<const TileGemm*> TileGemmCache::Get(const TileGemmShape& shape) {
  return impl_->Get(shape);
}

std::int64_t TileGemmCache::created() const { return impl_->created(); }

class TileGemmRunner::Impl {
 public:
  explicit Impl(const dnnl::engine& engine) : engine_(engine), stream_(engine) {}

  absl::Status Run(const TileGemm& gemm, const float* a, const float* b, float* c) {
    const SingleOpenMpThread single;
    try {
      Call& call = CallFor(gemm);
      call.a.set_data_handle(const_cast<float*>(a));
      call.b.set_data_handle(const_cast<float*>(b));
      call.c.set_data_handle(c);
      call.scratchpad.set_data_handle(ReserveScratchpad(gemm));
      // The C function takes an array where the C++ one would build a map for each call.
      const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, call.a.get()},
                                           {DNNL_ARG_WEIGHTS, call.b.get()},
                                           {DNNL_ARG_DST, call.c.get()},
                                           {DNNL_ARG_SCRATCHPAD, call.scratchpad.get()}};
      dnnl::error::wrap_c_api(
          dnnl_primitive_execute(gemm.primitive().get(), stream_.get(), 4, arguments),
          "a matrix product failed");
    } catch (const dnnl::error& error) {
      return StatusOf(error);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("no memory for a matrix product");
    }
    return absl::OkStatus();
  }

 private:
  struct Call {
    dnnl::memory a;
    dnnl::memory b;
    dnnl::memory c;
    dnnl::memory scratchpad;
  };

  Call& CallFor(const TileGemm& gemm) {
    const auto found = calls_.find(&gemm);
    if (found != calls_.end()) return found->second;
    Call call{.a = dnnl::memory(gemm.a(), engine_, nullptr),
              .b = dnnl::memory(gemm.b(), engine_, nullptr),
              .c = dnnl::memory(gemm.c(), engine_, nullptr),
              .scratchpad = dnnl::memory(gemm.scratchpad(), engine_, nullptr)};
    return calls_.emplace(&gemm, std::move(call)).first->second;
  }

  // Memory for the scratchpad of a product: one for all of them, as large as the largest.
  void* ReserveScratchpad(const TileGemm& gemm) {
    const std::size_t bytes = gemm.scratchpad().get_size();
    if (bytes > scratchpad_bytes_) {
      scratchpad_bytes_ = 0;  // so that a failure is tried again
      scratchpad_ = AlignedBuffer(static_cast<std::int64_t>(bytes / sizeof(float) + 1));
      if (!scratchpad_.ok()) throw std::bad_alloc();
      scratchpad_bytes_ = bytes;
    }
    return scratchpad_.data();
  }

  const dnnl::engine engine_;
  dnnl::stream stream_;
  absl::flat_hash_map<const TileGemm*, Call> calls_;
  AlignedBuffer scratchpad_;
  std::size_t scratchpad_bytes_ = 0;
};

TileGemmRunner::TileGemmRunner(TileGemmCache& cache)
    : impl_(std::make_unique<Impl>(cache.impl_->engine())) {}
TileGemmRunner::~TileGemmRunner() = default;
TileGemmRunner::TileGemmRunner(TileGemmRunner&&) noexcept = default;
TileGemmRunner& TileGemmRunner::operator=(TileGemmRunner&&) noexcept = default;

absl::Status TileGemmRunner::Run(const TileGemm& gemm, const float* a, const float* b, float* c) {
  return impl_->Run(gemm, a, b, c);
}

}  // namespace attend
