#include "codegen/layout/polynomial.h"
#include <algorithm>
#include <bit>
#include <iterator>

namespace tessera::layout {

using tile::Op;
using tile::OpKind;
using tile::ValueId;

Polynomial Polynomial::of(ValueId atom) {
  Polynomial p;
  p.add({atom}, 1);
  return p;
}

void Polynomial::add(const Monomial& monomial, int64_t coefficient) {
  const int64_t sum = terms_[monomial] += coefficient;
  if (sum == 0) terms_.erase(monomial);
}

std::optional<int64_t> Polynomial::as_constant() const {
  if (terms_.empty()) return 0;
  const auto& [monomial, coefficient] = *terms_.begin();
  return terms_.size() == 1 && monomial.empty() ? std::optional(coefficient) : std::nullopt;
}

Polynomial Polynomial::operator+(const Polynomial& other) const {
  Polynomial sum = *this;
  for (const auto& [monomial, coefficient] : other.terms_) sum.add(monomial, coefficient);
  return sum;
}

Polynomial Polynomial::operator-(const Polynomial& other) const { return *this + other * Polynomial(-1); }

Polynomial Polynomial::operator*(const Polynomial& other) const {
  Polynomial product;
  for (const auto& [a, ca] : terms_)
    for (const auto& [b, cb] : other.terms_) {
      Monomial both;
      std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
      product.add(both, ca * cb);
    }
  return product;
}

std::optional<Polynomial> Polynomial::divided(int64_t by) const {
  Polynomial out;
  for (const auto& [monomial, coefficient] : terms_) {
    if (coefficient % by != 0) return std::nullopt;
    out.add(monomial, coefficient / by);
  }
  return out;
}

Polynomial Polynomial::coefficient_of(const Monomial& factor) const {
  Polynomial out;
  for (const auto& [monomial, coefficient] : terms_) {
    if (!std::includes(monomial.begin(), monomial.end(), factor.begin(), factor.end())) continue;
    Monomial rest;
    std::set_difference(monomial.begin(), monomial.end(), factor.begin(), factor.end(), std::back_inserter(rest));
    out.add(rest, coefficient);
  }
  return out;
}

Polynomials::Polynomials(const tile::Kernel& kernel)
    : k_(kernel), definitions_(static_cast<size_t>(kernel.value_count()), nullptr) {
  for (tile::OpId id = 0; id < kernel.op_count(); ++id)
    for (const ValueId v : kernel.op(id).results) definitions_[static_cast<size_t>(v)] = &kernel.op(id);
  find_quotients(kernel.body);
}

// Finds those of the remainders in these operations and their regions, with quotients that are in scope.
void Polynomials::find_quotients(const std::vector<tile::OpId>& ops) {
  const auto around = known_;
  const auto is = [&](const Op& op, ScalarOp kind) {
    return op.kind == OpKind::Scalar && op.scalar == kind && !k_.type(op.results[0]).is_tile();
  };
  for (const tile::OpId id : ops)
    if (const Op& op = k_.op(id); is(op, ScalarOp::Div))
      known_.emplace(std::pair(op.operands[0], op.operands[1]), op.results[0]);
  for (const tile::OpId id : ops) {
    const Op& op = k_.op(id);
    if (is(op, ScalarOp::Mod))
      if (const auto q = known_.find({op.operands[0], op.operands[1]}); q != known_.end())
        quotients_.emplace(op.results[0], q->second);
    for (const auto& region : op.regions) find_quotients(region);
  }
  known_ = around;
}

Polynomial Polynomials::scalar(ValueId id) const {
  const Op* op = definition(id);
  if (!op || k_.type(id).dtype != DType::I64) return Polynomial::of(id);
  if (op->kind == OpKind::Const) return Polynomial(op->i);
  if (op->kind != OpKind::Scalar) return Polynomial::of(id);
  switch (op->scalar) {
  case ScalarOp::Add: return scalar(op->operands[0]) + scalar(op->operands[1]);
  case ScalarOp::Sub: return scalar(op->operands[0]) - scalar(op->operands[1]);
  case ScalarOp::Mul: return scalar(op->operands[0]) * scalar(op->operands[1]);
  case ScalarOp::Mod:
    if (const auto q = quotients_.find(id); q != quotients_.end())
      return scalar(op->operands[0]) - scalar(op->operands[1]) * Polynomial::of(q->second);
    return Polynomial::of(id);
  default: return Polynomial::of(id);
  }
}

namespace {

using AffineTile = Polynomials::AffineTile;

size_t bits_of(int extent) { return static_cast<size_t>(std::bit_width(static_cast<unsigned>(extent) - 1)); }

bool is_uniform(const AffineTile& t) {
  return std::all_of(t.bits.begin(), t.bits.end(), [](const auto& bits) {
    return std::all_of(bits.begin(), bits.end(), [](const Polynomial& s) { return s.is_zero(); });
  });
}

// f of each bit's scalar and of the base.
template <class F>
void each(AffineTile& t, F f) {
  f(t.base);
  for (auto& bits : t.bits)
    for (Polynomial& s : bits) f(s);
}

// The quotient or the remainder of a sum of constants by `by`: bits that are multiples of it, and others that together
// are less.
std::optional<AffineTile> divided(AffineTile a, int64_t by, bool remainder) {
  int64_t below = 0;
  bool exact = by > 0;
  each(a, [&](Polynomial& p) {
    const auto c = p.as_constant();
    exact = exact && c && *c >= 0;
    if (!exact) return;
    const bool multiple = *c % by == 0;
    if (!multiple) below += *c;
    p = Polynomial(multiple == remainder ? 0 : remainder ? *c : *c / by);
  });
  if (!exact || below >= by) return std::nullopt;
  return a;
}

} // namespace

std::optional<AffineTile> Polynomials::tile(ValueId id) const {
  const tile::Type& type = k_.type(id);
  if (!type.is_tile()) return AffineTile{scalar(id), {}};
  const Op* op = definition(id);
  if (!op || type.dtype != DType::I64) return std::nullopt;
  const size_t rank = type.shape.size();
  auto fitted = [&](std::optional<AffineTile> a) { // with all bits of the result
    if (!a) return a;
    a->bits.resize(rank);
    for (size_t i = 0; i < rank; ++i) a->bits[i].resize(bits_of(type.shape[i]));
    return a;
  };
  auto of = [&](size_t operand) { return fitted(tile(op->operands[operand])); };
  switch (op->kind) {
  case OpKind::Range: {
    AffineTile a;
    a.bits.emplace_back();
    for (size_t bit = 0; bit < bits_of(type.shape[0]); ++bit) a.bits[0].emplace_back(int64_t{1} << bit);
    return a;
  }
  case OpKind::Const: return fitted(AffineTile{Polynomial(op->i), {}});
  case OpKind::ExpandDims: {
    auto a = tile(op->operands[0]);
    if (a && k_.type(op->operands[0]).is_tile()) a->bits.insert(a->bits.begin() + op->axis, std::vector<Polynomial>());
    return fitted(std::move(a));
  }
  case OpKind::Broadcast: return of(0);
  case OpKind::Scalar: break;
  default: return std::nullopt;
  }
  if (op->operands.size() != 2) return std::nullopt;
  auto a = of(0), b = of(1);
  if (!a || !b) return std::nullopt;
  switch (op->scalar) {
  case ScalarOp::Add:
  case ScalarOp::Sub: {
    const Polynomial sign(op->scalar == ScalarOp::Add ? 1 : -1);
    a->base = a->base + b->base * sign;
    for (size_t i = 0; i < rank; ++i)
      for (size_t bit = 0; bit < a->bits[i].size(); ++bit) a->bits[i][bit] = a->bits[i][bit] + b->bits[i][bit] * sign;
    return a;
  }
  case ScalarOp::Mul:
    if (!is_uniform(*b)) std::swap(a, b);
    if (!is_uniform(*b)) return std::nullopt;
    each(*a, [&](Polynomial& s) { s = s * b->base; });
    return a;
  case ScalarOp::Div:
  case ScalarOp::Mod: {
    const auto by = b->base.as_constant();
    if (!by || !is_uniform(*b)) return std::nullopt;
    return divided(std::move(*a), *by, op->scalar == ScalarOp::Mod);
  }
  default: return std::nullopt;
  }
}

} // namespace tessera::layout
