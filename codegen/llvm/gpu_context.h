// State shared by all parts of the emission of a GPU kernel: the kernel with its layouts and analyses, the LLVM
// function, and the registers of each value. Private to codegen/llvm.
#pragma once
#include "codegen/layout/assign.h"
#include "codegen/layout/axis_info.h"
#include "codegen/layout/bounds.h"
#include "codegen/llvm/gpu_compiler.h"
#include "codegen/llvm/gpu_hazards.h"
#include "codegen/llvm/gpu_math.h"
#include "codegen/llvm/gpu_warpgroup_intrinsics.h"

namespace tessera::gpu {

using Registers = std::vector<Value*>; // of one thread, in the order of the tile's layout

struct Context {
  Context(llvm::Module& module, const layout::KernelLayouts& layouts, Code code, const GpuTarget& target);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  // Threads that execute the kernel; of the block, with those that only copy (gpu_ring.h).
  [[nodiscard]] int threads() const { return layouts.warps * layout::kLanes; }
  [[nodiscard]] int block_threads() const {
    return threads() + (layouts.warpgroups ? layout::kWarpsPerGroup * layout::kLanes : 0);
  }

  const layout::KernelLayouts& layouts;
  const tile::Kernel& kernel;
  Math math;
  std::unique_ptr<Intrinsics> gpu;
  Hazards hazards;
  // By value id.
  std::vector<Registers> values;
  std::vector<layout::AxisInfo> facts;
  std::vector<layout::Bounds> bounds;
  std::vector<const tile::Op*> definitions; // null of parameters and region arguments
  // Set by begin().
  llvm::Function* function = nullptr;
  Value *thread = nullptr, *program = nullptr; // i32; i64, the index along axis 0
  Value* report = nullptr;                     // address of the IndexReport
  // For targets with warpgroups.
  std::unique_ptr<WarpgroupIntrinsics> warpgroups;
  std::vector<KernelTensorMap> tensor_maps; // of the kernel; complete before begin()
  std::vector<Value*> map_values;           // of tensor_maps, for `warpgroups`; set by begin()
  bool divided = false; // the code at the insertion point is that of threads() threads, not of the block's
};

// Begins the function, and defines the kernel's parameters.
void begin(Context& context);

// Base of the parts: short names for the context's members.
class Part {
public:
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

protected:
  explicit Part(Context& context)
      : c_(context), kernel_(context.kernel), layouts_(context.layouts), math_(context.math), gpu_(*context.gpu),
        b_(context.math.builder()) {}
  ~Part() = default;

  [[nodiscard]] const Registers& registers(tile::ValueId id) const { return c_.values[static_cast<size_t>(id)]; }
  [[nodiscard]] Registers registers(tile::ValueId id, size_t count) const; // a scalar is repeated `count` times
  [[nodiscard]] size_t register_count(tile::ValueId id) const;             // of a tile's layout; 1 of a scalar
  [[nodiscard]] Value* scalar(tile::ValueId id) const;
  void define(tile::ValueId id, Registers registers) { c_.values[static_cast<size_t>(id)] = std::move(registers); }
  [[nodiscard]] DType dtype_of(tile::ValueId id) const { return kernel_.type(id).dtype; }
  [[nodiscard]] Diagnostic error(const std::string& what) const { return math_.error(what); }

  Context& c_;
  const tile::Kernel& kernel_;
  const layout::KernelLayouts& layouts_;
  Math& math_;
  Intrinsics& gpu_;
  llvm::IRBuilder<>& b_;
};

// Emits operations of any kind; parts with regions or repeated operations call it.
class Operations {
public:
  virtual Status operation(tile::OpId id) = 0;
  Status block(const std::vector<tile::OpId>& ops) {
    for (auto id : ops) TESSERA_TRY(operation(id));
    return {};
  }

protected:
  ~Operations() = default;
};

// Bytes of an element in memory; a bool is a byte.
[[nodiscard]] inline int element_bytes(DType dtype) { return std::max(1, info(dtype).bits / 8); }

[[nodiscard]] Value* disjoint_or(llvm::IRBuilder<>& b, Value* x,
                                 Value* y); // `x` and `y` have no common bit, so this equals their sum
[[nodiscard]] Value* both(llvm::IRBuilder<>& b, Value* x, Value* y); // logical and; null is true
// True if the predicate is a constant false.
[[nodiscard]] bool is_never(const Value* predicate);

} // namespace tessera::gpu
