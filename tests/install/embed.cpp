// Opens a model through the installed package and runs it once at each of two shapes. Takes the address of, or calls,
// what the installed headers declare otherwise, so that it links only if all of that is exported.
#include <cstdio>
#include <tessera/api/device.h>
#include <tessera/api/session.h>

namespace {
using namespace tessera;

// A pool of the user's own: tables and type information of public classes are the user's.
class OneThread final : public ThreadPool {
public:
  [[nodiscard]] int threads() const override { return 1; }
  void parallel_for(int64_t n, int64_t, const std::function<void(int64_t, int64_t, int)>& body) override {
    if (n > 0) body(0, n, 0);
  }
};

bool helpers_work() {
  const std::vector<float> values = {1, 2, 3, 4};
  Tensor t = Tensor::of<float>(DType::F32, {2, 2}, values), again = t.reshaped({4});
  if (!compare(again, Tensor::view(DType::F32, {4}, {t.owner(), t.data(), t.bytes()}), 0, 0).same) return false;
  if (read_npy("/nowhere.npy").ok() || write_npy("/nowhere/t.npy", t).ok() || !element_count(t.dims()).ok())
    return false;
  auto s = SymExpr::symbol("s");
  SymShape shape = {s, floordiv(s, 2) + 1, sym_min(s, 4) * mod(s, 2) - ceildiv(s, 3), -s};
  auto parsed = parse_sym("s + 2", [&](std::string_view) -> Result<SymExpr> { return s; });
  if (!parsed.ok() || *parsed != s + 2 || str(shape).empty() || contiguous_strides(shape).size() != 4) return false;
  if (*(s * 3).eval({{s.symbol_id(), 2}}) != 6 || s.symbol_name() != "s") return false;
  if (dtype_from_name("f16") != DType::F16 || dtype_from_onnx(1) != DType::F32 || name(DType::BF16) != "bf16")
    return false;
  if (f16_to_f32(f32_to_f16(1.5f)) != 1.5f || bf16_to_f32(f32_to_bf16(2)) != 2) return false;
  auto failed = Diagnostic(ErrorCode::Usage, "text").note("note").at(Location{.file = "file"});
  if (failed.str().find("file") == std::string::npos || info(failed.code).exit_code != 2) return false;
  return !Executor::create({}).ok() && ThreadPool::create(1)->threads() == 1;
}
} // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  if (!helpers_work()) return std::fputs("a helper does not what it should\n", stderr), 1;
  SessionOptions options;
  auto device = choose_device("cpu");
  if (!device.ok()) return 1;
  device->apply(options.compile);
  options.executor.pool = std::make_shared<OneThread>();
  auto session = tessera::Session::open(argv[1], options);
  if (!session.ok()) return std::fputs(session.error().str().c_str(), stderr), 1;
  for (int64_t seq : {5, 12}) {
    std::map<std::string, tessera::Tensor> inputs;
    for (const auto& input : (*session)->inputs()) {
      auto t = tessera::Tensor::create(input.dtype, {2, seq});
      if (!t.ok()) return 1;
      for (int64_t i = 0; i < t->count(); ++i) t->set_i64(i, 1);
      inputs.emplace(input.name, *t);
    }
    RunStats stats;
    auto outputs = (*session)->run(inputs, &stats);
    if (!outputs.ok()) return std::fputs(outputs.error().str().c_str(), stderr), 1;
    const auto& dims = outputs->front().dims();
    std::printf("seq %ld: %zu outputs, first of rank %zu, dimension 1 is %ld\n", static_cast<long>(seq),
                outputs->size(), dims.size(), static_cast<long>(dims[1]));
    if (dims[1] != seq) return 1;
  }
  auto executor = (*session)->new_executor();
  const bool cached = (*session)->compile_totals().cached_plans == 1; // by a process before this one
  return executor.ok() && (*session)->variants().size() == 1 && ((*session)->import_ms() > 0) != cached &&
                 !(*session)->model_info().opsets.empty() && !(*session)->outputs().empty()
             ? 0
             : 1;
}
