#include "runtime/launch_spec.h"

namespace tessera {
namespace {

bool absent(const SymExpr& size) { return size.is_const(0); }
template <class T>
bool absent(const std::vector<T>& list) {
  return list.empty();
}

std::string text(const SymExpr& size) { return size.str(); }
std::string text(const Workspace& w) { return std::string(name(w.dtype)) + " * (" + w.count.str() + ")"; }
template <class T>
std::string text(const std::vector<T>& list);
// "f16 %0 + 64 [n, m] strides [2*n] box [64, 128] swizzle 3"
std::string text(const TensorMapOf<SymExpr>& m) {
  std::string all = std::string(name(m.dtype)) + " %" + std::to_string(m.buffer);
  if (!absent(m.offset)) all += " + " + text(m.offset);
  all += " " + text(m.dims) + " strides " + text(m.strides) + " box [";
  for (size_t i = 0; i < m.box.size(); ++i) all += (i ? ", " : "") + std::to_string(m.box[i]);
  if (!m.steps.empty()) {
    all += "] steps [";
    for (size_t i = 0; i < m.steps.size(); ++i) all += (i ? ", " : "") + std::to_string(m.steps[i]);
  }
  return all + "] swizzle " + std::to_string(static_cast<int>(m.swizzle));
}
template <class T>
std::string text(const std::vector<T>& list) {
  std::string all;
  for (const T& one : list) all += (all.empty() ? "[" : ", ") + text(one);
  return all + "]";
}

} // namespace

bool has(const LaunchNumbers<SymExpr>& launch, LaunchUse use) {
  bool any = false;
  each_number(launch, [&](const LaunchField& field, const auto& number) {
    any = any || (field.use >= use && !absent(number));
  });
  return any;
}

std::string print(const LaunchNumbers<SymExpr>& launch) {
  std::string all;
  each_number(launch, [&](const LaunchField& field, const auto& number) {
    if (!absent(number)) all += (all.empty() ? "" : "; ") + std::string(field.key) + " = " + text(number);
  });
  return all;
}

} // namespace tessera
