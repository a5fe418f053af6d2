// Internal failures of compiles, as a session, its background thread and the C interface show them: counted, logged, in
// the report, in no cache, and without an end to anything else.
#include "api/c.h"
#include "base/recover.h"
#include "tests/api/harness.h"
#include <cstdlib>

namespace tessera::api_test {
namespace {

Maker product() {
  Maker m;
  m.input("x", {"b", "s", 8}).output("y");
  std::vector<float> w(64);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 5) / 4 - 0.5F;
  m.weight(onnx_test::float_tensor("w", {8, 8}, w));
  m.add("MatMul", {"x", "w"}, {"p"}).add("Tanh", {"p"}, {"q"});
  m.add("Softmax", {"q"}, {"y"}, {onnx_test::int_attribute("axis", -1)});
  return m;
}
Inputs sized(int64_t b, int64_t s) { return {{"x", numbers({b, s, 8})}}; }

class ContainedFailures : public testing::Test {
protected:
  ~ContainedFailures() override { inject_failure(""); }
  static SessionOptions fresh() { // with a cache folder of this test's own
    static const onnx_test::TemporaryFolder caches;
    static int number = 0;
    SessionOptions o = options();
    o.compile.cache_dir = caches.path() + "/" + std::to_string(number++);
    return o;
  }
};

TEST_F(ContainedFailures, AreCountedLoggedReportedAndNotCached) {
  const Maker model = product();
  const SessionOptions o = fresh();
  {
    const LogCapture log("warnings");
    ASSERT_TRUE(inject_failure("emit"));
    auto session = open(model, o);
    inject_failure("");
    ASSERT_TRUE(session);
    expect_right(model, sized(2, 3), session->run(sized(2, 3)));
    const CompileTotals totals = session->compile_totals();
    EXPECT_EQ(totals.failures, 0);
    EXPECT_GT(totals.contained, 0);
    const std::string report = session->report();
    for (const char* part : {"\"contained\":[{", "TES-", "a failure was injected at stage emit", "/failures/failure-"})
      EXPECT_NE(report.find(part), std::string::npos) << part;
    EXPECT_NE(log.text().find("a failure was injected at stage emit"), std::string::npos) << log.text();
    EXPECT_NE(log.text().find("saved in " + o.compile.cache_dir), std::string::npos) << log.text();
  }
  for (int i = 0; i < 10; ++i) {
    auto session = open(model, o);
    ASSERT_TRUE(session);
    EXPECT_EQ(session->variants().front()->from_plan, false) << "a detour was kept";
    EXPECT_EQ(session->compile_totals().contained, 0);
    expect_right(model, sized(4, 1), session->run(sized(4, 1)));
    if (i == 0) break; // from now on the good plan is
  }
  auto kept = open(model, o);
  ASSERT_TRUE(kept);
  EXPECT_TRUE(kept->variants().front()->from_plan);
  expect_right(model, sized(2, 3), kept->run(sized(2, 3)));
}

TEST_F(ContainedFailures, OfAnImportAreErrors) {
  const std::string path = write(product());
  ASSERT_TRUE(inject_failure("import:1"));
  auto failed = Session::open(path, fresh());
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::Internal);
  auto next = Session::open(path, fresh());
  ASSERT_TRUE(next.ok()) << next.error().str();
  expect_right(product(), sized(1, 1), (*next)->run(sized(1, 1)));
}

// The second variant fails to compile at every stage: the call is right in any case.
TEST_F(ContainedFailures, OfAnotherVariant) {
  const Maker model = product();
  for (const FailureStage& stage : failure_stages()) {
    SCOPED_TRACE(stage.name);
    SessionOptions o = fresh();
    o.policy = VariantPolicy::Exact;
    auto session = open(model, o);
    ASSERT_TRUE(session);
    ASSERT_TRUE(inject_failure(stage.name));
    expect_right(model, sized(3, 2), session->run(sized(3, 2)));
    inject_failure("");
    expect_right(model, sized(1, 2), session->run(sized(1, 2)));
  }
}

TEST_F(ContainedFailures, InTheBackground) {
  const Maker model = product();
  for (const char* stage : {"import", "pass", "fuse", "emit", "llvm", "link"}) {
    SCOPED_TRACE(stage);
    SessionOptions o = fresh();
    o.policy = VariantPolicy::Adaptive;
    o.compile_share = 1;
    o.predicted_loss_us = [](const auto&) { return 1e12; };
    auto session = open(model, o);
    ASSERT_TRUE(session);
    ASSERT_TRUE(inject_failure(stage));
    for (int i = 0; i < 10; ++i) expect_right(model, sized(5, 2), session->run(sized(5, 2)));
    session->settle_tuning();
    inject_failure("");
    const CompileTotals failed = session->compile_totals();
    EXPECT_GT(failed.failures + failed.contained, 0);
    // The thread goes on: other sizes get a variant.
    bool came = false;
    for (int i = 0; i < 50 && !came; ++i) {
      expect_right(model, sized(2, 6), session->run(sized(2, 6)));
      session->settle_tuning();
      came = session->compile_totals().background > failed.background;
    }
    EXPECT_TRUE(came);
  }
}

TEST_F(ContainedFailures, ThroughC) {
  const std::string path = write(product());
  ASSERT_EQ(::setenv("TESSERA_CACHE_DIR", fresh().compile.cache_dir.c_str(), 1), 0);
  tessera_options o{};
  o.struct_size = sizeof o;
  o.device = "cpu";
  o.threads = 2;
  tessera_session* session = nullptr;
  ASSERT_TRUE(inject_failure("import"));
  const char* error = tessera_open_with(path.c_str(), &o, &session);
  ASSERT_NE(error, nullptr);
  EXPECT_NE(std::string(error).find("a failure was injected at stage import"), std::string::npos) << error;
  ASSERT_TRUE(inject_failure("llvm"));
  error = tessera_open_with(path.c_str(), &o, &session);
  inject_failure("");
  ASSERT_EQ(error, nullptr) << error;
  tessera_metrics m{};
  m.struct_size = sizeof m;
  ASSERT_EQ(tessera_get_metrics(session, &m), nullptr);
  EXPECT_GT(m.contained_failures, 0U);
  EXPECT_EQ(m.failed_compiles, 0U);
  tessera_close(session);
}

} // namespace
} // namespace tessera::api_test
