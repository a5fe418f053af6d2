// Bodies of If, Loop and Scan, each compiled as a graph of its own by the same pipeline.
//
// A body shares the symbols of the graph around it. Those that it speaks of and that none of its inputs binds are given
// to it as inputs of no elements, [0, size].
#pragma once
#include "codegen/driver/compile.h"
#include "graph/ops/control.h"

namespace tessera {

struct BodyCode {
  std::shared_ptr<const Compiled> compiled;
  struct Input {
    int input = -1;   // of the body's graph; -1: a size
    SymExpr size = 0; // of the outer graph
  };
  std::vector<Input> inputs; // by input of the executable
};
struct ControlCode {
  ops::ControlForm form;
  std::vector<BodyCode> bodies; // If: then, else
  bool continues = false;       // the body yields a condition that is not known to hold
};
// The bodies of an If or a loop as graphs that can be compiled alone, before any pass.
struct BodyGraph {
  Graph graph;
  std::vector<BodyCode::Input> inputs; // by input of the graph
};
// `code`: takes what else is known of the bodies, where given. Error: of a node that has no bodies.
[[nodiscard]] Result<std::vector<BodyGraph>> body_graphs(const Graph& graph, NodeId node, ControlCode* code = nullptr);
// The bodies of `node`. Errors: those of compile(), noted with the node.
[[nodiscard]] Result<ControlCode> compile_bodies(const Graph& graph, NodeId node, const CompileOptions& options,
                                                 const std::string& dump_prefix);

} // namespace tessera
