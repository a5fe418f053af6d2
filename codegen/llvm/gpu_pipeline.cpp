// Software pipelining of a loop's loads by cp.async.
//
// Dot operands. A tile that is loaded from memory and only read as an operand of a tensor core product need not pass
// through registers: it is copied to shared memory asynchronously, that of later iterations while this one computes.
// There are n stages of shared memory, as many as `num_stages` says and there is room for, else two:
//
//   copy iterations 0 .. n - 2, each a group
//   for each iteration:
//     wait for all groups but the last n - 2; barrier: the copies of all threads are complete, and all have read the
//     previous stage
//     copy iteration + n - 1 to the previous stage
//     the loop's body; products read this stage
//
// Offsets and masks of a later iteration are the body's own operations on ranges, sizes and the induction value,
// emitted once more for its value.
//
// Loops with `num_stages=n` have the loads of n iterations in flight, whatever operation reads them. A thread copies
// its elements of the tile to its own part of shared memory and reads them there, so no barrier is needed:
//
//   copy iterations 0 .. n - 1, each a group
//   for each iteration:
//     wait for all groups but the last n - 1
//     the loop's body; a load reads this iteration's stage
//     copy iteration + n to this stage, if the loop may have so many; commit the group, which may be empty
//
// A load of such a loop whose only use is a store to scratch, at other elements in each iteration, is copied to the
// scratch directly; the body neither loads nor stores it.
#include "codegen/llvm/gpu_pipeline.h"
#include "base/check.h"
#include "codegen/layout/dot.h"
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
  bool stores = false; // to memory other than scratch
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
      const bool writes = op.kind == OpKind::Store || op.kind == OpKind::Atomic;
      stores = stores || (writes && !scratch.contains(op.operands[0]));
      inside.insert(op.results.begin(), op.results.end());
      for (const auto& args : op.region_args) inside.insert(args.begin(), args.end());
      for (const auto& region : op.regions) collect(k, region);
    }
  }
  // True if a value depends on the induction value through operations directly in the body.
  bool moves(const tile::Kernel& k, const tile::Op& loop, tile::ValueId v) const {
    if (v == loop.region_args[0][0]) return true;
    auto it = definitions.find(v);
    if (it == definitions.end()) return false;
    const auto& operands = k.op(it->second).operands;
    return std::any_of(operands.begin(), operands.end(), [&](auto o) { return moves(k, loop, o); });
  }
  // Appends the operations that compute `v` from the induction value, in order; false if `v` needs other operations.
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

// The only operation that reads `v`, and the operand's index; nothing if there are several.
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

// By how much a scalar, or each element of a tile, grows from one iteration to the next; nothing if no constant follows
// from the operations directly in the body.
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

// Number of operations that write through a pointer, nested regions included.
int writes_to(const tile::Kernel& k, const std::vector<tile::OpId>& ops, tile::ValueId pointer) {
  int n = 0;
  for (auto id : ops) {
    const auto& op = k.op(id);
    n += (op.kind == OpKind::Store || op.kind == OpKind::Atomic) && op.operands[0] == pointer;
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

Pipelining::Loads Pipelining::plan(const tile::Op& loop) {
  Loads factors = plan_factors(loop);
  return factors.copies.empty() && loop.num_stages > 0 ? plan_per_thread(loop) : factors;
}

void Pipelining::enter(const Loads& loads, Value* stage) {
  ++loops_;
  if (!loads.copies.empty() && !loads.per_thread) ++depth_;
  for (const auto& c : loads.copies) {
    const auto v = kernel_.op(c.load).results[0];
    if (!loads.per_thread)
      staged_[v] = {c.plan, dtype_of(v), loads.region + c.at, stage, nullptr};
    else if (c.into < 0)
      per_thread_[v] = {loads, c, stage};
    else
      copied_.insert({c.load, c.into});
  }
}

void Pipelining::leave(const Loads& loads) {
  --loops_;
  if (!loads.copies.empty() && !loads.per_thread) --depth_;
  if (loads.per_thread)
    for (const auto& c : loads.copies) per_thread_.erase(kernel_.op(c.load).results[0]);
}

const Staged* Pipelining::staged(tile::ValueId id) const {
  auto it = staged_.find(id);
  return it == staged_.end() ? nullptr : &it->second;
}

// True if stages may take so many bytes of shared memory. A loop that says how many stages it has may have all that the
// target's blocks have, but what is exchanged.
bool Pipelining::has_room(const tile::Op& loop, int64_t bytes) {
  constexpr int64_t kMaxBytes = Hazards::kSharedLimit * 2 / 3; // the rest is for conversions and reductions
  return bytes <= kMaxBytes || (loop.num_stages > 0 && c_.hazards.extend_for(bytes + Hazards::kExchangeBytes));
}

Pipelining::Loads Pipelining::plan_factors(const tile::Op& loop) {
  Loads loads;
  Body body(kernel_, loop);
  std::set<tile::OpId> in_body(loop.regions[0].begin(), loop.regions[0].end());
  for (auto id : loop.regions[0]) {
    const auto& op = kernel_.op(id);
    if (op.kind != OpKind::Load || !kernel_.type(op.results[0]).is_tile()) continue;
    auto use = only_use(kernel_, op.results[0]);
    if (!use || use->second > 1 || !in_body.contains(use->first)) continue;
    const auto& dot = kernel_.op(use->first);
    if (dot.kind != OpKind::Dot || !layout::on_tensor_cores(kernel_, dot)) continue;
    // The early read must yield what a read in the loop would: nothing may write the memory.
    const tile::Param* param = nullptr;
    for (const auto& p : kernel_.params)
      if (p.value == op.operands[0]) param = &p;
    if (!param || param->written || (body.stores && !param->invariant)) continue;
    if (op.operands.size() > 3 && !is_zero(kernel_, op.operands[3])) continue;
    auto wanted = layout::dot_layouts(kernel_, dot, layouts_.warps);
    const int element = element_bytes(kernel_.type(op.results[0]).dtype);
    Copy c{id, layout::plan_conversion(layouts_[op.results[0]], use->second == 0 ? wanted.a : wanted.b, element), 0, 1};
    if (c.plan.kind != Conversion::Kind::Shared) continue;
    if (layouts_.splits[static_cast<size_t>(id)]) continue;
    c.width = std::min(layouts_.access_width[static_cast<size_t>(id)], c.plan.store_width);
    if (c.width * element < 4) continue; // cp.async moves at least 4 bytes
    auto slice = loads.slice;
    if (!body.slice(kernel_, loop, op.operands[1], slice)) continue;
    if (op.operands.size() > 2 && !body.slice(kernel_, loop, op.operands[2], slice)) continue;
    if (std::any_of(slice.begin(), slice.end(), [&](auto o) { return layouts_.is_conversion(kernel_.op(o)); }))
      continue;
    int64_t bytes = loads.stage_bytes + c.plan.shared_bytes;
    if (!has_room(loop, 2 * bytes)) continue;
    c.at = loads.stage_bytes;
    loads.stage_bytes = bytes;
    loads.slice = std::move(slice);
    loads.copies.push_back(std::move(c));
  }
  if (loads.copies.empty()) return loads;
  for (loads.stages = std::max(2, loop.num_stages); loads.stages > 2; --loads.stages)
    if (has_room(loop, loads.stages * loads.stage_bytes)) break;
  // Consecutive loops use the same shared memory.
  if (depth_ == 0 && bytes_ >= loads.stages * loads.stage_bytes) {
    shared_.barrier();
    loads.region = region_;
    return loads;
  }
  if (c_.hazards.shared_is_pending()) shared_.barrier(); // else memory below the reserved region would stay unused
  auto region = c_.hazards.reserve_shared(loads.stages * loads.stage_bytes);
  if (!region) return {};
  loads.region = *region;
  if (depth_ == 0) {
    region_ = loads.region;
    bytes_ = loads.stages * loads.stage_bytes;
  }
  return loads;
}

// True if the loop never has more iterations: to = min(from + iterations * step, ...), or the sum itself.
bool Pipelining::at_most_iterations(const tile::Op& loop, int iterations) const {
  auto constant = [&](tile::ValueId v) { return c_.facts[static_cast<size_t>(v)].constant; };
  const auto from = loop.operands[0], to = loop.operands[1];
  const auto step = constant(loop.operands[2]);
  if (!step) return false;
  const int64_t most = iterations * *step;
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

tile::OpId Pipelining::only_store(const tile::Op& loop, const tile::Op& load) const {
  if (loops_ > 0) return -1; // in an outer loop's next iteration, accesses behind this loop precede it
  const auto use = only_use(kernel_, load.results[0]);
  if (!use || use->second != 2) return -1;
  const auto& store = kernel_.op(use->first);
  const auto& in_body = loop.regions[0];
  if (store.kind != OpKind::Store || std::find(in_body.begin(), in_body.end(), use->first) == in_body.end()) return -1;
  const auto pointer = store.operands[0];
  if (store.operands.size() > 3 || !accesses_.is_scratch(pointer) || accesses_.is_touched_scratch(pointer)) return -1;
  if (writes_to(kernel_, in_body, pointer) > 1) return -1; // the last write must not depend on when copies complete
  const auto& layout = layouts_[load.results[0]];          // one thread holds each element
  if (layouts_[store.operands[1]] != layout || !layout.is_injective()) return -1;
  auto constant = [&](tile::ValueId v) { return c_.facts[static_cast<size_t>(v)].constant; };
  const auto step = constant(loop.operands[2]);
  if (!step || !accesses_.covers_whole_tiles(store.operands[1])) return -1;
  const auto grows = growth(kernel_, loop, Body(kernel_, loop), *step, constant, store.operands[1]);
  return grows && *grows > 0 && *grows % kernel_.type(load.results[0]).count() == 0 ? use->first : -1;
}

Pipelining::Loads Pipelining::plan_per_thread(const tile::Op& loop) {
  constexpr int64_t kMaxBytes = Hazards::kSharedLimit * 2 / 3; // the rest is for conversions and reductions
  Loads loads;
  loads.per_thread = true;
  loads.stages = loop.num_stages;
  loads.refills = !at_most_iterations(loop, loop.num_stages);
  Body body(kernel_, loop);
  for (auto id : loop.regions[0]) {
    const auto& op = kernel_.op(id);
    if (op.kind != OpKind::Load || !kernel_.type(op.results[0]).is_tile()) continue;
    // The early read must yield what a read in the loop would: nothing may write the memory.
    const tile::Param* param = nullptr;
    for (const auto& p : kernel_.params)
      if (p.value == op.operands[0]) param = &p;
    if (!param || param->written || (body.stores && !param->invariant && !param->in_place)) continue;
    if (op.operands.size() > 3 && !is_zero(kernel_, op.operands[3])) continue;
    if (layouts_.windows[static_cast<size_t>(id)].width > 0) continue;
    // A load at the same offset in each iteration hits L1 or is hoisted.
    auto slice = loads.slice;
    if (!body.moves(kernel_, loop, op.operands[1]) || !body.slice(kernel_, loop, op.operands[1], slice)) continue;
    if (op.operands.size() > 2 && !body.slice(kernel_, loop, op.operands[2], slice)) continue;
    if (std::any_of(slice.begin(), slice.end(), [&](auto o) { return layouts_.is_conversion(kernel_.op(o)); }))
      continue;
    Copy c;
    c.load = id;
    c.width = layouts_.access_width[static_cast<size_t>(id)];
    c.into = only_store(loop, op);
    if (c.into >= 0) {
      c.width = std::min(c.width, layouts_.access_width[static_cast<size_t>(c.into)]);
      if (!body.slice(kernel_, loop, kernel_.op(c.into).operands[1], slice)) c.into = -1;
    }
    if (c.into < 0 && layouts_.splits[static_cast<size_t>(id)]) continue;
    const int bytes = element_bytes(kernel_.type(op.results[0]).dtype);
    if (c.width * bytes < 4) continue; // cp.async moves at least 4 bytes
    if (c.into >= 0) {
      loads.slice = std::move(slice);
      loads.copies.push_back(std::move(c));
      continue;
    }
    const int64_t all = int64_t{32} * layouts_.warps * layouts_[op.results[0]].registers() * bytes;
    if (loads.stages * (loads.stage_bytes + all) > kMaxBytes) continue;
    c.at = loads.stage_bytes;
    loads.stage_bytes += all;
    loads.slice = std::move(slice);
    loads.copies.push_back(std::move(c));
  }
  if (loads.stage_bytes == 0) return loads;
  if (c_.hazards.shared_is_pending()) shared_.barrier(); // else memory below the reserved region would stay unused
  auto region = c_.hazards.reserve_shared(loads.stages * loads.stage_bytes);
  if (!region) return {};
  loads.region = *region;
  return loads;
}

// Byte offset of a thread's access that begins with this register. Adjacent threads have adjacent offsets.
llvm::Value* Pipelining::thread_offset(const Loads& loads, const Copy& copy, size_t register_index, Value* stage) {
  const auto bytes = static_cast<uint32_t>(element_bytes(kernel_.type(kernel_.op(copy.load).results[0]).dtype));
  const uint32_t access = static_cast<uint32_t>(copy.width) * bytes,
                 before = static_cast<uint32_t>(register_index) * bytes * 32 * static_cast<uint32_t>(layouts_.warps);
  auto* thread = b_.CreateMul(c_.thread, b_.getInt32(access), "", true, true);
  return b_.CreateAdd(b_.CreateAdd(thread, stage, "", true, true),
                      b_.getInt32(static_cast<uint32_t>(loads.region + copy.at) + before), "", true, true);
}

Status Pipelining::load_per_thread(const tile::Op& load) {
  const PerThreadTile& entry = per_thread_.at(load.results[0]);
  const DType dtype = kernel_.type(load.results[0]).dtype;
  const size_t n = register_count(load.results[0]);
  Registers masks, out;
  if (load.operands.size() > 2) masks = registers(load.operands[2], n);
  for (size_t r = 0; r < n; r += static_cast<size_t>(entry.copy.width)) {
    if (!masks.empty() && is_never(masks[r])) { // not copied either
      out.insert(out.end(), static_cast<size_t>(entry.copy.width),
                 llvm::Constant::getNullValue(math_.element_type(dtype)));
      continue;
    }
    for (auto* v : shared_.load(thread_offset(entry.loads, entry.copy, r, entry.stage), dtype, entry.copy.width))
      out.push_back(v);
  }
  define(load.results[0], std::move(out));
  return {};
}

// An access whose mask is true for a part of its elements is made element by element, after all copies were started.
Status Pipelining::copy(const tile::Op& loop, const Loads& loads, Value* induction, Value* predicate, Value* stage,
                        std::vector<std::function<void()>>& deferred) {
  define(loop.region_args[0][0], {induction});
  for (auto id : loads.slice) TESSERA_TRY(operations_.operation(id));
  for (const auto& c : loads.copies) {
    const auto& op = kernel_.op(c.load);
    DType dtype = kernel_.type(op.results[0]).dtype;
    auto n = static_cast<size_t>(layouts_[op.results[0]].registers());
    auto bytes = static_cast<uint32_t>(info(dtype).bits / 8);
    Registers offsets = registers(op.operands[1], n), masks;
    if (op.operands.size() > 2) masks = registers(op.operands[2], n);
    accesses_.order(GlobalAccess::Kind::Read, op);
    if (loads.per_thread) {
      Registers places;
      const tile::Op* into = c.into < 0 ? nullptr : &kernel_.op(c.into);
      if (into) places = registers(into->operands[1], n);
      const bool splits = layouts_.splits[static_cast<size_t>(c.load)];
      Parts part;
      if (splits) part = accesses_.parts(masks, c.width);
      for (size_t r = 0; r < n; r += static_cast<size_t>(c.width)) {
        if (!into && !masks.empty() && is_never(masks[r])) continue;
        auto* to = into ? accesses_.address(into->operands[0], places[r]) : thread_offset(loads, c, r, stage);
        const size_t access = r / static_cast<size_t>(c.width);
        Value* exists = masks.empty() ? nullptr : splits ? part.whole[access] : masks[r];
        gpu_.copy_async(to, accesses_.address(op.operands[0], offsets[r]), c.width * static_cast<int>(bytes), exists,
                        splits ? both(b_, predicate, b_.CreateNot(part.cut[access])) : predicate, op.caching);
      }
      if (!splits) continue;
      part.rest = both(b_, part.rest, predicate);
      deferred.push_back([=, this, &op] {
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
      auto* to = shared_.offset(part, own, reach, dtype, loads.region + c.at, stage);
      gpu_.copy_async(to, accesses_.address(op.operands[0], offsets[r]), c.width * static_cast<int>(bytes),
                      masks.empty() ? nullptr : masks[r], acts, op.caching);
    }
  }
  gpu_.commit_copies();
  return {};
}

} // namespace tessera::gpu
