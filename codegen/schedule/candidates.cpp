#include "codegen/schedule/candidates.h"
#include "codegen/schedule/block_config.h"
#include "codegen/schedule/block_time.h"
#include "codegen/schedule/choose.h"
#include "codegen/schedule/online.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace tessera {
namespace {

constexpr int64_t kThreads[] = {32, 64, 128, 256, 512, 1024};
constexpr double kHopeless = 5;               // times the least estimate: not measured
constexpr int64_t kSharedRowBytes = 64 << 10; // teams are tried for rows from here on

bool holds(const SizeCondition& c, const CallSizes& sizes) {
  auto v = c.value.eval(sizes);
  return v.ok() && *v >= c.min && *v <= c.max && *v % c.multiple_of == 0;
}

// What a block schedule is varied over, by its form.
class BlockVariants {
public:
  BlockVariants(const BlockFacts& facts, const CallSizes& sizes) : f_(facts), sizes_(sizes) {
    Domain d = facts.d;
    for (const OnlineSum& s : find_online(facts.nest, d)) sums_online_ |= s.kind != OnlineSum::Kind::None;
  }

  std::vector<Candidate> run(const BlockPlan& base, size_t most) {
    for (size_t i = 0; i < f_.d.axes.size(); ++i) {
      auto n = f_.extent(i).eval(sizes_);
      if (!n.ok() || *n < 1) return {};
      extents_.push_back(*n);
    }
    add(base);
    switch (base.schedule.kind) {
    case ScheduleKind::BlockFlat: flat(base); break;
    case ScheduleKind::BlockWindow: windows(); break;
    case ScheduleKind::BlockRows:
    case ScheduleKind::BlockLoop:
    case ScheduleKind::BlockColumns:
    case ScheduleKind::BlockTeam:
      if (!base.groups.columns.empty() && f_.is_row(base.groups.columns.front())) {
        rows(alone(base));
        row_teams(base);
      } else {
        columns(base);
        column_teams(base);
      }
      break;
    default: break;
    }
    return best(most);
  }

private:
  struct Made {
    BlockPlan plan;
    double us;
  };

  [[nodiscard]] int64_t count(const std::vector<size_t>& axes) const {
    int64_t n = 1;
    for (size_t a : axes) n *= extents_[a];
    return n;
  }
  void add(BlockPlan p) {
    auto online = p.schedule.config.find("online");
    const int64_t kept = online == p.schedule.config.end() ? 1 : online->second;
    p.schedule.config.clear();
    if (p.loop || p.team) p.schedule.config["online"] = kept;
    if (!p.loop) p.ahead = p.streaming = false;
    if (p.loop || p.team || p.shift > 1 || !f_.d.reduces) p.turns = 1;
    if (!p.loop && !p.team) p.steps = 1;
    if (!p.loop && !p.team && f_.d.reduces) p.run = 1;
    p.schedule.why = BlockFacts::sizes(p);
    write_config(p);
    if (!seen_.insert({p.schedule.kind, p.schedule.config}).second) return;
    auto cost = launch_cost(f_, p, sizes_);
    if (!cost) return;
    bool first = made_.empty();
    if (!first && (cost->registers > 1.3 * cost->most || int64_t{p.rows} * p.columns < 32)) return;
    made_.push_back({std::move(p), estimate_us(*cost, f_.device)});
  }
  // With bounds on registers that let more blocks be resident.
  void add_resident(BlockPlan p) {
    p.min_blocks = 0;
    add(p);
    for (int64_t registers : {32, 40, 48, 64, 80, 96, 128}) {
      p.min_blocks = static_cast<int>(f_.device.registers / (32 * p.warps * registers));
      if (p.min_blocks >= 2 && p.min_blocks <= 32 && p.min_blocks * p.warps <= 64) add(p);
    }
  }
  // A tile of the wanted elements on so many threads; of two dimensions, with each width.
  void tile(BlockPlan p, int64_t threads, int64_t elements, const std::vector<int64_t>& widths) {
    p.warps = static_cast<int>(threads / 32);
    for (int64_t w : widths) {
      if (w > elements) continue;
      p.columns = static_cast<int>(w);
      p.rows = static_cast<int>(elements / w);
      if (p.staged ? p.rows > 1 : p.rows == 1 || !p.groups.rows.empty()) add(p);
    }
  }

  void windows() {
    for (WindowChoice& choice : window_choices(f_))
      for (int64_t threads : {64, 128, 256}) {
        BlockPlan p = choice.plan;
        p.rows = static_cast<int>(threads);
        p.warps = static_cast<int>(threads / 32);
        write_config(p);
        if (seen_.insert({p.schedule.kind, p.schedule.config}).second) made_.push_back({std::move(p), choice.us});
      }
  }
  void flat(const BlockPlan& base) {
    std::vector<BlockPlan> forms{base};
    if (base.groups.points.empty() && f_.d.axes.size() > 1) other_places(base, forms);
    if (base.staged) { // blocks in the other order; through registers instead of as it lies in memory
      for (auto which : {&BlockPlan::downward, &BlockPlan::staged}) {
        BlockPlan p = base;
        p.*which = !(p.*which);
        if (!p.staged) p.shift = 1, p.whole_branch = p.downward = false;
        forms.push_back(p);
      }
    }
    for (const BlockPlan& form : forms)
      for (int64_t threads : kThreads)
        for (int64_t each = std::max<int64_t>(1, f_.vector / 2); each <= 8 * f_.vector; each *= 2) {
          int64_t elements = threads * each;
          if (form.split >= 0)
            tile(form, threads, elements, {form.columns});
          else if (form.groups.rows.empty())
            tile(form, threads, elements, {elements});
          else
            tile(form, threads, elements, {16, 32, 64, 128, 256, 512, 1024, 2048});
        }
  }
  // The same elements with the axes in other places of the tile (block_flat.cpp).
  void other_places(const BlockPlan& base, std::vector<BlockPlan>& forms) const {
    auto c = static_cast<size_t>(f_.contiguous_axis);
    std::vector<size_t> outer;
    for (size_t i = 0; i < f_.d.axes.size(); ++i)
      if (i != c) outer.push_back(i);
    BlockPlan p = base;
    p.split = -1;
    p.staged = p.downward = false;
    p.shift = 1;
    p.groups = {};
    p.groups.columns = outer;
    p.groups.columns.push_back(c);
    p.whole_branch = count(p.groups.columns) % f_.vector != 0;
    if (base.groups.columns.size() != f_.d.axes.size()) forms.push_back(p);
    p.whole_branch = false;
    p.run = 1;
    p.groups = {};
    p.groups.rows = outer;
    p.groups.columns = {c};
    if (base.split >= 0 || base.groups.rows.empty()) forms.push_back(p);
    if (base.split < 0 && f_.vector > 1 && extents_[c] % f_.vector == 0) {
      p.split = static_cast<int>(c);
      p.columns = static_cast<int>(f_.vector);
      p.groups = {};
      for (size_t i : outer) p.groups.rows.push_back(i > c ? i + 1 : i);
      p.groups.rows.push_back(c);
      p.groups.columns = {c + 1};
      forms.push_back(p);
    }
  }

  // What the rules choose without teams.
  [[nodiscard]] BlockPlan alone(const BlockPlan& base) const {
    if (!base.team) return base;
    for (BlockPlan& p : row_plans(f_, online(base)))
      if (std::all_of(p.conditions.begin(), p.conditions.end(), [&](const auto& c) { return holds(c, sizes_); })) {
        p.conditions.clear();
        p.schedule.config["online"] = online(base);
        return p;
      }
    return base;
  }
  [[nodiscard]] static bool online(const BlockPlan& p) {
    auto wanted = p.schedule.config.find("online");
    return wanted == p.schedule.config.end() || wanted->second != 0;
  }
  // Rows in registers, of a warp or of many, one or several a block; and loops over them.
  void rows(const BlockPlan& base) {
    const int64_t row = count(base.groups.columns), many = count(base.groups.rows);
    const int64_t whole = row == 1 ? 1 : std::max<int64_t>(2, power_above(row)), vector = kAccessBytes / f_.usual;
    BlockPlan p = base;
    p.loop = p.copied = false;
    p.keep = 0;
    p.turns = 1;
    p.schedule.kind = ScheduleKind::BlockRows;
    const int shift = row % vector == 0 ? 1 : row_shift(f_, false);
    if (whole <= 65536)
      for (int64_t threads : kThreads)
        for (int64_t r = 1; r <= std::min<int64_t>(128, power_above(many)); r *= 2) {
          int64_t each = r * whole / threads;
          if (each < 1 || each > 64) continue;
          p.rows = static_cast<int>(r);
          p.warps = static_cast<int>(threads / 32);
          p.shift = r == 1 ? shift : 1;
          p.columns = static_cast<int>(p.shift > 1 ? power_above(row + shift - 1) : whole);
          add_resident(p);
          for (int turns : {2, 4}) {
            p.turns = turns;
            p.min_blocks = 0;
            if (row % vector == 0 && p.shift == 1 && each <= 4 * vector && many >= turns * r) add(p);
          }
          p.turns = 1;
        }
    if (row * f_.usual < 2048) return;
    p.loop = true;
    p.schedule.kind = ScheduleKind::BlockLoop;
    p.rows = 1;
    const int line = row % vector == 0 ? 1 : row_shift(f_, true);
    for (int64_t threads : kThreads)
      for (int64_t each = vector; each <= 8 * vector && threads * each < 2 * row; each *= 2) {
        p.columns = static_cast<int>(threads * each);
        p.warps = static_cast<int>(threads / 32);
        const bool aligned = f_.d.env.divisor(f_.d.row_count()) % vector == 0;
        p.shift = static_cast<int>(std::min<int64_t>(line, p.columns));
        p.run = base.loop ? base.run : static_cast<int>(aligned || shift > 1 ? vector : 1);
        p.steps = static_cast<int>(std::max<int64_t>(1, each / p.run));
        p.ahead = base.loop ? base.ahead : true;
        p.streaming = base.loop ? base.streaming : row * f_.usual >= 32768;
        for (int64_t online : {1, 0}) {
          p.schedule.config["online"] = online;
          if (online == 1 || sums_online_) add_resident(p);
        }
        p.schedule.config["online"] = 1;
        for (bool ahead : {false, true})
          if (BlockPlan held = p;
              threads >= 128 && hold_row(f_, held, {threads, each, 1024 / threads, ahead}, row, true))
            add(held);
        for (int64_t on : {512, 768, 1024, 1536}) // threads of a multiprocessor
          if (BlockPlan copied = p; threads >= 128 && on % threads == 0 &&
                                    copy_row(f_, copied, {threads, each, on / threads, false}, row, true))
            add(copied);
      }
  }

  // Tiles of columns, a block's own.
  void columns(const BlockPlan& base) {
    const int64_t length = count(base.groups.rows), width = count(base.groups.columns);
    BlockPlan alone = base;
    alone.schedule.kind = ScheduleKind::BlockColumns;
    alone.team.reset();
    alone.waits = false;
    alone.programs = 0;
    alone.most_members = 1;
    if (base.team) alone.keep = alone.min_blocks = 0;
    for (int64_t threads : kThreads)
      for (int64_t columns = 16; columns <= std::min<int64_t>(4096, power_above(width)); columns *= 2)
        for (int64_t each = std::max<int64_t>(1, f_.vector / 2); each <= 8 * f_.vector; each *= 2) {
          BlockPlan p = alone;
          p.columns = static_cast<int>(columns);
          p.rows = static_cast<int>(std::max<int64_t>(1, threads * each / columns));
          p.loop = p.rows < length;
          p.steps = static_cast<int>(std::clamp<int64_t>(each / f_.vector, 1, std::max(1, p.rows / 2)));
          // As much shared memory as the rules take.
          const int64_t kept = int64_t{alone.keep} * base.rows * base.columns;
          p.keep = p.loop ? static_cast<int>(kept / (int64_t{p.rows} * p.columns)) : 0;
          if (!p.loop) p.rows = static_cast<int>(length == 1 ? 1 : std::max<int64_t>(2, power_above(length)));
          p.warps = static_cast<int>(threads / 32);
          add(p);
        }
  }
  // The same, shared by teams: as many programs as fill the GPU, in blocks of all sizes.
  void column_teams(const BlockPlan& base) {
    const int64_t width = count(base.groups.columns);
    for (int64_t threads : {128, 256, 512})
      for (int64_t columns = 16; columns <= std::min<int64_t>(256, power_above(width)); columns *= 2)
        for (int64_t each = std::max<int64_t>(4, f_.vector); each <= 4 * f_.vector; each *= 2)
          for (int64_t on : {640, 1024}) { // threads of a multiprocessor
            const int64_t resident = on / threads;
            if (resident < 2) continue;
            BlockPlan p = column_team(f_, base.groups,
                                      {threads, each, columns, resident, 2 * most_partials(f_, threads, online(base))},
                                      online(base));
            auto members = p.team->eval(sizes_);
            if (!members.ok() || *members < 2) continue;
            p.schedule.config["online"] = online(base);
            p.reads = base.reads;
            add(p);
          }
  }
  // Rows shared by teams: a tile each, as many members as hold the row, or as many programs as run at a time.
  void row_teams(const BlockPlan& base) {
    const int64_t row = count(base.groups.columns), many = count(base.groups.rows), vector = kAccessBytes / f_.usual;
    if (row * f_.usual < kSharedRowBytes) return;
    const bool aligned = many == 1 && base.groups.columns.size() == 1;
    const int shift = aligned || row % vector == 0 ? 1 : row_shift(f_, true);
    const bool whole = aligned || shift > 1 || row % vector == 0;
    for (int64_t threads : {128, 256, 512, 1024})
      for (int64_t each = vector; each <= std::min<int64_t>(8 * vector, 32); each *= 2)
        for (int64_t on : {512, 1024, 2048}) { // threads of a multiprocessor
          const int64_t resident = on / threads, all = resident * f_.device.multiprocessors;
          if (resident < 1) continue;
          auto add_team = [&](int64_t programs, bool loop, int64_t keep_part) {
            BlockPlan p = row_team(f_, {threads, each, resident, programs, 0, shift, loop, whole}, online(base));
            p.keep /= static_cast<int>(keep_part);
            share_team(f_, p, online(base));
            auto members = p.team->eval(sizes_);
            const int64_t most = p.waits ? std::min(all, threads * 32) : 8192;
            if (!members.ok() || *members < 2 || *members > most) return;
            if (!p.waits && loop && programs == 0) return; // a tile each
            if (p.waits && (loop && programs > 0 ? many * *members > all : 2 * *members > all)) return;
            if (!f_.constant(*p.team)) p.most_members = programs > 0 ? programs : 2 * *members;
            p.schedule.config["online"] = online(base);
            p.copied = false;
            for (bool ahead : {true, false}) {
              p.ahead = ahead && p.waits && p.loop && base.groups.columns.size() == 1;
              add(p);
            }
            p.copied = p.waits && p.keep > 0 && p.shift == 1 && base.groups.columns.size() == 1 &&
                       f_.keeps_stream(online(base));
            if (p.copied) add(p);
          };
          add_team(0, false, 1);
          for (int64_t part : {1, 2, 4}) add_team(0, true, part); // of those that wait
          add_team(all, true, 1);
        }
  }

  // What an axis that nothing is contiguous along is divisible by does not matter.
  [[nodiscard]] ExtentRange range(size_t axis) const {
    if (f_.constant(f_.extent(axis))) return {extents_[axis], extents_[axis], 1};
    ExtentRange r = bucket_of(extents_[axis]);
    auto along = [&](const Stream& s) { return f_.contiguous(s, axis); };
    if (std::none_of(f_.streams.begin(), f_.streams.end(), along)) r.multiple_of = 1;
    return r;
  }
  // In order of their estimates, the rules' choice first. Of those that differ in resident blocks alone a few are
  // enough.
  std::vector<Candidate> best(size_t most) {
    std::stable_sort(made_.begin() + 1, made_.end(), [](const Made& a, const Made& b) { return a.us < b.us; });
    std::map<std::tuple<ScheduleKind, int, int, int, bool, int, bool>, int> alike;
    std::vector<Candidate> out;
    for (Made& m : made_) {
      if (out.size() >= most || (out.size() > 1 && m.us > kHopeless * made_[1].us)) break;
      const BlockPlan& p = m.plan;
      if (!out.empty() && ++alike[{p.schedule.kind, p.rows, p.columns, p.warps, p.loop, p.keep, p.programs > 0}] > 3)
        continue;
      TunedSchedule t{p.schedule, {}};
      for (size_t i = 0; i < extents_.size(); ++i) t.extents.push_back(range(i));
      auto usable = tuned_plan(f_, t);
      bool fits = usable && std::all_of(usable->conditions.begin(), usable->conditions.end(),
                                        [&](const SizeCondition& c) { return holds(c, sizes_); });
      if (fits || out.empty()) out.push_back({std::move(t), m.us});
    }
    return out;
  }

  const BlockFacts& f_;
  const CallSizes& sizes_;
  std::vector<int64_t> extents_; // by axis
  bool sums_online_ = false;     // there are sums that a loop can fold without what they depend on
  std::vector<Made> made_;
  std::set<std::pair<ScheduleKind, std::map<std::string, int64_t>>> seen_;
};

std::vector<Candidate> block_candidates(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                        const Target& device, const CallSizes& sizes, size_t most) {
  BlockFacts facts(graph, nest, domain, device);
  for (const BlockPlan& plan : plan_blocks(graph, nest, domain, device, {}))
    if (std::all_of(plan.conditions.begin(), plan.conditions.end(),
                    [&](const SizeCondition& c) { return holds(c, sizes); }))
      return BlockVariants(facts, sizes).run(plan, most);
  return {};
}

// A host has one kernel for all sizes, so only what is known can be tuned: one number at a time, then pairs.
std::vector<Candidate> host_candidates(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                       const Target& device, size_t most) {
  std::vector<ExtentRange> extents;
  for (const Axis& a : domain.axes) {
    auto n = domain.env.simplify(a.extent).as_const();
    if (!n || *n < 1) return {};
    extents.push_back({*n, *n, 1});
  }
  std::vector<Candidate> out;
  std::set<std::map<std::string, int64_t>> seen;
  auto add = [&](Schedule s) {
    if (out.size() < most && seen.insert(s.config).second) out.push_back({{std::move(s), extents}, 0});
  };
  const Schedule base = choose_for(graph, nest, domain, device);
  add(base);
  auto vary = [&](const Schedule& from, const char* name, std::initializer_list<double> factors) {
    for (double factor : factors) {
      Schedule s = from;
      auto n = static_cast<int64_t>(std::lround(static_cast<double>(from.config.at(name)) * factor));
      s.config[name] = n;
      if (n >= 1 && (name != std::string_view("vector") || n <= 64) && (name != std::string_view("unroll") || n <= 16))
        add(std::move(s));
    }
  };
  if (base.config.at("axis") < 0) return {};
  vary(base, "unroll", {0.25, 0.5, 2, 4});
  vary(base, "program_bytes", {0.25, 4, 16});
  vary(base, "vector", {0.5, 2});
  const std::vector<Candidate> singles = out;
  for (size_t i = 1; i < singles.size(); ++i) vary(singles[i].tuned.schedule, "program_bytes", {0.25, 4});
  return out;
}

} // namespace

Result<std::vector<Candidate>> candidates(const Graph& graph, const LoopNest& nest, const Target& device,
                                          const CallSizes& sizes, size_t most) {
  TESSERA_ASSIGN(Domain domain, make_domain(graph, nest));
  if (domain.axes.empty()) return std::vector<Candidate>{};
  return device.kind == Target::Kind::Cuda ? block_candidates(graph, nest, domain, device, sizes, most)
                                           : host_candidates(graph, nest, domain, device, most);
}

} // namespace tessera
