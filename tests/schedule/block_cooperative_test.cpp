// Few long rows, which several blocks may share.
#include "block_harness.h"
#include "nests.h"
#include "tests/base/share.h"
#include <algorithm>

namespace tessera::test {
namespace {

Problem fold(const std::string& kind, const std::string& rows, const std::string& row,
             const std::string& dtype = "f32") {
  return problem("x: " + dtype + "[" + rows + ", " + row + "]\ny: f32[" + rows + "]",
                 "nest fold outer(i0: " + rows + ") row(i1: " + row + ") { %0 = load x[i0, i1] : f32\n %1 = reduce." +
                     kind + " %0 : f32\n store.row y[i0] = %1 }");
}
Problem columns(const std::string& rows, const std::string& width) {
  return problem("x: f32[" + rows + ", " + width + "]\ny: f32[" + width + "]",
                 "nest columns outer(i0: " + width + ") row(i1: " + rows +
                     ") { %0 = load x[i1, i0] : f32\n %1 = reduce.sum %0 : f32\n store.row y[i0] = %1 }");
}
// Mean and variance.
Problem moments(const std::string& rows, const std::string& row) {
  return problem("x: f32[" + rows + ", " + row + "]\nm: f32[" + rows + "]\nv: f32[" + rows + "]",
                 "nest moments outer(i0: " + rows + ") row(i1: " + row + R"() {
      %0 = load x[i0, i1] : f32
      %1 = reduce.sum %0 : f32
      %2 = const 0.001 : f32
      %3 = mul %1, %2 : f32
      %4 = sub %0, %3 : f32
      %5 = mul %4, %4 : f32
      %6 = reduce.sum %5 : f32
      store.row m[i0] = %3
      store.row v[i0] = %6
    })");
}
Problem argmax(const std::string& rows, const std::string& row, const std::string& dtype = "f32") {
  return problem("x: " + dtype + "[" + rows + ", " + row + "]\ny: i64[" + rows + "]",
                 "nest best outer(i0: " + rows + ") row(i1: " + row +
                     ") { %0 = load x[i0, i1] : f32\n %1 = reduce.argmax %0 : i64\n store.row y[i0] = %1 }");
}

TEST(BlockCooperative, KnownSizesMeanTheSame) {
  kernel_runner().blocks_only = true;
  Share share;
  auto check = [&](const Problem& p, const RunOptions& options) {
    if (share.takes({p.nest.name})) expect_same(p, {{}}, options);
  };
  check(fold("sum", "1", "65536"), {.tolerance = 1e-3});
  check(fold("max", "2", "65541"), {.specials = true});
  check(argmax("2", "65541"), {.specials = true});
  check(columns("4099", "33"), {.tolerance = 1e-3});
  check(softmax_of("1", "70001"), {.tolerance = 1e-4});
  check(moments("2", "65541"), {.tolerance = 1e-3});
  // Rows that begin at any alignment.
  check(softmax_of("2", "65541"), {.tolerance = 1e-3});
  check(add_norm_of("2", "65543", "f16"), {.tolerance = 1e-2});
  check(masked_softmax_of("3", "65544", "f32"), {.tolerance = 1e-4, .multiprocessors = 4});
  check(add_norm_of("4", "41641", "f16"), {.tolerance = 1e-2, .multiprocessors = 1});
  check(add_norm_of("2", "50001", "f16"), {.tolerance = 1e-2, .multiprocessors = 1});
  check(add_norm_of("3", "40001", "f32"), {.tolerance = 1e-3, .multiprocessors = 2});
  check(masked_softmax_of("4", "90785", "bf16"), {.tolerance = 1e-2, .multiprocessors = 1});
  check(softmax_of("2", "40001", "f16"), {.tolerance = 1e-2, .multiprocessors = 6});
  check(masked_softmax_of("3", "100001", "f16"), {.tolerance = 1e-2, .multiprocessors = 1});
  check(masked_softmax_of("3", "60000", "f16"), {.tolerance = 1e-2, .multiprocessors = 1});
  check(norm_of("3", "60001", "f32"), {.tolerance = 1e-2, .multiprocessors = 1});
  check(norm_of("3", "65536", "bf16"), {.tolerance = 1e-2, .multiprocessors = 1});
  check(group_norm_of("3", "4", "8192", "bf16"), {.tolerance = 1e-2, .multiprocessors = 1});
  check(softmax_at("3", "100001", "f16", "200002", "2*i1"), {.tolerance = 1e-2, .multiprocessors = 1});
  check(softmax_at("2", "200001", "f16", "400002", "2*i1"), {.tolerance = 1e-2, .multiprocessors = 1});
  kernel_runner().blocks_only = false;
}

TEST(BlockCooperative, AnySizeMeansTheSame) {
  expect_same(fold("sum", "b", "s"), two("b", "s"));
  auto sizes = two("b", "s");
  std::erase_if(sizes, [](const Sizes& s) { return s.at("s") == 0; }); // an empty row has no best element
  expect_same(argmax("b", "s"), sizes, {.specials = true});
  expect_same(columns("n", "c"), two("n", "c"));
  expect_same(softmax_of("b", "s"), two("b", "s"));
  expect_same(moments("b", "s"), two("b", "s"));
  expect_same(add_norm_of("b", "s", "f16"), two("b", "s"), {.tolerance = 1e-2});
}

} // namespace
} // namespace tessera::test
