// Values of every kind through the C interface: strings, sequences, optionals, maps.
#include "c_harness.h"

namespace tessera::api_test {
namespace {

namespace proto = onnx_test::proto;

tessera_item item(int32_t kind) {
  tessera_item out{};
  out.struct_size = sizeof out;
  out.kind = kind;
  return out;
}
tessera_item floats(const std::vector<float>& values, const int64_t& count) {
  tessera_item out = item(TESSERA_TENSOR);
  out.tensor = {nullptr, TESSERA_F32, 1, &count, const_cast<float*>(values.data())};
  return out;
}
tessera_item strings(const std::vector<const char*>& texts, const int64_t& count) {
  tessera_item out = item(TESSERA_TENSOR);
  out.tensor = {nullptr, TESSERA_STRING, 1, &count, nullptr};
  out.strings = texts.data();
  return out;
}
tessera_item list(int32_t kind, const std::vector<tessera_item>& items) {
  tessera_item out = item(kind);
  out.items = items.data();
  out.item_count = static_cast<int32_t>(items.size());
  return out;
}

proto::TypeProto* type_of(proto::ValueInfoProto* value, const std::string& name) {
  value->set_name(name);
  return value->mutable_type();
}

TEST(Items, Strings) {
  Maker m;
  m.input("a", {"n"}, proto::TensorProto::STRING).input("b", {"n"}, proto::TensorProto::STRING);
  m.add("StringConcat", {"a", "b"}, {"c"}).output("c", {"n"}, proto::TensorProto::STRING);
  m.model.mutable_opset_import(0)->set_version(20);
  Opened s(write(m));
  ASSERT_TRUE(s.session);
  const int64_t two = 2, one = 1;
  const std::vector<const char*> a = {"x", "long enough for memory of its own"}, b = {"\0y", ""};
  const size_t lengths[] = {2, 0};
  tessera_item in[] = {strings(b, two), strings(a, two)};
  in[0].string_bytes = lengths;
  in[0].tensor.name = "b";
  in[1].tensor.name = "a";
  const tessera_item* out = nullptr;
  int32_t count = 0;
  const char* error = tessera_run_items(s.session, in, 2, &out, &count);
  ASSERT_EQ(error, nullptr) << error;
  ASSERT_EQ(count, 1);
  EXPECT_STREQ(out[0].tensor.name, "c");
  EXPECT_EQ(out[0].kind, TESSERA_TENSOR);
  EXPECT_EQ(out[0].tensor.dtype, TESSERA_STRING);
  EXPECT_EQ(out[0].tensor.dims[0], 2);
  EXPECT_EQ(std::string(out[0].strings[0], out[0].string_bytes[0]), std::string("x\0y", 3));
  EXPECT_EQ(std::string(out[0].strings[1], out[0].string_bytes[1]), a[1]);
  EXPECT_EQ(tessera_list_type(s.session, 0, 0), nullptr);

  auto refused = [&](const std::string& words) {
    const char* text = tessera_run_items(s.session, in, 2, &out, &count);
    ASSERT_NE(text, nullptr) << words;
    EXPECT_NE(std::string(text).find(words), std::string::npos) << text;
  };
  in[1].struct_size = 3;
  in[1].tensor.name = nullptr;
  refused("struct_size is 3");
  in[1] = strings(a, two);
  in[1].strings = nullptr;
  refused("has no strings");
  in[1] = strings(a, one);
  in[1].tensor.name = "a";
  refused("dimension");
  in[1].tensor.name = "q";
  refused("no input 'q'");
  in[1].tensor.name = "b";
  refused("given twice");
  in[1] = list(TESSERA_SEQUENCE, {});
  in[1].tensor.name = "a";
  refused("input 'a' is a sequence, expected a tensor");
  in[1] = floats({}, two);
  in[1].tensor.name = "a";
  refused("has no memory");
}

TEST(Items, SequencesOptionalsAndMaps) {
  Maker m;
  auto& graph = m.graph();
  for (const char* name : {"s", "t"}) {
    auto* value = name[0] == 's' ? graph.add_input() : graph.add_output();
    onnx_test::set_type(*type_of(value, name)->mutable_sequence_type()->mutable_elem_type(), {"k"});
  }
  for (const char* name : {"o", "p"}) {
    auto* value = name[0] == 'o' ? graph.add_input() : graph.add_output();
    onnx_test::set_type(*type_of(value, name)->mutable_optional_type()->mutable_elem_type(), {"k"});
  }
  for (const char* name : {"m", "n"}) {
    auto* value = name[0] == 'm' ? graph.add_input() : graph.add_output();
    auto* map = type_of(value, name)->mutable_map_type();
    map->set_key_type(proto::TensorProto::STRING);
    onnx_test::set_type(*map->mutable_value_type(), {});
  }
  m.add("Identity", {"s"}, {"t"}).add("Identity", {"o"}, {"p"}).add("Identity", {"m"}, {"n"});
  Opened s(write(m));
  ASSERT_TRUE(s.session);
  const tessera_io* ios = nullptr;
  int32_t count = 0;
  ASSERT_EQ(tessera_inputs(s.session, &ios, &count), nullptr);
  EXPECT_EQ(ios[0].dtype, -1);
  EXPECT_EQ(std::string(tessera_list_type(s.session, 0, 0)), "sequence f32[?]");
  EXPECT_EQ(std::string(tessera_list_type(s.session, 1, 1)), "optional f32[?]");
  EXPECT_EQ(std::string(tessera_list_type(s.session, 1, 2)).substr(0, 14), "map string f32");
  EXPECT_EQ(tessera_list_type(s.session, 0, 3), nullptr);

  const std::vector<float> x = {1, 2, 3}, y = {4};
  const int64_t three = 3, one = 1;
  const std::vector<const char*> keys = {"a", "b", "c"};
  const std::vector<tessera_item> both = {floats(x, three), floats(y, one)}, none;
  const std::vector<tessera_item> map = {strings(keys, three), floats(x, three)};
  tessera_item in[] = {list(TESSERA_SEQUENCE, both), list(TESSERA_OPTIONAL, none), list(TESSERA_MAP, map)};
  const tessera_item* out = nullptr;
  const char* error = tessera_run_items(s.session, in, 3, &out, &count);
  ASSERT_EQ(error, nullptr) << error;
  ASSERT_EQ(count, 3);
  EXPECT_EQ(out[0].kind, TESSERA_SEQUENCE);
  ASSERT_EQ(out[0].item_count, 2);
  EXPECT_EQ(out[0].items[1].tensor.dims[0], 1);
  EXPECT_EQ(static_cast<const float*>(out[0].items[0].tensor.data)[2], 3);
  EXPECT_EQ(out[1].kind, TESSERA_OPTIONAL);
  EXPECT_EQ(out[1].item_count, 0);
  EXPECT_EQ(out[2].kind, TESSERA_MAP);
  ASSERT_EQ(out[2].item_count, 2);
  EXPECT_STREQ(out[2].items[0].strings[1], "b");
  EXPECT_EQ(static_cast<const float*>(out[2].items[1].tensor.data)[1], 2);

  const std::vector<tessera_item> uneven = {strings(keys, three), floats(y, one)};
  in[2] = list(TESSERA_MAP, uneven);
  EXPECT_NE(std::string(tessera_run_items(s.session, in, 3, &out, &count)).find("3 keys and 1 values"),
            std::string::npos);
  in[2] = list(TESSERA_MAP, both);
  in[1] = list(TESSERA_OPTIONAL, both);
  EXPECT_NE(std::string(tessera_run_items(s.session, in, 3, &out, &count)).find("an optional has one, or none"),
            std::string::npos);
}

} // namespace
} // namespace tessera::api_test
