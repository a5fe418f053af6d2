// Archives of torch.export.save (.pt2): a zip of one folder with a program, a list of weights and their bytes.
//
//   NAME/archive_format                       "pt2"
//   NAME/archive_version                      "0"
//   NAME/byteorder                            "little"
//   NAME/models/model.json                    the program (program.h)
//   NAME/data/weights/model_weights_config.json      parameters and persistent buffers: entry, sizes, strides, offset
//   NAME/data/weights/weight_0                bytes of a whole storage, which several weights may share
//   NAME/data/constants/model_constants_config.json  other constants, in the same way
//   NAME/data/constants/tensor_0
//
// PyTorch 2.9 and later write this. Files of earlier ones hold weights as pickles, which are programs: they are
// refused.
#pragma once
#include "frontend/fx/program.h"
#include "frontend/fx/zip.h"
#include "frontend/options.h"
#include "graph/ir/attribute.h"

namespace tessera::fx {

// A weight as it lies in memory. The program's tensor is: `tensor`, its dimensions in the order of `perm` unless that
// is empty (dimension k is dimension perm[k] of `tensor`), repeated to `sizes` along dimensions of size 1.
struct StoredWeight {
  Tensor tensor;
  Ints perm;
  Dims sizes;
  bool absent = false; // its bytes were not saved
};

class Archive {
public:
  // Maps the file. Errors: FileError, MalformedModel for a damaged one, UnsupportedFeature for other kinds of archives
  // and for versions that are not known, saying what the file is and what to do.
  [[nodiscard]] static Result<Archive> open(const std::string& path);
  [[nodiscard]] static Result<Archive> from_memory(Storage file, const std::string& path);

  // The JSON of the program; valid as long as the archive.
  [[nodiscard]] std::string_view program() const { return program_; }
  // A weight or constant by its name in the module, of the sizes and element type that the program states. A view of
  // the map where its strides are a permutation of contiguous ones, else a copy. A weight
  // whose bytes were not saved is as `missing` says. Errors: BadWeights, UnsupportedFeature for a pickled one, OutOfMemory.
  [[nodiscard]] Result<StoredWeight> weight(const std::string& name, const TensorMeta& meta,
                                            ImportOptions::MissingWeights missing) const;

private:
  explicit Archive(Zip zip) : zip_(std::move(zip)) {}
  Status find_root();
  Status check_format() const;
  Status find_model();
  Status read_lists();
  [[nodiscard]] Result<std::string_view> text(const std::string& name) const;

  Zip zip_;
  std::string root_;  // folder of all entries, with '/'
  std::string model_; // name of the program
  std::string_view program_;
  PayloadSpecs weights_, constants_;
};

} // namespace tessera::fx
