#include "fusion/plan.h"
#include <array>

namespace tessera {

namespace {

constexpr size_t kReasons = static_cast<size_t>(FusionReason::Count_);

// clang-format off
constexpr std::array<FusionReasonInfo, kReasons> kTable = {{
    // reason, code, name, name in 0.1, fused, summary, and what to do where it is not fused
    {FusionReason::ViewFolded,              "FUS-001", "view-folded",               "",                   true,  "a view became an index expression", FusionChange::None, ""},
    {FusionReason::Inlined,                 "FUS-002", "inlined",                   "",                   true,  "a cheap producer is recomputed in each of its consumers", FusionChange::None, ""},
    {FusionReason::Recomputed,              "FUS-011", "recomputed",                "",                   true,  "stored for other readers; recomputing it moves less than reading it", FusionChange::None, ""},
    {FusionReason::PointwiseIntoPointwise,  "FUS-003", "pointwise-into-pointwise",  "",                   true,  "both have the same iteration space in one kernel", FusionChange::None, ""},
    {FusionReason::ProducerIntoReduction,   "FUS-004", "producer-into-reduction",   "",                   true,  "computed where a reduction folds it", FusionChange::None, ""},
    {FusionReason::ReductionIntoConsumer,   "FUS-005", "reduction-then-same-rows",  "",                   true,  "a reduction and what is done to the same rows", FusionChange::None, ""},
    {FusionReason::SiblingSharesInput,      "FUS-006", "sibling-shares-input",      "",                   true,  "read once for several consumers in one kernel", FusionChange::None, ""},
    {FusionReason::EpilogueOfLibrary,       "FUS-007", "epilogue-of-library-call",  "",                   true,  "applied to a library call's result while it is in cache", FusionChange::None, ""},
    {FusionReason::OperandOfLibraryFolded,  "FUS-008", "view-of-library-operand",   "",                   true,  "a view became strides of a library call's operand or result", FusionChange::None, ""},
    {FusionReason::WithinAttention,         "FUS-009", "within-attention",          "",                   true,  "scores or probabilities of an attention that is one unit", FusionChange::None, ""},
    {FusionReason::HorizontalFusion,        "FUS-010", "horizontal-fusion",         "side-by-side",       true,  "small independent kernels in one launch", FusionChange::None, ""},
    {FusionReason::OperandOfLibrary,        "FUS-031", "operand-of-library-call",   "",                   false, "a library call reads its operand from memory",
     FusionChange::None, "the library reads its operands from memory; a factor per row can be applied to the result instead"},
    {FusionReason::ResultOfLibrary,         "FUS-032", "result-of-library-call",    "",                   false, "a library call's result goes through memory",
     FusionChange::Model, "put pointwise operators directly behind the call; on a GPU use activations that the library has: ReLU, GELU in its tanh form"},
    {FusionReason::RowsOfLibraryResult,     "FUS-048", "rows-of-library-result",    "",                   false, "a reduction needs whole rows of a library call's result",
     FusionChange::None, "a library computes its result in blocks; a reduction begins when whole rows are there"},
    {FusionReason::OtherCallsEpilogue,      "FUS-049", "epilogue-of-another-call",  "",                   false, "the reader is computed on another library call's result",
     FusionChange::None, "a reader of two calls' results is computed on the second while that is in cache, and reads the first"},
    {FusionReason::AttentionInSteps,        "FUS-051", "attention-in-steps",        "",                   false, "an attention that runs as two products and a softmax",
     FusionChange::None, "the device has no kernel for this attention as a whole: scores and probabilities go through memory"},
    {FusionReason::AttentionOfType,         "FUS-052", "attention-of-type",         "",                   false, "an attention of a type that no kernel takes as a whole",
     FusionChange::Model, "export the model in f16 or bf16, in which attention is one kernel"},
    {FusionReason::SeparateKernel,          "FUS-044", "separate-kernel",           "kernel-of-its-own",  false, "a structured operator has a separate kernel",
     FusionChange::Model, "use a reduction or a pointwise operator where it gives the same result: TopK with k = 1 is ReduceMax and ArgMax"},
    {FusionReason::ControlFlow,             "FUS-045", "control-flow",              "",                   false, "an If or a loop",
     FusionChange::Model, "replace an If by a Where, and unroll a loop of few iterations when exporting"},
    {FusionReason::HostOperator,            "FUS-033", "host-operator",             "",                   false, "producer or consumer is a CPU fallback",
     FusionChange::Model, "use element types and operators that have generated code (tessera ops), or register a kernel (examples/operators)"},
    {FusionReason::DifferentIterationSpace, "FUS-034", "different-iteration-space", "different-points",   false, "producer and consumer have different iteration spaces",
     FusionChange::Model, "move slices in front of the expensive operator, and other views to the end of the chain"},
    {FusionReason::DifferentReduction,      "FUS-035", "different-reduction",       "",                   false, "reductions over different axes",
     FusionChange::Model, "reduce over the same axes, or over all of them in one operator"},
    {FusionReason::WouldCycle,              "FUS-036", "would-cycle",               "",                   false, "something else lies between producer and consumer",
     FusionChange::None, "another step needs the producer and is needed by the consumer; the order allows nothing else"},
    {FusionReason::RecomputeTooExpensive,   "FUS-037", "recompute-too-expensive",   "recompute-too-dear", false, "recomputing costs more than the bytes saved",
     FusionChange::None, "storing the value once moves less than computing it for every reader"},
    {FusionReason::TooManyBuffers,          "FUS-038", "too-many-buffers",          "",                   false, "the kernel would have too many buffers or operations",
     FusionChange::Model, "join operands into one tensor where the model makes them, and reduce over the new axis"},
    {FusionReason::ManyConsumers,           "FUS-039", "many-consumers",            "",                   false, "written once and read by several kernels",
     FusionChange::None, "the value is written in any case, for a library call"},
    {FusionReason::GraphOutput,             "FUS-040", "graph-output",              "",                   false, "an output of the graph that another kernel reads, too",
     FusionChange::Model, "do not return the value if only the later result is needed"},
    {FusionReason::DataDependent,           "FUS-041", "data-dependent-size",       "",                   false, "sizes are known only at run time",
     FusionChange::Model, "keep the size fixed: a mask, and Where or a product with it, instead of selecting elements"},
    {FusionReason::NoGain,                  "FUS-042", "no-gain",                   "",                   false, "merging would not pay",
     FusionChange::None, "one kernel would take at least as long as two"},
    {FusionReason::Disabled,                "FUS-043", "disabled",                  "",                   false, "fusion is off",
     FusionChange::Option, "leave out --no-fusion"},
    {FusionReason::LeftToPyTorch,           "FUS-046", "left-to-pytorch",           "",                   false, "an operator that torch.compile leaves to PyTorch",
     FusionChange::Model, "use operators that have a translation; docs/pytorch.md lists what is left, and why"},
    {FusionReason::KeptApart,               "FUS-047", "kept-apart",                "",                   false, "kept apart by request",
     FusionChange::Option, "leave out the request: --no-fuse, --break-at, or the plan file"},
    {FusionReason::InternalFailure,         "FUS-050", "internal-failure",          "",                   false, "compiling the two together failed, a bug in Tessera",
     FusionChange::None, "report it with the model; the warning of the compile names the texts that were saved"},
}};
// clang-format on

} // namespace

const FusionReasonInfo& info(FusionReason reason) {
  const auto& row = kTable[static_cast<size_t>(reason)];
  TESSERA_CHECK(row.reason == reason, "the table of fusion reasons is out of order");
  return row;
}

const FusionReasonInfo* find_reason(std::string_view wanted) {
  for (const auto& row : kTable)
    if (wanted == row.code || wanted == row.name || (!row.alias.empty() && wanted == row.alias)) return &row;
  return nullptr;
}

std::string_view name(FusionChange change) {
  switch (change) {
  case FusionChange::Option: return "option";
  case FusionChange::Model: return "model";
  case FusionChange::None: break;
  }
  return "none";
}

} // namespace tessera
