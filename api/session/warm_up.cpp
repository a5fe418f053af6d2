#include "api/session/warm_up.h"
#include "base/log.h"
#include "runtime/guards.h"
#include "symbols/input_rank.h"
#include <algorithm>

namespace tessera {
namespace {

Sizes sizes_at(const SizeRanges& ranges, int64_t SizeRange::*which) {
  Sizes out;
  for (const auto& [symbol, range] : ranges) out.emplace(symbol, range.*which);
  return out;
}

Status check(const VariantPool& pool, const SizeRanges& ranges) {
  const auto symbols = pool.symbols();
  for (const auto& [symbol, range] : ranges) {
    if (!symbols.contains(symbol)) return pool.no_dimension(symbol);
    if (range.min < 1 || range.min > range.opt || range.opt > range.max || range.max > kSymMax)
      return Diagnostic(ErrorCode::Usage, "the range of '" + symbol + "' is " + std::to_string(range.min) + ".." +
                                              std::to_string(range.opt) + ".." + std::to_string(range.max))
          .note("a range is MIN..OPT..MAX, each from 1 and none below the one before it: batch=1..8..32");
  }
  for (const std::string& symbol : symbols)
    if (!ranges.contains(symbol))
      return Diagnostic(ErrorCode::Usage, "the range of '" + symbol + "' is missing")
          .note("give one for each symbolic dimension: " + symbol + "=MIN..OPT..MAX, or " + symbol + "=SIZE");
  return {};
}

// Inputs of these sizes: those given that have them, zeros for the rest.
Result<std::map<std::string, Tensor>> inputs_at(const Executable& generic, const Sizes& sizes,
                                                const std::map<std::string, Tensor>& given) {
  std::map<std::string, Tensor> out;
  for (const Binding& input : std::span(generic.inputs).first(generic.call_inputs())) {
    const auto& buffer = generic.buffers[static_cast<size_t>(input.buffer)];
    if (generic.env->find(rank_symbol(input.name))) {
      const auto it = given.find(input.name);
      if (it == given.end() || !it->second.defined())
        return Diagnostic(ErrorCode::MissingValues,
                          "input '" + input.name + "' has no shape, and ranges of sizes do not say its rank")
            .note("give a value of it");
      out.emplace(input.name, it->second);
      continue;
    }
    Dims dims;
    for (const SymExpr& dim : buffer.shape) {
      std::unordered_map<uint64_t, int64_t> values;
      for (const SymExpr& symbol : dim.symbols())
        if (const auto at = sizes.find(symbol.symbol_name()); at != sizes.end())
          values.emplace(symbol.symbol_id(), at->second);
      TESSERA_ASSIGN(dims.emplace_back(), dim.eval(values));
    }
    if (const auto it = given.find(input.name);
        it != given.end() && it->second.defined() && it->second.dims() == dims) {
      out.emplace(input.name, it->second);
    } else if (buffer.dtype == DType::List) {
      return Diagnostic(ErrorCode::UnsupportedType,
                        "input '" + input.name + "' is a list, for which ranges of sizes make no value");
    } else if (buffer.dtype == DType::String) {
      TESSERA_ASSIGN(const int64_t count, element_count(dims));
      out.emplace(input.name, Tensor::strings(dims, std::vector<std::string>(static_cast<size_t>(count))));
    } else {
      TESSERA_ASSIGN(Tensor zeros, Tensor::create(buffer.dtype, dims, true));
      out.emplace(input.name, std::move(zeros));
    }
  }
  return out;
}

// Compiles what the ranges need.
class Cover {
public:
  Cover(VariantPool& pool, const SizeRanges& ranges) : pool_(pool), ranges_(ranges) {}

  Status run() {
    for (auto which : {&SizeRange::opt, &SizeRange::max, &SizeRange::min}) add(sizes_at(ranges_, which));
    // Variants are added meanwhile, and have assumptions of their own.
    for (size_t v = 0; v < pool_.variants().size(); ++v) {
      const auto variant = pool_.variants()[v];
      if (!variant->specialized && !variant->fits_no_call) violate(*variant);
    }
    return {};
  }

private:
  void violate(const SessionVariant& variant) {
    const auto made_for = made_for_.find(variant.executable.get());
    const Sizes base = made_for == made_for_.end() ? sizes_at(ranges_, &SizeRange::opt) : made_for->second;
    const ShapeEnv env = *variant.executable->env; // its own: what it deduces is kept in it
    std::vector<Guard> guards = env.guards();
    for (const auto& [name, range] : ranges_)
      if (const auto symbol = env.find(name))
        for (Guard& fact : facts_as_guards(env, *symbol)) guards.push_back(std::move(fact));
    for (const Guard& guard : guards) {
      if (guard.cls != GuardClass::Assumed) continue;
      std::vector<std::string> names;
      for (const SymExpr& symbol : guard.condition.symbols())
        if (ranges_.contains(symbol.symbol_name())) names.push_back(symbol.symbol_name());
      refused_ = 0;
      vary(names, 0, base);
    }
  }

  // All combinations of sizes of these dimensions that an assumption may go wrong at.
  void vary(const std::vector<std::string>& names, size_t at, const Sizes& sizes) {
    constexpr int kMaxRefused = 2;       // that the model refuses, for one guard: each costs an import
    constexpr size_t kMaxDimensions = 3; // of a guard that vary together
    if (refused_ >= kMaxRefused) return;
    if (at == std::min(names.size(), kMaxDimensions)) return add(sizes);
    const SizeRange& range = ranges_.at(names[at]);
    std::vector<int64_t> tried;
    for (const int64_t size : {int64_t{1}, range.opt, range.max, range.min, range.max - 1, range.min + 1}) {
      if (size < range.min || size > range.max || std::find(tried.begin(), tried.end(), size) != tried.end()) continue;
      tried.push_back(size);
      Sizes next = sizes;
      next[names[at]] = size;
      vary(names, at + 1, next);
    }
  }

  void add(const Sizes& sizes) {
    if (!done_.insert(sizes).second) return;
    auto made = pool_.cover(sizes);
    if (!made.ok()) {
      ++refused_;
      TESSERA_LOGF(LogChannel::Recompiles, "no variant for " + sizes_text(sizes) + ": " + made.error().str());
    } else if (*made) {
      made_for_.emplace(made->get(), sizes);
    }
  }

  VariantPool& pool_;
  const SizeRanges& ranges_;
  std::set<Sizes> done_;
  std::map<const Executable*, Sizes> made_for_;
  int refused_ = 0;
};

Diagnostic at_sizes(Diagnostic error, const char* which, const Sizes& sizes) {
  error.note("at the " + std::string(which) + " sizes of the ranges: " + sizes_text(sizes));
  if (error.code == ErrorCode::OutOfMemory) error.note("raise the memory limit, or lower the ranges");
  if (error.code == ErrorCode::BadInput) error.note("where inputs of zeros are not valid, give values");
  return error;
}

} // namespace

Status warm_up_ranges(VariantPool& pool, const SizeRanges& ranges, const std::map<std::string, Tensor>& inputs,
                      Executor* executor) {
  TESSERA_TRY(check(pool, ranges));
  TESSERA_TRY(Cover(pool, ranges).run());
  if (pool.options().policy == VariantPolicy::Adaptive) (void)pool.compile_exact(sizes_at(ranges, &SizeRange::opt));
  if (executor == nullptr) return {};
  // The typical sizes last: what a bounded cache gives up is that of others.
  const std::pair<const char*, int64_t SizeRange::*> points[] = {
      {"largest", &SizeRange::max}, {"smallest", &SizeRange::min}, {"typical", &SizeRange::opt}};
  for (const auto& [name, which] : points) {
    const Sizes sizes = sizes_at(ranges, which);
    auto given = inputs_at(*pool.generic(), sizes, inputs);
    if (!given.ok()) return at_sizes(std::move(given).take_error(), name, sizes);
    if (which == &SizeRange::opt || !pool.generic()->states.empty()) { // a run would change states
      if (Status done = executor->warm_up(*given); !done.ok())
        return at_sizes(std::move(done).take_error(), name, sizes);
    } else if (auto ran = executor->run(*given); !ran.ok()) {
      return at_sizes(std::move(ran).take_error(), name, sizes);
    }
  }
  return {};
}

} // namespace tessera
