#include "block_harness.h"
#include "nests.h"
#include "tests/base/share.h"
#include <cmath>
#include <limits>

namespace tessera::test {
namespace {

TEST(Lower, Softmax) { expect_same(softmax(), two("b", "s")); }
TEST(Lower, SoftmaxHalf) { expect_same(softmax("f16"), two("b", "s"), {.tolerance = 2e-3}); }
TEST(Lower, SoftmaxBFloat) { expect_same(softmax("bf16"), two("b", "s"), {.tolerance = 1e-2}); }
TEST(Lower, LayerNorm) {
  expect_same(layer_norm("50"), {{{"b", 2}, {"s", 3}}, {{"b", 0}, {"s", 3}}, {{"b", 1}, {"s", 1}}},
              {.tolerance = 1e-4});
}
TEST(Lower, LayerNormWide) { expect_same(layer_norm("768"), {{{"b", 1}, {"s", 2}}}, {.tolerance = 1e-4}); }
TEST(Lower, LayerNormDynamicWidth) {
  std::vector<Sizes> sizes;
  for (int64_t w : {1, 2, 5, 16, 31, 64, 77, 130}) sizes.push_back({{"b", 2}, {"s", 3}, {"w", w}});
  expect_same(layer_norm("w"), sizes, {.tolerance = 1e-3});
}
TEST(Lower, BiasGelu) { expect_same(bias_gelu(), {{{"b", 2}, {"s", 3}}, {{"b", 0}, {"s", 3}}, {{"b", 7}, {"s", 19}}}); }
TEST(Lower, BiasGeluHalf) { expect_same(bias_gelu("f16"), {{{"b", 2}, {"s", 3}}}, {.tolerance = 2e-3}); }
// The nest reads a part of x, which starts elsewhere than y: x may have another pitch.
Problem odd_part(const std::string& row, int64_t pitch, int64_t first, const std::string& t) {
  return problem("x: " + t + "[5, " + std::to_string(pitch) + "]\ny: " + t + "[5, " + row +
                     "]\nbest: i64[5]\nsum: f32[5]",
                 "nest part outer(i0: 5) row(i1: " + row + ") {\n %0 = load x[i0, i1 + " + std::to_string(first) +
                     R"(] : f32
      %1 = reduce.argmax %0 : i64
      %2 = reduce.sum %0 : f32
      %3 = sub %0, %2 : f32
      %4 = mul %3, %3 : f32
      %5 = reduce.sum %4 : f32
      store y[i0, i1] = %4
      store.row best[i0] = %1
      store.row sum[i0] = %5
    })");
}
TEST(Lower, OddRows) {
  Share share;
  for (const char* n : {"683", "2537", "18001"}) {
    SCOPED_TRACE(n);
    for (const auto& [rows, dtype, tolerance] : {std::tuple{"3", "f16", 2e-3}, {"5", "bf16", 1e-2}, {"3", "f32", 1e-4}})
      if (share.takes({n, dtype})) expect_same(masked_softmax_of(rows, n, dtype), {{}}, {.tolerance = tolerance});
    if (share.takes({n, "norm"})) expect_same(layer_norm(n, "f16"), {{{"b", 1}, {"s", 3}}}, {.tolerance = 2e-2});
  }
  std::vector<Sizes> sizes;
  for (int64_t s : {1, 7, 13, 683, 1017, 1018, 4099}) sizes.push_back({{"b", 3}, {"s", s}});
  expect_same(masked_softmax_of("b", "s", "f16"), sizes, {.tolerance = 2e-3});
}
TEST(Lower, OddPartsOfRows) {
  expect_same(odd_part("999", 1001, 1, "f32"), {{}}, {.tolerance = 1e-2});
  expect_same(odd_part("999", 999, 0, "f32"), {{}}, {.tolerance = 1e-2});
  expect_same(odd_part("4099", 4104, 5, "f32"), {{}}, {.tolerance = 1e-2});
  expect_same(odd_part("4099", 4104, 5, "f16"), {{}}, {.tolerance = 1e-1});
  expect_same(odd_part("4099", 4099, 0, "bf16"), {{}}, {.tolerance = 1e-1});
}
// Parts of memory that begin and end anywhere, without reductions.
TEST(Lower, Slices) {
  for (const char* t : {"f16", "i8", "bool"})
    for (int first : {0, 1, 7, 11}) {
      const std::string from = std::to_string(first), type = t, loaded = type == "f16" ? "f32" : type;
      SCOPED_TRACE(type + " from " + from);
      expect_same(problem("x: " + type + "[4011]\ny: " + type + "[4000]",
                          "nest slice outer(i0: 4000) {\n %0 = load x[i0 + " + from + "] : " + loaded +
                              "\n store y[i0] = %0\n}"),
                  {{}});
      expect_same(problem("x: " + type + "[3, 2011]\ng: f16[2011]\ny: f32[3, 2000]",
                          "nest slice outer(i0: 3, i1: 2000) {\n %0 = load x[i0, i1 + " + from + "] : " + loaded +
                              "\n %1 = cast %0 : f32\n %2 = load g[i1 + 3] : f32\n %3 = add %1, %2 : f32\n"
                              " store y[i0, i1] = %3\n}"),
                  {{}});
    }
}
TEST(Lower, ColumnSum) { expect_same(column_sum(), two("n", "c")); }
TEST(Lower, Rope) {
  expect_same(rope(), {{{"b", 2}, {"h", 3}, {"s", 5}}, {{"b", 1}, {"h", 1}, {"s", 1}}, {{"b", 1}, {"h", 0}, {"s", 4}}});
}

TEST(Lower, Embedding) {
  expect_same(embedding(), {{{"b", 2}, {"s", 3}}, {{"b", 0}, {"s", 3}}}, {.given = {{"ids", {3, 0, 29, 7}}}});
  expect_same(embedding("v"), {{{"b", 2}, {"s", 3}, {"v", 12}}, {{"b", 0}, {"s", 3}, {"v", 0}}},
              {.given = {{"ids", {3, 0, 11, 7}}}});
}

// The host's kernel, and those for blocks of threads.
std::vector<ScheduledKernel> all_kernels(const Problem& p) {
  std::vector<ScheduledKernel> kernels = block_kernels(p);
  kernels.push_back(lower(p));
  return kernels;
}

TEST(Lower, BadIndexIsReportedAndReadsNothing) {
  for (const char* rows : {"30", "v"}) {
    Problem p = embedding(rows);
    for (const ScheduledKernel& k : all_kernels(p)) {
      ASSERT_EQ(k.report_sites.size(), 1u);
      EXPECT_EQ(k.report_sites[0].table, "table");
      int64_t v = rows[0] == 'v' ? 0 : 30; // an empty table has no row to fall back to
      Tensor table = Tensor::create(DType::F32, {v, 48}, true).value();
      for (int64_t bad : {int64_t{-1}, int64_t{30}, int64_t{1} << 40}) {
        std::vector<int64_t> ids{v ? int64_t{2} : bad, bad};
        IndexReport report;
        run_kernel(p, k, {{"ids", Tensor::of<int64_t>(DType::I64, {1, 2}, ids)}, {"table", table}},
                   {{"b", 1}, {"s", 2}, {"v", v}}, &report);
        ASSERT_TRUE(report.any());
        EXPECT_EQ(report.site(), 0);
        EXPECT_EQ(report.value(), bad);
      }
    }
  }
}

TEST(Lower, GatherAlongTheTile) {
  expect_same(problem("x: f32[n, 20]\nids: i32[m]\ny: f32[n, m]", R"(
    nest take outer(i0: n, i1: m) {
      %0 = load ids[i1] : i32
      %1 = cast %0 : i64
      %2 = const 20 : i64
      %3 = check_bounds %1, %2 : i64
      %4 = load x[i0, %3] : f32
      store y[i0, i1] = %4
    })"),
              two("n", "m"), {.given = {{"ids", {3, 0, 19, 7, 7}}}});
}

// The check belongs to one branch of a concat: where the predicate is false no index is bad.
TEST(Lower, ChecksUnderAPredicate) {
  Problem p = problem("x: f32[10]\nids: i64[n]\ny: f32[n]", R"(
    nest guarded outer(i0: n) {
      %0 = load ids[i0] : i64
      %1 = const 10 : i64
      %2 = check_bounds %0, %1 : i64
      %3 = index lt(i0, 3) : bool
      %4 = load x[%2] if %3 : f32
      store y[i0] = %4
    })");
  Tensor x = Tensor::create(DType::F32, {10}, true).value();
  std::vector<int64_t> ids{0, 1, 2, 99, -7}, wrong{0, 1, 99, 0, 0};
  for (const ScheduledKernel& k : all_kernels(p)) {
    if (!conditions_hold(p.graph, k, {{"n", 5}})) continue;
    IndexReport report;
    run_kernel(p, k, {{"x", x}, {"ids", Tensor::of<int64_t>(DType::I64, {5}, ids)}}, {{"n", 5}}, &report);
    EXPECT_FALSE(report.any());
    run_kernel(p, k, {{"x", x}, {"ids", Tensor::of<int64_t>(DType::I64, {5}, wrong)}}, {{"n", 5}}, &report);
    EXPECT_TRUE(report.any());
  }
}

TEST(Lower, ArgMaxTiesNanAndInfinities) {
  for (const char* kind : {"argmax", "argmin", "argmax.last", "argmin.last"})
    for (const char* t : {"f32", "i32", "u8", "bool", "f64"}) {
      std::string dtype = t, op = kind;
      Problem p = problem("x: " + dtype + "[b, s]\ny: i64[b]\nm: " + dtype + "[b]",
                          "nest pick outer(i0: b) row(i1: s) { %0 = load x[i0, i1] : " + dtype + "\n %1 = reduce." +
                              op + " %0 : i64\n store.row y[i0] = %1 }");
      std::vector<Sizes> sizes;
      for (const Sizes& s : two("b", "s"))
        if (s.at("s") > 0) sizes.push_back(s);
      expect_same(p, sizes, {.tolerance = 0, .integer_limit = 3, .specials = true});
    }
}

// Positions beyond the row are not masked: rows of which nothing is better than what a masked element counts as, rows
// that begin and end within an access, and tiles of which a part lies beyond all rows.
TEST(Lower, ArgMaxOfRowsWithoutAnythingBetter) {
  for (const std::string kind : {"argmax", "argmin", "argmax.last", "argmin.last"})
    for (const int64_t row : {3, 301, 2045, 4093, 9001})
      for (const std::string dtype : {"f16", "f32"}) {
        const std::string n = std::to_string(row);
        SCOPED_TRACE(kind + " of " + n + " " + dtype);
        Problem p = problem("x: " + dtype + "[5, " + n + "]\ny: i64[5]",
                            "nest pick outer(i0: 5) row(i1: " + n + ") { %0 = load x[i0, i1] : f32\n %1 = reduce." +
                                kind + " %0 : i64\n store.row y[i0] = %1 }");
        const bool last = kind.ends_with("last");
        const double worst = (kind.starts_with("argmax") ? -1 : 1) * std::numeric_limits<double>::infinity();
        Tensor x = Tensor::create(dtype == "f16" ? DType::F16 : DType::F32, {5, row}, true).value();
        for (int64_t i = 0; i < x.count(); ++i) x.set_f64(i, worst);
        x.set_f64(row + row / 2, std::nan(""));
        x.set_f64(2 * row + row - 1, std::nan(""));
        x.set_f64(3 * row + row / 3, 0);
        x.set_f64(3 * row + row / 2, -0.0);
        const int64_t none = last ? row - 1 : 0;
        const std::vector<int64_t> expected = {none, row / 2, row - 1, last ? row / 2 : row / 3, none};
        for (const ScheduledKernel& k : block_kernels(p)) {
          const Tensor y = run_kernel(p, k, {{"x", x}}, {}).at("y");
          for (int64_t i = 0; i < 5; ++i)
            EXPECT_EQ(y.get_i64(i), expected[static_cast<size_t>(i)]) << "row " << i << ", " << k.why;
        }
      }
}

TEST(Lower, ArgMaxOverTwoAxesCountsRowMajor) {
  expect_same(problem("x: f32[n, c, h, w]\ny: i64[n, h]", R"(
    nest pick2 outer(i0: n, i1: h) row(i2: c, i3: w) {
      %0 = load x[i0, i2, i1, i3] : f32
      %1 = reduce.argmax %0 : i64
      store.row y[i0, i1] = %1
    })"),
              {{{"n", 2}, {"c", 3}, {"h", 4}, {"w", 5}}, {{"n", 1}, {"c", 3}, {"h", 1}, {"w", 40}}},
              {.tolerance = 0, .specials = true});
}

TEST(Lower, IntegerBoolAndWideReductions) {
  for (auto [kind, dtype] : {std::pair{"sum", "i64"},
                             {"sum", "i32"},
                             {"prod", "i32"},
                             {"max", "i8"},
                             {"min", "u8"},
                             {"sum", "f64"},
                             {"prod", "f32"},
                             {"any", "bool"},
                             {"all", "bool"},
                             {"max", "f64"},
                             {"min", "i64"},
                             {"sum", "u8"}}) {
    std::string d = dtype, k = kind;
    expect_same(problem("x: " + d + "[b, s]\ny: " + d + "[b]",
                        "nest fold outer(i0: b) row(i1: s) { %0 = load x[i0, i1] : " + d + "\n %1 = reduce." + k +
                            " %0 : " + d + "\n store.row y[i0] = %1 }"),
                two("b", "s"), {.tolerance = 1e-5, .integer_limit = 2});
  }
}

TEST(Lower, MaxKeepsNan) {
  expect_same(problem("x: f32[b, s]\ny: f32[b]", R"(
    nest nanmax outer(i0: b) row(i1: s) {
      %0 = load x[i0, i1] : f32
      %1 = reduce.max %0 : f32
      store.row y[i0] = %1
    })"),
              two("b", "s"), {.specials = true});
}

TEST(Lower, Transposes) {
  expect_same(problem("x: f32[n, m]\ny: f32[m, n]",
                      "nest t outer(i0: m, i1: n) { %0 = load x[i1, i0] : f32\n store y[i0, i1] = %0 }"),
              two("n", "m"));
  expect_same(problem("x: f16[b, s, 4, 24]\ny: f16[b, 4, s, 24]", R"(
    nest heads outer(i0: b, i1: 4, i2: s, i3: 24) {
      %0 = load x[i0, i2, i1, i3] : f32
      store y[i0, i1, i2, i3] = %0
    })"),
              two("b", "s"));
}

// Operands that go through shared memory as they lie in memory: rows of one side or of both begin at any alignment.
TEST(Lower, TransposesWithOddSides) {
  auto add = [](const std::string& m, const std::string& n, const std::string& d, const std::string& of) {
    return problem("x: " + d + "[" + m + ", " + n + "]\nz: " + d + "[" + n + ", " + m + "]\ny: " + d + "[" + m + ", " +
                       n + "]",
                   "nest add outer(i0: " + m + ", i1: " + n + ") { %0 = load x[i0, i1] : " + of +
                       "\n %1 = load z[i1, i0] : " + of + "\n %2 = add %0, %1 : " + of + "\n store y[i0, i1] = %2 }");
  };
  const std::pair<const char*, const char*> shapes[] = {{"47", "331"}, {"95", "168"},  {"131", "77"}, {"16", "1029"},
                                                        {"64", "65"},  {"200", "131"}, {"48", "67"},  {"17", "16"}};
  Share share;
  for (const char* dtype : {"f32", "f16", "i8", "f64"}) {
    const std::string d = dtype, of = d == "f16" ? "f32" : d;
    const RunOptions options{.tolerance = d == "f16" ? 2e-3 : 1e-6};
    for (auto [m, n] : shapes)
      if (share.takes({d, m})) expect_same(add(m, n, d, of), {{}}, options);
    expect_same(add("m", "n", d, of), {{{"m", 70}, {"n", 67}}, {{"m", 3}, {"n", 150}}, {{"m", 130}, {"n", 1}}},
                options);
  }
  // Several matrices, two operands across, one along the columns alone, a type of another width.
  expect_same(problem("z: f16[3, 83, 67]\nw: f32[3, 83, 67]\nb: f32[83]\ny: f16[3, 67, 83]", R"(
    nest many outer(i0: 3, i1: 67, i2: 83) {
      %0 = load z[i0, i2, i1] : f32
      %1 = load w[i0, i2, i1] : f32
      %2 = load b[i2] : f32
      %3 = add %0, %1 : f32
      %4 = add %3, %2 : f32
      store y[i0, i1, i2] = %4
    })"),
              {{}}, {.tolerance = 2e-3});
  // A matrix that is added to its own transpose, and one whose columns are a part of longer ones.
  expect_same(problem("x: f32[b, 131, 131]\ny: f32[b, 131, 131]", R"(
    nest symmetric outer(i0: b, i1: 131, i2: 131) {
      %0 = load x[i0, i1, i2] : f32
      %1 = load x[i0, i2, i1] : f32
      %2 = add %0, %1 : f32
      store y[i0, i1, i2] = %2
    })"),
              {{{"b", 1}}, {{"b", 3}}});
  expect_same(problem("x: f32[45, 101]\nz: f32[101, 90]\ny: f32[45, 101]", R"(
    nest part outer(i0: 45, i1: 101) {
      %0 = load x[i0, i1] : f32
      %2 = load z[i1, i0 + 7] : f32
      %3 = add %0, %2 : f32
      store y[i0, i1] = %3
    })"),
              {{}});
}

// Masks and tables that all heads, or all queries, share.
TEST(Lower, OperandsWithoutSomeOuterAxes) {
  std::vector<Sizes> sizes{
      {{"b", 2}, {"h", 3}, {"s", 5}}, {{"b", 1}, {"h", 9}, {"s", 3}}, {{"b", 3}, {"h", 5}, {"s", 8}}};
  const std::pair<const char*, const char*> masks[] = {{"b, 1, s, 48", "i0, 0, i2, i3"},
                                                       {"1, h, 1, 48", "0, i1, 0, i3"},
                                                       {"b, h, 1, 48", "i0, i1, 0, i3"},
                                                       {"1, 1, s, 48", "0, 0, i2, i3"}};
  for (auto [extents, index] : masks)
    for (const char* dtype : {"f32", "f16", "bool"}) {
      std::string d = dtype, of = d == "bool" ? "f64" : "f32", loaded = d == "bool" ? d : of;
      expect_same(problem("x: " + of + "[b, h, s, 48]\nm: " + d + "[" + extents + "]\nt: " + d + "[" + extents +
                              "]\ny: " + of + "[b, h, s, 48]",
                          "nest shared outer(i0: b, i1: h, i2: s, i3: 48) { %0 = load x[i0, i1, i2, i3] : " + of +
                              "\n %1 = load m[" + index + "] : " + loaded + "\n %2 = cast %1 : " + of +
                              "\n %3 = mul %0, %2 : " + of + "\n %4 = load t[" + index + "] : " + loaded +
                              "\n %5 = cast %4 : " + of + "\n %6 = add %3, %5 : " + of +
                              "\n store y[i0, i1, i2, i3] = %6 }"),
                  sizes, {.tolerance = 2e-3});
    }
}

// The axis that is reduced is not the contiguous one of what is read, or of some of it.
TEST(Lower, RowsThatAreTransposed) {
  auto sizes = two("b", "s");
  for (const char* dtype : {"f32", "f64", "f16", "bf16"}) {
    std::string d = dtype, of = d == "f64" ? "f64" : "f32";
    auto operand = [&](const char* from) {
      return problem("x: " + d + "[s, b]\nr: " + d + "[b, s]\ny: " + d + "[b, s]",
                     "nest softmax outer(i0: b) row(i1: s) { %0 = load x[i1, i0] : " + of +
                         "\n %9 = load r[i0, i1] : " + of + "\n %8 = add %0, %9 : " + of + "\n %1 = reduce.max " +
                         from + " : " + of + "\n %2 = sub " + from + ", %1 : " + of + "\n %3 = exp %2 : " + of +
                         "\n %4 = reduce.sum %3 : " + of + "\n %5 = div %3, %4 : " + of + "\n store y[i0, i1] = %5 }");
    };
    RunOptions options;
    options.tolerance = d == "bf16" ? 1e-2 : d == "f16" ? 2e-3 : 1e-5;
    for (const char* from : {"%0", "%8"}) expect_same(operand(from), sizes, options);
  }
  expect_same(problem("x: f32[c, s, b]\ny: i64[b, c]",
                      "nest top outer(i0: b, i1: c) row(i2: s) { %0 = load x[i1, i2, i0] : f32\n"
                      " %1 = reduce.argmax %0 : i64\n store.row y[i0, i1] = %1 }"),
              {{{"b", 40}, {"c", 2}, {"s", 7}}, {{"b", 1}, {"c", 3}, {"s", 130}}, {{"b", 3}, {"c", 1}, {"s", 1}}});
}

TEST(Lower, SpatialMeans) {
  const char* body = R"(
      %1 = reduce.sum %0 : f32
      store.row y[i0, i1] = %1
    })";
  std::vector<Sizes> sizes{{{"n", 2}, {"c", 3}, {"h", 7}, {"w", 7}},
                           {{"n", 1}, {"c", 70}, {"h", 2}, {"w", 3}},
                           {{"n", 1}, {"c", 2}, {"h", 0}, {"w", 5}}};
  expect_same(
      problem("x: f32[n, c, h, w]\ny: f32[n, c]",
              std::string("nest nchw outer(i0: n, i1: c) row(i2: h, i3: w) { %0 = load x[i0, i1, i2, i3] : f32") +
                  body),
      sizes);
  expect_same(
      problem("x: f32[n, h, w, c]\ny: f32[n, c]",
              std::string("nest nhwc outer(i0: n, i1: c) row(i2: h, i3: w) { %0 = load x[i0, i2, i3, i1] : f32") +
                  body),
      sizes);
}

TEST(Lower, ChannelSoftmaxOverAnOuterDimension) {
  expect_same(problem("x: f32[n, c, p]\ny: f32[n, c, p]", R"(
    nest channels outer(i0: n, i1: p) row(i2: c) {
      %0 = load x[i0, i2, i1] : f32
      %1 = reduce.max %0 : f32
      %2 = sub %0, %1 : f32
      %3 = exp %2 : f32
      %4 = reduce.sum %3 : f32
      %5 = div %3, %4 : f32
      store y[i0, i2, i1] = %5
    })"),
              {{{"n", 2}, {"c", 5}, {"p", 33}}, {{"n", 1}, {"c", 1}, {"p", 1}}, {{"n", 3}, {"c", 0}, {"p", 4}}});
}

TEST(Lower, WholeTensorAndScalars) {
  expect_same(problem("x: f32[b, s]\ny: f32[]", R"(
    nest total outer() row(i0: b, i1: s) {
      %0 = load x[i0, i1] : f32
      %1 = reduce.sum %0 : f32
      store.row y[] = %1
    })"),
              two("b", "s"), {.tolerance = 1e-4});
  expect_same(
      problem("x: f32[]\ny: f32[]", "nest one outer() { %0 = load x[] : f32\n %1 = exp %0 : f32\n store y[] = %1 }"),
      {{}});
  expect_same(problem("x: f32[1, 1]\ny: f32[1]", "nest fold1 outer(i0: 1) row(i1: 1) { %0 = load x[i0, i1] : f32\n %1 "
                                                 "= reduce.sum %0 : f32\n store.row y[i0] = %1 }"),
              {{}});
}

TEST(Lower, ReshapesBecomeAxes) {
  expect_same(problem("x: f32[b, s, 12]\ny: f32[b, 3, s, 4]", R"(
    nest split outer(i0: b, i1: s, i2: 12) {
      %0 = load x[i0, i1, i2] : f32
      store y[i0, floordiv(i2, 4), i1, mod(i2, 4)] = %0
    })"),
              two("b", "s"));
  expect_same(problem("x: f32[n]\ny: f32[n]", R"(
    nest wrap outer(i0: n) {
      %0 = load x[mod(i0 * 7 + 3, n)] : f32
      store y[i0] = %0
    })"),
              {{{"n", 1}}, {{"n", 5}}, {{"n", 100}}, {{"n", 0}}});
}

TEST(Lower, IndexValuesAndMasks) {
  expect_same(problem("x: f32[b, s, s]\ny: f32[b, s, s]", R"(
    nest causal outer(i0: b, i1: s) row(i2: s) {
      %0 = load x[i0, i1, i2] : f32
      %1 = index le(i2, i1) : bool
      %2 = const -inf : f32
      %3 = select %1, %0, %2 : f32
      %4 = reduce.max %3 : f32
      %5 = sub %3, %4 : f32
      %6 = exp %5 : f32
      %7 = reduce.sum %6 : f32
      %8 = div %6, %7 : f32
      store y[i0, i1, i2] = %8
    })"),
              two("b", "s"));
  expect_same(problem("y: i64[n, m]\nz: f32[n, m]", R"(
    nest iota outer(i0: n, i1: m) {
      %0 = index max(i0 * 3 - i1, 2) + floordiv(i1 - 5, 3) + mod(i1 - 9, 4) : i64
      %1 = index select(lt(i1, i0), i1, 7) : i64
      %2 = cast %1 : f32
      %3 = index eq(i0, i1) : bool
      %4 = cast %3 : f32
      %5 = add %2, %4 : f32
      store y[i0, i1] = %0
      store z[i0, i1] = %5
    })"),
              two("n", "m"));
}

TEST(Lower, ValuesThatDoNotVaryAlongTheRow) {
  expect_same(problem("x: f32[b]\nw: f32[s]\ny: f32[b, s]\nz: f32[b]", R"(
    nest uniform outer(i0: b) row(i1: s) {
      %0 = load x[i0] : f32
      %1 = reduce.sum %0 : f32
      %2 = load w[i1] : f32
      %3 = mul %1, %2 : f32
      %4 = reduce.max %3 : f32
      store y[i0, i1] = %1
      store.row z[i0] = %4
    })"),
              two("b", "s"));
}

TEST(Lower, RowStoresWithoutReduction) {
  expect_same(problem("x: f32[b]\ny: f32[b, s]\nz: f32[b]", R"(
    nest rows outer(i0: b) row(i1: s) {
      %0 = load x[i0] : f32
      %1 = exp %0 : f32
      store y[i0, i1] = %0
      store.row z[i0] = %1
    })"),
              two("b", "s"));
}

TEST(Lower, ChainsOfReductionsAndSeveralOutputs) {
  expect_same(problem("x: f32[b, s]\nl: f32[b]\ny: f32[b, s]\nk: i64[b]", R"(
    nest logsoftmax outer(i0: b) row(i1: s) {
      %0 = load x[i0, i1] : f32
      %1 = reduce.max %0 : f32
      %2 = sub %0, %1 : f32
      %3 = exp %2 : f32
      %4 = reduce.sum %3 : f32
      %5 = log %4 : f32
      %6 = add %5, %1 : f32
      %7 = sub %0, %6 : f32
      %8 = reduce.argmax %7 : i64
      store.row l[i0] = %6
      store y[i0, i1] = %7
      store.row k[i0] = %8
    })"),
              {{{"b", 3}, {"s", 17}}, {{"b", 1}, {"s", 1}}, {{"b", 2}, {"s", 130}}}, {.tolerance = 1e-4});
}

TEST(Lower, ByteAndWideElements) {
  for (const char* t : {"i8", "u8", "i16", "u16", "i64", "u32", "f64", "bool"}) {
    std::string d = t, op = d == "bool" ? "xor" : "add";
    expect_same(problem("x: " + d + "[n, m]\nw: " + d + "[m]\ny: " + d + "[n, m]",
                        "nest e outer(i0: n, i1: m) { %0 = load x[i0, i1] : " + d + "\n %1 = load w[i1] : " + d +
                            "\n %2 = " + op + " %0, %1 : " + d + "\n store y[i0, i1] = %2 }"),
                two("n", "m"), {.tolerance = 0});
  }
}

// One reciprocal a row replaces divisions only where one unit in the last place stays small.
TEST(Lower, QuotientsThatAreRoundedAreDividedExactly) {
  auto text = [](const std::string& last, const std::string& dtype = "f32") {
    ScheduledKernel k = lower(problem("x: f32[b, s]\ny: " + dtype + "[b, s]", R"(
    nest quotient outer(i0: b) row(i1: s) {
      %0 = load x[i0, i1] : f32
      %1 = reduce.max %0 : f32
      %2 = div %0, %1 : f32
      %3 = add %2, %0 : f32
      %4 = )" + last + R"(
      store y[i0, i1] = %4
    })"));
    return tile::print(k.kernel);
  };
  EXPECT_NE(text("exp %3 : f32").find("reciprocal("), std::string::npos);
  EXPECT_NE(text("neg %3 : f32", "f16").find("reciprocal("), std::string::npos);
  EXPECT_EQ(text("round %3 : f32").find("reciprocal("), std::string::npos);
  EXPECT_EQ(text("cast %3 : u8", "u8").find("reciprocal("), std::string::npos);
  EXPECT_EQ(text("lt %3, %0 : bool", "bool").find("reciprocal("), std::string::npos);
}

// The box of a library's epilogue: origins and counts are symbols, buffers are whole.
TEST(Lower, BoxOfALargerBuffer) {
  Problem p = problem("x: f32[n, m]\ny: f32[n, m]\nq: i64[r0, c0, rn, cn]", R"(
    nest box outer(i0: rn, i1: cn) {
      %0 = load x[r0 + i0, c0 + i1] : f32
      %1 = exp %0 : f32
      store y[r0 + i0, c0 + i1] = %1
    })");
  ScheduledKernel k = lower(p);
  Tensor x = Tensor::create(DType::F32, {6, 50}, true).value();
  auto y = run_kernel(p, k, {{"x", x}}, {{"n", 6}, {"m", 50}, {"r0", 2}, {"c0", 5}, {"rn", 3}, {"cn", 40}}).at("y");
  for (int64_t i = 0; i < y.count(); ++i) {
    int64_t r = i / 50, c = i % 50;
    bool inside = r >= 2 && r < 5 && c >= 5 && c < 45;
    EXPECT_EQ(y.get_f64(i) == 1.0, inside) << i;
  }
}

} // namespace
} // namespace tessera::test
