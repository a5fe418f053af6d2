// The fields of tessera_metrics as a table: what reads them by name, and their text for Prometheus, derive from it.
#pragma once
#include "api/c.h"
#include <array>
#include <string_view>
#include <variant>

namespace tessera {

struct MetricField {
  enum class Kind : uint8_t { Counter, Gauge }; // only grows, or what there is now
  std::string_view name;                        // of the field; a counter of milliseconds ends in _ms
  std::variant<uint64_t tessera_metrics::*, double tessera_metrics::*> member;
  Kind kind;
  std::string_view help; // a sentence without its full stop
};

// All but latency and latency_us, which are one histogram.
inline constexpr auto kMetricFields = [] {
  using M = tessera_metrics;
  constexpr auto counter = MetricField::Kind::Counter, gauge = MetricField::Kind::Gauge;
  return std::array{
      MetricField{"calls", &M::calls, counter, "Calls that ran the model, without warm-ups"},
      MetricField{"errors", &M::errors, counter, "Calls that ended with an error"},
      MetricField{"warmups", &M::warmups, counter, "Warm-ups"},
      MetricField{"new_shapes", &M::new_shapes, counter, "Calls and warm-ups of sizes without a plan"},
      MetricField{"guard_misses", &M::guard_misses, counter, "Calls that a variant did not fit"},
      MetricField{"variants", &M::variants, gauge, "Variants of the model"},
      MetricField{"compiles", &M::compiles, counter, "Compiles of variants"},
      MetricField{"failed_compiles", &M::failed_compiles, counter, "Compiles that gave no variant"},
      MetricField{"kernels", &M::kernels, counter, "Kernels that the compiles needed"},
      MetricField{"cached_kernels", &M::cached_kernels, counter, "Kernels that the cache folder had"},
      MetricField{"compile_ms", &M::compile_ms, counter, "Time of compiles, imports of the model included"},
      MetricField{"contexts", &M::contexts, gauge, "Contexts that are open"},
      MetricField{"memory_limit", &M::memory_limit, gauge, "Most bytes that may be held for runs; 0 for any number"},
      MetricField{"host_bytes", &M::host_bytes, gauge, "Bytes of the host's memory held for runs"},
      MetricField{"device_bytes", &M::device_bytes, gauge, "Bytes of the GPU's memory held for runs"},
      MetricField{"peak_bytes", &M::peak_bytes, gauge, "Most bytes of both that were held at a time"},
      MetricField{"blocking_compiles", &M::blocking_compiles, counter, "Compiles that a call waited for"},
      MetricField{"blocking_ms", &M::blocking_ms, counter, "Time that calls waited for compiles"},
      MetricField{"background_compiles", &M::background_compiles, counter, "Compiles that no call waited for"},
      MetricField{"queued_compiles", &M::queued_compiles, gauge, "Compiles that are yet to begin in the background"},
      MetricField{"evictions", &M::evictions, counter, "Variants made for sizes that others took the place of"},
      MetricField{"swaps", &M::swaps, counter, "Variants and plans replaced between two calls of a context"},
      MetricField{"variant_bytes", &M::variant_bytes, gauge, "Bytes of variants made for sizes"},
      MetricField{"load_ms", &M::load_ms, counter, "Time of loading compiled files"},
      MetricField{"cached_plans", &M::cached_plans, counter, "Compiles whose result the cache folder had"},
      MetricField{"contained_failures", &M::contained_failures, counter,
                  "Internal failures of compiles that cost one kernel's schedule, route or pass"},
      MetricField{"threads", &M::threads, gauge, "Threads of the host that calls run on"},
  };
}();
// struct_size, latency_us and latency are the rest.
static_assert(sizeof(tessera_metrics) ==
              sizeof(size_t) + sizeof(uint64_t) * (1 + TESSERA_LATENCY_BUCKETS + kMetricFields.size()));

} // namespace tessera
