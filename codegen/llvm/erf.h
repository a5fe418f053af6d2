// The polynomials of erf in f32: x p(x^2) below kSplit, 1 - exp(-p(x)) from there on, copied to negative x. Beyond
// kMax it is 1.
#pragma once
#include <array>

namespace tessera::erf {

constexpr double kSplit = 0.9277, kMax = 4;
constexpr std::array<double, 6> kNear = {-5.982480039522535e-4, 4.99195905122919e-3,    -2.6766135287236287e-2,
                                         1.1281815028466684e-1, -3.7612495072404567e-1, 1.1283791500697915};
constexpr std::array<double, 8> kFar = {1.37760789714424e-5, -3.260344469974598e-4, 3.5009034963147784e-3,
                                        -2.2883431951933e-2, 1.039392663210295e-1,  6.382405397659696e-1,
                                        1.1265533457984938,  5.668428100680245e-4};

} // namespace tessera::erf
