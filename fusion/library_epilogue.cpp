#include "fusion/library_epilogue.h"
#include "fusion/activation.h"
#include <algorithm>

namespace tessera::fusion {

namespace {

class Matcher {
public:
  Matcher(const LoopNest& nest, ValueId raw) : nest_(nest), dag_(nest.dag), raw_(raw) {}

  std::optional<EpilogueMatch> run(ScalarId root) {
    EpilogueMatch out;
    if (const auto a = match_activation(dag_, root)) {
      out.activation = a->activation, out.clip_low = a->clip_low, out.clip_high = a->clip_high;
      if (linear(a->input, out)) return out;
      out = {};
    }
    why.clear();
    if (linear(root, out)) return out;
    return std::nullopt;
  }
  std::string why; // of the last failure

private:
  [[nodiscard]] const ScalarNode& at(ScalarId id) const { return dag_[id]; }
  [[nodiscard]] std::optional<double> constant(ScalarId id) const { return float_constant(dag_, id); }
  [[nodiscard]] bool is_raw(ScalarId id) const {
    return at(id).op == ScalarOp::Load && nest_.loads[static_cast<size_t>(at(id).operand)] == raw_;
  }

  bool linear(ScalarId root, EpilogueMatch& out) {
    seen_raw_ = false;
    if (!terms(root, 1, out)) return false;
    if (!seen_raw_) why = "the result is not an addend of what follows";
    return seen_raw_;
  }
  // Adds `scale` * id to the sum.
  bool terms(ScalarId id, double scale, EpilogueMatch& out) {
    const ScalarNode& n = at(id);
    if (n.op == ScalarOp::Add) return terms(n.args[0], scale, out) && terms(n.args[1], scale, out);
    if (n.op == ScalarOp::Fma) {
      for (size_t k : {size_t{0}, size_t{1}})
        if (auto c = constant(n.args[k])) return terms(n.args[1 - k], scale * *c, out) && terms(n.args[2], scale, out);
    }
    if (is_raw(id)) {
      if (seen_raw_) return no("the result is used more than once");
      seen_raw_ = true;
      out.alpha = scale;
      return true;
    }
    if (n.op == ScalarOp::Load) {
      if (n.masked) return no("an addend that is read in part");
      if (scale != 1) return no("an addend that is scaled");
      out.addends.push_back(id);
      return true;
    }
    if (n.op == ScalarOp::Mul || n.op == ScalarOp::Div) {
      const ScalarProduct p = match_product(dag_, id);
      if (p.others.size() == 1 && p.others[0] != id) return terms(p.others[0], scale * p.factor, out);
      return no(p.others.size() > 1 ? "a product with another tensor" : "a constant is added");
    }
    if (n.op == ScalarOp::Const) return no("a constant is added");
    return no("it takes no " + std::string(info(n.op).name));
  }
  bool no(std::string reason) {
    if (why.empty()) why = std::move(reason);
    return false;
  }

  const LoopNest& nest_;
  const ScalarDag& dag_;
  ValueId raw_;
  bool seen_raw_ = false;
};

} // namespace

std::optional<EpilogueMatch> match_epilogue(const LoopNest& nest, ValueId raw, std::string* why_not) {
  TESSERA_CHECK(!nest.stores.empty(), "an epilogue stores something");
  Matcher matcher(nest, raw);
  auto out = matcher.run(nest.stores[0].scalar);
  if (!out && why_not) *why_not = matcher.why;
  return out;
}

} // namespace tessera::fusion
