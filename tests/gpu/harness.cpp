#include "harness.h"
#include "runtime/cuda/assembler.h"
#include "tests/base/seeds.h"
#include <cstring>
#include <random>

namespace tessera::test {
namespace {

struct Memory {
  std::vector<Tensor> tensors; // copies
  std::vector<tile::Argument> args;
};
Memory copy_of(const tile::Kernel& kernel, const GpuRun& run) {
  Memory m;
  size_t buffer = 0, scalar = 0;
  for (const auto& p : kernel.params) {
    if (p.type.kind == tile::Type::Kind::Data) {
      int64_t v = run.scalars.at(scalar++);
      m.args.push_back({{}, {static_cast<double>(v), v}});
      continue;
    }
    const Tensor& from = run.buffers.at(buffer++);
    EXPECT_EQ(from.dtype(), p.type.dtype) << p.name;
    Tensor t = Tensor::create(from.dtype(), from.dims()).value();
    if (from.bytes()) std::memcpy(t.mutable_data(), from.data(), from.bytes());
    m.args.push_back({{t.mutable_data(), t.bytes()}, {}});
    m.tensors.push_back(std::move(t));
  }
  return m;
}

// The same kernel for a GPU: PTX that the assembler, where there is one, takes. One kernel of eight: the rest would
// cost more time than it is worth.
void expect_ptx(const tile::Kernel& kernel, const GpuTarget& target) {
  static int kernels = 0;
  if (kernels++ % 8 != 0) return;
  auto code = compile_gpu_kernel(kernel, target);
  ASSERT_TRUE(code.ok()) << code.error().str() << tile::print(kernel);
  // nvJitLink compiles relocatable code, in which products of warpgroups wait for each other.
  static auto any = cuda::Assembler::find(), ptxas = cuda::Assembler::find(cuda::Assembler::Kind::Ptxas);
  const auto& assembler = target.warpgroups() ? ptxas : any;
  if (!assembler.ok()) return; // Ptx.AnAssemblerIsHere reports it
  auto cubin = (*assembler)->assemble(code->ptx, target.arch);
  ASSERT_TRUE(cubin.ok()) << cubin.error().str() << tile::print(kernel) << code->ptx;
}

} // namespace

void expect_as_interpreted(tile::Kernel kernel, const GpuRun& run) {
  Memory expected = copy_of(kernel, run);
  auto ok = tile::verify(kernel);
  ASSERT_TRUE(ok.ok()) << ok.error().str() << tile::print(kernel);
  auto meaning = tile::interpret(kernel, expected.args, run.grid);
  ASSERT_TRUE(meaning.ok()) << meaning.error().str() << tile::print(kernel);
  if (!run.may_report) {
    ASSERT_FALSE(meaning->report.any());
  }
  const GpuTarget target = *GpuTarget::parse(run.arch);
  for (int warps : run.warps) {
    kernel.config["warps"] = warps;
    auto program = EmulatedProgram::compile(kernel, target);
    ASSERT_TRUE(program.ok()) << program.error().str() << tile::print(kernel);
    if (!target.warpgroups()) {
      EXPECT_EQ(program->threads(), warps * 32);
    }
    if (warps == run.warps.back()) expect_ptx(kernel, target);
    for (uint32_t seed = 0; seed < seeds(run.seeds); ++seed) {
      Memory actual = copy_of(kernel, run);
      auto r = program->run(actual.args, run.grid, {.seed = seed});
      ASSERT_TRUE(r.ok()) << r.error().str() << "seed " << seed << "\n" << tile::print(kernel);
      EXPECT_EQ(r->report, meaning->report) << tile::print(kernel);
      size_t buffer = 0;
      for (const auto& p : kernel.params) {
        if (p.type.kind != tile::Type::Kind::Pointer) continue;
        auto c = compare(actual.tensors[buffer], expected.tensors[buffer], run.tolerance, run.tolerance);
        ASSERT_TRUE(c.same) << "%" << p.name << ": " << c.message << "\nwarps " << warps << " seed " << seed << "\n"
                            << tile::print(kernel);
        ++buffer;
      }
    }
  }
}

Tensor random_tensor(DType dtype, int64_t count, uint64_t seed, double limit) {
  Tensor t = Tensor::create(dtype, {count}).value();
  std::mt19937_64 rng(seed * 977 + 5);
  for (int64_t i = 0; i < count; ++i) {
    double u = static_cast<double>(rng() >> 11) * 0x1p-53;
    if (is_float(dtype))
      t.set_f64(i, (2 * u - 1) * limit);
    else if (dtype == DType::Bool)
      t.set_i64(i, u < 0.5);
    else if (info(dtype).kind == DTypeKind::Unsigned)
      t.set_i64(i, static_cast<int64_t>(u * (limit + 1)));
    else
      t.set_i64(i, static_cast<int64_t>(u * (2 * limit + 1)) - static_cast<int64_t>(limit));
  }
  return t;
}

Tensor filled(DType dtype, int64_t count, double value) {
  Tensor t = Tensor::create(dtype, {count}).value();
  for (int64_t i = 0; i < count; ++i)
    if (is_float(dtype))
      t.set_f64(i, value);
    else
      t.set_i64(i, static_cast<int64_t>(value));
  return t;
}

tile::ValueId KernelMaker::in(const std::string& name, DType d, int64_t alignment) {
  auto v = b.param(name, {tile::Type::Kind::Pointer, d, {}});
  k.params.back().alignment = alignment;
  return v;
}
tile::ValueId KernelMaker::out(const std::string& name, DType d, int64_t alignment) {
  auto v = b.param(name, {tile::Type::Kind::Pointer, d, {}}, true);
  k.params.back().alignment = alignment;
  return v;
}
tile::ValueId KernelMaker::size(const std::string& name, int64_t multiple_of) {
  auto v = b.param(name, {tile::Type::Kind::Data, DType::I64, {}});
  k.params.back().multiple_of = multiple_of;
  return v;
}
tile::ValueId KernelMaker::op(ScalarOp o, std::initializer_list<tile::ValueId> args) {
  return b.scalar(o, std::vector<tile::ValueId>(args));
}
tile::ValueId KernelMaker::along(const std::vector<int>& shape, int axis) {
  auto v = b.range(shape[static_cast<size_t>(axis)]);
  for (int a = 0; a < static_cast<int>(shape.size()); ++a)
    if (a != axis) v = b.expand_dims(v, a);
  return shape.size() == 1 ? v : b.broadcast(v, shape);
}
tile::ValueId KernelMaker::offsets(const std::vector<int>& shape) {
  tile::ValueId sum = -1;
  int64_t stride = 1;
  for (int a = static_cast<int>(shape.size()); a-- > 0; stride *= shape[static_cast<size_t>(a)]) {
    auto term = stride == 1 ? along(shape, a) : mul(along(shape, a), i(stride));
    sum = sum < 0 ? term : add(term, sum);
  }
  return sum;
}

} // namespace tessera::test
