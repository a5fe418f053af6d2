// The results of a variant's compile: known, or computed by compiling at the first request. A variant that comes from
// the cache of plans runs without them.
#pragma once
#include <functional>
#include <memory>
#include <mutex>

namespace tessera {

struct Compiled; // codegen/driver/compile.h

// A pointer. Copies share what is found out; any thread may ask, and waits for a compile.
class LaterCompiled {
public:
  using Make = std::function<std::shared_ptr<const Compiled>()>;
  LaterCompiled() = default;                            // null
  LaterCompiled(std::shared_ptr<const Compiled> known); // NOLINT: as the pointer that it is
  explicit LaterCompiled(Make make);                    // called at most once; gives no null
  [[nodiscard]] std::shared_ptr<const Compiled> get() const;
  operator std::shared_ptr<const Compiled>() const { return get(); } // NOLINT
  const Compiled* operator->() const { return get().get(); }
  const Compiled& operator*() const { return *get(); }
  explicit operator bool() const { return state_ != nullptr; }

private:
  struct State {
    std::once_flag once;
    Make make;
    std::shared_ptr<const Compiled> known;
  };
  std::shared_ptr<State> state_;
};

} // namespace tessera
