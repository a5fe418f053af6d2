#include "codegen/layout/assign.h"
#include "codegen/layout/classes.h"
#include "codegen/layout/dot.h"
#include <algorithm>
#include <bit>
#include <sstream>

namespace tessera::layout {

using tile::Op;
using tile::OpId;
using tile::OpKind;
using tile::Type;
using tile::ValueId;

bool KernelLayouts::is_conversion(const Op& op) const {
  return op.kind == OpKind::Scalar && op.scalar == ScalarOp::Cast && kernel.type(op.results[0]).is_tile() &&
         kernel.type(op.operands[0]) == kernel.type(op.results[0]);
}

namespace {

bool is_access(const Op& op) {
  return op.kind == OpKind::Load || op.kind == OpKind::Store || op.kind == OpKind::Atomic;
}

// Visits the kernel once and supplies each operand in the layout that its operation requires: by a conversion behind
// the definition, or, for cheap values, by recomputing them in that layout.
class Rewriter {
public:
  Rewriter(const tile::Kernel& kernel, Classes classes) : c_(std::move(classes)), original_(kernel) {
    k_.kernel = kernel;
    k_.warps = c_.warps;
    k_.of_value = c_.of_value;
    k_.access_width = c_.access_width;
    k_.splits = c_.splits;
    k_.windows = c_.windows;
    definition_.assign(static_cast<size_t>(kernel.value_count()), -1);
    behind_.resize(static_cast<size_t>(kernel.op_count()));
    at_start_.resize(static_cast<size_t>(kernel.op_count()));
    versions_.resize(static_cast<size_t>(kernel.value_count()));
  }

  KernelLayouts run() {
    define(original_.body, -1);
    visit(original_.body);
    // Never requested: dead, or used by dead operations.
    for (ValueId v = 0; v < original_.value_count(); ++v)
      if (is_tile(v) && is_cheap(v) && versions_[at(v)].empty()) in_layout(v, c_.of_shape(shape(v)));
    k_.kernel.body = spliced(original_.body, {});
    k_.of_value.resize(static_cast<size_t>(k_.kernel.value_count()));
    k_.access_width.resize(static_cast<size_t>(k_.kernel.op_count()), 1);
    k_.splits.resize(static_cast<size_t>(k_.kernel.op_count()), false);
    k_.windows.resize(static_cast<size_t>(k_.kernel.op_count()));
    return std::move(k_);
  }

private:
  Classes c_;
  const tile::Kernel& original_;
  KernelLayouts k_;
  std::vector<OpId> definition_;            // by value: the operation, of block arguments -1
  std::map<ValueId, OpId> loop_of_;         // block arguments
  std::map<ValueId, OpId> inside_;          // the innermost loop around a definition; -1: none
  std::vector<std::vector<OpId>> behind_;   // by operation: operations to insert behind it
  std::vector<std::vector<OpId>> at_start_; // by loop: operations to insert at the start of its body
  std::vector<std::vector<ValueId>>
      versions_; // by value: its versions in other layouts; for cheap values, all versions

  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  [[nodiscard]] bool is_tile(ValueId v) const { return original_.type(v).is_tile(); }
  [[nodiscard]] bool is_cheap(ValueId v) const { return c_.cheap[at(v)]; }
  [[nodiscard]] const std::vector<int>& shape(ValueId v) const { return original_.type(v).shape; }

  void define(const std::vector<OpId>& block, OpId loop) {
    for (OpId id : block) {
      const Op& op = original_.op(id);
      for (ValueId v : op.results) {
        definition_[at(v)] = id;
        inside_[v] = loop;
      }
      for (const auto& args : op.region_args)
        for (ValueId v : args) {
          loop_of_[v] = id;
          inside_[v] = id;
        }
      for (const auto& region : op.regions) define(region, op.kind == OpKind::For ? id : loop);
    }
  }

  // The version of v in this layout.
  ValueId in_layout(ValueId v, const LinearLayout& layout) {
    if (!is_tile(v)) return v;
    if (!is_cheap(v) && c_.of_value[at(v)] == layout) return v;
    for (ValueId known : versions_[at(v)])
      if (k_[known] == layout) return known;
    bool first = versions_[at(v)].empty();
    Op copy;
    OpId home = definition_[at(v)], id = home;
    if (is_cheap(v)) {
      copy = original_.op(home);
      // The first requested version replaces the original.
      if (!first) id = -1;
      give_operands(copy, layout);
    } else {
      copy.kind = OpKind::Scalar;
      copy.scalar = ScalarOp::Cast;
      copy.operands = {v};
      id = -1;
    }
    ValueId result = v;
    if (id < 0) {
      result = k_.kernel.new_value(original_.type(v));
      copy.results = {result};
      id = k_.kernel.new_op(copy);
      (home >= 0 ? behind_[at(home)] : at_start_[at(loop_of_.at(v))]).push_back(id);
    } else {
      k_.kernel.op(id) = copy;
    }
    if (k_.of_value.size() <= at(result)) k_.of_value.resize(at(result) + 1);
    k_.of_value[at(result)] = layout;
    versions_[at(v)].push_back(result);
    return result;
  }

  // Operands of a pointwise operation, broadcast or expand_dims whose result has this layout.
  void give_operands(Op& op, const LinearLayout& layout) {
    for (ValueId& v : op.operands) {
      if (!is_tile(v)) continue;
      if (op.kind == OpKind::ExpandDims)
        v = in_layout(v, layout.drop_axis(op.axis));
      else if (op.kind == OpKind::Broadcast)
        v = in_layout(v, layout.project(shape(v)));
      else
        v = in_layout(v, layout);
    }
  }

  // In its own layout; a cheap value in `otherwise`.
  ValueId as_it_is(ValueId v, const LinearLayout& otherwise) { return is_cheap(v) ? in_layout(v, otherwise) : v; }

  void visit(const std::vector<OpId>& block) {
    for (OpId id : block) {
      Op op = original_.op(id);
      if (op.results.size() == 1 && is_tile(op.results[0]) && is_cheap(op.results[0]))
        continue; // recomputed on request
      give(id, op);
      for (const auto& region : op.regions) visit(region);
      k_.kernel.op(id) = std::move(op);
    }
  }

  void give(OpId id, Op& op) {
    auto layout_of_result = [&]() -> const LinearLayout& { return c_.of_value[at(op.results[0])]; };
    switch (op.kind) {
    case OpKind::Scalar:
    case OpKind::ExpandDims:
    case OpKind::Broadcast:
      if (is_tile(op.results[0])) give_operands(op, layout_of_result());
      return;
    case OpKind::Load:
    case OpKind::Store:
    case OpKind::Atomic:
      if (!is_tile(op.operands[1])) return;
      for (size_t i = 1; i < op.operands.size(); ++i) op.operands[i] = in_layout(op.operands[i], c_.of_access[at(id)]);
      return;
    case OpKind::ReportIndex: {
      ValueId& bad = op.operands[0];
      if (!is_tile(bad)) return;
      bad = as_it_is(bad, c_.of_shape(shape(bad)));
      const LinearLayout layout = k_[bad]; // a copy: new values move those in k_
      for (size_t i : {size_t{1}, size_t{2}})
        if (is_tile(op.operands[i])) op.operands[i] = in_layout(op.operands[i], layout);
      return;
    }
    case OpKind::Prefetch:
      for (ValueId& v : op.operands)
        if (is_tile(v)) v = as_it_is(v, c_.of_shape(shape(v)));
      return;
    case OpKind::Reduce: {
      // Any layout; value and index both use the value's.
      const LinearLayout& otherwise = c_.of_shape(shape(op.operands[0]));
      ValueId index = op.operands.back();
      op.operands[0] = as_it_is(op.operands[0], is_cheap(index) ? otherwise : c_.of_value[at(index)]);
      if (op.operands.size() == 2) {
        LinearLayout layout = k_[op.operands[0]]; // a copy: new values move those in k_
        op.operands[1] = in_layout(index, layout);
      }
      return;
    }
    case OpKind::Scan: op.operands[0] = in_layout(op.operands[0], layout_of_result()); return;
    case OpKind::Dot:
      if (on_tensor_cores(original_, op)) {
        DotLayouts l = dot_layouts(original_, op, c_.warps);
        if (auto left = left_layout(original_, id, c_.warps, c_.plan)) {
          op.operands[0] = in_layout(op.operands[0], *left);
          op.operands[1] = as_it_is(op.operands[1], l.b);
          op.operands[2] = in_layout(op.operands[2], layout_of_result());
          return;
        }
        // A left operand from outside the loop is converted there. Others are converted at their use: the whole right
        // operand at once would take too many registers.
        op.operands[0] = inside_.at(op.operands[0]) == inside_.at(op.results[0]) ? as_it_is(op.operands[0], l.a)
                                                                                 : in_layout(op.operands[0], l.a);
        op.operands[1] = as_it_is(op.operands[1], l.b);
      } else {
        for (size_t i : {size_t{0}, size_t{1}})
          op.operands[i] = as_it_is(op.operands[i], c_.of_shape(shape(op.operands[i])));
      }
      op.operands[2] = in_layout(op.operands[2], layout_of_result());
      return;
    case OpKind::For:
      for (size_t i = 0; i < op.results.size(); ++i)
        op.operands[i + 3] = in_layout(op.operands[i + 3], c_.of_value[at(op.region_args[0][i + 1])]);
      [[fallthrough]];
    case OpKind::If:
      for (const auto& region : op.regions) pending_[region.back()] = op.results;
      return;
    case OpKind::Yield:
      for (size_t i = 0; i < op.operands.size(); ++i)
        op.operands[i] = in_layout(op.operands[i], c_.of_value[at(pending_.at(id)[i])]);
      return;
    case OpKind::Const:
    case OpKind::ProgramId:
    case OpKind::NumPrograms:
    case OpKind::Range:
    case OpKind::Scratch:
    case OpKind::Arrive:
    case OpKind::GridBarrier:
    case OpKind::Exchange:
    case OpKind::Count_: return;
    }
  }
  std::map<OpId, std::vector<ValueId>> pending_; // by yield: results of the operation that it ends

  std::vector<OpId> spliced(const std::vector<OpId>& block, std::vector<OpId> start) {
    for (OpId id : block) {
      start.push_back(id);
      start.insert(start.end(), behind_[at(id)].begin(), behind_[at(id)].end());
      Op& op = k_.kernel.op(id);
      for (size_t r = 0; r < op.regions.size(); ++r)
        op.regions[r] =
            spliced(original_.op(id).regions[r], op.kind == OpKind::For ? at_start_[at(id)] : std::vector<OpId>{});
    }
    return start;
  }
};

Diagnostic refuse(const tile::Kernel& k, const std::string& what) {
  return {ErrorCode::CodegenError, "kernel " + k.name + ": " + what};
}

} // namespace

Result<KernelLayouts> assign_layouts(const tile::Kernel& kernel, std::optional<WarpgroupPlan> warpgroups) {
  int64_t warps = 4;
  if (auto it = kernel.config.find("warps"); it != kernel.config.end()) warps = it->second;
  if (warps < 1 || warps > 32 || !std::has_single_bit(static_cast<uint64_t>(warps)))
    return refuse(kernel, "a block has 1, 2, 4, 8, 16 or 32 warps, not " + std::to_string(warps));
  constexpr int64_t kMaxRegisters = 1024; // each becomes separate instructions
  for (ValueId v = 0; v < kernel.value_count(); ++v) {
    if (int64_t count = kernel.type(v).count(); count > kMaxRegisters * kLanes * warps)
      return refuse(kernel, "a tile of " + std::to_string(count) + " elements is too large for a block of " +
                                std::to_string(kLanes * warps) + " threads");
    for (int d : kernel.type(v).shape)
      if (!std::has_single_bit(static_cast<unsigned>(d)))
        return refuse(kernel,
                      "on a GPU tile dimensions are powers of two, not those of '" + kernel.type(v).str() + "'");
  }
  if (auto it = kernel.config.find("width");
      it != kernel.config.end() && (it->second < 1 || !std::has_single_bit(static_cast<uint64_t>(it->second))))
    return refuse(kernel, "config width is a power of two, not " + std::to_string(it->second));
  if (auto it = kernel.config.find("cluster"); it != kernel.config.end() && !is_cluster(it->second))
    return refuse(kernel, "config cluster is 1, 2, 4 or 8 programs, not " + std::to_string(it->second));
  KernelLayouts made =
      Rewriter(kernel, classify(kernel, static_cast<int>(warps), warpgroups ? &*warpgroups : nullptr)).run();
  made.warpgroups = std::move(warpgroups);
  return made;
}

namespace {

class Checker {
public:
  explicit Checker(const KernelLayouts& k) : k_(k) {}
  Status run() { return block(k_.kernel.body); }

private:
  const KernelLayouts& k_;

  [[nodiscard]] const Type& type(ValueId v) const { return k_.kernel.type(v); }
  static Diagnostic wrong(const std::string& what) { return {ErrorCode::Internal, "layouts: " + what}; }

  Status is(ValueId v, const LinearLayout& layout, const char* what) {
    if (!type(v).is_tile() || k_[v] == layout) return {};
    return wrong(std::string(what) + " has " + k_[v].str() + ", expected " + layout.str());
  }
  Status value(ValueId v) {
    if (!type(v).is_tile()) return {};
    const LinearLayout& l = k_[v];
    if (l.shape() != type(v).shape || l.warps() != k_.warps || l.in_bits(Dim::Lane) != kLaneBits)
      return wrong("a layout of another tile or block: " + l.str());
    if (!l.is_permutation() || !l.is_surjective() || l.free_mask(Dim::Register))
      return wrong("not a blocked layout or a slice of one: " + l.str());
    return {};
  }
  Status carried(const Op& op, size_t i, ValueId v) { return is(v, k_[op.results[i]], "a carried or yielded value"); }

  Status block(const std::vector<OpId>& ops) {
    for (OpId id : ops) {
      const Op& op = k_.kernel.op(id);
      for (ValueId v : op.results) TESSERA_TRY(value(v));
      TESSERA_TRY(check(id, op));
      for (const auto& region : op.regions) TESSERA_TRY(block(region));
    }
    return {};
  }

  Status check(OpId id, const Op& op) {
    auto result = [&]() -> const LinearLayout& { return k_[op.results[0]]; };
    switch (op.kind) {
    case OpKind::Scalar:
      if (k_.is_conversion(op)) return {};
      for (ValueId v : op.operands) TESSERA_TRY(is(v, result(), "an operand"));
      return {};
    case OpKind::ExpandDims:
      if (type(op.operands[0]).is_tile()) TESSERA_TRY(is(op.operands[0], result().drop_axis(op.axis), "an operand"));
      return {};
    case OpKind::Broadcast:
      if (type(op.operands[0]).is_tile())
        TESSERA_TRY(is(op.operands[0], result().project(type(op.operands[0]).shape), "an operand"));
      return {};
    case OpKind::Reduce:
      for (ValueId v : op.operands) TESSERA_TRY(is(v, k_[op.operands[0]], "an index"));
      for (ValueId v : op.results) TESSERA_TRY(is(v, k_[op.operands[0]].drop_axis(op.axis), "a reduction"));
      return {};
    case OpKind::Scan:
      if (!is_scannable(result(), op.axis)) return wrong("cannot scan along " + result().str());
      return is(op.operands[0], result(), "an operand");
    case OpKind::Dot:
      if (auto layout = accumulator_layout(k_.kernel, id, k_.warps, k_.warpgroups ? &*k_.warpgroups : nullptr))
        TESSERA_TRY(is(op.results[0], *layout, "a product"));
      if (auto layout = left_layout(k_.kernel, id, k_.warps, k_.warpgroups ? &*k_.warpgroups : nullptr))
        TESSERA_TRY(is(op.operands[0], *layout, "a left factor"));
      return is(op.operands[2], result(), "what a product is added to");
    case OpKind::For:
    case OpKind::If:
      for (size_t i = 0; i < op.results.size(); ++i) {
        if (op.kind == OpKind::For) {
          TESSERA_TRY(carried(op, i, op.operands[i + 3]));
          TESSERA_TRY(carried(op, i, op.region_args[0][i + 1]));
        }
        for (const auto& region : op.regions) TESSERA_TRY(carried(op, i, k_.kernel.op(region.back()).operands[i]));
      }
      return {};
    default: break;
    }
    if (!is_access(op) || !type(op.operands[1]).is_tile()) return {};
    const LinearLayout& layout = k_[op.operands[1]];
    for (size_t i = 2; i < op.operands.size(); ++i) TESSERA_TRY(is(op.operands[i], layout, "a part of an access"));
    for (ValueId v : op.results) TESSERA_TRY(is(v, layout, "a loaded tile"));
    int width = k_.access_width[static_cast<size_t>(id)], side = 1;
    for (const Extent& e : layout.out()) side = std::max(side, layout.contiguous(e.dim));
    const Window& window = k_.windows[static_cast<size_t>(id)];
    if (std::max(width, window.run) > side || (window.width > 0 && window.run % window.width != 0))
      return wrong("an access of " + std::to_string(std::max(width, window.run)) + " in " + layout.str());
    return {};
  }
};

} // namespace

Status verify_layouts(const KernelLayouts& layouts) {
  TESSERA_TRY(tile::verify(layouts.kernel));
  return Checker(layouts).run();
}

std::string KernelLayouts::str() const {
  // The printer writes one line per operation, in order; layouts are named at first use.
  std::vector<std::string> notes, legend;
  std::map<std::string, std::string> names;
  auto name_of = [&](const LinearLayout& l) {
    auto [it, fresh] = names.emplace(l.str(), "L" + std::to_string(names.size()));
    if (fresh) legend.push_back(it->second + " = " + it->first);
    return it->second;
  };
  auto walk = [&](auto&& self, const std::vector<OpId>& block) -> void {
    for (OpId id : block) {
      const Op& op = kernel.op(id);
      if (op.kind == OpKind::Yield && op.operands.empty()) continue;
      std::string note;
      for (ValueId v : op.results)
        if (kernel.type(v).is_tile()) note += (note.empty() ? "" : ", ") + name_of((*this)[v]);
      if (is_conversion(op)) note = name_of((*this)[op.operands[0]]) + " -> " + note;
      if (is_access(op) && kernel.type(op.operands[1]).is_tile()) {
        if (note.empty()) note = name_of((*this)[op.operands[1]]);
        note += " x" + std::to_string(access_width[static_cast<size_t>(id)]);
        if (splits[static_cast<size_t>(id)]) note += " split";
        if (const Window& w = windows[static_cast<size_t>(id)]; w.width > 0)
          note += " window " + std::to_string(w.width) + " of " + std::to_string(w.run);
      }
      notes.push_back(note);
      for (const auto& region : op.regions) self(self, region);
    }
  };
  walk(walk, kernel.body);
  std::istringstream text(tile::print(kernel));
  std::string line, out;
  size_t next = 0;
  for (bool first = true; std::getline(text, line); first = false) {
    size_t start = line.find_first_not_of(' ');
    bool operation = !first && start != std::string::npos && line[start] != '}';
    constexpr size_t kColumn = 72;
    if (operation && !notes[next].empty())
      line += std::string(std::max<size_t>(line.size() + 2, kColumn) - line.size(), ' ') + "// " + notes[next];
    next += operation;
    out += line + "\n";
  }
  for (const std::string& l : legend) out += "// " + l + "\n";
  return out;
}

} // namespace tessera::layout
