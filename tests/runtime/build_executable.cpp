#include "build_executable.h"
#include "runtime/variant.h"

namespace tessera::test {

std::shared_ptr<const Executable> Builder::done() {
  auto last = static_cast<int>(exe->steps.size());
  for (auto& b : exe->buffers) {
    b.first_step = b.kind == BufferInfo::Kind::Temporary ? last : 0;
    b.last_step = b.kind == BufferInfo::Kind::Temporary ? -1 : last;
  }
  for (int s = 0; s < last; ++s) {
    auto used = buffers_of(exe->steps[static_cast<size_t>(s)]);
    for (const auto* list : {&used.read, &used.written})
      for (auto id : *list) {
        auto& b = exe->buffers[static_cast<size_t>(id)];
        if (b.kind != BufferInfo::Kind::Temporary) continue;
        b.first_step = std::min(b.first_step, s);
        b.last_step = std::max(b.last_step, s);
      }
  }
  return exe;
}

} // namespace tessera::test
