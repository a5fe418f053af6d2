// The primitives of scatters: `scatter`, and `checked_index`, which makes its targets.
#include "graph/ops/parts.h"
#include "graph/ops/scatter.h"
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

// ---- checked_index
OpDef checked_index_record() {
  OpDef def;
  def.name = "checked_index";
  def.summary = "indices as i64 in [0, extent): one outside is an error; with `wrap`, negative ones count from the end";
  def.operands = {{"indices", TypeSet::Index}};
  def.attributes = {{"extent", AttrKind::Dims, true},
                    {"wrap", AttrKind::Int, false, int64_t{1}},
                    {"component", AttrKind::Int, false, int64_t{-1}}};
  def.infer = [](InferContext& c) -> Status {
    if (c.node.attributes.dims("extent").size() != 1)
      return c.error(ErrorCode::BadAttribute, "an index has one extent");
    return set_result(c, DType::I64, c.shape(0));
  };
  def.meaning = Indexing{
      [](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
        const SymExpr extent = n.attributes.dims("extent")[0];
        return Result<ScalarId>(load_index(d, g, n, 0, {at.begin(), at.end()}, extent, n.attributes.i("wrap") != 0));
      },
      false};
  def.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(Dims extent, c.dims("extent"));
    Dims out = to_i64(c.operands[0]);
    for (int64_t& i : out) {
      const int64_t given = i;
      if (i < 0 && c.node.attributes.i("wrap") != 0) i += extent[0];
      if (i < 0 || i >= extent[0])
        return c.error(ErrorCode::BadInput,
                       "index " + std::to_string(given) + " is outside of a dimension of " + std::to_string(extent[0]));
    }
    TESSERA_ASSIGN(Tensor y, from_i64(DType::I64, c.operands[0].dims(), out));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({integers(DType::I32, {2, 2}, {1, -1, 0, -3})}, {{"extent", SymShape{3}}}),
                               sample({vec({0, 4})}, {{"extent", SymShape{5}}, {"wrap", int64_t{0}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({vec({0})}, {{"extent", SymShape{5, 2}}}, ErrorCode::BadAttribute, "extent")};
  };
  return def;
}

// ---- scatter
// Data and updates of a scatter whose updates are [b, u, s].
Status check_view(InferContext& c, const SymExpr& count, int updates) {
  const SymShape view = scatter_view(c.graph, c.node);
  if (view.size() != 3) return c.error(ErrorCode::ShapeMismatch, "a scatter takes data [b, t, s], not " + str(view));
  TESSERA_TRY(c.env().require_equal(product(view), c.type(0).count(), "data of a scatter", c.node.location));
  if (c.type(updates).rank() == 3 && c.node.attributes.dims("view").empty()) // the same, said of each size
    for (size_t d : {0, 1, 2})
      TESSERA_TRY(c.env().require_equal(d == 1 ? count : view[d], c.shape(updates)[d], "data and updates of a scatter",
                                        c.node.location));
  return c.env().require_equal(view[0] * count * view[2], c.type(updates).count(), "data and updates of a scatter",
                               c.node.location);
}

Status infer_scatter(InferContext& c) {
  const SymShape targets = c.shape(1);
  if (targets.size() < 2 || targets.size() > 3)
    return c.error(ErrorCode::ShapeMismatch, "a scatter takes data [b, t, s], targets [b, u] or [b, u, s] and updates "
                                             "[b, u, s], not " +
                                                 str(c.shape(0)) + ", " + str(targets) + " and " + str(c.shape(2)));
  TESSERA_TRY(check_view(c, targets[1], 2));
  const SymShape view = scatter_view(c.graph, c.node);
  for (size_t d = 0; d < targets.size(); d += 2)
    TESSERA_TRY(c.env().require_equal(targets[d], view[d], "targets and data of a scatter", c.node.location));
  return infer_same(c);
}

// The view of the data, for these sizes.
Result<Dims> view_of(const ReferenceContext& c) {
  if (c.node.attributes.dims("view").empty()) return c.operands[0].dims();
  return c.dims("view");
}

Status reference_scatter(ReferenceContext& c) {
  const Tensor &data = c.operands[0], &targets = c.operands[1], &updates = c.operands[2];
  TESSERA_ASSIGN(const Dims view, view_of(c));
  const int64_t size = view[1], slices = view[2];
  const Dims from = {view[0], targets.dims()[1], slices};
  const bool each = targets.dims().size() == 3;
  const std::string reduction = c.node.attributes.s("reduction", "none");
  TESSERA_ASSIGN(Tensor out, take(data, data.dims(), [](int64_t i) { return i; }));
  for (MultiIndex w(from); !w.done(); w.next()) {
    const int64_t target = targets.get_i64(each ? w.i() : w.i() / slices);
    if (target >= size)
      return c.error(ErrorCode::BadInput,
                     "target " + std::to_string(target) + " of a scatter is outside of " + std::to_string(size));
    if (target >= 0) fold_update(out, (w[0] * size + target) * slices + w[2], updates, w.i(), reduction);
  }
  c.results = {out};
  return {};
}

OpDef scatter_record() {
  OpDef def;
  def.name = "scatter";
  def.summary = "data with updates written, or combined in their order, at targets; a negative target is left out";
  def.operands = {{"data", TypeSet::NumericOrBool}, {"targets", TypeSet::Index}, {"updates", TypeSet::SameAsFirst}};
  def.attributes = {{"reduction", AttrKind::String, false, std::string("none")},
                    {"unique", AttrKind::Int, false, int64_t{0}}, // 1: no two updates of a batch have one target
                    {"view", AttrKind::Dims, false, SymShape{}}}; // scatter.h
  def.infer = infer_scatter;
  def.meaning = StructuredOp{Structured::Scatter};
  def.reference = reference_scatter;
  def.samples = [] {
    std::vector<Sample> out;
    const Tensor rows = integers(DType::I64, {2, 4}, {2, 0, 2, -1, 1, 1, 1, 0});
    const Tensor each = integers(DType::I32, {1, 3, 2}, {3, 0, 3, 1, -1, 1});
    uint64_t seed = 1;
    for (const char* r : {"none", "add", "mul", "max", "min"})
      for (DType d : {DType::F32, DType::I32, DType::F16, DType::U8, DType::I64}) {
        const Attributes a = {{"reduction", std::string(r)}};
        out.push_back(sample({random(d, {2, 3, 5}, seed), rows, random(d, {2, 4, 5}, seed + 1)}, a));
        out.push_back(sample({random(d, {1, 4, 2}, seed + 2), each, random(d, {1, 3, 2}, seed + 3)}, a));
        seed += 4;
      }
    // Enough updates that their order is found by sorting.
    for (const char* r : {"none", "add", "mul", "max", "min"})
      for (DType d : {DType::F32, DType::F64, DType::F16, DType::I32, DType::U8}) {
        const Attributes a = {{"reduction", std::string(r)}};
        out.push_back(sample({random(d, {2, 7, 3}, seed, -1, 1), random(DType::I64, {2, 50, 3}, seed + 1, -1, 6),
                              random(d, {2, 50, 3}, seed + 2, -1, 1)},
                             a));
        out.back().tolerance = tolerance(d);
        out.push_back(sample({random(d, {2, 7, 3}, seed, -1, 1), random(DType::I32, {2, 50}, seed + 1, -1, 6),
                              random(d, {2, 50, 3}, seed + 2, -1, 1)},
                             a));
        out.back().tolerance = tolerance(d);
        seed += 3;
      }
    out.push_back(
        sample({floats({1, 2, 1}, {1, 2}),
                integers(DType::I64, {1, 24}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}),
                floats({1, 24, 1},
                       {-INFINITY, 3, -0.0, 5, 7, 1, 2, 9, -4, 8, 0, 6, 3, 4, 5, 6, 7, 8, NAN, 1, 2, INFINITY, 0, 9})},
               {{"reduction", std::string("max")}}));
    out.push_back(out.back());
    out.back().attributes.set("reduction", std::string("min"));
    out.push_back(sample({random(DType::F64, {1, 9, 1}, 1), integers(DType::I64, {1, 5}, {8, 0, -1, 3, 7}),
                          random(DType::F64, {1, 5, 1}, 2)},
                         {{"unique", int64_t{1}}}));
    out.push_back(sample({random(DType::Bool, {1, 40, 70}, 1), integers(DType::I64, {1, 2}, {39, 0}),
                          random(DType::Bool, {1, 2, 70}, 2)},
                         {{"unique", int64_t{1}}}));
    out.push_back(
        sample({random(DType::F32, {1, 3, 2}, 1), integers(DType::I64, {1, 0}, {}), random(DType::F32, {1, 0, 2}, 2)}));
    for (const char* r : {"none", "add"})
      out.push_back(sample({random(DType::F32, {2, 3, 5, 1}, 1), rows, random(DType::F32, {8, 5}, 2)},
                           {{"reduction", std::string(r)}, {"view", SymShape{2, 3, 5}}}));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {3, 4}), vec({1}), random(DType::F32, {1})}, {}, ErrorCode::ShapeMismatch, "targets"),
        wrong({random(DType::F32, {1, 3, 2}), integers(DType::I64, {1, 1}, {0}), random(DType::F32, {1, 1, 3})}, {},
              ErrorCode::ShapeMismatch, "")};
  };
  return def;
}

// ---- scatter_runs
// Chunks of the updates of a batch.
SymExpr chunks_of(const Node& node, const SymExpr& count) { return ceildiv(count, node.attributes.dims("chunk")[0]); }

Status infer_scatter_runs(InferContext& c) {
  const SymShape data = scatter_view(c.graph, c.node), targets = c.shape(1);
  if (data.size() != 3 || targets.size() != 2 || c.node.attributes.dims("chunk").size() != 1)
    return c.error(ErrorCode::ShapeMismatch,
                   "scatter_runs takes data [b, t, s], targets [b, u], updates [b, u, s] and one chunk, not " +
                       str(data) + ", " + str(targets) + " and " + str(c.shape(2)));
  TESSERA_TRY(check_view(c, targets[1], 2));
  TESSERA_TRY(c.env().require_equal(targets[0], data[0], "targets and data of a scatter", c.node.location));
  if (c.node.operands.size() > 3 && c.node.operands[3].valid())
    for (size_t d : {0, 1})
      TESSERA_TRY(c.env().require_equal(c.shape(3)[d], targets[d], "order and targets of a scatter", c.node.location));
  TESSERA_TRY(infer_same(c));
  const SymExpr partials = chunks_of(c.node, targets[1]) * SymExpr(2);
  TESSERA_TRY(set_result(c, DType::I64, {data[0], partials}, 1));
  return set_result(c, compute_dtype(c.type(0).dtype), {data[0], partials, data[2]}, 2);
}

// The neutral element: 1 for a product; -0 for a sum, since adding 0 would change -0.
Result<Tensor> neutral(DType dtype, const Dims& dims, bool product) {
  TESSERA_ASSIGN(Tensor t, Tensor::create(dtype, dims));
  by_kind(dtype, [&](auto zero) {
    using V = decltype(zero);
    for (int64_t i = 0; i < t.count(); ++i) set(t, i, product ? static_cast<V>(1) : static_cast<V>(-zero));
  });
  return t;
}

Status reference_scatter_runs(ReferenceContext& c) {
  const Tensor &data = c.operands[0], &targets = c.operands[1], &updates = c.operands[2];
  TESSERA_ASSIGN(const Dims view, view_of(c));
  TESSERA_ASSIGN(const Dims chunk, c.dims("chunk"));
  const int64_t batches = view[0], size = view[1], slices = view[2], count = targets.dims()[1];
  const int64_t chunks = (count + chunk[0] - 1) / chunk[0];
  const std::string reduction = c.node.attributes.s("reduction", "add");
  const DType wide = compute_dtype(data.dtype());
  TESSERA_ASSIGN(Tensor out, take(data, data.dims(), [](int64_t i) { return i; }));
  TESSERA_ASSIGN(Tensor partials, neutral(wide, {batches, 2 * chunks, slices}, reduction == "mul"));
  TESSERA_ASSIGN(Tensor sums, neutral(wide, {slices}, reduction == "mul"));
  TESSERA_ASSIGN(Tensor partial_targets,
                 from_i64(DType::I64, {batches, 2 * chunks}, Dims(static_cast<size_t>(batches * 2 * chunks), -1)));
  const Tensor empty = sums;
  for (int64_t b = 0; b < batches; ++b) {
    const auto update_at = [&](int64_t j) {
      return b * count + (given(c, 3) ? c.operands[3].get_i64(b * count + j) : j);
    };
    // The target of update j in the order; -1 where it has none.
    const auto target_at = [&](int64_t j) {
      if (j < 0 || j >= count) return int64_t{-2};
      const int64_t t = targets.get_i64(update_at(j));
      return t < 0 || t >= size ? int64_t{-1} : t;
    };
    for (int64_t k = 0; k < chunks; ++k) {
      const int64_t end = std::min(count, (k + 1) * chunk[0]);
      for (int64_t j = k * chunk[0], next = j; j < end; j = next) { // a run of one target
        const int64_t target = target_at(j);
        while (next < end && target_at(next) == target) ++next;
        if (target < 0) continue;
        TESSERA_ASSIGN(sums, take(empty, empty.dims(), [](int64_t i) { return i; }));
        for (int64_t i = j; i < next; ++i)
          for (int64_t s = 0; s < slices; ++s) fold_update(sums, s, updates, update_at(i) * slices + s, reduction);
        const bool begins = target_at(j - 1) != target, ends = target_at(next) != target;
        const int64_t slot = b * 2 * chunks + 2 * k + (begins ? 1 : 0);
        if (!begins || !ends) partial_targets.set_i64(slot, target);
        if (!begins && !ends) partial_targets.set_i64(slot + 1, target);
        for (int64_t s = 0; s < slices; ++s) {
          if (c.node.attributes.i("atomic") != 0 || (begins && ends))
            fold_update(out, (b * size + target) * slices + s, sums, s, reduction);
          else
            fold_update(partials, slot * slices + s, sums, s, reduction);
        }
      }
    }
  }
  c.results = {out, partial_targets, partials};
  return {};
}

OpDef scatter_runs_record() {
  OpDef def;
  def.name = "scatter_runs";
  def.summary =
      "data with updates combined, in an order in which equal targets are neighbours. Each chunk of the order "
      "combines runs of one target that lie inside it; of one that it shares with a chunk before it, or only "
      "with one behind it, it yields the first, or the second, of its two partial results and targets, which "
      "another scatter_runs without an order combines";
  def.operands = {{"data", TypeSet::Numeric},
                  {"targets", TypeSet::Index},
                  {"updates", TypeSet::Numeric},
                  {"order", TypeSet::Index, true}};
  def.attributes = {{"reduction", AttrKind::String, false, std::string("add")}, // or mul
                    {"chunk", AttrKind::Dims, true},                            // updates of a chunk
                    {"atomic", AttrKind::Int, false, int64_t{0}},               // 1: a GPU's chunks sum all their runs
                    // in any order, and yield the first result
                    {"view", AttrKind::Dims, false, SymShape{}}}; // scatter.h
  def.max_results = 3;
  def.infer = infer_scatter_runs;
  def.meaning = StructuredOp{Structured::Scatter};
  def.reference = reference_scatter_runs;
  def.samples = [] {
    std::vector<Sample> out;
    uint64_t seed = 1;
    // Runs inside a chunk, across two, across several, of targets that are left out, and ends that divide no chunk.
    const Tensor targets = integers(DType::I64, {2, 9}, {2, -1, 0, 2, 0, 5, 2, 2, -1, 1, 1, 1, 1, 1, 1, 1, 1, 1}),
                 order = integers(DType::I32, {2, 9}, {2, 4, 0, 3, 6, 7, 1, 5, 8, 8, 7, 6, 5, 4, 3, 2, 1, 0}),
                 sorted = integers(DType::I32, {1, 40}, {0, 0, 0, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3,
                                                         3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 5, 6, 6, 6, 6});
    for (const char* r : {"add", "mul"})
      for (DType d : {DType::F32, DType::F16, DType::F64, DType::I32, DType::U8})
        for (int64_t chunk : {1, 2, 4, 9, 16}) {
          const Attributes a = {{"reduction", std::string(r)}, {"chunk", SymShape{chunk}}};
          for (int64_t slices : {1, 5}) {
            out.push_back(sample({random(d, {2, 3, slices}, seed, -1, 1), targets,
                                  random(compute_dtype(d), {2, 9, slices}, seed + 1, -1, 1), order},
                                 a));
            out.back().tolerance = tolerance(d);
            out.back().result_count = 3;
            out.push_back(sample(
                {random(d, {1, 6, slices}, seed + 2, -1, 1), sorted, random(d, {1, 40, slices}, seed + 3, -1, 1)}, a));
            out.back().tolerance = tolerance(d);
            out.back().result_count = 3;
            seed += 4;
          }
        }
    for (int64_t slices : {1, 4, 5, 64})
      out.push_back(sample({random(DType::F32, {2, 3, slices}, seed, -1, 1), targets,
                            random(DType::F32, {2, 9, slices}, seed + 1, -1, 1)},
                           {{"atomic", int64_t{1}}, {"chunk", SymShape{4}}}));
    out.push_back(
        sample({random(DType::F32, {1, 3, 2}), integers(DType::I64, {1, 0}, {}), random(DType::F32, {1, 0, 2})},
               {{"chunk", SymShape{4}}}));
    out.back().result_count = 3;
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {1, 3, 2}), integers(DType::I64, {1, 1}, {0}), random(DType::F32, {1, 1, 3})},
              {{"chunk", SymShape{4}}}, ErrorCode::ShapeMismatch, ""),
        wrong({random(DType::F32, {1, 3, 2}), integers(DType::I64, {1, 1}, {0}), random(DType::F32, {1, 1, 2}),
               integers(DType::I64, {1, 2}, {0, 1})},
              {{"chunk", SymShape{4}}}, ErrorCode::ShapeMismatch, "order")};
  };
  return def;
}

} // namespace

SymShape ops::scatter_view(const Graph& graph, const Node& node) {
  SymShape view = node.attributes.dims("view");
  return view.empty() ? operand_type(graph, node, 0).shape : view;
}

ValueId ops::begins_as(const Node& node) {
  const StructuredOp* structured = node.op->structured();
  return structured && structured->kind == Structured::Scatter ? node.operands[0] : ValueId();
}

// NaN is the extreme of max and min.
void ops::fold_update(Tensor& out, int64_t at, const Tensor& updates, int64_t from, const std::string& reduction) {
  by_kind(out.dtype(), [&](auto zero) {
    using V = decltype(zero);
    V old = get<V>(out, at), v = get<V>(updates, from);
    if constexpr (std::is_same_v<V, bool>) {
      set(out, at, v);
    } else {
      const bool nan = old != old || v != v;
      if (reduction == "add")
        v = static_cast<V>(old + v);
      else if (reduction == "mul")
        v = static_cast<V>(old * v);
      else if (reduction == "max")
        v = nan ? static_cast<V>(old + v) : std::max(old, v);
      else if (reduction == "min")
        v = nan ? static_cast<V>(old + v) : std::min(old, v);
      set(out, at, v);
    }
  });
}

void register_scatter_primitives(OpTable& table) {
  table.add(checked_index_record());
  table.add(scatter_record());
  table.add(scatter_runs_record());
}

} // namespace tessera
