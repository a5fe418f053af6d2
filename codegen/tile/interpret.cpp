// Reference interpreter of the tile IR, one element at a time. Slow and simple; the lowerings are tested against it.
#include "codegen/tile/cooperation.h"
#include "codegen/tile/rules.h"
#include <cmath>
#include <cstring>
#include <limits>

namespace tessera::tile {
namespace {

constexpr uint64_t kMaxSteps = uint64_t{1} << 33;      // element operations of one call: every kernel terminates
constexpr int64_t kMaxCooperative = 4096;              // programs of a cooperative grid: the values of all are stored
constexpr int64_t kMaxScratchBytes = int64_t{1} << 30; // scratch of one program

template <class T>
T read_as(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
void write_as(std::byte* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

ScalarValue read_element(DType d, const std::byte* p) {
  switch (d) {
  case DType::Bool: return {0, read_as<uint8_t>(p) != 0};
  case DType::I8: return {0, read_as<int8_t>(p)};
  case DType::I16: return {0, read_as<int16_t>(p)};
  case DType::I32: return {0, read_as<int32_t>(p)};
  case DType::I64:
  case DType::U64: return {0, read_as<int64_t>(p)};
  case DType::U8: return {0, read_as<uint8_t>(p)};
  case DType::U16: return {0, read_as<uint16_t>(p)};
  case DType::U32: return {0, read_as<uint32_t>(p)};
  case DType::F16: return {static_cast<double>(f16_to_f32(read_as<uint16_t>(p))), 0};
  case DType::BF16: return {static_cast<double>(bf16_to_f32(read_as<uint16_t>(p))), 0};
  case DType::F32: return {static_cast<double>(read_as<float>(p)), 0};
  case DType::F64: return {read_as<double>(p), 0};
  default: return {static_cast<double>(small_float_to_f32(d, read_as<uint8_t>(p))), 0};
  }
}

void write_element(DType d, std::byte* p, ScalarValue v) {
  switch (d) {
  case DType::Bool: return write_as<uint8_t>(p, v.i != 0);
  case DType::I8:
  case DType::U8: return write_as(p, static_cast<uint8_t>(v.i));
  case DType::I16:
  case DType::U16: return write_as(p, static_cast<uint16_t>(v.i));
  case DType::I32:
  case DType::U32: return write_as(p, static_cast<uint32_t>(v.i));
  case DType::I64:
  case DType::U64: return write_as(p, v.i);
  case DType::F16: return write_as(p, f32_to_f16(static_cast<float>(v.f)));
  case DType::BF16: return write_as(p, f32_to_bf16(static_cast<float>(v.f)));
  case DType::F32: return write_as(p, static_cast<float>(v.f));
  case DType::F64: return write_as(p, v.f);
  default: return write_as(p, f32_to_small_float(d, static_cast<float>(v.f)));
  }
}

struct Memory {
  std::string name;
  std::byte* data = nullptr;
  int64_t count = 0;          // elements
  std::vector<bool> written;  // scratch: which elements were written
  std::vector<std::byte> own; // scratch
};

struct Cell {
  std::vector<ScalarValue> e; // elements, row-major; one for a scalar
  int memory = -1;            // index into memory_, of a pointer
};

class Interpreter {
public:
  Interpreter(const Kernel& k, std::span<const Argument> args, Grid grid)
      : k_(k), args_(args), grid_(grid), cells_(static_cast<size_t>(k.value_count())) {}

  Result<InterpretResult> run() {
    for (int axis = 0; axis < kGridAxes; ++axis)
      if (grid_[axis] > kMaxGrid[static_cast<size_t>(axis)])
        return error("a grid has at most " + std::to_string(kMaxGrid[static_cast<size_t>(axis)]) +
                     " programs along axis " + std::to_string(axis) + ", got " + std::to_string(grid_[axis]));
    if (args_.size() != k_.params.size())
      return error("expected " + std::to_string(k_.params.size()) + " arguments, got " + std::to_string(args_.size()));
    for (size_t i = 0; i < args_.size(); ++i) {
      const Param& p = k_.params[i];
      Cell& c = cells_[static_cast<size_t>(p.value)];
      if (p.type.kind == Type::Kind::Data) {
        c.e = {args_[i].scalar};
        if (p.multiple_of > 1 && args_[i].scalar.i % p.multiple_of != 0)
          return error("argument '" + p.name + "' is not a multiple of " + std::to_string(p.multiple_of));
        continue;
      }
      Memory m;
      m.name = p.name;
      m.data = args_[i].bytes.data();
      m.count = static_cast<int64_t>(args_[i].bytes.size()) / (info(p.type.dtype).bits / 8);
      c.memory = static_cast<int>(memory_.size());
      memory_.push_back(std::move(m));
    }
    for (const Param& p : k_.params) {
      const int64_t promised = p.elements_value < 0 ? p.elements : cells_[static_cast<size_t>(p.elements_value)].e[0].i;
      if (promised > 0 && memory_[static_cast<size_t>(cells_[static_cast<size_t>(p.value)].memory)].count < promised)
        return error("argument '" + p.name + "' has fewer than the " + std::to_string(promised) + " promised elements");
    }
    TESSERA_TRY(needs_cooperative_launch(k_) ? run_cooperative(grid_.programs()) : run_independent(grid_.programs()));
    return std::move(result_);
  }

private:
  Status run_independent(int64_t grid) {
    size_t pointers = memory_.size();
    for (program_ = 0; program_ < grid; ++program_) {
      TESSERA_TRY(block(k_.body));
      memory_.resize(pointers); // the program's scratch is freed
      scratch_bytes_ = 0;
    }
    return {};
  }

  // Runs all programs up to an operation that waits, then all of them on from there. `states`: values of each program.
  Status run_cooperative(int64_t grid) {
    if (grid > kMaxCooperative)
      return error("a cooperative grid of " + std::to_string(grid) + " programs, at most " +
                   std::to_string(kMaxCooperative));
    std::vector<std::vector<Cell>> states(static_cast<size_t>(std::max<int64_t>(grid, 0)), cells_);
    for (size_t begin = 0; begin < k_.body.size();) {
      size_t end = begin;
      while (end < k_.body.size() && !waits_for_programs(k_.op(k_.body[end]))) ++end;
      const Op* wait = end < k_.body.size() ? &k_.op(k_.body[end]) : nullptr;
      const bool exchanges = wait && wait->kind == OpKind::Exchange;
      for (program_ = 0; program_ < grid; ++program_) {
        cells_.swap(states[static_cast<size_t>(program_)]);
        for (size_t i = begin; i < end; ++i) TESSERA_TRY(step(k_.op(k_.body[i])));
        if (wait) TESSERA_TRY(exchanges ? send(*wait) : arrive(*wait));
        cells_.swap(states[static_cast<size_t>(program_)]);
      }
      for (program_ = 0; wait && program_ < grid; ++program_) {
        cells_.swap(states[static_cast<size_t>(program_)]);
        bool all = false;
        if (exchanges) {
          TESSERA_ASSIGN(all, receive(*wait));
        } else {
          TESSERA_ASSIGN(std::byte * counter, counter_of(*wait));
          all = all_arrived(read_as<uint32_t>(counter));
        }
        if (!all)
          return error("program " + std::to_string(program_) + " waits for cooperative programs that never arrive");
        cells_.swap(states[static_cast<size_t>(program_)]);
      }
      begin = end + 1;
    }
    return {};
  }

  Result<std::byte*> counter_of(const Op& op) {
    int64_t index = 0;
    return element(op, 0, op.operands.size(), memory_of(op), DType::I32, &index);
  }
  Status arrive(const Op& op) {
    TESSERA_TRY(spend(1));
    TESSERA_ASSIGN(std::byte * counter, counter_of(op));
    int64_t rank = e(op.operands[2])[0].i, count = e(op.operands[3])[0].i;
    if (rank < 0 || rank >= count || count >= kArrivalPhase)
      return error("program " + std::to_string(program_) + " arrives as rank " + std::to_string(rank) + " of " +
                   std::to_string(count));
    uint32_t now = read_as<uint32_t>(counter) + arrival_increment(rank, count);
    write_as(counter, now);
    if (op.kind == OpKind::Arrive) result(op)[0].i = all_arrived(now);
    return {};
  }

  // Word w of slot `from` in the mailbox of program `to`.
  Result<std::byte*> slot_word(const Op& op, int64_t to, int64_t from, int w) {
    std::vector<DType> dtypes;
    for (ValueId v : op.results) dtypes.push_back(k_.type(v).dtype);
    const int64_t count = e(op.operands[3])[0].i, index = e(op.operands[1])[0].i;
    const int64_t at = index + (to * count + from) * packet_words(dtypes) + w;
    Memory& m = memory_of(op);
    if (at < 0 || at >= m.count)
      return error("exchange through '" + m.name + "' at offset " + std::to_string(at) + " of " +
                   std::to_string(m.count) + " words, program " + std::to_string(program_));
    return m.data + at * static_cast<int64_t>(sizeof(uint32_t));
  }
  // Index in a slot of payload word `word`: each packet has kPayloadWords of them and a flag.
  static int slot_index(int word) { return word / kPayloadWords * kPacketWords + word % kPayloadWords; }
  Status send(const Op& op) {
    TESSERA_TRY(spend(1));
    const int64_t rank = e(op.operands[2])[0].i, count = e(op.operands[3])[0].i;
    if (rank < 0 || rank >= count || count > k_.type(op.results[0]).count())
      return error("program " + std::to_string(program_) + " exchanges as rank " + std::to_string(rank) + " of " +
                   std::to_string(count));
    std::vector<uint32_t> words;
    for (size_t i = 0; i < op.results.size(); ++i) {
      const DType dtype = k_.type(op.results[i]).dtype;
      std::byte bytes[2 * sizeof(uint32_t)]{};
      write_element(dtype, bytes, e(op.operands[i + 4])[0]);
      for (int w = 0; w < words_of(dtype); ++w) words.push_back(read_as<uint32_t>(bytes + 4 * w));
    }
    for (int64_t to = 0; to < count; ++to)
      for (size_t w = 0; w < words.size(); ++w) {
        const int at = slot_index(static_cast<int>(w)), flag = at / kPacketWords * kPacketWords + kPayloadWords;
        TESSERA_ASSIGN(std::byte * there, slot_word(op, to, rank, flag));
        if (w % kPayloadWords == 0 && read_as<uint32_t>(there) != 0)
          return error("program " + std::to_string(program_) + " writes to a mailbox slot that was not read");
        write_as(there, uint32_t{1});
        TESSERA_ASSIGN(there, slot_word(op, to, rank, at));
        write_as(there, words[w]);
      }
    return {};
  }
  // True if all programs have sent. Clears the program's mailbox.
  Result<bool> receive(const Op& op) {
    const int64_t rank = e(op.operands[2])[0].i, count = e(op.operands[3])[0].i;
    for (size_t i = 0; i < op.results.size(); ++i) result(op, i);
    for (int64_t from = 0; from < count; ++from) {
      int word = 0;
      for (size_t i = 0; i < op.results.size(); ++i) {
        const DType dtype = k_.type(op.results[i]).dtype;
        std::byte bytes[2 * sizeof(uint32_t)]{};
        for (int w = 0; w < words_of(dtype); ++w, ++word) {
          const int at = slot_index(word), flag = at / kPacketWords * kPacketWords + kPayloadWords;
          TESSERA_ASSIGN(std::byte * there, slot_word(op, rank, from, flag));
          if (read_as<uint32_t>(there) == 0) return false;
          TESSERA_ASSIGN(there, slot_word(op, rank, from, at));
          write_as(bytes + 4 * w, read_as<uint32_t>(there));
        }
        cells_[static_cast<size_t>(op.results[i])].e[static_cast<size_t>(from)] = read_element(dtype, bytes);
      }
      for (int w = 0; w < slot_index(word - 1) / kPacketWords * kPacketWords + kPacketWords; ++w) {
        TESSERA_ASSIGN(std::byte * there, slot_word(op, rank, from, w));
        write_as(there, uint32_t{0});
      }
    }
    return true;
  }

  Diagnostic error(const std::string& message) const {
    return {ErrorCode::BadInput, "tile kernel '" + k_.name + "': " + message};
  }
  const std::vector<ScalarValue>& e(ValueId v) const { return cells_[static_cast<size_t>(v)].e; }
  // Element i of an operand; a scalar is broadcast.
  ScalarValue at(ValueId v, size_t i) const {
    const auto& list = e(v);
    return list.size() == 1 ? list[0] : list[i];
  }
  std::vector<ScalarValue>& result(const Op& op, size_t r = 0) {
    ValueId v = op.results[r];
    auto& list = cells_[static_cast<size_t>(v)].e;
    list.assign(static_cast<size_t>(k_.type(v).count()), ScalarValue{});
    return list;
  }

  Status block(const std::vector<OpId>& ops) {
    for (OpId id : ops) TESSERA_TRY(step(k_.op(id)));
    return {};
  }
  Status spend(int64_t n) {
    steps_ += static_cast<uint64_t>(n) + 1;
    if (steps_ > kMaxSteps)
      return Diagnostic(ErrorCode::Cancelled, "tile kernel '" + k_.name + "': too many steps to interpret");
    return {};
  }

  // The element that access i of `op` touches, or null where the mask is false.
  Result<std::byte*> element(const Op& op, size_t i, size_t mask, Memory& m, DType dtype, int64_t* index) {
    if (op.operands.size() > mask && at(op.operands[mask], i).i == 0) return static_cast<std::byte*>(nullptr);
    *index = at(op.operands[1], i).i;
    if (*index < 0 || *index >= m.count)
      return error(std::string(op_name(op.kind)) + " of '" + m.name + "' at offset " + std::to_string(*index) + " of " +
                   std::to_string(m.count) + " elements, program " + std::to_string(program_));
    return m.data + *index * (info(dtype).bits / 8);
  }
  Memory& memory_of(const Op& op) {
    return memory_[static_cast<size_t>(cells_[static_cast<size_t>(op.operands[0])].memory)];
  }

  Status load(const Op& op) {
    DType dtype = k_.type(op.results[0]).dtype;
    Memory& m = memory_of(op);
    std::vector<ScalarValue> out(static_cast<size_t>(k_.type(op.results[0]).count()));
    for (size_t i = 0; i < out.size(); ++i) {
      int64_t index = 0;
      TESSERA_ASSIGN(std::byte * p, element(op, i, 2, m, dtype, &index));
      if (!p) {
        if (op.operands.size() > 3) out[i] = at(op.operands[3], i);
        continue;
      }
      if (!m.written.empty() && !m.written[static_cast<size_t>(index)])
        return error("scratch is read at " + std::to_string(index) + " before it is written");
      out[i] = read_element(dtype, p);
    }
    cells_[static_cast<size_t>(op.results[0])].e = std::move(out);
    return {};
  }
  Status store(const Op& op) {
    DType dtype = k_.type(op.operands[0]).dtype;
    Memory& m = memory_of(op);
    size_t n = static_cast<size_t>(k_.type(op.operands[1]).count());
    for (size_t i = 0; i < n; ++i) {
      int64_t index = 0;
      TESSERA_ASSIGN(std::byte * p, element(op, i, 3, m, dtype, &index));
      if (!p) continue;
      ScalarValue v = at(op.operands[2], i);
      if (op.kind == OpKind::Atomic) {
        DType c = compute_dtype(dtype);
        ScalarValue args[2] = {read_element(dtype, p), v};
        v = eval_scalar(combine(op.reduce), c, c, args);
      }
      if (!m.written.empty()) m.written[static_cast<size_t>(index)] = true;
      write_element(dtype, p, v);
    }
    return {};
  }

  Status scalar(const Op& op) {
    const Type& type = k_.type(op.results[0]);
    std::vector<ScalarValue> out(static_cast<size_t>(type.count()));
    DType argument = k_.type(op.operands[0]).dtype;
    ScalarValue args[3];
    for (size_t i = 0; i < out.size(); ++i) {
      for (size_t a = 0; a < op.operands.size(); ++a) args[a] = at(op.operands[a], i);
      if (op.scalar == ScalarOp::Select)
        out[i] = args[0].i ? args[1] : args[2];
      else
        out[i] = eval_scalar(op.scalar, type.dtype, argument, {args, op.operands.size()});
    }
    cells_[static_cast<size_t>(op.results[0])].e = std::move(out);
    return {};
  }

  static ScalarOp combine(ReduceKind kind) {
    switch (kind) {
    case ReduceKind::Prod: return ScalarOp::Mul;
    case ReduceKind::Max: return ScalarOp::Max;
    case ReduceKind::Min: return ScalarOp::Min;
    case ReduceKind::Any: return ScalarOp::Or;
    case ReduceKind::All: return ScalarOp::And;
    default: return ScalarOp::Add;
    }
  }
  // True if (v, i) replaces (best, best_i): NaN wins; equal values are ordered by index, see select_last.
  static bool beats(const Op& op, DType dtype, ScalarValue v, int64_t i, ScalarValue best, int64_t best_i) {
    bool later = op.select_last ? i > best_i : i < best_i;
    if (is_float(dtype)) {
      if (std::isnan(v.f) || std::isnan(best.f)) return std::isnan(v.f) && (!std::isnan(best.f) || later);
      if (v.f == best.f) return later;
      return op.reduce == ReduceKind::ArgMax ? v.f > best.f : v.f < best.f;
    }
    if (v.i == best.i) return later;
    bool greater = info(dtype).kind == DTypeKind::Unsigned ? static_cast<uint64_t>(v.i) > static_cast<uint64_t>(best.i)
                                                           : v.i > best.i;
    return op.reduce == ReduceKind::ArgMax ? greater : !greater;
  }
  Status fold(const Op& op) {
    const Type& type = k_.type(op.operands[0]);
    size_t inner = 1, outer = 1, n = static_cast<size_t>(type.shape[static_cast<size_t>(op.axis)]);
    for (int d = 0; d < static_cast<int>(type.shape.size()); ++d) {
      if (d < op.axis) outer *= static_cast<size_t>(type.shape[static_cast<size_t>(d)]);
      if (d > op.axis) inner *= static_cast<size_t>(type.shape[static_cast<size_t>(d)]);
    }
    bool arg = op.operands.size() == 2, scan = op.kind == OpKind::Scan;
    auto& out = result(op);
    const auto& in = e(op.operands[0]);
    if (arg) result(op, 1);
    for (size_t o = 0; o < outer; ++o)
      for (size_t j = 0; j < inner; ++j) {
        auto source = [&](size_t r) { return (o * n + r) * inner + j; };
        ScalarValue acc = in[source(0)];
        ScalarValue where = arg ? e(op.operands[1])[source(0)] : ScalarValue{};
        if (scan) out[source(0)] = acc;
        for (size_t r = 1; r < n; ++r) {
          ScalarValue v = in[source(r)];
          if (arg) {
            ScalarValue i = e(op.operands[1])[source(r)];
            if (!beats(op, type.dtype, v, i.i, acc, where.i)) continue;
            acc = v;
            where = i;
            continue;
          }
          ScalarValue pair[2] = {acc, v};
          acc = eval_scalar(combine(op.reduce), type.dtype, type.dtype, pair);
          if (scan) out[source(r)] = acc;
        }
        if (scan) continue;
        out[o * inner + j] = acc;
        if (arg) cells_[static_cast<size_t>(op.results[1])].e[o * inner + j] = where;
      }
    return {};
  }

  Status dot(const Op& op) {
    const Type &a = k_.type(op.operands[0]), &c = k_.type(op.operands[2]);
    size_t m = static_cast<size_t>(c.shape[0]), n = static_cast<size_t>(c.shape[1]),
           depth = static_cast<size_t>(a.shape[1]);
    auto& out = result(op);
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < n; ++j) {
        ScalarValue acc = e(op.operands[2])[i * n + j];
        for (size_t l = 0; l < depth; ++l) {
          ScalarValue factors[2] = {e(op.operands[0])[i * depth + l], e(op.operands[1])[l * n + j]};
          ScalarValue terms[2] = {acc, eval_scalar(ScalarOp::Mul, c.dtype, c.dtype, factors)};
          acc = eval_scalar(ScalarOp::Add, c.dtype, c.dtype, terms);
        }
        out[i * n + j] = acc;
      }
    return {};
  }

  Status broadcast(const Op& op) {
    const Type &from = k_.type(op.operands[0]), &to = k_.type(op.results[0]);
    std::vector<ScalarValue> out(static_cast<size_t>(to.count()));
    for (size_t i = 0; i < out.size(); ++i) {
      size_t rest = i, source = 0, stride = 1;
      for (size_t d = from.shape.size(); d-- > 0;) {
        size_t index = rest % static_cast<size_t>(to.shape[d]);
        rest /= static_cast<size_t>(to.shape[d]);
        if (from.shape[d] != 1) source += index * stride;
        stride *= static_cast<size_t>(from.shape[d]);
      }
      out[i] = e(op.operands[0])[source];
    }
    cells_[static_cast<size_t>(op.results[0])].e = std::move(out);
    return {};
  }

  // Copies the operands of the region's yield to `to`, all read before any is written.
  void yield_to(const std::vector<OpId>& region, std::span<const ValueId> to) {
    const Op& y = k_.op(region.back());
    std::vector<std::vector<ScalarValue>> values;
    for (ValueId v : y.operands) values.push_back(e(v));
    for (size_t i = 0; i < to.size(); ++i) cells_[static_cast<size_t>(to[i])].e = std::move(values[i]);
  }
  Status for_loop(const Op& op) {
    int64_t from = e(op.operands[0])[0].i, to = e(op.operands[1])[0].i, step = e(op.operands[2])[0].i;
    if (step <= 0) return error("a loop's step must be positive, it is " + std::to_string(step));
    std::span<const ValueId> carried = std::span<const ValueId>(op.region_args[0]).subspan(1);
    for (size_t i = 0; i < carried.size(); ++i) cells_[static_cast<size_t>(carried[i])].e = e(op.operands[3 + i]);
    int64_t i = from;
    while (i < to) {
      TESSERA_TRY(spend(1));
      cells_[static_cast<size_t>(op.region_args[0][0])].e = {ScalarValue{0, i}};
      TESSERA_TRY(block(op.regions[0]));
      yield_to(op.regions[0], carried);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    for (size_t c = 0; c < carried.size(); ++c) cells_[static_cast<size_t>(op.results[c])].e = e(carried[c]);
    return {};
  }

  Status step(const Op& op) {
    TESSERA_TRY(spend(op.results.empty() ? (op.operands.size() > 1 ? k_.type(op.operands[1]).count() : 1)
                                         : k_.type(op.results[0]).count()));
    switch (op.kind) {
    case OpKind::Const:
      for (ScalarValue& v : result(op)) v = {op.f, op.i};
      return {};
    case OpKind::ProgramId: result(op)[0].i = grid_.index(program_, op.axis); return {};
    case OpKind::NumPrograms: result(op)[0].i = grid_[op.axis]; return {};
    case OpKind::Range: {
      auto& out = result(op);
      for (size_t i = 0; i < out.size(); ++i) out[i].i = static_cast<int64_t>(i);
      return {};
    }
    case OpKind::ExpandDims: cells_[static_cast<size_t>(op.results[0])].e = e(op.operands[0]); return {};
    case OpKind::Broadcast: return broadcast(op);
    case OpKind::Scalar: return scalar(op);
    case OpKind::Load: return load(op);
    case OpKind::Store:
    case OpKind::Atomic: return store(op);
    case OpKind::Reduce:
    case OpKind::Scan: return fold(op);
    case OpKind::Dot: return dot(op);
    case OpKind::For: return for_loop(op);
    case OpKind::If: {
      const auto& region = op.regions[e(op.operands[0])[0].i ? 0 : 1];
      TESSERA_TRY(block(region));
      yield_to(region, op.results);
      return {};
    }
    case OpKind::Scratch: return scratch(op);
    case OpKind::ReportIndex: report_index(op); return {};
    case OpKind::Arrive: return arrive(op);
    case OpKind::GridBarrier:
    case OpKind::Exchange:
      return error("an operation that waits for programs is inside a region"); // run_cooperative runs the others
    case OpKind::Prefetch:
    case OpKind::Yield: return {};
    case OpKind::Count_: break;
    }
    TESSERA_UNREACHABLE("tile op kind");
  }
  void report_index(const Op& op) {
    const auto& bad = e(op.operands[0]);
    auto at = [&](size_t operand, size_t i) {
      const auto& cells = e(op.operands[operand]);
      return cells[cells.size() == 1 ? 0 : i].i;
    };
    for (size_t i = 0; i < bad.size(); ++i)
      if (bad[i].i) result_.report.add(op.site, at(2, i), at(1, i));
  }
  Status scratch(const Op& op) {
    int64_t count = e(op.operands[0])[0].i, size = info(k_.type(op.results[0]).dtype).bits / 8;
    if (count < 0 || count > (kMaxScratchBytes - scratch_bytes_) / size)
      return error("scratch of " + std::to_string(count) + " elements");
    scratch_bytes_ += count * size;
    Memory m;
    m.name = "scratch";
    m.count = count;
    m.own.resize(static_cast<size_t>(count * size));
    m.written.resize(static_cast<size_t>(count) + 1); // never empty: empty marks an argument
    m.data = m.own.data();
    cells_[static_cast<size_t>(op.results[0])].memory = static_cast<int>(memory_.size());
    memory_.push_back(std::move(m));
    return {};
  }

  const Kernel& k_;
  std::span<const Argument> args_;
  Grid grid_;
  std::vector<Cell> cells_;
  std::vector<Memory> memory_;
  InterpretResult result_;
  int64_t program_ = 0, scratch_bytes_ = 0;
  uint64_t steps_ = 0;
};

} // namespace

Result<InterpretResult> interpret(const Kernel& kernel, std::span<const Argument> args, Grid grid) {
  return Interpreter(kernel, args, grid).run();
}

} // namespace tessera::tile
