// Normalizations, and Dropout as inference sees it. Statistics are taken in f32 (f64 for f64) of
// centred values.
#include "graph/ops/build.h"
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

struct Statistics {
  ValueId mean, centred, inverse;
};
// mean, x - mean, 1 / sqrt(variance + epsilon) over axes, dimensions kept.
Statistics statistics(B& b, ValueId x, const Ints& axes, double epsilon) {
  Statistics s;
  s.mean = ops::mean(b, x, axes, true);
  s.centred = sub(b, x, s.mean);
  s.inverse = rsqrt(b, add(b, ops::mean(b, mul(b, s.centred, s.centred), axes, true), epsilon));
  return s;
}

// The dtype that attribute stash_type names.
DType stash_type(B& b) {
  int64_t code = b.attr().i("stash_type", 1);
  auto d = dtype_from_onnx(static_cast<int>(code));
  if (!d || !is_float(*d))
    b.fail(ErrorCode::BadAttribute, "stash_type " + std::to_string(code) + " is no floating-point type");
  return d.value_or(DType::F32);
}
// The dtype in which statistics are computed: at least the stash type, never less than the operand.
DType wide_type(DType stash, DType operand) {
  return stash == DType::F64 || operand == DType::F64 ? DType::F64 : compute_dtype(stash);
}
Ints trailing(int64_t axis, int rank) {
  Ints axes;
  for (int64_t a = axis; a < rank; ++a) axes.push_back(a);
  return axes;
}
// A vector over the channels (dimension 1) of a tensor of `rank` dimensions.
ValueId per_channel(B& b, ValueId v, const SymExpr& channels, int rank) {
  SymShape shape(static_cast<size_t>(rank), SymExpr(1));
  if (b.rank(v) != 1) b.fail(ErrorCode::ShapeMismatch, "one number for each channel is needed, not " + b.type(v).str());
  if (b.ok()) b.check(b.env().require_equal(b.dim(v, 0), channels, "one number for each channel", b.node().location));
  if (!b.ok()) return {};
  shape[1] = b.dim(v, 0);
  return reshape(b, v, shape);
}

// ---- plain: groups of consecutive elements (count rows of n), normalized
struct Moments {
  double mean, variance;
};
Moments moments(const Tensor& x, const std::vector<int64_t>& members) {
  double mean = 0, variance = 0;
  for (int64_t i : members) mean += x.get_f64(i) / static_cast<double>(members.size());
  for (int64_t i : members) variance += std::pow(x.get_f64(i) - mean, 2) / static_cast<double>(members.size());
  return {mean, variance};
}
std::vector<int64_t> row(int64_t r, int64_t n) {
  std::vector<int64_t> m(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) m[static_cast<size_t>(i)] = r * n + i;
  return m;
}

// ---- LayerNormalization, RMSNormalization: over the dimensions from `axis` on
OpDef layer_norm() {
  OpDef def =
      composite("LayerNormalization", "x centred and scaled to variance 1 over trailing dimensions, scaled and shifted",
                {{"x", TypeSet::Float}, {"scale", TypeSet::SameAsFirst}, {"bias", TypeSet::SameAsFirst, true}},
                [](Graph& g, const Node& n, int results) {
                  B b(g, n);
                  ValueId x = b.in(0);
                  int rank = b.rank(x);
                  int64_t axis = b.axis(b.attr().i("axis", -1), rank);
                  DType stash = stash_type(b);
                  if (!b.ok()) return b.failed();
                  DType wide = wide_type(stash, b.dtype(x));
                  Statistics s = statistics(b, cast(b, x, wide), trailing(axis, rank), b.attr().f("epsilon", 1e-5));
                  ValueId y = mul(b, mul(b, s.centred, s.inverse), cast(b, b.in(1), wide));
                  if (b.has(2)) y = add(b, y, cast(b, b.in(2), wide));
                  if (b.ok() && b.rank(y) != rank)
                    b.fail(ErrorCode::ShapeMismatch, "scale or bias does not broadcast to " + b.type(x).str());
                  std::vector<ValueId> out = {cast(b, y, b.dtype(x))};
                  if (results > 1) out.push_back(cast(b, s.mean, stash));
                  if (results > 2) out.push_back(cast(b, s.inverse, stash));
                  return b.done(out);
                });
  def.aten = {"native_layer_norm"};
  def.attributes = {integer("axis", -1), number("epsilon", 1e-5), integer("stash_type", 1)};
  def.max_results = 3;
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor &x = c.operands[0], &scale = c.operands[1];
    int64_t axis = c.node.attributes.i("axis", -1), n = 1, rows = 1;
    auto rank = static_cast<int64_t>(x.dims().size());
    if (axis < 0) axis += rank;
    Dims stat_dims = x.dims();
    for (int64_t a = 0; a < rank; ++a) {
      (a < axis ? rows : n) *= x.dims()[static_cast<size_t>(a)];
      if (a >= axis) stat_dims[static_cast<size_t>(a)] = 1;
    }
    TESSERA_ASSIGN(Tensor y, Tensor::create(x.dtype(), x.dims()));
    TESSERA_ASSIGN(Tensor mean, Tensor::create(DType::F32, stat_dims));
    TESSERA_ASSIGN(Tensor inverse, Tensor::create(DType::F32, stat_dims));
    Dims ss = broadcast_strides(scale.dims(), x.dims()), sb;
    bool biased = c.operands.size() > 2 && c.operands[2].defined();
    if (biased) sb = broadcast_strides(c.operands[2].dims(), x.dims());
    MultiIndex w(x.dims());
    for (int64_t r = 0; r < rows && n > 0; ++r) {
      Moments m = moments(x, row(r, n));
      double inv = 1 / std::sqrt(m.variance + c.node.attributes.f("epsilon", 1e-5));
      mean.set_f64(r, m.mean);
      inverse.set_f64(r, inv);
      for (int64_t i = 0; i < n; ++i, w.next()) {
        double v = (x.get_f64(w.i()) - m.mean) * inv * scale.get_f64(offset(w.at(), ss));
        if (biased) v += c.operands[2].get_f64(offset(w.at(), sb));
        y.set_f64(w.i(), v);
      }
    }
    c.results = {y, mean, inverse};
    c.results.resize(static_cast<size_t>(c.result_count));
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : kFloats) {
      Tensor x = random(d, {2, 3, 8}, 1);
      out.push_back(sample({x, random(d, {8}, 2), random(d, {8}, 3)}, {}, 17));
      out.push_back(sample({x, random(d, {3, 8}, 2)}, {{"axis", int64_t{1}}, {"epsilon", 0.1}}, 17));
      out.push_back(sample({x, random(d, {8}, 2), random(d, {8}, 3)}, {}, 17));
      out.back().result_count = 3;
      out.push_back(sample({random(d, {5, 1}, 1), random(d, {1}, 2)}, {}, 17));
      out.push_back(sample({random(d, {0, 4}, 1), random(d, {4}, 2)}, {}, 17));
    }
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 3});
    return std::vector<ErrorSample>{
        wrong({x, random(DType::F32, {4})}, {}, ErrorCode::ShapeMismatch, "broadcast", 17),
        wrong({x, random(DType::F32, {3})}, {{"axis", int64_t{2}}}, ErrorCode::BadAttribute, "axis", 17),
        wrong({x, random(DType::F32, {3})}, {{"stash_type", int64_t{7}}}, ErrorCode::BadAttribute, "stash_type 7", 17)};
  };
  return def;
}

OpDef rms_norm() {
  OpDef def =
      composite("RMSNormalization", "x divided by its root mean square over trailing dimensions, scaled",
                {{"x", TypeSet::Float}, {"scale", TypeSet::Float}}, [](Graph& g, const Node& n, int) {
                  B b(g, n);
                  ValueId x = b.in(0);
                  int rank = b.rank(x);
                  int64_t axis = b.axis(b.attr().i("axis", -1), rank);
                  DType wide = wide_type(stash_type(b), b.dtype(x));
                  if (!b.ok()) return b.failed();
                  ValueId v = cast(b, x, wide);
                  ValueId inverse =
                      rsqrt(b, add(b, mean(b, mul(b, v, v), trailing(axis, rank), true), b.attr().f("epsilon", 1e-5)));
                  ValueId y = mul(b, mul(b, v, inverse), cast(b, b.in(1), wide));
                  if (b.ok() && b.rank(y) != rank)
                    b.fail(ErrorCode::ShapeMismatch, "scale does not broadcast to " + b.type(x).str());
                  return b.done(cast(b, y, b.dtype(b.in(1))));
                });
  def.aten = {"rms_norm"};
  def.attributes = {integer("axis", -1), number("epsilon", 1e-5), integer("stash_type", 1)};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor &x = c.operands[0], &scale = c.operands[1];
    int64_t axis = c.node.attributes.i("axis", -1), n = 1;
    auto rank = static_cast<int64_t>(x.dims().size());
    if (axis < 0) axis += rank;
    for (int64_t a = axis; a < rank; ++a) n *= x.dims()[static_cast<size_t>(a)];
    TESSERA_ASSIGN(Tensor y, Tensor::create(scale.dtype(), x.dims()));
    Dims ss = broadcast_strides(scale.dims(), x.dims());
    for (MultiIndex w(x.dims()); !w.done();) {
      double squares = 0;
      for (int64_t i = 0; i < n; ++i) squares += std::pow(x.get_f64(w.i() + i), 2);
      double rms = std::sqrt(squares / static_cast<double>(n) + c.node.attributes.f("epsilon", 1e-5));
      for (int64_t i = 0; i < n; ++i, w.next())
        y.set_f64(w.i(), x.get_f64(w.i()) / rms * scale.get_f64(offset(w.at(), ss)));
    }
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : kFloats) {
      Tensor x = random(d, {2, 3, 8}, 1);
      out.push_back(sample({x, random(d, {8}, 2)}, {}, 23));
      out.push_back(sample({x, random(d, {3, 8}, 2)}, {{"axis", int64_t{-2}}, {"epsilon", 0.1}}, 23));
      out.push_back(sample({random(d, {7, 1}, 1), random(d, {1}, 2)}, {}, 23));
    }
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 3});
    return std::vector<ErrorSample>{
        wrong({x, random(DType::F32, {2})}, {}, ErrorCode::ShapeMismatch, "broadcast", 23),
        wrong({x, random(DType::F32, {4, 2, 3})}, {}, ErrorCode::ShapeMismatch, "broadcast", 23)};
  };
  return def;
}

// ---- InstanceNormalization, GroupNormalization: over each instance's channel, or group of channels
OpDef instance_norm() {
  OpDef def = composite("InstanceNormalization", "each channel of each instance normalized, scaled and shifted",
                        {{"x", TypeSet::Float}, {"scale", TypeSet::SameAsFirst}, {"bias", TypeSet::SameAsFirst}},
                        [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          ValueId x = b.in(0);
                          int rank = b.rank(x);
                          if (rank < 3)
                            b.fail(ErrorCode::ShapeMismatch,
                                   "dimensions besides batch and channels are needed, not " + b.type(x).str());
                          if (!b.ok()) return b.failed();
                          ValueId wide = widen(b, x);
                          Statistics s = statistics(b, wide, trailing(2, rank), b.attr().f("epsilon", 1e-5));
                          ValueId scale = widen(b, per_channel(b, b.in(1), b.dim(x, 1), rank));
                          ValueId bias = widen(b, per_channel(b, b.in(2), b.dim(x, 1), rank));
                          return b.done(cast(b, add(b, mul(b, mul(b, s.centred, s.inverse), scale), bias), b.dtype(x)));
                        });
  def.aten = {"instance_norm"};
  def.attributes = {number("epsilon", 1e-5)};
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : kFloats)
      for (const Dims& dims : {Dims{2, 3, 4, 5}, Dims{1, 3, 7}})
        out.push_back(sample({random(d, dims, 1), random(d, {3}, 2), random(d, {3}, 3)}, {{"epsilon", 0.01}}, 6));
    return out;
  };
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    int64_t channels = x.dims()[1], n = 1;
    for (size_t k = 2; k < x.dims().size(); ++k) n *= x.dims()[k];
    TESSERA_ASSIGN(Tensor y, Tensor::create(x.dtype(), x.dims()));
    for (int64_t r = 0; r < x.dims()[0] * channels && n > 0; ++r) {
      std::vector<int64_t> members = row(r, n);
      Moments m = moments(x, members);
      for (int64_t i : members)
        y.set_f64(i, (x.get_f64(i) - m.mean) / std::sqrt(m.variance + c.node.attributes.f("epsilon", 1e-5)) *
                             c.operands[1].get_f64(r % channels) +
                         c.operands[2].get_f64(r % channels));
    }
    c.results = {y};
    return {};
  };
  def.error_samples = [] {
    Tensor v = random(DType::F32, {3});
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 3}), v, v}, {}, ErrorCode::ShapeMismatch, "besides batch", 6),
        wrong({random(DType::F32, {2, 4, 5}), v, v}, {}, ErrorCode::ShapeMismatch, "channel", 6)};
  };
  return def;
}

OpDef group_norm() {
  OpDef def =
      composite("GroupNormalization", "groups of channels of each instance normalized, scaled and shifted",
                {{"x", TypeSet::Float}, {"scale", TypeSet::SameAsFirst}, {"bias", TypeSet::SameAsFirst}},
                [](Graph& g, const Node& n, int) {
                  B b(g, n);
                  ValueId x = b.in(0);
                  SymShape shape = b.shape(x);
                  int64_t groups = b.attr().i("num_groups");
                  if (shape.size() < 2)
                    b.fail(ErrorCode::ShapeMismatch, "batch and channels are needed, not " + b.type(x).str());
                  if (groups < 1)
                    b.fail(ErrorCode::BadAttribute, "num_groups " + std::to_string(groups) + " is not positive");
                  if (!b.ok()) return b.failed();
                  if (shape[1].is_const() && shape[1].const_value() % groups != 0)
                    b.fail(ErrorCode::ShapeMismatch,
                           shape[1].str() + " channels are no multiple of " + std::to_string(groups) + " groups");
                  else
                    b.check(b.env().require(sym_eq(mod(shape[1], groups), 0), GuardClass::Required,
                                            "groups divide the channels", n.location));
                  SymExpr each = b.env().simplify(floordiv(shape[1], groups));
                  SymShape split = {shape[0], groups, each};
                  split.insert(split.end(), shape.begin() + 2, shape.end());
                  int rank = static_cast<int>(split.size());
                  ValueId wide = reshape(b, cast(b, x, wide_type(stash_type(b), b.dtype(x))), split);
                  Statistics s = statistics(b, wide, trailing(2, rank), b.attr().f("epsilon", 1e-5));
                  // One number a group before opset 21, one a channel since.
                  bool per_group = b.opset() != 0 && b.opset() < 21;
                  SymExpr count = per_group ? SymExpr(groups) : shape[1];
                  auto spread = [&](ValueId v) {
                    if (b.rank(v) != 1)
                      b.fail(ErrorCode::ShapeMismatch, "scale and bias are vectors, not " + b.type(v).str());
                    b.check(b.env().require_equal(b.dim(v, 0), count, "one number for each channel", n.location));
                    SymShape to(static_cast<size_t>(rank), SymExpr(1));
                    to[1] = groups;
                    if (!per_group) to[2] = each;
                    return b.ok() ? reshape(b, cast(b, v, b.dtype(wide)), to) : ValueId{};
                  };
                  ValueId scale = spread(b.in(1)), bias = spread(b.in(2));
                  ValueId y = add(b, mul(b, mul(b, s.centred, s.inverse), scale), bias);
                  return b.done(cast(b, reshape(b, y, shape), b.dtype(x)));
                });
  def.aten = {"group_norm"};
  def.attributes = {{"num_groups", AttrKind::Int, true}, number("epsilon", 1e-5), integer("stash_type", 1)};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    int64_t groups = c.node.attributes.i("num_groups"), channels = x.dims()[1], area = 1;
    bool per_group = c.node.opset != 0 && c.node.opset < 21;
    for (size_t k = 2; k < x.dims().size(); ++k) area *= x.dims()[k];
    int64_t n = channels / groups * area;
    TESSERA_ASSIGN(Tensor y, Tensor::create(x.dtype(), x.dims()));
    for (int64_t r = 0; r < x.dims()[0] * groups && n > 0; ++r) {
      std::vector<int64_t> members = row(r, n);
      Moments m = moments(x, members);
      for (int64_t i : members) {
        int64_t p = per_group ? r % groups : i / area % channels;
        double v = (x.get_f64(i) - m.mean) / std::sqrt(m.variance + c.node.attributes.f("epsilon", 1e-5));
        y.set_f64(i, v * c.operands[1].get_f64(p) + c.operands[2].get_f64(p));
      }
    }
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : kFloats) {
      Tensor x = random(d, {2, 6, 3, 2}, 1);
      out.push_back(sample({x, random(d, {6}, 2), random(d, {6}, 3)}, {{"num_groups", int64_t{3}}}, 21));
      out.push_back(sample({x, random(d, {2}, 2), random(d, {2}, 3)}, {{"num_groups", int64_t{2}}}, 18));
    }
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 6, 3}), v = random(DType::F32, {6});
    return std::vector<ErrorSample>{
        wrong({x, v, v}, {{"num_groups", int64_t{4}}}, ErrorCode::ShapeMismatch, "no multiple", 21),
        wrong({x, v, v}, {{"num_groups", int64_t{0}}}, ErrorCode::BadAttribute, "num_groups 0", 21),
        wrong({x, v, v}, {}, ErrorCode::BadAttribute, "num_groups", 21)};
  };
  return def;
}

// ---- BatchNormalization: with the running statistics, or in training mode the batch's own
Result<std::vector<ValueId>> decompose_batch_norm(Graph& g, const Node& n, int results) {
  B b(g, n);
  ValueId x = b.in(0);
  int rank = b.rank(x);
  bool training = b.attr().i("training_mode", 0) != 0;
  if (rank < 2) b.fail(ErrorCode::ShapeMismatch, "batch and channels are needed, not " + b.type(x).str());
  if (b.opset() != 0 && b.opset() < 14 && results > 1)
    b.fail(ErrorCode::UnsupportedFeature, "the training form of BatchNormalization before opset 14 is not supported");
  if (b.attr().i("spatial", 1) == 0)
    b.fail(ErrorCode::UnsupportedFeature, "BatchNormalization with spatial=0 is not supported");
  if (!training && results > 1)
    b.fail(ErrorCode::BadAttribute, "running statistics are results of training_mode=1 only");
  if (!b.ok()) return b.failed();
  DType wide = compute_dtype(b.dtype(x));
  for (int i = 3; i < 5; ++i)
    if (b.dtype(b.in(i)) == DType::F64) wide = DType::F64;
  auto vector = [&](ValueId v) { return cast(b, per_channel(b, v, b.dim(x, 1), rank), wide); };
  ValueId v = cast(b, x, wide), mean = vector(b.in(3)), variance = vector(b.in(4));
  std::vector<ValueId> out(1);
  if (training) {
    Ints axes = {0};
    for (int64_t a = 2; a < rank; ++a) axes.push_back(a);
    double keep = b.attr().f("momentum", 0.9);
    ValueId own_mean = ops::mean(b, v, axes, true), centred = sub(b, v, own_mean);
    ValueId own_variance = ops::mean(b, mul(b, centred, centred), axes, true);
    auto running = [&](ValueId old, ValueId now, int operand) {
      ValueId r = add(b, mul(b, old, keep), mul(b, now, 1 - keep));
      return cast(b, reshape(b, r, {b.dim(x, 1)}), b.dtype(b.in(operand)));
    };
    if (results > 1) out.push_back(running(mean, own_mean, 3));
    if (results > 2) out.push_back(running(variance, own_variance, 4));
    mean = own_mean;
    variance = own_variance;
  }
  // One multiply and one add per element: the rest has the size of the channels, and folds where it is constant.
  ValueId factor = mul(b, vector(b.in(1)), rsqrt(b, add(b, variance, b.attr().f("epsilon", 1e-5))));
  ValueId shift = sub(b, vector(b.in(2)), mul(b, mean, factor));
  out[0] = cast(b, add(b, mul(b, v, factor), shift), b.dtype(x));
  return b.done(out);
}

OpDef batch_norm() {
  OpDef def = composite("BatchNormalization", "channels normalized by running statistics, scaled and shifted",
                        {{"x", TypeSet::Float},
                         {"scale", TypeSet::Float},
                         {"bias", TypeSet::Float},
                         {"mean", TypeSet::Float},
                         {"var", TypeSet::Float}},
                        decompose_batch_norm);
  def.aten = {"batch_norm", "native_batch_norm"};
  def.attributes = {number("epsilon", 1e-5), number("momentum", 0.9), integer("training_mode", 0),
                    integer("spatial", 1)};
  def.max_results = 5;
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    int64_t channels = x.dims()[1], area = 1;
    for (size_t k = 2; k < x.dims().size(); ++k) area *= x.dims()[k];
    bool training = c.node.attributes.i("training_mode", 0) != 0;
    double keep = c.node.attributes.f("momentum", 0.9), eps = c.node.attributes.f("epsilon", 1e-5);
    TESSERA_ASSIGN(Tensor y, Tensor::create(x.dtype(), x.dims()));
    TESSERA_ASSIGN(Tensor means, Tensor::create(c.operands[3].dtype(), {channels}));
    TESSERA_ASSIGN(Tensor variances, Tensor::create(c.operands[4].dtype(), {channels}));
    for (int64_t ch = 0; ch < channels; ++ch) {
      std::vector<int64_t> members;
      for (int64_t i = 0; i < x.count(); ++i)
        if (i / area % channels == ch) members.push_back(i);
      Moments m = {c.operands[3].get_f64(ch), c.operands[4].get_f64(ch)};
      if (training) {
        Moments own = moments(x, members);
        means.set_f64(ch, keep * m.mean + (1 - keep) * own.mean);
        variances.set_f64(ch, keep * m.variance + (1 - keep) * own.variance);
        m = own;
      }
      for (int64_t i : members)
        y.set_f64(i, (x.get_f64(i) - m.mean) / std::sqrt(m.variance + eps) * c.operands[1].get_f64(ch) +
                         c.operands[2].get_f64(ch));
    }
    c.results = {y, means, variances};
    c.results.resize(static_cast<size_t>(c.result_count));
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : kFloats) {
      std::vector<Tensor> more = {random(d, {3}, 2), random(d, {3}, 3), random(d, {3}, 4), random(d, {3}, 5, 0.1, 2)};
      for (const Dims& dims : {Dims{2, 3, 4, 5}, Dims{4, 3}, Dims{1, 3, 7}}) {
        std::vector<Tensor> operands = {random(d, dims, 1)};
        operands.insert(operands.end(), more.begin(), more.end());
        out.push_back(sample(operands, {}, 15));
        out.push_back(sample(operands, {{"training_mode", int64_t{1}}, {"epsilon", 0.01}}, 15));
        out.back().result_count = 3;
      }
    }
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 3, 4}), v = random(DType::F32, {3}), w = random(DType::F32, {4});
    return std::vector<ErrorSample>{
        wrong({x, w, v, v, v}, {}, ErrorCode::ShapeMismatch, "channel", 15),
        wrong({x, v, v, v, v}, {{"spatial", int64_t{0}}}, ErrorCode::UnsupportedFeature, "spatial", 7)};
  };
  return def;
}

// ---- MeanVarianceNormalization, LpNormalization
OpDef mean_variance_norm() {
  OpDef def = composite("MeanVarianceNormalization", "(x - mean) / (standard deviation + 1e-9) over axes",
                        {{"x", TypeSet::Float}}, [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          ValueId x = b.in(0), wide = widen(b, x);
                          Ints axes = b.axes(b.attr().ints("axes", {0, 2, 3}), b.rank(x));
                          if (!b.ok()) return b.failed();
                          ValueId centred = sub(b, wide, mean(b, wide, axes, true));
                          ValueId deviation = sqrt(b, mean(b, mul(b, centred, centred), axes, true));
                          return b.done(cast(b, div(b, centred, add(b, deviation, 1e-9)), b.dtype(x)));
                        });
  def.attributes = {{"axes", AttrKind::Ints, false, Ints{0, 2, 3}}};
  def.samples = [] {
    return std::vector<Sample>{sample({random(DType::F32, {2, 3, 4, 5}, 1)}, {}, 13),
                               sample({random(DType::F16, {4, 6}, 1)}, {{"axes", Ints{-1}}}, 9)};
  };
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    Dims stat = x.dims();
    for (int64_t a : c.node.attributes.ints("axes", {0, 2, 3}))
      stat[static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(stat.size()) : a)] = 1;
    Dims stride = broadcast_strides(stat, x.dims());
    TESSERA_ASSIGN(int64_t groups, element_count(stat));
    std::vector<std::vector<int64_t>> members(static_cast<size_t>(groups));
    for (MultiIndex w(x.dims()); !w.done(); w.next())
      members[static_cast<size_t>(offset(w.at(), stride))].push_back(w.i());
    TESSERA_ASSIGN(Tensor y, Tensor::create(x.dtype(), x.dims()));
    for (const auto& group : members) {
      Moments m = moments(x, group);
      for (int64_t i : group) y.set_f64(i, (x.get_f64(i) - m.mean) / (std::sqrt(m.variance) + 1e-9));
    }
    c.results = {y};
    return {};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {2, 3})}, {}, ErrorCode::BadAttribute, "axis", 13)};
  };
  return def;
}

OpDef lp_norm() {
  OpDef def = composite("LpNormalization", "x divided by its L1 or L2 norm along an axis; 0 where that is 0",
                        {{"x", TypeSet::Float}}, [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          ValueId x = b.in(0), wide = widen(b, x);
                          int64_t p = b.attr().i("p", 2), axis = b.axis(b.attr().i("axis", -1), b.rank(x));
                          if (p != 1 && p != 2)
                            b.fail(ErrorCode::BadAttribute, "p " + std::to_string(p) + " is neither 1 nor 2");
                          if (!b.ok()) return b.failed();
                          ValueId norm = p == 1 ? sum(b, abs(b, wide), {axis}, true)
                                                : sqrt(b, sum(b, mul(b, wide, wide), {axis}, true));
                          return b.done(cast(b, select(b, eq(b, norm, 0.0), 0.0, div(b, wide, norm)), b.dtype(x)));
                        });
  def.attributes = {integer("p", 2), integer("axis", -1)};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    auto rank = static_cast<int64_t>(x.dims().size());
    int64_t axis = c.node.attributes.i("axis", -1), inner = 1;
    if (axis < 0) axis += rank;
    for (int64_t a = axis + 1; a < rank; ++a) inner *= x.dims()[static_cast<size_t>(a)];
    int64_t n = x.dims()[static_cast<size_t>(axis)];
    TESSERA_ASSIGN(Tensor y, Tensor::create(x.dtype(), x.dims()));
    for (int64_t r = 0; n > 0 && r < x.count() / n; ++r) {
      int64_t base = r / inner * n * inner + r % inner;
      double norm = 0;
      for (int64_t i = 0; i < n; ++i) {
        double v = x.get_f64(base + i * inner);
        norm += c.node.attributes.i("p", 2) == 1 ? std::fabs(v) : v * v;
      }
      if (c.node.attributes.i("p", 2) == 2) norm = std::sqrt(norm);
      for (int64_t i = 0; i < n; ++i) y.set_f64(base + i * inner, norm == 0 ? 0 : x.get_f64(base + i * inner) / norm);
    }
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (int64_t p : {1, 2})
      for (int64_t axis : {-1, 0, 1})
        out.push_back(sample({random(DType::F32, {3, 4, 5}, 1)}, {{"p", p}, {"axis", axis}}, 22));
    out.push_back(sample({floats({2, 2}, {0, 0, 3, 4})}, {}, 22));
    out.push_back(sample({random(DType::F16, {3, 4}, 1)}, {}, 22));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 3})}, {{"p", int64_t{3}}}, ErrorCode::BadAttribute, "neither 1 nor 2", 22)};
  };
  return def;
}

} // namespace

void register_norm_ops(OpTable& table) {
  for (OpDef (*make)() : {layer_norm, rms_norm, instance_norm, group_norm, batch_norm, mean_variance_norm, lp_norm})
    table.add(make());
}

} // namespace tessera
