#include "plan_harness.h"
#include "codegen/load/resolve_host_step.h"
#include "driver.h"
#include "plan_mutator.h"
#include "runtime/file_format.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

// Absurd sizes are an error of the allocation, not a gigabyte of shadow memory.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=1024:detect_leaks=0";
}

namespace tessera::fuzz {
namespace {
using Json = nlohmann::json;

// Memory that ends at a page that cannot be touched.
class GuardedMemory {
public:
  explicit GuardedMemory(size_t most) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    bytes_ = (most + page - 1) / page * page;
    void* p = ::mmap(nullptr, bytes_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TESSERA_CHECK(p != MAP_FAILED, "no memory");
    data_ = static_cast<std::byte*>(p);
    TESSERA_CHECK(::mprotect(data_ + bytes_, page, PROT_NONE) == 0, "no guard page");
  }
  // The address of `bytes` bytes that end at the page.
  std::byte* last(size_t bytes) { return data_ + bytes_ - bytes; }
  void allow_writes(bool yes) {
    TESSERA_CHECK(::mprotect(data_, bytes_, yes ? PROT_READ | PROT_WRITE : PROT_READ) == 0, "pages keep their access");
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

private: // never unmapped: executables look into it
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

Tensor guarded(DType dtype, const Dims& dims, const void* value, bool writable) {
  auto bytes = static_cast<size_t>(byte_size(dtype, element_count(dims).value()));
  auto* memory = new GuardedMemory(std::max<size_t>(bytes, 1)); // kept until the process ends
  if (value && bytes > 0) std::memcpy(memory->last(bytes), value, bytes);
  if (!writable) memory->allow_writes(false);
  return Tensor::view(dtype, dims, Storage{std::make_shared<int>(0), memory->last(bytes), bytes});
}

// The calling thread.
class OneThread final : public ThreadPool {
public:
  [[nodiscard]] int threads() const override { return 1; }
  void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t, int)>& body) override {
    for (int64_t at = 0; at < n; at += grain) {
      body(at, std::min(n, at + grain), 0);
      if (grain > n - at) break;
    }
  }
};

class Subject {
public:
  explicit Subject(PlanModel model) : model_(std::move(model)) {
    add_functions(*model_.executable);
    for (auto& [name, t] : model_.inputs) t = guarded(t.dtype(), t.dims(), t.data(), false);
    read_back();
    auto first = run(plan_, false);
    TESSERA_CHECK(first.ok(), model_.name + ": " + first.error().str());
    expected_ = std::move(*first);
    for (const Tensor& t : expected_) outputs_.push_back(guarded(t.dtype(), t.dims(), nullptr, true));
  }

  void add_functions(const Executable& executable) {
    for (const auto& step : executable.steps) {
      auto add = [&](const KernelLaunch& k) { functions_[k.symbol] = k.function; };
      if (const auto* k = std::get_if<KernelLaunch>(&step)) add(*k);
      if (const auto* l = std::get_if<LibraryStep>(&step))
        std::visit(
            [&](const auto& call) {
              if constexpr (requires { call.epilogue; })
                if (call.epilogue) add(call.epilogue->kernel);
            },
            l->call);
      if (const auto* c = std::get_if<ControlStep>(&step))
        for (const auto& body : c->bodies) add_functions(*body.executable);
    }
  }

  void test(uint64_t number) {
    if (number == 0) {
      auto again = run(plan_, true);
      TESSERA_CHECK(again.ok(), model_.name + ": " + again.error().str());
      for (size_t o = 0; o < expected_.size(); ++o)
        TESSERA_CHECK(compare((*again)[o], expected_[o], 0, 0).same, "the same plan gives the same results");
      return;
    }
    std::mt19937_64 rng(number);
    Json plan = plan_;
    mutate(plan, rng);
    if (std::getenv("TESSERA_FUZZ_SHOW"))
      std::fprintf(stderr, "%s\n", Json::diff(plan_, plan).dump(1, ' ', false, Json::error_handler_t::replace).c_str());
    auto done = run(plan, rng() % 2 == 0);
    if (std::getenv("TESSERA_FUZZ_SHOW"))
      std::fprintf(stderr, "%s\n", done.ok() ? "it ran" : done.error().str().c_str());
    if (done.ok()) return;
    TESSERA_CHECK(!done.error().message.empty(), "an error says something");
    TESSERA_CHECK(done.error().str().find("json.exception") == std::string::npos, done.error().str());
  }

private:
  void read_back() {
    auto path = std::filesystem::temp_directory_path() / ("tessera_plan_fuzz_" + std::to_string(::getpid()));
    auto saved = save_executable(*model_.executable, path.string(), true);
    TESSERA_CHECK(saved.ok(), model_.name + ": " + saved.error().str());
    std::ifstream in(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    std::filesystem::remove(path);
    std::memcpy(&header_, bytes.data(), sizeof header_);
    const char* body = bytes.data() + sizeof header_;
    plan_ = Json::parse(body, body + header_.plan_bytes);
    code_.assign(body + header_.plan_bytes, header_.code_bytes);
    size_t objects_at = file::aligned(sizeof header_ + header_.plan_bytes + header_.code_bytes);
    objects_.assign(bytes, objects_at, sizeof header_ + header_.hashed_bytes - objects_at);
    weights_.assign(bytes, sizeof header_ + header_.hashed_bytes);
    constexpr size_t kMaxPlan = 1 << 20;
    file_ = new GuardedMemory(bytes.size() + kMaxPlan);
  }

  // The file with this plan, and the hash that fits.
  Storage file_of(const Json& plan) {
    std::string text = plan.dump(-1, ' ', false, Json::error_handler_t::replace);
    file::Header h = header_;
    h.plan_bytes = text.size();
    std::string bytes(reinterpret_cast<const char*>(&h), sizeof h);
    bytes += text + code_;
    bytes.resize(file::aligned(bytes.size()));
    bytes += objects_;
    h.hashed_bytes = bytes.size() - sizeof h;
    bytes += weights_;
    h.file_bytes = bytes.size();
    h.hash = file::contents_hash(h, std::string_view(bytes).substr(sizeof h, h.hashed_bytes));
    std::memcpy(bytes.data(), &h, sizeof h);
    std::byte* at = file_->last(bytes.size());
    file_->allow_writes(true);
    std::memcpy(at, bytes.data(), bytes.size());
    file_->allow_writes(false);
    return {std::make_shared<int>(0), at, bytes.size()};
  }

  Result<std::vector<Tensor>> run(const Json& plan, bool into_outputs) {
    LinkFn link = [this](const Executable&) -> Result<LinkedCode> {
      return LinkedCode{nullptr, [this](const std::string& symbol) {
                          auto it = functions_.find(symbol);
                          return it == functions_.end() ? nullptr : it->second;
                        }};
    };
    TESSERA_ASSIGN(auto loaded, load_executables(file_of(plan), "model.tsr", link, resolve_host_step));
    std::vector<std::shared_ptr<const Executable>> variants;
    for (auto& v : loaded) variants.push_back(std::move(v.executable));
    static const auto pool = std::make_shared<OneThread>();
    ExecutorOptions options;
    options.pool = pool;
    options.poison = true;
    options.memory_limit = 64 << 20;
    TESSERA_ASSIGN(auto executor, Executor::create(std::move(variants), options));
    auto outputs = outputs_;
    return executor->run(model_.inputs, nullptr, into_outputs && !outputs.empty() ? &outputs : nullptr);
  }

  PlanModel model_;
  std::map<std::string, HostKernelFn> functions_;
  file::Header header_;
  Json plan_;
  std::string code_, objects_, weights_; // of the saved file, as it lies there
  GuardedMemory* file_ = nullptr;
  std::vector<Tensor> expected_, outputs_;
};

Subject& subject(const std::string& name) {
  static auto* subjects = [] {
#ifndef __SANITIZE_ADDRESS__
    rlimit most{RLIM_INFINITY, RLIM_INFINITY};
    ::getrlimit(RLIMIT_AS, &most);
    most.rlim_cur = std::min<rlim_t>(most.rlim_max, rlim_t{4} << 30);
    ::setrlimit(RLIMIT_AS, &most);
#endif
    auto* all = new std::map<std::string, Subject>;
    for (auto& model : plan_models()) {
      auto name = model.name;
      all->try_emplace(name, std::move(model));
    }
    return all;
  }();
  auto it = subjects->find(name);
  TESSERA_CHECK(it != subjects->end(), "there is no model '" + name + "'");
  return it->second;
}

} // namespace
} // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  auto space = text.find(' ');
  if (space == std::string::npos) return 0;
  tessera::fuzz::subject(text.substr(0, space)).test(std::strtoull(text.c_str() + space, nullptr, 10));
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned int seed) {
  std::string text(reinterpret_cast<const char*>(data), size);
  text = text.substr(0, text.find(' ')) + " " + std::to_string(seed);
  size = std::min(most, text.size());
  std::memcpy(data, text.data(), size);
  return size;
}
