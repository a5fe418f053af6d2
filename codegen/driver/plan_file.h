// Plan files: the decisions of a compile as JSON, and back, so that another compile makes the same ones.
//
// A file pins which nodes form each group (fusion/constraints.h), the schedules of each kernel with the extents for which
// each was found to be right, and what computes each structured operator. It also has the operators that were kept
// apart. Keys of nodes are the same for the same model and passes, whatever the device's figures, sizes, tuned records
// and version of the cost model are: what is replayed gives the same kernels, and bit-identical results on the same
// device. Each entry is checked by the same code that decides otherwise: what does not fit is reported with its reason,
// and decided anew.
//
//   {"schema": {"name": "tessera.plan", "version": 1},
//    "target": "cpu x86-64 avx512", "no_fuse": [["Add_3", "Mul_4"]], "break_at": ["Tanh_9"],
//    "groups": [{"name": "k0_add_mul", "kind": "kernel", "route": "generated code", "operators": ["Add_3", ...],
//                "nodes": ["Add_3/add", ...], "stages": ["Add_3/add"], "reads": [],
//                "schedules": [{"schedule": "flat axis=1 vector=16", "extents": [{}, {"min": 1, "max": 64}]}]}],
//    "bodies": {"If_7/if.0": {"groups": ...}}}
//
// "strict": true makes what does not fit an error.
#pragma once
#include "codegen/compilation/requests.h"
#include "codegen/driver/compile.h"

namespace tessera {

// The decisions of a compile, bodies of control flow included.
[[nodiscard]] std::string print_plan_file(const Compiled& compiled);
// Errors: CorruptFile, which names the file, the entry and what is wrong with it; UnsupportedFeature for a later version.
[[nodiscard]] Result<std::shared_ptr<const PlanFile>> parse_plan_file(std::string_view text, const std::string& file);
[[nodiscard]] Result<std::shared_ptr<const PlanFile>> read_plan_file(const std::string& file);
// "If_7/if.0": body `index` of a control-flow node.
[[nodiscard]] std::string body_key(const NodeKeys& keys, NodeId node, size_t index);

} // namespace tessera
