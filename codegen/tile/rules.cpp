#include "codegen/tile/rules.h"
#include <algorithm>
#include <array>
#include <map>

namespace tessera::tile {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(OpKind::Count_)> kNames = {
    "const",  "program_id",   "range",    "expand_dims", "broadcast", "scalar",      "load",   "store",
    "reduce", "scan",         "dot",      "for",         "if",        "scratch",     "atomic", "report_index",
    "arrive", "grid_barrier", "exchange", "prefetch",    "yield",     "num_programs"};

Diagnostic bad(std::string message) { return {ErrorCode::Internal, std::move(message)}; }

bool is_leaf(ScalarOp op) {
  return op == ScalarOp::Const || op == ScalarOp::Index || op == ScalarOp::Load || op == ScalarOp::CheckBounds ||
         op == ScalarOp::Reduce || op == ScalarOp::Count_;
}
bool is_index_type(const Type& t) {
  return t.kind == Type::Kind::Data && (t.dtype == DType::I64 || t.dtype == DType::I32);
}
bool is_i64_scalar(const Type& t) { return t == Type{Type::Kind::Data, DType::I64, {}}; }
bool is_bool(const Type& t) { return t.kind == Type::Kind::Data && t.dtype == DType::Bool; }

// True if `t` can accompany an offset of type `at`: a scalar, or a tile of the same shape.
bool fits(const Type& t, const Type& at) { return !t.is_tile() || t.shape == at.shape; }

Status check_memory(const Kernel& k, const Op& op, size_t fixed, size_t most) {
  if (op.operands.size() < fixed || op.operands.size() > most) return bad("wrong number of operands");
  const Type& ptr = k.type(op.operands[0]);
  const Type& off = k.type(op.operands[1]);
  if (ptr.kind != Type::Kind::Pointer) return bad("'" + ptr.str() + "' is not a pointer");
  if (!is_index_type(off)) return bad("an offset must be i64 or i32, not '" + off.str() + "'");
  return {};
}

Status check_mask(const Type& mask, const Type& off) {
  if (!is_bool(mask)) return bad("a mask must be bool, not '" + mask.str() + "'");
  if (!fits(mask, off)) return bad("mask '" + mask.str() + "' does not fit offset '" + off.str() + "'");
  return {};
}

Status check_load(const Kernel& k, const Op& op) {
  TESSERA_TRY(check_memory(k, op, 2, 4));
  const Type& ptr = k.type(op.operands[0]);
  const Type& off = k.type(op.operands[1]);
  if (op.operands.size() > 2) TESSERA_TRY(check_mask(k.type(op.operands[2]), off));
  if (op.operands.size() > 3) {
    const Type& other = k.type(op.operands[3]);
    if (other.kind != Type::Kind::Data || other.dtype != ptr.dtype || !fits(other, off))
      return bad("'other' of type '" + other.str() + "' does not fit a load of " + std::string(name(ptr.dtype)));
  }
  if (op.results.size() != 1) return bad("a load has one result");
  Type want{Type::Kind::Data, ptr.dtype, off.shape};
  if (k.type(op.results[0]) != want) return bad("a load here yields '" + want.str() + "'");
  return {};
}

Status check_store(const Kernel& k, const Op& op) {
  TESSERA_TRY(check_memory(k, op, 3, 4));
  const Type& ptr = k.type(op.operands[0]);
  const Type& off = k.type(op.operands[1]);
  const Type& value = k.type(op.operands[2]);
  if (value.kind != Type::Kind::Data || value.dtype != ptr.dtype || !fits(value, off))
    return bad("cannot store '" + value.str() + "' at offset '" + off.str() + "' of '" + ptr.str() + "'");
  if (op.operands.size() > 3) TESSERA_TRY(check_mask(k.type(op.operands[3]), off));
  if (!op.results.empty()) return bad("a store has no result");
  return {};
}

Status check_cooperation(const Kernel& k, const Op& op) {
  const bool exchanges = op.kind == OpKind::Exchange;
  TESSERA_TRY(check_memory(k, op, 4, exchanges ? op.operands.size() : 4));
  if (k.type(op.operands[0]).dtype != DType::I32) return bad(exchanges ? "mailboxes are i32" : "counters are i32");
  for (size_t i = 1; i < 4; ++i)
    if (!is_i64_scalar(k.type(op.operands[i]))) return bad("offset, rank and count are i64 scalars");
  if (exchanges) {
    if (op.operands.size() == 4 || op.results.size() != op.operands.size() - 4)
      return bad("an exchange has one result for each partial value, at least one");
    for (size_t i = 0; i < op.results.size(); ++i) {
      const Type &from = k.type(op.operands[i + 4]), &to = k.type(op.results[i]);
      if (from.kind != Type::Kind::Data || from.is_tile() || from.dtype == DType::String)
        return bad("cannot exchange '" + from.str() + "'");
      if (to != Type{Type::Kind::Data, from.dtype, {to.is_tile() ? to.shape[0] : 0}} ||
          to.shape != k.type(op.results[0]).shape)
        return bad("an exchange of '" + from.str() + "' yields a tile with one dimension, not '" + to.str() + "'");
    }
    return {};
  }
  if (op.kind == OpKind::GridBarrier) {
    if (!op.results.empty()) return bad("grid_barrier has no result");
    return {};
  }
  if (op.results.size() != 1) return bad("arrive has one result");
  if (k.type(op.results[0]) != Type{Type::Kind::Data, DType::Bool, {}}) return bad("arrive yields 'bool'");
  return {};
}

Status check_reduce(const Kernel& k, const Op& op) {
  bool arg = op.reduce == ReduceKind::ArgMax || op.reduce == ReduceKind::ArgMin;
  if (op.kind == OpKind::Scan && arg) return bad("a scan has no argmax or argmin form");
  size_t n = arg ? 2 : 1;
  if (op.operands.size() != n || op.results.size() != n) return bad("wrong number of operands or results");
  const Type& v = k.type(op.operands[0]);
  if (v.kind != Type::Kind::Data || !v.is_tile()) return bad("only a tile can be folded, not '" + v.str() + "'");
  if (op.axis < 0 || op.axis >= static_cast<int>(v.shape.size())) return bad("axis is out of range");
  if ((op.reduce == ReduceKind::Any || op.reduce == ReduceKind::All) && v.dtype != DType::Bool)
    return bad("any and all fold bool, not '" + v.str() + "'");
  if (compute_dtype(v.dtype) != v.dtype) return bad("arithmetic on '" + v.str() + "' needs a cast first");
  if (op.kind == OpKind::Scan) {
    if (k.type(op.results[0]) != v) return bad("a scan yields its operand's type");
    return {};
  }
  for (size_t i = 0; i < n; ++i) {
    Type want = k.type(op.operands[i]);
    if (want.shape != v.shape) return bad("value and index tiles differ in shape");
    if (i == 1 && !is_index_type(want)) return bad("the index tile must be i64 or i32");
    want.shape.erase(want.shape.begin() + op.axis);
    if (k.type(op.results[i]) != want) return bad("this reduction yields '" + want.str() + "'");
  }
  return {};
}

// The dtype of the sums of a dot of such factors; nothing where it does not multiply them.
std::optional<DType> sum_dtype(DType a, DType b) {
  auto both = [&](DType x, DType y) { return (a == x || a == y) && (b == x || b == y); };
  if (both(DType::I8, DType::U8)) return DType::I32;
  if (both(DType::F8E4M3FN, DType::F8E5M2)) return DType::F32;
  if (a != b || a == DType::Bool) return std::nullopt;
  return compute_dtype(a);
}

Status check_dot(const Kernel& k, const Op& op) {
  if (op.operands.size() != 3 || op.results.size() != 1) return bad("dot takes three operands");
  const Type &a = k.type(op.operands[0]), &b = k.type(op.operands[1]), &c = k.type(op.operands[2]);
  for (const Type* t : {&a, &b, &c})
    if (t->kind != Type::Kind::Data || t->shape.size() != 2) return bad("dot takes tiles of rank 2");
  const std::optional<DType> sum = sum_dtype(a.dtype, b.dtype);
  if (!sum) return bad("dot does not multiply " + std::string(name(a.dtype)) + " and " + std::string(name(b.dtype)));
  if (a.shape[1] != b.shape[0] || c.shape != std::vector<int>{a.shape[0], b.shape[1]})
    return bad("dot of '" + a.str() + "', '" + b.str() + "' and '" + c.str() + "' do not match");
  if (c.dtype != *sum) return bad("dot accumulates in " + std::string(name(*sum)));
  if (k.type(op.results[0]) != c) return bad("dot yields the accumulator's type");
  return {};
}

// The yield that ends a region, or null.
const Op* yield_of(const Kernel& k, const std::vector<OpId>& region) {
  if (region.empty() || k.op(region.back()).kind != OpKind::Yield) return nullptr;
  return &k.op(region.back());
}

Status check_yield(const Kernel& k, const Op& op, size_t region) {
  const Op* y = yield_of(k, op.regions[region]);
  if (!y) return bad("the region does not end with yield");
  if (y->operands.size() != op.results.size())
    return bad("yield of " + std::to_string(y->operands.size()) + " values, expected " +
               std::to_string(op.results.size()));
  for (size_t i = 0; i < op.results.size(); ++i)
    if (k.type(y->operands[i]) != k.type(op.results[i]))
      return bad("yield of '" + k.type(y->operands[i]).str() + "', expected '" + k.type(op.results[i]).str() + "'");
  return {};
}

Status check_for(const Kernel& k, const Op& op) {
  if (op.operands.size() < 3 || op.regions.size() != 1 || op.region_args.size() != 1) return bad("malformed for");
  for (int i = 0; i < 3; ++i)
    if (!is_i64_scalar(k.type(op.operands[static_cast<size_t>(i)]))) return bad("loop bounds are i64 scalars");
  if (op.num_stages < 0 || op.num_stages > kMaxStages)
    return bad("num_stages is from 0 to " + std::to_string(kMaxStages));
  size_t carried = op.operands.size() - 3;
  if (op.results.size() != carried || op.region_args[0].size() != carried + 1) return bad("malformed for");
  if (!is_i64_scalar(k.type(op.region_args[0][0]))) return bad("the induction value is an i64 scalar");
  for (size_t i = 0; i < carried; ++i) {
    const Type& t = k.type(op.operands[3 + i]);
    if (t.kind != Type::Kind::Data) return bad("a pointer cannot be carried");
    if (k.type(op.results[i]) != t || k.type(op.region_args[0][i + 1]) != t) return bad("carried types differ");
  }
  return check_yield(k, op, 0);
}

Status check_if(const Kernel& k, const Op& op) {
  if (op.operands.size() != 1 || op.regions.size() != 2) return bad("malformed if");
  for (const auto& args : op.region_args)
    if (!args.empty()) return bad("regions of if take no arguments");
  if (k.type(op.operands[0]) != Type{Type::Kind::Data, DType::Bool, {}}) return bad("a condition is a bool scalar");
  for (ValueId r : op.results)
    if (k.type(r).kind != Type::Kind::Data) return bad("a pointer cannot be yielded");
  TESSERA_TRY(check_yield(k, op, 0));
  return check_yield(k, op, 1);
}

Status check_scalar(const Kernel& k, const Op& op) {
  if (op.results.size() != 1) return bad("one result expected");
  const Type& result = k.type(op.results[0]);
  if (op.scalar == ScalarOp::Cast || op.scalar == ScalarOp::Bitcast) {
    if (op.operands.size() != 1) return bad(std::string(info(op.scalar).name) + " takes one operand");
    const Type& v = k.type(op.operands[0]);
    if (v.kind != Type::Kind::Data || result.kind != Type::Kind::Data || v.shape != result.shape)
      return bad("cannot cast '" + v.str() + "' to '" + result.str() + "'");
    if (op.scalar == ScalarOp::Bitcast && (info(v.dtype).bits != info(result.dtype).bits || info(v.dtype).bits < 32))
      return bad("bitcast takes and yields 32 or 64 bits, not '" + v.str() + "' and '" + result.str() + "'");
    return {};
  }
  std::vector<Type> types;
  for (ValueId v : op.operands) types.push_back(k.type(v));
  TESSERA_ASSIGN(Type want, scalar_result_type(op.scalar, types));
  if (want != result) return bad(std::string(info(op.scalar).name) + " here yields '" + want.str() + "'");
  return {};
}

} // namespace

std::string_view name(Caching caching) {
  constexpr std::string_view kWords[] = {"normal", "no_allocate", "evict_last", "evict_first"};
  return kWords[static_cast<size_t>(caching)];
}
std::string_view op_name(OpKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::string op_word(const OpWord& op) {
  const std::string kind(op_name(op.kind)), fold(name(op.reduce));
  switch (op.kind) {
  case OpKind::Scalar: return std::string(info(op.scalar).name);
  case OpKind::Atomic: return kind + "_" + (op.reduce == ReduceKind::Sum ? "add" : fold);
  case OpKind::Reduce:
  case OpKind::Scan: return kind + "." + fold;
  default: return kind;
  }
}

const OpWord* op_from_word(std::string_view word) {
  static const std::map<std::string, OpWord, std::less<>> words = [] {
    std::map<std::string, OpWord, std::less<>> out;
    auto add = [&](const OpWord& op) { out.emplace(op_word(op), op); };
    for (size_t kind = 0; kind < kNames.size(); ++kind)
      if (const auto k = static_cast<OpKind>(kind); op_word({k}) == op_name(k)) add({k});
    for (ReduceKind fold : {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min}) add({OpKind::Atomic, {}, fold});
    for (size_t fold = 0; fold <= static_cast<size_t>(ReduceKind::ArgMin); ++fold)
      for (OpKind kind : {OpKind::Reduce, OpKind::Scan}) add({kind, {}, static_cast<ReduceKind>(fold)});
    for (size_t op = 0; op < static_cast<size_t>(ScalarOp::Count_); ++op)
      if (info(static_cast<ScalarOp>(op)).arity > 0) add({OpKind::Scalar, static_cast<ScalarOp>(op)});
    return out;
  }();
  auto it = words.find(word);
  return it == words.end() ? nullptr : &it->second;
}

Status check_type(const Type& type) {
  const DTypeInfo& d = info(type.dtype);
  if (d.kind == DTypeKind::Complex || d.kind == DTypeKind::Held || d.bits < 8)
    return bad("tiles of " + std::string(d.name) + " do not exist");
  if (static_cast<int>(type.shape.size()) > kMaxRank) return bad("a tile has at most 8 dimensions");
  int64_t n = 1;
  for (int dim : type.shape) {
    if (dim < 1 || dim > kMaxTileElements) return bad("tile dimensions are from 1 to 1048576");
    n *= dim;
    if (n > kMaxTileElements) return bad("a tile has at most 1048576 elements");
  }
  if (type.kind == Type::Kind::Pointer && type.is_tile()) return bad("tiles of pointers do not exist");
  return {};
}

Result<Type> scalar_result_type(ScalarOp op, std::span<const Type> operands) {
  if (is_leaf(op) || op == ScalarOp::Cast || op == ScalarOp::Bitcast) return bad("not a pointwise operator");
  const ScalarOpInfo& s = info(op);
  if (static_cast<int>(operands.size()) != s.arity)
    return bad(std::string(s.name) + " takes " + std::to_string(s.arity) + " operands, not " +
               std::to_string(operands.size()));
  Type result;
  result.shape.clear();
  size_t first = op == ScalarOp::Select ? 1 : 0; // the condition has its own dtype
  for (size_t i = 0; i < operands.size(); ++i) {
    const Type& t = operands[i];
    if (t.kind != Type::Kind::Data) return bad("a pointer is not an operand of " + std::string(s.name));
    if (i < first && t.dtype != DType::Bool) return bad("select's condition is bool, not '" + t.str() + "'");
    if (i >= first && t.dtype != operands[first].dtype)
      return bad("operands of " + std::string(s.name) + " differ: '" + operands[first].str() + "' and '" + t.str() +
                 "'");
    if (!t.is_tile()) continue;
    if (result.is_tile() && result.shape != t.shape) return bad("tile shapes differ: '" + t.str() + "'");
    result.shape = t.shape;
  }
  DType d = operands[first].dtype;
  if (op != ScalarOp::Select && compute_dtype(d) != d)
    return bad("arithmetic on " + std::string(name(d)) + " needs a cast to " + std::string(name(compute_dtype(d))) +
               " first");
  result.dtype = s.yields_bool ? DType::Bool : d;
  return result;
}

Status check_op(const Kernel& k, const Op& op) {
  for (ValueId r : op.results) TESSERA_TRY(check_type(k.type(r)));
  if (op.kind != OpKind::For && op.kind != OpKind::If && !op.regions.empty()) return bad("unexpected region");
  auto result = [&]() -> const Type& { return k.type(op.results[0]); };
  auto shape_of = [&](size_t operands) -> Status {
    if (op.operands.size() != operands) return bad("wrong number of operands");
    if (op.results.size() != 1) return bad("one result expected");
    return {};
  };
  switch (op.kind) {
  case OpKind::Const:
    TESSERA_TRY(shape_of(0));
    if (result().kind != Type::Kind::Data) return bad("a constant is data");
    return {};
  case OpKind::ProgramId:
  case OpKind::NumPrograms:
    TESSERA_TRY(shape_of(0));
    if (op.axis < 0 || op.axis >= kGridAxes) return bad("the axis is 0, 1 or 2");
    if (!is_i64_scalar(result())) return bad("it yields 'i64'");
    return {};
  case OpKind::Range:
    TESSERA_TRY(shape_of(0));
    if (result().kind != Type::Kind::Data || result().shape.size() != 1 || result().dtype != DType::I64)
      return bad("range yields 'tile<[n], i64>'");
    return {};
  case OpKind::ExpandDims: {
    TESSERA_TRY(shape_of(1));
    Type t = k.type(op.operands[0]);
    if (t.kind != Type::Kind::Data || op.axis < 0 || op.axis > static_cast<int>(t.shape.size()))
      return bad("axis is out of range");
    t.shape.insert(t.shape.begin() + op.axis, 1);
    if (result() != t) return bad("expand_dims here yields '" + t.str() + "'");
    return {};
  }
  case OpKind::Broadcast: {
    TESSERA_TRY(shape_of(1));
    const Type &t = k.type(op.operands[0]), &r = result();
    bool good = t.kind == Type::Kind::Data && r.kind == Type::Kind::Data && t.dtype == r.dtype && r.is_tile() &&
                (!t.is_tile() || t.shape.size() == r.shape.size());
    for (size_t i = 0; good && i < t.shape.size(); ++i) good = t.shape[i] == 1 || t.shape[i] == r.shape[i];
    if (!good) return bad("cannot broadcast '" + t.str() + "' to '" + r.str() + "'");
    return {};
  }
  case OpKind::Scalar: return check_scalar(k, op);
  case OpKind::Load: return check_load(k, op);
  case OpKind::Atomic:
    TESSERA_TRY(check_store(k, op));
    if (k.type(op.operands[0]).dtype == DType::Bool) return bad("an atomic update of bool has no meaning");
    if (op.reduce == ReduceKind::Sum) return {};
    if (op.reduce != ReduceKind::Max && op.reduce != ReduceKind::Min)
      return bad("there is no atomic update by " + std::string(name(op.reduce)));
    if (!is_integer(k.type(op.operands[0]).dtype))
      return bad("atomic " + std::string(name(op.reduce)) + " is of integers, not of " +
                 std::string(name(k.type(op.operands[0]).dtype)));
    return {};
  case OpKind::Store: return check_store(k, op);
  case OpKind::Reduce:
  case OpKind::Scan: return check_reduce(k, op);
  case OpKind::Dot: return check_dot(k, op);
  case OpKind::For: return check_for(k, op);
  case OpKind::If: return check_if(k, op);
  case OpKind::Scratch:
    TESSERA_TRY(shape_of(1));
    if (result().kind != Type::Kind::Pointer) return bad("scratch yields a pointer");
    if (!is_i64_scalar(k.type(op.operands[0]))) return bad("the element count of scratch is an i64 scalar");
    return {};
  case OpKind::ReportIndex:
    if (op.operands.size() != 3 || !op.results.empty()) return bad("report_index takes three operands");
    if (!is_bool(k.type(op.operands[0]))) return bad("report_index takes bool");
    for (size_t i : {size_t{1}, size_t{2}}) {
      const Type& t = k.type(op.operands[i]);
      if (t.kind != Type::Kind::Data || t.dtype != DType::I64) return bad("an index and its position are i64");
      if (t.is_tile() && t.shape != k.type(op.operands[0]).shape) return bad("an index and its check differ in shape");
    }
    if (op.site < 0 || op.site >= IndexReport::kSites)
      return bad("a site is in [0, " + std::to_string(IndexReport::kSites) + ")");
    return {};
  case OpKind::Arrive:
  case OpKind::GridBarrier:
  case OpKind::Exchange: return check_cooperation(k, op);
  case OpKind::Prefetch:
    TESSERA_TRY(check_memory(k, op, 2, 2));
    if (!op.results.empty()) return bad("prefetch has no result");
    return {};
  case OpKind::Yield:
    if (!op.results.empty()) return bad("yield has no result");
    return {};
  case OpKind::Count_: break;
  }
  return bad("unknown operation");
}

} // namespace tessera::tile
