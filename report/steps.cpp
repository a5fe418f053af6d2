// Steps of the executable, in execution order: what each computes, reads and writes, how, and what it takes.
#include "codegen/compilation/routes.h"
#include "codegen/driver/bodies.h"
#include "codegen/driver/planned_operators.h"
#include "report/price.h"
#include "runtime/variant.h"
#include <algorithm>
#include <cmath>
#include <set>

namespace tessera::report {

namespace {

std::string_view kind_name(const StepOf& step, const Graph& graph) {
  if (!step.group) return "copy";
  switch (step.group->kind) {
  case Group::Kind::Kernel: return "kernel";
  case Group::Kind::Library: return "library";
  case Group::Kind::Attention: return "attention";
  case Group::Kind::Own: return "separate";
  case Group::Kind::Control: return "control";
  case Group::Kind::Alias: return "copy";
  case Group::Kind::Host: break;
  }
  // Integers that steer sizes, and seeds: the host reads or draws them; no operator runs there.
  const StructuredOp* structured = graph.node(step.group->node).op->structured();
  const bool read = structured && (structured->kind == Structured::Read || structured->kind == Structured::Seed);
  return read ? "read" : "host";
}

std::string_view name(LibraryCall::Kind kind) {
  switch (kind) {
  case LibraryCall::Kind::Matmul: return "matmul";
  case LibraryCall::Kind::Conv: return "convolution";
  case LibraryCall::Kind::Pool: return "pooling";
  }
  return "";
}

Json operand_json(const Context& x, const OperandView& o) {
  return {{"name", x.name(o.value)}, {"shape", str(o.shape)}};
}

void add_call(Context& x, const LibraryCall& call, Json& j) {
  j["library_call"] = name(call.kind);
  j["operands"] = Json::array();
  for (const auto& o : call.operands) j["operands"].push_back(operand_json(x, o));
  j["result"] = str(call.result.shape);
  if (x.graph.node(call.node).attributes.i("tf32", 0) != 0) j["tf32"] = true; // f32 operands are rounded to TF32
  // The operators that run on the result while it is in cache: all but the call's own.
  std::vector<NodeId> attached;
  const size_t own = x.operators.of(call.node);
  for (NodeId id : call.sources)
    if (id != call.node && x.operators.of(id) != own) attached.push_back(id);
  j["epilogue"] = x.ids(attached);
}

void add_attention(Context& x, const AttentionCall& call, Json& j) {
  j["library_call"] = "attention";
  j["operands"] = Json::array();
  for (const auto* o : {&call.q, &call.k, &call.v}) j["operands"].push_back(operand_json(x, *o));
  j["result"] = str(call.out.shape);
  j["epilogue"] = Json::array();
  if (!call.fixed) return;
  j["scale"] = call.fixed->scale;
  j["causal"] = call.fixed->causal;
  if (call.fixed->bias) j["operands"].push_back(operand_json(x, *call.fixed->bias));
}

Json schedule_json(const Schedule& s, const std::string& why, const PredictedTime& planned) {
  Json j{{"kind", name(s.kind)}, {"config", fields(s)}, {"why", why}};
  if (s.tile.columns > 0 && s.tile.rows > 0) j["tile"] = {s.tile.rows, s.tile.columns};
  if (planned.terms.empty()) return j;
  j["planned_us"] = planned.us; // at the sizes for which it was chosen
  j["planned_bound"] = planned.bound();
  return j;
}

// Adds the device's resources that the chosen launch takes.
void add_resources(const Context& x, const KernelLaunch& launch, const StepPrice& price, Json& s) {
  s["symbol"] = launch.symbol;
  s["launch"] = print(launch);
  if (auto grid = x.value(launch.grid)) s["blocks"] = *grid;
  if (launch.threads == 0) return;
  const int threads = launch.threads;
  s["warps"] = threads / 32;
  s["shared_bytes"] = launch.shared_bytes;
  if (price.kernel && price.kernel->resident > 0)
    s["occupancy"] = std::min(1.0, price.kernel->resident * threads / static_cast<double>(x.device.resident_threads));
}

void add_code(const Context& x, const StepOf& step, const StepPrice& price, Json& j) {
  if (step.kernel < 0) return;
  const KernelReport& k = x.c.report.kernels[static_cast<size_t>(step.kernel)];
  const Step& run = x.exe.steps[static_cast<size_t>(step.index)];
  const auto* launch = std::get_if<KernelLaunch>(&run);
  const size_t at = launch ? chosen_launch(x, *launch).value_or(k.alternatives.size()) : k.alternatives.size();
  Json before = Json::array(), chosen;
  for (size_t i = 0; i <= k.alternatives.size(); ++i) {
    const bool last = i == k.alternatives.size();
    Json s = last ? schedule_json(k.schedule, k.why, k.predicted)
                  : schedule_json(k.alternatives[i].schedule, k.alternatives[i].why, k.alternatives[i].predicted);
    if (!k.alternatives.empty()) s["when"] = last ? "otherwise" : k.alternatives[i].when;
    const int registers = last ? k.registers : k.alternatives[i].registers;
    if (registers >= 0) s["registers"] = registers;
    if (last && k.spill_bytes >= 0) s["spill_bytes"] = k.spill_bytes;
    if (launch && (last || i < launch->alternatives.size()))
      add_resources(x, last ? *launch : launch->alternatives[i], price, s);
    (i == at ? chosen : before.emplace_back()) = std::move(s);
  }
  j["schedule"] = std::move(chosen); // that these sizes take
  if (!before.empty()) j["other_schedules"] = std::move(before);
  if (!k.tuned.empty()) j["tuned"] = k.tuned;
  j["from_cache"] = k.from_cache;
  j["compile_ms"] = k.compile_ms;
  if (!k.tile_text.empty()) j["tile"] = k.tile_text;
  if (!k.llvm_text.empty()) j["llvm"] = k.llvm_text;
  if (!k.ptx_text.empty()) j["ptx"] = k.ptx_text;
}

std::string iteration(const Group& g) {
  if (g.kind == Group::Kind::Own) return "a separate kernel";
  if (!g.nest.has_reduction()) return "pointwise (" + str(g.nest.extents(AxisRole::Outer)) + ")";
  return "rows (" + str(g.nest.extents(AxisRole::Outer)) + ") x (" + str(g.nest.extents(AxisRole::Row)) + ")";
}

std::vector<NodeId> operators_of(const Group& g) {
  return g.kind == Group::Kind::Host || g.kind == Group::Kind::Control ? std::vector{g.node} : nodes_of(g);
}

Json copy_json(const Context& x, const CopyStep& copy) {
  const BufferInfo &from = x.exe.buffers[static_cast<size_t>(copy.source)],
                   &to = x.exe.buffers[static_cast<size_t>(copy.target)];
  const SymExpr half = floordiv(copy.bytes, 2);
  Json j;
  j["reads"] = {{{"name", from.name}, {"type", TensorType{from.dtype, from.shape}.str()}}};
  j["writes"] = {{{"name", to.name}, {"type", TensorType{to.dtype, to.shape}.str()}}};
  j["bytes"] = j["bytes_unfused"] = x.sized(copy.bytes);
  j["bytes_read"] = j["bytes_written"] = x.sized(half);
  j["flops"] = x.sized(0);
  return j;
}

void add_group(Context& x, const Group& g, Json& j) {
  switch (g.kind) {
  case Group::Kind::Library: add_call(x, g.call, j); break;
  case Group::Kind::Attention: add_attention(x, g.attention, j); break;
  case Group::Kind::Kernel: j["iteration"] = iteration(g); break;
  case Group::Kind::Own:
    j["iteration"] = iteration(g);
    if (!g.node.valid()) add_attention(x, g.attention, j);
    break;
  default: break;
  }
  j["reads"] = x.names(g.reads);
  j["writes"] = x.names(g.writes);
  j["bytes"] = x.sized(g.bytes_read + g.bytes_written);
  j["bytes_read"] = x.sized(g.bytes_read);
  j["bytes_written"] = x.sized(g.bytes_written);
  j["bytes_unfused"] = x.sized(g.bytes_unfused);
  j["flops"] = x.sized(flops_of(g));
  if (x.options.nests && g.kind == Group::Kind::Kernel) j["nest"] = print(x.graph, g.nest);
}

// The choice between a library's call and a contraction for a product of a step; null where the device has none.
const std::pair<const NodeId, ContractionChoice>* contraction_of(const Context& x, const Group& g) {
  const auto& all = x.c.report.contractions;
  const auto& sources = g.kind == Group::Kind::Library ? g.call.sources : g.nest.sources;
  for (const NodeId id : sources)
    if (const auto found = all.find(id); found != all.end()) return &*found;
  return nullptr;
}

// The ways in which the device could run the structured operator of a step, best first: those before the taken one were
// refused, or predicted to take longer with the kernels around them, those behind it not asked.
void add_routes(const Context& x, const Group& g, const StepPrice& price, Json& j) {
  const DeviceRoutes* table = x.c.report.routes.get();
  if (!table) return;
  Json out = Json::array();
  bool taken = false;
  auto add = [&](std::string_view by, RouteKind kind, bool accepted, const std::string& why_not) {
    Json r{{"by", by}, {"kind", name(kind)}, {"taken", accepted && !taken}};
    if (!accepted) r["why_not"] = why_not;
    if (accepted && !taken && price.time) r["us"] = price.time->us;
    taken = taken || accepted;
    out.push_back(std::move(r));
  };
  std::string why;
  if (g.kind == Group::Kind::Attention || (g.kind == Group::Kind::Own && !g.node.valid())) {
    for (const AttentionRoute& r : table->attention) {
      why.clear();
      add(r.by, r.kind, r.accepts(x.graph, g.attention, &why), why);
    }
  } else {
    const auto* contraction = contraction_of(x, g);
    const bool contracted = contraction && contraction->second.taken;
    const NodeId id = contracted ? contraction->first : g.kind == Group::Kind::Library ? g.call.node : g.node;
    if (!id.valid()) return;
    const Node& node = x.graph.node(id);
    if (!node.op->structured() || node.operands.empty() || !node.operands[0].valid()) return;
    for (const Route& r : table->of(node.op->structured()->kind)) {
      why.clear();
      const bool library = r.kind == RouteKind::Library;
      bool accepted = takes(r, x.graph, node, &why) &&
                      (g.kind != Group::Kind::Library || !r.accepts_call || r.accepts_call(x.graph, g.call, &why));
      const bool longer = accepted && contraction && library == contracted;
      if (longer) {
        accepted = false;
        why = library                               ? "predicted to take longer with the kernels around it"
              : contraction->second.refusal.empty() ? "predicted to take longer than the call and the kernels around it"
                                                    : contraction->second.refusal;
      }
      add(r.by, r.kind, accepted, why);
      if (!longer) continue;
      const double us = library ? contraction->second.library_us : contraction->second.contraction_us;
      if (std::isfinite(us)) out.back()["us"] = us;
    }
    if (out.empty()) return;
    if (g.kind == Group::Kind::Host) add("reference on the host", RouteKind::Reference, !taken, "");
  }
  j["routes"] = std::move(out);
}

// An If or a loop: its bodies' steps and edges join those of the model under its name.
void add_bodies(const Context& x, const StepOf& step, const std::string& id, Json& j, Json& all, Json& steps) {
  const auto& control = std::get<ControlStep>(x.exe.steps[static_cast<size_t>(step.index)]);
  const ControlCode& code = *x.c.bodies.at(step.group_index);
  j["reason"] = control.reason;
  j["bodies"] = Json::array();
  const bool loop = control.kind == ControlStep::Kind::Loop;
  // A loop of a known number of iterations; an If runs its more expensive branch.
  std::optional<double> trips = loop ? std::nullopt : std::optional(1.0);
  if (loop && control.trip_count) trips = x.value(*control.trip_count);
  ReportOptions options = x.options;
  options.sizes = x.named;
  double each = 0, each_unfused = 0;
  size_t begin = 0; // of the steps of the more expensive branch
  for (size_t b = 0; b < code.bodies.size(); ++b) {
    const std::string name = id + (loop ? ".body" : b == 0 ? ".then" : ".else");
    Json body = report_json(*code.bodies[b].compiled, {}, options);
    const size_t first = steps.size();
    auto prefix = [&](Json& text) { text = name + "." + text.get<std::string>(); };
    for (Json& s : body["steps"]) {
      prefix(s["id"]);
      for (const char* list : {"operators", "epilogue"})
        if (s.contains(list))
          for (Json& o : s[list]) prefix(o);
      if (s.contains("inside"))
        prefix(s["inside"]);
      else
        s["inside"] = id;
      const Json within = s.value("runs", Json(1.0));
      s["runs"] = trips && within.is_number() ? Json(*trips * within.get<double>()) : Json(nullptr);
      steps.push_back(std::move(s));
    }
    for (Json& o : body["operators"]) {
      prefix(o["id"]);
      for (Json& s : o["steps"]) prefix(s);
      all["operators"].push_back(std::move(o));
    }
    for (Json& e : body["edges"]) {
      for (const char* key : {"id", "producer", "consumer"}) prefix(e[key]);
      for (const char* key : {"producer_steps", "consumer_steps"})
        for (Json& s : e[key]) prefix(s);
      all["edges"].push_back(std::move(e));
    }
    for (Json& e : body["pairs"]) {
      for (const char* key : {"first", "second"}) prefix(e[key]);
      all["pairs"].push_back(std::move(e));
    }
    const auto total = [&](const char* name) {
      const Json& us = body["totals"][name];
      return us.is_number() ? us.get<double>() : 0;
    };
    const double us = total("predicted_us");
    if (b > 0) {
      const bool costs_more = us > each;
      for (size_t i = costs_more ? begin : first, end = costs_more ? first : steps.size(); i < end; ++i)
        steps[i]["runs"] = 0;
      if (costs_more) begin = first;
    }
    each = std::max(each, us);
    each_unfused = std::max(each_unfused, total("predicted_unfused_us"));
    j["bodies"].push_back({{"name", name}, {"totals", body["totals"]}});
  }
  if (trips) {
    const double us = *trips * (each + x.device.iteration_us);
    j["price"]["us"] = j["price"]["alone_us"] = us;
    j["price"]["unfused_us"] = std::max(us, *trips * (each_unfused + x.device.iteration_us));
    j["price"]["bound"] = "control flow";
    j["price"]["terms_us"] = {{"bodies", *trips * each}, {"iterations", *trips * x.device.iteration_us}};
  }
}

} // namespace

Json steps_json(Context& x, Json& all) {
  all["operators"] = all["edges"] = all["pairs"] = Json::array();
  Json steps = Json::array(), *attention = nullptr;
  const std::vector<std::string> ids = step_ids(x.exe);
  for (const StepOf& step : steps_of(x.c)) {
    const Step& run = x.exe.steps[static_cast<size_t>(step.index)];
    const std::string& id = ids[static_cast<size_t>(step.index)];
    Json j;
    j["id"] = id;
    j["index"] = step.index;
    j["kind"] = kind_name(step, x.graph);
    j["operators"] = step.group ? x.ids(operators_of(*step.group)) : Json::array();
    if (step.group)
      add_group(x, *step.group, j);
    else
      j.update(copy_json(x, std::get<CopyStep>(run)));
    const StepPrice price = price_of(x, step);
    j["price"] = price_json(x, step, price);
    if (step.group)
      for (NodeId n : operators_of(*step.group)) x.steps_of_node[n].push_back(id);
    j["launches"] = launches(step) ? 1 : 0;
    add_code(x, step, price, j);
    if (step.group) add_routes(x, *step.group, price, j);
    if (const auto* host = std::get_if<HostStep>(&run)) {
      j["reason"] = host->reason;
      j["defines"] = Json::array();
      for (const auto& d : host->defines) j["defines"].push_back(d.symbol.str());
    }
    if (step.otherwise && attention) {
      (*attention)["otherwise"].push_back(std::move(j));
      continue;
    }
    Json bodies = Json::array();
    if (step.group && step.group->kind == Group::Kind::Control) add_bodies(x, step, id, j, all, bodies);
    steps.push_back(std::move(j));
    attention = &steps.back();
    for (Json& b : bodies) steps.push_back(std::move(b)), attention = nullptr;
  }
  return steps;
}

} // namespace tessera::report
