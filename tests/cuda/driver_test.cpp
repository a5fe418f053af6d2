// Finding libraries, the driver and its errors, contexts. Without a GPU.
#include "fake_driver.h"
#include "runtime/cuda/dynamic_library.h"
#include "tests/cuda/variable.h"
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace tessera {
namespace {
using namespace cuda;
using test::FakeGpu;
using test::Variable;

class Libraries : public ::testing::Test {
protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("tessera_libraries_" + std::to_string(::getpid()));
    std::filesystem::create_directories(root_);
    request_.what = "the library of the test";
    request_.names = {"libtessera_nowhere.so.9", "libtessera_nowhere.so"};
    request_.packages = {"tessera_test"};
    request_.brings = "nothing works";
    request_.remedy = "write it";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  // A library that can be opened (the C math library) under another name.
  std::string put(const std::string& place) {
    auto path = root_ / place;
    std::filesystem::create_directories(path.parent_path());
    auto math = DynamicLibrary::open({"libm", {"libm.so.6"}, {}, "", ""});
    EXPECT_TRUE(math.ok());
    std::filesystem::copy_file((*math)->path(), path, std::filesystem::copy_options::overwrite_existing);
    return path.string();
  }
  static std::string all(const Diagnostic& d) { return d.str(); }
  std::filesystem::path root_;
  LibraryRequest request_;
};

TEST_F(Libraries, WhatIsMissingIsNamedWithEveryPlace) {
  Variable path("TESSERA_CUDA_PATH", root_.string());
  auto opened = DynamicLibrary::open(request_);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::UnsupportedFeature);
  EXPECT_EQ(opened.error().message, "the library of the test was not found");
  auto text = all(opened.error());
  for (const auto& part : {std::string("without it: nothing works"), std::string("libtessera_nowhere.so.9, libtessera"),
                           "TESSERA_CUDA_PATH '" + root_.string() + "'", std::string("LD_LIBRARY_PATH"),
                           std::string("pip's packages"), std::string("write it")})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST_F(Libraries, TheNamedFolderComesFirstInItsUsualLayouts) {
  for (const char* place : {"libtessera_nowhere.so", "lib64/libtessera_nowhere.so", "lib/libtessera_nowhere.so.9",
                            "cublas/lib/libtessera_nowhere.so"}) {
    auto file = put(std::string("toolkit/") + place);
    Variable path("TESSERA_CUDA_PATH", "/nowhere:" + (root_ / "toolkit").string());
    auto opened = DynamicLibrary::open(request_);
    ASSERT_TRUE(opened.ok()) << place << opened.error().str();
    EXPECT_EQ((*opened)->path(), file);
    double (*cosine)(double) = nullptr;
    ASSERT_TRUE((*opened)->bind(cosine, "cos").ok());
    EXPECT_EQ(cosine(0), 1);
    EXPECT_EQ((*opened)->find("no_such_function"), nullptr);
    auto missing = (*opened)->symbol("no_such_function");
    ASSERT_FALSE(missing.ok());
    EXPECT_EQ(missing.error().message, "the library of the test has no function 'no_such_function'");
    std::filesystem::remove_all(root_ / "toolkit");
  }
}

TEST_F(Libraries, PipsPackagesAreFoundBesideThePythonOnPath) {
  auto file = put("venv/lib/python3.11/site-packages/nvidia/tessera_test/lib/libtessera_nowhere.so.9");
  std::filesystem::create_directories(root_ / "venv/bin");
  std::ofstream(root_ / "venv/bin/python3") << "#!/bin/sh\n";
  Variable path("PATH", (root_ / "venv/bin").string() + ":/usr/bin");
  auto opened = DynamicLibrary::open(request_);
  ASSERT_TRUE(opened.ok()) << opened.error().str();
  EXPECT_EQ((*opened)->path(), file);
  auto folders = library_folders({"tessera_test"});
  EXPECT_NE(std::find(folders.begin(), folders.end(), std::filesystem::path(file).parent_path().string()),
            folders.end());
}

TEST_F(Libraries, ADamagedFileDoesNotEndTheSearchAndIsToldWhenNothingElseIsThere) {
  std::filesystem::create_directories(root_ / "a");
  std::ofstream(root_ / "a/libtessera_nowhere.so.9") << "no library";
  Variable path("TESSERA_CUDA_PATH", (root_ / "a").string() + ":" + (root_ / "b").string());
  auto opened = DynamicLibrary::open(request_);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().message, "the library of the test was found but cannot be loaded");
  EXPECT_NE(all(opened.error()).find((root_ / "a/libtessera_nowhere.so.9").string()), std::string::npos);
  auto file = put("b/libtessera_nowhere.so.9");
  opened = DynamicLibrary::open(request_);
  ASSERT_TRUE(opened.ok()) << opened.error().str();
  EXPECT_EQ((*opened)->path(), file);
}

TEST_F(Libraries, OneThatIsLeftOutIsNotLookedFor) {
  put("a/libtessera_nowhere.so.9");
  Variable path("TESSERA_CUDA_PATH", (root_ / "a").string());
  ASSERT_TRUE(DynamicLibrary::open(request_).ok());
  request_.what = "Nowhere";
  for (const char* names : {"nowhere", "cuDNN,NOWHERE", "Nowhere,cuDNN"}) {
    Variable without("TESSERA_CUDA_WITHOUT", names);
    auto opened = DynamicLibrary::open(request_);
    ASSERT_FALSE(opened.ok()) << names;
    EXPECT_EQ(opened.error().code, ErrorCode::UnsupportedFeature);
    EXPECT_EQ(opened.error().message, "Nowhere is left out: TESSERA_CUDA_WITHOUT names it");
    EXPECT_NE(all(opened.error()).find("nothing works"), std::string::npos);
  }
  for (const char* names : {"", ",", "cuDNN", "nowhere2"}) {
    Variable without("TESSERA_CUDA_WITHOUT", names);
    EXPECT_TRUE(DynamicLibrary::open(request_).ok()) << names;
  }
}

TEST(Driver, AMachineWithoutOneSaysSo) {
  if (void* there = ::dlopen("libcuda.so.1", RTLD_LAZY)) {
    ::dlclose(there);
    GTEST_SKIP() << "this machine has an NVIDIA driver";
  }
  for (int round = 0; round < 2; ++round) {
    auto d = Driver::load();
    ASSERT_FALSE(d.ok());
    EXPECT_EQ(d.error().code, ErrorCode::UnsupportedFeature);
    EXPECT_EQ(d.error().message, "the NVIDIA driver (libcuda.so.1) was not found");
    EXPECT_NE(d.error().str().find("docker run --gpus all"), std::string::npos);
  }
  auto context = Context::open();
  ASSERT_FALSE(context.ok());
  EXPECT_EQ(context.error().message, "the NVIDIA driver (libcuda.so.1) was not found");
}

TEST(Driver, OneThatIsTooOldIsNamedWithBothVersions) {
  // Next to the program's folder where this was built elsewhere (tools/bundle).
  std::string built = TESSERA_BINARY_DIR;
  if (built.empty()) built = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  Variable path("TESSERA_CUDA_PATH", built + "/old_driver");
  auto d = Driver::open();
  ASSERT_FALSE(d.ok());
  EXPECT_EQ(d.error().code, ErrorCode::UnsupportedFeature);
  EXPECT_EQ(d.error().message, "the NVIDIA driver is too old: it supports CUDA 11.4; CUDA 12.0 or newer is needed");
  ASSERT_EQ(d.error().notes.size(), 1u);
  EXPECT_NE(d.error().notes[0].find("old_driver/libcuda.so.1"), std::string::npos);
}

TEST_F(Libraries, ALibraryOfTheDriversNameThatIsNone) {
  put("other/libcuda.so.1");
  Variable path("TESSERA_CUDA_PATH", (root_ / "other").string());
  auto d = Driver::open();
  ASSERT_FALSE(d.ok());
  EXPECT_EQ(d.error().message, "the NVIDIA driver (libcuda.so.1) has no function 'cuDriverGetVersion'");
}

TEST(Driver, NoGpuAnOldDriverAndOneThatDoesNotStartAreToldApart) {
  FakeGpu gpu;
  gpu.devices = 0;
  auto status = initialize(*gpu.driver());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::UnsupportedFeature);
  EXPECT_EQ(status.error().message, "the NVIDIA driver found no GPU");
  auto context = Context::create(gpu.driver());
  ASSERT_FALSE(context.ok());
  EXPECT_EQ(context.error().message, "the NVIDIA driver found no GPU");

  gpu.devices = 1;
  gpu.driver()->version = 11080;
  status = initialize(*gpu.driver());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message,
            "the NVIDIA driver is too old: it supports CUDA 11.8; CUDA 12.0 or newer is needed");

  gpu.driver()->version = 13000;
  gpu.fail("cuInit", 0, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  status = initialize(*gpu.driver());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::DeviceError);
  EXPECT_EQ(status.error().message, "the NVIDIA driver does not start: CUDA error 803 (words of the fake)");
  EXPECT_TRUE(initialize(*gpu.driver()).ok());
}

TEST(Driver, ErrorsHaveNameTextCallAndPlace) {
  FakeGpu gpu;
  auto d = gpu.driver()->error(CUDA_ERROR_INVALID_VALUE, "cuSomething", "doing this");
  EXPECT_EQ(d.code, ErrorCode::DeviceError);
  EXPECT_EQ(d.message, "doing this: cuSomething failed with CUDA_ERROR_INVALID_VALUE (words of the fake)");
  ASSERT_EQ(d.notes.size(), 1u);
  EXPECT_NE(d.notes[0].find("driver_test.cpp:"), std::string::npos);
  EXPECT_EQ(gpu.driver()->error(CUDA_ERROR_OUT_OF_MEMORY, "cuSomething").code, ErrorCode::OutOfMemory);
}

TEST(Contexts, ReadTheDeviceAndEndWithTheirLastUser) {
  FakeGpu gpu;
  {
    auto context = gpu.context();
    ASSERT_TRUE(context);
    const auto& p = context->properties();
    EXPECT_EQ(p.name, "Fake GPU");
    EXPECT_EQ(p.arch(), "sm_90");
    EXPECT_EQ(p.multiprocessors, 132);
    EXPECT_EQ(p.shared_bytes_per_block, 227 << 10);
    EXPECT_EQ(p.memory_bytes, 1 << 30);
    EXPECT_EQ(gpu.retained(), 1);
    int made = 0;
    bool gone = false;
    auto make = [&](Context&) -> Result<std::shared_ptr<void>> {
      ++made;
      return std::shared_ptr<void>(&made, [&gone](void*) { gone = true; });
    };
    auto a = context->attachment("handle", make), b = context->attachment("handle", make);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(*a, *b);
    EXPECT_EQ(made, 1);
    EXPECT_FALSE(gone);
  }
  EXPECT_EQ(gpu.retained(), 0);
  auto none = Context::create(gpu.driver(), 3);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::Usage);
  EXPECT_EQ(none.error().message, "there is no GPU 3: this process sees 1, counted from 0");
}

TEST(Contexts, AnErrorThatNothingSurvivesIsRemembered) {
  FakeGpu gpu;
  auto context = gpu.context();
  EXPECT_TRUE(context->usable().ok());
  (void)context->error(CUDA_ERROR_INVALID_VALUE, "cuSomething");
  EXPECT_TRUE(context->usable().ok());
  (void)context->error(CUDA_ERROR_ILLEGAL_ADDRESS, "cuStreamSynchronize", "step 'x'");
  auto lost = context->usable();
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().message, "the GPU is lost to this process by an earlier error: step 'x': cuStreamSynchronize "
                                  "failed with CUDA_ERROR_ILLEGAL_ADDRESS (words of the fake)");
}

TEST(Contexts, MemoryThatIsNotThereIsAnErrorWithNumbers) {
  for (int pools : {0, 1}) {
    FakeGpu gpu;
    gpu.pools = pools;
    gpu.memory = 1 << 20;
    auto context = gpu.context();
    Context::Current current(*context);
    auto first = context->allocate(1000, nullptr, "the first");
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(*first % 256, 0u);
    EXPECT_EQ(context->held_bytes(), 1024);
    auto second = context->allocate(2 << 20, nullptr, "the second");
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, ErrorCode::OutOfMemory);
    EXPECT_EQ(second.error().message, "cannot allocate 2097152 bytes of GPU memory for the second: 1047552 of 1048576 "
                                      "bytes are free, 1024 are held here");
    // Memory that was freed on the stream is waited for.
    auto big = context->allocate(900 << 10, nullptr, "the third");
    ASSERT_TRUE(big.ok());
    context->release(*big, 900 << 10, nullptr);
    EXPECT_TRUE(context->allocate(900 << 10, nullptr, "the fourth").ok());
    EXPECT_EQ(context->held_bytes(), 1024 + (900 << 10));
  }
}

} // namespace
} // namespace tessera
