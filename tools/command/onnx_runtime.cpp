#include "onnx_runtime.h"
#include "base/file.h"
#include "child.h"
#include "frontend/description.h"
#include <filesystem>

namespace tessera::command {

namespace {

constexpr std::chrono::seconds kTimeout = std::chrono::hours(24);
constexpr int kNoPackage = 3, kRefused = 4; // exit codes of the script

// Reads request.json {model, inputs, values, folder}, writes each value as an .npy file, and answer.json {version,
// files}. Values inside the model become outputs by a message that is appended to the file's bytes: protobuf merges
// messages that follow one another, and appends to repeated fields.
constexpr const char* kScript = R"python(import json, os, sys
request = json.load(open("request.json", encoding="utf-8"))
try:
    import numpy
    import onnxruntime
except ImportError as e:
    print(e)
    sys.exit(3)

def varint(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))

def message(field, content):
    return varint(field << 3 | 2) + varint(len(content)) + content

GRAPH, OUTPUT, NAME = 7, 12, 1  # fields of ModelProto, GraphProto, ValueInfoProto
try:
    path = os.path.realpath(request["model"])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.path.dirname(path))
    content = open(path, "rb").read()
    plain = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    outputs = {o.name for o in plain.get_outputs()}
    added = b"".join(message(OUTPUT, message(NAME, v.encode())) for v in request["values"] if v not in outputs)
    session = plain
    if added:
        session = onnxruntime.InferenceSession(content + message(GRAPH, added), options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    inputs = {k: numpy.load(v) for k, v in request["inputs"].items() if k in wanted}
    files = {}
    if request["values"]:
        for i, (name, value) in enumerate(zip(request["values"], session.run(request["values"], inputs))):
            if isinstance(value, numpy.ndarray) and value.dtype.kind in "biuf":
                files[name] = f"value_{i}.npy"
                numpy.save(files[name], numpy.ascontiguousarray(value).reshape(value.shape))
except Exception as e:
    print(e)
    sys.exit(4)
json.dump({"version": onnxruntime.__version__, "files": files}, open("answer.json", "w", encoding="utf-8"))
)python";

bool has_numpy_type(DType d) {
  return d == DType::F16 || d == DType::F32 || d == DType::F64 || d == DType::Bool ||
         (is_integer(d) && info(d).bits >= 8);
}

} // namespace

Result<std::unique_ptr<OnnxRuntimeValues>> OnnxRuntimeValues::create(const std::string& model,
                                                                     const std::string& python, const Graph& graph,
                                                                     const Tensors& inputs) {
  TESSERA_ASSIGN(const ModelDescription described, describe_model(model));
  if (described.format != "ONNX")
    return Diagnostic(ErrorCode::Usage, Location{.file = model}, "ONNX Runtime reads ONNX models alone");
  TESSERA_ASSIGN(TemporaryFolder folder, TemporaryFolder::create("tessera-onnxruntime"));
  std::unique_ptr<OnnxRuntimeValues> out(
      new OnnxRuntimeValues(std::filesystem::absolute(model).string(), python, std::move(folder)));
  TESSERA_TRY(write_file(out->folder_.path() + "/run.py", {kScript}));
  int count = 0;
  for (const auto& [name, tensor] : inputs) {
    if (!has_numpy_type(tensor.dtype()))
      return Diagnostic(ErrorCode::UnsupportedType, "input '" + name + "' is of type " +
                                                        std::string(tessera::name(tensor.dtype())) +
                                                        ", which ONNX Runtime does not take from numpy");
    const std::string file = "input_" + std::to_string(count++) + ".npy";
    TESSERA_TRY(write_npy(out->folder_.path() + "/" + file, tensor));
    out->inputs_[name] = file;
  }
  std::map<std::string, DType> types;
  for (int32_t v = 0; v < graph.value_count(); ++v) types.emplace(graph.value({v}).name, graph.type({v}).dtype);
  for (const DescribedNode& node : described.nodes)
    if (node.depth == 0 && node.function.empty())
      for (const std::string& name : node.outputs)
        if (auto it = types.find(name); !name.empty() && it != types.end() && has_numpy_type(it->second))
          out->types_.insert(*it);
  TESSERA_TRY(out->run({}));
  return out;
}

Status OnnxRuntimeValues::run(const std::vector<std::string>& names) {
  const std::string& folder = folder_.path();
  for (const auto& [name, file] : files_) {
    std::error_code ignored; // the folder goes at the end
    std::filesystem::remove(folder + "/" + file, ignored);
  }
  files_.clear();
  TESSERA_TRY(write_json(folder + "/request.json", Json{{"model", model_}, {"inputs", inputs_}, {"values", names}}));
  const std::string said = folder + "/said.txt";
  TESSERA_ASSIGN(const ChildEnd end, run_child({"/usr/bin/env", "-C", folder, python_, "run.py"}, said, kTimeout));
  if (end.exit_code != 0) {
    auto text = read_file(said);
    std::string why = text.ok() ? *text : std::string();
    while (!why.empty() && why.back() == '\n') why.pop_back();
    if (end.exit_code == kRefused)
      return Diagnostic(ErrorCode::UnsupportedFeature, "ONNX Runtime does not run the model: " + why);
    if (end.exit_code == kNoPackage || end.exit_code == 127)
      return Diagnostic(ErrorCode::UnsupportedFeature, "there is no ONNX Runtime to compare with: " + why)
          .note("'pip install onnxruntime' installs it; --python names the Python that has it");
    return Diagnostic(ErrorCode::Internal, "ONNX Runtime's process ended by " + end.str() + ": " + why);
  }
  TESSERA_ASSIGN(const std::string text, read_file(folder + "/answer.json"));
  const Json answer = Json::parse(text, nullptr, false);
  if (!answer.is_object()) return Diagnostic(ErrorCode::Internal, "ONNX Runtime's process gave no answer");
  version_ = answer.value("version", "");
  files_ = answer.value("files", std::map<std::string, std::string>());
  return {};
}

Status OnnxRuntimeValues::load(const std::vector<std::string>& names) {
  std::vector<std::string> wanted;
  for (const std::string& name : names)
    if (types_.contains(name)) wanted.push_back(name);
  return run(wanted);
}

Result<std::optional<accuracy::Elements>> OnnxRuntimeValues::get(const std::string& name) {
  auto file = files_.find(name);
  if (file == files_.end()) return std::optional<accuracy::Elements>();
  TESSERA_ASSIGN(Tensor t, read_npy(folder_.path() + "/" + file->second, types_.at(name)));
  return std::optional(accuracy::Elements{std::move(t), {}});
}

} // namespace tessera::command
