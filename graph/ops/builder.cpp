#include "graph/ops/build.h"
#include <algorithm>

namespace tessera::ops {

B::~B() = default;
B::B(Graph& graph, const Node& node) : graph_(graph), node_(node) {}

bool B::has(int operand) const { return operand < operands() && node_.operands[static_cast<size_t>(operand)].valid(); }
ValueId B::in(int operand) const { return has(operand) ? node_.operands[static_cast<size_t>(operand)] : ValueId{}; }
TensorType B::type(ValueId v) const { return v.valid() ? graph_.type(v) : TensorType{}; }

SymExpr B::dim(ValueId v, int64_t axis) const {
  if (!v.valid()) return 1;
  const SymShape& shape = graph_.type(v).shape;
  return axis >= 0 && axis < static_cast<int64_t>(shape.size()) ? shape[static_cast<size_t>(axis)] : SymExpr(1);
}

void B::fail(Diagnostic d) {
  if (!error_) error_ = std::move(d).at(node_.location);
}
void B::fail(ErrorCode code, std::string message) { fail(Diagnostic(code, node_.location, std::move(message))); }

template <class Query>
auto B::contents(const Query& query) {
  InferContext c{graph_, node_, 1, {}, {}};
  auto r = query(c);
  using T = std::decay_t<decltype(*r)>;
  if (!r.ok()) return fail(std::move(r).take_error()), T{};
  for (const InferContext::Read& read : c.reads) {
    ValueId& operand = node_.operands[static_cast<size_t>(read.operand)];
    auto made = graph_.read(operand, read.symbols, node_.location);
    if (!made.ok()) return fail(std::move(made).take_error()), T{};
    operand = *made;
  }
  return std::move(r).value();
}

std::vector<SymExpr> B::known(int operand) {
  return contents([&](InferContext& c) { return c.known(operand); });
}
Ints B::known_ints(int operand) {
  return contents([&](InferContext& c) { return c.known_ints(operand); });
}
std::vector<SymExpr> B::sizes(int operand) {
  std::vector<SymExpr> all = known(operand);
  for (const SymExpr& e : all)
    check_size(e, "operand '" + std::string(node_.op->operands[static_cast<size_t>(operand)].name) + "' of " +
                      std::string(node_.op->name));
  return all;
}
std::vector<SymExpr> B::read(ValueId v) {
  if (!ok()) return {};
  Node reader;
  reader.op = OpTable::get().find("read");
  reader.operands = {v};
  reader.location = node_.location;
  InferContext c{graph_, reader, 1, {}, {}};
  auto r = c.known(0);
  if (!r.ok()) return fail(std::move(r).take_error()), std::vector<SymExpr>{};
  auto made = graph_.read(v, *r, node_.location);
  if (!made.ok()) return fail(std::move(made).take_error()), std::vector<SymExpr>{};
  return std::move(r).value();
}

void check_exact(B& b, const SymExpr& e, std::string_view what) {
  for (const SymExpr& s : e.symbols()) {
    const SymRange range = b.env().range(s);
    if (range.lo > -kReadMax && range.hi < kReadMax) continue;
    if (!b.ok()) return;
    b.check(b.env().require(sym_and(sym_lt(-kReadMax, s), sym_lt(s, kReadMax)), GuardClass::Required,
                            std::string(what) + " holds no number beyond all sizes", b.node().location));
  }
}

void B::check_size(const SymExpr& e, std::string_view what) {
  check_exact(*this, e, what);
  if (!ok() || env().prove(sym_le(0, e)) == true) return;
  if (auto v = env().simplify(e).as_const())
    return fail(ErrorCode::ShapeMismatch, std::string(what) + " holds " + std::to_string(*v) + ", a negative size");
  check(
      env().require(sym_le(0, e), GuardClass::Required, std::string(what) + " holds no negative size", node_.location));
}

bool B::decide(const SymExpr& condition, bool otherwise, std::string reason) {
  auto decided = env().decide(condition, otherwise, std::move(reason), node_.location);
  if (!decided.ok()) fail(std::move(decided).take_error());
  return decided.ok() ? *decided : otherwise;
}

int64_t B::axis(int64_t a, int rank) {
  InferContext c{graph_, node_, 1, {}, {}};
  auto r = c.axis(a, rank);
  if (!r.ok()) return fail(std::move(r).take_error()), 0;
  return *r;
}

Ints B::axes(const Ints& axes, int rank) {
  InferContext c{graph_, node_, 1, {}, {}};
  auto r = normal_axes(c, axes, rank);
  if (!r.ok()) return fail(std::move(r).take_error()), Ints{};
  return std::move(r).value();
}

Result<std::vector<ValueId>> B::done(std::vector<ValueId> vs) {
  if (error_) return *error_;
  return vs;
}

ValueId B::op(std::string_view name, std::vector<ValueId> operands, Attributes attributes) {
  return ops(name, std::move(operands), std::move(attributes), 1)[0];
}

std::vector<ValueId> B::ops(std::string_view name, std::vector<ValueId> operands, Attributes attributes, int count) {
  std::vector<ValueId> none(static_cast<size_t>(count));
  if (error_) return none;
  const OpDef* def = OpTable::get().find(name);
  TESSERA_CHECK(def, "decomposition of " + std::string(node_.op ? node_.op->name : "?") +
                         " names an operator that is not defined: " + std::string(name));
  auto r = graph_.add_node(*def, std::move(operands), std::move(attributes), node_.location,
                           std::vector<std::string>(static_cast<size_t>(count)));
  if (!r.ok()) return fail(std::move(r).take_error()), none;
  return graph_.node(*r).results;
}

ValueId B::op2(std::string_view name, const Arg& a, const Arg& b) {
  TESSERA_CHECK(!a.is_literal || !b.is_literal, "two literals");
  if (!ok()) return {};
  ValueId x = a.is_literal ? like(b.value, a.literal) : a.value;
  ValueId y = b.is_literal ? like(a.value, b.literal) : b.value;
  return op(name, {x, y});
}

ValueId B::constant(Tensor t) { return ok() ? graph_.add_constant(std::move(t)) : ValueId{}; }

ValueId B::scalar(DType dtype, double v) { return ok() ? constant(ops::scalar(dtype, v)) : ValueId{}; }

ValueId B::scalar_i(DType dtype, int64_t v) { return ok() ? constant(integers(dtype, {}, {v})) : ValueId{}; }

ValueId B::ints(const Ints& values) {
  return ok() ? constant(Tensor::of<int64_t>(DType::I64, {static_cast<int64_t>(values.size())}, values)) : ValueId{};
}

ValueId B::dims(const SymShape& sizes) {
  Ints values;
  for (const SymExpr& e : sizes) {
    auto v = e.as_const();
    if (!v) return op("dims_constant", {}, {{"values", sizes}, {"shape", Ints{static_cast<int64_t>(sizes.size())}}});
    values.push_back(*v);
  }
  return ints(values);
}

ValueId B::size(const SymExpr& e, DType dtype) {
  if (auto v = e.as_const()) return is_float(dtype) ? scalar(dtype, static_cast<double>(*v)) : scalar_i(dtype, *v);
  return cast(*this, op("dims_constant", {}, {{"values", SymShape{e}}, {"shape", Ints{}}}), dtype);
}

} // namespace tessera::ops
