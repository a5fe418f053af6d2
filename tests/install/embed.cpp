// Opens a model through the installed package and runs it once at each of two shapes.
#include <cstdio>
#include <tessera/api/session.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto session = tessera::Session::open(argv[1]);
  if (!session.ok()) return std::fputs(session.error().str().c_str(), stderr), 1;
  for (int64_t seq : {5, 12}) {
    std::map<std::string, tessera::Tensor> inputs;
    for (const auto& input : (*session)->inputs()) {
      auto t = tessera::Tensor::create(input.dtype, {2, seq});
      if (!t.ok()) return 1;
      for (int64_t i = 0; i < t->count(); ++i) t->set_i64(i, 1);
      inputs.emplace(input.name, *t);
    }
    auto outputs = (*session)->run(inputs);
    if (!outputs.ok()) return std::fputs(outputs.error().str().c_str(), stderr), 1;
    const auto& dims = outputs->front().dims();
    std::printf("seq %ld: %zu outputs, first of rank %zu, dimension 1 is %ld\n", static_cast<long>(seq),
                outputs->size(), dims.size(), static_cast<long>(dims[1]));
    if (dims[1] != seq) return 1;
  }
  return 0;
}
