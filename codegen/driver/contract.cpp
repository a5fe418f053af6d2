#include "codegen/driver/contract.h"
#include <algorithm>
#include <map>

namespace tessera {
namespace {

class SymbolSet {
public:
  void add(const SymExpr& e) {
    for (const SymExpr& s : e.symbols()) symbols_.emplace(s.symbol_id(), s);
  }
  [[nodiscard]] bool has(const SymExpr& s) const { return symbols_.contains(s.symbol_id()); }
  [[nodiscard]] bool covers(const SymExpr& e) const {
    const auto symbols = e.symbols();
    return std::all_of(symbols.begin(), symbols.end(), [&](const SymExpr& s) { return has(s); });
  }
  [[nodiscard]] const std::map<uint64_t, SymExpr>& all() const { return symbols_; }

private:
  std::map<uint64_t, SymExpr> symbols_; // by id: the same order in every run
};

SymbolSet symbols_of(const KernelLaunch& l) {
  SymbolSet set;
  each_size(l, [&](const SymExpr& size) { set.add(size); });
  return set;
}

} // namespace

void add_contract(KernelLaunch& l, const Graph& graph, const ScheduledKernel& kernel, const LaunchDomain& domain) {
  l.access.clear();
  l.facts.clear();
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    const TensorType& type = graph.type(kernel.buffers[b]);
    l.access.push_back({type.dtype, product(type.shape), {}});
    if (b < kernel.may_overwrite.size()) l.access.back().may_overwrite = kernel.may_overwrite[b];
  }
  SymbolSet symbols = symbols_of(l);
  for (size_t d = 0; d < domain.begin.size(); ++d)
    if (symbols.has(domain.begin[d]) || symbols.has(domain.count[d])) {
      l.facts.push_back({domain.nest->axes[d].extent - domain.begin[d] - domain.count[d], 1, 0});
      symbols.add(l.facts.back().value);
    }
  const ShapeEnv& env = graph.env();
  for (const auto& [id, symbol] : symbols.all()) {
    const SymRange range = env.range(symbol);
    l.facts.push_back({symbol, env.divisor(symbol), range.lo, range.hi});
  }
  for (const Guard& g : env.guards()) {
    SymExpr condition = symbols.covers(g.condition) ? g.condition : g.condition.substitute(env.substitutions());
    if (!condition.is_const() && symbols.covers(condition)) l.facts.push_back({condition, 1, 1});
  }
}

} // namespace tessera
