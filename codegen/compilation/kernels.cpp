#include "codegen/compilation/kernels.h"
#include "base/guarded.h"
#include "base/processors.h"
#include "fusion/idioms.h"
#include "runtime/helper_threads.h"
#include <atomic>
#include <cctype>

namespace tessera {

KernelLaunch launch_of(std::span<const ScheduledKernel> kernels, const std::string& name,
                       const std::function<BufferId(ValueId)>& buffer) {
  KernelLaunch l{kernels.back()};
  l.name = name;
  for (ValueId v : kernels.back().buffers) l.buffers.push_back(buffer(v));
  for (size_t i = 0; i + 1 < kernels.size(); ++i)
    l.alternatives.push_back(launch_of(kernels.subspan(i, 1), name, buffer));
  return l;
}

KernelRequest request_for(const Group& group) {
  KernelRequest out;
  out.name = group.name;
  if (group.kind == Group::Kind::Kernel)
    out.nest = &group.nest;
  else if (group.node.valid())
    out.node = group.node;
  else
    out.attention = &group.attention;
  return out;
}

const TunedSchedules* schedules_for(const KernelRequest& request, const CompileOptions& options) {
  if (request.pinned) return request.pinned;
  return request.tuned ? request.tuned : options.tuned.get();
}

void check_pinned(const Graph& graph, const KernelRequest& request, const Target& device, KernelReport& report) {
  if (!request.pinned || !request.nest) return;
  for (const TunedSchedule& pinned : request.pinned->list()) {
    bool taken = report.schedule == pinned.schedule;
    for (const auto& a : report.alternatives) taken = taken || a.schedule == pinned.schedule;
    if (taken) continue;
    std::string why = refusal(graph, *request.nest, device, pinned);
    report.unmet.push_back("schedule '" + print(pinned.schedule) +
                           "' does not fit: " + (why.empty() ? "its kernel cannot be generated for this nest" : why));
  }
}

EntryOrigin kernel_origin(const std::string& version, std::string name) {
  const size_t first = version.find(' '), second = version.find(' ', first + 1), third = version.find(' ', second + 1);
  return {version.substr(0, second), version.substr(second + 1, third - second - 1), std::move(name)};
}

std::string anonymous_text(tile::Kernel kernel) {
  kernel.name = "kernel";
  for (size_t i = 0; i < kernel.params.size(); ++i) kernel.params[i].name = "p" + std::to_string(i);
  return tile::print(kernel);
}

std::string kernel_title(const Graph& graph, const KernelRequest& request) {
  constexpr size_t kMaxCharacters = 40;
  std::string title = request.nest        ? fusion::title(*request.nest)
                      : request.attention ? "attention"
                                          : std::string(graph.node(request.node).op->name);
  for (char& c : title)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return title.substr(0, kMaxCharacters);
}

void compile_each(size_t count, const CompileOptions& options, const std::function<void(size_t)>& body) {
  const int jobs = options.jobs > 0 ? options.jobs : options.threads > 0 ? options.threads : usable_processors();
  std::atomic<size_t> next{0};
  FirstException failure;
  auto loop = [&] {
    failure.run([&] {
      for (size_t i; !failure.thrown() && (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(i);
    });
  };
  const auto helpers = std::min(count, static_cast<size_t>(jobs));
  with_helpers(
      static_cast<int>(helpers) - 1, [&](int) { loop(); }, loop);
  failure.rethrow();
}

} // namespace tessera
