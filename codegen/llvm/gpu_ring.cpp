#include "codegen/llvm/gpu_ring.h"
#include "base/check.h"

namespace tessera::gpu {

using layout::RingLoop;
using layout::RingTile;
using tile::OpKind;

namespace {

constexpr int kGroupThreads = layout::kWarpsPerGroup * layout::kLanes;
constexpr int kProductColumns = 256, kProductRows = layout::kWarpgroupRows; // of one instruction
constexpr int kBarrierBytes = 8;                                            // a stage has two: full, empty
constexpr int kGroupRows = 8;                                               // rows of a swizzled tile of shared memory

} // namespace

Status Ring::reserve() {
  find_dropped();
  const int64_t bytes = plan_->stages * (plan_->stage_bytes + 2 * kBarrierBytes);
  const auto at = c_.hazards.reserve_scratch(bytes);
  if (!at || *at % swizzle_alignment(Swizzle::Bytes128) != 0)
    return error("a ring of " + std::to_string(bytes) + " bytes beyond the shared memory of a block");
  stages_ = *at;
  barriers_ = stages_ + plan_->stages * plan_->stage_bytes;
  for (const RingLoop& loop : plan_->loops)
    for (const RingTile& t : loop.tiles) {
      map_of_[t.load] = c_.tensor_maps.size();
      c_.tensor_maps.push_back(t.map);
    }
  return {};
}

// Pure operations whose results nothing reads, once the copied loads are gone.
void Ring::find_dropped() {
  std::map<tile::ValueId, int> uses;
  for (tile::OpId id = 0; id < kernel_.op_count(); ++id)
    for (const auto v : kernel_.op(id).operands) ++uses[v];
  std::vector<tile::OpId> dead;
  for (const RingLoop& loop : plan_->loops) {
    for (const auto id : loop.products)
      for (size_t i : {size_t{0}, size_t{1}})
        if (i > 0 || !loop.computed.contains(id)) --uses[kernel_.op(id).operands[i]];
    for (const RingTile& t : loop.tiles) dead.push_back(t.load);
  }
  auto is_pure = [](OpKind kind) {
    return kind == OpKind::Const || kind == OpKind::Range || kind == OpKind::ExpandDims || kind == OpKind::Broadcast ||
           kind == OpKind::Scalar;
  };
  while (!dead.empty()) {
    const auto id = dead.back();
    dead.pop_back();
    if (!dropped_.insert(id).second) continue;
    if (plan_->is_read(id)) dropped_.erase(id); // of its operands alone
    for (const auto v : kernel_.op(id).operands) {
      const auto* op = c_.definitions[static_cast<size_t>(v)];
      if (--uses[v] == 0 && op && is_pure(op->kind) && kernel_.type(v).is_tile())
        for (tile::OpId d = 0; d < kernel_.op_count(); ++d)
          if (&kernel_.op(d) == op) dead.push_back(d);
    }
  }
}

// Registers of a producer's and of a consumer's thread; zeros where all may have as many as a thread can use.
std::pair<int, int> Ring::registers_by_role() const {
  constexpr int64_t kRegisters = 64 << 10; // of a multiprocessor, of every architecture with warpgroups
  constexpr int64_t kProducer = 40, kEnough = 240, kStep = 8;
  const int64_t blocks = std::max<int64_t>(1, kernel_.config.at("min_blocks"));
  const int64_t launched = kRegisters / (blocks * c_.block_threads()) / kStep * kStep;
  if (launched >= kEnough || launched <= kProducer) return {0, 0};
  const int64_t left = launched * c_.block_threads() - kProducer * kGroupThreads;
  return {static_cast<int>(kProducer), static_cast<int>(std::min(kEnough, left / c_.threads() / kStep * kStep))};
}

Status Ring::divide() {
  auto& context = b_.getContext();
  auto& w = *c_.warpgroups;
  const auto consumers = static_cast<uint32_t>(c_.threads());
  auto block = [&](const char* name) { return llvm::BasicBlock::Create(context, name, c_.function); };
  auto *init = block("init"), *start = block("start"), *producer = block("producer"), *issue = block("issue"),
       *end = block("producer.end"), *consumer = block("consumer");
  b_.CreateCondBr(b_.CreateICmpEQ(c_.thread, b_.getInt32(0)), init, start);
  b_.SetInsertPoint(init);
  for (int s = 0; s < plan_->stages; ++s) {
    auto* stage = b_.getInt32(static_cast<uint32_t>(s));
    w.init_barrier(full(stage), 1);
    w.init_barrier(empty(stage), arrivals() * cluster());
  }
  w.fence_barrier_init();
  b_.CreateBr(start);
  b_.SetInsertPoint(start);
  cluster() > 1 ? w.cluster_barrier() : gpu_.barrier();
  const auto [few, many] = registers_by_role();
  b_.CreateCondBr(b_.CreateICmpUGE(c_.thread, b_.getInt32(consumers)), producer, consumer);

  b_.SetInsertPoint(producer);
  if (few > 0) w.lower_registers(few);
  b_.CreateCondBr(b_.CreateICmpEQ(c_.thread, b_.getInt32(consumers)), issue, end);
  b_.SetInsertPoint(issue);
  set_state({b_.getInt32(0), b_.getInt32(0)});
  TESSERA_TRY(produce(kernel_.body));
  b_.CreateBr(end);
  b_.SetInsertPoint(end);
  this->end();
  b_.CreateRetVoid();

  b_.SetInsertPoint(consumer);
  if (many > 0) w.raise_registers(many);
  set_state({b_.getInt32(0), b_.getInt32(0)});
  const auto each = static_cast<uint32_t>(c_.threads() / arrivals());
  const auto blocks = static_cast<uint32_t>(cluster());
  there_ = b_.CreateAnd(c_.thread, b_.getInt32(blocks - 1));
  leads_ = b_.CreateICmpULT(b_.CreateAnd(c_.thread, b_.getInt32(each - 1)), b_.getInt32(blocks));
  // The same in all lanes of a warp, which the shuffle lets the assembler know.
  group_ = gpu_.shuffle_word(b_.CreateUDiv(c_.thread, b_.getInt32(kGroupThreads)), b_.getInt32(0));
  c_.divided = true;
  return {};
}

// A block whose memory others of the cluster write to, or at whose barriers they arrive, has not ended.
void Ring::end() {
  if (cluster() > 1) c_.warpgroups->cluster_barrier();
}

// Consumers of a block that say that a stage is empty: one thread of a warpgroup, as its products end together; of each
// warp, where they read the stage themselves. In a cluster there are as many for each block.
int Ring::arrivals() const {
  const bool reads = std::any_of(plan_->loops.begin(), plan_->loops.end(), [](const RingLoop& loop) {
    return std::any_of(loop.tiles.begin(), loop.tiles.end(), [](const RingTile& t) { return t.is_read; });
  });
  return c_.threads() / (reads ? layout::kLanes : kGroupThreads);
}

// ---- the producer

Status Ring::produce(const std::vector<tile::OpId>& ops) {
  for (const auto id : ops) {
    if (plan_->producer.contains(id)) TESSERA_TRY(operations_.operation(id));
    if (plan_->carries_ring(id)) TESSERA_TRY(produce_loop(id));
  }
  return {};
}

Status Ring::produce_loop(tile::OpId id) {
  const auto& op = kernel_.op(id);
  auto *from = scalar(op.operands[0]), *to = scalar(op.operands[1]), *step = scalar(op.operands[2]);
  auto* before = b_.GetInsertBlock();
  auto* body = llvm::BasicBlock::Create(b_.getContext(), "copies", c_.function);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "copied", c_.function);
  b_.CreateCondBr(b_.CreateICmpSLT(from, to), body, after);
  b_.SetInsertPoint(body);
  auto phi = [&](Value* first) {
    auto* p = b_.CreatePHI(first->getType(), 2);
    p->addIncoming(first, before);
    return p;
  };
  const Registers entering = state();
  auto* i = phi(from);
  llvm::PHINode* current[] = {phi(entering[0]), phi(entering[1])};
  set_state({current[0], current[1]});
  define(op.region_args[0][0], {i});
  TESSERA_TRY(produce(op.regions[0]));
  if (const RingLoop* ring = plan_->loop(id)) fill(*ring);
  auto* next = b_.CreateNSWAdd(i, step);
  auto* latch = b_.GetInsertBlock();
  const Registers leaving = state();
  i->addIncoming(next, latch);
  for (size_t n = 0; n < 2; ++n) current[n]->addIncoming(leaving[n], latch);
  b_.CreateCondBr(b_.CreateICmpSLT(next, to), body, after);
  b_.SetInsertPoint(after);
  Registers out;
  for (size_t n = 0; n < 2; ++n) {
    auto* p = phi(entering[n]);
    p->addIncoming(leaving[n], latch);
    out.push_back(p);
  }
  set_state(out);
  return {};
}

void Ring::fill(const RingLoop& loop) {
  auto& w = *c_.warpgroups;
  w.wait(empty(stage_), b_.CreateXor(parity_, b_.getInt32(1)));
  int64_t bytes = 0;
  for (const RingTile& t : loop.tiles) bytes += t.bytes();
  auto* barrier = full(stage_);
  w.arrive_expecting(barrier, b_.getInt32(static_cast<uint32_t>(bytes)), nullptr);
  auto* base = b_.CreateMul(stage_, b_.getInt32(static_cast<uint32_t>(plan_->stage_bytes)));
  for (const RingTile& t : loop.tiles) copy(t, base, barrier);
  advance();
}

// Copies a tile to the stage at offset `stage`, which arrives at `barrier`: of a tile that the cluster shares the block's
// share, to all blocks.
void Ring::copy(const RingTile& t, Value* stage, Value* barrier) {
  const auto& dimensions = t.access.dimensions;
  const int row_bytes = swizzle_bytes(t.map.swizzle), rows = static_cast<int>(t.map.box_bytes() / row_bytes);
  // Several copies of a chunk's rows are along the rows' one dimension.
  const auto split =
      std::find_if(dimensions.begin() + 1, dimensions.end(), [&](const auto& d) { return d.box == t.rows; });
  std::vector<Value*> starts;
  for (const auto& dimension : dimensions) starts.push_back(evaluate(dimension.start));
  const auto shift = [&](std::vector<Value*>& coordinates, size_t d, Value* by) {
    coordinates[d] = b_.CreateAdd(coordinates[d], by);
  };
  auto number = [&](int64_t n) { return b_.getInt32(static_cast<uint32_t>(n)); };
  int chunks = t.chunks, all_rows = t.rows; // that the block copies
  if (t.is_shared) {
    auto* rank = b_.CreateURem(b_.CreateTrunc(c_.program, b_.getInt32Ty()), number(cluster()));
    const bool by_chunks = t.chunks % cluster() == 0;
    by_chunks ? chunks /= cluster() : all_rows /= cluster();
    const int64_t bytes = by_chunks ? chunks * t.chunk_bytes() : int64_t{all_rows} * row_bytes;
    stage = b_.CreateAdd(stage, b_.CreateMul(rank, number(bytes)));
    by_chunks ? shift(starts, 0, b_.CreateMul(rank, number(int64_t{chunks} * t.chunk_elements)))
              : shift(starts, static_cast<size_t>(split - dimensions.begin()),
                      b_.CreateMul(rank, number(int64_t{all_rows} * split->step)));
  }
  for (int c = 0; c < chunks; ++c)
    for (int row = 0; row < all_rows; row += rows) {
      auto* to = b_.CreateAdd(stage, number(stages_ + t.at + c * t.chunk_bytes() + int64_t{row} * row_bytes));
      auto coordinates = starts;
      if (c > 0) shift(coordinates, 0, number(int64_t{c} * t.chunk_elements));
      if (row > 0)
        shift(coordinates, static_cast<size_t>(split - dimensions.begin()), number(int64_t{row} * split->step));
      auto* map = c_.map_values[map_of_.at(t.load)];
      t.is_shared ? c_.warpgroups->multicast_tensor(to, map, coordinates, barrier, (1 << cluster()) - 1)
                  : c_.warpgroups->copy_tensor(to, map, coordinates, barrier, nullptr);
    }
}

// i32.
llvm::Value* Ring::evaluate(const layout::Polynomial& polynomial) {
  Value* sum = b_.getInt64(0);
  for (const auto& [monomial, coefficient] : polynomial.terms()) {
    Value* term = b_.getInt64(static_cast<uint64_t>(coefficient));
    for (const auto v : monomial) term = b_.CreateMul(term, scalar(v));
    sum = b_.CreateAdd(sum, term);
  }
  return b_.CreateTrunc(sum, b_.getInt32Ty());
}

// ---- both

llvm::Value* Ring::full(Value* stage) {
  return b_.CreateAdd(b_.CreateMul(stage, b_.getInt32(2 * kBarrierBytes)),
                      b_.getInt32(static_cast<uint32_t>(barriers_)));
}
llvm::Value* Ring::empty(Value* stage) { return b_.CreateAdd(full(stage), b_.getInt32(kBarrierBytes)); }

void Ring::advance() {
  auto* next = b_.CreateAdd(stage_, b_.getInt32(1));
  auto* wraps = b_.CreateICmpEQ(next, b_.getInt32(static_cast<uint32_t>(plan_->stages)));
  stage_ = b_.CreateSelect(wraps, b_.getInt32(0), next);
  parity_ = b_.CreateXor(parity_, b_.CreateZExt(wraps, b_.getInt32Ty()));
}

// ---- consumers

void Ring::start_iteration(const RingLoop& loop, Value* i, Value* from) {
  current_ = &loop;
  i_ = i, from_ = from;
  left_ = -1;
  c_.warpgroups->wait(full(stage_), parity_);
  if (loop.computed.size() < loop.products.size()) c_.warpgroups->begin_products(); // else left_factor() does
}

void Ring::load(tile::OpId id) {
  const auto result = kernel_.op(id).results[0];
  const RingTile& tile = current_->tile_of(kernel_, result);
  const auto& to = layouts_[result];
  Staged staged{
      layout::plan_shared_load(tile.arrangement(kernel_.type(result).shape), to, element_bytes(tile.map.dtype)),
      tile.map.dtype, stages_ + tile.at, b_.CreateMul(stage_, b_.getInt32(static_cast<uint32_t>(plan_->stage_bytes))),
      nullptr};
  Registers out;
  while (out.size() < register_count(result))
    for (auto* e : conversions_.staged_registers(staged, out.size())) out.push_back(e);
  define(result, std::move(out));
}

const Registers& Ring::left_factor(tile::ValueId factor) {
  if (factor == left_) return left_words_;
  TESSERA_CHECK(left_ < 0, "a loop's products have one computed left factor");
  left_ = factor;
  left_words_ = c_.warpgroups->move_words(words_.pack(registers(factor), dtype_of(factor)));
  c_.warpgroups->begin_products();
  return left_words_;
}

// An operand of a warpgroup's products: a descriptor of its first rows or columns, and how far others lie from there.
struct Ring::Factor {
  Value* descriptor = nullptr;
  const RingTile* tile = nullptr;

  // The byte distance of element (`along`, `k`): rows of the left factor or columns of the right one, and the sum.
  [[nodiscard]] int distance(int along, int k) const {
    const int contiguous = tile->k_major ? k : along, row = tile->k_major ? along : k;
    const int bytes = info(tile->map.dtype).bits / 8;
    return static_cast<int>(contiguous / tile->chunk_elements * tile->chunk_bytes()) +
           contiguous % tile->chunk_elements * bytes + row * swizzle_bytes(tile->map.swizzle);
  }
};

// `index`: which of the shares of `share` rows or columns the warpgroup reads.
Ring::Factor Ring::factor(const RingTile& tile, int64_t share, Value* index) const {
  Factor f{nullptr, &tile};
  auto* offset = b_.CreateAdd(b_.CreateMul(stage_, b_.getInt32(static_cast<uint32_t>(plan_->stage_bytes))),
                              b_.getInt32(static_cast<uint32_t>(stages_ + tile.at)));
  offset = b_.CreateAdd(
      offset, b_.CreateMul(index, b_.getInt32(static_cast<uint32_t>(f.distance(static_cast<int>(share), 0)))));
  constexpr int kIgnored = 16;
  const OperandLayout layout{tile.map.swizzle, tile.k_major ? kIgnored : static_cast<int>(tile.chunk_bytes()),
                             kGroupRows * swizzle_bytes(tile.map.swizzle)};
  f.descriptor = c_.warpgroups->descriptor(offset, layout);
  return f;
}

void Ring::multiply(tile::OpId id) {
  const auto& op = kernel_.op(id);
  const auto& shape = kernel_.type(op.results[0]).shape;
  const auto grid = layout::warpgroup_grid(shape, layouts_.warps);
  const int columns = shape[1] / grid.columns, depth = kernel_.type(op.operands[0]).shape[1];
  auto* grid_rows = b_.getInt32(static_cast<uint32_t>(grid.rows));
  const bool computed = current_->computed.contains(id);
  const Factor b = factor(current_->tile_of(kernel_, op.operands[1]), columns, b_.CreateUDiv(group_, grid_rows));
  Factor a;
  Registers words;
  WarpgroupProduct product;
  if (computed) {
    words = left_factor(op.operands[0]);
  } else {
    a = factor(current_->tile_of(kernel_, op.operands[0]), kProductRows, b_.CreateURem(group_, grid_rows));
    product.a_transposed = !a.tile->k_major;
  }
  product.a = dtype_of(op.operands[0]);
  product.b = b.tile->map.dtype;
  product.n = std::min(columns, kProductColumns);
  product.b_transposed = !b.tile->k_major;
  const auto before = std::find(current_->products.begin(), current_->products.end(), id) - current_->products.begin();
  const bool begins = current_->from_zero.contains(id);
  auto* sum_type = math_.element_type(dtype_of(op.results[0]));
  Registers sums = begins ? Registers(register_count(op.results[0]), llvm::PoisonValue::get(sum_type))
                          : registers(op.operands[2], register_count(op.results[0]));
  const auto each = static_cast<size_t>(product.accumulators());
  for (int k = 0; k < depth; k += product.k()) {
    auto* accumulates = begins && k == 0 ? b_.getFalse() : nullptr;
    size_t at = 0; // registers enumerate columns first, then blocks of rows
    for (int row = 0; row < shape[0]; row += kProductRows * grid.rows)
      for (int column = 0; column < columns; column += product.n, at += each) {
        Registers left;
        constexpr size_t kWords = 4; // of an instruction; blocks of rows have those of all depths
        if (computed)
          for (size_t i = 0; i < kWords; ++i)
            left.push_back(
                words[static_cast<size_t>((row / (kProductRows * grid.rows) * depth + k) / product.k()) * kWords + i]);
        else
          left.push_back(c_.warpgroups->advance(a.descriptor, a.distance(row, k)));
        auto* right = c_.warpgroups->advance(b.descriptor, b.distance(column, k));
        const auto made = c_.warpgroups->multiply(product, left, right, std::span(sums).subspan(at, each), accumulates);
        std::copy(made.begin(), made.end(), sums.begin() + static_cast<std::ptrdiff_t>(at));
      }
  }
  define(op.results[0], std::move(sums));
  const auto started = static_cast<size_t>(before) + 1;
  if (started == current_->waited || started == current_->products.size()) c_.warpgroups->commit_products();
  if (started != current_->products.size()) return;
  if (current_->waited > 0)
    end_products();
  else if (!current_->computed.empty())
    c_.warpgroups->wait_for_products(0, {});
}

// Waits for the sums that the iteration reads.
void Ring::end_products() {
  Registers all;
  for (const auto id : current_->awaited) {
    const auto& result = kernel_.op(id).results[0];
    const Registers of = registers(result, register_count(result));
    all.insert(all.end(), of.begin(), of.end());
  }
  const bool others = current_->waited < current_->products.size() && current_->computed.empty();
  all = c_.warpgroups->wait_for_products(others ? 1 : 0, all);
  auto at = all.begin();
  for (const auto id : current_->awaited) {
    const auto& result = kernel_.op(id).results[0];
    const auto end = at + static_cast<std::ptrdiff_t>(register_count(result));
    define(result, Registers(at, end));
    at = end;
  }
}

// The stage before the current one.
void Ring::release_previous(Value* predicate) {
  auto* last = b_.getInt32(static_cast<uint32_t>(plan_->stages - 1));
  auto* previous = b_.CreateSelect(b_.CreateICmpEQ(stage_, b_.getInt32(0)), last, b_.CreateSub(stage_, b_.getInt32(1)));
  // Its threads have read the stage.
  if (arrivals() > c_.threads() / kGroupThreads) c_.warpgroups->warp_barrier();
  cluster() > 1 ? c_.warpgroups->arrive_at_block(empty(previous), there_, both(b_, leads_, predicate))
                : c_.warpgroups->arrive(empty(previous), both(b_, leads_, predicate));
}

void Ring::release_iteration_before() { release_previous(b_.CreateICmpNE(i_, from_)); }

void Ring::finish_iteration() {
  const bool over = !current_->computed.empty(); // multiply() has waited for all products
  if (!over) {
    if (current_->waited == 0) c_.warpgroups->wait_for_products(1, {});
    release_iteration_before();
  }
  advance();
  if (over) release_previous(nullptr);
}

Registers Ring::drain(const Registers& accumulators) {
  Registers out = c_.warpgroups->wait_for_products(0, accumulators);
  if (current_->computed.empty()) release_previous(nullptr);
  return out;
}

} // namespace tessera::gpu
