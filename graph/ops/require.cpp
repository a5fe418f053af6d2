// `require`: a value that is used only where a condition holds.
#include "graph/ops/build.h"

namespace tessera {

namespace {
using namespace ops;

Status infer_require(InferContext& c) {
  const SymShape &x = c.shape(0), &condition = c.shape(1);
  if (c.type(1).dtype != DType::Bool)
    return c.error(ErrorCode::TypeMismatch, "the condition is " + std::string(name(c.type(1).dtype)) + ", not bool");
  TESSERA_ASSIGN(SymShape both, c.env().broadcast(x, condition, c.node.location));
  if (both.size() != x.size())
    return c.error(ErrorCode::ShapeMismatch, "the condition " + c.type(1).str() + " does not fit " + c.type(0).str());
  for (size_t d = 0; d < x.size(); ++d)
    TESSERA_TRY(c.env().require_equal(both[d], x[d], "a value and its condition", c.node.location));
  return set_result(c, c.type(0).dtype, x);
}

// The operand's element where the result is read at `at`; sizes of 1 repeat.
std::vector<ScalarId> broadcast_index(const IndexMath& m, const SymShape& shape, std::span<const ScalarId> at) {
  std::vector<ScalarId> from(at.end() - static_cast<std::ptrdiff_t>(shape.size()), at.end());
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d].is_const(1)) from[d] = m.sym(0);
  return from;
}

Result<ScalarId> require_body(ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
  const SymShape &x = operand_type(g, n, 0).shape, &condition = operand_type(g, n, 1).shape;
  IndexMath m{d};
  const ScalarId holds = load(d, g, n, 1, broadcast_index(m, condition, at));
  // The check is one of an index: 0 where the condition holds, and -1, which no dimension has, where it does not.
  ScalarNode check;
  check.op = ScalarOp::CheckBounds;
  check.dtype = DType::I64;
  const bool whole = condition.empty(); // one condition for all elements has no position
  check.operand = whole ? 1 : 0;
  if (!whole) {
    const std::vector<SymExpr> strides = contiguous_strides(x);
    for (size_t k = 0; k < at.size(); ++k) {
      const auto index = d.as_sym(at[k]);
      check.sym = index && !check.sym.is_const(-1) ? check.sym + *index * strides[k] : SymExpr(-1);
    }
  }
  check.args = {d.op(ScalarOp::Select, holds, m.sym(0), m.sym(-1)), m.sym(1)};
  const ScalarId passed = d.op(ScalarOp::Eq, d.add(std::move(check)), m.sym(0));
  const ScalarId value = load(d, g, n, 0, {at.begin(), at.end()});
  const DType dtype = d[value].dtype;
  return d.op(ScalarOp::Select, passed, value, is_float(dtype) ? d.constant_f(dtype, 0) : d.constant_i(dtype, 0));
}

OpDef require_record() {
  OpDef def;
  def.name = "require";
  def.summary = "x; an element whose condition does not hold is an error of the call, which says `message`";
  def.operands = {{"x", TypeSet::NumericOrBool}, {"condition", TypeSet::Bool}};
  // host: checked on the host alone. On a GPU, whose eager operators do not check it, x is used as it is.
  def.attributes = {{"message", AttrKind::String, true}, {"host", AttrKind::Int}};
  def.infer = infer_require;
  def.meaning = Indexing{require_body, false};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor &x = c.operands[0], &condition = c.operands[1];
    const Dims strides = broadcast_strides(condition.dims(), x.dims());
    for (MultiIndex w(x.dims()); !w.done(); w.next())
      if (condition.get_i64(offset(w.at(), strides)) == 0)
        return c.error(ErrorCode::BadInput, c.node.attributes.s("message", ""));
    c.results = {x};
    return {};
  };
  def.samples = [] {
    const Attributes message = {{"message", std::string("it does not hold")}};
    auto holds = [](Dims dims) { return filled(DType::Bool, std::move(dims), 1); };
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F16, DType::I64, DType::U8, DType::Bool}) {
      out.push_back(sample({random(d, {3, 4}, 1), holds({3, 4})}, message));
      out.push_back(sample({random(d, {2, 5}, 2), holds({})}, message));
      out.push_back(sample({random(d, {3, 4}, 3), holds({3, 1})}, message));
    }
    out.push_back(sample({random(DType::F32, {0, 2}, 1), holds({2})}, message));
    return out;
  };
  def.error_samples = [] {
    const Attributes message = {{"message", std::string("division by zero")}};
    const Tensor x = random(DType::I32, {2}), bad = integers(DType::Bool, {2}, {1, 0});
    return std::vector<ErrorSample>{
        wrong({x, bad}, message, ErrorCode::BadInput, "division by zero"),
        wrong({x, integers(DType::Bool, {3}, {1, 1, 1})}, message, ErrorCode::ShapeMismatch, "broadcast"),
        wrong({x, integers(DType::Bool, {2, 1}, {1, 1})}, message, ErrorCode::ShapeMismatch, "does not fit"),
        wrong({x, x}, message, ErrorCode::TypeMismatch, "bool")};
  };
  return def;
}

} // namespace

void register_requirements(OpTable& table);
void register_requirements(OpTable& table) { table.add(require_record()); }

} // namespace tessera
