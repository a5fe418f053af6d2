// The gamma function's logarithm and its derivatives: lgamma, digamma, polygamma, mvlgamma.
//
// Above 8 each is Stirling's series, whose terms fall to the rounding of f64 there. Smaller arguments are moved up by
// the recurrence gamma(x + 1) = x gamma(x), and negative ones are reflected. Coefficients are computed, not tabulated:
// those of Stirling's series are Bernoulli numbers, those around 2 are values of Riemann's zeta function.
#include "frontend/fx/aten/pointwise.h"
#include <cmath>

namespace tessera::fx {
namespace {

constexpr int kTerms = 8; // of Stirling's series
// B_2, B_4 ... B_16
constexpr double kBernoulli[kTerms] = {1.0 / 6,  -1.0 / 30,       1.0 / 42, -1.0 / 30,
                                       5.0 / 66, -691.0 / 2730.0, 7.0 / 6,  -3617.0 / 510.0};
constexpr int kShift = 8; // Stirling's series is used from here on

// a[0] + a[1] x + a[2] x^2 ...
ValueId polynomial(ops::B& b, ValueId x, const std::vector<double>& a) {
  ValueId y = b.like(x, a.back());
  for (size_t k = a.size() - 1; k-- > 0;) y = add(b, mul(b, y, x), a[k]);
  return y;
}

// zeta(s) - 1 for s >= 2: its first terms, and the rest by Euler and Maclaurin's formula.
double zeta_minus_one(double s) {
  constexpr double kFirst = 20;
  double sum = std::pow(kFirst, 1 - s) / (s - 1) + std::pow(kFirst, -s) / 2;
  double term = s * std::pow(kFirst, -s - 1);
  for (int j = 0; j < 3; ++j) {
    sum += kBernoulli[j] * term / std::tgamma(2 * j + 3);
    term *= (s + 2 * j + 1) * (s + 2 * j + 2) / (kFirst * kFirst);
  }
  for (double n = kFirst - 1; n >= 2; --n) sum += std::pow(n, -s);
  return sum;
}

// Sine and cosine of pi x, but for their sign: exact where x is an integer or a half.
struct Turn {
  ValueId sine, cosine;
};
Turn turn(ops::B& b, ValueId x) {
  ValueId r = sub(b, x, b.op1("round", x)), complement = sub(b, b.like(r, 0.5), abs(b, r));
  return {b.op1("sin", mul(b, r, M_PI)), b.op1("sin", mul(b, complement, M_PI))};
}

ValueId is_infinite(ops::B& b, ValueId x) { return b.op1("isinf", x); }

// lgamma(2 + t), |t| <= 1/2: t (1 - C) + sum (zeta(k) - 1) (-t)^k / k, with Euler's constant C.
ValueId around_two(ops::B& b, ValueId t) {
  constexpr double kEuler = 0.57721566490153286061;
  const int terms = b.dtype(t) == DType::F64 ? 27 : 13; // each is a quarter of the one before
  std::vector<double> a = {0, 1 - kEuler};
  for (int k = 2; k < terms; ++k) a.push_back((k % 2 == 0 ? 1 : -1) * zeta_minus_one(k) / k);
  return polynomial(b, t, a);
}

ValueId lgamma(ops::B& b, ValueId x) {
  if (!b.ok()) return {};
  ValueId reflected = lt(b, x, 0.5), y = select(b, reflected, sub(b, b.like(x, 1), x), x);
  // From 3/2 to 8: y is t + 2 + a whole number, gamma(y) that of t + 2 times the numbers from there up to y - 1.
  ValueId product = b.like(x, 1), t = sub(b, y, 2.0);
  for (int k = 1; k < kShift - 1; ++k) {
    ValueId factor = sub(b, y, static_cast<double>(k)), above = ge(b, factor, 1.5);
    product = select(b, above, mul(b, product, factor), product);
    t = select(b, above, sub(b, factor, 2.0), t);
  }
  ValueId low = lt(b, y, 1.5); // gamma(y) = gamma(y + 1) / y
  t = select(b, low, sub(b, y, 1.0), t);
  ValueId near = sub(b, around_two(b, t), b.op1("log1p", t));
  near = select(b, low, near, add(b, around_two(b, t), log(b, product)));
  // log(gamma(y)) = (y - 1/2) log y - y + log(2 pi) / 2 + sum B_2k / (2k (2k - 1) y^(2k - 1))
  ValueId inverse = b.op1("reciprocal", y);
  std::vector<double> a;
  for (int k = 1; k <= kTerms; ++k) a.push_back(kBernoulli[k - 1] / (2 * k * (2 * k - 1)));
  ValueId series = mul(b, polynomial(b, mul(b, inverse, inverse), a), inverse);
  ValueId far = add(b, sub(b, mul(b, sub(b, y, 0.5), log(b, y)), y), add(b, series, 0.5 * std::log(2 * M_PI)));
  ValueId z = select(b, lt(b, y, static_cast<double>(kShift)), near, far);
  ValueId sine = abs(b, turn(b, x).sine);
  z = select(b, reflected, sub(b, log(b, div(b, b.like(sine, M_PI), sine)), z), z);
  ValueId pole = logical_and(b, reflected, eq(b, sine, 0.0));
  return select(b, logical_or(b, pole, is_infinite(b, x)), INFINITY, z);
}

ValueId digamma(ops::B& b, ValueId x) {
  if (!b.ok()) return {};
  ValueId reflected = lt(b, x, 0.5), y = select(b, reflected, sub(b, b.like(x, 1), x), x);
  // The sum of 1 / (y + k) is the derivative of the product of y + k over the product.
  ValueId product = y, derivative = b.like(y, 1);
  for (int k = 1; k < kShift; ++k) {
    ValueId factor = add(b, y, static_cast<double>(k));
    derivative = add(b, mul(b, derivative, factor), product);
    product = mul(b, product, factor);
  }
  ValueId small = lt(b, y, static_cast<double>(kShift));
  ValueId moved = select(b, small, div(b, derivative, product), 0.0);
  ValueId z = select(b, small, add(b, y, static_cast<double>(kShift)), y), inverse = b.op1("reciprocal", z);
  // log z - 1 / (2 z) - sum B_2k / (2k z^2k)
  std::vector<double> a = {0};
  for (int k = 1; k <= kTerms; ++k) a.push_back(kBernoulli[k - 1] / (2 * k));
  ValueId series = add(b, mul(b, inverse, 0.5), polynomial(b, mul(b, inverse, inverse), a));
  z = sub(b, sub(b, log(b, z), series), moved);
  auto [sine, cosine] = turn(b, x);
  ValueId cotangent = div(b, cosine, sine);
  ValueId pole = select(b, eq(b, x, 0.0), with_sign(b, b.like(x, INFINITY), logical_not(b, is_negative(b, x))), NAN);
  ValueId negative = select(b, eq(b, sine, 0.0), pole, sub(b, z, mul(b, cotangent, M_PI)));
  return select(b, reflected, negative, z);
}

// The n-th derivative of the cotangent of pi x, n > 0, as a polynomial of the cotangent, over pi^n: that of its k-th
// power is -k pi (c^(k - 1) + c^(k + 1)).
std::vector<double> cotangent_derivative(int64_t n) {
  std::vector<double> a = {0, 1};
  for (int64_t i = 0; i < n; ++i) {
    std::vector<double> next(a.size() + 1, 0.0);
    for (size_t k = 1; k < a.size(); ++k) {
      next[k - 1] -= static_cast<double>(k) * a[k];
      next[k + 1] -= static_cast<double>(k) * a[k];
    }
    a = std::move(next);
  }
  return a;
}

ValueId inverse_power(ops::B& b, ValueId x, int64_t n) {
  ValueId inverse = b.op1("reciprocal", x), y = inverse;
  for (int64_t k = 1; k < n; ++k) y = mul(b, y, inverse);
  return y;
}

// The n-th derivative of digamma, n > 0: (-1)^(n + 1) n! times the sum of 1 / (x + k)^(n + 1) over all k >= 0.
ValueId polygamma(ops::B& b, ValueId x, int64_t n) {
  if (!b.ok()) return {};
  const auto order = static_cast<double>(n);
  ValueId reflected = le(b, x, 0.0), y = select(b, reflected, sub(b, b.like(x, 1), x), x);
  const int shift = kShift + static_cast<int>(n); // the series' terms grow with n
  ValueId small = lt(b, y, static_cast<double>(shift)), first = inverse_power(b, y, n + 1);
  for (int k = 1; k < shift; ++k) first = add(b, first, inverse_power(b, add(b, y, static_cast<double>(k)), n + 1));
  ValueId z = select(b, small, add(b, y, static_cast<double>(shift)), y);
  ValueId inverse = b.op1("reciprocal", z), power = inverse_power(b, z, n);
  // z^-n / n + z^-(n + 1) / 2 + sum B_2k / (2k)! (n + 1) ... (n + 2k - 1) z^-(n + 2k)
  std::vector<double> a = {1 / order};
  double factor = 1;
  for (int k = 1; k <= kTerms; ++k) {
    if (k > 1) factor *= (order + 2 * k - 2) * (order + 2 * k - 1);
    if (k == 1) factor *= order + 1;
    a.push_back(kBernoulli[k - 1] * factor / std::tgamma(2 * k + 1));
  }
  ValueId series = add(b, polynomial(b, mul(b, inverse, inverse), a), mul(b, inverse, 0.5));
  ValueId rest = mul(b, power, series), sum = select(b, small, add(b, first, rest), rest);
  const double sign = n % 2 == 0 ? -1 : 1;
  sum = mul(b, sum, sign * std::tgamma(order + 1));
  auto [sine, cosine] = turn(b, x);
  ValueId cotangent = div(b, cosine, sine);
  ValueId turned = mul(b, polynomial(b, cotangent, cotangent_derivative(n)), std::pow(M_PI, order + 1));
  ValueId negative = sub(b, mul(b, sum, -sign), turned);
  negative = select(b, eq(b, sine, 0.0), sign * INFINITY, negative);
  return select(b, reflected, negative, sum);
}

void translate_polygamma(Call& c) {
  const int64_t n = c.in.integer("n");
  constexpr int64_t kMax = 20; // factorials beyond leave f32
  if (c.b.ok() && (n < 0 || n > kMax)) return c.unsupported("polygamma of order " + std::to_string(n));
  ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
  if (c.b.ok()) give(c, n == 0 ? digamma(c.b, x) : polygamma(c.b, x, n));
}

// The logarithm of the gamma function of p dimensions.
void translate_mvlgamma(Call& c) {
  const int64_t p = c.in.integer("p");
  constexpr int64_t kMax = 64; // each is written out
  if (c.b.ok() && (p < 1 || p > kMax)) return c.unsupported("mvlgamma of " + std::to_string(p) + " dimensions");
  ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
  if (!c.b.ok()) return;
  ValueId y = lgamma(c.b, x);
  for (int64_t k = 1; k < p; ++k) y = add(c.b, y, lgamma(c.b, sub(c.b, x, 0.5 * static_cast<double>(k))));
  give(c, add(c.b, y, static_cast<double>(p * (p - 1)) / 4 * std::log(M_PI)));
}

} // namespace

void register_gamma(AtenTable& t) {
  t.add({"lgamma.default", "special_gammaln.default"}, by_formula(lgamma));
  t.add({"digamma.default", "special_digamma.default", "special_psi.default"}, by_formula(digamma));
  t.add({"polygamma.default", "special_polygamma.default"}, translate_polygamma);
  t.add({"mvlgamma.default", "special_multigammaln.default"}, translate_mvlgamma);
}

} // namespace tessera::fx
