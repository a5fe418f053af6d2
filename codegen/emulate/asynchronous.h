// Parts of a block that its threads use besides plain accesses and barriers of all of them
// (codegen/llvm/gpu_warpgroup_intrinsics.h).
#pragma once
#include "codegen/emulate/mbarriers.h"
#include "codegen/emulate/products.h"
#include "codegen/emulate/tensor_copies.h"

namespace tessera::emu {

struct Asynchronous {
  Asynchronous(Block& block, Order& of_cluster)
      : order(of_cluster), mbarriers(block, order), copies(block, order), products(block, order) {}
  void begin() {
    mbarriers.begin();
    copies.begin();
    products.begin();
  }
  void end(const Thread& t) {
    copies.end(t);
    products.end(t);
  }

  Order& order; // of the cluster
  Mbarriers mbarriers;
  TensorCopies copies;
  Products products;
};

} // namespace tessera::emu
