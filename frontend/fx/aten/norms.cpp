// Normalizations and their gradients. Statistics are taken in f32 (f64 for f64).
#include "frontend/fx/aten/parts.h"

namespace tessera::fx {
namespace {

// A result of the dtype that the program states; nothing where nobody reads it.
void stated_result(Call& c, int index, const std::function<ValueId()>& value) {
  if (!c.b.ok()) return;
  if (!c.is_used(index)) return c.unused_result();
  const DType d = c.result_dtype(index);
  ValueId v = value();
  c.result(cast_if(c, v, d));
}

// ---- layer normalization: over the last dimensions
int64_t first_normalized(Call& c, ValueId x) {
  const auto count = static_cast<int64_t>(c.in.sizes("normalized_shape").size());
  if (!c.b.ok()) return 0;
  const int64_t axis = c.b.rank(x) - count;
  if (axis < 0)
    c.b.fail(ErrorCode::ShapeMismatch,
             "normalized_shape has " + std::to_string(count) + " dimensions and the input " + str(c.b.shape(x)));
  return axis;
}

// Parameters of another dtype than x's: everything in f32, as PyTorch computes it.
ValueId mixed(Call& c, ValueId& x, std::initializer_list<ValueId*> parameters) {
  if (!c.b.ok()) return x;
  DType d = c.b.dtype(x);
  for (const ValueId* p : parameters)
    if (p->valid() && c.b.dtype(*p) != d) d = promote(d, compute_dtype(c.b.dtype(*p)));
  for (ValueId* p : parameters) *p = cast_if(c, *p, d);
  return x = cast(c.b, x, d);
}

void translate_layer_norm(Call& c) {
  ValueId x = c.in.tensor("input"), scale = c.in.maybe("weight"), bias = c.in.maybe("bias");
  const double epsilon = c.in.number("eps");
  const int64_t axis = first_normalized(c, x);
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x);
  mixed(c, x, {&scale, &bias});
  const int wanted = c.is_used(2) ? 3 : c.is_used(1) ? 2 : 1;
  if (wanted == 1) {
    c.result(cast(c.b, layer_norm(c, x, axis, scale, bias, epsilon), d));
    c.unused_result();
    return c.unused_result();
  }
  if (!scale.valid()) scale = c.b.like(x, 1);
  std::vector<ValueId> operands = {x, scale};
  if (bias.valid()) operands.push_back(bias);
  const DType stash = c.b.dtype(x) == DType::F64 ? DType::F64 : DType::F32;
  std::vector<ValueId> out =
      c.b.ops("LayerNormalization", operands,
              {{"axis", axis}, {"epsilon", epsilon}, {"stash_type", int64_t{info(stash).onnx}}}, wanted);
  if (!c.b.ok()) return;
  c.result(cast(c.b, out[0], d));
  for (int i = 1; i < 3; ++i) stated_result(c, i, [&] { return out.at(static_cast<size_t>(i)); });
}

// rstd * (g - mean(g) - n * mean(g * n)) over axes: what a normalization hands back.
ValueId normalized_gradient(Call& c, ValueId g, ValueId n, ValueId rstd, const Ints& axes) {
  ValueId first = mean(c.b, g, axes, true), second = mean(c.b, mul(c.b, g, n), axes, true);
  return mul(c.b, rstd, sub(c.b, sub(c.b, g, first), mul(c.b, n, second)));
}

void translate_layer_norm_backward(Call& c) {
  ValueId grad = c.in.tensor("grad_out"), x = c.in.tensor("input"), mean = c.in.tensor("mean"),
          rstd = c.in.tensor("rstd"), weight = c.in.maybe("weight"), bias = c.in.maybe("bias");
  const Ints mask = c.in.ints("output_mask");
  const int64_t axis = first_normalized(c, x);
  if (!c.b.ok()) return;
  const DType wide = compute_dtype(c.b.dtype(x));
  const int rank = c.b.rank(x);
  const Ints inner = axis_range(axis, rank), outer = axis_range(0, axis);
  ValueId g = cast(c.b, grad, wide), scale = cast(c.b, rstd, wide);
  ValueId n = mul(c.b, sub(c.b, cast(c.b, x, wide), cast(c.b, mean, wide)), scale);
  ValueId through = weight.valid() ? mul(c.b, g, cast(c.b, weight, wide)) : g;
  if (mask.at(0))
    stated_result(c, 0, [&] { return normalized_gradient(c, through, n, scale, inner); });
  else
    c.unused_result();
  auto parameter = [&](int index, bool wanted, ValueId v) {
    if (!wanted) return c.unused_result();
    stated_result(c, index, [&] { return outer.empty() ? v : sum(c.b, v, outer, false); });
  };
  parameter(1, mask.at(1) && weight.valid(), mul(c.b, g, n));
  parameter(2, mask.at(2) && bias.valid(), g);
}

// ---- RMS normalization
void translate_rms_norm(Call& c) {
  ValueId x = c.in.tensor("input"), weight = c.in.maybe("weight");
  const int64_t axis = first_normalized(c, x);
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x), out = c.result_dtype(0);
  const DType wide = compute_dtype(d);
  // Without one given, PyTorch takes the distance from 1 to the next number of the computing dtype.
  const double epsilon =
      c.in.maybe_number("eps").value_or(wide == DType::F64 ? 2.220446049250313e-16 : 1.1920928955078125e-07);
  if (!c.b.ok()) return;
  if (!weight.valid()) weight = c.b.like(x, 1);
  mixed(c, x, {&weight});
  c.result(cast(c.b, c.b.op("RMSNormalization", {x, weight}, {{"axis", axis}, {"epsilon", epsilon}}), out));
  if (c.schema().results.size() == 1 || !c.is_used(1)) return c.unused_result();
  stated_result(c, 1, [&] {
    ValueId v = cast(c.b, x, wide);
    return rsqrt(c.b, add(c.b, mean(c.b, mul(c.b, v, v), axis_range(axis, c.b.rank(x)), true), epsilon));
  });
}

void translate_rms_norm_backward(Call& c) {
  ValueId grad = c.in.tensor("grad_out"), x = c.in.tensor("input"), rstd = c.in.tensor("rstd"),
          weight = c.in.maybe("weight");
  const Ints mask = c.in.ints("output_mask");
  const int64_t axis = first_normalized(c, x);
  if (!c.b.ok()) return;
  const DType wide = compute_dtype(c.b.dtype(x));
  const Ints inner = axis_range(axis, c.b.rank(x)), outer = axis_range(0, axis);
  ValueId g = cast(c.b, grad, wide), scale = cast(c.b, rstd, wide), n = mul(c.b, cast(c.b, x, wide), scale);
  ValueId through = weight.valid() ? mul(c.b, g, cast(c.b, weight, wide)) : g;
  if (mask.at(0))
    stated_result(c, 0, [&] {
      return mul(c.b, scale, sub(c.b, through, mul(c.b, n, mean(c.b, mul(c.b, through, n), inner, true))));
    });
  else
    c.unused_result();
  if (mask.at(1) && weight.valid())
    stated_result(c, 1, [&] { return outer.empty() ? mul(c.b, g, n) : sum(c.b, mul(c.b, g, n), outer, false); });
  else
    c.unused_result();
}

// ---- group normalization
// A vector over the channels; `value` everywhere where there is none.
ValueId channels_or(Call& c, ValueId v, const SymExpr& channels, DType d, double value) {
  return v.valid() ? v : expand(c.b, c.b.scalar(d, value), {channels});
}

void translate_group_norm(Call& c) {
  ValueId x = c.in.tensor("input"), weight = c.in.maybe("weight"), bias = c.in.maybe("bias");
  const int64_t groups = c.schema().argument("group") ? c.in.integer("group") : c.in.integer("num_groups");
  const double epsilon = c.in.number("eps");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x);
  mixed(c, x, {&weight, &bias});
  const SymShape shape = c.b.shape(x);
  if (shape.size() < 2)
    return c.b.fail(ErrorCode::ShapeMismatch, "group normalization takes [N, C, ...], not " + str(shape));
  const DType common = c.b.dtype(x);
  c.result(cast(c.b,
                c.b.op("GroupNormalization",
                       {x, channels_or(c, weight, shape[1], common, 1), channels_or(c, bias, shape[1], common, 0)},
                       {{"num_groups", groups}, {"epsilon", epsilon}}),
                d));
  if (c.schema().results.size() == 1) return;
  SymShape split = {shape[0], groups, c.b.env().simplify(floordiv(shape[1], groups))};
  split.insert(split.end(), shape.begin() + 2, shape.end());
  const Ints axes = axis_range(2, static_cast<int64_t>(split.size()));
  ValueId wide = reshape(c.b, widen(c.b, x), split), mean;
  auto mean_of = [&] { return mean.valid() ? mean : mean = ops::mean(c.b, wide, axes, true); };
  stated_result(c, 1, [&] { return reshape(c.b, mean_of(), {shape[0], groups}); });
  stated_result(c, 2, [&] {
    ValueId centred = sub(c.b, wide, mean_of());
    ValueId variance = ops::mean(c.b, mul(c.b, centred, centred), axes, true);
    return reshape(c.b, rsqrt(c.b, add(c.b, variance, epsilon)), {shape[0], groups});
  });
}

void translate_group_norm_backward(Call& c) {
  ValueId grad = c.in.tensor("grad_out"), x = c.in.tensor("input"), mean = c.in.tensor("mean"),
          rstd = c.in.tensor("rstd"), weight = c.in.maybe("weight");
  const int64_t groups = c.in.integer("group");
  const Ints mask = c.in.ints("output_mask");
  if (!c.b.ok()) return;
  const SymShape shape = c.b.shape(x);
  const DType wide = compute_dtype(c.b.dtype(x));
  const SymExpr each = c.b.env().simplify(floordiv(shape[1], groups)), places = product(std::span(shape).subspan(2));
  const SymShape split = {shape[0], groups, each, places}, group = {shape[0], groups, 1, 1};
  auto wide_split = [&](ValueId v) { return reshape(c.b, cast(c.b, v, wide), split); };
  auto stat = [&](ValueId v) { return reshape(c.b, cast(c.b, v, wide), group); };
  ValueId g = wide_split(grad), scale = stat(rstd);
  ValueId n = mul(c.b, sub(c.b, wide_split(x), stat(mean)), scale);
  ValueId through = weight.valid() ? mul(c.b, g, reshape(c.b, cast(c.b, weight, wide), {1, groups, each, 1})) : g;
  if (mask.at(0))
    stated_result(c, 0, [&] { return reshape(c.b, normalized_gradient(c, through, n, scale, {2, 3}), shape); });
  else
    c.unused_result();
  auto parameter = [&](int index, bool wanted, const std::function<ValueId()>& v) {
    if (!wanted) return c.unused_result();
    stated_result(c, index, [&] { return reshape(c.b, sum(c.b, v(), {0, 3}, false), {shape[1]}); });
  };
  parameter(1, mask.at(1) != 0, [&] { return mul(c.b, g, n); });
  parameter(2, mask.at(2) != 0, [&] { return g; });
}

// ---- batch normalization
struct BatchStatistics {
  ValueId mean, variance, inverse; // [C], wide
  SymExpr count;                   // elements of a channel
};

Ints all_but_channels(int rank) {
  Ints axes = axis_range(2, rank);
  axes.insert(axes.begin(), 0);
  return axes;
}

BatchStatistics statistics(Call& c, ValueId x, double epsilon) {
  BatchStatistics s;
  const SymShape shape = c.b.shape(x);
  const Ints axes = all_but_channels(c.b.rank(x));
  s.count = 1;
  for (int64_t a : axes) s.count *= shape[static_cast<size_t>(a)];
  ValueId mean = ops::mean(c.b, x, axes, true), centred = sub(c.b, x, mean);
  ValueId variance = ops::mean(c.b, mul(c.b, centred, centred), axes, true);
  if (!c.b.ok()) return s;
  s.mean = reshape(c.b, mean, {shape[1]});
  s.variance = reshape(c.b, variance, {shape[1]});
  s.inverse = rsqrt(c.b, add(c.b, s.variance, epsilon));
  return s;
}

// (1 - momentum) * running + momentum * own, in own's dtype.
ValueId updated(Call& c, ValueId running, ValueId own, double momentum) {
  if (!c.b.ok()) return {};
  return add(c.b, mul(c.b, cast(c.b, running, c.b.dtype(own)), 1 - momentum), mul(c.b, own, momentum));
}

ValueId unbiased(Call& c, const BatchStatistics& s) {
  if (!c.b.ok()) return {};
  const DType wide = c.b.dtype(s.variance);
  ValueId n = c.b.size(s.count, wide);
  return mul(c.b, s.variance, div(c.b, n, sub(c.b, n, 1.0)));
}

enum class BatchForm {
  Plain,      // one result
  Saved,      // out, mean, inverse deviation
  Functional, // out, mean, inverse deviation, new running mean, new running variance
  Reserve,    // out, mean, inverse deviation, a byte tensor that only a library reads
  ReserveFunctional,
};

template <BatchForm kForm>
void translate_batch_norm(Call& c) {
  ValueId x = c.in.tensor("input"), weight = c.in.maybe("weight"), bias = c.in.maybe("bias");
  const bool has_running = c.schema().argument("running_mean") != nullptr;
  ValueId running_mean = has_running ? c.in.maybe("running_mean") : ValueId(),
          running_var = has_running ? c.in.maybe("running_var") : ValueId();
  const std::string_view name = c.schema().name;
  const bool update = name.find("with_update") != std::string_view::npos;
  bool training = update || (c.schema().argument("training") && c.in.flag("training"));
  const double epsilon = c.in.number(c.schema().argument("epsilon") ? "epsilon" : "eps");
  const double momentum = c.in.number(c.schema().argument("momentum") ? "momentum" : "exponential_average_factor");
  if (!c.b.ok()) return;
  if (!training && !running_mean.valid()) training = true; // no statistics to use but the batch's own
  const DType d = c.b.dtype(x);
  const SymShape shape = c.b.shape(x);
  const int rank = c.b.rank(x);
  if (rank < 2) return c.b.fail(ErrorCode::ShapeMismatch, "batch normalization takes [N, C, ...], not " + str(shape));
  if (!training) {
    const DType p = weight.valid() ? c.b.dtype(weight) : c.b.dtype(running_mean);
    c.result(c.b.op(
        "BatchNormalization",
        {x, channels_or(c, weight, shape[1], p, 1), channels_or(c, bias, shape[1], p, 0), running_mean, running_var},
        {{"epsilon", epsilon}}));
    if (kForm == BatchForm::Plain) return;
    const bool zero_sized = c.is_used(1) && c.result_shape(1) == SymShape{0};
    const DType wide = compute_dtype(c.b.dtype(running_var));
    stated_result(c, 1, [&] { return zero_sized ? zeros(c, wide, {0}) : running_mean; });
    stated_result(c, 2, [&] {
      if (zero_sized) return zeros(c, wide, {0});
      return rsqrt(c.b, add(c.b, cast(c.b, running_var, wide), epsilon));
    });
    if (kForm == BatchForm::Functional) {
      stated_result(c, 3, [&] { return running_mean; });
      stated_result(c, 4, [&] { return running_var; });
    }
    if (kForm == BatchForm::Reserve || kForm == BatchForm::ReserveFunctional)
      stated_result(c, 3, [&] { return zeros(c, DType::U8, {0}); });
    if (kForm == BatchForm::ReserveFunctional) {
      stated_result(c, 4, [&] { return running_mean; });
      stated_result(c, 5, [&] { return running_var; });
    }
    return;
  }
  ValueId wide = widen(c.b, x);
  BatchStatistics s = statistics(c, wide, epsilon);
  if (!c.b.ok()) return;
  const DType w = c.b.dtype(wide);
  ValueId factor = weight.valid() ? mul(c.b, cast(c.b, weight, w), s.inverse) : s.inverse;
  ValueId y = mul(c.b, sub(c.b, wide, along(c, s.mean, 1, rank)), along(c, factor, 1, rank));
  if (bias.valid()) y = add(c.b, y, along(c, cast(c.b, bias, w), 1, rank));
  c.result(cast(c.b, y, d));
  const bool functional = kForm == BatchForm::Functional || kForm == BatchForm::ReserveFunctional;
  if (!functional && running_mean.valid() && running_var.valid()) {
    c.writes("running_mean", updated(c, running_mean, s.mean, momentum));
    c.writes("running_var", updated(c, running_var, unbiased(c, s), momentum));
  }
  if (kForm == BatchForm::Plain) return;
  stated_result(c, 1, [&] { return s.mean; });
  stated_result(c, 2, [&] { return s.inverse; });
  if (kForm == BatchForm::Reserve || kForm == BatchForm::ReserveFunctional)
    stated_result(c, 3, [&] { return zeros(c, DType::U8, {0}); });
  if (functional) {
    const int first = kForm == BatchForm::Functional ? 3 : 4;
    stated_result(c, first, [&] { return updated(c, running_mean, s.mean, momentum); });
    stated_result(c, first + 1, [&] { return updated(c, running_var, unbiased(c, s), momentum); });
  }
}

void translate_batch_norm_backward(Call& c) {
  const bool cudnn = c.schema().argument("input") && c.schema().argument("epsilon");
  ValueId grad = c.in.tensor(c.schema().argument("grad_out") ? "grad_out" : "grad_output"), x = c.in.tensor("input"),
          weight = c.in.maybe("weight"), running_mean = c.in.maybe("running_mean"),
          running_var = c.in.maybe("running_var");
  ValueId save_mean = c.in.maybe("save_mean"), save_inverse;
  for (std::string_view n : {"save_invstd", "save_var"})
    if (c.schema().argument(n)) save_inverse = c.in.maybe(n);
  const bool training = cudnn || (c.schema().argument("train") ? c.in.flag("train") : c.in.flag("update"));
  const double epsilon = c.in.number(cudnn ? "epsilon" : "eps");
  const Ints mask = cudnn ? Ints{1, 1, 1} : c.in.ints("output_mask");
  if (!c.b.ok()) return;
  const DType wide = compute_dtype(c.b.dtype(x));
  const int rank = c.b.rank(x);
  const Ints axes = all_but_channels(rank);
  auto vector = [&](ValueId v) { return along(c, cast(c.b, v, wide), 1, rank); };
  ValueId mean, inverse;
  if (training) {
    if (!save_mean.valid() || !save_inverse.valid())
      return c.b.fail(ErrorCode::BadAttribute, "the gradient of a batch normalization needs the saved statistics");
    mean = vector(save_mean);
    inverse = vector(save_inverse);
  } else {
    if (!running_mean.valid() || !running_var.valid())
      return c.b.fail(ErrorCode::BadAttribute, "the gradient of a batch normalization needs the running statistics");
    mean = vector(running_mean);
    inverse = rsqrt(c.b, add(c.b, vector(running_var), epsilon));
  }
  ValueId g = cast(c.b, grad, wide), n = mul(c.b, sub(c.b, cast(c.b, x, wide), mean), inverse);
  ValueId through = weight.valid() ? mul(c.b, g, vector(weight)) : g;
  if (mask.at(0))
    stated_result(c, 0, [&] {
      return training ? normalized_gradient(c, through, n, inverse, axes) : mul(c.b, through, inverse);
    });
  else
    c.unused_result();
  if (mask.at(1))
    stated_result(c, 1, [&] { return sum(c.b, mul(c.b, g, n), axes, false); });
  else
    c.unused_result();
  if (mask.at(2))
    stated_result(c, 2, [&] { return sum(c.b, g, axes, false); });
  else
    c.unused_result();
}

// ---- instance normalization: each channel of each instance
void translate_instance_norm(Call& c) {
  ValueId x = c.in.tensor("input"), weight = c.in.maybe("weight"), bias = c.in.maybe("bias"),
          running_mean = c.in.maybe("running_mean"), running_var = c.in.maybe("running_var");
  const bool own = c.in.flag("use_input_stats");
  const double epsilon = c.in.number("eps");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x);
  const SymExpr channels = c.b.dim(x, 1);
  if (!own) {
    if (!running_mean.valid() || !running_var.valid())
      return c.b.fail(ErrorCode::BadAttribute, "instance normalization has no statistics to use");
    const DType p = c.b.dtype(running_mean);
    return c.result(c.b.op(
        "BatchNormalization",
        {x, channels_or(c, weight, channels, p, 1), channels_or(c, bias, channels, p, 0), running_mean, running_var},
        {{"epsilon", epsilon}}));
  }
  if (running_mean.valid()) return c.unsupported("instance normalization that updates running statistics");
  mixed(c, x, {&weight, &bias});
  const DType common = c.b.dtype(x);
  c.result(cast(c.b,
                c.b.op("InstanceNormalization",
                       {x, channels_or(c, weight, channels, common, 1), channels_or(c, bias, channels, common, 0)},
                       {{"epsilon", epsilon}}),
                d));
}

// ---- weight normalization: g * v / |v|, norms over all dimensions but one
void translate_weight_norm(Call& c) {
  ValueId v = c.in.tensor("v"), g = c.in.tensor("g");
  const int64_t dim = c.in.integer("dim");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(v);
  const int rank = c.b.rank(v);
  Ints axes = axis_range(0, rank);
  if (dim >= 0) axes.erase(axes.begin() + dim); // -1: the norm of everything
  ValueId wide = widen(c.b, v);
  ValueId norm = sqrt(c.b, sum(c.b, mul(c.b, wide, wide), axes, true));
  if (!c.b.ok()) return;
  if (dim < 0) norm = reshape(c.b, norm, {});
  c.result(cast(c.b, mul(c.b, wide, div(c.b, cast(c.b, g, c.b.dtype(wide)), norm)), d));
  if (c.schema().results.size() > 1) stated_result(c, 1, [&] { return norm; });
}

} // namespace

void register_norms(AtenTable& t) {
  t.add({"layer_norm.default", "native_layer_norm.default"}, translate_layer_norm);
  t.add({"native_layer_norm_backward.default"}, translate_layer_norm_backward);
  t.add({"rms_norm.default", "_fused_rms_norm.default"}, translate_rms_norm);
  t.add({"_fused_rms_norm_backward.default"}, translate_rms_norm_backward);
  t.add({"group_norm.default", "native_group_norm.default"}, translate_group_norm);
  t.add({"native_group_norm_backward.default"}, translate_group_norm_backward);
  t.add({"batch_norm.default"}, translate_batch_norm<BatchForm::Plain>);
  t.add({"native_batch_norm.default", "_native_batch_norm_legit.default", "_native_batch_norm_legit.no_stats",
         "_native_batch_norm_legit_no_training.default"},
        translate_batch_norm<BatchForm::Saved>);
  t.add({"_native_batch_norm_legit_functional.default"}, translate_batch_norm<BatchForm::Functional>);
  t.add({"_batch_norm_with_update.default", "_batch_norm_no_update.default", "cudnn_batch_norm.default"},
        translate_batch_norm<BatchForm::Reserve>);
  t.add({"_batch_norm_with_update_functional.default"}, translate_batch_norm<BatchForm::ReserveFunctional>);
  t.add({"native_batch_norm_backward.default", "batch_norm_backward.default", "cudnn_batch_norm_backward.default"},
        translate_batch_norm_backward);
  t.add({"instance_norm.default"}, translate_instance_norm);
  t.add({"_weight_norm.default", "_weight_norm_interface.default"}, translate_weight_norm);
}

} // namespace tessera::fx
