// Every tenth allocation of import, compile and run fails, one at a time: an error each time (or success, where the
// allocation was not needed), nothing hangs, and the next run is right. In LLVM, whose allocations are hundreds of
// thousands, the steps are longer, so that no phase has more than some attempts: each costs a compile.
#include "api/c.h"
#include "base/guarded.h"
#include "codegen/compilation/kernels.h"
#include "failing_allocations.h"
#include "tests/api/harness.h"
#include "tests/base/seeds.h"
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <oneapi/dnnl/dnnl.h>
#include <thread>
#include <unistd.h>

namespace tessera {
namespace {

using api_test::Inputs;
using onnx_test::Maker;

// Ends the program where an attempt does not end, and says which.
class Watchdog {
public:
  Watchdog(const char* phase, long number) {
    std::snprintf(text(), kText, "hangs: %s, with allocation %ld failing\n", phase, number);
    std::signal(SIGALRM, [](int) {
      (void)!::write(STDERR_FILENO, text(), std::strlen(text()));
      std::abort();
    });
    ::alarm(60);
  }
  ~Watchdog() { ::alarm(0); }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

private:
  static constexpr size_t kText = 200;
  static char* text() {
    static char buffer[kText];
    return buffer;
  }
};

struct Case {
  std::string name;
  Maker model;
  Inputs inputs, other; // `other`: of another shape
};

std::vector<float> values(int count) {
  std::vector<float> v;
  for (int i = 0; i < count; ++i) v.push_back(static_cast<float>(i % 7 - 3) / 8);
  return v;
}

// A product with what follows it, and a reduction.
Case product() {
  Maker m;
  m.input("x", {"b", 8}).output("y", {"b", 16});
  m.weight(onnx_test::float_tensor("w", {8, 16}, values(128))).weight(onnx_test::float_tensor("c", {16}, values(16)));
  m.add("MatMul", {"x", "w"}, {"p"}).add("Add", {"p", "c"}, {"q"}).add("Erf", {"q"}, {"r"});
  m.add("Softmax", {"r"}, {"y"}, {onnx_test::int_attribute("axis", -1)});
  return {"product", m, {{"x", api_test::numbers({3, 8})}}, {{"x", api_test::numbers({5, 8}, 1)}}};
}

Case convolution() {
  Maker m;
  m.input("x", {"b", 3, 8, 8}).output("y", {"b", 4, 3, 3});
  m.weight(onnx_test::float_tensor("w", {4, 3, 3, 3}, values(108)));
  m.weight(onnx_test::float_tensor("c", {4}, values(4)));
  m.add("Conv", {"x", "w", "c"}, {"p"}).add("Relu", {"p"}, {"q"});
  m.add("MaxPool", {"q"}, {"y"},
        {onnx_test::ints_attribute("kernel_shape", {2, 2}), onnx_test::ints_attribute("strides", {2, 2})});
  return {"convolution", m, {{"x", api_test::numbers({2, 3, 8, 8})}}, {{"x", api_test::numbers({1, 3, 8, 8}, 1)}}};
}

// Sizes that are data.
Case host() {
  Maker m;
  m.input("x", {"b", 4}).output("y");
  m.weight(onnx_test::float_tensor("half", {1}, {0.5f}));
  m.add("Abs", {"x"}, {"a"}).add("NonZero", {"a"}, {"n"});
  m.add("Cast", {"n"}, {"f"}, {onnx_test::int_attribute("to", onnx_test::proto::TensorProto::FLOAT)});
  m.add("Mul", {"f", "half"}, {"y"});
  return {"host", m, {{"x", api_test::numbers({3, 4})}}, {{"x", api_test::numbers({6, 4}, 1)}}};
}

struct Phase {
  std::string name;
  std::function<Status()> attempt;
  std::function<void()> next;         // expects that what the attempt is about works
  std::function<void()> prepare = {}; // before each attempt
  long stride = 10;
  int next_every = 1; // after every so many failures, and at the end
  bool once = true;
  long most = 0; // attempts, about; the stride is longer where that is needed. 0: any number
};

// Longer where TESSERA_TEST_SEEDS gives a share of the attempts. Odd, so that it is in step with no loop that allocates
// twice or four times.
long stride_of(const Phase& phase) {
  const long percent = test::seeds(100);
  if (phase.most == 0) return percent == 100 ? phase.stride : phase.stride * 100 / percent | 1;
  if (phase.prepare) phase.prepare();
  const long before = test::allocations();
  EXPECT_TRUE(phase.attempt().ok()) << phase.name << ", undisturbed";
  return std::max(phase.stride, (test::allocations() - before) / phase.most) * 100 / percent | 1;
}

// Returns how many attempts had an allocation fail.
long inject(const Phase& phase) {
  long failures = 0, errors = 0;
  const long stride = stride_of(phase);
  for (long number = 1;; number += stride) {
    Watchdog watchdog(phase.name.c_str(), number);
    if (phase.prepare) phase.prepare();
    test::FailingAllocations failing(number, phase.once);
    Status status = phase.attempt();
    const bool failed = failing.stop();
    if (!status.ok()) {
      ++errors;
      EXPECT_TRUE(failed) << phase.name << ": " << status.error().str();
      EXPECT_EQ(info(status.error().code).name, info(ErrorCode::OutOfMemory).name)
          << phase.name << ", allocation " << number << ": " << status.error().str();
    }
    if (!failed) break;
    if (++failures % phase.next_every == 0) phase.next();
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << phase.name << ", allocation " << number;
      return failures;
    }
  }
  phase.next();
  std::printf("%-40s %6ld attempts, %6ld errors\n", phase.name.c_str(), failures, errors);
  EXPECT_GT(errors, 0) << phase.name;
  return failures;
}

template <class T>
Status without_value(Result<T> result) {
  if (!result.ok()) return std::move(result).failure();
  return {};
}

class Injected : public testing::TestWithParam<Case (*)()> {
protected:
  void SetUp() override {
    case_ = GetParam()();
    path_ = api_test::write(case_.model);
    options_ = api_test::options();
    auto session = Session::open(path_, options_); // also fills the cache of objects, and starts LLVM
    ASSERT_TRUE(session.ok()) << session.error().str();
    session_ = std::move(*session);
    api_test::expect_right(case_.model, case_.inputs, session_->run(case_.inputs));
    wanted_ = *session_->run(case_.inputs);
    session_ = std::move(Session::open(path_, options_).value()); // whose weights nobody has packed
    // oneDNN 2.6 writes to address 0 where memory fails while it generates code: its cache has the code that is needed.
    ASSERT_EQ(dnnl_set_primitive_cache_capacity(1024), dnnl_success);
    expect_same(session_->run(case_.inputs), wanted_);
    session_ = std::move(Session::open(path_, options_).value());
  }
  void TearDown() override { ASSERT_EQ(dnnl_set_primitive_cache_capacity(0), dnnl_success); }
  static void expect_same(const Result<std::vector<Tensor>>& got, const std::vector<Tensor>& wanted) {
    ASSERT_TRUE(got.ok()) << got.error().str();
    ASSERT_EQ(got->size(), wanted.size());
    for (size_t o = 0; o < wanted.size(); ++o) {
      ASSERT_EQ((*got)[o].dims(), wanted[o].dims());
      ASSERT_EQ(std::memcmp((*got)[o].data(), wanted[o].data(), wanted[o].bytes()), 0);
    }
  }
  void expect_opens() {
    auto session = Session::open(path_, options_);
    ASSERT_TRUE(session.ok()) << session.error().str();
    expect_same((*session)->run(case_.inputs), wanted_);
  }
  [[nodiscard]] std::string phase(const std::string& name) const { return case_.name + ": " + name; }

  Case case_;
  std::string path_;
  SessionOptions options_;
  std::unique_ptr<Session> session_;
  std::vector<Tensor> wanted_;
};

TEST_P(Injected, Import) {
  auto import = [&] {
    return guarded("importing", [&] { return without_value(onnx::import_file(path_, options_.import)); });
  };
  inject({phase("import"), import, [&] { expect_opens(); }, {}, 10, 50});
}

TEST_P(Injected, PassesAndFusion) {
  std::optional<ImportedModel> model;
  auto plan = [&] {
    return guarded("planning", [&]() -> Status {
      TESSERA_TRY(run_pipeline(model->graph, {}));
      return without_value(plan_fusion(model->graph, {}));
    });
  };
  auto import = [&] {
    auto imported = onnx::import_file(path_, options_.import);
    ASSERT_TRUE(imported.ok());
    model.emplace(std::move(*imported));
  };
  inject({phase("passes and fusion"), plan, [&] { expect_opens(); }, import, 10, 50});
}

// All of it, objects from the cache: schedules, linking, building the executable, the executor.
TEST_P(Injected, Open) {
  auto open = [&] { return guarded("opening", [&] { return without_value(Session::open(path_, options_)); }); };
  inject({phase("open"), open, [&] { expect_opens(); }, {}, 10, 50});
  inject({phase("open, all fail from one on"), open, [&] { expect_opens(); }, {}, 101, 50, false});
}

TEST_P(Injected, CompileWithoutCache) {
  options_.compile.cache = false;
  auto open = [&] { return guarded("opening", [&] { return without_value(Session::open(path_, options_)); }); };
  inject({phase("compile"), open, [&] { expect_opens(); }, {}, 401, 20, true, 100});
}

TEST_P(Injected, CompileForAGpu) {
  options_.compile.device = "cuda";
  options_.compile.arch = "sm_90";
  options_.compile.cache = false;
  options_.compile_only = true;
  auto open = [&] { return guarded("opening", [&] { return without_value(Session::open(path_, options_)); }); };
  ASSERT_TRUE(open().ok()) << open().error().str(); // starts this part of LLVM
  inject({phase("compile for a GPU"), open, [&] { ASSERT_TRUE(open().ok()); }, {}, 997, 20, true, 60});
}

TEST_P(Injected, FirstRun) {
  auto first = [&]() -> Status {
    TESSERA_ASSIGN(auto executor, session_->new_executor());
    return without_value(executor->run(case_.inputs));
  };
  auto next = [&] {
    auto executor = session_->new_executor();
    ASSERT_TRUE(executor.ok());
    expect_same((*executor)->run(case_.inputs), wanted_);
  };
  inject({phase("first run"), first, next});
  inject({phase("first run, all fail from one on"), first, next, {}, 10, 1, false});
}

TEST_P(Injected, NextRuns) {
  std::unique_ptr<Executor> executor;
  auto prepare = [&] {
    executor = std::move(session_->new_executor().value());
    expect_same(executor->run(case_.inputs), wanted_);
  };
  prepare();
  auto other = executor->run(case_.other);
  api_test::expect_right(case_.model, case_.other, other);
  auto same = [&] { return without_value(executor->run(case_.inputs)); };
  auto next = [&] {
    expect_same(executor->run(case_.inputs), wanted_);
    expect_same(executor->run(case_.other), *other);
  };
  inject({phase("same shape again"), same, next, {}, 1});
  auto another = [&] { return without_value(executor->run(case_.other)); };
  inject({phase("another shape"), another, next, prepare});
}

// Two executors that need the same packed weights: neither waits for what the other has given up.
TEST_P(Injected, TwoExecutors) {
  auto first = [&]() -> Status {
    TESSERA_ASSIGN(auto executor, session_->new_executor());
    return without_value(executor->run(case_.inputs));
  };
  auto both = [&] {
    return guarded("running twice", [&]() -> Status {
      Status mine, others;
      {
        std::jthread thread([&] { others = first(); });
        mine = first();
      }
      TESSERA_TRY(std::move(others));
      return mine;
    });
  };
  inject({phase("two executors"), both, [&] { ASSERT_TRUE(first().ok()); }, {}, 10, 10});
}

// Errors of the C interface are texts.
TEST_P(Injected, CInterface) {
  auto status_of = [](const char* error) -> Status {
    if (error == nullptr) return {};
    const bool memory = std::string_view(error).find("TES-4001") != std::string_view::npos;
    return Diagnostic(memory ? ErrorCode::OutOfMemory : ErrorCode::Internal, error);
  };
  const Tensor& x = case_.inputs.at("x");
  const tessera_tensor input{"x", info(x.dtype()).onnx, static_cast<int32_t>(x.dims().size()), x.dims().data(),
                             const_cast<std::byte*>(x.data())};
  tessera_session* session = nullptr;
  ASSERT_EQ(tessera_open(path_.c_str(), "cpu", 2, &session), nullptr);
  std::vector<Tensor> results;
  std::vector<tessera_tensor> outputs;
  for (const Tensor& w : wanted_) results.push_back(Tensor::create(w.dtype(), w.dims()).value());
  for (Tensor& r : results)
    outputs.push_back(
        {nullptr, info(r.dtype()).onnx, static_cast<int32_t>(r.dims().size()), r.dims().data(), r.mutable_data()});
  auto call = [&] { return tessera_run(session, &input, 1, outputs.data(), static_cast<int32_t>(outputs.size())); };
  auto next = [&] {
    ASSERT_EQ(call(), nullptr);
    expect_same(results, wanted_);
  };
  inject({phase("C interface"), [&] { return status_of(call()); }, next, {}, 1});
  tessera_close(session);
}

// One kernel of many cannot be compiled.
TEST(InjectedCompile, AnExceptionOfOneKernelReachesTheCaller) {
  CompileOptions options;
  options.jobs = 2;
  for (size_t thrower = 0; thrower < 20; ++thrower)
    EXPECT_THROW(compile_each(20, options,
                              [&](size_t i) {
                                if (i == thrower) throw std::bad_alloc();
                              }),
                 std::bad_alloc);
  std::atomic<size_t> sum = 0;
  compile_each(20, options, [&](size_t i) { sum += i; });
  EXPECT_EQ(sum, 190U);
}

INSTANTIATE_TEST_SUITE_P(Models, Injected, testing::Values(product, convolution, host),
                         [](const auto& info) { return info.param().name; });

} // namespace
} // namespace tessera
