// WarpgroupIntrinsics as PTX of sm_90a. LLVM has no intrinsics for most of these instructions.
#include "base/check.h"
#include "codegen/llvm/gpu_ptx.h"
#include "codegen/llvm/gpu_warpgroup_intrinsics.h"

namespace tessera::gpu {
namespace {

// "=f,=f,0,1": as many results as inputs that are tied to them.
std::string tied(size_t count, const std::string& type) {
  std::string s;
  for (size_t i = 0; i < count; ++i) s += (i ? ",=" : "=") + type;
  for (size_t i = 0; i < count; ++i) s += "," + std::to_string(i);
  return s;
}

class NvptxWarpgroups final : public WarpgroupIntrinsics {
public:
  using WarpgroupIntrinsics::WarpgroupIntrinsics;

  void init_barrier(Value* offset, int arrivals) override {
    emit("mbarrier.init.shared::cta.b64 [$0], " + std::to_string(arrivals) + ";", {shared_address(offset)});
  }
  void fence_barrier_init() override { emit("fence.mbarrier_init.release.cluster;", {}); }
  // Without .release.cluster, which would wait for all memory of the GPU.
  void arrive(Value* offset, Value* predicate) override {
    emit("mbarrier.arrive.shared::cta.b64 _, [$0];", {shared_address(offset)}, predicate);
  }
  void arrive_expecting(Value* offset, Value* bytes, Value* predicate) override {
    emit("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", {shared_address(offset), bytes}, predicate);
  }
  void arrive_at_block(Value* offset, Value* rank, Value* predicate) override {
    auto* there = ptx::assembly(b_, "mapa.shared::cluster.u32 $0, $1, $2;", "=r,r,r", b_.getInt32Ty(),
                                {shared_address(offset), rank}, false);
    emit("mbarrier.arrive.shared::cluster.b64 _, [$0];", {there}, predicate);
  }
  void arrive_after_copies(Value* offset) override {
    emit("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];", {shared_address(offset)});
  }
  void wait(Value* offset, Value* parity) override {
    emit("{ .reg .pred complete; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 complete, [$0], $1; "
         "@!complete bra AGAIN; }",
         {shared_address(offset), parity});
  }

  void copy_tensor(Value* offset, Value* map, std::span<Value* const> coordinates, Value* barrier,
                   Value* predicate) override {
    load_tensor(offset, map, coordinates, barrier, "", predicate);
  }
  void multicast_tensor(Value* offset, Value* map, std::span<Value* const> coordinates, Value* barrier,
                        int blocks) override {
    load_tensor(offset, map, coordinates, barrier, std::to_string(blocks), nullptr);
  }
  void store_tensor(Value* map, std::span<Value* const> coordinates, Value* offset, Value* predicate) override {
    std::vector<Value*> args{map, shared_address(offset)};
    args.insert(args.end(), coordinates.begin(), coordinates.end());
    emit("cp.async.bulk.tensor." + std::to_string(coordinates.size()) + "d.global.shared::cta.bulk_group [$0, " +
             place(coordinates, 2) + "], [$1];",
         std::move(args), predicate);
  }
  void commit_stores() override { emit("cp.async.bulk.commit_group;", {}); }
  void wait_for_stores(int later, bool until_read) override {
    emit("cp.async.bulk.wait_group" + std::string(until_read ? ".read " : " ") + std::to_string(later) + ";", {});
  }
  void prefetch_map(Value* map, Value* predicate) override { emit("prefetch.tensormap [$0];", {map}, predicate); }
  void fence_async() override { emit("fence.proxy.async.shared::cta;", {}); }

  void begin_products() override { emit("wgmma.fence.sync.aligned;", {}); }
  // Volatile moves stay behind the wait, where the words' own registers would be written before it.
  std::vector<Value*> move_words(std::span<Value* const> words) override {
    // Not tied: nothing else writes registers that products read.
    std::string text, constraints;
    const size_t count = words.size();
    for (size_t i = 0; i < count; ++i) {
      text += "mov.b32 $" + std::to_string(i) + ", $" + std::to_string(count + i) + "; ";
      constraints += i == 0 ? "=&r" : ",=&r";
    }
    for (size_t i = 0; i < count; ++i) constraints += ",r";
    return results(text, constraints, {words.begin(), words.end()}, words);
  }
  std::vector<Value*> multiply(const WarpgroupProduct& p, std::span<Value* const> a, Value* b,
                               std::span<Value* const> accumulators, Value* accumulates) override {
    const bool registers = a.size() == 4;
    TESSERA_CHECK(registers || a.size() == 1, "operands of a warpgroup's product");
    TESSERA_CHECK(accumulators.size() == static_cast<size_t>(p.accumulators()),
                  "accumulators of a warpgroup's product");
    std::vector<Value*> args(accumulators.begin(), accumulators.end());
    std::string constraints = tied(accumulators.size(), p.integers() ? "r" : "f");
    auto next = [&] { return "$" + std::to_string(accumulators.size() + args.size()); };
    const std::string type = p.integers() ? ".s32." : ".f32.";
    std::string text = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(p.n) + "k" + std::to_string(p.k()) + type +
                       std::string(ptx::factor_type(p.a)) + "." + std::string(ptx::factor_type(p.b)) + " " +
                       ptx::operands(static_cast<int>(accumulators.size()), 0) + ", ";
    if (registers)
      text += ptx::operands(4, static_cast<int>(accumulators.size() + args.size())) + ", ";
    else
      text += next() + ", ";
    for (auto* v : a) {
      args.push_back(v);
      constraints += registers ? ",r" : ",l";
    }
    text += next() + ", ";
    args.push_back(b);
    constraints += ",l";
    if (ptx::is_true(accumulates)) {
      text += "1";
    } else {
      text += next();
      args.push_back(accumulates);
      constraints += ",b";
    }
    if (!p.integers()) text += ", 1, 1";
    if (info(p.a).bits == 16) {
      if (!registers) text += p.a_transposed ? ", 1" : ", 0";
      text += p.b_transposed ? ", 1" : ", 0";
    }
    return results(text + ";", constraints, std::move(args), accumulators);
  }
  void commit_products() override { emit("wgmma.commit_group.sync.aligned;", {}); }
  std::vector<Value*> wait_for_products(int later, std::span<Value* const> accumulators) override {
    const std::string text = "wgmma.wait_group.sync.aligned " + std::to_string(later) + ";";
    if (!accumulators.empty())
      return results(text, tied(accumulators.size(), ptx::register_class(accumulators[0]->getType())),
                     {accumulators.begin(), accumulators.end()}, accumulators);
    emit(text, {});
    return {};
  }

  void raise_registers(int count) override {
    emit("setmaxnreg.inc.sync.aligned.u32 " + std::to_string(count) + ";", {});
  }
  void lower_registers(int count) override {
    emit("setmaxnreg.dec.sync.aligned.u32 " + std::to_string(count) + ";", {});
  }
  void join(Value* id, int threads) override { named("bar.sync ", id, threads); }
  void announce(Value* id, int threads) override { named("bar.arrive ", id, threads); }
  // One lane of a warp may come later: the others must not keep it from running, as the barrier of the cluster would.
  void cluster_barrier() override {
    emit("bar.warp.sync 0xffffffff; barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;", {});
  }
  void warp_barrier() override { emit("bar.warp.sync 0xffffffff;", {}); }
  Value* elect() override {
    auto* elected =
        ptx::assembly(b_, "{ .reg .pred elected; elect.sync _|elected, 0xffffffff; selp.b32 $0, 1, 0, elected; }", "=r",
                      b_.getInt32Ty(), {}, true);
    elected->setConvergent();
    return b_.CreateICmpNE(elected, b_.getInt32(0));
  }
  void store_matrices(Value* offset, std::span<Value* const> words, bool transposed) override {
    std::vector<Value*> args{shared_address(offset)};
    args.insert(args.end(), words.begin(), words.end());
    emit("stmatrix.sync.aligned.m8n8.x" + std::to_string(words.size()) + (transposed ? ".trans" : "") +
             ".shared.b16 [$0], {" + list(words.size(), 1) + "};",
         std::move(args));
  }

protected:
  Value* shared_address(Value* offset) override {
    constexpr uint64_t kAlignment = swizzle_alignment(Swizzle::Bytes128);
    return b_.CreateAdd(b_.CreatePtrToInt(ptx::shared_memory(module_, kAlignment), b_.getInt32Ty()), offset);
  }

private:
  // `blocks`: of a multicast, as bits; else empty.
  void load_tensor(Value* offset, Value* map, std::span<Value* const> coordinates, Value* barrier,
                   const std::string& blocks, Value* predicate) {
    std::vector<Value*> args{shared_address(offset), map, shared_address(barrier)};
    args.insert(args.end(), coordinates.begin(), coordinates.end());
    const std::string copy = "cp.async.bulk.tensor." + std::to_string(coordinates.size()) +
                             "d.shared::cluster.global.mbarrier::complete_tx::bytes";
    const std::string from = " [$0], [$1, " + place(coordinates, 3) + "], [$2]";
    if (blocks.empty()) return emit(copy + from + ";", std::move(args), predicate);
    emit("{ .reg .b16 blocks; mov.b16 blocks, " + blocks + "; " + copy + ".multicast::cluster" + from + ", blocks; }",
         std::move(args), predicate);
  }
  // Assembly without results, under a predicate. What threads do together stays together.
  void emit(std::string text, std::vector<Value*> args, Value* predicate = nullptr) {
    std::string constraints;
    for (auto* a : args) {
      const bool pointer = a->getType()->isPointerTy();
      constraints += (constraints.empty() ? "" : ",") + (pointer ? "l" : ptx::register_class(a->getType()));
    }
    if (!ptx::is_true(predicate)) {
      text.insert(0, "@$" + std::to_string(args.size()) + " ");
      constraints += constraints.empty() ? "b" : ",b";
      args.push_back(predicate);
    }
    ptx::assembly(b_, text, constraints, b_.getVoidTy(), args, true)->setConvergent();
  }
  // Assembly whose results replace `values`, which are its first operands.
  std::vector<Value*> results(const std::string& text, const std::string& constraints, const std::vector<Value*>& args,
                              std::span<Value* const> values) {
    auto* type =
        llvm::StructType::get(module_.getContext(), std::vector<llvm::Type*>(values.size(), values[0]->getType()));
    auto* all = ptx::assembly(b_, text, constraints, type, args, true);
    all->setConvergent();
    std::vector<Value*> out;
    for (unsigned i = 0; i < values.size(); ++i) out.push_back(b_.CreateExtractValue(all, i));
    return out;
  }
  static std::string list(size_t count, int first) {
    std::string s;
    for (size_t i = 0; i < count; ++i) s += (i ? ", $" : "$") + std::to_string(static_cast<size_t>(first) + i);
    return s;
  }
  static std::string place(std::span<Value* const> coordinates, int first) {
    return "{" + list(coordinates.size(), first) + "}";
  }
  // A constant id lets ptxas count the barriers that are used.
  void named(const std::string& instruction, Value* id, int threads) {
    const std::string count = ", " + std::to_string(threads) + ";";
    if (auto* c = llvm::dyn_cast<llvm::ConstantInt>(id))
      emit(instruction + std::to_string(c->getZExtValue()) + count, {});
    else
      emit(instruction + "$0" + count, {id});
  }
};

} // namespace

std::unique_ptr<WarpgroupIntrinsics> nvptx_warpgroup_intrinsics(llvm::Module& module, llvm::IRBuilder<>& builder) {
  return std::make_unique<NvptxWarpgroups>(module, builder);
}

} // namespace tessera::gpu
