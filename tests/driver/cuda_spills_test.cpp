// Every kernel that the models make, and those of a part of the operators' samples, for an NVIDIA GPU is assembled,
// without a GPU, and keeps its values in registers: all but a few bytes, where those cost less than a block less on a
// multiprocessor would (Compiler::compile), or what its warning says. Kernels of equal text are assembled once (the
// cache of objects sees to that). For compute capability 9.0 each waits for the kernels before it. Skipped where there is
// no assembler.
#include "base/hash.h"
#include "frontend/onnx/importer.h"
#include "harness.h"
#include "runtime/cuda/assembler.h"
#include "tests/base/share.h"
#include "tests/gpu/machine_code.h"
#include "tests/ops/samples_run.h"
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

namespace tessera::driver_test {
namespace {

class CudaSpills : public testing::Test {
protected:
  void SetUp() override {
    auto assembler = cuda::Assembler::find();
    if (!assembler.ok()) GTEST_SKIP() << "nothing assembles PTX here: " << assembler.error().message;
  }

  // Calls body(0) to body(count - 1) on all cores.
  static void each(size_t count, const std::function<void(size_t)>& body) {
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < std::max(1U, std::thread::hardware_concurrency()); ++t)
      threads.emplace_back([&] {
        for (size_t i = next++; i < count; i = next++) body(i);
      });
    for (auto& t : threads) t.join();
  }

  // Compiles the graph; a kernel that spills, or cannot be compiled, is a failure.
  void look(Graph graph, const std::string& what, bool waits_may_spill, const std::string& arch = "sm_90a") {
    CompileOptions o = options(folder_.path());
    o.device = "cuda";
    o.arch = arch;
    o.threads = 1;
    auto compiled = compile(std::move(graph), o);
    std::lock_guard lock(mutex_);
    if (!compiled.ok()) {
      ADD_FAILURE() << what << ": " << compiled.error().str();
      return;
    }
    const auto& report = compiled->report;
    assembled_ += report.cache_misses;
    for (const auto& bytes : compiled->executable->objects) {
      auto object = cuda::decode(bytes);
      ASSERT_TRUE(object.ok()) << what << ": " << object.error().str();
      EXPECT_EQ(object->dependent_launch, arch.starts_with("sm_90")) << what;
      EXPECT_EQ(test::wrong_wait(*object), "") << what << "\n" << object->ptx;
    }
    for (const auto& k : report.kernels) {
      ++kernels_;
      most_registers_ = std::max(most_registers_, k.registers);
      spilling_ += k.spill_bytes > 0;
      if (k.spill_bytes >= 0 && k.spill_bytes <= kFew) continue;
      const std::string text =
          what + ": kernel " + k.name +
          (k.spill_bytes < 0 ? " was not assembled"
                             : " spills " + std::to_string(k.spill_bytes) + " bytes at " + std::to_string(k.registers) +
                                   " registers (" + std::string(name(k.schedule.kind)) + ": " + k.why + ")");
      const auto& warnings = report.device_warnings;
      const bool told = std::any_of(warnings.begin(), warnings.end(), [&](const std::string& w) {
        return w.find("kernel " + k.name + " spills") != std::string::npos;
      });
      told_ += told;
      // Programs that wait are not made fewer at a time.
      if (!told || k.spill_bytes > kWaiting || !waits_may_spill) ADD_FAILURE() << text;
    }
  }

  ~CudaSpills() override {
    if (kernels_ > 0)
      std::printf(
          "[ spills   ] %d kernels, %d texts assembled, at most %d registers; %d spill, %d of them more than %d "
          "bytes\n",
          kernels_, assembled_, most_registers_, spilling_, told_, kFew);
  }

private:
  TemporaryFolder folder_;
  std::mutex mutex_;
  static constexpr int kFew = 64, kWaiting = 320; // bytes of a thread
  int kernels_ = 0, assembled_ = 0, most_registers_ = 0, spilling_ = 0, told_ = 0;
};

TEST_F(CudaSpills, HardlyAnyInTheModels) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(TESSERA_SOURCE_DIR) + "/models"))
    if (entry.path().extension() == ".onnx") files.push_back(entry.path());
  EXPECT_GE(files.size(), 15u);
  // The targets are an H200 and, by its architecture alone, an A100.
  const std::vector<std::string> archs = {"sm_90a", "sm_80"};
  std::sort(files.begin(), files.end());
  struct Job {
    std::string file, arch;
  };
  std::vector<Job> jobs;
  test::Share share;
  for (const std::string& file : files)
    for (const std::string& arch : archs) {
      const auto [architecture, element] = test::kinds_of_model(file);
      if (share.takes({architecture, element, arch})) jobs.push_back({file, arch});
    }
  each(jobs.size(), [&](size_t i) {
    const auto& [file, arch] = jobs[i];
    ImportOptions import;
    import.missing_weights = ImportOptions::MissingWeights::Empty;
    auto model = onnx::import_file(file, import);
    ASSERT_TRUE(model.ok()) << model.error().str();
    look(std::move(model->graph), std::filesystem::path(file).stem().string() + " for " + arch, false, arch);
  });
}

TEST_F(CudaSpills, FewInTheSamplesOfOperators) {
  struct Job {
    const OpDef* op;
    Sample sample;
    size_t number;
  };
  std::vector<Job> jobs;
  for (const auto& op : OpTable::get().all()) {
    if (!op->samples || op->side_effect || op->name == std::string_view("constant")) continue;
    auto samples = op->samples();
    for (size_t i = 0; i < samples.size(); ++i) jobs.push_back({op.get(), samples[i], i});
  }
  // All of them take minutes: one of sixteen, unless TESSERA_TEST_SPILLS=all. A new operator changes no other's.
  const char* wanted = std::getenv("TESSERA_TEST_SPILLS");
  if (!wanted || std::string(wanted) != "all")
    std::erase_if(jobs, [](const Job& job) { return hash128(job.op->name, job.number).lo % 16 != 5; });
  jobs = test::some(std::move(jobs));
  each(jobs.size(), [&](size_t i) {
    const auto& [op, sample, number] = jobs[i];
    for (const auto& t : sample.operands)
      if (t.defined() && t.dtype() == DType::String) return;
    // Static and symbolic sizes by turns; where one symbol for equal sizes contradicts the operator, static ones.
    auto sizes = number % 2 ? test::Sizes::Static : test::Sizes::Symbolic;
    auto g = test::build(*op, sample, sizes);
    if (!g.ok() && sizes == test::Sizes::Symbolic) g = test::build(*op, sample, test::Sizes::Static);
    if (!g.ok()) return; // the record's own tests report it
    const auto& results = g->get().results;
    for (size_t r = 0; r < results.size(); ++r)
      if (results[r].valid()) g->graph.add_output("y" + std::to_string(r), results[r]);
    look(std::move(g->graph), std::string(op->name) + ", " + test::describe(sample, number), true);
  });
}

} // namespace
} // namespace tessera::driver_test
