#include "codegen/schedule/nest_key.h"
#include <bit>
#include <mutex>

namespace tessera {
namespace {

// The k-th symbol of every key, so that texts depend neither on names nor on other symbols of the process.
SymExpr canonical(size_t k) {
  static std::mutex mutex;
  static std::vector<SymExpr> symbols;
  std::lock_guard lock(mutex);
  while (symbols.size() <= k) symbols.push_back(SymExpr::symbol("n" + std::to_string(symbols.size())));
  return symbols[k];
}

// How a text represents sizes.
enum class Sizes : uint8_t {
  Exact, // numbers, and expressions over symbols
  Any,   // none: along each axis a step of 0, 1 or 2 elements, or any other
};

class KeyText {
public:
  KeyText(const Graph& graph, const LoopNest& nest, const Domain& domain, Sizes sizes)
      : graph_(graph), nest_(nest), d_(domain), sizes_(sizes), place_(domain.live.size(), -1) {}

  std::string run() {
    for (const Axis& a : d_.axes) number(a.var);
    for (const Axis& a : d_.axes)
      text_ += (a.role == AxisRole::Row ? "row " : "axis ") + (sizes_ == Sizes::Exact ? sym(a.extent) : "") + "\n";
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
    if (sizes_ == Sizes::Any) return steps(e);
    for (const SymExpr& s : e.symbols()) number(s);
    return e.substitute(renamed_).str();
  }
  // By axis.
  [[nodiscard]] std::string steps(const SymExpr& e) const {
    std::string text;
    for (const Axis& a : d_.axes) {
      const auto linear = e.linear_in(a.var);
      const auto step = linear ? linear->first.as_const() : std::nullopt;
      text += !linear ? "?" : !step || *step < 0 || *step > 2 ? "n" : std::to_string(*step);
    }
    return text;
  }
  [[nodiscard]] std::string operand(ScalarId id) const {
    return " %" + std::to_string(id < 0 ? -1 : place_[static_cast<size_t>(id)]);
  }
  std::string access(const Access& a) {
    std::string text = " b" + std::to_string(a.buffer) + " [" + sym(a.offset) + "]";
    for (const auto& [id, stride] : a.terms) text += operand(id) + (sizes_ == Sizes::Exact ? "*" + sym(stride) : "");
    return a.predicate < 0 ? text : text + " if" + operand(a.predicate);
  }
  void node(ScalarId id) {
    const ScalarNode& n = nest_.dag[id];
    place_[static_cast<size_t>(id)] = count_++;
    text_ += std::string(info(n.op).name) + " " + std::string(name(n.dtype));
    switch (n.op) {
    case ScalarOp::Const:
      if (sizes_ == Sizes::Exact)
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
  const Sizes sizes_;
  std::vector<int> place_; // by ScalarId: index among the live nodes
  int count_ = 0;
  std::unordered_map<uint64_t, SymExpr> renamed_;
  std::string text_;
};

} // namespace

Hash128 nest_key(const Graph& graph, const LoopNest& nest, const Domain& domain) {
  return hash128(KeyText(graph, nest, domain, Sizes::Exact).run());
}

Hash128 nest_signature(const Graph& graph, const LoopNest& nest, const Domain& domain) {
  return hash128(KeyText(graph, nest, domain, Sizes::Any).run());
}

} // namespace tessera
