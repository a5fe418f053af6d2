// States of a context through the C interface.
#include "api/c/context.h"
#include <cstring>

namespace tessera {
namespace {

// The state `index`, to which or from which `bytes` are to be copied.
Result<const IoInfo*> state_of(const tessera_session& s, int32_t index, const void* data, size_t bytes) {
  if (index < 0 || static_cast<size_t>(index) >= s.states.size())
    return usage("the model has " + std::to_string(s.states.size()) + " states, and the index given is " +
                 std::to_string(index));
  const IoInfo& state = s.states[static_cast<size_t>(index)];
  int64_t count = 1;
  for (const SymExpr& d : state.shape) count *= d.as_const().value_or(0);
  const auto has = static_cast<size_t>(byte_size(state.dtype, count));
  if (bytes != has)
    return usage("state '" + state.name + "' has " + std::to_string(has) + " bytes, and the number given is " +
                 std::to_string(bytes));
  if (data == nullptr && bytes > 0) return usage("state '" + state.name + "' has no memory");
  return &state;
}

} // namespace
} // namespace tessera

using namespace tessera;

const char* tessera_read_state(tessera_session* session, int32_t index, void* data, size_t bytes) {
  return call(session, "reading a state", [&](tessera_session& s) -> Status {
    TESSERA_TRY(state_of(s, index, data, bytes));
    TESSERA_ASSIGN(const Tensor value,
                   on_executor(s, [&](auto& e) { return e.read_state(static_cast<size_t>(index)); }));
    if (bytes > 0) std::memcpy(data, value.data(), bytes);
    return {};
  });
}

const char* tessera_write_state(tessera_session* session, int32_t index, const void* data, size_t bytes) {
  return call(session, "writing a state", [&](tessera_session& s) -> Status {
    TESSERA_ASSIGN(const IoInfo* state, state_of(s, index, data, bytes));
    Dims dims;
    for (const SymExpr& d : state->shape) dims.push_back(d.as_const().value_or(0));
    const auto* from = static_cast<const std::byte*>(data);
    const Tensor value = Tensor::view(state->dtype, std::move(dims), Storage{nullptr, from, bytes});
    return on_executor(s, [&](auto& e) { return e.write_state(static_cast<size_t>(index), value); });
  });
}

const char* tessera_reset_states(tessera_session* session) {
  return call(session, "resetting states",
              [](tessera_session& s) -> Status { return on_executor(s, [](auto& e) { return e.reset_states(); }); });
}
