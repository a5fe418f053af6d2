#include "codegen/llvm/start.h"
#include "base/tensor.h"
#include "codegen/llvm/objects.h"
#include "codegen/llvm/reserve.h"
#include <llvm/IR/IRBuilder.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>

namespace tessera::irgen {

Status StartedOnce::start(const std::function<Status()>& body) {
  std::lock_guard lock(mutex_);
  if (state_ == State::Done) return {};
  if (state_ == State::Begun)
    return Diagnostic(ErrorCode::CodegenError, "LLVM cannot be used: it could not be started before")
        .note("start the process again, with more memory");
  constexpr size_t kRoom = size_t{64} << 20; // bytes; more than initialisation needs
  TESSERA_ASSIGN(auto room, allocate_bytes(kRoom));
  room.reset();
  state_ = State::Begun;
  TESSERA_TRY(body());
  state_ = State::Done;
  return {};
}

namespace {

Status compile_empty_function() {
  llvm::install_bad_alloc_error_handler([](void*, const char*, bool) { throw std::bad_alloc(); });
  throw_fatal_errors();
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  TESSERA_ASSIGN(const ReserveScope reserve, ReserveScope::enter());
  LeakedOnException<llvm::LLVMContext> context;
  LeakedOnException<llvm::Module> module("tessera_start", *context);
  add_empty_function(*module, "tessera_start");
  TESSERA_ASSIGN(auto made, host_machine(HostTarget::detect(), *module));
  LeakedOnException<llvm::TargetMachine> machine(std::move(made));
  TESSERA_TRY(optimize(*module, *machine, kHostPipeline, nullptr));
  TESSERA_ASSIGN([[maybe_unused]] auto object, emit_file(*module, *machine, false));
  return {};
}

} // namespace

Status start_host() {
  static StartedOnce host;
  return host.start(compile_empty_function);
}

void add_empty_function(llvm::Module& module, const std::string& name) {
  llvm::IRBuilder<> b(module.getContext());
  auto* type = llvm::FunctionType::get(b.getVoidTy(), false);
  auto* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
  b.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "", f));
  b.CreateRetVoid();
}

} // namespace tessera::irgen
