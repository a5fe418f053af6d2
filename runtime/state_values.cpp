#include "runtime/state_values.h"

namespace tessera {

Status StateValues::make(const Executable& executable, bool captured) {
  const size_t count = executable.states.size();
  if (values_.size() == count) return {};
  if (captured)
    return Diagnostic(ErrorCode::Usage, "a call is captured before there was one: the model's states have no memory")
        .note("call it once before capturing, with inputs of the same sizes");
  first_.clear();
  for (const int s : executable.states) first_.push_back(executable.constants[static_cast<size_t>(s)]);
  while (values_.size() < count) {
    const Tensor& first = first_[values_.size()].value;
    StateValue made;
    for (Tensor* t : {&made.value, &made.next}) {
      TESSERA_ASSIGN(std::byte * memory, device_.kept().allocate(static_cast<int64_t>(first.bytes())));
      *t = Tensor::view(first.dtype(), first.dims(), Storage{nullptr, memory, first.bytes()});
    }
    values_.push_back(std::move(made));
    if (Status begun = begin(values_.size() - 1); !begun.ok()) {
      values_.pop_back();
      return begun;
    }
  }
  return {};
}

Status StateValues::begin(size_t index) {
  const Tensor& first = first_[index].value;
  if (first.bytes() > 0 && first.data() == nullptr)
    return Diagnostic(ErrorCode::BadWeights, "state '" + first_[index].name + "' has no first value");
  return device_.kept().write(values_[index].value.mutable_data(), first.data(), static_cast<int64_t>(first.bytes()));
}

Status StateValues::check(size_t index) const {
  if (index < values_.size()) return {};
  return Diagnostic(ErrorCode::Usage, "the model has " + std::to_string(values_.size()) + " states, and the index is " +
                                          std::to_string(index));
}

Result<Tensor> StateValues::read(size_t index) {
  TESSERA_TRY(check(index));
  const Tensor& value = values_[index].value;
  TESSERA_ASSIGN(Tensor out, Tensor::create(value.dtype(), value.dims()));
  TESSERA_TRY(device_.kept().read(out.mutable_data(), value.data(), static_cast<int64_t>(value.bytes())));
  return out;
}

Status StateValues::write(size_t index, const Tensor& given) {
  TESSERA_TRY(check(index));
  Tensor& value = values_[index].value;
  if (!given.defined() || given.dtype() != value.dtype() || given.dims() != value.dims())
    return Diagnostic(ErrorCode::BadInput,
                      "the value given for state '" + first_[index].name + "' does not have its type and sizes");
  return device_.kept().write(value.mutable_data(), given.data(), static_cast<int64_t>(value.bytes()));
}

Status StateValues::reset() {
  for (size_t s = 0; s < values_.size(); ++s) TESSERA_TRY(begin(s));
  return {};
}

std::span<const Tensor* const> StateValues::behind(std::span<const Tensor* const> inputs) {
  if (values_.empty()) return inputs;
  inputs_.assign(inputs.begin(), inputs.end());
  for (const StateValue& s : values_) inputs_.push_back(&s.value);
  return inputs_;
}

} // namespace tessera
