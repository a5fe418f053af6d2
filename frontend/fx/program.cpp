#include "frontend/fx/program.h"
#include "base/json_reader.h"
#include <array>
#include <cmath>

namespace tessera::fx {
namespace {

using file::JsonValue;

// The schema's numbers for element types. A type that we do not have has no DType.
struct SchemaType {
  int64_t number;
  std::string_view name; // PyTorch's
  std::optional<DType> dtype;
};
constexpr std::array kTypes = {
    SchemaType{0, "unknown", {}},
    SchemaType{1, "uint8", DType::U8},
    SchemaType{2, "int8", DType::I8},
    SchemaType{3, "int16", DType::I16},
    SchemaType{4, "int32", DType::I32},
    SchemaType{5, "int64", DType::I64},
    SchemaType{6, "float16", DType::F16},
    SchemaType{7, "float32", DType::F32},
    SchemaType{8, "float64", DType::F64},
    SchemaType{9, "complex32", {}},
    SchemaType{10, "complex64", DType::C64},
    SchemaType{11, "complex128", DType::C128},
    SchemaType{12, "bool", DType::Bool},
    SchemaType{13, "bfloat16", DType::BF16},
    SchemaType{28, "uint16", DType::U16},
    SchemaType{29, "float8_e4m3fn", DType::F8E4M3FN},
    SchemaType{30, "float8_e5m2", DType::F8E5M2},
    SchemaType{31, "float8_e4m3fnuz", DType::F8E4M3FNUZ},
    SchemaType{32, "float8_e5m2fnuz", DType::F8E5M2FNUZ},
    SchemaType{33, "float8_e8m0fnu", DType::F8E8M0},
    SchemaType{34, "uint32", DType::U32},
    SchemaType{35, "uint64", DType::U64},
};

constexpr int kMaxNesting = 64; // of arguments and subgraphs

// Reads one document. JsonValue throws file::Corrupt where something else stands than is expected; parse_program()
// catches it.
class Reader {
public:
  FxGraph graph(const JsonValue& v) {
    Depth deeper(*this, v);
    FxGraph g;
    g.inputs = arguments(v.at("inputs"));
    g.outputs = arguments(v.at("outputs"));
    v.at("nodes").each([&](const JsonValue& n) { g.nodes.push_back(node(n)); });
    members(v.at("tensor_values"),
            [&](const std::string& name, const JsonValue& t) { g.tensors.emplace(name, meta(t)); });
    members(v.at("sym_int_values"),
            [&](const std::string& name, const JsonValue& s) { g.sym_ints.emplace(name, SymValue{size(s)}); });
    if (v.has("sym_bool_values"))
      members(v.at("sym_bool_values"),
              [&](const std::string& name, const JsonValue& s) { g.sym_bools.emplace(name, SymValue{size(s)}); });
    if (v.has("is_single_tensor_return")) g.single_tensor_return = v.at("is_single_tensor_return").flag();
    return g;
  }

  InputSpec input_spec(const JsonValue& v) {
    auto [key, body] = only_member(v);
    InputSpec s;
    if (key == "user_input") {
      s.argument = argument(body.at("arg"));
    } else if (key == "parameter") {
      s.kind = InputSpec::Kind::Parameter;
      s.argument = tensor(body.at("arg"));
      s.target = body.at("parameter_name").text();
    } else if (key == "buffer") {
      s.kind = InputSpec::Kind::Buffer;
      s.argument = tensor(body.at("arg"));
      s.target = body.at("buffer_name").text();
      s.persistent = !body.has("persistent") || body.at("persistent").is_null() || body.at("persistent").flag();
    } else if (key == "tensor_constant") {
      s.kind = InputSpec::Kind::TensorConstant;
      s.argument = tensor(body.at("arg"));
      s.target = body.at("tensor_constant_name").text();
    } else if (key == "constant_input") {
      s.kind = InputSpec::Kind::Constant;
      s.target = body.at("name").text();
      s.constant = argument(body.at("value"));
    } else if (key == "token") {
      s.kind = InputSpec::Kind::Token;
    } else if (key == "custom_obj") {
      s.kind = InputSpec::Kind::CustomObject;
      s.target = body.at("custom_obj_name").text();
    } else {
      v.wrong("a kind of input that this version of Tessera knows");
    }
    return s;
  }

  OutputSpec output_spec(const JsonValue& v) {
    auto [key, body] = only_member(v);
    OutputSpec s;
    auto of_tensor = [&](OutputSpec::Kind kind, std::string_view target) {
      s.kind = kind;
      s.argument = tensor(body.at("arg"));
      if (!target.empty()) s.target = body.at(target).text();
    };
    if (key == "user_output")
      s.argument = argument(body.at("arg"));
    else if (key == "loss_output")
      of_tensor(OutputSpec::Kind::Loss, "");
    else if (key == "buffer_mutation")
      of_tensor(OutputSpec::Kind::BufferMutation, "buffer_name");
    else if (key == "user_input_mutation")
      of_tensor(OutputSpec::Kind::InputMutation, "user_input_name");
    else if (key == "parameter_mutation")
      of_tensor(OutputSpec::Kind::ParameterMutation, "parameter_name");
    else if (key == "gradient_to_parameter")
      of_tensor(OutputSpec::Kind::Gradient, "parameter_name");
    else if (key == "gradient_to_user_input")
      of_tensor(OutputSpec::Kind::Gradient, "user_input_name");
    else if (key == "token")
      s.kind = OutputSpec::Kind::Token;
    else
      v.wrong("a kind of output that this version of Tessera knows");
    return s;
  }

  static std::optional<int64_t> optional_integer(const JsonValue& v, std::string_view key) {
    if (!v.has(key) || v.at(key).is_null()) return {};
    return v.at(key).integer();
  }

  template <class Read>
  static void members(const JsonValue& v, Read&& read) {
    for (std::string_view key : v.keys()) read(std::string(key), v.at(key));
  }

  TensorMeta meta(const JsonValue& v) {
    TensorMeta m;
    m.dtype_number = v.at("dtype").integer();
    m.dtype = dtype_of_schema(m.dtype_number);
    m.sizes = v.at("sizes").list([&](const JsonValue& s) { return size(s); });
    m.strides = v.at("strides").list([&](const JsonValue& s) { return size(s); });
    if (m.strides.size() != m.sizes.size())
      v.at("strides").wrong("as many as sizes, which are " + std::to_string(m.sizes.size()));
    m.storage_offset = size(v.at("storage_offset"));
    m.device = v.at("device").at("type").text();
    return m;
  }

private:
  // Bounds nesting: the functions below call each other.
  struct Depth {
    Reader& reader;
    Depth(Reader& r, const JsonValue& v) : reader(r) {
      if (++reader.depth_ > kMaxNesting)
        file::corrupt(v.place() + " is nested more than " + std::to_string(kMaxNesting) + " deep");
    }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    ~Depth() { --reader.depth_; }
  };

  static std::pair<std::string_view, JsonValue> only_member(const JsonValue& v) {
    auto keys = v.keys();
    if (keys.size() != 1) v.wrong("an object of one member");
    return {keys[0], v.at(keys[0])};
  }

  FxNode node(const JsonValue& v) {
    FxNode n;
    n.target = v.at("target").text();
    n.inputs = v.at("inputs").list([&](const JsonValue& a) {
      return NamedArgument{a.at("name").text(), argument(a.at("arg"))};
    });
    n.outputs = arguments(v.at("outputs"));
    if (v.has("metadata")) {
      const JsonValue metadata = v.at("metadata");
      if (metadata.has("nn_module_stack")) n.module = module_path(metadata.at("nn_module_stack").text());
      if (metadata.has("stack_trace")) n.source = source_line(metadata.at("stack_trace").text());
    }
    // A region of the program that has no line is where its first node is.
    if (n.source.empty())
      for (const NamedArgument& a : n.inputs)
        if (n.source.empty() && a.value.graph && !a.value.graph->nodes.empty())
          n.source = a.value.graph->nodes.front().source;
    return n;
  }

  // Entries "key,path,type" with ';' between, from the outside to the inside; brackets may hold either character.
  static std::string module_path(const std::string& stack) {
    std::vector<std::string> fields;
    std::string path;
    int nested = 0;
    std::string field;
    auto end_entry = [&] {
      fields.push_back(field);
      if (fields.size() >= 3) path = fields[1];
      fields.clear();
      field.clear();
    };
    for (char c : stack) {
      if (c == '(' || c == '[') ++nested;
      if (c == ')' || c == ']') --nested;
      if (c == ';' && nested <= 0) {
        end_entry();
      } else if (c == ',' && nested <= 0) {
        fields.push_back(field);
        field.clear();
      } else {
        field += c;
      }
    }
    end_entry();
    if (path.starts_with("_empty_nn_module_stack")) return {};
    for (std::string_view prefix : {"L['self'].", "self."})
      if (path.starts_with(prefix)) path = path.substr(prefix.size());
    return path == "L['self']" || path == "self" ? std::string() : path;
  }

  // The innermost frame that is neither PyTorch's own nor of code that it generated ("<eval_with_key>"): "model.py:42".
  static std::string source_line(const std::string& trace) {
    std::string best, last;
    size_t at = 0;
    while ((at = trace.find("File \"", at)) != std::string::npos) {
      at += 6;
      size_t quote = trace.find('"', at);
      if (quote == std::string::npos) break;
      std::string path = trace.substr(at, quote - at);
      if (path.starts_with('<')) continue;
      size_t line = trace.find("line ", quote);
      if (line == std::string::npos) break;
      line += 5;
      size_t end = line;
      while (end < trace.size() && trace[end] >= '0' && trace[end] <= '9') ++end;
      std::string name = path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1) + ":" +
                         trace.substr(line, end - line);
      if (path.find("torch/nn/") == std::string::npos && path.find("torch/fx/") == std::string::npos &&
          path.find("torch/_") == std::string::npos)
        best = name;
      last = name;
      at = end;
    }
    return best.empty() ? last : best;
  }

  std::vector<Argument> arguments(const JsonValue& v) {
    return v.list([&](const JsonValue& a) { return argument(a); });
  }

  static Argument of_name(Argument::Kind kind, std::string name) {
    Argument a;
    a.kind = kind;
    a.name = std::move(name);
    return a;
  }
  static Argument of_integer(Argument::Kind kind, int64_t value) {
    Argument a;
    a.kind = kind;
    a.integer = value;
    return a;
  }
  static Argument tensor(const JsonValue& v) { return of_name(Argument::Kind::Tensor, v.at("name").text()); }
  static double number(const JsonValue& v) {
    if (!v.is_text()) return v.number();
    const std::string text = v.text(); // what JSON has no numbers for
    if (text == "Infinity") return INFINITY;
    if (text == "-Infinity") return -INFINITY;
    if (text == "NaN") return NAN;
    v.wrong("a number");
  }
  static Argument of_number(const JsonValue& v) {
    Argument a;
    a.kind = Argument::Kind::Float;
    a.number = number(v);
    return a;
  }
  template <class Read>
  Argument list(const JsonValue& v, Read&& read) {
    Argument a;
    a.kind = Argument::Kind::List;
    a.items = v.list(read);
    return a;
  }
  // A value of the graph by name, or a plain number.
  Argument symbolic(const JsonValue& v, Argument::Kind kind) {
    auto [key, body] = only_member(v);
    if (key == "as_name") return of_name(kind, body.text());
    if (key == "as_int") return of_integer(Argument::Kind::Int, body.integer());
    if (key == "as_bool") return of_integer(Argument::Kind::Bool, body.flag());
    if (key == "as_float") return of_number(body);
    v.wrong("as_name, as_int, as_bool or as_float");
  }

  Argument argument(const JsonValue& v) {
    Depth deeper(*this, v);
    auto [key, body] = only_member(v);
    const JsonValue& b = body;
    using Kind = Argument::Kind;
    if (key == "as_none") return {};
    if (key == "as_tensor") return tensor(b);
    if (key == "as_tensors") return list(b, [&](const JsonValue& t) { return tensor(t); });
    if (key == "as_int") return of_integer(Kind::Int, b.integer());
    if (key == "as_ints") return list(b, [&](const JsonValue& i) { return of_integer(Kind::Int, i.integer()); });
    if (key == "as_float") return of_number(b);
    if (key == "as_floats") return list(b, [&](const JsonValue& f) { return of_number(f); });
    if (key == "as_string") return of_name(Kind::String, b.text());
    if (key == "as_strings") return list(b, [&](const JsonValue& s) { return of_name(Kind::String, s.text()); });
    if (key == "as_sym_int") return symbolic(b, Kind::SymInt);
    if (key == "as_sym_ints") return list(b, [&](const JsonValue& s) { return symbolic(s, Kind::SymInt); });
    if (key == "as_sym_float") return symbolic(b, Kind::SymFloat);
    if (key == "as_sym_floats") return list(b, [&](const JsonValue& s) { return symbolic(s, Kind::SymFloat); });
    if (key == "as_sym_bool") return symbolic(b, Kind::SymBool);
    if (key == "as_sym_bools") return list(b, [&](const JsonValue& s) { return symbolic(s, Kind::SymBool); });
    if (key == "as_bool") return of_integer(Kind::Bool, b.flag());
    if (key == "as_bools") return list(b, [&](const JsonValue& f) { return of_integer(Kind::Bool, f.flag()); });
    if (key == "as_scalar_type") {
      Argument a = of_integer(Kind::ScalarType, b.integer());
      a.dtype = dtype_of_schema(a.integer);
      return a;
    }
    if (key == "as_memory_format") return of_integer(Kind::MemoryFormat, b.integer());
    if (key == "as_layout") return of_integer(Kind::Layout, b.integer());
    if (key == "as_device") return of_name(Kind::Device, b.at("type").text());
    if (key == "as_graph") {
      Argument a = of_name(Kind::Graph, b.at("name").text());
      a.graph = std::make_shared<FxGraph>(graph(b.at("graph")));
      return a;
    }
    if (key == "as_optional_tensor") return argument(b);
    if (key == "as_optional_tensors") return list(b, [&](const JsonValue& t) { return argument(t); });
    if (key == "as_operator") return of_name(Kind::Operator, b.text());
    if (key == "as_complex") {
      Argument a;
      a.kind = Kind::Complex;
      a.number = number(b.at("real"));
      a.imaginary = number(b.at("imag"));
      return a;
    }
    return of_name(Kind::Unknown, std::string(key));
  }

  Size size(const JsonValue& v) {
    auto [key, body] = only_member(v);
    Size s;
    if (key == "as_int") {
      s.constant = body.integer();
    } else if (key == "as_bool") {
      s.constant = body.flag() ? 1 : 0;
    } else if (key == "as_expr") {
      s.expression = body.at("expr_str").text();
      if (s.expression.empty()) body.at("expr_str").wrong("an expression");
      if (body.has("hint") && !body.at("hint").is_null() && body.at("hint").has("as_int"))
        s.hint = body.at("hint").at("as_int").integer();
    } else {
      v.wrong("as_int, as_bool or as_expr");
    }
    return s;
  }

  int depth_ = 0;
};

} // namespace

std::string_view name(Argument::Kind kind) {
  using Kind = Argument::Kind;
  switch (kind) {
  case Kind::None: return "None";
  case Kind::Tensor: return "a tensor";
  case Kind::Int: return "an integer";
  case Kind::Float: return "a number";
  case Kind::Bool: return "a boolean";
  case Kind::Complex: return "a complex number";
  case Kind::String: return "a string";
  case Kind::SymInt: return "a symbolic integer";
  case Kind::SymFloat: return "a symbolic number";
  case Kind::SymBool: return "a symbolic boolean";
  case Kind::ScalarType: return "an element type";
  case Kind::MemoryFormat: return "a memory format";
  case Kind::Layout: return "a layout";
  case Kind::Device: return "a device";
  case Kind::List: return "a list";
  case Kind::Graph: return "a graph";
  case Kind::Operator: return "an operator";
  case Kind::Unknown: return "an argument of an unknown kind";
  }
  return "";
}

std::optional<DType> dtype_of_schema(int64_t number) {
  for (const auto& t : kTypes)
    if (t.number == number) return t.dtype;
  return {};
}

std::string dtype_name_of_schema(int64_t number) {
  for (const auto& t : kTypes)
    if (t.number == number) return std::string(t.name);
  return "element type " + std::to_string(number);
}

Result<Program> parse_program(std::string_view json, const std::string& file) {
  Location where;
  where.file = file;
  nlohmann::json document = nlohmann::json::parse(json, nullptr, false);
  if (document.is_discarded()) return Diagnostic(ErrorCode::MalformedModel, where, "the program is no valid JSON");
  try {
    const JsonValue root(document, "program");
    Program p;
    const JsonValue version = root.at("schema_version");
    p.schema_major = version.at("major").integer();
    p.schema_minor = version.at("minor").integer();
    if (p.schema_major != kSchemaMajor)
      return Diagnostic(ErrorCode::UnsupportedFeature, where,
                        "the program has schema version " + std::to_string(p.schema_major) + "." +
                            std::to_string(p.schema_minor) + "; version " + std::to_string(kSchemaMajor) +
                            " is supported")
          .note("export and save the model again with a PyTorch that writes version " + std::to_string(kSchemaMajor) +
                " (2.7 or newer)");
    Reader reader;
    if (root.has("torch_version")) p.torch_version = root.at("torch_version").text();
    if (root.has("opset_version") && root.at("opset_version").has("aten"))
      p.aten_opset = root.at("opset_version").at("aten").integer();
    const JsonValue module = root.at("graph_module");
    p.graph = reader.graph(module.at("graph"));
    const JsonValue signature = module.at("signature");
    p.inputs = signature.at("input_specs").list([&](const JsonValue& v) { return reader.input_spec(v); });
    p.outputs = signature.at("output_specs").list([&](const JsonValue& v) { return reader.output_spec(v); });
    Reader::members(root.at("range_constraints"), [&](const std::string& symbol, const JsonValue& v) {
      p.ranges.emplace(symbol,
                       SymRangeSpec{Reader::optional_integer(v, "min_val"), Reader::optional_integer(v, "max_val")});
    });
    if (root.has("guards_code") && !root.at("guards_code").is_null())
      p.guards = root.at("guards_code").list([](const JsonValue& v) { return v.text(); });
    if (p.inputs.size() != p.graph.inputs.size())
      file::corrupt("the signature has " + std::to_string(p.inputs.size()) + " inputs, and the graph has " +
                    std::to_string(p.graph.inputs.size()));
    return p;
  } catch (const file::Corrupt& c) {
    return Diagnostic(ErrorCode::MalformedModel, where, c.what);
  }
}

Result<PayloadSpecs> parse_payloads(std::string_view json, const std::string& name) {
  nlohmann::json document = nlohmann::json::parse(json, nullptr, false);
  if (document.is_discarded()) return Diagnostic(ErrorCode::MalformedModel, "'" + name + "' is no valid JSON");
  try {
    const JsonValue root(document, name);
    Reader reader;
    PayloadSpecs specs;
    Reader::members(root.at("config"), [&](const std::string& weight, const JsonValue& v) {
      PayloadSpec spec;
      spec.file = v.at("path_name").text();
      spec.pickled = v.has("use_pickle") && v.at("use_pickle").flag();
      if (v.has("tensor_meta") && !v.at("tensor_meta").is_null()) spec.meta = reader.meta(v.at("tensor_meta"));
      specs.emplace(weight, std::move(spec));
    });
    return specs;
  } catch (const file::Corrupt& c) {
    return Diagnostic(ErrorCode::MalformedModel, c.what);
  }
}

} // namespace tessera::fx
