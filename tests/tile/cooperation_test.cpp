// Programs that meet: text, rules, meaning.
#include "codegen/tile/cooperation.h"
#include "helpers.h"
#include <array>

namespace tessera::tile::test {
namespace {

using List = std::vector<double>;

// Each of n programs squares an element; the last one adds the squares up.
const char* const kLastAdds = R"(
tile.kernel @last(%x: ptr<f32>, %w: ptr<f32> written, %y: ptr<f32> written, %c: ptr<i32> written, %n: i64) {
  %p = program_id 0 : i64
  %v = load %x[%p] : f32
  %s = mul(%v, %v) : f32
  store %w[%p] = %s
  %last = arrive %c[0] rank=%p of=%n : bool
  if %last {
    %r = range 8 : tile<[8], i64>
    %in = lt(%r, %n) : tile<[8], bool>
    %all = load %w[%r] mask=%in other=0 : tile<[8], f32>
    %sum = reduce.sum(%all) axis=0 : f32
    store %y[0] = %sum
  }
})";
// Pairs of programs exchange elements, twice.
const char* const kExchange = R"(
tile.kernel @exchange(%x: ptr<f32>, %w: ptr<f32> written, %y: ptr<f32> written, %c: ptr<i32> written) {
  %p = program_id 0 : i64
  %group = div(%p, 2) : i64
  %rank = mod(%p, 2) : i64
  %two = const 2 : i64
  %base = mul(%group, %two) : i64
  %other = sub(1, %rank) : i64
  %there = add(%base, %other) : i64
  %v = load %x[%p] : f32
  store %w[%p] = %v
  grid_barrier %c[%group] rank=%rank of=%two
  %u = load %w[%there] : f32
  %d = mul(%u, 2) : f32
  %q = add(%p, 100) : i64
  %back = add(%there, 100) : i64
  store %w[%q] = %d
  grid_barrier %c[%group] rank=%rank of=%two
  %e = load %w[%back] : f32
  %z = sub(%e, %u) : f32
  store %y[%p] = %z
})";

TEST(Cooperation, CountersReturnToRestForAnyNumberOfPrograms) {
  uint32_t counter = 0;
  for (int64_t n : {1, 2, 3, 7, 1000, 2, 1}) {
    std::vector<int64_t> order;
    for (int64_t m = 0; m < n; ++m) order.insert(m % 3 ? order.end() : order.begin(), m);
    uint32_t before = counter;
    for (size_t i = 0; i < order.size(); ++i) {
      counter += arrival_increment(order[i], n);
      EXPECT_EQ(all_arrived(counter), i + 1 == order.size());
      EXPECT_EQ(((counter ^ before) & kArrivalPhase) != 0, i + 1 == order.size());
    }
  }
}

TEST(Cooperation, TheLastProgramFinishes) {
  Kernel k = read(kLastAdds);
  EXPECT_FALSE(needs_cooperative_launch(k));
  EXPECT_EQ(print(read(print(k))), print(k));
  for (int64_t n : {1, 2, 5, 8}) {
    Outcome r = run(k, {{1, 2, 3, 4, 5, 6, 7, 8}, List(8), {-1}, {0}}, {n}, n);
    EXPECT_EQ(r.error, "");
    EXPECT_EQ(r.arrays[2][0], static_cast<double>(n * (n + 1) * (2 * n + 1) / 6));
    EXPECT_TRUE(all_arrived(static_cast<uint32_t>(static_cast<int64_t>(r.arrays[3][0]))));
  }
  Outcome some = run(k, {{1, 2, 3}, List(8), {-1}, {0}}, {3}, 2); // one does not arrive
  EXPECT_EQ(some.arrays[2][0], -1);
}

TEST(Cooperation, AllWaitAtTheGridBarrier) {
  Kernel k = read(kExchange);
  EXPECT_TRUE(needs_cooperative_launch(k));
  EXPECT_EQ(print(read(print(k))), print(k));
  Outcome r = run(k, {{1, 2, 30, 40}, List(200), List(4), {0, 0}}, {}, 4);
  EXPECT_EQ(r.error, "");
  EXPECT_EQ(r.arrays[2], (List{2 * 1 - 2, 2 * 2 - 1, 2 * 30 - 40, 2 * 40 - 30}));
  r = run(k, {{1, 2, 3}, List(200), List(4), {0, 0}}, {}, 3);
  EXPECT_NE(r.error.find("program 2 waits for cooperative programs that never arrive"), std::string::npos) << r.error;
}

// n programs exchange partial results of four types and sum them.
const char* const kSumOfPartials = R"(
tile.kernel @sum_of_partials(%x: ptr<f32>, %d: ptr<f64>, %y: ptr<f64> written, %c: ptr<i32> written, %n: i64) {
  %p = program_id 0 : i64
  %group = div(%p, %n) : i64
  %rank = mod(%p, %n) : i64
  %v = load %x[%p] : f32
  %w = load %d[%p] : f64
  %odd = mod(%rank, 2) : i64
  %b = eq(%odd, 1) : bool
  %words = mul(%n, %n) : i64
  %each = mul(%words, 8) : i64
  %mailboxes = mul(%group, %each) : i64
  %vs, %ws, %bs, %ps = exchange(%v, %w, %b, %p) %c[%mailboxes] rank=%rank of=%n : tile<[8], f32>, tile<[8], f64>, tile<[8], bool>, tile<[8], i64>
  %first = cast(%vs) : tile<[8], f64>
  %third = cast(%bs) : tile<[8], f64>
  %fourth = cast(%ps) : tile<[8], f64>
  %s = add(%first, %ws) : tile<[8], f64>
  %t = add(%s, %third) : tile<[8], f64>
  %u = add(%t, %fourth) : tile<[8], f64>
  %sum = reduce.sum(%u) axis=0 : f64
  store %y[%p] = %sum
})";

TEST(Cooperation, EveryProgramReceivesAllPartials) {
  EXPECT_EQ(packet_words(std::array{DType::F32, DType::F32, DType::F32}), 4);
  EXPECT_EQ(packet_words(std::array{DType::F32, DType::F64, DType::Bool, DType::I64}), 8);
  Kernel k = read(kSumOfPartials);
  EXPECT_TRUE(needs_cooperative_launch(k));
  EXPECT_EQ(print(read(print(k))), print(k));
  const List x{1, 2, 4, 8, 16, 32}, d{0.25, 0.5, 1.0 / 3, 7, -1e300, 1e300};
  for (int64_t n : {1, 2, 3, 6}) {
    Outcome r = run(k, {x, d, List(6), List(6 * 6 * 8)}, {n}, 6);
    EXPECT_EQ(r.error, "");
    for (int64_t p = 0; p < 6; ++p) {
      double sum = 0;
      for (int64_t m = 0; m < n; ++m) {
        const auto q = static_cast<size_t>(p / n * n + m);
        sum += x[q] + d[q] + static_cast<double>(m % 2) + static_cast<double>(q);
      }
      EXPECT_DOUBLE_EQ(r.arrays[2][static_cast<size_t>(p)], sum) << n;
    }
    EXPECT_EQ(r.arrays[3], List(6 * 6 * 8)) << "every mailbox is empty again";
  }
  Outcome r = run(k, {x, d, List(6), List(6 * 6 * 8)}, {4}, 6);
  EXPECT_NE(r.error.find("program 4 waits for cooperative programs that never arrive"), std::string::npos) << r.error;
  r = run(k, {List(9), List(9), List(9), List(9 * 9 * 8)}, {9}, 9);
  EXPECT_NE(r.error.find("exchanges as rank 0 of 9"), std::string::npos) << r.error;
  r = run(k, {x, d, List(6), List(8)}, {2}, 6);
  EXPECT_NE(r.error.find("exchange through 'c' at offset"), std::string::npos) << r.error;
  List full(6 * 6 * 8);
  full[3] = 1;
  r = run(k, {x, d, List(6), full}, {2}, 6);
  EXPECT_NE(r.error.find("writes to a mailbox slot that was not read"), std::string::npos) << r.error;
}

TEST(Cooperation, WhatIsRefused) {
  auto error = [](const std::string& body, const std::string& c = "ptr<i32> written") {
    auto k = parse("tile.kernel @t(%c: " + c + ", %n: i64) {\n" + body + "\n}");
    if (!k.ok()) return k.error().message;
    auto ok = verify(*k);
    return ok.ok() ? std::string() : ok.error().message;
  };
  EXPECT_EQ(error("grid_barrier %c[0] rank=0 of=%n"), "");
  EXPECT_EQ(error("%l = arrive %c[0] rank=0 of=%n : bool"), "");
  EXPECT_NE(error("grid_barrier %c[0] rank=0 of=%n", "ptr<i64> written").find("counters are i32"), std::string::npos);
  EXPECT_NE(error("grid_barrier %c[0] rank=0 of=%n", "ptr<i32>").find("not marked written"), std::string::npos);
  EXPECT_NE(error("%r = range 4 : tile<[4], i64>\ngrid_barrier %c[%r] rank=0 of=%n").find("i64 scalars"),
            std::string::npos);
  EXPECT_NE(error("for %i = 0 to %n step 1 {\ngrid_barrier %c[0] rank=0 of=%n\n}").find("inside a region"),
            std::string::npos);
  EXPECT_NE(error("%l = arrive %c[0] rank=0 of=%n : i64").find("arrive yields 'bool'"), std::string::npos);
  auto exchange = [&](const std::string& type, const char* number = "%n") {
    return error("%a = exchange(" + std::string(number) + ") %c[0] rank=0 of=%n : " + type);
  };
  EXPECT_EQ(exchange("tile<[4], i64>"), "");
  EXPECT_NE(exchange("tile<[4, 2], i64>").find("yields a tile with one dimension"), std::string::npos);
  EXPECT_NE(exchange("tile<[4], f32>").find("yields a tile with one dimension"), std::string::npos);
  EXPECT_NE(exchange("i64").find("yields a tile with one dimension"), std::string::npos);
  EXPECT_NE(exchange("tile<[4], i64>", "%c").find("cannot exchange"), std::string::npos);
  EXPECT_NE(error("for %i = 0 to %n step 1 {\n%a = exchange(%n) %c[0] rank=0 of=%n : tile<[4], i64>\n}")
                .find("inside a region"),
            std::string::npos);
  EXPECT_NE(
      error("%a = exchange(%n) %c[0] rank=0 of=%n : tile<[4], i64>", "ptr<f32> written").find("mailboxes are i32"),
      std::string::npos);
  Outcome r = run(read(kLastAdds), {{1, 2}, List(8), {-1}, {0}}, {1}, 2);
  EXPECT_NE(r.error.find("arrives as rank 1 of 1"), std::string::npos) << r.error;
}

} // namespace
} // namespace tessera::tile::test
