#include "codegen/schedule/cached_values.h"
#include <algorithm>

namespace tessera {
namespace {

size_t at(ScalarId id) { return static_cast<size_t>(id); }

class Cut {
public:
  Cut(const Graph& graph, const LoopNest& nest, const Domain& d, const Stages& stages, const OnlineSums& online,
      const std::vector<uint64_t>& sides)
      : graph_(graph), nest_(nest), d_(d), online_(online), sides_(sides), first_(d.live.size()), later_(first_) {
    size_t begin = 0;
    while (begin < stages.stages.size() && !works(stages.stages[begin])) ++begin;
    if (begin == stages.stages.size()) return;
    for (ScalarId id : roots(stages.stages[begin])) visit(id, first_);
    for (size_t s = begin + 1; s < stages.stages.size(); ++s)
      for (ScalarId id : roots(stages.stages[s])) cross(id, static_cast<int>(begin));
  }

  std::vector<CachedValue> run() {
    std::vector<CachedValue> values, loads;
    for (ScalarId id : cut_) add(values, narrowed(id));
    std::vector<char> below(first_.size());
    for (ScalarId id : cut_) visit(id, below);
    for (ScalarId id = 0; id < nest_.dag.size(); ++id)
      if (below[at(id)] && nest_.dag[id].op == ScalarOp::Load) add(loads, id);
    return cached_bytes(loads) < cached_bytes(values) ? loads : values;
  }

private:
  static bool works(const Stage& s) { return !s.reduces.empty() || !s.stores.empty(); }

  [[nodiscard]] std::vector<ScalarId> roots(const Stage& s) const {
    std::vector<ScalarId> list;
    for (size_t i : s.stores) list.push_back(nest_.stores[i].scalar);
    for (ScalarId r : s.reduces) {
      if (online_.empty() || online_[at(r)].kind == OnlineSum::Kind::None) {
        list.push_back(nest_.dag[r].args[0]);
      } else {
        list.push_back(online_[at(r)].moving);
        list.insert(list.end(), online_[at(r)].weights.begin(), online_[at(r)].weights.end());
      }
    }
    return list;
  }
  [[nodiscard]] bool moves(ScalarId id) const {
    return d_.live[at(id)] && d_.row_varying(id) && nest_.dag[id].op != ScalarOp::Index;
  }
  // All values along the row from which `root` is computed; loads with data-dependent indices end the search.
  void visit(ScalarId root, std::vector<char>& seen) const {
    std::vector<ScalarId> open{root};
    while (!open.empty()) {
      ScalarId id = open.back();
      open.pop_back();
      if (!moves(id) || seen[at(id)]) continue;
      seen[at(id)] = 1;
      if (nest_.dag[id].op != ScalarOp::Load)
        for (ScalarId a : nest_.dag[id].args) open.push_back(a);
    }
  }
  // Values of the first stage that later stages use directly.
  void cross(ScalarId root, int round) {
    std::vector<ScalarId> open{root};
    while (!open.empty()) {
      ScalarId id = open.back();
      open.pop_back();
      if (!moves(id) || later_[at(id)]) continue;
      later_[at(id)] = 1;
      if (first_[at(id)] && d_.stage[at(id)] <= round) {
        cut_.push_back(id);
        continue;
      }
      for (ScalarId a : nest_.dag[id].args) open.push_back(a);
    }
  }
  // The value before lossless casts.
  [[nodiscard]] ScalarId narrowed(ScalarId id) const {
    for (;;) {
      const ScalarNode& n = nest_.dag[id];
      if (n.op != ScalarOp::Cast) return id;
      DType from = nest_.dag[n.args[0]].dtype;
      bool widens = is_float(from) && is_float(n.dtype) && (n.dtype == DType::F32 || n.dtype == DType::F64) &&
                    info(from).bits < info(n.dtype).bits;
      if (!widens) return id;
      id = n.args[0];
    }
  }
  void add(std::vector<CachedValue>& to, ScalarId id) const {
    for (uint64_t side : sides_)
      if (side && !(d_.deps[at(id)] & side)) return;
    if (std::any_of(to.begin(), to.end(), [&](const CachedValue& k) { return k.id == id; })) return;
    const ScalarNode& n = nest_.dag[id];
    bool load = n.op == ScalarOp::Load;
    to.push_back({id, load ? graph_.type(d_.buffers[static_cast<size_t>(d_.loads[at(id)].buffer)]).dtype : n.dtype});
  }

  const Graph& graph_;
  const LoopNest& nest_;
  const Domain& d_;
  const OnlineSums& online_;
  const std::vector<uint64_t>& sides_;
  std::vector<char> first_, later_; // by ScalarId: computed by the first stage; used by a later one
  std::vector<ScalarId> cut_;
};

} // namespace

std::vector<CachedValue> find_cached_values(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                            const Stages& stages, const OnlineSums& online,
                                            const std::vector<uint64_t>& sides) {
  return Cut(graph, nest, domain, stages, online, sides).run();
}

int cached_bytes(const std::vector<CachedValue>& values) {
  int bytes = 0;
  for (const CachedValue& k : values) bytes += std::max(1, info(k.dtype).bits / 8);
  return bytes;
}

} // namespace tessera
