// Half-precision weights of products and convolutions reach the library as they are: no kernel widens them.
#include "harness.h"
#include <set>

namespace tessera::driver_test {
namespace {

// Constants that a kernel reads, rather than a library call.
std::set<int> read_by_kernels(const Executable& e) {
  std::set<int> out;
  auto kernel = [&](const KernelLaunch& k) {
    for (auto b : k.buffers)
      if (const auto& info = e.buffers[static_cast<size_t>(b)]; info.kind == BufferInfo::Kind::Constant)
        out.insert(info.constant);
  };
  for (const auto& step : e.steps) {
    if (const auto* k = std::get_if<KernelLaunch>(&step)) kernel(*k);
    if (const auto* l = std::get_if<LibraryStep>(&step))
      std::visit(
          [&](const auto& call) {
            if constexpr (requires { call.epilogue; })
              if (call.epilogue) kernel(call.epilogue->kernel);
          },
          l->call);
  }
  return out;
}

void check(const Graph& graph, const Inputs& inputs, DType dtype) {
  TemporaryFolder folder;
  for (bool fusion : {true, false}) {
    auto o = options(folder.path());
    o.fusion = fusion;
    if (!fusion) o.fold_bytes = -1; // the cast is a step that reads a constant alone: it would be done when compiling
    auto c = compile_it(graph.clone(), o);
    ASSERT_TRUE(c.executable);
    ASSERT_EQ(c.executable->constants.size(), 1u);
    EXPECT_EQ(c.executable->constants[0].value.dtype(), dtype);
    EXPECT_EQ(read_by_kernels(*c.executable).empty(), fusion) << "without fusion, the cast is a kernel";
    EXPECT_EQ(c.executable->host_steps, 0);
    expect_right(graph, c, inputs, dtype == DType::F16 ? 5e-3 : 4e-2);
  }
}

TEST(HalfWeights, OfProducts) {
  for (DType dtype : {DType::F16, DType::BF16}) {
    Graph graph;
    auto n = graph.env().named_symbol("n");
    auto x = graph.add_input("x", {dtype, {n, 40}});
    auto w = graph.add_constant(random(dtype, {40, 72}, 5), "w");
    auto y = graph.apply("matmul", {x, w});
    ASSERT_TRUE(y.ok()) << y.error().str();
    graph.add_output("y", *y);
    check(graph, {{"x", random(dtype, {9, 40})}}, dtype);
  }
}

TEST(HalfWeights, OfConvolutions) {
  Graph graph;
  auto n = graph.env().named_symbol("n");
  auto x = graph.add_input("x", {DType::F16, {n, 8, 9, 9}});
  auto w = graph.add_constant(random(DType::F16, {16, 8, 3, 3}, 5), "w");
  auto y = graph.apply("conv", {x, w},
                       {{"strides", Ints{1, 1}},
                        {"pads_begin", Ints{1, 1}},
                        {"pads_end", Ints{1, 1}},
                        {"dilations", Ints{1, 1}},
                        {"groups", int64_t{1}}});
  ASSERT_TRUE(y.ok()) << y.error().str();
  graph.add_output("y", *y);
  TemporaryFolder folder;
  auto c = compile_it(graph.clone(), options(folder.path()));
  ASSERT_TRUE(c.executable);
  ASSERT_EQ(c.executable->constants.size(), 1u);
  EXPECT_EQ(c.executable->constants[0].value.dtype(), DType::F16);
  EXPECT_TRUE(read_by_kernels(*c.executable).empty());
  expect_right(graph, c, {{"x", random(DType::F16, {2, 8, 9, 9})}}, 2e-2);
}

// A weight as exporters store it, transposed before the product: the view is folded, too.
TEST(HalfWeights, BehindViews) {
  Graph graph;
  auto n = graph.env().named_symbol("n");
  auto x = graph.add_input("x", {DType::F16, {n, 40}});
  auto w = graph.add_constant(random(DType::F16, {1000, 40}, 5), "w"); // too large to be folded
  auto t = graph.apply("transpose", {w}, {{"perm", Ints{1, 0}}});
  ASSERT_TRUE(t.ok()) << t.error().str();
  auto y = graph.apply("matmul", {x, *t});
  ASSERT_TRUE(y.ok()) << y.error().str();
  graph.add_output("y", *y);
  TemporaryFolder folder;
  auto c = compile_it(graph.clone(), options(folder.path()));
  ASSERT_TRUE(c.executable);
  EXPECT_TRUE(read_by_kernels(*c.executable).empty());
  expect_right(graph, c, {{"x", random(DType::F16, {9, 40})}}, 5e-3);
}

} // namespace
} // namespace tessera::driver_test
