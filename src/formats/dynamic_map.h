// The values of 8-bit codes in bitsandbytes' formats: the dynamic map of "8-Bit Approximations for
// Parallelism in Deep Learning" (Dettmers 2016). A code's exponent and fraction share its bits, so that small
// values keep their relative precision.
#pragma once

#include <array>

namespace trainer {

using DynamicMap = std::array<float, 256>;

// Returns the values in ascending order, the same bits as create_dynamic_map() of bitsandbytes. With a sign
// they reach from -0.99 to 1, without one from 0 to 1.
DynamicMap dynamic_map(bool with_sign);

}  // namespace trainer
