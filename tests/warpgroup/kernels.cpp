#include "kernels.h"
#include "codegen/llvm/gpu_compile.h"
#include "codegen/llvm/gpu_warpgroup_intrinsics.h"

namespace tessera::test {
namespace {

using gpu::OperandLayout;
using gpu::Value;
using gpu::WarpgroupProduct;
using Values = std::vector<Value*>;

constexpr int kWarpgroup = 128;

// Structured control flow over the intrinsics.
struct Emission {
  Emission(llvm::Module& of, gpu::Code code)
      : module(of), b(of.getContext()),
        gpu(code == gpu::Code::Emulated ? gpu::emulated_intrinsics(of, b) : gpu::nvptx_intrinsics(of, b, true)),
        warpgroups(code == gpu::Code::Emulated ? gpu::emulated_warpgroup_intrinsics(of, b)
                                               : gpu::nvptx_warpgroup_intrinsics(of, b)) {}
  void begin(const tile::Kernel& kernel, int threads, std::span<const KernelTensorMap> maps) {
    f = gpu->begin(kernel, threads, maps);
    thread = gpu->thread_index();
    auto* warp = gpu->shuffle_word(b.CreateLShr(thread, 5), i(0));
    warp_index = warp;
  }
  gpu::EmittedKernel end(int threads, int64_t shared_bytes, std::vector<KernelTensorMap> maps) {
    b.CreateRetVoid();
    gpu->finish(shared_bytes);
    return {threads, shared_bytes, std::move(maps)};
  }
  Value* i(int64_t v) { return b.getInt32(static_cast<uint32_t>(v)); }
  llvm::BasicBlock* block(const char* name) { return llvm::BasicBlock::Create(module.getContext(), name, f.function); }
  template <class Then>
  void branch(Value* condition, Then then) {
    auto *inside = block("then"), *behind = block("end");
    b.CreateCondBr(condition, inside, behind);
    b.SetInsertPoint(inside);
    then();
    b.CreateBr(behind);
    b.SetInsertPoint(behind);
  }
  // body(index, carried) yields the next values; the loop's are those of the end. `count` is at least 1.
  template <class Body>
  Values loop(Value* count, const Values& first, Body body) {
    auto* before = b.GetInsertBlock();
    auto *inside = block("loop"), *behind = block("done");
    b.CreateBr(inside);
    b.SetInsertPoint(inside);
    auto* index = b.CreatePHI(b.getInt32Ty(), 2);
    std::vector<llvm::PHINode*> phis;
    for (auto* v : first) phis.push_back(b.CreatePHI(v->getType(), 2));
    const Values next = body(index, Values(phis.begin(), phis.end()));
    auto* next_index = b.CreateAdd(index, i(1));
    auto* last = b.GetInsertBlock();
    b.CreateCondBr(b.CreateICmpULT(next_index, count), inside, behind);
    index->addIncoming(i(0), before);
    index->addIncoming(next_index, last);
    for (size_t p = 0; p < phis.size(); ++p) {
      phis[p]->addIncoming(first[p], before);
      phis[p]->addIncoming(next[p], last);
    }
    b.SetInsertPoint(behind);
    return next;
  }

  llvm::Module& module;
  llvm::IRBuilder<> b;
  std::unique_ptr<gpu::Intrinsics> gpu;
  std::unique_ptr<gpu::WarpgroupIntrinsics> warpgroups;
  gpu::KernelFunction f;
  Value *thread = nullptr, *warp_index = nullptr;
};

tile::Kernel with_parameters(const std::string& name, std::initializer_list<std::pair<const char*, DType>> pointers,
                             std::initializer_list<const char*> sizes) {
  tile::Kernel k;
  k.name = name;
  k.config["min_blocks"] = 1;
  tile::Builder b(k);
  for (const auto& [pointer, dtype] : pointers)
    b.param(pointer, {tile::Type::Kind::Pointer, dtype, {}}, std::string_view(pointer) == "c");
  for (const char* size : sizes) b.param(size, {tile::Type::Kind::Data, DType::I64, {}});
  return k;
}

constexpr int kM = 3, kN = 4, kK = 5; // parameters of the ring
constexpr int kRows = 128;            // of a block
constexpr int kTile = 64;             // rows of a product, and elements of a box along an operand's contiguous M or N

class Ring {
public:
  Ring(const RingKernel& form, llvm::Module& module, gpu::Code code) : form_(form), e_(module, code), b_(e_.b) {}

  gpu::EmittedKernel emit() {
    const std::vector<KernelTensorMap> maps{map(0, form_.a, kM, form_.a_transposed, kRows),
                                            map(1, form_.b, kN, form_.b_transposed, form_.columns)};
    constexpr int kThreads = 3 * kWarpgroup;
    e_.begin(parameters(form_), kThreads, maps);
    steps_ = b_.CreateUDiv(b_.CreateAdd(b_.CreateTrunc(e_.f.params[kK], b_.getInt32Ty()), e_.i(k_of_stage() - 1)),
                           e_.i(k_of_stage()));
    first_row_ = b_.CreateMul(b_.CreateTrunc(e_.gpu->of_grid(gpu::GridValue::Index, 0), b_.getInt32Ty()), e_.i(kRows));
    e_.branch(b_.CreateICmpEQ(e_.thread, e_.i(0)), [&] { init(); });
    if (form_.fault != Fault::NoBarrierAfterInit) e_.gpu->barrier();
    auto* group = b_.CreateLShr(e_.warp_index, 2);
    e_.branch(b_.CreateICmpEQ(group, e_.i(0)), [&] { produce(); });
    e_.branch(b_.CreateICmpNE(group, e_.i(0)), [&] { consume(b_.CreateSub(group, e_.i(1))); });
    return e_.end(kThreads, barriers() + 16 * form_.stages, maps);
  }

private:
  [[nodiscard]] int width() const { return swizzle_bytes(form_.swizzle); }
  [[nodiscard]] int k_of_stage() const { return width() * 8 / info(form_.a).bits; }
  [[nodiscard]] int a_bytes() const { return kRows * width(); }
  [[nodiscard]] int stage_bytes() const { return a_bytes() + form_.columns * width(); }
  [[nodiscard]] int stage_pitch() const { return stage_bytes() + (form_.fault == Fault::MisalignedStage ? 128 : 0); }
  [[nodiscard]] int barriers() const { return stage_pitch() * form_.stages; }
  Value* full(Value* stage) { return b_.CreateAdd(e_.i(barriers()), b_.CreateMul(stage, e_.i(8))); }
  Value* empty(Value* stage) { return b_.CreateAdd(full(stage), e_.i(8 * form_.stages)); }

  // K-major: boxes of all rows; else of 64 elements of M or N.
  [[nodiscard]] KernelTensorMap map(int buffer, DType dtype, int extent, bool transposed, int rows) const {
    const int bytes = info(dtype).bits / 8;
    KernelTensorMap m;
    m.buffer = buffer;
    m.dtype = dtype;
    m.dims = {{1, {transposed ? extent : kK}}, {1, {transposed ? kK : extent}}};
    m.strides = {{bytes, {transposed ? extent : kK}}};
    m.box = transposed ? std::vector<int>{kTile, k_of_stage()} : std::vector<int>{k_of_stage(), rows};
    m.swizzle = form_.swizzle;
    return m;
  }

  void init() {
    for (int s = 0; s < form_.stages; ++s) {
      e_.warpgroups->init_barrier(full(e_.i(s)), 1);
      e_.warpgroups->init_barrier(empty(e_.i(s)), 2);
    }
    if (form_.fault != Fault::NoFenceOfBarriers) e_.warpgroups->fence_barrier_init();
  }

  // The stage after this one, and its parity.
  std::pair<Value*, Value*> next(Value* stage, Value* parity) {
    auto* one_more = b_.CreateAdd(stage, e_.i(1));
    auto* wraps = b_.CreateICmpEQ(one_more, e_.i(form_.stages));
    return {b_.CreateSelect(wraps, e_.i(0), one_more), b_.CreateXor(parity, b_.CreateZExt(wraps, b_.getInt32Ty()))};
  }

  void produce() {
    e_.warpgroups->lower_registers(40);
    e_.branch(b_.CreateICmpEQ(e_.warp_index, e_.i(0)), [&] {
      e_.branch(e_.warpgroups->elect(), [&] {
        e_.loop(steps_, {e_.i(0), e_.i(1)}, [&](Value* step, const Values& carried) -> Values {
          auto *stage = carried[0], *parity = carried[1];
          if (form_.fault != Fault::NoWaitForEmpty)
            e_.warpgroups->wait(empty(stage), form_.fault == Fault::SameParityOfEmpty ? e_.i(1) : parity);
          int bytes = stage_bytes();
          if (form_.fault == Fault::FewerBytesExpected) bytes -= a_bytes();
          if (form_.fault == Fault::MoreBytesExpected) bytes += 16;
          e_.warpgroups->arrive_expecting(full(stage), e_.i(bytes), nullptr);
          auto* to = b_.CreateMul(stage, e_.i(stage_pitch()));
          auto* k = b_.CreateMul(step, e_.i(k_of_stage()));
          copy(0, to, k, first_row_, form_.a_transposed, kRows, full(stage));
          copy(1, b_.CreateAdd(to, e_.i(a_bytes())), k, e_.i(0), form_.b_transposed, form_.columns, full(stage));
          auto [after, then] = next(stage, parity);
          return {after, then};
        });
      });
    });
  }
  void copy(size_t map, Value* to, Value* k, Value* row, bool transposed, int rows, Value* barrier) {
    auto* m = e_.f.tensor_maps[map];
    if (!transposed) return e_.warpgroups->copy_tensor(to, m, Values{k, row}, barrier, nullptr);
    for (int r = 0; r < rows; r += kTile)
      e_.warpgroups->copy_tensor(b_.CreateAdd(to, e_.i(r / kTile * box_bytes())), m,
                                 Values{b_.CreateAdd(row, e_.i(r)), k}, barrier, nullptr);
  }
  [[nodiscard]] int box_bytes() const { return k_of_stage() * width(); }

  OperandLayout layout(bool transposed) const {
    return transposed ? OperandLayout{form_.swizzle, box_bytes(), 8 * width()}
                      : OperandLayout{form_.swizzle, 16, 8 * width()};
  }

  void consume(Value* group) {
    e_.warpgroups->raise_registers(form_.fault == Fault::TooManyRegisters ? 240 : 232);
    WarpgroupProduct product{form_.a, form_.b, form_.columns, form_.a_transposed, form_.b_transposed};
    auto* type = product.integers() ? static_cast<llvm::Type*>(b_.getInt32Ty()) : b_.getFloatTy();
    Values first{e_.i(0), e_.i(0), e_.i(0)}; // stage, parity, the stage before
    first.insert(first.end(), static_cast<size_t>(product.accumulators()), llvm::PoisonValue::get(type));
    auto* releases = b_.CreateICmpEQ(b_.CreateAnd(e_.thread, e_.i(kWarpgroup - 1)), e_.i(0));
    if (form_.fault == Fault::ReleasedByOneConsumer) releases = b_.CreateAnd(releases, b_.CreateICmpEQ(group, e_.i(0)));
    auto last = e_.loop(steps_, first, [&](Value* step, const Values& carried) -> Values {
      auto *stage = carried[0], *parity = carried[1], *before = carried[2];
      Values sums(carried.begin() + 3, carried.end());
      auto* further = b_.CreateICmpNE(step, e_.i(0));
      if (form_.fault != Fault::NoWaitForFull) e_.warpgroups->wait(full(stage), parity);
      auto* from = b_.CreateMul(stage, e_.i(stage_pitch()));
      auto* a_begin = b_.CreateAdd(from, b_.CreateMul(group, e_.i(form_.a_transposed ? box_bytes() : kTile * width())));
      auto* a = e_.warpgroups->descriptor(a_begin, layout(form_.a_transposed));
      auto* b = e_.warpgroups->descriptor(b_.CreateAdd(from, e_.i(a_bytes())), layout(form_.b_transposed));
      if (form_.fault != Fault::NoFenceOfRegisters) e_.warpgroups->begin_products();
      for (int k = 0; k < k_of_stage() / product.k(); ++k) {
        const Values left{e_.warpgroups->advance(a, k * (form_.a_transposed ? 16 * width() : 32))};
        auto* right = e_.warpgroups->advance(b, k * (form_.b_transposed ? 16 * width() : 32));
        sums = e_.warpgroups->multiply(product, left, right, sums, k == 0 ? further : nullptr);
      }
      e_.warpgroups->commit_products();
      if (form_.fault == Fault::ReleasedBeforeWait) {
        e_.warpgroups->arrive(empty(stage), releases);
      } else {
        e_.warpgroups->wait_for_products(1, {});
        e_.warpgroups->arrive(empty(before), b_.CreateAnd(further, releases));
      }
      auto [after, then] = next(stage, parity);
      Values out{after, then, stage};
      out.insert(out.end(), sums.begin(), sums.end());
      return out;
    });
    Values sums(last.begin() + 3, last.end());
    if (form_.fault != Fault::NoWaitForProducts) sums = e_.warpgroups->wait_for_products(0, sums);
    store(group, sums);
  }

  void store(Value* group, const Values& sums) {
    auto* lane = b_.CreateAnd(e_.thread, e_.i(31));
    auto* warp = b_.CreateAnd(e_.warp_index, e_.i(3));
    auto *i32 = b_.getInt32Ty(), *i64 = b_.getInt64Ty();
    auto *m = b_.CreateTrunc(e_.f.params[kM], i32), *n = b_.CreateTrunc(e_.f.params[kN], i32);
    auto* row0 = b_.CreateAdd(b_.CreateAdd(first_row_, b_.CreateMul(group, e_.i(kTile))),
                              b_.CreateAdd(b_.CreateMul(warp, e_.i(16)), b_.CreateLShr(lane, 2)));
    auto* column0 = b_.CreateMul(b_.CreateAnd(lane, e_.i(3)), e_.i(2));
    for (size_t r = 0; r < sums.size(); ++r) {
      const auto reg = static_cast<int64_t>(r);
      auto* row = b_.CreateAdd(row0, e_.i(reg / 2 % 2 * 8));
      auto* column = b_.CreateAdd(column0, e_.i(reg / 4 * 8 + reg % 2));
      auto* inside = b_.CreateAnd(b_.CreateICmpULT(row, m), b_.CreateICmpULT(column, n));
      auto* offset = b_.CreateAdd(b_.CreateMul(b_.CreateZExt(row, i64), e_.f.params[kN]), b_.CreateZExt(column, i64));
      const Values word{b_.CreateBitCast(sums[r], i32)};
      e_.gpu->store_global(b_.CreateGEP(i32, e_.f.params[2], offset), word, inside, false);
    }
  }

  const RingKernel& form_;
  Emission e_;
  llvm::IRBuilder<>& b_;
  Value *steps_ = nullptr, *first_row_ = nullptr;
};

// Elements (r, k) of an operand with rows of 32 k lie in tiles of 8 rows of 16 bytes: the tile of 8 k of 8 rows r / 8 at
// (k / 8) * 1024 + (r / 8) * 128.
class Stored {
public:
  Stored(const StoredKernel& form, llvm::Module& module, gpu::Code code) : form_(form), e_(module, code), b_(e_.b) {}

  gpu::EmittedKernel emit() {
    KernelTensorMap c;
    c.buffer = 2;
    c.dtype = DType::BF16;
    c.dims = {{kTile, {}}, {kTile, {}}};
    c.strides = {{2 * kTile, {}}};
    c.box = {kTile, 16};
    c.swizzle = Swizzle::Bytes128;
    const std::vector<KernelTensorMap> maps{c};
    e_.begin(parameters(form_), kWarpgroup, maps);
    if (form_.copies)
      copy_operands();
    else
      store_operands();
    store_results(products());
    return e_.end(kWarpgroup, kBarrier + 8, maps);
  }

private:
  static constexpr int kK = 32, kOperand = kTile * kK * 2, kResults = 2 * kOperand,
                       kBarrier = kResults + kTile * kTile * 2;

  void store_operands() {
    each_unit([&](Value* from, Value* to) {
      auto words =
          e_.gpu->load_global(from, b_.getInt32Ty(), 4, nullptr, {}, gpu::Stability::Varying, tile::Caching::Normal);
      e_.gpu->store_shared(to, words, nullptr);
    });
    if (form_.fault != Fault::NoFenceOfStores) e_.warpgroups->fence_async();
    if (form_.fault == Fault::OneWarpLess)
      e_.branch(b_.CreateICmpNE(e_.warp_index, e_.i(3)), [&] { e_.warpgroups->join(e_.i(3), kWarpgroup); });
    else if (form_.fault != Fault::NoBarrierOfStores)
      e_.warpgroups->join(e_.i(3), kWarpgroup);
  }
  // Each thread fences what all threads have copied.
  void copy_operands() {
    e_.branch(b_.CreateICmpEQ(e_.thread, e_.i(0)), [&] { e_.warpgroups->init_barrier(e_.i(kBarrier), kWarpgroup); });
    e_.gpu->barrier();
    each_unit(
        [&](Value* from, Value* to) { e_.gpu->copy_async(to, from, 16, nullptr, nullptr, tile::Caching::Normal); });
    e_.warpgroups->arrive_after_copies(e_.i(kBarrier));
    if (form_.fault != Fault::NoWaitForCopies) e_.warpgroups->wait(e_.i(kBarrier), e_.i(0));
    if (form_.fault != Fault::NoFenceOfStores) e_.warpgroups->fence_async();
  }
  // Calls f(address, offset) for 16 bytes of both operands: thread t has row t / 2 and the two tiles of its half.
  template <class F>
  void each_unit(F f) {
    auto *row = b_.CreateLShr(e_.thread, 1), *half = b_.CreateAnd(e_.thread, e_.i(1));
    for (int i = 0; i < 4; ++i) {
      const int operand = i / 2;
      auto* tile = b_.CreateAdd(b_.CreateMul(half, e_.i(2)), e_.i(i % 2));
      auto* at = b_.CreateAdd(b_.CreateMul(row, e_.i(kK)), b_.CreateMul(tile, e_.i(8)));
      auto* from =
          b_.CreateGEP(b_.getInt16Ty(), e_.f.params[static_cast<size_t>(operand)], b_.CreateZExt(at, b_.getInt64Ty()));
      auto* to = b_.CreateAdd(b_.CreateMul(tile, e_.i(1024)), b_.CreateMul(row, e_.i(16)));
      f(from, b_.CreateAdd(to, e_.i(operand * kOperand)));
    }
  }

  Values products() {
    const OperandLayout layout{Swizzle::None, 1024, 128};
    const WarpgroupProduct product{DType::BF16, DType::BF16, kTile, false, false};
    auto* a = e_.warpgroups->descriptor(e_.i(0), layout);
    auto* b = e_.warpgroups->descriptor(e_.i(kOperand), layout);
    Values sums(static_cast<size_t>(product.accumulators()), llvm::ConstantFP::get(b_.getFloatTy(), 0));
    std::vector<Values> lefts;
    for (int k = 0; k < kK / product.k(); ++k)
      lefts.push_back(form_.a_in_registers ? registers_of_a(k) : Values{e_.warpgroups->advance(a, k * 2048)});
    e_.warpgroups->begin_products();
    for (int k = 0; k < kK / product.k(); ++k)
      sums = e_.warpgroups->multiply(product, lefts[static_cast<size_t>(k)], e_.warpgroups->advance(b, k * 2048), sums,
                                     nullptr);
    e_.warpgroups->commit_products();
    if (form_.fault == Fault::ResultsOverProducts)
      e_.gpu->store_shared(b_.CreateMul(e_.thread, e_.i(16)), Values(4, e_.i(0)), nullptr);
    return e_.warpgroups->wait_for_products(0, sums);
  }
  // Matrices of 8 rows: rows 16 w of two tiles.
  Values registers_of_a(int k) {
    auto* lane = b_.CreateAnd(e_.thread, e_.i(31));
    auto* row = b_.CreateAdd(b_.CreateMul(e_.warp_index, e_.i(16)), b_.CreateAnd(lane, e_.i(15)));
    auto* tile = b_.CreateAdd(b_.CreateLShr(lane, 4), e_.i(2 * k));
    return e_.gpu->load_matrices(b_.CreateAdd(b_.CreateMul(tile, e_.i(1024)), b_.CreateMul(row, e_.i(16))), 4, false);
  }

  // 16 rows of a warp: each lane's address for stmatrix is row l % 16, 16-byte column (2 p + l / 16) ^ (row % 8).
  void store_results(const Values& sums) {
    auto* lane = b_.CreateAnd(e_.thread, e_.i(31));
    auto* begin = b_.CreateAdd(e_.i(kResults), b_.CreateMul(e_.warp_index, e_.i(16 * 2 * kTile)));
    auto* row = b_.CreateAnd(lane, e_.i(15));
    for (int p = 0; p < 4; ++p) {
      Values words;
      for (size_t w = 0; w < 4; ++w) {
        const auto at = static_cast<size_t>(8 * p) + 2 * w;
        words.push_back(pack(sums[at], sums[at + 1]));
      }
      auto* column = b_.CreateXor(b_.CreateAdd(e_.i(2 * p), b_.CreateLShr(lane, 4)), b_.CreateAnd(row, e_.i(7)));
      auto* at = b_.CreateAdd(b_.CreateMul(row, e_.i(2 * kTile)), b_.CreateMul(column, e_.i(16)));
      e_.warpgroups->store_matrices(b_.CreateAdd(begin, at), words, false);
    }
    if (form_.fault != Fault::NoFenceOfResults) e_.warpgroups->fence_async();
    e_.warpgroups->warp_barrier();
    auto* first = b_.CreateICmpEQ(lane, e_.i(0));
    e_.warpgroups->store_tensor(e_.f.tensor_maps[0], Values{e_.i(0), b_.CreateMul(e_.warp_index, e_.i(16))}, begin,
                                first);
    e_.warpgroups->commit_stores();
    if (form_.fault == Fault::ResultsOverTensorStore)
      e_.gpu->store_shared(b_.CreateAdd(begin, b_.CreateMul(lane, e_.i(16))), Values(4, e_.i(0)), nullptr);
    if (form_.fault != Fault::NoWaitForTensorStore) e_.warpgroups->wait_for_stores(0, true);
  }
  // Small integers: exact in the upper half of an f32.
  Value* pack(Value* low, Value* high) {
    auto bits = [&](Value* v) { return b_.CreateLShr(b_.CreateBitCast(v, b_.getInt32Ty()), 16); };
    return b_.CreateOr(bits(low), b_.CreateShl(bits(high), 16));
  }

  const StoredKernel& form_;
  Emission e_;
  llvm::IRBuilder<>& b_;
};

class Copied {
public:
  Copied(const CopyKernel& form, llvm::Module& module, gpu::Code code) : form_(form), e_(module, code), b_(e_.b) {}

  gpu::EmittedKernel emit() {
    std::vector<KernelTensorMap> maps{map(0, form_.dims), map(1, form_.box)};
    maps[0].steps = form_.steps;
    const auto bytes = static_cast<int>(maps[0].box_bytes()), barrier = (bytes + 7) / 8 * 8;
    e_.begin(parameters(form_), 32, maps);
    auto* elected = e_.warpgroups->elect();
    e_.warpgroups->prefetch_map(e_.f.tensor_maps[0], elected);
    e_.branch(elected, [&] {
      e_.warpgroups->init_barrier(e_.i(barrier), 1);
      e_.warpgroups->fence_barrier_init();
      e_.warpgroups->arrive_expecting(e_.i(barrier), e_.i(bytes), nullptr);
      Values from, to;
      for (const int c : form_.coordinates) {
        from.push_back(e_.i(c));
        to.push_back(e_.i(0));
      }
      e_.warpgroups->copy_tensor(e_.i(0), e_.f.tensor_maps[0], from, e_.i(barrier), nullptr);
      e_.warpgroups->wait(e_.i(barrier), e_.i(0));
      e_.warpgroups->store_tensor(e_.f.tensor_maps[1], to, e_.i(0), nullptr);
      e_.warpgroups->commit_stores();
      e_.warpgroups->wait_for_stores(0, false);
    });
    return e_.end(32, barrier + 8, maps);
  }

private:
  // The map of a dense tensor.
  [[nodiscard]] KernelTensorMap map(int buffer, const std::vector<int>& dims) const {
    KernelTensorMap m;
    m.buffer = buffer;
    m.dtype = form_.dtype;
    m.box = form_.box;
    m.swizzle = form_.swizzle;
    int64_t bytes = info(form_.dtype).bits / 8;
    for (size_t d = 0; d < dims.size(); ++d) {
      m.dims.push_back({dims[d], {}});
      bytes *= dims[d];
      if (d + 1 < dims.size()) m.strides.push_back({bytes, {}});
    }
    return m;
  }

  const CopyKernel& form_;
  Emission e_;
  llvm::IRBuilder<>& b_;
};

gpu::EmittedKernel other_instructions(llvm::Module& module, gpu::Code code) {
  Emission e(module, code);
  auto& w = *e.warpgroups;
  e.begin(parameters(StoredKernel{}), kWarpgroup, {});
  auto* some = e.b.CreateICmpULT(e.thread, e.i(7));
  w.init_barrier(e.i(0), 7);
  w.arrive(e.i(0), some);
  w.arrive_expecting(e.i(0), e.thread, some);
  w.cluster_barrier();
  w.arrive_at_block(e.i(0), e.b.CreateAnd(e.thread, e.i(1)), some);
  w.wait_for_stores(2, true);
  w.announce(e.i(2), 64);
  w.join(e.b.CreateAnd(e.thread, e.i(3)), 64);
  for (const size_t count : {size_t{1}, size_t{2}, size_t{4}})
    for (const bool transposed : {false, true}) w.store_matrices(e.i(1024), Values(count, e.thread), transposed);
  return e.end(kWarpgroup, 4096, {});
}

template <class Emitter, class Form>
gpu::EmitKernel emission(const Form& form) {
  return [&form](llvm::Module& module, gpu::Code code) -> Result<gpu::EmittedKernel> {
    return Emitter(form, module, code).emit();
  };
}

} // namespace

tile::Kernel parameters(const RingKernel& form) {
  const DType c = is_integer(form.a) ? DType::I32 : DType::F32;
  return with_parameters("ring", {{"a", form.a}, {"b", form.b}, {"c", c}}, {"m", "n", "k"});
}
tile::Kernel parameters(const StoredKernel&) {
  return with_parameters("stored", {{"a", DType::BF16}, {"b", DType::BF16}, {"c", DType::BF16}}, {});
}
tile::Kernel parameters(const CopyKernel& form) {
  return with_parameters("copied", {{"a", form.dtype}, {"c", form.dtype}}, {});
}

Result<EmulatedKernel> emulated(const CopyKernel& form) {
  return gpu::compile_emulated(parameters(form).name, emission<Copied>(form), false);
}
Result<EmulatedKernel> emulated(const RingKernel& form) {
  return gpu::compile_emulated(parameters(form).name, emission<Ring>(form), false);
}
Result<EmulatedKernel> emulated(const StoredKernel& form) {
  return gpu::compile_emulated(parameters(form).name, emission<Stored>(form), false);
}
Result<GpuKernelCode> ptx(const RingKernel& form) {
  return gpu::compile_ptx(parameters(form).name, *GpuTarget::parse("sm_90a"), emission<Ring>(form), false);
}
Result<GpuKernelCode> ptx(const CopyKernel& form) {
  return gpu::compile_ptx(parameters(form).name, *GpuTarget::parse("sm_90a"), emission<Copied>(form), false);
}
Result<GpuKernelCode> ptx_of_other_instructions() {
  return gpu::compile_ptx(
      "stored", *GpuTarget::parse("sm_90a"),
      [](llvm::Module& module, gpu::Code code) -> Result<gpu::EmittedKernel> {
        return other_instructions(module, code);
      },
      false);
}
Result<GpuKernelCode> ptx(const StoredKernel& form) {
  return gpu::compile_ptx(parameters(form).name, *GpuTarget::parse("sm_90a"), emission<Stored>(form), false);
}

} // namespace tessera::test
