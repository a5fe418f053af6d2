#include "codegen/schedule/block_time.h"
#include "codegen/schedule/online.h"
#include "codegen/schedule/stages.h"
#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr double kLatency = 1.8;                                     // us
constexpr double kCopiedTile = 0.05;                                 // of kLatency
constexpr double kTile = 0.9, kTileElement = 0.04, kTileWarp = 0.05; // us, of columns
constexpr double kBeside = 0.05;

// By the share of the bytes in flight that saturate memory; linear between the measured points.
double slow(double share) {
  constexpr double at[] = {0.125, 0.25, 0.375, 0.5, 0.75, 1}, factor[] = {2.68, 1.58, 1.23, 1.10, 1.04, 1};
  if (share <= at[0]) return factor[0] * at[0] / std::max(share, 3e-4);
  for (size_t i = 1; i < std::size(at); ++i)
    if (share <= at[i]) return factor[i - 1] + (factor[i] - factor[i - 1]) * (share - at[i - 1]) / (at[i] - at[i - 1]);
  return 1;
}

} // namespace

std::optional<LaunchCost> launch_cost(const BlockFacts& f, const BlockPlan& p, const CallSizes& sizes) {
  std::vector<double> extents;
  for (size_t i = 0; i < f.d.axes.size(); ++i) {
    auto n = f.extent(i).eval(sizes);
    if (!n.ok()) return std::nullopt;
    extents.push_back(static_cast<double>(std::max<int64_t>(1, *n)));
  }
  double points = 1;
  for (double e : extents) points *= e;

  LaunchCost c;
  c.threads = 32 * p.warps;
  double each = std::max(1.0, static_cast<double>(p.rows) * p.columns / c.threads); // elements of a thread
  double loaded = 0;                                                                // bytes of an element's loads
  double read = 0, issue = 0;
  for (const Stream& s : f.streams) {
    double count = 1;
    for (size_t i = 0; i < extents.size(); ++i)
      if (s.deps >> i & 1) count *= extents[i];
    c.bytes += count * s.bytes;
    if (!s.store) read += count * s.bytes;
    bool all = count >= points / 2;
    if (!s.store && all) loaded += s.bytes;
    // An access, whatever its width, takes the slots of four instructions.
    bool wide = f.contiguous_axis >= 0 && f.contiguous(s, static_cast<size_t>(f.contiguous_axis));
    if (all) issue += 4 / (wide ? std::min(each, static_cast<double>(kAccessBytes) / s.bytes) : 1);
  }
  for (size_t n = 0; n < f.d.live.size(); ++n)
    if (f.d.live[n]) issue += std::max(0, info(f.nest.dag[static_cast<ScalarId>(n)].op).cost);

  // Programs, and how many tiles each of them walks.
  auto extent = [&](const std::vector<size_t>& axes) {
    double n = 1;
    for (size_t a : axes) {
      if (p.split < 0 || static_cast<int>(a) < p.split)
        n *= extents[a];
      else if (static_cast<int>(a) == p.split)
        n *= std::ceil(extents[a] / p.columns);
      else if (static_cast<int>(a) == p.split + 1)
        n *= p.columns;
      else
        n *= extents[a - 1];
    }
    return n;
  };
  auto folds = [&](const std::vector<size_t>& axes) {
    return f.d.reduces && !axes.empty() && p.split < 0 && f.is_row(axes.front());
  };
  double tiles = 1;
  c.blocks = extent(p.groups.points);
  for (auto [axes, lanes] : {std::pair(&p.groups.rows, p.rows * p.turns), std::pair(&p.groups.columns, p.columns)}) {
    double n = std::ceil(extent(*axes) / lanes);
    (folds(*axes) ? tiles : c.blocks) *= n;
  }
  if (p.team)
    if (auto members = p.team->eval(sizes); members.ok() && *members > 0) {
      c.blocks *= static_cast<double>(*members);
      tiles = std::ceil(tiles / static_cast<double>(*members));
    }
  c.waits = f.d.reduces;
  c.block_bytes = c.threads * each * p.turns * loaded;
  double rounds = 1, folding = 0;
  if (f.d.reduces) {
    Domain d = f.d;
    auto online = p.schedule.config.find("online");
    if (p.loop && (online == p.schedule.config.end() || online->second != 0)) static_cast<void>(find_online(f.nest, d));
    double stages = 0;
    for (const Stage& s : plan_stages(f.nest, d).stages) {
      stages += !s.reduces.empty() || !s.stores.empty();
      folding += !s.reduces.empty();
    }
    if (p.loop) rounds = std::max(1.0, stages);
  }
  const bool rows = folds(p.groups.columns);
  if (p.keep > 0) {
    auto online = p.schedule.config.find("online");
    const bool sums_online = online == p.schedule.config.end() || online->second != 0;
    c.kept = static_cast<double>(int64_t{p.keep} * p.rows * p.columns * f.kept_element(sums_online));
  }
  if (p.loop) {
    // Of rows what is kept is not read again.
    const double kept = rows && (p.team || p.keep > 0) ? std::min(1.0, (p.keep + 1) / tiles) : 0;
    c.again = (rounds - 1) * read * (1 - kept);
    c.waits = p.copied; // else loads of the next tile do not depend on this one's
    if (p.copied) c.block_bytes *= p.keep + 1;
  }
  if (folds(p.groups.rows))
    c.latency = rounds * tiles * (kTile + kTileElement * each + (rounds > 1 ? kTileWarp * p.warps : 0)) +
                (p.team ? 2 * f.device.grid_barrier_us : 0);
  if (rows) {
    const double warps = std::max(1.0, p.warps / static_cast<double>(p.loop ? 1 : p.rows)); // of a row
    const double again = p.keep > 0 && !p.team ? std::max(0.0, tiles - p.keep - 1) : tiles; // that are not held
    const double later = tiles + (rounds - 1) * again - 1, copied = rounds * tiles - 1;
    c.latency =
        kLatency * (1 + (p.copied ? copied * kCopiedTile : later / 2)) + folding * warps * f.device.warp_exchange_us;
  }
  double alive = std::max<double>(f.live, 1.5) + (p.loop ? f.accumulators() : 0);
  c.registers = 16 + each * (alive + loaded / 4);
  if (rows) { // what ptxas was seen to take
    double shifted = p.shift > 1 ? 1 : 0, accumulators = 3 * (f.accumulators() - 1);
    c.registers = p.loop ? 32 + each * (1.3 * (f.live - 1) + loaded / 8 + shifted / 2) + accumulators
                         : 16 + 8 * shifted + each * (f.live - 0.6) + accumulators;
  }
  c.registers = std::clamp(c.registers, 24.0, 1000.0);
  double threads = c.threads * std::max(1, p.min_blocks);
  c.most = std::min(static_cast<double>(f.device.thread_registers),
                    std::floor(static_cast<double>(f.device.registers) / threads / 8) * 8);
  c.instructions = c.blocks * p.turns * tiles * c.threads * each * issue * rounds;
  return c;
}

double estimate_us(const LaunchCost& c, const Target& device) {
  const double processors = std::max(1, device.multiprocessors);
  double registers = std::min(std::ceil(c.registers / 8) * 8, c.most);
  double resident = std::clamp(std::floor(static_cast<double>(device.registers) / (c.threads * registers)), 1.0,
                               static_cast<double>(device.resident_blocks));
  resident = std::max(1.0, std::min(resident, std::floor(static_cast<double>(device.resident_threads) / c.threads)));
  if (c.kept > 0) {
    const double shared = static_cast<double>(device.shared_bytes + device.reserved_shared_bytes) /
                          (c.kept + static_cast<double>(device.reserved_shared_bytes + BlockFacts::kExchangeBytes));
    resident = std::max(1.0, std::min(resident, std::floor(shared)));
  }
  double under_way = std::min(resident, c.blocks / processors) * c.block_bytes * (c.waits ? 0.5 : 1);
  double waves = c.blocks / (processors * resident);
  double tail = waves > 1 ? 1 + (std::ceil(waves) / waves - 1) / 2 : 1;
  double spilled = std::max(0.0, c.registers / c.most - 1);
  double read_share = c.block_bytes > 0 ? slow(under_way / static_cast<double>(device.saturating_bytes)) : 1;
  double memory = c.bytes / device.memory_bytes_per_us * read_share * tail + c.again / device.l2_bytes_per_us;
  double busy = std::min(1.0, c.blocks / processors);
  double arithmetic = c.instructions / (device.fma_per_cycle * device.clock_mhz * processors * busy);
  const double moving = std::max(std::hypot(memory, std::max(1.0, waves) * c.latency), c.blocks * device.block_us);
  return device.kernel_us + (std::max(moving, arithmetic) + kBeside * std::min(moving, arithmetic)) * (1 + spilled);
}

} // namespace tessera
