#include "runtime/sym_program.h"
#include <bit>
#include <cmath>

namespace tessera {

SymProgram::SymProgram(std::span<const SymExpr> inputs) {
  for (const auto& s : inputs) {
    TESSERA_CHECK(s.is_symbol(), "inputs of a symbol program are symbols: " + s.str());
    by_node_.emplace(s, registers_++);
    unbound_.push_back(false);
  }
  inputs_ = registers_;
}

int SymProgram::emit(SymOp op, int a, int b, int c, int64_t value) {
  bool unbound = op == SymOp::Symbol;
  for (int r : {a, b, c})
    if (r >= 0) unbound = unbound || unbound_[static_cast<size_t>(r)];
  code_.push_back({op, a, b, c, value});
  unbound_.push_back(unbound);
  return registers_++;
}

// Postorder with a stack of its own: the depth of an expression is the model's, not ours.
int SymProgram::add(const SymExpr& root) {
  std::vector<std::pair<SymExpr, bool>> stack{{root, false}};
  while (!stack.empty()) {
    auto [e, expanded] = stack.back();
    stack.pop_back();
    if (by_node_.count(e)) continue;
    if (e.is_const()) {
      by_node_.emplace(e, emit(SymOp::Const, -1, -1, -1, e.const_value()));
      continue;
    }
    if (e.is_symbol()) {
      by_node_.emplace(e, emit(SymOp::Symbol, -1));
      continue;
    }
    auto args = e.args();
    if (!expanded) {
      stack.emplace_back(e, true);
      for (const auto& a : args) stack.emplace_back(a, false);
      continue;
    }
    auto reg = [&](size_t i) { return by_node_.at(args[i]); };
    int r = -1;
    switch (e.op()) {
    case SymOp::Not: r = emit(SymOp::Not, reg(0)); break;
    case SymOp::Select: r = emit(SymOp::Select, reg(0), reg(1), reg(2)); break;
    case SymOp::Scaled: r = emit(SymOp::Scaled, reg(0), -1, -1, args[1].const_value()); break;
    default:
      r = reg(0);
      for (size_t i = 1; i < args.size(); ++i) r = emit(e.op(), r, reg(i));
    }
    by_node_.emplace(e, r);
  }
  return by_node_.at(root);
}

void SymProgram::prepare(State& state) const {
  state.value.assign(static_cast<size_t>(registers_), 0);
  state.fault.assign(static_cast<size_t>(registers_), SymFault::Unbound);
}

void SymProgram::run(State& state) const {
  auto* value = state.value.data();
  auto* fault = state.fault.data();
  auto r = static_cast<size_t>(inputs_);
  for (const auto& in : code_) {
    SymFault f = SymFault::None;
    int64_t v = 0;
    auto at = [](int32_t i) { return static_cast<size_t>(i); };
    auto binary = [&](auto&& compute) {
      f = fault[at(in.a)] != SymFault::None ? fault[at(in.a)] : fault[at(in.b)];
      if (f == SymFault::None) compute(value[at(in.a)], value[at(in.b)]);
    };
    // Decided by one operand alone where that operand has the deciding value.
    auto logical = [&](bool decides) {
      bool ok_a = fault[at(in.a)] == SymFault::None, ok_b = fault[at(in.b)] == SymFault::None;
      if ((ok_a && (value[at(in.a)] != 0) == decides) || (ok_b && (value[at(in.b)] != 0) == decides))
        v = decides;
      else if (ok_a && ok_b)
        v = !decides;
      else
        f = ok_a ? fault[at(in.b)] : fault[at(in.a)];
    };
    switch (in.op) {
    case SymOp::Const: v = in.value; break;
    case SymOp::Symbol: f = SymFault::Unbound; break;
    case SymOp::Add:
      binary([&](int64_t a, int64_t b) {
        if (__builtin_add_overflow(a, b, &v)) f = SymFault::Overflow;
      });
      break;
    case SymOp::Mul:
      binary([&](int64_t a, int64_t b) {
        if (__builtin_mul_overflow(a, b, &v)) f = SymFault::Overflow;
      });
      break;
    case SymOp::FloorDiv:
      binary([&](int64_t a, int64_t b) {
        if (b == 0)
          f = SymFault::DivisionByZero;
        else if (b == -1)
          f = __builtin_sub_overflow(int64_t{0}, a, &v) ? SymFault::Overflow : SymFault::None;
        else
          v = a / b - (a % b != 0 && ((a < 0) != (b < 0)));
      });
      break;
    case SymOp::Mod:
      binary([&](int64_t a, int64_t b) {
        if (b == 0)
          f = SymFault::DivisionByZero;
        else if (b != -1) {
          v = a % b;
          if (v != 0 && ((v < 0) != (b < 0))) v += b;
        }
      });
      break;
    case SymOp::Min: binary([&](int64_t a, int64_t b) { v = std::min(a, b); }); break;
    case SymOp::Max: binary([&](int64_t a, int64_t b) { v = std::max(a, b); }); break;
    case SymOp::Eq: binary([&](int64_t a, int64_t b) { v = a == b; }); break;
    case SymOp::Ne: binary([&](int64_t a, int64_t b) { v = a != b; }); break;
    case SymOp::Lt: binary([&](int64_t a, int64_t b) { v = a < b; }); break;
    case SymOp::Le: binary([&](int64_t a, int64_t b) { v = a <= b; }); break;
    case SymOp::And: logical(false); break;
    case SymOp::Or: logical(true); break;
    case SymOp::Not:
      f = fault[at(in.a)];
      v = value[at(in.a)] == 0;
      break;
    case SymOp::Select:
      f = fault[at(in.a)];
      if (f == SymFault::None) {
        auto taken = at(value[at(in.a)] != 0 ? in.b : in.c);
        f = fault[taken];
        v = value[taken];
      }
      break;
    case SymOp::Scaled: {
      f = fault[at(in.a)];
      if (f != SymFault::None) break;
      const double product = std::floor(static_cast<double>(value[at(in.a)]) * std::bit_cast<double>(in.value));
      if (std::fabs(product) <= 0x1p62)
        v = static_cast<int64_t>(product);
      else
        f = SymFault::Overflow;
      break;
    }
    }
    value[r] = v;
    fault[r] = f;
    ++r;
  }
}

std::string_view describe(SymFault fault) {
  switch (fault) {
  case SymFault::None: return "fine";
  case SymFault::Overflow: return "exceeds 64 bits";
  case SymFault::DivisionByZero: return "divides by zero";
  case SymFault::Unbound: return "mentions a symbol that nothing binds";
  }
  return "";
}

} // namespace tessera
