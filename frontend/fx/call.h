// One call of an ATen operator while it is being translated: its arguments, the builder for the nodes that it becomes,
// and its results. Errors are sticky: after the first one every argument is empty and nothing is added, so that a
// translation reads as its formula:
//
//   void translate_addmm(Call& c) {
//     ValueId product = matmul(c.b, c.in.tensor("mat1"), c.in.tensor("mat2"));
//     c.result(add(c.b, scaled(c.b, c.in, product, "alpha"), scaled(c.b, c.in, c.in.tensor("self"), "beta")));
//   }
#pragma once
#include "frontend/fx/promotion.h"
#include "graph/ops/formulas.h"

namespace tessera::fx {

// A tensor that a call writes to, by its name in the program, and its value from then on.
struct Written {
  std::string name;
  ValueId value;
};

class Call {
public:
  // `node` names the place that the new nodes come from.
  Call(Graph& graph, const Node& node, const FxNode& fx, const FxGraph& program, const Schema& schema,
       Arguments::Lookup lookup, Arguments::Sizes sizes);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  ops::B b;
  Arguments in;

  // -- what the exporter says of a result
  [[nodiscard]] DType result_dtype(int index = 0);
  [[nodiscard]] SymShape result_shape(int index = 0);
  [[nodiscard]] bool is_used(int index) const; // a node or an output of the graph reads it
  [[nodiscard]] int result_count() const;      // tensors of a list count individually
  [[nodiscard]] const FxNode& fx() const { return fx_; }
  [[nodiscard]] const Schema& schema() const { return schema_; }

  // -- results, in order
  void result(ValueId v) { results_.push_back(v); }
  void results(const std::vector<ValueId>& vs) { results_.insert(results_.end(), vs.begin(), vs.end()); }
  void unused_result() { results_.push_back({}); } // one that must not be read
  [[nodiscard]] const std::vector<ValueId>& all_results() const { return results_; }
  // The argument's memory holds `v` after the call, in the element type that it has. For operators whose schema does
  // not say that they write: batch_norm to its running statistics.
  void writes(std::string_view name, ValueId v);
  [[nodiscard]] const std::vector<Written>& written() const { return written_; }
  // "not supported": the call runs elsewhere, or is an error of the import.
  void unsupported(std::string what) { b.fail(ErrorCode::UnsupportedFeature, std::move(what)); }

private:
  [[nodiscard]] const Argument* result_argument(int index) const; // nullptr where there are fewer
  [[nodiscard]] const TensorMeta* meta(int index) const;

  const FxNode& fx_;
  const FxGraph& program_;
  const Schema& schema_;
  Arguments::Sizes sizes_;
  std::vector<ValueId> results_;
  std::vector<Written> written_;
};

using Translate = std::function<void(Call&)>;

// Inverts a view: gives the call's `self` with the elements that its result number `result` shows replaced by
// `written`.
using WriteBack = ValueId (*)(Call&, ValueId written, int result);

// A dimension of a tensor argument that a device's libraries or kernels for the operator have as a constant, such as the
// width of attention's heads: with a symbol in its place the operator runs in steps. A caller that can guard sizes makes
// it known (docs/pytorch.md).
struct KnownSize {
  std::string_view argument;
  int dim;                            // from the end: -1 is the last
  std::string_view differs_from = {}; // only where that argument's same dimension is another; empty: in any case
};

// Translations by operator and overload: "add.Tensor".
class AtenTable {
public:
  static const AtenTable& get();
  void add(std::initializer_list<std::string_view> names, Translate translate);
  [[nodiscard]] Translate find(std::string_view name) const;
  // Operators whose results share memory with `self`.
  void add_views(std::initializer_list<std::string_view> names, WriteBack write_back);
  [[nodiscard]] WriteBack find_view(std::string_view name) const;
  void add_known(std::initializer_list<std::string_view> names, const std::vector<KnownSize>& sizes);
  [[nodiscard]] const std::map<std::string_view, std::vector<KnownSize>>& known() const { return known_; }
  [[nodiscard]] const std::map<std::string_view, Translate>& all() const { return rows_; }

private:
  AtenTable();
  std::map<std::string_view, Translate> rows_;
  std::map<std::string_view, WriteBack> views_;
  std::map<std::string_view, std::vector<KnownSize>> known_;
};
// Registering functions, one per file of aten/.
void register_pointwise(AtenTable&);
void register_activations(AtenTable&);
void register_creation(AtenTable&);
void register_reductions(AtenTable&);
void register_views(AtenTable&);
void register_movement(AtenTable&);
void register_indexing(AtenTable&);
void register_scatter(AtenTable&);
void register_sort_scan(AtenTable&);
void register_products(AtenTable&);
void register_norms(AtenTable&);
void register_windows(AtenTable&);
void register_convolution(AtenTable&);
void register_attention(AtenTable&);
void register_losses(AtenTable&);
void register_upsample(AtenTable&);
void register_resample(AtenTable&);
void register_recurrent(AtenTable&);
void register_composites(AtenTable&);

// The translation of an operator whose record (graph/ops) states its ATen name: operands are the tensors of the schema,
// attributes the arguments of the same names. nullptr: no record states it.
[[nodiscard]] const OpDef* record_of(std::string_view name); // "relu.default"
void translate_by_record(Call& c, const OpDef& op);

} // namespace tessera::fx
