#include "api/c/tensors.h"
#include <algorithm>

namespace tessera {
namespace {

Status check_memory(const std::string& what, DType dtype, size_t bytes, const void* data) {
  if (bytes == 0) return {};
  if (data == nullptr) return usage(what + " has no memory");
  const auto at = reinterpret_cast<uintptr_t>(data);
  const auto alignment = static_cast<uintptr_t>(std::clamp(info(dtype).bits / 8, 1, 8));
  if (at % alignment != 0)
    return usage(what + " lies at an address that is no multiple of " + std::to_string(alignment) +
                 ", the size of its elements");
  if (at + bytes < at)
    return usage(what + " of " + std::to_string(bytes) + " bytes reaches beyond the end of the address space");
  return {};
}

} // namespace

const IoInfo& any_rank() {
  static const IoInfo any = [] {
    IoInfo io{"", DType::F32, {}};
    io.any_rank = true;
    return io;
  }();
  return any;
}

Result<size_t> input_named(const tessera_session& s, const char* name) {
  if (auto it = s.input_named.find(std::string_view(name)); it != s.input_named.end()) return it->second;
  std::string names;
  for (const auto& io : s.inputs) names += (names.empty() ? "'" : ", '") + io.name + "'";
  return Diagnostic(ErrorCode::UnknownInput, "the model has no input '" + std::string(name) + "'")
      .note(names.empty() ? "it has no inputs" : "its inputs are " + names);
}

Result<CheckedSizes> check_sizes(const tessera_tensor& t, const IoInfo& io, const std::string& what) {
  // The model's rank says how many dimensions there are to be read.
  if (io.any_rank && (t.rank < 0 || t.rank > kMaxDimensions))
    return Diagnostic(ErrorCode::BadInput, what + " has rank " + std::to_string(t.rank) + "; 0 to " +
                                               std::to_string(kMaxDimensions) + " are possible");
  if (!io.any_rank && (t.rank < 0 || static_cast<size_t>(t.rank) != io.shape.size()))
    return Diagnostic(ErrorCode::BadInput, what + " has rank " + std::to_string(t.rank) + ", the model declares rank " +
                                               std::to_string(io.shape.size()));
  if (t.rank > 0 && t.dims == nullptr) return usage(what + " has no dimensions");
  Dims dims(t.dims, t.dims + t.rank);
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] < 0)
      return usage(what + " has dimension " + std::to_string(d) + " of " + std::to_string(dims[d]) +
                   ", a size is 0 or more");
  auto elements = element_count(dims);
  if (!elements.ok()) return Diagnostic(elements.error().code, what + ": " + elements.error().message);
  return CheckedSizes{std::move(dims), *elements};
}

Result<Checked> check(const tessera_tensor& t, const IoInfo& io, const std::string& what, DataUse data) {
  auto dtype = dtype_from_onnx(t.dtype);
  if (!dtype || !has_bytes(*dtype))
    return usage(what + " has the element type " + std::to_string(t.dtype) + ", which cannot be passed as memory");
  TESSERA_ASSIGN(auto sizes, check_sizes(t, io, what));
  const auto bytes = static_cast<size_t>(byte_size(*dtype, sizes.count));
  if (data == DataUse::Needed || (data == DataUse::Optional && t.data != nullptr))
    TESSERA_TRY(check_memory(what, *dtype, bytes, t.data));
  return Checked{&io, *dtype, std::move(sizes.dims), bytes, t.data};
}

Result<std::vector<Checked>> check_all(const tessera_session& s, Side side, const tessera_tensor* tensors,
                                       int32_t count, DataUse data) {
  const bool input = side == Side::Input;
  const auto& known = input ? s.inputs : s.outputs;
  const std::string kind = input ? "input" : "output";
  // More inputs than the model has are not looked at; a missing one is an error of the call, by name.
  const bool wrong =
      count < 0 || (input ? static_cast<size_t>(count) > known.size() : static_cast<size_t>(count) != known.size());
  if (wrong)
    return usage("the model has " + std::to_string(known.size()) + " " + kind + "s, and the number given is " +
                 std::to_string(count));
  if (count > 0 && tensors == nullptr) return usage("the " + kind + "s are null");
  std::vector<Checked> out;
  std::vector<bool> given(known.size());
  for (int32_t i = 0; i < count; ++i) {
    const tessera_tensor& t = tensors[i];
    auto index = static_cast<size_t>(i);
    if (input) {
      if (t.name != nullptr) {
        TESSERA_ASSIGN(index, input_named(s, t.name));
      }
      if (given[index]) return usage("input '" + known[index].name + "' is given twice");
      given[index] = true;
    }
    TESSERA_ASSIGN(auto checked, check(t, known[index], kind + " '" + known[index].name + "'", data));
    out.push_back(std::move(checked));
  }
  return out;
}

Tensor view(Checked& t) {
  static const std::byte nothing{};
  const auto* data = t.data ? static_cast<const std::byte*>(t.data) : &nothing;
  return Tensor::view(t.dtype, std::move(t.dims), {nullptr, data, t.bytes});
}

} // namespace tessera
