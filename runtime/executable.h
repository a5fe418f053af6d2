// Executable: what a compile yields and all that is needed to run. Immutable, shared between executors and threads.
//
// It is a list of steps over buffers. Sizes, offsets and grids are SymExprs over the symbols of the model's input
// dimensions; an Executor evaluates them once per distinct shape ("shape plan") and then only launches.
#pragma once
#include "runtime/launch_spec.h"
#include "symbols/env.h"
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace tessera {

using BufferId = int32_t;

struct BufferInfo {
  enum class Kind : uint8_t { Input, Output, Constant, Temporary };
  std::string name; // of the graph value
  Kind kind = Kind::Temporary;
  DType dtype = DType::F32;
  SymShape shape;
  int constant = -1;                 // Constant: index into Executable::constants
  int first_step = 0, last_step = 0; // lifetime over steps, inclusive (outputs live to the end)
  BufferId in_place_of =
      -1; // Temporary or Output that may take over that buffer's memory (its last reader writes this one elementwise)
  bool dynamic = false; // its size has symbols that a host step defines: allocated when that step has run
};

// A generated kernel. HostKernelFn's `buffers` are the addresses of the buffers, of the workspaces, and of the counters
// if there are any. On a GPU (threads > 0) its parameters are these, the mailboxes if there are any, the sizes as i64, and
// the address of an IndexReport; program p is block (p, 0, 0).
struct KernelLaunch : LaunchSpec {
  std::string name; // group name, for traces and errors
  std::vector<BufferId> buffers;
  // Kernels of the same buffers and meaning for sizes that allow more: the first one whose conditions hold is launched,
  // and this one, which takes every size, if none does. One whose programs wait is passed over where the GPU cannot
  // run enough of them at once. Alternatives have none themselves.
  std::vector<KernelLaunch> alternatives;
  SymExpr bytes; // of a step: that it reads and writes. Of each kind of step, as the plan counts them (Group)
};

// ---- library calls, in the terms of runtime/library/
struct StridedOperand {
  BufferId buffer = -1;
  SymShape shape;
  std::vector<SymExpr> strides;
  SymExpr offset;
}; // elements
// The work on a block of the result while it is still in cache: a generated kernel over a box of the result's index
// space. The library computes the box [begin, begin + count) of its result, then calls the kernel with those numbers
// bound to the symbols below, which its sizes and grid mention. Any pointwise function of the result and of anything
// computed before.
struct EpilogueKernel {
  KernelLaunch kernel;
  std::vector<SymExpr> begin, count; // one symbol per dimension of the call's result
};
// The work that a GPU's library does on its result by itself, in the type it accumulates in, before it rounds and
// stores:
//   y = activation(alpha * sum + bias + residual)
// A call that has one (`fused`) names the final result as c or y. Where the library turns out to refuse it at some
// sizes, the call is made without, into the same memory, and then `epilogue`, if there is one, over the whole result
// (begin 0, count the result's shape) and in place: its kernel reads and writes that one buffer.
struct LibraryEpilogue {
  enum class Activation : uint8_t { None, Relu, Clip, GeluTanh, GeluErf, Sigmoid, Silu, Tanh };
  double alpha = 1;
  std::optional<StridedOperand> bias; // of the result's shape; strides are 0 but in dimension bias_dim; result's dtype
  int bias_dim = -1;                  // a product's columns (last) or rows; a convolution's channels (1)
  std::optional<StridedOperand> residual; // of the result's shape, strides and dtype
  Activation activation = Activation::None;
  double clip_low = 0, clip_high = 0; // Clip
};
struct MatmulCall {
  StridedOperand a, b, c;
  std::optional<EpilogueKernel> epilogue;
  std::optional<LibraryEpilogue> fused = std::nullopt; // GPU only
  double scale = 1;                                    // GPU only; of the sum, before any epilogue
  bool tf32 = false; // GPU only: f32 operands may be rounded to TF32 (10 bits of mantissa), sums stay in f32
}; // c[..., m, n] = scale * a[..., m, k] b[..., k, n]; batch strides 0 where broadcast; f32 on the host
// Logical dims [N, C, spatial...] of x and y, [O, C/groups, kernel...] of w (transposed: [C, O/groups, ...]); strides
// say how they lie: channels-last is a stride order. f32 on the host.
struct ConvCall {
  StridedOperand x, w, y;
  std::vector<int64_t> strides, pads_begin, pads_end, dilations;
  int64_t groups = 1;
  bool transposed = false;
  std::vector<int64_t> output_padding;
  std::optional<EpilogueKernel> epilogue;
  std::optional<LibraryEpilogue> fused = std::nullopt; // GPU only
  bool tf32 = false;                                   // as MatmulCall::tf32
};
struct PoolCall {
  enum class Kind : uint8_t { Max, Average, AverageIncludePad } kind = Kind::Max;
  StridedOperand x, y;
  std::vector<int64_t> kernel, strides, pads_begin, pads_end, dilations;
  std::optional<EpilogueKernel> epilogue;
};
// out[..., i, :] = sum over j of softmax over j (scale * q[..., i, :] k[..., j, :]' + bias[..., i, j]) v[..., j, :];
// with `causal` over j <= i only. Rows of nothing but -inf yield zeros. GPU only, f16 or bf16; the bias of that type or
// f32.
struct FusedAttentionCall {
  StridedOperand q, k; // [batch..., query, width], [batch..., key, width]; batch strides 0 where heads share
  StridedOperand v;    // [batch..., key, value width]
  StridedOperand out;  // [batch..., query, value width]
  double scale = 1;
  std::optional<StridedOperand> bias; // [batch..., query, key]
  bool causal = false;
};
struct LibraryStep {
  std::string name;
  std::variant<MatmulCall, ConvCall, PoolCall, FusedAttentionCall> call;
  // So many of the steps that follow compute the same: they are left out where the library takes the call, the call
  // where it does not. Which it is is found out when a shape is planned (Device::choose).
  int instead_of = 0;
  SymExpr bytes; // that it reads and writes, its epilogue included
};

// A size that is known only when a step has run: `symbol` is a size of a result, or the value of one of its integers.
struct StepDefines {
  SymExpr symbol;
  int result;
  int dim = -1;
  int element = -1; // row-major, where dim is -1
};

// An operator that no device supports, run by its reference: counted and reported, never silent.
struct HostStep {
  std::string name, op, reason;          // node, operator, why it runs here
  std::vector<BufferId> inputs, outputs; // -1 where left out
  std::string payload; // what makes `run` again from a file; opaque to the runtime; empty: it cannot be saved
  // Runs it on tensors; `symbols` binds the sizes known so far. Built by the compile driver from the operator's record.
  std::function<Result<std::vector<Tensor>>(const std::vector<Tensor>&, const std::unordered_map<uint64_t, int64_t>&)>
      run;
  using Defines = StepDefines;
  std::vector<Defines> defines;
  SymExpr bytes; // that it reads and writes
};

struct Executable;

// An input of a body of a control step.
struct BodyArgument {
  enum class Source : uint8_t {
    Buffer,    // a buffer of the outer executable
    Slice,     // of a buffer along dimension 0: the one of the iteration, from the last one on where `reverse`
    Carried,   // carried value `index`
    Iteration, // the number of the iteration: i64
    Condition, // true: bool
    Size       // a tensor of no elements, [0, size]: it binds a symbol of the outer executable
  };
  Source source = Source::Buffer;
  BufferId buffer = -1;
  int index = -1;
  bool reverse = false;
  SymExpr size = 0;
};
struct ControlBody {
  std::shared_ptr<const Executable> executable;
  std::vector<BodyArgument> arguments; // by input of the executable
};
// If: one of two bodies runs, its outputs are the results. Loop: the body runs again and again; its outputs are the
// condition to go on (where `continues`), the carried values, then one slice of each stacked result. Bodies run on the
// same device, and read and write its memory in place.
struct ControlStep {
  enum class Kind : uint8_t { If, Loop };
  std::string name, op, reason; // node, operator, why it is a step of its own
  Kind kind = Kind::If;
  std::vector<ControlBody> bodies; // If: then, else
  // If: which body runs. Loop: whether the first iteration runs. A bool on the device, or a number made of sizes; a Loop
  // with neither begins in any case.
  BufferId condition = -1;
  std::optional<SymExpr> decided = std::nullopt;
  // Loop: most iterations; an i64 on the device, or a size. With neither there is no bound.
  BufferId trips = -1;
  std::optional<SymExpr> trip_count = std::nullopt;
  bool continues = false;
  std::vector<BufferId> initial; // of the carried values
  std::vector<BufferId> outputs; // of the If; final carried values, then stacked results. -1 where unused
  std::vector<bool> reverse;     // of stacked results: the first slice is the last one
  std::vector<StepDefines> defines;
  SymExpr bytes; // operands and results, once each: what bodies move is in their own steps
};
// output buffer = view of source (an input, a constant or another output given out as it is): a copy.
struct CopyStep {
  std::string name;
  BufferId source, target;
  SymExpr bytes; // that it reads and writes
};

using Step = std::variant<KernelLaunch, LibraryStep, HostStep, CopyStep, ControlStep>;

struct Constant {
  std::string name;
  Tensor value; // may view a mapped file
};

struct Binding {
  std::string name;
  BufferId buffer;
  // The extents of the dimensions that an input of integers, or a value computed from it, indexes.
  std::vector<SymExpr> indexed = {};
  std::string list = {}; // of a List: what it is, "sequence f32[?, 4]"
};
// Input dims: symbol (bound by the call), expression or constant (checked).
//
// States are values that an executor keeps from call to call (state_values.h): the last inputs read them, the last
// outputs are their new values, and callers give and get the others.
struct Executable {
  std::string model_name;
  std::vector<BufferInfo> buffers;
  std::vector<Step> steps;
  std::vector<Constant> constants;
  std::vector<Binding> inputs, outputs;
  std::vector<int> states; // index into constants: name and first value of each
  [[nodiscard]] size_t call_inputs() const { return inputs.size() - states.size(); } // that a caller gives
  [[nodiscard]] size_t call_outputs() const { return outputs.size() - states.size(); }
  std::shared_ptr<ShapeEnv> env;          // symbols and guards
  std::vector<std::vector<char>> objects; // machine code, for serializing
  std::shared_ptr<const void> code;       // keeps linked code alive
  std::string target;                     // "cpu x86-64 avx512"; an executable for another machine is refused
  int host_steps = 0;
  std::string report; // of a loaded file: what the compile said (Session::report()); opaque to the runtime
};

} // namespace tessera
