// The results of tuning on disk: for a nest on a device at sizes, which schedule was fastest.
//
// One JSON file, TunedRecords::file(), of records sorted by what they are for; people may read and edit it. A record
// says that a schedule won, or that the default schedule did, so that nothing is tuned twice. It counts where device,
// driver and compiler are those of the compile; a pinned one counts whatever driver and compiler are, and measuring
// does not replace it. Several processes may write: each one locks FILE.lock, reads the file again, adds what it has,
// and renames a new file into its place, so that readers see an old or a new file. A file that is damaged or of another
// format, or that is not trusted (runtime/cache/private_folder.h), is reported, ignored, and replaced by the next
// write; in a folder that is not trusted nothing is read or written.
#pragma once
#include "base/file.h"
#include "codegen/schedule/tuned.h"
#include <mutex>

namespace tessera {

// The device and the programs that a record was measured on and by.
struct TunedTarget {
  std::string device;   // "NVIDIA H200 sm_90", "Intel(R) Xeon(R) ... avx512, 8 threads"
  std::string driver;   // "13.0"; empty: any (compiling for a GPU that is not here)
  std::string compiler; // version of schedules, emitter and LLVM
};

struct TunedRecord {
  Hash128 kernel;                   // nest_key()
  std::string name;                 // a kernel of that kind, for people
  TunedTarget on;                   // all given
  std::vector<ExtentRange> extents; // by axis
  std::vector<int64_t> measured_at; // extents
  std::optional<Schedule> schedule; // nothing: the default choice is best
  double default_us = 0, tuned_us = 0;
  int candidates = 0; // that were measured
  bool pinned = false;
  int64_t time = 0; // seconds since 1970; of two records for the same the later one stays

  [[nodiscard]] bool is_default() const { return !schedule; }
  // Whether both are for the same nest, device, driver and sizes.
  [[nodiscard]] bool same_place(const TunedRecord& other) const;
  [[nodiscard]] bool counts_for(const TunedTarget& target) const;
};

// Reads and writes of the text. Errors: CorruptFile, with what is wrong and where.
[[nodiscard]] std::string print_records(std::span<const TunedRecord> records);
[[nodiscard]] Result<std::vector<TunedRecord>> parse_records(std::string_view text, const std::string& file);

class TunedRecords final : public TunedSchedules {
public:
  // tuned.json in `directory`; empty: where the cache lies (runtime/cache/cache.h). Reads what is there.
  TunedRecords(const std::string& directory, TunedTarget target);

  [[nodiscard]] std::vector<TunedSchedule> find(const Hash128& nest) const override;
  // Whether there is nothing to measure for this nest at these extents.
  [[nodiscard]] std::optional<TunedRecord> at(const Hash128& nest, std::span<const int64_t> extents) const;
  // Reads the file again where it has changed.
  void refresh();
  // Merges `records` into the file, and the file's into this. A later record replaces one for the same, unless that is
  // pinned; a pinned one replaces always. Errors: FileError; the records count here all the same.
  [[nodiscard]] Status add(std::span<const TunedRecord> records);
  // Changes all records of the file at once: `change` gets them and leaves those that shall stay.
  [[nodiscard]] Status update(const std::function<void(std::vector<TunedRecord>&)>& change);

  // Held while schedules are timed: processes that tune with one cache folder compile side by side, but measure one
  // after another. No descriptor where there is no folder.
  [[nodiscard]] Result<FileDescriptor> measuring() const;

  [[nodiscard]] std::vector<TunedRecord> all() const;
  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] const TunedTarget& target() const { return target_; }
  [[nodiscard]] std::vector<std::string> warnings() const; // what was wrong with the file

private:
  struct Stamp { // of a file: another one has another
    uint64_t inode = 0;
    int64_t bytes = -1, seconds = 0, nanoseconds = 0;
    bool operator==(const Stamp&) const = default;
  };
  [[nodiscard]] std::vector<TunedRecord> read() const;
  [[nodiscard]] Stamp stamp() const;

  void warn(std::string text) const;

  std::string folder_, file_; // empty: there is none
  TunedTarget target_;
  mutable std::mutex mutex_;                     // of what follows
  std::vector<TunedRecord> records_, unwritten_; // unwritten_: what no write has succeeded with yet
  Stamp read_;                                   // of the file that records_ shows
  mutable std::vector<std::string> warnings_;
};

// The text that a record's schedule carries as TunedSchedule::measured, where it was taken.
[[nodiscard]] std::string measured_text(const TunedRecord& record);

// `more` into `records` by the rules of TunedRecords::add; sorted.
void merge_records(std::vector<TunedRecord>& records, std::span<const TunedRecord> more);

} // namespace tessera
