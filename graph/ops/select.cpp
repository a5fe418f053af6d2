// Results whose size is data: NonZero, Unique, Compress, NonMaxSuppression.
#include "graph/ops/parts.h"
#include <cmath>
#include <numeric>

namespace tessera {

namespace {
using namespace ops;

SymExpr fresh(InferContext& c, std::string_view name, const SymExpr& most) {
  int64_t high = c.env().range(most).hi;
  return c.env().create_symbol(name, {0, std::clamp<int64_t>(high, 0, kSymMax)});
}

// ---- NonZero
OpDef nonzero_record() {
  OpDef def;
  def.name = "nonzero";
  def.summary = "indices of elements that are not zero, one column each";
  def.onnx = {{"NonZero", "", 9}};
  def.aten = {"nonzero"};
  def.operands = {{"X", TypeSet::NumericOrBool}};
  def.infer = [](InferContext& c) -> Status {
    SymExpr most = c.type(0).count();
    return set_result(c, DType::I64, {c.type(0).rank(), fresh(c, "nonzero", most)});
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    auto found = [&](int64_t i) { return is_float(x.dtype()) ? x.get_f64(i) != 0 : x.get_i64(i) != 0; };
    int64_t n = 0;
    for (int64_t i = 0; i < x.count(); ++i) n += found(i);
    Dims strides = strides_of(x.dims());
    TESSERA_ASSIGN(Tensor out, Tensor::create(DType::I64, {static_cast<int64_t>(strides.size()), n}));
    for (int64_t i = 0, column = 0; column < n; ++i) {
      if (!found(i)) continue;
      int64_t rest = i;
      for (size_t k = 0; k < strides.size(); ++k) {
        out.set_i64(static_cast<int64_t>(k) * n + column, rest / strides[k]);
        rest %= strides[k];
      }
      ++column;
    }
    c.results = {out};
    return {};
  };
  def.data_dependent_shape = true;
  def.samples = [] {
    return std::vector<Sample>{sample({random(DType::I32, {3, 4}, 1, -1, 1)}), sample({random(DType::Bool, {5}, 2)}),
                               sample({floats({2, 2}, {0, 1, -0.0, NAN})}), sample({random(DType::F32, {0, 2}, 1)})};
  };
  def.error_samples = [] { return std::vector<ErrorSample>{wrong({}, {}, ErrorCode::MalformedModel, "operand")}; };
  return def;
}

// ---- Compress
OpDef compress_record() {
  OpDef def;
  def.name = "compress";
  def.summary = "slices along an axis (elements without one) where a condition holds";
  def.onnx = {{"Compress", "", 9}};
  def.operands = {{"input", TypeSet::Any}, {"condition", TypeSet::Bool}};
  def.attributes = {{"axis", AttrKind::Int}};
  def.infer = [](InferContext& c) -> Status {
    if (c.type(1).rank() != 1)
      return c.error(ErrorCode::ShapeMismatch, "the condition of Compress must be a vector, not " + str(c.shape(1)));
    if (!c.node.attributes.has("axis")) return set_result(c, c.type(0).dtype, {fresh(c, "compress", c.shape(1)[0])});
    TESSERA_ASSIGN(int64_t axis, c.axis(c.node.attributes.i("axis"), c.type(0).rank()));
    SymShape shape = c.shape(0);
    shape[static_cast<size_t>(axis)] = fresh(c, "compress", c.shape(1)[0]);
    return set_result(c, c.type(0).dtype, std::move(shape));
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    Dims dims = x.dims();
    size_t axis = 0;
    if (c.node.attributes.has("axis")) {
      int64_t a = c.node.attributes.i("axis");
      axis = static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(dims.size()) : a);
    } else {
      dims = {x.count()};
    }
    std::vector<int64_t> keep;
    for (int64_t i = 0; i < c.operands[1].count(); ++i) {
      if (c.operands[1].get_i64(i) == 0) continue;
      if (i >= dims[axis])
        return c.error(ErrorCode::BadInput, "the condition of Compress selects element " + std::to_string(i) + " of " +
                                                std::to_string(dims[axis]));
      keep.push_back(i);
    }
    Dims strides = strides_of(dims);
    dims[axis] = static_cast<int64_t>(keep.size());
    TESSERA_ASSIGN(Tensor out, take_at(x, dims, [&](const Dims& at) {
                     Dims from = at;
                     from[axis] = keep[static_cast<size_t>(at[axis])];
                     return offset(from, strides);
                   }));
    c.results = {out};
    return {};
  };
  def.data_dependent_shape = true;
  def.samples = [] {
    Tensor x = random(DType::F32, {3, 4}, 1);
    return std::vector<Sample>{sample({x, integers(DType::Bool, {3}, {0, 1, 1})}, {{"axis", int64_t{0}}}),
                               sample({x, integers(DType::Bool, {3}, {0, 1, 1})}, {{"axis", int64_t{-1}}}),
                               sample({x, integers(DType::Bool, {5}, {0, 1, 0, 0, 1})})};
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {3, 4}, 1);
    return std::vector<ErrorSample>{
        wrong({x, integers(DType::Bool, {1, 2}, {0, 1})}, {}, ErrorCode::ShapeMismatch, "vector"),
        wrong({x, integers(DType::Bool, {2}, {0, 1})}, {{"axis", int64_t{2}}}, ErrorCode::BadAttribute, "axis")};
  };
  return def;
}

// ---- Unique
Status infer_unique(InferContext& c) {
  SymShape shape;
  SymExpr n;
  SymExpr all = c.type(0).count();
  if (c.node.attributes.has("axis")) {
    TESSERA_ASSIGN(int64_t axis, c.axis(c.node.attributes.i("axis"), c.type(0).rank()));
    shape = c.shape(0);
    all = shape[static_cast<size_t>(axis)];
    n = shape[static_cast<size_t>(axis)] = fresh(c, "unique", all);
  } else {
    n = fresh(c, "unique", all);
    shape = {n};
  }
  TESSERA_TRY(set_result(c, c.type(0).dtype, shape));
  for (int i = 1; i < c.result_count; ++i) TESSERA_TRY(set_result(c, DType::I64, {i == 2 ? all : n}, i));
  return {};
}

Status reference_unique(ReferenceContext& c) {
  Tensor x = c.operands[0];
  size_t axis = 0;
  if (c.node.attributes.has("axis")) {
    int64_t a = c.node.attributes.i("axis");
    axis = static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(x.dims().size()) : a);
  } else {
    x = x.reshaped({x.count()});
  }
  // Slices along the axis are compared element by element, in row-major order of the rest.
  Dims dims = x.dims(), strides = strides_of(dims), rest = dims;
  int64_t size = dims[axis], stride = strides[axis];
  rest[axis] = 1;
  std::vector<int64_t> base;
  for (Walk w(rest); !w.done(); w.next()) base.push_back(offset(w.at(), strides));
  auto compare = [&](int64_t p, int64_t q) {
    int r = 0;
    by_kind(x.dtype(), [&](auto zero) {
      using V = decltype(zero);
      for (size_t k = 0; k < base.size() && r == 0; ++k) {
        V a = get<V>(x, base[k] + p * stride), b = get<V>(x, base[k] + q * stride);
        r = a < b ? -1 : b < a ? 1 : 0;
      }
    });
    return r;
  };
  std::vector<int64_t> order(static_cast<size_t>(size)), first, inverse(order.size()), counts;
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) { return compare(p, q) < 0; });
  std::vector<int64_t> group(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || compare(order[i - 1], order[i]) != 0) {
      first.push_back(order[i]);
      counts.push_back(0);
    }
    ++counts.back();
    group[static_cast<size_t>(order[i])] = static_cast<int64_t>(first.size()) - 1;
  }
  if (c.node.attributes.i("sorted", 1) == 0) { // in order of first appearance
    std::vector<size_t> by_first(first.size()), position(first.size());
    std::iota(by_first.begin(), by_first.end(), size_t{0});
    std::sort(by_first.begin(), by_first.end(), [&](size_t p, size_t q) { return first[p] < first[q]; });
    std::vector<int64_t> f, n;
    for (size_t i = 0; i < by_first.size(); ++i) {
      position[by_first[i]] = i;
      f.push_back(first[by_first[i]]);
      n.push_back(counts[by_first[i]]);
    }
    first = f;
    counts = n;
    for (int64_t& g : group) g = static_cast<int64_t>(position[static_cast<size_t>(g)]);
  }
  Dims out_dims = dims;
  out_dims[axis] = static_cast<int64_t>(first.size());
  TESSERA_ASSIGN(Tensor values, take_at(x, out_dims, [&](const Dims& at) {
                   Dims from = at;
                   from[axis] = first[static_cast<size_t>(at[axis])];
                   return offset(from, strides);
                 }));
  Dims n = {static_cast<int64_t>(first.size())};
  TESSERA_ASSIGN(Tensor indices, from_i64(DType::I64, n, first));
  TESSERA_ASSIGN(Tensor inverse_indices, from_i64(DType::I64, {size}, group));
  TESSERA_ASSIGN(Tensor count_tensor, from_i64(DType::I64, n, counts));
  c.results = {values, indices, inverse_indices, count_tensor};
  return {};
}

OpDef unique_record() {
  OpDef def;
  def.name = "unique";
  def.summary = "distinct elements or slices, where they first stand, which each is, and how often";
  def.onnx = {{"Unique", "", 11}};
  def.operands = {{"X", TypeSet::NumericOrBool}};
  def.attributes = {{"axis", AttrKind::Int}, {"sorted", AttrKind::Int, false, int64_t{1}}};
  def.max_results = 4;
  def.infer = infer_unique;
  def.meaning = StructuredOp{};
  def.reference = reference_unique;
  def.data_dependent_shape = true;
  def.samples = [] {
    std::vector<Sample> out = {sample({random(DType::I32, {3, 4}, 1, 0, 3)}), sample({random(DType::F32, {7}, 1)}),
                               sample({random(DType::I64, {4, 2}, 1, 0, 1)}, {{"axis", int64_t{0}}}),
                               sample({random(DType::U8, {9}, 1, 0, 4)}, {{"sorted", int64_t{0}}})};
    for (Sample& s : out) s.result_count = 4;
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {3})}, {{"axis", int64_t{1}}}, ErrorCode::BadAttribute, "axis")};
  };
  return def;
}

// ---- NonMaxSuppression
struct Box {
  double y0, x0, y1, x1;
  [[nodiscard]] double area() const { return (y1 - y0) * (x1 - x0); }
};

Box box_at(const Tensor& boxes, int64_t i, bool centre) {
  double a = boxes.get_f64(i * 4), b = boxes.get_f64(i * 4 + 1), p = boxes.get_f64(i * 4 + 2),
         q = boxes.get_f64(i * 4 + 3);
  if (centre) return {b - q / 2, a - p / 2, b + q / 2, a + p / 2}; // x, y, width, height
  return {std::min(a, p), std::min(b, q), std::max(a, p), std::max(b, q)};
}

double overlap(const Box& a, const Box& b) {
  double h = std::min(a.y1, b.y1) - std::max(a.y0, b.y0), w = std::min(a.x1, b.x1) - std::max(a.x0, b.x0);
  if (h <= 0 || w <= 0) return 0;
  return h * w / (a.area() + b.area() - h * w);
}

Status reference_nms(ReferenceContext& c) {
  const Tensor &boxes = c.operands[0], &scores = c.operands[1];
  for (size_t i = 2; i < 5; ++i)
    if (given(c, i) && c.operands[i].count() != 1)
      return c.error(ErrorCode::BadInput, "limits of NonMaxSuppression must be one number each");
  int64_t most = given(c, 2) ? c.operands[2].get_i64(0) : 0;
  double iou = given(c, 3) ? c.operands[3].get_f64(0) : 0;
  bool limited = given(c, 4);
  double least = limited ? c.operands[4].get_f64(0) : 0;
  bool centre = c.node.attributes.i("center_point_box") != 0;
  int64_t batches = boxes.dims()[0], count = boxes.dims()[1], classes = scores.dims()[1];
  std::vector<int64_t> out;
  std::vector<int64_t> order;
  for (int64_t n = 0; n < batches; ++n)
    for (int64_t k = 0; k < classes; ++k) {
      int64_t row = (n * classes + k) * count;
      order.clear();
      for (int64_t i = 0; i < count; ++i)
        if (!limited || scores.get_f64(row + i) > least) order.push_back(i);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t p, int64_t q) { return scores.get_f64(row + p) > scores.get_f64(row + q); });
      std::vector<Box> kept;
      for (int64_t i : order) {
        if (static_cast<int64_t>(kept.size()) >= most) break;
        Box box = box_at(boxes, n * count + i, centre);
        if (std::any_of(kept.begin(), kept.end(), [&](const Box& k) { return overlap(k, box) > iou; })) continue;
        kept.push_back(box);
        out.insert(out.end(), {n, k, i});
      }
    }
  TESSERA_ASSIGN(Tensor selected, from_i64(DType::I64, {static_cast<int64_t>(out.size() / 3), 3}, out));
  c.results = {selected};
  return {};
}

OpDef nms_record() {
  OpDef def;
  def.name = "non_max_suppression";
  def.summary = "boxes that no better box of their class overlaps, as (batch, class, box)";
  def.onnx = {{"NonMaxSuppression", "", 10}};
  def.operands = {{"boxes", TypeSet::Float},
                  {"scores", TypeSet::Float},
                  {"max_output_boxes_per_class", TypeSet::Index, true},
                  {"iou_threshold", TypeSet::Float, true},
                  {"score_threshold", TypeSet::Float, true}};
  def.attributes = {{"center_point_box", AttrKind::Int, false, int64_t{0}}};
  def.infer = [](InferContext& c) -> Status {
    const SymShape b = c.shape(0), s = c.shape(1);
    if (b.size() != 3 || s.size() != 3)
      return c.error(ErrorCode::ShapeMismatch,
                     "NonMaxSuppression takes boxes [N, B, 4] and scores [N, C, B], not " + str(b) + " and " + str(s));
    TESSERA_TRY(c.env().require_equal(b[2], 4, "coordinates of a box", c.node.location));
    TESSERA_TRY(c.env().require_equal(b[0], s[0], "batches of boxes and scores", c.node.location));
    TESSERA_TRY(c.env().require_equal(b[1], s[2], "boxes and scores", c.node.location));
    return set_result(c, DType::I64, {fresh(c, "boxes", product(s)), 3});
  };
  def.meaning = StructuredOp{};
  def.reference = reference_nms;
  def.data_dependent_shape = true;
  def.samples = [] {
    Tensor boxes = random(DType::F32, {2, 6, 4}, 1, 0, 1), scores = random(DType::F32, {2, 3, 6}, 2, 0, 1);
    return std::vector<Sample>{
        sample({boxes, scores}), sample({boxes, scores, vec({3}), scalar(DType::F32, 0.3), scalar(DType::F32, 0.2)}),
        sample({boxes, scores, scalar(DType::I64, 2), floats({1}, {0.5})}, {{"center_point_box", int64_t{1}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 6, 3}), random(DType::F32, {2, 3, 6})}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({random(DType::F32, {6, 4}), random(DType::F32, {2, 3, 6})}, {}, ErrorCode::ShapeMismatch, "boxes")};
  };
  return def;
}

} // namespace

void register_select_ops(OpTable& table) {
  table.add(nonzero_record());
  table.add(compress_record());
  table.add(unique_record());
  table.add(nms_record());
}

} // namespace tessera
