// Products of one operand become one: the same values, and what would lose by it stays.
#include "codegen/device/cuda/join_products.h"
#include "graph/ir/operator.h"
#include "graph/reference/evaluator.h"
#include "symbols/env.h"
#include "tests/driver/cuda.h"
#include <cmath>
#include <gtest/gtest.h>

namespace tessera {
namespace {

Tensor numbers(DType dtype, Dims dims, int seed) {
  Tensor t = Tensor::create(dtype, std::move(dims)).value();
  for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, static_cast<double>((i * 7 + seed * 13) % 23 - 11) / 16);
  return t;
}

// x: [rows, 16], and products of it.
struct Layer {
  explicit Layer(DType type) : dtype(type) { x = g.add_input("x", {type, {g.env().create_symbol("rows"), 16}}); }
  ValueId op(std::string_view name, std::vector<ValueId> operands, Attributes attributes = {}) {
    return g.apply(name, std::move(operands), std::move(attributes)).value();
  }
  ValueId constant(Dims dims) {
    ++seed;
    return g.add_constant(numbers(dtype, std::move(dims), seed), "c" + std::to_string(seed));
  }
  ValueId product(int64_t columns) { return op("matmul", {x, constant({16, columns})}); }
  // Joins; `count` products went into others, and the outputs are what they were.
  void joined(int count) {
    std::map<std::string, Tensor> inputs{{"x", numbers(dtype, {5, 16}, 3)}};
    auto before = evaluate_graph(g, inputs);
    auto joined = join_products(g, {});
    ASSERT_TRUE(joined.ok()) << joined.error().str();
    EXPECT_EQ(*joined, count) << print(g);
    auto fine = verify(g);
    ASSERT_TRUE(fine.ok()) << fine.error().str();
    auto after = evaluate_graph(g, inputs);
    ASSERT_TRUE(before.ok() && after.ok());
    for (size_t o = 0; o < before->size(); ++o) {
      auto same = compare((*after)[o], (*before)[o], 1e-6, 1e-6);
      EXPECT_TRUE(same.same) << o << ": " << same.message;
    }
  }
  [[nodiscard]] FusionPlan plan() { return plan_fusion(g, driver_test::cuda_fusion()).value(); }
  [[nodiscard]] int products() const {
    int n = 0;
    for (NodeId id : g.order()) n += g.node(id).op->name == std::string_view("matmul") ? 1 : 0;
    return n;
  }
  Graph g;
  DType dtype;
  ValueId x;
  int seed = 0;
};

TEST(JoinProducts, AttentionReadsColumnsOfOneProduct) {
  for (DType dtype : {DType::F32, DType::F16}) {
    Layer l(dtype);
    ValueId q = l.op("add", {l.product(24), l.constant({24})});
    ValueId k = l.op("add", {l.constant({1, 24}), l.product(24)}); // the bias first, of another rank
    ValueId v = l.product(8);                                      // without one
    ValueId scores = l.op("matmul", {q, l.op("transpose", {k}, {{"perm", Ints{1, 0}}})});
    l.g.add_output("y", l.op("matmul", {scores, v}));
    l.joined(2);
    auto plan = l.plan();
    ASSERT_EQ(plan.groups.size(), 3u) << print(l.g, plan);
    const auto& wide = plan.groups[0].call;
    EXPECT_TRUE(wide.result.shape.back().is_const(56));
    ASSERT_TRUE(wide.fixed && wide.fixed->bias);
    const auto& of_scores = plan.groups[1].call.operands;
    EXPECT_EQ(str(of_scores[0].strides), "[56, 1]");
    EXPECT_TRUE(of_scores[0].offset.is_const(0));
    EXPECT_EQ(str(of_scores[1].strides), "[1, 56]") << "a transpose of columns";
    EXPECT_TRUE(of_scores[1].offset.is_const(24));
    EXPECT_TRUE(plan.groups[2].call.operands[1].offset.is_const(48));
    EXPECT_EQ(plan.groups[2].call.operands[1].value, wide.fixed->result.value) << "nothing is copied";
  }
}

TEST(JoinProducts, GatesOfAFeedForwardLayer) {
  Layer l(DType::F32);
  ValueId gate = l.product(32), up = l.product(32);
  ValueId silu = l.op("mul", {gate, l.op("sigmoid", {gate})});
  l.g.add_output("y", l.op("mul", {silu, up}));
  l.joined(1);
  EXPECT_EQ(l.plan().groups.size(), 2u);
}

TEST(JoinProducts, ActivationsThatAllHaveAreTakenAlong) {
  Layer l(DType::F32);
  std::vector<ValueId> parts;
  ValueId zero = l.g.add_constant(Tensor::create(DType::F32, {}, true).value(), "zero");
  for (int64_t columns : {8, 4, 12})
    parts.push_back(l.op("max", {l.op("add", {l.product(columns), l.constant({columns})}), zero}));
  ValueId scores = l.op("matmul", {l.op("transpose", {parts[0]}, {{"perm", Ints{1, 0}}}), parts[1]});
  l.g.add_output("y", scores);
  l.g.add_output("z", l.op("exp", {parts[2]}));
  l.joined(2);
  EXPECT_EQ(l.plan().groups.size(), 3u); // exp reads what it is for in place
  Layer m(DType::F32);                   // a third product without it
  zero = m.g.add_constant(Tensor::create(DType::F32, {}, true).value(), "zero");
  ValueId a = m.op("max", {m.product(8), zero}), b = m.op("max", {m.product(4), zero}), c = m.product(4);
  m.g.add_output("y", m.op("matmul", {m.op("transpose", {a}, {{"perm", Ints{1, 0}}}), b}));
  m.g.add_output("z", m.op("matmul", {m.op("transpose", {c}, {{"perm", Ints{1, 0}}}), b}));
  m.joined(1);
  auto plan = m.plan();
  ASSERT_FALSE(plan.groups.empty());
  EXPECT_EQ(plan.groups.size(), 4u) << print(m.g, plan);
}

TEST(JoinProducts, WeightsThatAreTurned) {
  Layer l(DType::F32);
  auto turned = [&](int64_t columns) {
    return l.op("matmul", {l.x, l.op("transpose", {l.constant({columns, 16})}, {{"perm", Ints{1, 0}}})});
  };
  ValueId a = turned(8), b = turned(12);
  l.g.add_output("y", l.op("matmul", {l.op("transpose", {a}, {{"perm", Ints{1, 0}}}), b}));
  l.joined(1);
  EXPECT_EQ(l.products(), 2);
}

TEST(JoinProducts, WhatWouldLoseStays) {
  {
    Layer l(DType::F32); // an output; residuals; a weight that others read
    ValueId a = l.product(16), b = l.product(16), c = l.product(16), w = l.constant({16, 16});
    l.g.add_output("a", a);
    l.g.add_output("b", l.op("add", {b, l.x}));
    l.g.add_output("c", l.op("add", {l.op("reshape", {c}, {{"shape", l.g.type(c).shape}}), l.x}));
    ValueId turned = l.op("transpose", {w}, {{"perm", Ints{1, 0}}});
    l.g.add_output("d", l.op("matmul", {l.op("matmul", {l.x, w}), turned}));
    l.joined(0);
  }
  {
    Layer l(DType::F16); // columns that are not at multiples of 16 bytes
    ValueId a = l.product(7), b = l.product(7);
    l.g.add_output("y", l.op("mul", {a, b}));
    l.joined(0);
  }
}

// Two families with one bias: the joined biases have names of their own.
TEST(JoinProducts, ValuesHaveOneNameEach) {
  Layer l(DType::F32);
  const ValueId bias = l.constant({24});
  const ValueId other = l.op("neg", {l.x});
  std::vector<ValueId> sums;
  for (ValueId operand : {l.x, other}) {
    const ValueId q = l.op("add", {l.op("matmul", {operand, l.constant({16, 24})}), bias});
    const ValueId k = l.op("add", {l.op("matmul", {operand, l.constant({16, 24})}), bias});
    sums.push_back(l.op("matmul", {q, l.op("transpose", {k}, {{"perm", Ints{1, 0}}})}));
  }
  l.g.add_output("y", l.op("mul", {sums[0], sums[1]}));
  l.joined(2);
}

TEST(JoinProducts, WeightsAreCopiedOnceForAllVariants) {
  Tensor parts[] = {numbers(DType::F32, {16, 8}, 1), numbers(DType::F32, {16, 12}, 2)};
  auto joined = [&] {
    Graph g;
    ValueId x = g.add_input("x", {DType::F32, {4, 16}});
    ValueId a = g.apply("matmul", {x, g.add_constant(parts[0])}).value();
    ValueId b = g.apply("matmul", {x, g.add_constant(parts[1])}).value();
    ValueId turned = g.apply("transpose", {a}, {{"perm", Ints{1, 0}}}).value();
    g.add_output("y", g.apply("matmul", {turned, b}).value());
    EXPECT_EQ(join_products(g, {}).value(), 1);
    for (NodeId id : g.order())
      if (const Tensor* t = g.constant(g.node(id).results[0])) return *t;
    return Tensor();
  };
  Tensor first = joined(), second = joined();
  ASSERT_TRUE(first.defined());
  EXPECT_EQ(first.dims(), (Dims{16, 20}));
  EXPECT_EQ(first.data(), second.data());
}

} // namespace
} // namespace tessera
