#include "expr_fuzz.h"
#include "symbols/env.h"
#include <gtest/gtest.h>

namespace tessera {
namespace {

struct ShapeEnvTest : testing::Test {
  ShapeEnv env;
  SymExpr b = env.create_symbol("b", {1, kSymMax}), s = env.create_symbol("s", {1, 512});
  SymExpr i = SymExpr::symbol("i"), j = SymExpr::symbol("j"), k = SymExpr::symbol("k"), h = SymExpr::symbol("h"),
          d = SymExpr::symbol("d");
  Location at{.node = "Add_1"};
  void SetUp() override {
    env.set_axis(i, b);
    env.set_axis(j, s);
    env.set_axis(k, 768);
    env.set_axis(h, 12);
    env.set_axis(d, 64);
  }
};

TEST_F(ShapeEnvTest, LinearIndexFormsComeApart) {
  SymExpr flat = i * s * 768 + j * 768 + k;
  EXPECT_EQ(env.simplify(floordiv(flat, 768)), i * s + j);
  EXPECT_EQ(env.simplify(mod(flat, 768)), k);
  EXPECT_EQ(env.simplify(floordiv(i * s + j, s)), i);
  EXPECT_EQ(env.simplify(mod(i * s + j, s)), j);
  EXPECT_EQ(env.simplify(floordiv(flat, s * 768)), i);
  EXPECT_EQ(env.simplify(mod(floordiv(flat, 768), s)), j);
  EXPECT_EQ(env.simplify(mod(flat, s * 768)), j * 768 + k);
  EXPECT_EQ(env.simplify(floordiv(mod(flat, s * 768), 768)), j);
  SymExpr heads = i * s * 768 + j * 768 + h * 64 + d;
  EXPECT_EQ(env.simplify(floordiv(heads, 768)), i * s + j);
  EXPECT_EQ(env.simplify(mod(floordiv(heads, 64), 12)), h);
  EXPECT_EQ(env.simplify(mod(heads, 64)), d);
  EXPECT_EQ(env.simplify(floordiv(mod(heads, 768), 64)), h);
  EXPECT_EQ(env.simplify(mod(heads, 768)), h * 64 + d);
  // heads before positions: [b, 12, s, 64] and back
  SymExpr moved = ((i * 12 + h) * s + j) * 64 + d;
  EXPECT_EQ(env.simplify(floordiv(moved, 12 * 64 * s)), i);
  EXPECT_EQ(env.simplify(mod(floordiv(moved, s * 64), 12)), h);
  EXPECT_EQ(env.simplify(mod(floordiv(moved, 64), s)), j);
  EXPECT_EQ(env.simplify(floordiv(moved, s * 64)), i * 12 + h);
}

TEST_F(ShapeEnvTest, IndicesTakenApartComeTogether) {
  SymExpr p = SymExpr::symbol("p");
  env.set_axis(p, b * s * 768);
  SymExpr x = floordiv(p, s * 768), y = mod(floordiv(p, 768), s), z = mod(p, 768);
  EXPECT_EQ(env.simplify(x * s * 768 + y * 768 + z), p);
  EXPECT_EQ(env.simplify((x * s + y) * 768 + z), p);
  EXPECT_EQ(env.simplify(floordiv(p, 64) * 64 + mod(p, 64)), p);
  EXPECT_EQ(env.prove(sym_lt(floordiv(p, s * 768), b)), true);
  EXPECT_EQ(env.prove(sym_lt(floordiv(p, 768), b * s)), true);
}

TEST_F(ShapeEnvTest, RangesSeeThroughExtents) {
  EXPECT_EQ(env.range(k), (SymRange{0, 767}));
  EXPECT_EQ(env.range(j), (SymRange{0, 511}));
  EXPECT_EQ(env.range(768 * j + k), (SymRange{0, 512 * 768 - 1}));
  EXPECT_EQ(env.prove(sym_lt(i * s + j, b * s)), true);
  EXPECT_EQ(env.prove(sym_lt(i * s * 768 + j * 768 + k, b * s * 768)), true);
  EXPECT_EQ(env.prove(sym_lt(j, s)), true);
  EXPECT_EQ(env.prove(sym_le(s, j)), false);
  EXPECT_EQ(env.prove(sym_lt(j, s - 1)), std::nullopt);
  EXPECT_EQ(env.prove(sym_lt(k, 768)), true);
  EXPECT_EQ(env.prove(sym_lt(k, 767)), std::nullopt);
  EXPECT_EQ(env.prove(sym_lt(i + j, 5)), std::nullopt);
  EXPECT_EQ(env.prove(sym_le(2 * floordiv(s, 2), s)), true);
  EXPECT_EQ(env.prove(sym_lt(s, 2 * floordiv(s, 2))), false);
  EXPECT_EQ(env.prove(sym_le(sym_min(s, b), s)), true);
  EXPECT_EQ(env.prove(sym_le(s, sym_max(s, b))), true);
  EXPECT_EQ(env.prove(sym_le(s, s * b)), true);
  EXPECT_EQ(env.range(SymExpr::symbol("stranger")).lo, -(int64_t{1} << 62));
}

TEST_F(ShapeEnvTest, MinimaAndSelectionsAreDecided) {
  EXPECT_EQ(env.simplify(sym_min(s, 512)), s);
  EXPECT_EQ(env.simplify(sym_max(s, 1)), s);
  EXPECT_EQ(env.simplify(sym_min(sym_min(s, b + s), 600)), s);
  EXPECT_EQ(env.simplify(sym_min(s, b)), sym_min(s, b));
  EXPECT_EQ(env.simplify(sym_select(sym_lt(k, 768), i, j)), i);
  EXPECT_EQ(env.simplify(sym_select(sym_lt(j, 0), j + s, j)), j);
  EXPECT_EQ(env.simplify(sym_and(sym_lt(k, 768), sym_lt(j, 5))), sym_lt(j, 5));
}

TEST_F(ShapeEnvTest, WhetherAnythingIsThere) {
  SymExpr n = env.create_symbol("n"), m = env.create_symbol("m");
  SymExpr one = env.simplify(sym_min(n, 1)); // n may be 0
  EXPECT_EQ(one, sym_min(n, 1));
  EXPECT_EQ(env.simplify(sym_min(n + one, 1)), one);
  EXPECT_EQ(env.simplify(n + one - sym_min(n + one, 1)), n);
  EXPECT_EQ(env.simplify(sym_min(3 * n, 1)), one);
  EXPECT_EQ(env.simplify(sym_min(n + m, 1)), sym_min(m + n, 1));
  EXPECT_EQ(env.simplify(sym_min(n - m, 1)), sym_min(n - m, 1));
}

TEST_F(ShapeEnvTest, Divisors) {
  SymExpr n = env.create_symbol("n", {8, 4096}, 8);
  EXPECT_EQ(env.simplify(mod(n, 8)), SymExpr(0));
  EXPECT_EQ(env.simplify(mod(n + 3, 8)), SymExpr(3));
  EXPECT_EQ(env.simplify(8 * floordiv(n, 8)), n);
  EXPECT_EQ(env.simplify(floordiv(n + 3, 8)), floordiv(n, 8));
  EXPECT_EQ(env.divisor(n * 4 + 16), 16);
  EXPECT_EQ(env.prove(sym_eq(n, 12)), false);
  env.set_divisor(n, 12);
  EXPECT_EQ(env.divisor(n), 24);
}

TEST_F(ShapeEnvTest, AxisOfExtentOneIsZero) {
  SymExpr one = SymExpr::symbol("one");
  env.set_axis(one, 1);
  EXPECT_EQ(env.simplify(one * s + j), j);
}

TEST_F(ShapeEnvTest, FactsInvalidateWhatWasComputed) {
  EXPECT_EQ(env.simplify(sym_min(s, 128)), sym_min(s, 128));
  env.set_range(s, {1, 128});
  EXPECT_EQ(env.simplify(sym_min(s, 128)), s);
  SymExpr late = env.create_symbol("late", {2, 5});
  EXPECT_EQ(env.range(late + s), (SymRange{3, 133}));
}

TEST_F(ShapeEnvTest, EqualitiesBecomeSubstitutions) {
  SymExpr s2 = env.create_symbol("s2", {4, 1000}, 4);
  ASSERT_TRUE(env.require_equal(s, s2, "sum of x and y", at).ok());
  EXPECT_EQ(env.simplify(s2 * 2), s * 2);
  EXPECT_EQ(env.range(s), (SymRange{4, 512}));
  EXPECT_EQ(env.divisor(s), 4);
  ASSERT_EQ(env.guards().size(), 1u);
  EXPECT_EQ(env.guards()[0].condition, sym_eq(s, s2));
  EXPECT_EQ(env.guards()[0].cls, GuardClass::Required);
  ASSERT_TRUE(env.require_equal(s2, s, "again", at).ok());
  EXPECT_EQ(env.guards().size(), 1u);
  EXPECT_EQ(env.str(), "b in [1, ?], s in [4, 512] div 4, s2 in [4, 1000] div 4; require eq(s, s2)");
}

TEST_F(ShapeEnvTest, SubstitutionsAreResolved) {
  SymExpr x = env.create_symbol("x"), y = env.create_symbol("y"), z = env.create_symbol("z");
  ASSERT_TRUE(env.require_equal(z, y + 1, "a", at).ok());
  ASSERT_TRUE(env.require_equal(y, 2 * x, "b", at).ok());
  ASSERT_TRUE(env.require_equal(x, 7, "c", at).ok());
  EXPECT_EQ(env.simplify(z), SymExpr(15));
  EXPECT_EQ(env.substitutions().at(z.symbol_id()), SymExpr(15));
  EXPECT_EQ(env.require_equal(z, 16, "positions", at).error().code, ErrorCode::ShapeMismatch);
}

TEST_F(ShapeEnvTest, BoundsOfSumsAreRemembered) {
  SymExpr past = env.create_symbol("past");
  ASSERT_TRUE(env.require(sym_le(past + s, 1024), GuardClass::Required, "the position table has 1024 rows", at).ok());
  EXPECT_EQ(env.prove(sym_le(past + s, 1024)), true);
  EXPECT_EQ(env.prove(sym_le(past + s, 2000)), true);
  EXPECT_EQ(env.simplify(sym_min(past + s, 1024)), past + s);
  EXPECT_EQ(env.prove(sym_lt(1024, past + s)), false);
}

TEST_F(ShapeEnvTest, ConditionsNarrow) {
  ASSERT_TRUE(env.require(sym_ne(s, 1), GuardClass::Assumed, "not a broadcast", at).ok());
  EXPECT_EQ(env.range(s).lo, 2);
  ASSERT_TRUE(env.require(sym_eq(mod(s, 8), 0), GuardClass::Assumed, "16-byte accesses", at).ok());
  EXPECT_EQ(env.divisor(s), 8);
  ASSERT_TRUE(env.require(sym_lt(s, 100), GuardClass::Assumed, "small", at).ok());
  EXPECT_EQ(env.range(s).hi, 99);
  ASSERT_TRUE(env.require(sym_or(sym_lt(b, 3), sym_lt(s, 3)), GuardClass::Assumed, "either", at).ok());
  EXPECT_EQ(env.prove(sym_or(sym_lt(s, 3), sym_lt(b, 3))), true);
  EXPECT_EQ(env.guards().size(), 4u);
}

TEST_F(ShapeEnvTest, WhatCannotBeIsRefused) {
  Status never = env.require(sym_le(513, s), GuardClass::Required, "rows", at);
  ASSERT_FALSE(never.ok());
  EXPECT_EQ(never.error().code, ErrorCode::ShapeMismatch);
  EXPECT_EQ(never.error().location.node, "Add_1");
  env.set_hint(s, 100);
  Status hinted = env.require(sym_le(s, 64), GuardClass::Required, "rows", at);
  ASSERT_FALSE(hinted.ok());
  EXPECT_NE(hinted.error().message.find("s = 100"), std::string::npos);
  EXPECT_TRUE(env.guards().empty());
}

TEST_F(ShapeEnvTest, Broadcasting) {
  auto str = [&](const SymShape& x, const SymShape& y) {
    auto r = env.broadcast(x, y, at);
    return r.ok() ? tessera::str(*r) : r.error().message;
  };
  EXPECT_EQ(str({b, 1, 768}, {s, 1}), "[b, s, 768]");
  EXPECT_EQ(str({b, s}, {}), "[b, s]");
  EXPECT_TRUE(env.guards().empty());
  EXPECT_EQ(str({2, 3}, {2, 4}), "cannot broadcast: dimensions 3 and 4 differ, and neither is 1");
  EXPECT_EQ(str({0}, {1}), "[0]");
  SymExpr n = env.create_symbol("n");
  EXPECT_EQ(str({n, 768}, {5, 768}), "[5, 768]"); // taken to be equal
  ASSERT_EQ(env.guards().size(), 1u);
  EXPECT_EQ(env.guards()[0].condition, sym_eq(n, 5));
  EXPECT_EQ(env.guards()[0].cls, GuardClass::Assumed);
}

TEST_F(ShapeEnvTest, BroadcastFollowsTheHints) {
  SymExpr one = env.create_symbol("one"), many = env.create_symbol("many");
  env.set_hint(one, 1);
  env.set_hint(many, 7);
  EXPECT_EQ(*env.broadcast(one, many, at), many);
  EXPECT_EQ(env.simplify(one), SymExpr(1));
  SymExpr six = env.create_symbol("six");
  env.set_hint(six, 6);
  EXPECT_FALSE(env.broadcast(six, many, at).ok());
  EXPECT_EQ(env.hint(six * many), 42);
  // A size that has to be 1 is 1 without a hint.
  SymExpr small = env.create_symbol("small", {1, 4});
  EXPECT_EQ(*env.broadcast(small, SymExpr(9), at), SymExpr(9));
  EXPECT_EQ(env.simplify(small), SymExpr(1));
}

TEST_F(ShapeEnvTest, NamesAreUniqueAndCopiesIndependent) {
  EXPECT_EQ(env.create_symbol("s").symbol_name(), "s_1");
  EXPECT_EQ(env.named_symbol("s"), s);
  EXPECT_FALSE(env.find("nobody"));
  ShapeEnv copy = env;
  copy.set_range(s, {1, 2});
  EXPECT_EQ(copy.range(s).hi, 2);
  EXPECT_EQ(env.range(s).hi, 512);
}

// Under random facts, for random values that satisfy them: the value stays, the range holds, the divisor divides, and
// simplifying twice changes nothing.
TEST(ShapeEnvFuzz, SimplifyKeepsTheValue) {
  std::mt19937 rng(fuzz::seed(3));
  int checked = 0;
  for (int round = 0; round < 400; ++round) {
    ShapeEnv env;
    auto upto = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); };
    // b, s: sizes; i < b, j < s*4, k < constant
    SymRange rb{1 + upto(3), 4 + upto(20)}, rs{0, 1 + upto(30)};
    int64_t div = 1 + upto(4), limit = 1 + upto(64);
    SymExpr b = env.create_symbol("b", rb), s = env.create_symbol("s", rs, div);
    SymExpr i = SymExpr::symbol("i"), j = SymExpr::symbol("j"), k = SymExpr::symbol("k");
    env.set_axis(i, b);
    env.set_axis(j, 4 * s);
    env.set_axis(k, limit);
    const std::vector<SymExpr> symbols{b, s, i, j, k};
    for (int n = 0; n < 40; ++n) {
      const fuzz::Tree tree = fuzz::random_tree(rng, symbols.size(), 1 + static_cast<int>(rng() % 4));
      for (int trial = 0; trial < 8; ++trial) {
        std::vector<int64_t> v(5);
        v[0] = rb.lo + upto(rb.hi - rb.lo + 1);
        v[1] = (upto(rs.hi + 1) / div) * div;
        if (v[1] == 0) continue; // the axis j has no points
        v[2] = upto(v[0]);
        v[3] = upto(4 * v[1]);
        v[4] = upto(limit);
        std::unordered_map<uint64_t, int64_t> values;
        for (size_t x = 0; x < symbols.size(); ++x) values[symbols[x].symbol_id()] = v[x];
        auto wrong = [&](const fuzz::Tree& part) {
          auto want = part.eval(v);
          if (!want) return false;
          SymExpr e = part.build(symbols), simple = env.simplify(e);
          auto got = simple.eval(values);
          SymRange r = env.range(e);
          int64_t div_e = env.divisor(e);
          return !got.ok() || *got != *want || *want < r.lo || *want > r.hi ||
                 (div_e == 0 ? *want != 0 : *want % div_e != 0) || env.simplify(simple) != simple;
        };
        if (wrong(tree)) {
          const fuzz::Tree& part = fuzz::smallest_failing(tree, wrong);
          SymExpr e = part.build(symbols), simple = env.simplify(e);
          SymRange r = env.range(e);
          FAIL() << part.str(symbols) << " = " << e.str() << " became " << simple.str() << " (then "
                 << env.simplify(simple).str() << "), range [" << r.lo << ", " << r.hi << "], divisor "
                 << env.divisor(e) << ", value " << *part.eval(v) << " at b, s, i, j, k = " << v[0] << ", " << v[1]
                 << ", " << v[2] << ", " << v[3] << ", " << v[4] << " with " << env.str() << ", k < " << limit;
        }
        checked += tree.eval(v).has_value();
      }
    }
  }
  EXPECT_GT(checked, 20000);
}

} // namespace
} // namespace tessera
