// Binding, guards, variants, in-place, host steps, outputs, errors, steady-state allocations.
#include "base/stopwatch.h"
#include "build_executable.h"
#include "count_allocations.h"
#include "runtime/guards.h"
#include <atomic>
#include <random>
#include <thread>

namespace tessera {
namespace {
using namespace test;

Tensor filled(Dims dims, float v) {
  Tensor t = Tensor::create(DType::F32, std::move(dims)).value();
  for (auto& x : t.mutable_as<float>()) x = v;
  return t;
}
ExecutorOptions options(int threads = 2) {
  ExecutorOptions o;
  o.pool = ThreadPool::create(threads);
  o.poison = true;
  return o;
}
// y = 2 x + rows over [rows, cols].
std::shared_ptr<const Executable> simple(Builder& b, SymExpr rows, SymExpr cols) {
  auto x = b.input("x", {rows, cols}), y = b.output("y", {rows, cols});
  b.kernel("twice", twice_plus, {x}, {y}, {rows}, rows * cols);
  return b.done();
}
ErrorCode code_of(Executor& e, const std::map<std::string, Tensor>& in, std::vector<Tensor>* out = nullptr) {
  auto r = e.run(in, nullptr, out);
  EXPECT_FALSE(r.ok());
  return r.ok() ? ErrorCode::Internal : r.error().code;
}

TEST(Executor, RunsEveryShapeWithOnePlanEach) {
  Builder b;
  auto s = b.symbol("s");
  auto e = Executor::create({simple(b, s, 3)}, options()).value();
  for (int round = 0; round < 2; ++round)
    for (int64_t n : {1, 5, 0, 40000}) {
      RunStats stats;
      auto r = e->run({{"x", filled({n, 3}, 1)}}, &stats);
      ASSERT_TRUE(r.ok()) << r.error().str();
      EXPECT_EQ((*r)[0].dims(), (Dims{n, 3}));
      for (float v : (*r)[0].as<float>()) ASSERT_EQ(v, 2 + static_cast<float>(n));
      EXPECT_EQ(stats.new_shape, round == 0);
    }
}

TEST(Executor, BindingErrorsNameInputAndSizes) {
  Builder b;
  auto s = b.symbol("s");
  auto x = b.input("x", {s, 4}), z = b.input("z", {s * 2, s + 1}), y = b.output("y", {s, 4});
  (void)z;
  b.kernel("twice", twice_plus, {x}, {y}, {s}, s * 4);
  auto e = Executor::create({b.done()}, options()).value();
  auto good = [&] { return std::map<std::string, Tensor>{{"x", filled({3, 4}, 0)}, {"z", filled({6, 4}, 0)}}; };
  ASSERT_TRUE(e->run(good()).ok());
  auto with = [&](const std::string& name, Tensor t) {
    auto m = good();
    m[name] = std::move(t);
    return m;
  };
  EXPECT_EQ(code_of(*e, {{"x", filled({3, 4}, 0)}}), ErrorCode::MissingInput);
  EXPECT_EQ(code_of(*e, with("q", filled({1}, 0))), ErrorCode::UnknownInput);
  EXPECT_EQ(code_of(*e, with("x", Tensor::create(DType::I64, {3, 4}).value())), ErrorCode::BadInput);
  EXPECT_EQ(code_of(*e, with("x", filled({3, 4, 1}, 0))), ErrorCode::BadInput);
  EXPECT_EQ(code_of(*e, with("x", filled({3, 5}, 0))), ErrorCode::BadInput);
  EXPECT_EQ(code_of(*e, with("x", Tensor())), ErrorCode::BadInput);
  auto r = e->run(with("z", filled({8, 4}, 0)));
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("'z'"), std::string::npos);
  EXPECT_NE(r.error().message.find("= 6"), std::string::npos) << r.error().message;
  EXPECT_TRUE(e->run(good()).ok()) << "usable after errors";
}

TEST(Executor, AnExpressionThatIsTheOnlyUseOfASymbolIsSolved) {
  Builder b;
  auto s = b.symbol("s");
  auto x = b.input("x", {s * 2 + 1}), y = b.output("y", {s});
  b.kernel("twice", twice_plus, {x}, {y}, {s}, s);
  auto e = Executor::create({b.done()}, options()).value();
  auto r = e->run({{"x", filled({9}, 1)}});
  ASSERT_TRUE(r.ok()) << r.error().str();
  EXPECT_EQ((*r)[0].dims(), (Dims{4}));
  EXPECT_EQ(code_of(*e, {{"x", filled({8}, 1)}}), ErrorCode::BadInput);
}

TEST(Executor, RequiredGuardsFailAssumedGuardsGoToTheNextVariantOrCompile) {
  auto make = [](bool specialised, bool required) {
    Builder b;
    auto s = b.symbol("s");
    if (specialised) b.exe->env->add_guard({sym_eq(mod(s, 8), 0), GuardClass::Assumed, "rows in eights", {}});
    if (required) b.exe->env->add_guard({sym_le(s, 512), GuardClass::Required, "the position table has 512 rows", {}});
    return simple(b, s, 2);
  };
  auto both = Executor::create({make(true, true), make(false, true)}, options()).value();
  RunStats stats;
  ASSERT_TRUE(both->run({{"x", filled({16, 2}, 1)}}, &stats).ok());
  EXPECT_EQ(stats.variant, 0);
  EXPECT_TRUE(stats.misses.empty());
  ASSERT_TRUE(both->run({{"x", filled({17, 2}, 1)}}, &stats).ok());
  EXPECT_EQ(stats.variant, 1);
  ASSERT_EQ(stats.misses.size(), 1u);
  EXPECT_EQ(stats.misses[0].reason, "rows in eights");
  EXPECT_EQ(stats.misses[0].sizes.at("s"), 17);
  EXPECT_EQ(code_of(*both, {{"x", filled({513, 2}, 1)}}), ErrorCode::GuardFailed);

  auto alone = Executor::create({make(true, false)}, options()).value();
  EXPECT_EQ(code_of(*alone, {{"x", filled({3, 2}, 1)}}), ErrorCode::GuardFailed);

  int compiled = 0;
  auto exact = [](const GuardMiss& miss) -> Result<std::shared_ptr<const Executable>> {
    EXPECT_EQ(miss.sizes.at("s"), 3);
    Builder b;
    auto s = b.symbol("s");
    b.exe->env->add_guard({sym_eq(s, 3), GuardClass::Assumed, "exact", {}});
    return simple(b, s, 2);
  };
  auto source = std::make_shared<CompilingSource>(std::vector{make(true, false)}, [&](const GuardMiss& miss) {
    ++compiled;
    return exact(miss);
  });
  auto compiling = make_executor(source, options()).value();
  for (int i = 0; i < 2; ++i) {
    auto r = compiling->run({{"x", filled({3, 2}, 1)}}, &stats);
    ASSERT_TRUE(r.ok()) << r.error().str();
    EXPECT_EQ(stats.recompiles, i == 0);
    EXPECT_EQ(stats.variant, 1);
    EXPECT_EQ((*r)[0].as<float>()[0], 5);
  }
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(compiling->variants().size(), 2u);
  EXPECT_EQ(source->calls.size(), 2u);
  EXPECT_EQ(source->calls[1].first, compiling->variants()[1]);

  source = std::make_shared<CompilingSource>(std::vector{make(true, false)},
                                             [&](const GuardMiss&) -> Result<std::shared_ptr<const Executable>> {
                                               return Diagnostic(ErrorCode::CodegenError, "the compiler is broken");
                                             });
  auto failing = make_executor(source, options()).value();
  auto failed = failing->run({{"x", filled({3, 2}, 1)}});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::GuardFailed);
  EXPECT_NE(failed.error().str().find("the compiler is broken"), std::string::npos) << failed.error().str();
  EXPECT_TRUE(failing->run({{"x", filled({8, 2}, 1)}}).ok());
}

TEST(Executor, TakesBetterCodeAndGivesUpVariantsBetweenCalls) {
  auto make = [](bool guarded) {
    Builder b;
    auto s = b.symbol("s");
    if (guarded) b.exe->env->add_guard({sym_eq(mod(s, 8), 0), GuardClass::Assumed, "rows in eights", {}});
    return simple(b, s, 2);
  };
  const auto first = make(true), better = make(true);
  int compiled = 0;
  auto source = std::make_shared<CompilingSource>(std::vector{first}, [&](const GuardMiss&) {
    ++compiled;
    return Result<std::shared_ptr<const Executable>>(make(false));
  });
  auto e = make_executor(source, options()).value();
  RunStats stats;
  auto ran = [&](int64_t rows) {
    auto r = e->run({{"x", filled({rows, 2}, 1)}}, &stats);
    EXPECT_TRUE(r.ok() && (*r)[0].dims() == Dims({rows, 2}));
    return source->calls.back().first;
  };
  EXPECT_EQ(ran(8), first);
  source->replace(0, better);
  EXPECT_EQ(ran(8), better);
  EXPECT_EQ(stats.renewals, 1);
  EXPECT_EQ(source->calls.back().second, 1);
  EXPECT_EQ(ran(8), better);
  EXPECT_EQ(stats.renewals, 0);
  EXPECT_NE(ran(3), better); // a variant for any sizes
  EXPECT_EQ(stats.variant, 1);
  EXPECT_EQ(ran(8), better) << "the new one takes no call from one that answered it before";
  source->replace(1, nullptr);
  (void)ran(3);
  EXPECT_EQ(stats.renewals, 1) << "one was given up";
  EXPECT_EQ(compiled, 2);
}

TEST(Guards, RangeAndDivisorOfASymbolAreChecked) {
  Builder b;
  auto s = b.exe->env->create_symbol("s", {2, 64}, 4);
  auto e = Executor::create({simple(b, s, 1)}, options()).value();
  EXPECT_TRUE(e->run({{"x", filled({8, 1}, 1)}}).ok());
  EXPECT_EQ(code_of(*e, {{"x", filled({6, 1}, 1)}}), ErrorCode::GuardFailed);
  EXPECT_EQ(code_of(*e, {{"x", filled({68, 1}, 1)}}), ErrorCode::GuardFailed);
}

TEST(Executor, TakesOverMemoryInPlaceAndWritesGivenOutputs) {
  Builder b;
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), t = b.buffer("t", {s}), u = b.buffer("u", {s}), y = b.output("y", {s});
  b.kernel("k0", twice_plus, {x}, {t}, {SymExpr(1)}, s);
  b.kernel("k1", twice_plus, {t}, {u}, {SymExpr(1)}, s);
  b.kernel("k2", twice_plus, {u}, {y}, {SymExpr(1)}, s);
  b.exe->buffers[static_cast<size_t>(u)].in_place_of = t;
  auto e = Executor::create({b.done()}, options()).value();
  std::vector<Tensor> out{filled({1000}, 0)};
  const auto* where = out[0].data();
  RunStats stats;
  auto r = e->run({{"x", filled({1000}, 1)}}, &stats, &out);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ((*r)[0].data(), where);
  EXPECT_EQ(out[0].as<float>()[999], 15);
  EXPECT_LT(stats.arena_bytes, 8000) << "one buffer, not two";
  std::vector<Tensor> wrong{filled({999}, 0)}, none;
  EXPECT_EQ(code_of(*e, {{"x", filled({1000}, 1)}}, &wrong), ErrorCode::BadInput);
  EXPECT_EQ(code_of(*e, {{"x", filled({1000}, 1)}}, &none), ErrorCode::BadInput);
  std::vector<Tensor> alias{filled({1000}, 0)};
  EXPECT_EQ(code_of(*e, {{"x", alias[0]}}, &alias), ErrorCode::BadInput);
}

// x -> t -> u -> y, with a second output z of u: t and u have room in z and x.
TEST(Executor, IntermediateResultsLieInMemoryThatTheCallerLends) {
  Builder b;
  auto s = b.symbol("s");
  auto x = b.input("x", {s * 2}), w = b.input("w", {s}), t = b.buffer("t", {s}), u = b.buffer("u", {s}),
       y = b.output("y", {s * 2}), z = b.output("z", {s});
  b.kernel("k0", twice_plus, {w}, {t}, {SymExpr(1)}, s);
  b.kernel("k1", twice_plus, {x}, {z}, {SymExpr(1)}, s);
  b.kernel("k2", twice_plus, {t}, {u}, {SymExpr(1)}, s);
  b.kernel("k3", twice_plus, {u}, {y}, {SymExpr(1)}, s);
  auto e = Executor::create({b.done()}, options()).value();
  struct Called {
    std::vector<std::vector<float>> out;
    int64_t arena;
    bool overwritten, same_input;
  };
  auto call = [&](int64_t n, std::vector<uint8_t> flags, size_t shift) {
    std::vector<Tensor> made(2);
    const Tensor a = filled({2 * n + 64}, 3), c = filled({n}, 1);
    auto given = [](const Tensor& in, int64_t size, size_t by) {
      return DeviceTensor{DType::F32, {size}, const_cast<std::byte*>(in.data()) + by};
    };
    const OutputAllocator allocate = [&](size_t o, DType dtype, const Dims& dims) -> Result<void*> {
      TESSERA_ASSIGN(made[o], Tensor::create(dtype, {dims[0] + 64}));
      return made[o].mutable_data() + shift;
    };
    DonatedInputs donated{flags};
    RunStats stats;
    const std::vector<DeviceTensor> in{given(a, 2 * n, shift), given(c, n, 0)};
    const Status status = e->call(in, allocate, nullptr, &stats, nullptr, &donated);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().str());
    Called done{{}, stats.arena_bytes, donated.overwritten, true};
    for (const Tensor& m : made) {
      const auto* at = reinterpret_cast<const float*>(m.data() + shift);
      done.out.emplace_back(at, at + n);
    }
    for (float v : a.as<float>()) done.same_input = done.same_input && v == 3;
    return done;
  };
  for (int round = 0; round < 2; ++round)
    for (int64_t n : {1000, 0, 1, 1023}) {
      const Called kept = call(n, {}, 0), lent = call(n, {1, 0}, 0), outputs = call(n, {0, 0}, 0);
      EXPECT_EQ(lent.out, kept.out);
      EXPECT_EQ(outputs.out, kept.out);
      EXPECT_TRUE(kept.same_input && outputs.same_input);
      EXPECT_FALSE(kept.overwritten || outputs.overwritten);
      if (n < 1000) continue;
      EXPECT_LT(lent.arena, outputs.arena);
      EXPECT_TRUE(lent.overwritten && !lent.same_input);
      // Memory that is not aligned as blocks are lends nothing.
      const Called odd = call(n, {1, 0}, 4);
      EXPECT_EQ(odd.out, kept.out);
      EXPECT_EQ(odd.arena, kept.arena);
      EXPECT_FALSE(odd.overwritten);
    }
}

TEST(Executor, OutputsStayAsTheyAreWhenLaterRunsReuseMemory) {
  Builder b;
  auto s = b.symbol("s");
  auto e = Executor::create({simple(b, s, 1)}, options()).value();
  auto kept = e->run({{"x", filled({50000, 1}, 1)}}).value()[0];
  const std::byte* dropped = nullptr;
  { dropped = e->run({{"x", filled({50000, 1}, 2)}}).value()[0].data(); }
  auto again = e->run({{"x", filled({50000, 1}, 3)}}).value()[0];
  EXPECT_EQ(again.data(), dropped);
  EXPECT_NE(again.data(), kept.data());
  EXPECT_EQ(kept.as<float>()[7], 50002);
  EXPECT_EQ(again.as<float>()[7], 50006);
}

void reports_site(void* const*, const int64_t*, int64_t begin, int64_t, void*, IndexReport* report) {
  if (begin == 0) report->add(1, 3, -9);
}
TEST(Executor, IndexViolationsAreTheInputsFault) {
  Builder b;
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), y = b.output("y", {s});
  auto k = Builder::launch("gather", reports_site, {x}, {y}, {}, s);
  k.report_sites = {{}, {"table", "ids", "Gather_3", s + 1, true, {s, 2}}};
  b.exe->steps.emplace_back(k);
  auto r = Executor::create({b.done()}, options()).value()->run({{"x", filled({4}, 0)}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::BadInput);
  EXPECT_EQ(r.error().message, "index -9 at [1, 1] of 'ids' is out of range [-5, 5) of 'table' in Gather_3");
}

TEST(Executor, HostStepsDefineSizesForWhatFollows) {
  Builder b;
  auto s = b.symbol("s"), n = b.symbol("n");
  auto x = b.input("x", {s}), t = b.buffer("t", {s}), p = b.buffer("positive", {n}), u = b.buffer("u", {n}),
       y = b.output("y", {n}), z = b.output("z", {n});
  b.kernel("before", twice_plus, {x}, {t}, {SymExpr(0)}, s);
  HostStep h;
  h.name = "keep";
  h.op = "keep_positive";
  h.inputs = {t, -1};
  h.outputs = {p};
  h.defines = {{n, 0, 0}};
  h.run = [&](const std::vector<Tensor>& in,
              const std::unordered_map<uint64_t, int64_t>& symbols) -> Result<std::vector<Tensor>> {
    EXPECT_FALSE(in[1].defined() && in[1].count() > 0);
    EXPECT_EQ(symbols.at(s.symbol_id()), in[0].count());
    std::vector<float> v;
    for (float f : in[0].as<float>())
      if (f > 0) v.push_back(f);
    return std::vector<Tensor>{Tensor::of<float>(DType::F32, {static_cast<int64_t>(v.size())}, v)};
  };
  b.exe->steps.emplace_back(h);
  b.kernel("after", twice_plus, {p}, {u}, {n}, n);
  b.kernel("last", twice_plus, {u}, {y}, {n}, n);
  b.exe->steps.emplace_back(CopyStep{"copy", p, z});
  b.exe->host_steps = 1;
  auto e = Executor::create({b.done()}, options()).value();
  for (auto values : std::vector<std::vector<float>>{{1, -1, 2}, {-1, -2}, {3, 4, 5}, {1, -1, 2}, {}}) {
    std::vector<float> want;
    for (float f : values)
      if (f > 0) want.push_back(2 * f);
    auto r = e->run({{"x", Tensor::of<float>(DType::F32, {static_cast<int64_t>(values.size())}, values)}});
    ASSERT_TRUE(r.ok()) << r.error().str();
    ASSERT_EQ((*r)[0].count(), static_cast<int64_t>(want.size()));
    auto count = static_cast<float>(want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ((*r)[0].as<float>()[i], 2 * (2 * want[i] + count) + count);
      EXPECT_EQ((*r)[1].as<float>()[i], want[i]);
    }
  }
}

TEST(Executor, AHostResultThatShowsItsOperandIsCopied) {
  Builder b;
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), t = b.buffer("t", {s}), v = b.buffer("v", {s}), w = b.buffer("w", {s}),
       y = b.output("y", {s});
  b.kernel("k", twice_plus, {x}, {t}, {SymExpr(0)}, s);
  HostStep h;
  h.name = h.op = "identity";
  h.inputs = {t};
  h.outputs = {v};
  h.run = [](const std::vector<Tensor>& in, const auto&) -> Result<std::vector<Tensor>> {
    return std::vector<Tensor>{in[0]};
  };
  b.exe->steps.emplace_back(h);
  b.kernel("other", twice_plus, {x}, {w}, {SymExpr(100)}, s); // takes t's memory
  b.kernel("sum", twice_plus, {v}, {y}, {SymExpr(0)}, s);
  b.kernel("use", twice_plus, {w}, {w}, {SymExpr(0)}, s);
  auto r = Executor::create({b.done()}, options()).value()->run({{"x", filled({100}, 3)}});
  ASSERT_TRUE(r.ok()) << r.error().str();
  EXPECT_EQ((*r)[0].as<float>()[50], 12);
}

TEST(Executor, MemoryLimitAndImpossibleSizesAreErrors) {
  Builder b;
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), t = b.buffer("t", {s, s}), y = b.output("y", {s});
  b.kernel("k0", twice_plus, {x}, {t}, {SymExpr(1)}, s);
  b.kernel("k1", twice_plus, {t}, {y}, {SymExpr(1)}, s);
  auto o = options();
  o.memory_limit = 1 << 20;
  auto e = Executor::create({b.done()}, o).value();
  EXPECT_TRUE(e->run({{"x", filled({100}, 1)}}).ok());
  EXPECT_EQ(code_of(*e, {{"x", filled({1000}, 1)}}), ErrorCode::OutOfMemory);
  EXPECT_TRUE(e->run({{"x", filled({100}, 1)}}).ok());

  Builder c;
  auto n = c.symbol("n");
  auto in = c.input("x", {n}), big = c.buffer("big", {n, SymExpr(int64_t{1} << 40), SymExpr(int64_t{1} << 20)}),
       out = c.output("y", {n});
  c.kernel("k0", twice_plus, {in}, {big}, {SymExpr(1)}, n);
  c.kernel("k1", twice_plus, {big}, {out}, {SymExpr(1)}, n);
  EXPECT_EQ(code_of(*Executor::create({c.done()}, options()).value(), {{"x", filled({100}, 1)}}),
            ErrorCode::SizeOverflow);
}

TEST(Executor, ExecutablesThatContradictThemselvesAreRefused) {
  auto refused = [](const std::function<void(Executable&)>& damage) {
    Builder b;
    auto s = b.symbol("s");
    (void)simple(b, s, 2);
    damage(*b.exe);
    auto e = Executor::create({b.exe});
    EXPECT_FALSE(e.ok());
    return e.ok() ? ErrorCode::Usage : e.error().code;
  };
  EXPECT_EQ(refused([](Executable& e) { std::get<KernelLaunch>(e.steps[0]).buffers[0] = 9; }), ErrorCode::Internal);
  EXPECT_EQ(refused([](Executable& e) { e.outputs[0].buffer = 0; }), ErrorCode::Internal);
  EXPECT_EQ(refused([](Executable& e) { e.buffers[1].shape[0] = SymExpr::symbol("nobody"); }), ErrorCode::Internal);
  EXPECT_EQ(refused([](Executable& e) {
              std::get<KernelLaunch>(e.steps[0]).written = {true, true};
            }),
            ErrorCode::Internal);
  EXPECT_EQ(refused([](Executable& e) { e.target = "cuda sm_90a"; }), ErrorCode::UnsupportedFeature);
  EXPECT_EQ(refused([](Executable& e) {
              std::get<KernelLaunch>(e.steps[0]).function = nullptr;
              e.objects.resize(1);
              std::get<KernelLaunch>(e.steps[0]).object = 0;
            }),
            ErrorCode::UnsupportedFeature);
  EXPECT_FALSE(Executor::create({}).ok());
}

std::shared_ptr<const Executable> product_model() {
  Builder b;
  auto s = b.symbol("s");
  auto x = b.input("x", {s, 64}), w = b.constant("w", random_tensor({64, 200}, 5)), t = b.buffer("t", {s, 200}),
       y = b.output("y", {s, 200});
  b.exe->steps.emplace_back(LibraryStep{"product", MatmulCall{b.dense(x), b.dense(w), b.dense(t), std::nullopt}});
  std::get<LibraryStep>(b.exe->steps.back()).bytes = (s * 64 + 64 * 200 + s * 200) * 4;
  b.kernel("twice", twice_plus, {t}, {y}, {s}, s * 200);
  return b.done();
}

TEST(Executor, TwoExecutorsOnTwoThreadsShareOneExecutable) {
  auto exe = product_model();
  auto x = random_tensor({70, 64}, 9);
  auto want = Executor::create({exe}, options(1)).value()->run({{"x", x}}).value()[0];
  auto pool = ThreadPool::create(2);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      ExecutorOptions o;
      o.pool = pool;
      auto e = Executor::create({exe}, o).value();
      for (int i = 0; i < 200; ++i) {
        auto r = e->run({{"x", x}});
        if (!r.ok() || !compare((*r)[0], want, 1e-5, 1e-5).same) ++wrong;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

// Contexts come and go on many threads, with sizes that others run at the same moment; the plans of a context are its
// own, packed weights are shared.
TEST(Executor, ManyThreadsRunRandomSizesOfOneExecutable) {
  constexpr int kThreads = 16, kContexts = 4, kCalls = 25;
  constexpr int64_t kSizes = 12;
  auto exe = product_model();
  auto pool = ThreadPool::create(2);
  std::vector<Tensor> inputs, wanted;
  {
    auto e = Executor::create({exe}, options(1)).value();
    for (int64_t s = 0; s < kSizes; ++s) {
      inputs.push_back(random_tensor({1 + 9 * s, 64}, static_cast<uint32_t>(s)));
      wanted.push_back(e->run({{"x", inputs.back()}}).value()[0]);
    }
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int c = 0; c < kContexts; ++c) {
        ExecutorOptions o;
        o.pool = pool;
        auto e = Executor::create({exe}, o).value();
        for (int i = 0; i < kCalls; ++i) {
          const size_t s = random() % kSizes;
          auto r = e->run({{"x", inputs[s]}});
          if (!r.ok() || !compare((*r)[0], wanted[s], 1e-5, 1e-5).same) ++wrong;
        }
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Executor, ASteadyRunAllocatesOnlyOutputs) {
  auto e = Executor::create({product_model()},
                            [] {
                              auto o = options();
                              o.poison = false;
                              return o;
                            }())
               .value();
  std::map<std::string, Tensor> in{{"x", random_tensor({70, 64}, 9)}};
  std::vector<Tensor> out{filled({70, 200}, 0)};
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(e->run(in, nullptr, &out).ok());
  long before = allocations();
  constexpr int kRuns = 100;
  for (int i = 0; i < kRuns; ++i) (void)e->run(in, nullptr, &out);
  double per_run = static_cast<double>(allocations() - before) / kRuns;
  EXPECT_LE(per_run, 3) << "the vector of outputs, the dims of one output tensor, its copy";
}

TEST(Executor, ProfileHasEveryStep) {
  auto o = options();
  o.profile = true;
  RunStats stats;
  ASSERT_TRUE(Executor::create({product_model()}, o).value()->run({{"x", random_tensor({3, 64}, 9)}}, &stats).ok());
  ASSERT_EQ(stats.steps.size(), 2u);
  EXPECT_EQ(stats.steps[0].name, "product");
  EXPECT_EQ(stats.steps[0].bytes, (3 * 64 + 64 * 200 + 3 * 200) * 4);
}

TEST(ThreadPool, RegionsOpenAndCloseManyTimes) {
  // Bodies of varying length, so that helpers are met running, spinning and asleep when a region closes.
  auto pool = ThreadPool::create(3);
  std::atomic<int64_t> sum{0};
  int64_t want = 0;
  for (int i = 0; i < 20000; ++i) {
    pool->region([&] {
      const Stopwatch watch;
      while (watch.us() < 0.5 * (i % 7)) {
      }
      if (i % 3) pool->parallel_for(4, 1, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
    });
    want += i % 3 ? 4 : 0;
  }
  EXPECT_EQ(sum.load(), want);
}

TEST(ThreadPool, EveryIndexOnceWorkersInRange) {
  for (int threads : {1, 2, 5}) {
    auto pool = ThreadPool::create(threads);
    for (int64_t n : {0, 1, 7, 1000, 100001}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
      std::atomic<bool> bad{false};
      auto body = [&](int64_t begin, int64_t end, int worker) {
        if (worker < 0 || worker >= threads || begin >= end) bad = true;
        for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)]++;
        pool->parallel_for(3, 1, [&](int64_t a, int64_t b, int inner) {
          if (a != 0 || b != 3 || inner != worker) bad = true;
        });
      };
      pool->parallel_for(n, 3, body);
      pool->region([&] {
        for (int k = 0; k < 3; ++k) pool->parallel_for(n, 3, body);
      });
      EXPECT_FALSE(bad.load());
      for (auto& s : seen) ASSERT_EQ(s.load(), 4);
    }
  }
}

} // namespace
} // namespace tessera
