// tessera compile: a model to an executable file.
#include "command.h"
#include "inputs.h"
#include <cstdio>
#include <filesystem>

namespace tessera::command {

namespace {

struct CompileCommand {
  ModelOptions model;
  std::string output;
  bool embed_weights = false;
};

int run(const CompileCommand& o) {
  auto done = [&]() -> Result<Json> {
    TESSERA_TRY(need_model(o.model.model, "compile"));
    TESSERA_ASSIGN(auto shapes, parse_shapes(o.model.shapes));
    ModelOptions model = o.model;
    model.sizes.erase("specialize"); // what calls want; there are none
    TESSERA_ASSIGN(SessionOptions options, session_options(model, shapes));
    TESSERA_ASSIGN(options.variants, parse_variants(o.model.sizes.at("specialize")));
    options.compile_only = true;
    options.compile.keep_tiles = true;
    TESSERA_ASSIGN(auto session, open_session(o.model, std::move(options)));
    const Compiled& compiled = *session->variants().front()->compiled;
    std::vector<std::string> notes; // of the sizes that explain chooses, too
    TESSERA_ASSIGN(const Sizes sizes, choose_sizes(*session, {}, shapes, notes));
    TESSERA_TRY(session->save(o.output, o.embed_weights, sizes));
    TESSERA_TRY(save_plan(o.model, *session));
    std::error_code ignored; // the size is for people
    auto bytes = std::filesystem::file_size(o.output, ignored);
    const auto& r = compiled.report;
    Json j{{"model", o.model.model},
           {"output", o.output},
           {"target", compiled.executable->target},
           {"bytes", ignored ? 0 : bytes},
           {"kernels", r.kernels.size()},
           {"import_ms", r.import_ms},
           {"total_ms", r.import_ms + r.total_ms},
           {"cache_hits", r.cache_hits},
           {"cache_misses", r.cache_misses}};
    j["variants"] = Json::array();
    for (const auto& v : session->variants()) j["variants"].push_back(v->label);
    if (o.model.json != "-")
      say(shown(o.output) + ": " + format_bytes(ignored ? 0 : static_cast<double>(bytes)) + " for " +
          compiled.executable->target + ", compiled in " + format_ms(r.import_ms + r.total_ms) + "\n");
    return j;
  }();
  if (!done.ok()) return fail(done.error(), o.model.json);
  return finish(kDone, o.model.json, *done);
}

} // namespace

void add_compile(CommandLine& line) {
  auto options = std::make_shared<CompileCommand>();
  Subcommand sub = line.add("compile", "compile a model to an executable file");
  add_model_options(sub, options->model);
  add_save_plan_option(sub, options->model);
  sub.option("-o,--output", options->output, "executable file to write").required().writes_file();
  sub.flag("--embed-weights", options->embed_weights,
           "put the weights into the file instead of naming the model's own files");
  sub.footer("Examples:\n"
             "  tessera compile model.onnx -o model.tsr\n"
             "  tessera compile model.pt2 -o model.tsr\n"
             "  tessera compile model.onnx -o model.tsr --embed-weights --threads 4\n"
             "  tessera compile model.onnx -o model.tsr --specialize batch=1 --specialize batch=8,seq=div:8\n"
             "  tessera compile model.onnx -o model.tsr --warm-up batch=1..8..32,seq=1..128..512\n"
             "  tessera compile model.onnx -o model.tsr --device cuda --arch sm_90");
  sub.action([options] { return run(*options); });
}

} // namespace tessera::command
