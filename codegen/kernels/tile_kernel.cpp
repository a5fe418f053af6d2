#include "codegen/kernels/tile_kernel.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "codegen/kernels/checked_kernel.h"

namespace tessera {
namespace {

// The words of a launch, on the stack for kernels with few parameters.
class Words {
public:
  explicit Words(size_t count) {
    if (count > kFew) many_.resize(count);
  }
  [[nodiscard]] uint64_t* data() { return many_.empty() ? few_.data() : many_.data(); }

private:
  static constexpr size_t kFew = 64;
  std::array<uint64_t, kFew> few_;
  std::vector<uint64_t> many_;
};

} // namespace

Result<std::unique_ptr<TileKernel>> TileKernel::create(const std::string& text, TileKernelOptions options) {
  return guarded("making a kernel", [&]() -> Result<std::unique_ptr<TileKernel>> {
    const Stopwatch watch;
    TESSERA_ASSIGN(tile::Kernel kernel, tile::parse(text, options.file));
    if (!options.pool) options.pool = ThreadPool::create();
    const auto make = options.compile.device == "cuda" ? make_gpu_kernel : make_host_kernel;
    Cache cache(options.compile.cache_dir, options.compile.cache);
    auto made = make(std::move(kernel), options, cache);
    if (!made.ok() && made.error().code == ErrorCode::CodegenError)
      return std::move(made).take_error().at({.file = options.file});
    if (!made.ok()) return made;
    for (const std::string& warning : cache.warnings()) TESSERA_LOGF(LogChannel::Warnings, warning);
    (*made)->info_.create_ms = watch.ms();
    return made;
  });
}

Status CheckedKernel::check(const Grid& grid) const {
  for (int axis = 0; axis < kGridAxes; ++axis) {
    const int64_t most = kMaxGrid[static_cast<size_t>(axis)], seen = grid[axis];
    if (seen < 0 || seen > most) [[unlikely]]
      return Diagnostic(ErrorCode::BadInput, "the grid of kernel '" + kernel().name + "' has " + std::to_string(seen) +
                                                 " programs along axis " + std::to_string(axis) + ", expected 0 to " +
                                                 std::to_string(most));
  }
  return {};
}

Status CheckedKernel::launch(const Grid& grid, std::span<const KernelArgument> arguments, void* stream) {
  return guarded("launching a kernel", [&]() -> Status {
    TESSERA_TRY(check(grid));
    Words words(packer_.words() + kGridAxes);
    TESSERA_TRY(packer_.pack(arguments, words.data()));
    if (grid.programs() == 0) return {};
    return start(grid, words.data(), stream);
  });
}

Diagnostic CheckedKernel::bad_index(const IndexReport& report) const {
  std::string where;
  if (report.position() != IndexReport::kNoPosition) where = " at element " + std::to_string(report.position());
  return {ErrorCode::BadInput, "index " + std::to_string(report.value()) + where + " is out of range: check " +
                                   std::to_string(report.site()) + " of kernel '" + kernel().name + "'"};
}

} // namespace tessera
