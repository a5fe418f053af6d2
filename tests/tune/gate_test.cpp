// When something may be measured during calls, with an invented clock.
#include "measure/tune/background.h"
#include <algorithm>
#include <gtest/gtest.h>

namespace tessera {
namespace {

class FakeClock final : public TuningClock {
public:
  double time = 0;
  bool stopped = false;
  std::function<void()> at_rest; // in the middle of each sleep
  double slept = 0;
  int rests = 0;
  double now() override { return time; }
  bool rest(double seconds) override {
    ++rests;
    slept += seconds;
    time += std::max(seconds / 2, 1e-9);
    if (seconds > 0 && at_rest) at_rest();
    time += std::max(seconds / 2, 1e-9);
    return !stopped;
  }
  void stop() override { stopped = true; }
};

TEST(TuningGate, OpensAtOnceWhereNobodyCalls) {
  auto clock = std::make_shared<FakeClock>();
  TuningGate gate(clock, 0.5, 1);
  EXPECT_TRUE(gate.wait());
  EXPECT_EQ(clock->slept, 0);
}

TEST(TuningGate, KeepsItsShareOfTheTime) {
  auto clock = std::make_shared<FakeClock>();
  TuningGate gate(clock, 0.05, 0.002);
  double measured = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(gate.wait());
    if (i > 0) {
      EXPECT_LE(measured / clock->time, 0.05 * 1.001) << i;
    }
    const double took = 0.001 * (1 + i % 3);
    clock->time += took;
    measured += took;
    EXPECT_TRUE(gate.undisturbed());
  }
  EXPECT_NEAR(measured / clock->time, 0.05, 0.002);
}

TEST(TuningGate, StaysClosedWhileACallIsUnderWayAndShortlyAfter) {
  auto clock = std::make_shared<FakeClock>();
  TuningGate gate(clock, 1, 0.5);
  gate.enter();
  double ended = 0;
  clock->at_rest = [&] {
    if (clock->time < 10 || ended > 0) return;
    gate.leave();
    ended = clock->time;
  };
  ASSERT_TRUE(gate.wait());
  EXPECT_GE(clock->time, ended + 0.5);
  EXPECT_GE(ended, 10);
  EXPECT_LT(clock->rests, 100) << "it sleeps";

  // Calls that follow each other closely leave no gap.
  int calls = 0;
  clock->at_rest = [&] {
    if (++calls > 20) return;
    gate.enter();
    gate.leave();
  };
  gate.enter();
  gate.leave();
  ASSERT_TRUE(gate.wait());
  EXPECT_GT(calls, 20);
}

TEST(TuningGate, TellsOfCallsThatCameMeanwhile) {
  auto clock = std::make_shared<FakeClock>();
  TuningGate gate(clock, 1, 0.1);
  ASSERT_TRUE(gate.wait());
  gate.enter();
  EXPECT_FALSE(gate.undisturbed());
  gate.leave();
  ASSERT_TRUE(gate.wait());
  EXPECT_TRUE(gate.undisturbed());
  ASSERT_TRUE(gate.wait());
  gate.enter();
  gate.leave();
  EXPECT_FALSE(gate.undisturbed());
}

TEST(TuningGate, EndsWhenItIsStopped) {
  auto clock = std::make_shared<FakeClock>();
  TuningGate gate(clock, 1, 0.1);
  gate.enter();
  clock->at_rest = [&] {
    if (clock->time > 3) clock->stop();
  };
  EXPECT_FALSE(gate.wait());
  gate.leave();
  EXPECT_FALSE(gate.wait());
}

TEST(TuningGate, TheMachinesClockStopsAtOnce) {
  auto clock = make_tuning_clock();
  std::thread other([&] { clock->stop(); });
  EXPECT_FALSE(clock->rest(1000));
  other.join();
  EXPECT_FALSE(clock->rest(1000));
}

} // namespace
} // namespace tessera
