// A file mapped read-only into memory, shared by every tensor that views it.
#pragma once
#include "graph/support/result.h"
#include <memory>
#include <string>
#include <string_view>

namespace tessera::onnx {

class MappedFile {
public:
  // Errors: `code` with the system's reason; also when the path is not a regular file. An empty file maps to no bytes.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path, ErrorCode code);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::string_view bytes() const { return {data_, size_}; }
  // Gives the pages of a range back that will not be read again (it was copied); they return from the file when they
  // are.
  void forget(std::string_view range) const;

private:
  MappedFile(const char* data, size_t size) : data_(data), size_(size) {}
  const char* data_;
  size_t size_;
};

} // namespace tessera::onnx
