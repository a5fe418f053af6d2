#include "tests/fusion/harness.h"
#include "fusion/attention.h"
#include "fusion/lifetimes.h"
#include "graph/ir/sizes.h"
#include <algorithm>
#include <cmath>
#include <set>

namespace tessera {

Graph parsed(const std::string& text) {
  auto g = parse_graph(text);
  EXPECT_TRUE(g.ok()) << (g.ok() ? "" : g.error().str());
  return g.ok() ? std::move(g).value() : Graph();
}

Tensor filled(DType dtype, Dims dims, uint64_t seed, int64_t int_limit) {
  Tensor t = Tensor::create(dtype, std::move(dims)).value();
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (int64_t i = 0; i < t.count(); ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    auto bits = static_cast<int64_t>(state >> 33);
    if (is_float(dtype))
      t.set_f64(i, static_cast<double>(bits % 4001) / 1000.0 - 2.0);
    else
      t.set_i64(i, bits % int_limit);
  }
  return t;
}

Inputs inputs_for(const Graph& graph, const std::map<std::string, int64_t>& sizes, uint64_t seed, int64_t int_limit) {
  Symbols bound;
  for (const auto& [name, size] : sizes)
    if (auto s = graph.env().find(name)) bound.emplace(s->symbol_id(), size);
  Inputs out;
  for (ValueId v : graph.inputs()) {
    Dims dims;
    for (const auto& d : graph.type(v).shape) dims.push_back(d.eval(bound).value());
    out.emplace(graph.value(v).name, filled(graph.type(v).dtype, dims, ++seed, int_limit));
  }
  return out;
}

PlanRunner& plan_runner() {
  static PlanRunner runner;
  return runner;
}

namespace {

Result<Dims> evaluated(const SymShape& shape, const Symbols& symbols) {
  Dims dims;
  for (const auto& d : shape) {
    TESSERA_ASSIGN(int64_t n, d.eval(symbols));
    dims.push_back(n);
  }
  return dims;
}

// Position in a buffer of each element of a strided view, row-major over the view.
Result<std::vector<int64_t>> positions(const OperandView& view, const Symbols& symbols, Dims& dims) {
  TESSERA_ASSIGN(dims, evaluated(view.shape, symbols));
  TESSERA_ASSIGN(Dims strides, evaluated(view.strides, symbols));
  TESSERA_ASSIGN(int64_t offset, view.offset.eval(symbols));
  TESSERA_ASSIGN(int64_t n, element_count(dims));
  std::vector<int64_t> out;
  Dims at(dims.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    int64_t p = offset;
    for (size_t d = 0; d < dims.size(); ++d) p += at[d] * strides[d];
    out.push_back(p);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++at[d] < dims[d]) break;
      at[d] = 0;
    }
  }
  return out;
}

void copy_element(Tensor& to, int64_t i, const Tensor& from, int64_t j) {
  if (is_float(to.dtype()))
    to.set_f64(i, from.get_f64(j));
  else
    to.set_i64(i, from.get_i64(j));
}

class Runner {
public:
  Runner(const Graph& graph, Symbols symbols) : graph_(graph), symbols_(std::move(symbols)) {}
  std::map<ValueId, Tensor> values;

  Result<Tensor> get(ValueId v) {
    if (auto it = values.find(v); it != values.end()) return it->second;
    if (const Tensor* t = graph_.constant(v)) return *t;
    return Diagnostic(ErrorCode::Internal, "value " + graph_.value(v).name + " is read before it is written");
  }

  Status nest(const LoopNest& nest) {
    std::vector<Tensor> loads;
    for (ValueId v : nest.loads) {
      TESSERA_ASSIGN(Tensor t, get(v));
      loads.push_back(t);
    }
    auto results = plan_runner().nest ? plan_runner().nest(graph_, nest, loads, symbols_)
                                      : interpret(graph_, nest, loads, symbols_);
    if (!results) return results.error();
    for (size_t i = 0; i < results->size(); ++i) values[nest.stores[i].value] = (*results)[i];
    return {};
  }

  Status call(const LibraryCall& call) {
    std::vector<Tensor> operands;
    for (const auto& view : call.operands) {
      TESSERA_ASSIGN(Tensor from, get(view.value));
      Dims dims;
      TESSERA_ASSIGN(auto where, positions(view, symbols_, dims));
      TESSERA_ASSIGN(Tensor t, Tensor::create(from.dtype(), dims));
      for (size_t i = 0; i < where.size(); ++i) {
        if (where[i] < 0 || where[i] >= from.count())
          return Diagnostic(ErrorCode::Internal, "a strided operand leaves its buffer");
        copy_element(t, static_cast<int64_t>(i), from, where[i]);
      }
      operands.push_back(t);
    }
    const Node& node = graph_.node(call.node);
    Tensor raw;
    if (call.kind == LibraryCall::Kind::Matmul) {
      TESSERA_ASSIGN(Dims dims, evaluated(call.result.shape, symbols_));
      TESSERA_ASSIGN(raw, multiply(operands[0], operands[1], dims, graph_.type(node.results[0]).dtype));
      for (int64_t i = 0; call.scale != 1 && i < raw.count(); ++i) raw.set_f64(i, raw.get_f64(i) * call.scale);
    } else {
      Node plain = node; // a call speaks of [N, C, spatial...] in any layout
      plain.attributes.erase("channels_last");
      TESSERA_ASSIGN(auto results, evaluate_node(graph_, plain, operands, symbols_));
      raw = results[0];
    }
    if (call.fixed) return finish(*call.fixed, raw);
    ValueId result = node.results[0];
    Dims dims;
    TESSERA_ASSIGN(auto where, positions(call.result, symbols_, dims));
    TESSERA_ASSIGN(Dims out_dims, evaluated(graph_.type(call.result.value).shape, symbols_));
    TESSERA_ASSIGN(Tensor out, Tensor::create(raw.dtype(), out_dims, true));
    for (size_t i = 0; i < where.size(); ++i) copy_element(out, where[i], raw, static_cast<int64_t>(i));
    values[call.result.value] = out;
    if (call.epilogue_nest) {
      EXPECT_EQ(call.result.value, result);
      TESSERA_TRY(nest(*call.epilogue_nest));
    }
    return {};
  }

  // Computes the epilogue as the library would: by the description, not by the nest.
  Status finish(const FixedEpilogue& e, const Tensor& raw) {
    Dims dims;
    TESSERA_ASSIGN(auto where, positions(e.result, symbols_, dims));
    Tensor bias, residual;
    std::vector<int64_t> bias_at, residual_at;
    if (e.bias) {
      TESSERA_ASSIGN(bias, get(e.bias->value));
      TESSERA_ASSIGN(bias_at, positions(*e.bias, symbols_, dims));
    }
    if (e.residual) {
      TESSERA_ASSIGN(residual, get(e.residual->value));
      TESSERA_ASSIGN(residual_at, positions(*e.residual, symbols_, dims));
    }
    TESSERA_ASSIGN(Dims out_dims, evaluated(graph_.type(e.result.value).shape, symbols_));
    TESSERA_ASSIGN(Tensor out, Tensor::create(raw.dtype(), out_dims, true));
    for (size_t i = 0; i < where.size(); ++i) {
      double x = e.alpha * raw.get_f64(static_cast<int64_t>(i));
      if (e.bias) x += bias.get_f64(bias_at[i]);
      if (e.residual) x += residual.get_f64(residual_at[i]);
      out.set_f64(where[i], activated(e, x));
    }
    values[e.result.value] = out;
    return {};
  }

  Status steps(const std::vector<Group>& groups) {
    for (const auto& g : groups) TESSERA_TRY(g.kind == Group::Kind::Kernel ? nest(g.nest) : call(g.call));
    return {};
  }

  // Attention from its strided operands, the score by its expression or, with `fixed`, by the form that libraries have.
  // Undefined rows are as the call says, and zeros in the fixed form: what libraries make of rows of -inf.
  Result<Tensor> attention(const AttentionCall& call, bool fixed) {
    Dims q_dims, k_dims, v_dims, out_dims, bias_dims;
    TESSERA_ASSIGN(auto q_at, positions(call.q, symbols_, q_dims));
    TESSERA_ASSIGN(auto k_at, positions(call.k, symbols_, k_dims));
    TESSERA_ASSIGN(auto v_at, positions(call.v, symbols_, v_dims));
    TESSERA_ASSIGN(auto out_at, positions(call.out, symbols_, out_dims));
    TESSERA_ASSIGN(Tensor q, get(call.q.value));
    TESSERA_ASSIGN(Tensor k, get(call.k.value));
    TESSERA_ASSIGN(Tensor v, get(call.v.value));
    TESSERA_ASSIGN(Dims shape, evaluated(graph_.type(call.out.value).shape, symbols_));
    TESSERA_ASSIGN(Tensor out, Tensor::create(graph_.type(call.out.value).dtype, shape, true));
    int64_t queries = q_dims[q_dims.size() - 2], keys = k_dims[k_dims.size() - 2], width = q_dims.back(),
            wide = v_dims.back(), batches = 1;
    for (size_t d = 0; d + 2 < q_dims.size(); ++d) batches *= q_dims[d];
    auto at = [](const Tensor& t, const std::vector<int64_t>& where, int64_t i) {
      return t.get_f64(where[static_cast<size_t>(i)]);
    };
    Dims raw_dims(q_dims.begin(), q_dims.end() - 1);
    raw_dims.push_back(keys);
    TESSERA_ASSIGN(Tensor scores, Tensor::create(DType::F32, raw_dims));
    for (int64_t i = 0; i < scores.count(); ++i) {
      int64_t b = i / (queries * keys), r = i / keys % queries, c = i % keys;
      double sum = 0;
      for (int64_t d = 0; d < width; ++d)
        sum += at(q, q_at, (b * queries + r) * width + d) * at(k, k_at, (b * keys + c) * width + d);
      scores.set_f64(i, sum);
    }
    if (fixed) {
      Tensor bias;
      std::vector<int64_t> bias_at;
      if (call.fixed->bias) {
        TESSERA_ASSIGN(bias, get(call.fixed->bias->value));
        TESSERA_ASSIGN(bias_at, positions(*call.fixed->bias, symbols_, bias_dims));
      }
      for (int64_t i = 0; i < scores.count(); ++i) {
        bool hidden = call.fixed->causal && i % keys > i / keys % queries;
        double x = call.fixed->scale * scores.get_f64(i) + (bias_at.empty() ? 0 : at(bias, bias_at, i));
        scores.set_f64(i, hidden ? -std::numeric_limits<double>::infinity() : x);
      }
    } else {
      TESSERA_ASSIGN(scores, scored(call, scores));
    }
    for (int64_t r = 0; r < batches * queries; ++r) {
      double max = -std::numeric_limits<double>::infinity(), sum = 0;
      bool nan = false;
      for (int64_t c = 0; c < keys; ++c) {
        max = std::max(max, scores.get_f64(r * keys + c));
        nan = nan || std::isnan(scores.get_f64(r * keys + c));
      }
      bool empty = std::isinf(max);
      for (int64_t c = 0; c < keys && !empty; ++c) sum += std::exp(scores.get_f64(r * keys + c) - max);
      for (int64_t d = 0; d < wide; ++d) {
        double y = 0;
        for (int64_t c = 0; c < keys; ++c)
          y += std::exp(scores.get_f64(r * keys + c) - max) / sum * at(v, v_at, (r / queries * keys + c) * wide + d);
        if (nan || empty) {
          bool zero = call.zero_where_undefined || (fixed && !nan);
          y = zero ? 0 : std::numeric_limits<double>::quiet_NaN();
        }
        out.set_f64(out_at[static_cast<size_t>(r * wide + d)], y);
      }
    }
    return out;
  }

  // By the kernel that is generated for it, if there is one.
  Result<std::optional<Tensor>> attention_by_kernel(const AttentionCall& call) {
    if (!plan_runner().attention) return std::optional<Tensor>();
    std::map<ValueId, Tensor> tensors;
    auto read = [&](ValueId v) -> Status {
      TESSERA_ASSIGN(tensors[v], get(v));
      return {};
    };
    for (const OperandView* view : {&call.q, &call.k, &call.v}) TESSERA_TRY(read(view->value));
    for (size_t i = 1; i < call.score.loads.size(); ++i) TESSERA_TRY(read(call.score.loads[i]));
    return plan_runner().attention(graph_, call, tensors, symbols_);
  }

  Status host(NodeId id, bool own = false) {
    const Node& node = graph_.node(id);
    std::vector<Tensor> operands;
    for (ValueId v : node.operands) {
      if (!v.valid()) {
        operands.emplace_back();
        continue;
      }
      TESSERA_ASSIGN(Tensor t, get(v));
      operands.push_back(t);
    }
    auto results = own && plan_runner().own ? plan_runner().own(graph_, node, operands, symbols_)
                                            : evaluate_node(graph_, node, operands, symbols_);
    if (!results) return results.error();
    for (size_t r = 0; r < results->size(); ++r) {
      if (!node.results[r].valid()) continue;
      values[node.results[r]] = (*results)[r];
    }
    for (const DefinedSize& d : defined_sizes(graph_, node)) { // sizes that are known only now
      const Tensor& t = (*results)[static_cast<size_t>(d.result)];
      symbols_.emplace(d.symbol.symbol_id(), d.dim >= 0 ? t.dims()[static_cast<size_t>(d.dim)] : t.get_i64(d.element));
    }
    for (const DefinedSize& d : defined_sizes(graph_, node))
      if (d.element >= 0)
        symbols_.emplace(d.symbol.symbol_id(), (*results)[static_cast<size_t>(d.result)].get_i64(d.element));
    return {};
  }

private:
  // The score nest on sums: it is made to store its root.
  Result<Tensor> scored(const AttentionCall& call, const Tensor& sums) {
    LoopNest nest = call.score;
    Graph& graph = const_cast<Graph&>(graph_);
    nest.axes.back().role = AxisRole::Outer;
    ValueId result = fusion::add_temporary(graph, {DType::F32, nest.extents(AxisRole::Outer)});
    // A load of the sum has the index of the tensor that it stands for.
    std::vector<ScalarId> own;
    for (const auto& axis : nest.axes) own.push_back(nest.dag.index(axis.var));
    ScalarDag dag;
    std::unordered_map<ScalarId, ScalarId> done;
    for (auto& i : own) i = dag.index(*nest.dag.as_sym(i));
    auto leaf = [&](ScalarDag& into, const ScalarNode& node, std::span<const ScalarId>) -> ScalarId {
      return node.op == ScalarOp::Load && node.operand == 0 ? into.load(0, DType::F32, own) : -1;
    };
    ScalarId root = dag.import(nest.dag, call.root, leaf, done);
    nest.dag = std::move(dag);
    nest.stores = {{result, own, root, false}};
    nest.loads[0] = result;
    std::vector<Tensor> loads = {sums};
    for (size_t i = 1; i < nest.loads.size(); ++i) {
      TESSERA_ASSIGN(Tensor t, get(nest.loads[i]));
      loads.push_back(t);
    }
    TESSERA_ASSIGN(auto out, interpret(graph_, nest, loads, symbols_));
    return out[0];
  }
  static double activated(const FixedEpilogue& e, double x) {
    using Activation = FixedEpilogue::Activation;
    switch (e.activation) {
    case Activation::None: return x;
    case Activation::Relu: return std::max(x, 0.0);
    case Activation::Clip: return std::clamp(x, e.clip_low, e.clip_high);
    case Activation::GeluTanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::GeluErf: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::Sigmoid: return 1 / (1 + std::exp(-x));
    case Activation::Silu: return x / (1 + std::exp(-x));
    case Activation::Tanh: return std::tanh(x);
    }
    return x;
  }
  static Result<Tensor> multiply(const Tensor& a, const Tensor& b, const Dims& dims, DType dtype) {
    TESSERA_ASSIGN(Tensor c, Tensor::create(dtype, dims));
    size_t r = dims.size();
    int64_t m = dims[r - 2], n = dims[r - 1], k = a.dims()[r - 1], batches = 1;
    for (size_t d = 0; d + 2 < r; ++d) batches *= dims[d];
    for (int64_t p = 0; p < batches * m * n; ++p) {
      int64_t batch = p / (m * n), i = p / n % m, j = p % n;
      double sum = 0;
      for (int64_t q = 0; q < k; ++q) sum += a.get_f64((batch * m + i) * k + q) * b.get_f64((batch * k + q) * n + j);
      c.set_f64(p, sum);
    }
    return c;
  }
  const Graph& graph_;
  Symbols symbols_;
};

} // namespace

Result<std::vector<Tensor>> run_plan(const Graph& graph, const FusionPlan& plan, const Inputs& inputs) {
  TESSERA_ASSIGN(Symbols symbols, bind_symbols(graph, inputs));
  Runner run(graph, symbols);
  for (ValueId v : graph.inputs()) run.values[v] = inputs.at(graph.value(v).name);
  for (const auto& g : plan.groups) {
    switch (g.kind) {
    case Group::Kind::Kernel: TESSERA_TRY(run.nest(g.nest)); break;
    case Group::Kind::Library: TESSERA_TRY(run.call(g.call)); break;
    case Group::Kind::Attention: { // each way of computing it; what follows reads the last
      TESSERA_TRY(run.steps(g.otherwise));
      std::vector<Tensor> ways = {run.values.at(g.writes[0])};
      TESSERA_ASSIGN(Tensor general, run.attention(g.attention, false));
      ways.push_back(general);
      if (g.attention.fixed) {
        TESSERA_ASSIGN(Tensor fixed, run.attention(g.attention, true));
        ways.push_back(fixed);
      }
      TESSERA_ASSIGN(auto kernel, run.attention_by_kernel(g.attention));
      if (kernel) ways.push_back(std::move(*kernel));
      for (size_t w = 1; w < ways.size(); ++w) {
        double tolerance = ways[0].dtype() == DType::BF16 ? 3e-2 : 4e-3; // of rounded scores and probabilities
        auto c = compare(ways[w], ways[0], tolerance, tolerance);
        const bool last = kernel && w + 1 == ways.size();
        EXPECT_TRUE(c.same) << (last     ? "the kernel: "
                                : w == 1 ? "the score's expression: "
                                         : "the fixed form: ")
                            << c.message;
      }
      run.values[g.writes[0]] = ways.back();
      break;
    }
    case Group::Kind::Own: TESSERA_TRY(run.host(g.node, true)); break;
    case Group::Kind::Control:
    case Group::Kind::Host: TESSERA_TRY(run.host(g.node)); break;
    case Group::Kind::Alias:
      if (g.node.valid()) TESSERA_TRY(run.host(g.node));
      break;
    }
  }
  std::vector<Tensor> out;
  for (const auto& o : graph.outputs()) {
    TESSERA_ASSIGN(Tensor t, run.get(o.value));
    out.push_back(t);
  }
  return out;
}

FusionOptions generated() {
  FusionOptions options;
  options.generated_epilogues = true;
  return options;
}

namespace {

// Every edge between operators that are not constants has exactly one entry, in node order, with a reason that fits.
void check_ledger(const Graph& graph, const FusionPlan& plan) {
  std::set<std::pair<int32_t, int32_t>> entries;
  int last = -1;
  std::map<int32_t, int> position;
  int p = 0;
  for (NodeId id : graph.order()) position[id.index] = p++;
  for (const auto& e : plan.ledger) {
    EXPECT_TRUE(entries.emplace(e.value.index, e.consumer.index).second);
    EXPECT_EQ(graph.value(e.value).producer, e.producer);
    EXPECT_GE(position[e.consumer.index], last);
    last = position[e.consumer.index];
    if (!info(e.reason).fused) {
      EXPECT_TRUE(e.bytes_saved.is_const(0)) << info(e.reason).name;
    }
  }
  size_t edges = 0;
  for (NodeId id : graph.order()) {
    std::set<int32_t> seen;
    for (ValueId v : graph.node(id).operands) {
      if (!v.valid() || !graph.producer(v) || !seen.insert(v.index).second) continue;
      const auto* structured = graph.producer(v)->op->structured();
      if (structured && structured->kind == Structured::Constant) continue;
      ++edges;
      EXPECT_TRUE(entries.contains({v.index, id.index})) << "no entry for an edge of " << graph.value(v).name;
    }
  }
  EXPECT_EQ(edges, plan.ledger.size());
}

} // namespace

FusionPlan check_plan(Graph& graph, const std::vector<std::map<std::string, int64_t>>& sizes,
                      const FusionOptions& options, double tolerance) {
  auto plan = plan_fusion(graph, options);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().str());
  if (!plan.ok()) return {};
  auto fine = verify(graph, *plan);
  EXPECT_TRUE(fine.ok()) << (fine.ok() ? "" : fine.error().str()) << print(graph, *plan);
  check_ledger(graph, *plan);
  FusionPlan reordered = *plan; // which a compile runs
  if (fusion::shorten_lifetimes(graph, reordered)) {
    fine = verify(graph, reordered);
    EXPECT_TRUE(fine.ok()) << (fine.ok() ? "" : fine.error().str()) << print(graph, reordered);
  }
  uint64_t seed = 1;
  for (const auto& size : sizes) {
    Inputs inputs = inputs_for(graph, size, seed += 100);
    auto expected = evaluate_graph(graph, inputs);
    auto actual = run_plan(graph, reordered, inputs);
    EXPECT_TRUE(expected.ok()) << (expected.ok() ? "" : expected.error().str());
    EXPECT_TRUE(actual.ok()) << (actual.ok() ? "" : actual.error().str()) << print(graph) << print(graph, *plan);
    if (!expected.ok() || !actual.ok()) break;
    for (size_t o = 0; o < expected->size(); ++o) {
      auto c = compare((*actual)[o], (*expected)[o], tolerance, tolerance);
      EXPECT_TRUE(c.same) << "output " << graph.outputs()[o].name << ": " << c.message << "\n"
                          << print(graph) << print(graph, *plan);
      if (!c.same) return std::move(*plan);
    }
  }
  return std::move(*plan);
}

bool together(const Graph& graph, const FusionPlan& plan, const std::string& a, const std::string& b) {
  for (const Group* g : flat_groups(plan)) {
    std::vector<NodeId> nodes = g->kind == Group::Kind::Library ? g->call.sources : g->nest.sources;
    if (g->node.valid()) nodes.push_back(g->node);
    auto has = [&](const std::string& name) {
      return std::any_of(nodes.begin(), nodes.end(), [&](NodeId n) { return is_of(graph.node(n).location, name); });
    };
    if (has(a) && has(b)) return true;
  }
  return false;
}

std::vector<PinnedGroup> pinned(const Graph& graph, const FusionPlan& plan) {
  const NodeKeys keys(graph);
  std::vector<PinnedGroup> out;
  for (const Group& g : plan.groups) {
    if (g.kind == Group::Kind::Alias && !g.node.valid()) continue;
    PinnedGroup p;
    p.name = g.name;
    p.kind = g.kind == Group::Kind::Kernel    ? PinnedGroup::Kind::Kernel
             : g.kind == Group::Kind::Library ? PinnedGroup::Kind::Library
                                              : PinnedGroup::Kind::Other;
    std::vector<NodeId> nodes = g.kind == Group::Kind::Library ? g.call.sources : g.nest.sources;
    if (g.node.valid()) nodes = {g.node};
    for (NodeId n : nodes) p.nodes.push_back(keys.of(n));
    for (ValueId v : g.stages) p.stages.push_back(keys.of(v));
    for (ValueId v : g.reads) {
      const Node* producer = graph.producer(v);
      const auto* s = producer ? producer->op->structured() : nullptr;
      if (producer && !(s && s->kind == Structured::Constant)) p.reads.push_back(keys.of(v));
    }
    out.push_back(std::move(p));
  }
  return out;
}

std::string groups_text(const Graph& graph, FusionPlan plan) {
  plan.ledger.clear();
  plan.pairs.clear();
  return print(graph, plan);
}

int count(const FusionPlan& plan, Group::Kind kind) {
  return static_cast<int>(
      std::count_if(plan.groups.begin(), plan.groups.end(), [&](const Group& g) { return g.kind == kind; }));
}
int count_reason(const FusionPlan& plan, FusionReason reason) {
  return static_cast<int>(
      std::count_if(plan.ledger.begin(), plan.ledger.end(), [&](const LedgerEntry& e) { return e.reason == reason; }));
}

} // namespace tessera
