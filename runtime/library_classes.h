// Which library calls of an executable differ in nothing but their buffers, whatever the sizes: a plan prepares the
// first of them and gives the others what it made, as the layers of a model make the same calls.
#pragma once
#include "runtime/variant.h"

namespace tessera {

class LibraryClasses {
public:
  // The class of a call, numbered from 0. `form` has its operands; its registers are of one program, and
  // `buffer_shape` is Variant::buffer_shape.
  int of(const Executable& executable, std::span<const int> buffer_shape, const LibraryStep& step,
         const StepForm& form);

private:
  std::map<std::vector<int64_t>, int> by_signature_;
};

} // namespace tessera
