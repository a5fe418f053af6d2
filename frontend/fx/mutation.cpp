#include "frontend/fx/mutation.h"
#include "frontend/fx/graph_builder.h"
#include "frontend/fx/view_parts.h"
#include <algorithm>
#include <array>

namespace tessera::fx {

std::optional<std::string> functional_name(std::string_view name) {
  const size_t dot = std::min(name.find('.'), name.size());
  std::string_view op = name.substr(0, dot), overload = name.substr(dot);
  if (op.starts_with("__i") && op.ends_with("__") && op != "__init__") // __iand__
    return "__" + std::string(op.substr(3)) + std::string(overload);
  if (op.size() < 2 || !op.ends_with('_') || op.ends_with("__")) return {};
  return std::string(op.substr(0, op.size() - 1)) + std::string(overload);
}

void Aliases::add(const std::string& name, Alias alias) {
  const Alias* parent = find(alias.parent);
  alias.root = parent ? parent->root : alias.parent;
  alias.version = version(alias.root);
  aliases_[name] = std::move(alias);
}

const Aliases::Alias* Aliases::find(const std::string& name) const {
  auto it = aliases_.find(name);
  return it == aliases_.end() ? nullptr : &it->second;
}

uint64_t Aliases::version(const std::string& root) const {
  auto it = versions_.find(root);
  return it == versions_.end() ? 0 : it->second;
}

bool Aliases::is_stale(const std::string& name) const {
  const Alias* a = find(name);
  return a != nullptr && a->version != version(a->root);
}

void Aliases::made(const std::string& name) {
  if (auto it = aliases_.find(name); it != aliases_.end()) it->second.version = version(it->second.root);
}

void Aliases::wrote(const std::string& root) { ++versions_[root]; }

// ---- of the graph builder
namespace {
// Names of results, those of a list individually; empty for what is no tensor.
std::vector<std::string> result_names(const FxNode& node) {
  std::vector<std::string> out;
  auto add = [&](const Argument& a) { out.push_back(a.kind == Argument::Kind::Tensor ? a.name : std::string()); };
  for (const Argument& a : node.outputs) {
    if (a.kind == Argument::Kind::List)
      for (const Argument& i : a.items) add(i);
    else
      add(a);
  }
  return out;
}

std::string name_without_namespace(std::string_view target) {
  for (std::string_view prefix : {"torch.ops.", "aten."})
    if (target.starts_with(prefix)) target.remove_prefix(prefix.size());
  return std::string(target);
}

const Argument* self_of(const FxNode& node) {
  for (const NamedArgument& a : node.inputs)
    if (a.name == "self" || a.name == "a") return a.value.kind == Argument::Kind::Tensor ? &a.value : nullptr;
  return nullptr;
}

// The call with its arguments under the names of the functional operator: `input` where dropout_ has `self`.
FxNode with_names_of(const Schema& functional, const Schema& in_place, const FxNode& node) {
  FxNode out = node;
  for (NamedArgument& a : out.inputs)
    for (size_t i = 0; i < in_place.arguments.size() && i < functional.arguments.size(); ++i)
      if (in_place.arguments[i].name == a.name) {
        a.name = functional.arguments[i].name;
        break;
      }
  return out;
}

// Operators that change what a name's sizes and strides are, not elements.
constexpr std::array<std::string_view, 12> kChangesOfShape = {"t",        "transpose",  "squeeze", "unsqueeze",
                                                              "swapaxes", "swapdims",   "resize",  "resize_as",
                                                              "set",      "as_strided", "rename",  "swapaxis"};
} // namespace

Status GraphBuilder::refresh_arguments(const FxNode& node) {
  for (const NamedArgument& a : node.inputs) {
    if (a.value.kind == Argument::Kind::Tensor) TESSERA_TRY(refresh(a.value.name));
    for (const Argument& i : a.value.items)
      if (i.kind == Argument::Kind::Tensor) TESSERA_TRY(refresh(i.name));
  }
  return {};
}

Status GraphBuilder::refresh(const std::string& name) {
  // The views that made this one, from it to the first that shows what its memory holds. Chains may be long.
  std::vector<std::string> stale;
  for (std::string at = name; aliases_.is_stale(at); at = aliases_.find(at)->parent) stale.push_back(at);
  for (; !stale.empty(); stale.pop_back())
    if (aliases_.is_stale(stale.back())) TESSERA_TRY(make_again(stale.back()));
  return {};
}

Status GraphBuilder::make_again(const std::string& name) {
  const Aliases::Alias alias = *aliases_.find(name);
  if (alias.node == nullptr) {
    items_[name] = items_[alias.parent];
    aliases_.made(name);
    return {};
  }
  Node place;
  place.location = place_of(*alias.node);
  if (!alias.certain)
    return Diagnostic(ErrorCode::UnsupportedFeature, place.location,
                      "'" + name + "' is read after '" + alias.root +
                          "' was written to, and whether it shares memory with it is not known")
        .note("write `.view` or `.clone()` in the model instead of what may be either");
  TESSERA_ASSIGN(std::vector<ValueId> results,
                 translate(*alias.node, place, name_without_namespace(alias.node->target)));
  const std::vector<std::string> names = result_names(*alias.node);
  for (size_t i = 0; i < names.size() && i < results.size(); ++i) {
    if (names[i].empty() || !results[i].valid()) continue;
    if (names[i] != name && !aliases_.is_stale(names[i])) continue; // written to itself
    items_[names[i]] = results[i];
    aliases_.made(names[i]);
  }
  return {};
}

Status GraphBuilder::write(const std::string& name, ValueId value, const Node& place) {
  std::vector<std::string> written; // from the name to the tensor that has the memory
  for (std::string at = name;;) {
    items_[at] = value;
    const Aliases::Alias* found = aliases_.find(at);
    if (found == nullptr) {
      aliases_.wrote(at);
      break;
    }
    const Aliases::Alias alias = *found;
    TESSERA_TRY(refresh(alias.parent));
    if (!alias.certain)
      return Diagnostic(ErrorCode::UnsupportedFeature, place.location,
                        "writes to '" + at + "', and whether it shares memory with '" + alias.parent + "' is not known")
          .note("write `.view` or `.clone()` in the model instead of what may be either");
    if (alias.node != nullptr) {
      const std::string view = name_without_namespace(alias.node->target);
      Call call = call_of(*alias.node, place, *find_schema("aten." + view));
      run(call, [&] { value = AtenTable::get().find_view(view)(call, value, alias.result); });
      auto done = call.b.done(value);
      if (!done.ok()) return std::move(done).take_error().at(place.location);
    }
    written.push_back(at);
    at = alias.parent;
  }
  for (const std::string& view : written) aliases_.made(view);
  return {};
}

Status GraphBuilder::add_write(const FxNode& node, const Node& place, const std::string& functional) {
  const Argument* self = self_of(node);
  const std::string op = functional.substr(0, functional.find('.'));
  auto item = self ? items_.find(self->name) : items_.end();
  const auto* current = item == items_.end() ? nullptr : std::get_if<ValueId>(&item->second);
  if (current == nullptr)
    return Diagnostic(ErrorCode::UnsupportedOp, place.location,
                      "operator '" + node.target + "' writes to something else than one tensor 'self'");
  if (std::find(kChangesOfShape.begin(), kChangesOfShape.end(), op) != kChangesOfShape.end())
    return Diagnostic(ErrorCode::UnsupportedFeature, place.location,
                      "operator '" + node.target + "' changes the shape of a tensor in place");
  const TensorType type = out_.graph.type(*current);
  ValueId value = *current;
  ops::B b(out_.graph, place);
  if (op == "zero") {
    value = zeros(b, type.dtype, type.shape);
  } else if (op == "copy" || op == "fill") {
    Call call = call_of(node, place, *find_schema("aten." + name_without_namespace(node.target)));
    value = operand(call.b, call.in, op == "copy" ? "src" : "value", type.dtype);
    auto read = call.b.done(value);
    if (!read.ok()) return std::move(read).take_error().at(place.location);
    if (op == "fill" && b.rank(value) > 0) value = reshape(b, value, {});
    value = expand(b, value, type.shape);
  } else if (op != "detach") {
    const Schema *in_place = find_schema("aten." + name_without_namespace(node.target)),
                 *schema = find_schema("aten." + functional);
    const FxNode call = in_place && schema ? with_names_of(*schema, *in_place, node) : node;
    TESSERA_ASSIGN(std::vector<ValueId> results, translate(call, place, functional));
    if (results.size() != 1 || !results[0].valid())
      return Diagnostic(ErrorCode::UnsupportedOp, place.location,
                        "operator '" + node.target + "' writes to something else than one tensor 'self'");
    value = cast(b, results[0], type.dtype); // memory keeps its element type
  }
  auto done = b.done(value);
  if (!done.ok()) return std::move(done).take_error().at(place.location);
  const TensorType written = out_.graph.type(value);
  if (written.shape.size() != type.shape.size())
    return Diagnostic(ErrorCode::ShapeMismatch, place.location,
                      "writes " + written.str() + " in the place of " + type.str());
  for (size_t k = 0; k < type.shape.size(); ++k)
    TESSERA_TRY(out_.graph.env().require_equal(written.shape[k], type.shape[k], "a write in place keeps sizes",
                                               place.location));
  const std::string target = self->name;
  if (op != "detach") TESSERA_TRY(write(target, value, place));
  TESSERA_TRY(define_results(node, {value}, place.location));
  for (const std::string& name : result_names(node))
    if (!name.empty()) aliases_.add(name, {target, nullptr, 0, true, {}, 0});
  return {};
}

void GraphBuilder::note_views(const FxNode& node) {
  const std::string name = name_without_namespace(node.target);
  const Argument* self = self_of(node);
  if (self == nullptr) return;
  if (AtenTable::get().find_view(name) == nullptr) {
    // These operators return their argument itself where there is nothing to do.
    const std::vector<std::string> names = result_names(node);
    const bool may_be_same = name.starts_with("to.") || name.starts_with("dropout.") || name.starts_with("type_as.");
    if (may_be_same && names.size() == 1 && items_.contains(names[0]) && items_.contains(self->name)) {
      const auto *a = std::get_if<ValueId>(&items_[names[0]]), *b = std::get_if<ValueId>(&items_[self->name]);
      if (a && b && *a == *b) aliases_.add(names[0], {self->name, nullptr, 0, true, {}, 0});
    }
    return;
  }
  bool certain = true;
  const std::string op = name.substr(0, name.find('.'));
  if (op == "reshape" || op == "reshape_as" || op == "flatten" || op == "ravel" || op == "contiguous") {
    // A view where memory allows it: always of a contiguous tensor.
    auto it = program_.graph.tensors.find(self->name);
    bool contiguous = false;
    if (it != program_.graph.tensors.end()) {
      auto shape = symbols_.read(it->second.sizes), strides = symbols_.read(it->second.strides);
      if (shape.ok() && strides.ok()) {
        auto order = dense_order(out_.graph.env(), *shape, *strides);
        contiguous = order && std::is_sorted(order->begin(), order->end());
      }
    }
    if (op == "contiguous" && !contiguous) return; // a copy
    certain = contiguous;
  }
  const std::vector<std::string> names = result_names(node);
  for (size_t i = 0; i < names.size(); ++i)
    if (!names[i].empty() && items_.contains(names[i]))
      aliases_.add(names[i], {self->name, &node, static_cast<int>(i), certain, {}, 0});
}

namespace {
std::string free_name(const std::string& name, std::unordered_set<std::string>& taken) {
  std::string free = name;
  for (int i = 1; !taken.insert(free).second; ++i) free = name + "_" + std::to_string(i);
  return free;
}
} // namespace

Status GraphBuilder::add_written_outputs(std::unordered_set<std::string>& taken, std::vector<std::string>& changed,
                                         const std::map<std::string, ValueId>& stated) {
  for (const InputSpec& spec : program_.inputs) {
    const std::string& name = spec.argument.name;
    if (spec.argument.kind != Argument::Kind::Tensor || !aliases_.is_written(name)) continue;
    if (spec.kind != InputSpec::Kind::User) continue;
    const bool named = std::any_of(program_.outputs.begin(), program_.outputs.end(), [&](const OutputSpec& o) {
      return o.kind == OutputSpec::Kind::InputMutation && o.target == name;
    });
    if (named) continue;
    const std::string free = free_name(name, taken);
    ValueId value = std::get<ValueId>(items_.at(name));
    if (strided_)
      if (auto it = program_.graph.tensors.find(name); it != program_.graph.tensors.end())
        if (Ints order = memory_order(it->second); !order.empty()) {
          TESSERA_ASSIGN(value, out_.graph.apply("transpose", {value}, {{"perm", order}}, file_location()));
        }
    out_.graph.add_output(free, value);
    changed.push_back(name);
  }
  std::unordered_map<std::string, std::string> name_of; // by the weight's name
  for (const InputSpec& spec : program_.inputs)
    if (spec.kind != InputSpec::Kind::User) name_of.emplace(spec.target, spec.argument.name);
  for (const auto& [name, value] : stated)
    if (!name_of.contains(name))
      return Diagnostic(ErrorCode::MalformedModel, file_location(),
                        "a new value is of '" + name + "', which is no weight");
  for (const ModelState& state : out_.states) {
    const auto given = stated.find(state.name);
    ValueId value = given != stated.end() ? given->second : std::get<ValueId>(items_.at(name_of.at(state.name)));
    const TensorType type = out_.graph.type(value), before = tessera::type_of(state.first);
    if (type.dtype != before.dtype || type.shape.size() != before.shape.size())
      return Diagnostic(ErrorCode::UnsupportedFeature, file_location(),
                        "the module makes " + type.str() + " of '" + state.name + "', which is " + before.str());
    for (size_t k = 0; k < type.shape.size(); ++k)
      TESSERA_TRY(
          out_.graph.env().require_equal(type.shape[k], before.shape[k], "a state keeps its sizes", file_location()));
    if (type.shape != before.shape) { // the sizes are equal under what has just been required
      Node place;
      place.location = file_location();
      ops::B b(out_.graph, place);
      value = reshape(b, value, before.shape);
      TESSERA_TRY(b.done(value));
    }
    out_.graph.add_output(free_name(state.name, taken), value);
  }
  return {};
}

std::set<std::string, std::less<>> GraphBuilder::written_weights() const {
  std::set<std::string, std::less<>> out;
  for (const InputSpec& spec : program_.inputs)
    if (spec.kind != InputSpec::Kind::User && spec.argument.kind == Argument::Kind::Tensor &&
        aliases_.is_written(spec.argument.name))
      out.insert(spec.target);
  return out;
}

} // namespace tessera::fx
