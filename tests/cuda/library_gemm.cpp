// Products described for cuBLAS: the description is carried out by plain loops over column-major matrices and held
// against the product of the strided operands.
#include "runtime/cuda/library_gemm.h"
#include <gtest/gtest.h>
#include <random>

namespace tessera::cuda {
namespace {

Operand operand(Dims shape, Dims strides, int64_t offset = 0) {
  Operand o;
  o.buffer = 0;
  o.shape = std::move(shape);
  o.strides = std::move(strides);
  o.offset = offset;
  return o;
}
Operand dense(Dims shape, int64_t offset = 0) {
  Dims strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return operand(shape, strides, offset);
}
int64_t extent(const Operand& o) {
  int64_t last = o.offset;
  for (size_t d = 0; d < o.shape.size(); ++d) last += std::max<int64_t>(o.shape[d] - 1, 0) * o.strides[d];
  return last + 1;
}
int64_t at(const Operand& o, const Dims& index, size_t rank, int64_t row, int64_t col) {
  int64_t p = o.offset;
  size_t own = o.shape.size();
  for (size_t d = 0; d + 2 < own; ++d)
    if (o.shape[d] != 1) p += index[rank - own + d] * o.strides[d];
  return p + row * o.strides[own - 2] + col * o.strides[own - 1];
}

std::vector<double> numbers(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> out(static_cast<size_t>(count));
  for (auto& x : out) x = static_cast<double>(static_cast<int64_t>(random() % 17) - 8);
  return out;
}

// Both ways from the same buffers, untouched elements included.
void expect_same(const Operand& a, const Operand& b, const Operand& c, const GemmProblem& p) {
  auto va = numbers(extent(a), 1), vb = numbers(extent(b), 2), vc = numbers(extent(c), 3);
  auto expected = vc, actual = vc;
  size_t rank = c.shape.size();
  int64_t m = c.shape[rank - 2], n = c.shape[rank - 1], k = a.shape.back(), count = 1;
  for (size_t d = 0; d + 2 < rank; ++d) count *= c.shape[d];
  for (int64_t i = 0; i < count; ++i) {
    Dims index(rank, 0);
    for (size_t d = rank - 2, rest = static_cast<size_t>(i); d-- > 0; rest /= static_cast<size_t>(c.shape[d]))
      index[d] = static_cast<int64_t>(rest) % c.shape[d];
    for (int64_t r = 0; r < m; ++r)
      for (int64_t q = 0; q < n; ++q) {
        double sum = 0;
        for (int64_t x = 0; x < k; ++x)
          sum += va[static_cast<size_t>(at(a, index, rank, r, x))] * vb[static_cast<size_t>(at(b, index, rank, x, q))];
        expected[static_cast<size_t>(at(c, index, rank, r, q))] = sum;
      }
  }
  const auto &left = p.swapped ? vb : va, &right = p.swapped ? va : vb;
  auto element = [](const std::vector<double>& v, const GemmMatrix& x, int64_t offset, int64_t row, int64_t col) {
    if (x.transposed) std::swap(row, col);
    EXPECT_LT(row, x.rows);
    EXPECT_LT(col, x.cols);
    return v[static_cast<size_t>(offset + row + col * x.ld)];
  };
  if (p.empty()) {
    EXPECT_EQ(count * m * n, 0);
    return;
  }
  for (const auto* x : {&p.a, &p.b, &p.c}) EXPECT_GE(x->ld, std::max<int64_t>(1, x->rows));
  EXPECT_EQ(p.a.transposed ? p.a.cols : p.a.rows, p.m);
  EXPECT_EQ(p.b.transposed ? p.b.rows : p.b.cols, p.n);
  EXPECT_EQ(p.c.rows, p.m);
  EXPECT_EQ(p.c.cols, p.n);
  for (const auto& o : p.all())
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (int64_t x = 0; x < p.k; ++x) sum += element(left, p.a, o.a, i, x) * element(right, p.b, o.b, x, j);
        actual[static_cast<size_t>(o.c + i + j * p.c.ld)] = sum;
      }
  EXPECT_EQ(actual, expected);
}

GemmProblem described(const Operand& a, const Operand& b, const Operand& c, int bias_dim = -1) {
  auto p = describe_gemm(a, b, c, bias_dim, "test");
  EXPECT_TRUE(p.ok()) << (p.ok() ? "" : p.error().str());
  if (!p.ok()) return {};
  expect_same(a, b, c, *p);
  return *p;
}

TEST(GemmProblem, ActivationsTimesWeightsAreOneProduct) {
  auto p = described(dense({4, 3, 8}), dense({8, 5}), dense({4, 3, 5}), 2);
  EXPECT_EQ(p.batch, 1);
  EXPECT_EQ(p.repeats.size(), 1u);
  EXPECT_TRUE(p.swapped);
  EXPECT_TRUE(p.bias_along_rows);
  EXPECT_EQ(p.m, 5);
  EXPECT_EQ(p.n, 12);
  EXPECT_FALSE(p.a.transposed);
  EXPECT_EQ(p.a.ld, 5);
}

TEST(GemmProblem, TransposedWeightsAreTransposedByCublas) {
  auto p = described(dense({6, 8}), operand({8, 5}, {1, 8}), dense({6, 5}));
  EXPECT_TRUE(p.a.transposed);
  EXPECT_EQ(p.a.ld, 8);
}

TEST(GemmProblem, HeadsOfOneSequenceAreABatch) {
  int64_t s = 5, h = 3, d = 4, w = h * d;
  auto p =
      described(operand({1, h, s, d}, {s * w, d, w, 1}), operand({1, h, d, s}, {s * w, d, 1, w}), dense({1, h, s, s}));
  EXPECT_EQ(p.batch, h);
  EXPECT_EQ(p.repeats.size(), 1u);
}

TEST(GemmProblem, HeadsOfSeveralSequencesRepeatTheSmallerDimension) {
  int64_t b = 2, s = 5, h = 3, d = 4, w = h * d;
  auto p =
      described(operand({b, h, s, d}, {s * w, d, w, 1}), operand({b, h, d, s}, {s * w, d, 1, w}), dense({b, h, s, s}));
  EXPECT_EQ(p.batch, h);
  EXPECT_EQ(p.repeats.size(), 2u);
  EXPECT_EQ(p.all().size(), 6u);
  // The product of probabilities and values, stored as [b, s, h * d].
  p = described(dense({b, h, s, s}), operand({b, h, s, d}, {s * w, d, w, 1}), operand({b, h, s, d}, {s * w, d, w, 1}));
  EXPECT_EQ(p.repeats.size(), 2u);
}

TEST(GemmProblem, DenseBatchesMerge) {
  auto p = described(dense({2, 3, 4, 5}), dense({2, 3, 5, 6}), dense({2, 3, 4, 6}));
  EXPECT_EQ(p.batch, 6);
  EXPECT_EQ(p.repeats.size(), 1u);
}

TEST(GemmProblem, SharedHeadsRepeat) {
  described(dense({2, 2, 3, 4, 5}), operand({2, 2, 3, 5, 6}, {60, 30, 0, 6, 1}), dense({2, 2, 3, 4, 6}));
  described(dense({4, 5}), dense({3, 5, 6}), dense({3, 4, 6}));
  described(dense({3, 4, 5}), dense({1, 5, 6}), dense({3, 4, 6}));
}

TEST(GemmProblem, RowsThatOverlapAreProductsOfSingleRows) {
  auto p = described(operand({4, 3}, {1, 1}), dense({3, 5}), dense({4, 5})); // windows of a sequence
  EXPECT_EQ(p.batch, 4);
  p = described(operand({4, 3}, {0, 1}), dense({3, 5}), dense({4, 5})); // one row, four times
  EXPECT_EQ(p.batch, 4);
  p = described(operand({4, 3}, {7, 2}), dense({3, 5}), dense({4, 5})); // neither rows nor columns dense
  EXPECT_EQ(p.batch, 4);
  p = described(dense({4, 3}), operand({3, 5}, {20, 3}), dense({4, 5}));
  EXPECT_EQ(p.batch, 5);
  p = described(dense({4, 3}), dense({3, 5}), operand({4, 5}, {11, 2}), 1);
  EXPECT_EQ(p.batch, 4);
  EXPECT_FALSE(describe_gemm(operand({4, 3}, {3, 0}), dense({3, 5}), dense({4, 5}), -1, "x").ok());
}

TEST(GemmProblem, ABiasLiesAlongTheRowsOfTheStoredResult) {
  EXPECT_TRUE(described(dense({4, 3}), dense({3, 5}), dense({4, 5}), 1).bias_along_rows);
  EXPECT_FALSE(described(dense({4, 3}), dense({3, 5}), dense({4, 5}), 0).bias_along_rows);
  auto p = described(dense({4, 3}), dense({3, 5}), operand({4, 5}, {1, 4}), 0);
  EXPECT_TRUE(p.bias_along_rows);
  EXPECT_FALSE(p.swapped);
  EXPECT_TRUE(described(dense({1, 3}), dense({3, 5}), dense({1, 5}), 1).bias_along_rows);
  EXPECT_TRUE(described(dense({4, 3}), dense({3, 1}), dense({4, 1}), 0).bias_along_rows);
  EXPECT_TRUE(described(dense({2, 4, 3}), dense({3, 1}), dense({2, 4, 1}), 1).bias_along_rows);
}

TEST(GemmProblem, EmptyAndVectors) {
  for (auto [m, n, batch] : {std::array<int64_t, 3>{0, 5, 2}, {4, 0, 2}, {4, 5, 0}})
    EXPECT_TRUE(described(dense({batch, m, 3}), dense({batch, 3, n}), dense({batch, m, n})).empty());
  auto p = described(dense({4, 0}), dense({0, 5}), dense({4, 5}));
  EXPECT_FALSE(p.empty());
  EXPECT_EQ(p.k, 0);
  described(dense({1, 7}), dense({7, 1}), dense({1, 1}));
  described(operand({1, 7}, {1, 3}), operand({7, 1}, {2, 1}), dense({1, 1}));
}

TEST(GemmProblem, ContradictionsAreNamed) {
  auto p = describe_gemm(dense({4, 3}), dense({2, 5}), dense({4, 5}), -1, "MatMul_3");
  ASSERT_FALSE(p.ok());
  EXPECT_EQ(p.error().code, ErrorCode::Internal);
  EXPECT_NE(p.error().str().find("MatMul_3"), std::string::npos);
}

// Any dense layout of any dimension order, parts of larger tensors, broadcast batches.
TEST(GemmProblem, RandomStrides) {
  std::mt19937_64 random(7);
  auto pick = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 600; ++round) {
    size_t lead = static_cast<size_t>(pick(4));
    Dims sizes;
    for (size_t d = 0; d < lead; ++d) sizes.push_back(1 + pick(3));
    int64_t m = 1 + pick(4), n = 1 + pick(4), k = pick(4);
    auto make = [&](int64_t rows, int64_t cols, bool may_repeat) {
      Dims shape = sizes;
      shape.push_back(rows);
      shape.push_back(cols);
      std::vector<size_t> order(shape.size());
      for (size_t d = 0; d < order.size(); ++d) order[d] = d;
      if (pick(2) == 0) std::shuffle(order.begin(), order.end(), random);
      Dims strides(shape.size());
      int64_t step = 1;
      for (size_t d = order.size(); d-- > 0;) {
        strides[order[d]] = step;
        step *= std::max<int64_t>(1, shape[order[d]]) + (pick(4) == 0 ? pick(3) : 0);
      }
      for (size_t d = 0; may_repeat && d < lead; ++d)
        if (pick(4) == 0) strides[d] = 0;
      return operand(shape, strides, pick(3));
    };
    Operand a = make(m, k, true), b = make(k, n, true), c = make(m, n, false);
    auto p = described(a, b, c, static_cast<int>(pick(3)) == 0 ? static_cast<int>(lead) + 1 : -1);
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
}

} // namespace
} // namespace tessera::cuda
