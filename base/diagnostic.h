// The message for the user when something cannot be done: a stable code, where, what, and notes that say what to do.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Every error code of the project. The table in diagnostic.cpp gives each its stable text ("TES-1003"), its exit code
// and its one-line summary; nothing else lists them.
enum class ErrorCode {
  // wrong use of command or API (exit 2)
  Usage,
  UnknownInput,  // an input name the model does not have
  MissingInput,  // a model input that was not given
  MissingValues, // what an input holds decides the model's structure, and is not known yet
  // not supported (exit 3)
  UnsupportedOp,      // operator (or opset version of it) without a definition
  UnsupportedType,    // dtype, or non-tensor type, that this operator or device cannot take
  UnsupportedFeature, // anything else that is valid ONNX but not built
  // bad model or input (exit 4)
  FileError,      // cannot open, read, map, write; errno text is in the message
  MalformedModel, // protobuf does not parse, fields contradict, cycles, undefined names
  BadWeights,     // initializer or external data missing, short, outside of the model's folder, wrong size
  BadAttribute,   // missing, wrong type, value out of range
  ShapeMismatch,  // shapes that cannot be (broadcast, matmul, reshape ...), rank mismatch
  TypeMismatch,   // dtypes that contradict
  SizeOverflow,   // a dimension product above the address space
  BadInput,       // an input array whose dtype, rank or dimension contradicts the model
  GuardFailed,    // a required guard (contract of the model) does not hold for these inputs
  ParseError,     // one of our text formats, with line and column
  CorruptFile,    // an executable or cache file of ours that is damaged or of another version
  EarlierCall,    // an input of an earlier call, which had returned before the device found it: an index out of range
  // failed while running (exit 5)
  OutOfMemory,
  DeviceError,  // a device or library call failed
  CodegenError, // LLVM refused, JIT failed
  Cancelled,
  Internal, // an invariant broke in a way that could be reported
};

struct ErrorCodeInfo {
  ErrorCode code;
  std::string_view id;   // "TES-2001", stable
  std::string_view name; // "unsupported-op"
  int exit_code;         // of the command: 2 wrong use, 3 not supported, 4 bad model or input, 5 failed while running
  std::string_view summary; // one line for docs
};
const ErrorCodeInfo& info(ErrorCode code);

// The place of an error: a file, a position in it, a node. All fields are optional. str(), for people: "model.onnx:
// node 'Add_12' (Add, output 'z')".
struct Location {
  std::string file;
  std::string node;         // node name
  std::string op;           // op type, with domain when it is not the default one
  std::string output;       // first output's name
  std::string source;       // the line of the user's program that made the node: "model.py:42"
  int line = 0, column = 0; // 1-based, of text formats; 0 = none
  [[nodiscard]] std::string str() const;
  bool operator==(const Location&) const = default;
};

struct Diagnostic {
  ErrorCode code = ErrorCode::Internal;
  Location location;
  std::string message;            // lower case, no final period
  std::vector<std::string> notes; // causes, and what to do

  // Out of line, all of them: errors are rare, and every function that can fail would hold a copy of this code.
  Diagnostic();
  Diagnostic(ErrorCode c, std::string msg);
  Diagnostic(ErrorCode c, Location loc, std::string msg);
  Diagnostic(const Diagnostic&);
  Diagnostic(Diagnostic&&) noexcept;
  Diagnostic& operator=(const Diagnostic&);
  Diagnostic& operator=(Diagnostic&&) noexcept;
  ~Diagnostic();
  Diagnostic& note(std::string text) &;
  Diagnostic&& note(std::string text) &&;
  Diagnostic&& at(Location loc) &&; // unless it has a location
  // "error TES-2001 unsupported-op: model.onnx: node 'X' (Foo, output 'y'): message\n  note: ...\n", for people: one
  // line for the message and each note, whatever names are in them (text.h). Message, notes and location are exact.
  [[nodiscard]] std::string str() const;
};

} // namespace tessera
