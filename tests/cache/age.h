// The time of the last use of a file in the cache.
#pragma once
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace tessera {

// It was used so many seconds ago.
inline void set_age(const std::filesystem::path& path, int64_t seconds) {
  const timespec times[2] = {{::time(nullptr) - seconds, 0}, {0, UTIME_OMIT}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}
inline int64_t age(const std::filesystem::path& path) {
  struct stat st {};
  EXPECT_EQ(::stat(path.c_str(), &st), 0);
  return ::time(nullptr) - st.st_atim.tv_sec;
}

} // namespace tessera
