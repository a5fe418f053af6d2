// narrow: generated code computes with elements of 8 bits and more, and with floats of 16 bits and more. Nodes on smaller
// ones are rewritten: they take the codes of elements out of bytes, compute on codes where elements only move and on
// wider numbers where they count, and put codes back. `reinterpret` stands between a tensor and its bytes; where one
// node's codes go straight to another's, nothing does.
#include "graph/ir/operator.h"
#include "graph/passes/passes.h"

namespace tessera::passes {
namespace {

bool is_narrow(DType d) { return info(d).bits != 0 && (info(d).bits < 8 || (is_float(d) && info(d).bits == 8)); }

class Rewrite {
public:
  Rewrite(Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  Result<std::vector<ValueId>> run() {
    const Node& n = node_;
    const bool mixed = n.op->name == std::string_view("cast");
    if (mixed) {
      const DType to = graph_.type(n.results[0]).dtype;
      if (is_narrow(to)) return one(cast(n.operands[0], to));
      TESSERA_ASSIGN(ValueId x, wide(n.operands[0]));
      return one(graph_.type(x).dtype == to ? Made(x) : emit("cast", {x}, n.attributes));
    }
    if (n.op->indexing()) return again([&](ValueId v) { return codes(v); }, true);
    if (n.op->pointwise() || n.op->reduction()) return again([&](ValueId v) { return wide(v); }, false);
    return std::vector<ValueId>{}; // others are chosen by their types: libraries
  }

private:
  using Made = Result<ValueId>;
  Made emit(std::string_view op, std::vector<ValueId> operands, Attributes attributes = {}) {
    return passes::emit(graph_, node_.location, op, std::move(operands), std::move(attributes));
  }
  static Result<std::vector<ValueId>> one(Made value) {
    TESSERA_ASSIGN(ValueId v, std::move(value));
    return std::vector<ValueId>{v};
  }
  Made plain_cast(ValueId v, DType to) {
    if (graph_.type(v).dtype == to) return v;
    return emit("cast", {v}, {{"to", to}});
  }

  // The codes of a narrow tensor, a byte each: u8; sign-extended in i8 where integers are signed.
  Made codes(ValueId v) {
    const TensorType type = graph_.type(v);
    if (!is_narrow(type.dtype)) return v;
    const int64_t bits = info(type.dtype).bits, is_signed = info(type.dtype).kind == DTypeKind::Signed ? 1 : 0;
    const Node* alias = graph_.producer(v);
    const ValueId bytes = is_op(alias, "reinterpret") && graph_.type(alias->operands[0]).dtype == DType::U8
                              ? alias->operands[0]
                              : ValueId{};
    if (bits == 8) return bytes.valid() ? Made(bytes) : emit("reinterpret", {v}, {{"to", DType::U8}});
    if (bytes.valid())
      if (const Node* pack = graph_.producer(bytes); is_op(pack, "pack") && pack->attributes.i("bits") == bits) {
        TESSERA_ASSIGN(ValueId whole, plain_cast(pack->operands[0], is_signed != 0 ? DType::I8 : DType::U8));
        return emit("wrap_bits", {whole}, {{"bits", bits}});
      }
    ValueId packed = bytes;
    if (!packed.valid()) {
      TESSERA_ASSIGN(packed, emit("reinterpret", {v}, {{"to", DType::U8}}));
    }
    return emit("unpack", {packed}, {{"bits", bits}, {"signed", is_signed}, {"dims", type.shape}});
  }
  // The tensor of `dtype` with these codes.
  Made from_codes(ValueId v, DType dtype) {
    if (info(dtype).bits == 8) return emit("reinterpret", {v}, {{"to", dtype}});
    const SymShape shape = graph_.type(v).shape;
    TESSERA_ASSIGN(ValueId bytes, emit("pack", {v}, {{"bits", int64_t{info(dtype).bits}}}));
    return emit("reinterpret", {bytes}, {{"to", dtype}, {"dims", shape}});
  }
  // The numbers of a narrow tensor in a type that generated code has.
  Made wide(ValueId v) {
    const DType dtype = graph_.type(v).dtype;
    if (!is_narrow(dtype)) return v;
    TESSERA_ASSIGN(ValueId c, codes(v));
    return is_float(dtype) ? emit("decode_float", {c}, {{"from", dtype}}) : Made(c);
  }
  Made cast(ValueId v, DType to) {
    const DType from = graph_.type(v).dtype;
    TESSERA_ASSIGN(ValueId x, wide(v));
    if (!is_narrow(to)) return plain_cast(x, to);
    if (is_float(to)) {
      if (!is_float(graph_.type(x).dtype)) {
        TESSERA_ASSIGN(x, plain_cast(x, from == DType::Bool ? DType::F32 : DType::F64));
      }
      if (to == DType::F8E8M0) { // what is below 0 is rounded to its smallest number
        TESSERA_ASSIGN(auto zero, Tensor::create(graph_.type(x).dtype, {}, true));
        TESSERA_ASSIGN(x, emit("max", {x, graph_.add_constant(zero)}));
      }
      TESSERA_ASSIGN(x, emit("encode_float", {x}, {{"to", to}}));
      return from_codes(x, to);
    }
    const bool is_signed = info(to).kind == DTypeKind::Signed;
    if (is_float(graph_.type(x).dtype)) { // truncates and saturates; integers wrap
      const int64_t n = int64_t{1} << info(to).bits;
      TESSERA_ASSIGN(x, plain_cast(x, DType::I8));
      TESSERA_ASSIGN(Tensor low, Tensor::create(DType::I8, {}));
      TESSERA_ASSIGN(Tensor high, Tensor::create(DType::I8, {}));
      low.set_i64(0, is_signed ? -n / 2 : 0);
      high.set_i64(0, is_signed ? n / 2 - 1 : n - 1);
      TESSERA_ASSIGN(x, emit("max", {x, graph_.add_constant(low)}));
      TESSERA_ASSIGN(x, emit("min", {x, graph_.add_constant(high)}));
    }
    TESSERA_ASSIGN(x, plain_cast(x, is_signed ? DType::I8 : DType::U8));
    return from_codes(x, to);
  }

  // The node on other operands, its results in the types that they had.
  Result<std::vector<ValueId>> again(const std::function<Made(ValueId)>& operand, bool as_codes) {
    std::vector<ValueId> operands;
    for (ValueId v : node_.operands) {
      operands.push_back(v);
      if (v.valid()) {
        TESSERA_ASSIGN(operands.back(), operand(v));
      }
    }
    std::vector<std::string> names(node_.results.size());
    TESSERA_ASSIGN(NodeId id, graph_.add_node(*node_.op, operands, node_.attributes, Location(node_.location), names,
                                              node_.opset));
    std::vector<ValueId> out;
    for (size_t r = 0; r < node_.results.size(); ++r) {
      ValueId made = graph_.node(id).results[r];
      if (node_.results[r].valid()) {
        const DType wanted = graph_.type(node_.results[r]).dtype;
        if (graph_.type(made).dtype != wanted) {
          TESSERA_ASSIGN(made, as_codes ? from_codes(made, wanted) : cast(made, wanted));
        }
      }
      out.push_back(made);
    }
    return out;
  }

  Graph& graph_;
  const Node& node_;
};

} // namespace

Result<bool> narrow(Graph& graph, const PassOptions&) {
  return Sweep(graph).run([&](NodeId id) -> Result<std::vector<ValueId>> {
    const Node node = graph.node(id); // a copy: the rewrite appends
    if (node.op->structured() || node.op->is_composite()) return std::vector<ValueId>{};
    bool any = false;
    for (const auto* values : {&node.operands, &node.results})
      for (ValueId v : *values) any = any || (v.valid() && is_narrow(graph.type(v).dtype));
    if (!any) return std::vector<ValueId>{};
    return Rewrite(graph, node).run();
  });
}

} // namespace tessera::passes
