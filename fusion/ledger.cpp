#include "fusion/plan.h"
#include <array>

namespace tessera {

namespace {

constexpr size_t kReasons = static_cast<size_t>(FusionReason::Count_);

// clang-format off
constexpr std::array<FusionReasonInfo, kReasons> kTable = {{
    {FusionReason::ViewFolded,             "FUS-001", "view-folded",              true,  "a view vanished into an index expression"},
    {FusionReason::Inlined,                "FUS-002", "inlined",                  true,  "a cheap producer is recomputed in each of its consumers"},
    {FusionReason::Recomputed,             "FUS-011", "recomputed",               true,  "in memory for others; recomputing it moves less than reading it"},
    {FusionReason::PointwiseIntoPointwise, "FUS-003", "pointwise-into-pointwise", true,  "both run over the same points of one kernel"},
    {FusionReason::ProducerIntoReduction,  "FUS-004", "producer-into-reduction",  true,  "computed where a reduction folds it"},
    {FusionReason::ReductionIntoConsumer,  "FUS-005", "reduction-then-same-rows", true,  "a reduction and what is done to the same rows"},
    {FusionReason::SiblingSharesInput,     "FUS-006", "sibling-shares-input",     true,  "read once for several consumers in one kernel"},
    {FusionReason::EpilogueOfLibrary,      "FUS-007", "epilogue-of-library-call", true,  "done to the result of a library call while it is in cache"},
    {FusionReason::OperandOfLibraryFolded, "FUS-008", "view-of-library-operand",  true,  "a view became strides of a library call's operand or result"},
    {FusionReason::WithinAttention,        "FUS-009", "within-attention",         true,  "scores or probabilities of an attention that is one unit"},
    {FusionReason::SideBySide,             "FUS-010", "side-by-side",             true,  "small kernels that share nothing, in one launch"},
    {FusionReason::OperandOfLibrary,       "FUS-031", "operand-of-library-call",  false, "a library call reads its operand from memory"},
    {FusionReason::ResultOfLibrary,        "FUS-032", "result-of-library-call",   false, "a library call's result goes through memory"},
    {FusionReason::OwnKernel,              "FUS-044", "kernel-of-its-own",        false, "a structured operator has a kernel of its own"},
    {FusionReason::HostOperator,           "FUS-033", "host-operator",            false, "producer or consumer runs by its reference on the host"},
    {FusionReason::DifferentDomain,        "FUS-034", "different-points",         false, "producer and consumer run over different points"},
    {FusionReason::DifferentReduction,     "FUS-035", "different-reduction",      false, "reductions over different axes"},
    {FusionReason::WouldCycle,             "FUS-036", "would-cycle",              false, "something else lies between producer and consumer"},
    {FusionReason::RecomputeTooDear,       "FUS-037", "recompute-too-dear",       false, "recomputing costs more than the bytes saved"},
    {FusionReason::TooManyBuffers,         "FUS-038", "too-many-buffers",         false, "the kernel would have too many buffers or operations"},
    {FusionReason::ManyConsumers,          "FUS-039", "many-consumers",           false, "written once and read by several kernels"},
    {FusionReason::GraphOutput,            "FUS-040", "graph-output",             false, "an output of the graph, read by another kernel too"},
    {FusionReason::DataDependent,          "FUS-041", "data-dependent-size",      false, "sizes are known only when running"},
    {FusionReason::NoGain,                 "FUS-042", "no-gain",                  false, "merging would not pay"},
    {FusionReason::Disabled,               "FUS-043", "disabled",                 false, "fusion is off"},
}};
// clang-format on

} // namespace

const FusionReasonInfo& info(FusionReason reason) {
  const auto& row = kTable[static_cast<size_t>(reason)];
  TESSERA_CHECK(row.reason == reason, "the table of fusion reasons is out of order");
  return row;
}

} // namespace tessera
