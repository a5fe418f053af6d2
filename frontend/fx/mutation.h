// Writes in place, as functions of values. A program of torch.export may call `add_`, `copy_`, `index_put_` ... on
// values, on views of values, on buffers and on inputs. Each becomes the functional operator on the current value, and
// its result is what every name of that memory means from then on:
//
//   y = select(x, 0, 1)      y is a view of x
//   add_(y, 1)               y' = add(y, 1);  x' = select_scatter(x, y', 0, 1)
//   z = x * 2                reads x'
//
// A write to a view is written back through the views that made it, up to the tensor that has the memory (its root).
// Other views of the same root are made again, from the root's new value, when they are next read. An input that
// was written to becomes an output named after it; a buffer that was, a state of the model (ModelState).
#pragma once
#include "frontend/fx/program.h"
#include <unordered_map>

namespace tessera::fx {

// "add.Tensor" for "add_.Tensor"; nothing for an operator that writes to none of its arguments.
[[nodiscard]] std::optional<std::string> functional_name(std::string_view name);

// Which names stand for the same memory, and which of them show what was last written.
class Aliases {
public:
  struct Alias {
    std::string parent;           // the tensor that this one is a view of
    const FxNode* node = nullptr; // the call that made the view; nullptr: the parent itself under another name
    int result = 0;               // which result of it
    bool certain = true;          // false: the call yields a view or a copy, as memory lies
    std::string root;
    uint64_t version = 0; // the root's when the value was made
  };

  void add(const std::string& name, Alias alias); // root and version are filled in
  [[nodiscard]] const Alias* find(const std::string& name) const;
  [[nodiscard]] bool is_stale(const std::string& name) const;
  void made(const std::string& name);  // its value is that of the root's present version
  void wrote(const std::string& root); // a new version of it
  [[nodiscard]] bool is_written(const std::string& root) const { return versions_.contains(root); }

private:
  [[nodiscard]] uint64_t version(const std::string& root) const;
  std::unordered_map<std::string, Alias> aliases_;
  std::unordered_map<std::string, uint64_t> versions_; // by root; not in it: 0
};

} // namespace tessera::fx
