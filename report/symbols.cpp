// The cost of sizes that are unknown when compiling: for each kernel, its schedule at these sizes against the best one
// for them.
#include "codegen/schedule/candidates.h"
#include "report/price.h"
#include <algorithm>

namespace tessera::report {

namespace {

constexpr double kWorth = 0.02; // of a kernel's time: less is within the error of the model

struct Loss {
  double us = 0;
  std::string lost;
};

// The loss of the kernel's launch at these sizes; nothing where it loses nothing.
std::optional<Loss> loss_of(const Context& x, const StepOf& step) {
  const StepPrice price = price_of(x, step);
  if (!price.kernel) return std::nullopt;
  CandidateOptions most;
  most.most = 2; // the chosen one and the best
  auto list = candidates(x.graph, step.group->nest, x.device, x.sizes, most);
  if (!list.ok()) return std::nullopt;
  const Schedule* best = nullptr;
  double least = price.time->us;
  for (const Candidate& c : *list)
    if (auto p = predict(x.graph, step.group->nest, x.device, c.tuned.schedule, x.sizes); p.ok() && p->time.us < least)
      least = p->time.us, best = &c.tuned.schedule;
  if (!best || price.time->us - least < kWorth * price.time->us) return std::nullopt;
  return Loss{price.time->us - least, print(*best)};
}

bool depends_on_sizes(const StepOf& step) {
  return step.group && step.group->kind == Group::Kind::Kernel && !step.otherwise &&
         std::any_of(step.group->nest.axes.begin(), step.group->nest.axes.end(),
                     [](const Axis& axis) { return !axis.extent.symbols().empty(); });
}

} // namespace

Json symbols_json(Context& x, const Json& steps) {
  std::map<std::string, Json> by_name; // in the order of the names
  for (const ValueId v : x.graph.inputs())
    for (const SymExpr& d : x.graph.declared_shape(v))
      for (const SymExpr& s : d.symbols()) {
        Json& j = by_name[s.symbol_name()];
        if (j.is_null())
          j = {{"name", s.symbol_name()}, {"dimension_of", Json::array()}, {"costs", Json::array()}, {"price_us", 0.0}};
        const std::string input = x.graph.value(v).name;
        if (j["dimension_of"].empty() || j["dimension_of"].back() != input) j["dimension_of"].push_back(input);
      }
  if (x.options.symbols) {
    std::map<int, std::string> id_of; // by index of the step
    std::map<int, std::string> class_of;
    for (const Json& s : steps)
      if (!s.contains("inside")) {
        id_of[s.at("index")] = s.at("id");
        class_of[s.at("index")] = s.at("class");
      }
    std::map<std::string, std::optional<Loss>> losses; // by class: equal kernels lose the same
    for (const StepOf& step : steps_of(x.c)) {
      if (!depends_on_sizes(step)) continue;
      std::vector<SymExpr> symbols;
      for (const Axis& axis : step.group->nest.axes)
        for (const SymExpr& s : axis.extent.symbols())
          if (std::find(symbols.begin(), symbols.end(), s) == symbols.end()) symbols.push_back(s);
      auto [it, fresh] = losses.try_emplace(class_of[step.index]);
      if (fresh) it->second = loss_of(x, step);
      if (!it->second) continue;
      for (const SymExpr& s : symbols) { // sizes that decide together share the price
        auto found = by_name.find(s.symbol_name());
        if (found == by_name.end()) continue;
        const double us = it->second->us / static_cast<double>(symbols.size());
        found->second["costs"].push_back({{"step", id_of[step.index]}, {"lost", it->second->lost}, {"price_us", us}});
        found->second["price_us"] = found->second["price_us"].get<double>() + us;
      }
    }
  }
  Json out = Json::array();
  for (auto& [name, j] : by_name) out.push_back(std::move(j));
  return out;
}

} // namespace tessera::report

namespace tessera {

double lost_to_unknown_sizes_us(const Compiled& compiled, const std::map<std::string, int64_t>& sizes) {
  ReportOptions options;
  options.sizes = sizes;
  const report::Context x(compiled, options);
  double us = 0;
  for (const report::StepOf& step : report::steps_of(compiled))
    if (report::depends_on_sizes(step))
      if (const auto loss = report::loss_of(x, step)) us += loss->us;
  return us;
}

} // namespace tessera
