#include "runtime/guards.h"
#include <algorithm>

namespace tessera {

std::string readable(const SymExpr& e) {
  const char* between = nullptr;
  switch (e.op()) {
  case SymOp::Eq: between = " == "; break;
  case SymOp::Ne: between = " != "; break;
  case SymOp::Lt: between = " < "; break;
  case SymOp::Le: between = " <= "; break;
  case SymOp::And: between = " and "; break;
  case SymOp::Or: between = " or "; break;
  default: return e.str();
  }
  const auto args = e.args();
  const bool nests = e.op() == SymOp::And || e.op() == SymOp::Or;
  // The number behind the size: "2 <= s" reads as "s >= 2".
  if ((e.op() == SymOp::Lt || e.op() == SymOp::Le) && args[0].is_const())
    return args[1].str() + (e.op() == SymOp::Lt ? " > " : " >= ") + args[0].str();
  if ((e.op() == SymOp::Eq || e.op() == SymOp::Ne) && args[0].is_const())
    return args[1].str() + between + args[0].str();
  std::string text;
  for (const SymExpr& a : args) {
    const bool enclose = nests && (a.op() == SymOp::And || a.op() == SymOp::Or) && a.op() != e.op();
    text += (text.empty() ? "" : between) + (enclose ? "(" + readable(a) + ")" : nests ? readable(a) : a.str());
  }
  return text;
}

std::string sizes_text(const std::map<std::string, int64_t>& sizes) {
  std::string text;
  for (const auto& [name, size] : sizes) text += (text.empty() ? "" : ", ") + name + "=" + std::to_string(size);
  return text;
}

std::vector<Guard> facts_as_guards(const ShapeEnv& env, const SymExpr& symbol) {
  const SymRange range = env.range(symbol);
  const GuardClass cls = env.fact_class(symbol);
  const std::string text =
      std::string(cls == GuardClass::Assumed ? "what is assumed of '" : "what the model declares of '") +
      symbol.symbol_name() + "'";
  std::vector<Guard> out;
  if (range.lo > 0) out.push_back({sym_le(SymExpr(range.lo), symbol), cls, text, {}});
  if (range.hi < kSymMax) out.push_back({sym_le(symbol, SymExpr(range.hi)), cls, text, {}});
  if (const int64_t d = env.divisor(symbol); d > 1) out.push_back({sym_eq(mod(symbol, SymExpr(d)), 0), cls, text, {}});
  return out;
}

Result<GuardSet> GuardSet::compile(const ShapeEnv& env, std::span<const SymExpr> slots) {
  GuardSet set;
  set.slots_.assign(slots.begin(), slots.end());
  set.program_ = SymProgram(slots);
  auto add = [&](Guard guard) -> Status {
    int r = set.program_.add(guard.condition);
    if (set.program_.has_unbound(r)) {
      // Only what nobody binds is rewritten: names that inference gave to sizes which it then found equal to others.
      // Symbols of inputs and host steps are slots under the names that they were declared with, so their guards are
      // asked as they were made.
      r = set.program_.add(guard.condition.substitute(env.substitutions()));
      if (set.program_.has_unbound(r))
        return Diagnostic(ErrorCode::Internal, guard.where,
                          "guard " + guard.condition.str() + " is over a size that no input and no step defines");
    }
    set.guards_.push_back(std::move(guard));
    set.registers_.push_back(r);
    return {};
  };
  for (const auto& guard : env.guards()) TESSERA_TRY(add(guard));
  // Facts come last: those that follow from a guard are then reported as that guard.
  for (const auto& s : slots) {
    for (Guard& fact : facts_as_guards(env, s)) TESSERA_TRY(add(std::move(fact)));
  }
  for (const SymExpr& name : env.symbols()) {
    if (!env.substitutions().contains(name.symbol_id())) continue;
    if (std::find(slots.begin(), slots.end(), name) != slots.end()) continue; // it has a value of its own
    const auto slot = std::find(slots.begin(), slots.end(), env.simplify(name));
    if (slot != slots.end()) set.aliases_.emplace_back(name.symbol_name(), static_cast<size_t>(slot - slots.begin()));
  }
  return set;
}

int GuardSet::check(std::span<const int64_t> values, const std::vector<bool>& bound, SymProgram::State& state) const {
  for (size_t i = 0; i < slots_.size(); ++i) {
    state.value[i] = values[i];
    state.fault[i] = bound[i] ? SymFault::None : SymFault::Unbound;
  }
  program_.run(state);
  for (size_t g = 0; g < registers_.size(); ++g) {
    auto r = static_cast<size_t>(registers_[g]);
    if (state.fault[r] == SymFault::Unbound) continue;
    // A condition that cannot be computed (overflow, division by zero) does not hold.
    if (state.fault[r] != SymFault::None || state.value[r] == 0) return static_cast<int>(g);
  }
  return -1;
}

GuardMiss GuardSet::explain(int guard, std::span<const int64_t> values, const std::vector<bool>& bound) const {
  const auto& g = guards_[static_cast<size_t>(guard)];
  GuardMiss miss{readable(g.condition), g.reason, g.where.str(), {}};
  for (size_t i = 0; i < slots_.size(); ++i)
    if (bound[i]) miss.sizes.emplace(slots_[i].symbol_name(), values[i]);
  for (const auto& [name, slot] : aliases_)
    if (bound[slot]) miss.sizes.emplace(name, values[slot]);
  return miss;
}

} // namespace tessera
