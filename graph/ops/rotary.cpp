// RotaryEmbedding: pairs of components turned by an angle of the position. x is [batch, heads, length, size], or
// [batch, length, heads * size]; the caches hold cosines and sines of half the turned components.
#include "graph/ops/build.h"

namespace tessera {
namespace {
using namespace ops;

Result<std::vector<ValueId>> decompose_rotary(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0);
  SymShape shape = b.shape(x);
  int64_t heads = b.attr().i("num_heads", 0), turned = b.attr().i("rotary_embedding_dim", 0);
  if (shape.size() != 3 && shape.size() != 4)
    b.fail(ErrorCode::ShapeMismatch, "3 or 4 dimensions are needed, not " + b.type(x).str());
  if (shape.size() == 3 && heads < 1 && turned == 0 && b.ok()) { // the caches say how large a head is
    const auto half = b.dim(b.in(1), b.rank(b.in(1)) - 1).as_const(), width = shape[2].as_const();
    if (half && width && *half > 0) heads = *width / (2 * *half);
  }
  if (shape.size() == 3 && heads < 1)
    b.fail(ErrorCode::BadAttribute, "num_heads is needed for an operand of 3 dimensions");
  if (!b.ok()) return b.failed();
  int64_t head_axis = 1; // where the caches get a dimension for the heads
  ValueId v = x;
  if (shape.size() == 3) {
    head_axis = 2;
    if (shape[2].is_const() && shape[2].const_value() % heads != 0)
      b.fail(ErrorCode::ShapeMismatch,
             "size " + shape[2].str() + " is no multiple of " + std::to_string(heads) + " heads");
    v = reshape(b, x, {shape[0], shape[1], heads, b.env().simplify(floordiv(shape[2], heads))});
  }
  auto size = b.dim(v, 3).as_const();
  if (!size) b.fail(ErrorCode::UnsupportedFeature, "the size of a head is not known when compiling");
  if (!b.ok()) return b.failed();
  if (turned == 0) turned = *size;
  if (turned < 2 || turned % 2 != 0 || turned > *size)
    b.fail(ErrorCode::BadAttribute,
           "rotary_embedding_dim " + std::to_string(turned) + " is no even number within the head");
  if (!b.ok()) return b.failed();
  bool interleaved = b.attr().i("interleaved", 0) != 0;
  auto angles = [&](int operand) {
    ValueId cache = b.in(operand);
    if (b.has(3)) cache = gather(b, cache, b.in(3), 0); // [batch, length, turned / 2]
    if (b.ok() && b.rank(cache) != 3)
      b.fail(ErrorCode::ShapeMismatch, "a cache of sines or cosines has the wrong rank: " + b.type(cache).str());
    if (b.ok())
      b.check(b.env().require_equal(b.dim(cache, 2), turned / 2, "caches hold half the turned components", n.location));
    return b.ok() ? widen(b, unsqueeze(b, cache, {head_axis})) : ValueId{};
  };
  ValueId cosine = angles(1), sine = angles(2), wide = widen(b, v);
  int64_t half = turned / 2;
  ValueId first = interleaved ? slice(b, wide, 3, 0, half, 2) : slice(b, wide, 3, 0, half);
  ValueId second = interleaved ? slice(b, wide, 3, 1, half, 2) : slice(b, wide, 3, half, half);
  ValueId real = sub(b, mul(b, cosine, first), mul(b, sine, second));
  ValueId imaginary = add(b, mul(b, sine, first), mul(b, cosine, second));
  if (!b.ok()) return b.failed();
  ValueId y;
  if (interleaved) {
    SymShape pairs = b.shape(real);
    pairs[3] = turned;
    y = reshape(b, concat(b, {unsqueeze(b, real, {4}), unsqueeze(b, imaginary, {4})}, 4), pairs);
  } else {
    y = concat(b, {real, imaginary}, 3);
  }
  if (turned < *size) y = concat(b, {y, slice(b, wide, 3, turned, *size - turned)}, 3);
  return b.done(cast(b, reshape(b, y, shape), b.dtype(x)));
}

OpDef rotary() {
  OpDef def = composite("RotaryEmbedding", "pairs of components turned by an angle that grows with the position",
                        {{"x", TypeSet::Float},
                         {"cos_cache", TypeSet::SameAsFirst},
                         {"sin_cache", TypeSet::SameAsFirst},
                         {"position_ids", TypeSet::Index, true}},
                        decompose_rotary);
  def.attributes = {integer("interleaved", 0), integer("num_heads", 0), integer("rotary_embedding_dim", 0)};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor &x = c.operands[0], &cosine = c.operands[1], &sine = c.operands[2];
    bool flat = x.dims().size() == 3, positions = c.operands.size() > 3 && c.operands[3].defined();
    bool interleaved = c.node.attributes.i("interleaved", 0) != 0;
    int64_t batch = x.dims()[0], heads = flat ? c.node.attributes.i("num_heads") : x.dims()[1];
    if (flat && heads == 0) heads = std::max<int64_t>(1, x.dims()[2] / std::max<int64_t>(1, 2 * cosine.dims().back()));
    int64_t length = flat ? x.dims()[1] : x.dims()[2], size = flat ? x.dims()[2] / heads : x.dims()[3];
    int64_t turned = c.node.attributes.i("rotary_embedding_dim", 0);
    if (turned == 0) turned = size;
    int64_t half = turned / 2;
    TESSERA_ASSIGN(Tensor y, take(x, x.dims(), [](int64_t i) { return i; }));
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t s = 0; s < length; ++s) {
          int64_t base = flat ? ((n * length + s) * heads + h) * size : ((n * heads + h) * length + s) * size;
          int64_t where = positions ? c.operands[3].get_i64(n * length + s) : n * length + s;
          if (where < 0 || (where + 1) * half > cosine.count())
            return c.error(ErrorCode::BadInput, "position " + std::to_string(where) + " is outside of the cache");
          for (int64_t k = 0; k < half; ++k) {
            int64_t i = base + (interleaved ? 2 * k : k), j = base + (interleaved ? 2 * k + 1 : k + half);
            double co = cosine.get_f64(where * half + k), si = sine.get_f64(where * half + k);
            y.set_f64(i, co * x.get_f64(i) - si * x.get_f64(j));
            y.set_f64(j, si * x.get_f64(i) + co * x.get_f64(j));
          }
        }
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    Tensor ids = integers(DType::I64, {2, 3}, {0, 1, 2, 4, 5, 1});
    for (DType d : {DType::F32, DType::F16})
      for (int64_t inter : {0, 1}) {
        Tensor x = random(d, {2, 4, 3, 8}, 1), flat = random(d, {2, 3, 32}, 1);
        Tensor c4 = random(d, {6, 4}, 2, -1, 1), s4 = random(d, {6, 4}, 3, -1, 1);
        out.push_back(sample({x, c4, s4, ids}, {{"interleaved", inter}}, 23));
        out.push_back(sample({flat, c4, s4, ids}, {{"interleaved", inter}, {"num_heads", int64_t{4}}}, 23));
        out.push_back(sample({flat, c4, s4, ids}, {{"interleaved", inter}}, 23)); // heads of twice the caches' width
        out.push_back(sample({x, random(d, {2, 3, 2}, 2), random(d, {2, 3, 2}, 3)},
                             {{"interleaved", inter}, {"rotary_embedding_dim", int64_t{4}}}, 23));
      }
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 3, 32}), c = random(DType::F32, {2, 3, 4});
    return std::vector<ErrorSample>{
        wrong({x, c, c}, {{"rotary_embedding_dim", int64_t{4}}}, ErrorCode::BadAttribute, "num_heads", 23),
        wrong({x, c, c}, {{"num_heads", int64_t{4}}, {"rotary_embedding_dim", int64_t{3}}}, ErrorCode::BadAttribute,
              "no even number", 23)};
  };
  return def;
}

} // namespace

void register_rotary_ops(OpTable& table) { table.add(rotary()); }

} // namespace tessera
