#include "codegen/device/cpu/host_kernels.h"
#include "codegen/driver/same_nests.h"
#include "codegen/driver/shared_code.h"
#include "codegen/schedule/own_kernels.h"
#include "codegen/schedule/tuned.h"
#include "graph/support/guarded.h"
#include "graph/support/log.h"
#include "graph/support/stopwatch.h"
#include <map>

namespace tessera {
namespace {

struct DistinctKernel { // one per object
  Hash128 key;          // hash of the text
  const tile::Kernel* kernel = nullptr;
  std::string_view first_user; // name of a request
};
using DistinctKernels = std::vector<DistinctKernel>;

// If many kernels differ in constants only, compiling each (about 5 ms) costs more than constants gain: they become one
// kernel with parameters.
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
  std::vector<const std::vector<int64_t>*> constants(distinct.size()); // constants of kernels that share code
  std::vector<size_t> shared(distinct.size());                         // first object of the same form
  for (const auto& [key, members] : alike)
    for (const Member& m : members) {
      shared[m.object] = members.size() < kMany ? m.object : members[0].object;
      if (members.size() >= kMany) constants[m.object] = &m.constants;
    }
  std::vector<int> moved(distinct.size(), -1); // new index of each remaining object
  DistinctKernels left;
  for (LinkedKernel& k : kernels) {
    const auto old = static_cast<size_t>(k.object);
    const size_t first = shared[old];
    if (constants[old])
      for (int64_t c : *constants[old]) k.scheduled.sizes.emplace_back(c);
    if (moved[first] < 0) {
      moved[first] = static_cast<int>(left.size());
      Hash128 key = distinct[old].key;
      if (constants[old]) { // the first user determines the text
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

class HostKernels {
public:
  HostKernels(const Graph& graph, std::span<const KernelRequest> requests, const Target& device,
              const HostTarget& target, Cache& cache, const CompileOptions& options)
      : graph_(graph), requests_(requests), device_(device), target_(target), cache_(cache), options_(options),
        seed_(hash128(host_compiler_version(target)).lo), same_(graph) {}

  Result<LinkedKernels> run() {
    const Stopwatch watch;
    out_.kernels.reserve(requests_.size());
    for (const KernelRequest& request : requests_) {
      CheckContext context("kernel " + request.name);
      if (!as_an_earlier_one(request)) TESSERA_TRY(schedule(request));
    }
    for (const auto& k : out_.kernels)
      if (auto& d = distinct_[static_cast<size_t>(k.object)]; !d.kernel) d.kernel = &k.scheduled.kernel;
    share_code(out_.kernels, distinct_, seed_);
    TESSERA_TRY(make_objects());
    out_.codegen_ms = watch.ms();
    const Stopwatch linking;
    TESSERA_TRY(link());
    out_.link_ms = linking.ms();
    return std::move(out_);
  }

private:
  // Reuses the kernel of an earlier request whose nest differs only in the values that it reads and writes.
  bool as_an_earlier_one(const KernelRequest& request) {
    // Texts name the values, so each text is made if requested; a nest with a separate tuner is not shared.
    const bool texts = options_.keep_texts || dump_enabled() || log_enabled(LogChannel::OutputCode);
    if (!request.nest || request.tuned || texts) return false;
    const auto first = same_.find_or_add(*request.nest, out_.kernels.size());
    if (!first) return false;
    const FixedSchedules* before = requests_[*first].pinned;
    if (!request.pinned != !before || (before && request.pinned->list() != before->list())) return false;
    ScheduledKernel& model = out_.kernels[*first].scheduled;
    tile::Kernel code = std::move(model.kernel); // owned by the first request
    LinkedKernel linked = out_.kernels[*first];
    model.kernel = std::move(code);
    linked.scheduled.buffers = buffers_for(*request.nest, *requests_[*first].nest, std::move(linked.scheduled.buffers));
    KernelReport report;
    report.name = request.name;
    report.schedule = linked.scheduled.schedule;
    report.why = linked.scheduled.why;
    report.predicted = linked.scheduled.predicted;
    report.tuned = out_.reports[*first].tuned;
    report.extents = out_.reports[*first].extents;
    report.unmet = out_.reports[*first].unmet;
    out_.kernels.push_back(std::move(linked));
    out_.reports.push_back(std::move(report));
    return true;
  }

  // The nest's tile kernel with the measured schedule, else with the cost model's.
  Result<ScheduledKernel> lower(const KernelRequest& request, KernelReport& report) {
    auto by = [&](HostChoice choice) -> Result<ScheduledKernel> {
      report.schedule = choice.schedule;
      report.why = choice.why;
      report.predicted = choice.predicted;
      report.extents = choice.extents;
      TESSERA_ASSIGN(ScheduledKernel k, lower_to_tiles(graph_, *request.nest, choice.schedule, "kernel",
                                                       {.exact_division = options_.strict_rounding}));
      k.why = std::move(choice.why);
      k.predicted = std::move(choice.predicted);
      k.measured = std::move(choice.measured);
      return k;
    };
    HostChoice choice = choose_schedule(graph_, *request.nest, device_, schedules_for(request, options_));
    if (choice.measured.empty()) return by(std::move(choice));
    report.tuned.push_back(choice.measured);
    auto lowered = by(std::move(choice));
    if (lowered.ok()) return lowered;
    report.tuned.clear(); // an invalid record must not fail the compilation
    return by(choose_schedule(graph_, *request.nest, device_));
  }

  Status schedule(const KernelRequest& request) {
    KernelReport report;
    report.name = request.name;
    LinkedKernel linked;
    if (request.nest) {
      TESSERA_ASSIGN(linked.scheduled, lower(request, report));
      check_pinned(graph_, request, device_, report);
    } else {
      TESSERA_ASSIGN(auto own, lower_own_kernel(graph_, graph_.node(request.node), device_, "kernel"));
      linked.scheduled = std::move(own.back());
      report.schedule = linked.scheduled.schedule;
      report.why = linked.scheduled.why;
    }
    tile::Kernel& kernel = linked.scheduled.kernel;
    if (dump_enabled()) write_dump(request.name + ".tile", tile::print(kernel));
    const Hash128 key = hash128(anonymous_text(kernel), seed_);
    kernel.name = linked.symbol = "tsr_" + key.hex();
    auto [it, fresh] = by_text_.try_emplace(key, static_cast<int>(distinct_.size()));
    if (fresh) distinct_.push_back({key, nullptr, request.name});
    linked.object = it->second;
    if (options_.keep_tiles || options_.keep_texts) report.tile_text = tile::print(kernel);
    out_.kernels.push_back(std::move(linked));
    out_.reports.push_back(std::move(report));
    return {};
  }

  // One object for each distinct text.
  Status make_objects() {
    std::vector<Made> made(distinct_.size());
    compile_each(distinct_.size(), options_, [&](size_t i) { make(distinct_[i], made[i]); });
    for (auto& m : made) {
      if (m.error) return std::move(*m.error);
      (m.cached ? out_.hits : out_.misses)++;
      out_.objects.push_back(std::move(m.object));
    }
    for (size_t i = 0; i < out_.kernels.size(); ++i) {
      const auto object = static_cast<size_t>(out_.kernels[i].object);
      KernelReport& report = out_.reports[i];
      report.from_cache = made[object].cached;
      report.compile_ms = made[object].ms;
      if (options_.keep_texts) report.llvm_text = out_.objects[object].llvm_ir;
      if (dump_enabled()) write_dump(requests_[i].name + ".ll", out_.objects[object].llvm_ir);
      TESSERA_LOGF(LogChannel::OutputCode, requests_[i].name + " (" + std::string(name(report.schedule.kind)) + ": " +
                                               report.why + ")\n" + tile::print(out_.kernels[i].scheduled.kernel));
    }
    return {};
  }

  struct Made {
    std::optional<Diagnostic> error;
    CompiledObject object;
    bool cached = false;
    double ms = 0;
  };
  // May run on any thread.
  void make(const DistinctKernel& distinct, Made& m) const {
    const Stopwatch watch;
    if (options_.cancelled && options_.cancelled()) {
      m.error = Diagnostic(ErrorCode::Cancelled, "the compile was given up");
      return;
    }
    const bool want_ir = options_.keep_texts || dump_enabled();
    if (auto bytes = want_ir ? std::nullopt : cache_.find(EntryKind::Kernel, distinct.key)) {
      m.object = {distinct.kernel->name, std::move(*bytes), ""};
      m.cached = true;
    } else {
      auto compiled = guarded({"compiling kernel", distinct.first_user},
                              [&, k = distinct.kernel] { return compile_host_kernel(*k, target_, want_ir); });
      if (!compiled) {
        m.error = compiled.error();
        return;
      }
      m.object = std::move(*compiled);
      store(distinct, m.object);
    }
    m.ms = watch.ms();
  }

  void store(const DistinctKernel& distinct, const CompiledObject& made) const {
    cache_.store(EntryKind::Kernel, distinct.key,
                 kernel_origin(host_compiler_version(target_), std::string(distinct.first_user)),
                 {made.object.data(), made.object.size()});
  }

  Status link() {
    auto module = link_host_objects(out_.objects);
    if (!module && out_.hits > 0) {
      // A cached object with a valid checksum that does not link was made by another compiler: recompile everything,
      // once.
      for (size_t i = 0; i < distinct_.size(); ++i) {
        TESSERA_ASSIGN(out_.objects[i], compile_host_kernel(*distinct_[i].kernel, target_, false));
        store(distinct_[i], out_.objects[i]);
      }
      module = link_host_objects(out_.objects);
    }
    if (!module) return module.error();
    out_.module = *module;
    for (auto& k : out_.kernels) {
      k.function = out_.module->find(k.symbol);
      TESSERA_CHECK(k.function != nullptr, "kernel " + k.symbol + " was not linked");
    }
    return {};
  }

  const Graph& graph_;
  std::span<const KernelRequest> requests_;
  const Target& device_;
  const HostTarget& target_;
  Cache& cache_;
  const CompileOptions& options_;
  uint64_t seed_; // seed of hashes: the compiler's version
  SameNests same_;
  std::map<Hash128, int> by_text_; // index into distinct_
  DistinctKernels distinct_;       // one for each object
  LinkedKernels out_;
};

} // namespace

Result<LinkedKernels> compile_host_kernels(const Graph& graph, std::span<const KernelRequest> requests,
                                           const Target& device, const HostTarget& target, Cache& cache,
                                           const CompileOptions& options) {
  return HostKernels(graph, requests, device, target, cache, options).run();
}

} // namespace tessera
