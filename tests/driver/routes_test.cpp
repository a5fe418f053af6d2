// Routes: each device's table is complete, and what it says is where plans put operators.
#include "../ops/samples_run.h"
#include "codegen/compilation/routes.h"
#include "codegen/driver/devices.h"
#include "codegen/driver/pipeline.h"
#include "codegen/schedule/own_kernels.h"
#include <algorithm>
#include <gtest/gtest.h>

namespace tessera {
namespace {

std::unique_ptr<Backend> backend_of(std::string_view device) {
  CompileOptions o;
  o.device = device;
  auto made = make_backend(o);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().str());
  return made.ok() ? std::move(*made) : nullptr;
}

// "f16: cuBLASLt, generated loops" for each dtype.
std::string listed(std::string_view device, std::string_view op) {
  std::string out;
  auto backend = backend_of(device);
  std::optional<DType> last;
  for (const OperatorRoute& r : operator_routes(*backend->routes(), *OpTable::get().find(op))) {
    out += last == r.dtype ? ", " : (last ? "\n" : "") + std::string(name(r.dtype)) + ": ";
    out += std::string(r.by) + (r.widened ? " (widened)" : "");
    last = r.dtype;
  }
  return out;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text + "\n").find("\n" + line + "\n") != std::string::npos;
}

TEST(Routes, AreListedByOperatorAndDtype) {
  struct Case {
    const char *device, *op, *line;
  };
  const Case cases[] = {
      {"cpu", "matmul", "f16: oneDNN (widened)"},
      {"cpu", "matmul", "f32: oneDNN"},
      {"cpu", "matmul", "i32: generated loops"},
      {"cpu", "grouped_matmul", "f32: generated loops"},
      {"cuda", "matmul_of_parts", "bf16: generated loops"},
      {"cpu", "conv", "f32: oneDNN, generated loops"},
      {"cuda", "matmul", "f16: cuBLASLt, generated loops"},
      {"cuda", "matmul", "f64: cuBLASLt, generated loops"},
      {"cuda", "matmul", "i8: generated loops"},
      {"cuda", "conv", "bf16: cuDNN, generated loops"},
      {"cuda", "conv", "f64: generated loops"},
      {"cuda", "pool", "f32: cuDNN, generated loops"},
      {"cuda", "add", "f32: generated code"},
      {"cuda", "scatter", "f32: generated scatter"},
      {"cuda", "sort_indices", "f64: generated sort, reference on the host"},
      {"cuda", "det", "f32: a kernel of a library, reference on the host"},
  };
  for (const Case& c : cases) {
    const std::string all = listed(c.device, c.op);
    EXPECT_TRUE(has_line(all, c.line)) << c.device << " " << c.op << " lacks '" << c.line << "':\n" << all;
  }
}

TEST(Routes, EveryPrimitiveHasOneForEachDtypeOnEachDevice) {
  for (const CompileDevice& device : devices()) {
    auto routes = backend_of(device.name)->routes();
    for (const auto& op : OpTable::get().all()) {
      const auto all = operator_routes(*routes, *op);
      const auto* structured = op->structured();
      const bool is_none =
          op->is_composite() ||
          (structured && (structured->kind == Structured::Constant || structured->kind == Structured::Alias));
      EXPECT_EQ(all.empty(), is_none) << op->name;
      for (size_t i = 0; i < all.size(); ++i) {
        const bool last = i + 1 == all.size() || all[i + 1].dtype != all[i].dtype;
        EXPECT_TRUE(!last || all[i].takes.empty()) << op->name << ": the last of a dtype refuses nothing";
      }
    }
  }
}

// The route that a plan takes for the node of a sample; nullopt where no node of its kind is left.
std::optional<RouteKind> planned(const FusionPlan& plan, const Graph& graph, const OpDef& op) {
  auto is = [&](NodeId id) { return graph.node(id).op == &op; };
  for (const Group* g : flat_groups(plan)) {
    if (g->kind == Group::Kind::Library && is(g->call.node)) return RouteKind::Library;
    if (g->kind == Group::Kind::Own && is(g->node)) return RouteKind::OwnKernel;
    if (g->kind == Group::Kind::Host && is(g->node)) return RouteKind::Reference;
    if (g->kind == Group::Kind::Kernel && std::any_of(g->nest.sources.begin(), g->nest.sources.end(), is))
      return RouteKind::Loops;
  }
  return std::nullopt;
}

TEST(Routes, PlansFollowThem) {
  for (const CompileDevice& device : devices()) {
    CompileOptions o;
    o.device = device.name;
    auto backend = backend_of(device.name);
    int seen = 0;
    for (const auto& op : OpTable::get().all()) {
      const auto* structured = op->structured();
      if (!structured || structured->kind == Structured::Constant || structured->kind == Structured::Alias ||
          !op->samples)
        continue;
      const auto routes = operator_routes(*backend->routes(), *op);
      const auto samples = op->samples();
      for (size_t i = 0; i < samples.size(); ++i) {
        auto g = test::build(*op, samples[i], test::Sizes::Static);
        ASSERT_TRUE(g.ok()) << g.error().str();
        const Node& node = g->get();
        if (node.operands.empty() || !node.operands[0].valid()) continue;
        const DType dtype = g->graph.type(node.operands[0]).dtype;
        for (ValueId v : std::vector<ValueId>(node.results))
          if (v.valid()) g->graph.add_output("y" + std::to_string(v.index), v);
        Compilation compilation(g->graph, *backend, o);
        auto pipeline = compile_pipeline(device.name).value();
        ASSERT_TRUE(stop_after(pipeline, "fuse").ok());
        auto stats = run_passes(compilation, pipeline, {});
        ASSERT_TRUE(stats.ok()) << stats.error().str();
        const auto kind = planned(compilation.plan(), g->graph, *op);
        if (!kind) continue; // computed when compiling, or rewritten
        ++seen;
        EXPECT_TRUE(std::any_of(routes.begin(), routes.end(),
                                [&](const OperatorRoute& r) { return r.dtype == dtype && r.kind == *kind; }))
            << device.name << ", " << op->name << ", " << test::describe(samples[i], i) << " is planned as "
            << name(*kind);
      }
    }
    EXPECT_GT(seen, 100) << device.name;
  }
}

} // namespace
} // namespace tessera
