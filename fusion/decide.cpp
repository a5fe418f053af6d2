#include "fusion/decide.h"
#include "fusion/compared_extremes.h"
#include "fusion/structured_nest.h"
#include "graph/ir/sizes.h"
#include "graph/ops/questions.h"
#include <algorithm>

namespace tessera::fusion {

bool is_view(const Graph& graph, ValueId value) {
  const Node* node = graph.producer(value);
  return node && !node->operands.empty() && node->op->indexing() && node->op->indexing()->view;
}

namespace {

// Limits of one expression: recursion while expanding it, and its size.
constexpr int kMaxDepth = 48;
constexpr double kMaxNodes = 400;

class Decider {
public:
  Decider(const Graph& graph, const FusionOptions& options, const Steering& steering, AxisPool& pool,
          NodeBodies& bodies, Estimator& estimate)
      : graph_(graph), options_(options), steering_(steering), pool_(pool), bodies_(bodies), estimate_(estimate) {}

  Result<Decisions> run() {
    auto nodes = static_cast<size_t>(graph_.node_count()), values = static_cast<size_t>(graph_.value_count());
    out_.order = graph_.order();
    out_.place.assign(nodes, Place::Unneeded);
    out_.host_reason.resize(nodes);
    out_.pinned.assign(values, false);
    out_.is_virtual.assign(values, false);
    out_.too_expensive.assign(values, false);
    out_.sites.assign(values, 0);
    TESSERA_TRY(places());
    pin_values();
    draft_calls();
    count_sites();
    out_.compared = compared_with_their_extremes(graph_, out_.order, bodies_);
    for (NodeId id : out_.order)
      if (place(id) == Place::Loops)
        for (ValueId v : graph_.node(id).results)
          if (v.valid()) TESSERA_TRY(choose(v));
    return std::move(out_);
  }

private:
  Place& place(NodeId id) { return out_.place[static_cast<size_t>(id.index)]; }
  [[nodiscard]] Place place(NodeId id) const { return out_.place[static_cast<size_t>(id.index)]; }
  static size_t at(ValueId v) { return static_cast<size_t>(v.index); }

  // Chooses where each needed node runs, backwards, so that nodes that only known contents depend on are not needed at
  // all.
  Status places() {
    const SizeDefiners sizes(graph_);
    std::vector<bool> wanted(out_.pinned.size(), false);
    for (const auto& output : graph_.outputs()) wanted[at(output.value)] = true;
    auto want = [&](NodeId definer) {
      for (ValueId v : graph_.node(definer).results)
        if (v.valid()) wanted[at(v)] = true;
    };
    for (const Guard& g : graph_.env().guards()) sizes.needed_by(g.condition, want);
    for (auto it = out_.order.rbegin(); it != out_.order.rend(); ++it) {
      const Node& node = graph_.node(*it);
      const auto* structured = node.op->structured();
      if (structured && structured->kind == Structured::Constant) {
        place(*it) = Place::Constant;
        continue;
      }
      bool needed = node.op->side_effect;
      for (ValueId v : node.results) needed = needed || (v.valid() && wanted[at(v)]);
      if (!needed) continue;
      TESSERA_TRY(place_one(*it, node));
      // The nodes that define sizes of this one run, whether or not their results are read.
      sizes.needed_by(graph_, *it, want);
      bool known = std::all_of(node.results.begin(), node.results.end(),
                               [&](ValueId v) { return !v.valid() || known_contents(graph_, v); });
      if (known && place(*it) == Place::Loops) continue; // written from what is known: operands are not read
      for (ValueId v : node.operands)
        if (v.valid() && (place(*it) != Place::Loops || !known_contents(graph_, v))) wanted[at(v)] = true;
    }
    return {};
  }

  Status place_one(NodeId id, const Node& node) {
    std::string& why = out_.host_reason[static_cast<size_t>(id.index)];
    Place& where = place(id);
    where = Place::Host;
    if (const auto* s = node.op->structured(); s && s->kind == Structured::Alias) {
      where = Place::Alias;
      return {};
    }
    const auto& on_host = options_.constraints.detours.on_host;
    if (const auto detour = on_host.find(id); detour != on_host.end()) {
      why = detour->second;
      return {};
    }
    const bool supported = !options_.device_supports || options_.device_supports(graph_, id, &why);
    if (node.op->is_composite()) {
      why = "not decomposed to primitives";
      return {};
    }
    if (node.op->structured() && node.op->structured()->kind == Structured::Control && runs_bodies(node)) {
      where = Place::Control;
      return {};
    }
    if (!supported) {
      if (why.empty()) why = "the device cannot run it";
      return {};
    }
    if (node.op->side_effect || node.op->data_dependent_shape) {
      const bool reads = node.op->structured() && node.op->structured()->kind == Structured::Read;
      why = node.op->side_effect ? "has a side effect"
            : reads              ? "its integers become sizes"
                                 : "the size of its result is known only when it has run";
      return {};
    }
    const bool may_call = options_.as_loops && library_kind(node);
    bool loops = node.results[0].valid() && folds(node) &&
                 (may_call ? options_.as_loops(graph_, id) || (steering_.pinned_as_loops(id) && has_loops(id))
                           : !library_kind(node));
    if (library_kind(node) && !loops) {
      bool one = node.results[0].valid() &&
                 std::none_of(node.results.begin() + 1, node.results.end(), [](ValueId v) { return v.valid(); });
      where = one ? Place::Library : Place::Host;
      if (!one) why = "a library call has one result";
      return {};
    }
    if (node.op->structured() && !loops) {
      where = options_.device_supports ? Place::Own : Place::Host;
      if (where == Place::Host) why = "no kernel is generated for it";
      return {};
    }
    for (ValueId v : node.results) {
      if (!v.valid()) continue;
      if (auto body = bodies_.get(v); !body) {
        why = body.error().message;
        return {};
      }
    }
    where = Place::Loops;
    return {};
  }

  // Bodies exchange memory of whole bytes.
  [[nodiscard]] bool runs_bodies(const Node& node) const {
    auto fits = [&](ValueId v) {
      return !v.valid() || (graph_.type(v).dtype != DType::String && info(graph_.type(v).dtype).bits >= 8);
    };
    return std::all_of(node.operands.begin(), node.operands.end(), fits) &&
           std::all_of(node.results.begin(), node.results.end(), fits);
  }

  void pin_values() {
    for (const auto& output : graph_.outputs()) out_.pinned[at(output.value)] = true;
    for (NodeId id : out_.order) {
      const Node& node = graph_.node(id);
      const Place where = place(id);
      if (where == Place::Host || where == Place::Own || where == Place::Control || where == Place::Alias)
        for (ValueId v : node.operands)
          if (v.valid()) out_.pinned[at(v)] = true;
      if (place(id) == Place::Loops && node.op->indexing() && node.op->indexing()->stored)
        out_.pinned[at(node.results[0])] = true;
      if (place(id) == Place::Loops && ops::grouped(graph_, node) != ops::Grouped::No)
        for (ValueId v : node.operands) { // each group reads them again, and all elements of a tile the same ends
          while (is_view(graph_, v)) v = graph_.producer(v)->operands[0];
          out_.pinned[at(v)] = true;
        }
      if (where != Place::Unneeded && where != Place::Constant)
        for (ValueId v : node.results)
          if (v.valid() && steering_.broken(v) && !known_contents(graph_, v)) out_.pinned[at(v)] = true;
    }
  }

  // Whether the device generates loops for what libraries compute, and the node is such a nest.
  bool has_loops(NodeId id) {
    const ValueId result = graph_.node(id).results[0];
    return options_.as_loops && bodies_.get(result).ok();
  }

  void draft_calls() {
    LibraryCalls calls(graph_, pool_, bodies_);
    bool product = false;
    NodeId call;
    Marks marks; // of what is in the call
    auto may_look = [&](ValueId v) {
      if (!options_.enabled || out_.pinned[at(v)]) return false;
      NodeId producer = graph_.value(v).producer;
      if (!producer.valid() || place(producer) != Place::Loops) return false;
      if (is_view(graph_, v)) return true;
      return product && options_.scaled_operands && !options_.strict_rounding && is_scaling(graph_, bodies_, v);
    };
    auto through = [&](ValueId v) {
      if (!may_look(v) || steering_.reads(steering_.pin_of_call(call), v)) return false;
      const Marks more = steering_.marks(graph_.value(v).producer);
      if (auto why = steering_.conflict(marks, more)) {
        out_.kept_apart.emplace(v.index, *why);
        return false;
      }
      marks = Steering::united(marks, more);
      return true;
    };
    auto half_weight_of = [&](NodeId id) { // otherwise its cast is an operator as any
      if (!options_.enabled || !options_.half_weights) return false;
      const auto& operands = graph_.node(id).operands;
      if (operands.size() < 2 || !operands[1].valid() || !graph_.producer(operands[1])) return true;
      return !steering_.broken(operands[1]) &&
             !steering_.conflict(steering_.marks(id), steering_.marks(graph_.value(operands[1]).producer));
    };
    for (NodeId id : out_.order) {
      if (place(id) != Place::Library) continue;
      product = library_kind(graph_.node(id)) == LibraryCall::Kind::Matmul;
      const bool half_weights = half_weight_of(id);
      // With the strides of what its operands view; else of one of them alone; else of none.
      constexpr unsigned kLooks[] = {3, 2, 1, 0}; // bit k: operand k is looked through
      std::optional<CallDraft> made;
      std::string why;
      for (unsigned looks : kLooks) {
        call = id;
        marks = steering_.marks(id);
        CallDraft draft = calls.draft(
            id, [&](size_t k, ValueId v) { return (looks >> k & 1) != 0 && through(v); }, half_weights);
        if (options_.library_accepts && !options_.library_accepts(graph_, draft.call, &why)) continue;
        made = std::move(draft);
        break;
      }
      if (!made && has_loops(id)) { // the library cannot address it, not even in memory of its own: of no elements
        place(id) = Place::Loops;
        continue;
      }
      if (!made) {
        place(id) = Place::Host;
        out_.host_reason[static_cast<size_t>(id.index)] = why;
        for (ValueId v : graph_.node(id).operands)
          if (v.valid()) out_.pinned[at(v)] = true;
        continue;
      }
      CallDraft& draft = *made;
      for (const auto& operand : draft.call.operands) out_.pinned[at(operand.value)] = true;
      if (!marks.empty()) out_.call_marks.emplace(id.index, marks);
      out_.calls.emplace(id.index, std::move(draft));
    }
  }

  // Indices at which a node reads an operand; once per run of the innermost axis where the index ignores
  // that.
  SymExpr points_of(const Node& node, size_t result, ValueId operand) {
    auto body = bodies_.get(node.results[result]);
    TESSERA_CHECK(body.ok(), "a node with loops has a body");
    SymExpr points = 1;
    for (const auto& axis : (*body)->axes) points *= axis.extent;
    for (size_t k = 0; k < node.operands.size(); ++k)
      if (node.operands[k] == operand && !(*body)->invariant[k]) return points;
    const SymExpr& innermost = (*body)->innermost;
    return innermost.is_const(0) ? points : floordiv(points, innermost);
  }

  // How many consumers each value has and how many points they run over, views looked through; and over how many it
  // would be computed if everything behind it were written out where it is read. Backwards.
  void count_sites() {
    spread_.assign(out_.pinned.size(), 0);
    written_.assign(out_.pinned.size(), 0);
    spread_sum_.assign(out_.pinned.size(), {});
    for (auto it = out_.order.rbegin(); it != out_.order.rend(); ++it) {
      if (place(*it) != Place::Loops) continue;
      const Node& node = graph_.node(*it);
      std::vector<ValueId> operands = node.operands;
      std::sort(operands.begin(), operands.end());
      operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
      for (size_t r = 0; r < node.results.size(); ++r) {
        ValueId result = node.results[r];
        if (!result.valid()) continue;
        bool passes = is_view(graph_, result) && !out_.pinned[at(result)];
        const double behind = out_.pinned[at(result)] || folds(node) ? 0 : written_[at(result)];
        for (ValueId v : operands) {
          if (!v.valid()) continue;
          out_.sites[at(v)] = std::min(out_.sites[at(v)] + (passes ? out_.sites[at(result)] : 1), 1 << 20);
          const SymExpr points = points_of(node, r, v);
          written_[at(v)] += std::max(behind, estimate_(points));
          spread_[at(v)] += passes ? spread_[at(result)] : estimate_(points);
          spread_sum_[at(v)].add(passes ? spread_sum_[at(result)] : SizeSum(points));
        }
      }
    }
    chain_.resize(out_.pinned.size());
  }

  struct Chain {
    double cost = 0;       // instructions per element, with everything that is written out into it
    double leaf_bytes = 0; // memory that it reads
    SizeSum leaf_sum;      // the same as an expression
    double nodes = 1;
    int depth = 0;
    std::vector<ValueId> leaves; // memory that it reads, sorted
    Marks marks;                 // constrained operators in it
  };

  // The values in memory that o is read from: itself when it has memory.
  [[nodiscard]] std::vector<ValueId> leaves_of(ValueId o) const {
    if (out_.is_virtual[at(o)]) return chain_[at(o)].leaves;
    bool literal = known_contents(graph_, o) || literal_of(graph_, o);
    return literal ? std::vector<ValueId>{} : std::vector<ValueId>{o};
  }
  static std::vector<ValueId> united(const std::vector<ValueId>& a, const std::vector<ValueId>& b) {
    std::vector<ValueId> out;
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
    return out;
  }

  // Gives memory to a virtual value, or to what it views.
  void give_memory(ValueId v) {
    std::vector<ValueId> views;
    while (is_view(graph_, v) && out_.is_virtual[at(v)] && out_.is_virtual[at(graph_.producer(v)->operands[0])]) {
      views.push_back(v);
      v = graph_.producer(v)->operands[0];
    }
    out_.is_virtual[at(v)] = false;
    chain_[at(v)] = Chain{};
    for (ValueId view : views) chain_[at(view)].leaves = {v};
  }

  // Gives memory to operands that would bring operators together which must not be in one kernel.
  Marks keep_apart(NodeId id) {
    Marks marks = steering_.marks(id);
    for (ValueId o : graph_.node(id).operands) {
      if (!o.valid()) continue;
      while (out_.is_virtual[at(o)]) {
        auto why = steering_.conflict(marks, chain_[at(o)].marks);
        if (!why) break;
        ValueId from = o; // what a view shows, unless the view itself is in the way
        while (is_view(graph_, from) && out_.is_virtual[at(graph_.producer(from)->operands[0])] &&
               !steering_.conflict(marks, steering_.marks(graph_.value(from).producer)))
          from = graph_.producer(from)->operands[0];
        out_.kept_apart.emplace(from.index, *why);
        out_.is_virtual[at(from)] = false;
        chain_[at(from)] = Chain{};
        for (ValueId view = o; view != from; view = graph_.producer(view)->operands[0]) {
          chain_[at(view)].leaves = {from};
          chain_[at(view)].marks = view_marks(view, from);
        }
        if (from == o) break;
      }
      marks = Steering::united(marks, chain_[at(o)].marks);
    }
    return marks;
  }
  // The marks of the views from `v` on, down to the value that has memory.
  Marks view_marks(ValueId v, ValueId memory) const {
    Marks out;
    for (; v != memory; v = graph_.producer(v)->operands[0])
      out = Steering::united(out, steering_.marks(graph_.value(v).producer));
    return out;
  }

  // Gives memory to operands that read much, so that the expression of their consumer reads few enough buffers.
  std::vector<ValueId> limit_leaves(const Node& node) {
    auto limit = static_cast<size_t>(std::max(options_.max_buffers - 1, 1));
    while (true) {
      std::vector<ValueId> all;
      ValueId most;
      size_t count = 1;
      for (ValueId o : node.operands) {
        if (!o.valid()) continue;
        auto leaves = leaves_of(o);
        all = united(all, leaves);
        if (leaves.size() > count) {
          count = leaves.size();
          most = o;
        }
      }
      if (all.size() <= limit || !most.valid()) return all;
      give_memory(most);
    }
  }

  Status choose(ValueId v) {
    const Node& node = graph_.node(graph_.value(v).producer);
    auto body = bodies_.get(v);
    TESSERA_CHECK(body.ok(), "a node with loops has a body");
    Chain& chain = chain_[at(v)];
    chain.cost = (*body)->cost;
    chain.nodes = (*body)->dag.size();
    double size = estimate_(graph_.type(v).count());
    bool known = known_contents(graph_, v);
    if (!known) chain.marks = keep_apart(graph_.value(v).producer);
    if (!known) chain.leaves = limit_leaves(node);
    for (ValueId o : node.operands) {
      if (!o.valid() || known || known_contents(graph_, o)) continue;
      const Chain& from = chain_[at(o)];
      if (out_.is_virtual[at(o)]) {
        chain.cost += from.cost;
        chain.leaf_bytes += from.leaf_bytes;
        chain.leaf_sum.add(from.leaf_sum);
        chain.nodes += from.nodes;
        chain.depth = std::max(chain.depth, from.depth + 1);
      } else {
        double per_element = info(graph_.type(o).dtype).bits / 8.0;
        const SymExpr all = byte_count(graph_, o);
        const bool some = size * per_element < estimate_(all);
        chain.leaf_bytes += some ? size * per_element : estimate_(all);
        chain.leaf_sum.add(some ? graph_.type(v).count() : all, some ? per_element : 1);
      }
    }
    const bool too_large = chain.depth >= kMaxDepth || chain.nodes > kMaxNodes;
    bool memory = out_.pinned[at(v)] || folds(node) || !options_.enabled;
    const bool once = out_.compared[at(v)] && !known;
    if (once) {
      memory = true;
    } else if (!memory && !known) {
      if (too_large)
        memory = true;
      else if (!is_view(graph_, v))
        memory = out_.too_expensive[at(v)] = is_expensive(v, chain, size);
    }
    if (memory && out_.too_expensive[at(v)] && options_.written_out && options_.written_out(v))
      memory = out_.too_expensive[at(v)] = false;
    if (const auto stored = known || once || out_.pinned[at(v)] || folds(node) ? std::nullopt : steering_.stored(v);
        stored && options_.enabled && *stored != memory && (*stored || !too_large)) {
      memory = *stored;
      out_.too_expensive[at(v)] = false;
      if (memory) out_.kept_apart.emplace(v.index, "the plan file has it in memory");
    }
    if (memory && !once && options_.enabled && !known && !folds(node) && !too_large && !is_view(graph_, v) &&
        !steering_.broken(v))
      keep_recipe(v, chain);
    out_.is_virtual[at(v)] = !memory;
    if (memory) chain = Chain{};
    return {};
  }

  // Whether writing v out in its readers moves more than storing it once. Where v is made from a library call's result
  // that nothing else reads, storing v replaces storing that: it is done on the result while that is in cache.
  bool is_expensive(ValueId v, const Chain& chain, double size) {
    int sites = out_.sites[at(v)];
    if (sites <= 1 && spread_[at(v)] <= size) return false;
    double attached = 0;
    SizeSum attached_sum;
    if (options_.generated_epilogues || options_.fixed_epilogues || options_.library_accepts)
      for (ValueId leaf : chain.leaves) {
        const Node* producer = graph_.producer(leaf);
        if (!producer || place(graph_.value(leaf).producer) != Place::Library || out_.sites[at(leaf)] > 1) continue;
        double bytes = estimate_(byte_count(graph_, leaf));
        if (estimate_(graph_.type(leaf).count()) != size || bytes <= attached) continue;
        attached = bytes;
        attached_sum = byte_count(graph_, leaf);
      }
    double instead = std::max(0.0, chain.cost - info(ScalarOp::Load).cost); // a reader would have to load it
    double again = std::max(0.0, spread_[at(v)] - size) * instead * options_.bytes_per_instruction;
    double bytes = estimate_(byte_count(graph_, v));
    double written_out = chain.leaf_bytes * std::max(sites, 1) + attached + again;
    double stored = bytes * (1 + sites) + chain.leaf_bytes - attached;
    // A launch, where writing v out costs less than that even if everything behind it is written out, too.
    const double launch = options_.launch_us * options_.bytes_per_us;
    const bool one_more =
        kernel_of_its_own(chain) && written_[at(v)] * instead * options_.bytes_per_instruction < launch;
    if (one_more) stored += launch;
    constexpr double kMargin = 1.1; // readers in one kernel read once: do not store for little
    Decisions::Tradeoff& tradeoff = out_.tradeoffs[v.index];
    tradeoff.computed.add(chain.leaf_sum, std::max(sites, 1));
    tradeoff.computed.add(attached_sum);
    if (again > 0) {
      tradeoff.computed.add(spread_sum_[at(v)], instead * options_.bytes_per_instruction);
      tradeoff.computed.add(graph_.type(v).count(), -instead * options_.bytes_per_instruction);
    }
    tradeoff.stored.add(byte_count(graph_, v), 1 + sites);
    tradeoff.stored.add(chain.leaf_sum);
    tradeoff.stored.add(attached_sum, -1);
    if (one_more) tradeoff.stored.add(1, launch);
    return written_out > stored * (attached > 0 ? kMargin : 1);
  }

  // Whether storing the value takes a launch more: it is made from what every call gives, so that no kernel before it
  // could do it. What is made from constants alone is computed when compiling.
  [[nodiscard]] bool kernel_of_its_own(const Chain& chain) const {
    bool given = false;
    for (ValueId leaf : chain.leaves) {
      NodeId producer = graph_.value(leaf).producer;
      if (producer.valid() && place(producer) != Place::Constant) return false;
      given = given || !producer.valid();
    }
    return given;
  }

  // How v, which has memory, may be computed once more by a kernel that would read it: from what lies in memory
  // whatever is fused. Reading anything else there would keep that in memory, too.
  void keep_recipe(ValueId v, const Chain& chain) {
    for (ValueId leaf : chain.leaves) {
      NodeId producer = graph_.value(leaf).producer;
      const bool given = !producer.valid() || place(producer) == Place::Constant;
      if (!given && (!out_.pinned[at(leaf)] || place(producer) == Place::Library)) return;
    }
    out_.recipes[v.index] = {chain.leaves, std::max(0.0, chain.cost - info(ScalarOp::Load).cost)};
  }

  const Graph& graph_;
  const FusionOptions& options_;
  const Steering& steering_;
  AxisPool& pool_;
  NodeBodies& bodies_;
  Estimator& estimate_;
  Decisions out_;
  std::vector<double> spread_;
  std::vector<SizeSum> spread_sum_; // the same as expressions
  std::vector<double> written_;
  std::vector<Chain> chain_;
};

} // namespace

Result<Decisions> decide(const Graph& graph, const FusionOptions& options, const Steering& steering, AxisPool& pool,
                         NodeBodies& bodies, Estimator& estimate) {
  return Decider(graph, options, steering, pool, bodies, estimate).run();
}

} // namespace tessera::fusion
