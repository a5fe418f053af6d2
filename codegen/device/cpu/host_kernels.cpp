#include "codegen/device/cpu/host_kernels.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "codegen/compilation/contain.h"
#include "codegen/compilation/same_nests.h"
#include "codegen/compilation/shared_code.h"
#include "codegen/schedule/own_kernels.h"
#include "codegen/schedule/tuned.h"
#include <algorithm>
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
void share_code(std::vector<GeneratedKernel>& kernels, DistinctKernels& distinct, uint64_t seed) {
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
  for (GeneratedKernel& generated : kernels) {
    ScheduledKernel& k = generated.scheduled.back();
    const auto old = static_cast<size_t>(k.object);
    const size_t first = shared[old];
    if (constants[old])
      for (int64_t c : *constants[old]) k.sizes.emplace_back(c);
    if (moved[first] < 0) {
      moved[first] = static_cast<int>(left.size());
      Hash128 key = distinct[old].key;
      if (constants[old]) { // the first user determines the text
        k.kernel = outline_constants(k.kernel).kernel;
        key = hash128(anonymous_text(k.kernel), seed);
        k.kernel.name = "tsr_" + key.hex();
      }
      left.push_back({key, &k.kernel, distinct[old].first_user});
    }
    k.object = moved[first];
    k.symbol = left[static_cast<size_t>(k.object)].kernel->name;
  }
  distinct = std::move(left);
}

std::optional<Diagnostic> error_of(const Result<std::shared_ptr<const HostCode>>& result) {
  return result.ok() ? std::nullopt : std::optional(result.error());
}

class HostKernels {
public:
  HostKernels(const Graph& graph, std::span<const KernelRequest> requests, const Target& device,
              const HostTarget& target, Cache& cache, const CompileOptions& options)
      : graph_(graph), requests_(requests), device_(device), target_(target), cache_(cache), options_(options),
        seed_(hash128(host_compiler_version(target) + std::string(code_digest())).lo) {}

  Result<DeviceCode> run() {
    const Stopwatch watch;
    while (true) {
      begin();
      TESSERA_TRY(schedule_all());
      TESSERA_TRY(make_objects());
      if (!out_.failed.empty()) return std::move(out_);
      if (again_) continue; // kernels whose code failed have another schedule
      out_.codegen_ms = watch.ms();
      const Stopwatch linking;
      TESSERA_TRY(link());
      out_.link_ms = linking.ms();
      if (!out_.failed.empty() || !again_) return std::move(out_);
    }
  }

private:
  // Forgets what is made anew in each attempt; objects, failed schedules and what is to be reported stay.
  void begin() {
    DeviceCode fresh;
    fresh.contained = std::move(out_.contained);
    out_ = std::move(fresh);
    out_.kernels.reserve(requests_.size());
    objects_.clear();
    same_.emplace(graph_);
    by_text_.clear();
    distinct_.clear();
    again_ = false;
  }

  Status schedule_all() {
    for (size_t i = 0; i < requests_.size(); ++i) {
      const KernelRequest& request = requests_[i];
      CheckContext context("kernel " + request.name);
      if (as_an_earlier_one(request)) continue;
      TESSERA_TRY(schedule(i));
    }
    if (!out_.failed.empty()) return {};
    for (const GeneratedKernel& k : out_.kernels)
      if (auto& d = distinct_[object_of(k)]; !d.kernel) d.kernel = &k.general().kernel;
    share_code(out_.kernels, distinct_, seed_);
    return {};
  }

  // A schedule of a request that gives no code: the next one is taken, as long as there are some.
  void next_schedule(size_t request, const Schedule& schedule, const Diagnostic& error, bool first) {
    std::vector<Schedule>& without = without_[request];
    without.push_back(schedule);
    if (requests_[request].nest == nullptr || without.size() >= kMaxSchedules) {
      fail(request, error);
      return;
    }
    again_ = true;
    if (!first) return;
    contain(out_.contained, options_, "kernel " + requests_[request].name, error,
            "it has the next schedule after '" + print(schedule) + "'", text_of(request));
  }
  [[nodiscard]] bool failed(size_t request) const {
    return std::any_of(out_.failed.begin(), out_.failed.end(),
                       [&](const FailedKernel& f) { return f.request == request; });
  }
  void fail(size_t request, const Diagnostic& error) {
    if (!failed(request)) out_.failed.push_back({request, error});
  }
  [[nodiscard]] std::string text_of(size_t request) const {
    return requests_[request].nest ? print(graph_, *requests_[request].nest) : "";
  }

  // Reuses the kernel of an earlier request whose nest differs only in the values that it reads and writes.
  bool as_an_earlier_one(const KernelRequest& request) {
    // Texts name the values, so each text is made if requested; a nest with a separate tuner is not shared.
    const bool texts = options_.keep_texts || dump_enabled() || log_enabled(LogChannel::OutputCode);
    if (!request.nest || request.tuned || texts) return false;
    const auto first = same_->find_or_add(*request.nest, out_.kernels.size());
    if (!first || failed(*first)) return false;
    const FixedSchedules* before = requests_[*first].pinned;
    if (!request.pinned != !before || (before && request.pinned->list() != before->list())) return false;
    ScheduledKernel& model = out_.kernels[*first].scheduled.back();
    const KernelReport& told = out_.kernels[*first].report;
    tile::Kernel code = std::move(model.kernel); // owned by the first request
    ScheduledKernel linked = model;
    model.kernel = std::move(code);
    linked.buffers = buffers_for(*request.nest, *requests_[*first].nest, std::move(linked.buffers));
    KernelReport report;
    report.name = request.name;
    report.schedule = linked.schedule;
    report.why = linked.why;
    report.predicted = linked.predicted;
    report.tuned = told.tuned;
    report.extents = told.extents;
    report.unmet = told.unmet;
    add(std::move(linked), std::move(report));
    return true;
  }

  // The nest's tile kernel with the measured schedule, else with the cost model's; where that fails, with the next one.
  Result<ScheduledKernel> lower(size_t index, KernelReport& report) {
    const KernelRequest& request = requests_[index];
    const TunedSchedules* tuned = schedules_for(request, options_);
    while (true) {
      std::vector<Schedule>& without = without_[index];
      auto made =
          guarded({"scheduling kernel", request.name}, [&] { return attempt(request, tuned, without, report); });
      if (made.ok() || !may_detour(made.error())) return made;
      const Schedule failed = report.schedule;
      if (without.size() + 1 >= kMaxSchedules || std::find(without.begin(), without.end(), failed) != without.end())
        return made;
      without.push_back(failed);
      report = {};
      report.name = request.name;
      contain(out_.contained, options_, "kernel " + request.name, made.error(),
              "it has the next schedule after '" + print(failed) + "'", text_of(index));
    }
  }

  Result<ScheduledKernel> attempt(const KernelRequest& request, const TunedSchedules* tuned,
                                  std::span<const Schedule> without, KernelReport& report) {
    auto by = [&](HostChoice choice) -> Result<ScheduledKernel> {
      failure_point("lower");
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
    failure_point("schedule");
    HostChoice choice = choose_schedule(graph_, *request.nest, device_, tuned, without);
    if (choice.none) return Diagnostic(ErrorCode::CodegenError, "no schedule is left");
    if (choice.measured.empty()) return by(std::move(choice));
    report.tuned.push_back(choice.measured);
    auto lowered = by(std::move(choice));
    if (lowered.ok()) return lowered;
    report.tuned.clear(); // an invalid record must not fail the compilation
    choice = choose_schedule(graph_, *request.nest, device_, nullptr, without);
    if (choice.none) return Diagnostic(ErrorCode::CodegenError, "no schedule is left");
    return by(std::move(choice));
  }

  Status schedule(size_t index) {
    const KernelRequest& request = requests_[index];
    KernelReport report;
    report.name = request.name;
    auto scheduled = request.nest ? lower(index, report) : lower_own(request, report);
    if (!scheduled.ok()) {
      if (!may_detour(scheduled.error())) return std::move(scheduled).failure();
      fail(index, scheduled.error());
      add({}, std::move(report)); // numbers of kernels are those of requests
      return {};
    }
    ScheduledKernel linked = std::move(*scheduled);
    if (request.nest) check_pinned(graph_, request, device_, report);
    tile::Kernel& kernel = linked.kernel;
    if (dump_enabled()) write_dump(request.name + ".tile", tile::print(kernel));
    const Hash128 key = hash128(anonymous_text(kernel), seed_);
    kernel.name = linked.symbol = "tsr_" + key.hex();
    auto [it, fresh] = by_text_.try_emplace(key, static_cast<int>(distinct_.size()));
    if (fresh) distinct_.push_back({key, nullptr, request.name});
    linked.object = it->second;
    if (options_.keep_tiles || options_.keep_texts) report.tile_text = tile::print(kernel);
    add(std::move(linked), std::move(report));
    return {};
  }

  void add(ScheduledKernel kernel, KernelReport report) {
    GeneratedKernel& made = out_.kernels.emplace_back();
    made.scheduled.push_back(std::move(kernel));
    made.report = std::move(report);
  }
  [[nodiscard]] static size_t object_of(const GeneratedKernel& k) { return static_cast<size_t>(k.general().object); }

  Result<ScheduledKernel> lower_own(const KernelRequest& request, KernelReport& report) {
    return guarded({"scheduling kernel", request.name}, [&]() -> Result<ScheduledKernel> {
      failure_point("own");
      TESSERA_ASSIGN(auto own, lower_own_kernel(graph_, graph_.node(request.node), device_, "kernel"));
      report.schedule = own.back().schedule;
      report.why = own.back().why;
      return std::move(own.back());
    });
  }

  // One object for each distinct text.
  Status make_objects() {
    if (!out_.failed.empty()) return {};
    std::vector<Made> made(distinct_.size());
    compile_each(distinct_.size(), options_, [&](size_t i) { make(distinct_[i], made[i]); });
    std::vector<std::optional<Diagnostic>> errors;
    for (size_t i = 0; i < made.size(); ++i) {
      Made& m = made[i];
      if (m.error && !may_detour(*m.error)) return std::move(*m.error);
      errors.push_back(std::move(m.error));
      (m.cached ? out_.hits : out_.misses)++;
      objects_.push_back(std::move(m.object));
    }
    if (without_code(errors)) return {};
    made_before_.clear();
    for (size_t i = 0; i < out_.kernels.size(); ++i) {
      const size_t object = object_of(out_.kernels[i]);
      KernelReport& report = out_.kernels[i].report;
      report.from_cache = made[object].cached;
      report.compile_ms = made[object].ms;
      if (options_.keep_texts) report.llvm_text = objects_[object].llvm_ir;
      if (dump_enabled()) write_dump(requests_[i].name + ".ll", objects_[object].llvm_ir);
      TESSERA_LOGF(LogChannel::OutputCode, requests_[i].name + " (" + std::string(name(report.schedule.kind)) + ": " +
                                               report.why + ")\n" + tile::print(out_.kernels[i].general().kernel));
    }
    return {};
  }

  // Gives the requests of objects with an error another schedule. False: there are none.
  bool without_code(const std::vector<std::optional<Diagnostic>>& errors) {
    bool any = false;
    for (size_t i = 0; i < errors.size(); ++i) {
      any = any || errors[i];
      if (!errors[i]) made_before_[distinct_[i].key] = objects_[i]; // not once more
    }
    if (!any) return false;
    std::vector<bool> told(errors.size()); // kernels of one text fail together
    for (size_t i = 0; i < out_.kernels.size(); ++i) {
      const size_t object = object_of(out_.kernels[i]);
      if (!errors[object]) continue;
      next_schedule(i, out_.kernels[i].general().schedule, *errors[object], !told[object]);
      told[object] = true;
    }
    return true;
  }

  struct Made {
    std::optional<Diagnostic> error;
    CompiledObject object;
    bool cached = false;
    double ms = 0;
  };
  // May run on any thread.
  void make(const DistinctKernel& distinct, Made& m) const {
    const Status done = guarded({"compiling kernel", distinct.first_user}, [&]() -> Status {
      make_guarded(distinct, m);
      return {};
    });
    if (!done.ok()) m.error = done.error();
  }
  void make_guarded(const DistinctKernel& distinct, Made& m) const {
    const Stopwatch watch;
    if (auto before = made_before_.find(distinct.key); before != made_before_.end()) {
      m.object = before->second;
      return;
    }
    if (options_.cancelled && options_.cancelled()) {
      m.error = Diagnostic(ErrorCode::Cancelled, "the compile was given up");
      return;
    }
    const bool want_ir = options_.keep_texts || dump_enabled();
    if (auto bytes = want_ir ? std::nullopt : cache_.find(EntryKind::Kernel, distinct.key)) {
      m.object = {distinct.kernel->name, std::move(*bytes), ""};
      m.cached = true;
    } else {
      auto compiled = compile_host_kernel(*distinct.kernel, target_, want_ir);
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

  [[nodiscard]] static Result<std::shared_ptr<const HostCode>> linked(std::span<const CompiledObject> objects) {
    return guarded("linking", [&] {
      if (!objects.empty()) failure_point("link");
      return link_host_objects(objects);
    });
  }

  Status link() {
    auto module = linked(objects_);
    if (!module && out_.hits > 0) {
      // A cached object with a valid checksum that does not link was made by another compiler: recompile everything,
      // once.
      for (size_t i = 0; i < distinct_.size(); ++i) {
        TESSERA_ASSIGN(objects_[i], compile_host_kernel(*distinct_[i].kernel, target_, false));
        store(distinct_[i], objects_[i]);
      }
      module = linked(objects_);
    }
    if (!module) {
      if (!may_detour(module.error())) return module.error();
      std::vector<std::optional<Diagnostic>> errors; // which ones do not link
      for (const CompiledObject& object : objects_) errors.push_back(error_of(linked(std::span(&object, 1))));
      if (without_code(errors)) return {};
      module = linked(objects_); // each of them does
      if (!module) return module.error();
    }
    for (GeneratedKernel& generated : out_.kernels) {
      ScheduledKernel& k = generated.scheduled.back();
      k.function = (*module)->find(k.symbol);
      TESSERA_CHECK(k.function != nullptr, "kernel " + k.symbol + " was not linked");
    }
    for (const CompiledObject& o : objects_) out_.objects.push_back(o.object);
    out_.code = std::move(*module);
    return {};
  }

  static constexpr size_t kMaxSchedules = 4; // of a kernel that are tried

  const Graph& graph_;
  std::span<const KernelRequest> requests_;
  const Target& device_;
  const HostTarget& target_;
  Cache& cache_;
  const CompileOptions& options_;
  uint64_t seed_; // seed of hashes: the compiler's version
  std::optional<SameNests> same_;
  std::map<Hash128, int> by_text_; // index into distinct_
  DistinctKernels distinct_;       // one for each object
  DeviceCode out_;                 // its objects when they are linked
  std::vector<CompiledObject> objects_;
  std::map<size_t, std::vector<Schedule>> without_; // by request: schedules that gave no code
  std::map<Hash128, CompiledObject> made_before_;   // by earlier attempts
  bool again_ = false;                              // a request has another schedule now
};

} // namespace

Result<DeviceCode> compile_host_kernels(const Graph& graph, std::span<const KernelRequest> requests,
                                        const Target& device, const HostTarget& target, Cache& cache,
                                        const CompileOptions& options) {
  return HostKernels(graph, requests, device, target, cache, options).run();
}

} // namespace tessera
