// Routes: the ways in which a device can run a structured operator, best first.
//
// Pointwise operators, reductions and indexing have one meaning, a loop nest, and every device generates code for it.
// Products, convolutions, pooling and scans have several implementations. Each device has one table of them:
//
//   kernel      cpu                               cuda
//   matmul      oneDNN, loops                     cuBLASLt, loops
//   conv        oneDNN, loops                     cuDNN, loops
//   pool        oneDNN, loops                     cuDNN, loops
//   scatter     own kernel                        own kernel
//   sort        own kernel                        own kernel
//   suppress    own kernel                        own kernel
//   scan        own kernel                        own kernel
//   other       kernel of a library of operators  kernel of a library of operators
//   attention   -                                 cuDNN, own kernel
//
// A node takes the first route that accepts it. If none does, its reference runs on the host, and reports show the last
// route's reason. Attention is not an operator but three groups of a plan, which are unchanged if no route accepts
// them. Planning options about a device's libraries and kernels are derived from the table (set_routes), and so is the
// list of routes by operator (operator_routes).
#pragma once
#include "fusion/plan.h"
#include "graph/ir/operator.h"

namespace tessera {

enum class RouteKind : uint8_t { Library, OwnKernel, Loops, Reference };
[[nodiscard]] std::string_view name(RouteKind kind); // "library", "own kernel", "loops", "reference"

struct Route {
  RouteKind kind = RouteKind::Loops;
  std::string_view by;        // "cuBLASLt"
  std::vector<DType> dtypes;  // of the first operand; empty: all dtypes of generated code
  std::vector<DType> widened; // dtypes that a pass of the device rewrites to one of `dtypes` first
  std::string_view takes;     // the condition that `accepts` checks, for reports; "" if there is none
  // True if it supports the node, whose dtype is one of `dtypes`; otherwise sets `why_not` to the reason. Empty: it
  // supports all nodes.
  std::function<bool(const Graph&, const Node&, std::string* why_not)> accepts;
  // True if a library supports the memory layout of the call's operands and result, and its epilogue. Empty: yes.
  std::function<bool(const Graph&, const LibraryCall&, std::string* why_not)> accepts_call;
};
struct KernelRoutes {
  Structured kernel = Structured::Other;
  std::vector<Route> routes; // best first
};
struct AttentionRoute {
  RouteKind kind = RouteKind::Library;
  std::string_view by;
  std::function<bool(const Graph&, const AttentionCall&, std::string* why_not)> accepts;
};
struct DeviceRoutes {
  std::string_view device;                                             // in messages: "host", "GPU"
  std::vector<KernelRoutes> kernels;                                   // one record for each kernel that has a route
  std::vector<AttentionRoute> attention;                               // best first
  [[nodiscard]] const std::vector<Route>& of(Structured kernel) const; // empty where there is none
};

// True if generated code supports this dtype in memory: the dtypes of the tile IR.
[[nodiscard]] bool generated_code_takes(DType dtype);
// True if a route accepts this node and its dtype.
[[nodiscard]] bool takes(const Route& route, const Graph& graph, const Node& node, std::string* why_not = nullptr);
// The first route that accepts a structured node; null and the reason if its reference runs on the host.
[[nodiscard]] const Route* choose_route(const DeviceRoutes& routes, const Graph& graph, const Node& node,
                                        std::string* why_not = nullptr);
// True if a node, structured or not, runs on the device; otherwise sets `why_not` to the reason.
[[nodiscard]] bool runs_on_device(const DeviceRoutes& routes, const Graph& graph, NodeId node,
                                  std::string* why_not = nullptr);
// Sets device-dependent planning options: device_supports, as_loops, library_accepts and attention_accepts.
void set_routes(FusionOptions& fusion, std::shared_ptr<const DeviceRoutes> routes);

// ---- list of routes
struct OperatorRoute {
  const OpDef* op = nullptr;
  DType dtype = DType::F32; // of the first operand, before passes
  RouteKind kind = RouteKind::Loops;
  std::string_view by;    // "cuBLASLt", "generated code", "reference on the host"
  std::string_view takes; // the condition; "" if every node takes this route
  bool widened = false;   // computed in a wider dtype
};
// The routes of a primitive operator for each dtype of its first operand, best first; the last one of a dtype takes the
// nodes that the others reject. A composite operator has the routes of its parts.
[[nodiscard]] std::vector<OperatorRoute> operator_routes(const DeviceRoutes& routes, const OpDef& op);

} // namespace tessera
