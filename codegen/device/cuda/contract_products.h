// Gives products to generated contractions where that takes less time than a library's call and the kernels around it.
//
// A library computes few epilogues: a bias, ReLU, GELU by tanh, a residual. Behind others its result goes through memory,
// which a kernel of both need not do:
//
//   y = matmul(x, w)                     library           y = matmul(x, w)
//   z = add(y, b)                        }                 z = add(y, b)            } one contraction
//   o = mul(mul(z, 0.5), add(erf ...))   } kernel          o = ...                  }
//
// Nor does it compute a factor: a kernel in front writes it to memory. A contraction computes a factor that nothing else
// reads, again for each tile of columns, from what it is made of: quantised weights, an activation, a normalisation,
// whose sums of rows are a kernel of their own:
//
//   f = cast(w : i8) * s                 kernel            f = cast(w) * s          }
//   y = matmul(x, f)                     library           y = matmul(x, f)         } one contraction
//
// A library computes convolutions of more than single points at a part of the rate of a product, so these may be
// contractions by themselves, where bulk copies can bring their pixels.
//
// The choice is a price. Behind the first plan, calls with one kernel behind them or in front are listed with the time of
// all, and planning is repeated with these products as loop nests, which fuse as any reduction. A product whose kernels
// then take longer, by the schedules that they get, is tried without the kernel in front, and is the library's at last.
// Sizes that are not known are priced at their hints, and the contraction is right at all of the range. The library
// keeps products with a size that has no hint, and those with a stride that is not known to be a multiple of 16 bytes at
// all sizes: the price would count with bulk copies that the code cannot make. The report says of each product that the
// library keeps why.
//
// Products that no library computes (of parts, of groups) fuse as any reduction in the first plan. Where such a kernel is
// no contraction, the product is planned alone.
#pragma once
#include "codegen/compilation/compilation.h"

namespace tessera {

// Returns true where the plan is to be made again with other Compilation::Planning::contractions.
[[nodiscard]] Result<bool> contract_products(Compilation& compilation);

} // namespace tessera
