#include "codegen/device/cpu/cpu.h"
#include "codegen/schedule/own_kernels.h"
#include "graph/ops/questions.h"

namespace tessera {
namespace {

// oneDNN supports one to three spatial dimensions.
bool has_one_to_three_dimensions(const Graph& graph, const Node& node, std::string* why_not) {
  const int spatial = graph.type(node.operands[0]).rank() - 2;
  if (spatial >= 1 && spatial <= 3) return true;
  if (why_not) *why_not = "oneDNN takes 1 to 3 spatial dimensions, not " + std::to_string(spatial);
  return false;
}

using Accepts = decltype(Route::accepts);
// `accepts` for the nodes that are not to be loops.
Route one_dnn(const std::set<std::string>& as_loops, std::string_view takes = "", Accepts accepts = {}) {
  if (!as_loops.empty())
    accepts = [as_loops, accepts](const Graph& graph, const Node& node, std::string* why_not) {
      const bool left_out = !node.location.node.empty() && as_loops.contains(node.location.node);
      if (left_out && why_not) *why_not = "it is to be loops";
      return !left_out && (!accepts || accepts(graph, node, why_not));
    };
  return {RouteKind::Library, "oneDNN", {DType::F32}, {DType::F16, DType::BF16}, takes, std::move(accepts), {}};
}
Route loops() { return {RouteKind::Loops, "generated loops", {}, {}, "", {}, {}}; }

} // namespace

DeviceRoutes cpu_routes(const std::set<std::string>& as_loops) {
  const Route products = one_dnn(as_loops);
  const Route images = one_dnn(as_loops, "1 to 3 spatial dimensions", has_one_to_three_dimensions);
  const Route sort{RouteKind::OwnKernel,
                   "generated sort",
                   {},
                   {},
                   "whole rows",
                   [](const Graph&, const Node& node, std::string* why_not) {
                     if (ops::piece_of(node) == ops::Piece::Rows) return true;
                     if (why_not) *why_not = "a host sorts whole rows";
                     return false;
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
                     return tile_text_takes(graph, node, "cpu", why_not);
                   },
                   {}};
  return {"host",
          {{Structured::Matmul, {products, loops()}},
           {Structured::MatmulOfParts, {loops()}},
           {Structured::GroupedMatmul, {loops()}},
           {Structured::Conv, {images, loops()}},
           {Structured::Pool, {images, loops()}},
           {Structured::Scan, {scan}},
           {Structured::Scatter, {scatter}},
           {Structured::Sort, {sort}},
           {Structured::Suppress, {suppress}},
           {Structured::Other, {text}}},
          {}};
}

} // namespace tessera
