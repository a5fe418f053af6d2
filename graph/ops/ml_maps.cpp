// Maps, which only the host holds: a list of two vectors, keys and values.
#include "graph/ops/ml.h"
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <unordered_map>

namespace tessera {

namespace {
using namespace ops;
using Container = ItemType::Container;

Status check_map(const InferContext& c) {
  const auto& items = c.type(0).items;
  if (items != nullptr && items->container == Container::Map) return {};
  return c.error(ErrorCode::TypeMismatch, "'" + std::string(c.node.op->name) + "' takes a map, not " + c.type(0).str());
}

// Keys and values of a map that a call gives.
struct Entries {
  Tensor keys, values;
};
Result<Entries> entries_of(const ReferenceContext& c) {
  const auto& items = c.operands[0].items();
  if (items.size() == 2 && items[0].dims().size() == 1 && items[0].dims() == items[1].dims())
    return Entries{items[0], items[1]};
  return c.error(ErrorCode::BadInput, "a map is a list of keys [n] and values [n]");
}

// The order of a map's keys: positions in `keys`, keys ascending.
std::vector<size_t> ascending(const Tensor& keys) {
  std::vector<size_t> order(static_cast<size_t>(keys.count()));
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
    if (keys.dtype() == DType::String) return keys.string_values()[i] < keys.string_values()[j];
    return keys.get_i64(static_cast<int64_t>(i)) < keys.get_i64(static_cast<int64_t>(j));
  });
  return order;
}

// ---- ZipMap
struct Keys {
  Tensor all;                  // distinct ones in ascending order, [n]
  std::vector<int64_t> column; // of each: the last one of equal labels
  int64_t columns = 0;
};
Result<Keys> keys_of(const Node& n) {
  const Ints numbers = n.attributes.ints("classlabels_int64s");
  const auto texts = ml_strings(n, "classlabels_strings");
  if (numbers.empty() == texts.empty())
    return Diagnostic(ErrorCode::BadAttribute, n.location,
                      "keys are given in 'classlabels_int64s' or in 'classlabels_strings': one of the two is expected");
  Keys out;
  out.columns = static_cast<int64_t>(std::max(numbers.size(), texts.size()));
  auto distinct = [&](const auto& labels) {
    std::map<std::decay_t<decltype(labels[0])>, int64_t> last;
    for (size_t i = 0; i < labels.size(); ++i) last[labels[i]] = static_cast<int64_t>(i);
    std::decay_t<decltype(labels)> kept;
    for (const auto& [label, column] : last) kept.push_back(label), out.column.push_back(column);
    return kept;
  };
  if (texts.empty()) {
    const Ints kept = distinct(numbers);
    out.all = Tensor::of<int64_t>(DType::I64, {static_cast<int64_t>(kept.size())}, kept);
  } else {
    std::vector<std::string> kept = distinct(texts);
    const auto count = static_cast<int64_t>(kept.size());
    out.all = Tensor::strings({count}, std::move(kept));
  }
  return out;
}

OpDef zip_map() {
  OpDef def;
  def.name = "ai.onnx.ml.ZipMap";
  def.summary = "a sequence of maps: of each row, from labels to its elements";
  def.onnx = {{"ZipMap", "ai.onnx.ml"}};
  def.operands = {{"X", TypeSet::Float}};
  def.attributes = {{"classlabels_int64s", AttrKind::Ints}, {"classlabels_strings", AttrKind::Strings}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_ASSIGN(const Keys keys, keys_of(c.node));
    const SymShape shape = c.shape(0);
    if (shape.empty() || shape.size() > 2)
      return c.error(ErrorCode::ShapeMismatch, "takes rows [F] or [N, F], not " + str(shape));
    TESSERA_TRY(c.env().require_equal(shape.back(), keys.columns, "the labels of ZipMap", c.node.location));
    auto map = std::make_shared<ItemType>();
    map->container = Container::Map;
    map->dtype = c.type(0).dtype;
    map->keys = keys.all.dtype();
    map->shape.emplace(); // values are scalars
    auto item = std::make_shared<ItemType>();
    item->dtype = DType::List;
    item->shape = Dims{2};
    item->items = std::move(map);
    c.results[0] = {DType::List, {shape.size() == 1 ? SymExpr(1) : shape[0]}, std::move(item)};
    return {};
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(const Keys keys, keys_of(c.node));
    const Tensor& x = c.operands[0];
    const int64_t rows = x.dims().size() == 1 ? 1 : x.dims()[0];
    if (x.dims().back() != keys.columns)
      return c.error(ErrorCode::BadInput,
                     std::to_string(x.dims().back()) + " columns and " + std::to_string(keys.columns) + " labels");
    std::vector<Tensor> maps;
    for (int64_t r = 0; r < rows; ++r) {
      TESSERA_ASSIGN(Tensor values, take(x, keys.all.dims(), [&](int64_t k) {
                       return r * keys.columns + keys.column[static_cast<size_t>(k)];
                     }));
      maps.push_back(Tensor::list({keys.all, std::move(values)}));
    }
    c.results = {Tensor::list(std::move(maps))};
    return {};
  };
  const Attributes two = {{"classlabels_int64s", Ints{7, 3}}};
  def.samples = [two] {
    return std::vector<Sample>{
        sample({random(DType::F32, {3, 2}, 1)}, two), sample({random(DType::F32, {2}, 1)}, two),
        sample({random(DType::F32, {0, 2}, 1)}, two),
        sample({random(DType::F32, {2, 3}, 1)}, {{"classlabels_strings", std::vector<std::string>{"a", "b", "a"}}})};
  };
  def.error_samples = [two] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {3, 2})}, {}, ErrorCode::BadAttribute, "one of the two"),
        wrong({random(DType::F32, {3, 3})}, two, ErrorCode::ShapeMismatch, "labels of ZipMap"),
        wrong({random(DType::F32, {1, 3, 2})}, two, ErrorCode::ShapeMismatch, "[N, F]")};
  };
  return def;
}

// A map of the keys and values that samples give.
Tensor map_of(Tensor keys, Tensor values) { return Tensor::list({std::move(keys), std::move(values)}); }

// ---- DictVectorizer
OpDef dict_vectorizer() {
  OpDef def;
  def.name = "ai.onnx.ml.DictVectorizer";
  def.summary = "the values of the vocabulary's keys in a map, 0 or an empty string where it has none";
  def.onnx = {{"DictVectorizer", "ai.onnx.ml"}};
  def.operands = {{"X", TypeSet::Any}};
  def.attributes = {{"int64_vocabulary", AttrKind::Ints}, {"string_vocabulary", AttrKind::Strings}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_TRY(check_map(c));
    const Ints numbers = c.node.attributes.ints("int64_vocabulary");
    const auto texts = ml_strings(c.node, "string_vocabulary");
    if (numbers.empty() == texts.empty())
      return c.error(ErrorCode::BadAttribute,
                     "keys are given in 'int64_vocabulary' or in 'string_vocabulary': one of the two is expected");
    const ItemType& items = *c.type(0).items;
    if ((items.keys == DType::String) == texts.empty())
      return c.error(ErrorCode::TypeMismatch, "the vocabulary has other keys than " + c.type(0).str());
    return set_result(c, items.dtype, {1, static_cast<int64_t>(std::max(numbers.size(), texts.size()))});
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(const Entries map, entries_of(c));
    std::vector<int64_t> from;
    auto find = [&](const auto& vocabulary, const auto& key) {
      std::unordered_map<std::decay_t<decltype(vocabulary[0])>, int64_t> at;
      for (int64_t i = 0; i < map.keys.count(); ++i) at[key(i)] = i;
      for (const auto& word : vocabulary) {
        const auto it = at.find(word);
        from.push_back(it == at.end() ? -1 : it->second);
      }
    };
    const auto texts = ml_strings(c.node, "string_vocabulary");
    if (texts.empty() != (map.keys.dtype() != DType::String) || map.values.dtype() != c.result_types[0].dtype)
      return c.error(ErrorCode::BadInput, "a map from " + std::string(name(map.keys.dtype())) + " to " +
                                              std::string(name(map.values.dtype())) + " is given");
    if (texts.empty())
      find(c.node.attributes.ints("int64_vocabulary"), [&](int64_t i) { return map.keys.get_i64(i); });
    else
      find(texts, [&](int64_t i) { return map.keys.string_values()[static_cast<size_t>(i)]; });
    TESSERA_ASSIGN(Tensor y, take(map.values, {1, static_cast<int64_t>(from.size())},
                                  [&](int64_t i) { return from[static_cast<size_t>(i)]; }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    Tensor words = Tensor::strings({2}, {"b", "a"});
    return std::vector<Sample>{
        sample({map_of(words, floats({2}, {1, 2}))}, {{"string_vocabulary", std::vector<std::string>{"a", "c", "b"}}}),
        sample({map_of(vec({5, 9}), Tensor::strings({2}, {"x", "y"}))}, {{"int64_vocabulary", Ints{9, 1}}})};
  };
  def.error_samples = [] {
    Tensor map = map_of(vec({5, 9}), floats({2}, {1, 2}));
    return std::vector<ErrorSample>{
        wrong({map}, {}, ErrorCode::BadAttribute, "one of the two"),
        wrong({map}, {{"string_vocabulary", std::vector<std::string>{"a"}}}, ErrorCode::TypeMismatch, "other keys"),
        wrong({vec({1})}, {{"int64_vocabulary", Ints{1}}}, ErrorCode::TypeMismatch, "takes a map")};
  };
  return def;
}

// ---- CastMap
Result<DType> cast_target(const Node& n) {
  const std::string to = n.attributes.s("cast_to"), form = n.attributes.s("map_form");
  auto wrong = [&](const std::string& what) { return Diagnostic(ErrorCode::BadAttribute, n.location, what); };
  if (form != "DENSE" && form != "SPARSE") return wrong("map_form '" + form + "' is neither DENSE nor SPARSE");
  if (form == "SPARSE" && (n.attributes.i("max_map") < 0 || n.attributes.i("max_map") > int64_t{1} << 40))
    return wrong("max_map is " + std::to_string(n.attributes.i("max_map")));
  if (to == "TO_FLOAT") return DType::F32;
  if (to == "TO_INT64") return DType::I64;
  if (to == "TO_STRING") return DType::String;
  return wrong("cast_to '" + to + "' is none of TO_FLOAT, TO_INT64 and TO_STRING");
}

OpDef cast_map() {
  OpDef def;
  def.name = "ai.onnx.ml.CastMap";
  def.summary = "the values of a map in the order of its keys, or at the positions that its keys are";
  def.onnx = {{"CastMap", "ai.onnx.ml"}};
  def.operands = {{"X", TypeSet::Any}};
  def.attributes = {ml_text("cast_to", "TO_FLOAT"), ml_text("map_form", "DENSE"), integer("max_map", 1)};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_TRY(check_map(c));
    TESSERA_ASSIGN(const DType to, cast_target(c.node));
    const ItemType& items = *c.type(0).items;
    if (items.keys != DType::I64 || (items.dtype != DType::String && !is_float(items.dtype)))
      return c.error(ErrorCode::TypeMismatch, "takes a map from i64 to floats or strings, not " + c.type(0).str());
    const bool dense = c.node.attributes.s("map_form") == "DENSE";
    return set_result(c, to, {1, dense ? c.env().create_symbol("entries") : SymExpr(c.node.attributes.i("max_map"))});
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(const Entries map, entries_of(c));
    TESSERA_ASSIGN(const DType to, cast_target(c.node));
    if (map.keys.dtype() != DType::I64) return c.error(ErrorCode::BadInput, "the keys of a map that is cast are i64");
    const bool sparse = c.node.attributes.s("map_form") == "SPARSE";
    std::vector<int64_t> from; // of each element, -1 for none
    if (sparse) {
      const int64_t n = c.node.attributes.i("max_map");
      from.assign(static_cast<size_t>(n), -1);
      for (int64_t i = 0; i < map.keys.count(); ++i) {
        const int64_t key = map.keys.get_i64(i);
        if (key < 0) return c.error(ErrorCode::BadInput, "key " + std::to_string(key) + " is no position");
        if (key < n) from[static_cast<size_t>(key)] = i;
      }
    } else {
      for (size_t i : ascending(map.keys)) from.push_back(static_cast<int64_t>(i));
    }
    const Dims dims = {1, static_cast<int64_t>(from.size())};
    const bool texts = map.values.dtype() == DType::String;
    if (to == DType::String) {
      std::vector<std::string> out;
      for (int64_t i : from)
        out.push_back(i < 0   ? "0.f" // what ONNX Runtime fills with
                      : texts ? map.values.string_values()[static_cast<size_t>(i)]
                              : std::to_string(map.values.get_f64(i)));
      c.results = {Tensor::strings(dims, std::move(out))};
      return {};
    }
    TESSERA_ASSIGN(Tensor y, Tensor::create(to, dims, true));
    for (size_t k = 0; k < from.size(); ++k) {
      if (from[k] < 0) continue;
      double v = 0;
      if (texts) {
        const std::string& s = map.values.string_values()[static_cast<size_t>(from[k])];
        const auto read = std::from_chars(s.data(), s.data() + s.size(), v);
        if (read.ec != std::errc() || read.ptr != s.data() + s.size())
          return c.error(ErrorCode::BadInput, "'" + s + "' is no number");
      } else {
        v = map.values.get_f64(from[k]);
      }
      if (to == DType::I64)
        y.set_i64(static_cast<int64_t>(k), f64_to_i64(v));
      else
        y.set_f64(static_cast<int64_t>(k), v);
    }
    c.results = {y};
    return {};
  };
  def.data_dependent_shape = true;
  def.samples = [] {
    Tensor reals = map_of(vec({4, 1}), floats({2}, {1.5, -2}));
    Tensor texts = map_of(vec({0, 2}), Tensor::strings({2}, {"7", "-3"}));
    std::vector<Sample> out;
    for (const char* to : {"TO_FLOAT", "TO_INT64", "TO_STRING"})
      for (const Tensor& map : {reals, texts})
        for (const char* form : {"DENSE", "SPARSE"})
          out.push_back(
              sample({map}, {{"cast_to", std::string(to)}, {"map_form", std::string(form)}, {"max_map", int64_t{3}}}));
    return out;
  };
  def.error_samples = [] {
    Tensor map = map_of(vec({-1, 1}), floats({2}, {1, 2}));
    return std::vector<ErrorSample>{
        wrong({map}, {{"cast_to", std::string("TO_BOOL")}}, ErrorCode::BadAttribute, "TO_BOOL"),
        wrong({map}, {{"map_form", std::string("SPARSE")}}, ErrorCode::BadInput, "key -1"),
        wrong({map_of(vec({1}), Tensor::strings({1}, {"x"}))}, {}, ErrorCode::BadInput, "no number")};
  };
  return def;
}

} // namespace

void register_ml_map_ops(OpTable& table) {
  for (OpDef (*make)() : {zip_map, dict_vectorizer, cast_map}) table.add(make());
}

} // namespace tessera
