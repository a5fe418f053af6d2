// Suppression of boxes: a program takes a row. Each box is compared with those that are kept so far, a tile at a time.
#include "codegen/schedule/own_lowering.h"
#include "graph/ir/operator.h"
#include <algorithm>
#include <array>

namespace tessera {
namespace {

class Suppression : OwnLowering {
public:
  Suppression(const Graph& graph, const Node& node, const Target& device, const std::string& name)
      : OwnLowering(graph, node, device, name), corners_type_(type(0)), most_type_(type(2)),
        compute_(compute_dtype(corners_type_.dtype)) {}

  ScheduledKernel run() {
    const BlockSize block = block_size(device_, 4);
    width_ = gpu() ? block.threads : std::max(1, device_.vector_bytes / 4);
    if (gpu()) out_.kernel.config["warps"] = block.warps;
    corners_ = pointer("corners", corners_type_.dtype, false);
    V wanted = pointer("wanted", DType::Bool, false), most_at = pointer("most", most_type_.dtype, false),
      iou_at = pointer("iou", corners_type_.dtype, false);
    keep_ = pointer("keep", DType::Bool, true);
    kept_ = pointer("kept", compute_, true);
    boxes_ = size("boxes", corners_type_.shape[2]);
    all_ = size("all", corners_type_.shape[1] * corners_type_.shape[2]);
    V zero = constant(0), one = constant(1), no = b_.const_i(DType::Bool, 0);
    V program = b_.program_id(0);
    first_ = op(ScalarOp::Mul, program, boxes_);
    own_ = op(ScalarOp::Mul, first_, constant(4));
    V most = b_.cast(b_.load(most_at, zero), DType::I64), iou = b_.cast(b_.load(iou_at, zero), compute_);
    tiles(boxes_, [&](V box, V mask) { b_.store(keep_, op(ScalarOp::Add, box, first_), full(no), mask); });
    b_.for_loop(zero, boxes_, one, {zero}, [&](V i, std::span<const V> c) -> Values {
      V count = c[0], at = op(ScalarOp::Add, first_, i);
      V candidate = op(ScalarOp::And, b_.load(wanted, at), op(ScalarOp::Lt, count, most));
      V added = b_.if_else(
          candidate,
          [&]() -> Values {
            const Box box = corners_of(corners_, at, all_, -1);
            V hits = b_.for_loop(zero, count, constant(width_), {full(no)}, [&](V t, std::span<const V> any) -> Values {
              V k = op(ScalarOp::Add, b_.range(width_), t), mask = op(ScalarOp::Lt, k, count);
              V hit = overlaps(box, corners_of(kept_, op(ScalarOp::Add, k, own_), boxes_, mask), iou);
              return {op(ScalarOp::Or, any[0], op(ScalarOp::And, hit, mask))};
            })[0];
            V good = b_.scalar(ScalarOp::Not, std::array{b_.reduce(ReduceKind::Any, hits, 0)});
            for (size_t corner = 0; corner < box.size(); ++corner) {
              V offset = op(ScalarOp::Mul, boxes_, constant(static_cast<int64_t>(corner)));
              b_.store(kept_, op(ScalarOp::Add, op(ScalarOp::Add, own_, count), offset), box[corner], good);
            }
            b_.store(keep_, at, good);
            return {select(good, one, zero)};
          },
          [&] { return Values{zero}; })[0];
      return {op(ScalarOp::Add, count, added)};
    });
    describe();
    return std::move(out_);
  }

private:
  using Box = std::array<V, 4>; // y0, x0, y1, x1

  V full(V v) { return b_.broadcast(v, {width_}); }
  // Tiles of boxes up to `end`: numbers and mask.
  void tiles(V end, const std::function<void(V, V)>& body) {
    b_.for_loop(constant(0), end, constant(width_), {}, [&](V i, std::span<const V>) -> Values {
      V box = op(ScalarOp::Add, b_.range(width_), i);
      body(box, op(ScalarOp::Lt, box, end));
      return {};
    });
  }
  // Corners of boxes at `at`; a corner's numbers are `pitch` elements after those of the one before it.
  Box corners_of(V memory, V at, V pitch, V mask) {
    Box box;
    for (int64_t k = 0; k < 4; ++k)
      box[static_cast<size_t>(k)] =
          b_.cast(b_.load(memory, op(ScalarOp::Add, at, op(ScalarOp::Mul, pitch, constant(k))), mask), compute_);
    return box;
  }
  V area(const Box& a) { return op(ScalarOp::Mul, op(ScalarOp::Sub, a[2], a[0]), op(ScalarOp::Sub, a[3], a[1])); }
  V overlaps(const Box& a, const Box& b, V iou) {
    V zero = b_.const_f(compute_, 0);
    V h = op(ScalarOp::Sub, op(ScalarOp::Min, a[2], b[2]), op(ScalarOp::Max, a[0], b[0]));
    V w = op(ScalarOp::Sub, op(ScalarOp::Min, a[3], b[3]), op(ScalarOp::Max, a[1], b[1]));
    V both = op(ScalarOp::Mul, h, w);
    V share = op(ScalarOp::Div, both, op(ScalarOp::Sub, op(ScalarOp::Add, area(a), area(b)), both));
    V overlap = op(ScalarOp::And, op(ScalarOp::Gt, h, zero), op(ScalarOp::Gt, w, zero));
    return op(ScalarOp::Gt, select(overlap, share, zero), iou);
  }

  void describe() {
    out_.schedule.kind = gpu() ? ScheduleKind::BlockLoop : ScheduleKind::RowLoop;
    out_.schedule.tile.columns = width_;
    out_.why = "boxes of a row in order, each compared with those that are kept";
    out_.workspaces.push_back({compute_, env_.simplify(corners_type_.shape[1] * corners_type_.shape[2] * 4)});
    out_.buffers = {node_.operands[0], node_.operands[1], node_.operands[2], node_.operands[3], node_.results[0]};
    out_.written = {false, false, false, false, true};
    out_.may_overwrite.resize(out_.buffers.size());
    set_grid(corners_type_.shape[1]);
    const SymExpr boxes = corners_type_.shape[2];
    out_.work_per_program = boxes * boxes;
    out_.scratch_bytes = 0;
    out_.predicted = time_of_bytes(env_, device_, corners_type_.count() * byte_size(corners_type_.dtype, 1));
  }

  const TensorType corners_type_, most_type_;
  const DType compute_;
  int width_ = 1; // boxes of a tile
  V corners_ = -1, keep_ = -1, kept_ = -1, boxes_ = -1, all_ = -1;
  V first_ = -1, own_ = -1; // offsets of the row's flags, and of the corners that it keeps
};

} // namespace

Result<std::vector<ScheduledKernel>> lower_suppress(const Graph& graph, const Node& node, const Target& device,
                                                    const std::string& name) {
  std::vector<ScheduledKernel> kernels;
  kernels.push_back(Suppression(graph, node, device, name).run());
  return kernels;
}

} // namespace tessera
