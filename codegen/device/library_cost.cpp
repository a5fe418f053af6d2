#include "codegen/device/library_cost.h"
#include "codegen/target/derived.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace tessera {
namespace {

constexpr int64_t kAccess = 16; // bytes of a vector access

bool uses_tensor_cores(const ProductShape& s) { return info(s.dtype).bits <= 16 || (s.dtype == DType::F32 && s.tf32); }

// Rates that a library reaches.
struct Rates {
  double compute = 0;           // multiply-adds of one multiprocessor or core per microsecond
  double cached_bytes = 0;      // that all stay in the level-2 cache
  double cache = 0, memory = 0; // bytes per microsecond
  double pooling = 1;           // of either, in pooling
  [[nodiscard]] double memory_us(double bytes) const { return bytes / (bytes <= cached_bytes ? cache : memory); }
};

Rates host_rates(const ProductShape& s, const Target& device, const LibraryCost& cost) {
  return {device.fma_per_cycle * device.clock_mhz * cost.vectors * 4 / std::max(4, info(s.dtype).bits / 8),
          static_cast<double>(device.l2_bytes), device.l2_bytes_per_us * device.cores,
          reached_bandwidth(device) * cost.bandwidth};
}

double gpu_compute(const ProductShape& s, const Target& device, const LibraryCost& cost) {
  const double per_us = device.clock_mhz;
  const int bits = info(s.dtype).bits;
  if (s.dtype == DType::F16 || s.dtype == DType::BF16) return device.tensor_f16_per_cycle * per_us * cost.tensor;
  if (s.dtype == DType::F32 && s.tf32) return device.tensor_tf32_per_cycle * per_us * cost.tensor;
  if (bits == 8) return device.tensor_i8_per_cycle * per_us * cost.tensor;
  return device.fma_per_cycle * per_us * cost.vectors * (bits > 32 ? 0.5 : 1);
}

Rates gpu_rates(const ProductShape& s, const Target& device, const LibraryCost& cost) {
  return {gpu_compute(s, device, cost), static_cast<double>(device.l2_bytes) / 2, device.l2_bytes_per_us * cost.cached,
          device.memory_bytes_per_us * cost.bandwidth, cost.pooling};
}

PredictedTime put_together(double memory, double compute, double latency, const Target& device) {
  const double launch = lone_launch_us(device);
  PredictedTime out;
  out.terms = {{"memory", memory}, {"compute", compute}, {"latency", latency}, {"launch", launch}};
  out.us = launch + latency + std::max(memory, compute);
  return out;
}

struct Tile {
  double m, n;
  double rate;            // multiply-adds of one multiprocessor per microsecond
  double epilogue_us = 0; // of a tile
};

double value_of(const SymShape& shape, size_t begin, size_t end, const SizeValue& value, bool& known) {
  double out = 1;
  for (size_t d = begin; d < end; ++d) {
    const auto v = value(shape[d]);
    known = known && v.has_value();
    out *= v.value_or(1);
  }
  return out;
}

double stored_bytes(const Graph& graph, const OperandView& view, const SizeValue& value, bool& known) {
  double out = info(graph.type(view.value).dtype).bits / 8.0;
  for (size_t d = 0; d < view.shape.size(); ++d)
    if (!view.strides[d].is_const(0)) out *= value_of(view.shape, d, d + 1, value, known);
  return out;
}

// The most bytes, up to an access, of which the contiguous extent and all other strides of a matrix are multiples.
int64_t alignment_of(const Graph& graph, const OperandView& view, const SizeValue& value, bool& known) {
  const int64_t element = std::max(1, info(graph.type(view.value).dtype).bits / 8);
  int64_t bytes = kAccess;
  for (size_t d = 0; d < view.shape.size(); ++d) {
    const auto extent = value(view.shape[d]), step = value(view.strides[d]);
    known = known && extent && step;
    if (!known || *extent == 1 || *step == 0) continue;
    bytes = std::gcd(bytes, element * static_cast<int64_t>(*step == 1 ? *extent : *step));
  }
  return bytes;
}

// Multiply-adds of each element of the result.
SymExpr summed(const LibraryCall& call) {
  SymExpr out = 1;
  if (call.operands.size() < 2) return 0;
  const SymShape& b = call.operands[1].shape;
  if (call.kind == LibraryCall::Kind::Matmul) return b.size() >= 2 ? b[b.size() - 2] : out;
  if (call.kind == LibraryCall::Kind::Pool) return 0;
  for (size_t d = 1; d < b.size(); ++d) out *= b[d]; // [out, in / groups, kernel ...]
  return out;
}

} // namespace

double flops(const ProductShape& s) { return 2 * s.batch * s.m * s.n * s.k; }

PredictedTime product_time(const ProductShape& s, const Target& device, const LibraryCost& cost) {
  const bool tiled = device.is_gpu(); // waves of tiles, of which a host's library has so many that all cores have work
  const Rates rates = (tiled ? gpu_rates : host_rates)(s, device, cost);
  const double memory = rates.memory_us(s.bytes);
  if (s.batch * s.m * s.n == 0) return put_together(memory, 0, 0, device);
  if (s.k == 0) return put_together(memory / rates.pooling, 0, 0, device);
  if (!tiled)
    return put_together(memory, flops(s) / 2 / (rates.compute * device.cores), cost.host_start * device.launch_us,
                        device);
  const bool rows = uses_tensor_cores(s) && s.alignment < kAccess;
  const double rate = rates.compute * (s.windows ? cost.convolution : 1) * (s.padding > 1 ? cost.unaligned : 1) *
                      (rows ? s.alignment < 4 ? cost.rows_of_2 : cost.rows_of_4 : 1);
  std::array tiles_of = {Tile{128, 256, rate}, Tile{128, 128, rate}, Tile{64, 128, rate},
                         Tile{64, 64, rate * cost.tile_small}, Tile{64, 32, rate * cost.tile_least}};
  const bool half = s.dtype == DType::F16 || s.dtype == DType::BF16;
  if (device.warpgroup_f16_per_cycle > 0 && half && rate == rates.compute) {
    tiles_of[0].rate = device.warpgroup_f16_per_cycle * device.clock_mhz * cost.group_tile;
    tiles_of[0].epilogue_us = device.kernel_us * cost.group_epilogue;
  }
  const double k = s.k * s.padding;
  double compute = INFINITY, latency = 0;
  const double large = std::max(s.m, s.n), small = std::min(s.m, s.n);
  for (const Tile& t : tiles_of) {
    const double tiles = s.batch * std::ceil(large / t.n) * std::ceil(small / t.m);
    for (double parts = 1; parts <= 16 && (parts == 1 || k / parts >= 256); parts *= 2) {
      const double waves = std::ceil(tiles * parts / device.multiprocessors);
      const double time = waves * (t.m * t.n * std::ceil(k / parts / 32) * 32 / t.rate + t.epilogue_us);
      const double wait =
          device.kernel_us * (cost.start + cost.chain * std::ceil(k / parts / 64) + (parts > 1 ? cost.split : 0));
      if (std::max(time, memory) + wait < std::max(compute, memory) + latency) compute = time, latency = wait;
    }
  }
  return put_together(memory, compute, latency, device);
}

double copy_time(double bytes, const Target& device, const LibraryCost& cost) {
  const ProductShape none;
  const Rates rates = (device.is_gpu() ? gpu_rates : host_rates)(none, device, cost);
  return lone_launch_us(device) + rates.memory_us(bytes);
}

PredictedTime attention_time(const ProductShape& scores, const ProductShape& values, const Target& device,
                             const LibraryCost& cost) {
  const Rates rates = gpu_rates(scores, device, cost);
  const double memory = rates.memory_us(scores.bytes + values.bytes);
  const double each = rates.compute * cost.attention / cost.tensor;
  const double tiles = scores.batch * std::ceil(scores.m / cost.attention_rows);
  const double work = cost.attention_rows * scores.n * (scores.k + values.n); // multiply-adds of a block
  return put_together(memory, std::ceil(tiles / processors(device)) * work / each,
                      cost.attention_start * device.kernel_us, device);
}

std::optional<ProductShape> product_shape(const Graph& graph, const LibraryCall& call, const SizeValue& value) {
  ProductShape s;
  bool known = true;
  s.dtype = graph.type(call.operands[0].value).dtype;
  s.tf32 = graph.node(call.node).attributes.i("tf32", 0) != 0;
  const SymShape& r = call.result.shape;
  const auto k = value(summed(call));
  known = k.has_value();
  s.k = k.value_or(0);
  if (call.kind == LibraryCall::Kind::Matmul && r.size() >= 2) {
    s.batch = value_of(r, 0, r.size() - 2, value, known);
    s.m = value_of(r, r.size() - 2, r.size() - 1, value, known);
    s.n = value_of(r, r.size() - 1, r.size(), value, known);
    // Batch dimensions along which the right operand repeats are rows of one product.
    const OperandView& b = call.operands[1];
    for (size_t d = 0; d + 2 < b.strides.size() && d + 2 < r.size(); ++d)
      if (b.strides[d].is_const(0)) {
        const double repeats = value_of(r, d, d + 1, value, known);
        s.batch /= repeats;
        s.m *= repeats;
      }
    s.alignment = alignment_of(graph, call.result, value, known);
    for (const OperandView& o : call.operands)
      s.alignment = std::min(s.alignment, alignment_of(graph, o, value, known));
  } else {
    for (size_t d = 2; call.operands.size() > 1 && d < call.operands[1].shape.size(); ++d)
      s.windows = s.windows || !call.operands[1].shape[d].is_const(1);
    if (call.operands.size() > 1) { // channels of a pixel that are multiplied with each other
      const double channels = value_of(call.operands[1].shape, 1, 2, value, known);
      const double together = 128.0 / info(s.dtype).bits;
      if (channels > 0) s.padding = std::ceil(channels / together) * together / channels;
    }
    const auto groups = static_cast<double>(std::max<int64_t>(1, graph.node(call.node).attributes.i("groups", 1)));
    s.batch = groups;
    s.m = value_of(r, 0, 1, value, known) * value_of(r, 2, r.size(), value, known);
    s.n = r.size() > 1 ? value_of(r, 1, 2, value, known) / groups : 1;
  }
  for (const OperandView& o : call.operands) s.bytes += stored_bytes(graph, o, value, known);
  s.bytes += stored_bytes(graph, call.fixed ? call.fixed->result : call.result, value, known);
  if (call.fixed && call.fixed->residual) s.bytes += stored_bytes(graph, *call.fixed->residual, value, known);
  return known ? std::optional(s) : std::nullopt;
}

std::optional<std::pair<ProductShape, ProductShape>> product_shapes(const Graph& graph, const AttentionCall& call,
                                                                    const SizeValue& value) {
  bool known = true;
  const SymShape &q = call.q.shape, &k = call.k.shape, &v = call.v.shape;
  ProductShape a;
  a.dtype = graph.type(call.q.value).dtype;
  a.batch = value_of(q, 0, q.size() - 2, value, known);
  a.m = value_of(q, q.size() - 2, q.size() - 1, value, known);
  a.k = value_of(q, q.size() - 1, q.size(), value, known);
  a.n = value_of(k, k.size() - 2, k.size() - 1, value, known);
  ProductShape b = a;
  b.k = a.n;
  b.n = value_of(v, v.size() - 1, v.size(), value, known);
  a.bytes = stored_bytes(graph, call.q, value, known) + stored_bytes(graph, call.k, value, known);
  b.bytes = stored_bytes(graph, call.v, value, known) + stored_bytes(graph, call.out, value, known);
  if (!known) return std::nullopt;
  return std::pair(a, b);
}

SymExpr flops(const LibraryCall& call) { return product(call.result.shape) * summed(call) * 2; }
SymExpr flops(const AttentionCall& call) {
  const SymShape &q = call.q.shape, &v = call.v.shape;
  return (product(q) + product(call.out.shape)) * v[v.size() - 2] * 2;
}

} // namespace tessera
