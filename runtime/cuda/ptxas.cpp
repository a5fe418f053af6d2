#include "runtime/cuda/ptxas.h"
#include "base/file.h"
#include "base/temporary_folder.h"
#include "runtime/cuda/assembler_log.h"
#include "runtime/cuda/cubin_resources.h"
#include "runtime/cuda/dynamic_library.h"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace tessera::cuda {
namespace {

bool is_program(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

struct Finished {
  int exit_code = -1; // 128 + signal when it was killed
  std::string output; // both streams
};

// Runs a program without a shell; its output is read as it comes.
Result<Finished> run(const std::vector<std::string>& command) {
  auto failed = [&](const char* what, int error) {
    return Diagnostic(ErrorCode::CodegenError,
                      std::string(what) + " '" + command[0] + "' failed: " + std::strerror(error));
  };
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return failed("starting", errno);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  std::vector<char*> argv;
  for (const auto& c : command) argv.push_back(const_cast<char*>(c.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  int error = ::posix_spawn(&child, command[0].c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    return failed("starting", error);
  }
  Finished out;
  char block[4096];
  for (ssize_t n; (n = ::read(ends[0], block, sizeof block)) != 0;) {
    if (n > 0)
      out.output.append(block, static_cast<size_t>(n));
    else if (errno != EINTR)
      break;
  }
  ::close(ends[0]);
  int status = 0;
  pid_t waited;
  while ((waited = ::waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  if (waited < 0) return failed("waiting for", errno);
  out.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return out;
}

class Ptxas final : public Assembler {
public:
  Ptxas(std::string program, std::string version) : program_(std::move(program)), version_(std::move(version)) {}
  Kind kind() const override { return Kind::Ptxas; }
  std::string version() const override { return version_; }

  Result<Cubin> assemble(const std::string& ptx, const std::string& arch) const override {
    TESSERA_TRY(check_arch(arch));
    TESSERA_ASSIGN(const TemporaryFolder folder, TemporaryFolder::create("tessera-ptx"));
    const std::string input = folder.path() + "/kernel.ptx", output = folder.path() + "/kernel.cubin";
    TESSERA_TRY(write_file(input, {ptx}));
    TESSERA_ASSIGN(auto done, run({program_, "-v", "-O3", "-arch=" + arch, "-o", output, input}));
    // The temporary name would differ each time.
    for (size_t at; (at = done.output.find(input)) != std::string::npos;)
      done.output.replace(at, input.size(), "kernel");
    if (done.exit_code != 0 || !refused_by_log(done.output).empty()) {
      auto d = assembling_failed(version_, arch, done.output, ptx);
      if (done.exit_code != 0) d.note("exit status " + std::to_string(done.exit_code));
      return d;
    }
    Cubin out;
    auto cubin = read_file(output);
    if (cubin.ok()) out.bytes.assign(cubin->begin(), cubin->end());
    if (out.bytes.empty())
      return Diagnostic(ErrorCode::CodegenError, version_ + " wrote no cubin for " + arch).note(done.output);
    out.log = std::move(done.output);
    read_resources(out.log, out);
    read_missing_resources(ptx, out);
    return out;
  }

private:
  std::string program_, version_;
};

// The places that ptxas may be in, in order.
std::vector<std::string> candidates() {
  std::vector<std::string> out;
  for (const auto& root : toolkit_folders()) {
    out.push_back(root + "/bin/ptxas");
    out.push_back(root + "/ptxas");
  }
  std::string path = std::getenv("PATH") ? std::getenv("PATH") : "";
  for (size_t at = 0; at < path.size();) {
    size_t end = std::min(path.find(':', at), path.size());
    if (end > at) out.push_back(path.substr(at, end - at) + "/ptxas");
    at = end + 1;
  }
  for (const auto& folder : library_folders({"cu13", "cuda_nvcc"})) out.push_back(folder + "/../bin/ptxas");
  return out;
}

} // namespace

Result<std::shared_ptr<Assembler>> open_ptxas(const std::string& program) {
  std::string found = program;
  if (found.empty()) {
    for (const auto& c : candidates())
      if (is_program(c)) {
        found = c;
        break;
      }
    if (found.empty())
      return Diagnostic(ErrorCode::UnsupportedFeature, "ptxas was not found")
          .note("without it, and without nvJitLink: the driver assembles kernels each time they are loaded")
          .note("looked in bin of the folders in TESSERA_CUDA_PATH, of /usr/local/cuda and of pip's packages, and on "
                "PATH");
  } else if (!is_program(found)) {
    return Diagnostic(ErrorCode::UnsupportedFeature, "'" + found + "' is no program: " + std::strerror(errno));
  }
  TESSERA_ASSIGN(auto told, run({found, "--version"}));
  // "Cuda compilation tools, release 13.0, V13.0.88"
  size_t at = told.output.find(", V");
  if (told.exit_code != 0 || at == std::string::npos)
    return Diagnostic(ErrorCode::UnsupportedFeature, "'" + found + "' does not report its version as ptxas does")
        .note(told.output.substr(0, 200));
  size_t end = told.output.find_first_not_of("0123456789.", at + 3);
  return std::shared_ptr<Assembler>(
      std::make_shared<Ptxas>(found, "ptxas " + told.output.substr(at + 3, end - at - 3)));
}

} // namespace tessera::cuda
