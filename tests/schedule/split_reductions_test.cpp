// Reductions in two steps: which are cut, and that they mean the same.
#include "codegen/schedule/split_reductions.h"
#include "graph/reference/evaluator.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace tessera::test {
namespace {

struct Cut {
  Graph before, after;
  int count = 0;
};
Cut cut(const char* op, DType dtype, const SymShape& shape, const Ints& axes, bool keepdims) {
  Cut c;
  ValueId x = c.before.add_input("x", {dtype, shape});
  auto y = c.before.apply(op, {x}, {{"axes", axes}, {"keepdims", int64_t{keepdims}}});
  EXPECT_TRUE(y.ok()) << y.error().str();
  c.before.value(*y).name = "total";
  c.before.add_output("y", *y);
  c.after = c.before.clone();
  DeviceTraits device;
  device.kind = DeviceTraits::Kind::Cuda;
  auto count = split_reductions(c.after, device);
  EXPECT_TRUE(count.ok()) << count.error().str();
  if (count.ok()) c.count = *count;
  auto ok = verify(c.after);
  EXPECT_TRUE(ok.ok()) << ok.error().str() << print(c.after);
  return c;
}
int steps(const Graph& g) {
  int n = 0;
  for (NodeId id : g.order()) n += g.node(id).op->reduction() != nullptr;
  return n;
}

void expect_same_meaning(const char* op, DType dtype, const Dims& dims, const Ints& axes, bool keepdims) {
  SCOPED_TRACE(std::string(op) + (keepdims ? " keepdims" : ""));
  Cut c = cut(op, dtype, SymShape(dims.begin(), dims.end()), axes, keepdims);
  EXPECT_EQ(c.count, 1) << print(c.after);
  EXPECT_EQ(steps(c.after), 2);
  EXPECT_EQ(c.after.type(c.after.outputs()[0].value), c.before.type(c.before.outputs()[0].value));
  EXPECT_EQ(c.after.value(c.after.outputs()[0].value).name, "total");
  std::mt19937 rng(11);
  Tensor x = Tensor::create(dtype, dims).value();
  for (int64_t i = 0; i < x.count(); ++i) {
    auto v = static_cast<int64_t>(rng() % 3) - 1;
    is_float(dtype) ? x.set_f64(i, static_cast<double>(v)) : x.set_i64(i, v);
  }
  auto expected = evaluate_graph(c.before, {{"x", x}}), actual = evaluate_graph(c.after, {{"x", x}});
  ASSERT_TRUE(expected.ok() && actual.ok());
  Comparison same = compare(actual.value()[0], expected.value()[0], 0, 0);
  EXPECT_TRUE(same.same) << same.message << print(c.after);
}

TEST(SplitReductions, MeanTheSame) {
  for (bool keep : {false, true}) {
    expect_same_meaning("reduce_sum", DType::F32, {1 << 18}, {0}, keep);
    expect_same_meaning("reduce_max", DType::I32, {3, 1 << 17}, {1}, keep);
    expect_same_meaning("reduce_sum", DType::F16, {2, 1 << 12, 5, 60}, {1, 3}, keep);
    expect_same_meaning("reduce_min", DType::F64, {1 << 16, 8}, {0}, keep);       // columns
    expect_same_meaning("reduce_sum", DType::I32, {3, 2, 1 << 18}, {0, 2}, keep); // 3 has no divisor of use
    expect_same_meaning("reduce_any", DType::Bool, {1, 3 * 1000 * 1000}, {0, 1}, keep);
  }
}

TEST(SplitReductions, PartialResultsOfHalvesAreWide) {
  Cut c = cut("reduce_sum", DType::F16, {1 << 20}, {0}, false);
  ASSERT_EQ(c.count, 1);
  for (NodeId id : c.after.order()) {
    const Node& n = c.after.node(id);
    if (n.op->reduction()) {
      EXPECT_EQ(c.after.type(n.results[0]).dtype, DType::F32) << print(c.after);
    }
  }
}

TEST(SplitReductions, OnlyWhereTwoStepsAreFaster) {
  auto count = [](const char* op, const SymShape& shape, const Ints& axes) {
    return cut(op, DType::F32, shape, axes, true).count;
  };
  EXPECT_EQ(count("reduce_sum", {8192, 4096}, {1}), 0);  // enough rows
  EXPECT_EQ(count("reduce_sum", {1, 50257}, {1}), 0);    // small
  EXPECT_EQ(count("reduce_sum", {64, 40960}, {1}), 0);   // half of the multiprocessors, short
  EXPECT_EQ(count("reduce_sum", {16, 1 << 20}, {1}), 1); // few and long
  EXPECT_EQ(count("reduce_sum", {65536, 1024}, {0}), 1); // few columns
  EXPECT_EQ(count("reduce_sum", {512, 16384}, {0}), 0);  // many columns
  EXPECT_EQ(count("reduce_sum", {1000003}, {0}), 0);     // prime
  EXPECT_EQ(count("argmax", {1 << 20}, {0}), 0);         // positions would have to travel along
  EXPECT_EQ(count("reduce_sum", {SymExpr::symbol("n")}, {0}), 0);
}

} // namespace
} // namespace tessera::test
