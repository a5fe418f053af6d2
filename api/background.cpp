#include "api/background.h"
#include <cstdlib>

namespace tessera {
namespace {

constexpr const char* kVariable = "TESSERA_TUNE_SHARE";

class TunedCalls final : public CallObserver {
public:
  TunedCalls(std::shared_ptr<BackgroundTuner> tuner, std::shared_ptr<const Successors> successors,
             std::shared_ptr<std::set<const Executable*>> known)
      : tuner_(std::move(tuner)), successors_(std::move(successors)), known_(std::move(known)) {}
  void begins() override { tuner_->begins(); }
  void ended(const std::shared_ptr<const Executable>& ran, std::span<const SymExpr> symbols,
             std::span<const int64_t> values) override {
    tuner_->ended(ran, symbols, values);
  }
  [[nodiscard]] uint64_t generation() const override { return successors_->generation(); }
  [[nodiscard]] std::shared_ptr<const Executable> successor(const Executable& of) override {
    auto next = successors_->of(of);
    if (next) known_->insert(next.get());
    return next;
  }

private:
  std::shared_ptr<BackgroundTuner> tuner_;
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

std::shared_ptr<CallObserver> observe_calls(std::shared_ptr<BackgroundTuner> tuner,
                                            std::shared_ptr<const Successors> successors,
                                            std::shared_ptr<std::set<const Executable*>> known) {
  return std::make_shared<TunedCalls>(std::move(tuner), std::move(successors), std::move(known));
}

Status check_tune_share(double share, const std::string& where) {
  if (share >= 0 && share <= 1) return {};
  return Diagnostic(ErrorCode::Usage, where + ": a share of the time is a number from 0 to 1");
}

Result<double> tune_share_of_environment() {
  const char* text = std::getenv(kVariable);
  if (!text || !*text) return 0.0;
  char* end = nullptr;
  const double share = std::strtod(text, &end);
  TESSERA_TRY(check_tune_share(*end ? -1 : share, std::string(kVariable) + "=" + text));
  return share;
}

} // namespace tessera
