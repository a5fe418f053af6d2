// Memory that no step may touch, for ExecutorOptions::poison: around the buffers that a step uses. What is written
// there is noticed after the step; with the address sanitizer, what instrumented code reads or writes there ends the
// process at once.
#pragma once
#include "base/result.h"
#include <cstddef>
#include <vector>

namespace tessera {

class RedZones {
public:
  static constexpr int64_t kBytes = 256; // behind each buffer

  // Behind `end`, which is the first byte of kBytes that nobody owns.
  void guard(std::byte* end) { zones_.push_back(end); }
  // Memory that a step may touch only where allow() says so.
  void close(std::byte* begin, size_t bytes);
  void allow(std::byte* begin, size_t bytes);
  // Fills the zones, before a step.
  void arm();
  // Lets go of what a step left that an exception ended: the next one begins with none.
  void clear();
  // After a step; the next one begins with none. Error Internal: the step `name` wrote outside of its buffers.
  [[nodiscard]] Status check(const std::string& name);

private:
  void open();
  struct Range {
    std::byte* begin;
    size_t bytes;
  };
  std::vector<std::byte*> zones_;
  std::vector<Range> closed_, allowed_;
};

} // namespace tessera
