// GuardSet: the guards of an Executable, compiled once. check() runs on every call and allocates nothing; explain() is
// only called after a miss and says which guard, why it was there, and the sizes of the call.
#pragma once
#include "runtime/executor.h"
#include "runtime/sym_program.h"
#include "symbols/env.h"

namespace tessera {

// A condition on sizes as people write it: "s <= 512", "b == 4 or b == 8". SymExpr::str() is what is read back.
[[nodiscard]] std::string readable(const SymExpr& condition);

// Sizes of a call as people write them: "b=4, s=128".
[[nodiscard]] std::string sizes_text(const std::map<std::string, int64_t>& sizes);

// The facts of an environment about a symbol, apart from its guards: range and divisor.
[[nodiscard]] std::vector<Guard> facts_as_guards(const ShapeEnv& env, const SymExpr& symbol);

class GuardSet {
public:
  // Guards of `env` over `slots` (symbols in slot order; the first ones are bound by inputs, later ones by host steps),
  // and what the env knows of every slot: range and divisor, which compiled code relies on as well. A guard over
  // symbols that are no slots is rewritten by the env's substitutions; error Internal when that does not help: it could
  // never be checked.
  [[nodiscard]] static Result<GuardSet> compile(const ShapeEnv& env, std::span<const SymExpr> slots);

  // The first guard that does not hold for these values, or -1. Guards over slots that are not bound yet (bound[i]
  // false) are passed over: they are checked again when a host step has bound them.
  [[nodiscard]] int check(std::span<const int64_t> values, const std::vector<bool>& bound,
                          SymProgram::State& state) const;
  void prepare(SymProgram::State& state) const { program_.prepare(state); }
  [[nodiscard]] GuardMiss explain(int guard, std::span<const int64_t> values, const std::vector<bool>& bound) const;
  [[nodiscard]] bool required(int guard) const {
    return guards_[static_cast<size_t>(guard)].cls == GuardClass::Required;
  }
  [[nodiscard]] const Guard& guard(int index) const { return guards_[static_cast<size_t>(index)]; }
  [[nodiscard]] int count() const { return static_cast<int>(guards_.size()); }

private:
  std::vector<SymExpr> slots_;
  std::vector<Guard> guards_;
  std::vector<int> registers_;                          // of guard i
  std::vector<std::pair<std::string, size_t>> aliases_; // other names of slots' sizes
  SymProgram program_;
};

} // namespace tessera
