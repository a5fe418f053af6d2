#include "runtime/choose_variant.h"
#include "graph/support/log.h"
#include <algorithm>

namespace tessera {
namespace {

std::string text_of(const std::map<std::string, int64_t>& sizes) {
  std::string text;
  for (const auto& [name, value] : sizes) text += (text.empty() ? "" : ", ") + name + " = " + std::to_string(value);
  return text;
}

GuardMiss refused_calls(const LoadedVariant& l, const RefusedCalls& calls) {
  GuardMiss miss;
  miss.reason = calls.error.message;
  for (size_t s = 0; s < l.variant().slots.size(); ++s)
    if (l.call.bound[s]) miss.sizes.emplace(l.variant().slots[s].symbol_name(), l.call.values[s]);
  miss.refused_in = l.variant().owner;
  miss.refused = calls.steps;
  return miss;
}

std::vector<int64_t> input_sizes(const LoadedVariant& l) {
  const auto count = static_cast<std::ptrdiff_t>(input_symbols(l.variant()));
  return {l.call.values.begin(), l.call.values.begin() + count};
}

// Nothing but the sizes of inputs is known yet.
bool knows_inputs_alone(const LoadedVariant& l) {
  const auto first = l.call.bound.begin() + static_cast<std::ptrdiff_t>(input_symbols(l.variant()));
  return std::find(first, l.call.bound.end(), true) == l.call.bound.end();
}

} // namespace

void VariantList::insert(size_t at, std::shared_ptr<const Executable> executable,
                         std::unique_ptr<LoadedVariant> variant) {
  const auto offset = static_cast<std::ptrdiff_t>(at);
  executables.insert(executables.begin() + offset, std::move(executable));
  loaded.insert(loaded.begin() + offset, Loaded{std::move(variant), {}});
}

size_t input_symbols(const Variant& v) {
  const auto later = std::find_if(v.slot_segment.begin(), v.slot_segment.end(), [](int s) { return s > 0; });
  return static_cast<size_t>(later - v.slot_segment.begin());
}

// Nothing: the variant fits.
std::optional<VariantChoice::Refusal> VariantChoice::refusal(LoadedVariant& l,
                                                             std::span<const Tensor* const> inputs) const {
  std::vector<HostPhase>* phases = options_.profile ? &stats_.phases : nullptr;
  {
    const PhaseTimer timer(phases, "bind");
    if (auto s = l.variant().bind(inputs, l.call); !s.ok()) return Refusal{s.error(), &l, -1, false, {}};
  }
  const PhaseTimer timer(phases, "guards");
  const int g = l.variant().guards.check(l.call.values, l.call.bound, l.call.guards);
  if (g < 0) return std::nullopt;
  return refused_by(l, g);
}

VariantChoice::Refusal VariantChoice::refused_by(LoadedVariant& l, int guard) {
  const GuardSet& guards = l.variant().guards;
  return {std::nullopt, &l, guard, !guards.required(guard), guards.explain(guard, l.call.values, l.call.bound)};
}

Diagnostic VariantChoice::Refusal::error() const {
  if (other) return *other;
  Diagnostic error(ErrorCode::GuardFailed,
                   "the inputs do not satisfy " + guard.guard + " (" + guard.reason + "): " + text_of(guard.sizes));
  for (const SymExpr& symbol : variant->variant().guards.guard(index).condition.symbols()) {
    std::string places;
    for (const auto& input : variant->variant().exe->inputs) {
      const auto& shape = variant->variant().exe->buffers[static_cast<size_t>(input.buffer)].shape;
      for (size_t d = 0; d < shape.size(); ++d)
        if (shape[d] == symbol)
          places += (places.empty() ? " is dimension " : ", dimension ") + std::to_string(d) + " of input '" +
                    input.name + "'";
    }
    if (!places.empty()) error.note(symbol.symbol_name() + places);
  }
  if (!guard.where.empty()) error.note("needed by " + guard.where);
  return error;
}

void VariantChoice::record(const Refusal& r) {
  if (!r.miss) return;
  stats_.misses.push_back(r.guard);
  if (log_enabled(LogChannel::Guards))
    log_write(LogChannel::Guards, "variant " + std::to_string(at_) + " missed: " + r.error().message);
  const auto same = [&](const GuardMiss& m) { return m.sizes == r.guard.sizes; };
  if (std::none_of(misses_.begin(), misses_.end(), same)) misses_.push_back(r.guard);
}

// Of several, one that says more of the call: what a variant read before it missed.
GuardMiss VariantChoice::take_miss() {
  const auto most = std::max_element(misses_.begin(), misses_.end(), [](const GuardMiss& a, const GuardMiss& b) {
    return a.sizes.size() < b.sizes.size();
  });
  GuardMiss out = std::move(*most);
  misses_.erase(most);
  return out;
}

const GuardMiss* VariantChoice::missed() const {
  return !without_error_ && by_generic_ && by_generic_->miss ? &by_generic_->guard : nullptr;
}

void VariantChoice::compiled(bool done) {
  wanted_.reset();
  if (done) misses_.clear(); // what is compiled is made for the call
}

// Whether libraries refused calls of the variant, which is bound, at these sizes before.
bool VariantChoice::skips(VariantList::Loaded& loaded) {
  if (loaded.refused.empty() || !loaded.refused.contains(input_sizes(*loaded.variant))) return false;
  skipped_ = true;
  return true;
}

// Before a call fails: those that were passed over are tried, too.
bool VariantChoice::forget_refusals() {
  if (!std::exchange(skipped_, false)) return false;
  for (auto& loaded : list_.loaded) loaded.refused.clear();
  return true;
}

void VariantChoice::refuse_calls(LoadedVariant& l, BodyMiss without) {
  if (knows_inputs_alone(l)) refusing_.emplace_back(&l, input_sizes(l));
  without_error_ = without.error;
  without_ = std::move(without);
}

std::optional<VariantChoice::Refusal> VariantChoice::use_variant(LoadedVariant& l, const Use& use,
                                                                 std::optional<Result<std::vector<Tensor>>>& outcome) {
  constexpr size_t kMostRefused = 256; // sets of sizes of a variant
  LoadedVariant::Outcome done = use(l);
  if (auto* answer = std::get_if<Result<std::vector<Tensor>>>(&done)) {
    if (answer->ok()) // another one answers what these were refused
      for (auto& loaded : list_.loaded)
        for (auto& [refused, sizes] : refusing_) {
          if (refused != loaded.variant.get()) continue;
          if (loaded.refused.size() >= kMostRefused) loaded.refused.clear();
          loaded.refused.insert(std::move(sizes));
        }
    outcome = std::move(*answer);
    return std::nullopt;
  }
  if (auto* calls = std::get_if<RefusedCalls>(&done)) {
    GuardMiss miss = refused_calls(l, *calls);
    refuse_calls(l, {std::move(calls->error), std::move(miss)});
    return std::nullopt;
  }
  if (auto* body = std::get_if<BodyMiss>(&done)) {
    if (body->miss.refused.empty()) return Refusal{std::move(body->error), &l, -1, true, std::move(body->miss)};
    refuse_calls(l, std::move(*body));
    return std::nullopt;
  }
  Refusal refused = refused_by(l, std::get<MidRunMiss>(done).guard);
  if (!refused.miss) outcome = refused.error();
  return refused;
}

Result<std::vector<Tensor>> VariantChoice::run(std::span<const Tensor* const> inputs, const Use& use) {
  for (; at_ < list_.loaded.size(); ++at_) {
    LoadedVariant& l = *list_.loaded[at_].variant;
    const bool generic = at_ == list_.generic;
    if (generic && options_.before_generic && !misses_.empty() && may_compile_ > 0) {
      // Inputs that no variant can take are an error, not a reason to compile.
      if (auto hard = refusal(l, inputs); hard && !hard->miss) return hard->error();
      --may_compile_;
      wanted_ = Wanted{take_miss(), at_};
      misses_.clear();
      return std::vector<Tensor>();
    }
    auto refused = refusal(l, inputs);
    if (!refused) {
      if (skips(list_.loaded[at_])) continue;
      stats_.variant = static_cast<int>(at_);
      std::optional<Result<std::vector<Tensor>>> outcome;
      refused = use_variant(l, use, outcome);
      if (outcome) return std::move(*outcome);
      if (!refused) continue;
    }
    // Sizes that another variant than the generic one does not take are a miss like any other.
    if (!generic && refused->other && refused->other->code == ErrorCode::BadInput) {
      refused->miss = true;
      refused->guard.guard = refused->other->message;
      refused->guard.reason = "sizes that the variant was compiled for";
    }
    if (generic && !refused->miss) return refused->error();
    record(*refused);
    if (generic) by_generic_ = std::move(refused);
  }
  if (!forget_refusals()) return none_fits();
  at_ = 0;
  return run(inputs, use);
}

Result<std::vector<Tensor>> VariantChoice::none_fits() {
  if (without_) {
    // Another variant that does without these calls.
    stats_.misses.push_back(without_->miss);
    const bool once_more = options_.compiles && replacements_ < kMaxReplacements;
    ++replacements_;
    if (once_more) wanted_ = Wanted{std::move(without_->miss), at_};
    without_.reset();
    if (once_more) return std::vector<Tensor>();
  } else if (!misses_.empty() && may_compile_ > 0) {
    --may_compile_;
    wanted_ = Wanted{take_miss(), at_};
    return std::vector<Tensor>();
  }
  if (without_error_) return *without_error_;
  return by_generic_->error();
}

} // namespace tessera
