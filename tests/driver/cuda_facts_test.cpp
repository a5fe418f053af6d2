// Properties of the code of kernels for an NVIDIA GPU, read from its PTX without a GPU: accesses of 16 bytes wherever
// the sizes allow, few barriers and shuffles, nothing in local memory. A table of graphs with limits.
#include "harness.h"
#include "tests/base/share.h"
#include <regex>
#include <tuple>

namespace tessera::driver_test {
namespace {

struct Accesses {
  int wide_loads = 0, wide_stores = 0;     // of 16 bytes; copies to shared memory are loads
  int narrow_loads = 0, narrow_stores = 0; // of less
  int barriers = 0, shuffles = 0;
  bool local = false; // memory of a thread's own
  int rows = 1;       // of a warp
};

int occurrences(const std::string& text, const char* pattern) {
  std::regex r(pattern);
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), r), std::sregex_iterator()));
}

Accesses read(const std::string& ptx) {
  Accesses a;
  static const std::regex access(R"(\b(ld|st)\.global((?:\.[A-Za-z_][\w:]*)*?)(?:\.v([24]))?\.[bufs](8|16|32|64)\b)");
  for (std::sregex_iterator it(ptx.begin(), ptx.end(), access), end; it != end; ++it) {
    const auto& m = *it;
    int bytes = std::stoi(m[4].str()) / 8 * (m[3].matched ? std::stoi(m[3].str()) : 1);
    (m[1] == "ld" ? bytes == 16 ? a.wide_loads : a.narrow_loads : bytes == 16 ? a.wide_stores : a.narrow_stores)++;
  }
  static const std::regex copy(R"(\bcp\.async\.c[ag]\.shared\.global \[[^\]]*\], \[[^\]]*\], (\d+))");
  for (std::sregex_iterator it(ptx.begin(), ptx.end(), copy), end; it != end; ++it)
    ((*it)[1] == "16" ? a.wide_loads : a.narrow_loads)++;
  // Barriers of a block, and of its warps through votes.
  a.barriers = occurrences(ptx, R"(\b(bar|barrier)\.(cta\.)?(sync|red))");
  a.shuffles = occurrences(ptx, R"(\bshfl\.sync)");
  a.local = ptx.find(".local") != std::string::npos;
  return a;
}

// The code of the only kernel of a graph of constant sizes.
Accesses of_graph(const std::string& text, const TemporaryFolder& folder) {
  CompileOptions o = options(folder.path());
  o.device = "cuda";
  o.arch = "sm_90a";
  o.keep_texts = true;
  auto compiled = compile_it(parse(text), o);
  EXPECT_EQ(compiled.report.kernels.size(), 1u) << text;
  if (compiled.report.kernels.size() != 1) return {};
  const auto& k = compiled.report.kernels[0];
  EXPECT_LE(k.spill_bytes, 0) << text;
  auto a = read(k.ptx_text);
  EXPECT_FALSE(a.local) << text;
  a.rows = std::max(1, k.schedule.tile.rows / k.schedule.tile.warps);
  return a;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Pointwise kernels over contiguous tensors that are large enough to fill a GPU with vectors.
TEST(CudaFacts, PointwiseAccessesAreOf16BytesWhereTheInnerExtentAllows) {
  TemporaryFolder folder;
  const std::pair<const char*, int> graphs[] = {
      // and how many tensors each reads
      {"graph @main(%a: DT[N, M], %b: DT[N, M]) -> (%y: DT[N, M]) {\n  %s = add(%a, %b) : DT[N, M]\n"
       "  %y = Gelu(%s) : DT[N, M]\n}",
       2},
      {"graph @main(%a: DT[N, M], %b: DT[M]) -> (%y: DT[N, M]) {\n  %s = add(%a, %b) : DT[N, M]\n"
       "  %t = sigmoid(%s) : DT[N, M]\n  %y = mul(%s, %t) : DT[N, M]\n}",
       2},
      {"graph @main(%a: DT[N, M]) -> (%y: DT[N, M]) {\n  %y = abs(%a) : DT[N, M]\n}", 1}};
  test::Share share;
  for (const char* dtype : {"f16", "bf16", "f32"}) {
    const int vector = std::string(dtype) == "f32" ? 4 : 8;
    for (int inner : {8, 24, 64, 96, 768, 1000, 1024, 3072, 12344})
      for (auto [graph, inputs] : graphs) {
        if (!share.takes({dtype, std::to_string(inner), graph})) continue;
        int rows = 4'000'000 / inner + 1;
        auto text =
            replaced(replaced(replaced(graph, "DT", dtype), "N", std::to_string(rows)), "M", std::to_string(inner));
        SCOPED_TRACE(text);
        ASSERT_EQ(inner % vector, 0);
        auto a = of_graph(text, folder);
        EXPECT_GE(a.wide_loads, inputs);
        EXPECT_GE(a.wide_stores, 1);
        EXPECT_EQ(a.narrow_loads, 0);
        EXPECT_EQ(a.narrow_stores, 0);
        EXPECT_EQ(a.barriers, 0);
        EXPECT_EQ(a.shuffles, 0);
      }
  }
}

// However small: few accesses a thread.
TEST(CudaFacts, SmallPointwiseKernelsHaveFewAccesses) {
  TemporaryFolder folder;
  const char* graph = "graph @main(%a: DT[D], %b: DT[M]) -> (%y: DT[D]) {\n  %s = add(%a, %b) : DT[D]\n"
                      "  %y = Gelu(%s) : DT[D]\n}";
  for (const char* dtype : {"f16", "bf16", "f32"})
    for (const char* dims : {"8", "24", "1000", "12, 8", "3, 24", "7, 1000", "16, 128", "128, 768", "2, 3, 40"}) {
      std::string d = dims, inner = d.substr(d.rfind(' ') + 1);
      auto text = replaced(replaced(replaced(graph, "DT", dtype), "[D]", "[" + d + "]"), "[M]", "[" + inner + "]");
      SCOPED_TRACE(text);
      auto a = of_graph(text, folder);
      EXPECT_LE(a.wide_loads + a.narrow_loads, 8);
      EXPECT_LE(a.wide_stores + a.narrow_stores, 4);
    }
}

// A tensor that is contiguous as a whole is one segment, whatever its extents: all blocks but the last one use vectors.
TEST(CudaFacts, RunsOfOddLengthUseVectorsUpToTheirLastBlock) {
  TemporaryFolder folder;
  for (const char* dtype : {"f16", "f32"})
    for (const char* dims : {"4099, 1001", "4000037", "3, 5, 7, 40009"}) {
      auto text = replaced(
          replaced("graph @main(%a: DT[D], %b: DT[D]) -> (%y: DT[D]) {\n  %y = add(%a, %b) : DT[D]\n}", "DT", dtype),
          "[D]", "[" + std::string(dims) + "]");
      SCOPED_TRACE(text);
      auto a = of_graph(text, folder);
      EXPECT_GE(a.wide_loads, 2);
      EXPECT_GE(a.wide_stores, 1);
    }
}

// Sizes that are known and fit: indices are taken apart in 32 bits, by multiplications.
TEST(CudaFacts, IndicesOfKnownSizesAreDividedIn32Bits) {
  TemporaryFolder folder;
  const char* graphs[] = {"graph @main(%x: f16[64, 12, 127, 96], %t: f16[64, 12, 1, 96], %m: f16[64, 1, 127, 1]) -> "
                          "(%y: f16[64, 12, 127, 96]) "
                          "{\n  %a = add(%x, %t) : f16[64, 12, 127, 96]\n  %y = mul(%a, %m) : f16[64, 12, 127, 96]\n}",
                          "graph @main(%x: f32[99, 1001, 7], %b: f32[1001, 1]) -> (%y: f32[99, 1001, 7]) {\n"
                          "  %y = add(%x, %b) : f32[99, 1001, 7]\n}",
                          "graph @main(%x: f32[8, 128, 12, 64]) -> (%y: f32[8, 12, 128, 64]) {\n"
                          "  %y = transpose(%x) perm=[0, 2, 1, 3] : f32[8, 12, 128, 64]\n}"};
  for (const char* graph : graphs) {
    CompileOptions o = options(folder.path());
    o.device = "cuda";
    o.arch = "sm_90a";
    o.keep_texts = true;
    auto compiled = compile_it(parse(graph), o);
    for (const auto& k : compiled.report.kernels) {
      EXPECT_EQ(occurrences(k.ptx_text, R"(\b(mul\.hi|div|rem)\.[us]64)"), 0) << k.ptx_text;
      EXPECT_EQ(occurrences(k.ptx_text, R"(\b(div|rem)\.[us]32)"), 0) << k.ptx_text;
    }
  }
}

struct Limits {
  const char* name;
  const char* text;
  int narrow_loads, narrow_stores, barriers, shuffles; // at most; shuffles of each row of a warp
};
// Rows of one block each take a barrier a reduction, and one between rows in turn; rows of a warp none.
const Limits kRows[] = {
    {"Softmax768",
     "graph @main(%x: f16[8192, 768]) -> (%y: f16[8192, 768]) {\n"
     "  %y = Softmax(%x) axis=-1 : f16[8192, 768]\n}",
     0, 0, 2, 10},
    {"Softmax4096",
     "graph @main(%x: f16[8192, 4096]) -> (%y: f16[8192, 4096]) {\n"
     "  %y = Softmax(%x) axis=-1 : f16[8192, 4096]\n}",
     0, 0, 2, 10},
    {"Softmax128",
     "graph @main(%x: f32[65536, 128]) -> (%y: f32[65536, 128]) {\n"
     "  %y = Softmax(%x) axis=-1 : f32[65536, 128]\n}",
     0, 0, 0, 10},
    {"AddLayerNorm",
     "graph @main(%x: f16[8192, 768], %r: f16[8192, 768], %g: f16[768], %b: f16[768]) -> "
     "(%y: f16[8192, 768], %z: f16[8192, 768]) {\n  %z = add(%x, %r) : f16[8192, 768]\n"
     "  %y = LayerNormalization(%z, %g, %b) axis=-1 : f16[8192, 768]\n}",
     0, 0, 2, 10},
    {"RmsNorm",
     "graph @main(%x: f16[4096, 4096], %g: f16[4096]) -> (%y: f16[4096, 4096]) {\n"
     "  %y = RMSNormalization(%x, %g) axis=-1 : f16[4096, 4096]\n}",
     0, 0, 2, 5},
    {"RowMaxima",
     "graph @main(%x: f16[8192, 1024]) -> (%y: f16[8192]) {\n"
     "  %y = reduce_max(%x) axes=[1] keepdims=0 : f16[8192]\n}",
     0, 4, 1, 10},
    {"Transpose",
     "graph @main(%x: f16[4096, 4096]) -> (%y: f16[4096, 4096]) {\n"
     "  %y = transpose(%x) perm=[1, 0] : f16[4096, 4096]\n}",
     0, 0, 1, 0},
    {"AddTransposed",
     "graph @main(%x: f32[4096, 4096], %t: f32[4096, 4096]) -> (%y: f32[4096, 4096]) {\n"
     "  %p = transpose(%t) perm=[1, 0] : f32[4096, 4096]\n  %y = add(%x, %p) : f32[4096, 4096]\n}",
     0, 0, 1, 0},
};

class CudaRowFacts : public testing::TestWithParam<Limits> {};

TEST_P(CudaRowFacts, AccessesBarriersAndShufflesStayWithinLimits) {
  TemporaryFolder folder;
  const Limits& limits = GetParam();
  auto a = of_graph(limits.text, folder);
  EXPECT_LE(a.narrow_loads, limits.narrow_loads);
  EXPECT_LE(a.narrow_stores, limits.narrow_stores);
  EXPECT_LE(a.barriers, limits.barriers);
  EXPECT_LE(a.shuffles, limits.shuffles * a.rows);
}
INSTANTIATE_TEST_SUITE_P(Table, CudaRowFacts, testing::ValuesIn(kRows),
                         [](const auto& info) { return std::string(info.param.name); });

} // namespace
} // namespace tessera::driver_test
