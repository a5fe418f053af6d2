// Tile kernels through the C interface.
#include "api/c/context.h"
#include "api/c/opening.h"
#include "api/c/struct.h"

struct tessera_kernel {
  std::unique_ptr<tessera::TileKernel> kernel;
  std::vector<tessera_kernel_parameter> parameters;
  tessera::OfProcess process;
};

using namespace tessera;

namespace {

std::vector<tessera_kernel_parameter> parameters_of(const tile::Kernel& kernel) {
  std::vector<tessera_kernel_parameter> out;
  for (const tile::Param& p : kernel.params) {
    const bool is_pointer = p.type.kind == tile::Type::Kind::Pointer;
    out.push_back({p.name.c_str(), is_pointer ? 1 : 0, info(p.type.dtype).onnx, p.written ? 1 : 0,
                   is_pointer ? p.alignment : 1, p.multiple_of});
  }
  return out;
}

Result<KernelOpening> opening_of(const char* text, const tessera_kernel_options* caller) {
  KernelOpening out;
  out.text = text;
  if (caller == nullptr) return out;
  TESSERA_ASSIGN(const auto given,
                 take_struct("tessera_kernel_options", *caller, TESSERA_BYTES_WITH(tessera_kernel_options, cache_dir)));
  if (given.device != nullptr) out.device = given.device;
  if (given.name != nullptr) out.file = given.name;
  if (given.cache_dir != nullptr) out.cache_dir = given.cache_dir;
  out.threads = given.threads;
  return out;
}

// The arguments of a launch, on the stack where they are few.
class Arguments {
public:
  [[nodiscard]] Status take(const tessera_kernel_argument* given, size_t count) {
    if (count > kFew) many_.resize(count);
    all_ = {count > kFew ? many_.data() : few_.data(), count};
    for (size_t i = 0; i < count; ++i) {
      const tessera_kernel_argument& from = given[i];
      KernelArgument& to = all_[i];
      switch (from.kind) {
      case TESSERA_ARGUMENT_POINTER: to = from.pointer; break;
      case TESSERA_ARGUMENT_INTEGER: to = from.integer; break;
      case TESSERA_ARGUMENT_UNSIGNED: to = static_cast<uint64_t>(from.integer); break;
      case TESSERA_ARGUMENT_FLOAT: to = from.number; break;
      default:
        return usage("argument " + std::to_string(i + 1) + ": the kind is " + std::to_string(from.kind) +
                     ", expected a tessera_argument_kind");
      }
    }
    return {};
  }
  [[nodiscard]] std::span<const KernelArgument> all() const { return all_; }

private:
  static constexpr size_t kFew = 64;
  std::array<KernelArgument, kFew> few_;
  std::vector<KernelArgument> many_;
  std::span<KernelArgument> all_;
};

} // namespace

const char* tessera_kernel_create(const char* text, const tessera_kernel_options* options, tessera_kernel** kernel) {
  if (text == nullptr || kernel == nullptr)
    return record_error(usage("the text of a kernel, and a place for the kernel, are needed"));
  return recorded("making a kernel", [&]() -> Status {
    TESSERA_ASSIGN(const KernelOpening opening, opening_of(text, options));
    auto out = std::make_unique<tessera_kernel>();
    TESSERA_ASSIGN(out->kernel, open_kernel(opening));
    out->parameters = parameters_of(out->kernel->kernel());
    *kernel = out.release();
    return {};
  });
}

void tessera_kernel_destroy(tessera_kernel* kernel) {
  // In a child of fork() it stays: what it would wait for is its parent's.
  if (kernel == nullptr || !kernel->process.here()) return;
  const InsideLibrary inside;
  delete kernel;
}

const char* tessera_kernel_parameters(const tessera_kernel* kernel, const tessera_kernel_parameter** parameters,
                                      int32_t* count) {
  if (kernel == nullptr || parameters == nullptr || count == nullptr)
    return record_error(usage("a kernel, and places for its parameters and their number, are needed"));
  show(kernel->parameters, parameters, count);
  return nullptr;
}

const char* tessera_kernel_get_info(const tessera_kernel* kernel, tessera_kernel_info* to) {
  if (kernel == nullptr || to == nullptr)
    return record_error(usage("a kernel, and a place for what is known of it, are needed"));
  return recorded("describing a kernel", [&]() -> Status {
    const TileKernelInfo& known = kernel->kernel->info();
    tessera_kernel_info out{};
    out.name = kernel->kernel->kernel().name.c_str();
    out.device = known.device.c_str();
    out.threads = known.threads;
    out.registers = known.registers;
    out.spill_bytes = known.spill_bytes;
    out.cached = known.from_cache ? 1 : 0;
    out.shared_bytes = known.shared_bytes;
    out.create_ms = known.create_ms;
    return give_struct("tessera_kernel_info", out, TESSERA_BYTES_WITH(tessera_kernel_info, create_ms), *to);
  });
}

const char* tessera_kernel_launch(tessera_kernel* kernel, int64_t x, int64_t y, int64_t z,
                                  const tessera_kernel_argument* arguments, int32_t count, void* stream) {
  if (kernel == nullptr) return record_error(usage("the kernel is null"));
  if (count < 0 || (count > 0 && arguments == nullptr))
    return record_error(usage("the arguments are null, or their number is negative"));
  return recorded("launching a kernel", [&]() -> Status {
    Arguments taken;
    TESSERA_TRY(taken.take(arguments, static_cast<size_t>(count)));
    return kernel->kernel->launch({x, y, z}, taken.all(), stream);
  });
}
