// The parts that variants of a file share. Equal contents are written once: machine code, contracts, weights. Private
// to runtime.
#pragma once
#include "base/hash.h"
#include "base/json_text.h"
#include "runtime/plan_bytes.h"
#include <cstddef>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::file {

using Bytes = std::span<const std::byte>;

// Byte sequences by index. They are views: what they show outlives this, except for what take() was given.
class DistinctBytes {
public:
  // The index of these contents, new or known.
  size_t add(Bytes bytes);
  size_t take(std::string bytes);
  [[nodiscard]] const std::vector<Bytes>& all() const { return all_; }

private:
  std::vector<Bytes> all_;
  std::unordered_multimap<uint64_t, size_t> by_hash_; // of samples; equal hashes are compared
  std::deque<std::string> owned_;
};

struct FileParts {
  BytesPlaceFn place; // of bytes that the file refers to; null: it has all of them itself
  DistinctBytes objects;
  DistinctBytes sections; // weights and bodies
  JsonText contracts = JsonText::array();
  // The index of a contract in `contracts`.
  size_t contract(const JsonText& contract);

private:
  std::map<std::string, size_t> contract_at_; // by text
};

} // namespace tessera::file
