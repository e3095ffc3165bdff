// Shapes of the matrix products that a piece of work computes.
#pragma once

#include <cstdint>
#include <functional>
#include <set>

namespace trainer {

// Runs `work`. Returns the numbers of rows of all matrices that LibTorch multiplied with another in it, on
// this thread: of a layer's inputs, the number of tokens.
std::set<int64_t> rows_of_products(const std::function<void()>& work);

}  // namespace trainer
