// The plan of a run for one set of sizes, with every expression evaluated: dimensions, arena offsets, kernel sizes and
// grids, library plans. Made when a shape is first seen and kept (ShapePlanCache), so that the next run of that shape
// evaluates nothing and allocates nothing but outputs.
#pragma once
#include "runtime/executor.h"
#include "runtime/memory_account.h"
#include "runtime/operand.h"
#include "runtime/variant.h"
#include <list>
#include <unordered_map>

namespace tessera {

class Device;
class DevicePlan;
class LoadedCode;

struct StepPlan {
  const KernelLaunch* kernel = nullptr; // the step's, or the first of its alternatives that these sizes allow
  LaunchNumbers<int64_t> launch;        // of `kernel` at these sizes. Grid 0: there is nothing to launch
  bool at_once = false;                 // all programs run at the same time, and are launched so
  size_t numbers = 0;                   // of a control step: its first one in SegmentPlan::numbers
};
struct SegmentPlan {
  SegmentPlan();
  ~SegmentPlan();
  std::vector<int64_t> key;   // Variant::append_key() when the segment begins
  std::vector<Dims> shapes;   // of Variant::shapes, those that are known by this segment; others empty
  std::vector<int64_t> bytes; // per buffer likewise
  struct Place {
    BufferId buffer;
    BufferId in; // an input or output, whose memory it lies in; -1: the arena
    int64_t offset;
  };
  std::vector<Place> places; // of temporaries of this segment
  bool overwrites_inputs = false;
  int64_t arena_bytes = 0;
  std::vector<int64_t> numbers; // of control steps
  std::vector<StepPlan> steps;  // of this segment
  // The steps of this segment that are not executed, because others compute the same (LibraryStep::instead_of). Empty:
  // none.
  std::vector<bool> left_out;
  // An improvement that pays for sizes that come often, and is made in the background: begun when calls of the plan
  // have taken as long as it takes, so that it never costs more than twice what is best, or when there were many whose
  // time is not known. Empty: nothing, or it is begun.
  struct Improvement {
    std::function<bool()> begin;     // false: not now; empty: it was begun for another plan
    std::function<double()> cost_ms; // expected; empty with `begin`
    std::function<bool()> outdated;  // true once planning again would choose other steps
    void begin_where_it_pays(double spent_ms, bool often) {
      if (begin && (often || spent_ms >= cost_ms()) && begin()) begin = nullptr;
    }
  };
  std::vector<Improvement> improvements;
  bool waited = false;                      // planning waited for all that others leave to the background
  double spent_ms = 0, submit_ms = 0;       // in calls of the plan; of these, starting its steps singly
  int calls_on_device = 0;                  // that returned before their work was done
  [[nodiscard]] int64_t host_bytes() const; // that the plan takes, about
  [[nodiscard]] bool leaves_out(size_t step) const { return !left_out.empty() && left_out[step]; }
  int64_t step_scratch = 0, worker_scratch = 0;
  int64_t packed_bytes = 0; // weights that this plan was the first to pack
  int64_t code_bytes = 0;   // likewise of libraries' code; counted where it is, not in host_bytes()
  // The same for calls that the caller captures, where some launch of this plan is ordered with launches of other
  // streams, which a graph cannot be (Context::launch_alone). Null: this plan serves.
  std::unique_ptr<SegmentPlan> captured;
  std::unique_ptr<DevicePlan> device;
};

// Evaluates the variant's expressions for what is bound in `call`.
void evaluate_sizes(const Variant& variant, Variant::CallState& call);
// The dimensions of a buffer, evaluated before. Errors: SizeOverflow, BadInput (a negative one).
[[nodiscard]] Result<Dims> dims_of(const Variant& variant, const Variant::CallState& call, BufferId buffer);

// Evaluates and plans segment `segment` of the variant; call.values and call.bound hold what is bound. `wait`: as in
// Device::choose(). Errors:
// SizeOverflow, BadInput (a size that comes out negative), OutOfMemory, DeviceError, UnsupportedFeature, Internal.
// SegmentPlan::captured is planned with it.
[[nodiscard]] Result<std::unique_ptr<SegmentPlan>> plan_segment(const Variant& variant, int segment,
                                                                Variant::CallState& call, Device& device,
                                                                LoadedCode& loaded, bool wait);

// A library call's operands at the plan's sizes, each checked to lie inside of its buffer; devices use it while they
// complete a plan.
[[nodiscard]] Result<std::vector<Operand>> concrete_operands(const Variant& variant, const StepForm& form,
                                                             const Variant::CallState& call, const SegmentPlan& plan);
// The same for another call of the class (StepForm::library_class): of `operands`, those of one, only the buffers change.
void change_buffers(const Variant& variant, const StepForm& form, std::span<Operand> operands);
// The launch of an epilogue kernel over boxes of its call's result.
class EpilogueSizes {
public:
  EpilogueSizes(const Variant& variant, const EpilogueForm& form, const Variant::CallState& call,
                const SegmentPlan& plan);
  // `box`: begin per dimension, then count per dimension. Errors SizeOverflow, BadInput, and Internal for a kernel whose
  // contract does not hold.
  [[nodiscard]] Result<StepPlan> at(std::span<const int64_t> box);

private:
  const Variant& variant_;
  const EpilogueForm& form_;
  const Variant::CallState& call_;
  const SegmentPlan& plan_;
  SymProgram::State state_;
};

// The plans of one executor for one variant, as many as fit into `most_bytes` and have at most `most_code` bytes of code
// of their own; least recently used ones are thrown out.
class ShapePlanCache {
public:
  static constexpr int64_t kMaxBytes = int64_t{16} << 20; // about a hundred plans of a hundred steps
  static constexpr int64_t kMaxCode = int64_t{128} << 20;
  explicit ShapePlanCache(std::shared_ptr<MemoryAccount> account, int64_t most_bytes = kMaxBytes,
                          int64_t most_code = kMaxCode)
      : account_(std::move(account)), most_bytes_(most_bytes), most_code_(most_code) {}
  // The plan for the current bindings, or null. It stays until the next call of insert() or clear().
  SegmentPlan* find(int segment, const Variant::CallState& call);
  // Plans that go are not the one given, nor the last one of any segment that find() or insert() gave.
  // Error OutOfMemory: the account has no room for it even without others.
  [[nodiscard]] Result<SegmentPlan*> insert(int segment, std::unique_ptr<SegmentPlan> plan);
  // False: all plans that there are belong to the current run.
  bool forget_oldest();
  void drop(SegmentPlan* plan); // given by find()
  void clear();

private:
  using Key = std::vector<int64_t>; // the segment, then SegmentPlan::key
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Entry {
    Key key;
    std::unique_ptr<SegmentPlan> plan;
    int64_t bytes = 0;
    std::shared_ptr<const void> counted;
  };
  using Entries = std::list<Entry>; // most recently used first
  void forget(Entries::iterator entry);

  std::shared_ptr<MemoryAccount> account_;
  int64_t most_bytes_, most_code_, bytes_ = 0, code_ = 0;
  Entries plans_;
  std::unordered_map<Key, Entries::iterator, KeyHash> by_key_;
  std::vector<SegmentPlan*> current_; // by segment
  Key looked_for_;
};

} // namespace tessera
