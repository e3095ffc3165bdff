// Samples among the rows of a batch.
#pragma once

#include <cstdint>
#include <vector>

namespace trainer {

// A sample's tokens among the rows [batch * seq] of a batch. What lies in no run is padding.
struct TokenRun {
  int64_t first, tokens;
};
using TokenRuns = std::vector<TokenRun>;

}  // namespace trainer
