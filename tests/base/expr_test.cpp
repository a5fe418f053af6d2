#include "expr_fuzz.h"
#include "symbols/env.h"
#include "symbols/node.h"
#include <gtest/gtest.h>
#include <set>
#include <thread>

namespace tessera {
namespace {

struct Symbols : testing::Test {
  SymExpr b = SymExpr::symbol("b"), s = SymExpr::symbol("s"), t = SymExpr::symbol("t");
};
using SymExprTest = Symbols;

TEST_F(SymExprTest, EqualPolynomialsAreOneObject) {
  EXPECT_EQ((b * s) * 768, SymExpr(768) * s * b);
  EXPECT_EQ((b + s) * (b - s), b * b - s * s);
  EXPECT_EQ(s + s, 2 * s);
  EXPECT_EQ(s - s, SymExpr(0));
  EXPECT_EQ(s * 0, SymExpr(0));
  EXPECT_NE(SymExpr::symbol("s"), s);
}

TEST_F(SymExprTest, Prints) {
  EXPECT_EQ((s * t + 2 * s + 1).str(), "s*t + 2*s + 1");
  EXPECT_EQ((1 - s).str(), "-s + 1");
  EXPECT_EQ((768 * b * s - 5 * t).str(), "768*b*s - 5*t");
  EXPECT_EQ(floordiv(s + 7, 8).str(), "floordiv(s + 7, 8)");
  EXPECT_EQ(sym_le(s, 512).str(), "le(s, 512)");
  EXPECT_EQ(sym_lt(512, s).str(), "lt(512, s)");
  EXPECT_EQ(str(SymShape{b, s, 768}), "[b, s, 768]");
  EXPECT_EQ((SymExpr::symbol("batch size") * 2).str(), "2*\"batch size\"");
  EXPECT_EQ(SymExpr::symbol("min").str(), "\"min\"");
}

TEST_F(SymExprTest, Division) {
  EXPECT_EQ(floordiv(6 * s + 4, 2), 3 * s + 2);
  EXPECT_EQ(floordiv(b * s * 768, s * 768), b);
  EXPECT_EQ(floordiv(s * s + 2 * s + 1, s + 1), s + 1);
  EXPECT_EQ(floordiv(2 * s + 1, 4), floordiv(s, 2));
  EXPECT_EQ(floordiv(s - 3, 2), floordiv(s + 1, 2) - 2);
  EXPECT_EQ(floordiv(floordiv(s, 3), 4), floordiv(s, 12));
  EXPECT_EQ(floordiv(s, -2), floordiv(-s, 2));
  EXPECT_EQ(floordiv(-7, 2), SymExpr(-4));
  EXPECT_EQ(mod(-7, 2), SymExpr(1));
  EXPECT_EQ(mod(7, -2), SymExpr(-1));
  EXPECT_EQ(mod(8 * s + 3, 8), SymExpr(3));
  EXPECT_EQ(mod(4 * s + 6, 8), 4 * mod(s + 1, 2) + 2);
  EXPECT_EQ(mod(mod(s, 64), 8), mod(s, 8));
  EXPECT_EQ(mod(s, s), SymExpr(0));
  EXPECT_EQ(floordiv(mod(s, 768), 64), mod(floordiv(s, 64), 12));
  EXPECT_EQ(ceildiv(s, 8), floordiv(s + 7, 8));
  EXPECT_EQ(ceildiv(17, 8), SymExpr(3));
}

TEST_F(SymExprTest, ComparisonsAndLogic) {
  EXPECT_EQ(sym_eq(2 * s, 2 * t), sym_eq(t, s));
  EXPECT_EQ(sym_eq(2 * s, 5), SymExpr(0));
  EXPECT_EQ(sym_lt(s, s + 1), SymExpr(1));
  EXPECT_EQ(sym_lt(2 * s, 5), sym_lt(s, 3));
  EXPECT_EQ(sym_le(2 * s, 5), sym_le(s, 2));
  EXPECT_EQ(sym_not(sym_lt(s, t)), sym_le(t, s));
  EXPECT_EQ(sym_and(sym_lt(s, t), sym_le(t, s)), SymExpr(0));
  EXPECT_EQ(sym_or(sym_lt(s, t), 1), SymExpr(1));
  EXPECT_EQ(sym_min(s + 3, s + 5), s + 3);
  EXPECT_EQ(sym_max(sym_max(s, t), s), sym_max(t, s));
  EXPECT_EQ(sym_select(sym_not(sym_and(s, t)), 4, 5), sym_select(sym_and(s, t), 5, 4));
  EXPECT_EQ(sym_select(sym_eq(s, t), 1, 0), sym_eq(s, t));
}

TEST_F(SymExprTest, Queries) {
  SymExpr e = 2 * s * t + 3 * b + floordiv(s, 2);
  EXPECT_EQ(e.symbols(), (std::vector{b, s, t}));
  EXPECT_TRUE(e.contains(t));
  EXPECT_FALSE((e - 2 * s * t).contains(t));
  auto linear = e.linear_in(t);
  ASSERT_TRUE(linear);
  EXPECT_EQ(linear->first, 2 * s);
  EXPECT_EQ(linear->second, 3 * b + floordiv(s, 2));
  EXPECT_FALSE(e.linear_in(s));       // in a division
  EXPECT_FALSE((s * s).linear_in(s)); // squared
  EXPECT_EQ((12 * s + 8).known_divisor(), 4);
  EXPECT_EQ((12 * s * (t + t)).known_divisor(), 24);
  EXPECT_EQ(SymExpr(0).known_divisor(), 0);
  EXPECT_EQ(e.substitute({{s.symbol_id(), 4}, {t.symbol_id(), b}}), 11 * b + 2);
  EXPECT_EQ(contiguous_strides({b, s, 768}), (std::vector<SymExpr>{768 * s, 768, 1}));
}

TEST_F(SymExprTest, EvaluationReportsWhatCannotBe) {
  EXPECT_EQ(*(b * s + 1).eval({{b.symbol_id(), 3}, {s.symbol_id(), 4}}), 13);
  EXPECT_EQ((b * s).eval({{b.symbol_id(), 3}}).error().code, ErrorCode::GuardFailed);
  EXPECT_NE((b * s).eval({{b.symbol_id(), 3}}).error().message.find("'s'"), std::string::npos);
  EXPECT_EQ((b * s).eval({{b.symbol_id(), INT64_MAX}, {s.symbol_id(), 2}}).error().code, ErrorCode::SizeOverflow);
  EXPECT_EQ(*(b * s).eval({{b.symbol_id(), INT64_MAX}, {s.symbol_id(), 0}}), 0);
  EXPECT_EQ(floordiv(b, s).eval({{b.symbol_id(), 3}, {s.symbol_id(), 0}}).error().code, ErrorCode::ShapeMismatch);
  // The branch that is not taken is not computed.
  EXPECT_EQ(*sym_select(sym_eq(s, 0), 0, floordiv(b, s)).eval({{b.symbol_id(), 3}, {s.symbol_id(), 0}}), 0);
}

TEST_F(SymExprTest, OverflowIsKeptAndReported) {
  SymExpr huge = SymExpr(INT64_MAX) * SymExpr(INT64_MAX);
  EXPECT_FALSE(huge.is_const());
  EXPECT_EQ(huge.eval({}).error().code, ErrorCode::SizeOverflow);
  SymExpr e = s * INT64_MAX + s;
  EXPECT_EQ(*e.eval({{s.symbol_id(), 0}}), 0);
  EXPECT_EQ(e.eval({{s.symbol_id(), 2}}).error().code, ErrorCode::SizeOverflow);
  EXPECT_FALSE((huge * huge + s * huge - huge).is_const());
  EXPECT_EQ(-SymExpr(INT64_MIN) + SymExpr(INT64_MIN), -SymExpr(INT64_MIN) + SymExpr(INT64_MIN));
  EXPECT_EQ(floordiv(INT64_MIN, -1).eval({}).error().code, ErrorCode::SizeOverflow);
}

TEST_F(SymExprTest, GrowthIsBounded) {
  SymExpr e = s;
  for (int i = 0; i < 100000; ++i) e = floordiv(e + t, 3 + mod(e, 2)); // nests ever deeper
  EXPECT_EQ(e.eval({{s.symbol_id(), 1}, {t.symbol_id(), 1}}).error().code, ErrorCode::GuardFailed);
  SymExpr p = s + t + b + 1;
  for (int i = 0; i < 20; ++i) p = p * (p + 1); // would have 4^(2^20) terms
  EXPECT_FALSE(p.is_const());
}

TEST_F(SymExprTest, ParserRefusesWhatIsNoExpression) {
  auto lookup = [&](std::string_view name) -> Result<SymExpr> {
    if (name == "s") return s;
    return Diagnostic(ErrorCode::ParseError, "unknown size '" + std::string(name) + "'");
  };
  for (const char* text : {"", "s +", "(s", "s)", "floordiv(s)", "min(s, 2, 3)", "q", "99999999999999999999", "s $ 2",
                           "\"s", "min", "2 s", "scaled(s)", "scaled(s, t)", "scaled(s, inf)", "scaled(s, 0.7, 1)"}) {
    auto r = parse_sym(text, lookup);
    EXPECT_FALSE(r.ok()) << text;
    if (!r.ok()) {
      EXPECT_EQ(r.error().code, ErrorCode::ParseError);
    }
  }
  EXPECT_FALSE(parse_sym(std::string(100000, '('), lookup).ok());
  EXPECT_FALSE(parse_sym(std::string(100000, '-') + "s", lookup).ok());
  EXPECT_EQ(*parse_sym(" 2*( s+1 ) - -3 ", lookup), 2 * s + 5);
  EXPECT_EQ(*parse_sym("-9223372036854775808", lookup), SymExpr(INT64_MIN));
}

// A size times a number of f64 is what PyTorch makes of scale_factor: 0.7 * 90 is 62.99999999999999, and 0.7 * 80 is 56.
TEST_F(SymExprTest, ScaledIsTheFloorOfTheRoundedProduct) {
  EXPECT_EQ(sym_scaled(90, 0.7), SymExpr(62));
  EXPECT_EQ(sym_scaled(80, 0.7), SymExpr(56));
  EXPECT_EQ(sym_scaled(s, 1), s);
  EXPECT_EQ(sym_scaled(s, 0.7).str(), "scaled(s, 0.7)");
  EXPECT_EQ(sym_scaled(s, 0.7), sym_scaled(s, 0.7));
  EXPECT_NE(sym_scaled(s, 0.7), sym_scaled(s, std::nextafter(0.7, 1)));
  EXPECT_EQ(sym_scaled(s + 1, 1.3).substitute({{s.symbol_id(), 9}}), SymExpr(13));
  for (const double factor : {0.7, 1.3, 1.0 / 49, 2.0000001, -0.7})
    for (int64_t n = 0; n < 3000; ++n)
      ASSERT_EQ(*sym_scaled(s, factor).eval({{s.symbol_id(), n}}),
                static_cast<int64_t>(std::floor(static_cast<double>(n) * factor)));
  EXPECT_EQ(sym_scaled(s, 1e10).eval({{s.symbol_id(), INT64_MAX}}).error().code, ErrorCode::SizeOverflow);
  ShapeEnv env;
  SymExpr n = env.create_symbol("n", {10, 90});
  EXPECT_EQ(env.range(sym_scaled(n, 0.7)), (SymRange{7, 62}));
  EXPECT_EQ(env.range(sym_scaled(n, -0.7)), (SymRange{-63, -7}));
}

TEST_F(SymExprTest, ThreadsAgree) {
  std::vector<std::vector<SymExpr>> made(4);
  std::vector<std::thread> threads;
  for (auto& out : made)
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) out.push_back(floordiv(s * (i % 50) + t, 7 + i % 3) + i);
    });
  for (auto& thread : threads) thread.join();
  for (const auto& out : made) EXPECT_EQ(out, made[0]);
}

// Canonicalization keeps the value, and printing and parsing come back to the same object.
TEST_F(SymExprTest, FuzzValueAndText) {
  std::mt19937 rng(fuzz::seed(7));
  const std::vector<SymExpr> symbols{b, s, t};
  auto lookup = [&](std::string_view name) -> Result<SymExpr> {
    for (const SymExpr& x : symbols)
      if (x.symbol_name() == name) return x;
    return Diagnostic(ErrorCode::ParseError, "unknown");
  };
  int compared = 0;
  for (int round = 0; round < 20000; ++round) {
    const fuzz::Tree tree = fuzz::random_tree(rng, symbols.size(), 1 + static_cast<int>(rng() % 4));
    std::vector<int64_t> values;
    for (size_t i = 0; i < symbols.size(); ++i) values.push_back(static_cast<int64_t>(rng() % 41) - 10);
    auto differs = [&](const fuzz::Tree& part) {
      auto want = part.eval(values);
      if (!want) return false;
      auto got = part.build(symbols).eval(
          {{b.symbol_id(), values[0]}, {s.symbol_id(), values[1]}, {t.symbol_id(), values[2]}});
      return !got.ok() || *got != *want;
    };
    if (differs(tree)) {
      const fuzz::Tree& part = fuzz::smallest_failing(tree, differs);
      FAIL() << part.str(symbols) << " became " << part.build(symbols).str() << " at b, s, t = " << values[0] << ", "
             << values[1] << ", " << values[2];
    }
    compared += tree.eval(values).has_value();
    SymExpr e = tree.build(symbols);
    auto again = parse_sym(e.str(), lookup);
    ASSERT_TRUE(again.ok()) << e.str() << ": " << again.error().str();
    ASSERT_EQ(*again, e) << again->str();
    EXPECT_EQ(SymExpr::compare(e, e), 0);
  }
  EXPECT_GT(compared, 10000);
}

TEST_F(SymExprTest, FuzzOrderIsTotal) {
  std::mt19937 rng(11);
  const std::vector<SymExpr> symbols{b, s, t};
  std::vector<SymExpr> all;
  for (int i = 0; i < 60; ++i) all.push_back(fuzz::random_tree(rng, 3, 3).build(symbols));
  for (const SymExpr& x : all)
    for (const SymExpr& y : all) {
      EXPECT_EQ(SymExpr::compare(x, y), -SymExpr::compare(y, x));
      EXPECT_EQ(SymExpr::compare(x, y) == 0, x == y);
      for (const SymExpr& z : all)
        if (x < y && y < z) {
          EXPECT_TRUE(x < z);
        }
    }
}

TEST_F(SymExprTest, NodesLiveAsLongAsExpressions) {
  const size_t before = sym::interned();
  {
    const SymExpr x = floordiv((b + s) * 7000 + 5, t);
    EXPECT_GT(sym::interned(), before);
    const SymExpr part = x.args()[0], copy = x;
    EXPECT_EQ(floordiv((b + s) * 7000 + 5, t), copy);
    SymExpr moved = SymExpr::symbol("moved");
    moved = std::move(moved) + part;
    moved = moved.args()[0]; // what it alone owned goes
  }
  EXPECT_EQ(sym::interned(), before);
}

TEST_F(SymExprTest, ThreadsMakeAndDropEqualExpressions) {
  const size_t before = sym::interned();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([this] {
      for (int64_t i = 0; i < 20000; ++i) {
        const SymExpr x = mod(b * (2000 + i % 3) + s, 5000 + i % 2);
        if (x.args()[1].const_value() != 5000 + i % 2 || x.args()[0] != b * (2000 + i % 3) + s)
          ADD_FAILURE() << x.str();
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(sym::interned(), before);
}

} // namespace
} // namespace tessera
