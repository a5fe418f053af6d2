// Faults planted in kernels that the compiler generates: the emulator finds each. A fault drops or alters one call of
// the emulated ABI, at one place of the code.
#include "codegen/llvm/gpu_compile.h"
#include "tests/gpu/products.h"
#include <cstring>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <map>
#include <set>

namespace tessera::test {
namespace {

using llvm::CallInst;

struct Fault {
  std::string name, function;
  std::function<void(CallInst*)> plant;
  std::function<bool(const CallInst*)> applies; // to all calls, where it is empty
};

void drop(CallInst* call) { call->eraseFromParent(); }
void twice(CallInst* call) { call->clone()->insertAfter(call); }
std::function<void(CallInst*)> add(unsigned operand, int amount) {
  return [=](CallInst* call) {
    auto* v = call->getArgOperand(operand);
    auto* sum = llvm::BinaryOperator::CreateAdd(v, llvm::ConstantInt::getSigned(v->getType(), amount));
    sum->insertBefore(call);
    call->setArgOperand(operand, sum);
  };
}
std::function<void(CallInst*)> set(unsigned operand, int value) {
  return [=](CallInst* call) {
    call->setArgOperand(operand, llvm::ConstantInt::getSigned(call->getArgOperand(operand)->getType(), value));
  };
}
// Where the thread arrives at another block, it arrives at its own one.
void at_own_block(CallInst* call) {
  llvm::IRBuilder<> b(call);
  auto* i32 = b.getInt32Ty();
  auto index = call->getModule()->getOrInsertFunction("tessera_emu_block_index", b.getInt64Ty(), b.getPtrTy(), i32);
  auto* along_x = b.CreateCall(index, {call->getArgOperand(0), b.getInt32(0)});
  auto* own = b.CreateURem(b.CreateTrunc(along_x, i32), b.getInt32(2));
  call->setArgOperand(2, own);
}
bool expects_bytes(const CallInst* call) {
  const auto* bytes = llvm::dyn_cast<llvm::ConstantInt>(call->getArgOperand(2));
  return !bytes || !bytes->isZero();
}
bool only_arrives(const CallInst* call) { return !expects_bytes(call); }

const std::vector<Fault>& faults() {
  const std::string arrive = "tessera_emu_async_arrive_barrier", wait = "tessera_emu_async_wait_barrier",
                    init = "tessera_emu_async_init_barrier", copy = "tessera_emu_async_copy_tensor",
                    wait_products = "tessera_emu_async_wait_for_products",
                    arrive_at_block = "tessera_emu_async_arrive_at_block",
                    multicast = "tessera_emu_async_multicast_tensor";
  static const std::vector<Fault> all = {
      {"no barrier", "tessera_emu_barrier", drop, {}},
      {"no barrier of a warp", "tessera_emu_warp_barrier", drop, {}},
      {"no numbered barrier", "tessera_emu_async_join", drop, {}},
      {"a numbered barrier of one warp more", "tessera_emu_async_join", add(2, 32), {}},
      {"no barrier of the cluster", "tessera_emu_async_cluster_barrier", drop, {}},
      {"no arrival at a block", arrive_at_block, drop, {}},
      {"two arrivals at a block", arrive_at_block, twice, {}},
      {"arrivals at the block itself alone", arrive_at_block, at_own_block, {}},
      {"an arrival at the stage behind", arrive_at_block, add(1, 16), {}},
      {"no multicast", multicast, drop, {}},
      {"a multicast to the first block alone", multicast, set(5, 1), {}},
      {"a multicast beyond the cluster", multicast, set(5, 7), {}},
      {"a multicast for the stage behind", multicast, add(4, 16), {}},
      {"a multicast before its share", multicast, add(1, -256), {}},
      {"no commit of copies", "tessera_emu_commit_copies", drop, {}},
      {"no wait for copies", "tessera_emu_wait_for_copies", drop, {}},
      {"a wait for one group of copies less", "tessera_emu_wait_for_copies", add(1, 1), {}},
      {"no initialisation", init, drop, {}},
      {"one arrival more is counted", init, add(2, 1), {}},
      {"no fence of initialisations", "tessera_emu_async_fence_barrier_init", drop, {}},
      {"no arrival", arrive, drop, only_arrives},
      {"two arrivals", arrive, twice, only_arrives},
      {"no arrival with bytes", arrive, drop, expects_bytes},
      {"fewer bytes are expected", arrive, add(2, -16), expects_bytes},
      {"more bytes are expected", arrive, add(2, 16), expects_bytes},
      {"no wait at an mbarrier", wait, drop, {}},
      {"the other parity",
       wait,
       [](CallInst* call) {
         auto* parity = call->getArgOperand(2);
         auto* other = llvm::BinaryOperator::CreateXor(parity, llvm::ConstantInt::get(parity->getType(), 1));
         other->insertBefore(call);
         call->setArgOperand(2, other);
       },
       {}},
      {"no tensor copy", copy, drop, {}},
      {"a fence of proxies less", "tessera_emu_async_fence", drop, {}},
      {"no fence of accumulators", "tessera_emu_async_begin_products", drop, {}},
      {"no commit of products", "tessera_emu_async_commit_products", drop, {}},
      {"no wait for products", wait_products, drop, {}},
      {"a wait for one group of products less", wait_products, add(1, 1), {}},
  };
  return all;
}

// The n-th call at which a fault can be planted, in the order of the code; null: there are fewer.
CallInst* find_call(llvm::Module& module, const Fault& fault, int n) {
  for (auto& function : module)
    for (auto& instruction : llvm::instructions(function)) {
      auto* call = llvm::dyn_cast<CallInst>(&instruction);
      const auto* callee = call ? call->getCalledFunction() : nullptr;
      if (!callee || callee->getName() != fault.function || (fault.applies && !fault.applies(call))) continue;
      if (n-- == 0) return call;
    }
  return nullptr;
}

struct Launch {
  tile::Kernel kernel;
  std::string arch;
  std::vector<Tensor> buffers;
  std::vector<int64_t> scalars;
  int64_t grid = 1;
};
Launch launch_of(const ProductForm& f, const std::string& arch, int warps, std::array<int64_t, 3> sizes) {
  auto [m, n, k] = sizes;
  const int64_t columns = (n + f.n - 1) / f.n, tiles = programs_of(f, m, n);
  Launch l{masked_product(f), arch, {}, {}, f.persistent ? 2 * f.cluster : tiles};
  l.kernel.config["warps"] = warps;
  l.buffers = {
      random_tensor(f.loaded, m * k, 1, 1), random_tensor(f.dtype, k * n, 2, 1), random_tensor(f.dtype, n, 3, 1),
      random_tensor(f.dtype, m * n, 4, 1),  filled(f.dtype, m * n, 9),           filled(DType::F32, m * columns, 9)};
  if (f.left != Left::Loaded) {
    l.buffers.push_back(random_tensor(DType::F32, m, 7, 1));
    l.buffers.push_back(random_tensor(DType::F32, k, 8, 1));
    l.buffers.push_back(random_tensor(f.loaded, m * k, 5, 1));
  }
  l.scalars = {m, n, k, l.grid};
  return l;
}

// Bytes of all buffers after the run.
Result<std::string> run(const EmulatedProgram& program, const Launch& l, uint64_t seed) {
  std::vector<Tensor> buffers;
  std::vector<tile::Argument> args;
  for (const auto& from : l.buffers) {
    TESSERA_ASSIGN(auto t, Tensor::create(from.dtype(), from.dims()));
    std::memcpy(t.mutable_data(), from.data(), from.bytes());
    args.push_back({{t.mutable_data(), t.bytes()}, {}});
    buffers.push_back(std::move(t));
  }
  for (const int64_t v : l.scalars) args.push_back({{}, {static_cast<double>(v), v}});
  TESSERA_TRY(program.run(args, l.grid, {.seed = seed}));
  std::string bytes;
  for (const auto& t : buffers) bytes.append(reinterpret_cast<const char*>(t.data()), t.bytes());
  return bytes;
}

// The program with the n-th call altered; nothing where there are fewer.
std::optional<EmulatedProgram> altered(const Launch& l, const Fault& fault, int n) {
  bool planted = false;
  auto code = gpu::compile_altered_kernel(l.kernel, *GpuTarget::parse(l.arch), [&](llvm::Module& module) {
    auto* call = find_call(module, fault, n);
    planted = call != nullptr;
    if (call) fault.plant(call);
  });
  EXPECT_TRUE(code.ok()) << code.error().str();
  if (!code.ok() || !planted) return {};
  auto program = EmulatedProgram::link(l.kernel, std::move(*code));
  EXPECT_TRUE(program.ok()) << program.error().str();
  return program.ok() ? std::optional(std::move(*program)) : std::nullopt;
}

constexpr uint64_t kSeeds = 3;

// Why a fault changes nothing, by its name and the number of its call: "no barrier 2".
using Harmless = std::map<std::string, std::string>;

// Consumers that compute left factors wait in each iteration.
const Harmless kHarmlessBehindTheLoop = {
    {"a wait for one group of products less 0", "behind the loop, whose iterations have waited: it yields the sums"}};

// Plants each fault at each call; the kinds that the kernel has calls for.
std::set<std::string> expect_found(const Launch& l, const Harmless& harmless) {
  auto plain = EmulatedProgram::compile(l.kernel, *GpuTarget::parse(l.arch));
  EXPECT_TRUE(plain.ok()) << plain.error().str();
  if (!plain.ok()) return {};
  const auto right = run(*plain, l, 0);
  EXPECT_TRUE(right.ok()) << right.error().str();
  std::set<std::string> kinds;
  Harmless left = harmless;
  for (const auto& fault : faults())
    for (int n = 0;; ++n) {
      const auto program = altered(l, fault, n);
      if (!program) break;
      kinds.insert(fault.name);
      const std::string at = fault.name + " " + std::to_string(n);
      std::string error;
      bool same = true;
      for (uint64_t seed = 0; seed < kSeeds && error.empty(); ++seed) {
        auto done = run(*program, l, seed);
        if (!done.ok()) error = done.error().message;
        same = same && done.ok() && *done == *right;
      }
      if (left.erase(at))
        EXPECT_TRUE(same) << at << " changes something: " << error;
      else
        EXPECT_NE(error, "") << at << (same ? "" : " (with other results)") << " is not found";
    }
  for (const auto& [at, why] : left) ADD_FAILURE() << at << " is not planted";
  return kinds;
}

void expect_by_warpgroups(const Launch& l) {
  const auto code = compile_gpu_kernel(l.kernel, *GpuTarget::parse(l.arch));
  ASSERT_TRUE(code.ok()) << code.error().str();
  EXPECT_NE(code->products.find("by warpgroups"), std::string::npos) << code->products;
}

// Two programs with six tiles of four iterations between them, in three stages; sizes end within tiles.
TEST(GeneratedFaults, RingOfWarpgroups) {
  const Launch l =
      launch_of({.m = 64, .n = 16, .k = 16, .b_columns = true, .num_stages = 3, .persistent = true, .epilogue = true},
                "sm_90a", 8, {136, 24, 56});
  expect_by_warpgroups(l);
  EXPECT_GE(expect_found(l, {}).size(), 12U);
}

// Consumers read the stages, compute left factors in registers and wait for the products of each iteration.
TEST(GeneratedFaults, RingOfComputedFactors) {
  const Launch l = launch_of({.m = 64,
                              .n = 16,
                              .k = 16,
                              .b_columns = true,
                              .num_stages = 3,
                              .persistent = true,
                              .left = Left::Normalised,
                              .loaded = DType::F32},
                             "sm_90a", 8, {136, 24, 56});
  expect_by_warpgroups(l);
  EXPECT_GE(expect_found(l, kHarmlessBehindTheLoop).size(), 12U);
}

// Two clusters of two blocks with three pairs of tiles each: in the last one of a column, one tile has no rows. Shares are
// rows of the right factor's tile, in either arrangement.
TEST(GeneratedFaults, RingOfAClusterOfBlocks) {
  ProductForm form{.m = 64, .n = 16, .k = 16, .num_stages = 3, .persistent = true, .cluster = 2};
  for (const bool b_columns : {false, true}) {
    form.b_columns = b_columns;
    form.n = b_columns ? 16 : 64;
    form.epilogue = b_columns;
    const Launch l = launch_of(form, "sm_90a", b_columns ? 8 : 4, {136, b_columns ? 40 : 136, 56});
    expect_by_warpgroups(l);
    EXPECT_GE(expect_found(l, {}).size(), 20U);
  }
}

TEST(GeneratedFaults, RingOfComputedFactorsInACluster) {
  const Launch l = launch_of({.m = 64,
                              .n = 16,
                              .k = 16,
                              .b_columns = true,
                              .num_stages = 3,
                              .persistent = true,
                              .left = Left::Normalised,
                              .loaded = DType::F32,
                              .cluster = 2},
                             "sm_90a", 8, {136, 40, 56});
  expect_by_warpgroups(l);
  EXPECT_GE(expect_found(l, kHarmlessBehindTheLoop).size(), 18U);
}

// Copies of two iterations ahead, read by other threads than those that copy.
TEST(GeneratedFaults, PipelineOfTensorCores) {
  const Launch l = launch_of({.m = 32, .n = 32, .k = 16, .num_stages = 2, .epilogue = true}, "sm_80", 4, {40, 40, 72});
  EXPECT_GE(expect_found(l, {}).size(), 4U);
}

// A tile that is smaller than the block: some warps have copies of the others' elements.
TEST(GeneratedFaults, TilesOfFewerElementsThanThreads) {
  const Launch l = launch_of({.m = 16, .n = 8, .k = 16, .num_stages = 2, .epilogue = true}, "sm_80", 4, {20, 8, 40});
  EXPECT_GE(expect_found(l, {}).size(), 4U);
}

} // namespace
} // namespace tessera::test
