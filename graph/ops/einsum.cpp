// Einsum, pair by pair from the left: labels that nobody needs any more are summed away, labels of both operands become
// batches of a matrix product, the rest its rows and columns.
//
//   "bij,bjk->bik"    b is a batch, j is contracted:  matmul
//   "i,j->ij"         nothing is contracted:          a product of broadcast operands
//   "ii->i"           a label twice in one operand:   its diagonal
#include "graph/ops/parts.h"
#include <map>
#include <set>

namespace tessera {

namespace {
using namespace ops;

// Labels of one term: letters, and for the dimensions an ellipsis stands for '\x01', '\x02' ... counted from the right,
// so that they align as broadcasting does.
using Labels = std::string;
bool is_ellipsis(char l) { return l < ' '; }
constexpr int kMaxEllipsis = 24;

struct Term {
  ValueId value;
  Labels labels;
};

struct Equation {
  std::vector<std::string> inputs;
  std::optional<std::string> output;
};

Result<Equation> parse(std::string_view text) {
  std::string s;
  for (char ch : text)
    if (ch != ' ') s.push_back(ch);
  auto bad = [&](const std::string& why) {
    return Diagnostic(ErrorCode::BadAttribute, "equation '" + std::string(text) + "': " + why);
  };
  for (size_t i = 0; i < s.size(); ++i) { // an ellipsis becomes one character
    if (s[i] != '.') continue;
    if (s.compare(i, 3, "...") != 0) return bad("a dot that is no part of '...'");
    s.replace(i, 3, "*");
  }
  Equation e;
  size_t arrow = s.find("->");
  if (arrow != std::string::npos) e.output = s.substr(arrow + 2);
  std::string left = s.substr(0, arrow);
  size_t start = 0;
  while (true) {
    size_t comma = left.find(',', start);
    e.inputs.push_back(left.substr(start, comma == std::string::npos ? comma : comma - start));
    if (comma == std::string::npos) break;
    start = comma + 1;
  }
  auto check = [&](const std::string& term) {
    int stars = 0;
    for (char ch : term) {
      if (ch == '*')
        ++stars;
      else if (!std::isalpha(static_cast<unsigned char>(ch)))
        return false;
    }
    return stars <= 1;
  };
  for (const std::string& term : e.inputs)
    if (!check(term)) return bad("a term is letters and at most one ellipsis");
  if (e.output && !check(*e.output)) return bad("a term is letters and at most one ellipsis");
  return e;
}

Labels ellipsis_labels(int count) {
  Labels l;
  for (int i = count; i > 0; --i) l.push_back(static_cast<char>(i));
  return l;
}

Labels replace_star(const std::string& term, const Labels& by) {
  size_t star = term.find('*');
  return star == std::string::npos ? term : term.substr(0, star) + by + term.substr(star + 1);
}

class Contraction {
public:
  explicit Contraction(B& b) : b_(b) {}

  // Reduces a term in which a label stands twice to its diagonal, where both indices are equal.
  void diagonals(Term& t) {
    for (size_t i = 0; i < t.labels.size() && b_.ok(); ++i) {
      size_t j = t.labels.find(t.labels[i], i + 1);
      if (j == std::string::npos) continue;
      SymShape shape = b_.shape(t.value);
      b_.check(b_.env().require_equal(shape[i], shape[j], "dimensions of one label", b_.node().location));
      SymShape di(shape.size(), SymExpr(1)), dj = di;
      di[i] = shape[i];
      dj[j] = shape[j];
      ValueId same = eq(b_, iota(b_, di, static_cast<int64_t>(i)), iota(b_, dj, static_cast<int64_t>(j)));
      t.value = ops::sum(b_, select(b_, same, t.value, 0.0), {static_cast<int64_t>(j)}, false);
      t.labels.erase(j, 1);
      --i; // the label may stand a third time
    }
  }
  void sum_away(Term& t, const std::set<char>& needed) {
    Ints axes;
    Labels kept;
    for (size_t i = 0; i < t.labels.size(); ++i)
      if (needed.count(t.labels[i]))
        kept.push_back(t.labels[i]);
      else
        axes.push_back(static_cast<int64_t>(i));
    if (!axes.empty()) t.value = ops::sum(b_, t.value, axes, false);
    t.labels = kept;
  }
  // t with exactly these labels in this order; labels it lacks have size 1.
  ValueId arrange(const Term& t, const Labels& order) {
    if (!b_.ok()) return {};
    Ints perm;
    SymShape old = b_.shape(t.value), dims;
    for (char l : order) {
      size_t at = t.labels.find(l);
      if (at != std::string::npos) perm.push_back(static_cast<int64_t>(at));
      dims.push_back(at == std::string::npos ? SymExpr(1) : old[at]);
    }
    return reshape(b_, transpose(b_, t.value, perm), dims);
  }
  Term pair(Term x, Term y, const std::set<char>& later) {
    std::set<char> in_x(x.labels.begin(), x.labels.end()), in_y(y.labels.begin(), y.labels.end());
    std::set<char> need_x = later, need_y = later;
    need_x.insert(in_y.begin(), in_y.end());
    need_y.insert(in_x.begin(), in_x.end());
    sum_away(x, need_x);
    sum_away(y, need_y);
    Labels batch, rows, columns, contracted;
    for (char l : x.labels) {
      bool both = y.labels.find(l) != std::string::npos;
      if (!both)
        (is_ellipsis(l) ? batch : rows).push_back(l);
      else
        (later.count(l) ? batch : contracted).push_back(l);
    }
    for (char l : y.labels)
      if (x.labels.find(l) == std::string::npos) (is_ellipsis(l) ? batch : columns).push_back(l);
    if (contracted.empty()) {
      Labels all = batch + rows + columns;
      return {mul(b_, arrange(x, all), arrange(y, all)), all};
    }
    ValueId a = arrange(x, batch + rows + contracted), c = arrange(y, batch + contracted + columns);
    if (!b_.ok()) return x;
    // Contracted dimensions broadcast as others do; then rows, columns and contracted labels are one dimension each.
    SymShape sa = b_.shape(a), sc = b_.shape(c);
    for (size_t i = 0; i < contracted.size(); ++i) {
      SymExpr &p = sa[batch.size() + rows.size() + i], &q = sc[batch.size() + i];
      auto both = b_.env().broadcast(p, q, b_.node().location);
      if (!both.ok()) return b_.fail(std::move(both).take_error()), x;
      p = q = *both;
    }
    a = expand(b_, a, sa);
    c = expand(b_, c, sc);
    auto size = [&](const SymShape& s, size_t from, size_t n) { return product(std::span(s).subspan(from, n)); };
    SymShape batch_a(sa.begin(), sa.begin() + static_cast<int64_t>(batch.size())),
        batch_c(sc.begin(), sc.begin() + static_cast<int64_t>(batch.size()));
    SymExpr k = size(sa, batch.size() + rows.size(), contracted.size());
    SymShape ma = batch_a, mc = batch_c;
    ma.insert(ma.end(), {size(sa, batch.size(), rows.size()), k});
    mc.insert(mc.end(), {k, size(sc, batch.size() + contracted.size(), columns.size())});
    ValueId z = matmul(b_, reshape(b_, a, ma), reshape(b_, c, mc));
    if (!b_.ok()) return x;
    SymShape out = b_.shape(z);
    out.resize(batch.size());
    out.insert(out.end(), sa.begin() + static_cast<int64_t>(batch.size()),
               sa.begin() + static_cast<int64_t>(batch.size() + rows.size()));
    out.insert(out.end(), sc.begin() + static_cast<int64_t>(batch.size() + contracted.size()), sc.end());
    return {reshape(b_, z, out), batch + rows + columns};
  }

private:
  B& b_;
};

Result<std::vector<ValueId>> decompose_einsum(Graph& g, const Node& n, int) {
  B b(g, n);
  auto parsed = parse(b.attr().s("equation"));
  if (!parsed.ok()) return std::move(parsed).take_error().at(n.location);
  Equation e = *parsed;
  auto fail = [&](ErrorCode code, const std::string& what) {
    return Diagnostic(code, n.location, "equation '" + b.attr().s("equation") + "': " + what);
  };
  if (static_cast<int>(e.inputs.size()) != b.operands())
    return fail(ErrorCode::BadAttribute,
                std::to_string(e.inputs.size()) + " terms for " + std::to_string(b.operands()) + " operands");
  int widest = 0;
  std::vector<Term> terms;
  std::map<char, int> seen;
  for (size_t i = 0; i < e.inputs.size(); ++i) {
    ValueId v = b.in(static_cast<int>(i));
    bool star = e.inputs[i].find('*') != std::string::npos;
    int extra = b.rank(v) - static_cast<int>(e.inputs[i].size()) + (star ? 1 : 0);
    if (extra < 0 || (!star && extra != 0) || extra > kMaxEllipsis)
      return fail(ErrorCode::ShapeMismatch, "operand " + std::to_string(i) + " is " + str(b.shape(v)));
    widest = std::max(widest, extra);
    terms.push_back({v, replace_star(e.inputs[i], ellipsis_labels(star ? extra : 0))});
    for (char l : e.inputs[i]) ++seen[l];
  }
  Labels output;
  if (e.output) {
    output = replace_star(*e.output, ellipsis_labels(widest));
    for (size_t i = 0; i < output.size(); ++i) {
      if (!is_ellipsis(output[i]) && !seen.count(output[i]))
        return fail(ErrorCode::BadAttribute, "no operand has the label '" + output.substr(i, 1) + "'");
      if (output.find(output[i], i + 1) != std::string::npos)
        return fail(ErrorCode::BadAttribute, "a label stands twice in the output");
    }
  } else { // what stands once, in alphabetical order, after the ellipsis
    output = ellipsis_labels(widest);
    for (const auto& [label, count] : seen)
      if (label != '*' && count == 1) output.push_back(label);
  }
  Contraction contraction(b);
  for (Term& t : terms) contraction.diagonals(t);
  std::set<char> wanted(output.begin(), output.end());
  Term sum = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    std::set<char> later = wanted;
    for (size_t k = i + 1; k < terms.size(); ++k) later.insert(terms[k].labels.begin(), terms[k].labels.end());
    sum = contraction.pair(sum, terms[i], later);
  }
  contraction.sum_away(sum, wanted);
  return b.done(contraction.arrange(sum, output));
}

OpDef einsum_record() {
  OpDef def;
  def.name = "Einsum";
  def.summary = "sums of products over labelled dimensions";
  def.onnx = {{"Einsum", "", 12}};
  def.aten = {"einsum"};
  def.operands = {{"first", TypeSet::Numeric}, {"others", TypeSet::SameAsFirst, false, true}};
  def.attributes = {{"equation", AttrKind::String, true}};
  def.meaning = Decomposition{decompose_einsum};
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    auto eq = [](const char* s) { return Attributes{{"equation", std::string(s)}}; };
    return std::vector<Sample>{
        sample({r({3, 4}, 1)}, eq("ij->ji")),
        sample({r({3, 4}, 1)}, eq("ij->i")),
        sample({r({3, 3}, 1)}, eq("ii->i")),
        sample({r({2, 3, 3}, 1)}, eq("...ii->...i")),
        sample({r({3, 4}, 1), r({4, 5}, 2)}, eq("ij,jk")),
        sample({r({2, 3, 4}, 1), r({2, 4, 5}, 2)}, eq("bij, bjk -> bik")),
        sample({r({2, 5, 3, 4}, 1), r({5, 4, 6}, 2)}, eq("...ij,...jk->...ik")),
        sample({r({2, 3, 4, 5}, 1), r({2, 6, 4, 5}, 2)}, eq("bqhd,bkhd->bhqk")),
        sample({r({3}, 1), r({4}, 2), r({3, 4}, 3)}, eq("i,j,ij->")),
        sample({r({4}, 1), r({4}, 2)}, eq("i,i->")),
        sample({r({3}, 1), r({4}, 2)}, eq("i,j->ij")),
    };
  };
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    auto eq = [](const char* s) { return Attributes{{"equation", std::string(s)}}; };
    return std::vector<ErrorSample>{
        wrong({r({3, 4})}, eq("ij,jk->ik"), ErrorCode::BadAttribute, "operands"),
        wrong({r({3, 4})}, eq("ijk->i"), ErrorCode::ShapeMismatch, "operand 0"),
        wrong({r({3, 4})}, eq("ij->ik"), ErrorCode::BadAttribute, "'k'"),
        wrong({r({3, 4})}, eq("i.j->i"), ErrorCode::BadAttribute, "dot"),
        wrong({r({3, 4}), r({5, 2})}, eq("ij,jk->ik"), ErrorCode::ShapeMismatch, ""),
    };
  };
  return def;
}

} // namespace

void register_einsum_ops(OpTable& table) { table.add(einsum_record()); }

} // namespace tessera
