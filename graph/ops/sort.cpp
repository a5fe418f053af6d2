// Sorting: `sort_indices`, the order of elements along the last axis, and the primitives by which a GPU makes it.
//
// Order: NaN is greater than every number, -0 equals 0, equal elements keep their order. In descending order the greatest
// comes first, and equal elements keep their order, too.
//
// A run is a sorted list of packed elements: an element's key (u32, ordered as the elements are) in the high half of a
// u64, its index in the low half. A run's last places that no element takes hold kNoElement.
#include "graph/ops/parts.h"
#include <bit>
#include <cmath>
#include <numeric>

namespace tessera {

namespace {
using namespace ops;

constexpr uint64_t kNoElement = ~uint64_t{0};

// The first k positions of each row in order.
template <class F>
void each_order(const Tensor& x, bool descending, F f) {
  const int64_t n = x.dims().back(), rows = n == 0 ? 0 : x.count() / n;
  std::vector<int64_t> order(static_cast<size_t>(n));
  by_kind(x.dtype(), [&](auto zero) {
    using V = decltype(zero);
    auto less = [](V p, V q) { return p != p ? false : q != q ? true : p < q; };
    for (int64_t row = 0; row < rows; ++row) {
      std::iota(order.begin(), order.end(), int64_t{0});
      std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) {
        const V a = get<V>(x, row * n + p), b = get<V>(x, row * n + q);
        return descending ? less(b, a) : less(a, b);
      });
      f(row, order);
    }
  });
}

// ---- sort_indices
OpDef sort_indices_record() {
  OpDef def;
  def.name = "sort_indices";
  def.summary = "where the first k elements of the order along the last axis are";
  def.operands = {{"x", TypeSet::NumericOrBool}};
  def.attributes = {{"k", AttrKind::Dims, true}, {"descending", AttrKind::Int, false, int64_t{0}}};
  def.infer = [](InferContext& c) -> Status {
    SymShape shape = c.shape(0);
    const SymShape k = c.node.attributes.dims("k");
    if (shape.empty() || k.size() != 1)
      return c.error(ErrorCode::ShapeMismatch, "a sort takes a tensor with a dimension, and one number of elements");
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    TESSERA_TRY(c.env().require(sym_le(k[0], shape.back()), GuardClass::Required,
                                "elements that are taken of a dimension", c.node.location));
    TESSERA_TRY(c.env().require(sym_le(0, k[0]), GuardClass::Required, "elements that are taken of a dimension",
                                c.node.location));
    TESSERA_TRY(
        c.env().require(sym_le(shape.back(), kMax), GuardClass::Required, "elements that are sorted", c.node.location));
    shape.back() = k[0];
    return set_result(c, DType::I64, shape);
  };
  def.meaning = StructuredOp{Structured::Sort};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    TESSERA_ASSIGN(Dims k, c.dims("k"));
    Dims dims = x.dims();
    if (k[0] < 0 || k[0] > dims.back())
      return c.error(ErrorCode::BadInput,
                     std::to_string(k[0]) + " elements are taken of a dimension of " + std::to_string(dims.back()));
    dims.back() = k[0];
    TESSERA_ASSIGN(Tensor out, Tensor::create(DType::I64, dims));
    each_order(x, c.node.attributes.i("descending") != 0, [&](int64_t row, const std::vector<int64_t>& order) {
      for (int64_t i = 0; i < k[0]; ++i) out.set_i64(row * k[0] + i, order[static_cast<size_t>(i)]);
    });
    c.results = {out};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    uint64_t seed = 1;
    for (DType d : {DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8, DType::U8, DType::I16, DType::I32,
                    DType::U32, DType::I64, DType::U64, DType::Bool})
      for (int64_t descending : {0, 1}) {
        out.push_back(sample({random(d, {3, 37}, seed, d == DType::Bool ? 0 : -5, 5)},
                             {{"k", SymShape{descending != 0 ? 9 : 37}}, {"descending", descending}}));
        ++seed;
      }
    out.push_back(sample({floats({1, 8}, {0.0, -0.0, NAN, 1, -INFINITY, -NAN, INFINITY, 1})}, {{"k", SymShape{8}}}));
    out.push_back(sample({random(DType::F32, {1, 5000}, 7)}, {{"k", SymShape{300}}, {"descending", int64_t{1}}}));
    out.push_back(sample({random(DType::I32, {1, 9000}, 8, -9, 9)}, {{"k", SymShape{9000}}}));
    for (DType d : {DType::F32, DType::F64, DType::I8, DType::U64}) { // few of many, with ties
      Tensor x = random(d, {2, 700}, 11, d == DType::U64 ? 0 : -4, 4);
      if (is_float(d))
        for (int64_t i : {3, 5, 699, 710}) x.set_f64(i, i == 5 ? -INFINITY : NAN);
      for (int64_t descending : {0, 1})
        out.push_back(sample({x}, {{"k", SymShape{descending != 0 ? 5 : 21}}, {"descending", descending}}));
    }
    out.push_back(sample({random(DType::F32, {4, 1}, 9)}, {{"k", SymShape{1}}}));
    out.push_back(sample({random(DType::F32, {2, 3}, 9)}, {{"k", SymShape{0}}}));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {3, 4})}, {{"k", SymShape{5}}}, ErrorCode::ShapeMismatch, "taken"),
        wrong({random(DType::F32, {3, 4})}, {{"k", SymShape{1, 1}}}, ErrorCode::ShapeMismatch, "one number")};
  };
  return def;
}

// ---- sort_tiles
// Bits of an element of at most 32 bits, ordered as the elements are.
uint64_t key_of(const Tensor& x, int64_t i, bool descending) {
  const int bits = info(x.dtype()).bits;
  const auto bytes = static_cast<size_t>(bits / 8);
  uint32_t key = 0;
  std::memcpy(&key, x.data() + static_cast<size_t>(i) * bytes, bytes);
  const uint32_t all = bits == 32 ? ~0u : (1u << bits) - 1, sign = 1u << (bits - 1);
  if (is_float(x.dtype())) {
    const double v = x.get_f64(i);
    key = std::isnan(v) ? all : v == 0 ? sign : (key & sign) != 0 ? ~key & all : key | sign;
  } else if (info(x.dtype()).kind == DTypeKind::Signed) {
    key ^= sign;
  }
  return descending ? ~key & all : key;
}

bool is_packed(DType dtype) { return info(dtype).bits <= 32; }

OpDef sort_tiles_record() {
  OpDef def;
  def.name = "sort_tiles";
  def.summary = "the first elements of each tile of a row [rows, n], as runs [rows, tiles, keep] (sort.cpp)";
  def.operands = {{"x", TypeSet::NumericOrBool}};
  def.attributes = {{"tile", AttrKind::Int, true},
                    {"keep", AttrKind::Dims, true}, // at most the tile
                    {"descending", AttrKind::Int, false, int64_t{0}}};
  def.infer = [](InferContext& c) -> Status {
    const int64_t tile = c.node.attributes.i("tile");
    const SymShape shape = c.shape(0), keep = c.node.attributes.dims("keep");
    if (shape.size() != 2 || keep.size() != 1 || tile < 1)
      return c.error(ErrorCode::ShapeMismatch, "sort_tiles takes rows [rows, n], a tile and what is kept of it");
    if (!is_packed(c.type(0).dtype))
      return c.error(ErrorCode::UnsupportedType, "sort_tiles packs elements of at most 32 bits");
    // A row without elements is one tile of none: what fits into one tile is one run, whatever its size.
    const SymExpr tiles = c.env().simplify(sym_max(ceildiv(shape[1], tile), 1));
    return set_result(c, DType::U64, {shape[0], tiles, keep[0]});
  };
  def.meaning = StructuredOp{Structured::Sort};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    TESSERA_ASSIGN(Dims keep, c.dims("keep"));
    const int64_t tile = c.node.attributes.i("tile"), rows = x.dims()[0], n = x.dims()[1];
    const int64_t tiles = std::max<int64_t>((n + tile - 1) / tile, 1);
    TESSERA_ASSIGN(Tensor out, Tensor::create(DType::U64, {rows, tiles, keep[0]}));
    std::vector<uint64_t> run;
    for (int64_t t = 0; t < rows * tiles; ++t) {
      run.assign(static_cast<size_t>(std::max(tile, keep[0])), kNoElement);
      const int64_t row = t / tiles, first = t % tiles * tile;
      for (int64_t i = first; i < std::min(n, first + tile); ++i)
        run[static_cast<size_t>(i - first)] =
            key_of(x, row * n + i, c.node.attributes.i("descending") != 0) << 32 | static_cast<uint64_t>(i);
      std::sort(run.begin(), run.end());
      for (int64_t i = 0; i < keep[0]; ++i)
        out.set_i64(t * keep[0] + i, static_cast<int64_t>(run[static_cast<size_t>(i)]));
    }
    c.results = {out};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F16, DType::BF16, DType::I8, DType::U16, DType::I32, DType::Bool})
      out.push_back(sample({random(d, {2, 100}, 1, d == DType::Bool ? 0 : -5, 5)},
                           {{"tile", int64_t{64}}, {"keep", SymShape{64}}}));
    out.push_back(sample({random(DType::F32, {3, 50}, 2)},
                         {{"tile", int64_t{16}}, {"keep", SymShape{3}}, {"descending", int64_t{1}}}));
    out.push_back(sample({floats({1, 7}, {0.0, -0.0, NAN, 1, -INFINITY, -NAN, INFINITY})},
                         {{"tile", int64_t{8}}, {"keep", SymShape{8}}}));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F64, {1, 2})}, {{"tile", int64_t{2}}, {"keep", SymShape{2}}},
                                          ErrorCode::UnsupportedType, "32 bits")};
  };
  return def;
}

// ---- merge_runs
OpDef merge_runs_record() {
  OpDef def;
  def.name = "merge_runs";
  def.summary = "each two runs of [rows, runs, width] merged to one, of which the first elements are kept (sort.cpp)";
  def.operands = {{"runs", TypeSet::Numeric}};
  def.attributes = {{"keep", AttrKind::Dims, true}}; // at most two widths
  def.infer = [](InferContext& c) -> Status {
    const SymShape shape = c.shape(0), keep = c.node.attributes.dims("keep");
    if (shape.size() != 3 || keep.size() != 1 || c.type(0).dtype != DType::U64)
      return c.error(ErrorCode::ShapeMismatch, "merge_runs takes runs [rows, runs, width] of u64");
    return set_result(c, DType::U64, {shape[0], c.env().simplify(ceildiv(shape[1], 2)), keep[0]});
  };
  def.meaning = StructuredOp{Structured::Sort};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    TESSERA_ASSIGN(Dims keep, c.dims("keep"));
    const int64_t rows = x.dims()[0], runs = x.dims()[1], width = x.dims()[2], pairs = (runs + 1) / 2;
    TESSERA_ASSIGN(Tensor out, Tensor::create(DType::U64, {rows, pairs, keep[0]}));
    std::vector<uint64_t> both;
    for (int64_t p = 0; p < rows * pairs; ++p) {
      both.assign(static_cast<size_t>(2 * width), kNoElement);
      const int64_t first = p % pairs * 2;
      for (int64_t i = 0; i < std::min<int64_t>(2, runs - first) * width; ++i)
        both[static_cast<size_t>(i)] = static_cast<uint64_t>(x.get_i64((p / pairs * runs + first) * width + i));
      std::sort(both.begin(), both.end());
      for (int64_t i = 0; i < keep[0]; ++i)
        out.set_i64(p * keep[0] + i, static_cast<int64_t>(both[static_cast<size_t>(i)]));
    }
    c.results = {out};
    return {};
  };
  def.samples = [] {
    const Tensor three = integers(DType::U64, {1, 3, 4}, {1, 5, 6, -1, 0, 2, 7, 9, 3, 4, -1, -1});
    return std::vector<Sample>{sample({three}, {{"keep", SymShape{8}}}), sample({three}, {{"keep", SymShape{3}}}),
                               sample({integers(DType::U64, {2, 2, 1}, {4, 3, 1, 2})}, {{"keep", SymShape{2}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {1, 2, 2})}, {{"keep", SymShape{2}}}, ErrorCode::ShapeMismatch, "u64")};
  };
  return def;
}

OpDef packed_index_record() {
  OpDef def;
  def.name = "packed_index";
  def.summary = "the index of a packed element (sort.cpp): the low 32 bits as i64";
  def.operands = {{"x", TypeSet::Integer}};
  def.meaning = Pointwise{[](ScalarDag& d, std::span<const ScalarId> a, const Node&, const Graph&) {
    return Result<ScalarId>(d.op(ScalarOp::And, d.cast(a[0], DType::I64), d.constant_i(DType::I64, 0xffffffff)));
  }};
  def.infer = [](InferContext& c) { return set_result(c, DType::I64, c.shape(0)); };
  def.reference = [](ReferenceContext& c) -> Status {
    Dims out = to_i64(c.operands[0]);
    for (int64_t& v : out) v &= 0xffffffff;
    TESSERA_ASSIGN(Tensor y, from_i64(DType::I64, c.operands[0].dims(), out));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({integers(DType::U64, {3}, {5, (int64_t{9} << 32) + 7, -1})})};
  };
  def.error_samples = [] { return std::vector<ErrorSample>{wrong({}, {}, ErrorCode::MalformedModel, "operand")}; };
  return def;
}

} // namespace

void register_sort_primitives(OpTable& table) {
  table.add(sort_indices_record());
  table.add(sort_tiles_record());
  table.add(merge_runs_record());
  table.add(packed_index_record());
}

} // namespace tessera
