// Archives of torch.export: weights of every layout, and every way in which an archive can be broken.
#include "archive_maker.h"
#include "frontend/fx/guards.h"
#include "graph/ir/operator.h"
#include "program_maker.h"
#include <gtest/gtest.h>

namespace tessera::fx_test {
namespace {

// The weight's values as the program sees them: the first operand of the first relu, transposes and repeats resolved.
const Tensor* constant_of(const Graph& graph, bool& in_order) {
  in_order = true;
  for (NodeId id : graph.order()) {
    const Node& n = graph.node(id);
    if (n.op->name == "transpose" || n.op->name == "expand") in_order = false;
    for (ValueId v : n.operands)
      if (const Tensor* t = v.valid() ? graph.constant(v) : nullptr) return t;
  }
  return nullptr;
}

TEST(Archive, WeightsAreViewsWhereTheyLie) {
  struct Case {
    const char* what;
    Model model;
    bool view, in_order;
    Dims stored;
    float first;
  };
  const Case cases[] = {
      {"contiguous", {{2, 3}, {3, 1}, 0, floats(6)}, true, true, {2, 3}, -3},
      {"at an offset", {{2, 3}, {3, 1}, 4, floats(10)}, true, true, {2, 3}, 1},
      {"transposed", {{3, 2}, {1, 3}, 0, floats(6)}, true, false, {2, 3}, -3},
      {"channels last", {{1, 2, 2, 3}, {12, 1, 6, 2}, 0, floats(12)}, true, false, {1, 2, 3, 2}, -3},
      {"sizes of 1 with any stride", {{1, 6}, {77, 1}, 0, floats(6)}, true, true, {1, 6}, -3},
      {"repeated", {{4, 3}, {0, 1}, 0, floats(3)}, true, false, {1, 3}, -3},
      {"every second", {{3}, {2}, 1, floats(6)}, false, true, {3}, -2},
      {"a column of a matrix", {{2, 1}, {3, 1}, 2, floats(6)}, false, true, {2, 1}, -1},
  };
  for (const Case& c : cases) {
    const std::string bytes = pack(c.model.entries()).bytes;
    auto block = allocate_bytes(bytes.size()).value();
    std::memcpy(block.get(), bytes.data(), bytes.size());
    auto model = fx::import_bytes({block, block.get(), bytes.size()});
    ASSERT_TRUE(model.ok()) << c.what << ": " << model.error().str();
    EXPECT_TRUE(verify(model->graph).ok()) << c.what;
    bool in_order = false;
    const Tensor* t = constant_of(model->graph, in_order);
    ASSERT_NE(t, nullptr) << c.what;
    EXPECT_EQ(t->dims(), c.stored) << c.what;
    EXPECT_EQ(in_order, c.in_order) << c.what;
    EXPECT_EQ(t->data() >= block.get() && t->data() < block.get() + bytes.size(), c.view) << c.what;
    EXPECT_EQ(t->get_f64(0), c.first) << c.what;
  }
}

TEST(Archive, NamesOfOneStorageAreOneConstant) {
  Model m;
  Json& graph = m.program["graph_module"]["graph"];
  Json& signature = m.program["graph_module"]["signature"];
  graph["inputs"].insert(graph["inputs"].begin(), tensor("p_v"));
  graph["tensor_values"]["p_v"] = graph["tensor_values"]["p_w"];
  graph["nodes"][1]["inputs"][0]["arg"] = tensor("p_v");
  graph["tensor_values"]["z"] = graph["tensor_values"]["y"];
  signature["input_specs"].insert(signature["input_specs"].begin(),
                                  Json{{"parameter", {{"arg", {{"name", "p_v"}}}, {"parameter_name", "tied"}}}});
  m.weights["config"]["tied"] = m.weights["config"]["act.w"];
  auto model = import_it(m);
  ASSERT_TRUE(model.ok()) << model.error().str();
  const Graph& g = model->graph;
  // Both calls read one value.
  std::vector<ValueId> read;
  for (NodeId id : g.order())
    for (ValueId v : g.node(id).operands)
      if (v.valid() && g.type(v).shape.size() == 2 && g.constant(v) != nullptr) read.push_back(v);
  ASSERT_EQ(read.size(), 2u) << print(g);
  EXPECT_EQ(read[0], read[1]);
}

// The exported module computes with sizes below those that the exporter traced with, which are 2 or more.
TEST(Archive, RangesOfInputsFrom2OnBeginAt0) {
  auto range_of = [](int64_t low) {
    Model m;
    const Json size = {{"as_expr", {{"expr_str", "Mul(Integer(3), Symbol('s77', positive=True, integer=True))"}}}};
    Json& values = m.program["graph_module"]["graph"]["tensor_values"];
    for (const char* name : {"x", "z"}) values[name]["sizes"] = Json::array({size});
    m.program["range_constraints"] = {{"s77", {{"min_val", low}, {"max_val", 64}}}};
    auto model = import_text(pack(m.entries()).bytes);
    EXPECT_TRUE(model.ok()) << model.error().str();
    return model.ok() ? model->graph.env().range(*model->graph.env().find("s77")) : SymRange{};
  };
  EXPECT_EQ(range_of(0), (SymRange{0, 64}));
  EXPECT_EQ(range_of(1), (SymRange{0, 64}));
  EXPECT_EQ(range_of(2), (SymRange{0, 64}));
  EXPECT_EQ(range_of(3), (SymRange{3, 64}));
}

TEST(Archive, GuardsOfTheModuleAreConditions) {
  Model m;
  const Json size = {{"as_expr", {{"expr_str", "Symbol('s77', positive=True, integer=True)"}}}};
  Json& values = m.program["graph_module"]["graph"]["tensor_values"];
  for (const char* name : {"x", "z"}) values[name]["sizes"] = Json::array({size});
  m.program["range_constraints"] = {{"s77", {{"min_val", 2}, {"max_val", nullptr}}}};
  m.program["guards_code"] = {"(L['x'].size()[0] % 4) == 0", "(L['x'].size()[0] / 4) > 1.2", "L['x'].size()[0] < 100"};
  auto model = import_text(pack(m.entries()).bytes);
  ASSERT_TRUE(model.ok()) << model.error().str();
  const ShapeEnv& env = model->graph.env();
  const SymExpr s = *env.find("s77");
  EXPECT_EQ(env.divisor(s), 4);
  EXPECT_LE(env.range(s).hi, 99);
  ASSERT_EQ(env.guards().size(), 2U); // quotients of floats are left out
  EXPECT_EQ(env.guards()[0].cls, GuardClass::Required);
  EXPECT_EQ(env.guards()[0].reason, "the exported module requires (L['x'].size()[0] % 4) == 0");
}

TEST(Archive, GuardsInPython) {
  const SymExpr a = SymExpr::symbol("a"), b = SymExpr::symbol("b"), n = SymExpr::symbol("n");
  const fx::InputSize sizes = [&](const std::string& input, std::optional<int64_t> dim) -> std::optional<SymExpr> {
    if (input == "x" && dim == 0) return a;
    if (input == "d_key_1" && dim == 2) return b;
    if (input == "n" && !dim) return n;
    return {};
  };
  auto read = [&](std::string_view text) {
    const auto e = fx::read_guard(text, sizes);
    return e ? e->str() : "?";
  };
  const std::string x = "L['x'].size()[0]", d = "L['d']['Key'][1].size()[2]";
  EXPECT_EQ(read(x + " >= 3"), sym_le(3, a).str());
  EXPECT_EQ(read("(-12) + 4*" + x + " >= 2"), sym_le(2, 4 * a - 12).str());
  EXPECT_EQ(read("((1 + " + x + ") // 2) != (" + d + " % 3)"), sym_ne(floordiv(a + 1, 2), mod(b, 3)).str());
  EXPECT_EQ(read("2 < " + x + " <= L['n'] and not " + d + " == 4"),
            sym_and(sym_and(sym_lt(2, a), sym_le(a, n)), sym_not(sym_eq(b, 4))).str());
  EXPECT_EQ(read("torch.sym_max(3, " + x + ", " + d + ") > 4 or " + x + "**2 == 9"),
            sym_or(sym_lt(4, sym_max(sym_max(3, a), b)), sym_eq(a * a, 9)).str());
  for (const std::string& text :
       {"(" + x + " / 4) > 1", x + " > 1.5", std::string("L['y'].size()[0] == 1"),
        std::string("L['x'].stride()[0] == 1"), x + " ==", std::string("L["), std::string(), x + " % 0 == 1",
        "foo(" + x + ")", std::string("L['x'] == 'a'"), std::string(100'000, '('), std::string(100'000, '-'),
        x + " > 99999999999999999999", x + "[0] > 1", x + " > 1 1"})
    EXPECT_EQ(read(text), "?") << text.substr(0, 60);
}

TEST(Archive, NodesNameModuleAndLine) {
  auto model = import_it(Model());
  ASSERT_TRUE(model.ok()) << model.error().str();
  const Location& where = model->graph.node(model->graph.order().back()).location;
  EXPECT_EQ(where.node, "layers.0.act.z");
  EXPECT_EQ(where.op, "aten.relu.default");
  EXPECT_EQ(where.source, "model.py:42");
  EXPECT_EQ(model->info.format, "PyTorch");
  EXPECT_EQ(model->info.producer, "pytorch 2.15.0");
}

TEST(Archive, AnyRootFolderAndZip64) {
  for (const char* root : {"", "archive/", "a name with spaces/"}) {
    Model m;
    m.root = root;
    EXPECT_TRUE(import_it(m).ok()) << root;
    auto large = import_text(pack(m.entries(), true).bytes);
    EXPECT_TRUE(large.ok()) << large.error().str();
  }
}

TEST(Archive, StatesAreOutputsBehindTheResults) {
  Model m({2, 3}, {1, 2}, 0, floats(6)); // transposed in memory
  Json& specs = m.program["graph_module"]["signature"]["output_specs"];
  specs[0] = {{"buffer_mutation", {{"arg", {{"name", "y"}}}, {"buffer_name", "act.w"}}}};
  auto model = import_it(m);
  ASSERT_TRUE(model.ok()) << model.error().str();
  ASSERT_EQ(model->graph.outputs().size(), 2u);
  EXPECT_EQ(model->graph.outputs()[0].name, "z");
  EXPECT_EQ(model->graph.outputs()[1].name, "act.w");
  ASSERT_EQ(model->states.size(), 1u);
  EXPECT_EQ(model->states[0].name, "act.w");
  EXPECT_EQ(show(model->states[0].first), "f32[2, 3]{-3.0, -1.0, 1.0, -2.0, 0.0, 2.0}");
  EXPECT_TRUE(model->warnings.empty());
  ASSERT_EQ(model->graph.inputs().size(), 2u);
  EXPECT_EQ(model->graph.value(model->graph.inputs()[0]).name, "x");

  specs[0]["buffer_mutation"]["buffer_name"] = "count";
  auto unknown = import_it(m);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::MalformedModel);
}

TEST(Archive, WeightsThatWereNotSaved) {
  Model m;
  m.weight.clear();
  auto refused = import_it(m);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::BadWeights);
  ImportOptions options;
  options.missing_weights = ImportOptions::MissingWeights::Empty;
  EXPECT_TRUE(import_it(m, options).ok());
}

// One clear error for each, with the code and a part of the text.
void expect_error(const Result<ImportedModel>& r, ErrorCode code, const std::string& part, const std::string& what) {
  ASSERT_FALSE(r.ok()) << what;
  EXPECT_EQ(r.error().code, code) << what << ": " << r.error().str();
  EXPECT_NE(r.error().str().find(part), std::string::npos) << what << ": " << r.error().str();
  EXPECT_EQ(r.error().location.file, "model.pt2") << what << ": " << r.error().str();
}

TEST(BrokenArchive, CutOffAnywhere) {
  const std::string whole = pack(Model().entries()).bytes;
  for (size_t n = 0; n < whole.size(); ++n) {
    auto r = import_text(whole.substr(0, n));
    ASSERT_FALSE(r.ok()) << n;
    EXPECT_EQ(r.error().code, ErrorCode::MalformedModel) << n;
  }
}

TEST(BrokenArchive, Directory) {
  const Packed good = pack(Model().entries());
  auto damaged = [&](size_t at, auto value) {
    std::string bytes = good.bytes;
    overwrite(bytes, at, value);
    return import_text(bytes);
  };
  const auto M = ErrorCode::MalformedModel;
  expect_error(damaged(good.end + 16, 0x7fffffffu), M, "directory", "directory behind the end");
  expect_error(damaged(good.end + 12, 0x7fffffffu), M, "directory", "directory too long");
  expect_error(damaged(good.end + 10, uint16_t{60000}), M, "60000 entries", "too many entries");
  expect_error(damaged(good.end + 16, 0xffffffffu), M, "zip64", "zip64 record that is not there");
  expect_error(damaged(good.directory, 0u), M, "no entry 0", "no directory entry");
  expect_error(damaged(good.directory + 42, 0x7fffffffu), M, "offset 2147483647", "header outside of the file");
  expect_error(damaged(good.directory + 20, 0x7fffffffu), M, "2147483647 bytes", "entry outside of the file");
  expect_error(damaged(good.directory + 24, 1u), M, "said to have 1", "two sizes");
  expect_error(damaged(good.directory + 28, uint16_t{0xffff}), M, "longer than the directory", "long name");
}

TEST(BrokenArchive, Zip64) {
  const Packed good = pack(Model().entries(), true);
  const size_t locator = good.end - 20, record = locator - 56;
  auto damaged = [&](size_t at, auto value) {
    std::string bytes = good.bytes;
    overwrite(bytes, at, value);
    return import_text(bytes);
  };
  const auto M = ErrorCode::MalformedModel;
  ASSERT_TRUE(import_text(good.bytes).ok());
  expect_error(damaged(locator + 8, UINT64_MAX), M, "zip64 record is not at offset", "record outside of the file");
  expect_error(damaged(locator + 8, uint64_t{0}), M, "zip64 record is not at offset 0", "record elsewhere");
  expect_error(damaged(record + 32, UINT64_MAX), M, "entries in", "entries without end");
  expect_error(damaged(record + 48, UINT64_MAX - 10), M, "directory", "directory outside of the file");
  expect_error(damaged(record + 40, UINT64_MAX), M, "directory", "directory without end");
  // The 64-bit offset of the first entry stands behind its name.
  const size_t offset = good.directory + 46 + Model().entries()[0].name.size() + 4;
  expect_error(damaged(offset, UINT64_MAX - 5), M, "is not at offset", "entry outside of the file");
  expect_error(damaged(offset - 2, uint16_t{60000}), M, "extra field that does not end", "long extra field");
  expect_error(damaged(offset - 4, uint16_t{7}), M, "is not at offset 4294967295", "no 64-bit offset");
}

TEST(BrokenArchive, WhatStandsAroundIt) {
  const std::string good = pack(Model().entries()).bytes;
  expect_error(import_text("#!/bin/sh\n" + good), ErrorCode::MalformedModel, "no entry 0", "something before it");
  expect_error(import_text(good + "x"), ErrorCode::MalformedModel, "something was appended", "something behind it");
  expect_error(import_text(""), ErrorCode::MalformedModel, "no end record", "nothing");
}

TEST(BrokenArchive, Entries) {
  auto with = [](const Entry& e) {
    Model m;
    m.more.push_back(e);
    return import_it(m);
  };
  const auto M = ErrorCode::MalformedModel;
  expect_error(with({"model/../../etc/passwd", "x"}), M, "leads out of the archive", "..");
  expect_error(with({"/etc/passwd", "x"}), M, "absolute path", "absolute");
  expect_error(with({"C:\\\\windows", "x"}), M, "of another system", "backslash");
  expect_error(with({"", "x"}), M, "has no name", "no name");
  expect_error(with({std::string("model/a\0b", 9), "x"}), M, "a zero byte", "zero byte");
  EXPECT_TRUE(with({"model/a..b/..c", "x"}).ok());
  expect_error(with({"model/archive_format", "pt2"}), M, "is there twice", "twice");
  expect_error(with({"other/archive_format", "pt2"}), M, "expected one", "two roots");
  std::vector<Entry> all = Model().entries();
  all[3].method = 8;
  expect_error(import_entries(all), ErrorCode::UnsupportedFeature, "is compressed", "deflated");
  all[3].method = 0;
  all[0].flags = 1;
  expect_error(import_entries(all), ErrorCode::UnsupportedFeature, "is encrypted", "encrypted");
  // Two entries of the directory for the same bytes.
  Packed p = pack({{"a", "1"}, {"b", "2"}});
  overwrite(p.bytes, p.bytes.find("PK\1\2", p.directory + 4) + 42, uint32_t{0});
  expect_error(import_text(p.bytes), M, "another name", "two entries in one place");
}

TEST(BrokenArchive, OtherKindsSayWhatTheyAre) {
  auto of = [](std::vector<std::string> names) {
    std::vector<Entry> all;
    for (auto& n : names) all.push_back({n, "x"});
    return import_entries(all);
  };
  const auto U = ErrorCode::UnsupportedFeature;
  expect_error(of({"m/data.pkl", "m/constants.pkl"}), U, "TorchScript", "TorchScript");
  expect_error(of({"m/data.pkl", "m/data/0"}), U, "checkpoint", "checkpoint");
  expect_error(of({"serialized_exported_program.json"}), U, "2.8 or older", "old export");
  expect_error(of({"arr_0.npy"}), U, "NumPy", "npz");
  expect_error(of({"word/document.xml"}), U, "without archive_format", "any zip");
  auto changed = [](const std::string& name, const std::string& bytes) {
    std::vector<Entry> all = Model().entries();
    for (Entry& e : all)
      if (e.name == "model/" + name) e.bytes = bytes;
    return import_entries(all);
  };
  expect_error(changed("archive_format", "pt3"), U, "expected 'pt2'", "format");
  expect_error(changed("archive_version", "9"), U, "version '9'", "version");
  expect_error(changed("byteorder", "big"), U, "byte order", "byte order");
  auto renamed = [](const std::string& from, const std::string& to) {
    std::vector<Entry> all = Model().entries();
    for (Entry& e : all)
      if (e.name == "model/" + from) e.name = "model/" + to;
    return import_entries(all);
  };
  expect_error(renamed("models/model.json", "data/aotinductor/model/x.so"), U, "AOTInductor", "AOTInductor");
  expect_error(renamed("data/weights/model_weights_config.json", "data/weights/model.pt"), U, "pickle", "pickled");
  expect_error(renamed("data/weights/model_weights_config.json", "extra/x"), ErrorCode::MalformedModel,
               "the list of its weights", "no list");
  expect_error(renamed("data/weights/weight_0", "data/weights/weight_1"), ErrorCode::BadWeights, "weight_0",
               "no weight");
  std::vector<Entry> two = Model().entries();
  two[3].name = "model/models/a.json";
  two.push_back({"model/models/b.json", "{}"});
  expect_error(import_entries(two), U, "'a', 'b'", "two models");
}

TEST(BrokenArchive, Weights) {
  const auto B = ErrorCode::BadWeights;
  expect_error(import_it(Model({2, 3}, {3, 1}, 0, floats(5))), B, "'act.w': needs 6 elements", "too short");
  expect_error(import_it(Model({2, 3}, {3, 1}, 1, floats(6))), B, "needs 7 elements", "offset");
  expect_error(import_it(Model({2, 3}, {INT64_MAX, 1}, 0, floats(6))), B, "more than 2^63", "stride that overflows");
  expect_error(import_it(Model({2, 3}, {3, 1}, INT64_MAX, floats(6))), B, "more than 2^63", "offset that overflows");
  expect_error(import_it(Model({1000, 1000}, {1, 1}, 0, floats(1999))), B, "overlap", "windows");
  expect_error(import_it(Model({1 << 30, 1 << 30, 1 << 30}, {1, 1, 1}, 0, floats(6))), B, "", "absurd sizes");
  expect_error(import_it(Model({2, 3}, {-3, 1}, 0, floats(6))), B, "stride -3", "negative stride");
  Model pickled;
  pickled.weights["config"]["act.w"]["use_pickle"] = true;
  expect_error(import_it(pickled), ErrorCode::UnsupportedFeature, "is pickled", "pickled");
  Model unlisted;
  unlisted.weights["config"] = Json::object();
  expect_error(import_it(unlisted), B, "in neither", "unlisted");
  Model other;
  other.weights["config"]["act.w"]["tensor_meta"] = meta({3, 2}, {2, 1});
  expect_error(import_it(other), B, "[3, 2]", "another shape");
  Model type;
  type.weights["config"]["act.w"]["tensor_meta"] = meta({2, 3}, {3, 1}, 0, 8);
  expect_error(import_it(type), B, "float64", "another type");
  Model path;
  path.weights["config"]["act.w"]["path_name"] = "../../../etc/passwd";
  expect_error(import_it(path), B, "etc/passwd", "a path out of the archive");
  Model folder;
  folder.weights["config"]["act.w"]["path_name"] = "";
  expect_error(import_it(folder), B, "no entry 'model/data/weights/'", "no path");
  Model symbolic;
  symbolic.weights["config"]["act.w"]["tensor_meta"]["sizes"][0] = {
      {"as_expr", {{"expr_str", "Symbol('s0')"}, {"hint", nullptr}}}};
  expect_error(import_it(symbolic), B, "symbolic size", "a size that is a symbol");
  Model complex32;
  complex32.weights["config"]["act.w"]["tensor_meta"] = meta({2, 3}, {3, 1}, 0, 9);
  expect_error(import_it(complex32), ErrorCode::UnsupportedType, "complex32", "a type that we do not have");
  Model ranks;
  ranks.weights["config"]["act.w"]["tensor_meta"]["strides"] = constants({1});
  expect_error(import_it(ranks), ErrorCode::MalformedModel, "strides", "more sizes than strides");
}

// Documents that are cut off, or that hold something else than is expected.
TEST(BrokenArchive, Documents) {
  const std::vector<Entry> good = Model().entries();
  for (const size_t document : {size_t{1}, size_t{2}, size_t{3}}) {
    for (const size_t cut : {size_t{0}, size_t{1}, good[document].bytes.size() / 2, good[document].bytes.size() - 1}) {
      std::vector<Entry> all = good;
      all[document].bytes.resize(cut);
      expect_error(import_entries(all), ErrorCode::MalformedModel, "no valid JSON", good[document].name);
    }
    for (const char* other : {"7", "[]", "null", "{}", "\"x\""}) {
      std::vector<Entry> all = good;
      all[document].bytes = other;
      auto r = import_entries(all);
      ASSERT_FALSE(r.ok()) << good[document].name << other;
      EXPECT_EQ(r.error().code, ErrorCode::MalformedModel) << r.error().str();
    }
  }
}

// Other minor versions of the schema: fields that are not known are passed over, and those that came later are missing.
TEST(Archive, MinorVersionsOfTheSchema) {
  Model later;
  later.program["schema_version"]["minor"] = 99;
  later.program["of_the_future"] = {{"a", Json::array({1, 2})}};
  later.program["graph_module"]["graph"]["of_the_future"] = 1;
  later.node(0)["of_the_future"] = "x";
  std::string deep(100000, '[');
  later.program["graph_module"]["metadata"] = nullptr;
  std::vector<Entry> all = later.entries();
  const size_t at = all[3].bytes.find("\"metadata\":null");
  ASSERT_NE(at, std::string::npos);
  all[3].bytes.replace(at + 11, 4, deep + std::string(deep.size(), ']'));
  auto model = import_entries(all);
  EXPECT_TRUE(model.ok()) << model.error().str();
  Model earlier;
  earlier.program["schema_version"]["minor"] = 0;
  earlier.program.erase("torch_version");
  earlier.program["graph_module"]["graph"].erase("is_single_tensor_return");
  earlier.node(0).erase("metadata");
  model = import_it(earlier);
  EXPECT_TRUE(model.ok()) << model.error().str();
}

TEST(BrokenProgram, OneErrorEach) {
  struct Case {
    const char* what;
    std::function<void(Json& program, Json& graph)> damage;
    ErrorCode code;
    const char* part;
  };
  const auto M = ErrorCode::MalformedModel;
  const Case cases[] = {
      {"major version", [](Json& p, Json&) { p["schema_version"]["major"] = 9; }, ErrorCode::UnsupportedFeature,
       "9.20"},
      {"operator", [](Json&, Json& g) { g["nodes"][0]["target"] = "torch.ops.my.op.default"; },
       ErrorCode::UnsupportedOp, "model.py:42"},
      {"undefined name", [](Json&, Json& g) { g["nodes"][0]["inputs"][0]["arg"] = tensor("nobody"); }, M, "nobody"},
      {"cycle", [](Json&, Json& g) { g["nodes"][0]["inputs"][0]["arg"] = tensor("y"); }, M, "'y'"},
      {"undefined output",
       [](Json& p, Json&) { p["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"] = tensor("q"); }, M,
       "'q'"},
      {"wrong type", [](Json&, Json& g) { g["nodes"] = 3; }, M, "nodes is 3, expected an array"},
      {"missing member", [](Json& p, Json&) { p.erase("graph_module"); }, M, "no 'graph_module'"},
      {"missing input", [](Json&, Json& g) { g["inputs"].erase(0); }, M, "2 inputs"},
      {"no sizes", [](Json&, Json& g) { g["tensor_values"].erase("x"); }, M, "'x' has no sizes"},
      {"negative size", [](Json&, Json& g) { g["tensor_values"]["x"] = meta({-2}, {1}); }, M, "-2"},
      {"absurd size",
       [](Json&, Json& g) {
         g["tensor_values"]["x"] = meta({INT64_MAX, INT64_MAX}, {1, 1});
       },
       ErrorCode::SizeOverflow, "x"},
      {"expression",
       [](Json&, Json& g) {
         g["tensor_values"]["x"]["sizes"][0] = {{"as_expr", {{"expr_str", "__import__('os')"}, {"hint", nullptr}}}};
       },
       M, "__import__"},
      {"deep expression",
       [](Json&, Json& g) {
         std::string deep;
         for (int i = 0; i < 100000; ++i) deep += "Add(";
         g["tensor_values"]["x"]["sizes"][0] = {{"as_expr", {{"expr_str", deep}, {"hint", nullptr}}}};
       },
       M, "nested"},
      {"defined twice", [](Json&, Json& g) { g["nodes"][1]["outputs"][0] = tensor("y"); }, M, "'y'"},
  };
  for (const Case& c : cases) {
    Model m;
    c.damage(m.program, m.program["graph_module"]["graph"]);
    expect_error(import_it(m), c.code, c.part, c.what);
  }
  std::vector<Entry> all = Model().entries();
  all[3].bytes = std::string(200000, '[');
  expect_error(import_entries(all), M, "no valid JSON", "deep nesting");
  all[3].bytes = std::string("{\"graph_module\": \0}", 19);
  expect_error(import_entries(all), M, "no valid JSON", "zero byte");
}

} // namespace
} // namespace tessera::fx_test
