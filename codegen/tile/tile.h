// Tile IR: blocked programs on tiles, similar to Triton's IR. A grid of programs runs a kernel; a program computes on
// tiles (arrays of a static shape) and scalars. The IR has no threads, no shared memory and no barriers within a
// program. docs/tile-ir.md has the grammar and the meaning of each operation; interpret() is the executable definition.
//
//   tile.kernel @g4(%x: ptr<f16>, %y: ptr<f16>, %rows: i64, %cols: i64) config(warps: 4) {
//     %p = program_id 0                                  : i64
//     %acc0 = const 0                                    : tile<[64], f32>
//     %acc = for %i = 0 to %cols step 64 carry(%a = %acc0) {
//       %r = range 64                                    : tile<[64], i64>
//       %c = add(%r, %i)                                 : tile<[64], i64>      // scalars broadcast to tiles
//       %in = lt(%c, %cols)                              : tile<[64], bool>
//       ...
//       %v = load %x[%o] mask=%in other=0                : tile<[64], f16>
//       %f = cast(%v)                                    : tile<[64], f32>
//       %s = add(%a, %f)                                 : tile<[64], f32>
//       yield %s
//     }
//     %m = reduce.sum(%acc) axis=0                       : f32
//     store %y[%p] = %m
//   }
#pragma once
#include "base/result.h"
#include "graph/scalar/scalar.h"
#include "runtime/grid.h"
#include "runtime/index_check.h"
#include <map>

namespace tessera::tile {

struct Type {
  enum class Kind : uint8_t { Data, Pointer };
  Kind kind = Kind::Data;
  DType dtype = DType::F32; // of the elements, or of what a pointer points to
  std::vector<int> shape;   // empty: a scalar
  [[nodiscard]] bool is_tile() const { return !shape.empty(); }
  [[nodiscard]] int64_t count() const {
    int64_t n = 1;
    for (int d : shape) n *= d;
    return n;
  }
  [[nodiscard]] std::string str() const;
  bool operator==(const Type&) const = default;
};

using ValueId = int32_t; // SSA value of a kernel, dense
using OpId = int32_t;

enum class OpKind : uint8_t {
  Const,      // dtype literal, scalar or splat
  ProgramId,  // attribute axis (0..2): i64, the program's index
  Range,      // 0..n-1 : tile<[n], i64>
  ExpandDims, // attribute axis: inserts a dimension of size 1
  Broadcast,  // to a tile shape (scalar to tile, or dimensions of size 1)
  Scalar,  // pointwise ScalarOp `scalar`; scalar operands broadcast to the tile operands' shape; Cast takes its dtype
           // from the result
  Load,    // pointer, offset (elements; scalar or tile), optional mask, optional other (default 0)
  Store,   // pointer, offset, value, optional mask
  Reduce,  // attribute axis, ReduceKind; with an index operand for arg kinds (value tile, index tile) -> (value, index)
  Scan,    // inclusive, attribute axis, ReduceKind
  Dot,     // tile<[m,k]> x tile<[k,n]> + tile<[m,n]>
  For,     // from, to, step, carried...; region with induction value and carried block arguments; yields as many
  If,      // scalar bool condition; regions then, else; results by yield
  Scratch, // program-private memory: attribute dtype, operand count (elements, i64) -> pointer; contents undefined
  Atomic,  // ReduceKind Sum, Max or Min; pointer, offset, value, optional mask: the element becomes the fold of both
  ReportIndex, // operands: bool tile or scalar "bad" (true where an index is out of bounds), i64 index and position of
               // that shape or scalars; attribute site: the launch fails with the first bad one (runtime/index_check.h)
  // Cooperative programs (cooperation.h). Operands: pointer to counters (i32), offset, rank, count (i64 scalars). Each
  // of the `count` programs arrives once per phase.
  Arrive,      // yields a bool: true in the last program to arrive, which may read what the others wrote before
  GridBarrier, // waits until all have arrived; then all may read what the others wrote before. Not inside a region
  // Exchange of partial results: pointer to mailboxes (i32), offset, rank, count, scalars... Yields a tile [n] for each
  // scalar: element i is program i's, elements from `count` on are 0. Waits for all `count` programs; not inside a
  // region. Does not order other memory.
  Exchange,
  Prefetch,    // pointer, offset (scalar or tile): hint that the program soon reads there; may be out of bounds
  Yield,       // ends every region, also one that yields nothing
  NumPrograms, // attribute axis (0..2): i64, the grid's extent
  Count_,
};

// Cache hint of a load; it does not change the result. NoAllocate: no line in L1. EvictLast, EvictFirst: priority of
// the lines in L2. The names are those of PTX.
enum class Caching : uint8_t { Normal, NoAllocate, EvictLast, EvictFirst };

struct Op {
  OpKind kind = OpKind::Const;
  ScalarOp scalar = ScalarOp::Add;
  ReduceKind reduce = ReduceKind::Sum;
  bool select_last = false;
  int axis = 0;                  // ProgramId, NumPrograms, Reduce, Scan, ExpandDims
  int site = 0;                  // ReportIndex
  int num_stages = 0;            // For: stages of software pipelining, 0: the lowering decides
  double f = 0;                  // Const of float dtype
  int64_t i = 0;                 // Const of integer dtype
  std::vector<ValueId> operands; // Load: ptr, offset, [mask, [other]] ; Store: ptr, offset, value, [mask]
  std::vector<ValueId> results;
  std::vector<std::vector<OpId>> regions;        // For: 1, If: 2
  std::vector<std::vector<ValueId>> region_args; // For: {induction, carried...}
  bool contiguous_hint = false;                  // consecutive elements of the tile are consecutive in memory
  Caching caching = Caching::Normal;             // Load
};

struct Param {
  std::string name;
  Type type;
  ValueId value = -1;
  bool written = false;
  bool once = false;       // a program stores no element twice, so the order of its stores does not matter
  int64_t alignment = 64;  // bytes, of pointers
  int64_t multiple_of = 1; // of i64 scalars: a divisor that the caller guarantees
  // The least number of elements that may be read through a pointer; 0: unknown. Or the i64 parameter that has this
  // number.
  int64_t elements = 0;
  ValueId elements_value = -1;
  // True for a pointer to memory that nothing writes while the kernel runs, not even through another parameter that
  // aliases it. Loads may then be moved, and may use caches that are not coherent.
  bool invariant = false;
  // True for a pointer that is read where a written parameter that aliases it has each element at the same position of
  // every tile. So one thread reads and writes the element, if the tiles have the same layout.
  bool in_place = false;
};

// With a tile offset, the mask, other and value of a Load or Store may be scalars or tiles of the offset's shape; a
// scalar Load or Store may have a scalar mask. `lt(add(range, a), b)` is a prefix of the tile, as a mask or as a value:
// a lowering need not form its i64 tile. contiguous_hint is true only if the offset is add(range, scalar).
class Kernel {
public:
  Kernel();
  Kernel(const Kernel&);
  Kernel(Kernel&&) noexcept;
  Kernel& operator=(const Kernel&);
  Kernel& operator=(Kernel&&) noexcept;
  ~Kernel();
  std::string name;
  std::vector<Param> params;
  // warps; programs: largest grid of a launch; min_blocks: resident blocks per multiprocessor that bound the registers;
  // least_blocks: least resident blocks per multiprocessor with which the kernel is launched; ...
  std::map<std::string, int64_t> config;
  std::vector<OpId> body;

  [[nodiscard]] const Op& op(OpId id) const { return ops_[static_cast<size_t>(id)]; }
  [[nodiscard]] Op& op(OpId id) { return ops_[static_cast<size_t>(id)]; }
  [[nodiscard]] const Type& type(ValueId id) const { return types_[static_cast<size_t>(id)]; }
  [[nodiscard]] int value_count() const { return static_cast<int>(types_.size()); }
  [[nodiscard]] int op_count() const { return static_cast<int>(ops_.size()); }
  ValueId new_value(Type type) {
    types_.push_back(std::move(type));
    return static_cast<ValueId>(types_.size()) - 1;
  }
  OpId new_op(Op op) {
    ops_.push_back(std::move(op));
    return static_cast<OpId>(ops_.size()) - 1;
  }

private:
  std::vector<Op> ops_;
  std::vector<Type> types_;
};

// Appends operations at an insertion point, inferring result types; equal pure operations of a block, and of those
// around it, are reused.
class Builder {
public:
  explicit Builder(Kernel& kernel);
  ValueId param(std::string name, Type type, bool written = false);
  ValueId const_f(DType dtype, double v);
  ValueId const_i(DType dtype, int64_t v);
  ValueId program_id(int axis);
  ValueId num_programs(int axis);
  ValueId range(int n);
  ValueId expand_dims(ValueId v, int axis);
  ValueId broadcast(ValueId v, std::vector<int> shape);
  ValueId scalar(ScalarOp op, std::span<const ValueId> args);
  ValueId cast(ValueId v, DType dtype);
  ValueId bitcast(ValueId v, DType dtype);
  ValueId load(ValueId ptr, ValueId offset, ValueId mask = -1, ValueId other = -1, Caching caching = Caching::Normal);
  void store(ValueId ptr, ValueId offset, ValueId value, ValueId mask = -1);
  ValueId reduce(ReduceKind kind, ValueId v, int axis);
  std::pair<ValueId, ValueId> reduce_arg(ReduceKind kind, ValueId v, ValueId index, int axis, bool select_last);
  ValueId scan(ReduceKind kind, ValueId v, int axis);
  ValueId dot(ValueId a, ValueId b, ValueId acc);
  ValueId scratch(DType dtype, ValueId count);
  void atomic(ReduceKind kind, ValueId ptr, ValueId offset, ValueId value, ValueId mask = -1);
  void report_index(ValueId bad, ValueId index, ValueId position, int site);
  ValueId arrive(ValueId counters, ValueId offset, ValueId rank, ValueId count);
  void grid_barrier(ValueId counters, ValueId offset, ValueId rank, ValueId count);
  // `size`: elements of each result, at least `count`.
  std::vector<ValueId> exchange(ValueId mailboxes, ValueId offset, ValueId rank, ValueId count,
                                std::span<const ValueId> partials, int size);
  void prefetch(ValueId ptr, ValueId offset);
  // body(induction, carried) returns the next carried values; yields the final ones.
  std::vector<ValueId> for_loop(ValueId from, ValueId to, ValueId step, std::vector<ValueId> carried,
                                const std::function<std::vector<ValueId>(ValueId, std::span<const ValueId>)>& body,
                                int num_stages = 0);
  std::vector<ValueId> if_else(ValueId condition, const std::function<std::vector<ValueId>()>& then_body,
                               const std::function<std::vector<ValueId>()>& else_body);
  [[nodiscard]] Kernel& kernel() { return kernel_; }

private:
  ValueId convert(ScalarOp how, ValueId v, DType dtype);
  ValueId emit(Op op, Type type);
  Kernel& kernel_;
  std::vector<std::vector<OpId>*> blocks_;
  std::vector<std::unordered_multimap<uint64_t, OpId>> seen_;
};

[[nodiscard]] std::string_view name(Caching caching);
[[nodiscard]] std::string print(const Kernel& kernel);
[[nodiscard]] Result<Kernel> parse(std::string_view text, const std::string& file = "<text>");
[[nodiscard]] Status verify(const Kernel& kernel);
// True if the operation waits for other programs: all programs of the grid must then be resident at the same time.
[[nodiscard]] inline bool waits_for_programs(const Op& op) {
  return op.kind == OpKind::GridBarrier || op.kind == OpKind::Exchange;
}
// True if some operation of the kernel does.
[[nodiscard]] bool needs_cooperative_launch(const Kernel& kernel);
// True if the kernel's code needs the extents of the grid, not a program's number alone: it takes an index along
// axis 1 or 2, or an extent.
[[nodiscard]] bool uses_grid(const Kernel& kernel);

// The reference interpreter. args: pointers as byte spans, scalars as int64 or double, in parameter order.
struct Argument {
  std::span<std::byte> bytes;
  ScalarValue scalar;
};
struct InterpretResult {
  IndexReport report;
};
// Runs the programs of the grid one after another, x first; cooperative programs all run up to each barrier before any continues. An
// out-of-bounds access of a pointer argument is an error that names the parameter and the offset.
[[nodiscard]] Result<InterpretResult> interpret(const Kernel& kernel, std::span<const Argument> args, Grid grid);

} // namespace tessera::tile
