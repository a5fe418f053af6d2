// Models that change what they keep: values from call to call, of each context its own, through the C interface, its classes
// and the session.
#include "api/tessera.hpp"
#include "c_harness.h"
#include "tests/fx/program_maker.h"
#include <filesystem>

namespace tessera::api_test {
namespace {

// y = x + n, with n one more in each call; rows [s] of a table that shift by one, the last one x.
constexpr const char* kProgram = "s in [2, 64]\n"
                                 "buffer n: f32[]\nbuffer rows: i64[3]\n"
                                 "input x: f32[s]\ninput k: i64[1]\n"
                                 "m: f32[] = add.Tensor(self=n, other=1)\n"
                                 "tail: i64[2] = slice.Tensor(self=rows, dim=0, start=1, end=3)\n"
                                 "next: i64[3] = cat.default(tensors=[tail, k])\n"
                                 "y: f32[s] = add.Tensor(self=x, other=m)\n"
                                 "z: f32[1] = index_select.default(self=x, dim=0, index=k)\n"
                                 "return y, z\nmutates n = m\nmutates rows = next";

void fine(const char* error) { ASSERT_EQ(error, nullptr) << error; }

class States : public ::testing::Test {
protected:
  void SetUp() override {
    source_ = fx_test::program(kProgram);
    for (const auto& [name, t] : source_.weights)
      weights_.push_back({name.c_str(), info(t.dtype()).onnx, static_cast<int32_t>(t.dims().size()), t.dims().data(),
                          const_cast<std::byte*>(t.data())});
    program_.struct_size = sizeof program_;
    program_.json = source_.json.data();
    program_.json_bytes = source_.json.size();
    program_.weights = weights_.data();
    program_.weight_count = static_cast<int32_t>(weights_.size());
    options_.struct_size = sizeof options_;
    options_.device = "cpu";
    options_.threads = 2;
    fine(tessera_open_program(&program_, &options_, &session_));
  }
  void TearDown() override { tessera_close(session_); }

  // The first element of y, or -1 after an error, which is kept.
  float call(tessera_session* session, int64_t k, int64_t size = 4) {
    std::vector<float> x(static_cast<size_t>(size)), y(x.size());
    float z = 0;
    const int64_t one = 1;
    const tessera_tensor in[] = {{"x", TESSERA_F32, 1, &size, x.data()}, {"k", TESSERA_I64, 1, &one, &k}};
    const tessera_tensor out[] = {{nullptr, TESSERA_F32, 1, &size, y.data()}, {nullptr, TESSERA_F32, 1, &one, &z}};
    error_ = tessera_run(session, in, 2, out, 2) ? tessera_last_error()->message : "";
    return error_.empty() ? y[0] : -1;
  }
  static float number(tessera_session* session) {
    float n = -1;
    fine(tessera_read_state(session, 0, &n, sizeof n));
    return n;
  }
  static std::vector<int64_t> rows(tessera_session* session) {
    std::vector<int64_t> rows(3);
    fine(tessera_read_state(session, 1, rows.data(), 24));
    return rows;
  }

  ProgramSource source_;
  std::vector<tessera_tensor> weights_;
  tessera_program program_{};
  tessera_options options_{};
  tessera_session* session_ = nullptr;
  std::string error_;
};

TEST_F(States, AreNoInputsOrOutputs) {
  const tessera_io* ios = nullptr;
  int32_t count = 0;
  fine(tessera_inputs(session_, &ios, &count));
  ASSERT_EQ(count, 2);
  EXPECT_STREQ(ios[1].name, "k");
  fine(tessera_outputs(session_, &ios, &count));
  EXPECT_EQ(count, 2);
  fine(tessera_states(session_, &ios, &count));
  ASSERT_EQ(count, 2);
  EXPECT_STREQ(ios[0].name, "n");
  EXPECT_EQ(ios[0].rank, 0);
  EXPECT_STREQ(ios[1].name, "rows");
  EXPECT_EQ(ios[1].dtype, TESSERA_I64);
  EXPECT_STREQ(ios[1].dims[0], "3");
}

TEST_F(States, StayFromCallToCall) {
  EXPECT_EQ(number(session_), -1); // weights of the maker's programs begin with -1
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call(session_, i), static_cast<float>(i)) << error_;
  EXPECT_EQ(number(session_), 2);
  EXPECT_EQ(rows(session_), (std::vector<int64_t>{0, 1, 2}));
  const float ten = 10;
  fine(tessera_write_state(session_, 0, &ten, sizeof ten));
  EXPECT_EQ(call(session_, 3, 7), 11); // of other sizes
  EXPECT_EQ(rows(session_), (std::vector<int64_t>{1, 2, 3}));
  fine(tessera_reset_states(session_));
  EXPECT_EQ(rows(session_), (std::vector<int64_t>{-1, 0, 1}));
  EXPECT_EQ(call(session_, 3), 0);
}

TEST_F(States, OfACloneAreItsOwn) {
  EXPECT_EQ(call(session_, 1), 0);
  tessera_session* clone = nullptr;
  fine(tessera_clone(session_, &clone));
  EXPECT_EQ(number(clone), -1);
  EXPECT_EQ(call(session_, 1), 1);
  EXPECT_EQ(call(clone, 1), 0);
  EXPECT_EQ(number(session_), 1);
  fine(tessera_reset_states(clone));
  EXPECT_EQ(number(session_), 1);
  EXPECT_EQ(number(clone), -1);
  tessera_close(clone);
}

TEST_F(States, StayAsTheyWereWhereACallFails) {
  EXPECT_EQ(call(session_, 1), 0);
  const auto before = rows(session_);
  EXPECT_EQ(call(session_, 99), -1); // an index that x does not have
  EXPECT_NE(error_.find("99"), std::string::npos) << error_;
  EXPECT_EQ(call(session_, 0, 1), -1); // a size out of range
  EXPECT_EQ(rows(session_), before);
  EXPECT_EQ(number(session_), 0);
  const int64_t size = 5, one = 1;
  const tessera_tensor in[] = {{"x", TESSERA_F32, 1, &size, nullptr}, {"k", TESSERA_I64, 1, &one, nullptr}};
  fine(tessera_warmup(session_, in, 2));
  fine(tessera_warmup_ranges(session_, "s=2..8..16", nullptr, 0));
  fine(tessera_trim(session_));
  EXPECT_EQ(number(session_), 0);
  EXPECT_EQ(call(session_, 2), 1);
}

TEST_F(States, OfEveryWayToCall) {
  const int64_t size = 3, one = 1;
  float x[3] = {}, y[3] = {}, z = 0;
  int64_t k = 1;
  const tessera_tensor in[] = {{"x", TESSERA_F32, 1, &size, x}, {"k", TESSERA_I64, 1, &one, &k}};
  const tessera_tensor out[] = {{nullptr, TESSERA_F32, 1, &size, y}, {nullptr, TESSERA_F32, 1, &one, &z}};
  const tessera_tensor* shown = nullptr;
  int32_t count = 0;
  fine(tessera_output_sizes(session_, in, 2, &shown, &count));
  EXPECT_EQ(count, 2);
  fine(tessera_run_fresh(session_, in, 2, &shown, &count));
  ASSERT_EQ(count, 2);
  EXPECT_EQ(static_cast<const float*>(shown[0].data)[0], 0);
  struct Memory {
    float *y, *z;
  } memory{y, &z};
  auto give = [](void* context, int32_t output, int32_t, int32_t, const int64_t*) -> void* {
    auto& m = *static_cast<Memory*>(context);
    return output == 0 ? m.y : m.z;
  };
  fine(tessera_call(session_, in, 2, give, &memory, nullptr));
  EXPECT_EQ(y[0], 1);
  fine(tessera_bind(session_, in, 2, out, 2));
  for (int i = 2; i < 5; ++i) {
    fine(tessera_run_bound(session_, nullptr));
    EXPECT_EQ(y[2], static_cast<float>(i));
  }
  tessera_item items[2] = {};
  for (int i = 0; i < 2; ++i) {
    items[i].struct_size = sizeof items[i];
    items[i].kind = TESSERA_TENSOR;
    items[i].tensor = in[i];
  }
  const tessera_item* yielded = nullptr;
  fine(tessera_run_items(session_, items, 2, &yielded, &count));
  ASSERT_EQ(count, 2);
  EXPECT_EQ(static_cast<const float*>(yielded[0].tensor.data)[0], 5);
}

TEST_F(States, RefusesWhatIsNoState) {
  float n = 0;
  says(tessera_read_state(session_, 2, &n, sizeof n), "the model has 2 states, and the index given is 2");
  says(tessera_read_state(session_, -1, &n, sizeof n), "-1");
  says(tessera_write_state(session_, 1, &n, sizeof n), "state 'rows' has 24 bytes, and the number given is 4");
  says(tessera_read_state(session_, 0, nullptr, sizeof n), "no memory");
  says(tessera_states(session_, nullptr, nullptr), "nowhere");
  says(tessera_reset_states(nullptr), "null");
  const int64_t one = 1;
  const tessera_tensor in[] = {{"n", TESSERA_F32, 0, nullptr, &n}};
  const tessera_tensor out[] = {{nullptr, TESSERA_F32, 1, &one, &n}, {nullptr, TESSERA_F32, 1, &one, &n}};
  says(tessera_run(session_, in, 1, out, 2), "no input 'n'");
}

TEST_F(States, AreInClassesAndCompiledFiles) {
  stable::Session session(program_, {.device = "cpu", .threads = 2});
  ASSERT_EQ(session.states().size(), 2u);
  EXPECT_EQ(session.states()[1].dims, std::vector<std::string>{"3"});
  EXPECT_EQ(call(session.get(), 1), 0);
  std::vector<float> n(1);
  session.read_state(0, std::span(n));
  EXPECT_EQ(n[0], 0);
  n[0] = 4;
  session.write_state(0, std::span<const float>(n));
  EXPECT_EQ(call(session.get(), 1), 5);
  session.reset_states();
  EXPECT_EQ(call(session.get(), 1), 0);

  auto made = Session::open_program(source_, api_test::options());
  ASSERT_TRUE(made.ok()) << made.error().str();
  const std::string file = (std::filesystem::path(folder().path()) / "states.tsr").string();
  ASSERT_TRUE((*made)->save(file, true).ok());
  stable::Session loaded(file, {.device = "cpu"});
  ASSERT_EQ(loaded.states().size(), 2u);
  EXPECT_EQ(loaded.inputs().size(), 2u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call(loaded.get(), i), static_cast<float>(i)) << error_;
  loaded.reset_states();
  EXPECT_EQ(number(loaded.get()), -1);
}

TEST_F(States, AreSharedByTheVariantsOfAnExecutor) {
  SessionOptions options = api_test::options();
  options.policy = VariantPolicy::Exact;
  auto session = Session::open_program(source_, options);
  ASSERT_TRUE(session.ok()) << session.error().str();
  float expected = 0;
  for (const int64_t size : {3, 5, 3, 8}) {
    auto out = (*session)->run({{"x", numbers({size})}, {"k", integers({1}, 2)}});
    ASSERT_TRUE(out.ok()) << out.error().str();
    ASSERT_EQ(out->size(), 2u);
    EXPECT_EQ((*out)[0].get_f64(0), numbers({size}).get_f64(0) + expected++);
  }
  EXPECT_GT((*session)->variants().size(), 2u);
  auto other = (*session)->new_executor();
  ASSERT_TRUE(other.ok());
  EXPECT_EQ((*other)->read_state(0)->get_f64(0), -1);
  EXPECT_EQ((*session)->read_state(0)->get_f64(0), 3);
  EXPECT_FALSE((*session)->read_state(9).ok());
  EXPECT_FALSE((*session)->write_state(0, numbers({1})).ok());
}

} // namespace
} // namespace tessera::api_test
