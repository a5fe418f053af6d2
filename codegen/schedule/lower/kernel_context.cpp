#include "codegen/schedule/lower/kernel_context.h"
#include <cctype>

namespace tessera {

KernelContext::KernelContext(const Graph& graph_, const LoopNest& nest_, const Domain& domain, OnlineSums online_,
                             Stages stages_, const std::string& name)
    : graph(graph_), nest(nest_), d(domain), online(std::move(online_)), b(out.kernel), sizes(b, d),
      stages(std::move(stages_)), needs(find_needs(nest, d)),
      row_may_be_empty(d.reduces && d.env.range(d.row_count()).lo < 1) {
  for (char c : name) out.kernel.name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (out.kernel.name.empty()) out.kernel.name = "kernel";
}

void KernelContext::add_buffers() {
  for (size_t i = 0; i < d.buffers.size(); ++i) {
    const Value& v = graph.value(d.buffers[i]);
    const std::string name = v.name.empty() ? "b" + std::to_string(i) : v.name;
    pointers.push_back(b.param(name, {tile::Type::Kind::Pointer, v.type.dtype, {}}, d.written[i]));
  }
  out.buffers = d.buffers;
  out.written = d.written;
}

} // namespace tessera
