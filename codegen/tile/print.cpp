#include "codegen/tile/rules.h"
#include <charconv>
#include <cmath>

namespace tessera::tile {

std::string Type::str() const {
  std::string d(tessera::name(dtype));
  if (kind == Kind::Pointer) return "ptr<" + d + ">";
  if (!is_tile()) return d;
  std::string s = "tile<[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "], " + d + ">";
}

namespace {

// Shortest text that parses to the same number.
std::string float_text(DType dtype, double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[40];
  // Elements of narrower types are floats; the parsed number rounds to the same element.
  auto end = dtype == DType::F64 ? std::to_chars(buffer, buffer + sizeof buffer, v).ptr
                                 : std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(v)).ptr;
  return {buffer, end};
}

class Printer {
public:
  explicit Printer(const Kernel& k) : k_(k), names_(static_cast<size_t>(k.value_count())) {}

  std::string run() {
    out_ = "tile.kernel @" + k_.name + "(";
    for (size_t i = 0; i < k_.params.size(); ++i) {
      const Param& p = k_.params[i];
      names_[static_cast<size_t>(p.value)] = "%" + p.name;
      out_ += (i ? ", %" : "%") + p.name + ": " + p.type.str();
      if (p.written) out_ += " written";
      if (p.once) out_ += " once";
      if (p.invariant) out_ += " invariant";
      if (p.in_place) out_ += " in_place";
      if (p.type.kind == Type::Kind::Pointer && p.alignment != Param{}.alignment)
        out_ += " align=" + std::to_string(p.alignment);
      if (p.multiple_of != 1) out_ += " multiple=" + std::to_string(p.multiple_of);
      if (p.elements != 0) out_ += " elements=" + std::to_string(p.elements);
      for (const Param& n : k_.params)
        if (p.elements_value == n.value) out_ += " elements=%" + n.name;
    }
    out_ += ")";
    if (!k_.config.empty()) {
      out_ += " config(";
      bool first = true;
      for (const auto& [key, value] : k_.config) {
        out_ += (first ? "" : ", ") + key + ": " + std::to_string(value);
        first = false;
      }
      out_ += ")";
    }
    out_ += " {\n";
    block(k_.body, 1);
    return out_ + "}\n";
  }

private:
  const std::string& name(ValueId v) {
    std::string& n = names_[static_cast<size_t>(v)];
    if (n.empty()) n = "%" + std::to_string(next_++);
    return n;
  }
  std::string args(const std::vector<ValueId>& values, size_t from = 0) {
    std::string s;
    for (size_t i = from; i < values.size(); ++i) s += (i > from ? ", " : "") + name(values[i]);
    return s;
  }
  void types(const Op& op) {
    for (size_t i = 0; i < op.results.size(); ++i) out_ += (i ? ", " : " : ") + k_.type(op.results[i]).str();
  }
  void access(const Op& op, size_t mask) {
    if (op.operands.size() > mask) out_ += " mask=" + name(op.operands[mask]);
    if (op.operands.size() > mask + 1) out_ += " other=" + name(op.operands[mask + 1]);
    if (op.contiguous_hint) out_ += " contiguous";
    if (op.caching != Caching::Normal) out_ += " " + std::string(tile::name(op.caching));
  }
  void block(const std::vector<OpId>& ops, int depth) {
    for (OpId id : ops) {
      const Op& op = k_.op(id);
      if (op.kind == OpKind::Yield && op.operands.empty()) continue; // implied
      out_.append(static_cast<size_t>(depth) * 2, ' ');
      // Results are named before the regions, so that numbers grow down the page.
      if (!op.results.empty()) out_ += args(op.results) + " = ";
      statement(op, depth);
      out_ += "\n";
    }
  }
  void region(const Op& op, size_t r, int depth) {
    out_ += " {\n";
    block(op.regions[r], depth + 1);
    out_.append(static_cast<size_t>(depth) * 2, ' ');
    out_ += "}";
  }
  std::string element(const Op& op) { return " " + name(op.operands[0]) + "[" + name(op.operands[1]) + "]"; }
  void statement(const Op& op, int depth) {
    out_ += op_word({op.kind, op.scalar, op.reduce});
    switch (op.kind) {
    case OpKind::Const: {
      const Type& t = k_.type(op.results[0]);
      out_ += " ";
      if (is_float(t.dtype))
        out_ += float_text(t.dtype, op.f);
      else if (t.dtype == DType::Bool)
        out_ += op.i ? "true" : "false";
      else if (t.dtype == DType::U64)
        out_ += std::to_string(static_cast<uint64_t>(op.i));
      else
        out_ += std::to_string(op.i);
      break;
    }
    case OpKind::ProgramId:
    case OpKind::NumPrograms: out_ += " " + std::to_string(op.axis); break;
    case OpKind::Range: out_ += " " + std::to_string(k_.type(op.results[0]).shape[0]); break;
    case OpKind::Broadcast:
    case OpKind::Scalar:
    case OpKind::Dot: out_ += "(" + args(op.operands) + ")"; break;
    case OpKind::ExpandDims:
    case OpKind::Reduce:
    case OpKind::Scan:
      out_ += "(" + args(op.operands) + ") axis=" + std::to_string(op.axis);
      if (op.select_last) out_ += " last";
      break;
    case OpKind::Load:
      out_ += element(op);
      access(op, 2);
      break;
    case OpKind::Store:
    case OpKind::Atomic:
      out_ += element(op) + " = " + name(op.operands[2]);
      access(op, 3);
      break;
    case OpKind::For:
      out_ += " " + name(op.region_args[0][0]) + " = " + name(op.operands[0]) + " to " + name(op.operands[1]) +
              " step " + name(op.operands[2]);
      if (op.num_stages > 0) out_ += " num_stages=" + std::to_string(op.num_stages);
      if (!op.results.empty()) {
        out_ += " carry(";
        for (size_t i = 0; i < op.results.size(); ++i)
          out_ += (i ? ", " : "") + name(op.region_args[0][i + 1]) + " = " + name(op.operands[i + 3]);
        out_ += ")";
      }
      region(op, 0, depth);
      return;
    case OpKind::If:
      out_ += " " + name(op.operands[0]);
      region(op, 0, depth);
      if (k_.op(op.regions[1].back()).operands.empty() && op.regions[1].size() == 1) return; // the else region is empty
      out_ += " else";
      region(op, 1, depth);
      return;
    case OpKind::Scratch: out_ += " " + name(op.operands[0]); break;
    case OpKind::ReportIndex: out_ += " " + args(op.operands) + " site=" + std::to_string(op.site); break;
    case OpKind::Exchange: out_ += "(" + args(op.operands, 4) + ")"; [[fallthrough]];
    case OpKind::Arrive:
    case OpKind::GridBarrier:
      out_ += element(op) + " rank=" + name(op.operands[2]) + " of=" + name(op.operands[3]);
      break;
    case OpKind::Prefetch: out_ += element(op); break;
    case OpKind::Yield: out_ += " " + args(op.operands); break;
    case OpKind::Count_: TESSERA_UNREACHABLE("tile op kind");
    }
    types(op);
  }

  const Kernel& k_;
  std::vector<std::string> names_;
  std::string out_;
  int next_ = 0;
};

} // namespace

std::string print(const Kernel& kernel) { return Printer(kernel).run(); }

} // namespace tessera::tile
