// Operators of com.microsoft on texts, on the host: hashes of strings, or of the bytes of numbers (Appleby's
// MurmurHash3_x86_32), and tokens.
#include "graph/ops/microsoft.h"
#include <algorithm>
#include <bit>
#include <re2/re2.h>

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

OpDef murmur_hash() {
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
  return def;
}

// ---- Tokenizer
// Characters of UTF-8 text: bytes that begin one.
bool begins(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }
int64_t characters(std::string_view text) { return std::count_if(text.begin(), text.end(), begins); }

struct Tokens {
  std::vector<std::unique_ptr<re2::RE2>> separators;
  std::unique_ptr<re2::RE2> token;
  bool each = false; // each character is a token
  int64_t least = 1; // characters of a token

  // The tokens of a text: the matches of the token's expression, or the parts between separators, each of which divides
  // the parts that the one before it left.
  [[nodiscard]] std::vector<std::string> of(const std::string& text) const {
    if (each) {
      std::vector<std::string> out;
      for (char c : text) {
        if (begins(c) || out.empty()) out.emplace_back();
        out.back() += c;
      }
      return out;
    }
    std::vector<std::string> parts;
    if (token) {
      matches(*token, text, [&](size_t begin, size_t end) { add(parts, text, begin, end); });
      return parts;
    }
    parts = {text};
    for (const auto& separator : separators) {
      std::vector<std::string> next;
      for (const std::string& part : parts) {
        size_t from = 0;
        matches(*separator, part, [&](size_t begin, size_t end) {
          add(next, part, from, begin);
          from = end;
        });
        add(next, part, from, part.size());
      }
      parts = std::move(next);
    }
    return parts;
  }

private:
  template <class Each>
  static void matches(const re2::RE2& expression, const std::string& text, const Each& each) {
    re2::StringPiece match;
    for (size_t at = 0; at < text.size();) {
      if (!expression.Match(text, at, text.size(), re2::RE2::UNANCHORED, &match, 1)) return;
      const auto begin = static_cast<size_t>(match.data() - text.data());
      if (!match.empty()) each(begin, begin + match.size());
      at = begin + std::max<size_t>(match.size(), 1);
    }
  }
  void add(std::vector<std::string>& out, const std::string& text, size_t begin, size_t end) const {
    if (end <= begin) return;
    std::string part = text.substr(begin, end - begin);
    if (characters(part) >= least) out.push_back(std::move(part));
  }
};

Result<Tokens> tokens_of(const Node& n) {
  auto wrong = [&](const std::string& what) { return Diagnostic(ErrorCode::BadAttribute, n.location, what); };
  auto compiled = [&](const std::string& text, std::unique_ptr<re2::RE2>& to) -> Status {
    to = std::make_unique<re2::RE2>(text, re2::RE2::Quiet);
    return to->ok() ? Status() : Status(wrong("'" + text + "' is no regular expression: " + to->error()));
  };
  Tokens out;
  const auto* separators = n.attributes.get<std::vector<std::string>>("separators");
  const bool splits = separators != nullptr && !separators->empty();
  out.least = n.attributes.i("mincharnum");
  if (out.least < 1) return wrong("mincharnum is " + std::to_string(out.least) + "; at least 1 is expected");
  out.each = splits && separators->size() == 1 && separators->front().empty();
  if (!splits && !n.attributes.has("tokenexp")) return wrong("neither separators nor tokenexp are given");
  if (!splits) {
    TESSERA_TRY(compiled(n.attributes.s("tokenexp"), out.token));
    return out;
  }
  if (!out.each)
    for (const std::string& s : *separators) TESSERA_TRY(compiled(s, out.separators.emplace_back()));
  return out;
}

Status tokenize(ReferenceContext& c) {
  TESSERA_ASSIGN(const Tokens tokens, tokens_of(c.node));
  const Tensor& x = c.operands[0];
  const bool mark = c.node.attributes.i("mark") != 0;
  std::vector<std::vector<std::string>> rows;
  size_t most = 0;
  for (const std::string& text : x.string_values()) most = std::max(most, rows.emplace_back(tokens.of(text)).size());
  if (most > 0 && mark) most += 2;
  std::vector<std::string> out;
  for (auto& row : rows) {
    if (mark && most > 0) {
      row.insert(row.begin(), "\x02");
      row.emplace_back("\x03");
    }
    row.resize(most, c.node.attributes.s("pad_value"));
    std::move(row.begin(), row.end(), std::back_inserter(out));
  }
  Dims dims = x.dims();
  dims.push_back(static_cast<int64_t>(most));
  c.results = {Tensor::strings(std::move(dims), std::move(out))};
  return {};
}

OpDef tokenizer() {
  OpDef def;
  def.name = "tokenizer";
  def.summary = "tokens of each string along a new last dimension, filled up with a value";
  def.onnx = {{"Tokenizer", "com.microsoft"}};
  def.operands = {{"X", TypeSet::Any}};
  def.attributes = {{"mark", AttrKind::Int, true},
                    {"mincharnum", AttrKind::Int, true},
                    {"pad_value", AttrKind::String, true},
                    {"separators", AttrKind::Strings},
                    {"tokenexp", AttrKind::String}};
  def.infer = [](InferContext& c) -> Status {
    if (c.type(0).dtype != DType::String)
      return c.error(ErrorCode::TypeMismatch, "takes strings, not " + std::string(name(c.type(0).dtype)));
    TESSERA_TRY(tokens_of(c.node));
    SymShape shape = c.shape(0);
    shape.push_back(c.env().create_symbol("tokens"));
    return set_result(c, DType::String, std::move(shape));
  };
  def.meaning = StructuredOp{};
  def.reference = tokenize;
  def.data_dependent_shape = true;
  const Attributes words = {{"mark", int64_t{0}},
                            {"mincharnum", int64_t{1}},
                            {"pad_value", std::string("#")},
                            {"tokenexp", std::string("[a-z]+")}};
  def.samples = [words] {
    Attributes split = words;
    split.erase("tokenexp");
    split.set("separators", std::vector<std::string>{" ", ","});
    split.set("mincharnum", int64_t{2});
    Attributes each = split;
    each.set("separators", std::vector<std::string>{""});
    each.set("mark", int64_t{1});
    Tensor x = Tensor::strings({2, 2}, {"abc  de f", "  x,yy", "", "h\u00e9llo"});
    return std::vector<Sample>{sample({x}, words), sample({x}, split), sample({x}, each),
                               sample({Tensor::strings({1}, {""})}, each)};
  };
  def.error_samples = [words] {
    Tensor x = Tensor::strings({1}, {"a"});
    auto with = [&](std::string_view attribute, Attribute value) {
      Attributes a = words;
      a.set(attribute, std::move(value));
      return a;
    };
    return std::vector<ErrorSample>{
        wrong({x}, with("tokenexp", std::string("(")), ErrorCode::BadAttribute, "regular expression"),
        wrong({x}, with("mincharnum", int64_t{0}), ErrorCode::BadAttribute, "mincharnum"),
        wrong({vec({1})}, words, ErrorCode::TypeMismatch, "takes strings")};
  };
  return def;
}

} // namespace

void register_microsoft_text_ops(OpTable& table) {
  table.add(murmur_hash());
  table.add(tokenizer());
}

} // namespace tessera
