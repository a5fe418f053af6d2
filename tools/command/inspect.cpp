// tessera inspect: what a model file says: inputs, weights, nodes; also of models that are not supported.
#include "codegen/load/load.h"
#include "explain.h"
#include "frontend/description.h"
#include "frontend/model.h"
#include "reports.h"
#include "runtime/executable.h"
#include "runtime/variant.h"
#include <algorithm>

namespace tessera::command {

namespace {

struct InspectOptions {
  std::string model, format = "text", json, op, name;
  std::vector<std::string> operators;
  bool all = false;
  [[nodiscard]] bool filters() const { return !op.empty() || !name.empty(); }
};

constexpr size_t kShownNodes = 40, kShownWeights = 10; // without --all

// Facts that the description lacks: types that inference finds, and nodes that are refused.
struct Inferred {
  std::map<std::string, std::string> types; // of values
  std::vector<RefusedNode> refused;
  Json symbols = Json::array();
  std::string failed; // the error of the import, which then says nothing
};

Inferred infer(const std::string& path) {
  Inferred out;
  ImportOptions import;
  import.missing_weights = ImportOptions::MissingWeights::Empty;
  auto found = survey_model(path, import);
  import.of_call = true; // values that decide the structure, and that no call gives, are guessed
  if (!found.ok() && found.error().code == ErrorCode::MissingValues) found = survey_model(path, import);
  if (!found.ok()) {
    out.failed = found.error().message;
    return out;
  }
  const Graph& graph = found->model.graph;
  for (int32_t v = 0; v < graph.value_count(); ++v)
    if (!graph.value({v}).name.empty()) out.types.emplace(graph.value({v}).name, graph.type({v}).str());
  std::vector<SymExpr> listed;
  for (ValueId input : graph.inputs())
    for (const SymExpr& d : graph.type(input).shape)
      for (const SymExpr& s : d.symbols()) {
        if (std::find(listed.begin(), listed.end(), s) != listed.end()) continue;
        listed.push_back(s);
        const SymRange range = graph.env().range(s);
        Json j{{"name", s.symbol_name()}, {"min", range.lo}};
        j["max"] = range.hi >= kSymMax ? Json() : Json(range.hi);
        j["multiple_of"] = graph.env().divisor(s);
        out.symbols.push_back(std::move(j));
      }
  out.refused = std::move(found->refused);
  return out;
}

// The reason why a node, or one in its function's body, is refused.
const RefusedNode* refused(const Inferred& inferred, const DescribedNode& node) {
  for (const RefusedNode& r : inferred.refused) {
    const Location& at = r.reason.location;
    if (at.node == node.place.node && at.output == node.place.output) return &r;
    const std::string& name = node.place.node.empty() ? node.place.output : node.place.node;
    if (node.depth == 0 && node.function.empty() && at.node.starts_with(name + "/")) return &r;
  }
  return nullptr;
}

// A compiled file holds the operators of its report, without their attributes.
Result<Json> compiled_file(const InspectOptions& o) {
  SessionOptions options;
  options.compile_only = true;
  TESSERA_ASSIGN(auto session, Session::open(o.model, std::move(options)));
  const auto variants = session->variants();
  const Executable& exe = *variants.front()->executable;
  Json j{{"model", o.model}, {"format", "compiled file"}, {"target", exe.target}};
  j["variants"] = Json::array();
  for (const auto& v : variants) j["variants"].push_back(v->label);
  for (const auto& [key, ios] : {std::pair("inputs", session->inputs()), std::pair("outputs", session->outputs())}) {
    j[key] = Json::array();
    for (const IoInfo& io : ios)
      j[key].push_back({{"name", io.name}, {"type", io.list.empty() ? TensorType{io.dtype, io.shape}.str() : io.list}});
  }
  j["symbols"] = Json::array();
  j["weights"] = Json::array();
  for (const Constant& c : exe.constants) {
    const Tensor& t = c.value;
    j["weights"].push_back({{"name", c.name},
                            {"type", type_of(t).str()},
                            {"dtype", name(t.dtype())},
                            {"bytes", has_bytes(t.dtype()) ? t.bytes() : 0},
                            {"file", ""}});
  }
  TESSERA_ASSIGN(const Json report, explain_json(*session, {}, false));
  j["nodes"] = Json::array();
  for (const Json& op : report.value("operators", Json::array()))
    j["nodes"].push_back({{"name", op.value("name", "")},
                          {"operator", op.value("op", "")},
                          {"inputs", Json::array()},
                          {"outputs", Json::array()},
                          {"attributes", Json::object()},
                          {"source", op.value("source", "")}});
  return j;
}

Result<Json> model_file(const InspectOptions& o) {
  TESSERA_TRY(load_all(o.operators));
  TESSERA_ASSIGN(const ModelDescription d, describe_model(o.model));
  const Inferred inferred = infer(o.model);
  Json j{{"model", o.model}, {"format", d.format}, {"version", d.version}, {"producer", d.producer}};
  if (!d.graph.empty()) j["graph"] = d.graph;
  if (!d.domain.empty()) j["domain"] = d.domain;
  if (d.model_version != 0) j["model_version"] = d.model_version;
  if (!d.documentation.empty()) j["documentation"] = d.documentation;
  j["opsets"] = j["metadata"] = Json::object();
  for (const auto& [domain, version] : d.opsets) j["opsets"][domain] = version;
  for (const auto& [key, value] : d.metadata) j["metadata"][key] = value;
  auto type_of_value = [&](const std::string& name, const std::string& declared) {
    auto it = inferred.types.find(name);
    return it == inferred.types.end() ? declared : it->second;
  };
  for (const auto& [key, values] : {std::pair("inputs", &d.inputs), std::pair("outputs", &d.outputs)}) {
    j[key] = Json::array();
    for (const DescribedValue& v : *values) j[key].push_back({{"name", v.name}, {"type", v.type}});
  }
  j["symbols"] = inferred.symbols;
  j["weights"] = Json::array();
  for (const DescribedWeight& w : d.weights)
    j["weights"].push_back(
        {{"name", w.name}, {"type", w.type}, {"dtype", w.dtype}, {"bytes", w.bytes}, {"file", w.file}});
  j["functions"] = d.functions;
  j["not_supported"] = 0;
  j["nodes"] = Json::array();
  for (const DescribedNode& n : d.nodes) {
    Json node{{"name", n.place.node}, {"operator", n.place.op}};
    if (n.depth > 0) node["depth"] = n.depth;
    if (!n.function.empty()) node["function"] = n.function;
    if (!n.place.source.empty()) node["source"] = n.place.source;
    for (const auto& [key, names] : {std::pair("inputs", &n.inputs), std::pair("outputs", &n.outputs)}) {
      node[key] = Json::array();
      for (const std::string& name : *names) {
        const auto declared = d.types.find(name);
        const std::string type = type_of_value(name, declared == d.types.end() ? "" : declared->second);
        node[key].push_back({{"name", name}, {"type", type}});
      }
    }
    node["attributes"] = Json::object();
    for (const auto& [name, value] : n.attributes) node["attributes"][name] = value;
    if (const RefusedNode* r = refused(inferred, n)) {
      node["not_supported"] = r->reason.message;
      j["not_supported"] = j["not_supported"].get<int>() + 1;
    }
    j["nodes"].push_back(std::move(node));
  }
  if (!inferred.failed.empty()) j["not_imported"] = inferred.failed;
  return j;
}

// Drops nodes that --op and --name leave out.
void filter(const InspectOptions& o, Json& j) {
  if (!o.filters()) return;
  Json kept = Json::array();
  for (Json& n : j["nodes"]) {
    bool named = o.name.empty() || matches(o.name, n["name"].get_ref<const std::string&>());
    for (const Json& v : n["outputs"]) named = named || matches(o.name, v["name"].get_ref<const std::string&>());
    if (named && (o.op.empty() || matches(o.op, n["operator"].get_ref<const std::string&>()))) kept.push_back(n);
  }
  j["nodes"] = std::move(kept);
}

std::string values_text(const Json& values) {
  std::string out;
  for (const Json& v : values)
    out += (out.empty() ? "" : ", ") + v["name"].get<std::string>() +
           (v["type"] == "" ? "" : " " + v["type"].get<std::string>());
  return out;
}

std::string head_text(const Json& j) {
  std::string out = shown(j["model"].get<std::string>()) + ": " + shown(j["format"].get<std::string>());
  if (j.contains("target")) out += " for " + shown(j["target"].get<std::string>());
  if (j.contains("version")) out += ", format version " + j["version"].dump();
  if (j.value("producer", "") != "") out += ", made by " + shown(j["producer"].get<std::string>());
  out += "\n";
  for (const char* key : {"graph", "domain", "model_version", "documentation"})
    if (j.contains(key))
      out += std::string(key) + ": " + shown(j[key].is_string() ? j[key].get<std::string>() : j[key].dump()) + "\n";
  std::string opsets;
  if (j.contains("opsets"))
    for (const auto& [domain, version] : j["opsets"].items())
      opsets += (opsets.empty() ? "" : ", ") + shown(domain) + " " + version.dump();
  if (!opsets.empty()) out += "opsets: " + opsets + "\n";
  if (j.contains("metadata"))
    for (const auto& [key, value] : j["metadata"].items())
      out += "metadata: " + shown(key) + " = " + shown(value.get<std::string>()) + "\n";
  if (j.contains("variants")) {
    std::string variants;
    for (const Json& v : j["variants"]) variants += (variants.empty() ? "'" : "', '") + shown(v.get<std::string>());
    out += "variants: " + variants + "'\n";
  }
  for (const char* key : {"inputs", "outputs"}) {
    out += std::string(key) + "\n";
    Table table({"name", "type"});
    for (const Json& v : j[key]) table.add({v["name"].get<std::string>(), v["type"].get<std::string>()});
    out += table.empty() ? "  none\n" : table.str("  ");
  }
  for (const Json& s : j["symbols"]) {
    out += "symbol " + shown(s["name"].get<std::string>()) + ": from " + s["min"].dump();
    if (!s["max"].is_null()) out += " to " + s["max"].dump();
    if (s["multiple_of"] != 1) out += ", a multiple of " + s["multiple_of"].dump();
    out += "\n";
  }
  return out;
}

std::string weights_text(const Json& weights, bool all) {
  std::map<std::string, int> dtypes, files;
  double bytes = 0;
  std::vector<const Json*> largest;
  for (const Json& w : weights) {
    ++dtypes[w["dtype"].get<std::string>()];
    if (w["file"] != "") ++files[w["file"].get<std::string>()];
    bytes += w["bytes"].get<double>();
    largest.push_back(&w);
  }
  std::string out = "weights: " + std::to_string(weights.size()) + ", " + format_bytes(bytes);
  for (const auto& [dtype, n] : dtypes) out += ", " + std::to_string(n) + " of " + shown(dtype);
  for (const auto& [file, n] : files) out += ", " + std::to_string(n) + " in " + shown(file);
  out += "\n";
  std::stable_sort(largest.begin(), largest.end(), [](const Json* a, const Json* b) {
    return (*a)["bytes"].get<int64_t>() > (*b)["bytes"].get<int64_t>();
  });
  Table table({"name", "type", "bytes", "file"}, {2});
  for (size_t i = 0; i < largest.size() && (all || i < kShownWeights); ++i)
    table.add({(*largest[i])["name"].get<std::string>(), (*largest[i])["type"].get<std::string>(),
               format_bytes((*largest[i])["bytes"].get<double>()), (*largest[i])["file"].get<std::string>()});
  if (!table.empty()) out += table.str("  ");
  if (!all && largest.size() > kShownWeights)
    out += "  and " + std::to_string(largest.size() - kShownWeights) + " smaller ones (--all)\n";
  return out;
}

std::string nodes_text(const InspectOptions& o, const Json& j, size_t of) {
  const Json& nodes = j["nodes"];
  std::map<std::string, int> counts;
  for (const Json& n : nodes) ++counts[n["operator"].get<std::string>()];
  std::vector<std::pair<std::string, int>> ordered(counts.begin(), counts.end());
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string out = "nodes: " + std::to_string(nodes.size());
  if (o.filters()) out += " of " + std::to_string(of);
  for (size_t i = 0; i < ordered.size(); ++i)
    out += (i == 0 ? " (" : ", ") + std::to_string(ordered[i].second) + " " + shown(ordered[i].first);
  out += ordered.empty() ? "\n" : ")\n";
  if (j.value("not_supported", 0) > 0)
    out += j["not_supported"].dump() + " nodes are not supported; 'tessera ops MODEL' says more\n";
  if (j.contains("not_imported"))
    out += "the model is not supported: " + shown(j["not_imported"].get<std::string>()) + "\n";
  const bool all = o.all || o.filters();
  std::vector<std::string> columns = {"node", "operator", "inputs", "outputs", "attributes"};
  if (j.value("not_supported", 0) > 0) columns.emplace_back("not supported");
  Table table(columns);
  for (size_t i = 0; i < nodes.size() && (all || i < kShownNodes); ++i) {
    const Json& n = nodes[i];
    std::string attributes;
    for (const auto& [name, value] : n["attributes"].items())
      attributes += (attributes.empty() ? "" : " ") + name + "=" + value.get<std::string>();
    std::string name = std::string(2 * n.value("depth", size_t{0}), ' ') + n["name"].get<std::string>();
    if (n.contains("function")) name = n["function"].get<std::string>() + ": " + name;
    std::vector<std::string> row = {name, n["operator"].get<std::string>(), values_text(n["inputs"]),
                                    values_text(n["outputs"]), attributes};
    if (columns.size() > row.size()) row.push_back(n.value("not_supported", ""));
    table.add(std::move(row));
  }
  if (!table.empty()) out += table.str("  ");
  if (!all && nodes.size() > kShownNodes)
    out += "  and " + std::to_string(nodes.size() - kShownNodes) + " more (--all, --op, --name)\n";
  return out;
}

int run(const InspectOptions& o) {
  const std::string json = o.format == "json" ? "-" : o.json;
  auto found = is_compiled_file(o.model) ? compiled_file(o) : model_file(o);
  if (!found.ok()) return fail(found.error(), json);
  const size_t nodes = (*found)["nodes"].size();
  filter(o, *found);
  if (json != "-") {
    std::string text = o.filters() ? "" : head_text(*found) + weights_text((*found)["weights"], o.all);
    say(text + nodes_text(o, *found, nodes));
  }
  return finish(kDone, json, *found);
}

} // namespace

void add_inspect(CommandLine& line) {
  auto options = std::make_shared<InspectOptions>();
  Subcommand sub = line.add("inspect", "show what a model file says: inputs, outputs, weights, nodes");
  sub.option("MODEL", options->model, "ONNX model, program of torch.export (.pt2) or compiled file").required();
  sub.option("--op", options->op, "only nodes of this operator: Conv, com.microsoft.*");
  sub.option("--name", options->name, "only nodes that are called so, or compute a value that is: /encoder/*");
  sub.flag("--all", options->all, "all nodes and weights");
  add_operators_option(sub, options->operators);
  sub.option("--format", options->format, "text, or json on standard output").one_of({"text", "json"});
  add_json_option(sub, options->json);
  sub.footer("Models that are not supported are shown, too: such nodes say why. Weights may be missing.\n"
             "Examples:\n"
             "  tessera inspect model.onnx\n"
             "  tessera inspect model.pt2 --op 'aten.conv*'\n"
             "  tessera inspect model.onnx --format json");
  sub.action([options] { return run(*options); });
}

} // namespace tessera::command
