// Running sums, products and extremes by blocks, compared with the operator's reference.
#include "block_harness.h"
#include "codegen/schedule/own_kernels.h"
#include "codegen/target/select.h"
#include "graph/reference/evaluator.h"
#include <random>

namespace tessera::test {
namespace {

// The scan in small tiles, so that short rows have several; with cooperative blocks, which are few, each has two tiles
// in shared memory.
ScheduledKernel small(const Problem& p, const Node& node, const ScheduledKernel& like, bool cooperative_blocks) {
  const TensorType& type = p.graph.type(node.operands[0]);
  auto axis = static_cast<size_t>((node.attributes.i("axis") + type.rank()) % type.rank());
  ScanShape s;
  s.dtype = type.dtype;
  s.outer = s.inner = 1;
  s.n = type.shape[axis];
  for (size_t d = 0; d < type.shape.size(); ++d)
    if (d != axis) (d < axis ? s.outer : s.inner) *= type.shape[d];
  s.kind = *reduce_kind_from_name(node.attributes.s("kind"));
  s.exclusive = node.attributes.i("exclusive") != 0;
  s.reverse = node.attributes.i("reverse") != 0;
  const bool rows = s.inner.is_const(1);
  ScanPlan plan;
  plan.height = rows ? 1 : 4;
  plan.width = 8;
  plan.warps = 2;
  if (rows && !s.reverse) plan.shift = 4;
  if (cooperative_blocks) {
    plan.cooperative = true;
    plan.blocks_per_row = 3;
    plan.max_blocks_per_row = 4;
    plan.keep = 2;
    plan.conditions.push_back({s.outer * s.inner, 1, 1, 20}); // all of a grid run at once
  }
  ScheduledKernel k = scan_kernel(p.graph.env(), s, plan, "small");
  k.buffers = like.buffers;
  k.written = like.written;
  k.may_overwrite = like.may_overwrite;
  return k;
}

void expect_scan(DType dtype, int rank, int64_t axis, const char* kind, bool exclusive, bool reverse,
                 const std::vector<Sizes>& sizes) {
  Problem p;
  TensorType type{dtype, {p.graph.env().named_symbol("a"), p.graph.env().named_symbol("b")}};
  if (rank == 3) type.shape.emplace_back(p.graph.env().named_symbol("c"));
  ValueId x = p.graph.add_input("x", type);
  auto y = p.graph.apply(
      "scan", {x},
      {{"kind", std::string(kind)}, {"axis", axis}, {"exclusive", int64_t{exclusive}}, {"reverse", int64_t{reverse}}});
  ASSERT_TRUE(y.ok()) << y.error().str();
  p.graph.value(*y).name = "y";
  p.graph.add_output("y", *y);
  const Node& node = *p.graph.producer(*y);
  ASSERT_TRUE(has_own_kernel(p.graph, node));
  Target device = shipped_target("h200");
  auto made = lower_own_kernel(p.graph, node, device, "scan");
  ASSERT_TRUE(made.ok()) << made.error().str();
  auto kernels = std::move(*made);
  for (bool cooperative_blocks : {false, true}) kernels.push_back(small(p, node, kernels.back(), cooperative_blocks));
  for (const ScheduledKernel& k : kernels) {
    auto ok = tile::verify(k.kernel);
    ASSERT_TRUE(ok.ok()) << ok.error().str() << tile::print(k.kernel);
    EXPECT_EQ(tile::needs_cooperative_launch(k.kernel), !k.cooperative_blocks.is_const(0)) << tile::print(k.kernel);
  }
  std::mt19937 rng(3);
  for (const Sizes& at : sizes) {
    Dims dims{at.at("a"), at.at("b")};
    if (rank == 3) dims.push_back(at.at("c"));
    Tensor in = Tensor::create(dtype, dims).value();
    for (int64_t i = 0; i < in.count(); ++i) {
      int64_t v = static_cast<int64_t>(rng() % 5) - 2;
      is_float(dtype) ? in.set_f64(i, static_cast<double>(v)) : in.set_i64(i, v);
    }
    auto expected = evaluate_graph(p.graph, {{"x", in}});
    ASSERT_TRUE(expected.ok()) << expected.error().str();
    for (const ScheduledKernel& k : kernels) {
      if (!conditions_hold(p.graph, k, at)) continue;
      auto actual = run_kernel(p, k, {{"x", in}}, at);
      Comparison same = compare(actual.at("y"), expected.value()[0], 0, 0);
      EXPECT_TRUE(same.same) << same.message << tile::print(k.kernel);
    }
  }
}

TEST(BlockScan, AlongAContiguousAxis) {
  std::vector<Sizes> sizes{{{"a", 3}, {"b", 1}},    {{"a", 17}, {"b", 5}},   {{"a", 0}, {"b", 5}}, {{"a", 2}, {"b", 0}},
                           {{"a", 1}, {"b", 2500}}, {{"a", 2}, {"b", 1024}}, {{"a", 3}, {"b", 97}}};
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true}) {
      expect_scan(DType::F32, 2, 1, "sum", exclusive, reverse, sizes);
      expect_scan(DType::I64, 2, -1, "prod", exclusive, reverse, sizes);
    }
  expect_scan(DType::F16, 2, 1, "sum", false, false, {{{"a", 2}, {"b", 100}}});
  for (DType d : {DType::F32, DType::BF16, DType::I64, DType::U8}) {
    expect_scan(d, 2, 1, "max", false, false, sizes);
    expect_scan(d, 2, 1, "min", false, true, sizes);
  }
}

TEST(BlockScan, DownAnAxis) {
  std::vector<Sizes> sizes{{{"a", 2}, {"b", 3}, {"c", 5}}, {{"a", 1}, {"b", 70}, {"c", 2}},
                           {{"a", 2}, {"b", 0}, {"c", 4}}, {{"a", 1}, {"b", 33}, {"c", 65}},
                           {{"a", 0}, {"b", 3}, {"c", 1}}, {{"a", 1}, {"b", 1}, {"c", 130}}};
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true}) {
      expect_scan(DType::I32, 3, 1, "sum", exclusive, reverse, sizes);
      expect_scan(DType::F64, 3, 0, "sum", exclusive, reverse, sizes);
      expect_scan(DType::F32, 3, 1, "max", exclusive, reverse, sizes);
    }
}

} // namespace
} // namespace tessera::test
