// An operator is defined once: one OpDef says what it takes, what it yields, what it means, how it is called elsewhere,
// what its plain reference computes and which inputs are worth testing. Everything else derives from the record.
//
// Two levels share the table:
//   primitives    lower-case, the set that fusion and the libraries know: pointwise, reductions, indexing, structured
//   composites    what models contain (Softmax, Gelu, LayerNormalization, Conv with auto_pad ...), defined by
//                 decomposition
// The importer finds a record by ONNX name, domain and opset; the pass `decompose` replaces composites.
#pragma once
#include "graph/ir/graph.h"
#include <functional>
#include <unordered_map>

namespace tessera {

// ---- how an operator is written elsewhere
struct OnnxName {
  std::string_view op_type;     // "Softmax"
  std::string_view domain = ""; // default domain
  int since = 1,
      until = 1 << 30; // opset versions this record is right for, inclusive (behaviour by version: Node::opset)
};

// ---- attributes
enum class AttrKind : uint8_t { Int, Float, String, Ints, Floats, Strings, Type, Dims, Tensor, Graph };
struct AttrDef {
  std::string_view name;
  AttrKind kind;
  bool required = false;
  std::optional<Attribute> fallback = {}; // put in by add_node when absent, if there is one
};

// ---- operand and result dtypes: constraint sets; the error text is made from their own summaries
enum class TypeSet : uint8_t {
  Any,
  Float,
  Integer,
  Signed,
  Numeric,
  NumericOrBool,
  Bool,
  Index /* i32, i64 */,
  SameAsFirst
};
struct OperandDef {
  std::string_view name;
  TypeSet types = TypeSet::Any;
  bool optional = false;
  bool variadic = false; // the last one only: zero or more
};

// ---- inference: graph/infer/infer.h
struct InferContext;
using InferFn = std::function<Status(InferContext&)>;

// ---- the one meaning
// Pointwise: builds the result from operands already loaded at the broadcast index and cast to their compute dtype; -1
// stands for an optional operand that is left out.
using ScalarId = int32_t; // graph/scalar/scalar.h
class ScalarDag;
enum class ReduceKind : uint8_t;
using PointwiseFn =
    std::function<Result<ScalarId>(ScalarDag&, std::span<const ScalarId> operands, const Node&, const Graph&)>;
// Indexing: builds result `r`'s element at `at` (one i64 node per result dimension) out of dag.load(operand, ...).
using IndexingFn =
    std::function<Result<ScalarId>(ScalarDag&, int result, std::span<const ScalarId> at, const Node&, const Graph&)>;
struct Pointwise {
  PointwiseFn body;
};
struct Indexing {
  IndexingFn body;
  bool view = false;   // one load at a pure index: never worth a separate kernel
  bool stored = false; // always written to memory: readers rely on the order of its elements there
};
// Attributes: axes (Ints, sorted, non-negative), keepdims (Int); ArgMax and ArgMin also select_last (Int).
struct Reduction {
  ReduceKind kind;
};
// There is one operator for literals and weights, `constant`, with the attributes value (Tensor; its dtype and dims are
// the result's type even when it has no data, as in graphs printed without) and hash (String, optional: content hash of
// a weight whose data was not printed). The text form calls large constants `weight`. Its inference is derived.
// Structured operators are run by a library, a generated kernel of their own, or their reference on the host.
enum class Structured : uint8_t {
  Constant, // weight or literal
  Matmul,
  MatmulOfParts, // of factors that are sums of narrower numbers
  GroupedMatmul, // of groups of rows, or of the depth
  Conv,
  Pool,
  Scan,
  Scatter,  // updates written, or combined, at positions that are data
  Sort,     // the order of elements along an axis
  Suppress, // of boxes in order, those that an earlier one overlaps
  Read,     // its integers become sizes: the host reads them
  Control,  // runs the graphs that it has as attributes
  Alias,    // the bytes of its operand as another type: no step runs
  Seed,     // a number that differs in every call: the host makes it
  Other
};
struct StructuredOp {
  Structured kind = Structured::Other;
};
// Rewrites a node by simpler ones appended to the graph; yields one value per used result.
using DecomposeFn = std::function<Result<std::vector<ValueId>>(Graph&, const Node&, int result_count)>;
struct Decomposition {
  DecomposeFn rewrite;
};
using Meaning = std::variant<StructuredOp, Pointwise, Indexing, Reduction, Decomposition>;

// ---- reference, by which results are compared: graph/reference/context.h
struct ReferenceContext;
using ReferenceFn = std::function<Status(ReferenceContext&)>;

// ---- samples, which every test over operators runs: graph/ops/record.h
struct Sample;
struct ErrorSample;

struct OpDef {
  std::string_view name;
  std::string_view summary; // one line
  std::vector<OnnxName> onnx;
  std::vector<std::string_view> aten;
  std::vector<OperandDef> operands;
  std::vector<AttrDef> attributes;
  int min_results = 1, max_results = 1;
  InferFn infer; // may be empty: pointwise, reductions (derived), composites (inferred by decomposing)
  Meaning meaning;
  ReferenceFn reference; // may be empty for composites: then the reference evaluates the decomposition
  std::function<std::vector<Sample>()> samples;
  std::function<std::vector<ErrorSample>()> error_samples;
  bool side_effect = false; // random numbers: never folded, merged or removed as common
  bool data_dependent_shape =
      false; // result sizes are known only when it has run (NonZero): inference makes fresh symbols
  OpDef();
  OpDef(const OpDef&);
  OpDef(OpDef&&) noexcept;
  OpDef& operator=(const OpDef&);
  OpDef& operator=(OpDef&&) noexcept;
  ~OpDef();

  [[nodiscard]] bool is_composite() const { return std::holds_alternative<Decomposition>(meaning); }
  [[nodiscard]] const Pointwise* pointwise() const { return std::get_if<Pointwise>(&meaning); }
  [[nodiscard]] const Indexing* indexing() const { return std::get_if<Indexing>(&meaning); }
  [[nodiscard]] const Reduction* reduction() const { return std::get_if<Reduction>(&meaning); }
  [[nodiscard]] const StructuredOp* structured() const { return std::get_if<StructuredOp>(&meaning); }
};

// The table. Definitions are registered by functions listed in table.cpp (no static constructors).
class OpTable {
public:
  static const OpTable& get();
  [[nodiscard]] const OpDef* find(std::string_view name) const;
  // nullptr when there is no such operator; `known_elsewhere` is set to whether another opset of it is defined.
  [[nodiscard]] const OpDef* find_onnx(std::string_view op_type, std::string_view domain, int opset,
                                       bool* known_elsewhere = nullptr) const;
  [[nodiscard]] const OpDef* find_aten(std::string_view name) const;
  [[nodiscard]] const std::vector<std::unique_ptr<OpDef>>& all() const { return defs_; } // sorted by name
  void add(OpDef def); // used by the registering functions; a second record of a name is a bug

private:
  OpTable();
  std::vector<std::unique_ptr<OpDef>> defs_;
  std::unordered_map<std::string_view, const OpDef*> by_name_;
  std::unordered_map<std::string_view, std::vector<const OpDef*>>
      by_onnx_; // by op_type; the names of a record give the rest
  std::unordered_map<std::string_view, const OpDef*> by_aten_;
};
// Fills in the fallbacks of attributes that are absent, turns Ints into Dims where the record says Dims, and checks
// names and kinds against the record. Error BadAttribute.
[[nodiscard]] Status complete_attributes(const OpDef& op, Attributes& attributes);
[[nodiscard]] std::string_view summary(TypeSet set); // "a floating-point type"
[[nodiscard]] bool admits(TypeSet set, DType dtype); // SameAsFirst admits every dtype by itself
[[nodiscard]] std::string_view name(AttrKind kind);  // "ints"
[[nodiscard]] AttrKind kind_of(const Attribute& attribute);
} // namespace tessera
