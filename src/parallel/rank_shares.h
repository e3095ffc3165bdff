// Divides things among ranks, so that each has about the same amount.
#pragma once

#include <cstdint>
#include <vector>

namespace trainer {

// Returns the rank of each thing: the largest first, each to the rank that has least so far (Graham 1969). It
// depends on nothing but the arguments. With `costs` of 0 or more, no rank has more than 4/3 of the best.
// `load`: what each rank has already; empty: nothing.
std::vector<int64_t> divide_among(int64_t ranks, const std::vector<int64_t>& costs,
                                  std::vector<int64_t> load = {});

}  // namespace trainer
