#pragma once
#include "tests/base/seeds.h"
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tessera::test {

// Says of each case of a test, in their order, whether it runs: of all cases the share that TESSERA_TEST_SEEDS gives (seeds()), spread
// evenly, and the first case of each kind (an operator, a dtype, a form of schedules) whatever the share. What is left out are
// repetitions, and always the same ones.
class Share {
public:
  // `kinds` of the case: the first with the first of other cases, the second with the second and so on.
  bool takes(std::initializer_list<std::string> kinds = {}) {
    ++cases_;
    bool first = false;
    int position = 0;
    for (const std::string& kind : kinds) first |= seen_.emplace(position++, kind).second;
    if (!first && taken_ * 100 >= cases_ * seeds(100)) return false;
    ++taken_;
    return true;
  }

private:
  uint64_t cases_ = 0, taken_ = 0;
  std::set<std::pair<int, std::string>> seen_;
};

// The cases of a list that run, of which none is of a kind of its own.
template <class T>
std::vector<T> some(std::vector<T> cases) {
  Share share;
  std::erase_if(cases, [&](const T&) { return !share.takes(); });
  return cases;
}

// The kinds of a model that is named, or whose file is named, as "bert.dynamo.f16": its architecture and its element type.
inline std::pair<std::string, std::string> kinds_of_model(const std::string& name) {
  const size_t begin = name.find_last_of('/') + 1;
  return {name.substr(begin, name.find('.', begin) - begin),
          name.find(".f16", begin) == std::string::npos ? "f32" : "f16"};
}
// The models that run.
inline std::vector<std::string> some_models(std::vector<std::string> models) {
  Share share;
  std::erase_if(models, [&](const std::string& name) {
    const auto [architecture, element] = kinds_of_model(name);
    return !share.takes({architecture, element});
  });
  return models;
}

} // namespace tessera::test
