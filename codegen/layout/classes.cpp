#include "codegen/layout/classes.h"
#include "codegen/layout/dot.h"
#include <algorithm>
#include <numeric>

namespace tessera::layout {

using tile::Op;
using tile::OpId;
using tile::OpKind;
using tile::Type;
using tile::ValueId;

const LinearLayout& Classes::of_shape(const std::vector<int>& shape) {
  auto it = by_shape.find(shape);
  if (it == by_shape.end())
    it = by_shape.emplace(shape, layout_for(shape, vote(shape, {}, 1), warps, std::vector<bool>(shape.size(), false)))
             .first;
  return it->second;
}

namespace {

bool is_access(const Op& op) {
  return op.kind == OpKind::Load || op.kind == OpKind::Store || op.kind == OpKind::Atomic;
}

class Classifier {
public:
  Classifier(const tile::Kernel& kernel, int warps, const WarpgroupPlan* plan)
      : k_(kernel), plan_(plan), info_(axis_info(kernel)), parent_(static_cast<size_t>(kernel.value_count())) {
    r_.warps = warps;
    r_.plan = plan;
    if (auto it = kernel.config.find("width"); it != kernel.config.end())
      widest_ = static_cast<int>(std::min<int64_t>(it->second, kAccessBytes));
    r_.cheap.resize(parent_.size());
    r_.of_value.resize(parent_.size());
    r_.of_access.resize(static_cast<size_t>(kernel.op_count()));
    r_.access_width.assign(static_cast<size_t>(kernel.op_count()), 1);
    r_.splits.assign(static_cast<size_t>(kernel.op_count()), false);
    r_.windows.resize(static_cast<size_t>(kernel.op_count()));
    std::iota(parent_.begin(), parent_.end(), 0);
  }

  Classes run() {
    collect(k_.body);
    for (const Op* op : ops_) mark_cheap(*op);
    for (const Op* op : ops_) tie(*op);
    for (OpId id : accesses_) accesses_of_[host(k_.op(id))].push_back(access_of(k_, id, info_));
    gather_by_shape();
    choose();
    assign();
    return std::move(r_);
  }

private:
  const tile::Kernel& k_;
  const WarpgroupPlan* plan_;
  std::vector<AxisInfo> info_;
  std::vector<ValueId> parent_; // union-find; a class is named by its smallest value
  std::vector<const Op*> ops_;  // in program order, regions included
  std::vector<OpId> accesses_;  // of tiles
  // By access: its class; -1 if all its values are cheap.
  std::map<ValueId, std::vector<Access>> accesses_of_;
  std::map<std::vector<int>, std::vector<Access>> accesses_of_shape_;
  std::map<std::vector<int>, std::vector<bool>> reduced_;
  struct Choice {
    LinearLayout layout;
    int fastest = 0; // the axis along which lanes run first
  };
  std::map<ValueId, Choice> choice_;    // by class
  std::set<ValueId> warpgroup_classes_; // those of sums of warpgroups
  Classes r_;
  int widest_ = kAccessBytes;

  [[nodiscard]] bool is_tile(ValueId v) const { return k_.type(v).is_tile(); }
  [[nodiscard]] bool is_cheap(ValueId v) const { return r_.cheap[static_cast<size_t>(v)]; }
  [[nodiscard]] bool has_class(ValueId v) const { return is_tile(v) && !is_cheap(v); }

  ValueId find(ValueId v) {
    ValueId root = v;
    while (parent_[static_cast<size_t>(root)] != root) root = parent_[static_cast<size_t>(root)];
    while (parent_[static_cast<size_t>(v)] != root) v = std::exchange(parent_[static_cast<size_t>(v)], root);
    return root;
  }
  void unite(ValueId a, ValueId b) {
    if (!has_class(a) || !has_class(b)) return;
    a = find(a), b = find(b);
    parent_[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
  }

  void collect(const std::vector<OpId>& block) {
    for (OpId id : block) {
      const Op& op = k_.op(id);
      ops_.push_back(&op);
      if (is_access(op) && is_tile(op.operands[1])) accesses_.push_back(id);
      if (op.kind == OpKind::Reduce) {
        std::vector<bool>& axes = reduced_[k_.type(op.operands[0]).shape];
        axes.resize(k_.type(op.operands[0]).shape.size(), false);
        axes[static_cast<size_t>(op.axis)] = true;
      }
      for (const auto& region : op.regions) collect(region);
    }
  }

  void mark_cheap(const Op& op) {
    if (op.results.size() != 1 || !is_tile(op.results[0])) return;
    bool all =
        std::all_of(op.operands.begin(), op.operands.end(), [&](ValueId v) { return !is_tile(v) || is_cheap(v); });
    bool cheap = false;
    switch (op.kind) {
    case OpKind::Const:
    case OpKind::Range: cheap = true; break;
    case OpKind::ExpandDims:
    case OpKind::Broadcast: cheap = all; break;
    case OpKind::Scalar: {
      // Always for index arithmetic: to move a 64-bit integer costs as much as a division.
      constexpr int kCheapCost = 4;
      DType d = k_.type(op.results[0]).dtype;
      cheap = all && (is_integer(d) || d == DType::Bool || info(op.scalar).cost <= kCheapCost);
      break;
    }
    default: break;
    }
    r_.cheap[static_cast<size_t>(op.results[0])] = cheap;
  }

  void tie(const Op& op) {
    switch (op.kind) {
    case OpKind::Scalar:
      for (ValueId v : op.operands) unite(op.results[0], v);
      return;
    case OpKind::Load:
      for (size_t i = 1; i < op.operands.size(); ++i) unite(op.results[0], op.operands[i]);
      return;
    case OpKind::Store:
    case OpKind::Atomic:
      for (size_t i = 1; i < op.operands.size(); ++i)
        for (size_t j = 1; j < i; ++j) unite(op.operands[i], op.operands[j]);
      return;
    case OpKind::Reduce:
      if (op.operands.size() == 2) unite(op.operands[0], op.operands[1]);
      if (op.results.size() == 2) unite(op.results[0], op.results[1]);
      return;
    case OpKind::ReportIndex:
      for (size_t i : {size_t{1}, size_t{2}}) unite(op.operands[0], op.operands[i]);
      return;
    case OpKind::Scan: unite(op.results[0], op.operands[0]); return;
    case OpKind::Dot: unite(op.results[0], op.operands[2]); return;
    case OpKind::For:
    case OpKind::If:
      for (size_t i = 0; i < op.results.size(); ++i) {
        if (op.kind == OpKind::For) {
          unite(op.results[i], op.operands[i + 3]);
          unite(op.results[i], op.region_args[0][i + 1]);
        }
        for (const auto& region : op.regions) unite(op.results[i], k_.op(region.back()).operands[i]);
      }
      return;
    default: return;
    }
  }

  // The class whose layout an access prefers.
  ValueId host(const Op& op) {
    if (op.kind == OpKind::Load) return find(op.results[0]);
    for (size_t i : {size_t{2}, size_t{1}, size_t{3}})
      if (i < op.operands.size() && has_class(op.operands[i])) return find(op.operands[i]);
    return -1;
  }

  // Tiles with two axes or more have one layout per shape, so that classes related only through a smaller tile (a sum
  // of two row sums) agree, too.
  static bool votes_by_shape(const std::vector<int>& shape) {
    return std::count_if(shape.begin(), shape.end(), [](int d) { return d > 1; }) > 1;
  }
  void gather_by_shape() {
    for (const auto& [cls, list] : accesses_of_)
      for (const Access& a : list)
        if (cls < 0 || votes_by_shape(a.shape)) accesses_of_shape_[a.shape].push_back(a);
  }

  Choice choose_for(const std::vector<int>& shape, const std::vector<Access>& accesses) {
    Preference p = vote(shape, accesses, widest_);
    auto it = reduced_.find(shape);
    return {layout_for(shape, p, r_.warps, it == reduced_.end() ? std::vector<bool>(shape.size(), false) : it->second),
            p.order[0]};
  }

  // Tensor core products have fixed layouts. Then the largest tiles choose first; tiles that are broadcast to or
  // reduced from a tile with a layout get its slice.
  void choose() {
    for (OpId id = 0; id < k_.op_count(); ++id)
      if (k_.op(id).kind == OpKind::Dot)
        if (auto layout = accumulator_layout(k_, id, r_.warps, plan_)) {
          choice_.emplace(find(k_.op(id).results[0]), Choice{std::move(*layout), 1});
          if (plan_ && plan_->has_product(id)) warpgroup_classes_.insert(find(k_.op(id).results[0]));
          if (auto left = left_layout(k_, id, r_.warps, plan_); left && has_class(k_.op(id).operands[0]))
            choice_.emplace(find(k_.op(id).operands[0]), Choice{std::move(*left), 1});
        }
    // Exchanged partial results are small, and all warps fold them: each warp holds all of them.
    for (const Op* op : ops_)
      if (op->kind == OpKind::Exchange)
        for (ValueId v : op->results) choice_.emplace(find(v), Choice{warp_layout(k_.type(v).shape, r_.warps), 0});
    while (spread()) {
    }
    std::vector<ValueId> classes;
    for (ValueId v = 0; v < k_.value_count(); ++v)
      if (has_class(v) && find(v) == v) classes.push_back(v);
    std::stable_sort(classes.begin(), classes.end(),
                     [&](ValueId a, ValueId b) { return k_.type(a).count() > k_.type(b).count(); });
    for (ValueId c : classes) {
      if (choice_.contains(c)) continue;
      const std::vector<int>& shape = k_.type(c).shape;
      choice_[c] = choose_for(shape, votes_by_shape(shape) ? accesses_of_shape_[shape] : accesses_of_[c]);
      while (spread()) {
      }
    }
    for (const auto& [c, choice] : choice_) r_.by_shape.emplace(k_.type(c).shape, choice.layout);
    for (const auto& [shape, list] : accesses_of_shape_)
      if (!r_.by_shape.contains(shape)) r_.by_shape.emplace(shape, choose_for(shape, list).layout);
  }

  bool spread() {
    bool changed = false;
    auto derive = [&](ValueId from, ValueId to, auto make) {
      if (!has_class(from) || !has_class(to) || !choice_.contains(find(from)) || choice_.contains(find(to))) return;
      choice_[find(to)] = make(choice_.at(find(from)));
      changed = true;
    };
    for (const Op* op : ops_) {
      auto dropped = [&](const Choice& c) {
        int rank = static_cast<int>(c.layout.out().size()) - 1;
        int fastest = c.fastest > op->axis ? c.fastest - 1 : c.fastest == op->axis ? rank - 1 : c.fastest;
        return Choice{c.layout.drop_axis(op->axis), std::max(0, fastest)};
      };
      switch (op->kind) {
      case OpKind::Reduce:
        for (size_t i = 0; i < op->results.size(); ++i) derive(op->operands[0], op->results[i], dropped);
        break;
      case OpKind::ExpandDims:
        derive(op->results[0], op->operands[0], dropped);
        derive(op->operands[0], op->results[0], [&](const Choice& c) {
          return Choice{c.layout.insert_axis(op->axis), c.fastest >= op->axis ? c.fastest + 1 : c.fastest};
        });
        break;
      case OpKind::Broadcast:
        derive(op->results[0], op->operands[0], [&](const Choice& c) {
          return Choice{c.layout.project(k_.type(op->operands[0]).shape), c.fastest};
        });
        break;
      default: break;
      }
    }
    return changed;
  }

  // Layouts of single values and accesses: a transposed access keeps its own layout; reductions yield slices of the
  // operand's layout; scans need a contiguous segment of the axis per thread.
  void assign() {
    for (ValueId v = 0; v < k_.value_count(); ++v)
      if (has_class(v)) r_.of_value[static_cast<size_t>(v)] = choice_.at(find(v)).layout;
    for (auto& [cls, list] : accesses_of_)
      for (const Access& a : list) assign_access(cls, a);
    for (const Op* op : ops_) {
      if (op->kind == OpKind::Scan && has_class(op->results[0])) {
        LinearLayout& l = r_.of_value[static_cast<size_t>(op->results[0])];
        if (!is_scannable(l, op->axis)) l = scan_layout(k_.type(op->results[0]).shape, op->axis, r_.warps);
      }
      if (op->kind == OpKind::Reduce && is_tile(op->results[0])) {
        ValueId from = has_class(op->operands[0]) || op->operands.size() == 1 ? op->operands[0] : op->operands[1];
        const LinearLayout& l =
            has_class(from) ? r_.of_value[static_cast<size_t>(from)] : r_.of_shape(k_.type(from).shape);
        for (ValueId v : op->results) r_.of_value[static_cast<size_t>(v)] = l.drop_axis(op->axis);
      }
    }
  }

  void assign_access(ValueId cls, const Access& a) {
    const Op& op = k_.op(a.op);
    LinearLayout& layout = r_.of_access[static_cast<size_t>(a.op)];
    layout = cls < 0 ? r_.of_shape(a.shape) : choice_.at(cls).layout;
    if (plan_ && plan_->is_read(a.op)) return; // of shared memory
    // Cheap offsets and masks are free in another layout; converting others would cost more than it saves.
    auto movable = [&](size_t i) { return i >= op.operands.size() || !has_class(op.operands[i]); };
    bool load = op.kind == OpKind::Load;
    if (cls >= 0 && a.better_axis(choice_.at(cls).fastest) >= 0 && movable(1) && movable(load ? 2 : 3) &&
        (!load || movable(3))) {
      layout = choose_for(a.shape, {a}).layout;
      if (load) r_.of_value[static_cast<size_t>(op.results[0])] = layout;
    }
    // A thread has two neighbours of a warpgroup's sum. Exchanges within the warp cost less than narrow accesses.
    if (warpgroup_classes_.contains(cls) && movable(1) && movable(load ? 2 : 3) && (!load || movable(3)))
      for (size_t i = 0; i < a.shape.size(); ++i) {
        if (a.width[i] <= layout.contiguous(axis(static_cast<int>(i)))) continue;
        layout = with_contiguous(layout, static_cast<int>(i), a.width[i]);
        if (load) r_.of_value[static_cast<size_t>(op.results[0])] = layout;
        break;
      }
    int& width = r_.access_width[static_cast<size_t>(a.op)];
    for (size_t i = 0; i < a.shape.size(); ++i) {
      int along = std::min(a.width[i], layout.contiguous(axis(static_cast<int>(i))));
      if (along <= width) continue;
      width = along;
      r_.splits[static_cast<size_t>(a.op)] = along > a.same[i];
    }
    for (size_t i = 0; i < a.shape.size(); ++i) {
      const auto beside =
          static_cast<int>(std::min<int64_t>(layout.contiguous(axis(static_cast<int>(i))), a.contiguity[i]));
      if (int w = a.windows(static_cast<int>(i), beside)) r_.windows[static_cast<size_t>(a.op)] = {w, beside};
    }
  }
};

} // namespace

Classes classify(const tile::Kernel& kernel, int warps, const WarpgroupPlan* plan) {
  return Classifier(kernel, warps, plan).run();
}

} // namespace tessera::layout
