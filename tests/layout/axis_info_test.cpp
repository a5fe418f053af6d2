// Facts about index values: what texts are expected to yield, and that on random arithmetic no claim is false.
#include "codegen/layout/axis_info.h"
#include "tests/tile/helpers.h"
#include <algorithm>
#include <limits>
#include <map>
#include <random>

namespace tessera::layout {
namespace {

using tile::Kernel;
using tile::OpKind;
using tile::ValueId;

// The facts of the offset, or mask, of the kernel's memory operations in order, "-" where there is none.
std::vector<std::string> facts(std::string_view text, size_t operand = 1) {
  Kernel k = tile::test::read(text);
  std::vector<AxisInfo> info = axis_info(k);
  std::vector<std::string> r;
  for (tile::OpId id = 0; id < k.op_count(); ++id) {
    const tile::Op& op = k.op(id);
    if (op.kind != OpKind::Load && op.kind != OpKind::Store) continue;
    size_t at = op.kind == OpKind::Store && operand == 2 ? 3 : operand;
    r.push_back(op.operands.size() > at ? info[static_cast<size_t>(op.operands[at])].str() : "-");
  }
  return r;
}
using Facts = std::vector<std::string>;

TEST(AxisInfo, AFlatAccessIsContiguousAndItsMaskConstantWhereTheSizeIsAMultiple) {
  std::string text = R"(
tile.kernel @scale(%x: ptr<f16>, %y: ptr<f16> written, %n: i64 MULTIPLE) {
  %p = program_id 0                       : i64
  %start = mul(%p, 64)                    : i64
  %r = range 64                           : tile<[64], i64>
  %o = add(%r, %start)                    : tile<[64], i64>
  %in = lt(%o, %n)                        : tile<[64], bool>
  %v = load %x[%o] mask=%in other=0       : tile<[64], f16>
  store %y[%o] = %v mask=%in
})";
  auto with = [&](const std::string& multiple) {
    std::string t = text;
    return t.replace(t.find(" MULTIPLE"), 9, multiple);
  };
  EXPECT_EQ(facts(with("")), Facts(2, "contiguity [64] constancy [1] divisibility [64] span 63 non-negative"));
  EXPECT_EQ(facts(with(""), 2), Facts(2, "contiguity [1] constancy [1] divisibility [1] non-negative"));
  EXPECT_EQ(facts(with(" multiple=24"), 2), Facts(2, "contiguity [1] constancy [8] divisibility [1] non-negative"));
}

TEST(AxisInfo, RowsOfATileStartAtMultiplesOfTheStride) {
  EXPECT_EQ(facts(R"(
tile.kernel @rows(%x: ptr<f16>, %y: ptr<f32> written, %cols: i64 multiple=8, %c: i64) {
  %p = program_id 0                       : i64
  %base = mul(%p, 4)                      : i64
  %r = range 4                            : tile<[4], i64>
  %row = add(%r, %base)                   : tile<[4], i64>
  %rows = expand_dims(%row) axis=1        : tile<[4, 1], i64>
  %start = mul(%rows, %cols)              : tile<[4, 1], i64>
  %starts = broadcast(%start)             : tile<[4, 64], i64>
  %k = range 64                           : tile<[64], i64>
  %ks = expand_dims(%k) axis=0            : tile<[1, 64], i64>
  %kk = broadcast(%ks)                    : tile<[4, 64], i64>
  %o = add(%starts, %kk)                  : tile<[4, 64], i64>
  %v = load %x[%o]                        : tile<[4, 64], f16>
  %q = mul(%kk, %c)                       : tile<[4, 64], i64>
  %t = add(%q, %starts)                   : tile<[4, 64], i64>
  %f = cast(%v)                           : tile<[4, 64], f32>
  store %y[%t] = %f
})"),
            (Facts{"contiguity [1, 64] constancy [1, 1] divisibility [1, 8] non-negative",
                   "contiguity [1, 1] constancy [1, 1] divisibility [1, 1]"}));
}

TEST(AxisInfo, LoopsStepByMultiplesAndCarriedOffsetsAreJoined) {
  EXPECT_EQ(facts(R"(
tile.kernel @loop(%x: ptr<f32>, %y: ptr<f32> written, %n: i64, %s: i64 multiple=4) {
  %r = range 32                           : tile<[32], i64>
  %far = for %i = 0 to %n step 32 carry(%at = %r) {
    %o = add(%r, %i)                      : tile<[32], i64>
    %a = load %x[%o]                      : tile<[32], f32>
    %b = load %x[%at]                     : tile<[32], f32>
    %c = add(%a, %b)                      : tile<[32], f32>
    store %y[%o] = %c
    %next = add(%at, %s)                  : tile<[32], i64>
    yield %next
  }
  store %y[%far] = 1
})"),
            (Facts{"contiguity [32] constancy [1] divisibility [32] span 31 non-negative",
                   "contiguity [32] constancy [1] divisibility [4] span 31 non-negative",
                   "contiguity [32] constancy [1] divisibility [32] span 31 non-negative",
                   "contiguity [32] constancy [1] divisibility [4] span 31 non-negative"}));
}

TEST(AxisInfo, DivisionAndRemainderByAMultipleKeepGroups) {
  Facts expected = {
      "contiguity [1] constancy [8] divisibility [1] non-negative",
      "contiguity [8] constancy [1] divisibility [8] non-negative",
      "contiguity [1] constancy [8] divisibility [1]", // (o - o mod m) / m, as it is written where o may be negative
      "contiguity [1] constancy [1] divisibility [1]"};
  EXPECT_EQ(facts(R"(
tile.kernel @split(%x: ptr<f32>, %y: ptr<f32> written, %m: i64 multiple=8, %any: i64) {
  %r = range 64                           : tile<[64], i64>
  %p = program_id 0                       : i64
  %b = mul(%p, 64)                        : i64
  %o = add(%r, %b)                        : tile<[64], i64>
  %q = div(%o, %m)                        : tile<[64], i64>
  %s = mod(%o, %m)                        : tile<[64], i64>
  %e = sub(%o, %s)                        : tile<[64], i64>
  %d = div(%e, %m)                        : tile<[64], i64>
  %u = mod(%o, %any)                      : tile<[64], i64>
  %v0 = load %x[%q]                       : tile<[64], f32>
  %v1 = load %x[%s]                       : tile<[64], f32>
  %v2 = load %x[%d]                       : tile<[64], f32>
  %v3 = load %x[%u]                       : tile<[64], f32>
})"),
            expected);
}

TEST(AxisInfo, EveryNumberIsDivisibleByAPowerOfTwo) {
  for (int64_t v : {int64_t{1}, int64_t{-1}, int64_t{7}}) EXPECT_EQ(power_of_two_in(v), 1) << v;
  for (int64_t v : {int64_t{24}, int64_t{-24}}) EXPECT_EQ(power_of_two_in(v), 8) << v;
  for (int64_t v : {int64_t{0}, kMaxDivisor, 3 * kMaxDivisor, -4 * kMaxDivisor, std::numeric_limits<int64_t>::min()})
    EXPECT_EQ(power_of_two_in(v), kMaxDivisor) << v;
}

TEST(AxisInfo, BranchesAreJoined) {
  EXPECT_EQ(facts(R"(
tile.kernel @branch(%x: ptr<f32>, %c: bool, %n: i64 multiple=16) {
  %r = range 64                           : tile<[64], i64>
  %o = if %c {
    %a = add(%r, %n)                      : tile<[64], i64>
    yield %a
  } else {
    %b = add(%r, 4)                       : tile<[64], i64>
    yield %b
  }
  %v = load %x[%o]                        : tile<[64], f32>
})"),
            Facts(1, "contiguity [64] constancy [1] divisibility [4] span 63 non-negative"));
}

TEST(AxisInfo, StridesOfAWholeAxis) {
  Kernel k = tile::test::read(R"(
tile.kernel @strides(%x: ptr<f32>, %n: i64) {
  %r = range 64                           : tile<[64], i64>
  %two = mul(%r, 2)                       : tile<[64], i64>
  %o = sub(5, %two)                       : tile<[64], i64>
  %a = add(%o, %n)                        : tile<[64], i64>
  %b = mul(%r, %n)                        : tile<[64], i64>
  %q = div(%r, 64)                        : tile<[64], i64>
  %v = load %x[%a]                        : tile<[64], f32>
  %w = load %x[%b]                        : tile<[64], f32>
  %u = load %x[%q]                        : tile<[64], f32>
})");
  std::vector<AxisInfo> info = axis_info(k);
  std::vector<std::optional<int64_t>> strides;
  for (tile::OpId id = 0; id < k.op_count(); ++id)
    if (k.op(id).kind == OpKind::Load) strides.push_back(info[static_cast<size_t>(k.op(id).operands[1])].stride[0]);
  EXPECT_EQ(strides, (std::vector<std::optional<int64_t>>{-2, std::nullopt, 0}));
}

TEST(AxisInfo, SpansOfPiecesOfRowsThatFollowEachOther) {
  Kernel k = tile::test::read(R"(
tile.kernel @spans(%x: ptr<f32>, %n: i64) {
  %p = program_id 0                       : i64
  %r = range 64                           : tile<[64], i64>
  %rows = expand_dims(%r) axis=1          : tile<[64, 1], i64>
  %eight = mul(%rows, 8)                  : tile<[64, 1], i64>
  %o = add(%eight, %p)                    : tile<[64, 1], i64>
  %q = div(%o, 214)                       : tile<[64, 1], i64>
  %m = mod(%o, 214)                       : tile<[64, 1], i64>
  %next = ge(%m, 207)                     : tile<[64, 1], bool>
  %one = cast(%next)                      : tile<[64, 1], i64>
  %row = add(%q, %one)                    : tile<[64, 1], i64>
  %u = mul(%q, %n)                        : tile<[64, 1], i64>
  %s = select(%next, %q, %m)              : tile<[64, 1], i64>
  %a = load %x[%row]                      : tile<[64, 1], f32>
  %b = load %x[%m]                        : tile<[64, 1], f32>
  %c = load %x[%u]                        : tile<[64, 1], f32>
  %d = load %x[%s]                        : tile<[64, 1], f32>
})");
  std::vector<AxisInfo> info = axis_info(k);
  std::vector<std::optional<int64_t>> spans;
  for (tile::OpId id = 0; id < k.op_count(); ++id)
    if (k.op(id).kind == OpKind::Load) spans.push_back(info[static_cast<size_t>(k.op(id).operands[1])].span);
  // 504 / 214 + 1, and one for a condition; remainders; nothing of products with numbers that are not known, or
  // choices.
  EXPECT_EQ(spans, (std::vector<std::optional<int64_t>>{4, 213, std::nullopt, std::nullopt}));
}

// --- random arithmetic ---

// Grows a kernel of integer and bool tiles [4, 16] and scalars, stores them all, and runs it.
class Random {
public:
  explicit Random(unsigned seed) : rng_(seed), b_(k_) {
    k_.name = "random";
    out_ = b_.param("out", {tile::Type::Kind::Pointer, DType::I64, {}}, true);
    for (int i = 0; i < 3; ++i) {
      ValueId p = b_.param("n" + std::to_string(i), {tile::Type::Kind::Data, DType::I64, {}});
      int64_t multiple = int64_t{1} << upto(5);
      k_.params.back().multiple_of = multiple * (1 + 2 * upto(1));
      scalars_.push_back(k_.params.back().multiple_of * (1 + upto(6)));
      if (k_.params.back().multiple_of == 1 && upto(1)) scalars_.back() = -scalars_.back();
      numbers_.push_back(p);
    }
    numbers_.push_back(b_.program_id(0));
    for (int64_t c : {-3, 0, 1, 2, 8, 12}) numbers_.push_back(b_.const_i(DType::I64, c));
    ValueId cols = b_.broadcast(b_.expand_dims(b_.range(16), 0), {4, 16});
    ValueId rows = b_.broadcast(b_.expand_dims(b_.range(4), 1), {4, 16});
    tiles_ = {cols, rows,
              b_.scalar(ScalarOp::Add, std::array{cols, b_.scalar(ScalarOp::Mul, std::array{rows, numbers_[0]})})};
    grow(12);
    // A loop that carries a tile.
    ValueId carried = pick(tiles_), step = pick(numbers_);
    std::vector<ValueId> end =
        b_.for_loop(b_.const_i(DType::I64, 0), b_.const_i(DType::I64, 24), b_.const_i(DType::I64, 8), {carried},
                    [&](ValueId i, std::span<const ValueId> args) {
                      ValueId next = b_.scalar(ScalarOp::Add, std::array{args[0], step});
                      inner_ = {b_.scalar(ScalarOp::Add, std::array{args[0], i}), args[0], next};
                      for (ValueId v : inner_) keep(v, i);
                      return std::vector<ValueId>{next};
                    });
    tiles_.push_back(end[0]);
    grow(6);
    for (ValueId v : numbers_) keep(v, -1);
    for (ValueId v : tiles_) keep(v, -1);
    for (ValueId v : bools_) keep(v, -1);
  }

  void check() {
    Status good = tile::verify(k_);
    ASSERT_TRUE(good.ok()) << good.error().str() << print(k_);
    constexpr int64_t kGrid = 3;
    std::vector<int64_t> out(static_cast<size_t>(kGrid * kRoom), 0);
    std::vector<tile::Argument> args = {{std::as_writable_bytes(std::span(out)), {}}};
    for (int64_t s : scalars_) args.push_back({{}, {static_cast<double>(s), s}});
    auto ran = tile::interpret(k_, args, kGrid);
    ASSERT_TRUE(ran.ok()) << ran.error().str();
    std::vector<AxisInfo> info = axis_info(k_);
    for (int64_t p = 0; p < kGrid; ++p)
      for (const auto& [value, places] : places_)
        for (int64_t at : places) {
          ValueId v = value;
          claim(info[static_cast<size_t>(v)], k_.type(v), out.data() + p * kRoom + at, v);
          if (testing::Test::HasFailure()) {
            std::string numbers;
            for (int64_t s : scalars_) numbers += std::to_string(s) + " ";
            FAIL() << "value " << v << " in program " << p << " with " << numbers << "\n"
                   << info[static_cast<size_t>(v)].str() << "\n"
                   << print(k_);
          }
        }
  }
  [[nodiscard]] int claims() const { return claims_; }

private:
  static constexpr int64_t kRoom = 64 * 256;
  std::mt19937 rng_;
  Kernel k_;
  tile::Builder b_;
  ValueId out_ = -1;
  std::vector<int64_t> scalars_;
  std::vector<ValueId> numbers_, tiles_, bools_, inner_;
  std::map<ValueId, std::vector<int64_t>> places_;
  int64_t next_ = 0;
  int claims_ = 0;

  int upto(int n) { return std::uniform_int_distribution<int>(0, n)(rng_); }
  ValueId pick(const std::vector<ValueId>& v) { return v[static_cast<size_t>(upto(static_cast<int>(v.size()) - 1))]; }

  void grow(int steps) {
    static constexpr ScalarOp ops[] = {ScalarOp::Add, ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Div,
                                       ScalarOp::Mod, ScalarOp::Min, ScalarOp::Max, ScalarOp::Neg};
    static constexpr ScalarOp tests[] = {ScalarOp::Lt, ScalarOp::Le, ScalarOp::Gt, ScalarOp::Ge, ScalarOp::Eq};
    for (int i = 0; i < steps; ++i) {
      ScalarOp op = ops[upto(8)];
      if (upto(4) == 0) {
        numbers_.push_back(op == ScalarOp::Neg ? b_.scalar(op, std::array{pick(numbers_)})
                                               : b_.scalar(op, std::array{pick(numbers_), pick(numbers_)}));
        continue;
      }
      ValueId x = pick(tiles_), y = upto(1) ? pick(tiles_) : pick(numbers_);
      if (upto(1) && op != ScalarOp::Div && op != ScalarOp::Mod) std::swap(x, y);
      ValueId test = b_.scalar(tests[upto(4)], std::array{x, y});
      switch (upto(5)) {
      case 0:
        if (bools_.size() % 2) test = b_.scalar(ScalarOp::And, std::array{test, bools_.back()});
        bools_.push_back(test);
        break;
      case 1: tiles_.push_back(b_.scalar(ScalarOp::Select, std::array{test, x, y})); break;
      case 2: tiles_.push_back(b_.cast(b_.cast(pick(tiles_), upto(1) ? DType::I32 : DType::I8), DType::I64)); break;
      default:
        tiles_.push_back(op == ScalarOp::Neg ? b_.scalar(op, std::array{pick(tiles_)})
                                             : b_.scalar(op, std::array{x, y}));
      }
    }
  }

  // Stores a value at a place of its own; in a loop (of i = 0, 8, 16) at one per iteration.
  void keep(ValueId v, ValueId i) {
    bool tile = k_.type(v).is_tile();
    int64_t count = 64;
    ValueId at = b_.const_i(DType::I64, next_);
    at = b_.scalar(ScalarOp::Add, std::array{at, b_.scalar(ScalarOp::Mul, std::array{b_.program_id(0),
                                                                                     b_.const_i(DType::I64, kRoom)})});
    if (i >= 0)
      at = b_.scalar(ScalarOp::Add,
                     std::array{at, b_.scalar(ScalarOp::Mul, std::array{i, b_.const_i(DType::I64, count / 8)})});
    for (int64_t n = 0; n < (i >= 0 ? 3 : 1); ++n, next_ += count) places_[v].push_back(next_);
    ASSERT_LT(next_, kRoom);
    ValueId stored = b_.cast(v, DType::I64);
    if (tile) {
      ValueId linear = b_.scalar(
          ScalarOp::Add,
          std::array{b_.broadcast(b_.expand_dims(b_.range(16), 0), {4, 16}),
                     b_.scalar(ScalarOp::Mul, std::array{b_.broadcast(b_.expand_dims(b_.range(4), 1), {4, 16}),
                                                         b_.const_i(DType::I64, 16)})});
      at = b_.scalar(ScalarOp::Add, std::array{linear, at});
    }
    b_.store(out_, at, stored);
  }

  void claim(const AxisInfo& info, const tile::Type& type, const int64_t* v, ValueId id) {
    bool tile = type.is_tile();
    int64_t extents[2] = {tile ? 4 : 1, tile ? 16 : 1};
    if (info.span) {
      const auto [least, most] = std::minmax_element(v, v + extents[0] * extents[1]);
      EXPECT_LE(*most - *least, *info.span) << id << " span";
    }
    for (int axis = 0; axis < (tile ? 2 : 1); ++axis) {
      size_t i = static_cast<size_t>(axis);
      int64_t stride = tile && axis == 0 ? 16 : 1, extent = extents[axis];
      claims_ += info.contiguity[i] > 1 || info.constancy[i] > 1 || info.divisibility[i] > 1;
      for (int64_t other = 0; other < extents[0] * extents[1] / extent; ++other)
        for (int64_t x = 0; x < extent; ++x) {
          const int64_t* e = v + x * stride + other * (stride == 16 || !tile ? 1 : 16);
          if (x % info.contiguity[i] != 0) {
            EXPECT_EQ(e[0], e[-stride] + 1) << id << " contiguity";
          } else { // what is divisible by kMaxDivisor is 0 here
            EXPECT_EQ(e[0] % info.divisibility[i], 0) << id << " divisibility";
          }
          if (x % info.constancy[i] != 0) {
            EXPECT_EQ(e[0], e[-stride]) << id << " constancy";
          }
          if (type.dtype == DType::Bool && x % info.interval[i] != 0 && e[0] && !e[-stride]) {
            for (int64_t before = x % info.interval[i]; before > 0; --before)
              EXPECT_EQ(e[-before * stride], 0) << id << " interval";
          }
          if (x > 0 && info.stride[i]) {
            EXPECT_EQ(e[0], e[-stride] + *info.stride[i]) << id << " stride";
          }
          if (info.constant) {
            EXPECT_EQ(e[0], *info.constant) << id;
          }
          if (info.non_negative) {
            EXPECT_GE(e[0], 0) << id;
          }
        }
    }
  }
};

TEST(AxisInfo, NoClaimAboutRandomArithmeticIsFalse) {
  int claims = 0;
  for (unsigned seed = 0; seed < 400 && !HasFailure(); ++seed) {
    Random r(seed);
    r.check();
    claims += r.claims();
  }
  EXPECT_GT(claims, 10000);
}

} // namespace
} // namespace tessera::layout
