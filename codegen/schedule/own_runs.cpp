// Folds of runs (`scatter_runs`): updates in an order in which those of one target are neighbours. The order is divided
// into chunks of equal length, so that one target with many updates is shared by many programs:
//
//   order     a a b b b b | b b b b b b | b c d d d d | d e e
//   stored    a                           c               e     by the one chunk that has the whole run
//   partials          b     b             b     d       d       the first and the second of each chunk
//
// Where the order of sums may vary (`atomic`), no order is needed: each chunk takes its updates as they come, and adds all
// its runs to memory by atomic updates.
//
// A program has a tile of chunks and columns. The loop over a chunk issues the loads of several updates before it folds
// the first one; it has no branches: what does not apply is masked.
#include "codegen/schedule/own_lowering.h"
#include "graph/ops/scatter.h"
#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

// Updates whose loads a program issues together: half of the registers that a thread has when as many blocks as
// schedulers are resident hold them and the elements that they are folded into.
int updates_in_flight(const Target& device, DType dtype) {
  if (!device.is_gpu()) return std::max(1, device.unroll);
  const int64_t bytes = byte_size(compute_dtype(dtype), 1);
  const BlockSize block = block_size(device, static_cast<int>(std::max<int64_t>(4, bytes)));
  const int64_t registers = device.registers / (device.schedulers * block.threads);
  const int64_t words = std::max<int64_t>(1, bytes / 4) * block.elements;
  return power_at_most(SymExpr(std::max<int64_t>(1, registers / (4 * words))), 1 << 10);
}

class Runs : OwnTileLowering {
public:
  Runs(const Graph& graph, const Node& node, const Target& device, const std::string& name)
      : OwnTileLowering(graph, node, device, name), data_{type(0).dtype, ops::scatter_view(graph, node)},
        compute_(compute_dtype(data_.dtype)), count_(type(1).shape[1]), chunk_size_(node.attributes.dims("chunk")[0]),
        chunks_(env_.simplify(ceildiv(count_, chunk_size_))), product_(node.attributes.s("reduction", "add") == "mul"),
        ordered_(node.operands.size() > 3 && node.operands[3].valid()), partial_(node.results.size() > 1),
        atomic_(node.attributes.i("atomic") != 0) {}

  ScheduledKernel run() {
    choose_tile();
    parameters();
    V program = b_.program_id(0), rest = op(ScalarOp::Div, program, column_blocks_);
    V column = op(ScalarOp::Mul, op(ScalarOp::Mod, program, column_blocks_), constant(width_));
    batch_ = op(ScalarOp::Div, rest, chunk_blocks_);
    V chunk = rows_from(op(ScalarOp::Mul, op(ScalarOp::Mod, rest, chunk_blocks_), constant(height_)));
    columns_ = columns_from(column);
    exists_ = full(op(ScalarOp::Lt, columns_, slices_));
    base_ = op(ScalarOp::Mul, batch_, updates_);
    V begin = op(ScalarOp::Mul, chunk, chunk_length_);
    V first = target_at(begin), before = target_at(op(ScalarOp::Sub, begin, constant(1)));
    State state;
    state.target = first;
    state.open = op(ScalarOp::Eq, first, before);
    state.pending = same_shape(first, -1);
    state.first_target = state.pending;
    state.fold = full(neutral());
    state.first = state.fold;
    state = loop(begin, state);
    if (partial_) store_partials(chunk, column, state);
    if (atomic_)
      b_.atomic(ReduceKind::Sum, result_, place(state.pending), state.fold,
                both(exists_, full(op(ScalarOp::Ge, state.pending, constant(0)))));
    describe();
    return std::move(out_);
  }

private:
  struct State {
    V target = -1;       // of the next update
    V open = -1;         // the run of the next update began in an earlier chunk
    V pending = -1;      // target of a run that is not at its end; -1: none
    V first_target = -1; // of the chunk's first partial result
    V fold = -1, first = -1;
    [[nodiscard]] Values values() const { return {target, open, pending, first_target, fold, first}; }
    static State of(std::span<const V> v) { return {v[0], v[1], v[2], v[3], v[4], v[5]}; }
  };

  V neutral() {
    if (!is_float(compute_)) return b_.const_i(compute_, product_ ? 1 : 0);
    return b_.const_f(compute_, product_ ? 1.0 : -0.0); // 0 would change -0
  }
  V combine(V x, V y) { return op(product_ ? ScalarOp::Mul : ScalarOp::Add, x, y); }
  V both(V x, V y) { return op(ScalarOp::And, x, y); }
  // An i64 of the shape of `like`.
  V same_shape(V like, int64_t v) {
    const std::vector<int> shape = b_.kernel().type(like).shape;
    return shape.empty() ? constant(v) : b_.broadcast(constant(v), shape);
  }

  // Columns first: neighbours in memory. Chunks fill what is left.
  void choose_tile() {
    int most = std::max(1, device_.vector_bytes / 4), height = 1;
    const SymExpr slices = env_.simplify(data_.shape[2]);
    int threads_elements = 1;
    if (gpu()) {
      const BlockSize block = block_size(device_, static_cast<int>(std::max<int64_t>(4, byte_size(compute_, 1))));
      most = block.threads * block.elements;
      threads_elements = block.elements;
    }
    const int width = power_at_most(slices, most);
    if (gpu() || width == 1) height = power_at_most(chunks_, most / width);
    set_tile(height, width);
    if (gpu()) out_.kernel.config["warps"] = block_warps(width_ * height_ / threads_elements);
    in_flight_ = updates_in_flight(device_, data_.dtype);
  }

  void parameters() {
    result_ = pointer("out", data_.dtype, true);
    out_.kernel.params.back().once = !atomic_;
    targets_ = pointer("targets", type(1).dtype, false);
    from_ = pointer("updates", type(2).dtype, false);
    out_.buffers = {node_.results[0], node_.operands[1], node_.operands[2]};
    out_.written = {true, false, false};
    if (ordered_) {
      order_ = pointer("order", type(3).dtype, false);
      out_.buffers.push_back(node_.operands[3]);
      out_.written.push_back(false);
    }
    if (partial_) {
      partial_targets_ = pointer("partial_targets", DType::I64, true);
      out_.kernel.params.back().once = true;
      partials_ = pointer("partials", compute_, true);
      out_.kernel.params.back().once = true;
      for (size_t r : {1, 2}) {
        out_.buffers.push_back(node_.results[r]);
        out_.written.push_back(true);
      }
    }
    updates_ = size("updates_per_batch", count_);
    chunk_length_ = size("chunk", chunk_size_);
    size_ = size("targets_per_batch", data_.shape[1]);
    slices_ = size("slice", data_.shape[2]);
    column_blocks_ = size("column_blocks", ceildiv(data_.shape[2], width_));
    all_chunks_ = size("chunks", chunks_);
    chunk_blocks_ = size("chunk_blocks", ceildiv(chunks_, height_));
  }

  // The update at index j of the order, and its target: -1 where it has none, -2 outside of the order.
  V update_at(V j, V inside) {
    return ordered_ ? b_.cast(b_.load(order_, op(ScalarOp::Add, base_, j), inside), DType::I64) : j;
  }
  V target_of(V update, V inside) {
    V t = b_.cast(b_.load(targets_, op(ScalarOp::Add, base_, update), inside), DType::I64);
    V valid = both(op(ScalarOp::Ge, t, constant(0)), op(ScalarOp::Lt, t, size_));
    return select(inside, select(valid, t, constant(-1)), constant(-2));
  }
  V inside(V j) { return both(op(ScalarOp::Ge, j, constant(0)), op(ScalarOp::Lt, j, updates_)); }
  V target_at(V j) { return target_of(update_at(j, inside(j)), inside(j)); }
  V place(V target) { return element(op(ScalarOp::Add, op(ScalarOp::Mul, batch_, size_), target)); }
  V element(V row) { return op(ScalarOp::Add, full(op(ScalarOp::Mul, row, slices_)), full(columns_)); }

  State loop(V begin, const State& start) {
    return State::of(b_.for_loop(constant(0), chunk_length_, constant(in_flight_), start.values(),
                                 [&](V i, std::span<const V> carried) { return step(begin, i, State::of(carried)); }));
  }

  // `in_flight_` updates from index begin + i on.
  Values step(V begin, V i, State state) {
    struct Update {
      V target = -1, done = -1, direct = -1, closes = -1, value = -1, old = -1, place = -1;
    };
    std::vector<Update> updates;
    V update = update_at(op(ScalarOp::Add, begin, i), inside(op(ScalarOp::Add, begin, i)));
    for (int r = 0; r < in_flight_; ++r) { // what decides where it goes, and loads
      V within = op(ScalarOp::Add, i, constant(r)), j = op(ScalarOp::Add, begin, within);
      V next = op(ScalarOp::Add, j, constant(1)), next_update = update_at(next, inside(next));
      V next_target = target_of(next_update, inside(next));
      V live = both(op(ScalarOp::Lt, within, chunk_length_), op(ScalarOp::Lt, j, updates_));
      V last = op(ScalarOp::Ne, state.target, next_target);
      Update u;
      u.target = state.target;
      u.done = both(live, last);
      V stored = both(u.done, op(ScalarOp::Ge, u.target, constant(0)));
      u.closes = both(stored, state.open);
      u.direct = atomic_ ? stored : both(stored, op(ScalarOp::Eq, state.open, b_.const_i(DType::Bool, 0)));
      V mask = both(exists_, full(live));
      V other = b_.cast(neutral(), type(2).dtype);
      u.value = b_.cast(b_.load(from_, element(op(ScalarOp::Add, base_, update)), mask, other), compute_);
      u.place = place(u.target);
      if (!atomic_) u.old = b_.load(result_, u.place, both(exists_, full(u.direct)));
      updates.push_back(u);
      state.open = both(state.open, op(ScalarOp::Eq, u.done, b_.const_i(DType::Bool, 0)));
      state.pending = select(live, select(last, constant(-1), u.target), state.pending);
      state.first_target = select(u.closes, u.target, state.first_target);
      state.target = next_target;
      update = next_update;
    }
    for (const Update& u : updates) {
      V folded = combine(state.fold, u.value);
      V mask = both(exists_, full(u.direct));
      if (atomic_)
        b_.atomic(ReduceKind::Sum, result_, u.place, folded, mask);
      else
        b_.store(result_, u.place, b_.cast(combine(b_.cast(u.old, compute_), folded), data_.dtype), mask);
      state.first = select(full(u.closes), folded, state.first);
      state.fold = select(full(u.done), full(neutral()), folded);
    }
    return state.values();
  }

  void store_partials(V chunk, V column, const State& end) {
    V pending = op(ScalarOp::Ge, end.pending, constant(0)), open = both(pending, end.open);
    V begins = both(pending, op(ScalarOp::Eq, end.open, b_.const_i(DType::Bool, 0)));
    V row = op(ScalarOp::Mul, op(ScalarOp::Add, op(ScalarOp::Mul, batch_, all_chunks_), chunk), constant(2));
    V second = op(ScalarOp::Add, row, constant(1)), some = op(ScalarOp::Lt, chunk, all_chunks_);
    V mask = both(exists_, full(some)), once = both(some, op(ScalarOp::Eq, column, constant(0)));
    b_.store(partial_targets_, row, select(open, end.pending, end.first_target), once);
    b_.store(partial_targets_, second, end.pending, once); // of a run through the whole chunk, too: it keeps neighbours
    b_.store(partials_, element(row), select(full(open), end.fold, end.first), mask);
    b_.store(partials_, element(second), select(full(begins), end.fold, full(neutral())), mask);
  }

  void describe() {
    out_.schedule.kind = gpu() ? ScheduleKind::BlockFlat : ScheduleKind::Flat;
    out_.schedule.tile.rows = height_;
    out_.schedule.tile.columns = width_;
    out_.why = std::string(atomic_ ? "atomic sums of runs" : "runs") + " of one target in chunks, " +
               std::to_string(in_flight_) + " updates in flight; tile [" + std::to_string(height_) + ", " +
               std::to_string(width_) + "]";
    out_.may_overwrite.resize(out_.buffers.size());
    out_.begins_as = {{ops::begins_as(node_), node_.results[0]}};
    set_grid(data_.shape[0] * ceildiv(chunks_, height_) * ceildiv(data_.shape[2], width_));
    out_.work_per_program = env_.simplify(SymExpr(height_ * width_) * chunk_size_);
    out_.scratch_bytes = 0;
    out_.predicted = time_of_bytes(env_, device_,
                                   type(2).count() * (byte_size(type(2).dtype, 1) + 2 * byte_size(data_.dtype, 1)) +
                                       type(1).count() * byte_size(type(1).dtype, 1));
  }

  const TensorType data_;
  const DType compute_;
  const SymExpr count_, chunk_size_, chunks_;
  const bool product_, ordered_, partial_, atomic_;
  int in_flight_ = 1;
  V result_ = -1, targets_ = -1, from_ = -1, order_ = -1, partial_targets_ = -1, partials_ = -1;
  V updates_ = -1, chunk_length_ = -1, size_ = -1, slices_ = -1, column_blocks_ = -1, all_chunks_ = -1,
    chunk_blocks_ = -1;
  V batch_ = -1, columns_ = -1, exists_ = -1, base_ = -1;
};

} // namespace

ScheduledKernel lower_runs(const Graph& graph, const Node& node, const Target& device, const std::string& name) {
  return Runs(graph, node, device, name).run();
}

// A level of chunks costs a launch and the latencies of its loop, and leaves two partial results of each chunk: the
// chunk is chosen by the time for each halving.
RunChunks run_chunks(const Target& device, DType dtype) {
  const int in_flight = updates_in_flight(device, dtype);
  // An update waits for its number, its target and itself.
  const double latency = (2 * device.l2_latency_us + device.memory_latency_us) / in_flight;
  RunChunks best;
  double least = INFINITY;
  for (int64_t chunk = 4; chunk <= device.block_threads; chunk *= 2) {
    const double us =
        (device.launch_us + static_cast<double>(chunk) * latency) / std::log2(static_cast<double>(chunk) / 2);
    if (us < least) best = {chunk, in_flight, latency};
    least = std::min(least, us);
  }
  return best;
}

} // namespace tessera
