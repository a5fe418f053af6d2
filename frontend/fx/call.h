// One call of an ATen operator while it is being translated: its arguments by the names of PyTorch's schema, and the
// builder (graph/ops/build.h) for the nodes that it becomes. Errors are sticky: after the first one every argument is
// empty and nothing is added, so that a translation reads as its formula:
//
//   void translate_addmm(Call& c) {
//     ValueId product = c.b.matmul(c.tensor("mat1"), c.tensor("mat2"));
//     c.result(c.b.add(c.scaled(product, "alpha"), c.scaled(c.tensor("self"), "beta")));
//   }
#pragma once
#include "frontend/fx/program.h"
#include "frontend/fx/schema.h"
#include "graph/ops/build.h"
#include <functional>
#include <variant>

namespace tessera::fx {

// What a name of the program stands for: nothing, a tensor, a list of tensors (an invalid id is None), a symbolic
// integer or boolean, a symbolic number as a scalar tensor of f64.
struct SymbolicNumber {
  ValueId value;
};
using Item = std::variant<std::monostate, ValueId, std::vector<ValueId>, SymExpr, SymbolicNumber>;

// A number in the place of a tensor or of a Scalar argument.
struct Scalar {
  enum class Kind : uint8_t { Bool, Int, Float, Size /* symbolic integer */, Number /* symbolic number */ };
  Kind kind = Kind::Int;
  int64_t integer = 0;
  double number = 0; // the value of Bool, Int and Float
  SymExpr size;
  ValueId value; // Number: f64[]
  [[nodiscard]] bool is_constant() const { return kind != Kind::Size && kind != Kind::Number; }
};

// A tensor that a call writes to, by its name in the program, and its value from then on.
struct Written {
  std::string name;
  ValueId value;
};

class Call {
public:
  // `lookup`: the item of a name, nullptr where there is none. `node` names the place that the new nodes come from.
  using Lookup = std::function<const Item*(const std::string&)>;
  using Sizes = std::function<Result<SymShape>(const std::vector<Size>&)>;
  Call(Graph& graph, const Node& node, const FxNode& fx, const FxGraph& program, const Schema& schema, Lookup lookup,
       Sizes sizes);

  ops::B b;

  // -- arguments; the schema's default stands for one that is left out
  [[nodiscard]] bool given(std::string_view name) const;             // is there and is not None
  [[nodiscard]] ValueId tensor(std::string_view name);               // fails for None
  [[nodiscard]] ValueId maybe(std::string_view name);                // an invalid id for None
  [[nodiscard]] std::vector<ValueId> tensors(std::string_view name); // an invalid id for None in it
  [[nodiscard]] bool is_tensor(std::string_view name) const;         // not a number, None or a list
  [[nodiscard]] int64_t integer(std::string_view name);              // fails for a symbolic one
  [[nodiscard]] std::optional<int64_t> maybe_integer(std::string_view name);
  [[nodiscard]] double number(std::string_view name); // fails for a symbolic one
  [[nodiscard]] std::optional<double> maybe_number(std::string_view name);
  [[nodiscard]] bool flag(std::string_view name);
  [[nodiscard]] std::string text(std::string_view name);
  [[nodiscard]] Ints ints(std::string_view name); // empty for None; one integer where a list is expected is a list
  [[nodiscard]] SymExpr size(std::string_view name);
  [[nodiscard]] SymShape sizes(std::string_view name); // empty for None
  [[nodiscard]] std::vector<double> numbers(std::string_view name);
  [[nodiscard]] std::optional<DType> dtype(std::string_view name); // nothing for None
  [[nodiscard]] Scalar scalar(std::string_view name);
  // An axis of a tensor of `rank`, counted from the end where negative; a scalar has the axes 0 and -1, which are 0.
  [[nodiscard]] int64_t axis(std::string_view name, int rank);
  // Axes, sorted and distinct; all of them where the argument is None, or empty and `empty_is_all`.
  [[nodiscard]] Ints axes(std::string_view name, int rank, bool empty_is_all = true);

  // Strides and storage offset, in elements, that the exporter states for a tensor argument; nothing where it does not.
  struct Memory {
    SymShape strides;
    SymExpr offset;
  };
  [[nodiscard]] std::optional<Memory> memory(std::string_view name);

  // -- what the exporter says of a result
  [[nodiscard]] DType result_dtype(int index = 0);
  [[nodiscard]] SymShape result_shape(int index = 0);
  [[nodiscard]] bool is_used(int index) const; // a node or an output of the graph reads it
  [[nodiscard]] int result_count() const;      // tensors of a list count individually
  [[nodiscard]] const FxNode& fx() const { return fx_; }
  [[nodiscard]] const Schema& schema() const { return schema_; }

  // -- numbers as tensors
  [[nodiscard]] ValueId literal(const Scalar& s, DType dtype);       // a 0-d tensor
  [[nodiscard]] ValueId operand(std::string_view name, DType dtype); // a tensor cast to dtype, or a number as literal()
  // x times the Scalar argument, x itself where that is 1.
  [[nodiscard]] ValueId scaled(ValueId x, std::string_view name);

  // -- type promotion, as torch.result_type: tensors and numbers of these arguments (None is passed over)
  [[nodiscard]] DType promoted(std::initializer_list<std::string_view> names);
  [[nodiscard]] static DType promote(DType a, DType b);

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
  // The argument, or the schema's default for it; nullptr where it is None or there is none.
  [[nodiscard]] const Argument* find(std::string_view name) const;
  [[nodiscard]] const Argument* result_argument(int index) const; // nullptr where there are fewer
  [[nodiscard]] const TensorMeta* meta(int index) const;
  const Item* item(const Argument& a);
  std::optional<SymExpr> as_size(const Argument& a);
  std::optional<double> as_number(const Argument& a);
  // The number, unless its magnitude is more than any size's: that fails.
  std::optional<int64_t> within_sizes(std::string_view name, int64_t value);
  void wrong(std::string_view name, std::string_view expected, const Argument* found);

  const FxNode& fx_;
  const FxGraph& program_;
  const Schema& schema_;
  Lookup lookup_;
  Sizes sizes_;
  mutable std::map<std::string, Argument, std::less<>> fallbacks_; // defaults that were read
  std::vector<ValueId> results_;
  std::vector<Written> written_;
};

using Translate = std::function<void(Call&)>;

// What undoes a view: the call's `self` with the elements that its result number `result` shows replaced by `written`.
using WriteBack = ValueId (*)(Call&, ValueId written, int result);

// Translations by operator and overload: "add.Tensor".
class AtenTable {
public:
  static const AtenTable& get();
  void add(std::initializer_list<std::string_view> names, Translate translate);
  [[nodiscard]] Translate find(std::string_view name) const;
  // Operators whose results share memory with `self`.
  void add_views(std::initializer_list<std::string_view> names, WriteBack write_back);
  [[nodiscard]] WriteBack find_view(std::string_view name) const;
  [[nodiscard]] const std::map<std::string_view, Translate>& all() const { return rows_; }

private:
  AtenTable();
  std::map<std::string_view, Translate> rows_;
  std::map<std::string_view, WriteBack> views_;
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
void register_resample(AtenTable&);
void register_recurrent(AtenTable&);
void register_composites(AtenTable&);

// The translation of an operator whose record (graph/ops) states its ATen name: operands are the tensors of the schema,
// attributes the arguments of the same names. nullptr: no record states it.
[[nodiscard]] const OpDef* record_of(std::string_view name); // "relu.default"
void translate_by_record(Call& c, const OpDef& op);

} // namespace tessera::fx
