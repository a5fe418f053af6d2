// The answer to an input is the same from call to call, whatever was compiled, by whom, in between (session.h).
#include "harness.h"
#include <random>
#include <thread>

namespace tessera::api_test {
namespace {

// y = softmax(a[n, d] + b[k, d]), z = the sum of a + b over n: where n and k meet, open() takes them for equal.
Maker broadcasting() {
  Maker m;
  m.input("a", {"n", "d"})
      .input("b", {"k", "d"})
      .add("Add", {"a", "b"}, {"t"})
      .add("Softmax", {"t"}, {"y"}, {onnx_test::int_attribute("axis", -1)})
      .add("ReduceSum", {"t"}, {"z"}, {onnx_test::int_attribute("keepdims", 0)})
      .output("y")
      .output("z");
  return m;
}
// Fractions, whose sums depend on the order of additions.
Tensor fractions(Dims dims, int seed) {
  Tensor t = numbers(std::move(dims), seed);
  for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, t.get_f64(i) / 7 + static_cast<double>(i % 13) / 3);
  return t;
}
Inputs meet(int64_t n, int64_t k, int64_t d = 33) { return {{"a", fractions({n, d}, 1)}, {"b", fractions({k, d}, 2)}}; }

std::vector<std::byte> bits_of(const std::vector<Tensor>& outputs) {
  std::vector<std::byte> bits;
  for (const Tensor& t : outputs) bits.insert(bits.end(), t.data(), t.data() + t.bytes());
  return bits;
}

struct Answer {
  std::vector<std::byte> bits;
  std::string variant;
};
// Calls by an executor, or by the session itself; remembers the answer to each input, which must stay.
class Answers {
public:
  explicit Answers(Session& session) : session_(session) {}
  template <class Runs>
  void call(Runs& runs, size_t which, const Inputs& in) {
    RunStats stats;
    auto out = runs.run(in, &stats);
    ASSERT_TRUE(out.ok()) << out.error().str();
    Answer now{bits_of(*out), session_.variants()[static_cast<size_t>(stats.variant)]->label};
    const auto [at, fresh] = first_.emplace(which, now);
    EXPECT_EQ(at->second.variant, now.variant) << "input " << which;
    EXPECT_TRUE(at->second.bits == now.bits) << "input " << which << " by " << now.variant;
  }
  [[nodiscard]] const std::map<size_t, Answer>& all() const { return first_; }

private:
  Session& session_;
  std::map<size_t, Answer> first_;
};

std::vector<Inputs> requests() {
  std::vector<Inputs> all;
  for (auto [n, k] : {std::pair{4, 4}, {1, 1}, {4, 1}, {1, 5}, {33, 33}, {9, 1}, {1, 9}, {2, 2}})
    for (int64_t d : {33, 8}) all.push_back(meet(n, k, d));
  return all;
}

TEST(Determinism, RandomSequencesOfCallsHaveTheSameBits) {
  const std::vector<Inputs> all = requests();
  for (const bool deterministic : {false, true})
    for (const auto policy : {VariantPolicy::Generic, VariantPolicy::Exact}) {
      if (!deterministic && policy == VariantPolicy::Exact) continue; // swaps are its right
      for (unsigned seed = 0; seed < 3; ++seed) {
        SCOPED_TRACE(testing::Message() << "deterministic " << deterministic << ", seed " << seed);
        SessionOptions o = options();
        o.policy = policy;
        o.deterministic = deterministic;
        o.max_variants = 3; // some are evicted
        auto session = open(broadcasting(), o);
        ASSERT_TRUE(session);
        auto other = session->new_executor();
        ASSERT_TRUE(other.ok());
        Answers answers(*session);
        std::mt19937 random(seed);
        for (int i = 0; i < 60; ++i) {
          const size_t which = random() % all.size();
          if (random() % 2 == 0)
            answers.call(*session, which, all[which]);
          else
            answers.call(**other, which, all[which]);
        }
        if (policy == VariantPolicy::Generic) {
          EXPECT_EQ(session->variants().size(), 3u) << "equal, k is 1, n is 1";
          EXPECT_EQ(session->compile_totals().swaps, 0);
        }
      }
    }
}

TEST(Determinism, TheOldestVariantThatFitsAnswers) {
  auto session = open(broadcasting());
  ASSERT_TRUE(session);
  auto other = session->new_executor();
  ASSERT_TRUE(other.ok());
  RunStats stats;
  const auto variant = [&](auto& runs, int64_t n, int64_t k) {
    const Inputs in = meet(n, k, 6);
    EXPECT_TRUE(runs.run(in, &stats).ok());
    return stats.variant;
  };
  EXPECT_EQ(variant(*session, 1, 1), 0);
  EXPECT_EQ(variant(*session, 4, 1), 1);
  EXPECT_EQ(variant(*session, 1, 1), 0) << "which a later variant fits, too";
  EXPECT_EQ(variant(**other, 1, 5), 2);
  EXPECT_EQ(variant(**other, 4, 1), 1) << "of the other executor, older than its own";
  EXPECT_EQ(variant(*session, 1, 5), 2);
  EXPECT_EQ(variant(*session, 1, 1), 0);
  EXPECT_EQ(session->compile_totals().compiles, 3);
}

// Two assumptions: which variants there are depends on who came first, and yet each input keeps its answer.
TEST(Determinism, OfSeveralAssumptions) {
  Maker m;
  m.input("a", {"n", "d"}).input("b", {"k", "d"}).input("c", {"j", "d"});
  m.add("Add", {"a", "b"}, {"t"}).add("Mul", {"t", "c"}, {"u"});
  m.add("ReduceSum", {"u"}, {"z"}, {onnx_test::int_attribute("keepdims", 0)}).output("z");
  std::vector<Inputs> all;
  for (int64_t n : {1, 6})
    for (int64_t k : {1, 6})
      for (int64_t j : {1, 6})
        all.push_back({{"a", fractions({n, 5}, 1)}, {"b", fractions({k, 5}, 2)}, {"c", fractions({j, 5}, 3)}});
  for (unsigned seed = 0; seed < 4; ++seed) {
    auto session = open(m);
    ASSERT_TRUE(session);
    Answers answers(*session);
    std::mt19937 random(seed);
    for (int i = 0; i < 60; ++i) {
      const size_t which = random() % all.size();
      answers.call(*session, which, all[which]);
    }
  }
}

// Variants that no call fits both of need no order, so the latest guess of a value is tried first.
TEST(Determinism, OfGuessedValuesTheLatestIsTriedFirst) {
  Maker m;
  m.input("x", {"n", "d"}).input("axes", {1}, onnx_test::proto::TensorProto::INT64);
  m.add("ReduceSum", {"x", "axes"}, {"y"}, {onnx_test::int_attribute("keepdims", 0)}).output("y", {"p"});
  auto session = open(m);
  ASSERT_TRUE(session);
  ASSERT_TRUE(session->variants()[0]->fits_no_call);
  RunStats stats;
  const auto call = [&](int64_t axis) {
    Tensor axes = integers({1}, 2);
    axes.set_i64(0, axis);
    const Inputs in{{"x", numbers({3, 5})}, {"axes", axes}};
    auto out = session->run(in, &stats);
    ASSERT_TRUE(out.ok()) << out.error().str();
    EXPECT_EQ((*out)[0].dims(), (Dims{axis == 0 ? 5 : 3}));
  };
  call(0);
  EXPECT_EQ(stats.recompiles, 1);
  call(0);
  EXPECT_EQ(stats.recompiles, 0);
  EXPECT_TRUE(stats.misses.empty()) << "the variant that only reads values is the last";
  call(1);
  EXPECT_EQ(stats.recompiles, 1);
  call(1);
  EXPECT_EQ(stats.recompiles, 0);
  EXPECT_TRUE(stats.misses.empty());
  call(0);
  EXPECT_EQ(stats.recompiles, 0);
  EXPECT_EQ(stats.misses.size(), 1u);
}

TEST(Determinism, ThreadsThatMissTogether) {
  const std::vector<Inputs> all = requests();
  auto session = open(broadcasting());
  ASSERT_TRUE(session);
  std::vector<std::vector<std::pair<size_t, std::vector<std::byte>>>> done(3);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < done.size(); ++t) {
    auto made = session->new_executor();
    ASSERT_TRUE(made.ok());
    threads.emplace_back([&, t, executor = std::shared_ptr<Executor>(std::move(*made))] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 30; ++i) {
        const size_t which = random() % all.size();
        auto out = executor->run(all[which]);
        ASSERT_TRUE(out.ok()) << out.error().str();
        done[t].emplace_back(which, bits_of(*out));
      }
    });
  }
  for (auto& t : threads) t.join();
  std::map<size_t, std::vector<std::byte>> first;
  for (const auto& calls : done)
    for (const auto& [which, bits] : calls) {
      const auto at = first.emplace(which, bits).first;
      EXPECT_TRUE(at->second == bits) << "input " << which;
    }
  EXPECT_EQ(session->variants().size(), 3u);
}

// Sessions with calls in another order stand here for the processes that must agree.
TEST(Determinism, SessionsAgreeWhereThatIsPromised) {
  const std::vector<Inputs> all = requests();
  const auto answers_of = [&](SessionOptions o, std::vector<size_t> order) {
    o.deterministic = true;
    auto session = open(broadcasting(), o);
    std::map<size_t, std::vector<std::byte>> out;
    for (size_t which : order) {
      auto answer = session->run(all[which]);
      EXPECT_TRUE(answer.ok());
      if (answer.ok()) out.emplace(which, bits_of(*answer));
    }
    return out;
  };
  std::vector<size_t> forwards, backwards;
  for (size_t i = 0; i < all.size(); ++i) forwards.push_back(i), backwards.push_back(all.size() - 1 - i);
  SessionOptions exact = options();
  exact.policy = VariantPolicy::Exact;
  exact.max_variants = 4;
  EXPECT_TRUE(answers_of(exact, forwards) == answers_of(exact, backwards));
  SessionOptions warm = options();
  warm.warm_up = {{"n", {1, 8, 64}}, {"k", {1, 8, 64}}, {"d", {8, 33, 64}}};
  EXPECT_TRUE(answers_of(warm, forwards) == answers_of(warm, backwards));
  // Under Generic alone, for what the first variant answers.
  std::vector<size_t> equal;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].at("a").dims() == all[i].at("b").dims()) equal.push_back(i);
  auto one = answers_of(options(), forwards), two = answers_of(options(), backwards);
  for (size_t which : equal) EXPECT_TRUE(one.at(which) == two.at(which)) << which;
}

} // namespace
} // namespace tessera::api_test
