// Kernels given as text, run on vectors of numbers.
#pragma once
#include "base/tensor.h"
#include "codegen/tile/tile.h"
#include <gtest/gtest.h>

namespace tessera::tile::test {

inline Kernel read(std::string_view text) {
  Result<Kernel> k = parse(text);
  if (!k.ok()) {
    ADD_FAILURE() << k.error().str() << text;
    std::abort();
  }
  return *k;
}

// Runs with one f32 array per pointer, in order (i64 arrays where the parameter says so), and the given i64 scalars.
struct Outcome {
  std::vector<std::vector<double>> arrays; // contents, in and out
  std::vector<int64_t> scalars;
  std::string error; // empty when it ran
  IndexReport report;
};
inline Outcome run(const Kernel& k, std::vector<std::vector<double>> arrays, std::vector<int64_t> scalars = {},
                   int64_t grid = 1) {
  Outcome r;
  std::vector<Tensor> tensors;
  std::vector<Argument> args;
  size_t array = 0, scalar = 0;
  for (const Param& p : k.params) {
    if (p.type.kind == Type::Kind::Data) {
      args.push_back({{}, {static_cast<double>(scalars[scalar]), scalars[scalar]}});
      ++scalar;
      continue;
    }
    const auto& in = arrays[array++];
    Tensor t = Tensor::create(p.type.dtype, {static_cast<int64_t>(in.size())}).value();
    for (size_t i = 0; i < in.size(); ++i) {
      if (is_float(p.type.dtype))
        t.set_f64(static_cast<int64_t>(i), in[i]);
      else
        t.set_i64(static_cast<int64_t>(i), static_cast<int64_t>(in[i]));
    }
    args.push_back({{t.mutable_data(), t.bytes()}, {}});
    tensors.push_back(t);
  }
  Result<InterpretResult> result = interpret(k, args, grid);
  if (result.ok())
    r.report = result->report;
  else
    r.error = result.error().message;
  for (const Tensor& t : tensors) {
    r.arrays.emplace_back();
    for (int64_t i = 0; i < t.count(); ++i)
      r.arrays.back().push_back(is_float(t.dtype()) ? t.get_f64(i) : static_cast<double>(t.get_i64(i)));
  }
  return r;
}

} // namespace tessera::tile::test
