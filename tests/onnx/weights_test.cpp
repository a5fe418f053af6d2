// TensorProto to Tensor: every element type in every form of storage, and every way in which one can be wrong.
#include "model_maker.h"
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>

namespace tessera::onnx_test {
namespace {

using T = proto::TensorProto;

// The tensor as weight "w" of a model that has it as an output.
Result<ImportedModel> import_weight(const T& tensor, const std::string& directory = "",
                                    const ImportOptions& options = {}) {
  Maker m;
  m.weight(tensor).output(tensor.name());
  return m.import_it(options, directory);
}

T typed(int type, const Dims& dims) {
  T t;
  t.set_name("w");
  t.set_data_type(type);
  t.mutable_dims()->Add(dims.begin(), dims.end());
  return t;
}

T external(int type, const Dims& dims, const std::string& location, const std::string& offset = "",
           const std::string& length = "") {
  T t = typed(type, dims);
  t.set_data_location(T::EXTERNAL);
  auto add = [&t](const std::string& key, const std::string& value) {
    if (value.empty()) return;
    auto& e = *t.add_external_data();
    e.set_key(key);
    e.set_value(value);
  };
  add("location", location);
  add("offset", offset);
  add("length", length);
  return t;
}

std::string floats(const std::vector<float>& v) { return {reinterpret_cast<const char*>(v.data()), v.size() * 4}; }

TEST(Weights, EveryTypeAsRawAndAsTypedData) {
  struct Case {
    int type;
    DType dtype;
    std::vector<double> values; // read back
    std::string raw;
    std::function<void(T&)> fill;
  };
  auto ints = [](std::vector<int32_t> v) { return [v](T& t) { t.mutable_int32_data()->Add(v.begin(), v.end()); }; };
  auto bytes = [](const auto& v) {
    return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(v[0]));
  };
  std::vector<Case> cases = {
      {T::FLOAT, DType::F32, {1.5, -2}, floats({1.5f, -2}), [](T& t) { t.add_float_data(1.5f), t.add_float_data(-2); }},
      {T::DOUBLE,
       DType::F64,
       {1e300, -2},
       bytes(std::vector<double>{1e300, -2}),
       [](T& t) { t.add_double_data(1e300), t.add_double_data(-2); }},
      {T::INT64,
       DType::I64,
       {1e12, -2},
       bytes(Ints{1000000000000, -2}),
       [](T& t) { t.add_int64_data(1000000000000), t.add_int64_data(-2); }},
      {T::UINT64,
       DType::U64,
       {5, 7},
       bytes(std::vector<uint64_t>{5, 7}),
       [](T& t) { t.add_uint64_data(5), t.add_uint64_data(7); }},
      {T::UINT32,
       DType::U32,
       {4e9, 7},
       bytes(std::vector<uint32_t>{4000000000u, 7}),
       [](T& t) { t.add_uint64_data(4000000000u), t.add_uint64_data(7); }},
      {T::INT32, DType::I32, {-5, 7}, bytes(std::vector<int32_t>{-5, 7}), ints({-5, 7})},
      {T::INT16, DType::I16, {-5, 7}, bytes(std::vector<int16_t>{-5, 7}), ints({-5, 7})},
      {T::UINT16, DType::U16, {65535, 7}, bytes(std::vector<uint16_t>{65535, 7}), ints({65535, 7})},
      {T::INT8, DType::I8, {-128, 127}, "\x80\x7f", ints({-128, 127})},
      {T::UINT8, DType::U8, {255, 1}, "\xff\x01", ints({255, 1})},
      {T::BOOL, DType::Bool, {1, 0, 1}, std::string("\x01\x00\x05", 3), ints({1, 0, 5})},
      {T::FLOAT16, DType::F16, {1, -2}, bytes(std::vector<uint16_t>{0x3c00, 0xc000}), ints({0x3c00, 0xc000})},
      {T::BFLOAT16, DType::BF16, {1, -2}, bytes(std::vector<uint16_t>{0x3f80, 0xc000}), ints({0x3f80, 0xc000})},
      {T::FLOAT8E4M3FN, DType::F8E4M3FN, {1, -448}, "\x38\xfe", ints({0x38, 0xfe})},
      {T::FLOAT8E5M2, DType::F8E5M2, {1, -2}, "\x3c\xc0", ints({0x3c, 0xc0})},
      {T::FLOAT8E8M0, DType::F8E8M0, {1, 2}, "\x7f\x80", ints({0x7f, 0x80})},
      {T::INT4, DType::I4, {-8, 7, 3}, "\x78\x03", ints({0x78, 0x03})},
      {T::UINT4, DType::U4, {8, 7, 15}, "\x78\x0f", ints({0x78, 0x0f})},
      {T::FLOAT4E2M1, DType::F4E2M1, {1, -1.5, 6}, "\xb2\x07", ints({0xb2, 0x07})},
      {T::UINT2, DType::U2, {0, 1, 2, 3, 1}, "\xe4\x01", ints({0xe4, 0x01})},
      {T::INT2, DType::I2, {0, 1, -2, -1, 1}, "\xe4\x01", ints({0xe4, 0x01})},
  };
  for (const Case& c : cases) {
    Dims dims = {static_cast<int64_t>(c.values.size())};
    T raw = typed(c.type, dims), fields = raw;
    raw.set_raw_data(c.raw);
    c.fill(fields);
    for (const T& t : {raw, fields}) {
      SCOPED_TRACE(std::string(name(c.dtype)) + (t.has_raw_data() ? " raw" : " typed"));
      auto imported = import_weight(t);
      ASSERT_TRUE(imported.ok()) << imported.error().str();
      const Tensor* w = weight_named(imported->graph, "w");
      ASSERT_NE(w, nullptr);
      EXPECT_EQ(w->dtype(), c.dtype);
      EXPECT_EQ(w->dims(), dims);
      for (size_t i = 0; i < c.values.size(); ++i) EXPECT_EQ(w->get_f64(static_cast<int64_t>(i)), c.values[i]) << i;
    }
  }
}

TEST(Weights, ComplexAndStrings) {
  T c = typed(T::COMPLEX64, {2});
  for (float f : {1.f, 2.f, 3.f, 4.f}) c.add_float_data(f);
  auto imported = import_weight(c);
  ASSERT_TRUE(imported.ok()) << imported.error().str();
  std::vector<float> read(4);
  std::memcpy(read.data(), weight_named(imported->graph, "w")->data(), 16);
  EXPECT_EQ(read, (std::vector<float>{1, 2, 3, 4}));
  T s = typed(T::STRING, {2});
  s.add_string_data("a");
  s.add_string_data("bc");
  auto strings = import_weight(s);
  ASSERT_TRUE(strings.ok()) << strings.error().str();
  EXPECT_EQ(weight_named(strings->graph, "w")->string_values(), (std::vector<std::string>{"a", "bc"}));
}

TEST(Weights, ZeroSizeAndScalar) {
  auto empty = import_weight(typed(T::FLOAT, {0, 3}));
  ASSERT_TRUE(empty.ok()) << empty.error().str();
  EXPECT_EQ(type_of_output(*empty), "f32[0, 3]");
  auto scalar = import_weight(float_tensor("w", {}, {2.5f}));
  ASSERT_TRUE(scalar.ok()) << scalar.error().str();
  EXPECT_EQ(weight_named(scalar->graph, "w")->get_f64(0), 2.5);
}

TEST(Weights, WrongSizes) {
  expect_error(import_weight(float_tensor("w", {3}, {1, 2})), ErrorCode::BadWeights,
               {"'w'", "3 entries in float_data", "there are 2"});
  T raw = typed(T::FLOAT, {3});
  raw.set_raw_data(std::string(10, 'x'));
  expect_error(import_weight(raw), ErrorCode::BadWeights, {"needs 12 bytes", "has 10"});
  expect_error(import_weight(typed(T::FLOAT, {3})), ErrorCode::BadWeights, {"has no data"});
  expect_error(import_weight(typed(T::FLOAT, {-3})), ErrorCode::BadWeights, {"negative dimension: -3"});
  expect_error(import_weight(typed(T::FLOAT, {int64_t{1} << 40, int64_t{1} << 40})), ErrorCode::SizeOverflow, {"'w'"});
  expect_error(import_weight(typed(T::UNDEFINED, {1})), ErrorCode::MalformedModel, {"no element type"});
  expect_error(import_weight(typed(99, {1})), ErrorCode::MalformedModel, {"element type 99"});
  expect_error(import_weight(typed(T::FLOAT6E2M3, {1})), ErrorCode::UnsupportedType, {"FLOAT6E2M3"});
  T packed = typed(T::INT4, {5});
  packed.mutable_int32_data()->Add(1);
  expect_error(import_weight(packed), ErrorCode::BadWeights, {"needs 3 entries in int32_data"});
  Dims many(100, 1);
  expect_error(import_weight(float_tensor("w", many, {1})), ErrorCode::UnsupportedFeature, {"100 dimensions"});
}

TEST(ExternalData, IsMappedOncePerFileAndViewed) {
  TemporaryFolder folder;
  std::vector<float> values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  folder.write("weights.bin", floats(values));
  Maker m;
  T a = external(T::FLOAT, {4}, "weights.bin", "16", "16"), b = external(T::FLOAT, {60}, "weights.bin", "16");
  a.set_name("a");
  b.set_name("b");
  m.weight(a).weight(b).output("a").output("b");
  auto imported = onnx::import_file(folder.write("model.onnx", m.bytes()));
  ASSERT_TRUE(imported.ok()) << imported.error().str();
  const Tensor *ta = weight_named(imported->graph, "a"), *tb = weight_named(imported->graph, "b");
  EXPECT_EQ(ta->data(), tb->data()); // one map, no copies
  EXPECT_EQ(ta->owner(), tb->owner());
  EXPECT_EQ(tb->get_f64(59), 63);
}

TEST(ExternalData, IsCopiedWhereItIsNotAligned) {
  TemporaryFolder folder;
  folder.write("w.bin", "x" + floats({1, 2, 3}));
  Maker m;
  m.weight(external(T::FLOAT, {3}, "w.bin", "1")).output("w");
  auto imported = onnx::import_file(folder.write("model.onnx", m.bytes()));
  ASSERT_TRUE(imported.ok()) << imported.error().str();
  const Tensor* w = weight_named(imported->graph, "w");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(w->data()) % 4, 0u);
  EXPECT_EQ(w->get_f64(2), 3);
}

TEST(ExternalData, LargeWeightsInTheModelFileAreNotInTheMessage) {
  TemporaryFolder folder;
  std::vector<float> values(5000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.5f;
  Maker m;
  // Several, so that at least one is aligned in the file and one is not.
  for (int k = 0; k < 8; ++k) {
    T t = typed(T::FLOAT, {5000});
    t.set_name(std::string("w") + std::string(static_cast<size_t>(k), '_'));
    t.set_raw_data(floats(values));
    m.weight(t).output(t.name());
  }
  m.weight(float_tensor("small", {1}, {7})).output("small");
  std::string bytes = m.bytes();
  auto from_file = onnx::import_file(folder.write("model.onnx", bytes));
  auto from_memory = onnx::import_bytes(bytes, "");
  for (auto* imported : {&from_file, &from_memory}) {
    ASSERT_TRUE(imported->ok()) << imported->error().str();
    const Graph& g = (*imported)->graph;
    for (int k = 0; k < 8; ++k) {
      const Tensor* w = weight_named(g, std::string("w") + std::string(static_cast<size_t>(k), '_'));
      ASSERT_NE(w, nullptr);
      EXPECT_EQ(std::memcmp(w->data(), values.data(), w->bytes()), 0);
    }
    EXPECT_EQ(weight_named(g, "small")->get_f64(0), 7);
  }
}

TEST(ExternalData, MissingOrShort) {
  TemporaryFolder folder;
  folder.write("w.bin", floats({1, 2, 3}));
  auto error = [&](const T& t, ErrorCode code, const Names& texts) {
    expect_error(import_weight(t, folder.path()), code, texts);
  };
  error(external(T::FLOAT, {3}, "none.bin"), ErrorCode::BadWeights, {"'w'", "cannot be found", "none.bin", "note"});
  error(external(T::FLOAT, {4}, "w.bin"), ErrorCode::BadWeights,
        {"beyond the end of 'w.bin'", "16 bytes at offset 0", "has 12"});
  error(external(T::FLOAT, {3}, "w.bin", "4"), ErrorCode::BadWeights, {"beyond the end", "offset 4"});
  error(external(T::FLOAT, {3}, "w.bin", "18446744073709551615"), ErrorCode::BadWeights, {"beyond the end"});
  error(external(T::FLOAT, {3}, "w.bin", "99999999999999999999"), ErrorCode::BadWeights, {"offset that overflows"});
  error(external(T::FLOAT, {3}, "w.bin", "-4"), ErrorCode::BadWeights, {"offset that is no number: '-4'"});
  error(external(T::FLOAT, {3}, "w.bin", "0", "8"), ErrorCode::BadWeights, {"needs 12 bytes", "has 8"});
  error(external(T::FLOAT, {3}, ""), ErrorCode::BadWeights, {"without a location"});
  error(external(T::FLOAT, {3}, "."), ErrorCode::BadWeights, {"is a folder"});
}

TEST(ExternalData, StaysInTheModelsFolder) {
  TemporaryFolder outside, folder;
  std::string secret = outside.write("secret.bin", floats({1, 2, 3}));
  std::filesystem::create_symlink(secret, folder.path() + "/link.bin");
  auto error = [&](const std::string& location, const std::string& text) {
    expect_error(import_weight(external(T::FLOAT, {3}, location), folder.path()), ErrorCode::BadWeights,
                 {"outside of the model's folder", text});
  };
  error(secret, "absolute");
  error("../" + std::filesystem::path(outside.path()).filename().string() + "/secret.bin", "leads out");
  error("a/../../x", "leads out");
  error("link.bin", "is a link to");
  folder.write("sub/w.bin", floats({1, 2, 3}));
  EXPECT_TRUE(import_weight(external(T::FLOAT, {3}, "sub/w.bin"), folder.path()).ok());
  EXPECT_TRUE(import_weight(external(T::FLOAT, {3}, "sub/../sub/w.bin"), folder.path()).ok());
}

// A download cache holds links to a model and to its weights, which lie side by side elsewhere.
TEST(ExternalData, FollowsALinkedModelToItsOwnFolder) {
  TemporaryFolder store, snapshot;
  Maker m;
  m.weight(external(T::FLOAT, {3}, "w.bin")).output("w");
  std::filesystem::create_symlink(store.write("blob1", m.bytes()), snapshot.path() + "/model.onnx");
  std::filesystem::create_symlink(store.write("blob2", floats({1, 2, 3})), snapshot.path() + "/w.bin");
  auto imported = onnx::import_file(snapshot.path() + "/model.onnx");
  ASSERT_TRUE(imported.ok()) << imported.error().str();
  EXPECT_EQ(weight_named(imported->graph, "w")->get_f64(1), 2);
}

TEST(ExternalData, MayBeMissingWhereTheGraphIsAllThatIsWanted) {
  ImportOptions options;
  options.missing_weights = ImportOptions::MissingWeights::Empty;
  for (const Dims& dims : {Dims{3}, Dims{}}) {
    auto imported = import_weight(external(T::INT64, dims, "none.bin"), "", options);
    ASSERT_TRUE(imported.ok()) << imported.error().str();
    EXPECT_EQ(imported->graph.type(imported->graph.outputs()[0].value).dtype, DType::I64);
    EXPECT_EQ(imported->graph.constant(imported->graph.outputs()[0].value), nullptr);
  }
}

proto::SparseTensorProto sparse(const Dims& dims, const T& indices, const std::vector<float>& values) {
  proto::SparseTensorProto s;
  *s.mutable_values() = float_tensor("w", {static_cast<int64_t>(values.size())}, values);
  *s.mutable_indices() = indices;
  s.mutable_dims()->Add(dims.begin(), dims.end());
  return s;
}

TEST(SparseWeights, AreMadeDense) {
  for (const T& indices : {int64_tensor("", {2}, {1, 5}), int64_tensor("", {2, 2}, {0, 1, 1, 2})}) {
    Maker m;
    *m.graph().add_sparse_initializer() = sparse({2, 3}, indices, {7, 8});
    m.output("w");
    auto imported = m.import_it();
    ASSERT_TRUE(imported.ok()) << imported.error().str();
    const Tensor* w = weight_named(imported->graph, "w");
    EXPECT_EQ(w->dims(), (Dims{2, 3}));
    std::vector<double> read;
    for (int64_t i = 0; i < 6; ++i) read.push_back(w->get_f64(i));
    EXPECT_EQ(read, (std::vector<double>{0, 7, 0, 0, 0, 8}));
  }
}

TEST(SparseWeights, Errors) {
  auto error = [](const proto::SparseTensorProto& s, ErrorCode code, const Names& texts) {
    Maker m;
    *m.graph().add_sparse_initializer() = s;
    expect_error(m.output("w").import_it(), code, texts);
  };
  error(sparse({2, 3}, int64_tensor("", {1}, {6}), {7}), ErrorCode::BadWeights,
        {"outside of its dimensions, at entry 0"});
  error(sparse({2, 3}, int64_tensor("", {1, 2}, {0, 3}), {7}), ErrorCode::BadWeights, {"outside of its dimensions"});
  error(sparse({2, 3}, int64_tensor("", {1, 2}, {-1, 0}), {7}), ErrorCode::BadWeights, {"outside of its dimensions"});
  error(sparse({2, 3}, int64_tensor("", {2}, {0, 1}), {7}), ErrorCode::BadWeights, {"indices that are neither"});
  error(sparse({1 << 20, 1 << 20}, int64_tensor("", {1}, {0}), {7}), ErrorCode::UnsupportedFeature,
        {"GiB when made dense"});
}

TEST(TensorFile, ReadsTensorsAndRefusesOtherKinds) {
  TemporaryFolder folder;
  std::string name;
  auto read = onnx::read_tensor_file(folder.write("t.pb", float_tensor("x", {2}, {1, 2}).SerializeAsString()), &name);
  ASSERT_TRUE(read.ok()) << read.error().str();
  EXPECT_EQ(name, "x");
  EXPECT_EQ(read->get_f64(1), 2);
  // A sequence: name, element type 1 (tensor), elements in field 3.
  std::string element = float_tensor("", {1}, {1}).SerializeAsString();
  std::string sequence = std::string("\x10\x01\x1a") + static_cast<char>(element.size()) + element;
  auto refused = onnx::read_tensor_file(folder.write("s.pb", sequence));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::UnsupportedType) << refused.error().str();
  EXPECT_EQ(onnx::read_tensor_file(folder.path() + "/none.pb").error().code, ErrorCode::FileError);
}

} // namespace
} // namespace tessera::onnx_test
