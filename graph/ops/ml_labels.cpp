// Encoders of labels: LabelEncoder and CategoryMapper. Keys that are numbers are found by a binary search in generated
// code, keys that are strings by a table on the host; either yields a position, and values are gathered there.
#include "graph/ops/ml.h"
#include <bit>
#include <cmath>
#include <numeric>
#include <unordered_map>

namespace tessera {

namespace {
using namespace ops;

// ---- label_positions: where strings stand in a list
OpDef label_positions() {
  OpDef def;
  def.name = "label_positions";
  def.summary =
      "where each string stands among the keys, the first or the last of equal ones; `missing` where it does not";
  def.operands = {{"X", TypeSet::Any}};
  def.attributes = {{"keys", AttrKind::Strings, true}, integer("last", 0), {"missing", AttrKind::Int, true}};
  def.infer = [](InferContext& c) -> Status {
    if (c.type(0).dtype != DType::String)
      return c.error(ErrorCode::TypeMismatch,
                     "keys are strings, and what is looked up is of type " + std::string(name(c.type(0).dtype)));
    return set_result(c, DType::I64, c.shape(0));
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    const auto keys = ml_strings(c.node, "keys");
    const bool last = c.node.attributes.i("last") != 0;
    std::unordered_map<std::string_view, int64_t> at;
    for (size_t i = 0; i < keys.size(); ++i) {
      auto [it, fresh] = at.emplace(keys[i], static_cast<int64_t>(i));
      if (!fresh && last) it->second = static_cast<int64_t>(i);
    }
    std::vector<int64_t> out;
    for (const std::string& text : c.operands[0].string_values()) {
      const auto it = at.find(text);
      out.push_back(it == at.end() ? c.node.attributes.i("missing") : it->second);
    }
    TESSERA_ASSIGN(Tensor y, from_i64(DType::I64, c.operands[0].dims(), out));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    const std::vector<std::string> keys = {"b", "a", "b"};
    Tensor x = Tensor::strings({2, 2}, {"a", "b", "", "c"});
    return std::vector<Sample>{sample({x}, {{"keys", keys}, {"missing", int64_t{-1}}}),
                               sample({x}, {{"keys", keys}, {"missing", int64_t{3}}, {"last", int64_t{1}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({vec({1})},
                                          {{"keys", std::vector<std::string>{"a"}}, {"missing", int64_t{0}}},
                                          ErrorCode::TypeMismatch, "keys are strings")};
  };
  return def;
}

// ---- finding keys
Tensor strings_of(const std::vector<std::string>& values) {
  return Tensor::strings({static_cast<int64_t>(values.size())}, values);
}

// The elements of a vector at these positions, and one more behind them.
Tensor picked(const Tensor& from, const std::vector<size_t>& at, const Tensor* more = nullptr) {
  const auto n = static_cast<int64_t>(at.size() + (more != nullptr ? 1 : 0));
  if (from.dtype() == DType::String) {
    std::vector<std::string> out;
    for (size_t i : at) out.push_back(from.string_values()[i]);
    if (more != nullptr) out.push_back(more->string_values()[0]);
    return strings_of(out);
  }
  Tensor out = Tensor::create(from.dtype(), {n}).value();
  auto put = [&](int64_t to, const Tensor& t, int64_t i) {
    if (is_float(t.dtype()))
      out.set_f64(to, t.get_f64(i));
    else
      out.set_i64(to, t.get_i64(i));
  };
  for (size_t i = 0; i < at.size(); ++i) put(static_cast<int64_t>(i), from, static_cast<int64_t>(at[i]));
  if (more != nullptr) put(n - 1, *more, 0);
  return out;
}

struct Table {
  Tensor keys, values, fallback; // [n], [n], one element
  bool last = false;             // which of equal keys counts
  bool finds_nan = false;
};

// Numbers: how many of the sorted keys are not above x is found bit by bit. Their number is one below a power of two:
// the last key is repeated, with its value.
ValueId look_up_number(B& b, ValueId x, const Table& table) {
  const Tensor& keys = table.keys;
  const bool real = is_float(keys.dtype());
  auto below = [&](size_t i, size_t j) {
    const auto a = static_cast<int64_t>(i), c = static_cast<int64_t>(j);
    return real ? keys.get_f64(a) < keys.get_f64(c) : keys.get_i64(a) < keys.get_i64(c);
  };
  std::vector<size_t> all(static_cast<size_t>(keys.count())), order;
  std::iota(all.begin(), all.end(), size_t{0});
  std::optional<size_t> nan;
  std::erase_if(all, [&](size_t i) {
    const bool is = real && std::isnan(keys.get_f64(static_cast<int64_t>(i)));
    if (is && (!nan || table.last)) nan = i;
    return is;
  });
  std::stable_sort(all.begin(), all.end(), below);
  for (size_t i : all) {
    if (!order.empty() && !below(order.back(), i)) {
      if (table.last) order.back() = i;
      continue;
    }
    order.push_back(i);
  }
  const bool any = !order.empty();
  const size_t padded = std::bit_ceil(order.size() + 1) - 1;
  if (any) order.resize(padded, order.back());
  std::vector<size_t> values = order;
  if (nan && table.finds_nan) values.push_back(*nan);
  ValueId at = b.scalar_i(DType::I64, static_cast<int64_t>(values.size())); // of the fallback, behind the values
  if (any) {
    ValueId sorted = b.constant(picked(keys, order)), count;
    auto key = [&](ValueId i) { return b.op("gather_at", {sorted, i}, {{"zero", Ints{0}}}); };
    for (size_t step = (padded + 1) / 2; step > 0; step /= 2) {
      const auto by = static_cast<int64_t>(step);
      // The first step compares with one key, whatever x is.
      ValueId middle = count.valid() ? key(add(b, count, b.scalar_i(DType::I64, by - 1)))
                                     : b.constant(picked(keys, {order[step - 1]}).reshaped({}));
      ValueId more = select(b, le(b, middle, x), b.scalar_i(DType::I64, by), b.scalar_i(DType::I64, 0));
      count = count.valid() ? add(b, count, more) : more;
    }
    ValueId last = sub(b, count, b.scalar_i(DType::I64, 1));
    ValueId found = logical_and(b, gt(b, count, b.scalar_i(DType::I64, 0)), eq(b, key(last), x));
    at = select(b, found, last, at);
  }
  if (nan && table.finds_nan)
    at = select(b, ne(b, x, x), b.scalar_i(DType::I64, static_cast<int64_t>(values.size()) - 1), at);
  at = expand(b, at, b.shape(x));
  if (!b.ok()) return {};
  return gather(b, b.constant(picked(table.values, values, &table.fallback)), at, 0);
}

ValueId look_up(B& b, const Table& table) {
  ValueId x = b.in(0);
  if (!b.ok()) return {};
  const int64_t n = table.keys.count();
  if (table.values.count() != n)
    b.fail(ErrorCode::BadAttribute,
           std::to_string(n) + " keys and " + std::to_string(table.values.count()) + " values");
  if (b.dtype(x) != table.keys.dtype())
    b.fail(ErrorCode::TypeMismatch, "keys are of type " + std::string(name(table.keys.dtype())) +
                                        ", and what is looked up of type " + std::string(name(b.dtype(x))));
  if (!b.ok()) return {};
  if (b.dtype(x) != DType::String) return look_up_number(b, x, table);
  ValueId at = b.op("label_positions", {x},
                    {{"keys", table.keys.string_values()}, {"missing", n}, {"last", int64_t{table.last ? 1 : 0}}});
  std::vector<size_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), size_t{0});
  if (!b.ok()) return {};
  return gather(b, b.constant(picked(table.values, all, &table.fallback)), at, 0);
}

// ---- LabelEncoder
// "keys" or "values": the one of the four attributes that is given, as a vector.
Tensor given(B& b, const std::string& what) {
  std::vector<Tensor> all;
  const Attributes& a = b.attr();
  if (auto texts = ml_strings(b.node(), what + "_strings"); !texts.empty()) all.push_back(strings_of(texts));
  if (const Ints numbers = a.ints(what + "_int64s"); !numbers.empty())
    all.push_back(Tensor::of<int64_t>(DType::I64, {static_cast<int64_t>(numbers.size())}, numbers));
  if (auto reals = ml_floats(b.node(), what + "_floats"); !reals.empty())
    all.push_back(Tensor::of<double>(DType::F32, {static_cast<int64_t>(reals.size())}, reals));
  if (const auto* tensor = a.get<Tensor>(what + "_tensor"); tensor != nullptr)
    all.push_back(tensor->reshaped({tensor->count()}));
  if (all.size() == 1) return all[0];
  b.fail(ErrorCode::BadAttribute, what + " are given in " + std::to_string(all.size()) + " of '" + what +
                                      "_strings', '" + what + "_int64s', '" + what + "_floats' and '" + what +
                                      "_tensor'; one is expected");
  return {};
}

Tensor fallback_of(B& b, DType dtype) {
  const auto* tensor = b.attr().get<Tensor>("default_tensor");
  if (tensor != nullptr) {
    if (tensor->dtype() == dtype && tensor->count() > 0) return *tensor;
    b.fail(ErrorCode::BadAttribute, "'default_tensor' is " + std::to_string(tensor->count()) + " elements of type " +
                                        std::string(name(tensor->dtype())) + "; one of type " +
                                        std::string(name(dtype)) + " is expected");
    return {};
  }
  if (dtype == DType::String) return strings_of({b.attr().s("default_string")});
  if (is_float(dtype)) return floats(dtype, {1}, {b.attr().f("default_float")});
  return integers(dtype, {1}, {b.attr().i("default_int64")});
}

ValueId encode(B& b) {
  if (opset_of(b.node()) < 2) { // a list of strings: their positions, or what stands there
    const auto texts = ml_strings(b.node(), "classes_strings");
    Ints positions(texts.size());
    std::iota(positions.begin(), positions.end(), int64_t{0});
    Tensor numbers = Tensor::of<int64_t>(DType::I64, {static_cast<int64_t>(texts.size())}, positions);
    const bool strings = b.dtype(b.in(0)) == DType::String;
    Table table{strings ? strings_of(texts) : numbers, strings ? numbers : strings_of(texts), {}, true, false};
    table.fallback = fallback_of(b, table.values.dtype());
    return look_up(b, table);
  }
  Table table{given(b, "keys"), given(b, "values"), {}, false, opset_of(b.node()) >= 4};
  if (!b.ok()) return {};
  table.fallback = fallback_of(b, table.values.dtype());
  return look_up(b, table);
}

OpDef label_encoder() {
  OpDef def = ml("ai.onnx.ml.LabelEncoder", "the value of each key", {{"X", TypeSet::Any}}, encode);
  def.attributes = {{"classes_strings", AttrKind::Strings}, number("default_float", -0.0),
                    integer("default_int64", -1),           ml_text("default_string", "_Unused"),
                    {"default_tensor", AttrKind::Tensor},   {"keys_floats", AttrKind::Floats},
                    {"keys_int64s", AttrKind::Ints},        {"keys_strings", AttrKind::Strings},
                    {"keys_tensor", AttrKind::Tensor},      {"values_floats", AttrKind::Floats},
                    {"values_int64s", AttrKind::Ints},      {"values_strings", AttrKind::Strings},
                    {"values_tensor", AttrKind::Tensor}};
  def.samples = [] {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::vector<std::string> abc = {"a", "b", "c"};
    Tensor texts = Tensor::strings({2, 2}, {"b", "c", "", "a"});
    Tensor keys = integers(DType::I32, {4}, {5, -2, 5, 9});
    std::vector<Sample> out = {
        sample({vec({3, 9, -2, 0, 7})}, {{"keys_int64s", Ints{9, -2, 3, 3}}, {"values_int64s", Ints{1, 2, 3, 4}}}, 2),
        sample(
            {random(DType::I64, {3, 5}, 3, -1, 8)},
            {{"keys_int64s", Ints{7, 1, 2, 5, 0, 3, 4}}, {"values_floats", std::vector<double>{0, 1, 2, 3, 4, 5, 6}}},
            2),
        sample({floats({4}, {0.5, nan, -0.0, 2})},
               {{"keys_floats", std::vector<double>{0, 2, nan}}, {"values_int64s", Ints{4, 5, 6}}}, 4),
        sample({floats({}, {2})},
               {{"keys_floats", std::vector<double>{2}}, {"values_floats", std::vector<double>{0.5}}}, 2),
        sample({random(DType::I32, {7}, 3, -2, 9)},
               {{"keys_tensor", keys},
                {"values_tensor", floats(DType::F64, {4}, {1, 2, 3, 4})},
                {"default_tensor", floats(DType::F64, {1}, {-7})}},
               4),
        sample({vec({2, 0, 8})}, {{"classes_strings", abc}}, 1),
        sample({texts}, {{"classes_strings", abc}}, 1),
        sample({texts}, {{"keys_strings", abc}, {"values_floats", std::vector<double>{1, 2, 3}}}, 2),
        sample({texts}, {{"keys_strings", abc}, {"values_strings", std::vector<std::string>{"x", "y", "z"}}}, 2)};
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({vec({1})}, {{"keys_int64s", Ints{1}}}, ErrorCode::BadAttribute, "values are given in 0", 2),
        wrong({vec({1})}, {{"keys_int64s", Ints{1, 2}}, {"values_int64s", Ints{1}}}, ErrorCode::BadAttribute, "2 keys",
              2),
        wrong({floats({1}, {1})}, {{"keys_int64s", Ints{1}}, {"values_int64s", Ints{1}}}, ErrorCode::TypeMismatch,
              "i64", 2),
        wrong({vec({1})}, {{"keys_int64s", Ints{1}}, {"values_int64s", Ints{1}}, {"default_tensor", floats({1}, {1})}},
              ErrorCode::BadAttribute, "default_tensor", 4)};
  };
  return def;
}

// ---- CategoryMapper: strings to integers, or integers to strings
OpDef category_mapper() {
  OpDef def = ml("ai.onnx.ml.CategoryMapper", "integers of strings, or strings of integers", {{"X", TypeSet::Any}},
                 [](B& b) -> ValueId {
                   Tensor texts = strings_of(ml_strings(b.node(), "cats_strings"));
                   const Ints numbers = b.attr().ints("cats_int64s");
                   Tensor integers = Tensor::of<int64_t>(DType::I64, {static_cast<int64_t>(numbers.size())}, numbers);
                   const bool strings = b.dtype(b.in(0)) == DType::String;
                   Table table{strings ? texts : integers, strings ? integers : texts, {}, true, false};
                   table.fallback = fallback_of(b, table.values.dtype());
                   return look_up(b, table);
                 });
  def.attributes = {{"cats_int64s", AttrKind::Ints},
                    {"cats_strings", AttrKind::Strings},
                    integer("default_int64", -1),
                    ml_text("default_string", "_Unused")};
  const Attributes both = {{"cats_int64s", Ints{4, 5}}, {"cats_strings", std::vector<std::string>{"a", "b"}}};
  def.samples = [both] {
    return std::vector<Sample>{sample({vec({5, 4, 3})}, both), sample({Tensor::strings({3}, {"b", "", "a"})}, both)};
  };
  def.error_samples = [both] {
    Attributes odd = both;
    odd.set("cats_int64s", Ints{1});
    return std::vector<ErrorSample>{wrong({floats({1}, {1})}, both, ErrorCode::TypeMismatch, "f32"),
                                    wrong({vec({1})}, odd, ErrorCode::BadAttribute, "1 keys and 2 values")};
  };
  return def;
}

} // namespace

void register_ml_label_ops(OpTable& table) {
  for (OpDef (*make)() : {label_positions, label_encoder, category_mapper}) table.add(make());
}

} // namespace tessera
