// Which variants a session has under each policy, who compiles them, and that no call waits for what it does not need.
#include "harness.h"
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <random>
#include <thread>

namespace tessera::api_test {
namespace {

// y = softmax(x), z = the sum of x over the first axis.
Maker rows() {
  Maker m;
  m.input("x", {"b", "s"})
      .add("Softmax", {"x"}, {"y"}, {onnx_test::int_attribute("axis", -1)})
      .add("ReduceSum", {"x"}, {"z"}, {onnx_test::int_attribute("keepdims", 1)})
      .output("y")
      .output("z");
  return m;
}
Inputs sized(int64_t b, int64_t s, int seed = 0) { return {{"x", numbers({b, s}, seed)}}; }

// y = relu(x[n, d] + m[k, d]): open() takes n and k for equal.
Maker broadcasting() {
  Maker m;
  m.input("x", {"n", "d"}).input("m", {"k", "d"}).add("Add", {"x", "m"}, {"t"}).add("Relu", {"t"}, {"y"}).output("y");
  return m;
}
Inputs meet(int64_t n, int64_t k) { return {{"x", numbers({n, 6})}, {"m", numbers({k, 6}, 1)}}; }

SessionOptions with(VariantPolicy policy, int max_variants = 8) {
  SessionOptions o = options();
  o.policy = policy;
  o.max_variants = max_variants;
  o.compile_share = 1;
  return o;
}
// A compile pays with the second call of any sizes.
SessionOptions eager(int max_variants = 8) {
  SessionOptions o = with(VariantPolicy::Adaptive, max_variants);
  o.predicted_loss_us = [](const auto&) { return 1e12; };
  return o;
}
std::string label(const Session& session, const RunStats& stats) {
  return session.variants()[static_cast<size_t>(stats.variant)]->label;
}
// Calls until a variant of this label runs; none of them compiles.
void expect_to_come(Session& session, const Maker& model, const Inputs& in, const std::string& wanted) {
  RunStats stats;
  for (int i = 0; i < 50; ++i) { // a call is not counted while the background holds the counts
    expect_right(model, in, session.run(in, &stats));
    EXPECT_EQ(stats.recompiles, 0);
    if (label(session, stats) == wanted) return;
    session.settle_tuning();
  }
  ADD_FAILURE() << wanted << " did not come; the last call ran " << label(session, stats);
}

TEST(Policy, GenericCompilesForNoSizes) {
  const auto model = rows();
  auto session = open(model, with(VariantPolicy::Generic));
  ASSERT_TRUE(session);
  for (int64_t i = 1; i < 20; ++i) expect_right(model, sized(i, 3 * i), session->run(sized(i, 3 * i)));
  EXPECT_EQ(session->compile_totals().compiles, 1);
  EXPECT_EQ(session->compile_totals().swaps, 0);
}

TEST(Policy, ExactHasAVariantForEachCombinationOfSizesAndGivesUpTheOldest) {
  const auto model = rows();
  auto session = open(model, with(VariantPolicy::Exact, 2));
  ASSERT_TRUE(session);
  RunStats stats;
  auto call = [&](int64_t b, int64_t s, int recompiles) {
    expect_right(model, sized(b, s), session->run(sized(b, s), &stats));
    EXPECT_EQ(stats.recompiles, recompiles);
    EXPECT_EQ(label(*session, stats), "b=" + std::to_string(b) + ", s=" + std::to_string(s));
  };
  call(2, 5, 1);
  call(2, 6, 1);
  call(2, 5, 0);
  call(3, 5, 1); // in the place of (2, 6)
  call(2, 5, 0);
  EXPECT_EQ(session->variants().size(), 3u);
  EXPECT_EQ(session->compile_totals().evictions, 1);
  EXPECT_EQ(session->compile_totals().blocking, 3);
  EXPECT_GT(session->compile_totals().blocking_ms, 0);
  call(2, 6, 1);
}

TEST(Policy, SizesThatAreKnownBeforehandAreCompiledByOpen) {
  const auto model = rows();
  auto o = options();
  const auto exactly = [](int64_t size) {
    Specialization s;
    s.size = size;
    return s;
  };
  o.variants = {{{"b", exactly(4)}, {"s", exactly(7)}}, {{"s", exactly(9)}}};
  auto session = open(model, o);
  ASSERT_TRUE(session);
  EXPECT_EQ(session->variants().size(), 3u);
  RunStats stats;
  for (auto [b, s, wanted] : {std::tuple{4, 7, "b=4, s=7"}, {5, 9, "s=9"}, {5, 7, "generic"}}) {
    expect_right(model, sized(b, s), session->run(sized(b, s), &stats));
    EXPECT_EQ(label(*session, stats), wanted);
  }
  EXPECT_EQ(session->compile_totals().compiles, 3);
  EXPECT_EQ(session->compile_totals().blocking, 0);
  o.variants = {{{"t", exactly(4)}}};
  auto unknown = Session::open(write(model), o);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::Usage);
}

TEST(Policy, ExactHoldsForEveryKindOfCall) {
  const auto model = rows();
  auto session = open(model, with(VariantPolicy::Exact));
  ASSERT_TRUE(session);
  auto other = session->new_executor();
  ASSERT_TRUE(other.ok());
  RunStats stats;
  Tensor x = numbers({2, 5});
  DeviceTensor in{DType::F32, {2, 5}, const_cast<std::byte*>(x.data())};
  std::vector<std::vector<float>> out;
  const OutputAllocator memory = [&](size_t, DType, const Dims& dims) -> Result<void*> {
    return out.emplace_back(static_cast<size_t>(element_count(dims).value())).data();
  };
  ASSERT_TRUE((*other)->call(std::span(&in, 1), memory, nullptr, &stats).ok());
  EXPECT_EQ(stats.recompiles, 1);
  EXPECT_EQ(label(*session, stats), "b=2, s=5");
  ASSERT_TRUE((*other)->output_sizes({{"x", {DType::F32, {2, 6}, nullptr}}}, &stats).ok());
  EXPECT_EQ(stats.recompiles, 1);
  expect_right(model, sized(2, 5), session->run(sized(2, 5), &stats));
  EXPECT_EQ(stats.recompiles, 0) << "the other executor caused it";
  EXPECT_EQ(label(*session, stats), "b=2, s=5");
}

TEST(Policy, AdaptiveCompilesInTheBackgroundWhatRecurs) {
  const auto model = rows();
  auto session = open(model, eager());
  ASSERT_TRUE(session);
  auto other = session->new_executor();
  ASSERT_TRUE(other.ok());
  for (int64_t i = 1; i < 9; ++i) expect_right(model, sized(1, i), session->run(sized(1, i)));
  session->settle_tuning();
  EXPECT_EQ(session->compile_totals().compiles, 1) << "no sizes came twice";
  expect_to_come(*session, model, sized(4, 7), "b=4, s=7");
  const CompileTotals totals = session->compile_totals();
  EXPECT_EQ(totals.blocking, 0);
  EXPECT_EQ(totals.background, 1);
  EXPECT_GE(totals.swaps, 1);
  EXPECT_EQ(totals.queued, 0);
  // Executors of other threads take it with their next call.
  RunStats stats;
  expect_right(model, sized(4, 7), (*other)->run(sized(4, 7), &stats));
  EXPECT_EQ(label(*session, stats), "b=4, s=7");
  EXPECT_GE(stats.renewals, 1);
}

TEST(Policy, AdaptiveCompilesNothingThatDoesNotPay) {
  auto o = eager();
  std::atomic<int> requested{0};
  o.predicted_loss_us = [&](const std::map<std::string, int64_t>& sizes) {
    ++requested;
    return sizes.at("s") == 7 ? 0.0 : 1e-9; // nothing; less than ever pays here
  };
  auto session = open(rows(), o);
  ASSERT_TRUE(session);
  for (int i = 0; i < 60; ++i)
    for (int64_t s : {7, 8}) expect_right(rows(), sized(4, s), session->run(sized(4, s)));
  session->settle_tuning();
  EXPECT_GT(requested, 0);
  EXPECT_EQ(session->compile_totals().compiles, 1);
}

TEST(Policy, AdaptiveKeepsItsBound) {
  const auto model = rows();
  auto session = open(model, eager(2));
  ASSERT_TRUE(session);
  for (int64_t s = 3; s < 8; ++s) expect_to_come(*session, model, sized(4, s), "b=4, s=" + std::to_string(s));
  EXPECT_EQ(session->variants().size(), 3u);
  EXPECT_EQ(session->compile_totals().evictions, 3);
  expect_to_come(*session, model, sized(4, 3), "b=4, s=3"); // what was given up may come back
}

TEST(Policy, BytesOfVariantsAreBounded) {
  const auto model = rows();
  const auto bytes_of = [&](int64_t most, int64_t sizes, int64_t& evictions) {
    SessionOptions o = with(VariantPolicy::Exact, 100);
    o.max_variant_bytes = most;
    auto session = open(model, o);
    for (int64_t s = 3; s < 3 + sizes; ++s) expect_right(model, sized(4, s), session->run(sized(4, s)));
    const CompileTotals totals = session->compile_totals();
    evictions = totals.evictions;
    EXPECT_EQ(totals.variants, 1 + sizes - evictions);
    return totals.variant_bytes;
  };
  int64_t evictions = 0;
  const int64_t one = bytes_of(int64_t{1} << 30, 1, evictions), four = bytes_of(int64_t{1} << 30, 4, evictions);
  EXPECT_GT(one, 0);
  EXPECT_GT(four, 3 * one / 2);
  EXPECT_EQ(evictions, 0);
  EXPECT_LE(bytes_of(four - 1, 4, evictions), four - 1);
  EXPECT_EQ(evictions, 1);
  EXPECT_GT(bytes_of(1, 4, evictions), 0) << "that of the last call stays";
  EXPECT_EQ(evictions, 3);
}

TEST(Policy, OfACompiledFileCompilesNothing) {
  const auto model = rows();
  const std::string path = folder().path() + "/policy.tsr";
  {
    SessionOptions o = options();
    o.compile_only = true;
    auto session = open(model, o);
    ASSERT_TRUE(session);
    ASSERT_TRUE(session->save(path, true).ok());
  }
  for (const auto policy : {VariantPolicy::Adaptive, VariantPolicy::Exact}) {
    SessionOptions o = eager();
    o.policy = policy;
    o.tune_share = 1;
    o.warm_up = {{"b", {1, 4, 8}}, {"s", {1, 7, 8}}};
    auto session = Session::open(path, o);
    ASSERT_TRUE(session.ok()) << session.error().str();
    for (int i = 0; i < 10; ++i) expect_right(model, sized(4, 7), (*session)->run(sized(4, 7)));
    (*session)->settle_tuning();
    const CompileTotals totals = (*session)->compile_totals();
    EXPECT_EQ(totals.compiles + totals.failures + totals.queued, 0);
    EXPECT_EQ(totals.ms, 0);
    EXPECT_GT(totals.load_ms, 0);
    EXPECT_EQ(totals.variants, 1);
  }
}

TEST(Policy, TheCostModelPricesTheGenericVariant) {
  auto o = with(VariantPolicy::Adaptive);
  auto session = open(rows(), o);
  ASSERT_TRUE(session);
  for (int i = 0; i < 20; ++i) expect_right(rows(), sized(4, 7), session->run(sized(4, 7)));
  session->settle_tuning(); // prices it: no error, and at most one compile
  EXPECT_LE(session->compile_totals().background, 1);
}

TEST(Policy, ClosingEndsCompilesInTheBackground) {
  for (int i = 0; i < 4; ++i) {
    auto o = eager();
    o.compile.cache = false;
    auto session = open(rows(), o);
    ASSERT_TRUE(session);
    for (int c = 0; c < 3 + i; ++c) expect_right(rows(), sized(4, 7), session->run(sized(4, 7)));
  }
}

// A compile that waits until it may go on.
struct Held {
  std::mutex mutex;
  std::condition_variable changed;
  bool armed = false, entered = false;
  bool cancelled() {
    std::unique_lock lock(mutex);
    if (armed) {
      entered = true;
      changed.notify_all();
      changed.wait(lock, [&] { return !armed; });
    }
    return false;
  }
  void arm(bool on) {
    std::lock_guard lock(mutex);
    armed = on;
    changed.notify_all();
  }
  void wait_for_entry() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return entered; });
  }
};

TEST(Policy, ACallThatAVariantFitsWaitsForNoCompile) {
  const auto model = broadcasting();
  Held held;
  auto o = options();
  o.compile.cache = false;
  o.compile.cancelled = [&] { return held.cancelled(); };
  auto session = open(model, o);
  ASSERT_TRUE(session);
  auto first = session->new_executor(), second = session->new_executor();
  ASSERT_TRUE(first.ok() && second.ok());
  held.arm(true);
  Result<std::vector<Tensor>> a = std::vector<Tensor>(), b = std::vector<Tensor>();
  std::thread one([&] { a = (*first)->run(meet(4, 1)); });
  std::thread two([&] { b = (*second)->run(meet(5, 1)); });
  held.wait_for_entry();
  expect_right(model, meet(3, 3), session->run(meet(3, 3))); // neither do those that only look
  EXPECT_EQ(session->compile_totals().compiles, 1);
  EXPECT_EQ(session->variants().size(), 1u);
  EXPECT_TRUE(session->new_executor().ok());
  held.arm(false);
  one.join();
  two.join();
  expect_right(model, meet(4, 1), a);
  expect_right(model, meet(5, 1), b);
  EXPECT_EQ(session->compile_totals().compiles, 2) << "calls that miss the same guard compile once";
}

TEST(Policy, ThreadsOfRandomSizes) {
  const auto model = rows();
  auto session = open(model, eager(3));
  ASSERT_TRUE(session);
  std::vector<std::vector<std::pair<Inputs, Result<std::vector<Tensor>>>>> done(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < done.size(); ++t) {
    auto made = session->new_executor();
    ASSERT_TRUE(made.ok());
    threads.emplace_back([&done, t, executor = std::shared_ptr<Executor>(std::move(*made))] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 40; ++i) {
        Inputs in = sized(1 + static_cast<int64_t>(random() % 3), 1 + static_cast<int64_t>(random() % 3), i);
        auto out = executor->run(in);
        done[t].emplace_back(std::move(in), std::move(out));
      }
    });
  }
  for (auto& t : threads) t.join();
  for (const auto& calls : done)
    for (const auto& [in, out] : calls) expect_right(model, in, out);
  session->settle_tuning();
  EXPECT_LE(session->variants().size(), 4u);
}

TEST(Deterministic, EqualInputsHaveEqualBits) {
  for (auto policy : {VariantPolicy::Generic, VariantPolicy::Exact}) {
    std::vector<std::byte> bits;
    for (int round = 0; round < 2; ++round) {
      auto o = with(policy);
      o.deterministic = true;
      auto session = open(rows(), o);
      ASSERT_TRUE(session);
      for (int i = 0; i < 20; ++i) {
        if (i % 3 == 0) {
          ASSERT_TRUE(session->run(sized(1 + i, 5)).ok());
        }
        auto out = session->run(sized(33, 129));
        ASSERT_TRUE(out.ok());
        std::vector<std::byte> now;
        for (const Tensor& t : *out) now.insert(now.end(), t.data(), t.data() + t.bytes());
        if (bits.empty()) bits = now;
        EXPECT_EQ(now, bits);
      }
    }
  }
}

TEST(Deterministic, ExcludesWhatReplacesCode) {
  auto refused = [](SessionOptions o) {
    o.deterministic = true;
    auto session = Session::open(write(rows()), o);
    EXPECT_FALSE(session.ok());
    return session.ok() ? ErrorCode::Internal : session.error().code;
  };
  EXPECT_EQ(refused(with(VariantPolicy::Adaptive)), ErrorCode::Usage);
  auto tuned = options();
  tuned.tune_share = 0.1;
  EXPECT_EQ(refused(tuned), ErrorCode::Usage);
  auto share = eager();
  share.compile_share = 0;
  EXPECT_EQ(Session::open(write(rows()), share).ok(), false);
}

} // namespace
} // namespace tessera::api_test
