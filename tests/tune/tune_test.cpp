// Whole models tuned: with a measurer that makes times up for a GPU that is not here, and for real on the host.
#include "codegen/driver/devices.h"
#include "measure/tune/target.h"
#include "measure/tune/tune.h"
#include "tests/onnx/model_maker.h"
#include <cmath>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using onnx_test::Maker;
using onnx_test::TemporaryFolder;

// y = softmax(x * w), one kernel; or softmax(x).
Graph model(const onnx_test::Dim& rows, int64_t columns, bool weights = true) {
  Maker m;
  m.input("x", {rows, columns});
  if (weights) m.input("w", {columns}).add("Mul", {"x", "w"}, {"u"});
  m.add("Softmax", {weights ? "u" : "x"}, {"y"}, {onnx_test::int_attribute("axis", 1)});
  m.output("y", {rows, columns});
  auto imported = m.import_it();
  EXPECT_TRUE(imported.ok());
  return std::move(imported->graph);
}

CompileOptions options(const TemporaryFolder& folder, const std::string& device) {
  CompileOptions o;
  o.threads = 2;
  o.cache_dir = folder.path();
  o.device = device;
  if (device == "cuda") {
    o.arch = "sm_90";
    o.device_name = "NVIDIA Test";
    o.driver = "13.0";
  }
  return o;
}

struct Tuned {
  Compiled compiled;
  TuneReport report;
  std::vector<std::string> warnings;
};
Tuned tune(Graph graph, const CompileOptions& o, const std::map<std::string, int64_t>& sizes,
           const TuneOptions& tuning) {
  Tuned out;
  auto compiled = compile(std::move(graph), o);
  EXPECT_TRUE(compiled.ok()) << (compiled.ok() ? "" : compiled.error().str());
  out.compiled = std::move(*compiled);
  auto backend = make_backend(o);
  EXPECT_TRUE(backend.ok());
  CallSizes values;
  for (const auto& [name, size] : sizes) values[out.compiled.graph->env().find(name)->symbol_id()] = size;
  TunedRecords records(o.cache_dir, *tuned_target(o));
  auto report =
      tune_kernels(*out.compiled.graph, out.compiled.report.plan, o, (*backend)->device(), values, records, tuning);
  EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().str());
  if (report.ok()) out.report = std::move(*report);
  return out;
}
Compiled compile_tuned(Graph graph, CompileOptions o) {
  o.tuned = std::make_shared<TunedRecords>(o.cache_dir, *tuned_target(o));
  auto compiled = compile(std::move(graph), o);
  EXPECT_TRUE(compiled.ok()) << (compiled.ok() ? "" : compiled.error().str());
  return std::move(*compiled);
}

// The schedule on `warps` warps is the fastest one, of those of one kind if that is given.
struct FakeGpu {
  int warps;
  std::optional<ScheduleKind> kind = std::nullopt;
  int made = 0;
  TuneOptions tuning() {
    TuneOptions t;
    t.measurer = [this](const MeasuredNest& what) -> Result<std::unique_ptr<Measurer>> {
      ++made;
      class Fake final : public Measurer {
      public:
        std::vector<double> us;
        Result<double> time_us(size_t c) override { return us[c]; }
        Result<std::string> difference(size_t) override { return std::string(); }
      };
      auto m = std::make_unique<Fake>();
      for (const Candidate& c : what.candidates)
        m->us.push_back(c.tuned.schedule.tile.warps == warps && (!kind || c.tuned.schedule.kind == *kind) ? 30 : 40);
      return std::unique_ptr<Measurer>(std::move(m));
    };
    return t;
  }
};

const KernelLaunch& only_launch(const Compiled& c) {
  EXPECT_EQ(c.executable->steps.size(), 1U);
  return std::get<KernelLaunch>(c.executable->steps[0]);
}

TEST(Tune, AWinnerBecomesTheKernelOfItsSizes) {
  TemporaryFolder folder;
  CompileOptions o = options(folder, "cuda");
  FakeGpu gpu{16};
  Tuned t = tune(model("n", 1024), o, {{"n", 3000}}, gpu.tuning());
  ASSERT_EQ(t.report.kernels.size(), 1U);
  const TunedKernel& k = t.report.kernels[0];
  EXPECT_EQ(k.outcome, TunedKernel::Outcome::Tuned) << k.note;
  EXPECT_EQ(k.record.tuned_us, 30);
  EXPECT_EQ(k.record.schedule->tile.warps, 16);
  EXPECT_EQ(gpu.made, 1);

  Compiled plain = compile_tuned(model("n", 1024), options(TemporaryFolder(), "cuda"));
  Compiled tuned = compile_tuned(model("n", 1024), o);
  EXPECT_TRUE(plain.report.kernels[0].tuned.empty());
  ASSERT_EQ(tuned.report.kernels[0].tuned.size(), 1U);
  EXPECT_EQ(tuned.report.kernels[0].tuned[0], "40.0 us -> 30.0 us on NVIDIA Test, sm_90");
  const KernelLaunch& launch = only_launch(tuned);
  ASSERT_EQ(launch.alternatives.size(), only_launch(plain).alternatives.size() + 1);
  const KernelLaunch& first = launch.alternatives[0];
  EXPECT_EQ(first.threads, 512);
  ASSERT_EQ(first.conditions.size(), 1U); // 2049 to 4096 rows
  EXPECT_EQ(first.conditions[0].min, 2049);
  EXPECT_EQ(first.conditions[0].max, 4096);

  // A second process tunes nothing, for these sizes and others of the bucket.
  FakeGpu unused{16};
  for (int64_t n : {3000, 2500}) {
    Tuned again = tune(model("n", 1024), o, {{"n", n}}, unused.tuning());
    EXPECT_EQ(again.report.kernels[0].outcome, TunedKernel::Outcome::Known);
  }
  EXPECT_EQ(unused.made, 0);
  Tuned other = tune(model("n", 1024), o, {{"n", 100}}, unused.tuning());
  EXPECT_NE(other.report.kernels[0].outcome, TunedKernel::Outcome::Known);
  EXPECT_EQ(unused.made, 1);
}

// Rows that several programs share, too: others than the chosen ones are measured, and one that has won is taken by
// the next process, which measures nothing.
TEST(Tune, CooperativeRowsAreRemembered) {
  TemporaryFolder folder;
  CompileOptions o = options(folder, "cuda");
  FakeGpu gpu{16, ScheduleKind::BlockCooperative};
  const Tuned t = tune(model(16, 1048576, false), o, {}, gpu.tuning());
  ASSERT_EQ(t.report.kernels.size(), 1U);
  EXPECT_EQ(t.report.kernels[0].outcome, TunedKernel::Outcome::Tuned) << t.report.kernels[0].note;
  EXPECT_EQ(t.report.kernels[0].record.schedule->kind, ScheduleKind::BlockCooperative);
  FakeGpu unused{16, ScheduleKind::BlockCooperative};
  const Tuned again = tune(model(16, 1048576, false), o, {}, unused.tuning());
  EXPECT_EQ(again.report.kernels[0].outcome, TunedKernel::Outcome::Known);
  EXPECT_EQ(unused.made, 0);

  const Compiled tuned = compile_tuned(model(16, 1048576, false), o);
  ASSERT_GE(tuned.report.kernels[0].tuned.size(), 1U); // before those that ship
  EXPECT_NE(tuned.report.kernels[0].tuned[0].find("NVIDIA Test"), std::string::npos);
  const KernelLaunch& first = only_launch(tuned).alternatives.at(0);
  EXPECT_EQ(first.threads, 512);
  EXPECT_GT(first.cooperative_blocks.const_value(), 1);
}

TEST(Tune, OfFixedSizesTheWinnerIsTheKernel) {
  TemporaryFolder folder;
  CompileOptions o = options(folder, "cuda");
  FakeGpu gpu{16};
  tune(model(3000, 1024), o, {}, gpu.tuning());
  Compiled tuned = compile_tuned(model(3000, 1024), o);
  EXPECT_TRUE(only_launch(tuned).alternatives.empty());
  EXPECT_EQ(only_launch(tuned).threads, 512);
  Compiled other = compile_tuned(model(3001, 1024), o); // another model
  EXPECT_TRUE(other.report.kernels[0].tuned.empty());
}

TEST(Tune, WhereTheRulesAreBestThatIsRememberedToo) {
  TemporaryFolder folder;
  CompileOptions o = options(folder, "cuda");
  FakeGpu gpu{-1};
  Tuned t = tune(model(3000, 1024), o, {}, gpu.tuning());
  EXPECT_EQ(t.report.kernels[0].outcome, TunedKernel::Outcome::Default);
  EXPECT_TRUE(compile_tuned(model(3000, 1024), o).report.kernels[0].tuned.empty());
  t = tune(model(3000, 1024), o, {}, gpu.tuning());
  EXPECT_EQ(t.report.kernels[0].outcome, TunedKernel::Outcome::Known);
  EXPECT_EQ(gpu.made, 1);
  TuneOptions again = gpu.tuning();
  again.again = true;
  t = tune(model(3000, 1024), o, {}, again);
  EXPECT_EQ(t.report.kernels[0].outcome, TunedKernel::Outcome::Default);
  EXPECT_EQ(gpu.made, 2);
}

TEST(Tune, ABudgetOfNothingMeasuresNothing) {
  TemporaryFolder folder;
  CompileOptions o = options(folder, "cuda");
  FakeGpu gpu{16};
  TuneOptions none = gpu.tuning();
  none.budget_seconds = 0;
  Tuned t = tune(model(3000, 1024), o, {}, none);
  EXPECT_EQ(t.report.kernels[0].outcome, TunedKernel::Outcome::Left);
  EXPECT_EQ(gpu.made, 0);
  EXPECT_TRUE(TunedRecords(o.cache_dir, *tuned_target(o)).all().empty());
}

// A record that does not compile is reported, and the default kernels run.
TEST(Tune, ARecordOfNonsenseDoesNotStopACompile) {
  TemporaryFolder folder;
  CompileOptions o = options(folder, "cuda");
  FakeGpu gpu{16};
  tune(model(3000, 1024), o, {}, gpu.tuning());
  TunedRecords records(o.cache_dir, *tuned_target(o));
  for (auto [name, value] : {std::pair("columns", int64_t{512}), std::pair("split_axis", int64_t{0}),
                             std::pair("row_axes", int64_t{0}), std::pair("warps", int64_t{7})}) {
    std::vector<TunedRecord> all = records.all();
    ASSERT_TRUE(set_field(*all[0].schedule, name, value).ok());
    all[0].time += 1;
    ASSERT_TRUE(records.add(all).ok());
    Compiled c = compile_tuned(model(3000, 1024), o);
    EXPECT_TRUE(c.report.kernels[0].tuned.empty()) << name;
    EXPECT_FALSE(c.executable->steps.empty());
  }
}

// This test measures on the host: candidates run and agree, and the next compile takes the recorded one.
TEST(Tune, TheHostMeasuresAndStaysRight) {
  TemporaryFolder folder;
  CompileOptions o = options(folder, "cpu");
  TuneOptions tuning;
  tuning.candidates = 6;
  tuning.search.final_runs = 5;
  Tuned t = tune(model(64, 512), o, {}, tuning);
  ASSERT_EQ(t.report.kernels.size(), 1U);
  const TunedKernel& k = t.report.kernels[0];
  EXPECT_NE(k.outcome, TunedKernel::Outcome::Left) << k.note;
  EXPECT_EQ(k.measured.size(), 6U);
  EXPECT_EQ(k.wrong, 0);
  EXPECT_TRUE(k.rejected.empty()) << k.rejected[0];
  for (const auto& m : k.measured) EXPECT_GT(m.us, 0) << print(m.schedule);

  // The records are edited as if one of the others had won.
  TunedRecords records(o.cache_dir, *tuned_target(o));
  std::vector<TunedRecord> won = records.all();
  ASSERT_EQ(won.size(), 1U);
  Schedule schedule = t.compiled.report.kernels[0].schedule;
  schedule.tile.unroll = schedule.tile.unroll == 1 ? 2 : 1;
  won[0].schedule = schedule;
  won[0].time += 1;
  ASSERT_TRUE(records.add(won).ok());
  Compiled tuned = compile_tuned(model(64, 512), o);
  ASSERT_EQ(tuned.report.kernels[0].tuned.size(), 1U);
  EXPECT_EQ(print(tuned.report.kernels[0].schedule), print(schedule));
  Tensor x = Tensor::create(DType::F32, {64, 512}).value(), w = Tensor::create(DType::F32, {512}).value();
  for (int64_t i = 0; i < x.count(); ++i) x.set_f64(i, static_cast<double>(i % 37) / 9 - 2);
  for (int64_t i = 0; i < w.count(); ++i) w.set_f64(i, static_cast<double>(i % 5) / 4);
  auto run = [&](const Compiled& c) {
    auto executor = Executor::create({c.executable});
    EXPECT_TRUE(executor.ok());
    return (*executor)->run({{"x", x}, {"w", w}}).value()[0];
  };
  Comparison same = compare(run(tuned), run(t.compiled), 1e-6, 1e-6);
  EXPECT_TRUE(same.same) << same.message;
}

TEST(MadeUp, IndicesStayWithinTheirTables) {
  auto nest_graph = [] {
    Maker m;
    m.input("table", {10, 4}).input("ids", {300}, onnx_test::proto::TensorProto::INT64);
    m.add("Gather", {"table", "ids"}, {"y"}).output("y", {300, 4});
    return std::move(m.import_it()->graph);
  };
  TemporaryFolder folder;
  auto compiled = compile(nest_graph(), options(folder, "cpu"));
  ASSERT_TRUE(compiled.ok());
  const Group& g = compiled->report.plan.groups.at(0);
  ASSERT_EQ(g.kind, Group::Kind::Kernel);
  CallSizes sizes;
  MeasuredNest what{"gather", *compiled->graph, g.nest, sizes, {}};
  for (size_t i = 0; i < g.nest.loads.size(); ++i) {
    Tensor t = random_input(what, i).value();
    if (t.dtype() != DType::I64) continue;
    int64_t most = 0;
    for (int64_t at = 0; at < t.count(); ++at) {
      EXPECT_GE(t.get_i64(at), 0);
      most = std::max(most, t.get_i64(at));
    }
    EXPECT_EQ(most, 9);
  }
}

TEST(MadeUp, DifferencesAreFoundAndRoundingIsNone) {
  auto tensor = [](DType dtype, double first) {
    Tensor t = Tensor::create(dtype, {9000}).value();
    for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, i == 8999 ? first : static_cast<double>(i % 7));
    return t;
  };
  for (DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    EXPECT_EQ(difference(tensor(dtype, 3), tensor(dtype, 3)), "");
    EXPECT_NE(difference(tensor(dtype, 3), tensor(dtype, 3.25)), "");
    EXPECT_NE(difference(tensor(dtype, 3), tensor(dtype, std::nan(""))), "");
    EXPECT_EQ(difference(tensor(dtype, std::nan("")), tensor(dtype, std::nan(""))), "");
  }
  EXPECT_EQ(difference(tensor(DType::F32, 3), tensor(DType::F32, 3.00001)), "");
  EXPECT_EQ(difference(tensor(DType::F32, 0), tensor(DType::F32, 1e-5)), ""); // next to values of 3
  EXPECT_NE(difference(tensor(DType::I32, 3), tensor(DType::I32, 4)), "");
}

// A softmax over 92899 elements in f16: its results are subnormal, two steps or none of them apart.
TEST(MadeUp, ASubnormalStepIsRounding) {
  for (auto [dtype, step] : {std::pair(DType::F16, 0x1p-24), std::pair(DType::BF16, 0x1p-133)}) {
    auto tensor = [d = dtype](double first, double others) {
      Tensor t = Tensor::create(d, {300}).value();
      for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, i == 0 ? first : others);
      return t;
    };
    EXPECT_EQ(difference(tensor(2 * step, step), tensor(step, step)), "") << name(dtype);
    EXPECT_EQ(difference(tensor(0, 9 * step), tensor(step, 9 * step)), "") << name(dtype);
    EXPECT_NE(difference(tensor(3 * step, step), tensor(step, step)), "") << name(dtype);
    EXPECT_NE(difference(tensor(step, 9 * step), tensor(9 * step, 9 * step)), "") << name(dtype);
    EXPECT_NE(difference(tensor(std::nan(""), step), tensor(step, step)), "") << name(dtype);
  }
}

} // namespace
} // namespace tessera
