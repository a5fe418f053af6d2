// tessera: run, explain, compile, bench, tune, test, opt. Each subcommand is a file of its name.
#include "command.h"
#include <csignal>

using namespace tessera::command;

int main(int argc, char** argv) {
  CLI::App app("Compiles ONNX models into few fused kernels, runs them, and says what fused and what did not.",
               "tessera");
  app.footer("Exit codes: 0 done; 1 results differ; 2 wrong use; 3 not supported; 4 bad model or input; 5 failed while "
             "running.\n"
             "'tessera SUBCOMMAND --help' has the options and examples. "
             "TESSERA_LOG=fusion,guards,recompiles,output_code,passes,\n"
             "cache,memory,perf shows stages; TESSERA_DUMP_DIR=DIR keeps their texts.");
  app.set_version_flag("--version", TESSERA_VERSION);
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "help of all subcommands");
  Action action;
  add_run(app, action);
  add_explain(app, action);
  add_compile(app, action);
  add_bench(app, action);
  add_tune(app, action);
  add_test(app, action);
  add_opt(app, action);
  std::signal(SIGPIPE, SIG_DFL); // 'tessera explain | head' ends quietly
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    int code = app.exit(e); // prints help or the error
    return code == 0 ? kDone : kUsage;
  }
  return action();
}
