// Names that forge lines, control terminals or are no text at all, in every place of a model and on the command line,
// through every subcommand: what comes out is escaped, valid UTF-8 and of bounded length.
#include "../onnx/model_maker.h"
#include "harness.h"

namespace tessera {
namespace {

using namespace command_test;
using namespace onnx_test;

// Each name is its own, and has everything in it that must not come out.
std::string hostile(const std::string& name) {
  return name +
         "'\"\nerror TES-0000 forged: line\r\x1b[31m\x7f\xc2\x9b\x31m\xe2\x80\xae\xe2\x80\xa8\xe2\x81\xa6\xff<i>\xc3";
}
std::string in_shell(std::string text) {
  for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) text.replace(at, 1, "'\\''");
  return "'" + text + "'";
}

// The reason why bytes are not fit to be shown to people; "" if they are.
std::string unfit(const std::string& bytes) {
  try {
    (void)nlohmann::json(bytes).dump(); // checks the encoding
  } catch (const nlohmann::json::exception& e) {
    return e.what();
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto c = static_cast<unsigned char>(bytes[i]);
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) return "control character " + std::to_string(c);
    if (c == 0xc2 && static_cast<unsigned char>(bytes[i + 1]) < 0xa0) return "C1";
    for (const char* other : {"\xe2\x80\xa8", "\xe2\x80\xae", "\xe2\x81\xa6"})
      if (bytes.compare(i, 3, other) == 0) return "a separator or a bidirectional control";
  }
  if (bytes.starts_with("error TES-0000") || bytes.find("\nerror TES-0000") != std::string::npos)
    return "a forged line";
  return "";
}

class HostileText : public Command {
protected:
  // Runs and checks both streams and the files named.
  Outcome check(int code, const std::string& arguments, const std::vector<std::string>& files = {}) {
    Outcome o = run(arguments);
    EXPECT_EQ(o.code, code) << arguments << "\n" << o.out << o.err;
    EXPECT_EQ(unfit(o.out), "") << arguments << "\n" << o.out;
    EXPECT_EQ(unfit(o.err), "") << arguments << "\n" << o.err;
    for (const auto& f : files) EXPECT_EQ(unfit(read_text(path(f))), "") << arguments << ": " << f;
    return o;
  }
  void write(const std::string& name, const Maker& model) {
    std::ofstream(path(name), std::ios::binary) << model.bytes();
  }
};

// out = f(relu(x * w)) + sum, rows gathered by ids: kernels, a library call, a function, a host operator.
Maker hostile_model() {
  Maker m;
  m.model.set_producer_name(hostile("producer"));
  m.graph().set_name(hostile("graph"));
  m.import(hostile("domain"), 1);
  const std::string dim = hostile("dim");
  m.input(hostile("x"), {dim.c_str(), 4});
  m.input(hostile("ids"), {3}, proto::TensorProto::INT64);
  m.weight(float_tensor(hostile("w"), {4, 5}, std::vector<float>(20, 0.5f)));
  m.weight(float_tensor(hostile("table"), {7, 5}, std::vector<float>(35, 0.25f)));
  auto& f = *m.model.add_functions();
  f.set_name(hostile("function"));
  f.set_domain(hostile("domain"));
  f.add_input(hostile("formal"));
  f.add_output(hostile("result"));
  auto* import = f.add_opset_import();
  import->set_domain("");
  import->set_version(17);
  *f.add_node() = node("Exp", {hostile("formal")}, {hostile("result")});
  m.add("MatMul", {hostile("x"), hostile("w")}, {hostile("product")});
  m.add("Relu", {hostile("product")}, {hostile("relu")});
  m.add(hostile("function"), {hostile("relu")}, {hostile("called")}, {}, hostile("domain"));
  m.add("Softmax", {hostile("called")}, {hostile("y")}, {int_attribute("axis", -1)});
  m.add("Gather", {hostile("table"), hostile("ids")}, {hostile("rows")});
  m.add("NonZero", {hostile("rows")}, {hostile("places")});
  m.output(hostile("y")).output(hostile("rows")).output(hostile("places"));
  return m;
}

TEST_F(HostileText, EveryCommand) {
  const std::string name = hostile("model") + ".onnx", model = in_shell(name);
  write(name, hostile_model());
  check(0,
        "run " + model + " --shape " + in_shell(hostile("x") + "=2x4") + " --profile --json run.json --output-dir " +
            in_shell(hostile("out")),
        {"run.json"});
  check(0, "run " + model + " --json -");
  check(0, "explain " + model + " --tiles -o r.txt", {"r.txt"});
  check(0, "explain " + model + " --tiles --format json -o r.json --json s.json", {"r.json", "s.json"});
  check(0, "explain " + model + " --tiles --format html -o r.html", {"r.html"});
  check(0, "explain " + model + " --format html");
  check(0, "bench " + model + " --seconds 0 --min-runs 1 --warmup 1 --profile --json b.json", {"b.json"});
  check(0, "tune " + model + " --device cpu --candidates 2 --budget 1 --json t.json", {"t.json"});
  check(0, "tune --list --json l.json", {"l.json"});
  check(0, "compile " + model + " -o " + in_shell(hostile("m") + ".tsr") + " --json c.json", {"c.json"});
  check(0, "compile " + model + " -o m.tsr");
  check(0, "run m.tsr --profile");
  for (const char* format : {"text", "json", "html"}) check(0, std::string("explain m.tsr --tiles --format ") + format);
  check(0, "bench m.tsr --seconds 0 --min-runs 1 --warmup 1 --profile");
  check(2, "tune m.tsr");
  // Names stay exact where JSON can hold them.
  const Json r = json("r.json");
  EXPECT_TRUE(r["inputs"][0]["name"].get<std::string>().starts_with(
      "x'\"\nerror TES-0000 forged: "
      "line\r\x1b[31m\x7f\xc2\x9b\x31m\xe2\x80\xae\xe2\x80\xa8\xe2\x81\xa6\xef\xbf\xbd<i>"))
      << r["inputs"];
}

TEST_F(HostileText, LogAndDumps) {
  write("m.onnx", hostile_model());
  const std::string line = "cd '" + folder_ + "' && TESSERA_LOG=all TESSERA_DUMP_DIR=dump TESSERA_CACHE_DIR=cache '" +
                           TESSERA_BINARY_DIR "/bin/tessera' run m.onnx >out.txt 2>err.txt";
  ASSERT_EQ(std::system(line.c_str()), 0) << read_text(path("err.txt"));
  EXPECT_EQ(unfit(read_text(path("err.txt"))), "") << read_text(path("err.txt"));
  EXPECT_NE(read_text(path("err.txt")).find("fusion: "), std::string::npos);
  int dumps = 0;
  for (const auto& entry : fs::directory_iterator(path("dump"))) {
    ++dumps;
    EXPECT_EQ(unfit(entry.path().string()), "");
    EXPECT_EQ(unfit(read_text(entry.path())), "") << entry.path();
  }
  EXPECT_GT(dumps, 1);
  const std::string channel = "cd '" + folder_ + "' && TESSERA_LOG=" + in_shell(hostile("channel")) + " '" +
                              TESSERA_BINARY_DIR "/bin/tessera' run m.onnx >out.txt 2>err.txt";
  (void)std::system(channel.c_str());
  EXPECT_EQ(unfit(read_text(path("err.txt"))), "") << read_text(path("err.txt"));
  EXPECT_NE(read_text(path("err.txt")).find("unknown channel"), std::string::npos);
}

// The text forms keep every byte of a name, and what they print is read back.
TEST_F(HostileText, TextForms) {
  write("m.onnx", hostile_model());
  check(0, "opt m.onnx -o a.graph", {"a.graph"});
  check(0, "opt a.graph -o b.graph", {"b.graph"});
  EXPECT_EQ(read_text(path("a.graph")), read_text(path("b.graph")));
  EXPECT_NE(read_text(path("a.graph")).find("\\xe2\\x80\\xae"), std::string::npos);
  for (const char* passes : {"default", "default,fuse", "default,tile", "llvm"})
    check(0, std::string("opt m.onnx --passes ") + passes);
  check(2, "opt m.onnx --passes " + in_shell(hostile("pass")));
  std::ofstream(path("bad.graph"), std::ios::binary) << "graph @" << hostile("x");
  check(4, "opt bad.graph");
  std::ofstream(path("bad.tile"), std::ios::binary) << "tile.kernel @" << hostile("x");
  check(4, "opt bad.tile");
}

TEST_F(HostileText, CommandLine) {
  write("m.onnx", hostile_model());
  const std::string h = in_shell(hostile("h")), value = in_shell(hostile("h") + "=" + hostile("v"));
  check(2, h);
  check(4, "run " + h);
  check(2, "run m.onnx " + h);
  check(2, "run m.onnx " + in_shell("--" + hostile("h")));
  for (const char* option : {"--shape", "--input", "--specialize", "--disable-pass", "--device", "--arch", "--on-miss",
                             "--threads", "--tune-share", "--target"}) {
    check(2, std::string("run m.onnx ") + option + " " + h);
    check(2, std::string("run m.onnx ") + option + " " + value);
  }
  for (const char* option : {"--case", "--expect"}) check(4, std::string("run m.onnx ") + option + " " + h);
  check(4, "run m.onnx --input " + in_shell(hostile("x") + "=" + hostile("v")));
  check(2, "run m.onnx --shape " + in_shell(hostile("x") + "=1x2x3") + " --json e.json", {"e.json"});
  check(5, "run m.onnx --json " + in_shell("/proc/none/" + hostile("h")));
  for (const char* command : {"explain", "bench", "tune", "opt"}) check(4, std::string(command) + " " + h);
  check(5, "compile m.onnx -o " + in_shell("none/" + hostile("h")));
  check(5, "explain m.onnx -o " + in_shell("none/" + hostile("h")));
  check(4, "tune --merge " + h);
  check(2, "tune --pin " + h);
  check(4, "test " + h);
}

TEST_F(HostileText, TestFolders) {
  fs::create_directories(path(hostile("t")));
  std::ofstream(path(hostile("t") + "/model.onnx"), std::ios::binary) << hostile_model().bytes();
  check(1, "test . --json t.json -v", {"t.json"});
  Outcome o = check(0, "test . --list");
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 1);
}

// Each model is refused, and the message quotes the name.
TEST_F(HostileText, ErrorsOfModels) {
  const auto refuse = [&](const std::string& what, const std::function<void(Maker&)>& change, int code) {
    Maker m;
    m.input("x", {"b", 4}).output("y");
    change(m);
    write("bad.onnx", m);
    Outcome o = check(code, "run bad.onnx --json e.json", {"e.json"});
    EXPECT_NE(o.err.find("\\u202e"), std::string::npos) << what << "\n" << o.err;
    EXPECT_LT(o.err.size(), 30000U) << what;
  };
  refuse(
      "op type", [](Maker& m) { m.add(hostile("Op"), {"x"}, {"y"}); }, 3);
  refuse(
      "domain", [](Maker& m) { m.import(hostile("d"), 1).add("Relu", {"x"}, {"y"}, {}, hostile("d")); }, 3);
  refuse(
      "attribute", [](Maker& m) { m.add("Relu", {"x"}, {"y"}, {int_attribute(hostile("a"), 1)}); }, 4);
  refuse(
      "value", [](Maker& m) { m.add("Relu", {hostile("v")}, {"y"}); }, 4);
  refuse(
      "einsum", [](Maker& m) { m.add("Einsum", {"x"}, {"y"}, {string_attribute("equation", hostile("e"))}); }, 4);
  refuse(
      "output", [](Maker& m) { m.add("Relu", {"x"}, {"y"}).output(hostile("o")); }, 4);
  refuse(
      "external data",
      [](Maker& m) {
        auto t = float_tensor(hostile("w"), {4}, {1, 2, 3, 4});
        t.clear_float_data();
        t.set_data_location(proto::TensorProto::EXTERNAL);
        auto* entry = t.add_external_data();
        entry->set_key("location");
        entry->set_value(hostile("file"));
        m.weight(std::move(t)).add("Add", {"x", hostile("w")}, {"y"});
      },
      4);
  refuse(
      "function",
      [](Maker& m) {
        m.import("f", 1);
        auto& f = *m.model.add_functions();
        f.set_name(hostile("f"));
        f.set_domain("f");
        f.add_output("r");
        *f.add_node() = node(hostile("f"), {}, {"r"}, {}, "f");
        auto* import = f.add_opset_import();
        import->set_domain("f");
        import->set_version(1);
        m.add(hostile("f"), {}, {"y"}, {}, "f");
      },
      4);
}

// Messages say how much they leave out.
TEST_F(HostileText, MessagesAreBounded) {
  const auto refuse = [&](const std::function<void(Maker&)>& change, const std::string& text) {
    Maker m;
    m.input("x", {"b", 4}).output("y");
    change(m);
    write("bad.onnx", m);
    for (const char* command : {"run bad.onnx", "explain bad.onnx --format json"}) {
      Outcome o = run(command);
      EXPECT_NE(o.code, 0);
      EXPECT_LT(o.err.size(), 20000U) << command;
      EXPECT_NE(o.err.find(text), std::string::npos) << o.err.substr(0, 5000);
    }
  };
  refuse([](Maker& m) { m.add(std::string(5 << 20, 'N'), {"x"}, {"y"}); }, "bytes left out");
  refuse([](Maker& m) { m.add("Einsum", {"x"}, {"y"}, {string_attribute("equation", std::string(100000, 'i'))}); },
         "bytes left out");
  refuse(
      [](Maker& m) { // f0 calls f1 calls f2 ...
        m.import("f", 1);
        for (int i = 0; i < 1000; ++i) {
          auto& f = *m.model.add_functions();
          f.set_name("function" + std::to_string(i));
          f.set_domain("f");
          f.add_input("a");
          f.add_output("r");
          auto* import = f.add_opset_import();
          import->set_domain("f");
          import->set_version(1);
          *f.add_node() = node("function" + std::to_string(i + 1), {"a"}, {"r"}, {}, "f");
        }
        m.add("function0", {"x"}, {"y"}, {}, "f");
      },
      " more)");
}

} // namespace
} // namespace tessera
