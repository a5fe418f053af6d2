// Ensembles of decision trees. All rows walk all trees at once: the node that each has come to is a tensor, and a level
// of branches is gathers from the tables of nodes, a comparison, and a gather of the next node. Levels are written one
// behind the other, so that a walk is one kernel; forests that are deeper than kUnrolledLevels loop over that many. A
// walk that has come to a leaf stays there. Then the weights of leaves are gathered, and reduced over trees.
#include "graph/ops/ml.h"
#include "graph/ops/ml_forest.h"
#include "graph/ops/sampling.h"
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

namespace tessera {

namespace {
using namespace ops;

// A level is about ten nodes of the graph, and a walk is computed in full however short its trees are.
constexpr int64_t kUnrolledLevels = 32;
constexpr int64_t kMaxElements = int64_t{1} << 28; // of a table of weights

enum class Fold : uint8_t { Average, Sum, Min, Max }; // numbered as in TreeEnsemble

Tensor table(DType dtype, const std::vector<int64_t>& values) {
  return Tensor::of<int64_t>(dtype, {static_cast<int64_t>(values.size())}, values);
}

// ---- traversal
class TreeTraversal {
public:
  TreeTraversal(B& b, const Forest& forest, DType dtype) : b_(b), forest_(forest) {
    if (!b.ok()) return;
    feature_ = b.constant(table(DType::I32, forest.feature));
    next_ = b.constant(table(DType::I32, forest.next));
    split_ = ml_constant(b, dtype, {forest.nodes()}, forest.split);
    const auto branch = static_cast<std::ptrdiff_t>(forest.leaves);
    const auto first = forest.yes_if.begin() + branch;
    same_ = std::all_of(first, forest.yes_if.end(), [&](uint8_t m) { return m == *first; });
    if (same_)
      yes_if_ = first == forest.yes_if.end() ? uint8_t{0} : *first;
    else
      yes_ifs_ = b.constant(table(DType::I32, {forest.yes_if.begin(), forest.yes_if.end()}));
  }

  // One branch further: the nodes i32[rows, trees] of x[rows, features].
  ValueId step(ValueId x, ValueId at) {
    if (!b_.ok()) return {};
    ValueId rows = ramp(b_, b_.dim(x, 0), 2, 0);
    ValueId v = gather_at(b_, x, {rows, of(feature_, at)}, {0, 1});
    ValueId no = cast(b_, logical_not(b_, takes_yes(v, at)), DType::I32);
    return of(next_, add(b_, mul(b_, at, b_.scalar_i(DType::I32, 2)), no));
  }

  // An element of a table for each node. Every node is in the tables: a load needs no check.
  ValueId of(ValueId values, ValueId at) { return gather_at(b_, values, {at}, {0}); }

private:
  ValueId takes_yes(ValueId v, ValueId at) {
    ValueId split = of(split_, at);
    if (same_) return compares(yes_if_, v, split);
    auto code = [&](uint8_t c) { return b_.scalar_i(DType::I32, c); };
    ValueId is = select(b_, gt(b_, v, split), code(Forest::kGreater), code(Forest::kUnordered));
    is = select(b_, eq(b_, v, split), code(Forest::kEqual), is);
    is = select(b_, lt(b_, v, split), code(Forest::kLess), is);
    return ne(b_, b_.op("and", {of(yes_ifs_, at), is}), code(0));
  }

  ValueId compares(uint8_t yes_if, ValueId v, ValueId split) {
    if ((yes_if & Forest::kUnordered) != 0)
      return logical_not(b_, compares(static_cast<uint8_t>(15 ^ yes_if), v, split));
    switch (yes_if) {
    case Forest::kLess: return lt(b_, v, split);
    case Forest::kLess | Forest::kEqual: return le(b_, v, split);
    case Forest::kEqual: return eq(b_, v, split);
    case Forest::kGreater: return gt(b_, v, split);
    case Forest::kGreater | Forest::kEqual: return ge(b_, v, split);
    case Forest::kLess | Forest::kGreater: return logical_or(b_, lt(b_, v, split), gt(b_, v, split));
    case Forest::kLess | Forest::kEqual | Forest::kGreater: return eq(b_, sub(b_, v, v), sub(b_, split, split));
    default: return logical_and(b_, lt(b_, v, split), gt(b_, v, split)); // none
    }
  }

  B& b_;
  const Forest& forest_;
  ValueId feature_, next_, split_, yes_ifs_;
  bool same_ = true;
  uint8_t yes_if_ = 0;
};

// The leaves that rows come to in the trees of these roots; i32[rows, trees].
ValueId walk(B& b, ValueId x, const Forest& forest, const std::vector<int64_t>& roots) {
  ValueId at = expand(b, b.constant(table(DType::I32, roots)), {b.dim(x, 0), static_cast<int64_t>(roots.size())});
  if (!b.ok()) return {};
  const DType dtype = b.dtype(x);
  if (forest.depth <= kUnrolledLevels) {
    TreeTraversal w(b, forest, dtype);
    for (int64_t i = 0; i < forest.depth; ++i) at = w.step(x, at);
    return at;
  }
  const int64_t trips = (forest.depth + kUnrolledLevels - 1) / kUnrolledLevels;
  return ml_repeat(b, trips, {at}, {x},
                   [&](B& s, ValueId, std::vector<ValueId> state, std::vector<ValueId> around) -> MlStep {
                     TreeTraversal w(s, forest, dtype);
                     for (int64_t i = 0; i < kUnrolledLevels; ++i) state[0] = w.step(around[0], state[0]);
                     return {{}, state};
                   })[0];
}

// ---- weights
struct Sums {
  Fold fold = Fold::Sum;
  DType dtype = DType::F32;
  [[nodiscard]] double nothing() const { // what changes no result
    const double inf = std::numeric_limits<double>::infinity();
    return fold == Fold::Min ? inf : fold == Fold::Max ? -inf : 0;
  }
  [[nodiscard]] double join(double a, double b) const {
    return fold == Fold::Min ? std::min(a, b) : fold == Fold::Max ? std::max(a, b) : a + b;
  }
  [[nodiscard]] ValueId over(B& b, ValueId x, int64_t axis) const {
    const char* op = fold == Fold::Min ? "reduce_min" : fold == Fold::Max ? "reduce_max" : "reduce_sum";
    return reduce(b, op, x, {axis}, false);
  }
};

// The target that each tree has weights of, if it has weights of one alone; none for a tree without weights.
std::optional<std::vector<int64_t>> target_of_trees(const Forest& forest) {
  std::vector<int64_t> of_leaf(static_cast<size_t>(forest.leaves), -1);
  for (const Forest::Weight& w : forest.weights) {
    int64_t& t = of_leaf[static_cast<size_t>(w.leaf)];
    if (t >= 0 && t != w.target) return std::nullopt;
    t = w.target;
  }
  std::vector<int64_t> out;
  std::vector<int64_t> seen(static_cast<size_t>(forest.nodes()), -1), open;
  for (size_t tree = 0; tree < forest.roots.size(); ++tree) {
    int64_t target = -1;
    open = {forest.roots[tree]};
    while (!open.empty()) {
      const int64_t at = open.back();
      open.pop_back();
      if (std::exchange(seen[static_cast<size_t>(at)], static_cast<int64_t>(tree)) == static_cast<int64_t>(tree))
        continue;
      if (at < forest.leaves) {
        const int64_t t = of_leaf[static_cast<size_t>(at)];
        if (t < 0) continue;
        if (target >= 0 && target != t) return std::nullopt;
        target = t;
      } else {
        open.push_back(forest.next[static_cast<size_t>(2 * at)]);
        open.push_back(forest.next[static_cast<size_t>(2 * at + 1)]);
      }
    }
    out.push_back(target);
  }
  return out;
}

// The folded weights of each target, [rows, targets].
ValueId fold_trees(B& b, ValueId x, const Forest& forest, const Sums& sums) {
  const int64_t targets = forest.targets;
  auto one_each = target_of_trees(forest);
  std::vector<std::vector<int64_t>> trees(static_cast<size_t>(targets)); // roots by target
  size_t most = 1;
  if (one_each) {
    for (size_t i = 0; i < forest.roots.size(); ++i)
      trees[static_cast<size_t>(std::max<int64_t>((*one_each)[i], 0))].push_back(forest.roots[i]);
    for (const auto& t : trees) most = std::max(most, t.size());
  }
  // Each target gets the same number of trees: targets with fewer get trees of one leaf that adds nothing.
  const bool grouped = one_each && static_cast<double>(most) * static_cast<double>(targets) <=
                                       2 * static_cast<double>(forest.roots.size()) + 16;
  if (!grouped && forest.leaves * targets > kMaxElements) {
    b.fail(ErrorCode::UnsupportedFeature, "weights of " + std::to_string(forest.leaves) + " leaves for " +
                                              std::to_string(targets) + " targets make a table that is too large");
    return {};
  }
  const int64_t columns = grouped ? 1 : targets;
  std::vector<double> weights(static_cast<size_t>(forest.leaves * columns), sums.nothing());
  if (targets == 1) { // of one target, leaves without a weight have the weight 0, as in ONNX Runtime
    std::vector<bool> weighted(weights.size(), false);
    for (const Forest::Weight& w : forest.weights) weighted[static_cast<size_t>(w.leaf)] = true;
    for (size_t leaf = 1; leaf < weights.size(); ++leaf)
      if (!weighted[leaf]) weights[leaf] = 0;
  }
  for (const Forest::Weight& w : forest.weights) {
    double& to = weights[static_cast<size_t>(w.leaf * columns + (grouped ? 0 : w.target))];
    to = sums.join(to, w.value);
  }
  ValueId y;
  if (grouped) {
    std::vector<int64_t> roots;
    for (auto& t : trees) {
      t.resize(most, 0); // trees of the leaf without a weight
      roots.insert(roots.end(), t.begin(), t.end());
    }
    ValueId w = gather_at(b, ml_constant(b, sums.dtype, {forest.leaves}, weights), {walk(b, x, forest, roots)}, {0});
    y = sums.over(b, reshape(b, w, {b.dim(x, 0), targets, static_cast<int64_t>(most)}), 2);
  } else {
    ValueId at = unsqueeze(b, walk(b, x, forest, forest.roots), {2});
    ValueId w = ml_constant(b, sums.dtype, {forest.leaves, targets}, weights);
    ValueId each = ramp(b, targets, 3, 2);
    y = sums.over(b, gather_at(b, w, {at, each}, {0, 1}), 1);
  }
  if (!b.ok()) return {};
  if (sums.fold == Fold::Average) return div(b, y, static_cast<double>(forest.roots.size()));
  if (sums.fold == Fold::Sum) return y;
  return select(b, eq(b, y, sums.nothing()), 0.0, y);
}

// The first operand as rows that the forest can read.
ValueId rows_for(B& b, const Forest& forest, DType dtype) {
  ValueId x = ml_rows(b, dtype);
  if (!b.ok() || forest.most_feature < 0) return x;
  const SymExpr features = b.dim(x, 1);
  const std::string read = "a tree reads feature " + std::to_string(forest.most_feature);
  if (auto n = features.as_const(); n && *n <= forest.most_feature)
    b.fail(ErrorCode::ShapeMismatch, read + ", and rows have " + std::to_string(*n));
  else
    b.check(b.env().require(sym_lt(forest.most_feature, features), GuardClass::Required, read, b.node().location));
  return x;
}

// The attribute base_values, of `count` values or none.
std::vector<double> bases_of(B& b, std::initializer_list<int64_t> counts) {
  auto bases = floats_or_tensor(b.node(), "base_values");
  if (!bases.ok()) return b.fail(bases.error()), std::vector<double>{};
  const auto n = static_cast<int64_t>(bases->size());
  if (n != 0 && std::find(counts.begin(), counts.end(), n) == counts.end())
    b.fail(ErrorCode::BadAttribute, "'base_values' has " + std::to_string(n) + " values; " +
                                        std::to_string(*(counts.end() - 1)) + " or none are expected");
  return *bases;
}

ValueId with_bases(B& b, ValueId scores, const std::vector<double>& bases, DType dtype) {
  if (bases.empty() || !b.ok()) return scores;
  return add(b, scores, ml_constant(b, dtype, {static_cast<int64_t>(bases.size())}, bases));
}

// Whether the leaves that a row comes to have weights of a target (of a class).
struct Scored {
  std::vector<std::optional<bool>> always; // by target: of all rows, where that is known
  ValueId each;                            // bool[rows, targets], where some depend on the row
  [[nodiscard]] bool all() const {
    return std::all_of(always.begin(), always.end(), [](const auto& a) { return a == true; });
  }
};

// True where the leaves of some tree have weights of the target, all of them; false where no leaf has.
std::optional<bool> always_scored(const Forest& forest, int64_t target) {
  std::vector<bool> has(static_cast<size_t>(forest.leaves), false);
  bool any = false;
  for (const Forest::Weight& w : forest.weights)
    if (w.target == target) any = has[static_cast<size_t>(w.leaf)] = true;
  if (!any) return false;
  std::vector<int64_t> seen(static_cast<size_t>(forest.nodes()), -1), open;
  for (size_t tree = 0; tree < forest.roots.size(); ++tree) {
    bool all = true;
    open = {forest.roots[tree]};
    while (all && !open.empty()) {
      const int64_t at = open.back();
      open.pop_back();
      if (std::exchange(seen[static_cast<size_t>(at)], static_cast<int64_t>(tree)) == static_cast<int64_t>(tree))
        continue;
      if (at < forest.leaves) {
        all = has[static_cast<size_t>(at)];
      } else {
        open.push_back(forest.next[static_cast<size_t>(2 * at)]);
        open.push_back(forest.next[static_cast<size_t>(2 * at + 1)]);
      }
    }
    if (all) return true;
  }
  return std::nullopt;
}

// `x`: what rows_for() made.
Scored scored_targets(B& b, ValueId x, const Forest& forest, DType dtype) {
  Scored out;
  for (int64_t k = 0; k < forest.targets; ++k) out.always.push_back(always_scored(forest, k));
  if (std::all_of(out.always.begin(), out.always.end(), [](const auto& a) { return a.has_value(); })) return out;
  Forest flags = forest;
  for (Forest::Weight& w : flags.weights) w.value = 1;
  ValueId counts = fold_trees(b, x, flags, {Fold::Max, dtype}); // 1, or 0 without any
  if (b.ok()) out.each = gt(b, counts, 0.0);
  return out;
}

// Columns of scores, and `otherwise` in the place of those that rows do not have.
ValueId scored_or(B& b, ValueId scores, const Scored& scored, double otherwise, DType dtype) {
  if (!b.ok() || scored.all()) return scores;
  if (scored.each.valid()) return select(b, scored.each, scores, otherwise);
  std::vector<double> flags;
  for (const auto& always : scored.always) flags.push_back(*always ? 1 : 0);
  const auto count = static_cast<int64_t>(flags.size());
  return select(b, gt(b, ml_constant(b, dtype, {1, count}, flags), 0.0), scores, otherwise);
}

// ---- TreeEnsembleRegressor
ValueId regress(B& b) {
  const PostTransform transform = post_transform(b);
  const auto fold = static_cast<Fold>(ml_choice(b, "aggregate_function", {"AVERAGE", "SUM", "MIN", "MAX"}));
  auto forest = forest_of_nodes(b.node(), "target", b.attr().i("n_targets"));
  if (!forest.ok()) return b.fail(forest.error()), ValueId{};
  const auto bases = bases_of(b, {forest->targets});
  const DType dtype = ml_dtype(b.dtype(b.in(0)));
  ValueId x = rows_for(b, *forest, dtype);
  ValueId y = with_bases(b, fold_trees(b, x, *forest, {fold, dtype}), bases, dtype);
  if (forest->targets > 1 && !bases.empty()) y = scored_or(b, y, scored_targets(b, x, *forest, dtype), 0, dtype);
  return cast(b, transformed(b, y, transform), DType::F32);
}

// ---- TreeEnsembleClassifier
// Selects `yes` for the rows that have a score of the class, `no` for the others.
ValueId where_scored(B& b, const Scored& scored, int64_t target, const std::function<ValueId()>& yes,
                     const std::function<ValueId()>& no) {
  if (!b.ok()) return {};
  if (const auto always = scored.always[static_cast<size_t>(target)]) return *always ? yes() : no();
  ValueId x = yes(), y = no();
  return b.ok() ? select(b, slice(b, scored.each, 1, target, 1), x, y) : ValueId{};
}

// Scores of two classes. A row without a score of the second class has one number, of which both scores follow; how,
// depends on the weights of all leaves, as in ONNX Runtime. What it leaves unset there is 0.
std::vector<ValueId> two_classes(B& b, ValueId scores, const Scored& scored, MlLabels labels,
                                 const std::vector<double>& bases, PostTransform transform) {
  const Ints ids = b.attr().ints("class_ids");
  const auto weights = floats_or_tensor(b.node(), "class_weights");
  const bool one = std::set<int64_t>(ids.begin(), ids.end()).size() == 1;
  const bool positive = weights.ok() && std::all_of(weights->begin(), weights->end(), [](double w) { return w >= 0; });
  if (!b.ok()) return {{}, {}};
  const ValueId p = slice(b, scores, 1, 0, 1), q = slice(b, scores, 1, 1, 1);
  if (!b.ok()) return {{}, {}};
  ValueId zeros = expand(b, b.like(p, 0), b.shape(p));
  const ValueId with_base = bases.empty() ? p : add(b, p, bases[0]);
  // A class without a score has none by its base.
  auto of_first = [&](ValueId v) {
    return where_scored(
        b, scored, 0, [&] { return v; }, [&] { return zeros; });
  };
  const bool replaced = bases.size() == 2; // the second class's score is that of the first one and its base
  const ValueId upper = replaced ? add(b, p, bases[1]) : q;
  const ValueId single = of_first(with_base); // of a row without a score of the second class

  ValueId deciding = where_scored(
      b, scored, 1, [&] { return upper; }, [&] { return single; });
  if (!one && labels.texts.empty()) labels.numbers = {0, 1};
  if (!b.ok()) return {{}, {}};
  ValueId label = ml_labelled(b, labels, gt(b, squeeze(b, deciding, {1}), one && positive ? 0.5 : 0.0), 1, 0);

  auto pair = [&](ValueId v, ValueId w) { return concat(b, {v, w}, 1); };
  auto both = [&] { return transformed(b, pair(of_first(replaced ? neg(b, upper) : with_base), upper), transform); };
  auto from_single = [&] {
    if (replaced) return transformed(b, pair(single, zeros), transform);
    if (transform == PostTransform::Probit) return pair(transformed(b, single, transform), zeros);
    if (!one && !bases.empty()) return pair(single, zeros);
    if (transform == PostTransform::Logistic) return transformed(b, pair(neg(b, single), single), transform);
    return pair(one && positive ? sub(b, 1.0, single) : neg(b, single), single);
  };
  return {label, where_scored(b, scored, 1, both, from_single)};
}

Result<std::vector<ValueId>> classify(Graph& g, const Node& n, int) {
  B b(g, n);
  const PostTransform transform = post_transform(b);
  MlLabels labels = ml_labels(b, "classlabels_int64s");
  auto forest = forest_of_nodes(n, "class", labels.size());
  if (!forest.ok()) b.fail(forest.error());
  if (!b.ok()) return b.failed();
  const int64_t classes = labels.size();
  const auto bases = classes == 2 ? bases_of(b, {1, 2}) : bases_of(b, {classes});
  const DType dtype = ml_dtype(b.dtype(b.in(0)));
  ValueId x = rows_for(b, *forest, dtype);
  ValueId y = fold_trees(b, x, *forest, {Fold::Sum, dtype});
  Scored scored;
  if (classes > 1 && (classes == 2 || bases.empty())) scored = scored_targets(b, x, *forest, dtype);
  if (!b.ok()) return b.failed();
  std::vector<ValueId> out;
  if (classes == 2) {
    out = two_classes(b, y, scored, labels, bases, transform);
  } else {
    y = with_bases(b, y, bases, dtype);
    if (!b.ok()) return b.failed();
    if (classes == 1) {
      if (labels.texts.empty())
        labels.numbers = {0, 1};
      else
        labels.texts.resize(2, labels.texts[0]);
      out = {ml_labelled(b, labels, gt(b, squeeze(b, y, {1}), 0.0), 1, 0)};
    } else { // the largest of the classes that have scores
      ValueId ranked = scored_or(b, y, scored, -std::numeric_limits<double>::infinity(), dtype);
      out = {ml_labelled(b, labels, ml_largest(b, ranked))};
    }
    out.push_back(transformed(b, y, transform));
  }
  out[1] = cast(b, out[1], DType::F32);
  return b.done(out);
}

// ---- TreeEnsemble. The numbers of post_transform are the specification's; ONNX Runtime 1.32 has 1 and 2 the other way.
ValueId ensemble(B& b) {
  const int64_t fold = b.attr().i("aggregate_function"), transform = b.attr().i("post_transform");
  if (fold < 0 || fold > 3)
    b.fail(ErrorCode::BadAttribute, "'aggregate_function' is " + std::to_string(fold) + "; 0 to 3 are expected");
  if (transform < 0 || transform > 4)
    b.fail(ErrorCode::BadAttribute, "'post_transform' is " + std::to_string(transform) + "; 0 to 4 are expected");
  if (!b.ok()) return {};
  auto forest = forest_of_branches(b.node());
  if (!forest.ok()) return b.fail(forest.error()), ValueId{};
  const DType given = b.dtype(b.in(0)), dtype = ml_dtype(given);
  ValueId y = fold_trees(b, rows_for(b, *forest, dtype), *forest, {static_cast<Fold>(fold), dtype});
  return cast(b, transformed(b, y, static_cast<PostTransform>(transform)), given);
}

// ---- records
std::vector<AttrDef> node_attributes() {
  return {{"base_values", AttrKind::Floats},
          {"base_values_as_tensor", AttrKind::Tensor},
          {"nodes_falsenodeids", AttrKind::Ints},
          {"nodes_featureids", AttrKind::Ints},
          {"nodes_hitrates", AttrKind::Floats},
          {"nodes_hitrates_as_tensor", AttrKind::Tensor},
          {"nodes_missing_value_tracks_true", AttrKind::Ints},
          {"nodes_modes", AttrKind::Strings},
          {"nodes_nodeids", AttrKind::Ints},
          {"nodes_treeids", AttrKind::Ints},
          {"nodes_truenodeids", AttrKind::Ints},
          {"nodes_values", AttrKind::Floats},
          {"nodes_values_as_tensor", AttrKind::Tensor},
          ml_text("post_transform", "NONE")};
}

constexpr std::initializer_list<DType> kInputs = {DType::F32, DType::F64, DType::I64, DType::I32};

// Two trees: of two levels, and of one.
Attributes two_trees(const std::vector<std::string>& modes) {
  return {
      {"nodes_treeids", Ints{0, 0, 0, 0, 0, 7, 7, 7}},
      {"nodes_nodeids", Ints{0, 1, 2, 3, 4, 0, 1, 2}},
      {"nodes_featureids", Ints{1, 0, 0, 0, 0, 2, 0, 0}},
      {"nodes_values", std::vector<double>{0.5, -0.25, 0, 0, 0, 1, 0, 0}},
      {"nodes_modes", std::vector<std::string>{modes[0], modes[1], "LEAF", "LEAF", "LEAF", modes[2], "LEAF", "LEAF"}},
      {"nodes_truenodeids", Ints{1, 2, 0, 0, 0, 1, 0, 0}},
      {"nodes_falsenodeids", Ints{4, 3, 0, 0, 0, 2, 0, 0}}};
}
std::vector<std::string> same_modes(const std::string& mode) { return {mode, mode, mode}; }

// Halves from -2 to 2, which meet splits exactly.
Tensor halves(DType dtype, Dims dims) {
  Tensor whole = random(DType::I64, dims, 11, -4, 4), out = filled(dtype, std::move(dims), 0);
  for (int64_t i = 0; i < out.count(); ++i) out.set_f64(i, 0.5 * static_cast<double>(whole.get_i64(i)));
  return out;
}

Attributes with_weights(Attributes a, const std::string& prefix, const Ints& targets,
                        const std::vector<double>& weights) {
  const bool all = targets.size() == 5;
  a.set(prefix + "_treeids", all ? Ints{0, 0, 0, 7, 7} : Ints{0, 0, 0, 7, 7, 0, 0, 0, 7, 7});
  a.set(prefix + "_nodeids", all ? Ints{2, 3, 4, 1, 2} : Ints{2, 3, 4, 1, 2, 2, 3, 4, 1, 2});
  a.set(prefix + "_ids", targets);
  a.set(prefix + "_weights", weights);
  return a;
}
const std::vector<double> kFive = {0.5, -1, 2, 0.25, -0.75}, kPositive = {0.5, 0.1, 0.2, 0.25, 0.375};

OpDef regressor() {
  OpDef def = ml("ai.onnx.ml.TreeEnsembleRegressor", "weights of the leaves that rows come to in trees, folded",
                 {{"X", TypeSet::Numeric}}, regress);
  def.attributes = node_attributes();
  for (AttrDef a : {ml_text("aggregate_function", "SUM"), AttrDef{"n_targets", AttrKind::Int},
                    AttrDef{"target_ids", AttrKind::Ints}, AttrDef{"target_nodeids", AttrKind::Ints},
                    AttrDef{"target_treeids", AttrKind::Ints}, AttrDef{"target_weights", AttrKind::Floats},
                    AttrDef{"target_weights_as_tensor", AttrKind::Tensor}})
    def.attributes.push_back(std::move(a));
  auto one = [](const std::string& mode) {
    Attributes a = with_weights(two_trees(same_modes(mode)), "target", {0, 0, 0, 0, 0}, kFive);
    a.set("n_targets", int64_t{1});
    return a;
  };
  def.samples = [one] {
    std::vector<Sample> out;
    for (DType d : kInputs) out.push_back(sample({random(d, {7, 3}, 1)}, one("BRANCH_LEQ")));
    for (const char* mode : {"BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"})
      out.push_back(sample({random(DType::I64, {7, 3}, 2)}, one(mode)));
    Attributes mixed =
        with_weights(two_trees({"BRANCH_GT", "BRANCH_LEQ", "BRANCH_NEQ"}), "target", {0, 1, 2, 1, 0}, kFive);
    mixed.set("n_targets", int64_t{3});
    mixed.set("nodes_missing_value_tracks_true", Ints{1, 0, 0, 0, 0, 0, 0, 0});
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const char* fold : {"SUM", "AVERAGE", "MIN", "MAX"}) {
      mixed.set("aggregate_function", std::string(fold));
      out.push_back(sample({floats({4, 3}, {0, nan, 1, nan, 0, 2, -1, 0.5, nan, 1, 1, 1})}, mixed));
    }
    mixed.set("base_values", std::vector<double>{1, 2, 3});
    mixed.set("post_transform", std::string("SOFTMAX"));
    out.push_back(sample({random(DType::F32, {3}, 3)}, mixed));
    Attributes apart = with_weights(two_trees(same_modes("BRANCH_LEQ")), "target", {1, 1, 1, 0, 0}, kFive);
    apart.set("n_targets", int64_t{2}); // a target for each tree
    out.push_back(sample({random(DType::F64, {5, 4}, 4)}, apart));
    return out;
  };
  def.error_samples = [one] {
    std::vector<ErrorSample> out;
    auto with = [&](std::string_view name, Attribute value, std::string_view part) {
      Attributes a = one("BRANCH_LEQ");
      a.set(name, std::move(value));
      out.push_back(wrong({random(DType::F32, {2, 3})}, a, ErrorCode::BadAttribute, part));
    };
    with("nodes_truenodeids", Ints{1, 0, 0, 0, 0, 1, 0, 0}, "node 0 of tree 0 is below itself");
    with("nodes_truenodeids", Ints{1, 9, 0, 0, 0, 1, 0, 0}, "node 9 of tree 0, which does not exist");
    with("nodes_nodeids", Ints{0, 1, 1, 3, 4, 0, 1, 2}, "node 1 of tree 0 is given twice");
    with("nodes_modes", same_modes("BRANCH"), "'nodes_modes' has 3 values");
    with("nodes_modes", std::vector<std::string>(8, "BRANCH"), "has the mode 'BRANCH'");
    with("nodes_featureids", Ints{-1, 0, 0, 0, 0, 2, 0, 0}, "reads feature -1");
    with("target_ids", Ints{0, 0, 0, 0, 1}, "class or target 1, and there are 1");
    with("target_nodeids", Ints{2, 3, 4, 1, 5}, "node 5 of tree 7, which does not exist");
    with("n_targets", int64_t{0}, "at least one");
    with("base_values", std::vector<double>{1, 2}, "'base_values' has 2 values");
    with("aggregate_function", std::string("MEDIAN"), "AVERAGE, SUM, MIN, MAX");
    out.push_back(wrong({random(DType::F32, {2, 2})}, one("BRANCH_LEQ"), ErrorCode::ShapeMismatch, "reads feature 2"));
    out.push_back(wrong({random(DType::F32, {2, 3, 3})}, one("BRANCH_LEQ"), ErrorCode::ShapeMismatch, "[N, F]"));
    return out;
  };
  return def;
}

OpDef classifier() {
  OpDef def =
      ml("ai.onnx.ml.TreeEnsembleClassifier", "the class with the largest sum of weights of leaves, and the sums",
         {{"X", TypeSet::Numeric}}, DecomposeFn(classify));
  def.attributes = node_attributes();
  for (AttrDef a : {AttrDef{"class_ids", AttrKind::Ints}, AttrDef{"class_nodeids", AttrKind::Ints},
                    AttrDef{"class_treeids", AttrKind::Ints}, AttrDef{"class_weights", AttrKind::Floats},
                    AttrDef{"class_weights_as_tensor", AttrKind::Tensor}, AttrDef{"classlabels_int64s", AttrKind::Ints},
                    AttrDef{"classlabels_strings", AttrKind::Strings}})
    def.attributes.push_back(std::move(a));
  def.max_results = 2;
  auto with = [](const Ints& ids, const std::vector<double>& weights, const Ints& labels) {
    Attributes a = with_weights(two_trees(same_modes("BRANCH_LEQ")), "class", ids, weights);
    a.set("classlabels_int64s", labels);
    return a;
  };
  def.samples = [with] {
    std::vector<Sample> out;
    for (DType d : kInputs) out.push_back(sample({random(d, {7, 3}, 1)}, with({0, 1, 2, 1, 0}, kPositive, {9, 5, 7})));
    std::vector<Attributes> two = {
        with({0, 0, 0, 0, 0}, kPositive, {9, 5}), with({1, 1, 1, 1, 1}, kFive, {9, 5}),
        with({0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, {0.5, 0.25, 1, 0, 0, 0.5, 0.75, 0, 1, 1}, {9, 5})};
    for (Attributes& a : two)
      for (const char* transform : {"NONE", "LOGISTIC", "SOFTMAX"})
        for (const std::vector<double>& bases : {std::vector<double>{}, {0.25}, {0.25, 0.5}}) {
          a.set("post_transform", std::string(transform));
          a.set("base_values", bases);
          out.push_back(sample({random(DType::F32, {6, 3}, 5)}, a));
        }
    Attributes named = with({0, 1, 2, 1, 0}, kFive, {});
    named.erase("classlabels_int64s");
    named.set("classlabels_strings", std::vector<std::string>{"a", "b", "c", "d"});
    out.push_back(sample({random(DType::F32, {6, 3}, 6)}, named));
    out.push_back(sample({random(DType::F32, {6, 3}, 7)}, with({0, 0, 0, 0, 0}, kFive, {4})));
    for (Sample& s : out) s.result_count = 2;
    return out;
  };
  def.error_samples = [with] {
    Attributes both = with({0, 1, 2, 1, 0}, kFive, {1, 2, 3});
    both.set("classlabels_strings", std::vector<std::string>{"a", "b", "c"});
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 3})}, both, ErrorCode::BadAttribute, "one of the two"),
        wrong({random(DType::F32, {2, 3})}, with({0, 1, 3, 1, 0}, kFive, {1, 2, 3}), ErrorCode::BadAttribute,
              "there are 3"),
        wrong({random(DType::F32, {2, 3})}, with({0, 0, 0, 0, 0}, kFive, {}), ErrorCode::BadAttribute, "0 classes")};
  };
  return def;
}

OpDef tree_ensemble() {
  OpDef def = ml("ai.onnx.ml.TreeEnsemble", "weights of the leaves that rows come to in trees, folded",
                 {{"X", TypeSet::Float}}, ensemble);
  def.onnx[0].since = 5;
  def.attributes = {integer("aggregate_function", 1),
                    {"leaf_targetids", AttrKind::Ints, true},
                    {"leaf_weights", AttrKind::Tensor, true},
                    {"membership_values", AttrKind::Tensor},
                    {"n_targets", AttrKind::Int},
                    {"nodes_falseleafs", AttrKind::Ints, true},
                    {"nodes_falsenodeids", AttrKind::Ints, true},
                    {"nodes_featureids", AttrKind::Ints, true},
                    {"nodes_hitrates", AttrKind::Tensor},
                    {"nodes_missing_value_tracks_true", AttrKind::Ints},
                    {"nodes_modes", AttrKind::Tensor, true},
                    {"nodes_splits", AttrKind::Tensor, true},
                    {"nodes_trueleafs", AttrKind::Ints, true},
                    {"nodes_truenodeids", AttrKind::Ints, true},
                    integer("post_transform", 0),
                    {"tree_roots", AttrKind::Ints, true}};
  auto with = [](DType d, std::initializer_list<int64_t> modes) {
    return Attributes{
        {"leaf_targetids", Ints{0, 1, 0, 1}},
        {"leaf_weights", floats(d, {4}, {0.5, -1, 2, 0.25})},
        {"membership_values", floats(d, {7}, {-2, 0, 1, 2, std::numeric_limits<double>::quiet_NaN(), 5, 1})},
        {"n_targets", int64_t{2}},
        {"nodes_falseleafs", Ints{0, 1, 1}},
        {"nodes_falsenodeids", Ints{2, 1, 3}},
        {"nodes_featureids", Ints{0, 2, 1}},
        {"nodes_modes", integers(DType::U8, {3}, modes)},
        {"nodes_splits", floats(d, {3}, {0.5, 1, -0.25})},
        {"nodes_trueleafs", Ints{0, 1, 1}},
        {"nodes_truenodeids", Ints{1, 0, 2}},
        {"tree_roots", Ints{0, 2}}};
  };
  def.samples = [with] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F64, DType::F16})
      for (std::initializer_list<int64_t> modes : {std::initializer_list<int64_t>{0, 0, 0}, {1, 4, 5}, {6, 2, 6}})
        out.push_back(sample({halves(d, {9, 3})}, with(d, modes)));
    for (Sample& s : out) s.tolerance = 1e-3;
    Attributes alone = with(DType::F32, {0, 3, 0}); // a tree that is a leaf
    alone.set("nodes_falseleafs", Ints{1, 1, 1});
    alone.set("nodes_trueleafs", Ints{1, 1, 1});
    alone.set("nodes_truenodeids", Ints{1, 0, 2});
    alone.set("nodes_falsenodeids", Ints{1, 1, 3});
    for (int64_t fold = 0; fold < 4; ++fold) {
      alone.set("aggregate_function", fold);
      alone.set("post_transform", fold);
      out.push_back(sample({random(DType::F32, {4, 3}, 3)}, alone));
    }
    return out;
  };
  def.error_samples = [with] {
    std::vector<ErrorSample> out;
    auto bad = [&](std::string_view name, Attribute value, std::string_view part) {
      Attributes a = with(DType::F32, {0, 0, 0});
      a.set(name, std::move(value));
      out.push_back(wrong({random(DType::F32, {2, 3})}, a, ErrorCode::BadAttribute, part));
    };
    bad("nodes_modes", integers(DType::U8, {3}, {0, 7, 0}), "has the mode 7");
    bad("nodes_modes", integers(DType::I64, {3}, {0, 0, 0}), "no tensor of u8");
    bad("nodes_truenodeids", Ints{0, 0, 2}, "node 0 is below itself");
    bad("nodes_truenodeids", Ints{1, 4, 2}, "leaf 4, and there are 4");
    bad("tree_roots", Ints{3}, "begins at node 3");
    bad("leaf_targetids", Ints{0, 1, 0, 2}, "target 2, and there are 2");
    bad("aggregate_function", int64_t{4}, "0 to 3");
    bad("post_transform", int64_t{5}, "0 to 4");
    return out;
  };
  return def;
}

} // namespace

void register_ml_tree_ops(OpTable& table) {
  for (OpDef (*make)() : {regressor, classifier, tree_ensemble}) table.add(make());
}

} // namespace tessera
