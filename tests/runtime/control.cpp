// Control steps put together by hand: values are carried and stacked in place, conditions and trip counts are read, sizes
// are defined; the same from a file; and what contradicts itself is refused.
#include "build_executable.h"
#include "runtime/file_format.h"
#include <filesystem>
#include <unistd.h>

namespace tessera {
namespace {
using namespace test;
using Source = BodyArgument::Source;

// v -> 2 v + n, and with `condition`, whether its first element is below 50.
std::shared_ptr<const Executable> body(bool condition) {
  Builder b;
  auto n = b.symbol("n");
  auto v = b.input("v", {n});
  auto on = condition ? b.output("on", {}, DType::Bool) : -1;
  auto out = b.output("out", {n}), slice = b.output("slice", {n});
  b.kernel("twice", twice_plus, {v}, {out}, {n}, n);
  b.kernel("twice again", twice_plus, {v}, {slice}, {n}, n);
  if (condition)
    b.kernel(
        "below",
        [](void* const* p, const int64_t*, int64_t begin, int64_t end, void*, IndexReport*) {
          if (begin < end) *static_cast<bool*>(p[1]) = *static_cast<const float*>(p[0]) < 50;
        },
        {out}, {on}, {}, 1);
  b.exe->objects = {{'c'}};
  for (auto& step : b.exe->steps) std::get<KernelLaunch>(step).object = 0;
  return b.done();
}

// x runs through the body; the trip count is an input, or a number.
std::shared_ptr<const Executable> loop(bool condition, std::optional<int64_t> trips) {
  Builder b;
  auto n = b.symbol("n");
  auto x = b.input("x", {n});
  ControlStep step;
  step.name = "loop";
  step.op = "loop";
  step.kind = ControlStep::Kind::Loop;
  step.continues = condition;
  const bool known = trips && !condition;
  if (trips)
    step.trip_count = *trips;
  else
    step.trips = b.input("trips", {}, DType::I64);
  step.initial = {x};
  auto count = b.symbol("count");
  auto y = b.output("y", {n}), all = b.output("all", {known ? SymExpr(*trips) : count, n});
  step.outputs = {y, all};
  step.reverse = {false};
  if (!known) step.defines = {{count, 1, 0}};
  step.bodies = {{body(condition), {{Source::Carried, -1, 0}}}};
  b.exe->steps.emplace_back(std::move(step));
  return b.done();
}

std::vector<float> after(std::vector<float> v, int64_t trips) {
  for (int64_t i = 0; i < trips; ++i)
    for (float& e : v) e = 2 * e + static_cast<float>(v.size());
  return v;
}

void expect_loop(Executor& e, int64_t trips, int64_t expected, bool given) {
  SCOPED_TRACE(trips);
  const std::vector<float> x = {1, -2, 3};
  std::map<std::string, Tensor> inputs = {{"x", Tensor::of<float>(DType::F32, {3}, x)}};
  if (given) inputs["trips"] = Tensor::of<int64_t>(DType::I64, {}, std::vector<int64_t>{trips});
  auto r = e.run(inputs);
  ASSERT_TRUE(r.ok()) << r.error().str();
  const auto values = [](const Tensor& t) { return std::vector<float>(t.as<float>().begin(), t.as<float>().end()); };
  EXPECT_EQ(values((*r)[0]), after(x, expected));
  ASSERT_EQ((*r)[1].dims(), (Dims{expected, 3}));
  for (int64_t i = 0; i < expected; ++i) {
    const auto* slice = (*r)[1].as<float>().data() + 3 * i;
    EXPECT_EQ(std::vector<float>(slice, slice + 3), after(x, i + 1)) << i;
  }
}

std::unique_ptr<Executor> executor(std::shared_ptr<const Executable> exe) {
  ExecutorOptions options;
  options.poison = true;
  auto e = Executor::create({std::move(exe)}, options);
  EXPECT_TRUE(e.ok()) << e.error().str();
  return std::move(*e);
}

TEST(Control, ALoopCarriesAndStacks) {
  for (int64_t trips : {0, 1, 2, 5}) expect_loop(*executor(loop(false, trips)), trips, trips, false);
  auto counted = executor(loop(false, {}));
  for (int64_t trips : {4, 0, 1, 7, -3}) expect_loop(*counted, trips, std::max<int64_t>(trips, 0), true);
}

// 1, 5, 13, 29, 61: the fourth iteration is the last.
TEST(Control, AConditionEndsALoop) {
  auto e = executor(loop(true, {}));
  for (int64_t trips : {9, 4, 2, 0}) expect_loop(*e, trips, std::min<int64_t>(trips, 4), true);
}

std::shared_ptr<const Executable> choice() {
  Builder b;
  auto n = b.symbol("n");
  auto c = b.input("c", {}, DType::Bool);
  auto x = b.input("x", {n});
  ControlStep step;
  step.name = step.op = "if";
  step.condition = c;
  step.outputs = {b.output("y", {n}), b.output("z", {n})};
  step.bodies = {{body(false), {{Source::Buffer, x}}}, {body(false), {{Source::Buffer, x}}}};
  b.exe->steps.emplace_back(std::move(step));
  return b.done();
}

TEST(Control, BodiesComeBackFromAFile) {
  const auto path = (std::filesystem::temp_directory_path() / ("control" + std::to_string(::getpid()))).string();
  const auto link = [](const Executable&) {
    return Result<LinkedCode>(LinkedCode{nullptr, [](const std::string& name) -> HostKernelFn {
                                           if (name.starts_with("twice")) return twice_plus;
                                           return [](void* const* p, const int64_t*, int64_t begin, int64_t end, void*,
                                                     IndexReport*) {
                                             if (begin < end)
                                               *static_cast<bool*>(p[1]) = *static_cast<const float*>(p[0]) < 50;
                                           };
                                         }});
  };
  auto saved = save_executable(*loop(true, {}), path, true);
  ASSERT_TRUE(saved.ok()) << saved.error().str();
  auto loaded = load_executable(path, link);
  ASSERT_TRUE(loaded.ok()) << loaded.error().str();
  expect_loop(*executor(*loaded), 9, 4, true);
  std::filesystem::remove(path);
}

// Whatever a file may say: refused before anything runs, or when a size turns out not to fit.
TEST(Control, ContradictionsAreRefused) {
  using Change = std::function<void(Executable&, ControlStep&)>;
  const std::vector<std::pair<std::string, Change>> loops = {
      {"has 0 bodies", [](auto&, auto& s) { s.bodies.clear(); }},
      {"lacks a body", [](auto&, auto& s) { s.bodies[0].executable = nullptr; }},
      {"gives 0 of 1 inputs", [](auto&, auto& s) { s.bodies[0].arguments.clear(); }},
      {"gives a body another type", [](auto&, auto& s) { s.bodies[0].arguments[0].index = 1; }},
      {"gives a body another type",
       [](auto&, auto& s) {
         s.bodies[0].arguments[0] = {Source::Buffer, 77};
       }},
      {"gives a body another type", [](auto&, auto& s) { s.bodies[0].arguments[0] = {Source::Iteration}; }},
      {"another number of results", [](auto&, auto& s) { s.outputs.pop_back(); }},
      {"no trip count", [](auto&, auto& s) { s.trips = s.initial[0]; }},
      {"no condition that can be read", [](auto&, auto& s) { s.condition = s.initial[0]; }},
      {"gives a body another type", [](auto&, auto& s) { s.initial[0] = 99; }},
      {"a body of 3 outputs", [](auto&, auto& s) { s.continues = false; }},
      {"their number is not known", [](auto&, auto& s) { s.reverse[0] = true; }},
      {"defines a size", [](auto&, auto& s) { s.defines[0].dim = 2; }},
      {"defines a size", [](auto&, auto& s) { s.defines[0].result = -1; }},
      {"writes a buffer twice",
       [](auto&, auto& s) {
         s.outputs[1] = s.outputs[0];
         s.reverse.clear();
         s.initial.push_back(s.initial[0]);
       }},
      {"reads what it writes", [](auto&, auto& s) { s.outputs[0] = s.initial[0]; }},
      {"for 'cuda sm_90'", [](auto&, auto& s) {
         auto other = std::make_shared<Executable>(*s.bodies[0].executable);
         other->target = "cuda sm_90";
         s.bodies[0].executable = other;
       }}};
  for (const auto& [part, change] : loops) {
    auto exe = std::make_shared<Executable>(*loop(true, {}));
    change(*exe, std::get<ControlStep>(exe->steps[0]));
    auto e = Executor::create({exe});
    ASSERT_FALSE(e.ok()) << part;
    EXPECT_EQ(e.error().code, ErrorCode::Internal);
    EXPECT_NE(e.error().str().find(part), std::string::npos) << part << " expected, got " << e.error().str();
  }
  auto exe = std::make_shared<Executable>(*choice());
  std::get<ControlStep>(exe->steps[0]).condition = -1;
  EXPECT_FALSE(Executor::create({exe}).ok());

  // Sizes: a result that is larger than its buffer, and more slices than there are.
  auto larger = std::make_shared<Executable>(*loop(false, 3));
  for (auto& b : larger->buffers)
    if (b.name == "all") b.shape[0] = 2;
  auto r = executor(larger)->run({{"x", random_tensor({3}, 1)}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::Internal) << r.error().str();
}

TEST(Control, OneOfTwoBodiesRuns) {
  auto e = executor(choice());
  for (int64_t c : {0, 1}) {
    auto r =
        e->run({{"c", Tensor::of<int64_t>(DType::Bool, {}, std::vector<int64_t>{c})}, {"x", random_tensor({5}, 1)}});
    ASSERT_TRUE(r.ok()) << r.error().str();
    EXPECT_EQ((*r)[0].as<float>()[0], 2 * random_tensor({5}, 1).as<float>()[0] + 5);
  }
}

} // namespace
} // namespace tessera
