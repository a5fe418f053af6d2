// Products whose rows end inside a vector access get zeros: the same values, where it pays.
#include "codegen/device/cuda/pad_products.h"
#include "graph/ir/operator.h"
#include "graph/reference/evaluator.h"
#include "symbols/env.h"
#include "tests/driver/cuda.h"
#include <gtest/gtest.h>

namespace tessera {
namespace {

Tensor numbers(DType dtype, Dims dims, int seed) {
  Tensor t = Tensor::create(dtype, std::move(dims)).value();
  for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, static_cast<double>((i * 7 + seed * 13) % 23 - 11) / 16);
  return t;
}
SymShape shape_of(const Dims& dims) { return {dims.begin(), dims.end()}; }
const Attributes kTurn = {{"perm", Ints{1, 0}}};

// Copies cost nothing, so that every product that can gain does.
CudaLibraries free_copies() {
  CudaLibraries libraries;
  libraries.device.memory_bytes_per_us = libraries.device.l2_bytes_per_us = 1e12;
  libraries.device.launch_us = libraries.device.kernel_us = 0;
  return libraries;
}

int pad(Graph& g, const CudaLibraries& libraries, const std::map<std::string, Tensor>& inputs) {
  auto before = evaluate_graph(g, inputs);
  auto padded = pad_products(g, libraries);
  EXPECT_TRUE(padded.ok()) << padded.error().str();
  auto fine = verify(g);
  EXPECT_TRUE(fine.ok()) << fine.error().str();
  auto after = evaluate_graph(g, inputs);
  EXPECT_TRUE(before.ok() && after.ok());
  if (!padded.ok() || !before.ok() || !after.ok()) return -1;
  for (size_t o = 0; o < before->size(); ++o) {
    EXPECT_EQ((*after)[o].dims(), (*before)[o].dims());
    auto same = compare((*after)[o], (*before)[o], 1e-6, 1e-6);
    EXPECT_TRUE(same.same) << o << ": " << same.message;
  }
  return *padded;
}

// Extents of all products of a graph, "5 x 24 x 16" for m, k and n.
std::vector<std::string> products(const Graph& g) {
  std::vector<std::string> out;
  for (NodeId id : g.order()) {
    const Node& node = g.node(id);
    if (node.op->name != std::string_view("matmul")) continue;
    const SymShape &a = g.type(node.operands[0]).shape, &b = g.type(node.operands[1]).shape;
    out.push_back(a[a.size() - 2].str() + " x " + a.back().str() + " x " + b.back().str());
  }
  return out;
}

TEST(PadProducts, EveryExtentInEveryLayout) {
  for (DType dtype : {DType::F16, DType::BF16, DType::F32})
    for (bool left_turned : {false, true})
      for (bool right_turned : {false, true})
        for (bool weight : {false, true})
          for (auto [m, k, n] :
               {std::tuple<int64_t, int64_t, int64_t>{5, 17, 16}, {5, 16, 19}, {3, 33, 9}, {1, 18, 1}}) {
            Graph g;
            const Dims left = left_turned ? Dims{k, m} : Dims{m, k}, right = right_turned ? Dims{n, k} : Dims{k, n};
            const Tensor x = numbers(dtype, left, 1), y = numbers(dtype, right, 2);
            std::map<std::string, Tensor> inputs{{"x", x}};
            ValueId a = g.add_input("x", {dtype, shape_of(left)});
            ValueId b = weight ? g.add_constant(y, "w") : g.add_input("y", {dtype, shape_of(right)});
            if (!weight) inputs["y"] = y;
            if (left_turned) a = g.apply("transpose", {a}, kTurn).value();
            if (right_turned) b = g.apply("transpose", {b}, kTurn).value();
            Attributes attributes;
            if (dtype == DType::F32) attributes.set("tf32", int64_t{1});
            g.add_output("z", g.apply("matmul", {a, b}, attributes).value());
            EXPECT_EQ(pad(g, free_copies(), inputs), 1) << print(g);
            const int64_t whole = dtype == DType::F32 ? 4 : 8;
            auto up = [&](int64_t extent) { return std::to_string((extent + whole - 1) / whole * whole); };
            const bool k_contiguous = !left_turned || right_turned;
            EXPECT_EQ(products(g)[0], (left_turned ? up(m) : std::to_string(m)) + " x " +
                                          (k_contiguous ? up(k) : std::to_string(k)) + " x " + up(n));
            int weights = 0;
            for (NodeId id : g.order()) weights += g.constant(g.node(id).results[0]) != nullptr ? 1 : 0;
            EXPECT_EQ(weights, weight ? 1 : 0) << "it is not there twice";
          }
}

TEST(PadProducts, BatchesAndRowsOfAnyRank) {
  for (auto [left, right] :
       {std::pair<Dims, Dims>{{2, 3, 5, 17}, {17, 9}}, {{3, 5, 17}, {3, 17, 9}}, {{2, 1, 5, 9}, {3, 9, 8}}}) {
    Graph g;
    ValueId a = g.add_input("x", {DType::F16, shape_of(left)}), b = g.add_input("y", {DType::F16, shape_of(right)});
    g.add_output("z", g.apply("matmul", {a, b}).value());
    EXPECT_EQ(pad(g, free_copies(), {{"x", numbers(DType::F16, left, 1)}, {"y", numbers(DType::F16, right, 2)}}), 1);
  }
}

TEST(PadProducts, SymbolicExtentsCountAsTheirHints) {
  for (int64_t hint : {301, 304}) {
    Graph g;
    const SymExpr k = g.env().create_symbol("k");
    g.env().set_hint(k, hint);
    ValueId a = g.add_input("x", {DType::BF16, {64, k}}), b = g.add_input("y", {DType::BF16, {k, 64}});
    g.add_output("z", g.apply("matmul", {a, b}).value());
    const int expected = hint % 8 == 0 ? 0 : 1;
    EXPECT_EQ(
        pad(g, free_copies(), {{"x", numbers(DType::BF16, {64, 21}, 1)}, {"y", numbers(DType::BF16, {21, 64}, 2)}}),
        expected);
    EXPECT_EQ(products(g)[0], expected > 0 ? "64 x 8*floordiv(k + 7, 8) x 64" : "64 x k x 64");
  }
}

TEST(PadProducts, ProductsOfOneOperandShareItsCopy) {
  Graph g;
  ValueId x = g.add_input("x", {DType::F16, {5, 17}});
  for (int i = 0; i < 2; ++i)
    g.add_output("y" + std::to_string(i),
                 g.apply("matmul", {x, g.add_constant(numbers(DType::F16, {17, 8}, i))}).value());
  EXPECT_EQ(pad(g, free_copies(), {{"x", numbers(DType::F16, {5, 17}, 3)}}), 2);
  int pads = 0;
  for (NodeId id : g.order()) pads += g.node(id).op->name == std::string_view("pad") ? 1 : 0;
  EXPECT_EQ(pads, 1) << print(g);
}

// x [rows, k] times a weight [n, k] that is given at run time or, `weight`, when compiling.
int padded_by_price(int64_t rows, int64_t k, int64_t n, bool weight, bool fused = false) {
  Graph g;
  ValueId x = g.add_input("x", {DType::F16, {rows, k}});
  if (fused) x = g.apply("exp", {x}).value();
  ValueId w = weight ? g.add_constant(numbers(DType::F16, {n, k}, 1)) : g.add_input("w", {DType::F16, {n, k}});
  g.add_output("y", g.apply("matmul", {x, g.apply("transpose", {w}, kTurn).value()}).value());
  return pad_products(g, {}).value();
}

TEST(PadProducts, PriceDecides) {
  EXPECT_EQ(padded_by_price(2577, 4411, 3018, false), 1);
  EXPECT_EQ(padded_by_price(11528, 3383, 395, false), 1);
  EXPECT_EQ(padded_by_price(4096, 4096, 4096, false), 0) << "nothing to pad";
  EXPECT_EQ(padded_by_price(4, 301, 4096, false), 0) << "the weight is read once in either way";
  EXPECT_EQ(padded_by_price(64, 65, 66, false), 0) << "a launch takes longer than the product";
}

TEST(PadProducts, AttentionKeepsItsProducts) {
  Graph g;
  const SymShape shape = {2, 4, 1025, 64};
  ValueId q = g.add_input("q", {DType::F16, shape}), k = g.add_input("k", {DType::F16, shape}),
          v = g.add_input("v", {DType::F16, shape});
  ValueId turned = g.apply("transpose", {k}, {{"perm", Ints{0, 1, 3, 2}}}).value();
  ValueId scores = g.apply("matmul", {q, turned}).value();
  const Attributes rows = {{"axes", Ints{3}}, {"keepdims", int64_t{1}}};
  ValueId maximum = g.apply("reduce_max", {scores}, rows).value();
  ValueId e = g.apply("exp", {g.apply("sub", {scores, maximum}).value()}).value();
  ValueId p = g.apply("div", {e, g.apply("reduce_sum", {e}, rows).value()}).value();
  g.add_output("y", g.apply("matmul", {p, v}).value());
  EXPECT_EQ(pad_products(g, free_copies()).value(), 0) << print(g);
}

TEST(PadProducts, ReadersTakeTheSliceAsItIs) {
  Graph g;
  ValueId x = g.add_input("x", {DType::F16, {512, 256}});
  ValueId y = g.apply("matmul", {x, g.add_constant(numbers(DType::F16, {256, 1001}, 1), "w")}).value();
  g.add_output("y", g.apply("add", {y, g.add_constant(numbers(DType::F16, {1001}, 2), "b")}).value());
  ASSERT_EQ(pad_products(g, {}).value(), 1);
  auto plan = plan_fusion(g, driver_test::cuda_fusion()).value();
  ASSERT_EQ(plan.groups.size(), 2u) << print(g, plan);
  EXPECT_EQ(str(plan.groups[0].call.result.strides), "[1008, 1]");
}

TEST(PadProducts, WhatWasAskedForStays) {
  Graph g;
  ValueId x = g.add_input("x", {DType::F16, {512, 257}});
  Location at;
  at.node = "here";
  g.add_output("y", g.apply("matmul", {x, g.add_constant(numbers(DType::F16, {257, 512}, 1))}, {}, at).value());
  CudaLibraries libraries = free_copies();
  libraries.kept_apart = {"here"};
  EXPECT_EQ(pad_products(g, libraries).value(), 0);
}

} // namespace
} // namespace tessera
