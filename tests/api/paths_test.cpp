// A session opened by a relative path, in a process that goes to another folder.
#include "harness.h"
#include <cstring>
#include <filesystem>

namespace tessera::api_test {
namespace {

namespace fs = std::filesystem;

// Back in the folder from before when it ends.
class InFolder {
public:
  explicit InFolder(const fs::path& folder) { fs::current_path(folder); }
  ~InFolder() { fs::current_path(before_); }
  InFolder(const InFolder&) = delete;
  InFolder& operator=(const InFolder&) = delete;

private:
  const fs::path before_ = fs::current_path();
};

// A folder with the seeds' models of every format.
fs::path models() {
  const fs::path seeds = TESSERA_SOURCE_DIR "/tests/fuzz/seeds", to = fs::path(folder().path()) / "models";
  fs::create_directories(to / "external");
  fs::copy(seeds / "pt2", to, fs::copy_options::overwrite_existing | fs::copy_options::recursive);
  Maker m;
  m.input("x", {"n", 4}).weight(onnx_test::float_tensor("w", {4, 64}, std::vector<float>(256, 0.5F)));
  m.add("MatMul", {"x", "w"}, {"y"}).output("y");
  auto& weight = *m.graph().mutable_initializer(0);
  std::string bytes(256 * sizeof(float), '\0');
  for (size_t i = 0; i < 256; ++i) {
    const float value = weight.float_data_size() > 0 ? weight.float_data(static_cast<int>(i)) : 0.5F;
    std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
  }
  (void)folder().write("models/external/w.bin", bytes);
  weight.clear_float_data();
  weight.clear_raw_data();
  weight.set_data_location(onnx_test::proto::TensorProto::EXTERNAL);
  for (const auto& [key, value] :
       {std::pair("location", "w.bin"), std::pair("offset", "0"), std::pair("length", "1024")}) {
    auto& entry = *weight.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  }
  (void)folder().write("models/external/m.onnx", m.bytes());
  return to;
}

// Random numbers of sizes that are all `n` where they are free.
Inputs inputs_of(const Session& session, int64_t n) {
  Inputs all;
  for (const IoInfo& io : session.inputs()) {
    Dims dims;
    for (const SymExpr& d : io.shape) dims.push_back(d.as_const().value_or(n));
    all.emplace(io.name, io.dtype == DType::F32 ? numbers(dims) : integers(dims, 2));
  }
  return all;
}

TEST(Paths, LeadToTheModelAfterTheProcessHasMoved) {
  const fs::path from = models();
  for (const std::string name : {"external/m.onnx", "strided.pt2"}) {
    SCOPED_TRACE(name);
    std::unique_ptr<Session> session;
    SessionOptions exact = options();
    exact.policy = VariantPolicy::Exact; // a variant for the sizes of each call
    exact.compile.cache_dir = "own_cache";
    {
      const InFolder there(from);
      auto opened = Session::open(name, exact);
      ASSERT_TRUE(opened.ok()) << opened.error().str();
      session = std::move(*opened);
    }
    const InFolder elsewhere(folder().path());
    for (int64_t n : {2, 3}) {
      auto out = session->run(inputs_of(*session, n));
      ASSERT_TRUE(out.ok()) << out.error().str();
    }
    const CompileTotals totals = session->compile_totals();
    EXPECT_EQ(totals.failures, 0);
    EXPECT_FALSE(fs::exists("own_cache")) << "the cache folder is where it was when the session was opened";
    // A file that is saved here refers to weights where they are.
    ASSERT_TRUE(session->save("saved.tsr", false).ok());
    auto saved = Session::open("saved.tsr", options());
    ASSERT_TRUE(saved.ok()) << saved.error().str();
    const InFolder back(from);
    auto out = (*saved)->run(inputs_of(**saved, 2));
    EXPECT_TRUE(out.ok()) << out.error().str();
  }
  EXPECT_TRUE(fs::exists(from / "own_cache"));
}

TEST(Paths, AreNamedInErrorsAsTheyWereGiven) {
  const InFolder there(models());
  auto none = Session::open("none.onnx", options());
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().location.file, "none.onnx");
  std::filesystem::resize_file("strided.pt2", 100);
  auto damaged = Session::open("strided.pt2", options());
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().location.file, "strided.pt2");
}

// The name says what it was meant to be.
TEST(Paths, OfDamagedCompiledFiles) {
  for (const std::string_view bytes : {std::string_view("TE"), std::string_view("\xFFtessera, and more of it")}) {
    auto opened = Session::open(folder().write("damaged.tsr", bytes), options());
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, ErrorCode::CorruptFile) << opened.error().str();
    EXPECT_NE(opened.error().str().find("is a damaged compiled file"), std::string::npos) << opened.error().str();
  }
}

} // namespace
} // namespace tessera::api_test
