// tessera debug: every value that a model computes, compared with a reference; the first operator that departs.
#include "base/stopwatch.h"
#include "inputs.h"
#include "measure/accuracy/accuracy.h"
#include "onnx_runtime.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

namespace tessera::command {

namespace {

using accuracy::AccuracyReport;
using accuracy::ValueError;

constexpr size_t kWorst = 5;  // operators that the first screen shows
constexpr size_t kChain = 10; // producers of the first operator that departs, at most

struct DebugOptions {
  ModelOptions model;
  std::vector<std::string> inputs;
  std::string folder; // with inputs/NAME.npy
  std::string against = "reference", against_model, python = "python3";
  std::optional<double> rtol;
  uint64_t seed = 0;
  bool full = false;
};

std::string number(double v, int digits = 4) {
  if (std::isnan(v)) return "nan"; // of either sign
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, v);
  return text;
}
std::string element(double v) { return number(v, 7); }

// An operator of the model, with the values that its primitives compute.
struct OperatorError {
  std::string name, op, source; // the exporter's name, type, line of the user's program
  std::vector<size_t> values;   // indices in AccuracyReport::values
  size_t worst = 0;             // of them, by error over tolerance
};

// Error over tolerance; of a value that is not judged that of the operator itself.
double severity(const ValueError& v) {
  if (*v.unjudged != 0) return v.tolerance > 0 ? v.own.value_or(0) / v.tolerance : 0;
  if (std::isnan(v.error)) return INFINITY;
  return v.tolerance > 0 ? v.error / v.tolerance : v.error > 0 ? INFINITY : 0;
}

std::string operator_name(const Graph& graph, ValueId value) {
  const Location& where = graph.node(graph.value(value).producer).location;
  if (!where.node.empty()) return where.node;
  return where.output.empty() ? graph.value(value).name : where.output;
}
std::string source_of(const Location& where) {
  if (!where.source.empty()) return where.source;
  return where.line > 0 ? where.file + ":" + std::to_string(where.line) : "";
}

std::vector<OperatorError> operators_of(const Graph& graph, const AccuracyReport& report) {
  std::vector<OperatorError> out;
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < report.values.size(); ++i) {
    const ValueError& v = report.values[i];
    const Node& node = graph.node(graph.value(v.value).producer);
    auto [it, fresh] = known.emplace(operator_name(graph, v.value), out.size());
    if (fresh) {
      const std::string op = node.location.op.empty() ? std::string(node.op->name) : node.location.op;
      out.push_back({it->first, op, source_of(node.location), {}, i});
    }
    OperatorError& o = out[it->second];
    o.values.push_back(i);
    if (severity(v) > severity(report.values[o.worst])) o.worst = i;
  }
  return out;
}

std::string index_text(const Dims& at) {
  std::string out;
  for (int64_t i : at) out += (out.empty() ? "" : ", ") + std::to_string(i);
  return "[" + out + "]";
}

// The exporter's name; of a step within an operator what the step is.
std::string value_name(const Graph& graph, ValueId v) {
  const Value& value = graph.value(v);
  return value.name.empty() ? "(" + std::string(graph.node(value.producer).op->name) + ")" : value.name;
}

// The name of the reference in a sentence.
std::string reference_name(const DebugOptions& o) {
  if (!o.against_model.empty()) return o.against_model;
  if (o.against == "onnxruntime") return "ONNX Runtime";
  return o.against == "reference" ? "the f64 reference" : o.against;
}

// The first value that departs, then among its operands the one of the largest error, and so on.
std::vector<size_t> chain_of(const Graph& graph, const AccuracyReport& report) {
  std::map<ValueId, size_t> index;
  for (size_t i = 0; i < report.values.size(); ++i) index.emplace(report.values[i].value, i);
  std::vector<size_t> out;
  std::optional<size_t> at = report.first;
  while (at && out.size() < kChain) {
    out.push_back(*at);
    std::optional<size_t> next;
    for (ValueId v : graph.node(graph.value(report.values[*at].value).producer).operands)
      if (auto it = index.find(v); it != index.end())
        if (!next || report.values[it->second].error > report.values[*next].error) next = it->second;
    at = next;
  }
  return out;
}

Json to_json(const Graph& graph, const ValueError& v) {
  const Node& node = graph.node(graph.value(v.value).producer);
  Json j{{"value", value_name(graph, v.value)},
         {"operator", operator_name(graph, v.value)},
         {"primitive", node.op->name},
         {"type", graph.type(v.value).str()},
         {"error", v.error},
         {"tolerance", v.tolerance},
         {"departs", v.departs()},
         {"largest_difference", v.max_abs},
         {"elements", v.compared}};
  // JSON has no infinity.
  if (!std::isfinite(v.error)) j["error"] = nullptr;
  if (!std::isfinite(v.max_abs)) j["largest_difference"] = nullptr;
  if (*v.unjudged != 0) j["not_judged"] = v.unjudged;
  if (!v.other_sizes.empty()) j["sizes"] = v.other_sizes;
  if (v.own) j["own_error"] = std::isfinite(*v.own) ? Json(*v.own) : Json();
  if (v.error != 0 && v.other_sizes.empty()) {
    j["index"] = v.at;
    j["seen"] = std::isfinite(v.seen) ? Json(v.seen) : Json(element(v.seen));
    j["expected"] = std::isfinite(v.expected) ? Json(v.expected) : Json(element(v.expected));
  }
  return j;
}

Json to_json(const Graph& graph, const AccuracyReport& report) {
  Json j;
  j["verdict"] = report.first ? "departs" : "agrees";
  if (report.first) {
    j["first"] = to_json(graph, report.values[*report.first]);
    j["chain"] = Json::array();
    for (size_t i : chain_of(graph, report)) j["chain"].push_back(to_json(graph, report.values[i]));
  }
  j["operators"] = Json::array();
  for (const OperatorError& o : operators_of(graph, report)) {
    Json entry{{"name", o.name}, {"op", o.op}};
    if (!o.source.empty()) entry["source"] = o.source;
    const double error = report.values[o.worst].error;
    entry["error"] = std::isfinite(error) ? Json(error) : Json();
    entry["departs"] = report.values[o.worst].departs();
    entry["values"] = Json::array();
    for (size_t i : o.values) entry["values"].push_back(to_json(graph, report.values[i]));
    j["operators"].push_back(std::move(entry));
  }
  j["not_judged"] = Json::array();
  for (const ValueError& v : report.values)
    if (*v.unjudged != 0) j["not_judged"].push_back(to_json(graph, v));
  j["not_compared"] = Json::array();
  for (const auto& n : report.not_compared)
    j["not_compared"].push_back(
        {{"value", value_name(graph, n.value)}, {"operator", operator_name(graph, n.value)}, {"reason", n.why}});
  j["runs"] = report.runs;
  j["taps"] = report.taps;
  j["taps_inside_kernels"] = report.inner;
  j["outputs_bit_identical"] = report.reproducible ? Json(true) : Json(); // null: no two runs have the same bits
  return j;
}

std::string worst_text(const ValueError& v) {
  if (!v.other_sizes.empty()) return v.other_sizes;
  return v.error == 0 ? "" : index_text(v.at) + ": " + element(v.seen) + ", not " + element(v.expected);
}

void add_row(Table& table, const Graph& graph, const ValueError& v) {
  const Node& node = graph.node(graph.value(v.value).producer);
  table.add({operator_name(graph, v.value), node.location.op.empty() ? std::string(node.op->name) : node.location.op,
             value_name(graph, v.value), number(v.error), v.own ? number(*v.own) : "-",
             *v.unjudged == 0 ? number(v.tolerance) : "not judged", worst_text(v)});
}

const std::vector<std::string> kColumns = {"operator", "type", "value", "error", "own", "allowed", "worst element"};

// Values beyond their tolerance that do not depart, by reason.
std::string unjudged_text(const Graph& graph, const AccuracyReport& report) {
  std::map<std::string, std::vector<const ValueError*>> by_reason;
  size_t count = 0;
  for (const ValueError& v : report.values)
    if (*v.unjudged != 0) by_reason[v.unjudged].push_back(&v), ++count;
  if (count == 0) return "";
  std::string text = std::to_string(count) + " values differ and are not judged, as the operator itself is right\n";
  for (const auto& [why, values] : by_reason)
    text += "  " + std::to_string(values.size()) + ": " + why + "; the first is " +
            shown(value_name(graph, values.front()->value)) + " of " +
            shown(operator_name(graph, values.front()->value)) + "\n";
  return text;
}

std::string text_of(const DebugOptions& o, const Graph& graph, const AccuracyReport& report) {
  const auto operators = operators_of(graph, report);
  std::string text;
  if (report.first) {
    const ValueError& v = report.values[*report.first];
    const Location& where = graph.node(graph.value(v.value).producer).location;
    const std::string source = source_of(where);
    text += "departs at " + shown(operator_name(graph, v.value)) + " (" + shown(where.op) +
            (source.empty() ? "" : ", " + shown(source)) + ")\n";
    text += "  value " + shown(value_name(graph, v.value)) + " : " + graph.type(v.value).str() + " differs from " +
            shown(reference_name(o)) + " by " + number(v.error) + " of its norm, " + number(v.tolerance) +
            " are allowed\n";
    if (v.other_sizes.empty())
      text += "  " + std::string(v.not_finite ? "first " : "largest difference ") + "at " + index_text(v.at) + ": " +
              element(v.seen) + ", expected " + element(v.expected) + "\n";
    else
      text += "  it is " + v.other_sizes + "\n";
    if (v.own)
      text += *v.own > v.tolerance
                  ? "  the operator itself departs: on the device's operands its error is " + number(*v.own) + "\n"
                  : "  the operator makes the error of its operands larger: on the device's operands its own is " +
                        number(*v.own) + "\n";
    Table chain(kColumns, {3, 4, 5});
    for (size_t i : chain_of(graph, report)) add_row(chain, graph, report.values[i]);
    text += "\nthe operator and what it is computed from\n" + chain.str("  ");
  } else {
    text += "agrees with " + shown(reference_name(o)) + "\n";
  }
  std::vector<const OperatorError*> order;
  for (const OperatorError& e : operators) order.push_back(&e);
  if (!o.full) {
    std::stable_sort(order.begin(), order.end(), [&](const OperatorError* a, const OperatorError* b) {
      return severity(report.values[a->worst]) > severity(report.values[b->worst]);
    });
    order.resize(std::min(order.size(), kWorst));
  }
  Table table(kColumns, {3, 4, 5});
  for (const OperatorError* e : order) {
    if (!o.full) add_row(table, graph, report.values[e->worst]);
    if (o.full)
      for (size_t i : e->values) add_row(table, graph, report.values[i]);
  }
  if (!table.empty()) text += std::string(o.full ? "\nall operators\n" : "\nlargest errors\n") + table.str("  ");
  text += "\n" + std::to_string(report.values.size()) + " values of " + std::to_string(operators.size()) +
          " operators compared, " + std::to_string(report.inner) + " of them inside kernels, in " +
          std::to_string(report.runs) + " runs; ";
  text += report.reproducible ? "the outputs have the same bits with and without taps\n"
                              : "two runs of this model differ, so the taps are not checked by its bits\n";
  text += unjudged_text(graph, report);
  std::map<std::string, size_t> reasons;
  for (const auto& n : report.not_compared) ++reasons[n.why];
  if (!reasons.empty()) text += std::to_string(report.not_compared.size()) + " values are not compared\n";
  for (const auto& [why, count] : reasons) text += "  " + std::to_string(count) + ": " + shown(why) + "\n";
  if (o.full)
    for (const auto& n : report.not_compared)
      text += "  " + shown(value_name(graph, n.value)) + " of " + shown(operator_name(graph, n.value)) + ": " +
              shown(n.why) + "\n";
  return text;
}

// A session that has run the inputs, the variant that ran them, and what taps need to run it again.
struct Opened {
  std::unique_ptr<Session> session;
  std::shared_ptr<const SessionVariant> variant;
  SymValues sizes;
  accuracy::TapOptions taps;
};

Result<Opened> open(const ModelOptions& model, const std::vector<ShapeArgument>& shapes) {
  TESSERA_TRY(need_model(model.model, "debug"));
  TESSERA_ASSIGN(SessionOptions options, session_options(model, shapes));
  options.compile.keep_values = true;
  options.tune_share = 0; // kernels stay as they are
  options.executor.pool = ThreadPool::create(model.options.threads);
  Opened out;
  out.taps.compile = options.compile;
  out.taps.executor = options.executor;
  TESSERA_ASSIGN(out.session, open_session(model, std::move(options)));
  return out;
}

// The inputs with the first values of states, which taps and references take as inputs, too.
Tensors with_states(const Executable& e, Tensors inputs) {
  for (size_t s = 0; s < e.states.size(); ++s)
    inputs.emplace(e.inputs[e.call_inputs() + s].name, e.constants[static_cast<size_t>(e.states[s])].value);
  return inputs;
}

Status run(Opened& opened, const Tensors& inputs) {
  RunStats stats;
  TESSERA_TRY(opened.session->run(inputs, &stats));
  opened.variant = opened.session->variants()[static_cast<size_t>(stats.variant)];
  TESSERA_ASSIGN(opened.sizes,
                 bind_symbols(*opened.variant->compiled->graph, with_states(*opened.variant->executable, inputs)));
  return {};
}

// Says how long a long run will take: on a terminal all the time, elsewhere twice at most. Runs with taps and the reference have
// speeds of their own.
class Estimate {
public:
  void taps(const accuracy::TapProgress& now) {
    count();
    taps_ = now;
    in_taps_ = true;
    show();
  }
  void done(double share) {
    count();
    in_taps_ = false;
    share_ = share;
    show();
  }
  void clear() { progress_.clear(); }

private:
  // The time since the last call, for what was done in it.
  void count() {
    const double now = watch_.seconds();
    (in_taps_ ? tap_seconds_ : reference_seconds_) += now - last_;
    last_ = now;
  }
  void show() {
    const auto done = static_cast<double>(taps_.done), all = static_cast<double>(taps_.all);
    std::string text = std::to_string(taps_.done) + " of " + std::to_string(taps_.all) + " values tapped, " +
                       format_number(100 * share_, 0) + " % compared";
    const bool known = done > 0 && share_ > 0.01;
    double left = done > 0 ? tap_seconds_ / done * (all - done) : 0;
    if (share_ > 0.01) left += reference_seconds_ / share_ * (1 - share_);
    if (left > 0) text += "; about " + format_number(left, 0) + " s more" + (known ? "" : ", and the comparison");
    progress_.show(text);
    bool& said = known ? said_all_ : said_part_;
    if (said || last_ < kQuiet || (known ? left < kLong : last_ < kUnknown)) return;
    said = true;
    progress_.clear();
    say_note("after " + format_number(last_, 0) + " s: " + text);
  }

  // Seconds: nothing is said before; a rest that is worth a note; no estimate is known even then.
  static constexpr double kQuiet = 5, kLong = 10, kUnknown = 15;
  const Stopwatch watch_;
  Progress progress_;
  accuracy::TapProgress taps_;
  double share_ = 0, tap_seconds_ = 0, reference_seconds_ = 0, last_ = 0;
  bool in_taps_ = false, said_part_ = false, said_all_ = false;
};

Result<std::pair<bool, Json>> debug(const DebugOptions& o) {
  TESSERA_ASSIGN(auto shapes, parse_shapes(o.model.shapes));
  TESSERA_ASSIGN(Opened model, open(o.model, shapes));
  TESSERA_ASSIGN(Tensors inputs, o.folder.empty() ? read_inputs(*model.session, o.inputs)
                                                  : read_input_folder(*model.session, o.folder + "/inputs"));
  std::vector<std::string> notes;
  TESSERA_ASSIGN(Sizes sizes, choose_sizes(*model.session, inputs, shapes, notes));
  const size_t given = inputs.size();
  TESSERA_TRY(make_inputs(*model.session, sizes, o.seed, inputs));
  if (given < inputs.size())
    notes.push_back(std::to_string(inputs.size() - given) + " of " + std::to_string(inputs.size()) +
                    " inputs are random, from seed " + std::to_string(o.seed));
  for (const auto& n : notes) say_note(n);
  TESSERA_TRY(run(model, inputs));

  Estimate estimate;
  accuracy::AccuracyOptions options;
  options.rtol = o.rtol;
  options.taps = model.taps;
  options.taps.progress = [&](const accuracy::TapProgress& now) { estimate.taps(now); };
  options.progress = [&](double share) { estimate.done(share); };
  const Compiled& compiled = *model.variant->compiled;
  const Tensors all = with_states(*compiled.executable, inputs);
  AccuracyReport report;
  if (o.against == "reference" && o.against_model.empty()) {
    TESSERA_ASSIGN(report, accuracy::compare_with_reference(compiled, all, model.sizes, options));
  } else if (o.against == "onnxruntime") {
    TESSERA_ASSIGN(auto values, OnnxRuntimeValues::create(o.model.model, o.python, *compiled.graph, inputs));
    TESSERA_ASSIGN(report, accuracy::compare_with_values(compiled, *values, all, model.sizes, options));
  } else {
    ModelOptions other = o.model;
    if (!o.against_model.empty()) other.model = o.against_model;
    if (o.against == "cpu" || o.against == "cuda") other.options.device = o.against;
    if (o.against == "strict-rounding") other.options.strict_rounding = true;
    TESSERA_ASSIGN(Opened expected, open(other, shapes));
    TESSERA_TRY(run(expected, inputs));
    TESSERA_ASSIGN(report,
                   accuracy::compare_with_run(compiled, {*expected.variant->compiled, expected.sizes, expected.taps},
                                              all, model.sizes, options));
  }
  estimate.clear();
  Json json{{"model", o.model.model}, {"target", compiled.executable->target}, {"against", reference_name(o)}};
  json["sizes"] = sizes;
  json.update(to_json(*compiled.graph, report));
  if (o.model.json != "-") say(text_of(o, *compiled.graph, report));
  return std::pair(!report.first, std::move(json));
}

} // namespace

void add_debug(CommandLine& line) {
  auto options = std::make_shared<DebugOptions>();
  Subcommand sub = line.add("debug", "compare every intermediate value with a reference");
  add_model_options(sub, options->model);
  auto inputs =
      sub.option("--input", options->inputs, "NAME=FILE.npy (repeatable); inputs not given are random").one_at_a_time();
  sub.option("--case", options->folder, "folder with inputs/NAME.npy").excludes(inputs);
  sub.option("--seed", options->seed, "of random inputs").show_default();
  auto against = sub.option("--against", options->against,
                            "what to compare with: the f64 reference, a device, the same device rounding after every "
                            "operator, or ONNX Runtime on the CPU")
                     .one_of({"reference", "cpu", "cuda", "strict-rounding", "onnxruntime"})
                     .show_default();
  sub.option("--against-model", options->against_model, "compare with another model's values of the same names")
      .excludes(against);
  sub.option("--python", options->python, "Python that has the package onnxruntime").show_default();
  sub.option("--rtol", options->rtol,
             "allowed |seen - expected| / |expected| of each value (default: by its type: 1e-5 for f32, 2e-3 for f16)");
  sub.flag("--full", options->full, "all values, and all that are not compared");
  sub.footer("Examples:\n"
             "  tessera debug model.onnx --shape batch=1 --shape seq=32\n"
             "  tessera debug model.onnx --input x=x.npy --against strict-rounding\n"
             "  tessera debug model.onnx --against onnxruntime\n"
             "  tessera debug model.onnx --against-model before.onnx --json -",
             "a value departs");
  sub.action([options] {
    auto done = debug(*options);
    if (!done.ok()) return fail(done.error(), options->model.json);
    return finish(done->first ? kDone : kDiffers, options->model.json, done->second);
  });
}

} // namespace tessera::command
