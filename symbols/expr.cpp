// Interning, order, sums and products.
#include "symbols/expr.h"
#include "base/hash.h"
#include "symbols/node.h"
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <mutex>
#include <unordered_set>

namespace tessera {
namespace {

struct NodeHash {
  size_t operator()(const SymNode* n) const { return n->hash; }
};
struct NodeEqual {
  bool operator()(const SymNode* a, const SymNode* b) const {
    return a->op == b->op && a->opaque == b->opaque && a->value == b->value && a->id == b->id && a->args == b->args;
  }
};
constexpr size_t kShards = 16;
struct Shard {
  std::mutex mutex;
  std::unordered_set<const SymNode*, NodeHash, NodeEqual> nodes;
};
// The table lives as long as the process: expressions are also in static objects.
std::array<Shard, kShards>& shards() {
  static auto* const all = new std::array<Shard, kShards>;
  return *all;
}
Shard& shard_of(uint64_t hash) { return shards()[(hash >> 48) % kShards]; }
std::atomic<uint64_t> next_symbol_id{1};

// The node of that structure, with one owner more.
const SymNode* publish(SymNode probe) {
  Shard& shard = shard_of(probe.hash);
  std::lock_guard lock(shard.mutex);
  auto it = shard.nodes.find(&probe);
  if (it == shard.nodes.end()) return *shard.nodes.insert(new SymNode(std::move(probe))).first;
  if ((*it)->count.load(std::memory_order_relaxed) != SymOwners::kForever)
    (*it)->count.fetch_add(1, std::memory_order_relaxed);
  return *it;
}

const SymNode* make_const(int64_t value) {
  SymNode n;
  n.value = value;
  n.hash = hash_combine(0x51, static_cast<uint64_t>(value));
  return publish(std::move(n));
}
constexpr int64_t kSmallest = -64, kLargest = 1024;
const SymNode* constant_node(int64_t value) {
  static const auto* const small = [] {
    auto* all = new std::array<const SymNode*, kLargest - kSmallest + 1>;
    for (int64_t v = kSmallest; v <= kLargest; ++v) {
      const SymNode* node = make_const(v);
      node->count.store(SymOwners::kForever, std::memory_order_relaxed);
      (*all)[static_cast<size_t>(v - kSmallest)] = node;
    }
    return all;
  }();
  if (value >= kSmallest && value <= kLargest) return (*small)[static_cast<size_t>(value - kSmallest)];
  return make_const(value);
}

// Monomials in the order of a sum: higher degree first, then by factors. It is compatible with multiplication, which
// exact division relies on.
int compare_monomials(const SymExpr& a, const SymExpr& b) {
  if (a == b) return 0;
  auto fa = sym::factors(a), fb = sym::factors(b);
  if (fa.size() != fb.size()) return fa.size() > fb.size() ? -1 : 1;
  for (size_t i = 0; i < fa.size(); ++i)
    if (int c = SymExpr::compare(fa[i], fb[i])) return c;
  return 0;
}
} // namespace

namespace sym {

size_t interned() {
  size_t count = 0;
  for (Shard& shard : shards()) {
    std::lock_guard lock(shard.mutex);
    count += shard.nodes.size();
  }
  return count;
}

SymExpr intern(SymOp op, std::vector<SymExpr> args, bool opaque) {
  SymNode n;
  n.op = op;
  n.opaque = opaque;
  n.hash = hash_combine(static_cast<uint64_t>(op) * 2 + 0x1000 + opaque, args.size());
  uint64_t size = 1;
  for (const SymExpr& a : args) {
    n.hash = hash_combine(n.hash, a.hash());
    n.depth = std::max(n.depth, a.node()->depth + 1);
    size += a.node()->size;
  }
  if (n.depth > kMaxDepth || size > kMaxSize) return SymExpr::symbol("too_complex");
  n.size = static_cast<uint32_t>(size);
  if (op == SymOp::Mul && !opaque) n.value = args[0].is_const() ? args[0].const_value() : 1;
  n.args = std::move(args);
  return SymExpr::adopt(publish(std::move(n)));
}

std::span<const SymExpr> factors(const SymExpr& mono) {
  const SymNode* n = mono.node();
  if (n->op == SymOp::Const) return {};
  if (n->op == SymOp::Mul && !n->opaque) return n->args;
  return {&mono, 1};
}

SymExpr monomial(std::vector<SymExpr> sorted_factors) {
  if (sorted_factors.empty()) return 1;
  if (sorted_factors.size() == 1) return sorted_factors[0];
  return intern(SymOp::Mul, std::move(sorted_factors));
}

static Term term_of(const SymExpr& e) {
  const SymNode* n = e.node();
  if (n->op == SymOp::Const) return {n->value, 1};
  if (n->op != SymOp::Mul || n->opaque || !n->args[0].is_const()) return {1, e};
  return {n->value, monomial({n->args.begin() + 1, n->args.end()})};
}

std::vector<Term> terms(const SymExpr& e) {
  const SymNode* n = e.node();
  std::vector<Term> out;
  if (n->op == SymOp::Const && n->value == 0) return out;
  if (n->op != SymOp::Add || n->opaque) return {term_of(e)};
  out.reserve(n->args.size());
  for (const SymExpr& a : n->args) out.push_back(term_of(a));
  return out;
}

SymExpr term(int64_t coeff, const SymExpr& mono) {
  if (coeff == 0) return 0;
  if (coeff == 1) return mono;
  if (mono.is_const()) return coeff;
  std::vector<SymExpr> args{SymExpr(coeff)};
  auto f = factors(mono);
  args.insert(args.end(), f.begin(), f.end());
  return intern(SymOp::Mul, std::move(args));
}

std::optional<SymExpr> sum(std::vector<Term> all) {
  std::stable_sort(all.begin(), all.end(),
                   [](const Term& a, const Term& b) { return compare_monomials(a.mono, b.mono) < 0; });
  std::vector<SymExpr> args;
  for (size_t i = 0; i < all.size();) {
    __int128 coeff = 0;
    size_t k = i;
    for (; k < all.size() && all[k].mono == all[i].mono; ++k) coeff += all[k].coeff;
    if (coeff > INT64_MAX || coeff < INT64_MIN) return std::nullopt;
    if (coeff != 0) args.push_back(term(static_cast<int64_t>(coeff), all[i].mono));
    i = k;
  }
  if (args.empty()) return SymExpr(0);
  if (args.size() == 1) return args[0];
  return intern(SymOp::Add, std::move(args));
}

std::optional<SymExpr> divide_monomial(const SymExpr& mono, const SymExpr& by) {
  if (mono == by) return SymExpr(1);
  auto f = factors(mono), d = factors(by);
  if (d.empty()) return mono;
  std::vector<SymExpr> rest;
  size_t k = 0;
  for (const SymExpr& x : f) {
    if (k < d.size() && d[k] == x)
      ++k;
    else
      rest.push_back(x);
  }
  if (k != d.size()) return std::nullopt;
  return monomial(std::move(rest));
}

SymExpr common_monomial(const SymExpr& a, const SymExpr& b) {
  auto fa = factors(a), fb = factors(b);
  std::vector<SymExpr> both;
  size_t i = 0, k = 0;
  while (i < fa.size() && k < fb.size()) {
    int c = SymExpr::compare(fa[i], fb[k]);
    if (c == 0)
      both.push_back(fa[i]), ++i, ++k;
    else if (c < 0)
      ++i;
    else
      ++k;
  }
  return monomial(std::move(both));
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;
  int64_t m = a % b;
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}
int64_t saturate(__int128 v) { return v > kHuge ? kHuge : v < -kHuge ? -kHuge : static_cast<int64_t>(v); }

std::optional<int64_t> scale(int64_t a, double factor) {
  const double v = std::floor(static_cast<double>(a) * factor);
  if (!(std::fabs(v) <= static_cast<double>(kHuge))) return std::nullopt;
  return static_cast<int64_t>(v);
}

int64_t constant_part(const SymExpr& e) {
  const SymNode* n = e.node();
  if (n->op == SymOp::Const) return n->value;
  if (n->op == SymOp::Add && !n->opaque && n->args.back().is_const()) return n->args.back().const_value();
  return 0;
}

} // namespace sym

SymExpr::SymExpr() : owners_(constant_node(0)) {}
SymExpr::SymExpr(int64_t value) : owners_(constant_node(value)) {}
SymExpr::SymExpr(const SymNode* node) : owners_(node) { retain(); }

SymExpr SymExpr::adopt(const SymNode* node) {
  SymExpr e;
  e.owners_ = node;
  return e;
}

// Nobody else has a node whose count is 1, so that one thread alone takes it to 0: under the lock under which equal
// expressions find it.
void SymExpr::release_one(const SymOwners* owners) {
  int32_t count = owners->count.load(std::memory_order_relaxed);
  while (count > 1)
    if (owners->count.compare_exchange_weak(count, count - 1, std::memory_order_acq_rel)) return;
  const auto* node = static_cast<const SymNode*>(owners);
  {
    Shard& shard = shard_of(node->hash);
    std::lock_guard lock(shard.mutex);
    if (node->count.fetch_sub(1, std::memory_order_acq_rel) != 1) return; // an equal expression found it
    shard.nodes.erase(node);
  }
  delete node; // and what it alone owns
}

SymExpr SymExpr::symbol(std::string_view name) {
  SymNode n;
  n.op = SymOp::Symbol;
  n.id = next_symbol_id.fetch_add(1, std::memory_order_relaxed);
  n.name = name;
  n.hash = hash_combine(hash128(name).lo, n.id);
  return adopt(publish(std::move(n)));
}

SymOp SymExpr::op() const { return node()->op; }
uint64_t SymExpr::hash() const { return node()->hash; }
std::span<const SymExpr> SymExpr::args() const { return node()->args; }
int64_t SymExpr::const_value() const {
  TESSERA_CHECK(is_const(), "const_value of " + str());
  return node()->value;
}
std::optional<int64_t> SymExpr::as_const() const {
  return is_const() ? std::optional<int64_t>(node()->value) : std::nullopt;
}
const std::string& SymExpr::symbol_name() const {
  TESSERA_CHECK(is_symbol(), "symbol_name of " + str());
  return node()->name;
}
uint64_t SymExpr::symbol_id() const {
  TESSERA_CHECK(is_symbol(), "symbol_id of " + str());
  return node()->id;
}

double SymExpr::factor() const {
  TESSERA_CHECK(op() == SymOp::Scaled, "factor of " + str());
  return std::bit_cast<double>(node()->args[1].const_value());
}

int SymExpr::compare(const SymExpr& a, const SymExpr& b) {
  if (a == b) return 0;
  const SymNode *x = a.node(), *y = b.node();
  if (x->op != y->op) {
    // Symbols stand before everything else, constants behind.
    auto rank = [](SymOp op) { return op == SymOp::Symbol ? -1 : op == SymOp::Const ? 100 : static_cast<int>(op); };
    return rank(x->op) < rank(y->op) ? -1 : 1;
  }
  if (x->op == SymOp::Symbol) {
    if (int c = x->name.compare(y->name)) return c < 0 ? -1 : 1;
    return x->id < y->id ? -1 : 1;
  }
  if (x->op == SymOp::Const) return x->value < y->value ? -1 : 1;
  if (x->opaque != y->opaque) return x->opaque < y->opaque ? -1 : 1;
  if (x->args.size() != y->args.size()) return x->args.size() < y->args.size() ? -1 : 1;
  for (size_t i = 0; i < x->args.size(); ++i)
    if (int c = compare(x->args[i], y->args[i])) return c;
  return 0;
}

SymExpr operator+(const SymExpr& a, const SymExpr& b) {
  if (a.is_const(0)) return b;
  if (b.is_const(0)) return a;
  std::vector<sym::Term> all = sym::terms(a), more = sym::terms(b);
  all.insert(all.end(), more.begin(), more.end());
  if (auto r = sym::sum(std::move(all))) return *r;
  return sym::intern(SymOp::Add, a < b ? std::vector{a, b} : std::vector{b, a}, true);
}

SymExpr operator*(const SymExpr& a, const SymExpr& b) {
  if (a.is_const(0) || b.is_const(0)) return 0;
  if (a.is_const(1)) return b;
  if (b.is_const(1)) return a;
  std::vector<sym::Term> ta = sym::terms(a), tb = sym::terms(b), all;
  // A product of sums has as many terms as their product; a few of them in a row would fill the memory.
  constexpr size_t kMaxTerms = 512;
  bool fits = ta.size() * tb.size() <= kMaxTerms;
  for (size_t i = 0; fits && i < ta.size(); ++i) {
    for (size_t k = 0; fits && k < tb.size(); ++k) {
      int64_t coeff;
      if (__builtin_mul_overflow(ta[i].coeff, tb[k].coeff, &coeff)) fits = false;
      if (!fits) break;
      auto fa = sym::factors(ta[i].mono), fb = sym::factors(tb[k].mono);
      if (fa.empty() || fb.empty()) {
        all.push_back({coeff, fa.empty() ? tb[k].mono : ta[i].mono});
        continue;
      }
      std::vector<SymExpr> f(fa.size() + fb.size());
      std::merge(fa.begin(), fa.end(), fb.begin(), fb.end(), f.begin());
      all.push_back({coeff, sym::monomial(std::move(f))});
    }
  }
  if (fits)
    if (auto r = sym::sum(std::move(all))) return *r;
  return sym::intern(SymOp::Mul, a < b ? std::vector{a, b} : std::vector{b, a}, true);
}

SymExpr operator-(const SymExpr& a) { return SymExpr(-1) * a; }
SymExpr operator-(const SymExpr& a, const SymExpr& b) { return a + -b; }

SymExpr product(std::span<const SymExpr> factors) {
  SymExpr r = 1;
  for (const SymExpr& f : factors) r = r * f;
  return r;
}

} // namespace tessera
