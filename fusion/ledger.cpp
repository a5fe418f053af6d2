#include "fusion/plan.h"
#include <array>

namespace tessera {

namespace {

constexpr size_t kReasons = static_cast<size_t>(FusionReason::Count_);

// clang-format off
constexpr std::array<FusionReasonInfo, kReasons> kTable = {{
    // reason, code, name, name in 0.1, fused, summary
    {FusionReason::ViewFolded,              "FUS-001", "view-folded",               "",                   true,  "a view became an index expression"},
    {FusionReason::Inlined,                 "FUS-002", "inlined",                   "",                   true,  "a cheap producer is recomputed in each of its consumers"},
    {FusionReason::Recomputed,              "FUS-011", "recomputed",                "",                   true,  "stored for other readers; recomputing it moves less than reading it"},
    {FusionReason::PointwiseIntoPointwise,  "FUS-003", "pointwise-into-pointwise",  "",                   true,  "both have the same iteration space in one kernel"},
    {FusionReason::ProducerIntoReduction,   "FUS-004", "producer-into-reduction",   "",                   true,  "computed where a reduction folds it"},
    {FusionReason::ReductionIntoConsumer,   "FUS-005", "reduction-then-same-rows",  "",                   true,  "a reduction and what is done to the same rows"},
    {FusionReason::SiblingSharesInput,      "FUS-006", "sibling-shares-input",      "",                   true,  "read once for several consumers in one kernel"},
    {FusionReason::EpilogueOfLibrary,       "FUS-007", "epilogue-of-library-call",  "",                   true,  "applied to a library call's result while it is in cache"},
    {FusionReason::OperandOfLibraryFolded,  "FUS-008", "view-of-library-operand",   "",                   true,  "a view became strides of a library call's operand or result"},
    {FusionReason::WithinAttention,         "FUS-009", "within-attention",          "",                   true,  "scores or probabilities of an attention that is one unit"},
    {FusionReason::HorizontalFusion,        "FUS-010", "horizontal-fusion",         "side-by-side",       true,  "small independent kernels in one launch"},
    {FusionReason::OperandOfLibrary,        "FUS-031", "operand-of-library-call",   "",                   false, "a library call reads its operand from memory"},
    {FusionReason::ResultOfLibrary,         "FUS-032", "result-of-library-call",    "",                   false, "a library call's result goes through memory"},
    {FusionReason::SeparateKernel,          "FUS-044", "separate-kernel",           "kernel-of-its-own",  false, "a structured operator has a separate kernel"},
    {FusionReason::ControlFlow,             "FUS-045", "control-flow",              "",                   false, "an If or a loop"},
    {FusionReason::HostOperator,            "FUS-033", "host-operator",             "",                   false, "producer or consumer is a CPU fallback"},
    {FusionReason::DifferentIterationSpace, "FUS-034", "different-iteration-space", "different-points",   false, "producer and consumer have different iteration spaces"},
    {FusionReason::DifferentReduction,      "FUS-035", "different-reduction",       "",                   false, "reductions over different axes"},
    {FusionReason::WouldCycle,              "FUS-036", "would-cycle",               "",                   false, "something else lies between producer and consumer"},
    {FusionReason::RecomputeTooExpensive,   "FUS-037", "recompute-too-expensive",   "recompute-too-dear", false, "recomputing costs more than the bytes saved"},
    {FusionReason::TooManyBuffers,          "FUS-038", "too-many-buffers",          "",                   false, "the kernel would have too many buffers or operations"},
    {FusionReason::ManyConsumers,           "FUS-039", "many-consumers",            "",                   false, "written once and read by several kernels"},
    {FusionReason::GraphOutput,             "FUS-040", "graph-output",              "",                   false, "an output of the graph that another kernel reads, too"},
    {FusionReason::DataDependent,           "FUS-041", "data-dependent-size",       "",                   false, "sizes are known only at run time"},
    {FusionReason::NoGain,                  "FUS-042", "no-gain",                   "",                   false, "merging would not pay"},
    {FusionReason::Disabled,                "FUS-043", "disabled",                  "",                   false, "fusion is off"},
    {FusionReason::KeptApart,               "FUS-047", "kept-apart",                "",                   false, "kept apart by request"},
}};
// clang-format on

} // namespace

const FusionReasonInfo& info(FusionReason reason) {
  const auto& row = kTable[static_cast<size_t>(reason)];
  TESSERA_CHECK(row.reason == reason, "the table of fusion reasons is out of order");
  return row;
}

} // namespace tessera
