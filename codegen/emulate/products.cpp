#include "codegen/emulate/products.h"
#include "base/dtype.h"
#include "codegen/emulate/block.h"
#include <bit>
#include <cstring>

namespace tessera::emu {

namespace {

constexpr int kRows = 64, kBytesOfK = 32, kRowUnit = 16;

// Tokens: a quiet NaN with 15 bits of the product and 7 of the register; never all ones, as shared memory begins.
constexpr uint32_t kToken = 0xffc00000, kTokenIds = 32767;
uint32_t token(uint32_t id, int reg) { return kToken | id % kTokenIds << 7 | static_cast<uint32_t>(reg); }
std::optional<uint32_t> id_of(uint32_t word) {
  if ((word & kToken) != kToken) return {};
  return word >> 7 & 0x7fff;
}

DType dtype(int32_t number) { return static_cast<DType>(number); }
int k_of(const TesseraEmuProduct& form) { return 8 * kBytesOfK / info(dtype(form.a_dtype)).bits; }

// Row and column of a thread's accumulator.
int row_of(int thread, int reg) { return thread / kWarp * 16 + thread % kWarp / 4 + (reg / 2 % 2) * 8; }
int column_of(int thread, int reg) { return reg / 4 * 8 + thread % 4 * 2 + reg % 2; }

} // namespace

int64_t Products::Matrix::at(int row, int byte) const {
  const int64_t width = swizzle == Swizzle::None ? kRowUnit : swizzle_bytes(swizzle);
  int64_t offset = 0;
  if (!transposed) {
    offset = row / 8 * stride + row % 8 * width + byte;
    if (swizzle == Swizzle::None) offset += byte / kRowUnit * leading - byte / kRowUnit * kRowUnit;
  } else { // elements of two bytes
    const int k = byte / 2, column = 2 * row;
    const int64_t tile = column / width, group = k / 8;
    offset = (swizzle == Swizzle::None ? tile * stride + group * leading : tile * leading + group * stride) +
             k % 8 * width + column % width + byte % 2;
  }
  return swizzled(swizzle, begin + offset);
}

void Products::begin() { groups_.assign(static_cast<size_t>(block_.launch().threads / kWarpgroup), {}); }

Products::Group& Products::group_of(const Thread& t) {
  auto& g = groups_[static_cast<size_t>(t.index / kWarpgroup)];
  if (g.agent < 0)
    g.agent = order_.add_agent("a product of warpgroup " + std::to_string(t.index / kWarpgroup) + block_.of_block());
  return g;
}

void Products::fence(Thread& t, int32_t site) {
  if (!block_.gather_warpgroup(t, Collective::BeginProducts, site)) return;
  Group& g = group_of(t);
  if (std::any_of(g.started.begin(), g.started.end(), [](const Product& p) { return p.form.a_in_registers != 0; }))
    return block_.fail(t, "it orders registers with products while one in flight reads its left factor from registers, "
                          "which an assembler may have given to other values");
  g.fenced = true;
  block_.scatter_warpgroup(t);
}

void Products::multiply(Thread& t, const ProductOperands& operands, int32_t site) {
  t.product = operands;
  if (!block_.gather_warpgroup(t, Collective::MultiplyWarpgroup, site)) return;
  auto& g = group_of(t);
  if (check_form(t, g)) start(t, g);
  if (!block_.failed()) block_.scatter_warpgroup(t);
}

bool Products::check_form(const Thread& t, const Group&) {
  const auto& form = *t.product.form;
  const int first = t.index / kWarpgroup * kWarpgroup;
  for (int i = first; i < first + kWarpgroup; ++i) {
    const auto& p = block_.thread(i).product;
    const bool same_a = form.a_in_registers || std::memcmp(p.a, t.product.a, sizeof(uint64_t)) == 0;
    if (std::memcmp(p.form, &form, sizeof form) != 0 || p.b != t.product.b || !same_a ||
        p.accumulates != t.product.accumulates)
      block_.fail(t, "its descriptors differ from those of " + order_.name(block_.agent(i)) + " of its warpgroup");
  }
  const DType a = dtype(form.a_dtype), b = dtype(form.b_dtype);
  auto small_float = [](DType d) { return d == DType::F8E4M3FN || d == DType::F8E5M2; };
  auto byte = [](DType d) { return d == DType::I8 || d == DType::U8; };
  const bool halves = a == b && (a == DType::F16 || a == DType::BF16);
  const bool types =
      halves || (a == b && a == DType::F32) || (small_float(a) && small_float(b)) || (byte(a) && byte(b));
  const bool columns =
      form.n % 8 == 0 && form.n >= 8 && form.n <= 256 && (!byte(a) || form.n <= 32 || form.n % 16 == 0);
  const bool transposes = halves || (!form.a_transposed && !form.b_transposed);
  if (!types || !columns || !transposes || (byte(a) && form.n == 40) || (form.a_in_registers && form.a_transposed))
    block_.fail(t, "no product of a warpgroup has " + std::string(name(a)) + " times " + std::string(name(b)) +
                       " with n " + std::to_string(form.n) + " and these operands");
  return !block_.failed();
}

std::optional<Products::Matrix> Products::matrix(const Thread& t, uint64_t descriptor, bool transposed) {
  constexpr Swizzle kModes[] = {Swizzle::None, Swizzle::Bytes128, Swizzle::Bytes64, Swizzle::Bytes32};
  constexpr uint64_t kUsed = 0x3fff | uint64_t{0x3fff} << 16 | uint64_t{0x3fff} << 32 | uint64_t{3} << 62;
  auto field = [&](int shift) { return static_cast<int64_t>(descriptor >> shift & 0x3fff) * kRowUnit; };
  Matrix m{field(0), field(16), field(32), kModes[descriptor >> 62], transposed};
  const int64_t width = swizzle_bytes(m.swizzle);
  const int64_t in_pattern = m.begin % swizzle_alignment(m.swizzle);
  const bool whole_rows = transposed || in_pattern + kBytesOfK <= width;
  if ((descriptor & ~kUsed) != 0)
    block_.fail(t, "its matrix descriptor has bits that mean nothing");
  else if (width > 0 && (in_pattern >= width || !whole_rows))
    block_.fail(t, "its matrix descriptor begins at offset " + std::to_string(m.begin) + ", which is not aligned to " +
                       std::to_string(swizzle_alignment(m.swizzle)));
  if (block_.failed()) return {};
  return m;
}

// Marks what a product reads, 16 bytes at a time.
void Products::read(Thread& t, const Group& g, const Matrix& m, int rows, const Known& known) {
  const Stamp stamp{g.agent, g.committed + 1};
  const int along_rows = m.transposed ? 8 : 1, bytes = m.transposed ? 2 : kRowUnit;
  for (int row = 0; row < rows && !block_.failed(); row += along_rows)
    for (int byte = 0; byte < kBytesOfK && !block_.failed(); byte += bytes)
      block_.touch(t, m.at(row, byte), kRowUnit, stamp, known, Access::Read, Proxy::Async);
}

// The product whose accumulators the threads give, if it is in flight or has been computed.
std::optional<uint32_t> Products::chained(const Thread& t, const Group& g) {
  const int first = t.index / kWarpgroup * kWarpgroup;
  const auto id = id_of(block_.thread(first).product.accumulators[0]);
  if (!id) return {};
  const bool started =
      std::any_of(g.started.begin(), g.started.end(), [&](const Product& p) { return p.id % kTokenIds == *id; });
  const bool computed =
      std::any_of(g.computed.begin(), g.computed.end(), [&](const auto& p) { return p.first % kTokenIds == *id; });
  if (!started && !computed) return {};
  for (int i = first; i < first + kWarpgroup; ++i)
    for (int reg = 0; reg < t.product.form->n / 2; ++reg)
      if (block_.thread(i).product.accumulators[reg] != token(*id, reg)) {
        if (t.product.accumulates)
          block_.fail(t, "accumulators of a product of its warpgroup changed before the product was waited for");
        return {};
      }
  return id;
}

void Products::start(Thread& t, Group& g) {
  const auto& form = *t.product.form;
  const int first = t.index / kWarpgroup * kWarpgroup, count = form.n / 2;
  Product p;
  p.id = g.products + 1;
  p.group = g.committed + 1;
  p.form = form;
  p.accumulates = t.product.accumulates;
  p.before = chained(t, g);
  if (block_.failed()) return;
  if (!g.fenced && (!p.before || form.a_in_registers))
    return block_.fail(t, "its warpgroup's product uses registers that no fence orders with it (wgmma.fence)");
  Known known = order_.of(block_.agent(first));
  for (int i = first + 1; i < first + kWarpgroup; ++i) known.intersect(order_.of(block_.agent(i)));
  if (!form.a_in_registers) {
    uint64_t descriptor = 0;
    std::memcpy(&descriptor, t.product.a, sizeof descriptor);
    const auto a = matrix(t, descriptor, form.a_transposed != 0);
    if (!a) return;
    p.a = *a;
    read(t, g, p.a, kRows, known);
  }
  const auto b = matrix(t, t.product.b, form.b_transposed != 0);
  if (!b) return;
  p.b = *b;
  read(t, g, p.b, form.n, known);
  if (block_.failed()) return;
  ++g.products;
  for (int i = first; i < first + kWarpgroup; ++i) {
    const auto& operands = block_.thread(i).product;
    if (form.a_in_registers) {
      const auto* words = static_cast<const uint32_t*>(operands.a);
      p.a_registers.insert(p.a_registers.end(), words, words + 4);
    }
    if (!p.before) p.accumulators.insert(p.accumulators.end(), operands.accumulators, operands.accumulators + count);
    for (int reg = 0; reg < count; ++reg) operands.accumulators[reg] = token(p.id, reg);
  }
  g.started.push_back(std::move(p));
}

// Products are exact and their sum is rounded once. Tensor cores keep fewer bits.
void Products::compute(Group& g, const Product& p) {
  const int k = k_of(p.form), n = p.form.n, count = n / 2;
  const DType a_type = dtype(p.form.a_dtype), b_type = dtype(p.form.b_dtype);
  const int element_bytes = kBytesOfK / k;
  std::vector<double> a(static_cast<size_t>(kRows * k)), b(static_cast<size_t>(n * k)); // a[row][k], b[k][column]
  const auto* shared = block_.shared_data();
  for (int row = 0; row < kRows && !p.form.a_in_registers; ++row)
    for (int i = 0; i < k; ++i)
      a[static_cast<size_t>(row * k + i)] = matrix_element(a_type, shared + p.a.at(row, i * element_bytes));
  for (size_t i = 0; i < p.a_registers.size(); ++i) { // registers 2 q + h of thread i / 4
    const int thread = static_cast<int>(i / 4), q = static_cast<int>(i % 4 / 2), h = static_cast<int>(i % 2);
    const int row = thread / kWarp * 16 + thread % kWarp / 4 + 8 * h, byte = 16 * q + 4 * (thread % 4);
    const auto* word = reinterpret_cast<const std::byte*>(&p.a_registers[i]);
    for (int at = 0; at < 4; at += element_bytes)
      a[static_cast<size_t>(row * k + (byte + at) / element_bytes)] = matrix_element(a_type, word + at);
  }
  for (int column = 0; column < n; ++column)
    for (int i = 0; i < k; ++i)
      b[static_cast<size_t>(i * n + column)] = matrix_element(b_type, shared + p.b.at(column, i * element_bytes));
  std::vector<double> sums(static_cast<size_t>(kRows * n));
  for (int row = 0; row < kRows; ++row)
    for (int i = 0; i < k; ++i)
      for (int column = 0; column < n; ++column)
        sums[static_cast<size_t>(row * n + column)] +=
            a[static_cast<size_t>(row * k + i)] * b[static_cast<size_t>(i * n + column)];

  std::vector<uint32_t> words = p.accumulators;
  if (p.before) {
    auto before = std::find_if(g.computed.begin(), g.computed.end(),
                               [&](const auto& c) { return c.first % kTokenIds == *p.before; });
    words = std::move(before->second);
    g.computed.erase(before);
  }
  for (int thread = 0; thread < kWarpgroup; ++thread)
    for (int reg = 0; reg < count; ++reg) {
      auto& word = words[static_cast<size_t>(thread * count + reg)];
      const double sum = sums[static_cast<size_t>(row_of(thread, reg) * n + column_of(thread, reg))];
      if (is_integer(a_type))
        word = (p.accumulates ? word : 0) + static_cast<uint32_t>(static_cast<int64_t>(sum));
      else
        word = std::bit_cast<uint32_t>(
            static_cast<float>((p.accumulates ? double{std::bit_cast<float>(word)} : 0.0) + sum));
    }
  g.computed[p.id] = std::move(words);
}

void Products::commit(Thread& t, int32_t site) {
  if (!block_.gather_warpgroup(t, Collective::CommitProducts, site)) return;
  ++group_of(t).committed;
  block_.scatter_warpgroup(t);
}

void Products::wait(Thread& t, int64_t later, uint32_t* accumulators, int count, int32_t site) {
  t.product.accumulators = accumulators;
  t.value = static_cast<uint32_t>(count);
  if (!block_.gather_warpgroup(t, Collective::WaitForProducts, site)) return;
  finish(t, group_of(t), later);
  block_.scatter_warpgroup(t);
}

// Accumulators of products that are still in flight stay tokens.
void Products::finish(Thread& t, Group& g, int64_t later) {
  const uint32_t last = g.committed > later ? static_cast<uint32_t>(g.committed - later) : 0;
  while (!g.started.empty() && g.started.front().group <= last) {
    compute(g, g.started.front());
    g.started.pop_front();
  }
  g.fenced = false;
  const int first = t.index / kWarpgroup * kWarpgroup, count = static_cast<int>(t.value);
  std::vector<uint32_t> taken;
  for (int i = 0; i < kWarpgroup; ++i) {
    order_.of(block_.agent(first + i)).events.advance(g.agent, last);
    auto* words = block_.thread(first + i).product.accumulators;
    for (int w = 0; w < count; ++w)
      for (const auto& [id, values] : g.computed) {
        const auto registers = values.size() / kWarpgroup;
        const auto reg = words[w] & 0x7f;
        if (reg >= registers || words[w] != token(id, static_cast<int>(reg))) continue;
        words[w] = values[static_cast<size_t>(i) * registers + reg];
        if (i == 0 && (taken.empty() || taken.back() != id)) taken.push_back(id);
        break;
      }
  }
  for (const uint32_t id : taken) g.computed.erase(id);
}

void Products::end(const Thread& t) {
  const auto group = static_cast<size_t>(t.index / kWarpgroup); // its last warps may be in none
  if (group < groups_.size() && !groups_[group].started.empty())
    block_.fail(t, "it ends before its warpgroup's products have been waited for");
  if (group < groups_.size() && !groups_[group].computed.empty())
    block_.fail(t, "it ends without the sums of a product of its warpgroup: no wait yields them");
}

} // namespace tessera::emu
