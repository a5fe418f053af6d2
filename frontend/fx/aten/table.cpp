#include "frontend/fx/call.h"
#include <algorithm>

namespace tessera::fx {

AtenTable::AtenTable() {
  for (auto* registered :
       {register_pointwise, register_creation, register_reductions, register_views, register_movement,
        register_indexing, register_scatter, register_sort_scan, register_products, register_norms, register_windows,
        register_attention, register_activations, register_convolution, register_losses, register_upsample,
        register_resample, register_recurrent, register_composites})
    registered(*this);
}

const AtenTable& AtenTable::get() {
  static const AtenTable table;
  return table;
}

void AtenTable::add(std::initializer_list<std::string_view> names, Translate translate) {
  for (std::string_view name : names) {
    bool fresh = rows_.emplace(name, translate).second;
    TESSERA_CHECK(fresh, "two translations of " + std::string(name));
  }
}

Translate AtenTable::find(std::string_view name) const {
  auto it = rows_.find(name);
  return it == rows_.end() ? nullptr : it->second;
}

void AtenTable::add_views(std::initializer_list<std::string_view> names, WriteBack write_back) {
  for (std::string_view name : names) views_.emplace(name, write_back);
}

WriteBack AtenTable::find_view(std::string_view name) const {
  auto it = views_.find(name);
  return it == views_.end() ? nullptr : it->second;
}

void AtenTable::add_known(std::initializer_list<std::string_view> names, const std::vector<KnownSize>& sizes) {
  for (std::string_view name : names) {
    TESSERA_CHECK(find(name), "sizes of an operator without a translation: " + std::string(name));
    known_.emplace(name, sizes);
  }
}

const OpDef* record_of(std::string_view name) {
  if (const OpDef* exact = OpTable::get().find_aten(name)) return exact;
  return OpTable::get().find_aten(name.substr(0, name.find('.')));
}

void translate_by_record(Call& c, const OpDef& op) {
  // Tensors of the schema are operands in order; the record's attributes have the schema's names.
  std::vector<std::string_view> tensors;
  Attributes attributes;
  for (const SchemaArgument& a : c.schema().arguments) {
    if (a.type.starts_with("Tensor")) {
      tensors.push_back(a.name);
      continue;
    }
    auto def =
        std::find_if(op.attributes.begin(), op.attributes.end(), [&](const AttrDef& d) { return d.name == a.name; });
    if (def == op.attributes.end()) {
      // A number in the place of a second tensor: add.Scalar.
      if (a.type == "Scalar" && tensors.size() < op.operands.size()) {
        tensors.push_back(a.name);
        continue;
      }
      c.unsupported("argument '" + std::string(a.name) + "' of " + std::string(c.schema().name) +
                    " has no translation");
      return;
    }
    if (!c.in.given(a.name)) continue;
    switch (def->kind) {
    case AttrKind::Int: attributes.set(a.name, c.in.integer(a.name)); break;
    case AttrKind::Float: attributes.set(a.name, c.in.number(a.name)); break;
    case AttrKind::String: attributes.set(a.name, c.in.text(a.name)); break;
    case AttrKind::Ints: attributes.set(a.name, c.in.ints(a.name)); break;
    case AttrKind::Dims: attributes.set(a.name, c.in.sizes(a.name)); break;
    case AttrKind::Type: {
      auto d = c.in.dtype(a.name);
      if (d) attributes.set(a.name, *d);
      break;
    }
    default: c.unsupported("argument '" + std::string(a.name) + "' has no translation"); return;
    }
  }
  if (!c.b.ok()) return;
  std::optional<DType> common;
  for (std::string_view t : tensors) {
    if (!c.in.given(t)) continue;
    DType d = promoted(c.b, c.in, {t});
    if (!c.b.ok()) return;
    common = common ? promote(*common, d) : d;
  }
  if (tensors.size() == 2) common = promoted(c.b, c.in, {tensors[0], tensors[1]});
  if (!c.b.ok() || !common) return;
  // Functions of real numbers take integers as f32.
  if (!op.operands.empty() && op.operands[0].types == TypeSet::Float && !is_float(*common)) common = DType::F32;
  std::vector<ValueId> operands;
  for (std::string_view t : tensors) operands.push_back(c.in.given(t) ? operand(c.b, c.in, t, *common) : ValueId());
  while (!operands.empty() && !operands.back().valid()) operands.pop_back();
  if (!c.b.ok()) return;
  c.result(c.b.op(op.name, std::move(operands), std::move(attributes)));
}

} // namespace tessera::fx
