#include "api/c/metrics.h"
#include "api/c/context.h"
#include "api/c/struct.h"
#include "api/metric_fields.h"
#include "runtime/guards.h"
#include <array>
#include <atomic>
#include <bit>
#include <charconv>

namespace tessera {
namespace {

std::string explained(const RunStats& stats) {
  const GuardMiss& miss = stats.misses.back();
  std::string text = miss.guard.empty() ? std::to_string(miss.refused.size()) + " library calls are not computed"
                                        : "the call does not satisfy " + miss.guard;
  if (!miss.reason.empty()) text += " (" + miss.reason + ")";
  if (!miss.sizes.empty()) text += ", with " + sizes_text(miss.sizes);
  if (!miss.where.empty()) text += "; needed by " + miss.where;
  text += stats.recompiles > 0
              ? "; another variant was ready after " + std::to_string(static_cast<int64_t>(stats.recompile_ms)) + " ms"
              : "; there is no variant that fits";
  return text;
}

// Counts have one writer, and readers on any thread.
void count(uint64_t& counter, uint64_t by) {
  const std::atomic_ref shared(counter);
  shared.store(shared.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}
void add_counts(tessera_metrics& to, tessera_metrics& from) {
  using M = tessera_metrics;
  const auto read = [](uint64_t& counter) { return std::atomic_ref(counter).load(std::memory_order_relaxed); };
  for (const auto field : {&M::calls, &M::errors, &M::warmups, &M::new_shapes, &M::guard_misses, &M::latency_us})
    to.*field += read(from.*field);
  for (size_t i = 0; i < TESSERA_LATENCY_BUCKETS; ++i) to.latency[i] += read(from.latency[i]);
}

// 0: less than 1; i: from 2^(i-1) to below 2^i.
size_t bucket(uint64_t us) { return std::min<size_t>(std::bit_width(us), TESSERA_LATENCY_BUCKETS - 1); }

tessera_metrics read(const tessera_session& session) {
  tessera_metrics m{};
  session.metrics->shared()->add_to(m);
  const CompileTotals totals = session.session->compile_totals();
  m.variants = static_cast<uint64_t>(totals.variants);
  m.compiles = static_cast<uint64_t>(totals.compiles);
  m.failed_compiles = static_cast<uint64_t>(totals.failures);
  m.kernels = static_cast<uint64_t>(totals.kernels);
  m.cached_kernels = static_cast<uint64_t>(totals.cached_kernels);
  m.compile_ms = totals.ms;
  m.blocking_compiles = static_cast<uint64_t>(totals.blocking);
  m.blocking_ms = totals.blocking_ms;
  m.background_compiles = static_cast<uint64_t>(totals.background);
  m.queued_compiles = static_cast<uint64_t>(totals.queued);
  m.evictions = static_cast<uint64_t>(totals.evictions);
  m.swaps = static_cast<uint64_t>(totals.swaps);
  m.variant_bytes = static_cast<uint64_t>(totals.variant_bytes);
  m.load_ms = totals.load_ms;
  m.cached_plans = static_cast<uint64_t>(totals.cached_plans);
  m.contained_failures = static_cast<uint64_t>(totals.contained);
  m.threads = static_cast<uint64_t>(session.threads);
  return m;
}

// Prometheus' text format 0.0.4: base units, counters end in _total.
class PrometheusText {
public:
  explicit PrometheusText(std::string_view labels) : labels_(labels) {}
  void family(const std::string& name, std::string_view type, std::string_view help) {
    out_ += "# HELP " + name + " " + std::string(help) + ".\n# TYPE " + name + " " + std::string(type) + "\n";
  }
  void sample(const std::string& name, const std::string& value, const std::string& label = "") {
    const std::string labels = labels_ + (labels_.empty() || label.empty() ? "" : ",") + label;
    out_ += name + (labels.empty() ? "" : "{" + labels + "}") + " " + value + "\n";
  }
  [[nodiscard]] std::string take() { return std::move(out_); }

private:
  const std::string labels_;
  std::string out_;
};

std::string seconds(double s) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), s);
  return {text.data(), end.ptr};
}

std::string prometheus(const tessera_metrics& m, std::string_view labels) {
  PrometheusText text(labels);
  for (const MetricField& field : kMetricFields) {
    const bool counter = field.kind == MetricField::Kind::Counter, ms = field.name.ends_with("_ms");
    std::string name = "tessera_" + std::string(field.name.substr(0, field.name.size() - (ms ? 3 : 0)));
    if (field.name == "memory_limit") name += "_bytes";
    name += std::string(ms ? "_seconds" : "") + (counter ? "_total" : "");
    text.family(name, counter ? "counter" : "gauge", field.help);
    text.sample(name, ms ? seconds(m.*std::get<double tessera_metrics::*>(field.member) / 1e3)
                         : std::to_string(m.*std::get<uint64_t tessera_metrics::*>(field.member)));
  }
  const std::string latency = "tessera_latency_seconds";
  text.family(latency, "histogram", "Time of calls on the host");
  uint64_t calls = 0;
  for (size_t i = 0; i < TESSERA_LATENCY_BUCKETS; ++i) {
    calls += m.latency[i];
    const bool last = i + 1 == TESSERA_LATENCY_BUCKETS;
    const std::string most = last ? "+Inf" : seconds(static_cast<double>(uint64_t{1} << i) / 1e6);
    text.sample(latency + "_bucket", std::to_string(calls), "le=\"" + most + "\"");
  }
  text.sample(latency + "_sum", seconds(static_cast<double>(m.latency_us) / 1e6));
  text.sample(latency + "_count", std::to_string(calls));
  return text.take();
}

} // namespace

void SharedMetrics::add_to(tessera_metrics& m) {
  std::lock_guard lock(mutex_);
  add_counts(m, closed_);
  for (ContextMetrics* context : open_) add_counts(m, context->counts_);
  m.contexts = open_.size();
  m.memory_limit = static_cast<uint64_t>(memory_->limit());
  m.host_bytes = static_cast<uint64_t>(memory_->held(MemoryAccount::Where::Host));
  m.device_bytes = static_cast<uint64_t>(memory_->held(MemoryAccount::Where::Device));
  m.peak_bytes = static_cast<uint64_t>(memory_->peak());
}

std::string SharedMetrics::last_miss() const {
  std::lock_guard lock(mutex_);
  return last_miss_;
}

ContextMetrics::ContextMetrics(std::shared_ptr<SharedMetrics> shared) : shared_(std::move(shared)) {
  std::lock_guard lock(shared_->mutex_);
  shared_->open_.insert(this);
}
ContextMetrics::~ContextMetrics() {
  std::lock_guard lock(shared_->mutex_);
  shared_->open_.erase(this);
  add_counts(shared_->closed_, counts_);
}

void ContextMetrics::add(Kind kind, const RunStats& stats, bool ok, double us) {
  if (kind == Kind::Call) {
    const auto whole = static_cast<uint64_t>(std::max(us, 0.0));
    count(counts_.calls, 1);
    if (!ok) count(counts_.errors, 1);
    count(counts_.latency_us, whole);
    count(counts_.latency[bucket(whole)], 1);
  } else if (kind == Kind::WarmUp) {
    count(counts_.warmups, 1);
  }
  if (stats.new_shape) count(counts_.new_shapes, 1);
  if (stats.misses.empty()) return;
  count(counts_.guard_misses, stats.misses.size());
  if (ok && stats.recompiles == 0) return; // a variant that there was took the call
  std::string text = explained(stats);
  std::lock_guard lock(shared_->mutex_);
  shared_->last_miss_ = std::move(text);
}

} // namespace tessera

using namespace tessera;

const char* tessera_get_metrics(const tessera_session* session, tessera_metrics* metrics) {
  if (session == nullptr || metrics == nullptr)
    return record_error(usage("a session, and a place for the metrics, are needed"));
  return recorded("reading metrics", [&] {
    return give_struct("tessera_metrics", read(*session), TESSERA_BYTES_WITH(tessera_metrics, latency), *metrics);
  });
}

const char* tessera_metrics_text(tessera_session* session, const char* labels, const char** text) {
  if (text == nullptr) return record_error(usage("nowhere to put the text"));
  return call(session, "reading metrics", [&](tessera_session& s) -> Status {
    s.metrics_text = prometheus(read(s), labels == nullptr ? "" : labels);
    *text = s.metrics_text.c_str();
    return {};
  });
}

const char* tessera_last_miss(tessera_session* session, const char** text) {
  if (text == nullptr) return record_error(usage("nowhere to put the text"));
  return call(session, "explaining a miss", [&](tessera_session& s) -> Status {
    s.last_miss = s.metrics->shared()->last_miss();
    *text = s.last_miss.empty() ? nullptr : s.last_miss.c_str();
    return {};
  });
}
