// The text form: what is printed is read back to the same text; errors name line, column and reason.
#include "helpers.h"
#include <random>

namespace tessera::tile::test {
namespace {

constexpr const char* kEverything =
    R"(tile.kernel @all(%x: ptr<f16> invariant align=16 elements=%n, %y: ptr<f32> written elements=1, %z: ptr<i64> written, %n: i64 multiple=8, %f: f64) config(stages: 2, warps: 4) {
  %0 = program_id 0 : i64
  %1 = const 0 : i64
  %2 = const 8 : i64
  %3 = const -inf : f32
  %4 = broadcast(%3) : tile<[8], f32>
  %5 = scratch %n : ptr<f32>
  %6, %7 = for %8 = %1 to %n step %2 num_stages=2 carry(%9 = %4, %10 = %0) {
    %11 = range 8 : tile<[8], i64>
    %12 = add(%11, %8) : tile<[8], i64>
    %13 = lt(%12, %n) : tile<[8], bool>
    %14 = const 1.5 : f16
    %15 = load %x[%12] mask=%13 other=%14 contiguous : tile<[8], f16>
    %16 = cast(%15) : tile<[8], f32>
    %17 = max(%9, %16) : tile<[8], f32>
    prefetch %x[%12]
    store %5[%12] = %17 mask=%13
    yield %17, %8
  }
  %18 = reduce.max(%6) axis=0 : f32
  %19 = scan.sum(%6) axis=0 : tile<[8], f32>
  %20 = range 8 : tile<[8], i64>
  %21, %22 = reduce.argmin(%19, %20) axis=0 last : f32, i64
  %23 = lt(%18, %21) : bool
  %24 = if %23 {
    store %z[%1] = %22
    yield %18
  } else {
    yield %21
  }
  atomic_add %y[%0] = %24
  %25 = expand_dims(%19) axis=1 : tile<[8, 1], f32>
  %26 = broadcast(%25) : tile<[8, 4], f32>
  %27 = const 0 : tile<[4, 4], f32>
  %28 = const 0 : tile<[8, 4], f32>
  %29 = dot(%26, %27, %28) : tile<[8, 4], f32>
  report_index %23, %1, %2 site=7
}
)";

TEST(Text, EverythingRoundTrips) {
  std::string text = kEverything;
  Result<Kernel> k = parse(text);
  ASSERT_TRUE(k.ok()) << k.error().str();
  EXPECT_EQ(print(*k), text);
  EXPECT_TRUE(verify(*k).ok());
}

TEST(Text, ConstantsKeepTheirBits) {
  for (const char* line :
       {"const -0 : f32", "const nan : f32", "const inf : f64", "const 0.1 : f32", "const 0.1 : f64",
        "const 1e-45 : f32", "const 3.4028235e+38 : f32", "const -9223372036854775808 : i64",
        "const 18446744073709551615 : u64", "const true : bool", "const -128 : i8", "const 65504 : f16"}) {
    Kernel k = read(std::string("tile.kernel @c() {\n  %0 = ") + line + "\n}\n");
    EXPECT_NE(print(k).find(line), std::string::npos) << print(k);
  }
}

TEST(Text, CommentsAndLiteralsAreSugar) {
  Kernel k = read("// a copy\ntile.kernel @c(%x: ptr<f32>, %y: ptr<f32> written) { // body\n%v = load %x[3] : "
                  "f32\nstore %y[0] = %v\n}");
  EXPECT_NE(print(k).find("const 3 : i64"), std::string::npos);
}

// ---- errors: the text, then where and what
struct BadText {
  const char* text;
  int line;
  const char* message;
};
class TextErrors : public ::testing::TestWithParam<BadText> {};
TEST_P(TextErrors, NameTheirPlace) {
  Result<Kernel> k = parse(GetParam().text, "bad.tile");
  ASSERT_FALSE(k.ok());
  EXPECT_EQ(k.error().code, ErrorCode::ParseError);
  EXPECT_EQ(k.error().location.file, "bad.tile");
  EXPECT_EQ(k.error().location.line, GetParam().line) << k.error().str();
  EXPECT_NE(k.error().message.find(GetParam().message), std::string::npos) << k.error().str();
}
INSTANTIATE_TEST_SUITE_P(
    All, TextErrors,
    ::testing::Values(
        BadText{"", 1, "expected 'tile.kernel'"}, BadText{"tile.kernel", 1, "expected '@name'"},
        BadText{"tile.kernel @k(%x: f31) { }", 1, "expected an element type, found 'f31'"},
        BadText{"tile.kernel @k(%x: i4) { }", 1, "tiles of i4 do not exist"},
        BadText{"tile.kernel @k(%x: tile<[4], f32>) { }", 1, "a pointer or a scalar"},
        BadText{"tile.kernel @k(%x: i64, %x: i64) { }", 1, "'%x' is defined twice"},
        BadText{"tile.kernel @k(%x: ptr<f32> elements=%n) { }", 1, "'%n' is not defined"},
        BadText{"tile.kernel @k(%x: ptr<f32> elements=0) { }", 1, "expected an integer from 1"},
        BadText{"tile.kernel @k() {\n %a = const 1 : i64\n %a = const 2 : i64\n}", 3, "'%a' is defined twice"},
        BadText{"tile.kernel @k() {\n %a = neg(%b) : i64\n}", 2, "'%b' is not defined here"},
        BadText{"tile.kernel @k() {\n %a = frob(1) : i64\n}", 2, "'frob' is not an operation"},
        BadText{"tile.kernel @k() {\n %a = const 300 : i8\n}", 2, "'300' does not fit i8"},
        BadText{"tile.kernel @k() {\n %a = const x : f32\n}", 2, "expected a number"},
        BadText{"tile.kernel @k() {\n %a = range 0 : tile<[0], i64>\n}", 2, "from 1 to 1048576"},
        BadText{"tile.kernel @k() {\n %a = range 4 : tile<[8], i64>\n}", 2, "range 4 yields 'tile<[4], i64>'"},
        BadText{"tile.kernel @k() {\n %a = const 0 : tile<[1048576, 2], f32>\n}", 2, "at most 1048576 elements"},
        BadText{"tile.kernel @k() {\n %a = program_id 3 : i64\n}", 2, "from 0 to 2"},
        BadText{"tile.kernel @k() {\n %a = num_programs 3 : i64\n}", 2, "from 0 to 2"},
        BadText{"tile.kernel @k() {\n %a = num_programs 0 : i32\n}", 2, "it yields 'i64'"},
        BadText{"tile.kernel @k(%c: ptr<i32> written, %n: i64) {\n for %i = 0 to %n step 1 {\n  grid_barrier %c[0] "
                "rank=%i of=%n\n }\n}",
                3, "may not be inside a region"},
        BadText{"tile.kernel @k(%n: i64) {\n for %i = 0 to %n step 1 num_stages=9 {\n }\n}", 2, "from 1 to 8"},
        BadText{"tile.kernel @k(%n: i64, %f: f32) {\n %a = add(%n, %f) : i64\n}", 2, "operands of add differ"},
        BadText{"tile.kernel @k(%n: i64) {\n %a = add(%n) : i64\n}", 2, "add takes 2 operands, not 1"},
        BadText{"tile.kernel @k(%n: i64) {\n %a = add(%n, %n) : f32\n}", 2, "add here yields 'i64'"},
        BadText{"tile.kernel @k(%n: f16) {\n %a = add(%n, %n) : f16\n}", 2, "needs a cast to f32"},
        BadText{"tile.kernel @k(%n: i64) {\n %a, %b = neg(%n) : i64\n}", 3, "expected ','"},
        BadText{"tile.kernel @k(%n: i64) {\n neg(%n)\n}", 2, "one result expected"},
        BadText{"tile.kernel @k(%n: i64) {\n %a = load %n[0] : i64\n}", 2, "is not a pointer"},
        BadText{"tile.kernel @k(%x: ptr<f32>) {\n %a = load %x[0] : f16\n}", 2, "a load here yields 'f32'"},
        BadText{"tile.kernel @k(%x: ptr<f32>, %f: f32) {\n %a = load %x[%f] : f32\n}", 2,
                "an offset must be i64 or i32"},
        BadText{"tile.kernel @k(%n: i64) {\n prefetch %n[0]\n}", 2, "is not a pointer"},
        BadText{"tile.kernel @k(%x: ptr<f32>) {\n %v = prefetch %x[0] : f32\n}", 2, "prefetch has no result"},
        BadText{"tile.kernel @k(%x: ptr<f32>) {\n store %x[0] = 1\n}", 2, "not marked written"},
        BadText{"tile.kernel @k(%n: i64) {\n %a = for %i = 0 to %n step 1 carry(%c = %n) {\n }\n}", 2,
                "yield of 0 values, expected 1"},
        BadText{
            "tile.kernel @k(%n: i64) {\n for %i = 0 to %n step 1 {\n %a = neg(%i) : i64\n }\n %b = neg(%a) : i64\n}", 5,
            "'%a' is not defined here"},
        BadText{"tile.kernel @k(%n: i64) {\n if %n {\n }\n}", 2, "a condition is a bool scalar"},
        BadText{"tile.kernel @k(%n: i64) {\n yield %n\n}", 2, "yield outside of a region"},
        BadText{"tile.kernel @k(%n: i64) {\n %r = range 4 : tile<[4], i64>\n %a = reduce.sum(%r) axis=1 : i64\n}", 3,
                "axis is out of range"},
        BadText{"tile.kernel @k(%n: i64) {\n %a = reduce.sum(%n) axis=0 : i64\n}", 2, "only a tile can be folded"},
        BadText{"tile.kernel @k(%n: i64) {\n %a = neg(%n) : i64\n", 3, "found the end of the text"},
        BadText{"tile.kernel @k(%n: i64) { } extra", 1, "expected the end of the text"},
        BadText{"tile.kernel @k(%n: i64) {\n $\n}", 2, "expected an operation, found '$'"}));

TEST(Text, DeepNestingIsAnError) {
  std::string text = "tile.kernel @k(%p: bool) {\n";
  for (int i = 0; i < 100000; ++i) text += "if %p {\n";
  Result<Kernel> k = parse(text);
  ASSERT_FALSE(k.ok());
  EXPECT_NE(k.error().message.find("too deeply"), std::string::npos);
}

// Damaged text is read, or refused with a place; what is read verifies and prints to text that is read.
TEST(Text, DamagedTextNeverBreaksTheReader) {
  const std::string good = kEverything;
  ASSERT_TRUE(parse(good).ok());
  std::mt19937 rng(1);
  const std::string alphabet = "%@<>[](){}=,:.-0123456789abefilnrtx \n";
  int read_back = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string text = good;
    for (int edits = 1 + static_cast<int>(rng() % 4); edits > 0; --edits) {
      size_t at = rng() % text.size(), length = 1 + rng() % 12;
      switch (rng() % 4) {
      case 0: text[at] = alphabet[rng() % alphabet.size()]; break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(at, text.substr(rng() % text.size(), length)); break;
      default: text.insert(at, 1, alphabet[rng() % alphabet.size()]); break;
      }
      if (text.empty()) text = " ";
    }
    Result<Kernel> k = parse(text);
    if (!k.ok()) {
      EXPECT_EQ(k.error().code, ErrorCode::ParseError) << text;
      continue;
    }
    ++read_back;
    EXPECT_TRUE(verify(*k).ok()) << text;
    std::string printed = print(*k);
    Result<Kernel> again = parse(printed);
    ASSERT_TRUE(again.ok()) << again.error().str() << printed;
    EXPECT_EQ(print(*again), printed);
  }
  EXPECT_GT(read_back, 50);
}

} // namespace
} // namespace tessera::tile::test
