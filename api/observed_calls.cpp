#include "api/observed_calls.h"
#include "api/variant_source.h"

namespace tessera {
namespace {

class ObservedCalls final : public CallObserver {
public:
  ObservedCalls(std::shared_ptr<BackgroundWork> work, std::shared_ptr<const Successors> successors)
      : work_(std::move(work)), successors_(std::move(successors)) {}
  void begins() override { work_->begins(); }
  void ended(const std::shared_ptr<const Executable>& ran, std::span<const SymExpr> symbols,
             std::span<const int64_t> values) override {
    work_->ended(ran, symbols, values);
  }
  [[nodiscard]] uint64_t generation() const override { return successors_->generation(); }
  [[nodiscard]] std::shared_ptr<const Executable> successor(const Executable& of) override {
    return successors_->of(of);
  }

private:
  std::shared_ptr<BackgroundWork> work_;
  std::shared_ptr<const Successors> successors_;
};

} // namespace

void Successors::add(const Executable& of, std::shared_ptr<const Executable> successor) {
  std::lock_guard lock(mutex_);
  next_[&of] = std::move(successor);
  generation_.fetch_add(1);
}

void Successors::forget(const SessionVariant& variant) {
  std::lock_guard lock(mutex_);
  for (const auto& e : variant.earlier) next_.erase(e.get());
  next_.erase(variant.executable.get());
}

std::shared_ptr<const Executable> Successors::of(const Executable& executable) const {
  std::lock_guard lock(mutex_);
  std::shared_ptr<const Executable> last;
  for (auto it = next_.find(&executable); it != next_.end(); it = next_.find(last.get())) last = it->second;
  return last;
}

std::shared_ptr<CallObserver> observe_calls(std::shared_ptr<BackgroundWork> work,
                                            std::shared_ptr<const Successors> successors) {
  return std::make_shared<ObservedCalls>(std::move(work), std::move(successors));
}

} // namespace tessera
