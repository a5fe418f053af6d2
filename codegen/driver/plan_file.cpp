#include "codegen/driver/plan_file.h"
#include "base/file.h"
#include "codegen/driver/bodies.h"
#include "codegen/driver/planned_operators.h"
#include "codegen/driver/steering.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kSchema = "tessera.plan";
constexpr int kVersion = 1;
constexpr std::pair<PinnedGroup::Kind, std::string_view> kKinds[] = {{PinnedGroup::Kind::Kernel, "kernel"},
                                                                     {PinnedGroup::Kind::Library, "library"},
                                                                     {PinnedGroup::Kind::Attention, "attention"},
                                                                     {PinnedGroup::Kind::Other, "other"}};

std::string_view kind_name(PinnedGroup::Kind kind) {
  for (const auto& [k, name] : kKinds)
    if (k == kind) return name;
  return "";
}

PinnedGroup::Kind kind_of(Group::Kind kind) {
  if (kind == Group::Kind::Kernel) return PinnedGroup::Kind::Kernel;
  return kind == Group::Kind::Library ? PinnedGroup::Kind::Library : PinnedGroup::Kind::Other;
}

// ---- writing

Json to_json(const Schedule& schedule, const std::vector<ExtentRange>& extents) {
  Json j{{"schedule", print(schedule)}, {"extents", Json::array()}};
  for (const ExtentRange& e : extents) {
    Json range = Json::object();
    if (e.min != INT64_MIN) range["min"] = e.min;
    if (e.max != INT64_MAX) range["max"] = e.max;
    if (e.multiple_of != 1) range["multiple_of"] = e.multiple_of;
    j["extents"].push_back(std::move(range));
  }
  return j;
}

class Writer {
public:
  explicit Writer(const Compiled& compiled) : c_(compiled), graph_(*compiled.graph), keys_(graph_) {
    for (const KernelReport& k : c_.report.kernels) kernels_.emplace(k.name, &k);
  }

  Json run() {
    Json groups = Json::array();
    const auto flat = flat_groups(c_.report.plan);
    for (const Group* g : flat) steps_.emplace(g->name, g);
    for (const Group& g : c_.report.plan.groups) {
      if (!g.parts.empty())
        attention(g, groups);
      else if (g.kind != Group::Kind::Alias || g.node.valid())
        groups.push_back(
            entry(g.name, kind_of(g.kind), route_of(g, graph_, c_.report.routes.get()), nodes(g), g.stages, g.reads));
    }
    Json j{{"groups", std::move(groups)}};
    for (const auto& [index, control] : c_.bodies)
      for (size_t b = 0; b < control->bodies.size(); ++b)
        j["bodies"][body_key(keys_, flat[index]->node, b)] = Writer(*control->bodies[b].compiled).run();
    return j;
  }

private:
  static std::vector<NodeId> nodes(const Group& g) {
    if (g.stages.empty()) return {}; // made by the plan
    return g.node.valid() ? std::vector<NodeId>{g.node} : nodes_of(g);
  }

  Json entry(const std::string& name, PinnedGroup::Kind kind, const std::string& route,
             const std::vector<NodeId>& nodes, const std::vector<ValueId>& stages,
             const std::vector<ValueId>& reads) const {
    Json j{{"name", name}, {"kind", kind_name(kind)}, {"route", route}};
    j["operators"] = j["nodes"] = j["stages"] = j["reads"] = Json::array();
    for (NodeId n : nodes) {
      const std::string& op = operator_name(graph_.node(n).location);
      if (!op.empty() && std::find(j["operators"].begin(), j["operators"].end(), op) == j["operators"].end())
        j["operators"].push_back(op);
      j["nodes"].push_back(keys_.of(n));
    }
    for (ValueId v : stages) j["stages"].push_back(keys_.of(v));
    for (ValueId v : reads) {
      const Node* producer = graph_.producer(v);
      if (!producer || !keys_.has(graph_.value(v).producer)) continue; // given, or made by the plan
      const auto* structured = producer->op->structured();
      if (!structured || structured->kind != Structured::Constant) j["reads"].push_back(keys_.of(v));
    }
    auto kernel = kernels_.find(name);
    if (kernel == kernels_.end()) kernel = kernels_.find(name + ".epilogue");
    if (kernel == kernels_.end() || kind == PinnedGroup::Kind::Other) return j;
    j["schedules"] = Json::array();
    for (const auto& a : kernel->second->alternatives) j["schedules"].push_back(to_json(a.schedule, a.extents));
    j["schedules"].push_back(to_json(kernel->second->schedule, kernel->second->extents));
    return j;
  }

  void attention(const Group& g, Json& groups) const {
    Json parts = Json::array();
    for (const Group::Part& part : g.parts) {
      parts.push_back(groups.size());
      auto step = steps_.find(part.name); // without one, code was not generated for it
      groups.push_back(entry(part.name, kind_of(part.kind),
                             step == steps_.end() ? "" : route_of(*step->second, graph_, c_.report.routes.get()),
                             part.nodes, part.stages, part.reads));
    }
    Json j = entry(g.name, PinnedGroup::Kind::Attention, route_of(g, graph_, c_.report.routes.get()), {}, {}, {});
    j.erase("schedules");
    j["parts"] = std::move(parts);
    groups.push_back(std::move(j));
  }

  const Compiled& c_;
  const Graph& graph_;
  NodeKeys keys_;
  std::map<std::string, const KernelReport*> kernels_; // by name
  std::map<std::string, const Group*> steps_;          // by name
};

// ---- reading

Diagnostic damaged(const std::string& file, const std::string& what) {
  Location where;
  where.file = file;
  return Diagnostic(ErrorCode::CorruptFile, std::move(where), what).note("write it again with --save-plan");
}

Result<TunedSchedule> schedule_of(const Json& j) {
  TunedSchedule out;
  TESSERA_ASSIGN(out.schedule, parse_schedule(j.at("schedule").get<std::string>()));
  for (const Json& e : j.at("extents")) {
    ExtentRange range{e.value("min", INT64_MIN), e.value("max", INT64_MAX), e.value("multiple_of", int64_t{1})};
    if (range.multiple_of < 1 || range.max < range.min)
      return Diagnostic(ErrorCode::CorruptFile, "the extent " + e.dump() + " is no range");
    out.extents.push_back(range);
  }
  out.measured = kPinned;
  return out;
}

Status read_group(const Json& j, size_t count, PinnedGroup& group, std::vector<TunedSchedule>& schedules) {
  group.name = j.at("name").get<std::string>();
  const auto kind = j.at("kind").get<std::string>();
  const auto* known =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const auto& k) { return k.second == kind; });
  if (known == std::end(kKinds)) return Diagnostic(ErrorCode::CorruptFile, "there is no kind '" + kind + "' of groups");
  group.kind = known->first;
  group.route = j.value("route", "");
  group.nodes = j.at("nodes").get<std::vector<std::string>>();
  group.stages = j.at("stages").get<std::vector<std::string>>();
  group.reads = j.at("reads").get<std::vector<std::string>>();
  group.parts = j.value("parts", std::vector<int>{});
  for (int part : group.parts)
    if (part < 0 || static_cast<size_t>(part) >= count)
      return Diagnostic(ErrorCode::CorruptFile, "there is no part " + std::to_string(part));
  if (j.contains("schedules"))
    for (const Json& s : j.at("schedules")) {
      TESSERA_ASSIGN(auto schedule, schedule_of(s));
      schedules.push_back(std::move(schedule));
    }
  return {};
}

Result<std::shared_ptr<const PlanFile>> read(const Json& j, const PlanFile& common) {
  auto out = std::make_shared<PlanFile>();
  out->file = common.file;
  out->target = common.target;
  out->strict = common.strict;
  out->fusion = common.fusion;
  const Json& groups = j.at("groups");
  for (size_t i = 0; i < groups.size(); ++i) {
    PinnedGroup group;
    std::vector<TunedSchedule> schedules;
    if (auto status = read_group(groups[i], groups.size(), group, schedules); !status.ok())
      return damaged(common.file, "group " + std::to_string(i) + " is unusable: " + status.error().message);
    out->fusion.groups.push_back(std::move(group));
    out->schedules.emplace_back(std::move(schedules));
  }
  if (j.contains("bodies"))
    for (const auto& [key, body] : j.at("bodies").items()) {
      TESSERA_ASSIGN(out->bodies[key], read(body, common));
    }
  return std::shared_ptr<const PlanFile>(std::move(out));
}

} // namespace

std::string body_key(const NodeKeys& keys, NodeId node, size_t index) {
  return keys.of(node) + "." + std::to_string(index);
}

std::string print_plan_file(const Compiled& c) {
  Json j;
  j["schema"] = {{"name", kSchema}, {"version", kVersion}};
  j["target"] = c.executable->target;
  j["figures"] = c.report.figures;
  j["strict"] = false;
  j["no_fuse"] = Json::array();
  for (const auto& [a, b] : c.report.requests.apart) j["no_fuse"].push_back({a, b});
  j["break_at"] = c.report.requests.breaks;
  j.update(Writer(c).run());
  return j.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

Result<std::shared_ptr<const PlanFile>> parse_plan_file(std::string_view text, const std::string& file) {
  constexpr int kMaxDepth = 64; // control flow in control flow
  try {
    const Json j = Json::parse(text, [](int depth, Json::parse_event_t, Json&) { return depth <= kMaxDepth; });
    const Json& schema = j.at("schema");
    if (schema.at("name").get<std::string>() != kSchema)
      return damaged(file, "it is no plan file: its schema is '" + schema.at("name").get<std::string>() + "', not '" +
                               std::string(kSchema) + "'");
    if (const int version = schema.at("version").get<int>(); version != kVersion)
      return damaged(file, "it has version " + std::to_string(version) + " of plan files, this program reads version " +
                               std::to_string(kVersion));
    PlanFile common;
    common.file = file;
    common.target = j.value("target", "");
    common.strict = j.value("strict", false);
    common.fusion.apart = j.value("no_fuse", std::vector<std::pair<std::string, std::string>>{});
    common.fusion.breaks = j.value("break_at", std::vector<std::string>{});
    return read(j, common);
  } catch (const Json::exception& e) {
    return damaged(file, std::string("it is no plan file: ") + e.what());
  }
}

Result<std::shared_ptr<const PlanFile>> read_plan_file(const std::string& file) {
  TESSERA_ASSIGN(const std::string text, read_file(file));
  return parse_plan_file(text, file);
}

} // namespace tessera
