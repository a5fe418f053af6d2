#include "codegen/device/cuda/gpu_kernels.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "codegen/compilation/contain.h"
#include "codegen/llvm/host_compiler.h"
#include "codegen/schedule/lower/block_attention.h"
#include "codegen/schedule/own_kernels.h"
#include "codegen/schedule/tuned.h"
#include "runtime/cuda/code_object.h"
#include <algorithm>
#include <map>
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

// Compilation of one distinct text.
struct Made {
  const tile::Kernel* kernel = nullptr;
  std::string first_user; // a request's name, for errors and warnings
  cuda::CodeObject object;
  std::string llvm_ir;
  std::optional<Diagnostic> error, not_assembled;
  bool cached = false;
  double ms = 0;
};

struct Compiler {
  const GpuTarget& target;
  const GpuKernelOptions& gpu;
  std::string arch; // architecture of cubins
  Cache& cache;
  bool keep_ir;
  const std::function<bool()>& cancelled;
  int64_t registers, thread_registers; // of a multiprocessor; that a thread may have

  void make(const Hash128& key, Made& m) const {
    const Status done = guarded({"compiling kernel", m.first_user}, [&]() -> Status {
      make_guarded(key, m);
      return {};
    });
    if (!done.ok()) m.error = done.error();
  }

private:
  void make_guarded(const Hash128& key, Made& m) const {
    const Stopwatch watch;
    if (cancelled && cancelled()) {
      m.error = Diagnostic(ErrorCode::Cancelled, "the compile was given up");
      return;
    }
    if (!keep_ir && from_cache(key, m)) {
      m.cached = true;
    } else {
      compile(m);
      // A failed assembly is not cached.
      if (!m.error && !m.not_assembled) store(key, m);
    }
    m.ms = watch.ms();
  }

  void store(const Hash128& key, const Made& m) const {
    const std::vector<char> bytes = cuda::encode(m.object);
    cache.store(EntryKind::Kernel, key, kernel_origin(gpu_compiler_version(target), m.first_user),
                {bytes.data(), bytes.size()});
  }
  bool from_cache(const Hash128& key, Made& m) const {
    auto bytes = cache.find(EntryKind::Kernel, key);
    if (!bytes) return false;
    auto object = cuda::decode(*bytes);
    if (!object || object->symbol != m.kernel->name || object->cubin.empty() != !gpu.assembler) return false;
    m.object = std::move(*object);
    return true;
  }

  static int64_t number(const tile::Kernel& k, const char* name) {
    auto it = k.config.find(name);
    return it == k.config.end() ? 0 : it->second;
  }

  // Spills cost time, and so do missing resident blocks: 72 bytes of spills per thread cost as much as all blocks (37
  // kernels on an H200, docs/ptx.md). The least sum is taken, of few kernels, since assembling one takes long: with
  // divisions inline, because calls save registers, and with the most blocks that spill nothing, found by bisection.
  void compile(Made& m) const {
    constexpr double kBytes = 72;
    constexpr size_t kMaxAssembled = 256 << 10; // bytes of PTX of all further attempts
    compile(*m.kernel, m);
    if (m.object.spill_bytes <= 0) return;
    const int64_t all = std::max<int64_t>(1, number(*m.kernel, "min_blocks"));
    double least = m.object.spill_bytes / kBytes;
    auto gone = [&](int64_t blocks) { return static_cast<double>(all - blocks) / static_cast<double>(all); };
    // True if it spills nothing. Another text than `m` has is taken where its sum is less.
    auto attempt = [&](int64_t blocks, bool inlined) {
      tile::Kernel relaxed = *m.kernel;
      if (blocks < all) relaxed.config["min_blocks"] = blocks;
      if (inlined) relaxed.config["inline_division"] = 1;
      Made other;
      other.first_user = m.first_user;
      compile(relaxed, other, &m.object.ptx);
      if (other.error || other.not_assembled || other.object.spill_bytes < 0) return false;
      if (const double sum = gone(blocks) + other.object.spill_bytes / kBytes; sum < least) {
        least = sum;
        m.object = std::move(other.object);
        m.llvm_ir = std::move(other.llvm_ir);
        return m.object.spill_bytes == 0;
      }
      return other.object.spill_bytes == 0;
    };
    const double with_calls = least;
    size_t room = kMaxAssembled;
    auto left = [&] {
      const size_t bytes = m.object.ptx.size();
      return std::exchange(room, room - std::min(room, bytes)) >= bytes;
    };
    if (!left() || attempt(all, true)) return;
    const bool inlined = least < with_calls;
    // Fewer blocks than this leave a thread no more registers: it has all that it may have.
    const int64_t enough = registers / (int64_t{m.object.threads} * thread_registers);
    int64_t low = std::max<int64_t>({1, number(*m.kernel, "least_blocks"), enough}), high = all;
    while (low < high && gone(low) >= least) ++low;
    while (low < high && left()) {
      const int64_t blocks = (low + high) / 2;
      if (attempt(blocks, inlined))
        low = blocks + 1;
      else
        high = blocks;
    }
  }

  // Not assembled where the text is `known`.
  void compile(const tile::Kernel& kernel, Made& m, const std::string* known = nullptr) const {
    auto code = compile_gpu_kernel(kernel, target, keep_ir);
    if (!code) {
      m.error = Diagnostic(code.error()).note("while compiling kernel " + m.first_user);
      return;
    }
    auto& o = m.object;
    o.symbol = code->symbol;
    o.ptx_arch = target.arch;
    o.ptx = std::move(code->ptx);
    o.threads = code->threads;
    o.shared_bytes = code->shared_bytes;
    o.dependent_launch = code->dependent_launch;
    m.llvm_ir = std::move(code->llvm_ir);
    if (!gpu.assembler || (known && *known == o.ptx)) return;
    auto cubin = guarded({"assembling kernel", m.first_user}, [&] {
      failure_point("assemble");
      return gpu.assembler->assemble(o.ptx, arch);
    });
    if (!cubin) {
      m.not_assembled = cubin.error();
      return;
    }
    o.cubin_arch = arch;
    o.cubin = std::move(cubin->bytes);
    o.registers = cubin->registers;
    o.spill_bytes = cubin->spill_bytes;
    o.stack_bytes = cubin->stack_bytes;
    o.assembler = gpu.assembler->version();
  }
};

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

// The results of attempts to compile the same kernels.
struct Attempts {
  std::map<size_t, std::vector<Schedule>> without; // by request: schedules that gave no code
  std::map<Hash128, Made> made;                    // good ones
  std::vector<ContainedFailure> contained;
  bool again = false; // a request has another schedule now
};

// The kernels of one request; where a schedule fails, those of the next one.
Result<std::vector<ScheduledKernel>> schedule(const Graph& graph, const KernelRequest& request, const Target& device,
                                              const CompileOptions& options, std::vector<Schedule>& without,
                                              std::vector<ContainedFailure>& contained) {
  while (true) {
    Schedule at;
    auto lowered = [&]() -> Result<std::vector<ScheduledKernel>> {
      failure_point(request.nest ? "schedule" : "own");
      if (request.attention) return attention_by_blocks(graph, *request.attention, "kernel");
      if (!request.nest) return lower_own_kernel(graph, graph.node(request.node), device, "kernel");
      LoweringOptions lowering;
      lowering.exact_division = options.strict_rounding;
      lowering.records = options.records;
      lowering.without = without;
      lowering.lowering = &at;
      auto list = lower_for_gpu(graph, *request.nest, device, "kernel", lowering, schedules_for(request, options));
      failure_point("lower");
      if (list.ok() && list->empty() && !without.empty())
        return Diagnostic(ErrorCode::CodegenError, "no schedule is left");
      return list;
    };
    auto made = guarded({"scheduling kernel", request.name}, [&] {
      auto list = lowered();
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
    contain(contained, options, "kernel " + request.name, made.error(),
            "it has the next schedule after '" + print(at) + "'", print(graph, *request.nest));
  }
}

// Gives requests whose code failed another schedule, as long as there are some.
void without_code(const Graph& graph, std::span<const KernelRequest> requests, const CompileOptions& options,
                  const std::vector<Made>& made, DeviceCode& out, Attempts& attempts) {
  std::vector<bool> told(made.size()); // kernels of one text fail together
  for (size_t i = 0; i < out.kernels.size(); ++i)
    for (const ScheduledKernel& v : out.kernels[i].scheduled) {
      const auto object = static_cast<size_t>(v.object);
      if (!made[object].error) continue;
      std::vector<Schedule>& without = attempts.without[i];
      without.push_back(v.schedule);
      if (requests[i].nest == nullptr || without.size() >= kMaxSchedules) {
        out.failed.push_back({i, *made[object].error});
        break;
      }
      attempts.again = true;
      if (!told[object])
        contain(attempts.contained, options, "kernel " + requests[i].name, *made[object].error,
                "it has the next schedule after '" + print(v.schedule) + "'", print(graph, *requests[i].nest));
      told[object] = true;
    }
}

Result<DeviceCode> compile_all(const Graph& graph, std::span<const KernelRequest> requests, const Target& device,
                               const GpuTarget& target, Cache& cache, const CompileOptions& options,
                               const GpuKernelOptions& gpu, Attempts& attempts) {
  const Stopwatch watch;
  DeviceCode out;
  bool keep = options.keep_texts || dump_enabled();
  Compiler compiler{target,
                    gpu,
                    gpu.assemble_for.empty() ? target.arch : gpu.assemble_for,
                    cache,
                    keep,
                    options.cancelled,
                    device.registers,
                    device.thread_registers};
  std::string version = gpu_compiler_version(target) + " " + std::string(code_digest()) + "; " +
                        (gpu.assembler ? gpu.assembler->version() + " for " + compiler.arch : "PTX alone");
  uint64_t seed = hash128(version).lo;

  // Schedule everything; one object for each distinct text.
  std::map<Hash128, int> by_text;
  std::vector<Hash128> keys;
  std::vector<Made> made;
  out.kernels.reserve(requests.size());
  attempts.again = false;
  for (size_t i = 0; i < requests.size(); ++i) {
    const KernelRequest& request = requests[i];
    CheckContext context("kernel " + request.name);
    auto list = schedule(graph, request, device, options, attempts.without[i], attempts.contained);
    if (!list.ok()) {
      if (!may_detour(list.error())) return std::move(list).failure();
      out.failed.push_back({i, list.error()});
      continue;
    }
    std::vector<ScheduledKernel> scheduled = std::move(*list);
    TESSERA_CHECK(!scheduled.empty() && scheduled.back().conditions.empty() &&
                      !tile::needs_cooperative_launch(scheduled.back().kernel),
                  "kernel " + request.name);
    const std::string title = kernel_title(graph, request);
    for (ScheduledKernel& s : scheduled) {
      if (const int64_t least = least_blocks(s, device); least > 1) s.kernel.config["least_blocks"] = least;
      const Hash128 key = hash128(title + "\n" + anonymous_text(s.kernel), seed);
      s.kernel.name = s.symbol = "tessera_" + title + "_" + key.hex().substr(0, kSymbolDigits);
      auto [it, fresh] = by_text.try_emplace(key, static_cast<int>(keys.size()));
      if (fresh) {
        keys.push_back(key);
        made.push_back({});
        made.back().first_user = request.name;
      }
      s.object = it->second;
    }
    out.kernels.push_back({std::move(scheduled), {}});
  }
  if (!out.failed.empty()) return out;
  for (const GeneratedKernel& k : out.kernels)
    for (const ScheduledKernel& v : k.scheduled)
      if (auto& m = made[static_cast<size_t>(v.object)]; !m.kernel) m.kernel = &v.kernel;

  compile_each(made.size(), options, [&](size_t i) {
    if (auto before = attempts.made.find(keys[i]); before != attempts.made.end()) {
      const tile::Kernel* kernel = made[i].kernel;
      made[i] = before->second;
      made[i].kernel = kernel;
      return;
    }
    compiler.make(keys[i], made[i]);
  });

  bool any = false;
  for (const Made& m : made) {
    if (m.error && !may_detour(*m.error)) return *m.error;
    any = any || m.error;
  }
  if (any) {
    for (size_t i = 0; i < made.size(); ++i)
      if (!made[i].error) attempts.made[keys[i]] = made[i];
    without_code(graph, requests, options, made, out, attempts);
    return out;
  }
  for (auto& m : made) {
    (m.cached ? out.hits : out.misses)++;
    if (m.not_assembled) {
      auto text = m.not_assembled->message + "; the driver assembles kernel " + m.first_user + " when it is loaded";
      out.warnings.push_back(std::move(text));
    }
    constexpr int kFew = 16; // bytes per thread that have no visible cost
    if (m.object.spill_bytes > kFew)
      out.warnings.push_back("kernel " + m.first_user + " spills " + std::to_string(m.object.spill_bytes) +
                             " bytes of registers to memory (" + std::to_string(m.object.registers) + " registers, " +
                             std::to_string(m.object.threads) + " threads)");
    out.objects.push_back(cuda::encode(m.object));
  }
  for (size_t i = 0; i < out.kernels.size(); ++i) {
    KernelReport& report = out.kernels[i].report;
    report.name = requests[i].name;
    const ScheduledKernel& last = out.kernels[i].general();
    report.schedule = last.schedule;
    report.why = last.why;
    report.predicted = last.predicted;
    report.extents = last.extents;
    report.from_cache = true;
    std::string tiles, llvm, ptx;
    for (ScheduledKernel& v : out.kernels[i].scheduled) {
      const Made& m = made[static_cast<size_t>(v.object)];
      v.threads = m.object.threads;
      v.shared_bytes = m.object.shared_bytes;
      v.dependent_launch = m.object.dependent_launch;
      report.registers = std::max(report.registers, m.object.registers);
      report.spill_bytes = std::max(report.spill_bytes, m.object.spill_bytes);
      report.from_cache = report.from_cache && m.cached;
      report.compile_ms += m.ms;
      if (&v != &last)
        report.alternatives.push_back({when(v), v.schedule, v.why, v.predicted, m.object.registers, v.extents});
      if (const std::string& measured = v.measured; !measured.empty()) report.tuned.push_back(measured);
      if (!keep && !options.keep_tiles && !log_enabled(LogChannel::OutputCode)) continue;
      auto head = heading(v, m.object);
      tiles += head + tile::print(v.kernel);
      llvm += m.llvm_ir;
      ptx += head + m.object.ptx;
    }
    TESSERA_LOGF(LogChannel::OutputCode, requests[i].name + "\n" + tiles);
    if (dump_enabled()) {
      write_dump(requests[i].name + ".tile", tiles);
      write_dump(requests[i].name + ".ll", llvm);
      write_dump(requests[i].name + ".ptx", ptx);
    }
    if (options.keep_tiles || options.keep_texts) report.tile_text = std::move(tiles);
    if (options.keep_texts) {
      report.llvm_text = std::move(llvm);
      report.ptx_text = std::move(ptx);
    }
    check_pinned(graph, requests[i], device, report);
  }
  out.codegen_ms = watch.ms();
  return out;
}

} // namespace

Result<DeviceCode> compile_gpu_kernels(const Graph& graph, std::span<const KernelRequest> requests,
                                       const Target& device, const GpuTarget& target, Cache& cache,
                                       const CompileOptions& options, const GpuKernelOptions& gpu) {
  Attempts attempts;
  auto out = compile_all(graph, requests, device, target, cache, options, gpu, attempts);
  while (out.ok() && out->failed.empty() && attempts.again)
    out = compile_all(graph, requests, device, target, cache, options, gpu, attempts);
  if (out.ok()) out->contained = std::move(attempts.contained);
  return out;
}

} // namespace tessera
