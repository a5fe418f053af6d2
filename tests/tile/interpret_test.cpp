// The meaning of each operation.
#include "helpers.h"
#include <cmath>

namespace tessera::tile::test {
namespace {

using List = std::vector<double>;

// Body over %x (f32, 8 elements) into %y; %r is range 8, %v the loaded tile.
List tile8(const std::string& body, List x = {3, -1, 4, 1, -5, 9, 2, 6}, List y = List(8, 7)) {
  Outcome r = run(read("tile.kernel @t(%x: ptr<f32>, %y: ptr<f32> written) {\n%r = range 8 : tile<[8], i64>\n%v = load "
                       "%x[%r] : tile<[8], f32>\n" +
                       body + "}"),
                  {std::move(x), std::move(y)});
  EXPECT_EQ(r.error, "");
  return r.arrays[1];
}

TEST(Interpret, ProgramsKnowTheirPlaceInTheGrid) {
  const Kernel k =
      read("tile.kernel @g(%y: ptr<i64> written) {\n%x = program_id 0 : i64\n%p = program_id 1 : i64\n%z = "
           "program_id 2 : i64\n%nx = num_programs 0 : i64\n%ny = num_programs 1 : i64\n%nz = num_programs "
           "2 : i64\n%a = mul(%z, %ny) : i64\n%b = add(%a, %p) : i64\n%c = mul(%b, %nx) : i64\n%n = add(%c, "
           "%x) : i64\n%v = mul(%x, 100) : i64\n%w = mul(%p, 10) : i64\n%s = add(%v, %w) : i64\n%t = "
           "add(%s, %z) : i64\n%u = mul(%t, %nz) : i64\nstore %y[%n] = %u\n}");
  EXPECT_TRUE(uses_grid(k));
  std::vector<int64_t> y(24, -1);
  const Argument argument{std::as_writable_bytes(std::span(y)), {}};
  ASSERT_TRUE(interpret(k, std::span(&argument, 1), {3, 2, 4}).ok());
  for (int64_t z = 0; z < 4; ++z)
    for (int64_t p = 0; p < 2; ++p)
      for (int64_t x = 0; x < 3; ++x)
        EXPECT_EQ(y[static_cast<size_t>((z * 2 + p) * 3 + x)], (100 * x + 10 * p + z) * 4);
  EXPECT_FALSE(interpret(k, std::span(&argument, 1), {1, 70000}).ok());
  EXPECT_TRUE(interpret(k, std::span(&argument, 1), {0, 70}).ok());
}
TEST(Interpret, ScalarsBroadcastToTiles) {
  EXPECT_EQ(tile8("%c = const 10 : f32\n%s = add(%v, %c) : tile<[8], f32>\nstore %y[%r] = %s"),
            (List{13, 9, 14, 11, 5, 19, 12, 16}));
  EXPECT_EQ(tile8("%c = const 10 : f32\nstore %y[%r] = %c"), List(8, 10));
}
TEST(Interpret, LiteralsTakeTheirNeighboursType) {
  EXPECT_EQ(tile8("%s = mul(%v, 2) : tile<[8], f32>\nstore %y[%r] = %s"), (List{6, -2, 8, 2, -10, 18, 4, 12}));
}
TEST(Interpret, MasksLeaveOutOrGiveOther) {
  EXPECT_EQ(tile8("%m = lt(%r, 3) : tile<[8], bool>\nstore %y[%r] = %v mask=%m"), (List{3, -1, 4, 7, 7, 7, 7, 7}));
  EXPECT_EQ(
      tile8("%m = lt(%r, 2) : tile<[8], bool>\n%w = load %x[%r] mask=%m other=-3 : tile<[8], f32>\nstore %y[%r] = %w"),
      (List{3, -1, -3, -3, -3, -3, -3, -3}));
  // A masked access may point anywhere.
  EXPECT_EQ(tile8("%m = lt(%r, 1) : tile<[8], bool>\n%o = mul(%r, 1000) : tile<[8], i64>\n%w = load %x[%o] mask=%m : "
                  "tile<[8], f32>\nstore %y[%r] = %w"),
            (List{3, 0, 0, 0, 0, 0, 0, 0}));
}
TEST(Interpret, Reductions) {
  auto fold = [](const std::string& kind) {
    return tile8("%s = reduce." + kind + "(%v) axis=0 : f32\nstore %y[0] = %s")[0];
  };
  EXPECT_EQ(fold("sum"), 19);
  EXPECT_EQ(fold("max"), 9);
  EXPECT_EQ(fold("min"), -5);
  EXPECT_EQ(fold("prod"), 3.0 * -1 * 4 * 1 * -5 * 9 * 2 * 6);
}
TEST(Interpret, ArgReductionsOrderTiesAndNan) {
  auto at = [](const std::string& kind, List x) {
    return tile8("%m, %i = reduce." + kind + " : f32, i64\n%f = cast(%i) : f32\nstore %y[0] = %f\nstore %y[1] = %m",
                 std::move(x));
  };
  EXPECT_EQ(at("argmax(%v, %r) axis=0", {1, 9, 3, 9, 0, 0, 0, 0})[0], 1);
  EXPECT_EQ(at("argmax(%v, %r) axis=0 last", {1, 9, 3, 9, 0, 0, 0, 0})[0], 3);
  EXPECT_EQ(at("argmin(%v, %r) axis=0", {1, 9, -3, 9, -3, 0, 0, 0})[0], 2);
  EXPECT_EQ(at("argmax(%v, %r) axis=0", {1, NAN, 3, 9, 0, NAN, 0, 0})[0], 1);
  EXPECT_EQ(at("argmin(%v, %r) axis=0 last", {1, NAN, 3, 9, 0, NAN, 0, 0})[0], 5);
}
TEST(Interpret, ScanIsInclusive) {
  EXPECT_EQ(tile8("%s = scan.sum(%v) axis=0 : tile<[8], f32>\nstore %y[%r] = %s"), (List{3, 2, 6, 7, 2, 11, 13, 19}));
  EXPECT_EQ(tile8("%s = scan.max(%v) axis=0 : tile<[8], f32>\nstore %y[%r] = %s"), (List{3, 3, 4, 4, 4, 9, 9, 9}));
}
TEST(Interpret, TwoDimensions) {
  Outcome r = run(read(R"(tile.kernel @t(%x: ptr<f32>, %y: ptr<f32> written) {
    %i = range 2 : tile<[2], i64>
    %j = range 3 : tile<[3], i64>
    %i1 = expand_dims(%i) axis=1 : tile<[2, 1], i64>
    %j1 = expand_dims(%j) axis=0 : tile<[1, 3], i64>
    %ib = broadcast(%i1) : tile<[2, 3], i64>
    %jb = broadcast(%j1) : tile<[2, 3], i64>
    %row = mul(%ib, 3) : tile<[2, 3], i64>
    %o = add(%row, %jb) : tile<[2, 3], i64>
    %v = load %x[%o] : tile<[2, 3], f32>
    %s = reduce.sum(%v) axis=0 : tile<[3], f32>
    store %y[%j] = %s
    %t = reduce.sum(%v) axis=1 : tile<[2], f32>
    %k = add(%i, 3) : tile<[2], i64>
    store %y[%k] = %t
  })"),
                  {{1, 2, 3, 4, 5, 6}, List(5)});
  EXPECT_EQ(r.error, "");
  EXPECT_EQ(r.arrays[1], (List{5, 7, 9, 6, 15}));
}
TEST(Interpret, DotAccumulates) {
  Outcome r = run(read(R"(tile.kernel @t(%x: ptr<f32>, %y: ptr<f32> written) {
    %i = range 4 : tile<[4], i64>
    %z = const 1 : tile<[2, 2], f32>
    %c = const 2 : tile<[2, 3], f32>
    %d = const 5 : tile<[3, 2], f32>
    %p = dot(%c, %d, %z) : tile<[2, 2], f32>
    %s = reduce.sum(%p) axis=0 : tile<[2], f32>
    %j = range 2 : tile<[2], i64>
    store %y[%j] = %s
  })"),
                  {{0}, List(2)});
  EXPECT_EQ(r.arrays[1], (List{62, 62}));
}
TEST(Interpret, DotOf8BitFactorsHasWiderSums) {
  auto text = [](const std::string& a, const std::string& b, const std::string& sum) {
    return "tile.kernel @t(%x: ptr<" + sum + ">, %y: ptr<" + sum + "> written) {\n    %i = range 4 : tile<[4], i64>\n" +
           "    %z = const 1 : tile<[2, 2], " + sum + ">\n    %c = const " + a + "\n    %d = const " + b +
           "\n    %p = dot(%c, %d, %z) : tile<[2, 2], " + sum + ">\n    %s = reduce.sum(%p) axis=0 : tile<[2], " + sum +
           ">\n    %j = range 2 : tile<[2], i64>\n    store %y[%j] = %s\n  }";
  };
  auto first = [&](const std::string& a, const std::string& b, const std::string& sum) {
    return run(read(text(a, b, sum)), {{0}, List(2)}).arrays[1][0];
  };
  EXPECT_EQ(first("-100 : tile<[2, 4], i8>", "255 : tile<[4, 2], u8>", "i32"), 2 * (1 - 4 * 100 * 255));
  EXPECT_EQ(first("200 : tile<[2, 4], u8>", "200 : tile<[4, 2], u8>", "i32"), 2 * (1 + 4 * 200 * 200));
  EXPECT_EQ(first("3.5 : tile<[2, 4], f8e4m3fn>", "1024 : tile<[4, 2], f8e5m2>", "f32"), 2 * (1 + 4 * 3584));
  auto error = [&](const std::string& a, const std::string& b, const std::string& sum) {
    auto kernel = tile::parse(text(a, b, sum));
    return kernel.ok() ? std::string() : kernel.error().str();
  };
  EXPECT_NE(error("1 : tile<[2, 4], i8>", "1 : tile<[4, 2], i8>", "i8").find("dot accumulates in i32"),
            std::string::npos);
  EXPECT_NE(error("1 : tile<[2, 4], i8>", "1 : tile<[4, 2], i16>", "i32").find("dot does not multiply i8 and i16"),
            std::string::npos);
  EXPECT_NE(error("1 : tile<[2, 4], f16>", "1 : tile<[4, 2], bf16>", "f32").find("dot does not multiply f16 and bf16"),
            std::string::npos);
}
TEST(Interpret, LoopsCarryAndMaySwap) {
  Outcome r = run(read(R"(tile.kernel @fib(%y: ptr<i64> written, %n: i64) {
    %a0 = const 0 : i64
    %b0 = const 1 : i64
    %a, %b = for %i = 0 to %n step 1 carry(%p = %a0, %q = %b0) {
      %s = add(%p, %q) : i64
      yield %q, %s
    }
    store %y[0] = %a
  })"),
                  {{0}}, {10});
  EXPECT_EQ(r.arrays[0][0], 55);
}
TEST(Interpret, EmptyLoopsKeepWhatTheyCarry) {
  Outcome r = run(read("tile.kernel @t(%y: ptr<i64> written, %n: i64) {\n%a = const 4 : i64\n%b = for %i = 3 to %n "
                       "step 2 carry(%c = %a) { yield %i }\nstore %y[0] = %b\n}"),
                  {{0}}, {3});
  EXPECT_EQ(r.arrays[0][0], 4);
}
TEST(Interpret, BranchesYield) {
  Kernel k = read(R"(tile.kernel @t(%y: ptr<f32> written, %n: i64) {
    %p = lt(%n, 5) : bool
    %v = if %p {
      %a = const 1 : f32
      yield %a
    } else {
      %b = const 2 : f32
      yield %b
    }
    if %p { store %y[1] = 9 }
    store %y[0] = %v
  })");
  EXPECT_EQ(run(k, {{0, 0}}, {4}).arrays[0], (List{1, 9}));
  EXPECT_EQ(run(k, {{0, 0}}, {5}).arrays[0], (List{2, 0}));
}
TEST(Interpret, ProgramsScratchAndAtomics) {
  Outcome r = run(read(R"(tile.kernel @t(%y: ptr<f32> written, %n: i64) {
    %p = program_id 0 : i64
    %s = scratch %n : ptr<f32>
    %f = cast(%p) : f32
    store %s[2] = %f
    %v = load %s[2] : f32
    atomic_add %y[0] = %v
    store %y[%p] = %v mask=false
  })"),
                  {{100}}, {3}, 5);
  EXPECT_EQ(r.error, "");
  EXPECT_EQ(r.arrays[0][0], 110);
}
TEST(Interpret, AtomicExtremesOfIntegers) {
  Outcome r = run(read(R"(tile.kernel @t(%y: ptr<i32> written) {
    %p = program_id 0 : i64
    %i = cast(%p) : i32
    atomic_max %y[0] = %i
    atomic_min %y[1] = %i
  })"),
                  {{-5, 1}}, {}, 3);
  EXPECT_EQ(r.error, "");
  EXPECT_EQ(r.arrays[0], (List{2, 0}));
}
TEST(Interpret, StorageTypesRound) {
  Outcome r = run(read(R"(tile.kernel @t(%x: ptr<f32>, %y: ptr<f16> written, %z: ptr<bool> written) {
    %v = load %x[0] : f32
    %h = cast(%v) : f16
    store %y[0] = %h
    %b = lt(%v, 3) : bool
    store %z[0] = %b
  })"),
                  {{2.0004}, {0}, {0}});
  EXPECT_EQ(r.arrays[1][0], 2.0);
  EXPECT_EQ(r.arrays[2][0], 1.0);
}
TEST(Interpret, PrefetchMayLieOutsideAndChangesNothing) {
  Outcome r = run(read(R"(tile.kernel @t(%x: ptr<f32>, %y: ptr<f32> written) {
    %r = range 4 : tile<[4], i64>
    prefetch %x[%r]
    prefetch %x[-100]
    %v = load %x[0] : f32
    store %y[0] = %v
  })"),
                  {{7}, {0}});
  EXPECT_EQ(r.error, "");
  EXPECT_EQ(r.arrays[1][0], 7);
}
TEST(Interpret, ReportsTheFirstBadIndexOfTheFirstSite) {
  Kernel k = read("tile.kernel @t(%n: i64) {\n%r = range 4 : tile<[4], i64>\n%b = lt(%n, %r) : tile<[4], "
                  "bool>\n%v = sub(%r, 70000) : tile<[4], i64>\nreport_index %b, 5, 0 site=4\n"
                  "report_index %b, %v, %r site=3\n}");
  IndexReport expected;
  expected.add(3, 2, -69998);
  EXPECT_EQ(run(k, {}, {1}).report, expected);
  EXPECT_FALSE(run(k, {}, {3}).report.any());
}

// ---- errors while running
TEST(InterpretErrors, AccessesAreChecked) {
  Kernel k = read("tile.kernel @t(%x: ptr<f32>, %n: i64) {\n%r = range 4 : tile<[4], i64>\n%o = add(%r, %n) : "
                  "tile<[4], i64>\n%v = load %x[%o] : tile<[4], f32>\n}");
  EXPECT_EQ(run(k, {List(4)}, {0}).error, "");
  EXPECT_NE(run(k, {List(4)}, {1}).error.find("load of 'x' at offset 4 of 4 elements"), std::string::npos);
  EXPECT_NE(run(k, {List(4)}, {-1}).error.find("offset -1"), std::string::npos);
}
TEST(InterpretErrors, ScratchMustBeWrittenFirst) {
  Kernel k = read("tile.kernel @t() {\n%s = scratch 4 : ptr<f32>\n%v = load %s[1] : f32\n}");
  EXPECT_NE(run(k, {}).error.find("before it is written"), std::string::npos);
}
TEST(InterpretErrors, StepsAndMemoryAreBounded) {
  EXPECT_NE(run(read("tile.kernel @t() { for %i = 0 to 5 step 0 { } }"), {}).error.find("step must be positive"),
            std::string::npos);
  EXPECT_NE(run(read("tile.kernel @t() { %s = scratch 9000000000000000000 : ptr<f64>\n}"), {}).error.find("scratch of"),
            std::string::npos);
  EXPECT_EQ(
      run(read("tile.kernel @t() { for %i = 9223372036854775800 to 9223372036854775807 step 100 { } }"), {}).error, "");
}
TEST(InterpretErrors, ArgumentsAreCounted) {
  Kernel k = read("tile.kernel @t(%n: i64) { }");
  EXPECT_NE(interpret(k, {}, 1).error().message.find("expected 1 arguments"), std::string::npos);
}

} // namespace
} // namespace tessera::tile::test
