#include "codegen/llvm/reserve.h"
#include "base/tensor.h"
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace tessera::irgen {
namespace {

thread_local std::shared_ptr<std::byte> reserve;
thread_local bool in_scope = false;
std::atomic<std::new_handler> others{nullptr}; // what the program had installed

void give_back_or_fail() {
  if (in_scope && reserve) {
    reserve.reset();
    return;
  }
  const std::new_handler other = others.load();
  if (other == nullptr) throw std::bad_alloc();
  other();
}

} // namespace

Result<ReserveScope> ReserveScope::enter() {
  static std::once_flag installed;
  std::call_once(installed, [] { others.store(std::set_new_handler(give_back_or_fail)); });
  if (!reserve) {
    TESSERA_ASSIGN(reserve, allocate_bytes(kReserveBytes));
  }
  in_scope = true;
  return ReserveScope();
}

ReserveScope::ReserveScope(ReserveScope&& other) noexcept : inside_(std::exchange(other.inside_, false)) {}

ReserveScope::~ReserveScope() {
  if (inside_) in_scope = false;
}

} // namespace tessera::irgen
