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
  for (auto& step : exe->steps) {
    if (auto* k = std::get_if<KernelLaunch>(&step)) give_contract(*k);
    if (auto* l = std::get_if<LibraryStep>(&step))
      std::visit(
          [&](auto& call) {
            if constexpr (requires { call.epilogue; })
              if (call.epilogue) give_contract(call.epilogue->kernel);
          },
          l->call);
  }
  return exe;
}

void Builder::give_contract(KernelLaunch& k) {
  k.access.clear();
  for (auto id : k.buffers) {
    const auto& b = exe->buffers[static_cast<size_t>(id)];
    k.access.push_back({b.dtype, product(b.shape), {}});
    for (size_t i = 0; i < k.buffers.size(); ++i)
      if (k.buffers[i] == b.in_place_of || k.buffers[i] == id)
        k.access.back().may_overwrite.push_back(static_cast<int>(i));
  }
  for (auto& a : k.alternatives) give_contract(a);
}

} // namespace tessera::test
