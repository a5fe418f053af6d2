#include "api/operators/call.h"
#include "base/guarded.h"
#include "base/similar.h"
#include <algorithm>
#include <limits>

using namespace tessera;

void tessera_operator_call::fail(ErrorCode code, std::string message) {
  if (!error) error = Diagnostic(code, node.location, "'" + std::string(node.op->name) + "': " + std::move(message));
}

namespace {

constexpr int64_t kConstantBytes = int64_t{64} << 20; // of a decomposition's constant

const char* const kWhere[] = {"shape functions", "decompositions", "kernels", "host functions"};
enum Phase : uint8_t { kShape, kDecompose, kKernel, kRun };

Phase phase_of(const tessera_operator_call& c) {
  return c.infer != nullptr ? kShape : c.build != nullptr ? kDecompose : c.kernel ? kKernel : kRun;
}
bool is_in(tessera_operator_call& c, std::initializer_list<Phase> phases, const char* function) {
  if (std::find(phases.begin(), phases.end(), phase_of(c)) != phases.end()) return true;
  c.fail(ErrorCode::Usage, std::string(function) + "() is not for " + kWhere[phase_of(c)]);
  return false;
}

ShapeEnv* env_of(tessera_operator_call& c) {
  return c.infer != nullptr ? &c.infer->env() : c.build != nullptr ? &c.build->env() : nullptr;
}

// ---- the node
const Attribute* attribute(const tessera_operator_call* c, const char* name) {
  return name == nullptr ? nullptr : c->node.attributes.find(name);
}
template <class T>
const T* attribute_as(tessera_operator_call* c, const char* name) {
  const Attribute* a = attribute(c, name);
  if (a == nullptr) return nullptr;
  if (const T* value = std::get_if<T>(a)) return value;
  c->fail(ErrorCode::BadAttribute, "attribute '" + std::string(name) + "' is of another kind");
  return nullptr;
}

void fail(tessera_operator_call* c, const char* message) {
  c->fail(ErrorCode::BadInput, message == nullptr ? "failed" : message);
}
int32_t failed(const tessera_operator_call* c) { return c->error || (c->build != nullptr && !c->build->ok()) ? 1 : 0; }
int32_t version_imported(const tessera_operator_call* c) { return c->node.opset; }
int32_t operand_count(const tessera_operator_call* c) { return static_cast<int32_t>(c->operands.size()); }
int32_t result_count(const tessera_operator_call* c) { return c->results; }
int32_t has_operand(const tessera_operator_call* c, int32_t i) {
  return i >= 0 && i < operand_count(c) && c->operands[static_cast<size_t>(i)] ? 1 : 0;
}
int32_t has_attribute(const tessera_operator_call* c, const char* name) {
  return attribute(c, name) != nullptr ? 1 : 0;
}
int64_t attribute_int(tessera_operator_call* c, const char* name, int64_t otherwise) {
  const auto* v = attribute_as<int64_t>(c, name);
  return v ? *v : otherwise;
}
double attribute_float(tessera_operator_call* c, const char* name, double otherwise) {
  const auto* v = attribute_as<double>(c, name);
  return v ? *v : otherwise;
}
const char* attribute_string(tessera_operator_call* c, const char* name, const char* otherwise) {
  const auto* v = attribute_as<std::string>(c, name);
  return v ? v->c_str() : otherwise;
}
template <class T>
int32_t attribute_list(tessera_operator_call* c, const char* name, const T** values) {
  const auto* v = attribute_as<std::vector<T>>(c, name);
  *values = v ? v->data() : nullptr;
  return v ? static_cast<int32_t>(v->size()) : 0;
}
int32_t attribute_strings(tessera_operator_call* c, const char* name, const char* const** values) {
  *values = nullptr;
  const auto* v = attribute_as<std::vector<std::string>>(c, name);
  if (v == nullptr) return 0;
  auto& texts = c->texts.emplace_back();
  for (const std::string& s : *v) texts.push_back(s.c_str());
  *values = texts.data();
  return static_cast<int32_t>(texts.size());
}
tessera_tensor shown(const Tensor& t) {
  void* data = t.dtype() == DType::String ? nullptr : const_cast<std::byte*>(t.data());
  return {nullptr, info(t.dtype()).onnx, static_cast<int32_t>(t.dims().size()), t.dims().data(), data};
}
int32_t attribute_tensor(tessera_operator_call* c, const char* name, tessera_tensor* value) {
  const auto* v = attribute_as<Tensor>(c, name);
  if (v == nullptr) return 0;
  *value = shown(*v);
  return 1;
}

// ---- types and sizes
const TensorType* operand_type(tessera_operator_call* c, int32_t i) {
  if (has_operand(c, i) != 0) return &*c->operands[static_cast<size_t>(i)];
  c->fail(ErrorCode::Usage, "operand " + std::to_string(i) + " is read, and it is not given");
  return nullptr;
}
int32_t operand_dtype(tessera_operator_call* c, int32_t i) {
  const TensorType* t = operand_type(c, i);
  return t ? info(t->dtype).onnx : 0;
}
int32_t operand_rank(tessera_operator_call* c, int32_t i) {
  const TensorType* t = operand_type(c, i);
  return t ? t->rank() : 0;
}
tessera_dim put(tessera_operator_call* c, SymExpr e) {
  c->dims.push_back(std::move(e));
  return static_cast<tessera_dim>(c->dims.size()) - 1;
}
std::optional<SymExpr> dim(tessera_operator_call* c, tessera_dim d) {
  if (d >= 0 && static_cast<size_t>(d) < c->dims.size()) return c->dims[static_cast<size_t>(d)];
  c->fail(ErrorCode::Usage, "a size is used that no function has returned");
  return std::nullopt;
}
tessera_dim dim_of(tessera_operator_call* c, const TensorType& type, int32_t d) {
  const int32_t at = d < 0 ? d + type.rank() : d;
  if (at >= 0 && at < type.rank()) return put(c, type.shape[static_cast<size_t>(at)]);
  c->fail(ErrorCode::ShapeMismatch, "dimension " + std::to_string(d) + " of " + type.str() +
                                        " is read, which has rank " + std::to_string(type.rank()));
  return -1;
}
tessera_dim operand_dim(tessera_operator_call* c, int32_t i, int32_t d) {
  const TensorType* t = operand_type(c, i);
  return t ? dim_of(c, *t, d) : -1;
}
int32_t operand_integers(tessera_operator_call* c, int32_t i, tessera_dim* out, int32_t most) {
  if (!is_in(*c, {kShape, kDecompose}, "operand_integers") || operand_type(c, i) == nullptr || failed(c)) return 0;
  std::vector<SymExpr> known;
  if (c->build != nullptr) {
    known = c->build->known(i);
  } else if (auto r = c->infer->known(i); r.ok()) {
    known = std::move(*r);
  } else {
    if (!c->error) c->error = r.error();
    return 0;
  }
  if (static_cast<int64_t>(known.size()) > most) {
    c->fail(ErrorCode::ShapeMismatch, "operand " + std::to_string(i) + " holds " + std::to_string(known.size()) +
                                          " integers, at most " + std::to_string(most) + " are expected");
    return 0;
  }
  for (size_t k = 0; k < known.size(); ++k) out[k] = put(c, known[k]);
  return static_cast<int32_t>(known.size());
}
tessera_dim dim_number(tessera_operator_call* c, int64_t number) {
  if (number >= -kSymMax && number <= kSymMax) return put(c, number);
  c->fail(ErrorCode::SizeOverflow, std::to_string(number) + " is beyond the address space");
  return -1;
}
tessera_dim dim_operation(tessera_operator_call* c, int32_t operation, tessera_dim x, tessera_dim y) {
  const auto a = dim(c, x), b = dim(c, y);
  if (!a || !b) return -1;
  const bool divides = operation >= TESSERA_DIM_FLOOR_DIV && operation <= TESSERA_DIM_MOD;
  const ShapeEnv* env = c->kernel ? c->env : env_of(*c);
  const bool positive = b->as_const() ? *b->as_const() > 0 : env != nullptr && env->prove(sym_le(1, *b)) == true;
  if (divides && !positive) {
    c->fail(ErrorCode::ShapeMismatch, "a size is divided by " + b->str() + ", which may be 0 or negative");
    return -1;
  }
  switch (operation) {
  case TESSERA_DIM_ADD: return put(c, *a + *b);
  case TESSERA_DIM_SUB: return put(c, *a - *b);
  case TESSERA_DIM_MUL: return put(c, *a * *b);
  case TESSERA_DIM_FLOOR_DIV: return put(c, floordiv(*a, *b));
  case TESSERA_DIM_CEIL_DIV: return put(c, ceildiv(*a, *b));
  case TESSERA_DIM_MOD: return put(c, mod(*a, *b));
  case TESSERA_DIM_MIN: return put(c, sym_min(*a, *b));
  case TESSERA_DIM_MAX: return put(c, sym_max(*a, *b));
  default: break;
  }
  c->fail(ErrorCode::Usage, std::to_string(operation) + " is no operation of sizes");
  return -1;
}
int32_t dim_is_number(tessera_operator_call* c, tessera_dim d, int64_t* number) {
  const auto e = dim(c, d);
  if (!e) return 0;
  const ShapeEnv* env = c->kernel ? c->env : env_of(*c);
  const auto v = env != nullptr ? env->simplify(*e).as_const() : e->as_const();
  if (v && number != nullptr) *number = *v;
  return v ? 1 : 0;
}
void require_equal(tessera_operator_call* c, tessera_dim x, tessera_dim y, const char* reason) {
  if (!is_in(*c, {kShape, kDecompose}, "require_equal")) return;
  const auto a = dim(c, x), b = dim(c, y);
  if (!a || !b || c->error) return;
  auto status =
      env_of(*c)->require_equal(*a, *b, reason == nullptr ? "sizes of an operator agree" : reason, c->node.location);
  if (!status.ok()) c->error = std::move(status).take_error();
}

// ---- shape
tessera_dim dim_of_data(tessera_operator_call* c) {
  if (!is_in(*c, {kShape}, "dim_of_data")) return -1;
  if (c->sizes_of_data) return put(c, c->infer->env().create_symbol("data", {0, kSymMax}));
  c->fail(ErrorCode::Usage, "dim_of_data() is for operators with sizes_of_data");
  return -1;
}
void set_result(tessera_operator_call* c, int32_t r, int32_t dtype, int32_t rank, const tessera_dim* dims) {
  if (!is_in(*c, {kShape}, "set_result")) return;
  if (r < 0) return c->fail(ErrorCode::Usage, "result " + std::to_string(r) + " has its type set");
  const auto type = dtype_from_onnx(dtype);
  if (!type || *type == DType::List)
    return c->fail(ErrorCode::UnsupportedType, std::to_string(dtype) + " is no element type");
  if (rank < 0 || (rank > 0 && dims == nullptr))
    return c->fail(ErrorCode::Usage, "result " + std::to_string(r) + " has rank " + std::to_string(rank));
  TensorType out{*type, {}};
  for (int32_t d = 0; d < rank; ++d) {
    const auto e = dim(c, dims[d]);
    if (!e) return;
    out.shape.push_back(*e);
  }
  if (r >= c->results) return; // nobody wants it
  c->infer->results[static_cast<size_t>(r)] = std::move(out);
  c->typed[static_cast<size_t>(r)] = true;
}

// ---- decompose
tessera_value put(tessera_operator_call* c, ValueId v) {
  c->values.push_back(v);
  return static_cast<tessera_value>(c->values.size()) - 1;
}
std::optional<ValueId> value(tessera_operator_call* c, tessera_value v) {
  if (v >= 0 && static_cast<size_t>(v) < c->values.size()) return c->values[static_cast<size_t>(v)];
  c->fail(ErrorCode::Usage, "a value is used that no function has returned");
  return std::nullopt;
}
tessera_value operand_value(tessera_operator_call* c, int32_t i) {
  if (!is_in(*c, {kDecompose}, "operand_value") || has_operand(c, i) == 0) return -1;
  return put(c, c->build->in(i));
}
std::optional<Tensor> copied(tessera_operator_call* c, const tessera_tensor* from) {
  const auto dtype = from == nullptr ? std::nullopt : dtype_from_onnx(from->dtype);
  if (!dtype || !has_bytes(*dtype) || from->rank < 0 || (from->rank > 0 && from->dims == nullptr)) {
    c->fail(ErrorCode::Usage, "a constant is no tensor of numbers");
    return std::nullopt;
  }
  Dims dims(from->dims, from->dims + from->rank);
  auto count = element_count(dims);
  if (count.ok() && byte_size(*dtype, *count) > kConstantBytes)
    count =
        Diagnostic(ErrorCode::SizeOverflow, "it has " + std::to_string(byte_size(*dtype, *count)) + " bytes, at most " +
                                                std::to_string(kConstantBytes) + " are expected");
  auto out = count.ok() ? Tensor::create(*dtype, std::move(dims)) : Result<Tensor>(count.error());
  if (!out.ok() || (out->bytes() > 0 && from->data == nullptr)) {
    c->fail(ErrorCode::Usage, "a constant cannot be copied: " + (out.ok() ? "it has no memory" : out.error().message));
    return std::nullopt;
  }
  if (out->bytes() > 0) std::copy_n(static_cast<const std::byte*>(from->data), out->bytes(), out->mutable_data());
  return std::move(*out);
}
tessera_value constant(tessera_operator_call* c, const tessera_tensor* tensor) {
  if (!is_in(*c, {kDecompose}, "constant")) return -1;
  auto t = copied(c, tensor);
  return t && failed(c) == 0 ? put(c, c->build->constant(std::move(*t))) : -1;
}
tessera_value integers(tessera_operator_call* c, const tessera_dim* integers, int32_t count) {
  if (!is_in(*c, {kDecompose}, "integers") || failed(c) != 0) return -1;
  SymShape all;
  for (int32_t i = 0; i < count; ++i) {
    const auto e = dim(c, integers[i]);
    if (!e) return -1;
    all.push_back(*e);
  }
  return put(c, c->build->dims(all));
}

// The value as the record's kind of the attribute.
std::optional<Attribute> attribute_of(tessera_operator_call* c, const tessera_attribute_value& a, const AttrDef& def) {
  const auto count = static_cast<size_t>(std::max(0, a.count));
  switch (a.kind) {
  case TESSERA_ATTRIBUTE_INT:
    if (def.kind == AttrKind::Int) return Attribute(a.i);
    if (auto dtype = dtype_from_onnx(static_cast<int>(a.i)); def.kind == AttrKind::Type && dtype)
      return Attribute(*dtype);
    break;
  case TESSERA_ATTRIBUTE_FLOAT:
    if (def.kind == AttrKind::Float) return Attribute(a.f);
    break;
  case TESSERA_ATTRIBUTE_STRING:
    if (def.kind == AttrKind::String && a.s != nullptr) return Attribute(std::string(a.s));
    break;
  case TESSERA_ATTRIBUTE_INTS:
    if (def.kind == AttrKind::Ints && (count == 0 || a.ints != nullptr)) return Attribute(Ints(a.ints, a.ints + count));
    break;
  case TESSERA_ATTRIBUTE_FLOATS:
    if (def.kind == AttrKind::Floats && (count == 0 || a.floats != nullptr))
      return Attribute(std::vector<double>(a.floats, a.floats + count));
    break;
  case TESSERA_ATTRIBUTE_STRINGS:
    if (def.kind == AttrKind::Strings && (count == 0 || a.strings != nullptr))
      return Attribute(std::vector<std::string>(a.strings, a.strings + count));
    break;
  case TESSERA_ATTRIBUTE_TENSOR:
    if (def.kind == AttrKind::Tensor)
      if (auto t = copied(c, a.tensor)) return Attribute(std::move(*t));
    break;
  default: break;
  }
  c->fail(ErrorCode::BadAttribute, "attribute '" + std::string(def.name) + "' is of kind " +
                                       std::string(name(def.kind)) + ", and is given as another");
  return std::nullopt;
}

const OpDef* find_operator(tessera_operator_call* c, const char* op_type, const char* domain, int32_t version) {
  const std::string text = op_type == nullptr ? "" : op_type, of = domain == nullptr ? "" : domain;
  bool other_versions = false;
  const OpDef* op = OpTable::get().find_onnx(text, of, version, &other_versions);
  if (op != nullptr) return op;
  std::string message = "adds operator '" + (of.empty() ? "" : of + ".") + text + "' of version " +
                        std::to_string(version) + ", which is not supported";
  std::vector<std::string> known;
  for (const auto& def : OpTable::get().all())
    for (const OnnxName& n : def->onnx)
      if (n.domain == of) known.emplace_back(n.op_type);
  if (other_versions)
    message += "; other versions are";
  else if (const std::string close = similar(text, known); !close.empty())
    message += "; did you mean '" + close + "'?";
  c->fail(ErrorCode::UnsupportedOp, std::move(message));
  return nullptr;
}

void add_operator(tessera_operator_call* c, const char* op_type, const char* domain, int32_t version,
                  const tessera_value* operands, int32_t operand_count, const tessera_attribute_value* attributes,
                  int32_t attribute_count, tessera_value* results, int32_t result_count) {
  for (int32_t r = 0; r < result_count; ++r) results[r] = -1;
  if (!is_in(*c, {kDecompose}, "add_operator") || failed(c) != 0) return;
  const OpDef* op = find_operator(c, op_type, domain, version);
  if (op == nullptr) return;
  std::vector<ValueId> ids;
  for (int32_t i = 0; i < operand_count; ++i) {
    const auto v = operands[i] == -1 ? std::optional(ValueId{}) : value(c, operands[i]);
    if (!v) return;
    ids.push_back(*v);
  }
  while (!ids.empty() && !ids.back().valid()) ids.pop_back();
  Attributes given;
  for (int32_t i = 0; i < attribute_count; ++i) {
    const std::string name = attributes[i].name == nullptr ? "" : attributes[i].name;
    auto def =
        std::find_if(op->attributes.begin(), op->attributes.end(), [&](const AttrDef& d) { return d.name == name; });
    if (def == op->attributes.end())
      return c->fail(ErrorCode::BadAttribute,
                     "operator '" + std::string(op_type) + "' has no attribute '" + name + "'");
    auto v = attribute_of(c, attributes[i], *def);
    if (!v) return;
    given.set(name, std::move(*v));
  }
  if (result_count < 1) return c->fail(ErrorCode::Usage, "adds an operator for no results");
  auto added = c->build->graph().add_node(*op, std::move(ids), std::move(given), c->node.location,
                                          std::vector<std::string>(static_cast<size_t>(result_count)), version);
  if (!added.ok()) {
    c->error = std::move(added).take_error();
    return;
  }
  const std::vector<ValueId> made = c->build->graph().node(*added).results;
  for (int32_t r = 0; r < result_count; ++r) results[r] = put(c, made[static_cast<size_t>(r)]);
}
std::optional<TensorType> value_type(tessera_operator_call* c, tessera_value v, const char* function) {
  if (!is_in(*c, {kDecompose}, function)) return std::nullopt;
  const auto id = value(c, v);
  if (!id || !id->valid()) return std::nullopt;
  return c->build->type(*id);
}
int32_t value_dtype(tessera_operator_call* c, tessera_value v) {
  const auto t = value_type(c, v, "value_dtype");
  return t ? info(t->dtype).onnx : 0;
}
int32_t value_rank(tessera_operator_call* c, tessera_value v) {
  const auto t = value_type(c, v, "value_rank");
  return t ? t->rank() : 0;
}
tessera_dim value_dim(tessera_operator_call* c, tessera_value v, int32_t d) {
  const auto t = value_type(c, v, "value_dim");
  return t ? dim_of(c, *t, d) : -1;
}
void set_value(tessera_operator_call* c, int32_t r, tessera_value v) {
  if (!is_in(*c, {kDecompose}, "set_value")) return;
  if (r < 0) return c->fail(ErrorCode::Usage, "result " + std::to_string(r) + " is set");
  const auto id = value(c, v);
  if (id && r < c->results) c->yielded[static_cast<size_t>(r)] = *id;
}

// ---- kernel
const char* device(tessera_operator_call* c) { return is_in(*c, {kKernel}, "device") ? c->device.data() : nullptr; }
void set_kernel(tessera_operator_call* c, const char* text, const tessera_dim* sizes, int32_t size_count,
                tessera_dim grid) {
  if (!is_in(*c, {kKernel}, "set_kernel")) return;
  if (text == nullptr) return c->fail(ErrorCode::Usage, "the kernel has no text");
  TileText out{text, {}, 0};
  for (int32_t i = 0; i < size_count; ++i) {
    const auto e = dim(c, sizes[i]);
    if (!e) return;
    out.sizes.push_back(*e);
  }
  const auto programs = dim(c, grid);
  if (!programs) return;
  out.grid = *programs;
  c->text = std::move(out);
}

// ---- run
int32_t operand(tessera_operator_call* c, int32_t i, tessera_tensor* tensor) {
  if (!is_in(*c, {kRun}, "operand") || has_operand(c, i) == 0 || tensor == nullptr) return 0;
  *tensor = shown(c->reference->operands[static_cast<size_t>(i)]);
  return 1;
}
std::string text_of(DType dtype, const Dims& dims) { return std::string(name(dtype)) + str(Attribute(dims)); }

void* result(tessera_operator_call* c, int32_t r, int32_t dtype, int32_t rank, const int64_t* dims) {
  if (!is_in(*c, {kRun}, "result")) return nullptr;
  const auto type = dtype_from_onnx(dtype);
  if (r < 0 || r >= c->results || !type || *type == DType::List || rank < 0 || (rank > 0 && dims == nullptr)) {
    c->fail(ErrorCode::Usage, "result " + std::to_string(r) + " is no result, or no tensor");
    return nullptr;
  }
  const Dims sizes(dims, dims + rank);
  const bool wanted =
      r < static_cast<int32_t>(c->node.results.size()) && c->node.results[static_cast<size_t>(r)].valid();
  const TensorType& said = c->reference->result_types[static_cast<size_t>(r)];
  bool same = *type == said.dtype && static_cast<int>(sizes.size()) == said.rank();
  for (size_t d = 0; same && d < sizes.size(); ++d) {
    const auto size = c->reference->eval(said.shape[d]);
    same = !size.ok() || *size == sizes[d]; // one that is not known yet is the function's to say
  }
  if (wanted && !same) {
    c->fail(ErrorCode::ShapeMismatch, "the function yields " + text_of(*type, sizes) + " as result " +
                                          std::to_string(r) + ", and the shape function said " + said.str());
    return nullptr;
  }
  Tensor& out = c->reference->results[static_cast<size_t>(r)];
  auto count = element_count(sizes);
  if (count.ok() && *type == DType::String) {
    c->strings[static_cast<size_t>(r)].assign(static_cast<size_t>(*count), "");
    out = Tensor::strings(sizes, c->strings[static_cast<size_t>(r)]);
    return nullptr;
  }
  auto made = count.ok() ? Tensor::create(*type, sizes, true) : Result<Tensor>(count.error());
  if (!made.ok()) {
    if (!c->error) c->error = made.error();
    return nullptr;
  }
  out = std::move(*made);
  return out.mutable_data();
}
const char* string(tessera_operator_call* c, int32_t i, int64_t index, size_t* bytes) {
  if (bytes != nullptr) *bytes = 0;
  if (!is_in(*c, {kRun}, "string") || operand_type(c, i) == nullptr) return nullptr;
  const Tensor& t = c->reference->operands[static_cast<size_t>(i)];
  if (t.dtype() != DType::String || index < 0 || index >= t.count()) {
    c->fail(ErrorCode::Usage, "operand " + std::to_string(i) + " has no string " + std::to_string(index));
    return nullptr;
  }
  const std::string& s = t.string_values()[static_cast<size_t>(index)];
  if (bytes != nullptr) *bytes = s.size();
  return s.c_str();
}
void set_string(tessera_operator_call* c, int32_t r, int64_t index, const char* text, size_t bytes) {
  if (!is_in(*c, {kRun}, "set_string")) return;
  if (r < 0 || r >= c->results || index < 0 ||
      index >= static_cast<int64_t>(c->strings[static_cast<size_t>(r)].size()) || (bytes > 0 && text == nullptr))
    return c->fail(ErrorCode::Usage, "result " + std::to_string(r) + " has no string " + std::to_string(index));
  c->strings[static_cast<size_t>(r)][static_cast<size_t>(index)].assign(text == nullptr ? "" : text, bytes);
}

} // namespace

namespace tessera {

const tessera_operators_api& operators_api() {
  static const tessera_operators_api api = {
      sizeof(tessera_operators_api),
      TESSERA_OPERATORS_VERSION,
      add_operator_to,
      ::fail,
      ::failed,
      ::version_imported,
      ::operand_count,
      ::result_count,
      ::has_operand,
      ::has_attribute,
      ::attribute_int,
      ::attribute_float,
      ::attribute_string,
      ::attribute_list<int64_t>,
      ::attribute_list<double>,
      ::attribute_strings,
      ::attribute_tensor,
      ::operand_dtype,
      ::operand_rank,
      ::operand_dim,
      ::operand_integers,
      ::dim_number,
      ::dim_operation,
      ::dim_is_number,
      ::require_equal,
      ::dim_of_data,
      ::set_result,
      ::operand_value,
      ::constant,
      ::integers,
      ::add_operator,
      ::value_dtype,
      ::value_rank,
      ::value_dim,
      ::set_value,
      ::device,
      ::set_kernel,
      ::operand,
      ::result,
      ::string,
      ::set_string,
  };
  return api;
}

Status call_operator(tessera_operator_call& call, tessera_operator_function function, void* user) {
  const std::string name(call.node.op->name);
  TESSERA_TRY(guarded({"operator", name}, [&]() -> Status {
    function(&call, user);
    return {};
  }));
  if (call.error) return *call.error;
  return {};
}

} // namespace tessera
