// Products of f32 become products of three bf16 parts: the same values, where it pays.
#include "codegen/device/cuda/split_products.h"
#include "graph/ir/operator.h"
#include "graph/reference/evaluator.h"
#include "symbols/env.h"
#include "tests/driver/cuda.h"
#include <gtest/gtest.h>

namespace tessera {
namespace {

Tensor numbers(Dims dims, int seed) {
  Tensor t = Tensor::create(DType::F32, std::move(dims)).value();
  for (int64_t i = 0; i < t.count(); ++i)
    t.set_f64(i, static_cast<double>((i * 7919 + seed * 104729) % 99991 - 49995) / 3e4);
  return t;
}
SymShape shape_of(const Dims& dims) { return {dims.begin(), dims.end()}; }
const Attributes kTurn = {{"perm", Ints{1, 0}}};

// Units for f32 are so slow that every product that can gain does.
CudaLibraries slow_units() {
  CudaLibraries libraries;
  libraries.device.fma_per_cycle *= 1e-3;
  return libraries;
}
int count(const Graph& g, std::string_view op) {
  int out = 0;
  for (NodeId id : g.order()) out += g.node(id).op->name == op ? 1 : 0;
  return out;
}

void expect_split(Graph& g, const std::map<std::string, Tensor>& inputs, int products, int parts) {
  auto before = evaluate_graph(g, inputs);
  auto split = split_products(g, slow_units());
  ASSERT_TRUE(split.ok()) << split.error().str();
  EXPECT_EQ(*split, products) << print(g);
  auto fine = verify(g);
  ASSERT_TRUE(fine.ok()) << fine.error().str();
  EXPECT_EQ(count(g, "matmul"), 0);
  EXPECT_EQ(count(g, "matmul_of_parts"), products);
  EXPECT_EQ(count(g, "float_part"), parts) << print(g);
  auto after = evaluate_graph(g, inputs);
  ASSERT_TRUE(before.ok() && after.ok());
  for (size_t o = 0; o < before->size(); ++o) {
    EXPECT_EQ((*after)[o].dims(), (*before)[o].dims());
    auto same = compare((*after)[o], (*before)[o], 1e-7, 1e-7);
    EXPECT_TRUE(same.same) << o << ": " << same.message;
  }
}

TEST(SplitProducts, EveryExtentInEveryLayout) {
  for (bool left_turned : {false, true})
    for (bool right_turned : {false, true})
      for (auto [m, k, n] : {std::tuple<int64_t, int64_t, int64_t>{65, 71, 130}, {64, 64, 128}, {66, 130, 63}}) {
        Graph g;
        const Dims left = left_turned ? Dims{k, m} : Dims{m, k}, right = right_turned ? Dims{n, k} : Dims{k, n};
        ValueId a = g.add_input("x", {DType::F32, shape_of(left)}), b = g.add_constant(numbers(right, 2), "w");
        if (left_turned) a = g.apply("transpose", {a}, kTurn).value();
        if (right_turned) b = g.apply("transpose", {b}, kTurn).value();
        g.add_output("z", g.apply("matmul", {a, b}).value());
        expect_split(g, {{"x", numbers(left, 1)}}, 1, 6);
        if (HasFatalFailure()) return;
      }
}

TEST(SplitProducts, BatchesAndSharedOperands) {
  for (auto [left, right] :
       {std::pair<Dims, Dims>{{2, 3, 65, 17}, {17, 64}}, {{3, 65, 17}, {3, 17, 65}}, {{2, 1, 65, 9}, {3, 9, 64}}}) {
    Graph g;
    ValueId a = g.add_input("x", {DType::F32, shape_of(left)}), b = g.add_input("y", {DType::F32, shape_of(right)});
    g.add_output("z", g.apply("matmul", {a, b}).value());
    expect_split(g, {{"x", numbers(left, 1)}, {"y", numbers(right, 2)}}, 1, 6);
  }
  Graph g;
  ValueId x = g.add_input("x", {DType::F32, {65, 65}});
  for (int i = 0; i < 2; ++i)
    g.add_output("y" + std::to_string(i), g.apply("matmul", {x, g.add_constant(numbers({65, 128}, i))}).value());
  g.add_output("y2", g.apply("matmul", {x, g.apply("transpose", {x}, kTurn).value()}).value());
  expect_split(g, {{"x", numbers({65, 65}, 3)}}, 3, 9);
}

// The planner writes parts to memory once, all of an operand by one kernel, and generates the product.
TEST(SplitProducts, OneKernelWritesTheParts) {
  for (int64_t k : {512, 513}) {
    Graph g;
    ValueId x = g.add_input("x", {DType::F32, {1024, k}}), w = g.add_input("w", {DType::F32, {k, 1024}});
    ValueId y = g.apply("matmul", {g.apply("exp", {x}).value(), w}).value();
    g.add_output("y", g.apply("tanh", {y}).value());
    ASSERT_EQ(split_products(g, {}).value(), 1);
    auto plan = plan_fusion(g, driver_test::cuda_fusion()).value();
    EXPECT_EQ(plan.groups.size(), 3u) << print(g, plan);
    for (const Group& group : plan.groups) EXPECT_EQ(group.kind, Group::Kind::Kernel);
    EXPECT_EQ(plan.groups.back().nest.loads.size(), 6u) << print(g, plan);
  }
}

// Products that share an operand, and a norm behind one of them: each product is the one sum of its kernel.
TEST(SplitProducts, NoOtherSumIsInTheirKernels) {
  Graph g;
  ValueId x = g.add_input("x", {DType::F32, {4096, 768}});
  for (int i = 0; i < 3; ++i) {
    ValueId w = g.add_input("w" + std::to_string(i), {DType::F32, {768, 768}});
    ValueId y = g.apply("matmul", {x, w}).value();
    if (i == 2)
      y = g.apply("sub", {y, g.apply("reduce_max", {y}, {{"axes", Ints{1}}, {"keepdims", int64_t{1}}}).value()})
              .value();
    g.add_output("y" + std::to_string(i), y);
  }
  ASSERT_EQ(split_products(g, {}).value(), 3);
  auto plan = plan_fusion(g, driver_test::cuda_fusion()).value();
  int products = 0;
  for (const Group& group : plan.groups) {
    int sums = 0, of_parts = 0;
    for (ScalarId id = 0; id < group.nest.dag.size(); ++id) sums += group.nest.dag[id].op == ScalarOp::Reduce ? 1 : 0;
    for (NodeId id : group.nest.sources) of_parts += g.node(id).op->name == std::string_view("matmul_of_parts") ? 1 : 0;
    EXPECT_TRUE(of_parts == 0 || sums == 1) << print(g, plan);
    products += of_parts;
  }
  EXPECT_EQ(products, 3);
}

int split_by_price(int64_t rows, int64_t k, int64_t n, DType dtype = DType::F32, const Attributes& attributes = {}) {
  Graph g;
  ValueId x = g.add_input("x", {dtype, {rows, k}}), w = g.add_input("w", {dtype, {k, n}});
  g.add_output("y", g.apply("matmul", {x, w}, attributes).value());
  return split_products(g, {}).value();
}

TEST(SplitProducts, PriceDecides) {
  EXPECT_EQ(split_by_price(4096, 4096, 4096), 1);
  EXPECT_EQ(split_by_price(2577, 4411, 3018), 1);
  EXPECT_EQ(split_by_price(1, 4096, 4096), 0) << "the weight is read once";
  EXPECT_EQ(split_by_price(64, 64, 64), 0) << "a launch takes longer than the product";
  EXPECT_EQ(split_by_price(0, 64, 64), 0);
  EXPECT_EQ(split_by_price(4096, 4096, 4096, DType::F32, {{"tf32", int64_t{1}}}), 0) << "the library is faster";
  EXPECT_EQ(split_by_price(4096, 4096, 4096, DType::F16), 0);
  EXPECT_EQ(split_by_price(4096, 4096, 4096, DType::F64), 0);
}

TEST(SplitProducts, OnlyWhereWarpgroupsMultiply) {
  CudaLibraries libraries = slow_units();
  libraries.device.warpgroup_f16_per_cycle = 0;
  Graph g;
  ValueId x = g.add_input("x", {DType::F32, {4096, 4096}});
  g.add_output("y", g.apply("matmul", {x, x}).value());
  EXPECT_EQ(split_products(g, libraries).value(), 0);
}

} // namespace
} // namespace tessera
