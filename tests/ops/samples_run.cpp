#include "samples_run.h"
#include "graph/reference/meaning.h"
#include <algorithm>

namespace tessera::test {

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

bool takes(Share& share, const Sample& sample, Sizes sizes) {
  std::string attributes;
  for (const auto& [name, value] : sample.attributes.items())
    attributes += name + (std::holds_alternative<std::string>(value) ? "=" + std::get<std::string>(value) : "") + " ";
  const auto element = ops::element_type(sample);
  return share.takes({element ? std::string(name(*element)) : "", attributes, std::to_string(static_cast<int>(sizes))});
}

} // namespace tessera::test
