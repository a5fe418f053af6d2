#include "codegen/schedule/contraction_cost.h"
#include "codegen/layout/dot.h"
#include "codegen/layout/warpgroup.h"
#include "codegen/schedule/contraction.h"
#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera {
namespace {

constexpr int64_t kAccess = 16; // bytes of a thread's widest access
constexpr int64_t kSector = 32; // bytes that the level-2 cache yields at least
constexpr int kWarp = 32;

class Predicted {
public:
  Predicted(const SizedFacts& facts, const Schedule& schedule, const Target& device, const ContractionCostModel& model)
      : f_(facts), s_(schedule), device_(device), m_(model), threads_(kWarp * schedule.tile.warps) {
    if (info(facts.factor_dtype).bits > 8) return;
    factor_bytes_ = 1;
    rate_ = (is_float(facts.factor_dtype) ? device.tensor_f8_per_cycle : device.tensor_i8_per_cycle) /
            device.tensor_f16_per_cycle;
  }

  Cost run() {
    grid();
    step();
    if (copied_in_bulk()) return total_of_warpgroups();
    occupancy();
    return total();
  }

private:
  [[nodiscard]] double count(uint64_t axes) const { return static_cast<double>(f_.count(axes)); }
  void grid() {
    const Placement& p = s_.placement;
    const uint64_t all = (uint64_t{1} << f_.extents.size()) - 1;
    tiles_ = count(all & ~f_.row_mask & ~p.row_axes & ~p.column_axes) * row_blocks() *
             std::ceil(count(p.column_axes) / s_.tile.columns);
    const double split = s_.cooperation.split_k;
    blocks_ = tiles_ * split;
    const double along = count(p.depth_axes) / static_cast<double>(f_.ranges);
    steps_ = std::ceil(count(f_.row_mask & ~p.depth_axes) * std::ceil(along / s_.tile.depth) / split);
  }
  [[nodiscard]] double partial_bytes() const {
    return s_.cooperation.split_k > 1 ? static_cast<double>(sizeof(float)) * s_.tile.rows * s_.tile.columns : 0;
  }
  // Microseconds in which `blocks` blocks of a multiprocessor, one after another, store their partial sums, and the last
  // ones of `tiles` tiles add those of all segments.
  [[nodiscard]] double exchange(double blocks, double tiles) const {
    if (s_.cooperation.split_k == 1) return 0;
    const double rate = m_.cache * device_.l2_bytes_per_us / std::max(1, device_.multiprocessors);
    return m_.last + partial_bytes() * (blocks + tiles * s_.cooperation.split_k) / rate;
  }
  // Tiles along the rows, with those behind the last one that fill its cluster.
  [[nodiscard]] double row_blocks() const {
    const double cluster = s_.cooperation.cluster;
    return std::ceil(row_tiles() / cluster) * cluster;
  }
  [[nodiscard]] double row_tiles() const {
    const Placement& p = s_.placement;
    if (f_.groups > 0) { // the last tile of a group has half of its rows
      const auto groups = static_cast<double>(f_.groups);
      return std::max(groups, std::ceil(count(p.row_axes) / s_.tile.rows + groups / 2));
    }
    if (p.row_box == 0) return std::ceil(count(p.row_axes) / s_.tile.rows);
    double blocks = 1;
    size_t inner = 0;
    for (size_t i = f_.extents.size(); i-- > 0;)
      if (p.row_axes >> i & 1)
        blocks *= std::ceil(static_cast<double>(f_.extents[i]) / (1 << box_bits(p.row_box, inner++)));
    return blocks;
  }
  // Elements that a block moves of values that vary along these axes: of factors for a step, of others once.
  [[nodiscard]] double elements(uint64_t deps) const {
    const Placement& p = s_.placement;
    return ((deps & p.row_axes) ? s_.tile.rows : 1.0) * ((deps & p.column_axes) ? s_.tile.columns : 1.0) *
           ((deps & p.depth_axes) ? s_.tile.depth : 1.0);
  }
  // Elements of one access: neighbours in memory that are aligned together.
  [[nodiscard]] double width(const SizedStream& s) const {
    const Placement& p = s_.placement;
    int64_t g = kAccess / std::max(1, s.bytes);
    bool along = false;
    for (size_t i = 0; i < f_.extents.size(); ++i) {
      if (!(s.deps >> i & 1)) continue;
      if (!s.affine(i)) return 1;
      const bool tile = (p.row_axes | p.column_axes | p.depth_axes) >> i & 1;
      if (tile && s.step[i] == 1 && !along)
        along = true;
      else
        g = std::gcd(g, s.step[i]);
    }
    return along ? static_cast<double>(std::max<int64_t>(1, std::gcd(g, s.start))) : 1;
  }
  [[nodiscard]] double sums() const { return static_cast<double>(s_.tile.rows) * s_.tile.columns; }
  // Multiplications of a block's step.
  [[nodiscard]] double multiplied() const { return sums() * s_.tile.depth * f_.products; }
  // Instructions of tensor cores for them.
  [[nodiscard]] double fragments() const {
    return multiplied() * factor_bytes_ /
           (Contraction::kFragmentRows * Contraction::kFragmentColumns * layout::kMmaDepthBytes);
  }
  // True if the elements of a word of a factor's fragment are neighbours in memory, or transposed by its load: tensor
  // cores take and transpose two of 16 bits, and take four of 8 bits along the depth.
  [[nodiscard]] bool read_in_words(const SizedStream& s) const {
    for (size_t i = 0; i < f_.extents.size() && s.bytes == 1; ++i)
      if ((s_.placement.depth_axes >> i & 1) && s.affine(i) && s.step[i] == 1) return true;
    return s.bytes > 1;
  }
  // Additions in f32 of the sums of a step: of factors of one part, whose products do not hide them.
  [[nodiscard]] double promotions() const { return f_.parts == 1 && f_.sum_tiles > 1 ? sums() / kWarp : 0; }
  // The cycles and bytes of a block's step.
  void step() {
    double slots = fragments() * m_.fragment + promotions();
    for (size_t n = 0; n < f_.streams.size(); ++n) {
      const SizedStream& s = f_.streams[n];
      if (!(s.deps & f_.row_mask) || s.store) continue;
      const double moved = elements(s.deps), wide = width(s);
      const bool copied = wide * s.bytes >= 4 && is_factor(n);
      slots += moved / wide / kWarp * (!copied ? m_.load : is_masked(n) ? m_.window : m_.copy);
      if (!copied) {
        slots += moved / kWarp * m_.element;
        passed_ += moved;
      } else if (!read_in_words(s)) {
        slots += moved / kWarp * m_.element;
      }
      step_bytes_ += moved * std::max<double>(s.bytes, std::min<double>(kSector, wide * s.bytes) / wide);
    }
    for (const SizedFacts::Work& w : f_.work) {
      const bool product = (w.deps & f_.factors[0].axes) && (w.deps & f_.factors[1].axes);
      if ((w.deps & f_.row_mask) && !product) slots += elements(w.deps) / kWarp * (w.simple + w.elementary);
    }
    const double tensor = multiplied() / (device_.tensor_f16_per_cycle * rate_ * m_.tensor);
    cycles_ = std::pow(std::pow(tensor, m_.overlap) + std::pow(slots / device_.schedulers, m_.overlap) +
                           std::pow(shared_cycles(), m_.overlap),
                       1 / m_.overlap);
  }
  // Positions of a tile along an axis.
  [[nodiscard]] int64_t along(size_t axis) const {
    const Placement& p = s_.placement;
    return p.row_axes >> axis & 1      ? s_.tile.rows
           : p.column_axes >> axis & 1 ? s_.tile.columns
           : p.depth_axes >> axis & 1  ? s_.tile.depth
                                       : 1;
  }
  // Contiguous bytes of a tile of a load, up to `most`.
  [[nodiscard]] int64_t chunk(const SizedStream& s, int64_t most) const {
    int64_t bytes = s.bytes;
    for (size_t i = 0; i < f_.extents.size(); ++i)
      if ((s.deps >> i & 1) && s.step[i] == 1 && along(i) > 1) bytes = std::min(most, along(i) * s.bytes);
    return bytes;
  }
  // Bytes of whole lines that bulk copies of a factor's tile touch: in chunks of up to a line along the contiguous axis,
  // which begin at multiples of what all strides are multiples of.
  [[nodiscard]] double bytes_of_lines(const SizedStream& s) const {
    const int64_t line = std::max<int64_t>(kSector, device_.line_bytes);
    int64_t common = std::gcd(line, s.start * s.bytes);
    for (size_t i = 0; i < f_.extents.size(); ++i)
      if ((s.deps >> i & 1) && (s.step[i] != 1 || along(i) == 1)) common = std::gcd(common, s.step[i] * s.bytes);
    const int64_t chunk = this->chunk(s, line);
    double touched = 0; // by chunks that begin at each place of a line
    for (int64_t at = 0; at < line; at += common)
      touched += std::ceil(static_cast<double>(at + chunk) / static_cast<double>(line));
    return elements(s.deps) * s.bytes / static_cast<double>(chunk) * touched * static_cast<double>(common);
  }
  // Instructions behind the sums: a scheduler with one warp waits for each of them.
  [[nodiscard]] double behind(double slots, double warps) const {
    return slots * std::max(1.0, m_.alone * device_.schedulers / warps) / device_.schedulers / device_.clock_mhz;
  }
  // Warpgroups compute the products: the factors, and what a left one is computed from, are loads that bulk copies make, in
  // whole accesses. A range masks them inside of memory, as no copy does.
  [[nodiscard]] bool copied_in_bulk() const {
    auto is_copied = [&](const SizedFacts::Factor& x, const SizedStream& s) {
      return width(s) * s.bytes >= kAccess && chunk(s, kSector) >= kSector && is_box(x, s);
    };
    return f_.ranges == 1 && by_warpgroups(s_.tile, warpgroup_needs(), device_) &&
           std::all_of(f_.factors.begin(), f_.factors.end(), [&](const SizedFacts::Factor& x) {
             if (x.stream < 0)
               return std::all_of(f_.streams.begin(), f_.streams.end(), [&](const SizedStream& s) {
                 return !is_of_left(s.deps) || !(s.deps & s_.placement.row_axes) || is_copied(x, s);
               });
             const SizedStream& s = f_.streams[static_cast<size_t>(x.stream)];
             return is_copied(x, s) && read_in_words(s);
           });
  }
  [[nodiscard]] WarpgroupNeeds warpgroup_needs() const {
    WarpgroupNeeds needs{f_.sum_tiles, 0, false};
    for (const SizedFacts::Factor& x : f_.factors) {
      const bool left = (s_.placement.row_axes & ~x.axes) == 0;
      if (x.stream < 0 && left) needs.left_bits = f_.parts * x.bits;
      needs.right_computed = needs.right_computed || (x.stream < 0 && !left);
    }
    return needs;
  }
  // True of values that are loaded or computed for each step of the depth, and not for columns of the tile.
  [[nodiscard]] bool is_of_left(uint64_t deps) const {
    return (deps & s_.placement.depth_axes) && !(deps & s_.placement.column_axes);
  }
  // Microseconds in which the consumers compute a left factor for a step.
  [[nodiscard]] double left_factor() const {
    if (warpgroup_needs().left_bits == 0) return 0;
    constexpr double kWord = 2, kMatrices = 8; // elements that a thread's load yields; those of 16 bits
    double slots = 0;
    for (const SizedFacts::Work& w : f_.work)
      if (is_of_left(w.deps)) slots += elements(w.deps) / kWarp * (w.simple + w.elementary);
    for (const SizedStream& s : f_.streams)
      if (!s.store && is_of_left(s.deps))
        slots += static_cast<double>(s_.tile.rows) * s_.tile.depth / kWarp / (s.bytes == 2 ? kMatrices : kWord) *
                 m_.group_load;
    const layout::WarpgroupGrid grid = layout::warpgroup_grid({s_.tile.rows, s_.tile.columns}, s_.tile.warps);
    return slots * grid.columns / device_.schedulers / device_.clock_mhz;
  }
  // Instructions.
  [[nodiscard]] double code() const { return fragments() / s_.tile.warps + 16 * sums() / threads_; }
  // True if a tile of the factor is a box in memory: along axes that are flattened, its elements follow each other as along
  // one.
  [[nodiscard]] bool is_box(const SizedFacts::Factor& factor, const SizedStream& s) const {
    const Placement& p = s_.placement;
    for (const uint64_t axes : {p.row_box == 0 ? p.row_axes : 0, p.column_axes, p.depth_axes}) {
      int last = -1; // of the axes so far
      for (size_t i = 0; i < f_.extents.size(); ++i) {
        if (!(axes >> i & 1) || !(s.deps & axes)) continue;
        const auto before = static_cast<size_t>(last);
        if (last >= 0 && (factor.masked || s.step[before] != s.step[i] * f_.extents[i])) return false;
        last = static_cast<int>(i);
      }
    }
    return true;
  }
  [[nodiscard]] Cost total_of_warpgroups() const {
    Cost cost;
    const double processors = std::max(1, device_.multiprocessors), clock = device_.clock_mhz;
    const bool in_turns = s_.cooperation.max_blocks > 0;
    const double waves = std::ceil(blocks_ / processors), tiles = std::ceil(tiles_ / processors); // of the busiest one
    const double tensor = multiplied() / (device_.warpgroup_f16_per_cycle * rate_ * m_.group_rate * clock);
    // A warpgroup adds while another one multiplies, if there is another one.
    const double added = promotions() / device_.schedulers / clock;
    const double products = s_.tile.warps > layout::kWarpsPerGroup ? std::max(tensor, added) : tensor + added;
    double bytes = 0, stored = 0, slots = 0, lines = 0;
    for (const SizedStream& s : f_.streams) {
      if (!s.shared) bytes += s.count * s.bytes;
      if (s.deps & f_.row_mask)
        lines += bytes_of_lines(s) / ((s.deps & s_.placement.row_axes) ? 1.0 : s_.cooperation.cluster);
      if (s.deps & f_.row_mask) continue;
      slots += elements(s.deps) / kWarp * (s.store ? m_.group_stored : m_.stored);
      if (s.store) stored += elements(s.deps) * s.bytes;
    }
    for (const SizedFacts::Work& w : f_.work)
      if (!(w.deps & f_.row_mask)) slots += elements(w.deps) / kWarp * (w.simple + w.elementary);
    const double epilogue = m_.group_end * device_.memory_latency_us + behind(slots, s_.tile.warps);
    // A stage is free again when the products after those of it have begun.
    const double computed = left_factor();
    const bool others = s_.tile.warps > layout::kWarpsPerGroup; // one warpgroup computes while another one multiplies
    const double multiplied =
        computed > 0 && others
            ? std::pow(std::pow(products, m_.overlap) + std::pow(computed, m_.overlap), 1 / m_.overlap)
            : products + computed;
    const double waits = m_.group_step + (s_.cooperation.cluster > 1 ? m_.group_cluster : 0);
    const double of_step = std::max({multiplied + waits * device_.l2_latency_us,
                                     m_.group_copy * device_.memory_latency_us / (s_.traversal.num_stages - 1.5),
                                     lines * processors / (m_.group_cache * device_.l2_bytes_per_us)});
    // Blocks of one wave end together and share the memory's bandwidth; those that go on have time for it.
    const double drain = in_turns ? 0 : stored * processors / device_.memory_bytes_per_us;
    const bool window = std::any_of(f_.factors.begin(), f_.factors.end(), [](const auto& x) { return x.masked; });
    const double start = (m_.group_start + (window ? m_.group_window : 0)) * device_.memory_latency_us;
    cost.memory = bytes / (m_.bandwidth * device_.memory_peak_bytes_per_us);
    cost.launch = device_.kernel_us;
    cost.latency = start * (in_turns ? 1 : waves);
    cost.issue = waves * steps_ * of_step + tiles * (epilogue + drain) + exchange(waves, tiles);
    cost.blocks = in_turns ? std::min(blocks_, processors) : blocks_;
    cost.resident = 1;
    cost.registers = cost.taken = cost.most = static_cast<double>(device_.registers) / (threads_ + 4 * kWarp);
    cost.code = code();
    cost.bytes = bytes;
    cost.again = blocks_ * (steps_ * step_bytes_ + 2 * partial_bytes());
    cost.us = cost.launch + cost.latency + std::max(cost.memory, cost.issue);
    return cost;
  }
  [[nodiscard]] bool is_masked(size_t stream) const {
    return std::any_of(f_.factors.begin(), f_.factors.end(),
                       [&](const SizedFacts::Factor& x) { return x.stream == static_cast<int>(stream) && x.masked; });
  }
  [[nodiscard]] bool is_factor(size_t stream) const {
    return std::any_of(f_.factors.begin(), f_.factors.end(),
                       [&](const SizedFacts::Factor& x) { return x.stream == static_cast<int>(stream); });
  }
  // Each warp reads the fragments of its rows and columns.
  [[nodiscard]] double shared_cycles() const {
    double least = INFINITY;
    for (int down = 1; down <= s_.tile.warps; down *= 2) {
      const double across = static_cast<double>(s_.tile.warps) / down;
      if (s_.tile.rows / down >= Contraction::kFragmentRows &&
          s_.tile.columns / across >= Contraction::kFragmentColumns)
        least = std::min(least, s_.tile.warps * (s_.tile.rows / static_cast<double>(down) + s_.tile.columns / across));
    }
    const double bytes =
        factor_bytes_ * s_.tile.depth *
        ((std::isfinite(least) ? least : 0) * f_.products + (s_.tile.rows + s_.tile.columns) * f_.parts);
    return bytes / (device_.shared_bytes_per_us / device_.clock_mhz);
  }
  void occupancy() {
    const double each = sums() * f_.sum_tiles / threads_;
    registers_ = m_.registers + each + 0.25 * each + m_.registers_loaded * passed_ / threads_;
    const auto file = static_cast<double>(device_.registers);
    most_ = std::min(static_cast<double>(device_.thread_registers), std::floor(file / threads_ / 8) * 8);
    const double taken = std::min(std::ceil(registers_ / 8) * 8, most_);
    const double stages =
        factor_bytes_ * s_.tile.depth * (s_.tile.rows + s_.tile.columns) * f_.parts * s_.traversal.num_stages +
        static_cast<double>(device_.reserved_shared_bytes);
    const double stored = 2.0 * sums(); // exchanged before they are stored
    resident_ = std::max(1.0, std::min({std::floor(file / (threads_ * taken)),
                                        std::floor(static_cast<double>(device_.resident_threads) / threads_),
                                        static_cast<double>(device_.resident_blocks),
                                        std::floor(static_cast<double>(device_.shared_bytes) / (stages + stored))}));
  }
  [[nodiscard]] Cost total() const {
    Cost cost;
    const double processors = std::max(1, device_.multiprocessors);
    auto of_busiest = [&](double blocks) { // blocks one after another
      const double waves = blocks / processors;
      return waves <= 1 ? 1 : waves + m_.tail * (std::ceil(waves) - waves);
    };
    const double most = of_busiest(blocks_);
    const double together = std::min(resident_, std::max(1.0, std::ceil(blocks_ / processors)));
    const double latency = m_.copied * (device_.l2_latency_us + device_.memory_latency_us);
    const double turn = m_.turn * device_.l2_latency_us +
                        m_.chained * device_.shared_latency_us * s_.tile.depth * factor_bytes_ / layout::kMmaDepthBytes;
    const double barrier = m_.step * device_.l2_latency_us; // hidden by the products of other blocks
    // Loads of a computed factor begin in its step.
    const bool computes = std::any_of(f_.factors.begin(), f_.factors.end(), [](const auto& x) { return x.stream < 0; });
    const double of_step = std::max({together * cycles_ / device_.clock_mhz + barrier / together,
                                     turn + (computes ? device_.memory_latency_us : 0),
                                     latency / std::max(1, s_.traversal.num_stages - 1)});
    const double compute = most / together * steps_ * of_step;
    double bytes = 0, behind_sums = 0, slots = 0;
    for (const SizedStream& s : f_.streams) {
      if (!s.shared) bytes += s.count * s.bytes;
      if (s.deps & f_.row_mask) continue;
      if (!s.shared) behind_sums += s.count * s.bytes;
      slots += elements(s.deps) / kWarp * m_.stored;
    }
    for (const SizedFacts::Work& w : f_.work)
      if (!(w.deps & f_.row_mask)) slots += elements(w.deps) / kWarp * (w.simple + w.elementary);
    const double tiles = of_busiest(tiles_);
    const double epilogue = tiles * behind(slots, s_.tile.warps * together) + exchange(most, tiles);
    const double read = blocks_ * (steps_ * step_bytes_ + 2 * partial_bytes());
    cost.memory = std::max(bytes / (m_.bandwidth * device_.memory_peak_bytes_per_us),
                           (behind_sums + read) / (m_.cache * device_.l2_bytes_per_us));
    cost.launch = device_.kernel_us;
    cost.latency = m_.start * device_.memory_latency_us * std::ceil(most / together);
    cost.issue = compute + epilogue;
    cost.blocks = blocks_;
    cost.resident = resident_;
    cost.registers = registers_;
    cost.most = most_;
    cost.taken = std::min(registers_, most_);
    cost.code = code();
    cost.bytes = bytes;
    cost.again = read;
    const double missing = std::max(0.0, registers_ / most_ - 1);
    cost.us = cost.launch + cost.latency + std::max(cost.memory, compute * (1 + m_.spill * missing)) + epilogue +
              blocks_ * device_.block_us / processors;
    return cost;
  }

  const SizedFacts& f_;
  const Schedule& s_;
  const Target& device_;
  const ContractionCostModel& m_;
  const double threads_;
  double tiles_ = 1, blocks_ = 1, steps_ = 1; // steps: of a block
  double cycles_ = 0, step_bytes_ = 0;        // of a step of a block
  double passed_ = 0;                         // elements that pass through registers in a step
  double factor_bytes_ = 2;                   // of an element of a factor
  double rate_ = 1;                           // of products of such elements, relative to those of f16
  double registers_ = 32, most_ = 255, resident_ = 1;
};

} // namespace

Cost contraction_cost(const SizedFacts& facts, const Schedule& schedule, const Target& device,
                      const ContractionCostModel& model) {
  Cost none;
  none.us = INFINITY;
  return facts.factors.empty() ? none : Predicted(facts, schedule, device, model).run();
}

} // namespace tessera
