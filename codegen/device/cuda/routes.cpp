#include "codegen/device/cuda/routes.h"
#include "codegen/schedule/lower/block_attention.h"
#include "codegen/schedule/own_kernels.h"
#include "graph/ops/questions.h"
#include <algorithm>

namespace tessera {

bool is_channels_last(const Node& node) { return node.attributes.i("channels_last", 0) != 0; }

namespace {

using Why = std::string*;

bool refuse(Why why_not, std::string why) {
  if (why_not) *why_not = std::move(why);
  return false;
}

// ---- nodes

const std::vector<DType> kCublasLtTypes = {DType::F16, DType::BF16, DType::F32, DType::F64};
const std::vector<DType> kCudnnTypes = {DType::F16, DType::BF16, DType::F32};

bool is_one_of(const std::vector<DType>& dtypes, DType dtype) {
  return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
}

// True if a library rejected this node before.
bool is_refused(const Node& node, const CudaLibraries& libraries, Why why_not) {
  const std::string& name = node.location.node;
  if (name.empty() || !libraries.as_loops.contains(name)) return false;
  refuse(why_not, "the library refused it when it was asked");
  return true;
}

// One output channel per input channel and multiplier: as many groups as channels.
bool is_depthwise(const Graph& graph, const Node& node) {
  return node.attributes.i("groups", 1) > 1 && !ops::is_transposed(node) &&
         graph.type(node.operands[1]).shape[1].is_const(1);
}

bool has_even_pads(const Node& node) { return node.attributes.ints("pads_begin") == node.attributes.ints("pads_end"); }

// Common checks of convolutions and pooling.
bool cudnn_has_images(const Graph& graph, const Node& node, const CudaLibraries& libraries, Why why_not) {
  if (is_refused(node, libraries, why_not)) return false;
  if (!libraries.cudnn) return refuse(why_not, "cuDNN is left out");
  const TensorType& x = graph.type(node.operands[0]);
  if (!cudnn_computes_in(x.dtype)) return refuse(why_not, "cuDNN does not compute in " + std::string(name(x.dtype)));
  const int spatial = x.rank() - 2;
  return (spatial >= 1 && spatial <= 3) ||
         refuse(why_not, "cuDNN takes 1 to 3 spatial dimensions, not " + std::to_string(spatial));
}

bool cudnn_takes_convolution(const Graph& graph, const Node& node, const CudaLibraries& libraries, Why why_not) {
  if (!cudnn_convolves(graph, node, libraries, why_not)) return false;
  return has_even_pads(node) || refuse(why_not, "cuDNN pads as much before as behind");
}

bool cudnn_pools(const Graph& graph, const Node& node, const CudaLibraries& libraries, Why why_not) {
  if (!cudnn_has_images(graph, node, libraries, why_not)) return false;
  if (!has_even_pads(node)) return refuse(why_not, "cuDNN pads as much before as behind");
  const Ints dilations = node.attributes.ints("dilations");
  if (std::any_of(dilations.begin(), dilations.end(), [](int64_t d) { return d != 1; }))
    return refuse(why_not, "cuDNN's pooling has no dilations");
  // The library omits windows that begin beyond the input; padding must be smaller than a window.
  const Ints kernel = node.attributes.ints("kernel"), pads = node.attributes.ints("pads_begin");
  for (size_t i = 0; i < kernel.size(); ++i)
    if (pads[i] >= kernel[i]) return refuse(why_not, "cuDNN leaves out windows that begin beyond the input");
  return true;
}

// ---- calls: operands, results and epilogues

// One of the last two dimensions is contiguous, and the other's stride is at least its extent.
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

bool cublaslt_accepts(const Graph& graph, const LibraryCall& call, const CudaLibraries&, Why why_not) {
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
  if (graph.type(call.result.value).dtype != graph.type(call.operands[0].value).dtype)
    return refuse(why_not, "cuBLASLt has no epilogue where the result has another type than the operands");
  if (f64 && (fixed.bias || fixed.activation != Activation::None))
    return refuse(why_not, "cuBLASLt has no epilogue in f64");
  if (fixed.activation != Activation::None && fixed.activation != Activation::Relu &&
      fixed.activation != Activation::GeluTanh)
    return refuse(why_not, "cuBLASLt computes relu and gelu by tanh, no other activation");
  if (!fixed.bias) return true;
  // Its bias is a contiguous vector along the result's contiguous dimension.
  auto d = static_cast<size_t>(fixed.bias_dim), rank = call.result.shape.size();
  bool columns = d == rank - 1 && env.known_equal(call.result.strides[d], 1);
  bool rows =
      d == rank - 2 && env.known_equal(call.result.strides[d], 1) && !env.known_equal(call.result.strides[rank - 1], 1);
  if ((!columns && !rows) || !env.known_equal(fixed.bias->strides[d], 1))
    return refuse(why_not, "cuBLASLt adds a bias to each column of a row-major result, one dense vector");
  return true;
}

bool cudnn_accepts(const Graph& graph, const LibraryCall& call, const CudaLibraries& libraries, Why why_not) {
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
  if (ops::is_transposed(graph.node(call.node)))
    return refuse(why_not, "cuDNN's transposed convolution has no epilogue");
  if (fixed.bias && (fixed.bias_dim != 1 || !env.known_equal(fixed.bias->strides[1], 1)))
    return refuse(why_not, "cuDNN's bias lies along the channels, a dense vector");
  if (fixed.activation != Activation::None && fixed.activation != Activation::Relu && !libraries.runtime_compiled)
    return refuse(why_not, "of cuDNN's kernels that need no compiling at run time none has this activation");
  return true;
}

} // namespace

bool cudnn_computes_in(DType dtype) { return is_one_of(kCudnnTypes, dtype); }

bool cublaslt_multiplies(const Graph& graph, const Node& node, const CudaLibraries& libraries, std::string* why_not) {
  if (is_refused(node, libraries, why_not)) return false;
  if (!libraries.cublaslt) return refuse(why_not, "cuBLASLt is left out");
  const TensorType& a = graph.type(node.operands[0]);
  if (!is_one_of(kCublasLtTypes, a.dtype))
    return refuse(why_not, "cuBLASLt does not multiply " + std::string(name(a.dtype)));
  // A pointwise operator, which the call fuses.
  return !graph.env().known_equal(a.shape.back(), 1) || refuse(why_not, "nothing is summed");
}

bool cudnn_convolves(const Graph& graph, const Node& node, const CudaLibraries& libraries, std::string* why_not) {
  if (!cudnn_has_images(graph, node, libraries, why_not)) return false;
  // Windows that slide: codegen/schedule/window_facts.h.
  if (is_depthwise(graph, node)) return refuse(why_not, "generated loops are faster for one channel per group");
  if (!ops::is_transposed(node)) return true;
  if (!has_even_pads(node)) return refuse(why_not, "cuDNN's transposed convolution cannot crop its result");
  const Ints extra = node.attributes.ints("output_padding"), strides = node.attributes.ints("strides");
  for (size_t i = 0; i < extra.size(); ++i)
    if (extra[i] >= strides[i])
      return refuse(why_not, "cuDNN's transposed convolution has no border as wide as a stride");
  return true;
}

bool cudnn_takes_attention(const Graph& graph, const AttentionCall& call, const CudaLibraries& libraries,
                           std::string* why_not) {
  if (!libraries.cudnn || !libraries.attention) return refuse(why_not, "cuDNN is left out");
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

bool kernel_takes_attention(const Graph& graph, const AttentionCall& call, const CudaLibraries& libraries,
                            std::string* why_not) {
  if (!libraries.attention_kernel) return refuse(why_not, "by a kernel: it is left out");
  std::string why;
  return attention_by_blocks_takes(graph, call, &why) || refuse(why_not, "by a kernel: " + why);
}

std::shared_ptr<const DeviceRoutes> cuda_routes(std::shared_ptr<const CudaLibraries> libraries) {
  auto with_libraries = [libraries](auto* predicate) {
    return [libraries, predicate](const Graph& graph, const auto& what, std::string* why_not) {
      return predicate(graph, what, *libraries, why_not);
    };
  };
  const Route loops{RouteKind::Loops, "generated loops", {}, {}, "", {}, {}};
  const Route product{RouteKind::Library,
                      "cuBLASLt",
                      kCublasLtTypes,
                      {},
                      "something is summed",
                      with_libraries(cublaslt_multiplies),
                      with_libraries(cublaslt_accepts)};
  Route convolution{RouteKind::Library, "cuDNN", kCudnnTypes, {}, "", {}, with_libraries(cudnn_accepts)},
      pooling = convolution;
  convolution.takes = "1 to 3 spatial dimensions, more than one channel per group, even pads";
  convolution.accepts = with_libraries(cudnn_takes_convolution);
  pooling.takes = "1 to 3 spatial dimensions, even pads narrower than the window, no dilations";
  pooling.accepts = with_libraries(cudnn_pools);
  const Route sort{RouteKind::OwnKernel,
                   "generated sort",
                   {},
                   {},
                   "tiles and runs, which pass sort-by-tiles makes",
                   [](const Graph&, const Node& node, std::string* why_not) {
                     return ops::piece_of(node) != ops::Piece::Rows ||
                            refuse(why_not, "pass sort-by-tiles did not run");
                   },
                   {}};
  const Route suppress{RouteKind::OwnKernel, "generated suppression", {}, {}, "", {}, {}};
  const Route scatter{RouteKind::OwnKernel, "generated scatter", {}, {}, "", {}, {}};
  const Route scan{RouteKind::OwnKernel, "generated scan", {}, {}, "an axis known when compiling", has_own_kernel, {}};
  const Route text{RouteKind::OwnKernel,
                   "a kernel of a library",
                   {},
                   {},
                   "operators of libraries that have one",
                   [](const Graph& graph, const Node& node, std::string* why_not) {
                     return tile_text_takes(graph, node, "cuda", why_not);
                   },
                   {}};
  DeviceRoutes routes{"GPU",
                      {{Structured::Matmul, {product, loops}},
                       {Structured::MatmulOfParts, {loops}},
                       {Structured::GroupedMatmul, {loops}},
                       {Structured::Conv, {convolution, loops}},
                       {Structured::Pool, {pooling, loops}},
                       {Structured::Scan, {scan}},
                       {Structured::Scatter, {scatter}},
                       {Structured::Sort, {sort}},
                       {Structured::Suppress, {suppress}},
                       {Structured::Other, {text}}},
                      {{RouteKind::Library, "cuDNN", with_libraries(cudnn_takes_attention)},
                       {RouteKind::OwnKernel, "generated attention", with_libraries(kernel_takes_attention)}}};
  return std::make_shared<const DeviceRoutes>(std::move(routes));
}

void configure_for_cuda(FusionOptions& fusion, const Target& device) {
  fusion.generated_epilogues = false;
  fusion.fixed_epilogues = true;
  fusion.scaled_operands = true;
  fusion.cooperative_rows = true;
  fusion.launch_us = device.launch_us;
  fusion.bytes_per_us = device.memory_bytes_per_us;
  fusion.bytes_per_instruction = device.bytes_per_instruction();
}

} // namespace tessera
