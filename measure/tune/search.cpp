#include "measure/tune/search.h"
#include <algorithm>

namespace tessera {
namespace {

double median(std::vector<double> v) {
  auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

} // namespace

Result<SearchResult> search(size_t count, Measurer& measurer, const SearchOptions& o) {
  SearchResult out;
  out.first_us.assign(count, -1);
  auto expired = [&] { return o.expired && o.expired(); };
  std::vector<size_t> order;
  for (size_t c = 0; c < count; ++c) {
    if (c > 0 && expired()) {
      out.complete = false;
      break;
    }
    std::vector<double> times;
    std::optional<Diagnostic> error;
    for (int i = 0; i < o.warmup + o.first_runs && !error; ++i) {
      auto t = measurer.time_us(c);
      if (!t.ok())
        error = t.error();
      else if (i >= o.warmup)
        times.push_back(*t);
    }
    if (error && c == 0) return std::move(*error);
    if (error) {
      out.rejected.push_back({c, error->message, false});
      continue;
    }
    ++out.measured;
    out.first_us[c] = median(std::move(times));
    order.push_back(c);
  }
  out.default_us = out.best_us = out.first_us[0];
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return out.first_us[a] < out.first_us[b]; });

  // Those that may win, and are right.
  std::vector<size_t> finalists{0};
  for (size_t c : order) {
    if (c == 0) continue;
    if (finalists.size() > o.finalists || out.first_us[c] > out.first_us[0]) break;
    if (expired()) {
      out.complete = false;
      return out;
    }
    auto differs = measurer.difference(c);
    if (differs.ok() && differs->empty())
      finalists.push_back(c);
    else
      out.rejected.push_back({c, differs.ok() ? *differs : differs.error().message, differs.ok()});
  }
  if (finalists.size() == 1) return out;

  std::vector<std::vector<double>> times(finalists.size());
  for (int run = 0; run < o.final_runs; ++run)
    for (size_t f = 0; f < finalists.size(); ++f) {
      if (run > 0 && f == 0 && expired()) {
        out.complete = false;
        return out;
      }
      auto t = measurer.time_us(finalists[f]);
      if (!t.ok() && f == 0) return t.error();
      if (t.ok()) times[f].push_back(*t);
    }
  out.default_us = out.best_us = median(times[0]);
  for (size_t f = 1; f < finalists.size(); ++f) {
    if (times[f].size() < times[0].size()) continue; // failed meanwhile
    double us = median(times[f]);
    if (us >= out.best_us || us > out.default_us * (1 - o.gain) || us > out.default_us - o.noise_us) continue;
    out.best = finalists[f];
    out.best_us = us;
  }
  return out;
}

} // namespace tessera
