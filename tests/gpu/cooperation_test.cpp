// Cooperative programs on the emulator: results equal the interpreter's for any order of blocks, and a missing barrier is
// reported.
#include "codegen/emulate/emulator.h"
#include "codegen/schedule/choose_blocks.h"
#include "codegen/tile/cooperation.h"
#include "tests/base/seeds.h"
#include "tests/schedule/block_harness.h"
#include <cmath>
#include <tuple>

namespace tessera::test {
namespace {

// Each of n programs folds 64 elements; `cooperation` stands between its store and the loads of all results.
std::string sums(const std::string& cooperation) {
  return "tile.kernel @sums(%x: ptr<f32>, %w: ptr<f32> written, %y: ptr<f32> written, %c: ptr<i32> written, %n: i64) "
         R"(config(warps: 2) {
  %p = program_id 0 : i64
  %r = range 64 : tile<[64], i64>
  %base = mul(%p, 64) : i64
  %o = add(%r, %base) : tile<[64], i64>
  %v = load %x[%o] : tile<[64], f32>
  %s = reduce.sum(%v) axis=0 : f32
  store %w[%p] = %s
)" + cooperation +
         "\n}";
}
const char* const kReadAll = R"(
  %in = lt(%r, %n) : tile<[64], bool>
  %all = load %w[%r] mask=%in other=0 : tile<[64], f32>
  %sum = reduce.sum(%all) axis=0 : f32
)";
std::string last() {
  return sums(std::string("%l = arrive %c[0] rank=%p of=%n : bool\nif %l {") + kReadAll + "store %y[0] = %sum\n}");
}
std::string all() {
  return sums(std::string("grid_barrier %c[0] rank=%p of=%n\n") + kReadAll +
              "%e = mul(%v, %sum) : tile<[64], f32>\nstore %y[%o] = %e");
}

struct Ran {
  std::vector<float> y;
  std::string error;
};
Ran run(const std::string& text, int64_t n, uint64_t seed, int64_t members) {
  auto k = tile::parse(text);
  EXPECT_TRUE(k.ok()) << k.error().str();
  EXPECT_TRUE(tile::verify(*k).ok());
  std::vector<float> x(static_cast<size_t>(64 * n)), w(64, NAN);
  Ran r;
  r.y.assign(x.size(), -1);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7);
  uint32_t counter = seed % 2 ? tile::kArrivalPhase : 0;
  auto bytes = [](auto& v) { return std::as_writable_bytes(std::span(v)); };
  std::vector<tile::Argument> args{{bytes(x), {}},
                                   {bytes(w), {}},
                                   {bytes(r.y), {}},
                                   {std::as_writable_bytes(std::span(&counter, 1)), {}},
                                   {{}, {0, members}}};
  auto result = emulate(*k, args, n, {}, {.seed = seed});
  if (!result.ok()) r.error = result.error().message;
  EXPECT_TRUE(!result.ok() || tile::all_arrived(counter) == (members == n));
  return r;
}
float total(int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < 64 * n; ++i) sum += static_cast<float>(i % 7);
  return sum;
}

TEST(GpuCooperation, TheLastBlockFinishes) {
  for (uint64_t seed = 0; seed < seeds(6); ++seed)
    for (int64_t n : {1, 2, 17}) {
      Ran r = run(last(), n, seed, n);
      EXPECT_EQ(r.error, "");
      EXPECT_EQ(r.y[0], total(n));
    }
}

TEST(GpuCooperation, BlocksWaitForEachOther) {
  for (uint64_t seed = 0; seed < seeds(4); ++seed)
    for (int64_t n : {1, 3, 16}) {
      Ran r = run(all(), n, seed, n);
      EXPECT_EQ(r.error, "");
      for (size_t i = 0; i < r.y.size(); ++i) ASSERT_EQ(r.y[i], static_cast<float>(i % 7) * total(n));
    }
}

// More threads at a time than half of the areas of memory that a process has by default (65530).
TEST(GpuCooperation, FortyBlocksOfAThousandThreadsWait) {
  std::string text = all();
  const std::string two = "warps: 2";
  text.replace(text.find(two), two.size(), "warps: 32");
  Ran r = run(text, 40, 1, 40);
  EXPECT_EQ(r.error, "");
  for (size_t i = 0; i < r.y.size(); ++i) ASSERT_EQ(r.y[i], static_cast<float>(i % 7) * total(40));
}

TEST(GpuCooperation, WhoNeverComesIsMissed) {
  Ran r = run(all(), 3, 0, 4);
  EXPECT_NE(r.error.find("waits for cooperative blocks that never arrive"), std::string::npos) << r.error;
}

// A read of another block's result that nothing orders, by a block that was not the last.
TEST(GpuCooperation, RacesBetweenBlocksAreFound) {
  std::string text = sums(std::string("%l = arrive %c[0] rank=%p of=%n : bool") + kReadAll + "store %y[%p] = %sum");
  bool found = false;
  for (uint64_t seed = 0; seed < seeds(4); ++seed) {
    Ran r = run(text, 4, seed, 4);
    found = found || r.error.find("no arrival or grid barrier lies between them") != std::string::npos;
  }
  EXPECT_TRUE(found);
  // Two blocks that write one place.
  text = sums("%l = arrive %c[0] rank=%p of=%n : bool\nstore %y[0] = %s");
  found = false;
  for (uint64_t seed = 0; seed < seeds(4); ++seed)
    found = found || run(text, 4, seed, 4).error.find("is not ordered with an access by block") != std::string::npos;
  EXPECT_TRUE(found);
}

// Each of n cooperative blocks publishes its number of every kind, and a block of `warps` warps finds those of all.
std::string publish(int warps, int places) {
  const std::string n = std::to_string(places);
  auto tile = [&](const char* t) { return "tile<[" + n + "], " + t + ">"; };
  return "tile.kernel @publish(%x: ptr<f32>, %y: ptr<f64> written, %c: ptr<i32> written, %n: i64) config(warps: " +
         std::to_string(warps) + R"() {
  %p = program_id 0 : i64
  %v = load %x[%p] : f32
  %d = cast(%v) : f64
  %third = div(%d, 3.0) : f64
  %h = cast(%v) : f16
  %one = lt(%v, 1.0) : bool
  %vs, %ds, %hs, %ones, %ps = exchange(%v, %third, %h, %one, %p) %c[0] rank=%p of=%n : )" +
         tile("f32") + ", " + tile("f64") + ", " + tile("f16") + ", " + tile("bool") + ", " + tile("i64") + R"(
  %a = cast(%vs) : )" +
         tile("f64") + "\n%b = cast(%hs) : " + tile("f64") + "\n%e = cast(%ones) : " + tile("f64") +
         "\n%f = cast(%ps) : " + tile("f64") + R"(
  %r = range )" +
         n + " : " + tile("i64") + "\n%base = mul(%p, " + n + ") : i64\n%o = add(%r, %base) : " + tile("i64") +
         "\n%g = mul(%a, 1000.0) : " + tile("f64") + "\n%i = add(%g, %ds) : " + tile("f64") +
         "\n%j = add(%i, %b) : " + tile("f64") + "\n%k = add(%j, %e) : " + tile("f64") +
         "\n%l = mul(%k, %f) : " + tile("f64") + "\nstore %y[%o] = %l\n}";
}

TEST(GpuCooperation, BlocksExchangeNumbers) {
  for (auto [warps, places, n] : {std::tuple{1, 2, 1}, {1, 32, 5}, {2, 16, 16}, {1, 64, 33}, {4, 64, 40}}) {
    auto k = tile::parse(publish(warps, places));
    ASSERT_TRUE(k.ok()) << k.error().str();
    ASSERT_TRUE(tile::verify(*k).ok()) << tile::verify(*k).error().str();
    const auto count = static_cast<size_t>(n);
    std::vector<float> x(count);
    for (size_t i = 0; i < count; ++i) x[i] = static_cast<float>(i % 5);
    std::vector<uint32_t> mailboxes(count * count * 12); // 7 words of numbers: three messages
    auto bytes = [](auto& v) { return std::as_writable_bytes(std::span(v)); };
    for (uint64_t seed = 0; seed < seeds(3); ++seed) {
      std::vector<double> y(count * static_cast<size_t>(places), -1);
      std::vector<tile::Argument> args{{bytes(x), {}}, {bytes(y), {}}, {bytes(mailboxes), {}}, {{}, {0, n}}};
      auto r = emulate(*k, args, n, {}, {.seed = seed});
      ASSERT_TRUE(r.ok()) << r.error().str();
      for (size_t p = 0; p < count; ++p)
        for (size_t m = 0; m < static_cast<size_t>(places); ++m) {
          const double v = m < count ? x[m] : 0;
          const double want = m < count ? (v * 1000 + v / 3.0 + v + (v < 1 ? 1 : 0)) * static_cast<double>(m) : 0;
          ASSERT_EQ(y[p * static_cast<size_t>(places) + m], want) << p << " " << m;
        }
      ASSERT_EQ(mailboxes, std::vector<uint32_t>(mailboxes.size())) << "every box is empty again";
    }
    if (n < 3) continue;
    std::vector<double> y(count * static_cast<size_t>(places));
    std::vector<tile::Argument> args{{bytes(x), {}}, {bytes(y), {}}, {bytes(mailboxes), {}}, {{}, {0, n}}};
    auto r = emulate(*k, args, n - 1, {}, {.seed = 1}); // one does not come
    ASSERT_FALSE(r.ok());
    EXPECT_NE(r.error().message.find("waits for cooperative blocks that never arrive"), std::string::npos);
  }
}

TEST(GpuCooperation, PtxTellsInMessages) {
  auto k = tile::parse(publish(2, 16));
  auto code = compile_gpu_kernel(*k, {});
  ASSERT_TRUE(code.ok()) << code.error().str();
  EXPECT_NE(code->ptx.find("st.relaxed.gpu.global.b128"), std::string::npos);
  EXPECT_NE(code->ptx.find("ld.relaxed.gpu.global.b128"), std::string::npos);
  EXPECT_EQ(code->ptx.find("atom."), std::string::npos) << "no counter";
  EXPECT_EQ(code->ptx.find("fence."), std::string::npos);
}

TEST(GpuCooperation, PtxOrdersMemoryAroundTheCounter) {
  auto ptx = [](const std::string& text) {
    auto code = compile_gpu_kernel(*tile::parse(text), {});
    EXPECT_TRUE(code.ok()) << code.error().str();
    return code.ok() ? code->ptx : std::string();
  };
  auto finished = ptx(last()), waited = ptx(all());
  EXPECT_NE(finished.find("atom.acq_rel.gpu.global.add.u32"), std::string::npos) << finished;
  EXPECT_EQ(finished.find("ld.acquire"), std::string::npos);
  EXPECT_NE(waited.find("ld.acquire.gpu.global.u32"), std::string::npos) << waited;
  // Values that other blocks wrote are not read through the cache for constant data.
  for (const auto& text : {finished, waited}) {
    auto after = text.substr(text.find("atom.acq_rel"));
    EXPECT_EQ(after.find("ld.global.nc"), std::string::npos) << text;
  }
}

} // namespace
} // namespace tessera::test
