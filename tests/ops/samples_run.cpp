#include "samples_run.h"
#include "graph/reference/meaning.h"
#include <algorithm>

namespace tessera::test {

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

} // namespace

Result<SampleGraph> build(const OpDef& op, const Sample& sample, Sizes sizes, Known known) {
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

Result<SampleGraph> build(const OpDef& op, const Sample& sample, Sizes sizes) {
  auto g = build(op, sample, sizes, Known::Nothing);
  for (Known known : {Known::IntegersAndScalars, Known::Everything}) {
    if (g.ok() || g.error().code != ErrorCode::UnsupportedFeature) break;
    g = build(op, sample, sizes, known);
  }
  return g;
}

Result<std::vector<Tensor>> evaluate_without_reference(const SampleGraph& g, const Sample& sample) {
  const Node& node = g.get();
  std::vector<Tensor> operands = sample.operands;
  operands.resize(node.operands.size());
  if (!node.op->is_composite()) return evaluate_meaning(g.graph, node, operands, g.symbols);
  OpDef bare = *node.op;
  bare.reference = nullptr;
  Node copy = node;
  copy.op = &bare;
  return evaluate_node(g.graph, copy, std::move(operands), g.symbols);
}

std::string difference(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected, double tolerance) {
  if (actual.size() != expected.size())
    return std::to_string(actual.size()) + " results instead of " + std::to_string(expected.size());
  for (size_t r = 0; r < actual.size(); ++r) {
    const Tensor &a = actual[r], &e = expected[r];
    std::string which = "result " + std::to_string(r) + ": ";
    if (a.dtype() != e.dtype())
      return which + std::string(name(a.dtype())) + " instead of " + std::string(name(e.dtype()));
    if (a.dims() != e.dims()) return which + str(Attribute(a.dims())) + " instead of " + str(Attribute(e.dims()));
    if (e.dtype() == DType::List) {
      if (auto text = difference(a.items(), e.items(), tolerance); !text.empty()) return which + text;
      continue;
    }
    if (e.dtype() == DType::String) {
      if (a.string_values() != e.string_values()) return which + "strings differ";
      continue;
    }
    bool exact = !is_float(e.dtype());
    Comparison c = compare(a, e, 0, 0);
    if (c.same || (!exact && c.norm_ratio <= tolerance)) continue;
    return which + c.message + " (ratio " + std::to_string(c.norm_ratio) + ")";
  }
  return "";
}

std::string describe(const Sample& sample, size_t number) {
  std::string out = "sample " + std::to_string(number) + ": (";
  for (size_t i = 0; i < sample.operands.size(); ++i) {
    const Tensor& t = sample.operands[i];
    out += i ? ", " : "";
    out += t.defined() ? std::string(name(t.dtype())) + str(Attribute(t.dims())) : "-";
  }
  out += ")";
  for (const auto& [name, value] : sample.attributes.items()) out += " " + name + "=" + str(value);
  return out + " opset " + std::to_string(sample.opset);
}

} // namespace tessera::test
