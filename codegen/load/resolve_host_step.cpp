#include "codegen/load/resolve_host_step.h"
#include "graph/ir/graph.h"
#include "graph/ir/operator.h"
#include "graph/reference/evaluator.h"
#include <algorithm>

namespace tessera {
namespace {

bool computes(const Node& node) {
  const auto* structured = node.op->structured();
  return !structured || structured->kind != Structured::Constant;
}

// Whether a list holds what these items are: their number where the container says it, and element types. Sizes are
// those of the items themselves.
bool holds(const ItemType& items, const Tensor& list) {
  if (list.dtype() != DType::List) return false;
  const auto& held = list.items();
  if (items.container == ItemType::Container::Map)
    return held.size() == 2 && held[0].dtype() == items.keys && held[1].dtype() == items.dtype &&
           held[0].dims().size() == 1 && held[0].dims() == held[1].dims();
  if (items.container == ItemType::Container::Optional && held.size() > 1) return false;
  return std::all_of(held.begin(), held.end(), [&](const Tensor& t) {
    return t.defined() && t.dtype() == items.dtype && (!items.items || holds(*items.items, t));
  });
}

// A payload's operator, ready to run: tensors are checked against the inferred types.
class ResolvedStep {
public:
  static Result<ResolvedStep> create(const HostStep& step, const Executable& executable) {
    auto parsed = parse_graph(step.payload, step.name);
    if (!parsed.ok()) return parsed.error();
    ResolvedStep r;
    r.graph_ = std::make_shared<const Graph>(std::move(*parsed));
    auto contradiction = [&](const std::string& what) { return Diagnostic(ErrorCode::CorruptFile, what); };
    for (NodeId id : r.graph_->order()) {
      if (!computes(r.graph_->node(id))) continue;
      if (r.node_.valid()) return contradiction("its text has several operators");
      r.node_ = id;
    }
    if (!r.node_.valid() || r.node().op->name != step.op) return contradiction("its text has no '" + step.op + "'");
    auto same = [&](const std::vector<ValueId>& values, const std::vector<BufferId>& buffers, bool results) {
      if (values.size() != buffers.size()) return false;
      for (size_t i = 0; i < values.size(); ++i) {
        if (buffers[i] < 0 && (results || !values[i].valid())) continue; // an omitted operand or result
        if (buffers[i] < 0 || !values[i].valid()) return false;
        const auto& buffer = executable.buffers[static_cast<size_t>(buffers[i])];
        const TensorType& type = r.graph_->type(values[i]);
        if (type.dtype != buffer.dtype || type.shape.size() != buffer.shape.size()) return false;
      }
      return true;
    };
    if (!same(r.node().operands, step.inputs, false) || !same(r.node().results, step.outputs, true))
      return contradiction("its text has other operands or results");
    for (const SymExpr& s : r.graph_->env().symbols())
      if (auto known = executable.env->find(s.symbol_name()))
        r.symbols_.emplace_back(known->symbol_id(), s.symbol_id());
    for (BufferId b : step.outputs)
      r.declared_.push_back(b >= 0 ? executable.buffers[static_cast<size_t>(b)].shape : SymShape());
    return r;
  }

  Result<std::vector<Tensor>> operator()(std::vector<Tensor> operands, const SymValues& sizes) const {
    SymValues own;
    for (auto [theirs, ours] : symbols_)
      if (auto it = sizes.find(theirs); it != sizes.end()) own.emplace(ours, it->second);
    for (size_t i = 0; i < operands.size(); ++i) {
      const ValueId v = node().operands[i];
      if (!v.valid()) continue;
      if (const Tensor* constant = graph_->constant(v))
        operands[i] = *constant; // a constant that shape inference read
      else
        TESSERA_TRY(check(graph_->type(v), operands[i], own));
    }
    TESSERA_TRY(check_results(sizes, own));
    return evaluate_node(*graph_, node(), operands, own);
  }

private:
  [[nodiscard]] const Node& node() const { return graph_->node(node_); }
  Diagnostic contradiction(const std::string& what) const {
    return Diagnostic(ErrorCode::Internal, node().location, "'" + std::string(node().op->name) + "': " + what);
  }
  // Binds sizes that only this tensor determines.
  Status check(const TensorType& type, const Tensor& t, SymValues& own) const {
    bool fits = t.dtype() == type.dtype && t.dims().size() == type.shape.size();
    for (size_t d = 0; d < type.shape.size() && fits; ++d)
      if (type.shape[d].is_symbol()) own.emplace(type.shape[d].symbol_id(), t.dims()[d]);
    for (size_t d = 0; d < type.shape.size() && fits; ++d) {
      auto size = type.shape[d].eval(own);
      fits = size.ok() && *size == t.dims()[d];
    }
    fits = fits && (!type.items || holds(*type.items, t));
    return fits ? Status() : contradiction("an operand is not the " + type.str() + " that its text declares");
  }
  // Result sizes that are known before the call must be those of the executable, which allocates the results.
  Status check_results(const SymValues& sizes, const SymValues& own) const {
    for (size_t r = 0; r < declared_.size(); ++r)
      for (size_t d = 0; d < declared_[r].size(); ++d) {
        const SymExpr& e = graph_->type(node().results[r]).shape[d];
        auto made = e.eval(own), declared = declared_[r][d].eval(sizes);
        if (made.ok() && declared.ok() && *made != *declared)
          return contradiction("its text makes a result whose dimension " + std::to_string(d) + " is " +
                               std::to_string(*made) + ", expected " + std::to_string(*declared));
      }
    return {};
  }

  std::shared_ptr<const Graph> graph_;
  NodeId node_;
  std::vector<std::pair<uint64_t, uint64_t>> symbols_; // the executable's, the text's
  std::vector<SymShape> declared_;                     // of results, over the executable's symbols
};

} // namespace

Result<decltype(HostStep::run)> resolve_host_step(const HostStep& step, const Executable& executable) {
  auto resolved = ResolvedStep::create(step, executable);
  if (resolved.ok()) return decltype(HostStep::run)(std::move(*resolved));
  // An operator of a library that is not loaded: the step's own, or one in a body of it.
  const std::string& unknown = OpTable::get().find(step.op) ? resolved.error().location.op : step.op;
  if (!unknown.empty() && OpTable::get().find(unknown) == nullptr)
    return Diagnostic(ErrorCode::UnsupportedOp, "operator '" + unknown + "', which runs on the host, is not known")
        .note("load the library that has it first: --operators FILE, or tessera_load_operators()");
  return Diagnostic(ErrorCode::CorruptFile,
                    "operator '" + step.name + "' cannot be made again: " + resolved.error().str())
      .note("compile the model again with `tessera compile`");
}

} // namespace tessera
