// tessera ops: which operators are supported and what computes them; of a model, what of it is not supported, and where.
#include "base/similar.h"
#include "codegen/driver/devices.h"
#include "command.h"
#include "frontend/model.h"
#include "graph/ops/added.h"
#include "inputs.h"
#include "ops_table.h"
#include <algorithm>

namespace tessera::command {

namespace {

struct OpsOptions {
  ModelOptions model; // shapes, values, device, arch, json
  OperatorFilter filter;
  std::string dtype, route, markdown;
};

std::string shown_domain(const std::string& domain) { return domain.empty() ? "ai.onnx" : domain; }

// Devices that are requested; all where none is.
std::vector<std::string> devices_of(const OpsOptions& o) {
  if (!o.model.options.device.empty()) return {o.model.options.device};
  std::vector<std::string> out;
  for (const CompileDevice& d : devices()) out.emplace_back(d.name);
  return out;
}

// ---- the table
Json row_json(const OperatorRow& row) {
  Json j{{"domain", shown_domain(row.op.domain)}, {"operator", row.op.op_type}, {"summary", row.op.summary}};
  j["versions"] = Json::array();
  for (const auto& v : row.op.versions)
    j["versions"].push_back({{"since", v.since},
                             {"until", v.until >= onnx::KnownOperator::kLatest ? Json() : Json(v.until)},
                             {"old_form", v.old_form}});
  j["routes"] = Json::array();
  for (const OperatorRoutes& r : row.routes) {
    Json by = Json::array();
    for (ComputedBy b : r.by) by.push_back(name(b));
    j["routes"].push_back({{"device", r.device}, {"dtype", name(r.dtype)}, {"by", by}, {"why", r.why}});
  }
  return j;
}

// Lines of one operator: one for each device and set of routes.
void add_lines(Table& table, const OperatorRow& row, const std::string& route) {
  std::vector<std::string> first = {row.op.op_type, shown_domain(row.op.domain), versions_text(row.op.versions)};
  auto add = [&](std::string device, const std::string& by, const std::string& dtypes, const std::string& why) {
    std::vector<std::string> cells = first;
    cells.insert(cells.end(), {std::move(device), by, dtypes, why});
    table.add(std::move(cells));
    first = {"", "", ""};
  };
  // One without samples: of a library, or inlined.
  const OpDef* record = row.op.records.empty() ? nullptr : row.op.records.front();
  const bool by_parts = record == nullptr || record->is_composite();
  if (row.routes.empty() && route.empty())
    add("", by_parts ? "by its parts" : tile_text_of(*record) != nullptr ? "generated" : "host", "", "");
  std::map<std::pair<std::string_view, std::string>, std::pair<std::set<DType>, std::string>> lines;
  for (const OperatorRoutes& r : row.routes) {
    std::string by;
    for (ComputedBy b : r.by) by += (by.empty() ? "" : " or ") + std::string(name(b));
    if (!route.empty() && by.find(route) == std::string::npos) continue;
    auto& [dtypes, why] = lines[{r.device, by.empty() ? "-" : by}];
    dtypes.insert(r.dtype);
    if (why.empty()) why = r.why;
  }
  for (const auto& [key, line] : lines) add(std::string(key.first), key.second, dtypes_text(line.first), line.second);
}

int list_operators(OpsOptions& o) {
  if (auto status = load_all(o.model.operators); !status.ok()) return fail(status.error(), o.model.json);
  o.filter.devices = devices_of(o);
  if (!o.dtype.empty()) {
    o.filter.dtype = dtype_from_name(o.dtype);
    if (!o.filter.dtype) {
      std::vector<std::string> known;
      for (int i = 0; i < kDTypeCount; ++i) known.emplace_back(name(static_cast<DType>(i)));
      Diagnostic d(ErrorCode::Usage, "there is no element type '" + o.dtype + "'");
      if (const std::string close = similar(o.dtype, known); !close.empty()) d.note("did you mean '" + close + "'?");
      return fail(d, o.model.json);
    }
  }
  Progress progress;
  progress.show("planning samples of operators");
  auto rows = operator_table(o.filter);
  progress.clear();
  if (!rows.ok()) return fail(rows.error(), o.model.json);
  if (!o.markdown.empty()) {
    auto written = write_text(o.markdown, operators_page(*rows));
    return written.ok() ? kDone : fail(written.error());
  }
  if (!o.route.empty())
    std::erase_if(*rows, [&](const OperatorRow& row) {
      return std::none_of(row.routes.begin(), row.routes.end(), [&](const OperatorRoutes& r) {
        return std::any_of(r.by.begin(), r.by.end(), [&](ComputedBy b) { return name(b) == o.route; });
      });
    });
  Json json;
  json["operators"] = Json::array();
  Table table({"operator", "domain", "versions", "device", "route", "element types", "why on the host"});
  for (const OperatorRow& row : *rows) {
    json["operators"].push_back(row_json(row));
    add_lines(table, row, o.route);
  }
  if (o.model.json != "-") {
    say(table.str());
    std::string legend;
    for (const auto& [c, dtypes] : dtype_classes()) legend += "  " + c + ": " + dtypes + "\n";
    say(std::to_string(rows->size()) + " operators; the types are those of the first operand that is not bool\n" +
        legend);
  }
  return finish(kDone, o.model.json, json);
}

// ---- a model
// A node of the model as people know it.
struct ModelNode {
  Location where;
  std::string op;
  DType dtype = DType::F32;
  struct Use {
    ComputedBy by;
    std::string why;
  };
  std::vector<std::optional<Use>> uses; // by device; nothing: no kernel is left of it
};

std::string key_of(const Location& where) { return where.node + '\0' + where.output + '\0' + where.op; }

// The nodes of the graph and of the bodies in it.
void add_nodes(const Graph& graph, size_t devices, std::set<std::string>& seen, std::vector<ModelNode>& out) {
  for (NodeId id : graph.order()) {
    const Node& n = graph.node(id);
    for (const auto& [name, value] : n.attributes.items())
      if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&value)) add_nodes(**body, devices, seen, out);
    if (n.location.op.empty() || (n.op->structured() && n.op->structured()->kind == Structured::Constant)) continue;
    if (!seen.insert(key_of(n.location)).second) continue;
    ModelNode node{n.location, n.location.op, DType::F32, {}};
    for (const auto* values : {&n.results, &n.operands}) // the first operand counts most
      for (auto v = values->rbegin(); v != values->rend(); ++v)
        if (v->valid() && (graph.type(*v).dtype != DType::Bool || n.operands.size() == 1))
          node.dtype = graph.type(*v).dtype;
    node.uses.resize(devices);
    out.push_back(std::move(node));
  }
}

Json refused_json(const RefusedNode& r) {
  Json j{{"operator", r.op}, {"version", r.version}};
  j["dtype"] = r.dtype ? Json(name(*r.dtype)) : Json();
  j["error"] = to_json(r.reason);
  return j;
}

void say_refused(const std::vector<RefusedNode>& refused) {
  if (refused.empty()) return;
  Table table({"not supported", "version", "type", "node", "why"});
  for (const RefusedNode& r : refused) {
    std::string why = r.reason.message;
    for (const std::string& note : r.reason.notes) why += "; " + note;
    const Location& at = r.reason.location;
    table.add({r.op.empty() ? "(input)" : r.op, r.version > 0 ? std::to_string(r.version) : "",
               r.dtype ? std::string(name(*r.dtype)) : "", at.node.empty() ? at.output : at.node, why});
  }
  say(table.str() + "\n");
}

// Lines of operators of one element type that are computed alike.
void say_uses(const std::vector<ModelNode>& nodes, const std::vector<std::string>& devices, bool quiet, Json& json) {
  struct Line {
    int count = 0;
    std::string example, why;
  };
  std::map<std::tuple<std::string, size_t, DType, std::string>, Line> lines;
  for (const ModelNode& n : nodes)
    for (size_t d = 0; d < devices.size(); ++d) {
      const auto& use = n.uses[d];
      Line& line = lines[{n.op, d, n.dtype, use ? std::string(name(use->by)) : "-"}];
      if (line.count++ == 0) line.example = n.where.node.empty() ? n.where.output : n.where.node;
      if (use && line.why.empty()) line.why = use->why;
    }
  Table table({"operator", "device", "type", "nodes", "route", "why on the host", "first node"}, {3});
  for (const auto& [key, line] : lines) {
    const auto& [op, d, dtype, route] = key;
    table.add({op, devices[d], std::string(name(dtype)), std::to_string(line.count), route, line.why,
               route == "host" ? line.example : ""});
    json["operators"].push_back({{"operator", op},
                                 {"device", devices[d]},
                                 {"dtype", name(dtype)},
                                 {"nodes", line.count},
                                 {"by", route == "-" ? Json() : Json(route)},
                                 {"why", line.why},
                                 {"first", line.example}});
  }
  if (!table.empty() && !quiet) say(table.str());
}

int survey(const OpsOptions& o) {
  ModelOptions model = o.model;
  const std::vector<std::string> names = devices_of(o);
  const std::string& json_path = model.json;
  if (auto status = need_model(model.model, "ops"); !status.ok()) return fail(status.error(), json_path);
  auto shapes = parse_shapes(model.shapes);
  if (!shapes.ok()) return fail(shapes.error(), json_path);
  std::vector<SessionOptions> sessions;
  for (const std::string& name : names) {
    model.options.device = name;
    model.arch = name == "cuda" && o.model.arch.empty() ? "sm_90a" : o.model.arch;
    auto session = session_options(model, *shapes);
    if (!session.ok()) return fail(session.error(), json_path);
    sessions.push_back(std::move(*session));
  }
  ImportOptions import = sessions.front().import;
  import.missing_weights = ImportOptions::MissingWeights::Empty;
  auto found = survey_model(model.model, import);
  if (!found.ok() && found.error().code == ErrorCode::FileError && onnx::is_known_operator("", model.model, 1 << 20))
    return fail(Diagnostic(found.error()).note("for the operator: tessera ops --op " + model.model), json_path);
  if (!found.ok()) return fail(found.error(), json_path);
  if (auto status = check_shapes(found->model.graph, *shapes); !status.ok()) return fail(status.error(), json_path);
  for (const auto& w : found->model.warnings) say_warning(w);

  std::vector<ModelNode> nodes;
  std::set<std::string> seen;
  add_nodes(found->model.graph, names.size(), seen, nodes);
  std::map<std::string, ModelNode*> by_key;
  for (ModelNode& n : nodes) by_key[key_of(n.where)] = &n;
  for (size_t d = 0; d < names.size(); ++d) {
    auto backend = make_backend(sessions[d].compile);
    if (!backend.ok()) return fail(backend.error(), json_path);
    auto planned = planned_operators(found->model.graph.clone(), **backend, sessions[d].compile);
    if (!planned.ok())
      return fail(std::move(planned).take_error().note("while planning for device " + names[d]), json_path);
    for (const PlannedOperator& p : *planned) {
      auto it = by_key.find(key_of(p.where));
      if (it == by_key.end()) continue; // made for no node alone
      auto& use = it->second->uses[d];
      if (!use || use->by < p.by) use = ModelNode::Use{p.by, p.why};
    }
  }
  Json json{{"model", model.model}, {"supported", found->refused.empty()}};
  json["refused"] = json["operators"] = Json::array();
  for (const RefusedNode& r : found->refused) json["refused"].push_back(refused_json(r));
  const bool quiet = json_path == "-";
  if (!quiet) say_refused(found->refused);
  say_uses(nodes, names, quiet, json);
  if (!found->refused.empty() && !quiet)
    say_note(std::to_string(found->refused.size()) + " of " + std::to_string(found->model.info.nodes) +
             " nodes are not supported");
  int code = kDone;
  for (const RefusedNode& r : found->refused) code = std::max(code, exit_code(r.reason));
  return finish(code, json_path, json);
}

} // namespace

void add_ops(CommandLine& line) {
  auto options = std::make_shared<OpsOptions>();
  options->model.options.device = "";
  Subcommand sub = line.add("ops", "list the operators that are supported, or what of a model is not, and where");
  sub.option("MODEL", options->model.model, "model file: what of it is not supported, and what computes the rest");
  sub.option("--op", options->filter.names, "this operator, Softmax or com.microsoft.Gelu (repeatable)")
      .one_at_a_time();
  sub.option("--domain", options->filter.domains, "operators of this domain: ai.onnx, com.microsoft (repeatable)")
      .one_at_a_time();
  sub.option("--device", options->model.options.device, "this device (default: all)").one_of({"cpu", "cuda"});
  sub.option("--dtype", options->dtype, "this element type: f16, i64, string");
  sub.option("--route", options->route, "what is computed so").one_of({"generated", "library", "host"});
  sub.option("--arch", options->model.arch, "with MODEL: GPU to plan for (default: sm_90a)");
  sub.option("--shape", options->model.shapes, "with MODEL: sizes, as for 'tessera run' (repeatable)").one_at_a_time();
  sub.option("--value", options->model.values, "with MODEL: integers that decide its structure (repeatable)")
      .one_at_a_time();
  add_operators_option(sub, options->model.operators);
  add_json_option(sub, options->model.json);
  sub.option("--markdown", options->markdown, "write the table to this file as a page ('-': standard output)")
      .writes_file();
  sub.footer("Of a model: 0 if all of it is supported, 3 if a node is not, 4 if a node or the file is broken.\n"
             "Examples:\n"
             "  tessera ops --op Softmax\n"
             "  tessera ops --device cuda --route host\n"
             "  tessera ops model.onnx --json -");
  sub.action([options] { return options->model.model.empty() ? list_operators(*options) : survey(*options); });
}

} // namespace tessera::command
