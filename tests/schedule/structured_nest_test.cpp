// Products, convolutions and pooling as loops: in every schedule, for hosts and for blocks of threads.
#include "block_harness.h"
#include "codegen/schedule/space.h"
#include "fusion/attention.h"

namespace tessera::test {
namespace {

const std::vector<Sizes> kBatches = {{{"n", 1}}, {{"n", 3}}, {{"n", 0}}};

TEST(StructuredNests, Products) {
  for (const char* dtype : {"f32", "f64", "f16", "i32", "i64", "u8"}) {
    std::string d(dtype);
    RunOptions options;
    options.tolerance = d == "f16" ? 2e-3 : 2e-5;
    expect_same(of_graph("graph @main(%a: " + d + "[n, 5, 19], %b: " + d + "[19, 7]) -> (%y: " + d +
                         "[n, 5, 7]) where n in [0, ?] {\n  %y = matmul(%a, %b) : " + d + "[n, 5, 7]\n}"),
                kBatches, options);
  }
  expect_same(of_graph("graph @main(%a: f32[n, 40], %b: f32[n, 40, 3]) -> (%y: f32[n, n, 3]) where n in [0, ?] {\n"
                       "  %y = matmul(%a, %b) : f32[n, n, 3]\n}"),
              {{{"n", 1}}, {{"n", 4}}});
}

TEST(StructuredNests, Convolutions) {
  expect_same(
      of_graph(R"(graph @main(%x: f64[n, 4, 7, 6], %w: f64[6, 2, 3, 2]) -> (%y: f64[n, 6, 4, 5]) where n in [0, ?] {
  %y = conv(%x, %w) strides=[2, 1] pads_begin=[1, 0] pads_end=[1, 1] dilations=[1, 2] groups=2 : f64[n, 6, 4, 5]
})"),
      kBatches);
  // Channels last, depthwise: the innermost axis is the channel.
  expect_same(
      of_graph(R"(graph @main(%x: f16[n, 6, 5, 24], %w: f16[24, 1, 3, 3]) -> (%y: f16[n, 6, 5, 24]) where n in [0, ?] {
  %y = conv(%x, %w) strides=[1, 1] pads_begin=[1, 1] pads_end=[1, 1] dilations=[1, 1] groups=24 channels_last=1 : f16[n, 6, 5, 24]
})"),
      kBatches, {2e-3});
  expect_same(of_graph(R"(graph @main(%x: f32[n, 4, 5], %w: f32[4, 3, 3]) -> (%y: f32[n, 6, 10]) where n in [0, ?] {
  %y = conv_transpose(%x, %w) strides=[2] pads_begin=[1] pads_end=[0] dilations=[1] groups=2 output_padding=[0] : f32[n, 6, 10]
})"),
              kBatches);
}

// Every shape that a thread's results may have, each against the nest: sizes that a thread's results divide and others.
TEST(StructuredNests, WindowsOfSeveralResults) {
  struct Window {
    const char *dtype, *x, *w, *y, *attributes;
  };
  const Window windows[] = {
      {"f32", "[n, 9, 10, 8]", "[8, 1, 7, 7]", "[n, 9, 10, 8]",
       "strides=[1, 1] pads_begin=[3, 3] pads_end=[3, 3] dilations=[1, 1] groups=8"},
      {"f16", "[n, 9, 12, 6]", "[6, 1, 3, 3]", "[n, 5, 6, 6]",
       "strides=[2, 2] pads_begin=[1, 1] pads_end=[1, 1] dilations=[1, 1] groups=6"},
      {"bf16", "[n, 12, 7, 4]", "[4, 1, 3, 5]", "[n, 12, 7, 4]",
       "strides=[1, 1] pads_begin=[2, 4] pads_end=[2, 4] dilations=[2, 2] groups=4"},
      {"f32", "[n, 8, 6, 3]", "[6, 1, 3, 3]", "[n, 8, 6, 6]",
       "strides=[1, 1] pads_begin=[1, 1] pads_end=[1, 1] dilations=[1, 1] groups=3"},
      {"f64", "[n, 11, 4]", "[4, 1, 4]", "[n, 8, 4]", "strides=[1] pads_begin=[0] pads_end=[0] dilations=[1] groups=4"},
      {"f32", "[n, h, v, 4]", "[4, 1, 3, 3]", "[n, h, v, 4]",
       "strides=[1, 1] pads_begin=[1, 1] pads_end=[1, 1] dilations=[1, 1] groups=4"}};
  Target device = gpu_with();
  size_t masked = 0, several = 0;
  for (const Window& w : windows) {
    const std::string d = w.dtype;
    const bool symbolic = std::string(w.x).find('h') != std::string::npos;
    Problem p = of_graph("graph @main(%x: " + d + w.x + ", %w: " + d + w.w + ") -> (%y: " + d + w.y +
                         ") where n in [0, ?]" + (symbolic ? ", h in [1, ?], v in [1, ?]" : "") +
                         " {\n  %y = conv(%x, %w) " + w.attributes + " channels_last=1 : " + d + w.y + "\n}");
    auto domain = make_domain(p.graph, p.nest);
    ASSERT_TRUE(domain.ok());
    const BlockFacts facts(p.graph, p.nest, *domain, device);
    const Sizes sizes = symbolic ? Sizes{{"n", 2}, {"h", 5}, {"v", 9}} : Sizes{{"n", 2}};
    std::unordered_map<uint64_t, int64_t> by;
    for (const auto& [name, value] : sizes) by[p.graph.env().find(name)->symbol_id()] = value;
    auto sized = sized_facts(facts, by);
    ASSERT_TRUE(sized.ok());
    std::vector<Schedule> choices;
    for_each_schedule(facts, *sized, by, true, [&](const Schedule& s, int64_t) {
      if (s.kind == ScheduleKind::BlockWindow && s.tile.warps == 2) choices.push_back(s);
    });
    ASSERT_FALSE(choices.empty()) << w.x;
    std::map<std::string, Tensor> inputs;
    std::vector<Tensor> in_order;
    for (const auto& load : p.nest.loads) {
      Dims dims;
      for (const SymExpr& e : p.graph.type(load).shape) dims.push_back(e.eval(by).value());
      Tensor t = Tensor::create(p.graph.type(load).dtype, dims).value();
      for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, static_cast<double>((i * 7 + 3) % 11) - 4);
      inputs.emplace(p.graph.value(load).name, t);
      in_order.push_back(t);
    }
    auto expected = interpret(p.graph, p.nest, in_order, by);
    ASSERT_TRUE(expected.ok()) << expected.error().str();
    for (size_t i = 0; i < choices.size(); i += 3) {
      Schedule& schedule = choices[i];
      schedule.tile.rows = 4;
      const Legal l = legal(facts, schedule, std::vector<ExtentRange>(domain->axes.size()));
      ASSERT_TRUE(l) << l.refusal;
      auto kernel = lower_block(p.graph, p.nest, *domain, l, "window");
      ASSERT_TRUE(kernel.ok()) << kernel.error().str();
      auto actual = run_kernel(p, *kernel, inputs, sizes);
      Comparison same = compare(actual.at("y"), expected.value()[0], 0, 0); // small integers: exact
      ASSERT_TRUE(same.same) << same.message << "\n" << print(schedule) << " of " << w.x;
      masked += schedule.tile.outputs == 4 || schedule.tile.outputs == 7;
      several += schedule.tile.outer_outputs > 1;
    }
  }
  EXPECT_GT(masked, 0u);
  EXPECT_GT(several, 0u);
}

// A nest with one store more, of a value of each tap, has no schedule of a window.
TEST(StructuredNests, WindowsStoreResultsOfRowsAlone) {
  Problem p = of_graph(
      R"(graph @main(%x: f32[n, 9, 10, 8], %w: f32[8, 1, 3, 3]) -> (%y: f32[n, 9, 10, 8]) where n in [0, ?] {
  %y = conv(%x, %w) strides=[1, 1] pads_begin=[1, 1] pads_end=[1, 1] dilations=[1, 1] groups=8 channels_last=1 : f32[n, 9, 10, 8]
})");
  Target device = gpu_with();
  const std::unordered_map<uint64_t, int64_t> by{{p.graph.env().find("n")->symbol_id(), 2}};
  std::optional<Schedule> window;
  auto windows = [&](const Schedule& s, int64_t) {
    if (s.kind == ScheduleKind::BlockWindow) window = s;
  };
  {
    auto domain = make_domain(p.graph, p.nest);
    ASSERT_TRUE(domain.ok());
    const BlockFacts facts(p.graph, p.nest, *domain, device);
    for_each_schedule(facts, *sized_facts(facts, by), by, true, windows);
    ASSERT_TRUE(window);
    EXPECT_TRUE(legal(facts, *window, std::vector<ExtentRange>(domain->axes.size())));
  }
  Store tap;
  TensorType type{DType::F32, {}};
  for (const Axis& axis : p.nest.axes) {
    type.shape.push_back(axis.extent);
    tap.index.push_back(p.nest.dag.index(axis.var));
  }
  for (ScalarId id = 0; id < p.nest.dag.size(); ++id)
    if (p.nest.dag[id].op == ScalarOp::Mul) tap.scalar = id;
  tap.value = fusion::add_temporary(p.graph, std::move(type));
  p.nest.stores.push_back(tap);
  auto domain = make_domain(p.graph, p.nest);
  ASSERT_TRUE(domain.ok());
  const BlockFacts facts(p.graph, p.nest, *domain, device);
  const Legal l = legal(facts, *window, std::vector<ExtentRange>(domain->axes.size()));
  EXPECT_FALSE(l);
  EXPECT_NE(l.refusal.find("no window"), std::string::npos) << l.refusal;
}

// A window whose taps are too many to be written out is a loop over its rows.
TEST(StructuredNests, LargeWindowsLoopOverTheirRows) {
  Problem p = of_graph(
      R"(graph @main(%x: f32[n, 32, 32, 8], %w: f32[8, 1, 31, 31]) -> (%y: f32[n, 32, 32, 8]) where n in [0, ?] {
  %y = conv(%x, %w) strides=[1, 1] pads_begin=[15, 15] pads_end=[15, 15] dilations=[1, 1] groups=8 channels_last=1 : f32[n, 32, 32, 8]
})");
  size_t windows = 0;
  const Case c{std::move(p), {{"n", 1}}};
  each_kernel(
      c, gpu_with(), [](const Schedule& s) { return s.tile.taps > 0 && s.tile.warps == 2; },
      [&](const Legal& l, const ScheduledKernel& kernel) {
        ++windows;
        EXPECT_EQ(l.schedule.tile.taps, 31);
        EXPECT_NE(tile::print(kernel.kernel).find("for %"), std::string::npos);
      });
  EXPECT_GT(windows, 0u);
}

TEST(StructuredNests, Pooling) {
  for (const char* mode : {"max", "average", "average_include_pad"})
    for (const char* dtype : {"f32", "f64"}) {
      std::string d(dtype);
      expect_same(of_graph("graph @main(%x: " + d + "[n, 3, 9]) -> (%y: " + d + "[n, 3, 5]) where n in [0, ?] {\n" +
                           "  %y = pool(%x) mode=\"" + mode +
                           "\" kernel=[3] strides=[2] pads_begin=[1] pads_end=[1] dilations=[1] : " + d +
                           "[n, 3, 5]\n}"),
                  kBatches);
    }
  RunOptions specials;
  specials.specials = true;
  expect_same(of_graph(R"(graph @main(%x: f32[n, 6, 5, 16]) -> (%y: f32[n, 3, 2, 16]) where n in [0, ?] {
  %y = pool(%x) mode="max" kernel=[3, 3] strides=[2, 2] pads_begin=[1, 0] pads_end=[0, 0] dilations=[1, 1] channels_last=1 : f32[n, 3, 2, 16]
})"),
              kBatches, specials);
  expect_same(of_graph(R"(graph @main(%x: i8[n, 2, 6]) -> (%y: i8[n, 2, 3]) where n in [0, ?] {
  %y = pool(%x) mode="max" kernel=[3] strides=[2] pads_begin=[1] pads_end=[0] dilations=[1] : i8[n, 2, 3]
})"),
              kBatches);
}

} // namespace
} // namespace tessera::test
