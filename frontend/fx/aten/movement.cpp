// Elements in other places: concatenation, repetition, flips, padding.
#include "frontend/fx/view_parts.h"
#include <algorithm>
#include <numeric>

namespace tessera::fx {
namespace {

// Tensors of a list in the dtype of the result.
std::vector<ValueId> alike(Call& c, std::string_view name) {
  std::vector<ValueId> xs = c.in.tensors(name);
  const DType d = c.result_dtype();
  for (ValueId& x : xs) x = cast(c.b, x, d);
  if (c.b.ok() && xs.empty()) c.unsupported("an empty list of tensors");
  return c.b.ok() ? xs : std::vector<ValueId>();
}

void translate_cat(Call& c) {
  std::vector<ValueId> xs = alike(c, "tensors");
  if (!c.b.ok()) return;
  // A vector without elements joins tensors of any rank.
  auto empty = [&](ValueId x) { return c.b.rank(x) == 1 && c.b.dim(x, 0).is_const(0); };
  std::vector<ValueId> parts;
  for (ValueId x : xs)
    if (!empty(x)) parts.push_back(x);
  if (parts.empty()) return c.result(xs[0]);
  const int64_t axis = c.in.axis("dim", c.b.rank(parts[0]));
  if (c.b.ok() && c.b.rank(parts[0]) == 0) return c.unsupported("scalars cannot be concatenated");
  c.result(concat(c.b, std::move(parts), axis));
}

void translate_stack(Call& c) {
  std::vector<ValueId> xs = alike(c, "tensors");
  if (!c.b.ok()) return;
  const int64_t axis = c.b.axis(c.in.integer("dim"), c.b.rank(xs[0]) + 1);
  for (ValueId& x : xs) x = unsqueeze(c.b, x, {axis});
  if (c.b.ok()) c.result(concat(c.b, std::move(xs), axis));
}

// hstack, vstack, dstack, column_stack: tensors of at least `rank` dimensions, joined along one of them.
template <int64_t kAxis, int64_t kRank, bool kColumns>
void translate_joined(Call& c) {
  std::vector<ValueId> xs = alike(c, "tensors");
  if (!c.b.ok()) return;
  for (ValueId& x : xs) {
    const int rank = c.b.rank(x);
    if constexpr (kColumns) {
      if (rank < 2) x = reshape(c.b, x, {c.b.type(x).count(), 1});
    } else if constexpr (kRank == 3) {
      x = unsqueeze(c.b, x, rank == 0 ? Ints{0, 1, 2} : rank == 1 ? Ints{0, 2} : rank == 2 ? Ints{2} : Ints{});
    } else if constexpr (kRank == 2) {
      x = unsqueeze(c.b, x, rank == 0 ? Ints{0, 1} : rank == 1 ? Ints{0} : Ints{});
    } else {
      x = as_vector(c.b, x);
    }
  }
  const int64_t axis = std::min<int64_t>(kAxis, c.b.rank(xs[0]) - 1);
  if (c.b.ok()) c.result(concat(c.b, std::move(xs), axis));
}

void translate_block_diag(Call& c) {
  std::vector<ValueId> xs = alike(c, "tensors");
  if (!c.b.ok()) return;
  SymExpr columns = 0, before = 0;
  for (ValueId& x : xs) {
    x = unsqueeze(c.b, x, c.b.rank(x) == 0 ? Ints{0, 1} : c.b.rank(x) == 1 ? Ints{0} : Ints{});
    columns += c.b.dim(x, 1);
  }
  for (ValueId& x : xs) {
    const SymExpr own = c.b.dim(x, 1);
    x = pad(c.b, x, {0, before}, {0, c.b.env().simplify(columns - before - own)});
    before += own;
  }
  if (c.b.ok()) c.result(concat(c.b, std::move(xs), 0));
}

ValueId repeated(Call& c, ValueId x, SymShape repeats) {
  if (!c.b.ok()) return {};
  SymShape in = c.b.shape(x);
  if (repeats.size() < in.size()) repeats.insert(repeats.begin(), in.size() - repeats.size(), SymExpr(1));
  in.insert(in.begin(), repeats.size() - in.size(), SymExpr(1));
  SymShape apart, all, out;
  for (size_t k = 0; k < in.size(); ++k) {
    if (!repeats[k].is_const(1)) {
      apart.emplace_back(1);
      all.push_back(repeats[k]);
    }
    apart.push_back(in[k]);
    all.push_back(in[k]);
    out.push_back(repeats[k] * in[k]);
  }
  return reshape(c.b, expand(c.b, reshape(c.b, x, apart), all), out);
}

void translate_repeat(Call& c) {
  ValueId x = c.in.tensor("self");
  c.result(repeated(c, x, c.in.sizes(c.schema().argument("repeats") ? "repeats" : "dims")));
}

void translate_repeat_interleave(Call& c) {
  ValueId x = c.in.tensor("self");
  const SymExpr times = c.in.size("repeats");
  int64_t axis = 0;
  if (!c.b.ok()) return;
  if (c.in.given("dim")) {
    axis = c.in.axis("dim", c.b.rank(x));
    x = as_vector(c.b, x);
  } else {
    x = reshape(c.b, x, {c.b.type(x).count()});
  }
  if (!c.b.ok()) return;
  SymShape out = c.b.shape(x), all = out;
  const auto a = static_cast<size_t>(axis);
  all.insert(all.begin() + axis + 1, times);
  out[a] = out[a] * times;
  c.result(reshape(c.b, expand(c.b, unsqueeze(c.b, x, {axis + 1}), all), out));
}

ValueId flipped(Call& c, ValueId x, const Ints& axes) {
  return axes.empty() || c.b.rank(x) == 0 ? x : c.b.op("flip", {x}, {{"axes", axes}});
}

void translate_flip(Call& c) {
  ValueId x = c.in.tensor("self");
  const Ints axes = c.in.axes("dims", c.b.rank(x), false);
  c.result(flipped(c, x, axes));
}
void translate_fliplr(Call& c) { c.result(flipped(c, c.in.tensor("self"), {1})); }
void translate_flipud(Call& c) { c.result(flipped(c, c.in.tensor("self"), {0})); }

ValueId rolled(Call& c, ValueId x, int64_t axis, const SymExpr& shift) {
  if (!c.b.ok()) return {};
  const SymExpr n = c.b.dim(x, axis);
  if (n.is_const(0)) return x;
  const SymExpr first = c.b.env().simplify(mod(-shift, n));
  if (first.is_const(0)) return x;
  ValueId head = slice(c.b, x, axis, first, c.b.env().simplify(n - first)), tail = slice(c.b, x, axis, 0, first);
  if (!c.b.ok()) return {};
  return reshape(c.b, concat(c.b, {head, tail}, axis), c.b.shape(x));
}

void translate_roll(Call& c) {
  ValueId x = c.in.tensor("self");
  const SymShape shifts = c.in.sizes("shifts"), shape = c.b.shape(x);
  Ints axes = c.in.ints("dims");
  if (!c.b.ok()) return;
  if (shape.empty()) return c.result(x);
  if (axes.empty()) {
    if (shifts.size() != 1) return c.unsupported("several shifts without dimensions");
    x = rolled(c, reshape(c.b, x, {c.b.type(x).count()}), 0, shifts[0]);
    return c.result(reshape(c.b, x, shape));
  }
  if (axes.size() != shifts.size()) return c.unsupported("shifts and dimensions that differ in number");
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t axis = c.b.axis(axes[k], c.b.rank(x));
    x = rolled(c, x, axis, shifts[k]);
  }
  c.result(x);
}

void translate_rot90(Call& c) {
  ValueId x = c.in.tensor("self");
  Ints dims = c.in.ints("dims");
  const int64_t k = ((c.in.integer("k") % 4) + 4) % 4;
  if (!c.b.ok()) return;
  if (dims.size() != 2) return c.unsupported("a rotation needs two dimensions");
  for (int64_t& d : dims) d = c.b.axis(d, c.b.rank(x));
  if (!c.b.ok() || k == 0) return c.result(x);
  if (k == 2) {
    std::sort(dims.begin(), dims.end());
    return c.result(flipped(c, x, dims));
  }
  Ints perm(static_cast<size_t>(c.b.rank(x)));
  std::iota(perm.begin(), perm.end(), int64_t{0});
  std::swap(perm[static_cast<size_t>(dims[0])], perm[static_cast<size_t>(dims[1])]);
  x = k == 1 ? transpose(c.b, flipped(c, x, {dims[1]}), perm) : flipped(c, transpose(c.b, x, perm), {dims[1]});
  c.result(x);
}

// ---- padding
// Amounts in PyTorch's order: begin and end of the last dimension, then of the one before it.
struct Amounts {
  SymShape begin, end;
};
Amounts amounts_of(Call& c, std::string_view name, int rank) {
  const SymShape pads = c.in.sizes(name);
  Amounts a{SymShape(static_cast<size_t>(rank), SymExpr(0)), SymShape(static_cast<size_t>(rank), SymExpr(0))};
  if (c.b.ok() && (pads.size() % 2 != 0 || pads.size() / 2 > static_cast<size_t>(rank)))
    c.unsupported(std::to_string(pads.size()) + " amounts to pad by for " + std::to_string(rank) + " dimensions");
  for (size_t k = 0; c.b.ok() && k < pads.size() / 2; ++k) {
    a.begin[a.begin.size() - 1 - k] = pads[2 * k];
    a.end[a.end.size() - 1 - k] = pads[2 * k + 1];
  }
  return a;
}

ValueId padded(Call& c, ValueId x, const Amounts& a, const std::string& mode, ValueId value = {}) {
  if (!c.b.ok()) return {};
  if (mode == "constant") return pad(c.b, x, a.begin, a.end, value);
  auto zero = [](const SymExpr& e) { return e.is_const(0); };
  if (std::all_of(a.begin.begin(), a.begin.end(), zero) && std::all_of(a.end.begin(), a.end.end(), zero)) return x;
  return c.b.op("pad", {x}, {{"pads_begin", a.begin}, {"pads_end", a.end}, {"mode", mode}});
}

void translate_constant_pad(Call& c) {
  ValueId x = c.in.tensor("self");
  const Amounts a = amounts_of(c, "pad", c.b.rank(x));
  c.result(padded(c, x, a, "constant", exact_literal(c.b, c.in.scalar("value"), c.b.dtype(x))));
}

void translate_pad(Call& c) {
  ValueId x = c.in.tensor("self");
  const Amounts a = amounts_of(c, "pad", c.b.rank(x));
  std::string mode = c.in.text("mode");
  ValueId value;
  if (mode == "constant") {
    if (c.in.given("value")) value = exact_literal(c.b, c.in.scalar("value"), c.b.dtype(x));
  } else if (mode == "replicate") {
    mode = "edge";
  } else if (mode == "circular") {
    mode = "wrap";
  } else if (mode != "reflect") {
    return c.unsupported("padding of mode '" + mode + "'");
  }
  c.result(padded(c, x, a, mode, value));
}

template <const char* const* kMode>
void translate_mode_pad(Call& c) {
  ValueId x = c.in.tensor("self");
  const Amounts a = amounts_of(c, c.schema().argument("padding") ? "padding" : "pad", c.b.rank(x));
  c.result(padded(c, x, a, *kMode));
}
constexpr const char* kReflect = "reflect";
constexpr const char* kEdge = "edge";
constexpr const char* kWrap = "wrap";

// Gradients of padding: each dimension adds what its borders were made of. A border of k elements is a range of the
// gradient (reflected: reversed, or summed into one element) added to a range of the middle.
template <bool kReflected>
void translate_pad_backward(Call& c) {
  ValueId g = c.in.tensor("grad_output"), x = c.in.tensor("self");
  const int rank = c.b.rank(x);
  const Amounts a = amounts_of(c, "padding", rank);
  if (!c.b.ok()) return;
  const DType stored = c.b.dtype(g);
  g = widen(c.b, g);
  for (int64_t axis = 0; axis < rank && c.b.ok(); ++axis) {
    const auto k = static_cast<size_t>(axis);
    const SymExpr n = c.b.dim(x, axis), begin = a.begin[k], end = a.end[k];
    if (begin.is_const(0) && end.is_const(0)) continue;
    auto at = [&](const SymExpr& start, const SymExpr& size) { return take_range(c.b, g, axis, {start, size, 1}); };
    // [start, start + size) of the middle gains `part`.
    auto placed = [&](ValueId part, const SymExpr& start, const SymExpr& size) {
      SymShape before(static_cast<size_t>(rank), SymExpr(0)), after = before;
      before[k] = start;
      after[k] = c.b.env().simplify(n - start - size);
      return pad(c.b, part, before, after);
    };
    if (c.b.env().prove(sym_lt(begin, 0)).value_or(true) || c.b.env().prove(sym_lt(end, 0)).value_or(true))
      return c.unsupported("the gradient of padding by a negative or unknown amount");
    ValueId sum = at(begin, n);
    for (bool first : {true, false}) {
      const SymExpr size = first ? begin : end;
      if (size.is_const(0)) continue;
      ValueId part = first ? at(0, begin) : at(begin + n, end);
      if (kReflected)
        sum = add(c.b, sum,
                  placed(c.b.op("flip", {part}, {{"axes", Ints{axis}}}),
                         first ? SymExpr(1) : c.b.env().simplify(n - 1 - end), size));
      else
        sum = add(c.b, sum, placed(ops::sum(c.b, part, {axis}, true), first ? SymExpr(0) : n - 1, 1));
    }
    g = reshape(c.b, sum, [&] {
      SymShape s = c.b.shape(sum);
      s[k] = n;
      return s;
    }());
  }
  c.result(cast(c.b, g, stored));
}

void translate_meshgrid(Call& c) {
  std::vector<ValueId> xs = c.in.tensors("tensors");
  const bool swapped = c.schema().argument("indexing") && c.in.text("indexing") == "xy" && xs.size() > 1;
  if (!c.b.ok()) return;
  SymShape sizes;
  for (ValueId x : xs) sizes.push_back(c.b.type(x).count());
  if (swapped) std::swap(sizes[0], sizes[1]);
  for (size_t k = 0; k < xs.size(); ++k) {
    const size_t axis = swapped && k < 2 ? 1 - k : k;
    SymShape line(sizes.size(), SymExpr(1));
    line[axis] = sizes[axis];
    c.result(expand(c.b, reshape(c.b, xs[k], line), sizes));
  }
}

void translate_one_hot(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t classes = c.in.integer("num_classes");
  if (!c.b.ok()) return;
  if (classes < 0) return c.unsupported("one_hot needs num_classes: without it the size depends on data");
  const int64_t rank = c.b.rank(x);
  SymShape line(static_cast<size_t>(rank) + 1, SymExpr(1));
  line.back() = classes;
  ValueId wanted = cast(c.b, x, DType::I64);
  ValueId is_class = logical_and(c.b, ge(c.b, wanted, 0.0), lt(c.b, wanted, c.b.size(line.back(), DType::I64)));
  wanted = c.b.op("require", {wanted, is_class}, {{"message", std::string("a class is out of bounds")}});
  c.result(cast(c.b, eq(c.b, unsqueeze(c.b, wanted, {rank}), iota(c.b, line, rank)), DType::I64));
}

} // namespace

void register_movement(AtenTable& t) {
  t.add({"cat.default", "concat.default", "concatenate.default"}, translate_cat);
  t.add({"stack.default"}, translate_stack);
  t.add({"hstack.default"}, translate_joined<1, 1, false>);
  t.add({"vstack.default", "row_stack.default"}, translate_joined<0, 2, false>);
  t.add({"dstack.default"}, translate_joined<2, 3, false>);
  t.add({"column_stack.default"}, translate_joined<1, 2, true>);
  t.add({"block_diag.default"}, translate_block_diag);
  t.add({"repeat.default", "tile.default"}, translate_repeat);
  t.add({"repeat_interleave.self_int"}, translate_repeat_interleave);
  t.add({"flip.default"}, translate_flip);
  t.add({"fliplr.default"}, translate_fliplr);
  t.add({"flipud.default"}, translate_flipud);
  t.add({"roll.default"}, translate_roll);
  t.add({"rot90.default"}, translate_rot90);
  t.add({"constant_pad_nd.default"}, translate_constant_pad);
  t.add({"pad.default"}, translate_pad);
  t.add({"_pad_circular.default"}, translate_mode_pad<&kWrap>);
  t.add({"reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default"},
        translate_mode_pad<&kReflect>);
  t.add({"replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default"},
        translate_mode_pad<&kEdge>);
  t.add({"reflection_pad1d_backward.default", "reflection_pad2d_backward.default", "reflection_pad3d_backward.default"},
        translate_pad_backward<true>);
  t.add({"replication_pad1d_backward.default", "replication_pad2d_backward.default",
         "replication_pad3d_backward.default"},
        translate_pad_backward<false>);
  t.add({"meshgrid.default", "meshgrid.indexing"}, translate_meshgrid);
  t.add({"one_hot.default"}, translate_one_hot);
}

} // namespace tessera::fx
