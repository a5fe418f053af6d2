// Guards through the session: assumptions that a call violates, contracts of the model, specialization, and what is
// reported about them.
#include "harness.h"

namespace tessera::api_test {
namespace {

// y = relu(x[n, d] + m[k, d]): where n meets k, open() takes them for equal.
Maker broadcasting() {
  Maker m;
  m.input("x", {"n", "d"}).input("m", {"k", "d"}).add("Add", {"x", "m"}, {"t"}).add("Relu", {"t"}, {"y"}).output("y");
  return m;
}
Inputs meet(int64_t n, int64_t k) { return {{"x", numbers({n, 6})}, {"m", numbers({k, 6}, 1)}}; }

TEST(Assumptions, AViolatedBroadcastCompilesAnotherVariant) {
  auto model = broadcasting();
  auto session = open(model);
  ASSERT_TRUE(session);
  EXPECT_EQ(str(session->inputs()[0].shape), "[n, d]");
  EXPECT_EQ(str(session->inputs()[1].shape), "[k, d]") << "inputs keep the names they were declared with";

  RunStats stats;
  auto call = [&](int64_t n, int64_t k, int recompiles, int variant, size_t misses) {
    SCOPED_TRACE("n = " + std::to_string(n) + ", k = " + std::to_string(k));
    auto in = meet(n, k);
    expect_right(model, in, session->run(in, &stats));
    EXPECT_EQ(stats.recompiles, recompiles);
    EXPECT_EQ(stats.recompile_ms > 0, recompiles > 0);
    EXPECT_EQ(stats.variant, variant);
    EXPECT_EQ(stats.misses.size(), misses);
  };
  call(4, 4, 0, 0, 0);
  call(4, 1, 1, 1, 1);
  EXPECT_NE(stats.misses[0].guard.find("k"), std::string::npos) << stats.misses[0].guard;
  EXPECT_NE(stats.misses[0].guard.find("n"), std::string::npos) << stats.misses[0].guard;
  EXPECT_NE(stats.misses[0].reason.find("broadcast"), std::string::npos) << stats.misses[0].reason;
  EXPECT_NE(stats.misses[0].where.find("n_t"), std::string::npos) << stats.misses[0].where;
  EXPECT_EQ(stats.misses[0].sizes, (std::map<std::string, int64_t>{{"n", 4}, {"k", 1}, {"d", 6}}));
  call(4, 1, 0, 1, 1);
  call(9, 1, 0, 1, 1); // it is generic in n
  call(9, 9, 0, 0, 0); // the first variant still serves its shapes
  call(1, 5, 1, 2, 2);
  call(1, 7, 0, 2, 2);
  call(1, 1, 0, 0, 0); // all of them fit: the oldest
  EXPECT_EQ(session->variants().size(), 3u);
  EXPECT_EQ(session->variants()[1]->label, "for d=6, k=1, n=4");
}

TEST(Assumptions, SizesThatCannotMeetAreAnErrorWithTheReason) {
  auto model = broadcasting();
  auto session = open(model);
  ASSERT_TRUE(session);
  for (int i = 0; i < 2; ++i)
    expect_error(session->run(meet(4, 3)), ErrorCode::GuardFailed,
                 {"n=4", "k=3", "k is dimension 0 of input 'm'", "n_t", "cannot broadcast"});
  auto in = meet(4, 1); // the failure did not end recompiling
  expect_right(model, in, session->run(in));
}

TEST(Assumptions, ZeroSizesMeet) {
  auto model = broadcasting();
  auto session = open(model);
  ASSERT_TRUE(session);
  for (auto [n, k] : {std::pair{0, 0}, std::pair{0, 1}, std::pair{1, 0}}) {
    auto in = meet(n, k);
    SCOPED_TRACE(n);
    expect_right(model, in, session->run(in));
  }
}

// A size that data decides meets one that an input has: the assumption is checked when the data has decided.
TEST(Assumptions, OfSizesThatAreDataAreCheckedOnTheWay) {
  Maker model;
  model.input("x", {"s"})
      .input("v", {1, "r"})
      .add("NonZero", {"x"}, {"at"})
      .add("Cast", {"at"}, {"f"}, {onnx_test::int_attribute("to", onnx_test::proto::TensorProto::FLOAT)})
      .add("Add", {"f", "v"}, {"y"})
      .output("y");
  auto session = open(model);
  ASSERT_TRUE(session);
  Inputs in{{"x", numbers({4})}, {"v", numbers({1, 4}, 2)}};
  for (int64_t i = 0; i < 4; ++i) in["x"].set_f64(i, 1);
  auto out = session->run(in);
  ASSERT_TRUE(out.ok()) << out.error().str();
  EXPECT_EQ((*out)[0].dims(), (Dims{1, 4}));
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ((*out)[0].get_f64(i), static_cast<double>(i) + in["v"].get_f64(i));
  Inputs fewer = in;
  fewer["x"] = numbers({4});
  fewer["x"].set_f64(0, 0);
  fewer["x"].set_f64(1, 1);
  fewer["x"].set_f64(2, 0);
  fewer["x"].set_f64(3, 1);
  expect_error(session->run(fewer), ErrorCode::GuardFailed, {"r=4", "n_y"});
  EXPECT_TRUE(session->run(in).ok());
}

TEST(Contracts, AViolatedOneIsAnErrorThatNamesDimensionLimitAndNode) {
  Maker model;
  model.input("x", {"m", "k"}).input("w", {"j", "n"}).add("MatMul", {"x", "w"}, {"y"}).output("y");
  auto session = open(model);
  ASSERT_TRUE(session);
  Inputs good{{"x", numbers({3, 5})}, {"w", numbers({5, 2})}};
  expect_right(model, good, session->run(good));
  expect_error(session->run({{"x", numbers({3, 5})}, {"w", numbers({4, 2})}}), ErrorCode::GuardFailed,
               {"k=5", "j=4", "j is dimension 0 of input 'w'", "k is dimension 1 of input 'x'", "n_y"});
  EXPECT_EQ(session->variants().size(), 1u) << "no other variant could help";
  expect_right(model, good, session->run(good));
}

// A table of 8 positions, of which the first s are added to a sequence of s: sequences longer than the table have no
// meaning.
TEST(Contracts, ATableOfPositionsLimitsTheSequence) {
  Maker model;
  model.input("x", {"b", "s", 2});
  model.weight(onnx_test::float_tensor("table", {8, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}))
      .weight(onnx_test::int64_tensor("zero", {1}, {0}))
      .weight(onnx_test::int64_tensor("axis", {1}, {0}))
      .weight(onnx_test::int64_tensor("one", {1}, {1}))
      .add("Shape", {"x"}, {"shape"})
      .add("Gather", {"shape", "one"}, {"length"})
      .add("Slice", {"table", "zero", "length", "axis"}, {"positions"})
      .add("Add", {"x", "positions"}, {"y"})
      .output("y");
  auto session = open(model);
  ASSERT_TRUE(session);
  for (int64_t s : {8, 1, 5, 0}) {
    Inputs in{{"x", numbers({2, s, 2})}};
    SCOPED_TRACE(s);
    expect_right(model, in, session->run(in));
  }
  expect_error(session->run({{"x", numbers({2, 9, 2})}}), ErrorCode::GuardFailed,
               {"s=9", "8", "s is dimension 1 of input 'x'", "n_y"});
  Inputs in{{"x", numbers({2, 8, 2})}};
  expect_right(model, in, session->run(in));
}

// ---- specialization

Maker matrix() {
  Maker m;
  m.input("x", {"b", "s"})
      .add("Softmax", {"x"}, {"t"}, {onnx_test::int_attribute("axis", -1)})
      .add("Relu", {"t"}, {"y"})
      .output("y");
  return m;
}

struct Specialized {
  Maker model = matrix();
  std::unique_ptr<Session> session;
  RunStats stats;
  explicit Specialized(std::map<std::string, Specialization> what, int max_variants = 8,
                       SessionOptions::OnMiss on_miss = SessionOptions::OnMiss::Compile) {
    auto o = options();
    o.specialize = std::move(what);
    o.max_variants = max_variants;
    o.on_miss = on_miss;
    session = open(model, o);
  }
  // Runs it and says which variant ran.
  std::string call(int64_t b, int64_t s, int recompiles) {
    SCOPED_TRACE("b = " + std::to_string(b) + ", s = " + std::to_string(s));
    Inputs in{{"x", numbers({b, s})}};
    expect_right(model, in, session->run(in, &stats));
    EXPECT_EQ(stats.recompiles, recompiles);
    EXPECT_EQ(stats.recompile_ms > 0, recompiles > 0);
    return session->variants()[static_cast<size_t>(stats.variant)]->label;
  }
};
constexpr Specialization kExact{};
constexpr Specialization divisible(int64_t by) { return {Specialization::Kind::Divisible, by}; }

TEST(Specialize, Exact) {
  Specialized t({{"b", kExact}});
  ASSERT_TRUE(t.session);
  EXPECT_EQ(t.call(4, 7, 1), "b=4");
  EXPECT_TRUE(t.stats.misses.empty());
  EXPECT_EQ(t.call(4, 9, 0), "b=4");
  EXPECT_EQ(t.call(5, 9, 1), "b=5");
  ASSERT_EQ(t.stats.misses.size(), 1u);
  EXPECT_EQ(t.stats.misses[0].guard, "b == 4");
  EXPECT_EQ(t.stats.misses[0].reason, "specialized on request");
  EXPECT_EQ(t.stats.misses[0].sizes.at("b"), 5);
  EXPECT_EQ(t.call(4, 9, 0), "b=4");
  EXPECT_EQ(t.call(0, 3, 1), "b=0");
  EXPECT_EQ(t.call(1, 3, 1), "b=1");
  EXPECT_EQ(t.session->variants().size(), 5u);
  EXPECT_EQ(str(t.session->variants()[1]
                    ->compiled->graph->type(t.session->variants()[1]->compiled->graph->inputs()[0])
                    .shape),
            "[4, s]")
      << "inside, the size is a constant";
}

TEST(Specialize, DivisibleTakesTheGenericVariantForOtherSizes) {
  Specialized t({{"s", divisible(8)}});
  ASSERT_TRUE(t.session);
  EXPECT_EQ(t.call(2, 17, 0), "generic");
  EXPECT_EQ(t.call(2, 16, 1), "s%8=0");
  EXPECT_EQ(t.call(3, 24, 0), "s%8=0");
  EXPECT_EQ(t.call(3, 0, 0), "s%8=0");
  EXPECT_EQ(t.call(2, 17, 0), "generic");
  EXPECT_EQ(t.session->variants().size(), 2u) << "odd sizes compile nothing";
  const auto& env = *t.session->variants()[1]->compiled->executable->env;
  EXPECT_EQ(env.divisor(*env.find("s")), 8);
}

TEST(Specialize, TheVariantWithMoreConditionsRuns) {
  Specialized t({{"b", kExact}, {"s", divisible(4)}});
  ASSERT_TRUE(t.session);
  EXPECT_EQ(t.call(2, 5, 1), "b=2");
  EXPECT_EQ(t.call(2, 8, 1), "b=2, s%4=0");
  EXPECT_EQ(t.call(2, 12, 0), "b=2, s%4=0");
  EXPECT_EQ(t.call(2, 5, 0), "b=2");
  EXPECT_EQ(t.call(3, 7, 1), "b=3");
}

TEST(Specialize, LimitsFallToTheGenericVariant) {
  Specialized one({{"b", kExact}}, 1);
  ASSERT_TRUE(one.session);
  EXPECT_EQ(one.call(4, 7, 1), "b=4");
  EXPECT_EQ(one.call(5, 7, 0), "generic");
  EXPECT_EQ(one.call(6, 7, 0), "generic");
  EXPECT_EQ(one.session->variants().size(), 2u);
  ASSERT_EQ(one.stats.misses.size(), 1u);
  EXPECT_EQ(one.stats.misses[0].sizes.at("b"), 6);

  Specialized none({{"b", kExact}}, 0);
  ASSERT_TRUE(none.session);
  EXPECT_EQ(none.call(4, 7, 0), "generic");

  Specialized first({{"b", kExact}}, 8, SessionOptions::OnMiss::Generic);
  ASSERT_TRUE(first.session);
  EXPECT_EQ(first.call(4, 7, 1), "b=4");
  EXPECT_EQ(first.call(5, 7, 0), "generic");
  EXPECT_EQ(first.call(4, 9, 0), "b=4");
}

TEST(Specialize, WrongRequestsAreWrongUse) {
  auto refused = [](std::map<std::string, Specialization> what) {
    auto o = options();
    o.specialize = std::move(what);
    auto session = Session::open(write(matrix()), o);
    EXPECT_FALSE(session.ok());
    if (session.ok()) return std::string();
    EXPECT_EQ(session.error().code, ErrorCode::Usage);
    return session.error().str();
  };
  auto text = refused({{"batch", kExact}});
  EXPECT_NE(text.find("'batch'"), std::string::npos) << text;
  EXPECT_NE(text.find("'b', 's'"), std::string::npos) << text;
  EXPECT_NE(refused({{"s", divisible(0)}}).find("must be positive"), std::string::npos);
}

TEST(Specialize, WrongInputsCompileNothing) {
  Specialized t({{"b", kExact}});
  ASSERT_TRUE(t.session);
  expect_error(t.session->run({}), ErrorCode::MissingInput, {"'x'"});
  expect_error(t.session->run({{"x", integers({2, 3}, 4)}}), ErrorCode::BadInput, {"'x'"});
  EXPECT_EQ(t.call(2, 3, 1), "b=2");
  expect_error(t.session->run({{"x", integers({2, 3}, 4)}}), ErrorCode::BadInput, {"'x'"});
  expect_error(t.session->run({{"x", numbers({5})}}), ErrorCode::BadInput, {"'x'"});
  EXPECT_EQ(t.session->variants().size(), 2u);
}

TEST(Specialize, AnAssumptionInsideOfASpecializedVariantStillRecompiles) {
  auto model = broadcasting();
  auto o = options();
  o.specialize = {{"d", divisible(2)}};
  auto session = open(model, o);
  ASSERT_TRUE(session);
  RunStats stats;
  for (auto [n, k, recompiles] : {std::tuple{4, 4, 1}, std::tuple{4, 1, 1}, std::tuple{5, 1, 0}, std::tuple{5, 5, 0}}) {
    auto in = meet(n, k);
    SCOPED_TRACE(std::to_string(n) + ", " + std::to_string(k));
    expect_right(model, in, session->run(in, &stats));
    EXPECT_EQ(stats.recompiles, recompiles);
  }
}

// ---- what the log says

TEST(Log, SaysWhichGuardMissedForWhichSizesAndWhatItCost) {
  auto session = open(broadcasting());
  ASSERT_TRUE(session);
  LogCapture log("guards,recompiles");
  ASSERT_TRUE(session->run(meet(4, 4)).ok());
  EXPECT_EQ(log.text(), "") << "nothing to report";
  ASSERT_TRUE(session->run(meet(4, 1)).ok());
  const std::string& text = log.text();
  auto guards = text.find("guards: variant 0 missed: "), recompiles = text.find("recompiles: ");
  ASSERT_NE(guards, std::string::npos) << text;
  ASSERT_NE(recompiles, std::string::npos) << text;
  std::string line = text.substr(recompiles);
  for (const char* part : {"did not hold (broadcast of", "k=1", "n=4", " ms"})
    EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
}

TEST(Log, SaysWhySpecializedVariantsWereCompiled) {
  Specialized t({{"b", kExact}});
  ASSERT_TRUE(t.session);
  LogCapture log("guards,recompiles");
  EXPECT_EQ(t.call(4, 7, 1), "b=4");
  EXPECT_NE(log.text().find("recompiles: variant b=4 took "), std::string::npos) << log.text();
  EXPECT_EQ(t.call(5, 7, 1), "b=5");
  EXPECT_NE(log.text().find(" ms: variant b=4 missed b == 4"), std::string::npos) << log.text();
  EXPECT_NE(log.text().find("guards: variant 1 missed: "), std::string::npos) << log.text();
  EXPECT_NE(log.text().find("for b=5, s=7"), std::string::npos) << log.text();
}

} // namespace
} // namespace tessera::api_test
