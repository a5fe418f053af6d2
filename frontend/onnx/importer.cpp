#include "frontend/onnx/importer.h"
#include "frontend/named_import.h"
#include "frontend/onnx/graph_builder.h"
#include "tessera_onnx_data.pb.h"

namespace tessera::onnx {

namespace {

std::string folder_of(const std::string& path) {
  auto slash = path.rfind('/');
  return slash == std::string::npos ? "" : slash == 0 ? "/" : path.substr(0, slash);
}

std::string_view text_of(const Storage& s) { return {reinterpret_cast<const char*>(s.data), s.bytes}; }

// `refused`: takes the nodes that fail; without it, the first one ends the import.
Result<ImportedModel> import(std::string_view bytes, const ImportOptions& options, const WeightLoader& loader,
                             const std::string& file, std::vector<RefusedNode>* refused = nullptr) {
  TESSERA_ASSIGN(ParsedModel parsed, parse_model(bytes, file));
  ImportedModel out;
  WeightLoader weights = loader;
  Choices choices;
  std::optional<Diagnostic> first_error; // of the choices' usual ways
  for (;;) {
    out = ImportedModel();
    out.path = file;
    GraphBuilder builder(parsed, options, weights, choices, file, out);
    auto status = refused == nullptr ? builder.build() : builder.survey(*refused);
    if (status.ok()) break;
    const bool misfit = is_misfit(status.error().code);
    if (!first_error || status.error().code == ErrorCode::MissingValues) first_error = std::move(status).take_error();
    if (!misfit || !choices.another()) {
      Location where;
      where.file = file;
      return std::move(*first_error).at(std::move(where));
    }
    weights = loader;
  }
  out.info.absent_weights = weights.absent();
  out.info.absent_bytes = weights.absent_bytes();
  out.weight_files = weights.files();
  out.copied_weights = weights.copied();
  return out;
}

} // namespace

Result<ImportedModel> import_file(const std::string& path, const std::string& name, const ImportOptions& options) {
  TESSERA_ASSIGN(Storage mapped, map_file(path));
  return import(text_of(mapped), options, WeightLoader(folder_of(path), path, mapped.owner, options.missing_weights),
                name);
}

Result<ImportedModel> import_file(const std::string& path, const ImportOptions& options) {
  return import_file(path, path, options);
}

Result<ModelSurvey> survey_file(const std::string& path, const ImportOptions& options) {
  TESSERA_ASSIGN(Storage mapped, map_file(path));
  ModelSurvey out;
  TESSERA_ASSIGN(out.model, import(text_of(mapped), options,
                                   WeightLoader(folder_of(path), path, mapped.owner, options.missing_weights), path,
                                   &out.refused));
  return out;
}

Result<ImportedModel> import_bytes(std::string_view bytes, const std::string& directory, const ImportOptions& options,
                                   const std::string& display_name) {
  return import(bytes, options, WeightLoader(directory, "", nullptr, options.missing_weights), display_name);
}

namespace {

// Values of a file that holds a list, by what its items are to be.
class ListReader {
public:
  ListReader(WeightLoader& weights, Location where) : weights_(weights), where_(std::move(where)) {}

  Result<Tensor> sequence(const proto::SequenceProto& from, const ItemType& items) {
    std::vector<Tensor> out;
    for (const auto& t : from.tensor_values()) TESSERA_TRY(add(out, weights_.load(t, where_)));
    for (const auto& t : from.sparse_tensor_values()) TESSERA_TRY(add(out, weights_.load_sparse(t, where_)));
    const int lists = from.sequence_values_size() + from.optional_values_size() + from.map_values_size();
    if (lists > 0 && !items.items) return wrong(items);
    for (const auto& s : from.sequence_values()) TESSERA_TRY(add(out, sequence(s, *items.items)));
    for (const auto& o : from.optional_values()) TESSERA_TRY(add(out, optional(o, *items.items)));
    for (const auto& m : from.map_values()) TESSERA_TRY(add(out, map(m)));
    return Tensor::list(std::move(out));
  }
  Result<Tensor> optional(const proto::OptionalProto& from, const ItemType& items) {
    std::vector<Tensor> out;
    if (from.has_tensor_value()) TESSERA_TRY(add(out, weights_.load(from.tensor_value(), where_)));
    if (from.has_sparse_tensor_value()) TESSERA_TRY(add(out, weights_.load_sparse(from.sparse_tensor_value(), where_)));
    if ((from.has_sequence_value() || from.has_optional_value()) && !items.items) return wrong(items);
    if (from.has_sequence_value()) TESSERA_TRY(add(out, sequence(from.sequence_value(), *items.items)));
    if (from.has_optional_value()) TESSERA_TRY(add(out, optional(from.optional_value(), *items.items)));
    if (from.has_map_value()) TESSERA_TRY(add(out, map(from.map_value())));
    return Tensor::list(std::move(out));
  }
  Result<Tensor> map(const proto::MapProto& from) {
    const bool strings = from.string_keys_size() > 0;
    const Dims dims = {strings ? from.string_keys_size() : from.keys_size()};
    Tensor keys =
        strings ? Tensor::strings(dims, {from.string_keys().begin(), from.string_keys().end()})
                : Tensor::of<int64_t>(DType::I64, dims, std::vector<int64_t>(from.keys().begin(), from.keys().end()));
    std::vector<Tensor> values;
    for (const auto& t : from.values().tensor_values()) TESSERA_TRY(add(values, weights_.load(t, where_)));
    if (static_cast<int64_t>(values.size()) != dims[0])
      return Diagnostic(ErrorCode::MalformedModel, where_,
                        "a map has " + std::to_string(dims[0]) + " keys and " + std::to_string(values.size()) +
                            " values");
    if (values.empty()) return Tensor::list({keys, Tensor::of<float>(DType::F32, {0}, std::span<const float>())});
    TESSERA_ASSIGN(Tensor all, Tensor::create(values[0].dtype(), dims));
    std::vector<std::string> texts;
    for (size_t i = 0; i < values.size(); ++i) {
      const Tensor& v = values[i];
      if (v.count() != 1 || v.dtype() != all.dtype())
        return Diagnostic(ErrorCode::UnsupportedType, where_, "a map of values that are not single numbers");
      if (v.dtype() == DType::String)
        texts.push_back(v.string_values()[0]);
      else if (is_float(v.dtype()))
        all.set_f64(static_cast<int64_t>(i), v.get_f64(0));
      else
        all.set_i64(static_cast<int64_t>(i), v.get_i64(0));
    }
    if (all.dtype() == DType::String) all = Tensor::strings(dims, std::move(texts));
    return Tensor::list({keys, all});
  }

private:
  static Status add(std::vector<Tensor>& out, Result<Tensor> item) {
    TESSERA_ASSIGN(Tensor t, std::move(item));
    out.push_back(std::move(t));
    return {};
  }
  Diagnostic wrong(const ItemType& items) const {
    return {ErrorCode::BadInput, where_, "holds lists in a list, where " + items.str() + " is expected"};
  }
  WeightLoader& weights_;
  Location where_;
};

} // namespace

Result<Tensor> read_list_file(const std::string& path, const ItemType& items, std::string* name) {
  TESSERA_ASSIGN(Storage mapped, map_file(path));
  Location where;
  where.file = path;
  WeightLoader weights(folder_of(path), path, nullptr, ImportOptions::MissingWeights::Refuse);
  ListReader reader(weights, where);
  auto read = [&](auto message, auto convert) -> Result<Tensor> {
    TESSERA_TRY(parse_message(text_of(mapped), message, path));
    if (name != nullptr) *name = message.name();
    return convert(message);
  };
  using C = ItemType::Container;
  if (items.container == C::Sequence)
    return read(proto::SequenceProto(), [&](const auto& m) { return reader.sequence(m, items); });
  if (items.container == C::Optional)
    return read(proto::OptionalProto(), [&](const auto& m) { return reader.optional(m, items); });
  return read(proto::MapProto(), [&](const auto& m) { return reader.map(m); });
}

Result<Tensor> read_tensor_file(const std::string& path, std::string* name) {
  TESSERA_ASSIGN(Storage mapped, map_file(path));
  Location where;
  where.file = path;
  proto::TensorProto tensor;
  TESSERA_TRY(parse_message(text_of(mapped), tensor, path));
  // Sequences, maps and optionals are messages of their own; each keeps its elements in the field that is TensorProto's
  // segment, which no writer uses.
  if (tensor.has_segment())
    return Diagnostic(ErrorCode::UnsupportedType, where, "is a sequence, map or optional; only tensors are supported");
  WeightLoader weights(folder_of(path), path, nullptr, ImportOptions::MissingWeights::Refuse);
  TESSERA_ASSIGN(Tensor out, weights.load(tensor, where));
  if (name != nullptr) *name = tensor.name();
  return out;
}

} // namespace tessera::onnx
