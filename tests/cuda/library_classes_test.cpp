// The calls of one class (runtime/library_classes.h) in a plan of an executor, on a fake GPU with a fake cuBLASLt.
#include "tests/cuda/fake_cublaslt.h"
#include "tests/runtime/build_executable.h"

namespace tessera::cuda::test {
namespace {
using namespace tessera::test;

TEST(LibraryClasses, ACallOfAClassIsPreparedOnceAndEachTakesItsOwnBuffers) {
  fake_cublaslt::Machine machine;
  auto context = machine.state.gpu.context();
  auto library = [&](Context&) -> Result<std::shared_ptr<void>> { return std::shared_ptr<void>(machine.lt); };
  ASSERT_TRUE(context->attachment("cuBLASLt", library).ok());
  {
    Builder b;
    b.exe->target = "cuda sm_90";
    const SymExpr rows = b.symbol("rows"), width = 8;
    auto x = b.input("x", {rows, width}), h = b.buffer("h", {rows, width}), g = b.buffer("g", {rows, width}),
         y = b.output("y", {rows, width});
    auto layer = [&](BufferId from, const char* weight, BufferId bias, BufferId to) {
      MatmulCall call{b.dense(from), b.dense(b.input(weight, {width, width})), b.dense(to), std::nullopt};
      call.fused.emplace().bias = StridedOperand{bias, {rows, width}, {0, 1}, 0};
      call.fused->bias_dim = 1;
      b.exe->steps.emplace_back(LibraryStep{weight, call});
    };
    layer(x, "w0", b.input("b0", {width}), h);
    layer(h, "w1", b.input("b1", {width}), g);
    layer(g, "w2", b.input("b2", {width}), y);
    ExecutorOptions options;
    options.gpu_context = context;
    auto executor = Executor::create({b.done()}, options);
    ASSERT_TRUE(executor.ok()) << executor.error().str();
    auto filled = [](Dims dims, auto value) {
      Tensor t = Tensor::create(DType::F32, std::move(dims)).value();
      auto elements = t.mutable_as<float>();
      for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<float>(value(i));
      return t;
    };
    auto diagonal = [&](float d) { return filled({8, 8}, [&](size_t i) { return i % 9 == 0 ? d : 0; }); };
    auto all = [&](float v) { return filled({8}, [&](size_t) { return v; }); };
    int descriptors = 0;
    for (int64_t n : {1, 3}) {
      const Tensor in = random_tensor({n, 8}, 7);
      auto out = (*executor)->run({{"x", in},
                                   {"w0", diagonal(2)},
                                   {"w1", diagonal(3)},
                                   {"w2", diagonal(5)},
                                   {"b0", all(1)},
                                   {"b1", all(10)},
                                   {"b2", all(100)}});
      ASSERT_TRUE(out.ok()) << out.error().str();
      for (int64_t i = 0; i < n * 8; ++i)
        EXPECT_FLOAT_EQ((*out)[0].as<float>()[static_cast<size_t>(i)],
                        ((in.as<float>()[static_cast<size_t>(i)] * 2 + 1) * 3 + 10) * 5 + 100);
      ASSERT_TRUE((*executor)->wait().ok()); // kernels of other sizes are loaded
      EXPECT_EQ(machine.state.live - descriptors, 4) << "three layouts and one product in each plan";
      descriptors = machine.state.live;
    }
  }
}

} // namespace
} // namespace tessera::cuda::test
