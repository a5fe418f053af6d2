// Contracts of kernels: launches that would leave their buffers are refused, in memory and in files whose plan was
// edited under a right hash (tests/fuzz/plan_fuzz.cpp edits many).
#include "build_executable.h"
#include "runtime/file_format.h"
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace tessera {
namespace {
using namespace test;
using Json = nlohmann::json;

// x [s, 4] -> t -> y, each twice its operand; t takes no memory over.
Builder two_kernels() {
  Builder b;
  b.exe->target = "cpu x86-64";
  b.exe->objects = {{'c'}};
  auto s = b.symbol("s");
  auto x = b.input("x", {s, 4}), t = b.buffer("t", {s, 4}), y = b.output("y", {s, 4});
  b.kernel("first", twice_plus, {x}, {t}, {SymExpr(0)}, s * 4);
  b.kernel("second", twice_plus, {t}, {y}, {SymExpr(0)}, s * 4);
  for (auto& step : b.exe->steps) {
    auto& k = std::get<KernelLaunch>(step);
    k.object = 0;
    k.facts = {{s, 1, 0, 1000}};
  }
  return b;
}

Diagnostic outcome(const std::shared_ptr<const Executable>& exe, int64_t rows = 3) {
  ExecutorOptions options;
  options.poison = true;
  auto executor = Executor::create({exe}, options);
  if (!executor.ok()) return executor.error();
  auto r = (*executor)->run({{"x", random_tensor({rows, 4}, 1)}});
  return r.ok() ? Diagnostic(ErrorCode::Usage, "it ran") : r.error();
}

// The outcome after `edit`, which sees the contracts that done() made.
Diagnostic after(const std::function<void(Executable&)>& edit, int64_t rows = 3) {
  auto b = two_kernels();
  (void)b.done();
  edit(*b.exe);
  return outcome(b.exe, rows);
}
KernelLaunch& kernel(Executable& e, size_t step) { return std::get<KernelLaunch>(e.steps[step]); }

TEST(Contract, LaunchesThatWouldLeaveTheirBuffersAreRefused) {
  EXPECT_EQ(after([](Executable&) {}).message, "it ran");
  auto beyond = after([](Executable& e) { kernel(e, 0).access[1].elements += 1; });
  EXPECT_EQ(beyond.code, ErrorCode::Internal);
  EXPECT_NE(beyond.message.find("'first' accesses 13 elements of 't', which has 48 bytes"), std::string::npos)
      << beyond.message;
  EXPECT_EQ(after([](Executable& e) { e.buffers[1].shape[1] = 3; }).code, ErrorCode::Internal);
  EXPECT_EQ(after([](Executable& e) { kernel(e, 0).access[0].elements = SymExpr(-1); }).code, ErrorCode::Internal);
  EXPECT_EQ(after([](Executable& e) { kernel(e, 0).access[0].elements = SymExpr(int64_t{1} << 62); }).code,
            ErrorCode::Internal);
  auto facts = after([](Executable&) {}, 1001);
  EXPECT_EQ(facts.code, ErrorCode::Internal);
  EXPECT_NE(facts.message.find("s is 1001, expected from 0 to 1000"), std::string::npos) << facts.message;
  // Nothing is launched that writes nothing: facts are about sizes at which it runs.
  EXPECT_EQ(after(
                [](Executable& e) {
                  kernel(e, 0).facts = kernel(e, 1).facts = {{SymExpr(0), 1, 1}};
                },
                0)
                .message,
            "it ran");
}

TEST(Contract, BuffersAreThoseThatTheCodeWasMadeFor) {
  auto type = after([](Executable& e) { kernel(e, 0).access[0].dtype = DType::F16; });
  EXPECT_EQ(type.code, ErrorCode::Internal);
  EXPECT_NE(type.message.find("its code needs f16 elements where 'x' has f32"), std::string::npos) << type.message;
  EXPECT_EQ(after([](Executable& e) { kernel(e, 0).access.pop_back(); }).code, ErrorCode::Internal);
  auto twice = after([](Executable& e) { kernel(e, 1).buffers = {2, 2}; });
  EXPECT_NE(twice.message.find("needs two buffers"), std::string::npos) << twice.message;
}

TEST(Contract, ValuesAreReadAfterTheyWereWritten) {
  auto early = after([](Executable& e) { std::swap(e.steps[0], e.steps[1]); });
  EXPECT_NE(early.message.find("reads 't' before it is written"), std::string::npos) << early.message;
  auto never = after([](Executable& e) { e.steps.pop_back(), e.buffers[1].last_step = 0; });
  EXPECT_NE(never.message.find("no step writes the output 'y'"), std::string::npos) << never.message;
}

// Memory is taken over only where the code reads before it writes: without that, t and u lie apart.
TEST(Contract, MemoryIsTakenOverWhereTheCodeAllowsIt) {
  auto arena = [](bool allowed) {
    Builder b;
    auto s = b.symbol("s");
    auto x = b.input("x", {s}), t = b.buffer("t", {s}), u = b.buffer("u", {s}), y = b.output("y", {s});
    b.exe->buffers[static_cast<size_t>(u)].in_place_of = t;
    b.kernel("a", twice_plus, {x}, {t}, {SymExpr(0)}, s);
    b.kernel("b", twice_plus, {t}, {u}, {SymExpr(0)}, s);
    b.kernel("c", twice_plus, {u}, {y}, {SymExpr(0)}, s);
    (void)b.done();
    if (!allowed) kernel(*b.exe, 1).access[1].may_overwrite.clear();
    auto e = Executor::create({b.exe}).value();
    EXPECT_TRUE(e->run({{"x", random_tensor({1000}, 1)}}).ok());
    return e->arena_bytes();
  };
  EXPECT_LT(arena(true), 8000);
  EXPECT_GE(arena(false), 8000);
}

void writes_behind(void* const* b, const int64_t*, int64_t, int64_t end, void*, IndexReport*) {
  for (int64_t i = 0; i <= end; ++i) static_cast<float*>(b[1])[i] = 1;
}
TEST(Contract, PoisonNoticesWritesBehindABuffer) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer ends the process at the access";
#endif
  auto told = after([](Executable& e) { kernel(e, 0).function = writes_behind; });
  EXPECT_EQ(told.code, ErrorCode::Internal);
  EXPECT_NE(told.message.find("'first' wrote outside of its buffers"), std::string::npos) << told.message;
}

// ---- the same from files
class EditedPlan : public ::testing::Test {
protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() / ("tessera_contract_" + std::to_string(::getpid()))).string();
    auto exe = two_kernels().done();
    ASSERT_TRUE(save_executable(*exe, path_, true).ok());
    std::ifstream in(path_, std::ios::binary);
    good_.assign(std::istreambuf_iterator<char>(in), {});
  }
  void TearDown() override { std::filesystem::remove(path_); }

  // Loads and runs the file with an edited plan, and the hash that fits.
  Diagnostic with(const std::function<void(Json&)>& edit) {
    file::Header h;
    std::memcpy(&h, good_.data(), sizeof h);
    const char* body = good_.data() + sizeof h;
    Json plan = Json::parse(body, body + h.plan_bytes);
    edit(plan["variants"][0]);
    return with_text(plan.dump());
  }
  Diagnostic with_text(const std::string& plan) {
    file::Header h;
    std::memcpy(&h, good_.data(), sizeof h);
    std::string body = plan + good_.substr(sizeof h + h.plan_bytes, h.code_bytes);
    body.resize(file::aligned(sizeof h + body.size()) - sizeof h);
    body += "c";
    body.resize(file::aligned(sizeof h + body.size()) - sizeof h);
    h.plan_bytes = plan.size();
    h.hashed_bytes = body.size();
    h.file_bytes = sizeof h + body.size();
    h.hash = file::contents_hash(h, body);
    std::ofstream out(path_, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&h), sizeof h)
        .write(body.data(), static_cast<std::streamsize>(body.size()));
    out.close();
    auto link = [](const Executable&) -> Result<LinkedCode> {
      return LinkedCode{nullptr, [](const std::string&) -> HostKernelFn { return twice_plus; }};
    };
    auto loaded = load_executable(path_, link);
    return loaded.ok() ? outcome(*loaded) : loaded.error();
  }
  void refused(const std::function<void(Json&)>& edit, const std::string& why) {
    auto told = with(edit);
    EXPECT_EQ(told.code, ErrorCode::CorruptFile) << told.str();
    EXPECT_NE(told.message.find(why), std::string::npos) << told.str();
    EXPECT_EQ(told.str().find("json"), std::string::npos) << told.str();
  }
  std::string path_, good_;
};

TEST_F(EditedPlan, EveryNumberIsCheckedWhereItStands) {
  EXPECT_EQ(with([](Json&) {}).message, "it ran");
  refused([](Json& j) { j["buffers"][1]["kind"] = 4; },
          "plan.variants[0].buffers[1].kind is 4, expected a whole number from 0 to 3");
  refused([](Json& j) { j["buffers"][1]["kind"] = int64_t{1} << 32; }, "plan.variants[0].buffers[1].kind");
  refused([](Json& j) { j["buffers"][1]["last"] = INT64_MAX; }, "plan.variants[0].buffers[1].last");
  refused([](Json& j) { j["buffers"][1]["dtype"] = "f99"; },
          "plan.variants[0].buffers[1].dtype is \"f99\", expected an element type");
  refused([](Json& j) { j["steps"][0]["kernel"]["buffers"][0] = 3; },
          "plan.variants[0].steps[0].kernel.buffers[0] is 3");
  refused([](Json& j) { j["steps"][0]["kernel"]["buffers"] = {0}; }, "expected 2 buffers");
  refused([](Json& j) { j["steps"][0]["kernel"]["contract"] = 9; }, "plan.variants[0].steps[0].kernel.contract");
  refused([](Json& j) { j["steps"][0]["kernel"]["arguments"] = Json::array(); }, "expected 1 sizes");
  refused([](Json& j) { j["steps"][0]["kernel"]["arguments"][0] = "nobody"; }, "there is no symbol 'nobody'");
  refused([](Json& j) { j["steps"][0]["kernel"].erase("name"); }, "plan.variants[0].steps[0].kernel has no 'name'");
  refused([](Json& j) { j["steps"][0] = 7; }, "plan.variants[0].steps[0] is 7, expected an object");
  refused([](Json& j) { j["symbols"][0][1] = 0.5; }, "plan.variants[0].symbols[0][1] is 0.5");
  refused([](Json& j) { j["inputs"][0]["buffer"] = 2; }, "another kind");
  auto text = with_text("[1, 2");
  EXPECT_EQ(text.code, ErrorCode::CorruptFile);
  EXPECT_EQ(text.str().find("json"), std::string::npos) << text.str();
}

TEST_F(EditedPlan, SizesThatLeaveTheBuffersAreRefusedBeforeTheLaunch) {
  for (const char* size : {"s + 1", "s*1000000", "1099511627776", "-1", "floordiv(s, 0)"}) {
    auto told = with([&](Json& j) { j["steps"][0]["kernel"]["arguments"][0] = size; });
    EXPECT_EQ(told.code, ErrorCode::Internal) << size << ": " << told.str();
  }
  EXPECT_EQ(with([](Json& j) { j["buffers"][1]["shape"][1] = "1"; }).code, ErrorCode::Internal);
  EXPECT_EQ(with([](Json& j) { j["buffers"][1]["shape"][0] = "1000000000000"; }).code, ErrorCode::OutOfMemory);
}

} // namespace
} // namespace tessera
