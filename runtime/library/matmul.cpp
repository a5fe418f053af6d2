// c = a b through dnnl_sgemm, one call per block of the result.
//
// A constant b is repacked once into panels of up to 384 columns ([K, width] each, dense): a panel stays in L2 while
// the rows pass by, and narrow panels are faster than one wide strided matrix (docs/runtime.md has the numbers). Batch
// dimensions over which b does not change are folded into the rows. Half-precision constants stay half in the panels,
// and are widened a few hundred rows at a time into scratch that stays in L2: memory for weights is what it was in the
// file, and the conversion is a few percent of a product of some rows. Whatever sgemm cannot address (no unit stride)
// is packed into scratch by the task that needs it.
#include "runtime/library/blocks.h"
#include "runtime/library/call.h"
#include "runtime/library/onednn.h"
#include "runtime/library/strided_copy.h"
#include "runtime/library/widen.h"
#include <algorithm>
#include <cstring>
#include <oneapi/dnnl/dnnl.h>

namespace tessera {
namespace {

constexpr int64_t kColumnUnit = 48;          // columns that the sgemm kernel takes at a time
constexpr int64_t kPanelUnits = 8;           // 384 columns
constexpr int64_t kEpilogueBlock = 64 << 10; // elements: 256 KB
constexpr int64_t kRowsWithoutEpilogue = 512;
constexpr int64_t kWidened = 288 << 10; // elements of a half-precision panel that are f32 at a time: 1.1 MB

int64_t column_units(int64_t columns) { return (columns + kColumnUnit - 1) / kColumnUnit; }

// n columns in `count` pieces, whose widths are whole units, as equal as can be.
struct Columns {
  int64_t n = 0, count = 1;
  [[nodiscard]] int64_t begin(int64_t p) const { return std::min(n, column_units(n) * p / count * kColumnUnit); }
  [[nodiscard]] int64_t width(int64_t p) const { return begin(p + 1) - begin(p); }
  [[nodiscard]] int64_t widest() const {
    int64_t most = 1;
    for (int64_t p = 0; p < count; ++p) most = std::max(most, width(p));
    return most;
  }
};
// The columns of packed weights: an even number of panels, for two threads.
Columns panels_of(int64_t n) {
  const int64_t units = column_units(n), count = std::max<int64_t>(1, (units + kPanelUnits - 1) / kPanelUnits);
  return {n, count % 2 == 1 && units >= 4 ? count + 1 : count};
}

// A matrix somewhere: row stride, column stride.
struct Matrix {
  int64_t rs = 0, cs = 0;
};

// How sgemm takes a matrix: as it is ('N', unit column stride) or transposed ('T', unit row stride). 0: not at all.
struct Address {
  char op = 0;
  int64_t ld = 0;
};
Address address(const Matrix& m, int64_t rows, int64_t columns) {
  if ((m.cs == 1 || columns == 1) && (rows == 1 || m.rs >= columns)) return {'N', rows == 1 ? columns : m.rs};
  if ((m.rs == 1 || rows == 1) && (columns == 1 || m.cs >= rows)) return {'T', columns == 1 ? rows : m.cs};
  return {};
}

struct Task {
  int64_t a = 0, b = 0, c = 0; // element offsets; b: into the packed weights when there are any
  int64_t m = 0, n = 0;
  int64_t b_stride = 0; // packed: row stride of the panel
};

class MatmulPlan final : public LibraryPlan {
public:
  void run(const LibraryRun& r) const override {
    struct Frame {
      const MatmulPlan* plan;
      const LibraryRun* run;
      const float* a;
      const std::byte* b; // panels or plain elements, of b_type
      float* c;
    } frame{};
    frame.plan = this;
    frame.run = &r;
    frame.a = static_cast<const float*>(r.pointers[a_buffer]) + a_offset;
    frame.b = packed ? packed->data()
                     : (widened ? widened->data() : static_cast<const std::byte*>(r.pointers[b_buffer])) +
                           b_offset * static_cast<int64_t>(sizeof(float));
    frame.c = static_cast<float*>(r.pointers[c_buffer]) + c_offset;
    r.pool->parallel_for(static_cast<int64_t>(tasks.size()), grain, [&frame](int64_t begin, int64_t end, int worker) {
      for (int64_t t = begin; t < end; ++t) {
        frame.plan->block(frame.plan->tasks[static_cast<size_t>(t)], *frame.run, frame.a, frame.b, frame.c, worker);
        frame.plan->finish(*frame.run, t, worker);
      }
    });
  }

  [[nodiscard]] int64_t host_bytes() const override {
    return LibraryPlan::host_bytes() + static_cast<int64_t>(sizeof *this + tasks.capacity() * sizeof(Task));
  }

  void block(const Task& t, const LibraryRun& r, const float* a, const std::byte* weights, float* c, int worker) const {
    a += t.a;
    const float* b = reinterpret_cast<const float*>(weights) + t.b;
    c += t.c;
    auto* scratch = reinterpret_cast<float*>(r.worker_scratch[worker]);
    Matrix ma = a_matrix, mb = packed ? Matrix{t.b_stride, 1} : b_matrix, mc = c_matrix;
    auto pack = [&](const float*& p, Matrix& m, int64_t rows, int64_t columns, int64_t at) {
      int64_t dims[] = {rows, columns}, to[] = {columns, 1}, from[] = {m.rs, m.cs};
      strided_copy(scratch + at, p, dims, to, from);
      p = scratch + at;
      m = {columns, 1};
    };
    if (pack_a) pack(a, ma, t.m, k, 0);
    if (pack_b) pack(b, mb, k, t.n, a_scratch);
    float* out = c;
    if (stage_c) {
      out = scratch + a_scratch + b_scratch;
      mc = {t.n, 1};
    }
    if (k == 0) {
      for (int64_t i = 0; i < t.m; ++i)
        for (int64_t j = 0; j < t.n; ++j) out[i * mc.rs + j * mc.cs] = 0;
    } else if (half_rows > 0) {
      const auto* half = reinterpret_cast<const uint16_t*>(weights) + t.b;
      float* wide = scratch + a_scratch;
      for (int64_t from = 0; from < k; from += half_rows) {
        int64_t rows = std::min(half_rows, k - from);
        widen(wide, half + from * t.b_stride, rows * t.b_stride, b_type);
        auto status = gemm(t.m, t.n, rows, a + from * ma.cs, ma, wide, mb, from > 0 ? 1.0f : 0.0f, out, mc);
        if (status != dnnl_success) r.failure->store(static_cast<int>(status), std::memory_order_relaxed);
      }
    } else {
      auto status = gemm(t.m, t.n, k, a, ma, b, mb, 0.0f, out, mc);
      if (status != dnnl_success) r.failure->store(static_cast<int>(status), std::memory_order_relaxed);
    }
    if (stage_c) {
      int64_t dims[] = {t.m, t.n}, to[] = {c_matrix.rs, c_matrix.cs}, from[] = {t.n, 1};
      strided_copy(c, out, dims, to, from);
    }
  }

  // c = a b + beta c
  static dnnl_status_t gemm(int64_t m, int64_t n, int64_t k, const float* a, Matrix ma, const float* b, Matrix mb,
                            float beta, float* c, Matrix mc) {
    auto result = address(mc, m, n);
    if (result.op == 'T') { // the transposed product: c' = b' a'
      auto left = address({mb.cs, mb.rs}, n, k), right = address({ma.cs, ma.rs}, k, m);
      return dnnl_sgemm(left.op, right.op, n, m, k, 1.0f, b, left.ld, a, right.ld, beta, c, result.ld);
    }
    auto left = address(ma, m, k), right = address(mb, k, n);
    return dnnl_sgemm(left.op, right.op, m, n, k, 1.0f, a, left.ld, b, right.ld, beta, c, result.ld);
  }

  std::vector<Task> tasks; // task t computes box t
  int64_t grain = 1, k = 0;
  BufferId a_buffer = -1, b_buffer = -1, c_buffer = -1;
  int64_t a_offset = 0, b_offset = 0, c_offset = 0;
  Matrix a_matrix, b_matrix, c_matrix;
  std::shared_ptr<const PackedWeight> packed;  // panels, of b_type
  std::shared_ptr<const PackedWeight> widened; // a half-precision constant as it lies, in f32: where panels do not do
  DType b_type = DType::F32;
  int64_t half_rows = 0; // > 0: panels are widened so many rows at a time
  bool pack_a = false, pack_b = false, stage_c = false;
  int64_t a_scratch = 0, b_scratch = 0; // floats
};

// A part of packing is a stretch of rows of one panel, so that several threads work on one big weight.
constexpr int64_t kPartRows = 1024;

Result<std::shared_ptr<const PackedWeight>> want_panels(PackRequests& packs, const Operand& b, int64_t k, int64_t n,
                                                        Matrix m) {
  const Columns panels = panels_of(n);
  bool half = b.constant->dtype() != DType::F32;
  PackRequests::Job job;
  job.key = "panels " + std::string(name(b.constant->dtype())) + " " + std::to_string(b.offset) + " " +
            std::to_string(k) + "x" + std::to_string(n) + " " + std::to_string(m.rs) + "," + std::to_string(m.cs);
  job.bytes = static_cast<size_t>(byte_size(b.constant->dtype(), k * n));
  int64_t stretches = (k + kPartRows - 1) / kPartRows, element = byte_size(b.constant->dtype(), 1);
  job.parts = static_cast<int>(panels.count * stretches);
  // The dimension with the longer stride outside, so that parts that follow each other read one piece of the source.
  bool columns_outside = m.cs > m.rs;
  auto place = [=](int64_t part) {
    return columns_outside ? std::pair(part / stretches, part % stretches)
                           : std::pair(part % panels.count, part / panels.count);
  };
  job.parts_per_range = static_cast<int>(columns_outside ? stretches : panels.count);
  job.range = [=, offset = b.offset](int range) {
    int64_t stride = columns_outside ? m.cs : m.rs, other = columns_outside ? (k - 1) * m.rs : (n - 1) * m.cs;
    int64_t from = columns_outside ? panels.begin(range) : range * kPartRows,
            to = columns_outside ? panels.begin(range + 1) : std::min(k, (range + 1) * kPartRows);
    return std::pair(static_cast<size_t>((offset + from * stride) * element),
                     static_cast<size_t>((offset + (to - 1) * stride + other + 1) * element));
  };
  job.fill = [panels, k, m, place, half, offset = b.offset](std::byte* to, const std::byte* from, int part) {
    auto [p, stretch] = place(part);
    int64_t row = stretch * kPartRows;
    int64_t begin = panels.begin(p), width = panels.width(p);
    int64_t dims[] = {std::min(kPartRows, k - row), width}, target[] = {width, 1}, source[] = {m.rs, m.cs};
    int64_t at = begin * k + row * width, source_at = offset + begin * m.cs + row * m.rs;
    if (half)
      strided_copy(reinterpret_cast<uint16_t*>(to) + at, reinterpret_cast<const uint16_t*>(from) + source_at, dims,
                   target, source);
    else
      strided_copy(reinterpret_cast<float*>(to) + at, reinterpret_cast<const float*>(from) + source_at, dims, target,
                   source);
    return true;
  };
  return packs.want(*b.constant, std::move(job));
}

constexpr int64_t kPart = 1 << 20; // elements

// The whole constant in f32, element for element.
Result<std::shared_ptr<const PackedWeight>> want_widened(PackRequests& packs, const Tensor& constant) {
  int64_t count = constant.count();
  PackRequests::Job job;
  job.key = "widened " + std::string(name(constant.dtype())) + " " + std::to_string(count);
  job.bytes = static_cast<size_t>(count) * sizeof(float);
  job.parts = static_cast<int>((count + kPart - 1) / kPart);
  job.range = [count, dtype = constant.dtype()](int part) {
    return std::pair(static_cast<size_t>(byte_size(dtype, part * kPart)),
                     static_cast<size_t>(byte_size(dtype, std::min(count, (part + 1) * kPart))));
  };
  job.fill = [count, dtype = constant.dtype()](std::byte* to, const std::byte* from, int part) {
    int64_t begin = part * kPart;
    widen(reinterpret_cast<float*>(to) + begin, reinterpret_cast<const uint16_t*>(from) + begin,
          std::min(kPart, count - begin), dtype);
    return true;
  };
  return packs.want(constant, std::move(job));
}

int64_t round64(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int64_t round_floats(int64_t count) { return round64(count * 4) / 4; }

using Batch = ProductSizes::Batch;

// A product of matrices for each index of the outer dimensions of the batch. The inner ones are rows.
struct Product {
  int64_t n = 0, k = 0, rows = 0;
  Matrix a, b, c;
  std::vector<Batch> outer;
  std::vector<int64_t> row_dims; // of the result, that the rows are made of
  [[nodiscard]] int64_t count() const {
    int64_t all = 1;
    for (const Batch& d : outer) all *= d.size;
    return all;
  }
};

// The innermost dimensions of the batch become rows where b stays the same and rows go on at the same distance.
Product fold_rows(const ProductSizes& sizes, const Operand& a, const Operand& b, const Operand& c) {
  auto matrix = [](const Operand& o) { return Matrix{o.strides[o.strides.size() - 2], o.strides.back()}; };
  Product out{sizes.n, sizes.k, sizes.m, matrix(a), matrix(b), matrix(c), sizes.batch, {sizes.m}};
  for (; !out.outer.empty(); out.outer.pop_back()) {
    const Batch& d = out.outer.back();
    if (d.size != 1) {
      if (d.b != 0) break;
      if (out.rows == 1) {
        out.a.rs = d.a;
        out.c.rs = d.c;
      } else if (d.a != out.rows * out.a.rs || d.c != out.rows * out.c.rs) {
        break;
      }
      out.rows *= d.size;
    }
    out.row_dims.insert(out.row_dims.begin(), d.size);
  }
  return out;
}

// Constant weights: as panels where one matrix serves the whole batch, else those of half precision in f32.
Status pack_weights(MatmulPlan& plan, PackRequests& packs, const Operand& b, const Product& p) {
  if (!b.constant || !b.constant->defined()) return {};
  plan.b_type = b.constant->dtype();
  const bool b_varies = std::any_of(p.outer.begin(), p.outer.end(), [](const Batch& d) { return d.b != 0; });
  if (!b_varies && p.k > 0) {
    TESSERA_ASSIGN(plan.packed, want_panels(packs, b, p.k, p.n, p.b));
  } else if (plan.b_type != DType::F32 && b.constant->count() > 0) {
    TESSERA_ASSIGN(plan.widened, want_widened(packs, *b.constant));
  }
  return {};
}

// The panels, or pieces of about 384 columns where there are many and an epilogue or idle threads want smaller blocks.
Columns cut_columns(const Product& p, bool packed, const PlanContext& context) {
  if (packed) return panels_of(p.n);
  const int64_t units = column_units(p.n), blocks = p.count() * ((p.rows + 63) / 64);
  int64_t pieces = context.has_epilogue ? (units + kPanelUnits - 1) / kPanelUnits : 1;
  if (blocks < context.threads && units > 1) pieces = std::max(pieces, std::min<int64_t>(units, context.threads));
  return {p.n, pieces};
}

// Blocks of rows; smaller ones where the tasks would not come out even, down to 32 rows.
std::vector<Block> cut_rows(const Product& p, const Columns& columns, const PlanContext& context) {
  int64_t target =
      context.has_epilogue ? std::max<int64_t>(16, kEpilogueBlock / columns.widest()) : kRowsWithoutEpilogue;
  if (target > 48) target = target / 16 * 16;
  auto uneven = [&](const std::vector<Block>& blocks) {
    const int64_t tasks = p.count() * columns.count * static_cast<int64_t>(blocks.size()),
                  rounds = (tasks + context.threads - 1) / context.threads;
    return static_cast<double>(rounds * context.threads) / static_cast<double>(tasks);
  };
  auto blocks = cut_into_blocks(p.row_dims, target, 1);
  while (target > 32 && uneven(blocks) > 1.1) {
    target /= 2;
    auto finer = cut_into_blocks(p.row_dims, target, 1);
    if (uneven(finer) < uneven(blocks)) blocks = std::move(finer);
  }
  return blocks;
}

int64_t most_rows(std::span<const Block> blocks) {
  int64_t rows = 1;
  for (const Block& block : blocks) rows = std::max(rows, block.flat_count);
  return rows;
}

// Which operands sgemm cannot address as they are, and scratch for them. A last block of one row or column can be
// addressed more freely than others; what any block needs, all do.
void choose_packing(MatmulPlan& plan, const Product& p, const Columns& columns, std::span<const Block> blocks) {
  const int64_t k = std::max<int64_t>(p.k, 1), width = columns.widest(), rows = most_rows(blocks);
  for (const Block& block : blocks) plan.pack_a = plan.pack_a || !address(p.a, block.flat_count, k).op;
  for (int64_t i = 0; i < columns.count; ++i) {
    plan.pack_b = plan.pack_b || (!plan.packed && !address(p.b, k, columns.width(i)).op);
    for (const Block& block : blocks)
      plan.stage_c = plan.stage_c || !address(p.c, block.flat_count, columns.width(i)).op;
  }
  if (plan.pack_a) plan.a_scratch = round_floats(rows * p.k);
  if (plan.pack_b) plan.b_scratch = round_floats(p.k * width);
  if (plan.b_type != DType::F32 && plan.packed) {
    constexpr int64_t kUnit = 16;
    plan.half_rows = std::min(p.k, std::max<int64_t>(kUnit, kWidened / width / kUnit * kUnit));
    plan.b_scratch = round_floats(plan.half_rows * width);
  }
  plan.worker_scratch = (plan.a_scratch + plan.b_scratch + (plan.stage_c ? round_floats(rows * width) : 0)) * 4;
}

// One task, and its box of the result: a block of rows and a piece of columns at an index of the outer dimensions.
void add_task(MatmulPlan& plan, const Product& p, std::span<const int64_t> index, const Block& block, int64_t column,
              int64_t width) {
  Task t;
  std::vector<int64_t> begin, count;
  for (size_t d = 0; d < p.outer.size(); ++d) {
    t.a += index[d] * p.outer[d].a;
    t.b += index[d] * p.outer[d].b;
    t.c += index[d] * p.outer[d].c;
    begin.push_back(index[d]);
    count.push_back(1);
  }
  t.a += block.flat_begin * p.a.rs;
  t.c += block.flat_begin * p.c.rs + column * p.c.cs;
  if (plan.packed) {
    t.b = column * p.k;
    t.b_stride = width;
  } else {
    t.b += column * p.b.cs;
  }
  t.m = block.flat_count;
  t.n = width;
  begin.insert(begin.end(), block.begin.begin(), block.begin.end());
  count.insert(count.end(), block.count.begin(), block.count.end());
  begin.push_back(column);
  count.push_back(width);
  plan.tasks.push_back(t);
  plan.add_box(begin, count);
}

// Panels or rows change slowest, whichever are bigger, so that they are read once.
void add_tasks(MatmulPlan& plan, const Product& p, const Columns& columns, std::span<const Block> blocks) {
  std::vector<int64_t> index(p.outer.size(), 0);
  auto add = [&](const Block& block, int64_t i) {
    add_task(plan, p, index, block, columns.begin(i), columns.width(i));
  };
  for (int64_t o = p.count(); o > 0; --o) {
    if (p.n > p.rows) {
      for (int64_t i = 0; i < columns.count; ++i)
        for (const Block& block : blocks) add(block, i);
    } else {
      for (const Block& block : blocks)
        for (int64_t i = 0; i < columns.count; ++i) add(block, i);
    }
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < p.outer[d].size) break;
      index[d] = 0;
    }
  }
}

// Tasks that are worth handing to another core together: a few microseconds of 100 GFLOP/s, or 10 GB/s of weights.
int64_t grain_of(const Product& p, int64_t rows, int64_t width) {
  const auto k = static_cast<double>(std::max<int64_t>(p.k, 1)), columns = static_cast<double>(width);
  const double us = std::max(2e-5 * static_cast<double>(rows) * columns * k, 4e-4 * columns * k);
  return std::max<int64_t>(1, static_cast<int64_t>(3.0 / std::max(us, 1e-3)));
}

} // namespace

bool ProductSizes::empty() const {
  return m == 0 || n == 0 || std::any_of(batch.begin(), batch.end(), [](const Batch& d) { return d.size == 0; });
}

Result<ProductSizes> product_sizes(const Operand& a, const Operand& b, const Operand& c, const std::string& name) {
  auto contradiction = [&](const char* what) {
    return Diagnostic(ErrorCode::Internal, "product '" + name + "': " + what);
  };
  const size_t rank = c.shape.size();
  if (rank < 2 || a.shape.size() < 2 || b.shape.size() < 2 || a.shape.size() > rank || b.shape.size() > rank)
    return contradiction("ranks of the operands");
  ProductSizes out{c.shape[rank - 2], c.shape[rank - 1], a.shape.back(), {}};
  if (a.shape[a.shape.size() - 2] != out.m || b.shape[b.shape.size() - 2] != out.k || b.shape.back() != out.n)
    return contradiction("inner sizes of the operands");
  for (size_t d = 0; d + 2 < rank; ++d) {
    auto stride = [&](const Operand& o) {
      const size_t missing = rank - o.shape.size();
      return d < missing || o.shape[d - missing] == 1 ? 0 : o.strides[d - missing];
    };
    for (const Operand* o : {&a, &b})
      if (const size_t missing = rank - o->shape.size();
          d >= missing && o->shape[d - missing] != c.shape[d] && o->shape[d - missing] != 1)
        return contradiction("batch sizes of the operands");
    out.batch.push_back({c.shape[d], stride(a), stride(b), stride(c)});
  }
  return out;
}

Result<std::unique_ptr<LibraryPlan>> plan_matmul(const PlanContext& context, const Operand& a, const Operand& b,
                                                 const Operand& c) {
  TESSERA_ASSIGN(const ProductSizes sizes, product_sizes(a, b, c, context.name));
  auto plan = std::make_unique<MatmulPlan>();
  plan->rank = static_cast<int>(c.shape.size());
  plan->k = sizes.k;
  plan->a_buffer = a.buffer;
  plan->b_buffer = b.buffer;
  plan->c_buffer = c.buffer;
  plan->a_offset = a.offset;
  plan->b_offset = b.offset;
  plan->c_offset = c.offset;
  if (sizes.empty()) return std::unique_ptr<LibraryPlan>(std::move(plan));

  const Product product = fold_rows(sizes, a, b, c);
  plan->a_matrix = product.a;
  plan->b_matrix = product.b;
  plan->c_matrix = product.c;
  TESSERA_TRY(pack_weights(*plan, *context.packs, b, product));
  const Columns columns = cut_columns(product, plan->packed != nullptr, context);
  const std::vector<Block> blocks = cut_rows(product, columns, context);
  choose_packing(*plan, product, columns, blocks);
  add_tasks(*plan, product, columns, blocks);
  plan->grain = grain_of(product, most_rows(blocks), columns.widest());
  return std::unique_ptr<LibraryPlan>(std::move(plan));
}

} // namespace tessera
