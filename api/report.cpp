#include "api/report.h"
#include "codegen/driver/bodies.h"
#include "codegen/driver/planned_operators.h"
#include "runtime/variant.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera {

namespace {

using Json = nlohmann::ordered_json; // keys in the order in which they were written

// An operator of the source model, as people know it: several primitive nodes may come from one.
struct Source {
  std::string name, op;
  std::string module; // path of the module whose call it is; empty where the model does not say
  std::string line;   // of the user's program: "model.py:42"; empty where the model does not say
  bool operator==(const Source&) const = default;
};
Source source_of(const Graph& graph, NodeId id) {
  const Node& n = graph.node(id);
  std::string name = !n.location.node.empty() ? n.location.node : n.location.output;
  if (name.empty() && !n.results.empty() && n.results[0].valid()) name = graph.value(n.results[0]).name;
  if (name.empty()) name = std::string(n.op->name) + "#" + std::to_string(id.index);
  Source s{name, n.location.op.empty() ? std::string(n.op->name) : n.location.op, {}, n.location.source};
  // Programs that keep lines name a node "path.of.module.result".
  const std::string ending = "." + n.location.output;
  if (!s.line.empty() && name.ends_with(ending)) s.module = name.substr(0, name.size() - ending.size());
  return s;
}

Json source_json(const Source& s) {
  Json j{{"name", s.name}, {"op", s.op}};
  if (!s.module.empty()) j["module"] = s.module;
  if (!s.line.empty()) j["source"] = s.line;
  return j;
}

Json sources_json(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::vector<Source> seen;
  Json out = Json::array();
  for (NodeId id : nodes) {
    Source s = source_of(graph, id);
    if (std::find(seen.begin(), seen.end(), s) != seen.end()) continue;
    out.push_back(source_json(s));
    seen.push_back(std::move(s));
  }
  return out;
}

std::string value_name(const Graph& graph, ValueId v) {
  if (!v.valid()) return "";
  const auto& name = graph.value(v).name;
  return name.empty() ? "%" + std::to_string(v.index) : name;
}

Json names_json(const Graph& graph, const std::vector<ValueId>& values) {
  Json out = Json::array();
  for (ValueId v : values) out.push_back({{"name", value_name(graph, v)}, {"type", graph.type(v).str()}});
  return out;
}

// A number of bytes or operations, which follows from the sizes of a call.
Json sized(const SymExpr& e) { return {{"expression", e.str()}}; }

std::string_view kind_name(LibraryCall::Kind kind) {
  switch (kind) {
  case LibraryCall::Kind::Matmul: return "matmul";
  case LibraryCall::Kind::Conv: return "convolution";
  case LibraryCall::Kind::Pool: return "pooling";
  }
  return "";
}

Json call_json(const Graph& graph, const LibraryCall& call) {
  Json j;
  j["library_call"] = kind_name(call.kind);
  j["operands"] = Json::array();
  for (const auto& o : call.operands)
    j["operands"].push_back({{"name", value_name(graph, o.value)}, {"shape", str(o.shape)}});
  j["result"] = str(call.result.shape);
  if (graph.node(call.node).attributes.i("tf32", 0) != 0) j["tf32"] = true; // f32 operands are rounded to TF32
  // What runs on the result while it is in cache: every source but the call's own node.
  std::vector<NodeId> attached;
  Source own = source_of(graph, call.node);
  for (NodeId id : call.sources)
    if (id != call.node && !(source_of(graph, id) == own)) attached.push_back(id);
  j["epilogue"] = sources_json(graph, attached);
  return j;
}

Json attention_json(const Graph& graph, const AttentionCall& call) {
  Json j;
  j["library_call"] = "attention";
  j["operands"] = Json::array();
  for (const auto* o : {&call.q, &call.k, &call.v})
    j["operands"].push_back({{"name", value_name(graph, o->value)}, {"shape", str(o->shape)}});
  j["result"] = str(call.out.shape);
  j["epilogue"] = Json::array();
  if (!call.fixed) return j;
  j["scale"] = call.fixed->scale;
  j["causal"] = call.fixed->causal;
  if (call.fixed->bias) {
    j["bias"] = value_name(graph, call.fixed->bias->value);
    j["operands"].push_back({{"name", j["bias"]}, {"shape", str(call.fixed->bias->shape)}});
  }
  return j;
}
Json edges_json(const Graph& graph, const FusionPlan& plan, bool fused) {
  Json out = Json::array();
  for (const auto& e : plan.ledger) {
    const auto& why = info(e.reason);
    if (why.fused != fused || !e.producer.valid() || !e.consumer.valid()) continue;
    Source from = source_of(graph, e.producer), to = source_of(graph, e.consumer);
    Json j;
    j["code"] = why.code;
    j["reason"] = why.name;
    j["producer"] = from.name;
    j["producer_op"] = from.op;
    j["consumer"] = to.name;
    j["consumer_op"] = to.op;
    if (!from.line.empty()) j["producer_source"] = from.line;
    if (!to.line.empty()) j["consumer_source"] = to.line;
    j["value"] = value_name(graph, e.value);
    if (e.value.valid()) {
      const TensorType& type = graph.type(e.value);
      j["type"] = type.str();
      j["bytes"] = sized(floordiv(type.count() * info(type.dtype).bits + 7, 8));
    }
    if (fused) j["bytes_saved"] = sized(e.bytes_saved);
    if (!e.detail.empty()) j["detail"] = e.detail;
    out.push_back(std::move(j));
  }
  return out;
}

// Multiply-adds of products and convolutions, times two; of an attention those of its two products.
SymExpr library_flops(const FusionPlan& plan) {
  SymExpr total = 0;
  for (const Group* group : flat_groups(plan)) {
    const Group& g = *group;
    if (g.kind == Group::Kind::Own && !g.node.valid()) {
      const SymShape &q = g.attention.q.shape, &v = g.attention.v.shape;
      total += (product(q) + product(g.attention.out.shape)) * v[v.size() - 2] * 2;
      continue;
    }
    if (g.kind != Group::Kind::Library || g.call.kind == LibraryCall::Kind::Pool || g.call.operands.size() < 2)
      continue;
    SymExpr per_result = 1;
    const SymShape& b = g.call.operands[1].shape;
    if (g.call.kind == LibraryCall::Kind::Matmul && b.size() >= 2)
      per_result = b[b.size() - 2];
    else
      for (size_t d = 1; d < b.size(); ++d) per_result *= b[d]; // convolution: [out, in / groups, kernel ...]
    total += product(g.call.result.shape) * per_result * 2;
  }
  return total;
}

Json report_json(const Compiled& c, const ModelInfo& model, const std::string& path, const std::string& label);

// An If or a loop: its bodies' kernels, calls and copies join those of the model under its name.
Json control_json(const ControlCode& code, const Group& group, const ControlStep& step, Json& all) {
  Json bodies = Json::array();
  for (size_t b = 0; b < code.bodies.size(); ++b) {
    const std::string name = group.name + (step.kind == ControlStep::Kind::Loop ? ".body" : b == 0 ? ".then" : ".else");
    Json body = report_json(*code.bodies[b].compiled, {}, "", "");
    for (const char* which : {"kernels", "library_calls", "host_operators", "reads", "control_flow", "copies"})
      for (Json& part : body[which]) {
        part["name"] = name + "." + part["name"].get<std::string>();
        all[which].push_back(std::move(part));
      }
    bodies.push_back({{"name", name}, {"totals", body["totals"]}, {"breaks", body["breaks"]}});
  }
  return bodies;
}
} // namespace

std::string report_text(const Compiled& c, const ModelInfo& model, const std::string& path, const std::string& label) {
  // Names are the model's: bytes that are no UTF-8 are replaced.
  return report_json(c, model, path, label).dump(-1, ' ', false, Json::error_handler_t::replace);
}

namespace {
Json report_json(const Compiled& c, const ModelInfo& model, const std::string& path, const std::string& label) {
  const Graph& graph = *c.graph;
  Json j;
  j["model"] = path;
  j["producer"] = model.producer;
  j["format"] = model.format;
  j["format_version"] = model.version;
  j["opsets"] = Json::object();
  for (const auto& [domain, version] : model.opsets) j["opsets"][domain] = version;
  j["variant"] = label;
  j["target"] = c.executable->target;
  j["figures"] = c.report.figures;
  j["sizes"] = Json::object();
  for (const auto& [which, bindings] :
       {std::pair("inputs", &c.executable->inputs), std::pair("outputs", &c.executable->outputs)}) {
    j[which] = Json::array();
    for (const Binding& io : *bindings) {
      const BufferInfo& b = c.executable->buffers[static_cast<size_t>(io.buffer)];
      j[which].push_back({{"name", io.name}, {"type", TensorType{b.dtype, b.shape}.str()}});
    }
  }

  j["kernels"] = j["library_calls"] = j["host_operators"] = j["reads"] = j["control_flow"] = j["copies"] =
      Json::array();
  SymExpr fused_bytes = 0, unfused_bytes = 0;
  size_t kernel_index = 0;
  size_t inside = 0; // groups that are steps of the last attention
  const auto groups = flat_groups(c.report.plan);
  for (size_t index = 0; index < groups.size(); ++index) {
    const Group& g = *groups[index];
    bool kernel = g.kind == Group::Kind::Kernel, library = g.kind == Group::Kind::Library,
         attention = g.kind == Group::Kind::Attention, own = g.kind == Group::Kind::Own;
    if (inside > 0) { // not a line of its own, but its code is one of the reports
      --inside;
      if (kernel || own || (library && g.call.epilogue_nest)) ++kernel_index;
      continue;
    }
    inside = g.otherwise.size();
    Json out;
    out["name"] = g.name;
    out["operators"] = sources_json(graph, nodes_of(g));
    if (kernel) {
      std::string shape = "pointwise (" + str(g.nest.extents(AxisRole::Outer)) + ")";
      if (g.nest.has_reduction())
        shape = "rows (" + str(g.nest.extents(AxisRole::Outer)) + ") x (" + str(g.nest.extents(AxisRole::Row)) + ")";
      out["iteration"] = shape;
    }
    if (library) out.update(call_json(graph, g.call));
    if (own) out["iteration"] = "a separate kernel";
    if (attention) out.update(attention_json(graph, g.attention));
    bool has_code = kernel || own || (library && g.call.epilogue_nest);
    if (has_code && kernel_index < c.report.kernels.size()) {
      const auto& k = c.report.kernels[kernel_index++];
      auto described = [](const Schedule& s, const std::string& why, const PredictedTime& time) {
        Json d{{"kind", name(s.kind)}, {"config", fields(s)}, {"why", why}};
        if (time.terms.empty()) return d;
        d["predicted_us"] = time.us;
        d["bound"] = time.bound();
        for (const auto& [term, us] : time.terms) d["terms_us"][term] = us;
        return d;
      };
      out[kernel || own ? "schedule" : "epilogue_schedule"] = described(k.schedule, k.why, k.predicted);
      for (const auto& a : k.alternatives) {
        Json before = described(a.schedule, a.why, a.predicted);
        before["when"] = a.when;
        out[kernel || own ? "schedules_before" : "epilogue_schedules_before"].push_back(std::move(before));
      }
      if (!k.tuned.empty()) out["tuned"] = k.tuned;
      out["from_cache"] = k.from_cache;
      out["compile_ms"] = k.compile_ms;
      if (!k.tile_text.empty()) out["tile"] = k.tile_text;
    }
    if (g.kind == Group::Kind::Alias) {
      j["copies"].push_back({{"name", g.name}, {"of", names_json(graph, g.reads)}});
      continue;
    }
    out["reads"] = names_json(graph, g.reads);
    out["writes"] = names_json(graph, g.writes);
    out["bytes"] = sized(g.bytes_read + g.bytes_written);
    out["bytes_operator_by_operator"] = sized(g.bytes_unfused);
    fused_bytes += g.bytes_read + g.bytes_written;
    unfused_bytes += g.bytes_unfused;
    if (g.kind == Group::Kind::Host) {
      out["operators"] = sources_json(graph, {g.node});
      const std::string& node = graph.node(g.node).location.node;
      const std::string& name = node.empty() ? g.name : node; // of the step
      for (const Step& step : c.executable->steps)
        if (const auto* h = std::get_if<HostStep>(&step); h != nullptr && h->name == name) out["reason"] = h->reason;
    }
    const bool control = g.kind == Group::Kind::Control;
    if (control) {
      out["operators"] = sources_json(graph, {g.node});
      const std::string& node = graph.node(g.node).location.node;
      for (const Step& step : c.executable->steps)
        if (const auto* s = std::get_if<ControlStep>(&step); s && s->name == (node.empty() ? g.name : node)) {
          out["reason"] = s->reason;
          out["bodies"] = control_json(*c.bodies.at(index), g, *s, j);
          break;
        }
    }
    // Integers that steer sizes, and seeds: the host reads or draws them; no operator runs there.
    const StructuredOp* structured = g.node.valid() ? graph.node(g.node).op->structured() : nullptr;
    const bool is_read = structured && (structured->kind == Structured::Read || structured->kind == Structured::Seed);
    j[kernel || own          ? "kernels"
      : library || attention ? "library_calls"
      : control              ? "control_flow"
      : is_read              ? "reads"
                             : "host_operators"]
        .push_back(std::move(out));
  }

  j["not_fused"] = edges_json(graph, c.report.plan, false);
  j["fused"] = edges_json(graph, c.report.plan, true);

  // Pairs of kernels that might have been one.
  j["pairs"] = Json::array();
  for (const auto& e : c.report.plan.pairs) {
    const auto& why = info(e.reason);
    j["pairs"].push_back({{"code", why.code},
                          {"reason", why.name},
                          {"fused", why.fused},
                          {"first", source_of(graph, e.first).name},
                          {"second", source_of(graph, e.second).name},
                          {"detail", e.detail}});
  }

  // Breaks: what takes the model off the compiled path, apart from edges that merely stayed.
  Json data_dependent = Json::array();
  for (const Step& step : c.executable->steps) {
    const auto* control = std::get_if<ControlStep>(&step);
    const auto* host = std::get_if<HostStep>(&step);
    for (const auto& d : defines_of(step))
      data_dependent.push_back({{"symbol", d.symbol.str()},
                                {"defined_by", name_of(step)},
                                {"op", control ? control->op : host->op},
                                {"result", d.result},
                                {"dimension", d.dim}});
  }
  j["breaks"] = {{"host_operators", j["host_operators"].size()},
                 {"control_flow", j["control_flow"].size()},
                 {"data_dependent_sizes", data_dependent}};

  const FoldedConstants& constants = c.report.constants;
  j["constants"] = {{"computed", constants.values}, {"bytes", constants.bytes}, {"left", Json::array()}};
  for (const auto& l : constants.left)
    j["constants"]["left"].push_back({{"name", l.value}, {"op", l.op}, {"bytes", l.bytes}, {"reason", l.why}});

  j["guards"] = Json::array();
  for (const auto& g : graph.env().guards())
    j["guards"].push_back({{"condition", g.condition.str()},
                           {"class", g.cls == GuardClass::Required ? "required" : "assumed"},
                           {"reason", g.reason},
                           {"where", g.where.str()}});

  std::map<std::string, int> by_code;
  for (const char* which : {"fused", "not_fused"})
    for (const auto& e : j[which]) ++by_code[e["code"].get<std::string>()];
  j["edges_by_code"] = Json::array();
  for (int r = 0; r < static_cast<int>(FusionReason::Count_); ++r) {
    const auto& why = info(static_cast<FusionReason>(r));
    auto it = by_code.find(std::string(why.code));
    if (it == by_code.end()) continue;
    j["edges_by_code"].push_back({{"code", why.code},
                                  {"reason", why.name},
                                  {"fused", why.fused},
                                  {"count", it->second},
                                  {"summary", why.summary}});
    if (!why.alias.empty()) j["edges_by_code"].back()["alias"] = why.alias; // the reason's name in the version before
  }

  j["totals"] = {{"operators", c.report.source_nodes},
                 {"kernels", j["kernels"].size()},
                 {"library_calls", j["library_calls"].size()},
                 {"host_operators", j["host_operators"].size()},
                 {"control_flow", j["control_flow"].size()},
                 {"copies", j["copies"].size()},
                 {"edges_fused", j["fused"].size()},
                 {"edges_not_fused", j["not_fused"].size()},
                 {"bytes", sized(fused_bytes)},
                 {"bytes_operator_by_operator", sized(unfused_bytes)},
                 {"library_flops", sized(library_flops(c.report.plan))}};
  j["compile"] = {{"import_ms", c.report.import_ms},     {"passes_ms", c.report.passes_ms},
                  {"fusion_ms", c.report.fusion_ms},     {"constants_ms", constants.milliseconds},
                  {"codegen_ms", c.report.codegen_ms},   {"link_ms", c.report.link_ms},
                  {"cache_hits", c.report.cache_hits},   {"cache_misses", c.report.cache_misses},
                  {"warnings", c.report.device_warnings}};
  j["passes"] = Json::array();
  for (const auto& p : c.report.passes)
    j["passes"].push_back({{"name", p.name},
                           {"level", p.level},
                           {"changed", p.changed},
                           {"ms", p.milliseconds},
                           {"nodes_before", p.nodes_before},
                           {"nodes_after", p.nodes_after}});
  return j;
}
} // namespace

} // namespace tessera
