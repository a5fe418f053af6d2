#include "codegen/layout/warpgroup.h"
#include "codegen/layout/uniform.h"
#include <algorithm>
#include <bit>
#include <map>

namespace tessera::layout {

using tile::Op;
using tile::OpId;
using tile::OpKind;
using tile::ValueId;

namespace {

constexpr int kDepthBits = 256; // of a row of the left factor that one instruction reads
constexpr int kMaxBox = 256, kMaxStep = 8, kDefaultStages = 4;
constexpr int kMaxGroups = 2;         // of consumers: more leave a thread too few registers for its accumulators
constexpr int kMaxAccumulators = 192; // registers of a thread
constexpr int64_t kBarrierBytes = 16; // of a stage
constexpr int64_t kStageAlignment = 1024;
constexpr int kPatternRows = 8; // of a swizzle, at which shares of a tile begin

int log2_of(int n) { return std::countr_zero(static_cast<unsigned>(n)); }

// Registers of all threads for a left factor of so many bits that consumers compute: those that products in flight read,
// and those that the next ones will.
int64_t left_registers(int64_t bits, const WarpgroupGrid& grid) {
  constexpr int kSets = 2, kRegisterBits = 32;
  return bits / kRegisterBits * kSets * grid.columns;
}

class Planner {
public:
  Planner(const tile::Kernel& kernel, int warps, int cluster)
      : k_(kernel), warps_(warps), cluster_(cluster), polynomials_(kernel), uniform_(kernel, cluster) {
    for (OpId id = 0; id < k_.op_count(); ++id) {
      for (const ValueId v : k_.op(id).operands) uses_[v].push_back(id);
      for (const ValueId v : k_.op(id).results) defined_[v] = id;
      if (k_.op(id).kind == OpKind::For) inductions_.insert(k_.op(id).region_args[0][0]);
    }
  }

  WarpgroupChoice run(int64_t shared_bytes) {
    if (warps_ % kWarpsPerGroup != 0 || warps_ > kMaxGroups * kWarpsPerGroup)
      return {std::nullopt, std::to_string(warps_) + " warps are not one or two warpgroups"};
    if (std::string wrong = collectives(k_.body); !wrong.empty()) return {std::nullopt, wrong};
    block(k_.body, {});
    if (plan_.loops.empty()) return {std::nullopt, refusal_.empty() ? "no loop has a product" : refusal_};
    int stages = 0;
    for (RingLoop& l : plan_.loops) {
      plan_.stage_bytes = std::max(plan_.stage_bytes, l.bytes);
      stages = std::max(stages, k_.op(l.loop).num_stages);
    }
    constexpr int kLeast = 2; // products read one stage while the next one fills
    stages = std::max(kLeast, stages > 0 ? stages : kDefaultStages);
    const int64_t room = shared_bytes / (plan_.stage_bytes + kBarrierBytes);
    plan_.stages = static_cast<int>(std::min<int64_t>(stages, room));
    if (plan_.stages < kLeast) return {std::nullopt, "two stages do not fit into shared memory"};
    plan_.cluster = cluster_;
    if (cluster_ > 1) plan_.no_cluster = no_cluster();
    return {std::move(plan_), ""};
  }

private:
  const tile::Kernel& k_;
  const int warps_, cluster_;
  Polynomials polynomials_;
  Uniform uniform_; // within a cluster
  std::map<ValueId, std::vector<OpId>> uses_;
  std::map<ValueId, OpId> defined_; // by operations
  std::set<ValueId> inductions_;
  WarpgroupPlan plan_;
  std::string refusal_; // of the first product without a plan
  bool stores_ = false; // something before the place that is looked at writes memory

  // Why the kernel has operations for which the threads of a block wait for other blocks, or for all threads; empty if
  // it has none.
  std::string collectives(const std::vector<OpId>& ops) const {
    for (const OpId id : ops) {
      const Op& op = k_.op(id);
      if (tile::waits_for_programs(op)) return "its programs wait for each other";
      if (op.kind == OpKind::Reduce && (op.reduce == ReduceKind::Any || op.reduce == ReduceKind::All))
        return "it has a vote of all threads";
      for (const auto& region : op.regions)
        if (std::string wrong = collectives(region); !wrong.empty()) return wrong;
    }
    return "";
  }

  // Why blocks of a cluster would not fill each other's stages, or not alike; empty if they do.
  [[nodiscard]] std::string no_cluster() const {
    const auto is_shared = [](const RingTile& t) { return t.is_shared; };
    if (std::none_of(plan_.loops.begin(), plan_.loops.end(),
                     [&](const RingLoop& l) { return std::any_of(l.tiles.begin(), l.tiles.end(), is_shared); }))
      return "its programs share no tile of a factor";
    const bool alike =
        std::all_of(plan_.loops.begin(), plan_.loops.end(),
                    [&](const RingLoop& l) { return uniform_.iterates(k_.op(l.loop)); }) &&
        std::all_of(plan_.around.begin(), plan_.around.end(), [&](OpId id) { return uniform_.iterates(k_.op(id)); });
    return alike ? "" : "its programs may do different numbers of iterations";
  }

  [[nodiscard]] bool writes(const std::vector<OpId>& ops) const {
    return std::any_of(ops.begin(), ops.end(), [&](OpId id) {
      const Op& op = k_.op(id);
      if (op.kind == OpKind::Store || op.kind == OpKind::Atomic) return true;
      return std::any_of(op.regions.begin(), op.regions.end(), [&](const auto& r) { return writes(r); });
    });
  }

  void block(const std::vector<OpId>& ops, const std::vector<OpId>& around) {
    for (const OpId id : ops) {
      const Op& op = k_.op(id);
      if (op.kind == OpKind::For) {
        // The producer runs ahead: in an outer loop, beyond what later operations of its body write.
        const bool writes_here = writes(op.regions[0]);
        if (around.empty()) stores_ = stores_ || writes_here;
        if (!ring_loop(id, around)) {
          std::vector<OpId> inner = around;
          inner.push_back(id);
          block(op.regions[0], inner);
        }
        stores_ = stores_ || writes_here;
      } else if (op.kind == OpKind::Store || op.kind == OpKind::Atomic || op.kind == OpKind::If) {
        stores_ = true;
      }
    }
  }

  // Plans a loop's products: with those of computed left factors, or else without them.
  bool ring_loop(OpId id, const std::vector<OpId>& around) {
    for (const bool computes : {true, false}) {
      RingLoop loop;
      loop.loop = id;
      std::set<OpId> slice;
      add_products(loop, slice, computes);
      if (loop.products.empty()) return false;
      const std::string why = check(loop, around, slice);
      if (why.empty()) {
        plan_.around.insert(around.begin(), around.end());
        plan_.producer.insert(slice.begin(), slice.end());
        plan_.loops.push_back(std::move(loop));
        return true;
      }
      if (refusal_.empty()) refusal_ = why;
      if (loop.computed.empty()) return false;
    }
    return false;
  }

  void add_products(RingLoop& loop, std::set<OpId>& slice, bool computes) {
    const Op& op = k_.op(loop.loop);
    for (const OpId dot : op.regions[0]) {
      if (k_.op(dot).kind != OpKind::Dot) continue;
      RingLoop with = loop;
      std::set<OpId> needs = slice;
      std::string why = product(op, dot, with, needs);
      if (why.empty() && (computes || !with.computed.contains(dot))) {
        loop = std::move(with);
        slice = std::move(needs);
      } else if (refusal_.empty()) {
        refusal_ = why;
      }
    }
  }

  // Why the loop's products, which need the scalars of `slice`, cannot go through the ring; empty if they can.
  std::string check(RingLoop& loop, const std::vector<OpId>& around, std::set<OpId>& slice) const {
    const Op& op = k_.op(loop.loop);
    std::string why = sums(op, loop);
    for (const RingTile& t : loop.tiles)
      for (const OpId use : uses_.at(k_.op(t.load).results[0]))
        if (!t.is_read && !is_product(loop, use)) why = "another product reads a factor, too";
    for (size_t i = 0; i < 3 && why.empty(); ++i) why = scalars(op.operands[i], slice);
    for (const OpId outer : around)
      for (size_t i = 0; i < 3 && why.empty(); ++i) why = scalars(k_.op(outer).operands[i], slice);
    return why;
  }

  // Adds a product of the loop's body, its tiles and the scalars that they need; or says why not.
  std::string product(const Op& loop, OpId id, RingLoop& to, std::set<OpId>& slice) {
    const Op& dot = k_.op(id);
    const tile::Type &a = k_.type(dot.operands[0]), &b = k_.type(dot.operands[1]), &c = k_.type(dot.results[0]);
    auto is_byte = [](DType d) { return d == DType::I8 || d == DType::U8; };
    auto is_small_float = [](DType d) { return d == DType::F8E4M3FN || d == DType::F8E5M2; };
    const bool floats =
        (a.dtype == DType::F16 || a.dtype == DType::BF16 || is_small_float(a.dtype)) && c.dtype == DType::F32;
    const bool integers = is_byte(a.dtype) && is_byte(b.dtype) && c.dtype == DType::I32;
    if (!floats && !integers) return "its factors are neither 16-bit floats nor elements of 8 bits";
    // One wait hands back the sums of all products, in registers of one type.
    if (!to.products.empty() && k_.type(k_.op(to.products[0]).results[0]).dtype != c.dtype)
      return "another product of the loop has sums of another type";
    const WarpgroupGrid grid = warpgroup_grid(c.shape, warps_);
    if (grid.rows * grid.columns * kWarpsPerGroup != warps_ || a.shape[1] * info(a.dtype).bits % kDepthBits != 0)
      return "its tile is too small for warpgroups";
    if (std::string why = add_left(loop, id, to, slice); !why.empty()) return "its left factor: " + why;
    if (std::string why = add_tile(loop, dot.operands[1], 0, b.shape[1] / grid.columns, to, slice); !why.empty())
      return "its right factor: " + why;
    to.products.push_back(id);
    return "";
  }

  // Adds the tile of a left factor, or the tiles that consumers compute it from.
  std::string add_left(const Op& loop, OpId id, RingLoop& to, std::set<OpId>& slice) {
    const ValueId factor = k_.op(id).operands[0];
    const auto defined = defined_.find(factor);
    if (defined == defined_.end() || !is_in(loop, defined->second)) return "it is not computed in the loop";
    if (k_.op(defined->second).kind == OpKind::Load) return add_tile(loop, factor, 1, kWarpgroupRows, to, slice);
    std::set<OpId> met;
    if (std::string why = add_operands(loop, factor, k_.type(factor).shape, to, slice, met); !why.empty()) return why;
    for (const OpId other : to.computed)
      if (k_.op(other).operands[0] != factor) return "another product of the loop computes one, too";
    to.computed.insert(id);
    return "";
  }
  [[nodiscard]] static bool is_in(const Op& loop, OpId id) {
    const auto& body = loop.regions[0];
    return std::find(body.begin(), body.end(), id) != body.end();
  }
  // Adds the boxes among the loads that `v` is computed from. Tiles of fewer elements are loads of consumers.
  std::string add_operands(const Op& loop, ValueId v, const std::vector<int>& shape, RingLoop& to,
                           std::set<OpId>& slice, std::set<OpId>& met) {
    const auto defined = defined_.find(v);
    if (defined == defined_.end() || !is_in(loop, defined->second) || !met.insert(defined->second).second) return "";
    const Op& op = k_.op(defined->second);
    if (op.kind == OpKind::Load)
      return k_.type(v).shape == shape ? add_box(defined->second, 1, kWarpgroupRows, true, to, slice) : "";
    if (op.kind != OpKind::Const && op.kind != OpKind::Range && op.kind != OpKind::ExpandDims &&
        op.kind != OpKind::Broadcast && op.kind != OpKind::Scalar)
      return "it is computed by more than element-wise operations";
    for (const ValueId o : op.operands)
      if (std::string why = add_operands(loop, o, shape, to, slice, met); !why.empty()) return why;
    return "";
  }

  [[nodiscard]] bool is_product(const RingLoop& loop, OpId id) const {
    return std::find(loop.products.begin(), loop.products.end(), id) != loop.products.end();
  }
  [[nodiscard]] bool is_zero(ValueId v) const {
    const auto at = defined_.find(v);
    if (at == defined_.end()) return false;
    const Op& op = k_.op(at->second);
    if (op.kind == OpKind::Broadcast || op.kind == OpKind::ExpandDims) return is_zero(op.operands[0]);
    return op.kind == OpKind::Const && op.f == 0 && op.i == 0;
  }

  // Finds what the sums of products begin with and who reads them; or says why sums that are not there yet would be read.
  std::string sums(const Op& op, RingLoop& loop) const {
    constexpr const char* kRead = "its result is more than a sum";
    const auto& body = op.regions[0];
    const auto& args = op.region_args[0];
    const Op& yield = k_.op(body.back());
    int64_t accumulators = 0;
    std::map<ValueId, ValueId> begun; // sums: what the first product of each added to
    std::set<ValueId> factors;        // that are computed
    for (size_t n = 0; n < loop.products.size(); ++n) {
      const OpId id = loop.products[n];
      const Op& dot = k_.op(id);
      const ValueId to = dot.operands[2], sum = dot.results[0];
      const auto further = begun.find(to);
      const auto carried = std::find(args.begin() + 1, args.end(), to);
      if (!is_zero(to) && uses_.at(to).size() != 1) return kRead;
      if (further == begun.end() && carried == args.end() && !is_zero(to)) return kRead;
      begun[sum] = further == begun.end() ? to : further->second;
      if (further == begun.end() && is_zero(to)) loop.from_zero.insert(id);
      if (further == begun.end()) accumulators += k_.type(sum).count();
      if (loop.computed.contains(id) && factors.insert(dot.operands[0]).second)
        accumulators += left_registers(k_.type(dot.operands[0]).count() * info(k_.type(dot.operands[0]).dtype).bits,
                                       warpgroup_grid(k_.type(sum).shape, warps_));
      const auto reads = uses_.find(sum);
      if (reads == uses_.end()) return kRead;
      if (reads->second.size() == 1) {
        const OpId reader = reads->second[0];
        if (is_product(loop, reader) && k_.op(reader).operands[2] == sum) continue;
        const auto first = std::find(args.begin() + 1, args.end(), begun[sum]);
        if (reader == body.back() && first != args.end() &&
            yield.operands[static_cast<size_t>(first - args.begin() - 1)] == sum)
          continue;
      }
      if (!is_zero(begun[sum])) return kRead;
      const auto last = std::find(body.begin(), body.end(), loop.products.back());
      for (const OpId reader : reads->second)
        if (std::find(body.begin(), last + 1, reader) != last + 1) return kRead;
      loop.awaited.push_back(id);
      loop.waited = n + 1;
    }
    return accumulators > int64_t{kMaxAccumulators} * warps_ * kLanes ? "its accumulators take too many registers" : "";
  }

  // `sum_axis`: the axis of the tile that the product sums over; `least`: elements of the other axis that a warpgroup
  // reads.
  std::string add_tile(const Op& loop, ValueId factor, int sum_axis, int least, RingLoop& to, std::set<OpId>& slice) {
    const auto& body = loop.regions[0];
    const auto found = std::find_if(body.begin(), body.end(), [&](OpId o) {
      const auto& results = k_.op(o).results;
      return k_.op(o).kind == OpKind::Load && results[0] == factor;
    });
    if (found == body.end()) return "it is no load of the loop";
    for (const OpId use : uses_.at(factor))
      if (k_.op(use).kind != OpKind::Dot || std::find(body.begin(), body.end(), use) == body.end() ||
          k_.op(use).operands[2] == factor)
        return "something else reads it, too";
    if (has_tile(to, *found)) return uses_.at(factor).size() > 1 ? "" : "it is multiplied by itself";
    return add_box(*found, sum_axis, least, false, to, slice);
  }
  [[nodiscard]] static bool has_tile(const RingLoop& loop, OpId load) {
    return std::any_of(loop.tiles.begin(), loop.tiles.end(), [&](const RingTile& t) { return t.load == load; });
  }
  // Adds the tile of a load that is a box, for products or for consumers to read.
  std::string add_box(OpId id, int sum_axis, int least, bool is_read, RingLoop& to, std::set<OpId>& slice) {
    if (has_tile(to, id)) return is_read ? "" : "something else reads it, too";
    const Op& load = k_.op(id);
    TensorAccessResult access = tensor_access(k_, polynomials_, load);
    if (!access.access) return access.refusal;
    const tile::Param& param = k_.params[static_cast<size_t>(access.access->param)];
    if (param.written || (stores_ && !param.invariant)) return "its memory may be written before it is read";
    for (const TensorAccess::Dimension& dimension : access.access->dimensions)
      for (const auto& [monomial, coefficient] : dimension.start.terms())
        for (const ValueId v : monomial)
          if (std::string why = scalars(v, slice); !why.empty()) return why;
    return arrange(id, std::move(*access.access), sum_axis, least, is_read, to);
  }

  std::string arrange(OpId load, TensorAccess access, int sum_axis, int least, bool is_read, RingLoop& to) {
    const auto& dimensions = access.dimensions;
    const DType dtype = k_.type(k_.op(load).results[0]).dtype;
    const int contiguous = dimensions[0].box, bytes = info(dtype).bits / 8;
    RingTile t;
    t.load = load;
    t.is_read = is_read;
    t.k_major = dimensions[0].axis == sum_axis;
    if (!t.k_major && bytes == 1 && !is_read)
      return "its 8-bit elements are not contiguous along the dimension that is summed";
    t.map = {access.param, dtype, {}, {}, {}, {}, Swizzle::Bytes128, {}};
    // A warpgroup reads whole chunks of it.
    const int chunk = t.k_major ? contiguous : std::min(contiguous, least);
    while (t.map.swizzle != Swizzle::None && swizzle_bytes(t.map.swizzle) > chunk * bytes)
      t.map.swizzle = static_cast<Swizzle>(static_cast<int>(t.map.swizzle) - 1);
    if (t.map.swizzle == Swizzle::None) return "its contiguous dimension is too short";
    t.chunk_elements = swizzle_bytes(t.map.swizzle) / bytes;
    t.chunks = contiguous / t.chunk_elements;
    t.rows = 1;
    for (size_t d = 0; d < dimensions.size(); ++d) {
      const TensorAccess::Dimension& of = dimensions[d];
      t.map.dims.push_back(of.size);
      if (d > 0) t.map.strides.push_back(of.stride);
      if (d > 0) t.rows *= of.box;
      if (of.step > kMaxStep) return "its steps are too long";
      t.map.box.push_back(
          d == 0 ? t.chunk_elements
                 : std::min(of.box, static_cast<int>(std::bit_floor(kMaxBox / static_cast<unsigned>(of.step)))));
      if (of.step > 1) t.map.steps.resize(dimensions.size(), 1), t.map.steps[d] = of.step;
    }
    // Rows of one dimension may take several copies.
    for (size_t d = 1; d < dimensions.size(); ++d)
      if (t.map.box[d] < dimensions[d].box && dimensions[d].box != t.rows) return "its box is too long";
    share(access, t);
    t.access = std::move(access);
    t.at = to.bytes;
    to.bytes += (t.bytes() + kStageAlignment - 1) / kStageAlignment * kStageAlignment;
    to.tiles.push_back(std::move(t));
    return "";
  }

  // Divides a tile that all blocks of the cluster load between them, if it has a share for each.
  void share(const TensorAccess& access, RingTile& t) const {
    const auto is_uniform = [&](const TensorAccess::Dimension& d) {
      return std::all_of(d.start.terms().begin(), d.start.terms().end(), [&](const auto& term) {
        return std::all_of(term.first.begin(), term.first.end(), [&](ValueId v) { return uniform_.is_uniform(v); });
      });
    };
    const auto& dimensions = access.dimensions;
    if (cluster_ == 1 || !std::all_of(dimensions.begin(), dimensions.end(), is_uniform)) return;
    t.is_shared = t.chunks % cluster_ == 0;
    for (size_t d = 1; d < dimensions.size() && !t.is_shared; ++d) {
      const int share = t.rows / cluster_;
      if (dimensions[d].box != t.rows || share < kPatternRows) continue;
      t.map.box[d] = std::min(t.map.box[d], share);
      t.is_shared = true;
    }
  }

  [[nodiscard]] bool is_read_only(ValueId pointer) const {
    return std::any_of(k_.params.begin(), k_.params.end(), [&](const tile::Param& p) {
      return p.value == pointer && !p.written && (p.invariant || !stores_);
    });
  }

  // Adds the operations that compute a scalar from parameters, program indices, induction values, and memory that nothing
  // writes.
  std::string scalars(ValueId v, std::set<OpId>& slice) const {
    for (const auto& p : k_.params)
      if (p.value == v) return "";
    const auto defined = defined_.find(v);
    if (defined == defined_.end()) return inductions_.contains(v) ? "" : "its coordinates depend on a carried value";
    const OpId id = defined->second;
    const Op& op = k_.op(id);
    if (slice.contains(id)) return "";
    const bool pure = op.kind == OpKind::Const || op.kind == OpKind::ProgramId || op.kind == OpKind::NumPrograms ||
                      op.kind == OpKind::Scalar || (op.kind == OpKind::Load && is_read_only(op.operands[0]));
    if (!pure) return "its coordinates are not computed from parameters and loops";
    if (k_.type(v).is_tile()) return "its coordinates depend on a tile";
    for (const ValueId o : op.operands)
      if (std::string why = scalars(o, slice); !why.empty()) return why;
    slice.insert(id);
    return "";
  }
};

} // namespace

LinearLayout RingTile::arrangement(const std::vector<int>& shape) const {
  const int along = access.dimensions[0].axis;
  const auto each = static_cast<size_t>(log2_of(chunk_elements)),
             contiguous = each + static_cast<size_t>(log2_of(chunks));
  std::vector<Bits> bases;
  auto add = [&](int axis, size_t bit) {
    bases.push_back(Bits{1} << (bit + static_cast<size_t>(axis == 0 ? 0 : log2_of(shape[0]))));
  };
  for (size_t bit = 0; bit < each; ++bit) add(along, bit);
  for (int bit = 0; bit < log2_of(rows); ++bit) add(1 - along, static_cast<size_t>(bit));
  for (size_t bit = each; bit < contiguous; ++bit) add(along, bit);
  // An element's place is permuted within 128 bytes, which its own inverse is.
  const std::vector<Bits> straight = bases;
  const int element = info(map.dtype).bits / 8;
  for (size_t bit = 0; bit < bases.size(); ++bit) {
    const int64_t offset = int64_t{element} << bit, moved = (swizzled(map.swizzle, offset) ^ offset) / element;
    if (moved != 0) bases[bit] ^= straight[static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(moved)))];
  }
  return {{{Dim::Offset, static_cast<int>(bases.size())}},
          {{Dim::Axis0, log2_of(shape[0])}, {Dim::Axis1, log2_of(shape[1])}},
          std::move(bases)};
}

const RingTile& RingLoop::tile_of(const tile::Kernel& kernel, ValueId factor) const {
  return *std::find_if(tiles.begin(), tiles.end(),
                       [&](const RingTile& t) { return kernel.op(t.load).results[0] == factor; });
}

const RingLoop* WarpgroupPlan::loop(OpId id) const {
  const auto it = std::find_if(loops.begin(), loops.end(), [&](const RingLoop& l) { return l.loop == id; });
  return it == loops.end() ? nullptr : &*it;
}

bool WarpgroupPlan::has_product(OpId dot) const {
  return std::any_of(loops.begin(), loops.end(), [&](const RingLoop& l) {
    return std::find(l.products.begin(), l.products.end(), dot) != l.products.end();
  });
}

bool WarpgroupPlan::has_load(OpId load) const {
  return std::any_of(loops.begin(), loops.end(), [&](const RingLoop& l) {
    return std::any_of(l.tiles.begin(), l.tiles.end(), [&](const RingTile& t) { return t.load == load; });
  });
}

bool WarpgroupPlan::is_computed(OpId dot) const {
  return std::any_of(loops.begin(), loops.end(), [&](const RingLoop& l) { return l.computed.contains(dot); });
}

bool WarpgroupPlan::is_read(OpId load) const {
  return std::any_of(loops.begin(), loops.end(), [&](const RingLoop& l) {
    return std::any_of(l.tiles.begin(), l.tiles.end(), [&](const RingTile& t) { return t.load == load && t.is_read; });
  });
}

WarpgroupChoice plan_warpgroups(const tile::Kernel& kernel, int warps, int64_t shared_bytes) {
  const auto config = kernel.config.find("cluster");
  const bool clusters = config != kernel.config.end() && is_cluster(config->second);
  WarpgroupChoice choice = Planner(kernel, warps, clusters ? static_cast<int>(config->second) : 1).run(shared_bytes);
  if (!choice.plan || choice.plan->no_cluster.empty()) return choice;
  const std::string why = choice.plan->no_cluster;
  choice = Planner(kernel, warps, 1).run(shared_bytes);
  choice.plan->no_cluster = why;
  return choice;
}

std::string WarpgroupPlan::str() const {
  std::string text = "by warpgroups, " + std::to_string(stages) + " stages";
  if (cluster > 1) text += ", clusters of " + std::to_string(cluster);
  if (!no_cluster.empty()) text += ", no cluster: " + no_cluster;
  return text;
}

bool fits_warpgroups(const std::vector<int>& shape, int warps, int sums, int left_bits) {
  if (warps % kWarpsPerGroup != 0 || warps > kMaxGroups * kWarpsPerGroup) return false;
  const WarpgroupGrid grid = warpgroup_grid(shape, warps);
  return grid.rows * grid.columns * kWarpsPerGroup == warps &&
         shape[0] * shape[1] * sums + left_registers(int64_t{shape[0]} * left_bits, grid) <=
             kMaxAccumulators * warps * kLanes;
}

WarpgroupGrid warpgroup_grid(const std::vector<int>& shape, int warps) {
  const int groups = warps / kWarpsPerGroup;
  WarpgroupGrid grid;
  grid.rows = std::min(groups, std::max(1, shape[0] / kWarpgroupRows));
  grid.columns = groups / grid.rows;
  constexpr int kLeastColumns = 8;
  if (shape[0] < kWarpgroupRows || shape[1] / grid.columns < kLeastColumns) return {0, 0};
  return grid;
}

LinearLayout warpgroup_accumulators(const std::vector<int>& shape, int warps) {
  const WarpgroupGrid grid = warpgroup_grid(shape, warps);
  const int m = log2_of(shape[0]), n = log2_of(shape[1]), rows = log2_of(grid.rows), columns = log2_of(grid.columns);
  std::vector<Bits> bases;
  auto row = [&](int bit) { bases.push_back(Bits{1} << bit); };
  auto column = [&](int bit) { bases.push_back(Bits{1} << (m + bit)); };
  constexpr int kGroupRowBits = 6; // 64 rows
  column(0);
  row(3);
  for (int bit = 3; bit < n - columns; ++bit) column(bit);
  for (int bit = kGroupRowBits + rows; bit < m; ++bit) row(bit);
  const int registers = static_cast<int>(bases.size());
  column(1), column(2);
  row(0), row(1), row(2);
  row(4), row(5);
  for (int bit = 0; bit < rows; ++bit) row(kGroupRowBits + bit);
  for (int bit = n - columns; bit < n; ++bit) column(bit);
  return {{{Dim::Register, registers}, {Dim::Lane, kLaneBits}, {Dim::Warp, log2_of(warps)}},
          {{Dim::Axis0, m}, {Dim::Axis1, n}},
          std::move(bases)};
}

LinearLayout warpgroup_left_registers(const std::vector<int>& sums, int depth, int bits, int warps) {
  const WarpgroupGrid grid = warpgroup_grid(sums, warps);
  const int m = log2_of(sums[0]), k = log2_of(depth), rows = log2_of(grid.rows), columns = log2_of(grid.columns);
  constexpr int kWordBits = 32, kGroupRowBits = 6, kLaneColumnBits = 2;
  const int word = log2_of(kWordBits / bits); // bits of the index of an element in its register of the instruction
  std::vector<Bits> bases;
  auto row = [&](int bit) { bases.push_back(Bits{1} << bit); };
  auto column = [&](int bit) { bases.push_back(Bits{1} << (m + bit)); };
  for (int bit = 0; bit < word; ++bit) column(bit);
  row(3);
  for (int bit = word + kLaneColumnBits; bit < k; ++bit) column(bit);
  for (int bit = kGroupRowBits + rows; bit < m; ++bit) row(bit);
  const int registers = static_cast<int>(bases.size());
  for (int bit = word; bit < word + kLaneColumnBits; ++bit) column(bit);
  row(0), row(1), row(2);
  row(4), row(5);
  for (int bit = 0; bit < rows; ++bit) row(kGroupRowBits + bit);
  bases.resize(bases.size() + static_cast<size_t>(columns), 0); // warpgroups of other columns have the same rows
  return {{{Dim::Register, registers}, {Dim::Lane, kLaneBits}, {Dim::Warp, log2_of(warps)}},
          {{Dim::Axis0, m}, {Dim::Axis1, k}},
          std::move(bases)};
}

LinearLayout with_contiguous(const LinearLayout& layout, int axis_index, int width) {
  const Dim along = axis(axis_index);
  const auto registers_before = layout.bases(Dim::Register), lanes_before = layout.bases(Dim::Lane);
  std::vector<Bits> low, registers(registers_before.begin(), registers_before.end()),
      lanes(lanes_before.begin(), lanes_before.end());
  // The basis of bit `bit` of the axis.
  auto basis = [&](int bit) {
    Bits offset = 0;
    for (const Extent& e : layout.out()) {
      if (e.dim == along) break;
      offset += static_cast<Bits>(e.bits);
    }
    return Bits{1} << (offset + static_cast<Bits>(bit));
  };
  const int bits = std::min(log2_of(width), layout.out_bits(along));
  for (int bit = 0; bit < bits; ++bit) {
    const auto here = std::find(registers.begin(), registers.end(), basis(bit));
    if (here != registers.end()) {
      registers.erase(here);
    } else {
      const auto lane = std::find(lanes.begin(), lanes.end(), basis(bit));
      // The register bits of the axis above the contiguous ones, low first, become the lane's.
      auto given = registers.end();
      for (int up = bits; up < layout.out_bits(along) && given == registers.end(); ++up)
        given = std::find(registers.begin(), registers.end(), basis(up));
      if (lane == lanes.end() || given == registers.end()) break;
      *lane = *given;
      registers.erase(given);
    }
    low.push_back(basis(bit));
  }
  low.insert(low.end(), registers.begin(), registers.end());
  low.insert(low.end(), lanes.begin(), lanes.end());
  low.insert(low.end(), layout.bases(Dim::Warp).begin(), layout.bases(Dim::Warp).end());
  return {layout.in(), layout.out(), std::move(low)};
}

} // namespace tessera::layout
