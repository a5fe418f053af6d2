// Kernels that operators of a program have as texts of the tile IR (graph/ops/added.h).
#include "codegen/schedule/own_kernels.h"
#include "graph/ops/added.h"

namespace tessera {

bool tile_text_takes(const Graph& graph, const Node& node, std::string_view device, std::string* why_not) {
  const TileTextFn* kernel = tile_text_of(*node.op);
  auto text = kernel ? (*kernel)(graph, node, device) : Result<std::optional<TileText>>(std::nullopt);
  if (!text.ok() || *text) return true; // an error is the lowering's
  if (why_not)
    *why_not =
        "no " + std::string(device == "cuda" ? "GPU" : "host") + " kernel for operator " + std::string(node.op->name);
  return false;
}

Result<std::vector<ScheduledKernel>> lower_tile_text(const Graph& graph, const Node& node, const Target& device,
                                                     const std::string& name) {
  const std::string where = "the kernel of '" + std::string(node.op->name) + "'";
  TESSERA_ASSIGN(auto text, (*tile_text_of(*node.op))(graph, node, tessera::name(device.kind)));
  TESSERA_CHECK(text.has_value(), "a route has accepted " + where);
  auto parsed = tile::parse(text->text, where);
  if (!parsed.ok()) return std::move(parsed).take_error();
  ScheduledKernel out;
  out.kernel = std::move(*parsed);
  if (auto status = tile::verify(out.kernel); !status.ok())
    return Diagnostic(ErrorCode::ParseError, node.location, status.error().message);
  if (tile::needs_cooperative_launch(out.kernel))
    return Diagnostic(ErrorCode::UnsupportedFeature, node.location,
                      where + " has programs that wait for each other, which kernels of libraries may not");
  for (tile::OpId id = 0; id < out.kernel.op_count(); ++id)
    if (const tile::OpKind kind = out.kernel.op(id).kind;
        kind == tile::OpKind::Scratch || kind == tile::OpKind::Arrive || kind == tile::OpKind::ReportIndex)
      return Diagnostic(ErrorCode::UnsupportedFeature, node.location,
                        where +
                            " has scratch memory, counters or reported indices, which kernels of libraries may not");

  std::vector<std::pair<ValueId, bool>> buffers; // and whether it is written
  for (ValueId v : node.operands)
    if (v.valid()) buffers.emplace_back(v, false);
  for (ValueId v : node.results)
    if (v.valid()) buffers.emplace_back(v, true);
  if (out.kernel.params.size() != buffers.size() + text->sizes.size())
    return Diagnostic(ErrorCode::TypeMismatch, node.location,
                      where + " has " + std::to_string(out.kernel.params.size()) + " parameters; expected are " +
                          std::to_string(buffers.size()) + " pointers, of operands and results, and " +
                          std::to_string(text->sizes.size()) + " sizes");
  for (size_t i = 0; i < out.kernel.params.size(); ++i) {
    const tile::Param& p = out.kernel.params[i];
    tile::Type wanted{tile::Type::Kind::Data, DType::I64, {}};
    if (i < buffers.size()) wanted = {tile::Type::Kind::Pointer, graph.type(buffers[i].first).dtype, {}};
    const bool written = i < buffers.size() && buffers[i].second;
    if (p.type != wanted || p.written != written)
      return Diagnostic(ErrorCode::TypeMismatch, node.location,
                        "parameter '" + p.name + "' of " + where + " is " + p.type.str() +
                            (p.written ? " written" : "") + ", expected " + wanted.str() + (written ? " written" : ""));
  }
  out.kernel.name = name;
  for (const auto& [value, written] : buffers) {
    out.buffers.push_back(value);
    out.written.push_back(written);
  }
  out.may_overwrite.resize(buffers.size());
  const ShapeEnv& env = graph.env();
  for (const SymExpr& e : text->sizes) out.sizes.push_back(env.simplify(e));
  out.grid = env.simplify(text->grid);
  out.work_per_program = 1;
  for (const auto& [value, written] : buffers) // a program's share of the largest result
    if (written) out.work_per_program = ceildiv(env.simplify(graph.type(value).count()), sym_max(out.grid, 1));
  out.scratch_bytes = 0;
  out.schedule.kind = device.is_gpu() ? ScheduleKind::BlockFlat : ScheduleKind::Flat;
  out.why = "the operator's own kernel";
  std::vector<ScheduledKernel> kernels;
  kernels.push_back(std::move(out));
  return kernels;
}

} // namespace tessera
