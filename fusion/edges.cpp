// The ledger: one entry for each edge between operators, from what the planner decided and tried.
#include "fusion/planner.h"
#include "fusion/structured_nest.h"
#include <algorithm>

namespace tessera::fusion {

namespace {

size_t at(ValueId v) { return static_cast<size_t>(v.index); }
size_t at(NodeId n) { return static_cast<size_t>(n.index); }

// Why an edge is as it is, and what of the value's memory traffic that saves.
struct EdgeVerdict {
  FusionReason reason = FusionReason::NoGain;
  Detail detail;
  enum Saves { Nothing, Read, ReadAndWrite } saves = Nothing;
};
EdgeVerdict kept(FusionReason reason, Detail detail = {}) { return {reason, std::move(detail), EdgeVerdict::Nothing}; }
EdgeVerdict fused(FusionReason reason, Detail detail = {}) {
  return {reason, std::move(detail), EdgeVerdict::ReadAndWrite};
}

class Edges {
public:
  explicit Edges(const Planned& planned) : p_(planned) {}
  LedgerEntry entry(NodeId consumer, ValueId value) const;

private:
  EdgeVerdict verdict(NodeId consumer, ValueId value) const;
  EdgeVerdict library_operand(NodeId consumer, ValueId value) const;
  EdgeVerdict computed_in_loops(NodeId consumer, ValueId value) const;
  EdgeVerdict unit_to_loops(NodeId consumer, ValueId value) const;
  EdgeVerdict not_merged(ValueId value, const std::vector<int>& homes, int from) const;
  Detail tradeoff(ValueId value, bool is_stored) const;

  const Planned& p_;
};

LedgerEntry Edges::entry(NodeId consumer, ValueId value) const {
  EdgeVerdict verdict = this->verdict(consumer, value);
  LedgerEntry e{p_.graph.value(value).producer, consumer, value, verdict.reason, 0, std::move(verdict.detail)};
  if (verdict.saves == EdgeVerdict::Nothing) return e;
  const SymExpr bytes = byte_count(p_.graph, value);
  e.bytes_saved = bytes;
  if (verdict.saves == EdgeVerdict::Read) return e;
  // The write, where nobody needs it in memory, counts at the first of its edges.
  const bool written = !p_.decisions.is_virtual[at(value)] && p_.stored(value);
  const auto &readers = p_.units.readers(value), &homes = p_.units.homes(consumer);
  const bool first = readers.empty() || std::find(homes.begin(), homes.end(), readers[0]) != homes.end();
  if (!written && first) e.bytes_saved += bytes;
  return e;
}

EdgeVerdict Edges::verdict(NodeId consumer, ValueId value) const {
  const NodeId producer = p_.graph.value(value).producer;
  const Place here = p_.decisions.place[at(producer)], there = p_.decisions.place[at(consumer)];
  // The one of the two nodes that is at a place, the consumer first.
  auto node_at = [&](Place place) { return there == place ? consumer : here == place ? producer : NodeId(); };
  auto name_of = [&](NodeId id) { return std::string(p_.graph.node(id).op->name); };
  if (there == Place::Unneeded) return kept(FusionReason::Inlined, "the consumer is not computed when running");
  if (here == Place::Unneeded || (there == Place::Loops && known_contents(p_.graph, value)))
    return kept(FusionReason::Inlined, "its elements are known when compiling");
  if (NodeId id = node_at(Place::Control); id.valid())
    return kept(FusionReason::ControlFlow, name_of(id) + " runs its bodies by themselves");
  if (NodeId id = node_at(Place::Host); id.valid())
    return kept(p_.graph.node(id).op->data_dependent_shape ? FusionReason::DataDependent : FusionReason::HostOperator,
                name_of(id) + ": " + p_.decisions.host_reason[at(id)]);
  if (NodeId id = node_at(Place::Own); id.valid()) return kept(FusionReason::SeparateKernel, name_of(id));
  if (there == Place::Library) return library_operand(consumer, value);
  return p_.decisions.is_virtual[at(value)] ? computed_in_loops(consumer, value) : unit_to_loops(consumer, value);
}

EdgeVerdict Edges::library_operand(NodeId consumer, ValueId value) const {
  const std::string name(p_.graph.node(consumer).op->name);
  const auto& operands = p_.units[p_.units.homes(consumer)[0]].draft->call.operands;
  const bool view = is_view(p_.graph, value);
  if (std::none_of(operands.begin(), operands.end(), [&](const auto& o) { return o.value == value; }))
    return fused(FusionReason::OperandOfLibraryFolded,
                 view ? "strides of an operand of " + name : name + " reads the constant as it is");
  if (auto it = p_.decisions.kept_apart.find(value.index); it != p_.decisions.kept_apart.end())
    return kept(FusionReason::KeptApart, it->second);
  if (const Separation* by = view ? p_.steering.separation(value) : nullptr) return kept(by->reason, by->why);
  return kept(FusionReason::OperandOfLibrary, name + " reads its operand from memory");
}

// A value that is computed where it is read, by loops.
EdgeVerdict Edges::computed_in_loops(NodeId consumer, ValueId value) const {
  if (is_view(p_.graph, value)) return fused(FusionReason::ViewFolded);
  const int sites = p_.decisions.sites[at(value)];
  if (sites <= 1)
    return fused(folds(p_.graph.node(consumer)) ? FusionReason::ProducerIntoReduction
                                                : FusionReason::PointwiseIntoPointwise);
  return fused(FusionReason::Inlined,
               Detail("in each of " + std::to_string(sites) + " consumers").append(tradeoff(value, false)));
}

// A value that has a unit of its own, read by loops.
EdgeVerdict Edges::unit_to_loops(NodeId consumer, ValueId value) const {
  const Node &from = *p_.graph.producer(value), &to = p_.graph.node(consumer);
  const auto& readers = p_.units.readers(value);
  std::vector<int> homes; // of the consumer, that read the value
  for (int u : p_.units.homes(consumer))
    if (std::find(readers.begin(), readers.end(), u) != readers.end()) homes.push_back(u);
  if (homes.empty()) {
    for (int u : p_.units.homes(consumer))
      if (auto it = p_.attempts.recomputed.find({value.index, u}); it != p_.attempts.recomputed.end()) {
        Detail detail("computed ");
        detail << it->second.computed << ", read " << it->second.stored;
        detail.compared(it->second.computed, it->second.stored);
        return {FusionReason::Recomputed, std::move(detail), EdgeVerdict::Read}; // it is written for others
      }
    // A view or scaling that only library operands look through.
    if (is_view(p_.graph, to.results[0]) || is_scaling(p_.graph, p_.bodies, to.results[0]))
      return fused(FusionReason::OperandOfLibraryFolded, "strides of a library operand");
    if (p_.units.homes(consumer).empty()) return kept(FusionReason::NoGain, "the consumer is written out nowhere");
    return kept(FusionReason::Inlined, "sizes decide that the consumer reads none of its elements");
  }
  const int unit = p_.units.home(value);
  if (!std::all_of(homes.begin(), homes.end(), [&](int u) { return p_.units.find(u) == unit; }))
    return not_merged(value, homes, unit);
  const Unit& u = p_.units[unit];
  if (u.kind == Group::Kind::Library) {
    const bool moved = to.op->indexing() && to.op->indexing()->view;
    return fused(moved ? FusionReason::OperandOfLibraryFolded : FusionReason::EpilogueOfLibrary,
                 (moved ? "strides of the result of " : "on the result of ") +
                     std::string(p_.graph.node(u.node).op->name));
  }
  if (folds(from)) return fused(FusionReason::ReductionIntoConsumer);
  if (folds(to)) return fused(FusionReason::ProducerIntoReduction);
  return fused(is_view(p_.graph, value) ? FusionReason::ViewFolded : FusionReason::PointwiseIntoPointwise);
}

// ", computed 2.1 MB, stored 6.3 MB", where that was compared; `is_stored`: and storing it chosen.
Detail Edges::tradeoff(ValueId value, bool is_stored) const {
  auto it = p_.decisions.tradeoffs.find(value.index);
  if (it == p_.decisions.tradeoffs.end()) return {};
  const auto& [computed, stored] = it->second;
  Detail out(", computed ");
  out << computed << ", stored " << stored;
  out.compared(is_stored ? stored : computed, is_stored ? computed : stored);
  return out;
}

EdgeVerdict Edges::not_merged(ValueId value, const std::vector<int>& homes, int from) const {
  for (int u : homes)
    if (p_.attempts.shared.contains({value.index, u}) && p_.units.find(u) != from)
      return {FusionReason::SiblingSharesInput, "from memory, once for several readers in one kernel",
              EdgeVerdict::Read};
  if (!p_.options.enabled) return kept(FusionReason::Disabled);
  if (const Separation* by = p_.steering.separation(value)) return kept(by->reason, by->why);
  if (auto it = p_.decisions.kept_apart.find(value.index); it != p_.decisions.kept_apart.end())
    return kept(FusionReason::KeptApart, it->second);
  for (int u : homes) {
    auto it = p_.attempts.refused.find({value.index, u});
    if (p_.units.find(u) == from || it == p_.attempts.refused.end()) continue;
    const Refusal& refusal = it->second;
    if (!p_.decisions.too_expensive[at(value)] || refusal.reason != FusionReason::DifferentIterationSpace)
      return kept(refusal.reason, refusal.detail);
    Detail detail("stored once for " + std::to_string(p_.decisions.sites[at(value)]) + " consumers");
    detail.append(tradeoff(value, true)) << "; " + refusal.detail;
    return kept(FusionReason::RecomputeTooExpensive, std::move(detail));
  }
  const auto& outputs = p_.graph.outputs();
  const bool output = std::any_of(outputs.begin(), outputs.end(), [&](const auto& o) { return o.value == value; });
  return kept(p_.units[from].kind == Group::Kind::Library ? FusionReason::ResultOfLibrary
              : output                                    ? FusionReason::GraphOutput
                                                          : FusionReason::ManyConsumers,
              std::to_string(p_.units.readers(value).size()) + " readers");
}

} // namespace

std::vector<LedgerEntry> explain_edges(const Planned& planned) {
  const Edges edges(planned);
  const Graph& graph = planned.graph;
  std::vector<LedgerEntry> out;
  for (NodeId id : planned.decisions.order) {
    std::vector<ValueId> seen;
    for (ValueId v : graph.node(id).operands) {
      if (!v.valid() || std::find(seen.begin(), seen.end(), v) != seen.end()) continue;
      seen.push_back(v);
      const Node* producer = graph.producer(v);
      if (!producer) continue;
      const auto* structured = producer->op->structured();
      if (structured && structured->kind == Structured::Constant) continue;
      out.push_back(edges.entry(id, v));
    }
  }
  return out;
}

} // namespace tessera::fusion
