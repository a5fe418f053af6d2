#include "base/file.h"
#include "base/processors.h"
#include "base/temporary_folder.h"
#include <filesystem>
#include <gtest/gtest.h>

namespace tessera {
namespace {

// Writes files below a root of their own.
class Processors : public testing::Test {
protected:
  void put(const std::string& file, const std::string& text) const {
    const std::string path = root() + file;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    ASSERT_TRUE(write_file(path, {text}).ok());
  }
  [[nodiscard]] std::string root() const { return folder_.path(); }
  const TemporaryFolder folder_ = TemporaryFolder::create("processors").value();
  const int here = usable_processors(folder_.path() + "/none"); // by affinity alone
};

TEST_F(Processors, AreThoseOfTheAffinity) {
  EXPECT_GE(here, 1);
  put("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(usable_processors(root()), here) << "a group without a quota";
  put("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(usable_processors(root()), here);
}

TEST_F(Processors, AreNoMoreThanTheQuota) {
  put("/proc/self/cgroup", "0::/pod/container\n");
  put("/sys/fs/cgroup/pod/container/cpu.max", "50000 100000\n");
  EXPECT_EQ(usable_processors(root()), 1) << "half a processor";
  put("/sys/fs/cgroup/pod/container/cpu.max", "150000 100000\n");
  EXPECT_EQ(usable_processors(root()), std::min(here, 2)) << "rounded up";
  put("/sys/fs/cgroup/pod/cpu.max", "100000 100000\n");
  EXPECT_EQ(usable_processors(root()), 1) << "of the group above";
  put("/sys/fs/cgroup/pod/cpu.max", "9000000 100000\n");
  put("/sys/fs/cgroup/pod/container/cpu.max", "no quota\n");
  EXPECT_EQ(usable_processors(root()), std::min(here, 90));
}

TEST_F(Processors, AreNoMoreThanTheQuotaOfTheOlderInterface) {
  put("/proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a\n0::/\n");
  put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(usable_processors(root()), here);
  put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "20000\n");
  EXPECT_EQ(usable_processors(root()), 1);
}

} // namespace
} // namespace tessera
