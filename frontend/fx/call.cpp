#include "frontend/fx/call.h"
#include <algorithm>

namespace tessera::fx {

Call::Call(Graph& graph, const Node& node, const FxNode& fx, const FxGraph& program, const Schema& schema,
           Arguments::Lookup lookup, Arguments::Sizes sizes)
    : b(graph, node), in(b, fx, program, schema, std::move(lookup), sizes), fx_(fx), program_(program), schema_(schema),
      sizes_(std::move(sizes)) {}

const Argument* Call::result_argument(int index) const {
  for (const Argument& a : fx_.outputs) {
    const auto count = a.kind == Argument::Kind::List ? static_cast<int>(a.items.size()) : 1;
    if (index >= 0 && index < count) return a.kind == Argument::Kind::List ? &a.items[static_cast<size_t>(index)] : &a;
    index -= count;
  }
  return nullptr;
}

const TensorMeta* Call::meta(int index) const {
  const Argument* result = result_argument(index);
  if (result == nullptr) return nullptr;
  auto it = program_.tensors.find(result->name);
  return it == program_.tensors.end() ? nullptr : &it->second;
}

int Call::result_count() const {
  int n = 0;
  for (const Argument& a : fx_.outputs) n += a.kind == Argument::Kind::List ? static_cast<int>(a.items.size()) : 1;
  return n;
}

void Call::writes(std::string_view name, ValueId v) {
  const ValueId before = in.maybe(name);
  if (!b.ok() || !in.given(name)) return;
  v = cast(b, v, b.dtype(before));
  if (b.ok()) written_.push_back({in.tensor_name(name), v});
}

namespace {
bool reads(const Argument& a, const std::string& name) {
  if (a.kind == Argument::Kind::Tensor && a.name == name) return true;
  return std::any_of(a.items.begin(), a.items.end(), [&](const Argument& i) { return reads(i, name); });
}
} // namespace

bool Call::is_used(int index) const {
  // Exporters describe results that nobody reads as well.
  const Argument* result = result_argument(index);
  if (result == nullptr || !program_.tensors.contains(result->name)) return false;
  const std::string& name = result->name;
  for (const FxNode& node : program_.nodes)
    for (const NamedArgument& a : node.inputs)
      if (reads(a.value, name)) return true;
  return std::any_of(program_.outputs.begin(), program_.outputs.end(),
                     [&](const Argument& a) { return reads(a, name); });
}

DType Call::result_dtype(int index) {
  const TensorMeta* m = meta(index);
  if (m == nullptr || !m->dtype) {
    b.fail(ErrorCode::UnsupportedType, m ? "element type " + dtype_name_of_schema(m->dtype_number) + " is not supported"
                                         : std::string("a result has no element type"));
    return DType::F32;
  }
  return *m->dtype;
}

SymShape Call::result_shape(int index) {
  const TensorMeta* m = meta(index);
  if (m == nullptr) {
    b.fail(ErrorCode::MalformedModel, "a result has no sizes");
    return {};
  }
  auto shape = sizes_(m->sizes);
  if (!shape.ok()) {
    b.fail(shape.error());
    return {};
  }
  return std::move(*shape);
}

} // namespace tessera::fx
