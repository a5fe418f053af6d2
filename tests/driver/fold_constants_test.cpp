// Values that depend on no input are computed when compiling: no step is left of them, and results stay right. Tests
// the bound, and what stays: random numbers, errors of the run, weights that a kernel reads in fewer bytes.
#include "graph/ops/samples.h"
#include "harness.h"

namespace tessera::driver_test {
namespace {

// The mask of shifted windows in vision transformers, as exporters write it: regions numbered by a chain of ScatterND,
// cut into windows, compared pairwise. `side` in windows of 4.
Graph window_mask(int64_t side) {
  Graph g("main");
  auto apply = [&](std::string_view op, std::vector<ValueId> operands, Attributes attributes = {}) {
    auto v = g.apply(op, std::move(operands), std::move(attributes));
    EXPECT_TRUE(v.ok()) << (v.ok() ? "" : v.error().str());
    return v.ok() ? *v : ValueId{};
  };
  const int64_t n = side / 4;
  ValueId x = g.add_input("x", {DType::F32, {n * n, 2, 16, 16}});
  ValueId map = apply("expand", {g.add_constant(ops::scalar(DType::F32, 0))}, {{"shape", SymShape{side, side}}});
  const int64_t ends[] = {0, side - 4, side - 2, side};
  for (int i = 0; i < 3; ++i)
    for (int k = 0; k < 3; ++k) {
      Ints at;
      for (int64_t row = ends[i]; row < ends[i + 1]; ++row)
        for (int64_t column = ends[k]; column < ends[k + 1]; ++column) at.insert(at.end(), {row, column});
      const auto count = static_cast<int64_t>(at.size()) / 2;
      const std::vector<double> number(static_cast<size_t>(count), static_cast<double>(3 * i + k));
      map = apply("scatter_nd",
                  {map, g.add_constant(Tensor::of<int64_t>(DType::I64, {count, 2}, std::span<const int64_t>(at))),
                   g.add_constant(Tensor::of<double>(DType::F32, {count}, std::span<const double>(number)))});
    }
  ValueId cut = apply("reshape", {map}, {{"shape", SymShape{n, 4, n, 4}}});
  cut = apply("transpose", {cut}, {{"perm", Ints{0, 2, 1, 3}}});
  ValueId rows = apply("reshape", {cut}, {{"shape", SymShape{n * n, 1, 1, 16}}});
  ValueId columns = apply("reshape", {cut}, {{"shape", SymShape{n * n, 1, 16, 1}}});
  ValueId differ = apply("ne", {apply("sub", {rows, columns}), g.add_constant(ops::scalar(DType::F32, 0))});
  ValueId mask = apply(
      "select", {differ, g.add_constant(ops::scalar(DType::F32, -100)), g.add_constant(ops::scalar(DType::F32, 0))});
  g.add_output("y", apply("add", {x, mask}));
  return g;
}

TEST(FoldConstants, MaskOfShiftedWindowsIsNoStepOfItsOwn) {
  TemporaryFolder folder;
  for (int64_t side : {16, 96}) { // indices of 1 KB, and of more than the pass `fold` takes
    SCOPED_TRACE(side);
    const Graph source = window_mask(side);
    auto c = compile_it(source.clone(), options(folder.path()));
    ASSERT_TRUE(c.executable);
    EXPECT_EQ(c.executable->host_steps, 0);
    EXPECT_EQ(c.executable->steps.size(), 1u);
    EXPECT_TRUE(c.report.constants.left.empty());
    const int64_t windows = side * side / 16;
    expect_right(source, c, {{"x", random(DType::F32, {windows, 2, 16, 16})}}, 0);
  }
}

TEST(FoldConstants, MaskHasNoHostStepOnAGpu) {
  TemporaryFolder folder;
  CompileOptions o = options(folder.path());
  o.device = "cuda";
  auto c = compile_it(window_mask(96), o);
  ASSERT_TRUE(c.executable);
  EXPECT_EQ(c.executable->host_steps, 0);
  EXPECT_EQ(c.executable->steps.size(), 1u);
}

TEST(FoldConstants, TheBoundIsKeptAndNamed) {
  TemporaryFolder folder;
  CompileOptions o = options(folder.path());
  o.fold_bytes = 1000;
  const Graph source = parse(R"(graph @main(%x: f32[64, 64]) -> (%y: f32[64, 64]) {
  %i = constant {1, 0} : i64[1, 2]
  %u = constant {2.5} : f32[1]
  %zero = constant {0.0} : f32[]
  %z = expand(%zero) shape=[64, 64] : f32[64, 64]
  %s = scatter_nd(%z, %i, %u) reduction="none" : f32[64, 64]
  %y = mul(%x, %s) : f32[64, 64]
})");
  auto bounded = compile_it(source.clone(), o);
  ASSERT_TRUE(bounded.executable);
  EXPECT_EQ(bounded.executable->host_steps, 0);
  ASSERT_EQ(bounded.report.constants.left.size(), 1u);
  const auto& left = bounded.report.constants.left[0];
  EXPECT_EQ(left.op, "scatter");
  EXPECT_EQ(left.bytes, 64 * 64 * 4);
  EXPECT_NE(left.why.find("more than 1000 bytes"), std::string::npos) << left.why;
  auto free = compile_it(source.clone(), options(folder.path()));
  ASSERT_TRUE(free.executable);
  EXPECT_EQ(free.executable->host_steps, 0);
  EXPECT_EQ(free.report.constants.values, 1);
  EXPECT_EQ(free.report.constants.bytes, 64 * 64 * 4);
  for (const auto* c : {&bounded, &free}) expect_right(source, *c, {{"x", random(DType::F32, {64, 64})}}, 0);
}

// A sum that is small is not computed where that takes as long as its 2^40 addends are many, though they need no memory.
TEST(FoldConstants, TheBoundIsOneOfTimeToo) {
  TemporaryFolder folder;
  auto c = compile_it(parse(R"(graph @main(%x: f32[4]) -> (%y: f32[4]) {
  %one = constant {1.0} : f32[1]
  %many = expand(%one) shape=[1099511627776] : f32[1099511627776]
  %e = exp(%many) : f32[1099511627776]
  %s = reduce_sum(%e) axes=[0] keepdims=1 : f32[1]
  %y = mul(%x, %s) : f32[4]
})"),
                      options(folder.path()));
  ASSERT_TRUE(c.executable);
  EXPECT_EQ(c.report.constants.values, 0);
  ASSERT_EQ(c.report.constants.left.size(), 1u);
  EXPECT_NE(c.report.constants.left[0].why.find("or what it is made from"), std::string::npos);
}

TEST(FoldConstants, SizesThatDataTellsAreKnown) {
  TemporaryFolder folder;
  Graph g("main");
  ValueId x = g.add_input("x", {DType::F32, {20000}});
  ValueId w = g.add_constant(ops::random(DType::F32, {20000}, 3, -1, 1));
  ValueId positive = g.apply("gt", {w, g.add_constant(ops::scalar(DType::F32, 0.9))}).value();
  ValueId where = g.apply("nonzero", {positive}).value();
  SymExpr count = g.type(where).shape[1];
  ValueId at = g.apply("reshape", {where}, {{"shape", SymShape{count}}}).value();
  g.add_output("y", g.apply("gather", {x, at}, {{"axis", int64_t{0}}}).value());
  const Graph source = g.clone();
  auto c = compile_it(std::move(g), options(folder.path()));
  ASSERT_TRUE(c.executable);
  EXPECT_EQ(c.executable->host_steps, 0);
  expect_right(source, c, {{"x", random(DType::F32, {20000})}}, 0);
}

TEST(FoldConstants, WhatTheRunReportsStays) {
  TemporaryFolder folder;
  Graph g("main");
  ValueId x = g.add_input("x", {DType::F32, {20000}});
  ValueId outside = g.add_constant(ops::integers(DType::I64, {1, 1}, {30000}));
  ValueId w = g.add_constant(ops::random(DType::F32, {20000}, 3));
  ValueId s = g.apply("scatter_nd", {w, outside, g.add_constant(ops::floats(DType::F32, {1}, {1}))}).value();
  g.add_output("y", g.apply("add", {x, s}).value());
  auto c = compile_it(std::move(g), options(folder.path()));
  ASSERT_TRUE(c.executable);
  ASSERT_FALSE(c.report.constants.left.empty());
  EXPECT_NE(c.report.constants.left[0].why.find("out of range"), std::string::npos) << c.report.constants.left[0].why;
  auto out = run(c, {{"x", random(DType::F32, {20000})}});
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().code, ErrorCode::BadInput);
}

TEST(FoldConstants, WeightsOfFewerBytesAreReadAsTheyAre) {
  TemporaryFolder folder;
  auto scaled = [](DType from, DType to) {
    Graph g("main");
    ValueId x = g.add_input("x", {to, {SymExpr(300), SymExpr(200)}});
    ValueId w = g.add_constant(ops::random(from, {300, 200}, 3));
    ValueId wide = g.apply("cast", {w}, {{"to", to}}).value();
    ValueId scale = g.add_constant(ops::scalar(to, 0.5));
    g.add_output("y", g.apply("add", {x, g.apply("mul", {wide, scale}).value()}).value());
    return g;
  };
  auto narrow = compile_it(scaled(DType::I8, DType::F32), options(folder.path()));
  EXPECT_EQ(narrow.report.constants.values, 0) << "60 KB of i8 would be 240 KB of f32";
  auto wide = compile_it(scaled(DType::F64, DType::F32), options(folder.path()));
  EXPECT_EQ(wide.report.constants.values, 1) << "480 KB of f64 are 240 KB of f32";
  expect_right(scaled(DType::I8, DType::F32), narrow, {{"x", random(DType::F32, {300, 200})}}, 1e-6);
  expect_right(scaled(DType::F64, DType::F32), wide, {{"x", random(DType::F32, {300, 200})}}, 1e-6);
}

TEST(FoldConstants, RandomNumbersAreDrawnAtEveryCall) {
  TemporaryFolder folder;
  Graph g("main");
  ValueId x = g.add_input("x", {DType::F32, {SymExpr(8)}});
  const OpDef* op = OpTable::get().find_onnx("RandomNormal", "", 17);
  ASSERT_NE(op, nullptr);
  auto drawn = g.add_node(*op, {}, {{"shape", Ints{8}}}, {}, {"r"}, 17);
  ASSERT_TRUE(drawn.ok()) << drawn.error().str();
  g.add_output("y", g.apply("add", {x, g.node(*drawn).results[0]}).value());
  auto c = compile_it(std::move(g), options(folder.path()));
  ASSERT_TRUE(c.executable);
  EXPECT_EQ(c.executable->host_steps, 0);
  EXPECT_EQ(c.report.constants.values, 0);
  const Inputs zero = {{"x", ops::filled(DType::F32, {8}, 0)}};
  auto first = run(c, zero);
  ASSERT_TRUE(first.ok()) << first.error().str();
  auto second = run(c, zero);
  ASSERT_TRUE(second.ok()) << second.error().str();
  EXPECT_FALSE(compare((*first)[0], (*second)[0], 0, 0).same);
}

} // namespace
} // namespace tessera::driver_test
