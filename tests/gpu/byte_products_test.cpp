// Products of 8-bit floats and integers of graphs, compiled as for a Hopper GPU and run on the emulator, against sums in
// f64.
#include "../fusion/harness.h"
#include "../schedule/block_harness.h"
#include "codegen/driver/devices.h"
#include "codegen/driver/pipeline.h"
#include "codegen/llvm/gpu_compiler.h"
#include "emulated.h"
#include <cmath>

namespace tessera::test {
namespace {

struct Form {
  std::string left = "f8e4m3fn", right = "f8e4m3fn", result = "f32";
  int64_t n = 40, k = 96;
};

// (x * s) @ (w * t) + b with a scale of each row of x and of all of w.
std::string graph_of(const Form& f) {
  const std::string k = std::to_string(f.k), n = std::to_string(f.n), x = "[m, " + k + "]",
                    w = "[" + n + ", " + k + "]", y = "[m, " + n + "]";
  return "graph @main(%x: " + f.left + x + ", %w: " + f.right + w + ", %s: f32[m, 1], %t: f32[], %b: f32[" + n +
         "]) -> (%y: " + f.result + y + ") where m in [0, ?] hint 64 {\n  %x1 = cast(%x) to=f32 : f32" + x +
         "\n  %x2 = mul(%x1, %s) : f32" + x + "\n  %w1 = cast(%w) to=f32 : f32" + w + "\n  %w2 = mul(%w1, %t) : f32" +
         w + "\n  %w3 = transpose(%w2) perm=[1, 0] : f32[" + k + ", " + n + "]\n  %p = matmul(%x2, %w3) : f32" + y +
         "\n  %q = add(%p, %b) : f32" + y + "\n  %y = cast(%q) to=" + f.result + " : " + f.result + y + "\n}\n";
}

// The plan that a compile for sm_90a makes.
struct Planned {
  explicit Planned(const std::string& text) : graph(parsed(text)) {
    options.device = "cuda";
    options.arch = "sm_90a";
    auto made = make_backend(options);
    EXPECT_TRUE(made.ok());
    backend = std::move(*made);
    compilation = std::make_unique<Compilation>(graph, *backend, options);
    std::vector<std::string> pipeline = compile_pipeline(options.device).value();
    EXPECT_TRUE(stop_after(pipeline, "fuse-attention").ok());
    const auto passes = run_passes(*compilation, pipeline, {});
    EXPECT_TRUE(passes.ok()) << passes.error().str();
  }
  Graph graph;
  CompileOptions options;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Compilation> compilation;
};

void expect_right(const Form& f, Planned& planned, int64_t m) {
  SCOPED_TRACE(std::to_string(m) + " rows, depth " + std::to_string(f.k) + " of " + f.left + " and " + f.right);
  const Graph source = parsed(graph_of(f));
  const Inputs inputs = inputs_for(source, {{"m", m}}, static_cast<uint64_t>(7 * m + f.k));
  const EmulatedArch arch("sm_90a");
  const auto got = run_plan(planned.graph, planned.compilation->plan(), inputs);
  ASSERT_TRUE(got.ok()) << got.error().str() << print(planned.graph, planned.compilation->plan());
  const Tensor &x = inputs.at("x"), &w = inputs.at("w"), &s = inputs.at("s"), &t = inputs.at("t"), &b = inputs.at("b");
  for (int64_t row = 0; row < m; ++row)
    for (int64_t column = 0; column < f.n; ++column) {
      double sum = 0, all = 0;
      for (int64_t i = 0; i < f.k; ++i) {
        const double product = x.get_f64(row * f.k + i) * w.get_f64(column * f.k + i);
        sum += product, all += std::abs(product);
      }
      const double scale = s.get_f64(row) * t.get_f64(0), expected = sum * scale + b.get_f64(column);
      const double found = (*got)[0].get_f64(row * f.n + column);
      const double rounded = f.result == "f32" ? 1e-5 : 0.07 * std::abs(expected) + 0.01;
      ASSERT_NEAR(found, expected, rounded + 2e-4 * all * std::abs(scale)) << row << ", " << column;
    }
}

TEST(SmallFloats, ProductsOfGraphsAreRight) {
  for (const Form& f : {Form{}, Form{.left = "f8e5m2"}, Form{.right = "f8e5m2", .n = 33}, Form{.result = "f8e4m3fn"},
                        Form{.k = 32}, Form{.k = 0}, Form{.k = 33}, Form{.k = 272}}) {
    Planned planned(graph_of(f));
    for (const int64_t m : {1, 15, 16, 17, 127, 128, 129}) expect_right(f, planned, m);
    if (HasFailure()) return;
  }
}

// (x - p) (w - q) in i32, exactly, with one zero point of x and one of each column of w,
// or of either alone.
std::string integers(int64_t k, bool of_x, bool of_w) {
  const std::string depth = std::to_string(k), x = "[m, " + depth + "]", w = "[" + depth + ", 24]";
  std::string text = "graph @main(%x: u8" + x + ", %p: u8[], %q: i8[24]" + ", %v: i8[24, " + depth + "]" +
                     ") -> (%y: i32[m, 24]) where m in [0, ?] hint 64 {\n  %x1 = cast(%x) to=i32 : i32" + x + "\n";
  text += "  %w0 = transpose(%v) perm=[1, 0] : i8" + w + "\n";
  text += "  %w1 = cast(%w0) to=i32 : i32" + w + "\n";
  if (of_x) text += "  %p1 = cast(%p) to=i32 : i32[]\n  %x2 = sub(%x1, %p1) : i32" + x + "\n";
  if (of_w) text += "  %q1 = cast(%q) to=i32 : i32[24]\n  %w2 = sub(%w1, %q1) : i32" + w + "\n";
  return text + "  %y = matmul(" + (of_x ? "%x2" : "%x1") + ", " + (of_w ? "%w2" : "%w1") + ") : i32[m, 24]\n}\n";
}

TEST(ByteIntegers, ZeroPointsAreExact) {
  for (const int64_t k : {48, 35})
    for (const auto& [of_x, of_w] : {std::pair(true, false), {false, true}, {true, true}}) {
      const std::string text = integers(k, of_x, of_w);
      Planned planned(text);
      for (const int64_t m : {1, 17, 128}) {
        SCOPED_TRACE(std::to_string(m) + " rows, depth " + std::to_string(k) + (of_x ? ", of x" : "") +
                     (of_w ? ", of w" : ""));
        const Inputs inputs = inputs_for(parsed(text), {{"m", m}}, static_cast<uint64_t>(m + k), 127);
        const EmulatedArch arch("sm_90a");
        const auto got = run_plan(planned.graph, planned.compilation->plan(), inputs);
        ASSERT_TRUE(got.ok()) << got.error().str();
        const Tensor &x = inputs.at("x"), &w = inputs.at("v"), &p = inputs.at("p"), &q = inputs.at("q");
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < 24; ++j) {
            int64_t sum = 0;
            for (int64_t s = 0; s < k; ++s)
              sum += (x.get_i64(i * k + s) - (of_x ? p.get_i64(0) : 0)) *
                     (w.get_i64(j * k + s) - (of_w ? q.get_i64(j) : 0));
            ASSERT_EQ((*got)[0].get_i64(i * 24 + j), sum) << i << ", " << j;
          }
      }
    }
}

// A dynamically quantised product and one of dequantised operands, as models of ONNX have them: no library's product.
TEST(ByteIntegers, OfQuantisedModels) {
  const std::string dynamic =
      "graph @main(%x: f32[m, 64], %v: i8[24, 64], %t: f32[]) -> (%y: f32[m, 24]) where m in [1, ?] hint 64 {\n"
      "  %q, %s, %z = DynamicQuantizeLinear(%x) : u8[m, 64], f32[], u8[]\n"
      "  %w = transpose(%v) perm=[1, 0] : i8[64, 24]\n  %i = MatMulInteger(%q, %w, %z) : i32[m, 24]\n"
      "  %f = cast(%i) to=f32 : f32[m, 24]\n  %g = mul(%f, %s) : f32[m, 24]\n  %y = mul(%g, %t) : f32[m, 24]\n}\n";
  const std::string dequantised =
      "graph @main(%x: u8[m, 64], %z: u8[], %s: f32[], %v: i8[24, 64], %t: f32[24, 1]) -> (%y: f32[m, 24]) where m in "
      "[1, ?] hint 64 {\n  %a = DequantizeLinear(%x, %s, %z) : f32[m, 64]\n  %c = cast(%v) to=f32 : f32[24, 64]\n"
      "  %d = mul(%c, %t) : f32[24, 64]\n  %w = transpose(%d) perm=[1, 0] : f32[64, 24]\n"
      "  %y = MatMul(%a, %w) : f32[m, 24]\n}\n";
  for (const std::string& text : {dynamic, dequantised}) {
    Planned planned(text);
    const FusionPlan& plan = planned.compilation->plan();
    EXPECT_EQ(count(plan, Group::Kind::Library) + count(plan, Group::Kind::Host), 0) << print(planned.graph, plan);
    if (text == dynamic) continue; // its range takes more cooperative blocks than the emulator runs
    for (const int64_t m : {1, 17, 70}) {
      const Graph source = parsed(text);
      const Inputs inputs = inputs_for(source, {{"m", m}}, static_cast<uint64_t>(m), 127);
      const auto wanted = evaluate_graph(source, inputs);
      ASSERT_TRUE(wanted.ok()) << wanted.error().str();
      const EmulatedArch arch("sm_90a");
      const auto got = run_plan(planned.graph, plan, inputs);
      ASSERT_TRUE(got.ok()) << got.error().str();
      for (int64_t i = 0; i < m * 24; ++i) {
        const double expected = (*wanted)[0].get_f64(i);
        ASSERT_NEAR((*got)[0].get_f64(i), expected, 1e-4 * (1 + std::abs(expected))) << text << m << " rows, " << i;
      }
    }
  }
}

// One generated kernel for rows of whole accesses; the library's product of bf16 for others.
TEST(SmallFloats, WhatIsGenerated) {
  const Planned whole(graph_of({.n = 256, .k = 512})), odd(graph_of({.n = 256, .k = 513}));
  ASSERT_EQ(whole.compilation->plan().groups.size(), 1u) << print(whole.graph, whole.compilation->plan());
  EXPECT_EQ(whole.compilation->plan().groups[0].kind, Group::Kind::Kernel);
  EXPECT_EQ(count(odd.compilation->plan(), Group::Kind::Library), 1) << print(odd.graph, odd.compilation->plan());
}

// Warpgroups compute it, with sums that are promoted, and right where tiles end within the product.
TEST(SmallFloats, ByWarpgroups) {
  for (const auto& [left, right] : {std::pair{"f8e4m3fn", "f8e4m3fn"}, {"f8e5m2", "f8e4m3fn"}}) {
    const Case c{problem("a: " + std::string(left) + "[m, k]\nb: " + right + "[n, k]\nt: f32[n]\ny: bf16[m, n]",
                         "nest product outer(i0: m, i1: n) row(i2: k) {\n %0 = load a[i0, i2] : f32\n %1 = load b[i1, "
                         "i2] : f32\n %2 = mul %0, %1 : f32\n %3 = reduce.sum %2 : f32\n %4 = load t[i1] : f32\n %5 = "
                         "mul %3, %4 : f32\n store.row y[i0, i1] = %5 }"),
                 {{"m", 150}, {"n", 72}, {"k", 336}}};
    const Meant m = meant(c);
    const EmulatedArch arch("sm_90a");
    size_t met = 0;
    each_kernel(
        c, gpu_with(3),
        [](const Schedule& s) {
          return s.kind == ScheduleKind::BlockContraction && s.tile.rows == 64 && s.tile.columns == 32 &&
                 s.tile.warps == 4 && s.tile.depth == 128 && s.traversal.num_stages == 3;
        },
        [&](const Legal& l, ScheduledKernel k) {
          if (met++ >= 2) return;
          k.why = print(l.schedule);
          for (tile::Param& param : std::span(k.kernel.params).first(k.buffers.size()))
            param.invariant = !param.written;
          const auto code = compile_gpu_kernel(k.kernel, *GpuTarget::parse("sm_90a"));
          ASSERT_TRUE(code.ok()) << code.error().str();
          EXPECT_NE(code->products.find("by warpgroups"), std::string::npos) << code->products;
          EXPECT_NE(code->ptx.find("k32.f32.e"), std::string::npos);
          const auto emulated = EmulatedProgram::compile(k.kernel, *GpuTarget::parse("sm_90a"));
          ASSERT_TRUE(emulated.ok()) << emulated.error().str();
          EXPECT_EQ(emulated->threads(), 32 * (4 + 4)) << "a producer, here too";
          expect_meant(c, m, k, 8e-3);
        });
    EXPECT_GE(met, 1u);
  }
}

} // namespace
} // namespace tessera::test
