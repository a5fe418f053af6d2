// Long operation: threads call four models with random sizes through the C++ and the C interface, while sessions are
// opened and closed. Every result is compared with the reference's, memory must not grow once every case was run, and
// nothing may be held at the end.
//
//   soak [--seconds N | --minutes N] [--threads N] [--seed N] [--cases N] [--pause-us N] [--no-reopen] [--faults] [--compiled]
//        [--device NAME]
//
// --device: where the models run; cpu unless given.
// --faults: faults are injected meanwhile (faults.h); a call is right or says that memory is exhausted.
// --no-reopen: no sessions are opened and closed during the calls.
// --compiled: the models are compiled files that another process wrote, so that nothing is compiled here.
// --fill FOLDER: opens the models with that cache, calls each, and ends; for the faults.
// --write FOLDER: writes compiled files of the models, and ends.
#include "api/device.h"
#include "base/temporary_folder.h"
#include "faults.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera::soak {
namespace {

struct Arguments {
  double seconds = 20;
  int threads = 16, cases = 60;
  uint64_t seed = 1;
  int64_t pause_us = 0;
  bool faults = false, compiled = false, reopen = true;
  std::string fill, write, device = "cpu";
};

bool parse(int argc, char** argv, Arguments& a) {
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--no-reopen") {
      a.reopen = false;
      continue;
    }
    if (option == "--faults" || option == "--compiled") {
      (option == "--faults" ? a.faults : a.compiled) = true;
      continue;
    }
    if (++i == argc) return false;
    const char* value = argv[i];
    if (option == "--seconds")
      a.seconds = std::atof(value);
    else if (option == "--minutes")
      a.seconds = 60 * std::atof(value);
    else if (option == "--threads")
      a.threads = std::atoi(value);
    else if (option == "--cases")
      a.cases = std::atoi(value);
    else if (option == "--seed")
      a.seed = std::strtoull(value, nullptr, 10);
    else if (option == "--pause-us")
      a.pause_us = std::atoll(value);
    else if (option == "--device")
      a.device = value;
    else if (option == "--fill")
      a.fill = value;
    else if (option == "--write")
      a.write = value;
    else
      return false;
  }
  return a.threads > 0 && a.cases > 0 && a.seconds > 0;
}

int fail(const Diagnostic& d) {
  std::fprintf(stderr, "%s\n", d.str().c_str());
  return 1;
}

SessionOptions session_options(const std::string& cache, const DeviceChoice& device) {
  SessionOptions o;
  device.apply(o.compile);
  device.apply(o.executor);
  o.compile.cache_dir = cache;
  o.compile.threads = 2;
  o.tune_share = 0;
  return o;
}

// Opens each model and calls it, or saves it.
int open_each(const std::vector<Model>& models, const SessionOptions& options, const std::string& save_to) {
  for (const Model& m : models) {
    auto session = Session::open(m.path, options);
    if (!session.ok()) return fail(session.error());
    if (!save_to.empty()) {
      if (auto saved = (*session)->save(save_to + "/" + m.name + ".tsr", true); !saved.ok()) return fail(saved.error());
      continue;
    }
    for (size_t i = 0; i < 3 && i < m.cases.size(); ++i) {
      auto outputs = (*session)->run(m.cases[i].inputs);
      if (!outputs.ok()) return fail(outputs.error());
      if (const std::string text = difference(m, m.cases[i], *outputs); !text.empty()) {
        std::fprintf(stderr, "%s: %s\n", m.name.c_str(), text.c_str());
        return 1;
      }
    }
  }
  return 0;
}

// The paths become those of compiled files, which a process of its own writes.
bool compile_elsewhere(std::vector<Model>& models, const Arguments& a, const std::string& program,
                       const std::string& folder) {
  const std::string arguments[] = {program, "--cases", "1", "--device", a.device, "--write", folder};
  std::vector<char*> pointers;
  for (const auto& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  // Reports of the thread sanitizer about a process that compiles do not count.
  std::vector<char*> environment;
  for (char** e = environ; *e; ++e)
    if (std::strncmp(*e, "TSAN_OPTIONS=", 13) != 0) environment.push_back(*e);
  char quiet[] = "TSAN_OPTIONS=report_bugs=0";
  environment.push_back(quiet);
  environment.push_back(nullptr);
  pid_t pid = -1;
  int status = -1;
  if (::posix_spawn(&pid, program.c_str(), nullptr, nullptr, pointers.data(), environment.data()) != 0) return false;
  ::waitpid(pid, &status, 0);
  for (Model& m : models) m.path = folder + "/" + m.name + ".tsr";
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Nothing where an injected fault is in the way.
std::optional<double> resident_mb() {
  try {
    int64_t mapped = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> mapped >> resident;
    if (resident > 0) return static_cast<double>(resident * ::getpagesize()) / 1e6;
  } catch (const std::bad_alloc&) {
  }
  return std::nullopt;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true; // their own memory grows
#else
constexpr bool kSanitized = false;
#endif

// Memory after a third of the time, when every case has been run, and at the end. Allocators move it a little, and
// expressions of sizes live as long as the process (symbols/expr.cpp), those of sessions that are opened meanwhile, too.
void expect_flat(const std::vector<double>& samples, int64_t opened, Findings& findings) {
  constexpr double kShare = 0.05, kMegabytes = 16, kEachOpened = 0.2;
  const size_t n = samples.size();
  if (n < 12) return;
  const double before = *std::max_element(samples.begin() + static_cast<std::ptrdiff_t>(n / 3),
                                          samples.begin() + static_cast<std::ptrdiff_t>(n / 2)),
               after = *std::max_element(samples.end() - static_cast<std::ptrdiff_t>(n / 6), samples.end());
  std::printf("resident memory: %.1f MB at first, %.1f MB until half of the time, %.1f MB at the end\n", samples[0],
              before, after);
  const double more = kMegabytes + kEachOpened * static_cast<double>(opened);
  if (!kSanitized && after > before * (1 + kShare) + more)
    findings.wrong("memory grows from " + std::to_string(before) + " to " + std::to_string(after) + " MB");
}

constexpr uint64_t kWeightBytes = 1 << 20; // more than the weights of each model

int soak(const Arguments& a, const std::string& program) {
  auto folder = TemporaryFolder::create("tessera-soak");
  if (!folder.ok()) return fail(folder.error());
  const auto device = choose_device_here(a.device);
  if (!device.ok()) return fail(device.error());
  auto models = make_models(folder->path(), a.device, a.cases, a.seed, a.compiled);
  if (!models.ok()) return fail(models.error());
  const std::string own = folder->path() + "/cache";
  if (!a.write.empty()) return open_each(*models, session_options(own, *device), a.write);
  if (!a.fill.empty()) return open_each(*models, session_options(a.fill, *device), "");
  if (a.compiled && !compile_elsewhere(*models, a, program, folder->path())) return 1;
  ::setenv("TESSERA_CACHE_DIR", own.c_str(), 1); // of the C interface

  Findings findings;
  SessionOptions options = session_options(own, *device);
  auto account = options.executor.memory = std::make_shared<MemoryAccount>(0);
  int64_t calls = 0, reopened = 0;
  {
    std::vector<Opened> opened;
    for (const Model& m : *models) {
      auto one = open(m, options);
      if (!one.ok()) return fail(one.error());
      // Libraries are there before faults begin: some keep a lock where memory is exhausted while they load their parts.
      if (auto first = one->session->run(m.cases.front().inputs); !first.ok()) return fail(first.error());
      opened.push_back(std::move(*one));
    }
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    std::vector<double> samples;
    samples.reserve(static_cast<size_t>(a.seconds * 4) + 16);
    {
      LoadOptions load_options;
      load_options.threads = a.threads;
      load_options.seed = a.seed;
      load_options.pause_us = a.pause_us;
      load_options.reopen = a.reopen;
      Load load(opened, load_options, options, findings);
      std::optional<Faults> faults;
      if (a.faults) faults.emplace(*models, session_options(own, *device), folder->path(), program, a.seed, findings);
      int64_t before = 0;
      auto progressed = begin;
      while (std::chrono::duration<double>(Clock::now() - begin).count() < a.seconds && !findings.any()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(250));
        if (auto mb = resident_mb()) samples.push_back(*mb);
        if (load.calls() != before) progressed = Clock::now();
        before = load.calls();
        if (Clock::now() - progressed > std::chrono::seconds(60)) {
          std::fprintf(stderr, "wrong: no call has ended for a minute\n");
          std::abort(); // its core shows where they wait
        }
      }
      if (faults) {
        faults->stop();
        std::printf("faults: %s; %lld calls said that memory is exhausted\n", faults->counts().c_str(),
                    static_cast<long long>(findings.expected_errors()));
        faults->expect_clean_start();
      }
      load.stop();
      calls = load.calls();
      reopened = load.reopened();
      std::printf("%lld calls of %d threads, %lld sessions opened and closed meanwhile, %.0f s\n",
                  static_cast<long long>(calls), a.threads, static_cast<long long>(reopened),
                  std::chrono::duration<double>(Clock::now() - begin).count());
    }
    if (!a.faults) expect_flat(samples, reopened, findings);
    for (Opened& o : opened) {
      tessera_metrics metrics{};
      metrics.struct_size = sizeof metrics;
      if (const char* error = tessera_get_metrics(o.c, &metrics)) findings.wrong(error);
      std::printf(
          "%-12s %8llu calls, %llu variants, %llu guard misses, %llu contexts at the end, %llu bytes held\n",
          o.model->name.c_str(), static_cast<unsigned long long>(metrics.calls),
          static_cast<unsigned long long>(metrics.variants), static_cast<unsigned long long>(metrics.guard_misses),
          static_cast<unsigned long long>(metrics.contexts), static_cast<unsigned long long>(metrics.host_bytes));
      if (metrics.contexts != 1) findings.wrong("contexts that were closed are counted");
      // Packed weights stay with the code.
      if (metrics.host_bytes > kWeightBytes) findings.wrong("memory of closed contexts is held");
      if (!a.faults && metrics.errors != 0) findings.wrong("errors are counted");
    }
  }
  for (const auto where : {MemoryAccount::Where::Host, MemoryAccount::Where::Device})
    if (const int64_t held = account->held(where); held != 0)
      findings.wrong(std::to_string(held) + " bytes are held after everything is closed");
  if (calls == 0) findings.wrong("nothing was called");
  return findings.any() ? 1 : 0;
}

} // namespace
} // namespace tessera::soak

int main(int argc, char** argv) {
  tessera::soak::Arguments arguments;
  if (!tessera::soak::parse(argc, argv, arguments)) {
    std::fprintf(stderr, "usage: soak [--seconds N | --minutes N] [--threads N] [--seed N] [--cases N] [--pause-us N] "
                         "[--no-reopen] [--faults] [--compiled] [--device NAME]\n");
    return 2;
  }
  char program[4096] = {};
  if (::readlink("/proc/self/exe", program, sizeof program - 1) < 0) return 2;
  return tessera::soak::soak(arguments, program);
}
