#include "harness.h"
#include "block_harness.h"
#include "codegen/target/select.h"
#include "codegen/tile/cooperation.h"
#include "tests/base/share.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

namespace tessera::test {
namespace {

std::unordered_map<uint64_t, int64_t> bind(const Graph& g, const Sizes& sizes) {
  std::unordered_map<uint64_t, int64_t> by;
  for (const auto& [name, value] : sizes)
    if (auto s = g.env().find(name)) by[s->symbol_id()] = value;
  return by;
}

Dims dims_of(const Graph& g, ValueId v, const std::unordered_map<uint64_t, int64_t>& by) {
  Dims dims;
  for (const SymExpr& e : g.type(v).shape) dims.push_back(e.eval(by).value());
  return dims;
}

Tensor random_tensor(DType d, Dims dims, const RunOptions& o, std::mt19937_64& rng) {
  Tensor t = Tensor::create(d, std::move(dims)).value();
  std::uniform_real_distribution<double> real(-2, 2);
  for (int64_t i = 0; i < t.count(); ++i) {
    if (is_float(d)) {
      double v = real(rng);
      if (o.specials) {
        uint64_t r = rng() % 40;
        v = r == 0 ? std::nan("") : r == 1 ? HUGE_VAL : r < 20 ? -HUGE_VAL : std::floor(v);
      }
      t.set_f64(i, v);
    } else if (d == DType::Bool) {
      t.set_i64(i, static_cast<int64_t>(rng() % 2));
    } else {
      bool sign = info(d).kind == DTypeKind::Signed;
      int64_t n = o.integer_limit;
      t.set_i64(i, static_cast<int64_t>(rng() % static_cast<uint64_t>(sign ? 2 * n + 1 : n + 1)) - (sign ? n : 0));
    }
  }
  return t;
}

} // namespace

Problem problem(std::string_view declarations, std::string_view nest) {
  Problem p;
  std::istringstream lines{std::string(declarations)};
  std::string line;
  while (std::getline(lines, line)) {
    size_t start = line.find_first_not_of(' '), colon = line.find(':'), open = line.find('['), close = line.rfind(']');
    if (start == std::string::npos) continue;
    TensorType type;
    type.dtype = dtype_from_name(line.substr(colon + 2, open - colon - 2)).value();
    std::string dims = line.substr(open + 1, close - open - 1), dim;
    std::istringstream list(dims);
    while (std::getline(list, dim, ','))
      type.shape.push_back(parse_sym(dim, [&](std::string_view n) -> Result<SymExpr> {
                             return p.graph.env().named_symbol(std::string(n));
                           }).value());
    p.graph.add_input(line.substr(start, colon - start), type);
  }
  Result<LoopNest> parsed = parse_nest(p.graph, nest);
  if (!parsed.ok()) {
    ADD_FAILURE() << parsed.error().str() << nest;
    std::abort();
  }
  p.nest = std::move(parsed).value();
  return p;
}

KernelRunner& kernel_runner() {
  static KernelRunner runner{
      [](const tile::Kernel& kernel, std::span<const tile::Argument> args, int64_t grid) -> Result<IndexReport> {
        TESSERA_ASSIGN(auto r, tile::interpret(kernel, args, grid));
        return r.report;
      }};
  return runner;
}

SharedMemory::SharedMemory(const ScheduledKernel& k, const std::unordered_map<uint64_t, int64_t>& symbols)
    : counted(!k.counters.is_const(0)), boxed(!k.mailboxes.is_const(0)) {
  for (const Workspace& w : k.workspaces)
    workspaces.emplace_back(static_cast<size_t>(byte_size(w.dtype, w.count.eval(symbols).value())), std::byte{0xff});
  // Counters and mailboxes begin in a state that an earlier launch may have left.
  counters.assign(static_cast<size_t>(k.counters.eval(symbols).value()), tile::kArrivalPhase);
  mailboxes.assign(static_cast<size_t>(k.mailboxes.eval(symbols).value()), 0);
}
void SharedMemory::add_to(std::vector<tile::Argument>& args) {
  for (auto& w : workspaces) args.push_back({w, {}});
  if (counted) args.push_back({std::as_writable_bytes(std::span(counters)), {}});
  if (boxed) args.push_back({std::as_writable_bytes(std::span(mailboxes)), {}});
}
bool SharedMemory::at_rest() const {
  return std::all_of(counters.begin(), counters.end(), [](uint32_t c) { return tile::all_arrived(c); }) &&
         std::all_of(mailboxes.begin(), mailboxes.end(), [](uint32_t w) { return w == 0; });
}

std::map<std::string, Tensor> run_kernel(const Problem& p, const ScheduledKernel& k,
                                         const std::map<std::string, Tensor>& inputs, const Sizes& sizes,
                                         IndexReport* report, bool in_place) {
  auto by = bind(p.graph, sizes);
  std::map<std::string, Tensor> results;
  std::vector<std::vector<std::byte>> memory;
  std::vector<tile::Argument> args;
  for (size_t i = 0; i < k.buffers.size(); ++i) {
    const std::string& name = p.graph.value(k.buffers[i]).name;
    Tensor t;
    if (k.written[i]) {
      t = Tensor::create(p.graph.type(k.buffers[i]).dtype, dims_of(p.graph, k.buffers[i], by)).value();
      if (t.bytes()) std::memset(t.mutable_data(), 0x5b, t.bytes()); // what is not written shows
      results.emplace(name, t);
    } else {
      t = inputs.at(name);
    }
    args.push_back({{const_cast<std::byte*>(t.data()), t.bytes()}, {}});
  }
  std::set<int> taken;
  for (size_t w = 0; in_place && w < k.may_overwrite.size(); ++w)
    for (int input : k.may_overwrite[w]) {
      auto i = static_cast<size_t>(input);
      if (p.graph.type(k.buffers[i]).shape != p.graph.type(k.buffers[w]).shape || !taken.insert(input).second) continue;
      const Tensor& from = inputs.at(p.graph.value(k.buffers[i]).name);
      EXPECT_EQ(from.bytes(), args[w].bytes.size());
      if (from.bytes()) std::memcpy(args[w].bytes.data(), from.data(), from.bytes());
      args[i] = args[w];
      break;
    }
  SharedMemory shared(k, by);
  shared.add_to(args);
  for (const SymExpr& s : k.sizes) args.push_back({{}, {0, s.eval(by).value()}});
  auto r = kernel_runner().run(k.kernel, args, k.grid.eval(by).value());
  EXPECT_TRUE(r.ok()) << r.error().str() << tile::print(k.kernel);
  EXPECT_TRUE(shared.at_rest());
  if (r.ok() && report) *report = *r;
  return results;
}

void expect_same(const Problem& p, const std::vector<Sizes>& sizes, const RunOptions& options) {
  std::mt19937_64 rng(7);
  std::vector<ScheduledKernel> kernels;
  for (int bytes : {64, 16})
    for (int unroll : {1, 2}) {
      if (kernel_runner().blocks_only) continue;
      Target device = shipped_target("avx512");
      device.vector_bytes = bytes;
      device.unroll = unroll;
      Schedule chosen = choose_schedule(p.graph, p.nest, device).schedule;
      for (int axis = -1; axis < 8; ++axis) {
        Schedule s = chosen;
        LoweringOptions how;
        if (axis >= 0) {
          s.placement.axis = axis;
          s.tile.vector = bytes / 4;
          s.tile.unroll = unroll;
          s.traversal.program_bytes = axis % 2 ? 1 << 10 : 64 << 10;
          how.exact_division = axis % 2;
          s.residency.cache_in_output = axis % 2;
          s.traversal.prefetch_points = 3 * (axis % 2);
          s.placement.cross_axis = axis == 0 ? 1 : axis - 1;
        }
        bool any = false;
        for (ScheduleKind kind :
             {ScheduleKind::Flat, ScheduleKind::Tiled2D, ScheduleKind::RowLoop, ScheduleKind::ColumnLoop}) {
          if (kind == ScheduleKind::Tiled2D && unroll != 1) continue; // as Flat does
          if (axis >= 0) s.kind = kind;
          if (axis >= 0) s.tile.square = kind == ScheduleKind::Tiled2D ? bytes / 4 : 1;
          auto k = lower_to_tiles(p.graph, p.nest, s, "test", how);
          if (!k.ok() && axis >= 0 && kind == ScheduleKind::Tiled2D) { // where something is gathered
            s.tile.square = 1;
            k = lower_to_tiles(p.graph, p.nest, s, "test", how);
          }
          if (!k.ok() && axis >= 0) continue; // does not fit this kind
          ASSERT_TRUE(k.ok()) << k.error().str();
          any = true;
          auto ok = tile::verify(k->kernel);
          ASSERT_TRUE(ok.ok()) << ok.error().str() << tile::print(k->kernel);
          std::string text = tile::print(k->kernel);
          auto again = tile::parse(text);
          ASSERT_TRUE(again.ok()) << again.error().str() << text;
          ASSERT_EQ(tile::print(*again), text);
          kernels.push_back(std::move(*k));
          if (axis < 0) break;
          if (kind != ScheduleKind::RowLoop && kind != ScheduleKind::ColumnLoop) continue;
          // The same with sums folded online, a chunk of one or two tiles, and with rows that programs share.
          for (auto [online, split] : {std::pair{1, 1}, {0, 4}, {1, 2}}) {
            Schedule other = s;
            other.traversal.online = kind == ScheduleKind::RowLoop && online;
            other.traversal.chunk = bytes / 4 * unroll * (1 + axis % 2);
            other.cooperation.programs_per_row = split;
            auto made = lower_to_tiles(p.graph, p.nest, other, "test", how);
            if (!made.ok() || tile::print(made->kernel) == text) continue;
            auto fine = tile::verify(made->kernel);
            ASSERT_TRUE(fine.ok()) << fine.error().str() << tile::print(made->kernel);
            made->why += std::string(online ? " (online)" : "") + (split > 1 ? " (split)" : "");
            kernels.push_back(std::move(*made));
          }
        }
        if (!any) break;
      }
    }
  ASSERT_GE(kernels.size(), kernel_runner().blocks_only ? 0u : 4u);
  for (ScheduledKernel& k : block_kernels(p, gpu_with(options.multiprocessors))) kernels.push_back(std::move(k));
  ASSERT_FALSE(kernels.empty());
  Share share;
  for (const Sizes& at : sizes) {
    auto by = bind(p.graph, at);
    std::vector<Tensor> loads;
    std::map<std::string, Tensor> inputs;
    for (ValueId v : p.nest.loads) {
      const std::string& name = p.graph.value(v).name;
      Tensor t = random_tensor(p.graph.type(v).dtype, dims_of(p.graph, v, by), options, rng);
      if (auto it = options.given.find(name); it != options.given.end())
        for (int64_t i = 0; i < t.count(); ++i) t.set_i64(i, it->second[static_cast<size_t>(i) % it->second.size()]);
      inputs[name] = t;
      loads.push_back(t);
    }
    auto expected = interpret(p.graph, p.nest, loads, by);
    ASSERT_TRUE(expected.ok()) << expected.error().str();
    for (const ScheduledKernel& k : kernels) {
      if (!conditions_hold(p.graph, k, at)) continue;
      constexpr int64_t kMaxWaiting = 512; // blocks that the emulator runs at a time
      if (!k.cooperative_blocks.is_const(0) && k.grid.eval(by).value() > kMaxWaiting) continue;
      for (bool in_place : {false, true}) {
        bool can =
            std::any_of(k.may_overwrite.begin(), k.may_overwrite.end(), [](const auto& l) { return !l.empty(); });
        if (in_place && !(kernel_runner().also_in_place && can)) continue;
        if (!share.takes({form(k.schedule), std::to_string(&at - sizes.data()), in_place ? "in place" : "apart"}))
          continue;
        IndexReport report;
        auto actual = run_kernel(p, k, inputs, at, &report, in_place);
        EXPECT_FALSE(report.any());
        for (size_t i = 0; i < p.nest.stores.size(); ++i) {
          const std::string& name = p.graph.value(p.nest.stores[i].value).name;
          Comparison c = compare(actual.at(name), expected.value()[i], options.tolerance, options.tolerance);
          std::string sizes_text;
          for (const auto& [n, v] : at) sizes_text += n + "=" + std::to_string(v) + " ";
          ASSERT_TRUE(c.same) << name << (in_place ? " (in place): " : ": ") << c.message << "\n"
                              << sizes_text << k.why << "\n"
                              << tile::print(k.kernel);
        }
      }
    }
  }
}

ScheduledKernel lower(const Problem& p, int unroll) {
  Target device = shipped_target("avx512");
  device.unroll = unroll;
  HostChoice choice = choose_schedule(p.graph, p.nest, device);
  auto k = lower_to_tiles(p.graph, p.nest, choice.schedule, p.nest.name);
  EXPECT_TRUE(k.ok()) << k.error().str();
  k->why = choice.why;
  return std::move(k).value();
}

void expect_golden(const std::string& name, const ScheduledKernel& k) {
  std::string text = "// " + std::string(tessera::name(k.schedule.kind)) + ": " + k.why + "\n// grid " + k.grid.str() +
                     "\n// work " + k.work_per_program.str() + ", scratch " + k.scratch_bytes.str() + " bytes\n";
  for (const Workspace& w : k.workspaces) text += "// workspace of " + w.count.str() + "\n";
  if (!k.counters.is_const(0)) text += "// counters " + k.counters.str() + "\n";
  if (!k.mailboxes.is_const(0)) text += "// boxes of " + k.mailboxes.str() + " words\n";
  for (const SizeCondition& c : k.conditions) {
    if (c.multiple_of > 1)
      text += "// where " + c.value.str() + " is a multiple of " + std::to_string(c.multiple_of) + "\n";
    if (c.min > 0) text += "// where " + std::to_string(c.min) + " <= " + c.value.str() + "\n";
    if (c.max < INT64_MAX) text += "// where " + c.value.str() + " <= " + std::to_string(c.max) + "\n";
  }
  for (size_t i = 0; i < k.sizes.size(); ++i) text += "// %n" + std::to_string(i) + " = " + k.sizes[i].str() + "\n";
  text += tile::print(k.kernel);
  std::string path = std::string(TESSERA_SOURCE_DIR) + "/tests/schedule/golden/" + name + ".tile";
  if (std::getenv("TESSERA_BLESS")) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path;
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str());
  auto parsed = tile::parse(expected.str(), path);
  ASSERT_TRUE(parsed.ok()) << parsed.error().str();
}

} // namespace tessera::test
