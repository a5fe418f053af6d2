// Operators of the domain com.example, one of each kind: a decomposition, a kernel, functions on the host.
#include <tessera/api/operators.hpp>

#include <algorithm>
#include <cmath>
#include <map>

using namespace tessera::operators;

namespace {

// SquaredRelu(x, scale): scale * max(x, 0)^2 along the last dimension; scale may be left out. Other operators compute it,
// so that it fuses with what is around it, on every device.
Operator squared_relu() {
  Operator op("com.example", "SquaredRelu");
  op.summary("scale * max(x, 0)^2, with a scale for each element of the last dimension");
  op.operand("x").optional("scale");
  op.decompose([](Decomposition& d) {
    const Value relu = d.op("Relu", {d.operand(0)});
    Value y = d.op("Mul", {relu, relu});
    if (d.has(1)) {
      d.require_equal(d.dim(1, 0), d.dim(0, -1), "one scale for each element of the last dimension");
      y = d.op("Mul", {y, d.operand(1)});
    }
    d.result(0, y);
  });
  return op;
}

// SplitHalves(x) -> (low, high): the halves of the last dimension. Several results, and sizes that are symbols.
Operator split_halves() {
  Operator op("com.example", "SplitHalves");
  op.operand("x").results(2, 2);
  op.decompose([](Decomposition& d) {
    const Dim half = floor_div(d.dim(0, -1), 2);
    const std::vector<Value> parts =
        d.ops("Split", {d.operand(0), d.integers({half, d.dim(0, -1) - half})}, {{"axis", -1}}, 2);
    d.result(0, parts[0]);
    d.result(1, parts[1]);
  });
  return op;
}

// RowScale(x, by): row i of x[..., columns] times by[i], one program for each row. The text is the same for the host and
// for a GPU, which divides the tile among the threads of a block.
constexpr const char* kRowScale = R"(
tile.kernel @row_scale(%x: ptr<f32>, %by: ptr<f32>, %y: ptr<f32> written, %columns: i64) {
  %row = program_id 0                         : i64
  %first = mul(%row, %columns)                : i64
  %s = load %by[%row]                         : f32
  %r = range 128                              : tile<[128], i64>
  for %i = 0 to %columns step 128 {
    %c = add(%r, %i)                          : tile<[128], i64>
    %in = lt(%c, %columns)                    : tile<[128], bool>
    %o = add(%c, %first)                      : tile<[128], i64>
    %v = load %x[%o] mask=%in other=0         : tile<[128], f32>
    %p = mul(%v, %s)                          : tile<[128], f32>
    store %y[%o] = %p mask=%in
    yield
  }
}
)";
Operator row_scale() {
  Operator op("com.example", "RowScale");
  op.operand("x").operand("by");
  op.shape([](ShapeCall& c) {
    if (c.rank(0) != 2 || c.rank(1) != 1) throw std::runtime_error("takes a matrix, and a number for each row");
    c.require_equal(c.dim(0, 0), c.dim(1, 0), "a number for each row");
    c.result(0, c.dtype(0), c.shape(0));
  });
  op.kernel([](KernelCall& c) {
    if (c.dtype(0) == TESSERA_F32 && c.dtype(1) == TESSERA_F32) c.kernel(kRowScale, {c.dim(0, 1)}, c.dim(0, 0));
  });
  return op;
}

// Quantile(x, q attribute): of the elements of each row, the one below which the share q of them lies. A function on the
// host.
Operator quantile() {
  Operator op("com.example", "Quantile");
  op.operand("x").attribute("q", Kind::Float);
  op.shape([](ShapeCall& c) {
    if (c.rank(0) < 1 || c.dtype(0) != TESSERA_F32) throw std::runtime_error("takes f32 of at least one dimension");
    Shape rows = c.shape(0);
    rows.pop_back();
    c.result(0, TESSERA_F32, rows);
  });
  op.run([](Run& r) {
    const tessera_tensor x = r.operand(0);
    std::vector<int64_t> rows = Run::dims(x);
    const int64_t columns = rows.back();
    rows.pop_back();
    const double q = r.number("q", 0.5);
    if (!(q >= 0 && q <= 1)) throw std::runtime_error("attribute 'q' is " + std::to_string(q) + ", not in [0, 1]");
    if (columns == 0) throw std::runtime_error("a row without elements has no quantile");
    const auto* from = static_cast<const float*>(x.data);
    auto* to = static_cast<float*>(r.result(0, TESSERA_F32, rows));
    const auto rank = static_cast<int64_t>(std::floor(q * static_cast<double>(columns - 1)));
    for (int64_t i = 0; i < Run::count(x) / columns; ++i) {
      std::vector<float> row(from + i * columns, from + (i + 1) * columns);
      std::nth_element(row.begin(), row.begin() + rank, row.end());
      to[i] = row[static_cast<size_t>(rank)];
    }
  });
  return op;
}

// CountWords(words) -> (distinct, counts): the distinct strings in their order, and how often each occurs. How many there
// are is known only when it has run.
Operator count_words() {
  Operator op("com.example", "CountWords");
  op.operand("words").results(2, 2).sizes_of_data();
  op.shape([](ShapeCall& c) {
    const Dim distinct = c.unknown();
    c.result(0, TESSERA_STRING, {distinct});
    c.result(1, TESSERA_I64, {distinct});
  });
  op.run([](Run& r) {
    std::map<std::string, int64_t> counts;
    for (int64_t i = 0; i < Run::count(r.operand(0)); ++i) ++counts[r.string(0, i)];
    const std::vector<int64_t> dims = {static_cast<int64_t>(counts.size())};
    r.result(0, TESSERA_STRING, dims);
    auto* out = static_cast<int64_t*>(r.result(1, TESSERA_I64, dims));
    int64_t i = 0;
    for (const auto& [word, count] : counts) {
      r.set_string(0, i, word);
      out[i++] = count;
    }
  });
  return op;
}

} // namespace

TESSERA_OPERATORS(library) {
  for (const Operator& op : {squared_relu(), split_halves(), row_scale(), quantile(), count_words()}) library.add(op);
}
