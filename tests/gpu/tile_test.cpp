// Operations that need several threads: reductions, scans, tiles that change hands, loops, branches, atomic sums,
// reports.
#include "harness.h"
#include <cmath>

namespace tessera::test {
namespace {

using tile::ValueId;

std::string text(const std::vector<int>& shape) {
  std::string s;
  for (int d : shape) s += (s.empty() ? "" : "x") + std::to_string(d);
  return s;
}
int64_t count(const std::vector<int>& shape) {
  int64_t n = 1;
  for (int d : shape) n *= d;
  return n;
}

const std::vector<std::vector<int>> kShapes = {{1},     {4},     {32},     {1024},   {1, 64},    {64, 1},   {8, 64},
                                               {64, 8}, {16, 2}, {2, 512}, {32, 32}, {4, 8, 16}, {16, 4, 2}};

// All folds of one shape and axis in one kernel.
TEST(GpuReduce, EveryKindAxisAndShape) {
  int turn = 0;
  for (const auto& shape : kShapes)
    for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis)
      for (auto d : {DType::F32, DType::I64}) {
        SCOPED_TRACE(text(shape) + " axis " + std::to_string(axis) + " " + std::string(name(d)));
        KernelMaker m("folds");
        std::vector<int> rest = shape;
        rest.erase(rest.begin() + axis);
        GpuRun run;
        run.buffers.push_back(random_tensor(d, count(shape), static_cast<uint64_t>(++turn), 3));
        if (d == DType::F32 && turn % 3 == 0) run.buffers[0].set_f64(count(shape) / 2, std::nan(""));
        auto x = m.in("x", d);
        const std::vector<ReduceKind> kinds = {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod};
        std::vector<ValueId> y;
        for (auto kind : kinds) {
          y.push_back(m.out(std::string(name(kind)), d));
          run.buffers.push_back(filled(d, std::max<int64_t>(1, count(rest)), 77));
        }
        auto v = m.b.load(x, m.offsets(shape));
        auto to = rest.empty() ? m.i(0) : m.offsets(rest);
        for (size_t i = 0; i < kinds.size(); ++i) m.b.store(y[i], to, m.b.reduce(kinds[i], v, axis));
        run.tolerance = d == DType::F32 ? 1e-5 : 0;
        run.warps = {1 << (turn % 4), 8 >> (turn % 4)};
        run.seeds = 2;
        expect_as_interpreted(std::move(m.k), run);
        if (HasFatalFailure()) return;
      }
}

TEST(GpuReduce, AnyAndAll) {
  for (const auto& shape : std::vector<std::vector<int>>{{64}, {4, 64}, {64, 4}})
    for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis) {
      KernelMaker m("quantors");
      auto x = m.in("x", DType::I32);
      auto any = m.out("any", DType::Bool), all = m.out("all", DType::Bool);
      std::vector<int> rest = shape;
      rest.erase(rest.begin() + axis);
      auto v = m.b.load(x, m.offsets(shape));
      auto to = rest.empty() ? m.i(0) : m.offsets(rest);
      m.b.store(any, to, m.b.reduce(ReduceKind::Any, m.op(ScalarOp::Eq, {v, m.b.const_i(DType::I32, 5)}), axis));
      m.b.store(all, to, m.b.reduce(ReduceKind::All, m.op(ScalarOp::Ge, {v, m.b.const_i(DType::I32, -7)}), axis));
      GpuRun run;
      run.buffers = {random_tensor(DType::I32, count(shape), 3, 8), filled(DType::Bool, count(rest), 0),
                     filled(DType::Bool, count(rest), 0)};
      run.seeds = 2;
      expect_as_interpreted(std::move(m.k), run);
    }
}

// The index with the extreme: equal ones, NaN, first and last.
TEST(GpuReduce, PositionsOfExtremes) {
  int turn = 0;
  for (const auto& shape : std::vector<std::vector<int>>{{32}, {512}, {8, 32}, {64, 4}, {4, 2, 64}})
    for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis)
      for (auto d : {DType::F32, DType::I32}) {
        SCOPED_TRACE(text(shape) + " axis " + std::to_string(axis) + " " + std::string(name(d)));
        KernelMaker m("extremes");
        std::vector<int> rest = shape;
        rest.erase(rest.begin() + axis);
        auto n = std::max<int64_t>(1, count(rest));
        GpuRun run;
        Tensor values = random_tensor(d, count(shape), static_cast<uint64_t>(++turn), 2);
        for (int64_t i = 0; i < values.count() && is_float(d); ++i) values.set_f64(i, std::round(values.get_f64(i)));
        if (is_float(d) && turn % 2) {
          values.set_f64(values.count() / 3, std::nan(""));
          values.set_f64(values.count() - 1, std::nan(""));
        }
        run.buffers.push_back(values);
        auto x = m.in("x", d);
        auto v = m.b.load(x, m.offsets(shape));
        auto index = m.along(shape, axis);
        auto to = rest.empty() ? m.i(0) : m.offsets(rest);
        for (auto kind : {ReduceKind::ArgMax, ReduceKind::ArgMin})
          for (bool last : {false, true}) {
            std::string suffix = std::string(kind == ReduceKind::ArgMax ? "max" : "min") + (last ? "_last" : "");
            auto value_out = m.out("value_" + suffix, d), index_out = m.out("index_" + suffix, DType::I64);
            auto [extreme, at] = m.b.reduce_arg(kind, v, index, axis, last);
            m.b.store(value_out, to, extreme);
            m.b.store(index_out, to, at);
            run.buffers.push_back(filled(d, n, 0));
            run.buffers.push_back(filled(DType::I64, n, -1));
          }
        run.warps = {1 << (turn % 4), 4};
        run.seeds = 2;
        expect_as_interpreted(std::move(m.k), run);
        if (HasFatalFailure()) return;
      }
}

TEST(GpuScan, EveryAxisAndShape) {
  int turn = 0;
  for (const auto& shape : kShapes)
    for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis) {
      auto d = turn % 2 ? DType::F32 : DType::I64;
      SCOPED_TRACE(text(shape) + " axis " + std::to_string(axis) + " " + std::string(name(d)));
      KernelMaker m("scan");
      auto x = m.in("x", d), sums = m.out("sums", d), most = m.out("most", d);
      auto at = m.offsets(shape);
      auto v = m.b.load(x, at);
      m.b.store(sums, at, m.b.scan(ReduceKind::Sum, v, axis));
      m.b.store(most, at, m.b.scan(ReduceKind::Max, v, axis));
      GpuRun run;
      run.buffers = {random_tensor(d, count(shape), static_cast<uint64_t>(++turn)), filled(d, count(shape), 0),
                     filled(d, count(shape), 0)};
      run.tolerance = d == DType::F32 ? 1e-4 : 0; // of sums up to some hundreds that cancel
      run.warps = {1 << (turn % 4), 8 >> (turn % 4)};
      run.seeds = 2;
      expect_as_interpreted(std::move(m.k), run);
      if (HasFatalFailure()) return;
    }
}

// y = transpose(x): read along rows, written along columns, of every width of element.
TEST(GpuConversions, TransposedTiles) {
  int turn = 0;
  for (auto d : {DType::I8, DType::F16, DType::F32, DType::I64, DType::Bool})
    for (auto [rows, columns] : {std::pair{32, 32}, {64, 16}, {8, 128}, {1, 64}, {64, 64}}) {
      SCOPED_TRACE(std::string(name(d)) + " " + std::to_string(rows) + "x" + std::to_string(columns));
      KernelMaker m("transpose");
      auto x = m.in("x", d), y = m.out("y", d), n = m.size("n"), k = m.size("k"); // x: [n, k], y: [k, n]
      std::vector<int> shape = {rows, columns};
      auto r = m.add(m.along(shape, 0), m.mul(m.b.program_id(0), m.i(rows)));
      auto c = m.along(shape, 1);
      auto mask = m.op(ScalarOp::And, {m.lt(r, n), m.lt(c, k)});
      auto v = m.b.load(x, m.add(m.mul(r, k), c), mask);
      m.b.store(y, m.add(m.mul(c, n), r), v, mask);
      ++turn;
      for (auto [height, width] : {std::pair{2 * rows, columns}, {2 * rows - 1, std::max(1, columns - 3)}}) {
        GpuRun run;
        run.buffers = {random_tensor(d, height * width, static_cast<uint64_t>(turn)), filled(d, height * width, 0)};
        run.scalars = {height, width};
        run.grid = 2;
        run.warps = {1 << (turn % 4), 4};
        run.seeds = 2;
        expect_as_interpreted(m.k, run);
        if (HasFatalFailure()) return;
      }
    }
}

// Row by row, the results spread over the rows again: softmax, with rows and columns that do not fill the tile.
TEST(GpuRows, SoftmaxOfOddSizes) {
  for (auto [rows, columns] : {std::pair{1, 128}, {4, 64}, {8, 16}, {2, 1024}, {32, 4}})
    for (auto d : {DType::F32, DType::F16}) {
      KernelMaker m("softmax");
      auto x = m.in("x", d), y = m.out("y", d), n = m.size("n"), k = m.size("k");
      std::vector<int> shape = {rows, columns};
      auto r = m.add(m.along(shape, 0), m.mul(m.b.program_id(0), m.i(rows)));
      auto c = m.along(shape, 1);
      auto in_row = m.lt(c, k);
      auto mask = m.op(ScalarOp::And, {m.lt(r, n), in_row});
      auto at = m.add(m.mul(r, k), c);
      auto low = m.b.const_f(DType::F32, -HUGE_VAL);
      auto v = m.op(ScalarOp::Select, {in_row, m.b.cast(m.b.load(x, at, mask), DType::F32), low});
      auto spread = [&](ValueId t) { return m.b.broadcast(m.b.expand_dims(t, 1), shape); };
      auto e = m.op(ScalarOp::Exp, {m.op(ScalarOp::Sub, {v, spread(m.b.reduce(ReduceKind::Max, v, 1))})});
      auto q = m.op(ScalarOp::Div, {e, spread(m.b.reduce(ReduceKind::Sum, e, 1))});
      m.b.store(y, at, m.b.cast(q, d), mask);
      for (auto [height, width] : {std::pair{2 * rows, columns}, {rows + 1, std::max(1, columns - 5)}, {1, 1}}) {
        GpuRun run;
        run.buffers = {random_tensor(d, height * width, 3), filled(d, height * width, 0)};
        run.scalars = {height, width};
        run.grid = 2;
        run.tolerance = d == DType::F32 ? 1e-6 : 1e-3;
        run.warps = width == columns ? std::vector<int>{1, 2, 4, 8} : std::vector<int>{2};
        run.seeds = 2;
        expect_as_interpreted(m.k, run);
        if (HasFatalFailure()) return;
      }
    }
}

// Promises that make accesses wide, and sizes that just keep them.
TEST(GpuMemory, AlignedRowsAndPromisedMultiples) {
  for (auto d : {DType::F16, DType::F32, DType::I8})
    for (int64_t multiple : {1, 2, 8, 16})
      for (int64_t alignment : {4, 16, 64}) {
        KernelMaker m("copy");
        auto x = m.in("x", d, alignment), y = m.out("y", d, alignment), n = m.size("n"), k = m.size("k", multiple);
        std::vector<int> shape = {4, 64};
        auto r = m.along(shape, 0), c = m.along(shape, 1);
        auto mask = m.op(ScalarOp::And, {m.lt(r, n), m.lt(c, k)});
        auto at = m.add(m.mul(r, k), c);
        m.b.store(y, at, m.b.load(x, at, mask), mask);
        GpuRun run;
        int64_t width = multiple == 1 ? 37 : 48 - 48 % multiple;
        run.buffers = {random_tensor(d, 3 * width, 1), filled(d, 3 * width, 0)};
        run.scalars = {3, width};
        run.warps = {2};
        run.seeds = 1;
        expect_as_interpreted(std::move(m.k), run);
        if (HasFatalFailure()) return;
      }
}

TEST(GpuMemory, GatherScatterAndReports) {
  // y[order[i]] = x[index[i]] where the index is in range, else a report and 0.
  KernelMaker m("gather");
  auto x = m.in("x", DType::F32), index = m.in("index", DType::I64), order = m.in("order", DType::I32);
  auto y = m.out("y", DType::F32), n = m.size("n"), size = m.size("size");
  auto at = m.add(m.b.range(64), m.mul(m.b.program_id(0), m.i(64)));
  auto mask = m.lt(at, n);
  auto ix = m.b.load(index, at, mask);
  auto good = m.op(ScalarOp::And, {m.op(ScalarOp::Ge, {ix, m.i(0)}), m.lt(ix, size)});
  m.b.report_index(m.op(ScalarOp::And, {mask, m.op(ScalarOp::Not, {good})}), ix, at, 6);
  auto v = m.b.load(x, ix, m.op(ScalarOp::And, {mask, good}));
  m.b.store(y, m.b.load(order, at, mask), v, mask);
  for (bool bad : {false, true}) {
    GpuRun run;
    run.buffers = {random_tensor(DType::F32, 50, 1), filled(DType::I64, 150, 0), filled(DType::I32, 150, 0),
                   filled(DType::F32, 150, -1)};
    for (int64_t i = 0; i < 150; ++i) {
      run.buffers[1].set_i64(i, (i * 7) % 50);
      run.buffers[2].set_i64(i, (i * 77) % 150);
    }
    if (bad) {
      run.buffers[1].set_i64(101, -1);
      run.buffers[1].set_i64(77, int64_t{1} << 60);
      run.buffers[1].set_i64(149, 50);
    }
    run.scalars = {150, 50};
    run.grid = 3;
    run.may_report = bad;
    expect_as_interpreted(m.k, run);
  }
}

TEST(GpuMemory, AtomicSums) {
  for (auto d : {DType::F32, DType::I32, DType::I64, DType::F64}) {
    // A histogram, and a sum of whole tiles into one place by scalars.
    KernelMaker m("histogram");
    auto bins = m.in("bins", DType::I64), x = m.in("x", d), h = m.out("h", d), total = m.out("total", d);
    auto n = m.size("n");
    auto at = m.add(m.b.range(128), m.mul(m.b.program_id(0), m.i(128)));
    auto mask = m.lt(at, n);
    auto v = m.b.load(x, at, mask);
    m.b.atomic(ReduceKind::Sum, h, m.b.load(bins, at, mask), v, mask);
    m.b.atomic(ReduceKind::Sum, total, m.i(0), m.b.reduce(ReduceKind::Sum, v, 0));
    GpuRun run;
    run.buffers = {random_tensor(DType::I64, 300, 1, 6), random_tensor(d, 300, 2), random_tensor(d, 16, 3),
                   filled(d, 1, 2)};
    for (int64_t i = 0; i < 300; ++i) run.buffers[0].set_i64(i, run.buffers[0].get_i64(i) + 7);
    run.scalars = {300};
    run.grid = 3;
    run.tolerance = is_float(d) ? 1e-4 : 0;
    expect_as_interpreted(std::move(m.k), run);
  }
  for (auto d : {DType::I32, DType::I64, DType::U32, DType::U64})
    for (auto kind : {ReduceKind::Max, ReduceKind::Min}) {
      KernelMaker m("extremes");
      auto bins = m.in("bins", DType::I64), x = m.in("x", d), h = m.out("h", d);
      auto at = m.b.range(128);
      m.b.atomic(kind, h, m.b.load(bins, at), m.b.load(x, at), m.lt(at, m.i(100)));
      GpuRun run;
      run.buffers = {random_tensor(DType::I64, 128, 1, 6), random_tensor(d, 128, 2), random_tensor(d, 16, 3)};
      for (int64_t i = 0; i < 128; ++i) run.buffers[0].set_i64(i, run.buffers[0].get_i64(i) + 7);
      run.tolerance = 0;
      expect_as_interpreted(std::move(m.k), run);
    }
  // A tile smaller than the block: threads that hold copies must not add twice.
  KernelMaker m("copies");
  auto x = m.in("x", DType::F32), y = m.out("y", DType::F32);
  auto r = m.b.range(4);
  m.b.atomic(ReduceKind::Sum, y, m.op(ScalarOp::Mod, {r, m.i(2)}), m.b.load(x, r));
  m.b.atomic(ReduceKind::Sum, y, m.i(2), m.b.const_f(DType::F32, 1));
  GpuRun run;
  run.buffers = {random_tensor(DType::F32, 4, 1), filled(DType::F32, 3, 0)};
  run.grid = 2;
  run.tolerance = 1e-6;
  expect_as_interpreted(std::move(m.k), run);
}

// A program reads what it has written: other threads' elements, and behind a loop's back.
TEST(GpuMemory, StoresAreSeenByLaterLoads) {
  KernelMaker m("exchange");
  auto x = m.in("x", DType::F32), y = m.out("y", DType::F32), z = m.out("z", DType::F32);
  auto r = m.b.range(256);
  auto back = m.op(ScalarOp::Sub, {m.i(255), r});
  m.b.store(y, r, m.b.load(x, r));
  auto v = m.b.load(y, back);
  m.b.store(y, r, v); // must wait for the loads
  m.b.store(z, m.i(0), m.b.load(y, m.i(200)));
  m.b.for_loop(m.i(1), m.i(4), m.i(1), {}, [&](ValueId i, std::span<const ValueId>) -> std::vector<ValueId> {
    auto turned = m.op(ScalarOp::Mod, {m.add(r, m.mul(i, m.i(37))), m.i(256)});
    m.b.store(y, r, m.b.load(y, turned));
    return {};
  });
  auto w = m.b.load(y, back);
  m.b.store(z, m.add(r, m.i(1)), w);
  GpuRun run;
  run.buffers = {random_tensor(DType::F32, 256, 1), filled(DType::F32, 256, 0), filled(DType::F32, 257, 0)};
  run.seeds = 6;
  expect_as_interpreted(std::move(m.k), run);
}

TEST(GpuMemory, ScratchIsTheProgramsOwn) {
  KernelMaker m("scratch");
  auto x = m.in("x", DType::F32), y = m.out("y", DType::F32);
  auto own = m.b.scratch(DType::F32, m.i(128));
  auto r = m.b.range(128);
  auto base = m.mul(m.b.program_id(0), m.i(128));
  m.b.store(own, r, m.b.load(x, m.add(r, base)));
  auto mirrored = m.b.load(own, m.op(ScalarOp::Sub, {m.i(127), r}));
  m.b.store(own, r, mirrored);
  auto first = m.b.load(own, m.i(0));
  m.b.store(y, m.add(r, base), m.add(m.b.load(own, r), first));
  GpuRun run;
  run.buffers = {random_tensor(DType::F32, 256, 1), filled(DType::F32, 256, 0)};
  run.grid = 2;
  expect_as_interpreted(std::move(m.k), run);
}

TEST(GpuLoops, CarriedTilesAndScalars) {
  // Row sums and maxima in steps of 64, with a count; rounds without any, one, several.
  KernelMaker m("loop");
  auto x = m.in("x", DType::F32), y = m.out("y", DType::F32), counts = m.out("counts", DType::I64), k = m.size("k");
  auto row = m.mul(m.b.program_id(0), k);
  auto zero = m.b.broadcast(m.b.const_f(DType::F32, 0), {64});
  auto r = m.b.for_loop(m.i(0), k, m.i(64), {zero, m.b.const_f(DType::F32, -HUGE_VAL), m.i(0)},
                        [&](ValueId i, std::span<const ValueId> c) -> std::vector<ValueId> {
                          auto at = m.add(m.b.range(64), i);
                          auto mask = m.lt(at, k);
                          auto v = m.b.load(x, m.add(at, row), mask);
                          auto most =
                              m.b.reduce(ReduceKind::Max,
                                         m.op(ScalarOp::Select, {mask, v, m.b.const_f(DType::F32, -HUGE_VAL)}), 0);
                          return {m.add(c[0], v), m.op(ScalarOp::Max, {c[1], most}), m.add(c[2], m.i(1))};
                        });
  auto p2 = m.mul(m.b.program_id(0), m.i(2));
  m.b.store(y, p2, m.b.reduce(ReduceKind::Sum, r[0], 0));
  m.b.store(y, m.add(p2, m.i(1)), r[1]);
  m.b.store(counts, m.b.program_id(0), r[2]);
  for (int64_t columns : {0, 1, 64, 65, 200}) {
    GpuRun run;
    run.buffers = {random_tensor(DType::F32, 3 * columns, 1), filled(DType::F32, 6, 0), filled(DType::I64, 3, 0)};
    run.scalars = {columns};
    run.grid = 3;
    run.tolerance = 1e-5;
    run.warps = columns == 200 ? std::vector<int>{1, 2, 4, 8} : std::vector<int>{4};
    expect_as_interpreted(m.k, run);
  }
}

TEST(GpuLoops, NestedLoopsAndBranches) {
  // A tile that is converted to the other layout and back in each round; branches on data and on the program.
  KernelMaker m("nested");
  auto x = m.in("x", DType::I64), y = m.out("y", DType::I64), n = m.size("n");
  std::vector<int> shape = {16, 16};
  auto at = m.offsets(shape);
  auto turned = m.add(m.mul(m.along(shape, 1), m.i(16)), m.along(shape, 0));
  auto start = m.b.load(x, at);
  auto out =
      m.b.for_loop(m.i(0), n, m.i(1), {start}, [&](ValueId i, std::span<const ValueId> c) -> std::vector<ValueId> {
        auto inner =
            m.b.for_loop(m.i(0), i, m.i(1), {c[0]}, [&](ValueId j, std::span<const ValueId> d) -> std::vector<ValueId> {
              auto rows = m.b.reduce(ReduceKind::Sum, d[0], 1), columns = m.b.reduce(ReduceKind::Max, d[0], 0);
              auto spread = m.add(m.b.broadcast(m.b.expand_dims(rows, 1), shape),
                                  m.b.broadcast(m.b.expand_dims(columns, 0), shape));
              return {m.op(ScalarOp::Mod, {m.add(spread, m.add(d[0], j)), m.i(1009)})};
            });
        auto total = m.b.reduce(ReduceKind::Sum, m.b.reduce(ReduceKind::Sum, inner[0], 0), 0);
        auto odd = m.op(ScalarOp::Eq, {m.op(ScalarOp::Mod, {total, m.i(2)}), m.i(1)});
        return m.b.if_else(
            odd,
            [&]() -> std::vector<ValueId> {
              m.b.store(y, turned, inner[0]);
              return {m.b.load(y, at)};
            },
            [&]() -> std::vector<ValueId> { return {m.add(inner[0], m.b.load(x, turned))}; });
      });
  auto even_program = m.op(ScalarOp::Eq, {m.op(ScalarOp::Mod, {m.b.program_id(0), m.i(2)}), m.i(0)});
  m.b.if_else(
      even_program,
      [&]() -> std::vector<ValueId> {
        m.b.store(y, at, out[0]);
        return {};
      },
      []() -> std::vector<ValueId> { return {}; });
  for (int64_t rounds : {0, 1, 4}) {
    GpuRun run;
    run.buffers = {random_tensor(DType::I64, 256, 1), filled(DType::I64, 256, 0)};
    run.scalars = {rounds};
    run.seeds = 6;
    expect_as_interpreted(m.k, run);
    if (HasFatalFailure()) return;
  }
}

TEST(GpuErrors, ArgumentsThatDoNotFit) {
  KernelMaker m("k");
  auto x = m.in("x", DType::F32), y = m.out("y", DType::F32), n = m.size("n", 8);
  m.b.store(y, m.b.range(32), m.b.load(x, m.b.range(32), m.lt(m.b.range(32), n)));
  auto program = EmulatedProgram::compile(m.k, {});
  ASSERT_TRUE(program.ok()) << program.error().str();
  std::vector<float> a(32), c(32);
  auto bytes = [](std::vector<float>& v) { return std::as_writable_bytes(std::span(v)); };
  std::vector<tile::Argument> args = {{bytes(a), {}}, {bytes(c), {}}, {{}, {0, 24}}};
  EXPECT_TRUE(program->run(args, 1).ok());
  args[2].scalar.i = 20;
  auto odd = program->run(args, 1);
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().code, ErrorCode::BadInput);
  args[2].scalar.i = 24;
  args[1].bytes = args[1].bytes.first(64); // half of what is written
  auto outside = program->run(args, 1);
  ASSERT_FALSE(outside.ok());
  EXPECT_EQ(outside.error().code, ErrorCode::CodegenError);
  EXPECT_NE(outside.error().message.find("%y"), std::string::npos) << outside.error().message;
  args.pop_back();
  EXPECT_FALSE(program->run(args, 1).ok());
  // In place: one memory for both is fine, unless reads are promised to see none of it.
  std::vector<tile::Argument> same = {{bytes(a), {}}, {bytes(a), {}}, {{}, {0, 32}}};
  EXPECT_TRUE(program->run(same, 1).ok());
  m.k.params[0].invariant = true;
  program = EmulatedProgram::compile(m.k, {});
  ASSERT_TRUE(program.ok());
  auto promised = program->run(same, 1);
  ASSERT_FALSE(promised.ok());
  EXPECT_EQ(promised.error().code, ErrorCode::BadInput);
}

} // namespace
} // namespace tessera::test
