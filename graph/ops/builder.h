// The builder of decompositions: it holds the node that is rewritten, and adds new nodes in its place.
#pragma once
#include "graph/ops/record.h"

namespace tessera::ops {

// Builder with a sticky error: after the first failure every operation yields an invalid value and nothing is added;
// done() returns what was built or that first error. So a decomposition reads as its formula:
//   B b(graph, node);
//   return b.done(mul(b, b.in(0), sigmoid(b, b.in(0))));
// Operators are functions of it (formulas.h). Code that takes shapes apart after a step that can fail checks ok() first; shape() of an invalid value is empty.
class B {
public:
  // A tensor operand: a value, or a literal of the other operand's dtype.
  struct Arg {
    Arg(ValueId v) : value(v) {}                    // NOLINT: implicit on purpose
    Arg(double v) : literal(v), is_literal(true) {} // NOLINT: implicit on purpose
    ValueId value;
    double literal = 0;
    bool is_literal = false;
  };

  // Copies the node: appending to the graph may move the one in it.
  B(Graph& graph, const Node& node);
  ~B();

  // -- what the node has
  [[nodiscard]] const Node& node() const { return node_; }
  [[nodiscard]] const Attributes& attr() const { return node_.attributes; }
  [[nodiscard]] int opset() const { return node_.opset; }
  [[nodiscard]] Graph& graph() { return graph_; }
  [[nodiscard]] ShapeEnv& env() { return graph_.env(); }
  [[nodiscard]] int operands() const { return static_cast<int>(node_.operands.size()); }
  [[nodiscard]] bool has(int operand) const;
  [[nodiscard]] ValueId in(int operand) const;    // invalid when left out
  [[nodiscard]] TensorType type(ValueId v) const; // a copy; f32[] for an invalid value
  [[nodiscard]] SymShape shape(ValueId v) const { return type(v).shape; }
  [[nodiscard]] DType dtype(ValueId v) const { return type(v).dtype; }
  [[nodiscard]] int rank(ValueId v) const { return type(v).rank(); }
  [[nodiscard]] SymExpr dim(ValueId v, int64_t axis) const; // 1 when there is no such dimension
  // The same as InferContext::known() and known_ints(); in(operand) is the value that was read from then on.
  [[nodiscard]] std::vector<SymExpr> known(int operand);
  [[nodiscard]] Ints known_ints(int operand);
  [[nodiscard]] std::vector<SymExpr> sizes(int operand); // known(), none of them negative
  // The same for integers that the decomposition computes.
  [[nodiscard]] std::vector<SymExpr> read(ValueId v);
  // Which way a condition over sizes goes, as ShapeEnv::decide().
  [[nodiscard]] bool decide(const SymExpr& condition, bool otherwise, std::string reason);
  void check_size(const SymExpr& e, std::string_view what); // fails where it can be known to be negative; exact
  [[nodiscard]] int64_t axis(int64_t a, int rank);          // into [0, rank); fails BadAttribute
  [[nodiscard]] Ints axes(const Ints& axes, int rank);      // the same for several, sorted and distinct

  // -- errors
  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  void fail(Diagnostic d);
  void fail(ErrorCode code, std::string message);
  void check(const Status& status) {
    if (!status.ok()) fail(status.error());
  }
  [[nodiscard]] Result<std::vector<ValueId>> done(ValueId v) { return done(std::vector<ValueId>{v}); }
  [[nodiscard]] Result<std::vector<ValueId>> done(std::vector<ValueId> vs);
  // The first error, where there was one and nothing more can be built.
  [[nodiscard]] Result<std::vector<ValueId>> failed() const {
    TESSERA_CHECK(error_.has_value(), "nothing failed");
    return *error_;
  }

  // -- any operator by name
  ValueId op(std::string_view name, std::vector<ValueId> operands, Attributes attributes = {});
  // One with several results; `count` values come back (invalid ones after an error).
  std::vector<ValueId> ops(std::string_view name, std::vector<ValueId> operands, Attributes attributes, int count);
  ValueId op1(std::string_view name, ValueId x) { return op(name, {x}); }
  ValueId op2(std::string_view name, const Arg& a, const Arg& b);

  // -- constants
  ValueId constant(Tensor t);
  ValueId scalar(DType dtype, double v);
  ValueId scalar_i(DType dtype, int64_t v);
  ValueId like(ValueId x, double v) { return scalar(dtype(x), v); }
  ValueId ints(const Ints& values);    // i64 vector
  ValueId dims(const SymShape& sizes); // i64 vector: a constant, or dims_constant when symbolic
  // A size as a scalar of `dtype`: a constant, or dims_constant when symbolic.
  ValueId size(const SymExpr& e, DType dtype);

private:
  template <class Query>
  auto contents(const Query& query);
  Graph& graph_;
  Node node_;
  std::optional<Diagnostic> error_;
};

// Integers that are read from data are bound within +-kReadMax (symbols/env.h): fails where one was beyond.
void check_exact(B& b, const SymExpr& e, std::string_view what);

} // namespace tessera::ops
