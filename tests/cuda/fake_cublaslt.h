// A cuBLASLt that computes on the host, in the context of a fake GPU.
#pragma once
#include "fake_driver.h"
#include "runtime/cuda/cublaslt.h"
#include "tests/cuda/library_device.h"

namespace tessera::cuda::test::fake_cublaslt {

// The fake library's properties and the requests that it got; one exists at a time.
struct Library {
  tessera::test::FakeGpu gpu;
  bool knows_pointers = true, has_pointer_algorithms = true, has_epilogues = true, has_anything = true;
  bool has_the_algorithm_of_others = true;  // cublasLtMatmulAlgoCheck
  std::set<uint64_t> refused;               // algorithms that the check refuses everywhere
  std::set<int64_t> alone;                  // columns of results for which it refuses the algorithms of others
  std::atomic<uint64_t> next_algorithm = 1; // each answer of the heuristics is another one
  int64_t alike_from = 512; // except that from so many columns on all are one, so that walks over sizes end
  std::atomic<int> heuristics = 0, checks = 0, calls = 0, live = 0; // kernels are loaded on another thread
  uint32_t least_alignment = 1024;
  std::vector<uint64_t> algorithms; // of the products, in order
  std::mutex mutex;                 // of products, some of which another thread runs to load kernels
};

// A fake GPU with the fake library in its context.
struct Machine {
  Library state;
  std::shared_ptr<CublasLt> lt = std::make_shared<CublasLt>();
  std::unique_ptr<Gpu> gpu;
  // `cache`: where choices are kept. `version`: of the library.
  explicit Machine(const std::shared_ptr<Cache>& cache = nullptr, size_t version = 130000);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
};

} // namespace tessera::cuda::test::fake_cublaslt
