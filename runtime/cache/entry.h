// An entry of the cache: one file that describes and checks itself.
//
//   header    magic with the format's number, kind, key, time of creation, lengths, checksum (72 bytes, of this
//             machine's byte order)
//   texts     creator ("tessera-host-14 llvm-19.1.7"), device ("sm_90a"), name (what it is of, for people)
//   payload   the bytes that were stored
//
// The checksum (XXH3, 128 bits) is over all of it but itself. It finds damage; whom the cache trusts is decided by
// owners and modes (private_folder.h). The name of a file is a hash of kind and key; its ending belongs to the format, so
// that versions of Tessera that share a folder do not read each other's entries.
#pragma once
#include "base/hash.h"
#include "base/result.h"
#include <span>

namespace tessera {

enum class EntryKind : uint32_t {
  Kernel = 1,  // machine code of the host, or PTX with what an assembler made of it
  Choice = 2,  // what a library chose for a problem (choices.h)
  Records = 3, // the text of tuned.json; in archives only
  Plan = 4,    // what a model was compiled to (api/compiler/plan_cache.h)
  Digest = 5   // of a model's file (api/compiler/model_content.h)
};
// "kernel"; empty for a number that is no kind.
[[nodiscard]] std::string_view name(EntryKind kind);

// The origin of an entry, which it holds next to key and payload.
struct EntryOrigin {
  std::string creator; // program or library that made it, with its version
  std::string device;  // that it is for; empty: any
  std::string name;    // of what it is, for people
};

struct Entry {
  EntryKind kind = EntryKind::Kernel;
  Hash128 key;
  int64_t created = 0; // seconds since 1970
  EntryOrigin origin;
  std::string_view payload;

  [[nodiscard]] std::string file_name() const; // in the folder of entries
};

[[nodiscard]] std::string entry_file_name(EntryKind kind, const Hash128& key);
// The kind of a file in the folder of entries, by its name.
enum class EntryFile : uint8_t {
  Entry,       // of this format
  OtherFormat, // of another version of Tessera
  Temporary,   // not renamed yet; old ones were left by a process that ended
  Unknown
};
[[nodiscard]] EntryFile entry_file(std::string_view file_name);
// The file's bytes in front of the payload, and their number.
[[nodiscard]] size_t entry_head_bytes(const EntryOrigin& origin);
[[nodiscard]] std::string encode_entry_head(const Entry& entry);
// The entry that these bytes are; its payload is a view of them. Errors: CorruptFile that says what is wrong.
[[nodiscard]] Result<Entry> decode_entry(std::string_view file);

} // namespace tessera
