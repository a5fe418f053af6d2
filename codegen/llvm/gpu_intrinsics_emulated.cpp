// Intrinsics as calls of the emulator (emulated_abi.h), plain host instructions and libm.
#include "base/check.h"
#include "codegen/llvm/emulated_abi.h"
#include "codegen/llvm/gpu_emulated.h"
#include "codegen/llvm/gpu_intrinsics.h"
#include <llvm/IR/Intrinsics.h>

namespace tessera::gpu {
namespace {

namespace ID = llvm::Intrinsic;

class EmulatedNumbers final : public NumberIntrinsics {
public:
  using NumberIntrinsics::NumberIntrinsics;

  Value* ex2_ftz(Value* x) override { return flush(library("exp2f", {x})); }
  Value* lg2(Value* x) override { return library("log2f", {x}); }
  Value* rcp(Value* x) override { return b_.CreateFDiv(one(), x); }
  Value* rcp_ftz(Value* x) override { return flush(b_.CreateFDiv(one(), flush(x))); }
  Value* rsqrt(Value* x) override { return b_.CreateFDiv(one(), b_.CreateUnaryIntrinsic(ID::sqrt, x)); }
  Value* fma_saturated(Value* a, Value* b, Value* c) override {
    auto* x = b_.CreateIntrinsic(ID::fma, {a->getType()}, {a, b, c});
    auto* zero = llvm::ConstantFP::get(x->getType(), 0);
    auto* positive = b_.CreateSelect(b_.CreateFCmpOGT(x, zero), x, zero); // NaN is not greater
    return b_.CreateSelect(b_.CreateFCmpOGT(positive, one()), one(), positive);
  }
  Value* to_integer(Value* x, unsigned bits, bool is_signed) override {
    return b_.CreateIntrinsic(is_signed ? ID::fptosi_sat : ID::fptoui_sat, {b_.getIntNTy(bits), x->getType()}, {x});
  }
  Value* to_bf16(Value* x) override {
    auto* bits = b_.CreateBitCast(x, b_.getInt32Ty());
    auto* odd = b_.CreateAnd(b_.CreateLShr(bits, 16), 1);
    auto* rounded = b_.CreateLShr(b_.CreateAdd(bits, b_.CreateAdd(odd, b_.getInt32(0x7fff))), 16);
    return b_.CreateTrunc(b_.CreateSelect(b_.CreateFCmpUNO(x, x), b_.getInt32(0x7fff), rounded), b_.getInt16Ty());
  }
  Value* pack_bf16(Value* low, Value* high) override { return pack(to_bf16(low), to_bf16(high)); }
  Value* pack_f16(Value* low, Value* high) override {
    auto half = [&](Value* x) { return b_.CreateBitCast(b_.CreateFPTrunc(x, b_.getHalfTy()), b_.getInt16Ty()); };
    return pack(half(low), half(high));
  }

  Value* funnel_shift(Value* low, Value* high, Value* shift) override {
    return b_.CreateIntrinsic(llvm::Intrinsic::fshr, {b_.getInt32Ty()}, {high, low, shift});
  }

  Value* library_call(std::string_view name, std::span<Value* const> args) override {
    return library(std::string(name) + (args[0]->getType()->isFloatTy() ? "f" : ""), args);
  }

private:
  Value* one() { return llvm::ConstantFP::get(b_.getFloatTy(), 1); }
  Value* pack(Value* low, Value* high) {
    return b_.CreateOr(b_.CreateZExt(low, b_.getInt32Ty()), b_.CreateShl(b_.CreateZExt(high, b_.getInt32Ty()), 16));
  }
  Value* flush(Value* x) {
    auto* tiny = b_.CreateFCmpOLT(b_.CreateUnaryIntrinsic(ID::fabs, x), llvm::ConstantFP::get(x->getType(), 0x1p-126));
    return b_.CreateSelect(tiny, llvm::ConstantFP::get(x->getType(), 0), x);
  }
  Value* library(const std::string& symbol, std::span<Value* const> args) {
    auto* type = args[0]->getType();
    std::vector<llvm::Type*> types(args.size(), type);
    auto callee = module_.getOrInsertFunction(symbol, llvm::FunctionType::get(type, types, false));
    auto* f = llvm::cast<llvm::Function>(callee.getCallee());
    f->setDoesNotThrow();
    f->setDoesNotAccessMemory();
    f->setWillReturn();
    return b_.CreateCall(callee, std::vector<Value*>(args.begin(), args.end()));
  }
  Value* library(const std::string& symbol, std::initializer_list<Value*> args) {
    return library(symbol, std::span<Value* const>(args.begin(), args.size()));
  }
};

class EmulatedIntrinsics final : public Intrinsics, EmulatorCalls {
public:
  EmulatedIntrinsics(llvm::Module& module, llvm::IRBuilder<>& builder)
      : Intrinsics(module, builder), EmulatorCalls(module, builder) {}

  KernelFunction begin(const tile::Kernel& kernel, int, std::span<const KernelTensorMap> tensor_maps) override {
    auto& ctx = module_.getContext();
    auto* ptr = llvm::PointerType::get(ctx, 0);
    KernelFunction k;
    k.function = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr}, false),
                                        llvm::Function::ExternalLinkage, kernel.name, module_);
    k.function->addFnAttr(llvm::Attribute::NoUnwind);
    b_.SetInsertPoint(llvm::BasicBlock::Create(ctx, "entry", k.function));
    auto argument = [&](size_t i, llvm::Type* type) -> Value* {
      auto* slot = b_.CreateConstInBoundsGEP1_64(ptr, k.function->getArg(1), i);
      return b_.CreateLoad(type, b_.CreateLoad(ptr, slot));
    };
    for (size_t i = 0; i < kernel.params.size(); ++i) {
      const auto& t = kernel.params[i].type;
      if (t.kind == tile::Type::Kind::Pointer)
        k.params.push_back(argument(i, ptr));
      else if (t.dtype == DType::Bool)
        k.params.push_back(b_.CreateICmpNE(argument(i, b_.getInt8Ty()), b_.getInt8(0)));
      else if (t.dtype == DType::F16 || t.dtype == DType::F32 || t.dtype == DType::F64)
        k.params.push_back(argument(i, t.dtype == DType::F16   ? b_.getHalfTy()
                                       : t.dtype == DType::F32 ? b_.getFloatTy()
                                                               : b_.getDoubleTy()));
      else
        k.params.push_back(argument(i, b_.getIntNTy(static_cast<unsigned>(info(t.dtype).bits))));
    }
    k.report = argument(kernel.params.size(), ptr);
    for (size_t i = 0; i < tensor_maps.size(); ++i) {
      auto* slot = b_.CreateConstInBoundsGEP1_64(ptr, k.function->getArg(1), kernel.params.size() + 1 + i);
      k.tensor_maps.push_back(b_.CreateLoad(ptr, slot));
    }
    return k;
  }
  void finish(int64_t) override {}

  Value* thread_index() override { return call("tessera_emu_thread_index", b_.getInt32Ty(), {}); }
  Value* other_thread_index() override { return thread_index(); }
  Value* of_grid(GridValue what, int axis) override {
    return call(what == GridValue::Count ? "tessera_emu_block_count" : "tessera_emu_block_index", b_.getInt64Ty(),
                {b_.getInt32(static_cast<uint32_t>(axis))});
  }

  void barrier() override { call("tessera_emu_barrier", b_.getVoidTy(), {site()}); }
  Value* barrier_any(Value* p) override {
    return truth(call("tessera_emu_barrier_or", b_.getInt32Ty(), {number(p), site()}));
  }
  Value* shuffle_word(Value* word, Value* lane) override {
    return call("tessera_emu_shuffle", b_.getInt32Ty(), {word, lane, site()});
  }
  Value* shuffle_xor_word(Value* word, int mask) override {
    auto* lane = b_.CreateAnd(thread_index(), b_.getInt32(31));
    return shuffle_word(word, b_.CreateXor(lane, b_.getInt32(static_cast<uint32_t>(mask))));
  }
  Value* vote_any(Value* p) override { return truth(ballot(p)); }
  Value* vote_all(Value* p) override { return b_.CreateICmpEQ(ballot(p), b_.getInt32(0xffffffff)); }
  Value* ballot(Value* p) override { return call("tessera_emu_ballot", b_.getInt32Ty(), {number(p), site()}); }

  std::vector<Value*> load_shared(Value* offset, llvm::Type* word, int count) override {
    auto* at = call("tessera_emu_shared", pointer(), {offset, bytes(word, count), access(kTesseraEmuRead)});
    return load_words(at, word, count);
  }
  void store_shared(Value* offset, std::span<Value* const> words, Value* predicate) override {
    guarded(predicate, [&] {
      store_words(call("tessera_emu_shared", pointer(),
                       {offset, bytes(words[0]->getType(), static_cast<int>(words.size())), access(kTesseraEmuWrite)}),
                  words);
    });
  }
  std::vector<Value*> load_matrices(Value* offset, int count, bool transposed) override {
    auto* words = stack(kLaneWords);
    call("tessera_emu_load_matrices", b_.getVoidTy(),
         {offset, b_.getInt32(static_cast<uint32_t>(count)), b_.getInt32(transposed ? 1 : 0), words, site()});
    return load_words(words, b_.getInt32Ty(), count);
  }
  std::array<Value*, 4> multiply(DType a_dtype, DType b_dtype, const std::array<Value*, 4>& a,
                                 const std::array<Value*, 2>& b, const std::array<Value*, 4>& c) override {
    std::vector<Value*> words(a.begin(), a.end());
    words.insert(words.end(), b.begin(), b.end());
    for (auto* v : c) words.push_back(b_.CreateBitCast(v, b_.getInt32Ty()));
    auto* memory = stack(kLaneWords);
    store_words(memory, words);
    call("tessera_emu_multiply", b_.getVoidTy(),
         {b_.getInt32(static_cast<uint32_t>(a_dtype)), b_.getInt32(static_cast<uint32_t>(b_dtype)), memory, site()});
    std::array<Value*, 4> out{};
    auto results = load_words(memory, b_.getInt32Ty(), 4);
    for (size_t i = 0; i < 4; ++i) out[i] = b_.CreateBitCast(results[i], c[i]->getType());
    return out;
  }
  std::vector<Value*> load_global(Value* address, llvm::Type* word, int count, Value* predicate,
                                  std::span<Value* const> other, Stability, tile::Caching) override {
    auto read = [&] {
      return load_words(call("tessera_emu_global", pointer(), {address, bytes(word, count), access(kTesseraEmuRead)}),
                        word, count);
    };
    if (!predicate) return read();
    auto* before = b_.GetInsertBlock();
    std::vector<Value*> words;
    auto* after = guarded(predicate, [&] { words = read(); });
    std::vector<Value*> result;
    for (int i = 0; i < count; ++i) {
      auto* phi = b_.CreatePHI(word, 2);
      phi->addIncoming(words[static_cast<size_t>(i)], after);
      phi->addIncoming(other.empty() ? llvm::Constant::getNullValue(word) : other[static_cast<size_t>(i)], before);
      result.push_back(phi);
    }
    return result;
  }
  void store_global(Value* address, std::span<Value* const> words, Value* predicate, bool) override {
    guarded(predicate, [&] {
      store_words(call("tessera_emu_global", pointer(),
                       {address, bytes(words[0]->getType(), static_cast<int>(words.size())), access(kTesseraEmuWrite)}),
                  words);
    });
  }
  void atomic(llvm::AtomicRMWInst::BinOp kind, Value* address, std::span<Value* const> values,
              Value* predicate) override {
    guarded(predicate, [&] {
      const auto size = static_cast<uint32_t>(values[0]->getType()->getPrimitiveSizeInBits().getFixedValue() / 8);
      auto* at = call("tessera_emu_global", pointer(),
                      {address, b_.getInt32(size * static_cast<uint32_t>(values.size())), access(kTesseraEmuAtomic)});
      for (size_t i = 0; i < values.size(); ++i)
        b_.CreateAtomicRMW(kind, b_.CreateConstGEP1_64(values[i]->getType(), at, i), values[i], llvm::MaybeAlign(),
                           llvm::AtomicOrdering::Monotonic);
    });
  }

  void prefetch(Value*, Value*) override {}

  void copy_async(Value* offset, Value* address, int bytes, Value* exists, Value* predicate, tile::Caching) override {
    auto* read = exists ? number(exists) : b_.getInt32(1);
    guarded(predicate, [&] {
      call("tessera_emu_copy_async", b_.getVoidTy(),
           {offset, address, b_.getInt32(static_cast<uint32_t>(bytes)), read});
    });
  }
  void commit_copies() override { call("tessera_emu_commit_copies", b_.getVoidTy(), {}); }
  void wait_for_copies(int later) override {
    call("tessera_emu_wait_for_copies", b_.getVoidTy(), {b_.getInt32(static_cast<uint32_t>(later))});
  }

  Value* arrive(Value* counter, Value* amount, Value* predicate) override {
    auto* before = b_.GetInsertBlock();
    Value* sum = nullptr;
    auto* after = guarded(predicate, [&] {
      sum = call("tessera_emu_arrive", b_.getInt32Ty(), {counter, amount, b_.getInt32(0)});
    });
    if (!predicate) return sum;
    auto* phi = b_.CreatePHI(b_.getInt32Ty(), 2);
    phi->addIncoming(sum, after);
    phi->addIncoming(b_.getInt32(0), before);
    return phi;
  }
  void grid_barrier(Value* counter, Value* amount, Value* predicate) override {
    guarded(predicate, [&] { call("tessera_emu_arrive", b_.getInt32Ty(), {counter, amount, b_.getInt32(1)}); });
  }

  void send(Value* address, std::span<Value* const> payload, Value* predicate) override {
    guarded(predicate, [&] {
      call("tessera_emu_send", b_.getVoidTy(), {address, payload[0], payload[1], payload[2]});
    });
  }
  // Threads of a block run one after another up to where they wait: all must have sent before any waits.
  void await_packet(Value* address, Value* predicate) override {
    barrier();
    guarded(predicate, [&] { call("tessera_emu_await", b_.getVoidTy(), {address}); });
    call("tessera_emu_warp_barrier", b_.getVoidTy(), {site()});
  }
  std::vector<Value*> receive(Value* address, Value* predicate) override {
    auto* i32 = b_.getInt32Ty();
    auto* payload = stack(kLaneWords);
    store_words(payload, std::vector<Value*>(3, b_.getInt32(0)));
    guarded(predicate, [&] { call("tessera_emu_receive", b_.getVoidTy(), {address, payload}); });
    return load_words(payload, i32, 3);
  }

  void report(Value* report, std::span<Value* const> words) override {
    for (size_t i = 0; i < words.size(); ++i)
      b_.CreateAtomicRMW(llvm::AtomicRMWInst::UMax, b_.CreateConstGEP1_64(b_.getInt64Ty(), report, i), words[i],
                         llvm::Align(8), llvm::AtomicOrdering::Monotonic);
  }

private:
  static constexpr int kLaneWords = 10; // operands of a product

  llvm::Type* pointer() { return llvm::PointerType::get(module_.getContext(), 0); }
  Value* access(TesseraEmuAccess a) { return b_.getInt32(static_cast<uint32_t>(a)); }
  Value* bytes(llvm::Type* word, int count) { return b_.getInt32(static_cast<uint32_t>(word_bytes(word) * count)); }
  Value* truth(Value* v) { return b_.CreateICmpNE(v, b_.getInt32(0)); }
};

} // namespace

std::unique_ptr<NumberIntrinsics> emulated_numbers(llvm::Module& module, llvm::IRBuilder<>& builder) {
  return std::make_unique<EmulatedNumbers>(module, builder);
}
std::unique_ptr<Intrinsics> emulated_intrinsics(llvm::Module& module, llvm::IRBuilder<>& builder) {
  return std::make_unique<EmulatedIntrinsics>(module, builder);
}

} // namespace tessera::gpu
