// Describes a program of torch.export as text.
#include "frontend/description.h"
#include "frontend/fx/archive.h"
#include "frontend/fx/graph_builder.h"
#include "frontend/fx/symbols.h"
#include <cstdio>

namespace tessera::fx {
namespace {

std::string size_text(const Size& s) {
  if (s.expression.empty()) return std::to_string(s.constant);
  auto symbol = plain_symbol(s.expression);
  return symbol ? *symbol : s.expression;
}

std::string dtype_text(const TensorMeta& meta) {
  return meta.dtype ? std::string(name(*meta.dtype)) : dtype_name_of_schema(meta.dtype_number);
}

std::string type_text(const TensorMeta& meta) {
  std::string dims;
  for (const Size& s : meta.sizes) dims += (dims.empty() ? "" : ", ") + size_text(s);
  return dtype_text(meta) + "[" + dims + "]";
}

std::string argument_text(const Argument& a) {
  using Kind = Argument::Kind;
  switch (a.kind) {
  case Kind::None: return "None";
  case Kind::Int: return std::to_string(a.integer);
  case Kind::Bool: return a.integer != 0 ? "True" : "False";
  case Kind::Float:
  case Kind::Complex: {
    char text[64];
    if (a.kind == Kind::Float)
      std::snprintf(text, sizeof text, "%.9g", a.number);
    else
      std::snprintf(text, sizeof text, "%.9g%+.9gj", a.number, a.imaginary);
    return text;
  }
  case Kind::String: return "\"" + a.name + "\"";
  case Kind::ScalarType: return a.dtype ? std::string(name(*a.dtype)) : "?";
  case Kind::MemoryFormat: return "memory format " + std::to_string(a.integer);
  case Kind::Layout: return "layout " + std::to_string(a.integer);
  case Kind::Graph: return a.graph ? "graph of " + std::to_string(a.graph->nodes.size()) + " nodes" : "graph";
  case Kind::List: {
    std::string items;
    for (const Argument& item : a.items) items += (items.empty() ? "" : ", ") + argument_text(item);
    return "[" + items + "]";
  }
  default: return a.name;
  }
}

bool is_value(const Argument& a) {
  using Kind = Argument::Kind;
  return a.kind == Kind::Tensor || a.kind == Kind::SymInt || a.kind == Kind::SymFloat || a.kind == Kind::SymBool ||
         (a.kind == Kind::List && !a.items.empty() && is_value(a.items.front()));
}
void add_names(const Argument& a, std::vector<std::string>& names) {
  for (const Argument& item : a.items) add_names(item, names);
  if (a.items.empty() && !a.name.empty()) names.push_back(a.name);
}

class Describer {
public:
  Describer(const Program& program, std::string file) : program_(program), file_(std::move(file)) {}

  ModelDescription run() {
    out_.format = "PyTorch";
    out_.version = program_.schema_major;
    out_.producer = "pytorch" + (program_.torch_version.empty() ? "" : " " + program_.torch_version);
    out_.opsets.emplace_back("aten", program_.aten_opset);
    for (const auto& [name, meta] : program_.graph.tensors) out_.types.emplace(name, type_text(meta));
    for (const InputSpec& spec : program_.inputs) {
      const auto meta = program_.graph.tensors.find(spec.argument.name);
      const std::string type = meta == program_.graph.tensors.end() ? "" : type_text(meta->second);
      if (spec.kind == InputSpec::Kind::User) out_.inputs.push_back({spec.argument.name, type});
      if (spec.target.empty() || meta == program_.graph.tensors.end()) continue;
      DescribedWeight w{spec.target, type, dtype_text(meta->second), 0, ""};
      int64_t count = 1;
      for (const Size& s : meta->second.sizes) count *= s.constant;
      if (meta->second.dtype && has_bytes(*meta->second.dtype)) w.bytes = byte_size(*meta->second.dtype, count);
      out_.weights.push_back(std::move(w));
    }
    for (const OutputSpec& spec : program_.outputs) {
      const auto type = out_.types.find(spec.argument.name);
      out_.outputs.push_back({spec.target.empty() ? spec.argument.name : spec.argument.name + " -> " + spec.target,
                              type == out_.types.end() ? "" : type->second});
    }
    nodes(program_.graph, 0);
    return std::move(out_);
  }

private:
  void nodes(const FxGraph& graph, int depth) {
    for (const FxNode& node : graph.nodes) {
      DescribedNode n;
      n.place = place_of(node, file_);
      n.depth = depth;
      for (const NamedArgument& input : node.inputs)
        if (is_value(input.value))
          add_names(input.value, n.inputs);
        else
          n.attributes.emplace_back(input.name, argument_text(input.value));
      for (const Argument& output : node.outputs) add_names(output, n.outputs);
      out_.nodes.push_back(std::move(n));
      for (const NamedArgument& input : node.inputs)
        if (input.value.graph) nodes(*input.value.graph, depth + 1);
    }
  }

  const Program& program_;
  std::string file_;
  ModelDescription out_;
};

} // namespace

Result<ModelDescription> describe_file(const std::string& path) {
  TESSERA_ASSIGN(const Archive archive, Archive::open(path));
  TESSERA_ASSIGN(const Program program, parse_program(archive.program(), path));
  return Describer(program, path).run();
}

} // namespace tessera::fx
