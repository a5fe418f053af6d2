#include "codegen/device/cuda/gpu_kernels.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "codegen/compilation/contain.h"
#include "codegen/device/cuda/code_objects.h"
#include "codegen/schedule/lower/block_attention.h"
#include "codegen/schedule/own_kernels.h"
#include "codegen/schedule/tuned.h"
#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tessera {
namespace {

// "if 1 <= cols <= 1024, cols % 8 == 0", or "for every size".
std::string when(const ScheduledKernel& k) {
  const std::string waits =
      k.cooperative_blocks.is_const(0) ? "" : "if " + k.cooperative_blocks.str() + " programs run at once";
  if (k.conditions.empty()) return waits.empty() ? "for every size" : waits;
  std::string text = "if ";
  const char* separator = "";
  for (const auto& c : k.conditions) {
    if (c.min > 0 || c.max != INT64_MAX) {
      text += separator;
      if (c.min > 0) text += std::to_string(c.min) + " <= ";
      text += c.value.str();
      if (c.max != INT64_MAX) text += " <= " + std::to_string(c.max);
      separator = ", ";
    }
    if (c.multiple_of > 1) {
      text += separator + c.value.str() + " % " + std::to_string(c.multiple_of) + " == 0";
      separator = ", ";
    }
  }
  if (!waits.empty()) text += ", " + waits;
  return text;
}

constexpr size_t kSymbolDigits = 12; // of a kernel's key: enough for the symbols of a file to differ
constexpr size_t kMaxSchedules = 4;  // of a kernel that are tried where code for them fails

// The maps of a kernel's code as those of its launch. A kernel's i64 parameters are its last ones.
std::vector<TensorMapOf<SymExpr>> launch_maps(const std::vector<KernelTensorMap>& maps, const ScheduledKernel& k) {
  const size_t first_size = k.kernel.params.size() - k.sizes.size();
  std::vector<TensorMapOf<SymExpr>> out;
  for (const auto& m : maps) {
    TESSERA_CHECK(static_cast<size_t>(m.buffer) < k.buffers.size(), "tensor map of kernel " + k.kernel.name);
    out.push_back(m.convert([&](const ParameterProduct& p) {
      SymExpr size(p.factor);
      for (const int i : p.params) {
        const size_t at = static_cast<size_t>(i) - first_size;
        TESSERA_CHECK(at < k.sizes.size(), "tensor map of kernel " + k.kernel.name);
        size = size * k.sizes[at];
      }
      return size;
    }));
  }
  return out;
}

// The least resident blocks per multiprocessor for cooperative programs: enough to launch them at all (shape_plan.cpp),
// and to keep those resident that all fit at once.
int64_t least_blocks(const ScheduledKernel& k, const Target& device) {
  auto it = k.kernel.config.find("min_blocks");
  if (it == k.kernel.config.end() || k.cooperative_blocks.is_const(0)) return 1;
  const auto cooperative_blocks = k.cooperative_blocks.as_const(), grid = k.grid.as_const();
  if (!cooperative_blocks || !grid) return it->second;
  const int64_t processors = device.multiprocessors;
  const int64_t programs = *grid <= it->second * processors ? *grid : 2 * *cooperative_blocks;
  return std::clamp<int64_t>((programs + processors - 1) / processors, 1, it->second);
}

// Heading of a kernel's text.
std::string heading(const ScheduledKernel& k, const cuda::CodeObject& o) {
  std::string text = "// " + std::string(name(k.schedule.kind)) + " " + when(k) + ": " + k.why +
                     (k.measured.empty() ? "" : "; tuned: " + k.measured) + "\n// " + std::to_string(o.threads) +
                     " threads, " + std::to_string(o.shared_bytes) + " bytes of shared memory";
  if (o.registers >= 0) text += ", " + std::to_string(o.registers) + " registers";
  if (o.spill_bytes > 0) text += ", " + std::to_string(o.spill_bytes) + " bytes spilled";
  return text + "\n";
}

class GpuKernels {
public:
  GpuKernels(const Graph& graph, std::span<const KernelRequest> requests, const Target& device, const GpuTarget& target,
             Cache& cache, const CompileOptions& options, const GpuKernelOptions& gpu)
      : graph_(graph), requests_(requests), device_(device), options_(options),
        compiler_(target, gpu, cache, options.keep_texts || dump_enabled(), options.cancelled, device.registers,
                  device.thread_registers) {}

  Result<DeviceCode> run() {
    const Stopwatch watch;
    do {
      begin();
      TESSERA_TRY(schedule_all());
      if (out_.failed.empty()) TESSERA_TRY(compile_all());
    } while (again_ && out_.failed.empty());
    if (out_.failed.empty()) {
      for (const MadeObject& m : made_) take(m);
      for (size_t i = 0; i < requests_.size(); ++i) finish(requests_[i], out_.kernels[i]);
    }
    out_.codegen_ms = watch.ms();
    return std::move(out_);
  }

private:
  // Forgets what is made anew in each attempt; compiled texts, failed schedules and what is to be reported stay.
  void begin() {
    DeviceCode fresh;
    fresh.contained = std::move(out_.contained);
    out_ = std::move(fresh);
    out_.kernels.reserve(requests_.size());
    made_.clear();
    by_text_.clear();
    again_ = false;
  }

  Status schedule_all() {
    for (size_t i = 0; i < requests_.size(); ++i) {
      const KernelRequest& request = requests_[i];
      CheckContext context("kernel " + request.name);
      auto list = schedule(request, without_[i]);
      if (!list.ok()) {
        if (!may_detour(list.error())) return std::move(list).failure();
        out_.failed.push_back({i, list.error()});
        continue;
      }
      TESSERA_CHECK(!list->empty() && list->back().conditions.empty() &&
                        !tile::needs_cooperative_launch(list->back().kernel),
                    "kernel " + request.name);
      const std::string title = kernel_title(graph_, request);
      for (ScheduledKernel& s : *list) give_object(s, title, request.name);
      out_.kernels.push_back({std::move(*list), {}});
    }
    for (const GeneratedKernel& k : out_.kernels)
      for (const ScheduledKernel& s : k.scheduled)
        if (MadeObject& m = made_of(s); !m.kernel) m.kernel = &s.kernel;
    return {};
  }

  // The kernels of one request; where a schedule fails, those of the next one.
  Result<std::vector<ScheduledKernel>> schedule(const KernelRequest& request, std::vector<Schedule>& without) {
    while (true) {
      Schedule at;
      auto made = guarded({"scheduling kernel", request.name}, [&] {
        auto list = lower(request, without, at);
        if (list.ok()) // a launch of programs that wait, which nobody knows of, never ends where not all are resident
          for (const ScheduledKernel& k : *list)
            TESSERA_CHECK(tile::needs_cooperative_launch(k.kernel) == !k.cooperative_blocks.is_const(0),
                          print(k.schedule));
        return list;
      });
      if (made.ok() || !request.nest || !may_detour(made.error())) return made;
      if (without.size() + 1 >= kMaxSchedules || std::find(without.begin(), without.end(), at) != without.end())
        return made;
      without.push_back(at);
      next_schedule(request, at, made.error());
    }
  }

  // `at`: takes the schedule that is lowered.
  Result<std::vector<ScheduledKernel>> lower(const KernelRequest& request, std::span<const Schedule> without,
                                             Schedule& at) const {
    failure_point(request.nest ? "schedule" : "own");
    if (request.attention) return attention_by_blocks(graph_, *request.attention, "kernel");
    if (!request.nest) return lower_own_kernel(graph_, graph_.node(request.node), device_, "kernel");
    LoweringOptions lowering;
    lowering.exact_division = options_.strict_rounding;
    lowering.records = options_.records;
    lowering.without = without;
    lowering.lowering = &at;
    auto list = lower_for_gpu(graph_, *request.nest, device_, "kernel", lowering, schedules_for(request, options_));
    failure_point("lower");
    if (list.ok() && list->empty() && !without.empty())
      return Diagnostic(ErrorCode::CodegenError, "no schedule is left");
    return list;
  }

  void next_schedule(const KernelRequest& request, const Schedule& failed, const Diagnostic& error) {
    contain(out_.contained, options_, "kernel " + request.name, error,
            "it has the next schedule after '" + print(failed) + "'", print(graph_, *request.nest));
  }

  // Names the kernel by its text; kernels of one text have one object.
  void give_object(ScheduledKernel& s, const std::string& title, const std::string& user) {
    if (const int64_t least = least_blocks(s, device_); least > 1) s.kernel.config["least_blocks"] = least;
    const Hash128 key = hash128(title + "\n" + anonymous_text(s.kernel), compiler_.seed());
    s.kernel.name = s.symbol = "tessera_" + title + "_" + key.hex().substr(0, kSymbolDigits);
    auto [it, fresh] = by_text_.try_emplace(key, static_cast<int>(made_.size()));
    if (fresh) {
      made_.emplace_back();
      made_.back().key = key;
      made_.back().first_user = user;
    }
    s.object = it->second;
  }

  MadeObject& made_of(const ScheduledKernel& s) { return made_[static_cast<size_t>(s.object)]; }

  // Each distinct text. Requests whose code fails are given other schedules.
  Status compile_all() {
    compile_each(made_.size(), options_, [&](size_t i) {
      MadeObject& m = made_[i];
      if (auto before = earlier_.find(m.key); before != earlier_.end()) {
        const tile::Kernel* kernel = m.kernel;
        m = before->second;
        m.kernel = kernel;
        return;
      }
      compiler_.make(m);
    });
    bool any = false;
    for (const MadeObject& m : made_) {
      if (m.error && !may_detour(*m.error)) return *m.error;
      any = any || m.error;
    }
    if (!any) return {};
    for (const MadeObject& m : made_)
      if (!m.error) earlier_[m.key] = m;
    without_code();
    return {};
  }

  // Gives requests whose code failed another schedule, as long as there are some.
  void without_code() {
    std::set<const MadeObject*> reported; // kernels of one text fail together
    for (size_t i = 0; i < out_.kernels.size(); ++i)
      for (const ScheduledKernel& s : out_.kernels[i].scheduled) {
        const MadeObject& m = made_of(s);
        if (!m.error) continue;
        std::vector<Schedule>& without = without_[i];
        without.push_back(s.schedule);
        if (requests_[i].nest == nullptr || without.size() >= kMaxSchedules) {
          out_.failed.push_back({i, *m.error});
          break;
        }
        again_ = true;
        if (reported.insert(&m).second) next_schedule(requests_[i], s.schedule, *m.error);
      }
  }

  // The object of a text, and the warnings of it.
  void take(const MadeObject& m) {
    constexpr int kFew = 16; // bytes per thread that have no visible cost
    (m.cached ? out_.hits : out_.misses)++;
    if (m.not_assembled)
      out_.warnings.push_back(m.not_assembled->message + "; the driver assembles kernel " + m.first_user +
                              " when it is loaded");
    if (m.object.spill_bytes > kFew)
      out_.warnings.push_back("kernel " + m.first_user + " spills " + std::to_string(m.object.spill_bytes) +
                              " bytes of registers to memory (" + std::to_string(m.object.registers) + " registers, " +
                              std::to_string(m.object.threads) + " threads)");
    out_.objects.push_back(cuda::encode(m.object));
  }

  // Launches and the report of a request's kernels, from their objects.
  void finish(const KernelRequest& request, GeneratedKernel& generated) {
    KernelReport& report = generated.report;
    const ScheduledKernel& last = generated.general();
    report.name = request.name;
    report.schedule = last.schedule;
    report.why = last.why;
    report.predicted = last.predicted;
    report.extents = last.extents;
    report.from_cache = true;
    for (ScheduledKernel& s : generated.scheduled) {
      const MadeObject& m = made_of(s);
      s.threads = m.object.threads;
      s.cluster = m.object.cluster > 1 ? m.object.cluster : 0;
      s.shared_bytes = m.object.shared_bytes;
      s.dependent_launch = m.object.dependent_launch;
      s.tensor_maps = launch_maps(m.object.tensor_maps, s);
      report.registers = std::max(report.registers, m.object.registers);
      report.spill_bytes = std::max(report.spill_bytes, m.object.spill_bytes);
      report.from_cache = report.from_cache && m.cached;
      report.compile_ms += m.ms;
      if (&s != &last)
        report.alternatives.push_back({when(s), s.schedule, s.why, s.predicted, m.object.registers, s.extents});
      if (!s.measured.empty()) report.tuned.push_back(s.measured);
    }
    add_texts(generated);
    check_pinned(graph_, request, device_, report);
  }

  void add_texts(GeneratedKernel& generated) {
    const bool dumped = dump_enabled(), kept = options_.keep_tiles || options_.keep_texts;
    if (!dumped && !kept && !log_enabled(LogChannel::OutputCode)) return;
    KernelReport& report = generated.report;
    std::string tiles, llvm, ptx;
    for (const ScheduledKernel& s : generated.scheduled) {
      const MadeObject& m = made_of(s);
      const std::string head = heading(s, m.object);
      tiles += head + tile::print(s.kernel);
      llvm += m.llvm_ir;
      ptx += head + m.object.ptx;
    }
    TESSERA_LOGF(LogChannel::OutputCode, report.name + "\n" + tiles);
    if (dumped) {
      write_dump(report.name + ".tile", tiles);
      write_dump(report.name + ".ll", llvm);
      write_dump(report.name + ".ptx", ptx);
    }
    if (kept) report.tile_text = std::move(tiles);
    if (!options_.keep_texts) return;
    report.llvm_text = std::move(llvm);
    report.ptx_text = std::move(ptx);
  }

  const Graph& graph_;
  std::span<const KernelRequest> requests_;
  const Target& device_;
  const CompileOptions& options_;
  const ObjectCompiler compiler_;
  DeviceCode out_;
  std::vector<MadeObject> made_;                    // one for each object
  std::map<Hash128, int> by_text_;                  // index into made_
  std::map<Hash128, MadeObject> earlier_;           // by attempts before this one, without errors
  std::map<size_t, std::vector<Schedule>> without_; // by request: schedules that gave no code
  bool again_ = false;                              // a request has another schedule now
};

} // namespace

const cuda::Assembler* GpuKernelOptions::assembler_of(const cuda::CodeObject& object) const {
  const bool divides_registers = object.ptx.find("setmaxnreg") != std::string::npos;
  if (!divides_registers || (assembler && assembler->kind() == cuda::Assembler::Kind::Ptxas)) return assembler.get();
  return whole_programs();
}

Result<DeviceCode> compile_gpu_kernels(const Graph& graph, std::span<const KernelRequest> requests,
                                       const Target& device, const GpuTarget& target, Cache& cache,
                                       const CompileOptions& options, const GpuKernelOptions& gpu) {
  return GpuKernels(graph, requests, device, target, cache, options, gpu).run();
}

} // namespace tessera
