// The memory of a report: the arena as it is planned at these sizes, weights, inputs and outputs.
#include "report/context.h"
#include "runtime/variant.h"

namespace tessera::report {

namespace {

std::string_view name(BufferInfo::Kind kind) {
  switch (kind) {
  case BufferInfo::Kind::Input: return "input";
  case BufferInfo::Kind::Output: return "output";
  case BufferInfo::Kind::Constant: return "constant";
  case BufferInfo::Kind::Temporary: break;
  }
  return "temporary";
}

} // namespace

Json memory_json(Context& x) {
  Json out;
  std::map<BufferInfo::Kind, std::optional<double>> sums;
  for (auto kind : {BufferInfo::Kind::Input, BufferInfo::Kind::Output, BufferInfo::Kind::Constant}) sums[kind] = 0;
  const auto& buffers = x.exe.buffers;
  std::vector<std::optional<int64_t>> bytes(buffers.size());
  for (size_t b = 0; b < buffers.size(); ++b) {
    const SymExpr size = floordiv(product(buffers[b].shape) * info(buffers[b].dtype).bits + 7, 8);
    if (auto v = x.value(size)) bytes[b] = static_cast<int64_t>(*v);
    auto sum = sums.find(buffers[b].kind);
    if (sum == sums.end() || !sum->second) continue;
    sum->second = bytes[b] ? std::optional(*sum->second + static_cast<double>(*bytes[b])) : std::nullopt;
  }
  // The plan of an executor: temporaries of known sizes; one that takes over another's memory is in its place.
  std::vector<int> planned_of(buffers.size(), -1);
  std::vector<PlannedBuffer> planned;
  std::vector<size_t> of;
  std::optional<double> arena;
  std::vector<int64_t> offsets(buffers.size(), -1);
  if (auto variant = Variant::create(x.c.executable); variant.ok()) {
    for (const auto& segment : (*variant)->temporaries)
      for (BufferId id : segment) {
        const auto b = static_cast<size_t>(id);
        if (!bytes[b]) continue;
        PlannedBuffer p{*bytes[b], buffers[b].first_step, buffers[b].last_step};
        if (const int from = (*variant)->in_place_of[b]; from >= 0)
          p.in_place_of = planned_of[static_cast<size_t>(from)];
        planned_of[b] = static_cast<int>(planned.size());
        planned.push_back(p);
        of.push_back(b);
      }
    if (auto plan = plan_memory(planned); plan.ok()) {
      arena = static_cast<double>(plan->bytes);
      for (size_t i = 0; i < of.size(); ++i) offsets[of[i]] = plan->offsets[i];
    }
  }
  auto number = [](const std::optional<double>& v) { return v ? Json(static_cast<int64_t>(*v)) : Json(nullptr); };
  out["arena_bytes"] = number(arena);
  out["constant_bytes"] = number(sums[BufferInfo::Kind::Constant]);
  out["input_bytes"] = number(sums[BufferInfo::Kind::Input]);
  out["output_bytes"] = number(sums[BufferInfo::Kind::Output]);
  out["buffers"] = Json::array();
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].last_step < buffers[b].first_step) continue; // nobody uses it
    Json j{{"name", buffers[b].name}, {"kind", name(buffers[b].kind)}};
    j["bytes"] = bytes[b] ? Json(*bytes[b]) : Json(nullptr);
    if (offsets[b] >= 0) j["offset"] = offsets[b];
    j["first_step"] = buffers[b].first_step;
    j["last_step"] = buffers[b].last_step;
    out["buffers"].push_back(std::move(j));
  }
  return out;
}

} // namespace tessera::report
