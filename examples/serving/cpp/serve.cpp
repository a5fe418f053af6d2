// Answers requests of several sizes from two threads: serve MODEL [DEVICE]. Inputs are all ones; a symbolic first dimension
// is the batch, any other symbolic one the length.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <tessera/api/tessera.hpp>
#include <thread>

namespace {
using namespace tessera::stable;

constexpr int kThreads = 2, kRequests = 24;
struct Shape {
  int64_t batch, length;
};
constexpr Shape kShapes[] = {{1, 8}, {4, 16}};

int64_t count(std::span<const int64_t> dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

// The inputs of one shape, with memory.
class Request {
public:
  Request(const std::vector<Io>& inputs, const Shape& shape) {
    for (const Io& io : inputs) {
      auto& dims = dims_.emplace_back();
      for (const std::string& d : io.dims) {
        char* end = nullptr;
        const int64_t size = std::strtoll(d.c_str(), &end, 10);
        dims.push_back(*end == 0 ? size : dims.empty() ? shape.batch : shape.length);
      }
      const auto n = static_cast<size_t>(count(dims));
      auto& bytes = bytes_.emplace_back(n * 8);
      for (size_t i = 0; i < n; ++i) {
        const int64_t one = 1;
        const float one_f = 1;
        if (io.dtype == TESSERA_I64) std::memcpy(&bytes[i * 8], &one, 8);
        if (io.dtype == TESSERA_F32) std::memcpy(&bytes[i * 4], &one_f, 4);
      }
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      with_data_.emplace_back(nullptr, inputs[i].dtype, dims_[i], bytes_[i].data());
      sizes_.emplace_back(nullptr, inputs[i].dtype, dims_[i], nullptr);
    }
  }
  [[nodiscard]] Session::Tensors tensors() const { return with_data_; }
  [[nodiscard]] Session::Tensors sizes() const { return sizes_; }

private:
  std::vector<std::vector<int64_t>> dims_;
  std::vector<std::vector<char>> bytes_;
  std::vector<Tensor> with_data_, sizes_;
};

// One thread, with a context of its own. On the host each shape has inputs and outputs that are bound once.
void serve(Session context) {
  for (const Shape& shape : kShapes) {
    const Request request(context.inputs(), shape);
    context.warmup(request.sizes());
    std::vector<std::vector<char>> memory;
    std::vector<std::vector<int64_t>> dims;
    std::vector<Tensor> outputs;
    for (const tessera_tensor& t : context.output_sizes(request.sizes())) {
      dims.emplace_back(dims_of(t).begin(), dims_of(t).end());
      memory.emplace_back(static_cast<size_t>(count(dims_of(t))) * 8);
      outputs.emplace_back(nullptr, t.dtype, std::span<const int64_t>(), memory.back().data());
    }
    for (size_t o = 0; o < outputs.size(); ++o) outputs[o] = {nullptr, outputs[o].dtype, dims[o], memory[o].data()};
    const bool bound = context.device() == "cpu";
    if (bound) context.bind(request.tensors(), outputs);
    for (int k = 0; k < kRequests; ++k) bound ? context.run_bound() : context.run(request.tensors(), outputs);
  }
}
} // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: serve MODEL [DEVICE]\n"), 2;
  try {
    set_logger(TESSERA_LOG_INFO, [](tessera_log_level level, const char* channel, const char* text) {
      std::fprintf(stderr, "%d %s: %s\n", static_cast<int>(level), channel, text);
    });
    Options options;
    options.device = argc > 2 ? argv[2] : "auto";
    options.memory_limit = uint64_t{1} << 30;
    Session session(argv[1], options);
    for (const Shape& shape : kShapes) session.warmup(Request(session.inputs(), shape).sizes());
    const tessera_metrics warm = session.metrics();

    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        try {
          serve(session.clone());
        } catch (const std::exception& e) {
          std::fprintf(stderr, "%s\n", e.what());
          ++wrong;
        }
      });
    for (auto& t : threads) t.join();

    const tessera_metrics m = session.metrics();
    std::printf("%d calls, %d errors, %d variants, %.1f us a call\n", static_cast<int>(m.calls),
                static_cast<int>(m.errors), static_cast<int>(m.variants),
                static_cast<double>(m.latency_us) / std::max(1.0, static_cast<double>(m.calls)));
    if (auto miss = session.last_miss()) std::printf("last miss: %s\n", miss->c_str());
    if (m.compiles != warm.compiles) ++wrong, std::fprintf(stderr, "a request waited for a compile\n");

    // A refusal is an exception that says why.
    Options small = options;
    small.memory_limit = 1;
    try {
      Session refused(argv[1], small);
      (void)refused.run_fresh(Request(refused.inputs(), kShapes[0]).tensors());
      ++wrong;
    } catch (const Error& e) {
      std::printf("with a limit of 1 byte: %s: %s\n", e.name().c_str(), e.message().c_str());
      wrong += e.name() != "out-of-memory";
    }
    set_logger(TESSERA_LOG_INFO, {});
    return wrong == 0 ? 0 : 1;
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
}
