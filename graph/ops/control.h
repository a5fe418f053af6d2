// If, Loop and Scan: operators that run graphs.
//
// A body is a Graph attribute. It has an environment of its own (ShapeEnv::inner), so that what one branch requires of
// sizes binds only calls that take it. Values that a body reads from around it are inputs behind its own, and operands
// behind the node's own; the attribute `captures` counts them, by graph attribute in the order of names.
//
//   if          cond, captures...                      then_branch() -> results, else_branch() -> results
//   loop        trips?, cond?, carried..., captures... body(i64 iteration, bool cond, carried...) -> cond, carried..., slices...
//   scan_graph  carried..., scanned..., captures...    body(carried..., slices of scanned...) -> carried..., slices...
//
// Sizes. A dimension of a result is the body's where every body agrees on it and it speaks only of symbols from around
// the node; else it is a fresh symbol that running the node defines. A carried value may change its sizes: the body's
// input then has a symbol of its own there, which binds anew in each iteration.
#pragma once
#include "graph/ops/record.h"

namespace tessera::ops {

// How the operands of a node, and the inputs and outputs of its bodies, are divided.
struct ControlForm {
  enum class Kind : uint8_t { If, Loop, Scan } kind = Kind::If;
  struct Body {
    std::shared_ptr<Graph> graph;
    int first_capture = 0, captures = 0; // operands
  };
  std::vector<Body> bodies;                                                   // If: then, else
  int before = 0;                                                             // body inputs before the carried values
  int carried = 0, scanned = 0;                                               // operands
  int first_carried = 0;                                                      // operand
  int stacked = 0;                                                            // results behind the carried ones
  std::vector<bool> reverse_in;                                               // by scanned operand
  std::vector<bool> reverse_out;                                              // by stacked result
  [[nodiscard]] int conditions() const { return kind == Kind::Loop ? 1 : 0; } // body outputs before the carried values
};
// Reads the form of a node `if`, `loop` or `scan_graph`. Error BadAttribute where node and bodies do not fit each
// other.
[[nodiscard]] Result<ControlForm> control_form(const Node& node);
// Repeats in `outer` the assumptions that code of a body makes about sizes from around it, so that a call for which
// they do not hold gets another variant. An assumption that the other body of an If contradicts stays with the body.
void assume_around(Graph& outer, const ShapeEnv& body);
// Makes a sample's body of one f32[2] `x`, behind `before` inputs of a loop. It yields op(x, x), and where `twice`,
// that twice.
[[nodiscard]] std::shared_ptr<Graph> sample_body(std::string_view op, int before, bool twice);

} // namespace tessera::ops
