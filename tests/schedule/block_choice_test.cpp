// The choice for a GPU: kernels for every size, of which the last one has no conditions.
#include "block_harness.h"
#include "codegen/schedule/predict.h"
#include "codegen/schedule/window_facts.h"
#include "codegen/target/select.h"
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

// Softmax, then division by the norm of the row, and so on: 2 stages for each of `times`, and one that stores.
Problem chain_of_norms(int times, const std::string& dtype, const std::string& row) {
  std::string body = "%0 = load x[i0, i1] : f32\n";
  int n = 0;
  auto add = [&](const std::string& value) {
    body += "%" + std::to_string(++n) + " = " + value + "\n";
    return "%" + std::to_string(n);
  };
  std::string at = "%0";
  for (int i = 0; i < times; ++i) {
    const std::string e =
        add("exp " + add("sub " + at + ", " + add("reduce.max " + at + " : f32") + " : f32") + " : f32");
    const std::string soft = add("div " + e + ", " + add("reduce.sum " + e + " : f32") + " : f32");
    const std::string square = add("mul " + soft + ", " + soft + " : f32");
    at = add("div " + soft + ", " + add("sqrt " + add("reduce.sum " + square + " : f32") + " : f32") + " : f32");
  }
  return problem("x: " + dtype + "[b, " + row + "]\ny: " + dtype + "[b, " + row + "]",
                 "nest chain outer(i0: b) row(i1: " + row + ") {\n" + body + "store y[i0, i1] = " + at + "\n}");
}

// Instructions of a thread that the text of a kernel has, counted as facts count them.
double counted(const tile::Kernel& kernel, const std::vector<tile::OpId>& ops, int threads) {
  double n = 0;
  for (tile::OpId id : ops) {
    const tile::Op& op = kernel.op(id);
    for (const auto& region : op.regions) n += counted(kernel, region, threads);
    const bool store = op.kind == tile::OpKind::Store;
    if (!store && op.kind != tile::OpKind::Scalar && op.kind != tile::OpKind::Load && op.kind != tile::OpKind::Reduce)
      continue;
    const int64_t elements = kernel.type(store ? op.operands[2] : op.results[0]).count();
    n += static_cast<double>(std::max<int64_t>(1, elements / threads)) *
         (op.kind == tile::OpKind::Scalar ? std::max(1, info(op.scalar).cost) : 1);
  }
  return n;
}

// However much there is to compute for an element, there is a kernel for every size, no kernel that is chosen is longer
// than two instruction caches, and the code that is predicted is that which is made.
TEST(BlockChoice, CodeFitsTheInstructionCache) {
  for (const char* gpu : {"a100", "h200", "l40s"}) {
    const Target& device = shipped_target(gpu);
    for (const char* dtype : {"f16", "f32"})
      for (const char* row : {"s", "768", "999"})
        for (int times : {1, 3, 8}) {
          const Problem p = chain_of_norms(times, dtype, row);
          const std::vector<ScheduledKernel> kernels = lower_blocks(p, {}, device);
          ASSERT_FALSE(kernels.empty());
          EXPECT_TRUE(kernels.back().conditions.empty());
          for (const ScheduledKernel& k : kernels) {
            for (int64_t length : {64, 200, 1000, 1024, 4096, 5001, 65536, 1 << 20}) {
              const Sizes sizes{{"b", length > 60000 ? 2 : 512}, {"s", length}};
              if (!conditions_hold(p.graph, k, sizes)) continue;
              const auto predicted = predict(p.graph, p.nest, device, k.schedule, by_id(p, sizes));
              if (!predicted.ok()) continue;
              const std::string what =
                  std::string(gpu) + " " + dtype + " " + row + " x " + std::to_string(times) + ": " + print(k.schedule);
              const double text = counted(k.kernel, k.kernel.body, 32 * k.schedule.tile.warps);
              EXPECT_LE(predicted->code * kInstructionBytes, 2 * static_cast<double>(device.instruction_cache_bytes))
                  << what;
              EXPECT_GE(text, 0.6 * predicted->code) << what;
              EXPECT_LE(text, 2 * predicted->code) << what;
              break;
            }
          }
        }
  }
}

} // namespace
} // namespace tessera::test
