#include "codegen/schedule/block_space.h"
#include <algorithm>

namespace tessera {
namespace {

using Substitution = std::unordered_map<uint64_t, SymExpr>;

// The members of one group as parts of a flattened index.
class Group {
public:
  Group(const Domain& d, const std::vector<size_t>& members) {
    for (size_t m : members) axes_.push_back(d.axes[m]);
    for (const Axis& a : axes_) extent_ *= a.extent;
    extent_ = d.env.simplify(extent_);
    axis_ = axes_.size() == 1 ? axes_[0]
                              : Axis{SymExpr::symbol(axes_.back().var.symbol_name()), extent_, axes_.back().role};
  }
  [[nodiscard]] const Axis& axis() const { return axis_; }
  [[nodiscard]] bool single() const { return axes_.size() == 1; }

  // Flattened index of the adjacent members first..last, from the group's index.
  [[nodiscard]] SymExpr part(size_t first, size_t last) const {
    SymExpr below = 1, count = 1;
    for (size_t i = last + 1; i < axes_.size(); ++i) below *= axes_[i].extent;
    for (size_t i = first; i <= last; ++i) count *= axes_[i].extent;
    if (below.is_const(0) || count.is_const(0)) return 0; // the iteration space is empty
    SymExpr n = below.is_const(1) ? axis_.var : floordiv(axis_.var, below);
    return first == 0 ? n : mod(n, count);
  }

  [[nodiscard]] SymExpr rewrite(const SymExpr& e, const ShapeEnv& env) const {
    bool touched = std::any_of(axes_.begin(), axes_.end(), [&](const Axis& a) { return e.contains(a.var); });
    if (!touched || single()) return e;
    std::vector<SymExpr> strides;
    SymExpr rest = e;
    for (const Axis& a : axes_) {
      auto linear = rest.linear_in(a.var);
      if (!linear ||
          std::any_of(axes_.begin(), axes_.end(), [&](const Axis& other) { return linear->first.contains(other.var); }))
        break;
      strides.push_back(linear->first);
      rest = linear->second;
    }
    if (strides.size() < axes_.size()) { // not affine in all members: each separately
      Substitution by;
      for (size_t i = 0; i < axes_.size(); ++i) by.emplace(axes_[i].var.symbol_id(), part(i, i));
      return env.simplify(e.substitute(by));
    }
    for (size_t first = 0; first < axes_.size();) {
      size_t last = first;
      auto as_one = [&](size_t i) {
        SymExpr apart = strides[i] - strides[i + 1] * axes_[i + 1].extent;
        return apart.is_const(0) || env.simplify(apart).is_const(0);
      };
      while (last + 1 < axes_.size() && as_one(last)) ++last;
      if (!strides[last].is_const(0)) rest += part(first, last) * strides[last];
      first = last + 1;
    }
    return env.simplify(rest);
  }

private:
  std::vector<Axis> axes_;
  Axis axis_;
  SymExpr extent_ = 1;
};

} // namespace

BlockSpace group_axes(const LoopNest& nest, Domain domain, const AxisGroups& groups) {
  BlockSpace space;
  std::vector<Axis> axes;
  auto add = [&](const std::vector<size_t>& members) {
    if (members.empty()) return -1;
    Group group(domain, members);
    if (!group.single()) {
      domain.env.set_axis(group.axis().var, group.axis().extent);
      auto rewrite = [&](SymExpr& e) { e = group.rewrite(e, domain.env); };
      each_expression(nest, domain, rewrite);
      each_position(nest, domain, rewrite);
    }
    axes.push_back(group.axis());
    return static_cast<int>(axes.size()) - 1;
  };
  space.point = add(groups.points);
  for (size_t i = 0; i < groups.box.size(); ++i) space.box.push_back({add({groups.rows[i]}), groups.box[i]});
  space.row = groups.box.empty() ? add(groups.rows) : space.box.back().axis;
  space.column = add(groups.columns);
  space.step = add(groups.steps);
  space.depth = add(groups.depth);
  domain.axes = std::move(axes);
  find_dependences(nest, domain);
  space.domain = std::move(domain);
  return space;
}

void split_axis(const LoopNest& nest, Domain& domain, size_t axis, int64_t by) {
  Axis old = domain.axes[axis];
  Axis high{SymExpr::symbol(old.var.symbol_name() + "o"), domain.env.simplify(floordiv(old.extent, by)), old.role};
  Axis low{SymExpr::symbol(old.var.symbol_name() + "i"), by, old.role};
  for (const Axis& a : {high, low}) domain.env.set_axis(a.var, a.extent);
  domain.axes[axis] = high;
  domain.axes.insert(domain.axes.begin() + static_cast<int64_t>(axis) + 1, low);
  Substitution with{{old.var.symbol_id(), high.var * by + low.var}};
  auto rewrite = [&](SymExpr& e) {
    if (e.contains(old.var)) e = domain.env.simplify(e.substitute(with));
  };
  each_expression(nest, domain, rewrite);
  each_position(nest, domain, rewrite);
  find_dependences(nest, domain);
}

uint64_t axis_bits(std::span<const size_t> axes) {
  uint64_t set = 0;
  for (size_t a : axes) set |= uint64_t{1} << a;
  return set;
}

AxisGroups axis_groups(const Placement& p, size_t axes, int contiguous_axis, uint64_t row_mask) {
  const bool splits = p.split_axis >= 0;
  AxisGroups g;
  for (size_t i = 0; i < axes + (splits ? 1 : 0); ++i) {
    const bool step = p.depth_axes != 0 && (row_mask >> i & 1);
    (p.row_axes >> i & 1      ? g.rows
     : p.column_axes >> i & 1 ? g.columns
     : p.depth_axes >> i & 1  ? g.depth
     : step                   ? g.steps
                              : g.points)
        .push_back(i);
  }
  for (size_t i = g.rows.size(); i-- > 0 && p.row_box != 0;) g.box.push_back(1 << box_bits(p.row_box, i));
  for (std::vector<size_t>* group : {&g.rows, &g.columns}) {
    if (group == &g.rows && !g.box.empty()) continue;
    auto last = std::find(group->begin(), group->end(), static_cast<size_t>(std::max(0, contiguous_axis)));
    if (last == group->end()) continue;
    const size_t axis = *last - (splits && *last > static_cast<size_t>(p.split_axis) ? 1 : 0);
    if (!(row_mask >> axis & 1)) std::rotate(last, last + 1, group->end());
  }
  return g;
}

} // namespace tessera
