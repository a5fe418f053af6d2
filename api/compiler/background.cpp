#include "api/compiler/background.h"
#include "base/environment.h"
#include "codegen/driver/compile.h"

namespace tessera {
namespace {

class TunedCalls final : public BackgroundWork {
public:
  TunedCalls(const CompileOptions& compile, const std::shared_ptr<TunedRecords>& records, BackgroundOptions options,
             BackgroundTuner::Hooks hooks)
      : tuner_(compile, records, std::move(options), std::move(hooks)) {}
  void begins() override { tuner_.begins(); }
  void ended(const std::shared_ptr<const Executable>& ran, std::span<const SymExpr> symbols,
             std::span<const int64_t> values) override {
    tuner_.ended(ran, symbols, values);
  }
  void stop() override { tuner_.stop(); }
  void wait_idle() override { tuner_.wait_idle(); }

private:
  BackgroundTuner tuner_;
};

// TESSERA_TUNE_SHARE, 0 where it is not set; opening a session has checked it.
double tune_share_of_environment() {
  const char* text = environment("TESSERA_TUNE_SHARE");
  return text ? std::strtod(text, nullptr) : 0;
}

} // namespace

bool wants_background_tuning(const SessionOptions& options) {
  return options.tune_share.value_or(tune_share_of_environment()) != 0;
}

Result<std::shared_ptr<BackgroundWork>>
tune_in_background(const SessionOptions& options, const std::shared_ptr<TunedRecords>& records, BackgroundHooks hooks) {
  const double share = options.tune_share.value_or(tune_share_of_environment());
  if (!(share >= 0 && share <= 1))
    return Diagnostic(ErrorCode::Usage, "tune_share: a share of the time is a number from 0 to 1");
  if (share == 0 || !records || options.compile_only) return std::shared_ptr<BackgroundWork>();
  BackgroundOptions background = options.background ? *options.background : BackgroundOptions{};
  background.share = share;
  BackgroundTuner::Hooks of_tuner;
  of_tuner.compiled = [hooks](const Executable& e) -> std::shared_ptr<const Compiled> {
    auto variant = hooks.variant(e);
    return variant ? variant->compiled.get() : nullptr;
  };
  // The variant once more, with the schedules that are known by now; executors take it with their next call.
  of_tuner.renew = [hooks](const Executable& e, const CompileOptions& compile) -> Status {
    const auto before = hooks.variant(e);
    if (!before || !before->compiled) return {};
    TESSERA_ASSIGN(Compiled again, compile_again(*before->compiled, compile));
    again.report.import_ms = before->compiled->report.import_ms;
    auto better = std::make_shared<SessionVariant>(*before);
    better->earlier.push_back(before->executable);
    better->executable = again.executable;
    better->compiled = std::make_shared<const Compiled>(std::move(again));
    hooks.replace(*before, std::move(better));
    return {};
  };
  return std::shared_ptr<BackgroundWork>(
      std::make_shared<TunedCalls>(options.compile, records, std::move(background), std::move(of_tuner)));
}

} // namespace tessera
