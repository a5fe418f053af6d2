// The parts of the C interface that a server needs: contexts, bound memory, warm-up, a memory limit, an allocator,
// metrics, the explanation of a miss, the log, and structs of other versions.
#include "base/processors.h"
#include "c_harness.h"
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

namespace tessera::api_test {
namespace {

constexpr int32_t kFloat = TESSERA_F32;

tessera_metrics metrics_of(const tessera_session* session) {
  tessera_metrics m{};
  m.struct_size = sizeof m;
  const char* error = tessera_get_metrics(session, &m);
  EXPECT_EQ(error, nullptr) << error;
  return m;
}

// z = x[n, 4] + y[k, 4]: the first variant takes n and k for equal.
Maker broadcasting() {
  Maker m;
  m.input("x", {"n", 4}).input("y", {"k", 4}).add("Add", {"x", "y"}, {"t"}).add("Relu", {"t"}, {"z"}).output("z");
  return m;
}
// y = softmax of two products of x[n, 64]: it has intermediate results.
Maker product() {
  std::vector<float> w(64 * 64, 0.125F);
  Maker m;
  m.input("x", {"n", 64}).weight(onnx_test::float_tensor("w", {64, 64}, w));
  m.add("MatMul", {"x", "w"}, {"p"}).add("MatMul", {"p", "w"}, {"q"}).add("Softmax", {"q"}, {"y"}).output("y");
  return m;
}

// The tensors of a call of broadcasting().
struct Broadcasting {
  std::vector<float> x, y, z;
  int64_t x_dims[2], y_dims[2], z_dims[2];
  tessera_tensor in[2], out;
  Broadcasting(int64_t n, int64_t k)
      : x(static_cast<size_t>(n * 4), 1.5F), y(static_cast<size_t>(k * 4), 2),
        z(static_cast<size_t>(std::max(n, k) * 4)), x_dims{n, 4}, y_dims{k, 4}, z_dims{std::max(n, k), 4},
        in{{"x", kFloat, 2, x_dims, x.data()}, {"y", kFloat, 2, y_dims, y.data()}}, out{nullptr, kFloat, 2, z_dims,
                                                                                        z.data()} {}
  Broadcasting(const Broadcasting&) = delete;
  Broadcasting& operator=(const Broadcasting&) = delete;
  const char* run(tessera_session* s) { return tessera_run(s, in, 2, &out, 1); }
};

TEST(CServing, TheVersionIsTheHeaders) {
  const tessera_version_numbers* v = tessera_version();
  ASSERT_NE(v, nullptr);
  EXPECT_EQ(v->abi, TESSERA_ABI_VERSION);
  EXPECT_GT(v->major * 10000 + v->minor * 100 + v->patch, 0);
}

// ---- structs of other versions
template <class T>
struct Later { // than the library's
  T known;
  uint64_t added;
};

TEST(CServing, StructsOfOtherVersions) {
  const std::string path = write(broadcasting());
  tessera_session* session = nullptr;
  tessera_options options = on_cpu();
  for (size_t size : {size_t{0}, size_t{8}, offsetof(tessera_options, policy) - 1, size_t{1} << 20, SIZE_MAX}) {
    options.struct_size = size;
    says(tessera_open_with(path.c_str(), &options, &session),
         "tessera_options: struct_size is " + std::to_string(size));
  }
  Later<tessera_options> later{on_cpu(), 0};
  later.known.struct_size = sizeof later;
  later.added = 1;
  says(tessera_open_with(path.c_str(), &later.known, &session), "a later version");
  EXPECT_EQ(session, nullptr);
  later.added = 0;
  ASSERT_EQ(tessera_open_with(path.c_str(), &later.known, &session), nullptr);

  Later<tessera_metrics> metrics{};
  metrics.known.struct_size = sizeof metrics;
  metrics.added = 7;
  EXPECT_EQ(tessera_get_metrics(session, &metrics.known), nullptr);
  EXPECT_EQ(metrics.added, 0u) << "a field that the library does not know is zero";
  EXPECT_EQ(metrics.known.struct_size, sizeof metrics);
  EXPECT_EQ(metrics.known.contexts, 1u);
  metrics.known.struct_size = 8;
  says(tessera_get_metrics(session, &metrics.known), "tessera_metrics: struct_size is 8");
  tessera_close(session);

  tessera_program program{};
  program.json = "{}";
  program.json_bytes = 2;
  const char* refusals = nullptr;
  says(tessera_survey_program(&program, &refusals), "tessera_program: struct_size is 0");
  says(tessera_open_program(&program, nullptr, &session), "tessera_program: struct_size is 0");
  says(tessera_known_sizes(nullptr), "a place for the answer is needed");
  tessera_allocator allocator{};
  options = on_cpu();
  options.allocator = &allocator;
  says(tessera_open_with(path.c_str(), &options, &session), "tessera_allocator: struct_size is 0");
  allocator.struct_size = sizeof allocator;
  says(tessera_open_with(path.c_str(), &options, &session), "`allocate` is null");
  allocator.allocate = [](void*, size_t, size_t) -> void* { return nullptr; };
  says(tessera_open_with(path.c_str(), &options, &session), "`release` is null");
  options = on_cpu();
  options.memory_limit = UINT64_MAX;
  says(tessera_open_with(path.c_str(), &options, &session), "memory_limit");
}

TEST(CServing, ACallWithOptions) {
  Opened s(broadcasting());
  Broadcasting m(3, 3);
  says(tessera_call_with(s.session, m.in, 2, nullptr), "the options of the call are null");
  Later<tessera_call_options> options{};
  says(tessera_call_with(s.session, m.in, 2, &options.known), "tessera_call_options: struct_size is 0");
  options.known.struct_size = sizeof options;
  says(tessera_call_with(s.session, m.in, 2, &options.known), "memory for outputs is null");
  options.known.allocate = [](void* context, int32_t output, int32_t, int32_t, const int64_t*) {
    EXPECT_EQ(output, 0);
    return static_cast<Broadcasting*>(context)->out.data;
  };
  options.known.scratch = [](void*, size_t) -> void* {
    ADD_FAILURE() << "a session on the host has memory of its own";
    return nullptr;
  };
  options.known.context = &m;
  options.added = 1;
  says(tessera_call_with(s.session, m.in, 2, &options.known), "a later version");
  options.added = 0;
  for (float value : {1.F, 5.F}) {
    std::fill(m.x.begin(), m.x.end(), value);
    ASSERT_EQ(tessera_call_with(s.session, m.in, 2, &options.known), nullptr);
    for (float z : m.z) EXPECT_EQ(z, value + 2);
  }
}

// ---- bound memory
TEST(CServing, BoundMemoryIsRunWithItsPresentValues) {
  Opened s(broadcasting());
  says(tessera_run_bound(nullptr, nullptr), "the session is null");
  says(tessera_run_bound(s.session, nullptr), "nothing is bound");
  Broadcasting m(3, 3);
  const char* error = tessera_bind(s.session, m.in, 2, &m.out, 1);
  ASSERT_EQ(error, nullptr) << error;
  for (float value : {1.F, 5.F}) {
    std::fill(m.x.begin(), m.x.end(), value);
    ASSERT_EQ(tessera_run_bound(s.session, nullptr), nullptr);
    for (float z : m.z) EXPECT_EQ(z, value + 2);
  }
  tessera_unbind(s.session);
  tessera_unbind(nullptr);
  says(tessera_run_bound(s.session, nullptr), "nothing is bound");
}

TEST(CServing, WhatCannotBeBoundIsAnError) {
  Opened s(broadcasting());
  Broadcasting m(3, 3);
  ASSERT_EQ(tessera_bind(s.session, m.in, 2, &m.out, 1), nullptr);
  says(tessera_bind(nullptr, m.in, 2, &m.out, 1), "the session is null");
  says(tessera_bind(s.session, m.in, 1, &m.out, 1), "input 'y' was not given");
  says(tessera_run_bound(s.session, nullptr), "nothing is bound"); // an error leaves nothing bound
  says(tessera_bind(s.session, nullptr, 2, &m.out, 1), "the inputs are null");
  says(tessera_bind(s.session, m.in, 2, nullptr, 1), "the outputs are null");
  says(tessera_bind(s.session, m.in, 2, &m.out, 0), "1 outputs");
  auto with = [&](const std::function<void(tessera_tensor&)>& change) {
    tessera_tensor out = m.out;
    change(out);
    return tessera_bind(s.session, m.in, 2, &out, 1);
  };
  int64_t other[] = {2, 4};
  says(with([&](tessera_tensor& t) { t.dims = other; }), "output 'z' has the sizes [3, 4]");
  says(with([&](tessera_tensor& t) { t.dtype = TESSERA_I32; }), "output 'z' is f32");
  says(with([&](tessera_tensor& t) { t.data = m.y.data(); }), "output 'z' overlaps that of input 'y'");
  says(with([&](tessera_tensor& t) { t.data = nullptr; }), "no memory");
}

TEST(CServing, BoundOutputsWhoseSizesAreDataHaveThoseOfTheRun) {
  Maker model;
  model.input("x", {"n"}).add("NonZero", {"x"}, {"z"}).output("z");
  Opened s(model);
  float x[] = {1, 0, 2};
  int64_t z[2], dims[] = {3}, z_dims[] = {1, 2};
  tessera_tensor in{"x", kFloat, 1, dims, x}, out{nullptr, TESSERA_I64, 2, z_dims, z};
  ASSERT_EQ(tessera_bind(s.session, &in, 1, &out, 1), nullptr);
  ASSERT_EQ(tessera_run_bound(s.session, nullptr), nullptr);
  EXPECT_EQ(z[1], 2);
  x[1] = 4;
  says(tessera_run_bound(s.session, nullptr), "output 'z' has the sizes [1, 3]");
  x[1] = 0;
  EXPECT_EQ(tessera_run_bound(s.session, nullptr), nullptr);
}

// ---- warm-up and metrics
TEST(CServing, AfterAWarmUpACallCompilesAndPlansNothing) {
  Opened s(broadcasting());
  Broadcasting m(4, 1); // the first variant does not fit it
  tessera_tensor shapes[] = {m.in[0], m.in[1]};
  shapes[0].data = shapes[1].data = nullptr;
  const auto before = metrics_of(s.session);
  EXPECT_EQ(before.variants, 1u);
  EXPECT_EQ(before.compiles, 1u);
  EXPECT_GT(before.compile_ms, 0);
  const char* error = tessera_warmup(s.session, shapes, 2);
  ASSERT_EQ(error, nullptr) << error;
  const auto warm = metrics_of(s.session);
  EXPECT_EQ(warm.warmups, 1u);
  EXPECT_EQ(warm.calls, 0u);
  EXPECT_EQ(warm.guard_misses, 1u);
  EXPECT_EQ(warm.variants, 2u);
  EXPECT_EQ(warm.compiles, 2u);
  EXPECT_EQ(warm.new_shapes, 1u);
  ASSERT_EQ(m.run(s.session), nullptr);
  EXPECT_EQ(m.z[0], 3.5F);
  const auto after = metrics_of(s.session);
  EXPECT_EQ(after.calls, 1u);
  EXPECT_EQ(after.compiles, warm.compiles);
  EXPECT_EQ(after.new_shapes, warm.new_shapes);
  EXPECT_EQ(after.guard_misses, warm.guard_misses + 1); // the first variant is tried first
  EXPECT_EQ(after.kernels, warm.kernels);

  says(tessera_warmup(nullptr, shapes, 2), "the session is null");
  says(tessera_warmup(s.session, shapes, 1), "'y' was not given");
  says(tessera_warmup(s.session, nullptr, 2), "the inputs are null");
  shapes[0].dtype = TESSERA_STRING;
  says(tessera_warmup(s.session, shapes, 2), "element type");
}

TEST(CServing, RangesAreReadyBeforeCallsCome) {
  tessera_options options = on_cpu();
  options.ranges = "n=1..4..9,k=1..4..9";
  Opened opened(broadcasting(), options), later(broadcasting());
  ASSERT_EQ(tessera_warmup_ranges(later.session, options.ranges, nullptr, 0), nullptr);
  EXPECT_EQ(metrics_of(later.session).warmups, 1u);
  for (tessera_session* s : {opened.session, later.session}) {
    EXPECT_EQ(metrics_of(s).variants, 3u);
    for (auto [n, k] : {std::pair{4, 4}, {4, 1}, {1, 7}}) {
      Broadcasting m(n, k);
      ASSERT_EQ(m.run(s), nullptr);
    }
    EXPECT_EQ(metrics_of(s).variants, 3u);
    EXPECT_EQ(metrics_of(s).blocking_compiles, 0u);
    EXPECT_EQ(metrics_of(s).load_ms, 0);
  }
  says(tessera_warmup_ranges(nullptr, "n=1", nullptr, 0), "the session is null");
  says(tessera_warmup_ranges(later.session, nullptr, nullptr, 0), "the ranges are null");
  says(tessera_warmup_ranges(later.session, "n=1..4", nullptr, 0), "the range of 'k' is missing");
  says(tessera_warmup_ranges(later.session, "n=4..1,k=1", nullptr, 0), "'n=4..1': the smallest size, 4");
  says(tessera_warmup_ranges(later.session, "n=1,k=1", nullptr, 1), "the inputs are null");
  const tessera_tensor unknown{"q", kFloat, 0, nullptr, nullptr};
  says(tessera_warmup_ranges(later.session, "n=1,k=1", &unknown, 1), "of no input of the model: q");
}

TEST(CServing, SizesThatVariantsAreMadeFor) {
  tessera_options options = on_cpu();
  options.specialize = "n=exact";
  options.max_variant_bytes = 1; // the last one stays
  options.policy = "exact";
  Opened s(product(), options);
  const auto run = [&](int64_t n) {
    std::vector<float> x(static_cast<size_t>(n) * 64, 1), y(x.size());
    const int64_t dims[] = {n, 64};
    const tessera_tensor in{nullptr, kFloat, 2, dims, x.data()}, out{nullptr, kFloat, 2, dims, y.data()};
    EXPECT_EQ(tessera_run(s.session, &in, 1, &out, 1), nullptr);
  };
  run(2);
  run(3);
  const auto m = metrics_of(s.session);
  EXPECT_EQ(m.variants, 2u);
  EXPECT_EQ(m.evictions, 1u);
  EXPECT_GT(m.variant_bytes, 1u);
  tessera_session* session = nullptr;
  options.specialize = "n=sometimes";
  says(tessera_open_with(write(product()).c_str(), &options, &session), "neither exact nor div:8");
  options.specialize = "m=exact";
  says(tessera_open_with(write(product()).c_str(), &options, &session), "no input of the model has");
  options = on_cpu();
  options.max_variant_bytes = UINT64_MAX;
  says(tessera_open_with(write(product()).c_str(), &options, &session), "max_variant_bytes is 18446744073709551615");
}

TEST(CServing, TheFolderOfTheCacheIsAnOption) {
  const std::string own = folder().path() + "/own cache", other = folder().path() + "/other cache";
  tessera_options options = on_cpu();
  const auto cached = [&](const std::string& cache) {
    options.cache_dir = cache.c_str();
    Opened s(product(), options);
    int32_t needed = 0, had = 0;
    tessera_kernels(s.session, &needed, &had);
    EXPECT_GT(needed, 0);
    EXPECT_TRUE(std::filesystem::is_directory(cache)) << cache;
    return had;
  };
  EXPECT_EQ(cached(own), 0);
  EXPECT_GT(cached(own), 0);
  EXPECT_EQ(cached(other), 0);
}

TEST(CServing, AWarmUpTakesValuesWhereTheyHaveToBeValid) {
  Maker model; // row `at - 5` of x, and at = 0 leads to one before the first
  model.input("x", {"n", 4}).input("at", {1}, onnx_test::proto::TensorProto::INT64);
  model.weight(onnx_test::int64_tensor("five", {1}, {5}));
  model.add("Sub", {"at", "five"}, {"i"}).add("Gather", {"x", "i"}, {"y"}).output("y");
  Opened s(model);
  int64_t dims[] = {3, 4}, one[] = {1}, at[] = {6};
  tessera_tensor in[] = {{"x", kFloat, 2, dims, nullptr}, {"at", TESSERA_I64, 1, one, nullptr}};
  says(tessera_warmup(s.session, in, 2), "give tessera_warmup() data");
  in[1].data = at;
  const char* error = tessera_warmup(s.session, in, 2);
  EXPECT_EQ(error, nullptr) << error;
}

TEST(CServing, MetricsCountWhatHappens) {
  Opened s(broadcasting());
  Broadcasting equal(2, 2), other(4, 1), wrong(4, 3);
  const char* text = "";
  ASSERT_EQ(tessera_last_miss(s.session, &text), nullptr);
  EXPECT_EQ(text, nullptr);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(equal.run(s.session), nullptr);
  ASSERT_EQ(other.run(s.session), nullptr);
  ASSERT_EQ(tessera_last_miss(s.session, &text), nullptr);
  ASSERT_NE(text, nullptr);
  for (const char* part : {"k=1", "n=4", "broadcast", "another variant was ready"})
    EXPECT_NE(std::string(text).find(part), std::string::npos) << text;
  const std::string first = text;
  ASSERT_EQ(equal.run(s.session), nullptr);
  ASSERT_EQ(tessera_last_miss(s.session, &text), nullptr);
  EXPECT_EQ(text, first);
  EXPECT_NE(wrong.run(s.session), nullptr);
  ASSERT_EQ(tessera_last_miss(s.session, &text), nullptr);
  for (const char* part : {"k=3", "no variant that fits"})
    EXPECT_NE(std::string(text).find(part), std::string::npos) << text;
  auto m = metrics_of(s.session);
  EXPECT_EQ(m.calls, 6u);
  EXPECT_EQ(m.errors, 1u);
  EXPECT_EQ(m.new_shapes, 2u);
  EXPECT_GE(m.guard_misses, 2u);
  EXPECT_EQ(m.variants, 2u);
  EXPECT_EQ(std::accumulate(std::begin(m.latency), std::end(m.latency), uint64_t{0}), m.calls);
  EXPECT_GE(m.kernels, m.cached_kernels);
  EXPECT_GT(m.kernels, 0u);
  EXPECT_EQ(m.threads, 2u);
  tessera_options all = on_cpu();
  all.threads = 0;
  EXPECT_EQ(metrics_of(Opened(broadcasting(), all).session).threads, static_cast<uint64_t>(usable_processors()));

  // Contexts count for their session, those that are closed, too.
  tessera_session* clone = nullptr;
  ASSERT_EQ(tessera_clone(s.session, &clone), nullptr);
  ASSERT_EQ(equal.run(clone), nullptr);
  EXPECT_EQ(metrics_of(clone).calls, 7u);
  EXPECT_EQ(metrics_of(s.session).contexts, 2u);
  tessera_close(clone);
  m = metrics_of(s.session);
  EXPECT_EQ(m.calls, 7u);
  EXPECT_EQ(m.contexts, 1u);

  says(tessera_get_metrics(nullptr, &m), "a session");
  says(tessera_get_metrics(s.session, nullptr), "a place for the metrics");
  says(tessera_last_miss(nullptr, &text), "the session is null");
  says(tessera_last_miss(s.session, nullptr), "nowhere");
}

TEST(CServing, AContextOutlivesWhatWasOpened) {
  auto first = std::make_unique<Opened>(broadcasting());
  tessera_session* clone = nullptr;
  ASSERT_EQ(tessera_clone(first->session, &clone), nullptr);
  first.reset();
  Broadcasting equal(2, 2);
  EXPECT_EQ(equal.run(clone), nullptr);
  const auto m = metrics_of(clone);
  EXPECT_EQ(m.calls, 1u);
  EXPECT_EQ(m.contexts, 1u);
  EXPECT_EQ(m.variants, 1u);
  tessera_close(clone);
}

// ---- memory
struct Products {
  std::vector<float> x, y;
  int64_t dims[2];
  tessera_tensor in, out;
  explicit Products(int64_t n)
      : x(static_cast<size_t>(n) * 64, 0.5F),
        y(x.size()), dims{n, 64}, in{"x", kFloat, 2, dims, x.data()}, out{nullptr, kFloat, 2, dims, y.data()} {}
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
};

TEST(CServing, TheMemoryLimitRefusesACallBeforeItBegins) {
  tessera_options options = on_cpu();
  options.memory_limit = 1 << 20;
  Opened s(product(), options);
  Products small(8), large(1 << 14);
  ASSERT_EQ(tessera_run(s.session, &small.in, 1, &small.out, 1), nullptr);
  const auto before = metrics_of(s.session);
  EXPECT_EQ(before.memory_limit, options.memory_limit);
  EXPECT_GT(before.host_bytes, 0u);
  EXPECT_LE(before.peak_bytes, options.memory_limit);
  std::fill(large.y.begin(), large.y.end(), -1.F);
  const char* error = tessera_run(s.session, &large.in, 1, &large.out, 1);
  says(error, "the limit is 1048576");
  EXPECT_STREQ(tessera_last_error()->name, "out-of-memory");
  EXPECT_TRUE(std::all_of(large.y.begin(), large.y.end(), [](float y) { return y == -1; })) << "nothing was written";
  EXPECT_LE(metrics_of(s.session).peak_bytes, options.memory_limit);
  EXPECT_EQ(tessera_run(s.session, &small.in, 1, &small.out, 1), nullptr);
}

TEST(CServing, OutputsAndContextsCountForTheMemoryLimit) {
  // An addition has no intermediate results: outputs alone are counted.
  tessera_options options = on_cpu();
  options.memory_limit = 64 << 10;
  Opened s(broadcasting(), options);
  Broadcasting whole(4096, 4096), part(2048, 2048); // 64 and 32 KiB of outputs
  const tessera_tensor* out = nullptr;
  int32_t count = 0;
  says(tessera_run_fresh(s.session, Broadcasting(8192, 8192).in, 2, &out, &count), "131072 for outputs");
  ASSERT_EQ(tessera_run_fresh(s.session, part.in, 2, &out, &count), nullptr);
  EXPECT_GE(metrics_of(s.session).host_bytes, 32u << 10);
  tessera_session* clone = nullptr;
  ASSERT_EQ(tessera_clone(s.session, &clone), nullptr);
  const char* error = tessera_run_fresh(clone, whole.in, 2, &out, &count);
  says(error, "are held already");
  EXPECT_EQ(tessera_run_fresh(s.session, Broadcasting(1, 1).in, 2, &out, &count),
            nullptr); // its results before are gone
  EXPECT_LT(metrics_of(s.session).host_bytes, 32u << 10);
  tessera_close(clone);
  EXPECT_EQ(whole.run(s.session), nullptr) << "the caller's memory is not counted";
}

struct Counting {
  std::mutex mutex;
  std::map<void*, size_t> blocks;
  size_t given = 0;
  bool empty = false;
  size_t off = 0; // bytes that new memory is misaligned by
  static void* allocate(void* self, size_t bytes, size_t alignment) {
    auto& c = *static_cast<Counting*>(self);
    std::lock_guard lock(c.mutex);
    if (c.empty) return nullptr;
    void* data =
        static_cast<std::byte*>(std::aligned_alloc(alignment, bytes / alignment * alignment + 2 * alignment)) + c.off;
    c.blocks.emplace(data, bytes);
    ++c.given;
    return data;
  }
  static void release(void* self, void* data, size_t bytes) {
    auto& c = *static_cast<Counting*>(self);
    std::lock_guard lock(c.mutex);
    auto it = c.blocks.find(data);
    ASSERT_NE(it, c.blocks.end());
    EXPECT_EQ(it->second, bytes);
    c.blocks.erase(it);
    std::free(static_cast<std::byte*>(data) - reinterpret_cast<uintptr_t>(data) % 64);
  }
};

TEST(CServing, TheCallersAllocatorGivesWhatRunsHold) {
  Counting counting;
  const tessera_allocator allocator{sizeof allocator, Counting::allocate, Counting::release, &counting};
  tessera_options options = on_cpu();
  options.allocator = &allocator;
  {
    Opened s(product(), options);
    Products p(512);
    const tessera_tensor* out = nullptr;
    int32_t count = 0;
    ASSERT_EQ(tessera_run(s.session, &p.in, 1, &p.out, 1), nullptr);
    EXPECT_GT(counting.given, 0u) << "intermediate results";
    ASSERT_EQ(tessera_run_fresh(s.session, &p.in, 1, &out, &count), nullptr);
    {
      std::lock_guard lock(counting.mutex);
      EXPECT_TRUE(counting.blocks.contains(out[0].data)) << "outputs";
      size_t held = 0;
      for (const auto& [data, bytes] : counting.blocks) held += bytes;
      const auto counted = metrics_of(s.session).host_bytes; // plans of sizes and packed weights, too
      EXPECT_GE(counted, held);
      EXPECT_LT(counted, held + (1 << 20));
    }
    for (size_t i = 0; i < p.y.size(); ++i) ASSERT_EQ(static_cast<const float*>(out[0].data)[i], p.y[i]);
    counting.empty = true;
    Products larger(1024);
    says(tessera_run(s.session, &larger.in, 1, &larger.out, 1), "the caller's allocator has no memory of ");
    counting.empty = false;
    counting.off = 8;
    says(tessera_run(s.session, &larger.in, 1, &larger.out, 1),
         "the caller's allocator gave misaligned memory for intermediate results: its address is 8 bytes behind a");
    says(tessera_run_fresh(s.session, &p.in, 1, &out, &count), "gave misaligned memory for ");
    counting.off = 0;
    EXPECT_EQ(tessera_run(s.session, &larger.in, 1, &larger.out, 1), nullptr);
  }
  EXPECT_TRUE(counting.blocks.empty()) << "all was given back";
}

// ---- the log
struct Lines {
  std::mutex mutex;
  std::vector<std::pair<int32_t, std::string>> lines;
  static void write(void* self, int32_t level, const char* channel, const char* text) {
    auto& l = *static_cast<Lines*>(self);
    std::lock_guard lock(l.mutex);
    l.lines.emplace_back(level, std::string(channel) + ": " + text);
  }
  [[nodiscard]] bool has(int32_t level, const std::string& text) const {
    return std::any_of(lines.begin(), lines.end(), [&](const auto& line) {
      return line.first == level && line.second.find(text) != std::string::npos;
    });
  }
};

TEST(CServing, TheLogGoesToTheCaller) {
  Maker model = broadcasting();
  model.output("t", {"n", 5}); // and it is of 4
  Lines lines;
  tessera_logger logger{sizeof logger, TESSERA_LOG_WARNING, nullptr, Lines::write, &lines};
  ASSERT_EQ(tessera_set_logger(&logger), nullptr);
  Opened s(model);
  EXPECT_TRUE(lines.has(TESSERA_LOG_WARNING, "is declared as"));
  auto run = [&](int64_t n, int64_t k) {
    Broadcasting m(n, k);
    const tessera_tensor* out = nullptr;
    int32_t count = 0;
    EXPECT_EQ(tessera_run_fresh(s.session, m.in, 2, &out, &count), nullptr);
  };
  run(4, 1);
  EXPECT_FALSE(lines.has(TESSERA_LOG_INFO, "")) << "above the level";
  logger.level = TESSERA_LOG_INFO;
  ASSERT_EQ(tessera_set_logger(&logger), nullptr);
  run(1, 4);
  EXPECT_TRUE(lines.has(TESSERA_LOG_INFO, "recompiles: "));
  EXPECT_FALSE(lines.has(TESSERA_LOG_DEBUG, ""));
  logger.channels = "memory";
  ASSERT_EQ(tessera_set_logger(&logger), nullptr);
  run(7, 7);
  EXPECT_TRUE(lines.has(TESSERA_LOG_DEBUG, "memory: new shape"));

  lines.lines.clear();
  logger.channels = "memory,brook";
  says(tessera_set_logger(&logger), "no channel \"brook\"");
  run(8, 8);
  EXPECT_TRUE(lines.has(TESSERA_LOG_DEBUG, "memory: new shape")) << "an error changes nothing";
  logger.channels = nullptr;
  logger.level = 9;
  says(tessera_set_logger(&logger), "the level is 9");
  logger.level = TESSERA_LOG_DEBUG;
  logger.write = nullptr;
  says(tessera_set_logger(&logger), "`write` is null");
  logger.struct_size = 3;
  says(tessera_set_logger(&logger), "tessera_logger: struct_size is 3");
  lines.lines.clear();
  ASSERT_EQ(tessera_set_logger(nullptr), nullptr);
  run(9, 9);
  EXPECT_TRUE(lines.lines.empty());
}

// ---- threads: run with ThreadSanitizer, too
TEST(CServing, ContextsOfEightThreadsRunAtTheSameTime) {
  constexpr int kThreads = 8, kCalls = 40;
  tessera_options options = on_cpu();
  options.memory_limit = 64 << 20;
  Opened s(broadcasting(), options);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) {
      if (metrics_of(s.session).errors != 0) ++wrong;
      std::this_thread::yield();
    }
  });
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      tessera_session* context = nullptr;
      if (tessera_clone(s.session, &context) != nullptr) {
        ++wrong;
        return;
      }
      for (int i = 0; i < kCalls; ++i) {
        // Equal sizes, and from some call on others, which every thread asks a variant for.
        const int64_t n = 1 + (t + i) % 5;
        Broadcasting m(n, i > kCalls / 2 ? 1 : n);
        const tessera_tensor* out = nullptr;
        int32_t count = 0;
        const char* miss = nullptr;
        switch (i % 3) {
        case 0: wrong += m.run(context) != nullptr; break;
        case 1:
          wrong += tessera_run_fresh(context, m.in, 2, &out, &count) != nullptr;
          if (out) m.z.assign(static_cast<float*>(out->data), static_cast<float*>(out->data) + m.z.size());
          break;
        default:
          wrong += tessera_bind(context, m.in, 2, &m.out, 1) != nullptr;
          wrong += tessera_run_bound(context, nullptr) != nullptr;
          tessera_unbind(context);
        }
        for (float z : m.z) wrong += z != 3.5F;
        wrong += tessera_last_miss(context, &miss) != nullptr;
      }
      tessera_close(context);
    });
  for (auto& t : threads) t.join();
  done = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
  const auto m = metrics_of(s.session);
  EXPECT_EQ(m.calls, static_cast<uint64_t>(kThreads * kCalls));
  EXPECT_EQ(m.contexts, 1u);
  EXPECT_EQ(m.variants, 2u) << "one thread compiles, the others take it";
}

} // namespace
} // namespace tessera::api_test
