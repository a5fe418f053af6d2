// Runs the command as a shell would, in a folder of its own.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <vector>

namespace tessera::command_test {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

inline const std::string kSeeds = TESSERA_SOURCE_DIR "/tests/fuzz/seeds/";

inline std::string read_text(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

struct Outcome {
  int code = -1;
  std::string out, err;
};

class Command : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tessera-command-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] static std::string model(const std::string& name) { return kSeeds + "import/" + name + ".onnx"; }

  // Runs the command in the test's folder, with a cache of its own. Arguments are for the shell.
  Outcome run(const std::string& arguments) {
    std::string line = "cd '" + folder_ + "' && TESSERA_CACHE_DIR='" + folder_ +
                       "/cache' '" TESSERA_BINARY_DIR "/bin/tessera' " + arguments + " >out.txt 2>err.txt </dev/null";
    int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(path("out.txt")), read_text(path("err.txt"))};
  }
  Outcome expect(int code, const std::string& arguments, const std::vector<std::string>& texts = {}) {
    Outcome o = run(arguments);
    EXPECT_EQ(o.code, code) << arguments << "\n" << o.out << o.err;
    for (const auto& t : texts)
      EXPECT_NE((o.out + o.err).find(t), std::string::npos) << arguments << ": no '" << t << "' in\n" << o.out << o.err;
    return o;
  }
  Json json(const std::string& name) const { return Json::parse(read_text(path(name))); }

  std::string folder_;
};

} // namespace tessera::command_test
