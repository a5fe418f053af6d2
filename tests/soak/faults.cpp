#include "faults.h"
#include "base/file.h"
#include "runtime/cache/survey.h"
#include "tests/memory/failing_allocations.h"
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera::soak {
namespace {

namespace fs = std::filesystem;

void rest_ms(uint64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

std::vector<fs::path> entries(const std::string& folder) {
  std::vector<fs::path> out;
  std::error_code ec;
  for (const auto& e : fs::recursive_directory_iterator(folder, ec))
    if (e.path().extension() == ".tsc") out.push_back(e.path());
  return out;
}

constexpr const char* kFaults[] = {"failing allocations", "compiles given up", "damaged caches", "full disks",
                                   "killed writers"};

} // namespace

Faults::Faults(const std::vector<Model>& models, SessionOptions session, std::string folder, std::string program,
               uint64_t seed, Findings& findings)
    : models_(models), session_(std::move(session)), folder_(std::move(folder)), program_(std::move(program)),
      random_(seed), findings_(findings) {
  for (const char* name : kFaults) counts_[name] = 0;
  thread_ = std::thread([this] { work(); });
}

void Faults::stop() {
  ends_ = true;
  if (thread_.joinable()) thread_.join();
}

std::string Faults::counts() const {
  std::string out;
  for (const auto& [name, count] : counts_) out += (out.empty() ? "" : ", ") + std::to_string(count) + " " + name;
  return out;
}

void Faults::work() {
  using Fault = void (Faults::*)();
  const std::pair<const char*, Fault> faults[] = {{kFaults[0], &Faults::failing_allocation},
                                                  {kFaults[1], &Faults::given_up_compile},
                                                  {kFaults[2], &Faults::damaged_cache},
                                                  {kFaults[3], &Faults::full_disk},
                                                  {kFaults[4], &Faults::killed_writer}};
  for (size_t i = 0; !ends_; i = (i + 1) % std::size(faults)) {
    (this->*faults[i].second)();
    ++counts_[faults[i].first];
  }
}

// Any thread's call is right or says that memory is exhausted, and so is a session that is opened.
void Faults::failing_allocation() {
  findings_.expect_out_of_memory(true);
  for (int i = 0; i < 20 && !ends_; ++i) {
    {
      test::FailingAllocations failing(static_cast<long>(1 + random_() % 3000));
      rest_ms(5);
    }
    rest_ms(1);
  }
  rest_ms(200); // until calls that have seen one are over
  findings_.expect_out_of_memory(false);
}

void Faults::given_up_compile() {
  SessionOptions options = session_;
  auto polls = std::make_shared<std::atomic<int64_t>>(static_cast<int64_t>(random_() % 4));
  options.compile.cache = false;
  options.compile.cancelled = [polls] { return polls->fetch_sub(1) <= 0; };
  const Model& model = models_[random_() % models_.size()];
  auto session = Session::open(model.path, options);
  if (!session.ok() && session.error().code != ErrorCode::Cancelled)
    findings_.wrong("a compile that is given up: " + session.error().str());
}

void Faults::expect_works(const std::string& cache, const std::string& after) {
  SessionOptions options = session_;
  options.compile.cache_dir = cache;
  const Model& model = models_[random_() % models_.size()];
  auto session = Session::open(model.path, options);
  if (!session.ok()) return findings_.wrong("opening after " + after + ": " + session.error().str());
  const Case& c = model.cases[random_() % model.cases.size()];
  auto outputs = (*session)->run(c.inputs);
  if (!outputs.ok())
    findings_.wrong("a call after " + after + ": " + outputs.error().str());
  else if (const std::string text = difference(model, c, *outputs); !text.empty())
    findings_.wrong("a call after " + after + ": " + text);
}

void Faults::expect_undamaged(const std::string& cache) {
  auto status = survey_cache(cache, false, [&](const SurveyedFile& f) -> Status {
    if (!f.problem.empty()) findings_.wrong(f.path + " " + f.problem);
    return {};
  });
  if (!status.ok()) findings_.wrong(status.error().str());
}

void Faults::damaged_cache() {
  const std::string folder = cache("damaged");
  expect_works(folder, "nothing");
  for (const fs::path& entry : entries(folder)) {
    const auto bytes = fs::file_size(entry);
    if (random_() % 2 == 0 || bytes == 0) continue; // 0: of a damage before, and nothing has read it since
    std::fstream file(entry, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(random_() % bytes));
    file.put(static_cast<char>(random_()));
    file.close();
    if (random_() % 4 == 0) fs::resize_file(entry, random_() % bytes);
  }
  expect_works(folder, "damage of the cache");
}

void Faults::full_disk() {
  if (!can_mount_) return rest_ms(1);
  const std::string disk = cache("disk");
  fs::create_directories(disk);
  can_mount_ = ::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=32k,mode=700") == 0;
  if (!can_mount_) return;
  expect_works(disk, "a disk that fills");
  expect_undamaged(disk);
  (void)::umount(disk.c_str());
}

pid_t Faults::start(const std::string& cache) const {
  const std::string arguments[] = {program_, "--device", models_.front().device, "--fill", cache};
  std::vector<char*> pointers;
  for (const auto& a : arguments) pointers.push_back(const_cast<char*>(a.c_str()));
  pointers.push_back(nullptr);
  pid_t pid = -1;
  return ::posix_spawn(&pid, program_.c_str(), nullptr, nullptr, pointers.data(), environ) == 0 ? pid : -1;
}

void Faults::killed_writer() {
  const std::string folder = cache("killed");
  if (random_() % 4 == 0) fs::remove_all(folder);
  const pid_t pid = start(folder);
  if (pid < 0) return findings_.wrong("a process does not start");
  rest_ms(random_() % 1500);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  expect_undamaged(folder);
  expect_works(folder, "a writer of the cache was killed");
}

void Faults::expect_clean_start() {
  for (const char* name : {"damaged", "killed"}) {
    const pid_t pid = start(cache(name));
    int status = -1;
    if (pid > 0) ::waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
      findings_.wrong("the next start with the cache '" + std::string(name) + "' ended with status " +
                      std::to_string(status));
  }
}

} // namespace tessera::soak
