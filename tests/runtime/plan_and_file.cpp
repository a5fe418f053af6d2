// Arena plans over random lifetimes, symbol programs, saved executables and damaged files.
#include "build_executable.h"
#include "runtime/file_format.h"
#include "runtime/memory_plan.h"
#include "runtime/shape_plan.h"
#include "runtime/sym_program.h"
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <unistd.h>

namespace tessera {
namespace {
using namespace test;

TEST(MemoryPlan, NothingThatLivesTogetherOverlapsAndTheArenaIsNearTheBound) {
  double total = 0, bound = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 rng(seed);
    std::vector<PlannedBuffer> b(1 + rng() % 120);
    int steps = 1 + static_cast<int>(rng() % 60);
    for (auto& x : b) {
      x.first = static_cast<int>(rng() % static_cast<uint32_t>(steps));
      x.last = std::min(steps - 1, x.first + static_cast<int>(rng() % 6));
      x.bytes = rng() % 10 == 0 ? 0 : static_cast<int64_t>(rng() % (rng() % 4 == 0 ? 100000 : 3000));
    }
    for (size_t i = 0; i < b.size(); ++i) {
      auto from = rng() % b.size();
      if (rng() % 3 == 0 && b[from].last == b[i].first && from != i) b[i].in_place_of = static_cast<int>(from);
    }
    auto plan = plan_memory(b);
    ASSERT_TRUE(plan.ok());
    EXPECT_GE(plan->bytes, plan->lower_bound);
    total += static_cast<double>(plan->bytes);
    bound += static_cast<double>(plan->lower_bound);
    for (size_t i = 0; i < b.size(); ++i) {
      EXPECT_EQ(plan->offsets[i] % kArenaAlignment, 0);
      if (b[i].bytes > 0) {
        EXPECT_LE(plan->offsets[i] + b[i].bytes, plan->bytes);
      }
      for (size_t j = 0; j < i; ++j) {
        bool together = b[i].first <= b[j].last && b[j].first <= b[i].last;
        bool apart =
            plan->offsets[i] + b[i].bytes <= plan->offsets[j] || plan->offsets[j] + b[j].bytes <= plan->offsets[i];
        // A taker and its source meet in one step only, and there they share on purpose.
        auto takes = [&](size_t x, size_t y) {
          return b[x].in_place_of == static_cast<int>(y) && b[y].last == b[x].first;
        };
        bool shared = takes(i, j) || takes(j, i);
        if (together && !shared && b[i].bytes > 0 && b[j].bytes > 0) {
          ASSERT_TRUE(apart) << "seed " << seed << " buffers " << i << " and " << j;
        }
      }
    }
  }
  EXPECT_LT(total / bound, 1.05) << "on average the arena is close to what must live at once";
}

TEST(MemoryPlan, LentMemoryIsUsedWhileItIsFreeAndByOneBufferAtATime) {
  int used = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 rng(seed);
    std::vector<PlannedBuffer> b(1 + rng() % 60);
    constexpr int kSteps = 30;
    for (auto& x : b) {
      x.first = static_cast<int>(rng() % kSteps);
      x.last = std::min(kSteps - 1, x.first + static_cast<int>(rng() % 6));
      x.bytes = static_cast<int64_t>(rng() % 3000);
    }
    for (size_t i = 0; i < b.size(); ++i)
      if (auto from = rng() % b.size(); b[from].last == b[i].first && from != i)
        b[i].in_place_of = static_cast<int>(from);
    std::vector<Lent> lent(rng() % 8);
    for (auto& l : lent) {
      const bool output = rng() % 2 == 0;
      const int at = static_cast<int>(rng() % kSteps);
      l = {aligned(static_cast<int64_t>(rng() % 5000)), output ? 0 : at, output ? at : kSteps};
    }
    const auto without = plan_memory(b), with = plan_memory(b, lent);
    ASSERT_TRUE(without.ok() && with.ok());
    EXPECT_LE(with->lower_bound, without->lower_bound);
    for (size_t i = 0; i < b.size(); ++i) {
      if (with->lent[i] < 0) continue;
      const Lent& l = lent[static_cast<size_t>(with->lent[i])];
      ++used;
      EXPECT_TRUE(l.first <= b[i].first && b[i].last <= l.last) << "seed " << seed << " buffer " << i;
      EXPECT_TRUE(with->offsets[i] >= 0 && with->offsets[i] + b[i].bytes <= l.bytes) << "seed " << seed;
      for (size_t j = 0; j < b.size(); ++j) {
        if (i == j || with->lent[j] != with->lent[i]) continue;
        const bool apart_in_time = b[i].last < b[j].first || b[j].last < b[i].first;
        const bool apart =
            with->offsets[i] + b[i].bytes <= with->offsets[j] || with->offsets[j] + b[j].bytes <= with->offsets[i];
        const bool taken = b[i].in_place_of == static_cast<int>(j) || b[j].in_place_of == static_cast<int>(i);
        EXPECT_TRUE(apart_in_time || apart || taken || b[i].bytes == 0 || b[j].bytes == 0)
            << "seed " << seed << " buffers " << i << " and " << j;
      }
    }
  }
  EXPECT_GT(used, 1000);
}

TEST(SegmentPlan, AnImprovementIsBegunOnceWhereItPaysAndWaitsWhereAnotherPlanBeganIt) {
  int begun = 0;
  bool ready = false;
  SegmentPlan::Improvement better{[&] { return ready && ++begun > 0; }, [] { return 5.0; }, [&] { return begun > 0; }};
  better.begin_where_it_pays(4, false);
  better.begin_where_it_pays(6, false); // not now
  EXPECT_EQ(begun, 0);
  ready = true;
  better.begin_where_it_pays(6, false);
  better.begin_where_it_pays(6, true);
  EXPECT_EQ(begun, 1);
  SegmentPlan::Improvement of_another{{}, {}, [] { return false; }};
  of_another.begin_where_it_pays(100, true);
  EXPECT_FALSE(of_another.outdated());
}

TEST(MemoryPlan, ManyBuffersStayCheapAndAChainTakesOneSlot) {
  std::vector<PlannedBuffer> b(20000);
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = {1000, static_cast<int>(i), static_cast<int>(i) + 1, i == 0 ? -1 : static_cast<int>(i) - 1};
  auto chain = plan_memory(b);
  ASSERT_TRUE(chain.ok());
  EXPECT_EQ(chain->bytes, 1024);
  for (auto& x : b) x.in_place_of = -1;
  EXPECT_EQ(plan_memory(b)->bytes, 2048);
  std::vector<PlannedBuffer> huge(3, {int64_t{1} << 55, 0, 1, -1});
  EXPECT_FALSE(plan_memory(huge).ok());
}

TEST(MemoryPlan, LiveBytesAreFunctionsOfSizes) {
  Builder b;
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), t = b.buffer("t", {s, 10}), u = b.buffer("u", {s}), y = b.output("y", {s});
  b.kernel("k0", twice_plus, {x}, {t}, {SymExpr(1)}, s);
  b.kernel("k1", twice_plus, {t}, {u}, {SymExpr(1)}, s);
  b.kernel("k2", twice_plus, {u}, {y}, {SymExpr(1)}, s);
  auto live = symbolic_live_bytes(*b.done());
  ASSERT_EQ(live.size(), 1u);
  EXPECT_EQ(live[0].step, 1);
  EXPECT_EQ(live[0].bytes, s * 44);
}

TEST(SymProgram, AgreesWithEval) {
  std::vector<SymExpr> symbols{SymExpr::symbol("a"), SymExpr::symbol("b"), SymExpr::symbol("c")};
  for (uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 rng(seed);
    std::function<SymExpr(int)> grow = [&](int depth) -> SymExpr {
      if (depth == 0 || rng() % 6 == 0)
        return rng() % 3 == 0 ? SymExpr(static_cast<int64_t>(rng() % 9) - 3) : symbols[rng() % 3];
      auto x = grow(depth - 1), y = grow(depth - 1);
      switch (rng() % 10) {
      case 0: return x + y;
      case 1: return x * y;
      case 2: return x - y;
      case 3: return floordiv(x, sym_max(y, 1));
      case 4: return mod(x, sym_max(y, 1));
      case 5: return sym_min(x, y);
      case 6: return sym_max(x, y);
      case 7: return sym_select(sym_lt(x, y), x, y * 2);
      case 8: return sym_and(sym_eq(x, y), sym_le(x, 4));
      default: return sym_or(sym_not(sym_lt(x, y)), sym_ne(x, 2));
      }
    };
    auto e = grow(5);
    SymProgram program(symbols);
    int r = program.add(e);
    SymProgram::State state;
    program.prepare(state);
    std::unordered_map<uint64_t, int64_t> values;
    for (size_t i = 0; i < 3; ++i) {
      state.value[i] = static_cast<int64_t>(rng() % 20) - 5;
      state.fault[i] = SymFault::None;
      values.emplace(symbols[i].symbol_id(), state.value[i]);
    }
    program.run(state);
    auto want = e.eval(values);
    ASSERT_TRUE(want.ok()) << e.str();
    ASSERT_EQ(state.fault[static_cast<size_t>(r)], SymFault::None) << e.str();
    ASSERT_EQ(state.value[static_cast<size_t>(r)], *want) << e.str();
  }
}

TEST(SymProgram, FaultsOnlyWhereTheyAreTaken) {
  auto a = SymExpr::symbol("a"), nobody = SymExpr::symbol("nobody");
  std::vector<SymExpr> in{a};
  SymProgram p(in);
  int guarded = p.add(sym_select(sym_ne(a, 0), floordiv(SymExpr(100), a), 7)), bare = p.add(floordiv(SymExpr(100), a)),
      big = p.add(a * a * a), free = p.add(a + nobody);
  SymProgram::State s;
  p.prepare(s);
  auto run = [&](int64_t v) {
    s.value[0] = v;
    s.fault[0] = SymFault::None;
    p.run(s);
  };
  run(0);
  EXPECT_EQ(s.value[static_cast<size_t>(guarded)], 7);
  EXPECT_EQ(s.fault[static_cast<size_t>(guarded)], SymFault::None);
  EXPECT_EQ(s.fault[static_cast<size_t>(bare)], SymFault::DivisionByZero);
  run(int64_t{1} << 40);
  EXPECT_EQ(s.fault[static_cast<size_t>(big)], SymFault::Overflow);
  EXPECT_EQ(s.fault[static_cast<size_t>(free)], SymFault::Unbound);
  EXPECT_TRUE(p.has_unbound(free));
}

// ---- files
class File : public ::testing::Test {
protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("tessera_runtime_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  static std::string read(const std::string& path) {
    std::ifstream f(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(f), {}};
  }
  static void write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  static Result<LinkedCode> link(const Executable&) {
    return LinkedCode{nullptr, [](const std::string& symbol) -> HostKernelFn {
                        return symbol == "twice" || symbol == "epilogue" ? twice_plus : nullptr;
                      }};
  }
  // A model with every kind of step that a file can hold.
  std::shared_ptr<const Executable> model(Tensor w) {
    Builder b;
    auto s = b.symbol("s");
    b.exe->target = "cpu x86-64";
    b.exe->objects = {{'c', 'o', 'd', 'e'}};
    b.exe->env->add_guard({sym_le(s, 512), GuardClass::Required, "the table has 512 rows", {}});
    auto x = b.input("x", {s, 16}), iw = b.constant("w", std::move(w)), t = b.buffer("t", {s, 24}),
         u = b.buffer("u", {s, 24}), y = b.output("y", {s, 24}), z = b.output("z", {s, 16});
    b.exe->steps.emplace_back(LibraryStep{"product", MatmulCall{b.dense(x), b.dense(iw), b.dense(t), std::nullopt}});
    HostStep h;
    h.name = "h";
    h.op = "negate";
    h.payload = "negate()";
    h.inputs = {t};
    h.outputs = {u};
    h.run = negate;
    b.exe->steps.emplace_back(h);
    b.kernel("twice", twice_plus, {u}, {y}, {s}, s * 24, SymExpr(1));
    std::get<KernelLaunch>(b.exe->steps.back()).object = 0;
    b.exe->steps.emplace_back(CopyStep{"copy", x, z});
    return b.done();
  }
  static Result<std::vector<Tensor>> negate(const std::vector<Tensor>& in,
                                            const std::unordered_map<uint64_t, int64_t>&) {
    Tensor t = Tensor::create(DType::F32, in[0].dims()).value();
    for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, -in[0].get_f64(i));
    return std::vector<Tensor>{t};
  }
  static Result<decltype(HostStep::run)> resolve(const HostStep& h, const Executable&) {
    if (h.payload != "negate()") return Diagnostic(ErrorCode::UnsupportedOp, h.payload);
    return decltype(HostStep::run)(negate);
  }
  std::filesystem::path folder_;
};

TEST_F(File, RoundTripGivesTheSameResults) {
  auto exe = model(random_tensor({16, 24}, 3));
  ASSERT_TRUE(save_executable(*exe, at("m.exe"), true).ok());
  auto loaded = load_executable(at("m.exe"), link, resolve);
  ASSERT_TRUE(loaded.ok()) << loaded.error().str();
  auto x = random_tensor({7, 16}, 4);
  auto a = Executor::create({exe}).value()->run({{"x", x}}).value(),
       b = Executor::create({*loaded}).value()->run({{"x", x}}).value();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(compare(b[i], a[i], 0, 0).same);
  auto r = Executor::create({*loaded}).value()->run({{"x", random_tensor({513, 16}, 4)}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::GuardFailed);
  EXPECT_EQ((*loaded)->objects, exe->objects);
  ASSERT_TRUE(save_executable(**loaded, at("again.exe"), true).ok());
  EXPECT_EQ(read(at("again.exe")), read(at("m.exe"))) << "saving what was loaded gives the same bytes";
}

TEST_F(File, MappedWeightsAreReferredToAndCheckedForChange) {
  std::string bytes(512 + 16 * 24 * 4, '\0');
  auto w = random_tensor({16, 24}, 3);
  std::memcpy(bytes.data() + 512, w.data(), w.bytes());
  write(at("weights.bin"), bytes);
  {
    // The file is mapped as an importer maps external data.
    auto mapped = load_executable(at("weights.bin"));
    EXPECT_FALSE(mapped.ok());
  }
  auto embedded = model(w);
  ASSERT_TRUE(save_executable(*embedded, at("embedded.exe"), true).ok());
  auto viewing =
      load_executable(at("embedded.exe"), link, resolve).value(); // its weights view a mapped file: embedded.exe
  ASSERT_TRUE(save_executable(*viewing, at("referring.exe"), false).ok());
  EXPECT_LT(read(at("referring.exe")).size() + 1000, read(at("embedded.exe")).size());
  auto x = random_tensor({2, 16}, 4);
  {
    auto loaded = load_executable(at("referring.exe"), link, resolve);
    ASSERT_TRUE(loaded.ok()) << loaded.error().str();
    auto a = Executor::create({embedded}).value()->run({{"x", x}}).value(),
         b = Executor::create({*loaded}).value()->run({{"x", x}}).value();
    EXPECT_TRUE(compare(b[0], a[0], 0, 0).same);
  }
  auto file = read(at("embedded.exe"));
  viewing.reset();
  file[file.size() - 100] ^= 1; // in the weights
  write(at("embedded.exe"), file);
  auto changed = load_executable(at("referring.exe"), link, resolve);
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.error().code, ErrorCode::CorruptFile);
  std::filesystem::remove(at("embedded.exe"));
  auto missing = load_executable(at("referring.exe"), link, resolve);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::FileError);
}

TEST_F(File, DamageIsAnErrorNeverACrash) {
  auto exe = model(random_tensor({16, 24}, 3));
  ASSERT_TRUE(save_executable(*exe, at("m.exe"), true).ok());
  auto good = read(at("m.exe"));
  auto code = [&](const std::string& bytes) {
    write(at("bad.exe"), bytes);
    auto r = load_executable(at("bad.exe"), link, resolve);
    return r.ok() ? ErrorCode::Usage : r.error().code;
  };
  EXPECT_EQ(code(""), ErrorCode::CorruptFile);
  EXPECT_EQ(code("no executable, but some text that is longer than a header of ours"), ErrorCode::CorruptFile);
  for (size_t n = 0; n < good.size(); n += 97) EXPECT_EQ(code(good.substr(0, n)), ErrorCode::CorruptFile);
  auto version = good;
  version[8] = static_cast<char>(file::kVersion + 1);
  EXPECT_EQ(code(version), ErrorCode::CorruptFile);
  EXPECT_EQ(load_executable(at("none.exe")).error().code, ErrorCode::FileError);
  // Every flipped bit of header, plan and code is noticed by the hash, before anything is parsed.
  std::mt19937 rng(1);
  size_t weights_at = good.size() - 16 * 24 * 4;
  for (int i = 0; i < 400; ++i) {
    auto bad = good;
    size_t where = i < 64 ? static_cast<size_t>(i) : rng() % weights_at;
    bad[where] = static_cast<char>(bad[where] ^ (1 << rng() % 8));
    write(at("bad.exe"), bad);
    auto r = load_executable(at("bad.exe"), link, resolve);
    ASSERT_FALSE(r.ok()) << "byte " << where;
    EXPECT_EQ(r.error().code, ErrorCode::CorruptFile) << "byte " << where;
    std::string told = r.error().str();
    EXPECT_NE(told.find(at("bad.exe")), std::string::npos) << told;
    EXPECT_NE(told.find("compile the model again"), std::string::npos) << told;
    EXPECT_EQ(told.find("json"), std::string::npos) << told;
    if (where >= sizeof(file::Header)) {
      EXPECT_NE(told.find("do not match their hash"), std::string::npos) << told;
    }
  }
}

TEST_F(File, AFullDiskLeavesNothingBehind) {
  auto exe = model(random_tensor({16, 24}, 3));
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small{1000, before.rlim_max};
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  auto r = save_executable(*exe, at("m.exe"), true);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::FileError);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_EQ(save_executable(*exe, at("no/such/folder/m.exe"), true).error().code, ErrorCode::FileError);
}

} // namespace
} // namespace tessera
