// Functions in the place of what a file cannot hold: linked kernels, operators that run by their reference.
#include "runtime/executor.h"
#include "runtime/variant.h"

namespace tessera {

namespace {
Status link_kernels(Executable& e, const LinkFn& link) {
  TESSERA_ASSIGN(auto linked, link(e));
  e.code = linked.code;
  Status status;
  auto one = [&](KernelLaunch& k) {
    k.function = linked.find ? linked.find(k.symbol) : nullptr;
    if (!k.function) status = Diagnostic(ErrorCode::CorruptFile, "the machine code has no kernel '" + k.symbol + "'");
  };
  for (auto& step : e.steps) {
    if (auto* k = std::get_if<KernelLaunch>(&step)) one(*k);
    if (auto* l = std::get_if<LibraryStep>(&step))
      std::visit(
          [&](auto& call) {
            if constexpr (requires { call.epilogue; })
              if (call.epilogue) one(call.epilogue->kernel);
          },
          l->call);
  }
  return status;
}

} // namespace

Status link_executable(Executable& executable, const LinkFn& link, const ResolveHostStepFn& resolve) {
  const bool gpu = is_gpu_target(executable.target);
  return each_executable(executable, [&](Executable& e) -> Status {
    if (link && !gpu) TESSERA_TRY(link_kernels(e, link));
    for (auto& step : e.steps)
      if (auto* h = std::get_if<HostStep>(&step); h && resolve) {
        TESSERA_ASSIGN(h->run, resolve(*h, e));
      }
    return {};
  });
}

Status each_executable(Executable& executable, const std::function<Status(Executable&)>& f) {
  TESSERA_TRY(f(executable));
  for (auto& step : executable.steps)
    if (auto* c = std::get_if<ControlStep>(&step))
      for (auto& body : c->bodies) TESSERA_TRY(each_executable(const_cast<Executable&>(*body.executable), f));
  return {};
}

} // namespace tessera
