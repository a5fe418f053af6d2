#include "driver.h"
#include "tests/base/seeds.h"
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

// A target whose inputs are more than bytes defines this: it makes of an input another one, which `seed` decides.
extern "C" [[gnu::weak]] size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned int seed);

namespace {

using Bytes = std::string;

// The running input, for the report of a crash: it is written to crash-<number> in the working folder.
const Bytes* current = nullptr;
char crash_file[64] = "crash";

void on_crash(int signal) {
  if (FILE* f = current == nullptr ? nullptr : std::fopen(crash_file, "wb")) {
    std::fwrite(current->data(), 1, current->size(), f);
    std::fclose(f);
    std::fprintf(stderr, "\ncrashed by the input in %s\n", crash_file);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(const Bytes& input, long number) {
  std::snprintf(crash_file, sizeof crash_file, "crash-%ld", number);
  current = &input;
  ::alarm(60); // an input that takes this long is a finding as well
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  ::alarm(0);
  current = nullptr;
}

// One to four edits: bits, bytes, numbers that tempt overflows, blocks removed, repeated or taken from another seed.
void mutate(Bytes& b, const std::vector<Bytes>& seeds, std::mt19937_64& rng) {
  auto below = [&rng](size_t n) { return n == 0 ? 0 : static_cast<size_t>(rng() % n); };
  for (size_t edits = 1 + below(4); edits > 0; --edits) {
    if (b.empty()) b = seeds[below(seeds.size())];
    if (b.empty()) return;
    size_t at = below(b.size()), length = 1 + below(std::min<size_t>(b.size() - at, 64));
    switch (below(9)) {
    case 0: b[at] = static_cast<char>(b[at] ^ (1 << below(8))); break;
    case 1: b[at] = static_cast<char>(rng()); break;
    case 2: b[at] = static_cast<char>(b[at] + (below(2) != 0 ? 1 : -1)); break;
    case 3: b.erase(at, length); break;
    case 4: b.insert(below(b.size()), b.substr(at, length)); break;
    case 5: b.resize(at); break;
    case 6: {
      static const char* const kNumbers[] = {"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
                                             "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
                                             "\xff\xff\xff\xff\x0f",
                                             "9223372036854775807",
                                             "-1",
                                             "0",
                                             "99999999999999999999"};
      b.insert(at, kNumbers[below(std::size(kNumbers))]);
      break;
    }
    case 7: {
      const Bytes& other = seeds[below(seeds.size())];
      if (other.empty()) break;
      size_t from = below(other.size());
      b.replace(at, length, other.substr(from, 1 + below(64)));
      break;
    }
    default: std::swap(b[at], b[below(b.size())]); break;
    }
  }
}

std::vector<Bytes> read_seeds(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const auto& p : paths) {
    if (!std::filesystem::is_directory(p)) {
      files.push_back(p);
      continue;
    }
    for (const auto& e : std::filesystem::recursive_directory_iterator(p))
      if (e.is_regular_file()) files.push_back(e.path().string());
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> out;
  for (const auto& f : files) {
    std::ifstream in(f, std::ios::binary);
    if (!in) {
      std::fprintf(stderr, "cannot read the seed %s\n", f.c_str());
      std::exit(2);
    }
    out.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return out;
}

} // namespace

int main(int argc, char** argv) {
  long iterations = 1000, first = 0;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "-n") == 0 && i + 1 < argc)
      iterations = std::atol(argv[++i]);
    else if (std::strcmp(argv[i], "-s") == 0 && i + 1 < argc)
      first = std::atol(argv[++i]);
    else
      paths.emplace_back(argv[i]);
  }
  iterations = tessera::test::seeds(static_cast<uint32_t>(iterations));
  std::vector<Bytes> seeds = read_seeds(paths);
  if (seeds.empty()) {
    std::fprintf(stderr, "no seeds given\n");
    return 2;
  }
  for (int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGBUS, SIGALRM}) std::signal(signal, on_crash);
  for (size_t i = 0; i < seeds.size(); ++i) run(seeds[i], -1 - static_cast<long>(i));
  for (long n = first; n < first + iterations; ++n) {
    std::mt19937_64 rng(static_cast<uint64_t>(n) * 0x9e3779b97f4a7c15ull + 1); // each input by its number alone
    Bytes input = seeds[static_cast<size_t>(rng() % seeds.size())];
    if (LLVMFuzzerCustomMutator != nullptr) {
      constexpr size_t kMax = 16384; // bytes that an input may grow to
      size_t size = input.size();
      input.resize(std::max(size, kMax));
      auto* data = reinterpret_cast<uint8_t*>(input.data());
      input.resize(LLVMFuzzerCustomMutator(data, size, input.size(), static_cast<unsigned int>(rng() | 1)));
    } else {
      mutate(input, seeds, rng);
    }
    run(input, n);
  }
  std::printf("%zu seeds and %ld mutations of them, no crash\n", seeds.size(), iterations);
  return 0;
}
