// Loads of neighbours that begin at any alignment: every shift, interval of the mask and end of the memory. The
// emulator refuses what is read beyond the memory's last element.
#include "harness.h"

namespace tessera::test {
namespace {

using tile::ValueId;

// The part of x that a program reads: its indices [lo, hi) are elements from + lo to from + hi of x.
struct Read {
  int64_t from, lo, hi;
};

enum class Masked : uint8_t { No, Yes, Other };

struct Case {
  DType from = DType::F16, to = DType::F16;
  std::vector<int> shape;
  Masked masked = Masked::No;
  bool count_is_known = true;
  int64_t pitch = 0; // of rows in x, where they are not as in the tile
  bool shift_is_known = false;
};

void expect_windows(const Case& c, int64_t elements, const std::vector<Read>& reads) {
  int64_t count = 1;
  for (int d : c.shape) count *= d;
  KernelMaker m("windows");
  const auto x = m.in("x", c.from), y = m.out("y", c.to);
  const ValueId from = m.in("from", DType::I64), lo = m.in("lo", DType::I64), hi = m.in("hi", DType::I64);
  m.k.params[0].invariant = true;
  GpuRun run;
  if (c.count_is_known) {
    m.k.params[0].elements = elements;
  } else {
    m.k.params[0].elements_value = m.size("n");
    run.scalars = {elements};
  }
  const auto p = m.b.program_id(0), place = m.offsets(c.shape);
  const auto start = c.shift_is_known ? m.i(reads[0].from) : m.b.load(from, p);
  auto at = m.add(place, start);
  if (c.pitch > 0) at = m.add(m.add(m.mul(m.along(c.shape, 0), m.i(c.pitch)), m.along(c.shape, 1)), start);
  ValueId mask = -1, other = -1;
  if (c.masked != Masked::No)
    mask = m.op(ScalarOp::And,
                {m.op(ScalarOp::Ge, {place, m.b.load(lo, p)}), m.op(ScalarOp::Lt, {place, m.b.load(hi, p)})});
  if (c.masked == Masked::Other)
    other = is_float(c.from) ? m.b.const_f(c.from, 5) : m.b.const_i(c.from, c.from == DType::Bool ? 1 : 5);
  const auto v = m.b.load(x, at, mask, other);
  m.b.store(y, m.add(place, m.mul(p, m.i(count))), c.from == c.to ? v : m.b.cast(v, c.to));
  run.grid = static_cast<int64_t>(reads.size());
  run.buffers = {random_tensor(c.from, elements, 7), filled(c.to, count * run.grid, 0)};
  for (auto part : {&Read::from, &Read::lo, &Read::hi}) {
    Tensor t = filled(DType::I64, run.grid, 0);
    for (size_t i = 0; i < reads.size(); ++i) t.set_i64(static_cast<int64_t>(i), reads[i].*part);
    run.buffers.push_back(std::move(t));
  }
  run.warps = {1, 4};
  run.seeds = 1;
  expect_as_interpreted(std::move(m.k), run);
}

constexpr int64_t kPlaces = 512, kElements = kPlaces + 37;
const std::vector<DType> kTypes = {DType::F16, DType::BF16, DType::F32, DType::I8, DType::Bool, DType::U16, DType::I32};

std::vector<Read> whole_reads() {
  std::vector<Read> reads;
  for (int64_t from = 0; from + kPlaces <= kElements; ++from) reads.push_back({from, 0, kPlaces});
  return reads;
}
// Rows that begin below the memory's start and end behind its end, short ones, and none at all.
std::vector<Read> parts() {
  std::vector<Read> reads;
  auto add = [&](int64_t from, int64_t lo, int64_t hi) {
    reads.push_back({from, std::max({lo, -from, int64_t{0}}), std::min({hi, kElements - from, kPlaces})});
  };
  for (int64_t from = -17; from < 54; ++from) {
    add(from, 0, kPlaces);
    add(from, 17 + from % 3, 17 + from % 3 + (from + 17) % 20);
  }
  add(kElements - 1, 0, 1);
  add(0, 0, 1);
  add(3, 9, 9);
  return reads;
}

TEST(GpuWindows, EveryShiftAndType) {
  for (auto d : kTypes)
    for (const auto& shape : std::vector<std::vector<int>>{{512}, {2, 32, 8}}) {
      SCOPED_TRACE(std::string(name(d)) + " rank " + std::to_string(shape.size()));
      expect_windows({d, d, shape}, kElements, whole_reads());
      if (HasFatalFailure()) return;
    }
}

TEST(GpuWindows, EndsOfRowsAndOfMemory) {
  for (auto d : kTypes)
    for (auto masked : {Masked::Yes, Masked::Other}) {
      SCOPED_TRACE(name(d));
      const bool known = masked == Masked::Yes;
      expect_windows({d, d, {512}, masked, known}, kElements, parts());
      if (HasFatalFailure()) return;
    }
  expect_windows({DType::F16, DType::F16, {2, 32, 8}, Masked::Yes}, kElements, parts());
}

// A thread has as many neighbours as the widest access of the narrower type has elements: two windows of the other.
TEST(GpuWindows, SeveralInARun) {
  for (auto masked : {Masked::No, Masked::Yes, Masked::Other})
    for (auto [from, to] : {std::pair{DType::F32, DType::F16}, {DType::F32, DType::I8}, {DType::F16, DType::F32}}) {
      SCOPED_TRACE(std::string(name(from)) + " to " + std::string(name(to)));
      expect_windows({from, to, {512}, masked}, kElements, masked == Masked::No ? whole_reads() : parts());
      if (HasFatalFailure()) return;
    }
}

TEST(GpuWindows, RowsOfOddPitch) {
  for (auto d : {DType::F16, DType::F32, DType::I8}) {
    std::vector<Read> reads;
    for (int64_t from = 0; from < 20; ++from) reads.push_back({from, 0, kPlaces});
    expect_windows({d, d, {4, 128}, Masked::No, true, 131}, 4 * 131 + 16, reads);
    if (HasFatalFailure()) return;
  }
}

TEST(GpuWindows, ShiftsThatAreKnown) {
  for (int64_t shift : {1, 4, 7})
    expect_windows({DType::F16, DType::F16, {512}, Masked::No, true, 0, true}, kPlaces + shift, {{shift, 0, kPlaces}});
}

TEST(GpuWindows, ElementsArePromised) {
  KernelMaker m("promise");
  const auto x = m.in("x", DType::F16), y = m.out("y", DType::F16);
  m.k.params[0].invariant = true;
  m.k.params[0].elements = 9;
  m.b.store(y, m.i(0), m.b.load(x, m.i(0)));
  Tensor from = filled(DType::F16, 8, 1), to = filled(DType::F16, 1, 0);
  const tile::Argument args[] = {{{from.mutable_data(), from.bytes()}, {}}, {{to.mutable_data(), to.bytes()}, {}}};
  EXPECT_FALSE(tile::interpret(m.k, args, 1).ok());
  auto program = EmulatedProgram::compile(m.k, {});
  ASSERT_TRUE(program.ok());
  auto r = program->run(args, 1);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("promised elements"), std::string::npos) << r.error().str();
}

} // namespace
} // namespace tessera::test
