#include "products.h"

namespace tessera::test {

using tile::ValueId;

int64_t programs_of(const ProductForm& f, int64_t m, int64_t n) {
  auto tiles = [&](int64_t size, int tile, bool of_cluster) {
    const int64_t count = (size + tile - 1) / tile, cluster = of_cluster ? f.cluster : 1;
    return (count + cluster - 1) / cluster * cluster;
  };
  return tiles(m, f.m, !f.along_columns) * tiles(n, f.n, f.along_columns) * f.split;
}

tile::Kernel masked_product(const ProductForm& f) {
  KernelMaker w("product");
  if (f.cluster > 1) w.k.config["cluster"] = f.cluster;
  auto a = w.in("a", f.loaded), b = w.in("b", f.right);
  auto bias = w.in("bias", f.stored()), residual = w.in("residual", f.stored());
  auto c = w.out("c", f.stored()), sums = w.out("sums", f.sum());
  auto a2 = f.several ? w.in("a2", f.dtype) : a, b2 = f.several ? w.in("b2", f.right) : b;
  auto rows_of = -1, depths_of = -1;
  if (f.left != Left::Loaded) {
    rows_of = w.in("rows", DType::F32), depths_of = w.in("depths", DType::F32);
    if (!f.several) a2 = w.in("a2", f.loaded);
  }
  auto partials = f.split > 1 ? w.out("partials", DType::F32) : -1,
       counters = f.split > 1 ? w.out("counters", DType::I32) : -1;
  for (auto& p : w.k.params) { // tiles of a program have no element in common
    p.invariant = !p.written;
    p.once = p.written && p.name != "counters";
  }
  const int aligned = 128 / std::min(info(f.dtype).bits, info(f.loaded).bits); // elements of 16 bytes
  auto m = w.size("m", f.a_columns ? aligned : 1), n = w.size("n", f.b_columns ? 8 : aligned), k = w.size("k", aligned),
       programs = w.size("programs");
  auto up = [&](ValueId v, int by) { return w.op(ScalarOp::Div, {w.add(v, w.i(by - 1)), w.i(by)}); };
  // Tiles along m or n are counted by clusters.
  auto tile_columns = up(n, f.n), tile_rows = up(m, f.m), columns_of_tiles = tile_columns;
  auto rank = -1, program = w.b.program_id(0);
  if (f.cluster > 1) {
    (f.along_columns ? tile_columns : tile_rows) = up(f.along_columns ? tile_columns : tile_rows, f.cluster);
    rank = w.op(ScalarOp::Mod, {program, w.i(f.cluster)});
    program = w.op(ScalarOp::Div, {program, w.i(f.cluster)});
    programs = w.op(ScalarOp::Div, {programs, w.i(f.cluster)});
  }
  auto tiles = w.mul(tile_rows, tile_columns);
  // A tile of a matrix: its offsets and mask, from the indices along both dimensions.
  auto access = [&](const std::vector<int>& shape, ValueId row0, ValueId column0, ValueId rows, ValueId columns,
                    bool by_columns) {
    auto along = [&](int axis, ValueId start) { return w.add(w.b.range(shape[static_cast<size_t>(axis)]), start); };
    auto spread = [&](ValueId v, int axis) { return w.b.broadcast(w.b.expand_dims(v, 1 - axis), shape); };
    auto r = along(0, row0), s = along(1, column0);
    auto in = w.op(ScalarOp::And, {spread(w.lt(r, rows), 0), spread(w.lt(s, columns), 1)});
    auto at =
        by_columns ? w.add(spread(r, 0), spread(w.mul(s, rows), 1)) : w.add(spread(w.mul(r, columns), 0), spread(s, 1));
    return std::pair(at, in);
  };
  auto left = [&](ValueId row0, ValueId i) {
    const std::vector<int> shape = {f.m, f.k};
    auto [at, in] = access(shape, row0, i, m, k, f.a_columns);
    auto x = w.b.load(a, at, in);
    if (f.left == Left::Loaded) return x;
    auto along = [&](ValueId from, int axis, ValueId start, ValueId end) {
      auto index = w.add(w.b.range(shape[static_cast<size_t>(axis)]), start);
      return w.b.broadcast(w.b.expand_dims(w.b.load(from, index, w.lt(index, end)), 1 - axis), shape);
    };
    auto one = w.b.broadcast(w.b.const_f(DType::F32, 1), shape);
    x = f.loaded == DType::F32 ? x : w.b.cast(x, DType::F32);
    if (f.left == Left::Gated) {
      auto other = w.b.cast(w.b.load(a2, at, in), DType::F32);
      auto e = w.op(ScalarOp::Exp, {w.op(ScalarOp::Neg, {x})});
      x = w.mul(w.op(ScalarOp::Div, {x, w.add(one, e)}), other);
    } else {
      auto of_row = along(rows_of, 0, row0, m);
      x = f.left == Left::Scaled ? w.mul(x, of_row)
                                 : w.add(w.mul(w.op(ScalarOp::Sub, {x, of_row}), along(depths_of, 1, i, k)), one);
      // Beyond the depth it is no zero: that of the right factor must do.
    }
    return w.b.cast(x, f.dtype);
  };
  auto one = [&](ValueId t) {
    auto segment = w.op(ScalarOp::Div, {t, tiles});
    if (f.split > 1) t = w.op(ScalarOp::Mod, {t, tiles});
    auto row_tile = w.op(ScalarOp::Div, {t, tile_columns}), column_tile = w.op(ScalarOp::Mod, {t, tile_columns});
    if (f.cluster > 1) {
      auto& along = f.along_columns ? column_tile : row_tile;
      along = w.add(w.mul(along, w.i(f.cluster)), rank);
    }
    auto row0 = w.mul(row_tile, w.i(f.m)), column0 = w.mul(column_tile, w.i(f.n));
    const std::vector<int> out = {f.m, f.n};
    auto to = [&](ValueId v, DType d) { return w.k.type(v).dtype == d ? v : w.b.cast(v, d); };
    auto zero = w.b.broadcast(is_integer(f.sum()) ? w.b.const_i(f.sum(), 0) : w.b.const_f(f.sum(), 0), out);
    auto length = w.mul(up(k, f.k * f.split), w.i(f.k)), from = w.mul(segment, length);
    auto total = w.b.for_loop(
        f.split > 1 ? from : w.i(0), f.split > 1 ? w.op(ScalarOp::Min, {k, w.add(from, length)}) : k, w.i(f.k),
        f.several ? std::vector<ValueId>{zero, zero} : std::vector<ValueId>{zero},
        [&](ValueId i, std::span<const ValueId> acc) -> std::vector<ValueId> {
          auto [b_at, b_in] = access({f.k, f.n}, i, column0, k, n, f.b_columns);
          auto x = left(row0, i), y = w.b.load(b, b_at, b_in);
          if (!f.several) return {w.b.dot(x, y, acc[0])};
          auto [a_at, a_in] = access({f.m, f.k}, row0, i, m, k, f.a_columns);
          auto first = w.b.dot(x, y, zero), others = w.b.dot(x, w.b.load(b2, b_at, b_in), acc[1]);
          others = w.b.dot(w.b.load(a2, a_at, a_in), y, others);
          return {w.add(acc[0], first), others};
        },
        f.num_stages);
    auto sum = f.several ? w.add(total[0], total[1]) : total[0];
    auto store = [&] {
      auto [at, in] = access(out, row0, column0, m, n, false);
      if (f.epilogue) {
        auto column = w.add(w.b.range(f.n), column0), row = w.add(w.b.range(f.m), row0);
        auto added = to(w.b.load(bias, column, w.lt(column, n)), f.sum());
        sum = w.add(sum, w.b.broadcast(w.b.expand_dims(added, 0), out));
        sum = w.op(ScalarOp::Max, {sum, zero});
        sum = w.add(sum, to(w.b.load(residual, at, in), f.sum()));
        auto row_sums = w.b.reduce(ReduceKind::Sum, w.op(ScalarOp::Select, {in, sum, zero}), 1);
        auto exists = w.lt(row, m);
        if (f.along_columns)
          exists = w.op(ScalarOp::And, {exists, w.b.broadcast(w.lt(column_tile, columns_of_tiles), {f.m})});
        w.b.store(sums, w.add(w.mul(row, columns_of_tiles), column_tile), row_sums, exists);
      }
      w.b.store(c, at, to(sum, f.stored()), in);
    };
    if (f.split == 1) return store();
    auto partial = [&](ValueId i) {
      auto first = w.mul(w.add(w.mul(t, w.i(f.split)), i), w.i(int64_t{f.m} * f.n));
      return w.add(w.offsets(out), first);
    };
    w.b.store(partials, partial(segment), sum);
    w.b.if_else(
        w.b.arrive(counters, t, segment, w.i(f.split)),
        [&]() -> std::vector<ValueId> {
          sum = w.b.for_loop(w.i(0), w.i(f.split), w.i(1), {zero},
                             [&](ValueId i, std::span<const ValueId> so_far) -> std::vector<ValueId> {
                               return {w.add(so_far[0], w.b.load(partials, partial(i)))};
                             })[0];
          store();
          return {};
        },
        [] { return std::vector<ValueId>(); });
  };
  if (f.persistent)
    w.b.for_loop(
        program, w.mul(tiles, w.i(f.split)), programs, {},
        [&](ValueId t, std::span<const ValueId>) -> std::vector<ValueId> { return one(t), std::vector<ValueId>{}; });
  else
    one(program);
  return std::move(w.k);
}

} // namespace tessera::test
