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
#include "graph/ops/scalar.h"
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

// ---- inference
// Given the graph (environment, operand types, contents) and the node; yields one type per result and, where it can,
// contents.
struct InferContext {
  Graph& graph;
  const Node& node;                                          // operands, attributes, opset, location
  int result_count;                                          // how many results are wanted
  std::vector<TensorType> results;                           // to fill
  std::vector<std::optional<std::vector<SymExpr>>> contents; // to fill, optional

  [[nodiscard]] bool has(int operand) const; // given and not left out
  [[nodiscard]] const TensorType& type(int operand) const;
  [[nodiscard]] const SymShape& shape(int operand) const { return type(operand).shape; }
  [[nodiscard]] ShapeEnv& env() const { return graph.env(); }
  // Operands whose contents are read when the model runs: what known() found no contents of. add_node() gives the node
  // a `read` of each.
  struct Read {
    int operand;
    std::vector<SymExpr> symbols; // the contents, row-major
  };
  std::vector<Read> reads = {};

  // Integer contents of an operand that steer sizes (shapes, repeats, starts): constants, sizes, or symbols that a
  // `read` of the operand defines when the model runs. Error UnsupportedFeature where even their number is unknown.
  [[nodiscard]] Result<std::vector<SymExpr>> known(int operand);
  // Contents that must be constants (axes, permutations): of symbols, those of the hints, and where there are none their
  // positions; both are assumed, so that another call is a miss. Error UnsupportedFeature where a size has no hint.
  [[nodiscard]] Result<Ints> known_ints(int operand);
  // An axis attribute or value brought into [0, rank). Error BadAttribute.
  [[nodiscard]] Result<int64_t> axis(int64_t a, int rank) const;
  [[nodiscard]] Diagnostic error(ErrorCode code, std::string message) const; // with location
};
using InferFn = std::function<Status(InferContext&)>;

// ---- the one meaning
// Pointwise: builds the result from operands already loaded at the broadcast index and cast to their compute dtype; -1
// stands for an optional operand that is left out.
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

// ---- reference: plain loops over concrete tensors; independent of the meaning. operands may hold undefined tensors
// where an optional one is left out. Slow and obvious.
struct ReferenceContext {
  const Node& node; // attributes, opset
  std::vector<Tensor> operands;
  std::vector<TensorType> result_types; // dtype always right; the shape may hold symbols: compute sizes from operands
  int result_count = 1;
  std::vector<Tensor> results; // to fill
  // Contents of SymShape attributes for these sizes (attributes "dims" of primitives).
  std::function<Result<int64_t>(const SymExpr&)> eval;
  // Runs a graph that the node has as an attribute: inputs and outputs in order.
  std::function<Result<std::vector<Tensor>>(const Graph&, const std::vector<Tensor>& inputs)> run;
  [[nodiscard]] Result<Dims> dims(std::string_view attribute) const;
  [[nodiscard]] Diagnostic error(ErrorCode code, std::string message) const;
};
using ReferenceFn = std::function<Status(ReferenceContext&)>;

// ---- samples: what every test over operators runs
struct Sample {
  std::vector<Tensor> operands; // undefined tensor = left out
  Attributes attributes;
  int result_count = 1;
  int opset = 0;
  double tolerance = 1e-5; // ||out-ref|| / ||ref||
  Sample();
  Sample(const Sample&);
  Sample(Sample&&) noexcept;
  Sample& operator=(const Sample&);
  Sample& operator=(Sample&&) noexcept;
  ~Sample();
};
struct ErrorSample {
  Sample sample;
  ErrorCode code;
  std::string_view message_part;
};

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
// Registering functions, one per file of ops/.
void register_constant_ops(OpTable&);   // constant, weight, iota, shape-like composites
void register_pointwise_ops(OpTable&);  // add ... erf, comparisons, logic, cast, select
void register_activation_ops(OpTable&); // Relu, Gelu, Selu, HardSwish, Softmax family composites
void register_reduction_ops(OpTable&);
void register_indexing_ops(OpTable&);  // reshape ... gather, concat, pad, and their ONNX composites
void register_norm_ops(OpTable&);      // LayerNormalization, BatchNormalization ...
void register_rotary_ops(OpTable&);    // RotaryEmbedding
void register_matmul_ops(OpTable&);    // matmul, Gemm, Einsum, quantised products, attention composites
void register_conv_ops(OpTable&);      // conv, pooling, Resize ...
void register_sort_scan_ops(OpTable&); // TopK, CumSum, NonZero, Unique, Scatter, NMS ...
void register_recurrent_ops(OpTable&); // RNN, LSTM, GRU
void register_quant_ops(OpTable&);     // QuantizeLinear ...
void register_misc_ops(OpTable&);      // losses, windows, DFT, random, Det ...
void register_control_ops(OpTable&);   // If, Loop, Scan

// Names of the symbols of a value that is read: "axes", or "axes_0", "axes_1" ...
[[nodiscard]] std::vector<std::string> read_symbols(std::string_view name, int64_t count);
// The result of a node `read` of the value, if the graph has one.
[[nodiscard]] ValueId read_of(const Graph& graph, ValueId value);

// Fills in the fallbacks of attributes that are absent, turns Ints into Dims where the record says Dims, and checks
// names and kinds against the record. Error BadAttribute.
[[nodiscard]] Status complete_attributes(const OpDef& op, Attributes& attributes);
[[nodiscard]] std::string_view summary(TypeSet set); // "a floating-point type"
[[nodiscard]] bool admits(TypeSet set, DType dtype); // SameAsFirst admits every dtype by itself
[[nodiscard]] std::string_view name(AttrKind kind);  // "ints"
[[nodiscard]] AttrKind kind_of(const Attribute& attribute);
// The dtype a pointwise result is stored in: bool when the body yields bool; the storage dtype of the first operand
// that is not bool when the body yields that operand's compute dtype; else the body's own.
[[nodiscard]] DType pointwise_dtype(DType body, std::span<const DType> operands);
// The body of a pointwise node over loads of its operands; load i has the index `at(i)` and its operand's storage
// dtype.
[[nodiscard]] Result<ScalarId> build_pointwise(const Graph& graph, const Node& node, ScalarDag& dag,
                                               const std::function<std::vector<ScalarId>(int operand)>& at);
// A graph of this node's operands alone, sharing the environment: constants stay constants, other operands become
// inputs with their contents. `node` gets the operands of that graph. Inference and evaluation of composites run
// decompositions in one.
[[nodiscard]] Graph scratch_graph(const Graph& graph, const Node& node, Node& copy);

// Runs `infer` (or derives it): fills results, and contents where the record does or the node has its results already;
// checks operand count, dtypes and attributes against the record.
[[nodiscard]] Status infer_node(InferContext& context);
inline constexpr int64_t kContentsLimit = 1024; // elements of a tensor whose contents are followed
// Symbolic contents from the meaning: interprets a pointwise, indexing or reduction body over the contents of the
// operands when all of them are known and small (<= 1024 elements); nullopt otherwise. The node's results must be in
// the graph.
[[nodiscard]] std::optional<std::vector<SymExpr>> infer_contents(const Graph& graph, const Node& node,
                                                                 const TensorType& result, int result_index = 0);

} // namespace tessera
