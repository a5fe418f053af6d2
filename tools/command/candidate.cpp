#include "candidate.h"
#include "base/file.h"
#include "frontend/model.h"
#include "graph/reference/evaluator.h"
#include <algorithm>
#include <filesystem>

namespace tessera::command {

namespace {

// The first elements along each dimension of a size that is cut.
Result<Tensor> cut(const Tensor& from, const std::map<int64_t, int64_t>& sizes) {
  Dims dims = from.dims();
  for (int64_t& d : dims)
    if (auto it = sizes.find(d); it != sizes.end()) d = it->second;
  if (dims == from.dims()) return from;
  const int bits = info(from.dtype()).bits;
  if (bits < 8) return Diagnostic(ErrorCode::UnsupportedFeature, "packed elements and strings are not cut");
  const auto width = static_cast<size_t>(bits) / 8;
  TESSERA_ASSIGN(Tensor to, Tensor::create(from.dtype(), dims));
  Dims at(dims.size());
  for (int64_t i = 0; i < to.count(); ++i) {
    int64_t flat = 0;
    for (size_t d = 0; d < at.size(); ++d) flat = flat * from.dims()[d] + at[d];
    std::copy_n(from.data() + static_cast<size_t>(flat) * width, width,
                to.mutable_data() + static_cast<size_t>(i) * width);
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < dims[d]) break;
      at[d] = 0;
    }
  }
  return to;
}

} // namespace

Result<Candidates> Candidates::create(const std::string& path, const ImportOptions& import, const Tensors& inputs) {
  TESSERA_ASSIGN(auto parts, onnx::ModelParts::open(path));
  TESSERA_ASSIGN(auto model, import_model(path, import));
  Candidates out(std::move(parts), std::move(model.graph));
  Graph& graph = out.graph_;
  for (ValueId v : graph.inputs()) out.values_.emplace(graph.value(v).name, v);
  for (const auto& o : graph.outputs()) out.values_.emplace(o.name, o.value);
  for (NodeId id : graph.order())
    for (ValueId v : graph.node(id).results)
      if (v.valid() && !graph.value(v).name.empty()) out.values_.emplace(graph.value(v).name, v);
  Graph all = graph;
  all.outputs().clear();
  for (const auto& [name, v] : out.values_) all.add_output(name, v);
  Tensors known;
  for (ValueId v : graph.inputs())
    if (auto it = inputs.find(graph.value(v).name); it != inputs.end()) known.insert(*it);
  TESSERA_ASSIGN(auto tensors, evaluate_graph(all, known));
  for (size_t i = 0; i < tensors.size(); ++i) out.tensors_.emplace(all.outputs()[i].name, std::move(tensors[i]));
  return out;
}

std::set<size_t> Candidates::all() const {
  std::set<size_t> out;
  for (size_t n = 0; n < parts_.nodes().size(); ++n)
    if (!parts_.nodes()[n].constant) out.insert(n);
  return out;
}

Result<onnx::PartValue> Candidates::type_of(const std::string& name, bool fixed, const Tensor& tensor) const {
  onnx::PartValue out{tensor.dtype(), {}};
  const SymShape& shape = graph_.declared_shape(values_.at(name));
  for (size_t d = 0; d < tensor.dims().size(); ++d) {
    if (!fixed && d < shape.size() && shape[d].is_symbol())
      out.dims.emplace_back(shape[d].symbol_name());
    else
      out.dims.emplace_back(tensor.dims()[d]);
  }
  return out;
}

Result<std::vector<int64_t>> Candidates::sizes(const Candidate& candidate) {
  std::set<int64_t, std::greater<>> out;
  auto add = [&](const Dims& dims) {
    for (int64_t d : dims)
      if (d > 1) out.insert(d);
  };
  for (const auto& name : parts_.needs(candidate.nodes)) add(tensors_.at(name).dims());
  for (const auto& name : parts_.weights_of(candidate.nodes)) {
    TESSERA_ASSIGN(Tensor t, parts_.weight(name));
    add(t.dims());
  }
  return std::vector<int64_t>(out.begin(), out.end());
}

Status Candidates::write(const Candidate& candidate, const std::string& folder) {
  onnx::Part part;
  part.nodes = candidate.nodes;
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  std::filesystem::create_directories(folder + "/inputs", error);
  if (error) return Diagnostic(ErrorCode::FileError, "cannot make the folder '" + folder + "': " + error.message());
  auto tensor_of = [&](const std::string& name) -> Result<Tensor> {
    auto it = tensors_.find(name);
    if (it == tensors_.end())
      return Diagnostic(ErrorCode::UnsupportedFeature, "'" + name + "' is no value of the imported graph");
    if (!has_bytes(it->second.dtype()))
      return Diagnostic(ErrorCode::UnsupportedFeature, "'" + name + "' holds no numbers");
    return cut(it->second, candidate.sizes);
  };
  for (const auto& name : parts_.needs(candidate.nodes)) {
    TESSERA_ASSIGN(Tensor t, tensor_of(name));
    TESSERA_ASSIGN(part.inputs[name], type_of(name, candidate.fixed, t));
    TESSERA_TRY(write_npy(folder + "/inputs/" + file_name(name, t.dtype()), t));
  }
  // The outputs are the results that no node of the candidate reads, and those that the model gives out.
  std::set<std::string> read;
  for (size_t n : candidate.nodes) read.insert(parts_.nodes()[n].reads.begin(), parts_.nodes()[n].reads.end());
  const auto& given_out = parts_.outputs();
  for (size_t n : candidate.nodes)
    for (const auto& name : parts_.nodes()[n].results) {
      if (read.contains(name) && std::find(given_out.begin(), given_out.end(), name) == given_out.end()) continue;
      auto t = tensors_.find(name);
      if (t == tensors_.end() || !has_bytes(t->second.dtype())) continue;
      onnx::PartValue type{t->second.dtype(), {}};
      for (size_t d = 0; d < t->second.dims().size(); ++d) // labels that bind nothing
        type.dims.emplace_back(file_name(name, DType::List) + std::to_string(d));
      part.outputs.emplace(name, std::move(type));
    }
  if (part.outputs.empty()) return Diagnostic(ErrorCode::UnsupportedFeature, "the part has no output");
  for (const auto& name : parts_.weights_of(candidate.nodes)) {
    if (candidate.sizes.empty()) break;
    TESSERA_ASSIGN(Tensor t, parts_.weight(name));
    TESSERA_ASSIGN(Tensor less, cut(t, candidate.sizes));
    if (less.dims() != t.dims()) part.weights.emplace(name, std::move(less));
  }
  TESSERA_ASSIGN(std::string bytes, parts_.serialized(part));
  return write_file(folder + "/model.onnx", {bytes});
}

} // namespace tessera::command
