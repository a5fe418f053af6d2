// Paths that stay good.
#pragma once
#include <filesystem>
#include <string>

namespace tessera {

// From the root, so that it leads to the same file after chdir(); as it is where the working folder is not known.
[[nodiscard]] inline std::string absolute_path(const std::string& path) {
  std::error_code failure;
  const std::filesystem::path absolute = std::filesystem::absolute(path, failure);
  return failure ? path : absolute.string();
}

} // namespace tessera
