// Tasks in worker processes: crashes and hangs are results, and nothing else is lost by them.
#include "tools/command/workers.h"
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <thread>
#include <unistd.h>

namespace tessera::command {
namespace {

using How = TaskEnd::How;

std::map<size_t, TaskEnd> run_all(WorkerOptions o) {
  std::map<size_t, TaskEnd> ends;
  auto trusted = o.done;
  o.done = [&](size_t task, const TaskEnd& end) {
    EXPECT_TRUE(ends.emplace(task, end).second) << "task " << task << " ended twice";
    return !trusted || trusted(task, end);
  };
  EXPECT_TRUE(run_in_workers(o).ok());
  EXPECT_EQ(ends.size(), o.tasks);
  return ends;
}

TEST(Workers, EachTaskIsDoneOnce) {
  WorkerOptions o;
  o.tasks = 50;
  o.jobs = 3;
  o.work = [](size_t task) { return "answer\n" + std::string(task * 1000, 'x'); }; // lines become one
  auto ends = run_all(o);
  for (const auto& [task, end] : ends) {
    EXPECT_EQ(end.how, How::Answered);
    EXPECT_EQ(end.text, "answer " + std::string(task * 1000, 'x'));
  }
}

TEST(Workers, NoTasks) { EXPECT_TRUE(run_all({}).empty()); }

TEST(Workers, ACrashIsOneTasksResult) {
  WorkerOptions o;
  o.tasks = 9;
  o.jobs = 2;
  o.work = [](size_t task) -> std::string {
    (void)!::write(STDERR_FILENO, "something is off\nand more\n", 26);
    if (task == 4) ::abort();
    if (task == 5) ::_exit(3);
    return "fine";
  };
  auto ends = run_all(o);
  for (const auto& [task, end] : ends)
    EXPECT_EQ(end.how, task == 4 || task == 5 ? How::Crashed : How::Answered) << task;
  EXPECT_NE(ends[4].text.find("Abort"), std::string::npos) << ends[4].text;
  EXPECT_EQ(ends[5].text, "ended early: something is off");
  EXPECT_EQ(ends[8].text, "fine");
}

TEST(Workers, AHangIsOneTasksResult) {
  WorkerOptions o;
  o.tasks = 4;
  o.jobs = 2;
  o.timeout = std::chrono::seconds(5);
  o.work = [](size_t task) -> std::string {
    if (task == 1) std::this_thread::sleep_for(std::chrono::minutes(5));
    return "fine";
  };
  auto ends = run_all(o);
  for (const auto& [task, end] : ends) EXPECT_EQ(end.how, task == 1 ? How::TimedOut : How::Answered) << task;
}

// A task may crash by what earlier tasks did to their process, so it is done again, alone.
TEST(Workers, ACrashAfterOthersIsTriedAlone) {
  WorkerOptions o;
  o.tasks = 3;
  o.work = [done = 0](size_t) mutable -> std::string {
    if (++done == 2) ::abort();
    return std::to_string(done);
  };
  for (const auto& [task, end] : run_all(o)) {
    EXPECT_EQ(end.how, How::Answered) << task << ": " << end.text;
    EXPECT_EQ(end.text, "1") << task;
  }
}

TEST(Workers, AWorkerInDoubtDoesNoOtherTask) {
  WorkerOptions o;
  o.tasks = 6;
  o.work = [](size_t) { return std::to_string(::getpid()); };
  o.done = [](size_t task, const TaskEnd&) { return task != 2; };
  auto ends = run_all(o);
  EXPECT_EQ(ends[0].text, ends[2].text);
  EXPECT_NE(ends[2].text, ends[3].text);
  EXPECT_EQ(ends[3].text, ends[5].text);
}

} // namespace
} // namespace tessera::command
