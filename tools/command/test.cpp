// tessera test: folders of the form of ONNX's backend tests, whatever the model's format. They run in processes next to
// this one, so that a crash or a hang is a result as well.
#include "api/device.h"
#include "base/processors.h"
#include "frontend/onnx/importer.h"
#include "graph/ir/operator.h"
#include "inputs.h"
#include "test_cases.h"
#include "workers.h"
#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <cstdio>
#include <thread>

namespace tessera::command {

namespace {

struct TestOptions {
  std::vector<std::string> dirs, operators;
  std::string json, filter, device = "cpu";
  double rtol = 1e-3, atol = 1e-7;
  int timeout = 60, jobs = 0;
  bool list = false, verbose = false, no_cache = false;
  std::string cache_dir;
};

enum class Outcome { Pass, Fail, Unsupported, Crash, Timeout };
constexpr const char* kOutcomeNames[] = {"pass", "fail", "not supported", "crash", "timeout"};

struct TestResult {
  std::string name, folder;
  Outcome outcome = Outcome::Crash;
  std::string reason;  // one line
  std::string subject; // of "not supported": the operator or type
  int host_steps = 0;  // operators that ran by their reference
  double ms = 0;
  ModelCase test;
};

// ---- one folder, in a worker
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Json outcome_json(Outcome outcome, const std::string& reason, const std::string& subject = "", int host_steps = 0) {
  return {{"outcome", static_cast<int>(outcome)}, {"reason", reason}, {"subject", subject}, {"host_steps", host_steps}};
}

// A message without what it quotes, so that one about many values counts as one: "input 'x' is" to "input is".
std::string without_names(const std::string& message) {
  std::string out;
  bool quoted = false;
  for (char c : first_line(message)) {
    if (c == '\'')
      quoted = !quoted;
    else if (!quoted && (c != ' ' || (!out.empty() && out.back() != ' ')))
      out += c;
  }
  return out;
}

// A limit of the code is "not supported"; every other error of a model that is known to be right is a failure.
Json error_outcome(const Diagnostic& d) {
  bool unsupported = info(d.code).exit_code == kUnsupported;
  std::string subject = d.location.op;
  if (subject.empty()) // of no operator: an input's type, the model's opset
    subject = without_names(d.message);
  else if (d.code != ErrorCode::UnsupportedOp)
    subject += " (" + std::string(info(d.code).name) + ")";
  return outcome_json(unsupported ? Outcome::Unsupported : Outcome::Fail, first_line(d.str()),
                      unsupported ? subject : "");
}

// A value and its name; arrays (.npy) have none. `type`: of the model's input or output, whose element type an array has
// where numpy lacks it.
Result<Tensor> read_value(const std::string& file, const TensorType& type, std::string& name) {
  if (type.items) return onnx::read_list_file(file, *type.items, &name);
  return file.ends_with(".npy") ? read_npy(file, type.dtype) : onnx::read_tensor_file(file, &name);
}

// The error that a type's rounding alone may cause in a result: relative to the element, and, where terms cancel, to
// the largest one.
struct Tolerance {
  double rtol, atol;
};
// The command's tolerance counts where the test's own data.json gives none.
Tolerance tolerance(const TestOptions& o, const ModelCase& test, const Tensor& expected) {
  const double rtol = test.rtol.value_or(o.rtol), atol = test.atol.value_or(o.atol);
  DType d = expected.dtype();
  if (!is_float(d)) return {rtol, atol};
  double epsilon = d == DType::F64    ? 0x1p-52
                   : d == DType::F32  ? 0x1p-23
                   : d == DType::F16  ? 0x1p-10
                   : d == DType::BF16 ? 0x1p-7
                                      : 0x1p-2;
  double largest = 0;
  for (int64_t i = 0; i < expected.count(); ++i) {
    double v = std::fabs(expected.get_f64(i));
    if (std::isfinite(v)) largest = std::max(largest, v);
  }
  return {std::max(rtol, 2 * epsilon), std::max(atol, 2 * epsilon * largest)};
}

// For each output, whether it depends on random numbers: then only its type and shape can be compared.
std::vector<bool> random_outputs(const Graph& graph) {
  std::vector<bool> random(static_cast<size_t>(graph.value_count()), false);
  for (NodeId id : graph.order()) {
    const Node& n = graph.node(id);
    bool any = n.op->side_effect;
    for (ValueId v : n.operands) any = any || (v.valid() && random[static_cast<size_t>(v.index)]);
    for (ValueId v : n.results)
      if (v.valid()) random[static_cast<size_t>(v.index)] = any;
  }
  std::vector<bool> out;
  for (const auto& o : graph.outputs()) out.push_back(random[static_cast<size_t>(o.value.index)]);
  return out;
}

// `host_steps`: raised to those of the variant that runs.
Result<Json> run_data_set(const TestOptions& o, const ModelCase& test, Session& session, const DataSet& set,
                          int& host_steps) {
  auto ios = session.inputs(), results = session.outputs();
  const Graph& graph = *session.variants().front()->compiled->graph;
  std::vector<TensorType> input_types, output_types;
  for (const IoInfo& io : ios) {
    input_types.push_back({io.dtype, io.shape});
    for (ValueId v : graph.inputs())
      if (graph.value(v).name == io.name) input_types.back() = graph.type(v);
  }
  for (const IoInfo& io : results) {
    output_types.push_back({io.dtype, io.shape});
    for (const auto& o : graph.outputs())
      if (o.name == io.name) output_types.back() = graph.type(o.value);
  }
  Tensors tensors;
  const auto& files = set.inputs;
  if (set.counted)
    for (const IoInfo& io : ios) {
      TESSERA_ASSIGN(tensors[io.name], counted_input(io));
    }
  for (size_t i = 0; i < files.size(); ++i) {
    std::string name;
    TESSERA_ASSIGN(Tensor t, read_value(files[i], i < ios.size() ? input_types[i] : TensorType{}, name));
    // By name where an input has it; the files of older tests have none and stand in the order of the inputs.
    bool named = std::any_of(ios.begin(), ios.end(), [&](const IoInfo& io) { return io.name == name; });
    if (!named && i >= ios.size())
      return Diagnostic(ErrorCode::BadInput, "'" + files[i] + "' is for no input of the model");
    tensors[named ? name : ios[i].name] = std::move(t);
  }
  RunStats stats;
  TESSERA_ASSIGN(auto outputs, session.run(tensors, &stats));
  const auto ran = session.variants()[static_cast<size_t>(stats.variant)];
  host_steps = std::max(host_steps, ran->compiled->executable->host_steps);
  const auto& expected_files = set.outputs;
  auto random = random_outputs(*ran->compiled->graph);
  bool by_type_only = false;
  for (size_t i = 0; i < expected_files.size(); ++i) {
    std::string name;
    TESSERA_ASSIGN(Tensor expected,
                   read_value(expected_files[i], i < results.size() ? output_types[i] : TensorType{}, name));
    auto named = std::find_if(results.begin(), results.end(), [&](const IoInfo& io) { return io.name == name; });
    size_t at = named != results.end() ? static_cast<size_t>(named - results.begin()) : i;
    if (at >= outputs.size()) return outcome_json(Outcome::Fail, "output " + std::to_string(i) + " is missing");
    if (at < random.size() && random[at]) {
      by_type_only = true;
      if (outputs[at].dtype() == expected.dtype() && outputs[at].dims() == expected.dims()) continue;
    }
    auto [rtol, atol] = tolerance(o, test, expected);
    Comparison c = compare(outputs[at], expected, rtol, atol);
    if (!c.same)
      return outcome_json(Outcome::Fail, set.name + ": output '" + results[at].name + "': " + first_line(c.message));
  }
  if (by_type_only) return outcome_json(Outcome::Pass, "random numbers: only type and shape are compared");
  return outcome_json(Outcome::Pass, "");
}

Json run_case(const TestOptions& o, const ModelCase& test) {
  if (test.model.empty())
    return outcome_json(Outcome::Unsupported, "the model is not here: " + test.missing, "model that is not here");
  SessionOptions options;
  options.compile.threads = 1;
  options.compile.tf32 = Tf32::Off; // expected outputs are exact to f32
  options.compile.cache = !o.no_cache;
  options.compile.cache_dir = o.cache_dir;
  auto device = choose_device(o.device);
  if (!device.ok()) return outcome_json(Outcome::Fail, first_line(device.error().message));
  device->apply(options.compile);
  auto session = Session::open(test.model, std::move(options));
  if (!session.ok()) return error_outcome(session.error());
  int host_steps = 0;
  std::string reason;
  for (const DataSet& set : test.sets) {
    auto result = run_data_set(o, test, **session, set, host_steps);
    if (!result.ok()) return error_outcome(result.error());
    if ((*result)["outcome"] != static_cast<int>(Outcome::Pass)) return *result;
    reason = (*result)["reason"];
  }
  if (test.sets.empty()) return outcome_json(Outcome::Fail, "there is no test_data_set_0");
  return outcome_json(Outcome::Pass, reason, "", host_steps);
}

Status run_all(const TestOptions& o, std::vector<TestResult>& results) {
  Progress progress;
  size_t done = 0;
  WorkerOptions w;
  w.tasks = results.size();
  w.jobs = o.jobs > 0 ? static_cast<size_t>(o.jobs) : static_cast<size_t>(usable_processors());
  w.timeout = std::chrono::seconds(o.timeout);
  w.work = [&](size_t task) { return json_text(run_case(o, results[task].test)); };
  w.done = [&](size_t task, const TaskEnd& end) {
    TestResult& result = results[task];
    progress.show(std::to_string(++done) + " of " + std::to_string(results.size()) + "  " + result.name);
    result.ms = end.ms;
    result.reason = end.text;
    if (end.how != TaskEnd::How::Answered) {
      result.outcome = end.how == TaskEnd::How::TimedOut ? Outcome::Timeout : Outcome::Crash;
      return false;
    }
    Json j = Json::parse(end.text, nullptr, false);
    if (j.is_discarded()) {
      result.reason = "wrote what does not parse";
      return false;
    }
    result.outcome = static_cast<Outcome>(j["outcome"].get<int>());
    result.reason = j["reason"];
    result.subject = j["subject"];
    result.host_steps = j["host_steps"];
    return result.outcome != Outcome::Fail; // a GPU that has failed once may fail for all that follow
  };
  return run_in_workers(w);
}

// ---- folders
Result<std::vector<TestResult>> find_folders(const TestOptions& o) {
  TESSERA_ASSIGN(std::vector<ModelCase> cases, find_cases(o.dirs));
  std::vector<TestResult> out;
  for (ModelCase& c : cases) {
    if ((c.folder + "/" + c.name).find(o.filter) == std::string::npos) continue;
    TestResult& r = out.emplace_back();
    r.name = c.name;
    r.folder = c.folder;
    r.test = std::move(c);
  }
  return out;
}

int run(const TestOptions& o) {
  if (auto status = load_all(o.operators); !status.ok()) return fail(status.error(), o.json);
  auto folders = find_folders(o);
  if (!folders.ok()) return fail(folders.error(), o.json);
  std::vector<TestResult>& results = *folders;
  if (o.list) {
    for (const auto& r : results) say(shown(r.folder, PATH_MAX) + "\n");
    return kDone;
  }
  if (auto status = run_all(o, results); !status.ok()) return fail(status.error(), o.json);

  std::array<int, std::size(kOutcomeNames)> counts{};
  int with_host_steps = 0;
  std::map<std::string, int> unsupported;
  Json json;
  json["tests"] = Json::array();
  std::string text;
  for (const auto& r : results) {
    ++counts[static_cast<size_t>(r.outcome)];
    if (r.outcome == Outcome::Unsupported) ++unsupported[r.subject];
    with_host_steps += r.outcome == Outcome::Pass && r.host_steps > 0 ? 1 : 0;
    json["tests"].push_back({{"name", r.name},
                             {"folder", r.folder},
                             {"outcome", kOutcomeNames[static_cast<size_t>(r.outcome)]},
                             {"reason", r.reason},
                             {"subject", r.subject},
                             {"host_steps", r.host_steps},
                             {"ms", r.ms}});
    bool bad = r.outcome != Outcome::Pass && r.outcome != Outcome::Unsupported;
    if (bad || o.verbose)
      text += std::string(kOutcomeNames[static_cast<size_t>(r.outcome)]) + "  " + shown(r.name) +
              (r.reason.empty() ? "" : ": " + shown(r.reason)) + "\n";
  }
  std::vector<std::pair<std::string, int>> subjects(unsupported.begin(), unsupported.end());
  std::stable_sort(subjects.begin(), subjects.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (!subjects.empty()) {
    text += "not supported:\n";
    Table table({"operator or type", "tests"}, {1});
    for (const auto& [subject, n] : subjects) table.add({subject, std::to_string(n)});
    text += table.str("  ");
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(counts[i]) + " " + kOutcomeNames[i];
    json["counts"][kOutcomeNames[i]] = counts[i];
  }
  json["not_supported"] = Json::object();
  for (const auto& [subject, n] : subjects) json["not_supported"][subject] = n;
  text += " of " + std::to_string(results.size()) + "; of those that pass, " + std::to_string(with_host_steps) +
          " have operators run by their reference\n";
  json["pass_with_host_steps"] = with_host_steps;
  if (o.json != "-") say(text);
  bool bad = counts[static_cast<size_t>(Outcome::Fail)] + counts[static_cast<size_t>(Outcome::Crash)] +
                 counts[static_cast<size_t>(Outcome::Timeout)] >
             0;
  return finish(bad ? kDiffers : kDone, o.json, json);
}

} // namespace

void add_test(CommandLine& line) {
  auto options = std::make_shared<TestOptions>();
  Subcommand sub = line.add("test", "run folders of a model with inputs and outputs, as ONNX's backend tests");
  sub.option("DIR", options->dirs,
             "folders that hold, at any depth, model.onnx or model.pt2 with test_data_set_N/input_M.pb, output_M.pb "
             "(or .npy); also the other layouts of ONNX's tests: NAME.onnx with NAME_output_0.pb, data.json with a url")
      .required();
  add_operators_option(sub, options->operators);
  sub.option("--filter", options->filter, "only folders whose path has this text");
  sub.option("--device", options->device, "where to run").one_of({"auto", "cpu", "cuda"}).show_default();
  sub.flag("--list", options->list, "name the folders and run none");
  sub.flag("-v,--verbose", options->verbose, "a line for each folder, not only for failures");
  sub.option("--rtol", options->rtol,
             "relative tolerance, where a test has no data.json with its own; small float types get at least twice "
             "their rounding")
      .not_negative()
      .show_default();
  sub.option("--atol", options->atol, "absolute tolerance").not_negative().show_default();
  sub.option("--timeout", options->timeout, "seconds a folder may take").range(1, 86400).show_default();
  sub.option("--jobs", options->jobs, "folders at a time, 0 for one a core").not_negative().show_default();
  sub.flag("--no-cache", options->no_cache, "neither read nor write compiled kernels on disk");
  sub.option("--cache-dir", options->cache_dir, "folder of compiled kernels");
  add_json_option(sub, options->json);
  sub.footer("Folders run in worker processes: a crash or a hang is reported and the rest goes on. What is not\n"
             "supported is counted by operator or type and is no failure.\n"
             "Examples:\n"
             "  tessera test backend-tests --json results.json\n"
             "  tessera test backend-tests/node/test_softmax_axis_0 -v",
             "a folder failed, crashed or hung");
  sub.action([options] { return run(*options); });
}

} // namespace tessera::command
