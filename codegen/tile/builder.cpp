#include "base/hash.h"
#include "codegen/tile/rules.h"
#include <array>
#include <bit>

namespace tessera::tile {
namespace {

// Operations that two equal uses may share: no memory, no regions.
bool is_pure(OpKind kind) {
  switch (kind) {
  case OpKind::Const:
  case OpKind::ProgramId:
  case OpKind::NumPrograms:
  case OpKind::Range:
  case OpKind::ExpandDims:
  case OpKind::Broadcast:
  case OpKind::Scalar:
  case OpKind::Reduce:
  case OpKind::Scan:
  case OpKind::Dot: return true;
  default: return false;
  }
}

uint64_t key(const Op& op, const Type& type) {
  uint64_t h = static_cast<uint64_t>(op.kind);
  h = hash_combine(h, static_cast<uint64_t>(op.scalar) << 8 | static_cast<uint64_t>(op.reduce));
  h = hash_combine(h, static_cast<uint64_t>(op.axis) << 1 | static_cast<uint64_t>(op.select_last));
  h = hash_combine(h, std::bit_cast<uint64_t>(op.f));
  h = hash_combine(h, static_cast<uint64_t>(op.i));
  for (ValueId v : op.operands) h = hash_combine(h, static_cast<uint64_t>(v));
  h = hash_combine(h, static_cast<uint64_t>(type.dtype));
  for (int d : type.shape) h = hash_combine(h, static_cast<uint64_t>(d));
  return h;
}

// Bits of f are compared, so that 0 and -0 stay apart and NaN equals itself.
bool same(const Op& a, const Op& b) {
  return a.kind == b.kind && a.scalar == b.scalar && a.reduce == b.reduce && a.select_last == b.select_last &&
         a.axis == b.axis && std::bit_cast<uint64_t>(a.f) == std::bit_cast<uint64_t>(b.f) && a.i == b.i &&
         a.operands == b.operands;
}

std::string identifier(std::string_view name) {
  std::string out;
  for (char c : name) out += (std::isalnum(static_cast<unsigned char>(c)) || c == '_') ? c : '_';
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0]))) out.insert(out.begin(), '_');
  return out;
}

} // namespace

Kernel::Kernel() = default;
Kernel::Kernel(const Kernel&) = default;
Kernel::Kernel(Kernel&&) noexcept = default;
Kernel& Kernel::operator=(const Kernel&) = default;
Kernel& Kernel::operator=(Kernel&&) noexcept = default;
Kernel::~Kernel() = default;

Builder::Builder(Kernel& kernel) : kernel_(kernel) {
  blocks_.push_back(&kernel.body);
  seen_.emplace_back();
}

ValueId Builder::emit(Op op, Type type) {
  bool pure = is_pure(op.kind) && op.results.empty();
  uint64_t h = 0;
  if (pure) {
    h = key(op, type);
    // An equal operation of an enclosing block stands before this one and dominates it.
    for (size_t level = seen_.size(); level-- > 0;) {
      auto [it, end] = seen_[level].equal_range(h);
      for (; it != end; ++it) {
        const Op& old = kernel_.op(it->second);
        if (same(old, op) && kernel_.type(old.results[0]) == type) return old.results[0];
      }
    }
    op.results.push_back(kernel_.new_value(std::move(type)));
  }
  Status ok = check_op(kernel_, op);
  TESSERA_CHECK(ok.ok(), "tile builder: " + std::string(op_name(op.kind)) + ": " + ok.error().message);
  ValueId result = op.results.empty() ? -1 : op.results[0];
  OpId id = kernel_.new_op(std::move(op));
  blocks_.back()->push_back(id);
  if (pure) seen_.back().emplace(h, id);
  return result;
}

ValueId Builder::param(std::string name, Type type, bool written) {
  std::string base = identifier(name), unique = base;
  auto taken = [&](const std::string& n) {
    for (const Param& p : kernel_.params)
      if (p.name == n) return true;
    return false;
  };
  for (int i = 1; taken(unique); ++i) unique = base + "_" + std::to_string(i);
  Param p;
  p.name = std::move(unique);
  p.type = type;
  p.written = written;
  p.value = kernel_.new_value(std::move(type));
  kernel_.params.push_back(std::move(p));
  return kernel_.params.back().value;
}

ValueId Builder::const_f(DType dtype, double v) {
  Op op;
  op.kind = OpKind::Const;
  if (!is_float(dtype)) return const_i(dtype, static_cast<int64_t>(v));
  op.f = dtype == DType::F64   ? v
         : dtype == DType::F32 ? static_cast<double>(static_cast<float>(v))
                               : eval_scalar(ScalarOp::Cast, dtype, DType::F64, std::array{ScalarValue{v, 0}}).f;
  return emit(std::move(op), {Type::Kind::Data, dtype, {}});
}
ValueId Builder::const_i(DType dtype, int64_t v) {
  if (is_float(dtype)) return const_f(dtype, static_cast<double>(v));
  Op op;
  op.kind = OpKind::Const;
  op.i = dtype == DType::Bool ? v != 0 : v;
  return emit(std::move(op), {Type::Kind::Data, dtype, {}});
}
ValueId Builder::program_id(int axis) {
  Op op;
  op.kind = OpKind::ProgramId;
  op.axis = axis;
  return emit(std::move(op), {Type::Kind::Data, DType::I64, {}});
}
ValueId Builder::num_programs(int axis) {
  Op op;
  op.kind = OpKind::NumPrograms;
  op.axis = axis;
  return emit(std::move(op), {Type::Kind::Data, DType::I64, {}});
}
ValueId Builder::range(int n) {
  Op op;
  op.kind = OpKind::Range;
  return emit(std::move(op), {Type::Kind::Data, DType::I64, {n}});
}
ValueId Builder::expand_dims(ValueId v, int axis) {
  Op op;
  op.kind = OpKind::ExpandDims;
  op.axis = axis;
  op.operands = {v};
  Type t = kernel_.type(v);
  TESSERA_CHECK(axis >= 0 && axis <= static_cast<int>(t.shape.size()), "expand_dims: axis");
  t.shape.insert(t.shape.begin() + axis, 1);
  return emit(std::move(op), std::move(t));
}
ValueId Builder::broadcast(ValueId v, std::vector<int> shape) {
  Type t = kernel_.type(v);
  if (t.shape == shape) return v;
  Op op;
  op.kind = OpKind::Broadcast;
  op.operands = {v};
  t.shape = std::move(shape);
  return emit(std::move(op), std::move(t));
}
ValueId Builder::scalar(ScalarOp s, std::span<const ValueId> args) {
  Op op;
  op.kind = OpKind::Scalar;
  op.scalar = s;
  op.operands.assign(args.begin(), args.end());
  std::vector<Type> types;
  for (ValueId v : args) types.push_back(kernel_.type(v));
  Result<Type> type = scalar_result_type(s, types);
  TESSERA_CHECK(type.ok(), "tile builder: " + type.error().message);
  return emit(std::move(op), std::move(type).value());
}
ValueId Builder::convert(ScalarOp how, ValueId v, DType dtype) {
  Type t = kernel_.type(v);
  if (t.dtype == dtype) return v;
  Op op;
  op.kind = OpKind::Scalar;
  op.scalar = how;
  op.operands = {v};
  t.dtype = dtype;
  return emit(std::move(op), std::move(t));
}
ValueId Builder::cast(ValueId v, DType dtype) { return convert(ScalarOp::Cast, v, dtype); }
ValueId Builder::bitcast(ValueId v, DType dtype) { return convert(ScalarOp::Bitcast, v, dtype); }
ValueId Builder::load(ValueId ptr, ValueId offset, ValueId mask, ValueId other, Caching caching) {
  TESSERA_CHECK(mask >= 0 || other < 0, "tile builder: 'other' without mask");
  Op op;
  op.kind = OpKind::Load;
  op.caching = caching;
  op.operands = {ptr, offset};
  if (mask >= 0) op.operands.push_back(mask);
  if (other >= 0) op.operands.push_back(other);
  op.results = {kernel_.new_value({Type::Kind::Data, kernel_.type(ptr).dtype, kernel_.type(offset).shape})};
  return emit(std::move(op), {});
}
void Builder::store(ValueId ptr, ValueId offset, ValueId value, ValueId mask) {
  Op op;
  op.kind = OpKind::Store;
  op.operands = {ptr, offset, value};
  if (mask >= 0) op.operands.push_back(mask);
  emit(std::move(op), {});
}
ValueId Builder::reduce(ReduceKind kind, ValueId v, int axis) {
  Op op;
  op.kind = OpKind::Reduce;
  op.reduce = kind;
  op.axis = axis;
  op.operands = {v};
  Type t = kernel_.type(v);
  TESSERA_CHECK(axis >= 0 && axis < static_cast<int>(t.shape.size()), "reduce: axis");
  t.shape.erase(t.shape.begin() + axis);
  return emit(std::move(op), std::move(t));
}
std::pair<ValueId, ValueId> Builder::reduce_arg(ReduceKind kind, ValueId v, ValueId index, int axis, bool select_last) {
  Op op;
  op.kind = OpKind::Reduce;
  op.reduce = kind;
  op.axis = axis;
  op.select_last = select_last;
  op.operands = {v, index};
  for (ValueId x : {v, index}) {
    Type t = kernel_.type(x);
    TESSERA_CHECK(axis >= 0 && axis < static_cast<int>(t.shape.size()), "reduce: axis");
    t.shape.erase(t.shape.begin() + axis);
    op.results.push_back(kernel_.new_value(std::move(t)));
  }
  std::pair<ValueId, ValueId> results{op.results[0], op.results[1]};
  emit(std::move(op), {});
  return results;
}
ValueId Builder::scan(ReduceKind kind, ValueId v, int axis) {
  Op op;
  op.kind = OpKind::Scan;
  op.reduce = kind;
  op.axis = axis;
  op.operands = {v};
  return emit(std::move(op), kernel_.type(v));
}
ValueId Builder::dot(ValueId a, ValueId b, ValueId acc) {
  Op op;
  op.kind = OpKind::Dot;
  op.operands = {a, b, acc};
  return emit(std::move(op), kernel_.type(acc));
}
ValueId Builder::scratch(DType dtype, ValueId count) {
  Op op;
  op.kind = OpKind::Scratch;
  op.operands = {count};
  op.results = {kernel_.new_value({Type::Kind::Pointer, dtype, {}})};
  return emit(std::move(op), {});
}
void Builder::atomic(ReduceKind kind, ValueId ptr, ValueId offset, ValueId value, ValueId mask) {
  Op op;
  op.kind = OpKind::Atomic;
  op.reduce = kind;
  op.operands = {ptr, offset, value};
  if (mask >= 0) op.operands.push_back(mask);
  emit(std::move(op), {});
}
void Builder::report_index(ValueId bad, ValueId index, ValueId position, int site) {
  Op op;
  op.kind = OpKind::ReportIndex;
  op.site = site;
  op.operands = {bad, index, position};
  emit(std::move(op), {});
}

ValueId Builder::arrive(ValueId counters, ValueId offset, ValueId rank, ValueId count) {
  Op op;
  op.kind = OpKind::Arrive;
  op.operands = {counters, offset, rank, count};
  op.results = {kernel_.new_value({Type::Kind::Data, DType::Bool, {}})};
  return emit(std::move(op), {});
}

void Builder::grid_barrier(ValueId counters, ValueId offset, ValueId rank, ValueId count) {
  Op op;
  op.kind = OpKind::GridBarrier;
  op.operands = {counters, offset, rank, count};
  emit(std::move(op), {});
}

std::vector<ValueId> Builder::exchange(ValueId mailboxes, ValueId offset, ValueId rank, ValueId count,
                                       std::span<const ValueId> partials, int size) {
  Op op;
  op.kind = OpKind::Exchange;
  op.operands = {mailboxes, offset, rank, count};
  for (ValueId v : partials) {
    op.operands.push_back(v);
    op.results.push_back(kernel_.new_value({Type::Kind::Data, kernel_.type(v).dtype, {size}}));
  }
  std::vector<ValueId> results = op.results;
  emit(std::move(op), {});
  return results;
}

void Builder::prefetch(ValueId ptr, ValueId offset) {
  Op op;
  op.kind = OpKind::Prefetch;
  op.operands = {ptr, offset};
  emit(std::move(op), {});
}

std::vector<ValueId>
Builder::for_loop(ValueId from, ValueId to, ValueId step, std::vector<ValueId> carried,
                  const std::function<std::vector<ValueId>(ValueId, std::span<const ValueId>)>& body, int num_stages) {
  Op op;
  op.kind = OpKind::For;
  op.num_stages = num_stages;
  op.operands = {from, to, step};
  op.operands.insert(op.operands.end(), carried.begin(), carried.end());
  std::vector<ValueId> args{kernel_.new_value({Type::Kind::Data, DType::I64, {}})};
  for (ValueId c : carried) {
    Type type = kernel_.type(c);
    args.push_back(kernel_.new_value(type));
    op.results.push_back(kernel_.new_value(std::move(type)));
  }
  op.regions.emplace_back();
  op.region_args.push_back(args);
  blocks_.push_back(&op.regions[0]);
  seen_.emplace_back();
  Op yield;
  yield.kind = OpKind::Yield;
  yield.operands = body(args[0], std::span<const ValueId>(args).subspan(1));
  emit(std::move(yield), {});
  blocks_.pop_back();
  seen_.pop_back();
  std::vector<ValueId> results = op.results;
  emit(std::move(op), {});
  return results;
}

std::vector<ValueId> Builder::if_else(ValueId condition, const std::function<std::vector<ValueId>()>& then_body,
                                      const std::function<std::vector<ValueId>()>& else_body) {
  Op op;
  op.kind = OpKind::If;
  op.operands = {condition};
  op.regions.resize(2);
  op.region_args.resize(2);
  for (size_t r = 0; r < 2; ++r) {
    blocks_.push_back(&op.regions[r]);
    seen_.emplace_back();
    Op yield;
    yield.kind = OpKind::Yield;
    yield.operands = r == 0 ? then_body() : else_body();
    if (r == 0)
      for (ValueId v : yield.operands) {
        Type type = kernel_.type(v);
        op.results.push_back(kernel_.new_value(std::move(type)));
      }
    emit(std::move(yield), {});
    blocks_.pop_back();
    seen_.pop_back();
  }
  std::vector<ValueId> results = op.results;
  emit(std::move(op), {});
  return results;
}

} // namespace tessera::tile
