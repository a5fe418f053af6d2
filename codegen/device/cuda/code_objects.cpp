#include "codegen/device/cuda/code_objects.h"
#include "base/guarded.h"
#include "base/stopwatch.h"
#include "codegen/llvm/host_compiler.h"
#include <algorithm>
#include <utility>

namespace tessera {
namespace {

int64_t number(const tile::Kernel& k, const char* name) {
  auto it = k.config.find(name);
  return it == k.config.end() ? 0 : it->second;
}

} // namespace

ObjectCompiler::ObjectCompiler(const GpuTarget& target, const GpuKernelOptions& gpu, Cache& cache, bool keep_ir,
                               const std::function<bool()>& cancelled, int64_t registers, int64_t thread_registers)
    : target_(target), gpu_(gpu), arch_(gpu.assemble_for.empty() ? target.arch : gpu.assemble_for), cache_(cache),
      keep_ir_(keep_ir), cancelled_(cancelled), registers_(registers), thread_registers_(thread_registers),
      seed_(hash128(gpu_compiler_version(target) + " " + std::string(code_digest()) + "; " +
                    (gpu.assembler ? gpu.assembler->version() + " for " + arch_ : "PTX alone"))
                .lo) {}

void ObjectCompiler::make(MadeObject& m) const {
  const Status done = guarded({"compiling kernel", m.first_user}, [&]() -> Status {
    make_guarded(m);
    return {};
  });
  if (!done.ok()) m.error = done.error();
}

void ObjectCompiler::make_guarded(MadeObject& m) const {
  const Stopwatch watch;
  if (cancelled_ && cancelled_()) {
    m.error = Diagnostic(ErrorCode::Cancelled, "the compile was given up");
    return;
  }
  if (!keep_ir_ && from_cache(m)) {
    m.cached = true;
  } else {
    compile(m);
    // A failed assembly is not cached.
    if (!m.error && !m.not_assembled) store(m);
  }
  m.ms = watch.ms();
}

void ObjectCompiler::store(const MadeObject& m) const {
  const std::vector<char> bytes = cuda::encode(m.object);
  cache_.store(EntryKind::Kernel, m.key, kernel_origin(gpu_compiler_version(target_), m.first_user),
               {bytes.data(), bytes.size()});
}
bool ObjectCompiler::from_cache(MadeObject& m) const {
  auto bytes = cache_.find(EntryKind::Kernel, m.key);
  if (!bytes) return false;
  auto object = cuda::decode(*bytes);
  if (!object || object->symbol != m.kernel->name || object->cubin.empty() != (gpu_.assembler_of(*object) == nullptr))
    return false;
  m.object = std::move(*object);
  return true;
}

// Spills cost time, and so do missing resident blocks: 72 bytes of spills per thread cost as much as all blocks (37
// kernels on an H200, docs/ptx.md). The least sum is taken, of few kernels, since assembling one takes long: with
// divisions inline, because calls save registers, and with the most blocks that spill nothing, found by bisection.
void ObjectCompiler::compile(MadeObject& m) const {
  constexpr double kBytes = 72;
  constexpr size_t kMaxAssembled = 256 << 10; // bytes of PTX of all further attempts
  compile(*m.kernel, m);
  if (m.object.spill_bytes <= 0) return;
  const int64_t all = std::max<int64_t>(1, number(*m.kernel, "min_blocks"));
  double least = m.object.spill_bytes / kBytes;
  auto gone = [&](int64_t blocks) { return static_cast<double>(all - blocks) / static_cast<double>(all); };
  // True if it spills nothing. Another text than `m` has is taken where its sum is less.
  auto attempt = [&](int64_t blocks, bool inlined) {
    tile::Kernel relaxed = *m.kernel;
    if (blocks < all) relaxed.config["min_blocks"] = blocks;
    if (inlined) relaxed.config["inline_division"] = 1;
    MadeObject other;
    other.first_user = m.first_user;
    compile(relaxed, other, &m.object.ptx);
    if (other.error || other.not_assembled || other.object.spill_bytes < 0) return false;
    if (const double sum = gone(blocks) + other.object.spill_bytes / kBytes; sum < least) {
      least = sum;
      m.object = std::move(other.object);
      m.llvm_ir = std::move(other.llvm_ir);
      return m.object.spill_bytes == 0;
    }
    return other.object.spill_bytes == 0;
  };
  const double with_calls = least;
  size_t room = kMaxAssembled;
  auto left = [&] {
    const size_t bytes = m.object.ptx.size();
    return std::exchange(room, room - std::min(room, bytes)) >= bytes;
  };
  if (!left() || attempt(all, true)) return;
  const bool inlined = least < with_calls;
  // Fewer blocks than this leave a thread no more registers: it has all that it may have.
  const int64_t enough = registers_ / (int64_t{m.object.threads} * thread_registers_);
  int64_t low = std::max<int64_t>({1, number(*m.kernel, "least_blocks"), enough}), high = all;
  while (low < high && gone(low) >= least) ++low;
  while (low < high && left()) {
    const int64_t blocks = (low + high) / 2;
    if (attempt(blocks, inlined))
      low = blocks + 1;
    else
      high = blocks;
  }
}

// Not assembled where the text is `known`.
void ObjectCompiler::compile(const tile::Kernel& kernel, MadeObject& m, const std::string* known) const {
  auto code = compile_gpu_kernel(kernel, target_, keep_ir_);
  if (!code) {
    m.error = Diagnostic(code.error()).note("while compiling kernel " + m.first_user);
    return;
  }
  auto& o = m.object;
  o.symbol = code->symbol;
  o.ptx_arch = target_.arch;
  o.ptx = std::move(code->ptx);
  o.threads = code->threads;
  o.cluster = code->cluster;
  o.shared_bytes = code->shared_bytes;
  o.dependent_launch = code->dependent_launch;
  o.tensor_maps = std::move(code->tensor_maps);
  m.llvm_ir = std::move(code->llvm_ir);
  const cuda::Assembler* assembler = gpu_.assembler_of(o);
  if (assembler == nullptr || (known && *known == o.ptx)) return;
  auto cubin = guarded({"assembling kernel", m.first_user}, [&] {
    failure_point("assemble");
    return assembler->assemble(o.ptx, arch_);
  });
  if (!cubin) {
    m.not_assembled = cubin.error();
    return;
  }
  o.cubin_arch = arch_;
  o.cubin = std::move(cubin->bytes);
  o.registers = cubin->registers;
  o.spill_bytes = cubin->spill_bytes;
  o.stack_bytes = cubin->stack_bytes;
  o.assembler = assembler->version();
}

} // namespace tessera
