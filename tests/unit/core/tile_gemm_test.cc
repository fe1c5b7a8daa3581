#include "core/gemm/tile_gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <ostream>
#include <random>
#include <thread>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "core/base/aligned_buffer.h"

namespace attend {

// Found by GoogleTest.
void PrintTo(const TileGemmShape& s, std::ostream* os) {
  *os << s.m << "x" << s.n << "x" << s.k << (s.transpose_b ? " B transposed" : "");
}

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A dense matrix at an aligned address.
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t columns, std::uint32_t seed)
      : columns_(columns), buffer_(rows * columns) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < rows * columns; ++i) buffer_.data()[i] = normal(random);
  }

  float* row(std::int64_t r) { return buffer_.data() + r * columns_; }
  float* data() { return buffer_.data(); }
  float at(std::int64_t r, std::int64_t c) { return row(r)[c]; }

  void FillRow(std::int64_t r, float value) { std::fill_n(row(r), columns_, value); }
  void CopyRow(std::int64_t r, Matrix& from, std::int64_t from_row) {
    std::copy_n(from.row(from_row), columns_, row(r));
  }
  bool RowEquals(std::int64_t r, Matrix& other, std::int64_t other_row) {
    return std::memcmp(row(r), other.row(other_row), columns_ * sizeof(float)) == 0;
  }

 private:
  std::int64_t columns_;
  AlignedBuffer buffer_;
};

Matrix MakeB(const TileGemmShape& s) {
  return s.transpose_b ? Matrix(s.n, s.k, 2) : Matrix(s.k, s.n, 2);
}

// Element (row, column) of a matrix in blocks of 8 x 8, as row_form.h defines them.
std::int64_t IndexInBlocks(RowForm form, std::int64_t columns, std::int64_t r, std::int64_t c) {
  const std::int64_t block = (r / 8 * (columns / 8) + c / 8) * 64;
  return block + (form == RowForm::kBlocks ? r % 8 * 8 + c % 8 : c % 8 * 8 + r % 8);
}

// B of a shape in the form that the cache asks for.
Matrix FormB(const TileGemmCache& cache, const TileGemmShape& s, Matrix& b) {
  const std::int64_t rows = s.transpose_b ? s.n : s.k;
  const std::int64_t columns = s.transpose_b ? s.k : s.n;
  const RowForm form = cache.FormOfB(s.transpose_b);
  Matrix formed(rows, columns, 0);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t at =
          form == RowForm::kDense ? r * columns + c : IndexInBlocks(form, columns, r, c);
      formed.data()[at] = b.at(r, c);
    }
  }
  return formed;
}

// Its parameter: whether B is kept in blocks.
class TileGemmTest : public ::testing::TestWithParam<bool> {
 protected:
  void Multiply(const TileGemmShape& shape, Matrix& a, Matrix& b, Matrix& c) {
    const auto gemm = cache_.Get(shape);
    ASSERT_TRUE(gemm.ok()) << gemm.status();
    Matrix formed = FormB(cache_, shape, b);
    ASSERT_TRUE(runner_.Run(**gemm, a.data(), formed.data(), c.data()).ok());
  }

  // Runs `check` for every shape.
  template <typename Check>
  void ForEveryShape(Check check);

  TileGemmCache cache_{GetParam()};
  TileGemmRunner runner_{cache_};
};
INSTANTIATE_TEST_SUITE_P(B, TileGemmTest, ::testing::Bool(), [](const auto& test) {
  return test.param ? std::string("InBlocks") : std::string("Dense");
});

// The shapes that attention uses (heights of 16 and 64, key tiles of 64 to 512, dims in steps of
// 16), and some that it does not.
std::vector<TileGemmShape> Shapes(bool blocks) {
  std::vector<TileGemmShape> shapes;
  // Where blocks are not for this CPU, they are right but slow: a few shapes tell as much.
  const bool slow = blocks && !TileGemmCache::PrefersBlocks();
  for (const std::int32_t m : {16, 64}) {
    if (slow) {
      shapes.push_back({m, 64, 16, true});
      shapes.push_back({m, 16, 64, false});
      continue;
    }
    for (const std::int32_t keys : {64, 128, 448, 512}) {
      for (const std::int32_t dim : {16, 64, 80, 128}) {
        shapes.push_back({m, keys, dim, true});
        shapes.push_back({m, dim, keys, false});
      }
    }
    shapes.push_back({m, 512, 1024, true});
    shapes.push_back({m, 1024, 512, false});
  }
  for (const bool transpose : {false, true}) {
    if (blocks) {
      shapes.push_back({1, 8, 8, transpose});
      shapes.push_back({17, 24, 40, transpose});
    } else {
      shapes.push_back({1, 1, 1, transpose});
      shapes.push_back({3, 5, 7, transpose});
      shapes.push_back({17, 33, 65, transpose});
    }
  }
  return shapes;
}

template <typename Check>
void TileGemmTest::ForEveryShape(Check check) {
  for (const TileGemmShape& shape : Shapes(GetParam())) {
    SCOPED_TRACE(::testing::PrintToString(shape));
    check(shape);
  }
}

TEST_P(TileGemmTest, EqualsTheSumOfProducts) {
  ForEveryShape([this](const TileGemmShape& s) {
    Matrix a(s.m, s.k, 1);
    Matrix b = MakeB(s);
    Matrix c(s.m, s.n, 3);  // is overwritten
    Multiply(s, a, b, c);
    for (std::int64_t i = 0; i < s.m; ++i) {
      for (std::int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        double magnitude = 0;
        for (std::int64_t l = 0; l < s.k; ++l) {
          const double product =
              static_cast<double>(a.at(i, l)) * (s.transpose_b ? b.at(j, l) : b.at(l, j));
          sum += product;
          magnitude += std::abs(product);
        }
        // Of a float32 dot product in any order: a rounding for each product and each addition.
        ASSERT_NEAR(c.at(i, j), sum, 0x1p-24 * (s.k + 2) * magnitude) << i << " " << j;
      }
    }
  });
}

TEST_P(TileGemmTest, RowsHaveTheSameBitsAtEveryPlace) {
  ForEveryShape([this](const TileGemmShape& s) {
    Matrix a(s.m, s.k, 1);
    Matrix moved(s.m, s.k, 1);
    Matrix b = MakeB(s);
    Matrix c(s.m, s.n, 3);
    Matrix d(s.m, s.n, 3);
    for (std::int64_t r = 0; r < s.m; ++r) {
      moved.CopyRow(r, a, (r * 5 + 3) % s.m);
      d.CopyRow(r, c, (r * 5 + 3) % s.m);
    }
    Multiply(s, a, b, c);
    Multiply(s, moved, b, d);
    for (std::int64_t r = 0; r < s.m; ++r) {
      EXPECT_TRUE(d.RowEquals(r, c, (r * 5 + 3) % s.m)) << r;
    }
  });
}

TEST_P(TileGemmTest, RowsHaveTheSameBitsWhateverTheirNeighboursAre) {
  ForEveryShape([this](const TileGemmShape& s) {
    Matrix a(s.m, s.k, 1);
    Matrix b = MakeB(s);
    Matrix c(s.m, s.n, 3);
    Multiply(s, a, b, c);
    for (const float fill : {0.0f, 1e30f, kNaN}) {
      for (const std::int64_t kept : {0, s.m / 2, s.m - 1}) {
        Matrix other(s.m, s.k, 1);
        Matrix d(s.m, s.n, 3);
        for (std::int64_t r = 0; r < s.m; ++r) {
          if (r != kept) other.FillRow(r, fill);
        }
        Multiply(s, other, b, d);
        EXPECT_TRUE(d.RowEquals(kept, c, kept)) << fill << " " << kept;
      }
    }
  });
}

TEST_P(TileGemmTest, ANaNStaysInItsRow) {
  ForEveryShape([this](const TileGemmShape& s) {
    Matrix a(s.m, s.k, 1);
    Matrix b = MakeB(s);
    Matrix c(s.m, s.n, 3);
    Multiply(s, a, b, c);
    const std::int64_t bad = s.m / 3;
    a.row(bad)[s.k / 2] = kNaN;
    Matrix d(s.m, s.n, 3);
    Multiply(s, a, b, d);
    for (std::int64_t r = 0; r < s.m; ++r) {
      if (r != bad) {
        EXPECT_TRUE(d.RowEquals(r, c, r)) << r;
        continue;
      }
      for (std::int64_t j = 0; j < s.n; ++j) EXPECT_TRUE(std::isnan(d.at(r, j))) << j;
    }
  });
}

TEST(TileGemmCache, FormsOfB) {
  EXPECT_EQ(TileGemmCache(false).FormOfB(true), RowForm::kDense);
  EXPECT_EQ(TileGemmCache(false).FormOfB(false), RowForm::kDense);
  EXPECT_EQ(TileGemmCache(true).FormOfB(true), RowForm::kTransposedBlocks);
  EXPECT_EQ(TileGemmCache(true).FormOfB(false), RowForm::kBlocks);
  EXPECT_EQ(TileGemmCache().FormOfB(false),
            TileGemmCache(TileGemmCache::PrefersBlocks()).FormOfB(false));
}

TEST(TileGemmCache, MakesEachShapeOnce) {
  TileGemmCache cache;
  EXPECT_EQ(cache.created(), 0);
  const auto first = cache.Get({.m = 16, .n = 64, .k = 16});
  const auto again = cache.Get({.m = 16, .n = 64, .k = 16});
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(*first, *again);
  EXPECT_EQ(cache.created(), 1);
  std::int64_t made = 1;
  for (const TileGemmShape& shape :
       {TileGemmShape{64, 64, 16, false}, TileGemmShape{16, 64, 16, true},
        TileGemmShape{16, 16, 64, false}}) {
    const auto other = cache.Get(shape);
    ASSERT_TRUE(other.ok());
    EXPECT_NE(*other, *first);
    EXPECT_EQ(cache.created(), ++made);
  }
}

TEST(TileGemmCache, MakesAShapeOnceForThreadsThatMeetAtIt) {
  constexpr int kThreads = 4;
  for (int repetition = 0; repetition < 20; ++repetition) {
    TileGemmCache cache;
    auto* barrier = new absl::Barrier(kThreads);
    std::vector<const TileGemm*> found(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        if (barrier->Block()) delete barrier;
        const auto gemm = cache.Get({.m = 16, .n = 64, .k = 32});
        if (gemm.ok()) found[t] = *gemm;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(cache.created(), 1);
    ASSERT_NE(found[0], nullptr);
    EXPECT_EQ(std::count(found.begin(), found.end(), found[0]), kThreads);
  }
}

// pitfalls A98, A100: products side by side, again and again, give the same bits.
TEST(TileGemmRunner, ThreadsThatShareAProductDoNotDisturbEachOther) {
  constexpr int kThreads = 3;
  constexpr TileGemmShape kShape{64, 512, 64, true};
  TileGemmCache cache;
  const auto gemm = cache.Get(kShape);
  ASSERT_TRUE(gemm.ok());
  std::vector<int> different(kThreads, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      TileGemmRunner runner(cache);
      Matrix a(kShape.m, kShape.k, 10 + t);
      Matrix b = MakeB(kShape);
      Matrix first(kShape.m, kShape.n, 3);
      different[t] += runner.Run(**gemm, a.data(), b.data(), first.data()).ok() ? 0 : 1;
      for (int repetition = 0; repetition < 50; ++repetition) {
        Matrix again(kShape.m, kShape.n, 4);
        different[t] += runner.Run(**gemm, a.data(), b.data(), again.data()).ok() ? 0 : 1;
        for (std::int64_t r = 0; r < kShape.m; ++r) {
          different[t] += again.RowEquals(r, first, r) ? 0 : 1;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, std::vector<int>(kThreads, 0));
}

TEST(TileGemmRunner, CanBeMoved) {
  constexpr TileGemmShape kShape{16, 64, 16, false};
  TileGemmCache cache;
  const auto gemm = cache.Get(kShape);
  ASSERT_TRUE(gemm.ok());
  TileGemmRunner first(cache);
  TileGemmRunner second(std::move(first));
  Matrix a(16, 16, 1);
  Matrix b(16, 64, 2);
  Matrix c(16, 64, 3);
  EXPECT_TRUE(second.Run(**gemm, a.data(), b.data(), c.data()).ok());
}

}  // namespace
}  // namespace attend
