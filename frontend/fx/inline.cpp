#include "frontend/fx/inline.h"
#include <unordered_map>
#include <unordered_set>

namespace tessera::fx {
namespace {

constexpr std::string_view kGradient = "torch.ops.higher_order.wrap_with_set_grad_enabled";
constexpr std::string_view kAutocast = "torch.ops.higher_order.wrap_with_autocast"; // device, dtype, enabled, cache
constexpr size_t kAutocastEnabled = 2;                                              // position of the argument

// Position of the argument that is the region's graph, if the call does no more than to run it.
std::optional<size_t> region_of(const FxNode& node) {
  if (node.target == kAutocast) {
    const bool known =
        node.inputs.size() > kAutocastEnabled && node.inputs[kAutocastEnabled].value.kind == Argument::Kind::Bool;
    if (!known || node.inputs[kAutocastEnabled].value.integer != 0) return {};
  } else if (node.target != kGradient) {
    return {};
  }
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i].value.kind == Argument::Kind::Graph) return i;
  return {};
}

// The arguments that replace the names of a region in the whole program.
using Names = std::unordered_map<std::string, Argument>;

void rename(Argument& a, const Names& names) {
  switch (a.kind) {
  case Argument::Kind::Tensor:
  case Argument::Kind::SymInt:
  case Argument::Kind::SymFloat:
  case Argument::Kind::SymBool:
    if (auto it = names.find(a.name); it != names.end()) a = it->second;
    break;
  case Argument::Kind::List:
    for (Argument& item : a.items) rename(item, names);
    break;
  default: break;
  }
}

class Inliner {
public:
  Inliner(Program& program, std::string file) : program_(program), file_(std::move(file)) {}

  Status run() {
    FxGraph& g = program_.graph;
    for (const FxNode& n : g.nodes)
      if (region_of(n)) any_ = true;
    if (!any_) return {};
    for (const auto& [name, meta] : g.tensors) taken_.insert(name);
    for (const auto& [name, value] : g.sym_ints) taken_.insert(name);
    std::vector<FxNode> nodes = std::move(g.nodes);
    g.nodes.clear();
    for (FxNode& n : nodes) TESSERA_TRY(add(std::move(n)));
    return {};
  }

private:
  // A node whose names are those of the whole program.
  Status add(FxNode node) {
    const auto at = region_of(node);
    if (!at) {
      program_.graph.nodes.push_back(std::move(node));
      return {};
    }
    const std::shared_ptr<FxGraph> region = node.inputs[*at].value.graph;
    const std::vector<NamedArgument> given(node.inputs.begin() + static_cast<std::ptrdiff_t>(*at) + 1,
                                           node.inputs.end());
    if (given.size() != region->inputs.size())
      return malformed(node, "is called with " + std::to_string(given.size()) + " values and takes " +
                                 std::to_string(region->inputs.size()));
    Names names;
    for (size_t i = 0; i < given.size(); ++i)
      if (!region->inputs[i].name.empty()) names[region->inputs[i].name] = given[i].value;
    for (const auto& [name, meta] : region->tensors)
      if (!names.contains(name)) program_.graph.tensors.emplace(own(name, Argument::Kind::Tensor, names), meta);
    for (const auto& [name, value] : region->sym_ints)
      if (!names.contains(name)) program_.graph.sym_ints.emplace(own(name, Argument::Kind::SymInt, names), value);
    for (const FxNode& inner : region->nodes) {
      FxNode n = inner;
      for (NamedArgument& a : n.inputs) rename(a.value, names);
      for (Argument& a : n.outputs) rename(a, names);
      if (n.module.empty()) n.module = node.module;
      TESSERA_TRY(add(std::move(n)));
    }
    return define_results(node, *region, names);
  }

  // The call's results are the region's under other names.
  Status define_results(const FxNode& node, const FxGraph& region, const Names& names) {
    std::vector<Argument> results;
    for (const Argument& a : node.outputs) {
      if (a.kind == Argument::Kind::List)
        results.insert(results.end(), a.items.begin(), a.items.end());
      else
        results.push_back(a);
    }
    // Results that nobody reads may be left out at the end.
    if (results.size() > region.outputs.size())
      return malformed(node, "has " + std::to_string(results.size()) + " results and yields " +
                                 std::to_string(region.outputs.size()));
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].is_none()) continue;
      Argument value = region.outputs[i];
      rename(value, names);
      FxNode alias;
      alias.target = results[i].kind == Argument::Kind::Tensor ? "torch.ops.aten.alias.default" : "_operator.pos";
      alias.inputs.push_back({"self", std::move(value)});
      alias.outputs.push_back(results[i]);
      alias.module = node.module;
      alias.source = node.source;
      program_.graph.nodes.push_back(std::move(alias));
    }
    return {};
  }

  // A name of the region that no other value has; `names` maps to it from now on.
  std::string own(const std::string& name, Argument::Kind kind, Names& names) {
    Argument value;
    value.kind = kind;
    value.name = name;
    for (int i = 1; !taken_.insert(value.name).second; ++i) value.name = name + "_" + std::to_string(i);
    return names.emplace(name, value).first->second.name;
  }

  [[nodiscard]] Diagnostic malformed(const FxNode& node, const std::string& what) const {
    Location where;
    where.file = file_;
    where.op = node.target;
    where.source = node.source;
    return {ErrorCode::MalformedModel, where, "a region " + what};
  }

  Program& program_;
  std::string file_;
  std::unordered_set<std::string> taken_;
  bool any_ = false;
};

} // namespace

Status inline_regions(Program& program, const std::string& file) { return Inliner(program, file).run(); }

std::string advice_on_region(const FxNode& node) {
  if (node.target == kAutocast)
    return "autocast casts what its region reads, which the program does not say: save "
           "'program.run_decompositions()', where the casts are calls";
  if (node.target.starts_with("torch.ops.higher_order."))
    return "a graph within the program that is run under a condition, or several times: export the module without it";
  return {};
}

} // namespace tessera::fx
