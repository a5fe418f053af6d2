// Routes: the ways in which a device can run a structured operator, best first.
//
// Pointwise operators, reductions and indexing have one meaning, a loop nest, and every device generates code for it.
// Products, convolutions, pooling and scans can be computed in several ways. Each device has one table of them:
//
//   kernel      cpu                               cuda
//   matmul      oneDNN, loops                     cuBLASLt, loops
//   conv        oneDNN, loops                     cuDNN, loops
//   pool        oneDNN, loops                     cuDNN, loops
//   scan        own kernel                        own kernel
//   other       -                                 -
//   attention   -                                 cuDNN, own kernel
//
// A node takes the first route that accepts it; where none does, its reference runs on the host, and the last refusal
// is the reason that reports show. Attention is no operator but three groups of a plan, which stay as they are where no
// route accepts them. All that planning asks about a device's libraries and kernels is derived from the table
// (set_routes), and so is the list of what runs where (operator_routes).
#pragma once
#include "fusion/plan.h"
#include "graph/ops/op.h"

namespace tessera {

enum class RouteKind : uint8_t { Library, OwnKernel, Loops, Reference };
[[nodiscard]] std::string_view name(RouteKind kind); // "library", "own kernel", "loops", "reference"

struct Route {
  RouteKind kind = RouteKind::Loops;
  std::string_view by;        // "cuBLASLt"
  std::vector<DType> dtypes;  // of the first operand; empty: every one that generated code has
  std::vector<DType> widened; // dtypes that a pass of the device rewrites to one of `dtypes` first
  std::string_view takes;     // the condition that `accepts` checks, for people; "" where there is none
  // Whether it runs the node, whose dtype is one of `dtypes`; otherwise `why_not` says what it does not take. Empty: it
  // runs every one.
  std::function<bool(const Graph&, const Node&, std::string* why_not)> accepts;
  // Of libraries: whether the call's operands and result lie as it can address them, and whether it has the call's
  // epilogue. Empty: yes.
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

// Whether generated code can hold values of this dtype in memory: the dtypes of the tile IR.
[[nodiscard]] bool generated_code_takes(DType dtype);
// Whether a route takes this node, dtype included.
[[nodiscard]] bool takes(const Route& route, const Graph& graph, const Node& node, std::string* why_not = nullptr);
// The first route that takes a structured node; nullptr, and why, where it runs by its reference on the host.
[[nodiscard]] const Route* choose_route(const DeviceRoutes& routes, const Graph& graph, const Node& node,
                                        std::string* why_not = nullptr);
// Whether a node, structured or not, runs on the device; otherwise `why_not` says for what reason it does not.
[[nodiscard]] bool runs_on_device(const DeviceRoutes& routes, const Graph& graph, NodeId node,
                                  std::string* why_not = nullptr);
// Sets what planning asks of a device: device_supports, as_loops, library_accepts and attention_accepts.
void set_routes(FusionOptions& fusion, std::shared_ptr<const DeviceRoutes> routes);

// ---- what runs where
struct OperatorRoute {
  const OpDef* op = nullptr;
  DType dtype = DType::F32; // of the first operand, before passes
  RouteKind kind = RouteKind::Loops;
  std::string_view by;    // "cuBLASLt", "generated code", "reference on the host"
  std::string_view takes; // the condition, "" where every node takes this route
  bool widened = false;   // computed in a wider dtype
};
// The routes of an operator for each dtype that its first operand may have, best first; the last one of a dtype takes
// what the others refuse. Of primitives: a composite operator is as its parts are.
[[nodiscard]] std::vector<OperatorRoute> operator_routes(const DeviceRoutes& routes, const OpDef& op);

} // namespace tessera
