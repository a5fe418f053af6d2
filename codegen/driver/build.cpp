#include "codegen/driver/build.h"
#include "base/guarded.h"
#include "codegen/driver/bodies.h"
#include "codegen/driver/contract.h"
#include "codegen/driver/host_payload.h"
#include "fusion/cost.h"
#include "graph/ir/sizes.h"
#include "graph/ops/questions.h"
#include "graph/ops/scatter.h"
#include "graph/reference/evaluator.h"
#include "runtime/variant.h"
#include <algorithm>
#include <set>
#include <unordered_set>

namespace tessera {

namespace {

// The innermost axis is the one whose elements are contiguous in memory: a result with dimensions [N, C, spatial...]
// may have another memory order.
void order_axes(LoopNest& nest) {
  if (nest.stores.empty()) return;
  const auto& store = nest.stores[0];
  std::vector<std::pair<size_t, Axis>> order;
  for (const auto& axis : nest.axes) {
    size_t place = 0;
    for (size_t d = 0; d < store.index.size(); ++d)
      if (auto e = nest.dag.as_sym(store.index[d]); e && e->contains(axis.var)) place = d + 1;
    order.emplace_back(place, axis);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < order.size(); ++i) nest.axes[i] = order[i].second;
}

} // namespace

BoxedNest whole_epilogue(Graph& graph, const LoopNest& nest) {
  BoxedNest out;
  out.nest = nest;
  for (size_t d = 0; d < nest.axes.size(); ++d) {
    out.begin.push_back(graph.env().create_symbol("box_begin" + std::to_string(d)));
    out.count.push_back(graph.env().create_symbol("box_count" + std::to_string(d), {0, kSymMax}));
  }
  order_axes(out.nest);
  return out;
}

BoxedNest box_epilogue(Graph& graph, const LoopNest& nest) {
  BoxedNest out;
  out.nest.name = nest.name;
  out.nest.loads = nest.loads;
  out.nest.sources = nest.sources;
  out.nest.axes = nest.axes;
  std::unordered_map<uint64_t, SymExpr> moved;
  std::vector<size_t> points; // axes of extent 1 have no loop
  for (size_t d = 0; d < nest.axes.size(); ++d) {
    if (nest.axes[d].extent.is_const(1)) points.push_back(d);
    auto begin = graph.env().create_symbol("box_begin" + std::to_string(d));
    auto count = graph.env().create_symbol("box_count" + std::to_string(d), {0, kSymMax});
    auto axis = graph.env().create_symbol("box_axis" + std::to_string(d));
    graph.env().set_axis(axis, count);
    out.begin.push_back(begin);
    out.count.push_back(count);
    moved.emplace(nest.axes[d].var.symbol_id(), begin + axis);
    out.nest.axes[d].var = axis;
    out.nest.axes[d].extent = count;
  }
  for (size_t d : points) moved[nest.axes[d].var.symbol_id()] = 0;
  for (auto d = points.rbegin(); d != points.rend(); ++d)
    out.nest.axes.erase(out.nest.axes.begin() + static_cast<std::ptrdiff_t>(*d));
  std::unordered_map<ScalarId, ScalarId> done;
  auto leaf = [&](ScalarDag& into, const ScalarNode& node, std::span<const ScalarId> args) -> ScalarId {
    if (node.op != ScalarOp::Index && node.op != ScalarOp::CheckBounds) return -1;
    auto e = node.sym.substitute(moved);
    if (node.op == ScalarOp::CheckBounds) {
      ScalarNode check = node;
      check.args.assign(args.begin(), args.end());
      check.sym = e;
      return into.add(std::move(check));
    }
    return node.dtype == DType::Bool ? into.condition(e) : into.index(e);
  };
  for (const auto& s : nest.stores) {
    Store t = s;
    for (auto& i : t.index) i = out.nest.dag.import(nest.dag, i, leaf, done);
    t.scalar = out.nest.dag.import(nest.dag, s.scalar, leaf, done);
    out.nest.stores.push_back(std::move(t));
  }
  order_axes(out.nest);
  return out;
}

namespace {

// The dimensions that the integers of an input index, found through operators that compute integers elementwise or move
// them.
std::vector<SymExpr> indexed_dimensions(const Graph& graph, ValueId input,
                                        const std::vector<std::vector<NodeId>>& users) {
  std::vector<SymExpr> out;
  if (!is_integer(graph.type(input).dtype)) return out;
  std::set<ValueId> found = {input};
  std::vector<ValueId> todo = {input};
  while (!todo.empty()) {
    const ValueId v = todo.back();
    todo.pop_back();
    for (NodeId id : users[static_cast<size_t>(v.index)]) {
      const Node& n = graph.node(id);
      bool indexes = false;
      for (size_t i = 1; i < n.operands.size(); ++i) {
        if (n.operands[i] != v) continue;
        const SymShape& table = graph.type(n.operands[0]).shape;
        for (const size_t d : ops::indexed_dimensions(n, i, table.size())) {
          indexes = true;
          if (std::find(out.begin(), out.end(), table[d]) == out.end()) out.push_back(table[d]);
        }
      }
      const bool computes = n.op->indexing() != nullptr || n.op->pointwise() != nullptr;
      if (!computes || (indexes && n.operands[0] != v) || n.results.empty() || !n.results[0].valid() ||
          !is_integer(graph.type(n.results[0]).dtype))
        continue;
      if (found.insert(n.results[0]).second) todo.push_back(n.results[0]);
    }
  }
  return out;
}

class Builder {
public:
  explicit Builder(const BuildInput& input) : in_(input), graph_(*input.graph), exe_(std::make_shared<Executable>()) {}

  Result<std::shared_ptr<Executable>> run() {
    exe_->model_name = graph_.name();
    exe_->env = graph_.shared_env();
    exe_->target = in_.target;
    exe_->code = in_.code.code;
    exe_->objects = in_.code.objects;
    const auto users = graph_.users();
    for (auto v : graph_.inputs()) {
      exe_->inputs.push_back({graph_.value(v).name, buffer(v), indexed_dimensions(graph_, v, users), list_text(v)});
      for (const auto& d : graph_.declared_shape(v))
        for (const auto& s : d.symbols()) bound_.insert(s.symbol_id());
    }
    std::map<ValueId, std::string> output_name; // a value with several outputs: the first one owns the buffer
    for (const auto& o : graph_.outputs()) output_name.try_emplace(o.value, o.name);
    for (auto& [v, name] : output_name) output_values_.insert(memory_of(v));
    find_begun(users);
    for (size_t g = 0; g < in_.groups.size(); ++g) {
      const Status made = guarded({"making a step of", in_.groups[g].group->name}, [&] { return step(in_.groups[g]); });
      if (made.ok()) continue;
      if (in_.failed == nullptr || made.error().code != ErrorCode::Internal) return made.error();
      in_.failed->emplace(g, made.error());
    }
    if (in_.failed != nullptr && !in_.failed->empty()) return exe_;
    failure_point("executable");
    for (const auto& o : graph_.outputs()) {
      auto b = buffer(o.value);
      auto& info = exe_->buffers[static_cast<size_t>(b)];
      const auto& type = graph_.type(o.value);
      const bool own = memory_of(o.value) == o.value; // else its bytes were made as another type
      if (info.kind == BufferInfo::Kind::Output && (own || !by_host_.contains(b)) &&
          given_.insert(memory_of(o.value)).second) {
        info.name = o.name;
        info.dtype = type.dtype;
        info.shape = type.shape;
        exe_->outputs.push_back({o.name, b, {}, list_text(o.value)});
        continue;
      }
      // An input, a constant, or a value that is another output too: a copy.
      auto copy = static_cast<BufferId>(exe_->buffers.size());
      BufferInfo target = info;
      target.kind = BufferInfo::Kind::Output;
      target.constant = -1;
      target.name = o.name;
      target.in_place_of = -1;
      if (!own) {
        target.dtype = type.dtype;
        target.shape = type.shape;
      }
      exe_->buffers.push_back(target);
      copy_step("copy " + o.name, b, copy);
      exe_->outputs.push_back({o.name, copy, {}, list_text(o.value)});
    }
    lifetimes();
    return exe_;
  }

private:
  // The value whose memory a value has: of an alias, its operand's.
  [[nodiscard]] ValueId memory_of(ValueId value) const {
    for (const Node* n = graph_.producer(value);; n = graph_.producer(value)) {
      if (!n || !n->op->structured() || n->op->structured()->kind != Structured::Alias) return value;
      value = n->operands[0];
    }
  }

  // Operands that only one kernel reads, which changes them in place, are computed in the memory of its result.
  void find_begun(const std::vector<std::vector<NodeId>>& users) {
    std::set<ValueId> on_device, elsewhere; // by what computes them
    for (const GroupCode& code : in_.groups) {
      const Group& group = *code.group;
      const bool outside = group.kind == Group::Kind::Host || group.kind == Group::Kind::Control;
      (outside ? elsewhere : on_device).insert(group.writes.begin(), group.writes.end());
    }
    for (const GroupCode& code : in_.groups) {
      const Group* group = code.group;
      if (group->kind != Group::Kind::Own || !group->node.valid()) continue;
      const Node& node = graph_.node(group->node);
      const ValueId from = ops::begins_as(node), to = node.results[0];
      if (!from.valid() || memory_of(from) != from || output_values_.contains(from) || elsewhere.contains(from) ||
          !on_device.contains(from) || users[static_cast<size_t>(from.index)].size() != 1)
        continue;
      const TensorType &a = graph_.type(from), &b = graph_.type(to);
      if (a.dtype == b.dtype && a.shape == b.shape) begun_.emplace(from, to);
    }
  }

  BufferId buffer(ValueId value) {
    if (!value.valid()) return -1;
    value = memory_of(value);
    for (auto it = begun_.find(value); it != begun_.end(); it = begun_.find(value)) value = it->second;
    auto [it, fresh] = by_value_.try_emplace(value, static_cast<BufferId>(exe_->buffers.size()));
    if (!fresh) return it->second;
    const auto& v = graph_.value(value);
    BufferInfo b;
    b.name = v.name.empty() ? "%" + std::to_string(value.index) : v.name;
    b.dtype = v.type.dtype;
    b.shape = v.type.shape;
    if (const Tensor* t = graph_.constant(value)) {
      b.kind = BufferInfo::Kind::Constant;
      b.constant = static_cast<int>(exe_->constants.size());
      exe_->constants.push_back({b.name, *t});
    } else if (!v.producer.valid()) {
      b.kind = BufferInfo::Kind::Input;
      b.shape = graph_.declared_shape(value); // the call binds declared sizes; steps use the simplified ones
    } else if (output_values_.count(value)) {
      b.kind = BufferInfo::Kind::Output;
    }
    exe_->buffers.push_back(std::move(b));
    return it->second;
  }

  // A buffer that has the type of the value: an alias is copied.
  BufferId typed_buffer(ValueId value) {
    const BufferId bytes = buffer(value);
    if (bytes < 0 || memory_of(value) == value) return bytes;
    auto copy = static_cast<BufferId>(exe_->buffers.size());
    BufferInfo b;
    b.name = exe_->buffers[static_cast<size_t>(bytes)].name + " as " + graph_.type(value).str();
    b.dtype = graph_.type(value).dtype;
    b.shape = graph_.type(value).shape;
    exe_->buffers.push_back(std::move(b));
    copy_step("copy " + exe_->buffers.back().name, bytes, copy);
    return copy;
  }

  void copy_step(std::string name, BufferId from, BufferId to) {
    const BufferInfo& b = exe_->buffers[static_cast<size_t>(to)];
    const SymExpr bytes = fusion::byte_count(b.dtype, product(b.shape)) * 2;
    exe_->steps.emplace_back(CopyStep{std::move(name), from, to, bytes});
  }

  KernelLaunch launch(const std::string& name, const GeneratedKernel& kernel, const LaunchDomain& domain = {}) {
    return contracted(kernel.launch(name, [this](ValueId v) { return buffer(v); }), kernel.general(), domain);
  }
  // Adds the contracts of the launch and its alternatives, which have the same buffers.
  KernelLaunch contracted(KernelLaunch l, const ScheduledKernel& kernel, const LaunchDomain& domain) {
    add_contract(l, graph_, kernel, domain);
    for (auto& a : l.alternatives) add_contract(a, graph_, kernel, domain);
    return l;
  }
  // True if the kernel reads each element of `from` before it writes that element of `to`.
  static bool may_run_in_place(const ScheduledKernel& k, ValueId from, ValueId to) {
    for (size_t w = 0; w < k.may_overwrite.size(); ++w)
      for (int input : k.may_overwrite[w])
        if (k.buffers[w] == to && k.buffers[static_cast<size_t>(input)] == from) return true;
    return false;
  }
  // An epilogue in place: it reads the raw result from the buffer of the final result.
  KernelLaunch launch_in_place(const std::string& name, const GeneratedKernel& kernel, ValueId raw, ValueId final) {
    auto l = kernel.launch(name, [=, this](ValueId v) { return buffer(v == raw ? final : v); });
    return contracted(std::move(l), kernel.general(), {});
  }

  LibraryEpilogue fused(const FixedEpilogue& from) {
    LibraryEpilogue to;
    to.alpha = from.alpha;
    if (from.bias) to.bias = operand(*from.bias);
    to.bias_dim = from.bias_dim;
    if (from.residual) to.residual = operand(*from.residual);
    switch (from.activation) {
    case FixedEpilogue::Activation::None: break;
    case FixedEpilogue::Activation::Relu: to.activation = LibraryEpilogue::Activation::Relu; break;
    case FixedEpilogue::Activation::Clip: to.activation = LibraryEpilogue::Activation::Clip; break;
    case FixedEpilogue::Activation::GeluTanh: to.activation = LibraryEpilogue::Activation::GeluTanh; break;
    case FixedEpilogue::Activation::GeluErf: to.activation = LibraryEpilogue::Activation::GeluErf; break;
    case FixedEpilogue::Activation::Sigmoid: to.activation = LibraryEpilogue::Activation::Sigmoid; break;
    case FixedEpilogue::Activation::Silu: to.activation = LibraryEpilogue::Activation::Silu; break;
    case FixedEpilogue::Activation::Tanh: to.activation = LibraryEpilogue::Activation::Tanh; break;
    }
    to.clip_low = from.clip_low;
    to.clip_high = from.clip_high;
    return to;
  }

  StridedOperand operand(const OperandView& v) { return {buffer(v.value), v.shape, v.strides, v.offset}; }

  // A group's own step is its last one; copies that prepare it come before.
  Status step(const GroupCode& code) {
    const Group& group = *code.group;
    const size_t before = exe_->steps.size();
    failure_point("step");
    TESSERA_TRY(steps_of(group, code));
    if (exe_->steps.size() == before) return {};
    const SymExpr bytes = graph_.env().simplify(group.bytes_read + group.bytes_written);
    std::visit([&](auto& made) { made.bytes = bytes; }, exe_->steps.back());
    return {};
  }

  Status steps_of(const Group& group, const GroupCode& code) {
    switch (group.kind) {
    case Group::Kind::Own:
    case Group::Kind::Kernel:
      for (const auto& [from, to] : code.kernel->general().begins_as) {
        if (buffer(from) == buffer(to)) continue;
        copy_step("copy of " + group.name, buffer(from), buffer(to));
        exe_->buffers[static_cast<size_t>(buffer(to))].in_place_of = buffer(from);
      }
      exe_->steps.emplace_back(launch(group.name, *code.kernel));
      in_place(code.kernel->general());
      return {};
    case Group::Kind::Library: return library(group, code);
    case Group::Kind::Attention: return attention(group);
    case Group::Kind::Host: return host(group);
    case Group::Kind::Control: return control(group, *code.control);
    case Group::Kind::Alias: return {}; // of an output, the output loop makes a copy
    }
    return {};
  }

  // The schedule gives the inputs whose memory a written buffer may reuse; whether such an input is dead is decided
  // when lifetimes are known. No input is reused by two outputs.
  void in_place(const ScheduledKernel& k) {
    std::set<int> taken;
    for (size_t w = 0; w < k.may_overwrite.size(); ++w)
      for (int input : k.may_overwrite[w]) {
        auto from = k.buffers[static_cast<size_t>(input)], to = k.buffers[w];
        if (graph_.type(from).shape != graph_.type(to).shape || !taken.insert(input).second) continue;
        exe_->buffers[static_cast<size_t>(buffer(to))].in_place_of = buffer(from);
        break;
      }
  }

  Status library(const Group& group, const GroupCode& code) {
    const auto& call = group.call;
    const auto& attributes = graph_.node(call.node).attributes;
    LibraryStep step;
    step.name = group.name;
    auto result = operand(call.fixed ? call.fixed->result : call.result);
    std::optional<LibraryEpilogue> by_library;
    if (call.fixed) by_library = fused(*call.fixed);
    std::optional<EpilogueKernel> epilogue = epilogue_of(call, group.name + ".epilogue", code);
    if (call.kind == LibraryCall::Kind::Matmul) {
      step.call = MatmulCall{operand(call.operands[0]),   operand(call.operands[1]), result,
                             std::move(epilogue),         std::move(by_library),     call.scale,
                             attributes.i("tf32", 0) != 0};
    } else if (call.kind == LibraryCall::Kind::Conv) {
      ConvCall c;
      c.x = operand(call.operands[0]);
      c.w = operand(call.operands[1]);
      c.y = result;
      c.strides = attributes.ints("strides");
      c.pads_begin = attributes.ints("pads_begin");
      c.pads_end = attributes.ints("pads_end");
      c.dilations = attributes.ints("dilations");
      c.groups = attributes.i("groups", 1);
      c.transposed = ops::is_transposed(graph_.node(call.node));
      c.output_padding = attributes.ints("output_padding");
      c.epilogue = std::move(epilogue);
      c.fused = std::move(by_library);
      c.tf32 = attributes.i("tf32", 0) != 0;
      step.call = std::move(c);
    } else {
      PoolCall c;
      auto mode = attributes.s("mode");
      c.kind = mode == "max"       ? PoolCall::Kind::Max
               : mode == "average" ? PoolCall::Kind::Average
                                   : PoolCall::Kind::AverageIncludePad;
      c.x = operand(call.operands[0]);
      c.y = result;
      c.kernel = attributes.ints("kernel");
      c.strides = attributes.ints("strides");
      c.pads_begin = attributes.ints("pads_begin");
      c.pads_end = attributes.ints("pads_end");
      c.dilations = attributes.ints("dilations");
      c.epilogue = std::move(epilogue);
      step.call = std::move(c);
    }
    exe_->steps.emplace_back(std::move(step));
    return {};
  }

  // The kernel of a library call's epilogue. A fixed epilogue needs it only for sizes that the library refuses, and only
  // where it can run in place.
  std::optional<EpilogueKernel> epilogue_of(const LibraryCall& call, const std::string& name, const GroupCode& code) {
    if (code.epilogue == nullptr) return std::nullopt;
    const auto& [nest, begin, count] = *code.epilogue;
    if (!call.fixed) {
      EpilogueKernel out{launch(name, *code.kernel, {begin, count, &*call.epilogue_nest}), begin, count};
      in_place(code.kernel->general());
      return out;
    }
    const ValueId raw = call.result.value, final = call.fixed->result.value;
    if (!may_run_in_place(code.kernel->general(), raw, final)) return std::nullopt;
    return EpilogueKernel{launch_in_place(name, *code.kernel, raw, final), begin, count};
  }

  // The type of a value that is a List.
  [[nodiscard]] std::string list_text(ValueId v) const {
    const auto& items = graph_.type(v).items;
    return items ? items->str() : "";
  }

  // The steps of the fallback follow; they are skipped if the library accepts the call.
  Status attention(const Group& group) {
    const auto& call = group.attention;
    if (!call.fixed) return {};
    FusedAttentionCall c{operand(call.q),   operand(call.k), operand(call.v), operand(call.out), call.fixed->scale, {},
                         call.fixed->causal};
    if (call.fixed->bias) c.bias = operand(*call.fixed->bias);
    LibraryStep step{group.name, std::move(c), static_cast<int>(group.otherwise.size())};
    exe_->steps.emplace_back(std::move(step));
    return {};
  }

  Status host(const Group& group) {
    const auto& node = graph_.node(group.node);
    HostStep step;
    step.name = node.location.node.empty() ? group.name : node.location.node;
    step.op = std::string(node.op->name);
    step.reason = group.host_reason;
    for (auto v : node.operands) step.inputs.push_back(typed_buffer(v));
    for (size_t r = 0; r < node.results.size(); ++r) {
      auto v = node.results[r];
      step.outputs.push_back(buffer(v));
      by_host_.insert(buffer(v));
    }
    define(node, step.defines);
    auto graph = in_.graph;
    auto id = group.node;
    step.run = [graph, id](const std::vector<Tensor>& operands, const std::unordered_map<uint64_t, int64_t>& symbols) {
      return evaluate_node(*graph, graph->node(id), operands, symbols);
    };
    step.payload = host_payload(graph_, node);
    exe_->steps.emplace_back(std::move(step));
    const auto* structured = node.op->structured();
    if (!structured || (structured->kind != Structured::Read && structured->kind != Structured::Seed))
      ++exe_->host_steps;
    return {};
  }

  // Sizes that only running the node defines, and nothing before.
  void define(const Node& node, std::vector<StepDefines>& defines) {
    for (const DefinedSize& d : defined_sizes(graph_, node))
      if (bound_.insert(d.symbol.symbol_id()).second) {
        defines.push_back({d.symbol, d.result, d.dim, d.element});
        late_.insert(d.symbol.symbol_id());
      }
  }

  // A scalar that a step reads: a number made of sizes where its contents are known, else the buffer.
  void scalar(ValueId v, std::optional<SymExpr>& known, BufferId& computed) {
    const auto& contents = graph_.value(v).contents;
    if (contents && contents->size() == 1)
      known = graph_.env().simplify(contents->front());
    else
      computed = buffer(v);
  }

  Status control(const Group& group, const ControlCode& code) {
    using Source = BodyArgument::Source;
    const Node& node = graph_.node(group.node);
    const ops::ControlForm& form = code.form;
    auto operand = [&](int i) {
      return static_cast<size_t>(i) < node.operands.size() ? node.operands[static_cast<size_t>(i)] : ValueId{};
    };
    ControlStep step;
    step.name = node.location.node.empty() ? group.name : node.location.node;
    step.op = std::string(node.op->name);
    if (form.kind == ops::ControlForm::Kind::If) {
      step.kind = ControlStep::Kind::If;
      scalar(operand(0), step.decided, step.condition);
      step.reason = step.decided ? "its condition is over sizes" : "its condition is computed";
    } else {
      step.kind = ControlStep::Kind::Loop;
      step.continues = code.continues;
      if (form.kind == ops::ControlForm::Kind::Scan) {
        step.trip_count = graph_.type(operand(form.carried)).shape[0];
      } else {
        if (operand(0).valid()) scalar(operand(0), step.trip_count, step.trips);
        if (operand(1).valid()) scalar(operand(1), step.decided, step.condition);
      }
      step.reason = step.continues    ? "a condition that it computes ends it"
                    : step.trip_count ? "it runs " + step.trip_count->str() + " times"
                                      : "how often it runs is computed";
      for (int k = 0; k < form.carried; ++k) step.initial.push_back(buffer(operand(form.first_carried + k)));
      step.reverse = form.reverse_out;
    }
    for (size_t b = 0; b < code.bodies.size(); ++b) {
      ControlBody body{code.bodies[b].compiled->executable, {}};
      exe_->host_steps += body.executable->host_steps;
      for (const BodyCode::Input& input : code.bodies[b].inputs) {
        BodyArgument a;
        const int k = input.input, first_slice = form.before + form.carried;
        if (k < 0) {
          a.source = Source::Size;
          a.size = input.size;
        } else if (k < form.before) {
          a.source = k == 0 ? Source::Iteration : Source::Condition;
        } else if (k < first_slice) {
          a.source = Source::Carried;
          a.index = k - form.before;
        } else if (k < first_slice + form.scanned) {
          a.source = Source::Slice;
          a.buffer = buffer(operand(form.first_carried + k - form.before));
          a.reverse = form.reverse_in[static_cast<size_t>(k - first_slice)];
        } else {
          a.buffer = buffer(operand(form.bodies[b].first_capture + k - first_slice - form.scanned));
        }
        body.arguments.push_back(std::move(a));
      }
      step.bodies.push_back(std::move(body));
    }
    const auto& outputs = form.bodies[0].graph->outputs();
    for (size_t r = 0; r < outputs.size() - static_cast<size_t>(form.conditions()); ++r)
      step.outputs.push_back(r < node.results.size() ? buffer(node.results[r]) : -1);
    define(node, step.defines);
    exe_->steps.emplace_back(std::move(step));
    return {};
  }

  void lifetimes() {
    int last = static_cast<int>(exe_->steps.size());
    for (auto& b : exe_->buffers) {
      b.first_step = b.kind == BufferInfo::Kind::Input || b.kind == BufferInfo::Kind::Constant ? 0 : last;
      b.last_step = b.kind == BufferInfo::Kind::Temporary ? -1 : last;
      for (const auto& d : b.shape)
        for (const auto& s : d.symbols()) b.dynamic = b.dynamic || late_.count(s.symbol_id());
    }
    for (int s = 0; s < last; ++s) {
      auto use = [&](BufferId id) {
        if (id < 0) return;
        auto& b = exe_->buffers[static_cast<size_t>(id)];
        b.first_step = std::min(b.first_step, s);
        if (b.kind == BufferInfo::Kind::Temporary) b.last_step = std::max(b.last_step, s);
      };
      auto buffers = buffers_of(exe_->steps[static_cast<size_t>(s)]);
      for (const auto* ids : {&buffers.read, &buffers.written})
        for (auto id : *ids) use(id);
    }
    for (auto& b : exe_->buffers) {
      if (b.last_step < 0) {
        b.first_step = 0;
        b.last_step = -1;
      } // it has no users
      if (b.in_place_of < 0) continue;
      const auto& from = exe_->buffers[static_cast<size_t>(b.in_place_of)];
      if (from.kind != BufferInfo::Kind::Temporary || from.last_step != b.first_step || from.dynamic != b.dynamic)
        b.in_place_of = -1;
    }
  }

  const BuildInput& in_;
  Graph& graph_;
  std::shared_ptr<Executable> exe_;
  std::map<ValueId, BufferId> by_value_;
  std::map<ValueId, ValueId> begun_; // what a kernel changes in place, and its result, whose memory it has
  std::set<ValueId> output_values_, given_;
  std::set<BufferId> by_host_; // written by steps of the host
  std::unordered_set<uint64_t> bound_, late_;
};

} // namespace

Result<std::shared_ptr<Executable>> build_executable(const BuildInput& input) { return Builder(input).run(); }

} // namespace tessera
