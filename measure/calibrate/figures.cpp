#include "measure/calibrate/figures.h"
#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

const TargetField& row(std::string_view name) {
  const auto fields = target_fields();
  auto f = std::find_if(fields.begin(), fields.end(), [&](const TargetField& x) { return x.name == name; });
  TESSERA_CHECK(f != fields.end(), "no figure is called " + std::string(name));
  return *f;
}

} // namespace

Figures::Figures(Target base, const CalibrateOptions& options) : target_(std::move(base)), options_(options) {
  target_.note = "measured by 'tessera calibrate'; what it cannot measure is taken from target " + target_.name;
  target_.name = options.name;
}

Status Figures::set_from(const Target& other, std::string_view field) { return set(field, row(field).get(other)); }

Status Figures::set(std::string_view field, double value) {
  const TargetField* const f = &row(field);
  if (!std::holds_alternative<double Target::*>(f->member)) value = std::round(value);
  if (!(value >= f->least && value <= f->most))
    return Diagnostic(ErrorCode::DeviceError, "measured " + std::to_string(value) + " " + std::string(f->unit) +
                                                  " for " + std::string(field) + " (" + std::string(f->meaning) +
                                                  "), expected from " + std::to_string(f->least) + " to " +
                                                  std::to_string(f->most))
        .note("other work on the device disturbs the measurement: run it again when nothing else runs");
  // Six significant digits, more than a measurement has.
  if (value != 0 && std::holds_alternative<double Target::*>(f->member)) {
    const double scale = std::pow(10, 5 - std::floor(std::log10(std::fabs(value))));
    value = std::round(value * scale) / scale;
  }
  f->set(target_, value);
  target_.sources[static_cast<size_t>(f - target_fields().data())] = FigureSource::Measured;
  return {};
}

void Figures::section(const std::string& what) const {
  if (options_.progress) options_.progress(what);
}

Result<Target> Figures::finish() {
  TESSERA_TRY(verify_target(target_, target_.name));
  return std::move(target_);
}

} // namespace tessera
