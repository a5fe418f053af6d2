#include "runtime/cuda/reports.h"
#include "runtime/device.h"
#include <algorithm>

namespace tessera::cuda {
namespace {

// The kernel that a step launches, if there is one.
const KernelLaunch* kernel_of(const Step& step) {
  if (const auto* k = std::get_if<KernelLaunch>(&step)) return k;
  if (const auto* l = std::get_if<LibraryStep>(&step))
    if (const auto& epilogue = *operands_of(*l).epilogue) return &epilogue->kernel;
  return nullptr;
}

bool checks(const KernelLaunch& kernel) {
  return !kernel.report_sites.empty() || std::any_of(kernel.alternatives.begin(), kernel.alternatives.end(), checks);
}

} // namespace

bool is_complete(const IndexReport& report) {
  const auto* words = reinterpret_cast<const volatile uint64_t*>(&report);
  const uint64_t key = words[0] >> IndexReport::kValueBits;
  for (int w = 1; w < IndexReport::kWords; ++w)
    if (words[w] >> IndexReport::kValueBits != key) return false;
  return key != 0;
}

Reports::Reports(const Variant& variant) : variant_(variant), steps_{-1} {
  for (size_t s = 0; s < variant.exe->steps.size(); ++s) {
    const auto* kernel = kernel_of(variant.exe->steps[s]);
    reports_.push_back(kernel && checks(*kernel) ? steps_.size() : 0);
    if (reports_.back() != 0) steps_.push_back(static_cast<int>(s));
  }
  arguments_.resize(reports_.size());
  launched.resize(reports_.size());
}

void Reports::place(IndexReport* memory, CUdeviceptr seen_by_gpu) {
  memory_ = memory;
  for (size_t s = 0; s < reports_.size(); ++s) arguments_[s] = seen_by_gpu + reports_[s] * sizeof(IndexReport);
}

bool Reports::any() const {
  for (size_t r = 1; r < count(); ++r)
    if (*reinterpret_cast<const volatile uint64_t*>(memory_ + r) != 0) return true; // its first word
  return false;
}

bool Reports::complete() const {
  bool some = false;
  for (size_t r = 1; r < count(); ++r) {
    if (*reinterpret_cast<const volatile uint64_t*>(memory_ + r) == 0) continue;
    if (!is_complete(memory_[r])) return false;
    some = true;
  }
  return some;
}

void Reports::clear() {
  std::fill_n(memory_, count(), IndexReport());
  stale = false;
}

Diagnostic Reports::first(const std::vector<int64_t>& values, const std::vector<bool>& bound) const {
  size_t r = 1;
  while (!memory_[r].any()) ++r;
  return bad_index(*launched[static_cast<size_t>(steps_[r])], memory_[r], variant_.symbol_values(values, bound));
}
Diagnostic Reports::first(const Variant::CallState& call) const { return first(call.values, call.bound); }
Diagnostic Reports::first_noted() const { return first(values_, bound_); }

void Reports::note(const Variant::CallState& call, bool alone) {
  if (alone) {
    values_ = call.values;
    bound_ = call.bound;
  } else if (values_ != call.values || bound_ != call.bound) {
    bound_.assign(call.bound.size(), false);
  }
}

void UnreadReports::note(Reports& reports, const Variant::CallState& call, bool captured) {
  auto known = [&](const auto& in) { return std::find(in.begin(), in.end(), &reports) != in.end(); };
  reports.note(call, !known(calls_) && !known(graphs_));
  auto& in = captured ? graphs_ : calls_;
  if (!known(in)) in.push_back(&reports);
}

void UnreadReports::forget(Reports& reports) {
  std::erase(calls_, &reports);
  std::erase(graphs_, &reports);
}

Reports* UnreadReports::bad() const {
  for (Reports* r : calls_)
    if (r->any()) return r;
  for (Reports* r : graphs_)
    if (r->complete()) return r;
  return nullptr;
}

} // namespace tessera::cuda
