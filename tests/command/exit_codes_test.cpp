// Every subcommand answers the same mistake with the same exit code, that of the table.
#include "../../tools/command/exit_codes.h"
#include "harness.h"
#include "tests/onnx/model_maker.h"
#include <map>

namespace tessera::command_test {
namespace {

using namespace command;
using onnx_test::Maker;

struct Subcommand {
  std::string line;                 // a call that succeeds; M: the model
  std::vector<std::string> outputs; // options that name what it writes; "-o" replaces what `line` has
  bool model = true;                // M is read as a model
  bool sizes = true;                // takes --shape
  bool device = true;               // needs the device that --device names
  bool unsupported = true;          // an operator without a definition is an error
};

// By name. `tessera --help` lists no other subcommands.
const std::map<std::string, Subcommand> kSubcommands = {
    {"run", {"run M", {"--json", "--output-dir"}}},
    {"inspect", {"inspect M", {"--json"}, true, false, false, false}},
    {"explain", {"explain M", {"--json", "-o", "--save-plan"}}},
    {"diff", {"diff M M", {"--json", "-o"}}},
    {"compile", {"compile M -o m.tsr", {"--json", "-o", "--save-plan"}}},
    {"bench", {"bench M --seconds 0 --no-cold", {"--json", "--trace"}}},
    {"tune", {"tune M --budget 1", {"--json", "--log"}}},
    {"calibrate", {"calibrate --list", {"--json", "-o"}, false, false, false, false}},
    {"test", {"test folder", {"--json"}, false, false, false, false}},
    {"debug", {"debug M", {"--json"}}},
    {"reduce", {"reduce M --fails false -o small", {"--json", "-o"}, true, true, false}},
    {"opt", {"opt M --passes cse", {"--json", "-o"}, true, true, false}},
    {"ops", {"ops M", {"--json", "--markdown"}, true, true, false}},
    {"cache", {"cache list", {"--json"}, false, false, false, false}},
    {"triton", {"triton M -o repository", {"--json", "-o"}, true, true, false}},
    {"kernel", {"kernel copy.tile", {"-o"}, false, false, false, false}},
};

class ExitCodes : public Command {
protected:
  void SetUp() override {
    Command::SetUp();
    fs::copy_file(model("relu"), path("relu.onnx"));
    fs::create_directory(path("folder"));
    std::ofstream(path("copy.tile")) << "tile.kernel @copy(%x: ptr<f32>, %y: ptr<f32> written) {\n"
                                        "  %v = load %x[0] : f32\n  store %y[0] = %v\n}\n";
    std::ofstream(path("cut.onnx"), std::ios::binary) << read_text(model("mlp")).substr(0, 60);
    Maker foreign;
    foreign.input("x", {"b", 4}).output("y", {"b", 4}).add("NoSuchOperator", {"x"}, {"y"});
    std::ofstream(path("foreign.onnx"), std::ios::binary) << foreign.bytes();
  }
  static std::string with(std::string line, const std::string& model) {
    for (size_t at = 0; (at = line.find(" M", at)) != std::string::npos; at += 2) line.replace(at, 2, " " + model);
    return line;
  }
};

TEST_F(ExitCodes, EverySubcommandIsHere) {
  const std::string help = run("--help").out;
  std::istringstream lines(help.substr(help.find("SUBCOMMANDS:") == std::string::npos ? help.find("Subcommands:")
                                                                                      : help.find("SUBCOMMANDS:")));
  std::set<std::string> listed;
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line) && line.starts_with("  ");)
    if (line[2] != ' ') listed.insert(line.substr(2, line.find(' ', 2) - 2));
  std::set<std::string> known;
  for (const auto& [name, sub] : kSubcommands) known.insert(name);
  EXPECT_EQ(listed, known);
}

TEST_F(ExitCodes, HelpAndReadmeShowTheTable) {
  const std::string readme = read_text(TESSERA_SOURCE_DIR "/tools/command/README.md");
  const std::string help = run("--help").out;
  for (const ExitCodeInfo& row : kExitCodes) {
    const std::string code = std::to_string(row.code), meaning(row.meaning);
    EXPECT_NE(readme.find("| " + code + " | " + meaning + " |\n"), std::string::npos) << code;
    EXPECT_NE(help.find(code + " " + meaning), std::string::npos) << code;
    if (row.code == kDiffers) continue; // each has its own words for it, or none
    for (const auto& [name, sub] : kSubcommands)
      EXPECT_NE(run(name + " --help").out.find(code + " " + meaning), std::string::npos) << name;
  }
}

TEST_F(ExitCodes, OfTheSameMistakeAreTheSame) {
  for (const auto& [name, sub] : kSubcommands) {
    const std::string good = with(sub.line, "relu.onnx");
    expect(kUsage, good + " --no-such-option", {"no option '--no-such-option'"});
    if (sub.model) {
      expect(kBadInput, with(sub.line, "none.onnx"), {"none.onnx"});
      expect(kBadInput, with(sub.line, "cut.onnx"), {"cut off at byte"});
    }
    if (sub.unsupported) expect(kUnsupported, with(sub.line, "foreign.onnx"), {"NoSuchOperator"});
    if (sub.sizes) {
      for (const char* wrong : {"b", "b=-4", "x=4", "x=2x5", "btch=4", "x=2x3x4"})
        expect(kUsage, good + " --shape " + wrong, {"error TES-1"});
    }
    if (sub.device && !fs::exists("/dev/nvidia0"))
      expect(kUnsupported, good + " --device cuda", {"libcuda.so.1", "cannot be used"});
    for (const std::string& option : sub.outputs) {
      const size_t replaced = good.find(" -o ");
      const std::string line = option == "-o" && replaced != std::string::npos ? good.substr(0, replaced) : good;
      expect(kFailed, line + " " + option + " /proc/none/x", {"/proc/none/x", "cannot be written", "nothing was done"});
      expect(kFailed, line + " " + option + " relu.onnx/x", {"relu.onnx/x", "cannot be written"});
    }
  }
  EXPECT_FALSE(fs::exists(path("small")));
  EXPECT_FALSE(fs::exists(path("repository/relu")));
}

// The disk is full only when it is written to.
TEST_F(ExitCodes, OfOutputsThatFailLate) {
  expect(kFailed, "explain relu.onnx -o /dev/full --format json", {"/dev/full", "No space left"});
  expect(kFailed, "run relu.onnx --json /dev/full", {"/dev/full", "No space left"});
}

TEST_F(ExitCodes, OfTooLittleMemory) {
  const int status = std::system(("ulimit -v 3000000; cd '" + folder_ + "' && TESSERA_CACHE_DIR=cache '" +
                                  TESSERA_BINARY_DIR "/bin/tessera' run relu.onnx --device cpu --threads 1 --shape "
                                                     "b=400000000 >out.txt 2>err.txt")
                                     .c_str());
  EXPECT_EQ(WEXITSTATUS(status), kFailed) << read_text(path("err.txt"));
}

} // namespace
} // namespace tessera::command_test
