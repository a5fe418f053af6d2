#include "requests.h"
#include "graph/support/stopwatch.h"
#include "measure.h"
#include "runtime/memory_account.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>
#include <sys/resource.h>

namespace tessera::command {
namespace {

constexpr int kFirst = 100, kSettled = 500; // requests after which nothing may be slow, and memory may not grow

int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{1024} * usage.ru_maxrss;
}

Json summary(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  if (values.empty()) return nullptr;
  return {{"p50", percentile(values, 0.5)}, {"p99", percentile(values, 0.99)}, {"max", values.back()}};
}

// ||a - b|| / ||b|| over all outputs of numbers.
double distance(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double difference = 0, norm = 0;
  for (size_t o = 0; o < a.size(); ++o) {
    if (!has_bytes(a[o].dtype())) continue;
    for (int64_t i = 0; i < a[o].count(); ++i) {
      const double x = a[o].get_f64(i), y = b[o].get_f64(i);
      difference += (x - y) * (x - y);
      norm += y * y;
    }
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

} // namespace

Result<Json> bench_requests(const ModelOptions& model, const RequestOptions& o) {
  TESSERA_ASSIGN(const SizeRanges ranges, parse_ranges("--vary", o.ranges));
  TESSERA_ASSIGN(const auto fixed, parse_shapes(model.shapes));
  TESSERA_ASSIGN(SessionOptions options, session_options(model, fixed));
  options.executor.memory = std::make_shared<MemoryAccount>(options.executor.memory_limit);
  TESSERA_ASSIGN(auto session, open_session(model, options));
  std::mt19937_64 random(o.seed);
  std::vector<double> first, second, ratio, late, plans;
  std::vector<double> errors;
  int64_t planned = 0, recompiled = 0, settled_host = 0, settled_device = 0;
  const auto& memory = *options.executor.memory;
  Progress progress;
  for (int r = 0; r < o.requests; ++r) {
    std::vector<ShapeArgument> shapes = fixed;
    for (const auto& [name, range] : ranges)
      shapes.push_back({name, {std::uniform_int_distribution<int64_t>(range.min, range.max)(random)}});
    Tensors tensors;
    std::vector<std::string> notes;
    TESSERA_ASSIGN(const Sizes sizes, choose_sizes(*session, tensors, shapes, notes));
    TESSERA_TRY(make_inputs(*session, sizes, o.seed + static_cast<uint64_t>(r), tensors));
    if (r == 0)
      for (const std::string& note : notes) say_note(note);
    RunStats stats;
    const Stopwatch watch;
    TESSERA_ASSIGN(auto outputs, session->run(tensors, &stats));
    const double once = watch.ms();
    outputs.clear(); // its memory may be used again
    TESSERA_ASSIGN(outputs, session->run(tensors));
    const double twice = watch.ms() - once;
    recompiled += stats.recompiles;
    if (stats.new_shape) {
      ++planned;
      first.push_back(once * 1e3);
      second.push_back(twice * 1e3);
      ratio.push_back(once / twice);
      plans.push_back(stats.plan_ms * 1e3);
      if (r >= kFirst) late.push_back(once * 1e3);
    }
    if (r + 1 == std::min(kSettled, o.requests)) {
      settled_host = peak_bytes();
      settled_device = memory.held(MemoryAccount::Where::Device);
    }
    if (o.checks > 0 && (r + 1) % std::max(1, o.requests / o.checks) == 0) {
      SessionOptions exact = options;
      exact.executor.memory = nullptr;
      for (const auto& [name, size] : sizes) exact.specialize[name] = {};
      TESSERA_ASSIGN(auto fresh, Session::open(model.model, std::move(exact)));
      TESSERA_ASSIGN(auto expected, fresh->run(tensors));
      errors.push_back(distance(outputs, expected));
    }
    if (r % 16 == 0) progress.show(std::to_string(r) + " requests");
  }
  progress.clear();
  Json j;
  j["model"] = model.model;
  j["device"] = session->variants().front()->executable->target;
  j["requests"] = o.requests;
  for (const auto& [name, range] : ranges) j["ranges"][name] = {range.min, range.max};
  j["new_shapes"] = planned;
  j["variants"] = session->compile_totals().variants;
  j["variant_counts"] = variant_counts(model.policy, *session);
  j["recompiles"] = recompiled;
  j["first_us"] = summary(first);
  j["second_us"] = summary(second);
  j["first_over_second"] = summary(ratio);
  j["plan_us"] = summary(plans);
  j["settled_after"] = std::min(kSettled, o.requests);
  j["first_us_after_100"] = summary(late);
  j["host_bytes"] = {{"settled", settled_host}, {"at_the_end", peak_bytes()}};
  j["device_bytes"] = {{"settled", settled_device}, {"at_the_end", memory.held(MemoryAccount::Where::Device)}};
  j["checked"] = errors.size();
  j["largest_error"] = summary(errors).is_null() ? Json(nullptr) : summary(errors)["max"];
  return j;
}

std::string requests_text(const Json& j) {
  auto numbers = [&](const char* key, auto format) {
    const Json& s = j[key];
    if (s.is_null()) return std::string("none");
    return "p50 " + format(s["p50"].template get<double>()) + ", p99 " + format(s["p99"].template get<double>()) +
           ", max " + format(s["max"].template get<double>());
  };
  auto time = [](double us) { return format_ms(us / 1e3); };
  auto number = [](double x) { return format_number(x, 2); };
  std::string out = j["requests"].dump() + " requests of " + j["new_shapes"].dump() + " new shapes, " +
                    j["variants"].dump() + " variants, " + j["device"].get<std::string>() + "\n";
  out += "first call of a shape: " + numbers("first_us", time) + "\n";
  out += "its second call:       " + numbers("second_us", time) + "\n";
  out += "of the first, planning: " + numbers("plan_us", time) + "\n";
  out += "first / second:        " + numbers("first_over_second", number) + "\n";
  out += "first calls after 100 requests: " + numbers("first_us_after_100", time) + "\n";
  auto memory = [&](const char* key) {
    return format_bytes(j[key]["settled"].get<double>()) + " after " + j["settled_after"].dump() + " requests, " +
           format_bytes(j[key]["at_the_end"].get<double>()) + " at the end";
  };
  out +=
      "peak memory of the process: " + memory("host_bytes") + "; held on the device: " + memory("device_bytes") + "\n";
  out += variants_text(j["variant_counts"]) + "\n";
  if (j["checked"] != 0)
    out += j["checked"].dump() + " results next to a fresh compile for their sizes: largest relative difference " +
           j["largest_error"].dump() + "\n";
  return out;
}

} // namespace tessera::command
