#include "codegen/compilation/routes.h"
#include "fusion/library.h"
#include <algorithm>

namespace tessera {
namespace {

bool refuse(std::string* why_not, std::string why) {
  if (why_not) *why_not = std::move(why);
  return false;
}

bool contains(const std::vector<DType>& dtypes, DType dtype) {
  return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
}

// "f16, bf16 and f32"
std::string listed(const std::vector<DType>& dtypes) {
  std::string out;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    if (i > 0) out += i + 1 == dtypes.size() ? " and " : ", ";
    out += name(dtypes[i]);
  }
  return out;
}

const Route* library_of(const DeviceRoutes& routes, Structured kernel) {
  const std::vector<Route>& all = routes.of(kernel);
  auto it = std::find_if(all.begin(), all.end(), [](const Route& r) { return r.kind == RouteKind::Library; });
  return it == all.end() ? nullptr : &*it;
}

} // namespace

std::string_view name(RouteKind kind) {
  switch (kind) {
  case RouteKind::Library: return "library";
  case RouteKind::OwnKernel: return "own kernel";
  case RouteKind::Loops: return "loops";
  case RouteKind::Reference: return "reference";
  }
  return "";
}

bool generated_code_takes(DType dtype) {
  switch (dtype) {
  case DType::Bool:
  case DType::I8:
  case DType::I16:
  case DType::I32:
  case DType::I64:
  case DType::U8:
  case DType::U16:
  case DType::U32:
  case DType::U64:
  case DType::F16:
  case DType::BF16:
  case DType::F32:
  case DType::F64: return true;
  default: return false;
  }
}

// 8-bit floats that loop nests read and write; they compute in f32.
static bool loops_take(DType dtype) { return dtype == DType::F8E4M3FN || dtype == DType::F8E5M2; }

const std::vector<Route>& DeviceRoutes::of(Structured kernel) const {
  static const std::vector<Route> none;
  for (const KernelRoutes& k : kernels)
    if (k.kernel == kernel) return k.routes;
  return none;
}

bool takes(const Route& route, const Graph& graph, const Node& node, std::string* why_not) {
  const DType dtype = graph.type(node.operands[0]).dtype;
  if (!route.dtypes.empty() && !contains(route.dtypes, dtype))
    return refuse(why_not,
                  std::string(route.by) + " takes " + listed(route.dtypes) + ", not " + std::string(name(dtype)));
  return !route.accepts || route.accepts(graph, node, why_not);
}

const Route* choose_route(const DeviceRoutes& routes, const Graph& graph, const Node& node, std::string* why_not) {
  const auto* structured = node.op->structured();
  const std::vector<Route>& all = routes.of(structured ? structured->kind : Structured::Other);
  if (all.empty())
    refuse(why_not, "no " + std::string(routes.device) + " kernel for operator " + std::string(node.op->name));
  for (const Route& route : all)
    if (takes(route, graph, node, why_not)) return &route;
  return nullptr;
}

bool runs_on_device(const DeviceRoutes& routes, const Graph& graph, NodeId id, std::string* why_not) {
  const Node& node = graph.node(id);
  const auto* structured = node.op->structured();
  if (structured && (structured->kind == Structured::Constant || structured->kind == Structured::Alias)) return true;
  if (node.op->data_dependent_shape) return refuse(why_not, "the sizes of its results depend on data");
  const auto by_loops = [&] {
    if (!structured) return true;
    const Route* route = node.operands.empty() ? nullptr : choose_route(routes, graph, node);
    return route && route->kind == RouteKind::Loops;
  };
  for (const auto* values : {&node.operands, &node.results})
    for (ValueId v : *values)
      if (v.valid() && !generated_code_takes(graph.type(v).dtype) && !(loops_take(graph.type(v).dtype) && by_loops()))
        return refuse(why_not, "no generated code for element type " + std::string(name(graph.type(v).dtype)));
  return !structured || choose_route(routes, graph, node, why_not) != nullptr;
}

void set_routes(FusionOptions& fusion, std::shared_ptr<const DeviceRoutes> routes) {
  fusion.device_supports = [routes](const Graph& graph, NodeId id, std::string* why_not) {
    return runs_on_device(*routes, graph, id, why_not);
  };
  fusion.as_loops = [routes](const Graph& graph, NodeId id) {
    const Route* route = choose_route(*routes, graph, graph.node(id));
    return route && route->kind == RouteKind::Loops;
  };
  const auto& kernels = routes->kernels;
  auto checks_calls = [](const Route& route) { return static_cast<bool>(route.accepts_call); };
  if (std::any_of(kernels.begin(), kernels.end(),
                  [&](const KernelRoutes& k) { return std::any_of(k.routes.begin(), k.routes.end(), checks_calls); }))
    fusion.library_accepts = [routes](const Graph& graph, const LibraryCall& call, std::string* why_not) {
      const Route* library = library_of(*routes, graph.node(call.node).op->structured()->kind);
      if (!library) return refuse(why_not, "no library computes it");
      return !library->accepts_call || library->accepts_call(graph, call, why_not);
    };
  if (routes->attention.empty()) return;
  fusion.attention_accepts = [routes](const Graph& graph, const AttentionCall& call, std::string* why_not) {
    std::string all;
    for (const AttentionRoute& route : routes->attention) {
      std::string why;
      if (route.accepts(graph, call, &why)) return true;
      all += (all.empty() ? "" : "; ") + why;
    }
    return refuse(why_not, std::move(all));
  };
}

std::vector<OperatorRoute> operator_routes(const DeviceRoutes& routes, const OpDef& op) {
  std::vector<OperatorRoute> out;
  const auto* structured = op.structured();
  if (op.is_composite() ||
      (structured && (structured->kind == Structured::Constant || structured->kind == Structured::Alias)))
    return out;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (!op.operands.empty() && !admits(op.operands[0].types, dtype)) continue;
    const bool by_loops_alone = !generated_code_takes(dtype) && loops_take(dtype);
    const bool generated =
        (generated_code_takes(dtype) || by_loops_alone) && !op.data_dependent_shape && !op.side_effect;
    bool refused = true; // some nodes of this dtype need a later route
    for (const Route& route : structured&& generated ? routes.of(structured->kind) : std::vector<Route>{}) {
      if (by_loops_alone && route.kind != RouteKind::Loops) continue;
      const bool widened = contains(route.widened, dtype);
      if (!refused || (!route.dtypes.empty() && !contains(route.dtypes, dtype) && !widened)) continue;
      out.push_back({&op, dtype, route.kind, route.by, route.takes, widened});
      refused = static_cast<bool>(route.accepts);
    }
    if (!structured && generated)
      out.push_back({&op, dtype, RouteKind::Loops, "generated code", "", false});
    else if (refused)
      out.push_back({&op, dtype, RouteKind::Reference, "reference on the host", "", false});
  }
  return out;
}

} // namespace tessera
