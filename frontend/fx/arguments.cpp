#include "frontend/fx/arguments.h"
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

Arguments::Arguments(ops::B& b, const FxNode& fx, const FxGraph& program, const Schema& schema, Lookup lookup,
                     Sizes sizes)
    : b_(b), fx_(fx), program_(program), schema_(schema), lookup_(std::move(lookup)), sizes_(std::move(sizes)) {}

const Argument* Arguments::find(std::string_view name) const {
  for (const NamedArgument& a : fx_.inputs)
    if (a.name == name) return a.value.is_none() ? nullptr : &a.value;
  if (auto it = fallbacks_.find(name); it != fallbacks_.end()) return it->second.is_none() ? nullptr : &it->second;
  const SchemaArgument* s = schema_.argument(name);
  if (s == nullptr || !s->has_fallback) return nullptr;
  const Argument& a = fallbacks_.emplace(std::string(name), read_fallback(s->fallback)).first->second;
  return a.is_none() ? nullptr : &a;
}

void Arguments::wrong(std::string_view name, std::string_view expected, const Argument* found) {
  b_.fail(ErrorCode::BadAttribute, "argument '" + std::string(name) + "' is " +
                                       std::string(found ? fx::name(found->kind) : "None") + ", expected " +
                                       std::string(expected));
}

void Arguments::symbolic(std::string_view name, const std::string& what) {
  b_.fail(ErrorCode::UnsupportedFeature, "argument '" + std::string(name) + "' " + what + ", and must be a constant");
}

std::string Arguments::tensor_name(std::string_view name) const {
  const Argument* a = find(name);
  return a != nullptr && a->kind == Argument::Kind::Tensor ? a->name : std::string();
}

const Item* Arguments::item(const Argument& a) {
  const Item* found = lookup_(a.name);
  if (found == nullptr) b_.fail(ErrorCode::MalformedModel, "reads '" + a.name + "', which nothing defines");
  return found;
}

bool Arguments::given(std::string_view name) const { return find(name) != nullptr; }

bool Arguments::is_tensor(std::string_view name) const {
  const Argument* a = find(name);
  return a != nullptr && a->kind == Argument::Kind::Tensor;
}

ValueId Arguments::maybe(std::string_view name) {
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
  b_.fail(ErrorCode::MalformedModel, "argument '" + std::string(name) + "' ('" + a->name + "') is no tensor");
  return {};
}

ValueId Arguments::tensor(std::string_view name) {
  ValueId v = maybe(name);
  if (!v.valid() && b_.ok()) wrong(name, "a tensor", find(name));
  return v;
}

std::vector<ValueId> Arguments::tensors(std::string_view name) {
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
      if (b_.ok()) wrong(name, "a list of tensors", &t);
      return {};
    }
    out.push_back(*v);
  }
  return out;
}

std::optional<SymExpr> Arguments::as_size(const Argument& a) {
  if (a.kind == Argument::Kind::Int || a.kind == Argument::Kind::Bool) return SymExpr(a.integer);
  if (a.kind == Argument::Kind::SymInt || a.kind == Argument::Kind::SymBool) {
    const Item* i = item(a);
    if (i != nullptr)
      if (const auto* e = std::get_if<SymExpr>(i)) return *e;
  }
  return {};
}

std::optional<double> Arguments::as_number(const Argument& a) {
  if (a.kind == Argument::Kind::Float) return a.number;
  if (auto e = as_size(a))
    if (auto c = e->as_const()) return static_cast<double>(*c);
  return {};
}

// Positions, counts and axes are no larger than sizes are, so that sums of them do not overflow.
std::optional<int64_t> Arguments::within_sizes(std::string_view name, int64_t value) {
  if (value >= -kSymMax && value <= kSymMax) return value;
  b_.fail(ErrorCode::BadAttribute, "argument '" + std::string(name) + "' holds a number beyond " +
                                       std::to_string(kSymMax) + ", which is more than any size");
  return {};
}

std::optional<int64_t> Arguments::maybe_integer(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr) return {};
  if (a->kind == Argument::Kind::Float && a->number == std::floor(a->number))
    return within_sizes(name, std::fabs(a->number) <= kSymMax ? static_cast<int64_t>(a->number) : kSymMax + 1);
  if (auto e = as_size(*a)) {
    if (auto c = b_.env().simplify(*e).as_const()) return within_sizes(name, *c);
    symbolic(name, "is the symbolic size " + e->str());
    return {};
  }
  wrong(name, "an integer", a);
  return {};
}
int64_t Arguments::integer(std::string_view name) {
  auto i = maybe_integer(name);
  if (!i && b_.ok()) wrong(name, "an integer", find(name));
  return i.value_or(0);
}

std::optional<double> Arguments::maybe_number(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr) return {};
  if (auto n = as_number(*a)) return n;
  if (b_.ok()) {
    if (a->kind == Argument::Kind::SymInt || a->kind == Argument::Kind::SymFloat)
      symbolic(name, "is " + std::string(fx::name(a->kind)));
    else
      wrong(name, "a number", a);
  }
  return {};
}
double Arguments::number(std::string_view name) {
  auto n = maybe_number(name);
  if (!n && b_.ok()) wrong(name, "a number", find(name));
  return n.value_or(0);
}

bool Arguments::flag(std::string_view name) { return integer(name) != 0; }

std::string Arguments::text(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr) return {};
  if (a->kind != Argument::Kind::String && a->kind != Argument::Kind::Unknown) wrong(name, "a string", a);
  return a->name;
}

SymShape Arguments::sizes(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr) return {};
  SymShape out;
  auto add = [&](const Argument& i) {
    auto e = as_size(i);
    if (!e) {
      if (b_.ok()) wrong(name, "a list of integers", &i);
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

SymExpr Arguments::size(std::string_view name) {
  const Argument* a = find(name);
  auto e = a ? as_size(*a) : std::nullopt;
  if (!e && b_.ok()) wrong(name, "an integer", a);
  return e.value_or(SymExpr(0));
}

Ints Arguments::ints(std::string_view name) {
  Ints out;
  for (const SymExpr& e : sizes(name)) {
    auto c = b_.env().simplify(e).as_const();
    if (!c) {
      symbolic(name, "holds the symbolic size " + e.str());
      return {};
    }
    if (!within_sizes(name, *c)) return {};
    out.push_back(*c);
  }
  return out;
}

std::vector<double> Arguments::numbers(std::string_view name) {
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
      if (b_.ok()) wrong(name, "a list of numbers", &i);
      return {};
    }
    out.push_back(*n);
  }
  return out;
}

std::optional<DType> Arguments::dtype(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr) return {};
  if (a->kind != Argument::Kind::ScalarType) {
    wrong(name, "an element type", a);
    return {};
  }
  if (!a->dtype)
    b_.fail(ErrorCode::UnsupportedType, "element type " + dtype_name_of_schema(a->integer) + " is not supported");
  return a->dtype;
}

Scalar Arguments::scalar(std::string_view name) {
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
  if (b_.ok()) wrong(name, "a number", a);
  return s;
}

int64_t Arguments::axis(std::string_view name, int rank) {
  int64_t a = integer(name);
  if (rank == 0 && (a == 0 || a == -1)) return 0;
  return b_.ok() ? b_.axis(a, rank) : 0;
}

Ints Arguments::axes(std::string_view name, int rank, bool empty_is_all) {
  Ints out = ints(name);
  if (!given(name) || (out.empty() && empty_is_all)) {
    out.clear();
    for (int i = 0; i < rank; ++i) out.push_back(i);
    return out;
  }
  if (rank == 0) return {};
  return b_.ok() ? b_.axes(out, rank) : Ints();
}

std::optional<Arguments::Memory> Arguments::memory(std::string_view name) {
  const Argument* a = find(name);
  if (a == nullptr || a->kind != Argument::Kind::Tensor) return {};
  auto it = program_.tensors.find(a->name);
  if (it == program_.tensors.end()) return {};
  auto strides = sizes_(it->second.strides), offset = sizes_({it->second.storage_offset});
  if (!strides.ok() || !offset.ok()) return {};
  return Memory{std::move(*strides), (*offset)[0]};
}

} // namespace tessera::fx
