// NVIDIA's libraries, found and opened when they are first wanted: one program runs with and without them.
//
// Search order, the first that opens is taken:
//   1. TESSERA_CUDA_PATH: one or more folders separated by ':'. Of each: itself, lib64, lib,
//      targets/<machine>-linux/lib, and */lib (so that pip's `nvidia` folder can be named).
//   2. The loader: libraries that this process has already loaded (a Python that imported torch), LD_LIBRARY_PATH, the
//      system's cache.
//   3. /usr/local/cuda, then /usr/local/cuda-<version>, highest version first: lib64.
//   4. pip's packages: <prefix>/lib/python3*/{site,dist}-packages/nvidia/<package>/lib, where <prefix> is VIRTUAL_ENV,
//      CONDA_PREFIX, the folder above this process's program, and the folder above each python3 on PATH.
// A file that is there but cannot be loaded does not end the search; if nothing else is found, the error says why.
//
// TESSERA_CUDA_WITHOUT names libraries that are taken as missing, separated by ',' ("cuDNN,cuBLASLt"; case does not
// matter): how a model runs without them can be seen where they are.
#pragma once
#include "base/result.h"
#include <memory>
#include <string>
#include <vector>

namespace tessera::cuda {

struct LibraryRequest {
  std::string what;                  // for people: "cuBLASLt"
  std::vector<std::string> names;    // file names, best first: "libcublasLt.so.13", "libcublasLt.so"
  std::vector<std::string> packages; // pip's folders under nvidia/, best first: "cu13", "cublas"
  std::string brings;                // what is missing without it: "matrix products by NVIDIA's kernels"
  std::string remedy;                // how to get it, if that is simple: "pip install nvidia-cublas"
};

class DynamicLibrary {
public:
  // Errors: UnsupportedFeature where it is nowhere; the notes name every place and what the library would bring. The
  // file is never unloaded (NVIDIA's libraries do not survive it).
  [[nodiscard]] static Result<std::shared_ptr<const DynamicLibrary>> open(const LibraryRequest& request);

  [[nodiscard]] const std::string& path() const { return path_; } // as the loader resolved it
  // Address of a function. Error UnsupportedFeature: the library is of another version; names symbol and file.
  [[nodiscard]] Result<void*> symbol(const std::string& name) const;
  // The same, null where it is missing: for what newer or older versions have.
  [[nodiscard]] void* find(const std::string& name) const;
  template <class F>
  [[nodiscard]] Status bind(F& function, const std::string& name) const {
    TESSERA_ASSIGN(void* address, symbol(name));
    function = reinterpret_cast<F>(address);
    return {};
  }

private:
  DynamicLibrary(std::string what, std::string path, void* handle)
      : what_(std::move(what)), path_(std::move(path)), handle_(handle) {}
  std::string what_, path_;
  void* handle_;
};

// The folders of (1), (3) and (4) that exist, in that order; for programs (ptxas lies in bin next to them) and reports.
[[nodiscard]] std::vector<std::string> library_folders(const std::vector<std::string>& packages);
// The entries of TESSERA_CUDA_PATH, then /usr/local/cuda and /usr/local/cuda-<version>, highest first; existing ones.
[[nodiscard]] std::vector<std::string> toolkit_folders();

} // namespace tessera::cuda
