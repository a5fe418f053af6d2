// Convolutions and pooling described for cuDNN, carried out by plain loops and held against the call; and the library's
// own graphs of them, which it checks without a GPU.
#include "runtime/cuda/library_conv.h"
#include "runtime/cuda/cudnn.h"
#include <gtest/gtest.h>
#include <random>

namespace tessera::cuda {
namespace {

enum class Layout { First, Last };

Operand operand(const Dims& shape, Layout layout, int64_t offset = 0) {
  Operand o;
  o.buffer = 0;
  o.shape = shape;
  o.strides.resize(shape.size());
  o.offset = offset;
  int64_t step = 1;
  std::vector<size_t> order;
  if (layout == Layout::Last) order.push_back(1);
  for (size_t d = shape.size(); d-- > 0;)
    if (d != 1 || layout == Layout::First) order.push_back(d);
  for (size_t d : order) {
    o.strides[d] = step;
    step *= shape[d];
  }
  return o;
}

std::vector<double> numbers(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> out(static_cast<size_t>(count));
  for (auto& x : out) x = static_cast<double>(static_cast<int64_t>(random() % 17) - 8);
  return out;
}

int64_t count(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

// Calls f(index) for every index of dims.
template <class F>
void each(const Dims& dims, F f) {
  Dims at(dims.size(), 0);
  for (int64_t i = 0; i < count(dims); ++i) {
    f(at);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++at[d] < dims[d]) break;
      at[d] = 0;
    }
  }
}

size_t position(const Dims& index, const Dims& strides) {
  int64_t p = 0;
  for (size_t d = 0; d < index.size(); ++d) p += index[d] * strides[d];
  return static_cast<size_t>(p);
}

struct Window {
  Dims strides, pads, dilations;
};

// A convolution, or the gradient of one, over tensors with any strides; the same loops for the call and its
// description.
void convolve(const Dims& x, const Dims& xs, const Dims& w, const Dims& ws, const Dims& y, const Dims& ys,
              const Window& window, bool transposed, const std::vector<double>& vx, const std::vector<double>& vw,
              std::vector<double>& vy) {
  // In terms of the convolution from `in` to `of`.
  const Dims &in = transposed ? y : x, &of = transposed ? x : y;
  const int64_t groups = in[1] / w[1], filters = w[0] / groups;
  Dims points = {of[0], w[0]};
  points.insert(points.end(), of.begin() + 2, of.end());
  each(points, [&](const Dims& o) {
    Dims taps(w.begin() + 1, w.end());
    each(taps, [&](const Dims& k) {
      Dims i = {o[0], o[1] / filters * w[1] + k[0]};
      bool inside = true;
      for (size_t d = 0; d + 2 < in.size(); ++d) {
        i.push_back(o[d + 2] * window.strides[d] - window.pads[d] + k[d + 1] * window.dilations[d]);
        inside = inside && i.back() >= 0 && i.back() < in[d + 2];
      }
      if (!inside) return;
      Dims tap = k;
      tap.insert(tap.begin(), o[1]);
      double weight = vw[position(tap, ws)];
      if (transposed)
        vy[position(i, ys)] += vx[position(o, xs)] * weight;
      else
        vy[position(o, ys)] += vx[position(i, xs)] * weight;
    });
  });
}

struct Case {
  Dims x, w, y;
  ConvCall call;
};

Case make(Dims x, Dims w, Dims strides, Dims begin, Dims end, Dims dilations, int64_t groups = 1,
          bool transposed = false, Dims extra = {}) {
  Case c;
  c.x = x;
  c.w = w;
  c.y = {x[0], transposed ? w[1] * groups : w[0]};
  for (size_t i = 0; i + 2 < x.size(); ++i) {
    int64_t reach = (w[i + 2] - 1) * dilations[i] + 1, pads = begin[i] + end[i];
    c.y.push_back(transposed ? (x[i + 2] - 1) * strides[i] + reach + (extra.empty() ? 0 : extra[i]) - pads
                             : (x[i + 2] + pads - reach) / strides[i] + 1);
  }
  c.call.strides = strides;
  c.call.pads_begin = begin;
  c.call.pads_end = end;
  c.call.dilations = dilations;
  c.call.groups = groups;
  c.call.transposed = transposed;
  c.call.output_padding = extra;
  return c;
}

std::vector<Case> cases() {
  return {
      make({2, 3, 7, 6}, {4, 3, 3, 2}, {2, 1}, {1, 0}, {0, 1}, {1, 2}),
      make({1, 2, 9}, {3, 2, 3}, {2}, {1}, {1}, {2}),
      make({1, 1, 5}, {2, 1, 3}, {1}, {1}, {1}, {1}),
      make({1, 4, 5, 5}, {4, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 4),
      make({2, 4, 5, 5}, {6, 2, 1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 2),
      make({1, 2, 4, 3, 5}, {3, 2, 2, 2, 2}, {1, 2, 1}, {0, 1, 0}, {0, 0, 1}, {1, 1, 2}),
      make({2, 8, 1, 1}, {5, 8, 1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}),
      make({2, 2, 3, 4}, {2, 2, 3, 2}, {2, 3}, {1, 0}, {1, 0}, {1, 2}, 1, true, {1, 2}),
      make({1, 4, 3}, {4, 1, 2}, {2}, {0}, {0}, {1}, 2, true),
  };
}

TEST(ConvProblem, DescriptionsComputeTheCall) {
  for (const auto& c : cases())
    for (Layout layout : {Layout::First, Layout::Last})
      for (Layout weights : {Layout::First, Layout::Last}) {
        Operand x = operand(c.x, layout), w = operand(c.w, weights), y = operand(c.y, layout);
        auto p = describe_conv(c.call, x, w, y, "test");
        ASSERT_TRUE(p.ok()) << p.error().str();
        auto vx = numbers(count(c.x), 1), vw = numbers(count(c.w), 2);
        std::vector<double> expected(static_cast<size_t>(count(c.y))), actual = expected;
        convolve(c.x, x.strides, c.w, w.strides, c.y, y.strides, {c.call.strides, c.call.pads_begin, c.call.dilations},
                 c.call.transposed, vx, vw, expected);
        convolve(p->x.dims, p->x.strides, p->w.dims, p->w.strides, p->y.dims, p->y.strides,
                 {p->strides, p->pads_begin, p->dilations}, p->transposed, vx, vw, actual);
        EXPECT_EQ(actual, expected);
        EXPECT_GE(p->spatial(), 2);
        EXPECT_EQ(p->x.dims.size(), static_cast<size_t>(p->spatial()) + 2);
      }
}

TEST(ConvProblem, StridesOfSinglePointsAreThoseOfTheLayout) {
  auto c = make({2, 8, 1, 1}, {5, 8, 1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1});
  Operand x = operand(c.x, Layout::First), w = operand(c.w, Layout::First), y = operand(c.y, Layout::First);
  x.strides = {8, 1, 0, 77};
  auto p = describe_conv(c.call, x, w, y, "test");
  ASSERT_TRUE(p.ok());
  EXPECT_TRUE(p->channels_last);
  EXPECT_EQ(p->x.strides, (Dims{8, 1, 8, 8}));
}

TEST(ConvProblem, WhatIsRefusedSaysWhy) {
  auto c = make({2, 4, 5, 5}, {6, 4, 3, 3}, {1, 1}, {0, 0}, {0, 0}, {1, 1});
  Operand x = operand(c.x, Layout::First), w = operand(c.w, Layout::First), y = operand(c.y, Layout::Last);
  auto p = describe_conv(c.call, x, w, y, "Conv_7");
  ASSERT_FALSE(p.ok());
  EXPECT_EQ(p.error().code, ErrorCode::UnsupportedFeature);
  EXPECT_NE(p.error().str().find("Conv_7"), std::string::npos);
  y = operand({2, 6, 4, 3}, Layout::First);
  p = describe_conv(c.call, x, w, y, "Conv_7");
  ASSERT_FALSE(p.ok());
  EXPECT_EQ(p.error().code, ErrorCode::Internal);
  auto wide = make({1, 1, 3}, {1, 1, 2}, {2}, {0}, {0}, {1}, 1, true, {2});
  p = describe_conv(wide.call, operand(wide.x, Layout::First), operand(wide.w, Layout::First),
                    operand(wide.y, Layout::First), "T");
  ASSERT_FALSE(p.ok());
  EXPECT_EQ(p.error().code, ErrorCode::UnsupportedFeature);
}

TEST(ConvProblem, EmptyAndOfNothing) {
  auto c = make({0, 2, 4, 4}, {3, 2, 2, 2}, {1, 1}, {0, 0}, {0, 0}, {1, 1});
  auto p =
      describe_conv(c.call, operand(c.x, Layout::Last), operand(c.w, Layout::First), operand(c.y, Layout::Last), "");
  ASSERT_TRUE(p.ok());
  EXPECT_TRUE(p->empty);
  c = make({1, 0, 4, 4}, {3, 0, 2, 2}, {1, 1}, {0, 0}, {0, 0}, {1, 1});
  p = describe_conv(c.call, operand(c.x, Layout::Last), operand(c.w, Layout::First), operand(c.y, Layout::Last), "");
  ASSERT_TRUE(p.ok());
  EXPECT_FALSE(p->empty);
  EXPECT_TRUE(p->of_nothing);
}

PoolCall pool(Dims kernel, Dims strides, Dims begin, Dims end, Dims dilations,
              PoolCall::Kind kind = PoolCall::Kind::Max) {
  PoolCall c;
  c.kind = kind;
  c.kernel = std::move(kernel);
  c.strides = std::move(strides);
  c.pads_begin = std::move(begin);
  c.pads_end = std::move(end);
  c.dilations = std::move(dilations);
  return c;
}

TEST(PoolProblem, TakesEqualPadsAndWhatTheLastWindowDoesNotReach) {
  Operand x = operand({2, 3, 8, 8}, Layout::Last), y = operand({2, 3, 4, 4}, Layout::Last);
  auto p = describe_pool(pool({3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}), x, y, "p");
  ASSERT_TRUE(p.ok()) << p.error().str();
  EXPECT_EQ(p->pads, (Dims{1, 1}));
  EXPECT_EQ(p->x.strides, x.strides);
  // No window reaches the last row of padding: before it, pads are the same.
  EXPECT_TRUE(describe_pool(pool({3, 3}, {2, 2}, {1, 1}, {0, 0}, {1, 1}), x, y, "p").ok());
  EXPECT_FALSE(
      describe_pool(pool({3, 3}, {2, 2}, {1, 1}, {0, 0}, {1, 1}, PoolCall::Kind::AverageIncludePad), x, y, "p").ok());
  EXPECT_FALSE(
      describe_pool(pool({2, 2}, {2, 2}, {0, 0}, {0, 0}, {2, 2}), x, operand({2, 3, 3, 3}, Layout::Last), "p").ok());
  EXPECT_FALSE(
      describe_pool(pool({2, 2}, {2, 2}, {1, 1}, {2, 2}, {1, 1}), x, operand({2, 3, 5, 6}, Layout::Last), "p").ok());
  auto line = describe_pool(pool({3}, {2}, {1}, {1}, {1}), operand({2, 3, 7}, Layout::First),
                            operand({2, 3, 4}, Layout::First), "p");
  ASSERT_TRUE(line.ok()) << line.error().str();
  EXPECT_EQ(line->kernel, (Dims{1, 3}));
  EXPECT_EQ(line->x.dims, (Dims{2, 3, 1, 7}));
}

// cuDNN finalizes descriptors without a GPU: attributes, types and shapes are checked by itself.
TEST(ConvGraph, IsWhatTheLibraryAccepts) {
  auto library = Cudnn::open();
  if (!library) GTEST_SKIP() << library.error().str();
  for (const auto& c : cases())
    for (Layout layout : {Layout::First, Layout::Last})
      for (DType dtype : {DType::F32, DType::F16, DType::BF16}) {
        auto p = describe_conv(c.call, operand(c.x, layout), operand(c.w, layout), operand(c.y, layout), "test");
        ASSERT_TRUE(p.ok()) << p.error().str();
        ConvGraphOptions options;
        options.dtype = dtype;
        auto bare = make_conv_graph(**library, *p, options);
        ASSERT_TRUE(bare.ok()) << bare.error().str();
        EXPECT_EQ(bare->operations.size(), 1u);
        if (c.call.transposed) continue;
        using Activation = LibraryEpilogue::Activation;
        for (auto activation : {Activation::None, Activation::Relu, Activation::Clip, Activation::GeluTanh,
                                Activation::GeluErf, Activation::Sigmoid, Activation::Silu, Activation::Tanh})
          for (bool residual : {false, true}) {
            LibraryEpilogue e;
            e.alpha = 0.5;
            e.activation = activation;
            e.clip_high = 6;
            e.bias.emplace();
            e.bias_dim = 1;
            if (residual) e.residual.emplace();
            options.fused = &e;
            options.residual_is_result = false;
            auto graph = make_conv_graph(**library, *p, options);
            ASSERT_TRUE(graph.ok()) << graph.error().str();
            size_t steps = 2 + (residual ? 1u : 0u) + (activation != Activation::None ? 1u : 0u);
            EXPECT_EQ(graph->operations.size(), steps);
            if (residual) continue;
            e.bias.reset();
            options.zero_bias = true;
            auto zeros = make_conv_graph(**library, *p, options);
            ASSERT_TRUE(zeros.ok()) << zeros.error().str();
            EXPECT_EQ(zeros->operations.size(), steps);
            e.bias.emplace();
            options.zero_bias = false;
            options.residual_is_result = true;
            auto twice = make_conv_graph(**library, *p, options);
            ASSERT_TRUE(twice.ok()) << twice.error().str();
            EXPECT_EQ(twice->operations.size(), steps + 1);
          }
      }
}

} // namespace
} // namespace tessera::cuda
