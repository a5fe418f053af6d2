#include "report/context.h"
#include "codegen/target/derived.h"
#include "fusion/cost.h"
#include <algorithm>

namespace tessera::report {

namespace {

std::string name_of(const Location& l) { return !l.node.empty() ? l.node : l.output; }

} // namespace

Operators::Operators(const Graph& graph, const std::vector<Location>& of_model) : graph_(graph) {
  for (const Location& l : of_model) {
    const std::string name = name_of(l);
    add(name.empty() ? l.op : name, l, false);
  }
}

size_t Operators::add(const std::string& name, const Location& l, bool made) {
  Entry e{name, name, l.op, {}, l.source, made};
  if (const int times = ++ids_[name]; times > 1) e.id += "#" + std::to_string(times);
  // Programs that keep lines name a node "path.of.module.result".
  if (const std::string ending = "." + l.output; !l.source.empty() && name.ends_with(ending))
    e.module = name.substr(0, name.size() - ending.size());
  by_location_.try_emplace({l.node, l.op, l.output}, entries_.size());
  by_name_.try_emplace({name, l.op}, entries_.size());
  entries_.push_back(std::move(e));
  return entries_.size() - 1;
}

size_t Operators::of(NodeId id) {
  const Node& n = graph_.node(id);
  Location l = n.location;
  if (l.op.empty()) l.op = n.op->name;
  if (auto it = by_location_.find({l.node, l.op, l.output}); it != by_location_.end()) return it->second;
  std::string name = name_of(l);
  if (name.empty() && !n.results.empty() && n.results[0].valid()) name = graph_.value(n.results[0]).name;
  if (name.empty()) name = std::string(n.op->name) + "#" + std::to_string(id.index);
  if (auto it = by_name_.find({name, l.op}); it != by_name_.end()) return it->second;
  return add(name, l, true);
}

Context::Context(const Compiled& compiled, const ReportOptions& given)
    : c(compiled), options(given), graph(*compiled.graph), exe(*compiled.executable), device(compiled.report.device),
      operators(graph, compiled.report.operators) {
  fusion::Estimator estimate(graph.env());
  std::set<std::string> used;
  for (const auto& [name, size] : given.sizes) named[name] = size;
  auto add = [&](const SymExpr& e) {
    for (const SymExpr& s : e.symbols()) {
      if (sizes.contains(s.symbol_id())) continue;
      const auto size = static_cast<int64_t>(estimate(s));
      planned[s.symbol_name()] = size;
      sizes[s.symbol_id()] = named.try_emplace(s.symbol_name(), size).first->second;
    }
  };
  for (const ValueId v : graph.inputs()) {
    for (const SymExpr& d : graph.declared_shape(v)) add(d);
    for (const SymExpr& d : graph.type(v).shape) add(d);
  }
}

std::string Context::detail(const Detail& d) const {
  fusion::Estimator estimate(graph.env());
  auto here = [&](const SymExpr& e) { return value(e); };
  auto there = [&](const SymExpr& e) { return std::optional(estimate(e)); };
  std::string text = detail_text(d, here);
  if (!decided_otherwise(d, here) || decided_otherwise(d, there)) return text;
  text += "; decided at";
  for (const auto& [symbol, size] : planned) text += " " + symbol + "=" + std::to_string(size);
  return text;
}

std::optional<double> Context::value(const SymExpr& e) const {
  auto v = e.eval(sizes);
  return v.ok() ? std::optional(static_cast<double>(*v)) : std::nullopt;
}

Json Context::sized(const SymExpr& e) const {
  auto v = e.eval(sizes);
  return {{"expression", e.str()}, {"at_sizes", v.ok() ? Json(*v) : Json(nullptr)}};
}

std::string Context::name(ValueId v) const {
  if (!v.valid()) return "";
  const auto& name = graph.value(v).name;
  return name.empty() ? "%" + std::to_string(v.index) : name;
}

Json Context::names(const std::vector<ValueId>& values) const {
  Json out = Json::array();
  for (ValueId v : values) out.push_back({{"name", name(v)}, {"type", graph.type(v).str()}});
  return out;
}

Json Context::ids(const std::vector<NodeId>& nodes) {
  std::vector<size_t> seen;
  Json out = Json::array();
  for (NodeId id : nodes) {
    const size_t op = operators.of(id);
    if (std::find(seen.begin(), seen.end(), op) != seen.end()) continue;
    seen.push_back(op);
    out.push_back(operators.entries()[op].id);
  }
  return out;
}

double Context::transfer_us(double bytes) const { return tessera::transfer_us(device, bytes); }

std::vector<StepOf> steps_of(const Compiled& c) {
  std::vector<StepOf> out;
  const auto groups = flat_groups(c.report.plan);
  size_t g = 0, within = 0;           // `within`: groups that are steps of the last attention
  std::map<std::string, int> kernels; // by name
  for (size_t k = 0; k < c.report.kernels.size(); ++k) kernels.emplace(c.report.kernels[k].name, static_cast<int>(k));
  const auto& steps = c.executable->steps;
  for (size_t s = 0; s < steps.size(); ++s) {
    StepOf of{static_cast<int>(s)};
    if (!std::holds_alternative<CopyStep>(steps[s])) {
      auto has_step = [](const Group& group) {
        return group.kind != Group::Kind::Alias && (group.kind != Group::Kind::Attention || group.attention.fixed);
      };
      while (g < groups.size() && !has_step(*groups[g])) {
        if (within > 0) --within;
        ++g;
      }
      if (g == groups.size()) break;
      const Group& group = *groups[g];
      of.group = &group;
      of.group_index = g++;
      of.otherwise = within > 0;
      if (within > 0) --within;
      if (group.kind == Group::Kind::Attention) within = group.otherwise.size();
      const bool library = group.kind == Group::Kind::Library;
      if (auto it = kernels.find(library ? group.name + ".epilogue" : group.name); it != kernels.end())
        of.kernel = it->second;
    }
    out.push_back(of);
  }
  return out;
}

} // namespace tessera::report
