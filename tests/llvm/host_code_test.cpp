// Loading machine code: objects that our compiler emits run, and bytes that are none are refused (tests/fuzz edits more).
#include "codegen/llvm/host_compiler.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <elf.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>

namespace tessera {
namespace {

// y[i] = pow(x[i], 0.3) / 3: constants in sections of their own, and a function of the mathematical library.
constexpr const char* kText = R"(
tile.kernel @powers(%x: ptr<f32>, %y: ptr<f32> written, %n: i64) config(warps: 4) {
  %r = range 64                                    : tile<[64], i64>
  %in = lt(%r, %n)                                 : tile<[64], bool>
  %v = load %x[%r] mask=%in                        : tile<[64], f32>
  %e = const 0.3                                   : tile<[64], f32>
  %p = pow(%v, %e)                                 : tile<[64], f32>
  %t = const 3                                     : tile<[64], f32>
  %q = div(%p, %t)                                 : tile<[64], f32>
  store %y[%r] = %q mask=%in
}
)";

CompiledObject powers() {
  auto kernel = tile::parse(kText, "test");
  EXPECT_TRUE(kernel.ok()) << (kernel.ok() ? "" : kernel.error().str());
  auto object = compile_host_kernel(*kernel, HostTarget::detect());
  EXPECT_TRUE(object.ok()) << (object.ok() ? "" : object.error().str());
  return std::move(*object);
}

Diagnostic refused(const std::vector<char>& bytes, const std::string& symbol = "powers") {
  const HostObject object{symbol, bytes};
  auto loaded = HostCode::load({&object, 1});
  EXPECT_FALSE(loaded.ok());
  return loaded.ok() ? Diagnostic(ErrorCode::Internal, "it was loaded") : loaded.error();
}

// How /proc/self/maps shows the page of an address: "r-xp".
std::string access_of(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, access) != 3) continue;
    const auto at = reinterpret_cast<unsigned long>(address);
    if (at >= begin && at < end) return access;
  }
  return "";
}

TEST(HostCode, ObjectsRunFromMemoryThatCannotBeWritten) {
  const CompiledObject object = powers();
  auto code = link_host_objects({&object, 1});
  ASSERT_TRUE(code.ok()) << code.error().str();
  const HostKernelFn function = (*code)->find("powers");
  ASSERT_NE(function, nullptr);
  EXPECT_EQ((*code)->find("power"), nullptr);
  EXPECT_EQ(access_of(reinterpret_cast<const void*>(function)), "r-xp");
  std::vector<float> x(50), y(50);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  void* buffers[] = {x.data(), y.data()};
  const int64_t n = 50;
  IndexReport report;
  function(buffers, &n, 0, 1, nullptr, &report);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], std::pow(x[i], 0.3F) / 3, 1e-5) << i;
}

TEST(HostCode, RefusesWhatIsNoObject) {
  EXPECT_EQ(refused({}).code, ErrorCode::CorruptFile);
  EXPECT_EQ(refused(std::vector<char>(100, 'x')).code, ErrorCode::CorruptFile);
  const std::vector<char> good = powers().object;
  for (size_t bytes = 0; bytes < good.size(); bytes += 7)
    EXPECT_EQ(refused({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes)}).code, ErrorCode::CorruptFile)
        << bytes;
  const Diagnostic other = refused(good, "roots");
  EXPECT_NE(other.str().find("\"roots\" cannot be loaded: it has no function of that name"), std::string::npos)
      << other.str();
}

// Each relocation of an object, changed by `edit`.
std::vector<char> with_relocations(std::vector<char> bytes, const std::function<void(Elf64_Rela&)>& edit) {
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  int relocations = 0;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, bytes.data() + header.e_shoff + i * sizeof section, sizeof section);
    for (size_t at = 0; section.sh_type == SHT_RELA && at < section.sh_size; at += sizeof(Elf64_Rela)) {
      Elf64_Rela r;
      std::memcpy(&r, bytes.data() + section.sh_offset + at, sizeof r);
      edit(r);
      std::memcpy(bytes.data() + section.sh_offset + at, &r, sizeof r);
      ++relocations;
    }
  }
  EXPECT_GT(relocations, 0);
  return bytes;
}

TEST(HostCode, RefusesRelocationsThatLeaveTheirSectionsOrAreOfOtherKinds) {
  const std::vector<char> good = powers().object;
  const auto told = [&](const std::function<void(Elf64_Rela&)>& edit) {
    const Diagnostic d = refused(with_relocations(good, edit));
    EXPECT_EQ(d.code, ErrorCode::CorruptFile);
    return d.message;
  };
  for (const uint64_t offset : {uint64_t{1} << 20, ~uint64_t{0}, ~uint64_t{2}})
    EXPECT_NE(told([&](Elf64_Rela& r) { r.r_offset = offset; }).find("outside of its section"), std::string::npos);
  EXPECT_NE(told([](Elf64_Rela& r) { r.r_addend = int64_t{1} << 40; }).find("2 GiB"), std::string::npos);
  EXPECT_NE(told([](Elf64_Rela& r) { r.r_info = ELF64_R_INFO(1 << 20, R_X86_64_PC32); }).find("lacks"),
            std::string::npos);
  EXPECT_NE(told([](Elf64_Rela& r) {
              r.r_info = ELF64_R_INFO(ELF64_R_SYM(r.r_info), R_X86_64_GOTPCREL);
            }).find("relocations of kind 9"),
            std::string::npos);
}

TEST(HostCode, AFunctionThatTheSystemLacksIsNamed) {
  std::vector<char> bytes = powers().object;
  const std::string_view name = "pow";
  auto at = std::search(bytes.begin() + sizeof(Elf64_Ehdr), bytes.end(), name.begin(), name.end());
  while (at != bytes.end() && *(at + 3) == 'e') at = std::search(at + 1, bytes.end(), name.begin(), name.end());
  ASSERT_NE(at, bytes.end());
  std::copy_n("qqq", 3, at);
  const Diagnostic d = refused(bytes);
  EXPECT_EQ(d.code, ErrorCode::UnsupportedFeature);
  EXPECT_NE(d.message.find("qqq"), std::string::npos) << d.message;
}

} // namespace
} // namespace tessera
