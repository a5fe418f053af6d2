#include "runtime/cuda/nvjitlink.h"
#include "runtime/cuda/assembler_log.h"
#include "runtime/cuda/cubin_resources.h"
#include "runtime/cuda/dynamic_library.h"
#include <atomic>
#define NVJITLINK_NO_INLINE // functions are looked up by name, none is linked
#include <nvJitLink.h>
#include <sys/stat.h>

namespace tessera::cuda {
namespace {

// Versions give their functions names like __nvJitLinkCreate_12_4 and keep those of older ones; the first had plain
// names.
struct Functions {
  decltype(&__nvJitLinkCreate_13_0) create = nullptr;
  decltype(&__nvJitLinkDestroy_13_0) destroy = nullptr;
  decltype(&__nvJitLinkAddData_13_0) add_data = nullptr;
  decltype(&__nvJitLinkComplete_13_0) complete = nullptr;
  decltype(&__nvJitLinkGetLinkedCubinSize_13_0) cubin_size = nullptr;
  decltype(&__nvJitLinkGetLinkedCubin_13_0) cubin = nullptr;
  decltype(&__nvJitLinkGetErrorLogSize_13_0) error_log_size = nullptr;
  decltype(&__nvJitLinkGetErrorLog_13_0) error_log = nullptr;
  decltype(&__nvJitLinkGetInfoLogSize_13_0) info_log_size = nullptr;
  decltype(&__nvJitLinkGetInfoLog_13_0) info_log = nullptr;
};

class NvJitLink final : public Assembler {
public:
  static Result<std::shared_ptr<Assembler>> open() {
    LibraryRequest request{"nvJitLink",
                           {"libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so"},
                           {"cu13", "nvjitlink"},
                           "kernels are assembled by ptxas, if that is there, or by the driver when they are loaded",
                           "pip install nvidia-nvjitlink"};
    TESSERA_ASSIGN(auto library, DynamicLibrary::open(request));
    std::shared_ptr<NvJitLink> made(new NvJitLink());
    made->library_ = library;
    unsigned major = 0, minor = 0;
    decltype(&nvJitLinkVersion) version = nullptr;
    if (void* address = library->find("nvJitLinkVersion")) version = reinterpret_cast<decltype(version)>(address);
    if (version) version(&major, &minor);
    std::vector<std::string> suffixes;
    const std::string prefix = "_" + std::to_string(major) + "_";
    for (unsigned m = minor + 1; m-- > 0;) suffixes.push_back(prefix + std::to_string(m));
    auto bind = [&](auto& function, const std::string& base) -> Status {
      for (const auto& suffix : suffixes)
        if (void* address = library->find("__" + base + suffix)) {
          function = reinterpret_cast<std::decay_t<decltype(function)>>(address);
          return {};
        }
      return library->bind(function, base);
    };
    auto& f = made->f_;
    TESSERA_TRY(bind(f.create, "nvJitLinkCreate"));
    TESSERA_TRY(bind(f.destroy, "nvJitLinkDestroy"));
    TESSERA_TRY(bind(f.add_data, "nvJitLinkAddData"));
    TESSERA_TRY(bind(f.complete, "nvJitLinkComplete"));
    TESSERA_TRY(bind(f.cubin_size, "nvJitLinkGetLinkedCubinSize"));
    TESSERA_TRY(bind(f.cubin, "nvJitLinkGetLinkedCubin"));
    TESSERA_TRY(bind(f.error_log_size, "nvJitLinkGetErrorLogSize"));
    TESSERA_TRY(bind(f.error_log, "nvJitLinkGetErrorLog"));
    TESSERA_TRY(bind(f.info_log_size, "nvJitLinkGetInfoLogSize"));
    TESSERA_TRY(bind(f.info_log, "nvJitLinkGetInfoLog"));
    // The library reports its version without the build; its size distinguishes builds.
    struct stat file {};
    made->version_ = "nvJitLink " + std::to_string(major) + "." + std::to_string(minor);
    if (::stat(library->path().c_str(), &file) == 0) made->version_ += " (" + std::to_string(file.st_size) + " bytes)";
    return std::shared_ptr<Assembler>(std::move(made));
  }

  Kind kind() const override { return Kind::NvJitLink; }
  std::string version() const override { return version_; }

  Result<Cubin> assemble(const std::string& ptx, const std::string& arch) const override {
    TESSERA_TRY(check_arch(arch));
    Session session(f_);
    TESSERA_TRY(session.create(arch, tells_resources_, version_));
    Cubin out;
    // The terminating zero belongs to a text.
    auto status = f_.add_data(session.handle, NVJITLINK_INPUT_PTX, ptx.c_str(), ptx.size() + 1, "kernel");
    if (status == NVJITLINK_SUCCESS) status = f_.complete(session.handle);
    out.log = session.text(f_.info_log_size, f_.info_log);
    auto errors = session.text(f_.error_log_size, f_.error_log);
    if (status != NVJITLINK_SUCCESS || !refused_by_log(out.log + errors).empty())
      return assembling_failed(version_, arch, errors + out.log, ptx);
    size_t bytes = 0;
    status = f_.cubin_size(session.handle, &bytes);
    if (status == NVJITLINK_SUCCESS) {
      out.bytes.resize(bytes);
      status = f_.cubin(session.handle, out.bytes.data());
    }
    if (status != NVJITLINK_SUCCESS || bytes == 0)
      return Diagnostic(ErrorCode::CodegenError,
                        version_ + " yields no cubin for " + arch + " (result " + std::to_string(status) + ")");
    read_resources(out.log, out);
    read_missing_resources(ptx, out);
    return out;
  }

private:
  // One link; nothing in it is shared with other threads.
  struct Session {
    explicit Session(const Functions& functions) : f(functions) {}
    ~Session() {
      if (handle) f.destroy(&handle);
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // Versions that do not know -Xptxas assemble without telling registers.
    Status create(const std::string& arch, std::atomic<bool>& tells_resources, const std::string& version) {
      std::string name = "-arch=" + arch;
      const char* options[] = {name.c_str(), "-O3", "-Xptxas=-v"};
      auto status = f.create(&handle, tells_resources ? 3 : 2, options);
      if (status == NVJITLINK_ERROR_UNRECOGNIZED_OPTION && tells_resources) {
        tells_resources = false;
        status = f.create(&handle, 2, options);
      }
      if (status == NVJITLINK_SUCCESS) return {};
      handle = nullptr;
      std::string why = status == NVJITLINK_ERROR_UNSUPPORTED_ARCH || status == NVJITLINK_ERROR_UNRECOGNIZED_ARCH
                            ? "it does not know this architecture"
                            : "result " + std::to_string(status);
      return Diagnostic(ErrorCode::CodegenError, version + " does not assemble for " + arch + ": " + why);
    }
    template <class Size, class Get>
    std::string text(Size size, Get get) const {
      size_t bytes = 0;
      if (size(handle, &bytes) != NVJITLINK_SUCCESS || bytes == 0) return "";
      std::string out(bytes, '\0');
      if (get(handle, out.data()) != NVJITLINK_SUCCESS) return "";
      out.resize(out.find_last_not_of('\0') + 1);
      return out;
    }
    const Functions& f;
    nvJitLinkHandle handle = nullptr;
  };

  NvJitLink() = default;
  std::shared_ptr<const DynamicLibrary> library_;
  Functions f_;
  std::string version_;
  mutable std::atomic<bool> tells_resources_ = true;
};

} // namespace

Result<std::shared_ptr<Assembler>> open_nvjitlink() { return NvJitLink::open(); }

} // namespace tessera::cuda
