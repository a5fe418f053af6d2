#include "api/session/variant_pool.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/similar.h"
#include "base/stopwatch.h"
#include "runtime/guards.h"
#include <algorithm>

namespace tessera {
namespace {

constexpr size_t kMaxFailures = 64; // that are remembered
constexpr int kMaxGeneric = 16;     // variants that are not specialized

// The first guard that does not hold for these sizes; guards over sizes that are not known yet are passed over.
std::optional<Guard> missed(const Executable& executable, const Sizes& sizes) {
  const ShapeEnv& env = *executable.env;
  std::unordered_map<uint64_t, int64_t> values;
  std::vector<Guard> guards = env.guards();
  for (const auto& [name, size] : sizes)
    if (auto symbol = env.find(name)) {
      values.emplace(symbol->symbol_id(), size);
      for (Guard& fact : facts_as_guards(env, *symbol)) guards.push_back(std::move(fact));
    }
  for (Guard& guard : guards) {
    auto holds = guard.condition.eval(values);
    if (holds.ok() && *holds == 0) return std::move(guard);
  }
  for (const Step& step : executable.steps)
    if (const auto* control = std::get_if<ControlStep>(&step))
      for (const auto& body : control->bodies)
        if (auto guard = missed(*body.executable, sizes)) return guard;
  return std::nullopt;
}

// Whether no call fits both, as far as the guards of one are known to be false where those of the other hold.
bool exclude_each_other(const SessionVariant& a, const SessionVariant& b) {
  if (a.fits_no_call || b.fits_no_call) return true;
  const ShapeEnv& of_a = *a.executable->env;
  const ShapeEnv of_b = *b.executable->env; // its own: what it deduces is kept in it
  return std::any_of(of_a.guards().begin(), of_a.guards().end(), [&](const Guard& guard) {
    std::unordered_map<uint64_t, SymExpr> same;
    for (const SymExpr& symbol : guard.condition.symbols()) {
      const auto there = of_b.find(symbol.symbol_name());
      if (!there) return false;
      same.emplace(symbol.symbol_id(), *there);
    }
    return of_b.prove(guard.condition.substitute(same)) == false;
  });
}

bool bounded(VariantPolicy policy) { return policy != VariantPolicy::Generic; }

// The conditions of a specialization that these sizes have. A divisor holds for a size that is not known yet.
Conditions conditions_at(const std::map<std::string, Specialization>& specialize, const Sizes& sizes) {
  Conditions out;
  for (const auto& [symbol, how] : specialize) {
    const auto size = sizes.find(symbol);
    const bool exact = how.kind == Specialization::Kind::Exact;
    if (exact ? size == sizes.end() : size != sizes.end() && size->second % how.divisor != 0) continue;
    out.of.emplace_back(symbol, how);
    out.label += (out.label.empty() ? "" : ", ") + symbol +
                 (exact ? "=" + std::to_string(size->second) : "%" + std::to_string(how.divisor) + "=0");
  }
  return out;
}

// Whether the executable is the variant's, or was before better kernels were found.
bool holds(const SessionVariant& v, const Executable& executable) {
  auto is = [&](const std::shared_ptr<const Executable>& e) { return e.get() == &executable; };
  return is(v.executable) || std::any_of(v.earlier.begin(), v.earlier.end(), is);
}

} // namespace

VariantPool::VariantPool(std::unique_ptr<ModelSource> source, SessionOptions options,
                         std::shared_ptr<std::atomic<bool>> closed)
    : source_(std::move(source)), options_(std::move(options)), closed_(std::move(closed)) {}

Status VariantPool::open() {
  const Stopwatch watch;
  TESSERA_ASSIGN(auto variants, source_->open());
  generic_ = variants.front()->executable;
  from_file_ = variants.front()->from_file;
  for (const auto& v : variants) {
    v->number = numbers_++;
    totals_.compiles += v->from_file ? 0 : 1;
    totals_.cached_plans += v->from_plan ? 1 : 0;
    totals_.kernels += v->kernels;
    totals_.contained += v->contained;
    totals_.cached_kernels += v->cached_kernels;
  }
  (from_file_ ? totals_.load_ms : totals_.ms) = watch.ms();
  variants_ = std::move(variants);
  TESSERA_TRY(check_options());
  Lock lock(mutex_);
  for (const auto& specialize : options_.variants) {
    Sizes sizes;
    for (const auto& [symbol, how] : specialize)
      if (how.kind == Specialization::Kind::Exact) sizes.emplace(symbol, how.size);
    const Conditions conditions = conditions_at(specialize, sizes);
    TESSERA_TRY(
        make(lock, "variant " + conditions.label, {.sizes = sizes, .specialization = conditions}, Place::Opening));
  }
  return {};
}

void VariantPool::close() {
  closed_->store(true);
  std::lock_guard lock(mutex_);
  compiled_.notify_all();
}

std::vector<std::shared_ptr<const SessionVariant>> VariantPool::variants() const {
  std::lock_guard lock(mutex_);
  return {variants_.begin(), variants_.end()};
}

ExecutableSource::Order VariantPool::order() const {
  std::lock_guard lock(mutex_);
  std::vector<const SessionVariant*> sorted;
  for (const auto& v : variants_)
    if (v->specialized) sorted.push_back(v.get());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const SessionVariant* a, const SessionVariant* b) { return a->conditions > b->conditions; });
  const auto first = static_cast<std::ptrdiff_t>(sorted.size());
  for (const auto& v : variants_) {
    if (v->specialized) continue;
    auto at = sorted.end();
    while (at != sorted.begin() + first && exclude_each_other(**(at - 1), *v)) --at;
    sorted.insert(at, v.get());
  }
  Order out;
  out.generation = generation_.load(std::memory_order_relaxed);
  for (const SessionVariant* v : sorted) {
    if (v == variants_.front().get()) out.generic = out.variants.size();
    const auto index =
        std::find_if(variants_.begin(), variants_.end(), [&](const auto& other) { return other.get() == v; });
    out.variants.push_back({v->number, static_cast<int>(index - variants_.begin()), v->specialized, v->executable});
  }
  return out;
}

void VariantPool::begins() {
  if (const auto work = work_.lock()) work->begins();
}

void VariantPool::ended(const std::shared_ptr<const Executable>& ran, std::span<const SymExpr> symbols,
                        std::span<const int64_t> values, int swaps) {
  if (swaps > 0) {
    const std::lock_guard lock(mutex_);
    totals_.swaps += swaps;
  }
  if (const auto work = work_.lock()) work->ended(ran, symbols, values);
}

CompileTotals VariantPool::totals() const {
  std::lock_guard lock(mutex_);
  CompileTotals out = totals_;
  out.variants = static_cast<int64_t>(variants_.size());
  return out;
}

void VariantPool::count_queued(int64_t queued) {
  std::lock_guard lock(mutex_);
  totals_.queued = queued;
}

Result<std::shared_ptr<SessionVariant>> VariantPool::make(Lock& lock, const std::string& key,
                                                          const CompileRequest& request, Place place) {
  struct Flight { // whatever happens, others go on
    VariantPool& pool;
    Lock& lock;
    const std::string& key;
    ~Flight() {
      if (!lock.owns_lock()) lock.lock();
      pool.compiling_.erase(key);
      pool.compiled_.notify_all();
    }
  };
  const Stopwatch watch;
  compiling_.insert(key);
  const Flight flight{*this, lock, key};
  lock.unlock();
  auto made = guarded({"compiling variant", key}, [&]() -> Result<std::shared_ptr<SessionVariant>> {
    if (closed_->load()) return Diagnostic(ErrorCode::Cancelled, "the session was closed");
    return source_->make(request);
  });
  lock.lock();
  totals_.ms += watch.ms();
  if (place == Place::Request) totals_.blocking_ms += watch.ms();
  if (!made.ok()) {
    ++totals_.failures;
    return made;
  }
  ++totals_.compiles;
  totals_.cached_plans += (*made)->from_plan ? 1 : 0;
  if (place == Place::Request) ++totals_.blocking;
  if (place == Place::Background) ++totals_.background;
  totals_.contained += (*made)->contained;
  totals_.kernels += (*made)->kernels;
  totals_.cached_kernels += (*made)->cached_kernels;
  (*made)->number = numbers_++;
  variants_.push_back(*made);
  if ((*made)->specialized) {
    Specialized& its = specialized_[(*made)->label];
    its = {++uses_, own_bytes(*(*made)->executable)};
    totals_.variant_bytes += its.bytes;
  }
  if (bounded(options_.policy) && place != Place::Opening) evict();
  generation_.fetch_add(1, std::memory_order_release);
  return made;
}

namespace {
// The bytes of machine code and constants that are in none of `shared`, those of bodies included.
int64_t bytes_of(const Executable& executable, const std::set<const std::byte*>& shared) {
  int64_t bytes = 0;
  for (const auto& object : executable.objects) bytes += static_cast<int64_t>(object.size());
  for (const Constant& c : executable.constants)
    if (has_bytes(c.value.dtype()) && !shared.contains(c.value.data())) bytes += static_cast<int64_t>(c.value.bytes());
  for (const Step& step : executable.steps)
    if (const auto* control = std::get_if<ControlStep>(&step))
      for (const auto& body : control->bodies) bytes += bytes_of(*body.executable, shared);
  return bytes;
}
} // namespace

int64_t VariantPool::own_bytes(const Executable& executable) const {
  std::set<const std::byte*> shared;
  for (const Constant& c : generic_->constants)
    if (has_bytes(c.value.dtype())) shared.insert(c.value.data());
  return bytes_of(executable, shared);
}

// Bounds the number of specialized variants and their bytes: the ones that were used least recently go. The one that
// was made last stays.
void VariantPool::evict() {
  const auto used = [&](const auto& v) { return v->specialized ? specialized_[v->label].last_used : UINT64_MAX; };
  const auto count = [&] {
    return std::count_if(variants_.begin(), variants_.end(), [](const auto& v) { return v->specialized; });
  };
  for (auto left = count();
       left > options_.max_variants || (left > 1 && totals_.variant_bytes > options_.max_variant_bytes); --left) {
    const auto oldest = std::min_element(variants_.begin(), variants_.end(),
                                         [&](const auto& a, const auto& b) { return used(a) < used(b); });
    const std::string& label = (*oldest)->label;
    TESSERA_LOGF(LogChannel::Recompiles,
                 "variant " + label + " is given up: " +
                     (left > options_.max_variants ? std::to_string(options_.max_variants) + " others were used since"
                                                   : "specialized variants take more than " +
                                                         std::to_string(options_.max_variant_bytes) + " bytes"));
    totals_.variant_bytes -= specialized_[label].bytes;
    specialized_.erase(label);
    variants_.erase(oldest);
    ++totals_.evictions;
  }
}

Result<std::shared_ptr<const Executable>> VariantPool::cover(const Sizes& sizes) {
  Lock lock(mutex_);
  const std::string key = "guard for " + sizes_text(sizes);
  while (compiling_.contains(key)) compiled_.wait(lock);
  int generic = 0;
  for (const auto& v : variants_) {
    if (v->specialized) continue;
    ++generic;
    if (v->fits_no_call) continue;
    const auto guard = missed(*v->executable, sizes);
    // A requirement of the generic variant is the model's.
    if (!guard || (v == variants_.front() && guard->cls == GuardClass::Required))
      return std::shared_ptr<const Executable>();
  }
  if (generic >= kMaxGeneric)
    return Diagnostic(ErrorCode::UnsupportedFeature,
                      "the limit of " + std::to_string(kMaxGeneric) + " variants is reached");
  TESSERA_ASSIGN(auto variant,
                 make(lock, key, {.sizes = sizes, .of_call = true, .as_loops = as_loops_}, Place::WarmUp));
  return variant->executable;
}

Result<bool> VariantPool::compile_for(const GuardMiss& miss, std::span<const uint64_t> numbers) {
  const auto has = [&](const SessionVariant& v) {
    return std::find(numbers.begin(), numbers.end(), v.number) != numbers.end();
  };
  Lock lock(mutex_);
  if (const auto failed = failures_.find(miss.sizes); failed != failures_.end()) return failed->second;
  auto made = miss.refused.empty() ? compile_fitting(lock, miss, has) : compile_without_calls(lock, miss, has);
  if (made.ok() || made.error().code == ErrorCode::OutOfMemory || made.error().code == ErrorCode::Cancelled)
    return made;
  if (failures_.size() >= kMaxFailures) failures_.clear();
  failures_.emplace(miss.sizes, made.error());
  return made;
}

Result<bool> VariantPool::compile_fitting(Lock& lock, const GuardMiss& miss, const Has& has) {
  for (;;) {
    if (closed_->load()) return Diagnostic(ErrorCode::Cancelled, "the session was closed");
    int generic = 0;
    for (const auto& v : variants_) {
      generic += v->specialized ? 0 : 1;
      if (v->fits_no_call || missed(*v->executable, miss.sizes)) continue;
      if (has(*v)) return false;
      if (!v->specialized) return true; // another executor's, since the call began
    }
    if (generic >= kMaxGeneric)
      return Diagnostic(ErrorCode::UnsupportedFeature,
                        "the limit of " + std::to_string(kMaxGeneric) + " variants is reached");
    const std::string key = "guard " + miss.guard;
    if (compiling_.contains(key)) { // what another call compiles may fit this one
      compiled_.wait(lock);
      continue;
    }
    TESSERA_TRY(make(lock, key, {.sizes = miss.sizes, .of_call = true, .as_loops = as_loops_}, Place::Request));
    return true;
  }
}

// A variant in which the nodes of library calls that were refused are loops.
Result<bool> VariantPool::compile_without_calls(Lock& lock, const GuardMiss& miss, const Has& has) {
  std::set<std::string> nodes;
  for (const auto& v : variants_) {
    const auto refused = source_->nodes_of(*v, *miss.refused_in, miss.refused);
    nodes.insert(refused.begin(), refused.end());
  }
  if (nodes.empty()) return false;
  const std::string key = "calls";
  while (compiling_.contains(key)) compiled_.wait(lock);
  if (closed_->load()) return Diagnostic(ErrorCode::Cancelled, "the session was closed");
  for (const auto& v : variants_) // another executor's, or one that does not fit this call
    if (!v->specialized && std::includes(v->as_loops.begin(), v->as_loops.end(), nodes.begin(), nodes.end()))
      return !has(*v);
  as_loops_.insert(nodes.begin(), nodes.end());
  TESSERA_TRY(make(lock, key, {.of_call = true, .as_loops = as_loops_}, Place::Request));
  return true;
}

Conditions VariantPool::wanted(const Sizes& sizes, bool all_exact) const {
  if (!all_exact) return conditions_at(options_.specialize, sizes);
  std::map<std::string, Specialization> exact;
  for (const auto& [symbol, size] : sizes) exact.emplace(symbol, Specialization{});
  return conditions_at(exact, sizes);
}

Status VariantPool::specialize(const Sizes& sizes, RunStats& stats) {
  const Conditions want = wanted(sizes, options_.specialize.empty());
  if (want.of.empty() || options_.max_variants < 1) return {};
  Lock lock(mutex_);
  const std::string key = "variant " + want.label;
  while (compiling_.contains(key)) compiled_.wait(lock);
  if (failed_labels_.contains(want.label)) return {};
  int specialized = 0;
  for (const auto& v : variants_) {
    if (!v->specialized) continue;
    if (v->label == want.label) {
      specialized_[v->label].last_used = ++uses_;
      return {};
    }
    ++specialized;
  }
  const bool full = specialized >= options_.max_variants || totals_.variant_bytes >= options_.max_variant_bytes;
  if (!bounded(options_.policy) && full) return {};
  if (options_.on_miss == SessionOptions::OnMiss::Generic && specialized > 0) return {};
  // Sizes that the model refuses are an error, not a reason to compile.
  if (const auto g = missed(*generic_, sizes); g && g->cls == GuardClass::Required) return {};
  std::string why = "first call";
  for (const auto& v : variants_)
    if (const auto g = v->specialized ? missed(*v->executable, sizes) : std::nullopt)
      why = "variant " + v->label + " missed " + readable(g->condition) + " (" + g->reason + ")";
  const Stopwatch watch;
  auto variant =
      make(lock, key, {.sizes = sizes, .specialization = want, .of_call = true, .as_loops = as_loops_}, Place::Request);
  stats.recompile_ms = watch.ms();
  if (!variant.ok()) {
    if (variant.error().code == ErrorCode::OutOfMemory) return std::move(variant).failure();
    if (failed_labels_.size() >= kMaxFailures) failed_labels_.clear();
    failed_labels_.insert(want.label);
    TESSERA_LOGF(LogChannel::Recompiles, "variant " + want.label + " failed to compile after " +
                                             std::to_string(stats.recompile_ms) +
                                             " ms, the generic one runs: " + variant.error().str());
    return {};
  }
  stats.recompiles = 1;
  TESSERA_LOGF(LogChannel::Recompiles, "variant " + want.label + " took " + std::to_string(stats.recompile_ms) +
                                           " ms: " + why + " for " + sizes_text(sizes));
  return {};
}

bool VariantPool::compile_exact(const Sizes& sizes) {
  const Conditions want = wanted(sizes, true);
  if (from_file_ || want.of.empty() || options_.max_variants < 1) return false;
  Lock lock(mutex_);
  const std::string key = "variant " + want.label;
  if (compiling_.contains(key) || failed_labels_.contains(want.label) || missed(*generic_, sizes)) return false;
  for (const auto& v : variants_)
    if (v->specialized && v->label == want.label) return false;
  const Stopwatch watch;
  const auto variant = make(
      lock, key, {.sizes = sizes, .specialization = want, .of_call = true, .as_loops = as_loops_, .background = true},
      Place::Background);
  if (variant.ok()) {
    TESSERA_LOGF(LogChannel::Recompiles,
                 "variant " + want.label + " was compiled in the background in " + std::to_string(watch.ms()) + " ms");
    return true;
  }
  if (failed_labels_.size() >= kMaxFailures) failed_labels_.clear();
  failed_labels_.insert(want.label);
  TESSERA_LOGF(LogChannel::Recompiles,
               "variant " + want.label + " failed to compile in the background: " + variant.error().str());
  return false;
}

size_t VariantPool::find(const Executable& executable) const {
  const auto found =
      std::find_if(variants_.begin(), variants_.end(), [&](const auto& v) { return holds(*v, executable); });
  return static_cast<size_t>(found - variants_.begin());
}
std::shared_ptr<const SessionVariant> VariantPool::variant_with(const Executable& executable) const {
  std::lock_guard lock(mutex_);
  const size_t i = find(executable);
  return i == variants_.size() ? nullptr : variants_[i];
}
void VariantPool::used(const Executable& executable) {
  std::lock_guard lock(mutex_);
  if (const size_t i = find(executable); i < variants_.size() && variants_[i]->specialized)
    specialized_[variants_[i]->label].last_used = ++uses_;
}
void VariantPool::replace(const SessionVariant& before, std::shared_ptr<SessionVariant> better) {
  std::lock_guard lock(mutex_);
  const size_t i = find(*before.executable);
  if (i == variants_.size()) return; // it was evicted
  variants_[i] = std::move(better);
  generation_.fetch_add(1, std::memory_order_release);
}

std::set<std::string> VariantPool::symbols() const {
  std::set<std::string> symbols;
  for (const auto& b : generic_->inputs)
    for (const auto& d : generic_->buffers[static_cast<size_t>(b.buffer)].shape)
      if (d.is_symbol()) symbols.insert(d.symbol_name());
  return symbols;
}

Diagnostic VariantPool::no_dimension(const std::string& name) const {
  const auto all = symbols();
  std::string names;
  for (const auto& s : all) names += (names.empty() ? "'" : ", '") + s + "'";
  Diagnostic d(ErrorCode::Usage, "no input of the model has a symbolic dimension '" + name + "'");
  if (const auto close = similar(name, {all.begin(), all.end()}); !close.empty())
    d.note("did you mean '" + close + "'?");
  return std::move(d).note(all.empty() ? "its inputs have constant sizes" : "it has " + names);
}

Status VariantPool::check_options() const {
  const auto symbols = this->symbols();
  std::vector<std::pair<std::string, Specialization>> all(options_.specialize.begin(), options_.specialize.end());
  for (const auto& variant : options_.variants) {
    all.insert(all.end(), variant.begin(), variant.end());
    for (const auto& [symbol, how] : variant)
      if (how.kind == Specialization::Kind::Exact && how.size < 0)
        return Diagnostic(ErrorCode::Usage, "the size of '" + symbol + "' that a variant is for is missing");
  }
  for (const auto& [symbol, how] : all) {
    if (how.divisor < 1) return Diagnostic(ErrorCode::Usage, "the divisor of '" + symbol + "' must be positive");
    if (!symbols.contains(symbol)) return no_dimension(symbol);
  }
  return {};
}

} // namespace tessera
