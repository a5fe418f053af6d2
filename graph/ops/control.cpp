#include "graph/ops/control.h"
#include "graph/ir/sizes.h"
#include "graph/ops/parts.h"
#include <unordered_set>

namespace tessera {

namespace ops {

Result<ControlForm> control_form(const Node& node) {
  using Kind = ControlForm::Kind;
  auto wrong = [&](const std::string& what) {
    return Diagnostic(ErrorCode::BadAttribute, node.location, "'" + std::string(node.op->name) + "' " + what);
  };
  ControlForm form;
  form.kind = node.op->name == "if" ? Kind::If : node.op->name == "loop" ? Kind::Loop : Kind::Scan;
  const bool branches = form.kind == Kind::If;
  const Ints counts = node.attributes.ints("captures");
  std::vector<std::string_view> names =
      branches ? std::vector<std::string_view>{"else_branch", "then_branch"} : std::vector<std::string_view>{"body"};
  if (counts.size() != names.size()) return wrong("needs the number of captured values of each graph");
  int64_t total = 0;
  const auto operands = static_cast<int64_t>(node.operands.size());
  for (int64_t n : counts) {
    if (n < 0 || n > operands) return wrong("has a number of captured values that is none");
    total += n;
  }
  if (total > operands) return wrong("captures more values than it has operands");
  for (size_t i = form.kind == Kind::Loop ? 2 : 0; i < node.operands.size(); ++i)
    if (!node.operands[i].valid()) return wrong("leaves out operand " + std::to_string(i));
  int next = static_cast<int>(operands - total);
  for (size_t b = 0; b < names.size(); ++b) {
    const auto* graph = node.attributes.get<std::shared_ptr<Graph>>(names[b]);
    if (graph == nullptr || *graph == nullptr) return wrong("lacks the graph '" + std::string(names[b]) + "'");
    form.bodies.push_back({*graph, next, static_cast<int>(counts[b])});
    next += static_cast<int>(counts[b]);
  }
  if (branches) std::swap(form.bodies[0], form.bodies[1]);
  const int own = static_cast<int>(operands - total);
  if (branches && own != 1) return wrong("has " + std::to_string(own) + " conditions, expected 1");
  if (branches) {
    for (const auto& body : form.bodies)
      if (body.graph->outputs().size() != form.bodies[0].graph->outputs().size())
        return wrong("has branches of " + std::to_string(form.bodies[0].graph->outputs().size()) + " and " +
                     std::to_string(form.bodies[1].graph->outputs().size()) + " outputs; as many in both are expected");
  } else {
    form.before = form.kind == Kind::Loop ? 2 : 0;
    form.first_carried = form.before;
    form.scanned = form.kind == Kind::Scan ? static_cast<int>(node.attributes.i("num_scan_inputs")) : 0;
    if (form.kind == Kind::Scan && (form.scanned < 1 || form.scanned > own))
      return wrong("scans " + std::to_string(form.scanned) + " of " + std::to_string(own) + " operands");
    form.carried = std::max(0, own - form.before) - form.scanned;
    form.stacked = static_cast<int>(form.bodies[0].graph->outputs().size()) - form.conditions() - form.carried;
    if (form.carried < 0 || form.stacked < 0)
      return wrong("carries " + std::to_string(form.carried) + " values, and its body has " +
                   std::to_string(form.bodies[0].graph->outputs().size()) + " outputs");
    auto flags = [&](std::string_view name, int count, std::vector<bool>& out) -> Status {
      const Ints given = node.attributes.ints(name);
      if (!given.empty() && given.size() != static_cast<size_t>(count))
        return wrong("has " + std::to_string(given.size()) + " directions in '" + std::string(name) + "', expected " +
                     std::to_string(count));
      for (int i = 0; i < count; ++i) out.push_back(!given.empty() && given[static_cast<size_t>(i)] != 0);
      return {};
    };
    TESSERA_TRY(flags("reverse_inputs", form.scanned, form.reverse_in));
    TESSERA_TRY(flags("reverse_outputs", form.stacked, form.reverse_out));
  }
  for (const auto& body : form.bodies) {
    const auto expected = static_cast<size_t>(form.before + form.carried + form.scanned + body.captures);
    if (body.graph->inputs().size() != expected)
      return wrong("gives " + std::to_string(expected) + " values to graph '" + body.graph->name() + "', which takes " +
                   std::to_string(body.graph->inputs().size()));
  }
  return form;
}

void assume_around(Graph& outer, const ShapeEnv& body) {
  std::unordered_set<uint64_t> known;
  for (const SymExpr& s : outer.env().symbols()) known.insert(s.symbol_id());
  for (const Guard& g : body.guards()) {
    const auto symbols = g.condition.symbols();
    if (g.cls == GuardClass::Assumed &&
        std::all_of(symbols.begin(), symbols.end(), [&](const SymExpr& s) { return known.contains(s.symbol_id()); }))
      (void)outer.env().require(g.condition, g.cls, g.reason, g.where);
  }
}

std::shared_ptr<Graph> sample_body(std::string_view op, int before, bool twice) {
  auto graph = std::make_shared<Graph>("body");
  if (before == 2) {
    graph->add_input("i", {DType::I64, {}});
    graph->add_output("on", graph->add_input("cond", {DType::Bool, {}}));
  }
  const ValueId x = graph->add_input("x", {DType::F32, {2}});
  auto y = graph->apply(op, {x, x});
  TESSERA_CHECK(y.ok(), "a sample's body");
  graph->add_output("y", *y);
  if (twice) graph->add_output("z", *y);
  return graph;
}

} // namespace ops

namespace {
using namespace ops;
using Kind = ControlForm::Kind;

// ---- inference ------------------------------------------------------------------------------------------------------

// Sizes of a body that mean nothing around it.
class LocalSizes {
public:
  LocalSizes(const InferContext& c, const Graph& body) : outer_(c.env()), body_(body) {
    for (const SymExpr& s : outer_.symbols()) known_.insert(s.symbol_id());
    std::unordered_set<uint64_t> bound; // by inputs of the body, or around it
    if (&outer_ != &body.env()) bound = known_;
    for (ValueId v : body.inputs())
      for (const SymExpr& d : body.declared_shape(v))
        if (d.is_symbol()) bound.insert(d.symbol_id());
    for (int i = 0; i < body.node_count(); ++i) {
      const Node& n = body.node(NodeId{i});
      if (n.removed) continue;
      for (const DefinedSize& d : defined_sizes(body, n))
        if (!bound.contains(d.symbol.symbol_id())) local_.insert(d.symbol.symbol_id());
    }
  }
  // An input's dimension that is a symbol of its own, for operands of any size.
  void bind(const SymExpr& dim, const SymExpr& operand) {
    if (dim.is_symbol() && !outer_.known_equal(dim, operand)) local_.insert(dim.symbol_id());
  }
  [[nodiscard]] bool has(const SymExpr& e) const {
    for (const SymExpr& s : body_.env().simplify(e).symbols())
      if (local_.contains(s.symbol_id()) || !known_.contains(s.symbol_id())) return true;
    return false;
  }
  [[nodiscard]] bool is_own(const SymExpr& dim) const { return dim.is_symbol() && local_.contains(dim.symbol_id()); }

private:
  const ShapeEnv& outer_;
  const Graph& body_;
  std::unordered_set<uint64_t> known_, local_;
};

std::string ordinal(const char* what, size_t i) { return std::string(what) + " " + std::to_string(i); }

// Operand `operand`, of this type, becomes input `input` of the body.
Status check_argument(InferContext& c, LocalSizes& local, const Graph& body, int input, const TensorType& given) {
  const ValueId v = body.inputs()[static_cast<size_t>(input)];
  const TensorType& taken = body.type(v);
  auto differ = [&] {
    return c.error(given.dtype != taken.dtype ? ErrorCode::TypeMismatch : ErrorCode::ShapeMismatch,
                   "graph '" + body.name() + "' takes " + taken.str() + " as '" + body.value(v).name + "', and " +
                       given.str() + " is given");
  };
  if (given.dtype != taken.dtype || given.rank() != taken.rank()) return differ();
  const SymShape& declared = body.declared_shape(v);
  for (size_t d = 0; d < declared.size(); ++d) {
    local.bind(declared[d], given.shape[d]);
    if (local.is_own(declared[d]) || body.env().known_equal(declared[d], given.shape[d])) continue;
    if (local.has(declared[d])) return differ();
    if (!c.env()
             .require_equal(declared[d], given.shape[d], "what graph '" + body.name() + "' takes", c.node.location)
             .ok())
      return differ();
  }
  return {};
}

// One type for all of these; sizes that they do not share, or that mean nothing here, become fresh symbols.
struct Candidate {
  const TensorType* type;
  const LocalSizes* local; // null: of this graph
};
Result<TensorType> join(InferContext& c, const std::string& what, std::initializer_list<Candidate> all) {
  const Candidate& first = *all.begin();
  TensorType out = *first.type;
  for (const Candidate& other : all)
    if (other.type->dtype != out.dtype || other.type->rank() != out.rank())
      return c.error(ErrorCode::UnsupportedFeature,
                     what + " of '" + std::string(c.node.op->name) + "' is " + out.str() + " or " + other.type->str() +
                         ", depending on what runs; one type and one number of dimensions are expected");
  // A list of nothing says nothing of its items.
  auto empty = [](const TensorType& type) { return type.items && type.shape[0].is_const(0); };
  for (const Candidate& other : all) {
    if (!out.items || !other.type->items || empty(*other.type)) continue;
    out.items = &other == &first || (empty(*first.type) && out.items == first.type->items)
                    ? other.type->items
                    : tessera::join(*out.items, *other.type->items);
    if (!out.items)
      return c.error(ErrorCode::UnsupportedFeature, what + " of '" + std::string(c.node.op->name) + "' is " +
                                                        first.type->str() + " or " + other.type->str() +
                                                        ", depending on what runs; lists of one kind are expected");
  }
  for (size_t d = 0; d < out.shape.size(); ++d) {
    bool shared = true;
    for (const Candidate& one : all)
      shared = shared && !(one.local && one.local->has(one.type->shape[d])) &&
               c.env().known_equal(one.type->shape[d], out.shape[d]);
    if (shared)
      out.shape[d] = c.env().simplify(out.shape[d]);
    else
      out.shape[d] = c.env().create_symbol(std::string(c.node.op->name) + "_d" + std::to_string(d));
  }
  return out;
}

Status results_fit(InferContext& c, int count) {
  if (c.result_count > count)
    return c.error(ErrorCode::BadAttribute, "'" + std::string(c.node.op->name) + "' yields " + std::to_string(count) +
                                                " values, and " + std::to_string(c.result_count) + " are expected");
  return {};
}

const TensorType& output_type(const Graph& body, int output) {
  return body.type(body.outputs()[static_cast<size_t>(output)].value);
}

Status check_scalar(InferContext& c, int operand, bool boolean, const char* what) {
  if (!c.has(operand)) return {};
  const TensorType& type = c.type(operand);
  if ((boolean ? type.dtype == DType::Bool : type.dtype == DType::I64) && c.env().known_equal(type.count(), 1))
    return {};
  return c.error(ErrorCode::TypeMismatch, std::string(what) + " of '" + std::string(c.node.op->name) + "' is " +
                                              type.str() + "; one " + (boolean ? "bool" : "i64") + " is expected");
}

Status infer_if(InferContext& c) {
  TESSERA_ASSIGN(const ControlForm form, control_form(c.node));
  TESSERA_TRY(check_scalar(c, 0, true, "the condition"));
  std::vector<LocalSizes> local;
  for (const auto& body : form.bodies) {
    local.emplace_back(c, *body.graph);
    for (int k = 0; k < body.captures; ++k)
      TESSERA_TRY(check_argument(c, local.back(), *body.graph, k, c.type(body.first_capture + k)));
  }
  TESSERA_TRY(results_fit(c, static_cast<int>(form.bodies[0].graph->outputs().size())));
  for (int r = 0; r < c.result_count; ++r) {
    TESSERA_ASSIGN(c.results[static_cast<size_t>(r)], join(c, ordinal("result", static_cast<size_t>(r)),
                                                           {{&output_type(*form.bodies[0].graph, r), &local[0]},
                                                            {&output_type(*form.bodies[1].graph, r), &local[1]}}));
  }
  return {};
}

// Loop and scan; `trips`: the first size of stacked results.
Status infer_repeated(InferContext& c, const ControlForm& form, const SymExpr* trips) {
  const Graph& body = *form.bodies[0].graph;
  LocalSizes local(c, body);
  for (int k = 0; k < form.before; ++k) {
    const DType dtype = k == 0 ? DType::I64 : DType::Bool;
    const TensorType& type = body.type(body.inputs()[static_cast<size_t>(k)]);
    if (type.dtype != dtype || !body.env().known_equal(type.count(), 1))
      return c.error(ErrorCode::TypeMismatch, "graph '" + body.name() + "' takes " + type.str() + " as " +
                                                  ordinal("input", static_cast<size_t>(k)) + "; one " +
                                                  std::string(name(dtype)) + " is given");
  }
  for (int k = 0; k < form.carried; ++k)
    TESSERA_TRY(check_argument(c, local, body, form.before + k, c.type(form.first_carried + k)));
  for (int k = 0; k < form.scanned; ++k) {
    TensorType slice = c.type(form.first_carried + form.carried + k);
    slice.shape.erase(slice.shape.begin());
    TESSERA_TRY(check_argument(c, local, body, form.before + form.carried + k, slice));
  }
  for (int k = 0; k < form.bodies[0].captures; ++k)
    TESSERA_TRY(check_argument(c, local, body, form.before + form.carried + form.scanned + k,
                               c.type(form.bodies[0].first_capture + k)));
  if (form.conditions() > 0) {
    const TensorType& type = output_type(body, 0);
    if (type.dtype != DType::Bool || !body.env().known_equal(type.count(), 1))
      return c.error(ErrorCode::TypeMismatch,
                     "graph '" + body.name() + "' yields " + type.str() + " as its condition; one bool is expected");
  }
  TESSERA_TRY(results_fit(c, form.carried + form.stacked));
  for (int k = 0; k < form.carried; ++k) {
    const TensorType& in = body.type(body.inputs()[static_cast<size_t>(form.before + k)]);
    const TensorType& out = output_type(body, form.conditions() + k);
    const std::string what = ordinal("carried value", static_cast<size_t>(k));
    TESSERA_ASSIGN(TensorType type, join(c, what, {{&c.type(form.first_carried + k), nullptr}, {&out, &local}}));
    const SymShape& declared = body.declared_shape(body.inputs()[static_cast<size_t>(form.before + k)]);
    for (size_t d = 0; d < in.shape.size(); ++d)
      if (!local.is_own(declared[d]) && !body.env().known_equal(in.shape[d], out.shape[d]))
        return c.error(ErrorCode::ShapeMismatch, what + " of '" + std::string(c.node.op->name) + "' enters graph '" +
                                                     body.name() + "' as " + in.str() + " and leaves it as " +
                                                     out.str());
    if (k < c.result_count) c.results[static_cast<size_t>(k)] = std::move(type);
  }
  for (int k = form.carried; k < c.result_count; ++k) {
    TESSERA_ASSIGN(TensorType type, join(c, ordinal("result", static_cast<size_t>(k)),
                                         {{&output_type(body, form.conditions() + k), &local}}));
    type.shape.insert(type.shape.begin(), trips ? *trips : c.env().create_symbol("trips"));
    c.results[static_cast<size_t>(k)] = std::move(type);
  }
  return {};
}

// A condition is known to hold if its contents are 1.
bool known_true(const Graph& graph, ValueId v) {
  const auto& contents = graph.value(v).contents;
  return contents && contents->size() == 1 && graph.env().simplify(contents->front()).is_const(1);
}

Status infer_loop(InferContext& c) {
  TESSERA_ASSIGN(const ControlForm form, control_form(c.node));
  TESSERA_TRY(check_scalar(c, 0, false, "the trip count"));
  TESSERA_TRY(check_scalar(c, 1, true, "the condition"));
  // The trip count decides where no condition can end the loop earlier.
  const Graph& body = *form.bodies[0].graph;
  const ValueId goes_on = body.outputs()[0].value;
  std::optional<SymExpr> trips;
  if (c.has(0))
    if (const auto& count = c.graph.value(c.node.operands[0]).contents;
        count && count->size() == 1 && (!c.has(1) || known_true(c.graph, c.node.operands[1])) &&
        (known_true(body, goes_on) || goes_on == body.inputs()[1]))
      trips = c.env().simplify(sym_max(count->front(), 0));
  return infer_repeated(c, form, trips ? &*trips : nullptr);
}

Status infer_scan(InferContext& c) {
  TESSERA_ASSIGN(const ControlForm form, control_form(c.node));
  SymExpr trips;
  for (int k = 0; k < form.scanned; ++k) {
    const SymShape& shape = c.shape(form.carried + k);
    if (shape.empty()) return c.error(ErrorCode::ShapeMismatch, "'scan_graph' does not scan scalars");
    if (k == 0) trips = shape[0];
    TESSERA_TRY(c.env().require_equal(trips, shape[0], "the length of what a scan reads", c.node.location));
  }
  trips = c.env().simplify(trips);
  return infer_repeated(c, form, &trips);
}

// ---- references -----------------------------------------------------------------------------------------------------

Result<Tensor> slice_of(const Tensor& t, int64_t i) {
  Dims dims(t.dims().begin() + 1, t.dims().end());
  TESSERA_ASSIGN(const int64_t count, element_count(dims));
  return take_at(t, dims, [&, strides = strides_of(dims)](const Dims& at) { return i * count + offset(at, strides); });
}

Result<Tensor> stack(const std::vector<Tensor>& slices, const TensorType& type, bool reverse, ReferenceContext& c) {
  Dims dims{static_cast<int64_t>(slices.size())};
  if (slices.empty()) // sizes that only the body defines are 0
    for (size_t d = 1; d < type.shape.size(); ++d) {
      auto size = c.eval(type.shape[d]);
      dims.push_back(size.ok() ? *size : 0);
    }
  else
    dims.insert(dims.end(), slices[0].dims().begin(), slices[0].dims().end());
  for (const Tensor& t : slices)
    if (t.dims() != slices[0].dims())
      return c.error(ErrorCode::BadInput, "iterations yield slices of different sizes, which make no tensor");
  const int64_t each = slices.empty() ? 0 : slices[0].count();
  if (type.dtype == DType::String) {
    std::vector<std::string> all;
    for (size_t i = 0; i < slices.size(); ++i) {
      const auto& values = slices[reverse ? slices.size() - 1 - i : i].string_values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return Tensor::strings(dims, std::move(all));
  }
  TESSERA_ASSIGN(Tensor out, Tensor::create(type.dtype, dims));
  for (size_t i = 0; i < slices.size(); ++i) {
    const auto at = static_cast<int64_t>(reverse ? slices.size() - 1 - i : i) * each;
    if (info(type.dtype).bits >= 8) {
      if (each > 0) std::memcpy(out.mutable_data() + byte_size(type.dtype, at), slices[i].data(), slices[i].bytes());
    } else {
      for (int64_t k = 0; k < each; ++k) out.set_i64(at + k, slices[i].get_i64(k));
    }
  }
  return out;
}

std::vector<Tensor> captured(const ReferenceContext& c, const ControlForm::Body& body) {
  const auto begin = c.operands.begin() + body.first_capture;
  return {begin, begin + body.captures};
}

Status run_if(ReferenceContext& c) {
  TESSERA_ASSIGN(const ControlForm form, control_form(c.node));
  const auto& body = form.bodies[c.operands[0].get_i64(0) != 0 ? 0 : 1];
  TESSERA_ASSIGN(c.results, c.run(*body.graph, captured(c, body)));
  return {};
}

Status run_repeated(ReferenceContext& c) {
  TESSERA_ASSIGN(const ControlForm form, control_form(c.node));
  const bool loop = form.kind == Kind::Loop;
  int64_t most = INT64_MAX;
  if (!loop)
    most = c.operands[static_cast<size_t>(form.carried)].dims()[0];
  else if (given(c, 0))
    most = c.operands[0].get_i64(0);
  bool goes_on = !loop || !given(c, 1) || c.operands[1].get_i64(0) != 0;
  const auto first = c.operands.begin() + std::min<std::ptrdiff_t>(form.first_carried, std::ssize(c.operands));
  std::vector<Tensor> carried(first, first + form.carried);
  std::vector<std::vector<Tensor>> slices(static_cast<size_t>(form.stacked));
  const auto& body = form.bodies[0];
  for (int64_t i = 0; i < most && goes_on; ++i) {
    std::vector<Tensor> inputs;
    if (loop) {
      inputs = {integers(DType::I64, {}, {i}), integers(DType::Bool, {}, {1})};
      for (size_t k = 0; k < 2; ++k) // a scalar, or [1]
        inputs[k] = inputs[k].reshaped(Dims(body.graph->type(body.graph->inputs()[k]).shape.size(), 1));
    }
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    for (int k = 0; k < form.scanned; ++k) {
      const Tensor& all = c.operands[static_cast<size_t>(form.carried + k)];
      TESSERA_ASSIGN(Tensor one, slice_of(all, form.reverse_in[static_cast<size_t>(k)] ? most - 1 - i : i));
      inputs.push_back(std::move(one));
    }
    for (Tensor& t : captured(c, body)) inputs.push_back(std::move(t));
    TESSERA_ASSIGN(auto outputs, c.run(*body.graph, inputs));
    if (loop) goes_on = outputs[0].get_i64(0) != 0;
    const auto results = outputs.begin() + form.conditions();
    carried.assign(results, results + form.carried);
    for (int k = 0; k < form.stacked; ++k)
      slices[static_cast<size_t>(k)].push_back(outputs[static_cast<size_t>(form.conditions() + form.carried + k)]);
  }
  c.results = std::move(carried);
  for (int k = 0; k < form.stacked && static_cast<int>(c.results.size()) < c.result_count; ++k) {
    const auto r = static_cast<size_t>(form.carried + k);
    TESSERA_ASSIGN(Tensor all, stack(slices[static_cast<size_t>(k)], c.result_types[r],
                                     form.reverse_out[static_cast<size_t>(k)], c));
    c.results.push_back(std::move(all));
  }
  return {};
}

// ---- records --------------------------------------------------------------------------------------------------------

OpDef control_record(std::string_view name, std::string_view summary, InferFn infer, ReferenceFn reference) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.meaning = StructuredOp{Structured::Control};
  def.infer = std::move(infer);
  def.reference = std::move(reference);
  def.data_dependent_shape = true;
  def.max_results = 1 << 20;
  return def;
}

OpDef if_record() {
  OpDef def = control_record("if", "one of two graphs", infer_if, run_if);
  def.onnx = {{"If", "", 1}};
  def.operands = {{"cond", TypeSet::Bool}, {"captured", TypeSet::Any, true, true}};
  def.attributes = {{"captures", AttrKind::Ints, false, Ints{0, 0}},
                    {"else_branch", AttrKind::Graph, true},
                    {"then_branch", AttrKind::Graph, true}};
  auto attributes = [] {
    return Attributes{{"captures", Ints{1, 1}},
                      {"then_branch", sample_body("mul", 0, false)},
                      {"else_branch", sample_body("add", 0, false)}};
  };
  def.samples = [attributes] {
    std::vector<Sample> all;
    for (int64_t yes : {0, 1})
      all.push_back(sample({integers(DType::Bool, {}, {yes}), floats({2}, {3, 4}), floats({2}, {5, 6})}, attributes()));
    return all;
  };
  def.error_samples = [attributes] {
    return std::vector<ErrorSample>{
        wrong({integers(DType::Bool, {2}, {0, 1}), floats({2}, {3, 4}), floats({2}, {5, 6})}, attributes(),
              ErrorCode::TypeMismatch, "one bool is expected"),
        wrong({integers(DType::Bool, {}, {0}), floats({3}, {3, 4, 5}), floats({2}, {5, 6})}, attributes(),
              ErrorCode::ShapeMismatch, "takes f32[2]")};
  };
  return def;
}

OpDef loop_record() {
  OpDef def =
      control_record("loop", "a graph again and again, until a condition or a count ends it", infer_loop, run_repeated);
  def.onnx = {{"Loop", "", 1}};
  def.operands = {{"trips", TypeSet::Any, true}, {"cond", TypeSet::Any, true}, {"carried", TypeSet::Any, true, true}};
  def.attributes = {{"body", AttrKind::Graph, true}, {"captures", AttrKind::Ints, false, Ints{0}}};
  auto attributes = [](std::string_view op, bool twice) { return Attributes{{"body", sample_body(op, 2, twice)}}; };
  const Tensor yes = integers(DType::Bool, {}, {1});
  def.samples = [attributes, yes] {
    std::vector<Sample> all;
    for (int64_t trips : {0, 1, 3})
      all.push_back(sample({integers(DType::I64, {}, {trips}), yes, floats({2}, {1, 2})}, attributes("add", true)));
    for (Sample& s : all) s.result_count = 2;
    return all;
  };
  def.error_samples = [attributes, yes] {
    return std::vector<ErrorSample>{wrong({integers(DType::I64, {}, {1}), yes, floats({3}, {1, 2, 3})},
                                          attributes("add", false), ErrorCode::ShapeMismatch, "takes f32[2]"),
                                    wrong({floats({}, {1}), yes, floats({2}, {1, 2})}, attributes("add", false),
                                          ErrorCode::TypeMismatch, "one i64 is expected")};
  };
  return def;
}

OpDef scan_record() {
  OpDef def = control_record("scan_graph", "a graph for each slice along dimension 0", infer_scan, run_repeated);
  def.operands = {{"values", TypeSet::Any, true, true}};
  def.attributes = {{"body", AttrKind::Graph, true},
                    {"captures", AttrKind::Ints, false, Ints{0}},
                    {"num_scan_inputs", AttrKind::Int, true},
                    {"reverse_inputs", AttrKind::Ints, false, Ints{}},
                    {"reverse_outputs", AttrKind::Ints, false, Ints{}}};
  def.samples = [] {
    std::vector<Sample> all;
    for (int64_t reverse : {0, 1})
      all.push_back(sample({random(DType::F32, {4, 2}, 3)}, {{"body", sample_body("mul", 0, false)},
                                                             {"num_scan_inputs", int64_t{1}},
                                                             {"reverse_inputs", Ints{reverse}},
                                                             {"reverse_outputs", Ints{reverse}}}));
    return all;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({floats({2}, {1, 2})}, {{"body", sample_body("mul", 0, false)}, {"num_scan_inputs", int64_t{1}}},
              ErrorCode::ShapeMismatch, "takes f32[2]"),
        wrong({floats({2}, {1, 2})}, {{"body", sample_body("mul", 0, false)}, {"num_scan_inputs", int64_t{2}}},
              ErrorCode::BadAttribute, "scans 2 of 1 operands")};
  };
  return def;
}

} // namespace

void register_control_ops(OpTable& table) {
  table.add(if_record());
  table.add(loop_record());
  table.add(scan_record());
  register_scan_onnx_ops(table);
}

} // namespace tessera
