#include "frontend/fx/graph_builder.h"
#include "frontend/fx/guards.h"
#include "frontend/fx/inline.h"
#include <algorithm>
#include <cstring>

namespace tessera::fx {

GraphBuilder::GraphBuilder(const Program& program, const ImportOptions& options, WeightLookup weights, std::string file,
                           bool strided, ImportedModel& out)
    : program_(program), options_(options), weights_(std::move(weights)), file_(std::move(file)), strided_(strided),
      out_(out), symbols_(out.graph.env(), program, options, file_) {
  out.graph.env().set_hints(options.dim_hints, options.of_call);
}

Location GraphBuilder::file_location() const {
  Location where;
  where.file = file_;
  return where;
}

namespace {
// Name of the first result.
std::string result_name(const FxNode& node) {
  for (const Argument& a : node.outputs) {
    if (!a.name.empty()) return a.name;
    if (!a.items.empty() && !a.items[0].name.empty()) return a.items[0].name;
  }
  return {};
}
// "torch.ops.aten.add.Tensor" is "aten.add.Tensor".
std::string_view short_target(std::string_view target) {
  constexpr std::string_view ops = "torch.ops.";
  return target.starts_with(ops) ? target.substr(ops.size()) : target;
}
} // namespace

Location place_of(const FxNode& node, const std::string& file) {
  Location where{.file = file};
  where.output = result_name(node);
  where.node = node.module.empty() ? where.output : node.module + "." + where.output;
  where.op = short_target(node.target);
  where.source = node.source;
  return where;
}

Location GraphBuilder::place_of(const FxNode& node) const { return fx::place_of(node, file_); }

std::string GraphBuilder::unique(std::string name) {
  if (name.empty() || names_.insert(name).second) return name;
  for (int i = 1;; ++i) {
    std::string candidate = name + "_" + std::to_string(i);
    if (names_.insert(candidate).second) return candidate;
  }
}

void GraphBuilder::describe() {
  out_.path = file_;
  out_.info.format = "PyTorch";
  out_.info.version = program_.schema_major;
  out_.info.opsets["aten"] = program_.aten_opset;
  out_.info.producer = "pytorch" + (program_.torch_version.empty() ? "" : " " + program_.torch_version);
  out_.info.nodes = static_cast<int>(program_.graph.nodes.size());
}

Status GraphBuilder::build(std::set<std::string, std::less<>> states) {
  kept_ = std::move(states);
  describe();
  TESSERA_TRY(add_inputs());
  TESSERA_TRY(require_guards(program_, symbols_, out_.graph.env(), file_location()));
  TESSERA_TRY(add_nodes(nullptr));
  TESSERA_TRY(add_outputs());
  if (out_.graph.env().substitutions().empty()) return {};
  out_.graph.simplify_shapes();
  // Facts about a size that were found late may contradict uses of it before.
  if (auto status = verify(out_.graph); !status.ok())
    return Diagnostic(ErrorCode::MalformedModel, status.error().location,
                      "the program's sizes contradict each other: " + status.error().message);
  return {};
}

Result<std::vector<Refusal>> GraphBuilder::survey() {
  std::vector<Refusal> refusals;
  surveying_ = true;
  describe();
  TESSERA_TRY(add_inputs());
  TESSERA_TRY(add_nodes(&refusals));
  return refusals;
}

Result<TensorType> GraphBuilder::type_of(const std::string& name, const TensorMeta& meta) {
  if (!meta.dtype)
    return Diagnostic(ErrorCode::UnsupportedType, file_location(),
                      "'" + name + "' has element type " + dtype_name_of_schema(meta.dtype_number) +
                          ", which is not supported");
  TensorType type;
  type.dtype = *meta.dtype;
  TESSERA_ASSIGN(type.shape, symbols_.read(meta.sizes));
  for (const SymExpr& size : type.shape)
    if (auto known = size.as_const(); known && *known < 0)
      return Diagnostic(ErrorCode::MalformedModel, file_location(),
                        "'" + name + "' has a dimension of " + std::to_string(*known) + ", expected 0 or more");
  return type;
}

Ints GraphBuilder::memory_order(const TensorMeta& meta) {
  auto shape = symbols_.read(meta.sizes), strides = symbols_.read(meta.strides);
  if (!shape.ok() || !strides.ok()) return {};
  const ShapeEnv& env = out_.graph.env();
  // From the innermost dimension outwards: the one whose stride is the product of those found.
  const size_t rank = shape->size();
  std::vector<bool> taken(rank);
  Ints order;
  SymExpr stride = 1;
  while (order.size() < rank) {
    std::optional<size_t> found;
    for (size_t k = rank; k-- > 0;) {
      // Where sizes of 1 leave a choice, the last dimension is the innermost, as in contiguous memory.
      if (taken[k] || !((*shape)[k].is_const(1) || env.known_equal((*strides)[k], stride))) continue;
      found = k;
      break;
    }
    if (!found) return {};
    taken[*found] = true;
    order.insert(order.begin(), static_cast<int64_t>(*found));
    stride *= (*shape)[*found];
  }
  return std::is_sorted(order.begin(), order.end()) ? Ints() : order;
}

Result<ValueId> GraphBuilder::input(const std::string& name, const TensorMeta& meta) {
  TESSERA_ASSIGN(TensorType type, type_of(name, meta));
  if (auto given = options_.input_shapes.find(name); given != options_.input_shapes.end()) {
    if (given->second.size() != type.shape.size())
      return Diagnostic(ErrorCode::Usage, file_location(),
                        "input '" + name + "' has rank " + std::to_string(type.shape.size()) +
                            ", and the rank given is " + std::to_string(given->second.size()));
    for (size_t k = 0; k < type.shape.size(); ++k)
      if (given->second[k] >= 0)
        TESSERA_TRY(out_.graph.env().require(sym_eq(type.shape[k], given->second[k]), GuardClass::Required,
                                             "the size given for input '" + name + "'", file_location()));
  }
  const Ints order = strided_ ? memory_order(meta) : Ints();
  if (order.empty()) return out_.graph.add_input(unique(name), std::move(type));
  // Stored with its dimensions in another order: what the program sees is a transpose.
  TensorType stored{type.dtype, {}};
  Ints back(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    stored.shape.push_back(type.shape[static_cast<size_t>(order[k])]);
    back[static_cast<size_t>(order[k])] = static_cast<int64_t>(k);
  }
  ValueId memory = out_.graph.add_input(unique(name), std::move(stored));
  return out_.graph.apply("transpose", {memory}, {{"perm", back}}, file_location());
}

namespace {

// The weight as the program's tensor is, row-major. A weight without data stays without.
Result<Tensor> row_major(StoredWeight stored) {
  if (stored.perm.empty() && stored.sizes.empty()) return std::move(stored.tensor);
  const Tensor& from = stored.tensor;
  const size_t rank = from.dims().size();
  Dims memory_strides(rank, 1); // of `from`, in elements
  for (size_t k = rank; k-- > 1;) memory_strides[k - 1] = memory_strides[k] * from.dims()[k];
  Dims sizes(rank), strides(rank);
  for (size_t k = 0; k < rank; ++k) {
    const size_t at = stored.perm.empty() ? k : static_cast<size_t>(stored.perm[k]);
    const int64_t size = from.dims()[at];
    sizes[k] = stored.sizes.empty() ? size : stored.sizes[k];
    strides[k] = size == 1 ? 0 : memory_strides[at];
  }
  TESSERA_ASSIGN(const int64_t count, element_count(sizes));
  const int bits = info(from.dtype()).bits;
  if (from.data() == nullptr)
    return Tensor::view(from.dtype(), sizes,
                        Storage{nullptr, nullptr, static_cast<size_t>(byte_size(from.dtype(), count))});
  if (bits % 8 != 0)
    return Diagnostic(ErrorCode::UnsupportedType,
                      "elements of " + std::to_string(bits) + " bits are not reordered in memory");
  TESSERA_ASSIGN(Tensor out, Tensor::create(from.dtype(), sizes));
  const auto element = static_cast<size_t>(bits / 8);
  Dims index(rank, 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = 0;
    for (size_t k = 0; k < rank; ++k) at += index[k] * strides[k];
    std::memcpy(out.mutable_data() + static_cast<size_t>(i) * element, from.data() + static_cast<size_t>(at) * element,
                element);
    for (size_t k = rank; k-- > 0 && ++index[k] == sizes[k];) index[k] = 0;
  }
  return out;
}

} // namespace

Result<ValueId> GraphBuilder::weight(const std::string& name, const TensorMeta& meta) {
  TESSERA_ASSIGN(StoredWeight stored, weights_(name, meta));
  if (kept_.contains(name)) { // the first call reads what it is in the model
    auto first = row_major(std::move(stored));
    if (!first.ok()) {
      Diagnostic error = std::move(first).take_error();
      error.message = "weight '" + name + "', which the module changes: " + error.message;
      return std::move(error).at(file_location());
    }
    const ValueId input = out_.graph.add_input(unique(name), tessera::type_of(*first));
    out_.states.push_back({name, std::move(*first)});
    return input;
  }
  auto constant = [&]() -> ValueId {
    const Tensor& t = stored.tensor;
    if (t.data() == nullptr) return out_.graph.add_constant(std::move(stored.tensor), unique(name));
    auto [it, is_new] = shared_.try_emplace({t.data(), t.dtype(), t.dims()});
    if (is_new) it->second = out_.graph.add_constant(std::move(stored.tensor), unique(name));
    return it->second;
  };
  ValueId v = constant();
  if (!stored.perm.empty()) {
    TESSERA_ASSIGN(v, out_.graph.apply("transpose", {v}, {{"perm", stored.perm}}, file_location()));
  }
  if (!stored.sizes.empty()) {
    Node place;
    place.location = file_location();
    ops::B b(out_.graph, place);
    v = expand(b, v, SymShape(stored.sizes.begin(), stored.sizes.end()));
    TESSERA_TRY(b.done(v));
  }
  return v;
}

Status GraphBuilder::add_inputs() {
  // Sizes that are given for symbols are known before any shape is read. Inputs of states are the last ones.
  const auto is_state = [&](const InputSpec& spec) {
    return spec.argument.kind == Argument::Kind::Tensor && spec.kind != InputSpec::Kind::User &&
           kept_.contains(spec.target);
  };
  std::vector<const InputSpec*> in_order;
  for (const bool states : {false, true})
    for (const InputSpec& spec : program_.inputs)
      if (is_state(spec) == states) in_order.push_back(&spec);
  for (const InputSpec* input_spec : in_order) {
    const InputSpec& spec = *input_spec;
    const std::string& name = spec.argument.name;
    auto meta_of = [&]() -> Result<const TensorMeta*> {
      auto it = program_.graph.tensors.find(name);
      if (it == program_.graph.tensors.end())
        return Diagnostic(ErrorCode::MalformedModel, file_location(), "input '" + name + "' has no sizes");
      return &it->second;
    };
    switch (spec.kind) {
    case InputSpec::Kind::User: {
      if (spec.argument.kind == Argument::Kind::Tensor) {
        TESSERA_ASSIGN(const TensorMeta* meta, meta_of());
        auto v = input(name, *meta);
        if (v.ok())
          items_[name] = *v;
        else if (surveying_)
          unreadable_.emplace(name, std::move(v).take_error());
        else
          return std::move(v).take_error();
      } else if (spec.argument.kind == Argument::Kind::SymInt) {
        auto it = program_.graph.sym_ints.find(name);
        if (it == program_.graph.sym_ints.end())
          return Diagnostic(ErrorCode::MalformedModel, file_location(), "input '" + name + "' has no expression");
        TESSERA_ASSIGN(SymExpr e, symbols_.read(it->second.value));
        items_[name] = e;
        // A call binds the size by the dimension of an input that nothing reads.
        out_.graph.add_input(unique(name), TensorType{DType::Bool, {e}});
      }
      // Others are constants of the signature's, which nodes have as arguments.
      break;
    }
    case InputSpec::Kind::Parameter:
    case InputSpec::Kind::Buffer:
    case InputSpec::Kind::TensorConstant: {
      TESSERA_ASSIGN(const TensorMeta* meta, meta_of());
      TESSERA_ASSIGN(ValueId v, weight(spec.target, *meta));
      items_[name] = v;
      break;
    }
    case InputSpec::Kind::Constant:
    case InputSpec::Kind::Token: break;
    case InputSpec::Kind::CustomObject:
      return Diagnostic(ErrorCode::UnsupportedFeature, file_location(),
                        "the program has the custom object '" + spec.target + "', which is no tensor");
    }
  }
  return {};
}

Status GraphBuilder::add_nodes(std::vector<Refusal>* refusals) {
  for (size_t i = 0; i < program_.graph.nodes.size(); ++i) {
    const FxNode& node = program_.graph.nodes[i];
    auto status = add_node(node, place_of(node));
    if (status.ok()) continue;
    Diagnostic error = std::move(status).take_error();
    if (const Diagnostic* why = unreadable_input(node)) error = *why;
    if (error.location.output.empty())
      error.location = place_of(node); // of sizes and arguments: the file alone is known
    if (refusals == nullptr) return error;
    refusals->push_back({static_cast<int>(i), node.target, result_name(node), std::move(error)});
    TESSERA_TRY(define_opaque(node));
  }
  return {};
}

// Why a value that the node reads has no type here; null if all have one.
const Diagnostic* GraphBuilder::unreadable_input(const FxNode& node) const {
  auto of = [&](const Argument& a) -> const Diagnostic* {
    auto it = unreadable_.find(a.name);
    return it == unreadable_.end() ? nullptr : &it->second;
  };
  for (const NamedArgument& input : node.inputs) {
    if (const Diagnostic* why = of(input.value)) return why;
    for (const Argument& item : input.value.items)
      if (const Diagnostic* why = of(item)) return why;
  }
  return nullptr;
}

// A result that is a size: the program states its expression. One without is not defined; reading it is an error.
Status GraphBuilder::define_size(const Argument& a) {
  auto it = program_.graph.sym_ints.find(a.name);
  if (it == program_.graph.sym_ints.end()) return {};
  if (auto e = symbols_.read(it->second.value); e.ok()) items_[a.name] = *e;
  return {};
}

Status GraphBuilder::define_opaque(const FxNode& node) {
  auto define = [&](const Argument& a) -> Status {
    if (a.kind == Argument::Kind::Tensor) {
      auto it = program_.graph.tensors.find(a.name);
      if (it == program_.graph.tensors.end() || !it->second.dtype) return {}; // nothing can read it
      if (auto type = type_of(a.name, it->second); type.ok())
        items_[a.name] = out_.graph.add_input(unique(a.name), std::move(*type));
      else
        unreadable_.emplace(a.name, std::move(type).take_error());
    } else if (a.kind == Argument::Kind::SymInt) {
      return define_size(a);
    }
    return {};
  };
  for (const Argument& a : node.outputs) {
    TESSERA_TRY(define(a));
    for (const Argument& i : a.items) TESSERA_TRY(define(i));
  }
  return {};
}

Result<Item> GraphBuilder::item_of(const Argument& a, const Location& where) {
  if (a.kind == Argument::Kind::Int || a.kind == Argument::Kind::Bool) return Item(SymExpr(a.integer));
  auto it = items_.find(a.name);
  if (it == items_.end())
    return Diagnostic(ErrorCode::MalformedModel, where, "reads '" + a.name + "', which nothing defines");
  return it->second;
}

Status GraphBuilder::add_node(const FxNode& node, Location where) {
  std::string_view target = short_target(node.target);
  if (is_control(node)) return add_control(node, where);
  const bool is_call = target.starts_with("aten.") || target.starts_with("prims.");
  if (target.starts_with("aten._assert_async.") || target.starts_with("aten._functional_assert_async."))
    return add_assertion(node, where);
  if (!is_call || target.starts_with("aten.sym_") || target.starts_with("aten._assert")) return symbolic(node, where);
  Node place;
  place.location = std::move(where);
  return add_call(node, place);
}

Call GraphBuilder::call_of(const FxNode& node, const Node& place, const Schema& schema) {
  return {out_.graph,
          place,
          node,
          program_.graph,
          schema,
          [this](const std::string& n) -> const Item* {
            auto it = items_.find(n);
            return it == items_.end() ? nullptr : &it->second;
          },
          [this](const std::vector<Size>& sizes) { return symbols_.read(sizes); }};
}

void GraphBuilder::run(Call& call, const std::function<void()>& translation) {
  auto does_not_fit = [&] {
    std::string given;
    for (const NamedArgument& a : call.fx().inputs) {
      given += (given.empty() ? "" : ", ") + a.name + " is " + std::string(name(a.value.kind));
      auto it = items_.find(a.value.name);
      const auto* v = it == items_.end() ? nullptr : std::get_if<ValueId>(&it->second);
      if (v != nullptr && v->valid()) given += " " + out_.graph.type(*v).str();
      if (a.value.kind == Argument::Kind::List) given += " of " + std::to_string(a.value.items.size());
    }
    call.b.fail(ErrorCode::MalformedModel,
                "an argument has fewer dimensions or elements than the operator takes: " + given);
  };
  try {
    translation();
  } catch (const std::out_of_range&) { // of lists (checked.h)
    does_not_fit();
  } catch (const std::length_error&) { // a list of as many elements as a negative number says
    does_not_fit();
  }
}

Result<std::vector<ValueId>> GraphBuilder::translate(const FxNode& node, const Node& place, const std::string& name,
                                                     std::vector<Written>* written) {
  const Schema* schema = find_schema(name.starts_with("prims.") ? name : "aten." + name);
  const Translate translation = AtenTable::get().find(name);
  const OpDef* record = translation ? nullptr : record_of(name);
  if (schema == nullptr || (translation == nullptr && record == nullptr))
    return Diagnostic(ErrorCode::UnsupportedOp, place.location,
                      "operator '" + std::string(short_target(node.target)) + "' is not supported");
  Call call = call_of(node, place, *schema);
  run(call, [&] {
    if (translation != nullptr)
      translation(call);
    else
      translate_by_record(call, *record);
  });
  auto done = call.b.done(call.all_results());
  if (!done.ok()) return std::move(done).take_error().at(place.location);
  if (written != nullptr) *written = call.written();
  return done;
}

Status GraphBuilder::add_call(const FxNode& node, const Node& place) {
  std::string_view target = short_target(node.target);
  const std::string name(target.starts_with("aten.") ? target.substr(5) : target);
  TESSERA_TRY(refresh_arguments(node));
  if (const auto functional = functional_name(name)) return add_write(node, place, *functional);
  std::vector<Written> written;
  TESSERA_ASSIGN(std::vector<ValueId> results, translate(node, place, name, &written));
  TESSERA_TRY(define_results(node, results, place.location));
  note_views(node);
  for (const auto& [argument, value] : written) TESSERA_TRY(write(argument, value, place));
  return {};
}

Status GraphBuilder::define_results(const FxNode& node, const std::vector<ValueId>& results, const Location& where) {
  size_t next = 0;
  auto define = [&](const Argument& a) -> Status {
    const size_t i = next++;
    if (a.kind == Argument::Kind::None) return {};
    if (a.kind == Argument::Kind::SymFloat && i < results.size() && results[i].valid()) {
      items_[a.name] = SymbolicNumber{results[i]};
      return {};
    }
    const auto size =
        a.kind == Argument::Kind::SymInt ? program_.graph.sym_ints.find(a.name) : program_.graph.sym_ints.end();
    if (size != program_.graph.sym_ints.end() && !symbols_.is_new_symbol(size->second.value)) return define_size(a);
    if (a.kind != Argument::Kind::Tensor)
      return Diagnostic(ErrorCode::UnsupportedFeature, where, "has a result that is " + std::string(name(a.kind)));
    if (i >= results.size() || !results[i].valid()) {
      if (program_.graph.tensors.contains(a.name) && i >= results.size())
        return Diagnostic(ErrorCode::UnsupportedFeature, where,
                          "result " + std::to_string(i) + " ('" + a.name + "') is not supported");
      return {}; // not computed; reading it is an error
    }
    return define_tensor(a.name, results[i], where);
  };
  for (const Argument& a : node.outputs) {
    if (a.kind == Argument::Kind::List)
      for (const Argument& item : a.items) TESSERA_TRY(define(item));
    else
      TESSERA_TRY(define(a));
  }
  return {};
}

Status GraphBuilder::define_tensor(const std::string& name, ValueId value, const Location& where) {
  if (items_.contains(name))
    return Diagnostic(ErrorCode::MalformedModel, where, "defines '" + name + "', which is defined already");
  // The translation must give the type that the exporter recorded for the result.
  auto it = program_.graph.tensors.find(name);
  if (it != program_.graph.tensors.end()) {
    const TensorMeta& meta = it->second;
    const TensorType type = out_.graph.type(value);
    auto contradicts = [&](const std::string& what) {
      return Diagnostic(ErrorCode::UnsupportedFeature, where,
                        "'" + name + "' is " + type.str() + " here, and the program says " + what)
          .note("this is an error in the translation of " + where.op + ": please report it");
    };
    if (meta.dtype != type.dtype) return contradicts("its element type is " + dtype_name_of_schema(meta.dtype_number));
    if (meta.sizes.size() != type.shape.size()) return contradicts("its rank is " + std::to_string(meta.sizes.size()));
    for (size_t k = 0; k < meta.sizes.size(); ++k) {
      if (symbols_.is_new_symbol(meta.sizes[k])) { // a size that depends on data
        symbols_.bind(meta.sizes[k], type.shape[k]);
        continue;
      }
      TESSERA_ASSIGN(SymExpr stated, symbols_.read(meta.sizes[k]));
      if (out_.graph.env().known_equal(stated, type.shape[k])) continue;
      if (stated.is_const() && type.shape[k].is_const())
        return contradicts("dimension " + std::to_string(k) + " is " + stated.str());
      TESSERA_TRY(out_.graph.env().require(sym_eq(stated, type.shape[k]), GuardClass::Required,
                                           "the size of '" + name + "' as exported", where));
    }
  }
  items_[name] = value;
  Value& v = out_.graph.value(value);
  if (v.name.empty()) v.name = unique(name);
  return {};
}

// An item, or a constant, as a number of f64.
Result<ValueId> GraphBuilder::number_of(const Argument& a, ops::B& b, const Location& where) {
  if (a.kind == Argument::Kind::Float) return b.scalar(DType::F64, a.number);
  TESSERA_ASSIGN(Item item, item_of(a, where));
  if (const auto* e = std::get_if<SymExpr>(&item)) return b.size(*e, DType::F64);
  if (const auto* n = std::get_if<SymbolicNumber>(&item)) return n->value;
  return Diagnostic(ErrorCode::UnsupportedFeature, where, "'" + a.name + "' is no number");
}

Status GraphBuilder::add_assertion(const FxNode& node, const Location& where) {
  Assertion a;
  a.message = "an assertion of the program does not hold";
  for (const NamedArgument& input : node.inputs)
    if (input.value.kind == Argument::Kind::String) a.message = input.value.name;
  if (node.inputs.empty()) return Diagnostic(ErrorCode::MalformedModel, where, "an assertion of nothing");
  TESSERA_ASSIGN(Item item, item_of(node.inputs[0].value, where));
  const auto* tensor = std::get_if<ValueId>(&item);
  if (tensor == nullptr || !tensor->valid())
    return Diagnostic(ErrorCode::MalformedModel, where, "an assertion of what is no tensor");
  Node place;
  place.location = where;
  ops::B b(out_.graph, place);
  ValueId flat = reshape(b, *tensor, {});
  TESSERA_ASSIGN(std::vector<ValueId> condition,
                 b.done(b.dtype(flat) == DType::Bool ? flat : cast(b, flat, DType::Bool)));
  a.condition = condition[0];
  a.where = where;
  assertions_.push_back(std::move(a));
  return {};
}

Result<ValueId> GraphBuilder::under_assertions(ValueId output) {
  for (const Assertion& a : std::exchange(assertions_, {})) {
    TESSERA_ASSIGN(output, out_.graph.apply("require", {output, a.condition}, {{"message", a.message}}, a.where));
  }
  return output;
}

namespace {
// Arithmetic of numbers: Python's functions by name, and the operators that they are.
struct NumberFunction {
  std::string_view target, record;
};
constexpr NumberFunction kNumberFunctions[] = {
    {"_operator.add", "add"},
    {"_operator.sub", "sub"},
    {"_operator.mul", "mul"},
    {"_operator.truediv", "div"},
    {"_operator.mod", "mod"},
    {"_operator.pow", "pow"},
    {"_operator.pow_by_natural", "pow"},
    {"_operator.neg", "neg"},
    {"_operator.abs", "abs"},
    {"_operator.sym_max", "max"},
    {"_operator.sym_min", "min"},
    {"_operator._sym_sqrt", "sqrt"},
    {"_operator._sym_exp", "exp"},
    {"_operator._sym_log2", "log2"},
    {"_operator._sym_sin", "sin"},
    {"_operator._sym_cos", "cos"},
    {"_operator._sym_tan", "tan"},
    {"_operator._sym_tanh", "tanh"},
    {"_operator._sym_sinh", "sinh"},
    {"_operator._sym_cosh", "cosh"},
    {"_operator._sym_asin", "asin"},
    {"_operator._sym_acos", "acos"},
    {"_operator._sym_atan", "atan"},
    {"math.sqrt", "sqrt"},
    {"math.exp", "exp"},
    {"math.expm1", "expm1"},
    {"math.log", "log"},
    {"math.log2", "log2"},
    {"math.log1p", "log1p"},
    {"math.pow", "pow"},
    {"math.sin", "sin"},
    {"math.cos", "cos"},
    {"math.tan", "tan"},
    {"math.tanh", "tanh"},
    {"math.fabs", "abs"},
    {"math.fmod", "fmod"},
};
} // namespace

Result<ValueId> GraphBuilder::number_from(const FxNode& node, std::string_view name, const Location& where) {
  // torch.sym_float, torch._sym_sqrt: an archive names the module, a program of ours does not.
  const bool of_torch = name.starts_with("torch.sym_") || name.starts_with("torch._sym_");
  const std::string target = of_torch ? "_operator." + std::string(name.substr(6)) : std::string(name);
  Node place;
  place.location = where;
  ops::B b(out_.graph, place);
  std::vector<ValueId> operands;
  for (const NamedArgument& a : node.inputs) {
    TESSERA_ASSIGN(ValueId v, number_of(a.value, b, where));
    operands.push_back(v);
  }
  auto one = [&](ValueId v) -> Result<ValueId> {
    TESSERA_ASSIGN(std::vector<ValueId> done, b.done(v));
    return done[0];
  };
  if (target == "_operator.sym_float" && operands.size() == 1) return one(operands[0]);
  if (target == "_operator.floordiv" && operands.size() == 2) return one(floor(b, div(b, operands[0], operands[1])));
  for (const NumberFunction& f : kNumberFunctions)
    if (f.target == target) return one(b.op(f.record, std::move(operands)));
  return Diagnostic(ErrorCode::UnsupportedOp, where,
                    "operator '" + std::string(name) + "' of symbolic numbers is not supported");
}

// Arithmetic of sizes and of symbolic numbers. The expression of a size stands next to its name; a number is a tensor.
Status GraphBuilder::symbolic(const FxNode& node, const Location& where) {
  std::string_view target = short_target(node.target);
  if (target.starts_with("aten._assert") || target == "aten.sym_constrain_range.default" ||
      target == "aten.sym_constrain_range_for_size.default")
    return {}; // ranges of symbols say it
  for (const Argument& a : node.outputs) {
    if (a.kind == Argument::Kind::SymInt) {
      auto it = program_.graph.sym_ints.find(a.name);
      if (it == program_.graph.sym_ints.end())
        return Diagnostic(ErrorCode::MalformedModel, where, "'" + a.name + "' has no expression");
      TESSERA_ASSIGN(SymExpr e, symbols_.read(it->second.value));
      items_[a.name] = e;
    } else if (a.kind == Argument::Kind::SymFloat) {
      TESSERA_ASSIGN(ValueId v, number_from(node, target, where));
      items_[a.name] = SymbolicNumber{v};
    } else if (a.kind == Argument::Kind::SymBool) {
      // Assertions read it, and conditions. One without an expression that is understood is not defined.
      if (auto it = program_.graph.sym_bools.find(a.name); it != program_.graph.sym_bools.end())
        if (auto e = symbols_.read(it->second.value); e.ok()) items_[a.name] = *e;
    } else {
      Diagnostic d(ErrorCode::UnsupportedOp, where, "operator '" + std::string(target) + "' is not supported");
      if (std::string advice = advice_on_region(node); !advice.empty()) d.note(std::move(advice));
      return d;
    }
  }
  return {};
}

Status GraphBuilder::add_outputs() {
  std::unordered_set<std::string> taken;
  auto is_mutation = [](const OutputSpec& spec) {
    return spec.kind != OutputSpec::Kind::User && spec.kind != OutputSpec::Kind::Loss;
  };
  // The outputs of the module come first, then the new values of the tensors that it changes.
  std::vector<const OutputSpec*> in_order;
  for (const bool mutations : {false, true})
    for (const OutputSpec& spec : program_.outputs)
      if (is_mutation(spec) == mutations) in_order.push_back(&spec);
  std::vector<std::string> changed;
  std::map<std::string, ValueId> states;
  for (const OutputSpec* output : in_order) {
    const OutputSpec& spec = *output;
    const Argument& a = spec.argument;
    if (spec.kind == OutputSpec::Kind::Token || a.kind == Argument::Kind::None) continue;
    ValueId value;
    Location where = file_location();
    where.output = a.name;
    if (a.kind == Argument::Kind::Tensor || a.kind == Argument::Kind::SymInt || a.kind == Argument::Kind::Int ||
        a.kind == Argument::Kind::SymFloat) {
      TESSERA_TRY(refresh(a.name));
      TESSERA_ASSIGN(Item item, item_of(a, where));
      if (const auto* n = std::get_if<SymbolicNumber>(&item)) value = n->value;
      if (const auto* v = std::get_if<ValueId>(&item)) value = *v;
      if (const auto* e = std::get_if<SymExpr>(&item)) {
        Node place;
        place.location = where;
        ops::B b(out_.graph, place);
        value = b.size(*e, DType::I64);
        TESSERA_TRY(b.done(value));
      }
    }
    if (a.kind == Argument::Kind::Float || a.kind == Argument::Kind::Bool) {
      TESSERA_ASSIGN(Tensor number, Tensor::create(a.kind == Argument::Kind::Bool ? DType::Bool : DType::F64, {}));
      number.set_f64(0, a.kind == Argument::Kind::Bool ? static_cast<double>(a.integer) : a.number);
      value = out_.graph.add_constant(std::move(number));
    }
    if (!value.valid())
      return Diagnostic(ErrorCode::UnsupportedFeature, where,
                        "an output is " + std::string(name(a.kind)) + ", and outputs are tensors");
    if (spec.kind != OutputSpec::Kind::InputMutation && is_mutation(spec) && kept_.contains(spec.target)) {
      states.insert_or_assign(spec.target, value);
      continue;
    }
    if (strided_ && a.kind == Argument::Kind::Tensor)
      if (auto it = program_.graph.tensors.find(a.name); it != program_.graph.tensors.end())
        if (Ints order = memory_order(it->second); !order.empty()) {
          TESSERA_ASSIGN(value, out_.graph.apply("transpose", {value}, {{"perm", order}}, where));
        }
    if (admits(TypeSet::NumericOrBool, out_.graph.type(value).dtype)) {
      TESSERA_ASSIGN(value, under_assertions(value));
    }
    const bool mutation = is_mutation(spec);
    if (mutation) changed.push_back(spec.target);
    std::string label = mutation ? spec.target : a.name.empty() ? "output" : a.name;
    for (int i = 1; !taken.insert(label).second; ++i)
      label = (mutation ? spec.target : a.name.empty() ? "output" : a.name) + "_" + std::to_string(i);
    out_.graph.add_output(label, value);
  }
  TESSERA_TRY(add_written_outputs(taken, changed, states));
  if (!changed.empty()) {
    std::string all;
    for (const std::string& name : changed) all += (all.empty() ? "'" : ", '") + name + "'";
    out_.warnings.push_back("the module changes " + all +
                            ": the new values are outputs of these names, and the memory of inputs stays as it is");
  }
  if (out_.graph.outputs().empty())
    return Diagnostic(ErrorCode::UnsupportedFeature, file_location(), "the program has no output that is a tensor");
  return {};
}

} // namespace tessera::fx
