#include "codegen/layout/tensor_access.h"
#include <algorithm>
#include <cmath>

namespace tessera::layout {

using tile::Op;
using tile::OpKind;
using tile::ValueId;

namespace {

// A coordinate of the tensor: a start and the sum of some bits of one index of the tile, each times a scale.
struct Coordinate {
  int axis = -1;                 // of the tile; -1: the start alone
  std::vector<Polynomial> scale; // by bit of the axis
  Polynomial start;
  std::optional<Polynomial> lower, upper; // lower <= sum < upper
};

class Analysis {
public:
  Analysis(const tile::Kernel& kernel, const Polynomials& polynomials, const Op& load)
      : k_(kernel), p_(polynomials), load_(load), rank_(kernel.type(load.results[0]).shape.size()) {}

  TensorAccessResult run() {
    TensorAccess a;
    const std::string refusal = find(a);
    if (!refusal.empty()) return {std::nullopt, refusal};
    return {std::move(a), ""};
  }

private:
  const tile::Kernel& k_;
  const Polynomials& p_;
  const Op& load_;
  size_t rank_;
  std::vector<Coordinate> coordinates_;

  [[nodiscard]] int64_t element_bytes() const { return std::max(1, info(k_.type(load_.results[0]).dtype).bits / 8); }

  std::string find(TensorAccess& out) {
    const auto param = std::find_if(k_.params.begin(), k_.params.end(),
                                    [&](const tile::Param& p) { return p.value == load_.operands[0]; });
    if (param == k_.params.end()) return "it is of scratch";
    if (param->alignment % kTensorAlignment != 0) return "the pointer is not aligned to 16 bytes";
    out.param = static_cast<int>(param - k_.params.begin());
    if (load_.operands.size() > 3 && !is_zero(load_.operands[3])) return "masked elements are not 0";
    const auto offset = p_.tile(load_.operands[1]);
    if (!offset) return "its offset is no sum of indices times strides";
    if (load_.operands.size() < 3) return "it has no mask that bounds each dimension";
    std::vector<size_t> axes(rank_);
    for (size_t i = 0; i < rank_; ++i) axes[i] = i;
    if (std::string wrong = read_mask(load_.operands[2], std::move(axes)); !wrong.empty()) return wrong;
    return dimensions(*offset, out);
  }

  bool is_zero(ValueId v) const {
    const Op* op = p_.definition(v);
    if (op && op->kind == OpKind::Broadcast) return is_zero(op->operands[0]);
    return op && op->kind == OpKind::Const && op->f == 0 && !std::signbit(op->f) && op->i == 0;
  }

  // Collects the coordinates that a mask bounds; its axes are these of the tile.
  std::string read_mask(ValueId mask, std::vector<size_t> axes) {
    const std::string other = "its mask is no conjunction of bounds of its dimensions";
    const Op* op = p_.definition(mask);
    if (!op) return other;
    if (op->kind == OpKind::Broadcast) return read_mask(op->operands[0], std::move(axes));
    if (op->kind == OpKind::ExpandDims) {
      axes.erase(axes.begin() + op->axis);
      return read_mask(op->operands[0], std::move(axes));
    }
    if (op->kind != OpKind::Scalar) return other;
    if (op->scalar == ScalarOp::And) {
      std::string wrong = read_mask(op->operands[0], axes);
      return wrong.empty() ? read_mask(op->operands[1], std::move(axes)) : wrong;
    }
    const bool less = op->scalar == ScalarOp::Lt;
    if ((!less && op->scalar != ScalarOp::Le) || k_.type(op->operands[0]).dtype != DType::I64) return other;
    const auto a = p_.tile(op->operands[0]), b = p_.tile(op->operands[1]);
    if (!a || !b) return other;
    const bool below = is_uniform(*b) && !(is_uniform(*a) && a->base.as_constant()); // a < bound, not bound <= b
    if (!below && !is_uniform(*a)) return other;
    return bound(below ? *a : *b, axes, below,
                 below ? b->base + Polynomial(less ? 0 : 1) : a->base + Polynomial(less ? 1 : 0));
  }

  static bool is_zero(const std::vector<Polynomial>& bits) {
    return std::all_of(bits.begin(), bits.end(), [](const Polynomial& s) { return s.is_zero(); });
  }
  static bool is_uniform(const Polynomials::AffineTile& t) {
    return std::all_of(t.bits.begin(), t.bits.end(), [](const auto& bits) { return is_zero(bits); });
  }

  // Takes note of coordinate < limit or of limit <= coordinate.
  std::string bound(const Polynomials::AffineTile& coordinate, const std::vector<size_t>& axes, bool below,
                    const Polynomial& limit) {
    Coordinate c;
    c.start = coordinate.base;
    for (size_t i = 0; i < coordinate.bits.size(); ++i) {
      if (is_zero(coordinate.bits[i])) continue;
      if (c.axis >= 0) return "its mask is no conjunction of bounds of its dimensions";
      c.axis = static_cast<int>(axes[i]);
      c.scale = coordinate.bits[i];
    }
    auto at = std::find_if(coordinates_.begin(), coordinates_.end(), [&](const Coordinate& o) {
      return o.axis == c.axis && o.scale == c.scale && (c.axis >= 0 || o.start == c.start);
    });
    if (at == coordinates_.end()) at = coordinates_.insert(at, c);
    auto& known = below ? at->upper : at->lower;
    const Polynomial of_sum = limit - c.start;
    if (known && *known != of_sum) return "two bounds of one dimension";
    known = of_sum;
    return "";
  }

  // A product of parameters; nothing if the value differs within the launch or is a sum.
  [[nodiscard]] std::optional<ParameterProduct> product(const Polynomial& p, int64_t factor) const {
    if (const auto constant = p.as_constant()) return ParameterProduct{*constant * factor, {}};
    if (p.terms().size() != 1) return std::nullopt;
    const auto& [monomial, coefficient] = *p.terms().begin();
    ParameterProduct out{coefficient * factor, {}};
    for (const ValueId v : monomial) {
      const auto it =
          std::find_if(k_.params.begin(), k_.params.end(), [&](const tile::Param& q) { return q.value == v; });
      if (it == k_.params.end()) return std::nullopt;
      out.params.push_back(static_cast<int>(it - k_.params.begin()));
    }
    return out;
  }
  // True if the promises of the parameters make the product a multiple of kTensorAlignment.
  [[nodiscard]] bool is_aligned(const ParameterProduct& p) const {
    int64_t rest = p.factor % kTensorAlignment;
    for (const int i : p.params)
      rest = rest * (k_.params[static_cast<size_t>(i)].multiple_of % kTensorAlignment) % kTensorAlignment;
    return rest == 0;
  }

  // The stride in elements of a coordinate with an index of the tile, and its dimension but for the stride; or why not.
  struct Placed {
    size_t first_bit = 0;
    uint64_t bits = 0;
    Polynomial pitch;
    TensorAccess::Dimension dimension;
  };
  std::string place(const Coordinate& c, const std::vector<Polynomial>& offset, Placed& out) const {
    const std::string other = "its mask is no conjunction of bounds of its dimensions";
    if (!c.upper) return "its mask bounds only some of its dimensions";
    int64_t step = 0;
    for (size_t bit = 0; bit < c.scale.size(); ++bit) {
      const auto scale = c.scale[bit].as_constant();
      if (!scale) return other;
      if (*scale == 0) continue;
      if (step == 0) step = *scale, out.first_bit = bit;
      if (step < 0 || *scale != step << (bit - out.first_bit)) return other;
      out.bits |= uint64_t{1} << bit;
      out.dimension.box *= 2;
    }
    if (out.bits >> out.first_bit != static_cast<uint64_t>(out.dimension.box) - 1) return other;
    const auto pitch = offset[out.first_bit].divided(step);
    if (!pitch) return "its offset and its mask have different steps";
    for (size_t bit = 0; bit < c.scale.size(); ++bit)
      if ((out.bits >> bit & 1) && offset[bit] != *pitch * c.scale[bit])
        return "its offset and its mask have different steps";
    out.pitch = *pitch;
    out.dimension.axis = c.axis;
    out.dimension.step = static_cast<int>(step);
    return extent(c, out.dimension);
  }
  // A coordinate counts from its lower bound; without one, it is 0 or more as it is written.
  std::string extent(const Coordinate& c, TensorAccess::Dimension& out) const {
    out.start = c.lower ? Polynomial() - *c.lower : c.start;
    const auto size = product(*c.upper + out.start, 1);
    if (!size) return "a bound is no product of parameters";
    out.size = *size;
    return "";
  }
  std::string set_stride(const Polynomial& pitch, TensorAccess::Dimension& out) const {
    const auto stride = product(pitch, element_bytes());
    if (!stride) return "a stride is no product of parameters";
    if (!is_aligned(*stride)) return "a stride is not known to be a multiple of 16 bytes";
    out.stride = *stride;
    return "";
  }

  std::string dimensions(const Polynomials::AffineTile& offset, TensorAccess& out) const {
    std::vector<Placed> placed;
    std::vector<uint64_t> met(rank_);
    for (const Coordinate& c : coordinates_) {
      if (c.axis < 0) continue;
      Placed p;
      if (std::string wrong = place(c, offset.bits[static_cast<size_t>(c.axis)], p); !wrong.empty()) return wrong;
      if (met[static_cast<size_t>(c.axis)] & p.bits) return "two bounds of one dimension";
      met[static_cast<size_t>(c.axis)] |= p.bits;
      placed.push_back(std::move(p));
    }
    for (size_t axis = 0; axis < rank_; ++axis)
      if (met[axis] + 1 != uint64_t{1} << offset.bits[axis].size())
        return "its mask bounds only some of its dimensions";
    auto is_contiguous = [](const Placed& p) { return p.pitch == Polynomial(1); };
    const auto first = std::find_if(placed.begin(), placed.end(), is_contiguous);
    if (first == placed.end() || std::count_if(placed.begin(), placed.end(), is_contiguous) > 1 ||
        met[static_cast<size_t>(first->dimension.axis)] != first->bits || first->dimension.step != 1)
      return "it has no single contiguous dimension";
    std::iter_swap(placed.begin(), first);
    std::sort(placed.begin() + 1, placed.end(), [](const Placed& a, const Placed& b) {
      return std::pair(a.dimension.axis, a.first_bit) < std::pair(b.dimension.axis, b.first_bit);
    });
    Polynomial rest = offset.base;
    for (Placed& p : placed) {
      rest = rest - p.dimension.start * p.pitch;
      if (!out.dimensions.empty())
        if (std::string wrong = set_stride(p.pitch, p.dimension); !wrong.empty()) return wrong;
      out.dimensions.push_back(std::move(p.dimension));
    }
    if (std::string wrong = add_singles(rest, out); !wrong.empty()) return wrong;
    if (!rest.is_zero()) return "its offset and its mask begin at different elements";
    if (out.dimensions.size() > kTensorMapRank)
      return "it has " + std::to_string(out.dimensions.size()) + " dimensions, more than a tensor map";
    return "";
  }
  // Dimensions of which the tile has one position. The stride is what the offset multiplies the coordinate by: a monomial
  // that no other of these coordinates has.
  std::string add_singles(Polynomial& rest, TensorAccess& out) const {
    std::vector<TensorAccess::Dimension> singles;
    for (const Coordinate& c : coordinates_) {
      if (c.axis >= 0) continue;
      if (!c.upper) return "its mask bounds only some of its dimensions";
      if (std::string wrong = extent(c, singles.emplace_back()); !wrong.empty()) return wrong;
    }
    while (!singles.empty()) {
      const auto is_found = [&](TensorAccess::Dimension& d) {
        const auto pitch = single_pitch(d, singles, rest);
        if (!pitch) return false;
        rest = rest - d.start * *pitch;
        return set_stride(*pitch, d).empty();
      };
      const auto found = std::find_if(singles.begin(), singles.end(), is_found);
      if (found == singles.end()) return "its mask has a bound that is of no dimension";
      out.dimensions.push_back(std::move(*found));
      singles.erase(found);
    }
    return "";
  }
  static std::optional<Polynomial> single_pitch(const TensorAccess::Dimension& of,
                                                const std::vector<TensorAccess::Dimension>& singles,
                                                const Polynomial& rest) {
    for (const auto& [monomial, coefficient] : of.start.terms()) {
      const bool shared = std::any_of(singles.begin(), singles.end(), [&](const TensorAccess::Dimension& d) {
        return &d != &of && d.start.terms().contains(monomial);
      });
      const auto pitch = rest.coefficient_of(monomial).divided(coefficient);
      if (!shared && !monomial.empty() && pitch && !pitch->is_zero()) return pitch;
    }
    return std::nullopt;
  }
};

} // namespace

TensorAccessResult tensor_access(const tile::Kernel& kernel, const Polynomials& polynomials, const Op& load) {
  if (kernel.type(load.results[0]).shape.size() != 2) return {std::nullopt, "it has not two dimensions"};
  return Analysis(kernel, polynomials, load).run();
}

} // namespace tessera::layout
