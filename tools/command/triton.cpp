// tessera triton: a model as a folder that Triton Inference Server serves with the backend of serving/triton.
#include "api/option_fields.h"
#include "base/file.h"
#include "codegen/load/load.h"
#include "command.h"
#include "frontend/model.h"
#include "inputs.h"
#include "serving/triton/config.h"
#include <filesystem>
#include <sstream>

namespace tessera::command {

namespace {

namespace fs = std::filesystem;

struct TritonCommand {
  ModelOptions model;
  std::string output, name;
  int version = 1, instances = 1;
  std::optional<int> max_batch;
  int max_batch_given = -1; // -1: not given
  bool compile = false;
};

Diagnostic usage(std::string message) { return {ErrorCode::Usage, std::move(message)}; }
Diagnostic refused(const triton::Refusal& r) { return usage(r.message).note(r.hint); }
Diagnostic cannot(const std::string& what, const std::error_code& error) {
  return {ErrorCode::FileError, "cannot " + what + ": " + error.message()};
}

triton::Interface interface_of(const Session& session) {
  auto side = [](const std::vector<IoInfo>& ios) {
    std::vector<triton::Value> out;
    for (const IoInfo& io : ios) {
      triton::Value& v =
          out.emplace_back(triton::Value{io.name, io.list.empty() ? info(io.dtype).onnx : -1, {}, io.any_rank});
      if (io.any_rank) continue;
      for (const SymExpr& d : io.shape) v.dims.push_back(d.str());
    }
    return out;
  };
  return {side(session.inputs()), side(session.outputs())};
}

// A model that is served as it is can follow the options that the backend has parameters for.
Status check_options(const TritonCommand& o) {
  if (o.compile || is_compiled_file(o.model.model)) return {};
  std::vector<std::string> given = o.model.compiles;
  for (const OptionField& f : kOptionFields) std::erase(given, flag_of(f.name));
  if (!o.model.shapes.empty()) given.emplace_back("--shape");
  if (!o.model.arch.empty()) given.emplace_back("--arch");
  if (!o.model.operators.empty()) given.emplace_back("--operators");
  if (given.empty()) return {};
  return usage(given.front() + " decides how the model is compiled, and the server compiles it as it starts")
      .note("add --compile, which puts a compiled file into the repository");
}

Status check_name(const std::string& name) {
  if (!name.empty() && name.front() != '.' && name.find('/') == std::string::npos) return {};
  return usage("'" + name + "' is no name of a model").note("it is the name of a folder: --name NAME");
}

Result<std::string> read_existing(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::string();
  return read_file(path.string());
}

// The folder of a version, which appears with all of its files.
class VersionFolder {
public:
  [[nodiscard]] static Result<VersionFolder> create(const fs::path& folder) {
    VersionFolder out(folder);
    std::error_code error;
    if (fs::exists(folder, error))
      return usage("'" + folder.string() + "' exists").note("give another version: --version N; or another --name");
    fs::remove_all(out.part_, error); // of a run that was interrupted
    if (!fs::create_directories(out.part_, error)) return cannot("make the folder " + out.part_.string(), error);
    return out;
  }
  VersionFolder(VersionFolder&& other) noexcept
      : folder_(std::move(other.folder_)), part_(std::exchange(other.part_, {})) {}
  ~VersionFolder() {
    std::error_code ignored; // what remains is removed by the next run
    if (!part_.empty()) fs::remove_all(part_, ignored);
  }
  [[nodiscard]] std::string path(const std::string& file) const { return (part_ / file).string(); }
  [[nodiscard]] Status copy(const fs::path& from, const std::string& file) const {
    std::error_code error;
    fs::create_directories((part_ / file).parent_path(), error);
    if (!error) fs::copy_file(from, part_ / file, error);
    if (error) return cannot("copy " + from.string() + " to " + (part_ / file).string(), error);
    return {};
  }
  [[nodiscard]] Status commit() {
    std::error_code error;
    fs::rename(part_, folder_, error);
    if (error) return cannot("rename " + part_.string(), error);
    part_.clear();
    return {};
  }

private:
  explicit VersionFolder(fs::path folder) : folder_(std::move(folder)), part_(folder_.string() + ".part") {}
  fs::path folder_, part_;
};

// The model, with the files that hold its weights.
Status copy_model(const TritonCommand& o, const Session& session, const std::string& file, const VersionFolder& to) {
  if (o.compile || is_compiled_file(o.model.model)) {
    std::vector<std::string> notes;
    TESSERA_ASSIGN(auto shapes, parse_shapes(o.model.shapes));
    Sizes sizes;
    if (o.compile) {
      TESSERA_ASSIGN(sizes, choose_sizes(session, {}, shapes, notes));
    }
    return session.save(to.path(file), true, sizes);
  }
  TESSERA_TRY(to.copy(o.model.model, file));
  TESSERA_ASSIGN(const ImportedModel imported, import_model(o.model.model));
  for (const std::string& weights : imported.weight_files)
    TESSERA_TRY(to.copy(fs::path(o.model.model).parent_path() / weights, weights));
  return {};
}

// The first lines that differ, of two texts that do.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream in_a(a), in_b(b);
  for (std::string line_a, line_b;;) {
    const bool more_a = static_cast<bool>(std::getline(in_a, line_a)),
               more_b = static_cast<bool>(std::getline(in_b, line_b));
    if (!more_a) line_a.clear();
    if (!more_b) line_b.clear();
    if (line_a != line_b || (!more_a && !more_b)) return {line_a, line_b};
  }
}

// The parameters that the backend opens the model with.
std::map<std::string, std::string> parameters_of(const TritonCommand& o) {
  std::map<std::string, std::string> out;
  for (const auto& [name, text] : given_texts(o.model)) {
    const OptionField& f = *find_option(name);
    if (name == "device" || (f.compiles && o.compile)) continue; // the device is the instances'
    if (f.kind == OptionField::Kind::Folder) continue;           // of this machine
    out.emplace(name, f.kind == OptionField::Kind::File ? name : text);
  }
  return out;
}

// Opened to look at it, and with --compile to save it. As the server compiles on its own device, any will do to look.
Result<std::unique_ptr<Session>> open(const TritonCommand& o) {
  ModelOptions model = o.model;
  if (!o.compile && !is_compiled_file(o.model.model)) {
    model.options.device = "cpu";
    model.options.tune_share = 0;
  }
  TESSERA_ASSIGN(auto shapes, parse_shapes(model.shapes));
  if (o.compile) model.sizes.erase("specialize"); // what calls want; there are none
  TESSERA_ASSIGN(SessionOptions options, session_options(model, shapes));
  if (o.compile) {
    TESSERA_ASSIGN(options.variants, parse_variants(o.model.sizes.at("specialize")));
  }
  options.compile_only = true;
  options.compile.keep_tiles = o.compile;
  TESSERA_ASSIGN(auto session, open_session(model, std::move(options)));
  std::vector<std::string> notes; // the server's requests have their own sizes
  TESSERA_ASSIGN(const Sizes sizes, choose_sizes(*session, {}, shapes, notes));
  return session;
}

Result<Json> write(const TritonCommand& o) {
  TESSERA_TRY(check_options(o));
  const bool compiled = o.compile || is_compiled_file(o.model.model);
  if (o.compile) TESSERA_TRY(need_model(o.model.model, "triton --compile"));
  triton::ConfigOptions config;
  config.name = o.name.empty() ? fs::path(o.model.model).stem().string() : o.name;
  TESSERA_TRY(check_name(config.name));
  config.max_batch = o.max_batch;
  config.instances = o.instances;
  config.device = o.model.options.device;
  // The backend takes the file that it finds, so that a version may be compiled where another is not.
  const std::string file = compiled ? "model.tsr" : "model" + fs::path(o.model.model).extension().string();
  config.parameters = parameters_of(o);
  TESSERA_ASSIGN(auto session, open(o));
  const triton::Interface interface = interface_of(*session);
  auto made = triton::make_config(interface, config);
  if (const auto* why = std::get_if<triton::Refusal>(&made)) return refused(*why);
  const auto& json = std::get<triton::Json>(made);

  const fs::path folder = fs::path(o.output) / config.name;
  const std::string text = triton::config_text(json), path = (folder / "config.pbtxt").string();
  TESSERA_ASSIGN(const std::string existing, read_existing(path));
  if (!existing.empty() && existing != text) {
    const auto [there, now] = first_difference(existing, text);
    return usage("'" + path + "' exists and says '" + there + "', where this version has '" + now + "'")
        .note(
            "a version has the inputs, outputs and options of those before: give another --name, or remove the folder");
  }
  TESSERA_ASSIGN(VersionFolder version, VersionFolder::create(folder / std::to_string(o.version)));
  TESSERA_TRY(copy_model(o, *session, file, version));
  if (!o.model.options.plan.empty() && !compiled) {
    TESSERA_ASSIGN(const std::string plan, read_file(o.model.options.plan));
    TESSERA_TRY(write_file((folder / "plan").string(), {plan}));
  }
  TESSERA_TRY(version.commit());
  if (existing.empty()) TESSERA_TRY(write_file(path, {text}));

  const int64_t max_batch = json.value("max_batch_size", int64_t{0});
  const auto symbol = triton::batch_symbol(interface);
  Json result{{"model", o.model.model},
              {"folder", folder.string()},
              {"name", config.name},
              {"version", o.version},
              {"max_batch_size", max_batch}};
  if (o.model.json == "-") return result;
  say(shown(folder.string()) + ": version " + std::to_string(o.version) + "\n");
  if (max_batch > 0) {
    say("batches of up to " + std::to_string(max_batch) + " rows along '" + shown(std::get<std::string>(symbol)) +
        "', dimension 0 of every input and output; --max-batch 0 where rows depend on each other\n");
  } else if (const auto* why = std::get_if<triton::Refusal>(&symbol)) {
    say("no batches: " + shown(why->message) + "\n");
  }
  return result;
}

} // namespace

void add_triton(CommandLine& line) {
  auto options = std::make_shared<TritonCommand>();
  Subcommand sub = line.add("triton", "write a folder of models that Triton Inference Server serves");
  add_model_options(sub, options->model);
  sub.option("-o,--output", options->output, "model repository: a folder with a folder for each model")
      .required()
      .writes_folder();
  sub.option("--name", options->name, "of the model (default: that of the file)");
  sub.option("--version", options->version, "of the model, a folder in its own").range(1, 1 << 30).show_default();
  sub.option("--max-batch", options->max_batch_given,
             "rows that requests are put together to; 0: each by itself (default: 32 with a batch dimension, else 0)")
      .range(0, 1 << 20);
  sub.option("--instances", options->instances, "contexts, each of which executes one batch at a time")
      .range(1, 1 << 10)
      .show_default();
  sub.flag("--compile", options->compile, "put a compiled file into the repository, with the weights in it");
  sub.footer("The server compiles the model for its device as it starts; --compile does it now.\n"
             "Examples:\n"
             "  tessera triton model.onnx -o repository\n"
             "  tessera triton model.onnx -o repository --device cpu --instances 4 --max-batch 16\n"
             "  tessera triton model.onnx -o repository --policy adaptive --warm-up batch=1..8..32\n"
             "  tessera triton model.onnx -o repository --compile --device cuda --arch sm_90a");
  sub.action([options] {
    if (options->max_batch_given >= 0) options->max_batch = options->max_batch_given;
    auto done = write(*options);
    if (!done.ok()) return fail(done.error(), options->model.json);
    return finish(kDone, options->model.json, *done);
  });
}

} // namespace tessera::command
