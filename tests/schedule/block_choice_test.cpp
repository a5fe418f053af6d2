// What is chosen for blocks of threads: forms, sizes of tiles and conditions.
#include "block_harness.h"
#include "codegen/target/select.h"
#include "nests.h"
#include <algorithm>

namespace tessera::test {
namespace {

// "block-rows [16, 256] 4 | ... where s <= 256, s % 8": form, tile, warps and conditions of each kernel.
std::string summary(const std::vector<ScheduledKernel>& kernels) {
  std::string s;
  for (const ScheduledKernel& k : kernels) {
    const auto& config = k.schedule.config;
    s += (s.empty() ? "" : " | ") + std::string(name(k.schedule.kind)) + " [" + std::to_string(config.at("rows")) +
         ", " + std::to_string(config.at("columns")) + "] " + std::to_string(config.at("warps"));
    EXPECT_EQ(k.kernel.config.at("warps"), config.at("warps"));
    for (const SizeCondition& c : k.conditions) {
      if (c.multiple_of > 1) s += " " + c.value.str() + "%" + std::to_string(c.multiple_of);
      if (c.max < INT64_MAX) s += " " + c.value.str() + "<=" + std::to_string(c.max);
    }
  }
  return s;
}
std::string summary(const Problem& p) { return summary(lower_blocks(p)); }

Problem copy(const std::string& shape, const std::string& axes, const std::string& index, const std::string& dtype) {
  return problem("x: " + dtype + "[" + shape + "]\ny: " + dtype + "[" + shape + "]",
                 "nest copy outer(" + axes + ") { %0 = load x[" + index + "] : f32\n store y[" + index + "] = %0 }");
}
Problem row_max(const std::string& rows, const std::string& row, const std::string& dtype) {
  return problem("x: " + dtype + "[" + rows + ", " + row + "]\ny: " + dtype + "[" + rows + "]",
                 "nest top outer(i0: " + rows + ") row(i1: " + row +
                     ") { %0 = load x[i0, i1] : f32\n %1 = reduce.max %0 : f32\n store.row y[i0] = %1 }");
}

TEST(BlockChoice, OneAccessAThreadAndStream) {
  EXPECT_EQ(summary(copy("n", "i0: n", "i0", "f32")), "block-flat [1, 1024] 8");
  EXPECT_EQ(summary(copy("n", "i0: n", "i0", "f16")), "block-flat [1, 2048] 8");
  EXPECT_EQ(summary(copy("b, s, 768", "i0: b, i1: s, i2: 768", "i0, i1, i2", "f16")), "block-flat [1, 2048] 8");
}

TEST(BlockChoice, FewElementsAreSpreadOverTheMultiprocessors) {
  EXPECT_EQ(summary(copy("100000000", "i0: 100000000", "i0", "f16")), "block-flat [1, 2048] 8");
  EXPECT_EQ(summary(copy("300000", "i0: 300000", "i0", "f16")), "block-flat [1, 1024] 4");
  EXPECT_EQ(summary(copy("20000", "i0: 20000", "i0", "f16")), "block-flat [1, 256] 1"); // 16 bytes a thread
  EXPECT_EQ(summary(problem("y: f32[]", "nest one outer() { %0 = const 1 : f32\n store y[] = %0 }")),
            "block-flat [1, 1] 1");
}

// Two tables for all heads, as of rotary embeddings, are read once for two heads; one of them alone does not pay, and
// small ones are in the L1.
TEST(BlockChoice, LargeOperandsThatOuterAxesShareAreReadForSeveralPositions) {
  auto turned = [](const std::string& tables, const std::string& extents, const std::string& index) {
    std::string text = "x: f16[8, 32, 2048, 128]\ny: f16[8, 32, 2048, 128]\n";
    std::string body = "nest turn outer(i0: 8, i1: 32, i2: 2048, i3: 128) { %0 = load x[i0, i1, i2, i3] : f32\n";
    int last = 0, next = 1;
    for (char table : tables) {
      text += std::string(1, table) + ": f16[" + extents + "]\n";
      std::string v = std::to_string(next), sum = std::to_string(next + 1);
      body += "%" + v + " = load " + table + "[" + index + "] : f32\n%" + sum + " = mul %" + std::to_string(last) +
              ", %" + v + " : f32\n";
      last = next + 1;
      next += 2;
    }
    return problem(text, body + "store y[i0, i1, i2, i3] = %" + std::to_string(last) + " }");
  };
  EXPECT_EQ(summary(turned("cs", "2048, 128", "i2, i3")), "block-flat [2, 1024] 4");
  EXPECT_EQ(summary(turned("cs", "8, 1, 2048, 128", "i0, 0, i2, i3")), "block-flat [2, 1024] 4");
  EXPECT_EQ(summary(turned("c", "2048, 128", "i2, i3")), "block-flat [1, 2048] 8");
  EXPECT_EQ(summary(turned("cs", "128", "i3")), "block-flat [16, 128] 8");
}

// What each load of the first kernel tells caches.
std::string hints(const Problem& p) {
  std::string s;
  const tile::Kernel k = lower_blocks(p).front().kernel;
  for (tile::OpId id = 0; id < k.op_count(); ++id)
    if (k.op(id).kind == tile::OpKind::Load) s += (s.empty() ? "" : " ") + std::string(tile::name(k.op(id).caching));
  return s;
}

TEST(BlockChoice, LoadsTellCachesWhatBecomesOfTheRest) {
  EXPECT_EQ(hints(copy("33554432", "i0: 33554432", "i0", "f32")), "lasting"); // more than the L2 holds
  EXPECT_EQ(hints(copy("4194304", "i0: 4194304", "i0", "f32")), "lasting");
  EXPECT_EQ(hints(copy("300000", "i0: 300000", "i0", "f32")), "normal");
  EXPECT_EQ(hints(copy("n", "i0: n", "i0", "f32")), "normal normal"); // whole blocks, and the last one
  EXPECT_EQ(hints(row_max("8192", "4096", "f32")), "passing");
  EXPECT_EQ(hints(row_max("16384", "4096", "f32")), "lasting");
  EXPECT_EQ(hints(row_max("16384", "4095", "f32")), "normal"); // not whole accesses
  EXPECT_EQ(hints(softmax_of("8192", "4096", "f32")), "lasting");
  EXPECT_EQ(hints(softmax_of("1024", "4096", "f32")), "lasting");
  // A loop: the first round, of which the row's last two tiles are ahead; then the last round, which lets them go.
  EXPECT_EQ(hints(softmax_of("2048", "36864", "f32")), "lasting lasting leaving leaving");
  // Tiles that are held: the last one to registers, the others to shared memory and from there, none that is read
  // again; then from shared memory.
  EXPECT_EQ(hints(softmax_of("2048", "32768", "f32")), "lasting lasting normal lasting leaving normal");
  EXPECT_EQ(hints(softmax_of("2048", "32768", "bf16")), "lasting normal normal"); // all of them to shared memory
}

TEST(BlockChoice, WhatIsReadLaterDoesNotLeave) {
  Problem p = copy("4194304", "i0: 4194304", "i0", "f32");
  const OpDef* relu = OpTable::get().find("Relu");
  ASSERT_NE(relu, nullptr);
  ASSERT_TRUE(p.graph.add_node(*relu, {p.nest.loads[0]}, {}, {}, {"later"}, 14).ok());
  EXPECT_EQ(hints(p), "lasting");
  ASSERT_TRUE(p.graph.add_node(*relu, {p.nest.stores[0].value}, {}, {}, {"result"}, 14).ok());
  EXPECT_EQ(hints(p), "passing");
  Problem large = copy("16777216", "i0: 16777216", "i0", "f32"), next = copy("16777216", "i0: 16777216", "i0", "f32");
  EXPECT_EQ(hints(large), "lasting");
  ASSERT_TRUE(next.graph.add_node(*relu, {next.nest.stores[0].value}, {}, {}, {"next"}, 14).ok());
  EXPECT_EQ(hints(next), "lasting"); // 67 MB of results do not stay anyhow
  p.nest.sources = {NodeId{0}};      // the nest's own node, of which nobody reads more
  EXPECT_EQ(hints(p), "leaving");
  ValueId same = p.graph.node(NodeId{0}).results[0]; // that the nest does not store
  ASSERT_TRUE(p.graph.add_node(*relu, {same}, {}, {}, {"still"}, 14).ok());
  EXPECT_EQ(hints(p), "passing");
}

TEST(BlockChoice, ResultsThatAreReadNextStay) {
  Problem p = copy("8388608", "i0: 8388608", "i0", "f32"); // 34 MB to 34 MB
  EXPECT_EQ(hints(p), "lasting");
  const OpDef* relu = OpTable::get().find("Relu");
  ASSERT_NE(relu, nullptr);
  ASSERT_TRUE(p.graph.add_node(*relu, {p.nest.stores[0].value}, {}, {}, {"next"}, 14).ok());
  EXPECT_EQ(hints(p), "leaving");
}

TEST(BlockChoice, ColumnsWhereRowsAreTransposed) {
  EXPECT_EQ(summary(problem("x: f32[8192, 16384]\ny: f32[16384, 8192]",
                            "nest t outer(i0: 16384) row(i1: 8192) { %0 = load x[i1, i0] : f32\n"
                            " %1 = reduce.max %0 : f32\n %2 = sub %0, %1 : f32\n store y[i0, i1] = %2 }")),
            "block-columns [128, 32] 8");
}

Problem bias(const std::string& columns, const std::string& dtype = "f32") {
  return problem("x: " + dtype + "[n, " + columns + "]\nw: " + dtype + "[" + columns + "]\ny: " + dtype + "[n, " +
                     columns + "]",
                 "nest bias outer(i0: n, i1: " + columns +
                     ") { %0 = load x[i0, i1] : f32\n %1 = load w[i1] : f32\n %2 = add %0, %1 : f32\n "
                     "store y[i0, i1] = %2 }");
}
// Fewer elements a thread where their values would not fit its registers.
TEST(BlockChoice, ManyValuesAliveTakeFewerElements) {
  auto sums = [](int n) {
    std::string declarations, body = "nest sums outer(i0: n) {\n";
    for (int i = 0; i < n; ++i) {
      std::string k = std::to_string(i);
      declarations += "x" + k + ": u8[n]\n";
      body += "%" + k + " = load x" + k + "[i0] : u8\n";
    }
    body += "%100 = add %0, %1 : u8\n";
    for (int i = 2; i < n; ++i)
      body +=
          "%" + std::to_string(99 + i) + " = add %" + std::to_string(98 + i) + ", %" + std::to_string(i) + " : u8\n";
    return problem(declarations + "y: u8[n]", body + "store y[i0] = %" + std::to_string(98 + n) + " }");
  };
  EXPECT_EQ(summary(sums(4)), "block-flat [1, 4096] 8");
  EXPECT_EQ(summary(sums(12)), "block-flat [1, 2048] 8");
}

TEST(BlockChoice, BroadcastOperands) {
  EXPECT_EQ(summary(bias("768")), "block-flat [256, 4] 8");          // runs of 4 rather than pieces of rows
  EXPECT_EQ(summary(bias("1024", "f16")), "block-flat [2, 1024] 8"); //
  EXPECT_EQ(summary(bias("100")), "block-flat [256, 4] 8");          // runs of 4: no power of two of use divides 100
  EXPECT_EQ(summary(bias("7")), "block-flat [1, 1024] 8");           // flattened, bias by mod
  EXPECT_EQ(summary(bias("c")), "block-flat [256, 4] 8 c%4 | block-flat [1, 1024] 8");
}

TEST(BlockChoice, RowsByTheirBytes) {
  const std::pair<const char*, const char*> table[] = {
      {"4", "block-rows [128, 4] 4"},        {"16", "block-rows [128, 16] 4"},
      {"49", "block-rows [32, 64] 4"},       {"128", "block-rows [16, 128] 4"},
      {"512", "block-rows [2, 512] 4"},      {"1000", "block-rows [2, 1024] 4"},
      {"4096", "block-rows [1, 4096] 8"},    {"8192", "block-rows [1, 8192] 16"},
      {"12288", "block-rows [1, 16384] 16"}, {"16384", "block-loop [1, 4096] 16"},
      {"32768", "block-loop [1, 8192] 32"},  {"100000", "block-team [1, 8192] 16 n<=66 | block-loop [1, 16384] 16"}};
  for (auto [row, expected] : table) EXPECT_EQ(summary(row_max("n", row, "f32")), expected) << row;
  EXPECT_EQ(summary(row_max("n", "256", "bf16")), "block-rows [16, 256] 4");
  EXPECT_EQ(summary(row_max("n", "1024", "bf16")), "block-rows [2, 1024] 4");
  EXPECT_EQ(summary(row_max("n", "4096", "bf16")), "block-rows [1, 4096] 4");
  // Many rows: a warp each while they are short, then eight accesses a thread.
  EXPECT_EQ(summary(row_max("50000", "640", "bf16")), "block-rows [4, 1024] 4");
  EXPECT_EQ(summary(row_max("50000", "641", "bf16")), "block-rows [4, 1024] 4");
  EXPECT_EQ(summary(row_max("50000", "1541", "bf16")), "block-rows [1, 2048] 1");
  EXPECT_EQ(summary(row_max("5000", "1541", "bf16")), "block-rows [1, 2048] 2");
  EXPECT_EQ(summary(row_max("20000", "2203", "bf16")), "block-rows [1, 4096] 2");
  EXPECT_EQ(summary(row_max("20000", "8192", "bf16")), "block-rows [1, 8192] 4");
  EXPECT_EQ(summary(row_max("20000", "2160", "f32")), "block-rows [1, 4096] 4");
  EXPECT_EQ(summary(row_max("4000", "20000", "bf16")), "block-rows [1, 32768] 16");
  // Few rows: a block each. Few long ones: several blocks.
  EXPECT_EQ(summary(row_max("64", "128", "f32")), "block-rows [1, 128] 1");
  EXPECT_EQ(summary(row_max("8", "1776", "f16")), "block-rows [1, 2048] 8");
  EXPECT_EQ(summary(row_max("600", "2000", "f16")), "block-rows [1, 2048] 4");
  EXPECT_EQ(summary(row_max("4", "1000000", "f32")), "block-team [1, 8192] 16");
  // Few rows that are read again.
  EXPECT_EQ(summary(softmax_of("8", "20000", "bf16")), "block-rows [1, 32768] 16");
  EXPECT_EQ(summary(softmax_of("2000", "20000", "bf16")), "block-loop [1, 4096] 8");
  EXPECT_EQ(summary(row_max("2048", "32768", "f32")), "block-loop [1, 4096] 8");
}

// Registers for all that a warp loads: so many blocks on a multiprocessor, in all 800 to 1024 threads.
TEST(BlockChoice, ShortRowsOf32BitsAreAWarps) {
  auto bounded = [](const Problem& p) {
    const auto kernels = lower_blocks(p);
    auto bound = kernels[0].kernel.config.find("min_blocks");
    return summary(kernels) + (bound == kernels[0].kernel.config.end() ? "" : " on " + std::to_string(bound->second));
  };
  EXPECT_EQ(bounded(softmax_of("8192", "1024")), "block-rows [1, 1024] 1 on 32");
  EXPECT_EQ(bounded(softmax_of("6000", "768")), "block-rows [1, 1024] 1 on 32");
  EXPECT_EQ(bounded(softmax_of("8192", "512")), "block-rows [2, 512] 1 on 25");
  EXPECT_EQ(bounded(softmax_of("65536", "256")), "block-rows [4, 256] 1 on 25");
  EXPECT_EQ(bounded(softmax_of("8192", "2048")), "block-rows [1, 2048] 2 on 16");
  EXPECT_EQ(bounded(softmax_of("1000", "1024")), "block-rows [1, 1024] 4"); // few
  // A gain is converted by four warps.
  EXPECT_EQ(bounded(norm_of("8192", "2048", "bf16")), "block-rows [1, 2048] 4");
  EXPECT_EQ(bounded(norm_of("20000", "4096", "f16")), "block-rows [1, 4096] 4");
  for (const char* row : {"1024", "768", "512", "256"})
    expect_same(softmax_of("67", row), {{}}, {.multiprocessors = 1});
  for (const char* row : {"2048", "4096"})
    expect_same(norm_of("30", row, "bf16"), {{}}, {.tolerance = 2e-2, .multiprocessors = 1});
}

TEST(BlockChoice, UnknownRowsHaveAShortListOfKernels) {
  EXPECT_EQ(summary(row_max("n", "s", "f16")), "block-team [1, 16384] 16 n<=66 s%8 | block-team [1, 8192] 16 n<=66 | "
                                               "block-rows [16, 256] 4 s<=256 s%8 | block-rows [4, 512] 4 s<=512 s%8 | "
                                               "block-rows [2, 1024] 4 s<=1024 s%8 | "
                                               "block-rows [1, 4096] 4 s<=4096 s%8 | block-rows [2, 1024] 4 s<=1017 | "
                                               "block-loop [1, 4096] 8 s%8 | block-loop [1, 4096] 8");
  // What is known of the size is not asked.
  Problem p = row_max("n", "s", "f16");
  p.graph.env().set_range(*p.graph.env().find("s"), {1, 512});
  p.graph.env().set_divisor(*p.graph.env().find("s"), 8);
  EXPECT_EQ(summary(p), "block-rows [16, 256] 4 s<=256 | block-rows [4, 512] 4");
  Problem odd = row_max("n", "s", "f16");
  odd.graph.env().set_range(*odd.graph.env().find("s"), {1, 512});
  EXPECT_EQ(summary(odd), "block-rows [16, 256] 4 s<=256 s%8 | block-rows [4, 512] 4 s%8 | block-rows [4, 512] 4");
}

// A mask beside wide streams does not make rows short.
TEST(BlockChoice, RowsAreMeasuredInTheUsualElement) {
  EXPECT_EQ(summary(problem("x: f16[n, 1024]\nm: bool[n, 1024]\ny: f16[n, 1024]", R"(
    nest masked outer(i0: n) row(i1: 1024) {
      %0 = load x[i0, i1] : f32
      %1 = load m[i0, i1] : bool
      %2 = const -inf : f32
      %3 = select %1, %0, %2 : f32
      %4 = reduce.max %3 : f32
      %5 = sub %3, %4 : f32
      store y[i0, i1] = %5
    })")),
            summary(row_max("n", "1024", "f16")));
}

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

TEST(BlockChoice, ManyValuesAliveTakeMoreThreads) {
  std::string body = "nest many outer(i0: n) row(i1: 4096) {\n", declarations;
  for (int i = 0; i < 8; ++i) {
    declarations += "x" + std::to_string(i) + ": f32[n, 4096]\n";
    body += "%" + std::to_string(i) + " = load x" + std::to_string(i) + "[i0, i1] : f32\n";
  }
  body += "%8 = reduce.sum %0 : f32\n";
  for (int i = 0; i < 8; ++i)
    body +=
        "%" + std::to_string(9 + i) + " = fma %" + std::to_string(i) + ", %8, %" + std::to_string(8 + i) + " : f32\n";
  body += "store y[i0, i1] = %16 }";
  EXPECT_EQ(summary(problem(declarations + "y: f32[n, 4096]", body)), "block-rows [1, 4096] 16");
}

TEST(BlockChoice, ColumnsAndTransposes) {
  EXPECT_EQ(summary(column_sum()), "block-team [32, 64] 4 c<=4224 c%4 | block-team [32, 64] 4 c<=4224 | "
                                   "block-columns [64, 32] 4 c%4 | block-columns [64, 32] 4");
  // Few columns: narrower tiles; a short row of known length stands in the tile.
  auto channels = [](const std::string& n, const std::string& c, const std::string& t = "f32",
                     const std::string& w = "4096") {
    return problem("x: " + t + "[" + n + ", " + c + ", " + w + "]\ny: " + t + "[" + n + ", " + c + ", " + w + "]",
                   "nest channels outer(i0: " + n + ", i1: " + w + ") row(i2: " + c +
                       ") { %0 = load x[i0, i2, i1] : f32\n %1 = reduce.max %0 : f32\n %2 = sub %0, %1 : f32\n "
                       "store y[i0, i2, i1] = %2 }");
  };
  auto whole = lower_blocks(channels("8", "16")), loop = lower_blocks(channels("8", "1000"));
  auto loops = [](const ScheduledKernel& k) {
    return std::any_of(k.kernel.body.begin(), k.kernel.body.end(),
                       [&](tile::OpId o) { return k.kernel.op(o).kind == tile::OpKind::For; });
  };
  EXPECT_EQ(summary(whole), "block-columns [16, 32] 4");
  EXPECT_FALSE(loops(whole[0]));
  EXPECT_EQ(summary(loop), "block-columns [128, 32] 8");
  EXPECT_TRUE(loops(loop[0]));
  // Threads have more of a tile that is read once; 16-bit columns of a sector where wider ones would be few blocks.
  EXPECT_EQ(summary(lower_blocks(channels("64", "70"))), "block-columns [128, 32] 4");
  EXPECT_EQ(summary(lower_blocks(channels("64", "120"))), "block-columns [128, 32] 4");
  EXPECT_EQ(summary(lower_blocks(channels("16", "64"))), "block-columns [64, 32] 2");
  EXPECT_EQ(summary(lower_blocks(channels("2", "2000", "f16"))), "block-columns [256, 16] 4");
  EXPECT_EQ(summary(lower_blocks(channels("8", "2000", "f16"))), "block-columns [128, 32] 8");
  // Half as many columns where the row stands in the tile then, 128 bytes of it a thread's.
  EXPECT_EQ(summary(lower_blocks(channels("64", "100", "f16"))), "block-columns [128, 32] 2");
  EXPECT_EQ(summary(lower_blocks(channels("64", "192", "f16"))), "block-columns [256, 32] 4");
  EXPECT_EQ(summary(lower_blocks(channels("64", "192"))), "block-columns [256, 16] 4");
  EXPECT_EQ(summary(lower_blocks(channels("64", "64", "f16"))), "block-columns [64, 32] 1");
  EXPECT_EQ(summary(lower_blocks(channels("1", "64", "f16"))), "block-columns [64, 16] 4"); // few: more threads
  for (const auto& [row, type] :
       {std::pair{"64", "f16"}, {"100", "f16"}, {"192", "bf16"}, {"256", "f16"}, {"192", "f32"}})
    expect_same(channels("1", row, type, "333"), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  // Sums down columns of 16 bits so wide that a block of 1024 threads for each multiprocessor has all.
  auto sum = [](const std::string& rows, const std::string& width) {
    return problem("x: f16[" + rows + ", " + width + "]\ny: f32[" + width + "]",
                   "nest sum outer(i0: " + width + ") row(i1: " + rows +
                       ") { %0 = load x[i1, i0] : f32\n %1 = reduce.sum %0 : f32\n store.row y[i0] = %1 }");
  };
  EXPECT_EQ(summary(lower_blocks(sum("150", "262144"))), "block-columns [8, 2048] 32");
  EXPECT_EQ(summary(lower_blocks(sum("147", "507839"))), "block-columns [4, 4096] 32");
  EXPECT_EQ(summary(lower_blocks(sum("150", "200000"))).find("2048"), std::string::npos); // 98 blocks
  // What the second round needs stays in shared memory: of long columns as much as there is room for, for which they
  // are narrow; not where most would be read again anyhow.
  EXPECT_EQ(loop[0].schedule.config.at("keep"), 0); // too little to be worth it
  auto many = lower_blocks(channels("16", "1000"));
  EXPECT_EQ(summary(many), "block-columns [128, 32] 16");
  EXPECT_EQ(many[0].schedule.config.at("keep"), 6);
  auto longer = lower_blocks(channels("8", "4000")), longest = lower_blocks(channels("8", "40000"));
  EXPECT_EQ(summary(longer), "block-columns [512, 8] 16");
  EXPECT_EQ(longer[0].schedule.config.at("keep"), 6);
  EXPECT_EQ(longest.back().schedule.config.at("keep"), 0);

  auto transpose = [](const std::string& n, const std::string& m, const std::string& d) {
    return problem("x: " + d + "[" + n + ", " + m + "]\ny: " + d + "[" + m + ", " + n + "]",
                   "nest t outer(i0: " + m + ", i1: " + n + ") { %0 = load x[i1, i0] : f32\n store y[i0, i1] = %0 }");
  };
  EXPECT_EQ(summary(transpose("8192", "8192", "f32")), "block-flat [64, 64] 8");
  EXPECT_EQ(summary(transpose("n", "m", "f16")), "block-flat [64, 64] 8 n%8 m%8 | block-flat [64, 64] 8");
  // Odd sides: whole accesses through shared memory, of rows shifted each by itself where theirs is odd.
  auto number = [&](const char* n, const char* m, const char* d, const char* name) {
    return lower_blocks(transpose(n, m, d)).back().schedule.config.at(name);
  };
  EXPECT_EQ(summary(transpose("4099", "8191", "f16")), "block-flat [64, 64] 8");
  EXPECT_EQ(number("4099", "8191", "f16", "staged"), 1);
  EXPECT_EQ(number("4099", "8191", "f16", "shift"), 8);
  EXPECT_EQ(number("4096", "8191", "f16", "shift"), 1);
  EXPECT_EQ(number("4096", "8192", "f16", "staged"), 0);
  EXPECT_EQ(summary(transpose("336632", "95", "f32")), "block-flat [128, 32] 8");
  EXPECT_EQ(summary(transpose("37", "300007", "f32")), "block-flat [64, 64] 8"); // all columns
  // What is stored is not staged, whatever most bytes run along; of several operands a thread has fewer elements.
  EXPECT_EQ(summary(problem("z: f32[2003, 3001]\nw: f32[2003, 3001]\nv: f32[2003, 3001]\nx: f32[3001, 2003]\n"
                            "y: f32[3001, 2003]",
                            R"(
    nest several outer(i0: 3001, i1: 2003) {
      %0 = load z[i1, i0] : f32
      %1 = load w[i1, i0] : f32
      %2 = load v[i1, i0] : f32
      %3 = load x[i0, i1] : f32
      %4 = add %0, %1 : f32
      %5 = add %2, %3 : f32
      %6 = add %4, %5 : f32
      store y[i0, i1] = %6
    })")),
            "block-flat [64, 32] 8");
  // Down the columns where the L2 does not hold a row of tiles.
  EXPECT_EQ(number("181635", "353", "f16", "downward"), 0);
  EXPECT_EQ(number("281635", "353", "f16", "downward"), 1);
  // Of tiles of 32 the third part of the rows would be idle.
  EXPECT_EQ(summary(transpose("47", "8191", "f16")), "block-flat [64, 16] 8");
  // All of a short side, whose rows of 80 bytes do not begin at lines.
  EXPECT_EQ(summary(transpose("1000000", "40", "f16")), "block-flat [64, 64] 8");
  EXPECT_EQ(summary(transpose("40", "1000000", "f16")), "block-flat [64, 64] 8");
  EXPECT_EQ(summary(transpose("1000000", "144", "f16")), "block-flat [16, 256] 8");
  EXPECT_EQ(summary(transpose("50000", "3", "f32")), "block-flat [4, 256] 4");
  // Heads keep their last axis: no transpose, runs of it are moved.
  EXPECT_EQ(summary(problem("x: f16[b, s, 12, 64]\ny: f16[b, 12, s, 64]", R"(
    nest heads outer(i0: b, i1: 12, i2: s, i3: 64) {
      %0 = load x[i0, i2, i1, i3] : f32
      store y[i0, i1, i2, i3] = %0
    })")),
            "block-flat [32, 64] 8");
}

// A depthwise convolution as loops: each thread folds the taps of its own channels.
TEST(BlockChoice, ShortFoldsOfManyResultsAreSingleThreads) {
  auto depthwise = [](const std::string& size) {
    return problem("x: f32[n, " + size + ", " + size + ", 24]\nw: f32[3, 3, 24]\ny: f32[n, " + size + ", " + size +
                       ", 24]",
                   "nest depthwise outer(i0: n, i1: " + size + ", i2: " + size + ", i3: 24) row(i4: 3, i5: 3) {\n" +
                       "%0 = index and(le(1, i1 + i4), lt(i1 + i4, " + size + " + 1)) : bool\n" +
                       "%1 = index and(le(1, i2 + i5), lt(i2 + i5, " + size + " + 1)) : bool\n" +
                       "%2 = and %0, %1 : bool\n%3 = load x[i0, i1 + i4 - 1, i2 + i5 - 1, i3] if %2 : f32\n" +
                       "%4 = load w[i4, i5, i3] : f32\n%5 = mul %3, %4 : f32\n%6 = reduce.sum %5 : f32\n" +
                       "store.row y[i0, i1, i2, i3] = %6 }");
  };
  EXPECT_EQ(lower_blocks(depthwise("56")).back().schedule.kind, ScheduleKind::BlockWindow);
  expect_same(depthwise("4"), {{{"n", 2}}, {{"n", 0}}});

  Problem p = depthwise("5"); // many for a small GPU
  Target device = shipped_target("h200");
  device.multiprocessors = 2;
  auto kernels = lower_for_gpu(p.graph, p.nest, device, "small");
  ASSERT_TRUE(kernels.ok());
  EXPECT_EQ(kernels->back().schedule.kind, ScheduleKind::BlockWindow);
  Tensor x = Tensor::create(DType::F32, {2, 5, 5, 24}).value(), w = Tensor::create(DType::F32, {3, 3, 24}).value();
  for (int64_t i = 0; i < x.count(); ++i) x.set_f64(i, static_cast<double>(i % 7));
  for (int64_t i = 0; i < w.count(); ++i) w.set_f64(i, static_cast<double>(i % 5) - 2);
  auto expected = interpret(p.graph, p.nest, {x, w}, {{p.graph.env().find("n")->symbol_id(), 2}});
  ASSERT_TRUE(expected.ok()) << expected.error().str();
  auto actual = run_kernel(p, kernels->back(), {{"x", x}, {"w", w}}, {{"n", 2}});
  Comparison same = compare(actual.at("y"), expected.value()[0], 0, 0);
  EXPECT_TRUE(same.same) << same.message << tile::print(kernels->back().kernel);
}

TEST(BlockChoice, DivisorsReachTheParameters) {
  auto divisors = [](const ScheduledKernel& k) {
    std::string s;
    for (size_t i = 0; i < k.sizes.size(); ++i)
      s += k.sizes[i].str() + "%" + std::to_string(k.kernel.params[k.buffers.size() + i].multiple_of) + " ";
    return s;
  };
  Problem p = row_max("n", "s", "f16");
  std::vector<ScheduledKernel> kernels = lower_blocks(p);
  EXPECT_EQ(divisors(kernels[5]), "s%8 "); // by its condition
  EXPECT_EQ(divisors(kernels[6]), "n%1 s%1 ");
  p.graph.env().set_divisor(*p.graph.env().find("s"), 48);
  EXPECT_EQ(divisors(lower_blocks(p)[4]), "s%16 "); // powers of two are of use

  Problem b = bias("c", "f16");
  b.graph.env().set_divisor(*b.graph.env().find("c"), 24);
  EXPECT_EQ(summary(b), "block-flat [256, 8] 8"); // no condition: 8 divides 24
}

} // namespace
} // namespace tessera::test
