#include "child.h"
#include "base/stopwatch.h"
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char** environ;

namespace tessera::command {

std::string ChildEnd::str() const {
  if (timed_out) return "no end in time";
  return signal != 0 ? std::string("signal ") + ::strsignal(signal) : "exit code " + std::to_string(exit_code);
}

Result<ChildEnd> run_child(const std::vector<std::string>& command, const std::string& output,
                           std::chrono::seconds timeout) {
  std::vector<char*> argv;
  for (const auto& a : command) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, command[0].c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return Diagnostic(ErrorCode::Internal, "cannot start '" + command[0] + "': " + std::strerror(error));
  const Stopwatch watch;
  ChildEnd end;
  for (int status = 0;;) {
    const pid_t gone = ::waitpid(pid, &status, WNOHANG);
    if (gone == pid) {
      if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
      if (WIFSIGNALED(status) && !end.timed_out) end.signal = WTERMSIG(status);
      return end;
    }
    if (gone < 0 && errno != EINTR)
      return Diagnostic(ErrorCode::Internal, std::string("cannot wait for a process: ") + std::strerror(errno));
    if (!end.timed_out && watch.seconds() > static_cast<double>(timeout.count())) {
      end.timed_out = true;
      ::kill(-pid, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::string own_path() {
  char path[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : "tessera";
}

} // namespace tessera::command
