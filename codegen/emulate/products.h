// Products of warpgroups (wgmma). A product is recorded when it starts and computed when it is waited for. Its
// accumulators hold tokens until then: NaN patterns that name the product and the register, so that what a thread
// computes from them is no number, and the next product with the same accumulators finds the one before it.
#pragma once
#include "codegen/emulate/order.h"
#include "codegen/llvm/emulated_warpgroup_abi.h"
#include "runtime/tensor_map.h"
#include <deque>
#include <map>

namespace tessera::emu {

class Block;
struct Thread;

// Operands that a thread gives to a product.
struct ProductOperands {
  const TesseraEmuProduct* form = nullptr;
  const void* a = nullptr;
  uint64_t b = 0;
  uint32_t* accumulators = nullptr;
  bool accumulates = false;
};

class Products {
public:
  Products(Block& block, Order& order) : block_(block), order_(order) {}
  void begin(); // of a block

  // Called by all threads of a warpgroup; after an error the block is aborted by the caller.
  void fence(Thread& t, int32_t site);
  void multiply(Thread& t, const ProductOperands& operands, int32_t site);
  void commit(Thread& t, int32_t site);
  void wait(Thread& t, int64_t later, uint32_t* accumulators, int count, int32_t site);
  void end(const Thread& t);

private:
  // An operand in shared memory: extent x 32 bytes of K.
  struct Matrix {
    int64_t begin = 0, leading = 0, stride = 0;
    Swizzle swizzle = Swizzle::None;
    bool transposed = false;
    // Offset of the byte `byte` of the 32 of row `row`.
    [[nodiscard]] int64_t at(int row, int byte) const;
  };
  struct Product {
    uint32_t id = 0, group = 0;
    TesseraEmuProduct form;
    Matrix a, b;
    bool accumulates = false;
    std::optional<uint32_t> before;     // the product whose accumulators these are
    std::vector<uint32_t> accumulators; // by thread and register, unless `before`
    std::vector<uint32_t> a_registers;
  };
  struct Group { // a warpgroup
    int agent = -1;
    bool fenced = false;
    uint32_t products = 0, committed = 0;
    std::deque<Product> started;                        // and not computed
    std::map<uint32_t, std::vector<uint32_t>> computed; // by id: accumulators that nobody has taken
  };
  [[nodiscard]] Group& group_of(const Thread& t);
  [[nodiscard]] bool check_form(const Thread& t, const Group& g);
  [[nodiscard]] std::optional<Matrix> matrix(const Thread& t, uint64_t descriptor, bool transposed);
  void read(Thread& t, const Group& g, const Matrix& m, int rows, const Known& known);
  void start(Thread& t, Group& g);
  [[nodiscard]] std::optional<uint32_t> chained(const Thread& t, const Group& g);
  void compute(Group& g, const Product& p);
  void finish(Thread& t, Group& g, int64_t later);

  Block& block_;
  Order& order_;
  std::vector<Group> groups_;
};

} // namespace tessera::emu
