// Nests that several tests use.
#pragma once
#include "harness.h"

namespace tessera::test {

// Along i1 for each i0, of what is loaded `from`.
inline Problem softmax_nest(const std::string& declarations, const std::string& rows, const std::string& row,
                            const std::string& from, const std::string& to = "y[i0, i1]") {
  return problem(declarations,
                 "nest softmax outer(i0: " + rows + ") row(i1: " + row + ") { %0 = load " + from + R"( : f32
      %1 = reduce.max %0 : f32
      %2 = sub %0, %1 : f32
      %3 = exp %2 : f32
      %4 = reduce.sum %3 : f32
      %5 = div %3, %4 : f32
      store )" + to + " = %5 }");
}
// `at`: where the row's elements are in x, whose rows have `width`.
inline Problem softmax_at(const std::string& rows, const std::string& row, const std::string& t,
                          const std::string& width, const std::string& at) {
  return softmax_nest("x: " + t + "[" + rows + ", " + width + "]\ny: " + t + "[" + rows + ", " + row + "]", rows, row,
                      "x[i0, " + at + "]");
}
inline Problem softmax_of(const std::string& rows, const std::string& row, const std::string& t = "f32") {
  return softmax_at(rows, row, t, row, "i1");
}
inline Problem softmax(const char* dtype = "f32") { return softmax_of("b", "s", dtype); }
// The softmax of the elements that the mask is true for; the rest counts as -30000.
inline Problem masked_softmax_of(const std::string& rows, const std::string& row, const std::string& t) {
  const std::string shape = "[" + rows + ", " + row + "]\n";
  return problem("x: " + t + shape + "m: bool" + shape + "y: " + t + shape,
                 "nest masked outer(i0: " + rows + ") row(i1: " + row + R"() {
      %0 = load x[i0, i1] : f32
      %1 = load m[i0, i1] : bool
      %2 = const -30000 : f32
      %3 = select %1, %0, %2 : f32
      %4 = reduce.max %3 : f32
      %5 = sub %3, %4 : f32
      %6 = exp %5 : f32
      %7 = reduce.sum %6 : f32
      %8 = div %6, %7 : f32
      store y[i0, i1] = %8
    })");
}
// z = x + r; y = (z - mean) * rsqrt(var + eps) * g + b, means as sums times a constant of the width.
inline Problem layer_norm(const char* width = "768", const char* dtype = "f32", const char* batch = "b",
                          const char* length = "s") {
  const std::string w = width, t = dtype, b = batch, s = length, shape = "[" + b + ", " + s + ", " + w + "]\n";
  return problem("x: " + t + shape + "r: " + t + shape + "g: " + t + "[" + w + "]\nh: " + t + "[" + w + "]\nz: " + t +
                     shape + "y: " + t + shape,
                 "nest layer_norm outer(i0: " + b + ", i1: " + s + ") row(i2: " + w + R"() {
      %0 = load x[i0, i1, i2] : f32
      %1 = load r[i0, i1, i2] : f32
      %2 = add %0, %1 : f32
      %3 = reduce.sum %2 : f32
      %20 = index )" +
                     w + R"( : i64
      %21 = cast %20 : f32
      %5 = div %3, %21 : f32
      %6 = sub %2, %5 : f32
      %7 = mul %6, %6 : f32
      %8 = reduce.sum %7 : f32
      %9 = div %8, %21 : f32
      %10 = const 1e-05 : f32
      %11 = add %9, %10 : f32
      %12 = sqrt %11 : f32
      %13 = div %6, %12 : f32
      %14 = load g[i2] : f32
      %15 = mul %13, %14 : f32
      %16 = load h[i2] : f32
      %17 = add %15, %16 : f32
      store z[i0, i1, i2] = %2
      store y[i0, i1, i2] = %17
    })");
}
// A root-mean-square norm; g is for all rows.
inline Problem norm_of(const std::string& rows, const std::string& row, const std::string& t) {
  const std::string shape = "[" + rows + ", " + row + "]\n";
  return problem("x: " + t + shape + "g: " + t + "[" + row + "]\ny: " + t + shape,
                 "nest rms_norm outer(i0: " + rows + ") row(i1: " + row + R"() {
      %0 = load x[i0, i1] : f32
      %1 = mul %0, %0 : f32
      %2 = reduce.sum %1 : f32
      %3 = const 0.001 : f32
      %4 = mul %2, %3 : f32
      %5 = sqrt %4 : f32
      %6 = div %0, %5 : f32
      %7 = load g[i1] : f32
      %8 = mul %6, %7 : f32
      store y[i0, i1] = %8
    })");
}
// The norm of groups of channels, each of so many pixels, with a gain for each channel, which all groups share.
// `read_of`: the first ones of so many pixels are read, so that channels do not follow each other in memory.
inline Problem group_norm_of(const std::string& groups, const std::string& channels, const std::string& pixels,
                             const std::string& t, const std::string& read_of = {}) {
  auto shape = [&](const std::string& inner) { return "[" + groups + ", " + channels + ", " + inner + "]\n"; };
  const std::string read = shape(read_of.empty() ? pixels : read_of);
  return problem("x: " + t + read + "g: " + t + "[" + channels + "]\ny: " + t + shape(pixels),
                 "nest group_norm outer(i0: " + groups + ") row(i1: " + channels + ", i2: " + pixels + R"() {
      %0 = load x[i0, i1, i2] : f32
      %1 = reduce.sum %0 : f32
      %2 = const 0.0001 : f32
      %3 = mul %1, %2 : f32
      %4 = sub %0, %3 : f32
      %5 = mul %4, %4 : f32
      %6 = reduce.sum %5 : f32
      %7 = mul %6, %2 : f32
      %8 = const 0.00001 : f32
      %9 = add %7, %8 : f32
      %10 = rsqrt %9 : f32
      %11 = mul %4, %10 : f32
      %12 = load g[i1] : f32
      %13 = mul %11, %12 : f32
      store y[i0, i1, i2] = %13
    })");
}
// A root-mean-square norm of a sum, which is a result, too; g is for all rows.
inline Problem add_norm_of(const std::string& rows, const std::string& row, const std::string& t) {
  const std::string shape = "[" + rows + ", " + row + "]\n";
  return problem("x: " + t + shape + "r: " + t + shape + "g: " + t + "[" + row + "]\nz: " + t + shape + "y: " + t +
                     shape,
                 "nest norm outer(i0: " + rows + ") row(i1: " + row + R"() {
      %0 = load x[i0, i1] : f32
      %1 = load r[i0, i1] : f32
      %2 = add %0, %1 : f32
      %3 = mul %2, %2 : f32
      %4 = reduce.sum %3 : f32
      %5 = const 0.01 : f32
      %6 = mul %4, %5 : f32
      %7 = rsqrt %6 : f32
      %8 = mul %2, %7 : f32
      %9 = load g[i1] : f32
      %10 = mul %8, %9 : f32
      store z[i0, i1] = %2
      store y[i0, i1] = %10
    })");
}
inline Problem bias_gelu(const char* dtype = "f32") {
  std::string t = dtype;
  return problem("x: " + t + "[b, s, 100]\nbias: " + t + "[100]\ny: " + t + "[b, s, 100]", R"(
    nest bias_gelu outer(i0: b, i1: s, i2: 100) {
      %0 = load x[i0, i1, i2] : f32
      %1 = load bias[i2] : f32
      %2 = add %0, %1 : f32
      %3 = const 0.70710678 : f32
      %4 = mul %2, %3 : f32
      %5 = erf %4 : f32
      %6 = const 1 : f32
      %7 = add %5, %6 : f32
      %8 = mul %2, %7 : f32
      %9 = const 0.5 : f32
      %10 = mul %8, %9 : f32
      store y[i0, i1, i2] = %10
    })");
}
inline Problem column_sum() {
  return problem("x: f32[n, c]\ny: f32[c]", R"(
    nest column_sum outer(i0: c) row(i1: n) {
      %0 = load x[i1, i0] : f32
      %1 = reduce.sum %0 : f32
      store.row y[i0] = %1
    })");
}
inline Problem transposed() {
  return problem("x: f32[n, m]\ny: f32[m, n]",
                 "nest t outer(i0: m, i1: n) { %0 = load x[i1, i0] : f32\n store y[i0, i1] = %0 }");
}
// Rotates the halves of the last dimension against each other: concat(-x[..., d/2:], x[..., :d/2]) * sin + x * cos.
inline Problem rope() {
  return problem("x: f32[b, h, s, 64]\ncos: f32[s, 64]\nsin: f32[s, 64]\ny: f32[b, h, s, 64]", R"(
    nest rope outer(i0: b, i1: h, i2: s, i3: 64) {
      %0 = load x[i0, i1, i2, i3] : f32
      %1 = load cos[i2, i3] : f32
      %2 = mul %0, %1 : f32
      %3 = index lt(i3, 32) : bool
      %4 = load x[i0, i1, i2, i3 + 32] if %3 : f32
      %5 = neg %4 : f32
      %6 = index le(32, i3) : bool
      %7 = load x[i0, i1, i2, i3 - 32] if %6 : f32
      %8 = select %3, %5, %7 : f32
      %9 = load sin[i2, i3] : f32
      %10 = mul %8, %9 : f32
      %11 = add %2, %10 : f32
      store y[i0, i1, i2, i3] = %11
    })");
}
inline Problem embedding(const char* rows = "30") {
  std::string r = rows;
  return problem("ids: i64[b, s]\ntable: f32[" + r + ", 48]\ny: f32[b, s, 48]", R"(
    nest embedding outer(i0: b, i1: s, i2: 48) {
      %0 = load ids[i0, i1] : i64
      %1 = index )" + r + R"( : i64
      %2 = check_bounds %0, %1 : i64
      %3 = load table[%2, i2] : f32
      store y[i0, i1, i2] = %3
    })");
}
inline std::vector<Sizes> two(const char* a, const char* b) {
  std::vector<Sizes> list;
  for (auto [x, y] : {std::pair<int64_t, int64_t>{1, 1},
                      {0, 3},
                      {3, 0},
                      {2, 7},
                      {3, 16},
                      {1, 33},
                      {5, 70},
                      {67, 2},
                      {17, 31},
                      {1, 300}})
    list.push_back({{a, x}, {b, y}});
  return list;
}

} // namespace tessera::test
