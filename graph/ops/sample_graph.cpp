#include "graph/ops/sample_graph.h"
#include <algorithm>

namespace tessera::ops {

namespace {

bool is_known(const Tensor& t, Known known) {
  switch (known) {
  case Known::Nothing: return false;
  case Known::IntegersAndScalars: return !is_float(t.dtype()) || t.dims().empty();
  case Known::Everything: return true;
  }
  return false;
}

// Whether dimension `d` of the tensor stands as a symbol.
bool is_free(const Sample& sample, const Tensor& t, size_t d, Sizes sizes) {
  if (t.dims()[d] <= 1) return false;
  if (sizes == Sizes::Symbolic) return true;
  const Tensor& first = sample.operands[0];
  return sizes == Sizes::SymbolicBatch && d == 0 && t.dims().size() > 1 && first.defined() && !first.dims().empty() &&
         first.dims()[0] == t.dims()[0];
}

// True if elements of the type are single real numbers.
bool is_number(DType dtype) { return has_bytes(dtype) && info(dtype).kind != DTypeKind::Complex; }

Tensor converted(const Tensor& t, DType dtype) {
  Tensor made = Tensor::create(dtype, t.dims()).value();
  const bool floats = is_float(t.dtype()) || is_float(dtype);
  for (int64_t i = 0; i < t.count(); ++i)
    if (floats && is_float(dtype))
      made.set_f64(i, t.get_f64(i));
    else
      made.set_i64(i, floats ? static_cast<int64_t>(t.get_f64(i)) : t.get_i64(i));
  return made;
}

} // namespace

Result<SampleGraph> sample_graph(const OpDef& op, const Sample& sample, Sizes sizes, Known known) {
  SampleGraph g{Graph("sample"), {}, {}};
  std::vector<ValueId> operands;
  std::map<std::string, int64_t> contents; // of operands that are not known: hints of what is read
  for (size_t i = 0; i < sample.operands.size(); ++i) {
    const Tensor& t = sample.operands[i];
    if (!t.defined() || !(is_integer(t.dtype()) || t.dtype() == DType::Bool) || t.count() > kContentsLimit) continue;
    for (int64_t k = 0; k < t.count(); ++k)
      contents["x" + std::to_string(i) + (t.count() == 1 ? "" : "_" + std::to_string(k))] = t.get_i64(k);
  }
  g.graph.env().set_hints(contents, false);
  for (const Tensor& t : sample.operands) {
    if (!t.defined()) {
      operands.push_back({});
      continue;
    }
    if (t.dtype() != DType::List && is_known(t, known)) {
      operands.push_back(g.graph.add_constant(t));
      continue;
    }
    TensorType type = type_of(t);
    type.shape.clear();
    for (size_t d = 0; d < t.dims().size(); ++d) {
      int64_t size = t.dims()[d];
      if (!is_free(sample, t, d, sizes)) {
        type.shape.emplace_back(size);
        continue;
      }
      SymExpr s = g.graph.env().named_symbol("n" + std::to_string(size), {1, 1 << 20});
      g.graph.env().set_hint(s, size);
      g.symbols[s.symbol_id()] = size;
      type.shape.push_back(s);
    }
    operands.push_back(g.graph.add_input("x" + std::to_string(operands.size()), type));
  }
  std::vector<std::string> results(static_cast<size_t>(sample.result_count));
  TESSERA_ASSIGN(g.node, g.graph.add_node(op, operands, sample.attributes, Location{}, results, sample.opset));
  for (const auto& [name, value] : contents)
    if (auto s = g.graph.env().find(name)) g.symbols[s->symbol_id()] = std::clamp(value, -kReadMax, kReadMax);
  return g;
}

Result<SampleGraph> sample_graph(const OpDef& op, const Sample& sample, Sizes sizes) {
  auto g = sample_graph(op, sample, sizes, Known::Nothing);
  for (Known known : {Known::IntegersAndScalars, Known::Everything}) {
    if (g.ok() || g.error().code != ErrorCode::UnsupportedFeature) break;
    g = sample_graph(op, sample, sizes, known);
  }
  return g;
}

std::optional<DType> element_type(const Sample& sample) {
  std::optional<DType> out;
  for (const Tensor& t : sample.operands) {
    if (!t.defined()) continue;
    if (t.dtype() != DType::Bool) return t.dtype();
    out = DType::Bool;
  }
  return out;
}

std::optional<Sample> with_element_type(const Sample& sample, DType dtype) {
  const auto from = element_type(sample);
  if (!from || !is_number(*from) || !is_number(dtype)) return std::nullopt;
  Sample out = sample;
  for (Tensor& t : out.operands) {
    if (!t.defined() || t.dtype() != *from || *from == dtype) continue;
    t = converted(t, dtype);
  }
  return out;
}

} // namespace tessera::ops
