// Convolutions by warpgroups (sm_90a): bulk copies bring boxes of images, whose pixels outside are zeros.
#include "../schedule/block_harness.h"
#include "codegen/llvm/gpu_compiler.h"
#include "emulated.h"

namespace tessera::test {
namespace {

// A convolution of images [n, h, w, c], channels last, with weights [o, kernel, kernel, c]; of rows and columns of pixels
// alike.
struct Form {
  int64_t n = 2, h = 8, w = 8, c = 32, o = 32, kernel = 3, stride = 1, pad = 1, dilation = 1;
  std::string dtype = "f16";
  bool epilogue = false; // relu(sum + bias) + residual
};

int64_t results(const Form& f, int64_t size) {
  return (size + 2 * f.pad - f.dilation * (f.kernel - 1) - 1) / f.stride + 1;
}

Problem convolution(const Form& f) {
  auto shape = [](std::initializer_list<int64_t> dims) {
    std::string text = "[";
    for (const int64_t d : dims) text += (text.size() > 1 ? ", " : "") + std::to_string(d);
    return text + "]";
  };
  const int64_t h = results(f, f.h), w = results(f, f.w);
  auto pixel = [&](const std::string& i, const std::string& r) {
    return std::to_string(f.stride) + "*" + i + " + " + std::to_string(f.dilation) + "*" + r + " - " +
           std::to_string(f.pad);
  };
  const std::string y = pixel("i1", "i5"), x = pixel("i2", "i6");
  auto inside = [](const std::string& at, int64_t size) {
    return "and(le(0, " + at + "), lt(" + at + ", " + std::to_string(size) + "))";
  };
  std::string tensors = "x: " + f.dtype + shape({f.n, f.h, f.w, f.c}) + "\nw: " + f.dtype +
                        shape({f.o, f.kernel, f.kernel, f.c}) + "\ny: " + f.dtype + shape({f.n, h, w, f.o});
  std::string nest = "nest conv outer(i0: " + std::to_string(f.n) + ", i1: " + std::to_string(h) +
                     ", i2: " + std::to_string(w) + ", i3: " + std::to_string(f.o) +
                     ") row(i4: " + std::to_string(f.c) + ", i5: " + std::to_string(f.kernel) +
                     ", i6: " + std::to_string(f.kernel) + ") {\n";
  if (f.pad > 0) nest += " %10 = index and(" + inside(y, f.h) + ", " + inside(x, f.w) + ") : bool\n";
  nest += " %0 = load x[i0, " + y + ", " + x + ", i4]" + (f.pad > 0 ? " if %10" : "") +
          " : f32\n %1 = load w[i3, i5, i6, i4] : f32\n %2 = mul %0, %1 : f32\n %3 = reduce.sum %2 : f32\n";
  std::string result = "%3";
  if (f.epilogue) {
    tensors += "\nbias: " + f.dtype + shape({f.o}) + "\nr: " + f.dtype + shape({f.n, h, w, f.o});
    nest +=
        " %4 = load bias[i3] : f32\n %5 = add %3, %4 : f32\n %6 = const 0 : f32\n %7 = max %5, %6 : f32\n %8 = load "
        "r[i0, i1, i2, i3] : f32\n %9 = add %7, %8 : f32\n";
    result = "%9";
  }
  return problem(tensors, nest + " store.row y[i0, i1, i2, i3] = " + result + " }");
}

// The kernels of schedules that `wanted` admits, `take` of them; each by warpgroups, and right.
void expect_by_warpgroups(const Case& c, size_t take, const std::function<bool(const Schedule&)>& wanted) {
  const Meant m = meant(c);
  ASSERT_FALSE(m.expected.empty());
  const EmulatedArch arch("sm_90a");
  size_t met = 0;
  each_kernel(
      c, gpu_with(3),
      [&](const Schedule& s) {
        return s.kind == ScheduleKind::BlockContraction && s.tile.rows == 64 && s.tile.columns == 32 &&
               s.tile.warps == 4 && s.traversal.num_stages == 3 && std::popcount(s.placement.depth_axes) == 1 &&
               wanted(s);
      },
      [&](const Legal& l, ScheduledKernel k) {
        if (met++ >= take) return;
        k.why = print(l.schedule);
        // As a plan without aliases says.
        for (tile::Param& param : std::span(k.kernel.params).first(k.buffers.size()))
          param.invariant = !param.written && !param.in_place;
        ASSERT_TRUE(tile::verify(k.kernel).ok()) << tile::verify(k.kernel).error().str() << tile::print(k.kernel);
        const auto code = compile_gpu_kernel(k.kernel, *GpuTarget::parse("sm_90a"));
        ASSERT_TRUE(code.ok()) << code.error().str();
        EXPECT_NE(code->products.find("by warpgroups"), std::string::npos) << code->products << "\n"
                                                                           << tile::print(k.kernel);
        const auto emulated = EmulatedProgram::compile(k.kernel, *GpuTarget::parse("sm_90a"));
        ASSERT_TRUE(emulated.ok()) << emulated.error().str();
        EXPECT_EQ(emulated->threads(), 32 * (l.schedule.tile.warps + 4)) << "a producer, here too";
        expect_meant(c, m, k, 4e-3);
      });
  EXPECT_GE(met, take);
}

// With rows as a box, or along one axis.
void expect_convolved(const Form& f, size_t take = 2, bool box = true) {
  expect_by_warpgroups({convolution(f), {}}, take, [&](const Schedule& s) {
    return (s.placement.row_box != 0) == box && std::popcount(s.placement.row_axes) == (box ? 3 : 1) &&
           s.tile.depth == std::min<int64_t>(64, power_above(f.c));
  });
}

TEST(Convolutions, OfPaddedImages) {
  expect_convolved({});
  expect_convolved({.n = 3, .h = 7, .w = 7, .epilogue = true});
  expect_convolved({.h = 13, .w = 17, .c = 24, .o = 24, .dtype = "bf16"}, 1);
}

TEST(Convolutions, OfUnpaddedImages) {
  expect_convolved({.h = 9, .w = 12, .pad = 0});
  expect_convolved({.h = 9, .w = 12, .kernel = 2, .pad = 0, .dilation = 3}, 1);
}

TEST(Convolutions, WithSteps) {
  expect_convolved({.h = 14, .w = 15, .stride = 2, .epilogue = true});
  expect_convolved({.h = 11, .w = 13, .c = 72, .kernel = 1, .stride = 2, .pad = 0}, 1);
  expect_convolved({.h = 19, .w = 17, .kernel = 5, .stride = 3, .pad = 2}, 1);
}

TEST(Convolutions, WithRowsAlongLines) {
  expect_convolved({.n = 1, .h = 5, .w = 70}, 1, false);
  expect_convolved({.n = 1, .h = 7, .w = 68, .stride = 2}, 1, false);
}

TEST(Convolutions, WithDilations) { expect_convolved({.h = 10, .w = 11, .pad = 2, .dilation = 2}); }

// A matrix of a batch is a dimension of its tensor.
TEST(Convolutions, ProductsOfABatch) {
  expect_by_warpgroups(
      {problem(
           "a: f16[b, m, k]\nb: f16[b, k, n]\ny: f16[b, m, n]",
           "nest batch outer(i0: b, i1: m, i2: n) row(i3: k) {\n %0 = load a[i0, i1, i3] : f32\n %1 = load b[i0, i3, "
           "i2] : f32\n %2 = mul %0, %1 : f32\n %3 = reduce.sum %2 : f32\n store.row y[i0, i1, i2] = %3 }"),
       {{"b", 3}, {"m", 70}, {"n", 40}, {"k", 72}}},
      2, [](const Schedule& s) { return s.placement.row_box == 0 && s.tile.depth == 64; });
}

} // namespace
} // namespace tessera::test
