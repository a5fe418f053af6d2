#include "graph/scalar/scalar.h"
#include "base/check.h"
#include <array>
#include <limits>

namespace tessera {

namespace {

constexpr int kOps = static_cast<int>(ScalarOp::Count_);

// clang-format off
constexpr std::array<ScalarOpInfo, kOps> kTable = {{
    // op                    name          arity bool  commutes jumps cost
    {ScalarOp::Const,       "const",       -1, false, false, false, 0},
    {ScalarOp::Index,       "index",       -1, false, false, false, 1},
    {ScalarOp::Load,        "load",        -1, false, false, false, 2},
    {ScalarOp::CheckBounds, "check_bounds", 2, false, false, false, 2},
    {ScalarOp::Reduce,      "reduce",       1, false, false, false, 1},
    {ScalarOp::Cast,        "cast",         1, false, false, false, 1},
    {ScalarOp::Bitcast,     "bitcast",      1, false, false, false, 0},
    {ScalarOp::Neg,         "neg",          1, false, false, false, 1},
    {ScalarOp::Abs,         "abs",          1, false, false, false, 1},
    {ScalarOp::Sign,        "sign",         1, false, false, true,  3},
    {ScalarOp::Floor,       "floor",        1, false, false, true,  1},
    {ScalarOp::Ceil,        "ceil",         1, false, false, true,  1},
    {ScalarOp::Round,       "round",        1, false, false, true,  1},
    {ScalarOp::Trunc,       "trunc",        1, false, false, true,  1},
    {ScalarOp::Sqrt,        "sqrt",         1, false, false, false, 6},
    {ScalarOp::Rsqrt,       "rsqrt",        1, false, false, false, 8},
    {ScalarOp::Reciprocal,  "reciprocal",   1, false, false, false, 5},
    {ScalarOp::Exp,         "exp",          1, false, false, false, 10},
    {ScalarOp::Exp2,        "exp2",         1, false, false, false, 9},
    {ScalarOp::Expm1,       "expm1",        1, false, false, false, 14},
    {ScalarOp::Log,         "log",          1, false, false, false, 12},
    {ScalarOp::Log2,        "log2",         1, false, false, false, 12},
    {ScalarOp::Log1p,       "log1p",        1, false, false, false, 15},
    {ScalarOp::Sin,         "sin",          1, false, false, false, 15},
    {ScalarOp::Cos,         "cos",          1, false, false, false, 15},
    {ScalarOp::Tan,         "tan",          1, false, false, false, 20},
    {ScalarOp::Asin,        "asin",         1, false, false, false, 15},
    {ScalarOp::Acos,        "acos",         1, false, false, false, 15},
    {ScalarOp::Atan,        "atan",         1, false, false, false, 15},
    {ScalarOp::Sinh,        "sinh",         1, false, false, false, 16},
    {ScalarOp::Cosh,        "cosh",         1, false, false, false, 16},
    {ScalarOp::Tanh,        "tanh",         1, false, false, false, 14},
    {ScalarOp::Asinh,       "asinh",        1, false, false, false, 22},
    {ScalarOp::Acosh,       "acosh",        1, false, false, false, 20},
    {ScalarOp::Atanh,       "atanh",        1, false, false, false, 20},
    {ScalarOp::Erf,         "erf",          1, false, false, false, 16},
    {ScalarOp::Sigmoid,     "sigmoid",      1, false, false, false, 14},
    {ScalarOp::IsNan,       "isnan",        1, true,  false, true,  1},
    {ScalarOp::IsInf,       "isinf",        1, true,  false, true,  2},
    {ScalarOp::Not,         "not",          1, false, false, false, 1},
    {ScalarOp::Add,         "add",          2, false, true, false, 1},
    {ScalarOp::Sub,         "sub",          2, false, false, false, 1},
    {ScalarOp::Mul,         "mul",          2, false, true, false, 1},
    {ScalarOp::Div,         "div",          2, false, false, false, 5},
    {ScalarOp::Mod,         "mod",          2, false, false, true,  10},
    {ScalarOp::Fmod,        "fmod",         2, false, false, true,  10},
    {ScalarOp::Pow,         "pow",          2, false, false, false, 25},
    {ScalarOp::Min,         "min",          2, false, true, false, 2},
    {ScalarOp::Max,         "max",          2, false, true, false, 2},
    {ScalarOp::And,         "and",          2, false, true, false, 1},
    {ScalarOp::Or,          "or",           2, false, true, false, 1},
    {ScalarOp::Xor,         "xor",          2, false, true, false, 1},
    {ScalarOp::Shl,         "shl",          2, false, false, false, 1},
    {ScalarOp::Shr,         "shr",          2, false, false, false, 1},
    {ScalarOp::Eq,          "eq",           2, true,  true, true,  1},
    {ScalarOp::Ne,          "ne",           2, true,  true, true,  1},
    {ScalarOp::Lt,          "lt",           2, true,  false, true,  1},
    {ScalarOp::Le,          "le",           2, true,  false, true,  1},
    {ScalarOp::Gt,          "gt",           2, true,  false, true,  1},
    {ScalarOp::Ge,          "ge",           2, true,  false, true,  1},
    {ScalarOp::Select,      "select",       3, false, false, false, 1},
    {ScalarOp::Fma,         "fma",          3, false, false, false, 1},
}};
// clang-format on

constexpr std::array<std::string_view, 8> kReduceNames = {"sum", "prod", "max",    "min",
                                                          "any", "all",  "argmax", "argmin"};

int64_t lowest_i64(DType dtype) {
  const DTypeInfo& d = info(dtype);
  if (d.kind != DTypeKind::Signed) return 0;
  return d.bits >= 64 ? std::numeric_limits<int64_t>::min() : -(int64_t{1} << (d.bits - 1));
}

// The greatest value; of u64 as its bits.
int64_t highest_i64(DType dtype) {
  const DTypeInfo& d = info(dtype);
  if (d.kind == DTypeKind::Bool) return 1;
  if (d.bits >= 64) return d.kind == DTypeKind::Signed ? std::numeric_limits<int64_t>::max() : -1;
  return (int64_t{1} << (d.kind == DTypeKind::Signed ? d.bits - 1 : d.bits)) - 1;
}

} // namespace

const ScalarOpInfo& info(ScalarOp op) {
  const auto& row = kTable[static_cast<size_t>(op)];
  TESSERA_CHECK(row.op == op, "the table of scalar operators is out of order");
  return row;
}

std::optional<ScalarOp> scalar_op_from_name(std::string_view name) {
  static const auto* by_name = [] {
    auto* map = new std::unordered_map<std::string_view, ScalarOp>;
    for (const auto& row : kTable) map->emplace(row.name, row.op);
    return map;
  }();
  auto it = by_name->find(name);
  return it == by_name->end() ? std::nullopt : std::optional(it->second);
}

std::string_view name(ReduceKind kind) { return kReduceNames[static_cast<size_t>(kind)]; }

std::optional<ReduceKind> reduce_kind_from_name(std::string_view name) {
  for (size_t i = 0; i < kReduceNames.size(); ++i)
    if (kReduceNames[i] == name) return static_cast<ReduceKind>(i);
  return std::nullopt;
}

double reduce_identity_f64(ReduceKind kind, DType dtype) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  switch (kind) {
  case ReduceKind::Sum:
  case ReduceKind::Any: return 0;
  case ReduceKind::Prod:
  case ReduceKind::All: return 1;
  case ReduceKind::Max: return is_float(dtype) ? -inf : static_cast<double>(lowest_i64(dtype));
  case ReduceKind::Min:
    if (is_float(dtype)) return inf;
    return dtype == DType::U64 ? 18446744073709551615.0 : static_cast<double>(highest_i64(dtype));
  case ReduceKind::ArgMax:
  case ReduceKind::ArgMin: break;
  }
  TESSERA_UNREACHABLE("argmax and argmin have no identity");
}

int64_t reduce_identity_i64(ReduceKind kind, DType dtype) {
  switch (kind) {
  case ReduceKind::Sum:
  case ReduceKind::Any: return 0;
  case ReduceKind::Prod:
  case ReduceKind::All: return 1;
  case ReduceKind::Max: return lowest_i64(dtype);
  case ReduceKind::Min: return highest_i64(dtype);
  case ReduceKind::ArgMax:
  case ReduceKind::ArgMin: break;
  }
  TESSERA_UNREACHABLE("argmax and argmin have no identity");
}

DType compute_dtype(DType storage) { return is_float(storage) && info(storage).bits <= 16 ? DType::F32 : storage; }

} // namespace tessera
