#include "frontend/fx/call.h"
#include <algorithm>
#include <cmath>

namespace tessera::fx {
namespace {

// A default as the schema writes it: "None", "1", "1.", "True", "[0, 1]", "\"none\"", "contiguous_format".
Argument read_fallback(std::string_view text) {
  Argument a;
  if (text == "None" || text.empty()) return a;
  if (text == "True" || text == "False") {
    a.kind = Argument::Kind::Bool;
    a.integer = text == "True";
    return a;
  }
  if (text.front() == '[') {
    a.kind = Argument::Kind::List;
    std::string_view rest = text.substr(1, text.size() - 2);
    while (!rest.empty()) {
      std::string_view part = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(part.size() + 1, rest.size()));
      while (part.starts_with(' ')) part.remove_prefix(1);
      a.items.push_back(read_fallback(part));
    }
    return a;
  }
  if (text.front() == '"' || text.front() == '\'') {
    a.kind = Argument::Kind::String;
    a.name = text.substr(1, text.size() - 2);
    return a;
  }
  const std::string number(text);
  char* end = nullptr;
  if (text.find_first_of(".einf") == std::string_view::npos) {
    a.integer = std::strtoll(number.c_str(), &end, 10);
    a.kind = Argument::Kind::Int;
  } else {
    a.number = std::strtod(number.c_str(), &end);
    a.kind = Argument::Kind::Float;
  }
  if (end != nullptr && *end != '\0') { // a name: a memory format, a layout
    a.kind = Argument::Kind::Unknown;
    a.name = number;
  }
  return a;
}

} // namespace

Call::Call(Graph& graph, const Node& node, const FxNode& fx, const FxGraph& program, const Schema& schema,
           Lookup lookup, Sizes sizes)
    : b(graph, node), fx_(fx), program_(program), schema_(schema), lookup_(std::move(lookup)),
      sizes_(std::move(sizes)) {}

const Argument* Call::find(std::string_view name) const {
  for (const NamedArgument& a : fx_.inputs)
    if (a.name == name) return a.value.is_none() ? nullptr : &a.value;
  if (auto it = fallbacks_.find(name); it != fallbacks_.end()) return it->second.is_none() ? nullptr : &it->second;
  const SchemaArgument* s = schema_.argument(name);
  if (s == nullptr || !s->has_fallback) return nullptr;
  const Argument& a = fallbacks_.emplace(std::string(name), read_fallback(s->fallback)).first->second;
  return a.is_none() ? nullptr : &a;
}

void Call::wrong(std::string_view name, std::string_view expected, const Argument* found) {
  b.fail(ErrorCode::BadAttribute, "argument '" + std::string(name) + "' is " +
                                      std::string(found ? fx::name(found->kind) : "None") + ", expected " +
                                      std::string(expected));
}

const Item* Call::item(const Argument& a) {
  const Item* found = lookup_(a.name);
  if (found == nullptr) b.fail(ErrorCode::MalformedModel, "reads '" + a.name + "', which nothing defines");
  return found;
}

bool Call::given(std::string_view name) const { return find(name) != nullptr; }

bool Call::is_tensor(std::string_view name) const {
  const Argument* a = find(name);
  return a != nullptr && a->kind == Argument::Kind::Tensor;
}

ValueId Call::maybe(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr) return {};
  if (a->kind != Argument::Kind::Tensor) {
    wrong(name, "a tensor", a);
    return {};
  }
  const Item* i = item(*a);
  if (i == nullptr) return {};
  if (const auto* v = std::get_if<ValueId>(i)) return *v;
  if (std::holds_alternative<std::monostate>(*i)) return {};
  b.fail(ErrorCode::MalformedModel, "argument '" + std::string(name) + "' ('" + a->name + "') is no tensor");
  return {};
}

ValueId Call::tensor(std::string_view name) {
  ValueId v = maybe(name);
  if (!v.valid() && b.ok()) wrong(name, "a tensor", find(name));
  return v;
}

std::vector<ValueId> Call::tensors(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr) return {};
  if (a->kind != Argument::Kind::List) {
    wrong(name, "a list of tensors", a);
    return {};
  }
  std::vector<ValueId> out;
  for (const Argument& t : a->items) {
    if (t.is_none()) {
      out.emplace_back();
      continue;
    }
    const Item* i = t.kind == Argument::Kind::Tensor ? item(t) : nullptr;
    const auto* v = i ? std::get_if<ValueId>(i) : nullptr;
    if (v == nullptr) {
      if (b.ok()) wrong(name, "a list of tensors", &t);
      return {};
    }
    out.push_back(*v);
  }
  return out;
}

std::optional<SymExpr> Call::as_size(const Argument& a) {
  if (a.kind == Argument::Kind::Int || a.kind == Argument::Kind::Bool) return SymExpr(a.integer);
  if (a.kind == Argument::Kind::SymInt || a.kind == Argument::Kind::SymBool) {
    const Item* i = item(a);
    if (i != nullptr)
      if (const auto* e = std::get_if<SymExpr>(i)) return *e;
  }
  return {};
}

std::optional<double> Call::as_number(const Argument& a) {
  if (a.kind == Argument::Kind::Float) return a.number;
  if (auto e = as_size(a))
    if (auto c = e->as_const()) return static_cast<double>(*c);
  return {};
}

std::optional<int64_t> Call::maybe_integer(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr) return {};
  if (a->kind == Argument::Kind::Float && a->number == std::floor(a->number)) return static_cast<int64_t>(a->number);
  if (auto e = as_size(*a)) {
    if (auto c = b.env().simplify(*e).as_const()) return *c;
    unsupported("argument '" + std::string(name) + "' is the symbolic size " + e->str() + ", and must be a constant");
    return {};
  }
  wrong(name, "an integer", a);
  return {};
}
int64_t Call::integer(std::string_view name) {
  auto i = maybe_integer(name);
  if (!i && b.ok()) wrong(name, "an integer", find(name));
  return i.value_or(0);
}

std::optional<double> Call::maybe_number(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr) return {};
  if (auto n = as_number(*a)) return n;
  if (b.ok()) {
    if (a->kind == Argument::Kind::SymInt || a->kind == Argument::Kind::SymFloat)
      unsupported("argument '" + std::string(name) + "' is " + std::string(fx::name(a->kind)) +
                  ", and must be a constant");
    else
      wrong(name, "a number", a);
  }
  return {};
}
double Call::number(std::string_view name) {
  auto n = maybe_number(name);
  if (!n && b.ok()) wrong(name, "a number", find(name));
  return n.value_or(0);
}

bool Call::flag(std::string_view name) { return integer(name) != 0; }

std::string Call::text(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr) return {};
  if (a->kind != Argument::Kind::String && a->kind != Argument::Kind::Unknown) wrong(name, "a string", a);
  return a->name;
}

SymShape Call::sizes(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr) return {};
  SymShape out;
  auto add = [&](const Argument& i) {
    auto e = as_size(i);
    if (!e) {
      if (b.ok()) wrong(name, "a list of integers", &i);
      return;
    }
    out.push_back(*e);
  };
  if (a->kind == Argument::Kind::List)
    for (const Argument& i : a->items) add(i);
  else
    add(*a);
  return out;
}

SymExpr Call::size(std::string_view name) {
  const Argument* a = find(name);
  auto e = a ? as_size(*a) : std::nullopt;
  if (!e && b.ok()) wrong(name, "an integer", a);
  return e.value_or(SymExpr(0));
}

Ints Call::ints(std::string_view name) {
  Ints out;
  for (const SymExpr& e : sizes(name)) {
    auto c = b.env().simplify(e).as_const();
    if (!c) {
      unsupported("argument '" + std::string(name) + "' holds the symbolic size " + e.str() + ", and must be constant");
      return {};
    }
    out.push_back(*c);
  }
  return out;
}

std::vector<double> Call::numbers(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr) return {};
  std::vector<double> out;
  if (a->kind != Argument::Kind::List) {
    out.push_back(number(name));
    return out;
  }
  for (const Argument& i : a->items) {
    auto n = as_number(i);
    if (!n) {
      if (b.ok()) wrong(name, "a list of numbers", &i);
      return {};
    }
    out.push_back(*n);
  }
  return out;
}

std::optional<DType> Call::dtype(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr) return {};
  if (a->kind != Argument::Kind::ScalarType) {
    wrong(name, "an element type", a);
    return {};
  }
  if (!a->dtype)
    b.fail(ErrorCode::UnsupportedType, "element type " + dtype_name_of_schema(a->integer) + " is not supported");
  return a->dtype;
}

Scalar Call::scalar(std::string_view name) {
  Scalar s;
  const Argument* a = find(name);
  if (a == nullptr) {
    wrong(name, "a number", a);
    return s;
  }
  switch (a->kind) {
  case Argument::Kind::Bool:
    s.kind = Scalar::Kind::Bool;
    s.integer = a->integer;
    s.number = static_cast<double>(a->integer);
    return s;
  case Argument::Kind::Int:
    s.integer = a->integer;
    s.number = static_cast<double>(a->integer);
    return s;
  case Argument::Kind::Float:
    s.kind = Scalar::Kind::Float;
    s.number = a->number;
    return s;
  case Argument::Kind::SymInt:
  case Argument::Kind::SymBool:
    if (auto e = as_size(*a)) {
      if (auto c = e->as_const()) {
        s.integer = *c;
        s.number = static_cast<double>(*c);
      } else {
        s.kind = Scalar::Kind::Size;
        s.size = *e;
      }
    }
    return s;
  case Argument::Kind::SymFloat:
    if (const Item* i = item(*a)) {
      if (const auto* n = std::get_if<SymbolicNumber>(i)) {
        s.kind = Scalar::Kind::Number;
        s.value = n->value;
        return s;
      }
    }
    break;
  default: break;
  }
  if (b.ok()) wrong(name, "a number", a);
  return s;
}

int64_t Call::axis(std::string_view name, int rank) {
  int64_t a = integer(name);
  if (rank == 0 && (a == 0 || a == -1)) return 0;
  return b.ok() ? b.axis(a, rank) : 0;
}

Ints Call::axes(std::string_view name, int rank, bool empty_is_all) {
  Ints out = ints(name);
  if (!given(name) || (out.empty() && empty_is_all)) {
    out.clear();
    for (int i = 0; i < rank; ++i) out.push_back(i);
    return out;
  }
  if (rank == 0) return {};
  return b.ok() ? b.axes(out, rank) : Ints();
}

const Argument* Call::result_argument(int index) const {
  for (const Argument& a : fx_.outputs) {
    const auto count = a.kind == Argument::Kind::List ? static_cast<int>(a.items.size()) : 1;
    if (index >= 0 && index < count) return a.kind == Argument::Kind::List ? &a.items[static_cast<size_t>(index)] : &a;
    index -= count;
  }
  return nullptr;
}

const TensorMeta* Call::meta(int index) const {
  const Argument* result = result_argument(index);
  if (result == nullptr) return nullptr;
  auto it = program_.tensors.find(result->name);
  return it == program_.tensors.end() ? nullptr : &it->second;
}

int Call::result_count() const {
  int n = 0;
  for (const Argument& a : fx_.outputs) n += a.kind == Argument::Kind::List ? static_cast<int>(a.items.size()) : 1;
  return n;
}

std::optional<Call::Memory> Call::memory(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr || a->kind != Argument::Kind::Tensor) return {};
  auto it = program_.tensors.find(a->name);
  if (it == program_.tensors.end()) return {};
  auto strides = sizes_(it->second.strides), offset = sizes_({it->second.storage_offset});
  if (!strides.ok() || !offset.ok()) return {};
  return Memory{std::move(*strides), (*offset)[0]};
}

void Call::writes(std::string_view name, ValueId v) {
  const Argument* a = find(name);
  ValueId before = maybe(name);
  if (!b.ok() || a == nullptr) return;
  v = b.cast(v, b.dtype(before));
  if (b.ok()) written_.push_back({a->name, v});
}

namespace {
bool reads(const Argument& a, const std::string& name) {
  if (a.kind == Argument::Kind::Tensor && a.name == name) return true;
  return std::any_of(a.items.begin(), a.items.end(), [&](const Argument& i) { return reads(i, name); });
}
} // namespace

bool Call::is_used(int index) const {
  // Exporters describe results that nobody reads as well.
  const Argument* result = result_argument(index);
  if (result == nullptr || !program_.tensors.contains(result->name)) return false;
  const std::string& name = result->name;
  for (const FxNode& node : program_.nodes)
    for (const NamedArgument& a : node.inputs)
      if (reads(a.value, name)) return true;
  return std::any_of(program_.outputs.begin(), program_.outputs.end(),
                     [&](const Argument& a) { return reads(a, name); });
}

DType Call::result_dtype(int index) {
  const TensorMeta* m = meta(index);
  if (m == nullptr || !m->dtype) {
    b.fail(ErrorCode::UnsupportedType, m ? "element type " + dtype_name_of_schema(m->dtype_number) + " is not supported"
                                         : std::string("a result has no element type"));
    return DType::F32;
  }
  return *m->dtype;
}

SymShape Call::result_shape(int index) {
  const TensorMeta* m = meta(index);
  if (m == nullptr) {
    b.fail(ErrorCode::MalformedModel, "a result has no sizes");
    return {};
  }
  auto shape = sizes_(m->sizes);
  if (!shape.ok()) {
    b.fail(shape.error());
    return {};
  }
  return std::move(*shape);
}

ValueId Call::literal(const Scalar& s, DType dtype) {
  if (!b.ok()) return {};
  if (info(dtype).kind == DTypeKind::Complex) {
    unsupported("a number as a complex one");
    return {};
  }
  switch (s.kind) {
  case Scalar::Kind::Bool:
  case Scalar::Kind::Int: return b.scalar_i(dtype, s.integer);
  case Scalar::Kind::Float: return b.scalar(dtype, s.number);
  case Scalar::Kind::Size: return b.size(s.size, dtype);
  case Scalar::Kind::Number: return b.cast(s.value, dtype);
  }
  return {};
}

ValueId Call::operand(std::string_view name, DType dtype) {
  if (is_tensor(name)) {
    ValueId v = tensor(name);
    return b.ok() ? b.cast(v, dtype) : ValueId();
  }
  return literal(scalar(name), dtype);
}

ValueId Call::scaled(ValueId x, std::string_view name) {
  Scalar s = scalar(name);
  if (!b.ok() || (s.is_constant() && s.number == 1)) return x;
  const DType stored = b.dtype(x);
  ValueId wide = b.widen(x);
  return b.cast(b.mul(wide, literal(s, b.dtype(wide))), stored);
}

namespace {
enum class Category : uint8_t { None, Bool, Integer, Float, Complex };
Category category(DType d) {
  if (d == DType::Bool) return Category::Bool;
  if (is_integer(d)) return Category::Integer;
  return info(d).kind == DTypeKind::Complex ? Category::Complex : Category::Float;
}
} // namespace

DType Call::promote(DType a, DType b) {
  if (a == b) return a;
  Category ca = category(a), cb = category(b);
  if (ca != cb) return ca > cb ? a : b;
  const bool unsigned_a = info(a).kind == DTypeKind::Unsigned, unsigned_b = info(b).kind == DTypeKind::Unsigned;
  if (ca == Category::Integer && unsigned_a != unsigned_b) { // u8 with i8 is i16; u8 with a wider signed type is that
    DType s = unsigned_a ? b : a, u = unsigned_a ? a : b;
    if (info(s).bits > info(u).bits) return s;
    return info(u).bits == 8 ? DType::I16 : info(u).bits == 16 ? DType::I32 : DType::I64;
  }
  if (info(a).bits == info(b).bits && ca == Category::Float) return DType::F32; // f16 with bf16
  return info(a).bits >= info(b).bits ? a : b;
}

DType Call::promoted(std::initializer_list<std::string_view> names) {
  // The highest category decides; within it tensors with dimensions come before scalars (0-d), those before numbers.
  std::optional<DType> dims, zero, number;
  auto meet = [](std::optional<DType>& into, DType d) { into = into ? promote(*into, d) : d; };
  for (std::string_view n : names) {
    if (!given(n)) continue;
    if (is_tensor(n)) {
      ValueId v = tensor(n);
      if (!b.ok()) return DType::F32;
      meet(b.type(v).rank() > 0 ? dims : zero, b.dtype(v));
      continue;
    }
    Scalar s = scalar(n);
    if (!b.ok()) return DType::F32;
    const bool real = s.kind == Scalar::Kind::Float || s.kind == Scalar::Kind::Number;
    meet(number, s.kind == Scalar::Kind::Bool ? DType::Bool : real ? DType::F32 : DType::I64);
  }
  std::optional<DType> out = dims;
  for (const auto& lower : {zero, number}) {
    if (!lower) continue;
    if (!out)
      out = lower;
    else if (category(*lower) > category(*out))
      out = lower;
  }
  return out.value_or(DType::F32);
}

} // namespace tessera::fx
