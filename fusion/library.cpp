#include "fusion/library.h"
#include "fusion/library_epilogue.h"
#include "graph/ops/questions.h"
#include <algorithm>

namespace tessera::fusion {

std::optional<LibraryCall::Kind> library_kind(const Node& node) {
  const auto* structured = node.op->structured();
  if (!structured) return std::nullopt;
  switch (structured->kind) {
  case Structured::Matmul: return LibraryCall::Kind::Matmul;
  case Structured::Conv: return LibraryCall::Kind::Conv;
  case Structured::Pool: return LibraryCall::Kind::Pool;
  case Structured::MatmulOfParts:
  case Structured::GroupedMatmul:
  case Structured::Constant:
  case Structured::Scan:
  case Structured::Scatter:
  case Structured::Sort:
  case Structured::Suppress:
  case Structured::Read:
  case Structured::Control:
  case Structured::Alias:
  case Structured::Seed:
  case Structured::Other: return std::nullopt;
  }
  return std::nullopt;
}

bool is_scaling(const Graph& graph, NodeBodies& bodies, ValueId value) {
  const Node* node = graph.producer(value);
  if (!node || !node->op->pointwise() || node->operands.size() != 2 || !is_float(graph.type(value).dtype)) return false;
  auto body = bodies.get(value);
  if (!body) return false;
  const ScalarDag& dag = (*body)->dag;
  const ScalarNode& root = dag[(*body)->root];
  if (root.op != ScalarOp::Mul && root.op != ScalarOp::Div) return false;
  for (size_t k : {size_t{0}, size_t{1}}) {
    const ScalarNode &x = dag[root.args[k]], &factor = dag[root.args[1 - k]];
    if (x.op != ScalarOp::Load || factor.op != ScalarOp::Load || (root.op == ScalarOp::Div && k == 1)) continue;
    auto operand = [&](const ScalarNode& load) { return node->operands[static_cast<size_t>(load.operand)]; };
    if (operand(x) != operand(factor) && literal_of(graph, operand(factor)) && !literal_of(graph, operand(x)) &&
        graph.type(operand(x)).dtype == graph.type(value).dtype &&
        graph.type(operand(x)).shape == graph.type(value).shape)
      return true;
  }
  return false;
}

LibraryCalls::Operand LibraryCalls::operand(ValueId value, const std::vector<SymExpr>& at,
                                            const std::function<bool(ValueId)>& through) {
  Operand out{value, at, 1};
  if (through(value)) {
    Expander expander(graph_, pool_, bodies_, through, false);
    if (auto access = expander.access(value, at)) {
      out.value = access->value;
      out.index = access->index;
      out.scale = access->scale;
    }
  }
  return out;
}

// The half-precision constant that `value` is a widening of, perhaps through views.
std::optional<LibraryCalls::Operand> LibraryCalls::half_weight(ValueId value, const std::vector<SymExpr>& at,
                                                               const std::function<bool(ValueId)>& through) {
  const Node* cast = graph_.producer(value);
  if (!cast || !ops::is(*cast, ScalarOp::Cast) || graph_.type(value).dtype != DType::F32) return std::nullopt;
  DType from = graph_.type(cast->operands[0]).dtype;
  if (from != DType::F16 && from != DType::BF16) return std::nullopt;
  Operand out = operand(cast->operands[0], at, through);
  return graph_.constant(out.value) ? std::optional(std::move(out)) : std::nullopt;
}

// Strides of `value` along dims when the position in its buffer is linear in them. Libraries take none below 0.
std::optional<OperandView> LibraryCalls::view(ValueId value, const std::vector<SymExpr>& index,
                                              const std::vector<Dim>& dims) const {
  const ShapeEnv& env = pool_.env();
  auto strides = contiguous_strides(graph_.type(value).shape);
  SymExpr flat;
  for (size_t d = 0; d < index.size(); ++d) flat += index[d] * strides[d];
  flat = env.simplify(flat);
  OperandView out{value, {}, {}, {}};
  for (const auto& dim : dims) {
    auto linear = flat.linear_in(dim.var);
    if (!linear) return std::nullopt;
    const SymExpr& along = linear->first; // no product of sizes is negative, whether that can be proven or not
    if (std::find(strides.begin(), strides.end(), along) == strides.end() && env.prove(sym_le(0, along)) != true)
      return std::nullopt;
    out.shape.push_back(dim.extent);
    out.strides.push_back(linear->first);
    flat = linear->second;
  }
  for (const auto& dim : dims) {
    if (flat.contains(dim.var)) return std::nullopt;
    for (const auto& stride : out.strides)
      if (stride.contains(dim.var)) return std::nullopt;
  }
  out.offset = env.simplify(flat);
  return out;
}

LibraryCalls::Space LibraryCalls::space(const Node& node) const {
  const ShapeEnv& env = pool_.env();
  const LibraryCall::Kind kind = *library_kind(node);
  Space out;
  auto add = [&](const SymExpr& size) {
    SymExpr extent = env.simplify(size);
    out.dims.push_back({pool_.axis(static_cast<int>(out.dims.size()), extent), extent});
    return out.dims.size() - 1;
  };
  for (const auto& size : graph_.type(node.results[0]).shape) out.result.push_back(add(size));
  if (kind == LibraryCall::Kind::Matmul) {
    const size_t rank = out.result.size(), k = add(graph_.type(node.operands[0]).shape.back());
    for (size_t d = 0; d + 2 < rank; ++d) out.batch.push_back(d);
    out.operands = {out.batch, out.batch};
    out.operands[0].insert(out.operands[0].end(), {rank - 2, k});
    out.operands[1].insert(out.operands[1].end(), {k, rank - 1});
  } else {
    out.operands.resize(kind == LibraryCall::Kind::Pool ? 1 : 2);
    for (size_t o = 0; o < out.operands.size(); ++o)
      for (const auto& size : graph_.type(node.operands[o]).shape) out.operands[o].push_back(add(size));
  }
  for (const auto& dim : out.dims) out.parts.push_back({dim});
  return out;
}

// The elements of a value of this shape whose dimensions are the last of `use`: a dimension of 1 is repeated.
std::vector<SymExpr> LibraryCalls::elements(const Space& space, const SymShape& shape,
                                            const std::vector<size_t>& use) const {
  const ShapeEnv& env = pool_.env();
  std::vector<SymExpr> at;
  for (size_t d = 0; d < shape.size(); ++d) {
    const Dim& dim = space.dims[use[use.size() - shape.size() + d]];
    const bool repeated = env.known_equal(shape[d], 1) && !env.known_equal(dim.extent, 1);
    at.push_back(repeated ? SymExpr(0) : rewrite(dim.var, space.split, env));
  }
  return at;
}

// A batch dimension that an operand divides (heads that share keys and values) is split for the whole call.
void LibraryCalls::split_batch(Space& space, std::vector<Operand>& operands) const {
  const ShapeEnv& env = pool_.env();
  std::unordered_set<uint64_t> taken;
  for (const auto& dim : space.dims) taken.insert(dim.var.symbol_id());
  auto fresh = [&](const SymExpr& extent) {
    Dim dim{pool_.fresh(extent, taken), extent};
    taken.insert(dim.var.symbol_id());
    return dim;
  };
  for (int round = 0; round < 8; ++round) {
    std::vector<Axis> axes;
    std::vector<std::pair<size_t, size_t>> where;
    for (size_t d : space.batch)
      for (size_t p = 0; p < space.parts[d].size(); ++p) {
        axes.push_back({space.parts[d][p].var, space.parts[d][p].extent, AxisRole::Outer});
        where.emplace_back(d, p);
      }
    std::vector<SymExpr> indices;
    for (const auto& o : operands) indices.insert(indices.end(), o.index.begin(), o.index.end());
    auto split = find_split(indices, axes, env);
    if (!split) break;
    auto [d, p] = where[static_cast<size_t>(split->axis)];
    auto& parts = space.parts[d];
    const Dim outer = fresh(*exact_quotient(axes[static_cast<size_t>(split->axis)].extent, split->divisor, env));
    const Dim inner = fresh(split->divisor);
    Substitution step{{parts[p].var.symbol_id(), outer.var * split->divisor + inner.var}};
    parts[p] = outer;
    parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(p) + 1, inner);
    for (auto& o : operands)
      for (auto& e : o.index) e = rewrite(e, step, env);
    for (auto& [symbol, e] : space.split) e = rewrite(e, step, env);
    space.split.merge(step);
  }
}

CallDraft LibraryCalls::draft(NodeId id, const Through& may_look, bool half_weights) {
  const Node& node = graph_.node(id);
  const ShapeEnv& env = pool_.env();
  CallDraft out;
  LibraryCall& call = out.call;
  call.kind = *library_kind(node);
  call.node = id;
  call.sources = {id};
  Space space = this->space(node);
  std::vector<Operand> operands;
  for (size_t k = 0; k < space.operands.size(); ++k) {
    const ValueId value = node.operands[k];
    const std::vector<SymExpr> at = elements(space, graph_.type(value).shape, space.operands[k]);
    auto through = [&](ValueId v) { return may_look(k, v); };
    auto half = half_weights && k == 1 ? half_weight(value, at, through) : std::nullopt;
    operands.push_back(half ? std::move(*half) : operand(value, at, through));
  }
  split_batch(space, operands);

  // The call's dimensions of its first operand or result: [N, C, spatial...] also where the node has the channels last.
  const bool last = node.attributes.i("channels_last", 0) != 0;
  auto dims_of = [&](std::vector<size_t> use, bool has_channels) {
    if (has_channels && last && use.size() > 2) std::rotate(use.begin() + 1, use.end() - 1, use.end());
    std::vector<Dim> dims;
    for (size_t d : use) dims.insert(dims.end(), space.parts[d].begin(), space.parts[d].end());
    return dims;
  };
  for (size_t k = 0; k < operands.size(); ++k) {
    const std::vector<Dim> own = dims_of(space.operands[k], k == 0);
    auto folded = view(operands[k].value, operands[k].index, own);
    if (folded)
      call.scale *= operands[k].scale;
    else // read as it is, from a buffer of its own
      folded = view(node.operands[k], elements(space, graph_.type(node.operands[k]).shape, space.operands[k]), own);
    TESSERA_CHECK(folded.has_value(), "an operand in memory is linear in its own dimensions");
    call.operands.push_back(std::move(*folded));
  }

  // The result in the call's dimensions, and the nest that consumers will be appended to.
  const ValueId result = node.results[0];
  const std::vector<Dim> own = dims_of(space.result, true);
  std::vector<SymExpr> at;
  for (size_t d : space.result)
    at.push_back(env.known_equal(space.dims[d].extent, 1) ? SymExpr(0) : rewrite(space.dims[d].var, space.split, env));
  auto plain = view(result, at, own);
  TESSERA_CHECK(plain.has_value(), "a result is linear in its own dimensions");
  call.result = std::move(*plain);
  LoopNest& nest = out.epilogue;
  nest.name = node.location.node.empty() ? std::string(node.op->name) : node.location.node;
  for (const auto& dim : own) {
    out.result_axes.push_back(dim.var);
    if (!env.known_equal(dim.extent, 1)) nest.axes.push_back({dim.var, dim.extent, AxisRole::Outer});
  }
  nest.loads = {result};
  std::vector<ScalarId> index;
  for (const auto& e : at) index.push_back(nest.dag.index(e));
  nest.stores.push_back({result, index, nest.dag.load(0, compute_dtype(graph_.type(result).dtype), index), false});
  nest.sources = {id};
  return out;
}

LibraryCall LibraryCalls::finish(const CallDraft& draft, const std::function<bool(ValueId)>& kept) const {
  const ShapeEnv& env = pool_.env();
  LibraryCall call = draft.call;
  ValueId raw = call.result.value;
  LoopNest nest = draft.epilogue;
  call.sources = nest.sources;
  bool raw_kept = kept(raw);
  remove_stores(
      nest, [&](ValueId v) { return v != raw && kept(v); }, keep_values_);
  if (nest.stores.empty()) return call;
  normalize(nest, env);
  std::vector<Dim> dims;
  for (size_t d = 0; d < draft.result_axes.size(); ++d) dims.push_back({draft.result_axes[d], call.result.shape[d]});
  if (!raw_kept && nest.stores.size() == 1 && nest.dag[nest.stores[0].scalar].op == ScalarOp::Load &&
      graph_.type(raw).dtype == graph_.type(nest.stores[0].value).dtype) {
    const Store& store = nest.stores[0];
    const ScalarNode& load = nest.dag[store.scalar];
    bool of_raw = nest.loads[static_cast<size_t>(load.operand)] == raw && !load.masked;
    std::vector<SymExpr> index;
    for (ScalarId i : store.index) index.push_back(*nest.dag.as_sym(i));
    if (auto view = of_raw ? this->view(store.value, index, dims) : std::nullopt) {
      call.result = std::move(*view);
      return call;
    }
  }
  std::vector<Axis> axes; // one per dimension, those of one point too
  for (const auto& dim : dims) axes.push_back({dim.var, dim.extent, AxisRole::Outer});
  nest.axes = std::move(axes);
  call.epilogue_nest = std::move(nest);
  return call;
}

std::optional<FixedEpilogue> LibraryCalls::fixed(const LibraryCall& call, std::string* why_not) const {
  auto no = [&](std::string why) {
    if (why_not) *why_not = std::move(why);
    return std::nullopt;
  };
  const ShapeEnv& env = pool_.env();
  const LoopNest& nest = *call.epilogue_nest;
  ValueId raw = graph_.node(call.node).results[0];
  if (nest.stores.size() != 1) return no("the library writes one tensor, not " + std::to_string(nest.stores.size()));
  const Store& store = nest.stores[0];
  DType dtype = graph_.type(raw).dtype;
  if (graph_.type(store.value).dtype != dtype)
    return no("the library writes " + std::string(name(dtype)) + ", not " +
              std::string(name(graph_.type(store.value).dtype)));
  auto match = match_epilogue(nest, raw, why_not);
  if (!match) return std::nullopt;
  std::vector<Dim> dims;
  for (const auto& axis : nest.axes) dims.push_back({axis.var, axis.extent});
  auto syms = [&](std::span<const ScalarId> index) -> std::optional<std::vector<SymExpr>> {
    std::vector<SymExpr> out;
    for (ScalarId i : index) {
      auto e = nest.dag.as_sym(i);
      if (!e) return std::nullopt;
      out.push_back(*e);
    }
    return out;
  };
  // Strides of dimensions of one point are whatever the result's are.
  auto lies_as_result = [&](const OperandView& view) {
    bool same = env.known_equal(view.offset, call.result.offset);
    for (size_t d = 0; d < dims.size(); ++d)
      same = same && (env.known_equal(dims[d].extent, 1) || env.known_equal(view.strides[d], call.result.strides[d]));
    return same;
  };
  FixedEpilogue out;
  out.alpha = match->alpha;
  out.activation = match->activation;
  out.clip_low = match->clip_low;
  out.clip_high = match->clip_high;
  auto index = syms(store.index);
  auto result = index ? view(store.value, *index, dims) : std::nullopt;
  if (!result || !lies_as_result(*result)) return no("what follows is stored in another layout");
  out.result = call.result;
  out.result.value = store.value;
  for (ScalarId load : match->addends) {
    const ScalarNode& node = nest.dag[load];
    ValueId value = nest.loads[static_cast<size_t>(node.operand)];
    auto at = syms(node.args);
    auto addend = at ? view(value, *at, dims) : std::nullopt;
    if (!addend) return no("an addend that is not strided");
    if (graph_.type(value).dtype != dtype) return no("an addend of another type than the result");
    if (lies_as_result(*addend)) {
      if (out.residual) return no("a second residual");
      addend->strides = call.result.strides;
      out.residual = std::move(*addend);
      continue;
    }
    int along = -1;
    bool one = true;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (env.known_equal(dims[d].extent, 1)) addend->strides[d] = 0;
      if (addend->strides[d].is_const(0)) continue;
      one = one && along < 0;
      along = static_cast<int>(d);
    }
    if (!one || along < 0) return no("an addend that is neither a bias nor lies as the result does");
    if (out.bias) return no("a second bias");
    out.bias = std::move(*addend);
    out.bias_dim = along;
  }
  return out;
}

} // namespace tessera::fusion
