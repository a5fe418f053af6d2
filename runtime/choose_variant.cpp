#include "runtime/choose_variant.h"
#include "base/log.h"
#include <algorithm>

namespace tessera {
namespace {

std::vector<int64_t> input_sizes(const LoadedExecutable& l) {
  const auto count = static_cast<std::ptrdiff_t>(input_symbols(l.variant()));
  return {l.call.values.begin(), l.call.values.begin() + count};
}

// Nothing but the sizes of inputs is known yet.
bool knows_inputs_alone(const LoadedExecutable& l) {
  const auto first = l.call.bound.begin() + static_cast<std::ptrdiff_t>(input_symbols(l.variant()));
  return std::find(first, l.call.bound.end(), true) == l.call.bound.end();
}

} // namespace

size_t input_symbols(const Variant& v) {
  const auto later = std::find_if(v.slot_segment.begin(), v.slot_segment.end(), [](int s) { return s > 0; });
  return static_cast<size_t>(later - v.slot_segment.begin());
}

Result<Candidate*> CallChoice::next(std::span<const Tensor* const> inputs) {
  do {
    for (Candidate& candidate : candidates_.all) {
      if (candidate.tried == call_) continue;
      candidate.tried = call_;
      auto refusal = candidate.loaded->refusal(inputs, phases_);
      if (!refusal) {
        if (skips(candidate)) continue;
        stats_.variant = candidate.entry.index;
        return &candidate;
      }
      const bool generic = &candidate == &candidates_.all[candidates_.generic];
      if (generic && !refusal->miss) return refusal->error();
      // Sizes that another variant than the generic one does not take are a miss like any other.
      if (refusal->known && refusal->known->code == ErrorCode::BadInput)
        refusal->miss = GuardMiss{.guard = refusal->known->message,
                                  .reason = "sizes that the variant was compiled for",
                                  .where = {},
                                  .sizes = {},
                                  .refused_in = nullptr};
      note(candidate, std::move(*refusal));
    }
  } while (takes_skipped());
  return nullptr;
}

// Whether libraries refused calls of the variant, which is bound, at these sizes before.
bool CallChoice::skips(Candidate& candidate) {
  if (candidate.refused.empty() || !candidate.refused.contains(input_sizes(*candidate.loaded))) return false;
  skipped_.push_back(&candidate);
  return true;
}

// Before a call fails, those that were passed over are tried, too.
bool CallChoice::takes_skipped() {
  if (skipped_.empty()) return false;
  for (Candidate& candidate : candidates_.all) candidate.refused.clear();
  for (Candidate* candidate : std::exchange(skipped_, {})) candidate->tried = 0;
  return true;
}

void CallChoice::answered() {
  constexpr size_t kMaxRefused = 256; // sets of sizes of a variant
  for (auto& [number, sizes] : refusing_)
    for (Candidate& candidate : candidates_.all) {
      if (candidate.entry.number != number) continue;
      if (candidate.refused.size() >= kMaxRefused) candidate.refused.clear();
      candidate.refused.insert(std::move(sizes));
      break;
    }
}

Status CallChoice::refused(Candidate& candidate, Refusal refusal) {
  if (!refusal.miss) return refusal.error();
  if (refusal.miss->refused.empty()) {
    note(candidate, std::move(refusal));
    return {};
  }
  if (knows_inputs_alone(*candidate.loaded))
    refusing_.emplace_back(candidate.entry.number, input_sizes(*candidate.loaded));
  without_error_ = refusal.error();
  without_ = std::move(refusal.miss);
  return {};
}

void CallChoice::note(Candidate& candidate, Refusal refusal) {
  if (const auto& miss = refusal.miss) {
    stats_.misses.push_back(*miss);
    if (log_enabled(LogChannel::Guards))
      log_write(LogChannel::Guards,
                "variant " + std::to_string(candidate.entry.index) + " missed: " + refusal.error().message);
    const auto same = [&](const GuardMiss& m) { return m.sizes == miss->sizes; };
    if (std::none_of(misses_.begin(), misses_.end(), same)) misses_.push_back(*miss);
  }
  if (&candidate == &candidates_.all[candidates_.generic]) by_generic_ = std::move(refusal);
}

std::optional<GuardMiss> CallChoice::wanted() {
  constexpr int kMaxCompiles = 8; // in one call: values that are read on the way may each refute a guess
  constexpr int kMaxReplacements = 3;
  if (without_) { // another variant that does without these calls
    stats_.misses.push_back(*without_);
    auto miss = std::exchange(without_, std::nullopt);
    return replacements_++ < kMaxReplacements ? std::move(miss) : std::nullopt;
  }
  if (misses_.empty() || compiles_++ >= kMaxCompiles) return std::nullopt;
  // Takes the miss that says most of the call: the values that a variant read before it missed.
  const auto most = std::max_element(misses_.begin(), misses_.end(), [](const GuardMiss& a, const GuardMiss& b) {
    return a.sizes.size() < b.sizes.size();
  });
  auto miss = std::move(*most);
  misses_.erase(most);
  return miss;
}

} // namespace tessera
