#include "report/price.h"
#include "codegen/device/library_cost.h"
#include "codegen/driver/planned_operators.h"
#include "codegen/schedule/legal.h"
#include "codegen/target/derived.h"
#include "fusion/cost.h"
#include <algorithm>
#include <cmath>

namespace tessera::report {

namespace {

// Results per microsecond of the whole device, for multiply-adds counted twice.
double peak_flops(const Context& x, const Group* group) {
  const Target& d = x.device;
  double tensor = 0; // rate of tensor cores; 0: the group has no use of them, or the device has none
  if (group && (group->kind == Group::Kind::Library || group->kind == Group::Kind::Attention)) {
    const bool library = group->kind == Group::Kind::Library;
    const DType dtype = x.graph.type(library ? group->call.operands[0].value : group->attention.q.value).dtype;
    if (dtype == DType::F16 || dtype == DType::BF16) tensor = d.tensor_f16_per_cycle;
    if (library && dtype == DType::F32 && x.graph.node(group->call.node).attributes.i("tf32", 0) != 0)
      tensor = d.tensor_tf32_per_cycle;
  }
  return 2 * (tensor > 0 ? tensor : d.fma_per_cycle) * processors(d) * d.clock_mhz;
}

PredictedTime moved(const Context& x, double bytes) {
  const double memory = bytes / reached_bandwidth(x.device), launch = lone_launch_us(x.device);
  return {memory + launch, {{"memory", memory}, {"launch", launch}}};
}

std::optional<PredictedTime> attention_price(const Context& x, const AttentionCall& call) {
  auto shapes = product_shapes(x.graph, call, [&](const SymExpr& e) { return x.value(e); });
  if (!shapes) return std::nullopt;
  return attention_time(shapes->first, shapes->second, x.device);
}

} // namespace

bool launches(const StepOf& step) {
  if (!step.group) return true; // a copy
  return step.group->kind != Group::Kind::Host && step.group->kind != Group::Kind::Control;
}

std::optional<size_t> chosen_launch(const Context& x, const KernelLaunch& launch) {
  auto allowed = [&](const std::vector<SizeCondition>& conditions) -> std::optional<bool> {
    for (const SizeCondition& c : conditions) {
      const auto v = c.value.eval(x.sizes);
      if (!v.ok()) return std::nullopt;
      if (!c.allows(*v)) return false;
    }
    return true;
  };
  for (size_t i = 0; i < launch.alternatives.size(); ++i) {
    const auto ok = allowed(launch.alternatives[i].conditions);
    if (!ok) return std::nullopt;
    if (*ok) return i;
  }
  return launch.alternatives.size();
}

const Schedule& schedule_at(const KernelReport& kernel, size_t at) {
  return at < kernel.alternatives.size() ? kernel.alternatives[at].schedule : kernel.schedule;
}

SymExpr flops_of(const Group& g) {
  switch (g.kind) {
  case Group::Kind::Kernel: return fusion::operations(g.nest);
  case Group::Kind::Library:
    return flops(g.call) + (g.call.epilogue_nest ? fusion::operations(*g.call.epilogue_nest) : SymExpr(0));
  case Group::Kind::Attention: return flops(g.attention);
  case Group::Kind::Own: return g.node.valid() ? SymExpr(0) : flops(g.attention);
  default: return 0;
  }
}

StepPrice price_of(const Context& x, const StepOf& step) {
  StepPrice out;
  if (!step.group) {
    const auto& copy = std::get<CopyStep>(x.exe.steps[static_cast<size_t>(step.index)]);
    const BufferInfo& to = x.exe.buffers[static_cast<size_t>(copy.target)];
    const auto bytes = x.value(fusion::byte_count(to.dtype, product(to.shape)));
    if (!bytes) return out;
    out.bytes = 2 * *bytes;
    out.time = moved(x, out.bytes);
    return out;
  }
  const Group& g = *step.group;
  const auto bytes = x.value(g.bytes_read + g.bytes_written);
  if (!bytes) return out;
  out.bytes = *bytes;
  out.flops = x.value(flops_of(g)).value_or(0);
  const Step& run = x.exe.steps[static_cast<size_t>(step.index)];
  switch (g.kind) {
  case Group::Kind::Kernel: {
    const auto* launch = std::get_if<KernelLaunch>(&run);
    if (!launch || step.kernel < 0) return out;
    const KernelReport& kernel = x.c.report.kernels[static_cast<size_t>(step.kernel)];
    const auto at = chosen_launch(x, *launch);
    if (!at) return out;
    auto p = predict(x.graph, g.nest, x.device, schedule_at(kernel, *at), x.sizes);
    if (p.ok()) {
      out.time = p->time;
      out.kernel = std::move(*p);
    } else { // no model of this schedule: what it moves
      out.time = moved(x, *bytes);
    }
    return out;
  }
  case Group::Kind::Library: {
    auto shape = product_shape(x.graph, g.call, [&](const SymExpr& e) { return x.value(e); });
    if (shape) {
      shape->bytes = *bytes;
      out.time = product_time(*shape, x.device);
    }
    return out;
  }
  case Group::Kind::Attention: out.time = attention_price(x, g.attention); return out;
  case Group::Kind::Own: {
    out.time = g.node.valid() ? std::optional(moved(x, *bytes)) : attention_price(x, g.attention);
    constexpr double kTurns = 5; // blocks read, combine and write in turn
    if (const double latency = kTurns * phase_latency_us(x.device); g.node.valid() && latency > 0) {
      out.time->terms.emplace_back("latency", latency);
      out.time->us += latency;
    }
    return out;
  }
  case Group::Kind::Host: {
    // Copies there and back, the wait for them, and the host's memory; the operator's own time is not predicted.
    PredictedTime t;
    if (has_own_memory(x.device)) {
      t.terms = {{"copies", *bytes / x.device.host_copy_bytes_per_us}, {"wait", x.device.host_wait_us}};
      t.us = t.terms[0].second + t.terms[1].second;
    } else {
      t = moved(x, *bytes);
    }
    out.time = t;
    return out;
  }
  default: return out;
  }
}

Json price_json(const Context& x, const StepOf& step, const StepPrice& price) {
  Json j;
  j["us"] = j["alone_us"] = j["bound"] = j["roofline_share"] = j["unfused_us"] = nullptr;
  j["terms_us"] = Json::object();
  if (!price.time) return j;
  // In a call, a launch begins while the one before it runs; by itself, it waits for the device.
  const double alone = price.time->us, overlapped = launches(step) ? lone_launch_us(x.device) - x.device.launch_us : 0;
  const double us = std::max(0.0, alone - overlapped);
  j["us"] = us;
  j["alone_us"] = alone;
  if (!price.time->terms.empty()) j["bound"] = price.time->bound();
  for (const auto& [term, each] : price.time->terms)
    if (std::isfinite(each)) j["terms_us"][term] = term == "launch" ? std::max(0.0, each - overlapped) : each;
  const double roofline = std::max(price.bytes / reached_bandwidth(x.device), price.flops / peak_flops(x, step.group));
  if (us > 0) j["roofline_share"] = std::min(1.0, roofline / us);
  if (!step.group) {
    j["unfused_us"] = us;
    return j;
  }
  // Unfused: a launch for each operator that moves anything, its bytes, and the library's products as they are.
  const Group& g = *step.group;
  const auto bytes = x.value(g.bytes_unfused);
  if (!bytes) return j;
  double operators = 0;
  for (NodeId id : nodes_of(g))
    if (!fusion::moves_nothing(x.graph, id)) ++operators;
  operators = std::max(operators, 1.0);
  double compute = 0;
  if (g.kind == Group::Kind::Library || g.kind == Group::Kind::Attention)
    for (const auto& [term, us] : price.time->terms)
      if (term == "compute" || term == "latency") compute += us;
  j["unfused_us"] = std::max(us, *bytes / reached_bandwidth(x.device) + compute + operators * x.device.launch_us);
  return j;
}

} // namespace tessera::report
