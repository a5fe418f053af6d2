// Tile IR to LLVM IR for one host core. Private to codegen/llvm.
//
// A tile becomes a list of parts: LLVM vectors of one natural width (16 lanes with 512-bit vectors), so that masks,
// math calls and legalisation always have a width that the machine supports. Integer tiles that are affine in the lane
// (base + stride * lane) and masks that are true for a prefix of the lanes stay symbolic, and become vectors only when
// their elements are used. So a load finds that it is contiguous.
#pragma once
#include "codegen/llvm/emit_math.h"
#include "codegen/tile/tile.h"

namespace tessera::host {

// The LLVM form of a tile IR value.
struct Val {
  tile::Type type;
  std::vector<llvm::Value*> parts; // elements; empty if only a form below is known
  llvm::Value* splat = nullptr;    // every element is this scalar; also the value of a scalar
  llvm::Value* base = nullptr;     // affine: element l is base + stride * l (i64); of a tile [R, C]
  llvm::Value* stride = nullptr;   // element (r, c) is base + rows * r + stride * c
  llvm::Value* rows = nullptr;
  llvm::Value* prefix = nullptr; // bool tile: lane l is true iff l < prefix (i64)
};

class Emitter final : public VectorMath {
public:
  Emitter(llvm::Module& module, const tile::Kernel& kernel, const HostTarget& target);
  // Emits the function `symbol` with the ABI of HostKernelFn. Error CodegenError for operations and types without host
  // code.
  Status emit(const std::string& symbol);

private:
  // emit.cpp: structure
  Status block(const std::vector<tile::OpId>& ops);
  Status operation(const tile::Op& op);
  Value* argument(llvm::Type* type, Value* at, const std::string& name);
  Value* program_index(int axis);
  Status loop(const tile::Op& op);
  Status branch(const tile::Op& op);

  // emit_tile.cpp: elementwise operations, reductions, products
  Status scalar_op(const tile::Op& op);
  bool affine_op(const tile::Op& op);
  bool prefix_op(const tile::Op& op);
  void broadcast(const tile::Op& op);
  void expand_dims(const tile::Op& op);
  Status reduce(const tile::Op& op);
  Status scan(const tile::Op& op);
  void dot(const tile::Op& op);

  // emit_parts.cpp: parts and forms
  [[nodiscard]] int lanes(const tile::Type& type) const; // lanes of one part
  [[nodiscard]] int part_count(const tile::Type& type) const;
  llvm::Type* part_type(const tile::Type& type);
  std::vector<Value*> parts(tile::ValueId id);                            // as vectors
  std::vector<Value*> tile_parts(tile::ValueId id, int count, int lanes); // the same, scalars broadcast
  Value* scalar(tile::ValueId id);                                        // of a scalar value
  Value* splat_of(tile::ValueId id);                                      // scalar, or splat of a tile, or nullptr
  void define(tile::ValueId id, std::vector<Value*> parts);
  void define_scalar(tile::ValueId id, Value* value);
  // Steps of an affine form: along the lanes of a part, and from one part to the next. Nothing if lanes have no
  // constant step, as in rows that do not fill a part each.
  struct Steps {
    Value *lane = nullptr, *part = nullptr;
  };
  Steps steps_of(const Val& v);
  // Transposes w parts of w elements: element l of part p becomes element p of part l.
  std::vector<Value*> transposed(std::vector<Value*> parts);
  std::vector<Value*> prefix_parts(Value* count, const tile::Type& type);
  Value* any(const std::vector<Value*>& mask_parts); // i1
  Value* any_of(tile::ValueId mask);

  // emit_memory.cpp
  Status load(const tile::Op& op);
  Status store(const tile::Op& op);
  Status atomic(const tile::Op& op);
  void report_index(const tile::Op& op);
  void prefetch(const tile::Op& op);
  Status arrive(const tile::Op& op);
  Value* address(tile::ValueId pointer, Value* offset);
  Value* part_address(tile::ValueId pointer, Value* start, const Val& offset, int p);
  Value* masked_load(llvm::Type* part, Value* at, llvm::Align align, Value* mask, Value* other);
  void masked_store(Value* value, Value* at, llvm::Align align, Value* mask);
  Value* guarded_address(Value* address, Value* condition); // the address of dummy_ if the condition is false

  const tile::Kernel& kernel_;
  int width_; // lanes of a full part
  llvm::Function* fn_ = nullptr;
  std::vector<Val> values_;
  Value* program_ = nullptr;                // its number in the grid, x first
  std::array<Value*, kGridAxes> extents_{}; // of the grid, where tile::uses_grid()
  Value* scratch_base_ = nullptr;
  Value* scratch_used_ = nullptr; // scratch bytes allocated in this program
  Value* error_ = nullptr;
  Value* dummy_ = nullptr;             // 64 readable and writable bytes
  std::vector<tile::ValueId> yielded_; // operands of the last Yield
};

} // namespace tessera::host
