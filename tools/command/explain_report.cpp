#include "explain.h"
#include <algorithm>
#include <cmath>
#include <set>

namespace tessera::command {

namespace {

// An operator of the source model, as people know it: several primitive nodes may come from one.
struct Source {
  std::string name, op;
  bool operator==(const Source&) const = default;
};
Source source_of(const Graph& graph, NodeId id) {
  const Node& n = graph.node(id);
  std::string name = !n.location.node.empty() ? n.location.node : n.location.output;
  if (name.empty() && !n.results.empty() && n.results[0].valid()) name = graph.value(n.results[0]).name;
  if (name.empty()) name = std::string(n.op->name) + "#" + std::to_string(id.index);
  return {name, n.location.op.empty() ? std::string(n.op->name) : n.location.op};
}

Json sources_json(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::vector<Source> seen;
  Json out = Json::array();
  for (NodeId id : nodes) {
    Source s = source_of(graph, id);
    if (std::find(seen.begin(), seen.end(), s) != seen.end()) continue;
    out.push_back({{"name", s.name}, {"op", s.op}});
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

// A number of bytes: its expression, and its value at the sizes given.
Json bytes_json(const ShapeEnv& env, const Sizes& sizes, const SymExpr& e) {
  Json j;
  j["expression"] = e.str();
  if (auto v = evaluate(env, sizes, e))
    j["at_sizes"] = *v;
  else
    j["at_sizes"] = nullptr;
  return j;
}
double at_sizes(const Json& bytes) {
  return bytes["at_sizes"].is_null() ? std::nan("") : bytes["at_sizes"].get<double>();
}

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
std::vector<NodeId> nodes_of(const Group& g) {
  if (g.kind == Group::Kind::Kernel) return g.nest.sources;
  if (g.kind == Group::Kind::Library) return g.call.sources;
  if (g.kind == Group::Kind::Own) return g.node.valid() ? std::vector<NodeId>{g.node} : g.nest.sources;
  std::vector<NodeId> out;
  for (const auto& step : g.otherwise)
    for (NodeId id : nodes_of(step)) out.push_back(id);
  return out;
}

Json edges_json(const Graph& graph, const FusionPlan& plan, const Sizes& sizes, bool fused) {
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
    j["value"] = value_name(graph, e.value);
    if (e.value.valid()) {
      const TensorType& type = graph.type(e.value);
      j["type"] = type.str();
      j["bytes"] = bytes_json(graph.env(), sizes, floordiv(type.count() * info(type.dtype).bits + 7, 8));
    }
    if (fused) j["bytes_saved"] = bytes_json(graph.env(), sizes, e.bytes_saved);
    if (!e.detail.empty()) j["detail"] = e.detail;
    out.push_back(std::move(j));
  }
  return out;
}

} // namespace

Json explain_json(const Session& session, const SessionVariant& variant, const std::string& path, const Sizes& sizes) {
  const Compiled& c = variant.compiled;
  const Graph& graph = *c.graph;
  const ShapeEnv& env = graph.env();
  Json j;
  const auto& model = session.model_info();
  j["model"] = path;
  j["producer"] = model.producer;
  j["ir_version"] = model.ir_version;
  for (const auto& [domain, version] : model.opsets) j["opsets"][domain.empty() ? "ai.onnx" : domain] = version;
  j["variant"] = variant.label;
  j["target"] = c.executable->target;
  j["sizes"] = sizes;
  for (const char* which : {"inputs", "outputs"}) {
    j[which] = Json::array();
    for (const auto& io : std::string_view(which) == "inputs" ? session.inputs() : session.outputs())
      j[which].push_back({{"name", io.name}, {"type", TensorType{io.dtype, io.shape}.str()}});
  }

  j["kernels"] = j["library_calls"] = j["host_operators"] = j["copies"] = Json::array();
  SymExpr fused_bytes = 0, unfused_bytes = 0;
  size_t kernel_index = 0;
  size_t inside = 0; // groups that are steps of the last attention
  for (const Group* group : flat_groups(c.report.plan)) {
    const Group& g = *group;
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
      std::string shape = "points (" + str(g.nest.extents(AxisRole::Outer)) + ")";
      if (g.nest.has_reduction())
        shape = "rows (" + str(g.nest.extents(AxisRole::Outer)) + ") x (" + str(g.nest.extents(AxisRole::Row)) + ")";
      out["iteration"] = shape;
    }
    if (library) out.update(call_json(graph, g.call));
    if (own) out["iteration"] = "a kernel of its own";
    if (attention) out.update(attention_json(graph, g.attention));
    bool has_code = kernel || own || (library && g.call.epilogue_nest);
    if (has_code && kernel_index < c.report.kernels.size()) {
      const auto& k = c.report.kernels[kernel_index++];
      auto described = [](const Schedule& s) {
        return Json{{"kind", name(s.kind)}, {"config", s.config}, {"why", s.why}};
      };
      out[kernel || own ? "schedule" : "epilogue_schedule"] = described(k.schedule);
      for (const auto& a : k.alternatives) {
        Json before = described(a.schedule);
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
    out["bytes"] = bytes_json(env, sizes, g.bytes_read + g.bytes_written);
    out["bytes_operator_by_operator"] = bytes_json(env, sizes, g.bytes_unfused);
    fused_bytes += g.bytes_read + g.bytes_written;
    unfused_bytes += g.bytes_unfused;
    if (g.kind == Group::Kind::Host) {
      out["operators"] = sources_json(graph, {g.node});
      const std::string& node = graph.node(g.node).location.node;
      const std::string& name = node.empty() ? g.name : node; // of the step
      for (const Step& step : c.executable->steps)
        if (const auto* h = std::get_if<HostStep>(&step); h != nullptr && h->name == name) out["reason"] = h->reason;
    }
    j[kernel || own ? "kernels" : library || attention ? "library_calls" : "host_operators"].push_back(std::move(out));
  }

  j["not_fused"] = edges_json(graph, c.report.plan, sizes, false);
  j["fused"] = edges_json(graph, c.report.plan, sizes, true);

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
  for (const Step& step : c.executable->steps)
    if (const auto* h = std::get_if<HostStep>(&step))
      for (const auto& d : h->defines)
        data_dependent.push_back({{"symbol", d.symbol.str()},
                                  {"defined_by", h->name},
                                  {"op", h->op},
                                  {"result", d.result},
                                  {"dimension", d.dim}});
  j["breaks"] = {{"host_operators", j["host_operators"].size()}, {"data_dependent_sizes", data_dependent}};

  const FoldedConstants& constants = c.report.constants;
  j["constants"] = {{"computed", constants.values}, {"bytes", constants.bytes}, {"left", Json::array()}};
  for (const auto& l : constants.left)
    j["constants"]["left"].push_back({{"name", l.value}, {"op", l.op}, {"bytes", l.bytes}, {"reason", l.why}});

  j["guards"] = Json::array();
  for (const auto& g : env.guards())
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
  }

  j["totals"] = {{"operators", c.report.source_nodes},
                 {"kernels", j["kernels"].size()},
                 {"library_calls", j["library_calls"].size()},
                 {"host_operators", j["host_operators"].size()},
                 {"copies", j["copies"].size()},
                 {"edges_fused", j["fused"].size()},
                 {"edges_not_fused", j["not_fused"].size()},
                 {"bytes", bytes_json(env, sizes, fused_bytes)},
                 {"bytes_operator_by_operator", bytes_json(env, sizes, unfused_bytes)}};
  j["compile"] = {{"import_ms", session.import_ms()},  {"passes_ms", c.report.passes_ms},
                  {"fusion_ms", c.report.fusion_ms},   {"constants_ms", constants.milliseconds},
                  {"codegen_ms", c.report.codegen_ms}, {"link_ms", c.report.link_ms},
                  {"cache_hits", c.report.cache_hits}, {"cache_misses", c.report.cache_misses}};
  j["passes"] = Json::array();
  for (const auto& p : c.report.passes)
    j["passes"].push_back({{"name", p.name},
                           {"changed", p.changed},
                           {"ms", p.milliseconds},
                           {"nodes_before", p.nodes_before},
                           {"nodes_after", p.nodes_after}});
  return j;
}

// ---- text
namespace {

std::string text_of(const Json& j) { return j.is_null() ? "" : j.get<std::string>(); }

std::string shown_bytes(const Json& bytes) {
  double v = at_sizes(bytes);
  return std::isnan(v) ? bytes["expression"].get<std::string>() : format_bytes(v);
}

// "Add_12, ReduceMean_13 ... Add_21": a few of many.
std::string shown_operators(const Json& operators, size_t most = 4) {
  std::string out;
  for (size_t i = 0; i < operators.size(); ++i) {
    if (i + 1 < operators.size() && i + 1 >= most && operators.size() > most) {
      out += " ... " + text_of(operators.back()["name"]);
      break;
    }
    out += (i > 0 ? ", " : "") + text_of(operators[i]["name"]);
  }
  return out;
}

// Which operators, by type, with counts: "Add 2, Gelu".
std::string shown_types(const Json& operators) {
  std::vector<std::pair<std::string, int>> counts;
  for (const auto& o : operators) {
    std::string op = text_of(o["op"]);
    auto it = std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == op; });
    if (it == counts.end())
      counts.emplace_back(op, 1);
    else
      ++it->second;
  }
  std::string out;
  for (const auto& [op, n] : counts) out += (out.empty() ? "" : ", ") + op + (n > 1 ? " " + std::to_string(n) : "");
  return out;
}

std::string totals_text(const Json& j) {
  const Json& t = j["totals"];
  double after = at_sizes(t["bytes"]), before = at_sizes(t["bytes_operator_by_operator"]);
  std::string out = "totals\n  " + t["operators"].dump() + " operators -> " + t["kernels"].dump() + " kernels, " +
                    t["library_calls"].dump() + " library calls, " + t["host_operators"].dump() +
                    " operators by reference on the host\n  " + shown_bytes(t["bytes"]) + " moved instead of " +
                    shown_bytes(t["bytes_operator_by_operator"]) + " operator by operator";
  if (!std::isnan(after) && !std::isnan(before) && before > 0)
    out += " (" + format_number(100 * after / before, 0) + " %)";
  return out + "\n";
}

} // namespace

std::string explain_text(const Json& j, bool summary) {
  std::string out = text_of(j["model"]);
  for (const auto& [domain, version] : j["opsets"].items()) out += ", " + domain + " opset " + version.dump();
  out += "; " + text_of(j["target"]) + "; " + text_of(j["variant"]) + " variant\n";
  for (const char* which : {"inputs", "outputs"}) {
    out += std::string(which) + ":";
    for (const auto& io : j[which]) out += " " + text_of(io["name"]) + " " + text_of(io["type"]);
    out += "\n";
  }
  if (!j["sizes"].empty()) {
    out += "numbers below are for";
    for (const auto& [name, size] : j["sizes"].items()) out += " " + name + "=" + size.dump();
    out += "\n";
  }

  if (!summary && !j["kernels"].empty()) {
    out += "\nkernels\n";
    Table table({"name", "operators", "bytes", "one by one", "which", "from"}, {1, 2, 3});
    for (const auto& k : j["kernels"])
      table.add({text_of(k["name"]), std::to_string(k["operators"].size()), shown_bytes(k["bytes"]),
                 shown_bytes(k["bytes_operator_by_operator"]), shown_types(k["operators"]),
                 shown_operators(k["operators"])});
    out += table.str("  ");
  }
  Table tuned({"name", "measured"});
  for (const auto& k : j["kernels"])
    if (k.contains("tuned"))
      for (const auto& t : k["tuned"]) tuned.add({text_of(k["name"]), text_of(t)});
  if (!summary && !tuned.empty()) out += "\nkernels with tuned schedules\n" + tuned.str("  ");
  if (!summary && !j["library_calls"].empty()) {
    out += "\nlibrary calls\n";
    Table table({"name", "call", "operands", "bytes", "epilogue"}, {3});
    for (const auto& k : j["library_calls"]) {
      std::string operands;
      for (const auto& o : k["operands"]) operands += (operands.empty() ? "" : " x ") + text_of(o["shape"]);
      std::string epilogue =
          k["epilogue"].empty() ? "-" : shown_types(k["epilogue"]) + ": " + shown_operators(k["epilogue"]);
      table.add({text_of(k["name"]), text_of(k["library_call"]), operands, shown_bytes(k["bytes"]), epilogue});
    }
    out += table.str("  ");
  }
  if (!summary && !j["not_fused"].empty()) {
    out += "\nedges not fused\n";
    Table table({"code", "reason", "from", "to", "bytes", "detail"}, {4});
    for (const auto& e : j["not_fused"])
      table.add({text_of(e["code"]), text_of(e["reason"]), text_of(e["producer"]), text_of(e["consumer"]),
                 e.contains("bytes") ? shown_bytes(e["bytes"]) : "", e.contains("detail") ? text_of(e["detail"]) : ""});
    out += table.str("  ");
  }

  // What was weighed: one line a value, whose edges say the same.
  Table recomputed({"code", "value", "detail"});
  std::set<std::string> weighed;
  for (const auto& e : j["fused"])
    if (const std::string detail = e.contains("detail") ? text_of(e["detail"]) : "";
        detail.find("computed ") != std::string::npos && weighed.insert(text_of(e["value"])).second)
      recomputed.add({text_of(e["code"]), text_of(e["value"]), detail});
  if (!summary && !recomputed.empty()) out += "\nrecomputed by consumers\n" + recomputed.str("  ");
  Table pairs({"code", "reason", "one", "other", "detail"});
  for (const auto& p : j["pairs"])
    pairs.add(
        {text_of(p["code"]), text_of(p["reason"]), text_of(p["first"]), text_of(p["second"]), text_of(p["detail"])});
  if (!summary && !pairs.empty()) out += "\npairs of kernels\n" + pairs.str("  ");

  Table codes({"code", "reason", "edges", ""}, {2});
  for (const auto& c : j["edges_by_code"])
    codes.add({text_of(c["code"]), text_of(c["reason"]), c["count"].dump(), text_of(c["summary"])});
  if (!codes.empty()) out += "\nedges by reason\n" + codes.str("  ");

  out += "\nbreaks\n";
  if (j["host_operators"].empty() && j["breaks"]["data_dependent_sizes"].empty())
    out += "  none: every operator is compiled or a library call, every size follows from the inputs\n";
  for (const auto& h : j["host_operators"])
    out += "  " + text_of(h["name"]) + " runs by its reference on the host" +
           (h.contains("reason") ? ": " + text_of(h["reason"]) : "") + ", " + shown_bytes(h["bytes"]) + "\n";
  for (const auto& d : j["breaks"]["data_dependent_sizes"])
    out += "  size " + text_of(d["symbol"]) + " is known only when " + text_of(d["defined_by"]) + " (" +
           text_of(d["op"]) + ") has run\n";

  const Json& constants = j["constants"];
  if (constants["computed"] != 0 || !constants["left"].empty()) {
    out += "\nconstants\n  " + std::to_string(constants["computed"].get<int>()) + " computed when compiling, " +
           format_bytes(constants["bytes"].get<double>()) + "\n";
    for (const auto& l : constants["left"])
      out += "  " + text_of(l["name"]) + " (" + text_of(l["op"]) + ", " + format_bytes(l["bytes"].get<double>()) +
             ") depends on no input and is computed at every call: " + text_of(l["reason"]) + "\n";
  }

  if (!summary && !j["guards"].empty()) {
    out += "\nguards\n";
    for (const auto& g : j["guards"])
      out += "  " + text_of(g["class"]) + ": " + text_of(g["condition"]) + "; " + text_of(g["reason"]) +
             (text_of(g["where"]).empty() ? "" : ", " + text_of(g["where"])) + "\n";
  }
  return out + "\n" + totals_text(j);
}

} // namespace tessera::command
