// Executables for an NVIDIA GPU, compiled without one: what library calls say of their epilogues, also after a file.
#include "harness.h"
#include "runtime/executor.h"
#include "tests/cuda/variable.h"
#include <algorithm>

namespace tessera::driver_test {
namespace {

template <class Call>
const Call* only_call(const Executable& e) {
  const Call* found = nullptr;
  for (const auto& step : e.steps)
    if (const auto* l = std::get_if<LibraryStep>(&step))
      if (const auto* c = std::get_if<Call>(&l->call)) {
        EXPECT_EQ(found, nullptr);
        found = c;
      }
  EXPECT_NE(found, nullptr);
  return found;
}

std::shared_ptr<const Executable> through_file(const Executable& e, const TemporaryFolder& folder) {
  std::string path = folder.path() + "/model.tsr";
  auto saved = save_executable(e, path, true);
  EXPECT_TRUE(saved.ok()) << (saved.ok() ? "" : saved.error().str());
  auto loaded = load_executable(path);
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().str());
  return loaded.ok() ? *loaded : nullptr;
}

CompileOptions for_cuda(const TemporaryFolder& folder) {
  CompileOptions o = options(folder.path());
  o.device = "cuda";
  o.arch = "sm_90";
  return o;
}

void check_product(const Executable& e) {
  const auto* call = only_call<MatmulCall>(e);
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call->scale, 0.25);
  ASSERT_TRUE(call->fused);
  EXPECT_EQ(call->fused->activation, LibraryEpilogue::Activation::Relu);
  EXPECT_EQ(call->fused->alpha, 1);
  ASSERT_TRUE(call->fused->bias && call->fused->residual);
  EXPECT_EQ(call->fused->bias_dim, 1);
  EXPECT_EQ(call->fused->bias->strides.size(), 2u);
  // The kernel that finishes where the library refuses reads and writes the final result.
  ASSERT_TRUE(call->epilogue);
  const auto& buffers = call->epilogue->kernel.buffers;
  EXPECT_EQ(std::count(buffers.begin(), buffers.end(), call->c.buffer), 2);
  EXPECT_EQ(e.buffers[static_cast<size_t>(call->c.buffer)].kind, BufferInfo::Kind::Output);
  for (BufferId b : buffers) {
    ASSERT_GE(b, 0);
    EXPECT_NE(e.buffers[static_cast<size_t>(b)].kind, BufferInfo::Kind::Temporary) << "the raw result has no memory";
  }
  // The operands that the library reads must be alive then.
  for (const auto* o : {&*call->fused->bias, &*call->fused->residual})
    EXPECT_EQ(e.buffers[static_cast<size_t>(o->buffer)].kind, BufferInfo::Kind::Input);
}

TEST(CudaBuild, AProductNamesItsEpilogueAndScale) {
  TemporaryFolder folder;
  auto compiled = compile_it(
      parse(
          R"(graph @main(%x: f16[b, 8], %w: f16[8, 16], %c: f16[16], %r: f16[b, 16]) -> (%y: f16[b, 16]) where b in [2, ?] {
  %quarter = constant {0.25} : f16[]
  %zero = constant {0.0} : f16[]
  %q = mul(%x, %quarter) : f16[b, 8]
  %p = matmul(%q, %w) : f16[b, 16]
  %h = add(%p, %c) : f16[b, 16]
  %z = add(%h, %r) : f16[b, 16]
  %y = max(%z, %zero) : f16[b, 16]
})"),
      for_cuda(folder));
  ASSERT_NE(compiled.executable, nullptr);
  EXPECT_EQ(compiled.executable->steps.size(), 1u);
  check_product(*compiled.executable);
  if (auto loaded = through_file(*compiled.executable, folder)) check_product(*loaded);
}

void check_convolution(const Executable& e) {
  const auto* call = only_call<ConvCall>(e);
  ASSERT_NE(call, nullptr);
  ASSERT_TRUE(call->fused && call->fused->bias);
  EXPECT_EQ(call->fused->bias_dim, 1);
  EXPECT_FALSE(call->fused->residual);
  EXPECT_EQ(call->fused->activation, LibraryEpilogue::Activation::Relu);
  ASSERT_TRUE(call->epilogue);
}

TEST(CudaBuild, AConvolutionNamesItsEpilogue) {
  TemporaryFolder folder;
  auto compiled = compile_it(
      parse(
          R"(graph @main(%x: f32[n, 6, 6, 4], %w: f32[8, 4, 3, 3], %b: f32[8]) -> (%y: f32[n, 6, 6, 8]) where n in [2, ?] {
  %zero = constant {0.0} : f32[]
  %c = conv(%x, %w) strides=[1, 1] pads_begin=[1, 1] pads_end=[1, 1] dilations=[1, 1] groups=1 channels_last=1 : f32[n, 6, 6, 8]
  %d = add(%c, %b) : f32[n, 6, 6, 8]
  %y = max(%d, %zero) : f32[n, 6, 6, 8]
})"),
      for_cuda(folder));
  ASSERT_NE(compiled.executable, nullptr);
  check_convolution(*compiled.executable);
  if (auto loaded = through_file(*compiled.executable, folder)) check_convolution(*loaded);
}

TEST(CudaBuild, WithoutLibrariesThereAreOnlyKernels) {
  TemporaryFolder folder;
  auto o = for_cuda(folder);
  o.cublaslt = o.cudnn = false;
  auto compiled = compile_it(
      parse(R"(graph @main(%x: f32[n, 4, 6], %w: f32[8, 4, 3], %m: f32[6, 5]) -> (%y: f32[n, 8, 5]) where n in [2, ?] {
  %c = conv(%x, %w) strides=[1] pads_begin=[1] pads_end=[1] dilations=[1] groups=1 : f32[n, 8, 6]
  %y = matmul(%c, %m) : f32[n, 8, 5]
})"),
      o);
  ASSERT_NE(compiled.executable, nullptr);
  EXPECT_EQ(compiled.executable->host_steps, 0);
  for (const auto& step : compiled.executable->steps) EXPECT_TRUE(std::holds_alternative<KernelLaunch>(step));
}

// Calls of a library that is absent where the model runs, and nodes that a library refused, are loops from the start.
TEST(CudaBuild, WithoutALibraryItsCallsAreLoops) {
  TemporaryFolder folder;
  auto source = [] {
    auto model = Maker()
                     .input("x", {1, 2, 6, 6})
                     .input("v", {2, 2, 3, 3})
                     .input("w", {6, 4})
                     .add("Conv", {"x", "v"}, {"c"})
                     .add("MaxPool", {"x"}, {"p"}, {onnx_test::ints_attribute("kernel_shape", {2, 2})})
                     .add("MatMul", {"x", "w"}, {"m"})
                     .output("c")
                     .output("p")
                     .output("m")
                     .import_it();
    EXPECT_TRUE(model.ok()) << model.error().str();
    return std::move(model->graph);
  };
  auto calls = [&](const CompileOptions& o, std::vector<std::string>* warnings = nullptr) {
    auto compiled = compile_it(source(), o);
    if (warnings) *warnings = compiled.report.device_warnings;
    std::string kinds;
    for (const auto& step : compiled.executable->steps)
      if (const auto* l = std::get_if<LibraryStep>(&step)) kinds += "mcp"[l->call.index()];
    std::sort(kinds.begin(), kinds.end());
    return kinds;
  };
  auto o = for_cuda(folder);
  EXPECT_EQ(calls(o), "cmp");
  o.as_loops = {"n_c", "another"};
  EXPECT_EQ(calls(o), "mp");
  o.as_loops = {"n_m", "n_p"};
  EXPECT_EQ(calls(o), "c");
  o.as_loops.clear();
  o.find_libraries = true;
  std::vector<std::string> warnings;
  {
    test::Variable without("TESSERA_CUDA_WITHOUT", "cublaslt,cudnn");
    EXPECT_EQ(calls(o, &warnings), "");
    ASSERT_GE(warnings.size(), 2u);
    EXPECT_EQ(warnings[0], "cuBLASLt is left out: TESSERA_CUDA_WITHOUT names it: products are generated loops");
    EXPECT_NE(warnings[1].find("convolutions and pooling are generated loops"), std::string::npos) << warnings[1];
  }
}

// cuDNN's call with one kernel behind it; where cuDNN is left out, or has no such score, the kernel alone.
TEST(CudaBuild, AttentionIsALibraryCallOrOneKernel) {
  TemporaryFolder folder;
  auto steps = [&](bool cudnn, const std::string& score) {
    std::string text =
        "graph @main(%q: f16[2, 3, s, 64], %k: f16[2, 3, s, 64], %v: f16[2, 3, s, 64]) -> (%y: f16[2, 3, s, 64]) "
        "where s in [1, 64] {\n  %kt = transpose(%k) perm=[0, 1, 3, 2] : f16[2, 3, 64, s]\n"
        "  %p = matmul(%q, %kt) : f16[2, 3, s, s]\n" +
        score +
        "  %m = reduce_max(%x) axes=[3] keepdims=1 : f32[2, 3, s, 1]\n"
        "  %z = sub(%x, %m) : f32[2, 3, s, s]\n  %e = exp(%z) : f32[2, 3, s, s]\n"
        "  %n = reduce_sum(%e) axes=[3] keepdims=1 : f32[2, 3, s, 1]\n"
        "  %d = div(%e, %n) : f32[2, 3, s, s]\n  %w = cast(%d) to=f16 : f16[2, 3, s, s]\n"
        "  %y = matmul(%w, %v) : f16[2, 3, s, 64]\n}";
    auto g = parse_graph(text);
    EXPECT_TRUE(g.ok()) << (g.ok() ? "" : g.error().str());
    CompileOptions o = for_cuda(folder);
    o.cudnn = cudnn;
    auto c = compile(std::move(*g), o);
    EXPECT_TRUE(c.ok()) << (c.ok() ? "" : c.error().str());
    std::string kinds;
    if (!c.ok()) return kinds;
    for (const auto& step : c->executable->steps) {
      const auto* library = std::get_if<LibraryStep>(&step);
      kinds += library ? "library instead of " + std::to_string(library->instead_of) + "; "
               : std::holds_alternative<KernelLaunch>(step) ? "kernel; "
                                                            : "other; ";
    }
    return kinds;
  };
  const std::string plain = "  %x = cast(%p) to=f32 : f32[2, 3, s, s]\n";
  const std::string capped = "  %t = tanh(%p) : f16[2, 3, s, s]\n  %x = cast(%t) to=f32 : f32[2, 3, s, s]\n";
  EXPECT_EQ(steps(true, plain), "library instead of 1; kernel; ");
  EXPECT_EQ(steps(true, capped), "kernel; ");
  EXPECT_EQ(steps(false, plain), "kernel; ");
}

} // namespace
} // namespace tessera::driver_test
