#include "tests/graph/helpers.h"
#include <cstring>

namespace tessera {
namespace {

// The text, parsed and printed, is the text.
void round_trip(const std::string& text, bool with_data = false) {
  auto g = parse_graph(text);
  ASSERT_TRUE(g.ok()) << g.error().str();
  EXPECT_EQ(print(*g, with_data), text);
  auto status = verify(*g);
  EXPECT_TRUE(status.ok()) << status.error().str();
}

TEST(TextForm, RoundTripsSymbolsViewsAndLocations) {
  round_trip(
      R"(graph @main(%x: f16[b, s, 768], %r: f16[b, s, 768]) -> (%z: f16[b, s, 768], "last" = %t: f16[b, 768, s]) where b in [1, ?], s in [8, 512] div 8 {
  %z = add(%x, %r) : f16[b, s, 768]   // Add_12
  %t = transpose(%z) perm=[0, 2, 1] : f16[b, 768, s]   // "/layer.0/Transpose"
  %0 = reshape(%z) shape=[b, s, 12, 64] : f16[b, s, 12, 64]
  %"/a b/\"c\"" = neg(%0) : f16[b, s, 12, 64]
  %"12" = reduce_max(%0) axes=[2, 3] keepdims=1 : f16[b, s, 1, 1]
  %1 = concat(%t, %t) axis=2 : f16[b, 768, 2*s]
}
)");
}

TEST(TextForm, RoundTripsConstants) {
  round_trip(R"(graph @"my graph"() -> (%a: i64[2]) {
  %a = constant {1, -2} : i64[2]
  %e = constant {} : f32[0, 3]
  %f = constant {0.1, inf, -inf, nan, -0.0, 1e-45, 3.4028235e+38} : f32[7]
  %d = constant {0.1, 1e-320, 1e+300} : f64[3]
  %h = constant {65504.0, 5.960464477539063e-08} : f16[2]
  %b = constant {true, false} : bool[2]
  %u = constant {18446744073709551615} : u64[1]
  %n = constant {-8, 7, 3} : i4[3]
  %s = constant {"a\n\"b\"", "\x01"} : string[2]
  %c = constant {hex "0000803f00000040"} : c64[]
  %p = constant {hex "0100c07f"} : f32[]
  %q = constant {0.5} : f8e4m3fn[]
}
)");
}

TEST(TextForm, HalfPrecisionLiteralsKeepTheirBits) {
  Graph g;
  Tensor t = Tensor::create(DType::F16, {16}).value();
  for (int64_t i = 0; i < 16; ++i)
    t.mutable_as<uint16_t>()[static_cast<size_t>(i)] = static_cast<uint16_t>(i * 4099 + 1);
  g.add_output("t", g.add_constant(t, "t"));
  Graph again = parsed(print(g));
  const Tensor* back = again.constant(again.outputs()[0].value);
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(std::memcmp(back->data(), t.data(), t.bytes()), 0);
}

TEST(TextForm, WeightsAreHashedOrWrittenOut) {
  Graph g;
  std::vector<double> values(100);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) / 7;
  ValueId w = g.add_constant(floats({100}, values), "encoder.norm.weight");
  g.add_output("w", w);
  std::string brief = print(g), full = print(g, true);
  EXPECT_NE(brief.find("%encoder.norm.weight = weight #"), std::string::npos) << brief;
  round_trip(full, true);

  Graph without = parsed(brief);
  EXPECT_EQ(print(without), brief); // the hash stays
  EXPECT_EQ(without.constant(without.outputs()[0].value), nullptr);
  EXPECT_EQ(without.type(without.outputs()[0].value).str(), "f32[100]");
  Graph with = parsed(full);
  const Tensor* t = with.constant(with.outputs()[0].value);
  ASSERT_NE(t, nullptr);
  EXPECT_TRUE(compare(*t, *g.constant(w), 0, 0).same);
}

TEST(TextForm, RoundTripsEveryKindOfAttribute) {
  round_trip(R"(graph @main(%x: f32[4, s], %i: u8[3]) -> () where s in [2, 64] hint 16 {
  %0 = cast(%x) to=f16 : f16[4, s]
  %1 = slice(%x) sizes=[2, s - 1] starts=[1, 1] steps=[1, 1] : f32[2, s - 1]
  %2 = Constant@13() value_floats=[0.5, -inf, nan] : f32[3]
  %3 = Constant@13() value_float=1.0 : f32[]
  %4 = Constant@13() value_strings=["a", "b, c"] : string[2]
  %5 = Constant@13() value_ints=[] : i64[0]
  %6 = Constant@13() value=i32[2]{3, 4} : i32[2]
  %7 = BitShift@13(%i, %i) direction="LEFT" : u8[3]
}
)");
}

TEST(TextForm, SubgraphsPrintInPlaceAndAreBounded) {
  auto body = std::make_shared<Graph>("body");
  ValueId x = body->add_input("x", {DType::F32, {SymExpr(2)}});
  body->add_output("y", must(*body, "neg", {x}));
  EXPECT_EQ(str(Attribute(body)), "graph @body(%x: f32[2]) -> (\"y\" = %0: f32[2]) {\n  %0 = neg(%x) : f32[2]\n}");
}

TEST(TextForm, GuardsComeBackInOrder) {
  Graph g = parsed(R"(graph @main(%x: f32[a, 4], %y: f32[b, 4]) -> (%z: f32[a, 4]) where a in [0, ?], b in [0, ?] {
  %z = add(%x, %y) : f32[a, 4]
})");
  ASSERT_EQ(g.env().guards().size(), 1u);
  std::string text = print(g);
  EXPECT_NE(text.find("assume eq("), std::string::npos) << text;
  round_trip(text);
}

// A dimension may be called anything.
TEST(TextForm, SymbolsWithAnyName) {
  round_trip(
      R"(graph @main(%x: f32["past len", 2*"a\"b\\c\n\xe2\x80\xae\xff" + 1]) -> (%y: f32["past len", 2*"a\"b\\c\n\xe2\x80\xae\xff" + 1]) where "past len" in [1, ?], "a\"b\\c\n\xe2\x80\xae\xff" in [0, 9] {
  %y = exp(%x) : f32["past len", 2*"a\"b\\c\n\xe2\x80\xae\xff" + 1]
}
)");
}

TEST(TextForm, LeftOutOperandsAndResultsAreUnderscores) {
  round_trip(R"(graph @main(%x: f32[4], %hi: f32[]) -> (%y: f32[4]) {
  %y = Clip@13(%x, _, %hi) : f32[4]
}
)");
}

TEST(TextForm, CommentsAndSpacingAreFree) {
  Graph g = parsed("// before\ngraph @g (\n  %x : f32 [ n ] // the input\n) -> ( %y : f32[n] )\n where n in [ 1 , ? "
                   "]\n{ %y = exp( %x ) : f32[n] } // after");
  EXPECT_EQ(print(g), "graph @g(%x: f32[n]) -> (%y: f32[n]) where n in [1, ?] {\n  %y = exp(%x) : f32[n]\n}\n");
}

TEST(TextForm, WrittenTypesAreHeldAgainstInference) {
  auto g = parse_graph("graph @g(%x: f32[n, 4]) -> () where n in [1, ?] {\n  %y = exp(%x) : f32[n, 5]\n}");
  ASSERT_FALSE(g.ok());
  EXPECT_EQ(g.error().code, ErrorCode::ParseError);
  EXPECT_EQ(g.error().location.str() + ": " + g.error().message,
            "<text>:2:18: '%y' is f32[n, 4], but f32[n, 5] is written");
}

} // namespace
} // namespace tessera
