// Attention as one kernel on the emulator, against the same computed plainly in f64: sizes that fill no tile, masks of
// all kinds, shared heads, strides.
#include "codegen/schedule/lower/block_attention.h"
#include "harness.h"
#include <cmath>
#include <random>

namespace tessera::test {
namespace {

using Values = std::vector<double>;

// One attention: how large it is, and how its scores come about.
struct Case {
  int64_t batch = 1, heads = 2, key_heads = 2, queries = 5, keys = 7, width = 16, value_width = 16;
  DType dtype = DType::F16;
  enum class Mask { None, Causal, Additive, Keep, Both } mask = Mask::None;
  bool zeros = false;        // where undefined
  bool heads_inside = false; // [batch, position, head, width]
  int64_t past = 0;          // causal: j <= i + past
  bool none_kept = false;    // row 0 of the mask keeps nothing
  bool symbolic = true;
  float cap = 0; // of scores, by a tanh; 0: none
};

Tensor of(DType d, const std::vector<int64_t>& dims, uint64_t seed) {
  int64_t n = 1;
  for (auto x : dims) n *= x;
  return random_tensor(d, n, seed, 2).reshaped(dims);
}

class Attention {
public:
  explicit Attention(const Case& c) : c_(c) {
    auto size = [&](const char* name, int64_t n) {
      SymExpr s = c.symbolic ? g_.env().named_symbol(name) : SymExpr(n);
      if (c.symbolic) symbols_[s.symbol_id()] = n;
      return s;
    };
    SymExpr b = size("b", c.batch), m = size("m", c.queries), n = size("n", c.keys);
    view(call_.q, "q", b, c.heads, c.heads, m, c.width, c.queries, 1);
    view(call_.k, "k", b, c.heads, c.key_heads, n, c.width, c.keys, 2);
    view(call_.v, "v", b, c.heads, c.key_heads, n, c.value_width, c.keys, 3);
    view(call_.out, "out", b, c.heads, c.heads, m, c.value_width, c.queries, 4);
    SymExpr ib = axis("ib", b), ih = axis("ih", c.heads), ii = axis("ii", m), ij = axis("ij", n);
    call_.score.axes.back().role = AxisRole::Row;
    call_.zero_where_undefined = c.zeros;
    auto& d = call_.score.dag;
    call_.score.loads.push_back(ValueId{-1}); // the product
    auto x = d.load(0, DType::F32, {d.index(ib), d.index(ih), d.index(ii), d.index(ij)});
    x = d.op(ScalarOp::Mul, x, d.constant_f(DType::F32, 0.25));
    if (c.cap > 0) {
      auto most = d.constant_f(DType::F32, c.cap);
      x = d.op(ScalarOp::Mul, d.op(ScalarOp::Tanh, d.op(ScalarOp::Div, x, most)), most);
    }
    auto never = d.constant_f(DType::F32, -HUGE_VAL);
    if (c.mask == Case::Mask::Additive || c.mask == Case::Mask::Both) { // [batch, 1, queries, keys]
      auto l = mask(DType::F16, {b, 1, m, n}, {c.batch, 1, c.queries, c.keys});
      x = d.op(ScalarOp::Add, x, d.load(l, DType::F32, {d.index(ib), d.index(0), d.index(ii), d.index(ij)}));
    }
    if (c.mask == Case::Mask::Keep || c.mask == Case::Mask::Both) { // [batch, keys]
      auto l = mask(DType::Bool, {b, n}, {c.batch, c.keys});
      x = d.op(ScalarOp::Select, d.load(l, DType::Bool, {d.index(ib), d.index(ij)}), x, never);
    }
    if (c.mask == Case::Mask::Causal || c.mask == Case::Mask::Both)
      x = d.op(ScalarOp::Select, d.condition(sym_le(ij, ii + c.past)), x, never);
    call_.root = x;
  }

  void check() {
    std::string why;
    ASSERT_TRUE(attention_by_blocks_takes(g_, call_, &why)) << why;
    for (const auto& k : attention_by_blocks(g_, call_, "attention")) {
      bool fits = true;
      for (const auto& c : k.conditions) fits = fits && *c.value.eval(symbols_) <= c.max;
      if (fits) run(k);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

private:
  void run(const ScheduledKernel& k) {
    auto ok = tile::verify(k.kernel);
    ASSERT_TRUE(ok.ok()) << ok.error().str() << tile::print(k.kernel);
    auto program = EmulatedProgram::compile(k.kernel, {});
    ASSERT_TRUE(program.ok()) << program.error().str() << tile::print(k.kernel);
    std::vector<tile::Argument> args;
    for (size_t i = 0; i < k.buffers.size(); ++i) {
      Tensor& t = data_.at(k.buffers[i].index);
      if (k.written[i])
        for (int64_t e = 0; e < t.count(); ++e) t.set_f64(e, 77);
      args.push_back({{t.mutable_data(), t.bytes()}, {}});
    }
    for (const auto& s : k.sizes) args.push_back({{}, {0, *s.eval(symbols_)}});
    static uint64_t seed = 0;
    auto r = program->run(args, *k.grid.eval(symbols_), {.seed = seed++});
    ASSERT_TRUE(r.ok()) << r.error().str() << tile::print(k.kernel);
    compare_with_plain(tile::print(k.kernel));
  }

  Case c_;
  Graph g_;
  AttentionCall call_;
  std::unordered_map<uint64_t, int64_t> symbols_;
  std::map<int, Tensor> data_; // by value

  SymExpr axis(const char* name, const SymExpr& extent) {
    SymExpr a = g_.env().named_symbol(name);
    g_.env().set_axis(a, extent);
    call_.score.axes.push_back({a, extent, AxisRole::Outer});
    return a;
  }
  ValueId value(const char* name, DType d, std::vector<SymExpr> shape, const std::vector<int64_t>& dims,
                uint64_t seed) {
    TensorType t;
    t.dtype = d;
    t.shape = SymShape(shape.begin(), shape.end());
    ValueId v = g_.add_input(name, t);
    data_[v.index] = of(d, dims, seed);
    return v;
  }
  int mask(DType d, std::vector<SymExpr> shape, const std::vector<int64_t>& dims) {
    ValueId v = value(d == DType::Bool ? "keep" : "bias", d, std::move(shape), dims, 7);
    Tensor& t = data_[v.index];
    if (c_.none_kept && d == DType::Bool)
      for (int64_t i = 0; i < c_.keys; ++i) t.set_i64(i, 0);
    call_.score.loads.push_back(v);
    return static_cast<int>(call_.score.loads.size()) - 1;
  }
  void view(OperandView& o, const char* name, const SymExpr& b, int64_t heads, int64_t own, const SymExpr& n,
            int64_t width, int64_t rows, uint64_t seed) {
    bool inside = c_.heads_inside;
    std::vector<SymExpr> shape =
        inside ? std::vector<SymExpr>{b, n, own, width} : std::vector<SymExpr>{b, own, n, width};
    std::vector<int64_t> dims =
        inside ? std::vector<int64_t>{c_.batch, rows, own, width} : std::vector<int64_t>{c_.batch, own, rows, width};
    o.value = value(name, c_.dtype, shape, dims, seed);
    o.shape = {b, heads, n, width};
    auto s = contiguous_strides(g_.type(o.value).shape);
    o.strides = {s[0], s[inside ? 2 : 1], s[inside ? 1 : 2], s[3]};
    if (own == 1 && heads > 1) o.strides[1] = 0; // all heads read one
    // A dimension of size 1, such as a single query, has no stride after planning.
    for (size_t i = 0; i < o.shape.size(); ++i)
      if (o.shape[i].is_const(1)) o.strides[i] = 0;
    o.offset = 0;
  }

  [[nodiscard]] double element(const OperandView& o, int64_t b, int64_t h, int64_t i, int64_t j) const {
    int64_t at = 0;
    std::array<int64_t, 4> index = {b, h, i, j};
    for (size_t d = 0; d < 4; ++d) at += index[d] * *o.strides[d].eval(symbols_);
    return data_.at(o.value.index).get_f64(at);
  }
  void compare_with_plain(const std::string& kernel) {
    double tolerance = c_.dtype == DType::F16 ? 4e-3 : 3e-2;
    for (int64_t b = 0; b < c_.batch; ++b)
      for (int64_t h = 0; h < c_.heads; ++h)
        for (int64_t i = 0; i < c_.queries; ++i) {
          Values x, sum(static_cast<size_t>(c_.value_width), 0);
          double most = -HUGE_VAL, total = 0;
          for (int64_t j = 0; j < c_.keys; ++j) {
            x.push_back(score(b, h, i, j));
            most = std::max(most, x.back());
          }
          for (int64_t j = 0; j < c_.keys; ++j) {
            double p = std::exp(x[static_cast<size_t>(j)] - most);
            total += p;
            for (int64_t w = 0; w < c_.value_width; ++w)
              sum[static_cast<size_t>(w)] += p * element(call_.v, b, h, j, w);
          }
          for (int64_t w = 0; w < c_.value_width; ++w) {
            double expected = c_.keys == 0 ? 0 : sum[static_cast<size_t>(w)] / total;
            if (c_.zeros && !(total > 0)) expected = 0;
            double actual = element(call_.out, b, h, i, w);
            ASSERT_TRUE((std::isnan(expected) && std::isnan(actual)) ||
                        std::abs(expected - actual) <= tolerance * (1 + std::abs(expected)))
                << b << " " << h << " " << i << " " << w << ": " << actual << ", expected " << expected << "\n"
                << kernel;
          }
        }
  }
  [[nodiscard]] double score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    double s = 0;
    for (int64_t w = 0; w < c_.width; ++w) s += element(call_.q, b, h, i, w) * element(call_.k, b, h, j, w);
    s *= 0.25;
    if (c_.cap > 0) s = std::tanh(s / c_.cap) * c_.cap;
    for (size_t l = 1; l < call_.score.loads.size(); ++l) {
      const Tensor& t = data_.at(call_.score.loads[l].index);
      if (t.dtype() == DType::Bool)
        s = t.get_i64(b * c_.keys + j) ? s : -HUGE_VAL;
      else
        s += t.get_f64((b * c_.queries + i) * c_.keys + j);
    }
    bool causal = c_.mask == Case::Mask::Causal || c_.mask == Case::Mask::Both;
    return causal && j > i + c_.past ? -HUGE_VAL : s;
  }
};

void check(const std::vector<Case>& cases) {
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    Attention(cases[i]).check();
    if (testing::Test::HasFatalFailure()) return;
  }
}

using Mask = Case::Mask;

TEST(BlockAttention, SizesThatFillNoTile) {
  check({{.queries = 1, .keys = 1},
         {.queries = 70, .keys = 130},
         {.queries = 3, .keys = 0},
         {.queries = 0, .keys = 9},
         {.batch = 2, .queries = 64, .keys = 64, .symbolic = false},
         {.queries = 17, .keys = 65, .symbolic = false},
         {.queries = 130, .keys = 67, .dtype = DType::BF16}});
}

TEST(BlockAttention, OnePoint) {
  for (DType dtype : {DType::F16, DType::BF16})
    check({{.queries = 1, .keys = 70, .width = 64, .value_width = 64, .dtype = dtype, .symbolic = false},
           {.queries = 1, .keys = 1, .dtype = dtype, .symbolic = false},
           {.queries = 3, .keys = 1, .dtype = dtype, .symbolic = false},
           {.queries = 1, .keys = 9, .width = 1, .value_width = 1, .dtype = dtype, .symbolic = false},
           {.heads = 1, .key_heads = 1, .queries = 1, .keys = 33, .dtype = dtype, .symbolic = false},
           {.heads = 4, .key_heads = 1, .queries = 1, .keys = 33, .dtype = dtype, .symbolic = false},
           {.queries = 1, .keys = 65, .dtype = dtype, .mask = Mask::Both, .past = 64, .symbolic = false},
           {.queries = 1, .keys = 9, .dtype = dtype, .heads_inside = true, .symbolic = false}});
}

// Small and odd sizes of everything at once.
TEST(BlockAttention, RandomSizes) {
  std::mt19937 random(40);
  auto any = [&](std::initializer_list<int64_t> of) { return *(of.begin() + random() % of.size()); };
  for (int i = 0; i < 40; ++i) {
    Case c;
    c.batch = any({1, 2, 3});
    c.heads = any({1, 2, 3});
    c.key_heads = any({1, c.heads});
    c.queries = any({1, 1, 2, 3, 8, 15, 16, 17, 33});
    c.keys = any({1, 2, 3, 7, 16, 31, 64, 65, 127, 129});
    c.width = any({1, 3, 8, 16, 17, 40, 64});
    c.value_width = any({c.width, 1, 5, 8, 24, 33});
    c.dtype = any({0, 1}) == 0 ? DType::F16 : DType::BF16;
    c.mask = static_cast<Mask>(any({0, 1, 2, 3, 4}));
    c.past = any({0, c.keys - c.queries, 2});
    c.zeros = any({0, 1}) == 1;
    c.heads_inside = any({0, 1}) == 1;
    c.symbolic = any({0, 1}) == 1;
    c.cap = static_cast<float>(any({0, 0, 0, 5}));
    SCOPED_TRACE("draw " + std::to_string(i));
    check({c});
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(BlockAttention, WidthsOfHeads) {
  check({{.width = 64, .value_width = 64},
         {.heads = 1, .key_heads = 1, .queries = 20, .keys = 70, .width = 128, .value_width = 128},
         {.width = 40, .value_width = 24},
         {.width = 80, .value_width = 8},
         {.width = 1, .value_width = 3},
         {.heads = 1, .key_heads = 1, .queries = 3, .keys = 66, .width = 256, .value_width = 256}});
}

TEST(BlockAttention, Masks) {
  check({{.queries = 140, .keys = 140, .mask = Mask::Causal},
         {.queries = 33, .keys = 200, .mask = Mask::Causal, .past = 167},
         {.queries = 9, .keys = 3, .mask = Mask::Causal},
         {.queries = 5, .keys = 9, .mask = Mask::Causal, .past = -2},
         {.batch = 2, .queries = 70, .keys = 75, .mask = Mask::Additive},
         {.batch = 2, .queries = 70, .keys = 75, .mask = Mask::Keep},
         {.batch = 2, .queries = 70, .keys = 75, .mask = Mask::Both},
         {.queries = 4, .keys = 70, .mask = Mask::Keep, .none_kept = true},
         {.queries = 4, .keys = 70, .mask = Mask::Keep, .zeros = true, .none_kept = true}});
}

TEST(BlockAttention, StridesAndSharedHeads) {
  check({{.batch = 2, .heads = 3, .key_heads = 3, .queries = 20, .keys = 33, .heads_inside = true},
         {.batch = 2, .heads = 4, .key_heads = 1, .queries = 20, .keys = 33},
         {.heads = 4, .key_heads = 1, .queries = 20, .keys = 33, .mask = Mask::Both, .heads_inside = true}});
}

} // namespace
} // namespace tessera::test
