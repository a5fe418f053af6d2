// Executables put together by hand, with plain C++ functions as kernels.
#pragma once
#include "runtime/executor.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

namespace tessera::test {

struct Builder {
  std::shared_ptr<Executable> exe = std::make_shared<Executable>();
  Builder() {
    exe->model_name = "test";
    exe->env = std::make_shared<ShapeEnv>();
  }
  SymExpr symbol(const std::string& name) { return exe->env->named_symbol(name); }
  BufferId buffer(const std::string& name, SymShape shape, BufferInfo::Kind kind = BufferInfo::Kind::Temporary,
                  DType dtype = DType::F32) {
    BufferInfo b;
    b.name = name;
    b.kind = kind;
    b.dtype = dtype;
    b.shape = std::move(shape);
    exe->buffers.push_back(b);
    return static_cast<BufferId>(exe->buffers.size()) - 1;
  }
  BufferId input(const std::string& name, SymShape shape, DType dtype = DType::F32) {
    auto b = buffer(name, std::move(shape), BufferInfo::Kind::Input, dtype);
    exe->inputs.push_back({name, b});
    return b;
  }
  BufferId output(const std::string& name, SymShape shape, DType dtype = DType::F32) {
    auto b = buffer(name, std::move(shape), BufferInfo::Kind::Output, dtype);
    exe->outputs.push_back({name, b});
    return b;
  }
  BufferId constant(const std::string& name, Tensor value) {
    SymShape shape;
    for (auto d : value.dims()) shape.emplace_back(d);
    auto b = buffer(name, shape, BufferInfo::Kind::Constant, value.dtype());
    exe->buffers.back().constant = static_cast<int>(exe->constants.size());
    exe->constants.push_back({name, std::move(value)});
    return b;
  }
  static KernelLaunch launch(const std::string& name, HostKernelFn fn, std::vector<BufferId> read,
                             std::vector<BufferId> written, std::vector<SymExpr> sizes, SymExpr grid,
                             SymExpr work = 1) {
    KernelLaunch k;
    k.name = k.symbol = name;
    k.function = fn;
    for (auto b : read) {
      k.buffers.push_back(b);
      k.written.push_back(false);
    }
    for (auto b : written) {
      k.buffers.push_back(b);
      k.written.push_back(true);
    }
    k.sizes = std::move(sizes);
    k.grid = std::move(grid);
    k.work_per_program = std::move(work);
    return k;
  }
  void kernel(const std::string& name, HostKernelFn fn, std::vector<BufferId> read, std::vector<BufferId> written,
              std::vector<SymExpr> sizes, SymExpr grid, SymExpr work = 1) {
    exe->steps.emplace_back(
        launch(name, fn, std::move(read), std::move(written), std::move(sizes), std::move(grid), std::move(work)));
  }
  StridedOperand dense(BufferId b) {
    return {b, exe->buffers[static_cast<size_t>(b)].shape,
            contiguous_strides(exe->buffers[static_cast<size_t>(b)].shape), 0};
  }
  // Lifetimes of temporaries from the steps that use them; contracts of kernels that access their whole buffers.
  std::shared_ptr<const Executable> done();
  void give_contract(KernelLaunch& k);
};

inline Tensor random_tensor(Dims dims, uint32_t seed) {
  Tensor t = Tensor::create(DType::F32, std::move(dims)).value();
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> u(-1, 1);
  for (auto& x : t.mutable_as<float>()) x = u(rng);
  return t;
}

// The same numbers rounded to f16 or bf16; what they are in f32 goes back into `values`.
inline Tensor narrowed(Tensor& values, DType dtype) {
  Tensor out = Tensor::create(dtype, values.dims()).value();
  auto from = values.mutable_as<float>();
  auto to = out.mutable_as<uint16_t>();
  for (size_t i = 0; i < from.size(); ++i) {
    to[i] = dtype == DType::F16 ? f32_to_f16(from[i]) : f32_to_bf16(from[i]);
    from[i] = dtype == DType::F16 ? f16_to_f32(to[i]) : bf16_to_f32(to[i]);
  }
  return out;
}

// y = 2 x + size[0], elementwise; one program an element.
inline void twice_plus(void* const* b, const int64_t* s, int64_t begin, int64_t end, void*, IndexReport*) {
  for (int64_t i = begin; i < end; ++i)
    static_cast<float*>(b[1])[i] = 2 * static_cast<const float*>(b[0])[i] + static_cast<float>(s[0]);
}

// The variants of one executor, to which `compile` adds one for each miss.
class CompilingSource final : public ExecutableSource {
public:
  using Compile = std::function<Result<std::shared_ptr<const Executable>>(const GuardMiss&)>;
  CompilingSource(std::vector<std::shared_ptr<const Executable>> variants, Compile compile);
  [[nodiscard]] Order order() const override { return order_; }
  [[nodiscard]] uint64_t generation() const override { return order_.generation; }
  [[nodiscard]] Result<bool> compile_for(const GuardMiss& miss, std::span<const uint64_t> numbers) override;
  void ended(const std::shared_ptr<const Executable>& ran, std::span<const SymExpr> symbols,
             std::span<const int64_t> values, int swaps) override;
  // Better code for the variant of this number, or nothing: it is given up.
  void replace(uint64_t number, std::shared_ptr<const Executable> better);

  std::vector<std::pair<std::shared_ptr<const Executable>, int>> calls; // what ran, and the swaps

private:
  void add(std::shared_ptr<const Executable> executable);
  Order order_; // the first is generic
  uint64_t numbers_ = 0;
  Compile compile_;
};

} // namespace tessera::test
