// tessera opt: named passes over the text of any IR; what the golden tests run.
#include "codegen/driver/legalize.h"
#include "codegen/llvm/host_compiler.h"
#include "codegen/target/select.h"
#include "codegen/tile/tile.h"
#include "command.h"
#include "frontend/model.h"
#include "graph/support/file.h"
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>
#include <thread>

namespace tessera::command {

namespace {

struct OptOptions {
  std::string file, passes, output, json;
  bool list = false, verify = false, data = false;
  int vector_bytes = 0;
};

// Steps that are no graph passes: each prints and ends the list.
struct FinalStep {
  std::string_view name, level, summary;
};
constexpr FinalStep kFinalSteps[] = {
    {"print", "graph, tile", "print the text (what happens without any step)"},
    {"verify", "graph, tile", "check the text and print nothing"},
    {"fuse", "graph", "plan fusion; print groups, loop nests and the reason for every edge"},
    {"tile", "graph", "plan fusion, schedule; print the tile kernels"},
    {"llvm", "graph, tile", "as tile, then lower to LLVM; print the optimised IR"},
};
constexpr std::string_view kDefaultPipeline = "default";

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
  TESSERA_ASSIGN(tile::Kernel kernel, tile::parse(text, o.file));
  TESSERA_TRY(tile::verify(kernel));
  std::string last = passes.empty() ? "print" : passes.back();
  if (passes.size() > 1 || (last != "print" && last != "verify" && last != "llvm"))
    return Diagnostic(ErrorCode::Usage, "a tile kernel takes one of print, verify and llvm, not '" + o.passes + "'");
  if (last == "verify") return std::string();
  if (last == "llvm") return llvm_text(kernel, o);
  return tile::print(kernel);
}

Result<std::string> graph_level(const OptOptions& o, Graph graph, std::vector<std::string> passes, Json& json) {
  std::string last = "print";
  if (!passes.empty() && find_step(passes.back()) != nullptr) {
    last = passes.back();
    passes.pop_back();
  }
  PipelineOptions pipeline;
  for (const auto& name : passes) {
    if (name == kDefaultPipeline)
      pipeline.passes.insert(pipeline.passes.end(), default_pipeline().begin(), default_pipeline().end());
    else if (find_graph_pass(name) != nullptr)
      pipeline.passes.push_back(name);
    else if (find_step(name) != nullptr)
      return Diagnostic(ErrorCode::Usage, "'" + name + "' prints and can only stand last");
    else
      return unknown_pass(name);
  }
  pipeline.verify = o.verify;
  TESSERA_TRY(verify(graph));
  if (!pipeline.passes.empty()) {
    TESSERA_ASSIGN(auto stats, run_pipeline(graph, pipeline));
    for (const auto& s : stats)
      json["passes"].push_back({{"name", s.name},
                                {"changed", s.changed},
                                {"ms", s.milliseconds},
                                {"nodes_before", s.nodes_before},
                                {"nodes_after", s.nodes_after}});
  }
  if (last == "verify") return std::string();
  if (last == "print") return print(graph, o.data);

  FusionOptions fusion;
  fusion.generated_epilogues = true;
  fusion.device_supports = host_supports;
  TESSERA_ASSIGN(FusionPlan plan, plan_fusion(graph, fusion));
  TESSERA_TRY(verify(graph, plan));
  if (last == "fuse") return print(graph, plan);
  HostTarget target = HostTarget::detect();
  Target device = shipped_target("avx512");
  device.vector_bytes = o.vector_bytes > 0 ? o.vector_bytes : target.vector_bytes;
  std::string out;
  for (const auto& group : plan.groups) {
    const LoopNest* nest = group.kind == Group::Kind::Kernel ? &group.nest : nullptr;
    if (nest == nullptr) continue;
    TESSERA_ASSIGN(auto kernel,
                   lower_to_tiles(graph, *nest, choose_schedule(graph, *nest, device), device, group.name));
    if (last == "tile") {
      out += "// " + std::string(name(kernel.schedule.kind)) + ": " + kernel.schedule.why + "\n" +
             tile::print(kernel.kernel) + "\n";
    } else {
      TESSERA_ASSIGN(std::string text, llvm_text(kernel.kernel, o));
      out += text;
    }
  }
  return out;
}

int list_passes() {
  Table graph({"graph pass", ""});
  for (const auto& p : graph_passes()) graph.add({std::string(p.name), std::string(p.summary)});
  graph.add({std::string(kDefaultPipeline), "the pipeline that a compile runs"});
  Table last({"last step", "level", ""});
  for (const auto& s : kFinalSteps) last.add({std::string(s.name), std::string(s.level), std::string(s.summary)});
  say(graph.str() + "\n" + last.str());
  return kDone;
}

int run(const OptOptions& o) {
  if (o.list) return list_passes();
  if (o.file.empty())
    return fail(
        Diagnostic(ErrorCode::Usage, "no file is given").note("'-' reads standard input; --list names the passes"),
        o.json);
  Json json;
  json["file"] = o.file;
  json["passes"] = Json::array();
  auto text = [&]() -> Result<std::string> {
    TESSERA_TRY(need_model(o.file, "opt"));
    auto passes = split_passes(o.passes);
    if (o.file.ends_with(".onnx") || o.file.ends_with(".pt2")) {
      ImportOptions import;
      import.allow_missing_weights = true;
      TESSERA_ASSIGN(auto model, import_model(o.file, import));
      return graph_level(o, std::move(model.graph), passes, json);
    }
    TESSERA_ASSIGN(std::string source, read_all(o.file));
    // The first word that is no comment says which text it is.
    std::istringstream lines(source);
    std::string first;
    for (std::string line; std::getline(lines, line) && first.empty();) {
      auto at = line.find_first_not_of(" \t\r");
      if (at != std::string::npos && line.compare(at, 2, "//") != 0) first = line.substr(at);
    }
    if (first.starts_with("tile.kernel")) return tile_level(o, source, passes);
    TESSERA_ASSIGN(Graph graph, parse_graph(source, o.file));
    return graph_level(o, std::move(graph), passes, json);
  }();
  if (!text.ok()) return fail(text.error(), o.json);
  // Whole lines: the text is read back.
  if (auto status = write_text(o.output, shown_lines(*text, std::string::npos)); !status.ok())
    return fail(status.error(), o.json);
  return finish(kDone, o.json, json);
}

} // namespace

void add_opt(CommandLine& line) {
  auto options = std::make_shared<OptOptions>();
  Subcommand sub = line.add("opt", "run named passes over the text of an IR");
  sub.option("FILE", options->file, "graph text, tile text, or a model (.onnx, .pt2); '-' for standard input");
  sub.option("--passes", options->passes,
             "names with commas between; one of print, verify, fuse, tile, llvm may stand last");
  sub.option("-o,--output", options->output, "write the text to this file");
  sub.flag("--list", options->list, "name the passes");
  sub.flag("--verify", options->verify, "check the graph after every pass that changed it");
  sub.flag("--with-data", options->data, "print weights with their data");
  sub.option("--vector-bytes", options->vector_bytes, "lower for vectors of this size instead of the machine's")
      .one_of({16, 32, 64});
  sub.option("--json", options->json, "write what each pass did to this file as JSON");
  sub.footer("Examples:\n"
             "  tessera opt --list\n"
             "  tessera opt graph.txt --passes decompose,fold,cse,dce\n"
             "  tessera opt model.onnx --passes default,fuse\n"
             "  tessera opt kernel.tile --passes llvm");
  sub.action([options] { return run(*options); });
}

} // namespace tessera::command
