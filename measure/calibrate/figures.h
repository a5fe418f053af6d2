// The target under calibration. Private to the folder.
#pragma once
#include "measure/calibrate/calibrate.h"

namespace tessera {

class Figures {
public:
  // `base`: figures that are not measured.
  Figures(Target base, const CalibrateOptions& options);
  [[nodiscard]] const Target& target() const { return target_; }
  // Error DeviceError for a value out of bounds: the clock or the driver is wrong.
  [[nodiscard]] Status set(std::string_view field, double value);
  [[nodiscard]] Status set_from(const Target& other, std::string_view field); // the other's value
  void section(const std::string& what) const; // reports the next measurement to the caller
  [[nodiscard]] Result<Target> finish();

private:
  Target target_;
  const CalibrateOptions& options_;
};

} // namespace tessera
