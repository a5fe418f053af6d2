// The breaks of a report: operators on the host, sizes that only a run knows, control flow, copies.
#include "codegen/target/derived.h"
#include "report/context.h"
#include "runtime/variant.h"

namespace tessera::report {

namespace {

Json break_json(const Json& step, const char* kind, FusionReason reason, const std::string& what) {
  Json j;
  j["kind"] = kind;
  j["code"] = info(reason).code;
  j["step"] = step.at("id");
  j["what"] = what;
  j["reason"] = step.value("reason", Json(""));
  j["copies"] = 0;
  j["copy_bytes"] = {{"expression", "0"}, {"at_sizes", 0}};
  j["launches"] = 0;
  j["waits"] = 0;
  j["price_us"] = nullptr;
  return j;
}

} // namespace

Json breaks_json(Context& x, const Json& steps) {
  Json out = Json::array();
  const bool copied = has_own_memory(x.device);
  for (const Json& s : steps) {
    const std::string kind = s.at("kind"), id = s.at("id");
    if (kind == "host") {
      Json j = break_json(s, "host-operator", FusionReason::HostOperator, id + " runs by its reference on the host");
      if (copied) { // its inputs come to the host, its results go back
        j["copies"] = s.at("reads").size() + s.at("writes").size();
        j["copy_bytes"] = s.at("bytes");
        j["waits"] = 1;
      }
      j["price_us"] = s.at("price").at("us");
      j["advice"] = "write it with operators that are compiled, or add a kernel for it (docs: operators of one's own)";
      out.push_back(std::move(j));
    }
    if (s.contains("defines"))
      for (const Json& symbol : s.at("defines")) {
        Json j = break_json(s, "computed-size", FusionReason::DataDependent,
                            "size " + symbol.get<std::string>() + " is known only when " + id + " has run");
        j["copies"] = copied ? 1 : 0;
        j["waits"] = 1;
        if (copied) j["price_us"] = x.device.host_wait_us;
        j["advice"] =
            "what follows is planned and launched when that step has run; a padded size with a mask avoids it";
        out.push_back(std::move(j));
      }
    if (kind == "control") {
      Json j = break_json(s, "control-flow", FusionReason::ControlFlow, id + " runs bodies of its own");
      int64_t launches = 0;
      for (const Json& body : s.at("bodies")) launches += body.at("totals").at("launches").get<int64_t>();
      j["launches"] = launches; // of one iteration
      j["waits"] = copied ? 1 : 0;
      const Json& terms = s.at("price").at("terms_us");
      if (terms.contains("iterations")) j["price_us"] = terms.at("iterations");
      j["advice"] = "unroll a loop of few iterations when exporting; nothing fuses across its border";
      out.push_back(std::move(j));
    }
    if (kind == "copy") {
      Json j = break_json(s, "copy", FusionReason::GraphOutput, id);
      j["copies"] = 1;
      j["copy_bytes"] = s.at("bytes");
      j["launches"] = 1;
      j["price_us"] = s.at("price").at("us");
      j["reason"] = "an output is an input, a constant or another output as it is, or an operand is changed in place";
      j["advice"] = "do not return the same tensor twice, nor an input; otherwise nothing";
      out.push_back(std::move(j));
    }
  }
  return out;
}

} // namespace tessera::report
