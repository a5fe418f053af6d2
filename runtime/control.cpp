#include "runtime/control.h"
#include "base/check.h"
#include "runtime/executor.h"
#include <algorithm>

namespace tessera {

namespace {
using Source = BodyArgument::Source;

int64_t bytes_of(DType dtype, const Dims& dims) {
  auto count = element_count(dims);
  return count.ok() ? byte_size(dtype, *count) : -1;
}

std::string text_of(const Dims& dims) {
  std::string s = "[";
  for (size_t d = 0; d < dims.size(); ++d) s += (d ? ", " : "") + std::to_string(dims[d]);
  return s + "]";
}
} // namespace

std::vector<SymExpr> control_numbers(const ControlStep& step) {
  std::vector<SymExpr> all;
  if (step.decided) all.push_back(*step.decided);
  if (step.trip_count) all.push_back(*step.trip_count);
  for (const auto& body : step.bodies)
    for (const auto& a : body.arguments)
      if (a.source == Source::Size) all.push_back(a.size);
  return all;
}

Result<std::unique_ptr<ControlRun>> ControlRun::create(const Variant& variant, int index, Device& device,
                                                       BufferTable& table, const ExecutorOptions& options) {
  std::unique_ptr<ControlRun> run(new ControlRun(variant, index, device, table));
  ExecutorOptions inner = device.inner().options(options);
  inner.profile = false;
  for (const auto& body : run->step_.bodies) {
    TESSERA_ASSIGN(auto executor, make_body_executor(body.executable, inner));
    run->bodies_.push_back(std::move(executor));
  }
  return run;
}

ControlRun::ControlRun(const Variant& variant, int index, Device& device, BufferTable& table)
    : variant_(variant), step_(std::get<ControlStep>(variant.exe->steps[static_cast<size_t>(index)])), device_(device),
      table_(table), slots_(step_.outputs.size()), results_(step_.outputs.size()), sliced_(step_.outputs.size()) {
  for (const auto& body : step_.bodies)
    for (const auto& step : body.executable->steps)
      for (BufferId b : buffers_of(step).read)
        for (size_t k = 0; k < body.arguments.size(); ++k)
          reads_iteration_ = reads_iteration_ ||
                             (body.arguments[k].source == Source::Iteration && body.executable->inputs[k].buffer == b);
  const int segment = variant.segment_of(index);
  for (size_t r = 0; r < slots_.size(); ++r) {
    slots_[r].buffer = step_.outputs[r];
    slots_[r].known = slots_[r].buffer >= 0 && variant.buffer_segment[static_cast<size_t>(slots_[r].buffer)] <= segment;
  }
}

Diagnostic ControlRun::error(const std::string& what) const {
  Location where;
  where.node = step_.name;
  where.op = step_.op;
  return {ErrorCode::Internal, std::move(where), what};
}

// Contents are kept up to `keep` bytes.
Status ControlRun::reserve(Block& block, int64_t bytes, int64_t keep) {
  if (bytes <= block.bytes && block.memory) return {};
  const int64_t wanted = std::max<int64_t>({bytes, block.bytes + block.bytes / 2, 64});
  TESSERA_ASSIGN(auto memory, device_.inner().allocate(wanted));
  if (keep > 0) TESSERA_TRY(device_.inner().move(memory.get(), block.memory.get(), keep));
  block = {std::move(memory), wanted};
  return {};
}

Result<bool> ControlRun::flag(const void* at) {
  uint8_t value = 0;
  TESSERA_TRY(device_.inner().read(&value, at, sizeof value));
  return value != 0;
}

// The sizes of a result's buffer, from dimension `from` on.
Status ControlRun::check_dims(const Slot& slot, const Dims& dims, size_t from) const {
  const Dims& there = *table_.dims[static_cast<size_t>(slot.buffer)];
  if (there.size() == dims.size() + from &&
      std::equal(dims.begin(), dims.end(), there.begin() + static_cast<std::ptrdiff_t>(from)))
    return {};
  return error("a body yields " + text_of(dims) + " for '" +
               variant_.exe->buffers[static_cast<size_t>(slot.buffer)].name + "', which has " + text_of(there));
}

class ControlRun::OtherBlocks {
public:
  explicit OtherBlocks(ControlRun& run) : run_(run), slots_(run.slots_.size()) { exchange(); }
  ~OtherBlocks() { exchange(); }
  OtherBlocks(const OtherBlocks&) = delete;
  OtherBlocks& operator=(const OtherBlocks&) = delete;

private:
  void exchange() {
    for (size_t s = 0; s < slots_.size(); ++s) std::swap(run_.slots_[s].own, slots_[s].own);
    std::swap(run_.iteration_, iteration_);
    std::swap(run_.condition_, condition_);
    std::swap(run_.unused_, unused_);
  }
  ControlRun& run_;
  std::vector<Slot> slots_;
  Block iteration_, condition_, unused_;
};

bool decided_by_sizes(const ControlStep& step) {
  const bool loop = step.kind == ControlStep::Kind::Loop;
  return step.condition < 0 && step.trips < 0 && !step.continues && step.defines.empty() &&
         (loop ? step.trip_count.has_value() : step.decided.has_value());
}

Status ControlRun::run(std::span<const int64_t> numbers, const std::unordered_map<uint64_t, int64_t>& symbols,
                       RunStats& stats, bool captured) {
  stats_ = &stats;
  missed_.reset();
  std::optional<OtherBlocks> of_the_graph;
  if (captured) of_the_graph.emplace(*this);
  return step_.kind == ControlStep::Kind::If ? run_if(numbers) : run_loop(numbers, symbols);
}

Status ControlRun::run_if(std::span<const int64_t> numbers) {
  bool then = false;
  if (step_.decided) {
    then = numbers[0] != 0;
    numbers = numbers.subspan(1);
  } else {
    TESSERA_ASSIGN(then, flag(table_.pointers[static_cast<size_t>(step_.condition)]));
  }
  const size_t body = then ? 0 : 1;
  if (!then)
    numbers = numbers.subspan(
        static_cast<size_t>(std::count_if(step_.bodies[0].arguments.begin(), step_.bodies[0].arguments.end(),
                                          [](const BodyArgument& a) { return a.source == Source::Size; })));
  return call(body, numbers, 0, 0, [&](size_t o, DType dtype, const Dims& dims) -> Result<void*> {
    Slot& slot = slots_[o];
    results_[o].dims = dims;
    if (slot.known) {
      TESSERA_TRY(check_dims(slot, dims, 0));
      return results_[o].data = table_.pointers[static_cast<size_t>(slot.buffer)];
    }
    TESSERA_TRY(reserve(slot.own[0], bytes_of(dtype, dims)));
    return results_[o].data = slot.own[0].memory.get();
  });
}

Status ControlRun::call(size_t body, std::span<const int64_t> sizes, int64_t i, int64_t trips,
                        const OutputAllocator& outputs) {
  static std::byte nothing{};
  const ControlBody& b = step_.bodies[body];
  inputs_.resize(b.arguments.size());
  for (size_t k = 0; k < b.arguments.size(); ++k) {
    const BodyArgument& a = b.arguments[k];
    DeviceTensor& t = inputs_[k];
    t.dtype = b.executable->buffers[static_cast<size_t>(b.executable->inputs[k].buffer)].dtype;
    const auto buffer = static_cast<size_t>(a.buffer);
    switch (a.source) {
    case Source::Buffer:
      t.dims = *table_.dims[buffer];
      t.data = table_.pointers[buffer];
      break;
    case Source::Slice: {
      const Dims& whole = *table_.dims[buffer];
      t.dims.assign(whole.begin() + 1, whole.end());
      const int64_t at = a.reverse ? trips - 1 - i : i;
      if (at < 0 || at >= whole[0])
        return error("iteration " + std::to_string(i) + " reads slice " + std::to_string(at) + " of '" +
                     variant_.exe->buffers[buffer].name + "', which has " + std::to_string(whole[0]));
      t.data = static_cast<std::byte*>(table_.pointers[buffer]) + at * bytes_of(t.dtype, t.dims);
      break;
    }
    case Source::Carried:
      t.dims = results_[static_cast<size_t>(a.index)].dims;
      t.data = results_[static_cast<size_t>(a.index)].data;
      break;
    case Source::Iteration:
    case Source::Condition: {
      const bool count = a.source == Source::Iteration;
      t.dims.assign(b.executable->buffers[static_cast<size_t>(b.executable->inputs[k].buffer)].shape.size(), 1);
      t.data = (count ? iteration_ : condition_).memory.get();
      break;
    }
    case Source::Size:
      t.dims = {0, sizes.front()};
      t.data = &nothing;
      sizes = sizes.subspan(1);
      break;
    }
    if (t.data == nullptr) t.data = &nothing; // of no elements
  }
  RunStats inner;
  Status done = bodies_[body]->call(inputs_, outputs, device_.inner().stream(), &inner);
  stats_->host_steps += inner.host_steps;
  stats_->host_bytes += inner.host_bytes;
  stats_->plan_ms += inner.plan_ms;
  stats_->new_shape = stats_->new_shape || inner.new_shape;
  if (done.ok()) return {};
  if (!inner.misses.empty()) missed_ = std::move(inner.misses.back());
  Diagnostic d = std::move(done).take_error();
  return std::move(d).note("in a body of '" + step_.name + "' (" + step_.op + ")" +
                           (step_.kind == ControlStep::Kind::Loop ? ", iteration " + std::to_string(i) : ""));
}

Status ControlRun::run_loop(std::span<const int64_t> numbers, const std::unordered_map<uint64_t, int64_t>& symbols) {
  int64_t trips = INT64_MAX;
  bool goes_on = true;
  if (step_.decided) {
    goes_on = numbers[0] != 0;
    numbers = numbers.subspan(1);
  } else if (step_.condition >= 0) {
    TESSERA_ASSIGN(goes_on, flag(table_.pointers[static_cast<size_t>(step_.condition)]));
  }
  if (step_.trip_count) {
    trips = numbers[0];
    numbers = numbers.subspan(1);
  } else if (step_.trips >= 0) {
    TESSERA_TRY(device_.inner().read(&trips, table_.pointers[static_cast<size_t>(step_.trips)], sizeof trips));
  }
  trips = std::max<int64_t>(trips, 0);
  const size_t carried = step_.initial.size();
  for (size_t k = 0; k < carried; ++k) {
    const auto b = static_cast<size_t>(step_.initial[k]);
    results_[k] = {table_.pointers[b], *table_.dims[b]};
  }
  std::fill(sliced_.begin(), sliced_.end(), false);
  for (const auto& a : step_.bodies[0].arguments) {
    if (a.source == Source::Iteration) TESSERA_TRY(reserve(iteration_, sizeof(int64_t)));
    if (a.source != Source::Condition || condition_.memory) continue;
    const uint8_t yes = 1;
    TESSERA_TRY(reserve(condition_, sizeof yes));
    TESSERA_TRY(device_.inner().write(condition_.memory.get(), &yes, sizeof yes));
  }
  int64_t i = 0;
  for (; i < trips && goes_on; ++i) {
    TESSERA_TRY(iterate(i, trips, numbers));
    if (step_.continues) {
      TESSERA_ASSIGN(goes_on, flag(unused_.memory.get()));
    }
  }
  for (size_t k = 0; k < carried; ++k) {
    if (!slots_[k].known) continue;
    TESSERA_TRY(check_dims(slots_[k], results_[k].dims, 0));
    const auto b = static_cast<size_t>(slots_[k].buffer);
    if (results_[k].data != table_.pointers[b])
      TESSERA_TRY(device_.inner().move(table_.pointers[b], results_[k].data, table_.bytes[b]));
  }
  for (size_t r = carried; r < slots_.size(); ++r) {
    if (slots_[r].buffer < 0) continue;
    Dims& dims = results_[r].dims;
    if (!sliced_[r]) { // sizes that only an iteration could define are 0
      dims.clear();
      for (const SymExpr& e : variant_.exe->buffers[static_cast<size_t>(slots_[r].buffer)].shape) {
        auto size = e.eval(symbols);
        dims.push_back(size.ok() ? *size : 0);
      }
      if (dims.empty()) return error("a stacked result has no dimension");
    }
    dims[0] = i;
    if (slots_[r].known) TESSERA_TRY(check_dims(slots_[r], dims, 0));
    results_[r].data = slots_[r].own[0].memory.get();
  }
  return {};
}

Status ControlRun::iterate(int64_t i, int64_t trips, std::span<const int64_t> sizes) {
  if (reads_iteration_) TESSERA_TRY(device_.inner().write(iteration_.memory.get(), &i, sizeof i));
  const size_t first = step_.continues ? 1 : 0, carried = step_.initial.size();
  // The last iteration writes to the buffers where nothing ends the loop before.
  const bool in_buffer = step_.continues || trips == INT64_MAX || (trips - 1 - i) % 2 == 0;
  std::vector<Value> next(carried);
  TESSERA_TRY(call(0, sizes, i, trips, [&](size_t o, DType dtype, const Dims& dims) -> Result<void*> {
    const int64_t bytes = bytes_of(dtype, dims);
    if (o < first) {
      TESSERA_TRY(reserve(unused_, bytes));
      return unused_.memory.get();
    }
    const size_t r = o - first;
    if (r >= carried) return slice_memory(r, dims, bytes, i, trips);
    TESSERA_ASSIGN(next[r].data, carried_memory(r, dims, bytes, in_buffer));
    next[r].dims = dims;
    return next[r].data;
  }));
  std::move(next.begin(), next.end(), results_.begin());
  return {};
}

// Another place than that of the present value.
Result<void*> ControlRun::carried_memory(size_t k, const Dims& dims, int64_t bytes, bool in_buffer) {
  Slot& slot = slots_[k];
  if (slot.known) {
    TESSERA_TRY(check_dims(slot, dims, 0));
    void* buffer = table_.pointers[static_cast<size_t>(slot.buffer)];
    if (in_buffer && results_[k].data != buffer) return buffer;
    TESSERA_TRY(reserve(slot.own[0], bytes));
    if (results_[k].data != slot.own[0].memory.get()) return slot.own[0].memory.get();
    return buffer;
  }
  slot.next = 1 - slot.next;
  Block& block = slot.own[slot.next];
  TESSERA_TRY(reserve(block, bytes));
  return block.memory.get();
}

Result<void*> ControlRun::slice_memory(size_t r, const Dims& dims, int64_t bytes, int64_t i, int64_t trips) {
  Slot& slot = slots_[r];
  Dims& whole = results_[r].dims;
  if (!sliced_[r]) {
    whole = dims;
    whole.insert(whole.begin(), 0);
    sliced_[r] = true;
  } else if (!std::equal(whole.begin() + 1, whole.end(), dims.begin(), dims.end())) {
    Diagnostic d = error("yields " + text_of(dims) + " in iteration " + std::to_string(i) + ", and " +
                         text_of(Dims(whole.begin() + 1, whole.end())) +
                         " before: slices make a tensor where their sizes are equal");
    d.code = ErrorCode::BadInput;
    return d;
  }
  const int64_t at = step_.reverse[r - step_.initial.size()] ? trips - 1 - i : i;
  if (slot.buffer < 0) {
    TESSERA_TRY(reserve(slot.own[0], bytes));
    return slot.own[0].memory.get();
  }
  if (slot.known) {
    TESSERA_TRY(check_dims(slot, dims, 1));
    const auto b = static_cast<size_t>(slot.buffer);
    if (at < 0 || at >= (*table_.dims[b])[0])
      return error("iteration " + std::to_string(i) + " writes behind the " + std::to_string((*table_.dims[b])[0]) +
                   " slices of '" + variant_.exe->buffers[b].name + "'");
    return static_cast<std::byte*>(table_.pointers[b]) + at * bytes;
  }
  int64_t needed = 0;
  if (__builtin_mul_overflow(bytes, std::max(at, i) + 1, &needed))
    return error("has results of more bytes than an address space");
  // A loop that no condition ends has its slices counted.
  int64_t all = 0;
  if (!step_.continues && trips < INT64_MAX && !__builtin_mul_overflow(bytes, trips, &all)) needed = all;
  TESSERA_TRY(reserve(slot.own[0], needed, i * bytes));
  return slot.own[0].memory.get() + at * bytes;
}

Status ControlRun::place() {
  for (size_t r = 0; r < slots_.size(); ++r) {
    if (slots_[r].buffer < 0 || slots_[r].known) continue;
    TESSERA_TRY(check_dims(slots_[r], results_[r].dims, 0));
    const auto b = static_cast<size_t>(slots_[r].buffer);
    if (table_.bytes[b] > 0) TESSERA_TRY(device_.inner().move(table_.pointers[b], results_[r].data, table_.bytes[b]));
  }
  return {};
}

Status ControlRun::wait() {
  for (auto& body : bodies_) TESSERA_TRY(body->wait());
  return {};
}

// ---- checks ---------------------------------------------------------------------------------------------------------

namespace {
class Verifier {
public:
  Verifier(const Executable& e, const ControlStep& s) : e_(e), s_(s) {}

  Status run() {
    const bool branches = s_.kind == ControlStep::Kind::If;
    if (s_.bodies.size() != (branches ? 2 : 1)) return bad("has " + std::to_string(s_.bodies.size()) + " bodies");
    for (const auto& body : s_.bodies) {
      if (!body.executable) return bad("lacks a body");
      if (body.executable->target != e_.target) return bad("has a body for '" + body.executable->target + "'");
      TESSERA_TRY(verify(*body.executable));
      if (body.arguments.size() != body.executable->inputs.size())
        return bad("gives " + std::to_string(body.arguments.size()) + " of " +
                   std::to_string(body.executable->inputs.size()) + " inputs to a body");
      for (size_t k = 0; k < body.arguments.size(); ++k)
        if (!fits(body.arguments[k], input(body, k)))
          return bad("gives a body another type than input '" + body.executable->inputs[k].name + "' has");
    }
    if (s_.condition >= 0 && (s_.decided || !is_scalar(s_.condition, DType::Bool)))
      return bad("has no condition that can be read");
    if (s_.trips >= 0 && (s_.trip_count || !is_scalar(s_.trips, DType::I64)))
      return bad("has no trip count that can be read");
    if (branches && s_.condition < 0 && !s_.decided) return bad("has no condition");
    if (branches && (s_.trips >= 0 || s_.trip_count || s_.continues || !s_.initial.empty() || !s_.reverse.empty()))
      return bad("has parts of a loop");
    for (BufferId b : s_.initial)
      if (!in_range(b)) return bad("carries a value that does not exist");
    TESSERA_TRY(outputs(branches));
    for (const auto& d : s_.defines)
      if (!d.symbol.is_symbol() || d.result < 0 || static_cast<size_t>(d.result) >= s_.outputs.size() ||
          s_.outputs[static_cast<size_t>(d.result)] < 0 || d.dim < 0 ||
          static_cast<size_t>(d.dim) >= buffer(s_.outputs[static_cast<size_t>(d.result)]).shape.size() ||
          d.element >= 0)
        return bad("defines a size of a result that it does not have");
    return {};
  }

private:
  Diagnostic bad(const std::string& what) const {
    return {ErrorCode::Internal, "control step '" + s_.name + "': " + what};
  }
  [[nodiscard]] bool in_range(BufferId b) const {
    return b >= 0 && static_cast<size_t>(b) < e_.buffers.size() && whole_bytes(buffer(b).dtype);
  }
  static bool whole_bytes(DType dtype) { return dtype != DType::String && info(dtype).bits >= 8; }
  [[nodiscard]] const BufferInfo& buffer(BufferId b) const { return e_.buffers[static_cast<size_t>(b)]; }
  static const BufferInfo& input(const ControlBody& body, size_t k) {
    return body.executable->buffers[static_cast<size_t>(body.executable->inputs[k].buffer)];
  }
  static const BufferInfo& output(const ControlBody& body, size_t k) {
    return body.executable->buffers[static_cast<size_t>(body.executable->outputs[k].buffer)];
  }
  [[nodiscard]] bool is_scalar(BufferId b, DType dtype) const {
    return in_range(b) && buffer(b).dtype == dtype && product(buffer(b).shape).is_const(1);
  }
  // Sizes are compared when the body runs.
  static bool same(const BufferInfo& a, const BufferInfo& b, size_t more = 0) {
    return a.dtype == b.dtype && a.shape.size() == b.shape.size() + more;
  }
  [[nodiscard]] bool fits(const BodyArgument& a, const BufferInfo& input) const {
    const bool loop = s_.kind == ControlStep::Kind::Loop;
    switch (a.source) {
    case Source::Buffer: return in_range(a.buffer) && same(buffer(a.buffer), input);
    case Source::Slice:
      return loop && in_range(a.buffer) && same(buffer(a.buffer), input, 1) && (!a.reverse || s_.trip_count);
    case Source::Carried:
      return loop && a.buffer < 0 && a.index >= 0 && static_cast<size_t>(a.index) < s_.initial.size() &&
             in_range(s_.initial[static_cast<size_t>(a.index)]) &&
             same(buffer(s_.initial[static_cast<size_t>(a.index)]), input);
    case Source::Iteration:
      return loop && a.buffer < 0 && input.dtype == DType::I64 && product(input.shape).is_const(1);
    case Source::Condition:
      return loop && a.buffer < 0 && input.dtype == DType::Bool && product(input.shape).is_const(1);
    case Source::Size: return a.buffer < 0 && input.shape.size() == 2 && input.shape[0].is_const(0);
    }
    return false;
  }
  [[nodiscard]] Status outputs(bool branches) const {
    const size_t first = s_.continues ? 1 : 0, carried = s_.initial.size();
    if (!branches && s_.outputs.size() != carried + s_.reverse.size()) return bad("has another number of results");
    for (const auto& body : s_.bodies)
      if (body.executable->outputs.size() != first + s_.outputs.size())
        return bad("has a body of " + std::to_string(body.executable->outputs.size()) + " outputs for " +
                   std::to_string(s_.outputs.size()) + " results");
    if (s_.continues) {
      const BufferInfo& condition = output(s_.bodies[0], 0);
      if (condition.dtype != DType::Bool || !product(condition.shape).is_const(1))
        return bad("has a body without a condition");
    }
    for (size_t r = 0; r < s_.outputs.size(); ++r) {
      const bool stacked = !branches && r >= carried;
      for (const auto& body : s_.bodies) {
        const BufferInfo& made = output(body, first + r);
        if (!whole_bytes(made.dtype)) return bad("has results of " + std::string(name(made.dtype)));
        if (!branches && !stacked && !same(buffer(s_.initial[r]), made))
          return bad("carries a value that changes its type");
        if (s_.outputs[r] < 0) continue;
        if (!in_range(s_.outputs[r]) || !same(buffer(s_.outputs[r]), made, stacked ? 1 : 0))
          return bad("has a body that yields another type than a result has");
      }
      if (stacked && s_.reverse[r - carried] && !s_.trip_count)
        return bad("stacks slices from the last one on, and their number is not known");
    }
    // Bodies write no buffer that they read.
    auto used = buffers_of(Step(s_));
    std::sort(used.written.begin(), used.written.end());
    if (std::adjacent_find(used.written.begin(), used.written.end()) != used.written.end())
      return bad("writes a buffer twice");
    for (BufferId b : used.read)
      if (std::binary_search(used.written.begin(), used.written.end(), b)) return bad("reads what it writes");
    return {};
  }

  const Executable& e_;
  const ControlStep& s_;
};
} // namespace

Status verify_control(const Executable& executable, const ControlStep& step) {
  return Verifier(executable, step).run();
}

} // namespace tessera
