#include "codegen/target/select.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/similar.h"
#include <algorithm>
#include <cmath>
#include <filesystem>

namespace tessera {
namespace {

// Relative difference below which figures are of the same device: drivers report clocks and caches slightly differently
// from data sheets.
constexpr double kSame = 0.06;

bool differs(double reported, double known) { return reported > 0 && std::fabs(reported / known - 1) > kSame; }

// 90 for "sm_90" and "sm_90a"; 0 for other text.
int capability(std::string_view arch) {
  return arch.starts_with("sm_") ? std::atoi(std::string(arch.substr(3)).c_str()) : 0;
}

Diagnostic unknown_target(const std::string& wanted) {
  std::vector<std::string> known;
  std::string list;
  for (const Target& t : shipped_targets()) {
    known.push_back(t.name);
    list += (list.empty() ? "" : ", ") + t.name;
  }
  Diagnostic d(ErrorCode::Usage, "no target is called '" + wanted + "'");
  if (const auto close = similar(wanted, known); !close.empty()) d.note("did you mean '" + close + "'?");
  return std::move(d).note("known targets: " + list).note("the path of a target file holds a '/' or ends in .json");
}

// The shipped GPU by name; else by architecture; else the nearest architecture, newer or older alike.
const Target& nearest_gpu(const DeviceFacts& device) {
  const Target* best = nullptr;
  auto distance = [&](const Target& t) {
    const double bandwidth = device.memory_peak_bytes_per_us > 0
                                 ? std::fabs(std::log(device.memory_peak_bytes_per_us / t.memory_peak_bytes_per_us))
                                 : 0;
    return std::pair(std::abs(capability(t.arch) - capability(device.arch)), bandwidth);
  };
  for (const Target& t : shipped_targets()) {
    if (!t.is_gpu()) continue;
    if (!device.gpu.empty() && device.gpu.starts_with(t.gpu)) return t;
    if (best == nullptr || distance(t) < distance(*best)) best = &t;
  }
  return *best;
}

ChosenTarget choose_gpu(const DeviceFacts& device) {
  const Target& base = nearest_gpu(device);
  ChosenTarget out{scaled_target(base, device), base.name, ""};
  const bool known_gpu = device.gpu.starts_with(base.gpu);
  const bool same_arch = capability(device.arch) == capability(base.arch);
  std::string scaled;
  auto note = [&](bool differs, const std::string& what) {
    if (differs) scaled += (scaled.empty() ? "" : ", ") + what;
  };
  note(out.target.multiprocessors != base.multiprocessors,
       std::to_string(out.target.multiprocessors) + " multiprocessors");
  note(out.target.memory_peak_bytes_per_us != base.memory_peak_bytes_per_us,
       std::to_string(std::llround(out.target.memory_peak_bytes_per_us / 1e3)) + " GB/s of memory");
  note(out.target.l2_bytes != base.l2_bytes, std::to_string(out.target.l2_bytes / 1'000'000) + " MB of L2");
  if (!scaled.empty()) out.why += ", scaled to " + scaled;
  if (device.gpu.empty() ? same_arch : known_gpu && scaled.empty()) return out;
  out.warning = "no target file describes " + (device.gpu.empty() ? device.arch : device.gpu) +
                ": figures are those of " + out.why + "; 'tessera calibrate' measures them";
  return out;
}

} // namespace

Target scaled_target(const Target& base, const DeviceFacts& device) {
  Target t = base;
  if (device.shared_bytes > 0 && device.shared_bytes != base.shared_bytes) {
    t.shared_bytes = device.shared_bytes;
    t.multiprocessor_shared_bytes = std::max(t.multiprocessor_shared_bytes, t.shared_bytes + t.reserved_shared_bytes);
  }
  if (device.multiprocessors > 0) t.multiprocessors = device.multiprocessors;
  const double size = static_cast<double>(t.multiprocessors) / base.multiprocessors;
  double memory = 1;
  if (differs(device.memory_peak_bytes_per_us, base.memory_peak_bytes_per_us)) {
    memory = device.memory_peak_bytes_per_us / base.memory_peak_bytes_per_us;
    t.memory_peak_bytes_per_us = device.memory_peak_bytes_per_us;
    t.memory_bytes_per_us *= memory;
  }
  if (differs(static_cast<double>(device.l2_bytes), static_cast<double>(base.l2_bytes))) t.l2_bytes = device.l2_bytes;
  if (size != 1 || memory != 1) {
    t.l2_bytes_per_us *= size;
    t.block_us /= size;
    // Little's law: bytes in flight of each multiprocessor are its share of the bandwidth times the latency.
    t.saturating_bytes = std::llround(static_cast<double>(t.saturating_bytes) * memory / size);
    std::fill(t.sources.begin(), t.sources.end(), FigureSource::Estimated);
  }
  return t;
}

std::string records_file(const std::string& target_file) {
  return target_file.substr(0, target_file.size() - (target_file.ends_with(".json") ? 5 : 0)) + ".records.txt";
}

Result<Target> named_target(const std::string& wanted) {
  for (const Target& t : shipped_targets())
    if (t.name == wanted) return t;
  if (wanted.find('/') == std::string::npos && !wanted.ends_with(".json")) return unknown_target(wanted);
  TESSERA_ASSIGN(std::string text, read_file(wanted));
  TESSERA_ASSIGN(Target target, parse_target(text, wanted));
  const std::string records = records_file(wanted);
  if (std::filesystem::exists(records)) target.records = records;
  return target;
}

Result<ChosenTarget> choose_target(const std::string& wanted, const DeviceFacts& device) {
  if (!wanted.empty()) {
    TESSERA_ASSIGN(Target t, named_target(wanted));
    if (t.kind != device.kind)
      return Diagnostic(ErrorCode::Usage, "target '" + wanted + "' is of kind " + std::string(name(t.kind)) +
                                              ", the device is " + std::string(name(device.kind)));
    return ChosenTarget{std::move(t), wanted, ""};
  }
  if (const char* variable = environment("TESSERA_TARGET")) {
    TESSERA_ASSIGN(Target t, named_target(variable));
    if (t.kind == device.kind) return ChosenTarget{std::move(t), variable, ""};
  }
  if (device.kind == Target::Kind::Cuda) return choose_gpu(device);
  const std::string_view host = device.vector_bytes >= 64 ? "avx512" : device.vector_bytes >= 32 ? "avx2" : "portable";
  return ChosenTarget{shipped_target(host), std::string(host), ""};
}

} // namespace tessera
