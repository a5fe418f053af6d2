#include "codegen/driver/kernels.h"
#include "codegen/driver/same_nests.h"
#include "codegen/driver/shared_code.h"
#include "codegen/schedule/own_kernels.h"
#include "codegen/schedule/tuned.h"
#include "graph/support/guarded.h"
#include "graph/support/handover.h"
#include "graph/support/log.h"
#include <atomic>
#include <chrono>
#include <map>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

namespace tessera {

KernelLaunch launch_of(const ScheduledKernel& kernel, const std::string& name, const std::string& symbol, int object,
                       const std::function<BufferId(ValueId)>& buffer) {
  KernelLaunch l;
  l.name = name;
  l.symbol = symbol;
  l.object = object;
  for (auto v : kernel.buffers) l.buffers.push_back(buffer(v));
  l.written = kernel.buffer_written;
  l.sizes = kernel.sizes;
  l.grid = kernel.grid;
  l.work_per_program = kernel.work_per_program;
  l.scratch_bytes = kernel.scratch_bytes;
  l.report_sites = kernel.report_sites;
  l.conditions = kernel.conditions;
  l.workspaces = kernel.workspaces;
  l.counters = kernel.counters;
  l.boxes = kernel.boxes;
  l.team = kernel.team;
  return l;
}

std::string anonymous_text(tile::Kernel kernel) {
  kernel.name = "kernel";
  for (size_t i = 0; i < kernel.params.size(); ++i) kernel.params[i].name = "p" + std::to_string(i);
  return tile::print(kernel);
}

namespace {
struct Loop {
  const std::function<void(size_t)>& body;
  size_t count;
  std::atomic<size_t> next{0};
  FirstException failure;
  Handover handover;
  void run() noexcept {
    handover.take();
    failure.run([&] {
      for (size_t i; !failure.thrown() && (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(i);
    });
    handover.give();
  }
};
struct LoopTask {
  Loop* loop;
  TESSERA_UNSEEN void operator()() const { loop->run(); }
};
} // namespace

void compile_each(size_t count, const CompileOptions& options, const std::function<void(size_t)>& body) {
  const int jobs = options.jobs > 0 ? options.jobs : options.threads;
  tbb::task_arena arena(jobs > 0 ? jobs : tbb::task_arena::automatic);
  Loop loop{body, count};
  loop.handover.give();
  arena.execute([&] {
    tbb::task_group helpers;
    const size_t threads = std::min(count, static_cast<size_t>(arena.max_concurrency()));
    for (size_t t = 1; t < threads; ++t) helpers.run(LoopTask{&loop});
    loop.run();
    helpers.wait();
  });
  loop.handover.take();
  loop.failure.rethrow();
}

static double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

namespace {

struct DistinctKernel { // of an object
  Hash128 key;          // of the text
  const tile::Kernel* kernel = nullptr;
  std::string_view first_user; // name of a request
};
using DistinctKernels = std::vector<DistinctKernel>;

// Where many kernels differ in constants alone, compiling each costs more (5 ms or so) than its constants gain: they
// become one with parameters.
void share_code(std::vector<LinkedKernel>& kernels, DistinctKernels& distinct, uint64_t seed) {
  constexpr size_t kMany = 8;
  if (distinct.size() < kMany) return;
  struct Member {
    size_t object;
    std::vector<int64_t> constants;
  };
  std::map<Hash128, std::vector<Member>> alike;
  for (size_t i = 0; i < distinct.size(); ++i) {
    OutlinedKernel outlined = outline_constants(*distinct[i].kernel);
    alike[hash128(anonymous_text(std::move(outlined.kernel)), seed)].push_back({i, std::move(outlined.constants)});
  }
  std::vector<const std::vector<int64_t>*> constants(distinct.size()); // of those that share
  std::vector<size_t> shared(distinct.size());                         // first object of the same form
  for (const auto& [key, members] : alike)
    for (const Member& m : members) {
      shared[m.object] = members.size() < kMany ? m.object : members[0].object;
      if (members.size() >= kMany) constants[m.object] = &m.constants;
    }
  std::vector<int> moved(distinct.size(), -1); // objects that are left, renumbered
  DistinctKernels left;
  for (LinkedKernel& k : kernels) {
    const auto old = static_cast<size_t>(k.object);
    const size_t first = shared[old];
    if (constants[old])
      for (int64_t c : *constants[old]) k.scheduled.sizes.emplace_back(c);
    if (moved[first] < 0) {
      moved[first] = static_cast<int>(left.size());
      Hash128 key = distinct[old].key;
      if (constants[old]) { // the first user has its text
        k.scheduled.kernel = outline_constants(k.scheduled.kernel).kernel;
        key = hash128(anonymous_text(k.scheduled.kernel), seed);
        k.scheduled.kernel.name = "tsr_" + key.hex();
      }
      left.push_back({key, &k.scheduled.kernel, distinct[old].first_user});
    }
    k.object = moved[first];
    k.symbol = left[static_cast<size_t>(k.object)].kernel->name;
  }
  distinct = std::move(left);
}

} // namespace

Result<LinkedKernels> compile_kernels(const Graph& graph, std::span<const KernelRequest> requests, const Target& device,
                                      const HostTarget& target, ObjectCache& cache, const CompileOptions& options) {
  auto start = std::chrono::steady_clock::now();
  LinkedKernels out;
  std::string version = host_compiler_version(target);
  uint64_t seed = hash128(version).lo;

  // Schedule everything; one object for each distinct text.
  SameNests same(graph);
  const bool texts = options.keep_texts || dump_enabled() || log_enabled(LogChannel::OutputCode);
  std::map<Hash128, int> by_text;
  DistinctKernels distinct;
  out.kernels.reserve(requests.size());
  for (const auto& request : requests) {
    CheckContext context("kernel " + request.name);
    KernelReport report;
    report.name = request.name;
    ScheduledKernel scheduled;
    // Texts name the values, so each is made where they are wanted; a nest with a tuner of its own is not another's.
    const bool shares = request.nest && !request.tuned && !texts;
    if (auto first = shares ? same.find_or_add(*request.nest, out.kernels.size()) : std::nullopt) {
      ScheduledKernel& model = out.kernels[*first].scheduled;
      tile::Kernel code = std::move(model.kernel); // stays with the first one
      LinkedKernel linked = out.kernels[*first];
      model.kernel = std::move(code);
      linked.scheduled.buffers =
          buffers_for(*request.nest, *requests[*first].nest, std::move(linked.scheduled.buffers));
      report.schedule = linked.scheduled.schedule;
      report.tuned = out.reports[*first].tuned;
      out.kernels.push_back(std::move(linked));
      out.reports.push_back(std::move(report));
      continue;
    }
    if (request.nest) {
      report.schedule = choose_schedule(graph, *request.nest, device);
      if (const TunedSchedules* tuned = request.tuned ? request.tuned : options.tuned.get())
        if (auto schedule = tuned_host_schedule(graph, *request.nest, device, *tuned)) {
          report.schedule = std::move(*schedule);
          report.tuned.push_back(report.schedule.measured);
        }
      if (options.strict_rounding) report.schedule.config["exact_division"] = 1;
      auto lowered = lower_to_tiles(graph, *request.nest, report.schedule, device, "kernel");
      if (!lowered.ok() && !report.tuned.empty()) { // a record must not keep a model from running
        report.tuned.clear();
        report.schedule = choose_schedule(graph, *request.nest, device);
        if (options.strict_rounding) report.schedule.config["exact_division"] = 1;
        lowered = lower_to_tiles(graph, *request.nest, report.schedule, device, "kernel");
      }
      if (!lowered.ok()) return lowered.error();
      scheduled = std::move(*lowered);
    } else {
      TESSERA_ASSIGN(auto own, lower_own_kernel(graph, graph.node(request.node), device, "kernel"));
      scheduled = std::move(own.back());
      report.schedule = scheduled.schedule;
    }
    std::string text = tile::print(scheduled.kernel);
    Hash128 key = hash128(anonymous_text(scheduled.kernel), seed);
    scheduled.kernel.name = "tsr_" + key.hex();
    LinkedKernel linked;
    linked.symbol = scheduled.kernel.name;
    linked.scheduled = std::move(scheduled);
    out.kernels.push_back(std::move(linked));
    auto [it, fresh] = by_text.try_emplace(key, static_cast<int>(distinct.size()));
    if (fresh) distinct.push_back({key, nullptr, request.name});
    out.kernels.back().object = it->second;
    if (options.keep_tiles || options.keep_texts) report.tile_text = tile::print(out.kernels.back().scheduled.kernel);
    if (dump_enabled()) write_dump(request.name + ".tile", text);
    out.reports.push_back(std::move(report));
  }
  for (const auto& k : out.kernels)
    if (auto& d = distinct[static_cast<size_t>(k.object)]; !d.kernel) d.kernel = &k.scheduled.kernel;
  share_code(out.kernels, distinct, seed);

  struct Made {
    std::optional<Diagnostic> error;
    CompiledObject object;
    bool cached = false;
    double ms = 0;
  };
  std::vector<Made> made(distinct.size());
  auto make = [&](size_t i) {
    auto began = std::chrono::steady_clock::now();
    const auto& [key, kernel, first_user] = distinct[i];
    auto& m = made[i];
    if (options.cancelled && options.cancelled()) {
      m.error = Diagnostic(ErrorCode::Cancelled, "the compile was given up");
      return;
    }
    bool want_ir = options.keep_texts || dump_enabled();
    if (!want_ir) {
      if (auto bytes = cache.find(key)) {
        m.object = {kernel->name, std::move(*bytes), ""};
        m.cached = true;
      }
    }
    if (!m.cached) {
      auto compiled = guarded({"compiling kernel", first_user},
                              [&, k = kernel] { return compile_host_kernel(*k, target, want_ir); });
      if (!compiled) {
        m.error = compiled.error();
        return;
      }
      m.object = std::move(*compiled);
      cache.store(key, m.object.object);
    }
    m.ms = ms_since(began);
  };
  compile_each(distinct.size(), options, make);
  for (auto& m : made) {
    if (m.error) return std::move(*m.error);
    (m.cached ? out.hits : out.misses)++;
    out.objects.push_back(std::move(m.object));
  }
  for (size_t i = 0; i < out.kernels.size(); ++i) {
    auto object = static_cast<size_t>(out.kernels[i].object);
    out.reports[i].from_cache = made[object].cached;
    out.reports[i].compile_ms = made[object].ms;
    if (options.keep_texts) out.reports[i].llvm_text = out.objects[object].llvm_ir;
    if (dump_enabled()) write_dump(requests[i].name + ".ll", out.objects[object].llvm_ir);
    TESSERA_LOGF(LogChannel::OutputCode, requests[i].name + " (" + std::string(name(out.reports[i].schedule.kind)) +
                                             ": " + out.reports[i].schedule.why + ")\n" +
                                             tile::print(out.kernels[i].scheduled.kernel));
  }
  out.codegen_ms = ms_since(start);
  start = std::chrono::steady_clock::now();
  auto module = HostModule::load(out.objects);
  if (!module && out.hits > 0) {
    // A cached object that passes its checksum and still does not link was made by something else: compile all anew,
    // once.
    for (size_t i = 0; i < distinct.size(); ++i) {
      TESSERA_ASSIGN(out.objects[i], compile_host_kernel(*distinct[i].kernel, target, false));
      cache.store(distinct[i].key, out.objects[i].object);
    }
    module = HostModule::load(out.objects);
  }
  if (!module) return module.error();
  out.module = *module;
  for (auto& k : out.kernels) {
    k.function = out.module->find(k.symbol);
    TESSERA_CHECK(k.function != nullptr, "kernel " + k.symbol + " was not linked");
  }
  out.link_ms = ms_since(start);
  return out;
}

} // namespace tessera
