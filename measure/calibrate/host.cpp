// Measures a host's figures: tile kernels for vector code, plain code for dependent loads and the clock.
#include "codegen/target/host.h"
#include "base/stopwatch.h"
#include "codegen/llvm/host_compiler.h"
#include "measure/calibrate/calibrate.h"
#include "measure/calibrate/figures.h"
#include "measure/calibrate/host_kernels.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace tessera {
namespace {

constexpr int kRepeats = 7;        // repetitions of a measurement; the least time is used
constexpr double kLoopUs = 5000;   // least duration of a loop
constexpr double kWarmUs = 200000; // work before the first measurement, so that clocks rise
constexpr int64_t kLargeBytes = int64_t{256} << 20;

double us_of(const std::function<void()>& work) {
  const Stopwatch watch;
  work();
  return watch.us();
}

double least_us(const std::function<void()>& work) {
  double best = us_of(work);
  for (int i = 1; i < kRepeats; ++i) best = std::min(best, us_of(work));
  return best;
}

// Time of one iteration of a loop, of so many iterations that code around the loop is negligible.
double round_us(const std::function<void(int64_t rounds)>& loop) {
  int64_t rounds = 16;
  while (us_of([&] { loop(rounds); }) < kLoopUs) rounds *= 2;
  return least_us([&] { loop(rounds); }) / static_cast<double>(rounds);
}

// Machine code of a kernel with two or three buffers and two sizes.
class HostKernel {
public:
  static Result<HostKernel> create(const HostTarget& host, std::string_view text,
                                   const std::vector<std::pair<std::string, std::string>>& names = {}) {
    std::string source(text);
    auto replace = [&](const std::string& from, const std::string& to) {
      for (size_t at = 0; (at = source.find(from, at)) != std::string::npos; at += to.size())
        source.replace(at, from.size(), to);
    };
    for (const auto& [from, to] : names) replace(from, to);
    replace("LANES", std::to_string(lanes(host)));
    TESSERA_ASSIGN(tile::Kernel kernel, tile::parse(source, "calibration"));
    TESSERA_TRY(tile::verify(kernel));
    TESSERA_ASSIGN(CompiledObject object, compile_host_kernel(kernel, host));
    HostKernel out;
    const std::vector<CompiledObject> objects{std::move(object)};
    TESSERA_ASSIGN(out.module_, link_host_objects(objects));
    out.function_ = out.module_->find(kernel.name);
    return out;
  }
  static int64_t lanes(const HostTarget& host) { return 8 * host.vector_bytes / 4; }

  void run(std::initializer_list<void*> buffers, int64_t first, int64_t second) const {
    const int64_t sizes[] = {first, second};
    IndexReport report;
    function_(buffers.begin(), sizes, 0, 1, nullptr, &report);
  }

private:
  std::shared_ptr<const HostCode> module_;
  HostKernelFn function_ = nullptr;
};

class HostCalibration {
public:
  HostCalibration(ThreadPool& pool, HostTarget host, Figures& figures)
      : pool_(pool), host_(std::move(host)), f_(figures), t_(figures.target()) {}

  Status run() {
    TESSERA_ASSIGN(x_, Tensor::create(DType::F32, {kLargeBytes / 4}));
    TESSERA_ASSIGN(y_, Tensor::create(DType::F32, {kLargeBytes / 4}));
    std::memset(x_.mutable_data(), 0, static_cast<size_t>(kLargeBytes));
    std::memset(y_.mutable_data(), 0, static_cast<size_t>(kLargeBytes));
    TESSERA_TRY(structure());
    f_.section("clock and arithmetic");
    TESSERA_TRY(clock());
    TESSERA_TRY(arithmetic());
    f_.section("bandwidths");
    TESSERA_TRY(bandwidths());
    f_.section("latencies");
    TESSERA_TRY(latencies());
    return f_.set("launch_us", round_us([&](int64_t rounds) {
                    for (int64_t i = 0; i < rounds; ++i)
                      pool_.parallel_for(pool_.threads(), 1, [](int64_t, int64_t, int) {});
                  }));
  }

private:
  // Figures that the system reports.
  Status structure() {
    TESSERA_TRY(f_.set("cores", pool_.threads()));
    Target here = t_;
    set_host_caches(here);
    for (const char* field : {"l1_bytes", "l2_bytes", "l3_bytes", "line_bytes"}) TESSERA_TRY(f_.set_from(here, field));
    return {};
  }

  // Dependent additions take one cycle each.
  Status clock() {
    auto add = [](int64_t rounds) {
      constexpr int kAdds = 16;
      uint64_t sum = 0;
      for (int64_t i = 0; i < rounds; ++i)
        for (int k = 0; k < kAdds; ++k) __asm__ volatile("add $1, %0" : "+r"(sum));
    };
    constexpr double kAdds = 16;
    for (double warm = 0; warm < kWarmUs;) warm += us_of([&] { add(1 << 20); });
    return f_.set("clock_mhz", kAdds / round_us(add));
  }

  Status arithmetic() {
    struct {
      const char *field, *type, *body;
      double results; // results per element and iteration
    } const classes[] = {
        {"fma_per_cycle", "f32", "%s = fma(%a, %c, %d) : tile<[LANES], f32>", 1},
        {"integer_per_cycle", "i32",
         "%t = add(%a, %c) : tile<[LANES], i32>\n%u = xor(%t, %d) : tile<[LANES], i32>\n"
         "%v = add(%u, %d) : tile<[LANES], i32>\n%s = xor(%v, %c) : tile<[LANES], i32>",
         4},
        {"special_per_cycle", "f32", "%s = div(%c, %a) : tile<[LANES], f32>", 1},
        {"conversion_per_cycle", "f32", "%h = cast(%a) : tile<[LANES], f16>\n%s = cast(%h) : tile<[LANES], f32>", 2},
    };
    const auto lanes = static_cast<double>(HostKernel::lanes(host_));
    for (int64_t i = 0; i < HostKernel::lanes(host_); ++i) x_.set_f64(i, 1.5);
    for (const auto& c : classes) {
      TESSERA_ASSIGN(HostKernel kernel,
                     HostKernel::create(host_, calibration::kRate, {{"BODY", c.body}, {"TYPE", c.type}}));
      const double us = round_us([&](int64_t rounds) {
        kernel.run({x_.mutable_data(), y_.mutable_data()}, rounds, 0);
      });
      TESSERA_TRY(f_.set(c.field, lanes * c.results / (us * t_.clock_mhz)));
    }
    // Offsets across half of the L1 cache.
    const int64_t elements = std::max<int64_t>(1024, t_.l1_bytes / 16);
    TESSERA_ASSIGN(Tensor at, Tensor::create(DType::I32, {elements}));
    for (int64_t i = 0; i < elements; ++i) at.set_f64(i, static_cast<double>(i * 811 % elements));
    TESSERA_ASSIGN(HostKernel gather, HostKernel::create(host_, calibration::kGather));
    const double us = round_us([&](int64_t rounds) {
      gather.run({x_.mutable_data(), y_.mutable_data(), at.mutable_data()}, rounds, elements);
    });
    return f_.set("gather_per_cycle", static_cast<double>(elements) / (us * t_.clock_mhz));
  }

  Status bandwidths() {
    TESSERA_ASSIGN(HostKernel read, HostKernel::create(host_, calibration::kRead));
    auto rate = [&](int64_t bytes) {
      const int64_t elements = bytes / 4 / 4096 * 4096;
      const double us = round_us([&](int64_t rounds) {
        read.run({x_.mutable_data(), y_.mutable_data()}, rounds, elements);
      });
      return 4 * static_cast<double>(elements) / us;
    };
    TESSERA_TRY(f_.set("l1_bytes_per_us", rate(t_.l1_bytes / 2)));
    TESSERA_TRY(f_.set("load_store_per_cycle", t_.l1_bytes_per_us / 4 / t_.clock_mhz));
    TESSERA_TRY(f_.set("l2_bytes_per_us", rate(t_.l2_bytes / 2)));
    TESSERA_TRY(f_.set("l3_bytes_per_us", rate(std::min(kLargeBytes, std::max(t_.l3_bytes / 4, 2 * t_.l2_bytes)))));
    TESSERA_ASSIGN(HostKernel copy, HostKernel::create(host_, calibration::kCopy));
    const int64_t all = kLargeBytes / 4, piece = int64_t{64} << 10; // elements
    const double moved = 2.0 * static_cast<double>(kLargeBytes);
    const double alone = least_us([&] { copy.run({x_.mutable_data(), y_.mutable_data()}, 0, all); });
    TESSERA_TRY(f_.set("core_memory_bytes_per_us", moved / alone));
    void* const x = x_.mutable_data();
    void* const y = y_.mutable_data();
    const double together = least_us([&] {
      pool_.parallel_for(all / piece, 1, [&](int64_t begin, int64_t end, int) {
        copy.run({x, y}, begin * piece, end * piece);
      });
    });
    return f_.set("memory_bytes_per_us", moved / std::min(alone, together));
  }

  // Lines of `bytes` of memory in random order, which no prefetcher predicts, each with the address of the next.
  double chase_us(int64_t bytes) {
    const auto line = static_cast<size_t>(t_.line_bytes), lines = static_cast<size_t>(bytes) / line;
    auto* const memory = static_cast<std::byte*>(x_.mutable_data());
    std::vector<uint32_t> order(lines);
    std::iota(order.begin(), order.end(), 0);
    uint64_t random = 0x9e3779b97f4a7c15;
    for (size_t i = lines - 1; i > 0; --i) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      std::swap(order[i], order[(random >> 33) % i]); // one cycle through all of them (Sattolo)
    }
    for (size_t i = 0; i < lines; ++i) {
      const std::byte* next = memory + order[i] * line;
      std::memcpy(memory + i * line, &next, sizeof next);
    }
    const std::byte* at = memory;
    return round_us([&](int64_t rounds) {
      for (int64_t i = 0; i < rounds; ++i) {
        std::memcpy(&at, at, sizeof at);
        __asm__ volatile("" : "+r"(at));
      }
    });
  }

  Status latencies() {
    TESSERA_TRY(f_.set("l1_latency_us", chase_us(t_.l1_bytes / 2)));
    TESSERA_TRY(f_.set("l2_latency_us", chase_us(t_.l2_bytes / 2)));
    TESSERA_TRY(
        f_.set("l3_latency_us", chase_us(std::min(kLargeBytes / 2, std::max(t_.l3_bytes / 4, 2 * t_.l2_bytes)))));
    return f_.set("memory_latency_us", chase_us(kLargeBytes));
  }

  ThreadPool& pool_;
  const HostTarget host_;
  Figures& f_;
  const Target& t_;
  Tensor x_, y_;
};

} // namespace

Result<Target> calibrate_host(ThreadPool& pool, const CalibrateOptions& options) {
  HostTarget host = HostTarget::detect();
  DeviceFacts here;
  here.vector_bytes = host.vector_bytes;
  TESSERA_ASSIGN(ChosenTarget base, choose_target("", here));
  Figures figures(std::move(base.target), options);
  TESSERA_TRY(HostCalibration(pool, std::move(host), figures).run());
  return figures.finish();
}

} // namespace tessera
