// TypeProto to TensorType: dimension names become symbols, the same name the same symbol.
#pragma once
#include "frontend/onnx/importer.h"
#include "frontend/onnx/model_proto.h"
#include <map>
#include <set>

namespace tessera::onnx {

// The dimensions of one model, by the names that the model gives them.
class DimensionTable {
public:
  DimensionTable(ShapeEnv& env, const ImportOptions& options, std::string file)
      : env_(env), options_(options), file_(std::move(file)) {}

  // Reads the sizes that the options give for inputs of the model: a named dimension with a size has it everywhere.
  // Errors: UnknownInput, Usage.
  [[nodiscard]] Status read_options(const proto::GraphProto& graph,
                                    const std::vector<const proto::ValueInfoProto*>& inputs);

  // Type of an input of the model, or of one of its subgraphs (whose sizes no option gives). A rank that the file does
  // not state is that of the call (rank_symbol()); a scalar stands for it where nothing is determined. Errors:
  // UnsupportedType for what is no tensor, MissingValues when no call says the rank, UnsupportedFeature in a subgraph.
  [[nodiscard]] Result<TensorType> input_type(const proto::ValueInfoProto& value, bool of_model, const Location& where);

  // Brings what the model declares of a computed value together with what inference found. Constant dimensions must
  // agree, or a text in `warnings` says so; sizes known only at run time take the declared ones. Names are labels only:
  // exporters invent them for outputs. Error TypeMismatch on another element type.
  [[nodiscard]] Status meet(TensorType& inferred, const proto::ValueInfoProto& declared, const Location& where,
                            std::vector<std::string>& warnings);

private:
  Result<SymExpr> dimension(const proto::TensorShapeProto_Dimension& dim, const std::string& input, int position,
                            std::optional<int64_t> given, bool of_model, const Location& where);
  // The rank of an input without a shape.
  Result<int64_t> open_rank(const std::string& input, const Dims* given, bool of_model, const Location& where);
  [[nodiscard]] bool of_inputs(const SymExpr& e) const; // has only symbols of the model's inputs

  ShapeEnv& env_;
  const ImportOptions& options_;
  std::string file_;
  std::map<std::string, SymExpr, std::less<>> named_; // dim_param -> symbol or the size given for it
  std::map<std::string, int64_t, std::less<>> given_; // dim_param -> size
  std::set<uint64_t> input_symbols_;
};

// A name that the text forms read as one identifier: other characters become '_'.
[[nodiscard]] std::string identifier(std::string_view name);

} // namespace tessera::onnx
