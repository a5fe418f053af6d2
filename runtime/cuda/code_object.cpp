#include "runtime/cuda/code_object.h"
#include "base/hash.h"
#include <cstring>

namespace tessera::cuda {
namespace {

struct Header {
  char magic[8];
  uint32_t version;
  int32_t threads;
  uint64_t bytes; // after this header
  Hash128 content;
  int64_t shared_bytes;
  int32_t registers, spill_bytes, stack_bytes;
  uint32_t sizes[7];         // of the parts, in the order of encode()
  uint32_t dependent_launch; // 0 or 1
  int32_t cluster, reserved;
};
constexpr char kMagic[8] = {'T', 'S', 'R', 'C', 'U', 'D', 'A', '1'};
constexpr uint32_t kVersion = 4;

} // namespace

std::vector<char> encode(const CodeObject& o) {
  const auto maps = flatten(o.tensor_maps);
  const std::span<const char> map_bytes(reinterpret_cast<const char*>(maps.data()), maps.size() * sizeof(int64_t));
  const std::span<const char> parts[7] = {o.symbol, o.ptx_arch, o.ptx, o.cubin_arch, o.cubin, o.assembler, map_bytes};
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kVersion;
  h.threads = o.threads;
  h.shared_bytes = o.shared_bytes;
  h.registers = o.registers;
  h.spill_bytes = o.spill_bytes;
  h.stack_bytes = o.stack_bytes;
  h.dependent_launch = o.dependent_launch ? 1 : 0;
  h.cluster = o.cluster;
  std::vector<char> out(sizeof h);
  for (size_t i = 0; i < std::size(parts); ++i) {
    h.sizes[i] = static_cast<uint32_t>(parts[i].size());
    out.insert(out.end(), parts[i].begin(), parts[i].end());
  }
  h.bytes = out.size() - sizeof h;
  std::memcpy(out.data(), &h, sizeof h); // the checksum is over the header too, with itself as zero
  h.content = hash128(out.data(), out.size());
  std::memcpy(out.data(), &h, sizeof h);
  return out;
}

Result<CodeObject> decode(std::span<const char> bytes) {
  auto damaged = [](const std::string& why) {
    return Diagnostic(ErrorCode::CorruptFile, "the code of a GPU kernel is damaged: " + why);
  };
  Header h{};
  if (bytes.size() < sizeof h) return damaged("it is shorter than its header");
  std::memcpy(&h, bytes.data(), sizeof h);
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0) return damaged("it does not begin as one");
  if (h.version != kVersion)
    return Diagnostic(ErrorCode::CorruptFile, "the code of a GPU kernel has format version " +
                                                  std::to_string(h.version) + ", this program reads version " +
                                                  std::to_string(kVersion));
  uint64_t total = 0;
  for (uint32_t size : h.sizes) total += size;
  if (h.bytes != bytes.size() - sizeof h || total != h.bytes) return damaged("its length is not what it says");
  std::vector<char> copy(bytes.begin(), bytes.end());
  Header without = h;
  without.content = {};
  std::memcpy(copy.data(), &without, sizeof without);
  if (hash128(copy.data(), copy.size()) != h.content) return damaged("its checksum does not agree");
  CodeObject o;
  size_t at = sizeof h;
  auto take = [&](size_t part, auto& into) {
    auto from = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    into.assign(from, from + h.sizes[part]);
    at += h.sizes[part];
  };
  take(0, o.symbol);
  take(1, o.ptx_arch);
  take(2, o.ptx);
  take(3, o.cubin_arch);
  take(4, o.cubin);
  take(5, o.assembler);
  std::vector<int64_t> numbers(h.sizes[6] / sizeof(int64_t));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data() + at, numbers.size() * sizeof(int64_t));
  auto maps = unflatten(numbers);
  if (!maps || h.sizes[6] % sizeof(int64_t) != 0) return damaged("its tensor maps are none");
  o.tensor_maps = std::move(*maps);
  o.threads = h.threads;
  o.shared_bytes = h.shared_bytes;
  o.registers = h.registers;
  o.spill_bytes = h.spill_bytes;
  o.stack_bytes = h.stack_bytes;
  o.dependent_launch = h.dependent_launch != 0;
  o.cluster = h.cluster;
  return o;
}

} // namespace tessera::cuda
