#include "runtime/cuda/dynamic_library.h"
#include "base/environment.h"
#include "base/log.h"
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <glob.h>
#include <link.h>
#include <sstream>
#include <string_view>

namespace tessera::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPathVariable = "TESSERA_CUDA_PATH";
#if defined(__aarch64__)
constexpr const char* kTargetFolder = "targets/sbsa-linux/lib";
#else
constexpr const char* kTargetFolder = "targets/x86_64-linux/lib";
#endif

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::vector<std::string> split(const char* list) {
  std::vector<std::string> parts;
  for (std::string_view rest = list ? list : ""; !rest.empty();) {
    auto colon = rest.find(':');
    if (auto part = rest.substr(0, colon); !part.empty()) parts.emplace_back(part);
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  }
  return parts;
}

// Paths that match, in the order of names with numbers compared as numbers (python3.9 before python3.11).
std::vector<std::string> matching(const std::string& pattern) {
  std::vector<std::string> paths;
  ::glob_t found{};
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::sort(paths.begin(), paths.end(),
            [](const std::string& a, const std::string& b) { return ::strverscmp(a.c_str(), b.c_str()) < 0; });
  return paths;
}

// A path in which glob() must see no pattern.
std::string literal(const std::string& path) {
  std::string escaped;
  for (char c : path) {
    if (std::strchr("*?[\\", c)) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

class Folders {
public:
  void add(const std::string& path) {
    if (is_folder(path) && std::find(paths_.begin(), paths_.end(), path) == paths_.end()) paths_.push_back(path);
  }
  void add_all(const std::string& pattern) {
    auto found = matching(pattern);
    for (auto p = found.rbegin(); p != found.rend(); ++p) add(*p); // newest first
  }
  std::vector<std::string> take() { return std::move(paths_); }
  [[nodiscard]] const std::vector<std::string>& paths() const { return paths_; }

private:
  std::vector<std::string> paths_;
};

// The folders of installed Pythons: a link is followed, too, since a virtual environment may use packages of its base.
std::vector<std::string> python_prefixes() {
  Folders prefixes;
  auto program = [&](const std::string& path) {
    prefixes.add(fs::path(path).parent_path().parent_path().string());
    std::error_code error;
    if (auto real = fs::canonical(path, error); !error) prefixes.add(real.parent_path().parent_path().string());
  };
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* value = std::getenv(variable); value && *value) prefixes.add(value);
  std::error_code error;
  if (auto self = fs::read_symlink("/proc/self/exe", error); !error) program(self.string());
  for (const auto& folder : split(std::getenv("PATH")))
    if (auto python = folder + "/python3"; fs::exists(python, error)) program(python);
  return prefixes.take();
}

void add_named(Folders& folders) {
  for (const auto& root : split(environment(kPathVariable))) {
    for (const char* part : {"", "/lib64", "/lib"}) folders.add(root + part);
    folders.add(root + "/" + kTargetFolder);
    folders.add_all(literal(root) + "/*/lib");
  }
}

void add_installed(Folders& folders, const std::vector<std::string>& packages) {
  folders.add("/usr/local/cuda/lib64");
  folders.add_all("/usr/local/cuda-*/lib64");
  for (const auto& prefix : python_prefixes())
    for (const char* kind : {"site-packages", "dist-packages"})
      for (const auto& package : packages)
        folders.add_all(literal(prefix) + "/lib/python3*/" + kind + "/nvidia/" + package + "/lib");
}

std::string resolved(void* handle, const std::string& requested) {
  ::link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name) return map->l_name;
  return requested;
}

constexpr const char* kWithoutVariable = "TESSERA_CUDA_WITHOUT";

bool is_left_out(const std::string& what) {
  const char* text = environment(kWithoutVariable);
  std::stringstream names(text ? text : "");
  auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  for (std::string name; std::getline(names, name, ',');)
    if (std::equal(name.begin(), name.end(), what.begin(), what.end(), same)) return true;
  return false;
}

std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (const auto& i : items) text += (text.empty() ? "" : ", ") + i;
  return text.empty() ? "none" : text;
}

} // namespace

std::vector<std::string> library_folders(const std::vector<std::string>& packages) {
  Folders folders;
  add_named(folders);
  add_installed(folders, packages);
  return folders.take();
}

std::vector<std::string> toolkit_folders() {
  Folders folders;
  for (const auto& root : split(environment(kPathVariable))) folders.add(root);
  folders.add("/usr/local/cuda");
  folders.add_all("/usr/local/cuda-*");
  return folders.take();
}

Result<std::shared_ptr<const DynamicLibrary>> DynamicLibrary::open(const LibraryRequest& request) {
  // NODELETE: these libraries start threads and register exit handlers.
  if (is_left_out(request.what)) {
    Diagnostic d(ErrorCode::UnsupportedFeature, request.what + " is left out: " + kWithoutVariable + " names it");
    if (!request.brings.empty()) d.note("without it: " + request.brings);
    return d;
  }
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  std::vector<std::string> failures; // files that are there and would not load
  std::shared_ptr<const DynamicLibrary> opened;
  auto attempt = [&](const std::string& file) {
    void* handle = ::dlopen(file.c_str(), kFlags);
    if (!handle) {
      const char* text = ::dlerror();
      std::string why = text ? text : "no reason was given";
      // A plain name that the loader cannot find is no failure worth telling.
      if (file.find('/') != std::string::npos || why.find("cannot open shared object file") == std::string::npos ||
          why.compare(0, file.size(), file) != 0)
        failures.push_back(why);
      return false;
    }
    opened.reset(new DynamicLibrary(request.what, resolved(handle, file), handle));
    return true;
  };
  auto in_folders = [&](const std::vector<std::string>& folders) {
    std::error_code ignored;
    for (const auto& folder : folders)
      for (const auto& name : request.names)
        if (auto file = folder + "/" + name; fs::exists(file, ignored) && attempt(file)) return true;
    return false;
  };
  Folders named, installed;
  add_named(named);
  bool found = in_folders(named.paths());
  for (size_t i = 0; i < request.names.size() && !found; ++i) found = attempt(request.names[i]);
  if (!found) {
    add_installed(installed, request.packages);
    found = in_folders(installed.paths());
  }
  if (opened) {
    TESSERA_LOGF(LogChannel::Perf, request.what + " is " + opened->path());
    return opened;
  }
  Diagnostic d(ErrorCode::UnsupportedFeature,
               request.what + (failures.empty() ? " was not found" : " was found but cannot be loaded"));
  if (!request.brings.empty()) d.note("without it: " + request.brings);
  for (const auto& f : failures) d.note(f);
  const char* variable = environment(kPathVariable);
  d.note("looked for " + listed(request.names));
  d.note(std::string(kPathVariable) + " " +
         (variable && *variable ? "'" + std::string(variable) + "': " + listed(named.paths()) : "is not set"));
  d.note("the loader's path (LD_LIBRARY_PATH and the system's), libraries already loaded");
  d.note("folders of toolkits and of pip's packages: " + listed(installed.paths()));
  if (!request.remedy.empty()) d.note(request.remedy);
  return d;
}

void* DynamicLibrary::find(const std::string& name) const { return ::dlsym(handle_, name.c_str()); }

Result<void*> DynamicLibrary::symbol(const std::string& name) const {
  ::dlerror();
  if (void* address = find(name)) return address;
  const char* text = ::dlerror();
  return Diagnostic(ErrorCode::UnsupportedFeature, what_ + " has no function '" + name + "'")
      .note(text ? text : "'" + path_ + "' defines it as null")
      .note("the library that was found is '" + path_ + "'; another version is needed");
}

} // namespace tessera::cuda
