#include "codegen/layout/axis_info.h"
#include <algorithm>
#include <bit>

namespace tessera::layout {

int64_t power_of_two_in(int64_t v) {
  const auto bits = static_cast<uint64_t>(v);
  const uint64_t lowest = bits & (~bits + 1);
  return v == 0 ? kMaxDivisor : static_cast<int64_t>(std::min<uint64_t>(kMaxDivisor, lowest));
}

namespace {

using tile::Op;
using tile::OpKind;
using tile::Type;
using tile::ValueId;

constexpr int64_t kMaxFactor = int64_t{1} << 30; // limit of known spans
constexpr int kIndexBits = 32;                   // narrower integers wrap in practice
int64_t covering(int extent) { return static_cast<int64_t>(std::bit_ceil(static_cast<unsigned>(extent))); }
bool is_number(const Type& t) { return is_integer(t.dtype); }

// Facts of an unknown value. Shape [1] stands for scalars.
AxisInfo unknown(size_t axes) {
  AxisInfo r;
  r.contiguity.assign(axes, 1);
  r.constancy.assign(axes, 1);
  r.divisibility.assign(axes, 1);
  r.interval.assign(axes, 1);
  r.stride.assign(axes, std::nullopt);
  return r;
}

class Analysis {
public:
  explicit Analysis(const tile::Kernel& kernel) : k_(kernel), info_(static_cast<size_t>(kernel.value_count())) {}

  std::vector<AxisInfo> run() {
    for (const tile::Param& p : k_.params) {
      if (p.type.kind != Type::Kind::Data) continue;
      AxisInfo r = unknown(1);
      if (is_number(p.type)) r.divisibility[0] = power_of_two_in(p.multiple_of);
      r.non_negative = p.multiple_of > 1 || info(p.type.dtype).kind == DTypeKind::Unsigned;
      set(p.value, r);
    }
    // Terminates: carried values only lose facts, of which there are finitely many.
    do {
      changed_ = false;
      block(k_.body);
    } while (changed_);
    return std::move(info_);
  }

private:
  const tile::Kernel& k_;
  std::vector<AxisInfo> info_; // empty vectors: not visited yet
  bool changed_ = false;

  [[nodiscard]] const AxisInfo& of(ValueId v) const { return info_[static_cast<size_t>(v)]; }
  void set(ValueId v, AxisInfo r) {
    if (!k_.type(v).is_tile()) r.span = 0;
    for (size_t i = 0; i < r.stride.size(); ++i) {
      if (r.contiguity[i] >= covering(extent(v, i))) r.stride[i] = 1;
      if (r.constancy[i] >= covering(extent(v, i))) r.stride[i] = 0;
      r.interval[i] = std::max(r.interval[i], r.constancy[i]);
    }
    AxisInfo& now = info_[static_cast<size_t>(v)];
    if (now == r) return;
    now = std::move(r);
    changed_ = true;
  }
  [[nodiscard]] size_t axes(ValueId v) const { return std::max<size_t>(1, k_.type(v).shape.size()); }
  [[nodiscard]] int extent(ValueId v, size_t axis) const {
    const Type& t = k_.type(v);
    return t.is_tile() ? t.shape[axis] : 1;
  }

  // Facts of a scalar or constant, broadcast to the shape of `like`.
  [[nodiscard]] AxisInfo splat(const AxisInfo& scalar, ValueId like) const {
    AxisInfo r = unknown(axes(like));
    for (size_t i = 0; i < r.constancy.size(); ++i) {
      r.constancy[i] = covering(extent(like, i));
      r.divisibility[i] = scalar.divisor();
      r.stride[i] = 0;
    }
    r.span = 0;
    r.constant = scalar.constant;
    r.non_negative = scalar.non_negative;
    return r;
  }
  [[nodiscard]] AxisInfo number(int64_t v, ValueId like) const {
    AxisInfo scalar = unknown(1);
    scalar.divisibility[0] = power_of_two_in(v);
    scalar.constant = v;
    scalar.non_negative = v >= 0;
    return splat(scalar, like);
  }
  [[nodiscard]] AxisInfo lifted(ValueId v, ValueId like) const {
    return k_.type(v).is_tile() || !k_.type(like).is_tile() ? of(v) : splat(of(v), like);
  }

  static AxisInfo join(const AxisInfo& a, const AxisInfo& b) {
    if (a.contiguity.empty()) return b;
    if (b.contiguity.empty()) return a;
    AxisInfo r = unknown(a.contiguity.size());
    for (size_t i = 0; i < r.contiguity.size(); ++i) {
      int axis = static_cast<int>(i);
      r.contiguity[i] = std::min(a.contiguity[i], b.contiguity[i]);
      r.constancy[i] = std::min(a.constancy[i], b.constancy[i]);
      r.interval[i] = std::min(a.interval[i], b.interval[i]);
      r.divisibility[i] = std::min(a.divisor(axis, r.contiguity[i]), b.divisor(axis, r.contiguity[i]));
      if (a.stride[i] == b.stride[i]) r.stride[i] = a.stride[i];
    }
    if (a.span == b.span) r.span = a.span; // else it may grow with each iteration of a loop
    if (a.constant == b.constant) r.constant = a.constant;
    r.non_negative = a.non_negative && b.non_negative;
    return r;
  }

  void block(const std::vector<tile::OpId>& ops) {
    for (tile::OpId id : ops) visit(k_.op(id));
  }

  void visit(const Op& op) {
    switch (op.kind) {
    case OpKind::For: return loop(op);
    case OpKind::If: return branch(op);
    case OpKind::Store:
    case OpKind::Atomic:
    case OpKind::ReportIndex:
    case OpKind::GridBarrier:
    case OpKind::Prefetch:
    case OpKind::Scratch:
    case OpKind::Yield:
    case OpKind::Count_: return;
    case OpKind::Const:
      return set(op.results[0], is_float(k_.type(op.results[0]).dtype) ? splat(unknown(1), op.results[0])
                                                                       : number(op.i, op.results[0]));
    case OpKind::ProgramId:
    case OpKind::NumPrograms: {
      AxisInfo r = unknown(1);
      r.non_negative = true;
      return set(op.results[0], r);
    }
    case OpKind::Range: {
      AxisInfo r = unknown(1);
      r.contiguity[0] = covering(extent(op.results[0], 0));
      r.divisibility[0] = kMaxDivisor;
      r.span = extent(op.results[0], 0) - 1;
      r.non_negative = true;
      if (extent(op.results[0], 0) == 1) r.constant = 0;
      return set(op.results[0], r);
    }
    case OpKind::ExpandDims: {
      AxisInfo r = of(op.operands[0]);
      if (!k_.type(op.operands[0]).is_tile()) return set(op.results[0], r);
      auto at = [&](auto& v) { return v.begin() + op.axis; };
      int64_t divisor = r.divisor();
      r.contiguity.insert(at(r.contiguity), 1);
      r.constancy.insert(at(r.constancy), 1);
      r.divisibility.insert(at(r.divisibility), divisor);
      r.interval.insert(at(r.interval), 1);
      r.stride.insert(at(r.stride), 0);
      return set(op.results[0], r);
    }
    case OpKind::Broadcast: {
      ValueId from = op.operands[0], to = op.results[0];
      if (!k_.type(from).is_tile()) return set(to, splat(of(from), to));
      AxisInfo r = of(from);
      for (size_t i = 0; i < r.constancy.size(); ++i)
        if (extent(from, i) != extent(to, i)) r.constancy[i] = r.interval[i] = covering(extent(to, i));
      return set(to, r);
    }
    case OpKind::Scalar: return set(op.results[0], pointwise(op));
    case OpKind::Load: {
      AxisInfo r = unknown(axes(op.results[0]));
      r.constancy = common_constancy(op, 1); // equal offsets, equal elements
      r.non_negative = info(k_.type(op.results[0]).dtype).kind == DTypeKind::Unsigned;
      return set(op.results[0], r);
    }
    case OpKind::Arrive:
    case OpKind::Exchange:
    case OpKind::Reduce:
    case OpKind::Scan:
    case OpKind::Dot:
      for (ValueId v : op.results) set(v, unknown(axes(v)));
      return;
    }
  }

  void loop(const Op& op) {
    const std::vector<ValueId>& args = op.region_args[0];
    const AxisInfo &from = of(op.operands[0]), &step = of(op.operands[2]);
    AxisInfo induction = unknown(1);
    induction.divisibility[0] = std::min(from.divisor(), step.divisor());
    induction.non_negative = from.non_negative; // steps are positive
    set(args[0], induction);
    const Op& yield = k_.op(op.regions[0].back());
    for (size_t i = 0; i < op.results.size(); ++i)
      set(args[i + 1], join(of(args[i + 1]), join(of(op.operands[i + 3]), of(yield.operands[i]))));
    block(op.regions[0]);
    for (size_t i = 0; i < op.results.size(); ++i)
      set(op.results[i], join(of(op.operands[i + 3]), of(yield.operands[i])));
  }

  void branch(const Op& op) {
    block(op.regions[0]);
    block(op.regions[1]);
    const Op &a = k_.op(op.regions[0].back()), &b = k_.op(op.regions[1].back());
    for (size_t i = 0; i < op.results.size(); ++i) set(op.results[i], join(of(a.operands[i]), of(b.operands[i])));
  }

  // Equal operands give equal results.
  [[nodiscard]] std::vector<int64_t> common_constancy(const Op& op, size_t first) const {
    std::vector<int64_t> r;
    for (size_t i = 0; i < axes(op.results[0]); ++i) r.push_back(covering(extent(op.results[0], i)));
    for (size_t o = first; o < op.operands.size(); ++o)
      if (k_.type(op.operands[o]).is_tile())
        for (size_t i = 0; i < r.size(); ++i) r[i] = std::min(r[i], of(op.operands[o]).constancy[i]);
    return r;
  }

  [[nodiscard]] AxisInfo pointwise(const Op& op) const {
    ValueId result = op.results[0];
    const Type& type = k_.type(result);
    AxisInfo r = unknown(axes(result));
    r.constancy = common_constancy(op, 0);
    r.non_negative = info(type.dtype).kind == DTypeKind::Unsigned || type.dtype == DType::Bool;
    if (is_float(type.dtype) || is_float(k_.type(op.operands.back()).dtype)) return r;

    std::vector<AxisInfo> args;
    std::vector<ScalarValue> numbers;
    for (ValueId v : op.operands) {
      args.push_back(lifted(v, result));
      if (args.back().constant) numbers.push_back({static_cast<double>(*args.back().constant), *args.back().constant});
    }
    if (numbers.size() == args.size())
      return number(eval_scalar(op.scalar, type.dtype, k_.type(op.operands.back()).dtype, numbers).i, result);

    for (size_t i = 0; i < r.contiguity.size(); ++i) {
      along(op, args, static_cast<int>(i), r);
      r.stride[i] = stride_along(op, args, i);
    }
    r.non_negative = r.non_negative || stays_non_negative(op, args);
    r.span = span_of(op, args);
    return r;
  }

  // Facts along one axis; r.constancy[axis] is the common constancy of the operands.
  void along(const Op& op, const std::vector<AxisInfo>& args, int axis, AxisInfo& r) const {
    size_t i = static_cast<size_t>(axis);
    const AxisInfo &a = args[0], &b = args.back();
    int64_t &contiguity = r.contiguity[i], &constancy = r.constancy[i], &divisibility = r.divisibility[i];
    // Both operands at the first element of each group of r; in a constant group all elements equal the first.
    auto at_starts = [&] {
      int64_t group = std::max(contiguity, constancy);
      return std::min(a.divisor(axis, group), b.divisor(axis, group));
    };
    const bool counts = info(k_.type(op.operands[0]).dtype).bits >= kIndexBits;
    switch (op.scalar) {
    case ScalarOp::Add:
      contiguity = std::max(std::min(a.contiguity[i], b.constancy[i]), std::min(a.constancy[i], b.contiguity[i]));
      divisibility = at_starts();
      return;
    case ScalarOp::Sub:
      contiguity = std::min(a.contiguity[i], b.constancy[i]);
      constancy = std::max(constancy, std::min(a.contiguity[i], b.contiguity[i]));
      divisibility = at_starts();
      return;
    case ScalarOp::Mul:
      if (a.constant == 1 || b.constant == 1) {
        const AxisInfo& x = a.constant == 1 ? b : a;
        contiguity = x.contiguity[i];
        divisibility = x.divisibility[i];
        return;
      }
      divisibility =
          std::min(kMaxDivisor, a.divisor(axis, constancy) *
                                    std::min(b.divisor(axis, constancy),
                                             kMaxDivisor / std::min(kMaxDivisor, a.divisor(axis, constancy))));
      return;
    case ScalarOp::Neg:
    case ScalarOp::Abs: divisibility = a.divisor(axis, constancy); return;
    case ScalarOp::Div: {
      if (b.constant == 1) {
        contiguity = a.contiguity[i];
        divisibility = a.divisibility[i];
        return;
      }
      if (a.non_negative) constancy = std::max(constancy, aligned_group(a, b, axis));
      if (b.constant && std::has_single_bit(static_cast<uint64_t>(*b.constant)))
        divisibility = std::max<int64_t>(1, a.divisor(axis, constancy) / *b.constant);
      return;
    }
    case ScalarOp::Mod:
      if (b.non_negative && b.constant != 0) contiguity = aligned_group(a, b, axis);
      divisibility = at_starts();
      return;
    case ScalarOp::Min:
    case ScalarOp::Max: divisibility = at_starts(); return;
    case ScalarOp::Select: {
      const AxisInfo &then = args[1], &otherwise = args[2];
      contiguity = std::min({args[0].constancy[i], then.contiguity[i], otherwise.contiguity[i]});
      int64_t group = std::max(contiguity, constancy);
      divisibility = std::min(then.divisor(axis, group), otherwise.divisor(axis, group));
      return;
    }
    // A group that starts at a multiple of its size lies on one side of a bound that is a multiple of it.
    case ScalarOp::Lt:
    case ScalarOp::Ge:
      constancy = std::max(constancy, aligned_group(a, b, axis));
      if (counts) r.interval[i] = counted_against(a, b, i);
      return;
    case ScalarOp::Gt:
    case ScalarOp::Le:
      constancy = std::max(constancy, aligned_group(b, a, axis));
      if (counts) r.interval[i] = counted_against(a, b, i);
      return;
    case ScalarOp::And: r.interval[i] = std::min(a.interval[i], b.interval[i]); return;
    case ScalarOp::Cast: {
      // Neither type may wrap within a group: aligned groups do not reach across a power of two.
      int64_t half =
          int64_t{1} << (std::min(info(k_.type(op.results[0]).dtype).bits, info(k_.type(op.operands[0]).dtype).bits) -
                         1);
      contiguity = std::min({a.contiguity[i], a.divisor(axis, a.contiguity[i]), std::min(half, kMaxDivisor)});
      if (k_.type(op.results[0]).dtype == DType::Bool) contiguity = 1;
      if (is_number(k_.type(op.results[0]))) divisibility = a.divisor(axis, std::max(contiguity, constancy));
      return;
    }
    default: return;
    }
  }

  [[nodiscard]] std::optional<int64_t> stride_along(const Op& op, const std::vector<AxisInfo>& args, size_t i) const {
    auto wrapped = [](uint64_t v) { return static_cast<int64_t>(v); };
    std::vector<uint64_t> s;
    for (const AxisInfo& a : args) {
      if (!a.stride[i]) return std::nullopt;
      s.push_back(static_cast<uint64_t>(*a.stride[i]));
    }
    if (info(k_.type(op.results[0]).dtype).bits < kIndexBits) return std::nullopt;
    switch (op.scalar) {
    case ScalarOp::Add: return wrapped(s[0] + s[1]);
    case ScalarOp::Sub: return wrapped(s[0] - s[1]);
    case ScalarOp::Neg: return wrapped(0 - s[0]);
    case ScalarOp::Cast:
      if (info(k_.type(op.operands[0]).dtype).bits < kIndexBits) return std::nullopt;
      return wrapped(s[0]);
    case ScalarOp::Mul:
      for (size_t one : {size_t{0}, size_t{1}})
        if (args[one].constant) return wrapped(static_cast<uint64_t>(*args[one].constant) * s[1 - one]);
      return std::nullopt;
    default: return std::nullopt;
    }
  }

  // Not for integers that wrap in practice, but for conditions, which are 0 or 1.
  [[nodiscard]] std::optional<int64_t> span_of(const Op& op, const std::vector<AxisInfo>& args) const {
    const DType from = k_.type(op.operands[0]).dtype;
    if (op.scalar == ScalarOp::Cast && from == DType::Bool) return 1;
    if (info(k_.type(op.results[0]).dtype).bits < kIndexBits || info(from).bits < kIndexBits) return std::nullopt;
    const AxisInfo &a = args[0], &b = args.back();
    const auto times = [](std::optional<int64_t> span, std::optional<int64_t> by) -> std::optional<int64_t> {
      if (!span || !by || *by < -kMaxFactor || std::max(*span, *by) > kMaxFactor) return std::nullopt;
      return *span * std::abs(*by);
    };
    switch (op.scalar) {
    case ScalarOp::Neg:
    case ScalarOp::Abs:
    case ScalarOp::Cast: return a.span;
    case ScalarOp::Mul: return a.constant ? times(b.span, a.constant) : times(a.span, b.constant);
    case ScalarOp::Div:
      if (!a.span || b.constant.value_or(0) < 1) return std::nullopt;
      return *a.span / *b.constant + 1;
    case ScalarOp::Mod:
      if (b.constant.value_or(0) < 1) return std::nullopt;
      return a.non_negative ? *b.constant - 1 : 2 * (*b.constant - 1);
    case ScalarOp::Add:
    case ScalarOp::Sub:
    case ScalarOp::Min:
    case ScalarOp::Max:
      if (!a.span || !b.span) return std::nullopt;
      if (op.scalar == ScalarOp::Min || op.scalar == ScalarOp::Max) return std::max(*a.span, *b.span);
      if (*a.span + *b.span > kMaxDivisor) return std::nullopt;
      return *a.span + *b.span;
    default: return std::nullopt;
    }
  }

  // Groups in which one operand counts up and the other is constant, so that their comparison changes at most once.
  static int64_t counted_against(const AxisInfo& x, const AxisInfo& y, size_t i) {
    return std::max(std::min(x.contiguity[i], y.constancy[i]), std::min(x.constancy[i], y.contiguity[i]));
  }

  // The largest g such that x counts up in groups of g that start at multiples of g, and y is constant in each and
  // divisible by g. Then x / y is constant in the group, x mod y counts up, and x < y is decided for all of it.
  static int64_t aligned_group(const AxisInfo& x, const AxisInfo& y, int axis) {
    size_t i = static_cast<size_t>(axis);
    int64_t g = std::min(x.contiguity[i], y.constancy[i]);
    while (g > 1 && (x.divisor(axis, g) < g || y.divisor(axis, g) < g)) g /= 2;
    return g;
  }

  [[nodiscard]] bool stays_non_negative(const Op& op, const std::vector<AxisInfo>& args) const {
    auto all = [&](size_t from) {
      return std::all_of(args.begin() + static_cast<std::ptrdiff_t>(from), args.end(),
                         [](const AxisInfo& a) { return a.non_negative; });
    };
    switch (op.scalar) {
    case ScalarOp::Add:
    case ScalarOp::Mul:
    case ScalarOp::Div:
    case ScalarOp::Min: return all(0);
    case ScalarOp::Max: return args[0].non_negative || args[1].non_negative;
    case ScalarOp::Mod: return args[1].non_negative;
    case ScalarOp::Select: return all(1);
    case ScalarOp::Cast:
      return all(0) && info(k_.type(op.results[0]).dtype).bits >= info(k_.type(op.operands[0]).dtype).bits;
    default: return false;
    }
  }
};

std::string list(const std::vector<int64_t>& v) {
  std::string s;
  for (int64_t x : v) s += (s.empty() ? "" : ", ") + std::to_string(x);
  return "[" + s + "]";
}

} // namespace

int64_t AxisInfo::divisor() const {
  int64_t d = 1;
  for (size_t i = 0; i < contiguity.size(); ++i)
    if (contiguity[i] == 1) d = std::max(d, divisibility[i]);
  return d;
}

int64_t AxisInfo::divisor(int axis, int64_t group) const {
  size_t i = static_cast<size_t>(axis);
  return std::max(divisor(), group >= contiguity[i] ? divisibility[i] : std::min(divisibility[i], group));
}

std::string AxisInfo::str() const {
  std::string s =
      "contiguity " + list(contiguity) + " constancy " + list(constancy) + " divisibility " + list(divisibility);
  if (span) s += " span " + std::to_string(*span);
  if (constant) s += " constant " + std::to_string(*constant);
  if (non_negative) s += " non-negative";
  return s;
}

std::vector<AxisInfo> axis_info(const tile::Kernel& kernel) { return Analysis(kernel).run(); }

} // namespace tessera::layout
