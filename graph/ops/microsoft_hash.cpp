// MurmurHash3 of com.microsoft, on the host: the hash of each string, or of the bytes of each number (Appleby's
// MurmurHash3_x86_32).
#include "graph/ops/microsoft.h"
#include <bit>

namespace tessera {

namespace {
using namespace ops;

uint32_t murmur(std::span<const uint8_t> bytes, uint32_t seed) {
  auto mixed = [](uint32_t k) { return std::rotl(k * 0xcc9e2d51U, 15) * 0x1b873593U; };
  auto word = [&](size_t at, size_t n) {
    uint32_t k = 0;
    for (size_t i = 0; i < n; ++i) k |= static_cast<uint32_t>(bytes[at + i]) << (8 * i);
    return k;
  };
  uint32_t h = seed;
  size_t at = 0;
  for (; at + 4 <= bytes.size(); at += 4) h = std::rotl(h ^ mixed(word(at, 4)), 13) * 5 + 0xe6546b64U;
  if (at < bytes.size()) h ^= mixed(word(at, bytes.size() - at));
  h ^= static_cast<uint32_t>(bytes.size());
  h = (h ^ h >> 16) * 0x85ebca6bU;
  h = (h ^ h >> 13) * 0xc2b2ae35U;
  return h ^ h >> 16;
}

} // namespace

void register_microsoft_hash_ops(OpTable& table) {
  OpDef def;
  def.name = "murmur_hash";
  def.summary = "hash of each string or number, 32 bits";
  def.onnx = {{"MurmurHash3", "com.microsoft"}};
  def.operands = {{"X", TypeSet::Any}};
  def.attributes = {integer("positive", 1), integer("seed", 0)};
  def.infer = [](InferContext& c) -> Status {
    const DType d = c.type(0).dtype;
    if (d != DType::String && (!(is_integer(d) || is_float(d)) || info(d).bits < 32))
      return c.error(ErrorCode::TypeMismatch, "takes strings or numbers of 32 or 64 bits, not " + std::string(name(d)));
    return set_result(c, c.node.attributes.i("positive") != 0 ? DType::U32 : DType::I32, c.shape(0));
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    const auto seed = static_cast<uint32_t>(c.node.attributes.i("seed"));
    TESSERA_ASSIGN(Tensor y, Tensor::create(c.result_types[0].dtype, x.dims()));
    const auto out = y.mutable_as<uint32_t>();
    const size_t each = x.dtype() == DType::String ? 0 : static_cast<size_t>(info(x.dtype()).bits) / 8;
    for (size_t i = 0; i < out.size(); ++i) {
      const auto* data = reinterpret_cast<const uint8_t*>(x.data());
      std::span<const uint8_t> bytes;
      if (each > 0)
        bytes = {data + i * each, each};
      else if (const std::string& s = x.string_values()[i]; !s.empty())
        bytes = {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
      out[i] = murmur(bytes, seed);
    }
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({Tensor::strings({4}, {"", "a", "four", "tessera"})}, {{"seed", int64_t{42}}}),
                               sample({vec({1, -2, 3})}),
                               sample({floats({2, 2}, {1, 2, 3, 4})}, {{"positive", int64_t{0}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F16, {2})}, {}, ErrorCode::TypeMismatch, "32 or 64 bits")};
  };
  table.add(std::move(def));
}

} // namespace tessera
