// Variant: an Executable made ready to run. What does not depend on the sizes of a call is done once here: symbols are
// numbered (slots), every SymExpr of the executable is compiled into flat programs, inputs know how they bind symbols,
// and steps are divided into segments.
//
// A segment ends with a step that defines sizes (NonZero and the like, or a loop). Everything up to there is planned from the
// inputs alone; what comes after is planned when the step has run. Most executables have one segment.
#pragma once
#include "runtime/guards.h"
#include "runtime/memory_plan.h"

namespace tessera {

// A kernel's launch with registers in the place of its sizes.
struct KernelForm : LaunchSizes<int> {
  std::vector<KernelForm> alternatives; // as the kernel's
};
struct OperandForm {
  BufferId buffer = -1;
  std::vector<int> shape, strides;
  int offset = -1;
};
// An epilogue's own program: inputs are the slots, then begin and count of a box.
struct EpilogueForm {
  const EpilogueKernel* source = nullptr;
  SymProgram program;
  KernelForm kernel;
};
struct StepForm {
  const Step* step = nullptr;
  KernelForm kernel;
  std::vector<OperandForm> operands; // of a library call, in the order of operands_of()
  size_t result = 0;                 // which of them it writes
  int library_class = -1;            // of a library call (library_classes.h)
  std::optional<EpilogueForm> epilogue;
  std::vector<int> control; // registers of a control step's numbers, in the order of control_numbers()
  int bytes = -1;           // register of bytes_of()
};

class Variant {
public:
  // Errors: Internal (an executable that contradicts itself), UnsupportedFeature (made for another machine, not
  // linked).
  [[nodiscard]] static Result<std::unique_ptr<Variant>> create(std::shared_ptr<const Executable> executable);

  const Executable* exe = nullptr;
  std::shared_ptr<const Executable> owner;
  std::vector<SymExpr> slots;    // symbols; those of inputs first
  std::vector<int> slot_segment; // when a slot is bound
  GuardSet guards;
  SymProgram program;                   // over slots: everything below
  std::vector<std::vector<int>> shapes; // of buffers, each once, as registers
  std::vector<int> buffer_shape;        // which of them a buffer has
  std::vector<int> buffer_segment;      // when its size is known
  std::vector<StepForm> steps;
  size_t library_classes = 0;
  std::vector<int> segment_begin;                 // first step of each segment; a last entry is the number of steps
  std::vector<std::vector<BufferId>> temporaries; // per segment, in buffer order
  std::vector<int> output_segment;                // per output: where it gets its memory
  // Per output: steps write it while another variant may still take over the call, with other sizes of it.
  std::vector<bool> output_may_change;
  std::vector<int> in_place_of;         // per buffer: checked, -1 where the executable's request cannot be met
  std::vector<void*> constant_pointers; // per buffer: on the host; null where it is no constant
  // Per buffer: steps that run on the device (all but host steps) read or write it. Never for strings.
  std::vector<bool> device_reads, device_writes;
  bool on_gpu = false;            // what host steps make or take has to be copied
  size_t max_kernel_pointers = 0; // to buffers, workspaces and counters

  // How an input dimension is used.
  struct DimForm {
    enum class Kind : uint8_t { Constant, Bind, Solve, Check } kind = Kind::Constant;
    int64_t a = 0, b = 0; // Constant: a; Solve: a * slot + b
    int slot = -1, reg = -1;
  };
  struct InputForm {
    const Binding* binding;
    std::vector<DimForm> dims;
    int rank_slot = -1; // of an input of any rank: bound to it (rank_symbol())
  };
  std::vector<InputForm> inputs;
  SymProgram input_program; // over slots: dimensions that are checked

  [[nodiscard]] int segment_of(int step) const;

  // The state of one executor's calls of this variant.
  struct CallState {
    std::vector<int64_t> values; // of slots
    std::vector<bool> bound;
    SymProgram::State guards, inputs, sizes;
    std::vector<const Tensor*> tensors; // per input
    // The memory that temporaries may use: outputs before they are written (aligned as the device aligns blocks), and
    // inputs, one flag each, behind their last readers; empty: none.
    bool lends_outputs = false;
    std::vector<uint8_t> donated;
  };
  void prepare(CallState& call) const;
  // Appends the facts that plans of a segment depend on, behind what is in `key`.
  static void append_key(const CallState& call, std::vector<int64_t>& key);
  // Whether temporaries may lie elsewhere than in the arena: one segment, none of whose steps runs on the host.
  [[nodiscard]] bool may_lend() const;
  // The values of the symbols that are bound in a call, by id; `values` and `bound` as in its CallState.
  [[nodiscard]] std::unordered_map<uint64_t, int64_t> symbol_values(const std::vector<int64_t>& values,
                                                                    const std::vector<bool>& bound) const;
  // Binds the symbols of inputs in the model's order. Error BadInput.
  [[nodiscard]] Status bind(std::span<const Tensor* const> given, CallState& call) const;
  // Inputs by name, in the model's order. Errors UnknownInput, MissingInput.
  [[nodiscard]] Status in_order(const std::map<std::string, Tensor>& given, std::vector<const Tensor*>& ordered) const;

private:
  Status number_symbols();
  Status compile_inputs();
  Status compile_sizes();
  Status check_buffers();
  Status check_segments() const;
  void place_outputs();
  Status bind_dims(const InputForm& input, const Tensor& tensor, CallState& call) const;
  [[nodiscard]] std::string declared(const InputForm& input) const;
};

// Indices, ranks and lifetimes of an executable agree with each other: what a file or a compiler could get wrong. Error
// Internal.
[[nodiscard]] Status verify(const Executable& executable);
// May code made for `target` ("cpu x86-64 avx512") run on this machine? Error UnsupportedFeature. Of "cuda sm_90" only
// the form is checked: whether there is a GPU, and one that takes the code, is found out when it is first used.
[[nodiscard]] Status check_target(const std::string& target);
[[nodiscard]] bool is_gpu_target(const std::string& target);
// All buffers that a step reads and writes (a buffer may be in both).
struct StepBuffers {
  std::vector<BufferId> read, written;
};
[[nodiscard]] StepBuffers buffers_of(const Step& step);
// Operands of a library call: a, b, c or x, w, y or x, y; then bias and residual of a fused epilogue, those that there
// are. `result`: which of them the call writes.
struct LibraryOperands {
  std::vector<const StridedOperand*> all;
  size_t result = 0;
  const std::optional<EpilogueKernel>* epilogue = nullptr;
};
[[nodiscard]] LibraryOperands operands_of(const LibraryStep& step);
[[nodiscard]] const std::string& name_of(const Step& step);
// Names of an executable's steps, each made unique by "#2" where several have one: how profiles and reports call them.
[[nodiscard]] std::vector<std::string> step_ids(const Executable& executable);
// Bytes that the step reads and writes.
[[nodiscard]] const SymExpr& bytes_of(const Step& step);
// The sizes that running the step defines; those of steps of other kinds are none.
[[nodiscard]] const std::vector<StepDefines>& defines_of(const Step& step);
// Whether buffers a and b of a launch may lie in the same memory: both are only read, or its contract allows it.
[[nodiscard]] bool shares_memory(const KernelLaunch& kernel, size_t a, size_t b);

} // namespace tessera
