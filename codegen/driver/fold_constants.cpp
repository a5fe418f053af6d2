#include "codegen/driver/fold_constants.h"
#include "base/stopwatch.h"
#include "graph/ops/scatter.h"
#include "runtime/executor.h"
#include <algorithm>

namespace tessera {
namespace {

bool concrete(const SymShape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](const SymExpr& e) { return e.is_const(); });
}

// Bytes of a value of known size; nullopt otherwise.
std::optional<int64_t> bytes_of(const TensorType& type) {
  if (!concrete(type.shape)) return std::nullopt;
  Dims dims;
  for (const SymExpr& e : type.shape) dims.push_back(e.const_value());
  auto n = element_count(dims);
  return n.ok() ? std::optional<int64_t>(byte_size(type.dtype, *n)) : std::nullopt;
}

std::vector<NodeId> nodes_of(const Group& g) {
  std::vector<NodeId> out = g.kind == Group::Kind::Kernel    ? g.nest.sources
                            : g.kind == Group::Kind::Library ? g.call.sources
                                                             : std::vector<NodeId>{};
  if (g.node.valid()) out.push_back(g.node);
  for (const Group& step : g.otherwise)
    for (NodeId id : nodes_of(step)) out.push_back(id);
  return out;
}

class Folding {
public:
  Folding(Graph& graph, const FusionPlan& plan, const CompileOptions& options, FoldedConstants& folded)
      : graph_(graph), plan_(plan), options_(options), out_(folded), facts_(static_cast<size_t>(graph.node_count())) {}

  Result<bool> run() {
    out_.left.clear(); // entries of an earlier plan
    find_constant_nodes();
    choose();
    if (chosen_.empty()) return false;
    std::vector<std::pair<ValueId, Tensor>> computed;
    TESSERA_TRY(compute_all(computed));
    std::vector<ValueId> by_value;
    for (auto& [v, tensor] : computed) replace(v, std::move(tensor), by_value);
    if (by_value.empty()) return false;
    graph_.replace_uses(by_value);
    PipelineOptions pipeline;
    pipeline.passes = {"simplify-shapes", "dce"};
    pipeline.run.dump = false;
    TESSERA_ASSIGN([[maybe_unused]] auto stats, run_pipeline(graph_, pipeline));
    return true;
  }

private:
  struct Facts {
    bool constant = false;
    bool computes = false; // more than views of constants
    int64_t largest = 0;   // bytes of the largest constant from which it is computed
  };
  Facts& facts(NodeId id) { return facts_[static_cast<size_t>(id.index)]; }
  [[nodiscard]] bool is_weight(NodeId id) const {
    const auto* s = graph_.node(id).op->structured();
    return s && s->kind == Structured::Constant;
  }

  void find_constant_nodes() {
    order_ = graph_.order();
    for (NodeId id : order_) {
      const Node& node = graph_.node(id);
      Facts& f = facts(id);
      if (is_weight(id)) {
        const Tensor* t = graph_.constant(node.results[0]);
        f.constant = t != nullptr && has_bytes(t->dtype());
        f.largest = f.constant ? static_cast<int64_t>(t->bytes()) : 0;
        total_ += f.largest;
        continue;
      }
      f.constant = !node.op->side_effect;
      const auto* structured = node.op->structured();
      f.computes =
          !(node.op->indexing() && node.op->indexing()->view) && !(structured && structured->kind == Structured::Alias);
      for (const auto& [name, attribute] : node.attributes.items()) {
        const auto* dims = std::get_if<SymShape>(&attribute);
        f.constant =
            f.constant && !(dims && !concrete(*dims)) && !std::holds_alternative<std::shared_ptr<Graph>>(attribute);
      }
      for (ValueId v : node.results)
        f.constant = f.constant && (!v.valid() || (has_bytes(graph_.type(v).dtype) &&
                                                   (node.op->data_dependent_shape || concrete(graph_.type(v).shape))));
      for (ValueId v : node.operands) {
        if (!v.valid()) continue;
        const NodeId from = graph_.value(v).producer;
        f.constant = f.constant && from.valid() && facts(from).constant && concrete(graph_.type(v).shape);
        if (!f.constant) break;
        f.computes = f.computes || facts(from).computes;
        f.largest = std::max(f.largest, facts(from).largest);
      }
    }
  }

  // True if the kernel of the group reads no more than single elements.
  [[nodiscard]] bool is_fill(const Group& g) const {
    return g.kind == Group::Kind::Kernel && !g.nest.has_reduction() &&
           std::all_of(g.nest.loads.begin(), g.nest.loads.end(),
                       [&](ValueId v) { return product(graph_.type(v).shape).is_const(1); });
  }

  void choose() {
    std::vector<bool> read(static_cast<size_t>(graph_.value_count())); // by steps that are not constant
    std::vector<ValueId> written;
    std::vector<bool> filled(read.size());
    for (const Group& g : plan_.groups) {
      const auto nodes = nodes_of(g);
      const bool constant =
          !nodes.empty() && std::all_of(nodes.begin(), nodes.end(), [&](NodeId n) { return facts(n).constant; });
      if (constant) {
        written.insert(written.end(), g.writes.begin(), g.writes.end());
        for (ValueId v : g.writes) filled[static_cast<size_t>(v.index)] = is_fill(g);
        continue;
      }
      // A constant that is changed in place is copied in each call, which moves more bytes than filling the memory.
      const ValueId begin =
          g.kind == Group::Kind::Own && g.node.valid() ? ops::begins_as(graph_.node(g.node)) : ValueId();
      for (ValueId v : g.reads)
        if (v != begin || !filled[static_cast<size_t>(v.index)]) read[static_cast<size_t>(v.index)] = true;
    }
    for (const auto& o : graph_.outputs()) read[static_cast<size_t>(o.value.index)] = true;
    std::vector<bool> decided(read.size());
    for (ValueId v : written) decided[static_cast<size_t>(v.index)] = true;
    find_oversized();
    for (ValueId v : written)
      if (read[static_cast<size_t>(v.index)]) take(v);
    for (NodeId id : order_) {
      if (facts(id).constant) continue;
      for (ValueId v : graph_.node(id).operands) {
        if (!v.valid() || decided[static_cast<size_t>(v.index)] || graph_.value(v).contents) continue;
        const NodeId from = graph_.value(v).producer;
        if (!from.valid() || !facts(from).constant || is_weight(from) || !facts(from).computes) continue;
        decided[static_cast<size_t>(v.index)] = true;
        auto bytes = bytes_of(graph_.type(v));
        if (bytes && *bytes <= facts(from).largest) take(v);
      }
    }
  }

  // Intermediate results must fit the limit, too: also those that have no memory, as the sum of a constant that is
  // expanded to 2^40 elements takes as long as they are many.
  void find_oversized() {
    oversized_.assign(facts_.size(), false);
    for (NodeId id : order_) {
      if (!facts(id).constant || is_weight(id)) continue;
      bool over = false;
      for (ValueId v : graph_.node(id).results)
        if (v.valid() && concrete(graph_.type(v).shape)) { // or data decide, and it is measured when it is there
          const auto bytes = bytes_of(graph_.type(v));
          over = over || !bytes || *bytes > bound(id);
        }
      for (ValueId v : graph_.node(id).operands)
        over = over || (v.valid() && oversized_[index(graph_.value(v).producer)]);
      oversized_[index(id)] = over;
    }
  }

  static size_t index(NodeId id) { return static_cast<size_t>(id.index); }
  [[nodiscard]] int64_t bound(NodeId id) { return std::max(options_.fold_bytes, facts(id).largest); }

  void take(ValueId v) {
    const NodeId id = graph_.value(v).producer;
    const int64_t bytes =
        bytes_of(graph_.type(v)).value_or(0); // a data-dependent size is checked after the computation
    if (oversized_[index(id)] || bytes > bound(id)) {
      leave(v, bytes, "it, or what it is made from, has more than " + std::to_string(bound(id)) + " bytes");
    } else if (const int64_t most = std::max(options_.fold_bytes, total_); taken_ + bytes > most) {
      leave(v, bytes, "all that is computed would have more than " + std::to_string(most) + " bytes");
    } else {
      taken_ += bytes;
      chosen_.push_back(v);
    }
  }
  void leave(ValueId v, int64_t bytes, std::string why) {
    const Node& node = *graph_.producer(v);
    const std::string& name = graph_.value(v).name;
    out_.left.push_back({name.empty() ? node.location.str() : name, std::string(node.op->name), bytes, std::move(why)});
  }

  // All together; if that fails, each separately, so that one failing value does not prevent the others.
  Status compute_all(std::vector<std::pair<ValueId, Tensor>>& computed) {
    auto add = [&](ValueId v, Tensor& t) {
      if (static_cast<int64_t>(t.bytes()) > bound(graph_.value(v).producer))
        leave(v, static_cast<int64_t>(t.bytes()), "it has more than " + std::to_string(options_.fold_bytes) + " bytes");
      else
        computed.emplace_back(v, std::move(t));
    };
    auto all = compute(chosen_);
    if (!all.ok() && all.error().code == ErrorCode::Cancelled) return all.error();
    if (all.ok()) {
      for (size_t i = 0; i < chosen_.size(); ++i) add(chosen_[i], (*all)[i]);
      return {};
    }
    for (ValueId v : chosen_) {
      auto one = chosen_.size() == 1 ? std::move(all) : compute({v});
      if (!one.ok() && one.error().code == ErrorCode::Cancelled) return one.error();
      if (one.ok())
        add(v, (*one)[0]);
      else
        leave(v, bytes_of(graph_.type(v)).value_or(0), "computing it fails: " + one.error().message);
    }
    return {};
  }

  Result<std::vector<Tensor>> compute(const std::vector<ValueId>& values) {
    std::vector<bool> needed(facts_.size());
    for (ValueId v : values) needed[index(graph_.value(v).producer)] = true;
    for (auto it = order_.rbegin(); it != order_.rend(); ++it)
      if (needed[index(*it)])
        for (ValueId v : graph_.node(*it).operands)
          if (v.valid()) needed[index(graph_.value(v).producer)] = true;
    Graph part("constants");
    std::vector<ValueId> moved(static_cast<size_t>(graph_.value_count()));
    for (NodeId id : order_) {
      if (!needed[index(id)]) continue;
      const Node& node = graph_.node(id);
      std::vector<ValueId> operands;
      for (ValueId v : node.operands) operands.push_back(v.valid() ? moved[static_cast<size_t>(v.index)] : v);
      TESSERA_ASSIGN(NodeId copy, part.add_node(*node.op, std::move(operands), node.attributes, node.location,
                                                std::vector<std::string>(node.results.size()), node.opset));
      for (size_t r = 0; r < node.results.size(); ++r)
        if (node.results[r].valid()) moved[static_cast<size_t>(node.results[r].index)] = part.node(copy).results[r];
    }
    for (size_t i = 0; i < values.size(); ++i)
      part.add_output("value" + std::to_string(i), moved[static_cast<size_t>(values[i].index)]);
    CompileOptions host;
    host.threads = options_.threads;
    host.jobs = options_.jobs;
    host.cancelled = options_.cancelled;
    host.strict_rounding = options_.strict_rounding;
    host.cache = options_.cache;
    host.cache_dir = options_.cache_dir;
    host.fold_bytes = -1;
    TESSERA_ASSIGN(Compiled compiled, compile(std::move(part), host, "constants-"));
    for (ContainedFailure& failure : compiled.report.contained) out_.contained.push_back(std::move(failure));
    ExecutorOptions run;
    run.pool = ThreadPool::create(options_.threads);
    TESSERA_ASSIGN(auto executor, Executor::create({compiled.executable}, run));
    return executor->run({});
  }

  void replace(ValueId v, Tensor tensor, std::vector<ValueId>& by_value) {
    const SymShape shape = graph_.type(v).shape; // data-dependent sizes are known now
    for (const SymExpr& e : shape)
      if (!e.is_const() && !e.is_symbol()) return;
    for (size_t d = 0; d < shape.size(); ++d)
      if (shape[d].is_symbol()) graph_.env().set_range(shape[d], {tensor.dims()[d], tensor.dims()[d]});
    ++out_.values;
    out_.bytes += static_cast<int64_t>(tensor.bytes());
    const ValueId constant = graph_.add_constant(std::move(tensor));
    std::swap(graph_.value(constant).name, graph_.value(v).name);
    by_value.resize(static_cast<size_t>(graph_.value_count()));
    by_value[static_cast<size_t>(v.index)] = constant;
  }

  Graph& graph_;
  const FusionPlan& plan_;
  const CompileOptions& options_;
  FoldedConstants& out_;
  std::vector<Facts> facts_; // by node
  std::vector<NodeId> order_;
  std::vector<bool> oversized_; // by node
  std::vector<ValueId> chosen_;
  int64_t total_ = 0, taken_ = 0; // bytes of all constants, of the chosen values
};

} // namespace

Result<bool> fold_constants(Graph& graph, const FusionPlan& plan, const CompileOptions& options,
                            FoldedConstants& folded) {
  if (options.fold_bytes < 0) return false;
  const Stopwatch watch;
  auto changed = Folding(graph, plan, options, folded).run();
  folded.milliseconds += watch.ms();
  return changed;
}

} // namespace tessera
