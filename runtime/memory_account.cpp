#include "base/tensor.h"
#include "runtime/caller_memory.h"

namespace tessera {
namespace {

// A block of the host's memory with what has to be said when it goes.
struct Counted {
  std::shared_ptr<MemoryAccount> account;
  std::shared_ptr<std::byte> block; // null: the caller's functions gave `data`
  std::byte* data = nullptr;
  size_t bytes = 0;
  ~Counted() {
    if (data && !block) account->call_release(data, bytes);
    if (account) account->give(MemoryAccount::Where::Host, static_cast<int64_t>(bytes));
  }
};

} // namespace

Status MemoryAccount::take(Where where, int64_t bytes, const char* what) {
  const int64_t total = total_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (limit_ != 0 && total > limit_) {
    total_.fetch_sub(bytes, std::memory_order_relaxed);
    return Diagnostic(ErrorCode::OutOfMemory, std::to_string(bytes) + " bytes for " + what + " are needed, " +
                                                  std::to_string(total - bytes) +
                                                  " bytes are held already, and the limit is " + std::to_string(limit_))
        .note("raise memory_limit, use fewer contexts, or release results of earlier calls");
  }
  held_[index(where)].fetch_add(bytes, std::memory_order_relaxed);
  for (int64_t peak = peak_.load(std::memory_order_relaxed);
       peak < total && !peak_.compare_exchange_weak(peak, total, std::memory_order_relaxed);) {
  }
  return {};
}

void MemoryAccount::give(Where where, int64_t bytes) noexcept {
  held_[index(where)].fetch_sub(bytes, std::memory_order_relaxed);
  total_.fetch_sub(bytes, std::memory_order_relaxed);
}

Status MemoryAccount::check_call(int64_t temporaries, int64_t outputs) const {
  if (limit_ == 0 || temporaries + outputs <= limit_) return {};
  return Diagnostic(ErrorCode::OutOfMemory, "this shape needs " + std::to_string(temporaries + outputs) + " bytes, " +
                                                std::to_string(temporaries) + " for intermediate results and " +
                                                std::to_string(outputs) + " for outputs; the limit is " +
                                                std::to_string(limit_))
      .note("raise memory_limit, or call with smaller inputs");
}

Result<std::shared_ptr<const void>> MemoryAccount::hold(Where where, int64_t bytes, const char* what) {
  struct Held {
    std::shared_ptr<MemoryAccount> account;
    Where where = Where::Host;
    int64_t bytes = 0;
    ~Held() {
      if (account) account->give(where, bytes);
    }
  };
  auto held = std::make_shared<Held>();
  TESSERA_TRY(take(where, bytes, what));
  held->account = shared_from_this();
  held->where = where;
  held->bytes = bytes;
  return std::shared_ptr<const void>(std::move(held));
}

std::byte* MemoryAccount::call_allocate(size_t bytes, size_t alignment) const {
  return static_cast<std::byte*>(functions_.allocate(functions_.context, bytes, alignment));
}
void MemoryAccount::call_release(std::byte* data, size_t bytes) const {
  functions_.release(functions_.context, data, bytes);
}

Result<std::byte*> memory_of_caller(const MemoryAccount& account, size_t bytes, size_t alignment, const char* what) {
  std::byte* data = account.call_allocate(bytes, alignment);
  if (data == nullptr)
    return Diagnostic(ErrorCode::OutOfMemory,
                      "the caller's allocator has no memory of " + std::to_string(bytes) + " bytes for " + what);
  const auto off = reinterpret_cast<uintptr_t>(data) % alignment;
  if (off == 0) return data;
  account.call_release(data, bytes);
  return Diagnostic(ErrorCode::Usage, "the caller's allocator gave misaligned memory for " + std::string(what) +
                                          ": its address is " + std::to_string(off) + " bytes behind a multiple of " +
                                          std::to_string(alignment));
}

Result<std::shared_ptr<std::byte>> MemoryAccount::allocate(size_t bytes, const char* what) {
  auto counted = std::make_shared<Counted>();
  TESSERA_TRY(take(Where::Host, static_cast<int64_t>(bytes), what));
  counted->account = shared_from_this();
  counted->bytes = bytes;
  if (has_functions()) {
    constexpr size_t kAlignment = 64;
    TESSERA_ASSIGN(counted->data, memory_of_caller(*this, bytes, kAlignment, what));
  } else {
    TESSERA_ASSIGN(counted->block, allocate_bytes(bytes));
    counted->data = counted->block.get();
  }
  std::byte* data = counted->data;
  return std::shared_ptr<std::byte>(std::move(counted), data);
}

} // namespace tessera
