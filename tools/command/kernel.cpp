// tessera kernel: the text of one tile kernel through the levels of a GPU compile, and what a launch of it needs.
#include "base/file.h"
#include "codegen/llvm/gpu_compiler.h"
#include "command.h"
#include <iostream>
#include <sstream>

namespace tessera::command {

namespace {

struct KernelCommand {
  std::string file, arch = "sm_90", emit = "ptx", output;
};

Result<std::string> read_source(const std::string& path) {
  if (path != "-") return read_file(path);
  std::ostringstream text;
  text << std::cin.rdbuf();
  return text.str();
}

// The parameters of the entry in order: those of the tile kernel, then the address of the index report.
Json params_of(const tile::Kernel& kernel) {
  Json out = Json::array();
  for (const tile::Param& p : kernel.params) {
    Json& param = out.emplace_back(Json{{"name", p.name},
                                        {"kind", p.type.kind == tile::Type::Kind::Pointer ? "pointer" : "scalar"},
                                        {"dtype", std::string(name(p.type.dtype))}});
    if (p.type.kind == tile::Type::Kind::Pointer) {
      param["written"] = p.written;
      param["align"] = p.alignment;
    } else if (p.multiple_of > 1) {
      param["multiple"] = p.multiple_of;
    }
  }
  out.push_back({{"name", "report"}, {"kind", "index report"}, {"bytes", sizeof(IndexReport)}});
  return out;
}

// A size: the factor times the parameters of these names.
Json to_json(const ParameterProduct& size, const tile::Kernel& kernel) {
  Json out{{"factor", size.factor}, {"params", Json::array()}};
  for (const int i : size.params) out["params"].push_back(kernel.params[static_cast<size_t>(i)].name);
  return out;
}

// Tensor maps, parameters behind the index report: as cuTensorMapEncodeTiled takes them, the contiguous dimension
// first, strides of the others in bytes.
Json maps_of(const tile::Kernel& kernel, const GpuKernelCode& code) {
  Json out = Json::array();
  for (const KernelTensorMap& map : code.tensor_maps) {
    Json dims = Json::array(), strides = Json::array();
    for (const auto& d : map.dims) dims.push_back(to_json(d, kernel));
    for (const auto& s : map.strides) strides.push_back(to_json(s, kernel));
    out.push_back({{"pointer", kernel.params[static_cast<size_t>(map.buffer)].name},
                   {"dtype", std::string(name(map.dtype))},
                   {"offset", to_json(map.offset, kernel)},
                   {"dims", std::move(dims)},
                   {"strides", std::move(strides)},
                   {"box", map.box},
                   {"steps", map.steps},
                   {"swizzle_bytes", swizzle_bytes(map.swizzle)}});
  }
  return out;
}

Json to_json(const tile::Kernel& kernel, const GpuKernelCode& code, const GpuTarget& target) {
  return {{"symbol", code.symbol},
          {"arch", target.arch},
          {"threads", code.threads},
          {"shared_bytes", code.shared_bytes},
          {"cluster", code.cluster},
          {"dependent_launch", code.dependent_launch},
          {"products", code.products},
          {"params", params_of(kernel)},
          {"tensor_maps", maps_of(kernel, code)}};
}

Result<std::string> run_kernel(const KernelCommand& o) {
  TESSERA_ASSIGN(const GpuTarget target, GpuTarget::parse(o.arch));
  TESSERA_ASSIGN(const std::string source, read_source(o.file));
  TESSERA_ASSIGN(const tile::Kernel kernel, tile::parse(source, o.file));
  TESSERA_TRY(tile::verify(kernel));
  if (o.emit == "tile") return tile::print(kernel);
  TESSERA_ASSIGN(GpuKernelCode code, compile_gpu_kernel(kernel, target, o.emit == "llvm"));
  if (o.emit == "llvm") return code.llvm_ir;
  if (o.emit == "ptx") return code.ptx;
  return json_text(to_json(kernel, code, target));
}

} // namespace

void add_kernel(CommandLine& line) {
  auto options = std::make_shared<KernelCommand>();
  Subcommand sub = line.add("kernel", "compile the text of one tile kernel for a GPU");
  sub.option("FILE", options->file, "text of a tile kernel (docs/tile-ir.md); '-' for standard input").required();
  sub.option("--arch", options->arch, "GPU architecture").show_default();
  sub.option("--emit", options->emit,
             "level: the checked tile kernel, optimised LLVM IR, PTX, or as JSON the entry's symbol, threads, shared "
             "memory in bytes, blocks of a cluster and parameters in order")
      .one_of({"tile", "llvm", "ptx", "json"})
      .show_default();
  sub.option("-o,--output", options->output, "write to this file").writes_file();
  sub.footer("Examples:\n"
             "  tessera kernel examples/tile/product.tile --arch sm_90a\n"
             "  tessera kernel examples/tile/product.tile --arch sm_90a --emit json");
  sub.action([options] {
    auto text = run_kernel(*options);
    if (!text.ok()) return fail(text.error());
    // Whole lines, which an assembler reads.
    const Status written = write_text(options->output, shown_lines(*text, std::string::npos));
    return written.ok() ? kDone : fail(written.error());
  });
}

} // namespace tessera::command
