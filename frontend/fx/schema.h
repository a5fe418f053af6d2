// PyTorch's schemas of ATen operators: names and defaults of arguments, from aten_schemas.txt, which make_schemas.py
// writes from PyTorch's own declarations.
#pragma once
#include <string_view>
#include <vector>

namespace tessera::fx {

struct SchemaArgument {
  std::string_view type;     // "Tensor?", "SymInt[2]", "Scalar"
  std::string_view name;     // "alpha"
  std::string_view fallback; // "1", "[]", "None", "contiguous_format"; empty: must be given
  bool has_fallback = false;
};
struct Schema {
  std::string_view name; // "aten.add.Tensor"
  std::vector<SchemaArgument> arguments;
  std::vector<std::string_view> results; // types
  [[nodiscard]] const SchemaArgument* argument(std::string_view name) const;
};
// nullptr when there is no such operator: "aten.add.Tensor".
[[nodiscard]] const Schema* find_schema(std::string_view name);

} // namespace tessera::fx
