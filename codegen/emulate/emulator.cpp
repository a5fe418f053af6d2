#include "codegen/emulate/emulator.h"
#include "codegen/emulate/grid.h"

namespace tessera {

struct EmulatedProgram::Code {
  tile::Kernel kernel;
  EmulatedKernel compiled;
  std::shared_ptr<const HostCode> module;
  EmulatedKernelFn function = nullptr;
  bool cooperative = false, waits = false; // blocks arrive at counters or exchange partials; blocks wait for others
};

// The functions of emulated_abi.h by name; no library exports them.
static std::vector<HostSymbol> emulator_functions() {
#define TESSERA_EMULATED(function)                                                                                     \
  { #function, reinterpret_cast < const void*>(&(function)) }
  return {TESSERA_EMULATED(tessera_emu_thread_index),
          TESSERA_EMULATED(tessera_emu_block_index),
          TESSERA_EMULATED(tessera_emu_block_count),
          TESSERA_EMULATED(tessera_emu_barrier),
          TESSERA_EMULATED(tessera_emu_barrier_or),
          TESSERA_EMULATED(tessera_emu_shuffle),
          TESSERA_EMULATED(tessera_emu_ballot),
          TESSERA_EMULATED(tessera_emu_warp_barrier),
          TESSERA_EMULATED(tessera_emu_shared),
          TESSERA_EMULATED(tessera_emu_global),
          TESSERA_EMULATED(tessera_emu_load_matrices),
          TESSERA_EMULATED(tessera_emu_multiply),
          TESSERA_EMULATED(tessera_emu_copy_async),
          TESSERA_EMULATED(tessera_emu_commit_copies),
          TESSERA_EMULATED(tessera_emu_wait_for_copies),
          TESSERA_EMULATED(tessera_emu_arrive),
          TESSERA_EMULATED(tessera_emu_send),
          TESSERA_EMULATED(tessera_emu_await),
          TESSERA_EMULATED(tessera_emu_receive),
          TESSERA_EMULATED(tessera_emu_async_init_barrier),
          TESSERA_EMULATED(tessera_emu_async_fence_barrier_init),
          TESSERA_EMULATED(tessera_emu_async_arrive_barrier),
          TESSERA_EMULATED(tessera_emu_async_arrive_at_block),
          TESSERA_EMULATED(tessera_emu_async_arrive_after_copies),
          TESSERA_EMULATED(tessera_emu_async_cluster_barrier),
          TESSERA_EMULATED(tessera_emu_async_wait_barrier),
          TESSERA_EMULATED(tessera_emu_async_copy_tensor),
          TESSERA_EMULATED(tessera_emu_async_multicast_tensor),
          TESSERA_EMULATED(tessera_emu_async_store_tensor),
          TESSERA_EMULATED(tessera_emu_async_commit_stores),
          TESSERA_EMULATED(tessera_emu_async_wait_for_stores),
          TESSERA_EMULATED(tessera_emu_async_fence),
          TESSERA_EMULATED(tessera_emu_async_begin_products),
          TESSERA_EMULATED(tessera_emu_async_multiply_warpgroup),
          TESSERA_EMULATED(tessera_emu_async_commit_products),
          TESSERA_EMULATED(tessera_emu_async_wait_for_products),
          TESSERA_EMULATED(tessera_emu_async_set_registers),
          TESSERA_EMULATED(tessera_emu_async_join),
          TESSERA_EMULATED(tessera_emu_elect),
          TESSERA_EMULATED(tessera_emu_store_matrices)};
#undef TESSERA_EMULATED
}

Result<EmulatedProgram> EmulatedProgram::compile(const tile::Kernel& kernel, const GpuTarget& target) {
  TESSERA_ASSIGN(auto compiled, compile_emulated_kernel(kernel, target));
  return link(kernel, std::move(compiled));
}

Result<EmulatedProgram> EmulatedProgram::link(const tile::Kernel& kernel, EmulatedKernel compiled) {
  auto code = std::make_shared<Code>();
  code->kernel = kernel;
  code->compiled = std::move(compiled);
  code->waits = tile::needs_cooperative_launch(kernel);
  for (tile::OpId id = 0; id < kernel.op_count(); ++id)
    code->cooperative =
        code->cooperative || kernel.op(id).kind == tile::OpKind::Arrive || tile::waits_for_programs(kernel.op(id));
  auto functions = emulator_functions();
  TESSERA_ASSIGN(code->module, link_host_objects({&code->compiled.object, 1}, functions));
  code->function = reinterpret_cast<EmulatedKernelFn>(code->module->address(code->compiled.object.symbol));
  TESSERA_CHECK(code->function != nullptr, "kernel " + kernel.name + " was not linked");
  EmulatedProgram p;
  p.code_ = std::move(code);
  return p;
}

// As ptxas gives them to each thread of a block: its share of the registers of a multiprocessor, as a multiple
// of 8.
static int registers_at_launch(int64_t registers, int threads, int64_t blocks) {
  constexpr int64_t kUnit = 8, kMaxRegisters = 256;
  return static_cast<int>(
      std::min(registers / (threads * std::max<int64_t>(1, blocks)) / kUnit * kUnit, kMaxRegisters));
}

int EmulatedProgram::threads() const { return code_->compiled.threads; }
int EmulatedProgram::cluster() const { return code_->compiled.cluster; }
int64_t EmulatedProgram::shared_bytes() const { return code_->compiled.shared_bytes; }

Result<EmulateResult> EmulatedProgram::run(std::span<const tile::Argument> args, Grid grid,
                                           const EmulateOptions& options) const {
  TESSERA_ASSIGN(auto memory, emu::GlobalMemory::make(code_->kernel, args));
  IndexReport report;
  IndexReport* report_address = &report;
  auto arguments = memory.launch_arguments(report_address);
  std::vector<emu::TensorMap> maps;
  for (const auto& m : code_->compiled.tensor_maps) {
    TESSERA_ASSIGN(auto map, emu::TensorMap::make(m, code_->kernel, args, memory));
    maps.push_back(std::move(map));
  }
  for (auto& m : maps) arguments.push_back(&m);
  emu::Launch launch;
  launch.kernel = code_->kernel.name;
  launch.function = code_->function;
  launch.grid = grid;
  launch.args = arguments.data();
  launch.threads = code_->compiled.threads;
  launch.cluster = code_->compiled.cluster;
  launch.shared_bytes = code_->compiled.shared_bytes;
  launch.asynchronous = code_->compiled.asynchronous;
  if (auto blocks = code_->kernel.config.find("min_blocks"); blocks != code_->kernel.config.end())
    launch.launch_registers = registers_at_launch(options.registers, launch.threads, blocks->second);
  launch.memory = &memory;
  std::optional<emu::Cooperation> cooperation;
  if (code_->cooperative)
    launch.cooperation =
        &cooperation.emplace(grid.programs(), memory.written_bytes(), options.detect_races, code_->waits);
  launch.seed = options.seed;
  launch.poison_shared = options.poison_shared;
  launch.detect_races = options.detect_races;
  launch.ignored_barrier = options.ignored_barrier;
  TESSERA_ASSIGN(auto result, emu::run_grid(launch));
  memory.copy_back();
  result.report = report;
  return result;
}

Result<EmulateResult> emulate(const tile::Kernel& kernel, std::span<const tile::Argument> args, Grid grid,
                              const GpuTarget& target, const EmulateOptions& options) {
  TESSERA_ASSIGN(auto program, EmulatedProgram::compile(kernel, target));
  return program.run(args, grid, options);
}

} // namespace tessera
