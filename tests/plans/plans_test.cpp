// Plans in the cache: what opens without a compile, and what must not.
#include "base/log.h"
#include "harness.h"
#include "tests/cache/age.h"
#include "tests/cuda/fake_driver.h"
#include "tests/fx/program_maker.h"
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

namespace tessera::plan_test {
namespace {

// Opens a model twice and expects the second session to be as the first one, without a compile.
void expect_kept(const Folder& folder, const Maker& model, const std::vector<Inputs>& calls,
                 const SessionOptions& options) {
  const std::string path = folder.write("kept.onnx", model.bytes());
  const Opened first = open(path, options), second = open(path, options);
  ASSERT_TRUE(first.session && second.session);
  EXPECT_EQ(std::pair(first.compiles, first.plans), std::pair(int64_t{1}, int64_t{0}));
  EXPECT_EQ(std::pair(second.compiles, second.plans), std::pair(int64_t{0}, int64_t{1}));
  const auto texts = [](const std::vector<IoInfo>& all) {
    std::vector<std::string> out;
    for (const IoInfo& io : all)
      out.push_back(io.name + " " + std::string(name(io.dtype)) + str(io.shape) + str(io.indexed) + io.list);
    return out;
  };
  EXPECT_EQ(texts(first.session->inputs()), texts(second.session->inputs()));
  EXPECT_EQ(texts(first.session->outputs()), texts(second.session->outputs()));
  EXPECT_EQ(first.session->model_warnings(), second.session->model_warnings());
  EXPECT_EQ(first.session->model_info().opsets, second.session->model_info().opsets);
  EXPECT_EQ(first.session->model_info().nodes, second.session->model_info().nodes);
  const auto &a = *first.session->variants()[0], &b = *second.session->variants()[0];
  EXPECT_EQ(a.label, b.label);
  EXPECT_EQ(a.kernels, b.kernels);
  EXPECT_EQ(a.executable->host_steps, b.executable->host_steps);
  for (const Inputs& inputs : calls) {
    const auto results = run(*first.session, inputs);
    EXPECT_TRUE(same_bits(results, run(*second.session, inputs)));
    api_test::expect_right(model, inputs, results);
  }
}

TEST(Plans, TheSecondOpenCompilesNothing) {
  const Folder folder;
  expect_kept(folder, model(), {{{"x", numbers({3, 16})}}, {{"x", numbers({64, 16}, 2)}}}, folder.options());
  EXPECT_EQ(folder.plans().size(), 1U);
}

// A plan's file stays mapped: that another session, or process, uses it much later must not look like a change of it.
TEST(Plans, UsedAgainLongAfterwards) {
  const Folder folder;
  const std::string path = folder.write("m.onnx", model().bytes());
  const Inputs inputs = {{"x", numbers({3, 16})}};
  ASSERT_TRUE(open(path, folder.options()).session);
  ASSERT_EQ(folder.plans().size(), 1U);
  const std::string plan = folder.plans()[0];
  set_age(plan, 100'000);
  const Opened first = open(path, folder.options());
  EXPECT_LT(age(plan), 1000);
  set_age(plan, 100'000);
  const Opened second = open(path, folder.options());
  for (const Opened* o : {&first, &second}) {
    EXPECT_EQ(o->plans, 1);
    ASSERT_TRUE(o->session);
    api_test::expect_right(model(), inputs, o->session->run(inputs));
  }
}

TEST(Plans, WeightsAreNotCopied) {
  const Folder folder;
  Maker m;
  m.input("x", {"b", 512}).weight(raw("w", {512, 512}, 1)).add("MatMul", {"x", "w"}, {"y"}).output("y");
  expect_kept(folder, m, {{{"x", numbers({2, 512})}}}, folder.options());
  ASSERT_EQ(folder.plans().size(), 1U);
  EXPECT_LT(std::filesystem::file_size(folder.plans()[0]), 512 * 512 * sizeof(float));
}

TEST(Plans, ControlFlowAndStepsOfTheHost) {
  const Folder folder;
  const auto branch = [](const std::string& op) {
    proto::GraphProto g;
    *g.add_node() = onnx_test::node(op, {"t"}, {"r"});
    onnx_test::set_value(*g.add_output(), "r", {"n"});
    return g;
  };
  Maker m;
  m.input("x", {"n"})
      .add("NonZero", {"x"}, {"at"})
      .add("ReduceMax", {"x"}, {"most"}, {onnx_test::int_attribute("keepdims", 0)})
      .add("Abs", {"x"}, {"t"})
      .weight(onnx_test::float_tensor("limit", {}, {2}))
      .add("Greater", {"most", "limit"}, {"big"})
      .add("If", {"big"}, {"y"},
           {onnx_test::graph_attribute("then_branch", branch("Neg")),
            onnx_test::graph_attribute("else_branch", branch("Sqrt"))})
      .output("y", {"n"})
      .output("at");
  expect_kept(folder, m, {{{"x", numbers({9})}}, {{"x", numbers({2})}}}, folder.options());
}

// The report of a compile is requested later, and is the same.
TEST(Plans, TheReportIsTheSame) {
  const Folder folder;
  const std::string path = folder.write("m.onnx", model().bytes());
  const Opened first = open(path, folder.options()), second = open(path, folder.options());
  ASSERT_TRUE(first.session && second.session);
  ASSERT_EQ(second.plans, 1);
  const auto report = [](const Session& s) {
    auto j = nlohmann::json::parse(s.report({{"b", 4}}, true));
    for (const char* times : {"compile", "passes"}) j.erase(times);
    for (auto& step : j["steps"])
      for (const char* of_this_compile : {"compile_ms", "from_cache"}) step.erase(of_this_compile);
    return j;
  };
  const auto a = report(*first.session), b = report(*second.session);
  EXPECT_EQ(a, b);
  EXPECT_EQ(second.session->compile_totals().compiles, 1); // an explanation is none
  EXPECT_TRUE(second.session->variants()[0]->compiled->graph);
  // A saved plan runs.
  const std::string saved = folder.path() + "/m.tsr";
  ASSERT_TRUE(second.session->save(saved, true).ok());
  const Inputs inputs = {{"x", numbers({5, 16})}};
  EXPECT_TRUE(same_bits(run(*open(saved, folder.options()).session, inputs), run(*first.session, inputs)));
}

TEST(Plans, ModelsThatAreChangedAreCompiled) {
  const Folder folder;
  const Inputs inputs = {{"x", numbers({3, 16})}};
  for (const float first : {1.0F, 2.0F, 1.0F}) { // the same graph, other weights
    const std::string path = folder.write("m.onnx", model(first).bytes());
    Opened o = open(path, folder.options());
    ASSERT_TRUE(o.session);
    api_test::expect_right(model(first), inputs, o.session->run(inputs));
  }
  EXPECT_EQ(folder.plans().size(), 2U);
  // A file of the same contents elsewhere uses the same plan.
  const std::string other = folder.write("another name.onnx", model(2).bytes());
  EXPECT_EQ(open(other, folder.options()).plans, 1);
}

TEST(Plans, FilesOfWeightsThatAreChangedAreNoticed) {
  const Folder folder;
  Maker m;
  m.input("x", {"b", 16})
      .weight(external("w", {16, 8}, "w.bin"))
      .weight(external("c", {8}, "c.bin"))
      .add("Add", {"c", "c"}, {"twice"})
      .add("MatMul", {"x", "w"}, {"p"})
      .add("Add", {"p", "twice"}, {"y"})
      .output("y");
  const std::string path = folder.write("m.onnx", m.bytes());
  const Inputs inputs = {{"x", numbers({3, 16})}};
  const auto expected = [&](float w, float c) {
    Maker inside;
    inside.input("x", {"b", 16})
        .weight(raw("w", {16, 8}, w))
        .weight(raw("c", {8}, c))
        .add("Add", {"c", "c"}, {"twice"})
        .add("MatMul", {"x", "w"}, {"p"})
        .add("Add", {"p", "twice"}, {"y"})
        .output("y");
    return inside;
  };
  const auto write = [&](float w, float c) {
    (void)folder.write("w.bin", raw("w", {16, 8}, w).raw_data());
    (void)folder.write("c.bin", raw("c", {8}, c).raw_data());
    std::this_thread::sleep_for(std::chrono::milliseconds(30)); // beyond a tick of the files' clock
  };
  const auto call = [&](float w, float c, int64_t plans) {
    SCOPED_TRACE(std::to_string(w) + " " + std::to_string(c));
    Opened o = open(path, folder.options());
    ASSERT_TRUE(o.session);
    EXPECT_EQ(o.plans, plans);
    api_test::expect_right(expected(w, c), inputs, o.session->run(inputs));
  };
  write(1, 2);
  call(1, 2, 0);
  call(1, 2, 1);
  write(1, 3); // a constant that was computed
  call(1, 3, 0);
  call(1, 3, 1);
  write(4, 3); // one that is mapped
  call(4, 3, 0);
  call(4, 3, 1);
  std::filesystem::remove(folder.path() + "/c.bin");
  EXPECT_FALSE(Session::open(path, folder.options()).ok());
}

// Weights are written over the old ones: size and name are the same.
TEST(Plans, AChangeWithinTheModelsFile) {
  const Folder folder;
  const std::string path = folder.write("m.onnx", model(1).bytes());
  ASSERT_EQ(open(path, folder.options()).compiles, 1);
  const std::string other = model(2).bytes();
  ASSERT_EQ(other.size(), model(1).bytes().size());
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << other;
  const Inputs inputs = {{"x", numbers({3, 16})}};
  Opened o = open(path, folder.options());
  EXPECT_EQ(o.plans, 0);
  api_test::expect_right(model(2), inputs, o.session->run(inputs));
}

// Once a file's last change is long enough ago, its digest is kept, and the file is not read for it; until it changes.
TEST(Plans, DigestsCountForTheFileAsItWas) {
  const Folder folder;
  const std::string path = folder.write("m.onnx", model(1).bytes());
  ASSERT_EQ(open(path, folder.options()).compiles, 1);
  EXPECT_TRUE(folder.entries(EntryKind::Digest).empty()) << "it has just been written";
  std::this_thread::sleep_for(std::chrono::milliseconds(3200));
  EXPECT_EQ(open(path, folder.options()).plans, 1);
  ASSERT_EQ(folder.entries(EntryKind::Digest).size(), 1U);
  EXPECT_EQ(open(path, folder.options()).plans, 1);
  const Inputs inputs = {{"x", numbers({3, 16})}};
  const auto changed = [&](const Maker& now) {
    Opened o = open(path, folder.options());
    EXPECT_EQ(o.plans, 0);
    api_test::expect_right(now, inputs, o.session->run(inputs));
  };
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << model(2).bytes();
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  changed(model(2));
  const std::string old = folder.write("old.onnx", model(3).bytes());
  std::filesystem::rename(old, path);
  changed(model(3));
}

TEST(Plans, DamagedOnesAreCompiledAgainAndReplaced) {
  const Folder folder;
  const std::string path = folder.write("m.onnx", model().bytes());
  const Inputs inputs = {{"x", numbers({3, 16})}};
  ASSERT_EQ(open(path, folder.options()).compiles, 1);
  const std::string file = folder.plans().at(0), whole = read_file(file).value();
  const Entry entry = decode_entry(whole).value();
  const auto call = [&](bool warns) {
    Opened o = open(path, folder.options());
    EXPECT_EQ(o.compiles, 1);
    const auto& warnings = o.session->variants()[0]->compiled->report.cache_warnings;
    ASSERT_EQ(warnings.size(), warns ? 1U : 0U);
    for (const std::string& w : warnings) EXPECT_NE(w.find("is damaged"), std::string::npos) << w;
    api_test::expect_right(model(), inputs, o.session->run(inputs));
    EXPECT_EQ(open(path, folder.options()).plans, 1); // it was replaced
  };
  std::string flipped = whole;
  flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 1);
  std::ofstream(file, std::ios::binary) << flipped;
  call(true);
  std::ofstream(file, std::ios::binary) << whole.substr(0, whole.size() / 3);
  call(true);
  // The checksum is right, and the payload is not.
  const std::string payload(entry.payload);
  std::string other = payload;
  other[payload.size() - 100] = static_cast<char>(other[payload.size() - 100] ^ 1);
  for (const std::string& wrong : {std::string(), std::string(16, '\xff'), std::string(200, '\0'),
                                   payload.substr(0, payload.size() - 64), other}) {
    Cache(folder.path() + "/cache", true).store(EntryKind::Plan, entry.key, entry.origin, wrong);
    Opened o = open(path, folder.options());
    ASSERT_TRUE(o.session);
    api_test::expect_right(model(), inputs, o.session->run(inputs));
  }
  std::filesystem::remove(file);
  call(false);
}

TEST(Plans, OptionsTellThemApart) {
  const Folder folder;
  const std::string path = folder.write("m.onnx", model().bytes());
  ASSERT_EQ(open(path, folder.options()).compiles, 1);
  const auto compiles = [&](const std::function<void(SessionOptions&)>& change) {
    SessionOptions o = folder.options();
    change(o);
    return open(path, o).compiles;
  };
  EXPECT_EQ(compiles([](auto& o) { o.compile.fusion = false; }), 1);
  EXPECT_EQ(compiles([](auto& o) { o.compile.threads = 1; }), 1);
  EXPECT_EQ(compiles([](auto& o) { o.compile.disabled_passes = {"fold"}; }), 1);
  EXPECT_EQ(compiles([](auto& o) { o.import.dim_values["b"] = 4; }), 1);
  EXPECT_EQ(compiles([](auto& o) { o.import.dim_hints["b"] = 4; }), 1);
  EXPECT_EQ(compiles([](auto& o) { o.compile.cache = false; }), 1);
  EXPECT_EQ(compiles([](auto& o) { o.compile.keep_texts = true; }), 1); // wants to see a compile
  EXPECT_EQ(compiles([](auto& o) { o.compile_only = true; }), 1);
  EXPECT_EQ(compiles([](auto& o) { o.compile.jobs = 1; }), 0); // how, not what
  EXPECT_EQ(compiles([](auto&) {}), 0);
  {
    const Variable isa("TESSERA_HOST_ISA", "sse");
    EXPECT_EQ(compiles([](auto&) {}), 1);
  }
  {
    const Variable passes("TESSERA_DISABLE_PASSES", "fold");
    EXPECT_EQ(compiles([](auto&) {}), 1);
  }
  {
    const api_test::LogCapture log("fusion");
    EXPECT_EQ(compiles([](auto&) {}), 1);
    EXPECT_NE(log.text(), "");
  }
  EXPECT_EQ(compiles([](auto&) {}), 0);
}

TEST(Plans, VariantsOfCallsAreKept) {
  const Folder folder;
  Maker m; // where n meets k, open() takes them for equal
  m.input("x", {"n", "d"}).input("m", {"k", "d"}).add("Add", {"x", "m"}, {"t"}).add("Relu", {"t"}, {"y"}).output("y");
  const std::string path = folder.write("m.onnx", m.bytes());
  const Inputs fits = {{"x", numbers({4, 6})}, {"m", numbers({4, 6}, 1)}};
  const Inputs misses = {{"x", numbers({4, 6})}, {"m", numbers({1, 6}, 1)}};
  std::vector<Tensor> results;
  for (const int64_t cached : {0, 1}) {
    Opened o = open(path, folder.options());
    ASSERT_EQ(o.plans, cached);
    api_test::expect_right(m, fits, o.session->run(fits));
    RunStats stats;
    auto missed = o.session->run(misses, &stats);
    api_test::expect_right(m, misses, missed);
    ASSERT_EQ(stats.misses.size(), 1U);
    EXPECT_NE(stats.misses[0].reason.find("broadcast"), std::string::npos);
    EXPECT_NE(stats.misses[0].where.find("n_t"), std::string::npos);
    const CompileTotals totals = o.session->compile_totals();
    EXPECT_EQ(totals.variants, 2);
    EXPECT_EQ(totals.compiles, 2);
    EXPECT_EQ(totals.cached_plans, cached ? 2 : 0);
    EXPECT_EQ(o.session->variants()[1]->label, "for d=6, k=1, n=4");
    EXPECT_EQ(same_bits(results, *missed), cached == 1);
    results = *missed;
  }
  // A miss that nobody has had before, after a hit.
  Opened o = open(path, folder.options());
  ASSERT_EQ(o.plans, 1);
  const Inputs others = {{"x", numbers({1, 6})}, {"m", numbers({5, 6}, 1)}};
  api_test::expect_right(m, others, o.session->run(others));
  EXPECT_EQ(o.session->compile_totals().compiles, 2);
  EXPECT_EQ(o.session->compile_totals().cached_plans, 1);
}

TEST(Plans, SpecializedVariantsAreKept) {
  const Folder folder;
  const std::string path = folder.write("m.onnx", model().bytes());
  SessionOptions options = folder.options();
  options.specialize["b"] = {};
  for (const bool cached : {false, true}) {
    Opened o = open(path, options);
    for (const int64_t b : {3, 4}) {
      const Inputs inputs = {{"x", numbers({b, 16})}};
      api_test::expect_right(model(), inputs, o.session->run(inputs));
    }
    ASSERT_EQ(o.session->variants().size(), 3U);
    EXPECT_EQ(o.session->variants()[2]->label, "b=4");
    EXPECT_TRUE(o.session->variants()[2]->specialized);
    EXPECT_EQ(o.session->variants()[2]->conditions, 1);
    EXPECT_EQ(o.session->compile_totals().cached_plans, cached ? 3 : 0);
  }
}

TEST(Plans, ProgramsInMemory) {
  const Folder folder;
  const auto make = [](double first) {
    ProgramSource source = fx_test::program("s in [2, 64]\n"
                                            "input x: f32[s, 4]\n"
                                            "weight w: f32[4]\n"
                                            "v: f32[4] = mul.Tensor(self=w, other=3)\n"
                                            "m: f32[s, 4] = mul.Tensor(self=x, other=w)\n"
                                            "y: f32[s, 4] = add.Tensor(self=m, other=v)\n"
                                            "return y");
    source.name = "program";
    Tensor& w = source.weights.begin()->second;
    Tensor other = Tensor::create(DType::F32, {4}).value();
    for (int64_t i = 0; i < 4; ++i) other.set_f64(i, first + static_cast<double>(i));
    w = other;
    return source;
  };
  const auto call = [&](double first, int64_t plans) {
    auto session = Session::open_program(make(first), folder.options());
    ASSERT_TRUE(session.ok()) << session.error().str();
    EXPECT_EQ((*session)->compile_totals().cached_plans, plans);
    auto results = (*session)->run({{"x", numbers({2, 4})}});
    ASSERT_TRUE(results.ok()) << results.error().str();
    for (int64_t i = 0; i < 8; ++i) {
      const double w = first + static_cast<double>(i % 4);
      EXPECT_EQ((*results)[0].get_f64(i), numbers({2, 4}).get_f64(i) * w + 3 * w);
    }
  };
  call(1, 0);
  call(1, 1);
  call(2, 0);
  call(2, 1);
  call(1, 1);
}

TEST(Plans, SessionsOpenAtOnce) {
  const Folder folder;
  const std::string path = folder.write("m.onnx", model().bytes());
  const Inputs inputs = {{"x", numbers({3, 16})}};
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    std::vector<std::vector<Tensor>> results(4);
    for (auto& r : results) threads.emplace_back([&] { r = run(*open(path, folder.options()).session, inputs); });
    for (auto& t : threads) t.join();
    for (const auto& r : results) EXPECT_TRUE(same_bits(r, results[0]));
  }
  EXPECT_EQ(folder.plans().size(), 1U);
}

// Explanations that several threads request compile once, and live as long as somebody has them.
TEST(Plans, ACompileIsMadeUpForLater) {
  const Folder folder;
  const std::string path = folder.write("m.onnx", model().bytes());
  ASSERT_EQ(open(path, folder.options()).compiles, 1);
  Opened o = open(path, folder.options());
  const auto variant = o.session->variants()[0];
  ASSERT_TRUE(variant->from_plan);
  std::vector<std::thread> threads;
  std::vector<const Compiled*> seen(4);
  for (auto& s : seen) threads.emplace_back([&] { s = variant->compiled.get().get(); });
  for (auto& t : threads) t.join();
  for (const auto* s : seen) EXPECT_EQ(s, seen[0]);
  o.session.reset();
  EXPECT_TRUE(variant->compiled->graph);
}

TEST(Plans, NoExplanationOfAModelThatWasChangedSince) {
  const Folder folder;
  const std::string path = folder.write("m.onnx", model().bytes());
  ASSERT_EQ(open(path, folder.options()).compiles, 1);
  Opened o = open(path, folder.options());
  ASSERT_EQ(o.plans, 1);
  const std::string next = folder.write("next.onnx", model(2).bytes());
  std::filesystem::rename(next, path);
  const api_test::LogCapture log("warnings");
  EXPECT_FALSE(o.session->variants()[0]->compiled->graph);
  EXPECT_NE(log.text().find("the model was changed"), std::string::npos) << log.text();
  const Inputs inputs = {{"x", numbers({3, 16})}};
  api_test::expect_right(model(), inputs, o.session->run(inputs)); // it has the file that it opened
}

TEST(Plans, LargeOnesAreNotKept) {
  const Folder folder;
  Maker m;
  m.input("x", {"b", 64})
      .weight(raw("w", {64, 64}, 1))
      .add("Add", {"w", "w"}, {"twice"})
      .add("MatMul", {"x", "twice"}, {"y"})
      .output("y");
  const std::string path = folder.write("m.onnx", m.bytes());
  const Variable limit("TESSERA_CACHE_LIMIT", "200k"); // a plan has at most 12,500 bytes
  const api_test::LogCapture log("cache");
  EXPECT_EQ(open(path, folder.options()).compiles, 1);
  EXPECT_EQ(open(path, folder.options()).compiles, 1);
  EXPECT_TRUE(folder.plans().empty());
  EXPECT_NE(log.text().find("m.onnx, generic is not kept"), std::string::npos) << log.text();
}

TEST(Plans, EvictedOnesAreMadeAgain) {
  const Folder folder;
  const std::string path = folder.write("m.onnx", model().bytes());
  ASSERT_EQ(open(path, folder.options()).compiles, 1);
  Opened o = open(path, folder.options());
  ASSERT_EQ(o.plans, 1);
  ASSERT_TRUE(evict(folder.path() + "/cache", {.limit = 0}).ok());
  const Inputs inputs = {{"x", numbers({3, 16})}};
  api_test::expect_right(model(), inputs, o.session->run(inputs)); // what is mapped stays
  EXPECT_EQ(open(path, folder.options()).compiles, 1);
  EXPECT_EQ(open(path, folder.options()).plans, 1);
}

TEST(Plans, ForAGpu) {
  const Folder folder;
  const std::string path = folder.write("m.onnx", model().bytes());
  test::FakeGpu gpu;
  SessionOptions options = folder.options();
  options.compile.device = "cuda";
  options.executor.gpu_context = gpu.context();
  const Opened first = open(path, options), second = open(path, options);
  ASSERT_TRUE(first.session && second.session);
  EXPECT_EQ(first.compiles, 1);
  EXPECT_EQ(second.plans, 1);
  const Executable &a = *first.session->variants()[0]->executable, &b = *second.session->variants()[0]->executable;
  EXPECT_EQ(a.target, b.target);
  EXPECT_EQ(a.objects, b.objects);
  EXPECT_EQ(a.steps.size(), b.steps.size());
  options.compile.arch = "sm_80";
  EXPECT_EQ(open(path, options).compiles, 1);
}

} // namespace
} // namespace tessera::plan_test
