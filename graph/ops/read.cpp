// read: integers whose values become sizes when the model runs.
#include "graph/ops/parts.h"

namespace tessera {

namespace {
using namespace ops;

OpDef read_record() {
  OpDef def;
  def.name = "read";
  def.summary = "the operand itself, whose integers are read by the host and bind `symbols`, row-major";
  def.operands = {{"x", TypeSet::Any}};
  def.attributes = {{"symbols", AttrKind::Strings, true}};
  def.infer = [](InferContext& c) -> Status {
    const TensorType& type = c.type(0);
    if (!is_integer(type.dtype) && type.dtype != DType::Bool)
      return c.error(ErrorCode::TypeMismatch, "what is read must hold integers, not " + std::string(name(type.dtype)));
    const auto& names = *c.node.attributes.get<std::vector<std::string>>("symbols");
    if (!c.env().simplify(type.count()).is_const(static_cast<int64_t>(names.size())))
      return c.error(ErrorCode::BadAttribute,
                     std::to_string(names.size()) + " symbols for the elements of " + type.str());
    std::vector<SymExpr> contents;
    for (const std::string& name : names) {
      // A text that has the node alone, as in a saved executable, defines its symbols by it.
      const auto known = c.env().find(name);
      const SymExpr symbol = known ? *known : c.env().named_symbol(name, {-kReadMax, kReadMax});
      contents.push_back(c.env().simplify(symbol));
    }
    c.contents = {std::move(contents)};
    return set_result(c, type.dtype, c.env().simplify(type.shape));
  };
  def.meaning = StructuredOp{Structured::Read};
  def.reference = [](ReferenceContext& c) -> Status {
    c.results = {c.operands[0]};
    return {};
  };
  def.data_dependent_shape = true;
  def.samples = [] { return std::vector<Sample>{sample({vec({})}, {{"symbols", std::vector<std::string>{}}})}; };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({vec({1, 2})}, {{"symbols", std::vector<std::string>{"s"}}}, ErrorCode::BadAttribute, "1 symbols"),
        wrong({random(DType::F32, {1})}, {{"symbols", std::vector<std::string>{"s"}}}, ErrorCode::TypeMismatch, "")};
  };
  return def;
}

OpDef undetermined_record() {
  OpDef def;
  def.name = "undetermined";
  def.summary = "an output of a model whose structure the values of its inputs decide; it is never computed";
  def.operands = {{"read", TypeSet::Any, false, true}};
  def.attributes = {{"dtype", AttrKind::Type, true}, {"shape", AttrKind::Dims, true}};
  def.infer = [](InferContext& c) -> Status {
    return set_result(c, *c.node.attributes.get<DType>("dtype"), c.node.attributes.dims("shape"));
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(Dims dims, c.dims("shape"));
    TESSERA_ASSIGN(Tensor zeros, Tensor::create(c.result_types[0].dtype, dims));
    c.results = {zeros};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({}, {{"dtype", DType::F32}, {"shape", SymShape{2}}}),
                               sample({vec({1})}, {{"dtype", DType::I64}, {"shape", SymShape{}}})};
  };
  def.side_effect = true;
  def.data_dependent_shape = true;
  def.error_samples = [] { return std::vector<ErrorSample>{wrong({}, {}, ErrorCode::BadAttribute, "dtype")}; };
  return def;
}

} // namespace

void register_read_ops(OpTable& table) {
  table.add(read_record());
  table.add(undetermined_record());
}

} // namespace tessera
