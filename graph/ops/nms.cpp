// NonMaxSuppression, and `suppress`, which drops boxes that an earlier one overlaps.
#include "graph/ops/chosen.h"
#include <numeric>

namespace tessera {

namespace {
using namespace ops;

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

// ---- suppress
Status reference_suppress(ReferenceContext& c) {
  const Tensor &corners = c.operands[0], &wanted = c.operands[1];
  const int64_t rows = corners.dims()[1], count = corners.dims()[2], all = rows * count,
                most = c.operands[2].get_i64(0);
  const double iou = c.operands[3].get_f64(0);
  TESSERA_ASSIGN(Tensor keep, Tensor::create(DType::Bool, wanted.dims()));
  std::vector<Box> kept;
  for (int64_t i = 0; i < all; ++i) {
    if (i % count == 0) kept.clear();
    auto at = [&](int64_t corner) { return corners.get_f64(corner * all + i); };
    const Box box = {at(0), at(1), at(2), at(3)};
    const bool good = wanted.get_i64(i) != 0 && static_cast<int64_t>(kept.size()) < most &&
                      std::none_of(kept.begin(), kept.end(), [&](const Box& k) { return overlap(k, box) > iou; });
    if (good) kept.push_back(box);
    keep.set_i64(i, good ? 1 : 0);
  }
  c.results = {keep};
  return {};
}

OpDef suppress_record() {
  OpDef def;
  def.name = "suppress";
  def.summary = "the first `most` wanted boxes of each row [rows, boxes] that overlap no kept one by more than `iou`; "
                "corners [4, rows, boxes] are y0, x0, y1, x1";
  def.operands = {
      {"corners", TypeSet::Float}, {"wanted", TypeSet::Bool}, {"most", TypeSet::Index}, {"iou", TypeSet::SameAsFirst}};
  def.infer = [](InferContext& c) -> Status {
    const SymShape corners = c.shape(0), wanted = c.shape(1);
    if (corners.size() != 3 || wanted.size() != 2 || c.type(2).rank() != 0 || c.type(3).rank() != 0)
      return c.error(ErrorCode::ShapeMismatch, "suppress takes corners [4, rows, boxes], wanted [rows, boxes], and two "
                                               "numbers, not " +
                                                   str(corners) + " and " + str(wanted));
    TESSERA_TRY(c.env().require_equal(corners[0], 4, "corners of boxes", c.node.location));
    for (size_t d = 0; d < 2; ++d)
      TESSERA_TRY(c.env().require_equal(corners[d + 1], wanted[d], "boxes and those wanted", c.node.location));
    return set_result(c, DType::Bool, wanted);
  };
  def.meaning = StructuredOp{Structured::Suppress};
  def.reference = reference_suppress;
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F64, DType::F16}) {
      const Tensor low = random(d, {2, 3, 50}, 1, 0, 1), size = random(d, {2, 3, 50}, 2, 0, 0.5);
      Tensor corners = Tensor::create(d, {4, 3, 50}).value();
      for (int64_t i = 0; i < 300; ++i) {
        corners.set_f64(i, low.get_f64(i));
        corners.set_f64(300 + i, low.get_f64(i) + size.get_f64(i));
      }
      for (int64_t most : {4, 50})
        out.push_back(sample(
            {corners, random(DType::Bool, {3, 50}, 3), scalar(DType::I64, static_cast<double>(most)), scalar(d, 0.3)}));
    }
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong(
        {random(DType::F32, {3, 1, 2}), random(DType::Bool, {1, 2}), scalar(DType::I64, 1), scalar(DType::F32, 0.5)},
        {}, ErrorCode::ShapeMismatch, "corners")};
  };
  return def;
}

// ---- the decomposition: boxes in the order of their scores, suppressed by row, and the places of those that are left
Result<std::vector<ValueId>> decompose_nms(Graph& g, const Node& n, int) {
  B b(g, n);
  const ValueId boxes = widen(b, b.in(0)), scores = sortable(b, b.in(1));
  const SymShape shape = b.shape(scores); // [n, classes, boxes]
  const SymExpr rows = shape[0] * shape[1], all = rows * shape[2];
  const DType dtype = b.dtype(boxes);
  auto number = [&](int operand, DType to) {
    return b.has(operand) ? cast(b, reshape(b, b.in(operand), {}), to) : b.scalar(to, 0);
  };
  const ValueId order = b.op("sort_indices", {scores}, {{"k", SymShape{shape[2]}}, {"descending", int64_t{1}}});
  ValueId wanted = expand(b, b.scalar(DType::Bool, 1), shape);
  if (b.has(4))
    wanted = gt(b, b.op("gather_elements", {scores, order}, {{"axis", int64_t{2}}}), number(4, b.dtype(scores)));

  std::vector<ValueId> given, corners;
  for (int64_t k = 0; k < 4; ++k) given.push_back(reshape(b, slice(b, boxes, 2, k, 1), {shape[0], 1, shape[2]}));
  if (b.attr().i("center_point_box") != 0) { // x, y, width, height
    for (const bool high : {false, true})
      for (const size_t k : {1, 0}) {
        const ValueId half = div(b, given[k + 2], 2.0);
        corners.push_back(high ? add(b, given[k], half) : sub(b, given[k], half));
      }
  } else {
    for (const bool high : {false, true})
      for (const size_t k : {0, 1})
        corners.push_back(high ? max(b, given[k], given[k + 2]) : min(b, given[k], given[k + 2]));
  }
  for (ValueId& corner : corners) {
    corner = b.op("gather_elements", {expand(b, corner, shape), order}, {{"axis", int64_t{2}}});
    corner = reshape(b, corner, {1, rows, shape[2]});
  }
  const ValueId keep = b.op("suppress", {concat(b, corners, 0), reshape(b, wanted, {rows, shape[2]}),
                                         number(2, DType::I64), number(3, dtype)});
  const ValueId flags = reshape(b, keep, {all});
  const SymExpr found = read_count(b, flags, size_of_result(b, {0}, 0));
  if (!b.ok()) return b.failed();
  const ValueId at = positions(b, flags, found), row = div(b, at, b.size(shape[2], DType::I64));
  const ValueId classes = b.size(shape[1], DType::I64);
  const std::vector<ValueId> columns = {div(b, row, classes), b.op2("mod", row, classes),
                                        gather(b, reshape(b, order, {all}), at, 0)};
  std::vector<ValueId> out;
  for (ValueId v : columns) out.push_back(unsqueeze(b, v, {1}));
  return b.done(concat(b, out, 1));
}

// ---- NonMaxSuppression
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
  def.meaning = Decomposition{decompose_nms};
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

void register_nms_ops(OpTable& table) {
  table.add(suppress_record());
  table.add(nms_record());
}

} // namespace tessera
