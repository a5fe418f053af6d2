// Every edge between two operators: its verdict, and what a missed fusion costs. A value that goes through memory is
// written once and read by each step that needs it; a fusion of two steps saves the reading, a launch, and the writing
// where nobody else reads.
#include "fusion/cost.h"
#include "report/context.h"
#include <algorithm>
#include <set>

namespace tessera::report {

namespace {

class Edges {
public:
  Edges(Context& x, const Json& steps, const std::vector<const LedgerEntry*>& entries) : x_(x) {
    for (const Json& s : steps) {
      kinds_[s.at("id")] = s.at("kind");
      for (const Json& r : s.at("reads")) readers_[r.at("name")].insert(s.at("id").get<std::string>());
    }
    for (const auto& o : x.graph.outputs()) outputs_.insert(o.value);
    for (const LedgerEntry* e : entries)
      if (!info(e->reason).fused) ++between_[steps_between(*e)];
  }

  Json edge(const LedgerEntry& e) {
    const auto& why = info(e.reason);
    const auto& operators = x_.operators.entries();
    const std::string from = operators[x_.operators.of(e.producer)].id, to = operators[x_.operators.of(e.consumer)].id;
    Json j;
    std::string id = from + " -> " + to + " : " + x_.name(e.value);
    if (const int times = ++ids_[id]; times > 1) id += "#" + std::to_string(times);
    j["id"] = id;
    j["producer"] = from;
    j["consumer"] = to;
    j["value"] = x_.name(e.value);
    const TensorType& type = x_.graph.type(e.value);
    j["type"] = type.str();
    j["producer_steps"] = steps_of(e.producer);
    j["consumer_steps"] = steps_of(e.consumer);
    j["code"] = why.code;
    j["reason"] = why.name;
    j["fused"] = why.fused;
    const SymExpr bytes = fusion::byte_count(x_.graph, e.value);
    j["bytes"] = x_.sized(bytes);
    j["bytes_saved"] = x_.sized(e.bytes_saved);
    j["detail"] = x_.detail(e.detail);
    j["price_us"] = nullptr;
    if (auto us = why.fused ? saved_us(e) : missed_us(e, bytes)) j["price_us"] = *us;
    if (!why.fused) j["counterfactual"] = {{"change", name(why.change)}, {"text", why.advice}};
    return j;
  }

private:
  [[nodiscard]] Json steps_of(NodeId node) const {
    auto it = x_.steps_of_node.find(node);
    return it == x_.steps_of_node.end() ? Json::array() : Json(it->second);
  }
  [[nodiscard]] std::pair<std::string, std::string> steps_between(const LedgerEntry& e) const {
    auto first = [&](NodeId node) {
      auto it = x_.steps_of_node.find(node);
      return it == x_.steps_of_node.end() ? std::string() : it->second.front();
    };
    return {first(e.producer), first(e.consumer)};
  }
  [[nodiscard]] std::optional<double> saved_us(const LedgerEntry& e) const {
    const auto bytes = x_.value(e.bytes_saved);
    return bytes ? std::optional(x_.transfer_us(*bytes)) : std::nullopt;
  }
  [[nodiscard]] std::optional<double> missed_us(const LedgerEntry& e, const SymExpr& size) const {
    const auto bytes = x_.value(size);
    if (!bytes) return std::nullopt;
    const auto between = steps_between(e);
    if (between.first.empty() || between.second.empty() || between.first == between.second) return 0;
    const double once = x_.transfer_us(*bytes);
    double us = once; // read by the consumer
    const auto readers = readers_.find(x_.name(e.value));
    const bool alone = readers == readers_.end() || readers->second.size() <= 1;
    if (alone && !outputs_.contains(e.value)) us += once; // written
    auto is_launch = [&](const std::string& step) {
      const auto kind = kinds_.find(step);
      return kind != kinds_.end() && kind->second != "host" && kind->second != "read" && kind->second != "control";
    };
    if (is_launch(between.first) && is_launch(between.second))
      us += x_.device.launch_us / std::max(1, between_.at(between));
    return us;
  }

  Context& x_;
  std::map<std::string, int> ids_;
  std::map<std::string, std::string> kinds_;             // by step
  std::map<std::string, std::set<std::string>> readers_; // steps by value
  std::set<ValueId> outputs_;
  std::map<std::pair<std::string, std::string>, int> between_; // edges that are not fused, by their two steps
};

// One operator of the model may be several nodes that read a value: one edge, which is fused only if all of them are.
std::vector<const LedgerEntry*> entries_of(Context& x) {
  std::map<std::tuple<size_t, size_t, ValueId>, size_t> known;
  std::vector<const LedgerEntry*> out;
  for (const LedgerEntry& e : x.c.report.plan.ledger) {
    if (!e.producer.valid() || !e.consumer.valid() || !e.value.valid()) continue;
    const auto [it, fresh] =
        known.try_emplace({x.operators.of(e.producer), x.operators.of(e.consumer), e.value}, out.size());
    if (fresh)
      out.push_back(&e);
    else if (info(out[it->second]->reason).fused && !info(e.reason).fused)
      out[it->second] = &e;
  }
  return out;
}

} // namespace

Json edges_json(Context& x, const Json& steps) {
  const auto entries = entries_of(x);
  Edges edges(x, steps, entries);
  Json out = Json::array();
  for (const LedgerEntry* e : entries) out.push_back(edges.edge(*e));
  return out;
}

Json pairs_json(Context& x) {
  Json out = Json::array();
  const auto& operators = x.operators.entries();
  for (const PairEntry& e : x.c.report.plan.pairs) {
    const auto& why = info(e.reason);
    Json j{{"code", why.code}, {"reason", why.name}, {"fused", why.fused}};
    j["first"] = operators[x.operators.of(e.first)].id;
    j["second"] = operators[x.operators.of(e.second)].id;
    j["detail"] = x.detail(e.detail);
    if (!why.fused) j["counterfactual"] = {{"change", name(why.change)}, {"text", why.advice}};
    j["price_us"] = x.device.launch_us; // what one launch fewer saves
    out.push_back(std::move(j));
  }
  return out;
}

} // namespace tessera::report
