#include "codegen/schedule/cells.h"
#include "codegen/schedule/contraction.h"
#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

// Lengths of an axis along which elements are contiguous, or that is folded, where its symbols are not known.
struct Typical {
  int64_t length;
  ExtentRange range;
  bool few = false; // only where such rows are few
};
constexpr int64_t kAny = INT64_MAX, kSome = 100;
// Points of a contraction that are few for it, besides one: rows that fill a part of any tile.
constexpr int64_t kFewRows = int64_t{2} * Contraction::kFragmentRows;
constexpr int64_t kDepth = 1024; // of a contraction whose depth is not known
constexpr int64_t kGroups = 8;   // of rows, where their number is not known: experts of a mixture
const std::vector<Typical> kRows = {
    {160, {1, 256, 8}},       {1024, {257, 1024, 8}},           {4096, {1025, 4096, 8}},
    {999, {1, 1024, 1}},      {204800, {65537, kAny, 8}, true}, {10000001, {65537, kAny, 1}, true},
    {20480, {4097, kAny, 8}}, {20001, {1025, kAny, 1}},
};
const std::vector<Typical> kContiguous = {{1024, {1, kAny, 16}}, {1001, {1, kAny, 1}}};

class Sampler {
public:
  explicit Sampler(const BlockFacts& f) : f_(f) {
    for (const Axis& a : f.d.axes) collect(a.extent);
    for (const Stream& s : f.streams) collect(s.access->offset);
    if (f.contraction && f.contraction->groups) collect(f.contraction->groups->count);
  }
  // Whether every size is known or was seen by the call that leads to this compilation. The first cell is of these then.
  [[nodiscard]] bool seen() const {
    return std::all_of(symbols_.begin(), symbols_.end(),
                       [&](const SymExpr& s) { return f_.graph.env().hint(s).has_value(); });
  }
  std::vector<Cell> run() const {
    std::vector<Cell> list;
    if (seen()) {
      CallSizes sizes;
      for (const SymExpr& s : symbols_) sizes[s.symbol_id()] = *f_.graph.env().hint(s);
      if (auto cell = with(sizes, nullptr, 0)) list.push_back(std::move(*cell));
      if (symbols_.empty()) return list;
    }
    if (f_.contiguous_axis >= 0) { // one element may lie at an offset of symbols
      const auto c = static_cast<size_t>(f_.contiguous_axis);
      const auto& lengths = f_.d.reduces && f_.is_row(c) ? kRows : kContiguous;
      for (const int64_t few : {int64_t{1}, kFewRows})
        for (const Typical& t : lengths) {
          if (few > 1 && !f_.contraction) break;
          if (auto cell = typical(t, c, few)) {
            list.push_back(std::move(*cell));
            break; // the length is one
          }
        }
      for (const Typical& t : lengths)
        if (auto cell = typical(t, c, 0)) list.push_back(std::move(*cell));
    }
    if (list.empty()) { // none of these lengths is possible
      CallSizes some;
      for (const SymExpr& s : symbols_) some[s.symbol_id()] = within(s, kSome);
      if (auto cell = with(some, nullptr, 0)) list.push_back(std::move(*cell));
    }
    return list;
  }

private:
  void collect(const SymExpr& e) {
    for (const SymExpr& s : e.symbols()) {
      const bool axis = std::any_of(f_.d.axes.begin(), f_.d.axes.end(), [&](const Axis& a) { return a.var == s; });
      if (!axis && std::find(symbols_.begin(), symbols_.end(), s) == symbols_.end()) symbols_.push_back(s);
    }
  }
  [[nodiscard]] int64_t within(const SymExpr& symbol, int64_t n) const {
    const SymRange r = f_.d.env.range(symbol);
    n = std::clamp(n, std::max<int64_t>(1, r.lo), std::max<int64_t>(1, r.hi));
    const int64_t k = std::max<int64_t>(1, f_.d.env.divisor(symbol));
    return std::max(k, n / k * k);
  }
  [[nodiscard]] bool reduced(const SymExpr& symbol) const {
    for (size_t i = 0; i < f_.d.axes.size(); ++i)
      if (f_.is_row(i) && f_.d.axes[i].extent.contains(symbol)) return true;
    return false;
  }
  // A symbol of the number of groups, and of no axis.
  [[nodiscard]] bool counts_groups(const SymExpr& symbol) const {
    return f_.contraction && f_.contraction->groups && f_.contraction->groups->count.contains(symbol) &&
           std::none_of(f_.d.axes.begin(), f_.d.axes.end(), [&](const Axis& a) { return a.extent.contains(symbol); });
  }
  // Symbols of the contiguous axis yield the typical length, the others as many points as are typical, or `few`, if that
  // is not 0. The latter only where the length is known. Of a contraction the results are as many as are typical, of
  // sums over kDepth.
  [[nodiscard]] std::optional<Cell> typical(const Typical& t, size_t contiguous, int64_t few) const {
    CallSizes sizes;
    const SymExpr& inner = f_.extent(contiguous);
    if (few > 0 && (!f_.constant(inner) || t.few)) return std::nullopt;
    std::vector<SymExpr> others;
    // One of several symbols of the axis has the length: the one that a condition on the axis is about.
    const Multiple divisible = f_.multiple(inner, kAccessBytes);
    const SymExpr* bearer = nullptr;
    for (const SymExpr& s : symbols_)
      if (inner.contains(s) && (!bearer || (divisible.condition && divisible.condition->value == s))) bearer = &s;
    for (const SymExpr& s : symbols_) {
      const bool depth = f_.contraction && !inner.contains(s) && reduced(s);
      const bool groups = counts_groups(s);
      sizes[s.symbol_id()] = within(s, &s == bearer ? t.length
                                       : depth      ? kDepth
                                       : groups     ? kGroups
                                                    : std::max<int64_t>(1, few));
      if (!inner.contains(s) && !depth && !groups) others.push_back(s);
    }
    if (few > 0) {
      auto cell = with(sizes, &t, contiguous);
      if (cell)
        for (const SymExpr& s : others) cell->grow.push_back(s.symbol_id());
      return cell && !cell->grow.empty() ? cell : std::nullopt;
    }
    double points = 1;
    for (size_t i = 0; i < f_.d.axes.size(); ++i) {
      auto n = f_.d.axes[i].extent.eval(sizes);
      if (!n.ok()) return std::nullopt;
      if (!f_.contraction || !f_.is_row(i)) points *= static_cast<double>(std::max<int64_t>(1, *n));
    }
    const double each =
        std::pow(std::max(1.0, kTypicalPoints / points), 1.0 / std::max<double>(1, static_cast<double>(others.size())));
    for (const SymExpr& s : others) sizes[s.symbol_id()] = within(s, static_cast<int64_t>(each));
    return with(sizes, &t, contiguous);
  }
  [[nodiscard]] std::optional<Cell> with(const CallSizes& sizes, const Typical* t, size_t contiguous) const {
    std::vector<int64_t> extents;
    for (const Axis& a : f_.d.axes) {
      auto n = a.extent.eval(sizes);
      if (!n.ok()) return std::nullopt;
      extents.push_back(*n);
    }
    Cell cell{sizes, ranges_of(f_, extents, sizes)};
    for (size_t i = 0; t && i < extents.size(); ++i) {
      const int64_t n = extents[i];
      ExtentRange& range = cell.extents[i];
      if (i == contiguous && (n < t->range.min || n > t->range.max || n % t->range.multiple_of != 0))
        return std::nullopt;
      if (f_.constant(f_.extent(i))) continue;
      range = {0, kAny, 1};
      if (i == contiguous)
        range = t->range;
      else if (t->few)
        range = {1, 4 * std::max<int64_t>(1, n), 1};
    }
    return cell;
  }

  const BlockFacts& f_;
  std::vector<SymExpr> symbols_;
};

} // namespace

Cells typical_cells(const BlockFacts& facts) {
  const Sampler sampler(facts);
  return {sampler.run(), sampler.seen()};
}

} // namespace tessera
