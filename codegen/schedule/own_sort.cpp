// Sorting by integer keys: a host sorts a row by digits, or lists the few that are wanted; a block of threads sorts a tile
// by a network.
#include "codegen/schedule/own_lowering.h"
#include "graph/ops/questions.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace tessera {
namespace {

DType bits_type(DType dtype) {
  switch (info(dtype).bits) {
  case 16: return DType::U16;
  case 32: return DType::U32;
  case 64: return DType::U64;
  default: return DType::U8;
  }
}
DType key_type(DType dtype) { return info(dtype).bits == 64 ? DType::U64 : DType::U32; }
int key_bits(DType dtype) { return std::max(8, info(dtype).bits); }

class SortLowering : protected OwnLowering {
public:
  SortLowering(const Graph& graph, const Node& node, const Target& device, const std::string& name)
      : OwnLowering(graph, node, device, name), x_type_(type(0)), y_type_(graph.type(node.results[0])),
        key_(key_type(x_type_.dtype)) {}

protected:
  static constexpr int64_t kAligned = 64; // bytes: how the tile lowering aligns scratch arrays
  [[nodiscard]] V key_constant(uint64_t v) { return b_.const_i(key_, static_cast<int64_t>(v)); }

  // The operand is read as bits.
  void pointers(DType result) {
    x_ = pointer("x", bits_type(x_type_.dtype), false);
    y_ = pointer("y", result, true);
  }

  // Unsigned numbers in the order of the elements with these bits: NaN is the greatest, -0 equals 0.
  V key(V bits) {
    const DType dtype = x_type_.dtype;
    const int width = key_bits(dtype);
    const uint64_t all = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1, sign = uint64_t{1} << (width - 1);
    V v = b_.cast(bits, key_);
    if (is_float(dtype)) {
      const uint64_t infinity = dtype == DType::F64    ? 0x7ff0000000000000u
                                : dtype == DType::F32  ? 0x7f800000u
                                : dtype == DType::BF16 ? 0x7f80u
                                                       : 0x7c00u;
      V magnitude = op(ScalarOp::And, v, key_constant(all ^ sign));
      V negative = op(ScalarOp::Ne, op(ScalarOp::And, v, key_constant(sign)), key_constant(0));
      V ordered = select(negative, op(ScalarOp::Xor, v, key_constant(all)), op(ScalarOp::Or, v, key_constant(sign)));
      ordered = select(op(ScalarOp::Eq, magnitude, key_constant(0)), key_constant(sign), ordered);
      v = select(op(ScalarOp::Gt, magnitude, key_constant(infinity)), key_constant(all), ordered);
    } else if (info(dtype).kind == DTypeKind::Signed) {
      v = op(ScalarOp::Xor, v, key_constant(sign));
    }
    return node_.attributes.i("descending") != 0 ? op(ScalarOp::Xor, v, key_constant(all)) : v;
  }

  void describe(ScheduleKind kind, std::string why) {
    out_.schedule.kind = kind;
    out_.why = std::move(why);
    out_.buffers = {node_.operands[0], node_.results[0]};
    out_.written = {false, true};
    out_.may_overwrite.resize(2);
    out_.predicted = time_of_bytes(
        env_, device_, x_type_.count() * byte_size(x_type_.dtype, 1) + y_type_.count() * byte_size(y_type_.dtype, 1));
  }

  const TensorType x_type_, y_type_;
  const DType key_;
  V x_ = -1, y_ = -1;
};

// A program sorts a row by its keys' digits, the lowest first; each pass is stable. If fewer than all elements are
// wanted, the others are left out first, by a histogram of the highest digit.
class RowSort : SortLowering {
public:
  RowSort(const Graph& graph, const Node& node, const Target& device, const std::string& name)
      : SortLowering(graph, node, device, name), lanes_(std::max(1, device.vector_bytes / 4)) {}

  ScheduledKernel run() {
    const SymExpr n = x_type_.shape.back(), k = y_type_.shape.back();
    pointers(DType::I64);
    n_ = size("n", n);
    k_ = size("k", k);
    const bool selects = !env_.known_equal(n, k) && key_bits(x_type_.dtype) > kDigit;
    choose_selecting_digit(n, selects);
    V twice = op(ScalarOp::Add, n_, n_);
    keys_ = scratch(key_, n * 2, twice);
    index_ = scratch(DType::I32, n * 2, twice);
    const int64_t buckets = int64_t{1} << std::max(kDigit, selecting_);
    counts_ = scratch(DType::I32, buckets, constant(buckets));
    base_ = op(ScalarOp::Mul, b_.program_id(0), n_);
    V count = n_;
    if (selects) {
      read_row(n_);
      count = leave_out();
    } else {
      read_row(constant(0));
    }
    V from = sort(count);
    V out = op(ScalarOp::Mul, b_.program_id(0), k_);
    tiles(k_, [&](V i, V mask) {
      V v = b_.load(index_, op(ScalarOp::Add, i, from), mask);
      b_.store(y_, op(ScalarOp::Add, i, out), b_.cast(v, DType::I64), mask);
    });
    describe(ScheduleKind::RowLoop, selects ? "a row in order of its digits, once what is not wanted is left out"
                                            : "a row in order of its digits");
    SymExpr rows = 1;
    for (size_t d = 0; d + 1 < x_type_.shape.size(); ++d) rows *= x_type_.shape[d];
    out_.grid = env_.simplify(rows);
    out_.work_per_program = n * key_bits(x_type_.dtype);
    out_.scratch_bytes = scratch_bytes_;
    return std::move(out_);
  }

private:
  static constexpr int kDigit = 8;

  // About as many buckets as elements, and no more than the level-1 cache has room for.
  void choose_selecting_digit(const SymExpr& n, bool selects) {
    if (!selects) return;
    // Counters of a digit take a quarter of the cache, and at least one vector.
    const auto bits = [](int64_t n) { return static_cast<int>(std::bit_width(static_cast<uint64_t>(n))) - 1; };
    const int64_t counter = byte_size(DType::I32, 1);
    const int most = bits(std::max<int64_t>(2 * lanes_, device_.l1_bytes / (4 * counter))), least = bits(lanes_);
    const auto known = env_.simplify(n).as_const();
    selecting_ = std::clamp(known ? bits(std::max<int64_t>(1, *known)) - 1 : most, least, most);
  }

  V scratch(DType dtype, const SymExpr& count, V elements) {
    scratch_bytes_ += ceildiv(count * SymExpr(byte_size(dtype, 1)), kAligned) * kAligned;
    return b_.scratch(dtype, elements);
  }
  void tiles(V end, const std::function<void(V, V)>& body) {
    b_.for_loop(constant(0), end, constant(lanes_), {}, [&](V i, std::span<const V>) -> Values {
      V at = op(ScalarOp::Add, b_.range(lanes_), i);
      body(at, op(ScalarOp::Lt, at, end));
      return {};
    });
  }
  void each(V end, const std::function<void(V)>& body) {
    b_.for_loop(constant(0), end, constant(1), {}, [&](V i, std::span<const V>) -> Values {
      body(i);
      return {};
    });
  }

  // The row's keys, and with them the indices, at `to`.
  void read_row(V to) {
    tiles(n_, [&](V i, V mask) {
      V at = op(ScalarOp::Add, i, to);
      b_.store(keys_, at, key(b_.load(x_, op(ScalarOp::Add, i, base_), mask)), mask);
      b_.store(index_, at, b_.cast(i, DType::I32), mask);
    });
  }
  void clear(int bits) {
    tiles(constant(int64_t{1} << bits),
          [&](V i, V mask) { b_.store(counts_, i, b_.broadcast(b_.const_i(DType::I32, 0), {lanes_}), mask); });
  }
  V count_of(V bucket) { return b_.cast(b_.load(counts_, bucket), DType::I64); }
  void set_count(V bucket, V count) { b_.store(counts_, bucket, b_.cast(count, DType::I32)); }

  // Moves the keys at n_ that may be wanted, and their indices, to 0; yields their number.
  V leave_out() {
    clear(selecting_);
    const int shift = key_bits(x_type_.dtype) - selecting_;
    auto bucket = [&](V key) {
      return b_.cast(op(ScalarOp::Shr, key, key_constant(static_cast<uint64_t>(shift))), DType::I64);
    };
    auto key_at = [&](V i) { return b_.load(keys_, op(ScalarOp::Add, i, n_)); };
    V one = constant(1), zero = constant(0);
    each(n_, [&](V i) {
      V at = bucket(key_at(i));
      set_count(at, op(ScalarOp::Add, count_of(at), one));
    });
    // The last bucket before which there are fewer than are wanted.
    V last = b_.for_loop(zero, constant(int64_t{1} << selecting_), one, {zero, zero},
                         [&](V i, std::span<const V> c) -> Values {
                           return {op(ScalarOp::Add, c[0], count_of(i)), select(op(ScalarOp::Lt, c[0], k_), i, c[1])};
                         })[1];
    return b_.for_loop(zero, n_, one, {zero}, [&](V i, std::span<const V> c) -> Values {
      V key = key_at(i);
      b_.store(keys_, c[0], key);
      b_.store(index_, c[0], b_.cast(i, DType::I32));
      return {op(ScalarOp::Add, c[0], select(op(ScalarOp::Le, bucket(key), last), one, zero))};
    })[0];
  }

  // Sorts `count` elements at 0; yields where they are then: 0 or n_.
  V sort(V count) {
    V zero = constant(0), one = constant(1);
    const int passes = key_bits(x_type_.dtype) / kDigit;
    return b_.for_loop(zero, constant(passes), one, {zero}, [&](V pass, std::span<const V> c) -> Values {
      V from = c[0], to = op(ScalarOp::Sub, n_, from);
      V shift = b_.cast(op(ScalarOp::Mul, pass, constant(kDigit)), key_);
      auto bucket = [&](V key) {
        return b_.cast(op(ScalarOp::And, op(ScalarOp::Shr, key, shift), key_constant((1u << kDigit) - 1)), DType::I64);
      };
      auto key_at = [&](V i) { return b_.load(keys_, op(ScalarOp::Add, i, from)); };
      clear(kDigit);
      each(count, [&](V i) {
        V at = bucket(key_at(i));
        set_count(at, op(ScalarOp::Add, count_of(at), one));
      });
      // A digit that all have in common needs no pass.
      V some = op(ScalarOp::Lt, zero, count);
      V first = bucket(b_.load(keys_, from, some, key_constant(0)));
      V differ = op(ScalarOp::Ne, count_of(first), count);
      return b_.if_else(
          differ,
          [&]() -> Values {
            b_.for_loop(zero, constant(int64_t{1} << kDigit), one, {zero}, [&](V i, std::span<const V> sum) -> Values {
              V next = op(ScalarOp::Add, sum[0], count_of(i));
              set_count(i, sum[0]);
              return {next};
            });
            each(count, [&](V i) {
              V key = key_at(i), index = b_.load(index_, op(ScalarOp::Add, i, from));
              V at = bucket(key), place = count_of(at);
              set_count(at, op(ScalarOp::Add, place, one));
              place = op(ScalarOp::Add, place, to);
              b_.store(keys_, place, key);
              b_.store(index_, place, index);
            });
            return {to};
          },
          [&]() -> Values { return {from}; });
    })[0];
  }

  const int lanes_;
  int selecting_ = 0; // bits of the digit by which elements are left out
  SymExpr scratch_bytes_ = 0;
  V n_ = -1, k_ = -1, base_ = -1, keys_ = -1, index_ = -1, counts_ = -1;
};

// The times of the parts of selecting and of sorting by digits on one core, in microseconds: instructions and accesses
// of the generated code at the target's rates, and loads for whose data the next step waits.
struct SelectTimes {
  double tile;     // of the row, in both passes of a selection: a key is made of each element and compared
  double inserted; // an element that comes into the list, without the list
  double moved;    // a tile of the list, for each of these
  double counted;  // by digits: an element: its key, and a counter that the next one waits for
  double pass;     // by digits: the counters of a pass

  SelectTimes(const Target& device, double lanes) {
    constexpr double kKey = 10, kMove = 12, kMoveAccesses = 6, kBucket = 5, kBuckets = 256;
    const double instruction = lanes / (device.integer_per_cycle * device.clock_mhz);
    const double access = lanes / (device.load_store_per_cycle * device.clock_mhz);
    const double mispredicted = device.l2_latency_us; // a core starts anew after about as long as that
    tile = 2 * (kKey * instruction + device.l1_latency_us);
    inserted = 2 * (mispredicted + device.l1_latency_us);
    moved = kMove * instruction + kMoveAccesses * access + 2 * device.l1_latency_us;
    counted = kKey * instruction / lanes + device.l1_latency_us;
    pass = kBuckets * kBucket * instruction;
  }
};

// The few least keys of a row, in order, as a list in memory. A first pass over the row finds the least key of each lane
// of some tiles; the k-th of these is a limit, since k keys are no greater. A second pass compares tiles with the limit,
// and inserts what is less. In whichever order a row is, few keys are below its limit.
class RowSelect : SortLowering {
public:
  RowSelect(const Graph& graph, const Node& node, const Target& device, const std::string& name)
      : SortLowering(graph, node, device, name), lanes_(lanes_of(device)) {}

  // Whether this takes less time than digits do, for rows of n elements of which k are wanted. Of the keys below the
  // limit, k (1 + log(samples / k)) are inserted, as of the samples.
  static bool pays(const Graph& graph, const Node& node, const Target& device) {
    const ShapeEnv& env = graph.env();
    const TensorType& x = graph.type(node.operands[0]);
    const auto wanted = env.simplify(graph.type(node.results[0]).shape.back()).as_const();
    if (!wanted || *wanted < 1) return false;
    const SymExpr size = env.simplify(x.shape.back());
    const int64_t in_cache = device.l1_bytes / byte_size(DType::U32, 1); // where nothing is known: a row that it holds
    const auto n = static_cast<double>(size.as_const().value_or(env.hint(size).value_or(in_cache)));
    const auto k = static_cast<double>(*wanted);
    const double lanes = lanes_of(device), samples = static_cast<double>(groups_of(*wanted, lanes_of(device))) * lanes;
    if (n <= samples) return false;
    const double inserted = 2 * k * (1 + std::log(samples / k));
    const SelectTimes us(device, lanes);
    const double listed = n / lanes * us.tile + inserted * (us.inserted + std::ceil(k / lanes) * us.moved);
    return listed < n * us.counted + us.pass * key_bits(x.dtype) / 8;
  }

  ScheduledKernel run() {
    const SymExpr n = x_type_.shape.back(), k = y_type_.shape.back();
    pointers(DType::I64);
    count_ = size("n", n);
    wanted_ = size("k", k);
    zero_ = constant(0);
    lanes_value_ = constant(lanes_);
    lane_ = b_.range(lanes_);
    // The list begins behind one tile, whose last element is less than every key.
    const int64_t wide = *env_.simplify(k).as_const(), groups = groups_of(wide, lanes_);
    tiles_ = (wide + lanes_ - 1) / lanes_;
    const int64_t room = (tiles_ + 1) * lanes_;
    keys_ = b_.scratch(key_, constant(room));
    index_ = b_.scratch(DType::I32, constant(room));
    tile_keys_ = b_.scratch(key_, constant(groups * lanes_));
    b_.store(keys_, lane_, b_.broadcast(key_constant(0), {lanes_}));
    base_ = op(ScalarOp::Mul, b_.program_id(0), count_);
    V limit = sampled(groups);
    b_.for_loop(zero_, count_, lanes_value_, {key_constant(0), zero_}, [&](V i, std::span<const V> c) -> Values {
      auto [keys, mask] = tile(i);
      V any = b_.reduce(ReduceKind::Any, op(ScalarOp::And, wanted(keys, limit, c), mask), 0);
      return b_.if_else(
          any,
          [&]() -> Values {
            b_.store(tile_keys_, lane_, keys);
            V end = op(ScalarOp::Min, op(ScalarOp::Sub, count_, i), lanes_value_);
            return insert_all(end, i, limit, c);
          },
          [&]() -> Values {
            return {c[0], c[1]};
          });
    });
    V out = op(ScalarOp::Mul, b_.program_id(0), wanted_);
    b_.for_loop(zero_, wanted_, lanes_value_, {}, [&](V i, std::span<const V>) -> Values {
      V at = op(ScalarOp::Add, lane_, i), mask = op(ScalarOp::Lt, at, wanted_);
      V v = b_.load(index_, op(ScalarOp::Add, at, lanes_value_), mask);
      b_.store(y_, op(ScalarOp::Add, at, out), b_.cast(v, DType::I64), mask);
      return {};
    });
    describe(ScheduleKind::RowLoop, "the least of a row in a list, into which lesser ones are inserted");
    SymExpr rows = 1;
    for (size_t d = 0; d + 1 < x_type_.shape.size(); ++d) rows *= x_type_.shape[d];
    out_.grid = env_.simplify(rows);
    out_.work_per_program = n;
    auto aligned = [](int64_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; };
    out_.scratch_bytes = aligned(room * byte_size(key_, 1)) + aligned(room * byte_size(DType::I32, 1)) +
                         aligned(groups * lanes_ * byte_size(key_, 1));
    return std::move(out_);
  }

private:
  static int lanes_of(const Target& device) { return std::max(1, device.vector_bytes / 4); }
  // Tiles of samples: twice as many as are wanted.
  static int64_t groups_of(int64_t wanted, int lanes) { return (2 * wanted + lanes - 1) / lanes; }

  std::pair<V, V> tile(V i) { // keys and mask
    V at = op(ScalarOp::Add, lane_, i), mask = op(ScalarOp::Lt, at, count_);
    return {key(b_.load(x_, op(ScalarOp::Add, at, base_), mask)), mask};
  }
  // Whether keys come into the list: c is its last key once it is full, 0 before; and its length.
  V wanted(V keys, V limit, std::span<const V> c) {
    V open = op(ScalarOp::Lt, c[1], wanted_);
    return op(ScalarOp::Or, op(ScalarOp::Lt, keys, c[0]), op(ScalarOp::And, open, op(ScalarOp::Le, keys, limit)));
  }
  Values insert_all(V end, V first, V limit, std::span<const V> c) {
    return b_.for_loop(zero_, end, constant(1), {c[0], c[1]}, [&](V l, std::span<const V> d) -> Values {
      V candidate = b_.load(tile_keys_, l);
      return b_.if_else(
          wanted(candidate, limit, d), [&]() -> Values { return insert(candidate, op(ScalarOp::Add, first, l), d[1]); },
          [&]() -> Values {
            return {d[0], d[1]};
          });
    });
  }

  // The limit: the k-th of the least keys of lanes, tile t of the row being one of group t mod `groups`.
  V sampled(int64_t groups) {
    V most = key_constant(~uint64_t{0});
    b_.for_loop(zero_, constant(groups), constant(1), {}, [&](V g, std::span<const V>) -> Values {
      V first = op(ScalarOp::Mul, g, lanes_value_);
      V least = b_.for_loop(first, count_, constant(groups * lanes_), {b_.broadcast(most, {lanes_})},
                            [&](V i, std::span<const V> c) -> Values {
                              auto [keys, mask] = tile(i);
                              return {op(ScalarOp::Min, c[0], select(mask, keys, b_.broadcast(most, {lanes_})))};
                            })[0];
      b_.store(tile_keys_, op(ScalarOp::Add, lane_, first), least);
      return {};
    });
    return insert_all(constant(groups * lanes_), zero_, most, std::array{key_constant(0), zero_})[0];
  }

  // Behind what is no greater in a list of `length` keys; yields its last key if it is full, and its length.
  Values insert(V candidate, V place, V length) {
    V number = b_.cast(place, DType::I32), one = constant(1);
    b_.for_loop(zero_, constant(tiles_), one, {}, [&](V t, std::span<const V>) -> Values {
      V first = op(ScalarOp::Mul, op(ScalarOp::Sub, constant(tiles_ - 1), t), lanes_value_); // the last tile first
      V p = op(ScalarOp::Add, lane_, first);
      V here = op(ScalarOp::Add, p, lanes_value_), before = op(ScalarOp::Sub, here, one);
      V there = b_.load(keys_, here), previous = b_.load(keys_, before);
      V stays = op(ScalarOp::And, op(ScalarOp::Le, there, candidate), op(ScalarOp::Lt, p, length));
      V follows = op(ScalarOp::And, op(ScalarOp::Le, previous, candidate), op(ScalarOp::Le, p, length));
      V old = b_.load(index_, here), older = b_.load(index_, before);
      b_.store(keys_, here, select(stays, there, select(follows, candidate, previous)));
      b_.store(index_, here, select(stays, old, select(follows, number, older)));
      return {};
    });
    V longer = op(ScalarOp::Min, op(ScalarOp::Add, length, one), wanted_);
    V last = b_.load(keys_, op(ScalarOp::Add, wanted_, constant(lanes_ - 1)));
    return {select(op(ScalarOp::Lt, longer, wanted_), key_constant(0), last), longer};
  }

  const int lanes_;
  int64_t tiles_ = 1; // of the list
  V count_ = -1, wanted_ = -1, zero_ = -1, lanes_value_ = -1, lane_ = -1, base_ = -1;
  V keys_ = -1, index_ = -1, tile_keys_ = -1; // scratch
};

// A block sorts a tile in shared memory by Batcher's bitonic network.
class TileSort : SortLowering {
public:
  using SortLowering::SortLowering;

  ScheduledKernel run() {
    const int tile = static_cast<int>(node_.attributes.i("tile"));
    pointers(DType::U64);
    V n = size("n", x_type_.shape[1]), count = size("tiles", y_type_.shape[1]), keep = size("keep", y_type_.shape[2]);
    V memory = b_.scratch(DType::U64, constant(tile)), program = b_.program_id(0);
    V at = b_.range(tile);
    V index = op(ScalarOp::Add, at, op(ScalarOp::Mul, op(ScalarOp::Mod, program, count), constant(tile)));
    V mask = op(ScalarOp::Lt, index, n);
    V bits = b_.load(x_, op(ScalarOp::Add, index, op(ScalarOp::Mul, op(ScalarOp::Div, program, count), n)), mask);
    V high = op(ScalarOp::Shl, b_.cast(key(bits), DType::U64), b_.const_i(DType::U64, 32));
    V packed = op(ScalarOp::Or, high, b_.cast(index, DType::U64));
    b_.store(memory, at, select(mask, packed, b_.const_i(DType::U64, -1)));
    network(memory, tile);
    V kept = op(ScalarOp::Lt, at, keep);
    b_.store(y_, op(ScalarOp::Add, at, op(ScalarOp::Mul, program, keep)), b_.load(memory, at, kept), kept);

    // A thread has two pairs of elements at a time, and a block half of the threads that it may have: the network's
    // barriers then leave another block running.
    const int64_t pair = std::max<int64_t>(1, device_.access_bytes / byte_size(DType::U64, 1));
    const int warps = block_warps(std::min<int64_t>(tile / (4 * pair), device_.block_threads / 2));
    out_.kernel.config["warps"] = warps;
    set_grid(y_type_.shape[0] * y_type_.shape[1]);
    out_.schedule.tile.columns = tile;
    out_.schedule.tile.warps = warps;
    out_.work_per_program = tile;
    out_.scratch_bytes = 0;
    describe(ScheduleKind::BlockRows, "a tile of " + std::to_string(tile) + " by a bitonic network in shared memory");
    return std::move(out_);
  }

private:
  void network(V memory, int tile) {
    if (tile < 2) return;
    V zero = constant(0), one = constant(1), pair = b_.range(tile / 2);
    const int stages = std::countr_zero(static_cast<unsigned>(tile));
    b_.for_loop(one, constant(stages + 1), one, {constant(2)}, [&](V stage, std::span<const V> c) -> Values {
      V block = c[0];
      b_.for_loop(zero, stage, one, {op(ScalarOp::Shr, block, one)}, [&](V, std::span<const V> d) -> Values {
        V distance = d[0], below = op(ScalarOp::And, pair, op(ScalarOp::Sub, distance, one));
        V low = op(ScalarOp::Sub, op(ScalarOp::Add, pair, pair), below), high = op(ScalarOp::Add, low, distance);
        V a = b_.load(memory, low), b = b_.load(memory, high);
        V ascends = op(ScalarOp::Eq, op(ScalarOp::And, low, block), zero);
        V swap = select(ascends, op(ScalarOp::Gt, a, b), op(ScalarOp::Lt, a, b));
        b_.store(memory, low, select(swap, b, a));
        b_.store(memory, high, select(swap, a, b));
        return {op(ScalarOp::Shr, distance, one)};
      });
      return {op(ScalarOp::Add, block, block)};
    });
  }
};

// A block merges a part of two runs: of element j of the merge, i are of the first run, where i is found by bisection
// along diagonal j of the merge path (Odeh, Green, Mwassi, Shmueli and Birk, "Merge Path", 2012). Every size is a
// parameter, so that all merges of a sort are one kernel.
class RunMerge : SortLowering {
public:
  using SortLowering::SortLowering;

  ScheduledKernel run() {
    const BlockSize figures = block_size(device_, 4);
    const int tile = figures.threads * figures.elements, warps = figures.warps;
    const SymExpr keep = y_type_.shape[2], pairs = y_type_.shape[1];
    pointers(DType::U64);
    runs_ = parameter("runs", x_type_.shape[1]);
    width_ = parameter("width", x_type_.shape[2]);
    V kept = parameter("keep", keep), pair_count = parameter("pairs", pairs),
      blocks = parameter("blocks", ceildiv(keep, tile));
    V zero = constant(0), one = constant(1), two = constant(2), program = b_.program_id(0);
    V block = op(ScalarOp::Mod, program, blocks), pair = op(ScalarOp::Div, program, blocks);
    V row = op(ScalarOp::Div, pair, pair_count), run = op(ScalarOp::Mul, op(ScalarOp::Mod, pair, pair_count), two);
    first_ = op(ScalarOp::Mul, op(ScalarOp::Add, op(ScalarOp::Mul, row, runs_), run), width_);
    second_ = op(ScalarOp::Add, first_, width_);
    // The last run of an odd number is merged with an empty one.
    V others = select(op(ScalarOp::Lt, op(ScalarOp::Add, run, one), runs_), width_, zero);
    V j = op(ScalarOp::Add, b_.range(tile), op(ScalarOp::Mul, block, constant(tile)));
    V mask = op(ScalarOp::Lt, j, kept);
    V low = op(ScalarOp::Max, op(ScalarOp::Sub, j, width_), zero), high = op(ScalarOp::Min, j, width_);
    constexpr int kMaxSteps = 32; // of bisection: a width has 31 bits
    V steps = b_.for_loop(zero, constant(kMaxSteps), one, {zero, one}, [&](V, std::span<const V> c) -> Values {
      V more = op(ScalarOp::Le, c[1], width_);
      return {op(ScalarOp::Add, c[0], select(more, one, zero)), op(ScalarOp::Add, c[1], c[1])};
    })[0];
    low = b_.for_loop(zero, steps, one, {low, high}, [&](V, std::span<const V> c) -> Values {
      V open = op(ScalarOp::And, op(ScalarOp::Lt, c[0], c[1]), mask);
      V middle = op(ScalarOp::Shr, op(ScalarOp::Add, c[0], c[1]), one);
      V other = op(ScalarOp::Sub, op(ScalarOp::Sub, j, one), middle);
      V before = op(ScalarOp::Lt, element(first_, middle, open),
                    element(second_, other, op(ScalarOp::And, open, op(ScalarOp::Lt, other, others))));
      V after = b_.scalar(ScalarOp::Not, std::array{before});
      return {select(op(ScalarOp::And, open, before), op(ScalarOp::Add, middle, one), c[0]),
              select(op(ScalarOp::And, open, after), middle, c[1])};
    })[0];
    V rest = op(ScalarOp::Sub, j, low);
    V a = element(first_, low, op(ScalarOp::And, mask, op(ScalarOp::Lt, low, width_)));
    V b = element(second_, rest, op(ScalarOp::And, mask, op(ScalarOp::Lt, rest, others)));
    b_.store(y_, op(ScalarOp::Add, j, op(ScalarOp::Mul, pair, kept)), op(ScalarOp::Min, a, b), mask);

    out_.kernel.config["warps"] = warps;
    out_.grid = env_.simplify(y_type_.shape[0] * pairs * ceildiv(keep, tile));
    out_.schedule.tile.columns = tile;
    out_.schedule.tile.warps = warps;
    out_.work_per_program = tile;
    out_.scratch_bytes = 0;
    describe(ScheduleKind::BlockFlat, "two sorted runs merged by bisection along the merge path");
    return std::move(out_);
  }

private:
  // The element of a run; greater than every element where there is none.
  V element(V run, V i, V exists) { return b_.load(x_, op(ScalarOp::Add, i, run), exists, b_.const_i(DType::U64, -1)); }

  V runs_ = -1, width_ = -1, first_ = -1, second_ = -1; // sizes; offsets of the two runs
};

} // namespace

Result<std::vector<ScheduledKernel>> lower_sort(const Graph& graph, const Node& node, const Target& device,
                                                const std::string& name) {
  std::vector<ScheduledKernel> kernels;
  if (ops::piece_of(node) == ops::Piece::Runs)
    kernels.push_back(RunMerge(graph, node, device, name).run());
  else if (device.is_gpu())
    kernels.push_back(TileSort(graph, node, device, name).run());
  else if (RowSelect::pays(graph, node, device))
    kernels.push_back(RowSelect(graph, node, device, name).run());
  else
    kernels.push_back(RowSort(graph, node, device, name).run());
  return kernels;
}

} // namespace tessera
