#include "graph/ops/ml_forest.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <unordered_map>

namespace tessera::ops {

namespace {

constexpr int64_t kMaxNodes = int64_t{1} << 30; // positions are 32 bits

constexpr uint8_t kLess = Forest::kLess, kEqual = Forest::kEqual, kGreater = Forest::kGreater,
                  kUnordered = Forest::kUnordered;
// In the order of TreeEnsemble's numbers.
struct Mode {
  std::string_view name;
  uint8_t yes_if;
};
constexpr std::array<Mode, 6> kModes = {{{"BRANCH_LEQ", kLess | kEqual},
                                         {"BRANCH_LT", kLess},
                                         {"BRANCH_GTE", kGreater | kEqual},
                                         {"BRANCH_GT", kGreater},
                                         {"BRANCH_EQ", kEqual},
                                         {"BRANCH_NEQ", kLess | kGreater | kUnordered}}};
constexpr int64_t kMember = 6;

Diagnostic wrong(const Node& node, std::string what) {
  return {ErrorCode::BadAttribute, node.location, "'" + std::string(node.op->name) + "': " + std::move(what)};
}

Status check_count(const Node& node, std::string_view name, size_t given, size_t expected, bool optional = false) {
  if (given == expected || (optional && given == 0)) return {};
  return wrong(node, "'" + std::string(name) + "' has " + std::to_string(given) + " values, and there are " +
                         std::to_string(expected) + " nodes");
}

// A forest under construction: nodes in the order they come, then leaves first.
class Builder {
public:
  explicit Builder(const Node& node) : node_(node) {}

  struct Item {
    int64_t feature = 0;
    double split = 0;
    uint8_t yes_if = 0;
    int64_t yes = -1, no = -1; // -1, -1: a leaf
  };
  std::vector<Item> items;
  std::vector<int64_t> roots;
  std::vector<Forest::Weight> weights; // `leaf` is an item
  std::function<std::string(int64_t item)> name;

  // Whether `feature` is one of `members`: a search tree of branches, whose root is the item.
  void add_members(int64_t item, std::vector<double> members) {
    std::sort(members.begin(), members.end());
    members.erase(std::unique(members.begin(), members.end()), members.end());
    const Item all = items[static_cast<size_t>(item)];
    const uint8_t missing = all.yes_if & kUnordered;
    struct Part {
      int64_t item;
      size_t begin, end;
    };
    std::vector<Part> open = {{item, 0, members.size()}};
    while (!open.empty()) {
      const Part part = open.back();
      open.pop_back();
      Item here = all;
      const size_t n = part.end - part.begin;
      if (n <= 1) { // of no member: none is equal to NaN
        here.split = n == 1 ? members[part.begin] : 0;
        here.yes_if = static_cast<uint8_t>((n == 1 ? kEqual : 0) | missing);
      } else {
        const size_t middle = part.begin + n / 2;
        here.split = members[middle];
        here.yes_if = static_cast<uint8_t>(kLess | missing);
        here.yes = static_cast<int64_t>(items.size());
        here.no = here.yes + 1;
        items.resize(items.size() + 2);
        open.push_back({here.yes, part.begin, middle});
        open.push_back({here.no, middle, part.end});
      }
      items[static_cast<size_t>(part.item)] = here;
    }
  }

  Result<Forest> done(int64_t targets) {
    Forest out;
    out.targets = targets;
    TESSERA_TRY(measure(out));
    if (static_cast<int64_t>(items.size()) > kMaxNodes)
      return Diagnostic(ErrorCode::UnsupportedFeature, node_.location,
                        std::to_string(items.size()) + " nodes of trees are more than can be addressed");
    items.emplace_back(); // the leaf of no tree
    std::vector<int64_t> order = {static_cast<int64_t>(items.size()) - 1}, place(items.size());
    for (bool leaves : {true, false}) {
      for (size_t i = 0; i + 1 < items.size(); ++i)
        if ((items[i].yes < 0) == leaves) order.push_back(static_cast<int64_t>(i));
      if (leaves) out.leaves = static_cast<int64_t>(order.size());
    }
    for (size_t i = 0; i < order.size(); ++i) place[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    for (size_t i = 0; i < order.size(); ++i) {
      const Item& item = items[static_cast<size_t>(order[i])];
      const bool leaf = item.yes < 0;
      out.feature.push_back(leaf ? 0 : item.feature);
      out.split.push_back(leaf ? 0 : item.split);
      out.yes_if.push_back(leaf ? 0 : item.yes_if);
      for (int64_t to : {item.yes, item.no})
        out.next.push_back(leaf ? static_cast<int64_t>(i) : place[static_cast<size_t>(to)]);
      if (!leaf) out.most_feature = std::max(out.most_feature, item.feature);
    }
    for (int64_t root : roots) out.roots.push_back(place[static_cast<size_t>(root)]);
    for (Forest::Weight w : weights) {
      if (items[static_cast<size_t>(w.leaf)].yes >= 0) continue; // old converters give weights to branches as well
      w.leaf = place[static_cast<size_t>(w.leaf)];
      out.weights.push_back(w);
    }
    return out;
  }

private:
  // Depth; error where a node is below itself.
  Status measure(Forest& out) const {
    std::vector<int64_t> height(items.size(), -1); // -1: not seen, -2: its branches are being measured
    std::vector<int64_t> open;
    for (int64_t root : roots) {
      open.push_back(root);
      while (!open.empty()) {
        const int64_t at = open.back();
        const Item& item = items[static_cast<size_t>(at)];
        int64_t& h = height[static_cast<size_t>(at)];
        if (h >= 0 || item.yes < 0) {
          h = std::max<int64_t>(h, 0);
          open.pop_back();
          continue;
        }
        const int64_t yes = height[static_cast<size_t>(item.yes)], no = height[static_cast<size_t>(item.no)];
        if (h == -2 && yes >= 0 && no >= 0) {
          h = 1 + std::max(yes, no);
          open.pop_back();
          continue;
        }
        h = -2;
        for (int64_t to : {item.yes, item.no}) {
          if (height[static_cast<size_t>(to)] == -2) return wrong(node_, name(to) + " is below itself");
          if (height[static_cast<size_t>(to)] == -1) open.push_back(to);
        }
      }
      out.depth = std::max(out.depth, height[static_cast<size_t>(root)]);
    }
    return {};
  }

  const Node& node_;
};

Result<std::vector<double>> tensor_floats(const Node& node, const std::string& name) {
  std::vector<double> out;
  const auto* tensor = node.attributes.get<Tensor>(name);
  if (tensor == nullptr) return out;
  if (!is_float(tensor->dtype()))
    return wrong(node,
                 "'" + name + "' is of type " + std::string(tessera::name(tensor->dtype())) + "; floats are expected");
  out.reserve(static_cast<size_t>(tensor->count()));
  for (int64_t i = 0; i < tensor->count(); ++i) out.push_back(tensor->get_f64(i));
  return out;
}

} // namespace

Result<std::vector<double>> floats_or_tensor(const Node& node, const std::string& name) {
  TESSERA_ASSIGN(std::vector<double> out, tensor_floats(node, name + "_as_tensor"));
  const auto* floats = node.attributes.get<std::vector<double>>(name);
  if (floats == nullptr || floats->empty()) return out;
  if (!out.empty()) return wrong(node, "'" + name + "' and '" + name + "_as_tensor' are given; one is expected");
  return *floats;
}

Result<Forest> forest_of_nodes(const Node& node, std::string_view prefix, int64_t targets) {
  const Attributes& a = node.attributes;
  const Ints ids = a.ints("nodes_nodeids"), trees = a.ints("nodes_treeids"), features = a.ints("nodes_featureids"),
             yes = a.ints("nodes_truenodeids"), no = a.ints("nodes_falsenodeids"),
             missing = a.ints("nodes_missing_value_tracks_true");
  const auto* modes = a.get<std::vector<std::string>>("nodes_modes");
  TESSERA_ASSIGN(const std::vector<double> splits, floats_or_tensor(node, "nodes_values"));
  const size_t n = ids.size();
  if (n == 0) return wrong(node, "'nodes_nodeids' has no nodes");
  TESSERA_TRY(check_count(node, "nodes_treeids", trees.size(), n));
  TESSERA_TRY(check_count(node, "nodes_featureids", features.size(), n));
  TESSERA_TRY(check_count(node, "nodes_truenodeids", yes.size(), n));
  TESSERA_TRY(check_count(node, "nodes_falsenodeids", no.size(), n));
  TESSERA_TRY(check_count(node, "nodes_modes", modes ? modes->size() : 0, n));
  TESSERA_TRY(check_count(node, "nodes_values", splits.size(), n));
  TESSERA_TRY(check_count(node, "nodes_missing_value_tracks_true", missing.size(), n, true));
  if (targets < 1) return wrong(node, std::to_string(targets) + " classes or targets; at least one is expected");

  // Positions by tree and node.
  std::vector<size_t> sorted(n);
  std::iota(sorted.begin(), sorted.end(), size_t{0});
  auto key = [&](size_t i) { return std::pair(trees[i], ids[i]); };
  std::sort(sorted.begin(), sorted.end(), [&](size_t i, size_t j) { return key(i) < key(j); });
  auto shown = [](int64_t tree, int64_t id) {
    return "node " + std::to_string(id) + " of tree " + std::to_string(tree);
  };
  for (size_t i = 0; i + 1 < n; ++i)
    if (key(sorted[i]) == key(sorted[i + 1]))
      return wrong(node, shown(trees[sorted[i]], ids[sorted[i]]) + " is given twice");
  auto find = [&](int64_t tree, int64_t id) -> int64_t {
    const std::pair wanted(tree, id);
    auto it =
        std::lower_bound(sorted.begin(), sorted.end(), wanted, [&](size_t i, const auto& w) { return key(i) < w; });
    return it != sorted.end() && key(*it) == wanted ? static_cast<int64_t>(*it) : -1;
  };

  Builder builder(node);
  builder.name = [&](int64_t i) { return shown(trees[static_cast<size_t>(i)], ids[static_cast<size_t>(i)]); };
  builder.items.resize(n);
  std::unordered_map<int64_t, bool> seen;
  for (size_t i = 0; i < n; ++i) {
    if (seen.emplace(trees[i], true).second) builder.roots.push_back(static_cast<int64_t>(i)); // the first one listed
    const std::string& mode = (*modes)[i];
    if (mode == "LEAF") continue;
    const auto it = std::find_if(kModes.begin(), kModes.end(), [&](const Mode& m) { return m.name == mode; });
    if (it == kModes.end())
      return wrong(node, shown(trees[i], ids[i]) + " has the mode '" + mode +
                             "'; LEAF or BRANCH_LEQ, LT, GTE, GT, EQ, NEQ are expected");
    Builder::Item& item = builder.items[i];
    item.feature = features[i];
    item.split = splits[i];
    item.yes_if = static_cast<uint8_t>(it->yes_if | (!missing.empty() && missing[i] != 0 ? kUnordered : 0));
    if (item.feature < 0)
      return wrong(node, shown(trees[i], ids[i]) + " reads feature " + std::to_string(item.feature));
    for (auto [to, id] : {std::pair(&item.yes, yes[i]), std::pair(&item.no, no[i])}) {
      *to = find(trees[i], id);
      if (*to < 0)
        return wrong(node, shown(trees[i], ids[i]) + " branches to " + shown(trees[i], id) + ", which does not exist");
    }
  }

  const std::string p(prefix);
  const Ints leaf_ids = a.ints(p + "_nodeids"), leaf_trees = a.ints(p + "_treeids"), leaf_targets = a.ints(p + "_ids");
  TESSERA_ASSIGN(const std::vector<double> values, floats_or_tensor(node, p + "_weights"));
  const size_t m = leaf_ids.size();
  if (leaf_trees.size() != m || leaf_targets.size() != m || values.size() != m)
    return wrong(node, "'" + p + "_nodeids', '" + p + "_treeids', '" + p + "_ids' and '" + p + "_weights' have " +
                           std::to_string(m) + ", " + std::to_string(leaf_trees.size()) + ", " +
                           std::to_string(leaf_targets.size()) + " and " + std::to_string(values.size()) +
                           " values; as many of each are expected");
  for (size_t i = 0; i < m; ++i) {
    const int64_t at = find(leaf_trees[i], leaf_ids[i]);
    if (at < 0) return wrong(node, "a weight is of " + shown(leaf_trees[i], leaf_ids[i]) + ", which does not exist");
    if (leaf_targets[i] < 0 || leaf_targets[i] >= targets)
      return wrong(node, shown(leaf_trees[i], leaf_ids[i]) + " has a weight of class or target " +
                             std::to_string(leaf_targets[i]) + ", and there are " + std::to_string(targets));
    builder.weights.push_back({at, leaf_targets[i], values[i]});
  }
  return builder.done(targets);
}

Result<Forest> forest_of_branches(const Node& node) {
  const Attributes& a = node.attributes;
  const Ints roots = a.ints("tree_roots"), features = a.ints("nodes_featureids"), yes = a.ints("nodes_truenodeids"),
             no = a.ints("nodes_falsenodeids"), yes_leaf = a.ints("nodes_trueleafs"),
             no_leaf = a.ints("nodes_falseleafs"), missing = a.ints("nodes_missing_value_tracks_true"),
             leaf_targets = a.ints("leaf_targetids");
  TESSERA_ASSIGN(const std::vector<double> splits, tensor_floats(node, "nodes_splits"));
  TESSERA_ASSIGN(const std::vector<double> values, tensor_floats(node, "leaf_weights"));
  TESSERA_ASSIGN(const std::vector<double> members, tensor_floats(node, "membership_values"));
  const auto* modes = a.get<Tensor>("nodes_modes");
  const size_t n = features.size(), leaves = values.size();
  if (n == 0) return wrong(node, "'nodes_featureids' has no nodes");
  if (modes == nullptr || modes->dtype() != DType::U8) return wrong(node, "'nodes_modes' is no tensor of u8");
  TESSERA_TRY(check_count(node, "nodes_modes", static_cast<size_t>(modes->count()), n));
  TESSERA_TRY(check_count(node, "nodes_truenodeids", yes.size(), n));
  TESSERA_TRY(check_count(node, "nodes_falsenodeids", no.size(), n));
  TESSERA_TRY(check_count(node, "nodes_trueleafs", yes_leaf.size(), n));
  TESSERA_TRY(check_count(node, "nodes_falseleafs", no_leaf.size(), n));
  TESSERA_TRY(check_count(node, "nodes_splits", splits.size(), n));
  TESSERA_TRY(check_count(node, "nodes_missing_value_tracks_true", missing.size(), n, true));
  const int64_t targets = a.i("n_targets");
  if (targets < 1) return wrong(node, "'n_targets' is " + std::to_string(targets) + "; at least one is expected");
  if (leaf_targets.size() != leaves)
    return wrong(node, std::to_string(leaves) + " weights and " + std::to_string(leaf_targets.size()) +
                           " targets of leaves are given");
  if (roots.empty()) return wrong(node, "'tree_roots' is empty");

  Builder builder(node);
  builder.name = [](int64_t i) { return "node " + std::to_string(i); };
  builder.items.resize(n + leaves); // branches, then leaves
  size_t member = 0;
  for (size_t i = 0; i < n; ++i) {
    Builder::Item item;
    item.feature = features[i];
    item.split = splits[i];
    if (item.feature < 0)
      return wrong(node, builder.name(static_cast<int64_t>(i)) + " reads feature " + std::to_string(item.feature));
    for (auto [to, id, leaf] : {std::tuple(&item.yes, yes[i], yes_leaf[i]), std::tuple(&item.no, no[i], no_leaf[i])}) {
      const auto count = static_cast<int64_t>(leaf != 0 ? leaves : n);
      if (id < 0 || id >= count)
        return wrong(node, builder.name(static_cast<int64_t>(i)) + " branches to " + (leaf != 0 ? "leaf " : "node ") +
                               std::to_string(id) + ", and there are " + std::to_string(count));
      *to = id + (leaf != 0 ? static_cast<int64_t>(n) : 0);
    }
    const int64_t mode = modes->get_i64(static_cast<int64_t>(i));
    if (mode > kMember)
      return wrong(node, builder.name(static_cast<int64_t>(i)) + " has the mode " + std::to_string(mode) +
                             "; 0 to 6 are expected");
    if (!missing.empty() && missing[i] != 0) item.yes_if = kUnordered;
    if (mode < kMember) {
      item.yes_if = static_cast<uint8_t>(item.yes_if | kModes[static_cast<size_t>(mode)].yes_if);
      builder.items[i] = item;
      continue;
    }
    std::vector<double> set; // up to NaN
    while (member < members.size() && !std::isnan(members[member])) set.push_back(members[member++]);
    ++member;
    builder.items[i] = item;
    builder.add_members(static_cast<int64_t>(i), std::move(set));
  }
  for (int64_t root : roots) {
    if (root < 0 || root >= static_cast<int64_t>(n))
      return wrong(node, "a tree begins at node " + std::to_string(root) + ", and there are " + std::to_string(n));
    builder.roots.push_back(root);
  }
  for (size_t i = 0; i < leaves; ++i) {
    if (leaf_targets[i] < 0 || leaf_targets[i] >= targets)
      return wrong(node, "leaf " + std::to_string(i) + " has a weight of target " + std::to_string(leaf_targets[i]) +
                             ", and there are " + std::to_string(targets));
    builder.weights.push_back({static_cast<int64_t>(n + i), leaf_targets[i], values[i]});
  }
  return builder.done(targets);
}

} // namespace tessera::ops
