#include "runtime/cuda/gemm_sizes.h"
#include "runtime/cuda/product_kernels.h"
#include "tests/cuda/fake_cublaslt.h"
#include "tests/cuda/library_product.h"
#include <future>
#include <set>
#include <thread>

namespace tessera::cuda::test {
namespace {

using fake_cublaslt::Machine;

// [rows, 40] x [40, 24], of which the rows vary from call to call.
Status plan_rows(Machine& machine, int64_t rows, ProductKernels* kernels,
                 std::shared_ptr<const PreparedProduct>* product = nullptr) {
  Context::Current current(machine.gpu->context());
  const Product p = dense_product(DType::F16, {}, rows, 24, 40);
  ShapeEnv env;
  MatmulCall call;
  call.a.shape = {env.named_symbol("rows"), SymExpr(40)};
  call.b.shape = {SymExpr(40), SymExpr(24)};
  call.c.shape = {call.a.shape[0], SymExpr(24)};
  std::vector<Operand> operands = {p.a.view, p.b.view, p.c.view};
  for (size_t i = 0; i < operands.size(); ++i) operands[i].buffer = static_cast<BufferId>(i);
  const std::string name = "rows";
  return plan_cuda_matmul({machine.gpu->context(), name, false, false, product, kernels, true}, call, operands).ok()
             ? Status()
             : Status(Diagnostic(ErrorCode::Internal, "no plan"));
}

std::shared_ptr<ProductKernels> kernels_of(Machine& machine) {
  auto kernels = ProductKernels::of(machine.gpu->context());
  EXPECT_TRUE(kernels.ok());
  return kernels.ok() ? *kernels : nullptr;
}

struct Form final : ProductKernels::Form {
  explicit Form(std::function<std::optional<bool>()> f) : answer(std::move(f)) {}
  Result<std::optional<bool>> make_ready(int64_t, CUstream) override { return answer(); }
  std::function<std::optional<bool>()> answer;
};

TEST(ProductKernels, AreLoadedForSizesAroundTheFirst) {
  Machine machine;
  machine.state.alike_from = 256;
  const auto kernels = kernels_of(machine);
  kernels->enter();
  ASSERT_TRUE(plan_rows(machine, 97, kernels.get()).ok());
  kernels->wait();
  const std::set<uint64_t> loaded(machine.state.algorithms.begin(), machine.state.algorithms.end());
  EXPECT_EQ(loaded.size(), machine.state.algorithms.size()) << "each kernel once";
  std::set<int64_t> cells;
  for (int64_t n = 1; n <= 512; ++n) cells.insert(rounded_size(n, kSizeParts));
  EXPECT_EQ(loaded.size(), std::count_if(cells.begin(), cells.end(), [](int64_t n) { return n <= 256; }))
      << "of all sizes below, and upwards while there are others";

  const int heuristics = machine.state.heuristics;
  EXPECT_EQ(heuristics, static_cast<int>(cells.size())) << "a doubling more that brings nothing new, and no further";
  for (int64_t n = 1; n <= 512; ++n) ASSERT_TRUE(plan_rows(machine, n, kernels.get()).ok());
  kernels->wait();
  EXPECT_EQ(machine.state.heuristics, heuristics) << "calls find what was queried";
  EXPECT_EQ(machine.state.algorithms.size(), loaded.size()) << "a form is walked around once";
  kernels->leave();
  EXPECT_EQ(machine.gpu->context().held_bytes(), 0);
}

TEST(ProductKernels, OnlyWhereColumnsAloneVary) {
  Machine machine;
  const auto kernels = kernels_of(machine);
  kernels->enter();
  auto p = dense_product(DType::F16, {}, 97, 24, 40);
  const std::string name = "a product";
  MatmulCall call;
  ShapeEnv env;
  const std::vector<Operand> views = {p.a.view, p.b.view, p.c.view};
  for (const bool varies : {false, true}) { // true: all sizes
    for (auto* part : {&call.a, &call.b, &call.c}) {
      part->shape.clear();
      for (const char* size : {"r", "c"}) part->shape.push_back(varies ? env.named_symbol(size) : SymExpr(24));
    }
    Context::Current current(machine.gpu->context());
    EXPECT_TRUE(
        plan_cuda_matmul({machine.gpu->context(), name, false, false, nullptr, kernels.get(), true}, call, views).ok());
  }
  kernels->wait();
  EXPECT_EQ(machine.state.calls, 0);
  kernels->leave();
}

// Kernels are loaded while no call is submitted, and without such a moment only at the rate that pause_ratio allows.
TEST(ProductKernels, AreLoadedInGapsOfCalls) {
  for (const double pause_ratio : {0.0, 1e9}) {
    Machine machine;
    ProductKernels kernels(machine.gpu->context(), pause_ratio);
    std::atomic<int> steps = 0;
    kernels.enter();
    {
      const ProductKernels::Submission call(kernels);
      kernels.form("a form", 8, [&] {
        return std::make_shared<Form>([&] {
          ++steps;
          std::this_thread::sleep_for(std::chrono::microseconds(100));
          return std::optional(false);
        });
      });
      while (steps == 0) std::this_thread::yield();
      if (pause_ratio == 0) {
        kernels.wait();
      } else {
        const ProductKernels::Submission another(kernels);
        const ProductKernels::Gap gap(kernels); // of one of them
        for (int i = 0; i < 1000; ++i) std::this_thread::yield();
        EXPECT_EQ(steps, 1);
      }
    }
    kernels.wait();
    EXPECT_GT(steps, 8);
    kernels.leave();
  }
}

TEST(ProductKernels, TheLastUserGivesUpWhatIsLeft) {
  Machine machine;
  const auto kernels = kernels_of(machine);
  std::atomic<int> calls = 0;
  std::promise<void> hold;
  const std::shared_future<void> released = hold.get_future().share();
  auto slow = [&] {
    return std::make_shared<Form>([&] {
      ++calls;
      released.wait();
      return std::optional(true);
    });
  };
  kernels->enter();
  kernels->enter();
  kernels->form("a form", 8, slow);
  while (calls == 0) std::this_thread::yield();
  bool requested = false;
  EXPECT_TRUE(kernels->add_query([&](CUstream) { return requested = true, false; }));
  kernels->leave(); // another one is there
  std::thread release([&] { hold.set_value(); });
  kernels->leave();
  release.join();
  const int done = calls;
  EXPECT_GE(done, 1);
  kernels->wait();
  EXPECT_EQ(calls, done) << "nothing after it";
  EXPECT_FALSE(requested);
  kernels->enter();
  kernels->form("a form", 8, [] { return std::make_shared<Form>([] { return std::optional<bool>(); }); });
  kernels->wait(); // begun anew: the first answer ends it upwards
  kernels->leave();
}

// A plan that is used again queries its own sizes, away from calls, and what calls then find is loaded.
TEST(ProductKernels, AnswersForSizesThatComeAgainAreLoaded) {
  Machine machine;
  const auto kernels = kernels_of(machine);
  kernels->enter();
  PreparedProducts products(1);
  ASSERT_TRUE(plan_rows(machine, 97, kernels.get(), &products[0]).ok());
  kernels->wait();
  const auto loaded = machine.state.algorithms.size();
  const int heuristics = machine.state.heuristics;

  auto better = improvement_of(products, kernels.get());
  ASSERT_TRUE(better.has_value());
  std::promise<void> hold;
  ASSERT_TRUE(kernels->add_query([released = hold.get_future().share()](CUstream) { return released.wait(), false; }));
  ASSERT_TRUE(better->begin());
  EXPECT_FALSE(better->outdated());
  EXPECT_EQ(machine.state.heuristics, heuristics) << "not in the call";
  PreparedProducts before(1);
  ASSERT_TRUE(plan_rows(machine, 97, kernels.get(), &before[0]).ok());
  EXPECT_TRUE(improvement_of(before, kernels.get()).has_value())
      << "meanwhile another plan takes what the first one took";
  hold.set_value();
  kernels->wait();
  EXPECT_TRUE(better->outdated()) << "the fake's answers all differ";
  EXPECT_EQ(machine.state.heuristics, heuristics + 1);
  ASSERT_EQ(machine.state.algorithms.size(), loaded + 1);

  PreparedProducts after(1);
  ASSERT_TRUE(plan_rows(machine, 97, kernels.get(), &after[0]).ok());
  EXPECT_FALSE(improvement_of(after, kernels.get()).has_value());
  EXPECT_EQ(machine.state.heuristics, heuristics + 1);
  kernels->leave();
  EXPECT_EQ(machine.gpu->context().held_bytes(), 0);
}

TEST(ProductKernels, QueriesAreBounded) {
  Machine machine;
  const auto kernels = kernels_of(machine);
  kernels->enter();
  std::promise<void> hold;
  std::atomic<bool> waits = false;
  ASSERT_TRUE(kernels->add_query([&](CUstream) {
    waits = true;
    hold.get_future().wait();
    return false;
  }));
  while (!waits) std::this_thread::yield();
  std::atomic<int> answered = 0;
  for (size_t i = 0; i < ProductKernels::kMaxQueries; ++i)
    EXPECT_TRUE(kernels->add_query([&](CUstream) { return ++answered, false; }));
  EXPECT_FALSE(kernels->add_query([&](CUstream) { return ++answered, false; }));
  hold.set_value();
  kernels->wait();
  EXPECT_EQ(answered, ProductKernels::kMaxQueries);
  std::vector<int> order; // the second one waits for all parts of the first
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(
        kernels->add_query([&order, i, parts = 3](CUstream) mutable { return order.push_back(i), --parts > 0; }));
  kernels->wait();
  EXPECT_EQ(order, (std::vector<int>{0, 0, 0, 1, 1, 1}));
  EXPECT_TRUE(kernels->add_query([](CUstream) -> bool { throw std::bad_alloc(); })) << "which ends no thread";
  kernels->wait();
  kernels->leave();
}

TEST(ProductKernels, AnErrorEndsAWalkAndNoCall) {
  Machine machine;
  const auto kernels = kernels_of(machine);
  kernels->enter();
  machine.state.gpu.fail("cuMemAllocFromPoolAsync", 0, CUDA_ERROR_OUT_OF_MEMORY, 2); // it is tried twice
  ASSERT_TRUE(plan_rows(machine, 97, kernels.get()).ok());
  kernels->wait();
  EXPECT_EQ(machine.state.calls, 0);
  ASSERT_TRUE(plan_rows(machine, 33, kernels.get()).ok());
  kernels->wait();
  EXPECT_EQ(machine.state.calls, 0) << "begun once";
  kernels->leave();
  EXPECT_EQ(machine.gpu->context().held_bytes(), 0);
}

} // namespace
} // namespace tessera::cuda::test
