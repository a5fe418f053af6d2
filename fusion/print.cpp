// Text of plans, and what must hold of every plan.
#include "base/text.h"
#include "fusion/activation.h"
#include "fusion/cost.h"
#include "fusion/rewrite.h"
#include <algorithm>
#include <cstdio>
#include <functional>

namespace tessera {

namespace {

std::string value_text(const Graph& graph, ValueId v) {
  const std::string& name = graph.value(v).name;
  return name.empty() ? "#" + std::to_string(v.index) : shown(name);
}
std::string list(const Graph& graph, const std::vector<ValueId>& values) {
  std::string out;
  for (ValueId v : values) out += (out.empty() ? "" : ", ") + value_text(graph, v);
  return out;
}
std::string node_text(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (!node.location.node.empty()) return shown(node.location.node);
  for (ValueId v : node.results)
    if (v.valid()) return std::string(node.op->name) + "(" + value_text(graph, v) + ")";
  return std::string(node.op->name);
}
std::string sources(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::string out;
  for (NodeId n : nodes) out += (out.empty() ? "" : ", ") + node_text(graph, n);
  return out;
}
std::string view_text(const Graph& graph, const OperandView& view) {
  std::string strides;
  for (const auto& s : view.strides) strides += (strides.empty() ? "" : ", ") + s.str();
  std::string out = value_text(graph, view.value) + " " + str(view.shape) + " strides [" + strides + "]";
  return view.offset.is_const(0) ? out : out + " offset " + view.offset.str();
}
std::string number_text(double value) {
  char number[32];
  std::snprintf(number, sizeof number, "%.9g", value);
  return number;
}
std::string fixed_text(const Graph& graph, const FixedEpilogue& e) {
  std::string out = "  by the library:";
  if (e.alpha != 1) out += " times " + number_text(e.alpha);
  if (e.bias) out += " bias " + value_text(graph, e.bias->value) + " along dimension " + std::to_string(e.bias_dim);
  if (e.residual) out += " residual " + value_text(graph, e.residual->value);
  if (e.activation != FixedEpilogue::Activation::None) out += " " + std::string(fusion::name(e.activation));
  return out + ", into " + value_text(graph, e.result.value) + "\n";
}
std::string fixed_text(const Graph& graph, const FixedScore& score) {
  std::string out = "  score: times " + number_text(score.scale);
  if (score.bias) out += " plus " + view_text(graph, *score.bias);
  return out + (score.causal ? ", causal\n" : "\n");
}
std::string attention_text(const Graph& graph, const AttentionCall& a) {
  std::string out;
  const std::pair<const char*, const OperandView*> views[] = {{"q", &a.q}, {"k", &a.k}, {"v", &a.v}, {"out", &a.out}};
  for (auto [name, view] : views) out += "  " + std::string(name) + " " + view_text(graph, *view) + "\n";
  out += "  softmax of " + a.score.dag.str(a.root) + "\n";
  for (size_t i = 0; i < a.score.loads.size(); ++i)
    out += "    operand " + std::to_string(i) + (i == 0 ? ": q k'" : ": " + value_text(graph, a.score.loads[i])) + "\n";
  if (a.zero_where_undefined) out += "  zeros where it is undefined\n";
  return out + (a.fixed ? fixed_text(graph, *a.fixed) : "  score of no fixed form: " + a.not_fixed + "\n");
}
std::string indented(const std::string& text) {
  std::string out;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = std::min(text.find('\n', begin), text.size());
    out += "  " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return out;
}
std::string_view kind_text(Group::Kind kind) {
  switch (kind) {
  case Group::Kind::Kernel: return "kernel";
  case Group::Kind::Library: return "library call";
  case Group::Kind::Attention: return "attention";
  case Group::Kind::Own: return "separate kernel";
  case Group::Kind::Host: return "host operator";
  case Group::Kind::Control: return "control flow";
  case Group::Kind::Alias: return "alias";
  }
  return "";
}

void print(const Graph& graph, const Group& g, std::string& out) {
  out += "group " + shown(g.name) + ": " + std::string(kind_text(g.kind)) + "\n";
  out += "  reads " + list(graph, g.reads) + "; writes " + list(graph, g.writes) + "\n";
  out += "  bytes " + (g.bytes_read + g.bytes_written).str() + ", operator by operator " + g.bytes_unfused.str() + "\n";
  if (g.kind == Group::Kind::Kernel) {
    out += "  from " + sources(graph, g.nest.sources) + "\n" + indented(print(graph, g.nest));
  } else if (g.kind == Group::Kind::Library) {
    out += "  from " + sources(graph, g.call.sources) + "\n";
    for (const auto& operand : g.call.operands) out += "  operand " + view_text(graph, operand) + "\n";
    out += "  result " + view_text(graph, g.call.result) + "\n";
    if (g.call.scale != 1) out += "  scale " + number_text(g.call.scale) + "\n";
    if (g.call.fixed) out += fixed_text(graph, *g.call.fixed);
    if (g.call.epilogue_nest) out += "  epilogue\n" + indented(print(graph, *g.call.epilogue_nest));
  } else if (g.kind == Group::Kind::Host || g.kind == Group::Kind::Own || g.kind == Group::Kind::Control ||
             g.kind == Group::Kind::Alias) {
    out += g.node.valid()                 ? "  from " + node_text(graph, g.node) + "\n"
           : g.kind == Group::Kind::Alias ? ""
                                          : attention_text(graph, g.attention);
  } else if (g.kind == Group::Kind::Attention) {
    out += attention_text(graph, g.attention);
    std::string steps;
    for (const auto& step : g.otherwise) print(graph, step, steps);
    out += "  otherwise\n" + indented(steps);
  }
}

} // namespace

std::vector<const Group*> flat_groups(const FusionPlan& plan) {
  std::vector<const Group*> out;
  for (const auto& g : plan.groups) {
    out.push_back(&g);
    for (const auto& step : g.otherwise) out.push_back(&step);
  }
  return out;
}

std::string print(const Graph& graph, const FusionPlan& plan) {
  std::string out;
  fusion::Estimator estimate(graph.env());
  auto text = [&](const Detail& detail) {
    return detail_text(detail, [&](const SymExpr& e) { return std::optional(estimate(e)); });
  };
  for (const auto& g : plan.groups) print(graph, g, out);
  for (const auto& e : plan.ledger) {
    const auto& why = info(e.reason);
    out += "edge " + node_text(graph, e.producer) + " -> " + node_text(graph, e.consumer) + " " +
           (why.fused ? "fused" : "not fused") + " " + std::string(why.code) + " " + std::string(why.name);
    if (!e.bytes_saved.is_const(0)) out += ", saves " + e.bytes_saved.str();
    out += e.detail.empty() ? "\n" : ": " + text(e.detail) + "\n";
  }
  for (const auto& e : plan.pairs) {
    const auto& why = info(e.reason);
    out += "pair " + node_text(graph, e.first) + " and " + node_text(graph, e.second) + " " +
           (why.fused ? "fused" : "not fused") + " " + std::string(why.code) + " " + std::string(why.name) + ": " +
           text(e.detail) + "\n";
  }
  return out;
}

Status verify(const Graph& graph, const FusionPlan& plan) {
  std::vector<bool> defined(static_cast<size_t>(graph.value_count()));
  auto broken = [](const Group& g, const std::string& what) {
    return Diagnostic(ErrorCode::Internal, "plan: group " + g.name + " " + what);
  };
  auto is_defined = [&](ValueId v) { return defined[static_cast<size_t>(v.index)]; };
  for (ValueId v : graph.inputs()) defined[static_cast<size_t>(v.index)] = true;
  for (NodeId id : graph.order()) {
    const auto* structured = graph.node(id).op->structured();
    if (structured && structured->kind == Structured::Constant)
      for (ValueId v : graph.node(id).results)
        if (v.valid()) defined[static_cast<size_t>(v.index)] = true;
  }
  std::function<Status(const Group&)> check = [&](const Group& g) -> Status {
    for (ValueId v : g.reads)
      if (!is_defined(v)) return broken(g, "reads " + value_text(graph, v) + " before it is written");
    if (g.kind == Group::Kind::Alias && !g.node.valid()) return {};
    if (g.kind == Group::Kind::Attention) { // its steps compute what it computes
      for (const auto& step : g.otherwise) TESSERA_TRY(check(step));
      for (ValueId v : g.writes)
        if (!is_defined(v)) return broken(g, "writes another value than its steps");
      return {};
    }
    for (ValueId v : g.writes) {
      if (is_defined(v)) return broken(g, "writes " + value_text(graph, v) + " again");
      defined[static_cast<size_t>(v.index)] = true;
    }
    if (g.kind == Group::Kind::Kernel) {
      TESSERA_TRY(verify(graph, g.nest));
      for (ValueId v : g.nest.loads)
        if (std::find(g.reads.begin(), g.reads.end(), v) == g.reads.end())
          return broken(g, "loads what it does not read");
    } else if (g.kind == Group::Kind::Library && g.call.epilogue_nest) {
      const LoopNest& nest = *g.call.epilogue_nest;
      TESSERA_TRY(verify(graph, nest));
      if (nest.axes.size() != g.call.result.shape.size())
        return broken(g, "has an epilogue over other dimensions than its result");
      for (size_t d = 0; d < nest.axes.size(); ++d)
        if (nest.axes[d].role != AxisRole::Outer || !(nest.axes[d].extent == g.call.result.shape[d]))
          return broken(g, "has an epilogue whose iteration space is not its result's");
    }
    return {};
  };
  for (const auto& g : plan.groups) TESSERA_TRY(check(g));
  for (const auto& o : graph.outputs())
    if (!is_defined(o.value))
      return Diagnostic(ErrorCode::Internal, "plan: output " + o.name + " is written by nobody");
  return {};
}

} // namespace tessera
