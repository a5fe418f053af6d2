#include "base/mapped_file.h"
#include "base/absolute_path.h"
#include <csignal>
#include <cstring>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

namespace tessera {

// A mapped range as the signal handler reads it. Regions are never freed but reused; begin is 0 in a free one.
struct MappedFile::Region {
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<bool> broken{false};
  Region* next = nullptr;
  static std::atomic<Region*> all;
};
std::atomic<MappedFile::Region*> MappedFile::Region::all{nullptr};

namespace {

struct Known {
  std::mutex mutex;
  std::map<uintptr_t, std::weak_ptr<const MappedFile>> by_end;
};
Known& known() { // as long as the process: storage is also in static objects
  static auto* const one = new Known;
  return *one;
}

struct sigaction before {};
uintptr_t page_bytes = 4096;

} // namespace

std::shared_ptr<const MappedFile> MappedFile::remember(const std::string& path, const struct stat& there,
                                                       const void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  std::shared_ptr<MappedFile> file(new MappedFile); // before the lock, which its destructor takes where memory runs out
  file->path_ = absolute_path(path);
  file->there_ = there;
  const std::lock_guard lock(known().mutex);
  static const bool handles = [] {
    page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction act {};
    act.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    // Calls only what a handler may call.
    act.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
      const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
      for (Region* r = Region::all.load(std::memory_order_acquire); r; r = r->next) {
        const uintptr_t from = r->begin.load(std::memory_order_acquire);
        if (from == 0 || address < from || address >= r->end.load(std::memory_order_acquire)) continue;
        r->broken.store(true, std::memory_order_release);
        void* page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
        if (::mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page) return;
        break;
      }
      if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction) return before.sa_sigaction(signal, info, context);
      if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(signal);
      ::signal(signal, SIG_DFL); // the fault occurs again when this returns
    };
    return ::sigaction(SIGBUS, &act, &before) == 0;
  }();
  if (handles) {
    Region* region = Region::all.load(std::memory_order_acquire);
    while (region && region->begin.load(std::memory_order_relaxed) != 0) region = region->next;
    if (!region) {
      region = new Region;
      region->next = Region::all.load(std::memory_order_relaxed);
      Region::all.store(region, std::memory_order_release);
    }
    region->broken.store(false, std::memory_order_relaxed);
    region->end.store(begin + bytes, std::memory_order_relaxed);
    region->begin.store(begin, std::memory_order_release);
    file->region_ = region;
  }
  known().by_end[begin + bytes] = file;
  return file;
}

std::shared_ptr<const MappedFile> MappedFile::at(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  std::shared_ptr<const MappedFile> file; // outlives the lock, which its destructor takes where this is the last owner
  const std::lock_guard lock(known().mutex);
  const auto it = known().by_end.upper_bound(address);
  if (it == known().by_end.end()) return nullptr;
  file = it->second.lock();
  return file && file->region_ && address >= file->region_->begin.load(std::memory_order_relaxed) ? file : nullptr;
}

Status MappedFile::unchanged() const {
  struct stat now {};
  const bool same_file = ::stat(path_.c_str(), &now) == 0 && now.st_dev == there_.st_dev && now.st_ino == there_.st_ino;
  const bool written = same_file && (now.st_size != there_.st_size || now.st_mtim.tv_sec != there_.st_mtim.tv_sec ||
                                     now.st_mtim.tv_nsec != there_.st_mtim.tv_nsec);
  if (!written && !(region_ && region_->broken.load(std::memory_order_acquire))) return {};
  return Diagnostic(ErrorCode::CorruptFile, Location{.file = path_}, "was written in place since the model was loaded")
      .note("load the model again; a file that is in use is replaced by renaming a new one over it (cp new.tmp, mv)");
}

MappedFile::~MappedFile() {
  const std::lock_guard lock(known().mutex);
  if (!region_) return;
  known().by_end.erase(region_->end.load(std::memory_order_relaxed));
  region_->begin.store(0, std::memory_order_release);
}

} // namespace tessera
