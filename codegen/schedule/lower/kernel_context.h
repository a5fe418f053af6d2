// State shared by both lowerings, private to the folder: the nest and its domain, the kernel under construction, and
// the progress of its reductions.
#pragma once
#include "codegen/schedule/lower/sizes.h"
#include "codegen/schedule/needs.h"
#include "codegen/schedule/online.h"
#include "codegen/schedule/schedule.h"
#include "codegen/schedule/shapes.h"
#include "codegen/schedule/stages.h"

namespace tessera {

struct KernelContext {
  // `stages`: of loops over the row; empty if there are none. `online`: sums that are folded online.
  KernelContext(const Graph& graph, const LoopNest& nest, const Domain& domain, OnlineSums online, Stages stages,
                const std::string& name);
  KernelContext(const KernelContext&) = delete;
  KernelContext& operator=(const KernelContext&) = delete;

  void add_buffers(); // adds a pointer parameter for each buffer

  const Graph& graph;
  const LoopNest& nest;
  const Domain& d;
  const OnlineSums online;
  ScheduledKernel out;
  tile::Builder b;
  SizeEmitter sizes;
  const Stages stages;
  const Needs needs;
  std::vector<tile::ValueId> pointers; // by buffer
  const bool row_may_be_empty;
  bool exact_division = false;
  // State during emission.
  int round = -1; // the stage whose loop is being emitted; -1: none
  int known = 0;  // number of stages whose reductions are known

protected:
  ~KernelContext() = default;
};

// Base of the parts: short names for the context's members.
class KernelPart {
public:
  KernelPart(const KernelPart&) = delete;
  KernelPart& operator=(const KernelPart&) = delete;

protected:
  using V = tile::ValueId;
  explicit KernelPart(KernelContext& c)
      : graph_(c.graph), nest_(c.nest), d_(c.d), stages_(c.stages), online_(c.online), out_(c.out), b_(c.b),
        sizes_(c.sizes) {}
  ~KernelPart() = default;

  [[nodiscard]] const ScalarNode& node(ScalarId id) const { return nest_.dag[id]; }
  [[nodiscard]] bool is_tile(V v) const { return b_.kernel().type(v).is_tile(); }
  V op(ScalarOp o, V x, V y) { return sizes_.op(o, x, y); }
  V both(V x, V y) { return conjunction(b_, x, y); }

  const Graph& graph_;
  const LoopNest& nest_;
  const Domain& d_;
  const Stages& stages_;
  const OnlineSums& online_;
  ScheduledKernel& out_;
  tile::Builder& b_;
  SizeEmitter& sizes_;
};

} // namespace tessera
