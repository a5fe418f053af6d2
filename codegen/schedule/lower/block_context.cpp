#include "codegen/schedule/lower/block_context.h"

namespace tessera::block {

Context::Context(const Graph& graph_, const LoopNest& nest_, const BlockSpace& space, const Legal& legal_,
                 const std::string& name, OnlineSums online_, bool window)
    : KernelContext(graph_, nest_, space.domain, std::move(online_),
                    space.domain.reduces && (legal_.schedule.traversal.loop || legal_.blocks_per_row)
                        ? plan_stages(nest_, space.domain)
                        : Stages(),
                    name),
      legal(legal_), schedule(legal_.schedule), memo(d.live.size()), point(window ? -1 : space.point),
      depth(space.depth), step(space.step) {
  out.kernel.config["warps"] = schedule.tile.warps;
  if (schedule.access.min_blocks > 0) out.kernel.config["min_blocks"] = schedule.access.min_blocks;
  if (schedule.cooperation.cluster > 1) out.kernel.config["cluster"] = schedule.cooperation.cluster;
  if (schedule.access.streaming_stores) out.kernel.config["streaming"] = 1;
  out.schedule = schedule;
  out.conditions = legal.conditions;

  sides[0].axis = space.row;
  sides[0].lanes = schedule.tile.rows;
  sides[0].box = space.box;
  sides[0].cluster = schedule.cooperation.cluster;
  sides[1].axis = space.column;
  sides[1].lanes = schedule.tile.columns;
  for (int i : {0, 1})
    if (const int axis = sides[static_cast<size_t>(i)].axis;
        d.reduces && axis >= 0 && d.axes[static_cast<size_t>(axis)].role == AxisRole::Row)
      fold = i;
  if (fold >= 0)
    sides[static_cast<size_t>(fold)].steps = schedule.traversal.fold_steps,
    sides[static_cast<size_t>(fold)].run = schedule.tile.contiguous;
  if (!d.reduces) sides[1].run = schedule.tile.contiguous;
  int rank = 0;
  for (Side& s : sides)
    if (s.lanes > 1) {
      s.dim = rank;
      rank += s.dims();
    }
}

std::vector<int> Part::full_shape() const {
  std::vector<int> shape;
  for (const Side& s : sides_) {
    if (s.dim < 0) continue;
    if (s.steps > 1) shape.push_back(s.steps);
    shape.push_back(s.width());
    if (s.run > 1) shape.push_back(s.run);
  }
  return shape;
}

// Restores the row's dimensions, of extent 1, in a tile without them.
V Part::keep_dims(V v) {
  if (!is_tile(v)) return v;
  for (size_t rank = full_shape().size(); b_.kernel().type(v).shape.size() < rank;)
    v = b_.expand_dims(v, fold_side()->dim);
  return v;
}

V Part::inside(const std::vector<int>& shape) {
  V mask = -1;
  for (const Side& s : sides_) {
    bool moves = false;
    for (int i = 0; i < s.dims() && !shape.empty(); ++i) moves = moves || shape[static_cast<size_t>(s.dim + i)] > 1;
    if (moves && s.mask >= 0) mask = both(mask, s.mask);
  }
  return mask;
}

// Cache hints of inputs as large as the nest. Lines that stay in L2 until the last of several stages are evicted first
// by that stage, and no stage before it evicts them first.
tile::Caching Part::caching(const Access& a) const {
  if (!a.terms.empty() || d_.access_deps(a) != (uint64_t{1} << d_.axes.size()) - 1) return tile::Caching::Normal;
  const tile::Caching hint = schedule_.access.load_hint;
  if (c_.last_round == 0) return hint;
  if (hint == tile::Caching::EvictLast && c_.reading == c_.last_round) return tile::Caching::EvictFirst;
  return hint == tile::Caching::EvictFirst && c_.reading < c_.last_round ? tile::Caching::Normal : hint;
}

} // namespace tessera::block
