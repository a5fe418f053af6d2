// SymProgram: many SymExprs compiled once into one flat list of instructions over registers, so that evaluating all of
// them for a new shape is one loop that allocates nothing.
//
// Registers 0 .. inputs-1 hold the symbols; every further node of the (hash-consed) expressions gets one register, so
// common parts are computed once. A register is either a value or a fault: overflow of int64, division by zero, a
// symbol that is not bound yet. Faults pass through everything that needs them; select, and, or only fault through what
// they take, so `select(ne(s, 0), floordiv(n, s), 0)` is 0 for s = 0.
#pragma once
#include "symbols/expr.h"

namespace tessera {

enum class SymFault : uint8_t { None, Overflow, DivisionByZero, Unbound };

class SymProgram {
public:
  // `inputs` are symbols; register i is inputs[i].
  explicit SymProgram(std::span<const SymExpr> inputs = {});
  // The register that will hold `e`. A symbol that is no input gets a register that is Unbound for ever.
  int add(const SymExpr& e);
  [[nodiscard]] int inputs() const { return inputs_; }
  [[nodiscard]] int registers() const { return registers_; }
  // Does register r depend on an unbound symbol that is no input?
  [[nodiscard]] bool has_unbound(int r) const { return unbound_[static_cast<size_t>(r)]; }

  // The registers of one evaluation.
  struct State {
    std::vector<int64_t> value;
    std::vector<SymFault> fault;
  };
  // Sizes the state; inputs are Unbound. Only this allocates.
  void prepare(State& state) const;
  // Computes every register from the inputs, whose values and faults the caller has set.
  void run(State& state) const;

private:
  struct Instr {
    SymOp op;
    int32_t a, b, c; // registers
    int64_t value;   // Const; Scaled: the bits of the factor
  };
  int emit(SymOp op, int a, int b = -1, int c = -1, int64_t value = 0);
  int inputs_ = 0, registers_ = 0;
  std::vector<Instr> code_; // instruction i writes register inputs_ + i
  std::vector<bool> unbound_;
  std::unordered_map<SymExpr, int> by_node_;
};

[[nodiscard]] std::string_view describe(SymFault fault);

} // namespace tessera
