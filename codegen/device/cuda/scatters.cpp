// Scatters on a GPU whose targets may repeat, as what blocks do in any order:
//
//   none        of the updates of a target the last one counts, which the maximum of their numbers finds
//   min, max    of integers, by atomic updates; floats as integers in their order
//   add         of integers, by atomic updates
//   add         of floats, where the order of sums may vary: chunks fold neighbours of one target, and add them in f32 or
//               f64 by atomic updates (scatter_runs)
//   the others  updates are sorted by target; chunks of the order fold those of each target (scatter_runs)
#include "codegen/device/cuda/passes.h"
#include "codegen/schedule/own_kernels.h"
#include "graph/ops/builder.h"
#include "graph/ops/formulas.h"
#include "graph/ops/questions.h"
#include "graph/ops/scatter.h"
#include <limits>

namespace tessera {
namespace {

using namespace ops;

// The narrowest type that atomic updates have for these integers, and whether it is the type itself.
DType atomic_type(DType dtype) { return info(dtype).bits < 32 ? DType::I32 : dtype; }

class Scatter {
public:
  Scatter(Graph& graph, const Node& node, const Target& device, bool deterministic)
      : b_(graph, node), device_(device), deterministic_(deterministic), reduction_(b_.attr().s("reduction", "none")) {
    data_ = b_.in(0);
    targets_ = b_.in(1);
    updates_ = b_.in(2);
    view_ = scatter_view(graph, node);
    count_ = b_.dim(targets_, 1);
    if (b_.rank(targets_) == 3 && !view_[2].is_const(1))
      if (const ValueId column = one_column(targets_, 0); column.valid())
        targets_ = reshape(b_, column, {b_.dim(column, 0), count_});
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
    else if (reduction_ == "add" && !deterministic_)
      out = atomic_runs();
    else
      out = sorted_runs();
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

  // The value with one element along its last axis, where all elements along that axis are equal by construction, as
  // those of indices that were expanded are; else invalid.
  ValueId one_column(ValueId v, int depth) {
    constexpr int kDeepest = 16; // nodes between the indices and their expansion
    SymShape shape = b_.shape(v);
    if (shape.empty() || shape.back().is_const(1)) return v;
    const NodeId producer = b_.graph().value(v).producer;
    if (!producer.valid() || depth > kDeepest) return {};
    const Node node = b_.graph().node(producer);
    const Reshapes reshapes = ops::reshapes(node);
    if (reshapes == Reshapes::InOrder) return one_column_of_reshape(node.operands[0], shape, depth);
    const bool expands = reshapes == Reshapes::Repeated;
    if (!expands && !node.op->pointwise() && ops::checks_of(node) != ops::Checks::Index) return {};
    shape.back() = 1;
    std::vector<ValueId> operands;
    for (ValueId x : expands ? std::vector<ValueId>{node.operands[0]} : node.operands) {
      operands.push_back(x.valid() ? one_column(x, depth + 1) : x);
      if (x.valid() && !operands.back().valid()) return {};
    }
    return expands ? expand(b_, operands[0], shape) : b_.op(node.op->name, operands, node.attributes);
  }
  // One column of a reshape of x whose last axis is made of whole axes of x.
  ValueId one_column_of_reshape(ValueId x, SymShape shape, int depth) {
    SymExpr columns = 1;
    while (!b_.env().known_equal(columns, shape.back())) {
      SymShape rest = b_.shape(x);
      if (rest.empty()) return {};
      columns *= rest.back();
      x = one_column(x, depth + 1);
      if (!x.valid()) return {};
      rest.pop_back();
      x = reshape(b_, x, rest);
    }
    shape.back() = 1;
    return reshape(b_, x, shape);
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

  // Each element has a target of its own: one column of all elements.
  ValueId targets_of_elements() {
    if (b_.rank(targets_) != 3) return targets_;
    const SymShape all = b_.shape(targets_);
    const ValueId first = mul(b_, iota(b_, {view_[0], 1, 1}, 0), b_.size(view_[1], DType::I64));
    ValueId flat = add(b_, first, cast(b_, targets_, DType::I64));
    flat = add(b_, mul(b_, flat, b_.size(view_[2], DType::I64)), iota(b_, {1, 1, view_[2]}, 2));
    flat = select(b_, ge(b_, targets_, 0.0), flat, -1.0);
    view_ = {1, view_[0] * view_[1] * view_[2], 1};
    count_ = all[0] * all[1] * all[2];
    return reshape(b_, flat, {1, count_});
  }
  ValueId atomic_runs() {
    const DType stored = b_.dtype(data_);
    const ValueId targets = targets_of_elements();
    const RunChunks chunks = run_chunks(device_, stored);
    const ValueId out = b_.op("scatter_runs", {cast(b_, data_, compute_dtype(stored)), targets, updates_},
                              {{"atomic", int64_t{1}}, {"view", view_}, {"chunk", SymShape{chunks.in_flight}}});
    return cast(b_, out, stored);
  }

  ValueId sorted_runs() {
    const ValueId targets = targets_of_elements();
    const SymExpr size = view_[1];
    const DType dtype = is_narrow(size) ? DType::I32 : DType::I64;
    const ValueId behind = b_.size(size, DType::I64), wide = cast(b_, targets, DType::I64);
    const ValueId key = cast(b_, select(b_, ge(b_, wide, 0.0), wide, behind), dtype);
    return levels(targets, b_.op("sort_indices", {key}, {{"k", SymShape{count_}}}));
  }

  // Chunks of the order, then chunks of their partial results, until one chunk has the rest.
  ValueId levels(ValueId targets, ValueId order) {
    const RunChunks chunks = run_chunks(device_, b_.dtype(data_));
    ValueId out = data_, updates = updates_;
    SymExpr count = count_;
    for (double rest = 1;; rest *= 2.0 / static_cast<double>(chunks.updates)) {
      const bool last = one_chunk(count, rest, chunks);
      const SymExpr chunk = last ? sym_max(count, 1) : SymExpr(chunks.updates);
      std::vector<ValueId> operands = {out, targets, updates};
      if (rest == 1) operands.push_back(order);
      const auto results =
          b_.ops("scatter_runs", operands, {{"reduction", reduction_}, {"view", view_}, {"chunk", SymShape{chunk}}},
                 last ? 1 : 3);
      out = results[0];
      if (last || !b_.ok()) return out;
      targets = results[1];
      updates = results[2];
      count = b_.dim(targets, 1);
    }
  }
  // True if one chunk takes all `count` updates, a share `rest` of the scatter's own: no more than a chunk has, or so few
  // that they wait for less time than the scatter's updates need to be read.
  [[nodiscard]] bool one_chunk(const SymExpr& count, double rest, const RunChunks& chunks) {
    const ShapeEnv& env = b_.graph().env();
    if (env.range(count).hi <= chunks.updates) return true;
    if (env.simplify(count).as_const()) return false;
    const auto slices = env.simplify(view_[2]).as_const();
    const auto bytes = static_cast<double>(byte_size(b_.dtype(updates_), slices.value_or(1)));
    return rest < 1 && rest * chunks.update_us < bytes / device_.memory_bytes_per_us;
  }

  B b_;
  const Target& device_;
  const bool deterministic_;
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

Result<bool> scatter_in_any_order(Graph& graph, const Target& device, bool deterministic) {
  bool changed = false;
  for (NodeId id : graph.order()) {
    const Node node = graph.node(id);
    if (!ops::is(node, Structured::Scatter) || ops::piece_of(node) != ops::Piece::Rows ||
        node.attributes.i("unique") != 0)
      continue;
    const DType dtype = graph.type(node.operands[0]).dtype;
    const std::string reduction = node.attributes.s("reduction", "none");
    const bool is_atomic = is_integer(dtype) && info(dtype).bits >= 32 && reduction != "none" && reduction != "mul";
    if (is_atomic || !pays(graph.type(node.operands[1]).shape[1], graph.env(), device)) continue;
    TESSERA_ASSIGN(ValueId out, Scatter(graph, node, device, deterministic).run());
    graph.value(out).name = std::exchange(graph.value(node.results[0]).name, {});
    graph.replace_all_uses(node.results[0], out);
    graph.remove_node(id);
    changed = true;
  }
  if (changed) graph.compact();
  return changed;
}

} // namespace tessera
