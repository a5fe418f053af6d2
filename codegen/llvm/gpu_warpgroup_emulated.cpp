// WarpgroupIntrinsics as calls of the emulator (emulated_warpgroup_abi.h).
#include "base/check.h"
#include "codegen/llvm/emulated_warpgroup_abi.h"
#include "codegen/llvm/gpu_emulated.h"
#include "codegen/llvm/gpu_warpgroup_intrinsics.h"

namespace tessera::gpu {
namespace {

class EmulatedWarpgroups final : public WarpgroupIntrinsics, EmulatorCalls {
public:
  EmulatedWarpgroups(llvm::Module& module, llvm::IRBuilder<>& builder)
      : WarpgroupIntrinsics(module, builder), EmulatorCalls(module, builder) {}

  void init_barrier(Value* offset, int arrivals) override {
    call("tessera_emu_async_init_barrier", {offset, constant(arrivals)});
  }
  void fence_barrier_init() override { call("tessera_emu_async_fence_barrier_init", {}); }
  void arrive(Value* offset, Value* predicate) override { arrive_expecting(offset, constant(0), predicate); }
  void arrive_expecting(Value* offset, Value* bytes, Value* predicate) override {
    guarded(predicate, [&] { call("tessera_emu_async_arrive_barrier", {offset, bytes}); });
  }
  void arrive_at_block(Value* offset, Value* rank, Value* predicate) override {
    guarded(predicate, [&] { call("tessera_emu_async_arrive_at_block", {offset, rank}); });
  }
  void arrive_after_copies(Value* offset) override { call("tessera_emu_async_arrive_after_copies", {offset}); }
  void wait(Value* offset, Value* parity) override { call("tessera_emu_async_wait_barrier", {offset, parity, site()}); }

  void copy_tensor(Value* offset, Value* map, std::span<Value* const> coordinates, Value* barrier,
                   Value* predicate) override {
    guarded(predicate, [&] { call("tessera_emu_async_copy_tensor", {offset, map, on_stack(coordinates), barrier}); });
  }
  void multicast_tensor(Value* offset, Value* map, std::span<Value* const> coordinates, Value* barrier,
                        int blocks) override {
    call("tessera_emu_async_multicast_tensor", {offset, map, on_stack(coordinates), barrier, constant(blocks)});
  }
  void store_tensor(Value* map, std::span<Value* const> coordinates, Value* offset, Value* predicate) override {
    guarded(predicate, [&] { call("tessera_emu_async_store_tensor", {map, on_stack(coordinates), offset}); });
  }
  void commit_stores() override { call("tessera_emu_async_commit_stores", {}); }
  void wait_for_stores(int later, bool until_read) override {
    call("tessera_emu_async_wait_for_stores", {constant(later), constant(until_read)});
  }
  void prefetch_map(Value*, Value*) override {}
  void fence_async() override { call("tessera_emu_async_fence", {}); }

  void begin_products() override { call("tessera_emu_async_begin_products", {site()}); }
  std::vector<Value*> move_words(std::span<Value* const> words) override { return {words.begin(), words.end()}; }
  std::vector<Value*> multiply(const WarpgroupProduct& p, std::span<Value* const> a, Value* b,
                               std::span<Value* const> accumulators, Value* accumulates) override {
    TESSERA_CHECK(a.size() == 1 || a.size() == 4, "operands of a warpgroup's product");
    TESSERA_CHECK(accumulators.size() == static_cast<size_t>(p.accumulators()),
                  "accumulators of a warpgroup's product");
    std::vector<Value*> form;
    for (const int v : {static_cast<int>(p.a), static_cast<int>(p.b), p.n, static_cast<int>(p.a_transposed),
                        static_cast<int>(p.b_transposed), static_cast<int>(a.size() == 4)})
      form.push_back(constant(v));
    // [accumulators][a][form]
    const int count = p.accumulators(), at_a = count + count % 2, at_form = at_a + 4;
    auto* memory = stack(at_form + static_cast<int>(form.size()));
    auto place = [&](int words) {
      return b_.CreateConstInBoundsGEP1_64(b_.getInt32Ty(), memory, static_cast<uint64_t>(words));
    };
    store_words(memory, accumulators);
    store_words(place(at_a), a);
    store_words(place(at_form), form);
    call("tessera_emu_async_multiply_warpgroup",
         {place(at_form), place(at_a), b, memory, accumulates ? number(accumulates) : constant(1), site()});
    return load_words(memory, accumulators[0]->getType(), count);
  }
  void commit_products() override { call("tessera_emu_async_commit_products", {site()}); }
  std::vector<Value*> wait_for_products(int later, std::span<Value* const> accumulators) override {
    const int count = static_cast<int>(accumulators.size());
    auto* memory = stack(std::max(1, count));
    store_words(memory, accumulators);
    call("tessera_emu_async_wait_for_products", {constant(later), memory, constant(count), site()});
    return count ? load_words(memory, accumulators[0]->getType(), count) : std::vector<Value*>();
  }

  void raise_registers(int count) override {
    call("tessera_emu_async_set_registers", {constant(count), constant(1), site()});
  }
  void lower_registers(int count) override {
    call("tessera_emu_async_set_registers", {constant(count), constant(0), site()});
  }
  void join(Value* id, int threads) override {
    call("tessera_emu_async_join", {id, constant(threads), constant(1), site()});
  }
  void announce(Value* id, int threads) override {
    call("tessera_emu_async_join", {id, constant(threads), constant(0), site()});
  }
  void cluster_barrier() override { call("tessera_emu_async_cluster_barrier", {site()}); }
  void warp_barrier() override { call("tessera_emu_warp_barrier", {site()}); }
  Value* elect() override { return b_.CreateICmpNE(call("tessera_emu_elect", b_.getInt32Ty(), {site()}), constant(0)); }
  void store_matrices(Value* offset, std::span<Value* const> words, bool transposed) override {
    auto* memory = on_stack(words);
    call("tessera_emu_store_matrices",
         {offset, constant(static_cast<int>(words.size())), constant(transposed), memory, site()});
  }

protected:
  Value* shared_address(Value* offset) override { return offset; }

private:
  Value* constant(int v) { return b_.getInt32(static_cast<uint32_t>(v)); }
  Value* on_stack(std::span<Value* const> words) {
    auto* memory = stack(static_cast<int>(words.size()));
    store_words(memory, words);
    return memory;
  }
};

} // namespace

std::unique_ptr<WarpgroupIntrinsics> emulated_warpgroup_intrinsics(llvm::Module& module, llvm::IRBuilder<>& builder) {
  return std::make_unique<EmulatedWarpgroups>(module, builder);
}

} // namespace tessera::gpu
