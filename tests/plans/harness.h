// Helpers for the tests of plans in the cache: a model with weights of every kind, and sessions that are distinguished
// by what they compiled.
#pragma once
#include "base/temporary_folder.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/eviction.h"
#include "runtime/cache/survey.h"
#include "tests/api/harness.h"
#include "tests/cuda/variable.h"
#include <cstring>
#include <fstream>

namespace tessera::plan_test {

using api_test::Inputs;
using api_test::numbers;
using onnx_test::Maker;
using test::Variable;
namespace proto = onnx_test::proto;

// A folder for models, and one for the cache in it.
class Folder {
public:
  Folder() : folder_(TemporaryFolder::create("tessera-plans").value()) {}
  [[nodiscard]] const std::string& path() const { return folder_.path(); }
  [[nodiscard]] std::string write(const std::string& name, std::string_view bytes) const {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  [[nodiscard]] SessionOptions options() const {
    SessionOptions o = api_test::options();
    o.compile.cache_dir = path() + "/cache";
    return o;
  }
  // The files of such entries in the cache.
  [[nodiscard]] std::vector<std::string> entries(EntryKind kind) const {
    std::vector<std::string> out;
    auto status = survey_cache(path() + "/cache", false, [&](const SurveyedFile& f) -> Status {
      if (f.entry && f.entry->kind == kind) out.push_back(f.path);
      EXPECT_EQ(f.problem, "");
      return {};
    });
    EXPECT_TRUE(status.ok());
    return out;
  }
  [[nodiscard]] std::vector<std::string> plans() const { return entries(EntryKind::Plan); }

private:
  TemporaryFolder folder_;
};

inline proto::TensorProto raw(const std::string& name, const Dims& dims, float first) {
  auto t = onnx_test::float_tensor(name, dims, {});
  std::vector<float> values(static_cast<size_t>(element_count(dims).value()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i % 7) / 8;
  t.set_raw_data(values.data(), values.size() * sizeof(float));
  return t;
}
inline proto::TensorProto external(const std::string& name, const Dims& dims, const std::string& file) {
  auto t = onnx_test::float_tensor(name, dims, {});
  t.set_data_location(proto::TensorProto::EXTERNAL);
  auto& e = *t.add_external_data();
  e.set_key("location");
  e.set_value(file);
  return t;
}

// y[b, 8] = relu(x[b, 16] w + (c + c)): one weight that the model's file shows, and a constant that is computed.
inline Maker model(float first = 1) {
  Maker m;
  m.input("x", {"b", 16})
      .weight(raw("w", {16, 8}, first))
      .weight(raw("c", {8}, first))
      .add("Add", {"c", "c"}, {"twice"})
      .add("MatMul", {"x", "w"}, {"p"})
      .add("Add", {"p", "twice"}, {"s"})
      .add("Relu", {"s"}, {"y"})
      .output("y");
  return m;
}

struct Opened {
  std::unique_ptr<Session> session;
  int64_t compiles = -1, plans = -1; // by opening it: without the cache, and from it
};
inline Opened open(const std::string& path, const SessionOptions& options) {
  auto session = Session::open(path, options);
  if (!session.ok()) {
    ADD_FAILURE() << session.error().str();
    return {};
  }
  const CompileTotals totals = (*session)->compile_totals();
  return {std::move(*session), totals.compiles - totals.cached_plans, totals.cached_plans};
}

inline std::vector<Tensor> run(Session& session, const Inputs& inputs) {
  auto results = session.run(inputs);
  EXPECT_TRUE(results.ok()) << results.error().str();
  return results.ok() ? std::move(*results) : std::vector<Tensor>();
}
inline bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size() || a.empty()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].dtype() != b[i].dtype() || a[i].dims() != b[i].dims() || a[i].bytes() != b[i].bytes() ||
        std::memcmp(a[i].data(), b[i].data(), a[i].bytes()) != 0)
      return false;
  return true;
}

} // namespace tessera::plan_test
