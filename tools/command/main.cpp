// tessera: run, inspect, explain, diff, compile, bench, tune, calibrate, test, debug, reduce, opt, ops, cache, triton, kernel. Each subcommand is a file of its name.
#include "base/environment.h"
#include "base/guarded.h"
#include "command.h"
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

using namespace tessera;
using namespace tessera::command;

static int run(int argc, char** argv) {
  CommandLine line("tessera",
                   "Compiles ONNX models and exported PyTorch programs into few fused kernels, runs them, and says "
                   "what fused and what did not.",
                   TESSERA_VERSION,
                   exit_codes_text(kExitCodes[kDiffers].meaning) +
                       "'tessera SUBCOMMAND --help' has the options and examples. "
                       "TESSERA_LOG=warnings,fusion,guards,recompiles,output_code,passes,\n"
                       "cache,memory,perf shows stages; TESSERA_DUMP_DIR=DIR keeps their texts.");
  add_run(line);
  add_inspect(line);
  add_explain(line);
  add_diff(line);
  add_compile(line);
  add_bench(line);
  add_tune(line);
  add_calibrate(line);
  add_test(line);
  add_debug(line);
  add_reduce(line);
  add_opt(line);
  add_ops(line);
  add_cache(line);
  add_triton(line);
  add_kernel(line);
  if (const Status set = check_environment(); !set.ok()) return fail(set.error());
  std::signal(SIGPIPE, SIG_DFL); // 'tessera explain | head' ends quietly
  return line.run(argc, argv, [](const tessera::Diagnostic& d) { return fail(d); });
}

int main(int argc, char** argv) {
  int code = info(ErrorCode::OutOfMemory).exit_code;
  auto ended = guarded("running the command", [&]() -> Status {
    code = run(argc, argv);
    // Now: whether it arrives is to be said, and what drivers do when a process ends must not lose it.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      return Diagnostic(ErrorCode::FileError, Location{.file = kStandardOutput},
                        std::string("cannot write: ") + std::strerror(errno))
          .note("direct it to a disk that has room");
    return {};
  });
  if (ended.ok()) return code;
  auto told = guarded("printing an error", [&]() -> Status {
    code = fail(ended.error());
    return {};
  });
  if (!told.ok()) std::fputs(kNoMemoryForError, stderr);
  return code;
}
