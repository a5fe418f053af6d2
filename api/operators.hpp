// Operators of one's own, in C++: operators.h as classes, in this header alone. A shared library of them needs nothing else
// of Tessera, not even to be linked with it.
//
//   #include <tessera/api/operators.hpp>
//   using namespace tessera::operators;
//
//   TESSERA_OPERATORS(library) {
//     Operator scale("com.example", "Scale");
//     scale.operand("x").attribute("by", Kind::Float);
//     scale.decompose([](Decomposition& d) {
//       Value by = d.constant(d.operand(0).dtype(), d.number("by", 1));
//       d.result(0, d.op("Mul", {d.operand(0), by}));
//     });
//     library.add(scale);
//   }
//
// Functions may throw: what a std::exception says is the error of the call. They may be called by any thread, several at
// a time.
#pragma once
#include "api/operators.h"
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::operators {

enum class Kind : int32_t {
  Int = TESSERA_ATTRIBUTE_INT,
  Float = TESSERA_ATTRIBUTE_FLOAT,
  String = TESSERA_ATTRIBUTE_STRING,
  Ints = TESSERA_ATTRIBUTE_INTS,
  Floats = TESSERA_ATTRIBUTE_FLOATS,
  Strings = TESSERA_ATTRIBUTE_STRINGS,
  Tensor = TESSERA_ATTRIBUTE_TENSOR
};

namespace detail {
// The functions of Tessera, given to the library when it is loaded.
inline const tessera_operators_api*& api() {
  static const tessera_operators_api* functions = nullptr;
  return functions;
}
// Ends a function whose call has an error already.
struct Ended : std::exception {};
inline void check(const tessera_operator_call* call) {
  if (api()->failed(call) != 0) throw Ended();
}
} // namespace detail

// A size: an expression over the sizes of the model's inputs.
class Dim {
public:
  Dim(tessera_operator_call* call, tessera_dim dim) : call_(call), dim_(dim) { detail::check(call); }
  [[nodiscard]] tessera_dim get() const { return dim_; }
  // True if it is the same number in every call.
  [[nodiscard]] bool is_number(int64_t* number = nullptr) const {
    int64_t n = 0;
    const bool is = detail::api()->dim_is_number(call_, dim_, &n) != 0;
    if (is && number != nullptr) *number = n;
    return is;
  }
  friend Dim operator+(const Dim& a, const Dim& b) { return a.with(TESSERA_DIM_ADD, b); }
  friend Dim operator-(const Dim& a, const Dim& b) { return a.with(TESSERA_DIM_SUB, b); }
  friend Dim operator*(const Dim& a, const Dim& b) { return a.with(TESSERA_DIM_MUL, b); }
  friend Dim operator+(const Dim& a, int64_t b) { return a + a.number(b); }
  friend Dim operator-(const Dim& a, int64_t b) { return a - a.number(b); }
  friend Dim operator*(const Dim& a, int64_t b) { return a * a.number(b); }
  friend Dim floor_div(const Dim& a, const Dim& b) { return a.with(TESSERA_DIM_FLOOR_DIV, b); }
  friend Dim floor_div(const Dim& a, int64_t b) { return floor_div(a, a.number(b)); }
  friend Dim ceil_div(const Dim& a, const Dim& b) { return a.with(TESSERA_DIM_CEIL_DIV, b); }
  friend Dim ceil_div(const Dim& a, int64_t b) { return ceil_div(a, a.number(b)); }
  friend Dim mod(const Dim& a, const Dim& b) { return a.with(TESSERA_DIM_MOD, b); }
  friend Dim min(const Dim& a, const Dim& b) { return a.with(TESSERA_DIM_MIN, b); }
  friend Dim max(const Dim& a, const Dim& b) { return a.with(TESSERA_DIM_MAX, b); }

private:
  [[nodiscard]] Dim number(int64_t n) const { return {call_, detail::api()->dim_number(call_, n)}; }
  [[nodiscard]] Dim with(int32_t operation, const Dim& b) const {
    return {call_, detail::api()->dim_operation(call_, operation, dim_, b.dim_)};
  }
  tessera_operator_call* call_;
  tessera_dim dim_;
};
using Shape = std::vector<Dim>;

// The node, as every function sees it.
class Call {
public:
  explicit Call(tessera_operator_call* call) : call_(call) {}
  [[nodiscard]] int version() const { return api().version_imported(call_); } // of the domain, by the model
  [[nodiscard]] int operands() const { return api().operand_count(call_); }
  [[nodiscard]] int results() const { return api().result_count(call_); }
  [[nodiscard]] bool has(int operand) const { return api().has_operand(call_, operand) != 0; }
  [[nodiscard]] bool has(const std::string& attribute) const {
    return api().has_attribute(call_, attribute.c_str()) != 0;
  }
  // Attributes, or `otherwise` where the node has none of the name.
  [[nodiscard]] int64_t integer(const std::string& name, int64_t otherwise = 0) const {
    return checked(api().attribute_int(call_, name.c_str(), otherwise));
  }
  [[nodiscard]] double number(const std::string& name, double otherwise = 0) const {
    return checked(api().attribute_float(call_, name.c_str(), otherwise));
  }
  [[nodiscard]] std::string text(const std::string& name, const std::string& otherwise = "") const {
    return checked(std::string(api().attribute_string(call_, name.c_str(), otherwise.c_str())));
  }
  [[nodiscard]] std::vector<int64_t> integers(const std::string& name) const {
    const int64_t* values = nullptr;
    const int32_t count = api().attribute_ints(call_, name.c_str(), &values);
    return checked(std::vector<int64_t>(values, values + count));
  }
  [[nodiscard]] std::vector<double> numbers(const std::string& name) const {
    const double* values = nullptr;
    const int32_t count = api().attribute_floats(call_, name.c_str(), &values);
    return checked(std::vector<double>(values, values + count));
  }
  [[nodiscard]] std::vector<std::string> texts(const std::string& name) const {
    const char* const* values = nullptr;
    const int32_t count = api().attribute_strings(call_, name.c_str(), &values);
    return checked(std::vector<std::string>(values, values + count));
  }
  // False without one. Its memory is good during the call.
  bool tensor(const std::string& name, tessera_tensor& value) const {
    return checked(api().attribute_tensor(call_, name.c_str(), &value)) != 0;
  }

protected:
  static const tessera_operators_api& api() { return *detail::api(); }
  template <class T>
  T checked(T value) const {
    detail::check(call_);
    return value;
  }
  tessera_operator_call* call_;
};

// The same with types and sizes.
class TypedCall : public Call {
public:
  using Call::Call;
  [[nodiscard]] int32_t dtype(int operand) const { return checked(api().operand_dtype(call_, operand)); }
  [[nodiscard]] int rank(int operand) const { return checked(api().operand_rank(call_, operand)); }
  [[nodiscard]] Dim dim(int operand, int d) const { return {call_, api().operand_dim(call_, operand, d)}; }
  [[nodiscard]] Shape shape(int operand) const {
    Shape out;
    for (int d = 0; d < rank(operand); ++d) out.push_back(dim(operand, d));
    return out;
  }
  [[nodiscard]] Dim dim(int64_t number) const { return {call_, api().dim_number(call_, number)}; }
  // Integers that an operand holds.
  [[nodiscard]] std::vector<Dim> contents(int operand, int32_t most = 1024) const {
    std::vector<tessera_dim> all(static_cast<size_t>(most));
    const int32_t count = checked(api().operand_integers(call_, operand, all.data(), most));
    std::vector<Dim> out;
    for (int32_t i = 0; i < count; ++i) out.emplace_back(call_, all[static_cast<size_t>(i)]);
    return out;
  }
  void require_equal(const Dim& a, const Dim& b, const std::string& reason) const {
    api().require_equal(call_, a.get(), b.get(), reason.c_str());
    detail::check(call_);
  }

protected:
  [[nodiscard]] static std::vector<tessera_dim> raw(const std::vector<Dim>& dims) {
    std::vector<tessera_dim> out;
    for (const Dim& d : dims) out.push_back(d.get());
    return out;
  }
};

class ShapeCall : public TypedCall {
public:
  using TypedCall::TypedCall;
  // A size that the host function alone knows; the operator has sizes_of_data().
  [[nodiscard]] Dim unknown() const { return {call_, api().dim_of_data(call_)}; }
  void result(int r, int32_t dtype, const Shape& shape) const {
    const auto dims = raw(shape);
    api().set_result(call_, r, dtype, static_cast<int32_t>(dims.size()), dims.data());
    detail::check(call_);
  }
};

// A tensor of a decomposition; one that is default-constructed stands for an operand that is left out.
class Value {
public:
  Value() = default;
  Value(tessera_operator_call* call, tessera_value value) : call_(call), value_(value) { detail::check(call); }
  [[nodiscard]] tessera_value get() const { return value_; }
  [[nodiscard]] int32_t dtype() const { return detail::api()->value_dtype(call_, value_); }
  [[nodiscard]] int rank() const { return detail::api()->value_rank(call_, value_); }
  [[nodiscard]] Dim dim(int d) const { return {call_, detail::api()->value_dim(call_, value_, d)}; }

private:
  tessera_operator_call* call_ = nullptr;
  tessera_value value_ = -1;
};

// An attribute of an operator that a decomposition adds.
class Attribute {
public:
  Attribute(std::string name, int64_t v) : Attribute(std::move(name), Kind::Int) { raw_.i = v; }
  Attribute(std::string name, int v) : Attribute(std::move(name), static_cast<int64_t>(v)) {}
  Attribute(std::string name, double v) : Attribute(std::move(name), Kind::Float) { raw_.f = v; }
  Attribute(std::string name, const char* v) : Attribute(std::move(name), Kind::String) { text_ = v; }
  Attribute(std::string name, std::string v) : Attribute(std::move(name), Kind::String) { text_ = std::move(v); }
  Attribute(std::string name, std::vector<int64_t> v) : Attribute(std::move(name), Kind::Ints) { ints_ = std::move(v); }
  Attribute(std::string name, std::vector<double> v) : Attribute(std::move(name), Kind::Floats) {
    floats_ = std::move(v);
  }
  // Good as long as this is.
  [[nodiscard]] tessera_attribute_value get() const {
    tessera_attribute_value out = raw_;
    out.name = name_.c_str();
    out.s = text_.c_str();
    out.ints = ints_.data();
    out.floats = floats_.data();
    out.count = static_cast<int32_t>(ints_.empty() ? floats_.size() : ints_.size());
    return out;
  }

private:
  Attribute(std::string name, Kind kind) : name_(std::move(name)) { raw_.kind = static_cast<int32_t>(kind); }
  std::string name_, text_;
  std::vector<int64_t> ints_;
  std::vector<double> floats_;
  tessera_attribute_value raw_{};
};

class Decomposition : public TypedCall {
public:
  using TypedCall::TypedCall;
  // A version of ONNX's operators that op() follows, unless another is named. Those of later versions are another
  // matter: what a version means never changes.
  static constexpr int kVersion = 21;
  [[nodiscard]] Value operand(int i) const { return {call_, api().operand_value(call_, i)}; }
  [[nodiscard]] Value constant(const tessera_tensor& t) const { return {call_, api().constant(call_, &t)}; }
  // A scalar: of floating-point types f32, f64; of others by a Cast.
  [[nodiscard]] Value constant(int32_t dtype, double v) const {
    const auto narrow = static_cast<float>(v);
    const bool wide = dtype == TESSERA_F64;
    const void* data = wide ? static_cast<const void*>(&v) : static_cast<const void*>(&narrow);
    const tessera_tensor t{nullptr, wide ? TESSERA_F64 : TESSERA_F32, 0, nullptr, const_cast<void*>(data)};
    const Value made = constant(t);
    return dtype == t.dtype ? made : op("Cast", {made}, {{"to", int64_t{dtype}}});
  }
  [[nodiscard]] Value constant(const std::vector<int64_t>& v) const {
    const auto count = static_cast<int64_t>(v.size());
    return constant({nullptr, TESSERA_I64, 1, &count, const_cast<int64_t*>(v.data())});
  }
  // Sizes as a tensor i64[n], for Reshape, Expand, Slice ...
  [[nodiscard]] Value integers(const std::vector<Dim>& dims) const {
    const auto all = raw(dims);
    return {call_, api().integers(call_, all.data(), static_cast<int32_t>(all.size()))};
  }
  Value op(const std::string& name, const std::vector<Value>& operands, const std::vector<Attribute>& attributes = {},
           int version = kVersion, const std::string& domain = "") const {
    return ops(name, operands, attributes, 1, version, domain)[0];
  }
  std::vector<Value> ops(const std::string& name, const std::vector<Value>& operands,
                         const std::vector<Attribute>& attributes, int results, int version = kVersion,
                         const std::string& domain = "") const {
    std::vector<tessera_value> in, out(static_cast<size_t>(results));
    for (const Value& v : operands) in.push_back(v.get());
    std::vector<tessera_attribute_value> values;
    for (const Attribute& a : attributes) values.push_back(a.get());
    api().add_operator(call_, name.c_str(), domain.c_str(), version, in.data(), static_cast<int32_t>(in.size()),
                       values.data(), static_cast<int32_t>(values.size()), out.data(), results);
    std::vector<Value> made;
    for (tessera_value v : out) made.emplace_back(call_, v);
    return made;
  }
  void result(int r, const Value& v) const {
    api().set_value(call_, r, v.get());
    detail::check(call_);
  }
};

class KernelCall : public TypedCall {
public:
  using TypedCall::TypedCall;
  [[nodiscard]] std::string device() const { return api().device(call_); } // "cpu", "cuda"
  // The kernel's text, its sizes, and its number of programs.
  void kernel(const std::string& text, const std::vector<Dim>& sizes, const Dim& grid) const {
    const auto all = raw(sizes);
    api().set_kernel(call_, text.c_str(), all.data(), static_cast<int32_t>(all.size()), grid.get());
    detail::check(call_);
  }
};

class Run : public Call {
public:
  using Call::Call;
  [[nodiscard]] tessera_tensor operand(int i) const {
    tessera_tensor t{};
    if (api().operand(call_, i, &t) == 0) throw std::out_of_range("operand " + std::to_string(i) + " is not given");
    return t;
  }
  [[nodiscard]] static std::vector<int64_t> dims(const tessera_tensor& t) { return {t.dims, t.dims + t.rank}; }
  [[nodiscard]] static int64_t count(const tessera_tensor& t) {
    int64_t n = 1;
    for (int32_t d = 0; d < t.rank; ++d) n *= t.dims[d];
    return n;
  }
  template <class T>
  [[nodiscard]] const T* data(int i) const {
    return static_cast<const T*>(operand(i).data);
  }
  // Memory for a result, zero; null for strings.
  void* result(int r, int32_t dtype, const std::vector<int64_t>& dims) const {
    return checked(api().result(call_, r, dtype, static_cast<int32_t>(dims.size()), dims.data()));
  }
  [[nodiscard]] std::string string(int operand, int64_t index) const {
    size_t bytes = 0;
    const char* text = api().string(call_, operand, index, &bytes);
    return checked(std::string(text == nullptr ? "" : text, bytes));
  }
  void set_string(int r, int64_t index, std::string_view text) const {
    api().set_string(call_, r, index, text.data(), text.size());
    detail::check(call_);
  }
};

class Operator {
public:
  Operator(std::string domain, std::string name) : domain_(std::move(domain)), name_(std::move(name)) {}
  Operator& versions(int since, int until = 0) { return since_ = since, until_ = until, *this; }
  Operator& summary(std::string text) { return summary_ = std::move(text), *this; }
  Operator& operand(std::string name) { return add(std::move(name), TESSERA_OPERAND_REQUIRED); }
  Operator& optional(std::string name) { return add(std::move(name), TESSERA_OPERAND_OPTIONAL); }
  Operator& variadic(std::string name) { return add(std::move(name), TESSERA_OPERAND_VARIADIC); }
  Operator& attribute(std::string name, Kind kind, bool required = false) {
    return attributes_.push_back({std::move(name), kind, required}), *this;
  }
  Operator& results(int least, int most) { return least_ = least, most_ = most, *this; }
  Operator& sizes_of_data() { return sizes_of_data_ = true, *this; }
  Operator& changes() { return changes_ = true, *this; } // calls with equal operands may differ
  Operator& shape(std::function<void(ShapeCall&)> f) { return shape_ = std::move(f), *this; }
  Operator& decompose(std::function<void(Decomposition&)> f) { return decompose_ = std::move(f), *this; }
  Operator& kernel(std::function<void(KernelCall&)> f) { return kernel_ = std::move(f), *this; }
  Operator& run(std::function<void(Run&)> f) { return run_ = std::move(f), *this; }

private:
  friend class Library;
  struct AttributeDef {
    std::string name;
    Kind kind;
    bool required;
  };
  Operator& add(std::string name, int32_t arity) { return operands_.emplace_back(std::move(name), arity), *this; }
  // Calls the function; what it throws is the error of the call.
  template <class CallType, std::function<void(CallType&)> Operator::*member>
  static void call(tessera_operator_call* call, void* user) {
    try {
      CallType c(call);
      (static_cast<const Operator*>(user)->*member)(c);
    } catch (const detail::Ended&) {
    } catch (const std::exception& e) {
      detail::api()->fail(call, e.what());
    } catch (...) {
      detail::api()->fail(call, "an exception that is no std::exception");
    }
  }

  std::string domain_, name_, summary_;
  int since_ = 1, until_ = 0, least_ = 1, most_ = 1;
  bool sizes_of_data_ = false, changes_ = false;
  std::vector<std::pair<std::string, int32_t>> operands_;
  std::vector<AttributeDef> attributes_;
  std::function<void(ShapeCall&)> shape_;
  std::function<void(Decomposition&)> decompose_;
  std::function<void(KernelCall&)> kernel_;
  std::function<void(Run&)> run_;
};

class Library {
public:
  explicit Library(tessera_registry* registry) : registry_(registry) {}
  // Copies the operator. It lives as long as the process, as its functions may be called until then.
  void add(const Operator& op) {
    auto* kept = new Operator(op);
    std::vector<tessera_operand> operands;
    for (const auto& [name, arity] : kept->operands_) operands.push_back({name.c_str(), arity});
    std::vector<tessera_attribute> attributes;
    for (const auto& a : kept->attributes_)
      attributes.push_back({a.name.c_str(), static_cast<int32_t>(a.kind), a.required ? 1 : 0});
    tessera_operator def{};
    def.struct_size = sizeof def;
    def.name = kept->name_.c_str();
    def.domain = kept->domain_.c_str();
    def.since = kept->since_;
    def.until = kept->until_;
    def.summary = kept->summary_.empty() ? nullptr : kept->summary_.c_str();
    def.operands = operands.data();
    def.operand_count = static_cast<int32_t>(operands.size());
    def.attributes = attributes.data();
    def.attribute_count = static_cast<int32_t>(attributes.size());
    def.min_results = kept->least_;
    def.max_results = kept->most_;
    def.sizes_of_data = kept->sizes_of_data_ ? 1 : 0;
    def.changes = kept->changes_ ? 1 : 0;
    if (kept->shape_) def.shape = Operator::call<ShapeCall, &Operator::shape_>;
    if (kept->decompose_) def.decompose = Operator::call<Decomposition, &Operator::decompose_>;
    if (kept->kernel_) def.kernel = Operator::call<KernelCall, &Operator::kernel_>;
    if (kept->run_) def.run = Operator::call<Run, &Operator::run_>;
    def.user = kept;
    const char* error = detail::api()->add(registry_, &def);
    if (error == nullptr) return;
    delete kept;
    throw std::runtime_error(error);
  }

private:
  tessera_registry* registry_;
};

namespace detail {
template <class Register>
const char* register_all(const tessera_operators_api* functions, tessera_registry* registry, Register add) {
  thread_local std::string error;
  if (functions->version < TESSERA_OPERATORS_VERSION) return "was built for a later version of Tessera";
  api() = functions;
  try {
    Library library(registry);
    add(library);
    return nullptr;
  } catch (const std::exception& e) {
    error = e.what();
  } catch (...) {
    error = "an exception that is no std::exception";
  }
  return error.c_str();
}
} // namespace detail

} // namespace tessera::operators

#if defined(_WIN32)
#define TESSERA_OPERATORS_EXPORT extern "C" __declspec(dllexport)
#else
#define TESSERA_OPERATORS_EXPORT extern "C" __attribute__((visibility("default")))
#endif

// The body of a function that adds operators to `library`, and what a shared library exports.
#define TESSERA_OPERATORS(library)                                                                                     \
  static void tessera_add_operators_of_library(::tessera::operators::Library& library);                                \
  TESSERA_OPERATORS_EXPORT uint32_t tessera_operators_version(void) { return TESSERA_OPERATORS_VERSION; }              \
  TESSERA_OPERATORS_EXPORT const char* tessera_register_operators(const tessera_operators_api* functions,              \
                                                                  tessera_registry* registry) {                        \
    return ::tessera::operators::detail::register_all(functions, registry, tessera_add_operators_of_library);          \
  }                                                                                                                    \
  static void tessera_add_operators_of_library(::tessera::operators::Library& library)
