#include "frontend/onnx/attributes.h"
#include <algorithm>

namespace tessera::onnx {

namespace {

using Type = proto::AttributeProto;

// Which type of attribute a kind is written as, and how people call it.
struct KindUse {
  AttrKind kind;
  proto::AttributeProto_AttributeType type;
};
constexpr KindUse kKinds[] = {
    {AttrKind::Int, Type::INT},     {AttrKind::Float, Type::FLOAT},   {AttrKind::String, Type::STRING},
    {AttrKind::Ints, Type::INTS},   {AttrKind::Floats, Type::FLOATS}, {AttrKind::Strings, Type::STRINGS},
    {AttrKind::Type, Type::INT},    {AttrKind::Dims, Type::INTS},     {AttrKind::Tensor, Type::TENSOR},
    {AttrKind::Graph, Type::GRAPH},
};

std::string type_name(proto::AttributeProto_AttributeType type) {
  if (!proto::AttributeProto_AttributeType_IsValid(type) || type == Type::UNDEFINED) return "no type";
  return "type " + proto::AttributeProto_AttributeType_Name(type);
}

proto::AttributeProto_AttributeType type_of(AttrKind kind) {
  auto it = std::find_if(std::begin(kKinds), std::end(kKinds), [kind](const KindUse& k) { return k.kind == kind; });
  TESSERA_CHECK(it != std::end(kKinds), "attribute kind without an ONNX type");
  return it->type;
}

template <class T, class From>
Tensor vector_tensor(DType dtype, bool scalar, const From& from) {
  std::vector<T> values(from.begin(), from.end());
  Dims dims = scalar ? Dims{} : Dims{static_cast<int64_t>(values.size())};
  return Tensor::of<T>(dtype, std::move(dims), values);
}

} // namespace

Diagnostic wrong_attribute_type(const proto::AttributeProto& value, std::string_view wanted, const Location& where) {
  return {ErrorCode::BadAttribute, where,
          "attribute '" + value.name() + "' has " + type_name(value.type()) + "; type " + std::string(wanted) +
              " is expected"};
}

Result<BoundAttributes> bind_attributes(const proto::NodeProto& node, const Scope& scope,
                                        const std::map<std::string_view, BoundAttribute>* function,
                                        const Location& where) {
  BoundAttributes out;
  out.reserve(static_cast<size_t>(node.attribute_size()));
  for (const auto& a : node.attribute()) {
    if (std::any_of(out.begin(), out.end(), [&](const auto& b) { return b.first == a.name(); }))
      return Diagnostic(ErrorCode::BadAttribute, where, "attribute '" + a.name() + "' is given twice");
    BoundAttribute bound{&a, &scope};
    if (!a.ref_attr_name().empty()) {
      if (function == nullptr)
        return Diagnostic(ErrorCode::BadAttribute, where,
                          "attribute '" + a.name() + "' refers to attribute '" + a.ref_attr_name() +
                              "' of a function, and the node is in none");
      auto it = function->find(a.ref_attr_name());
      if (it == function->end()) continue;
      bound = it->second;
      if (a.type() != Type::UNDEFINED && a.type() != bound.value->type())
        return wrong_attribute_type(*bound.value, proto::AttributeProto_AttributeType_Name(a.type()), where);
    }
    out.emplace_back(a.name(), bound);
  }
  return out;
}

Result<std::optional<Attribute>> convert_attribute(const proto::AttributeProto& a, AttrKind kind, WeightLoader& weights,
                                                   const Location& where) {
  auto type = type_of(kind);
  if (kind == AttrKind::Tensor && a.type() == Type::SPARSE_TENSOR) {
    TESSERA_ASSIGN(Tensor dense, weights.load_sparse(a.sparse_tensor(), where));
    return std::optional<Attribute>(std::move(dense));
  }
  if (kind == AttrKind::String && a.type() == Type::TYPE_PROTO) { // "sequence f32"
    std::string text;
    const proto::TypeProto* type = &a.tp();
    for (; !type->has_tensor_type();) {
      const bool sequence = type->has_sequence_type();
      if (!sequence && !type->has_optional_type())
        return Diagnostic(ErrorCode::UnsupportedType, where,
                          "attribute '" + a.name() + "' is no type of a tensor, sequence or optional");
      text += sequence ? "sequence " : "optional ";
      type = sequence ? &type->sequence_type().elem_type() : &type->optional_type().elem_type();
    }
    TESSERA_ASSIGN(DType dtype, element_type(type->tensor_type().elem_type(), where, "attribute '" + a.name() + "'"));
    return std::optional<Attribute>(text + std::string(name(dtype)));
  }
  if (a.type() != type) return wrong_attribute_type(a, proto::AttributeProto_AttributeType_Name(type), where);
  switch (kind) {
  case AttrKind::Int: return std::optional<Attribute>(a.i());
  case AttrKind::Float: return std::optional<Attribute>(static_cast<double>(a.f()));
  case AttrKind::String: return std::optional<Attribute>(a.s());
  case AttrKind::Ints: return std::optional<Attribute>(Ints(a.ints().begin(), a.ints().end()));
  case AttrKind::Floats: return std::optional<Attribute>(std::vector<double>(a.floats().begin(), a.floats().end()));
  case AttrKind::Strings:
    return std::optional<Attribute>(std::vector<std::string>(a.strings().begin(), a.strings().end()));
  case AttrKind::Dims: return std::optional<Attribute>(SymShape(a.ints().begin(), a.ints().end()));
  case AttrKind::Type: {
    if (a.i() == proto::TensorProto_DataType_UNDEFINED) return std::optional<Attribute>();
    int number = a.i() < 0 || a.i() > INT32_MAX ? -1 : static_cast<int>(a.i());
    if (!proto::TensorProto_DataType_IsValid(number))
      return Diagnostic(ErrorCode::BadAttribute, where,
                        "attribute '" + a.name() + "' is " + std::to_string(a.i()) + ", which is no element type");
    TESSERA_ASSIGN(DType dtype, element_type(number, where, "attribute '" + a.name() + "'"));
    return std::optional<Attribute>(dtype);
  }
  case AttrKind::Tensor: {
    TESSERA_ASSIGN(Tensor tensor, weights.load(a.t(), where));
    return std::optional<Attribute>(std::move(tensor));
  }
  case AttrKind::Graph: break;
  }
  TESSERA_UNREACHABLE("subgraphs are converted by the graph builder");
}

Result<Attribute> attribute_as_written(const proto::AttributeProto& a, WeightLoader& weights, const Location& where) {
  auto it = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const KindUse& k) { return k.type == a.type(); });
  if (it == std::end(kKinds) || it->kind == AttrKind::Graph)
    return Diagnostic(ErrorCode::BadAttribute, where,
                      "attribute '" + a.name() + "' has " + type_name(a.type()) +
                          ", which no version of the operator has");
  TESSERA_ASSIGN(auto value, convert_attribute(a, it->kind, weights, where));
  return std::move(*value);
}

Result<Tensor> constant_value(const BoundAttributes& attributes, WeightLoader& weights, const Location& where) {
  if (attributes.size() != 1)
    return Diagnostic(ErrorCode::BadAttribute, where,
                      "a constant has exactly one value, and there are " + std::to_string(attributes.size()));
  auto [name, bound] = attributes.front();
  const auto& a = *bound.value;
  struct Spelling {
    std::string_view name;
    AttrKind kind;
  };
  static constexpr Spelling kSpellings[] = {
      {"value", AttrKind::Tensor},        {"sparse_value", AttrKind::Tensor},   {"value_float", AttrKind::Float},
      {"value_floats", AttrKind::Floats}, {"value_int", AttrKind::Int},         {"value_ints", AttrKind::Ints},
      {"value_string", AttrKind::String}, {"value_strings", AttrKind::Strings},
  };
  auto it = std::find_if(std::begin(kSpellings), std::end(kSpellings),
                         [&, n = name](const Spelling& s) { return s.name == n; });
  if (it == std::end(kSpellings))
    return Diagnostic(ErrorCode::BadAttribute, where, "a constant has no attribute '" + std::string(name) + "'");
  TESSERA_ASSIGN(auto converted, convert_attribute(a, it->kind, weights, where));
  switch (it->kind) {
  case AttrKind::Float: return vector_tensor<float>(DType::F32, true, std::vector<float>{a.f()});
  case AttrKind::Floats: return vector_tensor<float>(DType::F32, false, a.floats());
  case AttrKind::Int: return vector_tensor<int64_t>(DType::I64, true, std::vector<int64_t>{a.i()});
  case AttrKind::Ints: return vector_tensor<int64_t>(DType::I64, false, a.ints());
  case AttrKind::String: return Tensor::strings({}, {a.s()});
  case AttrKind::Strings:
    return Tensor::strings({a.strings_size()}, std::vector<std::string>(a.strings().begin(), a.strings().end()));
  default: return std::get<Tensor>(std::move(*converted));
  }
}

} // namespace tessera::onnx
