// Convolutions and pooling on a GPU against sums in f64: types, layouts, groups, dilations, transposed, epilogues.
#include "base/temporary_folder.h"
#include "runtime/cuda/cudnn.h"
#include "runtime/cuda/library_choices.h"
#include "tests/cuda/library_device.h"
#include <cmath>
#include <limits>

namespace tessera::cuda {
namespace {
using namespace test;

struct Convolution {
  DType dtype = DType::F32;
  Dims x, w;
  Dims strides, begin, end, dilations;
  int64_t groups = 1;
  bool transposed = false;
  Dims extra = {};
  bool last = true;
  std::optional<LibraryEpilogue::Activation> activation = std::nullopt; // an epilogue
  bool bias = false, residual = false;
  double alpha = 1;
  bool varies = false; // batch and sizes are symbols of the call
};

Dims result_dims(const Convolution& c) {
  Dims y = {c.x[0], c.transposed ? c.w[1] * c.groups : c.w[0]};
  for (size_t i = 0; i + 2 < c.x.size(); ++i) {
    int64_t reach = (c.w[i + 2] - 1) * c.dilations[i] + 1, pads = c.begin[i] + c.end[i];
    y.push_back(c.transposed ? (c.x[i + 2] - 1) * c.strides[i] + reach + (c.extra.empty() ? 0 : c.extra[i]) - pads
                             : (c.x[i + 2] + pads - reach) / c.strides[i] + 1);
  }
  return y;
}

double activated(LibraryEpilogue::Activation activation, double x) {
  switch (activation) {
  case LibraryEpilogue::Activation::None: return x;
  case LibraryEpilogue::Activation::Relu: return std::max(x, 0.0);
  case LibraryEpilogue::Activation::Clip: return std::clamp(x, -1.0, 6.0);
  case LibraryEpilogue::Activation::GeluTanh:
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  case LibraryEpilogue::Activation::GeluErf: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  case LibraryEpilogue::Activation::Sigmoid: return 1 / (1 + std::exp(-x));
  case LibraryEpilogue::Activation::Silu: return x / (1 + std::exp(-x));
  case LibraryEpilogue::Activation::Tanh: return std::tanh(x);
  }
  return x;
}

// Sums and sums of magnitudes of the raw result, row-major over y.
void reference(const Convolution& c, const DeviceOperand& x, const DeviceOperand& w, const Dims& y,
               std::vector<double>& sums, std::vector<double>& magnitudes) {
  const Dims &in = c.transposed ? y : c.x, &of = c.transposed ? c.x : y;
  Dims strides = test::dense(y);
  int64_t filters = c.w[0] / c.groups, count = 1;
  for (int64_t d : y) count *= d;
  sums.assign(static_cast<size_t>(count), 0);
  magnitudes = sums;
  Dims points = {of[0], c.w[0]};
  points.insert(points.end(), of.begin() + 2, of.end());
  each(points, [&](const Dims& o) {
    each(Dims(c.w.begin() + 1, c.w.end()), [&](const Dims& k) {
      Dims i = {o[0], o[1] / filters * c.w[1] + k[0]};
      bool inside = true;
      for (size_t d = 0; d + 2 < in.size(); ++d) {
        i.push_back(o[d + 2] * c.strides[d] - c.begin[d] + k[d + 1] * c.dilations[d]);
        inside = inside && i.back() >= 0 && i.back() < in[d + 2];
      }
      if (!inside) return;
      Dims tap = k;
      tap.insert(tap.begin(), o[1]);
      const Dims &from = c.transposed ? o : i, &to = c.transposed ? i : o;
      double term = x.host.get_f64(position(x.view, from)) * w.host.get_f64(position(w.view, tap));
      size_t where = 0;
      for (size_t d = 0; d < to.size(); ++d) where += static_cast<size_t>(to[d] * strides[d]);
      sums[where] += term;
      magnitudes[where] += std::abs(term);
    });
  });
}

struct Outcome {
  bool planned = false, fused = false;
};

Outcome check(Gpu& gpu, const Convolution& c, const std::string& what) {
  SCOPED_TRACE(what);
  Dims y_dims = result_dims(c);
  auto lay = [&](const Dims& dims) { return c.last ? channels_last(dims) : test::dense(dims); };
  DeviceOperand x = filled(c.dtype, c.x, lay(c.x), 1), w = filled(c.dtype, c.w, lay(c.w), 2),
                y = filled(c.dtype, y_dims, lay(y_dims), 3);
  for (int64_t i = 0; i < y.host.count(); ++i) y.host.set_f64(i, std::numeric_limits<double>::quiet_NaN());
  Dims along(y_dims.size(), 0);
  along[1] = 1;
  DeviceOperand bias = filled(c.dtype, y_dims, along, 4), residual = filled(c.dtype, y_dims, lay(y_dims), 5);
  std::vector<DeviceOperand*> operands = {&x, &w, &y};
  ConvCall call;
  call.strides = c.strides;
  call.pads_begin = c.begin;
  call.pads_end = c.end;
  call.dilations = c.dilations;
  call.groups = c.groups;
  call.transposed = c.transposed;
  call.output_padding = c.extra;
  ShapeEnv env;
  for (size_t d = 0; c.varies && d < c.x.size(); ++d)
    call.x.shape.push_back(d == 1 ? SymExpr(c.x[d]) : env.named_symbol("s" + std::to_string(d)));
  if (c.activation) {
    LibraryEpilogue e;
    e.alpha = c.alpha;
    e.activation = *c.activation;
    e.clip_low = -1;
    e.clip_high = 6;
    if (c.bias) {
      operands.push_back(&bias);
      e.bias.emplace();
      e.bias_dim = 1;
    }
    if (c.residual) {
      operands.push_back(&residual);
      e.residual.emplace();
    }
    call.fused = std::move(e);
  }
  std::vector<Operand> views;
  for (size_t i = 0; i < operands.size(); ++i) {
    operands[i]->view.buffer = static_cast<BufferId>(i);
    views.push_back(operands[i]->view);
  }
  Context::Current current(gpu.context());
  auto plan = plan_cuda_conv({gpu.context(), what, true}, call, views);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().str());
  if (!plan.ok()) return {};
  Outcome outcome{true, (*plan)->epilogue_done};
  auto result = gpu.run(**plan, operands, 2);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().str());
  if (!result.ok()) return outcome;
  std::vector<double> sums, magnitudes;
  reference(c, x, w, y_dims, sums, magnitudes);
  size_t i = 0;
  int wrong = 0;
  each(y_dims, [&](const Dims& index) {
    double expected = sums[i], bound = 2e-6 * magnitudes[i];
    ++i;
    if (c.activation && outcome.fused) {
      expected *= c.alpha;
      if (c.bias) expected += bias.host.get_f64(position(bias.view, index));
      if (c.residual) expected += residual.host.get_f64(position(residual.view, index));
      expected = activated(*c.activation, expected);
    }
    bound += rounding_of(c.dtype) * (1 + std::abs(expected));
    double actual = result->get_f64(position(y.view, index));
    if (std::abs(actual - expected) <= bound || ++wrong > 4) return;
    ADD_FAILURE() << "element " << i - 1 << ": " << actual << ", not " << expected;
  });
  return outcome;
}

Convolution plain(Dims x, Dims w, Dims strides, Dims begin, Dims end, Dims dilations, int64_t groups = 1,
                  bool transposed = false, Dims extra = {}) {
  Convolution c;
  c.x = std::move(x);
  c.w = std::move(w);
  c.strides = std::move(strides);
  c.begin = std::move(begin);
  c.end = std::move(end);
  c.dilations = std::move(dilations);
  c.groups = groups;
  c.transposed = transposed;
  c.extra = std::move(extra);
  return c;
}

const DType kTypes[] = {DType::F32, DType::F16, DType::BF16};

TEST(GpuConv, TypesLayoutsAndWindows) {
  TESSERA_GPU_OR_SKIP(gpu);
  const std::pair<const char*, Convolution> cases[] = {
      {"3x3", plain({2, 16, 14, 14}, {32, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1})},
      {"1x1", plain({2, 64, 7, 7}, {32, 64, 1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1})},
      {"1x1 of one pixel", plain({4, 64, 1, 1}, {16, 64, 1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1})},
      {"7x7 of an image", plain({1, 3, 32, 32}, {16, 3, 7, 7}, {2, 2}, {3, 3}, {3, 3}, {1, 1})},
      {"16x16 patches", plain({2, 3, 32, 32}, {24, 3, 16, 16}, {16, 16}, {0, 0}, {0, 0}, {1, 1})},
      {"odd sizes", plain({3, 5, 9, 11}, {7, 5, 3, 2}, {2, 1}, {1, 0}, {1, 0}, {1, 2})},
      {"dilated", plain({1, 8, 12, 12}, {8, 8, 3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2})},
      {"groups", plain({2, 16, 8, 8}, {32, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 4)},
      {"one dimension", plain({2, 8, 33}, {16, 8, 5}, {2}, {2}, {2}, {1})},
  };
  for (DType dtype : kTypes)
    for (bool last : {true, false})
      for (auto [what, c] : cases) {
        c.dtype = dtype;
        c.last = last;
        check(*gpu, c, std::string(what) + " " + std::string(name(dtype)) + (last ? " channels last" : ""));
      }
}

// Queries of the heuristics of a library that counts them.
int queries = 0;
decltype(Cudnn::cudnnBackendGetAttribute) get_attribute = nullptr;
cudnnStatus_t counted(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      int64_t most, int64_t* count, void* values) {
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) ++queries;
  return get_attribute(d, name, type, most, count, values);
}

// The library's own engines and knobs for one size are taken for others, and by a later process.
TEST(GpuConv, SizesThatVaryShareEngines) {
  TESSERA_GPU_OR_SKIP(here);
  auto folder = TemporaryFolder::create("tessera-choices");
  ASSERT_TRUE(folder.ok());
  for (int process = 0; process < 2; ++process) {
    auto context = Context::create(Driver::load().value());
    ASSERT_TRUE(context.ok());
    auto library = Cudnn::of(**context);
    if (!library.ok()) GTEST_SKIP() << library.error().message;
    get_attribute = std::exchange((*library)->cudnnBackendGetAttribute, counted);
    LibraryChoices::of(**context).value()->keep_in(std::make_shared<Cache>(folder->path(), true));
    auto gpu = Gpu::of(*context, here_why);
    ASSERT_TRUE(gpu) << here_why;
    queries = 0;
    int calls = 0;
    for (bool epilogue : {false, true})
      for (int64_t batch : {1, 3, 4, 5, 8})
        for (int64_t size : {17, 18, 20}) {
          Convolution c = plain({batch, 8, size, 12}, {16, 8, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1});
          c.dtype = DType::F16;
          c.varies = true;
          c.bias = epilogue;
          if (epilogue) c.activation = LibraryEpilogue::Activation::Relu;
          check(*gpu, c, "batch " + std::to_string(batch) + ", size " + std::to_string(size));
          ++calls;
        }
    std::printf("%d queries of the heuristics for %d sizes\n", queries, calls);
    if (process == 0)
      EXPECT_LT(queries, calls);
    else
      EXPECT_EQ(queries, 0);
  }
}

// An engine for these may be missing; where there is one, it must be right.
TEST(GpuConv, ThreeDimensionsDepthwiseAndTransposed) {
  TESSERA_GPU_OR_SKIP(gpu);
  const std::pair<const char*, Convolution> cases[] = {
      {"three dimensions", plain({1, 8, 6, 7, 8}, {8, 8, 3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1})},
      {"depthwise", plain({2, 32, 9, 9}, {32, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 32)},
      {"transposed", plain({2, 16, 7, 7}, {16, 8, 2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, 1, true)},
      {"transposed, padded", plain({1, 8, 5, 6}, {8, 8, 3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 1, true, {1, 1})},
  };
  for (DType dtype : {DType::F32, DType::F16})
    for (bool last : {true, false})
      for (auto [what, c] : cases) {
        c.dtype = dtype;
        c.last = last;
        check(*gpu, c, std::string(what) + " " + std::string(name(dtype)) + (last ? " channels last" : ""));
      }
}

TEST(GpuConv, Epilogues) {
  TESSERA_GPU_OR_SKIP(gpu);
  using Activation = LibraryEpilogue::Activation;
  int all = 0, fused = 0;
  for (DType dtype : kTypes)
    for (bool last : {true, false})
      for (bool bias : {false, true})
        for (bool residual : {false, true})
          for (auto activation : {Activation::None, Activation::Relu}) {
            if (!bias && !residual && activation == Activation::None) continue;
            auto c = plain({2, 16, 14, 14}, {32, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1});
            c.dtype = dtype;
            c.last = last;
            c.bias = bias;
            c.residual = residual;
            c.activation = activation;
            std::string what = std::string(name(dtype)) + (last ? " channels last" : "") + (bias ? " bias" : "") +
                               (residual ? " residual" : "") + (activation == Activation::Relu ? " relu" : "");
            auto outcome = check(*gpu, c, what);
            ++all;
            fused += outcome.fused ? 1 : 0;
            if (!outcome.fused) RecordProperty("left to the kernel: " + what, "1");
          }
  RecordProperty("fused", fused);
  RecordProperty("of", all);
  EXPECT_GT(fused, 0) << "cuDNN fused none of " << all << " epilogues without compiling at run time";
}

TEST(GpuConv, EmptyAndOverNothing) {
  TESSERA_GPU_OR_SKIP(gpu);
  check(*gpu, plain({0, 2, 4, 4}, {3, 2, 2, 2}, {1, 1}, {0, 0}, {0, 0}, {1, 1}), "batch 0");
  check(*gpu, plain({1, 0, 4, 4}, {3, 0, 2, 2}, {1, 1}, {0, 0}, {0, 0}, {1, 1}), "no channels");
}

TEST(GpuPool, KindsTypesAndLayouts) {
  TESSERA_GPU_OR_SKIP(gpu);
  struct Case {
    Dims x, kernel, strides, pads;
  };
  const Case cases[] = {{{2, 8, 14, 14}, {3, 3}, {2, 2}, {1, 1}},
                        {{1, 5, 9, 7}, {2, 3}, {1, 2}, {0, 1}},
                        {{2, 3, 17}, {3}, {2}, {1}},
                        {{1, 4, 6, 5, 4}, {2, 2, 2}, {2, 1, 2}, {0, 1, 0}},
                        {{2, 8, 7, 7}, {7, 7}, {1, 1}, {0, 0}}};
  for (DType dtype : kTypes)
    for (bool last : {true, false})
      for (auto kind : {PoolCall::Kind::Max, PoolCall::Kind::Average, PoolCall::Kind::AverageIncludePad})
        for (const auto& c : cases) {
          SCOPED_TRACE(std::string(name(dtype)) + " kind " + std::to_string(static_cast<int>(kind)));
          Dims y_dims = {c.x[0], c.x[1]};
          for (size_t i = 0; i + 2 < c.x.size(); ++i)
            y_dims.push_back((c.x[i + 2] + 2 * c.pads[i] - c.kernel[i]) / c.strides[i] + 1);
          auto lay = [&](const Dims& dims) { return last ? channels_last(dims) : test::dense(dims); };
          DeviceOperand x = filled(dtype, c.x, lay(c.x), 1), y = filled(dtype, y_dims, lay(y_dims), 2);
          x.view.buffer = 0;
          y.view.buffer = 1;
          PoolCall call;
          call.kind = kind;
          call.kernel = c.kernel;
          call.strides = c.strides;
          call.pads_begin = call.pads_end = c.pads;
          call.dilations = Dims(c.kernel.size(), 1);
          Context::Current current(gpu->context());
          std::vector<Operand> views = {x.view, y.view};
          auto plan = plan_cuda_pool({gpu->context(), "pool", false}, call, views);
          ASSERT_TRUE(plan.ok()) << plan.error().str();
          auto result = gpu->run(**plan, {&x, &y}, 1);
          ASSERT_TRUE(result.ok()) << result.error().str();
          each(y_dims, [&](const Dims& o) {
            double best = -std::numeric_limits<double>::infinity(), sum = 0, covered = 0, taps = 1;
            for (int64_t k : c.kernel) taps *= static_cast<double>(k);
            each(c.kernel, [&](const Dims& k) {
              Dims i = {o[0], o[1]};
              bool inside = true;
              for (size_t d = 0; d < k.size(); ++d) {
                i.push_back(o[d + 2] * c.strides[d] - c.pads[d] + k[d]);
                inside = inside && i.back() >= 0 && i.back() < c.x[d + 2];
              }
              if (!inside) return;
              double v = x.host.get_f64(position(x.view, i));
              best = std::max(best, v);
              sum += v;
              covered += 1;
            });
            double expected = kind == PoolCall::Kind::Max       ? best
                              : kind == PoolCall::Kind::Average ? sum / covered
                                                                : sum / taps;
            EXPECT_NEAR(result->get_f64(position(y.view, o)), expected, rounding_of(dtype) * (1 + std::abs(expected)));
          });
        }
}

} // namespace
} // namespace tessera::cuda
