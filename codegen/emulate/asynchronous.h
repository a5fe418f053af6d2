// Parts of a block that its threads use besides plain accesses and barriers of all of them
// (codegen/llvm/gpu_warpgroup_intrinsics.h).
#pragma once
#include "codegen/emulate/mbarriers.h"
#include "codegen/emulate/products.h"
#include "codegen/emulate/tensor_copies.h"

namespace tessera::emu {

struct Asynchronous {
  Asynchronous(Block& block, int threads, int64_t shared_bytes, bool detect_races)
      : order(threads, shared_bytes, detect_races), mbarriers(block, order), copies(block, order, mbarriers),
        products(block, order) {}
  void begin() {
    order.begin();
    mbarriers.begin();
    copies.begin();
    products.begin();
  }
  void end(const Thread& t) {
    copies.end(t);
    products.end(t);
  }

  Order order;
  Mbarriers mbarriers;
  TensorCopies copies;
  Products products;
};

} // namespace tessera::emu
