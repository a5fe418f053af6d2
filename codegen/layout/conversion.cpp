#include "codegen/layout/conversion.h"
#include "codegen/layout/choose.h"
#include <algorithm>
#include <bit>
#include <map>
#include <set>

namespace tessera::layout {
namespace {

constexpr int kWordBytes = 4, kBanks = 32;
constexpr int kRowBits = 7; // log2 of the bytes of all banks, 128

int log2_of(int n) { return std::countr_zero(static_cast<unsigned>(n)); }
size_t at(int i) { return static_cast<size_t>(i); }

// Lanes that are served at once if each moves this number of bytes.
int lanes_at_once(int bytes) { return std::min(kLanes, kBanks * kWordBytes / bytes); }

std::optional<Conversion> by_shuffles(const LinearLayout& from, const LinearLayout& to, int element_bytes) {
  LinearLayout place = to.invert_and_compose(from); // (register, lane, warp) of the result -> of the operand
  for (int i = 0; i < place.in_bits(Dim::Warp); ++i)
    if (place.basis(Dim::Warp, i, Dim::Warp) != 1 << i || place.basis(Dim::Warp, i, Dim::Lane) ||
        place.basis(Dim::Warp, i, Dim::Register))
      return std::nullopt;
  for (Dim d : {Dim::Register, Dim::Lane})
    for (int i = 0; i < place.in_bits(d); ++i)
      if (place.basis(d, i, Dim::Warp)) return std::nullopt;

  Conversion c;
  c.kind = Conversion::Kind::Shuffles;
  // Which operand register a lane needs may depend on the lane: the images of the lane bits span the choices.
  std::vector<int> choices;
  auto reduced = [&](int v, uint32_t& used) { // v reduced by the choices' leading bits; `used`: which of them
    for (size_t j = 0; j < choices.size(); ++j)
      if (v & static_cast<int>(std::bit_floor(static_cast<unsigned>(choices[j])))) v ^= choices[j], used ^= 1u << j;
    return v;
  };
  for (int i = 0; i < kLaneBits; ++i) {
    c.lane_bases[at(i)] = place.basis(Dim::Lane, i, Dim::Lane);
    uint32_t used = 0;
    if (int left = reduced(place.basis(Dim::Lane, i, Dim::Register), used)) {
      choices.push_back(left);
      c.selector_masks.push_back(0);
      used |= 1u << (choices.size() - 1);
    }
    for (size_t j = 0; j < choices.size(); ++j)
      if (used >> j & 1) c.selector_masks[j] |= 1u << i;
  }
  int words = std::max(1, element_bytes / kWordBytes);
  constexpr int kMaxShuffles = 32; // beyond that two barriers and two accesses are cheaper
  if (!choices.empty() && (to.registers() << choices.size()) * words > kMaxShuffles) return std::nullopt;
  for (int r = 0; r < to.registers(); ++r) {
    c.lane_of_register.push_back(place.apply(Dim::Register, r, Dim::Lane));
    std::vector<int> from_registers;
    for (unsigned t = 0; t < 1u << choices.size(); ++t) {
      int source = place.apply(Dim::Register, r, Dim::Register);
      for (size_t j = 0; j < choices.size(); ++j)
        if (t >> j & 1) source ^= choices[j];
      from_registers.push_back(source);
    }
    c.shuffled.push_back(std::move(from_registers));
  }
  return c;
}

// Layouts of the same bits, where lanes have bits of the tile that registers have in the other.
std::optional<Conversion> by_swaps(const LinearLayout& from, const LinearLayout& to) {
  auto equal = [&](Dim d) {
    const auto a = from.bases(d), b = to.bases(d);
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  };
  if (!equal(Dim::Warp) || from.in_bits(Dim::Register) != to.in_bits(Dim::Register)) return std::nullopt;
  std::vector<Bits> registers(from.bases(Dim::Register).begin(), from.bases(Dim::Register).end());
  Conversion c;
  c.kind = Conversion::Kind::Swaps;
  for (int i = 0; i < kLaneBits; ++i) {
    const Bits before = from.bases(Dim::Lane)[at(i)], after = to.bases(Dim::Lane)[at(i)];
    if (before == after) continue;
    const auto it = std::find(registers.begin(), registers.end(), after);
    if (before == 0 || after == 0 || it == registers.end()) return std::nullopt;
    c.swaps.push_back({i, static_cast<int>(it - registers.begin())});
    *it = before;
  }
  std::vector<int> bits; // of the swapped operand's index, by bit of the result's
  for (const Bits b : to.bases(Dim::Register)) {
    const auto it = std::find(registers.begin(), registers.end(), b);
    if (it == registers.end()) return std::nullopt;
    bits.push_back(static_cast<int>(it - registers.begin()));
  }
  for (int r = 0; r < to.registers(); ++r) {
    int source = 0;
    for (size_t i = 0; i < bits.size(); ++i)
      if (r >> i & 1) source |= 1 << bits[i];
    c.register_map.push_back(source);
  }
  return c;
}

// Non-zero bases of the lanes that are served at once.
std::vector<Bits> lanes_of(const LinearLayout& l, int bytes) {
  std::vector<Bits> r;
  for (int i = 0; i < log2_of(lanes_at_once(bytes)); ++i)
    if (Bits b = l.bases(Dim::Lane)[at(i)]) r.push_back(b);
  return r;
}

// Length of the common prefix of two lists of register bits.
int common_prefix(std::span<const Bits> a, std::span<const Bits> b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return static_cast<int>(n);
}

using Matrices = Conversion::Matrices;

// The bits of an ldmatrix load in a layout: contiguous elements of a row, and rows; nothing if it cannot serve the
// layout.
struct MatrixBits {
  std::vector<Bits> row, rows;
};
std::optional<MatrixBits> matrix_bits(const LinearLayout& to, Matrices kind) {
  std::span<const Bits> lanes = to.bases(Dim::Lane), registers = to.bases(Dim::Register);
  if (registers.size() < 2) return std::nullopt;
  MatrixBits m{{registers[0], lanes[0], lanes[1]}, {lanes[2], lanes[3], lanes[4]}};
  for (Bits b : {m.row[0], m.row[1], m.row[2], m.rows[0], m.rows[1], m.rows[2]})
    if (b == 0) return std::nullopt;
  if (kind == Matrices::Columns) std::swap(m.row, m.rows);
  return m;
}

// Cycles of warp 0: eight rows of 16 bytes are served at once.
int matrix_wavefronts(const Conversion& c) {
  constexpr int kRowElements = 8, kRowsOfBanks = kBanks * kWordBytes / kAccessBytes;
  std::array<int, kLaneBits> rows = c.row_bases();
  int total = 0;
  for (int r = 0; r < c.load.registers(); r += 2) {
    std::map<int, std::set<int>> banks;
    size_t most = 1;
    for (int row = 0; row < 8; ++row) {
      int offset = c.load.apply(Dim::Register, r, Dim::Offset);
      for (int i = 0; i < 3; ++i)
        if (row >> i & 1) offset ^= rows[at(i)];
      auto& set = banks[offset / kRowElements % kRowsOfBanks];
      set.insert(offset);
      most = std::max(most, set.size());
    }
    total += static_cast<int>(most);
  }
  return total;
}

// The arrangement whose lowest offset bits are `vector`: both layouts move single bits of the tile, so all vectors here
// but those of S are unit vectors.
Conversion arranged(const LinearLayout& from, const LinearLayout& to, std::span<const Bits> vector, int element_bytes,
                    Matrices matrices = Matrices::None) {
  Conversion c;
  c.kind = Conversion::Kind::Shared;
  c.store_width = 1 << common_prefix(vector, from.bases(Dim::Register));
  c.load_width = 1 << common_prefix(vector, to.bases(Dim::Register));
  c.load_matrices = matrices;

  auto contains = [](std::span<const Bits> list, Bits b) {
    return std::find(list.begin(), list.end(), b) != list.end();
  };
  std::vector<Bits> store_lanes = lanes_of(from, c.store_width * element_bytes),
                    load_lanes = matrices == Matrices::None ? lanes_of(to, c.load_width * element_bytes)
                                                            : matrix_bits(to, matrices)->rows;
  std::vector<Bits> only_store, only_load, both, neither; // bits that are not in the vector
  for (int i = 0; i < from.out_bits(); ++i) {
    Bits b = Bits{1} << i;
    if (contains(vector, b)) continue;
    bool s = contains(store_lanes, b), l = contains(load_lanes, b);
    (s && l ? both : s ? only_store : l ? only_load : neither).push_back(b);
  }
  // S: bits that no lane moves along, then sums of one that only storing lanes and one that only loading lanes move
  // along. If these do not suffice, conflicts are unavoidable with this vector.
  size_t wanted = at(std::max(0, from.out_bits() - (kRowBits - log2_of(element_bytes))));
  std::vector<Bits> segments, banks;
  auto place = [&](Bits b, Bits with) {
    if (segments.size() < wanted)
      segments.push_back(b ^ with);
    else
      banks.push_back(b);
  };
  // From the highest bit down, so that low bits stay within one row of banks.
  for (size_t i = neither.size(); i-- > 0;) place(neither[i], 0);
  size_t pairs = std::min(only_store.size(), only_load.size());
  for (size_t i = 0; i < pairs; ++i) {
    place(only_load[i], segments.size() < wanted ? only_store[i] : 0);
    banks.push_back(only_store[i]);
  }
  for (size_t i = pairs; i < only_store.size(); ++i) place(only_store[i], 0);
  for (size_t i = pairs; i < only_load.size(); ++i) place(only_load[i], 0);
  for (Bits b : both) place(b, 0);
  std::vector<Bits> bases(vector.begin(), vector.end());
  bases.insert(bases.end(), banks.begin(), banks.end());
  bases.insert(bases.end(), segments.begin(), segments.end());
  LinearLayout memory({{Dim::Offset, from.out_bits()}}, from.out(), std::move(bases));
  c.store = from.invert_and_compose(memory);
  c.load = to.invert_and_compose(memory);
  c.store_free_lanes = from.free_mask(Dim::Lane);
  c.store_free_warps = from.free_mask(Dim::Warp);
  c.shared_bytes = (int64_t{1} << from.out_bits()) * element_bytes;
  c.store_wavefronts = wavefronts(c.store, c.store_width, element_bytes, c.store_free_lanes);
  c.load_wavefronts =
      matrices == Matrices::None ? wavefronts(c.load, c.load_width, element_bytes) : matrix_wavefronts(c);
  auto least = [&](const LinearLayout& l, int width) {
    return l.registers() / width * (kLanes / lanes_at_once(width * element_bytes));
  };
  c.least_wavefronts =
      least(from, c.store_width) + (matrices == Matrices::None ? least(to, c.load_width) : to.registers() / 2);
  return c;
}

Conversion by_memory(const LinearLayout& from, const LinearLayout& to, int element_bytes) {
  std::optional<Conversion> best;
  auto cost = [&](const Conversion& c) {
    return std::pair(c.store_wavefronts + c.load_wavefronts,
                     from.registers() / c.store_width + to.registers() / c.load_step());
  };
  auto consider = [&](Conversion c) {
    if (!best || cost(c) < cost(*best)) best = std::move(c);
  };
  for (const LinearLayout* side : {&from, &to}) {
    std::span<const Bits> registers = side->bases(Dim::Register);
    for (int k = static_cast<int>(registers.size()); k >= 0; --k) {
      if ((1 << k) * element_bytes > kAccessBytes) continue;
      consider(arranged(from, to, registers.first(at(k)), element_bytes));
    }
  }
  for (Matrices kind : {Matrices::Rows, Matrices::Columns})
    if (std::optional<MatrixBits> m = matrix_bits(to, kind); m && element_bytes == 2)
      consider(arranged(from, to, m->row, element_bytes, kind));
  return *std::move(best);
}

} // namespace

int wavefronts(const LinearLayout& offsets, int width, int element_bytes, uint32_t without) {
  int bytes = width * element_bytes, at_once = lanes_at_once(bytes), total = 0;
  for (int r = 0; r < offsets.registers(); r += width)
    for (int first = 0; first < kLanes; first += at_once) {
      std::map<int64_t, std::set<int64_t>> words; // by bank
      for (int lane = first; lane < first + at_once; ++lane) {
        if (static_cast<uint32_t>(lane) & without) continue;
        int64_t start = int64_t{offsets.apply(r, lane, 0)[0]} * element_bytes;
        for (int64_t w = start / kWordBytes; w <= (start + bytes - 1) / kWordBytes; ++w) words[w % kBanks].insert(w);
      }
      size_t most = 1;
      for (const auto& [bank, set] : words) most = std::max(most, set.size());
      total += static_cast<int>(most);
    }
  return total;
}

Conversion plan_conversion(const LinearLayout& from, const LinearLayout& to, int element_bytes, bool spares_memory) {
  TESSERA_CHECK(from.out() == to.out() && from.warps() == to.warps(), "layouts of different tiles or blocks");
  TESSERA_CHECK(from.is_permutation() && to.is_permutation() && from.is_surjective(),
                "not a blocked layout or a slice");
  TESSERA_CHECK(element_bytes >= 1 && element_bytes <= 8 && std::has_single_bit(static_cast<unsigned>(element_bytes)),
                "elements of 1, 2, 4 or 8 bytes");
  if (std::optional<std::vector<int>> map = register_map(from, to)) {
    Conversion c;
    c.register_map = *std::move(map);
    return c;
  }
  if (std::optional<Conversion> c = by_shuffles(from, to, element_bytes)) return *std::move(c);
  if (std::optional<Conversion> c = spares_memory ? by_swaps(from, to) : std::nullopt) return *std::move(c);
  return by_memory(from, to, element_bytes);
}

Conversion plan_shared_load(const LinearLayout& memory, const LinearLayout& to, int element_bytes) {
  TESSERA_CHECK(memory.out() == to.out() && memory.is_surjective(), "an arrangement of another tile");
  Conversion c;
  c.kind = Conversion::Kind::Shared;
  c.load = to.invert_and_compose(memory);
  c.shared_bytes = (int64_t{1} << memory.out_bits()) * element_bytes;
  const std::span<const Bits> along = memory.bases();
  const size_t most = std::min(along.size(), at(log2_of(kAccessBytes / element_bytes)));
  c.load_width = 1 << common_prefix(along.first(most), to.bases(Dim::Register));
  for (Matrices kind : {Matrices::Rows, Matrices::Columns}) {
    const std::optional<MatrixBits> m = element_bytes == 2 ? matrix_bits(to, kind) : std::nullopt;
    if (m && along.size() >= m->row.size() && std::equal(m->row.begin(), m->row.end(), along.begin()))
      c.load_matrices = kind;
  }
  c.load_wavefronts =
      c.load_matrices == Matrices::None ? wavefronts(c.load, c.load_width, element_bytes) : matrix_wavefronts(c);
  c.least_wavefronts = c.load_matrices == Matrices::None
                           ? to.registers() / c.load_width * (kLanes / lanes_at_once(c.load_width * element_bytes))
                           : to.registers() / 2;
  return c;
}

std::array<int, kLaneBits> Conversion::row_bases() const {
  bool rows = load_matrices == Matrices::Rows;
  auto offset = [&](Dim in, int bit) { return bit < load.in_bits(in) ? load.basis(in, bit, Dim::Offset) : 0; };
  return {rows ? offset(Dim::Lane, 2) : offset(Dim::Register, 0), rows ? offset(Dim::Lane, 3) : offset(Dim::Lane, 0),
          rows ? offset(Dim::Lane, 4) : offset(Dim::Lane, 1), offset(Dim::Register, 1), offset(Dim::Register, 2)};
}

std::string Conversion::str() const {
  auto list = [](const auto& v) {
    std::string s;
    for (auto x : v) s += (s.empty() ? "" : " ") + std::to_string(x);
    return s;
  };
  switch (kind) {
  case Kind::Registers: return "registers: " + list(register_map);
  case Kind::Shuffles: {
    std::string s = "shuffles: lane bases " + list(lane_bases);
    if (!selector_masks.empty()) s += ", selectors " + list(selector_masks);
    for (size_t r = 0; r < shuffled.size(); ++r)
      s += (r ? ", " : "; ") + list(shuffled[r]) + " from ^" + std::to_string(lane_of_register[r]);
    return s;
  }
  case Kind::Swaps: {
    std::string s = "swaps:";
    for (const Swap& w : swaps)
      s += " lane bit " + std::to_string(w.lane_bit) + " with register bit " + std::to_string(w.register_bit) + ",";
    return s + " registers: " + list(register_map);
  }
  case Kind::Shared:
    return "shared: " + std::to_string(shared_bytes) + " bytes, stores of " + std::to_string(store_width) +
           (load_matrices == Matrices::None
                ? ", loads of " + std::to_string(load_width)
                : std::string(", matrices by ") + (load_matrices == Matrices::Rows ? "rows" : "columns") + " of 8") +
           " elements, wavefronts " + std::to_string(store_wavefronts) + " + " + std::to_string(load_wavefronts) +
           " of at least " + std::to_string(least_wavefronts) + "\nstore " + store.str() + "\nload " + load.str();
  }
  TESSERA_UNREACHABLE("kind of conversion");
}

} // namespace tessera::layout
