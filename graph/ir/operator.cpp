#include "graph/ir/operator.h"
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

} // namespace tessera
