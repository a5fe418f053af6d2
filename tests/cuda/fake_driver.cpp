#include "fake_driver.h"
#include <algorithm>
#include <cstring>

namespace tessera::test {
namespace {

FakeGpu* gpu = nullptr; // the driver's functions have no argument to find it by
thread_local std::vector<CUcontext> current;
thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
int context_object, pool_object;
uintptr_t next_graph = 0x2000000;

} // namespace

CUresult FakeGpu::enter(const char* function, bool needs_context) {
  ++calls[function];
  if (auto f = faults_.find(function); f != faults_.end() && f->second.countdown-- <= 0) {
    auto result = f->second.result;
    if (--f->second.times == 0) faults_.erase(f);
    if (cuda::is_sticky(result)) broken_ = result;
    return result;
  }
  if (broken_ != CUDA_SUCCESS && needs_context) return broken_;
  if (needs_context && current.empty()) {
    ADD_FAILURE() << function << " without a current context";
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return CUDA_SUCCESS;
}

CUresult FakeGpu::put(CUstream stream, Work body) {
  if (const Capture* capture = capture_of(stream)) {
    if (capture->failed) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    graphs_.at(capture->graph).work.push_back(std::move(body));
    return CUDA_SUCCESS;
  }
  streams_[stream].push_back({std::move(body), nullptr, 0});
  return CUDA_SUCCESS;
}

CUresult FakeGpu::put(CUstream stream, MemoryNode node, Work body) {
  node.from_number = number_of(node.from);
  node.to_number = number_of(node.to);
  if (const Capture* capture = capture_of(stream)) graphs_.at(capture->graph).nodes->push_back(node);
  return put(stream, std::move(body));
}

FakeGpu::Capture* FakeGpu::capture_of(void* stream) {
  const auto found = captures_.find(stream);
  return found == captures_.end() ? nullptr : found->second.get();
}

CUresult FakeGpu::conflict(void* stream) {
  Capture* capture = capture_of(stream);
  if (!capture) return CUDA_SUCCESS;
  capture->failed = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult FakeGpu::unsafe() {
  CUresult result = CUDA_SUCCESS;
  for (auto& [stream, capture] : captures_) {
    const bool own = capture->thread == std::this_thread::get_id() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool other = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED || (!own && !other)) continue;
    capture->failed = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

namespace {
// The caller's own.
class WithContext {
public:
  explicit WithContext(const cuda::Driver& driver) : driver_(driver) { (void)driver_.cuCtxPushCurrent(nullptr); }
  ~WithContext() {
    CUcontext popped = nullptr;
    (void)driver_.cuCtxPopCurrent(&popped);
  }
  WithContext(const WithContext&) = delete;
  WithContext& operator=(const WithContext&) = delete;

private:
  const cuda::Driver& driver_;
};
} // namespace

void FakeGpu::begin_capture(void* stream, CUstreamCaptureMode how) {
  const WithContext context(*driver_);
  EXPECT_EQ(driver_->cuStreamBeginCapture(static_cast<CUstream>(stream), how), CUDA_SUCCESS);
}

CUgraphExec FakeGpu::end_capture(void* stream) {
  const WithContext context(*driver_);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  if (driver_->cuStreamEndCapture(static_cast<CUstream>(stream), &graph) != CUDA_SUCCESS) return nullptr;
  EXPECT_EQ(driver_->cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(driver_->cuGraphDestroy(graph), CUDA_SUCCESS);
  return exec;
}

void FakeGpu::replay(CUgraphExec graph, void* stream) {
  const std::lock_guard lock(mutex_);
  for (const auto& work : graphs_.at(graph).work) put(static_cast<CUstream>(stream), work);
}

void FakeGpu::drop(CUgraphExec graph) { EXPECT_EQ(driver_->cuGraphExecDestroy(graph), CUDA_SUCCESS); }

CUresult FakeGpu::run(void* stream, const Event* until, uint64_t sequence) {
  while (broken_ == CUDA_SUCCESS && !(until && until->passed >= sequence)) {
    auto& queue = streams_[stream];
    if (queue.empty()) break;
    auto operation = std::move(queue.front());
    queue.pop_front();
    clock_ += 0.5;
    if (operation.event) {
      operation.event->passed = operation.sequence;
      operation.event->at = clock_;
    } else if (auto result = operation.body(); result != CUDA_SUCCESS) {
      broken_ = result;
    }
  }
  return broken_;
}

void FakeGpu::run_all() {
  const std::lock_guard lock(mutex_);
  std::vector<void*> all;
  for (auto& [stream, queue] : streams_) all.push_back(stream);
  for (auto* s : all) run(s);
}

void FakeGpu::repair() {
  broken_ = CUDA_SUCCESS;
  for (auto& [stream, queue] : streams_) queue.clear();
  for (auto [p, bytes] : pinned_) std::free(reinterpret_cast<void*>(p));
  pinned_.clear();
}

bool FakeGpu::alive(uint64_t address, size_t bytes) const {
  if (bytes == 0) return true;
  if (auto p = pinned_.upper_bound(address); p != pinned_.begin())
    if (--p; address + bytes <= p->first + p->second) return true;
  auto it = allocations_.upper_bound(address);
  if (it == allocations_.begin()) return false;
  --it;
  return !it->second.freed && address + bytes <= it->first + it->second.bytes;
}

uint64_t FakeGpu::number_of(uint64_t address) const {
  auto it = allocations_.upper_bound(address);
  return it != allocations_.begin() && alive(address, 1) ? std::prev(it)->second.number : 0;
}

int64_t FakeGpu::live_bytes() const {
  int64_t n = 0;
  for (const auto& [address, a] : allocations_)
    if (!a.freed) n += static_cast<int64_t>(a.bytes);
  return n;
}

CUresult FakeGpu::allocate_for(CUdeviceptr* out, size_t bytes) {
  if (static_cast<size_t>(live_bytes()) + bytes > memory) return CUDA_ERROR_OUT_OF_MEMORY;
  void* p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(p, 0xCD, bytes);
  *out = reinterpret_cast<CUdeviceptr>(p);
  allocations_[*out] = {bytes, false, ++last_allocation_};
  graveyard_.push_back(p);
  return CUDA_SUCCESS;
}

CUresult FakeGpu::release(uint64_t address) {
  auto it = allocations_.find(address);
  if (it == allocations_.end() || it->second.freed) {
    ADD_FAILURE() << "freed twice, or never allocated";
    return CUDA_ERROR_INVALID_VALUE;
  }
  it->second.freed = true;
  std::memset(reinterpret_cast<void*>(address), 0xDD, it->second.bytes);
  return CUDA_SUCCESS;
}

uint64_t FakeGpu::allocate(size_t bytes) {
  CUdeviceptr p = 0;
  EXPECT_EQ(allocate_for(&p, bytes), CUDA_SUCCESS);
  return p;
}

void FakeGpu::reallocate(uint64_t address) {
  EXPECT_EQ(release(address), CUDA_SUCCESS);
  Allocation& again = allocations_.at(address);
  again.freed = false;
  again.number = ++last_allocation_;
}

void FakeGpu::kernel(const std::string& name, size_t params, Body body, size_t maps) {
  kernels_[name] = std::make_unique<Kernel>(Kernel{name, params, std::move(body), maps});
}

std::shared_ptr<cuda::Context> FakeGpu::context() {
  auto c = cuda::Context::create(driver_);
  EXPECT_TRUE(c.ok()) << c.error().str();
  return c.ok() ? *c : nullptr;
}

// The functions of the table.
struct FakeCalls {
// One call at a time: streams, graphs and memory are those of all threads.
#define ENTER(function)                                                                                                \
  const std::lock_guard one_call(gpu->mutex_);                                                                         \
  if (auto r = gpu->enter(#function); r != CUDA_SUCCESS) return r
// Enters a function that captures forbid.
#define ENTER_UNSAFE(function)                                                                                         \
  const std::lock_guard one_call(gpu->mutex_);                                                                         \
  if (auto r = gpu->enter(#function); r != CUDA_SUCCESS) return r;                                                     \
  if (auto r = gpu->unsafe(); r != CUDA_SUCCESS) return r
// Refuses a function that a captured stream does not take.
#define REFUSE_CAPTURED(stream)                                                                                        \
  if (auto r = gpu->conflict(stream); r != CUDA_SUCCESS) return r
#define ENTER_WITHOUT_CONTEXT(function)                                                                                \
  const std::lock_guard one_call(gpu->mutex_);                                                                         \
  if (auto r = gpu->enter(#function, false); r != CUDA_SUCCESS) return r

  static CUresult Init(unsigned) {
    ENTER_WITHOUT_CONTEXT(cuInit);
    return gpu->devices > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
  }
  static CUresult DriverGetVersion(int* v) {
    *v = 13000;
    return CUDA_SUCCESS;
  }
  static CUresult GetErrorName(CUresult r, const char** name) {
    switch (r) {
    case CUDA_ERROR_ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    default: *name = nullptr; return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  }
  static CUresult GetErrorString(CUresult, const char** text) {
    *text = "words of the fake";
    return CUDA_SUCCESS;
  }
  static CUresult DeviceGetCount(int* n) {
    *n = gpu->devices;
    return CUDA_SUCCESS;
  }
  static CUresult DeviceGet(CUdevice* d, int ordinal) {
    *d = ordinal;
    return CUDA_SUCCESS;
  }
  static CUresult DeviceGetName(char* name, int length, CUdevice) {
    std::strncpy(name, "Fake GPU", static_cast<size_t>(length));
    return CUDA_SUCCESS;
  }
  static CUresult DeviceGetAttribute(int* v, CUdevice_attribute which, CUdevice) {
    switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = gpu->major; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *v = gpu->minor; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *v = 132; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *v = 1024; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *v = 50 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *v = 227 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *v = 48 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *v = gpu->pools; break;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: *v = gpu->cooperative; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  }
  static CUresult DeviceTotalMem(size_t* bytes, CUdevice) {
    *bytes = gpu->memory;
    return CUDA_SUCCESS;
  }
  static CUresult PrimaryCtxRetain(CUcontext* c, CUdevice) {
    ++gpu->retained_;
    *c = reinterpret_cast<CUcontext>(&context_object);
    return CUDA_SUCCESS;
  }
  static CUresult PrimaryCtxRelease(CUdevice) {
    --gpu->retained_;
    return CUDA_SUCCESS;
  }
  static CUresult CtxPushCurrent(CUcontext c) {
    current.push_back(c);
    return CUDA_SUCCESS;
  }
  static CUresult CtxPopCurrent(CUcontext* c) {
    EXPECT_FALSE(current.empty());
    *c = current.back();
    current.pop_back();
    return CUDA_SUCCESS;
  }
  static CUresult MemGetInfo(size_t* free, size_t* total) {
    ENTER(cuMemGetInfo);
    *total = gpu->memory;
    *free = gpu->memory - static_cast<size_t>(gpu->live_bytes());
    return CUDA_SUCCESS;
  }
  static CUresult MemAlloc(CUdeviceptr* p, size_t bytes) {
    ENTER_UNSAFE(cuMemAlloc);
    return gpu->allocate_for(p, bytes);
  }
  static CUresult MemFree(CUdeviceptr p) {
    ENTER_UNSAFE(cuMemFree);
    gpu->run_all(); // as the driver does
    return gpu->release(p);
  }
  static CUresult MemHostAlloc(void** p, size_t bytes, unsigned) {
    ENTER_UNSAFE(cuMemHostAlloc);
    *p = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    std::memset(*p, 0xCE, bytes);
    gpu->pinned_[reinterpret_cast<uint64_t>(*p)] = bytes;
    return CUDA_SUCCESS;
  }
  static CUresult MemHostGetDevicePointer(CUdeviceptr* out, void* p, unsigned) {
    ENTER(cuMemHostGetDevicePointer);
    *out = reinterpret_cast<CUdeviceptr>(p);
    return CUDA_SUCCESS;
  }
  static CUresult MemFreeHost(void* p) {
    ENTER_UNSAFE(cuMemFreeHost);
    EXPECT_EQ(gpu->pinned_.erase(reinterpret_cast<uint64_t>(p)), 1u);
    std::free(p);
    return CUDA_SUCCESS;
  }
  static CUresult MemPoolCreate(CUmemoryPool* p, const CUmemPoolProps*) {
    ENTER_UNSAFE(cuMemPoolCreate);
    *p = reinterpret_cast<CUmemoryPool>(&pool_object);
    return CUDA_SUCCESS;
  }
  static CUresult MemPoolDestroy(CUmemoryPool) { return CUDA_SUCCESS; }
  static CUresult MemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void*) {
    ENTER(cuMemPoolSetAttribute);
    return CUDA_SUCCESS;
  }
  static CUresult MemPoolTrimTo(CUmemoryPool, size_t) {
    ENTER_UNSAFE(cuMemPoolTrimTo);
    return CUDA_SUCCESS;
  }
  static CUresult MemAllocFromPoolAsync(CUdeviceptr* p, size_t bytes, CUmemoryPool, CUstream s) {
    ENTER(cuMemAllocFromPoolAsync);
    EXPECT_FALSE(gpu->capture_of(s)) << "memory of a graph, which lives as long as one run of it";
    return gpu->allocate_for(p, bytes);
  }
  static CUresult MemFreeAsync(CUdeviceptr p, CUstream s) {
    ENTER(cuMemFreeAsync);
    EXPECT_FALSE(gpu->capture_of(s)) << "a graph frees memory that is not its own";
    return gpu->put(s, [p] { return gpu->release(p); });
  }
  static CUresult MemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream s) {
    ENTER(cuMemcpyHtoDAsync);
    EXPECT_TRUE(!gpu->capture_of(s) || gpu->pinned(from)) << "a graph reads memory of the host that may be gone";
    return gpu->put(s, [=] {
      EXPECT_TRUE(gpu->alive(to, bytes)) << "a copy outside of device memory";
      std::memcpy(reinterpret_cast<void*>(to), from, bytes);
      return CUDA_SUCCESS;
    });
  }
  static CUresult MemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream s) {
    ENTER(cuMemcpyDtoHAsync);
    EXPECT_TRUE(!gpu->capture_of(s) || gpu->pinned(to)) << "a graph writes memory of the host that may be gone";
    return gpu->put(s, [=] {
      EXPECT_TRUE(gpu->alive(from, bytes)) << "a copy outside of device memory";
      std::memcpy(to, reinterpret_cast<void*>(from), bytes);
      return CUDA_SUCCESS;
    });
  }
  static CUresult MemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
    ENTER(cuMemcpyDtoDAsync);
    return gpu->put(s, {CU_GRAPH_NODE_TYPE_MEMCPY, from, to}, [=] {
      EXPECT_TRUE(gpu->alive(from, bytes) && gpu->alive(to, bytes)) << "a copy outside of device memory";
      std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
      return CUDA_SUCCESS;
    });
  }
  static CUresult MemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream s) {
    ENTER(cuMemsetD8Async);
    return gpu->put(s, {CU_GRAPH_NODE_TYPE_MEMSET, 0, to}, [=] {
      EXPECT_TRUE(gpu->alive(to, bytes)) << "a fill outside of device memory";
      std::memset(reinterpret_cast<void*>(to), value, bytes);
      return CUDA_SUCCESS;
    });
  }
  static CUresult StreamCreate(CUstream* s, unsigned flags, int) {
    ENTER(cuStreamCreateWithPriority);
    EXPECT_EQ(flags, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
    static uintptr_t next = 0x1000;
    *s = reinterpret_cast<CUstream>(next += 0x10);
    gpu->streams_[*s];
    return CUDA_SUCCESS;
  }
  static CUresult StreamDestroy(CUstream s) {
    ENTER(cuStreamDestroy);
    gpu->run(s);
    gpu->streams_.erase(s);
    return CUDA_SUCCESS;
  }
  static CUresult StreamSynchronize(CUstream s) {
    ENTER_UNSAFE(cuStreamSynchronize);
    REFUSE_CAPTURED(s);
    return gpu->run(s);
  }
  static CUresult StreamGetId(CUstream s, unsigned long long* id) {
    ENTER(cuStreamGetId);
    REFUSE_CAPTURED(s);
    *id = reinterpret_cast<uintptr_t>(s);
    return CUDA_SUCCESS;
  }
  static CUresult StreamWaitEvent(CUstream s, CUevent e, unsigned) {
    ENTER(cuStreamWaitEvent);
    auto* event = reinterpret_cast<FakeGpu::Event*>(e);
    const auto capture = gpu->captures_.find(s);
    if (event->capture != 0) { // the stream joins the capture
      for (auto& [from, its] : gpu->captures_)
        if (its->id == event->capture) {
          gpu->captures_[s] = its;
          return its->failed ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
        }
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (capture != gpu->captures_.end() && event->recorded != 0) {
      capture->second->failed = true;
      return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    return gpu->put(
        s, [event, from = event->stream, sequence = event->recorded] { return gpu->run(from, event, sequence); });
  }
  static CUresult LaunchHostFunc(CUstream s, CUhostFn function, void* data) {
    ENTER(cuLaunchHostFunc);
    return gpu->put(s, [function, data] {
      function(data);
      return CUDA_SUCCESS;
    });
  }
  static CUresult StreamIsCapturing(CUstream s, CUstreamCaptureStatus* status) {
    ENTER(cuStreamIsCapturing);
    const auto* capture = gpu->capture_of(s);
    *status = !capture          ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->failed ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  }
  static CUresult CaptureInfo(CUstream s, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                              const CUgraphNode**, size_t*) {
    if (auto r = StreamIsCapturing(s, status); r != CUDA_SUCCESS || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
      return r;
    *id = gpu->capture_of(s)->id;
    *graph = gpu->capture_of(s)->graph;
    return CUDA_SUCCESS;
  }
  static CUresult ThreadExchangeStreamCaptureMode(CUstreamCaptureMode* exchanged) {
    std::swap(*exchanged, mode);
    return CUDA_SUCCESS;
  }
  static CUresult StreamBeginCapture(CUstream s, CUstreamCaptureMode how) {
    ENTER(cuStreamBeginCapture);
    if (gpu->capture_of(s)) return CUDA_ERROR_ILLEGAL_STATE;
    auto capture = std::make_shared<FakeGpu::Capture>();
    capture->id = ++gpu->last_capture_;
    capture->mode = how;
    capture->thread = std::this_thread::get_id();
    capture->graph = graph_of<CUgraph>({});
    gpu->captures_[s] = std::move(capture);
    return CUDA_SUCCESS;
  }
  template <class Handle>
  static Handle graph_of(FakeGpu::Graph graph) {
    auto* handle = reinterpret_cast<Handle>(next_graph += 0x10);
    gpu->graphs_[handle] = std::move(graph);
    return handle;
  }
  static CUresult StreamEndCapture(CUstream s, CUgraph* graph) {
    const auto capture = gpu->captures_.extract(s); // also where it then fails
    if (!capture.empty()) std::erase_if(gpu->captures_, [&](const auto& c) { return c.second == capture.mapped(); });
    auto fails = [&](CUresult result) {
      if (!capture.empty()) gpu->graphs_.erase(capture.mapped()->graph);
      return result;
    };
    const std::lock_guard one_call(gpu->mutex_);
    if (const auto r = gpu->enter("cuStreamEndCapture"); r != CUDA_SUCCESS) return fails(r);
    if (capture.empty()) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture.mapped()->failed) return fails(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    *graph = capture.mapped()->graph;
    return CUDA_SUCCESS;
  }
  static CUresult GraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
    ENTER(cuGraphInstantiateWithFlags);
    *exec = graph_of<CUgraphExec>(gpu->graphs_.at(graph));
    return CUDA_SUCCESS;
  }
  static CUresult GraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo*) {
    ENTER(cuGraphExecUpdate);
    if (gpu->graphs_.at(exec).work.size() != gpu->graphs_.at(graph).work.size())
      return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    gpu->graphs_.at(exec) = gpu->graphs_.at(graph);
    return CUDA_SUCCESS;
  }
  static CUresult GraphLaunch(CUgraphExec exec, CUstream s) {
    ENTER(cuGraphLaunch);
    REFUSE_CAPTURED(s);
    for (const auto& node : *gpu->graphs_.at(exec).nodes)
      EXPECT_TRUE(gpu->number_of(node.from) == node.from_number && gpu->number_of(node.to) == node.to_number)
          << "a graph copies or fills memory that was freed since it was captured";
    for (const auto& work : gpu->graphs_.at(exec).work) gpu->put(s, work);
    return CUDA_SUCCESS;
  }
  static CUresult GraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
    ENTER(cuGraphGetNodes);
    auto& all = *gpu->graphs_.at(graph).nodes;
    *count = all.size();
    for (size_t i = 0; nodes && i < all.size(); ++i) nodes[i] = reinterpret_cast<CUgraphNode>(&all[i]);
    return CUDA_SUCCESS;
  }
  static FakeGpu::MemoryNode& node_of(CUgraphNode node) { return *reinterpret_cast<FakeGpu::MemoryNode*>(node); }
  static CUresult GraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
    *type = node_of(node).type;
    return CUDA_SUCCESS;
  }
  static CUresult GraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* copy) {
    copy->srcMemoryType = copy->dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy->srcDevice = node_of(node).from;
    copy->dstDevice = node_of(node).to;
    return CUDA_SUCCESS;
  }
  static CUresult GraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* fill) {
    fill->dst = node_of(node).to;
    return CUDA_SUCCESS;
  }
  static CUresult PointerGetAttribute(void* value, CUpointer_attribute which, CUdeviceptr address) {
    ENTER(cuPointerGetAttribute);
    EXPECT_EQ(which, CU_POINTER_ATTRIBUTE_BUFFER_ID);
    const uint64_t number = gpu->number_of(address);
    if (number == 0) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(value, &number, sizeof number);
    return CUDA_SUCCESS;
  }
  template <class Handle>
  static CUresult GraphGone(Handle graph) {
    EXPECT_EQ(gpu->graphs_.erase(graph), 1u);
    return CUDA_SUCCESS;
  }
  static CUresult UserObjectCreate(CUuserObject* object, void* data, CUhostFn destroy, unsigned count, unsigned flags) {
    ENTER(cuUserObjectCreate);
    EXPECT_EQ(count, 1u);
    EXPECT_EQ(flags, static_cast<unsigned>(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    *object = reinterpret_cast<CUuserObject>(next_graph += 0x10);
    gpu->objects_[*object] = {destroy, data};
    return CUDA_SUCCESS;
  }
  static CUresult UserObjectRelease(CUuserObject object, unsigned) {
    auto released = gpu->objects_.extract(object);
    released.mapped().first(released.mapped().second);
    return CUDA_SUCCESS;
  }
  static CUresult GraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
    ENTER(cuGraphRetainUserObject);
    EXPECT_EQ(count, 1u);
    EXPECT_EQ(flags, static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE));
    gpu->graphs_.at(graph).owned->objects.push_back(gpu->objects_.extract(object).mapped());
    return CUDA_SUCCESS;
  }
  static CUresult EventCreate(CUevent* e, unsigned) {
    ENTER(cuEventCreate);
    auto made = std::make_unique<FakeGpu::Event>();
    *e = reinterpret_cast<CUevent>(made.get());
    gpu->events_.insert(std::move(made));
    return CUDA_SUCCESS;
  }
  static CUresult EventDestroy(CUevent) { return CUDA_SUCCESS; } // kept: a record may still be on a stream
  static CUresult EventRecord(CUevent e, CUstream s) {
    ENTER(cuEventRecord);
    auto* event = reinterpret_cast<FakeGpu::Event*>(e);
    event->stream = s;
    event->capture = 0;
    if (const auto* capture = gpu->capture_of(s)) {
      event->capture = capture->id;
      return capture->failed ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    }
    event->recorded = ++gpu->sequence_;
    gpu->streams_[s].push_back({nullptr, event, event->recorded});
    return CUDA_SUCCESS;
  }
  static CUresult EventSynchronize(CUevent e) {
    ENTER_UNSAFE(cuEventSynchronize);
    auto* event = reinterpret_cast<FakeGpu::Event*>(e);
    if (event->capture != 0) {
      for (auto& [stream, capture] : gpu->captures_)
        if (capture->id == event->capture) capture->failed = true;
      return CUDA_ERROR_CAPTURED_EVENT;
    }
    return gpu->run(event->stream, event, event->recorded);
  }
  static CUresult EventElapsedTime(float* ms, CUevent a, CUevent b) {
    ENTER(cuEventElapsedTime);
    auto *from = reinterpret_cast<FakeGpu::Event*>(a), *to = reinterpret_cast<FakeGpu::Event*>(b);
    if (from->passed < from->recorded || to->passed < to->recorded) return CUDA_ERROR_NOT_READY;
    *ms = static_cast<float>(to->at - from->at);
    return CUDA_SUCCESS;
  }
  static CUresult ModuleLoadDataEx(CUmodule* m, const void* image, unsigned options, CUjit_option* names,
                                   void** values) {
    ENTER_UNSAFE(cuModuleLoadDataEx);
    bool cubin = std::memcmp(image, "cubin", 5) == 0;
    if (cubin && gpu->cubins_refused) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (!cubin && gpu->ptx_result != CUDA_SUCCESS) {
      for (unsigned i = 0; i < options; ++i)
        if (names[i] == CU_JIT_ERROR_LOG_BUFFER) std::strcpy(static_cast<char*>(values[i]), "log of the compiler");
      return gpu->ptx_result;
    }
    gpu->loaded.emplace_back(cubin ? "cubin" : "ptx");
    static uintptr_t next = 0x100000;
    *m = reinterpret_cast<CUmodule>(next += 0x10);
    return CUDA_SUCCESS;
  }
  static CUresult ModuleUnload(CUmodule) {
    ENTER_UNSAFE(cuModuleUnload);
    return CUDA_SUCCESS;
  }
  static CUresult ModuleGetFunction(CUfunction* f, CUmodule, const char* name) {
    ENTER(cuModuleGetFunction);
    auto it = gpu->kernels_.find(name);
    if (it == gpu->kernels_.end()) return CUDA_ERROR_NOT_FOUND;
    *f = reinterpret_cast<CUfunction>(it->second.get());
    return CUDA_SUCCESS;
  }
  static CUresult FuncSetAttribute(CUfunction f, CUfunction_attribute which, int value) {
    ENTER(cuFuncSetAttribute);
    if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
    gpu->dynamic_shared[reinterpret_cast<FakeGpu::Kernel*>(f)->name] = value;
    return CUDA_SUCCESS;
  }
  static CUresult FuncGetAttribute(int* value, CUfunction_attribute which, CUfunction) {
    ENTER(cuFuncGetAttribute);
    *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? gpu->max_threads : 0;
    return CUDA_SUCCESS;
  }
  static CUresult LaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned,
                               unsigned shared, CUstream s, void** params, void**) {
    ENTER(cuLaunchKernel);
    return launch(f, {x, y, z}, threads, shared, s, params, false);
  }
  static CUresult LaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** params, void**) {
    ENTER(cuLaunchKernelEx);
    EXPECT_GE(c->numAttrs, 1u);
    bool dependent = false;
    unsigned cluster = 1;
    for (unsigned i = 0; i < c->numAttrs; ++i) {
      const CUlaunchAttribute& a = c->attrs[i];
      if (a.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
        cluster = a.value.clusterDim.x;
        EXPECT_EQ(a.value.clusterDim.y * a.value.clusterDim.z, 1u);
        if (cluster == 0 || cluster > 8 || c->gridDimX % cluster != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        continue;
      }
      EXPECT_EQ(a.id, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
      EXPECT_EQ(a.value.programmaticStreamSerializationAllowed, 1);
      dependent = true;
    }
    return launch(f, {c->gridDimX, c->gridDimY, c->gridDimZ}, c->blockDimX, c->sharedMemBytes, c->hStream, params,
                  false, dependent, cluster);
  }
  static CUresult LaunchCooperativeKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
                                          unsigned, unsigned shared, CUstream s, void** params) {
    ENTER(cuLaunchCooperativeKernel);
    if (x * y * z > 132u * static_cast<unsigned>(gpu->resident_blocks)) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return launch(f, {x, y, z}, threads, shared, s, params, true);
  }
  static CUresult TensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                       const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                       const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    ENTER(cuTensorMapEncodeTiled);
    const std::map<CUtensorMapDataType, uint32_t> bits = {{CU_TENSOR_MAP_DATA_TYPE_UINT8, 8},
                                                          {CU_TENSOR_MAP_DATA_TYPE_UINT16, 16},
                                                          {CU_TENSOR_MAP_DATA_TYPE_UINT32, 32},
                                                          {CU_TENSOR_MAP_DATA_TYPE_UINT64, 64}};
    FakeGpu::TensorMap m{
        reinterpret_cast<uint64_t>(address), rank, static_cast<uint32_t>(swizzle), bits.at(type), {}, {}, {}};
    if (m.address % 16 != 0 || rank < 1 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t i = 0; i < rank; ++i) {
      const cuuint32_t most_steps = i == 0 ? 1 : 8;
      if (steps[i] < 1 || steps[i] > most_steps || dims[i] < 1 || box[i] < 1 || box[i] > 256)
        return CUDA_ERROR_INVALID_VALUE;
      m.dims[i] = dims[i];
      m.box[i] = box[i];
      if (i > 0) m.strides[i - 1] = strides[i - 1];
    }
    static_assert(sizeof m <= sizeof *map);
    std::memcpy(map, &m, sizeof m);
    ++gpu->encoded_maps;
    return CUDA_SUCCESS;
  }
  static CUresult Occupancy(int* blocks, CUfunction, int, size_t) {
    ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    *blocks = gpu->resident_blocks;
    return CUDA_SUCCESS;
  }
  static CUresult launch(CUfunction f, std::array<unsigned, 3> grid, unsigned threads, unsigned shared, CUstream s,
                         void** params, bool cooperative, bool dependent = false, unsigned cluster = 1) {
    auto* kernel = reinterpret_cast<FakeGpu::Kernel*>(f);
    int allowed = std::max(48 << 10, gpu->dynamic_shared[kernel->name]);
    if (grid[0] * grid[1] * grid[2] == 0 || threads == 0 || static_cast<int>(shared) > allowed)
      return CUDA_ERROR_INVALID_VALUE;
    FakeGpu::Launch launch;
    launch.grid = grid[0];
    launch.grid_y = grid[1];
    launch.grid_z = grid[2];
    launch.threads = threads;
    launch.shared_bytes = shared;
    launch.cooperative = cooperative;
    launch.dependent = dependent;
    launch.cluster = cluster;
    for (size_t i = 0; i < kernel->params; ++i) launch.args.push_back(*static_cast<const uint64_t*>(params[i]));
    for (size_t i = 0; i < kernel->maps; ++i) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(params[kernel->params + i]) % alignof(CUtensorMap), 0u);
      std::memcpy(&launch.maps.emplace_back(), params[kernel->params + i], sizeof(FakeGpu::TensorMap));
    }
    return gpu->put(s, [kernel, launch] {
      gpu->launches.push_back(launch);
      gpu->launched.push_back(kernel->name);
      return kernel->body(launch);
    });
  }
};

FakeGpu::FakeGpu() : driver_(std::make_shared<cuda::Driver>()) {
  EXPECT_EQ(gpu, nullptr) << "one fake at a time";
  gpu = this;
  auto& d = *driver_;
  d.version = 13000;
  d.cuInit = FakeCalls::Init;
  d.cuDriverGetVersion = FakeCalls::DriverGetVersion;
  d.cuGetErrorName = FakeCalls::GetErrorName;
  d.cuGetErrorString = FakeCalls::GetErrorString;
  d.cuDeviceGetCount = FakeCalls::DeviceGetCount;
  d.cuDeviceGet = FakeCalls::DeviceGet;
  d.cuDeviceGetName = FakeCalls::DeviceGetName;
  d.cuDeviceGetAttribute = FakeCalls::DeviceGetAttribute;
  d.cuDeviceTotalMem = FakeCalls::DeviceTotalMem;
  d.cuDevicePrimaryCtxRetain = FakeCalls::PrimaryCtxRetain;
  d.cuDevicePrimaryCtxRelease = FakeCalls::PrimaryCtxRelease;
  d.cuCtxPushCurrent = FakeCalls::CtxPushCurrent;
  d.cuCtxPopCurrent = FakeCalls::CtxPopCurrent;
  d.cuMemGetInfo = FakeCalls::MemGetInfo;
  d.cuMemAlloc = FakeCalls::MemAlloc;
  d.cuMemFree = FakeCalls::MemFree;
  d.cuMemHostAlloc = FakeCalls::MemHostAlloc;
  d.cuMemHostGetDevicePointer = FakeCalls::MemHostGetDevicePointer;
  d.cuMemFreeHost = FakeCalls::MemFreeHost;
  d.cuMemPoolCreate = FakeCalls::MemPoolCreate;
  d.cuMemPoolDestroy = FakeCalls::MemPoolDestroy;
  d.cuMemPoolSetAttribute = FakeCalls::MemPoolSetAttribute;
  d.cuMemPoolTrimTo = FakeCalls::MemPoolTrimTo;
  d.cuMemAllocFromPoolAsync = FakeCalls::MemAllocFromPoolAsync;
  d.cuMemFreeAsync = FakeCalls::MemFreeAsync;
  d.cuMemcpyHtoDAsync = FakeCalls::MemcpyHtoDAsync;
  d.cuMemcpyDtoHAsync = FakeCalls::MemcpyDtoHAsync;
  d.cuMemcpyDtoDAsync = FakeCalls::MemcpyDtoDAsync;
  d.cuMemsetD8Async = FakeCalls::MemsetD8Async;
  d.cuStreamCreateWithPriority = FakeCalls::StreamCreate;
  d.cuStreamDestroy = FakeCalls::StreamDestroy;
  d.cuStreamSynchronize = FakeCalls::StreamSynchronize;
  d.cuStreamGetId = FakeCalls::StreamGetId;
  d.cuStreamWaitEvent = FakeCalls::StreamWaitEvent;
  d.cuLaunchHostFunc = FakeCalls::LaunchHostFunc;
  d.cuStreamBeginCapture = FakeCalls::StreamBeginCapture;
  d.cuStreamIsCapturing = FakeCalls::StreamIsCapturing;
  d.capture_info = FakeCalls::CaptureInfo;
  d.cuThreadExchangeStreamCaptureMode = FakeCalls::ThreadExchangeStreamCaptureMode;
  d.cuUserObjectCreate = FakeCalls::UserObjectCreate;
  d.cuUserObjectRelease = FakeCalls::UserObjectRelease;
  d.cuGraphRetainUserObject = FakeCalls::GraphRetainUserObject;
  d.cuStreamEndCapture = FakeCalls::StreamEndCapture;
  d.cuGraphInstantiateWithFlags = FakeCalls::GraphInstantiateWithFlags;
  d.cuGraphExecUpdate = FakeCalls::GraphExecUpdate;
  d.cuGraphLaunch = FakeCalls::GraphLaunch;
  d.cuGraphGetNodes = FakeCalls::GraphGetNodes;
  d.cuGraphNodeGetType = FakeCalls::GraphNodeGetType;
  d.cuGraphMemcpyNodeGetParams = FakeCalls::GraphMemcpyNodeGetParams;
  d.cuGraphMemsetNodeGetParams = FakeCalls::GraphMemsetNodeGetParams;
  d.cuPointerGetAttribute = FakeCalls::PointerGetAttribute;
  d.cuGraphDestroy = FakeCalls::GraphGone<CUgraph>;
  d.cuGraphExecDestroy = FakeCalls::GraphGone<CUgraphExec>;
  d.cuEventCreate = FakeCalls::EventCreate;
  d.cuEventDestroy = FakeCalls::EventDestroy;
  d.cuEventRecord = FakeCalls::EventRecord;
  d.cuEventSynchronize = FakeCalls::EventSynchronize;
  d.cuEventElapsedTime = FakeCalls::EventElapsedTime;
  d.cuModuleLoadDataEx = FakeCalls::ModuleLoadDataEx;
  d.cuModuleUnload = FakeCalls::ModuleUnload;
  d.cuModuleGetFunction = FakeCalls::ModuleGetFunction;
  d.cuFuncSetAttribute = FakeCalls::FuncSetAttribute;
  d.cuFuncGetAttribute = FakeCalls::FuncGetAttribute;
  d.cuLaunchKernel = FakeCalls::LaunchKernel;
  d.cuLaunchKernelEx = FakeCalls::LaunchKernelEx;
  d.cuTensorMapEncodeTiled = FakeCalls::TensorMapEncodeTiled;
  d.cuLaunchCooperativeKernel = FakeCalls::LaunchCooperativeKernel;
  d.cuOccupancyMaxActiveBlocksPerMultiprocessor = FakeCalls::Occupancy;
}

FakeGpu::~FakeGpu() {
  run_all();
  EXPECT_TRUE(current.empty()) << "a context is still current";
  EXPECT_TRUE(broken_ != CUDA_SUCCESS || pinned_.empty()) << "pinned memory was not freed";
  for (auto [p, bytes] : pinned_) std::free(reinterpret_cast<void*>(p));
  for (auto* p : graveyard_) std::free(p);
  gpu = nullptr;
}

} // namespace tessera::test
