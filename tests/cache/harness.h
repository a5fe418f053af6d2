// Helpers for the tests of the cache.
#pragma once
#include "base/temporary_folder.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/eviction.h"
#include "runtime/cache/survey.h"
#include "tests/cache/age.h"
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera::cache_test {

namespace fs = std::filesystem;

class Folder {
public:
  Folder() : folder_(TemporaryFolder::create("tessera-cache-test").value()) {}
  [[nodiscard]] const std::string& path() const { return folder_.path(); }

private:
  TemporaryFolder folder_;
};

// Entries and temporary files, sorted.
inline std::vector<fs::path> files(const std::string& folder) {
  std::vector<fs::path> out;
  if (fs::exists(folder + "/objects"))
    for (const auto& e : fs::recursive_directory_iterator(folder + "/objects"))
      if (!e.is_directory()) out.push_back(e.path());
  std::sort(out.begin(), out.end());
  return out;
}
inline int64_t bytes(const std::string& folder) {
  int64_t sum = 0;
  for (const auto& file : files(folder)) sum += static_cast<int64_t>(fs::file_size(file));
  return sum;
}
inline std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

inline std::string content(uint64_t key, size_t bytes = 3000) {
  return std::string(bytes + key * 17 % 100, static_cast<char>('a' + key % 26));
}
inline void store(Cache& cache, uint64_t key, size_t bytes = 3000, EntryKind kind = EntryKind::Kernel) {
  cache.store(kind, {key, 7}, {"maker 1", "device", "entry " + std::to_string(key)}, content(key, bytes));
}
inline bool has(Cache& cache, uint64_t key, size_t bytes = 3000, EntryKind kind = EntryKind::Kernel) {
  auto found = cache.find(kind, {key, 7});
  const std::string wanted = content(key, bytes);
  return found && std::string(found->begin(), found->end()) == wanted;
}
inline std::vector<std::string> problems(const std::string& folder, bool repair = false) {
  std::vector<std::string> out;
  auto status = survey_cache(folder, repair, [&](const SurveyedFile& f) -> Status {
    if (!f.problem.empty()) out.push_back(f.path + " " + f.problem);
    return {};
  });
  EXPECT_TRUE(status.ok()) << status.error().str();
  return out;
}

// A variable of the environment, until the scope ends; null: without it.
class Variable {
public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* v = std::getenv(name)) before_ = v;
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

private:
  void set(const char* value) const { value ? ::setenv(name_, value, 1) : ::unsetenv(name_); }
  const char* name_;
  std::optional<std::string> before_;
};

// In a process of its own, because what it needs cannot be undone. The cache alone: no threads after fork. Returns the
// child's exit status, the number of the check that failed.
template <class Body>
int in_child(const Body& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = -1;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

} // namespace tessera::cache_test
