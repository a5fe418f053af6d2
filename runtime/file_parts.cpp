#include "runtime/file_parts.h"
#include "runtime/file_format.h"

namespace tessera::file {

size_t DistinctBytes::add(Bytes bytes) {
  const uint64_t hash = sample_hash(bytes.data(), bytes.size()).lo;
  for (auto [it, end] = by_hash_.equal_range(hash); it != end; ++it) {
    const Bytes known = all_[it->second];
    if (known.size() == bytes.size() &&
        (bytes.empty() || known.data() == bytes.data() || std::memcmp(known.data(), bytes.data(), bytes.size()) == 0))
      return it->second;
  }
  by_hash_.emplace(hash, all_.size());
  all_.push_back(bytes);
  return all_.size() - 1;
}

size_t DistinctBytes::take(std::string bytes) {
  const std::string& kept = owned_.emplace_back(std::move(bytes));
  return add(std::as_bytes(std::span(kept)));
}

size_t FileParts::contract(const JsonText& contract) {
  const auto [at, fresh] = contract_at_.try_emplace(contract.str(), contract_at_.size());
  if (fresh) contracts.push_back(contract);
  return at->second;
}

} // namespace tessera::file
