// Recursive descent over the text form. Types are inferred by add_node and held against the written ones.
#include "graph/ir/lexer.h"
#include "graph/ir/operator.h"
#include "graph/ir/text.h"
#include "graph/ir/types_match.h"
#include <map>
#include <unordered_map>

namespace tessera {

namespace {

using text::Lexer;
using text::Position;

// Expressions and types are read before the symbols they speak of are known (the where clause follows the inputs).
struct RawExpr {
  std::string_view text;
  Position at;
};
struct RawType {
  DType dtype = DType::F32;
  std::vector<RawExpr> dims;
  std::shared_ptr<const ItemType> items;
  Position at;
  bool left_out = false;
};
struct RawData {
  enum Kind { List, Hex, Hash, Missing } kind = Missing;
  std::vector<RawExpr> elements; // List: numbers as written
  std::vector<std::string> strings;
  std::string text; // Hex: digits; Hash: digits
  Position at;
};

constexpr int64_t kMaxWeight = int64_t{1} << 50; // elements; a weight without data may state any size

class Parser {
public:
  explicit Parser(Lexer& in) : in_(in) {}

  Result<Graph> file() {
    TESSERA_ASSIGN(Graph graph, this->graph(nullptr, 0));
    in_.skip();
    if (!in_.at_end()) return in_.error("expected the end of the text after the graph, found " + in_.found());
    return graph;
  }

private:
  using Values = std::map<std::string, ValueId, std::less<>>; // %name as "name", %3 as "#3"

  Result<Graph> graph(const std::shared_ptr<ShapeEnv>& outer, int depth);
  // A subgraph may name symbols of the graph around it again, with what else is known of them.
  Status where(Graph& graph, bool of_subgraph);
  Status where_symbol(Graph& graph, std::string_view name, Position at, bool narrows);
  Status node(Graph& graph, Values& values, int depth);
  Status attributes(const OpDef& op, Attributes& out, const std::shared_ptr<ShapeEnv>& env, int depth);
  Result<Attribute> attribute(AttrKind kind, const std::shared_ptr<ShapeEnv>& env, int depth);
  Status constant(Attributes& out, RawData& data);
  Result<RawData> data();
  Result<Tensor> tensor(const RawType& type, const RawData& data);
  Result<RawType> raw_type();
  Result<RawExpr> raw_expr();
  Result<TensorType> resolve(const RawType& type);
  Result<std::shared_ptr<const ItemType>> item_type(int depth);
  Result<SymExpr> resolve(const RawExpr& expr);
  Result<std::string> value_name(); // after %
  Result<ValueId> operand(const Values& values);
  template <class F>
  Status list(char close, F&& item);

  Lexer& in_;
  std::map<std::string, SymExpr, std::less<>> symbols_;
};

// Items separated by commas up to `close`, the opening bracket having been read.
template <class F>
Status Parser::list(char close, F&& item) {
  if (in_.eat(close)) return {};
  for (;;) {
    TESSERA_TRY(item());
    if (in_.eat(close)) return {};
    if (!in_.eat(',')) return in_.error("expected ',' or '" + std::string(1, close) + "', found " + in_.found());
  }
}

Result<RawExpr> Parser::raw_expr() {
  in_.skip();
  RawExpr out{{}, in_.position()};
  TESSERA_ASSIGN(out.text, in_.expression());
  return out;
}

Result<SymExpr> Parser::resolve(const RawExpr& expr) {
  auto parsed = parse_sym(expr.text, [&](std::string_view name) -> Result<SymExpr> {
    auto it = symbols_.find(name);
    if (it != symbols_.end()) return it->second;
    return Diagnostic(ErrorCode::ParseError,
                      "symbol '" + std::string(name) + "' is not declared: give it a range after 'where'");
  });
  if (parsed.ok()) return parsed;
  return in_.error("in '" + std::string(expr.text) + "': " + parsed.error().message, expr.at);
}

Result<RawType> Parser::raw_type() {
  RawType type;
  in_.skip();
  type.at = in_.position();
  TESSERA_ASSIGN(std::string name, in_.identifier("an element type"));
  auto dtype = dtype_from_name(name);
  if (!dtype) return in_.error("'" + name + "' is not an element type", type.at);
  type.dtype = *dtype;
  if (type.dtype == DType::List) {
    TESSERA_TRY(in_.expect('<'));
    TESSERA_ASSIGN(type.items, item_type(0));
    TESSERA_TRY(in_.expect('>'));
  }
  TESSERA_TRY(in_.expect('['));
  TESSERA_TRY(list(']', [&]() -> Status {
    TESSERA_ASSIGN(RawExpr dim, raw_expr());
    type.dims.push_back(dim);
    return {};
  }));
  return type;
}

// sequence f32[?, 4], optional list<sequence f32[...]>[], map i64 f32[]
Result<std::shared_ptr<const ItemType>> Parser::item_type(int depth) {
  auto out = std::make_shared<ItemType>();
  if (depth > 8) return in_.error("lists are nested too deeply", in_.position());
  TESSERA_ASSIGN(std::string container, in_.identifier("sequence, optional or map"));
  using C = ItemType::Container;
  if (container != "sequence" && container != "optional" && container != "map")
    return in_.error("'" + container + "' is neither sequence, optional nor map", in_.position());
  out->container = container == "sequence" ? C::Sequence : container == "optional" ? C::Optional : C::Map;
  auto dtype = [&]() -> Result<DType> {
    in_.skip();
    const auto at = in_.position();
    TESSERA_ASSIGN(std::string name, in_.identifier("an element type"));
    auto found = dtype_from_name(name);
    if (!found) return in_.error("'" + name + "' is not an element type", at);
    return *found;
  };
  if (out->container == C::Map) {
    TESSERA_ASSIGN(out->keys, dtype());
  }
  TESSERA_ASSIGN(out->dtype, dtype());
  if (out->dtype == DType::List) {
    TESSERA_TRY(in_.expect('<'));
    TESSERA_ASSIGN(out->items, item_type(depth + 1));
    TESSERA_TRY(in_.expect('>'));
  }
  TESSERA_TRY(in_.expect('['));
  if (in_.eat('.')) {
    TESSERA_TRY(in_.expect(std::string_view("..]")));
    return std::shared_ptr<const ItemType>(std::move(out));
  }
  out->shape.emplace();
  TESSERA_TRY(list(']', [&]() -> Status {
    if (in_.eat('?')) {
      out->shape->push_back(-1);
      return {};
    }
    const auto at = in_.position();
    TESSERA_ASSIGN(int64_t size, in_.integer());
    if (size < 0) return in_.error("a size of an item is a number or ?", at);
    out->shape->push_back(size);
    return {};
  }));
  return std::shared_ptr<const ItemType>(std::move(out));
}

Result<TensorType> Parser::resolve(const RawType& raw) {
  TensorType type{raw.dtype, {}, raw.items};
  for (const RawExpr& dim : raw.dims) {
    TESSERA_ASSIGN(SymExpr e, resolve(dim));
    if (auto value = e.as_const(); value && *value < 0) return in_.error("a dimension cannot be negative", dim.at);
    type.shape.push_back(e);
  }
  return type;
}

Result<std::string> Parser::value_name() {
  TESSERA_TRY(in_.expect('%'));
  if (in_.peek_digit()) {
    TESSERA_ASSIGN(std::string digits, in_.digits());
    return "#" + digits;
  }
  TESSERA_ASSIGN(std::string name, in_.name("a value's name"));
  if (name.empty()) return in_.error("a value's name cannot be empty");
  return name.starts_with('#') ? "\"" + name : name; // a quoted name that looks like our numbers
}

// The name as the graph keeps it.
std::string source_name(const std::string& key) {
  return key.starts_with('#') ? "" : key.starts_with("\"#") ? key.substr(1) : key;
}

std::string shown(const std::string& key) {
  return key.starts_with('#') ? "%" + key.substr(1) : "%" + source_name(key);
}

Result<ValueId> Parser::operand(const Values& values) {
  in_.skip();
  Position at = in_.position();
  if (in_.eat_word("_")) return ValueId{};
  TESSERA_ASSIGN(std::string key, value_name());
  auto it = values.find(key);
  if (it == values.end()) return in_.error("'" + shown(key) + "' is not defined", at);
  return it->second;
}

Status Parser::where_symbol(Graph& graph, std::string_view name, Position at, bool narrows) {
  const auto around = symbols_.find(name);
  if (around != symbols_.end() && !narrows)
    return in_.error("symbol '" + std::string(name) + "' is declared twice", at);
  SymRange range;
  TESSERA_TRY(in_.expect('['));
  TESSERA_ASSIGN(range.lo, in_.integer());
  TESSERA_TRY(in_.expect(','));
  if (!in_.eat('?')) {
    TESSERA_ASSIGN(range.hi, in_.integer());
  }
  TESSERA_TRY(in_.expect(']'));
  if (range.lo > range.hi) return in_.error("the range of '" + std::string(name) + "' is empty", at);
  int64_t divisor = 1;
  if (in_.eat_word("div")) {
    TESSERA_ASSIGN(divisor, in_.integer());
    if (divisor < 1) return in_.error("the divisor of '" + std::string(name) + "' must be positive", at);
  }
  SymExpr symbol = around != symbols_.end() ? around->second : graph.env().create_symbol(name, range, divisor);
  if (around != symbols_.end()) {
    graph.env().set_range(symbol, range);
    graph.env().set_divisor(symbol, divisor);
  }
  if (in_.eat_word("hint")) {
    TESSERA_ASSIGN(int64_t hint, in_.integer());
    graph.env().set_hint(symbol, hint);
  }
  symbols_.try_emplace(std::string(name), symbol);
  return {};
}

Status Parser::where(Graph& graph, bool of_subgraph) {
  do {
    in_.skip();
    Position at = in_.position();
    TESSERA_ASSIGN(std::string word, in_.name("a symbol, 'require' or 'assume'"));
    if (in_.eat_word("in")) {
      TESSERA_TRY(where_symbol(graph, word, at, of_subgraph));
      continue;
    }
    if (word != "require" && word != "assume")
      return in_.error("expected 'in' and a range after '" + word + "', found " + in_.found());
    Guard guard;
    guard.cls = word == "require" ? GuardClass::Required : GuardClass::Assumed;
    TESSERA_ASSIGN(RawExpr raw, raw_expr());
    TESSERA_ASSIGN(guard.condition, resolve(raw));
    if (in_.peek('"')) {
      TESSERA_ASSIGN(guard.reason, in_.string());
    }
    graph.env().add_guard(std::move(guard));
  } while (in_.eat(','));
  return {};
}

Result<Graph> Parser::graph(const std::shared_ptr<ShapeEnv>& outer, int depth) {
  if (depth > text::kMaxDepth)
    return in_.error("subgraphs are nested more than " + std::to_string(text::kMaxDepth) + " deep");
  if (!in_.eat_word("graph")) return in_.error("expected 'graph', found " + in_.found());
  TESSERA_TRY(in_.expect('@'));
  TESSERA_ASSIGN(std::string name, in_.name("the graph's name"));
  Graph graph = outer ? Graph(name, outer) : Graph(name);

  struct Entry {
    std::string key, label; // of outputs: the name when it is not the value's
    bool labelled = false;
    RawType type;
    Position at;
  };
  std::vector<Entry> inputs, outputs;
  TESSERA_TRY(in_.expect('('));
  TESSERA_TRY(list(')', [&]() -> Status {
    Entry e;
    in_.skip();
    e.at = in_.position();
    TESSERA_ASSIGN(e.key, value_name());
    TESSERA_TRY(in_.expect(':'));
    TESSERA_ASSIGN(e.type, raw_type());
    inputs.push_back(std::move(e));
    return {};
  }));
  TESSERA_TRY(in_.expect("->"));
  TESSERA_TRY(in_.expect('('));
  TESSERA_TRY(list(')', [&]() -> Status {
    Entry e;
    in_.skip();
    e.at = in_.position();
    if (in_.peek('"')) {
      TESSERA_ASSIGN(e.label, in_.string());
      e.labelled = true;
      TESSERA_TRY(in_.expect('='));
    }
    TESSERA_ASSIGN(e.key, value_name());
    TESSERA_TRY(in_.expect(':'));
    TESSERA_ASSIGN(e.type, raw_type());
    outputs.push_back(std::move(e));
    return {};
  }));
  // A subgraph with a clause has an environment of its own: symbols of the graph around it keep their meaning.
  struct Restore {
    decltype(symbols_)& symbols;
    decltype(symbols_) before;
    bool local = false;
    ~Restore() {
      if (local) symbols = std::move(before);
    }
  } restore{symbols_, {}};
  if (in_.eat_word("where")) {
    if (outer) {
      restore.before = symbols_;
      restore.local = true;
      graph = Graph(name, std::make_shared<ShapeEnv>(outer->inner()));
    }
    TESSERA_TRY(where(graph, outer != nullptr));
  }

  Values values;
  for (const Entry& e : inputs) {
    TESSERA_ASSIGN(TensorType type, resolve(e.type));
    SymShape declared = type.shape;
    type.shape = graph.env().simplify(declared); // by the guards that are written
    ValueId v = graph.add_input(source_name(e.key), type);
    if (declared != type.shape) graph.value(v).declared = std::move(declared);
    if (!values.emplace(e.key, v).second) return in_.error("'" + shown(e.key) + "' is defined twice", e.at);
  }
  TESSERA_TRY(in_.expect('{'));
  while (!in_.eat('}')) {
    if (in_.at_end()) return in_.error("expected a node or '}', found the end of the text");
    TESSERA_TRY(node(graph, values, depth));
  }
  for (const Entry& e : outputs) {
    auto it = values.find(e.key);
    if (it == values.end()) return in_.error("output '" + shown(e.key) + "' is not defined", e.at);
    TESSERA_ASSIGN(TensorType type, resolve(e.type));
    if (!types_match(graph.env(), type, graph.type(it->second),
                     FreshSymbols(graph.env(), graph.env().symbols().size())))
      return in_.error("output '" + shown(e.key) + "' is " + graph.type(it->second).str() + ", but " + type.str() +
                           " is written",
                       e.type.at);
    graph.add_output(e.labelled ? e.label : source_name(e.key), it->second);
  }
  return graph;
}

Result<RawData> Parser::data() {
  RawData out;
  in_.skip();
  out.at = in_.position();
  TESSERA_TRY(in_.expect('{'));
  if (in_.eat('?')) {
    out.kind = RawData::Missing;
    TESSERA_TRY(in_.expect('}'));
    return out;
  }
  if (in_.eat('#')) {
    out.kind = RawData::Hash;
    TESSERA_ASSIGN(out.text, in_.hex_digits());
    TESSERA_TRY(in_.expect('}'));
    return out;
  }
  if (in_.eat_word("hex")) {
    out.kind = RawData::Hex;
    TESSERA_ASSIGN(out.text, in_.string());
    TESSERA_TRY(in_.expect('}'));
    return out;
  }
  out.kind = RawData::List;
  TESSERA_TRY(list('}', [&]() -> Status {
    in_.skip();
    Position at = in_.position();
    if (in_.peek('"')) {
      TESSERA_ASSIGN(std::string s, in_.string());
      out.strings.push_back(std::move(s));
    } else {
      TESSERA_ASSIGN(std::string_view number, in_.number());
      out.elements.push_back({number, at});
    }
    return {};
  }));
  return out;
}

Result<Tensor> Parser::tensor(const RawType& raw, const RawData& data) {
  TESSERA_ASSIGN(TensorType type, resolve(raw));
  Dims dims;
  for (size_t d = 0; d < type.shape.size(); ++d) {
    auto value = type.shape[d].as_const();
    if (!value) return in_.error("a constant's dimensions must be numbers", raw.dims[d].at);
    dims.push_back(*value);
  }
  auto count = element_count(dims);
  if (!count.ok() || *count > kMaxWeight) return in_.error("the constant is too large: " + type.str(), raw.at);
  bool strings = type.dtype == DType::String;
  if (data.kind == RawData::Hash || data.kind == RawData::Missing) {
    if (strings) return in_.error("a tensor of strings needs its data", raw.at);
    if (*count == 0) return Tensor::create(type.dtype, dims);
    return Tensor::view(type.dtype, dims,
                        Storage{nullptr, nullptr, static_cast<size_t>(byte_size(type.dtype, *count))});
  }
  if (data.kind == RawData::Hex) {
    if (strings) return in_.error("a tensor of strings needs its strings", data.at);
    if (data.text.size() != 2 * static_cast<size_t>(byte_size(type.dtype, *count)))
      return in_.error("expected " + std::to_string(2 * byte_size(type.dtype, *count)) + " hexadecimal digits for " +
                           type.str() + ", found " + std::to_string(data.text.size()),
                       data.at);
    TESSERA_ASSIGN(Tensor out, Tensor::create(type.dtype, dims, true));
    for (size_t i = 0; i < out.bytes(); ++i) {
      int high = text::hex_value(data.text[2 * i]), low = text::hex_value(data.text[2 * i + 1]);
      if (high < 0 || low < 0) return in_.error("not a hexadecimal digit in the data", data.at);
      out.mutable_data()[i] = static_cast<std::byte>(high * 16 + low);
    }
    return out;
  }
  size_t given = data.elements.size() + data.strings.size();
  if (static_cast<int64_t>(given) != *count || (strings ? !data.elements.empty() : !data.strings.empty()))
    return in_.error("expected " + std::to_string(*count) + (strings ? " strings" : " numbers") + " for " + type.str() +
                         ", found " + std::to_string(strings ? data.strings.size() : data.elements.size()),
                     data.at);
  if (strings) return Tensor::strings(dims, data.strings);
  if (info(type.dtype).kind == DTypeKind::Complex) return in_.error("complex data is written as hex", data.at);
  TESSERA_ASSIGN(Tensor out, Tensor::create(type.dtype, dims, true));
  for (size_t i = 0; i < data.elements.size(); ++i) {
    const RawExpr& e = data.elements[i];
    if (is_float(type.dtype)) {
      auto v = text::parse_real(e.text);
      if (!v) return in_.error("'" + std::string(e.text) + "' is not a number", e.at);
      out.set_f64(static_cast<int64_t>(i), *v);
    } else {
      auto v = text::parse_integer(e.text, type.dtype);
      if (!v) return in_.error("'" + std::string(e.text) + "' is not of type " + std::string(name(type.dtype)), e.at);
      out.set_i64(static_cast<int64_t>(i), *v);
    }
  }
  return out;
}

Result<Attribute> Parser::attribute(AttrKind kind, const std::shared_ptr<ShapeEnv>& env, int depth) {
  in_.skip();
  Position at = in_.position();
  auto real = [&]() -> Result<double> {
    in_.skip();
    Position where = in_.position();
    TESSERA_ASSIGN(std::string_view number, in_.number());
    auto v = text::parse_real(number);
    if (!v) return in_.error("'" + std::string(number) + "' is not a number", where);
    return *v;
  };
  auto items = [&](auto& out, auto&& item) -> Status {
    TESSERA_TRY(in_.expect('['));
    return list(']', [&]() -> Status {
      TESSERA_ASSIGN(auto v, item());
      out.push_back(std::move(v));
      return {};
    });
  };
  switch (kind) {
  case AttrKind::Int: {
    TESSERA_ASSIGN(int64_t v, in_.integer());
    return Attribute(v);
  }
  case AttrKind::Float: {
    TESSERA_ASSIGN(double v, real());
    return Attribute(v);
  }
  case AttrKind::String: {
    TESSERA_ASSIGN(std::string v, in_.string());
    return Attribute(std::move(v));
  }
  case AttrKind::Ints: {
    Ints out;
    TESSERA_TRY(items(out, [&] { return in_.integer(); }));
    return Attribute(std::move(out));
  }
  case AttrKind::Floats: {
    std::vector<double> out;
    TESSERA_TRY(items(out, real));
    return Attribute(std::move(out));
  }
  case AttrKind::Strings: {
    std::vector<std::string> out;
    TESSERA_TRY(items(out, [&] { return in_.string(); }));
    return Attribute(std::move(out));
  }
  case AttrKind::Type: {
    TESSERA_ASSIGN(std::string name, in_.identifier("an element type"));
    auto dtype = dtype_from_name(name);
    if (!dtype) return in_.error("'" + name + "' is not an element type", at);
    return Attribute(*dtype);
  }
  case AttrKind::Dims: {
    SymShape out;
    TESSERA_TRY(items(out, [&]() -> Result<SymExpr> {
      TESSERA_ASSIGN(RawExpr e, raw_expr());
      return resolve(e);
    }));
    return Attribute(std::move(out));
  }
  case AttrKind::Tensor: {
    TESSERA_ASSIGN(RawType type, raw_type());
    TESSERA_ASSIGN(RawData raw, data());
    TESSERA_ASSIGN(Tensor out, tensor(type, raw));
    return Attribute(std::move(out));
  }
  case AttrKind::Graph: {
    TESSERA_ASSIGN(Graph out, graph(env, depth + 1));
    return Attribute(std::make_shared<Graph>(std::move(out)));
  }
  }
  TESSERA_UNREACHABLE("an attribute of no kind");
}

Status Parser::attributes(const OpDef& op, Attributes& out, const std::shared_ptr<ShapeEnv>& env, int depth) {
  while (!in_.peek(':')) {
    in_.skip();
    Position at = in_.position();
    TESSERA_ASSIGN(std::string attribute_name, in_.name("an attribute or ':' and the result's type"));
    const AttrDef* def = nullptr;
    for (const AttrDef& d : op.attributes)
      if (d.name == attribute_name) def = &d;
    if (def == nullptr)
      return in_.error("'" + std::string(op.name) + "' has no attribute '" + attribute_name + "'", at);
    if (out.has(attribute_name)) return in_.error("attribute '" + attribute_name + "' is given twice", at);
    TESSERA_TRY(in_.expect('='));
    TESSERA_ASSIGN(Attribute value, attribute(def->kind, env, depth));
    out.set(attribute_name, std::move(value));
  }
  return {};
}

// After the word constant or weight: {...}, #hash or nothing.
Status Parser::constant(Attributes& out, RawData& raw) {
  if (in_.peek('{')) {
    TESSERA_ASSIGN(raw, data());
  } else if (in_.eat('#')) {
    raw.kind = RawData::Hash;
    TESSERA_ASSIGN(raw.text, in_.hex_digits());
  }
  if (raw.kind == RawData::Hash) out.set("hash", raw.text);
  return {};
}

Status Parser::node(Graph& graph, Values& values, int depth) {
  struct ResultName {
    std::string key;
    bool left_out = false;
    Position at;
  };
  std::vector<ResultName> results;
  if (in_.peek('%') || in_.peek_word("_")) {
    do {
      ResultName r;
      in_.skip();
      r.at = in_.position();
      r.left_out = in_.eat_word("_");
      if (!r.left_out) {
        TESSERA_ASSIGN(r.key, value_name());
        if (values.count(r.key)) return in_.error("'" + shown(r.key) + "' is defined twice", r.at);
      }
      results.push_back(std::move(r));
    } while (in_.eat(','));
    TESSERA_TRY(in_.expect('='));
  }
  in_.skip();
  Position op_at = in_.position();
  TESSERA_ASSIGN(std::string op_name, in_.identifier("an operator"));
  bool literal = (op_name == "constant" || op_name == "weight") && !in_.peek('(') && !in_.peek('@');
  const OpDef* op = OpTable::get().find(literal ? "constant" : op_name);
  if (op == nullptr) {
    Diagnostic d = in_.error("there is no operator '" + op_name + "'", op_at);
    d.location.op = op_name; // for readers of texts that a library's operators may be in
    return d;
  }

  std::vector<ValueId> operands;
  Attributes attributes;
  RawData raw;
  int64_t opset = 0;
  if (literal) {
    TESSERA_TRY(constant(attributes, raw));
  } else {
    if (in_.eat('@')) {
      TESSERA_ASSIGN(opset, in_.integer());
      if (opset < 0 || opset > 100000) return in_.error("not an opset version", op_at);
    }
    TESSERA_TRY(in_.expect('('));
    TESSERA_TRY(list(')', [&]() -> Status {
      TESSERA_ASSIGN(ValueId v, operand(values));
      operands.push_back(v);
      return {};
    }));
    TESSERA_TRY(this->attributes(*op, attributes, graph.shared_env(), depth));
  }
  TESSERA_TRY(in_.expect(':'));
  std::vector<RawType> types;
  for (size_t i = 0; i < results.size(); ++i) {
    if (i > 0) TESSERA_TRY(in_.expect(','));
    RawType type;
    if (in_.eat_word("_"))
      type.left_out = true;
    else {
      TESSERA_ASSIGN(type, raw_type());
    }
    types.push_back(std::move(type));
  }
  Location location;
  TESSERA_ASSIGN(location.node, in_.trailing_comment());
  if (literal) {
    if (types.size() != 1 || types[0].left_out) return in_.error("a constant has one result", op_at);
    TESSERA_ASSIGN(Tensor value, tensor(types[0], raw));
    attributes.set("value", std::move(value));
  }

  size_t symbols_before = graph.env().symbols().size();
  std::vector<std::string> names;
  for (const ResultName& r : results) names.push_back(source_name(r.key));
  auto added = graph.add_node(*op, std::move(operands), std::move(attributes), location, std::move(names),
                              static_cast<int>(opset));
  if (!added.ok()) {
    Diagnostic d = std::move(added).take_error();
    if (d.location.node.empty()) d.location.op = op->name;
    d.location.file = in_.file();
    d.location.line = op_at.line;
    d.location.column = op_at.column;
    return d;
  }
  FreshSymbols fresh(graph.env(), symbols_before);
  for (size_t i = 0; i < results.size(); ++i) {
    ValueId v = graph.node(*added).results[i];
    if (results[i].left_out != types[i].left_out)
      return in_.error("result " + std::to_string(i) + " is left out on one side only", results[i].at);
    if (results[i].left_out) {
      graph.node(*added).results[i] = ValueId{};
      continue;
    }
    TESSERA_ASSIGN(TensorType type, resolve(types[i]));
    if (!types_match(graph.env(), type, graph.type(v), fresh))
      return in_.error("'" + shown(results[i].key) + "' is " + graph.type(v).str() + ", but " + type.str() +
                           " is written",
                       types[i].at);
    if (graph.node(*added).op->data_dependent_shape) {
      SymShape declared = type.shape;
      type.shape = graph.env().simplify(declared);
      if (declared != type.shape) graph.value(v).declared = std::move(declared);
    }
    graph.value(v).type = std::move(type);
    values.emplace(results[i].key, v);
  }
  return {};
}

} // namespace

Result<Graph> parse_graph(std::string_view text, const std::string& file) {
  Lexer lexer(text, file);
  return Parser(lexer).file();
}

} // namespace tessera
