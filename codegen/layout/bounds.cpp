#include "codegen/layout/bounds.h"
#include <algorithm>
#include <array>

namespace tessera::layout {
namespace {

using tile::Op;
using tile::OpKind;
using tile::ValueId;

class Analysis {
public:
  explicit Analysis(const tile::Kernel& kernel)
      : k_(kernel), bounds_(static_cast<size_t>(kernel.value_count())), definitions_(bounds_.size()) {
    for (tile::OpId id = 0; id < k_.op_count(); ++id)
      for (ValueId r : k_.op(id).results) definitions_[static_cast<size_t>(r)] = &k_.op(id);
  }

  std::vector<Bounds> run() {
    for (ValueId v = 0; v < k_.value_count(); ++v) of(v) = of_type(v);
    for (const tile::Param& p : k_.params)
      if (p.type.kind == tile::Type::Kind::Data && p.multiple_of > 1) of(p.value).least = 0;
    block(k_.body);
    return std::move(bounds_);
  }

private:
  Bounds& of(ValueId v) { return bounds_[static_cast<size_t>(v)]; }
  // c, if the operation is x - x / c * c, the remainder of x.
  [[nodiscard]] std::optional<int64_t> divisor_of_rest(const Op& sub) {
    auto defined = [&](ValueId v, ScalarOp op) -> const Op* {
      const Op* d = definitions_[static_cast<size_t>(v)];
      return d && d->kind == OpKind::Scalar && d->scalar == op ? d : nullptr;
    };
    const Op* product = defined(sub.operands[1], ScalarOp::Mul);
    const Op* quotient = product ? defined(product->operands[0], ScalarOp::Div) : nullptr;
    if (!quotient || quotient->operands[0] != sub.operands[0] || !of(sub.operands[0]).non_negative())
      return std::nullopt;
    const Bounds by = of(product->operands[1]), divided = of(quotient->operands[1]);
    if (by != divided || by.least != by.most || by.least < 1) return std::nullopt;
    return by.least;
  }
  [[nodiscard]] Bounds of_type(ValueId v) const {
    const DTypeInfo& t = info(k_.type(v).dtype);
    if (t.kind == DTypeKind::Bool) return {0, 1};
    if (t.kind == DTypeKind::Unsigned && t.bits < 64) return {0, (int64_t{1} << t.bits) - 1};
    if (t.kind == DTypeKind::Signed && t.bits < 64)
      return {-(int64_t{1} << (t.bits - 1)), (int64_t{1} << (t.bits - 1)) - 1};
    return {};
  }

  // Along an axis, of any launch.
  [[nodiscard]] int64_t most_programs(int axis) const {
    const int64_t most = kMaxGrid[static_cast<size_t>(axis)];
    auto programs = k_.config.find("programs");
    return programs == k_.config.end() ? most : std::clamp<int64_t>(programs->second, 1, most);
  }
  void block(const std::vector<tile::OpId>& ops) {
    for (tile::OpId id : ops) visit(k_.op(id));
  }
  void visit(const Op& op) {
    switch (op.kind) {
    case OpKind::Const:
      if (is_integer(k_.type(op.results[0]).dtype)) set(op, {op.i, op.i});
      return;
    case OpKind::ProgramId: return set(op, {0, most_programs(op.axis) - 1});
    case OpKind::NumPrograms: return set(op, {1, most_programs(op.axis)});
    case OpKind::Range: return set(op, {0, k_.type(op.results[0]).shape[0] - 1});
    case OpKind::ExpandDims:
    case OpKind::Broadcast: return set(op, of(op.operands[0]));
    case OpKind::Scalar:
      if (is_integer(k_.type(op.results[0]).dtype)) set(op, scalar(op));
      return;
    case OpKind::For: {
      // Iterations stop below the end.
      const Bounds from = of(op.operands[0]), to = of(op.operands[1]), step = of(op.operands[2]);
      if (step.least > 0 && to.most > std::numeric_limits<int64_t>::min())
        of(op.region_args[0][0]) = {from.least, std::max(from.least, to.most - 1)};
      break;
    }
    default: break;
    }
    for (const auto& region : op.regions) block(region);
  }
  // A result that may not fit the type wraps: full range.
  void set(const Op& op, const Bounds& b) {
    const Bounds type = of_type(op.results[0]);
    if (b.least >= type.least && b.most <= type.most) of(op.results[0]) = b;
  }

  static Bounds over(std::initializer_list<std::optional<int64_t>> corners) {
    Bounds b{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
    for (auto c : corners) {
      if (!c) return {};
      b = {std::min(b.least, *c), std::max(b.most, *c)};
    }
    return b;
  }
  Bounds scalar(const Op& op) {
    auto a = [&](size_t i) { return of(op.operands[i]); };
    auto with = [](auto overflows, int64_t x, int64_t y) {
      int64_t r = 0;
      return overflows(x, y, &r) ? std::nullopt : std::optional(r);
    };
    auto add = [&](int64_t x, int64_t y) {
      return with([](int64_t p, int64_t q, int64_t* r) { return __builtin_add_overflow(p, q, r); }, x, y);
    };
    auto sub = [&](int64_t x, int64_t y) {
      return with([](int64_t p, int64_t q, int64_t* r) { return __builtin_sub_overflow(p, q, r); }, x, y);
    };
    auto mul = [&](int64_t x, int64_t y) {
      return with([](int64_t p, int64_t q, int64_t* r) { return __builtin_mul_overflow(p, q, r); }, x, y);
    };
    const Bounds none = of_type(op.results[0]);
    switch (op.scalar) {
    case ScalarOp::Add: return over({add(a(0).least, a(1).least), add(a(0).most, a(1).most)});
    case ScalarOp::Sub:
      if (auto c = divisor_of_rest(op)) return {0, std::min(*c - 1, a(0).most)};
      return over({sub(a(0).least, a(1).most), sub(a(0).most, a(1).least)});
    case ScalarOp::Mul:
      return over({mul(a(0).least, a(1).least), mul(a(0).least, a(1).most), mul(a(0).most, a(1).least),
                   mul(a(0).most, a(1).most)});
    case ScalarOp::Div: // a division by 0 yields 0
      if (!a(0).non_negative() || !a(1).non_negative()) return none;
      return {0, a(0).most / std::max<int64_t>(1, a(1).least)};
    case ScalarOp::Mod:
      if (!a(1).non_negative()) return none;
      return {0, std::min(std::max<int64_t>(0, a(1).most - 1),
                          a(0).non_negative() ? a(0).most : std::numeric_limits<int64_t>::max())};
    case ScalarOp::Min: return {std::min(a(0).least, a(1).least), std::min(a(0).most, a(1).most)};
    case ScalarOp::Max: return {std::max(a(0).least, a(1).least), std::max(a(0).most, a(1).most)};
    case ScalarOp::Select: return {std::min(a(1).least, a(2).least), std::max(a(1).most, a(2).most)};
    case ScalarOp::Cast: return is_integer(k_.type(op.operands[0]).dtype) ? a(0) : none;
    default: return none;
    }
  }

  const tile::Kernel& k_;
  std::vector<Bounds> bounds_;
  std::vector<const Op*> definitions_; // by value id; null of parameters and region arguments
};

} // namespace

std::vector<Bounds> integer_bounds(const tile::Kernel& kernel) { return Analysis(kernel).run(); }

} // namespace tessera::layout
