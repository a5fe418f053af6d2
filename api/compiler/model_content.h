// The content of a model: a digest of all of its bytes, and its parts, which plans refer to.
//
// A model is a file, with those that hold its weights, or a program in memory. Its parts are these files, by their paths
// from the model's folder (the model itself: ""), or the program's weights by name.
//
// Large files are not read again: the cache has their digests by path, inode, size and times of the last change. A system
// sets these times at each change, and nobody can set both; a digest is kept once the last change is older than the
// coarsest clock of a file system.
#pragma once
#include "base/hash.h"
#include "frontend/model.h"
#include "runtime/cache/cache.h"
#include "runtime/plan_bytes.h"
#include "runtime/run.h"
#include <ctime>

namespace tessera {

// Any thread may call its functions: variants of a model that come from the cache share its maps.
class ModelContent {
public:
  struct WeightFile {
    std::string name; // from the model's folder
    int64_t bytes = 0;
    Hash128 hash;
  };

  // Maps and digests a model file, without the files of its weights, or a program. `pool`: threads that help; null:
  // none. Errors: FileError.
  [[nodiscard]] static Result<std::shared_ptr<ModelContent>> of_file(const std::string& path, Cache& cache,
                                                                     ThreadPool* pool);
  [[nodiscard]] static Result<std::shared_ptr<ModelContent>> of_program(std::shared_ptr<const ProgramSource> program,
                                                                        ThreadPool* pool);

  [[nodiscard]] const Hash128& hash() const { return hash_; }
  // Maps and digests a file of weights, unless it has it as it is now. Errors: FileError.
  [[nodiscard]] Result<WeightFile> add(const std::string& name, Cache& cache, ThreadPool* pool);
  // Whether everything is still as it was digested, and was so at each moment since. False, too, where files were written
  // so shortly before that this is unknown.
  [[nodiscard]] bool unchanged(ThreadPool* pool) const;

  [[nodiscard]] ModelParts parts() const;
  // Finds memory that an import made in a part: the import maps the same files, of which `copied` are copies, and does
  // not copy a program's weights.
  [[nodiscard]] BytesPlaceFn places(std::span<const CopiedWeight> copied) const;

private:
  struct Stamp { // of a file: one that was changed or replaced has another
    uint64_t device = 0, inode = 0;
    int64_t bytes = 0;
    timespec modified{}, changed{};
    [[nodiscard]] bool operator==(const Stamp& other) const;
  };
  struct File {
    std::string path;
    Stamp stamp;
    Hash128 hash;
  };
  [[nodiscard]] bool is_as_it_was(const File& file) const;
  [[nodiscard]] static std::optional<Stamp> stamp_of(const std::string& path);
  [[nodiscard]] static Hash128 digest(const ProgramSource& program, ThreadPool* pool);
  [[nodiscard]] Result<Hash128> add_file(const std::string& name, const std::string& path, Cache& cache,
                                         ThreadPool* pool);

  std::string folder_; // of the model's file, with a slash at the end
  Hash128 hash_;
  timespec began_{};
  mutable std::mutex mutex_;          // of what follows
  std::map<std::string, File> files_; // by part
  ModelParts parts_;
  std::shared_ptr<const ProgramSource> program_; // or null
};

} // namespace tessera
