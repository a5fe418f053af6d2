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

CompilingSource::CompilingSource(std::vector<std::shared_ptr<const Executable>> variants, Compile compile)
    : compile_(std::move(compile)) {
  for (auto& v : variants) add(std::move(v));
}

void CompilingSource::add(std::shared_ptr<const Executable> executable) {
  const uint64_t number = numbers_++;
  order_.variants.push_back({number, static_cast<int>(number), false, std::move(executable)});
  ++order_.generation;
}

Result<bool> CompilingSource::compile_for(const GuardMiss& miss, std::span<const uint64_t> numbers) {
  EXPECT_EQ(numbers.size(), order_.variants.size());
  TESSERA_ASSIGN(auto made, compile_(miss));
  if (!made) return false;
  add(std::move(made));
  return true;
}

void CompilingSource::ended(const std::shared_ptr<const Executable>& ran, std::span<const SymExpr> /*symbols*/,
                            std::span<const int64_t> /*values*/, int swaps) {
  calls.emplace_back(ran, swaps);
}

void CompilingSource::replace(uint64_t number, std::shared_ptr<const Executable> better) {
  ++order_.generation;
  if (!better) {
    std::erase_if(order_.variants, [&](const Entry& e) { return e.number == number; });
    return;
  }
  for (Entry& entry : order_.variants)
    if (entry.number == number) entry.executable = std::move(better);
}

} // namespace tessera::test
