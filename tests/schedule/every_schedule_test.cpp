// Every legal schedule of 200 random nests computes what the nest means: by the interpreter of tile kernels, and in
// tests/gpu on the emulator. Schedules that lower to the same program (bounds on registers do not change it) are run once.
#include "block_harness.h"
#include "tests/base/share.h"
#include <random>
#include <set>

namespace tessera::test {
namespace {

// A nest as text: axes of odd and even lengths; loads of all element types that leave axes out, permute them, begin
// misaligned, take every second element, are masked or gathered; pointwise steps that keep values near 1; up to three
// rounds of reductions, the last of which may be an index. Numbers are eighths, so that ties are met and sums are
// nearly exact in any order.
class RandomNest {
public:
  enum class Form { Pointwise, Rows, Columns, Windows };
  RandomNest(uint32_t seed, Form form) : rng_(seed * 4 + static_cast<uint32_t>(form)), form_(form) {
    axes();
    for (int i = number(1, 3); i > 0; --i) values_.push_back(load());
    for (int i = number(0, 3); i > 0; --i) step();
    const int rounds = form == Form::Pointwise ? 0 : form == Form::Windows ? 1 : number(1, 3);
    for (int i = 0; i < rounds; ++i) {
      reduce();
      for (int k = number(0, 2); k > 0; --k) step();
    }
    stores();
  }
  [[nodiscard]] Case make() const {
    std::string outer, row;
    for (size_t i = 0; i < extents_.size(); ++i) {
      std::string& list = i < outer_ ? outer : row;
      list += (list.empty() ? "i" : ", i") + std::to_string(i) + ": " + extent(i);
    }
    Case c{problem(declarations_, "nest random outer(" + outer + ")" + (row.empty() ? "" : " row(" + row + ")") +
                                      " {\n" + body_ + "}"),
           {}};
    for (size_t i = 0; i < extents_.size() && symbolic_; ++i) c.sizes[extent(i)] = extents_[i];
    return c;
  }
  [[nodiscard]] double tolerance() const { return narrow_ ? 2e-2 : 1e-4; }

private:
  struct Term { // of the scalar DAG
    std::string name;
    bool row = false;   // varies along the row
    bool exact = false; // not rounded: an index of its greatest is the same in any order
  };
  int number(int least, int most) { return std::uniform_int_distribution(least, most)(rng_); }
  bool one_in(int n) { return number(1, n) == 1; }
  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<size_t>(number(0, static_cast<int>(list.size()) - 1))];
  }
  std::string add(const std::string& text, const std::string& type) {
    const std::string name = "%" + std::to_string(next_++);
    body_ += "  " + name + " = " + text + " : " + type + "\n";
    return name;
  }

  // An axis' extent as text.
  [[nodiscard]] std::string extent(size_t axis) const {
    return symbolic_ ? "n" + std::to_string(axis) : std::to_string(extents_[axis]);
  }

  void axes() {
    symbolic_ = one_in(3);
    const std::vector<int64_t> few = {1, 2, 3, 5}, some = {7, 8, 13, 16, 24, 33, 64, 65};
    if (form_ == Form::Pointwise) {
      extents_ = {one_of(few), one_of(some), one_of(some)};
      if (one_in(3)) extents_.erase(extents_.begin());
      outer_ = extents_.size();
      return;
    }
    if (form_ == Form::Windows) {
      extents_ = {number(1, 3), number(4, 9), number(3, 17), number(2, 4)};
      outer_ = 3;
      if (one_in(2)) extents_.push_back(number(2, 3));
      return;
    }
    extents_ = {one_of(few)};
    if (one_in(3)) extents_.push_back(one_of(form_ == Form::Rows ? few : some));
    outer_ = extents_.size();
    // Long rows are few.
    if (one_in(6)) {
      extents_ = {one_of(few)};
      outer_ = 1;
      extents_.push_back(form_ == Form::Rows ? number(1024, 2300) : number(300, 700));
      return;
    }
    extents_.push_back(one_in(2) ? one_of(some) : number(60, 200));
    if (one_in(5)) extents_.push_back(number(2, 3));
  }

  Term load() {
    static const std::vector<std::string> kTypes = {"f32", "f32", "f16", "bf16", "i8", "bool"};
    const bool first = values_.empty();
    std::vector<size_t> along;
    for (size_t i = 0; i < extents_.size(); ++i)
      if (first || !one_in(4)) along.push_back(i);
    // The last axis is contiguous to rows, the first one to columns.
    if (form_ == Form::Columns) std::rotate(along.begin(), along.begin() + (along.empty() ? 0 : 1), along.end());
    if (one_in(5)) std::shuffle(along.begin(), along.end(), rng_);
    std::string shape, index;
    Term t{"", false, true};
    auto add_dimension = [&](const std::string& extent, const std::string& at) {
      shape += (shape.empty() ? "" : ", ") + extent;
      index += (index.empty() ? "" : ", ") + at;
    };
    if (form_ == Form::Windows && first) { // a window slides along axis 1, past channels along axis 2
      const int stride = number(1, 2);
      const bool two = extents_.size() > 4;
      add_dimension(extent(0) + (two ? " + " + extent(4) : ""), two ? "i0 + i4" : "i0");
      add_dimension(extent(1) + " * " + std::to_string(stride) + " + " + extent(3),
                    "i1 * " + std::to_string(stride) + " + i3");
      add_dimension(extent(2), "i2");
      t.row = true;
      along.clear();
    } else if (!first && one_in(6)) { // rows of a table, named by data
      const std::string ids = "x" + std::to_string(inputs_++);
      declarations_ += ids + ": i32[" + extent(0) + "]\n";
      const std::string i = add("load " + ids + "[i0]", "i32"), wide = add("cast " + i, "i64");
      const std::string four = add("index 4", "i64"), at = add("check_bounds " + wide + ", " + four, "i64");
      add_dimension("4", at);
      std::erase(along, size_t{0});
    }
    for (size_t i : along) {
      const std::string axis = "i" + std::to_string(i);
      t.row = t.row || i >= outer_;
      switch (number(0, 9)) {
      case 0: add_dimension(extent(i) + " + " + std::to_string(number(1, 3)), axis + " + 1"); break;
      case 1: add_dimension(extent(i) + " * 2", axis + " * 2"); break;
      case 2: add_dimension(extent(i) + " + " + std::to_string(number(1, 3)), axis); break;
      default: add_dimension(extent(i), axis);
      }
    }
    const std::string name = "x" + std::to_string(inputs_++), type = one_of(kTypes);
    declarations_ += name + ": " + type + "[" + shape + "]\n";
    narrow_ = narrow_ || type == "f16" || type == "bf16";
    std::string masked;
    if (!first && one_in(5)) {
      masked = " if " + add("index lt(i0, 2)", "bool");
    }
    const std::string computed = type == "f16" || type == "bf16" ? "f32" : type;
    t.name = add("load " + name + "[" + index + "]" + masked, computed);
    if (computed != "f32") t.name = add("cast " + t.name, "f32");
    return t;
  }
  // The result stays near 1 where the operands do.
  void step() {
    const Term x = one_of(values_), y = one_of(values_);
    Term t{"", x.row || y.row, false};
    switch (number(0, 6)) {
    case 0: t.name = add("sub " + x.name + ", " + y.name, "f32"), t.exact = x.exact && y.exact; break;
    case 1: t.name = add("max " + x.name + ", " + y.name, "f32"), t.exact = x.exact && y.exact; break;
    case 2: t.name = add("mul " + x.name + ", " + y.name, "f32"); break;
    case 3: t.name = add("tanh " + x.name, "f32"), t.row = x.row; break;
    case 4: t.name = add("exp " + add("neg " + add("abs " + x.name, "f32"), "f32"), "f32"), t.row = x.row; break;
    case 5: {
      const std::string one = add("const 1", "f32"),
                        below = add("add " + add("abs " + y.name, "f32") + ", " + one, "f32");
      t.name = add("div " + x.name + ", " + below, "f32");
      break;
    }
    default: {
      const std::string zero = add("const 0", "f32"), less = add("lt " + zero + ", " + x.name, "bool");
      t.name = add("select " + less + ", " + x.name + ", " + y.name, "f32");
      t.exact = x.exact && y.exact;
      if (!x.exact) t.name = add("add " + x.name + ", " + y.name, "f32"); // no jump where rounding decides
    }
    }
    values_.push_back(t);
  }
  void reduce() {
    std::vector<Term> along;
    for (const Term& t : values_)
      if (t.row) along.push_back(t);
    Term x = along.empty() ? load_along() : one_of(along);
    static const std::vector<std::string> kKinds = {"sum", "sum", "sum", "max", "min"};
    const std::string kind = one_of(kKinds);
    if (x.exact && one_in(5)) {
      index_ =
          add("reduce." + one_of(std::vector<std::string>{"argmax", "argmin", "argmax.last"}) + " " + x.name, "i64");
      return;
    }
    Term t{add("reduce." + kind + " " + x.name, "f32"), false, x.exact && kind != "sum"};
    if (kind == "sum") { // the mean, and a value that depends on the row's place
      int64_t points = 1;
      for (size_t i = outer_; i < extents_.size(); ++i) points *= extents_[i];
      t.name =
          add("mul " + t.name + ", " + add("const " + std::to_string(1.0 / static_cast<double>(points)), "f32"), "f32");
    }
    values_.push_back(t);
  }
  Term load_along() { // all axes
    std::string shape, index;
    for (size_t i = 0; i < extents_.size(); ++i) {
      shape += (i ? ", " : "") + extent(i);
      index += (i ? ", i" : "i") + std::to_string(i);
    }
    const std::string name = "x" + std::to_string(inputs_++);
    declarations_ += name + ": f32[" + shape + "]\n";
    return {add("load " + name + "[" + index + "]", "f32"), true, true};
  }
  void store(const std::string& value, const std::string& type, bool per_row) {
    std::vector<size_t> along;
    for (size_t i = 0; i < (per_row ? outer_ : extents_.size()); ++i) along.push_back(i);
    if (form_ == Form::Pointwise && one_in(3)) std::shuffle(along.begin(), along.end(), rng_);
    std::string shape, index;
    for (size_t i : along) {
      shape += (shape.empty() ? "" : ", ") + extent(i);
      index += (index.empty() ? "i" : ", i") + std::to_string(i);
    }
    const std::string name = "y" + std::to_string(outputs_++);
    declarations_ += name + ": " + type + "[" + shape + "]\n";
    body_ += std::string("  store") + (per_row ? ".row " : " ") + name + "[" + index + "] = " + value + "\n";
  }
  void stores() {
    static const std::vector<std::string> kTypes = {"f32", "f32", "f16", "bf16"};
    const bool reduces = outer_ < extents_.size();
    auto stored = [&](const Term& t) {
      const std::string type = one_of(kTypes);
      narrow_ = narrow_ || type != "f32";
      store(t.name, type, reduces && !t.row);
    };
    if (!index_.empty()) store(index_, "i64", true);
    stored(values_.back());
    if (form_ != Form::Windows && one_in(2)) {
      step();
      stored(values_.back());
    }
  }

  std::mt19937 rng_;
  const Form form_;
  std::vector<int64_t> extents_; // outer axes, then those of the row
  size_t outer_ = 0;
  std::string declarations_, body_, index_;
  std::vector<Term> values_; // f32
  int next_ = 0, inputs_ = 0, outputs_ = 0;
  bool symbolic_ = false; // extents are symbols
  bool narrow_ = false;   // something is stored in 16 bits
};

Meant eighths(const Case& c, uint32_t seed) {
  std::mt19937 rng(seed);
  Meant m;
  const CallSizes sizes = by_id(c.problem, c.sizes);
  std::vector<Tensor> loads;
  for (ValueId v : c.problem.nest.loads) {
    Dims dims;
    for (const SymExpr& d : c.problem.graph.type(v).shape) dims.push_back(d.eval(sizes).value());
    const DType dtype = c.problem.graph.type(v).dtype;
    Tensor t = Tensor::create(dtype, dims).value();
    for (int64_t i = 0; i < t.count(); ++i) {
      const int n = static_cast<int>(rng() % 17);
      t.set_f64(i, is_float(dtype)        ? (n - 8) / 8.0
                   : dtype == DType::I32  ? n % 4
                   : dtype == DType::Bool ? n % 2
                                          : n % 3 - 1);
    }
    m.inputs[c.problem.graph.value(v).name] = t;
    loads.push_back(t);
  }
  auto expected = interpret(c.problem.graph, c.problem.nest, loads, sizes);
  EXPECT_TRUE(expected.ok()) << expected.error().str();
  if (expected.ok()) m.expected = std::move(*expected);
  return m;
}

class EverySchedule : public testing::TestWithParam<RandomNest::Form> {};

TEST_P(EverySchedule, OfFiftyRandomNestsMeansTheNest) {
  Share share;
  for (uint32_t seed = 0; seed < test::seeds(50); ++seed) {
    const RandomNest nest(seed, GetParam());
    const Case c = nest.make();
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + print(c.problem.graph, c.problem.nest));
    const Status verified = verify(c.problem.graph, c.problem.nest);
    ASSERT_TRUE(verified.ok()) << verified.error().str();
    const Meant m = eighths(c, seed);
    std::set<std::string> programs;
    each_kernel(
        c, gpu_with(4), [](const Schedule&) { return !testing::Test::HasFailure(); },
        [&](const Legal& l, ScheduledKernel k) {
          ScheduledKernel plain = k;
          plain.kernel.config.clear();
          if (!programs.insert(tile::print(plain.kernel) + k.grid.str()).second) return;
          if (!share.takes({form(l.schedule), std::to_string(seed)})) return;
          k.why = print(l.schedule);
          expect_meant(c, m, k, nest.tolerance());
        });
    EXPECT_FALSE(programs.empty());
    if (HasFailure()) return;
  }
}
const char* form_name(const testing::TestParamInfo<RandomNest::Form>& info) {
  static const char* const kNames[] = {"Pointwise", "Rows", "Columns", "Windows"};
  return kNames[static_cast<int>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Forms, EverySchedule,
                         testing::Values(RandomNest::Form::Pointwise, RandomNest::Form::Rows, RandomNest::Form::Columns,
                                         RandomNest::Form::Windows),
                         form_name);

} // namespace
} // namespace tessera::test
