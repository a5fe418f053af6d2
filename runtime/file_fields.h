// The parts of a plan in a file, each an object whose members are these fields in this order: save.cpp writes the lists,
// load_plan.cpp reads them. A new field is an entry here, and a new version of the format (file_format.h) unless it may be
// left out.
//
// Behind a field stands what its type does not say: what a reader accepts, and when a writer leaves it out. An optional
// is left out where it is empty.
#pragma once
#include "runtime/executable.h"
#include <tuple>

namespace tessera::file {

inline constexpr int64_t kMaxSteps = INT32_MAX - 1;

struct Within { // of an int
  int64_t least, most;
};
struct BufferRef { // the number of a buffer; -1: of none
  int64_t least = 0;
};
struct ConstantRef {}; // the number of a constant, or -1
struct ResultsOf {     // definitions by results of a step that has so many
  size_t count;
};
template <class Enum>
struct Last { // an enum by its number
  Enum last;
};
template <class Enum>
Last(Enum) -> Last<Enum>;
struct OrNull {};     // an optional: null instead of left out
struct UnlessZero {}; // a count of steps, left out where it is 0
struct UnlessOne {};
struct UnlessFalse {};

// Calls f(key, field) or f(key, field, how) for each field.
template <class T, class Of>
concept Is = std::same_as<std::remove_const_t<T>, Of>;
template <Is<StridedOperand> T, class F>
void each_field(T& o, const F& f) {
  f("buffer", o.buffer, BufferRef()), f("shape", o.shape), f("strides", o.strides), f("offset", o.offset);
}
template <Is<EpilogueKernel> T, class F>
void each_field(T& e, const F& f) {
  f("kernel", e.kernel), f("begin", e.begin), f("count", e.count);
}
template <Is<LibraryEpilogue> T, class F>
void each_field(T& e, const F& f) {
  auto clip = std::tie(e.clip_low, e.clip_high);
  f("alpha", e.alpha), f("bias_dim", e.bias_dim, Within{-1, 64});
  f("activation", e.activation, Last{LibraryEpilogue::Activation::Tanh});
  f("clip", clip), f("bias", e.bias), f("residual", e.residual);
}
template <Is<MatmulCall> T, class F>
void each_field(T& c, const F& f) {
  f("a", c.a), f("b", c.b), f("c", c.c), f("epilogue", c.epilogue, OrNull()), f("fused", c.fused);
  f("scale", c.scale, UnlessOne()), f("tf32", c.tf32, UnlessFalse());
}
template <Is<ConvCall> T, class F>
void each_field(T& c, const F& f) {
  f("x", c.x), f("w", c.w), f("y", c.y), f("strides", c.strides);
  f("pads_begin", c.pads_begin), f("pads_end", c.pads_end), f("dilations", c.dilations);
  f("groups", c.groups), f("transposed", c.transposed), f("output_padding", c.output_padding);
  f("epilogue", c.epilogue, OrNull()), f("fused", c.fused), f("tf32", c.tf32, UnlessFalse());
}
template <Is<PoolCall> T, class F>
void each_field(T& c, const F& f) {
  f("kind", c.kind, Last{PoolCall::Kind::AverageIncludePad}), f("x", c.x), f("y", c.y);
  f("kernel", c.kernel), f("strides", c.strides);
  f("pads_begin", c.pads_begin), f("pads_end", c.pads_end), f("dilations", c.dilations);
  f("epilogue", c.epilogue, OrNull());
}
template <Is<FusedAttentionCall> T, class F>
void each_field(T& c, const F& f) {
  f("q", c.q), f("k", c.k), f("v", c.v), f("out", c.out);
  f("scale", c.scale), f("causal", c.causal), f("bias", c.bias);
}
// The fields of the call, and its name, follow.
template <Is<LibraryStep> T, class F>
void each_field(T& s, const F& f) {
  f("name", s.name), f("instead_of", s.instead_of, UnlessZero());
}
inline constexpr std::string_view kCalls[] = {"matmul", "conv", "pool", "attention"}; // in the order of the variant
template <Is<CopyStep> T, class F>
void each_field(T& s, const F& f) {
  f("name", s.name), f("source", s.source, BufferRef()), f("target", s.target, BufferRef());
}
template <Is<HostStep> T, class F>
void each_field(T& s, const F& f) {
  f("name", s.name), f("op", s.op), f("reason", s.reason), f("payload", s.payload);
  f("inputs", s.inputs, BufferRef{-1}), f("outputs", s.outputs, BufferRef{-1});
  f("defines", s.defines, ResultsOf{s.outputs.size()});
}
template <Is<ControlStep> T, class F>
void each_field(T& s, const F& f) {
  f("name", s.name), f("op", s.op), f("reason", s.reason), f("kind", s.kind, Last{ControlStep::Kind::Loop});
  f("bodies", s.bodies), f("condition", s.condition, BufferRef{-1}), f("trips", s.trips, BufferRef{-1});
  f("continues", s.continues), f("initial", s.initial, BufferRef()), f("outputs", s.outputs, BufferRef{-1});
  f("reverse", s.reverse), f("defines", s.defines, ResultsOf{s.outputs.size()});
  f("decided", s.decided), f("trip_count", s.trip_count);
}
template <Is<BufferInfo> T, class F>
void each_field(T& b, const F& f) {
  f("name", b.name), f("kind", b.kind, Last{BufferInfo::Kind::Temporary}), f("dtype", b.dtype), f("shape", b.shape);
  f("constant", b.constant, ConstantRef());
  f("first", b.first_step, Within{0, kMaxSteps}), f("last", b.last_step, Within{-1, kMaxSteps});
  f("in_place_of", b.in_place_of, BufferRef{-1}), f("dynamic", b.dynamic);
}
template <Is<Binding> T, class F>
void each_field(T& b, const F& f) {
  f("name", b.name), f("buffer", b.buffer, BufferRef()), f("indexed", b.indexed), f("list", b.list);
}
template <Is<IndexCheck> T, class F>
void each_field(T& c, const F& f) {
  f("table", c.table), f("indices", c.indices), f("node", c.node), f("extent", c.extent, OrNull());
  f("from_end", c.from_end), f("shape", c.shape), f("component", c.component, Within{-1, 64});
  f("failure", c.failure);
}

// Whether a file lacks the member of a field that has this value.
[[nodiscard]] bool is_left_out(const auto&, const auto&...) { return false; }
template <class T>
[[nodiscard]] bool is_left_out(const std::optional<T>& value) {
  return !value;
}
[[nodiscard]] inline bool is_left_out(int value, UnlessZero) { return value == 0; }
[[nodiscard]] inline bool is_left_out(double value, UnlessOne) { return value == 1; }
[[nodiscard]] inline bool is_left_out(bool value, UnlessFalse) { return !value; }

} // namespace tessera::file
