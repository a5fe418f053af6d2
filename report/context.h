// Data that the parts of the report share: the compile, sizes, names of operators. Private to the folder.
#pragma once
#include "codegen/schedule/tuned.h"
#include "report/report.h"
#include <nlohmann/json.hpp>
#include <optional>

namespace tessera::report {

using Json = nlohmann::ordered_json; // keys in the order in which they were written

// Operators of the source model: several nodes of the graph may come from one, or from none that the model has.
class Operators {
public:
  struct Entry {
    std::string id; // the name, made unique by "#2"
    std::string name, op;
    std::string module; // path of the module whose call it is; empty where the model does not say
    std::string source; // of the user's program: "model.py:42"; empty where the model does not say
    bool made = false;  // by the compiler, or of a subgraph
  };
  Operators(const Graph& graph, const std::vector<Location>& of_model);
  [[nodiscard]] size_t of(NodeId node); // index into entries(); a node that no operator names becomes one
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

private:
  size_t add(const std::string& name, const Location& location, bool made);
  const Graph& graph_;
  std::vector<Entry> entries_;
  std::map<std::string, int> ids_;                                                  // how often a name was given
  std::map<std::tuple<std::string, std::string, std::string>, size_t> by_location_; // node, op, output
  std::map<std::pair<std::string, std::string>, size_t> by_name_;                   // name, op
};

class Context {
public:
  Context(const Compiled& compiled, const ReportOptions& options);

  const Compiled& c;
  const ReportOptions& options;
  const Graph& graph;
  const Executable& exe;
  const Target& device;
  Operators operators;
  CallSizes sizes;                                          // by symbol id, of every symbol of the inputs
  std::map<NodeId, std::vector<std::string>> steps_of_node; // ids, filled by steps_json()
  std::map<std::string, int64_t> named, planned;            // the same by name; those that the planner took

  // With amounts at these sizes; where the planner compared them at others and would decide otherwise at these, it says so.
  [[nodiscard]] std::string detail(const Detail& detail) const;
  // The value at these sizes; nothing where only a run knows it.
  [[nodiscard]] std::optional<double> value(const SymExpr& e) const;
  [[nodiscard]] Json sized(const SymExpr& e) const;
  [[nodiscard]] std::string name(ValueId value) const;
  [[nodiscard]] Json names(const std::vector<ValueId>& values) const; // [{"name", "type"}]
  [[nodiscard]] Json ids(const std::vector<NodeId>& nodes);           // of their operators, each once

  // Microseconds to move bytes that a step before or behind has just written or will read next.
  [[nodiscard]] double transfer_us(double bytes) const;
};

// A step of the executable and the group that it is of.
struct StepOf {
  int index = -1;               // into Executable::steps
  const Group* group = nullptr; // null: a copy
  size_t group_index = 0;       // in flat_groups()
  int kernel = -1;              // into CompileReport::kernels; -1: no code
  bool otherwise = false;       // runs only where a library refuses the attention before it
};
[[nodiscard]] std::vector<StepOf> steps_of(const Compiled& compiled);

// ---- the parts, in the order of the JSON
[[nodiscard]] Json steps_json(Context& context, Json& all); // adds bodies' steps, edges ... to `all`
[[nodiscard]] Json edges_json(Context& context, const Json& steps);
[[nodiscard]] Json pairs_json(Context& context);
[[nodiscard]] Json breaks_json(Context& context, const Json& steps);
[[nodiscard]] Json symbols_json(Context& context, const Json& steps);
[[nodiscard]] Json memory_json(Context& context);
[[nodiscard]] Json layers_json(Context& context, Json& steps); // gives each step its class
// The whole report of a compile, as a body of control flow has it, too.
[[nodiscard]] Json report_json(const Compiled& compiled, const ModelInfo& model, const ReportOptions& options);

} // namespace tessera::report
