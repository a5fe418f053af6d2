// ONNX's Scan in terms of scan_graph: any axes from opset 9 on, and the batches of opset 8.
#include "graph/ops/control.h"
#include "graph/ops/parts.h"

namespace tessera {

namespace {
using namespace ops;

// Whether a Scan has all that it counts; fails BadAttribute.
bool whole(B& b, const Node& n, const Ints& captures) {
  const auto* body = n.attributes.get<std::shared_ptr<Graph>>("body");
  if (captures.size() != 1 || captures[0] < 0 || captures[0] > static_cast<int64_t>(n.operands.size()))
    b.fail(ErrorCode::BadAttribute, "the number of captured values of Scan is none");
  if (body == nullptr || *body == nullptr) b.fail(ErrorCode::BadAttribute, "Scan lacks its body");
  for (ValueId v : n.operands)
    if (!v.valid()) b.fail(ErrorCode::BadAttribute, "Scan leaves out an operand");
  return b.ok();
}

// ONNX's Scan from 9 on: any axes.
OpDef scan_onnx_record() {
  OpDef def = composite(
      "Scan", "a graph for each slice along an axis", {{"values", TypeSet::Any, true, true}},
      [](Graph& g, const Node& n, int count) {
        B b(g, n);
        const auto scanned = n.attributes.i("num_scan_inputs");
        const Ints captures = n.attributes.ints("captures");
        if (!whole(b, n, captures)) return b.failed();
        const auto own = static_cast<int64_t>(n.operands.size()) - captures[0];
        if (scanned < 1 || scanned > own)
          b.fail(ErrorCode::BadAttribute,
                 "Scan scans " + std::to_string(scanned) + " of " + std::to_string(own) + " operands");
        if (!b.ok()) return b.failed();
        auto list = [&](std::string_view name, int64_t size) {
          Ints given = n.attributes.ints(name);
          if (!given.empty() && static_cast<int64_t>(given.size()) != size)
            b.fail(ErrorCode::BadAttribute, "'" + std::string(name) + "' of Scan has " + std::to_string(given.size()) +
                                                " numbers, expected " + std::to_string(size));
          given.resize(static_cast<size_t>(std::max<int64_t>(size, 0)));
          return given;
        };
        const auto* body = n.attributes.get<std::shared_ptr<Graph>>("body");
        const auto carried = own - scanned;
        const auto stacked = static_cast<int64_t>((*body)->outputs().size()) - carried;
        if (b.ok() && (carried < 0 || stacked < 0))
          b.fail(ErrorCode::BadAttribute, "the body of Scan has " + std::to_string((*body)->outputs().size()) +
                                              " outputs for " + std::to_string(carried) + " states");
        const Ints in_axes = list("scan_input_axes", scanned), out_axes = list("scan_output_axes", stacked);
        const Ints in_directions = list("scan_input_directions", scanned),
                   out_directions = list("scan_output_directions", stacked);
        if (!b.ok()) return b.done(ValueId{});
        // The axis comes first, or goes back to its place.
        auto moved = [&](ValueId v, int64_t axis, bool to_front) {
          const int rank = b.rank(v);
          if (axis < -rank || axis >= rank) {
            b.fail(ErrorCode::BadAttribute,
                   "axis " + std::to_string(axis) + " of Scan for a tensor of rank " + std::to_string(rank));
            return v;
          }
          if (axis < 0) axis += rank;
          if (axis == 0) return v;
          Ints perm;
          for (int64_t d = 0; d < rank; ++d) perm.push_back(d);
          if (to_front) {
            perm.erase(perm.begin() + axis);
            perm.insert(perm.begin(), axis);
          } else {
            perm.erase(perm.begin());
            perm.insert(perm.begin() + axis, 0);
          }
          return transpose(b, v, perm);
        };
        std::vector<ValueId> operands = n.operands;
        for (int64_t k = 0; k < scanned; ++k) {
          ValueId& v = operands[static_cast<size_t>(carried + k)];
          v = moved(v, in_axes[static_cast<size_t>(k)], true);
        }
        if (!b.ok()) return b.done(ValueId{});
        std::vector<ValueId> results = b.ops("scan_graph", std::move(operands),
                                             {{"body", *body},
                                              {"captures", captures},
                                              {"num_scan_inputs", scanned},
                                              {"reverse_inputs", in_directions},
                                              {"reverse_outputs", out_directions}},
                                             count);
        for (size_t r = static_cast<size_t>(carried); r < results.size() && b.ok(); ++r)
          results[r] = moved(results[r], out_axes[r - static_cast<size_t>(carried)], false);
        return b.done(std::move(results));
      });
  def.onnx = {{"Scan", "", 9}};
  def.max_results = 1 << 20;
  def.data_dependent_shape = true;
  def.attributes = {{"body", AttrKind::Graph, true},
                    {"captures", AttrKind::Ints, false, Ints{0}},
                    {"num_scan_inputs", AttrKind::Int, true},
                    {"scan_input_axes", AttrKind::Ints, false, Ints{}},
                    {"scan_input_directions", AttrKind::Ints, false, Ints{}},
                    {"scan_output_axes", AttrKind::Ints, false, Ints{}},
                    {"scan_output_directions", AttrKind::Ints, false, Ints{}}};
  def.samples = [] {
    return std::vector<Sample>{sample({random(DType::F32, {2, 4}, 3)}, {{"body", sample_body("mul", 0, false)},
                                                                        {"num_scan_inputs", int64_t{1}},
                                                                        {"scan_input_axes", Ints{1}},
                                                                        {"scan_output_axes", Ints{-1}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({floats({2, 2}, {1, 2, 3, 4})},
              {{"body", sample_body("mul", 0, false)}, {"num_scan_inputs", int64_t{1}}, {"scan_input_axes", Ints{2}}},
              ErrorCode::BadAttribute, "axis 2")};
  };
  return def;
}

// ONNX's Scan of opset 8: dimension 0 of everything is a batch. A scan over that, whose body is the scan itself.
OpDef scan_of_batch_record() {
  OpDef def =
      composite("ScanOfBatch", "a graph for each slice along dimension 1, for each element of a batch",
                {{"values", TypeSet::Any, true, true}}, [](Graph& g, const Node& n, int count) {
                  B b(g, n);
                  const auto scanned = n.attributes.i("num_scan_inputs");
                  const Ints captures = n.attributes.ints("captures");
                  if (!whole(b, n, captures)) return b.failed();
                  const auto captured = captures[0];
                  const auto own = static_cast<int64_t>(n.operands.size()) - captured;
                  if (scanned < 1 || scanned > own)
                    b.fail(ErrorCode::BadAttribute,
                           "Scan scans " + std::to_string(scanned) + " of " + std::to_string(own) + " operands");
                  auto element = std::make_shared<Graph>("element", std::make_shared<ShapeEnv>(g.env().inner()));
                  std::vector<ValueId> inputs;
                  for (size_t k = 0; k < n.operands.size() && b.ok(); ++k) {
                    TensorType type = g.type(n.operands[k]);
                    if (static_cast<int64_t>(k) < own) {
                      if (type.shape.empty()) b.fail(ErrorCode::ShapeMismatch, "Scan takes batches, not a scalar");
                      if (b.ok()) type.shape.erase(type.shape.begin());
                    }
                    inputs.push_back(element->add_input("v" + std::to_string(k), std::move(type)));
                  }
                  if (!b.ok()) return b.failed();
                  const auto* body = n.attributes.get<std::shared_ptr<Graph>>("body");
                  std::vector<std::string> names((*body)->outputs().size());
                  auto inner = element->add_node(*OpTable::get().find("scan_graph"), inputs,
                                                 {{"body", *body},
                                                  {"captures", Ints{captured}},
                                                  {"num_scan_inputs", scanned},
                                                  {"reverse_inputs", n.attributes.ints("scan_input_directions")}},
                                                 n.location, names);
                  if (!inner.ok()) {
                    b.fail(inner.error());
                    return b.failed();
                  }
                  for (size_t r = 0; r < names.size(); ++r)
                    element->add_output("r" + std::to_string(r), element->node(*inner).results[r]);
                  return b.done(b.ops(
                      "scan_graph", n.operands,
                      {{"body", std::move(element)}, {"captures", Ints{captured}}, {"num_scan_inputs", own}}, count));
                });
  def.onnx = {{"Scan", "", 8, 8}};
  def.max_results = 1 << 20;
  def.data_dependent_shape = true;
  def.attributes = {{"body", AttrKind::Graph, true},
                    {"captures", AttrKind::Ints, false, Ints{0}},
                    {"num_scan_inputs", AttrKind::Int, true},
                    {"scan_input_directions", AttrKind::Ints, false, Ints{}}};
  def.samples = [] {
    return std::vector<Sample>{sample({random(DType::F32, {3, 4, 2}, 3)},
                                      {{"body", sample_body("mul", 0, false)}, {"num_scan_inputs", int64_t{1}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({floats({}, {1})},
                                          {{"body", sample_body("mul", 0, false)}, {"num_scan_inputs", int64_t{1}}},
                                          ErrorCode::ShapeMismatch, "not a scalar")};
  };
  return def;
}

} // namespace

void register_scan_onnx_ops(OpTable& table) {
  table.add(scan_onnx_record());
  table.add(scan_of_batch_record());
}

} // namespace tessera
