// What is chosen for a GPU: kernels for every size, of which the last one has no conditions.
#include "block_harness.h"
#include "nests.h"

namespace tessera::test {
namespace {

TEST(BlockChoice, RowsWithoutElements) {
  for (const char* kind : {"sum", "max", "prod"}) {
    std::string k = kind;
    expect_same(problem("x: f32[n, 0]\ny: f32[n]",
                        "nest none outer(i0: n) row(i1: 0) { %0 = load x[i0, i1] : f32\n %1 = reduce." + k +
                            " %0 : f32\n store.row y[i0] = %1 }"),
                {{{"n", 3}}, {{"n", 0}}});
    Problem few =
        problem("x: f32[n, s]\ny: f32[n]", "nest few outer(i0: n) row(i1: s) { %0 = load x[i0, i1] : f32\n %1 "
                                           "= reduce." +
                                               k + " %0 : f32\n store.row y[i0] = %1 }");
    few.graph.env().set_range(*few.graph.env().find("s"), {0, 1});
    expect_same(few, {{{"n", 3}, {"s", 0}}, {{"n", 5}, {"s", 1}}});
    expect_same(problem("x: f32[0, n]\ny: f32[n]",
                        "nest columns outer(i0: n) row(i1: 0) { %0 = load x[i1, i0] : f32\n %1 = reduce." + k +
                            " %0 : f32\n store.row y[i0] = %1 }"),
                {{{"n", 3}}, {{"n", 100}}});
  }
}

} // namespace
} // namespace tessera::test
