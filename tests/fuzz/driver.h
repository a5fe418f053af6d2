// A bounded stand-in for libFuzzer, so that fuzz targets run as tests under any compiler: each seed as it is, then
// `iterations` mutations of seeds by a fixed generator. The same arguments run the same inputs.
//
//   fuzz_NAME [-n ITERATIONS] [-s FIRST_SEED_NUMBER] SEED_FILE_OR_FOLDER...
//
// With clang, -DTESSERA_LIBFUZZER=ON links libFuzzer's own main instead (coverage-guided, unbounded).
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
