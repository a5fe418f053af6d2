// Measures a GPU's figures. Times are differences between a loop of m and one of 2 m iterations, so that they exclude
// launches and code before the loop.
#include "base/stopwatch.h"
#include "measure/calibrate/calibrate.h"
#include "measure/calibrate/figures.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/stream.h"
#include <algorithm>
#include <map>

namespace tessera {
namespace {

constexpr int kRepeats = 7;      // repetitions of a measurement; the least time is used
constexpr double kLoopUs = 1000; // least duration of a loop
constexpr int64_t kMaxRounds = 1 << 22;

struct Launch {
  const char* kernel = "";
  int64_t grid = 1, threads = 1;
  CUdeviceptr a = 0, b = 0;
  uint64_t rounds = 1, n = 0;
  bool cooperative = false; // cooperative blocks with a counter at address a
};

// Time of a kernel: microseconds between events, and cycles if the kernel counts them.
struct Took {
  double us = 0, cycles = 0;
};

class Bench {
public:
  static Result<std::unique_ptr<Bench>> create(cuda::Context& context) {
    std::unique_ptr<Bench> b(new Bench(context));
    auto shared = context.shared_from_this();
    TESSERA_ASSIGN(b->stream_, cuda::Stream::create(shared));
    TESSERA_ASSIGN(b->before_, cuda::Event::create(shared, true));
    TESSERA_ASSIGN(b->after_, cuda::Event::create(shared, true));
    b->staging_ = std::make_unique<cuda::Staging>(shared);
    const std::string ptx = calibration_ptx();
    TESSERA_CUDA_TRY(context, "loading the kernels of the calibration", cuModuleLoadDataEx, &b->module_, ptx.c_str(), 0,
                     nullptr, nullptr);
    size_t free = 0, total = 0;
    TESSERA_CUDA_TRY(context, "", cuMemGetInfo, &free, &total);
    b->bytes_ = int64_t{256} << 20;
    while (b->bytes_ > static_cast<int64_t>(free) / 4) b->bytes_ /= 2;
    for (CUdeviceptr* buffer : {&b->x, &b->y}) {
      TESSERA_ASSIGN(*buffer, context.allocate(b->bytes_, b->stream_->handle(), "a buffer of the calibration"));
    }
    return b;
  }
  ~Bench() {
    for (CUdeviceptr buffer : {x, y})
      if (buffer != 0) context_.release(buffer, bytes_, stream_->handle());
    if (module_ != nullptr) context_.driver().cuModuleUnload(module_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  CUdeviceptr x = 0, y = 0; // of bytes() each
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] CUstream stream() const { return stream_->handle(); }

  Status put(Launch l) {
    auto& function = functions_[l.kernel];
    if (function == nullptr) TESSERA_CUDA_TRY(context_, l.kernel, cuModuleGetFunction, &function, module_, l.kernel);
    void* params[] = {&l.a, &l.b, &l.rounds, &l.n};
    const auto grid = static_cast<unsigned>(l.grid), threads = static_cast<unsigned>(l.threads);
    if (l.cooperative)
      TESSERA_CUDA_TRY(context_, l.kernel, cuLaunchCooperativeKernel, function, grid, 1, 1, threads, 1, 1, 0, stream(),
                       params);
    else
      TESSERA_CUDA_TRY(context_, l.kernel, cuLaunchKernel, function, grid, 1, 1, threads, 1, 1, 0, stream(), params,
                       nullptr);
    return {};
  }
  // Overwrites the caches.
  Status flush() {
    for (int i = 0; i < 2; ++i)
      TESSERA_CUDA_TRY(context_, "", cuMemsetD8Async, y, 0, static_cast<size_t>(bytes_), stream());
    return {};
  }
  Result<double> time(const std::function<Status()>& work) {
    TESSERA_TRY(before_->record(stream()));
    TESSERA_TRY(work());
    TESSERA_TRY(after_->record(stream()));
    TESSERA_TRY(after_->wait());
    TESSERA_ASSIGN(double ms, after_->ms_since(*before_));
    return ms * 1e3;
  }
  Result<Took> once(const Launch& l, bool counts_cycles) {
    if (l.cooperative) TESSERA_CUDA_TRY(context_, "", cuMemsetD8Async, l.a, 0, 4, stream());
    Took took;
    TESSERA_ASSIGN(took.us, time([&] { return put(l); }));
    if (counts_cycles) {
      uint64_t cycles = 0;
      TESSERA_TRY(staging_->download(&cycles, l.b, sizeof cycles, stream(), "copying cycles from the GPU"));
      TESSERA_TRY(staging_->wait());
      took.cycles = static_cast<double>(cycles);
    }
    return took;
  }
  Result<Took> least(const Launch& l, bool counts_cycles) {
    Took best{1e300, 1e300};
    for (int i = 0; i < kRepeats; ++i) {
      TESSERA_ASSIGN(Took t, once(l, counts_cycles));
      best = {std::min(best.us, t.us), std::min(best.cycles, t.cycles)};
    }
    return best;
  }
  // Time of one iteration of a kernel's loop, of at most `most` iterations.
  Result<Took> round(Launch l, bool counts_cycles = false, int64_t most = 2 * kMaxRounds) {
    for (l.rounds = 16; 8 * static_cast<int64_t>(l.rounds) <= most; l.rounds *= 4) {
      TESSERA_ASSIGN(Took t, once(l, false));
      if (t.us >= kLoopUs) break;
    }
    TESSERA_ASSIGN(Took one, least(l, counts_cycles));
    const auto rounds = static_cast<double>(l.rounds);
    l.rounds *= 2;
    TESSERA_ASSIGN(Took two, least(l, counts_cycles));
    return Took{(two.us - one.us) / rounds, (two.cycles - one.cycles) / rounds};
  }
  // Time that one more kernel adds to a graph of empty kernels.
  Result<double> graph_kernel_us() {
    constexpr int kFew = 64;
    TESSERA_ASSIGN(double few, graph_us(kFew));
    TESSERA_ASSIGN(double many, graph_us(2 * kFew));
    return (many - few) / kFew;
  }
  Result<double> host_launch_us() {
    constexpr int kLaunches = 64;
    double best = 1e300;
    for (int i = 0; i < kRepeats; ++i) {
      TESSERA_CUDA_TRY(context_, "", cuStreamSynchronize, stream());
      const Stopwatch watch;
      for (int k = 0; k < kLaunches; ++k) TESSERA_TRY(put({"empty"}));
      best = std::min(best, watch.us() / kLaunches);
    }
    TESSERA_CUDA_TRY(context_, "", cuStreamSynchronize, stream());
    return best;
  }

private:
  explicit Bench(cuda::Context& context) : context_(context) {}

  Result<double> graph_us(int kernels) {
    const cuda::Driver& driver = context_.driver();
    TESSERA_CUDA_TRY(context_, "", cuStreamBeginCapture, stream(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    Status put_all;
    for (int k = 0; k < kernels && put_all.ok(); ++k) put_all = put({"empty"});
    CUgraph graph = nullptr;
    TESSERA_CUDA_TRY(context_, "", cuStreamEndCapture, stream(), &graph);
    CUgraphExec exec = nullptr;
    const CUresult made = driver.cuGraphInstantiateWithFlags(&exec, graph, 0);
    driver.cuGraphDestroy(graph);
    TESSERA_TRY(std::move(put_all));
    if (made != CUDA_SUCCESS) return context_.error(made, "cuGraphInstantiateWithFlags");
    double best = 1e300;
    Status failed;
    for (int i = 0; i < kRepeats && failed.ok(); ++i) {
      auto us = time([&]() -> Status {
        TESSERA_CUDA_TRY(context_, "", cuGraphLaunch, exec, stream());
        return {};
      });
      if (us.ok())
        best = std::min(best, *us);
      else
        failed = us.error();
    }
    driver.cuGraphExecDestroy(exec);
    TESSERA_TRY(std::move(failed));
    return best;
  }

  cuda::Context& context_;
  std::unique_ptr<cuda::Stream> stream_;
  std::unique_ptr<cuda::Event> before_, after_;
  std::unique_ptr<cuda::Staging> staging_;
  CUmodule module_ = nullptr;
  std::map<std::string, CUfunction> functions_;
  int64_t bytes_ = 0;
};

class GpuCalibration {
public:
  GpuCalibration(cuda::Context& context, Bench& bench, Figures& figures)
      : context_(context), b_(bench), f_(figures), t_(figures.target()) {}

  Status run() {
    TESSERA_TRY(structure());
    f_.section("clock and arithmetic");
    TESSERA_TRY(arithmetic());
    f_.section("memory");
    TESSERA_TRY(memory());
    f_.section("caches and shared memory");
    TESSERA_TRY(caches());
    f_.section("latencies");
    TESSERA_TRY(latencies());
    f_.section("launches and barriers");
    return launches();
  }

private:
  // Figures that the driver reports.
  Status structure() {
    CUdevice device = 0;
    TESSERA_CUDA_TRY(context_, "", cuDeviceGet, &device, context_.properties().ordinal);
    struct {
      const char* field;
      CUdevice_attribute which;
    } const reported[] = {
        {"registers", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
        {"resident_threads", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
        {"resident_blocks", CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
        {"block_threads", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
        {"multiprocessor_shared_bytes", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
        {"reserved_shared_bytes", CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK},
        {"multiprocessors", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
        {"l2_bytes", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
        {"shared_bytes", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    };
    for (const auto& r : reported) {
      int value = 0;
      // A figure that the driver does not report is unchanged.
      if (context_.driver().cuDeviceGetAttribute(&value, r.which, device) == CUDA_SUCCESS)
        TESSERA_TRY(f_.set(r.field, value));
    }
    if (const double peak = context_.properties().memory_peak_bytes_per_us; peak > 0)
      TESSERA_TRY(f_.set("memory_peak_bytes_per_us", peak));
    return {};
  }

  // One block of 1024 threads on each multiprocessor.
  [[nodiscard]] Launch everywhere(const char* kernel) const {
    return {kernel, t_.multiprocessors, kThreads, b_.x, b_.y};
  }

  Status arithmetic() {
    // Clocks rise when there is work, for about half a second.
    for (int i = 0; i < 20; ++i) {
      TESSERA_ASSIGN([[maybe_unused]] Took warm, b_.round(everywhere("rate_fma")));
    }
    constexpr double kWarps = kThreads / 32.0;
    struct {
      const char *field, *kernel;
      double results; // results of a block per iteration (gpu_kernels.cpp)
    } const classes[] = {
        {"fma_per_cycle", "rate_fma", kThreads * 128.0},
        {"integer_per_cycle", "rate_integer", kThreads * 128.0},
        {"special_per_cycle", "rate_special", kThreads * 64.0},
        {"conversion_per_cycle", "rate_conversion", kThreads * 128.0},
        {"shuffle_per_cycle", "rate_shuffle", kThreads * 64.0},
        {"tensor_f16_per_cycle", "rate_tensor_f16", kWarps * 32 * 16 * 8 * 16},
        {"tensor_tf32_per_cycle", "rate_tensor_tf32", kWarps * 32 * 16 * 8 * 8},
        {"tensor_i8_per_cycle", "rate_tensor_i8", kWarps * 32 * 16 * 8 * 32},
    };
    for (const auto& c : classes) {
      TESSERA_ASSIGN(Took round, b_.round(everywhere(c.kernel), true));
      if (c.kernel == std::string_view("rate_fma")) TESSERA_TRY(f_.set("clock_mhz", round.cycles / round.us));
      TESSERA_TRY(f_.set(c.field, c.results / round.cycles));
    }
    TESSERA_ASSIGN(Took loads, b_.round(everywhere("load_shared")));
    return f_.set("load_store_per_cycle", kThreads * 8 / (loads.us * t_.clock_mhz));
  }

  // Copies with increasing loads in flight, until bandwidth stops growing.
  Status memory() {
    struct {
      int unroll, blocks; // loads in flight per thread; blocks per multiprocessor
    } const steps[] = {{1, 2}, {1, 4}, {1, 6}, {1, 8}, {2, 6}, {2, 8}, {2, 12}, {4, 8}, {4, 12}};
    constexpr int64_t kCopyThreads = 128;
    constexpr double kNothing = 0.03; // least relative gain of bandwidth
    std::vector<std::pair<int64_t, double>> measured;
    double best = 0;
    for (const auto& s : steps) {
      const std::string kernel = "copy_" + std::to_string(s.unroll);
      Launch l{kernel.c_str(), int64_t{s.blocks} * t_.multiprocessors, kCopyThreads, b_.x, b_.y};
      const int64_t round = l.grid * kCopyThreads * 16 * s.unroll; // bytes
      const int64_t half = b_.bytes() / round / 2;
      l.rounds = static_cast<uint64_t>(half);
      TESSERA_ASSIGN(Took one, b_.least(l, false));
      l.rounds *= 2;
      TESSERA_ASSIGN(Took two, b_.least(l, false));
      measured.emplace_back(int64_t{s.blocks} * kCopyThreads * 16 * s.unroll,
                            2.0 * static_cast<double>(half * round) / (two.us - one.us));
      best = std::max(best, measured.back().second);
    }
    if (best > t_.memory_peak_bytes_per_us) TESSERA_TRY(f_.set("memory_peak_bytes_per_us", best));
    TESSERA_TRY(f_.set("memory_bytes_per_us", best));
    TESSERA_ASSIGN(Took alone, b_.round({"copy_4", 1, kThreads, b_.x, b_.y}, false, b_.bytes() / (kThreads * 64)));
    TESSERA_TRY(f_.set("core_memory_bytes_per_us", 2.0 * kThreads * 64 / alone.us));
    for (const auto& [bytes, rate] : measured)
      if (rate >= (1 - kNothing) * best) return f_.set("saturating_bytes", static_cast<double>(bytes));
    return {};
  }

  Status caches() {
    constexpr int64_t kReadThreads = 512;
    Launch l{"read_l2", t_.multiprocessors * (t_.resident_threads / kReadThreads), kReadThreads, b_.x, b_.y};
    l.n = uint64_t{1} << 20;
    while (2 * l.n <= static_cast<uint64_t>(t_.l2_bytes) / 4) l.n *= 2;
    TESSERA_ASSIGN(Took round, b_.round(l));
    TESSERA_TRY(f_.set("l2_bytes_per_us", static_cast<double>(l.grid * kReadThreads * 64) / round.us));
    TESSERA_ASSIGN(round, b_.round(everywhere("read_shared")));
    return f_.set("shared_bytes_per_us", kThreads * 8.0 * 16 / round.us);
  }

  // A cyclic pointer chain of `count` addresses, `stride` bytes apart.
  Status link(int64_t count, int64_t stride) {
    Launch l{"link", (count + kThreads - 1) / kThreads, kThreads, b_.x, static_cast<CUdeviceptr>(stride)};
    l.n = static_cast<uint64_t>(count);
    return b_.put(l);
  }

  Status latencies() {
    constexpr int64_t kStride = 4096 + 128, kLines = 16384;
    const int64_t lines = std::min(kLines, b_.bytes() / kStride);
    double best = 1e300;
    for (int i = 0; i < 3; ++i) {
      TESSERA_TRY(link(lines, kStride));
      TESSERA_TRY(b_.flush());
      TESSERA_ASSIGN(Took took, b_.once({"chase_l2", 1, 1, b_.x, b_.y, static_cast<uint64_t>(lines)}, false));
      best = std::min(best, took.us);
    }
    TESSERA_TRY(f_.set("memory_latency_us", best / static_cast<double>(lines)));
    struct {
      const char *field, *kernel;
      int64_t lines;
    } const rings[] = {{"l2_latency_us", "chase_l2", 8192},
                       {"l1_latency_us", "chase_l1", 32},
                       {"shared_latency_us", "chase_shared", 32}};
    for (const auto& r : rings) {
      TESSERA_TRY(link(r.lines, 256));
      TESSERA_ASSIGN(Took round, b_.round({r.kernel, 1, 1, b_.x, b_.y}));
      TESSERA_TRY(f_.set(r.field, round.us));
    }
    return {};
  }

  Status launches() {
    TESSERA_ASSIGN(Took barrier, b_.round({"barrier", 1, 256, b_.x, b_.y}));
    TESSERA_TRY(f_.set("barrier_us", barrier.us));
    constexpr int kFewWarps = 4, kManyWarps = 32;
    TESSERA_ASSIGN(Took few, b_.round({"exchange", 1, 32 * kFewWarps, b_.x, b_.y}));
    TESSERA_ASSIGN(Took many, b_.round({"exchange", 1, 32 * kManyWarps, b_.x, b_.y}));
    TESSERA_TRY(f_.set("warp_exchange_us", (many.us - few.us) / (kManyWarps - kFewWarps)));
    if (context_.properties().cooperative_launch) {
      Launch l{"grid_barrier", t_.multiprocessors, 256, b_.x, b_.y};
      l.cooperative = true;
      TESSERA_ASSIGN(Took grid, b_.round(l));
      TESSERA_TRY(f_.set("grid_barrier_us", grid.us));
    }
    // A grid of empty blocks, and one of twice as many.
    constexpr int64_t kBlocks = 1 << 20;
    TESSERA_ASSIGN(Took one, b_.least({"empty", kBlocks, 128}, false));
    TESSERA_ASSIGN(Took two, b_.least({"empty", 2 * kBlocks, 128}, false));
    TESSERA_TRY(f_.set("block_us", (two.us - one.us) / kBlocks));
    std::vector<double> alone;
    for (int i = 0; i < 3 * kRepeats; ++i) {
      TESSERA_TRY(b_.flush()); // the host has enqueued everything before the GPU reaches the events
      TESSERA_ASSIGN(Took took, b_.once({"empty", t_.multiprocessors, 128}, false));
      alone.push_back(took.us);
    }
    std::nth_element(alone.begin(), alone.begin() + static_cast<std::ptrdiff_t>(alone.size() / 2), alone.end());
    TESSERA_TRY(f_.set("kernel_us", alone[alone.size() / 2]));
    TESSERA_ASSIGN(double launch, b_.graph_kernel_us());
    TESSERA_TRY(f_.set("launch_us", launch));
    TESSERA_ASSIGN(double host, b_.host_launch_us());
    return f_.set("host_launch_us", host);
  }

  static constexpr int kThreads = 1024;
  cuda::Context& context_;
  Bench& b_;
  Figures& f_;
  const Target& t_;
};

} // namespace

Result<Target> calibrate_gpu(cuda::Context& context, const CalibrateOptions& options) {
  cuda::Context::Current current(context);
  TESSERA_TRY(current.status());
  const auto& p = context.properties();
  DeviceFacts here;
  here.kind = Target::Kind::Cuda;
  here.gpu = p.name;
  here.arch = p.arch();
  here.multiprocessors = p.multiprocessors;
  here.shared_bytes = p.shared_bytes_per_block;
  here.l2_bytes = p.l2_bytes;
  here.memory_peak_bytes_per_us = p.memory_peak_bytes_per_us;
  TESSERA_ASSIGN(ChosenTarget base, choose_target("", here));
  base.target.gpu = p.name;
  base.target.arch = p.arch();
  Figures figures(std::move(base.target), options);
  TESSERA_ASSIGN(auto bench, Bench::create(context));
  TESSERA_TRY(GpuCalibration(context, *bench, figures).run());
  return figures.finish();
}

} // namespace tessera
