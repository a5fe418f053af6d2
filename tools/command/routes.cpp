#include "routes.h"
#include "graph/ir/graph.h"
#include "measure.h"
#include <algorithm>
#include <set>

namespace tessera::command {
namespace {

// Exporter's names of the nodes that libraries compute. The products of an attention are not among them: they make one,
// which its generated kernel computes where the library is missing.
std::set<std::string> library_nodes(const Session& session) {
  std::set<std::string> names;
  const Compiled& compiled = *session.variants().front()->compiled;
  if (!compiled.graph) return names;
  for (const Group& group : compiled.report.plan.groups)
    if (group.kind == Group::Kind::Library) names.insert(compiled.graph->node(group.call.node).location.node);
  names.erase("");
  return names;
}

std::set<std::string> operators_of(const Json& step) {
  const Json& all = step.at("operators");
  return {all.begin(), all.end()};
}

bool meet(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& x) { return b.contains(x); });
}

// The route that would be taken without the library.
Json* generated_route(Json& routes) {
  for (Json& r : routes)
    if (!r.at("taken").get<bool>() && (r.at("kind") == "loops" || r.at("kind") == "own kernel")) return &r;
  return nullptr;
}

} // namespace

Status measure_routes(const ModelOptions& model, const MeasureOptions& o, Session& session, Json& report,
                      std::vector<std::string>& notes) {
  const Sizes sizes = report.at("sizes").get<Sizes>();
  TESSERA_ASSIGN(auto shapes, parse_shapes(model.shapes));
  TESSERA_ASSIGN(SessionOptions options, session_options(model, shapes));
  options.import.missing_weights = ImportOptions::MissingWeights::MadeUp;
  prepare(o, options);
  options.compile.as_loops.merge(library_nodes(session));
  options.compile.cudnn = false; // of a GPU: attention, too
  TESSERA_ASSIGN(auto other, open_session(model, std::move(options)));
  TESSERA_ASSIGN(const Json without, explain_json(*other, sizes, false));
  TESSERA_ASSIGN(const StepTimes times, measure_steps(*other, sizes, o.seed, o.seconds, 1));
  std::map<std::string, double> us;
  for (const auto& s : times.steps) us.emplace(s.id, s.median());
  struct Kernel {
    std::set<std::string> operators;
    double us = 0;
  };
  std::vector<Kernel> kernels;
  for (const Json& s : without.at("steps"))
    if (const auto it = us.find(s.at("id").get<std::string>()); it != us.end())
      kernels.push_back({operators_of(s), it->second});

  // An operator of several steps, such as a mask that all attentions read, says nothing about one of them.
  std::map<std::string, int> steps_of;
  for (const Json& s : report.at("steps"))
    for (const std::string& name : operators_of(s)) ++steps_of[name];
  std::vector<std::string> none;
  for (Json& s : report.at("steps")) {
    if (!s.contains("routes") || !s.contains("measured_us")) continue;
    for (Json& r : s.at("routes"))
      if (r.at("taken").get<bool>()) r["measured_us"] = s.at("measured_us");
    const std::string kind = s.at("kind");
    if (kind != "library" && kind != "attention") continue;
    Json* generated = generated_route(s.at("routes"));
    const auto operators = operators_of(s);
    std::set<std::string> own;
    for (const std::string& name : operators)
      if (steps_of.at(name) == 1) own.insert(name);
    std::set<std::string> computed;
    double sum = 0;
    for (const Kernel& k : kernels)
      if (meet(k.operators, own.empty() ? operators : own)) {
        sum += k.us;
        computed.insert(k.operators.begin(), k.operators.end());
      }
    if (!generated || computed.empty()) {
      none.push_back(s.at("id"));
      continue;
    }
    (*generated)["measured_us"] = sum;
    (*generated)["with"] =
        computed.size() -
        static_cast<size_t>(std::count_if(computed.begin(), computed.end(),
                                          [&](const std::string& c) { return operators.contains(c); }));
  }
  if (!none.empty())
    notes.push_back("no generated code stands for " + std::to_string(none.size()) + " library calls, such as '" +
                    shown(none.front()) + "'");
  return {};
}

} // namespace tessera::command
