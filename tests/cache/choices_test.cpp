// Choices of libraries: found in memory, written in the background, merged with those of other processes.
#include "harness.h"
#include "runtime/cache/choices.h"

namespace tessera::cache_test {
namespace {

constexpr KeptChoices::Milliseconds kNever{int64_t{1} << 40};

class Choices : public testing::Test {
protected:
  // Those of a process, which writes at its end.
  [[nodiscard]] std::unique_ptr<KeptChoices> process(const std::string& creator = "library 1, driver 2",
                                                     const std::string& device = "sm_90") const {
    return std::make_unique<KeptChoices>(std::make_shared<Cache>(folder_.path(), true), creator, device, kNever);
  }
  Folder folder_;
};

TEST_F(Choices, CountForOneCreatorAndDevice) {
  auto first = process();
  EXPECT_FALSE(first->find("product 128x256"));
  first->put("product 128x256", std::string("\0bytes", 6));
  first->put("empty", "");
  EXPECT_EQ(first->find("product 128x256"), std::string("\0bytes", 6));
  first.reset();
  EXPECT_EQ(process()->find("product 128x256"), std::string("\0bytes", 6));
  EXPECT_EQ(process()->find("empty"), "");
  process()->put("product 128x256", "other");
  EXPECT_EQ(process()->find("product 128x256"), "other");
  EXPECT_EQ(process()->find("empty"), "");
  EXPECT_FALSE(process("library 1, driver 3")->find("product 128x256"));
  EXPECT_FALSE(process("library 1, driver 2", "sm_80")->find("product 128x256"));
}

TEST_F(Choices, ABurstIsOneWrite) {
  auto choices = process();
  for (int i = 0; i < 50; ++i) {
    choices->put("key " + std::to_string(i), std::string(72, 'x'));
    EXPECT_TRUE(choices->find("key " + std::to_string(i)));
  }
  EXPECT_EQ(choices->writes(), 0);
  EXPECT_TRUE(files(folder_.path()).empty());
  choices->flush();
  choices->flush();
  EXPECT_EQ(choices->writes(), 1);
  EXPECT_EQ(files(folder_.path()).size(), 1u);
  auto next = process();
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(next->find("key " + std::to_string(i)));
  next.reset();
  choices.reset();
  EXPECT_EQ(files(folder_.path()).size(), 1u) << "nothing new";
}

TEST_F(Choices, AreWrittenInTheBackground) {
  KeptChoices choices(std::make_shared<Cache>(folder_.path(), true), "library", "device", KeptChoices::Milliseconds(1));
  for (const char* key : {"a", "b"}) {
    const int64_t before = choices.writes();
    choices.put(key, "value");
    while (choices.writes() == before) std::this_thread::yield();
    EXPECT_EQ(process("library", "device")->find(key), "value");
  }
}

TEST_F(Choices, ThoseOfSeveralProcessesAreMerged) {
  auto a = process(), b = process();
  a->put("of a", "1");
  a->put("of both", "a's");
  b->put("of b", "2");
  b->put("of both", "b's");
  a->flush();
  b->flush();
  EXPECT_EQ(b->find("of a"), "1") << "seen when it was written";
  EXPECT_EQ(b->find("of both"), "b's") << "a process stays with what it knows";
  EXPECT_EQ(a->find("of both"), "a's");
  auto c = process();
  EXPECT_EQ(c->find("of a"), "1");
  EXPECT_EQ(c->find("of b"), "2");
  EXPECT_EQ(c->find("of both"), "b's") << "written last";
}

TEST_F(Choices, AreBounded) {
  auto choices = process();
  const auto key = [](size_t i) { return "key " + std::to_string(i); };
  for (size_t i = 0; i < 2 * KeptChoices::kMax; ++i) {
    choices->put(key(i), "value");
    ASSERT_TRUE(choices->find(key(0))) << "in use";
  }
  EXPECT_TRUE(choices->find(key(2 * KeptChoices::kMax - 1)));
  EXPECT_FALSE(choices->find(key(1)));
  choices.reset();
  auto next = process();
  size_t found = 0;
  for (size_t i = 0; i < 2 * KeptChoices::kMax; ++i) found += next->find(key(i)).has_value();
  EXPECT_LE(found, KeptChoices::kMax);
  EXPECT_GE(found, KeptChoices::kMax / 2);
  EXPECT_TRUE(next->find(key(0)));
}

TEST_F(Choices, ADamagedEntryIsReplaced) {
  process()->put("a", "1");
  write(files(folder_.path()).at(0), "damaged");
  auto next = process();
  EXPECT_FALSE(next->find("a"));
  next->put("b", "2");
  next.reset();
  EXPECT_TRUE(problems(folder_.path()).empty());
  EXPECT_EQ(process()->find("b"), "2");
}

TEST_F(Choices, MoveToAnotherFolder) {
  Folder other;
  KeptChoices(std::make_shared<Cache>(other.path(), true), "library", "device").put("there", "0");
  KeptChoices choices(nullptr, "library", "device", kNever);
  choices.put("a", "1");
  choices.flush();
  EXPECT_EQ(choices.writes(), 0) << "in memory";
  choices.keep_in(nullptr);
  choices.keep_in(std::make_shared<Cache>(folder_.path(), true));
  choices.put("b", "2");
  choices.keep_in(std::make_shared<Cache>(other.path(), true));
  EXPECT_EQ(choices.find("there"), "0");
  choices.flush();
  EXPECT_EQ(process("library", "device")->find("b"), "2");
  KeptChoices next(std::make_shared<Cache>(other.path(), true), "library", "device", kNever);
  for (const char* key : {"there", "a", "b"}) EXPECT_TRUE(next.find(key)) << key;
}

TEST_F(Choices, WorkWithoutTheFolder) {
  write(folder_.path() + "/file", "no folder");
  for (const auto& cache : {std::shared_ptr<Cache>(), std::make_shared<Cache>(folder_.path(), false),
                            std::make_shared<Cache>(folder_.path() + "/file", true)}) {
    KeptChoices choices(cache, "library", "device", kNever);
    choices.put("a", "b");
    choices.flush();
    EXPECT_EQ(choices.find("a"), "b");
  }
  EXPECT_TRUE(files(folder_.path()).empty());
}

} // namespace
} // namespace tessera::cache_test
