#include "frontend/onnx/types.h"
#include "frontend/onnx/weights.h"
#include "symbols/input_rank.h"
#include <algorithm>
#include <array>
#include <set>

namespace tessera::onnx {

namespace {

const char* kind_name(const proto::TypeProto& type) {
  switch (type.value_case()) {
  case proto::TypeProto::kTensorType: return "a tensor";
  case proto::TypeProto::kSequenceType: return "a sequence";
  case proto::TypeProto::kMapType: return "a map";
  case proto::TypeProto::kOptionalType: return "an optional";
  case proto::TypeProto::kSparseTensorType: return "a sparse tensor";
  case proto::TypeProto::kOpaqueType: return "an opaque value";
  case proto::TypeProto::VALUE_NOT_SET: break;
  }
  return "a value without a type";
}

// The name of a dimension; empty: it has none. What exporters write for "unknown" is no name: "?", "_", "-1", "None", and
// the "unk__12" of tf2onnx. Two of them need not be equal.
std::string dimension_name(const proto::TensorShapeProto_Dimension& dim) {
  const std::string& text = dim.dim_param();
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80) != 0; };
  const bool named = std::any_of(text.begin(), text.end(), letter) && text != "None" && !text.starts_with("unk__");
  return named ? text : "";
}

std::string shown_dims(const proto::TensorShapeProto& shape) {
  std::string out = "[";
  for (int i = 0; i < shape.dim_size(); ++i) {
    const auto& d = shape.dim(i);
    if (i > 0) out += ", ";
    out += d.has_dim_value() ? std::to_string(d.dim_value()) : dimension_name(d).empty() ? "?" : d.dim_param();
  }
  return out + "]";
}

// "?x4"
std::string example_dims(const proto::TensorShapeProto& shape) {
  std::string out;
  for (const auto& d : shape.dim())
    out += (out.empty() ? "" : "x") + (d.has_dim_value() ? std::to_string(d.dim_value()) : "?");
  return out;
}

// The items of a sequence, an optional or a map. Sizes with names may differ from item to item.
Result<std::shared_ptr<const ItemType>> item_type(const proto::TypeProto& type, const Location& where,
                                                  const std::string& what, int depth) {
  constexpr int kMaxDepth = 8;
  if (depth > kMaxDepth) return Diagnostic(ErrorCode::UnsupportedType, where, what + " nests lists too deeply");
  auto out = std::make_shared<ItemType>();
  using C = ItemType::Container;
  const proto::TypeProto* item = nullptr;
  if (type.has_sequence_type()) {
    item = &type.sequence_type().elem_type();
  } else if (type.has_optional_type()) {
    out->container = C::Optional;
    item = &type.optional_type().elem_type();
  } else if (type.has_map_type()) {
    out->container = C::Map;
    TESSERA_ASSIGN(out->keys, element_type(type.map_type().key_type(), where, "a key of " + what));
    item = &type.map_type().value_type();
  } else {
    return Diagnostic(ErrorCode::UnsupportedType, where, what + " is " + kind_name(type));
  }
  if (!item->has_tensor_type()) {
    out->dtype = DType::List;
    out->shape = Dims{-1};
    TESSERA_ASSIGN(out->items, item_type(*item, where, what, depth + 1));
    return std::shared_ptr<const ItemType>(std::move(out));
  }
  TESSERA_ASSIGN(out->dtype, element_type(item->tensor_type().elem_type(), where, "an item of " + what));
  if (item->tensor_type().has_shape()) {
    out->shape.emplace();
    for (const auto& d : item->tensor_type().shape().dim())
      out->shape->push_back(d.has_dim_value() && d.dim_value() >= 0 ? d.dim_value() : -1);
  }
  return std::shared_ptr<const ItemType>(std::move(out));
}

} // namespace

std::string identifier(std::string_view name) {
  std::string out;
  for (char c : name) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    out += plain ? c : '_';
  }
  if (out.empty() || (out[0] >= '0' && out[0] <= '9')) out.insert(out.begin(), '_');
  // Words of the text forms.
  static constexpr std::array<std::string_view, 16> kWords = {"floordiv", "mod", "min",   "max",   "eq",  "ne",
                                                              "lt",       "le",  "and",   "or",    "not", "select",
                                                              "div",      "in",  "where", "assume"};
  if (std::find(kWords.begin(), kWords.end(), out) != kWords.end()) out += '_';
  return out;
}

Status DimensionTable::read_options(const proto::GraphProto& graph,
                                    const std::vector<const proto::ValueInfoProto*>& inputs) {
  Location where;
  where.file = file_;
  auto size_ok = [](int64_t v) { return v >= 0 && v <= kSymMax; };
  std::set<std::string, std::less<>> names;
  for (const auto* input : inputs)
    for (const auto& d : input->type().tensor_type().shape().dim())
      if (const auto name = dimension_name(d); !name.empty()) names.insert(name);
  auto known = [&names] {
    std::string out;
    for (const auto& n : names) out += (out.empty() ? "" : ", ") + n;
    return out.empty() ? std::string("the model has no named dimensions") : "the model's dimensions are " + out;
  };
  for (const auto& [name, value] : options_.dim_values) {
    auto it =
        std::find_if(names.begin(), names.end(), [&](const auto& n) { return n == name || identifier(n) == name; });
    if (it == names.end())
      return Diagnostic(ErrorCode::UnknownInput, where, "no dimension is called '" + name + "'").note(known());
    if (!size_ok(value))
      return Diagnostic(ErrorCode::Usage, where, "dimension '" + name + "' cannot be " + std::to_string(value));
    given_[*it] = value;
  }
  for (const auto& [name, dims] : options_.input_shapes) {
    auto it = std::find_if(inputs.begin(), inputs.end(), [&](const auto* v) { return v->name() == name; });
    if (it == inputs.end()) {
      std::string all;
      for (const auto* v : inputs) all += (all.empty() ? "" : ", ") + v->name();
      bool weight = std::any_of(graph.initializer().begin(), graph.initializer().end(),
                                [&](const auto& t) { return t.name() == name; });
      return Diagnostic(ErrorCode::UnknownInput, where,
                        "no input is called '" + name + "'" + (weight ? ": it is a weight of the model" : ""))
          .note("the model's inputs are " + all);
    }
    const auto& type = (*it)->type().tensor_type();
    for (int64_t d : dims)
      if (d != -1 && !size_ok(d))
        return Diagnostic(ErrorCode::Usage, where,
                          "a dimension of input '" + name + "' cannot be " + std::to_string(d));
    if (!type.has_shape()) continue; // the rank comes from the options
    if (static_cast<int>(dims.size()) != type.shape().dim_size())
      return Diagnostic(ErrorCode::Usage, where,
                        "input '" + name + "' has " + std::to_string(type.shape().dim_size()) + " dimensions " +
                            shown_dims(type.shape()) + ", and " + std::to_string(dims.size()) + " sizes are given")
          .note("give one size for each, such as " + example_dims(type.shape()) + ", where ? is any size");
    for (size_t i = 0; i < dims.size(); ++i) {
      const auto& d = type.shape().dim(static_cast<int>(i));
      if (dims[i] == -1) continue;
      if (d.has_dim_value() && d.dim_value() >= 0 && d.dim_value() != dims[i])
        return Diagnostic(ErrorCode::Usage, where,
                          "dimension " + std::to_string(i) + " of input '" + name + "' is " +
                              std::to_string(d.dim_value()) + " in the model, and " + std::to_string(dims[i]) +
                              " is given");
      const std::string dim = dimension_name(d);
      if (dim.empty()) continue; // input_type() reads it
      auto [at, fresh] = given_.emplace(dim, dims[i]);
      if (!fresh && at->second != dims[i])
        return Diagnostic(ErrorCode::Usage, where,
                          "dimension '" + dim + "' is given two sizes: " + std::to_string(at->second) +
                              " and, by input '" + name + "', " + std::to_string(dims[i]));
    }
  }
  return {};
}

Result<SymExpr> DimensionTable::dimension(const proto::TensorShapeProto_Dimension& dim, const std::string& input,
                                          int position, std::optional<int64_t> given, bool of_model,
                                          const Location& where) {
  // -1 is how some exporters write a dimension that is not known.
  if (dim.has_dim_value() && dim.dim_value() != -1) {
    int64_t v = dim.dim_value();
    if (v < 0)
      return Diagnostic(ErrorCode::ShapeMismatch, where,
                        "dimension " + std::to_string(position) + " of '" + input +
                            "' is negative: " + std::to_string(v));
    if (v > kSymMax)
      return Diagnostic(ErrorCode::SizeOverflow, where,
                        "dimension " + std::to_string(position) + " of '" + input +
                            "' is beyond the address space: " + std::to_string(v));
    return SymExpr(v);
  }
  const std::string name = dimension_name(dim);
  if (!name.empty()) {
    if (auto it = named_.find(name); it != named_.end()) return it->second;
    if (auto it = given_.find(name); it != given_.end()) return named_.emplace(name, SymExpr(it->second)).first->second;
  } else if (given) {
    return SymExpr(*given);
  }
  std::string base = name.empty() ? input + "_d" + std::to_string(position) : name;
  // Two names that differ only in what identifier() drops are two dimensions.
  std::string plain = identifier(base);
  SymExpr symbol = env_.find(plain) ? env_.create_symbol(plain) : env_.named_symbol(plain, {0, kSymMax});
  if (of_model) input_symbols_.insert(symbol.symbol_id());
  if (auto range = options_.dim_ranges.find(symbol.symbol_name()); of_model && range != options_.dim_ranges.end())
    env_.set_range(symbol, {range->second.first, range->second.second});
  for (const std::string& key : {base, symbol.symbol_name()}) {
    auto hint = options_.dim_hints.find(key);
    if (hint == options_.dim_hints.end()) continue;
    env_.set_hint(symbol, hint->second);
    break;
  }
  if (!name.empty()) named_.emplace(name, symbol);
  return symbol;
}

Result<int64_t> DimensionTable::open_rank(const std::string& input, const Dims* given, bool of_model,
                                          const Location& where) {
  const std::string name = rank_symbol(input);
  const std::string what = "input '" + input + "' has no shape: not even its rank is known";
  if (!of_model) return Diagnostic(ErrorCode::UnsupportedFeature, where, what);
  if (given != nullptr) return static_cast<int64_t>(given->size());
  const auto hint = options_.dim_hints.find(name);
  const bool known = hint != options_.dim_hints.end() && hint->second >= 0 && hint->second <= kMaxRank;
  if (!known && !options_.undetermined)
    return Diagnostic(ErrorCode::MissingValues, where, what + " before a call gives the input")
        .note("give its sizes: --shape " + input + "=1x128");
  const SymExpr rank = env_.named_symbol(name, {0, kMaxRank});
  input_symbols_.insert(rank.symbol_id());
  if (!known) return 0;
  env_.set_hint(rank, hint->second);
  TESSERA_TRY(env_.require(sym_eq(rank, hint->second), GuardClass::Assumed, "the rank of the input", where));
  return hint->second;
}

Result<TensorType> DimensionTable::input_type(const proto::ValueInfoProto& value, bool of_model,
                                              const Location& where) {
  const auto& type = value.type();
  std::string what = "input '" + value.name() + "'";
  if (type.value_case() == proto::TypeProto::VALUE_NOT_SET)
    return Diagnostic(ErrorCode::MalformedModel, where, what + " has no type");
  if (!type.has_tensor_type()) {
    TESSERA_ASSIGN(auto items, item_type(type, where, what, 0));
    const std::string length = identifier(value.name() + "_length");
    using C = ItemType::Container;
    SymExpr n = items->container == C::Map        ? SymExpr(2)
                : items->container == C::Optional ? env_.create_symbol(length, {0, 1})
                                                  : env_.create_symbol(length);
    return TensorType{DType::List, {n}, items};
  }
  TensorType out;
  TESSERA_ASSIGN(out.dtype, element_type(type.tensor_type().elem_type(), where, what));
  auto given = options_.input_shapes.find(value.name());
  const Dims* dims = !of_model || given == options_.input_shapes.end() ? nullptr : &given->second;
  auto size_at = [&](int i) -> std::optional<int64_t> {
    if (dims == nullptr || (*dims)[static_cast<size_t>(i)] < 0) return std::nullopt;
    return (*dims)[static_cast<size_t>(i)];
  };
  proto::TensorShapeProto shape = type.tensor_type().shape();
  if (!type.tensor_type().has_shape()) {
    TESSERA_ASSIGN(const int64_t rank, open_rank(value.name(), dims, of_model, where));
    for (int64_t i = 0; i < rank; ++i) shape.add_dim();
  }
  if (shape.dim_size() > kMaxRank)
    return Diagnostic(ErrorCode::UnsupportedFeature, where,
                      what + " has " + std::to_string(shape.dim_size()) + " dimensions; at most " +
                          std::to_string(kMaxRank) + " are supported");
  Dims constants;
  for (int i = 0; i < shape.dim_size(); ++i) {
    TESSERA_ASSIGN(SymExpr d, dimension(shape.dim(i), value.name(), i, size_at(i), of_model, where));
    if (auto c = d.as_const()) constants.push_back(*c);
    out.shape.push_back(std::move(d));
  }
  if (!element_count(constants).ok())
    return Diagnostic(ErrorCode::SizeOverflow, where,
                      what + " of shape " + shown_dims(shape) + " has more elements than can be addressed");
  return out;
}

bool DimensionTable::of_inputs(const SymExpr& e) const {
  auto symbols = e.symbols();
  return std::all_of(symbols.begin(), symbols.end(),
                     [this](const SymExpr& s) { return input_symbols_.contains(s.symbol_id()); });
}

Status DimensionTable::meet(TensorType& inferred, const proto::ValueInfoProto& declared, const Location& where,
                            std::vector<std::string>& warnings) {
  const auto& type = declared.type();
  std::string what = "'" + declared.name() + "'";
  if (type.value_case() == proto::TypeProto::VALUE_NOT_SET) return {};
  if (!type.has_tensor_type() && inferred.items) return {};
  if (!type.has_tensor_type())
    return Diagnostic(ErrorCode::TypeMismatch, where,
                      what + " is declared as " + kind_name(type) + ", and it is a tensor");
  int elem = type.tensor_type().elem_type();
  if (elem != proto::TensorProto_DataType_UNDEFINED && dtype_from_onnx(elem) != inferred.dtype)
    return Diagnostic(ErrorCode::TypeMismatch, where,
                      what + " is declared as " + onnx_type_name(elem) + ", and it is " +
                          std::string(name(inferred.dtype)));
  if (!type.tensor_type().has_shape()) return {};
  const auto& shape = type.tensor_type().shape();
  auto contradiction = [&]() -> Status {
    warnings.push_back(where.str() + ": " + what + " is declared as " + shown_dims(shape) + ", and its shape is " +
                       str(inferred.shape));
    return {};
  };
  if (shape.dim_size() != inferred.rank()) return contradiction();
  for (int i = 0; i < shape.dim_size(); ++i) {
    const auto& d = shape.dim(i);
    SymExpr& dim = inferred.shape[static_cast<size_t>(i)];
    auto constant = dim.as_const();
    bool has_value = d.has_dim_value() && d.dim_value() >= 0 && d.dim_value() <= kSymMax;
    if (constant) {
      if (has_value && *constant != d.dim_value()) return contradiction();
      continue;
    }
    if (of_inputs(dim)) continue; // follows from the inputs: the declaration can say nothing new
    std::optional<SymExpr> size;
    if (has_value)
      size = SymExpr(d.dim_value());
    else if (auto it = named_.find(dimension_name(d)); it != named_.end())
      size = it->second;
    if (!size) continue;
    TESSERA_TRY(
        env_.require_equal(dim, *size, "the model declares dimension " + std::to_string(i) + " of " + what, where));
    dim = env_.simplify(dim);
  }
  return {};
}

} // namespace tessera::onnx
