// Values of every kind through the C interface: tensors of numbers and of strings, sequences, optionals, maps.
#include "api/c/tensors.h"
#include <algorithm>

using namespace tessera;

namespace {

constexpr int kDeepest = 16; // lists in lists

// The kinds of a list's type, outermost first: of "sequence list<map i64 f32[]>[2]" a sequence and a map.
std::vector<int32_t> kinds_of(std::string_view type) {
  std::vector<int32_t> out;
  while (!type.empty()) {
    const std::string_view word = type.substr(0, type.find(' '));
    out.push_back(word == "map" ? TESSERA_MAP : word == "optional" ? TESSERA_OPTIONAL : TESSERA_SEQUENCE);
    const size_t inner = type.find('<');
    type = inner == std::string_view::npos ? std::string_view() : type.substr(inner + 1);
  }
  return out;
}

const char* name_of(int32_t kind) {
  switch (kind) {
  case TESSERA_TENSOR: return "a tensor";
  case TESSERA_SEQUENCE: return "a sequence";
  case TESSERA_OPTIONAL: return "an optional";
  case TESSERA_MAP: return "a map";
  default: return "of no kind that there is";
  }
}

// ---- in
// Numbers are used where they lie.
Result<Tensor> tensor_of(const tessera_item& item, const std::string& what) {
  if (dtype_from_onnx(item.tensor.dtype) != DType::String) {
    TESSERA_ASSIGN(Checked checked, check(item.tensor, any_rank(), what, DataUse::Needed));
    return view(checked);
  }
  TESSERA_ASSIGN(auto sizes, check_sizes(item.tensor, any_rank(), what));
  if (sizes.count > 0 && item.strings == nullptr) return usage(what + " has no strings");
  std::vector<std::string> out;
  for (int64_t i = 0; i < sizes.count; ++i) {
    if (item.strings[i] == nullptr) return usage(what + ": string " + std::to_string(i) + " is null");
    if (item.string_bytes != nullptr)
      out.emplace_back(item.strings[i], item.string_bytes[i]);
    else
      out.emplace_back(item.strings[i]);
  }
  return Tensor::strings(std::move(sizes.dims), std::move(out));
}

// `kinds`: of the value and of what is in it; empty: a tensor.
Result<Tensor> value_of(const tessera_item& item, std::span<const int32_t> kinds, const std::string& what, int depth) {
  if (item.struct_size != sizeof(tessera_item))
    return usage(what + ": struct_size is " + std::to_string(item.struct_size) + ", expected " +
                 std::to_string(sizeof(tessera_item)));
  const int32_t wanted = kinds.empty() ? static_cast<int32_t>(TESSERA_TENSOR) : kinds.front();
  if (item.kind != wanted)
    return Diagnostic(ErrorCode::BadInput, what + " is " + name_of(item.kind) + ", expected " + name_of(wanted));
  if (item.kind == TESSERA_TENSOR) return tensor_of(item, what);
  if (depth > kDeepest) return usage(what + " is nested too deeply");
  if (item.item_count < 0 || (item.item_count > 0 && item.items == nullptr))
    return usage(what + " has " + std::to_string(item.item_count) + " items, and no memory for them");
  const int32_t most = item.kind == TESSERA_OPTIONAL ? 1 : item.kind == TESSERA_MAP ? 2 : item.item_count;
  if (item.item_count > most || (item.kind == TESSERA_MAP && item.item_count != 2))
    return Diagnostic(ErrorCode::BadInput, what + " has " + std::to_string(item.item_count) + " items; " +
                                               (item.kind == TESSERA_MAP ? "a map has two, its keys and its values"
                                                                         : "an optional has one, or none"));
  std::vector<Tensor> items;
  for (int32_t i = 0; i < item.item_count; ++i) {
    const auto inner = item.kind == TESSERA_MAP ? std::span<const int32_t>() : kinds.subspan(1);
    TESSERA_ASSIGN(Tensor t, value_of(item.items[i], inner, what + ", item " + std::to_string(i), depth + 1));
    items.push_back(std::move(t));
  }
  if (item.kind == TESSERA_MAP && items[0].count() != items[1].count())
    return Diagnostic(ErrorCode::BadInput, what + " has " + std::to_string(items[0].count()) + " keys and " +
                                               std::to_string(items[1].count()) + " values");
  return Tensor::list(std::move(items));
}

// ---- out
void clear(tessera_session& s) {
  s.items.clear();
  s.texts.clear();
  s.lengths.clear();
  s.yielded.clear();
}

tessera_item shown(tessera_session& s, const Tensor& t, std::span<const int32_t> kinds, const char* name) {
  tessera_item out{};
  out.struct_size = sizeof out;
  out.tensor.name = name;
  if (t.dtype() == DType::List) {
    // One that the declared type does not have is a sequence.
    out.kind = kinds.empty() ? static_cast<int32_t>(TESSERA_SEQUENCE) : kinds.front();
    const bool map = out.kind == TESSERA_MAP;
    std::vector<tessera_item> items;
    for (const Tensor& item : t.items())
      items.push_back(shown(s, item, kinds.empty() || map ? std::span<const int32_t>() : kinds.subspan(1), nullptr));
    out.item_count = static_cast<int32_t>(items.size());
    out.items = s.items.emplace_back(std::move(items)).data();
    return out;
  }
  out.tensor.dtype = info(t.dtype()).onnx;
  out.tensor.rank = static_cast<int32_t>(t.dims().size());
  out.tensor.dims = t.dims().data();
  if (t.dtype() != DType::String) {
    out.tensor.data = const_cast<std::byte*>(t.data());
    return out;
  }
  auto& texts = s.texts.emplace_back();
  auto& lengths = s.lengths.emplace_back();
  for (const std::string& text : t.string_values()) {
    texts.push_back(text.c_str());
    lengths.push_back(text.size());
  }
  out.strings = texts.data();
  out.string_bytes = lengths.data();
  return out;
}

Status run_items(tessera_session& s, const tessera_item* inputs, int32_t input_count, RunStats& stats) {
  if (input_count < 0 || static_cast<size_t>(input_count) > s.inputs.size())
    return usage("the model has " + std::to_string(s.inputs.size()) + " inputs, and the number given is " +
                 std::to_string(input_count));
  if (input_count > 0 && inputs == nullptr) return usage("the inputs are null");
  std::map<std::string, Tensor> given;
  for (int32_t i = 0; i < input_count; ++i) {
    auto index = static_cast<size_t>(i);
    if (const char* name = inputs[i].struct_size == sizeof(tessera_item) ? inputs[i].tensor.name : nullptr) {
      TESSERA_ASSIGN(index, input_named(s, name));
    }
    const IoInfo& io = s.inputs[index];
    TESSERA_ASSIGN(Tensor t, value_of(inputs[i], kinds_of(io.list), "input '" + io.name + "'", 0));
    if (!given.emplace(io.name, std::move(t)).second) return usage("input '" + io.name + "' is given twice");
  }
  clear(s);
  TESSERA_ASSIGN(s.yielded, on_executor(s, [&](auto& e) { return e.run(given, &stats); }));
  std::vector<tessera_item> outputs;
  for (size_t i = 0; i < s.yielded.size(); ++i)
    outputs.push_back(shown(s, s.yielded[i], kinds_of(s.outputs[i].list), s.outputs[i].name.c_str()));
  s.items.push_back(std::move(outputs));
  return {};
}

} // namespace

const char* tessera_list_type(const tessera_session* session, int32_t is_output, int32_t index) {
  if (session == nullptr) return nullptr;
  const auto& ios = is_output != 0 ? session->outputs : session->inputs;
  if (index < 0 || static_cast<size_t>(index) >= ios.size()) return nullptr;
  const std::string& list = ios[static_cast<size_t>(index)].list;
  return list.empty() ? nullptr : list.c_str();
}

const char* tessera_run_items(tessera_session* session, const tessera_item* inputs, int32_t input_count,
                              const tessera_item** outputs, int32_t* output_count) {
  if (outputs == nullptr || output_count == nullptr) return record_error(usage("nowhere to put the outputs"));
  return run_call(session, [&](tessera_session& s, RunStats& stats) -> Status {
    TESSERA_TRY(run_items(s, inputs, input_count, stats));
    show(s.items.back(), outputs, output_count);
    return {};
  });
}
