#include "measure/tune/tune.h"
#include "base/stopwatch.h"
#include "codegen/schedule/schedule_records.h"
#include <algorithm>
#include <ctime>

namespace tessera {
namespace {

// A kernel of the plan, with all those that are the same.
struct Work {
  const Group* group = nullptr;
  Hash128 key;
  std::string signature; // record_signature()
  std::vector<int64_t> extents;
  double bytes = 0; // moved by all of them
  TunedKernel out;
};

class Tuner {
public:
  Tuner(const Graph& graph, const FusionPlan& plan, const CompileOptions& compile, const Target& device,
        const CallSizes& sizes, TunedRecords& records, const TuneOptions& options)
      : graph_(graph), plan_(plan), compile_(compile), device_(device), sizes_(sizes), records_(records),
        options_(options) {}

  Result<TuneReport> run() {
    collect();
    std::vector<size_t> order(work_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return work_[a].bytes > work_[b].bytes; });
    TuneReport report;
    for (size_t i : order) {
      auto status = tune(work_[i]);
      if (!status.ok() && !options_.go_on_without_file) return std::move(status).take_error();
      if (!status.ok()) report.unwritten.push_back(std::move(status).take_error());
    }
    for (Work& w : work_) report.kernels.push_back(std::move(w.out));
    report.seconds = seconds();
    return report;
  }

private:
  [[nodiscard]] double seconds() const { return watch_.seconds(); }
  [[nodiscard]] bool expired() const {
    return seconds() >= options_.budget_seconds || (options_.stop && options_.stop());
  }

  void collect() {
    for (const Group& g : plan_.groups) {
      if (g.kind != Group::Kind::Kernel) continue;
      Work w;
      w.group = &g;
      w.out.name = g.name;
      auto domain = make_domain(graph_, g.nest);
      if (!domain.ok()) continue; // it was compiled, so this does not happen
      w.key = nest_key(graph_, g.nest, *domain);
      w.signature = record_signature(graph_, g.nest, *domain);
      bool known = true;
      for (const Axis& a : domain->axes) {
        auto n = a.extent.eval(sizes_);
        known = known && n.ok();
        if (n.ok()) w.extents.push_back(*n);
      }
      auto bytes = (g.bytes_read + g.bytes_written).eval(sizes_);
      w.bytes = bytes.ok() ? static_cast<double>(*bytes) : 0;
      if (!known) w.out.note = "its sizes are known only when the model runs";
      auto same = std::find_if(work_.begin(), work_.end(),
                               [&](const Work& o) { return o.key == w.key && o.extents == w.extents; });
      if (same == work_.end()) {
        work_.push_back(std::move(w));
        continue;
      }
      ++same->out.uses;
      same->bytes += w.bytes;
    }
  }

  Status tune(Work& w) {
    TunedKernel& out = w.out;
    if (!out.note.empty()) return {};
    const LoopNest& nest = w.group->nest;
    records_.refresh(); // another process may have measured it meanwhile
    if (auto known = records_.at(w.key, w.extents); known && !options_.again) {
      out.outcome = TunedKernel::Outcome::Known;
      out.record = std::move(*known);
      out.schedule = out.record.is_default() ? "the default schedule" : print(*out.record.schedule);
      return {};
    }
    auto left = [&](std::string why) {
      out.note = std::move(why);
      return Status();
    };
    for (const Store& s : nest.stores)
      if (std::find(nest.loads.begin(), nest.loads.end(), s.value) != nest.loads.end())
        return left("it reads what it writes");
    if (expired()) return left("the budget of time is used up");
    auto list = candidates(graph_, nest, device_, sizes_,
                           {.most = options_.candidates, .samples = options_.samples, .seed = options_.seed});
    if (!list.ok()) return left(list.error().message);
    if (list->empty()) return left("one kernel serves all of its sizes, or its sizes are not fixed");
    if (list->size() < 2) return left("there is nothing to choose");
    if (options_.progress) options_.progress(out.name + ": " + std::to_string(list->size()) + " schedules");
    MeasuredNest what{out.name, graph_, nest, sizes_, *list};
    auto measurer = options_.measurer ? options_.measurer(what) : make_measurer(what, compile_);
    if (!measurer.ok()) return left(measurer.error().message);
    SearchOptions search = options_.search;
    search.expired = [&] { return expired(); };
    auto alone = records_.measuring();
    if (!alone.ok()) return left(alone.error().message);
    auto found = tessera::search(list->size(), **measurer, search);
    static_cast<void>(alone->close());
    if (!found.ok()) return left(found.error().message);
    out.nest = print(graph_, nest);
    for (size_t c = 0; c < list->size(); ++c)
      out.measured.push_back(
          {(*list)[c].tuned.schedule, (*list)[c].estimate_us, found->first_us[c], (*measurer)->registers(c)});
    for (const auto& r : found->rejected) {
      out.rejected.push_back(print((*list)[r.candidate].tuned.schedule) +
                             (r.wrong ? " yields something else: " : " fails: ") + r.why);
      out.wrong += r.wrong;
    }
    const TunedSchedule& best = (*list)[found->best].tuned;
    out.schedule = print(best.schedule);
    TunedRecord& r = out.record;
    r.kernel = w.key;
    out.signature = w.signature;
    r.name = out.name;
    r.on = records_.target();
    r.extents = best.extents;
    r.measured_at = w.extents;
    if (found->best != 0) r.schedule = best.schedule;
    r.default_us = found->default_us;
    r.tuned_us = found->best_us;
    r.candidates = found->measured;
    r.time = static_cast<int64_t>(std::time(nullptr));
    if (!found->complete) return left("the budget of time was used up while it was measured");
    out.outcome = found->best == 0 ? TunedKernel::Outcome::Default : TunedKernel::Outcome::Tuned;
    return records_.add(std::span(&r, 1));
  }

  const Graph& graph_;
  const FusionPlan& plan_;
  const CompileOptions& compile_;
  const Target& device_;
  const CallSizes& sizes_;
  TunedRecords& records_;
  const TuneOptions& options_;
  Stopwatch watch_;
  std::vector<Work> work_;
};

} // namespace

Result<TuneReport> tune_kernels(const Graph& graph, const FusionPlan& plan, const CompileOptions& compile,
                                const Target& device, const CallSizes& sizes, TunedRecords& records,
                                const TuneOptions& options) {
  return Tuner(graph, plan, compile, device, sizes, records, options).run();
}

} // namespace tessera
