// Which numbers index values may be: what texts are expected to yield, and that on random arithmetic no claim is false.
#include "codegen/layout/bounds.h"
#include "tests/tile/helpers.h"
#include <algorithm>
#include <array>
#include <random>

namespace tessera::layout {
namespace {

// "[0, 127]" of each store's offset in order; "any" of an i64 of which nothing is known.
std::vector<std::string> offsets(std::string_view text) {
  tile::Kernel k = tile::test::read(text);
  std::vector<Bounds> bounds = integer_bounds(k);
  std::vector<std::string> r;
  for (tile::OpId id = 0; id < k.op_count(); ++id) {
    if (k.op(id).kind != tile::OpKind::Store) continue;
    Bounds b = bounds[static_cast<size_t>(k.op(id).operands[1])];
    r.push_back(b == Bounds() ? "any" : "[" + std::to_string(b.least) + ", " + std::to_string(b.most) + "]");
  }
  return r;
}
using Texts = std::vector<std::string>;

// One store of 0 at the offset that `body` names %o, a scalar.
std::string at(const std::string& body, const std::string& config = "") {
  return "tile.kernel @k(%y: ptr<f32> written, %n: i64, %m: i64 multiple=8) config(warps: 1" + config +
         ") {\n  %p = program_id 0 : i64\n" + body + "\n  %z = const 0 : f32\n  store %y[%o] = %z\n}";
}

TEST(Bounds, ProgramsAreAsManyAsTheKernelSays) {
  EXPECT_EQ(offsets(at("%o = mul(%p, 2048) : i64", ", programs: 100")), Texts{"[0, 202752]"});
  EXPECT_EQ(offsets(at("%o = mul(%p, 4) : i64")), Texts{"[0, 8589934584]"});
  EXPECT_EQ(offsets(at("%o = add(%p, 0) : i64", ", programs: 0")), Texts{"[0, 0]"});
}

TEST(Bounds, SizesMayBeAnythingButAreNotNegativeWhereTheyAreMultiples) {
  EXPECT_EQ(offsets(at("%o = add(%p, %n) : i64", ", programs: 7")), Texts{"any"});
  EXPECT_EQ(offsets(at("%o = mod(%p, %m) : i64", ", programs: 7")), Texts{"[0, 6]"});
  EXPECT_EQ(offsets(at("%o = div(%p, %m) : i64", ", programs: 7")), Texts{"[0, 6]"});
  EXPECT_EQ(offsets(at("%o = mod(%p, %n) : i64", ", programs: 7")), Texts{"any"}); // the sign is the divisor's
  EXPECT_EQ(offsets(at("%o = min(%n, 7) : i64")), Texts{"[-9223372036854775808, 7]"});
}

TEST(Bounds, QuotientsRemaindersAndDifferences) {
  EXPECT_EQ(offsets(at("%q = div(%p, 12) : i64\n%r = mod(%p, 12) : i64\n%s = mul(%r, 5) : i64\n%o = sub(%q, %s) : i64",
                       ", programs: 120")),
            Texts{"[-55, 9]"});
}

TEST(Bounds, WhatADivisionLeaves) {
  const std::string left =
      "%a = mul(%p, 4093) : i64\n%q = div(%a, 8) : i64\n%b = mul(%q, 8) : i64\n%o = sub(%a, %b) : i64";
  EXPECT_EQ(offsets(at(left, ", programs: 120")), Texts{"[0, 7]"});
  EXPECT_EQ(offsets(at("%q = div(%p, 8) : i64\n%b = mul(%q, 4) : i64\n%o = sub(%p, %b) : i64", ", programs: 120")),
            Texts{"[-56, 119]"});
}

TEST(Bounds, LoopsRunBelowTheirEndAndWhatTheyCarryMayBeAnything) {
  EXPECT_EQ(offsets(R"(
tile.kernel @k(%y: ptr<f32> written) config(warps: 1, programs: 4) {
  %p = program_id 0 : i64
  %end = const 1000 : i64
  %z = const 0 : f32
  %c = for %i = %p to %end step 64 carry(%j = %p) {
    %o = mul(%i, 3) : i64
    store %y[%o] = %z
    store %y[%j] = %z
    %k = add(%j, 1) : i64
    yield %k
  }
})"),
            (Texts{"[0, 2997]", "any"}));
}

TEST(Bounds, WhatMayOverflowMayBeAnything) {
  EXPECT_EQ(offsets(at("%a = mul(%p, 4611686018427387904) : i64\n%o = add(%a, 0) : i64", ", programs: 9")),
            Texts{"any"});
}

// Values of random arithmetic on what has bounds, by hand.
TEST(Bounds, RandomArithmeticStaysWithinThem) {
  std::mt19937 random(7);
  auto below = [&](int n) { return static_cast<int64_t>(random() % static_cast<unsigned>(n)); };
  const char* names[] = {"add", "sub", "mul", "div", "mod", "min", "max"};
  for (int round = 0; round < 300; ++round) {
    std::string body;
    std::vector<std::string> values{"%p"};
    std::vector<std::array<int64_t, 3>> steps; // operator, and operands: below 100 a value, else a constant
    int64_t programs = 1 + below(8);
    for (int i = 0; i < 4; ++i) { // so few that nothing overflows
      std::array<int64_t, 3> s{below(7), below(static_cast<int>(values.size())), 0};
      s[2] = below(2) ? below(static_cast<int>(values.size())) : 100 + below(9);
      if (s[0] == 3 || s[0] == 4) s[2] = 101 + below(9);
      std::string v = "%v" + std::to_string(i);
      body += "  " + v + " = " + names[s[0]] + "(" + values[static_cast<size_t>(s[1])] + ", " +
              (s[2] < 100 ? values[static_cast<size_t>(s[2])] : std::to_string(s[2] - 100)) + ") : i64\n";
      values.push_back(v);
      steps.push_back(s);
    }
    tile::Kernel k = tile::test::read(
        at(body + "  %o = add(" + values.back() + ", 0) : i64", ", programs: " + std::to_string(programs)));
    std::vector<Bounds> bounds = integer_bounds(k);
    Bounds last;
    for (tile::OpId id = 0; id < k.op_count(); ++id)
      if (k.op(id).kind == tile::OpKind::Store) last = bounds[static_cast<size_t>(k.op(id).operands[1])];
    for (int64_t p = 0; p < programs; ++p) {
      std::vector<int64_t> is{p};
      for (const auto& [op, a, b] : steps) {
        int64_t x = is[static_cast<size_t>(a)], y = b < 100 ? is[static_cast<size_t>(b)] : b - 100;
        int64_t rest = op == 4 ? (x % y + y) % y : 0;
        is.push_back(op == 0   ? x + y
                     : op == 1 ? x - y
                     : op == 2 ? x * y
                     : op == 3 ? x / y
                     : op == 4 ? rest
                     : op == 5 ? std::min(x, y)
                               : std::max(x, y));
      }
      EXPECT_GE(is.back(), last.least) << body;
      EXPECT_LE(is.back(), last.most) << body;
    }
  }
}

} // namespace
} // namespace tessera::layout
