// Operators of libraries: their definitions as records of the table, and the loading of shared libraries.
#include "api/c/last_error.h"
#include "api/operators.h"
#include "api/operators/call.h"
#include "api/operators/load.h"
#include "base/file.h"
#include "base/guarded.h"
#include "base/hash.h"
#include "codegen/tile/tile.h"
#include "graph/ops/added.h"
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <dlfcn.h>
#include <mutex>
#include <set>

struct tessera_registry {
  std::vector<tessera::AddedRecord> records;
  std::optional<tessera::Diagnostic> error; // the first one
  std::string text;                         // of the last one
};

namespace tessera {

namespace {

Diagnostic usage(std::string message) { return {ErrorCode::Usage, std::move(message)}; }

// Texts of records, which live as long as the process.
std::string_view kept(std::string text) {
  static std::mutex mutex;
  static std::deque<std::string> all;
  const std::scoped_lock lock(mutex);
  return all.emplace_back(std::move(text));
}
std::string text_or(const char* text, const char* otherwise = "") { return text == nullptr ? otherwise : text; }

// Who has added operators.
struct Adders {
  std::mutex mutex;
  std::set<std::string> libraries; // digests
  bool program = false;
};
Adders& adders() {
  static Adders all;
  return all;
}

// ---- one operator's functions, as a record has them
struct Functions {
  tessera_operator_function shape, decompose, kernel, run;
  bool sizes_of_data;
  void* user;
};

std::vector<std::optional<TensorType>> types_of(const Graph& graph, const Node& node) {
  std::vector<std::optional<TensorType>> out;
  for (ValueId v : node.operands) out.push_back(v.valid() ? std::optional(graph.type(v)) : std::nullopt);
  return out;
}

std::vector<std::optional<TensorType>> types_of(std::span<const Tensor> operands) {
  std::vector<std::optional<TensorType>> out;
  for (const Tensor& t : operands) out.push_back(t.defined() ? std::optional(type_of(t)) : std::nullopt);
  return out;
}

Status infer(const Functions& f, InferContext& c) {
  tessera_operator_call call{c.node, types_of(c.graph, c.node), c.result_count};
  call.infer = &c;
  call.sizes_of_data = f.sizes_of_data;
  call.typed.resize(static_cast<size_t>(c.result_count));
  TESSERA_TRY(call_operator(call, f.shape, f.user));
  for (size_t r = 0; r < call.typed.size(); ++r)
    if (!call.typed[r])
      return c.error(ErrorCode::ShapeMismatch, "the shape function of '" + std::string(c.node.op->name) +
                                                   "' has not set the type of result " + std::to_string(r));
  return {};
}

// Compares the types of the shape function with those that a decomposition yields.
Status check_types(const Functions& f, ops::B& b, const std::vector<ValueId>& values) {
  InferContext c{b.graph(), b.node(), static_cast<int>(values.size()), {}, {}};
  c.results.resize(values.size());
  TESSERA_TRY(infer(f, c));
  for (size_t r = 0; r < values.size(); ++r) {
    const TensorType made = b.type(values[r]);
    bool same = made.dtype == c.results[r].dtype && made.rank() == c.results[r].rank();
    for (size_t d = 0; same && d < made.shape.size(); ++d)
      same = b.env().prove(sym_eq(made.shape[d], c.results[r].shape[d])) != false;
    if (!same)
      return c.error(ErrorCode::ShapeMismatch, "the shape function of '" + std::string(b.node().op->name) + "' says " +
                                                   c.results[r].str() + " of result " + std::to_string(r) +
                                                   ", and its decomposition yields " + made.str());
  }
  return {};
}

// A decomposition that adds its own operator would not end.
constexpr int kMaxNesting = 16;
struct Nesting {
  static thread_local int depth;
  Nesting() { ++depth; }
  ~Nesting() { --depth; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
};
thread_local int Nesting::depth = 0;

Result<std::vector<ValueId>> decompose(const Functions& f, Graph& graph, const Node& node, int results) {
  const Nesting nesting;
  if (Nesting::depth > kMaxNesting)
    return Diagnostic(ErrorCode::UnsupportedFeature, node.location,
                      "the decomposition of '" + std::string(node.op->name) + "' adds itself, without end");
  ops::B b(graph, node);
  tessera_operator_call call{b.node(), types_of(graph, b.node()), results};
  call.build = &b;
  call.yielded.resize(static_cast<size_t>(results));
  TESSERA_TRY(call_operator(call, f.decompose, f.user));
  if (!b.ok()) return b.failed();
  for (size_t r = 0; r < call.yielded.size(); ++r)
    if (!call.yielded[r].valid())
      return Diagnostic(ErrorCode::ShapeMismatch, node.location,
                        "the decomposition of '" + std::string(node.op->name) + "' has not set result " +
                            std::to_string(r));
  if (f.shape != nullptr) TESSERA_TRY(check_types(f, b, call.yielded));
  return call.yielded;
}

Result<std::optional<TileText>> kernel(const Functions& f, const Node& node,
                                       std::vector<std::optional<TensorType>> operands, const ShapeEnv* env,
                                       std::string_view device) {
  tessera_operator_call call{node, std::move(operands), static_cast<int>(node.results.size())};
  call.kernel = true;
  call.env = env;
  call.device = device;
  TESSERA_TRY(call_operator(call, f.kernel, f.user));
  return std::move(call.text);
}

Status run_function(const Functions& f, ReferenceContext& c) {
  tessera_operator_call call{c.node, types_of(c.operands), c.result_count};
  call.reference = &c;
  c.results.assign(static_cast<size_t>(c.result_count), Tensor());
  call.strings.resize(static_cast<size_t>(c.result_count));
  TESSERA_TRY(call_operator(call, f.run, f.user));
  for (size_t r = 0; r < c.results.size(); ++r) {
    if (c.results[r].defined() && c.results[r].dtype() == DType::String)
      c.results[r] = Tensor::strings(c.results[r].dims(), std::move(call.strings[r]));
    const bool wanted = r < c.node.results.size() && c.node.results[r].valid();
    if (wanted && !c.results[r].defined())
      return c.error(ErrorCode::ShapeMismatch,
                     "the function of '" + std::string(c.node.op->name) + "' has not made result " + std::to_string(r));
  }
  return {};
}

// The host's kernel, interpreted: every access is checked.
Status interpret_kernel(const Functions& f, ReferenceContext& c) {
  const std::span<const Tensor> operands(c.operands.data(), c.node.operands.size());
  TESSERA_ASSIGN(auto text, kernel(f, c.node, types_of(operands), nullptr, "cpu"));
  if (!text)
    return c.error(ErrorCode::UnsupportedOp,
                   "'" + std::string(c.node.op->name) + "' has no kernel for these types, and no function on the host");
  TESSERA_ASSIGN(const tile::Kernel parsed,
                 tile::parse(text->text, "the kernel of '" + std::string(c.node.op->name) + "'"));
  TESSERA_TRY(tile::verify(parsed));
  std::vector<tile::Argument> arguments;
  auto add = [&](const Tensor& t) {
    arguments.push_back({{const_cast<std::byte*>(t.data()), t.bytes()}, {}}); // only read, unless it is `written`
  };
  for (const Tensor& t : operands)
    if (t.defined()) add(t);
  for (size_t r = 0; r < c.node.results.size(); ++r) {
    const TensorType& type = c.result_types[r];
    Dims dims;
    for (const SymExpr& e : type.shape) {
      TESSERA_ASSIGN(int64_t size, c.eval(e));
      dims.push_back(size);
    }
    TESSERA_ASSIGN(Tensor t, Tensor::create(type.dtype, dims, true));
    c.results.push_back(t);
    if (c.node.results[r].valid()) add(c.results.back());
  }
  for (const SymExpr& e : text->sizes) {
    TESSERA_ASSIGN(int64_t size, c.eval(e));
    tile::Argument a;
    a.scalar.i = size;
    arguments.push_back(a);
  }
  if (arguments.size() != parsed.params.size())
    return c.error(ErrorCode::TypeMismatch, "the kernel of '" + std::string(c.node.op->name) + "' has " +
                                                std::to_string(parsed.params.size()) + " parameters, expected are " +
                                                std::to_string(arguments.size()));
  TESSERA_ASSIGN(const int64_t grid, c.eval(text->grid));
  TESSERA_ASSIGN([[maybe_unused]] auto ran, tile::interpret(parsed, arguments, grid));
  return {};
}

// ---- definitions
Result<AttrKind> kind_of(int32_t kind) {
  switch (kind) {
  case TESSERA_ATTRIBUTE_INT: return AttrKind::Int;
  case TESSERA_ATTRIBUTE_FLOAT: return AttrKind::Float;
  case TESSERA_ATTRIBUTE_STRING: return AttrKind::String;
  case TESSERA_ATTRIBUTE_INTS: return AttrKind::Ints;
  case TESSERA_ATTRIBUTE_FLOATS: return AttrKind::Floats;
  case TESSERA_ATTRIBUTE_STRINGS: return AttrKind::Strings;
  case TESSERA_ATTRIBUTE_TENSOR: return AttrKind::Tensor;
  default: return usage("has an attribute of kind " + std::to_string(kind) + ", which there is not");
  }
}

// A name that the text form of graphs reads as one word.
std::string identifier(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.') c = '_';
  return text;
}

Status set_meaning(AddedRecord& record, const tessera_operator& op) {
  OpDef& def = record.def;
  const Functions f{op.shape, op.decompose, op.kernel, op.run, op.sizes_of_data != 0, op.user};
  if ((op.decompose != nullptr) == (op.kernel != nullptr || op.run != nullptr))
    return usage(op.decompose == nullptr ? "has no meaning: neither decompose, nor kernel, nor run"
                                         : "has a decomposition, and a kernel or a function next to it");
  if (op.decompose != nullptr) {
    if (f.sizes_of_data) return usage("has a decomposition, whose sizes follow from its operators: no sizes_of_data");
    def.meaning = Decomposition{[f](Graph& g, const Node& n, int results) { return decompose(f, g, n, results); }};
    return {};
  }
  if (op.shape == nullptr) return usage("has no shape function");
  if (op.kernel != nullptr && f.sizes_of_data)
    return usage("has a kernel, whose results are allocated before it runs: no sizes_of_data");
  def.infer = [f](InferContext& c) { return infer(f, c); };
  def.meaning = StructuredOp{Structured::Other};
  if (op.kernel != nullptr)
    record.tile_text = [f](const Graph& g, const Node& n, std::string_view device) {
      return kernel(f, n, types_of(g, n), &g.env(), device);
    };
  if (op.run != nullptr)
    def.reference = [f](ReferenceContext& c) { return run_function(f, c); };
  else
    def.reference = [f](ReferenceContext& c) { return interpret_kernel(f, c); };
  return {};
}

Result<AddedRecord> make_record(const tessera_operator& op) {
  const std::string name = text_or(op.name), given = text_or(op.domain), domain = given == "ai.onnx" ? "" : given;
  if (name.empty()) return usage("an operator has no name");
  const int until = op.until == 0 ? 1 << 30 : op.until;
  if (op.since < 1 || until < op.since)
    return usage("is for versions " + std::to_string(op.since) + " to " + std::to_string(until) +
                 ": they begin with 1, and the last is not before the first");
  if (op.operand_count < 0 || (op.operand_count > 0 && op.operands == nullptr) || op.attribute_count < 0 ||
      (op.attribute_count > 0 && op.attributes == nullptr))
    return usage("has counts without operands or attributes");
  if (op.min_results < 1 || op.max_results < op.min_results)
    return usage("has " + std::to_string(op.min_results) + " to " + std::to_string(op.max_results) + " results");
  AddedRecord record;
  OpDef& def = record.def;
  def.name = kept(identifier((domain.empty() ? "" : domain + ".") + name) +
                  (op.since > 1 ? "." + std::to_string(op.since) : ""));
  def.summary = kept(text_or(op.summary, "an operator of a library"));
  def.onnx = {{kept(name), kept(domain), op.since, until}};
  for (int32_t i = 0; i < op.operand_count; ++i) {
    const tessera_operand& o = op.operands[i];
    const bool variadic = o.arity == TESSERA_OPERAND_VARIADIC;
    if (o.arity < TESSERA_OPERAND_REQUIRED || o.arity > TESSERA_OPERAND_VARIADIC ||
        (variadic && i + 1 < op.operand_count))
      return usage("has operand " + std::to_string(i) + " of arity " + std::to_string(o.arity) +
                   "; the last operand alone is variadic");
    def.operands.push_back(
        {kept(text_or(o.name, "operand")), TypeSet::Any, o.arity == TESSERA_OPERAND_OPTIONAL, variadic});
  }
  std::set<std::string> names;
  for (int32_t i = 0; i < op.attribute_count; ++i) {
    const std::string attribute = text_or(op.attributes[i].name);
    if (attribute.empty() || !names.insert(attribute).second)
      return usage("has an attribute without a name, or two of the name '" + attribute + "'");
    TESSERA_ASSIGN(const AttrKind kind, kind_of(op.attributes[i].kind));
    def.attributes.push_back({kept(attribute), kind, op.attributes[i].required != 0});
  }
  def.min_results = op.min_results;
  def.max_results = op.max_results;
  def.side_effect = op.changes != 0;
  def.data_dependent_shape = op.sizes_of_data != 0;
  TESSERA_TRY(set_meaning(record, op));
  return record;
}

Status add_all(tessera_register_operators_function operators, const std::string& what) {
  tessera_registry registry;
  const char* error = nullptr;
  TESSERA_TRY(guarded({"registering operators of", what}, [&]() -> Status {
    error = operators(&operators_api(), &registry);
    return {};
  }));
  if (registry.error) return std::move(*registry.error).note("of " + what);
  if (error != nullptr) return usage(what + ": " + error);
  if (registry.records.empty()) return usage(what + " registers no operators");
  auto added = add_records(std::move(registry.records));
  if (!added.ok()) return std::move(added).take_error().note("of " + what);
  return {};
}

// An open shared library; closed again unless its operators were registered.
class OpenLibrary {
public:
  static Result<OpenLibrary> open(const std::string& path) {
    std::unique_ptr<char, decltype(&std::free)> whole(::realpath(path.c_str(), nullptr), &std::free);
    if (!whole) return file_error(ErrorCode::FileError, path, "open", errno);
    OpenLibrary out;
    out.handle_ = ::dlopen(whole.get(), RTLD_NOW | RTLD_LOCAL);
    if (out.handle_ == nullptr) {
      const char* why = ::dlerror();
      return Diagnostic(ErrorCode::FileError, path + " cannot be loaded: " + (why == nullptr ? "unknown reason" : why));
    }
    return out;
  }
  OpenLibrary(OpenLibrary&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  OpenLibrary& operator=(OpenLibrary&&) = delete;
  ~OpenLibrary() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  [[nodiscard]] void* handle() const { return handle_; }
  [[nodiscard]] void* symbol(const char* name) const { return ::dlsym(handle_, name); }
  void keep() { handle_ = nullptr; }

private:
  OpenLibrary() = default;
  void* handle_ = nullptr;
};

} // namespace

Status load_operators(const std::string& path) {
  static std::mutex mutex;
  static std::set<void*> loaded;
  const std::scoped_lock lock(mutex);
  TESSERA_ASSIGN(OpenLibrary library, OpenLibrary::open(path));
  if (loaded.contains(library.handle())) return {};
  constexpr const char *kVersion = "tessera_operators_version", *kRegister = "tessera_register_operators";
  for (const char* name : {kVersion, kRegister})
    if (library.symbol(name) == nullptr)
      return usage(path + " is no library of operators: it has no function " + name)
          .note("api/operators.h says what it exports; in C++, TESSERA_OPERATORS() of operators.hpp does");
  const uint32_t version = reinterpret_cast<tessera_operators_version_function>(library.symbol(kVersion))();
  if (version < 1 || version > TESSERA_OPERATORS_VERSION)
    return usage(path + " was built for version " + std::to_string(version) +
                 " of the interface of operators, and this Tessera has version " +
                 std::to_string(TESSERA_OPERATORS_VERSION))
        .note("build it with this Tessera's headers, or install a newer Tessera");
  TESSERA_ASSIGN(const Storage bytes, map_file(path));
  TESSERA_TRY(add_all(reinterpret_cast<tessera_register_operators_function>(library.symbol(kRegister)), path));
  {
    const std::scoped_lock adding(adders().mutex);
    adders().libraries.insert(hash128(bytes.data, bytes.bytes).hex());
  }
  loaded.insert(library.handle());
  library.keep();
  return {};
}

std::optional<std::string> added_operators() {
  const std::scoped_lock lock(adders().mutex);
  if (adders().program) return std::nullopt;
  std::string text;
  for (const std::string& digest : adders().libraries) text += digest + "\n";
  return text;
}

const char* add_operator_to(tessera_registry* registry, const tessera_operator* op) {
  auto added = guarded("registering an operator", [&]() -> Status {
    if (op == nullptr) return usage("the operator is null");
    if (op->struct_size != sizeof(tessera_operator))
      return usage("an operator's struct_size is " + std::to_string(op->struct_size) + ", expected " +
                   std::to_string(sizeof(tessera_operator)) + ": it was built for another version");
    auto record = make_record(*op);
    if (!record.ok()) {
      Diagnostic error = record.error();
      if (op->name != nullptr) error.message = "operator '" + std::string(op->name) + "' " + error.message;
      return error;
    }
    registry->records.push_back(std::move(*record));
    return {};
  });
  if (added.ok()) return nullptr;
  registry->text = added.error().message;
  if (!registry->error) registry->error = std::move(added).take_error();
  return registry->text.c_str();
}

} // namespace tessera

using namespace tessera;

const char* tessera_load_operators(const char* library) {
  return recorded("loading operators", [&]() -> Status {
    if (library == nullptr) return usage("the library's path is null");
    return load_operators(library);
  });
}

const char* tessera_add_operators(tessera_register_operators_function operators) {
  return recorded("registering operators", [&]() -> Status {
    if (operators == nullptr) return usage("the function is null");
    {
      const std::scoped_lock lock(adders().mutex);
      adders().program = true;
    }
    return add_all(operators, "the program's operators");
  });
}
