// Steps that do the same on the same shapes, and runs of steps that repeat: the layers of a model.
#include "report/context.h"
#include <algorithm>
#include <span>

namespace tessera::report {

namespace {

constexpr size_t kLongestLayer = 512; // steps
constexpr size_t kMaxSteps = 20000;   // beyond, the search takes too long

// A step without its names: steps of equal layers have equal keys.
std::string class_key(const Json& s, const std::map<std::string, std::string>& op_of) {
  std::string key =
      s.at("kind").get<std::string>() + "|" + s.value("library_call", "") + "|" + s.value("iteration", "");
  for (const Json& o : s.at("operators"))
    if (auto it = op_of.find(o.get<std::string>()); it != op_of.end()) key += "," + it->second;
  for (const char* list : {"reads", "writes"}) {
    key += "|";
    for (const Json& v : s.at(list)) key += v.at("type").get<std::string>() + ";";
  }
  if (s.contains("schedule")) key += "|" + s.at("schedule").at("config").dump();
  if (s.contains("inside")) key += "|inside";
  return key;
}

struct Repeat {
  size_t begin = 0, period = 0, times = 0;
};

// The repeat that covers most of the classes, the shortest period of these.
Repeat longest(std::span<const int> classes) {
  Repeat best;
  const size_t n = classes.size();
  for (size_t p = 1; p <= std::min(n / 2, kLongestLayer); ++p) {
    size_t run = 0; // of places that are equal to the place p behind them
    for (size_t i = n - p; i-- > 0;) {
      run = classes[i] == classes[i + p] ? run + 1 : 0;
      const size_t times = run / p + 1;
      if (times > 1 && p * times > best.period * best.times) best = {i, p, times};
    }
  }
  return best;
}

void find(std::span<const int> classes, size_t offset, std::vector<Repeat>& out) {
  Repeat r = longest(classes);
  if (r.times < 2) return;
  find(classes.subspan(0, r.begin), offset, out);
  out.push_back({offset + r.begin, r.period, r.times});
  const size_t end = r.begin + r.period * r.times;
  find(classes.subspan(end), offset + end, out);
}

} // namespace

Json layers_json(Context& x, Json& steps) {
  std::map<std::string, std::string> op_of;
  for (const auto& e : x.operators.entries()) op_of.emplace(e.id, e.op);
  std::map<std::string, int> known;
  std::vector<int> classes;
  for (Json& s : steps) {
    const int c = known.try_emplace(class_key(s, op_of), static_cast<int>(known.size()) + 1).first->second;
    classes.push_back(c);
    s["class"] = "c" + std::to_string(c);
  }
  Json out = Json::array();
  if (classes.size() > kMaxSteps) return out;
  std::vector<Repeat> repeats;
  find(classes, 0, repeats);
  for (const Repeat& r : repeats) {
    Json layer{{"id", "layer " + std::to_string(out.size() + 1)}, {"times", r.times}, {"instances", Json::array()}};
    for (size_t t = 0; t < r.times; ++t) {
      Json& instance = layer["instances"].emplace_back(Json::array());
      for (size_t i = 0; i < r.period; ++i) instance.push_back(steps[r.begin + t * r.period + i].at("id"));
    }
    out.push_back(std::move(layer));
  }
  return out;
}

} // namespace tessera::report
