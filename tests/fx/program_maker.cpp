#include "program_maker.h"
#include "archive_maker.h"
#include "frontend/fx/program.h"
#include "graph/ir/text.h"
#include "graph/reference/evaluator.h"
#include <gtest/gtest.h>

namespace tessera::fx_test {
namespace {

// Numbers of the schema, by our names.
constexpr std::pair<std::string_view, int> kTypes[] = {
    {"u8", 1},  {"i8", 2},   {"i16", 3},   {"i32", 4},   {"i64", 5},       {"f16", 6},       {"f32", 7},
    {"f64", 8}, {"c64", 10}, {"bool", 12}, {"bf16", 13}, {"complex32", 9}, {"f8e4m3fn", 29}, {"f8e5m2", 30},
};
std::optional<int> type_number(std::string_view name) {
  for (const auto& [known, number] : kTypes)
    if (known == name) return number;
  return {};
}

class Maker {
public:
  ProgramSource make(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      rest_ = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      skip();
      if (!rest_.empty()) statement();
    }
    const Json program = {{"graph_module",
                           {{"graph",
                             {{"inputs", graph_inputs_},
                              {"outputs", graph_outputs_},
                              {"nodes", nodes_},
                              {"tensor_values", tensors_},
                              {"sym_int_values", sizes_},
                              {"is_single_tensor_return", false}}},
                            {"signature", {{"input_specs", input_specs_}, {"output_specs", output_specs_}}}}},
                          {"opset_version", {{"aten", 10}}},
                          {"range_constraints", ranges_},
                          {"schema_version", {{"major", 8}, {"minor", 20}}}};
    source_.name = "program";
    source_.json = program.dump();
    return std::move(source_);
  }

private:
  // ---- text
  void skip() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
  }
  bool take(std::string_view what) {
    skip();
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(what.size());
    return true;
  }
  void expect(std::string_view what) {
    TESSERA_CHECK(take(what), "'" + std::string(what) + "' is expected before '" + std::string(rest_) + "'");
  }
  std::string word() {
    skip();
    size_t n = 0;
    while (n < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[n])) != 0 || rest_[n] == '_' || rest_[n] == '.'))
      ++n;
    std::string out(rest_.substr(0, n));
    TESSERA_CHECK(n > 0, "a name is expected before '" + std::string(rest_) + "'");
    rest_.remove_prefix(n);
    return out;
  }
  bool take_word(std::string_view what) {
    skip();
    const auto after = rest_.size() > what.size() ? rest_[what.size()] : ' ';
    return !(std::isalnum(static_cast<unsigned char>(after)) != 0 || after == '_' || after == '.') && take(what);
  }
  template <class Read>
  Json list(Read&& read) {
    Json out = Json::array();
    expect("[");
    if (take("]")) return out;
    do out.push_back(read());
    while (take(","));
    expect("]");
    return out;
  }

  // ---- sizes, as sympy's srepr
  std::string atom() {
    if (take("(")) {
      std::string inside = sum();
      expect(")");
      return inside;
    }
    const bool negative = take("-");
    const std::string w = word();
    if (std::isdigit(static_cast<unsigned char>(w[0])) != 0)
      return "Integer(" + std::string(negative ? "-" : "") + w + ")";
    return "Symbol('" + w + "', positive=True, integer=True)";
  }
  std::string term() {
    std::string out = atom();
    for (;;) {
      const char* f = take("//") ? "FloorDiv" : take("*") ? "Mul" : take("%") ? "Mod" : nullptr;
      if (f == nullptr) return out;
      out = f + ("(" + out + ", ") + atom() + ")";
    }
  }
  std::string sum() {
    std::string out = term();
    while (take("+")) out = "Add(" + out + ", " + term() + ")";
    return out;
  }
  static Json as_size(const std::string& expression) {
    constexpr std::string_view integer = "Integer(";
    if (expression.starts_with(integer)) return {{"as_int", std::stoll(expression.substr(integer.size()))}};
    return {{"as_expr", {{"expr_str", expression}, {"hint", nullptr}}}};
  }
  Json size() { return as_size(sum()); }

  // ---- tensors
  Json meta() {
    const std::string type = word();
    const auto number = type_number(type);
    TESSERA_CHECK(number, "unknown element type " + type);
    std::vector<std::string> extents;
    Json sizes = list([&] {
      extents.push_back(sum());
      return as_size(extents.back());
    });
    Json strides = Json::array();
    std::string stride = "Integer(1)";
    for (size_t k = extents.size(); k-- > 0;) {
      strides.insert(strides.begin(), as_size(stride));
      constexpr std::string_view one = "Integer(1)";
      if (auto a = constant(stride), b = constant(extents[k]); a && b)
        stride = "Integer(" + std::to_string(*a * *b) + ")";
      else
        stride = stride == one ? extents[k] : "Mul(" + stride + ", " + extents[k] + ")";
    }
    Json offset = {{"as_int", 0}};
    if (take_word("strides")) strides = list([&] { return size(); });
    if (take_word("offset")) offset = size();
    return {{"dtype", *number},   {"sizes", sizes},           {"requires_grad", false},
            {"strides", strides}, {"storage_offset", offset}, {"device", {{"type", "cpu"}, {"index", nullptr}}},
            {"layout", 7}};
  }
  static std::optional<int64_t> constant(const std::string& expression) {
    const Json s = as_size(expression);
    if (!s.contains("as_int")) return {};
    return s["as_int"].get<int64_t>();
  }
  static Json tensor(const std::string& name) { return {{"as_tensor", {{"name", name}}}}; }
  static Json named(const std::string& name) { return {{"as_sym_int", {{"as_name", name}}}}; }
  Json value_of(const std::string& name) { return sizes_.contains(name) ? named(name) : tensor(name); }

  Json argument() {
    skip();
    if (rest_.starts_with("[")) {
      std::vector<Json> items;
      const Json all = list([&] { return argument(); });
      // One kind stands for the whole list, as in the schema.
      auto any = [&](const char* key) {
        return std::any_of(all.begin(), all.end(), [&](const Json& i) { return i.contains(key); });
      };
      const char* kind = any("as_none")      ? "as_optional_tensors"
                         : any("as_tensor")  ? "as_tensors"
                         : any("as_sym_int") ? "as_sym_ints"
                         : any("as_float")   ? "as_floats"
                         : any("as_bool")    ? "as_bools"
                                             : "as_ints";
      Json out = Json::array();
      for (const Json& i : all)
        out.push_back(any("as_none") || (any("as_sym_int") && i.contains("as_int")) ? i : i.begin().value());
      return {{kind, out}};
    }
    if (take("\"")) {
      const size_t end = rest_.find('"');
      std::string text(rest_.substr(0, end));
      rest_.remove_prefix(end + 1);
      return {{"as_string", text}};
    }
    const bool negative = take("-");
    std::string w = word();
    if (std::isdigit(static_cast<unsigned char>(w[0])) != 0 || w == "inf") {
      if (negative) w.insert(0, "-");
      if (w.ends_with("inf")) return {{"as_float", negative ? "-Infinity" : "Infinity"}};
      if (w.find('.') != std::string::npos) return {{"as_float", std::stod(w)}};
      return {{"as_int", std::stoll(w)}};
    }
    if (w == "None") return {{"as_none", true}};
    if (w == "True" || w == "False") return {{"as_bool", w == "True"}};
    if (auto number = type_number(w)) return {{"as_scalar_type", *number}};
    return value_of(w);
  }

  // ---- statements
  void statement() {
    if (take_word("return")) return returns();
    if (take_word("mutates")) return mutates();
    for (std::string_view kind : {"input", "weight", "buffer"})
      if (take_word(kind)) return declare(kind);
    const std::string_view line = rest_;
    const std::string name = word();
    skip();
    if (rest_.empty() || take_word("in")) return symbol(name);
    rest_ = line;
    call();
  }

  void symbol(const std::string& name) {
    if (rest_.empty()) return;
    const Json range = list([&] { return take("?") ? Json() : Json(std::stoll(word())); });
    ranges_[name] = {{"min_val", range[0]}, {"max_val", range[1]}};
  }

  void declare(std::string_view kind) {
    const std::string name = word();
    if (kind == "input" && take("=")) {
      sizes_[name] = size();
      graph_inputs_.push_back(named(name));
      input_specs_.push_back({{"user_input", {{"arg", named(name)}}}});
      return;
    }
    expect(":");
    tensors_[name] = meta();
    graph_inputs_.push_back(tensor(name));
    const Json arg = {{"name", name}};
    if (kind == "input") {
      input_specs_.push_back({{"user_input", {{"arg", tensor(name)}}}});
      return;
    }
    if (kind == "weight")
      input_specs_.push_back({{"parameter", {{"arg", arg}, {"parameter_name", name}}}});
    else
      input_specs_.push_back({{"buffer", {{"arg", arg}, {"buffer_name", name}, {"persistent", true}}}});
    Dims dims;
    for (const Json& s : tensors_[name]["sizes"]) dims.push_back(s["as_int"].get<int64_t>());
    source_.weights[name] = range(std::move(dims), -1, *fx::dtype_of_schema(tensors_[name]["dtype"].get<int64_t>()));
  }

  void call() {
    Json outputs = Json::array();
    std::string size_name;
    do {
      const std::string name = word();
      if (take(":")) {
        tensors_[name] = meta();
        outputs.push_back(tensor(name));
      } else {
        size_name = name;
        outputs.push_back(named(name));
      }
    } while (take(","));
    expect("=");
    std::string target = word();
    if (!target.starts_with("_operator."))
      target = "torch.ops." + (target.starts_with("my.") ? target : "aten." + target);
    Json inputs = Json::array();
    expect("(");
    if (!take(")")) {
      do {
        const std::string name = word();
        expect("=");
        inputs.push_back({{"name", name}, {"arg", argument()}, {"kind", 1}});
      } while (take(","));
      expect(")");
    }
    if (!size_name.empty()) {
      expect(":");
      sizes_[size_name] = size();
    }
    nodes_.push_back(
        {{"target", target},
         {"inputs", inputs},
         {"outputs", outputs},
         {"metadata",
          {{"stack_trace", "File \"/home/me/net.py\", line " + std::to_string(nodes_.size() + 10) + ", in forward\n"},
           {"nn_module_stack", "L__self__,,m.Net;L__self___body,body.0,torch.nn.Linear"}}}});
  }

  void returns() {
    do {
      const Json value = argument();
      graph_outputs_.push_back(value);
      output_specs_.push_back({{"user_output", {{"arg", value}}}});
    } while (take(","));
  }

  void mutates() {
    const std::string target = word();
    expect("=");
    const std::string value = word();
    const bool buffer = source_.weights.contains(target);
    graph_outputs_.push_back(tensor(value));
    output_specs_.push_back({{buffer ? "buffer_mutation" : "user_input_mutation",
                              {{"arg", {{"name", value}}}, {buffer ? "buffer_name" : "user_input_name", target}}}});
  }

  std::string_view rest_;
  ProgramSource source_;
  Json graph_inputs_ = Json::array(), graph_outputs_ = Json::array(), nodes_ = Json::array(),
       input_specs_ = Json::array(), output_specs_ = Json::array();
  Json tensors_ = Json::object(), sizes_ = Json::object(), ranges_ = Json::object();
};

} // namespace

ProgramSource program(std::string_view text) { return Maker().make(text); }

std::string archive(const ProgramSource& source) {
  std::vector<Entry> entries;
  Json config = Json::object();
  const Json program = Json::parse(source.json);
  for (const auto& [name, tensor] : source.weights) {
    const std::string file = "weight_" + std::to_string(entries.size());
    entries.push_back({"model/data/weights/" + file, {reinterpret_cast<const char*>(tensor.data()), tensor.bytes()}});
    config[name] = {{"path_name", file},
                    {"is_param", true},
                    {"use_pickle", false},
                    {"tensor_meta", program["graph_module"]["graph"]["tensor_values"][name]}};
  }
  const std::vector<Entry> rest = {{"model/data/weights/model_weights_config.json", Json{{"config", config}}.dump()},
                                   {"model/data/constants/model_constants_config.json", R"({"config": {}})"},
                                   {"model/models/model.json", source.json},
                                   {"model/archive_format", "pt2"},
                                   {"model/archive_version", "0"},
                                   {"model/byteorder", "little"}};
  entries.insert(entries.end(), rest.begin(), rest.end());
  return pack(entries).bytes;
}

Graph imported(std::string_view text) {
  auto model = fx::import_program(program(text));
  EXPECT_TRUE(model.ok()) << text << "\n" << model.error().str();
  if (!model.ok()) return Graph();
  auto status = verify(model->graph);
  EXPECT_TRUE(status.ok()) << status.error().str();
  return std::move(model->graph);
}

std::string show(const Tensor& t) {
  SymShape shape(t.dims().begin(), t.dims().end());
  return TensorType{t.dtype(), shape}.str() + text::literal(t, t.count());
}

std::string results(std::string_view text, const std::map<std::string, Tensor>& inputs) {
  auto model = fx::import_program(program(text));
  if (!model.ok()) return model.error().str();
  std::map<std::string, Tensor> given = inputs;
  const auto& all = model->graph.inputs();
  for (size_t s = 0; s < model->states.size(); ++s)
    given.emplace(model->graph.value(all[all.size() - model->states.size() + s]).name, model->states[s].first);
  auto out = evaluate_graph(model->graph, given);
  if (!out.ok()) return out.error().str();
  std::string shown;
  for (size_t i = 0; i < out->size(); ++i)
    shown += (i > 0 ? " " : "") + model->graph.outputs()[i].name + "=" + show((*out)[i]);
  return shown;
}

Tensor range(Dims dims, double first, DType dtype) {
  Tensor t = Tensor::create(dtype, std::move(dims)).value();
  for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, first + static_cast<double>(i));
  return t;
}

} // namespace tessera::fx_test
