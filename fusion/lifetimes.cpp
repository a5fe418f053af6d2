#include "fusion/lifetimes.h"
#include "fusion/cost.h"
#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

namespace tessera::fusion {
namespace {

// Groups stay in the graph's order, in which layers stand one behind the other, unless moving one spares at least this
// part of the most bytes that are live at a time.
constexpr double kWorthMoving = 1.0 / 1024;

class Order {
public:
  Order(const Graph& graph, const std::vector<Group>& groups)
      : groups_(groups), reads_(groups.size()), writes_(groups.size()), order_(groups.size()),
        position_(groups.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    position_ = order_;
    Estimator estimate(graph.env());
    std::unordered_set<int32_t> outputs;
    for (size_t g = 0; g < groups.size(); ++g)
      if (is_view(g)) memory_.emplace(groups[g].writes[0].index, memory_of(groups[g].reads[0]));
    for (const auto& output : graph.outputs()) outputs.insert(memory_of(output.value));
    for (size_t g = 0; g < groups.size(); ++g) {
      if (is_view(g)) continue;
      auto distinct = [&](const std::vector<ValueId>& values, std::vector<int32_t>& to) {
        for (ValueId v : values)
          if (v.valid() && std::find(to.begin(), to.end(), memory_of(v)) == to.end()) to.push_back(memory_of(v));
      };
      distinct(groups[g].reads, reads_[g]);
      distinct(groups[g].writes, writes_[g]);
      for (int32_t v : reads_[g]) values_[v].readers.push_back(g);
    }
    for (size_t g = 0; g < groups.size(); ++g)
      for (int32_t v : writes_[g]) {
        Value& value = values_[v];
        value.writer = static_cast<std::ptrdiff_t>(g);
        if (!outputs.contains(v)) value.bytes = estimate(byte_count(graph, ValueId{v}));
      }
  }

  // The new order; nothing where it is the old one.
  std::vector<size_t> run() {
    const auto before = order_;
    worth_ = most_live() * kWorthMoving;
    for (auto g = before.rbegin(); g != before.rend(); ++g) later(*g);
    const auto between = order_;
    for (size_t g : between) earlier(g);
    place_views();
    return order_ == before ? std::vector<size_t>() : order_;
  }

private:
  struct Value {
    std::ptrdiff_t writer = -1; // group; -1: it is there from the beginning
    std::vector<size_t> readers;
    double bytes = 0; // of memory that is free again behind its last reader
  };

  // It has no step: its result is its operand's memory.
  [[nodiscard]] bool is_view(size_t g) const {
    return groups_[g].kind == Group::Kind::Alias && groups_[g].node.valid();
  }
  [[nodiscard]] bool stays(size_t g) const {
    const auto kind = groups_[g].kind;
    return kind == Group::Kind::Host || kind == Group::Kind::Control || kind == Group::Kind::Alias;
  }
  [[nodiscard]] bool bounds(size_t g) const { return stays(g) && !is_view(g); }
  [[nodiscard]] int32_t memory_of(ValueId v) const {
    const auto it = memory_.find(v.index);
    return it == memory_.end() ? v.index : it->second;
  }
  // The last position at which a group other than `without` uses the value.
  [[nodiscard]] size_t last_use(const Value& value, size_t without) const {
    size_t last = value.writer < 0 ? 0 : position_[static_cast<size_t>(value.writer)];
    for (size_t r : value.readers)
      if (r != without) last = std::max(last, position_[r]);
    return last;
  }

  [[nodiscard]] double most_live() const {
    std::vector<double> change(order_.size() + 1);
    for (const auto& [v, value] : values_) {
      if (value.writer < 0) continue;
      const size_t first = position_[static_cast<size_t>(value.writer)];
      change[first] += value.bytes;
      change[last_use(value, order_.size()) + 1] -= value.bytes;
    }
    double live = 0, most = 0;
    for (double c : change) most = std::max(most, live += c);
    return most;
  }

  void later(size_t g) {
    if (stays(g)) return;
    const size_t from = position_[g];
    size_t end = order_.size(); // position of the first group that must run after it
    double made = 0;
    for (int32_t v : writes_[g]) {
      made += values_[v].bytes;
      for (size_t r : values_[v].readers) end = std::min(end, position_[r]);
    }
    if (made <= worth_) return;
    size_t to = from;
    while (to + 1 < end && !bounds(order_[to + 1])) ++to;
    if (to == from) return;
    double longer = 0;
    for (int32_t v : reads_[g])
      if (last_use(values_[v], g) < to) longer += values_[v].bytes;
    if (made - longer > worth_) move(from, to);
  }

  void earlier(size_t g) {
    if (stays(g)) return;
    const size_t from = position_[g];
    size_t begin = 0; // behind what must run before it
    for (int32_t v : reads_[g])
      if (const auto w = values_[v].writer; w >= 0) begin = std::max(begin, position_[static_cast<size_t>(w)] + 1);
    size_t to = from;
    while (to > begin && !bounds(order_[to - 1])) --to;
    if (to == from) return;
    double ended = 0, made = 0;
    for (int32_t v : reads_[g])
      if (last_use(values_[v], g) < to) ended += values_[v].bytes;
    for (int32_t v : writes_[g]) made += values_[v].bytes;
    if (ended - made > worth_) move(from, to);
  }

  void move(size_t from, size_t to) {
    const auto at = [&](size_t p) { return order_.begin() + static_cast<std::ptrdiff_t>(p); };
    if (from < to)
      std::rotate(at(from), at(from + 1), at(to + 1));
    else
      std::rotate(at(to), at(from), at(from + 1));
    for (size_t p = std::min(from, to); p <= std::max(from, to); ++p) position_[order_[p]] = p;
  }

  // Each behind what makes its memory, in their own order.
  void place_views() {
    std::vector<std::vector<size_t>> behind(groups_.size());
    std::vector<size_t> placed;
    placed.reserve(order_.size());
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (!is_view(g)) continue;
      const auto it = values_.find(memory_of(groups_[g].writes[0]));
      if (it == values_.end() || it->second.writer < 0)
        placed.push_back(g);
      else
        behind[static_cast<size_t>(it->second.writer)].push_back(g);
    }
    for (size_t g : order_)
      if (!is_view(g)) {
        placed.push_back(g);
        placed.insert(placed.end(), behind[g].begin(), behind[g].end());
      }
    order_ = std::move(placed);
  }

  const std::vector<Group>& groups_;
  std::unordered_map<int32_t, int32_t> memory_;      // of views: the value whose memory they have
  std::vector<std::vector<int32_t>> reads_, writes_; // values with memory of their own
  std::unordered_map<int32_t, Value> values_;
  std::vector<size_t> order_, position_;
  double worth_ = 0; // bytes
};

} // namespace

bool shorten_lifetimes(const Graph& graph, FusionPlan& plan) {
  const auto order = Order(graph, plan.groups).run();
  if (order.empty()) return false;
  std::vector<Group> groups;
  groups.reserve(order.size());
  for (size_t g : order) groups.push_back(std::move(plan.groups[g]));
  plan.groups = std::move(groups);
  return true;
}

} // namespace tessera::fusion
