#include "base/processors.h"
#include "base/file.h"
#include <algorithm>
#include <cmath>
#include <optional>
#include <sched.h>
#include <sstream>
#include <thread>

namespace tessera {
namespace {

// The first two numbers of "50000 100000", the microseconds of each period; nothing where there is no limit.
std::optional<double> quota_in(const std::string& text) {
  std::istringstream in(text);
  double quota = 0, period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::string text_of(const std::string& path) {
  auto text = read_file(path);
  return text.ok() ? *text : std::string();
}

// The lowest quota of a group and of those above it; `group`: its path from `mount`.
std::optional<double> lowest_quota(const std::string& mount, std::string group, bool v2) {
  std::optional<double> lowest;
  for (;;) {
    const std::string folder = mount + group + (group.ends_with('/') ? "" : "/");
    const auto quota =
        quota_in(v2 ? text_of(folder + "cpu.max")
                    : text_of(folder + "cpu.cfs_quota_us") + " " + text_of(folder + "cpu.cfs_period_us"));
    if (quota) lowest = std::min(lowest.value_or(*quota), *quota);
    if (group.empty() || group == "/") return lowest;
    group.erase(group.rfind('/'));
  }
}

// In processors. A line of /proc/self/cgroup is "ID:CONTROLLERS:PATH"; that of cgroup v2 has no controllers.
std::optional<double> quota_of_this_process(const std::string& root) {
  std::istringstream lines(text_of(root + "/proc/self/cgroup"));
  std::optional<double> lowest;
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",",
                      group = line.substr(second + 1);
    const bool v2 = controllers == ",,";
    if ((!v2 && controllers.find(",cpu,") == std::string::npos) || !group.starts_with('/')) continue;
    if (const auto quota = lowest_quota(root + "/sys/fs/cgroup" + (v2 ? "" : "/cpu"), group, v2))
      lowest = std::min(lowest.value_or(*quota), *quota);
  }
  return lowest;
}

} // namespace

int usable_processors(const std::string& root) {
  cpu_set_t set;
  int count = static_cast<int>(std::thread::hardware_concurrency());
  if (::sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
  if (const auto quota = quota_of_this_process(root))
    count = static_cast<int>(std::min<double>(count, std::ceil(*quota)));
  return std::max(1, count);
}

} // namespace tessera
