// Archives for tests: zips of stored entries, and a small program with weights.
#pragma once
#include "frontend/fx/importer.h"
#include <cstring>
#include <nlohmann/json.hpp>

namespace tessera::fx_test {

using Json = nlohmann::ordered_json;

struct Entry {
  std::string name, bytes;
  uint16_t method = 0; // 0: stored
  uint16_t flags = 0;
};

// The bytes of a zip. The offsets of its records are given, for tests that damage them.
struct Packed {
  std::string bytes;
  size_t directory = 0, end = 0; // offsets of the directory and of the end record
};

template <class T>
void put(std::string& to, T value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  to.append(raw, sizeof raw);
}
template <class T>
void overwrite(std::string& in, size_t at, T value) {
  std::memcpy(in.data() + at, &value, sizeof value);
}

inline Packed pack(const std::vector<Entry>& entries, bool zip64 = false) {
  Packed out;
  std::string& z = out.bytes;
  std::string directory;
  auto common = [](std::string& to, const Entry& e) {
    put<uint16_t>(to, e.flags);
    put<uint16_t>(to, e.method);
    put<uint32_t>(to, 0); // time
    put<uint32_t>(to, 0); // CRC, which is not read
    put(to, static_cast<uint32_t>(e.bytes.size()));
    put(to, static_cast<uint32_t>(e.bytes.size()));
    put(to, static_cast<uint16_t>(e.name.size()));
  };
  for (const Entry& e : entries) {
    const auto local = static_cast<uint32_t>(z.size());
    put<uint32_t>(z, 0x04034b50);
    put<uint16_t>(z, 20);
    common(z, e);
    const size_t padding = (64 - (z.size() + 2 + e.name.size() + 4) % 64) % 64; // data is aligned to 64 bytes
    put(z, static_cast<uint16_t>(padding + 4));
    z += e.name;
    put<uint16_t>(z, 0x4246);
    put(z, static_cast<uint16_t>(padding));
    z.append(padding, 'Z');
    z += e.bytes;
    put<uint32_t>(directory, 0x02014b50);
    put<uint32_t>(directory, 20 | 20 << 16);
    common(directory, e);
    put<uint16_t>(directory, zip64 ? 12 : 0);
    put<uint16_t>(directory, 0);
    put<uint32_t>(directory, 0);
    put<uint32_t>(directory, 0);
    put<uint32_t>(directory, zip64 ? 0xffffffff : local);
    directory += e.name;
    if (zip64) {
      put<uint16_t>(directory, 1);
      put<uint16_t>(directory, 8);
      put<uint64_t>(directory, local);
    }
  }
  out.directory = z.size();
  z += directory;
  const size_t end64 = z.size();
  if (zip64) {
    put<uint32_t>(z, 0x06064b50);
    put<uint64_t>(z, 44);
    put<uint32_t>(z, 45 | 45 << 16);
    put<uint64_t>(z, 0);
    put<uint64_t>(z, entries.size());
    put<uint64_t>(z, entries.size());
    put<uint64_t>(z, directory.size());
    put<uint64_t>(z, out.directory);
    put<uint32_t>(z, 0x07064b50);
    put<uint32_t>(z, 0);
    put<uint64_t>(z, end64);
    put<uint32_t>(z, 1);
  }
  out.end = z.size();
  put<uint32_t>(z, 0x06054b50);
  put<uint32_t>(z, 0);
  put(z, static_cast<uint16_t>(entries.size()));
  put(z, static_cast<uint16_t>(entries.size()));
  put(z, zip64 ? 0xffffffff : static_cast<uint32_t>(directory.size()));
  put(z, zip64 ? 0xffffffff : static_cast<uint32_t>(out.directory));
  put<uint16_t>(z, 0);
  return out;
}

inline Json constant(int64_t v) { return {{"as_int", v}}; }
inline Json constants(const std::vector<int64_t>& v) {
  Json out = Json::array();
  for (int64_t i : v) out.push_back(constant(i));
  return out;
}
inline Json meta(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t offset = 0,
                 int dtype = 7) {
  return {{"dtype", dtype},
          {"sizes", constants(sizes)},
          {"requires_grad", false},
          {"device", {{"type", "cpu"}, {"index", nullptr}}},
          {"strides", constants(strides)},
          {"storage_offset", constant(offset)},
          {"layout", 7}};
}
inline Json tensor(const std::string& name) { return {{"as_tensor", {{"name", name}}}}; }

inline std::string floats(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) put(out, static_cast<float>(i) - 3);
  return out;
}

// A module with one weight of any layout: its output is relu of the weight, next to relu of an input [2].
struct Model {
  std::string root = "model/";
  std::vector<int64_t> sizes = {2, 3}, strides = {3, 1};
  int64_t offset = 0;
  std::string weight = floats(6);
  Json program, weights;
  std::vector<Entry> more;

  Model() { describe(); }
  Model(std::vector<int64_t> s, std::vector<int64_t> t, int64_t o, std::string bytes)
      : sizes(std::move(s)), strides(std::move(t)), offset(o), weight(std::move(bytes)) {
    describe();
  }
  // Program and list of weights from sizes, strides and offset.
  void describe() {
    auto relu = [](const std::string& of, const std::string& result) {
      return Json{{"target", "torch.ops.aten.relu.default"},
                  {"inputs", Json::array({{{"name", "self"}, {"arg", tensor(of)}, {"kind", 1}}})},
                  {"outputs", Json::array({tensor(result)})},
                  {"metadata",
                   {{"stack_trace", "  File \"/home/me/model.py\", line 42, in forward\n    x = relu(x)\n"},
                    {"nn_module_stack", "L__self__,,m.Net;L__self___act,layers.0.act,torch.nn.ReLU"}}}};
    };
    program = {
        {"graph_module",
         {{"graph",
           {{"inputs", Json::array({tensor("p_w"), tensor("x")})},
            {"outputs", Json::array({tensor("y"), tensor("z")})},
            {"nodes", Json::array({relu("p_w", "y"), relu("x", "z")})},
            {"tensor_values",
             {{"p_w", meta(sizes, strides, offset)},
              {"x", meta({2}, {1})},
              {"y", meta(sizes, strides)},
              {"z", meta({2}, {1})}}},
            {"sym_int_values", Json::object()},
            {"is_single_tensor_return", false}}},
          {"signature",
           {{"input_specs", Json::array({{{"parameter", {{"arg", {{"name", "p_w"}}}, {"parameter_name", "act.w"}}}},
                                         {{"user_input", {{"arg", tensor("x")}}}}})},
            {"output_specs",
             Json::array({{{"user_output", {{"arg", tensor("y")}}}}, {{"user_output", {{"arg", tensor("z")}}}}})}}},
          {"module_call_graph", Json::array()}}},
        {"opset_version", {{"aten", 10}}},
        {"range_constraints", Json::object()},
        {"schema_version", {{"major", 8}, {"minor", 20}}},
        {"torch_version", "2.15.0"}};
    weights = {{"config",
                {{"act.w",
                  {{"path_name", "weight_0"},
                   {"is_param", true},
                   {"use_pickle", false},
                   {"tensor_meta", meta(sizes, strides, offset)}}}}}};
  }
  Json& node(size_t i) { return program["graph_module"]["graph"]["nodes"][i]; }
  [[nodiscard]] std::vector<Entry> entries() const {
    std::vector<Entry> all = {{root + "data/weights/weight_0", weight},
                              {root + "data/weights/model_weights_config.json", weights.dump()},
                              {root + "data/constants/model_constants_config.json", R"({"config": {}})"},
                              {root + "models/model.json", program.dump()},
                              {root + "archive_format", "pt2"},
                              {root + "archive_version", "0"},
                              {root + "byteorder", "little"}};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

// Imports bytes that lie as a map would: aligned to 64 bytes, and exactly as long, so that sanitizers see what is read
// behind them.
inline Result<ImportedModel> import_text(const std::string& bytes, const ImportOptions& options = {}) {
  TESSERA_ASSIGN(auto block, allocate_bytes(bytes.size()));
  std::memcpy(block.get(), bytes.data(), bytes.size());
  return fx::import_bytes({block, block.get(), bytes.size()}, options);
}
inline Result<ImportedModel> import_entries(const std::vector<Entry>& entries, const ImportOptions& options = {}) {
  return import_text(pack(entries).bytes, options);
}
inline Result<ImportedModel> import_it(const Model& m, const ImportOptions& options = {}) {
  return import_entries(m.entries(), options);
}

} // namespace tessera::fx_test
