#include "fusion/attention.h"
#include "fusion/attention_score.h"
#include "fusion/cost.h"
#include "fusion/rewrite.h"
#include "graph/infer/infer.h"
#include <algorithm>

namespace tessera::fusion {

namespace {

std::vector<Axis> axes_of(AxisPool& pool, const SymShape& shape, std::vector<SymExpr>& vars) {
  std::vector<Axis> axes; // of more than one point
  for (size_t d = 0; d < shape.size(); ++d) {
    SymExpr extent = pool.env().simplify(shape[d]);
    bool point = pool.env().known_equal(extent, 1);
    vars.push_back(point ? SymExpr(0) : pool.axis(static_cast<int>(d), extent));
    if (!point) axes.push_back({vars.back(), extent, AxisRole::Outer});
  }
  return axes;
}

SymExpr position(const OperandView& view, const std::vector<SymExpr>& at) {
  SymExpr flat = view.offset;
  for (size_t d = 0; d < at.size(); ++d) flat += at[d] * view.strides[d];
  return flat;
}

class Matcher {
public:
  Matcher(const Graph& graph, AxisPool& pool, const LibraryCall& scores, const LoopNest& softmax,
          const LibraryCall& values)
      : graph_(graph), pool_(pool), env_(pool.env()), scores_(scores), softmax_(softmax), values_(values) {}

  std::optional<AttentionCall> run(std::string* why_not) {
    if (!groups() || !softmax_of_scores() || !unify() || !views() || !score()) {
      if (why_not) *why_not = why_;
      return std::nullopt;
    }
    out_.fixed = fix_score(graph_, pool_, out_, &out_.not_fixed);
    return std::move(out_);
  }

private:
  bool no(std::string why) {
    if (why_.empty()) why_ = std::move(why);
    return false;
  }

  bool groups() {
    raw_ = scores_.fixed ? scores_.fixed->result.value : scores_.result.value;
    const Store& store = softmax_.stores[0];
    if (softmax_.stores.size() != 1 || store.per_row)
      return no("the kernel between the products stores something else");
    const DType dtype = graph_.type(scores_.operands[0].value).dtype, scored = graph_.type(raw_).dtype;
    if (dtype != DType::F16 && dtype != DType::BF16)
      return no("attention is one unit in f16 and bf16, not in " + std::string(name(dtype)));
    for (ValueId v : {scores_.operands[0].value, scores_.operands[1].value, values_.operands[1].value,
                      values_.result.value, store.value})
      if (graph_.type(v).dtype != dtype) return no("queries, keys, values and result are not of one type");
    if (scored != dtype && scored != DType::F32) return no("the scores are of type " + std::string(name(scored)));
    if (values_.epilogue_nest || values_.scale != 1) return no("something is done to the second product's result");
    int rows = 0;
    for (const auto& axis : softmax_.axes) rows += axis.role == AxisRole::Row ? 1 : 0;
    return rows == 1 || no("the kernel between the products has not one dimension of rows");
  }

  bool softmax_of_scores() {
    std::string why;
    auto found = match_softmax(softmax_.dag, softmax_.stores[0].scalar, &why);
    if (!found) return no("no softmax between the products: " + why);
    of_ = found->score;
    out_.zero_where_undefined = found->zero_where_undefined;
    ScalarId roots[] = {of_};
    auto need = reachable(softmax_.dag, roots);
    int loads = 0;
    for (ScalarId id = 0; id < softmax_.dag.size(); ++id) {
      if (!need[static_cast<size_t>(id)]) continue;
      const ScalarNode& n = softmax_.dag[id];
      if (n.op == ScalarOp::Reduce) return no("the score of one key depends on other keys");
      if (n.op != ScalarOp::Load || softmax_.loads[static_cast<size_t>(n.operand)] != raw_) continue;
      ++loads;
      load_ = id;
      if (n.masked) return no("scores are read in part");
    }
    return loads == 1 || no("a score is made from several elements of the product");
  }

  std::optional<SymExpr> flat(std::span<const ScalarId> index, ValueId value) const {
    auto strides = contiguous_strides(graph_.type(value).shape);
    SymExpr out;
    for (size_t d = 0; d < index.size(); ++d) {
      auto e = softmax_.dag.as_sym(index[d]);
      if (!e) return std::nullopt;
      out += *e * strides[d];
    }
    return env_.simplify(out);
  }
  // Pairs the axes of two spaces that enumerate the elements of one tensor.
  std::optional<AxisMatch> paired(const SymExpr& of_a, const std::vector<Axis>& a, const std::optional<SymExpr>& of_b,
                                  const std::vector<Axis>& b, ValueId value) {
    if (!of_b) return std::nullopt;
    SymExpr count = graph_.type(value).count();
    auto xs = radix_of(env_.simplify(of_a), a, count, env_), ys = radix_of(*of_b, b, count, env_);
    AxisMatcher matcher(pool_, a, b);
    if (!xs || !ys || xs->size() != a.size() || ys->size() != b.size() || !matcher.pair(*xs, *ys)) return std::nullopt;
    return matcher.take();
  }

  // The dimensions of the first product, of the kernel and of the second product as expressions over common atoms.
  bool unify() {
    auto a = axes_of(pool_, scores_.result.shape, of_scores_);
    const OperandView& result = scores_.fixed ? scores_.fixed->result : scores_.result;
    auto first = paired(position(result, of_scores_), a, flat(softmax_.dag[load_].args, raw_), softmax_.axes, raw_);
    if (!first) return no("the scores are not read in the shape of the product");
    std::vector<Axis> atoms;
    for (const auto& atom : first->atoms) atoms.push_back({atom.var, atom.extent, AxisRole::Outer});
    ValueId p = softmax_.stores[0].value;
    auto c = axes_of(pool_, values_.operands[0].shape, of_values_);
    auto stored = flat(softmax_.stores[0].index, p);
    if (stored) stored = rewrite(*stored, first->b, env_);
    if (!stored) return no("the probabilities are stored at indices that depend on data");
    auto second = paired(*stored, atoms, env_.simplify(position(values_.operands[0], of_values_)), c, p);
    if (!second) return no("the probabilities are not read in the shape in which they are stored");
    for (auto& e : of_scores_) e = rewrite(rewrite(e, first->a, env_), second->a, env_);
    for (auto& e : of_values_) e = rewrite(e, second->b, env_);
    for (const auto& axis : softmax_.axes) {
      SymExpr e = rewrite(rewrite(axis.var, first->b, env_), second->a, env_);
      of_softmax_[axis.var.symbol_id()] = e;
      if (axis.role == AxisRole::Row) key_ = e;
    }
    if (!key_.is_symbol() || !(of_scores_.back() == key_) || !(of_values_.back() == key_))
      return no("the softmax is not over the keys");
    // The innermost part of the rows is the query; other parts are like batches.
    const SymExpr& rows = of_scores_[of_scores_.size() - 2];
    std::unordered_set<uint64_t> taken;
    for (const auto& atom : second->atoms) {
      taken.insert(atom.var.symbol_id());
      auto linear = rows.linear_in(atom.var);
      if (linear && linear->first.is_const(1)) query_ = Axis{atom.var, atom.extent, AxisRole::Outer};
    }
    if (!query_) query_ = Axis{pool_.fresh(1, taken), 1, AxisRole::Outer};
    for (const auto& atom : second->atoms) {
      if (atom.var == key_)
        key_axis_ = {atom.var, atom.extent, AxisRole::Row};
      else if (!(atom.var == query_->var))
        batch_.push_back({atom.var, atom.extent, AxisRole::Outer});
    }
    // Names for the widths, which only q, k, v and out have.
    taken.insert(query_->var.symbol_id());
    width_ = pool_.fresh(env_.simplify(scores_.operands[0].shape.back()), taken);
    value_width_ = pool_.fresh(env_.simplify(values_.result.shape.back()), taken);
    return true;
  }

  // `view` of a product at `at`, over the batch dimensions, `row` and `column`.
  bool over(const OperandView& view, const std::vector<SymExpr>& at, const Axis& row, const SymExpr& column,
            const SymExpr& width, OperandView& out) {
    SymExpr flat = env_.simplify(position(view, at));
    out.value = view.value;
    std::vector<SymExpr> vars;
    auto take = [&](const SymExpr& var, const SymExpr& extent) {
      auto linear = flat.linear_in(var);
      if (!linear || env_.prove(sym_le(0, linear->first)) != true) return false;
      vars.push_back(var);
      out.shape.push_back(extent);
      out.strides.push_back(linear->first);
      flat = linear->second;
      return true;
    };
    bool fine = true;
    for (const auto& b : batch_) fine = fine && take(b.var, b.extent);
    fine = fine && take(row.var, row.extent) && take(column, width);
    for (const auto& var : vars) {
      fine = fine && !flat.contains(var);
      for (const auto& stride : out.strides) fine = fine && !stride.contains(var);
    }
    for (const Axis* axis : {&*query_, &key_axis_})
      fine = fine && !flat.contains(axis->var); // keys do not depend on the query, nor queries on the key
    out.offset = env_.simplify(flat);
    return fine;
  }
  bool views() {
    SymExpr width = env_.simplify(scores_.operands[0].shape.back()),
            value_width = env_.simplify(values_.result.shape.back());
    auto with = [](std::vector<SymExpr> at, const SymExpr& row, const SymExpr& column) {
      at[at.size() - 2] = row;
      at.back() = column;
      return at;
    };
    const SymExpr &rows = of_scores_[of_scores_.size() - 2], &value_rows = of_values_[of_values_.size() - 2];
    bool fine =
        over(scores_.operands[0], with(of_scores_, rows, width_), *query_, width_, width, out_.q) &&
        over(scores_.operands[1], with(of_scores_, width_, key_), key_axis_, width_, width, out_.k) &&
        over(values_.operands[1], with(of_values_, key_, value_width_), key_axis_, value_width_, value_width, out_.v) &&
        over(values_.result, with(of_values_, value_rows, value_width_), *query_, value_width_, value_width, out_.out);
    return fine || no("an operand is not strided over the dimensions of both products");
  }

  // x of the softmax over the common axes; an epilogue of the first product is part of it.
  bool score() {
    LoopNest& nest = out_.score;
    nest.name = softmax_.name;
    nest.axes = batch_;
    nest.axes.push_back(*query_);
    nest.axes.push_back(key_axis_);
    nest.loads = {scores_.result.value};
    nest.sources = softmax_.sources;
    auto sum = [&](ScalarDag& into, std::span<const ScalarId> args) {
      ScalarId s = into.load(0, DType::F32, {args.begin(), args.end()});
      return scores_.scale == 1 ? s : into.op(ScalarOp::Mul, s, into.constant_f(DType::F32, scores_.scale));
    };
    auto other = [&](ScalarDag& into, const ScalarNode& load, ValueId value, std::span<const ScalarId> args) {
      ScalarNode copy = load;
      copy.args.assign(args.begin(), args.end());
      copy.operand = load_slot(nest, value);
      return into.add(std::move(copy));
    };
    auto epilogue = [&](ScalarDag& into) {
      const LoopNest& e = *scores_.epilogue_nest;
      Substitution map;
      for (size_t d = 0; d < e.axes.size(); ++d) map[e.axes[d].var.symbol_id()] = of_scores_[d];
      ScalarId roots[] = {e.stores[0].scalar};
      auto to = copy_dag(e.dag, roots, into, map, env_,
                         [&](ScalarDag& dag, const ScalarNode& load, ScalarId, std::span<const ScalarId> args) {
                           ValueId value = e.loads[static_cast<size_t>(load.operand)];
                           return value == scores_.result.value ? sum(dag, args) : other(dag, load, value, args);
                         });
      return to[static_cast<size_t>(e.stores[0].scalar)];
    };
    ScalarId roots[] = {of_};
    auto to = copy_dag(softmax_.dag, roots, nest.dag, of_softmax_, env_,
                       [&](ScalarDag& dag, const ScalarNode& load, ScalarId, std::span<const ScalarId> args) {
                         ValueId value = softmax_.loads[static_cast<size_t>(load.operand)];
                         if (value != raw_) return other(dag, load, value, args);
                         return scores_.epilogue_nest ? epilogue(dag) : sum(dag, args);
                       });
    out_.root = to[static_cast<size_t>(of_)];
    return true;
  }

  const Graph& graph_;
  AxisPool& pool_;
  const ShapeEnv& env_;
  const LibraryCall& scores_;
  const LoopNest& softmax_;
  const LibraryCall& values_;
  ValueId raw_;                                // the scores as the kernel reads them
  ScalarId of_ = -1;                           // what the softmax is of
  ScalarId load_ = -1;                         // of a score
  std::vector<SymExpr> of_scores_, of_values_; // dimensions of the products: batch..., rows, keys
  Substitution of_softmax_;
  SymExpr key_, width_, value_width_;
  std::optional<Axis> query_;
  Axis key_axis_;
  std::vector<Axis> batch_;
  AttentionCall out_;
  std::string why_;
};

bool is_product(const Group& group) {
  return group.kind == Group::Kind::Library && group.call.kind == LibraryCall::Kind::Matmul;
}

// Without one it is no softmax, and needs no explanation.
bool exponential(const LoopNest& nest) {
  for (ScalarId id = 0; id < nest.dag.size(); ++id)
    if (nest.dag[id].op == ScalarOp::Exp) return true;
  return false;
}

bool same_nest(const LoopNest& a, const LoopNest& b) {
  if (a.loads != b.loads || a.axes.size() != b.axes.size() || a.dag.size() != b.dag.size()) return false;
  for (size_t i = 0; i < a.axes.size(); ++i)
    if (!(a.axes[i].var == b.axes[i].var) || a.axes[i].role != b.axes[i].role) return false;
  for (ScalarId id = 0; id < a.dag.size(); ++id)
    if (!(a.dag[id] == b.dag[id])) return false;
  return a.stores[0].scalar == b.stores[0].scalar && a.stores[0].index == b.stores[0].index;
}

class Fuser {
public:
  Fuser(Graph& graph, AxisPool& pool, const FusionOptions& options, FusionPlan& plan)
      : graph_(graph), pool_(pool), options_(options), plan_(plan), steering_(graph, options.constraints, plan.unmet) {}

  bool run() {
    for (size_t g = 0; g < plan_.groups.size(); ++g) {
      for (ValueId v : plan_.groups[g].reads) readers_[v].push_back(g);
      for (ValueId v : plan_.groups[g].writes) writer_.emplace(v, g);
    }
    for (const auto& output : graph_.outputs()) kept_.insert(output.value.index);
    std::vector<Group> groups;
    std::vector<bool> gone(plan_.groups.size());
    std::map<size_t, std::vector<size_t>> found; // by the second product
    for (size_t g = 0; g < plan_.groups.size(); ++g)
      if (auto parts = try_at(g)) {
        for (size_t p : *parts) gone[p] = true;
        found.emplace(g, *parts);
      }
    if (found.empty()) return changed_;
    for (size_t g = 0; g < plan_.groups.size(); ++g) {
      if (auto it = found.find(g); it != found.end()) unit(it->second, groups);
      if (!gone[g]) groups.push_back(std::move(plan_.groups[g]));
    }
    plan_.groups = std::move(groups);
    return true;
  }

private:
  [[nodiscard]] bool read_once(ValueId v) const {
    auto it = readers_.find(v);
    return it != readers_.end() && it->second.size() == 1 && !kept_.contains(v.index);
  }

  // The three groups of an attention whose second product is `g`.
  std::optional<std::vector<size_t>> try_at(size_t g) {
    const Group& values = plan_.groups[g];
    if (!is_product(values)) return std::nullopt;
    ValueId p = values.call.operands[0].value;
    auto kernel = writer_.find(p);
    if (kernel == writer_.end()) return std::nullopt;
    const Group& softmax = plan_.groups[kernel->second];
    if (softmax.kind != Group::Kind::Kernel || !softmax.nest.has_reduction() || !exponential(softmax.nest))
      return std::nullopt;
    std::optional<ValueId> scores;
    std::string why;
    for (ValueId v : softmax.reads)
      if (auto it = writer_.find(v); it != writer_.end() && is_product(plan_.groups[it->second])) {
        std::string reason;
        if (auto call = attempt(plan_.groups[it->second], softmax, values, v, p, &reason)) {
          calls_.emplace(g, std::move(*call));
          return std::vector<size_t>{it->second, kernel->second, g};
        }
        if (why.empty()) scores = v, why = std::move(reason);
      }
    if (!scores) return std::nullopt;
    const DType dtype = graph_.type(values.call.operands[0].value).dtype;
    const bool other_type = options_.attention_accepts && dtype != DType::F16 && dtype != DType::BF16;
    for (ValueId v : {*scores, p})
      explain(v, [&](LedgerEntry& e) {
        const bool at_call = e.reason == FusionReason::RowsOfLibraryResult ||
                             e.reason == FusionReason::OperandOfLibrary || e.reason == FusionReason::ResultOfLibrary ||
                             e.reason == FusionReason::OtherCallsEpilogue;
        if (at_call) e.reason = other_type ? FusionReason::AttentionOfType : FusionReason::AttentionInSteps;
        if (at_call || v == p) e.detail << "; no attention: " + why;
      });
    return std::nullopt;
  }

  std::optional<AttentionCall> attempt(const Group& scores, const Group& softmax, const Group& values, ValueId s,
                                       ValueId p, std::string* why) {
    auto refuse = [&](std::string text) {
      *why = std::move(text);
      return std::nullopt;
    };
    if (scores.writes.size() != 1 || !read_once(s)) return refuse("the scores are read elsewhere");
    if (softmax.writes.size() != 1 || !read_once(p)) return refuse("the probabilities are read elsewhere");
    for (ValueId out : values.writes)
      if (options_.constraints.detours.in_steps.contains(out)) {
        for (ValueId v : {s, p}) explain(v, [](LedgerEntry& e) { e.reason = FusionReason::InternalFailure; });
        return refuse("compiling the attention as one failed");
      }
    if (!options_.attention_accepts) return refuse("this device has no kernel for attention as a whole");
    auto call = match_attention(graph_, pool_, scores.call, softmax.nest, values.call, why);
    if (!call || !options_.attention_accepts(graph_, *call, why)) return std::nullopt;
    if (auto apart = kept_apart(scores, softmax, values, s, p)) {
      for (ValueId v : {s, p}) explain(v, [&](LedgerEntry& e) { e.reason = apart->reason; });
      return refuse(std::move(apart->why));
    }
    return call;
  }

  // Requests that the three stay three.
  [[nodiscard]] std::optional<Separation> kept_apart(const Group& scores, const Group& softmax, const Group& values,
                                                     ValueId s, ValueId p) const {
    Marks marks;
    for (const auto* nodes : {&scores.call.sources, &softmax.nest.sources, &values.call.sources}) {
      const Marks more = steering_.marks(*nodes);
      if (auto why = steering_.conflict(marks, more)) return Separation{FusionReason::KeptApart, std::move(*why)};
      marks = Steering::united(marks, more);
    }
    for (ValueId v : {s, p})
      if (const Separation* by = steering_.separation(v)) return *by;
    const int pins[] = {scores.pin, softmax.pin, values.pin};
    const bool pinned = std::any_of(std::begin(pins), std::end(pins), [](int pin) { return pin >= 0; });
    if (pinned && steering_.attention_of(pins) < 0)
      return Separation{FusionReason::KeptApart, "the plan file has them as three steps"};
    return std::nullopt;
  }

  // Edges of the graph that read `v`.
  void explain(ValueId v, const std::function<void(LedgerEntry&)>& change) {
    for (auto& e : plan_.ledger) {
      if (e.value != v) continue;
      change(e);
      changed_ = true;
    }
  }

  void unit(const std::vector<size_t>& parts, std::vector<Group>& groups) {
    Group unit;
    unit.kind = Group::Kind::Attention;
    unit.attention = std::move(calls_.at(parts.back()));
    AttentionCall& call = unit.attention;
    if (call.fixed && call.fixed->bias_nest) bias(*call.fixed, groups);
    ValueId s = plan_.groups[parts[0]].writes[0], p = plan_.groups[parts[1]].writes[0];
    int pins[3] = {};
    for (size_t i = 0; i < 3; ++i) {
      const Group& group = plan_.groups[parts[i]];
      const auto& nodes = group.kind == Group::Kind::Kernel ? group.nest.sources : group.call.sources;
      unit.parts.push_back({group.kind, group.name, nodes, group.stages, group.reads, group.pin});
      pins[i] = group.pin;
    }
    unit.pin = steering_.attention_of(pins);
    for (size_t part : parts) {
      unit.bytes_unfused += plan_.groups[part].bytes_unfused;
      unit.otherwise.push_back(std::move(plan_.groups[part]));
    }
    auto read = [&](ValueId v) {
      if (std::find(unit.reads.begin(), unit.reads.end(), v) != unit.reads.end()) return;
      unit.reads.push_back(v);
      unit.bytes_read += byte_count(graph_, v);
    };
    for (const OperandView* view : {&call.q, &call.k, &call.v}) read(view->value);
    for (size_t i = 1; i < call.score.loads.size(); ++i) read(call.score.loads[i]);
    if (call.fixed && call.fixed->bias) read(call.fixed->bias->value);
    unit.writes = {call.out.value};
    unit.bytes_written = byte_count(graph_, call.out.value);
    unit.name = "t" + std::to_string(groups.size()) + "_attention";
    for (ValueId v : {s, p})
      explain(v, [&](LedgerEntry& e) {
        e.reason = FusionReason::WithinAttention;
        e.bytes_saved = byte_count(graph_, v) * 2;
        e.detail = v == s ? "scores of " + unit.name : "probabilities of " + unit.name;
      });
    groups.push_back(std::move(unit));
  }

  // The kernel that computes a bias, once for all that have the same, and its value.
  void bias(FixedScore& fixed, std::vector<Group>& groups) {
    LoopNest& nest = *fixed.bias_nest;
    for (const auto& [known, value] : biases_)
      if (same_nest(known, nest)) {
        fixed.bias->value = nest.stores[0].value = value;
        return;
      }
    SymShape shape;
    for (const auto& axis : nest.axes) shape.push_back(axis.extent);
    ValueId value = add_temporary(graph_, {DType::F32, shape});
    biases_.emplace_back(nest, value);
    fixed.bias->value = nest.stores[0].value = value;
    Group group;
    group.nest = nest;
    group.reads = nest.loads;
    group.writes = {value};
    Estimator estimate(graph_.env());
    for (const auto& bytes : bytes_read(graph_, nest, estimate)) group.bytes_read += bytes;
    group.bytes_written = byte_count(graph_, value);
    group.name = "k" + std::to_string(groups.size()) + "_attention_bias";
    groups.push_back(std::move(group));
  }

  Graph& graph_;
  AxisPool& pool_;
  const FusionOptions& options_;
  FusionPlan& plan_;
  std::unordered_map<ValueId, std::vector<size_t>> readers_;
  std::unordered_map<ValueId, size_t> writer_;
  std::unordered_set<int32_t> kept_;      // outputs
  std::map<size_t, AttentionCall> calls_; // by the second product
  std::vector<std::pair<LoopNest, ValueId>> biases_;
  Steering steering_;
  bool changed_ = false; // the ledger
};

} // namespace

std::optional<AttentionCall> match_attention(const Graph& graph, AxisPool& pool, const LibraryCall& scores,
                                             const LoopNest& softmax, const LibraryCall& values, std::string* why_not) {
  return Matcher(graph, pool, scores, softmax, values).run(why_not);
}

ValueId add_temporary(Graph& graph, TensorType type) {
  static const OpDef kMadeByPlan = [] {
    OpDef def;
    def.name = "made_by_plan";
    def.infer = [](InferContext& c) -> Status {
      c.results.assign(1, TensorType{});
      return {};
    };
    return def;
  }();
  auto node = graph.add_node(kMadeByPlan, {}, {});
  TESSERA_CHECK(node.ok(), node.error().str());
  ValueId value = graph.node(*node).results[0];
  graph.value(value).type = std::move(type);
  graph.remove_node(*node); // it is not part of what the graph computes
  return value;
}

bool fuse_attention(Graph& graph, AxisPool& pool, const FusionOptions& options, FusionPlan& plan) {
  const bool changed = !options.strict_rounding && Fuser(graph, pool, options, plan).run();
  if (options.constraints.groups.empty()) return changed;
  const Steering steering(graph, options.constraints, plan.unmet);
  for (int pin = 0; static_cast<size_t>(pin) < steering.pins(); ++pin)
    if (steering.holds(pin) && steering.pinned(pin).kind == PinnedGroup::Kind::Attention &&
        std::none_of(plan.groups.begin(), plan.groups.end(), [&](const Group& g) { return g.pin == pin; })) {
      UnmetPin& unmet = plan.unmet.emplace_back();
      unmet.group = pin;
      unmet.why = "its three steps are no attention that this device takes as one";
    }
  return changed;
}

} // namespace tessera::fusion
