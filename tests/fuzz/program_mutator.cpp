#include "program_mutator.h"
#include "frontend/fx/call.h"

namespace tessera::fuzz {
namespace {
using Json = nlohmann::json;

class Caller {
public:
  Caller(Json& graph, std::mt19937_64& rng) : graph_(graph), rng_(rng) {
    for (const auto& [name, meta] : graph.at("tensor_values").items()) tensors_.push_back(name);
    for (const auto& [name, size] : graph.at("sym_int_values").items()) sizes_.push_back(name);
  }

  void add() {
    if (tensors_.empty()) return;
    Json& nodes = graph_.at("nodes");
    const auto& table = fx::AtenTable::get().all();
    auto row = table.begin();
    std::advance(row, static_cast<std::ptrdiff_t>(below(table.size())));
    std::string name(row->first);
    if (below(8) == 0) name.insert(name.find('.'), "_"); // the one that writes in place, if there is one
    const bool prims = name.starts_with("prims.");
    const fx::Schema* schema = fx::find_schema(prims ? name : "aten." + name);
    if (schema == nullptr) return;
    Json inputs = Json::array(), outputs = Json::array();
    for (const fx::SchemaArgument& a : schema->arguments) {
      if (a.has_fallback && below(2) == 0) continue;
      inputs.push_back({{"name", a.name}, {"arg", argument(a.type)}, {"kind", 1}});
    }
    for (std::string_view type : schema->results) {
      if (!type.starts_with("Tensor")) continue;
      const size_t count = type.find('[') != std::string_view::npos ? below(4) : 1;
      Json made = Json::array();
      for (size_t i = 0; i < count; ++i) {
        std::string result = "fuzz_" + std::to_string(graph_.at("tensor_values").size());
        graph_["tensor_values"][result] = graph_["tensor_values"][any(tensors_)];
        made.push_back({{"name", result}});
        tensors_.push_back(std::move(result));
      }
      if (type.find('[') != std::string_view::npos)
        outputs.push_back({{"as_tensors", made}});
      else
        outputs.push_back({{"as_tensor", made[0]}});
    }
    Json node = {{"target", "torch.ops." + std::string(prims ? "" : "aten.") + name},
                 {"inputs", inputs},
                 {"outputs", outputs},
                 {"metadata", Json::object()}};
    nodes.insert(nodes.begin() + static_cast<std::ptrdiff_t>(below(nodes.size() + 1)), std::move(node));
  }

private:
  size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(rng_() % n); }
  const std::string& any(const std::vector<std::string>& names) { return names[below(names.size())]; }

  int64_t integer() {
    static constexpr int64_t kEdges[] = {-1, 5, 64, INT64_MAX, INT64_MIN, int64_t{1} << 40, -(int64_t{1} << 33)};
    return below(8) == 0 ? kEdges[below(std::size(kEdges))] : static_cast<int64_t>(below(5)) - 1;
  }
  Json number() {
    static const Json kEdges[] = {0.5, -2.0, 1e300, "Infinity", "NaN", 0.0};
    return kEdges[below(std::size(kEdges))];
  }
  Json tensor() { return {{"name", any(tensors_)}}; }
  Json size() {
    if (!sizes_.empty() && below(4) == 0) return {{"as_sym_int", {{"as_name", any(sizes_)}}}};
    return {{"as_int", integer()}};
  }

  Json argument(std::string_view type) {
    const bool optional = type.ends_with('?'), list = type.find('[') != std::string_view::npos;
    if (optional && below(3) == 0) return {{"as_none", true}};
    Json items = Json::array();
    if (type.starts_with("Tensor?[")) {
      for (size_t i = below(4); i > 0; --i)
        items.push_back(below(3) == 0 ? Json{{"as_none", true}} : Json{{"as_tensor", tensor()}});
      return {{"as_optional_tensors", items}};
    }
    if (type.starts_with("Tensor")) {
      if (!list) return {{"as_tensor", tensor()}};
      for (size_t i = below(4); i > 0; --i) items.push_back(tensor());
      return {{"as_tensors", items}};
    }
    if (type.starts_with("float") || (type.starts_with("Scalar") && below(2) == 0 && !type.starts_with("ScalarType"))) {
      if (!list) return {{"as_float", number()}};
      for (size_t i = below(4); i > 0; --i) items.push_back(number());
      return {{"as_floats", items}};
    }
    if (type.starts_with("bool")) return {{"as_bool", below(2) == 0}};
    if (type.starts_with("str")) return {{"as_string", below(2) == 0 ? "none" : "tanh"}};
    if (type.starts_with("ScalarType")) return {{"as_scalar_type", below(14)}};
    if (type.starts_with("MemoryFormat")) return {{"as_memory_format", below(5)}};
    if (type.starts_with("Layout")) return {{"as_layout", 7}};
    if (type.starts_with("Device")) return {{"as_device", {{"type", "cpu"}, {"index", nullptr}}}};
    if (!list) return size();
    for (size_t i = below(5); i > 0; --i) items.push_back(integer());
    return {{"as_ints", items}};
  }

  Json& graph_;
  std::mt19937_64& rng_;
  std::vector<std::string> tensors_, sizes_;
};

} // namespace

void add_calls(Json& program, std::mt19937_64& rng) {
  try {
    Caller caller(program.at("graph_module").at("graph"), rng);
    for (size_t n = 1 + rng() % 3; n > 0; --n) caller.add();
  } catch (const Json::exception&) { // no program
  }
}

} // namespace tessera::fuzz
