// Reading a compiled file: what its variants share (load.cpp), and the plan of each (load_plan.cpp). Private to runtime.
#pragma once
#include "base/json_reader.h"
#include "runtime/executor.h"
#include "runtime/file_format.h"
#include "runtime/plan_bytes.h"
#include <map>

namespace tessera::file {

// Thrown by readers, as Corrupt is, and caught where the file was opened.
struct Failed {
  Diagnostic error;
};

using Symbols = std::map<std::string, SymExpr, std::less<>>;
[[nodiscard]] SymExpr read_expr(const JsonValue& j, const Symbols& symbols);

// An index into `count` things; `least` is -1 where there may be none.
template <class Int>
[[nodiscard]] Int read_index(const JsonValue& j, size_t count, int64_t least = 0) {
  return static_cast<Int>(j.integer<int64_t>(least, static_cast<int64_t>(std::min<size_t>(count, INT32_MAX)) - 1));
}

// A launch over parameters of its own.
struct Contract {
  LaunchSpec launch; // `object` counts the objects of the file
  std::vector<SymExpr> parameters;
};

// A file whose hash is right.
struct OpenedFile {
  const std::string& path;
  Storage bytes;
  int depth; // of bodies in bodies
  std::string target = {};
  std::vector<Contract> contracts = {};
  std::vector<std::pair<size_t, size_t>> objects = {}, sections = {}; // offset, bytes
  const ModelParts* parts = nullptr;          // where weights lie that are not in it; null: in files
  std::map<std::string, Storage> mapped = {}; // these, by name

  [[nodiscard]] const char* chars(size_t at) const { return reinterpret_cast<const char*>(bytes.data) + at; }
};

struct UnlinkedExecutable {
  std::string label;
  int conditions = 0;
  std::shared_ptr<Executable> executable;
};
// Functions are not linked. Both throw Corrupt and Failed.
[[nodiscard]] std::vector<UnlinkedExecutable> read_file(const std::string& path, Storage bytes, const ModelParts* parts,
                                                        int depth = 0);
[[nodiscard]] std::shared_ptr<Executable> read_plan(OpenedFile& file, const JsonValue& plan);

} // namespace tessera::file
