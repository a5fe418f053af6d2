// Intrinsics as PTX. Inline assembly is used for operations without LLVM intrinsic and for predicated accesses: a
// predicate on the instruction avoids branches, so that all loads of a tile are in flight at once.
#include "base/check.h"
#include "codegen/llvm/gpu_intrinsics.h"
#include "codegen/llvm/gpu_ptx.h"
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

namespace tessera::gpu {
namespace {

namespace ID = llvm::Intrinsic;

using ptx::assembly, ptx::call_assembly, ptx::is_true, ptx::kGlobal, ptx::operands, ptx::register_class;

constexpr uint32_t kAllLanes = 0xffffffff;

std::string vector_suffix(int count) { return count == 1 ? "" : ".v" + std::to_string(count); }
std::string type_suffix(llvm::Type* word) { return ".b" + std::to_string(word->getIntegerBitWidth()); }

bool has_policy(tile::Caching c) { return c == tile::Caching::EvictLast || c == tile::Caching::EvictFirst; }

class NvptxNumbers final : public NumberIntrinsics {
public:
  NvptxNumbers(llvm::Module& module, llvm::IRBuilder<>& builder, bool small_floats)
      : NumberIntrinsics(module, builder), small_floats_(small_floats) {}

  Value* ex2_ftz(Value* x) override { return b_.CreateIntrinsic(ID::nvvm_ex2_approx_ftz_f, {}, {x}); }
  Value* lg2(Value* x) override { return b_.CreateIntrinsic(ID::nvvm_lg2_approx_f, {}, {x}); }
  Value* rcp(Value* x) override { return assembly(b_, "rcp.approx.f32 $0, $1;", "=f,f", b_.getFloatTy(), {x}, false); }
  Value* rcp_ftz(Value* x) override { return b_.CreateIntrinsic(ID::nvvm_rcp_approx_ftz_f, {}, {x}); }
  Value* rsqrt(Value* x) override { return b_.CreateIntrinsic(ID::nvvm_rsqrt_approx_f, {}, {x}); }
  Value* fma_saturated(Value* a, Value* b, Value* c) override {
    return assembly(b_, "fma.rn.sat.f32 $0, $1, $2, $3;", "=f,f,f,f", b_.getFloatTy(), {a, b, c}, false);
  }
  Value* to_integer(Value* x, unsigned bits, bool is_signed) override {
    // Assembly, because LLVM takes its intrinsics for fptosi and fptoui, which have no value beyond the type: of an
    // integer that was converted to a float and back only the low bits were left.
    const std::string type = (is_signed ? ".s" : ".u") + std::to_string(bits);
    const std::string from = x->getType()->isFloatTy() ? ".f32" : ".f64";
    auto* to = b_.getIntNTy(bits);
    return assembly(b_, "cvt.rzi" + type + from + " $0, $1;",
                    "=" + register_class(to) + "," + register_class(x->getType()), to, {x}, false);
  }
  Value* to_bf16(Value* x) override {
    return b_.CreateBitCast(b_.CreateIntrinsic(ID::nvvm_f2bf16_rn, {}, {x}), b_.getInt16Ty());
  }
  // Assembly, so that the pair stays one word until it is stored: LLVM would split a vector.
  Value* pack_bf16(Value* low, Value* high) override {
    return assembly(b_, "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f", b_.getInt32Ty(), {high, low}, false);
  }
  Value* pack_f16(Value* low, Value* high) override {
    return assembly(b_, "cvt.rn.f16x2.f32 $0, $1, $2;", "=r,f,f", b_.getInt32Ty(), {high, low}, false);
  }

  Value* pack_small_floats(DType d, Value* low, Value* high) override {
    if (!small_floats_) return nullptr;
    return assembly(b_, "cvt.rn.satfinite." + std::string(ptx::factor_type(d)) + "x2.f32 $0, $1, $2;", "=h,f,f",
                    b_.getInt16Ty(), {high, low}, false);
  }
  Value* small_floats_as_f16(DType d, Value* pair) override {
    if (!small_floats_) return nullptr;
    return assembly(b_, "cvt.rn.f16x2." + std::string(ptx::factor_type(d)) + "x2 $0, $1;", "=r,h", b_.getInt32Ty(),
                    {pair}, false);
  }

  // Assembly, because LLVM expands the intrinsic to four instructions.
  Value* funnel_shift(Value* low, Value* high, Value* shift) override {
    return assembly(b_, "shf.r.wrap.b32 $0, $1, $2, $3;", "=r,r,r,r", b_.getInt32Ty(), {low, high, shift}, false);
  }

  Value* library_call(std::string_view name, std::span<Value* const> args) override {
    auto* type = args[0]->getType();
    std::string symbol = "__nv_" + std::string(name) + (type->isFloatTy() ? "f" : "");
    std::vector<llvm::Type*> types(args.size(), type);
    auto callee = module_.getOrInsertFunction(symbol, llvm::FunctionType::get(type, types, false));
    return b_.CreateCall(callee, std::vector<Value*>(args.begin(), args.end()));
  }

private:
  const bool small_floats_;
};

class NvptxIntrinsics final : public Intrinsics {
public:
  NvptxIntrinsics(llvm::Module& module, llvm::IRBuilder<>& builder, bool dependent_launch)
      : Intrinsics(module, builder), dependent_launch_(dependent_launch) {}

  KernelFunction begin(const tile::Kernel& kernel, int threads, std::span<const KernelTensorMap> tensor_maps) override {
    auto& ctx = module_.getContext();
    auto* global = llvm::PointerType::get(ctx, kGlobal);
    std::vector<llvm::Type*> types;
    for (const auto& p : kernel.params) types.push_back(param_type(p.type, global));
    types.push_back(global);
    types.insert(types.end(), tensor_maps.size(), llvm::PointerType::get(ctx, 0));
    KernelFunction k;
    k.function = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), types, false),
                                        llvm::Function::ExternalLinkage, kernel.name, module_);
    k.function->setCallingConv(llvm::CallingConv::PTX_Kernel);
    k.function->addFnAttr(llvm::Attribute::NoUnwind);
    for (size_t i = 0; i < kernel.params.size(); ++i) {
      auto* a = k.function->getArg(static_cast<unsigned>(i));
      a->setName(kernel.params[i].name);
      if (kernel.params[i].type.kind == tile::Type::Kind::Pointer)
        a->addAttr(llvm::Attribute::getWithAlignment(
            ctx, llvm::Align(static_cast<uint64_t>(kernel.params[i].alignment & -kernel.params[i].alignment))));
    }
    b_.SetInsertPoint(llvm::BasicBlock::Create(ctx, "entry", k.function));
    if (dependent_launch_) wait_for_predecessors();
    for (size_t i = 0; i < kernel.params.size(); ++i) {
      Value* v = k.function->getArg(static_cast<unsigned>(i));
      if (kernel.params[i].type.kind == tile::Type::Kind::Data && kernel.params[i].type.dtype == DType::Bool)
        v = b_.CreateICmpNE(v, b_.getInt8(0));
      if (dependent_launch_ && kernel.params[i].invariant) v = after_wait(v);
      k.params.push_back(v);
    }
    k.report = k.function->getArg(static_cast<unsigned>(kernel.params.size()));
    auto* annotations = module_.getOrInsertNamedMetadata("nvvm.annotations");
    auto annotate = [&](const char* what, int value) {
      annotations->addOperand(
          llvm::MDNode::get(ctx, {llvm::ValueAsMetadata::get(k.function), llvm::MDString::get(ctx, what),
                                  llvm::ConstantAsMetadata::get(b_.getInt32(static_cast<uint32_t>(value)))}));
    };
    annotate("kernel", 1);
    annotate("reqntidx", threads);
    if (auto it = kernel.config.find("min_blocks"); it != kernel.config.end() && it->second > 0)
      annotate("minctasm", static_cast<int>(std::min<int64_t>(it->second, 32)));
    if (!tensor_maps.empty()) k.tensor_maps = take_tensor_maps(k, *annotations);
    threads_ = threads;
    return k;
  }
  void finish(int64_t) override {}

  Value* thread_index() override {
    auto* v = b_.CreateIntrinsic(ID::nvvm_read_ptx_sreg_tid_x, {}, {});
    v->setMetadata(llvm::LLVMContext::MD_range, range(static_cast<uint32_t>(threads_)));
    return v;
  }
  Value* other_thread_index() override { return assembly(b_, "mov.u32 $0, %tid.x;", "=r", b_.getInt32Ty(), {}, true); }
  Value* of_grid(GridValue what, int axis) override {
    constexpr std::array kIndices = {ID::nvvm_read_ptx_sreg_ctaid_x, ID::nvvm_read_ptx_sreg_ctaid_y,
                                     ID::nvvm_read_ptx_sreg_ctaid_z};
    constexpr std::array kCounts = {ID::nvvm_read_ptx_sreg_nctaid_x, ID::nvvm_read_ptx_sreg_nctaid_y,
                                    ID::nvvm_read_ptx_sreg_nctaid_z};
    const auto at = static_cast<size_t>(axis);
    const uint32_t least = what == GridValue::Count ? 1 : 0;
    auto* v = b_.CreateIntrinsic(what == GridValue::Count ? kCounts[at] : kIndices[at], {}, {});
    v->setMetadata(llvm::LLVMContext::MD_range, range(static_cast<uint32_t>(kMaxGrid[at]) + least, least));
    return b_.CreateZExt(v, b_.getInt64Ty());
  }

  void barrier() override { b_.CreateIntrinsic(ID::nvvm_barrier0, {}, {}); }
  Value* barrier_any(Value* predicate) override {
    auto* any = b_.CreateIntrinsic(ID::nvvm_barrier0_or, {}, {b_.CreateZExt(predicate, b_.getInt32Ty())});
    return b_.CreateICmpNE(any, b_.getInt32(0));
  }
  Value* shuffle_word(Value* word, Value* lane) override {
    return b_.CreateIntrinsic(ID::nvvm_shfl_sync_idx_i32, {}, {b_.getInt32(kAllLanes), word, lane, b_.getInt32(31)});
  }
  Value* shuffle_xor_word(Value* word, int mask) override {
    return b_.CreateIntrinsic(
        ID::nvvm_shfl_sync_bfly_i32, {},
        {b_.getInt32(kAllLanes), word, b_.getInt32(static_cast<uint32_t>(mask)), b_.getInt32(31)});
  }
  Value* vote_any(Value* p) override {
    return b_.CreateIntrinsic(ID::nvvm_vote_any_sync, {}, {b_.getInt32(kAllLanes), p});
  }
  Value* vote_all(Value* p) override {
    return b_.CreateIntrinsic(ID::nvvm_vote_all_sync, {}, {b_.getInt32(kAllLanes), p});
  }
  Value* ballot(Value* p) override {
    return b_.CreateIntrinsic(ID::nvvm_vote_ballot_sync, {}, {b_.getInt32(kAllLanes), p});
  }

  std::vector<Value*> load_shared(Value* offset, llvm::Type* word, int count) override {
    return plain_load(shared_address(offset), word, count);
  }
  void store_shared(Value* offset, std::span<Value* const> words, Value* predicate) override {
    store("shared", shared_address(offset), words, predicate);
  }
  std::vector<Value*> load_matrices(Value* offset, int count, bool transposed) override {
    ID::ID id = count == 4 ? (transposed ? ID::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16
                                         : ID::nvvm_ldmatrix_sync_aligned_m8n8_x4_b16)
                           : (transposed ? ID::nvvm_ldmatrix_sync_aligned_m8n8_x2_trans_b16
                                         : ID::nvvm_ldmatrix_sync_aligned_m8n8_x2_b16);
    auto* address = shared_address(offset);
    auto* all = b_.CreateIntrinsic(id, {address->getType()}, {address});
    std::vector<Value*> words;
    for (int i = 0; i < count; ++i) words.push_back(b_.CreateExtractValue(all, static_cast<unsigned>(i)));
    return words;
  }
  std::array<Value*, 4> multiply(DType a_dtype, DType b_dtype, const std::array<Value*, 4>& a,
                                 const std::array<Value*, 2>& b, const std::array<Value*, 4>& c) override {
    const bool integers = !is_float(a_dtype);
    const std::string sum = integers ? ".s32" : ".f32";
    std::vector<Value*> args(a.begin(), a.end());
    args.insert(args.end(), b.begin(), b.end());
    args.insert(args.end(), c.begin(), c.end());
    auto* word = c[0]->getType();
    auto* all = llvm::cast<llvm::CallInst>(
        assembly(b_,
                 "mma.sync.aligned.m16n8k" + std::to_string(256 / info(a_dtype).bits) + ".row.col" + sum + "." +
                     std::string(ptx::factor_type(a_dtype)) + "." + std::string(ptx::factor_type(b_dtype)) + sum +
                     " {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
                 integers ? "=r,=r,=r,=r,r,r,r,r,r,r,r,r,r,r" : "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f",
                 llvm::StructType::get(word, word, word, word), std::move(args), false));
    all->setConvergent();
    std::array<Value*, 4> out{};
    for (unsigned i = 0; i < 4; ++i) out[i] = b_.CreateExtractValue(all, i);
    return out;
  }
  std::vector<Value*> load_global(Value* address, llvm::Type* word, int count, Value* predicate,
                                  std::span<Value* const> other, Stability stability, tile::Caching caching) override {
    const bool always = is_true(predicate), policy = has_policy(caching);
    const bool invariant = stability == Stability::Invariant, coherent = !invariant || dependent_launch_;
    if (always && caching == tile::Caching::Normal && (!invariant || !coherent))
      return plain_load(address, word, count, stability);
    // @p ld.global.v4.b32 {$0, $1, $2, $3}, [$8];   with $4 .. $7 tied to the results
    bool byte = word->isIntegerTy(8);
    auto* type = byte ? b_.getInt16Ty() : word; // the smallest register has 16 bits
    const int at = always ? count : 2 * count;
    std::string text = always ? "" : "@$" + std::to_string(at + 1 + policy) + " ";
    text += "ld.global";
    if (!coherent) text += ".nc";
    if (caching == tile::Caching::NoAllocate) text += ".L1::no_allocate";
    if (policy) text += ".L2::cache_hint";
    text += vector_suffix(count) + type_suffix(word) + " " + operands(count, 0) + ", [$" + std::to_string(at) + "]";
    text += policy ? ", $" + std::to_string(at + 1) + ";" : ";";
    std::string constraints;
    std::vector<llvm::Type*> types;
    std::vector<Value*> args;
    for (int i = 0; i < count; ++i) constraints += (i ? ",=" : "=") + register_class(type);
    for (int i = 0; i < count && !always; ++i) {
      constraints += "," + std::to_string(i);
      Value* o = other.empty() ? llvm::Constant::getNullValue(type) : other[static_cast<size_t>(i)];
      args.push_back(byte && !other.empty() ? b_.CreateZExt(o, type) : o);
    }
    constraints += ",l";
    args.push_back(b_.CreatePtrToInt(address, b_.getInt64Ty()));
    if (policy) {
      constraints += ",l";
      args.push_back(policy_of(caching));
    }
    if (!always) {
      constraints += ",b";
      args.push_back(predicate);
    }
    for (auto* a : args) types.push_back(a->getType());
    llvm::Type* result = type;
    if (count > 1)
      result = llvm::StructType::get(module_.getContext(), std::vector<llvm::Type*>(static_cast<size_t>(count), type));
    // Invariant memory may be read earlier or not at all; other accesses keep their order.
    if (!invariant) constraints += ",~{memory}";
    auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(result, types, false), text, constraints, !invariant);
    auto* call = call_assembly(b_, code, args, !invariant);
    std::vector<Value*> words;
    for (int i = 0; i < count; ++i) {
      Value* w = count > 1 ? b_.CreateExtractValue(call, static_cast<unsigned>(i)) : call;
      words.push_back(byte ? b_.CreateTrunc(w, word) : w);
    }
    return words;
  }
  void store_global(Value* address, std::span<Value* const> words, Value* predicate, bool streaming) override {
    store(streaming ? "global.cs" : "global", address, words, predicate);
  }
  void atomic(llvm::AtomicRMWInst::BinOp kind, Value* address, std::span<Value* const> values,
              Value* predicate) override {
    if (values.size() > 1 && dependent_launch_) return add_vector(address, values, predicate);
    for (size_t i = 0; i < values.size(); ++i)
      atomic(kind, b_.CreateConstGEP1_64(values[i]->getType(), address, i), values[i], predicate);
  }
  void add_vector(Value* address, std::span<Value* const> values, Value* predicate) {
    std::string list, constraints = "l,b";
    std::vector<Value*> args = {b_.CreatePtrToInt(address, b_.getInt64Ty()), predicate ? predicate : b_.getTrue()};
    for (size_t i = 0; i < values.size(); ++i) {
      list += (i ? ", $" : "$") + std::to_string(i + 2);
      constraints += "," + register_class(values[i]->getType());
      args.push_back(values[i]);
    }
    assembly(b_, "@$1 red.relaxed.gpu.global.add.v" + std::to_string(values.size()) + ".f32 [$0], {" + list + "};",
             constraints, b_.getVoidTy(), args, true);
  }
  void atomic(llvm::AtomicRMWInst::BinOp kind, Value* address, Value* value, Value* predicate) {
    if (is_true(predicate)) {
      b_.CreateAtomicRMW(kind, address, value, llvm::MaybeAlign(), llvm::AtomicOrdering::Monotonic);
      return;
    }
    auto* type = value->getType();
    using Kind = llvm::AtomicRMWInst;
    const bool is_signed = kind == Kind::Max || kind == Kind::Min;
    const std::string fold = kind == Kind::Max || kind == Kind::UMax   ? ".max"
                             : kind == Kind::Min || kind == Kind::UMin ? ".min"
                                                                       : ".add";
    const std::string suffix = type->isFloatTy() ? ".f32"
                               : type->isDoubleTy()
                                   ? ".f64"
                                   : (is_signed ? ".s" : ".u") + std::to_string(type->getIntegerBitWidth());
    assembly(b_, "@$2 red.relaxed.gpu.global" + fold + suffix + " [$0], $1;", "l," + register_class(type) + ",b",
             b_.getVoidTy(), {b_.CreatePtrToInt(address, b_.getInt64Ty()), value, predicate}, true);
  }

  void prefetch(Value* address, Value* predicate) override {
    assembly(b_, "@$1 prefetch.global.L2 [$0];", "l,b", b_.getVoidTy(),
             {b_.CreatePtrToInt(address, b_.getInt64Ty()), predicate ? predicate : b_.getTrue()}, true);
  }

  // Copies of 16 bytes bypass L1, because no other block of the multiprocessor would reuse the lines. With a cache
  // policy, ptxas 12.9 and 13.0 lose the uniform registers of an address that is a uniform base plus an offset, and the
  // instruction traps; an identity permutation hides the form of the address.
  void copy_async(Value* offset, Value* address, int bytes, Value* exists, Value* predicate,
                  tile::Caching caching) override {
    const bool policy = has_policy(caching);
    std::string text = std::string("cp.async.") + (bytes == 16 ? "cg" : "ca") + ".shared.global" +
                       (policy ? ".L2::cache_hint [place]" : " [$0]") + ", [$1], " + std::to_string(bytes);
    std::string constraints = "r,l";
    std::vector<Value*> args = {b_.CreatePtrToInt(shared_address(offset), b_.getInt32Ty()),
                                b_.CreatePtrToInt(address, b_.getInt64Ty())};
    auto operand = [&](Value* v, const char* constraint) {
      constraints += std::string(",") + constraint;
      args.push_back(v);
      return "$" + std::to_string(args.size() - 1);
    };
    if (!is_true(exists))
      text += ", " + operand(b_.CreateSelect(exists, b_.getInt32(static_cast<uint32_t>(bytes)), b_.getInt32(0)), "r");
    if (policy) text += ", " + operand(policy_of(caching), "l");
    if (!is_true(predicate)) text = "@" + operand(predicate, "b") + " " + text;
    text += ";";
    if (policy) text = "{ .reg .b32 place; prmt.b32 place, $0, 0, 0x3210; " + text + " }";
    assembly(b_, text, constraints, b_.getVoidTy(), std::move(args), true);
  }
  void commit_copies() override { assembly(b_, "cp.async.commit_group;", "", b_.getVoidTy(), {}, true); }
  void wait_for_copies(int later) override {
    assembly(b_, "cp.async.wait_group " + std::to_string(later) + ";", "~{memory}", b_.getVoidTy(), {}, true);
  }

  Value* arrive(Value* counter, Value* amount, Value* predicate) override {
    return assembly(b_,
                    "{ .reg .b32 before; mov.b32 before, 0; @$3 atom.acq_rel.gpu.global.add.u32 before, [$1], $2; "
                    "add.u32 $0, before, $2; }",
                    "=r,l,r,b", b_.getInt32Ty(),
                    {b_.CreatePtrToInt(counter, b_.getInt64Ty()), amount, predicate ? predicate : b_.getTrue()}, true);
  }
  void grid_barrier(Value* counter, Value* amount, Value* predicate) override {
    assembly(b_,
             "{ .reg .b32 before, now; .reg .pred waits; mov.b32 before, 0; mov.b32 now, 0; "
             "@$2 atom.acq_rel.gpu.global.add.u32 before, [$0], $1; "
             "AGAIN: @$2 ld.acquire.gpu.global.u32 now, [$0]; xor.b32 now, now, before; "
             "setp.ge.and.s32 waits, now, 0, $2; @waits bra AGAIN; }",
             "l,r,b", b_.getVoidTy(),
             {b_.CreatePtrToInt(counter, b_.getInt64Ty()), amount, predicate ? predicate : b_.getTrue()}, true);
  }

  void send(Value* address, std::span<Value* const> payload, Value* predicate) override {
    assembly(
        b_,
        "{ .reg .b128 message; .reg .b64 low, high; mov.b64 low, {$1, $2}; mov.b64 high, {$3, $4}; "
        "mov.b128 message, {low, high}; @$5 st.relaxed.gpu.global.b128 [$0], message; }",
        "l,r,r,r,r,b", b_.getVoidTy(),
        {b_.CreatePtrToInt(address, b_.getInt64Ty()), payload[0], payload[1], payload[2], b_.getInt32(1), predicate},
        true);
  }
  void await_packet(Value* address, Value* predicate) override {
    assembly(b_,
             "{ .reg .b32 flag; .reg .pred waits; mov.b32 flag, 1; "
             "AGAIN: @$1 ld.relaxed.gpu.global.u32 flag, [$0 + 12]; "
             "setp.eq.u32 waits, flag, 0; @waits bra AGAIN; bar.warp.sync 0xffffffff; }",
             "l,b", b_.getVoidTy(), {b_.CreatePtrToInt(address, b_.getInt64Ty()), predicate}, true);
  }
  std::vector<Value*> receive(Value* address, Value* predicate) override {
    auto* i32 = b_.getInt32Ty();
    auto* all =
        assembly(b_,
                 "{ .reg .b128 message, nothing; .reg .b64 low, high; .reg .b32 flag; .reg .pred waits; "
                 "mov.b64 low, 0; mov.b64 high, 0; mov.b128 nothing, {low, high}; mov.b128 message, {low, high}; "
                 "AGAIN: @$4 ld.relaxed.gpu.global.b128 message, [$3]; mov.b128 {low, high}, message; "
                 "mov.b64 {$2, flag}, high; setp.eq.and.u32 waits, flag, 0, $4; @waits bra AGAIN; "
                 "mov.b64 {$0, $1}, low; @$4 st.relaxed.gpu.global.b128 [$3], nothing; }",
                 "=&r,=&r,=&r,l,b", llvm::StructType::get(i32, i32, i32),
                 {b_.CreatePtrToInt(address, b_.getInt64Ty()), predicate}, true);
    std::vector<Value*> numbers;
    for (unsigned i = 0; i < 3; ++i) numbers.push_back(b_.CreateExtractValue(all, i));
    return numbers;
  }

  // An atomic update of host memory takes long: none where the report has a lower index.
  void report(Value* report, std::span<Value* const> words) override {
    std::string text = "{ .reg .b64 seen; .reg .pred lower; ld.relaxed.gpu.global.u64 seen, [$0]; "
                       "setp.gt.u64 lower, $1, seen; ";
    for (size_t i = 0; i < words.size(); ++i)
      text += "@lower red.relaxed.gpu.global.max.u64 [$0 + " + std::to_string(8 * i) + "], $" + std::to_string(i + 1) +
              "; ";
    std::vector<Value*> operands{b_.CreatePtrToInt(report, b_.getInt64Ty())};
    operands.insert(operands.end(), words.begin(), words.end());
    std::string registers = "l";
    for (size_t i = 0; i < words.size(); ++i) registers += ",l";
    assembly(b_, text + "}", registers, b_.getVoidTy(), operands, true);
  }

private:
  // Parameters behind the report, by value. Without the annotation their use copies them to local memory.
  std::vector<Value*> take_tensor_maps(const KernelFunction& k, llvm::NamedMDNode& annotations) {
    auto& ctx = module_.getContext();
    std::vector<Value*> maps;
    std::vector<llvm::Metadata*> numbers; // from 1 on
    for (unsigned i = llvm::cast<llvm::Argument>(k.report)->getArgNo() + 1; i < k.function->arg_size(); ++i) {
      auto* a = k.function->getArg(i);
      a->addAttr(llvm::Attribute::getWithByValType(ctx, llvm::ArrayType::get(b_.getInt8Ty(), kTensorMapBytes)));
      a->addAttr(llvm::Attribute::getWithAlignment(ctx, llvm::Align(kTensorMapAlignment)));
      maps.push_back(a);
      numbers.push_back(llvm::ConstantAsMetadata::get(b_.getInt32(i + 1)));
    }
    annotations.addOperand(
        llvm::MDNode::get(ctx, {llvm::ValueAsMetadata::get(k.function), llvm::MDString::get(ctx, "grid_constant"),
                                llvm::MDNode::get(ctx, numbers)}));
    return maps;
  }
  // Programmatic dependent launch: the kernel may start while those before it run. It waits until they are complete and
  // their memory is visible. Only then may the next one start, as soon as all blocks of this one have: at most two are
  // in flight, and what earlier kernels wrote is always there.
  //
  // ld.global.nc is for memory that does not change while the kernel runs, waiting included, and ptxas moves it; it
  // keeps ld.global behind the wait. So does LLVM, but for loads of invariant memory, which it moves as far as the
  // address allows: after_wait() makes the address depend on the wait. Assembly with side effects keeps its order.
  void wait_for_predecessors() {
    assembly(b_, "griddepcontrol.wait;", "", b_.getVoidTy(), {}, true);
    assembly(b_, "griddepcontrol.launch_dependents;", "", b_.getVoidTy(), {}, true);
  }
  Value* after_wait(Value* pointer) {
    return assembly(b_, "mov.b64 $0, $1;", "=l,l", pointer->getType(), {pointer}, true);
  }
  llvm::Type* param_type(const tile::Type& t, llvm::Type* pointer) {
    if (t.kind == tile::Type::Kind::Pointer) return pointer;
    switch (t.dtype) {
    case DType::F32: return b_.getFloatTy();
    case DType::F64: return b_.getDoubleTy();
    case DType::F16: return b_.getHalfTy();
    default: return b_.getIntNTy(static_cast<unsigned>(info(t.dtype).bits));
    }
  }
  llvm::MDNode* range(uint32_t end, uint32_t begin = 0) {
    return llvm::MDNode::get(module_.getContext(), {llvm::ConstantAsMetadata::get(b_.getInt32(begin)),
                                                    llvm::ConstantAsMetadata::get(b_.getInt32(end))});
  }
  Value* policy_of(tile::Caching caching) {
    const std::string first_or_last = caching == tile::Caching::EvictLast ? "last" : "first";
    return assembly(b_, "createpolicy.fractional.L2::evict_" + first_or_last + ".b64 $0, 1.0;", "=l", b_.getInt64Ty(),
                    {}, false);
  }
  Value* shared_address(Value* offset) {
    auto* base = ptx::shared_memory(module_, 16);
    // A constant that is added last becomes the immediate offset of the instruction.
    Value* fixed = nullptr;
    if (auto* sum = llvm::dyn_cast<llvm::BinaryOperator>(offset))
      if (sum->getOpcode() == llvm::Instruction::Add && sum->hasNoUnsignedWrap() &&
          llvm::isa<llvm::ConstantInt>(sum->getOperand(1))) {
        offset = sum->getOperand(0);
        fixed = sum->getOperand(1);
      }
    auto* i64 = b_.getInt64Ty();
    auto* address = b_.CreateInBoundsGEP(b_.getInt8Ty(), base, b_.CreateZExt(offset, i64));
    return fixed ? b_.CreateInBoundsGEP(b_.getInt8Ty(), address, b_.CreateZExt(fixed, i64)) : address;
  }
  std::vector<Value*> plain_load(Value* address, llvm::Type* word, int count,
                                 Stability stability = Stability::Varying) {
    llvm::Type* type = word;
    if (count > 1) type = llvm::FixedVectorType::get(word, static_cast<unsigned>(count));
    auto* load = b_.CreateAlignedLoad(
        type, address, llvm::Align(static_cast<uint64_t>(word_bytes(word)) * static_cast<uint64_t>(count)));
    if (stability == Stability::Invariant)
      load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(module_.getContext(), {}));
    if (count == 1) return {load};
    std::vector<Value*> words;
    for (int i = 0; i < count; ++i) words.push_back(b_.CreateExtractElement(load, static_cast<uint64_t>(i)));
    return words;
  }
  void store(const char* space, Value* address, std::span<Value* const> words, Value* predicate) {
    auto* word = words[0]->getType();
    int count = static_cast<int>(words.size());
    bool plain = std::string_view(space).find('.') == std::string_view::npos;
    if (is_true(predicate) && plain) {
      Value* v = words[0];
      if (count > 1) {
        v = llvm::PoisonValue::get(llvm::FixedVectorType::get(word, static_cast<unsigned>(count)));
        for (int i = 0; i < count; ++i)
          v = b_.CreateInsertElement(v, words[static_cast<size_t>(i)], static_cast<uint64_t>(i));
      }
      b_.CreateAlignedStore(v, address,
                            llvm::Align(static_cast<uint64_t>(word_bytes(word)) * static_cast<uint64_t>(count)));
      return;
    }
    bool always = is_true(predicate);
    std::string text = (always ? "" : "@$" + std::to_string(count + 1) + " ") + "st." + space + vector_suffix(count) +
                       type_suffix(word) + " [$" + std::to_string(count) + "], " + operands(count, 0) + ";";
    std::string constraints;
    std::vector<Value*> args;
    for (auto* w : words) {
      if (word->isIntegerTy(8)) w = b_.CreateZExt(w, b_.getInt16Ty());
      constraints += register_class(w->getType()) + ",";
      args.push_back(w);
    }
    args.push_back(b_.CreatePtrToInt(address, b_.getInt64Ty()));
    if (!always) args.push_back(predicate);
    assembly(b_, text, constraints + (always ? "l" : "l,b"), b_.getVoidTy(), args, true);
  }
  const bool dependent_launch_;
  int threads_ = 0;
};

} // namespace

std::unique_ptr<NumberIntrinsics> nvptx_numbers(llvm::Module& module, llvm::IRBuilder<>& builder, bool small_floats) {
  return std::make_unique<NvptxNumbers>(module, builder, small_floats);
}
std::unique_ptr<Intrinsics> nvptx_intrinsics(llvm::Module& module, llvm::IRBuilder<>& builder, bool dependent_launch) {
  return std::make_unique<NvptxIntrinsics>(module, builder, dependent_launch);
}

} // namespace tessera::gpu
