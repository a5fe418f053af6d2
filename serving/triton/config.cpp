#include "serving/triton/config.h"
#include <algorithm>
#include <charconv>
#include <set>

namespace tessera::triton {

namespace {

constexpr ElementType kTypes[] = {
    {1, 11, "TYPE_FP32", 4},   {2, 2, "TYPE_UINT8", 1},  {3, 6, "TYPE_INT8", 1},   {4, 3, "TYPE_UINT16", 2},
    {5, 7, "TYPE_INT16", 2},   {6, 8, "TYPE_INT32", 4},  {7, 9, "TYPE_INT64", 8},  {8, 13, "TYPE_STRING", 0},
    {9, 1, "TYPE_BOOL", 1},    {10, 10, "TYPE_FP16", 2}, {11, 12, "TYPE_FP64", 8}, {12, 4, "TYPE_UINT32", 4},
    {13, 5, "TYPE_UINT64", 8}, {16, 14, "TYPE_BF16", 2},
};

std::string quoted(const std::string& name) { return "'" + name + "'"; }

std::optional<int64_t> number(const std::string& text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Names that occur in the expression of a size.
std::set<std::string> words(const std::string& expression) {
  std::set<std::string> out;
  std::string word;
  for (char c : expression + " ") {
    const bool part =
        c == '_' || c == '.' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (part) {
      word += c;
    } else if (!word.empty()) {
      out.insert(std::exchange(word, {}));
    }
  }
  return out;
}

// Value: of an input or output. Body: (const Value&, what it is) -> optional<Refusal>, the first of which ends it.
template <class Body>
std::optional<Refusal> each_value(const Interface& model, const Body& body) {
  for (const Value& v : model.inputs)
    if (auto refused = body(v, "input " + quoted(v.name))) return refused;
  for (const Value& v : model.outputs)
    if (auto refused = body(v, "output " + quoted(v.name))) return refused;
  return std::nullopt;
}

std::optional<Refusal> check_types(const Interface& model) {
  if (model.outputs.empty()) return Refusal{"the model has no outputs", "Triton serves models with one at least"};
  return each_value(model, [](const Value& v, const std::string& what) -> std::optional<Refusal> {
    if (v.any_rank)
      return Refusal{what + " has no shape in the model, and Triton wants to know how many dimensions there are",
                     "give the value a shape in the model"};
    if (v.onnx < 0)
      return Refusal{what + " is a list, an optional or a map; Triton has tensors alone",
                     "serve it from Python: tessera.load, tessera.serve"};
    if (!element_type(v.onnx))
      return Refusal{what + " has the element type " + std::to_string(v.onnx) +
                         " (TensorProto.DataType), which Triton does not have",
                     "cast it in the model"};
    return std::nullopt;
  });
}

// `batched`: without dimension 0. A tensor without dimensions has one of size 1 for clients; where a batch dimension
// remains, the server removes it, and without one the backend does.
Json describe(const Value& v, bool batched) {
  Json dims = Json::array();
  for (size_t d = batched ? 1 : 0; d < v.dims.size(); ++d) dims.push_back(number(v.dims[d]).value_or(-1));
  Json out{{"name", v.name}, {"data_type", element_type(v.onnx)->config}, {"dims", dims}};
  if (dims.empty()) {
    out["dims"] = {1};
    if (batched) out["reshape"] = {{"shape", Json::array()}};
  }
  return out;
}

Json describe(const std::vector<Value>& values, bool batched) {
  Json out = Json::array();
  for (const Value& v : values) out.push_back(describe(v, batched));
  return out;
}

bool has_values(const Json& config, const char* key) { return config.contains(key) && !config[key].empty(); }
int64_t max_batch_size(const Json& config) { return config.value("max_batch_size", int64_t{0}); }

Json instance_group(int instances, const std::string& device) {
  Json group{{"count", instances}};
  if (device == "cpu") group["kind"] = "KIND_CPU";
  if (device.starts_with("cuda")) {
    group["kind"] = "KIND_GPU";
    if (device.starts_with("cuda:")) group["gpus"] = {number(device.substr(5)).value_or(0)};
  }
  return Json::array({group});
}

std::optional<Refusal> check_side(const Json& config, const char* side, const std::vector<Value>& values,
                                  bool batched) {
  std::set<std::string> seen;
  const std::string kind = side;
  for (const Json& given : config.value(side, Json::array())) {
    const auto name = given.value("name", std::string());
    auto it = std::find_if(values.begin(), values.end(), [&](const Value& v) { return v.name == name; });
    if (it == values.end()) {
      std::string names;
      for (const Value& v : values) names += (names.empty() ? "" : ", ") + quoted(v.name);
      return Refusal{"the configuration has the " + kind + " " + quoted(name) + ", which the model does not have",
                     "its " + kind + "s are " + names};
    }
    seen.insert(name);
    const std::string what = kind + " " + quoted(name);
    const std::string type = given.value("data_type", std::string());
    if (type != element_type(it->onnx)->config)
      return Refusal{what + " is " + type + " in the configuration, and " + element_type(it->onnx)->config +
                         " in the model",
                     "correct data_type"};
    const Json shape =
        given.contains("reshape") ? given["reshape"].value("shape", Json::array()) : given.value("dims", Json::array());
    const size_t rank = shape.size() + (batched ? 1 : 0);
    const bool scalar = it->dims.empty() && shape == Json::array({1});
    if (rank != it->dims.size() && !scalar)
      return Refusal{what + " has " + std::to_string(rank) + " dimensions in the configuration" +
                         (batched ? ", that of the batch included" : "") + ", and " + std::to_string(it->dims.size()) +
                         " in the model",
                     "correct dims, or max_batch_size"};
  }
  for (const Value& v : values)
    if (kind == "input" && !seen.contains(v.name))
      return Refusal{"the configuration lacks the " + kind + " " + quoted(v.name), "add it"};
  return std::nullopt;
}

// ---- text of protobuf
std::string text_of(const Json& value, const std::string& key) {
  // Numbers of an enumeration are written by name, without quotes; other strings as JSON's, whose escapes are C's but
  // for those above ASCII, which are written as they are.
  if (value.is_string() && (key == "data_type" || key == "kind")) return value.get<std::string>();
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void print(const Json& object, const std::string& indent, std::string& out) {
  auto message = [&](const std::string& key, const Json& fields) {
    out += indent + key + " {\n";
    print(fields, indent + "  ", out);
    out += indent + "}\n";
  };
  for (const auto& [key, value] : object.items()) {
    if (key == "parameters") { // a map
      for (const auto& [name, one] : value.items()) message(key, Json{{"key", name}, {"value", one}});
    } else if (value.is_object()) {
      message(key, value);
    } else if (value.is_array() && !value.empty() && value.front().is_object()) {
      for (const Json& one : value) message(key, one);
    } else if (value.is_array()) {
      std::string all;
      for (const Json& one : value) all += (all.empty() ? "" : ", ") + text_of(one, key);
      out += indent + key + ": [" + all + "]\n";
    } else {
      out += indent + key + ": " + text_of(value, key) + "\n";
    }
  }
}

} // namespace

const ElementType* element_type(int onnx) {
  const auto* it = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.onnx == onnx; });
  return it == std::end(kTypes) ? nullptr : it;
}

std::variant<std::string, Refusal> batch_symbol(const Interface& model) {
  const std::string hint = "a batch dimension is dimension 0 of every input and output, of one size that is free";
  std::string symbol;
  auto refused = each_value(model, [&](const Value& v, const std::string& what) -> std::optional<Refusal> {
    if (v.dims.empty()) return Refusal{what + " has no dimensions", hint};
    const std::string& first = v.dims.front();
    if (number(first)) return Refusal{"dimension 0 of " + what + " is " + first + ", a fixed size", hint};
    if (symbol.empty()) symbol = first;
    if (first != symbol)
      return Refusal{"dimension 0 of " + what + " is '" + first + "', that of other values is '" + symbol + "'", hint};
    for (size_t d = 1; d < v.dims.size(); ++d)
      if (words(v.dims[d]).contains(symbol))
        return Refusal{"dimension " + std::to_string(d) + " of " + what + " is '" + v.dims[d] +
                           "', which depends on dimension 0",
                       hint};
    return std::nullopt;
  });
  if (refused) return *refused;
  if (model.inputs.empty()) return Refusal{"the model has no inputs", hint};
  if (words(symbol) != std::set{symbol})
    return Refusal{"dimension 0 of its values is the expression '" + symbol + "'", hint};
  return symbol;
}

std::variant<Json, Refusal> make_config(const Interface& model, const ConfigOptions& options) {
  if (auto refused = check_types(model)) return *refused;
  const auto symbol = batch_symbol(model);
  int max_batch = options.max_batch.value_or(kMaxBatch);
  if (const auto* refused = std::get_if<Refusal>(&symbol)) {
    if (options.max_batch.value_or(0) > 0)
      return Refusal{"the model has no batch dimension: " + refused->message, refused->hint + "; --max-batch 0 serves "
                                                                                              "each request by itself"};
    max_batch = 0;
  }
  Json config{{"name", options.name},
              {"backend", "tessera"},
              {"max_batch_size", max_batch},
              {"input", describe(model.inputs, max_batch > 0)},
              {"output", describe(model.outputs, max_batch > 0)},
              {"instance_group", instance_group(options.instances, options.device)}};
  if (max_batch > 0) config["dynamic_batching"] = Json::object();
  Json parameters = Json::object();
  for (const auto& [key, value] : options.parameters) parameters[key] = {{"string_value", value}};
  if (!parameters.empty()) config["parameters"] = parameters;
  return config;
}

std::variant<Json, Refusal> complete_config(Json config, const Interface& model) {
  if (auto refused = check_types(model)) return *refused;
  const bool none = !has_values(config, "input") && !has_values(config, "output");
  if (none && max_batch_size(config) == 0 && std::holds_alternative<std::string>(batch_symbol(model))) {
    config["max_batch_size"] = kMaxBatch;
    if (!has_values(config, "sequence_batching")) config["dynamic_batching"] = Json::object();
  }
  const bool batched = max_batch_size(config) > 0;
  if (batched) {
    const auto symbol = batch_symbol(model);
    if (const auto* refused = std::get_if<Refusal>(&symbol))
      return Refusal{"max_batch_size is " + std::to_string(max_batch_size(config)) +
                         ", and the model has no batch dimension: " + refused->message,
                     "set max_batch_size to 0"};
  }
  if (!has_values(config, "input")) config["input"] = describe(model.inputs, batched);
  if (!has_values(config, "output")) config["output"] = describe(model.outputs, batched);
  return config;
}

std::optional<Refusal> check_config(const Json& config, const Interface& model) {
  if (auto refused = check_types(model)) return refused;
  const bool batched = max_batch_size(config) > 0;
  if (auto refused = check_side(config, "input", model.inputs, batched)) return refused;
  return check_side(config, "output", model.outputs, batched);
}

std::string config_text(const Json& config) {
  std::string out;
  print(config, "", out);
  return out;
}

} // namespace tessera::triton
