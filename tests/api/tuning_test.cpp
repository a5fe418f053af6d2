// A session that tunes during its calls: what wins runs with the next call and is known to whoever comes later, and
// nothing that goes wrong reaches a call. Times are invented; kernels are compiled and swapped for real.
#include "harness.h"
#include "measure/tune/background.h"
#include "measure/tune/records.h"
#include <atomic>
#include <filesystem>
#include <fstream>

namespace tessera::api_test {
namespace {

using onnx_test::TemporaryFolder;

// One kernel of known sizes.
Maker model() {
  Maker m;
  m.input("x", {64, 512})
      .add("Tanh", {"x"}, {"t"})
      .add("Softmax", {"t"}, {"y"}, {onnx_test::int_attribute("axis", 1)})
      .output("y");
  return m;
}

// The last candidate is the fastest, or what `time` says.
struct FakeTimes {
  std::atomic<int> kernels{0}, measured{0};
  std::function<Result<double>(size_t candidate)> time;
  MakeMeasurer measurer() {
    return [this](const MeasuredNest& what) -> Result<std::unique_ptr<Measurer>> {
      ++kernels;
      class Fake final : public Measurer {
      public:
        Fake(FakeTimes& owner, size_t count) : owner_(owner), count_(count) {}
        Result<double> time_us(size_t c) override {
          ++owner_.measured;
          if (owner_.time) return owner_.time(c);
          return c + 1 == count_ ? 30.0 : 40.0;
        }
        Result<std::string> difference(size_t) override { return std::string(); }

      private:
        FakeTimes& owner_;
        size_t count_;
      };
      return std::unique_ptr<Measurer>(std::make_unique<Fake>(*this, what.candidates.size()));
    };
  }
};

SessionOptions tuned_options(const TemporaryFolder& folder, FakeTimes& times) {
  SessionOptions o = options();
  o.compile.cache_dir = folder.path();
  o.tune_share = 1;
  o.background = std::make_shared<BackgroundOptions>();
  o.background->idle_seconds = 0;
  o.background->tune.measurer = times.measurer();
  return o;
}
TunedRecords records_of(const TemporaryFolder& folder) { return {folder.path(), {}}; }

const Inputs& inputs() {
  static const Inputs in{{"x", numbers({64, 512})}};
  return in;
}
RunStats run(Session& session) {
  RunStats stats;
  expect_right(model(), inputs(), session.run(inputs(), &stats));
  return stats;
}
const std::vector<std::string>& tuned_kernels(const Session& session) {
  static std::vector<std::string> none;
  const auto& kernels = session.variants()[0]->compiled->report.kernels;
  return kernels.empty() ? none : kernels[0].tuned;
}

// A session that is gone afterwards; its winners are in the folder.
void tune_in_a_session(const TemporaryFolder& folder, FakeTimes& times) {
  auto session = open(model(), tuned_options(folder, times));
  ASSERT_TRUE(session);
  for (int i = 0; i < 3; ++i) run(*session);
  session->settle_tuning();
}

TEST(Tuning, AWinnerRunsWithTheNextCall) {
  TemporaryFolder folder;
  FakeTimes times;
  auto session = open(model(), tuned_options(folder, times));
  ASSERT_TRUE(session);
  auto other = session->new_executor();
  ASSERT_TRUE(other.ok());
  run(*session);
  run(*session);
  session->settle_tuning();
  EXPECT_EQ(times.kernels, 0) << "two calls are not enough";
  const auto before = session->variants()[0]->compiled->executable;
  run(*session);
  session->settle_tuning();
  EXPECT_EQ(times.kernels, 1);
  EXPECT_EQ(records_of(folder).all().size(), 1U);
  ASSERT_EQ(session->variants().size(), 1U);
  EXPECT_NE(session->variants()[0]->compiled->executable, before);
  EXPECT_EQ(tuned_kernels(*session).size(), 1U);

  RunStats stats = run(*session);
  EXPECT_EQ(stats.renewals, 1);
  EXPECT_EQ(stats.variant, 0);
  EXPECT_EQ(stats.recompiles, 0);
  stats = run(*session);
  EXPECT_EQ(stats.renewals, 0);
  EXPECT_FALSE(stats.new_shape);
  // Executors of other threads take it, too.
  expect_right(model(), inputs(), (*other)->run(inputs(), &stats));
  EXPECT_EQ(stats.renewals, 1);
  EXPECT_EQ((*other)->variants()[0], session->variants()[0]->compiled->executable);
  // And what runs now is tuned.
  run(*session);
  session->settle_tuning();
  EXPECT_EQ(times.kernels, 1);
  EXPECT_EQ(run(*session).renewals, 0);
}

TEST(Tuning, ALaterSessionStartsWithTheWinnersAndMeasuresNothing) {
  TemporaryFolder folder;
  FakeTimes times;
  tune_in_a_session(folder, times);
  EXPECT_EQ(times.kernels, 1);
  auto session = open(model(), tuned_options(folder, times));
  ASSERT_TRUE(session);
  EXPECT_EQ(tuned_kernels(*session).size(), 1U);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run(*session).renewals, 0);
  session->settle_tuning();
  EXPECT_EQ(times.kernels, 1);
}

// Two that were opened before anything was known: what one finds, the other takes without measuring.
TEST(Tuning, SessionsBesideEachOtherTakeWhatTheOtherFound) {
  TemporaryFolder folder;
  FakeTimes mine, theirs;
  auto a = open(model(), tuned_options(folder, mine)), b = open(model(), tuned_options(folder, theirs));
  ASSERT_TRUE(a && b);
  for (int i = 0; i < 3; ++i) run(*a);
  a->settle_tuning();
  for (int i = 0; i < 3; ++i) run(*b);
  b->settle_tuning();
  EXPECT_EQ(mine.kernels, 1);
  EXPECT_EQ(theirs.kernels, 0);
  EXPECT_EQ(run(*b).renewals, 1);
  EXPECT_EQ(tuned_kernels(*b), tuned_kernels(*a));
}

TEST(Tuning, WhereTheRulesAreBestNothingIsSwapped) {
  TemporaryFolder folder;
  FakeTimes times;
  times.time = [](size_t c) { return c == 0 ? 10.0 : 40.0; };
  auto session = open(model(), tuned_options(folder, times));
  ASSERT_TRUE(session);
  for (int i = 0; i < 3; ++i) run(*session);
  session->settle_tuning();
  EXPECT_EQ(run(*session).renewals, 0);
  ASSERT_EQ(records_of(folder).all().size(), 1U);
  EXPECT_TRUE(records_of(folder).all()[0].is_default());
}

TEST(Tuning, ErrorsReachTheLogAndNoCall) {
  LogCapture log("perf");
  {
    TemporaryFolder folder;
    FakeTimes times;
    times.time = [](size_t) { return Diagnostic(ErrorCode::DeviceError, "the clock is broken"); };
    auto session = open(model(), tuned_options(folder, times));
    ASSERT_TRUE(session);
    for (int i = 0; i < 5; ++i) run(*session);
    session->settle_tuning();
    EXPECT_EQ(run(*session).renewals, 0);
    EXPECT_TRUE(records_of(folder).all().empty());
  }
  EXPECT_NE(log.text().find("the clock is broken"), std::string::npos) << log.text();
}

// Records that cannot be written count in this process.
TEST(Tuning, AFileThatCannotBeWrittenIsNoErrorOfACall) {
  LogCapture log("perf");
  TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() + "/tuned.json.lock");
  FakeTimes times;
  auto session = open(model(), tuned_options(folder, times));
  ASSERT_TRUE(session);
  for (int i = 0; i < 3; ++i) run(*session);
  session->settle_tuning();
  EXPECT_EQ(run(*session).renewals, 1);
  EXPECT_EQ(tuned_kernels(*session).size(), 1U);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/tuned.json"));
  EXPECT_NE(log.text().find("a record was not written"), std::string::npos) << log.text();
}

TEST(Tuning, ADamagedFileIsReplaced) {
  TemporaryFolder folder;
  std::ofstream(folder.path() + "/tuned.json") << "{ \"format\": 2, \"records\": [ {";
  FakeTimes times;
  auto session = open(model(), tuned_options(folder, times));
  ASSERT_TRUE(session);
  ASSERT_EQ(session->variants()[0]->compiled->report.cache_warnings.size(), 1U);
  for (int i = 0; i < 3; ++i) run(*session);
  session->settle_tuning();
  EXPECT_EQ(run(*session).renewals, 1);
  TunedRecords now = records_of(folder);
  EXPECT_TRUE(now.warnings().empty());
  EXPECT_EQ(now.all().size(), 1U);
}

// A record whose schedule this version cannot make: the code does not have it afterwards either, and that is that.
TEST(Tuning, ARecordThatDoesNotHelpIsTriedOnce) {
  TemporaryFolder folder;
  FakeTimes times;
  tune_in_a_session(folder, times);
  TunedRecords records = records_of(folder);
  ASSERT_TRUE(records.update([](std::vector<TunedRecord>& all) { all[0].schedule->tile.vector = 0; }).ok());
  auto session = open(model(), tuned_options(folder, times));
  ASSERT_TRUE(session);
  int renewals = 0;
  for (int i = 0; i < 12; ++i) {
    renewals += run(*session).renewals;
    session->settle_tuning();
  }
  EXPECT_LE(renewals, 1);
}

TEST(Tuning, ClosingStopsItPromptly) {
  TemporaryFolder folder;
  FakeTimes times;
  times.time = [](size_t) { return 40.0; };
  SessionOptions o = tuned_options(folder, times);
  o.background->idle_seconds = 1000; // a gate that hardly ever opens
  auto session = open(model(), o);
  ASSERT_TRUE(session);
  auto executor = session->new_executor();
  ASSERT_TRUE(executor.ok());
  for (int i = 0; i < 3; ++i) run(*session);
  session.reset(); // a sleep of a thousand seconds would be noticed
  EXPECT_EQ(times.measured, 0);
  expect_right(model(), inputs(), (*executor)->run(inputs())); // those that live on go on
}

// This test measures by the machine's clock, with calls on another thread meanwhile.
TEST(Tuning, CallsGoOnWhileTheMachineMeasures) {
  TemporaryFolder folder;
  FakeTimes unused;
  SessionOptions o = tuned_options(folder, unused);
  o.background->tune.measurer = nullptr;
  o.background->tune.candidates = 4;
  o.background->tune.search.final_runs = 3;
  o.background->retries = 1000;
  auto session = open(model(), o);
  ASSERT_TRUE(session);
  for (int i = 0; i < 40; ++i) run(*session);
  session->settle_tuning();
  EXPECT_EQ(records_of(folder).all().size(), 1U);
  run(*session);
}

// Kernels are tuned and variants made for sizes in one session: each replaces what the other left.
TEST(Tuning, BesideThePolicyAdaptive) {
  TemporaryFolder folder;
  FakeTimes times;
  SessionOptions o = tuned_options(folder, times);
  o.policy = VariantPolicy::Adaptive;
  o.compile_share = 1;
  o.max_variants = 2;
  o.predicted_loss_us = [](const auto&) { return 1e12; };
  Maker m;
  m.input("x", {"b", 512})
      .add("Tanh", {"x"}, {"t"})
      .add("Softmax", {"t"}, {"y"}, {onnx_test::int_attribute("axis", 1)})
      .output("y");
  auto session = open(m, o);
  ASSERT_TRUE(session);
  auto other = session->new_executor();
  ASSERT_TRUE(other.ok());
  for (int round = 0; round < 3; ++round)
    for (int64_t b : {64, 32, 16, 8}) {
      const Inputs in{{"x", numbers({b, 512})}};
      for (int i = 0; i < 6; ++i) {
        expect_right(m, in, session->run(in));
        if (i % 2 == 0) expect_right(m, in, (*other)->run(in));
        session->settle_tuning();
      }
    }
  EXPECT_GT(times.kernels, 0);
  const CompileTotals totals = session->compile_totals();
  EXPECT_GT(totals.background, 2);
  EXPECT_GT(totals.evictions, 0);
  EXPECT_GT(totals.swaps, 0);
  EXPECT_LE(session->variants().size(), 3U);
  EXPECT_EQ(totals.blocking, 0);
}

TEST(Tuning, SharesAreChecked) {
  TemporaryFolder folder;
  FakeTimes times;
  SessionOptions o = tuned_options(folder, times);
  o.tune_share = 1.5;
  auto session = Session::open(write(model()), o);
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.error().code, ErrorCode::Usage);
  o.tune_share.reset();
  ::setenv("TESSERA_TUNE_SHARE", "much", 1);
  session = Session::open(write(model()), o);
  ASSERT_FALSE(session.ok());
  EXPECT_NE(session.error().message.find("TESSERA_TUNE_SHARE is 'much'"), std::string::npos) << session.error().message;
  ::setenv("TESSERA_TUNE_SHARE", "1", 1);
  session = Session::open(write(model()), o);
  ::unsetenv("TESSERA_TUNE_SHARE");
  ASSERT_TRUE(session.ok());
  for (int i = 0; i < 3; ++i) run(**session);
  (*session)->settle_tuning();
  EXPECT_EQ(times.kernels, 1);
}

} // namespace
} // namespace tessera::api_test
