#include "codegen/layout/polynomial.h"
#include <algorithm>

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

Polynomials::Polynomials(const tile::Kernel& kernel)
    : k_(kernel), definitions_(static_cast<size_t>(kernel.value_count()), nullptr) {
  for (tile::OpId id = 0; id < kernel.op_count(); ++id)
    for (const ValueId v : kernel.op(id).results) definitions_[static_cast<size_t>(v)] = &kernel.op(id);
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
  default: return Polynomial::of(id);
  }
}

std::optional<Polynomials::AffineTile> Polynomials::tile(ValueId id) const {
  const tile::Type& type = k_.type(id);
  if (!type.is_tile()) return AffineTile{scalar(id), {}};
  const Op* op = definition(id);
  if (!op || type.dtype != DType::I64) return std::nullopt;
  const size_t rank = type.shape.size();
  auto of = [&](size_t operand) {
    auto a = tile(op->operands[operand]);
    if (a) a->strides.resize(rank); // of a scalar
    return a;
  };
  switch (op->kind) {
  case OpKind::Range: return AffineTile{{}, {Polynomial(1)}};
  case OpKind::Const: return AffineTile{Polynomial(op->i), std::vector<Polynomial>(rank)};
  case OpKind::ExpandDims: {
    auto a = tile(op->operands[0]);
    if (a && k_.type(op->operands[0]).is_tile())
      a->strides.insert(a->strides.begin() + op->axis, Polynomial());
    else if (a)
      a->strides.resize(rank);
    return a;
  }
  case OpKind::Broadcast: return of(0);
  case OpKind::Scalar: break;
  default: return std::nullopt;
  }
  if (op->scalar != ScalarOp::Add && op->scalar != ScalarOp::Sub && op->scalar != ScalarOp::Mul) return std::nullopt;
  auto a = of(0), b = of(1);
  if (!a || !b) return std::nullopt;
  if (op->scalar != ScalarOp::Mul) {
    const Polynomial sign(op->scalar == ScalarOp::Add ? 1 : -1);
    a->base = a->base + b->base * sign;
    for (size_t i = 0; i < rank; ++i) a->strides[i] = a->strides[i] + b->strides[i] * sign;
    return a;
  }
  auto is_uniform = [](const AffineTile& t) {
    return std::all_of(t.strides.begin(), t.strides.end(), [](const Polynomial& s) { return s.is_zero(); });
  };
  if (!is_uniform(*b)) std::swap(a, b);
  if (!is_uniform(*b)) return std::nullopt;
  for (Polynomial& s : a->strides) s = s * b->base;
  a->base = a->base * b->base;
  return a;
}

} // namespace tessera::layout
