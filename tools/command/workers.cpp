#include "workers.h"
#include "base/stopwatch.h"
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace tessera::command {

namespace {

constexpr char kAnswer = '\x01'; // begins an answer: the rest of its line; all else is what the task has printed

struct Worker {
  pid_t pid = -1;
  int tasks = -1, answers = -1; // pipes
  size_t task = 0, before = 0;  // the current one, how many came before it
  std::string text;             // written since it began
  Stopwatch watch;              // since it was started
};

bool write_all(int pipe, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    ssize_t n = ::write(pipe, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

[[noreturn]] void serve(int tasks, int answers, const WorkerOptions& o) {
  ::dup2(answers, STDERR_FILENO); // reports of failed checks belong to the result, not to the terminal
  size_t task = 0;
  while (::read(tasks, &task, sizeof task) == static_cast<ssize_t>(sizeof task)) {
    std::string answer = o.work(task);
    std::replace(answer.begin(), answer.end(), '\n', ' ');
    if (!write_all(answers, kAnswer + answer + "\n")) ::_exit(1);
  }
  ::_exit(0);
}

Diagnostic failed(const char* what) {
  return Diagnostic(ErrorCode::Internal, std::string("cannot make ") + what + ": " + std::strerror(errno));
}

Result<Worker> start(const WorkerOptions& o, const std::vector<Worker>& others) {
  int tasks[2], answers[2];
  if (::pipe2(tasks, O_CLOEXEC) != 0) return failed("a pipe");
  if (::pipe2(answers, O_CLOEXEC) != 0) {
    Diagnostic d = failed("a pipe");
    for (int end : tasks) ::close(end);
    return d;
  }
  std::fflush(nullptr);
  pid_t pid = ::fork();
  if (pid == 0) {
    for (const Worker& w : others) { // or the others would never reach the end of their tasks
      ::close(w.tasks);
      ::close(w.answers);
    }
    ::close(tasks[1]);
    ::close(answers[0]);
    serve(tasks[0], answers[1], o);
  }
  Diagnostic d = failed("a process");
  ::close(tasks[0]);
  ::close(answers[1]);
  if (pid < 0) {
    ::close(tasks[1]);
    ::close(answers[0]);
    return d;
  }
  Worker w;
  w.pid = pid;
  w.tasks = tasks[1];
  w.answers = answers[0];
  return w;
}

// Ends a worker; returns how it ended.
int stop(Worker& w, bool kill) {
  if (kill) ::kill(w.pid, SIGKILL);
  ::close(w.tasks);
  ::close(w.answers);
  int status = 0;
  while (::waitpid(w.pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Reads what is there; false when the worker has closed its end.
bool drain(Worker& w) {
  char buffer[4096];
  ssize_t n = ::read(w.answers, buffer, sizeof buffer);
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) return false;
  if (w.text.size() < size_t{1} << 20 || std::memchr(buffer, kAnswer, static_cast<size_t>(n)))
    w.text.append(buffer, static_cast<size_t>(n));
  return true;
}

// The answer, once all of it is there.
std::optional<std::string> answer(const Worker& w) {
  auto at = w.text.rfind(kAnswer);
  if (at == std::string::npos || w.text.back() != '\n') return std::nullopt;
  return w.text.substr(at + 1, w.text.size() - at - 2);
}

class Workers {
public:
  explicit Workers(const WorkerOptions& o) : o_(o) {
    for (size_t i = 0; i < o.tasks; ++i) waiting_.push_back(i);
  }
  ~Workers() {
    for (Worker& w : idle_) stop(w, false);
    for (Worker& w : busy_) stop(w, true);
  }
  Status run() {
    while (!waiting_.empty() || !alone_.empty() || !busy_.empty()) {
      while (busy_.size() < o_.jobs && (!waiting_.empty() || !alone_.empty())) TESSERA_TRY(begin());
      std::vector<pollfd> polls;
      for (const Worker& w : busy_) polls.push_back({w.answers, POLLIN, 0});
      ::poll(polls.data(), polls.size(), 200);
      for (size_t i = busy_.size(); i-- > 0;) {
        bool open = (polls[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0 || drain(busy_[i]);
        look(i, open);
      }
    }
    return {};
  }

private:
  Status begin() {
    bool alone = waiting_.empty();
    auto& from = alone ? alone_ : waiting_;
    if (alone || idle_.empty()) {
      std::vector<Worker> others = busy_;
      others.insert(others.end(), idle_.begin(), idle_.end());
      TESSERA_ASSIGN(Worker w, start(o_, others));
      busy_.push_back(std::move(w));
    } else {
      busy_.push_back(std::move(idle_.back()));
      idle_.pop_back();
    }
    Worker& w = busy_.back();
    w.task = from.front();
    from.pop_front();
    w.text.clear();
    w.watch = {};
    // A worker that has gone meanwhile is seen by its answers' end.
    (void)write_all(w.tasks, std::string(reinterpret_cast<const char*>(&w.task), sizeof w.task));
    return {};
  }

  void look(size_t i, bool open) {
    Worker& w = busy_[i];
    TaskEnd end;
    end.ms = w.watch.ms();
    bool late = w.watch.seconds() > static_cast<double>(o_.timeout.count());
    auto text = answer(w);
    if (!text && open && !late) return;
    Worker gone = std::move(w);
    busy_.erase(busy_.begin() + static_cast<std::ptrdiff_t>(i));
    if (text) {
      end.text = std::move(*text);
      bool trusted = o_.done(gone.task, end);
      ++gone.before;
      if (trusted && open)
        idle_.push_back(std::move(gone));
      else
        stop(gone, !open);
      return;
    }
    int status = stop(gone, open);
    if (gone.before > 0) {
      alone_.push_back(gone.task);
      return;
    }
    end.how = open ? TaskEnd::How::TimedOut : TaskEnd::How::Crashed;
    if (open)
      end.text = "no result in time";
    else {
      end.text = WIFSIGNALED(status) ? std::string("signal ") + ::strsignal(WTERMSIG(status)) : "ended early";
      if (!gone.text.empty()) end.text += ": " + gone.text.substr(0, gone.text.find('\n'));
    }
    (void)o_.done(gone.task, end);
  }

  const WorkerOptions& o_;
  std::deque<size_t> waiting_, alone_; // those to be done alone come last
  std::vector<Worker> idle_, busy_;
};

} // namespace

Status run_in_workers(const WorkerOptions& options) {
  auto old = ::signal(SIGPIPE, SIG_IGN); // of a worker that has gone
  Status status = Workers(options).run();
  ::signal(SIGPIPE, old);
  return status;
}

} // namespace tessera::command
