// Choices of cuBLASLt and cuDNN: shared by sizes, and kept for later processes.
#include "runtime/cuda/library_choices.h"
#include "base/temporary_folder.h"
#include "tests/cuda/fake_cublaslt.h"
#include "tests/cuda/fake_cudnn.h"
#include "tests/cuda/library_product.h"
#include "tests/runtime/build_executable.h"
#include <filesystem>
#include <fstream>
#include <random>

namespace tessera::cuda {
namespace {
using namespace test;
namespace fs = std::filesystem;

class KeptIn : public testing::Test {
protected:
  // That of a process.
  [[nodiscard]] std::shared_ptr<Cache> cache() const { return std::make_shared<Cache>(folder_.path(), true); }
  [[nodiscard]] std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    if (fs::exists(folder_.path() + "/objects"))
      for (const auto& e : fs::recursive_directory_iterator(folder_.path() + "/objects"))
        if (e.is_regular_file()) out.push_back(e.path());
    return out;
  }
  TemporaryFolder folder_ = TemporaryFolder::create("tessera-choices").value();
};

// ---- cuBLASLt

using CublasLtChoices = KeptIn;

// The algorithm of [rows, 40] times [40, 24]; in each process a Machine.
uint64_t product(fake_cublaslt::Machine& machine, int64_t rows, bool varies = true) {
  auto p = dense_product(DType::F16, {}, rows, 24, 40);
  p.varies = varies;
  check(*machine.gpu, p, "rows " + std::to_string(rows));
  return machine.state.algorithms.back();
}

TEST_F(CublasLtChoices, ALaterProcessQueriesNoHeuristics) {
  std::vector<uint64_t> chosen;
  {
    fake_cublaslt::Machine machine(cache());
    for (int64_t rows : {97, 104, 30, 98, 7}) chosen.push_back(product(machine, rows));
    chosen.push_back(product(machine, 33, false));
    EXPECT_EQ(machine.state.heuristics, 4) << "104, 30, 7 of the grid, and 33";
  }
  EXPECT_EQ(files().size(), 1u);
  fake_cublaslt::Machine machine(cache());
  machine.state.next_algorithm = 1000;
  std::vector<uint64_t> again;
  for (int64_t rows : {97, 104, 30, 98, 7}) again.push_back(product(machine, rows));
  again.push_back(product(machine, 33, false));
  EXPECT_EQ(again, chosen);
  EXPECT_EQ(machine.state.heuristics, 0);
  EXPECT_GT(machine.state.checks, 0);
}

TEST_F(CublasLtChoices, ThatThereIsNoAlgorithmIsKept) {
  for (int process = 0; process < 2; ++process) {
    fake_cublaslt::Machine machine(cache());
    machine.state.has_epilogues = false;
    auto p = dense_product(DType::F32, {}, 4, 8, 5);
    add_epilogue(p, true, false, LibraryEpilogue::Activation::Relu);
    p.can_finish = true;
    EXPECT_FALSE(check(*machine.gpu, p, "left to the kernel").fused);
    EXPECT_EQ(machine.state.heuristics, process == 0 ? 2 : 0);
  }
}

TEST_F(CublasLtChoices, AnAlgorithmThatIsNotTakenAnyMoreIsReplaced) {
  uint64_t first = 0;
  {
    fake_cublaslt::Machine machine(cache());
    first = product(machine, 97);
  }
  for (int process = 0; process < 2; ++process) {
    fake_cublaslt::Machine machine(cache());
    machine.state.refused = {first};
    machine.state.next_algorithm = 1000;
    EXPECT_EQ(product(machine, 97), 1000u);
    EXPECT_EQ(machine.state.heuristics, process == 0 ? 1 : 0);
  }
}

TEST_F(CublasLtChoices, OtherVersionsAndDamagedEntriesAreQueriedAnew) {
  {
    fake_cublaslt::Machine machine(cache());
    product(machine, 97);
  }
  {
    fake_cublaslt::Machine machine(cache(), 130100);
    product(machine, 97);
    EXPECT_EQ(machine.state.heuristics, 1);
  }
  EXPECT_EQ(files().size(), 2u) << "one for each version";
  for (const auto& file : files()) std::ofstream(file, std::ios::binary) << "damaged";
  for (int process = 0; process < 2; ++process) {
    fake_cublaslt::Machine machine(cache());
    product(machine, 97);
    EXPECT_EQ(machine.state.heuristics, process == 0 ? 1 : 0);
  }
}

TEST_F(CublasLtChoices, WithoutAFolderTheyAreKeptInMemory) {
  std::ofstream(folder_.path() + "/file") << "no folder";
  for (const auto& cache : {std::shared_ptr<Cache>(), std::make_shared<Cache>(folder_.path(), false),
                            std::make_shared<Cache>(folder_.path() + "/file", true)}) {
    fake_cublaslt::Machine machine(cache);
    EXPECT_EQ(product(machine, 97), product(machine, 98));
    EXPECT_EQ(machine.state.heuristics, 1);
  }
  EXPECT_TRUE(files().empty());
}

// Whatever the order of the sizes and whatever the library takes, a folder leads to the same algorithms.
TEST_F(CublasLtChoices, TheSameFolderLeadsToTheSameAlgorithms) {
  std::mt19937 random(5);
  std::vector<int64_t> rows;
  for (int i = 0; i < 60; ++i) rows.push_back(1 + static_cast<int64_t>(random() % 150));
  std::map<int64_t, uint64_t> chosen;
  for (int process = 0; process < 3; ++process) {
    fake_cublaslt::Machine machine(cache());
    machine.state.next_algorithm = 1000 * static_cast<uint64_t>(process) + 1;
    machine.state.alone = {77, 78, 100};
    for (int64_t r : rows) {
      const uint64_t algorithm = product(machine, r);
      EXPECT_EQ(chosen.try_emplace(r, algorithm).first->second, algorithm) << r << " rows, process " << process;
    }
    EXPECT_EQ(machine.state.heuristics == 0, process > 0);
    std::shuffle(rows.begin(), rows.end(), random);
  }
}

TEST_F(CublasLtChoices, AnExecutorWritesThemAtItsEnd) {
  fake_cublaslt::Machine machine;
  tessera::test::Builder b;
  b.exe->target = "cuda sm_90";
  const auto s = b.symbol("s");
  const auto x = b.input("x", {s, 8}, DType::F16), w = b.input("w", {8, 16}, DType::F16),
             y = b.output("y", {s, 16}, DType::F16);
  MatmulCall call;
  call.a = {x, {s, 8}, {8, 1}, 0};
  call.b = {w, {8, 16}, {16, 1}, 0};
  call.c = {y, {s, 16}, {16, 1}, 0};
  b.exe->steps.emplace_back(LibraryStep{"product", call});
  ExecutorOptions options;
  options.pool = ThreadPool::create(1);
  options.gpu_context = machine.gpu->context().shared_from_this();
  options.cache = cache();
  auto executor = Executor::create({b.done()}, options);
  ASSERT_TRUE(executor.ok()) << executor.error().str();
  auto run = [&](int64_t size) {
    auto r = (*executor)->run({{"x", Tensor::create(DType::F16, {size, 8}, true).value()},
                               {"w", Tensor::create(DType::F16, {8, 16}, true).value()}});
    ASSERT_TRUE(r.ok()) << r.error().str();
  };
  run(97);
  ASSERT_TRUE((*executor)->wait().ok()); // kernels of other sizes are loaded
  const int requested = machine.state.heuristics;
  EXPECT_GT(requested, 1);
  for (int64_t size : {98, 17}) run(size);
  EXPECT_EQ(machine.state.heuristics, requested) << "of the grid";
  executor->reset();
  EXPECT_EQ(files().size(), 1u);
}

TEST(CublasLtAnswers, AreBytes) {
  CublasLt::Algorithm a{{{1, 2, 3, 4, 5, 6, 7, 8}}, 1 << 20};
  const auto back = CublasLt::answer_of(CublasLt::bytes_of(a));
  ASSERT_TRUE(back && *back);
  EXPECT_EQ((*back)->workspace_bytes, 1 << 20);
  EXPECT_EQ((*back)->algo.data[7], 8u);
  const auto none = CublasLt::answer_of(CublasLt::bytes_of(std::nullopt));
  ASSERT_TRUE(none);
  EXPECT_FALSE(*none);
  EXPECT_FALSE(CublasLt::answer_of("71 bytes or 73"));
}

// ---- cuDNN

using CudnnChoices = KeptIn;
using fake_cudnn::Convolution;

Result<bool> convolve(fake_cudnn::Machine& machine, int64_t batch, int64_t size = 5, bool size_varies = false) {
  Convolution c(batch, size);
  c.batch_varies = true;
  c.size_varies = size_varies;
  return fused(machine, std::move(c));
}

std::string plan(int64_t batch, int64_t size = 5, int64_t engine = 7) {
  const std::string s = std::to_string(size);
  return "engine " + std::to_string(engine) + " knobs 2=3 14=1 x " + std::to_string(batch) + ",8," + s + "," + s;
}

TEST_F(CudnnChoices, BatchesOfACellShareAnEngine) {
  fake_cudnn::Machine machine;
  ASSERT_TRUE(convolve(machine, 20).ok());
  EXPECT_EQ(machine.state.plans, (std::vector<std::string>{plan(32), plan(20)}));
  machine.state.engine = 9; // what the heuristics would propose from now on
  for (int64_t batch : {17, 25, 32, 20}) ASSERT_TRUE(convolve(machine, batch).ok());
  EXPECT_EQ(machine.state.plans, (std::vector<std::string>{plan(32), plan(20), plan(17), plan(25), plan(32)}));
  EXPECT_EQ(machine.state.heuristics, 1);
  ASSERT_TRUE(convolve(machine, 16).ok());
  EXPECT_EQ(machine.state.heuristics, 2) << "another cell";
  EXPECT_EQ(machine.state.plans.back(), plan(16, 5, 9));
}

TEST_F(CudnnChoices, SizesOfACellShareAnEngine) {
  fake_cudnn::Machine machine;
  ASSERT_TRUE(convolve(machine, 3, 33, true).ok());
  EXPECT_EQ(machine.state.plans, (std::vector<std::string>{plan(4, 36), plan(3, 33)}));
  for (int64_t size : {34, 35, 36}) ASSERT_TRUE(convolve(machine, 4, size, true).ok());
  EXPECT_EQ(machine.state.heuristics, 1);
  ASSERT_TRUE(convolve(machine, 4, 34, false).ok());
  EXPECT_EQ(machine.state.heuristics, 1) << "planned already";
  ASSERT_TRUE(convolve(machine, 4, 37, false).ok());
  EXPECT_EQ(machine.state.heuristics, 2) << "37 is fixed";
}

TEST_F(CudnnChoices, SizesThatTheEngineDoesNotTakeHaveTheirOwn) {
  for (int process = 0; process < 2; ++process) {
    fake_cudnn::Machine machine(cache());
    machine.state.refused = {{7, 20}};
    ASSERT_TRUE(convolve(machine, 18).ok());
    machine.state.engine = 9;
    ASSERT_TRUE(convolve(machine, 20).ok());
    auto& plans = machine.state.plans;
    if (process == 0) plans.erase(plans.begin()); // of the cell
    EXPECT_EQ(plans, (std::vector<std::string>{plan(18), plan(20, 5, 9)}));
    EXPECT_EQ(machine.state.heuristics, process == 0 ? 2 : 0);
  }
  fake_cudnn::Machine machine(cache());
  machine.state.refused = {{7, 20}, {9, 20}}; // nor does the kept one do any more
  machine.state.engine = 11;
  ASSERT_TRUE(convolve(machine, 20).ok());
  EXPECT_EQ(machine.state.plans, (std::vector<std::string>{plan(20, 5, 11)}));
}

TEST_F(CudnnChoices, ALaterProcessQueriesNoHeuristics) {
  {
    fake_cudnn::Machine machine(cache());
    machine.state.takes = {1, 4}; // the epilogue in its full form
    Convolution c(20);
    c.batch_varies = true;
    c.call.fused.emplace().activation = LibraryEpilogue::Activation::Relu;
    ASSERT_TRUE(fused(machine, c).ok());
    EXPECT_EQ(machine.state.requested, (std::vector<size_t>{2, 3, 4, 4}));
  }
  EXPECT_EQ(files().size(), 1u);
  fake_cudnn::Machine machine(cache());
  machine.state.takes = {1, 4};
  machine.state.engine = 9;
  for (int64_t batch : {20, 21}) {
    Convolution c(batch);
    c.batch_varies = true;
    c.call.fused.emplace().activation = LibraryEpilogue::Activation::Relu;
    ASSERT_TRUE(fused(machine, c).ok());
  }
  EXPECT_EQ(machine.state.heuristics, 0);
  EXPECT_EQ(machine.state.requested, (std::vector<size_t>{4, 4})) << "the form that was found";
  EXPECT_EQ(machine.state.plans, (std::vector<std::string>{plan(20), plan(21)}));
  EXPECT_EQ(machine.state.ids.size(), 5u) << "with bias and residual";
}

TEST_F(CudnnChoices, ThatThereIsNoEngineIsKept) {
  for (int process = 0; process < 2; ++process) {
    fake_cudnn::Machine machine(cache());
    machine.state.takes = {};
    auto done = convolve(machine, 20);
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, ErrorCode::UnsupportedFeature);
    EXPECT_EQ(machine.state.requested.empty(), process == 1);
  }
}

TEST_F(CudnnChoices, NotesAreReadOfKeptChoicesToo) {
  {
    fake_cudnn::Machine machine(cache());
    ASSERT_TRUE(convolve(machine, 20).ok());
  }
  fake_cudnn::Machine machine(cache());
  machine.state.numerical = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
  EXPECT_FALSE(convolve(machine, 20).ok());
}

TEST_F(CudnnChoices, SolutionsInMemoryAreBounded) {
  fake_cudnn::Machine machine;
  for (int64_t batch = 1; batch <= static_cast<int64_t>(Cudnn::kMaxSolutions) + 20; ++batch) {
    ASSERT_TRUE(fused(machine, Convolution(batch, 1)).ok());
    EXPECT_TRUE(fused(machine, Convolution(std::min<int64_t>(batch, 10), 1)).ok());
  }
  EXPECT_EQ(machine.dnn->solutions(), Cudnn::kMaxSolutions);
  const size_t made = machine.state.plans.size();
  ASSERT_TRUE(fused(machine, Convolution(10, 1)).ok());
  EXPECT_EQ(machine.state.plans.size(), made) << "in use";
  ASSERT_TRUE(fused(machine, Convolution(1, 1)).ok());
  EXPECT_EQ(machine.state.plans.size(), made + 1) << "not used for longest";
  EXPECT_EQ(machine.state.heuristics, static_cast<int>(Cudnn::kMaxSolutions) + 20) << "its engine is known";
}

TEST(ConvChoices, AreText) {
  ConvChoice c;
  EXPECT_EQ(text_of(c), "engine 0 knobs");
  c.form = {true, false, true, true};
  c.engine = {34, {{2, 5}, {13, -1}}};
  EXPECT_EQ(text_of(c), "fused residual_is_result zero_bias engine 34 knobs 2=5 13=-1");
  EXPECT_EQ(text_of(std::nullopt), "none");
  for (const std::optional<ConvChoice>& choice :
       {std::optional(c), std::optional(ConvChoice{}), std::optional<ConvChoice>()}) {
    const auto back = parse_conv_choice(text_of(choice));
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, choice);
  }
  for (const char* bad :
       {"", "some", "engine", "engine x knobs", "engine 1 buttons", "engine 1 knobs 2",
        "engine 1 knobs 2=", "engine 1 knobs =2", "zero_bias fused engine 1 knobs", "engine 1 knobs  2=3"})
    EXPECT_FALSE(parse_conv_choice(bad)) << bad;
}

TEST(ConvChoices, TheGridKeepsTheProblem) {
  for (bool transposed : {false, true})
    for (bool last : {false, true})
      for (int64_t size = 9; size < 70; ++size) {
        ConvCall call;
        call.strides = {2, 1};
        call.pads_begin = {1, 0};
        call.pads_end = {0, 2};
        call.dilations = {1, 2};
        call.transposed = transposed;
        Dims x{5, 8, size, size + 1}, y{5, 8, 0, 0};
        const Dims w{8, 8, 3, 3};
        for (size_t i = 0; i < 2; ++i) {
          const int64_t reach = 2 * call.dilations[i] + 1, pads = call.pads_begin[i] + call.pads_end[i];
          y[i + 2] = transposed ? (x[i + 2] - 1) * call.strides[i] + reach - pads
                                : (x[i + 2] + pads - reach) / call.strides[i] + 1;
        }
        auto operand = [&](const Dims& shape) {
          Operand o;
          o.shape = shape;
          o.strides = last ? channels_last(shape) : dense(shape);
          return o;
        };
        const auto p = describe_conv(call, operand(x), operand(w), operand(y), "test");
        ASSERT_TRUE(p.ok()) << p.error().str();
        const ConvProblem like = on_grid(*p, {true, {true, true}});
        EXPECT_EQ(like.x.dims[0], 8);
        EXPECT_EQ(like.y.dims[0], 8);
        for (size_t d : {2, 3}) {
          EXPECT_GE(like.x.dims[d], p->x.dims[d]);
          EXPECT_LE(8 * (like.x.dims[d] - p->x.dims[d]), p->x.dims[d]);
        }
        const auto again = describe_conv(call, operand(like.x.dims), operand(w), operand(like.y.dims), "test");
        ASSERT_TRUE(again.ok()) << again.error().str();
        EXPECT_EQ(again->x.strides, like.x.strides);
        EXPECT_EQ(again->y.strides, like.y.strides);
        EXPECT_EQ(on_grid(*p, {}).x.dims, p->x.dims);
      }
}

} // namespace
} // namespace tessera::cuda
