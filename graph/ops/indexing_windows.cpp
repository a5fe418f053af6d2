// windows: a dimension becomes several, as of the patches that a convolution reads. Elements may stand in several windows.
#include "graph/ops/build.h"

namespace tessera {

namespace {
using namespace ops;

Status infer_windows(InferContext& c) {
  const SymShape sizes = c.node.attributes.dims("sizes");
  const Ints strides = c.node.attributes.ints("strides");
  const int64_t axis = c.node.attributes.i("axis"), rank = c.type(0).rank();
  if (axis < 0 || axis >= rank)
    return c.error(ErrorCode::BadAttribute, "axis " + std::to_string(axis) + " of " + c.type(0).str() +
                                                ": expected 0 to " + std::to_string(rank - 1));
  if (sizes.empty() || sizes.size() != strides.size())
    return c.error(ErrorCode::BadAttribute, std::to_string(sizes.size()) + " sizes and " +
                                                std::to_string(strides.size()) +
                                                " strides; windows need one of each per dimension");
  SymShape shape = c.shape(0);
  const auto extent = shape[static_cast<size_t>(axis)].as_const();
  std::optional<int64_t> last = 0; // position of the last element; nothing: a size is not known, or there is none
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (strides[k] < 0)
      return c.error(ErrorCode::BadAttribute, "stride " + std::to_string(strides[k]) + " of windows is negative");
    const auto size = sizes[k].as_const();
    if (size && *size < 0) return c.error(ErrorCode::ShapeMismatch, "windows of a negative size");
    int64_t span = 0, sum = 0;
    if (!size || *size == 0 || !last) {
      last.reset();
    } else if (__builtin_mul_overflow(*size - 1, strides[k], &span) || __builtin_add_overflow(*last, span, &sum)) {
      return c.error(ErrorCode::ShapeMismatch, "positions in windows exceed 64 bits");
    } else {
      last = sum;
    }
  }
  if (last && extent && *last >= *extent)
    return c.error(ErrorCode::ShapeMismatch, "windows reach position " + std::to_string(*last) + " of dimension " +
                                                 std::to_string(axis) + " of " + c.type(0).str());
  const auto at = shape.erase(shape.begin() + axis);
  shape.insert(at, sizes.begin(), sizes.end());
  return set_result(c, c.type(0).dtype, std::move(shape));
}

Result<ScalarId> windows_body(ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
  IndexMath m{d};
  const Ints strides = n.attributes.ints("strides");
  const auto axis = static_cast<size_t>(n.attributes.i("axis"));
  std::vector<ScalarId> from(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(axis));
  ScalarId position = m.sym(0);
  for (size_t k = 0; k < strides.size(); ++k) position = m.add(position, m.mul(at[axis + k], m.sym(strides[k])));
  from.push_back(position);
  from.insert(from.end(), at.begin() + static_cast<std::ptrdiff_t>(axis + strides.size()), at.end());
  return load(d, g, n, 0, std::move(from));
}

Status reference_windows(ReferenceContext& c) {
  const Tensor& x = c.operands[0];
  TESSERA_ASSIGN(const Dims sizes, c.dims("sizes"));
  const Ints strides = c.node.attributes.ints("strides");
  const auto axis = static_cast<size_t>(c.node.attributes.i("axis"));
  Dims dims = x.dims(), stride = strides_of(dims);
  int64_t last = 0;
  bool empty = false;
  for (size_t k = 0; k < sizes.size(); ++k) {
    last += (sizes[k] - 1) * strides[k];
    empty = empty || sizes[k] == 0;
  }
  if (!empty && last >= dims[axis]) return c.error(ErrorCode::BadInput, "windows leave their tensor");
  const int64_t along = stride[axis];
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
  stride.erase(stride.begin() + static_cast<std::ptrdiff_t>(axis));
  for (size_t k = 0; k < sizes.size(); ++k) {
    const auto place = static_cast<std::ptrdiff_t>(axis + k);
    dims.insert(dims.begin() + place, sizes[k]);
    stride.insert(stride.begin() + place, along * strides[k]);
  }
  TESSERA_ASSIGN(Tensor y, take_at(x, dims, [&](const Dims& at) { return offset(at, stride); }));
  c.results = {y};
  return {};
}

OpDef windows_record() {
  OpDef def;
  def.name = "windows";
  def.summary = "dimension `axis` becomes dimensions of `sizes`: the element at the sum of index times stride";
  def.operands = {{"x", TypeSet::Any}};
  def.attributes = {{"axis", AttrKind::Int, true}, {"sizes", AttrKind::Dims, true}, {"strides", AttrKind::Ints, true}};
  def.infer = infer_windows;
  def.meaning = Indexing{windows_body, true};
  def.reference = reference_windows;
  def.samples = [] {
    std::vector<Sample> out;
    auto add = [&](DType d, Dims x, int64_t axis, const SymShape& sizes, const Ints& strides) {
      out.push_back(sample({random(d, std::move(x), 3)}, {{"axis", axis}, {"sizes", sizes}, {"strides", strides}}));
    };
    for (DType d : {DType::F32, DType::I64, DType::F16, DType::Bool}) {
      add(d, {2, 7, 3}, 1, {3, 5}, {1, 1});    // of a convolution
      add(d, {2, 9}, 1, {2, 3}, {3, 2});       // of one with a stride and a dilation
      add(d, {12}, 0, {2, 2, 3}, {6, 2, 1});   // all elements, some twice
      add(d, {4, 5}, 0, {4}, {1});             // the dimension as it is
      add(d, {3}, 0, {2, 4}, {1, 0});          // repeated
      add(d, {5, 2}, 0, {0, 3}, {1, 1});       // none
      add(d, {1, 65, 2}, 1, {33, 33}, {1, 1}); // more than a vector
    }
    return out;
  };
  def.error_samples = [] {
    const Tensor x = random(DType::F32, {2, 4});
    auto of = [&](int64_t axis, const SymShape& sizes, const Ints& strides, ErrorCode code, std::string_view text) {
      return wrong({x}, {{"axis", axis}, {"sizes", sizes}, {"strides", strides}}, code, text);
    };
    return std::vector<ErrorSample>{
        of(1, {3, 3}, {1, 1}, ErrorCode::ShapeMismatch, "position 4 of dimension 1"),
        of(2, {3}, {1}, ErrorCode::BadAttribute, "axis 2"),
        of(1, {3, 2}, {1}, ErrorCode::BadAttribute, "2 sizes and 1 strides"),
        of(1, {3}, {-1}, ErrorCode::BadAttribute, "negative"),
        of(1, {int64_t{1} << 40}, {int64_t{1} << 40}, ErrorCode::ShapeMismatch, "64 bits"),
    };
  };
  return def;
}

} // namespace

void register_windows(OpTable& table);
void register_windows(OpTable& table) { table.add(windows_record()); }

} // namespace tessera
