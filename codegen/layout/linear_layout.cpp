#include "codegen/layout/linear_layout.h"
#include <algorithm>
#include <bit>
#include <numeric>

namespace tessera::layout {
namespace {

int total(const std::vector<Extent>& extents) {
  return std::accumulate(extents.begin(), extents.end(), 0, [](int n, const Extent& e) { return n + e.bits; });
}

Bits low_mask(int bits) { return bits >= 64 ? ~Bits{0} : (Bits{1} << bits) - 1; }

// Position of a dimension's lowest bit among the packed bits; -1 without it.
int start_of(const std::vector<Extent>& extents, Dim dim) {
  int at = 0;
  for (const Extent& e : extents) {
    if (e.dim == dim) return at;
    at += e.bits;
  }
  return -1;
}

int bits_of(const std::vector<Extent>& extents, Dim dim) {
  for (const Extent& e : extents)
    if (e.dim == dim) return e.bits;
  return 0;
}

// The same vector over other extents; a dimension's bits move up by shift(dim). Bits beyond the extents of `to` must be
// 0.
template <class Shift>
Bits repack(Bits v, const std::vector<Extent>& from, const std::vector<Extent>& to, Shift shift) {
  Bits result = 0;
  int at = 0;
  for (const Extent& e : from) {
    Bits part = (v >> at) & low_mask(e.bits);
    at += e.bits;
    if (part) result |= part << (start_of(to, e.dim) + shift(e.dim));
  }
  return result;
}

// A subspace of F2^64: basis vectors, each with its combination of inserted vectors.
class Basis {
public:
  // Inserts vector `index`; false, without effect, if it depends on earlier ones.
  bool insert(Bits v, int index) {
    Bits combination = Bits{1} << index;
    for (size_t i = 0; i < vectors_.size(); ++i)
      if (v & std::bit_floor(vectors_[i])) v ^= vectors_[i], combination ^= combinations_[i];
    if (!v) return false;
    vectors_.push_back(v);
    combinations_.push_back(combination);
    return true;
  }
  [[nodiscard]] std::optional<Bits> solve(Bits v) const {
    Bits combination = 0;
    for (size_t i = 0; i < vectors_.size(); ++i)
      if (v & std::bit_floor(vectors_[i])) v ^= vectors_[i], combination ^= combinations_[i];
    if (v) return std::nullopt;
    return combination;
  }
  [[nodiscard]] int rank() const { return static_cast<int>(vectors_.size()); }

private:
  // In order of insertion, each without the leading bits of earlier ones: one pass in that order reduces any vector.
  std::vector<Bits> vectors_, combinations_;
};

Basis basis_of(std::span<const Bits> bases) {
  Basis b;
  for (size_t i = 0; i < bases.size(); ++i) b.insert(bases[i], static_cast<int>(i));
  return b;
}

int log2_exact(int n, const char* what) {
  TESSERA_CHECK(n > 0 && std::has_single_bit(static_cast<unsigned>(n)), std::string(what) + " is not a power of two");
  return std::countr_zero(static_cast<unsigned>(n));
}

} // namespace

std::string_view name(Dim dim) {
  static constexpr std::array<std::string_view, 13> names = {"register", "lane",   "warp",   "block",  "offset",
                                                             "axis 0",   "axis 1", "axis 2", "axis 3", "axis 4",
                                                             "axis 5",   "axis 6", "axis 7"};
  return names[static_cast<size_t>(dim)];
}

LinearLayout::LinearLayout(std::vector<Extent> in, std::vector<Extent> out, std::vector<Bits> bases)
    : in_(std::move(in)), out_(std::move(out)), bases_(std::move(bases)) {
  TESSERA_CHECK(total(in_) == static_cast<int>(bases_.size()), "one basis per bit of the in-dimensions");
  TESSERA_CHECK(total(in_) <= 64 && total(out_) <= 64, "a layout of more than 64 bits");
  for (Bits b : bases_) TESSERA_CHECK((b & ~low_mask(out_bits())) == 0, "a basis outside of the out-dimensions");
}

LinearLayout LinearLayout::identity(Dim in, Dim out, int bits) {
  std::vector<Bits> bases;
  for (int i = 0; i < bits; ++i) bases.push_back(Bits{1} << i);
  return {{{in, bits}}, {{out, bits}}, std::move(bases)};
}

LinearLayout LinearLayout::zeros(Extent in, std::vector<Extent> out) {
  return {{in}, std::move(out), std::vector<Bits>(static_cast<size_t>(in.bits), 0)};
}

LinearLayout LinearLayout::blocked(const Blocked& b, int warps) {
  size_t rank = b.shape.size();
  TESSERA_CHECK(b.order.size() == rank && b.elements.size() == rank && b.lanes.size() == rank &&
                    b.warps.size() == rank && rank <= 8,
                "a blocked layout needs order, elements, lanes and warps for each axis");
  std::vector<Extent> out;
  std::vector<int> start(rank), used(rank, 0);
  for (size_t i = 0, at = 0; i < rank; ++i) {
    out.push_back({axis(static_cast<int>(i)), log2_exact(b.shape[i], "a tile dimension")});
    start[i] = static_cast<int>(at);
    at += static_cast<size_t>(out.back().bits);
  }
  auto take = [&](std::vector<Bits>& into, const std::vector<int>* count) {
    for (int a : b.order) {
      size_t i = static_cast<size_t>(a);
      int left = out[i].bits - used[i];
      int n = count ? std::min(left, log2_exact((*count)[i], "a count of a blocked layout")) : left;
      for (int k = 0; k < n; ++k) into.push_back(Bits{1} << (start[i] + used[i]++));
    }
  };
  std::vector<Bits> reg, lane, warp;
  take(reg, &b.elements);
  take(lane, &b.lanes);
  take(warp, &b.warps);
  take(reg, nullptr);
  auto warp_bits = static_cast<size_t>(log2_exact(warps, "the number of warps"));
  TESSERA_CHECK(lane.size() <= kLaneBits && warp.size() <= warp_bits, "more lanes or warps than there are");
  lane.resize(kLaneBits, 0);
  warp.resize(warp_bits, 0);
  std::vector<Extent> in = {
      {Dim::Register, static_cast<int>(reg.size())}, {Dim::Lane, kLaneBits}, {Dim::Warp, static_cast<int>(warp_bits)}};
  std::vector<Bits> bases = std::move(reg);
  bases.insert(bases.end(), lane.begin(), lane.end());
  bases.insert(bases.end(), warp.begin(), warp.end());
  return {std::move(in), std::move(out), std::move(bases)};
}

int LinearLayout::in_bits(Dim dim) const { return bits_of(in_, dim); }
int LinearLayout::out_bits(Dim dim) const { return bits_of(out_, dim); }
int LinearLayout::out_bits() const { return total(out_); }

std::span<const Bits> LinearLayout::bases(Dim in) const {
  int at = start_of(in_, in);
  if (at < 0) return {};
  return std::span(bases_).subspan(static_cast<size_t>(at), static_cast<size_t>(in_bits(in)));
}

int LinearLayout::basis(Dim in, int bit, Dim out) const { return apply(in, 1 << bit, out); }

std::vector<int> LinearLayout::shape() const {
  std::vector<int> s;
  for (const Extent& e : out_) s.push_back(1 << e.bits);
  return s;
}

Bits LinearLayout::apply(Bits place) const {
  TESSERA_CHECK((place & ~low_mask(in_bits())) == 0, "a place outside of the layout");
  Bits result = 0;
  for (; place; place &= place - 1) result ^= bases_[static_cast<size_t>(std::countr_zero(place))];
  return result;
}

std::vector<int> LinearLayout::apply(int reg, int lane, int warp) const {
  Bits place = 0;
  int at = 0;
  auto number = [&](Dim d) { return d == Dim::Register ? reg : d == Dim::Lane ? lane : d == Dim::Warp ? warp : 0; };
  for (const Extent& e : in_) {
    TESSERA_CHECK(number(e.dim) < (int64_t{1} << e.bits), "a place outside of the layout");
    place |= static_cast<Bits>(number(e.dim)) << at;
    at += e.bits;
  }
  for (Dim d : {Dim::Register, Dim::Lane, Dim::Warp})
    TESSERA_CHECK(number(d) == 0 || start_of(in_, d) >= 0, "a place in a dimension that the layout does not have");
  return unpack_out(apply(place));
}

int LinearLayout::apply(Dim in, int position, Dim out) const {
  int in_at = start_of(in_, in), out_at = start_of(out_, out);
  if (out_at < 0 || position == 0) return 0;
  TESSERA_CHECK(in_at >= 0 && position < (int64_t{1} << in_bits(in)), "a place outside of the layout");
  return static_cast<int>((apply(static_cast<Bits>(position) << in_at) >> out_at) & low_mask(out_bits(out)));
}

Bits LinearLayout::pack_in(std::span<const int> positions) const {
  TESSERA_CHECK(positions.size() == in_.size(), "one position per in-dimension");
  Bits place = 0;
  int at = 0;
  for (size_t i = 0; i < in_.size(); ++i) {
    place |= static_cast<Bits>(positions[i]) << at;
    at += in_[i].bits;
  }
  return place;
}

std::vector<int> LinearLayout::unpack_out(Bits element) const {
  std::vector<int> coordinates;
  int at = 0;
  for (const Extent& e : out_) {
    coordinates.push_back(static_cast<int>((element >> at) & low_mask(e.bits)));
    at += e.bits;
  }
  return coordinates;
}

LinearLayout LinearLayout::compose(const LinearLayout& outer) const {
  TESSERA_CHECK(out_.size() == outer.in_.size() && out_bits() == outer.in_bits(), "composed layouts do not meet");
  for (const Extent& e : out_)
    TESSERA_CHECK(start_of(outer.in_, e.dim) >= 0 && outer.in_bits(e.dim) == e.bits, "composed layouts do not meet");
  std::vector<Bits> bases;
  for (Bits b : bases_) bases.push_back(outer.apply(repack(b, out_, outer.in_, [](Dim) { return 0; })));
  return {in_, outer.out_, std::move(bases)};
}

LinearLayout LinearLayout::operator*(const LinearLayout& right) const {
  auto joined = [](std::vector<Extent> left, const std::vector<Extent>& more) {
    for (const Extent& e : more) {
      auto it = std::find_if(left.begin(), left.end(), [&](const Extent& l) { return l.dim == e.dim; });
      if (it == left.end())
        left.push_back(e);
      else
        it->bits += e.bits;
    }
    return left;
  };
  std::vector<Extent> in = joined(in_, right.in_), out = joined(out_, right.out_);
  std::vector<Bits> bases;
  for (const Extent& e : in) {
    for (Bits b : this->bases(e.dim)) bases.push_back(repack(b, out_, out, [](Dim) { return 0; }));
    for (Bits b : right.bases(e.dim))
      bases.push_back(repack(b, right.out_, out, [&](Dim d) { return bits_of(out_, d); }));
  }
  return {std::move(in), std::move(out), std::move(bases)};
}

namespace {

// Extents minus the bits of others; nothing if they have fewer.
std::optional<std::vector<Extent>> less(std::vector<Extent> extents, const std::vector<Extent>& others) {
  for (const Extent& o : others) {
    auto it = std::find_if(extents.begin(), extents.end(), [&](const Extent& e) { return e.dim == o.dim; });
    if (it == extents.end() || it->bits < o.bits) return std::nullopt;
    it->bits -= o.bits;
  }
  return extents;
}

} // namespace

std::optional<LinearLayout> LinearLayout::divide_right(const LinearLayout& right) const {
  auto in = less(in_, right.in_), out = less(out_, right.out_);
  if (!in || !out) return std::nullopt;
  std::vector<Bits> bases;
  for (const Extent& e : *in)
    for (Bits b : this->bases(e.dim).first(static_cast<size_t>(e.bits))) {
      for (int at = 0; const Extent& o : out_) { // the low bits of each dimension only
        if (((b >> at) & low_mask(o.bits)) >> bits_of(*out, o.dim)) return std::nullopt;
        at += o.bits;
      }
      bases.push_back(repack(b, out_, *out, [](Dim) { return 0; }));
    }
  LinearLayout x(*in, *out, std::move(bases));
  if (x * right != *this) return std::nullopt;
  return x;
}

std::optional<LinearLayout> LinearLayout::divide_left(const LinearLayout& left) const {
  auto in = less(in_, left.in_), out = less(out_, left.out_);
  if (!in || !out) return std::nullopt;
  std::vector<Bits> bases;
  for (const Extent& e : *in)
    for (Bits b : this->bases(e.dim).last(static_cast<size_t>(e.bits))) {
      Bits moved = 0;
      for (int at = 0, to = 0; const Extent& o : out_) { // the high bits of each dimension only
        Bits part = (b >> at) & low_mask(o.bits);
        int low = bits_of(left.out_, o.dim);
        if (part & low_mask(low)) return std::nullopt;
        moved |= (part >> low) << to;
        at += o.bits;
        to += o.bits - low;
      }
      bases.push_back(moved);
    }
  LinearLayout x(*in, *out, std::move(bases));
  if (left * x != *this) return std::nullopt;
  return x;
}

LinearLayout LinearLayout::invert() const {
  Basis solver = basis_of(bases_);
  std::vector<Bits> bases;
  for (int i = 0; i < out_bits(); ++i) {
    std::optional<Bits> x = solver.solve(Bits{1} << i);
    TESSERA_CHECK(x.has_value(), "inverse of a layout that does not reach every element: " + str());
    bases.push_back(*x);
  }
  return {out_, in_, std::move(bases)};
}

LinearLayout LinearLayout::invert_and_compose(const LinearLayout& other) const {
  Basis solver = basis_of(other.bases_);
  std::vector<Bits> bases;
  for (const Extent& e : in_) {
    int other_at = start_of(other.in_, e.dim), other_bits = other.in_bits(e.dim);
    for (int i = 0; i < e.bits; ++i) {
      Bits element = repack(this->bases(e.dim)[static_cast<size_t>(i)], out_, other.out_, [](Dim) { return 0; });
      // The same bit of the other layout: a solution if its basis matches; a free bit may be added.
      Bits same = i < other_bits ? Bits{1} << (other_at + i) : 0;
      if (same && other.apply(same) == element) {
        bases.push_back(same);
        continue;
      }
      std::optional<Bits> x = solver.solve(element);
      TESSERA_CHECK(x.has_value(), "no place in " + other.str() + " for an element of " + str());
      if (same && other.apply(same) == 0) *x |= same;
      bases.push_back(*x);
    }
  }
  return {in_, other.in_, std::move(bases)};
}

bool LinearLayout::is_injective() const { return basis_of(bases_).rank() == in_bits(); }
bool LinearLayout::is_surjective() const { return basis_of(bases_).rank() == out_bits(); }

uint32_t LinearLayout::free_mask(Dim in) const {
  uint32_t mask = 0;
  std::span<const Bits> b = bases(in);
  for (size_t i = 0; i < b.size(); ++i) mask |= b[i] ? 0u : 1u << i;
  return mask;
}

bool LinearLayout::is_permutation() const {
  Bits seen = 0;
  for (Bits b : bases_) {
    if (b && (!std::has_single_bit(b) || (seen & b))) return false;
    seen |= b;
  }
  return true;
}

int LinearLayout::contiguous(Dim out) const {
  int at = start_of(out_, out), n = 0;
  if (at < 0) return 1;
  for (Bits b : bases(Dim::Register)) {
    if (n >= out_bits(out) || b != Bits{1} << (at + n)) break;
    ++n;
  }
  return 1 << n;
}

LinearLayout LinearLayout::without_free(Dim in) const {
  std::vector<Extent> extents = in_;
  std::vector<Bits> kept;
  for (Extent& e : extents) {
    std::span<const Bits> b = bases(e.dim);
    size_t before = kept.size();
    std::copy_if(b.begin(), b.end(), std::back_inserter(kept), [&](Bits v) { return v || e.dim != in; });
    e.bits = static_cast<int>(kept.size() - before);
  }
  return {std::move(extents), out_, std::move(kept)};
}

LinearLayout LinearLayout::project(std::span<const int> shape) const {
  TESSERA_CHECK(shape.size() == out_.size(), "a projection of another rank");
  std::vector<Extent> out = out_;
  for (size_t i = 0; i < out.size(); ++i) out[i].bits = std::min(out[i].bits, log2_exact(shape[i], "a tile dimension"));
  std::vector<Bits> kept;
  for (Bits b : bases_) {
    Bits v = 0;
    for (size_t i = 0, at = 0, to = 0; i < out.size(); ++i) {
      v |= ((b >> at) & low_mask(out[i].bits)) << to;
      at += static_cast<size_t>(out_[i].bits);
      to += static_cast<size_t>(out[i].bits);
    }
    kept.push_back(v);
  }
  return LinearLayout(in_, std::move(out), std::move(kept)).without_free(Dim::Register);
}

LinearLayout LinearLayout::drop_axis(int dropped) const {
  std::vector<int> flat = shape();
  flat[static_cast<size_t>(dropped)] = 1;
  LinearLayout r = project(flat);
  r.out_.erase(r.out_.begin() + dropped);
  for (size_t i = static_cast<size_t>(dropped); i < r.out_.size(); ++i) r.out_[i].dim = axis(static_cast<int>(i));
  return r;
}

LinearLayout LinearLayout::insert_axis(int inserted) const {
  LinearLayout r = *this;
  r.out_.insert(r.out_.begin() + inserted, Extent{axis(inserted), 0});
  for (size_t i = 0; i < r.out_.size(); ++i) r.out_[i].dim = axis(static_cast<int>(i));
  return r;
}

std::string LinearLayout::str() const {
  std::string s;
  for (const Extent& e : in_) {
    s += (s.empty() ? "" : " | ") + std::string(name(e.dim)) + ":";
    for (Bits b : bases(e.dim)) {
      std::string coordinates;
      for (int c : unpack_out(b)) coordinates += (coordinates.empty() ? "" : ", ") + std::to_string(c);
      s += " (" + coordinates + ")";
    }
  }
  std::string sizes;
  for (const Extent& e : out_) {
    sizes += sizes.empty() ? "" : ", ";
    if (e.dim < Dim::Axis0) sizes += std::string(name(e.dim)) + " ";
    sizes += std::to_string(int64_t{1} << e.bits);
  }
  return s + (s.empty() ? "-> [" : " -> [") + sizes + "]";
}

std::optional<std::vector<int>> register_map(const LinearLayout& from, const LinearLayout& to) {
  if (from.out().size() != to.out().size()) return std::nullopt;
  for (size_t i = 0; i < from.out().size(); ++i)
    if (from.out()[i].dim != to.out()[i].dim) return std::nullopt;
  std::vector<int> shape = from.shape();
  // Coordinates of `to` projected to `from`'s extents; project() would drop registers.
  auto seen = [&](Bits element) {
    Bits v = 0;
    for (int at = 0, into = 0; const Extent& e : to.out()) {
      int bits = from.out_bits(e.dim);
      v |= ((element >> at) & low_mask(bits)) << into;
      at += e.bits;
      into += bits;
    }
    return v;
  };
  for (Dim d : {Dim::Lane, Dim::Warp}) {
    std::span<const Bits> a = from.bases(d), b = to.bases(d);
    if (a.size() != b.size()) return std::nullopt;
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i] != seen(b[i])) return std::nullopt;
  }
  Basis registers = basis_of(from.bases(Dim::Register));
  std::vector<int> map;
  for (int r = 0; r < to.registers(); ++r) {
    Bits element = 0;
    for (int i = 0; i < to.in_bits(Dim::Register); ++i)
      if (r >> i & 1) element ^= to.bases(Dim::Register)[static_cast<size_t>(i)];
    std::optional<Bits> x = registers.solve(seen(element));
    if (!x) return std::nullopt;
    map.push_back(static_cast<int>(*x));
  }
  return map;
}

} // namespace tessera::layout
