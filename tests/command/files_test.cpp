// The command refuses at once what is no regular file, whatever the file was to be.
#include "base/tensor.h"
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

const std::string kSeeds = TESSERA_SOURCE_DIR "/tests/fuzz/seeds/";

class CommandFiles : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tessera-command-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    for (const char* name : {"fifo", "fifo.onnx", "fifo.tsr", "fifo.npy", "w.bin"})
      ASSERT_EQ(::mkfifo(path(name).c_str(), 0600), 0);
    fs::create_directory(path("folder"));
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  // A command that waits is ended, with code 124.
  std::string expect(int code, const std::string& arguments, const std::vector<std::string>& texts) const {
    std::string line = "cd '" + folder_ + "' && TESSERA_CACHE_DIR='" + folder_ +
                       "/cache' timeout 60 '" TESSERA_BINARY_DIR "/bin/tessera' " + arguments +
                       " >out.txt 2>&1 </dev/null";
    int status = std::system(line.c_str());
    std::ostringstream out;
    out << std::ifstream(path("out.txt")).rdbuf();
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, code) << arguments << "\n" << out.str();
    for (const auto& t : texts)
      EXPECT_NE(out.str().find(t), std::string::npos) << arguments << ": no '" << t << "' in\n" << out.str();
    return out.str();
  }
  std::string folder_;
};

TEST_F(CommandFiles, ThatAreFifosAreRefusedAtOnce) {
  const std::string relu = "'" + kSeeds + "import/relu.onnx'", is = "is a FIFO, a regular file is expected";
  fs::copy_file(kSeeds + "import/external.onnx", path("external.onnx")); // its weights are in w.bin
  expect(4, "run fifo.onnx", {"fifo.onnx", is});
  expect(4, "run fifo.tsr", {"fifo.tsr", is});
  expect(4, "run folder", {"folder", "is a folder"});
  expect(4, "run /dev/null", {"/dev/null", "is a character device"});
  expect(4, "run external.onnx", {"w.bin", is});
  expect(4, "run " + relu + " --input x=fifo.npy", {"fifo.npy", is});
  expect(4, "opt fifo", {"fifo", is});
  expect(4, "tune --merge fifo", {"fifo", is});
}

TEST_F(CommandFiles, StandardOutputOnAFullDiskIsAnError) {
  const int status =
      std::system(("'" TESSERA_BINARY_DIR "/bin/tessera' opt --list >/dev/full 2>'" + path("error.txt") + "'").c_str());
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 5);
  std::ostringstream said;
  said << std::ifstream(path("error.txt")).rdbuf();
  EXPECT_NE(said.str().find("standard output: cannot write: No space left"), std::string::npos) << said.str();
}

TEST_F(CommandFiles, AreNotWrittenToFifosThatNobodyReads) {
  const std::string relu = "'" + kSeeds + "import/relu.onnx'";
  expect(5, "explain " + relu + " -o fifo", {"fifo", "is a FIFO", "that somebody reads"});
  expect(5, "explain " + relu + " -o folder", {"folder", "is a folder"});
  expect(5, "compile " + relu + " -o fifo", {"fifo", "is a FIFO"});
  expect(5, "compile " + relu + " -o folder", {"folder", "is a folder"});
  expect(5, "run " + relu + " --shape b=2 --json fifo", {"fifo", "is a FIFO"});
  expect(0, "explain " + relu + " -o /dev/null", {});
  EXPECT_TRUE(fs::is_fifo(path("fifo")));
}

// A cache that others may write is reported once, and the command does without.
TEST_F(CommandFiles, ACacheOfOthersIsToldOfOnce) {
  const std::string run = "run '" + kSeeds + "import/relu.onnx' --shape b=2";
  expect(0, run, {});
  ASSERT_EQ(::chmod(path("cache").c_str(), 0777), 0);
  const std::string out = expect(0, run, {"warning:", path("cache"), "mode 0777", "is not trusted"});
  EXPECT_EQ(out.find("warning:"), out.rfind("warning:")) << out;
}

} // namespace
} // namespace tessera
