// Ranges of sizes: how they are written, and what is ready before calls of them come.
#include "harness.h"

namespace tessera::api_test {
namespace {

Maker broadcasting() {
  Maker m;
  m.input("x", {"n", "d"}).input("m", {"k", "d"}).add("Add", {"x", "m"}, {"t"}).add("Relu", {"t"}, {"y"}).output("y");
  return m;
}
Inputs meet(int64_t n, int64_t k, int64_t d = 6) { return {{"x", numbers({n, d})}, {"m", numbers({k, d}, 1)}}; }

Maker rows() {
  Maker m;
  m.input("x", {"b", "s"}).add("Softmax", {"x"}, {"y"}, {onnx_test::int_attribute("axis", -1)}).output("y");
  return m;
}
Inputs sized(int64_t b, int64_t s) { return {{"x", numbers({b, s})}}; }

TEST(SizeRanges, Parse) {
  auto all = parse_size_ranges("batch=1..8..32,seq=16..512,channels=3");
  ASSERT_TRUE(all.ok()) << all.error().str();
  EXPECT_EQ(all->size(), 3u);
  const auto is = [](const SizeRange& r, int64_t min, int64_t opt, int64_t max) {
    return r.min == min && r.opt == opt && r.max == max;
  };
  EXPECT_TRUE(is(all->at("batch"), 1, 8, 32));
  EXPECT_TRUE(is(all->at("seq"), 16, 512, 512));
  EXPECT_TRUE(is(all->at("channels"), 3, 3, 3));
  EXPECT_TRUE(is(parse_size_ranges("a=b=2..4")->at("a=b"), 2, 4, 4)) << "names of dimensions are the model's";
}

TEST(SizeRanges, MistakesAreNamed) {
  const auto says = [](const char* text, const std::string& part) {
    auto parsed = parse_size_ranges(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::Usage);
    EXPECT_NE(parsed.error().str().find(part), std::string::npos) << parsed.error().str();
  };
  says("batch=32..8", "the smallest size, 32, is above the largest, 8");
  says("batch=1..64..32", "the typical size, 64, is not between 1 and 32");
  says("batch=0..8", "'0' is no size, which is a number from 1 to 1099511627776");
  says("batch=1..99999999999999999999", "'99999999999999999999' is no size");
  says("batch=1..2000000000000", "'2000000000000' is no size");
  says("batch=1..2..3..4", "at most three sizes");
  says("batch=1..8,batch=2", "names 'batch' twice");
  says("batch", "'batch' is not of the form DIM=MIN..OPT..MAX");
  says("batch=", "not of the form");
  says("=1..8", "not of the form");
  says("batch=1..", "'' is no size");
  says("batch=1...8", "'.8' is no size");
  says("batch=1..8,", "not of the form");
  says("", "not of the form");
  says("batch=many", "'many' is no size");
}

TEST(Specializations, Parse) {
  auto all = parse_specializations("batch=exact,seq=div:8");
  ASSERT_TRUE(all.ok()) << all.error().str();
  EXPECT_EQ(all->at("batch").kind, Specialization::Kind::Exact);
  EXPECT_EQ(all->at("seq").divisor, 8);
  auto variant = parse_variant("batch=4,seq=div:8");
  ASSERT_TRUE(variant.ok());
  EXPECT_EQ(variant->at("batch").size, 4);
  for (const char* wrong : {"batch=sometimes", "batch=4", "batch=div:1", "batch=div:x", "batch", "b=exact,b=exact", ""})
    EXPECT_FALSE(parse_specializations(wrong).ok()) << wrong;
  for (const char* wrong : {"batch=exact", "batch=-1", "batch=div:0", "b=1,b=2", ""})
    EXPECT_FALSE(parse_variant(wrong).ok()) << wrong;
}

TEST(WarmUp, NoCallWithinTheRangesCompiles) {
  const auto model = broadcasting();
  for (const bool at_opening : {true, false}) {
    SessionOptions o = options();
    const SizeRanges ranges{{"n", {1, 4, 9}}, {"k", {1, 4, 9}}, {"d", {2, 6, 8}}};
    if (at_opening) o.warm_up = ranges;
    auto session = open(model, o);
    ASSERT_TRUE(session);
    if (!at_opening) {
      ASSERT_TRUE(session->warm_up_ranges(ranges).ok());
    }
    EXPECT_EQ(session->variants().size(), 3u) << "equal, n is 1, k is 1";
    EXPECT_EQ(session->compile_totals().blocking, 0);
    RunStats stats;
    for (auto [n, k, d] : {std::tuple{4, 4, 6}, {1, 1, 2}, {7, 1, 5}, {1, 9, 8}, {9, 9, 3}, {20, 1, 30}}) {
      expect_right(model, meet(n, k, d), session->run(meet(n, k, d), &stats));
      EXPECT_EQ(stats.recompiles, 0) << n << ", " << k;
    }
    expect_right(model, meet(4, 4), session->run(meet(4, 4), &stats));
    EXPECT_FALSE(stats.new_shape) << "the typical sizes are planned";
    expect_error(session->run(meet(4, 3)), ErrorCode::GuardFailed, {"cannot broadcast"});
  }
}

// only: other sizes are errors, in a call and in an executor of another thread; code and memory are for these alone.
TEST(WarmUp, OnlyTheRanges) {
  auto only = parse_size_ranges("b=only:1..2..4,s=8..16");
  ASSERT_TRUE(only.ok()) << only.error().str();
  EXPECT_TRUE(only->at("b").only);
  EXPECT_FALSE(only->at("s").only);
  EXPECT_FALSE(parse_size_ranges("b=only:").ok());
  SessionOptions o = options();
  o.warm_up = *only;
  const auto model = rows();
  auto session = open(model, o);
  ASSERT_TRUE(session);
  for (auto [b, s] : {std::pair{1, 8}, {4, 16}, {2, 40}}) expect_right(model, sized(b, s), session->run(sized(b, s)));
  auto executor = session->new_executor();
  ASSERT_TRUE(executor.ok());
  for (const int64_t b : {0, 5, 400}) {
    expect_error(session->run(sized(b, 8)), ErrorCode::GuardFailed, {"b"});
    expect_error((*executor)->run(sized(b, 8)), ErrorCode::GuardFailed, {"b"});
  }
  // After opening it is too late.
  auto open_range = open(model, options());
  auto late = open_range->warm_up_ranges(*only);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::Usage);
  // A compiled file keeps to what it was compiled for.
  const std::string file = folder().path() + "/only.tsr";
  ASSERT_TRUE(session->save(file, true).ok());
  auto loaded = Session::open(file, options());
  ASSERT_TRUE(loaded.ok()) << loaded.error().str();
  EXPECT_TRUE((*loaded)->run(sized(4, 16)).ok());
  expect_error((*loaded)->run(sized(5, 16)), ErrorCode::GuardFailed, {"b"});
  SessionOptions again = options();
  again.warm_up = *only;
  auto narrowed = Session::open(file, again);
  ASSERT_FALSE(narrowed.ok());
  EXPECT_EQ(narrowed.error().code, ErrorCode::Usage);
}

TEST(WarmUp, WhatNoCallOfTheRangesNeedsIsNotCompiled) {
  SessionOptions o = options();
  o.warm_up = {{"n", {4, 4, 4}}, {"k", {4, 4, 4}}, {"d", {2, 6, 8}}};
  auto session = open(broadcasting(), o);
  ASSERT_TRUE(session);
  EXPECT_EQ(session->variants().size(), 1u);
  o.warm_up = {{"n", {2, 4, 8}}, {"k", {1, 1, 1}}, {"d", {2, 6, 8}}};
  session = open(broadcasting(), o);
  ASSERT_TRUE(session);
  EXPECT_EQ(session->variants().size(), 2u);
}

TEST(WarmUp, SizesThatDoNotFitTheMemoryAreAnErrorBeforehand) {
  SessionOptions o = options();
  o.executor.memory_limit = 1 << 20;
  const auto with = [&](SizeRanges ranges) {
    o.warm_up = std::move(ranges);
    return Session::open(write(rows()), o);
  };
  EXPECT_TRUE(with({{"b", {1, 8, 16}}, {"s", {1, 64, 128}}}).ok());
  auto large = with({{"b", {1, 8, 4096}}, {"s", {1, 64, 1024}}});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, ErrorCode::OutOfMemory);
  for (const char* part : {"largest sizes of the ranges: b=4096, s=1024", "raise the memory limit"})
    EXPECT_NE(large.error().str().find(part), std::string::npos) << large.error().str();
}

TEST(WarmUp, MistakesAreNamed) {
  auto session = open(rows());
  ASSERT_TRUE(session);
  const auto says = [&](const SizeRanges& ranges, const std::vector<std::string>& parts) {
    const Status done = session->warm_up_ranges(ranges);
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, ErrorCode::Usage);
    for (const auto& part : parts) EXPECT_NE(done.error().str().find(part), std::string::npos) << done.error().str();
  };
  says({{"b", {1, 2, 3}}, {"t", {1, 2, 3}}}, {"no input of the model has a symbolic dimension 't'", "it has 'b', 's'"});
  says({{"b", {1, 2, 3}}}, {"the range of 's' is missing", "s=MIN..OPT..MAX"});
  says({{"b", {3, 2, 3}}, {"s", {1, 1, 1}}}, {"the range of 'b' is 3..2..3"});
  says({{"b", {0, 2, 3}}, {"s", {1, 1, 1}}}, {"the range of 'b' is 0..2..3"});
  Maker named;
  named.input("x", {"batch", "sequence"}).add("Relu", {"x"}, {"y"}).output("y");
  auto other = open(named);
  ASSERT_TRUE(other);
  const Status typo = other->warm_up_ranges({{"batch", {1, 2, 3}}, {"sequense", {1, 2, 3}}});
  ASSERT_FALSE(typo.ok());
  EXPECT_NE(typo.error().str().find("did you mean 'sequence'?"), std::string::npos) << typo.error().str();
}

TEST(WarmUp, MakesTheVariantsOfThePolicyForTypicalSizes) {
  for (const auto policy : {VariantPolicy::Adaptive, VariantPolicy::Exact}) {
    SessionOptions o = options();
    o.policy = policy;
    o.warm_up = {{"b", {2, 4, 8}}, {"s", {5, 7, 9}}};
    auto session = open(rows(), o);
    ASSERT_TRUE(session);
    RunStats stats;
    expect_right(rows(), sized(4, 7), session->run(sized(4, 7), &stats));
    EXPECT_EQ(stats.recompiles, 0);
    EXPECT_EQ(session->variants()[static_cast<size_t>(stats.variant)]->label, "b=4, s=7");
  }
}

TEST(WarmUp, OfAnotherExecutor) {
  auto session = open(broadcasting());
  ASSERT_TRUE(session);
  auto other = session->new_executor();
  ASSERT_TRUE(other.ok());
  const SizeRanges ranges{{"n", {1, 4, 9}}, {"k", {1, 4, 9}}, {"d", {2, 6, 8}}};
  ASSERT_TRUE(session->warm_up_ranges(ranges, {}, other->get()).ok());
  RunStats stats;
  expect_right(broadcasting(), meet(4, 4), (*other)->run(meet(4, 4), &stats));
  EXPECT_FALSE(stats.new_shape);
  expect_right(broadcasting(), meet(4, 1), session->run(meet(4, 1), &stats));
  EXPECT_EQ(stats.recompiles, 0);
}

TEST(WarmUp, TakesValuesWhereTheyHaveToBeValid) {
  Maker m; // row `at - 5` of x, and at = 0 leads to one before the first
  m.input("x", {"n", 4}).input("at", {1}, onnx_test::proto::TensorProto::INT64);
  m.weight(onnx_test::int64_tensor("five", {1}, {5}));
  m.add("Sub", {"at", "five"}, {"i"}).add("Gather", {"x", "i"}, {"y"}).output("y");
  auto session = open(m);
  ASSERT_TRUE(session);
  const SizeRanges ranges{{"n", {2, 3, 4}}};
  const Status zeros = session->warm_up_ranges(ranges);
  ASSERT_FALSE(zeros.ok());
  EXPECT_NE(zeros.error().str().find("where inputs of zeros are not valid, give values"), std::string::npos);
  Tensor at = integers({1}, 2);
  at.set_i64(0, 6);
  EXPECT_TRUE(session->warm_up_ranges(ranges, {{"at", at}}).ok());
}

// Calls of the model, each of which is a range that no other one is around.
struct CountCalls final : RangeMarker {
  int depth = 0, calls = 0;
  void begin(const std::string&) override { calls += depth++ == 0 ? 1 : 0; }
  void end() override { --depth; }
};

TEST(WarmUp, OnTheHostRunsOnce) {
  for (const auto policy : {VariantPolicy::Generic, VariantPolicy::Exact}) {
    SessionOptions o = options();
    o.policy = policy;
    const auto counted = std::make_shared<CountCalls>();
    o.executor.ranges = counted;
    auto session = open(rows(), o);
    ASSERT_TRUE(session);
    RunStats stats;
    ASSERT_TRUE(session->warm_up(sized(3, 5), &stats).ok());
    EXPECT_EQ(counted->calls, 1);
    EXPECT_TRUE(stats.new_shape);
    EXPECT_EQ(stats.recompiles, policy == VariantPolicy::Exact);
    ASSERT_TRUE(session->run(sized(3, 5), &stats).ok());
    EXPECT_FALSE(stats.new_shape);
  }
}

} // namespace
} // namespace tessera::api_test
