// The emulator's blocks on thread functions written by hand: what threads do together works, and each wrong use of it
// is found, in whichever order threads run.
#include "codegen/emulate/grid.h"
#include "tests/base/seeds.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using emu::GlobalMemory;

// A kernel of pointer parameters with the names and contents given; those named "out..." are written.
struct HandLaunch {
  tile::Kernel kernel;
  std::vector<std::vector<float>> data;
  int threads = 64;
  int64_t shared_bytes = 1024, grid = 1;

  void buffer(const std::string& name, std::vector<float> content) {
    tile::Builder(kernel).param(name, {tile::Type::Kind::Pointer, DType::F32, {}}, name.rfind("out", 0) == 0);
    data.push_back(std::move(content));
  }
  Result<EmulateResult> run(EmulatedKernelFn function, uint64_t seed = 0) {
    kernel.name = "by_hand";
    std::vector<tile::Argument> args;
    for (auto& d : data) args.push_back({std::as_writable_bytes(std::span(d)), {}});
    TESSERA_ASSIGN(auto memory, GlobalMemory::make(kernel, args));
    IndexReport bad, *report = &bad;
    auto arguments = memory.launch_arguments(report);
    emu::Launch launch;
    launch.kernel = kernel.name;
    launch.function = function;
    launch.grid = grid;
    launch.args = arguments.data();
    launch.threads = threads;
    launch.shared_bytes = shared_bytes;
    launch.memory = &memory;
    launch.seed = seed;
    TESSERA_ASSIGN(auto result, emu::run_grid(launch));
    memory.copy_back();
    return result;
  }
  // The error with every seed; each must say all of `words`.
  void expect_error(EmulatedKernelFn function, const std::vector<std::string>& words) {
    for (uint64_t seed = 0; seed < test::seeds(12); ++seed) {
      auto r = run(function, seed);
      ASSERT_FALSE(r.ok()) << "seed " << seed;
      EXPECT_EQ(r.error().code, ErrorCode::CodegenError);
      for (const auto& w : words)
        EXPECT_NE(r.error().message.find(w), std::string::npos) << "'" << w << "' in: " << r.error().message;
    }
  }
};

float* pointer(void* const* args, int i) { return *static_cast<float* const*>(args[i]); }
int thread_index(void* t) { return tessera_emu_thread_index(t); }

float load(void* t, float* at) { return *static_cast<float*>(tessera_emu_global(t, at, 4, kTesseraEmuRead)); }
void store(void* t, float* at, float v) { *static_cast<float*>(tessera_emu_global(t, at, 4, kTesseraEmuWrite)) = v; }
float load_shared(void* t, int word) {
  return *static_cast<float*>(tessera_emu_shared(t, word * 4, 4, kTesseraEmuRead));
}
void store_shared(void* t, int word, float v) {
  *static_cast<float*>(tessera_emu_shared(t, word * 4, 4, kTesseraEmuWrite)) = v;
}
float shuffle(void* t, float v, int source, int site) {
  uint32_t bits = 0;
  std::memcpy(&bits, &v, 4);
  bits = tessera_emu_shuffle(t, bits, source, site);
  std::memcpy(&v, &bits, 4);
  return v;
}

// Sum of the block's 64 threads' elements: shuffles within warps, shared memory between them.
void reduction(void* t, void* const* args) {
  int i = thread_index(t), lane = i % 32, warps = 2;
  auto block = tessera_emu_block_index(t, 0);
  float v = load(t, pointer(args, 0) + block * 64 + i);
  for (int d = 16, site = 1; d >= 1; d /= 2, ++site) v += shuffle(t, v, lane ^ d, site);
  if (lane == 0) store_shared(t, i / 32, v);
  tessera_emu_barrier(t, 10);
  float sum = 0;
  for (int w = 0; w < warps; ++w) sum += load_shared(t, w);
  if (i == 0) store(t, pointer(args, 1) + block, sum);
}

TEST(EmulatedBlocks, ReduceByShufflesAndSharedMemory) {
  HandLaunch s;
  s.grid = 5;
  std::vector<float> x(5 * 64), y(5, -1);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17);
  s.buffer("x", x);
  s.buffer("out", y);
  for (uint64_t seed = 0; seed < test::seeds(20); ++seed) {
    s.data[1] = y;
    auto r = s.run(reduction, seed);
    ASSERT_TRUE(r.ok()) << r.error().str();
    for (size_t b = 0; b < 5; ++b) {
      float sum = 0;
      for (size_t i = 0; i < 64; ++i) sum += x[b * 64 + i];
      EXPECT_EQ(s.data[1][b], sum);
    }
    EXPECT_EQ(r->barriers, 5);
    EXPECT_EQ(r->shuffles, 5 * 2 * 5);
    EXPECT_EQ(r->shared_bytes, 1024);
  }
}

TEST(EmulatedBlocks, VoteWithinWarpsAndBlocks) {
  HandLaunch s;
  s.threads = 96;
  s.buffer("out", std::vector<float>(96 * 2));
  auto votes = [](void* t, void* const* args) {
    int i = thread_index(t);
    uint32_t odd = tessera_emu_ballot(t, i % 2, 1);
    int any = tessera_emu_barrier_or(t, i == 70 ? 8 : 0, 2);
    int none = tessera_emu_barrier_or(t, 0, 3);
    store(t, pointer(args, 0) + 2 * i, odd == 0xaaaaaaaau ? 1.0f : 0.0f);
    store(t, pointer(args, 0) + 2 * i + 1, static_cast<float>(any * 10 + none));
  };
  for (uint64_t seed = 0; seed < test::seeds(6); ++seed) {
    auto r = s.run(votes, seed);
    ASSERT_TRUE(r.ok()) << r.error().str();
    for (size_t i = 0; i < 96; ++i) {
      EXPECT_EQ(s.data[0][2 * i], 1);
      EXPECT_EQ(s.data[0][2 * i + 1], 10);
    }
  }
}

TEST(EmulatedBlocks, SharedMemoryStartsPoisoned) {
  HandLaunch s;
  s.grid = 2;
  s.buffer("out", std::vector<float>(128));
  auto poison = [](void* t, void* const* args) {
    int i = thread_index(t);
    float before = load_shared(t, i);
    store_shared(t, i, 1); // the next block must not see it
    store(t, pointer(args, 0) + tessera_emu_block_index(t, 0) * 64 + i, std::isnan(before) ? 1.0f : 0.0f);
  };
  auto r = s.run(poison);
  ASSERT_TRUE(r.ok()) << r.error().str();
  for (float v : s.data[0]) EXPECT_EQ(v, 1);
}

TEST(EmulatedBlocks, AMissingBarrierIsARace) {
  HandLaunch s;
  s.buffer("out", std::vector<float>(64));
  s.expect_error(
      [](void* t, void* const* args) {
        int i = thread_index(t);
        store_shared(t, i, static_cast<float>(i));
        store(t, pointer(args, 0) + i, load_shared(t, 63 - i));
      },
      {"'by_hand'", "block 0", "shared memory", "not ordered"});
}

TEST(EmulatedBlocks, AnOverwriteBeforeAllHaveReadIsARace) {
  HandLaunch s;
  s.buffer("out", std::vector<float>(64));
  s.expect_error(
      [](void* t, void* const* args) {
        int i = thread_index(t);
        for (int round = 0; round < 2; ++round) { // the second round's stores come too early
          store_shared(t, i, static_cast<float>(i));
          tessera_emu_barrier(t, 1);
          store(t, pointer(args, 0) + i, load_shared(t, 63 - i));
        }
      },
      {"shared memory", "not ordered"});
}

TEST(EmulatedBlocks, TwoWritesOfAByteAreARace) {
  HandLaunch s;
  s.buffer("out", std::vector<float>(64));
  s.expect_error([](void* t, void* const*) { store_shared(t, thread_index(t) / 2, 1); },
                 {"its write of 4 bytes", "the write by thread"});
  // Neighbouring bytes are none.
  auto r = s.run([](void* t, void* const*) {
    *static_cast<char*>(tessera_emu_shared(t, thread_index(t), 1, kTesseraEmuWrite)) = 1;
  });
  EXPECT_TRUE(r.ok()) << r.error().str();
}

TEST(EmulatedBlocks, AWarpBarrierOrdersAWarpAlone) {
  HandLaunch s;
  s.buffer("out", std::vector<float>(64));
  auto within = [](void* t, void* const* args) {
    int i = thread_index(t);
    for (int round = 0; round < 3; ++round) {
      store_shared(t, i, static_cast<float>(i + round));
      tessera_emu_warp_barrier(t, 1);
      store(t, pointer(args, 0) + i, load_shared(t, i ^ 31));
      tessera_emu_warp_barrier(t, 2);
    }
  };
  for (uint64_t seed = 0; seed < test::seeds(9); ++seed) {
    auto r = s.run(within, seed);
    ASSERT_TRUE(r.ok()) << r.error().str();
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(s.data[0][i], static_cast<float>((i ^ 31) + 2));
  }
  s.expect_error(
      [](void* t, void* const*) {
        int i = thread_index(t);
        store_shared(t, i, 1);
        tessera_emu_warp_barrier(t, 1);
        load_shared(t, i ^ 32); // of the other warp
      },
      {"not ordered"});
  // A shuffle is no barrier of memory.
  s.expect_error(
      [](void* t, void* const*) {
        int i = thread_index(t);
        store_shared(t, i, 1);
        shuffle(t, 1, 0, 1);
        load_shared(t, i ^ 1);
      },
      {"not ordered"});
}

TEST(EmulatedBlocks, GlobalMemoryRacesAreFound) {
  HandLaunch s;
  s.buffer("out", std::vector<float>(64));
  s.expect_error(
      [](void* t, void* const* args) {
        int i = thread_index(t);
        store(t, pointer(args, 0) + i, 1);
        load(t, pointer(args, 0) + (i ^ 32));
      },
      {"%out", "not ordered"});
  s.expect_error(
      [](void* t, void* const* args) { // updated in place: a lane reads what its neighbour may have overwritten
        int i = thread_index(t);
        float v = load(t, pointer(args, 0) + (i ^ 1));
        store(t, pointer(args, 0) + i, v);
      },
      {"%out", "not ordered"});
  // With the values exchanged, or after a barrier, it is right; and of two stores one wins.
  auto exchanged = [](void* t, void* const* args) {
    int i = thread_index(t);
    float v = load(t, pointer(args, 0) + (i ^ 1));
    v = shuffle(t, v, i % 32, 1);
    store(t, pointer(args, 0) + i, v);
    tessera_emu_barrier(t, 2);
    v = load(t, pointer(args, 0) + 63 - i);
    tessera_emu_barrier(t, 3);
    store(t, pointer(args, 0) + i / 2, v);
  };
  for (uint64_t seed = 0; seed < test::seeds(6); ++seed) {
    auto r = s.run(exchanged, seed);
    EXPECT_TRUE(r.ok()) << r.error().str();
  }
  s.expect_error(
      [](void* t, void* const* args) {
        int i = thread_index(t);
        tessera_emu_global(t, pointer(args, 0), 4, i == 5 ? kTesseraEmuWrite : kTesseraEmuAtomic);
      },
      {"not ordered"});
}

TEST(EmulatedBlocks, ThreadsThatDoNotComeTogetherAreFound) {
  HandLaunch s;
  s.buffer("out", std::vector<float>(64));
  s.expect_error( // a barrier in one warp alone
      [](void* t, void* const*) {
        if (thread_index(t) < 32) tessera_emu_barrier(t, 4);
      },
      {"deadlock: its threads wait in different places", "threads 0 to 31 are in the barrier at site 4",
       "threads 32 to 63 have ended"});
  s.expect_error( // two barriers in the text
      [](void* t, void* const*) {
        if (thread_index(t) < 32)
          tessera_emu_barrier(t, 4);
        else
          tessera_emu_barrier(t, 5);
      },
      {"barrier at site 4", "barrier at site 5"});
  s.expect_error( // lanes of a warp at different shuffles
      [](void* t, void* const*) { shuffle(t, 1, 0, thread_index(t) % 32 < 7 ? 1 : 2); }, {"of its warp"});
  s.expect_error( // one lane left out
      [](void* t, void* const*) {
        if (thread_index(t) != 40) tessera_emu_ballot(t, 1, 3);
      },
      {"threads 32 to 39 are in the ballot at site 3", "thread 40 has ended"});
  s.expect_error( // warps wait for each other
      [](void* t, void* const*) {
        if (thread_index(t) % 32 == 3)
          tessera_emu_barrier(t, 1);
        else
          tessera_emu_warp_barrier(t, 2);
        tessera_emu_barrier(t, 1);
      },
      {"deadlock: its threads wait in different places", "thread 3 is in the barrier at site 1",
       "warp barrier at site 2"});
  s.expect_error([](void* t, void* const*) { shuffle(t, 1, 32, 1); }, {"lane 32"});
}

TEST(EmulatedBlocks, AccessesOutsideOfMemoryAreFound) {
  HandLaunch s;
  s.buffer("x", std::vector<float>(64));
  s.buffer("out", std::vector<float>(63));
  s.expect_error([](void* t, void* const* args) { store(t, pointer(args, 1) + thread_index(t), 0); },
                 {"thread 63", "0 bytes behind %out of 252 bytes"});
  s.expect_error([](void* t, void* const* args) { load(t, pointer(args, 0) - 1 + thread_index(t)); },
                 {"thread 0:", "4 bytes before %x"});
  s.expect_error([](void* t, void* const* args) { tessera_emu_global(t, pointer(args, 1) + 60, 16, kTesseraEmuRead); },
                 {"goes beyond its 252 bytes"});
  s.expect_error([](void* t, void* const* args) { tessera_emu_global(t, pointer(args, 0) + 1, 8, kTesseraEmuRead); },
                 {"%x at byte 4 is not aligned"});
  s.expect_error([](void* t, void* const* args) { store(t, pointer(args, 0), 0); }, {"not marked as written"});
  s.expect_error([](void* t, void* const*) { load_shared(t, 256); }, {"outside of the block's 1024 bytes"});
  s.expect_error([](void* t, void* const*) { load_shared(t, -1); }, {"outside of the block's"});
  s.expect_error([](void* t, void* const*) { tessera_emu_shared(t, 8, 16, kTesseraEmuRead); }, {"not aligned"});
  EXPECT_EQ(s.data[1], std::vector<float>(63)); // nothing came back from runs that failed
}

TEST(EmulatedBlocks, FramesThatDoNotFitAreFound) {
  HandLaunch s;
  s.buffer("out", std::vector<float>(64));
  auto large = [](void* t, void* const* args) {
    volatile char frame[emu::Stacks::kBytes + 1000];
    frame[0] = 1;
    store(t, pointer(args, 0) + thread_index(t), frame[0]);
  };
  s.expect_error(large, {"its frame does not fit an emulated thread's stack of 256 KB"});
  auto most = [](void* t, void* const* args) {
    volatile char frame[emu::Stacks::kBytes - emu::Stacks::kForCalls - (8 << 10)];
    frame[0] = 1;
    store(t, pointer(args, 0) + thread_index(t), frame[0]);
  };
  auto r = s.run(most);
  ASSERT_TRUE(r.ok()) << r.error().str();
  EXPECT_EQ(s.data[0], std::vector<float>(64, 1));
}

TEST(EmulatedBlocks, TheFirstBlockThatFailsIsTold) {
  HandLaunch s;
  s.grid = 100;
  s.buffer("x", std::vector<float>(64));
  for (uint64_t seed = 0; seed < test::seeds(20); ++seed) {
    auto r = s.run(
        [](void* t, void* const* args) {
          auto block = tessera_emu_block_index(t, 0);
          if (block % 10 == 7) load(t, pointer(args, 0) + 1000);
        },
        seed);
    ASSERT_FALSE(r.ok());
    EXPECT_NE(r.error().message.find(seed % 2 ? "block 97," : "block 7,"), std::string::npos) << r.error().message;
  }
}

TEST(EmulatedBlocks, ArgumentsThatShareMemoryStaySo) {
  HandLaunch s;
  s.buffer("x", {});
  s.buffer("out", {});
  s.kernel.name = "in_place";
  std::vector<float> memory(64);
  for (size_t i = 0; i < 64; ++i) memory[i] = static_cast<float>(i);
  auto bytes = std::as_writable_bytes(std::span(memory));
  std::vector<tile::Argument> args = {{bytes, {}}, {bytes.subspan(16, 128), {}}};
  auto m = GlobalMemory::make(s.kernel, args);
  ASSERT_TRUE(m.ok());
  IndexReport* report = nullptr;
  auto arguments = m->launch_arguments(report);
  EXPECT_EQ(pointer(arguments.data(), 1) - pointer(arguments.data(), 0), 4);
  pointer(arguments.data(), 1)[2] = 100;
  m->copy_back();
  EXPECT_EQ(memory[6], 100);
  // Alone, an argument has the alignment that is promised and no more.
  std::vector<tile::Argument> apart = {{bytes.first(64), {}}, {bytes.subspan(64), {}}};
  auto n = GlobalMemory::make(s.kernel, apart);
  ASSERT_TRUE(n.ok());
  arguments = n->launch_arguments(report);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer(arguments.data(), i)) % 128, 64u);
}

// 1024 threads and a thousand barriers: a million switches.
TEST(EmulatedBlocks, SwitchAMillionTimes) {
  HandLaunch s;
  s.threads = 1024;
  s.buffer("out", std::vector<float>(1024));
  auto r = s.run([](void* t, void* const* args) {
    int i = thread_index(t);
    for (int k = 0; k < 1000; ++k) {
      store_shared(t, i % 256, 0);
      tessera_emu_barrier(t, 1);
    }
    store(t, pointer(args, 0) + i, 1);
  });
  EXPECT_FALSE(r.ok()); // four threads a word
  auto barriers = [](void* t, void* const* args) {
    int i = thread_index(t);
    for (int k = 0; k < 1000; ++k) tessera_emu_barrier(t, 1);
    store(t, pointer(args, 0) + i, 1);
  };
  r = s.run(barriers);
  ASSERT_TRUE(r.ok()) << r.error().str();
  EXPECT_EQ(r->barriers, 1000);
  EXPECT_EQ(s.data[0], std::vector<float>(1024, 1));
}

} // namespace
} // namespace tessera
