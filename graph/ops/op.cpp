#include "graph/ops/op.h"
#include "graph/ir/sizes.h"
#include <array>

namespace tessera {

namespace {

struct TypeSetRow {
  TypeSet set;
  std::string_view summary;
};
constexpr std::array<TypeSetRow, 9> kTypeSets = {{
    {TypeSet::Any, "any type"},
    {TypeSet::Float, "a floating-point type"},
    {TypeSet::Integer, "an integer type"},
    {TypeSet::Signed, "a signed integer or floating-point type"},
    {TypeSet::Numeric, "an integer or floating-point type"},
    {TypeSet::NumericOrBool, "an integer, floating-point or bool type"},
    {TypeSet::Bool, "bool"},
    {TypeSet::Index, "i32 or i64"},
    {TypeSet::SameAsFirst, "the dtype of the first operand"},
}};

constexpr std::array<std::string_view, 10> kAttrKinds = {"int",     "float", "string", "ints",   "floats",
                                                         "strings", "dtype", "dims",   "tensor", "graph"};

bool is_constant(const OpDef& op) { return op.structured() && op.structured()->kind == Structured::Constant; }

std::string list_attributes(const OpDef& op) {
  std::string out;
  for (const AttrDef& def : op.attributes) out += (out.empty() ? "" : ", ") + std::string(def.name);
  return out.empty() ? "it has none" : "it has: " + out;
}

} // namespace

std::string_view summary(TypeSet set) {
  const auto& row = kTypeSets[static_cast<size_t>(set)];
  TESSERA_CHECK(row.set == set, "the table of type sets is out of order");
  return row.summary;
}

bool admits(TypeSet set, DType dtype) {
  DTypeKind kind = info(dtype).kind;
  switch (set) {
  case TypeSet::Any:
  case TypeSet::SameAsFirst: return true;
  case TypeSet::Float: return kind == DTypeKind::Float;
  case TypeSet::Integer: return is_integer(dtype);
  case TypeSet::Signed: return kind == DTypeKind::Signed || kind == DTypeKind::Float;
  case TypeSet::Numeric: return is_integer(dtype) || kind == DTypeKind::Float;
  case TypeSet::NumericOrBool: return is_integer(dtype) || kind == DTypeKind::Float || kind == DTypeKind::Bool;
  case TypeSet::Bool: return kind == DTypeKind::Bool;
  case TypeSet::Index: return dtype == DType::I32 || dtype == DType::I64;
  }
  TESSERA_UNREACHABLE("a type set without a rule");
}

std::string_view name(AttrKind kind) { return kAttrKinds[static_cast<size_t>(kind)]; }

AttrKind kind_of(const Attribute& attribute) {
  static_assert(std::variant_size_v<AttributeValue> == kAttrKinds.size(),
                "one AttrKind for each alternative, in their order");
  return static_cast<AttrKind>(attribute.index());
}

Status complete_attributes(const OpDef& op, Attributes& attributes) {
  size_t known = 0;
  for (const AttrDef& def : op.attributes) {
    const Attribute* given = attributes.find(def.name);
    if (given == nullptr) {
      if (def.fallback) {
        attributes.set(def.name, *def.fallback);
        ++known;
      } else if (def.required) {
        return Diagnostic(ErrorCode::BadAttribute, "attribute '" + std::string(def.name) + "' (" +
                                                       std::string(name(def.kind)) + ") of '" + std::string(op.name) +
                                                       "' is missing");
      }
      continue;
    }
    ++known;
    AttrKind kind = kind_of(*given);
    if (kind == def.kind) continue;
    if (def.kind == AttrKind::Dims && kind == AttrKind::Ints) {
      const Ints& ints = std::get<Ints>(*given);
      attributes.set(def.name, SymShape(ints.begin(), ints.end()));
      continue;
    }
    return Diagnostic(ErrorCode::BadAttribute, "attribute '" + std::string(def.name) + "' of '" + std::string(op.name) +
                                                   "' must be of kind " + std::string(name(def.kind)) + ", not " +
                                                   std::string(name(kind)));
  }
  if (known == attributes.items().size()) return {};
  for (const auto& [attribute, value] : attributes.items()) {
    bool declared = false;
    for (const AttrDef& def : op.attributes) declared |= def.name == attribute;
    if (!declared)
      return Diagnostic(ErrorCode::BadAttribute, "'" + std::string(op.name) + "' has no attribute '" + attribute + "'")
          .note(list_attributes(op));
  }
  return {};
}

// ---- InferContext ---------------------------------------------------------------------------------------------------

bool InferContext::has(int operand) const {
  return operand >= 0 && operand < static_cast<int>(node.operands.size()) &&
         node.operands[static_cast<size_t>(operand)].valid();
}

const TensorType& InferContext::type(int operand) const {
  TESSERA_CHECK(has(operand), "inference of '" + std::string(node.op->name) + "' reads operand " +
                                  std::to_string(operand) + ", which is left out");
  return graph.type(node.operands[static_cast<size_t>(operand)]);
}

namespace {
// The number of elements, which steers ranks: a size that is only hinted at is assumed, one that is not is taken for 1.
Result<int64_t> fixed_count(ShapeEnv& env, const TensorType& type, const std::string& what, const Location& where) {
  const SymExpr count = env.simplify(type.count());
  if (const auto known = count.as_const()) return *known;
  const int64_t n = env.hint(count).value_or(1);
  TESSERA_TRY(env.require(sym_eq(count, n), GuardClass::Assumed, "the number of elements of " + what, where));
  return n;
}
} // namespace

std::vector<std::string> read_symbols(std::string_view name, int64_t count) {
  std::string base(name);
  for (char& c : base)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  if (base.empty() || std::isdigit(static_cast<unsigned char>(base[0]))) base.insert(0, "v");
  if (count == 1) return {base};
  std::vector<std::string> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(base + "_" + std::to_string(i));
  return out;
}

ValueId read_of(const Graph& graph, ValueId value) {
  for (int i = graph.node_count(); i-- > 0;)
    if (const Node& n = graph.node(NodeId{i});
        !n.removed && n.op->structured() && n.op->structured()->kind == Structured::Read && reads(graph, n, value))
      return n.results[0];
  return {};
}

Result<std::vector<SymExpr>> InferContext::known(int operand) {
  std::string label = "operand " + std::to_string(operand);
  const auto& defs = node.op->operands;
  if (operand >= 0 && static_cast<size_t>(operand) < defs.size())
    label = "operand '" + std::string(defs[static_cast<size_t>(operand)].name) + "'";
  label += " of '" + std::string(node.op->name) + "'";
  if (!has(operand)) return error(ErrorCode::MalformedModel, label + " is missing");
  ValueId id = node.operands[static_cast<size_t>(operand)];
  const Value& value = graph.value(id);
  if (!is_integer(value.type.dtype) && value.type.dtype != DType::Bool)
    return error(ErrorCode::TypeMismatch, label + " must hold integers, not " + std::string(name(value.type.dtype)));
  if (value.contents) return *value.contents;
  if (const Tensor* tensor = graph.constant(id)) {
    std::vector<SymExpr> out;
    out.reserve(static_cast<size_t>(tensor->count()));
    for (int64_t i = 0; i < tensor->count(); ++i) out.emplace_back(tensor->get_i64(i));
    return out;
  }
  for (const Read& r : reads)
    if (node.operands[static_cast<size_t>(r.operand)] == id) return r.symbols;
  if (ValueId read = read_of(graph, id); read.valid()) {
    reads.push_back({operand, *graph.value(read).contents});
    return reads.back().symbols;
  }
  TESSERA_ASSIGN(auto count, fixed_count(env(), value.type, label, node.location));
  if (count > kContentsLimit)
    return error(ErrorCode::UnsupportedFeature, label + (value.name.empty() ? "" : " (" + value.name + ")") +
                                                    " steers the shape of the result and is " + value.type.str() +
                                                    ", too large to be read");
  Read made{operand, {}};
  for (const std::string& symbol : read_symbols(value.name.empty() ? node.op->name : value.name, count))
    made.symbols.push_back(env().create_symbol(symbol, {-kReadMax, kReadMax}));
  reads.push_back(made);
  return made.symbols;
}

Result<Ints> InferContext::known_ints(int operand) {
  TESSERA_ASSIGN(std::vector<SymExpr> exprs, known(operand));
  const auto& defs = node.op->operands;
  const std::string label = static_cast<size_t>(operand) < defs.size()
                                ? "'" + std::string(defs[static_cast<size_t>(operand)].name) + "'"
                                : std::to_string(operand);
  Ints out;
  for (size_t i = 0; i < exprs.size(); ++i) {
    auto value = env().simplify(exprs[i]).as_const();
    if (!value) {
      value = env().hint(exprs[i]);
      const bool is_read = env().range(exprs[i]).lo < 0;
      if (!value && is_read && env().may_guess()) value = static_cast<int64_t>(i); // a miss will report another
      if (!value && is_read)
        return error(ErrorCode::MissingValues,
                     "what operand " + label + " of '" + std::string(node.op->name) +
                         "' holds decides the shape of the result, and is known to a call only")
            .note("give it: --value " + exprs[i].str() + "=...");
      if (!value)
        return error(ErrorCode::UnsupportedFeature, "operand " + label + " of '" + std::string(node.op->name) +
                                                        "' must be constant, but holds " + exprs[i].str());
      TESSERA_TRY(env().require(sym_eq(exprs[i], *value), GuardClass::Assumed,
                                "value of operand " + label + " of " + std::string(node.op->name), node.location));
    }
    out.push_back(*value);
  }
  return out;
}

Result<int64_t> InferContext::axis(int64_t a, int rank) const {
  if (a >= -rank && a < rank) return a < 0 ? a + rank : a;
  const std::string of = node.op != nullptr ? " of '" + std::string(node.op->name) + "'" : ""; // none while importing
  return error(ErrorCode::BadAttribute, "axis " + std::to_string(a) + of + " is not in [" + std::to_string(-rank) +
                                            ", " + std::to_string(rank) + ")");
}

Diagnostic InferContext::error(ErrorCode code, std::string message) const {
  return {code, node.location, std::move(message)};
}

// ---- pointwise bodies, scratch graphs -------------------------------------------------------------------------------

DType pointwise_dtype(DType body, std::span<const DType> operands) {
  if (body == DType::Bool) return DType::Bool;
  for (DType d : operands)
    if (d != DType::Bool) return compute_dtype(d) == body ? d : body;
  return body;
}

Result<ScalarId> build_pointwise(const Graph& graph, const Node& node, ScalarDag& dag,
                                 const std::function<std::vector<ScalarId>(int operand)>& at) {
  const Pointwise* pointwise = node.op->pointwise();
  TESSERA_CHECK(pointwise != nullptr, "'" + std::string(node.op->name) + "' is not pointwise");
  // Left-out operands at the end are not stored in the node, but the body may look at them.
  size_t count = node.operands.size();
  if (!node.op->operands.empty() && !node.op->operands.back().variadic)
    count = std::max(count, node.op->operands.size());
  std::vector<ScalarId> loads(count, -1);
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (!node.operands[i].valid()) continue;
    DType storage = graph.type(node.operands[i]).dtype;
    loads[i] = dag.cast(dag.load(static_cast<int>(i), storage, at(static_cast<int>(i))), compute_dtype(storage));
  }
  return pointwise->body(dag, loads, node, graph);
}

Graph scratch_graph(const Graph& graph, const Node& node, Node& copy) {
  Graph scratch("scratch", graph.shared_env());
  copy = node;
  copy.results.clear();
  std::unordered_map<ValueId, ValueId> renamed; // x * x stays a product of one value with itself
  for (ValueId& operand : copy.operands) {
    if (!operand.valid()) continue;
    auto [it, fresh] = renamed.try_emplace(operand);
    if (fresh) {
      const Value& value = graph.value(operand);
      const Node* producer = graph.producer(operand);
      if (producer != nullptr && is_constant(*producer->op) && graph.constant(operand) != nullptr) {
        it->second = scratch.add_constant(*graph.constant(operand), value.name);
      } else {
        it->second = scratch.add_input(value.name, value.type);
        scratch.value(it->second).contents = value.contents;
        if (!value.contents)
          if (ValueId read = read_of(graph, operand); read.valid())
            scratch.value(it->second).contents = graph.value(read).contents;
      }
    }
    operand = it->second;
  }
  return scratch;
}

} // namespace tessera
