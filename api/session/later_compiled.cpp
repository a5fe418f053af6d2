#include "api/session/later_compiled.h"

namespace tessera {

LaterCompiled::LaterCompiled(std::shared_ptr<const Compiled> known) {
  if (!known) return;
  state_ = std::make_shared<State>();
  state_->known = std::move(known);
}

LaterCompiled::LaterCompiled(Make make) : state_(std::make_shared<State>()) { state_->make = std::move(make); }

std::shared_ptr<const Compiled> LaterCompiled::get() const {
  if (!state_) return nullptr;
  std::call_once(state_->once, [this] {
    if (!state_->make) return;
    state_->known = state_->make();
    state_->make = nullptr;
  });
  return state_->known;
}

} // namespace tessera
