// Tile kernels run by the emulator, for several numbers of warps and orders of threads, and compared with what the
// interpreter says they mean.
#pragma once
#include "base/tensor.h"
#include "codegen/emulate/emulator.h"
#include <gtest/gtest.h>

namespace tessera::test {

struct GpuRun {
  std::vector<Tensor> buffers; // in the order of pointer parameters; contents of written ones are where they start
  std::vector<int64_t> scalars;
  int64_t grid = 1;
  double tolerance = 0; // relative and absolute
  std::vector<int> warps = {1, 2, 4, 8};
  uint32_t seeds = 3;
  bool may_report = false; // else a report is a failure
  std::string arch = "sm_90";
};
void expect_as_interpreted(tile::Kernel kernel, const GpuRun& run);

// Numbers of a dtype: floats uniform in [-limit, limit], integers of [-limit, limit] or [0, limit], bool either.
Tensor random_tensor(DType dtype, int64_t count, uint64_t seed, double limit = 8);
Tensor filled(DType dtype, int64_t count, double value);

// Short spellings for kernels.
struct KernelMaker {
  explicit KernelMaker(const std::string& name) : b(k) { k.name = name; }
  tile::ValueId in(const std::string& name, DType d, int64_t alignment = 64);
  tile::ValueId out(const std::string& name, DType d, int64_t alignment = 64);
  tile::ValueId size(const std::string& name, int64_t multiple_of = 1);
  tile::ValueId i(int64_t v) { return b.const_i(DType::I64, v); }
  tile::ValueId op(ScalarOp o, std::initializer_list<tile::ValueId> args);
  tile::ValueId add(tile::ValueId x, tile::ValueId y) { return op(ScalarOp::Add, {x, y}); }
  tile::ValueId mul(tile::ValueId x, tile::ValueId y) { return op(ScalarOp::Mul, {x, y}); }
  tile::ValueId lt(tile::ValueId x, tile::ValueId y) { return op(ScalarOp::Lt, {x, y}); }
  // Position along one axis of a tile of that shape: i64[shape].
  tile::ValueId along(const std::vector<int>& shape, int axis);
  // Row-major offsets of the tile's elements, row strides in memory as they are in the tile.
  tile::ValueId offsets(const std::vector<int>& shape);
  tile::Kernel k;
  tile::Builder b;
};

} // namespace tessera::test
