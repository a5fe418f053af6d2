#include "frontend/fx/importer.h"
#include "base/file.h"
#include "frontend/fx/graph_builder.h"
#include "frontend/fx/inline.h"
#include "frontend/fx/symbols.h"
#include "frontend/named_import.h"

namespace tessera::fx {
namespace {

WeightLookup weights_of(const ProgramSource& source) {
  return [&source](const std::string& name, const TensorMeta&) -> Result<StoredWeight> {
    auto it = source.weights.find(name);
    if (it != source.weights.end()) return StoredWeight{it->second, {}, {}};
    Location where;
    where.file = source.name;
    return Diagnostic(ErrorCode::BadWeights, where, "weight '" + name + "' was not given");
  };
}

// `weights`: the lookup of a build, which counts in its model's description.
Result<ImportedModel> build(const Program& program, const ImportOptions& options, const std::string& file, bool strided,
                            const std::function<WeightLookup(ModelInfo&)>& weights) {
  std::set<std::string, std::less<>> states;
  for (const OutputSpec& spec : program.outputs)
    if (spec.kind == OutputSpec::Kind::BufferMutation || spec.kind == OutputSpec::Kind::ParameterMutation)
      states.insert(spec.target);
  // Writes in place are found as they are translated, and what was made of a weight before, as if it were a constant,
  // is wrong of a state: the program is translated again.
  for (;;) {
    ImportedModel out;
    GraphBuilder builder(program, options, weights(out.info), file, strided, out);
    auto status = builder.build(states);
    const size_t known = states.size();
    states.merge(builder.written_weights());
    if (states.size() > known) continue;
    if (status.ok()) return out;
    Location where;
    where.file = file;
    return std::move(status).take_error().at(std::move(where));
  }
}

} // namespace

Result<bool> is_archive(const std::string& path) {
  TESSERA_ASSIGN(FileDescriptor file, open_file(path));
  char magic[4] = {};
  TESSERA_ASSIGN(size_t read, read_some(file, path, magic, sizeof magic));
  return read == sizeof magic && std::string_view(magic, 4) == "PK\3\4";
}

namespace {

Result<Program> read_program(std::string_view json, const std::string& file) {
  TESSERA_ASSIGN(Program program, parse_program(json, file));
  TESSERA_TRY(inline_regions(program, file));
  return program;
}

// While it traces, torch.export takes every size that is a symbol for 2 or more, and states that as the symbol's range.
// The exported module does not check it and computes with sizes of 0 and 1: so does ours. A higher bound is one that
// the module relies on. Symbols of sizes that are data keep theirs, which the module asserts.
void admit_small_sizes(Program& program) {
  constexpr int64_t kTraced = 2;
  auto admit = [&](const Size& size) {
    for (const std::string& symbol : symbols_in(size.expression))
      if (auto range = program.ranges.find(symbol); range != program.ranges.end())
        if (int64_t low = range->second.min.value_or(0); low > 0 && low <= kTraced) range->second.min = 0;
  };
  for (const InputSpec& spec : program.inputs) {
    if (auto tensor = program.graph.tensors.find(spec.argument.name); tensor != program.graph.tensors.end())
      for (const Size& size : tensor->second.sizes) admit(size);
    if (auto size = program.graph.sym_ints.find(spec.argument.name); size != program.graph.sym_ints.end())
      admit(size->second.value);
  }
}

Result<Program> archived_program(const Archive& archive, const std::string& path) {
  TESSERA_ASSIGN(Program program, read_program(archive.program(), path));
  admit_small_sizes(program);
  return program;
}

// Weights of the archive; those without bytes are counted in `info`. All three must outlive it.
auto weights_of(const Archive& archive, const ImportOptions& options, ModelInfo& info) {
  return [&](const std::string& name, const TensorMeta& meta) -> Result<StoredWeight> {
    TESSERA_ASSIGN(StoredWeight weight, archive.weight(name, meta, options.missing_weights));
    if (weight.absent) {
      ++info.absent_weights;
      info.absent_bytes += static_cast<int64_t>(weight.tensor.bytes());
    }
    return weight;
  };
}

Result<ImportedModel> import_archive(const Archive& archive, const ImportOptions& options, const std::string& path) {
  TESSERA_ASSIGN(Program program, archived_program(archive, path));
  return build(program, options, path, false,
               [&](ModelInfo& info) -> WeightLookup { return weights_of(archive, options, info); });
}

} // namespace

Result<ImportedModel> import_file(const std::string& path, const std::string& name, const ImportOptions& options) {
  TESSERA_ASSIGN(Archive archive, Archive::open(path));
  return import_archive(archive, options, name);
}

Result<ImportedModel> import_file(const std::string& path, const ImportOptions& options) {
  return import_file(path, path, options);
}

Result<ModelSurvey> survey_file(const std::string& path, const ImportOptions& options) {
  TESSERA_ASSIGN(Archive archive, Archive::open(path));
  TESSERA_ASSIGN(Program program, archived_program(archive, path));
  ModelSurvey out;
  GraphBuilder builder(program, options, weights_of(archive, options, out.model.info), path, false, out.model);
  TESSERA_ASSIGN(auto refusals, builder.survey());
  for (Refusal& r : refusals) {
    const FxNode& node = program.graph.nodes[static_cast<size_t>(r.node)];
    std::optional<DType> dtype;
    for (const NamedArgument& input : node.inputs)
      if (auto it = program.graph.tensors.find(input.value.name); !dtype && it != program.graph.tensors.end())
        dtype = it->second.dtype;
    std::string op = r.reason.location.op.empty() ? node.target : r.reason.location.op;
    out.refused.push_back({std::move(op), program.aten_opset, dtype, std::move(r.reason)});
  }
  return out;
}

Result<ImportedModel> import_bytes(Storage file, const ImportOptions& options, const std::string& display_name) {
  TESSERA_ASSIGN(Archive archive, Archive::from_memory(std::move(file), display_name));
  return import_archive(archive, options, display_name);
}

Result<ImportedModel> import_program(const ProgramSource& source, const ImportOptions& options) {
  TESSERA_ASSIGN(Program program, read_program(source.json, source.name));
  // A process captures a program at a call: its sizes are those of that call, unless another one led to this import.
  ImportOptions seen = options;
  for (const auto& [name, meta] : program.graph.tensors)
    for (const Size& size : meta.sizes)
      if (auto symbol = size.hint ? plain_symbol(size.expression) : std::nullopt)
        seen.dim_hints.try_emplace(*std::move(symbol), *size.hint);
  return build(program, seen, source.name, source.strided, [&](ModelInfo&) { return weights_of(source); });
}

Result<std::vector<Refusal>> survey(const ProgramSource& source) {
  // Regions stay as they are: positions of nodes are the program's.
  TESSERA_ASSIGN(Program program, parse_program(source.json, source.name));
  ImportedModel out;
  ImportOptions options;
  // Zeros stand for a small weight that is not given, which folding may read; a larger one has no data.
  auto any_weight = [&source](const std::string& name, const TensorMeta& meta) -> Result<StoredWeight> {
    if (auto it = source.weights.find(name); it != source.weights.end()) return StoredWeight{it->second, {}, {}};
    Dims dims;
    for (const Size& s : meta.sizes) dims.push_back(s.constant);
    constexpr int64_t kSmallBytes = 1 << 20;
    const DType dtype = meta.dtype.value_or(DType::F32);
    TESSERA_ASSIGN(const int64_t count, element_count(dims));
    if (const int64_t bytes = byte_size(dtype, count); bytes > kSmallBytes)
      return StoredWeight{Tensor::view(dtype, std::move(dims), {nullptr, nullptr, static_cast<size_t>(bytes)}), {}, {}};
    TESSERA_ASSIGN(Tensor zeros, Tensor::create(dtype, std::move(dims), true));
    return StoredWeight{std::move(zeros), {}, {}};
  };
  return GraphBuilder(program, options, any_weight, source.name, source.strided, out).survey();
}

} // namespace tessera::fx
