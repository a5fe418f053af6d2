// Runs models for the generator (main.py), or writes the records' samples (records_json.h).
//
//   generator_runner samples            JSON lines on standard output
//   generator_runner run                one request a line on standard input, one answer a line on standard output
//
// A request: {"model": file, "out": folder, "runs": [...], "calls": [{input name: .npy file}]}. Its answer has a list
// for each run: {"outputs": [.npy files]} or {"error": text, "name": "bad-input"} for each call. Runs:
//   cpu        one session that is called for every size
//   reference  the graph as imported, by the operators' references
//   emulator   compiled as for a GPU; generated kernels on the emulator, library calls by plain loops
//   sm_90a     (any GPU's target) compiled to PTX and not run: one answer, without outputs
// With "strict_rounding": true, every operator's result is rounded to its dtype in all of them.
#include "../fusion/harness.h"
#include "../gpu/emulated.h"
#include "api/session.h"
#include "api/session/variant.h"
#include "codegen/driver/compile.h"
#include "codegen/driver/devices.h"
#include "codegen/driver/pipeline.h"
#include "frontend/model.h"
#include "graph/ir/sizes.h"
#include "records_json.h"
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

namespace tessera::generator {
namespace {

using Json = nlohmann::json;
using Tensors = std::vector<Tensor>;

struct Request {
  std::string model, out;
  std::vector<std::map<std::string, std::string>> calls;
  // The sizes of each call that data decide, where a variant was made for them. A graph of that call assumes them.
  std::vector<std::map<std::string, int64_t>> sizes;
  bool strict_rounding = false;
};

// "for s86=1, s10=4, after ..." (SessionVariant::label)
std::map<std::string, int64_t> sizes_of(const std::string& label) {
  std::map<std::string, int64_t> out;
  for (size_t at = label.starts_with("for ") ? 4 : label.size(); at < label.size();) {
    const size_t equals = label.find('=', at), end = std::min(label.find(", ", at), label.size());
    if (equals >= end) break;
    out[label.substr(at, equals - at)] = std::strtoll(label.c_str() + equals + 1, nullptr, 10);
    at = end + 2;
  }
  return out;
}

Result<Inputs> read_inputs(const std::map<std::string, std::string>& files, const std::map<std::string, DType>& types) {
  Inputs inputs;
  for (const auto& [name, file] : files) {
    auto type = types.find(name);
    if (type == types.end()) continue; // an input that nothing reads may be gone
    TESSERA_ASSIGN(Tensor t, read_npy(file, type->second));
    inputs[name] = t.dtype() == type->second ? t : t.reinterpreted(type->second);
  }
  return inputs;
}

Json json_of(const Result<Tensors>& result, const Request& request, const std::string& run, size_t call) {
  if (!result.ok()) return {{"error", result.error().str()}, {"name", info(result.error().code).name}};
  Json files = Json::array();
  for (size_t i = 0; i < result->size(); ++i) {
    const std::string file = request.out + "/" + run + "." + std::to_string(call) + "." + std::to_string(i) + ".npy";
    if (auto written = write_npy(file, (*result)[i]); !written.ok())
      return {{"error", written.error().str()}, {"name", info(written.error().code).name}};
    files.push_back(file);
  }
  return {{"outputs", files}};
}

std::map<std::string, DType> input_types(const Graph& graph) {
  std::map<std::string, DType> out;
  for (ValueId v : graph.inputs()) out[graph.value(v).name] = graph.type(v).dtype;
  return out;
}

// The sizes of a call and the contents of its integer inputs, as hints for the import of a graph that runs it.
ImportOptions options_of(const Graph& graph, const Inputs& inputs) {
  ImportOptions out;
  out.of_call = true;
  for (ValueId v : graph.inputs()) {
    auto given = inputs.find(graph.value(v).name);
    if (given == inputs.end()) continue;
    const Tensor& t = given->second;
    const auto& shape = graph.type(v).shape;
    for (size_t d = 0; d < std::min(shape.size(), t.dims().size()); ++d)
      if (shape[d].is_symbol()) out.dim_hints[shape[d].symbol_name()] = t.dims()[d];
    if (!(is_integer(t.dtype()) || t.dtype() == DType::Bool) || t.count() > kContentsLimit) continue;
    auto names = read_symbols(given->first, t.count());
    for (size_t k = 0; k < names.size(); ++k) out.dim_hints[names[k]] = t.get_i64(static_cast<int64_t>(k));
  }
  return out;
}

struct Call {
  Graph graph;
  Inputs inputs;
};
// The graph for a call: imported anew, as what one call assumes may not hold for another.
Result<Call> import_for(const Request& request, size_t call) {
  ImportOptions first;
  auto imported = import_model(request.model, first);
  if (!imported.ok() && imported.error().code == ErrorCode::MissingValues) {
    first.undetermined = true;
    imported = import_model(request.model, first);
  }
  TESSERA_ASSIGN(auto model, std::move(imported));
  TESSERA_ASSIGN(auto inputs, read_inputs(request.calls[call], input_types(model.graph)));
  ImportOptions known = options_of(model.graph, inputs);
  if (call < request.sizes.size()) known.dim_hints.insert(request.sizes[call].begin(), request.sizes[call].end());
  auto again = import_model(request.model, known);
  return Call{std::move(again.ok() ? again->graph : model.graph), std::move(inputs)};
}

Result<Tensors> run_reference(const Request& request, size_t call) {
  TESSERA_ASSIGN(Call c, import_for(request, call));
  return evaluate_graph(c.graph, c.inputs);
}

Result<Tensors> run_emulated(const Request& request, size_t call) {
  TESSERA_ASSIGN(Call c, import_for(request, call));
  CompileOptions options;
  options.device = "cuda";
  options.strict_rounding = request.strict_rounding;
  TESSERA_ASSIGN(auto backend, make_backend(options));
  Compilation compilation(c.graph, *backend, options);
  TESSERA_ASSIGN(auto pipeline, compile_pipeline(options.device));
  TESSERA_TRY(stop_after(pipeline, "fuse-attention"));
  TESSERA_TRY(run_passes(compilation, pipeline, {}));
  return run_plan(c.graph, compilation.plan(), c.inputs);
}

// Names and milliseconds of the kernels that are compiled.
Result<Json> compile_times(const Request& request, const std::string& arch) {
  TESSERA_ASSIGN(Call c, import_for(request, 0));
  CompileOptions options;
  options.device = "cuda";
  options.arch = arch;
  options.strict_rounding = request.strict_rounding;
  options.cache = false;
  options.jobs = 1;
  TESSERA_ASSIGN(const Compiled compiled, compile(std::move(c.graph), options));
  Json times = Json::array();
  for (const KernelReport& k : compiled.report.kernels) times.push_back({k.name, k.compile_ms});
  return times;
}

Json run_session(Request& request) {
  Json answers = Json::array();
  SessionOptions options;
  options.compile.device = "cpu";
  options.compile.threads = 1;
  options.compile.strict_rounding = request.strict_rounding;
  options.executor.poison = true;
  static const auto pool = ThreadPool::create(1);
  options.executor.pool = pool;
  auto session = Session::open(request.model, options);
  for (size_t i = 0; i < request.calls.size(); ++i) {
    RunStats stats;
    auto call = [&]() -> Result<Tensors> {
      if (!session.ok()) return session.error();
      std::map<std::string, DType> types;
      for (const auto& input : (*session)->inputs()) types[input.name] = input.dtype;
      TESSERA_ASSIGN(auto inputs, read_inputs(request.calls[i], types));
      return (*session)->run(inputs, &stats);
    };
    const size_t before = session.ok() ? (*session)->variants().size() : 0;
    answers.push_back(json_of(call(), request, "cpu", i));
    request.sizes.emplace_back();
    if (!session.ok()) continue;
    const auto variants = (*session)->variants();
    for (size_t v = std::max<size_t>(before, 1); v < variants.size(); ++v)
      for (const auto& [name, size] : sizes_of(variants[v]->label)) request.sizes.back()[name] = size;
    if (const auto ran = static_cast<size_t>(stats.variant); ran < variants.size())
      request.sizes.back().merge(sizes_of(variants[ran]->label));
  }
  return answers;
}

Json answer(const Json& json) {
  Request request;
  json.at("model").get_to(request.model);
  json.at("out").get_to(request.out);
  json.at("calls").get_to(request.calls);
  request.strict_rounding = json.value("strict_rounding", false);
  Json out = Json::object();
  const auto is_target = [](const std::string& run) { return run.starts_with("sm_"); };
  const auto runs = json.at("runs").get<std::vector<std::string>>();
  Json session; // first: the other runs assume the sizes that its variants are made for
  if (!std::all_of(runs.begin(), runs.end(), is_target)) session = run_session(request);
  for (const std::string& run : runs) {
    if (is_target(run)) {
      const Result<Json> times = compile_times(request, run);
      Json answer = json_of(times.ok() ? Result<Tensors>(Tensors{}) : Result<Tensors>(times.error()), request, run, 0);
      if (times.ok()) answer["kernels"] = *times;
      out[run] = Json::array({std::move(answer)});
      continue;
    }
    if (run == "cpu") {
      out[run] = std::move(session);
      continue;
    }
    out[run] = Json::array();
    for (size_t i = 0; i < request.calls.size(); ++i)
      out[run].push_back(
          json_of(run == "reference" ? run_reference(request, i) : run_emulated(request, i), request, run, i));
  }
  return out;
}

} // namespace
} // namespace tessera::generator

int main(int argc, char** argv) {
  using namespace tessera::generator;
  const std::string what = argc == 2 ? argv[1] : "";
  if (what == "samples") {
    write_records(std::cout);
    return 0;
  }
  if (what != "run") {
    std::cerr << "generator_runner samples | run\n";
    return 2;
  }
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(Json::parse(line)).dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  return 0;
}
