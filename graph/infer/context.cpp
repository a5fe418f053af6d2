#include "graph/infer/infer.h"

namespace tessera {

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

} // namespace tessera
