// PTX to cubin by both assemblers: what comes out, what they say of the kernel, and their errors.
#include "runtime/cuda/assembler.h"
#include "runtime/cuda/assembler_log.h"
#include "runtime/cuda/code_object.h"
#include "runtime/cuda/cubin_resources.h"
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <thread>

namespace tessera::cuda {
namespace {

const char* kAddOne = R"(.version 8.5
.target sm_90
.address_size 64
.visible .entry add_one(.param .u64 p) {
  .reg .b32 %r<2>;
  .reg .b64 %d<3>;
  .reg .f32 %f<2>;
  .shared .align 4 .b8 room[64];
  ld.param.u64 %d0, [p];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %d1, %r0, 4;
  add.s64 %d0, %d0, %d1;
  ld.global.f32 %f0, [%d0];
  st.shared.f32 [room], %f0;
  bar.sync 0;
  ld.shared.f32 %f1, [room];
  add.f32 %f0, %f0, %f1;
  st.global.f32 [%d0], %f0;
  ret;
}
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

class Assemblers : public ::testing::TestWithParam<Assembler::Kind> {
protected:
  // The toolkit is a dependency of the build; where only one of the two is installed, that one is tested.
  void SetUp() override {
    auto found = Assembler::find(GetParam());
    if (!found) GTEST_SKIP() << found.error().str();
    assembler_ = *found;
  }
  std::shared_ptr<Assembler> assembler_;
};

TEST_P(Assemblers, YieldACubinAndItsResources) {
  for (const char* arch : {"sm_90", "sm_90a", "sm_100"}) {
    auto cubin = assembler_->assemble(kAddOne, arch);
    ASSERT_TRUE(cubin.ok()) << cubin.error().str();
    ASSERT_GT(cubin->bytes.size(), 64u);
    EXPECT_EQ(std::memcmp(cubin->bytes.data(),
                          "\x7f"
                          "ELF",
                          4),
              0);
    std::string content(cubin->bytes.begin(), cubin->bytes.end());
    EXPECT_NE(content.find(".text.add_one"), std::string::npos);
    EXPECT_GT(cubin->registers, 3) << cubin->log;
    EXPECT_LT(cubin->registers, 40) << cubin->log;
    EXPECT_EQ(cubin->spill_bytes, 0) << cubin->log;
    EXPECT_EQ(cubin->stack_bytes, 0) << cubin->log;
    EXPECT_GE(cubin->shared_bytes, 64) << cubin->log; // newer GPUs reserve some
  }
}

// The cubin has the resources that nvJitLink 13.0 does not print.
TEST_P(Assemblers, YieldACubinThatTellsItsResourcesItself) {
  // 48 values that are there at the same time.
  std::string loads, stores;
  for (int i = 0; i < 48; ++i) {
    const std::string n = std::to_string(i), at = "[%a+" + std::to_string(4 * i) + "]";
    loads += "ld.volatile.global.b32 %v" + n + ", " + at + ";\n";
    stores = "st.volatile.global.b32 " + at + ", %v" + n + ";\n" + stores;
  }
  auto kernel = [&](const std::string& bound) {
    return ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry many(.param .u64 p)\n" + bound +
           "{\n.reg .b64 %a;\n.reg .b32 %v<48>;\nld.param.u64 %a, [p];\n" + loads + stores + "ret;\n}\n";
  };
  for (const char* bound : {"", ".maxnreg 24\n"}) {
    auto cubin = assembler_->assemble(kernel(bound), "sm_90");
    ASSERT_TRUE(cubin.ok()) << cubin.error().str();
    Cubin bare;
    bare.bytes = cubin->bytes;
    read_missing_resources(kernel(bound), bare);
    EXPECT_EQ(bare.registers, cubin->registers);
    EXPECT_EQ(bare.stack_bytes, cubin->stack_bytes);
    EXPECT_EQ(bare.spill_bytes > 0, *bound != '\0');
    EXPECT_GE(bare.spill_bytes, cubin->spill_bytes);
    // Any even end, and any odd byte changed: numbers or none.
    for (size_t i = 0; i < cubin->bytes.size(); ++i) {
      Cubin broken;
      broken.bytes = cubin->bytes;
      if (i % 2) {
        broken.bytes[i] = static_cast<char>(~broken.bytes[i]);
      } else {
        broken.bytes.resize(i);
      }
      read_missing_resources(kernel(bound), broken);
      EXPECT_GE(broken.registers, -1);
      EXPECT_EQ(broken.spill_bytes, broken.stack_bytes);
    }
  }
}

// An array that a kernel has anyway, as sine has for large arguments, is none of its registers.
TEST_P(Assemblers, YieldACubinWhoseOwnArraysAreNoSpills) {
  const std::string ptx = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry look_up(.param .u64 p) {
.local .align 4 .b8 table[28];
.reg .b64 %a, %t; .reg .b32 %i, %v;
ld.param.u64 %a, [p];
ld.volatile.global.b32 %i, [%a];
mov.u64 %t, table;
st.local.b32 [%t], %i; st.local.b32 [%t+4], %i; st.local.b32 [%t+24], 7;
mul.wide.u32 %a, %i, 4;
add.u64 %t, %t, %a;
ld.local.b32 %v, [%t];
ld.param.u64 %a, [p];
st.volatile.global.b32 [%a], %v;
ret;
})";
  auto cubin = assembler_->assemble(ptx, "sm_90");
  ASSERT_TRUE(cubin.ok()) << cubin.error().str();
  Cubin bare;
  bare.bytes = cubin->bytes;
  read_missing_resources(ptx, bare);
  EXPECT_EQ(bare.stack_bytes, cubin->stack_bytes); // some assemblers do without
  EXPECT_EQ(bare.spill_bytes, 0);
}

TEST_P(Assemblers, TellTheLineOfAnError) {
  auto cubin = assembler_->assemble(replaced(kAddOne, "add.f32", "addd.f32"), "sm_90");
  ASSERT_FALSE(cubin.ok());
  EXPECT_EQ(cubin.error().code, ErrorCode::CodegenError);
  auto text = cubin.error().str();
  EXPECT_NE(text.find("line 17"), std::string::npos) << text;
  EXPECT_NE(text.find("addd.f32 %f0, %f0, %f1;"), std::string::npos) << text;
  EXPECT_NE(text.find(assembler_->version()), std::string::npos) << text;
}

TEST_P(Assemblers, RefuseTextThatIsNoPtx) {
  for (const char* text : {"", "hello"}) {
    auto cubin = assembler_->assemble(text, "sm_90");
    ASSERT_FALSE(cubin.ok());
    EXPECT_EQ(cubin.error().code, ErrorCode::CodegenError);
  }
}

TEST_P(Assemblers, RefuseArchitectures) {
  auto unknown = assembler_->assemble(kAddOne, "sm_12");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::CodegenError);
  EXPECT_NE(unknown.error().str().find("sm_12"), std::string::npos);
  auto older = assembler_->assemble(kAddOne, "sm_80"); // than the PTX's target
  ASSERT_FALSE(older.ok());
  EXPECT_EQ(older.error().code, ErrorCode::CodegenError);
  for (const char* arch : {"", "sm_", "sm90", "sm_90 -g", "sm_90b"}) {
    auto cubin = assembler_->assemble(kAddOne, arch);
    ASSERT_FALSE(cubin.ok()) << arch;
    EXPECT_EQ(cubin.error().code, ErrorCode::Usage) << arch;
  }
}

TEST_P(Assemblers, WorkOnManyThreads) {
  std::vector<std::thread> threads;
  std::vector<std::string> wrong(8);
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3; ++i) {
        std::string name = "kernel_" + std::to_string(t) + "_" + std::to_string(i);
        bool broken = i == 1;
        auto text = replaced(kAddOne, "add_one", name);
        auto cubin = assembler_->assemble(broken ? replaced(text, "bar.sync 0", "bar.sink 0") : text, "sm_90");
        if (cubin.ok() == broken) wrong[t] = "wrong outcome of " + name;
        if (cubin.ok() && std::string(cubin->bytes.begin(), cubin->bytes.end()).find(name) == std::string::npos)
          wrong[t] = "another thread's cubin for " + name;
      }
    });
  for (auto& t : threads) t.join();
  for (const auto& w : wrong) EXPECT_EQ(w, "");
}
INSTANTIATE_TEST_SUITE_P(Both, Assemblers, ::testing::Values(Assembler::Kind::NvJitLink, Assembler::Kind::Ptxas),
                         [](const auto& info) { return std::string(name(info.param)); });

class AssemblerChoice : public ::testing::Test {
protected:
  void TearDown() override { unsetenv("TESSERA_ASSEMBLER"); }
};

TEST_F(AssemblerChoice, IsTakenFromTheEnvironment) {
  ASSERT_TRUE(Assembler::find().ok()); // the toolkit is there where this is built
  setenv("TESSERA_ASSEMBLER", "none", 1);
  auto none = Assembler::find();
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::UnsupportedFeature);
  EXPECT_NE(none.error().str().find("driver"), std::string::npos); // what happens instead
  setenv("TESSERA_ASSEMBLER", "/nowhere/ptxas", 1);
  auto nowhere = Assembler::find();
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().code, ErrorCode::UnsupportedFeature);
  EXPECT_NE(nowhere.error().str().find("/nowhere/ptxas"), std::string::npos);
  setenv("TESSERA_ASSEMBLER", "/bin/true", 1);
  auto other = Assembler::find();
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().str().find("version"), std::string::npos);
  setenv("TESSERA_ASSEMBLER", "nvcc", 1);
  auto wrong = Assembler::find();
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::Usage);
  setenv("TESSERA_ASSEMBLER", "ptxas", 1);
  auto program = Assembler::find();
  ASSERT_TRUE(program.ok()) << program.error().str();
  EXPECT_EQ((*program)->version().rfind("ptxas ", 0), 0u);
}

TEST(AssemblerLog, IsRead) {
  Cubin c;
  read_resources("ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
                 "ptxas info    : Function properties for k\n"
                 "    16 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads\n"
                 "ptxas info    : Used 168 registers, used 1 barriers, 16 bytes cumulative stack size, 512 bytes smem\n"
                 "ptxas info    : Function properties for __nv_erff\n"
                 "    0 bytes stack frame, 8 bytes spill stores, 0 bytes spill loads\n",
                 c);
  EXPECT_EQ(c.registers, 168);
  EXPECT_EQ(c.spill_bytes, 32);
  EXPECT_EQ(c.stack_bytes, 16);
  EXPECT_EQ(c.shared_bytes, 512);
  EXPECT_EQ(refused_by_log("ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
                           "serialized\n")
                .rfind("ptxas info : (C7510)", 0),
            0u);
  EXPECT_EQ(refused_by_log("ptxas info : (C8000) something else\nC75 times\n"), "");
}

TEST(CodeObjects, AreReadAsWritten) {
  CodeObject o;
  o.symbol = "tsr_1";
  o.ptx_arch = "sm_90";
  o.ptx = kAddOne;
  o.cubin_arch = "sm_90";
  o.cubin = {'\x7f', 'E', 'L', 'F', 0, 1};
  o.threads = 256;
  o.shared_bytes = 4096;
  o.registers = 32;
  o.spill_bytes = 0;
  o.stack_bytes = 8;
  o.dependent_launch = true;
  o.assembler = "ptxas 13.0.88";
  auto bytes = encode(o);
  auto again = decode(bytes);
  ASSERT_TRUE(again.ok()) << again.error().str();
  EXPECT_EQ(*again, o);
  CodeObject ptx_alone;
  ptx_alone.symbol = "k";
  ptx_alone.ptx = "text";
  EXPECT_EQ(*decode(encode(ptx_alone)), ptx_alone);
  // Any byte changed, any length: refused.
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 4);
    auto d = decode(changed);
    ASSERT_FALSE(d.ok()) << i;
    EXPECT_EQ(d.error().code, ErrorCode::CorruptFile);
    ASSERT_FALSE(decode(std::span<const char>(bytes).first(i)).ok()) << i;
  }
  bytes.push_back(0);
  EXPECT_FALSE(decode(bytes).ok());
}

} // namespace
} // namespace tessera::cuda
