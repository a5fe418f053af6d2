// Layouts of tensor-core products, and how their factors come out of shared memory.
#include "codegen/layout/conversion.h"
#include "codegen/layout/dot.h"
#include "tests/tile/helpers.h"
#include <gtest/gtest.h>

namespace tessera::layout {
namespace {

// A kernel with one product, and its Dot.
struct Product {
  tile::Kernel kernel;
  tile::Op dot;
  Product(DType d, int m, int n, int k, bool fold = false) {
    tile::Builder b(kernel);
    auto tile = [&](int rows, int columns, DType type) {
      return b.broadcast(is_float(type) ? b.const_f(type, 1) : b.const_i(type, 1), {rows, columns});
    };
    auto y = b.dot(tile(m, k, d), tile(k, n, d),
                   tile(m, n, d == DType::I8 || d == DType::U8 ? DType::I32 : compute_dtype(d)));
    if (fold) b.reduce(ReduceKind::Sum, y, 1);
    for (tile::OpId id = 0; id < kernel.op_count(); ++id)
      if (kernel.op(id).kind == tile::OpKind::Dot) dot = kernel.op(id);
  }
  [[nodiscard]] DotLayouts layouts(int warps) const { return dot_layouts(kernel, dot, warps); }
};

TEST(Dot, OfOneFragmentIsWhatTheInstructionSays) {
  auto l = Product(DType::F16, 16, 8, 16).layouts(1);
  EXPECT_EQ(l.a.str(), "register: (0, 1) (8, 0) (0, 8) | lane: (0, 2) (0, 4) (1, 0) (2, 0) (4, 0) | warp: -> [16, 16]");
  EXPECT_EQ(l.b.str(), "register: (1, 0) (8, 0) | lane: (2, 0) (4, 0) (0, 1) (0, 2) (0, 4) | warp: -> [16, 8]");
  EXPECT_EQ(l.c.str(), "register: (0, 1) (8, 0) | lane: (0, 2) (0, 4) (1, 0) (2, 0) (4, 0) | warp: -> [16, 8]");
}

TEST(Dot, RegistersHoldFourElementsOf8Bits) {
  auto l = Product(DType::I8, 16, 8, 32).layouts(1);
  EXPECT_EQ(l.a.str(), "register: (0, 1) (0, 2) (8, 0) (0, 16) | lane: (0, 4) (0, 8) (1, 0) (2, 0) (4, 0) | warp: -> "
                       "[16, 32]");
  EXPECT_EQ(l.b.str(), "register: (1, 0) (2, 0) (16, 0) | lane: (4, 0) (8, 0) (0, 1) (0, 2) (0, 4) | warp: -> [32, 8]");
  EXPECT_EQ(l.c, Product(DType::F16, 16, 8, 16).layouts(1).c);
}

TEST(Dot, ResultsAreFactorsOfTheNextOne) {
  for (int warps : {1, 2, 4})
    for (int n : {16, 32, 128})
      EXPECT_EQ(Product(DType::F16, 64, n, 16, true).layouts(warps).c,
                Product(DType::F16, 64, 16, n, true).layouts(warps).a)
          << warps << " " << n;
}

TEST(Dot, WarpsTakeRowsOrBothDimensions) {
  auto warps = [](const LinearLayout& l) { return l.str().substr(l.str().find("warp")); };
  EXPECT_EQ(warps(Product(DType::F16, 64, 64, 16).layouts(4).c), "warp: (16, 0) (0, 32) -> [64, 64]");
  EXPECT_EQ(warps(Product(DType::F16, 64, 64, 16, true).layouts(4).c), "warp: (16, 0) (32, 0) -> [64, 64]");
  EXPECT_EQ(warps(Product(DType::F16, 64, 64, 16).layouts(4).a), "warp: (16, 0) (0, 0) -> [64, 16]");
  EXPECT_EQ(warps(Product(DType::F16, 64, 64, 16).layouts(4).b), "warp: (0, 0) (0, 32) -> [16, 64]");
  EXPECT_EQ(warps(Product(DType::F16, 16, 8, 16).layouts(4).c), "warp: (0, 0) (0, 0) -> [16, 8]");
}

TEST(Dot, WhatTensorCoresTake) {
  auto takes = [](DType d, int m, int n, int k) {
    Product p(d, m, n, k);
    return on_tensor_cores(p.kernel, p.dot);
  };
  EXPECT_TRUE(takes(DType::F16, 16, 8, 16));
  EXPECT_TRUE(takes(DType::BF16, 128, 64, 32));
  EXPECT_TRUE(takes(DType::I8, 16, 8, 32));
  EXPECT_TRUE(takes(DType::U8, 16, 8, 32));
  EXPECT_FALSE(takes(DType::I8, 16, 8, 16));
  EXPECT_FALSE(takes(DType::I32, 64, 64, 64));
  EXPECT_FALSE(takes(DType::F8E4M3FN, 64, 64, 64));
  Product p(DType::F8E4M3FN, 64, 64, 64);
  p.kernel.config[kSmallFloatProducts] = 1;
  EXPECT_TRUE(on_tensor_cores(p.kernel, p.dot));
  EXPECT_FALSE(takes(DType::F32, 64, 64, 64));
  EXPECT_FALSE(takes(DType::F16, 8, 8, 16));
  EXPECT_FALSE(takes(DType::F16, 16, 4, 16));
  EXPECT_FALSE(takes(DType::F16, 16, 8, 8));
}

// Factors in the layouts of loads, along rows or along columns: 16-byte stores, matrices, no bank conflicts.
TEST(Dot, FactorsAreReadAsMatricesWithoutConflicts) {
  for (auto [rows, columns] : {std::pair{64, 64}, {128, 64}, {64, 128}, {32, 32}, {16, 128}, {128, 16}})
    for (int inner : {0, 1})
      for (bool left : {false, true})
        for (int warps : {1, 4}) {
          std::vector<int> shape = {rows, columns}, elements = {1, 1}, lanes = {1, 1}, spread = {1, 1};
          size_t in = static_cast<size_t>(inner), out = 1 - in;
          elements[in] = 8;
          lanes[in] = std::min(32, shape[in] / 8);
          lanes[out] = 32 / lanes[in];
          if (rows * columns < 256 * warps) continue;
          spread[out] = std::min(warps, shape[out] / lanes[out]);
          spread[in] = warps / spread[out];
          auto from = LinearLayout::blocked({shape, {inner, 1 - inner}, elements, lanes, spread}, warps);
          auto l = left ? Product(DType::F16, rows, 64, columns).layouts(warps).a
                        : Product(DType::F16, 64, columns, rows).layouts(warps).b;
          Conversion c = plan_conversion(from, l, 2);
          ASSERT_EQ(c.kind, Conversion::Kind::Shared);
          bool along = left == (inner == 1); // contiguous along the depth
          EXPECT_EQ(c.load_matrices, along ? Conversion::Matrices::Rows : Conversion::Matrices::Columns) << c.str();
          EXPECT_EQ(c.matrices(), 4);
          EXPECT_EQ(c.store_width, 8);
          EXPECT_EQ(c.store_wavefronts + c.load_wavefronts, c.least_wavefronts) << c.str() << "\n" << from.str();
        }
}

} // namespace
} // namespace tessera::layout
