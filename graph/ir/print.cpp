#include "base/hash.h"
#include "graph/ir/operator.h"
#include "graph/ir/text.h"
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <unordered_set>

namespace tessera::text {

bool is_identifier(std::string_view s) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (s.empty() || !letter(s[0])) return false;
  for (char c : s)
    if (!letter(c) && !(c >= '0' && c <= '9') && c != '.') return false;
  return s != "_"; // stands for what is left out
}

std::string identifier_or_quoted(std::string_view s) { return is_identifier(s) ? std::string(s) : quote(s); }

std::string real(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, v).ptr;
  std::string out(buffer, end);
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
}

std::string type(const TensorType& t) { return t.str(); }

std::string literal(const Tensor& t, int64_t limit) {
  if (!has_data(t) || t.count() > limit) return "";
  DTypeKind kind = info(t.dtype()).kind;
  if (kind == DTypeKind::Complex) return "";
  std::string out = "{";
  // Without memory there is no text: another form of it would be the text of another graph.
  Tensor again = kind == DTypeKind::Held ? Tensor() : Tensor::create(t.dtype(), t.dims(), true).value();
  for (int64_t i = 0; i < t.count(); ++i) {
    if (i > 0) out += ", ";
    switch (kind) {
    case DTypeKind::Held: out += quote(t.string_values()[static_cast<size_t>(i)]); break;
    case DTypeKind::Float: {
      double v = t.get_f64(i);
      again.set_f64(i, std::isnan(v) ? std::numeric_limits<double>::quiet_NaN() : v); // what the parser makes of nan
      if (t.dtype() == DType::F32 && std::isfinite(v)) { // fewer digits: the shortest that give this f32
        char buffer[40];
        out += real(std::strtod(
            std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(v)).ptr).c_str(),
            nullptr));
      } else {
        out += real(v);
      }
      break;
    }
    case DTypeKind::Bool:
      again.set_i64(i, t.get_i64(i));
      out += t.get_i64(i) ? "true" : "false";
      break;
    default:
      again.set_i64(i, t.get_i64(i));
      out +=
          t.dtype() == DType::U64 ? std::to_string(static_cast<uint64_t>(t.get_i64(i))) : std::to_string(t.get_i64(i));
    }
  }
  // NaNs with a payload, bools that are neither 0 nor 1: only hexadecimal digits keep them.
  if (kind != DTypeKind::Held && t.bytes() > 0 && std::memcmp(again.data(), t.data(), t.bytes()) != 0) return "";
  return out + "}";
}

std::string hex(const Tensor& t) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(t.bytes() * 2);
  for (size_t i = 0; i < t.bytes(); ++i) {
    auto byte = static_cast<unsigned>(t.data()[i]);
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string content_hash(const Tensor& t) {
  if (t.dtype() != DType::String) return hash128(t.data(), t.bytes()).hex();
  std::string all;
  for (const std::string& s : t.string_values()) all += quote(s);
  return hash128(all).hex();
}

namespace {

template <class T, class F>
std::string list(const std::vector<T>& items, F&& item) {
  std::string out = "[";
  for (size_t i = 0; i < items.size(); ++i) out += (i ? ", " : "") + std::string(item(items[i]));
  return out + "]";
}

std::string tensor_type(const Tensor& t) {
  return std::string(name(t.dtype())) + list(t.dims(), [](int64_t d) { return std::to_string(d); });
}

// {1, 2}, {hex "00ff"}, {#hash}; {?} where the data is not there.
std::string tensor_data(const Tensor& t, bool with_data) {
  if (!has_data(t)) return "{?}";
  bool strings = t.dtype() == DType::String; // always in full: they have no bytes to stand for them
  if (std::string out = literal(t, strings ? t.count() : kLiteralElements); !out.empty()) return out;
  if (with_data || t.count() <= kLiteralElements) return "{hex " + quote(hex(t)) + "}";
  return "{#" + content_hash(t) + "}";
}

class Printer {
public:
  Printer(const Graph& graph, bool with_data, int indent) : graph_(graph), with_data_(with_data), indent_(indent) {}

  std::string run(bool with_symbols) {
    order_ = graph_.order();
    std::string out = "graph @" + identifier_or_quoted(graph_.name()) + "(";
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      ValueId v = graph_.inputs()[i];
      out += (i ? ", " : "") + ref(v) + ": " + declared_type(v);
    }
    out += ") -> (";
    // Unnamed values are numbered as they come up in the body, so the body is printed first.
    std::string body;
    for (NodeId id : order_) print_node(graph_.node(id), body);
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const Graph::Output& o = graph_.outputs()[i];
      out += i ? ", " : "";
      if (graph_.value(o.value).name != o.name) out += quote(o.name) + " = ";
      out += ref(o.value) + ": " + type(graph_.type(o.value));
    }
    out += ")";
    if (with_symbols) out += symbols();
    return out + " {\n" + body + std::string(static_cast<size_t>(indent_), ' ') + "}";
  }

private:
  std::string ref(ValueId v) {
    if (!v.valid()) return "_";
    const std::string& name = graph_.value(v).name;
    if (!name.empty()) return "%" + identifier_or_quoted(name);
    auto [it, fresh] = numbers_.try_emplace(v, numbers_.size());
    return "%" + std::to_string(it->second);
  }

  std::string declared_type(ValueId v) {
    TensorType declared = graph_.type(v);
    declared.shape = graph_.declared_shape(v);
    return type(declared);
  }

  void print_node(const Node& n, std::string& out) {
    out.append(static_cast<size_t>(indent_) + 2, ' ');
    for (size_t i = 0; i < n.results.size(); ++i) out += (i ? ", " : "") + ref(n.results[i]);
    out += n.results.empty() ? "" : " = ";
    const Tensor* constant = nullptr;
    if (n.op->structured() && n.op->structured()->kind == Structured::Constant)
      constant = n.attributes.get<Tensor>("value");
    if (constant != nullptr) {
      out += print_constant(n, *constant);
    } else {
      out += n.op->name;
      if (n.opset != 0) out += "@" + std::to_string(n.opset);
      out += "(";
      for (size_t i = 0; i < n.operands.size(); ++i) out += (i ? ", " : "") + ref(n.operands[i]);
      out += ")";
      for (const auto& [name, value] : n.attributes.items())
        out += " " + identifier_or_quoted(name) + "=" + attribute_text(value);
    }
    out += " : ";
    for (size_t i = 0; i < n.results.size(); ++i)
      out += (i ? ", " : "") + (n.results[i].valid() ? declared_type(n.results[i]) : "_");
    if (!n.location.node.empty()) out += "   // " + identifier_or_quoted(n.location.node);
    out += "\n";
  }

  std::string print_constant(const Node& n, const Tensor& t) {
    if (!has_data(t)) {
      std::string hash = n.attributes.s("hash");
      return "weight" + (hash.empty() ? "" : " #" + hash);
    }
    std::string data = tensor_data(t, with_data_);
    if (data.starts_with("{#")) return "weight " + data.substr(1, data.size() - 2);
    return (t.count() > kLiteralElements ? "weight " : "constant ") + data;
  }

  void collect(const std::vector<SymExpr>& exprs, std::unordered_set<uint64_t>& used) {
    for (const SymExpr& e : exprs) {
      if (e.is_const() || !seen_.insert(e).second) continue;
      for (const SymExpr& s : e.symbols()) used.insert(s.symbol_id());
    }
  }
  // A subgraph with an environment of its own says what that knows.
  [[nodiscard]] std::string attribute_text(const Attribute& value) const {
    const auto* sub = std::get_if<std::shared_ptr<Graph>>(&value);
    if (sub && &(*sub)->env() != &graph_.env()) return graph(**sub, with_data_, indent_ + 2, true);
    return attribute(value, with_data_, indent_ + 2);
  }
  void collect(const Graph& g, std::unordered_set<uint64_t>& used) {
    for (ValueId v : g.inputs()) collect(g.declared_shape(v), used);
    for (int32_t i = 0; i < g.node_count(); ++i) {
      const Node& n = g.node(NodeId{i});
      if (n.removed) continue;
      for (ValueId v : n.results)
        if (v.valid()) collect(g.declared_shape(v), used);
      for (const auto& [name, value] : n.attributes.items()) {
        if (auto* dims = std::get_if<SymShape>(&value))
          collect(*dims, used);
        else if (auto* sub = std::get_if<std::shared_ptr<Graph>>(&value))
          collect(**sub, used);
      }
    }
  }

  // Every symbol that the graph speaks of, with its facts, then the guards in the order in which they were made.
  std::string symbols() {
    const ShapeEnv& env = graph_.env();
    std::unordered_set<uint64_t> used;
    collect(graph_, used);
    for (const Guard& g : env.guards()) collect({g.condition}, used);
    std::string out;
    auto clause = [&](const std::string& text) { out += (out.empty() ? " where " : ", ") + text; };
    for (const SymExpr& s : env.symbols()) {
      if (!used.count(s.symbol_id())) continue;
      SymRange range = env.range(s);
      std::string text = s.str() + " in [" + std::to_string(range.lo) + ", " +
                         (range.hi >= kSymMax ? "?" : std::to_string(range.hi)) + "]";
      if (int64_t divisor = env.divisor(s); divisor > 1) text += " div " + std::to_string(divisor);
      if (auto hint = env.hint(s)) text += " hint " + std::to_string(*hint);
      clause(text);
    }
    for (const Guard& g : env.guards()) {
      std::string text = (g.cls == GuardClass::Required ? "require " : "assume ") + g.condition.str();
      if (!g.reason.empty()) text += " " + quote(g.reason);
      clause(text);
    }
    return out;
  }

  const Graph& graph_;
  bool with_data_;
  int indent_;
  std::vector<NodeId> order_;
  std::unordered_map<ValueId, size_t> numbers_;
  std::unordered_set<SymExpr> seen_;
};

} // namespace

std::string attribute(const Attribute& a, bool with_data, int indent) {
  struct Visitor {
    bool with_data;
    int indent;
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return real(v); }
    std::string operator()(const std::string& v) const { return quote(v); }
    std::string operator()(const Ints& v) const {
      return list(v, [](int64_t i) { return std::to_string(i); });
    }
    std::string operator()(const std::vector<double>& v) const { return list(v, real); }
    std::string operator()(const std::vector<std::string>& v) const {
      return list(v, [](const std::string& s) { return quote(s); });
    }
    std::string operator()(DType v) const { return std::string(name(v)); }
    std::string operator()(const SymShape& v) const {
      return list(v, [](const SymExpr& e) { return e.str(); });
    }
    std::string operator()(const Tensor& v) const { return tensor_type(v) + tensor_data(v, with_data); }
    std::string operator()(const std::shared_ptr<Graph>& v) const { return graph(*v, with_data, indent, false); }
  };
  return std::visit(Visitor{with_data, indent}, a);
}

std::string graph(const Graph& g, bool with_data, int indent, bool with_symbols) {
  return Printer(g, with_data, indent).run(with_symbols);
}

} // namespace tessera::text

namespace tessera {

std::string print(const Graph& graph, bool with_data) { return text::graph(graph, with_data, 0, true) + "\n"; }

} // namespace tessera
