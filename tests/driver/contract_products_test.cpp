// Products that generated contractions compute with what follows them: where that is predicted to take less time, and
// nowhere else.
#include "codegen/driver/compile.h"
#include "codegen/schedule/predict.h"
#include "codegen/target/select.h"
#include "codegen/target/target.h"
#include "harness.h"
#include <array>
#include <cmath>
#include <gtest/gtest.h>

namespace tessera::driver_test {
namespace {

// gelu(x @ w + b) by erf, which no library fuses, or relu, which it does.
std::string product(const std::string& m, int64_t k, int64_t n, bool erf, const std::string& dtype = "bf16",
                    const std::string& hint = "") {
  const std::string rows = m, inner = std::to_string(k), columns = std::to_string(n),
                    y = dtype + "[" + rows + ", " + columns + "]";
  std::string text = "graph @main(%x: " + dtype + "[" + rows + ", " + inner + "], %w: " + dtype + "[" + inner + ", " +
                     columns + "], %b: " + dtype + "[" + columns + "]) -> (%y: " + y + ")" +
                     (m == "n" ? " where n in [0, ?]" + hint : "") + " {\n  %p = matmul(%x, %w) : " + y +
                     "\n  %s = add(%p, %b) : " + y + "\n";
  return text + "  %y = " + (erf ? "Gelu" : "Relu") + "(%s) : " + y + "\n}\n";
}

CompileOptions for_gpu(const TemporaryFolder& folder, const std::string& arch = "sm_90a") {
  CompileOptions o = options(folder.path());
  o.device = "cuda";
  o.arch = arch;
  return o;
}

// The kind of the group that computes the graph's product, and the kind of its schedule.
std::string route(const std::string& text, const CompileOptions& o) {
  const Compiled compiled = compile_it(parse(text), o);
  for (const Group& group : compiled.report.plan.groups)
    if (group.kind == Group::Kind::Library) return "library";
  for (const KernelReport& kernel : compiled.report.kernels)
    if (kernel.schedule.kind == ScheduleKind::BlockContraction)
      return compiled.report.kernels.size() == 1 ? "contraction" : "contraction and others";
  return "loops";
}

// Memory that is so slow that a result in it costs more than what differs between the routes.
CompileOptions slow_memory(CompileOptions o) {
  o.memory_peak_bytes_per_us = 2e5;
  return o;
}

TEST(ContractProducts, OneKernelWhereTheResultNeedNotGoThroughMemory) {
  TemporaryFolder folder;
  const std::string text = product("4096", 1024, 4096, true);
  EXPECT_EQ(route(text, slow_memory(for_gpu(folder))), "contraction");
  EXPECT_EQ(route(product("4096", 1024, 4096, true, "f16"), slow_memory(for_gpu(folder))), "contraction");
  CompileOptions without = slow_memory(for_gpu(folder));
  without.disabled_passes = {"contract-products"};
  EXPECT_EQ(route(text, without), "library");
}

TEST(ContractProducts, ProductsOfF32ArePartsAndOneContraction) {
  TemporaryFolder folder;
  EXPECT_EQ(route(product("4096", 1024, 4096, true, "f32"), for_gpu(folder)), "contraction and others");
  EXPECT_EQ(route(product("n", 1024, 4096, true, "f32", " hint 4096"), for_gpu(folder)), "contraction and others");
  CompileOptions without = for_gpu(folder);
  without.disabled_passes = {"split-products"};
  EXPECT_EQ(route(product("4096", 1024, 4096, true, "f32"), without), "library");
}

TEST(ContractProducts, BothPricesAreInTheReport) {
  TemporaryFolder folder;
  for (const int64_t columns : {256, 4096}) {
    const Compiled compiled = compile_it(parse(product("4096", 1024, columns, true)), for_gpu(folder));
    ASSERT_EQ(compiled.report.contractions.size(), 1u);
    for (const auto& [product, choice] : compiled.report.contractions) {
      EXPECT_GT(choice.library_us, 0);
      EXPECT_GT(choice.contraction_us, 0);
      EXPECT_EQ(compiled.report.kernels[0].schedule.kind == ScheduleKind::BlockContraction, choice.taken);
      EXPECT_TRUE(!choice.taken || choice.contraction_us < choice.library_us);
    }
  }
}

TEST(ContractProducts, TheLibraryKeepsWhatItComputesAtOnceAndWhatHasNoPrice) {
  TemporaryFolder folder;
  const CompileOptions gpu = slow_memory(for_gpu(folder));
  EXPECT_EQ(route(product("4096", 1024, 4096, false), gpu), "library"); // its epilogue
  EXPECT_EQ(route(product("n", 1024, 4096, true), gpu), "library");     // no size to price it at
  EXPECT_EQ(route(product("64", 64, 64, true, "f32"), gpu), "library"); // parts take longer
  EXPECT_EQ(route(product("4096", 1024, 4096, true), slow_memory(for_gpu(folder, "sm_90"))), "library");
}

// No library multiplies 8-bit integers: with the transposed right factor that tensor cores take, one kernel does, with
// its scales.
TEST(ContractProducts, QuantisedProductsAreOneKernel) {
  TemporaryFolder folder;
  const std::string text =
      "graph @main(%x: i8[4096, 1024], %w: i8[512, 1024], %s: f32[512]) -> (%y: f16[4096, 512]) {\n"
      "  %a = cast(%x) to=i32 : i32[4096, 1024]\n"
      "  %t = transpose(%w) perm=[1, 0] : i8[1024, 512]\n"
      "  %b = cast(%t) to=i32 : i32[1024, 512]\n"
      "  %p = matmul(%a, %b) : i32[4096, 512]\n"
      "  %f = cast(%p) to=f32 : f32[4096, 512]\n"
      "  %q = mul(%f, %s) : f32[4096, 512]\n"
      "  %y = cast(%q) to=f16 : f16[4096, 512]\n}\n";
  for (const char* arch : {"sm_80", "sm_90a"}) EXPECT_EQ(route(text, for_gpu(folder, arch)), "contraction") << arch;
}

// gelu((x * s) @ (w * t) + b) as `result`; x and w are 8-bit floats, w transposed or, as a constant, not.
std::string small_floats(int64_t m, int64_t k, int64_t n, const std::string& result, const std::string& type = "bf16") {
  const std::string x = "[" + std::to_string(m) + ", " + std::to_string(k) + "]",
                    w = "[" + std::to_string(n) + ", " + std::to_string(k) + "]",
                    turned = "[" + std::to_string(k) + ", " + std::to_string(n) + "]",
                    y = "[" + std::to_string(m) + ", " + std::to_string(n) + "]", columns = std::to_string(n);
  return "graph @main(%x: f8e4m3fn" + x + ", %w: f8e4m3fn" + w + ", %s: f32[" + std::to_string(m) + ", 1], %t: f32[" +
         columns + ", 1], %b: f32[" + columns + "]) -> (%y: " + result + y + ") {\n  %x1 = cast(%x) to=f32 : f32" + x +
         "\n  %x2 = mul(%x1, %s) : f32" + x + "\n  %x3 = cast(%x2) to=" + type + " : " + type + x +
         "\n  %w1 = cast(%w) to=f32 : f32" + w + "\n  %w2 = mul(%w1, %t) : f32" + w + "\n  %w3 = cast(%w2) to=" + type +
         " : " + type + w + "\n  %w4 = transpose(%w3) perm=[1, 0] : " + type + turned +
         "\n  %p = matmul(%x3, %w4) : " + type + y + "\n  %q = cast(%p) to=f32 : f32" + y +
         "\n  %a = add(%q, %b) : f32" + y + "\n  %g = Gelu(%a) : f32" + y + "\n  %y = cast(%g) to=" + result + " : " +
         result + y + "\n}\n";
}

// (x - p) (w - q) scaled; w is [n, k] or, a constant of few elements, [k, n].
std::string shifted(bool turned, int64_t k, bool both) {
  const std::string depth = std::to_string(k), x = "[4096, " + depth + "]", w = "[" + depth + ", 512]",
                    y = "[4096, 512]";
  std::string text = "graph @main(%x: u8" + x + ", %p: u8[], %q: i8[512], %s: f32[]" +
                     (turned ? ", %w: i8[512, " + depth + "]" : ", %w: i8" + w) + ") -> (%y: f16" + y +
                     ") {\n  %x1 = cast(%x) to=i32 : i32" + x +
                     "\n  %p1 = cast(%p) to=i32 : i32[]\n  %x2 = sub(%x1, %p1) : i32" + x + "\n";
  if (turned) text += "  %v = transpose(%w) perm=[1, 0] : i8" + w + "\n";
  text += "  %w1 = cast(" + std::string(turned ? "%v" : "%w") + ") to=i32 : i32" + w + "\n";
  if (both) text += "  %q1 = cast(%q) to=i32 : i32[512]\n  %w2 = sub(%w1, %q1) : i32" + w + "\n";
  return text + "  %i = matmul(%x2, " + (both ? "%w2" : "%w1") + ") : i32" + y + "\n  %f = cast(%i) to=f32 : f32" + y +
         "\n  %g = mul(%f, %s) : f32" + y + "\n  %y = cast(%g) to=f16 : f16" + y + "\n}\n";
}

// Zero points are sums of the other factor behind the product.
TEST(ContractProducts, ZeroPointsAreBehindTheProduct) {
  TemporaryFolder folder;
  EXPECT_EQ(route(shifted(true, 1024, false), for_gpu(folder)), "contraction and others");
  EXPECT_EQ(route(shifted(true, 1024, true), for_gpu(folder)), "contraction and others");
  EXPECT_EQ(route(shifted(false, 1024, false), for_gpu(folder)), "library") << "not contiguous along the sum";
}

// One kernel with scales of rows and columns, bias, activation and quantisation, where tensor cores multiply 8-bit floats.
TEST(ContractProducts, ProductsOf8BitFloatsAreOneKernel) {
  TemporaryFolder folder;
  for (const char* type : {"f32", "bf16", "f16"})
    for (const char* result : {"bf16", "f8e4m3fn", "f8e5m2"})
      EXPECT_EQ(route(small_floats(4096, 1024, 512, result, type), for_gpu(folder)), "contraction") << type << result;
  EXPECT_EQ(route(small_floats(4096, 1024, 512, "bf16"), for_gpu(folder, "sm_89")), "contraction");
  EXPECT_NE(route(small_floats(4096, 1024, 512, "bf16"), for_gpu(folder, "sm_80")), "contraction");
  EXPECT_EQ(route(small_floats(4096, 1025, 512, "bf16"), for_gpu(folder)), "library") << "not aligned";
}

// x[rows, 4096] times weights of a byte, which a kernel would write as bf16.
std::string quantised(const std::string& m, const std::string& outputs = "") {
  return "graph @main(%x: bf16[" + m + ", 4096], %w: i8[4096, 4096], %s: bf16[4096, 1]) -> (%y: bf16[" + m + ", 4096]" +
         outputs + ")" + (m == "m" ? " where m in [0, ?] hint 64" : "") +
         " {\n  %c = cast(%w) to=bf16 : bf16[4096, 4096]\n  %f = mul(%c, %s) : bf16[4096, 4096]\n" +
         "  %t = transpose(%f) perm=[1, 0] : bf16[4096, 4096]\n  %y = matmul(%x, %t) : bf16[" + m + ", 4096]\n}\n";
}

// A factor that only the product reads is computed in its kernel where that takes less time than to write it.
TEST(ContractProducts, FactorsThatOneKernelMakesAreComputed) {
  TemporaryFolder folder;
  const CompileOptions gpu = for_gpu(folder);
  for (const char* rows : {"16", "64", "512", "m"}) EXPECT_EQ(route(quantised(rows), gpu), "contraction") << rows;
  const Compiled one =
      compile_it(parse(quantised("1")), gpu); // a sum for each row of weights, in the kernel that reads them
  EXPECT_EQ(one.report.kernels.size(), 1u);
  EXPECT_EQ(route(quantised("64", ", %f: bf16[4096, 4096]"), gpu), "library");
  EXPECT_EQ(route(quantised("64"), for_gpu(folder, "sm_90")), "library");
}

// Sums of rows are a kernel of their own; what is computed of them and of the row is the product's.
TEST(ContractProducts, NormalisedRowsAreComputedFromTheirStatistics) {
  TemporaryFolder folder;
  const std::string text =
      "graph @main(%x: bf16[8192, 1024], %g: f32[1024], %w: bf16[1024, 4096]) -> (%y: bf16[8192, 4096]) {\n"
      "  %a = cast(%x) to=f32 : f32[8192, 1024]\n"
      "  %q = mul(%a, %a) : f32[8192, 1024]\n"
      "  %t = reduce_sum(%q) axes=[1] keepdims=1 : f32[8192, 1]\n"
      "  %c = constant {0.0009765625} : f32[]\n"
      "  %m = mul(%t, %c) : f32[8192, 1]\n"
      "  %r = rsqrt(%m) : f32[8192, 1]\n"
      "  %n = mul(%a, %r) : f32[8192, 1024]\n"
      "  %h = mul(%n, %g) : f32[8192, 1024]\n"
      "  %f = cast(%h) to=bf16 : bf16[8192, 1024]\n"
      "  %y = matmul(%f, %w) : bf16[8192, 4096]\n}\n";
  EXPECT_EQ(route(text, slow_memory(for_gpu(folder))), "contraction and others");
}

TEST(ContractProducts, OneFactorIsComputedAtMost) {
  TemporaryFolder folder;
  std::string text = quantised("64");
  text.replace(text.find("%x: bf16"), 8, "%x: f32[64, 4096], %o: bf16");
  text.replace(text.find("matmul(%x"), 9, "matmul(%a");
  text.insert(text.find("  %c ="), "  %a = cast(%x) to=bf16 : bf16[64, 4096]\n");
  const Compiled compiled = compile_it(parse(text), for_gpu(folder));
  ASSERT_EQ(compiled.report.contractions.size(), 1u);
  EXPECT_NE(compiled.report.contractions.begin()->second.refusal.find("both factors"), std::string::npos);
}

// The report names the reason for each product that no contraction is priced for.
TEST(ContractProducts, TheReportSaysWhyAProductIsNotCompared) {
  TemporaryFolder folder;
  for (const auto& [text, words] : {std::pair{product("4096", 1024, 4096, false), "no kernel alone"},
                                    {product("n", 1024, 4096, true), "no hint"},
                                    {product("4096", 1024, 4096, true, "f32"), "neither f16 nor bf16"},
                                    {product("n", 1024, 4096, true, "bf16", " hint 4096"), ""}}) {
    const Compiled compiled = compile_it(parse(text), slow_memory(for_gpu(folder)));
    ASSERT_EQ(compiled.report.contractions.size(), 1u) << text;
    const ContractionChoice& choice = compiled.report.contractions.begin()->second;
    EXPECT_EQ(choice.refusal.empty(), *words == 0) << choice.refusal;
    EXPECT_NE(choice.refusal.find(words), std::string::npos) << choice.refusal;
    EXPECT_TRUE(choice.refusal.empty() || !choice.taken);
  }
  const Compiled elsewhere = compile_it(parse(product("4096", 1024, 4096, true)), for_gpu(folder, "sm_90"));
  EXPECT_TRUE(elsewhere.report.contractions.empty());
}

// A 3 x 3 convolution with channels last, by itself and with what stands behind it: its library computes these at a part
// of the rate of a product. The library keeps it where channels are no whole accesses.
TEST(ContractProducts, ConvolutionsOfImagesWithChannelsLast) {
  TemporaryFolder folder;
  auto text = [](const std::string& channels, const std::string& function) {
    const std::string y = "f16[32, 14, 14, 256]";
    std::string graph = "graph @main(%x: f16[32, 14, 14, " + channels + "], %w: f16[256, 3, 3, " + channels +
                        "]) -> (%y: " + y + ") {\n  %v = transpose(%w) perm=[0, 3, 1, 2] : f16[256, " + channels +
                        ", 3, 3]\n  " + (function.empty() ? "%y" : "%c") +
                        " = conv(%x, %v) strides=[1, 1] pads_begin=[1, 1] pads_end=[1, 1] dilations=[1, 1] "
                        "channels_last=1 : " +
                        y;
    if (!function.empty()) graph += "\n  %y = " + function + "(%c) : " + y;
    return graph + "\n}\n";
  };
  const CompileOptions gpu = for_gpu(folder);
  for (const char* function : {"", "Relu", "Gelu"}) EXPECT_EQ(route(text("256", function), gpu), "contraction");
  EXPECT_EQ(route(text("100", ""), gpu), "library");
  EXPECT_EQ(route(text("256", ""), for_gpu(folder, "sm_90")), "library");
}

// One contraction for all row counts where its price is less at the hint.
TEST(ContractProducts, SizesThatAreNotKnownArePricedAtTheirHints) {
  TemporaryFolder folder;
  const CompileOptions gpu = slow_memory(for_gpu(folder));
  EXPECT_EQ(route(product("n", 1024, 4096, true, "bf16", " hint 4096"), gpu), "contraction");
  EXPECT_EQ(route(product("n", 1024, 4096, false, "bf16", " hint 4096"), gpu), "library"); // its epilogue
}

// The predicted time of the contraction's kernel without conditions for 16384 x 1024 x 4096; `dims`: m, k, n.
double general_us(const std::array<std::string, 3>& dims, const std::string& where, const CompileOptions& options) {
  const auto& [m, k, n] = dims;
  const std::string y = "f32[" + m + ", " + n + "]";
  const Compiled compiled =
      compile_it(parse("graph @main(%x: f32[" + m + ", " + k + "], %w: f32[" + k + ", " + n + "]) -> (%y: " + y + ") " +
                       where + " {\n  %p = matmul(%x, %w) : " + y + "\n  %y = Gelu(%p) : " + y + "\n}\n"),
                 options);
  CallSizes sizes;
  for (const auto& [symbol, size] : {std::pair{"m", 16384}, {"k", 1024}, {"n", 4096}})
    if (const auto s = compiled.graph->env().find(symbol)) sizes[s->symbol_id()] = size;
  for (size_t i = 0; i < compiled.report.kernels.size(); ++i) {
    const KernelReport& kernel = compiled.report.kernels[i];
    if (kernel.schedule.kind != ScheduleKind::BlockContraction) continue;
    for (const Group& group : compiled.report.plan.groups)
      if (group.name == kernel.name)
        return predict(*compiled.graph, group.nest, named_target("h200").value(), kernel.schedule, sizes)->time.us;
  }
  return INFINITY;
}

// The kernel without conditions serves large sizes well, wherever the sizes that it was compiled at lie.
TEST(ContractProducts, OtherSizesThanThoseSeenAreServedWell) {
  TemporaryFolder folder;
  const CompileOptions gpu = for_gpu(folder);
  const double best = general_us({"16384", "1024", "4096"}, "", gpu);
  EXPECT_LT(general_us({"m", "1024", "4096"}, "where m in [0, ?] hint 700", gpu), 1.25 * best);
  EXPECT_LT(
      general_us({"m", "k", "n"}, "where m in [2, ?] hint 700, k in [2, ?] hint 1024, n in [2, ?] hint 4096", gpu),
      1.25 * best);
}

// With x[1024, n] transposed, the stride n of x is aligned at the hint, and is not at all sizes.
TEST(ContractProducts, TheLibraryKeepsStridesThatMayBeUnaligned) {
  TemporaryFolder folder;
  auto text = [](const std::string& where) {
    return "graph @main(%x: bf16[1024, n], %w: bf16[1024, 4096], %b: bf16[4096]) -> (%y: bf16[n, 4096]) where " +
           where +
           R"( {
  %t = transpose(%x) perm=[1, 0] : bf16[n, 1024]
  %p = matmul(%t, %w) : bf16[n, 4096]
  %s = add(%p, %b) : bf16[n, 4096]
  %y = Gelu(%s) : bf16[n, 4096]
})";
  };
  const CompileOptions gpu = slow_memory(for_gpu(folder));
  EXPECT_EQ(route(text("n in [1, ?] hint 4096"), gpu), "library");
  EXPECT_EQ(route(text("n in [1, ?] div 8 hint 4096"), gpu), "contraction");
}

} // namespace
} // namespace tessera::driver_test
