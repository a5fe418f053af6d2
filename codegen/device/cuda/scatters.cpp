// Scatters on a GPU whose targets may repeat, as what blocks do in any order:
//
//   none        of the updates of a target the last one counts, which the maximum of their numbers finds
//   min, max    of integers, by atomic updates; floats as integers in their order
//   add         of integers, by atomic updates
//   the others  updates are sorted by target; those of a target are folded one after another (scatter_segments)
#include "codegen/device/cuda/passes.h"
#include "graph/ops/builder.h"
#include "graph/ops/formulas.h"
#include "graph/ops/scatter.h"
#include <limits>

namespace tessera {
namespace {

using namespace ops;

// The narrowest type that atomic updates have for these integers, and whether it is the type itself.
DType atomic_type(DType dtype) { return info(dtype).bits < 32 ? DType::I32 : dtype; }

class Scatter {
public:
  Scatter(Graph& graph, const Node& node) : b_(graph, node), reduction_(b_.attr().s("reduction", "none")) {
    data_ = b_.in(0);
    targets_ = b_.in(1);
    updates_ = b_.in(2);
    view_ = scatter_view(graph, node);
    count_ = b_.dim(targets_, 1);
  }

  Result<ValueId> run() {
    const DType dtype = b_.dtype(data_);
    ValueId out;
    if (reduction_ == "none")
      out = last();
    else if (reduction_ == "min" || reduction_ == "max")
      out = is_float(dtype) ? extreme_of_floats() : as(atomic_type(dtype));
    else if (reduction_ == "add" && !is_float(dtype))
      out = as(atomic_type(dtype));
    else
      out = segments();
    TESSERA_ASSIGN(auto done, b_.done(out));
    return done[0];
  }

private:
  ValueId scatter(ValueId data, const SymShape& view, ValueId targets, ValueId updates, std::string reduction,
                  bool unique) {
    return b_.op("scatter", {data, targets, updates},
                 {{"reduction", std::move(reduction)}, {"unique", int64_t{unique ? 1 : 0}}, {"view", view}});
  }
  // In another type.
  ValueId as(DType dtype) {
    const ValueId out = scatter(cast(b_, data_, dtype), view_, targets_, cast(b_, updates_, dtype), reduction_, false);
    return cast(b_, out, b_.dtype(data_));
  }
  [[nodiscard]] bool is_narrow(const SymExpr& size) {
    return b_.env().range(size).hi <= std::numeric_limits<int32_t>::max();
  }

  ValueId last() {
    const bool each = b_.rank(targets_) == 3;
    const DType dtype = is_narrow(count_) ? DType::I32 : DType::I64;
    const SymShape targets = b_.shape(targets_);
    const SymExpr slices = each ? view_[2] : SymExpr(1);
    SymShape along(targets.size(), SymExpr(1));
    along[1] = count_;
    const ValueId number = expand(b_, cast(b_, iota(b_, along, 1), dtype), targets); // of an update
    const ValueId none = expand(b_, b_.scalar_i(dtype, -1), {view_[0], view_[1], slices});
    const SymShape of_targets = {view_[0], view_[1], slices};
    const ValueId winners = scatter(none, of_targets, targets_, number, "max", false);
    SymShape per_target = targets;
    per_target[1] = view_[1];
    const ValueId winner =
        b_.op("gather_elements", {reshape(b_, winners, per_target), max(b_, targets_, 0.0)}, {{"axis", int64_t{1}}});
    const ValueId won = logical_and(b_, eq(b_, winner, number), ge(b_, targets_, 0.0));
    return scatter(data_, view_, select(b_, won, targets_, -1.0), updates_, "none", true);
  }

  // Integers in the order of floats, and back: the bits below the sign are flipped where it is set.
  ValueId flipped(ValueId bits) {
    const DType dtype = b_.dtype(bits);
    const int64_t below =
        dtype == DType::I64 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int32_t>::max();
    return select(b_, lt(b_, bits, 0.0), b_.op2("xor", bits, b_.scalar_i(dtype, below)), bits);
  }
  // NaN is beyond every number in the direction of the reduction.
  ValueId extreme_of_floats() {
    const DType wide = compute_dtype(b_.dtype(data_)), bits = wide == DType::F64 ? DType::I64 : DType::I32;
    auto key = [&](ValueId x) {
      x = cast(b_, x, wide);
      const ValueId k = flipped(b_.op("bitcast", {x}, {{"to", bits}}));
      const bool high = reduction_ == "max";
      const int64_t beyond = bits == DType::I64
                                 ? (high ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min())
                                 : (high ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int32_t>::min());
      return select(b_, b_.op1("isnan", x), b_.scalar_i(bits, beyond), k);
    };
    const ValueId out = scatter(key(data_), view_, targets_, key(updates_), reduction_, false);
    return cast(b_, b_.op("bitcast", {flipped(out)}, {{"to", wide}}), b_.dtype(data_));
  }

  ValueId segments() {
    ValueId targets = targets_;
    if (b_.rank(targets) == 3) { // each element has a target of its own
      const SymShape all = b_.shape(targets);
      const ValueId first = mul(b_, iota(b_, {view_[0], 1, 1}, 0), b_.size(view_[1], DType::I64));
      ValueId flat = add(b_, first, cast(b_, targets, DType::I64));
      flat = add(b_, mul(b_, flat, b_.size(view_[2], DType::I64)), iota(b_, {1, 1, view_[2]}, 2));
      flat = select(b_, ge(b_, targets, 0.0), flat, -1.0);
      view_ = {1, view_[0] * view_[1] * view_[2], 1};
      count_ = all[0] * all[1] * all[2];
      targets = reshape(b_, flat, {1, count_});
    }
    const SymExpr batches = view_[0], size = view_[1];
    const DType dtype = is_narrow(size) ? DType::I32 : DType::I64;
    const ValueId behind = b_.size(size, DType::I64), wide = cast(b_, targets, DType::I64);
    const ValueId key = cast(b_, select(b_, ge(b_, wide, 0.0), wide, behind), dtype);
    const ValueId order = b_.op("sort_indices", {key}, {{"k", SymShape{count_}}});
    const ValueId none = expand(b_, b_.scalar_i(DType::I32, 0), {batches, size});
    const ValueId ones = expand(b_, b_.scalar_i(DType::I32, 1), {batches, count_});
    const ValueId counts = scatter(none, {batches, size, 1}, targets, ones, "add", false);
    const ValueId ends = b_.op("scan", {counts}, {{"kind", std::string("sum")}, {"axis", int64_t{1}}});
    return b_.op("scatter_segments", {data_, order, sub(b_, ends, counts), counts, updates_},
                 {{"reduction", reduction_}, {"view", view_}});
  }

  B b_;
  const std::string reduction_;
  ValueId data_, targets_, updates_;
  SymShape view_; // of the data: [b, t, s]
  SymExpr count_; // updates of a batch
};

// One after another, updates wait for the level-2 cache twice each; in any order they take some kernels more.
bool pays(const SymExpr& count, const ShapeEnv& env, const Target& device) {
  constexpr int kKernels = 6;
  const auto updates = env.simplify(count).as_const();
  return !updates || 2 * static_cast<double>(*updates) * device.l2_latency_us > kKernels * device.launch_us;
}

} // namespace

Result<bool> scatter_in_any_order(Graph& graph, const Target& device) {
  bool changed = false;
  for (NodeId id : graph.order()) {
    const Node node = graph.node(id);
    if (node.op->name != "scatter" || node.attributes.i("unique") != 0) continue;
    const DType dtype = graph.type(node.operands[0]).dtype;
    const std::string reduction = node.attributes.s("reduction", "none");
    const bool is_atomic = is_integer(dtype) && info(dtype).bits >= 32 && reduction != "none" && reduction != "mul";
    if (is_atomic || !pays(graph.type(node.operands[1]).shape[1], graph.env(), device)) continue;
    TESSERA_ASSIGN(ValueId out, Scatter(graph, node).run());
    graph.value(out).name = std::exchange(graph.value(node.results[0]).name, {});
    graph.replace_all_uses(node.results[0], out);
    graph.remove_node(id);
    changed = true;
  }
  if (changed) graph.compact();
  return changed;
}

} // namespace tessera
