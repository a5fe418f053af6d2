// A GPU's memory through the C interface.
#include "runtime/cuda/memory.h"
#include "api/c/context.h"

struct tessera_memory {
  std::unique_ptr<tessera::cuda::SharedBlock> block;
};

using namespace tessera;

const char* tessera_memory_create(const tessera_session* session, size_t bytes, void* stream, tessera_memory** memory,
                                  void** data) {
  if (session == nullptr || memory == nullptr || data == nullptr)
    return record_error(usage("a session, and places for the memory and its address, are needed"));
  return recorded("allocating memory", [&]() -> Status {
    if (session->device != "cuda") return usage("the session runs on the CPU, and has no memory of a GPU");
    if (bytes > static_cast<size_t>(INT64_MAX)) return usage("no memory has " + std::to_string(bytes) + " bytes");
    TESSERA_ASSIGN(auto context, cuda::Context::open(session->gpu));
    auto out = std::make_unique<tessera_memory>();
    TESSERA_ASSIGN(out->block,
                   cuda::SharedBlock::create(std::move(context), std::max<int64_t>(static_cast<int64_t>(bytes), 1),
                                             static_cast<CUstream>(stream), "a result"));
    *data = out->block->data();
    *memory = out.release();
    return {};
  });
}

const char* tessera_memory_wait(tessera_memory* memory, void* stream) {
  if (memory == nullptr) return record_error(usage("the memory is null"));
  return recorded("waiting for memory", [&] { return memory->block->wait_on(static_cast<CUstream>(stream)); });
}

void tessera_memory_free(tessera_memory* memory) { delete memory; }
