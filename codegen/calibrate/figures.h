// The target that a calibration fills in, figure by figure. Private to the folder.
#pragma once
#include "codegen/calibrate/calibrate.h"

namespace tessera {

class Figures {
public:
  // `base`: figures for all that is not measured.
  Figures(Target base, const CalibrateOptions& options);
  [[nodiscard]] const Target& target() const { return target_; }
  // Error DeviceError for a value that is no figure of a device: the clock or the driver is wrong.
  [[nodiscard]] Status set(std::string_view field, double value);
  [[nodiscard]] Status set_from(const Target& other, std::string_view field); // the other's value
  void section(const std::string& what) const;                                // tells the caller what comes next
  [[nodiscard]] Result<Target> finish();

private:
  Target target_;
  const CalibrateOptions& options_;
};

} // namespace tessera
