// Tensors of a caller of the C interface: looked at before anything is read that they point to.
#pragma once
#include "api/c/context.h"

namespace tessera {

inline constexpr int32_t kMaxDimensions = 64; // of a tensor whose rank nothing else says

enum class Side : uint8_t { Input, Output };
enum class DataUse : uint8_t { Needed, Optional, Ignored }; // Optional: null is fine

// A tensor of the caller's that was looked at.
struct Checked {
  const IoInfo* io;
  DType dtype;
  Dims dims;
  size_t bytes;
  void* data;
};

// An input or output of any rank, for check() where nothing says how many dimensions there are.
[[nodiscard]] const IoInfo& any_rank();
// The sizes of a tensor, and how many elements it has. `what`: "input 'x'". Errors: Usage; BadInput (another rank than
// `io`'s); SizeOverflow.
struct CheckedSizes {
  Dims dims;
  int64_t count;
};
[[nodiscard]] Result<CheckedSizes> check_sizes(const tessera_tensor& t, const IoInfo& io, const std::string& what);
// The same of a tensor of numbers, with its memory.
[[nodiscard]] Result<Checked> check(const tessera_tensor& t, const IoInfo& io, const std::string& what, DataUse data);
// The place of an input of this name. Error UnknownInput.
[[nodiscard]] Result<size_t> input_named(const tessera_session& s, const char* name);
// All tensors of one side of a call: inputs by name or place, as they were given; outputs in the model's order. A missing
// input is not noticed here. Errors: those of check(); UnknownInput.
[[nodiscard]] Result<std::vector<Checked>> check_all(const tessera_session& s, Side side, const tessera_tensor* tensors,
                                                     int32_t count, DataUse data);

// The caller's memory outlives the call, so that nothing owns it here.
[[nodiscard]] Tensor view(Checked& t);
[[nodiscard]] inline DeviceTensor on_device(Checked& t) { return {t.dtype, std::move(t.dims), t.data}; }

template <class To>
auto by_name(std::vector<Checked>& tensors, const To& to) {
  std::map<std::string, decltype(to(tensors.front()))> out;
  for (auto& t : tensors) out.emplace(t.io->name, to(t));
  return out;
}
template <class To>
auto in_order(std::vector<Checked>& tensors, const To& to) {
  std::vector<decltype(to(tensors.front()))> out;
  for (auto& t : tensors) out.push_back(to(t));
  return out;
}

} // namespace tessera
