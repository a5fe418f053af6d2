#include "tests/cuda/library_product.h"
#include "runtime/cuda/cublaslt.h"
#include <cmath>
#include <limits>

namespace tessera::cuda::test {
static double activated(const LibraryEpilogue& e, double x) {
  switch (e.activation) {
  case LibraryEpilogue::Activation::Relu: return std::max(x, 0.0);
  case LibraryEpilogue::Activation::GeluTanh:
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  default: return x;
  }
}

// Dense operands of [batch..., m, k] and [batch..., k, n].
Product dense_product(DType dtype, Dims batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  auto matrix = [&](int64_t rows, int64_t cols, bool transposed, uint64_t seed) {
    Dims shape = batch;
    shape.insert(shape.end(), {rows, cols});
    Dims strides = test::dense(shape);
    if (transposed) {
      strides[strides.size() - 2] = 1;
      strides.back() = rows;
    }
    return filled(dtype, shape, strides, seed);
  };
  Product p;
  p.dtype = dtype;
  p.a = matrix(m, k, ta, 1);
  p.b = matrix(k, n, tb, 2);
  p.c = matrix(m, n, false, 3);
  return p;
}

void add_epilogue(Product& p, bool bias, bool residual, LibraryEpilogue::Activation activation, double alpha) {
  LibraryEpilogue e;
  e.alpha = alpha;
  e.activation = activation;
  const auto& c = p.c.view;
  if (bias) {
    Dims strides(c.shape.size(), 0);
    strides.back() = 1;
    p.bias = filled(p.dtype, c.shape, strides, 4);
    e.bias.emplace();
    e.bias_dim = static_cast<int>(c.shape.size()) - 1;
  }
  if (residual) {
    p.residual = filled(p.dtype, c.shape, c.strides, 5, c.offset);
    e.residual.emplace();
  }
  p.fused = std::move(e);
}

Outcome check(Gpu& gpu, Product p, const std::string& what) {
  SCOPED_TRACE(what);
  Outcome outcome;
  if (is_float(p.c.host.dtype())) // what is there before must not matter
    each(p.c.view.shape, [&](const Dims& index) {
      p.c.host.set_f64(position(p.c.view, index), std::numeric_limits<double>::quiet_NaN());
    });
  std::vector<DeviceOperand*> operands = {&p.a, &p.b, &p.c};
  if (p.bias) operands.push_back(&*p.bias);
  if (p.residual) operands.push_back(&*p.residual);
  std::vector<Operand> views;
  for (size_t i = 0; i < operands.size(); ++i) {
    operands[i]->view.buffer = static_cast<BufferId>(i);
    views.push_back(operands[i]->view);
  }
  MatmulCall call;
  call.scale = p.scale;
  call.fused = p.fused;
  ShapeEnv env;
  if (p.varies)
    for (auto* part : {&call.a, &call.b, &call.c})
      for (size_t d = 0; d < 2; ++d) part->shape.push_back(env.named_symbol("s" + std::to_string(d)));
  Context::Current current(gpu.context());
  auto plan = plan_cuda_matmul({gpu.context(), what, p.can_finish}, call, views);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().str());
  if (!plan.ok()) return outcome;
  outcome = {(*plan)->epilogue_done, (*plan)->calls};
  auto result = gpu.run(**plan, operands, 2);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().str());
  if (!result.ok()) return outcome;

  Tensor expected = Tensor::create(p.c.host.dtype(), p.c.host.dims()).value();
  std::copy_n(p.c.host.data(), expected.bytes(), expected.mutable_data()); // gaps stay as they were
  std::vector<double> bound(static_cast<size_t>(expected.count()), -1);
  int64_t k = p.a.view.shape.back();
  size_t rank = p.c.view.shape.size();
  auto at = [&](const DeviceOperand& o, const Dims& index, int64_t row, int64_t col) {
    Dims own = index;
    own[rank - 2] = row;
    own[rank - 1] = col;
    own.erase(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(rank - o.view.shape.size()));
    for (size_t d = 0; d + 2 < own.size(); ++d)
      if (o.view.shape[d] == 1) own[d] = 0;
    return position(o.view, own);
  };
  auto numbers = [](const Tensor& t) {
    std::vector<double> out(static_cast<size_t>(t.count()));
    for (size_t i = 0; i < out.size(); ++i) out[i] = t.get_f64(static_cast<int64_t>(i));
    return out;
  };
  const auto left = numbers(p.a.host), right = numbers(p.b.host);
  const int64_t left_step = p.a.view.strides.back(), right_step = p.b.view.strides[p.b.view.strides.size() - 2];
  each(p.c.view.shape, [&](const Dims& index) {
    double sum = 0, magnitude = 0;
    int64_t l = k > 0 ? at(p.a, index, index[rank - 2], 0) : 0, r = k > 0 ? at(p.b, index, 0, index[rank - 1]) : 0;
    for (int64_t x = 0; x < k; ++x, l += left_step, r += right_step) {
      double term = left[static_cast<size_t>(l)] * right[static_cast<size_t>(r)];
      sum += term;
      magnitude += std::abs(term);
    }
    sum *= p.scale;
    magnitude *= std::abs(p.scale);
    if (p.fused && outcome.fused) {
      sum *= p.fused->alpha;
      if (p.bias) sum += p.bias->host.get_f64(position(p.bias->view, index));
      if (p.residual) sum += p.residual->host.get_f64(position(p.residual->view, index));
      sum = activated(*p.fused, sum);
    }
    int64_t where = position(p.c.view, index);
    expected.set_f64(where, sum);
    bound[static_cast<size_t>(where)] =
        rounding_of(p.dtype) * (1 + std::abs(sum)) + 1e-6 * magnitude * (p.dtype == DType::F64 ? 1e-8 : 1);
  });
  int wrong = 0;
  for (int64_t i = 0; i < expected.count() && wrong < 4; ++i) {
    double difference = std::abs(result->get_f64(i) - expected.get_f64(i));
    if (difference <= std::max(bound[static_cast<size_t>(i)], 0.0)) continue;
    ++wrong;
    ADD_FAILURE() << "element " << i << ": " << result->get_f64(i) << ", not " << expected.get_f64(i);
  }
  return outcome;
}

} // namespace tessera::cuda::test
