// The choices of NVIDIA's libraries on a GPU, kept in the cache folder for the next process (runtime/cache/choices.h).
#pragma once
#include "runtime/cache/choices.h"
#include "runtime/cuda/context.h"

namespace tessera::cuda {

class LibraryChoices {
public:
  // Those of the context.
  [[nodiscard]] static Result<std::shared_ptr<LibraryChoices>> of(Context& context);
  explicit LibraryChoices(const Context& context);
  // From now on they are kept in this cache, those of the libraries that have been used already, too. Nothing happens
  // where it is null.
  void keep_in(const std::shared_ptr<Cache>& cache);
  // `library`: with its version.
  [[nodiscard]] std::shared_ptr<KeptChoices> of_library(const std::string& library);
  // Writes what has not been written yet.
  void flush();

private:
  [[nodiscard]] std::vector<std::shared_ptr<KeptChoices>> all() const;
  const std::string driver_, device_;
  mutable std::mutex mutex_; // of what follows; not held while a file is read or written
  std::shared_ptr<Cache> cache_;
  std::map<std::string, std::shared_ptr<KeptChoices>> libraries_;
};

} // namespace tessera::cuda
