// Executables whose kernels the fake GPU knows, and executors of them.
#pragma once
#include "fake_driver.h"
#include "runtime/cuda/code_object.h"
#include "tests/runtime/build_executable.h"

namespace tessera::test {

class OnGpu : public ::testing::Test {
protected:
  OnGpu(); // kernels: twice, checked, broken

  std::vector<char> object(const std::string& symbol) {
    cuda::CodeObject o;
    o.symbol = symbol;
    o.ptx_arch = "sm_90";
    o.ptx = "// " + symbol;
    return cuda::encode(o);
  }
  KernelLaunch launch(Builder& b, const std::string& symbol, BufferId in, BufferId out, SymExpr n) {
    auto k = Builder::launch(symbol, nullptr, {in}, {out}, {n}, ceildiv(n, 64));
    k.name = "the kernel " + symbol;
    k.threads = 64;
    k.object = static_cast<int>(b.exe->objects.size());
    b.exe->objects.push_back(object(symbol));
    if (symbol == "checked") k.report_sites = {{}, {"", "x", "checked"}};
    return k;
  }
  void kernel(Builder& b, const std::string& symbol, BufferId in, BufferId out, SymExpr n) {
    b.exe->steps.emplace_back(launch(b, symbol, in, out, n));
  }
  Builder builder() {
    Builder b;
    b.exe->target = "cuda sm_90";
    return b;
  }
  // x -> t -> y, each by `symbol`: y = 4 x + 3 n.
  std::shared_ptr<const Executable> chain(const std::string& first = "twice", const std::string& second = "twice") {
    auto b = builder();
    auto s = b.symbol("s");
    auto x = b.input("x", {s}), t = b.buffer("t", {s}), y = b.output("y", {s});
    kernel(b, first, x, t, s);
    kernel(b, second, t, y, s);
    return b.done();
  }
  Result<std::unique_ptr<Executor>> create(std::vector<std::shared_ptr<const Executable>> variants) {
    if (!options.gpu_context) options.gpu_context = gpu.context();
    return Executor::create(std::move(variants), options);
  }
  // `compile`: another variant for each miss; empty: there is none.
  std::unique_ptr<Executor> executor(std::shared_ptr<const Executable> exe, CompilingSource::Compile compile = {}) {
    if (!options.gpu_context) options.gpu_context = gpu.context();
    auto e = compile ? make_executor(std::make_shared<CompilingSource>(std::vector{exe}, std::move(compile)), options)
                     : create({exe});
    EXPECT_TRUE(e.ok()) << e.error().str();
    return std::move(*e);
  }
  static Tensor ramp(int64_t n, float from = 0) {
    Tensor t = Tensor::create(DType::F32, {n}).value();
    for (auto& v : t.mutable_as<float>()) v = from++;
    return t;
  }
  static std::vector<float> values(const Tensor& t) { return {t.as<float>().begin(), t.as<float>().end()}; }
  static std::vector<float> expected(const Tensor& x) {
    auto v = values(x);
    for (auto& e : v) e = 4 * e + 3 * static_cast<float>(v.size());
    return v;
  }
  static std::vector<float> at_address(uint64_t address, int64_t n) {
    const auto* p = reinterpret_cast<const float*>(address);
    return {p, p + n};
  }
  static DeviceTensor device(uint64_t address, int64_t n) {
    return {DType::F32, {n}, reinterpret_cast<void*>(address)};
  }

  FakeGpu gpu; // destroyed last
  ExecutorOptions options;
};

} // namespace tessera::test
