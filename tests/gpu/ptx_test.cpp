// The PTX of tile kernels: what is promised of it stands in the text (16-byte accesses, shuffles, barriers), and the
// assembler takes it without spills or local memory. Where no assembler is found, the text alone is looked at.
#include "codegen/llvm/gpu_compiler.h"
#include "harness.h"
#include "runtime/cuda/assembler.h"
#include <regex>
#include <thread>

namespace tessera::test {
namespace {

using tile::ValueId;

int occurrences(const std::string& text, const std::string& pattern) {
  std::regex r(pattern);
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), r), std::sregex_iterator()));
}

GpuKernelCode compile(const tile::Kernel& kernel, const std::string& arch = "sm_90") {
  auto verified = tile::verify(kernel);
  EXPECT_TRUE(verified.ok()) << (verified.ok() ? "" : verified.error().str()) << tile::print(kernel);
  auto code = compile_gpu_kernel(kernel, *GpuTarget::parse(arch));
  EXPECT_TRUE(code.ok()) << (code.ok() ? "" : code.error().str()) << tile::print(kernel);
  return code.ok() ? *code : GpuKernelCode{};
}
GpuKernelCode compile(const std::string& text) {
  auto kernel = tile::parse(text);
  EXPECT_TRUE(kernel.ok()) << (kernel.ok() ? "" : kernel.error().str());
  return kernel.ok() ? compile(*kernel) : GpuKernelCode{};
}

// Nothing where there is no assembler.
std::optional<cuda::Cubin> assemble(const GpuKernelCode& code, const std::string& arch = "sm_90") {
  static auto assembler = cuda::Assembler::find();
  if (!assembler.ok()) return std::nullopt;
  auto cubin = (*assembler)->assemble(code.ptx, arch);
  EXPECT_TRUE(cubin.ok()) << (cubin.ok() ? "" : cubin.error().str()) << code.ptx;
  if (!cubin.ok()) return std::nullopt;
  return *cubin;
}
void expect_in_registers(const GpuKernelCode& code, int at_most) {
  EXPECT_EQ(code.ptx.find(".local"), std::string::npos);
  if (auto cubin = assemble(code)) {
    EXPECT_EQ(cubin->spill_bytes, 0);
    EXPECT_EQ(cubin->stack_bytes, 0);
    EXPECT_LE(cubin->registers, at_most);
  }
}

// Which operators a dtype has.
bool has(ScalarOp op, DType d) {
  bool f = is_float(d), boolean = d == DType::Bool;
  bool logic = op == ScalarOp::And || op == ScalarOp::Or || op == ScalarOp::Xor || op == ScalarOp::Not;
  bool bits = op == ScalarOp::Shl || op == ScalarOp::Shr;
  bool elementary = op >= ScalarOp::Sqrt && op <= ScalarOp::Sigmoid;
  if (boolean) return logic || op == ScalarOp::Eq || op == ScalarOp::Ne || op == ScalarOp::Select;
  if (elementary || op == ScalarOp::IsNan || op == ScalarOp::IsInf) return f;
  if (logic || bits) return !f;
  return true;
}

constexpr DType kArithmetic[] = {DType::F32, DType::F64, DType::I8,  DType::U8,  DType::I16, DType::U16,
                                 DType::I32, DType::U32, DType::I64, DType::U64, DType::Bool};

// One kernel of all operators of a dtype, each storing at a place of its own.
tile::Kernel all_operators(DType d, int* count) {
  KernelMaker m("operators_" + std::string(name(d)));
  auto x = m.in("x", d), c = m.in("c", DType::Bool), y = m.out("y", d), z = m.out("z", DType::Bool);
  auto at = m.add(m.b.range(256), m.mul(m.b.program_id(0), m.i(256)));
  std::vector<ValueId> values;
  for (int i = 0; i < 3; ++i) values.push_back(m.b.load(x, m.add(at, m.i(i * 4096))));
  auto condition = m.b.load(c, at);
  for (int o = static_cast<int>(ScalarOp::Neg); o < static_cast<int>(ScalarOp::Count_); ++o) {
    auto op = static_cast<ScalarOp>(o);
    if (!has(op, d)) continue;
    std::vector<ValueId> args(values.begin(), values.begin() + info(op).arity);
    if (op == ScalarOp::Select) args = {condition, values[0], values[1]};
    m.b.store(info(op).yields_bool ? z : y, m.add(at, m.i(o * 4096)), m.b.scalar(op, args));
    ++*count;
  }
  return std::move(m.k);
}

TEST(Ptx, EveryOperatorOfEveryTypeAssemblesForEveryArchitecture) {
  int operators = 0;
  for (DType d : kArithmetic)
    for (const char* arch : {"sm_80", "sm_90", "sm_90a"}) {
      SCOPED_TRACE(std::string(name(d)) + " " + arch);
      auto kernel = all_operators(d, &operators);
      auto code = compile(kernel, arch);
      EXPECT_NE(code.ptx.find(".target " + std::string(arch)), std::string::npos);
      EXPECT_EQ(code.ptx.find("__nv_"), std::string::npos) << "a function that was not linked";
      assemble(code, arch);
    }
  EXPECT_GT(operators, 3 * 200);
}

TEST(Ptx, EveryConversionAssembles) {
  std::vector<DType> types(std::begin(kArithmetic), std::end(kArithmetic));
  types.push_back(DType::F16);
  types.push_back(DType::BF16);
  for (const char* arch : {"sm_80", "sm_90"})
    for (DType from : types) {
      SCOPED_TRACE(std::string(name(from)) + " " + arch);
      KernelMaker m("casts");
      auto x = m.in("x", from);
      auto v = m.b.load(x, m.b.range(256));
      for (DType to : types) m.b.store(m.out("y" + std::string(name(to)), to), m.b.range(256), m.b.cast(v, to));
      assemble(compile(m.k, arch), arch);
    }
}

TEST(Ptx, AnAssemblerIsHere) {
  auto assembler = cuda::Assembler::find();
  if (!assembler.ok()) GTEST_SKIP() << "the PTX of these tests was not assembled: " << assembler.error().message;
}

TEST(Ptx, UnknownArchitecturesAreRefused) {
  for (const char* arch : {"sm_90b", "sm_75", "sm_100", "", "90"}) {
    auto t = GpuTarget::parse(arch);
    ASSERT_FALSE(t.ok()) << arch;
    EXPECT_EQ(t.error().code, ErrorCode::Usage);
    EXPECT_NE(t.error().message.find("sm_90a"), std::string::npos);
  }
  EXPECT_NE(gpu_compiler_version(*GpuTarget::parse("sm_90")), gpu_compiler_version(*GpuTarget::parse("sm_90a")));
}

TEST(Ptx, KernelInterface) {
  auto code = compile(R"(tile.kernel @iface(%x: ptr<f32>, %y: ptr<f32> written, %n: i64) config(warps: 2) {
  %r = range 64 : tile<[64], i64>
  %in = lt(%r, %n) : tile<[64], bool>
  %v = load %x[%r] mask=%in : tile<[64], f32>
  store %y[%r] = %v mask=%in
})");
  EXPECT_EQ(code.symbol, "iface");
  EXPECT_EQ(code.threads, 64);
  EXPECT_EQ(code.shared_bytes, 0);
  EXPECT_EQ(occurrences(code.ptx, R"(\.param \.u64 (\.ptr [^,\n]*)?iface_param_\d)"), 4); // and the i32 of reports
  EXPECT_NE(code.ptx.find(".entry iface("), std::string::npos);
  EXPECT_EQ(occurrences(code.ptx, R"(\.reqntid 64)"), 1);
}

std::string softmax(int cols, int warps) {
  std::string N = std::to_string(cols), t = "tile<[" + N + "], ";
  return "tile.kernel @softmax(%x: ptr<f16> invariant, %y: ptr<f16> written, %cols: i64 multiple=8) config(warps: " +
         std::to_string(warps) +
         ") {\n  %p = program_id 0 : i64\n  %s = mul(%p, %cols) : i64\n"
         "  %r = range " +
         N + " : " + t + "i64>\n  %o = add(%r, %s) : " + t +
         "i64>\n"
         "  %in = lt(%r, %cols) : " +
         t +
         "bool>\n  %low = const -inf : f16\n"
         "  %v = load %x[%o] mask=%in other=%low : " +
         t + "f16>\n  %f = cast(%v) : " + t +
         "f32>\n"
         "  %m = reduce.max(%f) axis=0 : f32\n  %d = sub(%f, %m) : " +
         t + "f32>\n  %e = exp(%d) : " + t +
         "f32>\n"
         "  %sum = reduce.sum(%e) axis=0 : f32\n  %i = reciprocal(%sum) : f32\n  %q = mul(%e, %i) : " +
         t +
         "f32>\n"
         "  %h = cast(%q) : " +
         t + "f16>\n  store %y[%o] = %h mask=%in\n}\n";
}

TEST(Ptx, BlocksThatShallFitBoundTheRegisters) {
  auto kernel = tile::parse(softmax(4096, 8));
  ASSERT_TRUE(kernel.ok());
  kernel->config["min_blocks"] = 8;
  auto code = compile(*kernel);
  EXPECT_EQ(occurrences(code.ptx, R"(\.minnctapersm 8)"), 1);
  if (auto cubin = assemble(code)) {
    EXPECT_LE(cubin->registers, 32); // 65536 / (8 * 256)
  }
}

// y = f(x), n elements a program.
std::string flat(const std::string& type, int n, const std::string& attributes = "invariant") {
  std::string N = std::to_string(n), tile = "tile<[" + N + "], ";
  return "tile.kernel @flat(%x: ptr<" + type + "> " + attributes + ", %y: ptr<" + type +
         "> written, %n: i64 multiple=16) config(warps: 4) {\n"
         "  %p = program_id 0 : i64\n  %s = mul(%p, " +
         N + ") : i64\n  %r = range " + N + " : " + tile +
         "i64>\n"
         "  %o = add(%r, %s) : " +
         tile + "i64>\n  %in = lt(%o, %n) : " + tile +
         "bool>\n"
         "  %v = load %x[%o] mask=%in : " +
         tile + type + ">\n  %f = cast(%v) : " + tile +
         "f32>\n"
         "  %g = exp(%f) : " +
         tile + "f32>\n  %h = cast(%g) : " + tile + type +
         ">\n"
         "  store %y[%o] = %h mask=%in\n}\n";
}

TEST(Ptx, ContiguousAccessesAreOf16BytesAndPredicated) {
  for (auto [type, n] : std::vector<std::pair<std::string, int>>{
           {"f32", 512}, {"f16", 1024}, {"bf16", 1024}, {"f64", 256}, {"i8", 2048}, {"i64", 256}}) {
    SCOPED_TRACE(type);
    auto code = compile(flat(type, n));
    std::string vector = type == "f64" || type == "i64" ? R"(v2\.b64)" : R"(v4\.b32)";
    EXPECT_EQ(occurrences(code.ptx, R"(@%p\d+ ld\.global\.)" + vector), 1);
    EXPECT_EQ(occurrences(code.ptx, R"(ld\.global)"), 1);
    EXPECT_EQ(occurrences(code.ptx, R"(@%p\d+ st\.global\.)" + vector), 1);
    EXPECT_EQ(occurrences(code.ptx, R"(st\.global)"), 1);
    EXPECT_EQ(occurrences(code.ptx, R"(\bbra\b)"), 0);
    EXPECT_EQ(occurrences(code.ptx, R"(bar\.sync)"), 0);
    expect_in_registers(code, 64);
  }
}

// x / 120 is one number for eight neighbours that start at a multiple of 8.
TEST(Ptx, WhatNeighboursShareIsComputedOnce) {
  auto code = compile(R"(tile.kernel @k(%x: ptr<f16> invariant, %y: ptr<f16> written) config(warps: 4) {
  %p = program_id 0 : i64
  %s = mul(%p, 1024) : i64
  %r = range 1024 : tile<[1024], i64>
  %o = add(%r, %s) : tile<[1024], i64>
  %d = div(%o, 120) : tile<[1024], i64>
  %m = mod(%d, 7) : tile<[1024], i64>
  %in = lt(%m, 5) : tile<[1024], bool>
  %v = load %x[%o] : tile<[1024], f16>
  %w = const 1 : f16
  %z = select(%in, %v, %w) : tile<[1024], f16>
  store %y[%o] = %z
})");
  EXPECT_LE(occurrences(code.ptx, R"(mul\.hi)"), 2) << code.ptx;
  EXPECT_EQ(occurrences(code.ptx, R"(setp)"), 1) << code.ptx;
}

TEST(Ptx, IndicesAreDividedIn32Bits) {
  auto code = compile(R"(tile.kernel @k(%x: ptr<f32> invariant, %y: ptr<f32> written, %n: i64) config(warps: 4) {
  %r = range 512 : tile<[512], i64>
  %d = mod(%r, %n) : tile<[512], i64>
  %v = load %x[%d] : tile<[512], f32>
  store %y[%r] = %v
})");
  EXPECT_EQ(occurrences(code.ptx, R"(rem\.u32)"), 4 + 1); // one in the function for 64 bits
  EXPECT_EQ(occurrences(code.ptx, R"(rem\.s64)"), 1);
  assemble(code);
}

TEST(Ptx, SignedConditionsBecomeMinusOne) { // LLVM's backend makes 1 of a condition that is converted as an integer
  const std::string ptx = compile(R"(
tile.kernel @signs(%x: ptr<i64>, %y: ptr<f32> written) {
  %r = range 256                  : tile<[256], i64>
  %v = load %x[%r]                : tile<[256], i64>
  %size = abs(%v)                 : tile<[256], i64>
  %s = sign(%size)                : tile<[256], i64>
  %q = div(%s, -16)               : tile<[256], i64>
  %p = mul(%q, -16)               : tile<[256], i64>
  %d = sub(%s, %p)                : tile<[256], i64>
  %lower = lt(%d, 0)              : tile<[256], bool>
  %higher = not(%lower)           : tile<[256], bool>
  %some = ne(%d, 0)               : tile<[256], bool>
  %up = and(%some, %higher)       : tile<[256], bool>
  %below = sub(%q, 1)             : tile<[256], i64>
  %f = select(%up, %below, %q)    : tile<[256], i64>
  %i = cast(%f)                   : tile<[256], i32>
  %z = cast(%i)                   : tile<[256], f32>
  store %y[%r] = %z
})")
                              .ptx;
  EXPECT_EQ(occurrences(ptx, R"(cvt\.rn\.f(32|64)\.s)"), 0) << ptx;
  EXPECT_GT(occurrences(ptx, R"(selp\.f32 .*0fBF800000)"), 0) << ptx;
}

TEST(Ptx, SignedBytesAreNoUnsignedWords) { // ptxas would convert the signed byte
  for (const char* from : {"i8", "i16"}) {
    std::string text = R"(
tile.kernel @bytes(%x: ptr<TYPE>, %y: ptr<f32> written, %z: ptr<f64> written) {
  %r = range 1024                 : tile<[1024], i64>
  %v = load %x[%r]                : tile<[1024], TYPE>
  %u = cast(%v)                   : tile<[1024], u32>
  %f = cast(%u)                   : tile<[1024], f32>
  %d = cast(%u)                   : tile<[1024], f64>
  store %y[%r] = %f
  store %z[%r] = %d
})";
    for (size_t at; (at = text.find("TYPE")) != std::string::npos;) text.replace(at, 4, from);
    const std::string ptx = compile(text).ptx;
    EXPECT_EQ(occurrences(ptx, R"(cvt\.rn\.f(32|64)\.u)"), 0) << ptx;
  }
}

TEST(Ptx, AbsoluteValuesMayBeNegative) { // of the least number; ptxas takes those of abs for positive
  for (const char* type : {"i16", "i32", "i64"}) {
    std::string text = R"(
tile.kernel @sizes(%x: ptr<TYPE>, %y: ptr<TYPE> written) {
  %r = range 256                  : tile<[256], i64>
  %v = load %x[%r]                : tile<[256], TYPE>
  %a = abs(%v)                    : tile<[256], TYPE>
  %s = sign(%a)                   : tile<[256], TYPE>
  store %y[%r] = %s
})";
    for (size_t at; (at = text.find("TYPE")) != std::string::npos;) text.replace(at, 4, type);
    const std::string ptx = compile(text).ptx;
    // In 32 bits the negative of a half word is right.
    EXPECT_EQ(occurrences(ptx, std::string(type) == "i16" ? R"((abs|neg)\.s16)" : R"(abs\.s)"), 0) << ptx;
  }
}

TEST(Ptx, PairsOfHalvesAreRoundedTogetherAndStayPacked) {
  auto f16 = compile(flat("f16", 1024)), bf16 = compile(flat("bf16", 1024));
  EXPECT_EQ(occurrences(f16.ptx, R"(cvt\.rn\.f16x2\.f32)"), 4);
  EXPECT_EQ(occurrences(bf16.ptx, R"(cvt\.rn\.bf16x2\.f32)"), 4);
  for (const auto* code : {&f16, &bf16}) { // no word is taken apart between rounding and store
    auto tail = code->ptx.substr(code->ptx.rfind("cvt.rn"));
    EXPECT_EQ(occurrences(tail, R"((or|shl|prmt|mov)\.b32)"), 0) << tail;
  }
}

TEST(Ptx, OnlyInvariantMemoryIsReadThroughTheReadOnlyPath) {
  const auto reads = [](const std::string& attributes, const std::string& arch) {
    return occurrences(compile(*tile::parse(flat("f32", 512, attributes)), arch).ptx, R"(ld\.global\.nc)");
  };
  EXPECT_EQ(reads("invariant", "sm_80"), 1);
  EXPECT_EQ(reads("", "sm_80"), 0);
  EXPECT_EQ(reads("invariant", "sm_90"), 0) << "the kernel before may still be writing it";
}

TEST(Ptx, ARowOfOneWarpNeedsNoBarrier) {
  auto code = compile(softmax(1024, 1));
  EXPECT_EQ(occurrences(code.ptx, R"(shfl\.sync\.bfly)"), 10);
  EXPECT_EQ(occurrences(code.ptx, R"(bar\.sync)"), 0);
  EXPECT_EQ(code.shared_bytes, 0);
  EXPECT_EQ(occurrences(code.ptx, R"(ld\.global\.v4)"), 4);
  expect_in_registers(code, 80);
}

TEST(Ptx, TwoReductionsOfABlockTakeTwoBarriers) {
  auto code = compile(softmax(4096, 8));
  EXPECT_EQ(occurrences(code.ptx, R"(shfl\.sync\.bfly)"), 10);
  EXPECT_EQ(occurrences(code.ptx, R"(bar\.sync)"), 2) << "the second one uses other shared memory than the first";
  EXPECT_EQ(occurrences(code.ptx, R"(ld\.shared\.v4)"), 4);
  EXPECT_EQ(code.shared_bytes, 64);
  expect_in_registers(code, 64);
}

TEST(Ptx, BoolsAreFoldedByVotes) {
  auto code = compile(R"(tile.kernel @votes(%x: ptr<f32>, %y: ptr<bool> written) config(warps: 4) {
  %r = range 512 : tile<[512], i64>
  %v = load %x[%r] : tile<[512], f32>
  %b = gt(%v, 0) : tile<[512], bool>
  %any = reduce.any(%b) axis=0 : bool
  store %y[0] = %any
})");
  EXPECT_EQ(occurrences(code.ptx, R"(bar\.red\.or|barrier\.sync\.red|bar\.red\.popc)"), 1) << code.ptx;
  EXPECT_EQ(occurrences(code.ptx, R"(shfl)"), 0);
  EXPECT_EQ(occurrences(code.ptx, R"(bar\.sync)"), 0);
  assemble(code);
}

TEST(Ptx, ALoopWithAReductionHasTwoBarriersARound) {
  auto code = compile(R"(tile.kernel @loop(%x: ptr<f32> invariant, %y: ptr<f32> written, %n: i64) config(warps: 4) {
  %zero = const 0 : f32
  %s = for %i = 0 to %n step 1 carry(%a = %zero) {
    %r = range 512 : tile<[512], i64>
    %b = mul(%i, 512) : i64
    %o = add(%r, %b) : tile<[512], i64>
    %v = load %x[%o] : tile<[512], f32>
    %w = mul(%v, %a) : tile<[512], f32>
    %m = reduce.max(%w) axis=0 : f32
    yield %m
  }
  store %y[0] = %s
})");
  EXPECT_EQ(occurrences(code.ptx, R"(bar\.sync)"), 2);
  expect_in_registers(code, 64);
}

// Barriers between what threads load and what others store over it.
TEST(Ptx, MemoryThatMayBeTakenOverIsReadByAllBeforeItIsWritten) {
  auto kernel = [](const std::string& attributes) {
    return "tile.kernel @k(%x: ptr<f32> " + attributes + R"(, %y: ptr<f32> written) config(warps: 4) {
  %p = program_id 0 : i64
  %v = load %x[%p] : f32
  %w = add(%v, 1) : f32
  store %y[%p] = %w
})";
  };
  EXPECT_EQ(occurrences(compile(kernel("")).ptx, R"(bar\.sync)"), 1) << "all threads read, one writes";
  EXPECT_EQ(occurrences(compile(kernel("invariant")).ptx, R"(bar\.sync)"), 0);
  EXPECT_EQ(occurrences(compile(flat("f32", 512, "")).ptx, R"(bar\.sync)"), 0) << "each thread writes what it read";
}

TEST(Ptx, WhatIsStoredIsSeenByOtherThreads) {
  auto code = compile(R"(tile.kernel @k(%y: ptr<f32> written, %z: ptr<f32> written) config(warps: 4) {
  %r = range 512 : tile<[512], i64>
  %f = cast(%r) : tile<[512], f32>
  store %y[%r] = %f
  %m = sub(511, %r) : tile<[512], i64>
  %v = load %y[%m] : tile<[512], f32>
  store %z[%r] = %v
})");
  EXPECT_EQ(occurrences(code.ptx, R"(bar\.sync)"), 1);
  assemble(code);
}

TEST(Ptx, StoresOfEveryElementOnceNeedNoOrder) {
  auto copy = [](const std::string& attributes) {
    return "tile.kernel @k(%x: ptr<f32>, %y: ptr<f32> " + attributes + R"(, %n: i64) config(warps: 4) {
  %r = range 512 : tile<[512], i64>
  for %i = 0 to %n step 512 {
    %o = add(%r, %i) : tile<[512], i64>
    %v = load %x[%o] : tile<[512], f32>
    store %y[%o] = %v
  }
})";
  };
  EXPECT_EQ(occurrences(compile(copy("written")).ptx, R"(bar\.sync)"), 1);
  EXPECT_EQ(occurrences(compile(copy("written once")).ptx, R"(bar\.sync)"), 0);
}

// A thread loads in the next iteration what another one stored, through the same offset value.
TEST(Ptx, RoundsOfALoopAreOrdered) {
  auto code = compile(R"(tile.kernel @k(%y: ptr<f32> written, %n: i64) config(warps: 4) {
  %r = range 512 : tile<[512], i64>
  for %i = 0 to %n step 1 {
    %o = add(%r, %i) : tile<[512], i64>
    %v = load %y[%o] : tile<[512], f32>
    %w = add(%v, 1) : tile<[512], f32>
    store %y[%o] = %w
  }
})");
  EXPECT_EQ(occurrences(code.ptx, R"(bar\.sync)"), 1);
}

// A barrier inside of an inner loop, which may have no rounds, does not stand for one in the outer loop.
TEST(Ptx, BarriersOfInnerLoopsMayNotBeReached) {
  auto code =
      compile(R"(tile.kernel @k(%x: ptr<f32> invariant, %y: ptr<f32> written, %n: i64, %m: i64) config(warps: 4) {
  %r = range 512 : tile<[512], i64>
  %v = load %x[%r] : tile<[512], f32>
  for %i = 0 to %n step 1 {
    for %j = 0 to %m step 1 {
      %a = reduce.sum(%v) axis=0 : f32
      store %y[%j] = %a
    }
    %b = reduce.max(%v) axis=0 : f32
    store %y[%i] = %b
  }
})");
  // One a reduction, one where the inner loop starts its next round, one where the outer one does.
  EXPECT_EQ(occurrences(code.ptx, R"(bar\.sync)"), 4);
}

// Kernels are compiled by many threads at a time; equal kernels yield equal text.
TEST(Ptx, CompilesOnManyThreads) {
  auto kernel = tile::parse(softmax(4096, 8));
  ASSERT_TRUE(kernel.ok());
  auto expected = compile(*kernel).ptx;
  std::vector<std::string> texts(8);
  std::vector<std::thread> threads;
  for (auto& t : texts)
    threads.emplace_back([&] {
      for (int i = 0; i < 3; ++i) {
        auto code = compile_gpu_kernel(*kernel, {});
        t = code.ok() ? code->ptx : code.error().str();
      }
    });
  for (auto& t : threads) t.join();
  for (const auto& t : texts) EXPECT_EQ(t, expected);
}

TEST(Ptx, TransposedTilesGoThroughSharedMemory) {
  auto code =
      compile(R"(tile.kernel @t(%x: ptr<f32> invariant, %y: ptr<f32> written, %n: i64 multiple=64) config(warps: 8) {
  %r = range 64 : tile<[64], i64>
  %i = expand_dims(%r) axis=1 : tile<[64, 1], i64>
  %j = expand_dims(%r) axis=0 : tile<[1, 64], i64>
  %in = mul(%i, %n) : tile<[64, 1], i64>
  %inb = broadcast(%in) : tile<[64, 64], i64>
  %jb = broadcast(%j) : tile<[64, 64], i64>
  %a = add(%inb, %jb) : tile<[64, 64], i64>
  %jn = mul(%j, %n) : tile<[1, 64], i64>
  %jnb = broadcast(%jn) : tile<[64, 64], i64>
  %ib = broadcast(%i) : tile<[64, 64], i64>
  %b = add(%jnb, %ib) : tile<[64, 64], i64>
  %v = load %x[%a] : tile<[64, 64], f32>
  store %y[%b] = %v
})");
  EXPECT_EQ(occurrences(code.ptx, R"(ld\.global\.v4)"), 4);
  EXPECT_EQ(occurrences(code.ptx, R"(st\.global\.v4)"), 4);
  EXPECT_EQ(occurrences(code.ptx, R"(bar\.sync)"), 1);
  EXPECT_EQ(code.shared_bytes, 64 * 64 * 4);
  expect_in_registers(code, 64);
}

TEST(Ptx, WhatAGpuCannotDoIsSaid) {
  auto fails = [](const std::string& text) {
    auto kernel = tile::parse(text);
    EXPECT_TRUE(kernel.ok()) << (kernel.ok() ? "" : kernel.error().str());
    auto code = compile_gpu_kernel(*kernel, GpuTarget{});
    EXPECT_FALSE(code.ok());
    if (code.ok()) return std::string();
    EXPECT_EQ(code.error().code, ErrorCode::CodegenError);
    return code.error().message;
  };
  EXPECT_NE(fails("tile.kernel @s(%n: i64) {\n  %s = scratch %n : ptr<f32>\n}").find("scratch"), std::string::npos);
  tile::Kernel odd = *tile::parse("tile.kernel @s(%n: i64) {\n}");
  odd.name = "a-b";
  ASSERT_FALSE(compile_gpu_kernel(odd, {}).ok());
  EXPECT_NE(fails("tile.kernel @a(%y: ptr<f16> written) {\n  %v = const 1 : f16\n  atomic_add %y[0] = %v\n}")
                .find("atomic update of f16"),
            std::string::npos);
}

// One kernel of exp, stored as `dtype`.
std::string exponentials(const std::string& dtype, const std::string& config) {
  return "tile.kernel @e(%x: ptr<f32> invariant, %y: ptr<" + dtype + "> written) config(warps: 1" + config + R"() {
  %r = range 256 : tile<[256], i64>
  %v = load %x[%r] : tile<[256], f32>
  %e = exp(%v) : tile<[256], f32>
  %h = cast(%e) : tile<[256], )" +
         dtype + R"(>
  store %y[%r] = %h
})";
}
TEST(Ptx, StoresAreStreamingWhereTheKernelSaysSo) {
  EXPECT_EQ(occurrences(compile(exponentials("f16", ", streaming: 1")).ptx, "st\\.global\\.cs\\.v4"), 1);
  EXPECT_EQ(occurrences(compile(exponentials("f16", "")).ptx, "st\\.global\\.cs"), 0);
  (void)assemble(compile(exponentials("bf16", ", streaming: 1")));
}
TEST(Ptx, LoadsTellCachesWhatTheySay) {
  auto copy = [](const std::string& attributes, const std::string& hint, const std::string& mask) {
    return "tile.kernel @k(%x: ptr<f32>" + attributes + R"(, %y: ptr<f32> written, %n: i64) config(warps: 4) {
  %r = range 512 : tile<[512], i64>
  %m = lt(%r, %n) : tile<[512], bool>
  %v = load %x[%r])" +
           mask + " " + hint + R"( : tile<[512], f32>
  store %y[%r] = %v
})";
  };
  for (const char* mask : {"", " mask=%m"}) {
    auto no_allocate = compile(copy(" invariant", "no_allocate", mask)), last = compile(copy("", "evict_last", mask)),
         first = compile(copy("", "evict_first", mask));
    EXPECT_EQ(occurrences(no_allocate.ptx, R"(ld\.global\.L1::no_allocate)"), *mask ? 5 : 1); // split, below
    EXPECT_EQ(occurrences(last.ptx, R"(ld\.global\.L2::cache_hint)"), *mask ? 5 : 1);
    EXPECT_EQ(occurrences(first.ptx, R"(ld\.global\.L2::cache_hint)"), *mask ? 5 : 1);
    EXPECT_EQ(occurrences(last.ptx, "createpolicy"), 1);
    EXPECT_EQ(occurrences(last.ptx, "evict_last"), 1);
    EXPECT_EQ(occurrences(first.ptx, "evict_first"), 1);
    for (const auto* code : {&no_allocate, &last, &first}) (void)assemble(*code);
  }
}
// A row that begins and ends anywhere: whole accesses, and single elements for the two threads at its ends.
TEST(Ptx, AccessesAreSplitWhereTheMaskEndsWithinThem) {
  auto code = compile(R"(
tile.kernel @k(%x: ptr<f16> invariant, %y: ptr<f16> written, %n: i64, %by: i64) config(warps: 4) {
  %r = range 1024 : tile<[1024], i64>
  %from = ge(%r, %by) : tile<[1024], bool>
  %to = lt(%r, %n) : tile<[1024], bool>
  %m = and(%from, %to) : tile<[1024], bool>
  %v = load %x[%r] mask=%m : tile<[1024], f16>
  store %y[%r] = %v mask=%m
})");
  EXPECT_EQ(occurrences(code.ptx, R"(ld\.global\.v4)"), 1);
  EXPECT_EQ(occurrences(code.ptx, R"(ld\.global\.b16)"), 8);
  EXPECT_EQ(occurrences(code.ptx, R"(st\.global\.v4)"), 1);
  EXPECT_EQ(occurrences(code.ptx, R"(st\.global\.b16)"), 8);
  (void)assemble(code);
}
TEST(Ptx, NeighboursThatBeginAnywhereAreTakenOutOfWholeAccesses) {
  auto text = [](const std::string& type, const std::string& of_x) {
    return "tile.kernel @k(%x: ptr<" + type + "> " + of_x + ", %y: ptr<" + type +
           R"(> written, %s: i64) config(warps: 4) {
  %r = range 1024 : tile<[1024], i64>
  %o = add(%r, %s) : tile<[1024], i64>
  %v = load %x[%o] : tile<[1024], )" +
           type + R"(>
  store %y[%r] = %v
})";
  };
  auto code = compile(text("f16", "invariant elements=9999"));
  EXPECT_EQ(occurrences(code.ptx, R"(ld\.global\.v4)"), 2);
  EXPECT_EQ(occurrences(code.ptx, R"(ld\.global\.[bu]16)"), 7); // behind the last whole access
  EXPECT_EQ(occurrences(code.ptx, R"(\sbra\s)"), 0);
  EXPECT_EQ(occurrences(code.ptx, R"(shf\.r\.wrap\.b32)"), 4);
  (void)assemble(code);
  // Two accesses for four elements would save too few.
  EXPECT_EQ(occurrences(compile(text("f32", "invariant elements=9999")).ptx, R"(ld\.global\.v4)"), 0);
  // Memory that may be written, or ends anywhere, is read as the text says.
  for (const char* of_x : {"invariant", "elements=9999"})
    EXPECT_EQ(occurrences(compile(text("f16", of_x)).ptx, R"(ld\.global\.[nc.]*v4)"), 0) << of_x;
}
TEST(Ptx, ExponentialsAreShortWhereResultsAreHalves) {
  for (const char* half : {"f16", "bf16"}) EXPECT_EQ(occurrences(compile(exponentials(half, "")).ptx, "fma"), 0);
  EXPECT_GT(occurrences(compile(exponentials("f64", "")).ptx, "fma\\.rn\\.sat"), 0);
}

} // namespace
} // namespace tessera::test
