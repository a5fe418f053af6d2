// Plans of executables whose kernels are plain functions, so that the address sanitizer sees what they touch. Each
// function stays inside of what its contract says, whatever sizes it gets within the facts, as generated code does.
#include "codegen/load/resolve_host_step.h"
#include "plan_harness.h"
#include "tests/runtime/build_executable.h"

namespace tessera::fuzz {
namespace {
using test::Builder;

constexpr int64_t kBlock = 8; // elements of a program

float* f(void* p) { return static_cast<float*>(p); }

// y[i] = 2 x[i]. Sizes: n.
void twice(void* const* b, const int64_t* s, int64_t begin, int64_t end, void*, IndexReport*) {
  for (int64_t i = begin * kBlock; i < std::min(end * kBlock, s[0]); ++i) f(b[1])[i] = 2 * f(b[0])[i];
}
// y[r] = sum over c of x[r, c], by way of scratch memory. Sizes: columns.
void sum_rows(void* const* b, const int64_t* s, int64_t begin, int64_t end, void* scratch, IndexReport*) {
  for (int64_t r = begin; r < end; ++r) {
    float sum = 0;
    for (int64_t c = 0; c < s[0]; ++c) f(scratch)[c] = f(b[0])[r * s[0] + c];
    for (int64_t c = 0; c < s[0]; ++c) sum += f(scratch)[c];
    f(b[1])[r] = sum;
  }
}
// y[i] = x[at[i]]. Sizes: elements of x, of at.
void gather(void* const* b, const int64_t* s, int64_t begin, int64_t end, void*, IndexReport* report) {
  for (int64_t i = begin * kBlock; i < std::min(end * kBlock, s[1]); ++i) {
    int64_t at = static_cast<const int64_t*>(b[1])[i];
    if (at < 0 || at >= s[0])
      report->add(0, i, at);
    else
      f(b[2])[i] = f(b[0])[at];
  }
}
// y = t + bias over a box. Sizes: columns, first row, first column, columns of the box; programs: rows of the box.
void add_bias(void* const* b, const int64_t* s, int64_t begin, int64_t end, void*, IndexReport*) {
  for (int64_t r = s[1] + begin; r < s[1] + end; ++r)
    for (int64_t c = s[2]; c < s[2] + s[3]; ++c) f(b[2])[r * s[0] + c] = f(b[0])[r * s[0] + c] + f(b[1])[c];
}
// y[i] = x[i] / sum of x: programs add to a workspace, the last one to count itself divides. Sizes: n, programs.
void normalize(void* const* b, const int64_t* s, int64_t begin, int64_t end, void*, IndexReport*) {
  auto* counter = static_cast<int32_t*>(b[3]);
  for (int64_t p = begin; p < end; ++p) {
    f(b[2])[p] = 0;
    for (int64_t i = p * kBlock; i < std::min(s[0], (p + 1) * kBlock); ++i) f(b[2])[p] += f(b[0])[i];
    if (++*counter < s[1]) continue;
    float sum = 0;
    for (int64_t q = 0; q < s[1]; ++q) sum += f(b[2])[q];
    for (int64_t i = 0; i < s[0]; ++i) f(b[1])[i] = f(b[0])[i] / sum;
    *counter = 0;
  }
}

SizeCondition at_least(SymExpr value, int64_t least) { return {std::move(value), 1, least}; }

// Models from steps; kernels with the facts that their functions rely on.
struct Maker : Builder {
  Maker() {
    exe->objects = {{'c'}};
    exe->target = "cpu x86-64";
  }
  KernelLaunch made(KernelLaunch k, std::vector<SizeCondition> facts) {
    k.object = 0;
    k.facts = std::move(facts);
    return k;
  }
  void twice_of(BufferId x, BufferId y, const SymExpr& n) {
    exe->steps.emplace_back(made(launch("twice", twice, {x}, {y}, {n}, ceildiv(n, kBlock), kBlock), {at_least(n, 0)}));
  }
  void rows_of(BufferId x, BufferId y, const SymExpr& rows, const SymExpr& columns) {
    auto k = launch("sum_rows", sum_rows, {x}, {y}, {columns}, rows, columns);
    k.scratch_bytes = columns * 4;
    exe->steps.emplace_back(made(std::move(k), {at_least(rows, 0), at_least(columns, 0)}));
  }
  void on_host(const std::string& op, std::vector<BufferId> inputs, std::vector<BufferId> outputs, std::string text,
               std::vector<StepDefines> defines = {}) {
    HostStep host;
    host.name = host.op = op;
    host.inputs = std::move(inputs);
    host.outputs = std::move(outputs);
    host.payload = std::move(text);
    host.defines = std::move(defines);
    auto run = resolve_host_step(host, *exe);
    TESSERA_CHECK(run.ok(), run.error().str());
    host.run = std::move(*run);
    exe->steps.emplace_back(std::move(host));
  }
  PlanModel model(std::string name, std::map<std::string, Tensor> inputs) {
    return {std::move(name), done(), std::move(inputs)};
  }
};

PlanModel product() {
  Maker m;
  auto s = m.symbol("s");
  m.exe->env->add_guard({sym_le(s, 512), GuardClass::Required, "the table has 512 rows", {}});
  auto x = m.input("x", {s, 16}), w = m.constant("w", test::random_tensor({16, 24}, 1)),
       bias = m.constant("bias", test::random_tensor({24}, 2)), t = m.buffer("t", {s, 24}), u = m.buffer("u", {s, 24}),
       y = m.output("y", {s}), z = m.output("z", {s, 24}), copy = m.output("copy", {s, 16});
  m.exe->buffers[static_cast<size_t>(u)].in_place_of = t;
  auto r0 = m.symbol("box_begin0"), c0 = m.symbol("box_begin1"), rows = m.symbol("box_count0"),
       columns = m.symbol("box_count1");
  auto k = m.made(Builder::launch("add_bias", add_bias, {t, bias}, {u}, {24, r0, c0, columns}, rows),
                  {at_least(s - r0 - rows, 0), at_least(24 - c0 - columns, 0), at_least(r0, 0), at_least(c0, 0),
                   at_least(rows, 0), at_least(columns, 0)});
  m.exe->steps.emplace_back(LibraryStep{
      "product", MatmulCall{m.dense(x), m.dense(w), m.dense(t), EpilogueKernel{k, {r0, c0}, {rows, columns}}}});
  m.rows_of(u, y, s, 24);
  m.twice_of(u, z, s * 24);
  m.exe->steps.emplace_back(CopyStep{"copy", x, copy});
  return m.model("product", {{"x", test::random_tensor({5, 16}, 3)}});
}

PlanModel windows() {
  Maker m;
  auto b = m.symbol("b"), h = m.symbol("h");
  auto half = floordiv(h, 2);
  auto x = m.input("x", {b, 3, h, h}), w = m.constant("w", test::random_tensor({4, 3, 3, 3}, 1)),
       t = m.buffer("t", {b, 4, h, h}), u = m.buffer("u", {b, 4, h, h}), p = m.buffer("p", {b, 4, half, half}),
       up = m.constant("up", test::random_tensor({4, 2, 2, 2}, 2)), y = m.output("y", {b, 2, half * 2, half * 2});
  m.exe->buffers[static_cast<size_t>(u)].in_place_of = t;
  m.exe->steps.emplace_back(LibraryStep{
      "convolution",
      ConvCall{m.dense(x), m.dense(w), m.dense(t), {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1, false, {}, std::nullopt}});
  m.twice_of(t, u, b * 4 * h * h);
  m.exe->steps.emplace_back(LibraryStep{
      "pooling",
      PoolCall{PoolCall::Kind::Max, m.dense(u), m.dense(p), {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, std::nullopt}});
  m.exe->steps.emplace_back(LibraryStep{
      "transposed",
      ConvCall{m.dense(p), m.dense(up), m.dense(y), {2, 2}, {0, 0}, {0, 0}, {1, 1}, 1, true, {0, 0}, std::nullopt}});
  return m.model("windows", {{"x", test::random_tensor({2, 3, 6, 6}, 3)}});
}

// Sizes that a step on the host defines, and an index that the kernel checks.
PlanModel dynamic() {
  Maker m;
  auto s = m.symbol("s"), n = m.symbol("n");
  auto x = m.input("x", {s}), at = m.buffer("at", {1, n}, BufferInfo::Kind::Temporary, DType::I64),
       flat = m.buffer("flat", {n}), y = m.output("y", {n}), z = m.output("z", {1, n}, DType::I64);
  m.on_host("nonzero", {x}, {at},
            "graph @host(%x: f32[s]) -> (\"y\" = %y: i64[1, n]) where s in [0, ?], n in [0, ?] {\n"
            "  %y = nonzero(%x) : i64[1, n]\n}\n",
            {{n, 0, 1}});
  auto k = Builder::launch("gather", gather, {x, at}, {flat}, {s, n}, ceildiv(n, kBlock), kBlock);
  k.report_sites = {{"x", "at", "gather", SymExpr(4), false, {3}}};
  m.exe->steps.emplace_back(m.made(std::move(k), {at_least(s, 0), at_least(n, 0)}));
  m.twice_of(flat, y, n);
  m.exe->steps.emplace_back(CopyStep{"copy", at, z});
  return m.model("dynamic", {{"x", Tensor::of<float>(DType::F32, {7}, std::vector<float>{1, 0, 2, 0, 0, 3, 4})}});
}

// Memory that programs share, dimensions that are solved for their symbol, a product of two operands in batches.
PlanModel shared() {
  Maker m;
  auto s = m.symbol("s"), b = m.symbol("b");
  auto n = s * 2 + 1, programs = ceildiv(n, kBlock);
  auto x = m.input("x", {n}), q = m.input("q", {b, s, 4}), k = m.input("k", {b, 4, s}), y = m.output("y", {n}),
       t = m.buffer("t", {b, s, s}), z = m.output("z", {b, s});
  auto shared = Builder::launch("normalize", normalize, {x}, {y}, {n, programs}, programs, kBlock);
  shared.workspaces = {{DType::F32, programs}};
  shared.counters = 1;
  m.exe->steps.emplace_back(m.made(std::move(shared), {at_least(s, 0)}));
  m.exe->steps.emplace_back(LibraryStep{"product", MatmulCall{m.dense(q), m.dense(k), m.dense(t), std::nullopt}});
  m.rows_of(t, z, b * s, s);
  return m.model("shared", {{"x", test::random_tensor({21}, 1)},
                            {"q", test::random_tensor({2, 10, 4}, 2)},
                            {"k", test::random_tensor({2, 4, 10}, 3)}});
}

// A loop over slices, which carries a value and stacks another, and a branch; sizes from around the bodies.
PlanModel control() {
  auto body = [](bool sliced) {
    Maker m;
    auto n = m.symbol("n"), s = m.symbol("s");
    auto v = m.input("v", {n}), size = m.input("size", {0, s}, DType::I8);
    auto e = sliced ? m.input("e", {n}) : v;
    auto out = m.output("out", {n});
    (void)size;
    m.twice_of(v, out, n);
    if (sliced) m.twice_of(e, m.output("slice", {n}), n);
    return m.done();
  };
  using Source = BodyArgument::Source;
  Maker m;
  auto n = m.symbol("n"), s = m.symbol("s"), late = m.symbol("late");
  auto x = m.input("x", {n}), z = m.input("z", {s, n}), c = m.input("c", {}, DType::Bool);
  auto t = m.buffer("t", {n}), all = m.output("all", {s, n}), y = m.output("y", {late});
  BodyArgument size;
  size.source = Source::Size;
  size.size = s;
  ControlStep loop;
  loop.name = loop.op = "loop";
  loop.kind = ControlStep::Kind::Loop;
  loop.trip_count = s;
  loop.initial = {x};
  loop.outputs = {t, all};
  loop.reverse = {true};
  loop.bodies = {{body(true), {{Source::Carried, -1, 0}, size, {Source::Slice, z, -1, true}}}};
  m.exe->steps.emplace_back(std::move(loop));
  ControlStep branch;
  branch.name = branch.op = "if";
  branch.condition = c;
  branch.outputs = {y};
  branch.defines = {{late, 0, 0}};
  for (int b = 0; b < 2; ++b) branch.bodies.push_back({body(false), {{Source::Buffer, b == 0 ? t : x}, size}});
  m.exe->steps.emplace_back(std::move(branch));
  return m.model("control", {{"x", test::random_tensor({5}, 1)},
                             {"z", test::random_tensor({4, 5}, 2)},
                             {"c", Tensor::of<int64_t>(DType::Bool, {}, std::vector<int64_t>{1})}});
}

// A list that a loop on the host fills, an item of it, and strings of a constant.
PlanModel lists() {
  Maker m;
  auto n = m.symbol("n"), late = m.symbol("late"), item = m.symbol("item");
  auto x = m.input("x", {n}), words = m.constant("words", Tensor::strings({2}, {"one", std::string("\0\xff", 2)})),
       three = m.constant("three", Tensor::of<int64_t>(DType::I64, {}, std::vector<int64_t>{3})),
       second = m.constant("second", Tensor::of<int64_t>(DType::I64, {}, std::vector<int64_t>{1}));
  auto list = [&](const char* name, const SymExpr& size, bool output = false) {
    return output ? m.output(name, {size}, DType::List)
                  : m.buffer(name, {size}, BufferInfo::Kind::Temporary, DType::List);
  };
  auto empty = list("empty", 0), all = list("all", late, true), at = m.buffer("at", {item}), y = m.output("y", {item}),
       text = m.output("text", {2}, DType::String);
  m.on_host("list_construct", {}, {empty},
            "graph @host() -> (%l: list<sequence f32[]>[0]) {\n"
            "  %l = list_construct() container=\"sequence\" of=\"f32\" : list<sequence f32[]>[0]\n}\n");
  m.on_host("loop", {three, -1, empty, x}, {all},
            "graph @host(%t: i64[], %l: list<sequence f32[]>[0], %x: f32[n]) -> (%r: list<sequence f32[...]>[late])"
            " where n in [0, ?], late in [0, ?] {\n"
            "  %r = loop(%t, _, %l, %x) body=graph @body(%i: i64[], %on: bool[], %s: list<sequence f32[...]>[k],"
            " %v: f32[n]) -> (%on: bool[], %g: list<sequence f32[...]>[k + 1]) where k in [0, ?] {\n"
            "    %g = list_insert(%s, %v) : list<sequence f32[...]>[k + 1]\n"
            "  } captures=[1] : list<sequence f32[...]>[late]\n}\n",
            {{late, 0, 0}});
  m.on_host("list_at", {all, second}, {at},
            "graph @host(%l: list<sequence f32[?]>[late], %i: i64[]) -> (%y: f32[item])"
            " where late in [0, ?], item in [0, ?] {\n  %y = list_at(%l, %i) : f32[item]\n}\n",
            {{item, 0, 0}});
  m.on_host("string_concat", {words, words}, {text},
            "graph @host(%a: string[2], %b: string[2]) -> (%c: string[2]) {\n"
            "  %c = string_concat(%a, %b) : string[2]\n}\n");
  m.twice_of(at, y, item);
  return m.model("lists", {{"x", test::random_tensor({5}, 1)}});
}

} // namespace

std::vector<PlanModel> plan_models() { return {product(), windows(), dynamic(), shared(), control(), lists()}; }

} // namespace tessera::fuzz
