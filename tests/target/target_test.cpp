// Target files: what is read is what is printed, and every way to break one is one error that says where.
#include "base/file.h"
#include "codegen/target/select.h"
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <set>

namespace tessera::test {
namespace {

std::string path_of(const std::string& name) { return TESSERA_SOURCE_DIR "/codegen/target/data/" + name + ".json"; }
std::string text_of(const std::string& name) {
  auto text = read_file(path_of(name));
  EXPECT_TRUE(text.ok()) << text.error().str();
  return text.ok() ? *text : "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Target, ShippedFilesReadBackAsTheyArePrinted) {
  EXPECT_GE(shipped_targets().size(), 7u);
  for (const Target& t : shipped_targets()) {
    if (std::getenv("TESSERA_BLESS") != nullptr) {
      ASSERT_TRUE(write_file(path_of(t.name), {print_target(t)}).ok());
    }
    EXPECT_EQ(print_target(t), text_of(t.name)) << t.name;
    EXPECT_TRUE(verify_target(t, t.name).ok());
    EXPECT_EQ(t.is_gpu(), !t.gpu.empty());
  }
}

TEST(Target, FieldsHaveOneNameAndBoundsInOrder) {
  std::set<std::string_view> names;
  for (const TargetField& f : target_fields()) {
    EXPECT_TRUE(names.insert(f.name).second) << f.name;
    EXPECT_LT(f.least, f.most) << f.name;
    EXPECT_FALSE(f.unit.empty() || f.meaning.empty()) << f.name;
    // A figure that a device does not have is 0.
    for (const Target& t : shipped_targets())
      EXPECT_TRUE(f.applies(t.kind) || f.get(t) == 0) << t.name << ' ' << f.name;
  }
}

TEST(Target, BrokenFilesAreOneErrorThatNamesFileFieldAndValues) {
  struct Case {
    const char *from, *to;
    std::vector<const char*> says;
  };
  const Case cases[] = {
      {"\"multiprocessors\": 132",
       "\"multiprocessor\": 132",
       {"has the field 'multiprocessor'", "did you mean 'multiprocessors'?"}},
      {"\"multiprocessors\": 132,", "", {"has no field 'multiprocessors'", "a whole number from 1 to 4096"}},
      {"\"multiprocessors\": 132",
       "\"multiprocessors\": 0",
       {"target.measured.multiprocessors is 0", "from 1 to 4096"}},
      {"\"multiprocessors\": 132", "\"multiprocessors\": 1.5", {"is 1.5", "a whole number"}},
      {"\"multiprocessors\": 132", "\"multiprocessors\": \"132\"", {"is \"132\"", "a whole number"}},
      {"\"multiprocessors\": 132", "\"multiprocessors\": [1]", {"is array", "a whole number"}},
      {"\"multiprocessors\": 132", "\"multiprocessors\": 132, \"cores\": 4", {"has the field 'cores'", "cuda target"}},
      {"\"multiprocessors\": 132", "\"multiprocessors\": 132, \"kernel_us\": 4", {"kernel_us", "given twice"}},
      {"\"multiprocessors\": 132",
       "\"multiprocessors\": 132, \"multiprocessors\": 66",
       {"'multiprocessors' is given twice"}},
      {"\"kernel_us\": 2.752", "\"kernel_us\": 1e300", {"kernel_us is 1e+300", "0.1 to 10000 (us)"}},
      {"\"shared_bytes\": 232448",
       "\"shared_bytes\": 233000",
       {"shared_bytes + reserved_shared_bytes is 234024", "at most multiprocessor_shared_bytes, 233472"}},
      {"\"kind\": \"cuda\"", "\"kind\": \"tpu\"", {"kind is \"tpu\"", "\"cpu\" or \"cuda\""}},
      {"\"kind\": \"cuda\",", "", {"has no 'kind'"}},
      {"\"measured\"", "\"guessed\"", {"has 'guessed'", "published, measured or estimated"}},
      {"{", "[", {"no JSON"}},
  };
  const std::string good = text_of("h200");
  for (const Case& c : cases) {
    auto t = parse_target(replaced(good, c.from, c.to), "my/h200.json");
    ASSERT_FALSE(t.ok()) << c.to;
    EXPECT_EQ(t.error().code, ErrorCode::ParseError);
    for (const char* part : c.says) EXPECT_NE(t.error().str().find(part), std::string::npos) << t.error().str();
    EXPECT_NE(t.error().str().find("my/h200.json"), std::string::npos) << t.error().str();
  }
  for (const char* text : {"", "3", "null", "{}", "{\"name\": 3}"}) EXPECT_FALSE(parse_target(text, "f.json").ok());
}

// Whatever the text, it is a sane target or an error.
TEST(Target, MutatedFilesAreTargetsOrErrors) {
  std::mt19937 random(1);
  const std::string good = text_of("h200");
  const std::string bytes = "{}[],:\"0123456789.e-+ \n\\x";
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (int k = random() % 4; k >= 0; --k) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
      case 0: text[at] = bytes[random() % bytes.size()]; break;
      case 1: text.erase(at, random() % 8); break;
      default: text.insert(at, 1, bytes[random() % bytes.size()]);
      }
    }
    auto t = parse_target(text, "mutated.json");
    EXPECT_TRUE(!t.ok() || verify_target(*t, "mutated.json").ok()) << text;
  }
  EXPECT_FALSE(parse_target(std::string(100000, '['), "deep.json").ok());
}

DeviceFacts gpu(const std::string& name, const std::string& arch, int multiprocessors = 0, double peak = 0) {
  DeviceFacts d;
  d.kind = Target::Kind::Cuda;
  d.gpu = name;
  d.arch = arch;
  d.multiprocessors = multiprocessors;
  d.memory_peak_bytes_per_us = peak;
  return d;
}

TEST(Target, TheGpusNameThenTheArchitectureChooses) {
  struct Case {
    DeviceFacts device;
    const char* target;
    bool warns;
  };
  const Case cases[] = {
      {gpu("NVIDIA H200", "sm_90", 132, 4.917e6), "h200", false},
      {gpu("NVIDIA H100 80GB HBM3", "sm_90", 132), "h100", false},
      {gpu("NVIDIA A100-SXM4-80GB", "sm_80", 108), "a100", false},
      {gpu("NVIDIA A100-SXM4-40GB", "sm_80", 108, 1.555e6), "a100", true},
      {gpu("", "sm_90"), "h200", false},
      {gpu("", "sm_90a"), "h200", false},
      {gpu("", "sm_80"), "a100", false},
      {gpu("", "sm_89"), "rtx4090", false},
      {gpu("", "sm_86"), "rtx4090", true},
      {gpu("NVIDIA B200", "sm_100", 148, 8e6), "h200", true},
      {gpu("NVIDIA L4", "sm_89", 58, 0.3e6), "l40s", true},
      {gpu("NVIDIA GH200 480GB", "sm_90", 132, 3.9e6), "h100", true},
  };
  for (const Case& c : cases) {
    auto chosen = choose_target("", c.device);
    ASSERT_TRUE(chosen.ok()) << chosen.error().str();
    EXPECT_EQ(chosen->target.name, c.target) << c.device.gpu << c.device.arch;
    EXPECT_EQ(!chosen->warning.empty(), c.warns) << chosen->warning;
    EXPECT_TRUE(verify_target(chosen->target, "chosen").ok());
  }
}

TEST(Target, AnUnknownGpuHasTheNearestFileScaled) {
  DeviceFacts d = gpu("NVIDIA GeForce RTX 4070", "sm_89", 64, 0.504e6);
  d.l2_bytes = 36 << 20;
  auto chosen = choose_target("", d);
  ASSERT_TRUE(chosen.ok());
  const Target &t = chosen->target, &base = shipped_target(t.name);
  EXPECT_EQ(base.arch, "sm_89");
  const double size = 64.0 / base.multiprocessors, memory = 0.504e6 / base.memory_peak_bytes_per_us;
  EXPECT_EQ(t.multiprocessors, 64);
  EXPECT_EQ(t.l2_bytes, 36 << 20);
  EXPECT_DOUBLE_EQ(t.memory_bytes_per_us, base.memory_bytes_per_us * memory);
  EXPECT_DOUBLE_EQ(t.l2_bytes_per_us, base.l2_bytes_per_us * size);
  EXPECT_EQ(t.saturating_bytes, std::llround(static_cast<double>(base.saturating_bytes) * memory / size));
  EXPECT_EQ(chosen->why, t.name + ", scaled to 64 multiprocessors, 504 GB/s of memory, 37 MB of L2");
  EXPECT_NE(chosen->warning.find("tessera calibrate"), std::string::npos) << chosen->warning;
}

TEST(Target, TheVariableChoosesForDevicesOfItsKind) {
  ::setenv("TESSERA_TARGET", "a100", 1);
  EXPECT_EQ(choose_target("", gpu("NVIDIA H200", "sm_90"))->target.name, "a100");
  EXPECT_EQ(choose_target("h100", gpu("NVIDIA H200", "sm_90"))->target.name, "h100");
  EXPECT_FALSE(choose_target("", DeviceFacts{.vector_bytes = 32})->target.is_gpu());
  ::setenv("TESSERA_TARGET", "none", 1);
  EXPECT_FALSE(choose_target("", DeviceFacts{.vector_bytes = 32}).ok());
  ::unsetenv("TESSERA_TARGET");
}

TEST(Target, NamesAndFilesAreChosen) {
  EXPECT_EQ(choose_target("a100", gpu("NVIDIA H200", "sm_90"))->target.name, "a100");
  EXPECT_EQ(choose_target(path_of("rtx4090"), gpu("", "sm_90"))->target.name, "rtx4090");
  auto unknown = choose_target("a10", gpu("", "sm_80"));
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::Usage);
  for (const char* part :
       {"no target is called 'a10'", "did you mean 'a100'?", "h200, h100, a100, rtx4090, l40s, avx512"})
    EXPECT_NE(unknown.error().str().find(part), std::string::npos) << unknown.error().str();
  EXPECT_EQ(choose_target("avx512", gpu("", "sm_80")).error().code, ErrorCode::Usage);
  EXPECT_EQ(choose_target("nowhere/x.json", gpu("", "sm_80")).error().code, ErrorCode::FileError);
  for (auto [bytes, name] : {std::pair(64, "avx512"), std::pair(32, "avx2"), std::pair(16, "portable")}) {
    DeviceFacts host;
    host.vector_bytes = bytes;
    EXPECT_EQ(choose_target("", host)->target.name, name);
    EXPECT_EQ(choose_target("", host)->target.vector_bytes, bytes);
  }
}

} // namespace
} // namespace tessera::test
