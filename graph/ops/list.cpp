// Lists, which only the host holds: ONNX's sequences and optionals. A list whose items are known values is none at run
// time: what is taken out of it is the value that was put in.
#include "graph/ops/parts.h"
#include <algorithm>

namespace tessera {

namespace {
using namespace ops;
using Container = ItemType::Container;

// A position in a list of n items, or one behind the last where `end`; negative ones count from the end.
Result<size_t> position(const ReferenceContext& c, size_t operand, size_t n, bool end) {
  const auto most = static_cast<int64_t>(n) - (end ? 0 : 1);
  int64_t p = given(c, operand) ? c.operands[operand].get_i64(0) : static_cast<int64_t>(n) - (end ? 0 : 1);
  const int64_t at = p < 0 ? p + static_cast<int64_t>(n) : p;
  if (at < 0 || at > most)
    return c.error(ErrorCode::BadInput,
                   "position " + std::to_string(p) + " is not in a sequence of " + std::to_string(n) + " items");
  return static_cast<size_t>(at);
}

// The type of an item taken out: sizes that differ between items are found by the run.
Result<TensorType> type_of_item(InferContext& c, const ItemType& items) {
  if (!items.shape)
    return c.error(ErrorCode::UnsupportedFeature, "the rank of the items of " + c.type(0).str() + " is not known");
  TensorType out{items.dtype, {}, items.items};
  for (int64_t size : *items.shape) out.shape.push_back(size < 0 ? c.env().create_symbol("item") : SymExpr(size));
  return out;
}

Status check_list(const InferContext& c) {
  if (c.type(0).items != nullptr) return {};
  return c.error(ErrorCode::TypeMismatch,
                 "'" + std::string(c.node.op->name) + "' takes a list, not " + c.type(0).str());
}

// The type of the items of a list with one more value. An empty list does not restrict it.
Result<std::shared_ptr<const ItemType>> with_item(InferContext& c, const TensorType& list, const TensorType& value) {
  auto item = item_of(list.items->container, value);
  if (list.shape[0].is_const(0)) return item;
  auto both = join(*list.items, *item);
  if (both == nullptr)
    return c.error(ErrorCode::TypeMismatch, "a value of type " + value.str() + " is no item of " + list.str());
  return both;
}

// The items of an empty list, which are of the type that a text names: "f32", "sequence f32".
Result<std::shared_ptr<const ItemType>> nothing_of(const InferContext& c, Container container, std::string_view text) {
  auto out = std::make_shared<ItemType>();
  out->container = container;
  const auto space = text.find(' ');
  const std::string_view word = text.substr(0, space);
  if (space == std::string_view::npos) {
    auto dtype = dtype_from_name(word);
    if (!dtype || *dtype == DType::List)
      return c.error(ErrorCode::BadAttribute, "'" + std::string(word) + "' is not an element type");
    out->dtype = *dtype;
    return std::shared_ptr<const ItemType>(std::move(out));
  }
  if (word != "sequence" && word != "optional")
    return c.error(ErrorCode::BadAttribute, "'" + std::string(word) + "' is neither sequence nor optional");
  out->dtype = DType::List;
  out->shape = Dims{-1};
  TESSERA_ASSIGN(out->items,
                 nothing_of(c, word == "sequence" ? Container::Sequence : Container::Optional, text.substr(space + 1)));
  return std::shared_ptr<const ItemType>(std::move(out));
}

// ---- primitives
OpDef list_construct() {
  OpDef def;
  def.name = "list_construct";
  def.summary = "a list of the operands";
  def.operands = {{"items", TypeSet::Any, false, true}};
  def.attributes = {{"container", AttrKind::String, false, std::string("sequence")}, {"of", AttrKind::String}};
  def.infer = [](InferContext& c) -> Status {
    const std::string& container = c.node.attributes.s("container");
    if (container != "sequence" && container != "optional")
      return c.error(ErrorCode::BadAttribute, "a list is a sequence or an optional, not '" + container + "'");
    const Container kind = container == "sequence" ? Container::Sequence : Container::Optional;
    const auto n = static_cast<int64_t>(c.node.operands.size());
    std::shared_ptr<const ItemType> items;
    for (int i = 0; i < n; ++i) {
      auto item = item_of(kind, c.type(i));
      items = items ? join(*items, *item) : item;
      if (!items)
        return c.error(ErrorCode::TypeMismatch,
                       "items of a sequence have one type, not " + c.type(0).str() + " and " + c.type(i).str());
    }
    if (!items) {
      TESSERA_ASSIGN(items, nothing_of(c, kind, c.node.attributes.s("of", "f32")));
    }
    c.results[0] = {DType::List, {SymExpr(n)}, items};
    return {};
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    c.results = {Tensor::list(c.operands)};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({random(DType::F32, {2, 3}, 1), random(DType::F32, {4, 3}, 2)}), sample({}),
                               sample({vec({1})}, {{"container", std::string("optional")}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {2}), vec({1})}, {}, ErrorCode::TypeMismatch, "one type"),
                                    wrong({}, {{"container", std::string("bag")}}, ErrorCode::BadAttribute, "bag")};
  };
  return def;
}

Tensor two_items() { return Tensor::list({random(DType::F32, {2, 3}, 1), random(DType::F32, {4, 3}, 2)}); }

OpDef list_at() {
  OpDef def;
  def.name = "list_at";
  def.summary = "an item of a list";
  def.operands = {{"list", TypeSet::Any}, {"position", TypeSet::Index, true}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_TRY(check_list(c));
    TESSERA_ASSIGN(c.results[0], type_of_item(c, *c.type(0).items));
    return {};
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    const auto& items = c.operands[0].items();
    TESSERA_ASSIGN(size_t at, position(c, 1, items.size(), false));
    const Tensor& item = items[at];
    const TensorType& type = c.result_types[0];
    if (item.dtype() != type.dtype || item.dims().size() != type.shape.size())
      return c.error(ErrorCode::BadInput, "item " + std::to_string(at) + " is " + std::string(name(item.dtype())) +
                                              " of rank " + std::to_string(item.dims().size()) + ", not " + type.str());
    c.results = {item};
    return {};
  };
  def.data_dependent_shape = true;
  def.samples = [] {
    return std::vector<Sample>{sample({two_items(), scalar(DType::I64, 1)}),
                               sample({two_items(), scalar(DType::I64, -2)}), sample({two_items()})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({vec({1}), scalar(DType::I64, 0)}, {}, ErrorCode::TypeMismatch, "a list")};
  };
  return def;
}

OpDef list_insert() {
  OpDef def;
  def.name = "list_insert";
  def.summary = "a list with one more item, before a position or at the end";
  def.operands = {{"list", TypeSet::Any}, {"item", TypeSet::Any}, {"position", TypeSet::Index, true}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_TRY(check_list(c));
    TESSERA_ASSIGN(auto items, with_item(c, c.type(0), c.type(1)));
    c.results[0] = {DType::List, {c.env().simplify(c.shape(0)[0] + 1)}, items};
    return {};
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    std::vector<Tensor> items = c.operands[0].items();
    TESSERA_ASSIGN(size_t at, position(c, 2, items.size(), true));
    items.insert(items.begin() + static_cast<std::ptrdiff_t>(at), c.operands[1]);
    c.results = {Tensor::list(std::move(items))};
    return {};
  };
  def.samples = [] {
    Tensor x = random(DType::F32, {1, 3}, 3);
    return std::vector<Sample>{sample({two_items(), x}), sample({two_items(), x, scalar(DType::I64, 0)}),
                               sample({two_items(), x, scalar(DType::I64, -1)})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({two_items(), vec({1})}, {}, ErrorCode::TypeMismatch, "no item")};
  };
  return def;
}

OpDef list_erase() {
  OpDef def;
  def.name = "list_erase";
  def.summary = "a list without the item at a position, or without the last";
  def.operands = {{"list", TypeSet::Any}, {"position", TypeSet::Index, true}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_TRY(check_list(c));
    if (c.shape(0)[0].is_const(0))
      return c.error(ErrorCode::ShapeMismatch, "nothing can be taken out of an empty list");
    c.results[0] = {DType::List, {c.env().simplify(c.shape(0)[0] - 1)}, c.type(0).items};
    return {};
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    std::vector<Tensor> items = c.operands[0].items();
    TESSERA_ASSIGN(size_t at, position(c, 1, items.size(), false));
    items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
    c.results = {Tensor::list(std::move(items))};
    return {};
  };
  def.samples = [] { return std::vector<Sample>{sample({two_items()}), sample({two_items(), scalar(DType::I64, 0)})}; };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({vec({1})}, {}, ErrorCode::TypeMismatch, "a list"),
                                    wrong({Tensor::list({})}, {}, ErrorCode::ShapeMismatch, "empty")};
  };
  return def;
}

OpDef list_concat() {
  OpDef def;
  def.name = "list_concat";
  def.summary = "the items of a list joined along an axis, or stacked along a new one";
  def.operands = {{"list", TypeSet::Any}};
  def.attributes = {{"axis", AttrKind::Int, true}, {"new_axis", AttrKind::Int, false, int64_t{0}}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_TRY(check_list(c));
    TESSERA_ASSIGN(TensorType item, type_of_item(c, *c.type(0).items));
    const bool stacks = c.node.attributes.i("new_axis") != 0;
    TESSERA_ASSIGN(int64_t axis, c.axis(c.node.attributes.i("axis"), item.rank() + (stacks ? 1 : 0)));
    if (stacks)
      item.shape.insert(item.shape.begin() + axis, c.shape(0)[0]);
    else
      item.shape[static_cast<size_t>(axis)] = c.env().create_symbol("joined");
    c.results[0] = std::move(item);
    return {};
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    std::vector<Tensor> items = c.operands[0].items();
    if (items.empty()) return c.error(ErrorCode::BadInput, "an empty sequence cannot be joined");
    const bool stacks = c.node.attributes.i("new_axis") != 0;
    int64_t axis = c.node.attributes.i("axis");
    if (axis < 0) axis += static_cast<int64_t>(items[0].dims().size()) + (stacks ? 1 : 0);
    const auto k = static_cast<size_t>(axis);
    for (Tensor& t : items) {
      Dims dims = t.dims();
      if (stacks) dims.insert(dims.begin() + axis, 1);
      t = t.reshaped(dims);
    }
    Dims out = items[0].dims();
    std::vector<int64_t> end; // of each item along the axis
    out[k] = 0;
    for (const Tensor& t : items) {
      Dims dims = t.dims();
      if (dims.size() == out.size()) out[k] += std::exchange(dims[k], out[k]);
      end.push_back(out[k]);
      if (t.dtype() != items[0].dtype() || dims.size() != out.size())
        return c.error(ErrorCode::BadInput, "items of a sequence that is joined differ in type or rank");
      for (size_t d = 0; d < out.size(); ++d)
        if (d != k && dims[d] != out[d])
          return c.error(ErrorCode::BadInput,
                         "items of a sequence that is joined differ in dimension " + std::to_string(d));
    }
    Dims outer(out.begin(), out.begin() + axis), inner(out.begin() + axis + 1, out.end());
    TESSERA_ASSIGN(int64_t rest, element_count(inner));
    std::vector<Tensor> rows;
    if (items[0].dtype() == DType::String) {
      std::vector<std::string> values;
      TESSERA_ASSIGN(int64_t blocks, element_count(outer));
      for (int64_t b = 0; b < blocks; ++b)
        for (const Tensor& t : items) {
          const int64_t n = t.dims()[k] * rest;
          for (int64_t i = 0; i < n; ++i) values.push_back(t.string_values()[static_cast<size_t>(b * n + i)]);
        }
      c.results = {Tensor::strings(out, std::move(values))};
      return {};
    }
    if (info(items[0].dtype()).bits < 8)
      return c.error(ErrorCode::UnsupportedType, "sequences of packed types are not joined");
    TESSERA_ASSIGN(Tensor y, Tensor::create(items[0].dtype(), out));
    TESSERA_ASSIGN(int64_t blocks, element_count(outer));
    std::byte* to = y.mutable_data();
    for (int64_t b = 0; b < blocks; ++b)
      for (const Tensor& t : items) {
        const auto bytes = static_cast<size_t>(byte_size(t.dtype(), t.dims()[k] * rest));
        if (bytes > 0) std::memcpy(to, t.data() + static_cast<size_t>(b) * bytes, bytes);
        to += bytes;
      }
    c.results = {y};
    return {};
  };
  def.data_dependent_shape = true;
  def.samples = [] {
    Tensor x = random(DType::F32, {2, 3}, 3);
    return std::vector<Sample>{sample({two_items()}, {{"axis", int64_t{0}}}),
                               sample({Tensor::list({x, x})}, {{"axis", int64_t{-1}}}),
                               sample({Tensor::list({x, x})}, {{"axis", int64_t{1}}, {"new_axis", int64_t{1}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({two_items()}, {{"axis", int64_t{2}}}, ErrorCode::BadAttribute, "axis")};
  };
  return def;
}

OpDef list_split() {
  OpDef def;
  def.name = "list_split";
  def.summary = "parts of equal size along an axis, the last one of what is left; without the axis where !keepdims";
  def.operands = {{"x", TypeSet::Any}};
  def.attributes = {
      {"axis", AttrKind::Int, true}, {"size", AttrKind::Dims, true}, {"keepdims", AttrKind::Int, false, int64_t{1}}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_ASSIGN(int64_t axis, c.axis(c.node.attributes.i("axis"), c.type(0).rank()));
    const SymShape size = c.node.attributes.dims("size");
    if (size.size() != 1) return c.error(ErrorCode::BadAttribute, "a list is split into parts of one size");
    const SymExpr n = c.shape(0)[static_cast<size_t>(axis)];
    auto items = std::make_shared<ItemType>(*item_of(Container::Sequence, c.type(0)));
    const bool even = c.env().prove(sym_eq(mod(n, size[0]), 0)) == true;
    if (c.node.attributes.i("keepdims") != 0)
      (*items->shape)[static_cast<size_t>(axis)] = even ? size[0].as_const().value_or(-1) : -1;
    else
      items->shape->erase(items->shape->begin() + axis);
    c.results[0] = {DType::List, {c.env().simplify(ceildiv(n, size[0]))}, items};
    return {};
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    int64_t axis = c.node.attributes.i("axis");
    if (axis < 0) axis += static_cast<int64_t>(x.dims().size());
    const auto k = static_cast<size_t>(axis);
    TESSERA_ASSIGN(Dims size, c.dims("size"));
    if (size[0] < 1) return c.error(ErrorCode::BadInput, "parts of size " + std::to_string(size[0]));
    const Dims strides = strides_of(x.dims());
    std::vector<Tensor> items;
    for (int64_t start = 0; start < x.dims()[k]; start += size[0]) {
      Dims dims = x.dims();
      dims[k] = std::min(size[0], dims[k] - start);
      TESSERA_ASSIGN(Tensor part,
                     take_at(x, dims, [&](const Dims& at) { return offset(at, strides) + start * strides[k]; }));
      if (c.node.attributes.i("keepdims") == 0) {
        dims.erase(dims.begin() + axis);
        part = part.reshaped(dims);
      }
      items.push_back(std::move(part));
    }
    c.results = {Tensor::list(std::move(items))};
    return {};
  };
  def.samples = [] {
    Tensor x = random(DType::F32, {5, 3}, 3);
    return std::vector<Sample>{sample({x}, {{"axis", int64_t{0}}, {"size", SymShape{2}}}),
                               sample({x}, {{"axis", int64_t{-1}}, {"size", SymShape{1}}, {"keepdims", int64_t{0}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {3})}, {{"axis", int64_t{1}}, {"size", SymShape{1}}},
                                          ErrorCode::BadAttribute, "axis")};
  };
  return def;
}

// ---- composites: ONNX's operators
// The values that a list was made of, where that is known.
const Node* made_of(B& b, ValueId list) {
  const Node* producer = list.valid() ? b.graph().producer(list) : nullptr;
  return producer != nullptr && producer->op->name == "list_construct" ? producer : nullptr;
}
// A position as a number, where it is known and in range.
std::optional<size_t> known_position(B& b, int operand, size_t n, bool end) {
  const auto most = static_cast<int64_t>(n) - (end ? 0 : 1);
  int64_t p = most;
  if (b.has(operand)) {
    const Value& v = b.graph().value(b.in(operand));
    if (!v.contents || v.contents->size() != 1) return std::nullopt;
    auto known = b.env().simplify(v.contents->front()).as_const();
    if (!known) return std::nullopt;
    p = *known < 0 ? *known + static_cast<int64_t>(n) : *known;
  }
  if (p < 0 || p > most) return std::nullopt;
  return static_cast<size_t>(p);
}

ValueId construct(B& b, std::vector<ValueId> items, const std::string& container) {
  return b.op("list_construct", std::move(items), {{"container", container}});
}

OpDef sequence_construct() {
  OpDef def = composite("SequenceConstruct", "a sequence of the operands", {{"inputs", TypeSet::Any, false, true}},
                        [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          return b.done(construct(b, n.operands, "sequence"));
                        });
  def.samples = [] { return std::vector<Sample>{sample({vec({1}), vec({2, 3})}, {}, 11)}; };
  return def;
}

OpDef sequence_empty() {
  OpDef def = composite("SequenceEmpty", "a sequence of nothing", {}, [](Graph& g, const Node& n, int) {
    B b(g, n);
    auto dtype = dtype_attribute(n, "dtype", DType::F32);
    if (!dtype.ok()) b.fail(dtype.error());
    if (!b.ok()) return b.failed();
    return b.done(
        b.op("list_construct", {}, {{"container", std::string("sequence")}, {"of", std::string(name(*dtype))}}));
  });
  def.attributes = {{"dtype", AttrKind::Int}};
  def.samples = [] { return std::vector<Sample>{sample({}, {{"dtype", int64_t{7}}}, 11)}; };
  return def;
}

OpDef sequence_at() {
  OpDef def =
      composite("SequenceAt", "an item of a sequence", {{"input_sequence", TypeSet::Any}, {"position", TypeSet::Index}},
                [](Graph& g, const Node& n, int) {
                  B b(g, n);
                  if (const Node* made = made_of(b, b.in(0)))
                    if (auto at = known_position(b, 1, made->operands.size(), false))
                      return b.done(made->operands[*at]);
                  return b.done(b.op("list_at", {b.in(0), b.in(1)}));
                });
  def.samples = [] { return std::vector<Sample>{sample({two_items(), scalar(DType::I64, 1)}, {}, 11)}; };
  return def;
}

OpDef sequence_insert() {
  OpDef def =
      composite("SequenceInsert", "a sequence with one more item",
                {{"input_sequence", TypeSet::Any}, {"tensor", TypeSet::Any}, {"position", TypeSet::Index, true}},
                [](Graph& g, const Node& n, int) {
                  B b(g, n);
                  if (const Node* made = made_of(b, b.in(0)))
                    if (auto at = known_position(b, 2, made->operands.size(), true)) {
                      std::vector<ValueId> items = made->operands;
                      items.insert(items.begin() + static_cast<std::ptrdiff_t>(*at), b.in(1));
                      return b.done(construct(b, std::move(items), "sequence"));
                    }
                  return b.done(b.op("list_insert", {b.in(0), b.in(1), b.in(2)}));
                });
  def.samples = [] {
    return std::vector<Sample>{sample({two_items(), random(DType::F32, {2, 3}, 5)}, {}, 11),
                               sample({two_items(), random(DType::F32, {2, 3}, 5), scalar(DType::I64, 0)}, {}, 11)};
  };
  return def;
}

OpDef sequence_erase() {
  OpDef def = composite("SequenceErase", "a sequence without one of its items",
                        {{"input_sequence", TypeSet::Any}, {"position", TypeSet::Index, true}},
                        [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          const Node* made = made_of(b, b.in(0));
                          if (made != nullptr && made->operands.size() > 1)
                            if (auto at = known_position(b, 1, made->operands.size(), false)) {
                              std::vector<ValueId> items = made->operands;
                              items.erase(items.begin() + static_cast<std::ptrdiff_t>(*at));
                              return b.done(construct(b, std::move(items), "sequence"));
                            }
                          return b.done(b.op("list_erase", {b.in(0), b.in(1)}));
                        });
  def.samples = [] { return std::vector<Sample>{sample({two_items(), scalar(DType::I64, -1)}, {}, 11)}; };
  return def;
}

OpDef sequence_length() {
  OpDef def =
      composite("SequenceLength", "how many items a sequence has", {{"input_sequence", TypeSet::Any}},
                [](Graph& g, const Node& n, int) {
                  B b(g, n);
                  if (!b.type(b.in(0)).items)
                    b.fail(ErrorCode::TypeMismatch, "SequenceLength takes a sequence, not " + b.type(b.in(0)).str());
                  return b.ok() ? b.done(b.size(b.dim(b.in(0), 0), DType::I64)) : b.failed();
                });
  def.samples = [] { return std::vector<Sample>{sample({two_items()}, {}, 11)}; };
  return def;
}

OpDef concat_from_sequence() {
  OpDef def = composite("ConcatFromSequence", "the items of a sequence joined or stacked",
                        {{"input_sequence", TypeSet::Any}}, [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          const bool stacks = b.attr().i("new_axis", 0) != 0;
                          if (const Node* made = made_of(b, b.in(0)); made != nullptr && !made->operands.empty()) {
                            std::vector<ValueId> items = made->operands;
                            const int64_t axis = b.axis(b.attr().i("axis"), b.rank(items[0]) + (stacks ? 1 : 0));
                            if (stacks)
                              for (ValueId& v : items) v = unsqueeze(b, v, {axis});
                            return b.done(concat(b, items, axis));
                          }
                          return b.done(b.op("list_concat", {b.in(0)},
                                             {{"axis", b.attr().i("axis")}, {"new_axis", int64_t{stacks ? 1 : 0}}}));
                        });
  def.attributes = {{"axis", AttrKind::Int, true}, {"new_axis", AttrKind::Int, false, int64_t{0}}};
  def.samples = [] { return std::vector<Sample>{sample({two_items()}, {{"axis", int64_t{0}}}, 11)}; };
  return def;
}

// Parts at most: more stay one node.
constexpr int64_t kMaxParts = 256;

Result<std::vector<ValueId>> decompose_split_to_sequence(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0);
  const int64_t axis = b.axis(b.attr().i("axis", 0), b.rank(x));
  const SymExpr size = b.dim(x, axis);
  const bool keep = b.has(1) || b.attr().i("keepdims", 1) != 0;
  std::vector<SymExpr> parts;
  SymExpr part = 1;
  const bool listed = b.has(1) && b.rank(b.in(1)) == 1;
  if (b.has(1)) {
    parts = b.sizes(1);
    if (b.ok() && !listed) part = parts[0];
  }
  if (!b.ok()) return b.failed();
  if (!listed) {
    if (part.is_const(0)) b.fail(ErrorCode::ShapeMismatch, "SplitToSequence makes parts of no size");
    if (b.ok() && b.env().prove(sym_lt(0, part)) != true)
      b.check(
          b.env().require(sym_lt(0, part), GuardClass::Required, "parts of SplitToSequence have a size", n.location));
    parts.clear();
    auto total = size.as_const(), each = part.as_const();
    if (!b.ok()) return b.failed();
    if (!total || !each || *total > kMaxParts * *each)
      return b.done(b.op("list_split", {x}, {{"axis", axis}, {"size", SymShape{part}}, {"keepdims", int64_t{keep}}}));
    for (int64_t at = 0; at < *total; at += *each) parts.emplace_back(std::min(*each, *total - at));
  } else {
    SymExpr sum = 0;
    for (const SymExpr& p : parts) sum += p;
    b.check(b.env().require_equal(sum, size, "the parts of SplitToSequence add up to the dimension", n.location));
    if (!b.ok()) return b.failed();
  }
  std::vector<ValueId> items;
  SymExpr start = 0;
  for (const SymExpr& p : parts) {
    ValueId item = slice(b, x, axis, start, p);
    items.push_back(keep ? item : squeeze(b, item, {axis}));
    start += p;
  }
  return b.done(construct(b, std::move(items), "sequence"));
}

OpDef split_to_sequence() {
  OpDef def = composite("SplitToSequence", "parts of a tensor as a sequence",
                        {{"input", TypeSet::Any}, {"split", TypeSet::Index, true}}, decompose_split_to_sequence);
  def.attributes = {{"axis", AttrKind::Int, false, int64_t{0}}, {"keepdims", AttrKind::Int, false, int64_t{1}}};
  def.samples = [] {
    Tensor x = random(DType::F32, {5, 3}, 3);
    return std::vector<Sample>{sample({x}, {{"keepdims", int64_t{0}}}, 11), sample({x, vec({2, 3})}, {}, 11),
                               sample({x, scalar(DType::I64, 2)}, {{"axis", int64_t{1}}}, 11)};
  };
  return def;
}

OpDef optional() {
  OpDef def = composite("Optional", "a value as an optional one, or none", {{"input", TypeSet::Any, true}},
                        [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          std::vector<ValueId> items;
                          if (b.has(0)) items = {b.in(0)};
                          Attributes attributes = {{"container", std::string("optional")}};
                          if (b.attr().has("type")) attributes.set("of", b.attr().s("type"));
                          return b.done(b.op("list_construct", items, attributes));
                        });
  def.attributes = {{"type", AttrKind::String}};
  def.samples = [] {
    return std::vector<Sample>{sample({vec({1, 2})}, {}, 15), sample({}, {{"type", std::string("sequence i64")}}, 15)};
  };
  return def;
}

OpDef optional_has_element() {
  OpDef def = composite("OptionalHasElement", "whether an optional has a value", {{"input", TypeSet::Any, true}},
                        [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          SymExpr has = b.has(0) ? 1 : 0;
                          const TensorType type = b.type(b.in(0));
                          if (b.has(0) && type.items && type.items->container == Container::Optional)
                            has = b.env().simplify(sym_eq(type.shape[0], 1));
                          if (has.is_const()) return b.done(b.scalar_i(DType::Bool, has.const_value()));
                          return b.done(cast(b, b.size(has, DType::I64), DType::Bool));
                        });
  def.samples = [] { return std::vector<Sample>{sample({vec({1, 2})}, {}, 18), sample({}, {}, 18)}; };
  return def;
}

OpDef optional_get_element() {
  OpDef def = composite("OptionalGetElement", "the value of an optional", {{"input", TypeSet::Any}},
                        [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          const TensorType type = b.type(b.in(0));
                          if (!type.items || type.items->container != Container::Optional) return b.done(b.in(0));
                          b.check(b.env().require_equal(type.shape[0], 1, "an optional has a value", n.location));
                          if (const Node* made = made_of(b, b.in(0)); b.ok() && made) return b.done(made->operands[0]);
                          return b.done(b.op("list_at", {b.in(0)}));
                        });
  def.samples = [] { return std::vector<Sample>{sample({vec({1, 2})}, {}, 18)}; };
  return def;
}

} // namespace

void register_list_ops(OpTable& table) {
  for (OpDef (*make)() :
       {list_construct, list_at, list_insert, list_erase, list_concat, list_split, sequence_construct, sequence_empty,
        sequence_at, sequence_insert, sequence_erase, sequence_length, concat_from_sequence, split_to_sequence,
        optional, optional_has_element, optional_get_element})
    table.add(make());
}

} // namespace tessera
