// The classes of tessera.hpp: every one of them once, with what is wrong, too.
#include <cstdio>
#include <tessera/api/tessera.hpp>

namespace {
using namespace tessera::stable;

int wrong = 0;
void expect(bool holds, const char* what) {
  if (holds) return;
  ++wrong;
  std::fprintf(stderr, "does not hold: %s\n", what);
}
template <class Body>
void expect_error(const char* name, const Body& body) {
  try {
    body();
    expect(false, name);
  } catch (const Error& e) {
    expect(e.name() == name && !e.message().empty() && e.code().starts_with("TES-"), e.what());
  }
}

void launch_a_kernel() {
  Kernel kernel(
      "tile.kernel @add(%x: ptr<f32> align=4, %y: ptr<f32> written align=4, %by: f32) {\n  %p = program_id 0 : "
      "i64\n  %v = load %x[%p] : f32\n  %s = add(%v, %by) : f32\n  store %y[%p] = %s\n}\n",
      {.device = "cpu", .threads = 1});
  const std::vector<float> x = {1, 2, 3};
  std::vector<float> y(3);
  kernel.launch({.x = 3}, x.data(), y.data(), 0.5);
  expect(y == std::vector<float>{1.5F, 2.5F, 3.5F}, "a kernel's launch");
  expect(kernel.parameters().size() == 3 && std::string(kernel.info().name) == "add", "a kernel's description");
  expect_error("bad-input", [&] { kernel.launch({.x = 3}, x.data(), y.data()); });
  expect_error("parse-error", [] { Kernel none("tile.kernel"); });
}
} // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  expect(version().abi == TESSERA_ABI_VERSION, "the version");
  expect_error("file-error", [] { Session none("/nowhere/model.onnx"); });
  Options options;
  options.device = "cpu";
  options.threads = 1;
  int lines = 0;
  set_logger(
      TESSERA_LOG_DEBUG, [&](tessera_log_level, const char*, const char*) { ++lines; }, "memory");
  expect_error("usage", [] {
    set_logger(
        TESSERA_LOG_DEBUG, [](auto...) {}, "no_channel");
  });
  launch_a_kernel();
  Session session(argv[1], options);
  expect(session.device() == "cpu" && session.sizes_known(), "the device");
  expect(!session.report().empty(), "the report");

  const std::vector<Io> inputs = session.inputs();
  const std::vector<int64_t> dims = {2, 7};
  const std::vector<int64_t> ones(14, 1);
  std::vector<Tensor> in, sizes;
  for (const Io& io : inputs) {
    expect(io.dtype == TESSERA_I64 && io.dims.size() == 2, io.name.c_str());
    in.emplace_back(io.name.c_str(), std::span(ones), dims);
    sizes.emplace_back(io.name.c_str(), io.dtype, dims, nullptr);
  }
  session.warmup(sizes);
  const tessera_metrics warm = session.metrics();
  expect(warm.warmups == 1 && warm.calls == 0, "a warm-up is no call");

  const Session::Shown fresh = session.run_fresh(in);
  const std::vector<float> expected(values_of<float>(fresh[0]).begin(), values_of<float>(fresh[0]).end());
  const std::vector<int64_t> out_dims(dims_of(fresh[0]).begin(), dims_of(fresh[0]).end());
  const auto count = fresh.size();
  std::vector<std::vector<float>> memory(count);
  std::vector<std::vector<int64_t>> memory_dims(count);
  std::vector<Tensor> out;
  const Session::Shown known = session.output_sizes(sizes);
  for (size_t o = 0; o < count; ++o) {
    memory_dims[o].assign(dims_of(known[o]).begin(), dims_of(known[o]).end());
    size_t n = 1;
    for (const int64_t d : memory_dims[o]) n *= static_cast<size_t>(d);
    memory[o].resize(n);
    out.emplace_back(std::span(memory[o]), memory_dims[o]);
  }
  session.run(in, out);
  expect(memory[0] == expected, "run()");
  Session other = session.clone();
  memory[0].assign(memory[0].size(), 0);
  other.bind(in, out);
  other.run_bound();
  expect(memory[0] == expected, "run_bound()");
  other.unbind();
  expect_error("usage", [&] { other.run_bound(); });
  memory[0].assign(memory[0].size(), 0);
  other.call(in, [&](int32_t o, int32_t dtype, std::span<const int64_t> d) -> void* {
    expect(dtype == TESSERA_F32 && d.size() == memory_dims[static_cast<size_t>(o)].size(),
           "what an allocator is given");
    return memory[static_cast<size_t>(o)].data();
  });
  expect(memory[0] == expected, "call()");
  try {
    other.call(in, [](auto...) -> void* { throw std::runtime_error("mine"); });
    expect(false, "an allocator's exception");
  } catch (const std::runtime_error& e) {
    expect(std::string(e.what()) == "mine", "an allocator's exception");
  }
  expect_error("usage", [&] { session.run_on_device(in, out, nullptr); });
  expect_error("usage", [&] { Memory none(session, 8, nullptr); });
  try {
    const Tensor bad("x", std::span(ones), out_dims);
    expect(false, "a tensor of another size");
  } catch (const std::invalid_argument&) {
  }
  const tessera_metrics m = session.metrics();
  expect(m.contexts == 2 && m.compiles == warm.compiles && m.calls >= 4 && m.errors >= 2, "metrics");
  expect(!session.last_miss().has_value(), "no miss");
  expect(lines > 0, "lines of the log");
  set_logger(TESSERA_LOG_DEBUG, {});
  std::printf("C++ over C: %d calls\n", static_cast<int>(m.calls));
  return wrong == 0 ? 0 : 1;
}
