// Products, convolutions and pooling as loops: in every schedule, for hosts and for blocks of threads.
#include "graph/ops/op.h"
#include "harness.h"

namespace tessera::test {
namespace {

// The nest of the one operator that makes %y.
Problem of_graph(const std::string& text) {
  Problem out;
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph.ok()) << (graph.ok() ? "" : graph.error().str());
  if (!graph.ok()) return out;
  out.graph = std::move(*graph);
  ValueId y = out.graph.outputs()[0].value;
  auto nest = make_nest(out.graph, out.graph.value(y).producer, false);
  EXPECT_TRUE(nest.ok()) << (nest.ok() ? "" : nest.error().str());
  if (nest.ok()) out.nest = std::move(*nest);
  return out;
}

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
