#include "report/report.h"
#include "codegen/device/library_cost.h"
#include "codegen/target/derived.h"
#include "report/context.h"
#include "runtime/variant.h"
#include <algorithm>

namespace tessera::report {

namespace {

void add_model(Context& x, const ModelInfo& model, Json& j) {
  j["schema"] = {{"name", "tessera.report"}, {"version", kReportVersion}};
  j["tessera"] = TESSERA_VERSION;
  j["model"] = x.options.path;
  j["producer"] = model.producer;
  j["format"] = model.format;
  j["format_version"] = model.version;
  j["opsets"] = Json::object();
  for (const auto& [domain, version] : model.opsets) j["opsets"][domain] = version;
  j["variant"] = x.options.label;
  j["target"] = x.exe.target;
  j["figures"] = x.c.report.figures;
  // The figures of the device that prices are computed from, in bytes per microsecond and microseconds.
  j["device"] = {{"memory_bytes_per_us", reached_bandwidth(x.device)},
                 {"launch_us", x.device.launch_us},
                 {"launch_alone_us", lone_launch_us(x.device)},
                 {"host_launch_us", x.device.host_launch_us}};
  j["sizes"] = x.named;
  j["planned_sizes"] = x.planned;
  j["absent_weights"] = {{"count", model.absent_weights}, {"bytes", model.absent_bytes}};
  for (const auto& [which, bindings] : {std::pair("inputs", &x.exe.inputs), std::pair("outputs", &x.exe.outputs)}) {
    j[which] = Json::array();
    for (const Binding& io : *bindings) {
      const BufferInfo& b = x.exe.buffers[static_cast<size_t>(io.buffer)];
      j[which].push_back({{"name", io.name}, {"type", TensorType{b.dtype, b.shape}.str()}});
    }
  }
}

Json operators_json(const Context& x, const Json& steps) {
  std::map<std::string, Json> steps_of; // by operator
  for (const Json& s : steps)
    if (!s.contains("inside"))
      for (const Json& o : s.at("operators")) steps_of[o.get<std::string>()].push_back(s.at("id"));
  Json out = Json::array();
  for (const auto& e : x.operators.entries()) {
    Json j{{"id", e.id}, {"name", e.name}, {"op", e.op}};
    if (!e.module.empty()) j["module"] = e.module;
    if (!e.source.empty()) j["source"] = e.source;
    if (e.made) j["made_by_compiler"] = true;
    auto it = steps_of.find(e.id);
    j["steps"] = it == steps_of.end() ? Json::array() : it->second;
    out.push_back(std::move(j));
  }
  return out;
}

// Edges and pairs by code: how many, what they cost or save.
Json codes_json(const Json& edges, const Json& pairs) {
  struct Sum {
    int count = 0;
    double bytes = 0, us = 0;
  };
  std::map<std::string, Sum> sums;
  for (const Json* list : {&edges, &pairs})
    for (const Json& e : *list) {
      Sum& s = sums[e.at("code")];
      ++s.count;
      if (e.contains("bytes") && e.at("bytes").at("at_sizes").is_number())
        s.bytes += e.at("bytes").at("at_sizes").get<double>();
      if (e.at("price_us").is_number()) s.us += e.at("price_us").get<double>();
    }
  Json out = Json::array();
  for (int r = 0; r < static_cast<int>(FusionReason::Count_); ++r) {
    const auto& why = info(static_cast<FusionReason>(r));
    auto it = sums.find(std::string(why.code));
    if (it == sums.end()) continue;
    out.push_back({{"code", why.code},
                   {"reason", why.name},
                   {"fused", why.fused},
                   {"count", it->second.count},
                   {"summary", why.summary},
                   {"bytes", static_cast<int64_t>(it->second.bytes)},
                   {"price_us", it->second.us}});
    if (!why.alias.empty()) out.back()["alias"] = why.alias; // the reason's name in the version before
  }
  return out;
}

Json totals_json(const Context& x, const Json& j) {
  std::map<std::string, int64_t> kinds;
  int64_t launches = 0;
  double predicted = 0, unfused = 0;
  bool any = false;
  for (const Json& s : j.at("steps")) {
    ++kinds[s.at("kind")];
    launches += s.at("launches").get<int64_t>();
    if (s.contains("inside")) continue; // in the price of its loop
    const Json &us = s.at("price").at("us"), &alone = s.at("price").at("unfused_us");
    if (!us.is_number()) continue;
    any = true;
    predicted += us.get<double>();
    unfused += (alone.is_number() ? alone : us).get<double>();
  }
  int64_t fused = 0;
  for (const Json& e : j.at("edges")) fused += e.at("fused").get<bool>() ? 1 : 0;
  SymExpr bytes = 0, unfused_bytes = 0, library_flops = 0;
  size_t within = 0;
  for (const Group* g : flat_groups(x.c.report.plan)) {
    if (within > 0) { // steps of an attention, which run only where a library refuses it
      --within;
      continue;
    }
    within = g->otherwise.size();
    if (g->kind == Group::Kind::Alias) continue;
    bytes += g->bytes_read + g->bytes_written;
    unfused_bytes += g->bytes_unfused;
    if (g->kind == Group::Kind::Library) library_flops += flops(g->call);
    if (g->kind == Group::Kind::Attention || (g->kind == Group::Kind::Own && !g->node.valid()))
      library_flops += flops(g->attention);
  }
  size_t inside = 0; // operators of bodies
  for (const Json& s : j.at("steps"))
    if (s.contains("bodies") && !s.contains("inside"))
      for (const Json& b : s.at("bodies")) inside += b.at("totals").at("operators").get<size_t>();
  return {{"operators", x.c.report.operators.size() + inside},
          {"steps", j.at("steps").size()},
          {"kernels", kinds["kernel"] + kinds["separate"]},
          {"library_calls", kinds["library"] + kinds["attention"]},
          {"host_operators", kinds["host"]},
          {"control_flow", kinds["control"]},
          {"copies", kinds["copy"]},
          {"launches", launches},
          {"edges_fused", fused},
          {"edges_not_fused", static_cast<int64_t>(j.at("edges").size()) - fused},
          {"bytes", x.sized(bytes)},
          {"bytes_unfused", x.sized(unfused_bytes)},
          {"library_flops", x.sized(library_flops)},
          {"predicted_us", any ? Json(predicted) : Json(nullptr)},
          {"predicted_unfused_us", any ? Json(unfused) : Json(nullptr)}};
}

void add_compile(const CompileReport& r, Json& j) {
  const FoldedConstants& constants = r.constants;
  j["constants"] = {{"computed", constants.values}, {"bytes", constants.bytes}, {"left", Json::array()}};
  for (const auto& l : constants.left)
    j["constants"]["left"].push_back({{"name", l.value}, {"op", l.op}, {"bytes", l.bytes}, {"reason", l.why}});
  j["compile"] = {{"import_ms", r.import_ms},     {"passes_ms", r.passes_ms},
                  {"fusion_ms", r.fusion_ms},     {"constants_ms", constants.milliseconds},
                  {"codegen_ms", r.codegen_ms},   {"link_ms", r.link_ms},
                  {"cache_hits", r.cache_hits},   {"cache_misses", r.cache_misses},
                  {"warnings", r.device_warnings}};
  j["contained"] = Json::array();
  for (const auto& c : r.contained)
    j["contained"].push_back({{"code", info(c.error.code).id},
                              {"where", c.where},
                              {"message", c.error.message},
                              {"notes", c.error.notes},
                              {"instead", c.instead},
                              {"saved", c.saved}});
  j["passes"] = Json::array();
  for (const auto& p : r.passes)
    j["passes"].push_back({{"name", p.name},
                           {"level", p.level},
                           {"changed", p.changed},
                           {"ms", p.milliseconds},
                           {"nodes_before", p.nodes_before},
                           {"nodes_after", p.nodes_after}});
}

void append(Json& to, Json& more) {
  for (Json& j : more) to.push_back(std::move(j));
}

} // namespace

Json report_json(const Compiled& c, const ModelInfo& model, const ReportOptions& options) {
  Context x(c, options);
  Json j;
  add_model(x, model, j);
  Json of_bodies;
  Json steps = steps_json(x, of_bodies), edges = edges_json(x, steps), pairs = pairs_json(x);
  append(edges, of_bodies["edges"]);
  append(pairs, of_bodies["pairs"]);
  const Json layers = layers_json(x, steps);
  j["operators"] = operators_json(x, steps);
  append(j["operators"], of_bodies["operators"]);
  j["steps"] = std::move(steps);
  j["layers"] = layers;
  j["edges"] = std::move(edges);
  j["pairs"] = std::move(pairs);
  j["breaks"] = breaks_json(x, j["steps"]);
  j["guards"] = Json::array();
  for (const auto& g : x.graph.env().guards())
    j["guards"].push_back({{"condition", g.condition.str()},
                           {"class", g.cls == GuardClass::Required ? "required" : "assumed"},
                           {"reason", g.reason},
                           {"where", g.where.str()}});
  j["symbols"] = symbols_json(x, j["steps"]);
  j["memory"] = memory_json(x);
  j["codes"] = codes_json(j["edges"], j["pairs"]);
  j["totals"] = totals_json(x, j);
  add_compile(c.report, j);
  return j;
}

} // namespace tessera::report

namespace tessera {

std::string report_text(const Compiled& c, const ModelInfo& model, const ReportOptions& options) {
  // Names are the model's: bytes that are no UTF-8 are replaced.
  return report::report_json(c, model, options).dump(-1, ' ', false, report::Json::error_handler_t::replace);
}

} // namespace tessera
