#include "base/diagnostic.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/tensor.h"
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace tessera {
namespace {

TEST(Tensor, SizesAreChecked) {
  EXPECT_EQ(*element_count(Dims{2, 3, 4}), 24);
  EXPECT_EQ(*element_count(Dims{}), 1);
  EXPECT_EQ(*element_count(Dims{0, INT64_MAX, INT64_MAX}), 0);
  EXPECT_EQ(element_count(Dims{INT64_MAX, 2}).error().code, ErrorCode::SizeOverflow);
  EXPECT_EQ(element_count(Dims{3, -1}).error().code, ErrorCode::SizeOverflow);
  EXPECT_EQ(Tensor::create(DType::F64, {int64_t{1} << 54}).error().code, ErrorCode::OutOfMemory);
}

TEST(Tensor, MemoryIsAlignedAndShared) {
  Tensor t = Tensor::create(DType::F32, {3, 5}, true).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data()) % 64, 0u);
  EXPECT_EQ(t.as<float>()[14], 0);
  t.set_f64(7, 2.5);
  Tensor r = t.reshaped({15});
  EXPECT_EQ(r.get_f64(7), 2.5);
  EXPECT_EQ(r.data(), t.data());
  float outside[4] = {1, 2, 3, 4};
  Tensor v = Tensor::view(DType::F32, {2, 2}, {nullptr, reinterpret_cast<const std::byte*>(outside), sizeof outside});
  EXPECT_EQ(v.get_f64(3), 4);
  EXPECT_TRUE(v.defined());
  EXPECT_EQ(Tensor::strings({2}, {"a", "b"}).string_values()[1], "b");
}

struct Npy : testing::Test {
  std::string path = testing::TempDir() + "tessera_npy_" + std::to_string(::getpid()) + ".npy";
  void TearDown() override { std::filesystem::remove(path); }
  void write(std::string_view bytes) { std::ofstream(path, std::ios::binary) << bytes; }
  static std::string file(std::string header, std::string_view data, char version = 1) {
    std::string out = "\x93NUMPY";
    out += version;
    out += '\0';
    out += static_cast<char>(header.size() & 255);
    out += static_cast<char>(header.size() >> 8);
    if (version > 1) out += std::string(2, '\0');
    return out + header + std::string(data);
  }
};

TEST_F(Npy, EveryDTypeComesBack) {
  for (int i = 0; i < kDTypeCount; ++i) {
    DType d = static_cast<DType>(i);
    if (d == DType::List) continue; // no file of arrays holds one
    for (const Dims& dims : {Dims{}, Dims{3}, Dims{2, 3}, Dims{0, 4}}) {
      Tensor t = d == DType::String
                     ? Tensor::strings(dims, std::vector<std::string>(static_cast<size_t>(*element_count(dims)),
                                                                      "gr\xc3\xbc\xc3\x9f"))
                     : Tensor::create(d, dims, true).value();
      if (d != DType::String)
        for (size_t k = 0; k < t.bytes(); ++k)
          t.mutable_data()[k] = static_cast<std::byte>(d == DType::Bool ? k % 2 : k * 37 + 1);
      if (info(d).bits < 8 && d != DType::String) { // the bits behind the last element belong to nobody
        Tensor clean = Tensor::create(d, dims, true).value();
        for (int64_t k = 0; k < t.count(); ++k) clean.set_f64(k, t.get_f64(k));
        t = clean;
      }
      ASSERT_TRUE(write_npy(path, t).ok());
      auto back = read_npy(path, d);
      ASSERT_TRUE(back.ok()) << back.error().str();
      EXPECT_EQ(back->dtype(), d);
      EXPECT_EQ(back->dims(), dims);
      if (d == DType::String)
        EXPECT_EQ(back->string_values(), t.string_values());
      else
        EXPECT_EQ(std::memcmp(back->data(), t.data(), t.bytes()), 0) << name(d);
    }
  }
}

TEST_F(Npy, FortranOrderAndByteOrder) {
  write(file("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n",
             std::string("\0\1\0\2\0\3\0\4\0\5\0\6", 12), 2));
  auto t = read_npy(path);
  ASSERT_TRUE(t.ok()) << t.error().str();
  EXPECT_EQ(std::vector<int16_t>(t->as<int16_t>().begin(), t->as<int16_t>().end()),
            (std::vector<int16_t>{1, 3, 5, 2, 4, 6}));
}

TEST_F(Npy, BadFilesAreRefused) {
  EXPECT_EQ(read_npy(path + ".none").error().code, ErrorCode::FileError);
  EXPECT_EQ(read_npy(testing::TempDir()).error().code, ErrorCode::FileError);
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  for (const std::string& bytes :
       {std::string(), std::string("PNG"), file(good, "1234567"), file("{'descr': '<f4'}", "12345678"),
        file("{'descr'", ""), file("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", ""),
        file(good, "").substr(0, 20),
        file("{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999999, 99999999), }", "")}) {
    write(bytes);
    auto r = read_npy(path);
    ASSERT_FALSE(r.ok()) << bytes;
    EXPECT_TRUE(r.error().code == ErrorCode::BadInput || r.error().code == ErrorCode::SizeOverflow) << r.error().str();
    EXPECT_EQ(r.error().location.file, path);
  }
  write(file("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", ""));
  EXPECT_EQ(read_npy(path).error().code, ErrorCode::UnsupportedType);
  EXPECT_EQ(write_npy("/nonexistent/x.npy", Tensor::create(DType::F32, {1}).value()).error().code,
            ErrorCode::FileError);
}

TEST(Compare, FindsWhatDiffers) {
  auto floats = [](std::initializer_list<double> v) {
    Tensor t = Tensor::create(DType::F32, {static_cast<int64_t>(v.size())}).value();
    int64_t i = 0;
    for (double x : v) t.set_f64(i++, x);
    return t;
  };
  EXPECT_TRUE(compare(floats({1, NAN, INFINITY}), floats({1, NAN, INFINITY}), 0, 0).same);
  Comparison c = compare(floats({1, 2.5, 3}), floats({1, 2, 3}), 1e-3, 1e-3);
  EXPECT_FALSE(c.same);
  EXPECT_EQ(c.first_bad, 1);
  EXPECT_EQ(c.max_abs, 0.5);
  EXPECT_NEAR(c.norm_ratio, 0.5 / std::sqrt(14), 1e-12);
  EXPECT_NE(c.message.find("[1]: 2.5 instead of 2"), std::string::npos) << c.message;
  EXPECT_TRUE(compare(floats({1.0001}), floats({1}), 1e-3, 0).same);
  EXPECT_FALSE(compare(floats({1e30}), floats({INFINITY}), 1, 1).same);
  EXPECT_TRUE(std::isinf(compare(floats({NAN}), floats({1}), 1, 1).norm_ratio));
  EXPECT_FALSE(compare(floats({1}), floats({1, 2}), 1, 1).same);
  EXPECT_FALSE(compare(floats({1}), Tensor::create(DType::F16, {1}, true).value(), 1, 1).same);
  auto big = [](int64_t v) {
    Tensor t = Tensor::create(DType::I64, {1}).value();
    t.set_i64(0, v);
    return t;
  };
  EXPECT_FALSE(compare(big(INT64_MAX), big(INT64_MAX - 1), 0, 0).same);
  EXPECT_FALSE(compare(Tensor::strings({1}, {"a"}), Tensor::strings({1}, {"b"}), 1, 1).same);
  Tensor z = Tensor::create(DType::C64, {2}, true).value(), y = Tensor::create(DType::C64, {2}, true).value();
  reinterpret_cast<float*>(y.mutable_data())[3] = 1;
  EXPECT_EQ(compare(z, y, 0, 0).first_bad, 1);
}

TEST(Diagnostics, Text) {
  Diagnostic d(ErrorCode::UnsupportedOp, Location{.file = "m.onnx", .node = "X", .op = "Foo", .output = "y"},
               "no such operator");
  d.note("write it");
  EXPECT_EQ(d.str(),
            "error TES-2001 unsupported-op: m.onnx: node 'X' (Foo, output 'y'): no such operator\n  note: write it\n");
  EXPECT_EQ((Location{.file = "a.graph", .line = 3, .column = 7}.str()), "a.graph:3:7");
  EXPECT_EQ((Location{.op = "Add"}.str()), "node (Add)");
  EXPECT_EQ(info(ErrorCode::Internal).exit_code, 5);
}

TEST(Hashes, AreStable) {
  EXPECT_EQ(hash128("").hex(), "99aa06d3014798d86001c324468d497f"); // XXH3's own test vector
  EXPECT_NE(hash128("a"), hash128("b"));
  EXPECT_NE(hash128("a", 1), hash128("a", 2));
}

TEST(Log, SinkAndChannels) {
  std::string seen;
  set_log_sink([](void* user, std::string_view channel,
                  std::string_view text) { (*static_cast<std::string*>(user) += channel) += text; },
               &seen);
  EXPECT_EQ(set_log_channels("fusion, nonsense"), "nonsense");
  TESSERA_LOGF(LogChannel::Fusion, "1");
  TESSERA_LOGF(LogChannel::Guards, "2");
  EXPECT_EQ(set_log_channels("all"), "");
  TESSERA_LOGF(LogChannel::Guards, "3");
  EXPECT_EQ(set_log_channels(""), "");
  TESSERA_LOGF(LogChannel::Fusion, "4");
  set_log_sink(nullptr, nullptr);
  EXPECT_EQ(seen, "fusion1guards3");
}

TEST(CheckDeathTest, PrintsTheWork) {
  EXPECT_DEATH(
      {
        CheckContext work("pass cse on graph main");
        TESSERA_CHECK(1 + 1 == 3, "arithmetic");
      },
      "internal error: arithmetic(.|\n)*1 \\+ 1 == 3(.|\n)*while: pass cse on graph main");
}

} // namespace
} // namespace tessera
