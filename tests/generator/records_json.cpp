#include "records_json.h"
#include "graph/ops/record.h"
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tessera::generator {
namespace {

using Json = nlohmann::json;

// {"type": TensorProto.DataType, "dims": [...], "data": hexadecimal digits of the storage}, or null where it is left
// out. Strings are a list.
Json json_of(const Tensor& t) {
  if (!t.defined()) return nullptr;
  Json out = {{"type", info(t.dtype()).onnx}, {"dims", t.dims()}};
  if (t.dtype() == DType::String) {
    out["strings"] = t.string_values();
    return out;
  }
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (size_t i = 0; i < t.bytes(); ++i) {
    auto byte = std::to_integer<unsigned>(t.data()[i]);
    digits += kDigits[byte >> 4];
    digits += kDigits[byte & 15];
  }
  out["data"] = std::move(digits);
  return out;
}

// JSON has no numbers for what is not finite: "nan", "inf", "-inf".
Json json_of(double v) {
  if (std::isfinite(v)) return v;
  return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
}

// [kind, value] with the kinds of AttributeProto; null for what has no such form.
Json json_of(const Attribute& attribute) {
  if (const auto* v = std::get_if<int64_t>(&attribute)) return {"int", *v};
  if (const auto* v = std::get_if<double>(&attribute)) return {"float", json_of(*v)};
  if (const auto* v = std::get_if<std::string>(&attribute)) return {"string", *v};
  if (const auto* v = std::get_if<Ints>(&attribute)) return {"ints", *v};
  if (const auto* v = std::get_if<std::vector<double>>(&attribute)) {
    Json numbers = Json::array();
    for (double x : *v) numbers.push_back(json_of(x));
    return {"floats", numbers};
  }
  if (const auto* v = std::get_if<std::vector<std::string>>(&attribute)) return {"strings", *v};
  if (const auto* v = std::get_if<DType>(&attribute)) return {"int", info(*v).onnx};
  if (const auto* v = std::get_if<Tensor>(&attribute)) return {"tensor", json_of(*v)};
  return nullptr;
}

bool has_list(const Sample& sample) {
  return std::any_of(sample.operands.begin(), sample.operands.end(),
                     [](const Tensor& t) { return t.defined() && t.dtype() == DType::List; });
}

Json json_of(const Sample& sample) {
  Json operands = Json::array(), attributes = Json::object();
  for (const auto& t : sample.operands) operands.push_back(json_of(t));
  for (const auto& [name, value] : sample.attributes.items()) {
    Json v = json_of(value);
    if (v.is_null()) return nullptr;
    attributes[name] = std::move(v);
  }
  return {
      {"operands", operands}, {"attributes", attributes}, {"results", sample.result_count}, {"opset", sample.opset}};
}

} // namespace

void write_records(std::ostream& out) {
  for (const auto& op : OpTable::get().all()) {
    if (!op->samples || op->onnx.empty()) continue;
    Json names = Json::array(), samples = Json::array();
    for (const auto& n : op->onnx)
      names.push_back({{"op", n.op_type}, {"domain", n.domain}, {"since", n.since}, {"until", n.until}});
    for (const auto& sample : op->samples())
      if (!has_list(sample))
        if (Json s = json_of(sample); !s.is_null()) samples.push_back(std::move(s));
    Json variadic = !op->operands.empty() && op->operands.back().variadic;
    Json record = {{"name", op->name},
                   {"names", names},
                   {"samples", samples},
                   {"random", op->side_effect},
                   {"variadic", variadic}};
    out << record.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  }
}

} // namespace tessera::generator
