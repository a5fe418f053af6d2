#include "frontend/onnx/opsets.h"

namespace tessera::onnx {

std::string full_op_name(std::string_view domain, std::string_view op_type) {
  domain = canonical_domain(domain);
  std::string out(domain);
  if (!out.empty()) out += '.';
  out += op_type;
  return out;
}

Result<Opsets> read_opsets(const google::protobuf::RepeatedPtrField<proto::OperatorSetIdProto>& imports,
                           const std::string& file, const std::string& of, std::vector<std::string>& warnings) {
  Location where;
  where.file = file;
  Opsets out;
  for (const auto& import : imports) {
    std::string domain(canonical_domain(import.domain()));
    int64_t version = import.version();
    std::string shown = domain.empty() ? "the default domain" : "domain '" + domain + "'";
    if (version < 1 || version > INT32_MAX)
      return Diagnostic(ErrorCode::MalformedModel, where,
                        of + " imports version " + std::to_string(version) + " of " + shown + ", which cannot exist");
    auto [it, fresh] = out.emplace(domain, version);
    if (!fresh && it->second != version)
      warnings.push_back(file + ": " + of + " imports " + shown + " twice, versions " + std::to_string(it->second) +
                         " and " + std::to_string(version) + "; the last one counts");
    it->second = version;
    if (domain.empty() && version > kNewestOpset)
      return Diagnostic(ErrorCode::UnsupportedFeature, where,
                        of + " uses opset " + std::to_string(version) + "; the newest known one is " +
                            std::to_string(kNewestOpset))
          .note("export the model with an opset up to " + std::to_string(kNewestOpset));
  }
  return out;
}

} // namespace tessera::onnx
