// Loads a round ahead. In a loop, a tile that is loaded from memory and only read as a factor of a product on tensor
// cores need not pass through registers: its elements are copied to shared memory asynchronously (cp.async), those of
// the next round while this one computes. There are two stages of shared memory for it:
//
//   copy round 0 to stage 0
//   for each round:
//     wait for the copies; barrier: all threads' copies are there, and all have read the stage of the round before
//     copy the next round to the other stage
//     the loop's body; products read this stage
//
// The next round's offsets and masks are the body's own operations on ranges, sizes and the induction value, emitted
// once more for the next value.
//
// Loops that say `ahead=n` (rows that a block takes in turn) have the loads of n rounds under way, whatever reads them.
// A thread copies what it has of the tile to places of its own and reads it there, so no barrier is needed:
//
//   copy rounds 0 .. n - 1, each a group
//   for each round:
//     wait for all groups but the n - 1 last ones
//     the loop's body; a load reads this round's stage
//     copy round + n to this stage, if the loop may have so many; end the group, which may be empty
//
// A load of such a loop that is only stored to scratch, each round to another place, is copied there instead, and is
// neither loaded nor stored in the body: what later loops find there has been under way all at once.
#include "codegen/llvm/gpu_ahead.h"
#include "codegen/layout/dot.h"
#include "graph/support/check.h"
#include <cmath>
#include <functional>
#include <set>

namespace tessera::gpu {

using layout::Conversion;
using layout::Dim;
using tile::OpKind;

namespace {

// Operations of a loop's body, and the values that are defined anywhere in it.
struct Body {
  std::map<tile::ValueId, tile::OpId> definitions; // by operations right in the body
  std::set<tile::ValueId> inside;
  bool stores = false; // to memory that others see
  std::set<tile::ValueId> scratch;

  Body(const tile::Kernel& k, const tile::Op& loop) {
    for (tile::OpId id = 0; id < k.op_count(); ++id)
      if (k.op(id).kind == OpKind::Scratch) scratch.insert(k.op(id).results[0]);
    for (auto v : loop.region_args[0]) inside.insert(v);
    for (auto id : loop.regions[0])
      for (auto v : k.op(id).results) definitions[v] = id;
    collect(k, loop.regions[0]);
  }
  void collect(const tile::Kernel& k, const std::vector<tile::OpId>& ops) {
    for (auto id : ops) {
      const auto& op = k.op(id);
      const bool writes = op.kind == OpKind::Store || op.kind == OpKind::AtomicAdd;
      stores = stores || (writes && !scratch.contains(op.operands[0]));
      inside.insert(op.results.begin(), op.results.end());
      for (const auto& args : op.region_args) inside.insert(args.begin(), args.end());
      for (const auto& region : op.regions) collect(k, region);
    }
  }
  // Whether a value depends on the induction value, as far as operations right in the body show.
  bool moves(const tile::Kernel& k, const tile::Op& loop, tile::ValueId v) const {
    if (v == loop.region_args[0][0]) return true;
    auto it = definitions.find(v);
    if (it == definitions.end()) return false;
    const auto& operands = k.op(it->second).operands;
    return std::any_of(operands.begin(), operands.end(), [&](auto o) { return moves(k, loop, o); });
  }
  // Appends what computes `v` of the induction value alone, in order; false where more is needed.
  bool slice(const tile::Kernel& k, const tile::Op& loop, tile::ValueId v, std::vector<tile::OpId>& to) const {
    if (!inside.contains(v) || v == loop.region_args[0][0]) return true;
    auto it = definitions.find(v);
    if (it == definitions.end()) return false;
    if (std::find(to.begin(), to.end(), it->second) != to.end()) return true;
    const auto& op = k.op(it->second);
    switch (op.kind) {
    case OpKind::Const:
    case OpKind::Range:
    case OpKind::ExpandDims:
    case OpKind::Broadcast:
    case OpKind::Scalar: break;
    default: return false;
    }
    for (auto o : op.operands)
      if (!slice(k, loop, o, to)) return false;
    to.push_back(it->second);
    return true;
  }
};

// The only operation that reads `v`, and as which operand; nothing where there are several.
std::optional<std::pair<tile::OpId, size_t>> only_use(const tile::Kernel& k, tile::ValueId v) {
  std::optional<std::pair<tile::OpId, size_t>> found;
  for (tile::OpId id = 0; id < k.op_count(); ++id)
    for (size_t i = 0; i < k.op(id).operands.size(); ++i)
      if (k.op(id).operands[i] == v) {
        if (found) return std::nullopt;
        found = {id, i};
      }
  return found;
}

// By how much a number, or each element of a tile, grows from one round of the loop to the next; nothing where that is
// not a constant, as far as operations right in the body show.
std::optional<int64_t> growth(const tile::Kernel& k, const tile::Op& loop, const Body& body, int64_t step,
                              const std::function<std::optional<int64_t>(tile::ValueId)>& constant, tile::ValueId v) {
  if (v == loop.region_args[0][0]) return step;
  if (!body.moves(k, loop, v))
    return body.inside.contains(v) && !body.definitions.contains(v) ? std::nullopt : std::optional<int64_t>(0);
  const auto& op = k.op(body.definitions.at(v));
  auto of = [&](size_t operand) { return growth(k, loop, body, step, constant, op.operands[operand]); };
  if (op.kind == OpKind::Broadcast || op.kind == OpKind::ExpandDims) return of(0);
  if (op.kind != OpKind::Scalar) return std::nullopt;
  if (op.scalar == ScalarOp::Add) {
    const auto a = of(0), b = of(1);
    return a && b ? std::optional<int64_t>(*a + *b) : std::nullopt;
  }
  if (op.scalar != ScalarOp::Mul) return std::nullopt;
  for (size_t i : {size_t{0}, size_t{1}})
    if (const auto by = constant(op.operands[1 - i]))
      if (const auto grows = of(i)) return *grows * *by;
  return std::nullopt;
}

// Operations that write behind a pointer, however deep in regions.
int writes_to(const tile::Kernel& k, const std::vector<tile::OpId>& ops, tile::ValueId pointer) {
  int n = 0;
  for (auto id : ops) {
    const auto& op = k.op(id);
    n += (op.kind == OpKind::Store || op.kind == OpKind::AtomicAdd) && op.operands[0] == pointer;
    for (const auto& region : op.regions) n += writes_to(k, region, pointer);
  }
  return n;
}

bool is_zero(const tile::Kernel& k, tile::ValueId v) {
  for (tile::OpId id = 0; id < k.op_count(); ++id) {
    const auto& op = k.op(id);
    if (op.results.empty() || op.results[0] != v) continue;
    if (op.kind == OpKind::Broadcast) return is_zero(k, op.operands[0]);
    return op.kind == OpKind::Const && op.f == 0 && !std::signbit(op.f);
  }
  return false;
}

} // namespace

LoadsAhead::Ahead LoadsAhead::plan(const tile::Op& loop) {
  return loop.ahead > 0 ? own_loads_ahead(loop) : loads_ahead(loop);
}

void LoadsAhead::enter(const Ahead& ahead, Value* stage) {
  ++loops_;
  if (!ahead.copies.empty() && !ahead.own) ++depth_;
  for (const auto& c : ahead.copies) {
    const auto v = kernel_.op(c.load).results[0];
    if (!ahead.own)
      staged_[v] = {c.plan, dtype_of(v), ahead.region + c.at, stage, nullptr};
    else if (c.into < 0)
      own_[v] = {ahead, c, stage};
    else
      copied_.insert({c.load, c.into});
  }
}

void LoadsAhead::leave(const Ahead& ahead) {
  --loops_;
  if (!ahead.copies.empty() && !ahead.own) --depth_;
  if (ahead.own)
    for (const auto& c : ahead.copies) own_.erase(kernel_.op(c.load).results[0]);
}

const Staged* LoadsAhead::staged(tile::ValueId id) const {
  auto it = staged_.find(id);
  return it == staged_.end() ? nullptr : &it->second;
}

LoadsAhead::Ahead LoadsAhead::loads_ahead(const tile::Op& loop) {
  constexpr int kBytes = 2; // of an element
  Ahead ahead;
  Body body(kernel_, loop);
  std::set<tile::OpId> in_body(loop.regions[0].begin(), loop.regions[0].end());
  for (auto id : loop.regions[0]) {
    const auto& op = kernel_.op(id);
    if (op.kind != OpKind::Load || !kernel_.type(op.results[0]).is_tile()) continue;
    auto use = only_use(kernel_, op.results[0]);
    if (!use || use->second > 1 || !in_body.contains(use->first)) continue;
    const auto& dot = kernel_.op(use->first);
    if (dot.kind != OpKind::Dot || !layout::on_tensor_cores(kernel_, dot)) continue;
    // What is read earlier must be the same as what would be read in its place.
    const tile::Param* param = nullptr;
    for (const auto& p : kernel_.params)
      if (p.value == op.operands[0]) param = &p;
    if (!param || param->written || (body.stores && !param->invariant)) continue;
    if (op.operands.size() > 3 && !is_zero(kernel_, op.operands[3])) continue;
    auto wanted = layout::dot_layouts(kernel_, dot, layouts_.warps);
    Copy c{id, layout::plan_conversion(layouts_[op.results[0]], use->second == 0 ? wanted.a : wanted.b, kBytes), 0, 1};
    if (c.plan.kind != Conversion::Kind::Shared) continue;
    if (layouts_.splits[static_cast<size_t>(id)]) continue;
    c.width = std::min(layouts_.access_width[static_cast<size_t>(id)], c.plan.store_width);
    if (c.width * kBytes < 4) continue; // the least that a copy moves
    auto slice = ahead.slice;
    if (!body.slice(kernel_, loop, op.operands[1], slice)) continue;
    if (op.operands.size() > 2 && !body.slice(kernel_, loop, op.operands[2], slice)) continue;
    if (std::any_of(slice.begin(), slice.end(), [&](auto o) { return layouts_.is_conversion(kernel_.op(o)); }))
      continue;
    constexpr int kStages = 2;
    constexpr int64_t kMostBytes = Hazards::kSharedLimit * 2 / 3; // the rest is for exchanges
    int64_t bytes = ahead.stage_bytes + c.plan.shared_bytes;
    if (kStages * bytes > kMostBytes) continue;
    c.at = ahead.stage_bytes;
    ahead.stage_bytes = bytes;
    ahead.slice = std::move(slice);
    ahead.copies.push_back(std::move(c));
  }
  if (ahead.copies.empty()) return ahead;
  // Loops one after the other take the same memory.
  if (depth_ == 0 && bytes_ >= 2 * ahead.stage_bytes) {
    shared_.barrier();
    ahead.region = region_;
    return ahead;
  }
  if (c_.hazards.shared_is_pending()) shared_.barrier(); // what lay below could not be used any more
  auto region = c_.hazards.reserve_shared(2 * ahead.stage_bytes);
  if (!region) return {};
  ahead.region = *region;
  if (depth_ == 0) {
    region_ = ahead.region;
    bytes_ = 2 * ahead.stage_bytes;
  }
  return ahead;
}

// Whether the loop ends after so many rounds whatever its bounds are: to = min(from + rounds * step, ...) or the sum.
bool LoadsAhead::at_most_rounds(const tile::Op& loop, int rounds) const {
  auto constant = [&](tile::ValueId v) { return c_.facts[static_cast<size_t>(v)].constant; };
  const auto from = loop.operands[0], to = loop.operands[1];
  const auto step = constant(loop.operands[2]);
  if (!step) return false;
  const int64_t most = rounds * *step;
  if (auto a = constant(from), b = constant(to); a && b) return *b - *a <= most;
  std::function<bool(tile::ValueId)> near = [&](tile::ValueId v) {
    const auto* op = c_.definitions[static_cast<size_t>(v)];
    if (!op || op->kind != OpKind::Scalar) return false;
    if (op->scalar == ScalarOp::Min) return near(op->operands[0]) || near(op->operands[1]);
    if (op->scalar != ScalarOp::Add) return false;
    for (size_t i : {size_t{0}, size_t{1}})
      if (auto by = constant(op->operands[1 - i]); by && op->operands[i] == from && *by <= most) return true;
    return false;
  };
  return near(to);
}

tile::OpId LoadsAhead::only_stored(const tile::Op& loop, const tile::Op& load) const {
  if (loops_ > 0) return -1; // what touches the scratch behind this loop may come before it again
  const auto use = only_use(kernel_, load.results[0]);
  if (!use || use->second != 2) return -1;
  const auto& store = kernel_.op(use->first);
  const auto& in_body = loop.regions[0];
  if (store.kind != OpKind::Store || std::find(in_body.begin(), in_body.end(), use->first) == in_body.end()) return -1;
  const auto pointer = store.operands[0];
  if (store.operands.size() > 3 || !accesses_.is_scratch(pointer) || accesses_.is_touched_scratch(pointer)) return -1;
  if (writes_to(kernel_, in_body, pointer) > 1) return -1; // which of them is last must not depend on the copies
  const auto& layout = layouts_[load.results[0]];          // each element is one thread's
  if (layouts_[store.operands[1]] != layout || !layout.is_injective()) return -1;
  auto constant = [&](tile::ValueId v) { return c_.facts[static_cast<size_t>(v)].constant; };
  const auto step = constant(loop.operands[2]);
  if (!step || !accesses_.covers_whole_tiles(store.operands[1])) return -1;
  const auto grows = growth(kernel_, loop, Body(kernel_, loop), *step, constant, store.operands[1]);
  return grows && *grows > 0 && *grows % kernel_.type(load.results[0]).count() == 0 ? use->first : -1;
}

LoadsAhead::Ahead LoadsAhead::own_loads_ahead(const tile::Op& loop) {
  constexpr int64_t kMostBytes = Hazards::kSharedLimit * 2 / 3; // the rest is for exchanges
  Ahead ahead;
  ahead.own = true;
  ahead.stages = loop.ahead;
  ahead.refills = !at_most_rounds(loop, loop.ahead);
  Body body(kernel_, loop);
  for (auto id : loop.regions[0]) {
    const auto& op = kernel_.op(id);
    if (op.kind != OpKind::Load || !kernel_.type(op.results[0]).is_tile()) continue;
    // What is read earlier must be the same as what would be read in its place.
    const tile::Param* param = nullptr;
    for (const auto& p : kernel_.params)
      if (p.value == op.operands[0]) param = &p;
    if (!param || param->written || (body.stores && !param->invariant && !param->in_place)) continue;
    if (op.operands.size() > 3 && !is_zero(kernel_, op.operands[3])) continue;
    if (layouts_.windows[static_cast<size_t>(id)].width > 0) continue;
    // What does not move with the loop is found in the L1, or in registers.
    auto slice = ahead.slice;
    if (!body.moves(kernel_, loop, op.operands[1]) || !body.slice(kernel_, loop, op.operands[1], slice)) continue;
    if (op.operands.size() > 2 && !body.slice(kernel_, loop, op.operands[2], slice)) continue;
    if (std::any_of(slice.begin(), slice.end(), [&](auto o) { return layouts_.is_conversion(kernel_.op(o)); }))
      continue;
    Copy c;
    c.load = id;
    c.width = layouts_.access_width[static_cast<size_t>(id)];
    c.into = only_stored(loop, op);
    if (c.into >= 0) {
      c.width = std::min(c.width, layouts_.access_width[static_cast<size_t>(c.into)]);
      if (!body.slice(kernel_, loop, kernel_.op(c.into).operands[1], slice)) c.into = -1;
    }
    if (c.into < 0 && layouts_.splits[static_cast<size_t>(id)]) continue;
    const int bytes = element_bytes(kernel_.type(op.results[0]).dtype);
    if (c.width * bytes < 4) continue; // the least that a copy moves
    if (c.into >= 0) {
      ahead.slice = std::move(slice);
      ahead.copies.push_back(std::move(c));
      continue;
    }
    const int64_t all = int64_t{32} * layouts_.warps * layouts_[op.results[0]].registers() * bytes;
    if (ahead.stages * (ahead.stage_bytes + all) > kMostBytes) continue;
    c.at = ahead.stage_bytes;
    ahead.stage_bytes += all;
    ahead.slice = std::move(slice);
    ahead.copies.push_back(std::move(c));
  }
  if (ahead.stage_bytes == 0) return ahead;
  if (c_.hazards.shared_is_pending()) shared_.barrier(); // what lay below could not be used any more
  auto region = c_.hazards.reserve_shared(ahead.stages * ahead.stage_bytes);
  if (!region) return {};
  ahead.region = *region;
  return ahead;
}

// Byte offset of a thread's access, the one that begins with this register: neighbours' lie side by side.
llvm::Value* LoadsAhead::own_place(const Ahead& ahead, const Copy& copy, size_t register_index, Value* stage) {
  const auto bytes = static_cast<uint32_t>(element_bytes(kernel_.type(kernel_.op(copy.load).results[0]).dtype));
  const uint32_t access = static_cast<uint32_t>(copy.width) * bytes,
                 before = static_cast<uint32_t>(register_index) * bytes * 32 * static_cast<uint32_t>(layouts_.warps);
  auto* thread = b_.CreateMul(c_.thread, b_.getInt32(access), "", true, true);
  return b_.CreateAdd(b_.CreateAdd(thread, stage, "", true, true),
                      b_.getInt32(static_cast<uint32_t>(ahead.region + copy.at) + before), "", true, true);
}

Status LoadsAhead::load_own(const tile::Op& load) {
  const OwnTile& own = own_.at(load.results[0]);
  const DType dtype = kernel_.type(load.results[0]).dtype;
  const size_t n = register_count(load.results[0]);
  Registers masks, out;
  if (load.operands.size() > 2) masks = registers(load.operands[2], n);
  for (size_t r = 0; r < n; r += static_cast<size_t>(own.copy.width)) {
    if (!masks.empty() && is_never(masks[r])) { // nor copied
      out.insert(out.end(), static_cast<size_t>(own.copy.width),
                 llvm::Constant::getNullValue(math_.element_type(dtype)));
      continue;
    }
    for (auto* v : shared_.load(own_place(own.ahead, own.copy, r, own.stage), dtype, own.copy.width)) out.push_back(v);
  }
  define(load.results[0], std::move(out));
  return {};
}

// Of accesses whose mask holds for a part of their elements these are loaded and stored one by one, when all copies
// have been started.
Status LoadsAhead::copy(const tile::Op& loop, const Ahead& ahead, Value* induction, Value* predicate, Value* stage,
                        std::vector<std::function<void()>>& afterwards) {
  define(loop.region_args[0][0], {induction});
  for (auto id : ahead.slice) TESSERA_TRY(operations_.operation(id));
  for (const auto& c : ahead.copies) {
    const auto& op = kernel_.op(c.load);
    DType dtype = kernel_.type(op.results[0]).dtype;
    auto n = static_cast<size_t>(layouts_[op.results[0]].registers());
    auto bytes = static_cast<uint32_t>(info(dtype).bits / 8);
    Registers offsets = registers(op.operands[1], n), masks;
    if (op.operands.size() > 2) masks = registers(op.operands[2], n);
    accesses_.order(GlobalAccess::Kind::Read, op);
    if (ahead.own) {
      Registers places;
      const tile::Op* into = c.into < 0 ? nullptr : &kernel_.op(c.into);
      if (into) places = registers(into->operands[1], n);
      const bool splits = layouts_.splits[static_cast<size_t>(c.load)];
      Parts part;
      if (splits) part = accesses_.parts(masks, c.width);
      for (size_t r = 0; r < n; r += static_cast<size_t>(c.width)) {
        if (!into && !masks.empty() && is_never(masks[r])) continue;
        auto* to = into ? accesses_.address(into->operands[0], places[r]) : own_place(ahead, c, r, stage);
        const size_t access = r / static_cast<size_t>(c.width);
        Value* exists = masks.empty() ? nullptr : splits ? part.whole[access] : masks[r];
        gpu_.copy_async(to, accesses_.address(op.operands[0], offsets[r]), c.width * static_cast<int>(bytes), exists,
                        splits ? both(b_, predicate, b_.CreateNot(part.cut[access])) : predicate, op.caching);
      }
      if (!splits) continue;
      part.rest = both(b_, part.rest, predicate);
      afterwards.push_back([=, this, &op] {
        accesses_.rest_of(part, [&] {
          for (size_t r = 0; r < n; r += static_cast<size_t>(c.width)) {
            auto* cut = both(b_, predicate, part.cut[r / static_cast<size_t>(c.width)]);
            if (is_never(cut)) continue;
            Registers elements;
            for (size_t i = r; i < r + static_cast<size_t>(c.width); ++i) {
              int one = 0;
              auto* single = words_.type(dtype, 1, &one);
              const auto word =
                  gpu_.load_global(accesses_.address(op.operands[0], offsets[i]), single, 1, both(b_, cut, masks[i]),
                                   {}, accesses_.stability_of(op.operands[0]), op.caching);
              elements.push_back(words_.unpack(word, dtype, 1)[0]);
            }
            shared_.store(accesses_.address(into->operands[0], places[r]), elements, dtype, cut);
          }
        });
      });
      continue;
    }
    auto* acts = both(b_, predicate, positions_.acts_for_copies(c.plan.store_free_lanes, c.plan.store_free_warps));
    auto* part = positions_.thread_part(c.plan.store, Dim::Offset);
    uint32_t reach = thread_reach(c.plan.store, Dim::Offset);
    for (size_t r = 0; r < n; r += static_cast<size_t>(c.width)) {
      auto own = static_cast<uint32_t>(c.plan.store.apply(Dim::Register, static_cast<int>(r), Dim::Offset));
      auto* to = shared_.offset(part, own, reach, dtype, ahead.region + c.at, stage);
      gpu_.copy_async(to, accesses_.address(op.operands[0], offsets[r]), c.width * static_cast<int>(bytes),
                      masks.empty() ? nullptr : masks[r], acts, op.caching);
    }
  }
  gpu_.commit_copies();
  return {};
}

} // namespace tessera::gpu
