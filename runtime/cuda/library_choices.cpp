#include "runtime/cuda/library_choices.h"

namespace tessera::cuda {
namespace {

std::string device_text(const DeviceProperties& p) {
  return p.name + " (" + p.arch() + ", " + std::to_string(p.multiprocessors) + " multiprocessors)";
}

} // namespace

Result<std::shared_ptr<LibraryChoices>> LibraryChoices::of(Context& context) {
  return context.attachment_of<LibraryChoices>("choices");
}

LibraryChoices::LibraryChoices(const Context& context)
    : driver_("driver " + version_text(context.driver().version)), device_(device_text(context.properties())) {}

std::vector<std::shared_ptr<KeptChoices>> LibraryChoices::all() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<KeptChoices>> out;
  for (const auto& [name, choices] : libraries_) out.push_back(choices);
  return out;
}

void LibraryChoices::keep_in(const std::shared_ptr<Cache>& cache) {
  if (!cache) return;
  {
    std::lock_guard lock(mutex_);
    cache_ = cache;
  }
  for (const auto& choices : all()) choices->keep_in(cache);
}

std::shared_ptr<KeptChoices> LibraryChoices::of_library(const std::string& library) {
  std::shared_ptr<Cache> cache;
  {
    std::lock_guard lock(mutex_);
    if (auto it = libraries_.find(library); it != libraries_.end()) return it->second;
    cache = cache_;
  }
  auto made = std::make_shared<KeptChoices>(std::move(cache), library + ", " + driver_, device_);
  std::lock_guard lock(mutex_);
  return libraries_.try_emplace(library, std::move(made)).first->second; // another thread's, where it was faster
}

void LibraryChoices::flush() {
  for (const auto& choices : all()) choices->flush();
}

} // namespace tessera::cuda
