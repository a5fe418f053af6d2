#include "codegen/schedule/tuned.h"
#include "codegen/schedule/choose.h"
#include <bit>
#include <mutex>

namespace tessera {
namespace {

// The k-th symbol of every key: texts do not depend on names, nor on which symbols a process has made before.
SymExpr canonical(size_t k) {
  static std::mutex mutex;
  static std::vector<SymExpr> symbols;
  std::lock_guard lock(mutex);
  while (symbols.size() <= k) symbols.push_back(SymExpr::symbol("n" + std::to_string(symbols.size())));
  return symbols[k];
}

class KeyText {
public:
  KeyText(const Graph& graph, const LoopNest& nest, const Domain& domain)
      : graph_(graph), nest_(nest), d_(domain), place_(domain.live.size(), -1) {}

  std::string run() {
    for (const Axis& a : d_.axes) number(a.var);
    for (const Axis& a : d_.axes) text_ += (a.role == AxisRole::Row ? "row " : "axis ") + sym(a.extent) + "\n";
    for (size_t b = 0; b < d_.buffers.size(); ++b)
      text_ += std::string(name(graph_.type(d_.buffers[b]).dtype)) + (d_.written[b] ? " written\n" : "\n");
    for (ScalarId id = 0; id < nest_.dag.size(); ++id)
      if (d_.live[static_cast<size_t>(id)]) node(id);
    for (size_t i = 0; i < d_.stores.size(); ++i) {
      text_ += "store" + access(d_.stores[i]) + " " + operand(nest_.stores[i].scalar);
      text_ += nest_.stores[i].per_row ? " per row\n" : "\n";
    }
    return std::move(text_);
  }

private:
  void number(const SymExpr& symbol) {
    if (!renamed_.contains(symbol.symbol_id())) renamed_.emplace(symbol.symbol_id(), canonical(renamed_.size()));
  }
  std::string sym(const SymExpr& e) {
    for (const SymExpr& s : e.symbols()) number(s);
    return e.substitute(renamed_).str();
  }
  [[nodiscard]] std::string operand(ScalarId id) const {
    return " %" + std::to_string(id < 0 ? -1 : place_[static_cast<size_t>(id)]);
  }
  std::string access(const Access& a) {
    std::string text = " b" + std::to_string(a.buffer) + " [" + sym(a.offset) + "]";
    for (const auto& [id, stride] : a.terms) text += operand(id) + "*" + sym(stride);
    return a.predicate < 0 ? text : text + " if" + operand(a.predicate);
  }
  void node(ScalarId id) {
    const ScalarNode& n = nest_.dag[id];
    place_[static_cast<size_t>(id)] = count_++;
    text_ += std::string(info(n.op).name) + " " + std::string(name(n.dtype));
    switch (n.op) {
    case ScalarOp::Const:
      text_ += " " + std::to_string(std::bit_cast<uint64_t>(n.f)) + " " + std::to_string(n.i);
      break;
    case ScalarOp::Index: text_ += " " + sym(d_.sym[static_cast<size_t>(id)]); break;
    case ScalarOp::Load: text_ += access(d_.loads[static_cast<size_t>(id)]); break;
    case ScalarOp::Reduce: text_ += " " + std::string(name(n.reduce)) + (n.select_last ? " last" : ""); [[fallthrough]];
    default:
      for (ScalarId a : n.args) text_ += operand(a);
    }
    text_ += "\n";
  }

  const Graph& graph_;
  const LoopNest& nest_;
  const Domain& d_;
  std::vector<int> place_; // by ScalarId: number among the live nodes
  int count_ = 0;
  std::unordered_map<uint64_t, SymExpr> renamed_;
  std::string text_;
};

} // namespace

Hash128 nest_key(const Graph& graph, const LoopNest& nest, const Domain& domain) {
  return hash128(KeyText(graph, nest, domain).run());
}

ExtentRange bucket_of(int64_t extent) {
  if (extent < 1) return {0, 0, 1};
  auto up = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(extent)));
  return {up / 2 + 1, up, std::min<int64_t>(16, extent & -extent)};
}

std::optional<HostChoice> tuned_host_schedule(const Graph& graph, const LoopNest& nest, const Target& device,
                                              const TunedSchedules& tuned) {
  auto domain = make_domain(graph, nest);
  if (!domain.ok()) return std::nullopt; // lowering says why
  const Schedule chosen = choose_for(graph, nest, *domain, device).schedule;
  for (const TunedSchedule& t : tuned.find(nest_key(graph, nest, *domain))) {
    bool fits = t.extents.size() == domain->axes.size() && t.schedule.kind == chosen.kind;
    for (size_t i = 0; fits && i < t.extents.size(); ++i) {
      auto n = domain->env.simplify(domain->axes[i].extent).as_const();
      fits = n && *n >= t.extents[i].min && *n <= t.extents[i].max && *n % t.extents[i].multiple_of == 0;
    }
    // What comes from a file may be anything.
    auto power = [](int64_t n, int64_t most) {
      return n >= 1 && n <= most && std::has_single_bit(static_cast<uint64_t>(n));
    };
    const Schedule& r = t.schedule;
    fits = fits && r.placement.axis == chosen.placement.axis && power(r.tile.vector, 64) && power(r.tile.unroll, 16) &&
           r.traversal.program_bytes >= 1 && r.traversal.program_bytes <= int64_t{1} << 30;
    if (!fits) continue;
    HostChoice out{chosen, "", t.measured};
    out.schedule.tile.vector = r.tile.vector;
    out.schedule.tile.unroll = r.tile.unroll;
    out.schedule.traversal.program_bytes = r.traversal.program_bytes;
    return out;
  }
  return std::nullopt;
}

} // namespace tessera
