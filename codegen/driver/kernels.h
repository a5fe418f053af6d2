// What compiling loop nests has in common on every device: what is asked for, all cores at work, how a kernel is
// launched.
#pragma once
#include "codegen/driver/compile.h"
#include "codegen/driver/object_cache.h"

namespace tessera {

struct KernelRequest {
  std::string name;     // for people; unique
  const LoopNest* nest; // or nullptr: the kernel of its own of `node`, or of `attention`
  NodeId node = {};
  const TunedSchedules* tuned = nullptr;    // instead of CompileOptions::tuned, for this one
  const AttentionCall* attention = nullptr; // on a GPU
};
// body(0) ... body(count - 1), in any order, on the threads that options.jobs give to compiling. Returns when all are
// done. Where one throws, those that have not begun are left out, and its exception leaves this call.
void compile_each(size_t count, const CompileOptions& options, const std::function<void(size_t)>& body);

// The kernel's text without the names that a model gave its values: kernels of equal layers are equal.
[[nodiscard]] std::string anonymous_text(tile::Kernel kernel);

// The launch of a scheduled kernel, without what a device adds to it: `buffer` gives the executable's buffer of a graph
// value.
[[nodiscard]] KernelLaunch launch_of(const ScheduledKernel& kernel, const std::string& name, const std::string& symbol,
                                     int object, const std::function<BufferId(ValueId)>& buffer);

} // namespace tessera
