// ONNX operators that cut and join: Slice and Split of every version, Concat.
#include "graph/ops/build.h"
#include <numeric>

namespace tessera {

namespace {
using namespace ops;

// ---- Slice
// A bound brought into [lo, hi] of a dimension of size n, negative ones counted from the end; bounds may be symbolic,
// and then their sign decides only where the environment knows it.
SymExpr bound(const ShapeEnv& env, const SymExpr& e, const SymExpr& n, const SymExpr& lo, const SymExpr& hi) {
  if (auto v = e.as_const()) {
    if (*v >= kSymMax) return hi;
    if (*v <= -kSymMax) return lo;
  }
  bool below = env.prove(sym_lt(e, 0)).value_or(false), above = env.prove(sym_le(0, e)).value_or(false);
  SymExpr wrapped = below ? e + n : above ? e : sym_select(sym_lt(e, 0), e + n, e);
  return env.simplify(sym_max(sym_min(wrapped, hi), lo));
}

struct Cut {
  std::vector<SymExpr> starts, ends;
  Ints axes, steps;
};

// Steps must be numbers: where a call has not said them yet, 1 is guessed, which is legal for every axis.
Ints known_steps(B& b) {
  Ints out;
  for (const SymExpr& e : b.known(4)) {
    auto step = b.env().simplify(e).as_const();
    if (!step) {
      step = b.env().hint(e);
      if (!step && !b.env().may_guess()) return b.known_ints(4); // says what is missing
      if (!step) step = 1;
      b.check(b.env().require(sym_eq(e, *step), GuardClass::Assumed, "steps of Slice", b.node().location));
    }
    out.push_back(*step);
  }
  return out;
}

Cut slice_arguments(B& b) {
  Cut cut;
  if (b.opset() < 10) {
    for (int64_t v : b.attr().ints("starts")) cut.starts.emplace_back(v);
    for (int64_t v : b.attr().ints("ends")) cut.ends.emplace_back(v);
    cut.axes = b.attr().ints("axes");
    if (!b.attr().has("axes")) {
      cut.axes.resize(cut.starts.size());
      std::iota(cut.axes.begin(), cut.axes.end(), 0);
    }
  } else {
    cut.starts = b.known(1);
    cut.ends = b.known(2);
    if (b.has(3)) {
      cut.axes = b.known_ints(3);
    } else {
      cut.axes.resize(cut.starts.size());
      std::iota(cut.axes.begin(), cut.axes.end(), 0);
    }
    if (b.has(4)) cut.steps = known_steps(b);
  }
  if (cut.steps.empty()) cut.steps.assign(cut.starts.size(), 1);
  if (b.ok() && (cut.ends.size() != cut.starts.size() || cut.axes.size() != cut.starts.size() ||
                 cut.steps.size() != cut.starts.size()))
    b.fail(ErrorCode::ShapeMismatch, "starts, ends, axes and steps differ in number");
  return cut;
}

Result<std::vector<ValueId>> decompose_slice(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0);
  Cut cut = slice_arguments(b);
  if (!b.ok()) return b.failed();
  SymShape sizes = b.shape(x), starts(sizes.size(), SymExpr(0));
  Ints steps(sizes.size(), 1), seen;
  bool whole = true;
  for (size_t i = 0; i < cut.starts.size(); ++i) {
    int64_t axis = b.axis(cut.axes[i], static_cast<int>(sizes.size()));
    int64_t step = cut.steps[i];
    if (step == 0) b.fail(ErrorCode::BadInput, "a step of Slice is 0");
    if (std::find(seen.begin(), seen.end(), axis) != seen.end())
      b.fail(ErrorCode::BadAttribute, "an axis is given twice");
    if (step < -kSymMax || step > kSymMax) step = step < 0 ? -kSymMax : kSymMax; // at most one element either way
    if (!b.ok()) return b.failed();
    seen.push_back(axis);
    auto k = static_cast<size_t>(axis);
    SymExpr size = sizes[k], first, count;
    if (step > 0) {
      first = bound(b.env(), cut.starts[i], size, 0, size);
      count = ceildiv(bound(b.env(), cut.ends[i], size, 0, size) - first, step);
    } else {
      first = bound(b.env(), cut.starts[i], size, 0, size - 1);
      count = ceildiv(first - bound(b.env(), cut.ends[i], size, -1, size - 1), -step);
      if (!b.env().prove(sym_lt(0, size)).value_or(false))
        count = sym_min(count, size); // an empty dimension has no last
    }
    starts[k] = first;
    steps[k] = step;
    count = b.env().simplify(sym_max(count, 0));
    if (!(count == size) || step != 1) whole = false;
    sizes[k] = count;
    if (count.is_const(0)) starts[k] = 0, steps[k] = 1;
  }
  if (whole) return b.done(x);
  return b.done(b.op("slice", {x}, {{"starts", starts}, {"steps", steps}, {"sizes", sizes}}));
}

OpDef slice() {
  OpDef def;
  def.name = "Slice";
  def.summary = "ranges of a tensor's dimensions, clamped to them";
  def.onnx = {{"Slice"}};
  def.operands = {{"data", TypeSet::Any},
                  {"starts", TypeSet::Index, true},
                  {"ends", TypeSet::Index, true},
                  {"axes", TypeSet::Index, true},
                  {"steps", TypeSet::Index, true}};
  def.attributes = {{"starts", AttrKind::Ints}, {"ends", AttrKind::Ints}, {"axes", AttrKind::Ints}};
  def.meaning = Decomposition{decompose_slice};
  def.reference = [](ReferenceContext& c) -> Status {
    Tensor x = c.operands[0];
    bool attributes = c.node.opset < 10;
    auto list = [&](size_t operand, std::string_view name) -> std::optional<Ints> {
      if (attributes) return c.node.attributes.has(name) ? std::optional(c.node.attributes.ints(name)) : std::nullopt;
      if (operand < c.operands.size() && c.operands[operand].defined()) return to_i64(c.operands[operand]);
      return std::nullopt;
    };
    Ints starts = list(1, "starts").value_or(Ints{}), ends = list(2, "ends").value_or(Ints{});
    auto axes = list(3, "axes"), steps = list(4, "steps");
    // One axis after another, walking as Python's slices do.
    for (size_t i = 0; i < starts.size(); ++i) {
      auto rank = static_cast<int64_t>(x.dims().size());
      int64_t axis = axes ? (*axes)[i] : static_cast<int64_t>(i), step = steps ? (*steps)[i] : 1;
      auto k = static_cast<size_t>(axis < 0 ? axis + rank : axis);
      int64_t n = x.dims()[k], from = starts[i], to = ends[i];
      if (from < 0) from = from < -n ? 0 : from + n;
      if (to < 0) to = to < -n ? -1 : to + n;
      from = std::clamp<int64_t>(from, 0, step > 0 ? n : n - 1);
      to = std::clamp<int64_t>(to, step > 0 ? 0 : -1, step > 0 ? n : n - 1);
      std::vector<int64_t> picked;
      for (int64_t p = from; n > 0 && (step > 0 ? p < to : p > to);) {
        picked.push_back(p);
        if (__builtin_add_overflow(p, step, &p)) break;
      }
      Dims dims = x.dims(), stride = strides_of(x.dims());
      dims[k] = static_cast<int64_t>(picked.size());
      TESSERA_ASSIGN(x, take_at(x, dims, [&](const Dims& at) {
                       Dims f = at;
                       f[k] = picked[static_cast<size_t>(at[k])];
                       return offset(f, stride);
                     }));
    }
    c.results = {x};
    return {};
  };
  def.samples = [] {
    constexpr int64_t far = std::numeric_limits<int64_t>::max(), near = std::numeric_limits<int64_t>::min();
    Tensor x = random(DType::F32, {5, 6, 7}, 1);
    std::vector<Sample> out = {
        sample({x}, {{"starts", Ints{1, -3}}, {"ends", Ints{4, 9}}, {"axes", Ints{0, 2}}}, 9),
        sample({x}, {{"starts", Ints{1, 0}}, {"ends", Ints{3, -1}}}, 1),
        sample({x, vec({0, 1}), vec({3, far})}, {}, 10),
        sample({x, vec({-1}), vec({near}), vec({-1}), vec({-1})}, {}, 11),
        sample({x, vec({20, 4}), vec({0, -20}), vec({0, 1}), vec({-2, -3})}, {}, 13),
        sample({x, vec({4}), vec({2}), vec({1})}, {}, 13),
        sample({x, vec({0}), vec({far}), vec({2}), vec({3})}, {}, 13),
        sample({x, vec({2}), vec({4}), vec({0}), vec({far})}, {}, 13),
        sample({random(DType::I64, {0, 3}, 1), vec({0}), vec({5})}, {}, 13),
        sample({random(DType::F16, {4}, 1), integers(DType::I32, {1}, {-2}), integers(DType::I32, {1}, {100})}, {},
               13)};
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {5});
    return std::vector<ErrorSample>{
        wrong({x, vec({0}), vec({1}), vec({0}), vec({0})}, {}, ErrorCode::BadInput, "a step of Slice is 0", 13),
        wrong({x, vec({0, 1}), vec({1})}, {}, ErrorCode::ShapeMismatch, "differ in number", 13),
        wrong({x, vec({0}), vec({1}), vec({1})}, {}, ErrorCode::BadAttribute, "axis", 13),
        wrong({x, vec({0, 0}), vec({1, 1}), vec({0, -1})}, {}, ErrorCode::BadAttribute, "twice", 13)};
  };
  return def;
}

// ---- Split: sizes are an attribute before opset 13, an operand since; num_outputs since 18 allows a smaller last part
Result<std::vector<ValueId>> decompose_split(Graph& g, const Node& n, int result_count) {
  B b(g, n);
  ValueId x = b.in(0);
  int64_t axis = b.axis(b.attr().i("axis", 0), b.rank(x));
  SymExpr size = b.dim(x, axis);
  std::vector<SymExpr> parts;
  if (b.has(1)) {
    parts = b.sizes(1);
  } else if (b.attr().has("split")) {
    for (int64_t p : b.attr().ints("split")) parts.emplace_back(p);
  }
  if (!b.ok()) return b.failed();
  if (parts.empty() && !b.has(1)) {
    int64_t count = b.attr().i("num_outputs", result_count);
    if (count < 1 || count != result_count)
      b.fail(ErrorCode::BadAttribute,
             "num_outputs is " + std::to_string(count) + ", the node has " + std::to_string(result_count) + " outputs");
    if (!b.ok()) return b.failed();
    if (b.attr().has("num_outputs")) { // parts of equal size but for the last one, which takes what is left
      SymExpr chunk = ceildiv(size, count);
      for (int64_t i = 0; i < count; ++i)
        parts.push_back(b.env().simplify(sym_max(sym_min(chunk, size - chunk * i), 0)));
    } else {
      if (size.is_const() && size.const_value() % count != 0)
        b.fail(ErrorCode::ShapeMismatch, "dimension " + std::to_string(axis) + " of " + b.type(x).str() +
                                             " cannot be split into " + std::to_string(count) + " equal parts");
      else
        b.check(
            b.env().require(sym_eq(mod(size, count), 0), GuardClass::Required, "split into equal parts", n.location));
      parts.assign(static_cast<size_t>(count), b.env().simplify(floordiv(size, count)));
    }
  } else {
    SymExpr sum = 0;
    for (const SymExpr& p : parts) {
      sum += p;
    }
    if (sum.is_const() && size.is_const() && !(sum == size))
      b.fail(ErrorCode::ShapeMismatch,
             "the parts of Split add up to " + sum.str() + ", the dimension is " + size.str());
    else if (b.ok())
      b.check(b.env().require_equal(sum, size, "the parts of Split add up to the dimension", n.location));
    if (static_cast<int>(parts.size()) != result_count)
      b.fail(ErrorCode::ShapeMismatch,
             std::to_string(parts.size()) + " parts for " + std::to_string(result_count) + " outputs");
  }
  if (!b.ok()) return b.failed();
  std::vector<ValueId> results;
  SymExpr start = 0;
  for (const SymExpr& p : parts) {
    results.push_back(slice(b, x, axis, start, p));
    start += p;
  }
  return b.done(results);
}

OpDef split() {
  OpDef def;
  def.name = "Split";
  def.summary = "a tensor cut into parts along an axis";
  def.onnx = {{"Split", "", 2}};
  def.operands = {{"input", TypeSet::Any}, {"split", TypeSet::Index, true}};
  def.attributes = {
      {"axis", AttrKind::Int, false, int64_t{0}}, {"split", AttrKind::Ints}, {"num_outputs", AttrKind::Int}};
  def.min_results = 1;
  def.max_results = 1 << 20;
  def.meaning = Decomposition{decompose_split};
  def.samples = [] {
    auto with = [](Sample s, int results) {
      s.result_count = results;
      return s;
    };
    Tensor x = random(DType::F32, {4, 6}, 1);
    return std::vector<Sample>{with(sample({x}, {{"axis", int64_t{1}}}, 11), 3),
                               with(sample({x}, {{"axis", int64_t{-1}}, {"split", Ints{1, 0, 5}}}, 11), 3),
                               with(sample({x, vec({1, 3})}, {}, 13), 2),
                               with(sample({random(DType::I64, {7}, 1)}, {{"num_outputs", int64_t{3}}}, 18), 3),
                               with(sample({random(DType::F16, {7}, 1)}, {{"num_outputs", int64_t{4}}}, 18), 4)};
  };
  def.error_samples = [] {
    auto two = [](ErrorSample e) {
      e.sample.result_count = 2;
      return e;
    };
    Tensor x = random(DType::F32, {5});
    return std::vector<ErrorSample>{
        two(wrong({x}, {}, ErrorCode::ShapeMismatch, "equal parts", 13)),
        two(wrong({x, vec({2, 2})}, {}, ErrorCode::ShapeMismatch, "add up to 4", 13)),
        two(wrong({x, vec({2, 2, 1})}, {}, ErrorCode::ShapeMismatch, "3 parts for 2 outputs", 13)),
        two(wrong({x}, {{"num_outputs", int64_t{3}}}, ErrorCode::BadAttribute, "num_outputs is 3", 18))};
  };
  return def;
}

OpDef concat() {
  OpDef def;
  def.name = "Concat";
  def.summary = "tensors one after another along an axis";
  def.onnx = {{"Concat", "", 4}};
  def.operands = {{"first", TypeSet::Any}, {"rest", TypeSet::SameAsFirst, false, true}};
  def.attributes = {{"axis", AttrKind::Int, true}};
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    int64_t axis = b.axis(b.attr().i("axis"), b.rank(b.in(0)));
    return b.done(b.ok() ? concat(b, n.operands, axis) : ValueId{});
  }};
  def.samples = [] {
    Tensor x = random(DType::F32, {2, 3, 4}, 1), y = random(DType::F32, {2, 1, 4}, 2);
    return std::vector<Sample>{sample({x, y, x}, {{"axis", int64_t{-2}}}, 13), sample({x}, {{"axis", int64_t{0}}}, 13),
                               sample({vec({1, 2}), vec({}), vec({3})}, {{"axis", int64_t{0}}}, 13)};
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 3});
    return std::vector<ErrorSample>{wrong({x, random(DType::F32, {2, 4})}, {{"axis", int64_t{0}}},
                                          ErrorCode::ShapeMismatch, "differ in dimension 1", 13),
                                    wrong({x, x}, {{"axis", int64_t{2}}}, ErrorCode::BadAttribute, "axis", 13)};
  };
  return def;
}

} // namespace

void register_slice_composites(OpTable& table);
void register_slice_composites(OpTable& table) {
  for (OpDef (*make)() : {slice, split, concat}) table.add(make());
}

} // namespace tessera
