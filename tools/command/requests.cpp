#include "requests.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/stopwatch.h"
#include "measure.h"
#include "runtime/memory_account.h"
#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>
#include <unistd.h>

namespace tessera::command {
namespace {

constexpr int kFirst = 100, kEarly = 500; // requests after which nothing may be slow, and memory may not grow
constexpr size_t kSlowest = 5;            // new shapes after kFirst that are named

int64_t resident_bytes() {
  int64_t mapped = 0, resident = 0;
  if (const auto text = read_file("/proc/self/statm"); text.ok()) std::istringstream(*text) >> mapped >> resident;
  return resident * sysconf(_SC_PAGESIZE);
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

Hash128 bits_of(const std::vector<Tensor>& tensors) {
  std::string all;
  for (const Tensor& t : tensors)
    if (has_bytes(t.dtype())) all += hash128(t.data(), t.bytes()).hex();
  return hash128(all);
}

// A request that is made again when all have been answered.
struct Checked {
  Sizes sizes;
  uint64_t seed = 0;
  Hash128 bits; // of its results
};

// The first call of a shape.
struct NewShape {
  int request = 0;
  Sizes sizes;
  double first_us = 0, second_us = 0, plan_us = 0;
  double later_us = 0; // of those before kFirst: the same call when all requests have been answered
  [[nodiscard]] double above() const { return first_us - second_us; }
};

struct Memory {
  int64_t host = 0, device = 0; // bytes
};

class RequestBench {
public:
  RequestBench(const ModelOptions& model, const RequestOptions& options)
      : model_(model), o_(options), random_(options.seed) {}

  Result<Json> run() {
    TESSERA_ASSIGN(ranges_, parse_ranges("--vary", o_.ranges));
    TESSERA_ASSIGN(fixed_, parse_shapes(model_.shapes));
    TESSERA_ASSIGN(options_, session_options(model_, fixed_));
    options_.executor.memory = std::make_shared<MemoryAccount>(options_.executor.memory_limit);
    TESSERA_ASSIGN(session_, open_session(model_, options_));
    Memory early;
    Progress progress;
    for (int r = 0; r < o_.requests; ++r) {
      TESSERA_TRY(request(r));
      if (r + 1 == std::min(kEarly, o_.requests)) early = memory();
      if (r % 16 == 0) progress.show(std::to_string(r) + " requests");
    }
    const Memory at_the_end = memory();
    TESSERA_TRY(measure_later());
    for (const Checked& c : checked_) {
      TESSERA_TRY(check(c));
      progress.show(std::to_string(errors_.size()) + " of " + std::to_string(checked_.size()) + " results checked");
    }
    progress.clear();
    return report(early, at_the_end);
  }

private:
  Memory memory() const { return {resident_bytes(), options_.executor.memory->held(MemoryAccount::Where::Device)}; }

  Status request(int r) {
    std::vector<ShapeArgument> shapes = fixed_;
    for (const auto& [name, range] : ranges_)
      shapes.push_back({name, {std::uniform_int_distribution<int64_t>(range.min, range.max)(random_)}});
    Tensors tensors;
    std::vector<std::string> notes;
    TESSERA_ASSIGN(const Sizes sizes, choose_sizes(*session_, tensors, shapes, notes));
    const uint64_t seed = o_.seed + static_cast<uint64_t>(r);
    TESSERA_TRY(make_inputs(*session_, sizes, seed, tensors));
    if (r == 0)
      for (const std::string& note : notes) say_note(note);
    RunStats stats;
    const Stopwatch watch;
    TESSERA_ASSIGN(auto outputs, session_->run(tensors, &stats));
    const double once = watch.ms();
    outputs.clear(); // its memory may be used again
    TESSERA_ASSIGN(outputs, session_->run(tensors));
    const double twice = watch.ms() - once;
    recompiled_ += stats.recompiles;
    if (stats.new_shape) new_.push_back({r, sizes, once * 1e3, twice * 1e3, stats.plan_ms * 1e3});
    if (o_.checks > 0 && (r + 1) % std::max(1, o_.requests / o_.checks) == 0)
      checked_.push_back({sizes, seed, bits_of(outputs)});
    return {};
  }

  // The first calls of a process also load kernels in the background, which is over by then.
  Status measure_later() {
    TESSERA_TRY(session_->wait());
    for (NewShape& n : new_) {
      if (n.request >= kFirst) break;
      Tensors tensors;
      TESSERA_TRY(make_inputs(*session_, n.sizes, o_.seed + static_cast<uint64_t>(n.request), tensors));
      TESSERA_ASSIGN(auto outputs, session_->run(tensors)); // its plan may have gone
      outputs.clear();
      const Stopwatch watch;
      TESSERA_ASSIGN(outputs, session_->run(tensors));
      n.later_us = watch.us();
    }
    return {};
  }

  Status check(const Checked& c) {
    Tensors tensors;
    TESSERA_TRY(make_inputs(*session_, c.sizes, c.seed, tensors));
    TESSERA_ASSIGN(auto outputs, session_->run(tensors));
    if (bits_of(outputs) != c.bits) ++other_bits_;
    SessionOptions exact = options_;
    exact.executor.memory = nullptr;
    for (const auto& [name, size] : c.sizes) exact.specialize[name] = {};
    TESSERA_ASSIGN(auto fresh, Session::open(model_.model, std::move(exact)));
    TESSERA_ASSIGN(auto expected, fresh->run(tensors));
    errors_.push_back(distance(outputs, expected));
    return {};
  }

  Json report(const Memory& early, const Memory& at_the_end) const {
    Json j;
    j["model"] = model_.model;
    j["device"] = session_->variants().front()->executable->target;
    j["requests"] = o_.requests;
    for (const auto& [name, range] : ranges_) j["ranges"][name] = {range.min, range.max};
    j["new_shapes"] = new_.size();
    j["variants"] = session_->compile_totals().variants;
    j["variant_counts"] = variant_counts(model_.options.policy, *session_);
    j["recompiles"] = recompiled_;
    auto each = [&](auto value) {
      std::vector<double> values;
      for (const NewShape& n : new_) values.push_back(value(n));
      return summary(std::move(values));
    };
    j["first_us"] = each([](const NewShape& n) { return n.first_us; });
    j["second_us"] = each([](const NewShape& n) { return n.second_us; });
    j["first_over_second"] = each([](const NewShape& n) { return n.first_us / n.second_us; });
    j["plan_us"] = each([](const NewShape& n) { return n.plan_us; });
    double first = 0, second = 0; // ms above the same calls later
    std::vector<double> late;
    std::vector<NewShape> slowest;
    for (const NewShape& n : new_) {
      if (n.request < kFirst) {
        first += (n.first_us - n.later_us) / 1e3;
        second += (n.second_us - n.later_us) / 1e3;
        continue;
      }
      late.push_back(n.above());
      slowest.push_back(n);
    }
    j["start"] = {{"requests", std::min(kFirst, o_.requests)}, {"first_ms", first}, {"second_ms", second}};
    j["new_shape_us_after_100"] = summary(late);
    const auto end = slowest.begin() + static_cast<std::ptrdiff_t>(std::min(kSlowest, slowest.size()));
    std::partial_sort(slowest.begin(), end, slowest.end(), [](auto& x, auto& y) { return x.above() > y.above(); });
    j["slowest_after_100"] = Json::array();
    for (auto n = slowest.begin(); n != end; ++n)
      j["slowest_after_100"].push_back({{"request", n->request},
                                        {"sizes", n->sizes},
                                        {"first_us", n->first_us},
                                        {"second_us", n->second_us},
                                        {"plan_us", n->plan_us}});
    j["settled_after"] = std::min(kEarly, o_.requests);
    j["host_bytes"] = {{"settled", early.host}, {"at_the_end", at_the_end.host}};
    j["device_bytes"] = {{"settled", early.device}, {"at_the_end", at_the_end.device}};
    j["checked"] = errors_.size();
    j["other_bits"] = other_bits_;
    j["largest_error"] = errors_.empty() ? Json(nullptr) : summary(errors_)["max"];
    return j;
  }

  const ModelOptions& model_;
  const RequestOptions& o_;
  std::mt19937_64 random_;
  SizeRanges ranges_;
  std::vector<ShapeArgument> fixed_;
  SessionOptions options_;
  std::unique_ptr<Session> session_;
  std::vector<NewShape> new_;
  std::vector<Checked> checked_;
  std::vector<double> errors_;
  int64_t recompiled_ = 0;
  int other_bits_ = 0; // checked requests whose results are not those of before, bit for bit
};

} // namespace

Result<Json> bench_requests(const ModelOptions& model, const RequestOptions& options) {
  return RequestBench(model, options).run();
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
  const Json& start = j["start"];
  out += "the first " + start["requests"].dump() + " requests above the same calls later: first calls " +
         format_ms(start["first_ms"].get<double>()) + " in all, second calls " +
         format_ms(start["second_ms"].get<double>()) + "\n";
  out += "of the first, planning: " + numbers("plan_us", time) + "\n";
  out += "first / second:        " + numbers("first_over_second", number) + "\n";
  out += "first less second, after 100 requests: " + numbers("new_shape_us_after_100", time) + "\n";
  for (const Json& n : j["slowest_after_100"]) {
    out += "  request " + n["request"].dump() + ":";
    for (const auto& [name, size] : n["sizes"].items()) out += " " + name + "=" + size.dump();
    out += ", first call " + time(n["first_us"].get<double>()) + ", planning " + time(n["plan_us"].get<double>()) +
           ", second call " + time(n["second_us"].get<double>()) + "\n";
  }
  auto memory = [&](const char* key) {
    return format_bytes(j[key]["settled"].get<double>()) + " after " + j["settled_after"].dump() + " requests, " +
           format_bytes(j[key]["at_the_end"].get<double>()) + " at the end";
  };
  out += "memory of the process: " + memory("host_bytes") + "; held on the device: " + memory("device_bytes") + "\n";
  out += variants_text(j["variant_counts"]) + "\n";
  if (j["checked"] != 0)
    out += j["checked"].dump() + " results next to a fresh compile for their sizes: largest relative difference " +
           j["largest_error"].dump() + "; " + j["other_bits"].dump() + " differ from what the first calls gave\n";
  return out;
}

} // namespace tessera::command
