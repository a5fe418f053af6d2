// Inverses of window operators: MaxUnpool puts maxima back where they came from, Col2Im adds blocks into an image.
#include "graph/ops/parts.h"
#include "graph/ops/sampling.h"

namespace tessera {

namespace {
using namespace ops;

// ---- MaxUnpool
Result<Window> unpool_window(const Node& node, size_t rank, Ints& kernel) {
  kernel = node.attributes.ints("kernel_shape");
  if (rank < 3 || kernel.size() != rank - 2)
    return Diagnostic(ErrorCode::BadAttribute, node.location,
                      "attribute 'kernel_shape' does not match an input of rank " + std::to_string(rank));
  for (int64_t k : kernel)
    if (k < 1 || k > (int64_t{1} << 40))
      return Diagnostic(ErrorCode::BadAttribute, node.location, "a kernel of size " + std::to_string(k));
  return onnx_window(node, static_cast<int>(kernel.size()));
}

// The values are written into zeros at their positions, which count in the natural size; a larger requested one surrounds
// it.
Result<std::vector<ValueId>> decompose_max_unpool(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0), position = index(b, b.in(1));
  const SymShape shape = b.shape(x);
  Ints kernel;
  TESSERA_ASSIGN(Window w, unpool_window(n, shape.size(), kernel));
  SymShape natural = {shape[0], shape[1]};
  for (size_t k = 0; k < kernel.size(); ++k)
    natural.push_back((shape[k + 2] - 1) * w.strides[k] - (w.pads_begin[k] + w.pads_end[k]) + kernel[k]);
  SymShape dims = natural;
  if (b.has(2)) dims = b.sizes(2);
  if (!b.ok()) return b.failed();
  const SymExpr total = product(dims), count = product(shape);
  if (dims != natural) { // the same element, counted in the requested size; outside of it, behind the last element
    ValueId at = b.scalar_i(DType::I64, 0), outside = b.scalar_i(DType::Bool, 0);
    for (size_t k = 0; k < dims.size(); ++k) {
      const SymExpr below = product(std::span(natural).subspan(k + 1));
      const SymExpr stride = product(std::span(dims).subspan(k + 1));
      ValueId size = b.size(below, DType::I64), i = div(b, position, size);
      position = sub(b, position, mul(b, i, size));
      at = add(b, at, mul(b, i, b.size(stride, DType::I64)));
      outside = logical_or(b, outside, ge(b, i, b.size(dims[k], DType::I64)));
    }
    position = select(b, outside, b.size(total, DType::I64), at);
  }
  ValueId zeros = expand(b, b.like(x, 0), {total});
  ValueId y = b.op("scatter_elements", {zeros, reshape(b, position, {count}), reshape(b, x, {count})},
                   {{"axis", int64_t{0}}, {"reduction", std::string("none")}});
  return b.done(reshape(b, y, dims));
}

OpDef max_unpool_record() {
  OpDef def;
  def.name = "MaxUnpool";
  def.summary = "zeros, with values at the positions that a maximum pooling reported";
  def.onnx = {{"MaxUnpool", "", 9}};
  def.operands = {{"X", TypeSet::Float}, {"I", TypeSet::Index}, {"output_shape", TypeSet::Index, true}};
  def.attributes = {{"kernel_shape", AttrKind::Ints, true}, {"pads", AttrKind::Ints}, {"strides", AttrKind::Ints}};
  def.infer = [](InferContext& c) -> Status {
    const SymShape x = c.shape(0), i = c.shape(1);
    Ints kernel;
    TESSERA_ASSIGN(Window w, unpool_window(c.node, x.size(), kernel));
    if (i.size() != x.size())
      return c.error(ErrorCode::ShapeMismatch,
                     "values and positions of MaxUnpool differ: " + str(x) + " and " + str(i));
    for (size_t k = 0; k < x.size(); ++k)
      TESSERA_TRY(c.env().require_equal(i[k], x[k], "values and positions of MaxUnpool", c.node.location));
    SymShape out = {x[0], x[1]};
    if (c.has(2)) {
      TESSERA_ASSIGN(out, known_or_fresh(c, 2, x.size(), "unpool"));
      return set_result(c, c.type(0).dtype, std::move(out));
    }
    for (size_t k = 0; k < kernel.size(); ++k)
      out.push_back((x[k + 2] - 1) * w.strides[k] - (w.pads_begin[k] + w.pads_end[k]) + kernel[k]);
    return set_result(c, c.type(0).dtype, std::move(out));
  };
  def.meaning = Decomposition{decompose_max_unpool};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    Ints kernel;
    TESSERA_ASSIGN(Window w, unpool_window(c.node, x.dims().size(), kernel));
    // Positions count in the natural size; a larger requested one surrounds it.
    Dims natural = {x.dims()[0], x.dims()[1]};
    for (size_t k = 0; k < kernel.size(); ++k)
      natural.push_back((x.dims()[k + 2] - 1) * w.strides[k] - (w.pads_begin[k] + w.pads_end[k]) + kernel[k]);
    Dims dims = given(c, 2) ? to_i64(c.operands[2]) : natural;
    if (dims.size() != natural.size())
      return c.error(ErrorCode::BadInput, "output_shape of MaxUnpool has a wrong number of elements");
    TESSERA_ASSIGN([[maybe_unused]] int64_t count, element_count(dims));
    TESSERA_ASSIGN(int64_t places, element_count(natural));
    TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), dims, true));
    Dims from = strides_of(natural), to = strides_of(dims);
    for (int64_t i = 0; i < x.count(); ++i) {
      int64_t position = c.operands[1].get_i64(i), at = 0;
      if (position < 0 || position >= places)
        return c.error(ErrorCode::BadInput, "a position of MaxUnpool is " + std::to_string(position));
      bool inside = true;
      for (size_t k = 0; k < dims.size(); ++k) {
        int64_t p = position / from[k];
        position %= from[k];
        inside = inside && p < dims[k];
        at += p * to[k];
      }
      if (!inside) return c.error(ErrorCode::BadInput, "a position of MaxUnpool lies outside of output_shape");
      out.set_f64(at, x.get_f64(i));
    }
    c.results = {out};
    return {};
  };
  def.samples = [] {
    Attributes a = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
    Tensor x = floats({1, 1, 2, 2}, {1, 2, 3, 4}), i = integers(DType::I64, {1, 1, 2, 2}, {5, 7, 13, 15});
    return std::vector<Sample>{sample({x, i}, a), sample({x, i, vec({1, 1, 5, 5})}, a)};
  };
  def.error_samples = [] {
    Tensor x = floats({1, 1, 2, 2}, {1, 2, 3, 4}), i = integers(DType::I64, {1, 1, 2, 1}, {5, 7});
    return std::vector<ErrorSample>{
        wrong({x, i}, {{"kernel_shape", Ints{2, 2}}}, ErrorCode::ShapeMismatch, ""),
        wrong({x, i}, {{"kernel_shape", Ints{2}}}, ErrorCode::BadAttribute, "kernel_shape")};
  };
  return def;
}

// ---- Col2Im
// Each pixel is the sum, over the positions in a block, of the block that has the pixel there, where there is one.
Result<std::vector<ValueId>> decompose_col2im(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0);
  const std::vector<SymExpr> image = b.sizes(1), block = b.sizes(2);
  if (b.ok() && image.size() != block.size())
    b.fail(ErrorCode::ShapeMismatch, "image_shape and block_shape of Col2Im differ in length");
  if (!b.ok()) return b.failed();
  const size_t rank = image.size(), total = 2 * rank + 2;
  TESSERA_ASSIGN(Window w, onnx_window(n, static_cast<int>(rank)));
  SymShape blocks;
  for (size_t i = 0; i < rank; ++i) {
    SymExpr room = image[i] + (w.pads_begin[i] + w.pads_end[i]) - reach(block[i], w.dilations[i]);
    b.check_size(room, "room for the block of Col2Im");
    blocks.push_back(floordiv(room, w.strides[i]) + 1);
  }
  const SymExpr area = product(block), channels = floordiv(b.dim(x, 1), area);
  b.check(b.env().require_equal(b.dim(x, 1), channels * area, "channels and block of Col2Im", n.location));
  b.check(b.env().require_equal(b.dim(x, 2), product(blocks), "blocks of Col2Im", n.location));
  SymShape split = {b.dim(x, 0), channels};
  split.insert(split.end(), block.begin(), block.end());
  split.insert(split.end(), blocks.begin(), blocks.end());
  std::vector<ValueId> at = {ramp(b, split[0], total, 0), ramp(b, channels, total, 1)}, from;
  Ints zero, axes;
  for (size_t i = 0; i < rank; ++i) {
    const size_t axis = rank + 2 + i; // of the position in a block
    ValueId k = ramp(b, block[i], total, axis), stride = b.scalar_i(DType::I64, w.strides[i]);
    ValueId place = add(b, ramp(b, image[i], total, i + 2), b.scalar_i(DType::I64, w.pads_begin[i]));
    place = sub(b, place, mul(b, k, b.scalar_i(DType::I64, w.dilations[i])));
    ValueId number = div(b, place, stride), none = b.scalar_i(DType::I64, -1);
    ValueId starts = logical_and(b, eq(b, mul(b, number, stride), place), ge(b, place, b.scalar_i(DType::I64, 0)));
    at.push_back(k);
    from.push_back(select(b, starts, number, none));
    zero.push_back(static_cast<int64_t>(axis));
    axes.push_back(static_cast<int64_t>(axis));
  }
  at.insert(at.end(), from.begin(), from.end());
  ValueId v = widen(b, gather_at(b, reshape(b, x, split), std::move(at), std::move(zero)));
  return b.done(cast(b, sum(b, v, std::move(axes), false), b.dtype(x)));
}

OpDef col2im_record() {
  OpDef def;
  def.name = "Col2Im";
  def.summary = "an image as the sum of its blocks";
  def.onnx = {{"Col2Im", "", 18}};
  def.aten = {"col2im"};
  def.operands = {{"input", TypeSet::Numeric}, {"image_shape", TypeSet::Index}, {"block_shape", TypeSet::Index}};
  def.attributes = {{"dilations", AttrKind::Ints}, {"pads", AttrKind::Ints}, {"strides", AttrKind::Ints}};
  def.infer = [](InferContext& c) -> Status {
    const SymShape x = c.shape(0), n = c.shape(1);
    if (x.size() != 3 || n.size() != 1 || !n[0].is_const())
      return c.error(ErrorCode::ShapeMismatch, "Col2Im takes [N, C * block, blocks] and a shape, not " + str(x));
    if (n[0].const_value() < 1 || n[0].const_value() > 16)
      return c.error(ErrorCode::ShapeMismatch, "an image of " + n[0].str() + " dimensions");
    auto rank = static_cast<size_t>(n[0].const_value());
    TESSERA_ASSIGN([[maybe_unused]] Window w, onnx_window(c.node, static_cast<int>(rank)));
    TESSERA_ASSIGN(SymShape image, known_or_fresh(c, 1, rank, "image"));
    SymExpr channels;
    if (auto block = c.known(2); block.ok()) {
      SymExpr area = product(*block);
      if (area.is_const() && area.const_value() < 1)
        return c.error(ErrorCode::BadAttribute, "a block of " + area.str() + " elements");
      channels = floordiv(x[1], area);
    } else {
      channels = c.env().create_symbol("channels");
    }
    SymShape out = {x[0], channels};
    out.insert(out.end(), image.begin(), image.end());
    return set_result(c, c.type(0).dtype, std::move(out));
  };
  def.meaning = Decomposition{decompose_col2im};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    Dims image = to_i64(c.operands[1]), block = to_i64(c.operands[2]), blocks;
    if (image.size() != block.size())
      return c.error(ErrorCode::BadInput, "image_shape and block_shape of Col2Im differ in length");
    TESSERA_ASSIGN(Window w, onnx_window(c.node, static_cast<int>(image.size())));
    for (size_t i = 0; i < image.size(); ++i) {
      int64_t room =
          block[i] < 1 ? -1 : image[i] + w.pads_begin[i] + w.pads_end[i] - ((block[i] - 1) * w.dilations[i] + 1);
      if (room < 0) return c.error(ErrorCode::BadInput, "the block of Col2Im does not fit its image");
      blocks.push_back(room / w.strides[i] + 1);
    }
    TESSERA_ASSIGN(int64_t area, element_count(block));
    TESSERA_ASSIGN(int64_t count, element_count(blocks));
    if (x.dims()[1] % area != 0 || x.dims()[2] != count)
      return c.error(ErrorCode::BadInput, "the input of Col2Im does not hold " + std::to_string(count) + " blocks");
    int64_t channels = x.dims()[1] / area;
    Dims dims = {x.dims()[0], channels};
    dims.insert(dims.end(), image.begin(), image.end());
    TESSERA_ASSIGN(int64_t size, element_count(dims));
    std::vector<double> sums(static_cast<size_t>(size));
    Dims stride = strides_of(image);
    int64_t pixels = 1;
    for (int64_t d : image) pixels *= d;
    for (int64_t plane = 0; plane < dims[0] * channels; ++plane)
      for (MultiIndex k(block); !k.done(); k.next())
        for (MultiIndex b(blocks); !b.done(); b.next()) {
          int64_t at = 0;
          bool inside = true;
          for (size_t i = 0; i < image.size() && inside; ++i) {
            int64_t p = b[i] * w.strides[i] + k[i] * w.dilations[i] - w.pads_begin[i];
            inside = p >= 0 && p < image[i];
            at += p * stride[i];
          }
          if (!inside) continue;
          int64_t from = (plane * area + k.i()) * count + b.i();
          sums[static_cast<size_t>(plane * pixels + at)] +=
              is_float(x.dtype()) ? x.get_f64(from) : static_cast<double>(x.get_i64(from));
        }
    TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), dims));
    for (int64_t i = 0; i < size; ++i) {
      double v = sums[static_cast<size_t>(i)];
      if (is_float(x.dtype()))
        out.set_f64(i, v);
      else
        out.set_i64(i, static_cast<int64_t>(v));
    }
    c.results = {out};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::I32, {1, 4, 4}, 1), vec({5, 5}), vec({2, 2})},
               {{"strides", Ints{2, 2}}, {"dilations", Ints{2, 2}}}),
        sample({random(DType::F16, {2, 6, 3}, 1), vec({4}), vec({2})}),
        sample({random(DType::F64, {1, 8, 8}, 1), vec({3, 3, 3}), vec({2, 2, 2})}),
        sample({random(DType::F32, {1, 5, 5}, 1), vec({5, 5}), vec({1, 5})}),
        sample({random(DType::F32, {2, 8, 4}, 1), vec({4, 4}), vec({2, 2})}, {{"strides", Ints{2, 2}}}),
        sample({random(DType::F32, {1, 4, 9}, 1), vec({2, 2}), vec({2, 2})}, {{"pads", Ints{1, 1, 1, 1}}}),
    };
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {5, 5}), vec({5, 5}), vec({1, 5})}, {}, ErrorCode::ShapeMismatch, "Col2Im"),
        wrong({random(DType::F32, {1, 5, 5}), vec({5, 5}), vec({1, 5})}, {{"strides", Ints{0, 1}}},
              ErrorCode::BadAttribute, "strides")};
  };
  return def;
}

} // namespace

void register_unpool_ops(OpTable& table) {
  table.add(max_unpool_record());
  table.add(col2im_record());
}

} // namespace tessera
