#include "codegen/schedule/stages.h"
#include <algorithm>

namespace tessera {
namespace {

// Cost above which a value is cached: a contiguous load costs 2, so reloading one operand and a cast or two costs less.
constexpr int kDear = 5;
constexpr int kLoadCost = 2, kGatherCost = 8;

class Planner {
public:
  Planner(const LoopNest& nest, const Domain& d) : nest_(nest), d_(d), mark_(d.live.size()) {
    plan_.cached.assign(d.live.size(), 0);
  }

  Stages run() {
    int last = 0;
    for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
      if (!d_.live[at(id)] || nest_.dag[id].op != ScalarOp::Reduce) continue;
      int s = d_.stage[at(id)] - 1;
      stage(s).reduces.push_back(id);
      last = std::max(last, s);
    }
    for (size_t i = 0; i < nest_.stores.size(); ++i) {
      ScalarId v = nest_.stores[i].scalar;
      bool varies = ((d_.deps[at(v)] | d_.axes_in(d_.stores[i].offset)) & d_.row_mask) != 0;
      if (varies)
        stage(d_.stage[at(v)]).stores.push_back(i);
      else
        plan_.row_stores.push_back(i);
    }
    for (size_t s = 1; s < plan_.stages.size(); ++s) decide(static_cast<int>(s));
    for (ScalarId id = 0; id < nest_.dag.size(); ++id)
      if (plan_.cached[at(id)]) stage(d_.stage[at(id)]).caches.push_back(id);
    return std::move(plan_);
  }

private:
  static size_t at(ScalarId id) { return static_cast<size_t>(id); }
  Stage& stage(int s) {
    if (plan_.stages.size() <= static_cast<size_t>(s)) plan_.stages.resize(static_cast<size_t>(s) + 1);
    return plan_.stages[static_cast<size_t>(s)];
  }

  // Visits the values that stage s computes, and caches expensive values of earlier stages that it uses.
  void decide(int s) {
    std::vector<ScalarId> open;
    for (ScalarId r : plan_.stages[static_cast<size_t>(s)].reduces) open.push_back(nest_.dag[r].args[0]);
    for (size_t i : plan_.stages[static_cast<size_t>(s)].stores) open.push_back(nest_.stores[i].scalar);
    std::vector<char> seen(d_.live.size());
    while (!open.empty()) {
      ScalarId id = open.back();
      open.pop_back();
      if (!d_.live[at(id)] || seen[at(id)] || !d_.row_varying(id) || plan_.cached[at(id)]) continue;
      seen[at(id)] = 1;
      if (d_.stage[at(id)] < s) {
        // A stage without stores or reductions never computed this value: it is computed in its own stage only if
        // cached.
        loads_ = 0;
        std::fill(mark_.begin(), mark_.end(), 0);
        if (cost(id) > kDear || loads_ > 1) plan_.cached[at(id)] = 1;
        continue;
      }
      for (ScalarId a : nest_.dag[id].args) open.push_back(a);
    }
  }

  // Cost of recomputing `root`, each node once; a cached value is a load.
  int cost(ScalarId root) {
    int sum = 0;
    std::vector<ScalarId> open{root};
    while (!open.empty()) {
      ScalarId id = open.back();
      open.pop_back();
      if (!d_.live[at(id)] || mark_[at(id)] || !d_.row_varying(id)) continue;
      mark_[at(id)] = 1;
      const ScalarNode& n = nest_.dag[id];
      if (plan_.cached[at(id)]) {
        sum += kLoadCost;
        continue;
      }
      if (n.op == ScalarOp::Load) {
        ++loads_;
        bool gather = false;
        for (const auto& [node, stride] : d_.loads[at(id)].terms) gather = gather || d_.row_varying(node);
        sum += gather ? kGatherCost : kLoadCost;
      } else {
        sum += info(n.op).cost;
      }
      for (ScalarId a : n.args) open.push_back(a);
    }
    return sum;
  }

  const LoopNest& nest_;
  const Domain& d_;
  Stages plan_;
  std::vector<char> mark_;
  int loads_ = 0;
};

} // namespace

Stages plan_stages(const LoopNest& nest, const Domain& domain) { return Planner(nest, domain).run(); }

bool Stages::folds_are_read() const {
  size_t folds = 0, last = 0;
  for (size_t s = 0; s < stages.size(); ++s)
    if (!stages[s].reduces.empty()) ++folds, last = s;
  return folds > 1 || last + 1 < stages.size();
}

std::vector<ScalarId> computed_in(const LoopNest& nest, const Domain& d, const Stages& stages, size_t s) {
  std::vector<char> seen(d.live.size());
  std::vector<ScalarId> list, open;
  const Stage& stage = stages.stages[s];
  for (ScalarId r : stage.reduces) open.push_back(nest.dag[r].args[0]);
  for (ScalarId k : stage.caches) open.push_back(k);
  for (size_t i : stage.stores) open.push_back(nest.stores[i].scalar);
  while (!open.empty()) {
    ScalarId id = open.back();
    open.pop_back();
    auto i = static_cast<size_t>(id);
    bool kept = stages.cached[i] && d.stage[i] < static_cast<int>(s);
    if (seen[i] || !d.live[i] || !d.row_varying(id) || kept) continue;
    seen[i] = 1;
    list.push_back(id);
    if (nest.dag[id].op == ScalarOp::Load) {
      for (const auto& [term, stride] : d.loads[i].terms) open.push_back(term);
      if (d.loads[i].predicate >= 0) open.push_back(d.loads[i].predicate);
    }
    for (ScalarId a : nest.dag[id].args) open.push_back(a);
  }
  return list;
}

} // namespace tessera
