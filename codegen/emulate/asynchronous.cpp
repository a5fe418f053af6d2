// The functions of emulated_warpgroup_abi.h.
#include "codegen/emulate/asynchronous.h"
#include "codegen/emulate/cluster.h"

using tessera::emu::Asynchronous;
using tessera::emu::Block;
using tessera::emu::Collective;
using tessera::emu::Thread;

// Calls f(asynchronous parts, thread) and aborts the block after an error.
template <class F>
static void of_thread(void* thread, F f) {
  auto& t = Block::self(thread);
  f(*t.block->asynchronous(), t);
  t.block->abort_if_failed(t);
}

void tessera_emu_async_init_barrier(void* thread, int32_t offset, int32_t arrivals) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) { a.mbarriers.init(t, offset, arrivals); });
}
void tessera_emu_async_fence_barrier_init(void* thread) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) { a.mbarriers.fence_init(t); });
}
void tessera_emu_async_arrive_barrier(void* thread, int32_t offset, int32_t expected_bytes) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) { a.mbarriers.arrive(t, offset, expected_bytes); });
}
void tessera_emu_async_arrive_at_block(void* thread, int32_t offset, int32_t rank) {
  of_thread(thread, [&](Asynchronous&, Thread& t) {
    if (auto* block = t.block->cluster().find(t, rank)) block->asynchronous()->mbarriers.arrive(t, offset, 0);
  });
}
void tessera_emu_async_cluster_barrier(void* thread, int32_t site) {
  auto& t = Block::self(thread);
  t.block->cluster().barrier(t, site);
}
void tessera_emu_async_arrive_after_copies(void* thread, int32_t offset) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) { a.copies.arrive_after_copies(t, offset); });
}
void tessera_emu_async_wait_barrier(void* thread, int32_t offset, int32_t parity, int32_t site) {
  of_thread(thread,
            [&](Asynchronous& a, Thread& t) { a.mbarriers.wait(t, offset, static_cast<uint32_t>(parity), site); });
}

void tessera_emu_async_copy_tensor(void* thread, int32_t offset, const void* map, const int32_t* coordinates,
                                   int32_t barrier) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) {
    a.copies.copy(t, offset, *static_cast<const tessera::emu::TensorMap*>(map), coordinates, barrier,
                  uint32_t{1} << t.block->rank());
  });
}
void tessera_emu_async_multicast_tensor(void* thread, int32_t offset, const void* map, const int32_t* coordinates,
                                        int32_t barrier, int32_t blocks) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) {
    a.copies.copy(t, offset, *static_cast<const tessera::emu::TensorMap*>(map), coordinates, barrier,
                  static_cast<uint32_t>(blocks));
  });
}
void tessera_emu_async_store_tensor(void* thread, const void* map, const int32_t* coordinates, int32_t offset) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) {
    a.copies.store(t, *static_cast<const tessera::emu::TensorMap*>(map), coordinates, offset);
  });
}
void tessera_emu_async_commit_stores(void* thread) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) { a.copies.commit(t); });
}
void tessera_emu_async_wait_for_stores(void* thread, int32_t later, int32_t) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) { a.copies.wait(t, later); });
}
void tessera_emu_async_fence(void* thread) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) { a.order.fence(t.agent); });
}

void tessera_emu_async_begin_products(void* thread, int32_t site) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) { a.products.fence(t, site); });
}
void tessera_emu_async_multiply_warpgroup(void* thread, const TesseraEmuProduct* form, const void* a, uint64_t b,
                                          uint32_t* accumulators, int32_t accumulates, int32_t site) {
  const tessera::emu::ProductOperands operands{form, a, b, accumulators, accumulates != 0};
  of_thread(thread, [&](Asynchronous& parts, Thread& t) { parts.products.multiply(t, operands, site); });
}
void tessera_emu_async_commit_products(void* thread, int32_t site) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) { a.products.commit(t, site); });
}
void tessera_emu_async_wait_for_products(void* thread, int32_t later, uint32_t* accumulators, int32_t count,
                                         int32_t site) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) { a.products.wait(t, later, accumulators, count, site); });
}
void tessera_emu_async_set_registers(void* thread, int32_t count, int32_t raise, int32_t site) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) { a.mbarriers.set_registers(t, count, raise != 0, site); });
}
void tessera_emu_async_join(void* thread, int32_t id, int32_t threads, int32_t wait, int32_t site) {
  of_thread(thread, [&](Asynchronous& a, Thread& t) { a.mbarriers.join(t, id, threads, wait != 0, site); });
}

// Which lane it is depends on the seed.
int32_t tessera_emu_elect(void* thread, int32_t site) {
  auto& t = Block::self(thread);
  t.block->collective(t, Collective::Ballot, site, 1, 0);
  const uint64_t lane = t.block->launch().seed * 7 % tessera::emu::kWarp;
  return t.index % tessera::emu::kWarp == static_cast<int>(lane) ? 1 : 0;
}
