// How a kernel is launched, described once. A schedule yields a LaunchSpec; a launch of an executable is one with buffers;
// a variant has the same sizes as registers (LaunchSizes<int>), the plan of a shape their values
// (LaunchNumbers<int64_t>).
#pragma once
#include "base/tensor.h"
#include "runtime/index_check.h"
#include "runtime/tensor_map.h"
#include <string_view>
#include <type_traits>
#include <vector>

namespace tessera {

// Host kernel ABI. `buffers` in parameter order, `sizes` the i64 parameters; runs programs [begin, end). `scratch` has
// scratch_bytes for the calling thread, 64-byte aligned. Bad indices go into *report, to which other threads add, too.
using HostKernelFn = void (*)(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end, void* scratch,
                              IndexReport* report);

// Parts of a launch that have a size, which is an expression (SymExpr), a register (int) or a value (int64_t).

// A condition on the sizes of a call under which a kernel may be launched: checked once per shape, not a guard.
template <class Size>
struct SizeConditionOf {
  Size value{};
  int64_t multiple_of = 1;
  int64_t min = 0, max = INT64_MAX;
  [[nodiscard]] bool allows(int64_t v) const { return v >= min && v <= max && v % multiple_of == 0; }
  [[nodiscard]] const Size& size() const { return value; }
  template <class To>
  [[nodiscard]] SizeConditionOf<To> with(To size) const {
    return {std::move(size), multiple_of, min, max};
  }
};
using SizeCondition = SizeConditionOf<SymExpr>;

// Memory of a launch that its programs share; its contents are undefined when it begins.
template <class Size>
struct WorkspaceOf {
  DType dtype = DType::F32;
  Size count{}; // elements
  [[nodiscard]] int64_t bytes() const { return byte_size(dtype, count); }
  [[nodiscard]] const Size& size() const { return count; }
  template <class To>
  [[nodiscard]] WorkspaceOf<To> with(To size) const {
    return {dtype, std::move(size)};
  }
};
using Workspace = WorkspaceOf<SymExpr>;

// The elements of one of its buffers that a kernel's code may access, in every launch for which the contract's facts
// hold.
template <class Size>
struct KernelAccessOf {
  DType dtype = DType::F32;
  Size elements{};                // of dtype, from the buffer's first one on
  std::vector<int> may_overwrite; // written: indices of the buffers whose memory it may share, read or written
  [[nodiscard]] const Size& size() const { return elements; }
  template <class To>
  [[nodiscard]] KernelAccessOf<To> with(To size) const {
    return {dtype, std::move(size), may_overwrite};
  }
};
using KernelAccess = KernelAccessOf<SymExpr>;

// Kernels that may have a field: another one has 0 there, or nothing.
enum class LaunchUse : uint8_t {
  Any,
  Shared, // memory that the programs of a launch share: no epilogue of a library call
  Waits,  // programs wait for each other: likewise, and on a GPU alone
};
struct LaunchField {
  std::string_view key;    // in files
  std::string_view memory; // what of memory it counts; empty: none, any value is right
  LaunchUse use;
};

// The fields of a launch: type, name, then those of LaunchField. These lists are the only ones: symbols, files, checks,
// registers and values of launches derive from them. A new field is a line here, what sets it, and what reads it.
//
// Numbers: a launch evaluates them for each shape.
#define TESSERA_LAUNCH_NUMBERS(X)                                                                                      \
  X(std::vector<Size>, sizes, "sizes", "", Any)                     /* the kernel's i64 parameters */                  \
  X(Size, grid, "grid", "", Any)                                    /* programs */                                     \
  X(Size, work_per_program, "work", "", Any)                        /* elements, for the grain of threads */           \
  X(Size, scratch_bytes, "scratch", "bytes of scratch memory", Any) /* of a program; 0: it needs none */               \
  /* i32 words of grid barriers: their low 31 bits are 0 before a launch and after */                                  \
  X(Size, counters, "counters", "counters", Shared)                                                                    \
  /* i32 words through which programs exchange numbers, 0 before a launch and after */                                 \
  X(Size, mailboxes, "boxes", "words of mailboxes", Waits)                                                             \
  /* programs wait for so many neighbours, from a multiple of it on. 0: none do; the grid: all of them */              \
  X(Size, cooperative_blocks, "team", "", Waits)                                                                       \
  X(std::vector<WorkspaceOf<Size>>, workspaces, "workspaces", "elements of a workspace", Shared)                       \
  X(std::vector<TensorMapOf<Size>>, tensor_maps, "tensor_maps", "", Any) /* of the kernel, on a GPU */
// Requirements: a shape is checked against them when it is planned. Access (by buffer) and facts are the contract of the
// code: what each buffer must hold, and what its compile took for granted of sizes. Without `access` the launch is
// unchecked, and cannot be saved.
#define TESSERA_LAUNCH_REQUIREMENTS(X)                                                                                 \
  X(std::vector<KernelAccessOf<Size>>, access, "access", "", Any)                                                      \
  X(std::vector<SizeConditionOf<Size>>, conditions, "conditions", "", Any) /* under which it may be launched */        \
  X(std::vector<SizeConditionOf<Size>>, facts, "facts", "", Any)
#define TESSERA_LAUNCH_CODE(X)                                                                                         \
  X(std::string, symbol, "symbol", "", Any)   /* in the object */                                                      \
  X(int, threads, "threads", "", Any)         /* per block; 0 on the host */                                           \
  X(int64_t, shared_bytes, "shared", "", Any) /* dynamic shared memory of a block */                                   \
  X(int, cluster, "cluster", "", Any)         /* blocks that are launched as a cluster; 0: each alone */               \
  /* its code waits until the kernel before it is complete: it may be launched before that */                          \
  X(bool, dependent_launch, "dependent_launch", "", Any)

#define TESSERA_FIELD(type, name, key, memory, use) type name{};
template <class Size>
struct LaunchNumbers {
  TESSERA_LAUNCH_NUMBERS(TESSERA_FIELD)
};
template <class Size>
struct LaunchSizes : LaunchNumbers<Size> {
  TESSERA_LAUNCH_REQUIREMENTS(TESSERA_FIELD)
};
struct LaunchSpec : LaunchSizes<SymExpr> {
  TESSERA_LAUNCH_CODE(TESSERA_FIELD)
  // Fields that their readers and writers treat each in its own way:
  int object = -1;                      // index into Executable::objects
  HostKernelFn function = nullptr;      // linked; nullptr on a GPU, and where it has only been deserialized
  std::vector<bool> written;            // by buffer
  std::vector<IndexCheck> report_sites; // by ReportIndex site, in the order of the graph
};
#undef TESSERA_FIELD

// Calls f(LaunchField, field) for each number, or for each field of the lists.
#define TESSERA_FIELD(type, name, key, memory, use) f(LaunchField{key, memory, LaunchUse::use}, launch.name);
template <class Launch, class F>
void each_number(Launch& launch, F&& f) {
  TESSERA_LAUNCH_NUMBERS(TESSERA_FIELD)
}
template <class Launch, class F>
void each_launch_field(Launch& launch, F&& f) {
  TESSERA_LAUNCH_NUMBERS(TESSERA_FIELD)
  TESSERA_LAUNCH_REQUIREMENTS(TESSERA_FIELD)
  TESSERA_LAUNCH_CODE(TESSERA_FIELD)
}
#undef TESSERA_FIELD

// Sets `to` to `from` with the size f(size) in the place of each size.
template <class From, class To, class F>
void convert_field(const From& from, To& to, F& f) {
  if constexpr (requires { from.begin(); }) {
    to.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) convert_field(from[i], to[i], f);
  } else if constexpr (requires { from.convert(f); }) {
    to = from.convert(f);
  } else if constexpr (requires { from.size(); }) {
    to = from.with(f(from.size()));
  } else {
    to = f(from);
  }
}
// The launch with f(LaunchField, size), a To, in the place of each size.
#define TESSERA_FIELD(type, name, key, memory, use)                                                                    \
  {                                                                                                                    \
    auto one = [&](const From& size) { return f(LaunchField{key, memory, LaunchUse::use}, size); };                    \
    convert_field(from.name, to.name, one);                                                                            \
  }
template <class To, class From, class F>
[[nodiscard]] LaunchNumbers<To> convert_numbers(const LaunchNumbers<From>& from, F&& f) {
  LaunchNumbers<To> to;
  TESSERA_LAUNCH_NUMBERS(TESSERA_FIELD)
  return to;
}
template <class To, class From, class F>
[[nodiscard]] LaunchSizes<To> convert_sizes(const LaunchSizes<From>& from, F&& f) {
  LaunchSizes<To> to{convert_numbers<To>(from, f)};
  TESSERA_LAUNCH_REQUIREMENTS(TESSERA_FIELD)
  return to;
}
#undef TESSERA_FIELD
// Calls f(size) for each size, in the order of the lists.
template <class F>
void each_size(const LaunchSizes<SymExpr>& launch, F&& f) {
  (void)convert_sizes<int>(launch, [&](const LaunchField&, const SymExpr& size) {
    f(size);
    return 0;
  });
}

// Whether some number of the launch is for the use, or for a more special one.
[[nodiscard]] bool has(const LaunchNumbers<SymExpr>& launch, LaunchUse use);
// "grid = ceildiv(n, 64); work = 64": the numbers but those that are 0, or nothing.
[[nodiscard]] std::string print(const LaunchNumbers<SymExpr>& launch);

} // namespace tessera
