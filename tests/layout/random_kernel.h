// Random kernels on tiles [rows, columns] and their sub-tiles: contiguous, transposed and gathered accesses,
// reductions, broadcasts, scans, loops and branches.
#pragma once
#include "codegen/tile/tile.h"
#include <random>

namespace tessera::layout::test {

// @random(%x: ptr<f32>, %ids: ptr<i64>, %y: ptr<f32> written, %n: i64 multiple=4), one program. x has kInputs elements,
// ids too, all from 0 to kInputs - 1; y has kOutputs. n may be any multiple of 4 from 4 on: loops run n / 4 times, and
// columns from n on are masked in some accesses.
class RandomKernel {
public:
  static constexpr int64_t kInputs = 4096, kOutputs = 16 * 2048;

  explicit RandomKernel(unsigned seed) : rng_(seed), b_(k_) {
    using tile::Type;
    k_.name = "random";
    k_.config["warps"] = int64_t{1} << upto(3);
    x_ = b_.param("x", {Type::Kind::Pointer, DType::F32, {}});
    ids_ = b_.param("ids", {Type::Kind::Pointer, DType::I64, {}});
    y_ = b_.param("y", {Type::Kind::Pointer, DType::F32, {}}, true);
    n_ = b_.param("n", {Type::Kind::Data, DType::I64, {}});
    k_.params.back().multiple_of = 4;
    rows_ = 1 << upto(5);
    columns_ = 1 << upto(6);
    row_ = b_.broadcast(b_.expand_dims(b_.range(rows_), 1), full());
    column_ = b_.broadcast(b_.expand_dims(b_.range(columns_), 0), full());
    across_ = add(times(row_, columns_), column_);
    down_ = add(times(column_, rows_), row_);
    values_.push_back(load());
    grow(8, 2);
    for (ValueId v : values_) store(v);
    for (ValueId v : of_rows_) store(v);
    for (ValueId v : of_columns_) store(v);
  }
  [[nodiscard]] const tile::Kernel& kernel() const { return k_; }

private:
  using ValueId = tile::ValueId;
  std::mt19937 rng_;
  tile::Kernel k_;
  tile::Builder b_;
  ValueId x_ = -1, ids_ = -1, y_ = -1, n_ = -1, row_ = -1, column_ = -1, across_ = -1, down_ = -1;
  int rows_ = 1, columns_ = 1;
  std::vector<ValueId> values_, of_rows_, of_columns_; // [rows, columns], [rows], [columns]; f32
  int64_t next_ = 0;                                   // place in y

  int upto(int n) { return std::uniform_int_distribution<int>(0, n)(rng_); }
  ValueId pick(const std::vector<ValueId>& v) { return v[static_cast<size_t>(upto(static_cast<int>(v.size()) - 1))]; }
  [[nodiscard]] std::vector<int> full() const { return {rows_, columns_}; }
  ValueId number(int64_t v) { return b_.const_i(DType::I64, v); }
  ValueId op(ScalarOp o, ValueId a, ValueId b) { return b_.scalar(o, std::array{a, b}); }
  ValueId add(ValueId a, ValueId b) { return op(ScalarOp::Add, a, b); }
  ValueId times(ValueId a, int64_t n) { return op(ScalarOp::Mul, a, number(n)); }

  ValueId load() {
    ValueId offset = across_, mask = -1;
    switch (upto(4)) {
    case 0: offset = down_; break;
    case 1: // a gather
      offset = op(ScalarOp::Mod, add(b_.load(ids_, upto(1) ? across_ : down_), column_), number(kInputs));
      break;
    case 2: mask = op(ScalarOp::Lt, upto(1) ? column_ : row_, n_); break;
    default: break;
    }
    return b_.load(x_, offset, mask, mask >= 0 && upto(1) ? b_.const_f(DType::F32, 1) : -1);
  }

  ValueId pointwise(ValueId a, ValueId b) {
    static constexpr ScalarOp ops[] = {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Max, ScalarOp::Min};
    return op(ops[upto(3)], a, b);
  }

  // To [rows, columns].
  ValueId spread(ValueId v, int axis) { return b_.broadcast(b_.expand_dims(v, axis), full()); }

  void grow(int steps, int depth) {
    for (int i = 0; i < steps; ++i) {
      switch (upto(depth > 0 ? 11 : 9)) {
      case 0: values_.push_back(load()); break;
      case 1: of_rows_.push_back(b_.reduce(upto(1) ? ReduceKind::Sum : ReduceKind::Max, pick(values_), 1)); break;
      case 2: of_columns_.push_back(b_.reduce(upto(1) ? ReduceKind::Sum : ReduceKind::Min, pick(values_), 0)); break;
      case 3: of_columns_.push_back(b_.load(x_, b_.range(columns_), op(ScalarOp::Lt, b_.range(columns_), n_))); break;
      case 4: values_.push_back(b_.scan(ReduceKind::Max, pick(values_), upto(1))); break;
      case 5: { // the largest of each row, and where it is
        auto [most, at] = b_.reduce_arg(ReduceKind::ArgMax, pick(values_), upto(1) ? column_ : down_, 1, upto(1));
        of_rows_.push_back(op(ScalarOp::Add, most, b_.cast(at, DType::F32)));
        break;
      }
      case 6:
        if (!of_rows_.empty()) values_.push_back(pointwise(pick(values_), spread(pick(of_rows_), 1)));
        if (rows_ == columns_ && !of_rows_.empty()) of_columns_.push_back(pick(of_rows_));
        break;
      case 7:
        if (!of_columns_.empty()) values_.push_back(pointwise(spread(pick(of_columns_), 0), pick(values_)));
        break;
      case 8: // what follows from indices alone
        values_.push_back(b_.scalar(ScalarOp::Select, std::array{op(ScalarOp::Lt, across_, down_), pick(values_),
                                                                 b_.cast(upto(1) ? across_ : down_, DType::F32)}));
        break;
      case 10: loop(depth); break;
      case 11: branch(depth); break;
      default: values_.push_back(pointwise(pick(values_), pick(values_))); break;
      }
    }
  }

  // Values made inside of a region are not visible behind it.
  template <class Body>
  std::vector<ValueId> inside(Body body) {
    auto saved = std::tuple(values_, of_rows_, of_columns_);
    std::vector<ValueId> r = body();
    std::tie(values_, of_rows_, of_columns_) = saved;
    return r;
  }

  void loop(int depth) {
    std::vector<ValueId> start = {pick(values_)};
    start.push_back(upto(1) ? b_.reduce(ReduceKind::Max, pick(values_), 1)
                            : b_.broadcast(b_.const_f(DType::F32, 0), {rows_}));
    std::vector<ValueId> end =
        b_.for_loop(number(0), n_, number(4), start, [&](ValueId i, std::span<const ValueId> carried) {
          return inside([&] {
            ValueId tile = carried[0], rows = carried[1];
            values_.push_back(tile);
            of_rows_.push_back(rows);
            ValueId at = op(ScalarOp::Mod, add(upto(1) ? across_ : down_, times(i, 64)), number(kInputs));
            values_.push_back(b_.load(x_, at));
            grow(3, depth - 1);
            if (upto(1)) store(values_.back()); // the last iteration's stays
            return std::vector<ValueId>{pick(values_), pick(of_rows_)};
          });
        });
    values_.push_back(end[0]);
    of_rows_.push_back(end[1]);
  }

  void branch(int depth) {
    auto side = [&] {
      return inside([&] {
        grow(2, depth - 1);
        return std::vector<ValueId>{upto(3) ? pick(values_) : b_.broadcast(b_.const_f(DType::F32, 2), full())};
      });
    };
    values_.push_back(b_.if_else(op(ScalarOp::Lt, n_, number(10)), side, side)[0]);
  }

  void store(ValueId v) {
    std::vector<int> shape = k_.type(v).shape;
    int64_t count = k_.type(v).count();
    if (next_ + count > kOutputs) return;
    ValueId offset = shape.size() == 2 ? (upto(2) ? across_ : down_) : b_.range(shape[0]);
    ValueId mask = shape.size() == 2 && upto(3) == 0 ? op(ScalarOp::Lt, column_, n_) : -1;
    b_.store(y_, add(offset, number(next_)), v, mask);
    next_ += count;
  }
};

} // namespace tessera::layout::test
