#include "tests/graph/helpers.h"
#include <random>

namespace tessera {
namespace {

struct Bad {
  const char* text;
  int line, column;
  const char* message;
};

TEST(ParseErrors, SayWhereAndWhat) {
  const Bad cases[] = {
      {"", 1, 1, "expected 'graph', found the end of the text"},
      {"grap @g", 1, 1, "expected 'graph', found 'grap'"},
      {"graph g", 1, 7, "expected '@', found 'g'"},
      {"graph @g(", 1, 10, "expected '%', found the end of the text"},
      {"graph @g(%x f32[1])", 1, 13, "expected ':', found 'f32'"},
      {"graph @g(%x: f31[1])", 1, 14, "'f31' is not an element type"},
      {"graph @g(%x: f32[1)", 1, 19, "expected ',' or ']', found ')'"},
      {"graph @g(%x: f32[-1]) -> () {}", 1, 18, "a dimension cannot be negative"},
      {"graph @g(%x: f32[n]) -> () {}", 1, 18, "symbol 'n' is not declared"},
      {"graph @g(%x: f32[n +]) -> () where n in [0, ?] {}", 1, 18, "in 'n +': "},
      {"graph @g(%x: f32[1], %x: f32[1]) -> () {}", 1, 22, "'%x' is defined twice"},
      {"graph @g() -> (%y: f32[1]) {}", 1, 16, "output '%y' is not defined"},
      {"graph @g(%x: f32[1]) -> (%x: f32[2]) {}", 1, 30, "output '%x' is f32[1], but f32[2] is written"},
      {"graph @g() -> () where n in [5, 2] {}", 1, 24, "the range of 'n' is empty"},
      {"graph @g() -> () where n in [1, 2] div 0 {}", 1, 24, "the divisor of 'n' must be positive"},
      {"graph @g() -> () where n in [1, 2], n in [1, 2] {}", 1, 37, "symbol 'n' is declared twice"},
      {"graph @g() -> () where n [1, 2] {}", 1, 26, "expected 'in' and a range after 'n'"},
      {"graph @g() -> () where n in [1, 99999999999999999999] {}", 1, 33, "does not fit 64 bits"},
      {"graph @g() -> () {\n  %y = foo() : f32[1]\n}", 2, 8, "there is no operator 'foo'"},
      {"graph @g() -> () {\n  %y = exp(%x) : f32[1]\n}", 2, 12, "'%x' is not defined"},
      {"graph @g(%x: f32[1]) -> () {\n  %y = exp(%x : f32[1]\n}", 2, 15, "expected ',' or ')', found ':'"},
      {"graph @g(%x: f32[1]) -> () {\n  %y = exp(%x) q=1 : f32[1]\n}", 2, 16, "'exp' has no attribute 'q'"},
      {"graph @g(%x: f32[1]) -> () {\n  %y = transpose(%x) perm=[0] perm=[0] : f32[1]\n}", 2, 31,
       "attribute 'perm' is given twice"},
      {"graph @g(%x: f32[1]) -> () {\n  %y = transpose(%x) perm=0 : f32[1]\n}", 2, 27, "expected '[', found '0'"},
      {"graph @g(%x: f32[1]) -> () {\n  %y = transpose(%x) perm=[0 : f32[1]\n}", 2, 30,
       "expected ',' or ']', found ':'"},
      {"graph @g(%x: f32[1]) -> () {\n  %y = exp(%x)\n}", 3, 1, "expected an attribute or ':' and the result's type"},
      {"graph @g(%x: f32[1]) -> () {\n  %x = exp(%x) : f32[1]\n}", 2, 3, "'%x' is defined twice"},
      {"graph @g(%x: f32[1]) -> () {\n", 2, 1, "expected a node or '}', found the end of the text"},
      {"graph @g() -> () {} x", 1, 21, "expected the end of the text after the graph, found 'x'"},
      {"graph @g() -> () {\n  %y = constant {1, 2} : i64[3]\n}", 2, 17, "expected 3 numbers for i64[3], found 2"},
      {"graph @g() -> () {\n  %y = constant {1.5} : i64[1]\n}", 2, 18, "'1.5' is not of type i64"},
      {"graph @g() -> () {\n  %y = constant {300} : u8[1]\n}", 2, 18, "'300' is not of type u8"},
      {"graph @g() -> () {\n  %y = constant {x} : f32[1]\n}", 2, 18, "'x' is not a number"},
      {"graph @g() -> () {\n  %y = constant {\"a\"} : f32[1]\n}", 2, 17, "expected 1 numbers for f32[1], found 0"},
      {"graph @g() -> () {\n  %y = constant {hex \"00\"} : f32[1]\n}", 2, 17,
       "expected 8 hexadecimal digits for f32[1], found 2"},
      {"graph @g() -> () {\n  %y = constant {hex \"0000zz00\"} : f32[1]\n}", 2, 17, "not a hexadecimal digit"},
      {"graph @g() -> () {\n  %y = weight : f32[9999999999, 9999999999]\n}", 2, 17, "the constant is too large"},
      {"graph @g() -> () {\n  %y = weight : string[40]\n}", 2, 17, "a tensor of strings needs its data"},
      {"graph @g() -> () where n in [1, 2] {\n  %y = weight : f32[n]\n}", 2, 21,
       "a constant's dimensions must be numbers"},
      {"graph @\"g", 1, 8, "the string is not closed"},
      {"graph @\"\\q\"() -> () {}", 1, 11, "unknown escape in a string"},
  };
  for (const Bad& c : cases) {
    auto g = parse_graph(c.text);
    ASSERT_FALSE(g.ok()) << c.text;
    EXPECT_EQ(g.error().code, ErrorCode::ParseError) << c.text;
    EXPECT_EQ(g.error().location.line, c.line) << c.text << "\n" << g.error().str();
    EXPECT_EQ(g.error().location.column, c.column) << c.text << "\n" << g.error().str();
    EXPECT_NE(g.error().message.find(c.message), std::string::npos) << c.text << "\n" << g.error().str();
  }
}

// An error of inference keeps its code and gets the operator's position.
TEST(ParseErrors, InferenceErrorsHaveThePositionOfTheOperator) {
  struct Case {
    const char* node;
    ErrorCode code;
    const char* message;
  };
  const Case cases[] = {
      {"%y = add(%x, %h) : f32[2, 3]", ErrorCode::TypeMismatch,
       "operand 'b' of 'add' must be the dtype of the first operand (f32), not f16"},
      {"%y = exp(%i) : i64[2]", ErrorCode::TypeMismatch, "must be a floating-point type, not i64"},
      {"%y = eq(%t, %t) : bool[2]", ErrorCode::UnsupportedType, "not string"},
      {"%y = add(%x) : f32[2, 3]", ErrorCode::MalformedModel, "'add' takes 2 operands, not 1"},
      {"%y = add(%x, _) : f32[2, 3]", ErrorCode::MalformedModel, "'add' takes 2 operands, not 1"},
      {"%y = add(_, %x) : f32[2, 3]", ErrorCode::MalformedModel, "operand 'a' of 'add' is missing"},
      {"%y, %z = exp(%x) : f32[2, 3], f32[2, 3]", ErrorCode::MalformedModel, "'exp' yields 1 result, not 2"},
      {"%y = transpose(%x) : f32[3, 2]", ErrorCode::BadAttribute, "attribute 'perm' (ints) of 'transpose' is missing"},
      {"%y = reduce_sum(%x) axes=[2] keepdims=0 : f32[2]", ErrorCode::BadAttribute, "2"},
      {"%y = add(%x, %w) : f32[2, 3]", ErrorCode::ShapeMismatch, ""},
      {"%y = ReduceSum@13(%x, %i) : f32[2, 3]", ErrorCode::MissingValues, "is known to a call only"},
      {"%y = iota() shape=[4000000000, 4000000000] : i64[4000000000, 4000000000]", ErrorCode::SizeOverflow,
       "larger than any memory"},
  };
  for (const Case& c : cases) {
    std::string text = "graph @g(%x: f32[2, 3], %h: f16[2, 3], %i: i64[2], %w: f32[4], %t: string[2]) -> () {\n    " +
                       std::string(c.node) + "   // N7\n}";
    auto g = parse_graph(text, "a.graph");
    ASSERT_FALSE(g.ok()) << c.node;
    const Diagnostic& d = g.error();
    EXPECT_EQ(d.code, c.code) << c.node << "\n" << d.str();
    EXPECT_NE(d.message.find(c.message), std::string::npos) << c.node << "\n" << d.str();
    EXPECT_EQ(d.location.file, "a.graph");
    EXPECT_EQ(d.location.line, 2);
    EXPECT_EQ(d.location.column, 5 + static_cast<int>(std::string_view(c.node).find("= ")) + 2) << d.str();
    EXPECT_EQ(d.location.node, "N7");
  }
}

TEST(ParseErrors, NestingIsBounded) {
  std::string parens = "graph @g(%x: f32[" + std::string(100000, '(') + "1" + std::string(100000, ')') + "]) -> () {}";
  EXPECT_FALSE(parse_graph(parens).ok());
  std::string longer = "graph @g(%x: f32[1";
  for (int i = 0; i < 100000; ++i) longer += " + 1";
  EXPECT_FALSE(parse_graph(longer + "]) -> () {}").ok());
}

// Random damage to good texts: parsing ends with a graph or a diagnostic that has a position, and what parses prints
// to something that parses to the same text.
TEST(ParseErrors, RandomDamageNeverCrashes) {
  const std::string seeds[] = {
      R"(graph @main(%x: f16[b, s, 768], %r: f16[b, s, 768]) -> (%z: f16[b, s, 768], "last" = %t: f16[b, 768, s]) where b in [1, ?], s in [8, 512] div 8 hint 64, assume le(2, b) "why" {
  %z = add(%x, %r) : f16[b, s, 768]   // Add_12
  %t = transpose(%z) perm=[0, 2, 1] : f16[b, 768, s]
  %0 = reshape(%z) shape=[b, s, 12, 64] : f16[b, s, 12, 64]
  %"12" = reduce_max(%0) axes=[2, 3] keepdims=1 : f16[b, s, 1, 1]
  %1 = concat(%t, %t) axis=2 : f16[b, 768, 2*s]
})",
      R"(graph @g(%x: f32[4, s], %i: i64[3], %u: u8[floordiv(s + 7, 8)]) -> () where s in [2, 64] {
  %0 = cast(%x) to=f16 : f16[4, s]
  %1 = slice(%x) sizes=[2, s - 1] starts=[1, 1] steps=[1, 1] : f32[2, s - 1]
  %2 = Constant@13() value_floats=[0.5, -inf, nan] : f32[3]
  %3 = Constant@13() value=i32[2]{3, 4} : i32[2]
  %a = constant {1, -2} : i64[2]
  %s = constant {"a\n\"b\"", "\x01"} : string[2]
  %p = constant {hex "0100c07f"} : f32[]
  %w = weight #0123456789abcdef : f32[768]
  %4 = gather(%x, %i) axis=0 : f32[3, s]
  %5 = Clip@13(%x, _, %p) : f32[4, s]
})"};
  for (const std::string& seed : seeds) ASSERT_TRUE(parse_graph(seed).ok()) << parse_graph(seed).error().str();
  static constexpr char kChars[] = "%@(){}[]:,=\"\\/?#_-+*. \n0123456789abfhinsxz";
  std::mt19937 random(20240817);
  auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  int parsed_count = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string text = seeds[pick(2)];
    for (size_t edits = 1 + pick(4); edits > 0 && !text.empty(); --edits) {
      size_t at = pick(text.size());
      switch (pick(5)) {
      case 0: text.erase(at, 1 + pick(6)); break;
      case 1: text.insert(at, 1, kChars[pick(sizeof kChars - 1)]); break;
      case 2: text[at] = kChars[pick(sizeof kChars - 1)]; break;
      case 3: text.insert(at, text.substr(pick(text.size()), pick(30))); break;
      default: text.resize(at); break;
      }
    }
    auto g = parse_graph(text);
    if (!g.ok()) {
      EXPECT_GT(g.error().location.line, 0) << text;
      continue;
    }
    ++parsed_count;
    std::string printed = print(*g);
    auto again = parse_graph(printed);
    ASSERT_TRUE(again.ok()) << text << "\n" << printed << again.error().str();
    EXPECT_EQ(print(*again), printed) << text;
  }
  EXPECT_GT(parsed_count, 50);
}

} // namespace
} // namespace tessera
