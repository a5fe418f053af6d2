// Which library or generated code runs a node on an NVIDIA GPU, and what is laid out for it beforehand.
#include "codegen/driver/join_products.h"
#include "codegen/driver/kernels.h"
#include "codegen/driver/legalize.h"
#include "codegen/schedule/own_kernels.h"
#include "graph/ops/op.h"
#include <algorithm>
#include <map>

namespace tessera {
namespace {

const StructuredOp* product(const Node& node) {
  const auto* s = node.op->structured();
  bool is = s && (s->kind == Structured::Matmul || s->kind == Structured::Conv || s->kind == Structured::Pool);
  return is ? s : nullptr;
}
bool is_transposed(const Node& node) { return node.op->name == std::string_view("conv_transpose"); }
bool is_channels_last(const Node& node) { return node.attributes.i("channels_last", 0) != 0; }
bool cudnn_dtype(DType d) { return d == DType::F16 || d == DType::BF16 || d == DType::F32; }

// One output channel per input channel and multiplier: as many groups as channels.
bool is_depthwise(const Graph& graph, const Node& node) {
  return node.attributes.i("groups", 1) > 1 && !is_transposed(node) &&
         graph.type(node.operands[1]).shape[1].is_const(1);
}

// ---- legalizing

Result<Tensor> transposed(const Tensor& from, const Ints& perm) {
  const auto& dims = from.dims();
  Dims to_dims, strides(dims.size(), 1), walk;
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  for (int64_t p : perm) {
    to_dims.push_back(dims[static_cast<size_t>(p)]);
    walk.push_back(strides[static_cast<size_t>(p)]);
  }
  TESSERA_ASSIGN(Tensor out, Tensor::create(from.dtype(), to_dims));
  auto bytes = static_cast<size_t>(info(from.dtype()).bits / 8);
  const auto* source = static_cast<const std::byte*>(from.data());
  auto* target = static_cast<std::byte*>(out.mutable_data());
  Dims at(perm.size(), 0);
  int64_t position = 0;
  for (int64_t i = 0; i < out.count(); ++i) {
    std::copy_n(source + static_cast<size_t>(position) * bytes, bytes, target + static_cast<size_t>(i) * bytes);
    for (size_t d = at.size(); d-- > 0;) {
      position += walk[d];
      if (++at[d] < to_dims[d]) break;
      position -= walk[d] * to_dims[d];
      at[d] = 0;
    }
  }
  return out;
}

class Legalizer {
public:
  Legalizer(Graph& graph, const CudaLibraries& libraries) : graph_(graph), libraries_(libraries) {}

  Status run() {
    for (NodeId id : graph_.order()) {
      const auto* s = product(graph_.node(id));
      if (!s) continue;
      const bool conv = s->kind == Structured::Conv;
      if (conv ? libraries_.tf32 != Tf32::Off : s->kind == Structured::Matmul && libraries_.tf32 == Tf32::All)
        round_to_tf32(id);
      if (!conv) continue;
      if (libraries_.cublaslt && libraries_.single_points_are_products && of_single_points(id)) {
        TESSERA_TRY(product_of_pixels(id));
        continue;
      }
      TESSERA_TRY(weight(id));
      if (!cuda_as_loops(graph_, id, libraries_)) TESSERA_TRY(pads(id));
    }
    if (changed_) graph_.compact();
    return {};
  }

private:
  void round_to_tf32(NodeId id) {
    if (graph_.type(graph_.node(id).operands[0]).dtype == DType::F32)
      graph_.node(id).attributes.set("tf32", int64_t{1});
  }
  [[nodiscard]] bool of_single_points(ValueId weight) const {
    const SymShape& w = graph_.type(weight).shape;
    return std::all_of(w.begin() + 2, w.end(), [](const SymExpr& k) { return k.is_const(1); });
  }
  [[nodiscard]] bool of_single_points(NodeId id) const {
    const Node& node = graph_.node(id);
    auto all = [&](const char* attribute, int64_t value) {
      Ints values = node.attributes.ints(attribute);
      return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
    };
    return of_single_points(node.operands[1]) && is_channels_last(node) && !is_transposed(node) &&
           node.attributes.i("groups", 1) == 1 && all("strides", 1) && all("pads_begin", 0) && all("pads_end", 0) &&
           cudnn_dtype(graph_.type(node.operands[0]).dtype);
  }

  // [N, pixels..., C] times the transpose of [O, C]: both views of the weight vanish into strides.
  Status product_of_pixels(NodeId id) {
    const Node node = graph_.node(id);
    const SymShape w = graph_.type(node.operands[1]).shape;
    TESSERA_ASSIGN(ValueId matrix,
                   graph_.apply("reshape", {node.operands[1]}, {{"shape", SymShape{w[0], w[1]}}}, node.location));
    TESSERA_ASSIGN(ValueId weight, graph_.apply("transpose", {matrix}, {{"perm", Ints{1, 0}}}, node.location));
    TESSERA_ASSIGN(ValueId y, graph_.apply("matmul", {node.operands[0], weight},
                                           tf32_attribute(libraries_.tf32 != Tf32::Off), node.location));
    graph_.value(y).name = graph_.value(node.results[0]).name;
    graph_.value(node.results[0]).name.clear();
    graph_.replace_all_uses(node.results[0], y);
    graph_.remove_node(id);
    changed_ = true;
    return {};
  }

  Status weight(NodeId id) {
    const Node node = graph_.node(id);
    ValueId w = node.operands[1];
    const Tensor* value = graph_.constant(w);
    const Node* source = graph_.producer(w);
    const auto* structured = source ? source->op->structured() : nullptr;
    const bool absent = value == nullptr && structured && structured->kind == Structured::Constant;
    if (!is_channels_last(node) || absent) return {};
    const int64_t rank = graph_.type(w).rank();
    Ints perm; // [O, C, kernel...] as it is read
    if (cuda_as_loops(graph_, id, libraries_)) {
      for (int64_t d = 2; d < rank; ++d) perm.push_back(d);
      perm.insert(perm.end(), {1, 0});
    } else {
      perm.push_back(0);
      for (int64_t d = 2; d < rank; ++d) perm.push_back(d);
      perm.push_back(1);
    }
    ValueId& moved = moved_[{w, perm}];
    if (!moved.valid()) {
      Ints back(perm.size());
      for (size_t d = 0; d < perm.size(); ++d) back[static_cast<size_t>(perm[d])] = static_cast<int64_t>(d);
      ValueId stored;
      if (value) {
        TESSERA_ASSIGN(Tensor laid_out, transposed(*value, perm));
        stored = graph_.add_constant(std::move(laid_out), graph_.value(w).name + ".channels_last");
      } else {
        const Node* producer = graph_.producer(w);
        const bool lies_so = producer && producer->op->name == "transpose" && producer->attributes.ints("perm") == back;
        if (lies_so || of_single_points(w)) return {};
        // A weight that is given at run time is laid out in each call.
        TESSERA_ASSIGN(ValueId view, graph_.apply("transpose", {w}, {{"perm", perm}}, node.location));
        TESSERA_ASSIGN(stored, graph_.apply("copy", {view}, {}, node.location));
      }
      TESSERA_ASSIGN(moved, graph_.apply("transpose", {stored}, {{"perm", back}}, node.location));
    }
    graph_.node(id).operands[1] = moved;
    changed_ = true;
    return {};
  }

  Status pads(NodeId id) {
    const Node node = graph_.node(id);
    Ints begin = node.attributes.ints("pads_begin"), end = node.attributes.ints("pads_end");
    if (begin == end) return {};
    SymShape before(begin.size() + 2, SymExpr(0)), behind = before;
    for (size_t i = 0; i < begin.size(); ++i) {
      size_t d = is_channels_last(node) ? i + 1 : i + 2;
      before[d] = begin[i];
      behind[d] = end[i];
    }
    TESSERA_ASSIGN(ValueId padded, graph_.apply("pad", {node.operands[0]},
                                                {{"pads_begin", before}, {"pads_end", behind}}, node.location));
    Node& conv = graph_.node(id);
    conv.operands[0] = padded;
    conv.attributes.set("pads_begin", Ints(begin.size(), 0));
    conv.attributes.set("pads_end", Ints(end.size(), 0));
    changed_ = true;
    return {};
  }

  Graph& graph_;
  const CudaLibraries& libraries_;
  std::map<std::pair<ValueId, Ints>, ValueId> moved_;
  bool changed_ = false;
};

// ---- what the libraries address

using Why = std::string*;

bool refuse(Why why_not, std::string why) {
  if (why_not) *why_not = std::move(why);
  return false;
}

// One of the last two dimensions lies dense, and the other steps over it.
bool is_matrix(const OperandView& view, const ShapeEnv& env) {
  size_t rank = view.shape.size();
  auto dense = [&](size_t inner, size_t outer) {
    if (!env.known_equal(view.shape[inner], 1) && !env.known_equal(view.strides[inner], 1)) return false;
    if (env.known_equal(view.shape[outer], 1)) return true;
    const SymExpr &step = view.strides[outer], &size = view.shape[inner];
    if (step.is_const(0)) return false;
    return !step.is_const() || !size.is_const() || step.const_value() >= size.const_value();
  };
  return dense(rank - 1, rank - 2) || dense(rank - 2, rank - 1);
}

// Dense in the order of its dimensions, or with dimension 1 innermost.
bool is_packed(const OperandView& view, const ShapeEnv& env, bool channels_last) {
  std::vector<size_t> order;
  for (size_t d = 0; d < view.shape.size(); ++d)
    if (d != 1 || !channels_last) order.push_back(d);
  if (channels_last) order.push_back(1);
  SymExpr step = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    if (!env.known_equal(view.shape[*d], 1) && !env.known_equal(view.strides[*d], step)) return false;
    step = env.simplify(step * view.shape[*d]);
  }
  return true;
}

bool accepts_matmul(const Graph& graph, const LibraryCall& call, Why why_not) {
  const auto& env = graph.env();
  for (size_t k = 0; k < call.operands.size(); ++k)
    if (!is_matrix(call.operands[k], env))
      return refuse(why_not, std::string("cuBLASLt reads matrices whose rows or columns are dense; the ") +
                                 (k == 0 ? "left" : "right") + " one is not");
  if (!is_matrix(call.result, env)) return refuse(why_not, "cuBLASLt writes matrices whose rows or columns are dense");
  if (!call.fixed) return true;
  const auto& fixed = *call.fixed;
  using Activation = FixedEpilogue::Activation;
  bool f64 = graph.type(call.result.value).dtype == DType::F64;
  if (f64 && (fixed.bias || fixed.activation != Activation::None))
    return refuse(why_not, "cuBLASLt has no epilogue in f64");
  if (fixed.activation != Activation::None && fixed.activation != Activation::Relu &&
      fixed.activation != Activation::GeluTanh)
    return refuse(why_not, "cuBLASLt computes relu and gelu by tanh, no other activation");
  if (!fixed.bias) return true;
  // Its bias is a dense vector along the dimension in which the result is dense.
  auto d = static_cast<size_t>(fixed.bias_dim), rank = call.result.shape.size();
  bool columns = d == rank - 1 && env.known_equal(call.result.strides[d], 1);
  bool rows =
      d == rank - 2 && env.known_equal(call.result.strides[d], 1) && !env.known_equal(call.result.strides[rank - 1], 1);
  if ((!columns && !rows) || !env.known_equal(fixed.bias->strides[d], 1))
    return refuse(why_not, "cuBLASLt adds a bias to each column of a row-major result, one dense vector");
  return true;
}

bool accepts_conv(const Graph& graph, const LibraryCall& call, const CudaLibraries& libraries, Why why_not) {
  const auto& env = graph.env();
  bool last = is_channels_last(graph.node(call.node));
  for (const auto* view : {&call.operands[0], static_cast<const OperandView*>(&call.result)})
    if (!is_packed(*view, env, last)) return refuse(why_not, "cuDNN reads and writes whole tensors");
  if (call.operands.size() > 1 && !is_packed(call.operands[1], env, true) && !is_packed(call.operands[1], env, false))
    return refuse(why_not, "cuDNN reads whole weights");
  if (!call.fixed) return true;
  if (call.kind == LibraryCall::Kind::Pool) return refuse(why_not, "pooling has no epilogue");
  const auto& fixed = *call.fixed;
  using Activation = FixedEpilogue::Activation;
  if (is_transposed(graph.node(call.node))) return refuse(why_not, "cuDNN's transposed convolution has no epilogue");
  if (fixed.bias && (fixed.bias_dim != 1 || !env.known_equal(fixed.bias->strides[1], 1)))
    return refuse(why_not, "cuDNN's bias lies along the channels, a dense vector");
  if (fixed.activation != Activation::None && fixed.activation != Activation::Relu && !libraries.runtime_compiled)
    return refuse(why_not, "of cuDNN's kernels that need no compiling at run time none has this activation");
  return true;
}

} // namespace

bool cudnn_takes_attention(const Graph& graph, const AttentionCall& call, std::string* why_not) {
  constexpr int64_t kWidest = 256, kAligned = 8; // elements
  const auto& env = graph.env();
  if (!call.fixed) return refuse(why_not, "cuDNN computes scale * q k' + bias, causal or not: " + call.not_fixed);
  for (const auto* view : {&call.q, &call.k, &call.v, &call.out}) {
    auto width = view->shape.back().as_const();
    if (!width || *width % kAligned != 0 || *width == 0 || *width > kWidest)
      return refuse(why_not,
                    "cuDNN's heads have a width that is a multiple of 8 up to 256, not " + view->shape.back().str());
    if (!env.known_equal(view->strides.back(), 1))
      return refuse(why_not, "cuDNN reads heads whose elements are neighbours");
    for (size_t d = 0; d + 1 < view->strides.size(); ++d)
      if (!env.known_equal(view->shape[d], 1) && env.simplify(view->strides[d]).known_divisor() % kAligned != 0)
        return refuse(why_not, "cuDNN reads heads that begin at multiples of 16 bytes, not at " +
                                   view->strides[d].str() + " elements");
    if (view->offset.known_divisor() % kAligned != 0)
      return refuse(why_not, "cuDNN reads heads that begin at multiples of 16 bytes, not at " + view->offset.str() +
                                 " elements");
  }
  if (call.fixed->bias && !env.known_equal(call.fixed->bias->strides.back(), 1))
    return refuse(why_not, "cuDNN reads biases of neighbouring keys next to each other");
  constexpr size_t kBatch = 3; // batch, heads of keys, what shares them
  if (call.q.shape.size() > kBatch + 2)
    return refuse(why_not,
                  "cuDNN has a batch and heads, not " + std::to_string(call.q.shape.size() - 2) + " batch dimensions");
  return true;
}

Status legalize_for_cuda(Graph& graph, const CudaLibraries& libraries) {
  TESSERA_TRY(Legalizer(graph, libraries).run());
  TESSERA_ASSIGN([[maybe_unused]] JoinedProducts count, join_products(graph, libraries));
  return {};
}

bool cuda_supports(const Graph& graph, NodeId id, std::string* why_not) {
  const auto& node = graph.node(id);
  const auto* structured = node.op->structured();
  if (structured && structured->kind == Structured::Constant) return true;
  if (node.op->data_dependent_shape) return refuse(why_not, "the sizes of its results depend on data");
  for (const auto* values : {&node.operands, &node.results})
    for (auto v : *values)
      if (v.valid() && !host_code_takes(graph.type(v).dtype)) // the dtypes of the tile IR, on every device
        return refuse(why_not, "no generated code for element type " + std::string(name(graph.type(v).dtype)));
  if (!structured || product(node)) return true;
  if (std::string why; has_own_kernel(graph, node, &why))
    return true;
  else if (!why.empty())
    return refuse(why_not, why);
  return refuse(why_not, "no GPU kernel for operator " + std::string(node.op->name));
}

bool cuda_as_loops(const Graph& graph, NodeId id, const CudaLibraries& libraries) {
  const auto& node = graph.node(id);
  const auto* s = product(node);
  if (!s) return false;
  if (!node.location.node.empty() && libraries.as_loops.contains(node.location.node)) return true;
  DType dtype = graph.type(node.operands[0]).dtype;
  if (s->kind == Structured::Matmul)
    return !libraries.cublaslt || (!cudnn_dtype(dtype) && dtype != DType::F64) ||
           graph.env().known_equal(graph.type(node.operands[0]).shape.back(), 1); // pointwise: nothing is summed
  int spatial = graph.type(node.operands[0]).rank() - 2;
  if (!libraries.cudnn || !cudnn_dtype(dtype) || spatial < 1 || spatial > 3) return true;
  const auto& a = node.attributes;
  bool symmetric = a.ints("pads_begin") == a.ints("pads_end");
  if (s->kind == Structured::Conv) {
    if (is_transposed(node)) { // its result can be neither cropped nor have a border as wide as a stride
      Ints extra = a.ints("output_padding"), strides = a.ints("strides");
      for (size_t i = 0; i < extra.size(); ++i) symmetric = symmetric && extra[i] < strides[i];
      return !symmetric;
    }
    return is_depthwise(graph, node); // windows that slide: codegen/schedule/block_window.cpp
  }
  Ints dilations = a.ints("dilations");
  bool dilated = std::any_of(dilations.begin(), dilations.end(), [](int64_t d) { return d != 1; });
  // The library leaves out windows that begin beyond the input; padding must not reach a whole window.
  Ints kernel = a.ints("kernel"), pads = a.ints("pads_begin");
  bool covered = true;
  for (size_t i = 0; i < kernel.size(); ++i) covered = covered && pads[i] < kernel[i];
  return !symmetric || dilated || !covered;
}

bool cuda_library_accepts(const Graph& graph, const LibraryCall& call, const CudaLibraries& libraries,
                          std::string* why_not) {
  return call.kind == LibraryCall::Kind::Matmul ? accepts_matmul(graph, call, why_not)
                                                : accepts_conv(graph, call, libraries, why_not);
}

void configure_for_cuda(FusionOptions& fusion, const CudaLibraries& libraries) {
  fusion.generated_epilogues = false;
  fusion.fixed_epilogues = true;
  fusion.scaled_operands = true;
  fusion.rows_by_teams = true;
  fusion.launch_us = libraries.device.launch_us;
  fusion.bytes_per_us = libraries.device.memory_bytes_per_us;
  fusion.bytes_per_instruction = libraries.device.bytes_per_instruction();
  fusion.as_loops = [libraries](const Graph& graph, NodeId id) { return cuda_as_loops(graph, id, libraries); };
  if (libraries.attention_kernel || (libraries.cudnn && libraries.attention))
    fusion.attention_accepts = [libraries](const Graph& graph, const AttentionCall& call, std::string* why_not) {
      return cuda_takes_attention(graph, call, libraries, why_not);
    };
  fusion.library_accepts = [libraries](const Graph& graph, const LibraryCall& call, std::string* why_not) {
    return cuda_library_accepts(graph, call, libraries, why_not);
  };
}

} // namespace tessera
