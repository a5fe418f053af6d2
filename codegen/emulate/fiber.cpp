#include "codegen/emulate/fiber.h"
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace tessera::emu {

// ---- stacks

// Clears the address sanitizer's shadow memory of frames that an aborted fiber left.
#if defined(__SANITIZE_ADDRESS__)
static void unpoison(std::byte* bottom, size_t bytes) { __asan_unpoison_memory_region(bottom, bytes); }
#else
static void unpoison(std::byte*, size_t) {}
#endif

struct Stacks::Region {
  std::byte* base = nullptr;
  int count = 0;
  size_t page = 0;
  [[nodiscard]] size_t below() const { return page + kBytes; } // the lowest stack
  [[nodiscard]] size_t bytes() const { return below() + kBytes * static_cast<size_t>(count); }
  ~Region() {
    if (!base) return;
    unpoison(base, bytes());
    ::munmap(base, bytes());
  }
};

namespace {
struct Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Stacks::Region>> free;
};
Pool& pool() {
  static Pool p;
  return p;
}
constexpr size_t kMaxPooled = 16; // regions in the pool; each takes address space and the touched pages of its stacks
} // namespace

Stacks::Stacks(std::unique_ptr<Region> region) : region_(std::move(region)) {}

Stacks::~Stacks() {
  std::lock_guard lock(pool().mutex);
  if (pool().free.size() < kMaxPooled) pool().free.push_back(std::move(region_));
}

std::byte* Stacks::bottom(int i) const { return region_->base + region_->below() + static_cast<size_t>(i) * kBytes; }

Result<std::unique_ptr<Stacks>> Stacks::take(int count) {
  {
    std::lock_guard lock(pool().mutex);
    auto& free = pool().free;
    for (size_t i = 0; i < free.size(); ++i)
      if (free[i]->count >= count) {
        auto region = std::move(free[i]);
        free.erase(free.begin() + static_cast<std::ptrdiff_t>(i));
        return std::unique_ptr<Stacks>(new Stacks(std::move(region)));
      }
  }
  auto region = std::make_unique<Region>();
  region->page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  region->count = count;
  void* base =
      ::mmap(nullptr, region->bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  auto failed = [&] {
    return Diagnostic(ErrorCode::OutOfMemory,
                      "stacks for " + std::to_string(count) + " emulated threads: " + std::strerror(errno));
  };
  if (base == MAP_FAILED) return failed();
  region->base = static_cast<std::byte*>(base);
  if (::mprotect(region->base, region->page, PROT_NONE) != 0) return failed();
  return std::unique_ptr<Stacks>(new Stacks(std::move(region)));
}

// ---- switches

#if defined(__SANITIZE_ADDRESS__)
// The sanitizer must know the stack of each fiber, or it reports the switch as an overflow.
static thread_local Fiber* switched_from = nullptr;
void Fiber::arrived(void* fake_stack) {
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
  switched_from->bottom_ = static_cast<std::byte*>(const_cast<void*>(bottom));
  switched_from->bytes_ = bytes;
}
#endif

#if defined(__x86_64__) && !defined(TESSERA_FIBERS_BY_UCONTEXT)

// Saves the callee-saved registers on the current stack and restores them from the other. A new stack holds the same
// seven words: tessera_emu_begin as return address, and in rbx and r12 the argument and the function that it calls.
asm(R"(
  .pushsection .text
  .p2align 4
  .type tessera_emu_switch, @function
tessera_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size tessera_emu_switch, . - tessera_emu_switch
  .p2align 4
  .type tessera_emu_begin, @function
tessera_emu_begin:
  .cfi_startproc
  .cfi_undefined rip
  movq %rbx, %rdi
  call *%r12
  ud2
  .cfi_endproc
  .size tessera_emu_begin, . - tessera_emu_begin
  .popsection
)");
extern "C" {
void tessera_emu_switch(void** save, void* to);
void tessera_emu_begin();
}

void Fiber::start(std::byte* stack_bottom, size_t stack_bytes, void (*entry)(void*), void* argument) {
  unpoison(stack_bottom, stack_bytes);
  bottom_ = stack_bottom;
  bytes_ = stack_bytes;
  auto top = (reinterpret_cast<uintptr_t>(stack_bottom) + stack_bytes) & ~uintptr_t{63};
  auto* word = reinterpret_cast<uint64_t*>(top);
  *--word = 0;
  *--word = 0; // tessera_emu_begin sees an aligned stack
  *--word = reinterpret_cast<uint64_t>(&tessera_emu_begin);
  *--word = 0;                                    // rbp
  *--word = reinterpret_cast<uint64_t>(argument); // rbx
  *--word = reinterpret_cast<uint64_t>(entry);    // r12
  for (int i = 0; i < 3; ++i) *--word = 0;        // r13, r14, r15
  place_ = word;
}

static void switch_places(void*& save, void* to) { tessera_emu_switch(&save, to); }

#else
} // namespace tessera::emu
#include <ucontext.h>
namespace tessera::emu {

// Other processors: the C library's contexts, slower by a system call for each switch.
namespace {
struct Start {
  ucontext_t context;
  void (*entry)(void*);
  void* argument;
};
void begin(unsigned high, unsigned low) {
  auto* s = reinterpret_cast<Start*>((static_cast<uintptr_t>(high) << 32) | low);
  s->entry(s->argument);
}
} // namespace

void Fiber::start(std::byte* stack_bottom, size_t stack_bytes, void (*entry)(void*), void* argument) {
  unpoison(stack_bottom, stack_bytes);
  bottom_ = stack_bottom;
  bytes_ = stack_bytes;
  auto s = std::make_shared<Start>();
  ::getcontext(&s->context);
  s->context.uc_stack.ss_sp = stack_bottom;
  s->context.uc_stack.ss_size = stack_bytes;
  s->context.uc_link = nullptr;
  s->entry = entry;
  s->argument = argument;
  auto address = reinterpret_cast<uintptr_t>(s.get());
  ::makecontext(&s->context, reinterpret_cast<void (*)()>(&begin), 2, static_cast<unsigned>(address >> 32),
                static_cast<unsigned>(address));
  context_ = s;
  place_ = &s->context;
}

static void switch_places(void*& save, void* to) {
  ::swapcontext(static_cast<ucontext_t*>(save), static_cast<ucontext_t*>(to));
}
#endif

void Fiber::switch_from_to(Fiber& from, Fiber& to) {
#if !defined(__x86_64__) || defined(TESSERA_FIBERS_BY_UCONTEXT)
  if (!from.place_) {
    auto s = std::make_shared<Start>();
    from.place_ = &s->context;
    from.context_ = std::move(s);
  }
#endif
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  switched_from = &from;
  __sanitizer_start_switch_fiber(&fake, to.bottom_, to.bytes_);
#endif
  switch_places(from.place_, to.place_);
#if defined(__SANITIZE_ADDRESS__)
  arrived(fake);
#endif
}

void Fiber::entered() {
#if defined(__SANITIZE_ADDRESS__)
  arrived(nullptr);
#endif
}

} // namespace tessera::emu
