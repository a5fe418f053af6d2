// Attention as one kernel: out = softmax(score(q k')) v, where score is any scalar expression of a product's element,
// of indices and of loads. Neither scores nor probabilities are stored to memory.
//
// Online softmax (Milakov and Gimelshein), FlashAttention (Dao). A program has R queries of one head and loops over the
// keys, N at a time. For each query it carries the largest score so far, m, the sum of 2^(x - m), and the sum of 2^(x -
// m) v; when m grows, both sums are scaled by 2^(m_before - m). Scores are in units of log 2: the factor log2 e is
// folded into a factor of the score.
//
//   s = q k'                      [R, N]   tensor cores
//   x = score(s)                  [R, N]   the nest's expression, at these queries and keys
//   p = 2^(x - m)                 [R, N]   in registers, in the layout of the next product's operand
//   o = o * shrink + p v          [R, D]   tensor cores
//
// There are two loops. A comparison of key and query (causal masks, j <= i + c) is true for all queries of a block up
// to some key: up to there, and while blocks of keys are full, the first loop neither compares nor masks keys. The
// second loop does both; if the score is -inf behind the diagonal, it ends there, else with the keys.
#include "codegen/schedule/lower/block_attention.h"
#include "codegen/schedule/lower/sizes.h"
#include "codegen/schedule/shapes.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace tessera {
namespace {

using V = tile::ValueId;

constexpr double kLog2e = 1.4426950408889634;
constexpr int64_t kMaxWidth = 256;
constexpr int kFewQueries = 16;

// The last key, as an expression without `key`, for which `condition` is true; nothing if the condition does not have
// the form key <= e.
std::optional<SymExpr> limit_of(const SymExpr& condition, const SymExpr& key) {
  if (condition.op() != SymOp::Le && condition.op() != SymOp::Lt) return std::nullopt;
  auto slack = (condition.args()[1] - condition.args()[0]).linear_in(key);
  if (!slack || !slack->first.is_const(-1)) return std::nullopt;
  return condition.op() == SymOp::Le ? slack->second : slack->second - 1;
}

// The score with a condition replaced by true or false.
struct Score {
  ScalarDag dag;
  ScalarId root = -1;
  double factor = 1; // score = factor * root
};
Score score_where(const AttentionCall& call, const std::optional<SymExpr>& condition, bool holds) {
  Score s;
  std::unordered_map<ScalarId, ScalarId> done;
  auto leaf = [&](ScalarDag& into, const ScalarNode& n, std::span<const ScalarId> args) -> ScalarId {
    if (condition && n.op == ScalarOp::Index && n.dtype == DType::Bool) {
      if (n.sym == *condition) return into.constant_i(DType::Bool, holds);
      if (n.sym.op() == SymOp::Not && n.sym.args()[0] == *condition) return into.constant_i(DType::Bool, !holds);
    }
    auto known = [&](ScalarId a) { return into[a].op == ScalarOp::Const && into[a].dtype == DType::Bool; };
    if (n.op == ScalarOp::Select && known(args[0])) return into[args[0]].i ? args[1] : args[2];
    if (n.op == ScalarOp::Not && known(args[0])) return into.constant_i(DType::Bool, !into[args[0]].i);
    if (n.op == ScalarOp::Add && is_float(n.dtype))
      for (size_t i : {size_t{0}, size_t{1}}) { // x + 0; and x + -inf, for every x except NaN
        const ScalarNode& a = into[args[i]];
        if (a.op == ScalarOp::Const && a.f == 0) return args[1 - i];
        if (a.op == ScalarOp::Const && a.f == -HUGE_VAL) return args[i];
      }
    return -1;
  };
  s.root = s.dag.import(call.score.dag, call.root, leaf, done);
  for (;;) {
    const ScalarNode& n = s.dag[s.root];
    auto positive = [&](ScalarId a) {
      return s.dag[a].op == ScalarOp::Const && is_float(s.dag[a].dtype) && s.dag[a].f > 0 && std::isfinite(s.dag[a].f);
    };
    if (n.dtype != DType::F32) return s;
    if (n.op == ScalarOp::Mul && positive(n.args[1])) {
      s.factor *= s.dag[n.args[1]].f;
      s.root = n.args[0];
    } else if (n.op == ScalarOp::Mul && positive(n.args[0])) {
      s.factor *= s.dag[n.args[0]].f;
      s.root = n.args[1];
    } else if (n.op == ScalarOp::Div && positive(n.args[1])) {
      s.factor /= s.dag[n.args[1]].f;
      s.root = n.args[0];
    } else {
      return s;
    }
  }
}

// A condition of the score that is true for all keys up to one that grows with the query.
std::optional<SymExpr> diagonal(const AttentionCall& call) {
  const SymExpr &key = call.score.axes.back().var, &query = call.score.axes[call.score.axes.size() - 2].var;
  for (ScalarId id = 0; id <= call.root; ++id) {
    const ScalarNode& n = call.score.dag[id];
    if (n.op != ScalarOp::Index || n.dtype != DType::Bool) continue;
    SymExpr condition = n.sym.op() == SymOp::Not ? n.sym.args()[0] : n.sym;
    auto limit = limit_of(condition, key);
    if (!limit) continue;
    auto growth = limit->linear_in(query);
    if (growth && growth->first.is_const(1)) return condition;
  }
  return std::nullopt;
}

class Lowering {
public:
  // `few`: at most kFewQueries.
  Lowering(const Graph& graph, const AttentionCall& call, const std::string& name, bool few)
      : graph_(graph), call_(call), b_(out_.kernel), sizes_(b_, d_) {
    for (char c : name) out_.kernel.name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    d_.env = graph.env();
    d_.axes = call.score.axes;
    for (const Axis& a : d_.axes) d_.env.set_axis(a.var, a.extent);
    width_ = *call.q.shape.back().as_const();
    value_width_ = *call.v.shape.back().as_const();
    auto padded = [](int64_t n) {
      return static_cast<int>(std::max<int64_t>(16, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)))));
    };
    depth_ = padded(width_);
    columns_ = padded(value_width_);
    choose(few);
  }

  ScheduledKernel run() {
    parameters();
    program();
    out_.sizes = sizes_.sizes();
    for (size_t i = 0; i < out_.sizes.size(); ++i) {
      int64_t divisor = d_.env.divisor(out_.sizes[i]);
      out_.kernel.params[out_.buffers.size() + i].multiple_of = std::max<int64_t>(1, divisor & -divisor);
    }
    out_.work_per_program = d_.env.simplify(key().extent * rows_);
    out_.scratch_bytes = 0;
    out_.may_overwrite.resize(out_.buffers.size());
    return std::move(out_);
  }

private:
  const Graph& graph_;
  const AttentionCall& call_;
  Domain d_;
  ScheduledKernel out_;
  tile::Builder b_;
  SizeEmitter sizes_;
  std::map<int, V> pointers_; // by value
  int64_t width_ = 0, value_width_ = 0;
  int depth_ = 0, columns_ = 0; // extents of tiles
  int rows_ = 64, keys_ = 64, warps_ = 4;
  V first_query_ = -1; // first query of this program

  [[nodiscard]] const Axis& key() const { return d_.axes.back(); }
  [[nodiscard]] const Axis& query() const { return d_.axes[d_.axes.size() - 2]; }
  [[nodiscard]] DType dtype() const { return graph_.type(call_.q.value).dtype; }
  V op(ScalarOp o, V x, V y) { return sizes_.op(o, x, y); }
  V spread(V v, int rows, int columns) { return b_.broadcast(v, {rows, columns}); }
  V down(V v, int rows, int columns) { return spread(b_.expand_dims(v, 1), rows, columns); }
  V f32(double v) { return b_.const_f(DType::F32, v); }

  // A block takes as many queries as a thread's 255 registers can hold sums and scores for: each key that is read from
  // shared memory then serves more of them. Few queries are the rows of one fragment, and warps divide the keys.
  void choose(bool few) {
    int widest = std::max(depth_, columns_);
    bool loads = call_.score.loads.size() > 1; // further loads take registers, too
    rows_ = few ? kFewQueries : 64;
    warps_ = few || loads || widest > 64 ? 4 : 2;
    keys_ = widest > 128 ? 16 : few && widest <= 64 ? 128 : 64;
    out_.kernel.config["warps"] = warps_;
    out_.schedule.kind = ScheduleKind::BlockLoop;
    out_.schedule.tile.rows = rows_;
    out_.schedule.tile.columns = keys_;
    out_.schedule.tile.warps = warps_;
    out_.why = "attention: " + std::to_string(rows_) + " queries a program, " + std::to_string(keys_) +
               " keys at a time, width " + std::to_string(width_) +
               (depth_ != width_ ? " in tiles of " + std::to_string(depth_) : "") + ", on " + std::to_string(warps_) +
               " warps; scores and probabilities in registers";
  }

  void parameters() {
    auto add = [&](ValueId v, bool written) {
      if (pointers_.contains(v.index)) return;
      const Value& value = graph_.value(v);
      std::string name = value.name.empty() ? "b" + std::to_string(out_.buffers.size()) : value.name;
      pointers_[v.index] = b_.param(name, {tile::Type::Kind::Pointer, value.type.dtype, {}}, written);
      out_.kernel.params.back().invariant = !written;
      out_.buffers.push_back(v);
      out_.written.push_back(written);
    };
    for (const OperandView* view : {&call_.q, &call_.k, &call_.v}) add(view->value, false);
    for (ScalarId id = 0; id <= call_.root; ++id)
      if (const ScalarNode& n = call_.score.dag[id]; n.op == ScalarOp::Load && n.operand != 0)
        add(call_.score.loads[static_cast<size_t>(n.operand)], false);
    add(call_.out.value, true);
  }

  // Offset of the batch's part of an operand.
  V start_of(const OperandView& view) {
    SymExpr offset = view.offset;
    for (size_t i = 0; i + 2 < d_.axes.size(); ++i) offset += d_.axes[i].var * view.strides[i];
    return sizes_.number(d_.env.simplify(offset));
  }
  // [rows, columns] offsets: positions along dimension 0 and 1 of the tile times strides, plus `start`.
  V offsets(int rows, int columns, const SymExpr& row_stride, const SymExpr& column_stride, V start) {
    V r = op(ScalarOp::Mul, b_.expand_dims(b_.range(rows), 1), sizes_.number(row_stride));
    V c = op(ScalarOp::Mul, b_.expand_dims(b_.range(columns), 0), sizes_.number(column_stride));
    // Along a stride of 0, such as that of a single query, there is nothing to add.
    return b_.broadcast(op(ScalarOp::Add, op(ScalarOp::Add, r, c), start), {rows, columns});
  }
  V both(V a, V b) { return a < 0 ? b : b < 0 ? a : op(ScalarOp::And, a, b); }
  // Mask along dimension `dim` of a tile of positions below `extent`; -1 if all are.
  V below(int lanes, int dim, int64_t extent) {
    if (lanes == extent) return -1;
    return b_.scalar(ScalarOp::Lt, std::array{b_.expand_dims(b_.range(lanes), 1 - dim), sizes_.constant(extent)});
  }
  V load(const OperandView& view, V offset, V mask) {
    const auto& shape = b_.kernel().type(offset).shape;
    return b_.load(pointers_.at(view.value.index), offset, mask < 0 ? -1 : b_.broadcast(mask, shape));
  }

  void program() {
    V number = b_.program_id(0);
    SymExpr blocks = d_.env.simplify(ceildiv(query().extent, rows_));
    out_.grid = blocks;
    V n = sizes_.number(blocks);
    // Programs of one head are consecutive, because they read the same keys. Those with the most keys start first.
    V block = op(ScalarOp::Sub, op(ScalarOp::Sub, n, sizes_.constant(1)), op(ScalarOp::Mod, number, n));
    V rest = op(ScalarOp::Div, number, n);
    for (size_t i = d_.axes.size() - 2; i-- > 0;) {
      const Axis& a = d_.axes[i];
      out_.grid *= a.extent;
      V extent = sizes_.number(a.extent);
      sizes_.bind(a.var, op(ScalarOp::Mod, rest, extent));
      rest = op(ScalarOp::Div, rest, extent);
    }
    out_.grid = d_.env.simplify(out_.grid);
    first_query_ = op(ScalarOp::Mul, block, sizes_.constant(rows_));
    sizes_.bind_tile(query().var, first_query_, rows_, 0, 2);
    V exists = b_.scalar(ScalarOp::Lt, std::array{sizes_.number(query().var), sizes_.number(query().extent)}); // [R, 1]

    size_t rank = d_.axes.size();
    auto at_query = [&](const OperandView& view, int lanes) {
      const auto& s = view.strides;
      V start = op(ScalarOp::Add, start_of(view), op(ScalarOp::Mul, first_query_, sizes_.number(s[rank - 2])));
      return offsets(rows_, lanes, s[rank - 2], s[rank - 1], start);
    };
    V q = load(call_.q, at_query(call_.q, depth_), both(exists, below(depth_, 1, width_)));

    auto condition = diagonal(call_);
    Score inside = score_where(call_, condition, true), whole = score_where(call_, std::nullopt, true);
    V keys = sizes_.number(key().extent), end = keys,
      free = keys; // `free`: end of the keys for which the condition is true
    if (condition) {
      SymExpr limit = *limit_of(*condition, key().var);
      V c = sizes_.number(d_.env.simplify(limit.substitute({{query().var.symbol_id(), 0}})));
      V first = op(ScalarOp::Add, op(ScalarOp::Add, first_query_, c), sizes_.constant(1));
      free = op(ScalarOp::Min, keys, op(ScalarOp::Max, first, sizes_.constant(0)));
      Score outside = score_where(call_, condition, false);
      const ScalarNode& beyond = outside.dag[outside.root];
      if (beyond.op == ScalarOp::Const && beyond.f == -HUGE_VAL)
        end = op(ScalarOp::Min, keys, op(ScalarOp::Add, first, sizes_.constant(rows_ - 1)));
    }
    V step = sizes_.constant(keys_);
    V full = op(ScalarOp::Mul, op(ScalarOp::Div, free, step), step);
    V zero = sizes_.constant(0);
    std::vector<V> state = {b_.broadcast(f32(-HUGE_VAL), {rows_}), b_.broadcast(f32(0), {rows_}),
                            b_.broadcast(f32(0), {rows_, columns_})};
    auto walk = [&](V from, V to, const Score& score, bool all, V some_exist) {
      state = b_.for_loop(from, to, step, state, [&](V first, std::span<const V> carried) {
        return keys_body(q, first, score, all, some_exist, carried);
      });
    };
    walk(zero, full, inside, true, exists);
    if (condition || d_.env.divisor(key().extent) % keys_ != 0) walk(full, end, whole, false, exists);
    finish(state, at_query(call_.out, columns_), both(exists, below(columns_, 1, value_width_)));
  }

  // One block of keys from `first` on; `all`: every key exists.
  std::vector<V> keys_body(V q, V first, const Score& score, bool all, V queries_exist, std::span<const V> carried) {
    size_t rank = d_.axes.size();
    V keys = sizes_.number(key().extent);
    auto exists = [&](int dim) { // mask of existing keys along a dimension of a tile
      if (all) return V{-1};
      V left = op(ScalarOp::Sub, keys, first);
      return b_.scalar(ScalarOp::Lt, std::array{b_.expand_dims(b_.range(keys_), 1 - dim), left});
    };
    auto start = [&](const OperandView& view) {
      return op(ScalarOp::Add, start_of(view), op(ScalarOp::Mul, first, sizes_.number(view.strides[rank - 2])));
    };
    const auto &ks = call_.k.strides, &vs = call_.v.strides;
    V k = load(call_.k, offsets(depth_, keys_, ks[rank - 1], ks[rank - 2], start(call_.k)),
               both(below(depth_, 0, width_), exists(1)));
    V v = load(call_.v, offsets(keys_, columns_, vs[rank - 2], vs[rank - 1], start(call_.v)),
               both(exists(0), below(columns_, 1, value_width_)));
    V s = b_.dot(q, k, b_.broadcast(f32(0), {rows_, keys_}));

    sizes_.bind_tile(key().var, first, keys_, 1, 2);
    V x = full(value(score, s, {queries_exist, exists(1)}));
    if (!all) x = b_.scalar(ScalarOp::Select, std::array{spread(exists(1), rows_, keys_), x, full(f32(-HUGE_VAL))});
    V factor = f32(score.factor * kLog2e);
    V most = b_.scalar(
        ScalarOp::Max,
        std::array{carried[0], b_.scalar(ScalarOp::Mul, std::array{b_.reduce(ReduceKind::Max, x, 1), factor})});
    // While all scores are -inf, there is no maximum to subtract.
    V none = b_.scalar(ScalarOp::Eq, std::array{most, f32(-HUGE_VAL)});
    V from = b_.scalar(ScalarOp::Neg,
                       std::array{b_.scalar(ScalarOp::Select, std::array{none, b_.broadcast(f32(0), {rows_}), most})});
    V p = b_.scalar(ScalarOp::Exp2,
                    std::array{b_.scalar(
                        ScalarOp::Fma, std::array{x, b_.broadcast(factor, {rows_, keys_}), down(from, rows_, keys_)})});
    V shrink = b_.scalar(ScalarOp::Exp2, std::array{b_.scalar(ScalarOp::Add, std::array{carried[0], from})});
    V sum = b_.scalar(ScalarOp::Add, std::array{b_.scalar(ScalarOp::Mul, std::array{carried[1], shrink}),
                                                b_.reduce(ReduceKind::Sum, p, 1)});
    V o = b_.scalar(ScalarOp::Mul, std::array{carried[2], down(shrink, rows_, columns_)});
    return {most, sum, b_.dot(b_.cast(p, dtype()), v, o)};
  }

  // Rows without a defined softmax, all scores -inf or one NaN, have a sum of 0 or NaN. Without keys a sum over them is
  // 0.
  void finish(const std::vector<V>& state, V offset, V mask) {
    V sum = state[1], one = f32(1);
    V empty = b_.scalar(ScalarOp::Le, std::array{sizes_.number(key().extent), sizes_.constant(0)});
    V nothing = b_.broadcast(empty, {rows_});
    V inverse = b_.scalar(
        ScalarOp::Div, std::array{b_.broadcast(one, {rows_}),
                                  b_.scalar(ScalarOp::Select, std::array{nothing, b_.broadcast(one, {rows_}), sum})});
    V o = b_.scalar(ScalarOp::Mul, std::array{state[2], down(inverse, rows_, columns_)});
    if (call_.zero_where_undefined) {
      V defined = b_.scalar(ScalarOp::Gt, std::array{sum, f32(0)});
      o = b_.scalar(ScalarOp::Select,
                    std::array{down(defined, rows_, columns_), o, b_.broadcast(f32(0), {rows_, columns_})});
    }
    b_.store(pointers_.at(call_.out.value.index), offset, b_.cast(o, graph_.type(call_.out.value).dtype),
             mask < 0 ? -1 : spread(mask, rows_, columns_));
  }

  // ---- the score's expression
  V full(V v) { return b_.kernel().type(v).is_tile() ? spread(v, rows_, keys_) : b_.broadcast(v, {rows_, keys_}); }

  // `exist`: masks of existing queries [R, 1] and keys [1, N]; -1: all.
  V value(const Score& score, V product, const std::array<V, 2>& exist) {
    std::vector<V> known(static_cast<size_t>(score.root) + 1, -1);
    std::vector<char> needed(known.size());
    needed.back() = 1;
    for (ScalarId id = score.root; id >= 0; --id)
      if (needed[static_cast<size_t>(id)] && score.dag[id].op != ScalarOp::Load)
        for (ScalarId a : score.dag[id].args) needed[static_cast<size_t>(a)] = 1;
      else if (needed[static_cast<size_t>(id)] && score.dag[id].masked)
        needed[static_cast<size_t>(score.dag[id].args.back())] = 1;
    for (ScalarId id = 0; id <= score.root; ++id) {
      if (!needed[static_cast<size_t>(id)]) continue;
      const ScalarNode& n = score.dag[id];
      V& v = known[static_cast<size_t>(id)];
      std::vector<V> args;
      switch (n.op) {
      case ScalarOp::Const: v = is_float(n.dtype) ? b_.const_f(n.dtype, n.f) : b_.const_i(n.dtype, n.i); break;
      case ScalarOp::Index:
        v = n.dtype == DType::Bool ? sizes_.condition(d_.env.simplify(n.sym)) : sizes_.number(d_.env.simplify(n.sym));
        break;
      case ScalarOp::Load:
        if (n.operand == 0)
          v = product;
        else
          v = load_of_score(score.dag, n, n.masked ? known[static_cast<size_t>(n.args.back())] : -1, exist);
        break;
      case ScalarOp::Cast: v = b_.cast(known[static_cast<size_t>(n.args[0])], n.dtype); break;
      case ScalarOp::Bitcast: v = b_.bitcast(known[static_cast<size_t>(n.args[0])], n.dtype); break;
      default:
        for (ScalarId a : n.args) args.push_back(known[static_cast<size_t>(a)]);
        v = pointwise(b_, n.op, args);
      }
    }
    return known.back();
  }

  V load_of_score(const ScalarDag& dag, const ScalarNode& n, V predicate, const std::array<V, 2>& exist) {
    ValueId from = call_.score.loads[static_cast<size_t>(n.operand)];
    std::vector<SymExpr> strides = contiguous_strides(graph_.type(from).shape);
    SymExpr offset = 0;
    for (size_t i = 0; i < strides.size(); ++i) offset += *dag.as_sym(n.args[i]) * strides[i];
    V at = sizes_.number(d_.env.simplify(offset));
    std::vector<int> shape = b_.kernel().type(at).shape;
    if (predicate >= 0) shape = common_shape(b_.kernel(), std::array{at, predicate});
    V mask = predicate;
    for (size_t dim = 0; dim < exist.size(); ++dim)
      if (!shape.empty() && shape[dim] > 1) mask = both(mask, exist[dim]);
    if (!shape.empty()) {
      at = b_.broadcast(at, shape);
      if (mask >= 0) mask = b_.broadcast(mask, shape);
    }
    return b_.cast(b_.load(pointers_.at(from.index), at, mask), n.dtype);
  }
};

} // namespace

bool attention_by_blocks_takes(const Graph& graph, const AttentionCall& call, std::string* why_not) {
  auto no = [&](const std::string& why) {
    if (why_not) *why_not = why;
    return false;
  };
  DType d = graph.type(call.q.value).dtype;
  if (d != DType::F16 && d != DType::BF16) return no("tensor cores take f16 and bf16, not " + std::string(name(d)));
  for (const OperandView* view : {&call.k, &call.v, &call.out})
    if (graph.type(view->value).dtype != d) return no("operands of several types");
  for (const OperandView* view : {&call.q, &call.v}) {
    auto width = view->shape.back().as_const();
    if (!width || *width < 1 || *width > kMaxWidth)
      return no("a width of " + view->shape.back().str() + "; registers hold " + std::to_string(kMaxWidth));
  }
  for (ScalarId id = 0; id <= call.root; ++id) {
    const ScalarNode& n = call.score.dag[id];
    if (n.op == ScalarOp::CheckBounds || n.op == ScalarOp::Reduce) return no("a score with an index from memory");
    if (n.op != ScalarOp::Load || n.operand == 0) continue;
    for (size_t i = 0; i < n.args.size() - (n.masked ? 1 : 0); ++i)
      if (!call.score.dag.as_sym(n.args[i])) return no("a score with an index from memory");
  }
  return true;
}

std::vector<ScheduledKernel> attention_by_blocks(const Graph& graph, const AttentionCall& call,
                                                 const std::string& name) {
  std::vector<ScheduledKernel> out;
  const SymExpr& queries = call.score.axes[call.score.axes.size() - 2].extent;
  SymRange range = graph.env().range(queries);
  if (range.lo <= kFewQueries) {
    out.push_back(Lowering(graph, call, name, true).run());
    if (range.hi <= kFewQueries) return out;
    out.back().conditions.push_back({queries, 1, 0, kFewQueries});
  }
  out.push_back(Lowering(graph, call, name, false).run());
  return out;
}

} // namespace tessera
