// Blocks of device memory that grow and are kept, and the way of bytes between host and device: through pinned memory,
// which the GPU copies by itself while the host goes on.
#pragma once
#include "runtime/cuda/stream.h"
#include "runtime/executor.h"
#include <vector>

namespace tessera::cuda {

constexpr int64_t kBlockAlignment = 256; // of what is placed in a block, in bytes
[[nodiscard]] constexpr int64_t rounded_bytes(int64_t bytes) {
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

// Device memory that grows and is kept between runs.
class DeviceBlock {
public:
  // At least `bytes` at data(), whose contents are lost if it has to grow; ordered on `stream`, as is what used it
  // before. Error OutOfMemory (Context::allocate): the block is then empty, and may be reserved again.
  [[nodiscard]] Status reserve(Context& context, int64_t bytes, CUstream stream, const std::string& what);
  // The bytes that reserve() allocates for so many: whole pages of the GPU, so that a shape that is a little larger
  // than the last does not allocate again.
  [[nodiscard]] static int64_t room_for(int64_t bytes) {
    constexpr int64_t kPage = 2 << 20;
    return bytes > kPage / 2 ? (bytes + kPage - 1) / kPage * kPage : bytes;
  }
  // Gives the memory back after what is on `stream`.
  void release(Context& context, CUstream stream);
  [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  DeviceBlock() = default;
  DeviceBlock(DeviceBlock&& o) noexcept : address_(std::exchange(o.address_, 0)), bytes_(std::exchange(o.bytes_, 0)) {}
  DeviceBlock& operator=(DeviceBlock&&) = delete;
  ~DeviceBlock() { TESSERA_CHECK(address_ == 0, "a block of device memory is released by its owner"); }

private:
  CUdeviceptr address_ = 0;
  int64_t bytes_ = 0;
};

// Device memory that is passed on to others, who use it on streams of their own. Streams live as long as the memory
// that they use.
class SharedBlock {
public:
  // To be used on `stream`, and on others after wait_on(). Where the stream is captured, memory that no stream orders: that
  // of the graph would live as long as one run of it. Errors: those of Context::allocate.
  [[nodiscard]] static Result<std::unique_ptr<SharedBlock>> create(std::shared_ptr<Context> context, int64_t bytes,
                                                                   CUstream stream, const std::string& what);
  // Given back after what was put on all of its streams before.
  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;
  // Orders work that is put on `stream` from now on behind the work on the block's first stream. Errors: DeviceError.
  [[nodiscard]] Status wait_on(CUstream stream);
  [[nodiscard]] std::byte* data() const {
    return unordered_ ? reinterpret_cast<std::byte*>(unordered_) : block_.data();
  }

private:
  SharedBlock(std::shared_ptr<Context> context, CUstream stream) : context_(std::move(context)), stream_(stream) {}
  std::shared_ptr<Context> context_;
  DeviceBlock block_;
  CUdeviceptr unordered_ = 0;
  int64_t unordered_bytes_ = 0;
  CUstream stream_;
  std::vector<CUstream> others_; // each once
};

// Copies between host memory of any kind and the device, over a ring of pinned slots. A copy larger than a slot goes in
// pieces: while the GPU copies one, the host fills or empties the next. Used by one thread at a time, on one stream at
// a time (wait() before the stream changes). The context is current.
class Staging {
public:
  static constexpr size_t kSlotBytes = size_t{4} << 20;
  static constexpr size_t kSlots = 4;

  // Slots are allocated when they are first used. `pool`, if there is one, helps to fill and empty them.
  explicit Staging(std::shared_ptr<Context> context, ThreadPool* pool = nullptr)
      : context_(std::move(context)), pool_(pool) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // The host memory has been read when this returns; the device has the bytes in the order of the stream. `doing` is
  // for errors: "copying input 'x' to the GPU". Errors: OutOfMemory (no pinned memory), DeviceError.
  [[nodiscard]] Status upload(CUdeviceptr to, const void* from, size_t bytes, CUstream stream,
                              const std::string& doing);
  // The host memory is written by wait() at the latest.
  [[nodiscard]] Status download(void* to, CUdeviceptr from, size_t bytes, CUstream stream, const std::string& doing);
  // Waits until every copy has arrived. Errors of kernels that ran before come out here.
  [[nodiscard]] Status wait();
  // The same when the stream has been waited for already.
  void arrived();
  // Forgets downloads in flight, after an error; waits for copies, which use the slots.
  void abandon();

private:
  struct Arrival {
    void* to;
    size_t offset, bytes;
  };
  struct Slot {
    std::byte* data = nullptr;
    size_t used = 0;
    bool busy = false; // full, and copies may be in flight; `done` is recorded after the last of them
    std::unique_ptr<Event> done;
    std::vector<Arrival> arrivals; // to be taken out when done
  };
  // Room in a slot for at least one byte and at most `wanted`: another slot when this one is full.
  struct Room {
    Slot* slot;
    size_t offset, bytes;
  };
  [[nodiscard]] Result<Room> room(size_t wanted, CUstream stream);
  void take_out(Slot& slot);
  [[nodiscard]] bool in_use() const;

  void copy(std::byte* to, const std::byte* from, size_t bytes) const;

  std::shared_ptr<Context> context_;
  ThreadPool* pool_;
  Slot slots_[kSlots];
  size_t current_ = 0;
  CUstream stream_ = nullptr;
};

} // namespace tessera::cuda
