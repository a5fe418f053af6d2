// FusionPlan: which nodes became one kernel, which became library calls with which epilogue, which run on the host, and
// the reason for every edge.
#pragma once
#include "fusion/constraints.h"
#include "fusion/detail.h"
#include "fusion/loop_nest.h"
#include <map>

namespace tessera {

namespace fusion {
class AxisPool;
}

// Every reason an edge (producer value -> consumer) can end with. The table in ledger.cpp gives each its stable code
// ("FUS-001"), its name, whether it means fused, and one line of explanation; docs/fusion/README.md lists them.
enum class FusionReason : uint8_t {
  // fused
  ViewFolded,             // a view became an index expression
  Inlined,                // a cheap producer is recomputed in its consumers
  Recomputed,             // stored for other readers, and recomputing moves less than reading it
  PointwiseIntoPointwise, // one iteration space
  ProducerIntoReduction,  // prologue of a reduction
  ReductionIntoConsumer,  // reduction, then the same rows: softmax, norms
  SiblingSharesInput,     // reads what the group reads
  EpilogueOfLibrary,      // bias, activation, residual attached to a product or convolution
  OperandOfLibraryFolded, // a transpose or slice became strides of a library operand or result
  WithinAttention,        // scores or probabilities of an attention that is one unit
  HorizontalFusion,       // independent kernels that move less than a launch is worth
  // not fused
  OperandOfLibrary,        // the library reads its operand from memory
  ResultOfLibrary,         // the library has no such epilogue
  RowsOfLibraryResult,     // a reduction needs whole rows of a library call's result
  OtherCallsEpilogue,      // the reader is what follows another library call
  AttentionInSteps,        // two products and the softmax between them, which the device does not take as one unit
  AttentionOfType,         // the same, of another type than f16 and bf16
  SeparateKernel,          // producer or consumer is a structured operator with a separate kernel
  ControlFlow,             // producer or consumer is an If or a loop
  HostOperator,            // producer or consumer runs by its reference on the host
  DifferentIterationSpace, // producer and consumer have different iteration spaces
  DifferentReduction,      // reductions over different axes
  WouldCycle,              // something else lies between producer and consumer
  RecomputeTooExpensive,   // recomputing costs more than the bytes saved
  TooManyBuffers,          // the kernel would exceed operand or register limits
  ManyConsumers,           // written once, read by several kernels
  GraphOutput,             // must be written; consumers in other kernels read it
  DataDependent,           // sizes are known only at run time
  NoGain,                  // merging would not pay
  Disabled,                // by option
  LeftToPyTorch,           // not in the graph: torch.compile left it to PyTorch
  KeptApart,               // by request for these operators (constraints.h)
  InternalFailure,         // compiling the two together failed, which is a bug of ours
  Count_,
};
// The change that lets the pair fuse: nothing that a user could do, an option of Tessera, or the model.
enum class FusionChange : uint8_t { None, Option, Model };
[[nodiscard]] std::string_view name(FusionChange change); // "none", "option", "model"
// A code never changes. A name may; the name of the version before stays as `alias` for one version.
struct FusionReasonInfo {
  FusionReason reason;
  std::string_view code, name;
  std::string_view alias; // empty where the name is the same as before
  bool fused;
  std::string_view summary;
  FusionChange change;     // what would make the pair fuse; None where it is fused
  std::string_view advice; // of a pair that is not fused, one line: what to do, or why it is right so
};
[[nodiscard]] const FusionReasonInfo& info(FusionReason reason);
// The reason with this code or name, or the name of the version before; null if there is none.
[[nodiscard]] const FusionReasonInfo* find_reason(std::string_view code_or_name);

struct LedgerEntry {
  NodeId producer, consumer;
  ValueId value;
  FusionReason reason = FusionReason::NoGain;
  SymExpr bytes_saved; // 0 when not fused
  Detail detail;       // amounts and names, for people: "oneDNN matmul takes no where()"
};

// Two kernels of which neither reads what the other makes, by the first node of each: small ones that share nothing and
// were tried together (side_by_side.cpp), and reductions that read the same over different axes.
struct PairEntry {
  NodeId first, second;
  FusionReason reason = FusionReason::NoGain;
  Detail detail;
};

// ---- library calls
// How a library operand or result lies in the buffer of `value`: element strides per logical dimension of the call, 0
// where broadcast, and offset. Batch dimensions of a product may be more than the node's: a head dimension is split
// where an operand repeats along part of it.
struct OperandView {
  ValueId value;
  SymShape shape; // logical dims as the call sees them
  std::vector<SymExpr> strides;
  SymExpr offset;
};
// An epilogue of the one form that GPU libraries compute by themselves: y = activation(alpha * sum + bias + residual),
// recognised in an epilogue nest by what it computes (library_epilogue.h).
struct FixedEpilogue {
  enum class Activation : uint8_t { None, Relu, Clip, GeluTanh, GeluErf, Sigmoid, Silu, Tanh };
  OperandView result; // what is stored, as the call's raw result would lie: same shape, strides, offset and dtype
  double alpha = 1;
  std::optional<OperandView> bias; // strides are 0 but in dimension bias_dim
  int bias_dim = -1;
  std::optional<OperandView> residual; // lies as the result does
  Activation activation = Activation::None;
  double clip_low = 0, clip_high = 0; // Clip
};
struct LibraryCall {
  enum class Kind : uint8_t { Matmul, Conv, Pool };
  Kind kind = Kind::Matmul;
  NodeId node;                       // the structured node
  std::vector<OperandView> operands; // matmul: a [..., M, K], b [..., K, N]; conv: x, w; pool: x. With half_weights
                                     // b and w may be f16 and bf16 constants
  OperandView result;
  double scale = 1; // matmul: of the sum, before everything that follows (FusionOptions::scaled_operands)
  // The work that follows on each element: any pointwise nest over the result's index space, with exactly one outer
  // axis per dimension of `result`, in order, so that a box of the result is a box of axes. It loads the node's own
  // value (result.value) at its own point and stores what the group writes; the device runs it as a generated kernel on
  // each block of the result while that is in cache. The raw value is memory for others only when it is among the
  // group's `writes`.
  std::optional<LoopNest> epilogue_nest;
  // With FusionOptions::fixed_epilogues: the same as epilogue_nest, which is kept for sizes that the library refuses.
  std::optional<FixedEpilogue> fixed;
  std::vector<NodeId> sources; // structured node and what was attached
};

// ---- attention
// A score in the form that libraries compute: scale * sum + bias, and nothing (-inf) where `causal` and the key comes
// after the query.
struct FixedScore {
  double scale = 1;
  std::optional<OperandView> bias; // of the scores' shape, [batch..., query, key]; strides 0 where it stays the same
  // Computes the bias, in f32, where it does not lie in memory as it is; the plan has it as a kernel.
  std::optional<LoopNest> bias_nest;
  bool causal = false;
};
// Two products and the softmax between them as one unit; scores and probabilities lie in no memory.
//
//   out[batch..., i, :] = sum over j of p[j] * v[batch..., j, :]      p = softmax over j of score(i, j)
//   score(i, j)         = a scalar expression of sum over d of q[batch..., i, d] * k[batch..., j, d], of the indices,
//                         and of anything in memory: scale, bias, masks
//
// One f16 or bf16 type for q, k, v and out; sums, scores and softmax in f32.
struct AttentionCall {
  OperandView q;   // [batch..., query, width]
  OperandView k;   // [batch..., key, width]; as many batch dimensions as q, strides 0 where heads share keys and values
  OperandView v;   // [batch..., key, value width]
  OperandView out; // [batch..., query, value width]
  // The score: a nest without stores, with one axis for each of batch..., query (outer) and key (row), those of one
  // point too. loads[0] stands for the sum over the width, which lies nowhere: a load of it is at its own point, and
  // yields f32.
  LoopNest score;
  ScalarId root = -1; // f32
  // A row whose scores are all -inf, or in which a score is NaN, yields zeros; otherwise such rows yield NaN.
  bool zero_where_undefined = false;
  std::optional<FixedScore> fixed; // the same score, where it has that form
  std::string not_fixed;           // why it has not
};

// A failed check or another internal error while planning, and what was planned in its place.
struct PlanFailure {
  std::string what; // "merging k3_softmax with k4_add"
  Diagnostic error;
  std::string instead;
};

// ---- plan
struct Group {
  enum class Kind : uint8_t {
    Kernel,
    Library,
    Attention /* one library call, or `otherwise` where the library turns out not to take it when running */,
    Own /* a structured operator with a separate generated kernel: a scan */,
    Host,
    Control /* an If or a loop, whose bodies are executables of their own */,
    Alias /* an output that is an input or constant as it is: reads == writes; or `node`, whose result has the bytes of
             its operand */
  };
  Kind kind = Kind::Kernel;
  std::string name;             // "k3_add_layer_norm", unique
  LoopNest nest;                // Kernel
  LibraryCall call;             // Library
  NodeId node;                  // Own, Host, Control
  std::string host_reason;      // Host: why the node does not run on the device
  AttentionCall attention;      // Attention
  std::vector<Group> otherwise; // Attention: product, softmax, product, which compute the same in steps
  // A part that a plan file pins (constraints.h): values that had a unit, and for an attention its three groups.
  struct Part {
    Kind kind = Kind::Kernel;
    std::string name;
    std::vector<NodeId> nodes;
    std::vector<ValueId> stages, reads;
    int pin = -1;
  };
  std::vector<ValueId> stages;
  std::vector<Part> parts;
  int pin = -1; // index of FusionConstraints::groups; -1: none
  std::vector<ValueId> reads, writes;
  SymExpr bytes_read, bytes_written; // what it moves
  SymExpr bytes_unfused;             // what its operators would move unfused
  Group();
  Group(const Group&);
  Group(Group&&) noexcept;
  Group& operator=(const Group&);
  Group& operator=(Group&&) noexcept;
  ~Group();
};
struct FusionPlan {
  std::vector<Group> groups; // in execution order
  std::vector<LedgerEntry>
      ledger; // every edge between operators (inputs and constants are none), in order of the consumers
  std::vector<PairEntry> pairs;
  std::vector<UnmetPin> unmet;       // of FusionOptions::constraints
  std::vector<PlanFailure> failures; // what was planned around
};

struct FusionOptions {
  bool enabled = true; // false: one kernel per operator, for comparison
  bool strict_rounding = false;
  FusionConstraints constraints;
  int max_buffers = 24;
  // A vector instruction on one element costs as much time as this many bytes from memory. A core does about 16 element
  // operations in the time in which 4 bytes arrive.
  double bytes_per_instruction = 0.25;
  // Instructions for one element whose code, as a kernel repeats it in a step, stays in a core's instruction cache. The
  // code of a larger body is fetched again in every step, which moves more than the values that it need not store.
  // 0: any number.
  double cached_instructions = 0;
  // The time to start a kernel, and the bytes that the device moves in a microsecond: kernels that share nothing become
  // one where both together move less than that. 0: never.
  double launch_us = 0, bytes_per_us = 0;
  // Nests list the values that they compute and do not store (LoopNest::inner). The plan is the same with and without.
  bool keep_values = false;
  // Kernels with rows divide long rows between programs (cooperative blocks), also where results are computed for each
  // element. Without it one program computes a row, and large nests stay out of kernels of few long rows.
  bool cooperative_rows = false;
  // Calls take generated epilogues (LibraryCall::epilogue_nest). Without it, only those that library_accepts allows, if
  // it is set.
  bool generated_epilogues = false;
  // The library takes FixedEpilogues only: other growth is refused with what stands in the way, and LibraryCall::fixed
  // is set. library_accepts decides which of them.
  bool fixed_epilogues = false;
  // Operands of products that are a constant times something in memory are read from there, and the library multiplies
  // the sum (LibraryCall::scale). Not under strict rounding.
  bool scaled_operands = false;
  // The library reads second operands that are constants of half precision itself, where the product is in f32: a cast
  // from one is not computed, the call reads what it casts.
  bool half_weights = false;
  // Products, convolutions and pooling that become loop nests (structured_nest.h) rather than library calls: fused like
  // any reduction. Queried after device_supports. Empty: none.
  std::function<bool(const Graph&, NodeId)> as_loops;
  // Values that their readers compute where they could be in memory as well: factors of products that as_loops names.
  // Empty: none.
  std::function<bool(ValueId)> written_out;
  // Whether the device can generate code for this node; false makes it a Host group. Empty: everything.
  std::function<bool(const Graph&, NodeId, std::string* why_not)> device_supports;
  // Whether two products and the softmax between them are to be an Attention group. Empty: never.
  std::function<bool(const Graph&, const AttentionCall&, std::string* why_not)> attention_accepts;
  // Refuses calls: queried with the bare call (one refused also without strided operands becomes loops with as_loops,
  // else a Host group) and with each candidate whose epilogue has just been extended. Empty: every call is fine.
  std::function<bool(const Graph&, const LibraryCall&, std::string* why_not)> library_accepts;
};
// Plans the whole graph. The graph must be decomposed to primitives. Deterministic. May add axis symbols to the
// environment. What fails inside is planned around: two units stay apart, a node runs on the host (FusionPlan::failures). It is plan_groups() and fusion::fuse_attention() (attention.h), which a compile runs as two passes.
[[nodiscard]] Result<FusionPlan> plan_fusion(Graph& graph, const FusionOptions& options);
// Kernels, library calls and host operators. `axes`: of the graph's environment; the plan's nests share its symbols.
[[nodiscard]] Result<FusionPlan> plan_groups(Graph& graph, fusion::AxisPool& axes, const FusionOptions& options);
// All groups in the order in which they stand in an executable: those of Group::otherwise behind theirs.
[[nodiscard]] std::vector<const Group*> flat_groups(const FusionPlan& plan);
[[nodiscard]] std::string print(const Graph& graph, const FusionPlan& plan); // groups, nests and ledger
[[nodiscard]] Status verify(const Graph& graph,
                            const FusionPlan& plan); // every value defined before read, each store once

} // namespace tessera
