// Parts of the records of ONNX's domain "ai.onnx.ml" (trees, linear models, support vector machines, encoders). An
// operator on numbers is a decomposition into primitives; strings and maps are on the host. A record's name in the
// table is "ai.onnx.ml." and the operator's. Where the specification is silent, the result is that of ONNX Runtime's
// kernels for the CPU.
#pragma once
#include "graph/ops/parts.h"

namespace tessera::ops {

// `name` with the domain: "ai.onnx.ml.Scaler".
[[nodiscard]] OpDef ml(std::string_view name, std::string_view summary, std::vector<OperandDef> operands,
                       DecomposeFn rewrite);
// The same of a decomposition that yields one value.
[[nodiscard]] OpDef ml(std::string_view name, std::string_view summary, std::vector<OperandDef> operands,
                       std::function<ValueId(B&)> formula);

// ---- operands and attributes
// The first operand as [rows, features] of `dtype`; a vector is one row. `features`: how many there have to be, if that
// is fixed.
[[nodiscard]] ValueId ml_rows(B& b, DType dtype, std::optional<int64_t> features = std::nullopt);
// f64 for f64, else f32: what scores of an input are computed in.
[[nodiscard]] inline DType ml_dtype(DType input) { return input == DType::F64 ? DType::F64 : DType::F32; }
// An attribute of floats, or of ints; empty where it is absent.
[[nodiscard]] std::vector<double> ml_floats(const Node& node, std::string_view name);
[[nodiscard]] std::vector<std::string> ml_strings(const Node& node, std::string_view name);
// A constant of these values, row-major.
[[nodiscard]] ValueId ml_constant(B& b, DType dtype, Dims dims, const std::vector<double>& values);
// Which of the names a string attribute is. Error BadAttribute that lists them.
[[nodiscard]] size_t ml_choice(B& b, std::string_view attribute, std::initializer_list<std::string_view> names);
[[nodiscard]] AttrDef ml_text(std::string_view name, std::string_view fallback);

// ---- classes
struct MlLabels {
  Ints numbers;
  std::vector<std::string> texts; // instead of numbers where there are any
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(texts.empty() ? numbers.size() : texts.size()); }
};
// The attributes of that name and "classlabels_strings". Error BadAttribute where both are given.
[[nodiscard]] MlLabels ml_labels(B& b, std::string_view numbers);
// Labels of indices i64[rows].
[[nodiscard]] ValueId ml_labelled(B& b, const MlLabels& labels, ValueId indices);
// The label at `yes` where `condition` bool[rows] holds, else that at `no`.
[[nodiscard]] ValueId ml_labelled(B& b, const MlLabels& labels, ValueId condition, int64_t yes, int64_t no);
// The index of the largest of scores[rows, classes], the first of equal ones; i64[rows].
[[nodiscard]] ValueId ml_largest(B& b, ValueId scores);

// ---- scores
enum class PostTransform : uint8_t { None, Softmax, Logistic, SoftmaxZero, Probit }; // numbered as in TreeEnsemble
[[nodiscard]] PostTransform post_transform(B& b); // of attribute post_transform, a string
// Applied to rows of at least two scores; of one score only Probit changes anything.
[[nodiscard]] ValueId transformed(B& b, ValueId scores, PostTransform transform);

// ---- loops
// The results of an iteration: whether there is another one (invalid: always), and the carried values.
struct MlStep {
  ValueId goes_on;
  std::vector<ValueId> carried;
};
// `step` at most `trips` times, on a graph of its own: of the builder there, the iteration (i64[]), the carried values
// and the captured ones. Carried values keep their types.
[[nodiscard]] std::vector<ValueId>
ml_repeat(B& b, int64_t trips, const std::vector<ValueId>& carried, const std::vector<ValueId>& captured,
          const std::function<MlStep(B&, ValueId, std::vector<ValueId>, std::vector<ValueId>)>& step);

} // namespace tessera::ops

namespace tessera {

void register_ml_ops(OpTable&);         // all of them
void register_ml_feature_ops(OpTable&); // ml_features.cpp: scaling, imputing, encoding of numbers
void register_ml_linear_ops(OpTable&);  // ml_linear.cpp
void register_ml_svm_ops(OpTable&);     // ml_svm.cpp
void register_ml_tree_ops(OpTable&);    // ml_tree.cpp
void register_ml_label_ops(OpTable&);   // ml_labels.cpp: encoders of labels
void register_ml_map_ops(OpTable&);     // ml_maps.cpp: ZipMap, CastMap, DictVectorizer

} // namespace tessera
