// Texts of the C interface's errors and of the log, for people: whatever a name or a path has in it.
#include "api/c.h"
#include "harness.h"

namespace tessera::api_test {
namespace {

const std::string kHostile = "h\nerror TES-0000 forged: line\x1b[31m\xc2\x9b\xe2\x80\xae\xe2\x80\xa8\xff";
const std::string kShown = "h\\nerror TES-0000 forged: line\\x1b[31m\\u009b\\u202e\\u2028\\xff";

TEST(ErrorText, IsFitToBeShown) {
  tessera_session* session = nullptr;
  const char* error = tessera_open(kHostile.c_str(), "cpu", 1, &session);
  ASSERT_NE(error, nullptr);
  EXPECT_NE(std::string(error).find(kShown), std::string::npos) << error;
  error = tessera_open("none.onnx", kHostile.c_str(), 1, &session);
  ASSERT_NE(error, nullptr);
  EXPECT_NE(std::string(error).find(kShown), std::string::npos) << error;

  Maker m;
  m.input("x", {"n", 4}).add("Relu", {"x"}, {"y"}).output("y");
  ASSERT_EQ(tessera_open(write(m).c_str(), "cpu", 1, &session), nullptr);
  std::vector<float> x(4), y(4);
  const int64_t dims[] = {1, 4};
  const tessera_tensor in = {kHostile.c_str(), 1, 2, dims, x.data()};
  const tessera_tensor out = {"y", 1, 2, dims, y.data()};
  error = tessera_run(session, &in, 1, &out, 1);
  ASSERT_NE(error, nullptr);
  EXPECT_NE(std::string(error).find(kShown), std::string::npos) << error;
  tessera_close(session);
}

// The report that the command reads of a model is there for programs, too, of a model and of its file.
TEST(Report, IsTheSameFromTheFile) {
  Maker m;
  m.input("x", {"n", 4}).input("i", {3}, onnx_proto::TensorProto::INT64);
  m.add("Relu", {"x"}, {"r"}).add("Gather", {"r", "i"}, {"y"}).output("y");
  const std::string path = write(m);
  auto session = Session::open(path);
  ASSERT_TRUE(session.ok()) << session.error().str();
  EXPECT_NE((*session)->report().find("\"expression\""), std::string::npos);
  ASSERT_TRUE((*session)->save(path + ".tsr", true).ok());
  auto loaded = Session::open(path + ".tsr");
  ASSERT_TRUE(loaded.ok()) << loaded.error().str();
  EXPECT_EQ((*loaded)->report(), (*session)->report({}, true));
  ASSERT_TRUE((*loaded)->save(path + ".again.tsr", true).ok());
  for (const auto* s : {&*session, &*loaded}) {
    EXPECT_TRUE((*s)->inputs()[0].indexed.empty());
    ASSERT_EQ((*s)->inputs()[1].indexed.size(), 1U);
    EXPECT_EQ((*s)->inputs()[1].indexed[0].str(), "n");
  }
  SessionOptions gpu;
  gpu.compiled_for = "cuda";
  EXPECT_EQ(Session::open(path + ".tsr", gpu).error().code, ErrorCode::Usage);
  SessionOptions special;
  special.specialize["n"] = {};
  EXPECT_EQ(Session::open(path + ".tsr", special).error().code, ErrorCode::Usage);
}

} // namespace
} // namespace tessera::api_test
