// Tile IR to the LLVM IR of one GPU thread. Private to codegen/llvm.
//
// The idea. codegen/layout says of every tile which elements each thread holds. Here a tile becomes one LLVM value per
// register of its layout, and each operation becomes what one thread does with its registers: pointwise operations
// register by register, accesses of memory in groups of `access_width` neighbours, reductions and scans among
// registers, then lanes (shuffles), then warps (shared memory). Scalars are computed by all threads alike.
//
// Order. Within a program memory operations happen in the order of the text, but threads run on their own. A barrier
// is put where one thread might otherwise see another's memory too early or too late: Hazards (gpu_hazards.h) knows
// what has been touched since the last one.
#pragma once
#include "codegen/layout/assign.h"
#include "codegen/layout/axis_info.h"
#include "codegen/layout/bounds.h"
#include "codegen/layout/conversion.h"
#include "codegen/llvm/arith.h"
#include "codegen/llvm/gpu_hazards.h"
#include "codegen/llvm/gpu_intrinsics.h"
#include <set>

namespace tessera::gpu {

// In memory, shared memory too: a bool is a byte.
[[nodiscard]] inline int element_bytes(DType dtype) { return std::max(1, info(dtype).bits / 8); }

class Emitter final : public irgen::Arithmetic {
public:
  Emitter(llvm::Module& module, const layout::KernelLayouts& layouts, bool emulated);
  // Emits the kernel's function. Error CodegenError for what a GPU cannot do.
  Status emit();
  [[nodiscard]] int threads() const { return layouts_.warps * layout::kLanes; }
  [[nodiscard]] int64_t shared_bytes() const { return hazards_.shared_bytes(); }

  // gpu_math.cpp: where the GPU has something better than the common code.
  Result<Value*> arith(ScalarOp op, DType result, DType argument, std::span<Value* const> args) override;
  Value* cast(Value* v, DType from, DType to) override;
  Value* min_max(bool max, DType dtype, Value* a, Value* b) override;

private:
  using Registers = std::vector<Value*>;

  // gpu_control.cpp
  Status loop(const tile::Op& op);
  Status branch(const tile::Op& op);
  // Registers as they travel from block to block, and back: `count` elements.
  static bool travels_in_words(DType dtype, size_t count);
  Registers to_travel(const Registers& list, DType dtype);
  Registers travelled(const Registers& list, DType dtype, size_t count);
  [[nodiscard]] DType dtype(tile::ValueId id) const { return kernel_.type(id).dtype; }

  // gpu_emit.cpp: structure and what needs no other thread
  Status block(const std::vector<tile::OpId>& ops);
  Status operation(tile::OpId id);
  Status scalar_op(const tile::Op& op);
  void range(const tile::Op& op);
  // Bits of a register's number that an index or mask does not depend on, by what is known of its elements: x / 120 is
  // one number for 8 neighbours, and is computed once.
  [[nodiscard]] int constant_bits(tile::ValueId id) const;
  std::optional<Registers> one_plus(const tile::Op& op);
  Status broadcast(const tile::Op& op);
  const Registers& registers(tile::ValueId id) const { return values_[static_cast<size_t>(id)]; }
  Registers registers(tile::ValueId id, size_t count) const;   // scalars as often as asked
  [[nodiscard]] size_t register_count(tile::ValueId id) const; // of a tile's layout; 1 of a scalar
  Value* scalar(tile::ValueId id) const;
  void define(tile::ValueId id, Registers registers);
  // i32: the xor of the second numbers over those pairs whose first one is a bit that is set in the thread's number.
  Value* xor_of_bits(std::span<const std::pair<int, int>> bits);
  // i32: the xor of the bases along `out` of the bits that are set in this thread's lane and warp.
  Value* thread_part(const layout::LinearLayout& layout, layout::Dim out);
  // i32: position along `out` of what register `reg` of this thread holds; `part` from thread_part.
  Value* position(const layout::LinearLayout& layout, layout::Dim out, int reg, Value* part);
  Value* moved(Value* part, uint32_t by, uint32_t reach); // part ^ by, where part has no bits outside of `reach`
  // i32: the byte offset of element part ^ by of a tile in shared memory that begins at `region` + `stage` (null: 0).
  Value* shared_offset(Value* part, uint32_t by, uint32_t reach, DType dtype, int64_t region, Value* stage = nullptr);
  // Bits that thread_part can have.
  static uint32_t thread_reach(const layout::LinearLayout& layout, layout::Dim out);
  // i1: this thread is the one that acts for all that hold the same elements; null where there is but one.
  Value* acts_for_copies(uint32_t free_lanes, uint32_t free_warps);
  Value* disjoint_or(Value* a, Value* b); // of numbers without a common bit: also their sum
  Value* both(Value* a, Value* b);        // conjunction; null is true

  void barrier();
  Result<int64_t> shared_region(int64_t bytes); // byte offset of memory that no thread may still be using; touched

  // gpu_index.cpp
  std::optional<Registers> narrow(const tile::Op& op); // in 32 bits, where operands and result are known to fit
  Value* narrowed(Value* v);
  void index_form(const tile::Op& op);                  // of the result, where it has one
  std::optional<Registers> compare(const tile::Op& op); // of an index with a scalar, in 32 bits
  [[nodiscard]] std::vector<layout::Bounds> register_bounds(tile::ValueId id) const; // of each register's element
  Result<std::optional<Registers>>
  divide(const tile::Op& op); // i64 by a scalar, all registers in 32 bits where they fit
  Result<llvm::Function*> division(ScalarOp op);

  // gpu_memory.cpp
  Status reserve_scratch();
  Status load(tile::OpId id);
  Status store(tile::OpId id);
  // gpu_window.cpp: loads of neighbours that begin at any alignment
  Status load_windows(tile::OpId id);
  std::vector<Value*> window(std::span<Value* const> words, Value* shift, DType dtype, int width);
  void load_tails();
  [[nodiscard]] Value* elements_of(tile::ValueId pointer) const; // i64, of memory that has windows
  [[nodiscard]] bool windows_start_alike(tile::ValueId offset, int width) const;
  // gpu_memory.cpp
  Status atomic_add(const tile::Op& op);
  void report_index(const tile::Op& op);
  void prefetch(const tile::Op& op);
  struct Affine {
    std::vector<int64_t> strides; // by dimension; none of a scalar
    int64_t divisor = 1;          // of what is added to them
  };
  [[nodiscard]] std::optional<Affine> affine(tile::ValueId id) const;
  [[nodiscard]] bool covers_whole_tiles(tile::ValueId offset) const; // GlobalAccess::whole
  void order(GlobalAccess::Kind kind, const tile::Op& op);           // a barrier before `op` where one is needed
  // Of a mask: it holds for no element, as the sizes say.
  static bool is_never(const Value* predicate) {
    auto* constant = llvm::dyn_cast_or_null<llvm::ConstantInt>(predicate);
    return constant && constant->isZero();
  }
  Value* address(tile::ValueId pointer, Value* offset); // of scratch: i32 byte offset in shared memory
  // Accesses whose mask may hold for a part of their elements: those of which it holds for all, and whether this thread
  // has others, which are made element by element, behind a branch that few threads take.
  struct Parts {
    Registers whole, cut; // i1, by access: the mask holds for all, for some of its elements
    Value* rest = nullptr;
  };
  Parts parts(const Registers& masks, int width);
  llvm::BasicBlock* rest_of(const Parts& parts, const std::function<void()>& body); // where it ends
  // What a load has, as words by access, with the elements of the rest. Those where the mask is false stay.
  using Groups = std::vector<std::vector<Value*>>;
  void load_rest(const tile::Op& op, const Parts& parts, int width, Groups& groups);
  [[nodiscard]] Stability stability_of(tile::ValueId pointer) const;
  Value* acts_for(tile::ValueId offset); // i1: this thread stores; null for all threads
  // Neighbours of one access as words and back; bool as bytes.
  llvm::Type* word_type(DType dtype, int elements, int* count);
  std::vector<Value*> to_words(std::span<Value* const> elements, DType dtype);
  Registers from_words(std::span<Value* const> words, DType dtype, int elements);
  void store_shared_elements(Value* byte_offset, std::span<Value* const> elements, DType dtype, Value* predicate);
  Registers load_shared_elements(Value* byte_offset, DType dtype, int elements);

  // gpu_reduce.cpp: among registers, lanes and warps
  struct Folded;
  [[nodiscard]] std::optional<int64_t> even_stride(tile::ValueId id, int axis) const;
  Status reduce(const tile::Op& op);
  Status scan(const tile::Op& op);
  Value* identity(ReduceKind kind, DType dtype);

  // gpu_team.cpp
  Status meet(const tile::Op& op); // Arrive, too
  Status exchange(const tile::Op& op);

  // gpu_convert.cpp
  Status convert(const tile::Op& op);
  // A tile in shared memory, arranged for the layout it is wanted in.
  struct Staged {
    layout::Conversion plan;
    DType dtype = DType::F32;
    int64_t region = 0;     // byte offset
    Value* stage = nullptr; // i32 byte offset beside `region`; null: 0
    Value* base = nullptr;  // i32, of what this thread names in its loads: elements, without the register's part
  };
  // Moves between registers and lanes as planned.
  Registers exchanged(const Registers& source, const layout::Conversion& plan, size_t results);
  // Stores a tile of plan.shared_bytes to `region`. A barrier must follow before it is loaded.
  Staged stage(const Registers& source, layout::Conversion plan, DType dtype, int64_t region);
  // One load: registers [first, first + load_step()) of the layout that it was arranged for.
  Registers staged_registers(Staged& staged, size_t first);

  // gpu_ahead.cpp: loads of a loop that are copied to shared memory rounds ahead
  struct Copy {
    tile::OpId load = -1;
    layout::Conversion plan; // of a factor of a product
    int64_t at = 0;          // byte offset in a stage
    int width = 1;           // elements of a copy
    tile::OpId into = -1;    // what is loaded is only stored, by this, to scratch: copied there, to no stage
  };
  struct Ahead {
    std::vector<Copy> copies;
    std::vector<tile::OpId> slice; // what computes their offsets and masks, in order
    int64_t region = 0, stage_bytes = 0;
    bool own = false; // each thread reads what it has copied itself, in the layout of the load
    int stages = 2;
    bool refills = true; // the loop may have more rounds than stages
  };
  Ahead loads_ahead(const tile::Op& loop); // takes shared memory for them
  Ahead own_loads_ahead(const tile::Op& loop);
  // The store to scratch that is all that reads a load of the loop's body, where copies of several rounds may be made
  // before the loop: to other places in each round, of memory that nothing has touched before. Nothing, or -1.
  [[nodiscard]] tile::OpId only_stored(const tile::Op& loop, const tile::Op& load) const;
  [[nodiscard]] bool at_most_rounds(const tile::Op& loop, int rounds) const;
  // Starts the copies of the round with this induction value, where the predicate is true.
  // `afterwards` gets what remains to be emitted behind them.
  Status copy_ahead(const tile::Op& loop, const Ahead& ahead, Value* induction, Value* predicate, Value* stage,
                    std::vector<std::function<void()>>& afterwards);
  Value* own_place(const Ahead& ahead, const Copy& copy, size_t register_index, Value* stage);
  Status load_own(const tile::Op& load);

  // gpu_dot.cpp
  struct Factor;
  Status dot(const tile::Op& op);
  Status dot_on_tensor_cores(const tile::Op& op);
  Status dot_by_fma(const tile::Op& op);
  // Those that have to be moved through shared memory are stored there, behind one barrier.
  Status prepare(const tile::Op& op, std::span<const layout::LinearLayout> layouts, std::vector<Factor>& out);
  Value* word(Factor& factor, size_t pair);

  // gpu_math.cpp
  Result<Value*> math(ScalarOp op, DType dtype, std::span<Value* const> args) override;
  [[nodiscard]] bool stores_halves() const;
  Value* exp_f32(Value* x);
  Value* tanh_f32(Value* x);
  Value* erf_f32(Value* x);
  Value* one_plus(ScalarOp op, Value* x); // 1 + erf(x), 1 + tanh(x)
  Value* divided(Value* x, const llvm::ConstantFP& by);
  Value* with_sign(Value* magnitude, Value* sign);
  Value* to_integer(Value* x, DType from, DType to);
  Registers cast_registers(const Registers& from, DType from_type, DType to); // pairs at a time
  void target_attributes(llvm::Function& f) const override;

  const layout::KernelLayouts& layouts_;
  const tile::Kernel& kernel_;
  std::unique_ptr<Intrinsics> gpu_;
  llvm::Function* fn_ = nullptr;
  // An i64 tile that is a scalar plus positions in a tile. Its elements are in values_, too, but what compares them
  // with a scalar, as masks do, compares 32-bit positions instead: half the instructions.
  static constexpr int64_t kMostPosition = 1 << 30;
  struct Index {
    Value* base = nullptr; // i64
    Registers positions;   // i32, not negative
    int64_t most = 0;      // of the positions; below kMostPosition
  };
  std::map<tile::ValueId, Index> indices_;
  std::vector<Registers> values_;            // by value id
  std::map<tile::ValueId, int64_t> scratch_; // scratch pointers: byte offset in shared memory
  std::vector<layout::AxisInfo> facts_;      // by value id
  std::vector<layout::Bounds> bounds_;       // by value id
  std::vector<const tile::Op*> definitions_; // by value id; null of parameters and region arguments
  Value *thread_ = nullptr, *program_ = nullptr, *error_ = nullptr;
  bool short_functions_ = false; // 16 bits of an elementary function are enough
  Hazards hazards_;
  std::map<tile::ValueId, Staged> ahead_; // loaded tiles that are in shared memory
  struct OwnTile {
    Ahead ahead;
    Copy copy;
    Value* stage = nullptr;
  };
  std::map<tile::ValueId, OwnTile> own_ahead_; // those of which each thread reads its own elements
  std::set<tile::OpId> copied_;                // loads and stores of a loop's body that copies are made for
  std::set<tile::ValueId> touched_scratch_;    // by what has been emitted
  int loops_ = 0;                              // around what is being emitted
  // Of the first loop with loads ahead; how many such loops are around what is being emitted.
  int64_t ahead_region_ = 0, ahead_bytes_ = 0;
  int ahead_depth_ = 0;
  // By pointer and width of a whole access, words: the elements behind the last one. Empty where there are none.
  std::map<std::pair<tile::ValueId, int>, std::vector<Value*>> tails_;
  std::vector<tile::ValueId> yielded_; // operands of the last Yield
};

} // namespace tessera::gpu
