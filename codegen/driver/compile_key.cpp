#include "codegen/driver/compile_key.h"
#include "base/file.h"
#include "codegen/compilation/backend.h"
#include "codegen/driver/devices.h"
#include "graph/passes/runner.h"

namespace tessera {

extern const char* const kSourceDigest; // made by the build (source_digest in codegen/CMakeLists.txt)

const std::string& compiler_build() {
  static const std::string build = std::string("tessera-") + kSourceDigest;
  return build;
}

bool add_options(KeyText& key, const CompileOptions& options) {
  // Every field, in order: an option that is added does not compile here until it has its place.
  const auto& [device, arch, assemble_for, target, prices, multiprocessors, shared_bytes, l2_bytes,
               memory_peak_bytes_per_us, device_name, driver, records, tuned, cublaslt, cudnn, find_libraries, as_loops,
               threads, jobs, cancelled, fusion, no_fuse, break_at, plan, plan_strict, strict_rounding, deterministic,
               tf32, cache, cache_dir, keep_values, keep_tiles, keep_texts, disabled_passes, fold_bytes] = options;
  key.add("device", device);
  key.add("arch", arch);
  key.add("assemble_for", assemble_for);
  key.add("target", target);
  (void)prices; // of the report alone
  key.add("multiprocessors", multiprocessors);
  key.add("shared_bytes", shared_bytes);
  key.add("l2_bytes", l2_bytes);
  key.add("memory_peak_bytes_per_us", memory_peak_bytes_per_us);
  key.add("device_name", device_name);
  key.add("driver", driver);
  key.add("records", records);
  key.add("cublaslt", cublaslt);
  key.add("cudnn", cudnn);
  key.add("find_libraries", find_libraries);
  key.add("as_loops", as_loops);
  key.add("threads", threads);
  key.add("fusion", fusion);
  key.add("no_fuse", no_fuse);
  key.add("break_at", break_at);
  key.add("plan_strict", plan_strict);
  key.add("strict_rounding", strict_rounding);
  key.add("deterministic", deterministic);
  key.add("tf32", tf32);
  key.add("keep_values", keep_values);
  key.add("disabled_passes", disabled_passes);
  key.add("disabled_by_environment", passes_disabled_by_environment());
  key.add("fold_bytes", fold_bytes);
  return !plan && !tuned;
}

Status add_device(KeyText& key, const CompileOptions& options, std::string& device) {
  TESSERA_ASSIGN(const auto backend, make_backend(options));
  device = backend->target();
  const Target& figures = backend->device();
  key.add("code", device);
  for (const TargetField& field : target_fields()) key.add(field.name, field.get(figures));
  key.add("target", std::pair(figures.name, figures.arch));
  key.add("figures_of", backend->figures());
  if (options.records && !figures.records.empty()) {
    TESSERA_ASSIGN(const std::string records, read_file(figures.records));
    key.add("records_of_target", records);
  }
  key.add("versions", backend->versions());
  return {};
}

} // namespace tessera
