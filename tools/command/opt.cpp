// tessera opt: the passes of a compile over a model or a graph, all of them or those that are named, and single steps
// over the text of tile kernels. Pipeline and runner are those of `compile`, so that what it prints is what that makes.
#include "base/file.h"
#include "codegen/driver/devices.h"
#include "codegen/driver/pipeline.h"
#include "codegen/driver/steering.h"
#include "codegen/llvm/host_compiler.h"
#include "codegen/target/select.h"
#include "codegen/tile/tile.h"
#include "command.h"
#include "frontend/model.h"
#include "inputs.h"
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>
#include <thread>

namespace tessera::command {

namespace {

struct OptOptions {
  ModelOptions model; // those of add_plan_options()
  std::string passes, stop_after, output, json;
  bool list = false, verify = false, data = false;
  int vector_bytes = 0;
};

// Steps that are no passes: each prints and ends the list.
struct FinalStep {
  std::string_view name, level, summary;
};
constexpr FinalStep kFinalSteps[] = {
    {"print", "graph, plan, tile", "print the text (what happens without any step)"},
    {"verify", "graph, plan, tile", "check the text and print nothing"},
    {"tile", "graph, plan", "make a plan where there is none, schedule; print the tile kernels"},
    {"llvm", "graph, plan, tile", "as tile, then lower to LLVM; print the optimised IR"},
};
constexpr std::string_view kDefaultPipeline = "default", kCompilePipeline = "compile";

Result<std::string> read_all(const std::string& path) {
  if (path == "-") {
    std::ostringstream text;
    text << std::cin.rdbuf();
    return text.str();
  }
  return read_file(path);
}

std::vector<std::string> split_passes(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string name; std::getline(in, name, ',');) {
    name.erase(0, name.find_first_not_of(' '));
    name.erase(name.find_last_not_of(' ') + 1);
    if (!name.empty()) out.push_back(name);
  }
  return out;
}

const FinalStep* find_step(std::string_view name) {
  auto it =
      std::find_if(std::begin(kFinalSteps), std::end(kFinalSteps), [&](const FinalStep& s) { return s.name == name; });
  return it == std::end(kFinalSteps) ? nullptr : it;
}

Result<std::string> llvm_text(const tile::Kernel& kernel, const OptOptions& o) {
  HostTarget target = HostTarget::detect();
  if (o.vector_bytes > 0) target.vector_bytes = o.vector_bytes;
  TESSERA_ASSIGN(CompiledObject object, compile_host_kernel(kernel, target, true));
  return object.llvm_ir;
}

Result<std::string> tile_level(const OptOptions& o, const std::string& text, const std::vector<std::string>& passes) {
  TESSERA_ASSIGN(tile::Kernel kernel, tile::parse(text, o.model.model));
  TESSERA_TRY(tile::verify(kernel));
  std::string last = passes.empty() ? "print" : passes.back();
  if (passes.size() > 1 || (last != "print" && last != "verify" && last != "llvm"))
    return Diagnostic(ErrorCode::Usage, "a tile kernel takes one of print, verify and llvm, not '" + o.passes + "'");
  if (last == "verify") return std::string();
  if (last == "llvm") return llvm_text(kernel, o);
  return tile::print(kernel);
}

// The passes that `names` stand for, without a final step.
Result<std::vector<std::string>> pipeline_of(const OptOptions& o, const std::vector<std::string>& names,
                                             const std::string& device) {
  TESSERA_ASSIGN(const std::vector<std::string> whole, compile_pipeline(device));
  std::vector<std::string> out;
  for (const auto& name : names) {
    if (name == kDefaultPipeline || name == kCompilePipeline) {
      for (const auto& pass : whole)
        if (name == kCompilePipeline || find_compile_pass(pass)->level == PassLevel::Graph) out.push_back(pass);
    } else if (find_compile_pass(name) != nullptr)
      out.push_back(name);
    else if (find_step(name) != nullptr)
      return Diagnostic(ErrorCode::Usage, "'" + name + "' prints and can only stand last");
    else
      return unknown_pass(name);
  }
  if (!o.stop_after.empty()) TESSERA_TRY(stop_after(out, o.stop_after));
  return out;
}

Json to_json(const PassStats& s) {
  return {{"name", s.name},
          {"level", s.level},
          {"changed", s.changed},
          {"ms", s.milliseconds},
          {"nodes_before", s.nodes_before},
          {"nodes_after", s.nodes_after}};
}

// Kernels of the plan as the device compiles them.
Result<std::string> kernel_texts(Compilation& c, const CompileOptions& options, bool llvm) {
  std::vector<KernelRequest> requests;
  const auto groups = flat_groups(c.plan());
  for (const Group* g : groups)
    if (g->kind == Group::Kind::Kernel || g->kind == Group::Kind::Own) requests.push_back(request_for(*g));
  Cache none("", false);
  TESSERA_ASSIGN(DeviceCode code, c.backend().compile(c.graph(), requests, none, options));
  std::string out;
  for (const GeneratedKernel& generated : code.kernels) {
    const KernelReport& k = generated.report;
    if (!llvm && !k.tile_text.starts_with("//")) // a GPU's texts say when each is launched, and how it is scheduled
      out += "// " + std::string(name(k.schedule.kind)) + ": " + k.why + "\n";
    out += llvm ? k.llvm_text : k.tile_text + "\n";
  }
  return out;
}

Result<std::string> graph_level(const OptOptions& o, CompileOptions compile, Graph graph,
                                std::vector<std::string> names, Json& json) {
  std::string last = "print";
  if (!names.empty() && find_step(names.back()) != nullptr) {
    last = names.back();
    names.pop_back();
  }
  const bool kernels = last == "tile" || last == "llvm";
  TESSERA_ASSIGN(std::vector<std::string> pipeline, pipeline_of(o, names, compile.device));
  auto plans = [](const std::string& name) { return find_compile_pass(name)->level != PassLevel::Graph; };
  if (kernels && std::none_of(pipeline.begin(), pipeline.end(), plans)) {
    TESSERA_ASSIGN(const std::vector<std::string> whole, compile_pipeline(compile.device));
    std::copy_if(whole.begin(), whole.end(), std::back_inserter(pipeline), plans);
  }
  compile.keep_tiles = compile.keep_texts = kernels;
  if (o.vector_bytes > 0) compile.target = o.vector_bytes == 64 ? "avx512" : o.vector_bytes == 32 ? "avx2" : "portable";
  TESSERA_TRY(verify(graph));
  TESSERA_TRY(check_operators(graph, compile));
  TESSERA_ASSIGN(auto backend, make_backend(compile));
  Compilation compilation(graph, *backend, compile);
  PassRunOptions run;
  run.verify = o.verify;
  run.disabled = compile.disabled_passes;
  TESSERA_ASSIGN(auto stats, run_passes(compilation, pipeline, std::move(run)));
  for (const auto& s : stats) json["passes"].push_back(to_json(s));
  if (kernels) return kernel_texts(compilation, compile, last == "llvm");
  if (compilation.has_plan()) TESSERA_TRY(compilation.verify());
  if (last == "verify") return std::string();
  return compilation.has_plan() ? compilation.text() : print(graph, o.data);
}

int list_passes() {
  Table passes({"pass", "device", "level", ""});
  for (const auto& p : compile_passes())
    passes.add({std::string(p.name), std::string(p.device.empty() ? "all" : p.device),
                p.level == PassLevel::Graph  ? "graph"
                : p.level == PassLevel::Fuse ? "graph to plan"
                                             : "plan",
                std::string(p.summary)});
  passes.add(
      {std::string(kDefaultPipeline), "all", "graph", "the passes over graphs that a compile runs, in its order"});
  passes.add({std::string(kCompilePipeline), "all", "graph to plan", "all passes that a compile runs, in its order"});
  Table last({"last step", "level", ""});
  for (const auto& s : kFinalSteps) last.add({std::string(s.name), std::string(s.level), std::string(s.summary)});
  say(passes.str() + "\n" + last.str());
  return kDone;
}

// Without names, a device or a pass to stop after requests the whole pipeline.
std::vector<std::string> names_of(const OptOptions& o) {
  const bool whole =
      o.passes.empty() && !(o.model.options.device.empty() && o.model.arch.empty() && o.stop_after.empty());
  return whole ? std::vector<std::string>{std::string(kCompilePipeline)} : split_passes(o.passes);
}

Result<std::string> run_opt(const OptOptions& o, Json& json) {
  const std::string& file = o.model.model;
  TESSERA_TRY(need_model(file, "opt"));
  const auto names = names_of(o);
  ModelOptions model = o.model;
  if (model.options.device.empty()) model.options.device = model.arch.empty() ? "cpu" : "cuda";
  TESSERA_ASSIGN(auto shapes, parse_shapes(model.shapes));
  TESSERA_ASSIGN(SessionOptions session, session_options(model, shapes));
  if (file.ends_with(".onnx") || file.ends_with(".pt2")) {
    session.import.missing_weights = ImportOptions::MissingWeights::Empty;
    TESSERA_ASSIGN(auto imported, import_model(file, session.import));
    TESSERA_TRY(check_shapes(imported.graph, shapes));
    return graph_level(o, session.compile, std::move(imported.graph), names, json);
  }
  TESSERA_ASSIGN(std::string source, read_all(file));
  // The first word that is no comment says which text it is.
  std::istringstream lines(source);
  std::string first;
  for (std::string line; std::getline(lines, line) && first.empty();) {
    auto at = line.find_first_not_of(" \t\r");
    if (at != std::string::npos && line.compare(at, 2, "//") != 0) first = line.substr(at);
  }
  if (first.starts_with("tile.kernel")) return tile_level(o, source, names);
  TESSERA_ASSIGN(Graph graph, parse_graph(source, file));
  TESSERA_TRY(check_shapes(graph, shapes));
  return graph_level(o, session.compile, std::move(graph), names, json);
}

int run(const OptOptions& o) {
  if (o.list) return list_passes();
  if (o.model.model.empty())
    return fail(
        Diagnostic(ErrorCode::Usage, "no file is given").note("'-' reads standard input; --list names the passes"),
        o.json);
  Json json;
  json["file"] = o.model.model;
  json["passes"] = Json::array();
  auto text = run_opt(o, json);
  if (!text.ok()) return fail(text.error(), o.json);
  // Whole lines: the text is read back.
  if (auto status = write_text(o.output, shown_lines(*text, std::string::npos)); !status.ok())
    return fail(status.error(), o.json);
  return finish(kDone, o.json, json);
}

} // namespace

void add_opt(CommandLine& line) {
  auto options = std::make_shared<OptOptions>();
  options->model.options.device = "";
  Subcommand sub = line.add("opt", "run passes over a model or the text of an IR, and print what they make");
  sub.option("FILE", options->model.model, "graph text, tile text, or a model (.onnx, .pt2); '-' for standard input");
  add_plan_options(sub, options->model);
  sub.option("--passes", options->passes,
             "names with commas between; one of print, verify, tile, llvm may stand last (default: with --device or "
             "--arch all that a compile runs, else none)");
  sub.option("--stop-after", options->stop_after,
             "end the pipeline behind this pass: NAME, or NAME,2 at its second run");
  sub.option("-o,--output", options->output, "write the text to this file").writes_file();
  sub.flag("--list", options->list, "name the passes, with the device that each is for");
  sub.flag("--verify", options->verify, "check graph and plan after every pass that changed them");
  sub.flag("--with-data", options->data, "print weights with their data");
  sub.option("--vector-bytes", options->vector_bytes, "lower for vectors of this size instead of the machine's")
      .one_of({16, 32, 64});
  sub.option("--json", options->json, "write what each pass did to this file as JSON").writes_file();
  sub.footer("Examples:\n"
             "  tessera opt --list\n"
             "  tessera opt model.onnx --device cuda --arch sm_90a\n"
             "  tessera opt model.onnx --device cpu --stop-after widen-halves\n"
             "  tessera opt graph.txt --passes decompose,fold,cse,dce\n"
             "  tessera opt model.onnx --passes default,fuse\n"
             "  tessera opt kernel.tile --passes llvm");
  sub.action([options] { return run(*options); });
}

} // namespace tessera::command
