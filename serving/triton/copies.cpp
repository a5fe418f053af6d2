#include "serving/triton/copies.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <dlfcn.h>
#include <new>
#include <utility>

namespace tessera::triton {

namespace {
constexpr size_t kAlignment = 64; // bytes: a cache line, and a vector register of the widest
} // namespace

// Functions of libcuda.so.1, and a stream in the primary context of one GPU.
struct Copies::Driver {
  void* library = nullptr;
  decltype(&::cuInit) init = nullptr;
  decltype(&::cuDeviceGet) device_get = nullptr;
  decltype(&::cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&::cuDevicePrimaryCtxRelease) release = nullptr;
  decltype(&::cuCtxPushCurrent) push = nullptr;
  decltype(&::cuCtxPopCurrent) pop = nullptr;
  decltype(&::cuStreamCreate) stream_create = nullptr;
  decltype(&::cuStreamDestroy) stream_destroy = nullptr;
  decltype(&::cuStreamSynchronize) synchronize = nullptr;
  decltype(&::cuMemcpyAsync) copy = nullptr;
  decltype(&::cuGetErrorString) error_string = nullptr;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;

  Driver() = default;
  Driver(const Driver&) = delete;
  ~Driver() {
    if (stream) {
      auto destroyed = in_context("", [&] { return stream_destroy(stream); });
      destroyed.reset(); // there is nobody left to be given it
    }
    if (context) release(device);
    if (library) dlclose(library);
  }

  template <class Function>
  [[nodiscard]] bool find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }
  // The names that cuda.h gives to the versions of these functions that it declares.
  [[nodiscard]] bool find_all() {
    return find("cuInit", init) && find("cuDeviceGet", device_get) && find("cuDevicePrimaryCtxRetain", retain) &&
           find("cuDevicePrimaryCtxRelease_v2", release) && find("cuCtxPushCurrent_v2", push) &&
           find("cuCtxPopCurrent_v2", pop) && find("cuStreamCreate", stream_create) &&
           find("cuStreamDestroy_v2", stream_destroy) && find("cuStreamSynchronize", synchronize) &&
           find("cuMemcpyAsync", copy) && find("cuGetErrorString", error_string);
  }
  [[nodiscard]] Error check(const std::string& what, CUresult result) const {
    if (result == CUDA_SUCCESS) return nullptr;
    const char* text = nullptr;
    if (error_string(result, &text) != CUDA_SUCCESS || text == nullptr) text = "unknown error";
    return make_error(result == CUDA_ERROR_OUT_OF_MEMORY ? TRITONSERVER_ERROR_UNAVAILABLE : TRITONSERVER_ERROR_INTERNAL,
                      "tessera: " + what + ": " + text + " (CUDA error " + std::to_string(result) + ")");
  }
  // Body: () -> CUresult.
  template <class Body>
  [[nodiscard]] Error in_context(const std::string& what, const Body& body) const {
    TESSERA_TRITON_TRY(check(what, push(context)));
    const CUresult result = body();
    CUcontext before = nullptr;
    pop(&before);
    return check(what, result);
  }
};

Error Copies::create(const Place& home, std::unique_ptr<Copies>& out) {
  out.reset(new Copies(home));
  return home.on_gpu() ? out->open_driver(home.device) : nullptr;
}

Copies::Copies(const Place& home) : home_(home) {}
Copies::~Copies() = default;

void* Copies::stream() const { return home_.on_gpu() && driver_ ? driver_->stream : nullptr; }

Error Copies::open_driver(int64_t gpu) {
  auto d = std::make_unique<Driver>();
  d->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (d->library == nullptr || !d->find_all())
    return make_error(TRITONSERVER_ERROR_UNAVAILABLE,
                      "tessera: memory of a GPU, and no driver of NVIDIA's: libcuda.so.1 cannot be opened, or is too "
                      "old");
  TESSERA_TRITON_TRY(d->check("opening the driver", d->init(0)));
  TESSERA_TRITON_TRY(d->check("opening GPU " + std::to_string(gpu), d->device_get(&d->device, static_cast<int>(gpu))));
  TESSERA_TRITON_TRY(d->check("opening GPU " + std::to_string(gpu), d->retain(&d->context, d->device)));
  TESSERA_TRITON_TRY(
      d->in_context("creating a stream", [&] { return d->stream_create(&d->stream, CU_STREAM_NON_BLOCKING); }));
  driver_ = std::move(d);
  return nullptr;
}

Error Copies::copy(void* to, const Place& to_place, const void* from, const Place& from_place, size_t bytes) {
  if (bytes == 0 || to == from) return nullptr;
  if (!to_place.on_gpu() && !from_place.on_gpu()) {
    std::memcpy(to, from, bytes);
    return nullptr;
  }
  if (!driver_) TESSERA_TRITON_TRY(open_driver(to_place.on_gpu() ? to_place.device : from_place.device));
  // Addresses are unique in the process, so that the driver knows the kinds of memory.
  return driver_->in_context("copying " + std::to_string(bytes) + " bytes", [&] {
    return driver_->copy(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), bytes,
                         driver_->stream);
  });
}

Error Copies::wait() {
  if (!driver_) return nullptr;
  return driver_->in_context("waiting for the GPU", [&] { return driver_->synchronize(driver_->stream); });
}

Block::Block(Block&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), memory_(std::exchange(other.memory_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

void Block::release() {
  if (memory_ != nullptr) {
    tessera_memory_free(std::exchange(memory_, nullptr));
  } else {
    std::free(data_);
  }
  data_ = nullptr;
  bytes_ = 0;
}

Error Block::reserve(const tessera_session* session, const Copies& copies, size_t bytes) {
  if (data_ != nullptr && bytes <= bytes_) return nullptr;
  const size_t grown = std::max({bytes, bytes_ + bytes_ / 2, kAlignment});
  const size_t whole = (grown + kAlignment - 1) / kAlignment * kAlignment;
  release();
  if (copies.home().on_gpu()) {
    void* data = nullptr;
    TESSERA_TRITON_TRY(from_tessera(tessera_memory_create(session, whole, copies.stream(), &memory_, &data)));
    data_ = static_cast<std::byte*>(data);
  } else {
    data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole));
    if (data_ == nullptr) throw std::bad_alloc();
  }
  bytes_ = whole;
  return nullptr;
}

} // namespace tessera::triton
