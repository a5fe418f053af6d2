#include "runtime/cuda/cudnn_attention.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "runtime/cuda/cudnn_graph.h"
#include "runtime/cuda/library_choices.h"
#include <limits>

namespace tessera::cuda {
namespace {

constexpr int64_t kAlignment = 16; // bytes, of every tensor in memory

class AttentionGraph : GraphBuilder {
public:
  AttentionGraph(const Cudnn& library, const AttentionProblem& problem)
      : GraphBuilder(library, kAlignment), problem_(problem) {}

  Result<OperationGraph> run() {
    const auto& p = problem_;
    auto type = *cudnn_type(p.dtype);
    int64_t batch = p.q.dims[0], heads = p.q.dims[1], queries = p.q.dims[2], keys = p.k.dims[2];
    scores_ = {{batch, heads, queries, keys}, {heads * queries * keys, queries * keys, keys, 1}};
    rows_ = {{batch, heads, queries, 1}, {heads * queries, queries, 1, 1}};
    AttentionTensor turned = p.k; // k' of the product
    std::swap(turned.dims[2], turned.dims[3]);
    std::swap(turned.strides[2], turned.strides[3]);
    TESSERA_ASSIGN(size_t q, tensor(p.q, type, AttentionRole::Q));
    TESSERA_ASSIGN(size_t k, tensor(turned, type, AttentionRole::K));
    TESSERA_ASSIGN(size_t v, tensor(p.v, type, AttentionRole::V));
    TESSERA_ASSIGN(size_t out, tensor(p.out, type, AttentionRole::Out));
    TESSERA_ASSIGN(size_t x, between(scores_));
    TESSERA_TRY(matmul(q, k, x));
    TESSERA_ASSIGN(size_t scale, number(AttentionRole::Scale));
    TESSERA_ASSIGN(x, pointwise(CUDNN_POINTWISE_MUL, x, scale, scores_));
    if (p.bias) {
      TESSERA_ASSIGN(size_t bias, tensor(*p.bias, *cudnn_type(p.bias_dtype), AttentionRole::Bias));
      TESSERA_ASSIGN(x, pointwise(CUDNN_POINTWISE_ADD, x, bias, scores_));
    }
    if (p.causal) {
      TESSERA_ASSIGN(x, causal(x));
    }
    TESSERA_ASSIGN(size_t max, reduction(CUDNN_REDUCE_TENSOR_MAX, x));
    TESSERA_ASSIGN(size_t difference, pointwise(CUDNN_POINTWISE_SUB, x, max, scores_));
    TESSERA_ASSIGN(size_t e, pointwise(CUDNN_POINTWISE_EXP, difference, std::nullopt, scores_));
    TESSERA_ASSIGN(size_t sum, reduction(CUDNN_REDUCE_TENSOR_ADD, e));
    // The engines know the graph with the logarithm of the sum in it, though nobody reads that.
    TESSERA_ASSIGN(size_t log, pointwise(CUDNN_POINTWISE_LOG, sum, std::nullopt, rows_));
    TESSERA_ASSIGN([[maybe_unused]] size_t statistics, pointwise(CUDNN_POINTWISE_ADD, max, log, rows_));
    // The second product takes its left operand in the type of the right one.
    TESSERA_ASSIGN(size_t probabilities, pointwise(CUDNN_POINTWISE_DIV, e, sum, scores_, type));
    TESSERA_TRY(matmul(probabilities, v, out));
    return std::move(graph_);
  }

private:
  Result<size_t> tensor(const AttentionTensor& t, cudnnDataType_t type, AttentionRole role) {
    return GraphBuilder::tensor({t.dims, t.strides}, type, static_cast<int64_t>(role));
  }
  Result<size_t> number(AttentionRole role) {
    const std::vector<int64_t> one(4, 1);
    return GraphBuilder::tensor({one, one}, CUDNN_DATA_FLOAT, static_cast<int64_t>(role), Where::Argument);
  }
  Result<size_t> between(const AttentionTensor& t, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return GraphBuilder::between({t.dims, t.strides}, type);
  }

  Status matmul(size_t a, size_t b, size_t c) {
    TESSERA_ASSIGN(Descriptor d, Descriptor::create(library_, CUDNN_BACKEND_MATMUL_DESCRIPTOR));
    TESSERA_TRY(d.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
    TESSERA_ASSIGN(size_t kept, finalized(std::move(d)));
    TESSERA_ASSIGN(Descriptor op, Descriptor::create(library_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR));
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, part(a)));
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, part(b)));
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, part(c)));
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, part(kept)));
    return operation(std::move(op));
  }

  Result<size_t> of(cudnnPointwiseMode_t mode, cudnnDataType_t precision = CUDNN_DATA_FLOAT) {
    TESSERA_ASSIGN(Descriptor d, function(mode, precision));
    return finalized(std::move(d));
  }
  Result<size_t> pointwise(cudnnPointwiseMode_t mode, size_t x, std::optional<size_t> b, const AttentionTensor& shape,
                           cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    TESSERA_ASSIGN(size_t f, of(mode));
    TESSERA_ASSIGN(size_t y, between(shape, type));
    TESSERA_TRY(apply(f, x, b, std::nullopt, y));
    return y;
  }
  Result<size_t> reduction(cudnnReduceTensorOp_t kind, size_t x) {
    TESSERA_ASSIGN(Descriptor d, Descriptor::create(library_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR));
    TESSERA_TRY(d.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, kind));
    TESSERA_TRY(d.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
    TESSERA_ASSIGN(size_t kept, finalized(std::move(d)));
    TESSERA_ASSIGN(size_t y, between(rows_));
    TESSERA_ASSIGN(Descriptor op, Descriptor::create(library_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR));
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, part(x)));
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, part(y)));
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, part(kept)));
    TESSERA_TRY(operation(std::move(op)));
    return y;
  }
  // x where the number of the row is at least that of the column.
  Result<size_t> causal(size_t x) {
    auto index = [&](int64_t axis) -> Result<size_t> {
      TESSERA_ASSIGN(Descriptor d, function(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32));
      TESSERA_TRY(d.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis));
      TESSERA_ASSIGN(size_t f, finalized(std::move(d)));
      TESSERA_ASSIGN(size_t y, between(scores_, CUDNN_DATA_INT32));
      TESSERA_TRY(apply(f, x, std::nullopt, std::nullopt, y));
      return y;
    };
    TESSERA_ASSIGN(size_t row, index(2));
    TESSERA_ASSIGN(size_t column, index(3));
    TESSERA_ASSIGN(size_t compare, of(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN));
    TESSERA_ASSIGN(size_t seen, between(scores_, CUDNN_DATA_BOOLEAN));
    TESSERA_TRY(apply(compare, row, column, std::nullopt, seen));
    TESSERA_ASSIGN(size_t hidden, number(AttentionRole::Hidden));
    TESSERA_ASSIGN(size_t select, of(CUDNN_POINTWISE_BINARY_SELECT));
    TESSERA_ASSIGN(size_t y, between(scores_));
    TESSERA_TRY(apply(select, x, hidden, seen, y));
    return y;
  }

  const AttentionProblem& problem_;
  AttentionTensor scores_, rows_;
};

class AttentionPlan final : public CudaLibraryPlan {
public:
  explicit AttentionPlan(std::shared_ptr<Cudnn> library) : library_(std::move(library)) {}

  [[nodiscard]] std::shared_ptr<const void> used_by_graphs() const override { return engine; } // and its kernels
  Status run(CUstream stream, void* const* pointers, void* workspace, bool) const override {
    if (!engine) return {}; // no results
    std::vector<int64_t> ids;
    std::vector<void*> data;
    auto add = [&](AttentionRole role, void* at) {
      ids.push_back(static_cast<int64_t>(role));
      data.push_back(at);
    };
    for (const auto& t : tensors) add(t.role, static_cast<std::byte*>(pointers[t.buffer]) + t.offset);
    float by_value = scale, hidden = std::numeric_limits<float>::lowest();
    add(AttentionRole::Scale, &by_value);
    if (causal) add(AttentionRole::Hidden, &hidden);
    return run_engine(*library_, name, *engine, stream, ids, data, workspace);
  }

  struct Bound {
    AttentionRole role;
    BufferId buffer;
    int64_t offset; // bytes
  };
  std::string name;
  std::vector<Bound> tensors;
  float scale = 1;
  bool causal = false;
  std::shared_ptr<const ConvEngine> engine;

private:
  std::shared_ptr<Cudnn> library_;
};

} // namespace

Result<OperationGraph> make_attention_graph(const Cudnn& library, const AttentionProblem& problem) {
  return AttentionGraph(library, problem).run();
}

Result<std::shared_ptr<AttentionEngines>> AttentionEngines::of(Context& context) {
  TESSERA_ASSIGN(auto library, Cudnn::of(context));
  auto make = [&](Context& c) -> Result<std::shared_ptr<void>> {
    return std::shared_ptr<void>(std::make_shared<AttentionEngines>(c, library));
  };
  TESSERA_ASSIGN(auto attached, context.attachment("attention", make));
  return std::static_pointer_cast<AttentionEngines>(attached);
}

AttentionEngines::~AttentionEngines() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<const AttentionEngines::Entry> AttentionEngines::known(const AttentionProblem& problem) {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(problem.key());
  if (it == entries_.end()) return nullptr;
  it->second.used = ++requests_;
  return it->second.entry;
}

std::shared_ptr<const AttentionEngines::Entry> AttentionEngines::known_or_made(const AttentionProblem& problem,
                                                                               bool wait) {
  return waits(wait) ? engine(problem, true) : known(problem);
}

// The mutex is held.
void AttentionEngines::make_room() {
  if (entries_.size() < kMax) return;
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it)
    if (it->second.entry->state != Entry::State::Making &&
        (oldest == entries_.end() || it->second.used < oldest->second.used))
      oldest = it;
  if (oldest != entries_.end()) entries_.erase(oldest);
}

std::shared_ptr<const AttentionEngines::Entry> AttentionEngines::engine(const AttentionProblem& problem, bool wait) {
  std::unique_lock lock(mutex_);
  std::string key = problem.key();
  if (!entries_.contains(key)) {
    make_room();
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { work(); });
      ++open_; // its start: a process must not end while the library makes a handle
    }
    auto fresh = std::make_shared<Entry>();
    jobs_.push_back({problem, fresh});
    entries_[key].entry = std::move(fresh); // from now on others wait for the job
    ++open_;
    more_.notify_one();
  }
  Kept& kept = entries_[key];
  kept.used = ++requests_;
  auto entry = kept.entry;
  if (waits(wait)) done_.wait(lock, [&] { return entry->state != Entry::State::Making; });
  return entry;
}

double AttentionEngines::mean_ms() const {
  std::lock_guard lock(mutex_);
  return made_ > 0 ? made_ms_ / static_cast<double>(made_) : 0;
}

void AttentionEngines::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return open_ == 0; });
}

void AttentionEngines::finish() {
  std::unique_lock lock(mutex_);
  for (const Job& job : jobs_) {
    job.entry->why = "its plan was given up";
    job.entry->state = Entry::State::Refused;
    entries_.erase(job.problem.key());
    --open_;
  }
  jobs_.clear();
  done_.notify_all();
  done_.wait(lock, [&] { return open_ == 0; });
}

void AttentionEngines::work() {
  // A handle of its own: one may not be used by two threads at once.
  Context::Current current(context_);
  cudnnHandle_t handle = nullptr;
  if (!current.status().ok() || library_->cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS) handle = nullptr;
  std::unique_lock lock(mutex_);
  --open_;
  done_.notify_all();
  while (true) {
    more_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) break;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    const Stopwatch watch;
    auto made = guarded("making a plan of an attention", [&]() -> Status {
      make(job, handle);
      return {};
    });
    lock.lock();
    ++made_;
    made_ms_ += watch.ms();
    if (job.entry->state == Entry::State::Making) { // an exception: a later call tries again
      job.entry->why = std::move(made).take_error().message;
      job.entry->state = Entry::State::Refused;
      std::erase_if(entries_, [&](const auto& e) { return e.second.entry == job.entry; });
    }
    --open_;
    done_.notify_all();
  }
  if (handle) library_->cudnnDestroy(handle);
}

void AttentionEngines::make(const Job& job, cudnnHandle_t handle) const {
  const Stopwatch watch;
  auto found = [&]() -> Result<std::shared_ptr<const ConvEngine>> {
    if (!handle) return Diagnostic(ErrorCode::DeviceError, "cuDNN did not give a second handle");
    TESSERA_ASSIGN(auto graph, make_attention_graph(*library_, job.problem));
    const EngineOptions options{job.problem.dtype, true, false};
    TESSERA_ASSIGN(auto choices, LibraryChoices::of(context_));
    const auto kept = choices->of_library(library_->name());
    const std::string key = "attention " + job.problem.key();
    if (const auto text = kept->find(key))
      if (const auto choice = parse_conv_choice(*text); choice && *choice) {
        TESSERA_ASSIGN(auto engine, make_engine(*library_, handle, graph.operations, options, (*choice)->engine));
        if (engine) return engine; // else an earlier process's choice that does not do any more
      }
    TESSERA_ASSIGN(auto engine, find_engine(*library_, handle, graph.operations, options));
    if (engine && engine->choice) kept->put(key, text_of(ConvChoice{{}, *engine->choice}));
    return engine;
  }();
  Entry& entry = *job.entry;
  if (found.ok() && *found) {
    entry.engine = std::move(*found);
    entry.state = Entry::State::Ready;
    double ms = watch.ms();
    TESSERA_LOGF(LogChannel::Perf, "cuDNN's plan of an attention took " + std::to_string(static_cast<int>(ms)) +
                                       " ms: " + job.problem.key());
    return;
  }
  entry.why = found.ok() ? "cuDNN has no engine" : found.error().message;
  entry.state = Entry::State::Refused;
  TESSERA_LOGF(LogChannel::Perf, "attention in steps: " + entry.why + " for " + job.problem.key());
}

Result<std::unique_ptr<CudaLibraryPlan>>
plan_cuda_attention(const CudaPlanContext& context, const FusedAttentionCall& call, std::span<const Operand> operands) {
  TESSERA_ASSIGN(auto problem, describe_attention(call, operands, context.name));
  if (problem.empty()) return std::unique_ptr<CudaLibraryPlan>(std::make_unique<AttentionPlan>(nullptr));
  TESSERA_ASSIGN(auto engines, AttentionEngines::of(context.context));
  auto entry = engines->engine(problem, true);
  if (entry->state != AttentionEngines::Entry::State::Ready)
    return Diagnostic(ErrorCode::UnsupportedFeature, "cuDNN does not compute '" + context.name + "': " + entry->why);
  auto plan = std::make_unique<AttentionPlan>(engines->library());
  plan->name = context.name;
  plan->engine = entry->engine;
  plan->workspace_bytes = entry->engine->workspace_bytes;
  plan->scale = static_cast<float>(problem.scale);
  plan->causal = problem.causal;
  for (size_t o = 0; o < operands.size(); ++o)
    plan->tensors.push_back(
        {static_cast<AttentionRole>(o + 1), operands[o].buffer, operands[o].offset * info(operands[o].dtype).bits / 8});
  return std::unique_ptr<CudaLibraryPlan>(std::move(plan));
}

void wait_for_attention(Context& context) {
  if (auto engines = AttentionEngines::of(context); engines.ok()) (*engines)->wait();
}

void finish_attention(Context& context) {
  if (auto engines = AttentionEngines::of(context); engines.ok()) (*engines)->finish();
}

} // namespace tessera::cuda
