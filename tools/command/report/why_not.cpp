// Why two operators are not in one kernel: the verdict of the edge between them, of the first edge that stays unfused
// on the path between them, or of two operators of which neither depends on the other.
#include "fusion/plan.h"
#include "report/report.h"
#include <algorithm>
#include <deque>
#include <set>

namespace tessera::command::report {

namespace {

constexpr size_t kMaxListed = 10;
constexpr size_t kMaxSteps = 3; // of an operator

using Path = std::vector<const Json*>; // edges, in the direction of the data

// The operator that a name means; an id that is exact means its own.
Result<const Json*> one_operator(const Json& report, const std::string& name) {
  TESSERA_ASSIGN(const auto found, find_operators(report, name));
  if (found.size() == 1) return found[0];
  for (const Json* o : found)
    if (o->at("id").get<std::string>() == name) return o;
  Diagnostic d(ErrorCode::Usage, "'" + name + "' is " + std::to_string(found.size()) + " operators, one is needed");
  for (size_t i = 0; i < found.size() && i < kMaxListed; ++i)
    d.note(found[i]->at("id").get<std::string>() + " (" + found[i]->at("op").get<std::string>() + ")");
  if (found.size() > kMaxListed) d.note("and " + std::to_string(found.size() - kMaxListed) + " more");
  return d;
}

// The shortest path of edges; empty where there is none.
Path shortest_path(const Json& report, const std::string& from, const std::string& to) {
  std::map<std::string, Path> leaving;
  for (const Json& e : report.at("edges")) leaving[e.at("producer").get<std::string>()].push_back(&e);
  std::map<std::string, const Json*> entered{{from, nullptr}};
  std::deque<std::string> next{from};
  while (!next.empty() && !entered.contains(to)) {
    const std::string at = next.front();
    next.pop_front();
    for (const Json* e : leaving[at])
      if (std::string consumer = e->at("consumer"); entered.emplace(consumer, e).second)
        next.push_back(std::move(consumer));
  }
  Path out;
  if (auto it = entered.find(to); it != entered.end() && from != to)
    for (const Json* e = it->second; e != nullptr; e = entered.at(e->at("producer").get<std::string>()))
      out.push_back(e);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string where(const View& v, const Json& o) {
  std::string steps;
  const Json& all = o.at("steps");
  for (size_t i = 0; i < all.size() && i < kMaxSteps; ++i) steps += (i == 0 ? " in " : ", ") + text_of(all.at(i));
  if (all.size() > kMaxSteps) steps += ", and " + std::to_string(all.size() - kMaxSteps) + " more";
  return v.shown_operator(o.at("id")) + ", " + text_of(o.at("op")) +
         (steps.empty() ? ": no step is left of it, it was folded when compiling" : steps);
}

std::optional<std::string> common_step(const Json& a, const Json& b) {
  for (const Json& s : a.at("steps"))
    for (const Json& t : b.at("steps"))
      if (s == t) return s.get<std::string>();
  return std::nullopt;
}

// A verdict that no edge has: of two operators of which neither reads what the other makes.
std::string verdict_of(FusionReason reason, const std::string& price, const std::string& why) {
  const auto& i = info(reason);
  return wrapped(std::string(i.code) + " " + std::string(i.name) + (i.fused ? ": fused, " : ": not fused, ") + price,
                 "  ") +
         wrapped(why, "    ");
}

// A value that both read.
std::optional<std::string> shared_value(const Json& report, const std::string& a, const std::string& b) {
  std::set<std::string> of_a;
  for (const Json& e : report.at("edges"))
    if (e.at("consumer") == a) of_a.insert(e.at("value").get<std::string>());
  for (const Json& e : report.at("edges"))
    if (e.at("consumer") == b && of_a.contains(e.at("value").get<std::string>()))
      return e.at("value").get<std::string>();
  return std::nullopt;
}

// The verdict on the two, or on the kernels that they are in.
const Json* pair_of(const View& v, const Json& a, const Json& b) {
  const auto same_kernel = [&](const std::string& id, const Json& o) {
    return id == o.at("id").get<std::string>() || common_step(v.op(id), o).has_value();
  };
  for (const Json& p : v.json.at("pairs")) {
    const std::string first = p.at("first"), second = p.at("second");
    if ((same_kernel(first, a) && same_kernel(second, b)) || (same_kernel(first, b) && same_kernel(second, a)))
      return &p;
  }
  return nullptr;
}

std::string of_path(const View& v, const Path& path, const std::optional<std::string>& step) {
  std::string out;
  const auto unfused =
      std::find_if(path.begin(), path.end(), [](const Json* e) { return !e->at("fused").get<bool>(); });
  if (path.size() > 1) {
    std::string names = v.shown_operator(path[0]->at("producer"));
    const size_t most = std::min(path.size(), kMaxListed);
    for (size_t i = 0; i + 1 < most; ++i) names += " -> " + v.shown_operator(path[i]->at("consumer"));
    if (path.size() > kMaxListed) names += " -> ... " + std::to_string(path.size() - kMaxListed) + " more";
    names += " -> " + v.shown_operator(path.back()->at("consumer"));
    out += wrapped("The path between them has " + std::to_string(path.size()) + " edges: " + names, "");
  }
  if (unfused != path.end()) {
    constexpr size_t kMaxVerdicts = 4;
    size_t left = 0;
    std::string verdicts;
    for (const Json* e : path)
      if (!e->at("fused").get<bool>() && ++left <= kMaxVerdicts) verdicts += v.verdict(*e, "  ");
    if (path.size() > 1)
      out += std::to_string(left) + (left == 1 ? " of them stays unfused:\n" : " of them stay unfused:\n");
    return out + verdicts + (left > kMaxVerdicts ? "  and " + std::to_string(left - kMaxVerdicts) + " more\n" : "");
  }
  if (path.size() > 1) out += step ? "All are fused:\n" : "All are fused, so that nothing on it goes through memory:\n";
  for (size_t i = 0; i < path.size() && i < 3; ++i) out += v.verdict(*path[i], "  ");
  if (path.size() > 3) out += "  and " + std::to_string(path.size() - 3) + " more\n";
  return out;
}

std::string of_unconnected(const View& v, const Json& a, const Json& b, const std::optional<std::string>& step) {
  const auto shared = shared_value(v.json, a.at("id"), b.at("id"));
  if (const Json* pair = pair_of(v, a, b)) return v.verdict(*pair, "  ");
  if (step) {
    if (shared)
      return verdict_of(FusionReason::SiblingSharesInput,
                        "saves a second read of '" + shown(*shared) + "' and a launch, " +
                            us_text(v.json.at("device").value("launch_us", 0.0)),
                        "both read '" + shown(*shared) + "'");
    return verdict_of(FusionReason::HorizontalFusion,
                      "saves a launch, " + us_text(v.json.at("device").value("launch_us", 0.0)),
                      "neither reads what the other makes; the kernel computes both");
  }
  const bool vanished = a.at("steps").empty() || b.at("steps").empty();
  if (vanished)
    return verdict_of(FusionReason::NoGain, "costs " + us_text(0.0),
                      "one of them was folded when compiling: no memory is moved and no kernel is launched for it");
  return verdict_of(FusionReason::NoGain,
                    "costs at most a launch, " + us_text(v.json.at("device").value("launch_us", 0.0)),
                    std::string("neither depends on the other") +
                        (shared ? ", both read '" + shown(*shared) + "'"
                                : ", and they read no common value: fusion would save no memory traffic") +
                        "; small independent kernels may share a launch (" +
                        std::string(info(FusionReason::HorizontalFusion).code) + ")");
}

} // namespace

Result<std::string> why_not(const Json& report, const std::string& first, const std::string& second) {
  TESSERA_ASSIGN(const Json* a, one_operator(report, first));
  TESSERA_ASSIGN(const Json* b, one_operator(report, second));
  const View v(report);
  const std::string from = a->at("id"), to = b->at("id");
  if (a == b)
    return Diagnostic(ErrorCode::Usage, "'" + first + "' and '" + second + "' are one operator, '" + from + "'")
        .note("--op shows it; --why-not takes two");
  std::string out = wrapped(where(v, *a), "") + wrapped(where(v, *b), "");
  const auto step = common_step(*a, *b);
  // An operator of several steps may share one with another, and pass the rest through memory.
  const bool whole = a->at("steps").size() == 1 && b->at("steps").size() == 1;
  if (step) out += (whole ? "They are fused in " : "Parts of both are in ") + shown(*step) + ".\n";
  out += "\n";

  // Every edge between the two.
  std::string adjacent;
  for (const Json& e : report.at("edges")) {
    const std::string producer = e.at("producer"), consumer = e.at("consumer");
    if ((producer == from && consumer == to) || (producer == to && consumer == from)) adjacent += v.verdict(e, "  ");
  }
  if (!adjacent.empty()) return out + adjacent;

  Path path = shortest_path(report, from, to);
  if (path.empty()) path = shortest_path(report, to, from);
  return out + (path.empty() ? of_unconnected(v, *a, *b, step) : of_path(v, path, step));
}

} // namespace tessera::command::report
