// The ledger: one entry for each edge between operators, from what the planner decided and tried.
#include "fusion/planner.h"
#include "fusion/structured_nest.h"
#include <algorithm>

namespace tessera::fusion {

namespace {

size_t at(ValueId v) { return static_cast<size_t>(v.index); }
size_t at(NodeId n) { return static_cast<size_t>(n.index); }

} // namespace

void Planner::explain(FusionPlan& plan) {
  for (NodeId id : d_.order) {
    std::vector<ValueId> seen;
    for (ValueId v : graph_.node(id).operands) {
      if (!v.valid() || std::find(seen.begin(), seen.end(), v) != seen.end()) continue;
      seen.push_back(v);
      const Node* producer = graph_.producer(v);
      if (!producer) continue;
      const auto* structured = producer->op->structured();
      if (structured && structured->kind == Structured::Constant) continue;
      plan.ledger.push_back(explain_edge(id, v));
    }
  }
}

LedgerEntry Planner::explain_edge(NodeId consumer, ValueId value) {
  LedgerEntry e;
  e.producer = graph_.value(value).producer;
  e.consumer = consumer;
  e.value = value;
  const Node &from = graph_.node(e.producer), &to = graph_.node(consumer);
  Place here = d_.place[at(e.producer)], there = d_.place[at(consumer)];
  SymExpr bytes = byte_count(graph_, value);
  auto fused = [&](FusionReason reason, Detail detail = {}) {
    e.reason = reason;
    e.detail = std::move(detail);
    // The read; and the write where nobody needs it in memory, counted at the first of its edges.
    e.bytes_saved = bytes;
    bool written = !d_.is_virtual[at(value)] && stored(value);
    const auto& readers = homes_[at(consumer)];
    bool first = !readers_[at(value)].empty()
                     ? std::find(readers.begin(), readers.end(), readers_[at(value)][0]) != readers.end()
                     : true;
    if (!written && first) e.bytes_saved += bytes;
    return e;
  };
  auto kept = [&](FusionReason reason, Detail detail) {
    e.reason = reason;
    e.detail = std::move(detail);
    return e;
  };
  if (there == Place::Unneeded || here == Place::Unneeded || (there == Place::Loops && known_contents(graph_, value))) {
    e.reason = FusionReason::Inlined;
    e.detail = there == Place::Unneeded ? "the consumer is not computed when running"
                                        : "its elements are known when compiling";
    return e;
  }
  if (there == Place::Control || here == Place::Control)
    return kept(FusionReason::ControlFlow,
                std::string(graph_.node(there == Place::Control ? consumer : e.producer).op->name) +
                    " runs its bodies by themselves");
  if (there == Place::Host || here == Place::Host) {
    NodeId host = there == Place::Host ? consumer : e.producer;
    bool dynamic = graph_.node(host).op->data_dependent_shape;
    return kept(dynamic ? FusionReason::DataDependent : FusionReason::HostOperator,
                std::string(graph_.node(host).op->name) + ": " + d_.host_reason[at(host)]);
  }
  if (there == Place::Own || here == Place::Own)
    return kept(FusionReason::SeparateKernel,
                std::string(graph_.node(there == Place::Own ? consumer : e.producer).op->name));
  bool view = is_view(graph_, value);
  if (there == Place::Library) {
    const auto& draft = units_[static_cast<size_t>(homes_[at(consumer)][0])].draft;
    bool direct = false;
    for (const auto& operand : draft->call.operands) direct = direct || operand.value == value;
    if (!direct)
      return fused(FusionReason::OperandOfLibraryFolded,
                   view ? "strides of an operand of " + std::string(to.op->name)
                        : std::string(to.op->name) + " reads the constant as it is");
    if (auto it = d_.kept_apart.find(value.index); it != d_.kept_apart.end())
      return kept(FusionReason::KeptApart, it->second);
    if (view && steering_.broken(value))
      return kept(steering_.failed(value) ? FusionReason::InternalFailure : FusionReason::KeptApart,
                  steering_.broken_by(value));
    return kept(FusionReason::OperandOfLibrary, std::string(to.op->name) + " reads its operand from memory");
  }
  // The consumer is loops.
  if (d_.is_virtual[at(value)]) {
    if (view) return fused(FusionReason::ViewFolded);
    if (folds(to) && d_.sites[at(value)] <= 1) return fused(FusionReason::ProducerIntoReduction);
    if (d_.sites[at(value)] <= 1) return fused(FusionReason::PointwiseIntoPointwise);
    return fused(
        FusionReason::Inlined,
        Detail("in each of " + std::to_string(d_.sites[at(value)]) + " consumers").append(tradeoff(value, false)));
  }
  // The value has a unit of its own. Where was the consumer put?
  std::vector<int> homes;
  for (int u : homes_[at(consumer)])
    if (std::find(readers_[at(value)].begin(), readers_[at(value)].end(), u) != readers_[at(value)].end())
      homes.push_back(u);
  int unit = home(value);
  for (int u : homes_[at(consumer)])
    if (auto it = recomputed_.find({value.index, u}); homes.empty() && it != recomputed_.end()) {
      Detail detail("computed ");
      detail << it->second.computed << ", read " << it->second.stored;
      detail.compared(it->second.computed, it->second.stored);
      fused(FusionReason::Recomputed, std::move(detail));
      e.bytes_saved = bytes; // it is written for others
      return e;
    }
  if (homes.empty()) { // a view or scaling that only library operands look through
    bool looked_through = is_view(graph_, to.results[0]) || is_scaling(graph_, bodies_, to.results[0]);
    if (looked_through) return fused(FusionReason::OperandOfLibraryFolded, "strides of a library operand");
    if (homes_[at(consumer)].empty()) return kept(FusionReason::NoGain, "the consumer is written out nowhere");
    e.reason = FusionReason::Inlined;
    e.detail = "sizes decide that the consumer reads none of its elements";
    return e;
  }
  bool together = std::all_of(homes.begin(), homes.end(), [&](int u) { return find(u) == unit; });
  if (together) {
    const Unit& u = units_[static_cast<size_t>(unit)];
    if (u.kind == Group::Kind::Library) {
      bool moved = to.op->indexing() && to.op->indexing()->view;
      return fused(moved ? FusionReason::OperandOfLibraryFolded : FusionReason::EpilogueOfLibrary,
                   (moved ? "strides of the result of " : "on the result of ") +
                       std::string(graph_.node(u.node).op->name));
    }
    if (folds(from)) return fused(FusionReason::ReductionIntoConsumer);
    if (folds(to)) return fused(FusionReason::ProducerIntoReduction);
    return fused(view ? FusionReason::ViewFolded : FusionReason::PointwiseIntoPointwise);
  }
  explain_not_merged(e, homes, unit);
  return e;
}

// ", computed 2.1 MB, stored 6.3 MB", where that was compared; `is_stored`: and storing it chosen.
Detail Planner::tradeoff(ValueId value, bool is_stored) const {
  auto it = d_.tradeoffs.find(value.index);
  if (it == d_.tradeoffs.end()) return {};
  const auto& [computed, stored] = it->second;
  Detail out(", computed ");
  out << computed << ", stored " << stored;
  out.compared(is_stored ? stored : computed, is_stored ? computed : stored);
  return out;
}

void Planner::explain_not_merged(LedgerEntry& e, const std::vector<int>& homes, int from) {
  const Unit& unit = units_[static_cast<size_t>(from)];
  for (int u : homes)
    if (shared_.contains({e.value.index, u}) && find(u) != from) {
      e.reason = FusionReason::SiblingSharesInput;
      e.bytes_saved = byte_count(graph_, e.value);
      e.detail = "from memory, once for several readers in one kernel";
      return;
    }
  if (!options_.enabled) {
    e.reason = FusionReason::Disabled;
    return;
  }
  if (steering_.broken(e.value)) {
    e.reason = steering_.failed(e.value) ? FusionReason::InternalFailure : FusionReason::KeptApart;
    e.detail = steering_.broken_by(e.value);
    return;
  }
  if (auto it = d_.kept_apart.find(e.value.index); it != d_.kept_apart.end()) {
    e.reason = FusionReason::KeptApart;
    e.detail = it->second;
    return;
  }
  for (int u : homes) {
    auto it = refused_.find({e.value.index, u});
    if (find(u) == from || it == refused_.end()) continue;
    e.reason = it->second.reason;
    e.detail = it->second.detail;
    if (d_.too_dear[at(e.value)] && e.reason == FusionReason::DifferentIterationSpace) {
      e.reason = FusionReason::RecomputeTooExpensive;
      e.detail = Detail("stored once for " + std::to_string(d_.sites[at(e.value)]) + " consumers");
      e.detail.append(tradeoff(e.value, true)) << "; " + it->second.detail;
    }
    return;
  }
  bool output =
      std::any_of(graph_.outputs().begin(), graph_.outputs().end(), [&](const auto& o) { return o.value == e.value; });
  if (unit.kind == Group::Kind::Library)
    e.reason = FusionReason::ResultOfLibrary;
  else
    e.reason = output ? FusionReason::GraphOutput : FusionReason::ManyConsumers;
  e.detail = std::to_string(readers_[at(e.value)].size()) + " readers";
}

} // namespace tessera::fusion
