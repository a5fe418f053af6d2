// Strings, which only the host holds: joining, splitting, cleaning, matching, counting n-grams.
#include "graph/ops/parts.h"
#include <algorithm>
#include <clocale>
#include <cwctype>
#include <locale.h>
#include <map>
#include <re2/re2.h>
#include <set>

namespace tessera {

namespace {
using namespace ops;

Status need_strings(const InferContext& c, int operand) {
  if (c.type(operand).dtype == DType::String) return {};
  return c.error(ErrorCode::TypeMismatch, "'" + std::string(c.node.op->name) + "' takes strings, not " +
                                              std::string(name(c.type(operand).dtype)));
}

Tensor texts(Dims dims, std::vector<std::string> values) { return Tensor::strings(std::move(dims), std::move(values)); }

// Two tensors of strings, element by element.
InferFn infer_pairs(DType result) {
  return [result](InferContext& c) -> Status {
    TESSERA_TRY(need_strings(c, 0));
    TESSERA_TRY(need_strings(c, 1));
    TESSERA_ASSIGN(SymShape shape, c.env().broadcast(c.shape(0), c.shape(1), c.node.location));
    return set_result(c, result, std::move(shape));
  };
}
template <class Each>
Result<Dims> for_pairs(const ReferenceContext& c, const Each& each) {
  const Tensor &x = c.operands[0], &y = c.operands[1];
  const Tensor* all[] = {&x, &y};
  TESSERA_ASSIGN(Dims dims, broadcast_dims(all));
  const Dims sx = broadcast_strides(x.dims(), dims), sy = broadcast_strides(y.dims(), dims);
  for (MultiIndex w(dims); !w.done(); w.next())
    each(x.string_values()[static_cast<size_t>(offset(w.at(), sx))],
         y.string_values()[static_cast<size_t>(offset(w.at(), sy))]);
  return dims;
}
OpDef of_pairs(std::string_view name, std::string_view summary, DType result, ReferenceFn reference) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.operands = {{"X", TypeSet::Any}, {"Y", TypeSet::Any}};
  def.infer = infer_pairs(result);
  def.meaning = StructuredOp{};
  def.reference = std::move(reference);
  def.samples = [] {
    return std::vector<Sample>{sample({texts({2}, {"a", "b"}), texts({}, {"b"})}, {}, 20),
                               sample({texts({2, 1}, {"x", ""}), texts({3}, {"x", "y", "z"})}, {}, 20)};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({texts({1}, {"a"}), vec({1})}, {}, ErrorCode::TypeMismatch, "strings")};
  };
  return def;
}

// ---- StringConcat
OpDef string_concat() {
  OpDef def =
      of_pairs("string_concat", "strings joined, element by element", DType::String, [](ReferenceContext& c) -> Status {
        std::vector<std::string> out;
        TESSERA_ASSIGN(Dims dims,
                       for_pairs(c, [&](const std::string& x, const std::string& y) { out.push_back(x + y); }));
        c.results = {texts(dims, std::move(out))};
        return {};
      });
  def.onnx = {{"StringConcat"}};
  return def;
}

// ---- Equal: of numbers, and of strings
OpDef string_equal() {
  return of_pairs(
      "string_equal", "whether strings are equal, element by element", DType::Bool, [](ReferenceContext& c) -> Status {
        std::vector<int64_t> out;
        TESSERA_ASSIGN(Dims dims,
                       for_pairs(c, [&](const std::string& x, const std::string& y) { out.push_back(x == y); }));
        TESSERA_ASSIGN(Tensor equal, from_i64(DType::Bool, dims, out));
        c.results = {equal};
        return {};
      });
}

OpDef equal() {
  OpDef def = composite("Equal", "a == b, of numbers or strings", {{"A", TypeSet::Any}, {"B", TypeSet::SameAsFirst}},
                        [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          const bool strings = b.dtype(b.in(0)) == DType::String;
                          return b.done(b.op2(strings ? "string_equal" : "eq", b.in(0), b.in(1)));
                        });
  def.samples = [] {
    return std::vector<Sample>{sample({vec({1, 2}), vec({1, 3})}, {}, 19),
                               sample({texts({2}, {"a", "b"}), texts({1}, {"b"})}, {}, 19)};
  };
  return def;
}

// ---- Where: of numbers, and of strings
OpDef string_where() {
  OpDef def;
  def.name = "string_where";
  def.summary = "strings of X where the condition holds, of Y elsewhere";
  def.operands = {{"condition", TypeSet::Bool}, {"X", TypeSet::Any}, {"Y", TypeSet::Any}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_TRY(need_strings(c, 1));
    TESSERA_TRY(need_strings(c, 2));
    return infer_broadcast_as(DType::String)(c);
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor &p = c.operands[0], &x = c.operands[1], &y = c.operands[2];
    const Tensor* all[] = {&p, &x, &y};
    TESSERA_ASSIGN(Dims dims, broadcast_dims(all));
    const Dims sp = broadcast_strides(p.dims(), dims), sx = broadcast_strides(x.dims(), dims),
               sy = broadcast_strides(y.dims(), dims);
    std::vector<std::string> out;
    for (MultiIndex w(dims); !w.done(); w.next()) {
      const bool first = p.get_i64(offset(w.at(), sp)) != 0;
      out.push_back((first ? x : y).string_values()[static_cast<size_t>(offset(w.at(), first ? sx : sy))]);
    }
    c.results = {texts(dims, std::move(out))};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{
        sample({integers(DType::Bool, {2, 1}, {1, 0}), texts({3}, {"a", "b", "c"}), texts({}, {"z"})}, {}, 16)};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({integers(DType::Bool, {1}, {1}), texts({1}, {"a"}), vec({1})}, {}, ErrorCode::TypeMismatch, "strings")};
  };
  return def;
}

OpDef where() {
  OpDef def = composite("Where", "X where the condition holds, Y elsewhere, of numbers or strings",
                        {{"condition", TypeSet::Bool}, {"X", TypeSet::Any}, {"Y", TypeSet::Any}},
                        [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          const bool strings = b.dtype(b.in(1)) == DType::String;
                          return b.done(b.op(strings ? "string_where" : "select", {b.in(0), b.in(1), b.in(2)}));
                        });
  def.samples = [] {
    Tensor flags = integers(DType::Bool, {2}, {1, 0});
    return std::vector<Sample>{sample({flags, vec({1, 2}), vec({3})}, {}, 16),
                               sample({flags, texts({2}, {"a", "b"}), texts({1}, {"c"})}, {}, 16)};
  };
  return def;
}

// ---- StringSplit
// Parts between delimiters, or between runs of white space where there is none; `most`: splits at most, none below 0.
std::vector<std::string> split(const std::string& text, const std::string& delimiter, int64_t most) {
  std::vector<std::string> out;
  const char* space = " \t\n\v\f\r";
  size_t at = 0;
  if (!delimiter.empty()) {
    if (text.empty()) return out;
    for (; most < 0 || static_cast<int64_t>(out.size()) < most;) {
      size_t end = text.find(delimiter, at);
      if (end == std::string::npos) break;
      out.push_back(text.substr(at, end - at));
      at = end + delimiter.size();
    }
    out.push_back(text.substr(at));
    return out;
  }
  while ((at = text.find_first_not_of(space, at)) != std::string::npos) {
    if (most >= 0 && static_cast<int64_t>(out.size()) == most) {
      out.push_back(text.substr(at, text.find_last_not_of(space) + 1 - at));
      break;
    }
    size_t end = std::min(text.find_first_of(space, at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

OpDef string_split() {
  OpDef def;
  def.name = "string_split";
  def.summary = "parts of each string along a new last dimension, filled up with empty ones; how many there are";
  def.onnx = {{"StringSplit"}};
  def.operands = {{"X", TypeSet::Any}};
  def.attributes = {{"delimiter", AttrKind::String, false, std::string()}, {"maxsplit", AttrKind::Int}};
  def.max_results = 2;
  def.infer = [](InferContext& c) -> Status {
    TESSERA_TRY(need_strings(c, 0));
    SymShape shape = c.shape(0);
    shape.push_back(c.env().create_symbol("parts"));
    TESSERA_TRY(set_result(c, DType::String, std::move(shape)));
    return c.result_count > 1 ? set_result(c, DType::I64, c.shape(0), 1) : Status();
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    std::vector<std::vector<std::string>> parts;
    std::vector<int64_t> counts;
    size_t most = 0;
    for (const std::string& text : x.string_values()) {
      parts.push_back(split(text, c.node.attributes.s("delimiter"), c.node.attributes.i("maxsplit", -1)));
      counts.push_back(static_cast<int64_t>(parts.back().size()));
      most = std::max(most, parts.back().size());
    }
    std::vector<std::string> out;
    for (auto& p : parts) {
      p.resize(most);
      std::move(p.begin(), p.end(), std::back_inserter(out));
    }
    Dims dims = x.dims();
    dims.push_back(static_cast<int64_t>(most));
    TESSERA_ASSIGN(Tensor numbers, from_i64(DType::I64, x.dims(), counts));
    c.results = {texts(dims, std::move(out)), numbers};
    return {};
  };
  def.data_dependent_shape = true;
  def.samples = [] {
    std::vector<Sample> out = {sample({texts({2}, {"abc.com", "a.b.c"})}, {{"delimiter", std::string(".")}}, 20),
                               sample({texts({2, 1}, {"  a b  c ", ""})}, {}, 20),
                               sample({texts({1}, {"a b c d"})}, {{"maxsplit", int64_t{2}}}, 20)};
    for (Sample& s : out) s.result_count = 2;
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({vec({1})}, {}, ErrorCode::TypeMismatch, "strings")};
  };
  return def;
}

// ---- StringNormalizer
// Letters of UTF-8 text changed as the C.UTF-8 locale does; bytes that are no UTF-8 stay.
std::string change_case(const std::string& text, bool upper) {
  static const locale_t kLocale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t n = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
    uint32_t code = n == 1 ? lead : n == 2 ? lead & 0x1f : n == 3 ? lead & 0x0f : lead & 0x07;
    bool valid = n > 0 && i + n <= text.size();
    for (size_t k = 1; valid && k < n; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      valid = next >> 6 == 2;
      code = code << 6 | (next & 0x3f);
    }
    if (!valid) {
      out += text[i++];
      continue;
    }
    i += n;
    const auto wide = static_cast<wint_t>(code);
    code = static_cast<uint32_t>(kLocale == nullptr ? (upper ? towupper(wide) : towlower(wide))
                                 : upper            ? towupper_l(wide, kLocale)
                                                    : towlower_l(wide, kLocale));
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xc0 | code >> 6);
      out += static_cast<char>(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      out += static_cast<char>(0xe0 | code >> 12);
      out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
      out += static_cast<char>(0x80 | (code & 0x3f));
    } else {
      out += static_cast<char>(0xf0 | code >> 18);
      out += static_cast<char>(0x80 | (code >> 12 & 0x3f));
      out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
      out += static_cast<char>(0x80 | (code & 0x3f));
    }
  }
  return out;
}

OpDef string_normalizer() {
  OpDef def;
  def.name = "string_normalizer";
  def.summary = "strings without stop words, in lower or upper case; one empty string where none is left";
  def.onnx = {{"StringNormalizer"}};
  def.operands = {{"X", TypeSet::Any}};
  def.attributes = {{"case_change_action", AttrKind::String, false, std::string("NONE")},
                    {"is_case_sensitive", AttrKind::Int, false, int64_t{0}},
                    {"locale", AttrKind::String},
                    {"stopwords", AttrKind::Strings}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_TRY(need_strings(c, 0));
    const std::string& action = c.node.attributes.s("case_change_action");
    if (action != "NONE" && action != "LOWER" && action != "UPPER")
      return c.error(ErrorCode::BadAttribute, "case_change_action is none of NONE, LOWER and UPPER: '" + action + "'");
    SymShape shape = c.shape(0);
    if (shape.empty() || shape.size() > 2)
      return c.error(ErrorCode::ShapeMismatch, "StringNormalizer takes [C] or [1, C], not " + str(shape));
    if (shape.size() == 2) TESSERA_TRY(c.env().require_equal(shape[0], 1, "rows of StringNormalizer", c.node.location));
    if (c.node.attributes.has("stopwords")) shape.back() = c.env().create_symbol("words");
    return set_result(c, DType::String, std::move(shape));
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    const std::string& action = c.node.attributes.s("case_change_action");
    const bool exact = c.node.attributes.i("is_case_sensitive") != 0;
    std::set<std::string> stop;
    if (const auto* words = c.node.attributes.get<std::vector<std::string>>("stopwords"))
      for (const std::string& w : *words) stop.insert(exact ? w : change_case(w, false));
    std::vector<std::string> out;
    for (const std::string& text : x.string_values()) {
      if (stop.contains(exact ? text : change_case(text, false))) continue;
      out.push_back(action == "NONE" ? text : change_case(text, action == "UPPER"));
    }
    if (out.empty() && c.node.attributes.has("stopwords")) out.emplace_back();
    Dims dims = x.dims();
    dims.back() = static_cast<int64_t>(out.size());
    c.results = {texts(dims, std::move(out))};
    return {};
  };
  def.data_dependent_shape = true;
  def.samples = [] {
    Tensor days = texts({4}, {"monday", "Tuesday", "M\u00dcNCHEN", "monday"});
    const std::vector<std::string> stop = {"monday"};
    return std::vector<Sample>{
        sample({days}, {{"case_change_action", std::string("LOWER")}}, 10),
        sample({days}, {{"stopwords", stop}, {"is_case_sensitive", int64_t{1}}}, 10),
        sample({texts({1, 1}, {"Monday"})}, {{"stopwords", stop}, {"case_change_action", std::string("UPPER")}}, 10)};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({texts({1}, {"a"})}, {{"case_change_action", std::string("TITLE")}},
                                          ErrorCode::BadAttribute, "TITLE", 10),
                                    wrong({texts({}, {"a"})}, {}, ErrorCode::ShapeMismatch, "[C]", 10)};
  };
  return def;
}

// ---- RegexFullMatch
OpDef regex_full_match() {
  OpDef def;
  def.name = "regex_full_match";
  def.summary = "whether a regular expression (RE2's syntax) matches the whole of each string";
  def.onnx = {{"RegexFullMatch"}};
  def.operands = {{"X", TypeSet::Any}};
  def.attributes = {{"pattern", AttrKind::String, true}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_TRY(need_strings(c, 0));
    const re2::RE2 pattern(c.node.attributes.s("pattern"), re2::RE2::Quiet);
    if (!pattern.ok())
      return c.error(ErrorCode::BadAttribute,
                     "'" + c.node.attributes.s("pattern") + "' is no regular expression: " + pattern.error());
    return set_result(c, DType::Bool, c.shape(0));
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    const re2::RE2 pattern(c.node.attributes.s("pattern"), re2::RE2::Quiet);
    if (!pattern.ok()) return c.error(ErrorCode::BadAttribute, pattern.error());
    TESSERA_ASSIGN(Tensor y, Tensor::create(DType::Bool, c.operands[0].dims()));
    for (int64_t i = 0; i < y.count(); ++i)
      y.set_i64(i, re2::RE2::FullMatch(c.operands[0].string_values()[static_cast<size_t>(i)], pattern) ? 1 : 0);
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{
        sample({texts({3}, {"www.a.com", "a.com", ""})}, {{"pattern", std::string(R"(www\.[\w.]+\bcom\b)")}}, 20)};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({texts({1}, {"a"})}, {{"pattern", std::string("(")}}, ErrorCode::BadAttribute, "regular expression", 20)};
  };
  return def;
}

// ---- TfIdfVectorizer
struct Ngrams {
  std::vector<std::map<std::vector<int64_t>, size_t>> by_length; // words as numbers; where in ngram_indexes
  std::map<std::string, int64_t> words;
};

Result<Ngrams> read_ngrams(const Node& n, const Location& where) {
  Ngrams out;
  const auto* strings = n.attributes.get<std::vector<std::string>>("pool_strings");
  Ints pool = n.attributes.ints("pool_int64s");
  if (strings)
    for (const std::string& s : *strings)
      pool.push_back(out.words.emplace(s, static_cast<int64_t>(out.words.size())).first->second);
  const Ints starts = n.attributes.ints("ngram_counts");
  size_t index = 0;
  out.by_length.resize(starts.size());
  for (size_t length = 1; length <= starts.size(); ++length) {
    const int64_t begin = starts[length - 1],
                  end = length < starts.size() ? starts[length] : static_cast<int64_t>(pool.size());
    if (begin < 0 || end < begin || end > static_cast<int64_t>(pool.size()) ||
        (end - begin) % static_cast<int64_t>(length) != 0)
      return Diagnostic(ErrorCode::BadAttribute, where,
                        "ngram_counts do not cut the pool of " + std::to_string(pool.size()) + " into n-grams");
    for (int64_t i = begin; i < end; i += static_cast<int64_t>(length))
      out.by_length[length - 1].emplace(
          std::vector<int64_t>(pool.begin() + i, pool.begin() + i + static_cast<int64_t>(length)), index++);
  }
  if (index != n.attributes.ints("ngram_indexes").size())
    return Diagnostic(ErrorCode::BadAttribute, where,
                      "the pool has " + std::to_string(index) + " n-grams, and there are " +
                          std::to_string(n.attributes.ints("ngram_indexes").size()) + " indexes");
  return out;
}

Status infer_tf_idf(InferContext& c) {
  const std::string& mode = c.node.attributes.s("mode");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF")
    return c.error(ErrorCode::BadAttribute, "mode is none of TF, IDF and TFIDF: '" + mode + "'");
  if (c.type(0).rank() < 1 || c.type(0).rank() > 2)
    return c.error(ErrorCode::ShapeMismatch, "TfIdfVectorizer takes [C] or [N, C], not " + str(c.shape(0)));
  TESSERA_ASSIGN(Ngrams ngrams, read_ngrams(c.node, c.node.location));
  const bool strings = c.node.attributes.has("pool_strings");
  if (strings != (c.type(0).dtype == DType::String))
    return c.error(ErrorCode::TypeMismatch, "the pool is of other words than " + c.type(0).str());
  const Ints indexes = c.node.attributes.ints("ngram_indexes");
  const auto* weights = c.node.attributes.get<std::vector<double>>("weights");
  if (weights && weights->size() != indexes.size())
    return c.error(ErrorCode::BadAttribute,
                   std::to_string(weights->size()) + " weights for " + std::to_string(indexes.size()) + " n-grams");
  int64_t width = 0;
  for (int64_t i : indexes) {
    if (i < 0 || i >= int64_t{1} << 31)
      return c.error(ErrorCode::BadAttribute, "an n-gram's index is " + std::to_string(i));
    width = std::max(width, i + 1);
  }
  SymShape shape = c.shape(0);
  shape.back() = width;
  return set_result(c, DType::F32, std::move(shape));
}

Status reference_tf_idf(ReferenceContext& c) {
  const Tensor& x = c.operands[0];
  TESSERA_ASSIGN(Ngrams ngrams, read_ngrams(c.node, c.node.location));
  const Attributes& a = c.node.attributes;
  const Ints indexes = a.ints("ngram_indexes");
  const auto* weights = a.get<std::vector<double>>("weights");
  const std::string& mode = a.s("mode");
  const int64_t shortest = std::max<int64_t>(a.i("min_gram_length"), 1),
                longest = std::min<int64_t>(a.i("max_gram_length"), static_cast<int64_t>(ngrams.by_length.size()));
  int64_t width = 0;
  for (int64_t i : indexes) width = std::max(width, i + 1);
  Dims dims = x.dims();
  const int64_t words = dims.back(), rows = dims.size() == 2 ? dims[0] : 1;
  dims.back() = width;
  TESSERA_ASSIGN(Tensor y, Tensor::create(DType::F32, dims, true));
  std::vector<int64_t> row(static_cast<size_t>(words)), gram;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < words; ++i) {
      if (x.dtype() != DType::String) {
        row[static_cast<size_t>(i)] = x.get_i64(r * words + i);
        continue;
      }
      auto found = ngrams.words.find(x.string_values()[static_cast<size_t>(r * words + i)]);
      row[static_cast<size_t>(i)] = found == ngrams.words.end() ? -1 : found->second;
    }
    std::vector<double> count(indexes.size(), 0);
    for (int64_t length = shortest; length <= longest; ++length)
      for (int64_t step = 1; step <= (length == 1 ? 1 : a.i("max_skip_count") + 1); ++step)
        for (int64_t start = 0; start + (length - 1) * step < words; ++start) {
          gram.clear();
          for (int64_t k = 0; k < length; ++k) gram.push_back(row[static_cast<size_t>(start + k * step)]);
          const auto& known = ngrams.by_length[static_cast<size_t>(length - 1)];
          if (auto at = known.find(gram); at != known.end()) ++count[at->second];
        }
    for (size_t g = 0; g < count.size(); ++g) {
      const double weight = weights ? (*weights)[g] : 1;
      const double value = mode == "TF" ? count[g] : mode == "IDF" ? (count[g] > 0 ? weight : 0) : count[g] * weight;
      if (count[g] > 0) y.set_f64(r * width + indexes[g], value);
    }
  }
  c.results = {y};
  return {};
}

OpDef tf_idf() {
  OpDef def;
  def.name = "tf_idf";
  def.summary = "how often n-grams of a pool stand in each row of words, weighted";
  def.onnx = {{"TfIdfVectorizer"}};
  def.operands = {{"X", TypeSet::Any}};
  def.attributes = {{"mode", AttrKind::String, true},
                    {"min_gram_length", AttrKind::Int, true},
                    {"max_gram_length", AttrKind::Int, true},
                    {"max_skip_count", AttrKind::Int, true},
                    {"ngram_counts", AttrKind::Ints, true},
                    {"ngram_indexes", AttrKind::Ints, true},
                    {"pool_int64s", AttrKind::Ints},
                    {"pool_strings", AttrKind::Strings},
                    {"weights", AttrKind::Floats}};
  def.infer = infer_tf_idf;
  def.meaning = StructuredOp{};
  def.reference = reference_tf_idf;
  Attributes two = {{"mode", std::string("TF")},      {"min_gram_length", int64_t{1}}, {"max_gram_length", int64_t{2}},
                    {"max_skip_count", int64_t{1}},   {"ngram_counts", Ints{0, 2}},    {"ngram_indexes", Ints{0, 1, 2}},
                    {"pool_int64s", Ints{2, 3, 5, 4}}};
  def.samples = [two] {
    Attributes words = two;
    words.erase("pool_int64s");
    words.set("pool_strings", std::vector<std::string>{"a", "b", "c", "d"});
    words.set("mode", std::string("TFIDF"));
    words.set("weights", std::vector<double>{2, 3, 0.5});
    return std::vector<Sample>{sample({vec({2, 5, 4, 2, 3, 4})}, two, 9),
                               sample({texts({2, 3}, {"a", "c", "d", "c", "b", "d"})}, words, 9)};
  };
  def.error_samples = [two] {
    Attributes bad = two;
    bad.set("ngram_counts", Ints{0, 3});
    return std::vector<ErrorSample>{wrong({vec({1})}, bad, ErrorCode::BadAttribute, "do not cut", 9)};
  };
  return def;
}

} // namespace

void register_string_ops(OpTable& table) {
  for (OpDef (*make)() : {string_concat, string_equal, equal, string_where, where, string_split, string_normalizer,
                          regex_full_match, tf_idf})
    table.add(make());
}

} // namespace tessera
