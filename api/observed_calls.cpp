#include "api/observed_calls.h"
#include "api/variant_source.h"

namespace tessera {
namespace {

class ObservedCalls final : public CallObserver {
public:
  ObservedCalls(std::shared_ptr<BackgroundWork> work, std::shared_ptr<const Successors> successors,
                std::shared_ptr<std::set<const Executable*>> known)
      : work_(std::move(work)), successors_(std::move(successors)), known_(std::move(known)) {}
  void begins() override { work_->begins(); }
  void ended(const std::shared_ptr<const Executable>& ran, std::span<const SymExpr> symbols,
             std::span<const int64_t> values) override {
    work_->ended(ran, symbols, values);
  }
  [[nodiscard]] uint64_t generation() const override { return successors_->generation(); }
  [[nodiscard]] std::shared_ptr<const Executable> successor(const Executable& of) override {
    auto next = successors_->of(of);
    if (next) known_->insert(next.get());
    return next;
  }

private:
  std::shared_ptr<BackgroundWork> work_;
  std::shared_ptr<const Successors> successors_;
  std::shared_ptr<std::set<const Executable*>> known_;
};

} // namespace

void Successors::add(const Executable& of, std::shared_ptr<const Executable> successor) {
  std::lock_guard lock(mutex_);
  next_[&of] = std::move(successor);
  generation_.fetch_add(1);
}

std::shared_ptr<const Executable> Successors::of(const Executable& executable) const {
  std::lock_guard lock(mutex_);
  std::shared_ptr<const Executable> last;
  for (auto it = next_.find(&executable); it != next_.end(); it = next_.find(last.get())) last = it->second;
  return last;
}

std::shared_ptr<CallObserver> observe_calls(std::shared_ptr<BackgroundWork> work,
                                            std::shared_ptr<const Successors> successors,
                                            std::shared_ptr<std::set<const Executable*>> known) {
  return std::make_shared<ObservedCalls>(std::move(work), std::move(successors), std::move(known));
}

} // namespace tessera
