// Signal processing: windows, Fourier transforms, and mel weights.
#include "graph/ops/fourier.h"
#include "graph/ops/parts.h"
#include "graph/ops/sampling.h"
#include <cmath>
#include <numbers>

namespace tessera {

namespace {
using namespace ops;

Result<int64_t> one_number(const ReferenceContext& c, size_t operand, int64_t least, const char* what) {
  if (c.operands[operand].count() != 1) return c.error(ErrorCode::BadInput, std::string(what) + " must be one number");
  int64_t v = c.operands[operand].get_i64(0);
  if (v < least || v > (int64_t{1} << 40))
    return c.error(ErrorCode::BadInput, std::string(what) + " is " + std::to_string(v));
  return v;
}

// ---- windows: a - b cos(2 pi n / N) + c cos(4 pi n / N)
OpDef window_record(std::string_view name, std::string_view onnx, double a, double b, double c2) {
  OpDef def;
  def.name = name;
  def.summary = "a window of cosines";
  def.onnx = {{onnx, "", 17}};
  def.operands = {{"size", TypeSet::Index}};
  def.attributes = {{"output_datatype", AttrKind::Int, false, int64_t{1}},
                    {"periodic", AttrKind::Int, false, int64_t{1}}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_ASSIGN(DType d, dtype_attribute(c.node, "output_datatype", DType::F32));
    if (!is_float(d) && !is_integer(d))
      return c.error(ErrorCode::UnsupportedType, "a window of type " + std::string(tessera::name(d)));
    TESSERA_ASSIGN(SymShape shape, known_or_fresh(c, 0, 1, "window"));
    return set_result(c, d, std::move(shape));
  };
  def.meaning = Decomposition{[a, b, c2](Graph& g, const Node& n, int) -> Result<std::vector<ValueId>> {
    B f(g, n);
    const std::vector<SymExpr> size = f.sizes(0);
    TESSERA_ASSIGN(DType d, dtype_attribute(n, "output_datatype", DType::F32));
    if (f.ok() && size.size() != 1) f.fail(ErrorCode::BadAttribute, "the size of a window is one number");
    if (!f.ok()) return f.failed();
    // In f64: results may be integers, to which small errors matter.
    ValueId period = f.size(n.attributes.i("periodic", 1) != 0 ? size[0] : size[0] - 1, DType::F64);
    ValueId one = eq(f, period, 0.0), turn = div(f, ramp(f, size[0], 1, 0, DType::F64), select(f, one, 1.0, period));
    turn = select(f, one, 0.5, turn); // one sample is the middle
    auto cosine = [&](double turns) { return f.op1("cos", mul(f, turn, turns * 2 * std::numbers::pi)); };
    ValueId v = sub(f, f.scalar(DType::F64, a), mul(f, cosine(1), b));
    if (c2 != 0) v = add(f, v, mul(f, cosine(2), c2));
    return f.done(cast(f, v, d));
  }};
  def.reference = [a, b, c2](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(int64_t size, one_number(c, 0, 0, "the size of a window"));
    TESSERA_ASSIGN(Tensor out, Tensor::create(c.result_types[0].dtype, {size}));
    int64_t period = c.node.attributes.i("periodic", 1) != 0 ? size : size - 1;
    for (int64_t i = 0; i < size; ++i) {
      double t = period == 0 ? 0.5 : static_cast<double>(i) / static_cast<double>(period); // one sample is the middle
      double v = a - b * std::cos(2 * std::numbers::pi * t) + c2 * std::cos(4 * std::numbers::pi * t);
      if (is_float(out.dtype()))
        out.set_f64(i, v);
      else
        out.set_i64(i, static_cast<int64_t>(v));
    }
    c.results = {out};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({scalar(DType::I64, 10)}),
                               sample({scalar(DType::I32, 7)}, {{"periodic", int64_t{0}}}),
                               sample({scalar(DType::I64, 1)}, {{"periodic", int64_t{0}}}),
                               sample({scalar(DType::I64, 5)}, {{"output_datatype", int64_t{info(DType::F64).onnx}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({vec({3, 4})}, {}, ErrorCode::BadAttribute, "elements"),
        wrong({vec({3})}, {{"output_datatype", int64_t{8}}}, ErrorCode::UnsupportedType, "string"),
        wrong({vec({-3})}, {}, ErrorCode::ShapeMismatch, "negative")};
  };
  return def;
}

// ---- Fourier transforms
struct Complex {
  double re = 0, im = 0;
};

// out[k] = sum x[n] exp(sign * 2 pi i k n / length). Angles are reduced in integers: exact for long signals.
std::vector<Complex> transform(const std::vector<Complex>& x, int64_t length, int64_t bins, double sign) {
  std::vector<Complex> out(static_cast<size_t>(bins)), roots(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) {
    double angle = sign * 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(length);
    roots[static_cast<size_t>(i)] = {std::cos(angle), std::sin(angle)};
  }
  auto n = std::min<int64_t>(static_cast<int64_t>(x.size()), length);
  for (int64_t k = 0; k < bins; ++k) {
    Complex& sum = out[static_cast<size_t>(k)];
    for (int64_t i = 0, turn = 0; i < n; ++i) {
      const Complex &v = x[static_cast<size_t>(i)], &r = roots[static_cast<size_t>(turn)];
      sum.re += v.re * r.re - v.im * r.im;
      sum.im += v.re * r.im + v.im * r.re;
      turn = (turn + k) % length;
    }
  }
  return out;
}

// Bins of a one-sided spectrum.
SymExpr half(const SymExpr& length) { return floordiv(length, 2) + 1; }

// The number of bins for a length that operand `i` gives. A length that only the run knows gets no symbol of its own:
// symbols are bound to the sizes of results, and none would give the length of `bins`.
Result<SymExpr> bins_of(InferContext& c, int i, std::string_view name, bool onesided) {
  TESSERA_ASSIGN(SymShape length, known_or_fresh(c, i, 1, c.known(i).ok() || !onesided ? name : "bins"));
  return c.known(i).ok() && onesided ? half(length[0]) : length[0];
}

int default_axis(const Node& n) { return opset_of(n) >= 20 ? -2 : 1; }

Status reference_dft(ReferenceContext& c) {
  const Tensor& x = c.operands[0];
  auto rank = static_cast<int64_t>(x.dims().size());
  int64_t axis = given(c, 2) ? c.operands[2].get_i64(0) : c.node.attributes.i("axis", default_axis(c.node));
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank - 1) return c.error(ErrorCode::BadInput, "the axis of DFT is " + std::to_string(axis));
  auto a = static_cast<size_t>(axis);
  bool inverse = c.node.attributes.i("inverse") != 0, onesided = c.node.attributes.i("onesided") != 0;
  bool real_result = inverse && onesided;
  int64_t size = x.dims()[a], parts = x.dims().back(), length = real_result ? 2 * (size - 1) : size;
  if (given(c, 1)) {
    TESSERA_ASSIGN(length, one_number(c, 1, 1, "dft_length"));
  }
  if (length < 1) return c.error(ErrorCode::BadInput, "a Fourier transform of " + std::to_string(length) + " elements");
  int64_t bins = onesided && !inverse ? length / 2 + 1 : length;
  Dims dims = x.dims(), lines = x.dims();
  dims[a] = bins;
  dims.back() = real_result ? 1 : 2;
  TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), dims));
  lines[a] = lines.back() = 1;
  Dims from = strides_of(x.dims()), to = strides_of(dims);
  for (MultiIndex w(lines); !w.done(); w.next()) {
    int64_t source = offset(w.at(), from), target = offset(w.at(), to);
    std::vector<Complex> line(static_cast<size_t>(std::min(size, length)));
    for (size_t i = 0; i < line.size(); ++i) {
      int64_t at = source + static_cast<int64_t>(i) * from[a];
      line[i] = {x.get_f64(at), parts == 2 ? x.get_f64(at + 1) : 0};
    }
    if (real_result) { // the other half of the spectrum mirrors this one
      line.resize(static_cast<size_t>(length / 2 + 1));
      line.front().im = 0;
      if (length % 2 == 0) line.back().im = 0;
      std::vector<Complex> whole(static_cast<size_t>(length));
      for (int64_t i = 0; i < length; ++i) {
        int64_t mirrored = i <= length / 2 ? i : length - i;
        Complex v = line[static_cast<size_t>(mirrored)];
        whole[static_cast<size_t>(i)] = {v.re, i == mirrored ? v.im : -v.im};
      }
      line = std::move(whole);
    }
    std::vector<Complex> spectrum = transform(line, length, bins, inverse ? 1 : -1);
    double scale = inverse ? 1 / static_cast<double>(length) : 1;
    for (int64_t k = 0; k < bins; ++k) {
      out.set_f64(target + k * to[a], spectrum[static_cast<size_t>(k)].re * scale);
      if (!real_result) out.set_f64(target + k * to[a] + 1, spectrum[static_cast<size_t>(k)].im * scale);
    }
  }
  c.results = {out};
  return {};
}

// The length of a transform: what the operand gives, else the size.
SymExpr length_of(B& b, int operand, const SymExpr& size, const char* what) {
  if (!b.has(operand)) return size;
  const std::vector<SymExpr> given = b.sizes(operand);
  if (b.ok() && given.size() != 1) b.fail(ErrorCode::BadAttribute, std::string(what) + " must be one number");
  if (!b.ok()) return size;
  if (auto n = given[0].as_const(); n && *n < 1)
    b.fail(ErrorCode::BadAttribute, std::string(what) + " is " + std::to_string(*n));
  b.check_size(given[0] - 1, std::string(what) + " - 1");
  return given[0];
}

Result<std::vector<ValueId>> decompose_dft(Graph& g, const Node& n, int) {
  B b(g, n);
  const Attributes& a = n.attributes;
  const bool inverse = a.i("inverse") != 0, onesided = a.i("onesided") != 0;
  const int rank = b.rank(b.in(0));
  int64_t axis = a.i("axis", default_axis(n));
  if (b.has(2)) {
    const Ints given = b.known_ints(2);
    if (b.ok() && given.size() != 1) b.fail(ErrorCode::BadAttribute, "the axis of DFT must be one number");
    if (b.ok()) axis = given[0];
  }
  axis = b.axis(axis, rank);
  if (b.ok() && rank > 0 && axis == rank - 1)
    b.fail(ErrorCode::BadAttribute, "the last dimension of DFT holds real and imaginary part");
  if (!b.ok()) return b.failed();
  const bool real_result = inverse && onesided;
  const SymExpr size = b.dim(b.in(0), axis);
  const SymExpr length = length_of(b, 1, real_result ? (size - 1) * 2 : size, "dft_length");
  Ints to_back, to_place; // the axis next to the last one and back
  for (int64_t i = 0; i + 1 < rank; ++i)
    if (i != axis) to_back.push_back(i);
  to_back.push_back(axis);
  to_back.push_back(rank - 1);
  to_place.resize(to_back.size());
  for (size_t i = 0; i < to_back.size(); ++i) to_place[static_cast<size_t>(to_back[i])] = static_cast<int64_t>(i);
  ValueId x = transpose(b, widen(b, b.in(0)), to_back);
  ValueId y = fourier(b, x, {length, inverse, onesided});
  return b.done(cast(b, transpose(b, y, to_place), b.dtype(b.in(0))));
}

OpDef dft_record() {
  OpDef def;
  def.name = "DFT";
  def.summary = "discrete Fourier transform along an axis; the last dimension holds real and imaginary part";
  def.onnx = {{"DFT", "", 17}};
  def.operands = {{"input", TypeSet::Float}, {"dft_length", TypeSet::Index, true}, {"axis", TypeSet::Index, true}};
  def.attributes = {{"axis", AttrKind::Int},
                    {"inverse", AttrKind::Int, false, int64_t{0}},
                    {"onesided", AttrKind::Int, false, int64_t{0}}};
  def.meaning = Decomposition{decompose_dft};
  def.reference = reference_dft;
  def.samples = [] {
    Tensor none, x = random(DType::F32, {2, 6, 1}, 1), z = random(DType::F64, {2, 5, 3, 2}, 2);
    return std::vector<Sample>{
        sample({x}), sample({x}, {{"onesided", int64_t{1}}}), sample({z, none, scalar(DType::I64, 1)}),
        sample({z, scalar(DType::I64, 7), scalar(DType::I64, -3)}, {{"inverse", int64_t{1}}}),
        sample({z, scalar(DType::I64, 4)}, {{"axis", int64_t{2}}}, 17),
        sample({z}, {{"inverse", int64_t{1}}, {"onesided", int64_t{1}}}),
        // Lengths of several factors, with a large prime one, and prime ones themselves.
        sample({random(DType::F64, {2, 240, 2}, 3)}, {{"inverse", int64_t{1}}}),
        sample({random(DType::F64, {1, 256, 1}, 4)}, {{"onesided", int64_t{1}}}),
        sample({random(DType::F64, {1, 129, 2}, 5)}, {{"inverse", int64_t{1}}, {"onesided", int64_t{1}}}),
        sample({random(DType::F64, {1, 202, 1}, 6)}), sample({random(DType::F64, {1, 211, 2}, 7)})};
  };
  def.error_samples = [] {
    Tensor none;
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 6, 3})}, {}, ErrorCode::ShapeMismatch, "real"),
        wrong({random(DType::F32, {2, 6, 1}), none, scalar(DType::I64, 2)}, {}, ErrorCode::BadAttribute, "last"),
        wrong({random(DType::F32, {2, 6, 1}), scalar(DType::I64, 0)}, {}, ErrorCode::BadAttribute, "dft_length")};
  };
  return def;
}

// ---- STFT
Status infer_stft(InferContext& c) {
  const SymShape x = c.shape(0);
  bool flat = x.size() == 2;
  if (!flat && x.size() != 3)
    return c.error(ErrorCode::ShapeMismatch, "STFT takes [batch, length, 1 or 2], not " + str(x));
  if (!flat && !x[2].is_const(1) && !x[2].is_const(2))
    return c.error(ErrorCode::ShapeMismatch, "STFT takes [batch, length, 1 or 2], not " + str(x));
  bool onesided = c.node.attributes.i("onesided", 1) != 0;
  if (onesided && !flat && !x[2].is_const(1))
    return c.error(ErrorCode::ShapeMismatch, "a one-sided STFT takes a real signal, not " + str(x));
  if (c.has(2) && c.type(2).rank() != 1)
    return c.error(ErrorCode::ShapeMismatch, "the window of STFT is a vector, not " + str(c.shape(2)));
  SymExpr length = x[1], bins;
  bool length_known = !c.has(3) || c.known(3).ok();
  if (c.has(3)) {
    TESSERA_ASSIGN(bins, bins_of(c, 3, "frame_length", onesided));
    if (length_known) length = (*c.known(3))[0];
  } else {
    if (c.has(2)) length = c.shape(2)[0];
    bins = onesided ? half(length) : length;
  }
  SymExpr frames;
  auto step = c.known(1);
  if (step.ok()) {
    if (step->size() != 1) return c.error(ErrorCode::BadAttribute, "frame_step must be one number");
    if (auto s = (*step)[0].as_const(); s && *s < 1)
      return c.error(ErrorCode::BadAttribute, "frame_step is " + std::to_string(*s));
  }
  frames = step.ok() && length_known ? floordiv(x[1] - length, (*step)[0]) + 1 : c.env().create_symbol("frames");
  return set_result(c, c.type(0).dtype, {x[0], frames, bins, 2});
}

Status reference_stft(ReferenceContext& c) {
  const Tensor& x = c.operands[0];
  int64_t batch = x.dims()[0], size = x.dims()[1], parts = x.dims().size() == 3 ? x.dims()[2] : 1;
  TESSERA_ASSIGN(int64_t step, one_number(c, 1, 1, "frame_step"));
  int64_t length = given(c, 2) ? c.operands[2].count() : size;
  if (given(c, 3)) {
    TESSERA_ASSIGN(length, one_number(c, 3, 1, "frame_length"));
  }
  if (length < 1 || length > size)
    return c.error(ErrorCode::BadInput,
                   "frames of " + std::to_string(length) + " of a signal of " + std::to_string(size));
  if (given(c, 2) && c.operands[2].count() != length)
    return c.error(ErrorCode::BadInput, "window and frame_length of STFT differ");
  int64_t frames = (size - length) / step + 1, bins = c.node.attributes.i("onesided", 1) != 0 ? length / 2 + 1 : length;
  TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), {batch, frames, bins, 2}));
  std::vector<Complex> frame(static_cast<size_t>(length));
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t f = 0; f < frames; ++f) {
      for (int64_t i = 0; i < length; ++i) {
        int64_t at = (n * size + f * step + i) * parts;
        double w = given(c, 2) ? c.operands[2].get_f64(i) : 1;
        frame[static_cast<size_t>(i)] = {w * x.get_f64(at), parts == 2 ? w * x.get_f64(at + 1) : 0};
      }
      std::vector<Complex> spectrum = transform(frame, length, bins, -1);
      for (int64_t k = 0; k < bins; ++k) {
        int64_t at = ((n * frames + f) * bins + k) * 2;
        out.set_f64(at, spectrum[static_cast<size_t>(k)].re);
        out.set_f64(at + 1, spectrum[static_cast<size_t>(k)].im);
      }
    }
  c.results = {out};
  return {};
}

Result<std::vector<ValueId>> decompose_stft(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = widen(b, b.in(0));
  if (b.rank(x) == 2) x = unsqueeze(b, x, {2});
  const std::vector<SymExpr> step = b.sizes(1);
  if (b.ok() && step.size() != 1) b.fail(ErrorCode::BadAttribute, "frame_step must be one number");
  const SymExpr length = length_of(b, 3, b.has(2) ? b.dim(b.in(2), 0) : b.dim(x, 1), "frame_length");
  if (!b.ok()) return b.failed();
  b.check_size(step[0] - 1, "frame_step");
  b.check_size(b.dim(x, 1) - length, "the signal less a frame of STFT");
  if (b.has(2))
    b.check(b.env().require_equal(b.dim(b.in(2), 0), length, "window and frame_length of STFT", n.location));
  const SymExpr frames = floordiv(b.dim(x, 1) - length, step[0]) + 1;
  ValueId first = mul(b, ramp(b, frames, 2, 0), b.size(step[0], DType::I64));
  ValueId frame = gather(b, x, add(b, first, ramp(b, length, 2, 1)), 1); // [batch, frames, length, parts]
  if (b.has(2)) frame = mul(b, frame, reshape(b, widen(b, b.in(2)), {length, 1}));
  ValueId y = fourier(b, frame, {length, false, n.attributes.i("onesided", 1) != 0});
  return b.done(cast(b, y, b.dtype(b.in(0))));
}

OpDef stft_record() {
  OpDef def;
  def.name = "STFT";
  def.summary = "Fourier transforms of overlapping frames of a signal";
  def.onnx = {{"STFT", "", 17}};
  def.operands = {{"signal", TypeSet::Float},
                  {"frame_step", TypeSet::Index},
                  {"window", TypeSet::SameAsFirst, true},
                  {"frame_length", TypeSet::Index, true}};
  def.attributes = {{"onesided", AttrKind::Int, false, int64_t{1}}};
  def.infer = infer_stft;
  def.meaning = Decomposition{decompose_stft};
  def.reference = reference_stft;
  def.samples = [] {
    Tensor none, x = random(DType::F32, {2, 20, 1}, 1);
    return std::vector<Sample>{
        sample({x, scalar(DType::I64, 4), none, scalar(DType::I64, 8)}),
        sample({x, scalar(DType::I64, 3), random(DType::F32, {6}, 2)}),
        sample({random(DType::F32, {1, 12, 2}, 3), scalar(DType::I64, 4), none, scalar(DType::I64, 5)},
               {{"onesided", int64_t{0}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {20}), scalar(DType::I64, 4)}, {}, ErrorCode::ShapeMismatch, "batch"),
        wrong({random(DType::F32, {1, 20, 1}), scalar(DType::I64, 0)}, {}, ErrorCode::BadAttribute, "frame_step")};
  };
  return def;
}

// ---- MelWeightMatrix
Status reference_mel(ReferenceContext& c) {
  TESSERA_ASSIGN(int64_t bands, one_number(c, 0, 0, "num_mel_bins"));
  TESSERA_ASSIGN(int64_t length, one_number(c, 1, 1, "dft_length"));
  TESSERA_ASSIGN(int64_t rate, one_number(c, 2, 1, "sample_rate"));
  if (c.operands[3].count() != 1 || c.operands[4].count() != 1)
    return c.error(ErrorCode::BadInput, "the edges of mel bands must be one number each");
  double low = c.operands[3].get_f64(0), high = c.operands[4].get_f64(0);
  auto mel = [](double hz) { return 2595 * std::log10(1 + hz / 700); };
  auto hertz = [](double m) { return 700 * (std::pow(10, m / 2595) - 1); };
  int64_t bins = length / 2 + 1;
  TESSERA_ASSIGN(Tensor out, Tensor::create(c.result_types[0].dtype, {bins, bands}, true));
  std::vector<int64_t> edges;
  double step = (mel(high) - mel(low)) / static_cast<double>(bands + 2);
  for (int64_t i = 0; i < bands + 2; ++i) {
    double edge = std::floor(static_cast<double>(length + 1) * hertz(mel(low) + step * static_cast<double>(i)) /
                             static_cast<double>(rate));
    if (!(edge >= 0 && edge < static_cast<double>(bins)))
      return c.error(ErrorCode::BadInput, "a mel band lies outside of the spectrum");
    edges.push_back(static_cast<int64_t>(edge));
  }
  auto put = [&](int64_t bin, int64_t band, double v) {
    if (is_float(out.dtype()))
      out.set_f64(bin * bands + band, v);
    else
      out.set_i64(bin * bands + band, static_cast<int64_t>(v));
  };
  for (int64_t band = 0; band < bands; ++band) { // a triangle from edge to edge
    auto b = static_cast<size_t>(band);
    int64_t left = edges[b], centre = edges[b + 1], right = edges[b + 2];
    if (left == centre) put(centre, band, 1);
    for (int64_t i = left; i <= centre && left != centre; ++i)
      put(i, band, static_cast<double>(i - left) / static_cast<double>(centre - left));
    for (int64_t i = centre; i < right; ++i)
      put(i, band, static_cast<double>(right - i) / static_cast<double>(right - centre));
  }
  c.results = {out};
  return {};
}

Result<std::vector<ValueId>> decompose_mel(Graph& g, const Node& n, int) {
  B b(g, n);
  TESSERA_ASSIGN(DType d, dtype_attribute(n, "output_datatype", DType::F32));
  const std::vector<SymExpr> bands = b.sizes(0), length = b.sizes(1);
  if (b.ok() && (bands.size() != 1 || length.size() != 1))
    b.fail(ErrorCode::BadAttribute, "the sizes of MelWeightMatrix are one number each, not several elements");
  if (!b.ok()) return b.failed();
  const SymExpr bins = half(length[0]);
  auto number = [&](int i) {
    b.check(b.env().require_equal(b.type(b.in(i)).count(), 1, "a number of MelWeightMatrix", n.location));
    return cast(b, reshape(b, b.in(i), {}), DType::F64);
  };
  // In f64: edges are whole bins. 2595 log10(1 + hz / 700) and its inverse.
  const double scale = 2595 / std::numbers::ln10;
  auto mel = [&](ValueId hz) { return mul(b, log(b, add(b, div(b, hz, 700.0), 1.0)), scale); };
  ValueId low = mel(number(3)), high = mel(number(4));
  ValueId step = div(b, sub(b, high, low), b.size(bands[0] + 2, DType::F64));
  ValueId edge = add(b, low, mul(b, ramp(b, bands[0] + 2, 1, 0, DType::F64), step));
  ValueId hertz = mul(b, sub(b, exp(b, mul(b, edge, 1 / scale)), 1.0), 700.0);
  edge = index(b, floor(b, div(b, mul(b, hertz, b.size(length[0] + 1, DType::F64)), number(2))));
  edge = cast(b, gather(b, ramp(b, bins, 1, 0), edge, 0), DType::F64); // checked to be bins
  auto edges = [&](int64_t first) { return slice(b, edge, 0, first, bands[0]); };
  ValueId left = edges(0), centre = edges(1), right = edges(2), i = ramp(b, bins, 2, 0, DType::F64);
  auto share = [&](ValueId part, ValueId whole) { return div(b, part, max(b, whole, 1.0)); };
  ValueId rising = share(sub(b, i, left), sub(b, centre, left)),
          falling = share(sub(b, right, i), sub(b, right, centre));
  ValueId v = select(b, lt(b, i, centre), rising, falling);
  v = select(b, logical_and(b, ge(b, i, left), le(b, i, right)), v, 0.0);
  return b.done(cast(b, select(b, eq(b, i, centre), 1.0, v), d)); // a triangle from edge to edge
}

OpDef mel_record() {
  OpDef def;
  def.name = "MelWeightMatrix";
  def.summary = "weights that turn a spectrum into mel bands";
  def.onnx = {{"MelWeightMatrix", "", 17}};
  def.operands = {{"num_mel_bins", TypeSet::Index},
                  {"dft_length", TypeSet::Index},
                  {"sample_rate", TypeSet::Index},
                  {"lower_edge_hertz", TypeSet::Float},
                  {"upper_edge_hertz", TypeSet::Float}};
  def.attributes = {{"output_datatype", AttrKind::Int, false, int64_t{1}}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_ASSIGN(DType d, dtype_attribute(c.node, "output_datatype", DType::F32));
    if (!is_float(d) && !is_integer(d))
      return c.error(ErrorCode::UnsupportedType, "mel weights of type " + std::string(name(d)));
    TESSERA_ASSIGN(SymShape bands, known_or_fresh(c, 0, 1, "bands"));
    TESSERA_ASSIGN(SymExpr bins, bins_of(c, 1, "dft_length", true));
    return set_result(c, d, {bins, bands[0]});
  };
  def.meaning = Decomposition{decompose_mel};
  def.reference = reference_mel;
  def.samples = [] {
    return std::vector<Sample>{sample({scalar(DType::I64, 8), scalar(DType::I64, 16), scalar(DType::I64, 8192),
                                       scalar(DType::F32, 0), scalar(DType::F32, 4096)})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({vec({8, 8}), scalar(DType::I64, 16), scalar(DType::I64, 8192),
                                           scalar(DType::F32, 0), scalar(DType::F32, 4096)},
                                          {}, ErrorCode::BadAttribute, "elements")};
  };
  return def;
}

} // namespace

void register_signal_ops(OpTable& table) {
  table.add(window_record("HannWindow", "HannWindow", 0.5, 0.5, 0));
  table.add(window_record("HammingWindow", "HammingWindow", 25.0 / 46, 21.0 / 46, 0));
  table.add(window_record("BlackmanWindow", "BlackmanWindow", 0.42, 0.5, 0.08));
  table.add(dft_record());
  table.add(stft_record());
  table.add(mel_record());
}

} // namespace tessera
