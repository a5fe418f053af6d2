// Program to Graph: names to values, one ATen call after the other.
#pragma once
#include "frontend/fx/archive.h"
#include "frontend/fx/call.h"
#include "frontend/fx/importer.h"
#include "frontend/fx/mutation.h"
#include "frontend/fx/symbols.h"
#include <functional>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace tessera::fx {

// A weight by the name that the signature gives it, with the sizes that the program states.
using WeightLookup = std::function<Result<StoredWeight>(const std::string& name, const TensorMeta& meta)>;

[[nodiscard]] bool is_control(const FxNode& node); // it runs graphs

// The location of a node, as errors name it.
[[nodiscard]] Location place_of(const FxNode& node, const std::string& file);

class GraphBuilder {
public:
  GraphBuilder(const Program& program, const ImportOptions& options, WeightLookup weights, std::string file,
               bool strided, ImportedModel& out);
  // states: weights by their names in the signature, which the model keeps from call to call.
  [[nodiscard]] Status build(std::set<std::string, std::less<>> states);
  // Weights that the program wrote to in place, as far as it was built, by their names in the signature.
  [[nodiscard]] std::set<std::string, std::less<>> written_weights() const;
  // The same, but a node that fails is noted, and its results are inputs.
  [[nodiscard]] Result<std::vector<Refusal>> survey();

private:
  void describe(); // what the program says of itself, to the model
  Status add_inputs();
  Status add_nodes(std::vector<Refusal>* refusals);
  Status add_node(const FxNode& node, Location where);
  Status add_call(const FxNode& node, const Node& place);
  // The operator `name` ("add.Tensor") with the node's arguments.
  // `written`: where to put what the call writes to its arguments.
  Result<std::vector<ValueId>> translate(const FxNode& node, const Node& place, const std::string& name,
                                         std::vector<Written>* written = nullptr);
  // Runs a translation of the call: lists that are too short for it are an error of the call.
  void run(Call& call, const std::function<void()>& translation);
  Call call_of(const FxNode& node, const Node& place, const Schema& schema);
  // -- writes (mutation.cpp)
  Status add_write(const FxNode& node, const Node& place, const std::string& functional);
  Status write(const std::string& name, ValueId value, const Node& place);
  Status refresh(const std::string& name);    // makes a view again whose memory was written to, and those that made it
  Status make_again(const std::string& name); // that one, whose parent shows what the memory holds
  Status refresh_arguments(const FxNode& node);
  void note_views(const FxNode& node); // results that share memory with the node's `self`
  // -- graphs within the program (control.cpp)
  Status add_control(const FxNode& node, const Location& where);
  // The values of `region`'s results for these inputs, as nodes of `into`, which is this builder's graph or a body.
  Result<std::vector<ValueId>> run_region(const FxGraph& region, const std::vector<Item>& inputs, ImportedModel& into,
                                          const Location& where);
  // Results of a node that runs graphs.
  Status define_control_results(const FxNode& node, const std::vector<ValueId>& results, const Location& where);
  // Outputs for inputs that were written to and that the signature does not name, whose names go to `changed`; then the
  // new values of states: those that the signature names (`stated`, by weight), or what their memory holds.
  Status add_written_outputs(std::unordered_set<std::string>& taken, std::vector<std::string>& changed,
                             const std::map<std::string, ValueId>& stated);
  Status define_results(const FxNode& node, const std::vector<ValueId>& results, const Location& where);
  Status define_tensor(const std::string& name, ValueId value, const Location& where);
  Status define_size(const Argument& a);
  Status define_opaque(const FxNode& node);
  [[nodiscard]] const Diagnostic* unreadable_input(const FxNode& node) const;
  Status add_outputs();
  Status symbolic(const FxNode& node, const Location& where); // _operator.*, sym_size ...
  // A tensor of one element that must not be 0 when the program runs.
  Status add_assertion(const FxNode& node, const Location& where);
  // `output`, whose computation fails where an assertion does.
  Result<ValueId> under_assertions(ValueId output);
  // A symbolic number's operand, and its value: tensors f64[].
  Result<ValueId> number_of(const Argument& a, ops::B& b, const Location& where);
  Result<ValueId> number_from(const FxNode& node, std::string_view name, const Location& where);
  Result<ValueId> input(const std::string& name, const TensorMeta& meta);
  Result<ValueId> weight(const std::string& name, const TensorMeta& meta); // an input where it is a state
  Result<TensorType> type_of(const std::string& name, const TensorMeta& meta);
  Result<Item> item_of(const Argument& a, const Location& where);
  // Dimensions in the order of memory, outermost first, if the strides are a permutation of contiguous ones and not
  // contiguous; else empty.
  Ints memory_order(const TensorMeta& meta);
  [[nodiscard]] Location place_of(const FxNode& node) const;
  [[nodiscard]] Location file_location() const;
  std::string unique(std::string name);

  const Program& program_;
  const ImportOptions& options_;
  WeightLookup weights_;
  std::string file_;
  bool strided_;
  std::set<std::string, std::less<>> kept_; // names of weights
  ImportedModel& out_;
  SymbolTable symbols_;
  std::unordered_map<std::string, Item> items_;
  bool surveying_ = false;
  std::unordered_map<std::string, Diagnostic> unreadable_; // values of a survey that have no type here: why
  std::unordered_set<std::string> names_;
  Aliases aliases_;
  struct Assertion {
    ValueId condition; // bool[]
    std::string message;
    Location where;
  };
  std::vector<Assertion> assertions_;
  // Weights by where they lie and what they are: two names of one storage are one constant.
  std::map<std::tuple<const std::byte*, DType, Dims>, ValueId> shared_;
};

} // namespace tessera::fx
