#include "codegen/layout/tensor_access.h"
#include <algorithm>
#include <cmath>

namespace tessera::layout {

using tile::Op;
using tile::OpKind;
using tile::ValueId;

namespace {

// Along one axis of a tile: start + index < bound.
struct Limit {
  Polynomial start, bound;
};

class Analysis {
public:
  Analysis(const tile::Kernel& kernel, const Polynomials& polynomials, const Op& load)
      : k_(kernel), p_(polynomials), load_(load), rank_(kernel.type(load.results[0]).shape.size()), limits_(rank_) {}

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
  std::vector<std::optional<Limit>> limits_; // by axis of the tile

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
    if (std::string wrong = read_mask(load_.operands[2], identity()); !wrong.empty()) return wrong;
    return dimensions(*offset, out);
  }

  [[nodiscard]] std::vector<size_t> identity() const {
    std::vector<size_t> axes(rank_);
    for (size_t i = 0; i < rank_; ++i) axes[i] = i;
    return axes;
  }

  bool is_zero(ValueId v) const {
    const Op* op = p_.definition(v);
    if (op && op->kind == OpKind::Broadcast) return is_zero(op->operands[0]);
    return op && op->kind == OpKind::Const && op->f == 0 && !std::signbit(op->f) && op->i == 0;
  }

  // Collects the limits of a mask whose axes are these of the tile.
  std::string read_mask(ValueId mask, std::vector<size_t> axes) {
    const std::string other = "its mask is no conjunction of bounds of its dimensions";
    const Op* op = p_.definition(mask);
    if (!op || !k_.type(mask).is_tile()) return other;
    if (op->kind == OpKind::Broadcast) return read_mask(op->operands[0], axes);
    if (op->kind == OpKind::ExpandDims) {
      axes.erase(axes.begin() + op->axis);
      return read_mask(op->operands[0], axes);
    }
    if (op->kind != OpKind::Scalar) return other;
    if (op->scalar == ScalarOp::And) {
      std::string wrong = read_mask(op->operands[0], axes);
      return wrong.empty() ? read_mask(op->operands[1], axes) : wrong;
    }
    if (op->scalar != ScalarOp::Lt || k_.type(op->operands[0]).dtype != DType::I64) return other;
    const auto index = p_.tile(op->operands[0]), bound = p_.tile(op->operands[1]);
    if (!index || !bound) return other;
    for (const Polynomial& s : bound->strides)
      if (!s.is_zero()) return other;
    std::optional<size_t> along;
    for (size_t i = 0; i < index->strides.size(); ++i) {
      if (index->strides[i].is_zero()) continue;
      if (along || index->strides[i] != Polynomial(1)) return other;
      along = i;
    }
    if (!along) return other;
    Limit found{index->base, bound->base};
    auto& limit = limits_[axes[*along]];
    if (limit && (limit->start != found.start || limit->bound != found.bound)) return "two bounds of one dimension";
    limit = std::move(found);
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

  std::string dimensions(const Polynomials::AffineTile& offset, TensorAccess& out) {
    std::vector<size_t> order = identity();
    auto is_one = [&](size_t axis) { return offset.strides[axis] == Polynomial(1); };
    std::stable_partition(order.begin(), order.end(), is_one);
    if (!is_one(order[0]) || is_one(order[1])) return "it has no single contiguous dimension";
    Polynomial base = offset.base;
    for (const size_t axis : order) {
      if (!limits_[axis]) return "its mask bounds only some of its dimensions";
      const auto dim = product(limits_[axis]->bound, 1);
      const auto stride = product(offset.strides[axis], element_bytes());
      if (!dim) return "a bound is no product of parameters";
      if (!stride) return "a stride is no product of parameters";
      out.axes.push_back(static_cast<int>(axis));
      out.starts.push_back(limits_[axis]->start);
      out.dims.push_back(*dim);
      base = base - limits_[axis]->start * offset.strides[axis];
      if (axis == order[0]) continue;
      if (!is_aligned(*stride)) return "a stride is not known to be a multiple of 16 bytes";
      out.strides.push_back(*stride);
    }
    return base.is_zero() ? "" : "its offset and its mask begin at different elements";
  }
};

} // namespace

TensorAccessResult tensor_access(const tile::Kernel& kernel, const Polynomials& polynomials, const Op& load) {
  if (kernel.type(load.results[0]).shape.size() < 2) return {std::nullopt, "it has a single dimension"};
  return Analysis(kernel, polynomials, load).run();
}

} // namespace tessera::layout
