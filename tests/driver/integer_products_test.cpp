// Products of 8-bit integers by libraries of floating point: exact for any length, in as few pieces as that takes.
#include "codegen/device/integer_products.h"
#include "graph/reference/evaluator.h"
#include "harness.h"
#include <algorithm>
#include <random>

namespace tessera::driver_test {
namespace {

// y = (x - zero) w in i32, x: u8[n, k] or images, w: i8.
Graph product(int64_t k, bool zero) {
  Graph g("product");
  const SymExpr n = g.env().create_symbol("n", {0, 64});
  const ValueId x = g.add_input("x", {DType::U8, {n, k}}), w = g.add_input("w", {DType::I8, {k, 5}});
  const auto wide = [&](ValueId v) { return g.apply("cast", {v}, {{"to", DType::I32}}).value(); };
  ValueId a = wide(x);
  if (zero) a = g.apply("sub", {a, wide(g.add_input("z", {DType::U8, {}}))}).value();
  g.add_output("y", g.apply("matmul", {a, wide(w)}).value());
  return g;
}
Graph convolution(int64_t channels, int64_t groups) {
  Graph g("convolution");
  const SymExpr n = g.env().create_symbol("n", {1, 64});
  const ValueId x = g.add_input("x", {DType::U8, {n, channels, 6, 5}}),
                w = g.add_input("w", {DType::I8, {4, channels / groups, 3, 3}});
  const auto wide = [&](ValueId v) { return g.apply("cast", {v}, {{"to", DType::I32}}).value(); };
  g.add_output("y", g.apply("conv", {wide(x), wide(w)},
                            {{"strides", Ints{1, 1}},
                             {"pads_begin", Ints{1, 1}},
                             {"pads_end", Ints{1, 1}},
                             {"dilations", Ints{1, 1}},
                             {"groups", groups}})
                        .value());
  return g;
}
Tensor all(DType dtype, const Dims& dims, int64_t value) {
  Tensor t = Tensor::create(dtype, dims).value();
  for (int64_t i = 0; i < t.count(); ++i) t.set_i64(i, value);
  return t;
}
// Any values from `least` on.
Tensor drawn(DType dtype, const Dims& dims, int64_t least) {
  Tensor t = all(dtype, dims, 0);
  std::minstd_rand bits(7);
  for (int64_t i = 0; i < t.count(); ++i) t.set_i64(i, least + static_cast<int64_t>(bits() >> 8 & 255));
  return t;
}
int count(const Graph& g, std::string_view op, DType dtype) {
  const auto order = g.order();
  return static_cast<int>(std::count_if(order.begin(), order.end(), [&](NodeId id) {
    return g.node(id).op->name == op && g.type(g.node(id).results[0]).dtype == dtype;
  }));
}
void expect_exact(const Graph& source, const Compiled& compiled, const Inputs& inputs) {
  expect_right(source, compiled, inputs, 0);
}

TEST(IntegerProducts, AreExactAtEveryLength) {
  TemporaryFolder folder;
  for (int64_t k : {1, 2, 257, 513, 514, 515, 1029, 3000})
    for (bool zero : {false, true}) {
      SCOPED_TRACE("k " + std::to_string(k) + (zero ? ", a zero point" : ""));
      const Graph source = product(k, zero);
      const Compiled compiled = compile_it(product(k, zero), options(folder.path()));
      EXPECT_EQ(count(*compiled.graph, "matmul", DType::I32), 0);
      EXPECT_EQ(count(*compiled.graph, "matmul", DType::F32), (k + 513) / 514);
      for (const auto& [x, w] : {std::pair{255, -128}, std::pair{255, 127}, std::pair{0, -128}})
        for (int64_t n : {0, 1, 7}) {
          Inputs inputs{{"x", all(DType::U8, {n, k}, x)}, {"w", all(DType::I8, {k, 5}, w)}};
          if (zero) inputs["z"] = all(DType::U8, {}, 255 - x);
          expect_exact(source, compiled, inputs);
        }
      Inputs inputs{{"x", drawn(DType::U8, {9, k}, 0)}, {"w", drawn(DType::I8, {k, 5}, -128)}};
      if (zero) inputs["z"] = all(DType::U8, {}, 100);
      expect_exact(source, compiled, inputs);
    }
}

TEST(IntegerProducts, Convolutions) {
  TemporaryFolder folder;
  for (const auto& [channels, groups, pieces] : {std::tuple{8, 1, 1}, std::tuple{60, 1, 2}, std::tuple{8, 4, 1}}) {
    SCOPED_TRACE(channels);
    const Graph source = convolution(channels, groups);
    const Compiled compiled = compile_it(convolution(channels, groups), options(folder.path()));
    EXPECT_EQ(count(*compiled.graph, "conv", DType::I32), 0);
    EXPECT_EQ(count(*compiled.graph, "conv", DType::F32), pieces);
    for (int w : {-128, 127})
      expect_exact(
          source, compiled,
          {{"x", all(DType::U8, {2, channels, 6, 5}, 255)}, {"w", all(DType::I8, {4, channels / groups, 3, 3}, w)}});
  }
}

// Products whose operands may be large, or that are summed over a length that calls decide, stay as they are.
TEST(IntegerProducts, OthersAreLeft) {
  Graph g("wide");
  const SymExpr n = g.env().create_symbol("n", {1, 64});
  const auto wide = [&](ValueId v) { return g.apply("cast", {v}, {{"to", DType::I32}}).value(); };
  const ValueId x = g.add_input("x", {DType::I16, {4, 8}}), y = g.add_input("y", {DType::I8, {8, 4}});
  const ValueId p = g.add_input("p", {DType::I8, {4, n}}), q = g.add_input("q", {DType::I8, {n, 4}});
  g.add_output("a", g.apply("matmul", {wide(x), wide(y)}).value());
  g.add_output("b", g.apply("matmul", {wide(p), wide(q)}).value());
  EXPECT_FALSE(small_integer_products(g, true).value());
}

// Tensor cores take 8-bit integers that are dense along the sum.
TEST(IntegerProducts, AreLeftToTensorCores) {
  for (const bool transposed : {false, true}) {
    Graph g("bytes");
    const auto wide = [&](ValueId v) { return g.apply("cast", {v}, {{"to", DType::I32}}).value(); };
    const ValueId x = g.add_input("x", {DType::U8, {64, 96}}),
                  w = g.add_input("w", {DType::I8, transposed ? SymShape{32, 96} : SymShape{96, 32}});
    const ValueId right = transposed ? g.apply("transpose", {w}, {{"perm", Ints{1, 0}}}).value() : w;
    g.add_output("y", g.apply("matmul", {wide(x), wide(right)}).value());
    EXPECT_EQ(small_integer_products(g, false, true).value(), !transposed);
    EXPECT_EQ(count(g, "matmul", DType::I32), transposed ? 1 : 0);
  }
}

} // namespace
} // namespace tessera::driver_test
