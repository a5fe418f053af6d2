// TensorProto to Tensor: raw, typed and external data of every element type.
#pragma once
#include "base/file.h"
#include "frontend/model.h"
#include "frontend/onnx/model_proto.h"
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tessera::onnx {

// More dimensions than any operator takes; also bounds what per-dimension loops cost.
inline constexpr int kMaxRank = 64;
// A sparse tensor is made dense; a few bytes of a file may cause no more than this.
inline constexpr int64_t kMaxDenseBytes = int64_t{1} << 31;

[[nodiscard]] std::string onnx_type_name(int data_type); // "FLOAT8E8M0", or "type 99"
// Error UnsupportedType for numbers that are no element type of ours.
[[nodiscard]] Result<DType> element_type(int data_type, const Location& where, const std::string& what);

// Loads weights. External files are mapped once and shared by their tensors.
class WeightLoader {
public:
  // `directory` holds the model; external data may lie in it, or next to the file that `model_path` is a link to.
  // `model_file` keeps the map that `raw` views of load() point into, when they do.
  WeightLoader(std::string directory, const std::string& model_path, std::shared_ptr<const void> model_file,
               ImportOptions::MissingWeights missing);

  // Views the file where the data is aligned to the element size, copies it once where not. `raw`: raw_data that is not
  // in the message. Errors: BadWeights, UnsupportedType, SizeOverflow, OutOfMemory; all name the tensor.
  Result<Tensor> load(const proto::TensorProto& tensor, const Location& where, std::string_view raw = {});
  Result<Tensor> load_sparse(const proto::SparseTensorProto& tensor, const Location& where);

  [[nodiscard]] int absent() const { return absent_; } // weights that were loaded without data
  [[nodiscard]] int64_t absent_bytes() const { return absent_bytes_; }
  [[nodiscard]] std::vector<std::string> files() const; // that were opened, as the model names them
  [[nodiscard]] const std::vector<CopiedWeight>& copied() const { return copied_; }

private:
  Result<Tensor> without_data(DType dtype, Dims dims, int64_t bytes);
  using External = std::optional<Storage>; // the whole file; nothing: it is missing, and that is allowed
  Result<External> open_external(const std::string& location, const Location& where, const std::string& what);
  Result<Tensor> from_external(const proto::TensorProto& tensor, DType dtype, Dims dims, int64_t bytes,
                               const Location& where, const std::string& what);
  Result<Tensor> from_raw(DType dtype, Dims dims, std::string_view raw, const std::shared_ptr<const void>& owner);

  std::string directory_;
  std::vector<std::string> roots_; // real paths that external files may lie under, each ending with '/'
  std::shared_ptr<const void> model_file_;
  ImportOptions::MissingWeights missing_;
  int absent_ = 0;
  int64_t absent_bytes_ = 0;
  std::map<std::string, External> files_; // by location as the model writes it
  std::vector<CopiedWeight> copied_;
};

} // namespace tessera::onnx
