// Paths that stay good.
#pragma once
#include <cstdlib>
#include <memory>
#include <string>
#include <unistd.h>

namespace tessera {

// From the root, so that it leads to the same file after chdir(); as it is where the working folder is not known.
[[nodiscard]] inline std::string absolute_path(const std::string& path) {
  if (path.starts_with('/')) return path;
  const std::unique_ptr<char, decltype(&std::free)> folder(::getcwd(nullptr, 0), &std::free);
  return folder && *folder == '/' ? std::string(folder.get()) + "/" + path : path;
}

} // namespace tessera
