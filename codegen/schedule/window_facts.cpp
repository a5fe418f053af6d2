#include "codegen/schedule/window_facts.h"
#include "codegen/schedule/block_facts.h"
#include <algorithm>

namespace tessera {
namespace {

// An expression's step along an axis as a number: sizes that are not known are replaced by large odd ones.
std::optional<int64_t> step(const BlockFacts& f, const SymExpr& e, size_t axis) {
  auto linear = e.linear_in(f.d.axes[axis].var);
  if (!linear) return std::nullopt;
  std::unordered_map<uint64_t, int64_t> sizes;
  int64_t n = 1'000'003;
  for (const SymExpr& s : linear->first.symbols()) sizes[s.symbol_id()] = n += 2'017;
  auto v = linear->first.eval(sizes);
  return v.ok() ? std::optional(*v) : std::nullopt;
}

} // namespace

std::optional<WindowFacts> WindowFacts::find(const BlockFacts& facts) {
  WindowFacts w;
  w.most_code_ = static_cast<double>(facts.device.instruction_cache_bytes) / kInstructionBytes;
  if (!w.find_taps(facts) || !w.find_loads(facts)) return std::nullopt;
  w.find_axes(facts);
  return w.axis >= 0 ? std::optional(std::move(w)) : std::nullopt;
}

bool WindowFacts::find_taps(const BlockFacts& f) {
  const Domain& d = f.d;
  if (!d.reduces || f.contiguous_axis < 0 || f.is_row(static_cast<size_t>(f.contiguous_axis)) || f.stores_rows())
    return false;
  for (size_t i = 0; i < d.live.size(); ++i) {
    const ScalarNode& n = f.nest.dag[static_cast<ScalarId>(i)];
    if (!d.live[i]) continue;
    if (n.op == ScalarOp::Reduce) {
      if (d.stage[i] > 1 || n.reduce == ReduceKind::ArgMax || n.reduce == ReduceKind::ArgMin) return false;
      ++reduces_;
    } else if (n.op == ScalarOp::CheckBounds) {
      return false; // each tap would report
    } else if (d.deps[i] & d.row_mask) {
      if (n.op != ScalarOp::Load && n.op != ScalarOp::Index) tap_operations_ += std::max(1, info(n.op).cost);
    } else if (n.op != ScalarOp::Const && n.op != ScalarOp::Index) {
      result_operations_ += std::max(1, info(n.op).cost);
    }
  }
  for (size_t i = 0; i < d.axes.size(); ++i) {
    if (!f.is_row(i)) continue;
    auto extent = f.constant(f.extent(i));
    if (!extent || *extent < 1 || *extent > kMaxTaps) return false;
    rows_.push_back(i);
    extents_.push_back(*extent);
    taps_ *= *extent;
    if (taps_ > kMaxTaps) return false;
  }
  return reduces_ > 0 && !rows_.empty() && taps_ > 1;
}

bool WindowFacts::find_loads(const BlockFacts& f) {
  const Domain& d = f.d;
  for (size_t i = 0; i < d.live.size(); ++i) {
    if (!d.live[i] || f.nest.dag[static_cast<ScalarId>(i)].op != ScalarOp::Load || !(d.deps[i] & d.row_mask)) continue;
    const Access& a = d.loads[i];
    if (!a.terms.empty()) return false;
    Load load;
    load.bytes = info(f.graph.type(d.buffers[static_cast<size_t>(a.buffer)]).dtype).bits / 8;
    load.wide = d.access_deps(a) >> f.contiguous_axis & 1;
    load.masked = a.predicate >= 0;
    for (size_t r : rows_) {
      auto s = step(f, a.offset, r);
      if (!s) return false;
      load.along_taps.push_back(*s);
    }
    loads_.push_back(load);
  }
  return !loads_.empty();
}

void WindowFacts::find_axes(const BlockFacts& f) {
  std::vector<const Access*> accesses; // of loads_
  for (size_t i = 0; i < f.d.live.size(); ++i)
    if (f.d.live[i] && f.nest.dag[static_cast<ScalarId>(i)].op == ScalarOp::Load && (f.d.deps[i] & f.d.row_mask))
      accesses.push_back(&f.d.loads[i]);
  int64_t least = 0, next = 0;
  for (size_t i = 0; i < f.d.axes.size(); ++i) {
    if (f.is_row(i) || static_cast<int>(i) == f.contiguous_axis) continue;
    for (size_t l = 0; l < loads_.size(); ++l) {
      const Load& load = loads_[l];
      auto s = step(f, accesses[l]->offset, i);
      const bool slides =
          s && *s != 0 && std::any_of(load.along_taps.begin(), load.along_taps.end(), [](int64_t t) { return t != 0; });
      // With dilation d, results share elements from the d-th neighbour on.
      if (!slides || distinct(load, *s, kMaxOutputs, 0, 1) >= kMaxOutputs * distinct(load, *s, 1, 0, 1)) continue;
      if (axis < 0 || *s < least) {
        outer = axis, next = least;
        axis = static_cast<int>(i), least = *s;
      } else if (outer < 0 || *s < next) {
        outer = static_cast<int>(i), next = *s;
      }
      break;
    }
  }
  for (size_t l = 0; l < loads_.size(); ++l) {
    auto along = [&](int a) { return a < 0 ? 0 : step(f, accesses[l]->offset, static_cast<size_t>(a)).value_or(0); };
    Load& load = loads_[l];
    load.along_axis = along(axis);
    load.along_outer = along(outer);
    for (int64_t t = 1; t <= kMaxOutputs; ++t)
      for (int64_t u = 1; u <= kMaxOuterOutputs; ++u)
        load.distinct[static_cast<size_t>(t - 1)][static_cast<size_t>(u - 1)] =
            distinct(load, load.along_axis, t, load.along_outer, u);
  }
}

int64_t WindowFacts::distinct(const Load& load, int64_t step, int64_t results, int64_t outer_step,
                              int64_t outer_results) const {
  std::vector<uint64_t> at{0}; // strides that a model's sizes make may wrap
  auto spread = [&](int64_t by, int64_t count) {
    if (by == 0 || count == 1) return;
    const size_t n = at.size();
    for (int64_t i = 1; i < count; ++i)
      for (size_t k = 0; k < n; ++k) at.push_back(at[k] + static_cast<uint64_t>(i) * static_cast<uint64_t>(by));
    std::sort(at.begin(), at.end());
    at.erase(std::unique(at.begin(), at.end()), at.end());
  };
  for (size_t r = 0; r < rows_.size(); ++r) spread(load.along_taps[r], extents_[r]);
  spread(step, results);
  spread(outer_step, outer_results);
  return static_cast<int64_t>(at.size());
}

std::optional<WindowFacts::Thread> WindowFacts::thread(int64_t t, int64_t u, int64_t vector) const {
  const double results = static_cast<double>(t * u * vector), fused = tap_operations_ > 1 ? tap_operations_ - 1 : 1;
  Thread out;
  out.operations = results * static_cast<double>(taps_) * std::max(fused, 1.0) + 60 +
                   results * (static_cast<double>(result_operations_) + 1) + 8.0 * static_cast<double>(t * u);
  out.registers = results * reduces_;
  for (const Load& l : loads_) {
    const auto n = static_cast<double>(l.distinct[static_cast<size_t>(t - 1)][static_cast<size_t>(u - 1)]);
    const double width = l.wide ? static_cast<double>(vector) : 1;
    out.operations += n * (2 + (l.masked ? 2 : 0) + (l.bytes < 4 ? width : 0));
    out.registers += width * static_cast<double>(extents_.back());
    out.loads += n;
    out.load_bytes += n * width * l.bytes;
  }
  out.load_bytes /= std::max(1.0, out.loads);
  out.taps = taps_;
  if (out.operations > most_code_) {
    if (u > 1) return std::nullopt; // a loop over rows of taps shares nothing between rows of results
    out.taps = taps_ / extents_.front();
    out.loop_iterations = extents_.front();
    if (out.operations / static_cast<double>(out.loop_iterations) > most_code_) return std::nullopt;
  }
  return out;
}

} // namespace tessera
