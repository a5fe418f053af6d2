// A product with an epilogue, run on a device and held against sums in f64.
#pragma once
#include "tests/cuda/library_device.h"

namespace tessera::cuda::test {

struct Product {
  DType dtype = DType::F32;
  DeviceOperand a, b, c;
  double scale = 1;
  std::optional<LibraryEpilogue> fused = std::nullopt;
  std::optional<DeviceOperand> bias = std::nullopt, residual = std::nullopt;
  bool can_finish = false;
  bool varies = false; // its sizes are symbols of the call
};

// Dense operands of [batch..., m, k] and [batch..., k, n], or their transposes.
[[nodiscard]] Product dense_product(DType dtype, Dims batch, int64_t m, int64_t n, int64_t k, bool ta = false,
                                    bool tb = false);
// A bias along the columns, a residual that lies as the result does.
void add_epilogue(Product& p, bool bias, bool residual, LibraryEpilogue::Activation activation, double alpha = 1);

struct Outcome {
  bool fused = false;
  int calls = 0;
};
// Plans, runs twice and compares; what is wrong is the test's failure.
Outcome check(Gpu& gpu, Product p, const std::string& what);

} // namespace tessera::cuda::test
